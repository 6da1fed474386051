"""Clients of a completions API that ask at the same time, each one request after the other, over kept connections.

Every answer is a stream: the time of its first event is that of the first token. Only the standard library is used, so
that the clients cost little beside the server that they measure.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    first: float  # seconds until the first token
    whole: float
    events: bytes

    def text(self) -> str:
        return "".join(choice["text"] for event in self._events() for choice in event["choices"])

    @property
    def tokens(self) -> int:
        return int(self._events()[-1]["usage"]["completion_tokens"])

    def _events(self) -> list[dict[str, Any]]:
        lines = [line[len(b"data: ") :] for line in self.events.split(b"\n\n") if line.startswith(b"data: {")]
        return [json.loads(line) for line in lines]


def load(address: str, questions: Sequence[dict[str, Any]], clients: int) -> list[Answer]:
    """The answers to all questions, in their order."""
    return asyncio.run(_load(address, questions, clients))


async def _load(address: str, questions: Sequence[dict[str, Any]], clients: int) -> list[Answer]:
    place, found = urlsplit(address), list[Answer | None]([None] * len(questions))
    remaining = iter(enumerate(questions))
    await asyncio.gather(*(_client(place.hostname or "", place.port or 80, remaining, found) for _ in range(clients)))
    return [answer for answer in found if answer is not None]


async def _client(
    host: str, port: int, remaining: Iterator[tuple[int, dict[str, Any]]], found: list[Answer | None]
) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        for number, question in remaining:
            body = json.dumps({**question, "stream": True, "stream_options": {"include_usage": True}}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            began = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status = await reader.readuntil(b"\r\n\r\n")
            if not status.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the server answered {status.splitlines()[0].decode()}")
            first, parts = 0.0, []
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
                first = first or time.perf_counter() - began
            await reader.readuntil(b"\r\n")
            found[number] = Answer(first, time.perf_counter() - began, b"".join(parts))
    finally:
        writer.close()
