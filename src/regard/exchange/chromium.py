"""A page in headless Chromium, over its debugging pipe: open a file, evaluate an expression, get its value.

    with Chromium.start() as browser:
        page = browser.open("file:///…/model.html")
        page.evaluate("document.title")

It installs nothing: it uses any Chromium or Chrome on the machine, without network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-extensions")
LOADED = "new Promise((done) => (document.readyState === 'complete' ? done() : addEventListener('load', () => done())))"
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"
# Copies first: a pipe may be descriptor 3 or 4 itself. A shell could do this, but dash allows only one digit.
AS_3_AND_4 = """import os, sys
copies = [os.dup(int(number)) for number in sys.argv[1:3]]
for copy, number in zip(copies, (3, 4)):
    os.dup2(copy, number)
    os.set_inheritable(number, True)  # a copy that was 3 or 4 already is not
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The path of Chromium or Chrome; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """A browser that listens on file descriptor 3 and answers on 4."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._numbers, self._rest = to, back, count(1), b""

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Chromium]:
        program = find_chromium()
        if program is None:
            raise RegardError("--check needs Chromium or Chrome, but this machine has neither.")
        to_browser, from_browser = os.pipe(), os.pipe()
        as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-ISc",
                    AS_3_AND_4,
                    str(to_browser[0]),
                    str(from_browser[1]),
                    program,
                    *FLAGS,
                    OFFLINE,
                    *as_root,
                    f"--user-data-dir={profile}",
                ],
                pass_fds=(to_browser[0], from_browser[1]),
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            os.close(to_browser[0])
            os.close(from_browser[1])
            browser = cls(to_browser[1], from_browser[0])
            try:
                yield browser
                with suppress(RegardError, BrokenPipeError):  # it may exit before it answers
                    browser.call("Browser.close")
            finally:
                os.close(to_browser[1])
                os.close(from_browser[0])
                process.terminate()
                process.wait()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol, and wait for its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RegardError(f"Chromium refused {method}: {answer['error'].get('message')}")
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._back, 1 << 20)
            if not piece:
                raise RegardError("Chromium exited before it responded.")
            self._rest += piece
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def open(self, address: str) -> OpenPage:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = OpenPage(self, session)
        if address != "about:blank":
            self.call("Page.enable", session)
            self.call("Page.navigate", session, url=address)
            page.evaluate(LOADED)
        return page

    def open_file(self, path: Path) -> OpenPage:
        return self.open(path.resolve().as_uri())


class OpenPage:
    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; a promise is waited for."""
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RegardError(
                f"the page failed: {details.get('exception', {}).get('description') or details.get('text')}"
            )
        return answer["result"].get("value")
