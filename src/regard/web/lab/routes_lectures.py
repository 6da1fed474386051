"""The view Lectures: the companion's pages, each section beside its lines of the notes, code, commands and claims."""

from __future__ import annotations

import re
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.learn.lectures.code_anchor import SOURCE, Anchor
from regard.learn.lectures.lecture_pages import ERRATA, LectureEntry, Page, folder, get_lecture, lectures
from regard.web.lab.application import asked, in_thread, reply
from regard.web.lab.requests import Lecture, OneName

BEFORE, AFTER = 2, 7  # lines of code that are shown around an anchor
LISTED = re.compile(r"^- (?:Code|Try|Claim|Exercise): .*\n?", re.M)  # shown beside the prose
PLACES = re.compile(r"^\*\d{3}:[^*]*\*\n+", re.M)


async def every(request: Request) -> Response:
    return reply([_head(page) for page in await in_thread(lambda: [*lectures(), get_lecture(ERRATA)])])


async def one(request: Request) -> Response:
    """`?number=003`"""
    return reply(await in_thread(_whole, (await asked(request, Lecture)).number))


async def figure(request: Request) -> Response:
    """`?name=figures/mask.svg`: a picture that a page names."""
    name = (await asked(request, OneName)).name
    if name not in await in_thread(_figures):
        raise HTTPException(404)
    return Response(await in_thread((folder() / name).read_bytes), media_type="image/svg+xml")


def _figures() -> set[str]:
    return {name for page in lectures() for entry in page.entries for name in entry.figures}


def _head(page: Page) -> dict[str, Any]:
    return {"number": page.number, "title": page.title, "summary": page.summary}


def _whole(number: str) -> dict[str, Any]:
    page = get_lecture(number)
    begin, *sections = re.split(r"^(?=## )", page.markdown, flags=re.M)
    entries = {entry.markdown: entry for entry in page.entries}
    return _head(page) | {
        "begin": "\n".join(begin.splitlines()[3:]),  # after title and summary
        "sections": [_section(text, entries.get(text.strip())) for text in sections],
    }


def _section(text: str, entry: LectureEntry | None) -> dict[str, Any]:
    title, _, prose = text.partition("\n")
    return {
        "title": title.removeprefix("## "),
        "lines": "; ".join(map(str, entry.lines)) if entry else "",
        "prose": PLACES.sub("", LISTED.sub("", prose)).strip("\n"),
        "code": list(map(_code, entry.code)) if entry else [],
        "commands": entry.commands if entry else (),
        "claims": entry.claims if entry else (),
        "exercises": entry.exercises if entry else (),
    }


def _code(anchor: Anchor) -> dict[str, Any]:
    """The line of code that a section names, with those around it; without them, if this is another version."""
    try:
        at = anchor.line
    except RegardError:
        return {"place": anchor.file, "first": 0, "at": 0, "lines": [anchor.text]}
    lines = (SOURCE / anchor.file).read_text(encoding="utf-8").splitlines()
    first = max(1, at - BEFORE)
    return {"place": anchor.place, "first": first, "at": at, "lines": lines[first - 1 : at + AFTER]}


ROUTES = [
    Route("/api/lectures", every),
    Route("/api/lectures/one", one),
    Route("/api/lectures/figure", figure),
]
