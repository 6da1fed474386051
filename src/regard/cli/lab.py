"""`lab`: the workbench in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import ARGUMENTS


def lab(
    folder: Annotated[Path, Parameter(group=ARGUMENTS)] = Path("runs"),
    *,
    port: int | None = None,
    host: Annotated[str, Parameter(metavar="ADDRESS")] = "127.0.0.1",
    token: str | None = None,
    no_browser: bool = False,
    read_only: bool = False,
) -> None:
    """Open the lab in the browser: watch models learn, compare them, and look inside them.

    The lab needs no network and reads only the folder of your runs. It prints its URL and opens the browser.

        regard lab
        regard lab experiments/runs --port 9000 --no-browser
        regard lab --read-only

    Parameters
    ----------
    folder
        folder of your runs
    port
        port to listen on [default: 8117, or any free port]
    host
        address to listen on; on any address other than loopback, other machines can connect with the token
    token
        token for other machines [default: a random token, included in the printed URL]
    no_browser
        print the URL and do not open the browser
    read_only
        disable training, deleting, uploading, evaluating, running claims and checking answers, for example in class
    """
    from regard.base.errors import RegardError
    from regard.web.lab.opening import open_lab

    if (folder != Path("runs") or read_only) and not folder.exists():
        raise RegardError(f"There is no folder {folder}: create it, or name the folder of your runs.")
    open_lab(folder, host, port, token, not no_browser, read_only=read_only)
