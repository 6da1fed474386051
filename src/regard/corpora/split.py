"""Assigns lines to splits by their hash: 90 % training, 5 % validation, 5 % test.

Identical lines always fall into the same split, so no test line was trained on, and a growing text keeps its
splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

PARTS = 20  # one part is validation, one is test


def line_hash(line: str) -> int:
    return int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest())


@dataclass(frozen=True)
class HashSplit:
    """Draws a line's split; in a text of very few lines by the rank of its hash, so that no split is empty."""

    held_out: tuple[str, ...] = ("valid", "test")
    ranked: Mapping[int, str] | None = None

    def __call__(self, line: str) -> str:
        number = line_hash(line)
        if self.ranked is not None:
            return self.ranked.get(number, "train")
        part = number % PARTS
        return self.held_out[part] if part < len(self.held_out) else "train"

    @property
    def splits(self) -> tuple[str, ...]:
        used = self.held_out if self.ranked is None else self.ranked.values()
        return ("train", *(name for name in self.held_out if name in used))
