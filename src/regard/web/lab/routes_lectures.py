"""The view Course: the chapters, each section with its formulas, code, commands and the verdicts of its claims."""

from __future__ import annotations

import re
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.learn.lectures.code_anchor import Anchor
from regard.learn.lectures.lecture_pages import (
    ABOUT,
    COMMENT,
    MISTAKES,
    LectureEntry,
    Page,
    find,
    folder,
    get_lecture,
    lectures,
    verdict_words,
)
from regard.learn.lectures.mathematics import FORMULA, as_tree
from regard.web.lab.application import asked, in_thread, reply
from regard.web.lab.requests import Lecture, OneName

LISTED = re.compile(r"^- (?:Code|Try|Claim|Exercise): .*\n?", re.M)  # shown beside the prose


async def every(request: Request) -> Response:
    return reply(await in_thread(lambda: [_head(one) for one in (*lectures(), *map(get_lecture, (MISTAKES, ABOUT)))]))


async def one(request: Request) -> Response:
    """`?name=recurrent`, or a line of the notes, `?name=003:49`"""
    return reply(await in_thread(_whole, (await asked(request, Lecture)).name))


async def figure(request: Request) -> Response:
    """`?name=figures/mask.svg`: a picture that a page names."""
    name = (await asked(request, OneName)).name
    if name not in await in_thread(_figures):
        raise HTTPException(404)
    return Response(await in_thread((folder() / name).read_bytes), media_type="image/svg+xml")


def _figures() -> set[str]:
    return {name for page in lectures() for entry in page.entries for name in entry.figures}


def _head(page: Page) -> dict[str, Any]:
    return {"name": page.name, "title": page.title, "summary": page.summary}


def _whole(name: str) -> dict[str, Any]:
    found = find(name) if ":" in name else None
    page = found.page if found else get_lecture(name)
    begin, *sections = re.split(r"^(?=## )", page.markdown, flags=re.M)
    entries = {entry.markdown: entry for entry in page.entries}
    return _head(page) | {
        "begin": "\n".join(begin.splitlines()[3:]),  # after title and summary
        "sections": [_section(text, entries.get(text.strip())) for text in sections],
        "formulas": {one[1] or one[2]: as_tree(one[1] or one[2], block=bool(one[1])) for one in _formulas(page)},
        "at": found.entry.title if found else "",
    }


def _formulas(page: Page) -> list[re.Match[str]]:
    return list(FORMULA.finditer(page.markdown))


def _section(text: str, entry: LectureEntry | None) -> dict[str, Any]:
    title, _, prose = text.partition("\n")
    claims = entry.claims if entry else ()
    return {
        "title": title.removeprefix("## "),
        "prose": COMMENT.sub("", LISTED.sub("", prose)).strip("\n"),
        "code": list(map(_code, entry.code)) if entry else [],
        "commands": entry.commands if entry else (),
        "claims": [{"name": claim, "words": verdict_words(claim, claim)} for claim in claims],
        "exercises": entry.exercises if entry else (),
    }


def _code(anchor: Anchor) -> dict[str, Any]:
    """The line of code that a section names, with those around it; without them, if this is another version."""
    try:
        lines = anchor.around()
    except RegardError:
        return {"place": anchor.file, "first": 0, "at": 0, "lines": [anchor.text]}
    return {"place": anchor.place, "first": lines[0][0], "at": anchor.line, "lines": [line for _, line in lines]}


ROUTES = [
    Route("/api/lectures", every),
    Route("/api/lectures/one", one),
    Route("/api/lectures/figure", figure),
]
