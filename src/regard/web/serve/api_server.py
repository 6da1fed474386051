"""The web application: which address answers what, and how what goes wrong is said."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.base.fields import FieldError
from regard.report.colours import lab_variables
from regard.web.guard import guarded
from regard.web.serve.access_log import FACTS, access_log
from regard.web.serve.chat_api import Chats
from regard.web.serve.completions_api import CompletionAnswer, Completions
from regard.web.serve.inputs_api import Inputs
from regard.web.serve.openapi import document, page
from regard.web.serve.requests import (
    ChatRequest,
    ClassifyRequest,
    CompletionRequest,
    DetectRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
    TokenizerInfoRequest,
    TranslateRequest,
    read_body,
    read_object,
)
from regard.web.serve.scheduler import Failed
from regard.web.serve.served_models import Full, ServedModels
from regard.web.serve.server_metrics import Measured, Metrics
from regard.web.serve.tokenize_api import Tokenization
from regard.web.serve.translation_api import Translations

R = TypeVar("R", bound=DetectRequest)
STATIC = Path(__file__).parent / "static"
COLOURS = "colours.css"  # those of every page of Regard; the other files lie in STATIC, and nothing else is read
FILES = {"/": "serve.html"} | {f"/static/{name}": name for name in (COLOURS, "serve.css", "serve.js")}
OPEN = {"/health", "/languages", "/frontend/settings", "/translate", "/detect"}  # the last two ask for it themselves
_NO_RESPONSES = "OpenAI's responses API is not served: use /v1/chat/completions; /v1/models lists the models."
_UNDER_V1 = "OpenAI's API is under /v1: add /v1 to the client's base_url."
INSTEAD = {  # addresses of OpenAI's API that others serve, and what to use here
    "/v1/responses": _NO_RESPONSES,
    "/chat/completions": _UNDER_V1,
    "/completions": _UNDER_V1,
    "/models": _UNDER_V1,
}
RETRY_AFTER = 1  # seconds
SECONDS = 600.0  # that a request may take


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


def error_object(path: str, status: int, sentence: str, field: str | None = None, code: str | None = None) -> Any:
    """An error as the API of this path writes it."""
    if not path.startswith("/v1/"):
        return {"error": sentence}
    kind = {401: "authentication_error", 404: "not_found_error"}.get(status, "invalid_request_error")
    if status >= 500:
        kind = "server_error"
    code = code or {401: "invalid_api_key", 503: "overloaded"}.get(status)
    return {"error": {"message": sentence, "type": kind, "param": field, "code": code}}


def refuse(request: Request, status: int, sentence: str, **more: Any) -> Response:
    headers = {"retry-after": str(RETRY_AFTER)} if status == 503 else None
    return JSONResponse(error_object(request.url.path, status, sentence, **more), status, headers=headers)


async def unless_left(request: Request, answer: Awaitable[Any]) -> Any:
    """Awaits an answer; if the client disconnects first, the work is canceled."""
    working, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED, timeout=SECONDS)
        if working.done():
            return working.result()
        raise ClientLeft if leaving.done() else TimeoutError
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. If the client leaves, what writes them is given up."""

    media_type = "text/event-stream"

    def __init__(self, first: str, events: AsyncGenerator[str, None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.first, self.events = first, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def write() -> None:
            async with aclosing(self.events) as events:
                try:
                    await self._send(send, self.first)
                    async for event in events:
                        await self._send(send, event)
                except Failed as error:  # in the middle of it: the status was sent long ago
                    said = error_object(scope["path"], error.status, str(error))
                    await self._send(send, f"data: {json.dumps(said, ensure_ascii=False)}\n\n")
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        with suppress(ClientLeft, TimeoutError):
            await unless_left(Request(scope, receive), write())

    async def _send(self, send: Send, event: str) -> None:
        await send({"type": "http.response.body", "body": event.encode(), "more_body": True})


class Application:
    """The endpoints over HTTP."""

    def __init__(self, models: ServedModels, token: str | None) -> None:
        self.models, self.token, self.metrics = models, token, Metrics()
        self.completions, self.translations = Completions(models), Translations(models)
        self.chats, self.tokenization = Chats(self.completions), Tokenization(self.completions)
        self.inputs = Inputs(models)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.models.scheduler.start()
        try:
            yield
        finally:
            await self.models.scheduler.stop()

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name}", self.model),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/embeddings", self.embed, methods=["POST"]),
            Route("/classify", self.classify, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/tokenizer_info", self.tokenizer_info),
            Route("/translate", self.translate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.settings),
            Route("/health", self.health),
            Route("/metrics", self.measured),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
            *(Route(path, partial(self.file, name)) for path, name in FILES.items()),
        ]

    async def list_models(self, request: Request) -> Response:
        return JSONResponse(self.completions.list_models())

    async def model(self, request: Request) -> Response:
        return JSONResponse(self.completions.model(request.path_params["name"]))

    async def complete(self, request: Request) -> Response:
        began = time.perf_counter()
        asked = CompletionRequest.read(read_object(await request.body()))
        return await self._written(request, await self.completions.begin(asked), began)

    async def chat(self, request: Request) -> Response:
        began = time.perf_counter()
        asked = ChatRequest.read(read_object(await request.body()))
        return await self._written(request, await self.chats.begin(asked), began)

    async def _written(self, request: Request, answer: CompletionAnswer, began: float) -> Response:
        facts = request.scope.setdefault(FACTS, {})
        facts["model"] = answer.served.name

        def ended() -> None:
            facts.update(answer.usage())
            self.metrics.count(answer, began)

        answer.ended = ended
        if not answer.question.stream:
            return JSONResponse(await unless_left(request, answer.whole()))
        events = answer.stream()
        first = await unless_left(request, anext(events))  # what cannot begin has its own status
        return EventStream(first, events)

    async def embed(self, request: Request) -> Response:
        asked = EmbeddingRequest.read(read_object(await request.body()))
        request.scope.setdefault(FACTS, {})["model"] = asked.model[:200]
        return JSONResponse(await unless_left(request, self.inputs.embed(asked)))

    async def classify(self, request: Request) -> Response:
        asked = ClassifyRequest.read(read_object(await request.body()))
        request.scope.setdefault(FACTS, {})["model"] = asked.model[:200]
        return JSONResponse(await unless_left(request, self.inputs.classify(asked)))

    async def tokenize(self, request: Request) -> Response:
        asked = TokenizeRequest.read(read_object(await request.body()))
        return JSONResponse(await self.tokenization.tokenize(asked))

    async def detokenize(self, request: Request) -> Response:
        asked = DetokenizeRequest.read(read_object(await request.body()))
        return JSONResponse(await self.tokenization.detokenize(asked))

    async def tokenizer_info(self, request: Request) -> Response:
        asked = TokenizerInfoRequest.read_query(request.query_params.multi_items())
        return JSONResponse(self.tokenization.info(asked))

    async def translate(self, request: Request) -> Response:
        asked = await self._allowed(request, TranslateRequest)
        return JSONResponse(await unless_left(request, self.translations.translate(asked)))

    async def detect(self, request: Request) -> Response:
        asked = await self._allowed(request, DetectRequest)
        return JSONResponse(await unless_left(request, self.translations.detect(asked)))

    async def _allowed(self, request: Request, kind: type[R]) -> R:
        """The request, if the token came with it: these clients send it in the body."""
        given, is_form = read_body(await request.body(), request.headers.get("content-type", ""))
        key = given.get("api_key")
        shown = isinstance(key, str) and secrets.compare_digest(key.encode(), (self.token or "").encode())
        if not request.scope["token_shown"] and not shown:
            raise HTTPException(401, "This server requires a token: send it as api_key.")
        return kind.read(given, texts=is_form)

    async def languages(self, request: Request) -> Response:
        return JSONResponse(self.translations.languages())

    async def settings(self, request: Request) -> Response:
        return JSONResponse(self.translations.settings(self.token is not None))

    async def measured(self, request: Request) -> Response:
        return Response(self.metrics.text(self.models.by_name), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(self._document())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(page(self._document()))

    def _document(self) -> dict[str, Any]:
        codes = sorted({code for pair in self.models.languages.values() for code in pair})
        return document(list(self.models.language_models), codes, self.token is not None)

    async def file(self, name: str, request: Request) -> Response:
        kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
        content = lab_variables().encode() if name == COLOURS else (STATIC / name).read_bytes()
        return Response(content, media_type=kinds[name.rpartition(".")[2]])

    async def health(self, request: Request) -> Response:
        alive = self.models.scheduler.thread.is_alive()
        return JSONResponse({"status": "ok" if alive else "dead"}, 200 if alive else 500)


def on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, FieldError):  # BadRequest has a status and a code
        status, code = getattr(error, "status", 400), getattr(error, "code", None)
        return refuse(request, status, str(error), field=error.field, code=code)
    if isinstance(error, Full):
        return refuse(request, 503, "The queue is full: try again in a moment.")
    if isinstance(error, TimeoutError):
        return refuse(
            request, 503, f"The request took longer than {SECONDS:g} seconds: ask for less, or try again later."
        )
    if isinstance(error, Failed):
        return refuse(request, error.status, str(error))
    if isinstance(error, ClientLeft):
        return Response(status_code=499)  # which nobody reads
    if isinstance(error, HTTPException):
        said = {
            404: INSTEAD.get(request.url.path, "There is nothing at this address: see /docs."),
            405: "This address does not accept this method: see /docs.",
        }
        answer = refuse(request, error.status_code, said.get(error.status_code, str(error.detail)))
        answer.headers.update(error.headers or {})
        return answer
    return refuse(request, 500, "Internal server error: see the server's log.")


def application(models: ServedModels, *, host: str, token: str | None = None, log: bool = False) -> ASGIApp:
    """The whole server as an ASGI application, guarded; `log`: writes a line for each request to stderr."""
    made = Application(models, token)
    known = (FieldError, Full, TimeoutError, Failed, ClientLeft, HTTPException, Exception)
    app = Starlette(
        routes=made.routes(),
        lifespan=made.lifespan,
        exception_handlers=dict.fromkeys(known, on_error),
    )
    watched = guarded(app, host=host, token=token, open_paths=OPEN, refusal=error_object)
    return access_log(Measured(watched, made.metrics, {route.path for route in made.routes()}), written=log)
