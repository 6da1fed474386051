"""The view Ladder: a comparison as a page, and a new one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.runs.store.list import is_running
from regard.web.lab.application import asked, in_thread, lab_of, question, reply
from regard.web.lab.new_comparison import NewComparison
from regard.web.lab.read_only import reads
from regard.web.lab.requests import ComparisonForm, OneRun


async def comparisons(request: Request) -> Response:
    """All comparisons, and the jobs that are running one."""
    lab = lab_of(request)
    jobs = [job for job in await in_thread(lab.jobs.list) if job["kind"] == "comparison"]
    return reply({"comparisons": await in_thread(lab.folder.comparisons), "jobs": jobs})


async def one(request: Request) -> Response:
    """`?name=…`: its table, chart and samples."""
    return await question(request, "ladder.open", 120)


@reads
async def check(request: Request) -> Response:
    return await question(request, "ladder.check", lane="settings")


async def start(request: Request) -> Response:
    lab, form = lab_of(request), await asked(request, ComparisonForm)
    wanted = NewComparison.read(lab.folder, form)
    if not wanted.data:
        raise RegardError("Choose the text to compare the systems on.")
    start_new = partial(lab.jobs.start_new, name=form.name, wanted=f"compare-{Path(wanted.data).stem}")
    return reply(await in_thread(start_new, "comparison", wanted.words(), "comparing in {}".format))


async def go_on(request: Request) -> Response:
    """Resumes a stopped comparison."""
    lab, name = lab_of(request), (await asked(request, OneRun)).run
    path = lab.folder.comparison(name)
    if is_running(path):
        raise RegardError(f"{name} is already running.")
    words = [*NewComparison.again(lab.folder, lab.folder.question(path)).words(), f"--run={path}"]
    return reply(await in_thread(lab.jobs.start, "comparison", words, title=f"resuming {name}", run=name))


ROUTES = [
    Route("/api/ladder", comparisons),
    Route("/api/ladder/one", one),
    Route("/api/ladder/check", check, methods=["POST"]),
    Route("/api/ladder/start", start, methods=["POST"]),
    Route("/api/ladder/go-on", go_on, methods=["POST"]),
]
