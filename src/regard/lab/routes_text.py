"""The view Text: what a corpus is made of, and a playground for tokenizers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.lab.application import body_of, lab_of, reply, text_of


async def statistics(request: Request) -> Response:
    body = await body_of(request)
    return reply(await lab_of(request).ask("text.statistics", body, only=text_of(body, "only"), lane="settings"))


async def tokens(request: Request) -> Response:
    body = await body_of(request)
    return reply(await lab_of(request).ask("text.tokens", body, only=text_of(body, "only"), lane="settings"))


ROUTES = [
    Route("/api/text/statistics", statistics, methods=["POST"]),
    Route("/api/text/tokens", tokens, methods=["POST"]),
]
