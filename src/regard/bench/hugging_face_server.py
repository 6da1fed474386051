"""Hugging Face's `generate` behind the same kind of server, as a peer: a completions API that streams tokens.

    python -m regard.bench.hugging_face_server MODEL_SETTINGS.json --device cuda --dtype bfloat16

Requests that wait are generated together, in one call of `generate`; those that come meanwhile wait for the next. It
understands what the benchmark sends and no more: a list of tokens, max_tokens, and greedy choice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from regard.web.listening import listen, run

MAX_TEXTS = 256  # texts at once


class Streamer:
    """The callback of `generate`: receives each step's tokens of all rows."""

    def __init__(self, jobs: list[HuggingFaceJob], loop: asyncio.AbstractEventLoop) -> None:
        self.jobs, self.loop, self.prompt = jobs, loop, True

    def put(self, value: torch.Tensor) -> None:
        if self.prompt:
            self.prompt = False
            return
        tokens = value.tolist()
        self.loop.call_soon_threadsafe(self._deliver, tokens)

    def _deliver(self, tokens: list[int]) -> None:
        for job, token in zip(self.jobs, tokens):
            if job.left:
                job.left -= 1
                job.events.put_nowait(token)

    def end(self) -> None: ...


class HuggingFaceJob:
    def __init__(self, tokens: list[int], left: int) -> None:
        self.tokens, self.left, self.asked = tokens, left, left
        self.events: asyncio.Queue[int] = asyncio.Queue()


class Peer:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.waiting: queue.SimpleQueue[HuggingFaceJob] = queue.SimpleQueue()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, daemon=True).start()
        yield

    def _work(self) -> None:
        while True:
            jobs = [self.waiting.get()]
            while len(jobs) < MAX_TEXTS and not self.waiting.empty():
                jobs.append(self.waiting.get())
            self._generate(jobs)

    @torch.no_grad()
    def _generate(self, jobs: list[HuggingFaceJob]) -> None:
        longest, new = max(len(job.tokens) for job in jobs), max(job.left for job in jobs)
        tokens = torch.zeros(len(jobs), longest, dtype=torch.int64)
        mask = torch.zeros_like(tokens)
        for row, job in enumerate(jobs):  # padded on the left
            tokens[row, longest - len(job.tokens) :] = torch.tensor(job.tokens)
            mask[row, longest - len(job.tokens) :] = 1
        device = self.model.device
        self.model.generate(
            tokens.to(device),
            attention_mask=mask.to(device),
            do_sample=False,
            min_new_tokens=new,
            max_new_tokens=new,
            pad_token_id=0,
            streamer=Streamer(jobs, self.loop),
        )

    async def complete(self, request: Request) -> Response:
        asked = await request.json()
        job = HuggingFaceJob(asked["prompt"], asked["max_tokens"])
        self.waiting.put(job)
        return StreamingResponse(self._events(job), media_type="text/event-stream")

    async def _events(self, job: HuggingFaceJob) -> AsyncIterator[str]:
        for _ in range(job.asked):
            token = await job.events.get()
            yield f"data: {json.dumps({'choices': [{'index': 0, 'text': f' {token}', 'finish_reason': None}]})}\n\n"
        yield f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': job.asked}})}\n\n"
        yield "data: [DONE]\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Hugging Face's generate behind a server.")
    parser.add_argument("settings", type=Path, help="of GPT2Config, as JSON")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    transformers: Any = import_module("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**json.loads(options.settings.read_text())))
    peer = Peer(model.to(options.device, getattr(torch, options.dtype)).eval())

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    routes = [Route("/v1/completions", peer.complete, methods=["POST"]), Route("/health", health)]
    app = Starlette(routes=routes, lifespan=peer.lifespan)
    run(app, listen("127.0.0.1", 0), ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
