"""One run of a comparison in its own process: `python -m regard.comparison.child FOLDER LABEL SEED JOBS CODE…`.

A separate process makes its peak memory measurable, and a crash affects no other run. It trains or resumes the run,
evaluates it, and writes `result.json` to the run's folder; an error is one sentence on stdout and exit code 2.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.base.device import device_name, peak_memory
from regard.base.digests import read_with_digest, with_digest
from regard.base.errors import RegardError, Stopped
from regard.base.writing import write_text
from regard.comparison.plan import Entrant, Plan
from regard.comparison.tuning import validated
from regard.report.progress import hush
from regard.runs.load import AnyRun
from regard.runs.resume import resume
from regard.runs.run import Run
from regard.runs.run_report import NAME, write_report
from regard.runs.store.facts import read_facts
from regard.runs.train import train_recipe
from regard.systems.own.code import named_before
from regard.training.checkpoint import load_tensors


def main(words: list[str]) -> None:
    folder, label, seed, jobs = Path(words[0]), words[1], int(words[2]), int(words[3])
    named_before(words[4:])
    _end_with_parent()
    hush()
    try:
        plan = Plan.read(folder)
        entrant = next(entrant for entrant in plan.entrants if entrant.label == label)
        take_part(plan, entrant, seed, jobs)
    except (RegardError, OSError) as error:  # a full or broken disk too
        print(" ".join(str(error).split()))
        sys.exit(2)
    except (Stopped, KeyboardInterrupt):  # only its parent sees the code
        sys.exit(130)


def take_part(plan: Plan, entrant: Entrant, seed: int, jobs: int = 1) -> None:
    folder = plan.run_folder(entrant, seed)
    path = folder / "result.json"
    run, before = _train(plan, entrant, seed, folder)
    if path.exists():  # trained by an earlier process, which saved its measurements
        trained = read_with_digest(path)
    else:
        trained = _effort(run, before) | {"side_by_side": jobs}
        write_text(path, json.dumps(with_digest(trained), indent=2) + "\n")
    if not (folder / NAME).exists():  # the disk failed while its report was written, which only printed a note
        write_report(run)
    measured = validated(run) if plan.of_trials else plan.task.measure(plan, entrant, run)
    write_text(path, json.dumps(with_digest(trained | measured), indent=2, ensure_ascii=False) + "\n")


def _train(plan: Plan, entrant: Entrant, seed: int, folder: Path) -> tuple[AnyRun, int]:
    """The trained run, and the memory that this process used before."""
    before = peak_memory(torch.device("cpu"))
    if folder.is_symlink():
        raise RegardError(f"{folder} is a link that points outside the comparison: replace it with the run itself.")
    tokenizers = plan.tokenizers
    recipe = entrant.recipe.replace(training={"seed": seed})
    if (folder / "run.json").exists() and entrant.counted:  # killed before it saved the cost of counting
        with TemporaryDirectory() as scratch:
            run = train_recipe(recipe, Path(scratch) / entrant.label, tokenizers=tokenizers)
        run.folder = folder  # counts again: the same numbers, and notes that only counting prints
        write_report(run)  # it may have been killed before its first
        return run, before
    if (folder / "run.json").exists():
        return resume(folder), before
    return train_recipe(recipe, folder, tokenizers=tokenizers), before


def _effort(run: Run, before: int) -> dict[str, Any]:
    """Time and tokens of the training, from the run's files, and its peak memory."""
    device = run.model.device
    checkpoint = run.folder / "training.safetensors"
    note = load_tensors(checkpoint if checkpoint.exists() else run.folder / "model.safetensors")[1]
    at = note.get("progress") or read_facts(run.folder) | note
    return {
        "parameters": run.parameters,
        "tokens_seen": at["tokens"],
        "steps": at.get("step"),
        "training_seconds": at["seconds"],
        "peak_memory_bytes": peak_memory(device),
        "memory_before_bytes": before if device.type == "cpu" else 0,
        "memory_of": "GPU" if device.type == "cuda" else "process",
        "device": device_name(device),
        "threads": run.recipe.training.threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _end_with_parent() -> None:
    """Stops with a checkpoint when the parent process ends, which closes our stdin."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # unbuffered: Python closes its buffers at exit
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    if not sys.stdin.isatty():
        threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
