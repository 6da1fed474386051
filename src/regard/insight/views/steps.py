"""The steps of a trace as one table: the tokens read, expected and observed, with readable labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.insight.trace import Trace
from regard.insight.words import labels, labels_after


@dataclass(frozen=True)
class Expected:
    """A probable next token."""

    label: str
    token: str
    probability: float
    came: bool  # it is the token that followed


@dataclass(frozen=True)
class TraceStep:
    """One row of the table. Without a known next token, `probability` and `rank` are None."""

    number: int  # from 0
    read: str
    came: str
    probability: float | None
    rank: int | None
    entropy: float  # in nats
    expected: tuple[Expected, ...]  # most probable first
    order: int | None = None  # of an n-gram: the order whose probability was used
    backoff: float | None = None  # of an n-gram: the weight that multiplied it


def steps_of(trace: Trace) -> list[TraceStep]:
    read, came = labels(trace.tokens), labels(trace.targets)
    table = []
    for step in range(trace.steps):
        known = bool(trace.rank[step])
        after = labels_after(trace.tokens[: step + 1], (choice.token for choice in trace.top[step]))
        expected = []
        for label, choice in zip(after, trace.top[step], strict=True):
            hit = known and choice.token == trace.targets[step]  # it has the same label as in the text
            expected.append(Expected(came[step] if hit else label, choice.token, choice.probability, hit))
        table.append(
            TraceStep(
                step,
                read[step],
                came[step],
                float(trace.probability[step]) if known else None,
                int(trace.rank[step]) if known else None,
                float(trace.entropy[step]),
                tuple(expected),
                None if trace.order is None else int(trace.order[step]),
                None if trace.backoff is None else float(trace.backoff[step]),
            )
        )
    return table


def most_surprising(trace: Trace) -> int:
    """The step whose next token had the lowest probability; the last one if no next token is known."""
    known = [(step.probability, step.number) for step in steps_of(trace) if step.probability is not None]
    return min((pair for pair in known if math.isfinite(pair[0])), default=(0.0, trace.steps - 1))[1]
