"""`lab`: the workbench in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from regard.cli.options import Flag


def lab(
    folder: Path = Path("runs"),
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
    no_browser: Annotated[bool, Flag] = False,
) -> None:
    """Open the lab: watch models learn, compare them, and look inside them, in the browser.

    It works without a network and reads only the folder of your runs. Prints its address, and opens the browser there.

    Parameters
    ----------
    folder
        the folder that holds your runs
    port
        default: 8117, or one that is free
    host
        another address lets other machines in, with a token
    token
        for another address; default: one chosen by chance, as part of the address that is printed
    no_browser
        print the address and leave the browser alone
    """
    from regard.base.errors import RegardError
    from regard.web.lab.opening import open_lab

    if folder != Path("runs") and not folder.exists():
        raise RegardError(f"There is no folder {folder}: make it first, or give the one that holds your runs.")
    open_lab(folder, host, port, token, not no_browser)
