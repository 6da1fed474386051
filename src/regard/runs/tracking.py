"""Experiment trackers: `--track tensorboard` or `--track mlflow`, both without a network.

metrics.jsonl is authoritative. A tracker is a callback that receives each row as it is written. When a run is resumed,
or tracked for the first time, the tracker also receives the rows that it lacks, so its curves always equal those of
metrics.jsonl, even after a kill. If a tracker fails, Regard warns once and training continues.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from regard.base.errors import RegardError
from regard.base.reading import MAX_JSON_BYTES, read_whole
from regard.base.settings import check_choice
from regard.base.writing import write_text
from regard.report.progress import say
from regard.runs.recipe import Recipe, written_in
from regard.runs.store.facts import read_facts
from regard.runs.store.history import Entry, is_number, read_metrics
from regard.systems.catalogue import find

TRACKERS = ("tensorboard", "mlflow")


def check_tracker(name: str, recipe: Recipe) -> None:
    """Refuse a tracker that is not known or not installed, before anything is trained."""
    if not name:
        return
    check_choice("--track", name, TRACKERS)
    if find(recipe.system).trained == "counting":
        raise RegardError(f"{recipe.system} is trained by counting, so it has no curves: leave out --track.")
    if find_spec(name) is None:
        raise RegardError(f"--track {name} needs a package that is not installed: pip install 'regard[{name}]'.")


def scalars(row: Entry) -> dict[str, float]:
    """The numbers of a row of metrics.jsonl by the names of their curves: train/loss, valid/bleu, …"""
    part = row.get("split", "train")
    return {f"{part}/{key}": float(value) for key, value in row.items() if key != "step" and is_number(value)}


class Tracker(Protocol):
    def add(self, row: Entry, when: float | None = None) -> None:
        """Add a row of metrics.jsonl; `when`: the time at which it was written, if not now."""

    def end(self, step: int, texts: Sequence[Mapping[str, str]]) -> None:
        """The finished run's samples."""

    def close(self) -> None: ...


class NoTracker:
    def add(self, row: Entry, when: float | None = None) -> None: ...
    def end(self, step: int, texts: Sequence[Mapping[str, str]]) -> None: ...
    def close(self) -> None: ...


@contextmanager
def tracking(name: str, folder: Path, recipe: Recipe) -> Iterator[Tracker]:
    """The tracker of a run before training, updated with all rows of metrics.jsonl so far."""
    if not name:
        yield NoTracker()
        return
    tracker = Patient(lambda: TensorBoard(folder, recipe) if name == "tensorboard" else MLflow(folder, recipe))
    began = datetime.datetime.fromisoformat(read_facts(folder)["created"]).timestamp()
    for row in read_metrics(folder / "metrics.jsonl"):
        tracker.add(row, began + row["seconds"])
    try:
        yield tracker
    finally:
        tracker.close()


class Patient:
    """A tracker that warns at its first failure and then does nothing."""

    def __init__(self, build: Callable[[], Tracker]) -> None:
        self.tracker: Tracker = NoTracker()
        self._try(lambda: setattr(self, "tracker", build()))

    def _try(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # of someone else's program
            say(
                f"note: the curves are no longer logged ({type(error).__name__}: {error}); metrics.jsonl still "
                "records them"
            )
            self.tracker = NoTracker()

    def add(self, row: Entry, when: float | None = None) -> None:
        self._try(lambda: self.tracker.add(row, when))

    def end(self, step: int, texts: Sequence[Mapping[str, str]]) -> None:
        self._try(lambda: self.tracker.end(step, texts))

    def close(self) -> None:
        self._try(lambda: self.tracker.close())


def hyperparameters(recipe: Recipe) -> dict[str, bool | int | float | str]:
    """Every setting by its name, in the form that trackers accept."""
    tree = recipe.tree()
    flat = {f"{part}.{key}": value for part in ("data", "model", "training") for key, value in tree[part].items()}
    return {"system": recipe.system, "size": recipe.size} | flat


def as_markdown(texts: Sequence[Mapping[str, str]]) -> str:
    """A run's samples, one block for each text."""
    blocks = ["\n".join(f"{name}: {text}" if name else text for name, text in one.items()) for one in texts]
    return "\n\n".join("\n".join(f"    {line}" for line in block.split("\n")) for block in blocks)


class TensorBoard:
    """Event files in the run's folder `tensorboard`, rewritten when the run is resumed: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        place = folder / "tensorboard"
        if place.is_symlink():
            raise RegardError(f"{place} is a link that points outside the run: replace it with a real folder")
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = SummaryWriter(place, purge_step=0, flush_secs=10)  # TensorBoard then drops the old curves
        for summary in hparams(hyperparameters(recipe), {"valid/loss": 0}):
            self.writer._get_file_writer().add_summary(summary)
        self.writer.add_text("recipe", as_markdown([{"": written_in(recipe, folder)}]), 0)
        say(f"to see the curves: tensorboard --logdir {folder.parent}")

    def add(self, row: Entry, when: float | None = None) -> None:
        for name, value in scalars(row).items():
            self.writer.add_scalar(name, value, row["step"], walltime=when)

    def end(self, step: int, texts: Sequence[Mapping[str, str]]) -> None:
        if texts:
            self.writer.add_text("what it writes", as_markdown(texts), step)

    def close(self) -> None:
        self.writer.close()


class MLflow:
    """A run in the database mlflow.db next to the run's folder, or at MLFLOW_TRACKING_URI."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no telemetry
        os.environ.setdefault("DO_NOT_TRACK", "true")
        import logging

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        from mlflow import MlflowClient

        beside = folder.resolve().parent / "mlflow.db"
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{beside.as_posix()}"
        self.client = MlflowClient(where)
        self.run = self._found(folder / "mlflow.json", where)
        if not self.run:
            experiment = self.client.get_experiment_by_name("regard")
            number = (
                experiment.experiment_id
                if experiment is not None
                else self.client.create_experiment("regard", artifact_location=(beside.parent / "mlflow").as_uri())
            )
            self.run = self.client.create_run(number, run_name=folder.resolve().name).info.run_id
            for name, value in hyperparameters(recipe).items():
                self.client.log_param(self.run, name, value)
            write_text(folder / "mlflow.json", json.dumps({"tracking_uri": where, "run_id": self.run}) + "\n")
        self.known = {name: self._last_step(name) for name in ("train/loss", "valid/loss")}
        say(f"to see the curves: mlflow ui --backend-store-uri {where}")

    def _found(self, path: Path, where: str) -> str:
        """The id of this run in the tracker; "" if the tracker does not know it."""
        from mlflow.exceptions import MlflowException

        with suppress(RegardError, ValueError, KeyError, TypeError, RecursionError, MlflowException):
            noted = json.loads(read_whole(path, MAX_JSON_BYTES))
            if noted["tracking_uri"] == where:
                self.client.update_run(noted["run_id"], status="RUNNING")
                return str(noted["run_id"])
        return ""

    def _last_step(self, name: str) -> int:
        return max((metric.step for metric in self.client.get_metric_history(self.run, name)), default=-1)

    def add(self, row: Entry, when: float | None = None) -> None:
        from mlflow.entities import Metric

        if row["step"] <= self.known[f"{row.get('split', 'train')}/loss"]:  # it was there before a kill
            return
        then = int(1000 * (time.time() if when is None else when))
        metrics = [Metric(name, value, then, row["step"]) for name, value in scalars(row).items()]
        self.client.log_batch(self.run, metrics=metrics)

    def end(self, step: int, texts: Sequence[Mapping[str, str]]) -> None:
        if texts:
            self.client.log_text(self.run, as_markdown(texts), "what it writes.md")

    def close(self) -> None:
        self.client.set_terminated(self.run)
