"""`chat` with a model that has a chat template: each line is a message, and the model answers."""

from __future__ import annotations

from typing import Any

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.conversation import Command, Drawing, number_in, save, say, show


class Conversation(Drawing):
    """A dialogue in turns; the whole of it is the prompt of each answer."""

    def __init__(self, run: Any, sampling: Any, max_tokens: int, seed: int) -> None:
        self.run, self.sampling, self.max_tokens, self.seed = run, sampling, max_tokens, seed
        self.messages: list[dict[str, str]] = []
        self.drawn = 0  # answers so far: each draws its own numbers
        super().__init__()
        self.greeting = f"{run.recipe.system}, {run.folder}: type a message."

    def own_commands(self) -> dict[str, Command]:
        def tokens(rest: str) -> None:
            check_range("/tokens", count := number_in(rest, "tokens", int), 1)
            self.max_tokens = count

        return {
            **self.drawing_commands(),
            "tokens": Command(tokens, "write at most N tokens per answer", "N", lambda: self.max_tokens),
            "system": Command(self.system, "start again with this instruction", "TEXT"),
            "undo": Command(lambda _: self.undo(), "remove your last message and its answer"),
            "retry": Command(lambda _: self.retry(), "write another answer to your last message"),
            "text": Command(lambda _: show(self.text, end=""), "print the dialogue"),
            "new": Command(lambda _: self.messages.clear(), "start a new dialogue"),
            "save": Command(lambda rest: save(rest, self.text), "save the dialogue to a new file", "FILE"),
        }

    @property
    def text(self) -> str:
        return "".join(f"{one['role']}: {one['content']}\n" for one in self.messages)

    def line(self, words: str) -> None:
        if not words.strip():
            return
        before = len(self.messages)
        self.messages.append({"role": "user", "content": words})
        try:
            self.write()
        except RegardError:  # such as a dialogue that the template refuses
            del self.messages[before:]
            raise

    def write(self) -> None:
        """The model answers; an answer that was interrupted is kept as far as it is written."""
        self.writing, self.stopped, answer = True, False, ""
        how = {"max_tokens": self.max_tokens, "sampling": self.sampling, "seed": self.seed + self.drawn}
        pieces = self.run.reply(self.messages, **how)
        self.drawn += 1
        try:
            for piece in pieces:
                answer += piece
                show(piece, end="")
                if self.stopped:
                    break
        finally:
            self.writing = False
            pieces.close()
        print(flush=True)
        if self.stopped:
            say("stopped")
        self.messages.append({"role": "assistant", "content": answer.strip()})

    def system(self, rest: str) -> None:
        self.messages = [{"role": "system", "content": rest}] if rest else []

    def undo(self) -> None:
        self._without_last_answer("undo")
        self.messages.pop()

    def retry(self) -> None:
        self._without_last_answer("retry")
        self.write()

    def _without_last_answer(self, name: str) -> None:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            raise RegardError(f"There is nothing to {name}.")
        self.messages.pop()
