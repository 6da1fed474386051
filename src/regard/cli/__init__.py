"""The command line: `regard VERB TARGET [--section.key value]`.

stdout is data, stderr is log. Exit codes: 2 for a user's mistake, with one sentence; 130 after Ctrl-C; 143 after
SIGTERM; 141 if the reader of the output has left. Each verb is a module of its name. Everything heavy is
imported inside the verb that needs it, so that `regard --help` and `regard systems` answer at once; this module imports
nothing heavy, so that Ctrl-C is understood from the first moment.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

MEMORY = "Out of memory: use a smaller model, a smaller window or a smaller training.batch_tokens."
NEEDED = {"numpy": 100 << 20, "torch": 500 << 20}  # bytes of address space
CLOSED = "The output is closed, so the result would be lost: redirect it to a file or to /dev/null."


def main(words: list[str] | None = None) -> None:
    """`regard WORDS`, by default those of the command line."""
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, _interrupted)
        if words is None and os.environ.get("REGARD_RESIDENT"):
            from regard.cli.resident import answered_there

            answered_there(sys.argv[1:])
        _run(sys.argv[1:] if words is None else words)
    except KeyboardInterrupt as error:
        from regard.base.errors import Terminated

        _fail("interrupted", 143 if isinstance(error, Terminated) else 130)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        _discard_output()
        sys.exit(141)
    except MemoryError:
        _fail_without_memory(words)
    except Exception as error:
        try:
            from regard.base.errors import Stopped
            from regard.cli.commands import sentence

            said, code = ("", 128 + error.signal) if isinstance(error, Stopped) else (sentence(error), 2)
        except MemoryError:
            _fail_without_memory(words)
        if isinstance(error, OSError):
            _discard_output()
        _fail(said, code)


def _run(words: list[str]) -> None:
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # processes started from here import nothing from the working folder
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # closed: else the next file would get its number
        pass
    os.close(descriptor)
    if sys.stderr is None:  # what would be said there is not missed
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        _fail(CLOSED, 2)
    for stream in (sys.stdout, sys.stderr):  # a pipe on Windows, or a bare locale, could not print "é"
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    from regard.base import arguments
    from regard.report.screen import Screen

    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream.isatty() and not isinstance(stream, Screen):
            setattr(sys, name, Screen(stream))
    if _follows():
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends
    from regard.cli.commands import run

    if _ROOM not in sys.meta_path:
        sys.meta_path.insert(0, _ROOM)
    arguments.on_command_line = True
    try:
        run(words)
        sys.stdout.flush()
    finally:
        arguments.on_command_line = False


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Ctrl-C. An exception in the middle of an import can be lost in a callback or abort the process: leave at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"regard: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _follows() -> bool:
    """True if torchrun started this process and another one prints. What goes wrong it still says itself."""
    return os.environ.get("RANK", "0") not in ("", "0") and "WORLD_SIZE" in os.environ


class _Room:
    """Before NumPy and PyTorch are loaded: with too little address space (`ulimit -v`) they abort the process."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in NEEDED and sys.platform == "linux":
            import resource

            limit, _ = resource.getrlimit(resource.RLIMIT_AS)
            with open("/proc/self/statm", encoding="ascii") as stream:
                used = int(stream.read().split()[0]) * resource.getpagesize()
            if limit != resource.RLIM_INFINITY and limit - used < NEEDED[name]:
                from regard.base.errors import RegardError

                raise RegardError(
                    f"This process may use only {limit >> 20} MiB of memory (ulimit -v), too little to load {name}: "
                    "raise the limit."
                )


_ROOM = _Room()


def _discard_output() -> None:
    """What is left in the buffer would fail again when the process ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail_without_memory(words: list[str] | None) -> NoReturn:
    """Ends the process at once, unless a program called `main`: what libraries do at its end would fail as well."""
    if words is not None:
        _fail(MEMORY, 2)
    with suppress(OSError, MemoryError):
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, f"regard: {MEMORY}\n".encode())
    os._exit(2)


def _fail(said: str, code: int) -> NoReturn:
    from regard.report.screen import harmless

    if said:
        with suppress(OSError):  # the log is full, too
            print(harmless(f"regard: {said}"), file=sys.__stderr__ if _follows() else sys.stderr)
    sys.exit(code)
