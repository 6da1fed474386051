"""The view Runs: all runs live, their curves, a form for a new one, and what can be done with each."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.base.errors import RegardError
from regard.lab.application import in_thread, lab_of, reply
from regard.lab.events import events
from regard.lab.runs_folder import COLUMNS, RunsFolder

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
    from regard.lab.packed_arrays import pack

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


ROUTES = [
    Route("/api/runs", runs),
    Route("/api/runs/events", events),
    Route("/api/runs/curves", curves),
]
