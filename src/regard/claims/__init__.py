"""The statements of the lectures, tested: `regard claims`, or in Python

from regard.claims import run_claim
run_claim("any-b", q=5.0)          # a notebook shows the result with its figure
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {"run_claim": "runner", "run_claims": "runner", "get_claim": "all_claims", "NAMES": "all_claims"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.claims' has no attribute {name!r}")
    return getattr(import_module(f"regard.claims.{_HOMES[name]}"), name)
