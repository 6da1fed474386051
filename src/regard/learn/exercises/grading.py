"""Grades a user's function against Regard's own on random inputs, and by the laws.

A common mistake is recognized by its results: if all answers are exactly those of the mistake, its sentence is
printed. Otherwise the first differing entry is named. For a right answer, the gradients are then compared, and the laws
of the contract are tested on a small model built with it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.laws.registry import Build, LawResult, run_laws
from regard.systems.own.code import crash

Function = Callable[..., Any]


class RandomInputs:
    """Random tensors in float64 and whole numbers, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def whole(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def tokens(self, vocabulary: int, *shape: int) -> Tensor:
        return torch.randint(0, vocabulary, shape, generator=self.generator)

    def distinct(self, count: int, low: int, high: int) -> list[int]:
        """Distinct integers, so that no size can be mistaken for another."""
        return (torch.randperm(high + 1 - low, generator=self.generator)[:count] + low).tolist()


@dataclass(frozen=True)
class Mistake:
    sentence: str  # the mistake, as a clause
    answer: Function  # its results for the same inputs


@dataclass(frozen=True)
class ExpectedOutput:
    """Something that the function returns, with the names of its axes."""

    name: str
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grader:
    own: str  # Regard's own code: path in the package, and name
    cases: Callable[[RandomInputs], Iterable[tuple[Any, ...]]]  # the arguments of each call
    answer: Function  # Regard's own
    outputs: tuple[ExpectedOutput, ...]
    mistakes: tuple[Mistake, ...]
    model: Callable[[Function], Build] | None = None  # a small model that contains the function
    laws: tuple[int, ...] = ()  # laws that this model must obey
    tolerance: float = 1e-9
    differentiable: bool = True


@dataclass(frozen=True)
class Grade:
    right: bool
    sentence: str
    inputs: int = 0  # how many random inputs were tried
    laws: tuple[int, ...] = field(default=())


def grade(function: Function, grader: Grader, seed: int) -> Grade:
    """Compares the function with Regard's own; the sentence describes the first error."""
    cases = list(grader.cases(RandomInputs(seed)))
    wrong = (
        _wrong_values(function, grader, cases)
        or _wrong_gradients(function, grader, cases)
        or _wrong_laws(function, grader)
    )
    if wrong:
        return Grade(False, wrong, len(cases))
    return Grade(True, f"Regard's own is {grader.own}", len(cases), grader.laws)


# -- values ----------------------------------------------------------------------------------------------------------


def _wrong_values(function: Function, grader: Grader, cases: Sequence[tuple[Any, ...]]) -> str:
    for arguments in cases:
        given = copied(arguments)
        try:
            answer = function(*given)
        except Exception as error:
            return _crashed(function, error)
        if changed := [name for name, a, b in zip(_names(function), given, arguments) if not _equal(a, b)]:
            return f"it changes {changed[0]}, which belongs to the caller: make a new tensor instead of writing into it"
        expected = grader.answer(*copied(arguments))
        if wrong := differs(answer, expected, grader.outputs, grader.tolerance):
            known = _recognised(function, grader, cases)
            return f"{known + ': ' if known else ''}{wrong}{_numbers(function, arguments)}"
    try:
        again = [function(*copied(arguments)) for arguments in cases]
    except Exception as error:
        return f"called a second time, {_crashed(function, error)}: store nothing between calls"
    for arguments, answer in zip(cases, again):
        if differs(answer, grader.answer(*copied(arguments)), grader.outputs, grader.tolerance):
            return (
                "the same call gives a different answer the second time: store nothing between calls and "
                "use no random numbers"
            )
    return ""


def _recognised(function: Function, grader: Grader, cases: Sequence[tuple[Any, ...]]) -> str:
    """The mistake that gives the same answers to all inputs."""
    try:
        answers = [function(*copied(arguments)) for arguments in cases]
    except Exception:
        return ""
    for mistake in grader.mistakes:
        try:
            same = all(
                not differs(answer, mistake.answer(*copied(arguments)), grader.outputs, grader.tolerance)
                for arguments, answer in zip(cases, answers)
            )
        except Exception:  # a mistake may not be computable for every input
            continue
        if same:
            return mistake.sentence
    return ""


def _crashed(function: Function, error: Exception) -> str:
    where = crash(error).rstrip(".")
    if isinstance(error, NotImplementedError):
        task = str(error).rstrip(".") or "write what is missing"
        return f"the blank is still empty: {task}{_line(where)}"
    return f"it stops with {where or f'{type(error).__name__}: {error}'}"


def _line(where: str) -> str:
    place = where.partition(" on line ")[2].partition(" (")[0]
    return f" (line {place})" if place else ""


def _numbers(function: Function, arguments: tuple[Any, ...]) -> str:
    """The plain numbers among the arguments: for which of them it is wrong."""
    pairs = zip(_names(function), arguments)
    said = [f"{name} = {value:g}" for name, value in pairs if isinstance(value, (int, float))]
    return f" ({', '.join(said)})" if said else ""


def _names(function: Function) -> list[str]:
    return list(inspect.signature(function).parameters)


def copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, (tuple, list)):
        return type(value)(copied(part) for part in value)
    return value


def _equal(one: Any, other: Any) -> bool:
    if isinstance(other, Tensor):
        return isinstance(one, Tensor) and one.shape == other.shape and torch.equal(one, other)
    if isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other))
    return True


# -- comparing -------------------------------------------------------------------------------------------------------


def differs(given: Any, expected: Any, outputs: Sequence[ExpectedOutput], tolerance: float) -> str:
    """The difference between an answer and the right one: its form, or its first wrong entry; "" if they agree."""
    if given is None:
        return "it returns nothing: is the return missing?"
    if len(outputs) == 1:
        return _differs(given, expected, outputs[0], tolerance)
    names = ", ".join(output.name for output in outputs)
    if not isinstance(given, tuple) or len(given) != len(outputs):
        return f"it must return {len(outputs)} values, {names}, as a tuple, not {_kind(given)}"
    differences = (_differs(*parts, tolerance) for parts in zip(given, expected, outputs))
    return next(filter(None, differences), "")


def _differs(given: Any, expected: Any, output: ExpectedOutput, tolerance: float) -> str:
    if isinstance(expected, list):
        return _list_differs(given, expected, output, tolerance)
    if isinstance(expected, (int, float)):
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if not number and not (isinstance(given, Tensor) and given.dim() == 0):
            return f"{output.name} must be a number, not {_kind(given)}"
        given, expected = _as_tensor(given), _as_tensor(expected)
    return _tensor_differs(given, expected, output, tolerance)


def _as_tensor(number: Any) -> Tensor:
    """A plain number with all its digits."""
    return torch.tensor(number, dtype=torch.float64) if isinstance(number, float) else torch.as_tensor(number)


def _list_differs(given: Any, expected: list[Any], output: ExpectedOutput, tolerance: float) -> str:
    if not isinstance(given, list):
        return f"{output.name} must be a list, not {_kind(given)}"
    for place, (one, other) in enumerate(zip(given, expected)):
        if wrong := _differs(one, other, ExpectedOutput(f"{output.axes[0]} {place}", output.axes[1:]), tolerance):
            return wrong
    if len(given) != len(expected):
        return f"{output.name} has {len(given)} entries, but {len(expected)} are expected"
    return ""


def _tensor_differs(given: Any, expected: Tensor, output: ExpectedOutput, tolerance: float) -> str:
    name = output.name
    if not isinstance(given, Tensor):
        return f"{name} must be a tensor, not {_kind(given)}"
    if given.shape != expected.shape:
        axes = f" ({', '.join(output.axes)})" if output.axes else ""
        return f"{name} has shape {list(given.shape)}, but {list(expected.shape)}{axes} is expected"
    if _sort(given.dtype) != _sort(expected.dtype):
        return f"{name} is of type {_plain(given.dtype)}, but {_plain(expected.dtype)} is expected"
    exact, actual = expected.detach().double(), given.detach().double()
    wrong = ~torch.isclose(actual, exact, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not wrong.any():
        return ""
    if given.dtype in (torch.float16, torch.bfloat16, torch.float32) and torch.allclose(actual, exact, 1e-2, 1e-4):
        return (
            f"{name} is computed in {_plain(given.dtype)}, where the inputs are float64: keep this precision throughout"
        )
    first = tuple(wrong.nonzero()[0].tolist())
    named = ", ".join(f"{axis} {index}" for axis, index in zip(output.axes, first))
    place = named or (str(list(first)) if first else "")
    yours, right = actual[first], exact[first]
    sentence = (
        f"{name}{f' at {place}' if place else ''} is {_entry(yours, given)}, but {_entry(right, expected)} is expected"
    )
    return sentence + ("; something divides 0 by 0 or subtracts ∞ from ∞" if bool(yours.isnan()) else "")


def _entry(value: Tensor, tensor: Tensor) -> str:
    number = float(value)
    if tensor.dtype == torch.bool:
        return str(bool(number))
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("∞" if number > 0 else "−∞")
    return f"{number:.5g}" if tensor.dtype.is_floating_point else str(int(number))


def _sort(dtype: torch.dtype) -> tuple[bool, bool]:
    """Boolean, integer or float: types that are not interchangeable."""
    return dtype == torch.bool, dtype.is_floating_point


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "nothing" if value is None else f"{type(value).__name__}"


# -- gradients and laws ----------------------------------------------------------------------------------------------


def _wrong_gradients(function: Function, grader: Grader, cases: Sequence[tuple[Any, ...]]) -> str:
    """The first input whose gradient is missing or differs from Regard's own; "" if there is none."""
    if not grader.differentiable:
        return ""
    names = _names(function)
    for arguments in cases:
        try:
            gradients = _gradients(function, arguments)
        except RuntimeError as error:
            why = str(error).splitlines()[0].rstrip(".")
            return f"its values are right, but its gradient cannot be computed ({why})"
        except Exception as error:
            return f"its values are right, but computing its gradient fails: {_crashed(function, error)}"
        for place, right in _gradients(grader.answer, arguments).items():
            if gradients.get(place) is None:
                return (
                    f"its values are right, but no gradient reaches {names[place]}, so that nothing could be learned "
                    "through it: .detach(), .item(), .tolist(), torch.tensor(…) and no_grad() cut it off"
                )
            output = ExpectedOutput(f"the gradient of {names[place]}")
            if wrong := _tensor_differs(gradients[place], right, output, 1e-7):
                return f"its values are right, but {wrong}"
    return ""


def _gradients(function: Function, arguments: tuple[Any, ...]) -> dict[int, Tensor]:
    """The gradient of a fixed random combination of the outputs, for each tensor among the arguments it reaches."""
    inputs = {
        place: value.clone().requires_grad_()
        for place, value in enumerate(arguments)
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    answer = function(*(inputs.get(place, copied(value)) for place, value in enumerate(arguments)))
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros((), dtype=torch.float64)
    for part in answer if isinstance(answer, (tuple, list)) else (answer,):
        if isinstance(part, Tensor) and part.requires_grad:
            total = total + (part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum()
        elif isinstance(part, Tensor) and part.is_floating_point():
            torch.randn(part.shape, generator=generator)
    if not inputs or not total.requires_grad:
        return {}
    gradients = torch.autograd.grad(total, list(inputs.values()), allow_unused=True)
    return {place: gradient for place, gradient in zip(inputs, gradients) if gradient is not None}


def _wrong_laws(function: Function, grader: Grader) -> str:
    if grader.model is None:
        return ""
    broken: list[LawResult] = [law for law in run_laws(grader.model(function), only=grader.laws) if not law.holds]
    if not broken:
        return ""
    return f"in a model it breaks law {broken[0].number}, {broken[0].wording}: {broken[0].sentence.rstrip('.')}"
