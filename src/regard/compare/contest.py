"""The runs of a comparison, one after another, each in a process of its own; what is finished is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.compare.plan import Entrant, Plan
from regard.report.progress import clock, say

Results = dict[tuple[str, int], dict[str, Any]]  # (label, seed) → result.json, or {"failed": sentence}


def run_all(plan: Plan) -> tuple[Results, int]:
    """Every run's result, and how many of them were made just now. A run that fails is noted; the others go on."""
    results: Results = {}
    missing: list[tuple[Entrant, int]] = []
    for entrant, seed in plan.runs:
        found = read_result(plan.run_folder(entrant, seed))
        if found is None:
            missing.append((entrant, seed))
        else:
            results[entrant.label, seed] = found
    if results:
        left = f"going on with the other {len(missing)}" if missing else "nothing is left to do"
        say(f"{plan.folder}: {len(results)} of {len(plan.runs)} runs were finished before; {left}")
    for number, (entrant, seed) in enumerate(missing, start=1):
        name = entrant.label if len(entrant.seeds) == 1 else f"{entrant.label}, seed {seed}"
        going_on = (plan.run_folder(entrant, seed) / "training.safetensors").exists()
        say(f"{name}: {'going on where it stopped' if going_on else 'begins'} ({number} of {len(missing)})")
        began = time.monotonic()
        result = results[entrant.label, seed] = _run(plan, entrant, seed)
        if "failed" in result:
            say(f"{name}: failed: {result['failed']}")
        else:
            perplexity = result["evaluation"]["perplexity"]
            say(f"{name}: perplexity {perplexity:.4g}; {clock(time.monotonic() - began)}")
    return results, len(missing)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if "evaluation" in result else None


def _run(plan: Plan, entrant: Entrant, seed: int) -> dict[str, Any]:
    threads = str(entrant.recipe.training.threads)
    words = [sys.executable, "-m", "regard.compare.child", str(plan.folder), entrant.label, str(seed)]
    child = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,  # kept open: the child stops when it closes, however this process ends
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        start_new_session=True,  # Ctrl-C comes to this process, which passes it on once
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with _passing_on_signals(child) as stopped, child.stdin, child.stdout:
        sentence = child.stdout.read().strip()
        child.wait()
    if stopped:
        say(f"stopped; the same command with --run {plan.folder} goes on from there")
        raise KeyboardInterrupt
    result = read_result(plan.run_folder(entrant, seed))
    if child.returncode == 0 and result is not None:
        return result
    if child.returncode == 2 and sentence:
        return {"failed": sentence}
    if child.returncode < 0:
        cause = signal.Signals(-child.returncode).name
        hint = " (out of memory?)" if cause == "SIGKILL" else ""
        return {"failed": f"its process was ended by {cause}{hint}."}
    return {"failed": f"its process ended with code {child.returncode}; what it said stands above."}


@contextmanager
def _passing_on_signals(child: subprocess.Popen[str]) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM ask the child to stop, with a checkpoint; a second one ends it at once."""
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard  # only the main thread hears signals
        return

    def ask(number: int, frame: Any) -> None:
        child.kill() if heard else child.terminate()
        heard.append(number)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
