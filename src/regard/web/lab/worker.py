"""Model work for the page, in a process of its own: bounded, in time, and restarted if it dies.

    found = await worker.ask("sentence.trace", {"run": "lstm", "text": "the cat"}, seconds=30)

The page never waits behind a hundred requests: at most WAITING questions wait, and of those with the same `only`, such
as the letters of a text that is being typed, only the newest is answered. After `seconds`, a task is stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError

WAITING = 12  # questions, with the one that is being answered
START = 60.0  # seconds, in addition, in which a new process must be ready
MOST_ANSWER = 1 << 28  # bytes


class Busy(RegardError):
    """Too many requests at once."""


class Overtaken(RegardError):
    """A newer request of the same kind replaced this one."""


@dataclass(frozen=True)
class WorkerAnswer:
    kind: str  # json or binary
    content: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.content)


class LabWorker:
    def __init__(self, root: Path, threads: int | None = None):
        self.root = root
        self.threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self.waiting = 0
        self._newest: dict[str, int] = {}
        self._asked = 0
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, work: str, body: dict[str, Any], *, seconds: float = 60, only: str = "") -> WorkerAnswer:
        """The answer of WORK in `work_VIEW.py`; RegardError where it was refused, failed, or took too long."""
        if self.waiting >= WAITING:
            raise Busy("The lab is busy: wait a moment and try again.")
        self._asked += 1
        mine = self._asked
        if only:
            self._newest[only] = mine
        self.waiting += 1
        try:
            async with self._turn:
                if only and self._newest.get(only) != mine:
                    raise Overtaken("A newer request replaced this one.")
                return await self._answered(work, body, seconds)
        finally:
            self.waiting -= 1
            if only and self._newest.get(only) == mine:
                del self._newest[only]

    async def _answered(self, work: str, body: dict[str, Any], seconds: float) -> WorkerAnswer:
        fresh = self._process is None or self._process.returncode is not None
        try:
            async with asyncio.timeout(seconds + START * fresh):
                if fresh:
                    self._process = await self._start()
                assert self._process is not None
                assert self._process.stdin is not None
                assert self._process.stdout is not None
                self._process.stdin.write(json.dumps({"work": work, "body": body}).encode() + b"\n")
                await self._process.stdin.drain()
                head = json.loads(await self._process.stdout.readline())
                if head["bytes"] > MOST_ANSWER:
                    raise RegardError("The result is too large for the page: use a shorter text.")
                content = await self._process.stdout.readexactly(head["bytes"])
        except TimeoutError:
            await self.close()
            raise RegardError(
                f"This request took longer than {seconds:g} seconds and was stopped: try a shorter text."
            ) from None
        except (asyncio.IncompleteReadError, ValueError, OSError):
            await self.close()
            raise RegardError(
                "The process that runs the models ended, perhaps out of memory: try a smaller model."
            ) from None
        except BaseException:  # cancelled mid-response: the pipe is out of sync, so restart the process
            await self.close()
            raise
        if head["kind"] in ("refused", "failed"):
            raise RegardError(content.decode())
        return WorkerAnswer(head["kind"], content)

    async def _start(self) -> asyncio.subprocess.Process:
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing is imported from the current folder
            "-m",
            "regard.web.lab.worker_process",
            str(self.root),
            stdin=asyncio.subprocess.PIPE,  # closed when this process ends, however it does: then it ends too
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the lab, which then closes it
            env={**threads, **os.environ},
        )

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
