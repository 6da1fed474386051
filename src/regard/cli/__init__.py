"""The command line: `regard VERB TARGET [--section.key value]`.

stdout is data, stderr is log; a user's mistake is one sentence and exit code 2. Each verb is a function in a module of
its group. Everything heavy is imported inside the verb that needs it, so that `regard --help` and `regard systems`
answer at once.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NoReturn

from cyclopts import App, CycloptsError

from regard import __version__
from regard.cli.benching import bench
from regard.cli.catalogue import laws, systems
from regard.cli.claiming import claims
from regard.cli.comparing import compare, demo
from regard.cli.data import data_app
from regard.cli.evaluating import evaluate, score
from regard.cli.exchange import export_run, import_run
from regard.cli.inspecting import inspect
from regard.cli.training import resume, train
from regard.cli.writing import classify, generate, translate
from regard.errors import RegardError, Stopped

app = App(
    name="regard",
    help="Every sequence model from the n-gram to GPT: train it on your own text, compare it, see inside it, ship it.",
    version=__version__,
)
for verb in (
    systems, data_app, demo, train, resume, compare, laws, claims, evaluate, score, translate, classify, generate,
    inspect, bench,
):  # fmt: skip
    app.command(verb)
app.command(export_run, name="export")
app.command(import_run, name="import")


def main(words: list[str] | None = None) -> None:
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # processes started from here import nothing from the working folder
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
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (RegardError, CycloptsError) as error:
        _fail(" ".join(str(error).split()), 2)
    except Stopped:
        sys.exit(130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _fail(_sentence(error), 2)


def _follows() -> bool:
    """Did torchrun start this process beside another, which does the talking? What goes wrong it still says itself."""
    return os.environ.get("RANK", "0") not in ("", "0") and "WORLD_SIZE" in os.environ


def _sentence(error: Exception) -> str:
    """What went wrong outside Regard, in one sentence; what went wrong inside it is raised again."""
    from regard.systems.code import crash

    if line := crash(error):  # in the user's own layer, whose author wants the line and not our stack
        return f"your own code crashed: {line}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror or error}."
    if isinstance(error, OverflowError) or "Overflow when unpacking long" in str(error):
        return "A number here is too large: give a smaller one."
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return "A name here holds a NUL character, and so names no file: write it without."
    if isinstance(error, UnicodeEncodeError):
        return "A name or text here is not valid Unicode; rename the file or convert the text."
    if isinstance(error, MemoryError) or re.search("out of memory|can't allocate|allocate memory", str(error)):
        return "There is not enough memory for this: make the model, the window or training.batch_tokens smaller."
    raise error


def _fail(sentence: str, code: int) -> NoReturn:
    from regard.report.screen import harmless

    print(harmless(f"regard: {sentence}"), file=sys.__stderr__ if _follows() else sys.stderr)
    sys.exit(code)
