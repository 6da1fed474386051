"""Random cases for the laws, and the comparison of two results; a difference raises a sentence with a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.layers.state import State
from regard.systems.model import Model
from regard.systems.translator import Translator

TOLERANCE = 1e-10  # fp64: only the order of summation may differ


class Broken(AssertionError):
    """A law does not hold: one sentence that says what changed, by how much, and what usually causes it."""


@dataclass(frozen=True)
class RandomCase:
    """One random case: tokens, how they are cut into calls, which columns are real."""

    seed: int
    rows: int
    columns: int

    def generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed * 1000 + sum(purpose.encode()))

    def integers(self, purpose: str, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator(purpose))

    def tokens(self, model: Model, purpose: str = "tokens", columns: int | None = None) -> Tensor:
        return self.integers(purpose, 0, model.vocabulary, self.rows, columns or self.columns)

    def lengths(self, purpose: str = "lengths", columns: int | None = None) -> Tensor:
        """Ragged lengths from 0 to all columns; one row is full, and of three or more one is empty."""
        columns = columns or self.columns
        lengths = self.integers(purpose, 0, columns + 1, self.rows)
        full, empty = torch.randperm(self.rows, generator=self.generator(purpose))[[0, -1]]
        if self.rows > 2:
            lengths[empty] = 0
        lengths[full] = columns
        return lengths

    def sources(self, model: Translator) -> tuple[Tensor, Tensor]:
        """Each row's source: ragged, with junk in the padding, and the lengths; at least one is full."""
        columns = self.columns + 1
        source = self.integers("source", 0, model.source_vocabulary, self.rows, columns)
        lengths = self.integers("source lengths", 1, columns + 1, self.rows)
        lengths[int(self.integers("full source", 0, self.rows, 1))] = columns
        return source, lengths

    def begin(self, model: Model, *, row: int | None = None, width: int = 1, capacity: int | None = None) -> State:
        """An initial state for all rows, or for one; a translator's has read the source, unpadded for one row."""
        if not isinstance(model, Translator):
            return model.begin(rows=self.rows if row is None else 1, width=width, capacity=capacity)
        source, lengths = self.sources(model)
        if row is not None:
            return model.begin(source[row : row + 1, : lengths[row]], width=width, capacity=capacity)
        return model.begin(source, lengths, width=width, capacity=capacity)

    def start(self, model: Model, *, row: int | None = None) -> State | None:
        """The state for a first call: None for a language model, for a translator that of its source."""
        return self.begin(model, row=row) if isinstance(model, Translator) else None

    def pieces(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The columns split at random positions."""
        cuts = self.integers("cuts", 0, 2, tokens.size(1) - 1).nonzero().flatten() + 1
        return tokens.tensor_split(cuts.tolist(), dim=1)


def hold(condition: object, sentence: str) -> None:
    if not bool(condition):
        raise Broken(sentence)


def close(one: Tensor, other: Tensor, what: str, why: str, axes: Sequence[str] = ()) -> None:
    """The same numbers to the tolerance, or: `what` by 0.31 at position 5: `why`. `axes` name dimensions, "" none."""
    hold(one.shape == other.shape, f"{what} from shape {list(other.shape)} to {list(one.shape)}: {why}")
    differs = ~torch.isclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)
    if differs.any():
        raise Broken(f"{what} {_difference(one, other, differs, axes)}: {why}")


def equal(one: Tensor, other: Tensor, what: str, why: str, axes: Sequence[str] = ()) -> None:
    """The same bits, or raises."""
    hold(one.shape == other.shape, f"{what} from shape {list(other.shape)} to {list(one.shape)}: {why}")
    if not torch.equal(one, other):
        raise Broken(f"{what} {_difference(one, other, one != other, axes)}: {why}")


def _difference(one: Tensor, other: Tensor, differs: Tensor, axes: Sequence[str]) -> str:
    one, other, first = one.detach(), other.detach(), differs.nonzero()[0].tolist()
    place = " and ".join(f"{name} {index}" for name, index in zip(axes, first) if name)
    place = f" at {place}" if place else ""
    if not (one.is_floating_point() and other.is_floating_point()):
        return f"from {other[tuple(first)]} to {one[tuple(first)]}{place}"
    apart = (one - other).abs()[differs]
    if not apart.isfinite().all():
        return f"to numbers that are not finite{place}"
    return f"by {float(apart.max()):.2g}{place}"


LOGITS = ("", "position", "")  # the axes of [R, T, V]


def leaves(state: State, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a state with its path; anything else in it raises an error."""
    hold(isinstance(state, dict), f"the state has a {type(state).__name__} at {path or 'its top'}: use a dict there")
    for name, part in state.items():
        if isinstance(part, dict):
            yield from leaves(part, f"{path}{name}.")
        else:
            hold(
                isinstance(part, Tensor),
                f"the state's {path}{name} is a {type(part).__name__}: a state contains only tensors and dicts of them",
            )
            yield path + name, part


def same_state(one: State, other: State, what: str, why: str) -> None:
    """The same names, and the same values to the tolerance; caches may differ beyond what was read."""
    names = [[name for name, _ in leaves(state)] for state in (one, other)]
    hold(names[0] == names[1], f"{what}, which holds {', '.join(names[0])} or {', '.join(names[1])}: {why}")
    for (name, a), (_, b) in zip(leaves(one), leaves(other), strict=True):
        close(a, b, f"{what} ({name})", why)


def gradients(model: Model, logits: Tensor) -> dict[str, Tensor]:
    """The gradient of a fixed random combination of the logits with respect to every parameter."""
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0), dtype=logits.dtype)
    parameters = dict(model.named_parameters())
    if not parameters:
        return {}
    found = torch.autograd.grad((logits * weights).sum(), list(parameters.values()), materialize_grads=True)
    return dict(zip(parameters, found, strict=True))


def same_gradients(one: dict[str, Tensor], other: dict[str, Tensor], what: str, why: str) -> None:
    for name, gradient in one.items():
        close(gradient, other[name], f"{what} of {name}", why)


def real(values: Tensor, lengths: Tensor) -> Tensor:
    """The real columns of all rows, one after the other."""
    return values[torch.arange(values.size(1)) < lengths[:, None]]
