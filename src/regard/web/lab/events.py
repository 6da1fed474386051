"""News for the page as server-sent events: runs that appeared or changed, and the points that were added to curves.

One look at the folder serves all open pages, about once a second, and only while a page is open. A page says how many
rows of which curves it has; it is sent only what came after.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from regard.base.fields import whole_number
from regard.report.table import finite
from regard.web.lab.application import Lab, asked, in_thread, lab_of
from regard.web.lab.requests import Since

EVERY = 0.8  # seconds between two looks
QUIET = 15.0  # seconds after which a comment keeps the connection open


def event(name: str, value: Any) -> bytes:
    told = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {told}\n\n".encode("utf-8", "backslashreplace")  # as in `reply`


async def events(request: Request) -> StreamingResponse:
    """`?since=NAME:ROWS` for each curve that the page has, URL-encoded; the others start with what is there now."""
    known: dict[str, tuple[int, int]] = {}
    for one in (await asked(request, Since)).since:
        name, _, rows = one.rpartition(":")
        age, _, count = rows.rpartition(".")
        numbers = whole_number(age or "0"), whole_number(count)
        if numbers[0] is not None and numbers[1] is not None:
            known[name] = (numbers[0], numbers[1])
    return StreamingResponse(
        _news(lab_of(request), request, known), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )


async def _news(lab: Lab, request: Request, known: dict[str, tuple[int, int]]) -> AsyncIterator[bytes]:
    before: dict[str, str] = {}
    told: list[Any] | None = None
    quiet = 0.0
    while not lab.closing.is_set() and not await request.is_disconnected():
        runs, jobs = await lab.look()
        sent = []
        changed = {run["name"]: run for run in runs if before.get(run["name"]) != json.dumps(run)}
        if changed or before.keys() != {run["name"] for run in runs}:
            before = {run["name"]: json.dumps(run) for run in runs}
            sent.append(event("runs", {"changed": list(changed.values()), "names": [run["name"] for run in runs]}))
        for run in runs:
            if run["state"] != "running" and run["name"] not in known:
                continue  # nothing comes
            curve = await in_thread(lab.folder.curve, lab.folder.root / run["name"])
            age, rows = known.setdefault(run["name"], (curve.age, curve.rows))
            if age != curve.age:
                rows = 0
            if added := curve.since(rows):
                sent.append(event("points", {"run": run["name"], "age": curve.age, "from": rows, "rows": added}))
            known[run["name"]] = (curve.age, rows + len(added))
        if jobs != told:
            told = jobs
            sent.append(event("jobs", jobs))
        quiet = 0.0 if sent else quiet + EVERY
        if quiet > QUIET:
            sent, quiet = [b": still here\n\n"], 0.0
        for one in sent:
            yield one
        try:
            await asyncio.wait_for(lab.closing.wait(), EVERY)
        except TimeoutError:
            continue
