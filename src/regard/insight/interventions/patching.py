"""Activation patching: the parts and words that carry the difference between two texts.

The model reads both texts. Then it reads the first again, each time with one part at one column replaced by its value
from the second, and

    returned = (m(patched) − m(first)) / (m(second) − m(first)),    m = log P(A) − log P(B)    at one step

is the share of the difference that this part alone carries (Vig et al. 2020; Meng et al. 2022). All cells of the grid
are rows of a few batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import check_choice
from regard.insight.interventions.changing import Place, names_of
from regard.insight.interventions.reading import Reading

KINDS = ("layers", "heads")


@dataclass(frozen=True, eq=False)
class PatchGrid:
    rows: tuple[str, ...]  # the places
    columns: tuple[str, ...]  # the words of the first text
    returned: np.ndarray  # [rows, columns]: 0 = as the first text, 1 = as the second
    step: int  # the step whose prediction is compared
    answers: tuple[str, str]  # A, B
    first: float  # m of the first text
    second: float

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "returned": np.round(self.returned, 5).tolist()}


def patch(
    first: Reading,
    second: Reading,
    kind: str = "layers",
    answers: tuple[int, int] | None = None,
    step: int | None = None,
) -> PatchGrid:
    """The grid of places × columns; A and B are the predictions of the two texts unless they are given."""
    check_choice("--patch-parts", kind, KINDS)
    across = first.source is not None and not torch.equal(first.source, second.source)  # type: ignore[arg-type]
    ours, theirs = (one.source if across else one.tokens for one in (first, second))
    assert ours is not None
    assert theirs is not None
    if ours.shape != theirs.shape:
        raise RegardError(f"The texts have {ours.size(1)} and {theirs.size(1)} tokens: patching needs equal lengths.")
    if torch.equal(ours, theirs):
        raise RegardError("The two texts are the same: there is no difference to patch.")
    if across and not torch.equal(first.tokens, second.tokens):
        raise RegardError("Both sources need the same target: give --target.")
    before, after = first.log_probabilities()[0], second.log_probabilities()[0]
    if answers is None:
        step, (a, b) = _compared(before, after, step)
    else:
        step, (a, b) = first.step_of(answers, step), answers
    if a == b:
        raise RegardError("Both words begin with the same token: name two words that begin differently.")

    def measure(found: Tensor) -> Tensor:
        return found[..., step, a] - found[..., step, b]

    start, end = float(measure(before)), float(measure(after))
    if abs(end - start) < 1e-9:
        raise RegardError("Both texts predict these two words equally: there is no difference to patch.")
    parts, columns = second.parts(), range(ours.size(1))
    places = list(_places(parts, kind, across))
    cells = [(names, index, column) for _, names, index in places for column in columns]
    values = []
    for top in range(0, len(cells), first.batch):
        some = cells[top : top + first.batch]
        changes = [
            (Place(name, index, column, row), _value(parts[name], index, column))
            for row, (names, index, column) in enumerate(some)
            for name in names
        ]
        with torch.no_grad():  # log P(A) − log P(B) is the difference of the logits
            values.append(measure(first.logits(changes, len(some))))
    returned = ((torch.cat(values).double() - start) / (end - start)).view(len(places), len(columns))
    words = first.source_words if across else first.words
    spoken = (first.tokenizer.token(a), first.tokenizer.token(b))
    return PatchGrid(tuple(label for label, _, _ in places), words, returned.cpu().numpy(), step, spoken, start, end)


def _places(parts: dict[str, Tensor], kind: str, across: bool) -> Iterator[tuple[str, list[str], int | None]]:
    """For each place, a label, the parts to replace together, and the head."""
    side = [name for name in parts if name.startswith("encoder/") == across and parts[name].dim() > 2]
    if kind == "heads":
        for name in (name for name in side if name.endswith("/heads")):
            yield from ((f"{names_of([name])[0]}[{head}]", [name], head) for head in range(parts[name].size(1)))
        return
    yield from ((name, [name], None) for name in side if name.endswith("embedding"))
    for name in (name for name in side if name.rpartition("/")[2].isdecimal() and not name.startswith("order/")):
        state = [f"{name}/{part}" for part in ("hidden", "cell") if f"{name}/{part}" in parts]
        yield (f"{name} state", state, None) if state else (name, [name], None)


def _value(part: Tensor, index: int | None, column: int) -> Tensor:
    return part[0, index, column] if index is not None else part[0, column]


def _compared(before: Tensor, after: Tensor, step: int | None) -> tuple[int, tuple[int, int]]:
    """The last step at which the two texts predict different words, or the given step, and these words."""
    ours, theirs = before.argmax(-1), after.argmax(-1)
    differing = [one for one in (ours != theirs).nonzero()[:, 0].tolist() if step is None or one == step]
    if not differing:
        where = "at every step" if step is None else f"at step {step}"
        raise RegardError(f"Both texts predict the same word {where}: name two words to compare (--why A --not B).")
    return differing[-1], (int(ours[differing[-1]]), int(theirs[differing[-1]]))
