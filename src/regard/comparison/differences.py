"""Differences between every two rows, paired on the same test data.

Ties are not transitive: a may tie with b and b with c, although a is better than c. So all pairs are tested, their
p-values are corrected for the number of pairs, and the report names the largest sets in which no two systems differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.evaluation.intervals import LEVEL


@dataclass(frozen=True)
class Difference:
    """The difference of two rows: the better score minus the other (for language models, in nats per token)."""

    better: str
    worse: str
    by: float
    low: float
    high: float
    p_value: float  # corrected for the number of pairs
    documents: float = 0.0  # variance that the test text causes
    seeds: float = 0.0  # variance between seeds, the sum of both systems'

    @property
    def beyond(self) -> bool:
        """True if the difference is beyond noise, whatever the number of pairs (Holm 1979)."""
        return self.p_value <= 1 - LEVEL


def alike(order: Sequence[str], pairs: Sequence[Difference]) -> list[tuple[str, ...]]:
    """The largest sets of two or more rows in which no two differ, in ranking order."""
    same = {frozenset((d.better, d.worse)) for d in pairs if not d.beyond}
    found: list[tuple[str, ...]] = []

    def grow(chosen: tuple[str, ...], start: int) -> None:
        fitting = [label for label in order if label not in chosen and all({label, one} in same for one in chosen)]
        if not fitting and len(chosen) > 1:
            found.append(chosen)
        for label in fitting:
            if order.index(label) >= start:
                grow((*chosen, label), order.index(label) + 1)

    grow((), 0)
    return found


def named(groups: Sequence[Sequence[str]]) -> str:
    """a and b; c, d and e."""
    return "; ".join(f"{', '.join(group[:-1])} and {group[-1]}" for group in groups)
