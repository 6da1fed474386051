"""The view Sentence: the same text through several runs, all that happens inside, and what may come next."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.lab.application import body_of, lab_of, reply, text_of

LONG = {"trace": 60, "page": 60, "matrix": 60, "following": 30, "write": 60, "edit": 30}  # seconds
GRADIENTS = 120


async def asked(request: Request) -> Response:
    """A question of `work_sentence.py`."""
    body = await body_of(request)
    name = request.path_params["name"]
    if name not in LONG:
        raise HTTPException(404)
    seconds = GRADIENTS if body.get("gradients") else LONG[name]
    answer = await lab_of(request).ask(f"sentence.{name}", body, seconds=seconds, only=text_of(body, "only"))
    return reply(answer)


ROUTES = [Route("/api/sentence/{name}", asked, methods=["POST"])]
