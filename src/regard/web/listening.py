"""Where a web application of Regard listens: one socket, one process, until it is asked to stop.

    listening = listen("127.0.0.1", 8000)
    run(application, listening, ready=print)

SIGINT and SIGTERM finish open requests, for at most `grace` seconds, and `run` returns. Headers must come in time, so
no client can hold a connection by sending them one byte at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.base.errors import RegardError
from regard.base.settings import check_range

HEADER_SECONDS = 10.0  # within which the headers of a request must have come
HEADER_BYTES = 32 * 2**10
CONNECTIONS = 1024  # at once; more are answered 503
GRACE = 30.0  # seconds that what has begun may take when it is asked to stop


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to this address; port 0 is one that is free."""
    check_range("--port", port, 0, 65535)
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise RegardError(f"{host!r} is not an address of this machine: try 127.0.0.1.") from None
    family, kind, protocol, _, address = sorted(found, key=lambda one: one[0] != socket.AF_INET)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would share the port with another server
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(CONNECTIONS)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise RegardError(
                f"Port {port} on {host} is in use: stop the program that is listening there, or choose another --port."
            ) from None
        if error.errno == errno.EACCES:
            raise RegardError(f"Port {port} is reserved by the system: choose a --port above 1023.") from None
        raise RegardError(f"{host!r} is not an address of this machine ({error.strerror}): try 127.0.0.1.") from None
    return listening


def url(listening: socket.socket) -> str:
    """The URL of the socket."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def run(
    app: ASGIApp,
    listening: socket.socket,
    *,
    ready: Callable[[str], Any] = lambda _: None,
    hangup: Callable[[], Any] | None = None,
    grace: float = GRACE,
) -> None:
    """Serves until SIGINT or SIGTERM. `ready` is called with the address once it answers, `hangup` at each SIGHUP."""
    Server(app, listening, ready=ready, hangup=hangup, grace=grace).run()


class Server(uvicorn.Server):
    """One that says when it is ready and ends without an exception; in a thread, `should_exit = True` ends it."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        ready: Callable[[str], Any] = lambda _: None,
        hangup: Callable[[], Any] | None = None,
        grace: float = GRACE,
        header_seconds: float = HEADER_SECONDS,
    ) -> None:
        class Protocol(TimelyHeaders):
            seconds = header_seconds

        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS,
                h11_max_incomplete_event_size=HEADER_BYTES,
                timeout_graceful_shutdown=grace,  # type: ignore[arg-type]  # seconds; a part of one is one, too
            )
        )
        self.listening, self.ready, self.hangup = listening, ready, hangup
        self.failure: OSError | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets=[self.listening] if sockets is None else sockets)
        if self.failure is not None:
            raise self.failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.hangup is not None and hasattr(signal, "SIGHUP"):
            with contextlib.suppress(ValueError, RuntimeError):  # signals come to the main thread alone
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.hangup)
        try:
            self.ready(url(self.listening))
        except OSError as error:  # the address could not be printed
            self.failure, self.should_exit = error, True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread
            before = {}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


class TimelyHeaders(H11Protocol):
    """A connection that is closed if the headers of a request do not come in time."""

    seconds = HEADER_SECONDS
    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the next request has begun, and its headers are not complete
            self._await_headers()
        else:
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        if self.deadline is None:
            self.deadline = self.loop.call_later(self.seconds, self.transport.close)

    def _cancel(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
