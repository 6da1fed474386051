"""A recipe: all settings of a run, as one typed tree that reads and writes TOML.

    system = "lstm"
    size = "small"
    [from]       fine-tuning: the run whose weights and tokenizer it starts from
    [data]       the corpus and its tokenizer
    [model]      the system's own settings (`Settings` in its file)
    [training]   how it learns

Values come from, each overriding the one before: the defaults here, the system's training defaults, its `--size`,
a recipe file, `--section.key value`. An unknown key or a wrong value is reported where it is given, in one sentence.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any, get_type_hints

import tomli_w

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.base.settings import check_choice, did_you_mean, documentation
from regard.base.synonyms import SECTIONS, SYSTEM_FIRST, from_synonym
from regard.runs.tasks.task import find_task
from regard.systems.catalogue import SYSTEMS, System, find, load_module
from regard.systems.own.code import is_own
from regard.systems.sizes import SIZES, sizes_of
from regard.text.corpus import is_named
from regard.text.pairs import weighted
from regard.training.hyperparameters import CountTraining, Training

PARTS = ("data", "model", "training")
MOST_RECIPE = 1 << 20  # bytes
SHIPPED = Path(__file__).parent.parent / "recipes"  # that come with Regard: `regard train shakespeare-gpt.toml`


@dataclass(frozen=True)
class Start:
    """The run that a fine-tuning starts from, and the digest of its weights; "" in a recipe means any weights."""

    run: str
    weights: str = ""

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Start | None:
        """The section [from] of a recipe, if it has one."""
        if (said := tree.get("from")) is None:
            return None
        known = isinstance(said, Mapping) and said.keys() <= {"run", "weights"} and said.get("run")
        if not known or not all(isinstance(value, str) and "\0" not in value for value in said.values()):
            raise RegardError(
                '[from] must have two settings: run = "runs/parent" and weights = "the digest of its weights".'
            )
        return cls(**said)


@dataclass(frozen=True)
class Recipe:
    system: str
    size: str
    data: Any  # the task's data_settings
    model: Any
    training: Any
    given: frozenset[str] = field(default=frozenset(), compare=False)  # settings that were set explicitly: section.key
    start: Start | None = None

    def tree(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "size": self.size,
            **({} if self.start is None else {"from": dataclasses.asdict(self.start)}),
            **{part: dataclasses.asdict(getattr(self, part)) for part in PARTS},
        }

    def toml(self) -> str:
        return tomli_w.dumps(self.tree())

    def documented(self) -> str:
        """The same TOML with each setting's documentation as a comment."""
        lines = [tomli_w.dumps({name: value for name, value in self.tree().items() if name not in PARTS}).rstrip()]
        for part in PARTS:
            section = getattr(self, part)
            lines += ["", f"[{part}]"]
            pairs = [(tomli_w.dumps({f.name: getattr(section, f.name)}).strip(), f) for f in fields(section)]
            width = min(36, max((len(text) for text, _ in pairs), default=0))
            lines += [f"{text.ljust(width)}  # {documentation(f)}".rstrip("# ") for text, f in pairs]
        return "\n".join(lines) + "\n"

    def replace(self, **sections: Mapping[str, Any]) -> Recipe:
        """A copy with some settings of some sections changed: recipe.replace(data={"tokenizer": "char"})."""
        changed = {part: dataclasses.replace(getattr(self, part), **values) for part, values in sections.items()}
        return dataclasses.replace(self, **changed)


def has_smaller(recipe: Recipe) -> bool:
    """Whether there is a smaller --size to suggest; an imported model has no size."""
    return recipe.size in SIZES[1:]


def compose(system: str, size: str | None, *trees: Mapping[str, Any]) -> Recipe:
    """The recipe of a system at a size, with each tree of settings laid over the ones before.

    Size "" is for imported models: settings that they do not specify are those of size small.
    """
    entry = find(system)
    chosen = size if size is not None else next((tree["size"] for tree in reversed(trees) if "size" in tree), "small")
    check_choice("size", "small" if chosen == "" else chosen, SIZES)  # "": an imported model
    sections = _sections(entry)
    values: dict[str, dict[str, Any]] = {part: {} for part in sections}
    given = frozenset(f"{part}.{name}" for tree in trees for part in sections for name in _section(tree, part))
    sizes = sizes_of(entry.name)
    for part in sections:
        values[part].update(sizes.of(chosen or "small", part))
    for tree in trees:
        _lay_over(values, tree, sections, entry.name)
        if {"evaluate_every", "validations"} & _section(tree, "training").keys() == {"evaluate_every"}:
            values["training"]["validations"] = 0  # it sets the interval, whatever an earlier tree set
    try:
        built = {part: sections[part](**values[part]) for part in sections}
    except TypeError as error:  # only one's own file can set what is not there
        raise RegardError(f"The SIZES or TRAINING of {entry.name} are invalid: {error}.") from None
    if isinstance(built["training"], Training):
        built["training"] = built["training"].for_context(getattr(built["model"], "context", None))
    start = next(filter(None, map(Start.of, reversed(trees))), None)
    return Recipe(system=entry.name, size=chosen, given=given, start=start, **built)


def _sections(entry: System) -> dict[str, Any]:
    """The dataclass of each section of a system's recipe."""
    task = find_task(entry.task)
    return {
        "data": task.data_settings,
        "model": system_module(entry.name).Settings,
        "training": CountTraining if entry.trained == "counting" else task.training_settings,
    }


def system_module(name: str) -> Any:
    """The file of a system, with its Settings."""
    return load_module(name)


def find_recipe(path: Path) -> Path:
    """A recipe file, or the one of this name that comes with Regard (x.toml or recipes/x.toml)."""
    if path.exists():
        return path
    advice = "`regard train lstm --print-recipe` prints one to start from."
    if path.parent not in (Path(), Path("recipes")):
        raise RegardError(f"There is no recipe {path}; {advice}")
    if (SHIPPED / path.name).exists():
        return SHIPPED / path.name
    near = did_you_mean(path.name, [file.name for file in sorted(SHIPPED.glob("*.toml"))])
    raise RegardError(f"There is no recipe {path}, and none of that name comes with Regard{near} {advice}")


def read_recipe(path: Path) -> dict[str, Any]:
    """A recipe file as a tree; its keys are checked when it is composed."""
    path = find_recipe(path)
    content = read_whole(path, MOST_RECIPE, foreign=True)
    try:
        tree = tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise RegardError(f"{path} is not a recipe: its values are nested too deeply.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RegardError(f"{path} is not valid TOML: {error}.") from None
    except ValueError:
        raise RegardError(f"{path} has a number with thousands of digits: shorten it.") from None
    if not isinstance(tree.get("system"), str) or "\0" in tree["system"]:
        raise RegardError(f'{path} does not name a system; start it with a line such as system = "lstm".')
    return tree


def written_in(recipe: Recipe, folder: Path) -> str:
    """The TOML of a run, with the data's path relative to the run's folder."""
    base = folder.resolve()

    def seen_from_there(path: str) -> str:
        try:
            return Path(os.path.relpath(path, base)).as_posix()
        except ValueError:  # another drive
            return path

    return tomli_w.dumps(_with_paths(recipe.tree(), seen_from_there))


def read_in(folder: Path) -> dict[str, Any]:
    """The tree of a run's recipe, with the data's path resolved from the run's folder."""
    base = folder.resolve()
    return _with_paths(read_recipe(folder / "recipe.toml"), lambda path: os.path.normpath(base / path))


def without_folders(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with file names instead of paths: data are then looked for in the run's folder, and the run it starts
    from next to that folder.
    """
    plain = _with_paths(dict(tree), lambda path: f"./{_last_part(path)}")
    if is_own(str(plain.get("system", ""))):
        file, _, label = str(plain["system"]).rpartition(":")
        plain["system"] = f"{_last_part(file)}:{label}" if file.endswith(".py") else plain["system"]
    if (start := Start.of(tree)) is not None:
        plain["from"] = {"run": f"../{_last_part(start.run)}", "weights": start.weights}
    return plain


def _last_part(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).name or "data"


def _with_paths(tree: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    if (start := Start.of(tree)) is not None:
        tree = {**tree, "from": {"run": change(start.run), "weights": start.weights}}
    data = tree.get("data")
    if not isinstance(data, dict):  # refused when it is composed
        return tree
    names = [name for name in ("corpus", "monolingual", "translator") if isinstance(data.get(name), str) and data[name]]
    changed = {name: change(data[name]) for name in names if name != "corpus" or not is_named(data[name])}
    if isinstance(data.get("also"), str) and data["also"]:
        changed["also"] = ",".join(f"{change(path)}:{weight:g}" for path, weight in weighted(data["also"]))
    return {**tree, "data": {**data, **changed}}


def parse_overrides(words: Sequence[str], options: Sequence[str] = (), system: str | None = None) -> dict[str, Any]:
    """`--model.layers 3 --training.budget=60s` → {"model": {"layers": "3"}, "training": {"budget": "60s"}}.

    `options` (of the command) and `system` are used to suggest corrections of misspelled names.
    """
    tree: dict[str, Any] = {}
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            how = f"give data as --data {word}" if os.path.exists(word) else "write settings as --section.key value"
            raise RegardError(f"Unexpected argument {word!r}: {how}.")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not words or words[0].startswith("--"):
                raise RegardError(f"--{key} needs a value.")
            value = words.pop(0)
        part, dot, name = key.replace("-", "_").partition(".")
        if not dot:
            if key in SYSTEM_FIRST.split():
                raise RegardError(f"There is no option --{key}: the system comes first, as in `regard train lstm`.")
            known = {f"--{option}": "" for option in options} | {f"--{k}": doc for k, doc in known_settings(system)}
            near = did_you_mean(f"--{key}", known, [f"--{option}" for option in options]) if options else "."
            raise RegardError(f"There is no option --{key}{near}")
        tree.setdefault(part, {})[name] = value
    return tree


def known_settings(system: str | None = None) -> Iterator[tuple[str, str]]:
    """Every setting of a system, or of any system, with its documentation."""
    for entry in SYSTEMS if system is None or system.endswith(".toml") else (find(system),):
        for part, section in _sections(entry).items():
            yield from ((f"{part}.{f.name}", f.metadata.get("doc", "")) for f in fields(section))


def _lay_over(
    values: dict[str, dict[str, Any]], tree: Mapping[str, Any], sections: Mapping[str, Any], system: str
) -> None:
    for part in tree:
        if part in ("system", "size", "from"):
            continue
        if part not in sections:
            found, own = from_synonym(part, SECTIONS, sections), [*sections, "system", "size"]
            near = (
                f": did you mean {found}?" if found else did_you_mean(part, [*own, *dict(known_settings(system))], own)
            )
            raise RegardError(f"There is no setting {part}{near}")
        content = _section(tree, part)
        types = get_type_hints(sections[part])
        for name, value in content.items():
            if name not in types:
                why = f"{system} is trained by counting: " if sections[part] is CountTraining else ""
                near = did_you_mean(f"{part}.{name}", dict(known_settings(system)), [f"{part}.{n}" for n in types])
                raise RegardError(f"{why}{system} has no setting {part}.{name}{near}")
            values[part][name] = _typed(f"{part}.{name}", value, types[name])


def _section(tree: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    content = tree.get(part, {})
    if not isinstance(content, Mapping):
        raise RegardError(f"{part} is a section: put its settings under [{part}].")
    return content


def _bounded(key: str, value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**31:
        raise RegardError(f"{key} must be below 2,147,483,648.")
    return value


def _typed(key: str, value: Any, kind: type) -> Any:
    """The value in its setting's type; text (from the command line) is parsed, any other value must have the right
    type.
    """
    if isinstance(value, str) and "\0" in value:
        raise RegardError(f"{key} must be text without NUL characters.")
    if isinstance(value, str) and kind is not str:
        try:
            if kind is bool:
                return {"true": True, "false": False, "yes": True, "no": False}[value.lower()]
            return _bounded(key, kind(value))
        except (ValueError, KeyError):
            pass
    elif kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return float(value)
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return _bounded(key, value)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    shown = repr(value)
    raise RegardError(f"{key} must be {words.get(kind, kind)}, not {shown if len(shown) < 50 else shown[:40] + '…'}.")
