"""Beam search with fixed shapes and continuous batching: finished sources are replaced by waiting ones.

    step:   z = predict(read(tokens, state[parents])),   (parents, tokens) = choose(total + log softmax(z))

The results equal those of `beam_search`, the reference. There states grow, rows leave, and the host decides at every
step; here N places for sources have W slots each (beam_slots.py), and the host only reads, every few steps, which
sources are done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.install import Install, as_written
from regard.decoding.beam import Hypothesis
from regard.decoding.beam_slots import BeamConfig, Slots
from regard.layers.state import State, overwrite
from regard.systems.model import Model

STEPS_BETWEEN_LOOKS = {
    "cpu": 1,
    "cuda": 4,
}  # steps between the host's checks for finished sources, which synchronize a GPU
BATCH_TOKENS = 131_072  # sources × hypotheses of each × tokens of the longest source
REFILL = 8  # waiting sources are admitted when 1/8 of the places is free
CAPACITY_STEP = 32  # limits are rounded up to multiples, so that few shapes are recorded
KEPT = 3  # batches of different shapes that an engine keeps
FEW_SOURCES = 16


class Searcher(Protocol):
    """A search engine for translations: `BeamEngine` here, or another program."""

    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], terms: BeamConfig
    ) -> list[list[Hypothesis]]:
        """For each source (with <eos>) its hypotheses of at most `limits` tokens, best first."""


class Reader(Protocol):
    """The model's part of a step, for N · W rows; the rows of one source are adjacent."""

    def fill(self, places: Tensor, sources: Tensor, lengths: Tensor) -> None:
        """Starts new sources [n, S] in these places; their lengths are on the CPU."""

    def __call__(self, slots: Slots) -> Tensor:
        """Each slot continues its parent's state and reads its token: logits [N · W, V]."""

    def choose(self, slots: Slots, logits: Tensor) -> None:
        """The selection step: `Slots.choose`."""


class StateReader:
    """For any model: a state of fixed capacity, whose rows are reordered in place before each step."""

    def __init__(self, model: Model, state: State, width: int, room: int) -> None:
        self.model, self.device, self.state, self.width, self.room = model, model.device, state, width, room
        rows = torch.arange(len(state["seen"]), device=state["seen"].device)
        self.first = rows[::width, None]  # row of each source

    def fill(self, places: Tensor, sources: Tensor, lengths: Tensor) -> None:
        fresh = self.model.begin(sources, lengths, width=self.width, capacity=self.room)
        rows = (self.first[places] + torch.arange(self.width, device=places.device)).flatten()
        place_rows(self.state, fresh, rows, places)

    def __call__(self, slots: Slots) -> Tensor:
        choose_rows(self.state["past"], (self.first + slots.parent).flatten())
        hidden, state = self.model.read(slots.token.view(-1, 1), self.state)
        overwrite(self.state, state)
        return self.model.predict(hidden[:, 0])

    def choose(self, slots: Slots, logits: Tensor) -> None:
        slots.choose(logits)


def choose_rows(past: State, rows: Tensor) -> None:
    """`select_rows` in place."""
    for part in past.values():
        if isinstance(part, dict):
            choose_rows(part, rows)
        else:
            part.copy_(part.index_select(0, rows))


def place_rows(state: State, fresh: State, rows: Tensor, places: Tensor) -> None:
    """Copies the rows and sources of a fresh state to their places in a larger one."""
    for name, part in fresh.items():
        if isinstance(part, dict):
            place_rows(state[name], part, places if name == "source" else rows, places)
        elif name != "capacity":
            state[name][rows] = part.to(state[name].dtype)


class BeamBatch:
    """Places for N sources of one padded length, and the step over all of them."""

    def __init__(self, slots: Slots, reader: Reader) -> None:
        self.slots, self.reader, self.device = slots, reader, slots.total.device

    def step(self) -> None:
        self.reader.choose(self.slots, self.reader(self.slots))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()


class SlotTable:
    """The host's bookkeeping: which source is in which place. It rarely synchronizes with the device."""

    def __init__(self, batch: BeamBatch, longest: int) -> None:
        self.batch, self.longest, self.device = batch, longest, batch.device
        self.who = np.full(len(batch.slots.length), -1)  # the source in each place; −1: free
        self.age, self.limit = np.zeros_like(self.who), np.zeros_like(self.who)
        self.done = np.ones(len(self.who), dtype=bool)  # or free

    @property
    def free(self) -> int:
        return int((self.who < 0).sum())

    @property
    def busy(self) -> bool:
        return self.free < len(self.who)

    def begin(self, numbers: Sequence[int], sources: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        """Starts these sources in free places."""
        places = self.occupy(numbers, limits)
        padded = np.zeros((len(numbers), self.longest), dtype=np.int64)
        for row, source in zip(padded, sources, strict=True):
            row[: len(source)] = source
        lengths = torch.tensor([len(source) for source in sources])
        self.batch.reader.fill(places, torch.from_numpy(padded).to(self.device), lengths)

    def occupy(self, numbers: Sequence[int], limits: Sequence[int]) -> Tensor:
        free = np.flatnonzero(self.who < 0)[: len(numbers)]
        self.who[free], self.age[free], self.limit[free], self.done[free] = numbers, 0, limits, False
        places = torch.from_numpy(free).to(self.device)
        self.batch.slots.fill(places, torch.tensor(limits).to(self.device))
        return places

    def work(self) -> None:
        """Launches as many steps as can run before the next `look`."""
        age, limit = self.age[~self.done], self.limit[~self.done]
        # No hypothesis can end earlier.
        earliest = int((np.minimum(limit, self.batch.slots.terms.min_tokens) - age).min())
        steps = min(int((limit - age).max()), max(earliest, STEPS_BETWEEN_LOOKS.get(self.device.type, 1)))
        self.batch.run(steps)
        self.age += steps

    def look(self) -> None:
        """Waits for the steps, and reads which sources are done."""
        self.done = (self.who < 0) | (self.batch.slots.going.cpu().numpy() == 0)

    def leave(self) -> Callable[[], Iterable[tuple[int, list[Hypothesis]]]]:
        """Frees the places of finished sources; the returned function waits for their hypotheses."""
        done = np.flatnonzero(self.done & (self.who >= 0))
        numbers, found = self.who[done].tolist(), self.batch.slots.best(torch.from_numpy(done).to(self.device))
        self.who[done] = -1
        return lambda: zip(numbers, found(), strict=True)


class BeamEngine:
    """Beam search for a translator; the batches of the last shapes are reused for later sources."""

    def __init__(self, model: Model, *, batch_tokens: int | None = None, install: Install = as_written) -> None:
        self.model, self.device, self.install = model, model.device, install
        self.batch_tokens = batch_tokens or BATCH_TOKENS
        self.batches: dict[tuple[BeamConfig, int, int, int], BeamBatch] = {}
        self.weights: list[int] = []  # addresses of the weights when the batches were made
        install(self)

    @torch.no_grad()
    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], terms: BeamConfig
    ) -> list[list[Hypothesis]]:
        """For each source (with <eos>) its hypotheses of at most `limits` tokens, best first."""
        self.model.eval()
        found: list[list[Hypothesis]] = [[] for _ in sources]
        waiting = deque(sorted(range(len(sources)), key=lambda n: (-len(sources[n]), -limits[n])))
        while waiting:
            longest = self._padded(len(sources[waiting[0]]))
            most = self._places(longest, terms)
            places = min(most, 2 ** (len(waiting) - 1).bit_length())
            room = -(-max(limits[n] for n in waiting) // CAPACITY_STEP) * CAPACITY_STEP
            try:
                occupancy = SlotTable(self._batch(terms, places, longest, room), longest)
            except torch.OutOfMemoryError:
                self._make_do(places)
                continue
            leaving: Callable[[], Iterable[tuple[int, list[Hypothesis]]]] = list
            while waiting or occupancy.busy:
                # shorter sources continue in another batch, which holds many more
                suits = bool(waiting) and self._places(self._padded(len(sources[waiting[0]])), terms) <= most
                if suits and (occupancy.free * REFILL >= places or not occupancy.busy):
                    taken = [waiting.popleft() for _ in range(min(len(waiting), occupancy.free))]
                    occupancy.begin(taken, [sources[n] for n in taken], [limits[n] for n in taken])
                if not occupancy.busy:
                    break
                occupancy.work()
                for number, hypotheses in leaving():  # read while the device continues
                    found[number] = hypotheses
                occupancy.look()
                ready = int(occupancy.done.sum()) - occupancy.free
                leaving = occupancy.leave() if occupancy.done.all() or (suits and ready * REFILL >= places) else list
            for number, hypotheses in leaving():
                found[number] = hypotheses
        return found

    def _make_do(self, places: int) -> None:
        """After running out of memory: half as many sources at once, and no kept batches."""
        if places == 1:
            raise RegardError(
                "The beam search for this source does not fit into the GPU's memory: use a smaller --beam."
            )
        self.batch_tokens //= 2
        self.batches.clear()
        torch.cuda.empty_cache()

    def _padded(self, length: int) -> int:
        most = getattr(self.model, "source_context", None)
        return bucket(length) if most is None else min(bucket(length), most)

    def _places(self, longest: int, terms: BeamConfig) -> int:
        """Number of sources at once: a power of two, so that few shapes are recorded."""
        return 2 ** (max(1, self.batch_tokens // (terms.width * longest)).bit_length() - 1)

    def _batch(self, terms: BeamConfig, places: int, longest: int, room: int) -> BeamBatch:
        weights = [weight.data_ptr() for weight in chain(self.model.parameters(), self.model.buffers())]
        if weights != self.weights:  # recorded steps read the old addresses
            self.batches.clear()
            self.weights = weights
        key = (terms, places, longest, room)
        batch = self.batches.pop(key, None)
        while len(self.batches) >= KEPT:
            del self.batches[next(iter(self.batches))]  # the least recently used
        if batch is None:
            reader = self.reader(*key)
            self.install(reader)
            batch = BeamBatch(Slots(places, room, self.model.vocabulary, terms, self.device), reader)
            self.install(batch)
        self.batches[key] = batch
        return batch

    def reader(self, terms: BeamConfig, places: int, longest: int, room: int) -> Reader:
        blank = torch.zeros(places, longest, dtype=torch.int64, device=self.device)
        state = self.model.begin(blank, torch.ones(places, dtype=torch.int64), width=terms.width, capacity=room)
        return StateReader(self.model, state, terms.width, room)


class GradualEngine:
    """A `BeamEngine` that uses the reference implementation for the first sources and faster code for more: on a GPU,
    compiling and capturing takes longer than translating a few.
    """

    def __init__(self, model: Model, *, install: Install) -> None:
        self.engine, self.model, self.install, self.seen = BeamEngine(model), model, install, 0

    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], terms: BeamConfig
    ) -> list[list[Hypothesis]]:
        before, self.seen = self.seen, self.seen + len(sources)
        if before <= FEW_SOURCES < self.seen:
            self.engine = BeamEngine(self.model, install=self.install)
        return self.engine.search(sources, limits, terms)


def bucket(length: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, 64, …: few shapes, with padding of at most a half."""
    power = max(8, 2 ** (length - 1).bit_length())
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power
