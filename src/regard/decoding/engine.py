"""The generation engine: continuous batching, and on a GPU several tokens per launch.

Each text is the one that the plain loop (generate.py) writes for it alone, whatever else is in the batch:

    submit    queue a text; it waits for a free row
    step      read waiting prompts into free rows, take steps of all rows, receive their tokens

Texts may be submitted at any time, also while others are being written. A GPU gets several steps at once, and the next
ones before these are finished. The state has a fixed capacity, so a step moves no tensor (writer.py); a row that has
reached the model's context re-reads the second half of its text, as the plain loop does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.install import Install, as_written
from regard.decoding.adjustments import Adjustment
from regard.decoding.constraints import Guide
from regard.decoding.generate import half
from regard.decoding.sampling import GREEDY, Sampling, damaged, random_stream
from regard.decoding.writer import DecodingStep, Writer
from regard.systems.model import Model

STEPS = {"cuda": 8}  # steps per launch; elsewhere 1
BATCH_ROWS = {"cuda": 64}  # texts written at once; elsewhere 16
RECORDED = {"cuda"}  # devices that record a graph per number of rows: it is a power of two, and its writer is reused
# Reading several prompts takes about as long as one: they wait until 1/8 of the rows is free, for at most 8 launches.
REFILL = 8
FIRST_CAPACITY = 512  # new tokens for which a row is first allocated, unless its text or the context is shorter
AHEAD = 4096  # finished texts that may wait for an earlier one


@dataclass(frozen=True)
class Prompt:
    """The tokens read first; never empty: a language model's first token is <eos>, the boundary before every line."""

    tokens: Sequence[int]
    unfit: Sequence[int] = ()  # tokens that may not come next


@dataclass(eq=False)
class Text:
    """A submitted text; `take` returns the tokens written since the last call."""

    number: int
    prompt: Prompt
    tokens: list[int]  # the last tokens read and written, as many as re-reading needs
    draws: np.random.Generator
    most: int  # tokens
    lines: int  # it ends after this many lines; 0: only after `most` tokens
    on_reread: Callable[[int], None] | None = None
    launched: int = 0  # tokens that were or are being written
    written: int = 0  # of these, those received
    ended: int = 0  # lines among them
    fresh: bool = False  # its row was just read: the first token needs no step
    done: bool = False
    adjustment: Adjustment | None = None  # of its logits
    new: list[int] = field(default_factory=list)  # received, but not taken yet

    @property
    def going(self) -> bool:
        return not self.done and self.launched < self.most

    def take(self) -> list[int]:
        tokens, self.new = self.new, []
        return tokens


@dataclass
class DecodingBatch:
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
    """Launched steps whose tokens are being copied to the host."""

    tokens: Tensor  # [steps + 1, R], −1 for a NaN prediction
    arrived: Any  # a CUDA event; None: already there
    wanted: list[tuple[int, Text, int, int]]  # row, text, and which of the tokens are the text's: from, to


class Engine:
    """Writes texts with one model. Later calls reuse its rows and recorded CUDA graphs."""

    def __init__(
        self,
        model: Model,
        *,
        eos: int,
        sampling: Sampling = GREEDY,
        forbidden: Sequence[int] = (),
        rows: int | None = None,
        steps: int | None = None,
        guides: Callable[[], Guide | None] = lambda: None,
        install: Install = as_written,
    ) -> None:
        """`rows`: the most texts written at once. `steps`: per launch. `guides`: for a text's constraint."""
        self.model, self.eos, self.device, self.sampling = model.eval(), eos, model.device, sampling
        self.rows = rows or BATCH_ROWS.get(self.device.type, 16)
        # Adjusted logits depend on the last token, so it is received before the next step.
        self.steps = 1 if sampling.adjusts else steps or STEPS.get(self.device.type, 1)
        self.recorded = self.device.type in RECORDED
        self.one_step, self.install, self.guides = DecodingStep(model, sampling, forbidden), install, guides
        self.one_step.adjust = self._adjust if sampling.adjusts else None
        install(self.one_step)
        self.batch: DecodingBatch | None = None
        self.midway = False  # a stream is active: keep the batch even if all rows are free for a moment
        self.writers: dict[int, Writer] = {}  # of earlier batches by number of rows, kept for their CUDA graphs
        self.waiting: deque[Text] = deque()
        self.held = 0  # launches for which prompts have waited beside free rows
        self.reading: list[tuple[int, Text]] = []  # rows and texts whose prompts are read next
        self.flying: deque[Flight] = deque()

    # -- submitting ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        prompt: Prompt | Sequence[int],
        *,
        max_tokens: int,
        lines: int = 0,
        seed: int = 0,
        number: int = 0,
        on_reread: Callable[[int], None] | None = None,
    ) -> Text:
        """Queues a text, which the next steps write. It ends after `lines` lines (0 = no limit) or `max_tokens`.
        Sampling depends on the seed and the text's number alone."""
        for name, most in (("max_tokens", max_tokens), ("lines", lines)):
            if most < 0:
                raise RegardError(f"{name} must be at least 0, not {most}.")
        prompt = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
        draws = random_stream(seed, number)
        lines = 1 if self.sampling.constrained else lines  # <eos> ends a text that fulfills its constraint
        text = Text(number, prompt, self._end(prompt.tokens), draws, max_tokens, lines, on_reread)
        text.adjustment = Adjustment(self.sampling, prompt.tokens, self.guides()) if self.sampling.adjusts else None
        if max_tokens < 1:
            text.done = True
        else:
            self.waiting.append(text)
        return text

    def cancel(self, text: Text) -> None:
        """Stops writing this text; its row is free from the next step on."""
        text.done = True
        if text in self.waiting:
            self.waiting.remove(text)

    def texts(
        self, prompts: Iterable[Prompt | Sequence[int]], *, max_tokens: int, first: int = 0, **options: Any
    ) -> Iterator[list[int]]:
        """The tokens written after each prompt, in the order of the prompts; `options` are those of `stream`."""
        parts: dict[int, list[int]] = {}
        waiting: set[int] = set()  # texts that finished before an earlier one
        options["hold"] = lambda: len(waiting) >= AHEAD
        for number, tokens, done in self.stream(prompts, max_tokens=max_tokens, first=first, **options):
            parts.setdefault(number, []).extend(tokens)
            if done:
                waiting.add(number)
            while first in waiting:
                waiting.remove(first)
                yield parts.pop(first)
                first += 1

    def stream(
        self,
        prompts: Iterable[Prompt | Sequence[int]],
        *,
        first: int = 0,
        hold: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> Iterator[tuple[int, list[int], bool]]:
        """(number of a text, its next tokens, has it ended?) as they are written, for all texts of the batch.

        The first prompt's number is `first`; `options` are those of `submit`. No new text is started while `hold()`.
        """
        numbered = enumerate(prompts, first)
        mine: list[Text] = []
        try:
            while True:
                if not hold():
                    begun = islice(numbered, self.places or int(not mine))  # if others have all rows, one waits
                    mine += [self.submit(prompt, number=number, **options) for number, prompt in begun]
                if not mine:
                    return
                if any(not text.done for text in mine):
                    self.step()
                    self.midway = True
                came = [text for text in mine if text.new or text.done]
                mine = [text for text in mine if not text.done]
                for text in came:
                    yield text.number, text.take(), text.done
        finally:  # also if the caller stops iterating
            self.midway = False
            for text in mine:
                self.cancel(text)

    @property
    def places(self) -> int:
        """Free rows that no waiting text will take."""
        busy = 0 if self.batch is None else len(self.batch.going)
        return max(0, self.rows - busy - len(self.reading) - len(self.waiting))

    @torch.no_grad()
    def step(self) -> None:
        """Reads the prompts of waiting texts that have a row, takes steps of all rows, and receives their tokens."""
        batch = self._admit()
        if batch is None:
            return
        if self.reading:
            self._read(batch)
        if batch.going or any(text is not None and text.fresh for text in batch.texts):
            self.flying.append(self._launch(batch))
        # If the ends of texts are known in advance, steps are launched before the last tokens are received.
        unknown = self.sampling.adjusts or any(text.lines for _, text in batch.going)
        ahead = self.device.type == "cuda" and bool(batch.going) and not unknown
        self._receive(int(ahead))
        if full := [(row, text) for row, text in batch.going if batch.room[row] == 0]:
            self._receive(0)  # re-reading needs all tokens
            self._make_room(batch, [(row, text) for row, text in full if text.going])
        if not self.reading and not self.waiting:
            self._shrink(batch)

    def _admit(self) -> DecodingBatch | None:
        """Assigns rows to waiting texts: in a new batch if nothing is being written, else the free rows."""
        batch = self.batch
        if batch is None or not (batch.going or self.reading or self.flying or self.midway):
            self.waiting = deque(text for text in self.waiting if not text.done)
            if not self.waiting:
                return batch
            new = [self.waiting.popleft() for _ in range(min(len(self.waiting), self.rows))]
            self.batch = batch = self._open(new)
            self.reading = list(enumerate(new))
            return batch
        if not self.waiting:
            return batch
        if not batch.free:
            self._grow(batch, rows=max(2 * len(batch.texts), len(batch.texts) + len(self.waiting)))
        taken = {row for row, _ in self.reading}
        free = [row for row in batch.free if row not in taken]
        self.held += bool(free)
        if len(free) * REFILL >= len(batch.texts) or self.held > REFILL:
            self.held = 0
            new = [self.waiting.popleft() for _ in range(min(len(self.waiting), len(free)))]
            self._grow(batch, need=max(map(self._need, new)))
            self.reading += zip(free, new)
        return batch

    # -- read, launch, receive ---------------------------------------------------------------------------------------

    def _read(self, batch: DecodingBatch) -> None:
        reading, self.reading = self.reading, []
        texts = [text for _, text in reading]
        for row, text in reading:
            batch.texts[row] = text
        batch.writer.admit(
            [row for row, _ in reading],
            [text.tokens for text in texts],
            [text.draws.random() for text in texts],
            [() if text.launched else text.prompt.unfit for text in texts],
        )
        for row, text in reading:
            batch.room[row] = batch.writer.limit - len(text.tokens)
            text.launched, text.fresh = text.launched + 1, True

    def _launch(self, batch: DecodingBatch) -> Flight:
        """Launches as many steps as there is room for, at most `steps`, and starts copying their tokens."""
        going, writer = batch.going, batch.writer
        room = min((batch.room[row] for row, _ in going), default=0)
        steps = self.steps if room >= self.steps else min(room, 1)
        if self.sampling.adjusts and any(text.fresh for _, text in going):
            steps = 0  # the first tokens are received first
        self._rewind(batch, {row for row, _ in going}, steps)
        if steps and self.sampling.temperature > 0:
            uniform = np.zeros((steps, len(batch.texts)))
            for row, text in going:
                uniform[:, row] = text.draws.random(steps)
            writer.draw(uniform)
        tokens = writer.run_steps(steps)
        wanted = []
        for row, writing in enumerate(batch.texts):
            if writing is not None and (writing.fresh or writing.going):
                own = min(steps, writing.most - writing.launched)
                wanted.append((row, writing, 0 if writing.fresh else 1, 1 + own))
                writing.launched, writing.fresh = writing.launched + own, False
            batch.room[row] -= steps
        return Flight(*self._to_host(tokens), wanted)

    def _to_host(self, tokens: Tensor) -> tuple[Tensor, Any]:
        if self.device.type == "cuda":
            host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            host.copy_(tokens, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
            return host, arrived
        return tokens, None

    def _receive(self, ahead: int) -> None:
        """Receives tokens of all but the last `ahead` launches."""
        while len(self.flying) > ahead:
            flight = self.flying.popleft()
            if flight.arrived is not None:
                flight.arrived.synchronize()
            rows = flight.tokens.T.tolist()
            for row, text, start, stop in flight.wanted:
                if not text.done and (tokens := rows[row][start:stop]):
                    self._note(text, tokens)

    def _note(self, text: Text, tokens: list[int]) -> None:
        if min(tokens) < 0:
            text.done = True
            raise damaged()
        if text.lines:
            tokens = self._cut(text, tokens)
        text.written += len(tokens)
        text.done = text.written == text.most or bool(text.lines and text.ended >= text.lines)
        text.new += tokens
        if self.model.context is not None:
            text.tokens += tokens
        if text.adjustment is not None and not text.done:
            text.adjustment.add(*tokens)

    def _adjust(self, rows: Sequence[int], logits: Tensor) -> Tensor:
        """The logits [n, V] of these rows, adjusted where a text is being written."""
        logits = logits.clone()
        for place, row in enumerate(rows):
            text = self.batch.texts[row] if self.batch is not None else None
            if text is not None and text.going and text.adjustment is not None:
                logits[place] = text.adjustment(logits[place])
        return logits

    def _cut(self, text: Text, tokens: list[int]) -> list[int]:
        """The tokens up to the end of the text's last line."""
        for place, token in enumerate(tokens):
            text.ended += token == self.eos
            if text.ended >= text.lines:
                return tokens[: place + 1]
        return tokens

    # -- room --------------------------------------------------------------------------------------------------------

    def _end(self, tokens: Sequence[int]) -> list[int]:
        """The end of a text, as long as the model's context."""
        return list(tokens) if self.model.context is None else list(tokens)[-self.model.context :]

    def _need(self, text: Text) -> int:
        """The capacity a row needs for this text at first."""
        if not self.one_step.cache_grows:
            return 1
        if self.model.context is None:
            return len(text.tokens) + min(text.most, FIRST_CAPACITY)
        return min(len(text.tokens) + text.most, self.model.context)

    def _capacity(self, need: int) -> int:
        """On a GPU there is also room for steps beyond a text's end, and slots are rounded up for the kernels."""
        return need if self.device.type != "cuda" else -(-(need + self.steps) // 16) * 16 - 1

    def _open(self, texts: Sequence[Text]) -> DecodingBatch:
        """A batch for these texts."""
        rows, need = self._rounded(len(texts)), max(map(self._need, texts))
        return DecodingBatch(self._keep(self._writer(rows, need, self._capacity(need))), [None] * rows, [0] * rows)

    def _rounded(self, rows: int) -> int:
        """On a GPU a power of two, so that few graphs are recorded."""
        return min(self.rows, 1 << (rows - 1).bit_length() if self.recorded else rows)

    def _writer(self, rows: int, least: int, capacity: int) -> Writer:
        """Reuses the writer with this many rows if its capacity is at least `least`; else makes one of `capacity`."""
        writer = self.writers.pop(rows, None)
        if writer is not None and writer.capacity < least:
            writer.close()  # frees its memory for the new one
            writer = None
        return writer or Writer(self.one_step, self.steps, rows, capacity, install=self.install)

    def _keep(self, writer: Writer) -> Writer:
        """Keeps the last writer: on a GPU one of each size, for its CUDA graphs."""
        spent = [writer.rows] if self.recorded else list(self.writers)
        for rows in spent:
            if (old := self.writers.pop(rows, None)) is not None:
                old.close()
        self.writers[writer.rows] = writer
        return writer

    def _make_room(self, batch: DecodingBatch, full: list[tuple[int, Text]]) -> None:
        """Full rows get a larger state or, at the model's context, are queued to be re-read."""
        if full and self.model.context is None:
            return self._grow(batch, need=2 * batch.writer.capacity)
        for _, text in full:
            assert self.model.context is not None
            text.tokens = text.tokens[-half(self.model.context) :]
            if text.on_reread:
                text.on_reread(len(text.tokens))
        self.reading += full

    def _rewind(self, batch: DecodingBatch, going: set[int], steps: int) -> None:
        """Idle rows take the steps, too; they are reset before they would overflow."""
        spent = [row for row, room in enumerate(batch.room) if room < steps and row not in going]
        if spent:
            batch.writer.rewind(spent)
        for row in spent:
            batch.room[row] = batch.writer.limit

    def _grow(self, batch: DecodingBatch, *, need: int = 0, rows: int = 0) -> None:
        """Enlarges the rows' capacity and their number as needed."""
        before, more = batch.writer, max(0, self._rounded(rows) - len(batch.texts))
        capacity = before.capacity
        if self.one_step.cache_grows and need > capacity:
            capacity = self._capacity(need)
        elif not more:
            return
        limit = before.limit
        if not more:
            self.writers.pop(before.rows, None)  # which is `before`
        larger = self._writer(len(batch.texts) + more, capacity, capacity)
        larger.copy_from(before)
        if not more:
            before.close()
        batch.writer = self._keep(larger)
        batch.room = [room + batch.writer.limit - limit for room in batch.room] + [0] * more
        batch.texts += [None] * more

    def _shrink(self, batch: DecodingBatch) -> None:
        """Removes idle rows once they are half of all; not on a GPU, which keeps its shapes."""
        kept = [row for row, _ in batch.going]
        if self.recorded or not kept or 2 * len(kept) > len(batch.texts):
            return
        batch.writer = self._keep(batch.writer.subset(kept))
        batch.texts, batch.room = [batch.texts[row] for row in kept], [batch.room[row] for row in kept]
