"""The view Ladder: a comparison as a page, and a new one."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.lab.application import body_of, in_thread, lab_of, reply, text_of
from regard.lab.new_comparison import NewComparison
from regard.lab.runs_folder import is_working


async def comparisons(request: Request) -> Response:
    """All of them, and the jobs that make one."""
    lab = lab_of(request)
    jobs = [job for job in await in_thread(lab.jobs.list) if job["kind"] == "comparison"]
    return reply({"comparisons": await in_thread(lab.folder.comparisons), "jobs": jobs})


async def one(request: Request) -> Response:
    """`?name=…`: its table, chart and samples."""
    name = request.query_params.get("name", "")
    return reply(await lab_of(request).ask("ladder.open", {"name": name}, seconds=120))


async def check(request: Request) -> Response:
    body = await body_of(request)
    return reply(await lab_of(request).ask("ladder.check", body, only=text_of(body, "only"), lane="settings"))


async def start(request: Request) -> Response:
    lab, body = lab_of(request), await body_of(request)
    asked = NewComparison.read(lab.folder, body)
    if not asked.data:
        raise RegardError("Choose the text that the systems are compared on.")
    name = text_of(body, "name") or lab.folder.free_name(f"compare-{Path(asked.data).stem}")
    words = [*asked.words(), f"--run={lab.folder.new(name)}"]
    return reply(await in_thread(lab.jobs.start, "comparison", words, title=f"comparing in {name}", run=name))


async def go_on(request: Request) -> Response:
    """One that was stopped trains what is missing."""
    lab, name = lab_of(request), text_of(await body_of(request), "run")
    path = lab.folder.comparison(name)
    if is_working(path):
        raise RegardError(f"{name} is running already.")
    words = [*NewComparison.again(lab.folder, lab.folder.question(path)).words(), f"--run={path}"]
    return reply(await in_thread(lab.jobs.start, "comparison", words, title=f"going on: {name}", run=name))


ROUTES = [
    Route("/api/ladder", comparisons),
    Route("/api/ladder/one", one),
    Route("/api/ladder/check", check, methods=["POST"]),
    Route("/api/ladder/start", start, methods=["POST"]),
    Route("/api/ladder/go-on", go_on, methods=["POST"]),
]
