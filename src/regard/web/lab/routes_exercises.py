"""The view Exercises: sheets with one blank each, hints, and the grader.

Checking an answer runs a user's code. So it needs more than the other routes: a lab on a loopback address that is not
read-only, and the token of the address that `regard lab` printed, which no other user of the machine knows.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.learn.exercises.exercise_list import EXERCISES, Exercise, find_exercise
from regard.learn.exercises.grading_process import LIMIT
from regard.learn.exercises.progress import answer_of, progress_of
from regard.learn.lectures.lecture_pages import CHAPTERS, find
from regard.web.lab.application import asked, in_thread, lab_of, question, reply
from regard.web.lab.read_only import Forbidden
from regard.web.lab.requests import OneExercise

LANE = "exercises"  # a worker of its own: other questions do not wait for an answer that never ends
SECONDS = LIMIT + 40.0  # two processes load torch


async def every(request: Request) -> Response:
    """All exercises by chapter, with the progress on this machine."""
    personal = not lab_of(request).read_only
    rows = await in_thread(lambda: [_head(one, personal) for one in EXERCISES])
    return reply({"exercises": sorted(rows, key=lambda row: (row["chapter"], row["level"]))})


async def one(request: Request) -> Response:
    """`?name=causal-mask`: the sheet, the last answer, and the hints."""
    exercise = find_exercise((await asked(request, OneExercise)).name)
    personal = not lab_of(request).read_only
    found = await in_thread(_head, exercise, personal)
    answer = await in_thread(answer_of, exercise) if personal else ""
    return reply(
        found
        | {
            "sheet": exercise.sheet.replace("run: regard exercise check FILE", "press Check"),
            "answer": answer,
            "hints": exercise.hints,
            "refusal": _refusal(request),
        }
    )


async def check(request: Request) -> Response:
    """Grades the answer: right, or one sentence about the mistake."""
    if refusal := _refusal(request):
        raise Forbidden(refusal)
    return await question(request, "exercises.check", seconds=SECONDS, lane=LANE)


async def own(request: Request) -> Response:
    """`?name=causal-mask`: Regard's own code, once an answer was right."""
    return await question(request, "exercises.own", lane=LANE)


def _refusal(request: Request) -> str:
    """Why this client may not run code here; "" if it may."""
    lab = lab_of(request)
    if lab.read_only:
        return "This lab is read-only: to check answers, open your own with `regard lab`."
    if not lab.is_local:
        return "Other machines can reach this lab, so it does not run answers: open a lab on 127.0.0.1."
    if not request.scope.get("token_shown"):
        return "Checking runs your code and needs the token: open the lab once with the URL that `regard lab` printed."
    return ""


def _head(exercise: Exercise, personal: bool) -> dict[str, Any]:
    found = find(exercise.lecture)
    return {
        "name": exercise.name,
        "title": exercise.title,
        "level": exercise.level,
        "chapter": CHAPTERS.index(found.page.name) + 1,
        "page": {"name": found.page.name, "title": found.page.title, "section": found.entry.title},
        **(progress_of(exercise) if personal else {"solved": False, "checks": 0, "right": False, "sentence": ""}),
    }


ROUTES = [
    Route("/api/exercises", every),
    Route("/api/exercises/one", one),
    Route("/api/exercises/check", check, methods=["POST"]),
    Route("/api/exercises/own", own),
]
