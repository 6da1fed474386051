"""Regard: sequence models from n-grams to GPT and Llama.

import regard
run = regard.train("lstm", data="my.txt", run="runs/mine")
run = regard.load("runs/mine")
prediction, state = run("The", None)
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would take half of the time of this import

# Two busy torch processes on the same cores slow each other tenfold and more while idle threads spin, and one alone
# loses a fifth if they sleep at once. So they spin for a moment. Must be set before torch is loaded; a value the user
# has chosen stays.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from regard.base.errors import RegardError
    from regard.comparison.comparison import Comparison, compare
    from regard.decoding.beam import Beam
    from regard.decoding.sampling import Sampling
    from regard.exchange.export_and_import import export, import_model
    from regard.insight.interventions.changing import intervene
    from regard.insight.trace import Trace
    from regard.layers.cell import Cell
    from regard.layers.layer import Layer
    from regard.pooling import attention, density
    from regard.runs.load import load
    from regard.runs.prediction import Prediction
    from regard.runs.resume import resume
    from regard.runs.run import Run
    from regard.runs.store.history import History
    from regard.runs.tasks.classification.run import ClassificationRun, Labelling
    from regard.runs.tasks.language.run import LanguageRun
    from regard.runs.tasks.translation.answers import Translation
    from regard.runs.tasks.translation.run import TranslationRun
    from regard.runs.train import train
    from regard.systems.model import Model

_HOMES = {
    "Beam": "decoding.beam",
    "Cell": "layers.cell",
    "ClassificationRun": "runs.tasks.classification.run",
    "Comparison": "comparison.comparison",
    "History": "runs.store.history",
    "Labelling": "runs.tasks.classification.run",
    "LanguageRun": "runs.tasks.language.run",
    "Layer": "layers.layer",
    "Model": "systems.model",
    "Prediction": "runs.prediction",
    "RegardError": "base.errors",
    "Run": "runs.run",
    "Sampling": "decoding.sampling",
    "Trace": "insight.trace",
    "Translation": "runs.tasks.translation.answers",
    "TranslationRun": "runs.tasks.translation.run",
    "attention": "pooling",
    "compare": "comparison.comparison",
    "density": "pooling",
    "export": "exchange.export_and_import",
    "import_model": "exchange.export_and_import",
    "intervene": "insight.interventions.changing",
    "load": "runs.load",
    "resume": "runs.resume",
    "train": "runs.train",
}
__all__ = [
    "Beam", "Cell", "ClassificationRun", "Comparison", "History", "Labelling", "LanguageRun", "Layer", "Model",
    "Prediction", "RegardError", "Run", "Sampling", "Trace", "Translation", "TranslationRun", "attention", "compare",
    "density", "export", "import_model", "intervene", "load", "resume", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The front door opens a module only when it is used: `import regard` does not load torch."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(f"regard.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
