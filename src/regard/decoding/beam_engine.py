"""Beam search whose every step is the same: fixed tensors, one CUDA graph, finished sources replaced by waiting ones.

    step:   z = predict(read(tokens, state[parents])),   (parents, tokens) = choose(total + log softmax(z))

It finds what `beam_search` finds, which stays the reference. There states grow, rows leave, and the host decides at
every step; here N places for sources have W slots each (beam_slots.py), and nothing is asked of the device but, every
few steps, who is done. So a GPU replays one recorded step after the other without waiting for anyone; on a CPU the same
code runs as it stands. Whoever is done is replaced by the next in the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beam import Hypothesis
from regard.decoding.beam_slots import Slots, Terms
from regard.errors import RegardError
from regard.layers.state import State, map_state, overwrite, spread
from regard.systems.model import Model
from regard.systems.transformer import Transformer

STEPS_BETWEEN_LOOKS = {"cpu": 1, "cuda": 4}  # how often the host asks who is done: a GPU stops its queue for that
BATCH_TOKENS = 131_072  # sources × hypotheses of each × tokens of the longest source
REFILL = 8  # waiting sources come in when one place in so many is free
ROOM = 32  # limits are rounded up to multiples, so that few shapes are recorded
STAGES = 3  # shapes that an engine keeps
WIDEST = 16  # the widest beam that the kernels' unrolled loops are meant for
WARM_UP = 2  # how often work is done as it is before it is recorded: libraries then have chosen their kernels


class Reader(Protocol):
    """The model's side of a step: rows N · W, of which those of one source lie side by side."""

    def fill(self, places: Tensor, sources: Tensor, lengths: Tensor) -> None:
        """Let these places begin with new sources [n, S], whose lengths lie on the CPU."""

    def __call__(self, slots: Slots) -> Tensor:
        """Slot w goes on from where its parent was, reading its token: logits [N · W, V]."""


class Rows:
    """Any model: a state of fixed capacity, of which rows are chosen anew before each reading, in place."""

    def __init__(self, model: Model, state: State, width: int, room: int) -> None:
        self.model, self.state, self.width, self.room = model, state, width, room
        rows = torch.arange(len(state["seen"]), device=state["seen"].device)
        self.first = rows[::width, None]  # of each source

    def fill(self, places: Tensor, sources: Tensor, lengths: Tensor) -> None:
        fresh = self.model.begin(sources, lengths, width=self.width, capacity=self.room)
        rows = (self.first[places] + torch.arange(self.width, device=places.device)).flatten()
        place_rows(self.state, fresh, rows, places)

    def __call__(self, slots: Slots) -> Tensor:
        choose_rows(self.state["past"], (self.first + slots.parent).flatten())
        hidden, state = self.model.read(slots.token.view(-1, 1), self.state)
        overwrite(self.state, state)
        return self.model.predict(hidden[:, 0])


def choose_rows(past: State, rows: Tensor) -> None:
    """`select_rows` in place."""
    for part in past.values():
        if isinstance(part, dict):
            choose_rows(part, rows)
        else:
            part.copy_(part.index_select(0, rows))


def place_rows(state: State, fresh: State, rows: Tensor, places: Tensor) -> None:
    """Put the rows of a fresh state, and its sources, where they belong in a larger one."""
    for name, part in fresh.items():
        if isinstance(part, dict):
            place_rows(state[name], part, places if name == "source" else rows, places)
        elif name != "capacity":
            state[name][rows] = part.to(state[name].dtype)


class Stage:
    """Places for N sources of one padded length, and the step over all of them, on a GPU recorded once."""

    def __init__(self, slots: Slots, reader: Reader, choose: Callable[[Slots, Tensor], None] = Slots.choose) -> None:
        self.slots, self.reader, self.choose = slots, reader, choose
        self.graph: torch.cuda.CUDAGraph | None = None
        if slots.total.device.type == "cuda":
            self.graph = record(self.step)  # all slots are closed: whatever is computed now is no one's

    def step(self) -> None:
        self.choose(self.slots, self.reader(self.slots))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step() if self.graph is None else self.graph.replay()


def record(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """What `work` does on tensors that stay where they are, to be replayed; it is also done, a few times."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph


class Seats:
    """Who sits where on a stage: the host's side, which knows of the device only what it asks for now and then."""

    def __init__(self, stage: Stage, longest: int) -> None:
        self.stage, self.longest = stage, longest
        self.device = stage.slots.total.device
        self.who = np.full(len(stage.slots.length), -1)  # the number of each source; −1: the place is free
        self.age, self.limit = np.zeros_like(self.who), np.zeros_like(self.who)
        self.done = np.ones(len(self.who), dtype=bool)  # or free

    @property
    def free(self) -> int:
        return int((self.who < 0).sum())

    @property
    def busy(self) -> bool:
        return self.free < len(self.who)

    def begin(self, numbers: Sequence[int], sources: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        """Let these sources sit down on places that are free."""
        places = self.sit(numbers, limits)
        padded = np.zeros((len(numbers), self.longest), dtype=np.int64)
        for row, source in zip(padded, sources, strict=True):
            row[: len(source)] = source
        lengths = torch.tensor([len(source) for source in sources])
        self.stage.reader.fill(places, torch.from_numpy(padded).to(self.device), lengths)

    def sit(self, numbers: Sequence[int], limits: Sequence[int]) -> Tensor:
        seats = np.flatnonzero(self.who < 0)[: len(numbers)]
        self.who[seats], self.age[seats], self.limit[seats], self.done[seats] = numbers, 0, limits, False
        places = torch.from_numpy(seats).to(self.device)
        self.stage.slots.fill(places, torch.tensor(limits).to(self.device))
        return places

    def work(self) -> None:
        """Begin some steps, as many as need no look."""
        age, limit = self.age[~self.done], self.limit[~self.done]
        earliest = int((np.minimum(limit, self.stage.slots.terms.min_tokens) - age).min())  # none ends before
        steps = min(int((limit - age).max()), max(earliest, STEPS_BETWEEN_LOOKS.get(self.device.type, 1)))
        self.stage.run(steps)
        self.age += steps

    def look(self) -> None:
        """Wait for the steps, and see who is done."""
        self.done = (self.who < 0) | (self.stage.slots.going.cpu().numpy() == 0)

    def leave(self) -> Callable[[], Iterable[tuple[int, list[Hypothesis]]]]:
        """Whoever is done leaves; what was found is on its way, with the numbers of the sources."""
        seats = np.flatnonzero(self.done & (self.who >= 0))
        numbers, found = self.who[seats].tolist(), self.stage.slots.best(torch.from_numpy(seats).to(self.device))
        self.who[seats] = -1
        return lambda: zip(numbers, found(), strict=True)


class BeamEngine:
    """Beam search for a translator; the stages of the last shapes are kept for sources still to come."""

    def __init__(self, model: Model, *, batch_tokens: int | None = None) -> None:
        self.model = model
        self.batch_tokens = batch_tokens or BATCH_TOKENS
        self.stages: dict[tuple[Terms, int, int, int], Stage] = {}
        self.weights: list[int] = []  # where they lay when the stages were made

    @torch.no_grad()
    def search(self, sources: Sequence[Sequence[int]], limits: Sequence[int], terms: Terms) -> list[list[Hypothesis]]:
        """For each source, <eos> included, its hypotheses of at most that many tokens, best first."""
        self.model.eval()
        found: list[list[Hypothesis]] = [[] for _ in sources]
        waiting = deque(sorted(range(len(sources)), key=lambda n: (-len(sources[n]), -limits[n])))
        while waiting:
            longest = self._padded(len(sources[waiting[0]]))
            most = self._places(longest, terms)
            places = min(most, 2 ** (len(waiting) - 1).bit_length())
            room = -(-max(limits[n] for n in waiting) // ROOM) * ROOM
            try:
                seats = Seats(self._stage(terms, places, longest, room), longest)
            except torch.OutOfMemoryError:
                self._make_do(places)
                continue
            leaving: Callable[[], Iterable[tuple[int, list[Hypothesis]]]] = list
            while waiting or seats.busy:
                # shorter ones go on elsewhere where many more of them fit
                suits = bool(waiting) and self._places(self._padded(len(sources[waiting[0]])), terms) <= most
                if suits and (seats.free * REFILL >= places or not seats.busy):
                    taken = [waiting.popleft() for _ in range(min(len(waiting), seats.free))]
                    seats.begin(taken, [sources[n] for n in taken], [limits[n] for n in taken])
                if not seats.busy:
                    break
                seats.work()
                for number, hypotheses in leaving():  # read while the device works on
                    found[number] = hypotheses
                seats.look()
                ready = int(seats.done.sum()) - seats.free
                leaving = seats.leave() if seats.done.all() or (suits and ready * REFILL >= places) else list
            for number, hypotheses in leaving():
                found[number] = hypotheses
        return found

    def _make_do(self, places: int) -> None:
        """With half as many sources at once, and nothing kept."""
        if places == 1:
            raise RegardError(
                "The beam search of this source does not fit into the GPU's memory: use a smaller --beam."
            )
        self.batch_tokens //= 2
        self.stages.clear()
        torch.cuda.empty_cache()

    def _padded(self, length: int) -> int:
        most = getattr(self.model, "source_context", None)
        return bucket(length) if most is None else min(bucket(length), most)

    def _places(self, longest: int, terms: Terms) -> int:
        """Sources at once: a power of two, so that few shapes are recorded."""
        return 2 ** (max(1, self.batch_tokens // (terms.width * longest)).bit_length() - 1)

    def _stage(self, terms: Terms, places: int, longest: int, room: int) -> Stage:
        weights = [weight.data_ptr() for weight in chain(self.model.parameters(), self.model.buffers())]
        if weights != self.weights:  # a recorded step reads them where they lay
            self.stages.clear()
            self.weights = weights
        key = (terms, places, longest, room)
        stage = self.stages.pop(key, None)
        while len(self.stages) >= STAGES:
            del self.stages[next(iter(self.stages))]  # the one that was not used for longest
        self.stages[key] = make_stage(self.model, *key) if stage is None else stage
        return self.stages[key]


def make_stage(model: Model, terms: Terms, places: int, longest: int, room: int) -> Stage:
    """With the Transformer's own kernels where there are such, else as every model can."""
    slots = Slots(places, room, model.vocabulary, terms, model.device)
    kernels = has_kernels(next(model.parameters()), terms)
    if kernels and type(model) is Transformer:
        from regard.decoding.beam_transformer import TransformerRows

        rows = TransformerRows(model, places, longest, room, terms.width)
        return Stage(slots, rows, rows.choose)
    blank = torch.zeros(places, longest, dtype=torch.int64, device=model.device)
    state = model.begin(blank, torch.ones(places, dtype=torch.int64), width=terms.width, capacity=room)
    return Stage(slots, Rows(model, state, terms.width, room), chooser(kernels))


@torch.no_grad()
def search_on(model: Model, logits: Tensor, state: State, limits: Tensor, terms: Terms) -> list[list[Hypothesis]]:
    """`beam_search` from logits [N, V] and a state of fixed capacity (N rows) that stand after prompts."""
    sources, longest = len(logits), int(limits.max())
    slots = Slots(sources, longest, logits.size(-1), terms, logits.device)
    state = {**spread({k: part for k, part in state.items() if k != "source"}, terms.width), **shared(state)}
    rows = Rows(model, map_state(Tensor.clone, state), terms.width, longest)
    stage = Stage(slots, rows, chooser(has_kernels(logits, terms)))
    overwrite(rows.state, state)  # recording has read something into it
    seats = Seats(stage, 0)
    seats.sit(range(sources), limits.tolist())
    stage.choose(slots, logits.repeat_interleave(terms.width, 0))
    seats.age += 1
    seats.look()
    while not seats.done.all():
        seats.work()
        seats.look()
    return [hypotheses for _, hypotheses in seats.leave()()]


def shared(state: State) -> State:
    """What the hypotheses of a source have in common."""
    return {"source": state["source"]} if "source" in state else {}


def chooser(kernels: bool) -> Callable[[Slots, Tensor], None]:
    if not kernels:
        return Slots.choose
    from regard.kernels.beam_choice import choose

    return choose


def has_kernels(numbers: Tensor, terms: Terms) -> bool:
    """Triton is there, and the numbers are such as its kernels are written for."""
    exact = numbers.dtype not in (torch.float32, torch.bfloat16, torch.float16)
    return numbers.is_cuda and not exact and terms.width <= WIDEST and find_spec("triton") is not None


def bucket(length: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, 64, …: padding by at most a half, and few shapes."""
    power = max(8, 2 ** (length - 1).bit_length())
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power
