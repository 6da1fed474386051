"""An n-gram model's look-up by hashing, instead of a binary search, and only where there is something to find.

On a CPU the losses of a text need no more look-ups than it has n-grams whose context was seen: of a 5-gram's four
look-ups per word about two.
"""

from __future__ import annotations

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from regard.base.cuckoo import FACTORS, hash_keys, slot_of
from regard.fast.table import Row, needs_cpu
from regard.layers.state import State
from regard.systems.ngram import Grams, NGram, follow, look_up


class GramTable:
    """The hash table of grams. Making it takes as long as it saves in about two look-ups per gram, so it is made
    after that many; until then a binary search runs."""

    def __init__(self, *grams: Tensor) -> None:
        self.grams = grams  # keys, log-probabilities, logarithms of the back-off weights
        self.asked = 0

    def made(self, queries: int) -> bool:
        """Counts these look-ups; True once the table pays."""
        self.asked += queries
        return self.asked > 2 * len(self.grams[0])

    @cached_property
    def index_bits(self) -> int:
        """The bits of a slot that hold an index; the rest of its 64 bits hold a part of the key."""
        return len(self.grams[0]).bit_length()

    @cached_property
    def largest(self) -> int:
        return int(self.grams[0][:-1].max()) if len(self.grams[0]) > 1 else 0

    @cached_property
    def slots(self) -> Tensor:
        keys = self.grams[0].cpu().numpy()  # the last belongs to no gram
        slots = hash_keys(keys[:-1])
        return torch.from_numpy(keys[slots] << self.index_bits | slots).to(self.grams[0].device)

    @cached_property
    def slot_array(self) -> np.ndarray:
        return self.slots.numpy()

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The grams on a CPU; kept, since a view of a tensor costs as much as the look-ups of a hundred words."""
        return tuple(tensor.numpy() for tensor in self.grams)

    def names(self, queries: np.ndarray) -> np.ndarray:
        """`find` for arrays: the second slot is looked at only where the first holds another key."""
        keys, nothing = self.arrays[0], len(self.arrays[0]) - 1
        if not self.made(len(queries)):
            name = keys.searchsorted(queries)
            name[keys[name] != queries] = nothing
            return name
        largest = max(self.largest, int(queries.max(initial=0)))
        whole = largest >> 64 - self.index_bits == 0  # does a slot hold all bits of its key? Then no key need be read
        name = self._candidates(queries, FACTORS[0])
        (other,) = (name == nothing if whole else keys.take(name) != queries).nonzero()
        asked = queries.take(other)
        second = self._candidates(asked, FACTORS[1])
        if not whole:
            np.putmask(second, keys.take(second) != asked, nothing)
        name[other] = second
        return name

    def _candidates(self, queries: np.ndarray, factor: int) -> np.ndarray:
        """The index in one slot of each query, if the key bits there match the query."""
        slots = self.slot_array
        name = slots.take(slot_of(queries, factor, len(slots)))
        name ^= queries << self.index_bits  # equal bits leave the index alone, others make it larger than any index
        np.minimum(name.view(np.uint64), np.uint64(len(self.arrays[0]) - 1), out=name.view(np.uint64))
        return name


MADE: WeakKeyDictionary[Grams, GramTable] = WeakKeyDictionary()


def find(grams: Grams, queries: Tensor) -> Tensor:
    """`Grams.find`."""
    table = table_of(grams)
    if not table.made(queries.numel()):
        return Grams.find(grams, queries)
    slots = table.slots
    indices = [look_up(slots, slot_of(queries, factor, len(slots))) & (1 << table.index_bits) - 1 for factor in FACTORS]
    index = torch.where(look_up(grams.keys, indices[0]) == queries, indices[0], indices[1])
    return torch.where(look_up(grams.keys, index) == queries, index, grams.nothing)


def table_of(grams: Grams) -> GramTable:
    """The table of the current grams."""
    table, now = MADE.get(grams), (grams.keys, grams.log_probability, grams.log_backoff)
    if table is None or any(before is not tensor for before, tensor in zip(table.grams, now)):
        table = MADE[grams] = GramTable(*now)
    return table


def may_follow(
    model: NGram, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
) -> bool:
    precise = model.levels[0].log_probability.dtype in (torch.float32, torch.float64)
    return precise and lengths is None and tokens.numel() > 0 and follow(tokens, targets, None)


def losses(
    model: NGram, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, State]:
    """`NGram.loss` where each target is the token read next: the same sums, at the places whose context was seen."""
    state, span = model._open(tokens, state, lengths)
    before = state["past"]["contexts"].numpy()  # [R, n − 1]
    words = torch.cat([tokens[:, :1], targets], dim=1)  # [R, T + 1]
    rows, columns = words.shape
    word = words.numpy().reshape(-1)
    first, final = np.arange(0, len(word), columns), np.zeros(len(word), dtype=bool)
    final[columns - 1 :: columns] = True
    goes_on = (word != 0) & ~final  # no context crosses <eos>
    _, log_probability, log_backoff = table_of(model.levels[0]).arrays
    score = log_probability.take(word)
    place = np.arange(len(word))  # every place has a context of one word
    context = np.concatenate([word[:1], word[:-1]])
    after = np.empty_like(before)
    if model.order > 1:
        context[first], after[:, 0] = before[:, 0], context[final]
    for k, level in enumerate(model.levels[1:], start=1):
        backed_off = score.take(place) + log_backoff.take(context)
        table = table_of(level)
        name = table.names(context * model.vocabulary + word.take(place))
        keys, log_probability, log_backoff = table.arrays
        nothing = len(keys) - 1
        known = name != nothing
        score[place] = np.where(known, log_probability.take(name), backed_off)
        if k == model.order - 1:
            break
        (seen,) = (known & goes_on.take(place)).nonzero()
        carried = before[:, k] != nothing  # by the state, from an earlier call
        place = np.concatenate([place.take(seen) + 1, first[carried]])
        context = np.concatenate([name.take(seen), before[carried, k]])
        (ends,) = final.take(place).nonzero()
        after[:, k] = nothing
        after[place[ends] // columns, k] = context[ends]
    past = {"contexts": torch.from_numpy(after)}
    return -torch.from_numpy(score).view(rows, columns)[:, 1:], model._advance(state, past, span.end(columns - 1))


ROWS = (
    Row("grams by hashing", "regard.systems.ngram:Grams.find", find),
    Row("losses of a text by n-grams", "regard.systems.ngram:NGram.loss", losses, fits=may_follow, needs=needs_cpu),
)
