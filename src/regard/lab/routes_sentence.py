"""The view Sentence: the same text through several runs, all that happens inside, and what may come next."""

from __future__ import annotations

from starlette.routing import Route

from regard.lab.application import questions

LONG = {"trace": 60, "page": 120, "work": 60, "matrix": 60, "following": 30, "write": 60, "edit": 30}  # seconds

ROUTES = [Route("/api/sentence/{name}", questions("sentence", LONG, gradients=120), methods=["POST"])]
