"""The view Time: a run at points in its training. Its readings are requested as in Sentence, with `weights`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.web.lab.application import question
from regard.web.lab.read_only import reads


async def about(request: Request) -> Response:
    return await question(request, "time.about")


async def vectors(request: Request) -> Response:
    return await question(request, "time.vectors")


@reads
async def heads(request: Request) -> Response:
    return await question(request, "time.heads", seconds=120)


@reads
async def film(request: Request) -> Response:
    """The readings of all snapshots as one page with a slider and Play."""
    return await question(request, "time.film", seconds=240)


ROUTES = [
    Route("/api/time/about", about),
    Route("/api/time/vectors", vectors),
    Route("/api/time/heads", heads, methods=["POST"]),
    Route("/api/time/film", film, methods=["POST"]),
]
