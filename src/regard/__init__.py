"""Regard: every sequence model from the n-gram to GPT.

import regard
run = regard.train("lstm", data="my.txt", run="runs/mine")
run = regard.load("runs/mine")
prediction, state = run("The", None)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Two busy torch processes on the same cores slow each other a hundredfold unless idle threads sleep. Must be set before
# torch is loaded; a value the user has chosen stays.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard.base.errors import RegardError
    from regard.compare.comparison import Comparison, compare
    from regard.layers.pooling import attention, density
    from regard.runs.classification_run import ClassificationRun
    from regard.runs.language_run import Run, load
    from regard.runs.prediction import Prediction
    from regard.runs.train import resume, train
    from regard.runs.translation_run import Translation, TranslationRun

_HOMES = {
    "ClassificationRun": "runs.classification_run",
    "Comparison": "compare.comparison",
    "RegardError": "base.errors",
    "attention": "layers.pooling",
    "density": "layers.pooling",
    "resume": "runs.train",
    "train": "runs.train",
    "Prediction": "runs.prediction",
    "Run": "runs.language_run",
    "load": "runs.language_run",
    "Translation": "runs.translation_run",
    "TranslationRun": "runs.translation_run",
}
__all__ = [
    "ClassificationRun", "Comparison", "Prediction", "RegardError", "Run", "Translation", "TranslationRun", "attention",
    "compare", "density", "load", "resume", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The front door opens a module only when it is used: `import regard` does not load torch."""
    from importlib import import_module

    if name == "compare":  # a package that answers a call
        return import_module("regard.compare")
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(f"regard.{_HOMES[name]}"), name)
