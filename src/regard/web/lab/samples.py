"""A run's samples, one each time its weights improved, kept in the lab's folder with their step.

While the lab is open it looks at the runs that train, whether or not a page is open.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool

from regard.base.errors import RegardError
from regard.base.writing import append_line
from regard.runs.store.facts import WEIGHTS, read_note
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.worker import WorkerAnswer

EVERY = 2.0  # seconds between two looks
MOST = 200  # samples of a run that are shown

Ask = Callable[..., Awaitable[WorkerAnswer]]


def _file(run: str) -> str:
    return f"{quote(run, safe='', errors='surrogateescape')[:200]}.jsonl"


class Samples:
    def __init__(self, folder: RunsFolder, ask: Ask):
        self.folder, self.ask = folder, ask
        self._tried: dict[str, Any] = {}  # run: the step at which a sample was asked for last
        self._asked: dict[str, asyncio.Task[bool]] = {}  # run: its sample that is being made

    def kept(self, name: str) -> list[dict[str, Any]]:
        """Oldest first; samples of an earlier run with the same name are left out."""
        made = self.folder.facts(self.folder.run(name)).get("created")
        found: dict[Any, dict[str, Any]] = {}
        for line in self.folder.read_own("samples", _file(name)).splitlines():
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("created") == made and isinstance(entry.get("step"), int):
                    found[entry.get("step")] = entry
        return sorted(found.values(), key=lambda entry: entry["step"])[-MOST:]

    def step_now(self, name: str) -> int | None:
        """The step of the weights that a sample would come from; 0 for a counted system; None: there are none yet."""
        file = self.folder.run(name) / WEIGHTS
        try:
            return int(read_note(file).get("step") or 0) if file.is_file() else None
        except (RegardError, ValueError, TypeError):
            return None

    async def renew(self, name: str) -> bool:
        """Generates a sample for the current weights unless one exists; returns whether one was generated. Concurrent
        callers share one task, which is not cancelled when a page closes."""
        if name not in self._asked:
            asked = self._asked[name] = asyncio.create_task(self._renew(name))
            asked.add_done_callback(lambda task: self._forget(name, task))
        return await asyncio.shield(self._asked[name])

    def _forget(self, name: str, task: asyncio.Task[bool]) -> None:
        del self._asked[name]
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits for it any more

    async def _renew(self, name: str) -> bool:
        step = await run_in_threadpool(self.step_now, name)
        kept = await run_in_threadpool(self.kept, name)
        if step is None or any(entry.get("step") == step for entry in kept) or self._tried.get(name) == step:
            return False
        self._tried[name] = step
        answer = (await self.ask("runs.sample", {"run": name}, seconds=60)).value
        created = self.folder.facts(self.folder.run(name)).get("created")
        entry = {"step": step, "created": created, **answer}
        file = self.folder.keep("samples") / _file(name)
        await run_in_threadpool(append_line, file, json.dumps(entry, ensure_ascii=False))
        return True

    def close(self) -> None:
        """Gives up what is being made."""
        for asked in self._asked.values():
            asked.cancel()

    async def watch(self) -> None:
        """Until it is cancelled: a sample of each training run whenever its weights got better."""
        while True:
            for run in await run_in_threadpool(self.folder.runs):
                if run["state"] == "running":
                    with suppress(RegardError):  # it is deleted, or fails: the page says so when it asks
                        await self.renew(run["name"])
            await asyncio.sleep(EVERY)
