"""An n-gram model's look-up by hashing, instead of a binary search.

Cuckoo hashing (Pagh & Rodler 2001): each key's index is stored in one of two slots, which two hash functions give.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from regard.fast.row_table import Row
from regard.systems.ngram import Grams, look_up

FACTORS = (
    -7046029254386353131,
    -4417276706812531889,
)  # odd, with random bits, so that the high bits of a product are a good hash
MADE: WeakKeyDictionary[Grams, tuple[Tensor, Tensor]] = WeakKeyDictionary()  # the hashed keys, and the slots


def find(grams: Grams, queries: Tensor) -> Tensor:
    """`Grams.find`; the table is built at the first look-up, and again when the grams change."""
    if grams not in MADE or MADE[grams][0] is not grams.keys:
        MADE[grams] = grams.keys, hash_keys(grams.keys)
    slots = MADE[grams][1]
    indices = [look_up(slots, _slot(queries, factor, len(slots))) for factor in FACTORS]
    index = torch.where(look_up(grams.keys, indices[0]) == queries, indices[0], indices[1])
    return torch.where(look_up(grams.keys, index) == queries, index, grams.nothing).long()


def hash_keys(keys: Tensor) -> Tensor:
    """The slots [2^b]: each key's index in one of its two slots, and the index of no gram in all others.

    All unplaced indices are written at once; one that was overwritten tries its other slot next. A table that is more
    than half empty converges quickly; if it does not, it is doubled.
    """
    known = keys[:-1].cpu().numpy()
    size = 2 ** max(4, (2 * len(known)).bit_length())
    while True:
        slots = np.full(size, len(known), dtype=np.int32 if len(known) < 2**31 else np.int64)
        candidates = [_slot(known, factor, size) for factor in FACTORS]
        unplaced, first = np.arange(len(known), dtype=slots.dtype), np.zeros(len(known), dtype=bool)
        for _ in range(300):
            first[unplaced] ^= True
            at = np.where(first[unplaced], candidates[0][unplaced], candidates[1][unplaced])
            evicted = slots[at]
            slots[at] = unplaced
            placed = slots[at] == unplaced
            unplaced = np.concatenate([unplaced[~placed], evicted[placed & (evicted != len(known))]])
            if not len(unplaced):
                return torch.from_numpy(slots).to(keys.device)
        size *= 2


def _slot(keys: Any, factor: int, slots: int) -> Any:
    """One of a key's two slots: the high bits of a 64-bit product that wraps around."""
    return (keys * factor) >> (65 - slots.bit_length()) & (slots - 1)


ROWS = (Row("grams by hashing", "regard.systems.ngram:Grams.find", find),)
