"""Runs a comparison's trainings, one at a time or several in parallel, each in its own process.

Finished runs are not repeated.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.base.digests import read_with_digest
from regard.base.errors import RegardError, Terminated
from regard.base.numbers import pluralize
from regard.comparison.elsewhere import Elsewhere
from regard.comparison.plan import Entrant, Plan
from regard.comparison.task import Results
from regard.report.progress import clock, say
from regard.systems.own.code import named_here

MEASURED = ("parameters", "tokens_seen", "training_seconds", "peak_memory_bytes")  # numbers in every result


def run_all(plan: Plan, jobs: int = 1, place: Elsewhere | None = None) -> tuple[Results, int]:
    """Every run's result, and how many were trained by this call, `jobs` at a time; `place`: on other machines.

    A failed run is recorded; the others continue.
    """
    results: Results = {}
    missing: list[tuple[Entrant, int]] = []
    for entrant, seed in plan.runs:
        found = read_result(plan.run_folder(entrant, seed))
        if found is None:
            missing.append((entrant, seed))
        else:
            results[entrant.label, seed] = found
    if results:
        left = f"continuing with the other {len(missing)}" if missing else "nothing is left to do"
        say(f"{plan.folder}: {len(results)} of {pluralize(len(plan.runs), 'run')} were already finished; {left}")
    jobs = max(1, min(jobs, len(missing)))
    contest = _Contest(plan, jobs, len(missing), place)
    with contest.passing_on_signals(), ThreadPoolExecutor(jobs) as pool:
        made = [
            pool.submit(contest.run, entrant, seed, number) for number, (entrant, seed) in enumerate(missing, start=1)
        ]
    if contest.signals:
        say(f"stopped; to continue, run the same command with --run {plan.folder}")
        raise Terminated if contest.signals[0] == signal.SIGTERM else KeyboardInterrupt
    for (entrant, seed), future in zip(missing, made):
        results[entrant.label, seed] = future.result()
    return {(entrant.label, seed): results[entrant.label, seed] for entrant, seed in plan.runs}, len(missing)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished."""
    try:
        result = read_with_digest(folder / "result.json")
    except RegardError:
        return None
    whole = isinstance(result.get("evaluation"), dict)
    whole = whole and all(isinstance(result.get(name), int | float) for name in MEASURED)
    return result if whole else None


def _headline(plan: Plan, evaluation: dict[str, Any]) -> str:
    if not plan.of_trials:
        return plan.task.headline(evaluation)
    loss = evaluation["validation"]
    return "no finite validation" if loss is None else f"validation loss {loss:.4f}"


class _Contest:
    """The running processes, and the signals received."""

    def __init__(self, plan: Plan, jobs: int, runs: int, place: Elsewhere | None = None):
        self.plan, self.jobs, self.runs, self.place = plan, jobs, runs, place
        self.children: list[subprocess.Popen[str]] = []
        self.signals: list[int] = []  # received

    def run(self, entrant: Entrant, seed: int, number: int) -> dict[str, Any]:
        """One run, with its log lines."""
        if self.signals:
            return {"failed": "stopped."}
        name = entrant.label if len(entrant.seeds) == 1 else f"{entrant.label}, seed {seed}"
        going_on = (self.plan.run_folder(entrant, seed) / "training.safetensors").exists()
        say(f"{name}: {'continuing where it stopped' if going_on else 'starting'} ({number} of {self.runs})")
        began = time.monotonic()
        result = self._result(entrant, seed)
        if self.signals:
            return result
        if "failed" in result:
            say(f"{name}: failed: {result['failed']}")
        else:
            headline = _headline(self.plan, result["evaluation"])
            say(f"{name}: {headline}; {clock(time.monotonic() - began)}")
        return result

    def _result(self, entrant: Entrant, seed: int) -> dict[str, Any]:
        code, sentence, log = self._process(entrant, seed)
        result = read_result(self.plan.run_folder(entrant, seed))
        if code == 0 and result is not None:
            return result
        if code == 2 and sentence:
            return {"failed": sentence}
        if code < 0:
            cause = signal.Signals(-code).name
            hint = " (out of memory?)" if cause == "SIGKILL" else ""
            return {"failed": f"its process was killed by {cause}{hint}."}
        if log and not self.signals:
            say(log)
        return {"failed": f"its process exited with code {code}; see its output above."}

    def _process(self, entrant: Entrant, seed: int) -> tuple[int, str, str]:
        """The exit code of the run's process, its stdout, and its log, if not shown already."""
        threads = str(entrant.recipe.training.threads)
        if self.place is not None:  # each run has its machine, or its share of one, to itself
            words = [str(self.plan.folder.resolve()), entrant.label, str(seed), "1", *named_here()]
            return self.place.run(words, int(threads))
        words = [str(self.plan.folder), entrant.label, str(seed), str(self.jobs), *named_here()]
        child = subprocess.Popen(
            # -P: do not import from the current folder
            [sys.executable, "-P", "-m", "regard.comparison.child", *words],
            stdin=subprocess.PIPE,  # the child stops when it closes, however this process ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if self.jobs > 1 else None,  # several progress bars would overwrite each other
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            start_new_session=True,  # this process receives Ctrl-C, and passes it on once
        )
        assert child.stdin is not None
        assert child.stdout is not None
        self.children.append(child)
        if self.signals:  # started just as the signal arrived
            child.terminate()
        log: list[str] = []
        with child.stdin, child.stdout, _reading_stderr(child, log):
            sentence = child.stdout.read().strip()
            child.wait()
        self.children.remove(child)
        return child.returncode, sentence, "".join(log).rstrip()

    @contextmanager
    def passing_on_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask the children to stop, with a checkpoint; a second one ends them at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread receives signals
            return

        def request_stop(number: int, frame: Any) -> None:
            again = bool(self.signals)
            self.signals.append(number)
            if self.place is not None:
                self.place.stop()
            for child in list(self.children):
                child.kill() if again else child.terminate()

        previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def _reading_stderr(child: subprocess.Popen[str], log: list[str]) -> Iterator[None]:
    """Reads the child's stderr in a thread, if it is a pipe: a full pipe would block the child."""
    if child.stderr is None:
        yield
        return
    reader = threading.Thread(target=log.extend, args=(child.stderr,), daemon=True)
    reader.start()
    with child.stderr:
        yield
        reader.join()
