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
    from regard.classification import ClassificationRun
    from regard.compare.comparison import Comparison, compare
    from regard.errors import RegardError
    from regard.fit import resume, train
    from regard.layers.pooling import attention
    from regard.prediction import Prediction
    from regard.run import Run, load
    from regard.translation import Translation, TranslationRun

_HOMES = {
    "ClassificationRun": "classification",
    "Comparison": "compare.comparison",
    "RegardError": "errors",
    "attention": "layers.pooling",
    "resume": "fit",
    "train": "fit",
    "Prediction": "prediction",
    "Run": "run",
    "load": "run",
    "Translation": "translation",
    "TranslationRun": "translation",
}
__all__ = [
    "ClassificationRun", "Comparison", "Prediction", "RegardError", "Run", "Translation", "TranslationRun", "attention",
    "compare", "load", "resume", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The front door opens a module only when it is used: `import regard` does not load torch."""
    from importlib import import_module

    if name == "compare":  # a package that answers a call
        return import_module("regard.compare")
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(f"regard.{_HOMES[name]}"), name)
