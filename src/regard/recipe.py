"""A recipe: everything that decides a run, as one typed tree that reads and writes TOML.

    system = "lstm"
    size = "small"
    [data]       what is read and how it is cut into tokens
    [model]      the system's own settings (`Settings` in its file)
    [training]   how it learns

Values come from, each overriding the one before: the defaults here, the system's TRAINING defaults, its `--size`,
a recipe file, `--section.key value`. An unknown key or a wrong value fails where it is given, in one sentence.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import tomli_w

from regard.errors import RegardError
from regard.files import reading
from regard.settings import at_least, meant, one_of, setting
from regard.systems.catalogue import System, find, load_module
from regard.training.settings import Counting, PairTraining, Training

SIZES = ("tiny", "small", "medium", "large")
MOST = {"data.vocabulary": 10_000_000, "model.layers": 10_000}  # far beyond any use, and still answered at once


@dataclass(frozen=True)
class Data:
    corpus: str = setting("pyref", "a built-in or known corpus, a .txt file, or a folder with train/valid/test files")
    tokenizer: str = setting("auto", "word, char, byte or bpe; auto = what suits the corpus")
    vocabulary: int = setting(0, "most symbols to keep; 0 = all words or characters, and for bpe what suits the size")
    normalise: str = setting("auto", "Unicode normalisation: nfc, nfkc or none; auto = none for bpe and byte, else nfc")
    split: str = setting("auto", "how a single file is split: lines (by hash, 90/5/5) or tail (the end is held out)")

    def __post_init__(self) -> None:
        one_of("data.tokenizer", self.tokenizer, ("auto", "word", "char", "byte", "bpe"))
        one_of("data.normalise", self.normalise, ("auto", "nfc", "nfkc", "none"))
        one_of("data.split", self.split, ("auto", "lines", "tail"))
        at_least("data.vocabulary", self.vocabulary, 0)


@dataclass(frozen=True)
class PairData:
    """Sentence pairs, for a system that reads a source and writes a target."""

    corpus: str = setting("phrasebook", "a built-in or known corpus, a .tsv file (source⇥target), or a folder of files")
    source: str = setting("", "of files such as train.de and train.en: the language that is read, e.g. de")
    target: str = setting("", "… and the one that is written, e.g. en")
    swap: bool = setting(False, "exchange source and target")
    also: str = setting("", "more training pairs, with how often each counts: more.tsv:2,other.tsv:0.5")
    monolingual: str = setting("", "text in the target language, whose sources a run of the other direction makes up")
    translator: str = setting("", "that run, which translates from the target language into the source's")
    tokenizer: str = setting("auto", "word, char, byte or bpe; auto = what suits the corpus")
    vocabulary: int = setting(0, "most symbols to keep; 0 = all words or characters, and for bpe what suits the size")
    joint: bool = setting(True, "one vocabulary for both sides; false = one for each")
    normalise: str = setting("auto", "Unicode normalisation: nfc, nfkc or none; auto = nfc")
    bpe_dropout: float = setting(0.0, "share of merges left out at random while training (Provilkov et al. 2020)")
    longest: int = setting(256, "pairs with more tokens than this on a side are left out, and counted")
    truncate: bool = setting(False, "cut such sides instead")
    split: str = setting("auto", "how a single file is split: lines (without leaks, by hash) or tail (the end)")
    pairs: int = setting(0, "train on so many pairs; 0 = all there are")
    words: int = setting(0, "of the phrasebook: the most words of an English sentence; 0 = its own number")

    def __post_init__(self) -> None:
        one_of("data.tokenizer", self.tokenizer, ("auto", "word", "char", "byte", "bpe"))
        one_of("data.normalise", self.normalise, ("auto", "nfc", "nfkc", "none"))
        one_of("data.split", self.split, ("auto", "lines", "tail"))
        for name in ("vocabulary", "pairs", "words"):
            at_least(f"data.{name}", getattr(self, name), 0)
        at_least("data.longest", self.longest, 1)
        if not 0 <= self.bpe_dropout < 1:
            raise RegardError(f"data.bpe_dropout must be at least 0 and below 1, not {self.bpe_dropout}.")
        if bool(self.monolingual) != bool(self.translator):
            raise RegardError("data.monolingual and data.translator go together: a text, and a run that translates it.")


@dataclass(frozen=True)
class Recipe:
    system: str
    size: str
    data: Any  # Data or PairData
    model: Any
    training: Any

    def tree(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "size": self.size,
            **{part: dataclasses.asdict(getattr(self, part)) for part in ("data", "model", "training")},
        }

    def toml(self) -> str:
        return tomli_w.dumps(self.tree())

    def documented(self) -> str:
        """The same TOML with each setting's one-line documentation beside it."""
        lines = [tomli_w.dumps({"system": self.system, "size": self.size}).rstrip()]
        for part in ("data", "model", "training"):
            section = getattr(self, part)
            lines += ["", f"[{part}]"]
            pairs = [(tomli_w.dumps({f.name: getattr(section, f.name)}).strip(), f) for f in fields(section)]
            width = min(36, max((len(text) for text, _ in pairs), default=0))
            lines += [f"{text.ljust(width)}  # {f.metadata.get('doc', '')}".rstrip("# ") for text, f in pairs]
        return "\n".join(lines) + "\n"

    def replace(self, **sections: Mapping[str, Any]) -> Recipe:
        """A copy with some settings of some sections changed: recipe.replace(data={"tokenizer": "char"})."""
        changed = {part: dataclasses.replace(getattr(self, part), **values) for part, values in sections.items()}
        return dataclasses.replace(self, **changed)


def compose(system: str, size: str | None, *trees: Mapping[str, Any]) -> Recipe:
    """The recipe of a system at a size, with each tree of settings laid over the ones before."""
    entry = find(system)
    module = system_module(entry.name)
    chosen = size or next((tree["size"] for tree in reversed(trees) if tree.get("size")), "small")
    one_of("size", chosen, SIZES)
    sections: dict[str, Any] = {
        "data": Data if entry.task == "language model" else PairData,
        "model": module.Settings,
        "training": _training(entry),
    }
    values: dict[str, dict[str, Any]] = {part: {} for part in sections}
    if entry.trained != "counting":
        values["training"].update(getattr(module, "TRAINING", {}))
    for key, value in module.SIZES[chosen].items():
        part, _, name = key.rpartition(".")
        values[part or "model"][name] = value
    for tree in trees:
        _lay_over(values, tree, sections, entry.name)
    try:
        built = {part: sections[part](**values[part]) for part in sections}
    except TypeError as error:  # only one's own file can set what is not there
        raise RegardError(f"The SIZES or TRAINING of {entry.name} do not fit: {error}.") from None
    if isinstance(built["training"], Training):
        built["training"] = built["training"].for_context(getattr(built["model"], "context", None))
    return Recipe(system=entry.name, size=chosen, **built)


def _training(entry: System) -> type[Counting | Training | PairTraining]:
    if entry.trained == "counting":
        return Counting
    return Training if entry.task == "language model" else PairTraining


def system_module(name: str) -> Any:
    """The file of a system: its Settings, SIZES and TRAINING."""
    return load_module(name)


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe file as a tree; its keys are checked when it is composed."""
    if not path.exists():
        raise RegardError(f"There is no recipe {path}; `regard train lstm --print-recipe` prints one to start from.")
    with reading(path) as stream:
        content = stream.read()
    try:
        tree = tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise RegardError(f"{path} is not a recipe: it is nested too deeply.") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise RegardError(f"{path} is not valid TOML: {error}.") from None
    if "system" not in tree:
        raise RegardError(f'{path} names no system; begin it with a line such as system = "lstm".')
    for name in ("system", "size"):
        if not isinstance(tree.get(name, ""), str):
            raise RegardError(f"{name} must be text, not {tree[name]!r}.")
    return tree


def parse_overrides(words: Sequence[str], options: Sequence[str] = ()) -> dict[str, Any]:
    """`--model.layers 3 --training.budget=60s` → {"model": {"layers": "3"}, "training": {"budget": "60s"}}.

    `options` are the command's own, for the hint when one is misspelt.
    """
    tree: dict[str, Any] = {}
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise RegardError(f"Did not expect {word!r}: settings are written --section.key value.")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not words or words[0].startswith("--"):
                raise RegardError(f"--{key} needs a value.")
            value = words.pop(0)
        part, dot, name = key.replace("-", "_").partition(".")
        if not dot:
            near = meant(key, options) if options else "."
            raise RegardError(f"There is no option --{key}{near}")
        tree.setdefault(part, {})[name] = value
    return tree


def _lay_over(
    values: dict[str, dict[str, Any]], tree: Mapping[str, Any], sections: Mapping[str, Any], system: str
) -> None:
    for part, content in tree.items():
        if part in ("system", "size"):
            continue
        if part not in sections:
            raise RegardError(f"There is no setting {part}{meant(part, [*sections, 'system', 'size'])}")
        if not isinstance(content, Mapping):
            raise RegardError(f"{part} is a section: write its settings below [{part}].")
        types = get_type_hints(sections[part])
        for name, value in content.items():
            if name not in types:
                why = f"{system} is counted, not trained: " if sections[part] is Counting else ""
                near = meant(f"{part}.{name}", [f"{part}.{n}" for n in types])
                raise RegardError(f"{why}{system} has no setting {part}.{name}{near}")
            values[part][name] = _typed(f"{part}.{name}", value, types[name])


def _bounded(key: str, value: Any) -> Any:
    if key in MOST and value > MOST[key]:
        raise RegardError(f"{key} must be at most {MOST[key]}, not {value}.")
    if isinstance(value, int) and abs(value) >= 2**31:
        raise RegardError(f"{key} must be below 2 147 483 648, not {value}.")
    return value


def _typed(key: str, value: Any, kind: type) -> Any:
    """The value as its type; text (from the command line) is read, anything else must already be right."""
    if isinstance(value, str) and kind is not str:
        try:
            if kind is bool:
                return {"true": True, "false": False, "yes": True, "no": False}[value.lower()]
            return _bounded(key, kind(value))
        except (ValueError, KeyError):
            pass
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return _bounded(key, value)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise RegardError(f"{key} must be {words.get(kind, kind)}, not {value!r}.")
