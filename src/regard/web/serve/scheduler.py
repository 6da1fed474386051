"""One thread owns all models and steps them in turn; new requests join the next step.

    submit    a job for a worker, from the event loop            step      of every worker that has something to do
    cancel    a job whose client has left                        deliver   what the jobs got, to the event loop, at once

The event loop never waits for a model, and a model never waits for a client. When the loop is behind, it gets what
several steps have found at once, and writes it at once.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from regard.base.errors import RegardError
from regard.decoding.constraints import Unwritable

log = logging.getLogger(__name__)


class Job:
    """Something that a model is asked for; its client awaits what it gets with `next`, or with `all` what has come so
    far. Jobs may share one queue."""

    def __init__(self, events: asyncio.Queue[Any] | None = None) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue() if events is None else events
        self.left = False  # its client is gone
        self.over = False  # the worker has posted the last of it

    async def next(self) -> Any:
        return _unless_failed(await self.events.get())

    async def all(self) -> list[Any]:
        found = [_unless_failed(await self.events.get())]
        while not self.events.empty():
            found.append(_unless_failed(self.events.get_nowait()))
        return found


def _unless_failed(found: Any) -> Any:
    if isinstance(found, Exception):
        raise found
    return found


Post = Callable[[Job, Any], None]


class Failed(Exception):
    """The model failed; the sentence gives the reason. `status` is 400 if the request is at fault."""

    def __init__(self, sentence: str, status: int = 500) -> None:
        super().__init__(sentence)
        self.status = status


class ModelWorker(Protocol):
    """A model and its jobs; everything happens in the scheduler's thread."""

    @property
    def busy(self) -> bool: ...

    def warm_up(self) -> None:
        """The work that keeps the first jobs waiting."""

    def submit(self, job: Any) -> None: ...

    def cancel(self, job: Any) -> None: ...

    def step(self, post: Post) -> None:
        """Does some of the work, and posts what the jobs got; before the last of a job, it is `over`."""

    def give_up(self, error: Exception, post: Post) -> None:
        """Posts this to all jobs: a step has failed."""


class Scheduler:
    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.workers: list[ModelWorker] = []
        self.outbox: deque[tuple[Job, Any]] = deque()
        self.calling = False  # the event loop was told that there is something in the outbox
        self.stopping = False
        self.thread = threading.Thread(target=self._run, name="regard-models", daemon=True)

    # -- from the event loop -----------------------------------------------------------------------------------------

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.inbox.put(self._warm_up)
        self.thread.start()

    async def stop(self) -> None:
        """Stops the thread after the current step."""
        self.inbox.put(self._stop)
        await asyncio.to_thread(self.thread.join)

    def submit(self, worker: ModelWorker, job: Job) -> None:
        def take() -> None:
            if worker not in self.workers:  # its run was replaced since the job was prepared
                self.workers.append(worker)
            worker.submit(job)

        self.inbox.put(take)

    def cancel(self, worker: ModelWorker, job: Job) -> None:
        job.left = True
        if not job.over:
            self.inbox.put(lambda: worker.cancel(job))

    async def call(self, function: Callable[[], Any]) -> Any:
        """Runs this in the thread, between two steps."""
        job = Job()

        def run() -> None:
            try:
                self.outbox.append((job, function()))
            except Exception as error:
                self.outbox.append((job, error))

        self.inbox.put(run)
        return await job.next()

    def _deliver(self) -> None:
        self.calling = False  # first: what comes from now on may be missed below
        while self.outbox:
            job, found = self.outbox.popleft()
            if not job.left:
                job.events.put_nowait(found)

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self.stopping = True

    def _warm_up(self) -> None:
        for worker in self.workers:
            try:
                worker.warm_up()
            except Exception as error:  # those who ask will be told
                worker.give_up(failure(error), self._post)

    def _post(self, job: Job, found: Any) -> None:
        self.outbox.append((job, found))

    def _run(self) -> None:
        while not self.stopping:
            busy = [worker for worker in self.workers if worker.busy]
            self._take_in(wait=not busy)
            for worker in busy:
                try:
                    worker.step(self._post)
                except Exception as error:
                    worker.give_up(failure(error), self._post)
            if self.outbox and not self.calling:
                self.calling = True
                self.loop.call_soon_threadsafe(self._deliver)

    def _take_in(self, wait: bool) -> None:
        while True:
            try:
                self.inbox.get(block=wait)()
            except queue.Empty:
                return
            wait = False


def failure(error: Exception) -> Exception:
    """Client-facing error for a failed step; unexpected exceptions are logged, not shown."""
    if isinstance(error, RegardError):
        return Failed(str(error), 400 if isinstance(error, Unwritable) else 500)
    log.error("a model's step failed", exc_info=error)
    return Failed("The model failed on this request; see the server's log.")
