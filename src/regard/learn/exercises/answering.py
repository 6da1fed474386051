"""The process in which an answer runs: it loads the file, and calls its function on the grader's request.

It decides nothing. The grader, in another process, sends arguments and judges the values and gradients that come back.
This process runs a user's code, so the grader accepts no verdict from it. If it times out or crashes, faulthandler
writes its current line to a file.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import Exercise, exercise_of
from regard.learn.exercises.wire import decoded, encoded, floats, read_bytes, write_message
from regard.systems.own.code import crash, run_code, trust_code


def load_function(path: Path, exercise: Exercise) -> Any:
    """The function of a file named by the user. Runs the file in this process."""
    function = getattr(run_code(trust_code(f"{path}:{exercise.function}")), exercise.function, None)
    if not callable(function):
        raise RegardError(
            f"{path} has no function {exercise.function}, which {exercise.name} requires: restore its first line, "
            f"or get a fresh copy of the file with `regard exercise {exercise.name} --out other.py`."
        )
    return function


class Asked:
    """A function among the arguments, or a state: it is in the grader, and calling it sends a request there."""

    def __init__(self, number: int, answering: Answering) -> None:
        self.number, self.answering = number, answering

    def __call__(self, *arguments: Any) -> Any:
        return self.answering.ask(self.number, arguments)


class Answering:
    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self.reads, self.writes = reads, writes
        self.leaves: list[
            list[Tensor]
        ] = []  # for each call with gradients: its arguments, and values received from the grader
        self.marks: list[
            list[tuple[list[Tensor], int]]
        ] = []  # for each call: its sent values, and the number of leaves before each
        self.with_gradients = False

    def say(self, *message: Any) -> None:
        write_message(self.writes, list(message), lambda value: getattr(value, "number", type(value).__name__))

    def hear(self) -> Any:
        """The grader's next message; None when it is done."""
        content = read_bytes(self.reads)
        return None if content is None else decoded(content, lambda number: Asked(number, self))

    def serve(self, function: Any) -> None:
        while message := self.hear():
            what, *rest = message
            try:
                reply = self.call(function, *rest) if what == "call" else ["pulled", self.pull(*rest)]
            except Exception as error:
                kinds = ("NotImplementedError", "RuntimeError", "Exception")
                kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in kinds)
                where = crash(error) or f"{type(error).__name__}: {error}"
                reply = ["crash", kind, str(error), where]
            self.say(*reply)

    def call(self, function: Any, arguments: tuple[Any, ...], with_gradients: bool) -> list[Any]:
        """The function's answer, and its arguments if it has changed them."""
        before = encoded(arguments, type)
        self.with_gradients = with_gradients
        if with_gradients:
            self.leaves.append([])
            self.marks.append([])
            self._told(arguments)
        with torch.set_grad_enabled(with_gradients):
            answer = function(*arguments)
        self._sent(answer)
        return ["answer", answer, arguments if encoded(arguments, type) != before else None]

    def ask(self, number: int, arguments: tuple[Any, ...]) -> Any:
        self._sent(arguments)
        self.say("ask", number, arguments)
        what, value = self.hear() or sys.exit()
        if what == "error":
            raise RuntimeError(value)
        self._told(value)
        return value

    def pull(self, call: int, mark: int, gradients: list[Tensor]) -> list[Tensor | None]:
        """The gradients of a sent value with respect to the leaves that came before it."""
        sent, before = self.marks[call][mark]
        reached = [(one, gradient) for one, gradient in zip(sent, gradients) if one.requires_grad]
        if not reached:
            return [None] * before
        outputs, given = zip(*reached)
        leaves = self.leaves[call][:before]
        return list(torch.autograd.grad(outputs, leaves, given, retain_graph=True, allow_unused=True))

    def _told(self, value: Any) -> None:
        if self.with_gradients:
            self.leaves[-1] += [leaf.requires_grad_() for leaf in floats(value)]

    def _sent(self, value: Any) -> None:
        if self.with_gradients:
            self.marks[-1].append((list(floats(value)), len(self.leaves[-1])))


def main(path: str, limit: str, faults: str) -> None:
    answering = Answering(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # the file's own output
    answering.say("ready")  # torch is loaded: the time limit starts
    with open(faults, "w", encoding="utf-8") as stream:
        faulthandler.enable(stream)
        faulthandler.dump_traceback_later(int(limit), exit=True, file=stream)
        try:
            function = load_function(Path(path), exercise_of(Path(path)))
        except RegardError as error:
            answering.say("refused", str(error))
            return
        answering.say("loaded")
        answering.serve(function)


if __name__ == "__main__":
    main(*sys.argv[1:])
