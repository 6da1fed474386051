"""The models that a server offers, each under the name of its run's folder; a run that was replaced is reloaded.

A model has places for a number of jobs, written or waiting; further clients are told to retry. When a
run is replaced, new jobs go to the new model and jobs already started finish with the old one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from regard.base.device import pick_device
from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.base.settings import check_choice
from regard.decoding.engine import Prompt
from regard.exchange.engines import ENGINES, open_engine
from regard.report.progress import say
from regard.runs.load import AnyRun, load
from regard.runs.speed import PRECISIONS, set_precision
from regard.runs.tasks.language.run import LanguageRun
from regard.runs.tasks.task import task_of
from regard.runs.tasks.translation.run import TranslationRun
from regard.text.chat_template import FILE
from regard.web.serve.scheduler import Job, ModelWorker, Scheduler
from regard.web.serve.workers import WORKERS, LanguageWorker, TranslationWorker

log = logging.getLogger(__name__)

LONGEST = 4096  # tokens of a prompt and its text, where the model itself has no limit
SHORT = 2000  # characters that are encoded at once; more are encoded beside the event loop


class NotServed(RegardError):
    """A run that no API here is for."""


class Full(Exception):
    """All places of a model are taken."""


class Served:
    """One model under its name. Read `worker` once per request and pass it along: a reload may replace it between
    awaits."""

    def __init__(self, name: str, run: LanguageRun | TranslationRun, places: int) -> None:
        self.name, self.places, self.inside = name, places, 0
        self.lock = threading.Lock()
        self.templating = asyncio.Lock()  # a slow template keeps one thread busy, and the others for other models
        self.use(run)

    def use(self, run: LanguageRun | TranslationRun) -> None:
        self.created = int(time.time())
        self.worker = worker_of(run)(run)

    async def opening(self, worker: LanguageWorker, prompt: str, exact: bool) -> tuple[Prompt, list[int]]:
        """A language model's first input, and the prompt's tokens; `exact`: with a space at its end."""

        def encode() -> tuple[Prompt, list[int]]:
            with self.lock:
                return worker.run.opening(prompt, exact=exact), worker.run.tokenizer.encode(prompt)

        return encode() if len(prompt) <= SHORT else await asyncio.to_thread(encode)

    async def length(self, worker: TranslationWorker, source: str) -> int:
        """The tokens of what a translator is to read."""

        def encode() -> int:
            with self.lock:
                return len(worker.source_tokenizer.encode(source))

        return encode() if len(source) <= SHORT else await asyncio.to_thread(encode)

    def known(self, source: str) -> float:
        """The share of a short source's tokens that are in the translator's vocabulary."""
        worker = self.worker
        assert isinstance(worker, TranslationWorker)
        with self.lock:
            tokens = worker.source_tokenizer.encode(source)
        unknown = sum(token == worker.source_tokenizer.unk for token in tokens)
        return 1 - unknown / max(len(tokens), 1)

    @contextmanager
    def submitted(
        self, scheduler: Scheduler, worker: ModelWorker, jobs: Sequence[Job]
    ) -> Iterator[Callable[[Job], None]]:
        """Inside, the jobs have their places, until they `leave`; then what has not ended is cancelled."""
        if self.inside + len(jobs) > self.places:
            raise Full
        there = set(jobs)

        def leave(job: Job) -> None:
            there.remove(job)
            self.inside -= 1
            scheduler.cancel(worker, job)

        self.inside += len(jobs)
        try:
            for job in jobs:
                scheduler.submit(worker, job)
            yield leave
        finally:
            for job in list(there):
                leave(job)


class ServedModels:
    """All of them, by name."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        languages: Mapping[str, tuple[str, str]],
        places: int,
        weights: str = "best",
        device: str = "auto",
        precision: str = "fp32",
        engine: str = "regard",
    ) -> None:
        check_choice("--precision", precision, PRECISIONS)
        check_choice("--engine", engine, tuple(ENGINES))
        self.engine = engine
        self.weights, self.device, self.precision, self.scheduler = weights, device, precision, Scheduler()
        self.languages: dict[str, tuple[str, str]] = {}  # of each translator: from, into
        self.folders: dict[str, Path] = {}
        self.seen: dict[str, object] = {}  # the files that each was read from
        self.by_name: dict[str, Served] = {}
        self.reloads: set[asyncio.Task[None]] = set()
        self.reloading = asyncio.Lock()
        refused: list[NotServed] = []
        for folder in folders:
            name = folder.resolve().name
            if name in self.by_name:
                raise RegardError(f"Two runs are called {name}: rename the folder of one of them.")
            seen = files_of(folder)
            try:
                run = self._load(folder, device)
            except NotServed as error:
                refused.append(error)
                continue
            self.folders[name], self.seen[name] = folder, seen
            self.by_name[name] = Served(name, run, places)
            if worker_of(run).between_languages:
                self.languages[name] = languages.get(name) or languages_of(run, name)
        if refused and not self.by_name:
            raise refused[0]
        for one in refused:
            say(f"skipped: {one}")
        if engine != "regard" and not self.languages:
            raise RegardError(
                f"--engine {engine} applies only to translators, and none of these runs is one: leave --engine out."
            )
        for name in languages:
            if name not in self.languages:
                raise RegardError(
                    f"--languages names {name!r}, which is not one of the translators: {', '.join(self.by_name)}."
                )
        self.scheduler.workers = [served.worker for served in self.by_name.values()]

    @property
    def language_models(self) -> dict[str, Served]:
        return {name: served for name, served in self.by_name.items() if isinstance(served.worker, LanguageWorker)}

    def reload_soon(self) -> None:
        """Begins `reload`; one that is under way is followed by another."""
        task = asyncio.get_running_loop().create_task(self._reload_in_turn())
        self.reloads.add(task)
        task.add_done_callback(self.reloads.discard)

    async def _reload_in_turn(self) -> None:
        async with self.reloading:
            await self.reload()

    async def reload(self) -> None:
        """Takes up runs whose files have changed. One that cannot be read stays as it was."""
        for name, served in self.by_name.items():
            seen = files_of(self.folders[name])
            if seen == self.seen[name]:
                continue
            try:
                # read beside the models' thread, and moved to their device in it
                run = await asyncio.to_thread(self._load, self.folders[name], "cpu")
                if task_of(run) is not task_of(served.worker.run):
                    raise RegardError(
                        f"{self.folders[name]} now holds a model for a different task: restart the server."
                    )
                await self.scheduler.call(partial(run.to, str(pick_device(self.device))))
                served.use(run)
                self.seen[name] = seen
                await self.scheduler.call(self._exchange)
            except RegardError as error:
                say(f"{name} was not reloaded: {error}")
                continue
            except Exception as error:  # whatever is wrong with one, the others are taken up
                log.error("a run could not be loaded", exc_info=error)
                say(f"{name} was not reloaded: it could not be read ({type(error).__name__}).")
                continue
            say(f"{name} was replaced")

    def _load(self, folder: Path, device: str) -> Any:
        run: Any = load(folder, weights=self.weights, device=device)
        kind = worker_of(run)
        if kind.in_bf16:
            set_precision(run.model, self.precision)
        if kind.between_languages:
            run.searcher = open_engine(self.engine, run)
        return run

    def _exchange(self) -> None:
        """The new workers, and the old ones that are not done yet."""
        new = [served.worker for served in self.by_name.values()]
        kept = [worker for worker in self.scheduler.workers if worker.busy and worker not in new]
        self.scheduler.workers = [*new, *kept]


def worker_of(run: AnyRun) -> Any:
    """The kind of worker that serves runs of this task."""
    task = task_of(run)
    if task.name not in WORKERS:
        raise NotServed(
            f"{run.folder} is {task.noun}, which this server has no API for: use `regard {task.verb} {run.folder}`."
        )
    return WORKERS[task.name]


def files_of(folder: Path) -> object:
    """A run's signature, which shows if it was replaced: its files, their sizes and times."""
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError:
        return None
    kept = {"model.safetensors", "training.safetensors", "recipe.toml", "run.json", "tokenizer.json", FILE}
    return [(name, at.st_ino, at.st_size, at.st_mtime_ns) for name, at in found if name in kept or ".source." in name]


def languages_of(run: TranslationRun, name: str) -> tuple[str, str]:
    """From and into which language it translates, as far as the run says."""
    data = run.recipe.data
    source, _, target = data.columns.partition(",")
    both = (data.source or source.strip(), data.target or target.strip())
    if data.corpus == "phrasebook":
        both = ("fr", "en") if data.swap else ("en", "fr")
    if not all(code.isalpha() for code in both):
        raise RegardError(f"{run.folder} does not record its languages: add --languages {name}=en-fr.")
    return both


def longest_of(run: LanguageRun) -> int:
    """Tokens of a text with its prompt and the boundary before it."""
    return LONGEST if run.model.context is None else run.model.context


def refuse_length(name: str, longest: int, prompt: int, more: int) -> None:
    if 1 + prompt + more > longest:
        raise RegardError(
            f"{name} has a context of {group_digits(longest)} tokens, but this request needs "
            f"{group_digits(1 + prompt + more)} (1 for the boundary, {group_digits(prompt)} of the prompt, "
            f"{pluralize(more, 'token')} to write): shorten the prompt or lower max_tokens."
        )
