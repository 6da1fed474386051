"""The lab's server, assembled from one module of routes for each view. To add a view:

- **A view is** `routes_NAME.py` (a list ROUTES of Starlette routes under /api/NAME), `work_NAME.py` if it needs a model
  (WORK: functions that run in the worker process), and `static/views/NAME.js` (what is seen; see `static/shell.js`).
  List the first in VIEWS here, the second in VIEWS of `worker_process.py`, the third in VIEWS of `shell.js`, and the
  questions that its page may ask the worker in QUESTIONS of `requests.py`.
- **This process never imports torch** and never computes: it reads small files (`lab.folder`, see `runs_folder.py`),
  asks the worker process (`await lab.ask("sentence.trace", body)`), or starts a job (`lab.jobs`, a `regard …` command).
  Reading files blocks, so do it in a thread: `await in_thread(lab.folder.runs)`.
- **What a page asks is declared** in `requests.py`: `await asked(request, Curves)` has checked fields and nothing else.
- **Paths come from `lab.folder`** and from nothing else: `lab.folder.run(name)` refuses what leads out of the folder.
- **What is wrong is a RegardError**, one sentence; the page gets {"error": sentence} and shows it where it belongs.
  Every other exception becomes one sentence too, and its stack goes to the terminal.
- **A read-only lab** refuses every request that is not GET, unless its endpoint is marked `@reads` (`read_only.py`).
- **Numbers for the page** are JSON (`reply`), where they are few, or arrays as bytes (`packed_arrays.pack` in the
  worker, `api.arrays` in the page). Text is text: the page never makes markup of it.
- `regard.web` stands around all of it: Host and Origin, token, body limits, content-security policy.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard import __version__
from regard.base.errors import RegardError
from regard.base.fields import Fields
from regard.base.reading import parse_object
from regard.report.colours import lab_module, lab_variables
from regard.report.progress import say
from regard.report.table import finite
from regard.web.lab import uploads
from regard.web.lab.jobs import Jobs
from regard.web.lab.read_only import Forbidden, read_only_route, reads
from regard.web.lab.requests import QUESTIONS
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.samples import Samples
from regard.web.lab.trash import Trash
from regard.web.lab.worker import Busy, LabWorker, Overtaken, WorkerAnswer

VIEWS = (
    "runs",
    "ladder",
    "sentence",
    "translation",
    "time",
    "claims",
    "lectures",
    "exercises",
    "text",
)  # that have a routes_VIEW.py
STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FRESH = 0.5  # seconds
LANES = ("models", "settings", "exercises")  # worker processes: a form is not to wait for a long trace

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Fields)


@dataclass
class Lab:
    """The state shared by all routes: `lab_of(request)`."""

    folder: RunsFolder
    jobs: Jobs
    workers: dict[str, LabWorker]
    read_only: bool = False  # nothing is written, started or deleted
    is_local: bool = True  # only this machine can reach it
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # streams end when it is set

    def __post_init__(self) -> None:
        self.trash, self.samples = Trash(self.folder), Samples(self.folder, self.ask)
        self._looking, self._looked = asyncio.Lock(), -math.inf
        self._seen: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])

    async def look(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The runs and the jobs as they stand; one look serves all who ask within half a second."""
        async with self._looking:
            if time.monotonic() - self._looked > FRESH:
                self._seen = await in_thread(self.folder.runs), await in_thread(self.jobs.list)
                self._looked = time.monotonic()
            return self._seen

    async def ask(
        self, work: str, body: dict[str, Any], *, seconds: float = 60, only: str = "", lane: str = "models"
    ) -> WorkerAnswer:
        """Model work, in the worker process; see `worker.py`."""
        return await self.workers[lane].ask(work, body, seconds=seconds, only=only)


def lab_of(request: Request) -> Lab:
    return request.app.state.lab


async def in_thread(call: Callable[P, T], *words: P.args, **named: P.kwargs) -> T:
    """A call that reads files, in parallel with other requests."""
    return await run_in_threadpool(functools.partial(call, *words, **named))


async def asked(request: Request, kind: type[F]) -> F:
    """The checked fields of a request, from its JSON body or, without one, from the query."""
    if request.method != "POST":
        return kind.read_query(request.query_params.multi_items())
    return kind.read(await body_of(request), texts=True)  # an input's value is text, also that of a number


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that came with a request."""
    body = parse_object(await request.body() or b"{}")
    if body is None:
        raise RegardError("The request must contain one JSON object.")
    return body


def questions(view: str, seconds: Mapping[str, float], gradients: float) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of `/api/VIEW/{name}`, POST: a question of `work_VIEW.py`, by how long each may take at most, and
    any of them if it asks for gradients."""

    @reads
    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in seconds:
            raise HTTPException(404)
        return await question(request, f"{view}.{name}", seconds[name], gradients)

    return answer


async def question(
    request: Request, work: str, seconds: float = 60, gradients: float | None = None, lane: str = "models"
) -> Response:
    """A question of the page that the worker process answers."""
    body = await asked(request, QUESTIONS[work])
    most = gradients if gradients and getattr(body, "gradients", False) else seconds
    only = getattr(body, "only", "")
    return reply(await lab_of(request).ask(work, body.as_json(), seconds=most, only=only, lane=lane))


def reply(value: Any, status: int = 200) -> Response:
    """JSON; numbers that it cannot hold become null. An answer of the worker is passed on as it came."""
    if isinstance(value, WorkerAnswer):
        kind = "application/json" if value.kind == "json" else "application/octet-stream"
        return Response(value.content, status, media_type=kind)
    told = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    content = told.encode("utf-8", "backslashreplace")  # half a pair, as in the name of a file, is \ud800 in JSON
    return Response(content, status, media_type="application/json")


def application(root: Path, *, read_only: bool = False, is_local: bool = True) -> Starlette:
    """The lab over a folder of runs."""
    folder = RunsFolder(root)
    routes = [route for view in VIEWS for route in import_module(f"regard.web.lab.routes_{view}").ROUTES]

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        workers = {lane: LabWorker(folder.root) for lane in LANES}
        app.state.lab = lab = Lab(folder, Jobs(folder), workers, read_only, is_local)
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(lab.look())]  # the runs are known when the page asks
        if not read_only:
            await in_thread(uploads.forget_old, folder)
            tasks.append(asyncio.create_task(lab.samples.watch()))
        yield
        lab.closing.set()
        for task in tasks:
            task.cancel()
        lab.samples.close()
        for worker in lab.workers.values():
            await worker.close()
        if left := lab.jobs.close():
            say(f"{left} {'jobs are' if left > 1 else 'job is'} still running; `regard lab {root}` shows them again")

    return Starlette(
        routes=[
            *(map(read_only_route, routes) if read_only else routes),
            Route("/api/lab", about),
            Route("/colours.css", colours),
            Route("/colours.js", colours),
            Route("/", page),
            Route("/{path:path}", page),
        ],
        exception_handlers={
            RegardError: _refused,
            HTTPException: _no_such,
            Exception: _failed,
        },
        lifespan=life,
    )


async def about(request: Request) -> Response:
    """Version and folder, for the page header."""
    lab = lab_of(request)
    folder = {"folder": str(lab.folder.root), "name": lab.folder.root.name}
    return reply({"version": __version__, **folder, "read_only": lab.read_only})


# -- what is seen ----------------------------------------------------------------------------------------------------


async def page(request: Request) -> Response:
    """A file of `static/`; only names that were there when they were listed are files."""
    name = request.path_params.get("path") or "index.html"
    path = _static_files().get(name)
    if path is None:
        raise HTTPException(404)
    return _sent(request, TYPES[path.suffix], *_packed(path, path.stat().st_mtime_ns))


async def colours(request: Request) -> Response:
    """The colors of every page of Regard (`report/colours.py`), as style and as numbers for a canvas."""
    is_style = request.url.path.endswith(".css")
    content = (lab_variables() if is_style else lab_module()).encode()
    return _sent(request, TYPES[".css" if is_style else ".js"], content, *_shrunk(content))


@functools.cache
def _static_files() -> dict[str, Path]:
    return {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in TYPES}


@functools.lru_cache(maxsize=256)
def _packed(path: Path, changed: int) -> tuple[bytes, bytes, str]:
    content = path.read_bytes()
    return content, *_shrunk(content)


@functools.lru_cache(maxsize=8)
def _shrunk(content: bytes) -> tuple[bytes, str]:
    return gzip.compress(content, 9, mtime=0), f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def _sent(request: Request, kind: str, content: bytes, small: bytes, mark: str) -> Response:
    """Asked for each time, sent only if it is another than the browser has."""
    headers = {"etag": mark, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(small, media_type=kind, headers=headers | {"content-encoding": "gzip"})
    return Response(content, media_type=kind, headers=headers)


# -- what goes wrong -------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    statuses: dict[type, int] = {Busy: 503, Overtaken: 409, Forbidden: 403}
    status = statuses.get(type(error), 400)
    return reply({"error": " ".join(str(error).split())}, status)


async def _no_such(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return reply(
        {"error": "There is nothing at this address." if status == 404 else "This method is not allowed here."}, status
    )


async def _failed(request: Request, error: Exception) -> Response:
    """The server then raises it again, and writes its stack to the terminal."""
    return reply(
        {"error": f"The lab failed to answer this request ({type(error).__name__}): see its terminal for details."}, 500
    )
