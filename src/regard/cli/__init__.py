"""The command line: `regard VERB TARGET [--section.key value]`.

stdout is data, stderr is log; a user's mistake is one sentence and exit code 2. Each verb is a function in a module of
its group. Everything heavy is imported inside the verb that needs it, so that `regard --help` and `regard systems`
answer at once; this module imports nothing heavy, so that Ctrl-C is understood from the first moment.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn


def main(words: list[str] | None = None) -> None:
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # processes started from here import nothing from the working folder
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupted)
    for stream in (sys.stdout, sys.stderr):  # a pipe on Windows, or a bare locale, could not print "é"
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    from regard.report.screen import Screen

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: what would be said there is not missed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if stream.isatty() and not isinstance(stream, Screen):
            setattr(sys, name, Screen(stream))
    if _follows():
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends
    try:
        from regard.cli.commands import run

        run(sys.argv[1:] if words is None else words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        from regard.base.errors import Stopped
        from regard.cli.commands import sentence

        if isinstance(error, Stopped):
            sys.exit(130)
        _fail(sentence(error), 2)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Ctrl-C. An exception in the middle of an import can be lost in a callback or abort the process: leave at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"regard: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _follows() -> bool:
    """Did torchrun start this process beside another, which does the talking? What goes wrong it still says itself."""
    return os.environ.get("RANK", "0") not in ("", "0") and "WORLD_SIZE" in os.environ


def _fail(said: str, code: int) -> NoReturn:
    from regard.report.screen import harmless

    print(harmless(f"regard: {said}"), file=sys.__stderr__ if _follows() else sys.stderr)
    sys.exit(code)
