"""A run's folder: its files, and how to open it.

recipe.toml            every setting, resolved
run.json               version, device, threads, corpus and its checksum
tokenizer.json         text ↔ tokens (of the target or the labels, if there is also a tokenizer.source.json)
model.safetensors      the weights that were best on validation
chat_template.jinja    imported chat models: the template that renders a conversation as text
ancestors.safetensors  fine-tuned runs: digests of the lines that their ancestors were trained on
training.safetensors   the checkpoint a resume starts from (the last weights are in it)
kept/                  for pairs, the weights of the last validations
snapshots/             if training.snapshots is set, weights saved during training
metrics.jsonl          the learning curve
report.html            the run's own page
mine.py                for your own systems: a copy of the code
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.base.cache import cache_folder, cached
from regard.base.digests import check_digests
from regard.base.errors import RegardError
from regard.base.fields import shown, whole_number
from regard.base.numbers import pluralize
from regard.report.progress import say
from regard.runs.recipe import Recipe, compose, read_in
from regard.runs.store.facts import read_facts
from regard.runs.tasks.task import task_of
from regard.systems.catalogue import find, load_class
from regard.systems.model import Model
from regard.systems.own.code import is_own, locate, require_trusted, trust_copy, was_named
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import load_tensors, unflatten
from regard.training.checkpointing import SNAPSHOTS, kept_weights, weights_in

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.source.json")


def open_recipe(folder: Path) -> Recipe:
    """The recipe of a run, after checking that this version can read it."""
    facts = read_facts(folder)
    tree = read_in(folder)
    named = str(tree["system"])
    if is_own(named):
        tree["system"] = own_code(named, facts, folder)
    try:
        recipe = compose(str(tree["system"]), None, tree)
    except RegardError as error:
        raise RegardError(f"{folder / 'recipe.toml'} is damaged or has been modified: {error}") from None
    if isinstance(made := facts.get("recipe"), dict):
        _check_kept(made, json.loads(json.dumps(recipe.tree() | {"system": named})), folder)
    return recipe


# Settings that do not affect the result: devices, micro-batches, and the path of the data, whose content is checked:
MAY_CHANGE = ("accumulate", "capture", "checkpoint_every", "compile", "device", "shard", "threads")
MAY_MOVE = ("corpus", "also", "monolingual", "translator")


def stays(name: str) -> str:
    may = ", ".join(f"training.{name}" for name in MAY_CHANGE)
    return f"A run cannot change its {name}; `regard resume` accepts only changes of {may}."


def _check_kept(made: Mapping[str, Any], found: Mapping[str, Any], folder: Path) -> None:
    """Refuse a recipe.toml that was changed after training."""
    for part, values in made.items():
        here = found.get(part)
        if not isinstance(values, dict) or not isinstance(here, dict):
            values, here = {"": values}, {"": here}
        for name, value in values.items():
            now = here.get(name)
            moved = (part == "data" and name in MAY_MOVE) or (part, name) == ("from", "run")
            if now == value or moved or (part == "training" and name in MAY_CHANGE):
                continue
            key = f"{part}.{name}" if name else part
            raise RegardError(
                f"{folder / 'recipe.toml'} has been modified: {key} was {_short(value)} and is now "
                f"{_short(now)}. {stays(key)}"
            )


def _short(value: Any) -> str:
    return text if len(text := repr(value)) <= 200 else f"{text[:197]}…"


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a run: `target` for its output; `source` for its input, None for a language model.

    With a joint vocabulary, both are the same object and are stored in one file.
    """

    target: Tokenizer
    source: Tokenizer | None = None

    @classmethod
    def load(cls, folder: Path, has_source: bool) -> Tokenizers:
        target = Tokenizer.load(folder / "tokenizer.json")
        own = folder / "tokenizer.source.json"
        return cls(target, (Tokenizer.load(own) if own.exists() else target) if has_source else None)

    def save(self, folder: Path) -> None:
        self.target.save(folder / "tokenizer.json")
        if self.source is not None and self.source is not self.target:
            self.source.save(folder / "tokenizer.source.json")
        else:
            (folder / "tokenizer.source.json").unlink(missing_ok=True)  # left by a start that was killed


def open_tokenizers(folder: Path, recipe: Recipe) -> Tokenizers:
    if isinstance(recorded := read_facts(folder).get("files"), dict):
        check_digests(folder, TOKENIZER_FILES, recorded)
    return Tokenizers.load(folder, has_source(recipe))


def own_code(system: str, facts: dict[str, Any], folder: Path) -> str:
    """The file with the code a run was trained with: the original or, if that has changed since, the run's copy.

    It is executed only if the user named exactly this code on this machine before; see `systems/own/code.py`.
    """
    recorded = facts.get("code")
    recorded = recorded if isinstance(recorded, dict) else {}
    place, _, label = system.rpartition(":")
    copy = folder / Path(str(recorded.get("file", "")) or "code").name
    for name in (system, f"{copy}:{label}"):
        try:
            code = locate(name)
        except RegardError:
            continue
        if code.digest != recorded.get("sha256"):
            continue
        if name != system and was_named(code.digest, Path(place)):
            say(f"note: {place} is not the code that {folder} was trained with; using the run's own copy, {copy}")
            return trust_copy(code, Path(place)).name
        return require_trusted(code, folder).name
    raise RegardError(
        f"{folder} was trained with your own code, but neither {place} nor {copy} contains that code now: "
        "restore it, or train a new run."
    )


def moments(folder: Path) -> dict[int, Path]:
    """The weights saved during training, by step: those of training.snapshots and training.keep."""
    files = [*kept_weights(folder), *weights_in(folder / SNAPSHOTS)]
    return {int(path.stem): path for path in sorted(files, key=lambda path: path.stem)}


def read_weights(folder: Path, weights: str = "best") -> dict[str, Tensor]:
    if (step := whole_number(weights)) is not None:
        kept = moments(folder)
        if step not in kept:
            known = (
                f"choose one of the steps {', '.join(map(str, kept))}"
                if kept
                else "set training.snapshots to save some"
            )
            raise RegardError(f"{folder} has no weights for step {step}: {known}.")
        return load_tensors(kept[step])[0]
    if weights not in ("best", "last"):
        raise RegardError(f"--weights must be best, last, or a step whose weights were saved, not {shown(weights)}.")
    best, checkpoint = folder / "model.safetensors", folder / "training.safetensors"
    if weights == "best" and best.exists():
        return load_tensors(best)[0]
    if checkpoint.exists():
        tensors, note = load_tensors(checkpoint)
        if weights == "best":
            if note.get("progress", {}).get("best_step", -1) > 0:
                raise RegardError(f"{best} is missing: restore it, or use --weights last.")
            say(f"note: {folder} has not been validated yet; using its last weights")
        return unflatten(tensors, "model")
    if best.exists():  # an n-gram has only one set of weights
        return load_tensors(best)[0]
    raise RegardError(f"{folder} has no weights: its training never started; train it again.")


def average_weights(folder: Path, count: int) -> dict[str, Tensor]:
    """The mean of the weights of the last `count` validations (Vaswani et al. 2017, section 6.1)."""
    kept = kept_weights(folder)
    if not kept:
        raise RegardError(
            f"{folder} has no weights to average: train with training.keep, which is available for training on pairs."
        )
    if count < 1:
        raise RegardError(f"--average must be at least 1, not {count}.")
    if len(kept) < count:
        raise RegardError(
            f"{folder} has the weights of only {pluralize(len(kept), 'validation')}: lower --average, or "
            "train with a larger "
            "training.keep."
        )
    mean: dict[str, Tensor] = {}
    for path in kept[-count:]:
        for name, weight in load_tensors(path)[0].items():
            mean[name] = weight.double() / count + mean.get(name, 0.0)
    like = load_tensors(kept[-1])[0]
    return {name: weight.to(like[name].dtype) for name, weight in mean.items()}


def set_weights(model: Model, weights: dict[str, Tensor], folder: Path) -> None:
    """Weights stored in bf16, as by `regard import --precision bf16`, stay in bf16 for computation."""
    if weights and all(weight.dtype == torch.bfloat16 for weight in weights.values()):
        model.to(torch.bfloat16)
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise RegardError(
            f"The weights in {folder} do not fit its recipe.toml: one of the two has been modified."
        ) from None


DRAWING = {nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_}


class _Undrawn(TorchFunctionMode):
    """Skips the random initialization of weights. (For meta tensors, PyTorch would load its compiler, which takes a
    second.)
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in DRAWING:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def build_model(recipe: Recipe, tokenizers: Tokenizers, *, drawn: bool = True) -> Model:
    """`drawn`: with initial weights; otherwise the caller must load weights. Your own systems may initialize more than
    weights, so they are always initialized.
    """
    kind, settings = load_class(recipe.system), {}
    if tokenizers.source is not None and tokenizers.source is not tokenizers.target:
        settings["source_vocabulary"] = tokenizers.source.vocabulary
    with nullcontext() if drawn or is_own(recipe.system) else _Undrawn():
        return kind(tokenizers.target.vocabulary, recipe.model, **settings)


def forbidden_tokens(tokenizer: Tokenizer, unseen: Iterable[int] = (), *, one_line: bool = False) -> list[int]:
    """Special symbols and unseen byte pieces; with `one_line`, also every token with a line end or a tab."""
    breaks = [n for n, token in enumerate(tokenizer.tokens) if one_line and {"\n", "\r", "\t"} & set(token)]
    return [n for n in sorted({*tokenizer.specials, *breaks, *unseen}) if n != tokenizer.eos]


def unseen_bytes(tokenizer: Tokenizer, ids: np.ndarray) -> list[int]:
    """The byte pieces that a training text does not contain: a model never learns when to generate them. If the ids are
    cached, the result is cached with them, under the same digest of text and tokenizer.
    """
    pieces = tokenizer.byte_pieces

    def find() -> list[int]:
        seen = np.zeros(tokenizer.vocabulary, dtype=bool)
        for start in range(0, len(ids), 1 << 22):  # the ids may be larger than memory
            seen[ids[start : start + (1 << 22)]] = True
        return [n for n in pieces if not seen[n]]

    path = Path(getattr(ids, "filename", None) or "")
    if not pieces or path.parent != cache_folder() / "tokens":
        return find() if pieces else []
    return cached("tokens", f"{path.stem}.unseen", find, lambda found: json.dumps(found).encode(), json.loads)


def recorded_unseen(folder: Path, tokenizer: Tokenizer) -> list[int]:
    """The `unseen_bytes` of a run's training text; empty for an imported run."""
    corpus = read_facts(folder).get("corpus")
    recorded = corpus.get("unseen_bytes") if isinstance(corpus, dict) else None
    known = {n for n in recorded if isinstance(n, int)} if isinstance(recorded, list) else set()
    return [n for n in tokenizer.byte_pieces if n in known]


def has_source(recipe: Recipe) -> bool:
    """True if the system learns from pairs: it reads a source, which it translates or labels."""
    return task_of(recipe).has_source


def is_counted(recipe: Recipe) -> bool:
    return find(recipe.system).trained == "counting"


def count_parameters(model: Model) -> int:
    stored = getattr(model, "stored_numbers", None)
    return stored if stored is not None else sum(p.numel() for p in model.parameters())
