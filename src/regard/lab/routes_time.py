"""The view Time: a run at moments of its training. What it does there is asked as in Sentence, with `weights`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.lab.application import lab_of, reply


async def about(request: Request) -> Response:
    return reply(await lab_of(request).ask("time.about", {"run": request.query_params.get("run", "")}))


async def vectors(request: Request) -> Response:
    return reply(await lab_of(request).ask("time.vectors", {"run": request.query_params.get("run", "")}))


ROUTES = [Route("/api/time/about", about), Route("/api/time/vectors", vectors)]
