"""What a server counts, in the text format that Prometheus reads."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.web.serve.served_models import Served

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Histogram:
    def __init__(self) -> None:
        self.counts, self.total = [0] * (len(BOUNDS) + 1), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        below = 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], self.counts):
            below += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {below}'
        yield f"{name}_sum{{{labels}}} {self.total}"
        yield f"{name}_count{{{labels}}} {below}"


class Metrics:
    def __init__(self) -> None:
        self.began = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.seconds: dict[str, Histogram] = {}  # by path
        self.first_token: dict[str, Histogram] = {}  # by model
        self.read: Counter[str] = Counter()  # tokens, by model
        self.written: Counter[str] = Counter()

    def took(self, where: dict[str, Histogram], name: str, seconds: float) -> None:
        where.setdefault(name, Histogram()).add(seconds)

    def text(self, models: Mapping[str, Served]) -> str:
        return "".join(f"{line}\n" for line in self._lines(models))

    def _lines(self, models: Mapping[str, Served]) -> Iterator[str]:
        yield from _head("regard_requests_total", "counter", "Answered requests.")
        for (path, status), count in sorted(self.requests.items()):
            yield f'regard_requests_total{{path="{_label(path)}",status="{status}"}} {count}'
        yield from _head("regard_request_seconds", "histogram", "Time of a whole request.")
        for path, found in sorted(self.seconds.items()):
            yield from found.lines("regard_request_seconds", f'path="{_label(path)}"')
        yield from _head("regard_first_token_seconds", "histogram", "Time from a request to its first token.")
        for model, found in sorted(self.first_token.items()):
            yield from found.lines("regard_first_token_seconds", f'model="{_label(model)}"')
        yield from _head("regard_tokens_total", "counter", "Tokens of prompts and of completions.")
        for model in sorted(self.read | self.written):
            yield f'regard_tokens_total{{model="{_label(model)}",kind="prompt"}} {self.read[model]}'
            yield f'regard_tokens_total{{model="{_label(model)}",kind="completion"}} {self.written[model]}'
        yield from _head("regard_jobs", "gauge", "Texts or sentences of a model that are written or wait.")
        for model, served in models.items():
            yield f'regard_jobs{{model="{_label(model)}"}} {served.inside}'
        yield from _head("regard_places", "gauge", "The most of them.")
        for model, served in models.items():
            yield f'regard_places{{model="{_label(model)}"}} {served.places}'
        yield from _head("process_start_time_seconds", "gauge", "When the server was started, since 1970.")
        yield f"process_start_time_seconds {self.began}"
        if (size := resident_bytes()) is not None:
            yield from _head("process_resident_memory_bytes", "gauge", "Memory that the process holds.")
            yield f"process_resident_memory_bytes {size}"


class Measured:
    """Counts every request, also those that are refused, by the paths there are."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 499  # unless something is answered

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.requests[path, status] += 1
            self.metrics.took(self.metrics.seconds, path, time.perf_counter() - began)


def resident_bytes() -> int | None:
    """The memory that this process holds; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
