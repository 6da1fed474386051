"""Runs of a comparison on other machines, by Slurm (through submitit) or Ray, each in the same process as locally.

A job starts `regard.comparison.child` on its machine and returns its exit code and output, so a run is trained,
evaluated, reported and continued exactly as locally. All machines must see the comparison's folder and the data.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from regard.base.errors import RegardError
from regard.base.settings import check_choice

MINUTES = 240  # default time of a Slurm job; a job that needs longer is queued again and continues
PASSED_ON = ("REGARD_CACHE", "REGARD_DATA")  # environment variables that a run also needs there
CLUSTER = "slurm"  # submitit's own name for it

Ended = tuple[int, str, str]  # a process: its exit code, stdout and stderr


class Elsewhere(Protocol):
    def run(self, words: Sequence[str], threads: int) -> Ended:
        """Run the child with these arguments on some machine; returns when it has ended."""

    def stop(self) -> None:
        """Ask every run to stop with a checkpoint."""


def read_place(asked: str) -> tuple[str, dict[str, Any]]:
    """`slurm` or `ray`, and options for it: slurm:partition=gpu,time=600. Wrong options and missing packages are
    reported at once.
    """
    name, _, rest = asked.partition(":")
    check_choice("--on", name, ("slurm", "ray"))
    options: dict[str, Any] = {}
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise RegardError(f"--on {name}:… takes key=value pairs separated by commas, not {word!r}.")
        options[key] = int(value) if value.isdecimal() and len(value) < 19 else value
    package = {"slurm": "submitit", "ray": "ray"}[name]
    if find_spec(package) is None:
        raise RegardError(f"--on {name} needs the package {package}: pip install 'regard[{name}]'.")
    if name == CLUSTER and not shutil.which("sbatch"):
        raise RegardError(
            "Slurm is not available here (no sbatch on the path): run this command where jobs can be submitted."
        )
    if name == "ray" and (unknown := options.keys() - {"gpus", "address"}):
        raise RegardError(f"--on ray takes gpus=N and address=…, not {min(unknown)}.")
    return name, options


def elsewhere(asked: str, folder: Path) -> Elsewhere:
    name, options = read_place(asked)
    return Slurm(folder, options) if name == "slurm" else Ray(options)


class Child:
    """One run's process, started by a job on its machine."""

    def __init__(self, words: Sequence[str], threads: int) -> None:
        self.words, self.folder = list(words), os.getcwd()
        self.settings = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self.settings |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process: subprocess.Popen[str] | None = None

    def __call__(self) -> Ended:
        process = self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "regard.comparison.child", *self.words],
            cwd=self.folder,
            env={**os.environ, **self.settings},
            stdin=subprocess.PIPE,  # when it closes, the child stops, however the job ends
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        log: list[str] = []
        reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            sentence = process.stdout.read()
            process.wait()
        except KeyboardInterrupt:  # Ray cancels a task with it
            self.end()
            return 130, "", ""
        finally:
            process.stdin.close()
        reader.join()
        return process.returncode, sentence.strip(), "".join(log).rstrip()

    def end(self) -> None:
        """Stop it with a checkpoint."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def checkpoint(self) -> Any:
        """Called by submitit when the job is preempted or out of time: it is queued again, and the run continues."""
        from submitit.helpers import DelayedSubmission

        self.end()
        return DelayedSubmission(Child.again(self))

    @classmethod
    def again(cls, child: Child) -> Child:
        fresh = cls(child.words, 1)
        fresh.folder, fresh.settings = child.folder, child.settings
        return fresh


class Slurm:
    """Jobs of one run each; their output is in the comparison's folder slurm."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        import submitit

        self.executor = submitit.AutoExecutor(folder=folder / "slurm", cluster=CLUSTER)
        try:
            self.executor.update_parameters(timeout_min=MINUTES, name="regard")
            self.executor.update_parameters(**{f"slurm_{key}": value for key, value in options.items()})
        except (NameError, ValueError, TypeError, AssertionError) as error:
            raise RegardError(f"Slurm does not accept these --on options: {' '.join(str(error).split())}") from None
        self.jobs: list[Any] = []
        self.stopped = False
        self.submitting = threading.Lock()

    def run(self, words: Sequence[str], threads: int) -> Ended:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        with self.submitting:
            if self.stopped:
                return 130, "", ""
            self.executor.update_parameters(cpus_per_task=threads)
            job = self.executor.submit(Child(words, threads))
            self.jobs.append(job)
        try:
            ended: Ended = job.result()
            return ended
        except (FailedJobError, UncompletedJobError) as error:
            return 2, f"its job {job.job_id} ended without a result (preempted, or out of memory?).", str(error)

    def stop(self) -> None:
        self.stopped = True
        for job in self.jobs:
            if not job.done():
                job.cancel()


class Ray:
    """Tasks of one run each, on the cluster at RAY_ADDRESS, or else on one started on this machine."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self.gpus, address = float(options.get("gpus", 0)), options.get("address")
        try:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=40, ignore_reinit_error=True)
        except ConnectionError as error:
            raise RegardError(
                f"There is no Ray cluster at {address or os.environ.get('RAY_ADDRESS')}: {error}"
            ) from None
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.most = {key: max((node.get(key, 0) for node in nodes), default=0) for key in ("CPU", "GPU")}
        if self.gpus > self.most["GPU"]:
            raise RegardError(
                f"No machine in this Ray cluster has {self.gpus:g} GPUs: request at most {self.most['GPU']:g}."
            )
        self.tasks: list[Any] = []
        self.stopped = False

    def run(self, words: Sequence[str], threads: int) -> Ended:
        import ray

        if self.stopped:
            return 130, "", ""
        start = ray.remote(_call).options(
            num_cpus=min(threads, self.most["CPU"]), num_gpus=self.gpus, max_retries=0, name="regard"
        )
        task = start.remote(Child(words, threads))
        self.tasks.append(task)
        try:
            ended: Ended = ray.get(task)
            return ended
        except ray.exceptions.TaskCancelledError:
            return 130, "", ""
        except ray.exceptions.RayError as error:
            return 2, f"its task ended without a result ({type(error).__name__}; out of memory?).", str(error)

    def stop(self) -> None:
        import ray

        self.stopped = True
        for task in self.tasks:
            ray.cancel(task)


def _call(child: Child) -> Ended:
    return child()
