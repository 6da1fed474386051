"""The server's counters and timings, in the text format that Prometheus reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.base.device import process_memory
from regard.web.serve.served_models import Served

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
disable_created_metrics()


class Metrics:
    """Each server has its own registry."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter("regard_requests", "Answered requests.", ["path", "status"], registry=own)
        self.seconds = Histogram(
            "regard_request_seconds", "Time of a whole request.", ["path"], registry=own, buckets=BOUNDS
        )
        self.first_token = Histogram(
            "regard_first_token_seconds", "Time from a request to its first token.", ["model"], registry=own,
            buckets=BOUNDS,
        )  # fmt: skip
        self.tokens = Counter("regard_tokens", "Tokens of prompts and of completions.", ["model", "kind"], registry=own)
        self.jobs = Gauge(
            "regard_jobs", "Texts or sentences of a model that are written or wait.", ["model"], registry=own
        )
        self.places = Gauge("regard_places", "The most of them.", ["model"], registry=own)
        began = Gauge("process_start_time_seconds", "When the server was started, since 1970.", registry=own)
        began.set_to_current_time()
        if sys.platform == "linux":
            memory = Gauge("process_resident_memory_bytes", "Memory that the process holds.", registry=own)
            memory.set_function(lambda: process_memory("VmRSS"))

    def text(self, models: Mapping[str, Served]) -> bytes:
        for name, served in models.items():
            self.jobs.labels(name).set(served.inside)
            self.places.labels(name).set(served.places)
        return generate_latest(self.registry)


class Measured:
    """Counts every request, also refused ones; unknown paths share the label `other`."""

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
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - began)
