"""The view Runs: all runs live, their curves, a form for a new one, and the actions on each."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.runs.store.gallery import check_own
from regard.runs.store.list import is_running
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import available
from regard.web.lab import uploads
from regard.web.lab.application import asked, in_thread, lab_of, question, reply
from regard.web.lab.events import events
from regard.web.lab.guarded_folder import UPLOADS
from regard.web.lab.new_run import NewRun
from regard.web.lab.read_only import reads
from regard.web.lab.requests import Check, Curves, OneJob, OneName, OneRun, Restore, RunForm, Stop, Upload
from regard.web.lab.runs_folder import RunsFolder

MOST_BUCKETS = 2000


async def runs(request: Request) -> Response:
    """Everything that the list shows."""
    lab = lab_of(request)
    return reply(
        {
            "runs": await in_thread(lab.folder.runs),
            "gallery": await in_thread(lab.folder.gallery),
            "comparisons": await in_thread(lab.folder.comparisons),
            "jobs": await in_thread(lab.jobs.list),
        }
    )


async def curves(request: Request) -> Response:
    """`?run=…&run=…&x=tokens&y=loss&width=600&log=1`: means, lows and highs by pixel, as arrays."""
    content = await in_thread(_curves, lab_of(request).folder, await asked(request, Curves))
    return Response(content, media_type="application/octet-stream")


def _curves(folder: RunsFolder, wanted: Curves) -> bytes:
    import numpy as np

    from regard.report.packed_arrays import pack
    from regard.web.lab.downsampling import in_buckets

    arrays: dict[str, Any] = {}
    about = []
    for name in wanted.run:
        curve = folder.curve(folder.run(name))
        if not curve.rows:
            about.append({"run": name, "kind": "none", "rows": 0, "age": curve.age})
            continue
        valid, columns = curve.taken(wanted.x, wanted.y)
        checked, across, up = map(np.array, (valid, *columns))
        for kind, chosen in (("training", ~checked), ("validation", checked)):
            number = len(about)
            found = in_buckets(across[chosen], up[chosen], min(wanted.width, MOST_BUCKETS), wanted.log)
            arrays |= {f"{number}.{part}": values for part, values in zip(("x", "y", "low", "high"), found)}
            about.append({"run": name, "kind": kind, "rows": curve.rows, "age": curve.age})
    return pack(arrays, about)


async def one(request: Request) -> Response:
    """`?run=NAME`: where it comes from, its recipe, its job and what it wrote so far."""
    lab, name = lab_of(request), (await asked(request, OneRun)).run

    def found() -> dict[str, Any]:
        path = lab.folder.run(name)
        facts = lab.folder.facts(path)
        jobs = [job for job in lab.jobs.list() if job["run"] == name]
        return {
            **lab.folder.summary(path),
            "facts": {key: facts.get(key) for key in ("regard", "torch", "python", "platform", "threads", "seed")}
            | ({"metrics.jsonl": note} if (note := lab.folder.curve(path).note) else {}),
            "notes": lab.folder.notes(path),
            "recipe": lab.folder.recipe_text(path),
            "job": jobs[0] if jobs else None,
            "log": lab.jobs.log(jobs[0]["id"])[-8000:] if jobs else "",
            "samples": lab.samples.kept(name),
            "report": lab.folder.has_report(path),
        }

    return reply(await in_thread(found))


async def report(request: Request) -> Response:
    """`?name=NAME`: report.html of a run, a comparison or claims, as a file to keep; opened here, it may do nothing."""
    lab, name = lab_of(request), (await asked(request, OneName)).name
    content = await in_thread(lab.folder.report, name)
    file = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "report"
    headers = {
        "content-disposition": f'attachment; filename="{file}.html"',
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Response(content, media_type="text/html", headers=headers)


@reads
async def sample(request: Request) -> Response:
    """The run's current sample, computed if needed (a read-only lab keeps none), and all earlier ones."""
    lab, name = lab_of(request), (await asked(request, OneRun)).run
    if not lab.read_only:
        await lab.samples.renew(name)
    return reply(await in_thread(lab.samples.kept, name))


@reads
async def characters(request: Request) -> Response:
    """The average number of characters per token in the run's validation text."""
    return await question(request, "runs.characters", lane="settings")


@reads
async def learned(request: Request) -> Response:
    """Whether the run is better than a bigram of its own tokens."""
    return await question(request, "runs.learned", lane="settings")


@reads
async def model_page(request: Request) -> Response:
    """The model as one file that runs by itself."""
    return await question(request, "runs.page", lane="settings")


# -- a new run -------------------------------------------------------------------------------------------------------


async def choices(request: Request) -> Response:
    """The systems and corpora that a form can choose from; nothing is computed for it."""
    lab = lab_of(request)

    def found() -> dict[str, Any]:
        rows = [{**row, "pairs": row["kind"].endswith("pairs")} for row in available()]
        here = [row for row in rows if not str(row["here"]).startswith("regard ")]
        dropped = [dict(file, pairs=_holds_pairs(lab.folder, file["name"])) for file in lab.folder.uploads()]
        return {
            "systems": [vars(system) | {"label": system.label} for system in SYSTEMS],
            "corpora": here,
            "uploads": dropped,
            "elsewhere": [row for row in rows if row not in here],
        }

    return reply(await in_thread(found))


def _holds_pairs(folder: RunsFolder, name: str) -> bool:
    from regard.text.pairs import is_pairs

    try:
        return is_pairs(folder.inside(f"{UPLOADS}/{name}", kind="file"))
    except RegardError:
        return False


@reads
async def form(request: Request) -> Response:
    return await question(request, "runs.form", lane="settings")


async def upload(request: Request) -> Response:
    """`PUT ?name=my.txt`, in pieces: each brings the token that the one before was answered with, the last `last=1`."""
    lab, piece = lab_of(request), await asked(request, Upload)
    content = await request.body()
    found = await in_thread(uploads.take, lab.folder, piece.name, piece.token, content, last=piece.last)
    return reply(found | ({"pairs": _holds_pairs(lab.folder, found["name"])} if "name" in found else {}))


async def check(request: Request) -> Response:
    """`regard data check` of a file that was dropped in, as a job."""
    lab, body = lab_of(request), await asked(request, Check)
    file = lab.folder.inside(f"{UPLOADS}/{body.data}", kind="file")
    reading = [f"--data.{name}={given}" for name in ("columns", "encoding") if (given := getattr(body, name))]
    words = ["data", "check", str(file), "--json", *reading]
    return reply(await in_thread(lab.jobs.start, "check", words, title=f"check of {file.name}"))


async def estimate(request: Request) -> Response:
    """The dry run, as a job: parameters, memory and time, from three measured steps."""
    lab, form = lab_of(request), await asked(request, RunForm)
    for job in await in_thread(lab.jobs.list):
        if job["kind"] == "estimate" and job["running"]:  # a form asks again when something is changed
            await in_thread(lab.jobs.stop, job["id"])
    words = [*NewRun.read(lab.folder, form).words(), "--dry-run", "--json"]
    return reply(await in_thread(lab.jobs.start, "estimate", words, title="estimate"))


async def start(request: Request) -> Response:
    """Training begins, in a process of its own."""
    lab, form = lab_of(request), await asked(request, RunForm)
    new = NewRun.read(lab.folder, form)
    wanted = f"{new.system or (new.start.name if new.start else 'run')}-{Path(new.data or 'corpus').stem}"
    start_new = partial(lab.jobs.start_new, name=form.name, wanted=wanted)
    return reply(await in_thread(start_new, "training", new.words(), "training {}".format))


async def job(request: Request) -> Response:
    """`?id=…`: how a job stands, and when it has ended, what it printed."""
    lab, number = lab_of(request), (await asked(request, OneJob)).id

    def found() -> dict[str, Any]:
        status = lab.jobs.find(number)
        result = None
        if not status["running"] and status["kind"] in ("check", "estimate"):
            with suppress(ValueError, RecursionError):
                result = json.loads(lab.jobs.result(number))
        return {**status, "result": result, "log": lab.jobs.log(number)[-8000:]}

    return reply(await in_thread(found))


# -- what can be done with a run -------------------------------------------------------------------------------------


async def stop(request: Request) -> Response:
    """`{"run": NAME}` or `{"id": JOB}`: ask it to stop, with a checkpoint."""
    lab, body = lab_of(request), await asked(request, Stop)
    if name := body.run:
        found = await in_thread(lab.jobs.of_run, name)
        if found is None:
            raise RegardError(f"{name} was not started in this lab: stop it with Ctrl-C in its terminal.")
        return reply(await in_thread(lab.jobs.stop, found["id"]))
    return reply(await in_thread(lab.jobs.stop, body.id))


async def go_on(request: Request) -> Response:
    """Resume a stopped training exactly where it stopped."""
    lab, name = lab_of(request), (await asked(request, OneRun)).run
    path = lab.folder.run(name)
    check_own(path)
    if is_running(path):
        raise RegardError(f"{name} is already training.")
    return reply(await in_thread(lab.jobs.start, "training", ["resume", str(path)], title=f"resuming {name}", run=name))


async def delete(request: Request) -> Response:
    return reply(await in_thread(lab_of(request).trash.put, (await asked(request, OneRun)).run))


async def restore(request: Request) -> Response:
    return reply(await in_thread(lab_of(request).trash.back, (await asked(request, Restore)).mark))


async def trash(request: Request) -> Response:
    lab = lab_of(request)
    if request.method == "DELETE":
        await in_thread(lab.trash.empty)
    return reply(await in_thread(lab.trash.list))


ROUTES = [
    Route("/api/runs", runs),
    Route("/api/runs/events", events),
    Route("/api/runs/curves", curves),
    Route("/api/runs/one", one),
    Route("/api/runs/report", report),
    Route("/api/runs/sample", sample, methods=["POST"]),
    Route("/api/runs/learned", learned, methods=["POST"]),
    Route("/api/runs/page", model_page, methods=["POST"]),
    Route("/api/runs/characters", characters, methods=["POST"]),
    Route("/api/runs/choices", choices),
    Route("/api/runs/form", form, methods=["POST"]),
    Route("/api/runs/upload", upload, methods=["PUT"]),
    Route("/api/runs/check", check, methods=["POST"]),
    Route("/api/runs/estimate", estimate, methods=["POST"]),
    Route("/api/runs/start", start, methods=["POST"]),
    Route("/api/runs/job", job),
    Route("/api/runs/stop", stop, methods=["POST"]),
    Route("/api/runs/go-on", go_on, methods=["POST"]),
    Route("/api/runs/delete", delete, methods=["POST"]),
    Route("/api/runs/restore", restore, methods=["POST"]),
    Route("/api/runs/trash", trash, methods=["GET", "DELETE"]),
]
