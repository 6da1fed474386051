"""The workers that the scheduler steps: a language model that writes and scores texts, and a translator.

A language model's texts join the batch as rows become free, and leave it when they end. Texts with one way of drawing
(`Sampling`) are written together; other ways take turns. A translator takes all sentences that wait,
and those that come meanwhile next time. A text depends on its seed, not on the other texts in its batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from regard.decoding.beam import Beam
from regard.decoding.engine import RECORDED, Engine, Prompt, Text
from regard.decoding.sampling import Sampling
from regard.runs.tasks.classification.run import ClassificationRun
from regard.runs.tasks.language.run import LanguageRun
from regard.runs.tasks.translation.run import TranslationRun
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.web.serve.scheduler import Job, Post, failure

ROWS = {"cuda": 256}  # texts written at once; elsewhere 64
ENGINES = 4  # ways of drawing whose memory is kept while nobody uses them
WARM_UP = 128  # tokens of the texts that are written before any is asked for
SENTENCES = {"cuda": 512}  # translated at once; elsewhere 64


class TextJob(Job):
    """Posts itself, its next tokens, and whether it has ended; one that is not `live` posts all of them at its end."""

    def __init__(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        max_tokens: int,
        lines: int,
        seed: int,
        number: int,
        live: bool,
        events: asyncio.Queue[Any],
    ) -> None:
        super().__init__(events)
        self.prompt, self.sampling, self.max_tokens, self.lines = prompt, sampling, max_tokens, lines
        self.seed, self.number, self.live = seed, number, live


class ScoreJob(Job):
    """Posts once what `LanguageRun.token_scores` finds."""

    def __init__(self, tokens: Sequence[int], top: int) -> None:
        super().__init__()
        self.tokens, self.top = tokens, top


class SentenceJob(Job):
    """Posts the sentence's translations once, best first."""

    def __init__(self, sentence: str, beam: Beam) -> None:
        super().__init__()
        self.sentence, self.beam = sentence, beam


class LanguageWorker:
    """Writes and scores texts."""

    between_languages, in_bf16 = False, True

    def __init__(self, run: LanguageRun, rows: int | None = None) -> None:
        self.run, self.rows = run, rows or ROWS.get(run.model.device.type, 64)
        self.engines: dict[Sampling, Engine] = {}
        self.writing: dict[TextJob, tuple[Engine, Text]] = {}
        self.waiting: deque[TextJob] = deque()
        self.scoring: deque[ScoreJob] = deque()

    def warm_up(self) -> None:
        """On a GPU: begins texts in every number of rows that it records, so that no client waits for a compiler."""
        if self.run.model.device.type not in RECORDED:
            return
        engine = self._engine(Sampling())
        for rows in sorted({min(1 << power, self.rows) for power in range(self.rows.bit_length() + 1)}):
            texts = [engine.submit([engine.eos], max_tokens=WARM_UP, number=number) for number in range(rows)]
            while not all(text.done for text in texts):
                engine.step()

    @property
    def busy(self) -> bool:
        return bool(self.writing or self.waiting or self.scoring)

    def submit(self, job: TextJob | ScoreJob) -> None:
        (self.waiting if isinstance(job, TextJob) else self.scoring).append(job)  # type: ignore[arg-type]

    def cancel(self, job: TextJob | ScoreJob) -> None:
        if isinstance(job, ScoreJob):
            if job in self.scoring:
                self.scoring.remove(job)
        elif job in self.writing:
            engine, text = self.writing.pop(job)
            engine.cancel(text)
        elif job in self.waiting:
            self.waiting.remove(job)

    def step(self, post: Post) -> None:
        if self.scoring:
            scored = self.scoring[0]
            found = self.run.token_scores(scored.tokens, scored.top)
            self.scoring.popleft().over = True
            post(scored, found)
        while self.waiting and len(self.writing) < self.rows:
            job = self.waiting[0]
            engine = self._engine(job.sampling)
            text = engine.submit(
                job.prompt, max_tokens=job.max_tokens, lines=job.lines, seed=job.seed, number=job.number
            )
            self.writing[self.waiting.popleft()] = engine, text
        for engine in {id(engine): engine for engine, _ in self.writing.values()}.values():
            try:
                engine.step()
            except Exception as error:
                self._fail(engine, failure(error), post)
        for job, (_, text) in list(self.writing.items()):
            if text.done:
                del self.writing[job]
                job.over = True
            if text.done or (job.live and text.new):
                post(job, (job, text.take(), text.done))

    def give_up(self, error: Exception, post: Post) -> None:
        jobs = [*self.writing, *self.waiting, *self.scoring]
        self.engines, self.writing = {}, {}
        self.waiting.clear()
        self.scoring.clear()
        post_failure(jobs, error, post)

    def _engine(self, sampling: Sampling) -> Engine:
        engine = self.engines.pop(sampling, None) or self.run.new_engine(sampling, self.rows)
        used = {id(engine) for engine, _ in self.writing.values()}
        idle = [how for how, other in self.engines.items() if id(other) not in used]
        for how in idle[: max(0, len(self.engines) + 1 - ENGINES)]:  # the least recently used first
            del self.engines[how]
        self.engines[sampling] = engine
        return engine

    def _fail(self, engine: Engine, error: Exception, post: Post) -> None:
        """Gives up the texts of one engine, and the engine."""
        self.engines = {how: other for how, other in self.engines.items() if other is not engine}
        jobs = [job for job, (writer, _) in self.writing.items() if writer is engine]
        for job in jobs:
            del self.writing[job]
        post_failure(jobs, error, post)


class TranslationWorker:
    """Translates sentences."""

    between_languages, in_bf16 = True, False

    def __init__(self, run: TranslationRun) -> None:
        self.run, self.most = run, SENTENCES.get(run.model.device.type, 64)
        self.source_tokenizer = Tokenizer.from_json(
            run.source_tokenizer.json
        )  # for the event loop; `step` has the run's
        self.waiting: deque[SentenceJob] = deque()

    def warm_up(self) -> None:
        """No-op: CUDA graphs are captured per sentence length, which is not known yet."""

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def submit(self, job: SentenceJob) -> None:
        self.waiting.append(job)

    def cancel(self, job: SentenceJob) -> None:
        if job in self.waiting:
            self.waiting.remove(job)

    def step(self, post: Post) -> None:
        beam = self.waiting[0].beam
        jobs = list(islice((job for job in self.waiting if job.beam == beam), self.most))
        found = list(self.run.translations([job.sentence for job in jobs], beam=beam))
        done = set(jobs)
        self.waiting = deque(job for job in self.waiting if job not in done)
        for job, translations in zip(jobs, found, strict=True):
            job.over = True
            post(job, translations)

    def give_up(self, error: Exception, post: Post) -> None:
        jobs = list(self.waiting)
        self.waiting.clear()
        post_failure(jobs, error, post)


class ClassificationWorker:
    """A classifier; its requests are calls between the steps of other models."""

    between_languages, in_bf16, busy = False, False, False

    def __init__(self, run: ClassificationRun) -> None:
        self.run = run

    def warm_up(self) -> None:
        """Nothing to compile."""

    def submit(self, job: Any) -> None:
        raise NotImplementedError

    def cancel(self, job: Any) -> None:
        raise NotImplementedError

    def step(self, post: Post) -> None:
        """Never busy."""

    def give_up(self, error: Exception, post: Post) -> None:
        """It has no jobs."""


def post_failure(jobs: Sequence[Job], error: Exception, post: Post) -> None:
    for job in jobs:
        job.over = True
        post(job, error)


WORKERS = {  # by the name of a task
    "language model": LanguageWorker,
    "translation": TranslationWorker,
    "classification": ClassificationWorker,
}
