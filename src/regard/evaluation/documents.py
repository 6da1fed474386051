"""A text split into documents of about equal length (whole lines), and the loss of each.

A model's loss differs from passage to passage, and neighboring words are correlated. So the bootstrap, which estimates
how much a perplexity would vary on other text, resamples documents and not words (Koehn 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DOCUMENT = 500  # least tokens of a document, if the text is long enough
FEWEST, MOST = 20, 200  # documents a text is cut into


@dataclass(frozen=True)
class Documents:
    """The bounds of each document, and its sum of −log P so far."""

    bounds: np.ndarray  # [D + 1] positions in the text; document d is bounds[d] … bounds[d + 1]
    whole_lines: bool  # False: the text has too few lines, so documents end within them
    nats: np.ndarray  # [D]

    @classmethod
    def cut(cls, ids: np.ndarray, eos: int) -> Documents:
        """20 to 200 documents of about equal length, which end at line ends."""
        count = len(ids)
        wanted = min(max(FEWEST, min(MOST, count // DOCUMENT)), max(count, 1))
        ideal = count * np.arange(1, wanted) // wanted
        ends = np.flatnonzero(np.asarray(ids) == eos) + 1  # past each line
        ends = ends[ends < count]
        bounds = _closed(_nearest(ends, ideal), count) if len(ends) else _closed(ends, count)
        whole = len(bounds) > FEWEST
        bounds = bounds if whole else _closed(ideal, count)
        return cls(bounds, whole, np.zeros(len(bounds) - 1))

    def add(self, start: int, losses: np.ndarray) -> None:
        """Adds −log P of the tokens from `start` on."""
        document = np.searchsorted(self.bounds, np.arange(start, start + len(losses)), side="right") - 1
        self.nats[:] += np.bincount(document, weights=losses, minlength=len(self))

    @property
    def tokens(self) -> np.ndarray:
        """[D] tokens in each document."""
        return np.diff(self.bounds)

    def __len__(self) -> int:
        return len(self.nats)


def _nearest(places: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted position the nearest of the (sorted) places."""
    after = np.clip(np.searchsorted(places, wanted), 1, len(places) - 1) if len(places) > 1 else np.zeros_like(wanted)
    before = np.maximum(after - 1, 0)
    return np.where(wanted - places[before] <= places[after] - wanted, places[before], places[after])


def _closed(cuts: np.ndarray, count: int) -> np.ndarray:
    """Strictly increasing cuts between 0 and the end."""
    return np.unique(np.concatenate([[0], cuts, [count]]))
