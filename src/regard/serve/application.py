"""The web application: which address answers what, and how what goes wrong is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.completions_api import Completions
from regard.serve.json_fields import BadRequest, read_object
from regard.serve.scheduler import Failed
from regard.serve.served_models import Full, ServedModels
from regard.web.guard import guarded

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
    """Awaits an answer; if the client leaves first, the answer is given up."""
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
                    said = error_object(scope["path"], 500, str(error))
                    await self._send(send, f"data: {json.dumps(said, ensure_ascii=False)}\n\n")
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        with suppress(ClientLeft, TimeoutError):
            await unless_left(Request(scope, receive), write())

    async def _send(self, send: Send, event: str) -> None:
        await send({"type": "http.response.body", "body": event.encode(), "more_body": True})


class Application:
    """The endpoints over HTTP."""

    def __init__(self, models: ServedModels) -> None:
        self.models, self.completions = models, Completions(models)
        self.stopping = False

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
            Route("/health", self.health),
        ]

    async def list_models(self, request: Request) -> Response:
        return JSONResponse(self.completions.list_models())

    async def model(self, request: Request) -> Response:
        return JSONResponse(self.completions.model(request.path_params["name"]))

    async def complete(self, request: Request) -> Response:
        answer = await self.completions.begin(read_object(await request.body()))
        if not answer.question.stream:
            return JSONResponse(await unless_left(request, answer.whole()))
        events = answer.stream()
        first = await unless_left(request, anext(events))  # what cannot begin has its own status
        return EventStream(first, events)

    async def health(self, request: Request) -> Response:
        alive = self.models.scheduler.thread.is_alive()
        return JSONResponse({"status": "ok" if alive else "dead"}, 200 if alive else 500)


def on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, BadRequest):
        return refuse(request, error.status, error.sentence, field=error.field, code=error.code)
    if isinstance(error, Full):
        return refuse(request, 503, "All places are taken: ask again in a moment.")
    if isinstance(error, TimeoutError):
        return refuse(request, 503, f"This could not be finished in {SECONDS:g} seconds: ask for less, or later.")
    if isinstance(error, Failed):
        return refuse(request, 500, str(error))
    if isinstance(error, ClientLeft):
        return Response(status_code=499)  # which nobody reads
    if isinstance(error, HTTPException):
        said = {
            404: "There is nothing at this address: /docs says what there is.",
            405: "This address answers another method: /docs says which.",
        }
        answer = refuse(request, error.status_code, said.get(error.status_code, str(error.detail)))
        answer.headers.update(error.headers or {})
        return answer
    return refuse(request, 500, "Something went wrong in the server; its log says what.")


def application(models: ServedModels, *, host: str, token: str | None = None) -> ASGIApp:
    """The whole server as an ASGI application, guarded."""
    made = Application(models)
    known = (BadRequest, Full, TimeoutError, Failed, ClientLeft, HTTPException, Exception)
    app = Starlette(
        routes=made.routes(),
        lifespan=made.lifespan,
        exception_handlers=dict.fromkeys(known, on_error),
    )
    return guarded(app, host=host, token=token, open_paths={"/health"}, refusal=error_object)
