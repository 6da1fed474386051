"""Clients of a completions API that ask at the same time, each one request after the other, over kept connections.

Every answer is a stream: the time of its first event is that of the first token. One thread reads all sockets, and what
came is taken apart only when all is over, so that the clients cost little beside the server that they measure.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LAST_CHUNK = b"\r\n0\r\n\r\n"
SILENCE = 120.0  # seconds without a byte, after which a server is given up


@dataclass
class HttpAnswer:
    question: int  # its number
    began: float
    first: float = 0.0  # seconds until the first token
    whole: float = 0.0
    parts: list[bytes] = field(default_factory=list)  # as they came

    @property
    def tokens(self) -> int:
        found = re.search(rb'"completion_tokens": ?(\d+)', b"".join(self.parts))
        if found is None:
            raise RuntimeError("the server's answer was cut off")
        return int(found[1])

    def text(self) -> str:
        rest, body = b"".join(self.parts).partition(b"\r\n\r\n")[2], b""
        while rest:  # chunks: size, bytes, a line end
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        events = [json.loads(line[len("data: ") :]) for line in body.decode().split("\n\n") if line[:7] == "data: {"]
        return "".join(choice["text"] for event in events for choice in event["choices"])


class Client:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.socket = f"{host}:{port}", socket.create_connection((host, port))
        self.answer = HttpAnswer(0, 0.0)

    def ask(self, number: int, question: dict[str, Any]) -> None:
        body = json.dumps({**question, "stream": True, "stream_options": {"include_usage": True}}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        self.answer = HttpAnswer(number, time.perf_counter())
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def receive(self) -> bool:
        """Reads the bytes that have arrived; True if the answer is complete."""
        came, answer = self.socket.recv(2**16), self.answer
        if not came:
            raise RuntimeError("the server has closed the connection")
        answer.parts.append(came)
        if not answer.first:
            start = b"".join(answer.parts)  # an event may come in pieces
            if not start.startswith(b"HTTP/1.1 200"[: len(start)]):
                raise RuntimeError(f"the server returned {start.splitlines()[0].decode()}")
            if b"data: " in start:
                answer.first = time.perf_counter() - answer.began
        end = came if len(came) >= len(LAST_CHUNK) else b"".join(answer.parts[-8:])
        if not end.endswith(LAST_CHUNK):
            return False
        answer.whole = time.perf_counter() - answer.began
        return True


def load(
    address: str, questions: Iterator[tuple[int, dict[str, Any]]], clients: int, seconds: float = 0.0
) -> list[HttpAnswer]:
    """The answers to the next requests, in the order of arrival. Each client sends at least one, and more until
    `seconds` have passed; a request in flight is completed."""
    place, found = urlsplit(address), list[HttpAnswer]()
    with selectors.DefaultSelector() as selector:
        asking: list[Client] = []
        try:
            until, going = time.perf_counter() + seconds, clients
            for _ in range(clients):
                asking.append(client := Client(place.hostname or "", place.port or 80))
                client.ask(*next(questions))  # at once: servers close connections on which nothing comes
                selector.register(client.socket, selectors.EVENT_READ, client)
            while going:
                ready = selector.select(SILENCE)
                if not ready:
                    raise RuntimeError(f"the server has not responded for {SILENCE:.0f} seconds")
                for key, _ in ready:
                    client = key.data
                    if client.receive():
                        found.append(client.answer)
                        if time.perf_counter() < until:
                            client.ask(*next(questions))
                        else:
                            going -= 1
                            selector.unregister(client.socket)  # a server may close what is idle
        finally:
            for client in asking:
                client.socket.close()
    return found
