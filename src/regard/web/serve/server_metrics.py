"""The server's counters and timings, in the text format that Prometheus reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.base.device import process_memory
from regard.web.serve.completions_api import CompletionAnswer
from regard.web.serve.served_models import Served

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
GAPS = (0.0005, 0.001, 0.0025, *BOUNDS[:9])  # seconds
LENGTHS = tuple(4.0**power for power in range(10))
disable_created_metrics()


class Metrics:
    """Each server has its own registry."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter("regard_requests", "Requests answered.", ["path", "status"], registry=own)
        self.seconds = Histogram(
            "regard_request_seconds", "Duration of a request.", ["path"], registry=own, buckets=BOUNDS
        )
        self.first_token = Histogram(
            "regard_first_token_seconds", "Time from a request to its first token.", ["model"], registry=own,
            buckets=BOUNDS,
        )  # fmt: skip
        self.token_gap = Histogram(
            "regard_token_seconds", "Time per token after the first.", ["model"], registry=own, buckets=GAPS
        )
        self.lengths = Histogram(
            "regard_request_tokens", "Tokens in a request's prompts and completions.", ["model", "kind"], registry=own,
            buckets=LENGTHS,
        )  # fmt: skip
        self.tokens = Counter("regard_tokens", "Tokens in prompts and completions.", ["model", "kind"], registry=own)
        self.jobs = Gauge("regard_jobs", "Texts or sentences per model, running or waiting.", ["model"], registry=own)
        self.places = Gauge(
            "regard_places", "Maximum number of texts or sentences, running or waiting.", ["model"], registry=own
        )
        began = Gauge("process_start_time_seconds", "Start time of the server, in seconds since 1970.", registry=own)
        began.set_to_current_time()
        if sys.platform == "linux":
            memory = Gauge("process_resident_memory_bytes", "Memory used by the process.", registry=own)
            memory.set_function(lambda: process_memory("VmRSS"))

    def count(self, answer: CompletionAnswer, began: float) -> None:
        """A finished completion or chat that began at this time."""
        model, usage = answer.served.name, answer.usage()
        for kind in ("prompt", "completion"):
            self.tokens.labels(model, kind).inc(usage[f"{kind}_tokens"])
            self.lengths.labels(model, kind).observe(usage[f"{kind}_tokens"])
        if answer.first_token is None:
            return
        self.first_token.labels(model).observe(answer.first_token - began)
        longest = max(len(choice.tokens) for choice in answer.choices)
        if answer.question.stream and longest > 1:  # else all tokens come at once
            self.token_gap.labels(model).observe((time.perf_counter() - answer.first_token) / (longest - 1))

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
