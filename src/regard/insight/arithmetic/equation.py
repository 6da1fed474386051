"""Arithmetic you can follow: a model's computation at one step, with numbers in place of letters.

    work = run.work("the dog ran", step=2, layer=0, head=1)
    for section in work.sections:
        for line in section.lines:
            print(line.name, "=", line.formula, line.terms, line.rest, line.total, line.value)

Every line is a sum: its terms and `rest` always add up to `total`. A sum of many terms shows the largest; `rest` is the
sum of the others. `value` is the number that the model computed, one `function` of the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from torch import Tensor

from regard.base.numbers import group_digits
from regard.insight.words import LOOKS, attention_name, part_name
from regard.report.figures import isolated

FULL = 6  # up to this many terms are all shown; otherwise the LARGEST
LARGEST = 4
UNITS = 3  # components of a vector whose sums are shown
NARROW = "\u00a0"  # a non-breaking space
PLAIN = ("σ", "tanh", "relu")
FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "": lambda total, by: total,
    "/": lambda total, by: total / by,
    "·": lambda total, by: total * by,
    "σ": lambda total, by: 1 / (1 + math.exp(-total)) if total > -700 else 0.0,
    "tanh": lambda total, by: math.tanh(total),
    "relu": lambda total, by: max(0.0, total),
    "boxcar": lambda total, by: float(math.sqrt(total) <= by),
    "triangular": lambda total, by: max(0.0, 1 - math.sqrt(total) / by),
    "epanechnikov": lambda total, by: max(0.0, 1 - total / by**2),
}


Where = tuple[str, tuple[int, ...]]  # a tensor of a Trace, and an index


@dataclass(frozen=True)
class Term:
    name: str  # its label: a word, a component, a bias
    value: float
    factors: tuple[float, ...] = ()  # its factors; empty: a plain number
    function: str = ""  # of the factors: their product, or "/" the first by the second, "exp", "log"

    @property
    def written(self) -> str:
        """0.52·(−0.31), exp(−0.7), 3/4."""
        numbers = [shown(factor) for factor in self.factors]
        if self.function in ("exp", "log"):
            return f"{self.function}({numbers[0]})"
        if len(numbers) < 2:
            return shown(self.value)
        first, *others = numbers
        return (self.function or "·").join([first, *(f"({one})" if one.startswith("−") else one for one in others)])


@dataclass(frozen=True)
class Equation:
    name: str  # its name: s(the), f[17]
    formula: str  # with letters
    terms: tuple[Term, ...]  # the largest first, if not all are shown
    rest: float  # the sum of the terms that are not shown
    others: int  # how many they are
    total: float  # all terms
    value: float  # function(total): the number in the model
    function: str = ""  # one of FUNCTIONS
    by: float = 1.0  # the operand of "/" or "·", or the bandwidth of a kernel
    tensor: str = ""  # the place of the value in a Trace: "gates/layer/0/forget", …; "" if none
    place: tuple[int, ...] = ()  # its place there

    @property
    def written(self) -> str:
        """The whole line after its name: the numbers in place of the letters, and their result."""
        pieces = [f"{term.written}{NARROW}{_of(term.name)}" if term.name else term.written for term in self.terms]
        pieces += [f"{shown(self.rest)}{NARROW}({self.others}{NARROW}more)"] * (self.others > 0)
        added = (f" +{NARROW}".join(pieces) or "0").replace(f"+{NARROW}−", f"−{NARROW}")
        value, function = shown(self.value), self.function
        if function in ("/", "·"):
            by = f"({shown(self.by)})" if self.by < 0 else shown(self.by)
            added = (f"({added})" if len(pieces) > 1 else added) + f" {function}{NARROW}{by}"
        elif function:
            named = function if function in PLAIN else f"{function}, h = {shown(self.by)}, "
            added = f"{named}({added})"
            if len(pieces) > 1:
                added += f" ={NARROW}{named}({shown(self.total)})"
        fraction = _fraction(self.value)
        given = [number for number in (value, fraction) if number and number != added]
        return f" ={NARROW}".join([added, *given])

    def as_json(self) -> dict[str, Any]:
        terms = [{**asdict(term), "factors": list(term.factors), "written": term.written} for term in self.terms]
        return {**asdict(self), "terms": terms, "place": list(self.place), "written": self.written}


@dataclass(frozen=True)
class Section:
    title: str
    lines: tuple[Equation, ...]
    about: str = ""  # a sentence


@dataclass(frozen=True)
class WorkedExample:
    system: str
    text: str
    step: int  # from 0, as the arrays of a Trace count
    layer: str  # the layer's name: "self/0"; "" if there is no choice
    head: int | None
    read: str  # the token that the step reads
    then: str  # the token that it predicts: the true one, or the most probable if it is not known
    sections: tuple[Section, ...]
    layers: dict[str, int] = field(default_factory=dict)  # the available layers, each with its number of heads
    run: str = ""

    @property
    def title(self) -> str:
        """Its layer and head in words, which count from 1: Self-attention, layer 2, head 1."""
        if self.layer.partition("/")[0] in LOOKS and self.head is not None:
            return attention_name(self.layer, self.head, self.layers[self.layer])
        return part_name(self.layer) if self.layer else ""

    @property
    def lines(self) -> list[Equation]:
        return [line for section in self.sections for line in section.lines]

    def as_json(self) -> dict[str, Any]:
        sections = [
            {"title": section.title, "about": section.about, "lines": [line.as_json() for line in section.lines]}
            for section in self.sections
        ]
        return {**vars(self), "title": self.title, "sections": sections}

    def __str__(self) -> str:
        from regard.insight.arithmetic.terminal import show_work

        return show_work(self, width=80)


def shown(number: float) -> str:
    """Four significant digits; five where a share is almost all: 0.99986."""
    if abs(number) >= 9999.5:
        return group_digits(number).replace("-", "−")
    words = f"{number:.{5 if 0.999 < abs(number) < 1 else 4}g}"
    return words.replace("-", "−").replace("e−0", "e−")


def _fraction(number: float) -> str:
    """0.75 is also 3/4."""
    near = Fraction(number).limit_denominator(12) if math.isfinite(number) else Fraction(0)
    return str(near).replace("-", "−") if near.denominator > 1 and abs(float(near) - number) < 1e-12 else ""


def _of(name: str) -> str:
    """A component is printed as it is, all other labels in brackets."""
    name = isolated(name).replace(" ", NARROW)
    return name if name.startswith("[") else f"({name})"


def numbers(part: Tensor) -> np.ndarray:
    """The numbers in double precision, which sums use."""
    return part.detach().double().cpu().numpy()


# -- sums ------------------------------------------------------------------------------------------------------------


def add_up(
    name: str,
    formula: str,
    terms: Iterable[Term],
    value: float | None = None,
    *,
    function: str = "",
    by: float = 1.0,
    fixed: Sequence[Term] = (),
    where: Where = ("", ()),
) -> Equation:
    """The sum of all terms, with the largest shown, and of the `fixed` terms, which are always shown; `where`: the
    place of its value in a Trace.
    """
    every = list(terms)
    first = every if len(every) <= FULL else sorted(every, key=lambda term: -abs(term.value))[:LARGEST]
    left = [] if len(every) <= FULL else sorted(every, key=lambda term: -abs(term.value))[LARGEST:]
    rest = math.fsum(term.value for term in left)
    total = math.fsum(term.value for term in (*every, *fixed))
    if value is None:
        value = FUNCTIONS[function](total, by)
    return Equation(name, formula, (*first, *fixed), rest, len(left), total, float(value), function, float(by), *where)


def products(names: Sequence[str], *factors: np.ndarray) -> list[Term]:
    """A term for each index of the factors: their product."""
    rows = np.stack([np.asarray(factor, dtype=np.float64) for factor in factors], axis=1)
    return [
        Term(name, float(value), tuple(map(float, row))) for name, row, value in zip(names, rows, rows.prod(axis=1))
    ]


def components(letter: str, count: int) -> list[str]:
    return [f"{letter}[{number}]" for number in range(count)]


def largest_units(vector: np.ndarray, count: int = UNITS) -> list[int]:
    """All indices of a short vector, otherwise those of its largest values."""
    if len(vector) <= count + 1:
        return list(range(len(vector)))
    return [int(place) for place in np.argsort(-np.abs(vector), kind="stable")[:count]]


def named_words(words: Sequence[str]) -> list[str]:
    """Each word, with its position if it occurs more than once."""
    return [f"{word} {place}" if words.count(word) > 1 else word for place, word in enumerate(words)]


LARGE = 30.0  # a score whose exponential is too long to read


def exponent(scores: np.ndarray, letter: str) -> tuple[np.ndarray, str]:
    """The arguments of exp: the scores, or, if they are large, their differences from the largest."""
    most = float(scores.max())
    if abs(most) <= LARGE:
        return scores, f"exp({letter})"
    return scores - most, f"exp({letter} − {shown(most)})"


def which_components(vector: np.ndarray) -> str:
    few = len(largest_units(vector))
    return "" if few == len(vector) else f"Its {few} largest components (of {len(vector)})."


def which_component(vector: np.ndarray) -> str:
    return "" if len(vector) <= 2 else f"The largest of its {len(vector)} components."
