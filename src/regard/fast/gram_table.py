"""An n-gram's grams found by hashing: two places to look, where the written look-up makes a binary search.

Cuckoo hashing (Pagh & Rodler 2001): the name of each key stands in one of its key's two slots.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from regard.fast.row_table import Row
from regard.systems.ngram import Grams, look_up

FACTORS = (-7046029254386353131, -4417276706812531889)  # odd, with bits as if at random: so are a product's high bits
MADE: WeakKeyDictionary[Grams, tuple[Tensor, Tensor]] = WeakKeyDictionary()  # the keys that were hashed, and the slots


def find(grams: Grams, queries: Tensor) -> Tensor:
    """`Grams.find`; the table is made at the first look-up, and again when the grams have changed."""
    if grams not in MADE or MADE[grams][0] is not grams.keys:
        MADE[grams] = grams.keys, hash_keys(grams.keys)
    slots = MADE[grams][1]
    names = [look_up(slots, _slot(queries, factor, len(slots))) for factor in FACTORS]
    name = torch.where(look_up(grams.keys, names[0]) == queries, names[0], names[1])
    return torch.where(look_up(grams.keys, name) == queries, name, grams.nothing).long()


def hash_keys(keys: Tensor) -> Tensor:
    """The name of each key in one of its two slots, and in all others that of no gram: [2^b].

    All homeless names move in at once; who was pushed out, or lost the race for a slot, tries its other slot next.
    A table more than half empty settles quickly; if it does not, a table of twice the size does.
    """
    known = keys[:-1].cpu().numpy()
    size = 2 ** max(4, (2 * len(known)).bit_length())
    while True:
        slots = np.full(size, len(known), dtype=np.int32 if len(known) < 2**31 else np.int64)
        homes = [_slot(known, factor, size) for factor in FACTORS]
        homeless, first = np.arange(len(known), dtype=slots.dtype), np.zeros(len(known), dtype=bool)
        for _ in range(300):
            first[homeless] ^= True
            at = np.where(first[homeless], homes[0][homeless], homes[1][homeless])
            pushed = slots[at]
            slots[at] = homeless
            settled = slots[at] == homeless
            homeless = np.concatenate([homeless[~settled], pushed[settled & (pushed != len(known))]])
            if not len(homeless):
                return torch.from_numpy(slots).to(keys.device)
        size *= 2


def _slot(keys: Any, factor: int, slots: int) -> Any:
    """One of the two slots where a key may be: the high bits of a product (in 64 bits, wrapping around)."""
    return (keys * factor) >> (65 - slots.bit_length()) & (slots - 1)


ROWS = (Row("grams by hashing", "regard.systems.ngram:Grams.find", find),)
