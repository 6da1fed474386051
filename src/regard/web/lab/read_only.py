"""`regard lab --read-only`: everybody may look, and nobody can train, delete, upload, run code or write to the folder.

In such a lab a request that is not GET is refused, unless its endpoint is marked with `@reads`: so a new route is
refused until somebody has thought about it. What GET must not do there is written at `lab.read_only`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.web.guard import SAFE

SENTENCE = "This lab is read-only: to train, delete, upload or check, open your own with `regard lab`."

Endpoint = Callable[[Request], Awaitable[Response]]
E = TypeVar("E", bound=Endpoint)
READING: set[Endpoint] = set()


class Forbidden(RegardError):
    """This lab, or this client, may not do it."""


def reads(endpoint: E) -> E:
    """Marks an endpoint that writes nothing, although its question comes by POST."""
    READING.add(endpoint)
    return endpoint


def read_only_route(route: Route) -> Route:
    """The same route without the methods that change something."""
    if route.endpoint in READING:
        return route

    async def endpoint(request: Request) -> Response:
        if request.method not in SAFE:
            raise Forbidden(SENTENCE)
        return await route.endpoint(request)

    return Route(route.path, endpoint, methods=list(route.methods or ()))
