"""`regard lab`: the server on its socket, and the browser at its address."""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from types import FrameType

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.base.errors import RegardError
from regard.report.progress import say
from regard.web.guard import guarded, is_loopback, new_token
from regard.web.lab.application import application
from regard.web.listening import Server, listen

PORT = 8117  # if it is taken, one that is free
BODY = 9 << 20  # bytes: files are sent in pieces of 8 MiB
GRACE = 1.0  # seconds; pages keep a stream open, which would never end


def ending(app: ASGIApp) -> ASGIApp:
    """The same, whose open streams and unanswered questions end without a word when the lab is closed."""

    async def ended(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, sending)
        except asyncio.CancelledError:
            with suppress(Exception):
                if not begun:
                    await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    return ended


def open_lab(
    root: Path, host: str, port: int | None, token: str | None, browser: bool, *, read_only: bool = False
) -> None:
    """Serve until Ctrl-C. The token is random unless one is given. An address that others can reach needs it for
    everything; on this machine only what runs a user's code asks for it, since other users of the machine, too, can
    reach a loopback address."""
    optional = token is None and is_loopback(host)
    token = token or new_token()
    inner = application(root, read_only=read_only, is_local=is_loopback(host))
    app = guarded(ending(inner), host=host, token=token, token_optional=optional, body_limit=BODY)
    try:
        socket = listen(host, PORT if port is None else port)
    except RegardError:
        if port is not None:
            raise
        socket = listen(host, 0)

    def ready(address: str) -> None:
        address += "" if optional and read_only else f"?token={token}"
        print(address, flush=True)
        how = ", read-only" if read_only else ""
        say(f"The lab shows the runs in {root}{how}. Press Ctrl-C to close it; training continues.")
        if browser:  # some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    server = Server(app, socket, ready=ready, grace=GRACE)
    stop = server.handle_exit

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        inner.state.lab.closing.set()  # streams end, which would otherwise be waited for
        stop(number, frame)

    server.handle_exit = asked_to_stop  # type: ignore[assignment, method-assign]
    server.run()
