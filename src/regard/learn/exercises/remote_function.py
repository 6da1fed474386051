"""An answer's function, called from the grader's process as if it were here, gradients included.

With gradients, a call is split where the function calls one of its arguments (a sublayer, a model's step): each piece
is a node of the autograd graph here, whose backward calls the answer's process; the arguments are computed here.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from regard.learn.exercises.grading_process import AnswerEnded, AnswerProcess
from regard.learn.exercises.wire import floats, refilled
from regard.systems.own.code import Crashed


class CrashedRuntime(Crashed, RuntimeError):
    pass


class CrashedBlank(Crashed, NotImplementedError):
    pass


CRASHES = {"RuntimeError": CrashedRuntime, "NotImplementedError": CrashedBlank}


class RemoteFunction:
    def __init__(self, process: AnswerProcess, signature: inspect.Signature) -> None:
        self.process, self.__signature__ = process, signature
        self.objects: list[Any] = []  # functions and states among the arguments; the process knows their numbers
        self.calls = 0  # with gradients

    def __call__(self, *arguments: Any) -> Any:
        leaves = list(floats(arguments))
        with_gradients = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves)
        call, marks = self.calls, 0
        self.calls += with_gradients
        self._say("call", arguments, with_gradients)
        while True:
            what, *rest = self._hear()
            sent = rest[1] if what == "ask" else rest[0]
            if with_gradients:
                parts = Piece.apply(self, call, marks, list(floats(sent)), *leaves)
                sent, marks = refilled(sent, iter(parts or ())), marks + 1
            if what == "answer":
                _write_back(arguments, rest[1])
                return sent
            try:
                value = self._object(rest[0])(*sent)
            except Exception as error:  # the process asked with wrong arguments
                self._say("error", str(error))
            else:
                leaves += floats(value)
                self._say("value", value)

    def pull(self, call: int, mark: int, gradients: tuple[Tensor, ...], leaves: int) -> list[Any]:
        self._say("pull", call, mark, list(gradients))
        answer = self._hear()[1]
        if not isinstance(answer, list) or len(answer) != leaves:
            raise AnswerEnded
        return answer

    def _say(self, *message: Any) -> None:
        def number(value: Any) -> int:
            self.objects.append(value)
            return len(self.objects) - 1

        self.process.say(list(message), number)

    def _hear(self) -> list[Any]:
        """A message of the right form, or the exception that the function raised."""
        message = self.process.hear(self._object)
        match message:
            case ["crash", str(kind), str(said), str(where)]:
                raise CRASHES.get(kind, Crashed)(said, where)
            case ["answer", _, _] | ["ask", int(), tuple()] | ["pulled", list()]:
                return message
        raise AnswerEnded

    def _object(self, number: Any) -> Any:
        """One of the grader's objects by its number, or an object of a kind that the process names."""
        if isinstance(number, int):
            return self.objects[number]
        return type(str(number), (), {})()


def _write_back(arguments: Any, changed: Any) -> None:
    """The function has changed its arguments: change the grader's copies as well."""
    if isinstance(changed, Tensor) and isinstance(arguments, Tensor):
        with torch.no_grad():
            arguments.resize_(changed.shape).copy_(changed)
    elif isinstance(changed, (tuple, list)):
        if isinstance(arguments, list):
            arguments[:] = changed
        else:
            for one, other in zip(arguments, changed):
                _write_back(one, other)


class Piece(torch.autograd.Function):
    """A value that the function sent, computed from its arguments until then."""

    @staticmethod
    def forward(ctx: Any, function: RemoteFunction, call: int, mark: int, sent: list[Tensor], *leaves: Tensor) -> Any:
        ctx.asks = function, call, mark, len(leaves)
        return tuple(sent)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        function, call, mark, leaves = ctx.asks
        return None, None, None, None, *function.pull(call, mark, gradients, leaves)
