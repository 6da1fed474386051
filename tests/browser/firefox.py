"""Firefox without a window, by Marionette, the protocol that is part of it: no driver is needed.

    with Firefox.start(program, profile) as firefox:
        firefox.open(path.as_uri())
        firefox.run("return 1 + 1")

A message is `length:[0, number, command, parameters]`, an answer `length:[1, number, error, result]`.
"""

import json
import socket
import subprocess
import time
from contextlib import contextmanager

PREFERENCES = {
    "marionette.port": 0,  # any free one, which it writes into the profile
    "network.proxy.type": 1,  # every request but to files would go to a port where nobody listens
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.enabled": False,
}


class Firefox:
    def __init__(self, connection):
        self._connection, self._number, self._rest = connection, 0, b""
        self._message()  # it greets first
        self.call("WebDriver:NewSession", capabilities={"alwaysMatch": {"pageLoadStrategy": "normal"}})
        self.call("WebDriver:SetTimeouts", script=600_000, pageLoad=600_000)

    @classmethod
    @contextmanager
    def start(cls, program, profile):
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines))
        process = subprocess.Popen(
            [program, "--headless", "--no-remote", "--marionette", "--profile", str(profile)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = profile / "MarionetteActivePort"
            while not (port.exists() and port.read_text()):
                assert process.poll() is None, "Firefox exited before it listened"
                time.sleep(0.2)
            with socket.create_connection(("127.0.0.1", int(port.read_text()))) as connection:
                yield cls(connection)
        finally:
            process.terminate()
            process.wait()

    def _message(self):
        while b":" not in self._rest:
            self._receive()
        length, _, self._rest = self._rest.partition(b":")
        while len(self._rest) < int(length):
            self._receive()
        message, self._rest = self._rest[: int(length)], self._rest[int(length) :]
        return json.loads(message)

    def _receive(self):
        part = self._connection.recv(1 << 16)
        assert part, "Firefox closed the connection"
        self._rest += part

    def call(self, command, **parameters):
        self._number += 1
        message = json.dumps([0, self._number, command, parameters]).encode()
        self._connection.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self._message()
        assert number == self._number
        assert error is None, f"{command}: {error}"
        return result

    def open(self, address):
        self.call("WebDriver:Navigate", url=address)

    def run(self, script, *arguments):
        """The value of a function's body; `given` are the arguments, and a promise is waited for."""
        body = (
            "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);"
            f"(async () => {{ {script} }})()"
            ".then((value) => done({ value }), (error) => done({ problem: String(error) }));"
        )
        found = self.call("WebDriver:ExecuteAsyncScript", script=body, args=list(arguments))["value"]
        assert "problem" not in found, found["problem"]
        return found.get("value")
