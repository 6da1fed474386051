"""The view Sentence: the same text through several runs, all that happens inside, and what may come next."""

from __future__ import annotations

from starlette.routing import Route

from regard.web.lab.application import questions

# Seconds that an answer may take.
LONG = {"page": 120, "cause": 120, "following": 30, "edit": 30} | dict.fromkeys(
    ("trace", "work", "matrix", "write", "example"), 60
)

ROUTES = [Route("/api/sentence/{name}", questions("sentence", LONG, gradients=120), methods=["POST"])]
