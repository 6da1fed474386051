"""The view Ladder: a comparison as a page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.lab.application import in_thread, lab_of, reply


async def comparisons(request: Request) -> Response:
    return reply(await in_thread(lab_of(request).folder.comparisons))


ROUTES = [Route("/api/ladder", comparisons)]
