"""The view Claims: the lectures' statements with their verdicts; one is measured again with other seeds or settings."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.lab.application import body_of, in_thread, lab_of, reply, text_of


async def every(request: Request) -> Response:
    return reply(await lab_of(request).ask("claims.every", {}, lane="settings"))


async def one(request: Request) -> Response:
    asked = request.query_params
    body = {"name": asked.get("name", ""), "from": asked.get("from", "")}
    return reply(await lab_of(request).ask("claims.one", body, lane="settings"))


async def run(request: Request) -> Response:
    """`regard claims NAME` with these settings, as a job; its results come to lie in a folder of their own."""
    lab, body = lab_of(request), await body_of(request)
    name, seed, knobs = text_of(body, "name"), body.get("seed"), body.get("knobs") or {}
    if not isinstance(knobs, dict) or not all(_is_number(value) for value in knobs.values()):
        raise RegardError("Each setting of a claim is a number.")
    if seed is not None and not (_is_number(seed) and 0 <= seed <= 1_000_000 and seed == int(seed)):
        raise RegardError("The first seed must be a whole number from 0 to 1000000.")
    await lab.ask("claims.one", {"name": name}, lane="settings")  # refuses what is no claim
    folder = lab.folder.free_name(f"claims-{name}")
    words = ["claims", name, "--again", f"--run={lab.folder.new(folder)}", *(["--quick"] if body.get("quick") else [])]
    words += [f"--first-seed={int(seed)}"] if seed is not None else []
    words += [f"--knob={key}={value:g}" for key, value in knobs.items()]
    return reply(await in_thread(lab.jobs.start, "claim", words, title=f"claim {name}", run=folder))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


ROUTES = [
    Route("/api/claims", every),
    Route("/api/claims/one", one),
    Route("/api/claims/run", run, methods=["POST"]),
]
