"""What is asked of Slurm and of Ray for a comparison's runs: both are played here, `cli/test_elsewhere.py` has real
ones."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from regard.base.errors import RegardError
from regard.comparison import elsewhere
from regard.comparison.elsewhere import Child, Ray, Slurm, read_place

# -- where -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def both(monkeypatch):
    """A machine that has both."""
    monkeypatch.setattr(elsewhere, "find_spec", lambda package: package)
    monkeypatch.setattr(elsewhere.shutil, "which", lambda program: program)


@pytest.mark.usefixtures("both")
def test_a_place_is_a_name_with_options_whose_numbers_are_numbers():
    assert read_place("slurm") == ("slurm", {})
    assert read_place("slurm:partition=gpu,time=600,,a=b=c") == ("slurm", {"partition": "gpu", "time": 600, "a": "b=c"})
    assert read_place("ray:gpus=2,address=a:1") == ("ray", {"gpus": 2, "address": "a:1"})
    for wrong in ("slurm:partition", "slurm:2x=3", "slurm:=3"):
        with pytest.raises(RegardError, match="takes key=value"):
            read_place(wrong)
    with pytest.raises(RegardError, match="--on must be one of slurm, ray"):
        read_place("moon")
    with pytest.raises(RegardError, match="not partition"):
        read_place("ray:gpus=1,partition=x")


def test_what_a_place_needs_is_said(monkeypatch):
    missing = set()
    monkeypatch.setattr(elsewhere, "find_spec", lambda package: None if package in missing else package)
    monkeypatch.setattr(elsewhere.shutil, "which", lambda program: None)
    read_place("ray")  # needs no sbatch
    with pytest.raises(RegardError, match="Slurm is not available here"):
        read_place("slurm")
    for name, package in (("slurm", "submitit"), ("ray", "ray")):
        missing.add(package)
        with pytest.raises(RegardError, match=rf"the package {package}: pip install 'regard\[{name}\]'"):
            read_place(name)


@pytest.mark.usefixtures("both")
def test_each_name_has_its_place(monkeypatch, tmp_path):
    monkeypatch.setattr(elsewhere, "Slurm", lambda *words: ("slurm", *words))
    monkeypatch.setattr(elsewhere, "Ray", lambda *words: ("ray", *words))
    assert elsewhere.elsewhere("slurm:time=5", tmp_path) == ("slurm", tmp_path, {"time": 5})
    assert elsewhere.elsewhere("ray:gpus=1", tmp_path) == ("ray", {"gpus": 1})


# -- a run's process on its machine ------------------------------------------------------------------------------------


class Started:
    """What `Popen` returns."""

    interrupted = False

    def __init__(self, command, *, cwd, env, stdin, stdout, stderr, text):
        assert stdin == stdout == stderr == subprocess.PIPE
        assert text
        self.command, self.cwd, self.env, self.told = command, cwd, env, []
        self.stdin, self.stdout, self.stderr = io.StringIO(), io.StringIO(" a sentence\n"), io.StringIO("a\nlog\n")
        self.returncode = None

    def wait(self):
        if self.interrupted and "terminate" not in self.told:
            raise KeyboardInterrupt
        self.told.append("wait")
        self.returncode = 2

    def terminate(self):
        self.told.append("terminate")


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(elsewhere.subprocess, "Popen", Started)
    monkeypatch.setenv("REGARD_CACHE", "the cache")
    monkeypatch.setenv("REGARD_DATA", "the data")
    monkeypatch.setenv("SOMETHING", "here")


@pytest.mark.usefixtures("started")
def test_a_process_has_its_words_folder_settings_and_threads_wherever_it_begins(monkeypatch, tmp_path):
    child, here = Child(("folder", "lstm", "1", "1"), 3), os.getcwd()
    monkeypatch.delenv("REGARD_DATA")  # there it is not set
    monkeypatch.setenv("SOMETHING", "there")
    monkeypatch.chdir(tmp_path)
    assert child() == (2, "a sentence", "a\nlog")
    process = child.process
    assert process.command == [sys.executable, "-P", "-m", "regard.comparison.child", "folder", "lstm", "1", "1"]
    assert process.cwd == here
    wanted = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "REGARD_CACHE": "the cache", "REGARD_DATA": "the data"}
    assert child.settings == wanted
    assert process.env == {**os.environ, **wanted}
    assert process.stdin.closed
    assert process.told == ["wait"]


@pytest.mark.usefixtures("started")
def test_an_interrupted_process_is_asked_to_stop_and_waited_for(monkeypatch):
    monkeypatch.setattr(Started, "interrupted", True)
    begun = []
    monkeypatch.setattr(
        elsewhere.subprocess, "Popen", lambda *words, **more: begun.append(Started(*words, **more)) or begun[0]
    )
    child = Child(("folder", "lstm", "1", "1"), 1)
    assert child() == (130, "", "")
    assert begun[0].told == ["terminate", "wait"]
    assert begun[0].stdin.closed
    assert child.process is None
    child.end()  # again: nothing is left to end


# -- Slurm -----------------------------------------------------------------------------------------------------------


class FailedJobError(Exception):
    pass


class UncompletedJobError(Exception):
    pass


class Executor:
    """As far as it is used, submitit's."""

    refused: Exception | None = None

    def __init__(self, folder, cluster):
        self.folder, self.cluster, self.parameters, self.submitted = folder, cluster, {}, []

    def update_parameters(self, **parameters):
        if self.refused is not None and any(key.startswith("slurm_") for key in parameters):
            raise self.refused
        self.parameters |= parameters

    def submit(self, child):
        self.submitted.append((child, dict(self.parameters)))
        return SimpleNamespace(job_id=7, result=child, done=lambda: child.words[1] == "done", cancel=child.end)


@pytest.fixture
def submitit(monkeypatch):
    modules = {
        name: ModuleType(name) for name in ("submitit", "submitit.core", "submitit.core.utils", "submitit.helpers")
    }
    modules["submitit"].AutoExecutor = Executor
    modules["submitit.core.utils"].FailedJobError = FailedJobError
    modules["submitit.core.utils"].UncompletedJobError = UncompletedJobError
    modules["submitit.helpers"].DelayedSubmission = lambda function: SimpleNamespace(function=function)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("submitit")
def test_a_job_of_slurm_is_one_run_with_its_cpus(monkeypatch):
    monkeypatch.setattr(Child, "__call__", lambda child: (0, *child.words[:2]))
    place = Slurm(Path("c"), {"partition": "gpu", "time": 5})
    assert (place.executor.folder, place.executor.cluster) == (Path("c/slurm"), "slurm")
    assert place.run(["c", "lstm"], 3) == (0, "c", "lstm")
    ((child, parameters),) = place.executor.submitted
    assert child.settings["OMP_NUM_THREADS"] == "3"
    assert parameters == {
        "timeout_min": 240, "name": "regard", "slurm_partition": "gpu", "slurm_time": 5, "cpus_per_task": 3,
    }  # fmt: skip


@pytest.mark.usefixtures("submitit")
@pytest.mark.parametrize("error", [FailedJobError("why"), UncompletedJobError("why")])
def test_a_job_without_a_result_is_named(monkeypatch, error):
    def fail(child):
        raise error

    monkeypatch.setattr(Child, "__call__", fail)
    code, sentence, log = Slurm(Path("c"), {}).run(["c", "lstm"], 1)
    assert (code, log) == (2, "why")
    assert sentence.startswith("its job 7 ended without a result")


@pytest.mark.usefixtures("submitit")
def test_options_that_slurm_does_not_know_are_refused(monkeypatch):
    monkeypatch.setattr(Executor, "refused", NameError("no\nsuch option"))
    with pytest.raises(RegardError, match="Slurm does not accept these --on options: no such option"):
        Slurm(Path("c"), {"colour": "red"})


@pytest.mark.usefixtures("submitit")
def test_a_stop_cancels_the_jobs_that_run_and_lets_no_other_begin(monkeypatch):
    ended = []
    monkeypatch.setattr(Child, "__call__", lambda child: (0, "", ""))
    monkeypatch.setattr(Child, "end", lambda child: ended.append(child.words[1]))
    place = Slurm(Path("c"), {})
    for label in ("done", "runs"):
        place.run(["c", label], 1)
    place.stop()
    assert ended == ["runs"]
    assert place.run(["c", "late"], 1) == (130, "", "")
    assert len(place.executor.submitted) == 2


@pytest.mark.usefixtures("submitit", "started")
def test_a_preempted_job_is_stopped_and_queued_again_as_it_was(monkeypatch):
    child = Child(["c", "lstm", "1", "1"], 3)
    child.process = process = Started([], cwd="", env={}, stdin=-1, stdout=-1, stderr=-1, text=True)
    child.folder = "where it was"
    again = child.checkpoint().function
    assert process.told == ["terminate", "wait"]
    assert (again.words, again.folder, again.settings) == (child.words, child.folder, child.settings)
    assert again.settings["OMP_NUM_THREADS"] == "3"
    assert again.process is None


# -- Ray -------------------------------------------------------------------------------------------------------------


class RayError(Exception):
    pass


class TaskCancelledError(RayError):
    pass


class Cluster(ModuleType):
    """As far as it is used, Ray's."""

    exceptions = SimpleNamespace(RayError=RayError, TaskCancelledError=TaskCancelledError)
    machines = (
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 8.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    )
    reachable = True
    ends: Exception | None = None

    def __init__(self):
        super().__init__("ray")
        self.begun, self.cancelled, self.how = [], [], None

    def init(self, address, **how):
        if not self.reachable:
            raise ConnectionError("nobody answers")
        self.how = (address, how)

    def nodes(self):
        return self.machines

    def remote(self, function):
        def options(**wanted):
            return SimpleNamespace(remote=lambda child: self.begun.append((child, wanted)) or (function, child))

        return SimpleNamespace(options=options)

    def get(self, task):
        if self.ends is not None:
            raise self.ends
        function, child = task
        return function(child)

    def cancel(self, task):
        self.cancelled.append(task[1].words)


@pytest.fixture
def ray(monkeypatch):
    cluster = Cluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return cluster


def test_a_task_of_ray_is_one_run_with_its_cpus_and_gpus(ray, monkeypatch):
    monkeypatch.setattr(Child, "__call__", lambda child: (0, *child.words))
    place = Ray({"gpus": 1, "address": "there"})
    shown = {"include_dashboard": False, "log_to_driver": False, "logging_level": 40, "ignore_reinit_error": True}
    assert ray.how == ("there", shown)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert place.run(["c", "lstm"], 3) == (0, "c", "lstm")
    assert place.run(["c", "gpt"], 30) == (0, "c", "gpt")
    (child, wanted), (_, more) = ray.begun
    assert child.settings["OMP_NUM_THREADS"] == "3"
    assert wanted == {"num_cpus": 3, "num_gpus": 1.0, "max_retries": 0, "name": "regard"}
    assert more["num_cpus"] == 8  # no machine has more
    assert Ray({}).gpus == 0


def test_a_cluster_that_is_not_there_or_too_small_is_refused(ray, monkeypatch):
    with pytest.raises(RegardError, match=r"No machine in this Ray cluster has 2 GPUs: request at most 1\."):
        Ray({"gpus": 2})
    monkeypatch.setattr(Cluster, "reachable", False)
    with pytest.raises(RegardError, match="There is no Ray cluster at there: nobody answers"):
        Ray({"address": "there"})
    monkeypatch.setenv("RAY_ADDRESS", "named")
    with pytest.raises(RegardError, match="There is no Ray cluster at named"):
        Ray({})


def test_a_task_without_a_result_says_why_and_a_cancelled_one_was_stopped(ray, monkeypatch):
    place = Ray({})
    monkeypatch.setattr(Cluster, "ends", RayError("the machine is gone"))
    code, sentence, log = place.run(["c", "lstm"], 1)
    assert (code, log) == (2, "the machine is gone")
    assert sentence == "its task ended without a result (RayError; out of memory?)."
    monkeypatch.setattr(Cluster, "ends", TaskCancelledError())
    assert place.run(["c", "gpt"], 1) == (130, "", "")
    place.stop()
    assert ray.cancelled == [["c", "lstm"], ["c", "gpt"]]
    assert place.run(["c", "late"], 1) == (130, "", "")
    assert len(ray.begun) == 2
