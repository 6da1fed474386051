"""A hash table of numbers as one array, so that many are looked up at once.

Cuckoo hashing (Pagh & Rodler 2001): each key's index is stored in one of two slots, which two hash functions give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FACTORS = (
    -7046029254386353131,
    -4417276706812531889,
)  # odd, with random bits, so that the high bits of a product are a good hash


def hash_keys(keys: np.ndarray) -> np.ndarray:
    """The slots [2^b] of distinct keys: each key's index in one of its two slots, and len(keys) in all others.

    All unplaced indices are written at once; one that was overwritten tries its other slot next. A table that is more
    than half empty converges quickly; if it does not, it is doubled.
    """
    size = 2 ** max(4, (2 * len(keys)).bit_length())
    while True:
        slots = np.full(size, len(keys))
        candidates = [slot_of(keys, factor, size) for factor in FACTORS]
        unplaced, first = np.arange(len(keys)), np.zeros(len(keys), dtype=bool)
        for _ in range(300):
            first[unplaced] ^= True
            at = np.where(first[unplaced], candidates[0][unplaced], candidates[1][unplaced])
            evicted = slots[at]
            slots[at] = unplaced
            placed = slots[at] == unplaced
            unplaced = np.concatenate([unplaced[~placed], evicted[placed & (evicted != len(keys))]])
            if not len(unplaced):
                return slots
        size *= 2


def slot_of(keys: Any, factor: int, slots: int) -> Any:
    """One of a key's two slots, of an array or a tensor: the high bits of a 64-bit product that wraps around."""
    return (keys * factor) >> (65 - slots.bit_length()) & (slots - 1)
