"""The view Claims: the lectures' statements with their verdicts; one is measured again with other seeds or settings."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.web.lab.application import asked, in_thread, lab_of, question, reply
from regard.web.lab.requests import RunClaim


async def every(request: Request) -> Response:
    return reply(await lab_of(request).ask("claims.every", {}, lane="settings"))


async def one(request: Request) -> Response:
    return await question(request, "claims.one", lane="settings")


async def run(request: Request) -> Response:
    """`regard claims NAME` with these settings, as a job; its results go to a separate folder."""
    lab, body = lab_of(request), await asked(request, RunClaim)
    await lab.ask("claims.one", {"name": body.name}, lane="settings")  # refuses the name of no claim
    words = ["claims", body.name, "--again", *(["--quick"] if body.quick else [])]
    words += [f"--first-seed={body.seed}"] if body.seed is not None else []
    words += [f"--knob={key}={value:g}" for key, value in body.knobs.items()]
    start_new = partial(lab.jobs.start_new, wanted=f"claims-{body.name}")
    return reply(await in_thread(start_new, "claim", words, lambda folder: f"claim {body.name}"))


ROUTES = [
    Route("/api/claims", every),
    Route("/api/claims/one", one),
    Route("/api/claims/run", run, methods=["POST"]),
]
