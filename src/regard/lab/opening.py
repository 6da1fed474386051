"""`regard lab`: the server on its socket, and the browser at its address."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path

from regard.base.errors import RegardError
from regard.lab.application import application
from regard.report.progress import say
from regard.web.guard import guarded, is_loopback, new_token
from regard.web.listening import listen, run

PORT = 8117  # if it is taken, one that is free
BODY = 9 << 20  # bytes: files are sent in pieces of 8 MiB
GRACE = 1.0  # seconds; pages keep a stream open, which would never end


def open_lab(root: Path, host: str, port: int | None, token: str | None, browser: bool) -> None:
    """Serve until Ctrl-C. An address that others can reach gets a token, chosen by chance unless one is given."""
    if token is None and not is_loopback(host):
        token = new_token()
    app = guarded(application(root), host=host, token=token, body_limit=BODY)
    try:
        socket = listen(host, PORT if port is None else port)
    except RegardError:
        if port is not None:
            raise
        socket = listen(host, 0)

    def ready(address: str) -> None:
        address += f"?token={token}" if token else ""
        print(address, flush=True)
        say(f"The lab shows the runs in {root}. Ctrl-C closes it; trainings go on.")
        if browser:  # some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    run(app, socket, ready=ready, grace=GRACE)
