"""A claim: one statement of the lectures in a falsifiable form.

The declaration fixes, before anything is run, all that decides the verdict: the quantities to measure, what is expected
of each, and a control that must come out the other way. The experiment only measures.

    CLAIM = Claim(name="same-answer", …, expected=(Expect("difference", "at most", 1e-9, over="draws"),),
                  control=(Expect("difference without the mask", "at least", 1e-3, over="draws"),), experiment=measure)

    def measure(trial: Trial) -> Evidence:
        return Evidence({"difference": [one number for each draw], "difference without the mask": […]})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.report.figures import Figure

KINDS = ("identity", "measured", "timing")
RELATIONS = ("at most", "at least", "within")
OVERS = {"draws": "draw", "seeds": "seed", "share": "trial", "pairs": "pair"}  # what each number belongs to
SEEDS = 5  # of a measured claim, at least
QUICK_SEEDS = 3
FIRST_SEED, FIRST_QUICK_SEED = 301, 1  # bounds were chosen while looking at smaller seeds
SECOND_LOOK = 401  # first seed of an experiment that was changed after the seeds from 301 on had decided
THIRD_LOOK = 501  # … and of one that was changed after those


@dataclass(frozen=True)
class Expect:
    """The expected value of a measured quantity.

    over="draws"   an identity: every single number must satisfy it, none is averaged
    over="seeds"   one number for each seed: the 99 % interval of their mean (Student's t) must lie beyond the bound
    over="share"   one 0 or 1 for each trial: the 99 % interval of the share of ones (Wilson) must lie beyond the bound
    over="pairs"   one number for each pair of words, as for seeds; their spread contains that of the trainings

    `relation` "within" requires |value − bound| ≤ tolerance. A statement that says several things names the `part` that
    each expectation belongs to; every part has a verdict of its own. A control without a part belongs to all.
    """

    quantity: str
    relation: str
    bound: float
    tolerance: float = 0.0
    over: str = "seeds"
    unit: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS or self.over not in OVERS:
            raise ValueError(f"{self.quantity}: {self.relation!r} over {self.over!r} is not an expectation")

    @property
    def range(self) -> tuple[float, float]:
        """The expected range of the quantity."""
        if self.relation == "within":
            return self.bound - self.tolerance, self.bound + self.tolerance
        return (float("-inf"), self.bound) if self.relation == "at most" else (self.bound, float("inf"))


@dataclass(frozen=True)
class Worked:
    """A worked example of the notes: their result and ours."""

    what: str
    noted: str  # the notes' digits
    found: str  # computed here, with as many digits
    agrees: bool
    where: str = ""  # 002:49


@dataclass(frozen=True)
class Evidence:
    """The results of an experiment: the numbers of each expected quantity, with figures and tables."""

    measured: Mapping[str, Sequence[float]]
    figures: tuple[Figure, ...] = ()
    remarks: tuple[str, ...] = ()  # further observations, one sentence each
    table: tuple[Mapping[str, Any], ...] = ()  # further numbers, a row each


@dataclass(frozen=True)
class Trial:
    """The input of an experiment. All randomness comes from its seeds, so it is reproducible."""

    seeds: tuple[int, ...]
    quick: bool = False  # toy sizes and fewer seeds, noted in the report
    device: str = "cpu"
    knobs: Mapping[str, float] = field(default_factory=dict)
    step: Callable[[str], None] = lambda note: None  # call it with a short note to advance the progress
    data: str = ""  # a text that the user gave, for a claim that reads one
    store: Path | None = None  # folder of trained models (regard.claims.models); None = the cache
    jobs: int = 1  # seeds measured side by side, where the experiment can

    def knob(self, name: str) -> float:
        return self.knobs[name]


@dataclass(frozen=True)
class Claim:
    """`expected` is the statement, `control` what must come out the other way; a control that holds shows that the
    experiment could have failed. `besides` is measured and judged the same way, but does not decide the verdict; it
    belongs to `breaks`."""

    name: str
    number: str  # C6
    kinds: tuple[str, ...]
    quote: str  # the notes' own words
    where: str  # 000:48–50
    statement: str
    conditions: str
    control_words: str
    breaks: str  # when it breaks
    expected: tuple[Expect, ...]
    control: tuple[Expect, ...]
    experiment: Callable[[Trial], Evidence]
    besides: tuple[Expect, ...] = ()
    quick_words: str = "fewer seeds"  # what --quick does instead
    knobs: Mapping[str, float] = field(default_factory=dict)  # by name, with the value for the verdict
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of knobs: the least and the most
    worked: Callable[[], list[Worked]] | None = None  # computed at once, without training
    seeds: int = SEEDS
    first_seed: int = FIRST_SEED
    quick_seeds: int = QUICK_SEEDS
    reads_data: bool = False  # a part of it needs a text that the user gives
    on_device: bool = False  # it can use a GPU; else it runs on the CPU
    cost: float = 1.0  # approximate seconds on one core: the longest start first

    def __post_init__(self) -> None:
        quantities = [expect.quantity for expect in self.everything]
        if len(set(quantities)) != len(quantities):
            raise ValueError(f"{self.name}: two expectations of one quantity")
        if not self.expected or not self.control:
            raise ValueError(f"{self.name}: a claim needs an expectation and a control")
        if unknown := set(self.kinds) - set(KINDS):
            raise ValueError(f"{self.name}: {unknown} is not a kind of claim")

    @property
    def everything(self) -> tuple[Expect, ...]:
        return (*self.expected, *self.control, *self.besides)

    def trial(
        self, *, quick: bool = False, device: str = "cpu", first_seed: int | None = None, data: str = "", **knobs: float
    ) -> Trial:
        if data and not self.reads_data:
            raise RegardError(f"{self.name} does not read a text: leave --data out.")
        for name, value in knobs.items():
            self._check_knob(name, value)
        count, first = (self.quick_seeds, FIRST_QUICK_SEED) if quick else (self.seeds, self.first_seed)
        first = first if first_seed is None else first_seed
        return Trial(tuple(range(first, first + count)), quick, device, {**self.knobs, **knobs}, data=data)

    def _check_knob(self, name: str, value: float) -> None:
        if name not in self.knobs:
            known = list(self.knobs)
            raise RegardError(
                f"{self.name} has no knob {name!r}{did_you_mean(name, known)}"
                if known
                else f"{self.name} has no knobs."
            )
        least, most = self.limits.get(name, (-math.inf, math.inf))
        if not isinstance(value, (int, float)) or not least <= value <= most:
            raise RegardError(f"{name} of {self.name} must be a number from {least:g} to {most:g}, not {value!r}.")

    def measure(self, trial: Trial) -> Evidence:
        """Runs the experiment and checks that it measured all expected quantities."""
        evidence = self.experiment(trial)
        for expect in self.everything:
            if len(evidence.measured.get(expect.quantity, ())) == 0:
                raise ValueError(f"{self.name} did not measure {expect.quantity!r}")
        return replace(evidence, measured={name: tuple(map(float, v)) for name, v in evidence.measured.items()})
