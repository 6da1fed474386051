"""The real command in a process of its own, forked from one that has imported PyTorch.

What came of it is one of three things: it answered (exit code 0), it refused in one sentence (exit code 2), or anything
else (a traceback, a signal, no end), which is a defect.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

FORK = get_context("forkserver")
PRELOADED = [
    "torch",
    "numpy",
    "tokenizers",
    "safetensors.torch",
    "sacrebleu",
    "regard.cli.commands",
    "regard.runs.train",
]
FORK.set_forkserver_preload([*PRELOADED, "regard.exchange.formats", "regard.compare.comparison", "pyarrow.parquet"])
SECONDS = 120.0  # after which a command has no end
MEMORY = 1 << 30  # bytes that a command may take beyond what the imports took


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: it did not end
    out: str
    errors: str

    @property
    def said(self) -> str:
        """The last line of the log."""
        return (self.errors.strip().split("\n") or [""])[-1]

    @property
    def kind(self) -> str:
        if "Traceback" in self.errors:
            return "defect"
        if self.code == 0:
            return "answered"
        sentences = [line for line in self.errors.splitlines() if line.startswith("regard: ")]
        return "refused" if self.code == 2 and len(sentences) == 1 and self.said == sentences[0] else "defect"


def forked(
    *words: object,
    stdin: bytes = b"",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    before: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
    memory: int | None = MEMORY,
    seconds: float = SECONDS,
    kill_after: float | None = None,
) -> Outcome:
    """`regard WORDS`. `before`, a function of a module, is called with `arguments` in the new process, and may put
    faults in its way. `kill_after`: seconds until it is killed, if it has not ended by then."""
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        streams = [Path(folder) / name for name in ("in", "out", "errors")]
        streams[0].write_bytes(stdin)
        setting = {"cwd": str(cwd or folder), "environment": dict(environment or {}), "memory": memory}
        process = FORK.Process(
            target=_run, args=([str(word) for word in words], list(map(str, streams)), setting, before, arguments)
        )
        process.start()
        process.join(seconds if kill_after is None else kill_after)
        if process.is_alive():
            process.kill()
            with suppress(ProcessLookupError):  # it had not begun
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
            code = None
        else:
            code = process.exitcode
        out, errors = (
            path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in streams[1:]
        )
        return Outcome(code, out, errors)


def _run(
    words: list[str], streams: list[str], setting: dict[str, Any], before: Any, arguments: tuple[Any, ...]
) -> None:
    os.setsid()  # so that it can be ended with the processes it starts
    for number, (path, flags) in enumerate(zip(streams, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT] * 2))):
        os.dup2(os.open(path, flags, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    os.chdir(setting["cwd"])
    os.environ.update(setting["environment"])
    if setting["memory"] is not None and sys.platform == "linux":
        import resource

        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + setting["memory"],) * 2)
    import torch

    from regard.cli import main

    torch.set_num_threads(1)
    if before is not None:
        before(*arguments)
    main(words)
