"""The runs that a fine-tuned run comes from: its parent, the parent's parent, … and the lines they were trained on.

run.json                 "ancestors": the name, recipe, corpus and weights' digest of each, the parent first
recipe.toml              [from]: where the parent is, and the digest of its weights
ancestors.safetensors    a 64-bit digest of every line, or pair, that they were trained on

The digests are copied into the run, so that they survive if a parent or its text is deleted. If a parent was imported,
or its text was deleted before the fine-tuning, its lines are unknown, and this is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.runs.recipe import Recipe, without_folders
from regard.runs.store.facts import ANCESTORS, read_facts
from regard.runs.store.folder import open_recipe
from regard.runs.tasks.task import task_of
from regard.text.corpus import Corpus
from regard.text.pairs import PairCorpus, Pairs
from regard.text.readers.sources import TextLines
from regard.training.checkpoint import load_tensors, save_tensors

LINES = "lines"


@dataclass(frozen=True)
class Ancestors:
    """`runs`: the parent first. `lines`: sorted digests of the training lines of all runs whose text is known."""

    runs: tuple[Mapping[str, Any], ...] = ()
    lines: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of(cls, folder: Path) -> Ancestors:
        """The ancestors of a run, as its folder records them."""
        recorded = read_facts(folder).get("ancestors", [])
        if not isinstance(recorded, list) or not all(map(_is_record, recorded)):
            raise RegardError(f"{folder / 'run.json'} is damaged: it does not record which run {folder} started from.")
        if not any(one.get("lines") for one in recorded):
            return cls(tuple(recorded))
        found = load_tensors(folder / ANCESTORS)[0].get(LINES)
        if found is None or found.dtype != torch.int64:
            raise RegardError(f"{folder / ANCESTORS} is damaged: it has no digests of lines.")
        return cls(tuple(recorded), found.numpy().view(np.uint64))

    @classmethod
    def and_itself(cls, folder: Path, weights: str) -> Ancestors:
        """The ancestors of a new run that starts from this one, whose weights have this digest."""
        earlier, recipe, facts = cls.of(folder), open_recipe(folder), read_facts(folder)
        corpus = known if isinstance(known := facts.get("corpus"), dict) else {}
        made: dict[str, Any] = {
            "run": folder.resolve().name,
            "weights": weights,
            "corpus": {name: corpus.get(name) for name in ("name", "checksum")},
            "recipe": without_folders(recipe.tree()),
        }
        lines = earlier.lines
        try:
            own = np.fromiter(trained_on(folder, recipe), np.uint64)
            made["lines"] = len(own)
            lines = np.union1d(lines, own)
        except RegardError:  # whose sentence has paths of this machine, and a record travels
            why = "its text was missing or had changed" if recipe.data.corpus else "it was imported"
            made["unknown"] = f"what {made['run']}, from which it started, was trained on ({why})"
        return cls((made, *earlier.runs), lines)

    def save(self, folder: Path) -> None:
        if not len(self.lines):
            (folder / ANCESTORS).unlink(missing_ok=True)  # left by a training that was killed at its start
        else:
            save_tensors(folder / ANCESTORS, {LINES: torch.from_numpy(self.lines.view(np.int64))})

    @property
    def unknown(self) -> list[str]:
        """The reason why the lines of some ancestors are unknown."""
        return [str(one["unknown"]) for one in self.runs if "unknown" in one]

    def among(self, digests: Collection[int]) -> set[int]:
        """The lines, among those given, that an ancestor was trained on."""
        asked = np.fromiter(digests, np.uint64, len(digests))
        return set(asked[np.isin(asked, self.lines)].tolist())

    def notes(self, corpus: Corpus | PairCorpus) -> list[str]:
        """Sentences on how much of each held-out split the ancestors were trained on, and so is not really held out."""
        if not self.runs:
            return []
        who = f"{self.runs[0]['run']}{' or one of its ancestors' * (len(self.runs) > 1)}"
        found, what = [], corpus.splits["train"].unit
        for split, asked in corpus.splits.items():
            counts = Counter(asked.hashes()) if split != "train" else Counter()
            if shared := sum(counts[number] for number in self.among(counts)):
                share = f"{group_digits(shared)} of {pluralize(counts.total(), what)} of {split}"
                percent = f"{100 * shared / counts.total():.1f} %"
                verb, it = ("is", "it") if shared == 1 else ("are", "them")
                found.append(f"{share} ({percent}) {verb} not held out: {who} was already trained on {it}.")
        held_out = " or ".join(split for split in corpus.splits if split != "train")
        if self.unknown:
            return [
                *found,
                f"Lines of {held_out} may have been trained on, since it is unknown {'; '.join(self.unknown)}.",
            ]
        return found or [f"No {what} of {held_out} was in the training data of {who}."]


NONE = Ancestors()


def _is_record(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("run"), str) and isinstance(one.get("corpus"), dict)


def provenance(one: Mapping[str, Any]) -> str:
    """An ancestor's weights and text, for a page."""
    text = f"trained on {one['corpus'].get('name')}, checksum {one['corpus'].get('checksum')}"
    return f"weights {one.get('weights')}, {'its text is unknown' if 'unknown' in one else text}"


def trained_on(folder: Path, recipe: Recipe) -> Iterator[int]:
    """The hashes of the lines or pairs that a run was trained on, if its text is unchanged."""
    return task_of(recipe).trained_on(folder, recipe).hashes()


def seen_in_training(folder: Path, recipe: Recipe, asked: TextLines | Pairs) -> dict[str, Any]:
    """How much of a text a run and its ancestors were trained on: a sentence, and the share if it is known."""
    counts = Counter(asked.hashes())
    ancestors, own, unknown = Ancestors(), set[int](), []
    try:
        own = {number for number in trained_on(folder, recipe) if number in counts}
    except RegardError as error:
        unknown.append(str(error) if recipe.data.corpus else "the run was imported")
    try:
        ancestors = Ancestors.of(folder)
    except RegardError as error:
        unknown.append(str(error))
    before, total = ancestors.among(counts), counts.total()
    seen, earlier = (sum(counts[number] for number in some) for some in (own | before, before))
    share, what = seen / max(total, 1), f"{asked.unit}s"
    sentence = f"{group_digits(seen)} of {group_digits(total)} {what} ({100 * share:.1f} %) were trained on"
    if earlier:
        sentence += f", {group_digits(earlier)} of them by the runs that it started from"
    unknown += ancestors.unknown
    if not unknown:
        return {"seen_in_training": sentence, "share_seen_in_training": share}
    at_least = f"; at least {sentence}" if seen else ""
    return {"seen_in_training": f"unknown: {'; '.join(unknown)}{at_least}", "share_seen_in_training": None}
