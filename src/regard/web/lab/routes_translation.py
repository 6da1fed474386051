"""The view Translation: one sentence with all that happens inside, and a whole file through one run or two."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.web.lab.application import Lab, asked, in_thread, lab_of, questions, reply
from regard.web.lab.guarded_folder import UPLOADS
from regard.web.lab.requests import Evaluation, Results

LONG = {"page": 120, "cause": 120, "work": 60, "trace": 60, "matrix": 60, "begin": 30, "example": 60}  # seconds
SPLITS = ("valid", "test")
KIND = "evaluation"  # of the jobs
HIDDEN = ("sources", "references", "translations")  # of a result: asked for by `differences`


async def evaluate(request: Request) -> Response:
    """A job that translates a whole split, or a file that was dropped into the lab."""
    lab, body = lab_of(request), await asked(request, Evaluation)
    run, words = await in_thread(_words, lab, body.run, body.data)
    return reply(await in_thread(lab.jobs.start, KIND, words, title=f"evaluate {run}"))


async def results(request: Request) -> Response:
    """`?run=…&run=…&data=valid`: how far each evaluation is and what it found; and where two of them differ."""
    lab, query = lab_of(request), await asked(request, Results)
    found = [await in_thread(_result, lab, name, query.data) for name in query.run]
    done = [one["job"] for one in found if one["result"] is not None]
    told: dict[str, Any] = {"runs": found, "differences": None, "data": [*SPLITS, *await in_thread(_files, lab)]}
    if found and len(done) == len(found):
        try:
            told["differences"] = (await lab.ask("translation.differences", {"jobs": done})).value
        except RegardError as error:
            told["problem"] = str(error)
    return reply(told)


def _files(lab: Lab) -> list[str]:
    return [f"{UPLOADS}/{file['name']}" for file in lab.folder.uploads()]


def _words(lab: Lab, name: str, data: str) -> tuple[str, list[str]]:
    """The command that evaluates a run on one of its splits or on a file in the lab's folder."""
    words = ["evaluate", str(lab.folder.run(name)), "--by-length", "--texts", "--json"]
    if data in SPLITS:
        return name, [*words, "--split", data]
    if data not in _files(lab):
        raise RegardError(
            f"There is no split or file {data[:80]!r} here: choose valid, test, or a file in this folder."
        )
    return name, [*words, "--data", str(lab.folder.inside(data, kind="file"))]


def _result(lab: Lab, name: str, data: str) -> dict[str, Any]:
    """The newest evaluation of these weights on this data; None if there is none."""
    _, words = _words(lab, name, data)
    command = "regard " + " ".join(words)
    weights = lab.folder.run(name) / "model.safetensors"
    changed = weights.stat().st_mtime if weights.is_file() else 0.0
    job = next((job for job in lab.jobs.list() if job["kind"] == KIND and job["command"] == command), None)
    if job is None or job["started"] < changed:
        return {"run": name, "job": None, "running": False, "problem": "", "last": "", "result": None}
    told: dict[str, Any] = {"run": name, "job": job["id"]} | {key: job[key] for key in ("running", "problem", "last")}
    try:
        found = json.loads(lab.jobs.result(job["id"]))
        return {**told, "result": {key: value for key, value in found.items() if key not in HIDDEN}}
    except (ValueError, AttributeError, RecursionError):  # it runs still, or the file is not its own
        return {**told, "result": None}


ROUTES = [
    Route("/api/translation/results", results),
    Route("/api/translation/evaluate", evaluate, methods=["POST"]),
    Route("/api/translation/{name}", questions("translation", LONG, gradients=120), methods=["POST"]),
]
