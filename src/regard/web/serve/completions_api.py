"""OpenAI's completions API over the language models served: /v1/models and /v1/completions.

A choice depends on its prompt, its settings, the seed and its number among the n choices, and on no other request. Its
text is what `regard generate` writes with that seed; log-probabilities are those of `regard score`: of the model
itself, before temperature, top_k and top_p.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from regard.base.errors import RegardError
from regard.base.fields import as_tuple, shown
from regard.decoding.engine import Prompt
from regard.decoding.growing_text import GrowingText, Until
from regard.runs.tasks.task import task_of
from regard.web.serve.requests import BadRequest, CompletionRequest
from regard.web.serve.served_models import Served, ServedModels, longest_of, refuse_length
from regard.web.serve.workers import LanguageWorker, ScoreJob, TextJob

_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass
class CompletionChoice:
    """One text of the answer, as far as it is written."""

    index: int
    job: TextJob
    prompt: str
    read: list[int]  # tokens of the prompt
    bounded: bool  # the first of them is the boundary, which adds no text
    grown: GrowingText
    until: Until
    ends: frozenset[int] = frozenset()  # tokens that end the text and are not part of it
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    logprobs: dict[str, Any] | None = None
    score: float = 0.0  # mean log-probability of its tokens

    def add(self, tokens: Sequence[int], ended: bool) -> str:
        """The next piece of its text; tokens after a stop sequence are not part of it, however many come at once."""
        if self.until.stops or self.ends:
            piece = ""
            for place, token in enumerate(tokens, 1):
                piece += self._add([token], ended and place == len(tokens))
                if self.until.met:
                    break
        else:
            piece = self._add(tokens, ended)
        self.text += piece
        if self.until.met:
            self.finish = "stop"
        elif ended:
            self.finish = "length"
        return piece

    def _add(self, tokens: Sequence[int], ended: bool) -> str:
        self.tokens += tokens
        if self.ends.isdisjoint(tokens):
            return self.until.add(self.grown.add(tokens), ended)
        piece, self.until.met = self.until.add("", True), True  # what was held back
        return piece

    def as_json(self, text: str, logprobs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {"index": self.index, "text": text, "logprobs": logprobs, "finish_reason": self.finish}


class Completions:
    """The endpoints, without HTTP: requests and responses are dictionaries."""

    def __init__(self, models: ServedModels) -> None:
        self.models = models

    def list_models(self) -> dict[str, Any]:
        return {"object": "list", "data": [self.model(name) for name in self.models.language_models]}

    def model(self, name: str) -> dict[str, Any]:
        served, worker = self.find(name)
        return {
            "id": served.name,
            "object": "model",
            "created": served.created,
            "owned_by": "regard",
            "max_model_len": longest_of(worker.run),
            "task": task_of(worker.run).name,
            "chat_template": "own" if worker.run.chat_template else "plain",
        }

    def find(self, name: str) -> tuple[Served, LanguageWorker]:
        if name in self.models.languages:
            raise BadRequest(f"{name} is a translator: use /translate.", "model", 404, "model_not_found")
        if name not in self.models.language_models:
            known = ", ".join(self.models.language_models) or "none"
            said = f"There is no language model {shown(name)} here; available: {known}."
            raise BadRequest(said, "model", 404, "model_not_found")
        served = self.models.by_name[name]
        assert isinstance(served.worker, LanguageWorker)
        return served, served.worker

    async def begin(self, question: CompletionRequest, ends: Collection[int] = ()) -> CompletionAnswer:
        """The response to a request, before any text is generated; `ends`: tokens that end it."""
        served, worker = self.find(question.model)
        question.check_tokens(worker.run.tokenizer.vocabulary)
        sampling, tokenizer = question.sampling, worker.run.tokenizer
        if sampling.constrained:
            try:
                await asyncio.to_thread(worker.run.constraints.begin, sampling)  # compiled once, beside the event loop
            except RegardError as error:
                raise BadRequest(str(error), "response_format") from None
        if sampling.constrained or tokenizer.begin != tokenizer.eos:
            ends = {*ends, tokenizer.eos}
        choices: list[CompletionChoice] = []
        events: asyncio.Queue[Any] = asyncio.Queue()
        for prompt in question.prompts:
            opening, text, read, bounded = await self._opening(served, worker, prompt, exact=sampling.constrained)
            if question.max_tokens and not bounded:  # else the prompt is only scored
                read = list(opening.tokens[1:])  # without a last space, which the next token brings
            try:
                refuse_length(served.name, longest_of(worker.run), len(read) - bounded, question.max_tokens)
            except RegardError as error:
                raise BadRequest(str(error), "prompt", code="context_length_exceeded") from None
            for drawn in range(question.best_of):
                job = TextJob(
                    opening,
                    sampling,
                    max_tokens=question.max_tokens,
                    lines=int(tokenizer.begin != tokenizer.eos),
                    seed=question.seed,
                    number=drawn,
                    live=question.stream or bool(question.stop) or bool({*ends} - {tokenizer.eos}),
                    events=events,
                )
                grown = GrowingText(worker.run.tokenizer, opening.tokens[1:], without_space=bool(opening.unfit))
                until = Until(as_tuple(question.stop))
                choices.append(CompletionChoice(len(choices), job, text, read, bounded, grown, until, frozenset(ends)))
        return CompletionAnswer(self.models, served, worker, question, choices)

    async def _opening(
        self, served: Served, worker: LanguageWorker, prompt: Any, *, exact: bool
    ) -> tuple[Prompt, str, list[int], bool]:
        """The model's first input, the prompt as text, its tokens, and whether the boundary is one of them."""
        if isinstance(prompt, str):
            try:
                opening, read = await served.opening(worker, prompt, exact)
                return opening, prompt, read, False
            except RegardError as error:
                raise BadRequest(str(error), "prompt") from None
        begin = worker.run.tokenizer.begin
        bounded = prompt[:1] == [begin]  # the boundary before the text, not an empty line
        text = prompt[1:] if bounded else prompt
        return Prompt([begin, *text]), worker.run.tokenizer.decode(text), prompt, bounded


class CompletionAnswer:
    """A completion while it is made: whole, or as the pieces of a stream."""

    prefix, kind = "cmpl", "text_completion"

    def __init__(
        self,
        models: ServedModels,
        served: Served,
        worker: LanguageWorker,
        question: CompletionRequest,
        choices: list[CompletionChoice],
    ) -> None:
        self.models, self.served, self.worker, self.question, self.choices = models, served, worker, question, choices
        self.id, self.created = f"{self.prefix}-{secrets.token_hex(12)}", int(time.time())
        self.first_token: float | None = None  # when the first one came
        self.ended: Callable[[], None] = lambda: None  # called when all is written

    async def whole(self) -> dict[str, Any]:
        async with aclosing(self._pieces()) as pieces:
            async for _ in pieces:
                pass
        shown = self.choices
        if self.question.best_of > self.question.n:
            shown = [choice for group in self._groups() for choice in group]
        said = [choice.as_json((choice.prompt if self.question.echo else "") + choice.text, choice.logprobs)
                for choice in shown]  # fmt: skip
        return {**self._frame(said), "usage": self.usage()}

    async def stream(self) -> AsyncGenerator[str, None]:
        """Server-sent events; the last one is [DONE]."""
        more = {"usage": None} if self.question.stream_options.include_usage else {}
        if self.question.echo and self.question.logprobs is None:
            for choice in self.choices:
                yield as_event({**self._frame([choice.as_json(choice.prompt)]), **more})
        async with aclosing(self._pieces()) as pieces:
            async for found in pieces:
                if self.question.logprobs is None:
                    yield "".join(self._piece_event(choice, piece) for choice, piece in found)
        if self.question.logprobs is not None:  # they are read from the whole text
            for choice in self.choices:
                text = (choice.prompt if self.question.echo else "") + choice.text
                yield as_event({**self._frame([choice.as_json(text, choice.logprobs)]), **more})
        if self.question.stream_options.include_usage:
            yield as_event({**self._frame([]), "usage": self.usage()})
        yield "data: [DONE]\n\n"

    async def _pieces(self) -> AsyncGenerator[list[tuple[CompletionChoice, str]], None]:
        """The next pieces of each choice, then its log-probabilities. A slow client gets several tokens per event."""
        going = {choice.job: choice for choice in self.choices}
        with self.served.submitted(self.models.scheduler, self.worker, list(going)) as leave:
            while going:
                came: dict[TextJob, tuple[list[int], bool]] = {}
                for job, tokens, ended in await self.choices[0].job.all():
                    came[job] = (came[job][0] + tokens if job in came else tokens, ended)
                self.first_token = self.first_token or time.perf_counter()
                pieces = []
                for job, (tokens, ended) in came.items():
                    choice = going[job]
                    piece = choice.add(tokens, ended)
                    if choice.finish is not None:
                        del going[job]
                        leave(job)
                    if piece or choice.finish is not None:
                        pieces.append((choice, piece))
                if pieces:
                    yield pieces
        if self.question.logprobs is not None or self.question.best_of > self.question.n:
            await self._score()
        self.ended()

    async def _score(self) -> None:
        """Scores each finished text with one extra forward pass."""
        begin = self.worker.run.tokenizer.begin
        jobs = {}
        for choice in self.choices:
            boundary = [] if choice.bounded else [begin]
            jobs[choice.index] = ScoreJob([*boundary, *choice.read, *choice.tokens], self.question.logprobs or 0)
        with self.served.submitted(self.models.scheduler, self.worker, list(jobs.values())):
            for choice in self.choices:
                found, alternatives = await jobs[choice.index].next()
                if not choice.bounded:
                    found, alternatives = found[1:], alternatives[1:]
                written = found[len(choice.read) :]
                choice.score = sum(written) / max(len(written), 1)
                if self.question.logprobs is not None:
                    choice.logprobs = self._logprobs(choice, found, alternatives)

    def _logprobs(
        self,
        choice: CompletionChoice,
        found: Sequence[float | None],
        alternatives: Sequence[Sequence[tuple[int, float]] | None],
    ) -> dict[str, Any]:
        tokenizer, asked = self.worker.run.tokenizer, self.question.logprobs
        tokens = [*choice.read, *choice.tokens]
        # where each token begins: by the text that it adds, as it is written
        place, places, grown = 0, [], GrowingText(tokenizer, [])
        for position, token in enumerate(tokens):
            places.append(place)
            if position or not choice.bounded:
                place += len(grown.add([token]))
        first = 0 if self.question.echo else len(choice.read)
        before = places[first] if first < len(places) else place
        # a stop sequence cuts the text, and with it the tokens that begin behind
        length = len(choice.prompt if self.question.echo else "") + len(choice.text)
        last = len(tokens)
        while choice.until.met and last > first and places[last - 1] - before >= length:
            last -= 1
        kept = slice(first, last)
        return {
            "tokens": [tokenizer.token(token) for token in tokens[kept]],
            "token_logprobs": [None if value is None else _finite(value) for value in found[kept]],
            "top_logprobs": [
                place and {tokenizer.token(token): _finite(value) for token, value in place}
                for place in alternatives[kept]
            ]
            if asked
            else None,
            "text_offset": [place - before for place in places[kept]],
        }

    def _groups(self) -> list[list[CompletionChoice]]:
        """The n most probable texts of each prompt, per token."""
        found: list[list[CompletionChoice]] = []
        every = self.question.best_of
        for start in range(0, len(self.choices), every):
            group = sorted(self.choices[start : start + every], key=lambda choice: -choice.score)[: self.question.n]
            for place, choice in enumerate(group):
                choice.index = len(found) * self.question.n + place
            found.append(group)
        return found

    def _piece_event(self, choice: CompletionChoice, piece: str) -> str:
        """The event of a piece without log-probabilities: what `as_event` would write of it, and cheaper."""
        finish = "null" if choice.finish is None else f'"{choice.finish}"'
        said = f'{{"index": {choice.index}, "text": {_json(piece)}, "logprobs": null, "finish_reason": {finish}}}'
        usage = ', "usage": null' if self.question.stream_options.include_usage else ""
        return f"data: {self.head}{said}]{usage}}}\n\n"

    @cached_property
    def head(self) -> str:
        return _json(self._frame([]))[: -len("]}")]

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.served.name,
            "choices": choices,
        }

    def usage(self) -> dict[str, int]:
        read = sum(len(choice.read) for choice in self.choices[:: self.question.best_of])
        written = sum(len(choice.tokens) for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _finite(value: float) -> float:
    """JSON has no −∞, which an n-gram gives to what it has never seen."""
    return max(value, -1e30)


def as_event(message: Mapping[str, Any]) -> str:
    return f"data: {_json(message)}\n\n"
