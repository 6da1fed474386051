"""Every request has an id, which its response repeats as X-Request-ID, and with `--access-log` a JSON line on stderr.

A line has the time, the id, method, path, status, model, numbers of tokens and milliseconds: never a prompt, a text, a
query string or a token of access.
"""

from __future__ import annotations

import datetime
import json
import re
import secrets
import sys
import time
from typing import Any, TextIO

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
GIVEN_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")  # of a proxy or a client; another one is replaced
LONGEST_PATH = 200
FACTS = "regard.facts"  # in the scope of a request: what its endpoint adds to the line


class AccessLog:
    """ASGI middleware around the whole server."""

    def __init__(self, app: ASGIApp, stream: TextIO | None = None) -> None:
        """`stream`: where the lines go; None writes none."""
        self.app, self.stream = app, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        number = given if GIVEN_ID.fullmatch(given) else secrets.token_hex(12)
        began, status = time.perf_counter(), 499  # unless something is answered
        facts: dict[str, Any] = scope.setdefault(FACTS, {})

        async def send_numbered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = number
            await send(message)

        try:
            await self.app(scope, receive, send_numbered)
        finally:
            if self.stream is not None:
                line = {
                    "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
                    "request_id": number,
                    "method": scope["method"],
                    "path": scope["path"][:LONGEST_PATH],
                    "status": status,
                    **facts,
                    "milliseconds": round(1000 * (time.perf_counter() - began), 1),
                }
                print(json.dumps(line), file=self.stream, flush=True)


def access_log(app: ASGIApp, *, written: bool) -> ASGIApp:
    return AccessLog(app, sys.stderr if written else None)
