"""The view Runs: all runs live, their curves, a form for a new one, and what can be done with each."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.lab import uploads
from regard.lab.application import body_of, in_thread, lab_of, reply, text_of
from regard.lab.events import events
from regard.lab.new_run import NewRun
from regard.lab.runs_folder import COLUMNS, UPLOADS, RunsFolder, is_working
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import available

AXES = ("tokens", "step", "seconds")
MOST_SERIES, MOST_BUCKETS = 200, 2000


async def runs(request: Request) -> Response:
    """Everything that the list shows."""
    lab = lab_of(request)
    return reply(
        {
            "runs": await in_thread(lab.folder.runs),
            "comparisons": await in_thread(lab.folder.comparisons),
            "jobs": await in_thread(lab.jobs.list),
        }
    )


async def curves(request: Request) -> Response:
    """`?run=…&run=…&x=tokens&y=loss&width=600&log=1`: means, lows and highs by pixel, as arrays."""
    asked = request.query_params
    names, x, y = asked.getlist("run")[:MOST_SERIES], asked.get("x", "tokens"), asked.get("y", "loss")
    if x not in AXES or y not in COLUMNS:
        raise RegardError(f"There is no curve of {y[:40]!r} against {x[:40]!r}.")
    width = int(asked["width"]) if asked.get("width", "").isdecimal() else 600
    content = await in_thread(_curves, lab_of(request).folder, names, x, y, min(width, MOST_BUCKETS), "log" in asked)
    return Response(content, media_type="application/octet-stream")


def _curves(folder: RunsFolder, names: list[str], x: str, y: str, width: int, log: bool) -> bytes:
    import numpy as np

    from regard.lab.downsampling import in_buckets
    from regard.report.packed_arrays import pack

    arrays: dict[str, Any] = {}
    about = []
    for name in names:
        curve = folder.curve(folder.run(name))
        if not curve.rows:
            about.append({"run": name, "kind": "none", "rows": 0, "age": curve.age})
            continue
        checked = np.array(curve.valid)
        across, up = (np.array(curve.columns[key]) for key in (x, y))
        for kind, chosen in (("training", ~checked), ("validation", checked)):
            number = len(about)
            found = in_buckets(across[chosen], up[chosen], width, log)
            arrays |= {f"{number}.{part}": values for part, values in zip(("x", "y", "low", "high"), found)}
            about.append({"run": name, "kind": kind, "rows": curve.rows, "age": curve.age})
    return pack(arrays, about)


async def one(request: Request) -> Response:
    """`?run=NAME`: where it comes from, its recipe, its job and what it wrote so far."""
    lab, name = lab_of(request), request.query_params.get("run", "")

    def found() -> dict[str, Any]:
        path = lab.folder.run(name)
        facts = lab.folder.facts(path)
        damaged = lab.folder.curve(path).damaged
        jobs = [job for job in lab.jobs.list() if job["run"] == name]
        return {
            **lab.folder.summary(path),
            "facts": {key: facts.get(key) for key in ("regard", "torch", "python", "platform", "threads", "seed")}
            | ({"damaged lines": f"{damaged} of metrics.jsonl, left out of the curves"} if damaged else {}),
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
    lab, name = lab_of(request), request.query_params.get("name", "")
    content = await in_thread(lab.folder.report, name)
    file = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "report"
    headers = {
        "content-disposition": f'attachment; filename="{file}.html"',
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Response(content, media_type="text/html", headers=headers)


async def sample(request: Request) -> Response:
    """What the run writes now, if that is not known yet; all that it wrote."""
    lab, name = lab_of(request), text_of(await body_of(request), "run")
    await lab.samples.renew(name)
    return reply(await in_thread(lab.samples.kept, name))


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


async def form(request: Request) -> Response:
    body = await body_of(request)
    return reply(await lab_of(request).ask("runs.form", body, only=text_of(body, "only"), lane="settings"))


async def upload(request: Request) -> Response:
    """`PUT ?name=my.txt`, in pieces: each brings the token that the one before was answered with, the last `last=1`."""
    lab, asked = lab_of(request), request.query_params
    content = await request.body()
    words = asked.get("name", ""), asked.get("token", ""), content
    found = await in_thread(uploads.take, lab.folder, *words, last="last" in asked)
    return reply(found | ({"pairs": _holds_pairs(lab.folder, found["name"])} if "name" in found else {}))


async def check(request: Request) -> Response:
    """`regard data check` of a file that was dropped in, as a job."""
    lab, body = lab_of(request), await body_of(request)
    file = lab.folder.inside(f"{UPLOADS}/{text_of(body, 'data')}", kind="file")
    columns = text_of(body, "columns")
    words = ["data", "check", str(file), "--json", *([f"--data.columns={columns}"] if columns else [])]
    return reply(await in_thread(lab.jobs.start, "check", words, title=f"check of {file.name}"))


async def estimate(request: Request) -> Response:
    """The dry run, as a job: parameters, memory and time, from three measured steps."""
    lab, body = lab_of(request), await body_of(request)
    for job in await in_thread(lab.jobs.list):
        if job["kind"] == "estimate" and job["running"]:  # a form asks again when something is changed
            await in_thread(lab.jobs.stop, job["id"])
    words = [*NewRun.read(lab.folder, body).words(), "--dry-run", "--json"]
    return reply(await in_thread(lab.jobs.start, "estimate", words, title="estimate"))


async def start(request: Request) -> Response:
    """Training begins, in a process of its own."""
    lab, body = lab_of(request), await body_of(request)
    asked = NewRun.read(lab.folder, body)
    wanted = f"{asked.system or (asked.start.name if asked.start else 'run')}-{Path(asked.data or 'corpus').stem}"
    name = text_of(body, "name") or lab.folder.free_name(wanted)
    words = [*asked.words(), f"--run={lab.folder.new(name)}"]
    return reply(await in_thread(lab.jobs.start, "training", words, title=f"training {name}", run=name))


async def job(request: Request) -> Response:
    """`?id=…`: how a job stands, and when it has ended, what it printed."""
    lab, number = lab_of(request), request.query_params.get("id", "")

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
    lab, body = lab_of(request), await body_of(request)
    if name := text_of(body, "run"):
        found = await in_thread(lab.jobs.of_run, name)
        if found is None:
            raise RegardError(f"{name} was not started in this lab: stop it with Ctrl-C in its terminal.")
        return reply(await in_thread(lab.jobs.stop, found["id"]))
    return reply(await in_thread(lab.jobs.stop, text_of(body, "id")))


async def go_on(request: Request) -> Response:
    """A stopped training goes on exactly where it stopped."""
    lab, name = lab_of(request), text_of(await body_of(request), "run")
    path = lab.folder.run(name)
    if is_working(path):
        raise RegardError(f"{name} is training already.")
    return reply(
        await in_thread(lab.jobs.start, "training", ["resume", str(path)], title=f"going on: {name}", run=name)
    )


async def delete(request: Request) -> Response:
    return reply(await in_thread(lab_of(request).trash.put, text_of(await body_of(request), "run")))


async def restore(request: Request) -> Response:
    return reply(await in_thread(lab_of(request).trash.back, text_of(await body_of(request), "mark")))


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
