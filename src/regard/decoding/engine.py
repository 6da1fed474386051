"""The generation engine: a batch that stays full, and on a GPU no word from the host between tokens.

It writes what the plain loop (generate.py) writes for each text alone, whoever shares the batch:

    read      prompts of different lengths in one call, into the rows of texts that have ended
    launch    steps for all rows; a GPU is told so many at once, and of the next ones before it is through
    receive   what was written comes back as it is written; a text that has ended gives its row away

The state has a fixed capacity, so a step moves no tensor (writer.py); a row that has reached the model's context
re-reads the second half of its text, as the plain loop does. On a CPU the same engine takes one step at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.decoding.generate import half
from regard.decoding.sampling import GREEDY, Sampling, damaged, random_stream
from regard.decoding.writer import Manner, Writer
from regard.systems.model import Model

STEPS = {"cuda": 8}  # taken between two looks at what was written; elsewhere 1
ROWS = {"cuda": 64}  # texts written at once; elsewhere 16
TOGETHER = 8  # new prompts wait until an eighth of the rows is free: reading a few takes about as long as reading one
ROOM = 512  # new tokens that a row first has room for, where neither its text nor the model ends before
AHEAD = 4096  # finished texts that may wait for an earlier one


@dataclass(frozen=True)
class Prompt:
    """What is read first, never nothing: a language model's first token is <eos>, the boundary before every line."""

    tokens: Sequence[int]
    unfit: Sequence[int] = ()  # tokens that may not come next


@dataclass
class Text:
    """A text that is being written."""

    number: int
    prompt: Prompt
    tokens: list[int]  # the end of what was read and written: as much as a re-reading could need
    draws: np.random.Generator
    most: int  # tokens
    asked: int = 0  # tokens that were or are being written
    written: int = 0  # of these, those that have been received
    lines: int = 0  # of these, those that have ended
    fresh: bool = False  # its row was read anew: the first token is there without a step
    done: bool = False

    @property
    def going(self) -> bool:
        return not self.done and self.asked < self.most


@dataclass
class Batch:
    """The texts of a writer's rows."""

    writer: Writer
    texts: list[Text | None]
    room: list[int]  # tokens that each row can still read

    @property
    def going(self) -> list[tuple[int, Text]]:
        return [(row, text) for row, text in enumerate(self.texts) if text is not None and text.going]

    @property
    def free(self) -> list[int]:
        return [row for row, text in enumerate(self.texts) if text is None or not text.going]


@dataclass(frozen=True)
class Flight:
    """Steps whose tokens are on their way to the host."""

    tokens: Tensor  # [steps + 1, R], −1 where a prediction was no number
    arrived: Any  # a CUDA event; None: they are there
    wanted: list[tuple[int, Text, int, int]]  # a row, its text, and which of the tokens are the text's: from, to


class Engine:
    """Writes texts with one model. What it has set aside and recorded is kept from one call to the next."""

    def __init__(
        self,
        model: Model,
        *,
        eos: int,
        sampling: Sampling = GREEDY,
        forbidden: Sequence[int] = (),
        rows: int | None = None,
        steps: int | None = None,
    ) -> None:
        """`rows`: the most texts written at once. `steps`: those taken between two looks at what was written."""
        self.model, self.eos, self.device = model.eval(), eos, model.device
        self.rows = rows or ROWS.get(self.device.type, 16)
        self.steps = steps or STEPS.get(self.device.type, 1)
        self.manner = Manner(model, sampling, forbidden, self.steps)
        self.writer: Writer | None = None  # the last one

    # -- what is asked for -------------------------------------------------------------------------------------------

    def texts(
        self, prompts: Iterable[Prompt | Sequence[int]], *, max_tokens: int, first: int = 0, **options: Any
    ) -> Iterator[list[int]]:
        """The tokens written after each prompt, in the order of the prompts; `options` as `stream` has them."""
        if max_tokens < 1:
            yield from ([] for _ in prompts)
        parts: dict[int, list[int]] = {}
        waiting: set[int] = set()  # texts that are finished before an earlier one is
        options["hold"] = lambda: len(waiting) >= AHEAD
        for number, tokens, done in self.stream(prompts, max_tokens=max_tokens, first=first, **options):
            parts.setdefault(number, []).extend(tokens)
            if done:
                waiting.add(number)
            while first in waiting:
                waiting.remove(first)
                yield parts.pop(first)
                first += 1

    @torch.no_grad()
    def stream(
        self,
        prompts: Iterable[Prompt | Sequence[int]],
        *,
        max_tokens: int,
        lines: int = 0,
        seed: int = 0,
        first: int = 0,
        on_reread: Callable[[int], None] | None = None,
        hold: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, list[int], bool]]:
        """(number of a text, the tokens it goes on with, has it ended?) as they come, for all texts of the batch.

        A text ends with its `lines`-th line, 0 = never, or after `max_tokens`. The first prompt's number is `first`: a
        text's number and the seed decide what is drawn. No new text is begun while `hold()`.
        """
        texts = (
            Text(number, prompt, self._end(prompt.tokens), random_stream(seed, number), max_tokens)
            for number, prompt in enumerate((p if isinstance(p, Prompt) else Prompt(p) for p in prompts), first)
        )
        reading = list(enumerate(islice(texts, self.rows))) if max_tokens > 0 else []
        if not reading:
            return
        batch = self._open([text for _, text in reading])
        # Where it is known beforehand when texts end, steps are taken before the last ones' tokens were looked at.
        ahead = int(self.device.type == "cuda" and not lines)
        flying: deque[Flight] = deque()
        while reading or batch.going:
            if reading:
                self._read(batch, reading)
            flying.append(self._launch(batch))
            while len(flying) > ahead:
                yield from self._receive(flying.popleft(), lines)
            if full := [(row, text) for row, text in batch.going if batch.room[row] == 0]:
                while flying:  # what is read again must have been received
                    yield from self._receive(flying.popleft(), lines)
            reading = self._make_room(batch, full, on_reread)
            if len(batch.free) * TOGETHER >= len(batch.texts) and not hold():
                new = list(islice(texts, len(batch.free)))
                self._grow(batch, max(map(self._need, new), default=0))
                reading += zip(batch.free, new)
            if not reading:
                self._shrink(batch)
        while flying:
            yield from self._receive(flying.popleft(), lines)

    # -- read, launch, receive ---------------------------------------------------------------------------------------

    def _read(self, batch: Batch, reading: list[tuple[int, Text]]) -> None:
        texts = [text for _, text in reading]
        batch.writer.read(
            [row for row, _ in reading],
            [text.tokens for text in texts],
            [text.draws.random() for text in texts],
            [() if text.asked else text.prompt.unfit for text in texts],
        )
        for row, text in reading:
            batch.texts[row], batch.room[row] = text, batch.writer.limit - len(text.tokens)
            text.asked, text.fresh = text.asked + 1, True

    def _launch(self, batch: Batch) -> Flight:
        """Take as many steps as there is room for, at most `steps`, and send for what they wrote."""
        going, writer = batch.going, batch.writer
        room = min((batch.room[row] for row, _ in going), default=0)
        steps = self.steps if room >= self.steps and not writer.warm_up else min(room, 1)
        self._rewind(batch, {row for row, _ in going}, steps)
        if steps and self.manner.sampling.temperature > 0:
            uniform = np.zeros((steps, len(batch.texts)))
            for row, text in going:
                uniform[:, row] = text.draws.random(steps)
            writer.draw(uniform)
        tokens = writer.take(steps)
        wanted = []
        for row, writing in enumerate(batch.texts):
            if writing is not None and (writing.fresh or writing.going):
                own = min(steps, writing.most - writing.asked)
                wanted.append((row, writing, 0 if writing.fresh else 1, 1 + own))
                writing.asked, writing.fresh = writing.asked + own, False
            batch.room[row] -= steps
        return Flight(*self._to_host(tokens), wanted)

    def _to_host(self, tokens: Tensor) -> tuple[Tensor, Any]:
        if self.device.type != "cuda":
            return tokens, None
        host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        host.copy_(tokens, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return host, arrived

    def _receive(self, flight: Flight, lines: int) -> Iterator[tuple[int, list[int], bool]]:
        if flight.arrived is not None:
            flight.arrived.synchronize()
        rows = flight.tokens.T.tolist()
        for row, text, start, stop in flight.wanted:
            tokens = rows[row][start:stop]
            if text.done or not tokens:
                continue
            if min(tokens) < 0:
                raise damaged()
            if lines:
                tokens = self._cut(text, tokens, lines)
            text.written += len(tokens)
            text.done = text.written == text.most or bool(lines and text.lines >= lines)
            if self.model.context is not None:
                text.tokens += tokens
            yield text.number, tokens, text.done

    def _cut(self, text: Text, tokens: list[int], lines: int) -> list[int]:
        """The tokens up to the end of the text's last line."""
        for place, token in enumerate(tokens):
            text.lines += token == self.eos
            if text.lines >= lines:
                return tokens[: place + 1]
        return tokens

    # -- room --------------------------------------------------------------------------------------------------------

    def _end(self, tokens: Sequence[int]) -> list[int]:
        """As much of a text's end as the model can hold."""
        return list(tokens) if self.model.context is None else list(tokens)[-self.model.context :]

    def _need(self, text: Text) -> int:
        """The tokens that a row must hold for this text, to begin with."""
        if not self.manner.fills:
            return 1
        if self.model.context is None:
            return len(text.tokens) + min(text.most, ROOM)
        return min(len(text.tokens) + text.most, self.model.context)

    def _capacity(self, need: int) -> int:
        """On a GPU steps beyond a text's end do no harm if they have room, and kernels like an even number of slots."""
        return need if self.device.type != "cuda" else -(-(need + self.steps) // 16) * 16 - 1

    def _open(self, texts: Sequence[Text]) -> Batch:
        """A batch for so many texts: with the last one's rows, if they will do."""
        rows, need = len(texts), max(map(self._need, texts))
        if self.writer is None or self.writer.rows != rows or self.writer.capacity < need:
            self.writer = None  # its memory is free for the new one
            self.writer = Writer(self.manner, rows, self._capacity(need))
        return Batch(self.writer, [None] * rows, [0] * rows)

    def _make_room(
        self, batch: Batch, full: list[tuple[int, Text]], on_reread: Callable[[int], None] | None
    ) -> list[tuple[int, Text]]:
        """For rows that are full a larger state or, at the model's own limit, what they are to read again."""
        if full and self.model.context is None:
            self._grow(batch, 2 * batch.writer.capacity)
            return []
        for _, text in full:
            assert self.model.context is not None
            text.tokens = text.tokens[-half(self.model.context) :]
            if on_reread:
                on_reread(len(text.tokens))
        return full

    def _rewind(self, batch: Batch, going: set[int], steps: int) -> None:
        """Rows that write nothing take the steps, too: they start again before they would overflow."""
        spent = [row for row, room in enumerate(batch.room) if room < steps and row not in going]
        if spent:
            batch.writer.rewind(spent)
        for row in spent:
            batch.room[row] = batch.writer.limit

    def _grow(self, batch: Batch, need: int) -> None:
        """More room for every row, if it needs more."""
        if not self.manner.fills or need <= batch.writer.capacity:
            return
        before = batch.writer.limit
        self.writer = batch.writer = batch.writer.grown(self._capacity(need))
        batch.room = [room + batch.writer.limit - before for room in batch.room]

    def _shrink(self, batch: Batch) -> None:
        """Leave out the rows that have nothing more to write, once they are half of all; what is recorded stays."""
        kept = [row for row, _ in batch.going]
        if self.manner.recorder.on or not kept or 2 * len(kept) > len(batch.texts):
            return
        self.writer = batch.writer = batch.writer.only(kept)
        batch.texts, batch.room = [batch.texts[row] for row in kept], [batch.room[row] for row in kept]
