"""The jobs of a lab over their lives: how many at once, what goes on when the lab ends, and what is kept of them."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from regard.base.errors import RegardError
from regard.web.lab import jobs as jobs_module
from regard.web.lab.jobs import MOST_AT_ONCE, STAY, Jobs
from regard.web.lab.runs_folder import RunsFolder

PASSING = ("check", "dry run", "claims")  # kinds that end with the lab
LONG, SHORT = "import signal; signal.pause()", ""
SAVES = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("saving", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """The jobs of a lab whose commands are small real processes: jobs.program says what they do."""
    started = []

    def popen(command, **options):
        started.append(subprocess.Popen([sys.executable, "-S", "-E", "-c", found.program], **options))
        return started[-1]

    monkeypatch.setattr(jobs_module, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))
    (tmp_path / "runs").mkdir()
    found = Jobs(RunsFolder(tmp_path / "runs"))
    found.program = LONG
    yield found
    for process in started:
        process.kill()
        process.wait()


def start(jobs, kind):
    job = jobs.start(kind, ["train", "lstm"], title=f"a {kind}")
    return jobs._own[job["id"]]


def test_closing_the_lab_ends_what_only_it_needs_and_leaves_trainings_and_comparisons(jobs):
    left = [start(jobs, kind) for kind in ("training", "comparison", "training")]
    ended = [start(jobs, kind) for kind in PASSING]
    assert jobs.close() == 3
    assert [process.poll() for process in left] == [None] * 3
    assert [process.poll() for process in ended] == [-signal.SIGKILL] * 3
    left[0].kill()
    left[0].wait()
    assert jobs.close() == 2


@pytest.mark.parametrize(("kinds", "others"), [(sorted(STAY), PASSING), (PASSING, sorted(STAY))])
def test_a_few_of_each_sort_run_at_once_and_no_more(jobs, kinds, others):
    running = [start(jobs, kinds[n % len(kinds)]) for n in range(MOST_AT_ONCE)]
    for kind in kinds:
        with pytest.raises(RegardError, match=f"{MOST_AT_ONCE} jobs are already running"):
            start(jobs, kind)
    assert len(jobs.list()) == MOST_AT_ONCE == 4
    start(jobs, others[0])  # the other sort has places of its own
    running[1].kill()
    running[1].wait()
    start(jobs, kinds[0])  # one place is free again
    with pytest.raises(RegardError, match="wait until one finishes"):
        start(jobs, kinds[0])


def test_what_ended_says_how_and_takes_no_place(jobs):
    jobs.program = "import sys; print('{}'); print('regard: It was refused.', file=sys.stderr); sys.exit(2)"
    for _ in range(MOST_AT_ONCE + 2):
        start(jobs, "check").wait()
    job = jobs.list()[0]
    assert (job["running"], job["code"], job["problem"]) == (False, 2, "It was refused.")
    assert jobs.result(job["id"]) == "{}\n"


def test_a_job_is_asked_to_stop_and_asked_again_it_is_ended(jobs):
    jobs.program = SAVES
    process = start(jobs, "training")
    (job,) = jobs.list()
    while "ready" not in jobs.result(job["id"]):
        assert process.poll() is None
    asked = jobs.stop(job["id"])
    assert (asked["running"], asked["stopping"], asked["stopped"]) == (True, True, True)
    while "saving" not in jobs.result(job["id"]):
        assert process.poll() is None
    jobs.stop(job["id"])
    assert process.wait() == -signal.SIGKILL
    ended = jobs.find(job["id"])
    assert (ended["running"], ended["stopping"], ended["stopped"], ended["problem"]) == (False, False, True, "")


def test_of_many_jobs_the_newest_are_remembered(jobs, monkeypatch):
    monkeypatch.setattr(jobs_module, "KEPT", 3)
    jobs.program = SHORT
    numbers = []
    for _ in range(5):
        start(jobs, "check").wait()
        numbers.append(jobs.list()[0]["id"])
    assert [job["id"] for job in jobs.list()] == numbers[:1:-1]
    kept = {path.name.partition(".")[0] for path in (jobs.folder.root / ".lab" / "jobs").iterdir()}
    assert kept == set(numbers[2:])


def test_the_end_of_a_long_log_is_what_is_shown(jobs, monkeypatch):
    monkeypatch.setattr(jobs_module, "MOST_LOG", 100)
    jobs.program = "import sys; sys.stderr.write('a' * 1000 + '\\nthe end\\n')"
    start(jobs, "check").wait()
    (job,) = jobs.list()
    assert job["last"] == "the end"
    assert len(jobs.log(job["id"])) <= 100
