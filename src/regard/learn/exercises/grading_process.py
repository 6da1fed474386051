"""Grades a user's file, which runs in a separate process (`answering.py`).

The verdict is made here, where no line of the file runs, from the values and gradients that its function returns for
random arguments. So a file cannot forge it by writing to a descriptor, ending its process or patching modules: only
right values are right. Whether the function changes its arguments is reported by the answer's process and trusted. The
origin of right values is not checked, and the file runs with its user's rights: this is not a sandbox.
"""

from __future__ import annotations

import ast
import inspect
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import Exercise, exercise_of
from regard.learn.exercises.library_calls import library_call

if TYPE_CHECKING:
    from regard.learn.exercises.grading import Grade, Grader

LIMIT = 20  # time limit in seconds for answers that take less than one
GRACE = 5  # extra seconds, in which the process itself reports its last line


class AnswerEnded(BaseException):
    """The process ended, or sent an invalid message. Not an Exception: no step of the grading may catch it."""


def grade_file(path: Path, seed: int, limit: int = LIMIT) -> dict[str, Any]:
    """{"exercise", "right", "sentence", "inputs", "laws", "seed"} of a file, which runs in a separate process."""
    exercise = exercise_of(path)
    result: dict[str, Any] = {"right": False, "sentence": library_call(path, exercise), "inputs": 0, "laws": []}
    if not result["sentence"]:
        answer = AnswerProcess(path, limit)
        try:
            result = asdict(_graded(answer, exercise, seed))
        except AnswerEnded:
            result["sentence"] = answer.unfinished()
        finally:
            answer.close()
    return {"exercise": exercise.name, **result, "seed": seed}


def _graded(answer: AnswerProcess, exercise: Exercise, seed: int) -> Grade:
    grader = grader_of(exercise)  # loads torch, while the process does
    from regard.learn.exercises.grading import grade
    from regard.learn.exercises.remote_function import RemoteFunction

    answer.wait_until_loaded()
    return grade(RemoteFunction(answer, signature_of(exercise)), grader, seed)


def grader_of(exercise: Exercise) -> Grader:
    return import_module(f"regard.learn.exercises.{exercise.topic}_exercises").GRADERS[exercise.name]


def signature_of(exercise: Exercise) -> inspect.Signature:
    """The parameters of the sheet's function."""
    functions = [node for node in ast.parse(exercise.sheet).body if isinstance(node, ast.FunctionDef)]
    (names,) = ([each.arg for each in node.args.args] for node in functions if node.name == exercise.function)
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])


class AnswerProcess:
    """The process of `answering.py`, and the messages to and from it; none of them is trusted."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit, self.deadline = path, limit, float("inf")
        with tempfile.NamedTemporaryFile("w", prefix="regard-", suffix=".txt", delete=False) as faults:
            self.faults = Path(faults.name)
        module = "regard.learn.exercises.answering"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(path), str(limit), str(self.faults)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that its child processes end with it
        )
        self.heard: queue.Queue[bytes | None] = queue.Queue(maxsize=100)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        from regard.learn.exercises.wire import read_bytes

        assert self.process.stdout is not None
        content: bytes | None = b""
        while content is not None:
            content = read_bytes(self.process.stdout)
            self.heard.put(content)

    def wait_until_loaded(self) -> None:
        self.hear(str)
        self.deadline = time.monotonic() + self.limit + GRACE
        what, *rest = self.hear(str)
        if what == "refused" and rest:
            raise RegardError(str(rest[0]))

    def hear(self, other: Any) -> list[Any]:
        """The next message, a list that begins with a word."""
        from regard.learn.exercises.wire import decoded

        try:
            left = self.deadline - time.monotonic()
            content = self.heard.get(timeout=max(0.0, left) if left < float("inf") else None)
        except queue.Empty:
            raise AnswerEnded from None
        if content is None:
            raise AnswerEnded
        try:
            message = decoded(content, other)
        except Exception:  # malformed in one way or another
            raise AnswerEnded from None
        if not isinstance(message, list) or not message or not isinstance(message[0], str):
            raise AnswerEnded
        return message

    def say(self, message: list[Any], other: Any) -> None:
        from regard.learn.exercises.wire import write_message

        assert self.process.stdin is not None
        try:
            write_message(self.process.stdin, message, other)
        except OSError:
            raise AnswerEnded from None

    def unfinished(self) -> str:
        """Why a process gave no answer; faulthandler names the line that ran last, innermost first."""
        late = time.monotonic() >= self.deadline
        self._kill()
        said = self.faults.read_text(encoding="utf-8", errors="replace")
        line = re.search(rf'File "{re.escape(str(self.path.resolve()))}", line (\d+)', said)
        where = f" on line {line[1]} of {self.path.name}" if line else ""
        if late or said.startswith("Timeout"):
            return f"it did not finish within {self.limit} seconds{where}: is there an infinite loop?"
        return f"it ended the process{where}: return an answer instead"

    def _kill(self) -> None:
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self._kill()
        self.faults.unlink(missing_ok=True)
