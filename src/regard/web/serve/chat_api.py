"""OpenAI's chat API: /v1/chat/completions. The run's chat template writes the messages as text, and the model
continues it up to where the template ends an answer. Everything else is a completion (`completions_api.py`)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from regard.base.errors import RegardError
from regard.base.fields import as_tuple
from regard.text.dialogue_tokens import prompt_tokens
from regard.web.serve.completions_api import CompletionAnswer, CompletionChoice, Completions, as_event
from regard.web.serve.requests import BadRequest, ChatRequest, CompletionRequest, WritingRequest
from regard.web.serve.served_models import longest_of


class Chats:
    """The endpoint, without HTTP."""

    def __init__(self, completions: Completions) -> None:
        self.completions = completions

    async def begin(self, asked: ChatRequest) -> ChatAnswer:
        served, worker = self.completions.find(asked.model)

        def encode() -> tuple[list[int], frozenset[int], tuple[str, ...]]:
            read = prompt_tokens(asked.messages, worker.run.template, worker.run.tokenizer, served.lock)
            with served.lock:
                return read, *worker.run.reply_ends()

        try:
            async with served.templating:
                tokens, ends, closing = await asyncio.to_thread(encode)
        except RegardError as error:
            raise BadRequest(str(error), "messages") from None
        room = max(longest_of(worker.run) - len(tokens), 1)
        shared = {one.name: getattr(asked, one.name) for one in dataclasses.fields(WritingRequest)}
        question = CompletionRequest(
            **shared | {"stop": (*closing, *as_tuple(asked.stop))},
            prompt=(tokens,),
            max_tokens=asked.max_completion_tokens or asked.max_tokens or room,
        )
        made = await self.completions.begin(question, ends)
        return ChatAnswer(made.models, made.served, made.worker, made.question, made.choices)


class ChatAnswer(CompletionAnswer):
    """An answer while it is written. The space that a template leaves before an answer is not part of it."""

    prefix, kind = "chatcmpl", "chat.completion"

    async def whole(self) -> dict[str, Any]:
        async with aclosing(self._pieces()) as pieces:
            async for _ in pieces:
                pass
        said = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text.strip(), "refusal": None},
                "logprobs": None,
                "finish_reason": choice.finish,
            }
            for choice in self.choices
        ]
        return {**self._frame(said), "usage": self.usage()}

    async def stream(self) -> AsyncGenerator[str, None]:
        """Server-sent events; the last one is [DONE]."""
        self.kind = "chat.completion.chunk"
        asked = self.question.stream_options.include_usage
        more = {"usage": None} if asked else {}
        for choice in self.choices:
            yield as_event({**self._frame([_delta(choice, {"role": "assistant", "content": ""}, None)]), **more})
        blank = {choice.index for choice in self.choices}  # nothing but space was written yet
        async with aclosing(self._pieces()) as pieces:
            async for found in pieces:
                for choice, piece in found:
                    if choice.index in blank:
                        piece = piece.lstrip()
                    if piece:
                        blank.discard(choice.index)
                        yield as_event({**self._frame([_delta(choice, {"content": piece}, None)]), **more})
                    if choice.finish:
                        yield as_event({**self._frame([_delta(choice, {}, choice.finish)]), **more})
        if asked:
            yield as_event({**self._frame([]), "usage": self.usage()})
        yield "data: [DONE]\n\n"


def _delta(choice: CompletionChoice, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": choice.index, "delta": said, "logprobs": None, "finish_reason": finish}
