"""The real command in a process of its own, forked from one that has imported PyTorch.

What came of it is one of three things: it answered (exit code 0), it refused in one sentence (exit code 2), or anything
else (a traceback, a signal, no end), which is a defect.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

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
FORK.set_forkserver_preload([*PRELOADED, "regard.exchange.formats", "regard.comparison.comparison", "pyarrow.parquet"])
SECONDS = 600.0  # after which a command has no end
MEMORY = 1 << 30  # bytes that a command may take beyond what the imports took
ONE_ASKS = threading.RLock()  # an exit code can be read once; whoever starts a process asks for those of the others


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
        setting = {"cwd": str(cwd or folder), "environment": {**os.environ, **(environment or {})}, "memory": memory}
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


class Started:
    """What `subprocess.Popen([sys.executable, "-m", MODULE, *WORDS], text=True)` gives, and seconds sooner."""

    def __init__(
        self, command: list[str], *, stdin: Any = None, stdout: Any = None, stderr: Any = None, env: Any = None,
        start_new_session: bool = False, text: bool = True,
    ) -> None:  # fmt: skip
        _, module, *words = command[command.index("-m") :]
        self._streams: list[IO[str] | None] = []
        theirs = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            reads = number == 0
            if wanted == subprocess.PIPE:
                pipe = FORK.Pipe(duplex=False)
                ours, other = pipe[::-1] if reads else pipe
                self._streams.append(os.fdopen(os.dup(ours.fileno()), "w" if reads else "r", encoding="utf-8"))
                ours.close()
            else:
                other = Connection(os.dup(number), readable=reads, writable=not reads)
                self._streams.append(None)
            theirs.append(other)
        self.stdin, self.stdout, self.stderr = self._streams
        setting = dict(os.environ if env is None else env), os.getcwd(), start_new_session
        self._process = FORK.Process(target=_run_module, args=(module, words, theirs, *setting))
        with ONE_ASKS:
            self._process.start()
        self.pid = self._process.pid
        for other in theirs:
            other.close()

    @property
    def returncode(self) -> int | None:
        with ONE_ASKS:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        wait([self._process.sentinel], timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        read: dict[str, str] = {}

        def read_all(name: str) -> None:
            read[name] = getattr(self, name).read()

        readers = [threading.Thread(target=read_all, args=(name,)) for name in ("stdout", "stderr")]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.wait()
        return read["stdout"], read["stderr"]

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            if stream is not None:
                stream.close()
        self.wait()


def _run_module(
    module: str, words: list[str], streams: list[Connection], environment: dict[str, str], cwd: str, session: bool
) -> None:
    gc.freeze()  # what was imported before the fork is no garbage
    if session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    open_streams()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def open_streams() -> None:
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )


def _run(
    words: list[str], streams: list[str], setting: dict[str, Any], before: Any, arguments: tuple[Any, ...]
) -> None:
    gc.freeze()
    os.setsid()  # so that it can be ended with the processes it starts
    for number, (path, flags) in enumerate(zip(streams, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT] * 2))):
        os.dup2(os.open(path, flags, 0o600), number)
    open_streams()
    os.chdir(setting["cwd"])
    os.environ.clear()  # which is of the first test that started a process
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
