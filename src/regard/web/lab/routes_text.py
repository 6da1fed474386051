"""The view Text: what a corpus is made of, and a playground for tokenizers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.web.lab.application import question
from regard.web.lab.read_only import reads


@reads
async def statistics(request: Request) -> Response:
    return await question(request, "text.statistics", lane="settings")


@reads
async def tokens(request: Request) -> Response:
    return await question(request, "text.tokens", lane="settings")


ROUTES = [
    Route("/api/text/statistics", statistics, methods=["POST"]),
    Route("/api/text/tokens", tokens, methods=["POST"]),
]
