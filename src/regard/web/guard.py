"""Who may talk to a web application of Regard, and how much: ASGI middleware around the whole of it.

    application = guarded(app, host="127.0.0.1")
    application = guarded(app, host="0.0.0.0", token=new_token())

A request passes if it is to us by name (no page can reach a loopback address through a name of its own, "DNS
rebinding"), comes from our own page where it changes something, shows the token where there is one, and brings a body
that is small and in time. Refusals are one sentence. Every answer says that nothing else may be loaded into our pages.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.base.errors import RegardError
from regard.base.numbers import group_digits

BODY = 2**20  # bytes of a request's body
BODY_SECONDS = 30.0  # within which all of it must have come
SHORTEST_TOKEN = 16
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SAFE = {"GET", "HEAD", "OPTIONS"}  # methods that change nothing

Refusal = Callable[[str, int, str], Any]  # path, status, sentence → what is sent as JSON


def new_token() -> str:
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """True if this address reaches only this machine."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def as_error(path: str, status: int, sentence: str) -> Any:
    return {"error": sentence}


def guarded(
    app: ASGIApp,
    *,
    host: str,
    token: str | None = None,
    token_optional: bool = False,
    body_limit: int = BODY,
    body_seconds: float = BODY_SECONDS,
    policy: str = PAGE_POLICY,
    open_paths: Collection[str] = (),
    refusal: Refusal = as_error,
) -> ASGIApp:
    """The application as it may be reached at `host`; any other address than a loopback one needs a token.

    The token comes as `Authorization: Bearer …`, or once as `?token=…` in the address of a page, which makes it a
    cookie. `open_paths` need none: they tell nothing, or ask for it themselves where `scope["token_shown"]` is false.
    With `token_optional` no path needs it, which only a loopback address may have.
    `refusal` builds the response to a refused client.
    """
    if (token is None or token_optional) and not is_loopback(host):
        raise RegardError(f"Other machines can reach {host or 'every address'}: set a --token, or listen on 127.0.0.1.")
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise RegardError(f"A token needs at least {SHORTEST_TOKEN} ASCII characters: use a longer random one.")
    paths = None if token_optional else frozenset(open_paths)
    return Guard(app, host, token, body_limit, body_seconds, policy, paths, refusal)


class Guard:
    def __init__(
        self,
        app: ASGIApp,
        host: str,
        token: str | None,
        body_limit: int,
        body_seconds: float,
        policy: str,
        open_paths: frozenset[str] | None,  # None: all
        refusal: Refusal,
    ) -> None:
        self.app, self.host, self.token = app, host, token
        self.body_limit, self.body_seconds = body_limit, body_seconds
        self.open_paths, self.refusal = open_paths, refusal
        self.headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    sent.setdefault(name, value)
            await send(message)

        answer = self._refused(scope)
        if answer is None:
            try:
                async with asyncio.timeout(self.body_seconds):
                    body = await self._body(scope, receive)
            except TimeoutError:
                answer = self._refuse(scope, 408, f"The body did not arrive within {self.body_seconds:g} seconds.")
            except _Left:
                return
            if answer is None and body is None:
                limit = group_digits(self.body_limit)
                answer = self._refuse(scope, 413, f"The body has more than {limit} bytes: send less at a time.")
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return

        waiting: list[bytes | None] = [body]

        async def receive_whole() -> Message:
            if waiting:
                return {"type": "http.request", "body": waiting.pop(), "more_body": False}
            return await receive()

        await self.app(scope, receive_whole, send_guarded)

    # -- may it pass? ------------------------------------------------------------------------------------------------

    def _refused(self, scope: Scope) -> Response | None:
        """The refusal, based on the headers alone; None if the request may pass."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._ours(hosts[0]):
            return self._refuse(
                scope, 421, "The host name is not that of this server: use the address that the server printed."
            )
        origin = headers.get("origin")
        if scope["method"] not in SAFE and (
            (origin is not None and not _same(origin, hosts[0])) or headers.get("sec-fetch-site") == "cross-site"
        ):
            return self._refuse(scope, 403, "The request comes from another site, which is not allowed.")
        scope["token_shown"] = self._shows_token(headers)
        if scope["token_shown"] or (self.open_paths and scope["path"] in self.open_paths):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] == "GET" and given and self.is_token(given[0]):
            return self._remember(scope, urlencode([pair for pair in query if pair[0] != "token"]))
        if self.open_paths is None:
            return None
        answer = self._refuse(scope, 401, "This server requires a token: send it as `Authorization: Bearer …`.")
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _shows_token(self, headers: Headers) -> bool:
        if self.token is None:
            return True
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        return (kind.lower() == "bearer" and self.is_token(bearer.strip())) or self.is_token(self._cookie(headers))

    def is_token(self, given: str) -> bool:
        """Compares in constant time, so that the duration reveals nothing."""
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def _ours(self, host: str) -> bool:
        """True for the name of a loopback address, or of the requested address.

        An address that others can reach has names that it does not know; there the token is asked for instead, and a
        browser sends it to no other name.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name == self.host or (self.token is not None and not is_loopback(self.host))

    def _cookie_name(self, headers: Headers) -> str:
        port = headers.get("host", "").rpartition(":")[2]
        return f"regard-{port}" if port.isdigit() else "regard"  # cookies know no ports

    def _cookie(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name(headers))
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _remember(self, scope: Scope, query: str) -> Response:
        """The token as a cookie, and the same page without it in its address."""
        answer = Response(status_code=303)
        path = "/" + scope["path"].lstrip("/\\")  # never an address of another host
        answer.headers["location"] = quote(path, safe="/") + (f"?{query}" if query else "")
        assert self.token is not None
        answer.set_cookie(self._cookie_name(Headers(scope=scope)), self.token, httponly=True, samesite="strict")
        return answer

    def _refuse(self, scope: Scope, status: int, sentence: str) -> Response:
        close = {"connection": "close"}  # what is still to come of it is not read
        return JSONResponse(self.refusal(scope["path"], status, sentence), status, headers=close)

    # -- the body ----------------------------------------------------------------------------------------------------

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if it is too long, by what is announced or by what came."""
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal() or len(announced) > 18 or int(announced) > self.body_limit:
            return None
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Left
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.body_limit:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


class _Left(Exception):
    """The client went away before its body was complete."""


def _same(origin: str, host: str) -> bool:
    """True if this is our own page, at the address of the request."""
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower()
