"""The lab's own folder `.lab` may have come with the runs, from a stranger: what lies there is checked, links are not
followed, and no process is signalled that is not a job."""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from starlette.testclient import TestClient

from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.web.lab.application import application
from regard.web.lab.jobs import MOST_AT_ONCE, Jobs
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.samples import Samples
from regard.web.lab.trash import Trash

SECRET = "nobody's business"
MARK = "0123456789abcdef"
RECORD = {"id": "f", "kind": "training", "title": "t", "words": ["train"], "run": "g", "pid": 1, "started": 1.5}


@pytest.fixture
def folder(tmp_path):
    """One run `g`, beside something that is nobody's business."""
    outside = tmp_path / "outside"
    (outside / "run").mkdir(parents=True)
    for name in ("private.log", "f.log", "f.out", "g.jsonl", "was.json", "run/run.json"):
        (outside / name).write_text(json.dumps({"step": 1, "created": None, "name": SECRET, "text": SECRET}) + "\n")
    (tmp_path / "runs" / "g").mkdir(parents=True)
    (tmp_path / "runs" / "g" / "run.json").write_text("{}")
    return RunsFolder(tmp_path / "runs")


def own(folder, kind):
    path = folder.root / ".lab" / kind
    path.mkdir(parents=True)
    return path


WRONG = [
    {"pid": 1},
    *({key: value for key, value in RECORD.items() if key != missing} for missing in RECORD),
    RECORD | {"id": "a"},
    RECORD | {"words": [1]},
    RECORD | {"words": "train"},
    RECORD | {"pid": "1"},
    RECORD | {"pid": True},
    RECORD | {"title": ["t"]},
    RECORD | {"kind": {}},
    [RECORD],
    None,
]


def test_a_record_that_no_lab_wrote_is_ignored(folder):
    jobs = own(folder, "jobs")
    for wrong in [*WRONG, RECORD | {"id": str(folder.root.parent / "outside" / "private")}]:
        (jobs / "f.json").write_text(json.dumps(wrong))
        assert Jobs(folder).list() == [], wrong
        with pytest.raises(RegardError):
            Jobs(folder).find("f")
    (jobs / "f.json").write_text(json.dumps(RECORD))
    (jobs / "Z.json").write_text(json.dumps(RECORD | {"id": "Z"}))
    (jobs / "ab.json").mkdir()
    (found,) = Jobs(folder).list()
    assert (found["id"], found["running"]) == ("f", False)


def test_pages_answer_over_records_of_a_stranger_and_send_no_file_from_elsewhere(folder):
    jobs = own(folder, "jobs")
    outside = folder.root.parent / "outside"
    (jobs / "a.json").write_text('{"pid": 1}')
    (jobs / "b.json").write_text(json.dumps(RECORD | {"id": str(outside / "private")}))
    (jobs / "f.json").write_text(json.dumps(RECORD | {"kind": "check"}))
    for ending in ("log", "out"):
        os.symlink(outside / f"f.{ending}", jobs / f"f.{ending}")
    os.symlink(outside / "g.jsonl", own(folder, "samples") / "g.jsonl")
    with TestClient(application(folder.root), base_url="http://127.0.0.1") as client:
        for path in ("/api/runs", "/api/runs/one?run=g", "/api/runs/job?id=f"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert SECRET not in answer.text


@pytest.mark.parametrize("linked", [".lab", ".lab/jobs", ".lab/samples", ".lab/trash", ".lab/uploads"])
def test_a_linked_folder_is_neither_read_nor_written(folder, linked):
    outside = folder.root.parent / "outside"
    for kind in ("jobs", "samples", "trash", "uploads") if linked == ".lab" else ("",):
        place = outside / kind / (MARK if linked.endswith(("trash", "lab")) else "")
        (place / "run").mkdir(parents=True, exist_ok=True)
        (outside / kind / "f.json").write_text(json.dumps(RECORD))
        (outside / kind / "g.jsonl").write_text('{"step": 1, "created": null}\n')
    (folder.root / linked).parent.mkdir(exist_ok=True)
    os.symlink(outside, folder.root / linked)
    before = sorted(outside.rglob("*"))
    assert Jobs(folder).list() == []
    assert Samples(folder, None).kept("g") == []
    assert Trash(folder).list() == []
    with pytest.raises(RegardError):
        Trash(folder).back(MARK)
    with pytest.raises(RegardError, match="is a link or a file"):
        folder.keep("jobs" if linked == ".lab" else linked.rpartition("/")[2])
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("linked", [MARK, f"{MARK}/run", f"{MARK}/was.json"])
def test_a_link_in_the_trash_is_not_restored(folder, linked):
    trash, outside = own(folder, "trash"), folder.root.parent / "outside"
    if linked != MARK:
        (trash / MARK).mkdir()
    if linked.endswith("was.json"):
        (trash / MARK / "run").mkdir()
    os.symlink(outside / linked.removeprefix(MARK).lstrip("/"), trash / linked)
    os.symlink(outside / "nothing", trash / ("1" * 16))
    before = sorted(outside.rglob("*"))
    with TestClient(application(folder.root), base_url="http://127.0.0.1") as client:
        listed = client.get("/api/runs/trash")
        assert listed.status_code == 200
        assert SECRET not in listed.text
        answer = client.post("/api/runs/restore", json={"mark": MARK})
        assert answer.status_code == (200 if linked.endswith("was.json") else 400)
        assert client.delete("/api/runs/trash").json() == []
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("name", ["uploads", "uploads/x", ".lab", "../x", "a\0b", "/x", 5, ["a"], "g/run.json/x"])
def test_what_was_deleted_comes_back_below_the_folder_alone(folder, name):
    place = own(folder, f"trash/{MARK}")
    (place / "run").mkdir()
    (place / "was.json").write_text(json.dumps({"name": name}))
    if name == "g/run.json/x":
        with pytest.raises(RegardError, match="could not be restored"):
            Trash(folder).back(MARK)
    else:
        assert Trash(folder).back(MARK) == {"name": f"restored-{MARK[:6]}"}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_only_a_process_whose_command_names_the_run_is_signalled(folder):
    """An innocent process, one of another run, and the job itself; the folder is held by this one all the while."""
    jobs, path = own(folder, "jobs"), folder.root / "g"
    words = ["train", f"--run={path}"]
    wait = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
    commands = {
        "innocent": [],
        "other run": ["-m", "regard", "train", f"--run={path}-2"],
        "other words": ["-m", "regard", "resume", str(path)],
        "job": ["-m", "regard", *words],
    }
    with try_lock(path / ".lock"):
        for name, more in commands.items():
            process = subprocess.Popen([*wait, *more], stdout=subprocess.PIPE)
            try:
                process.stdout.readline()
                (jobs / "f.json").write_text(json.dumps(RECORD | {"words": words, "pid": process.pid}))
                (jobs / "f.stop").touch()  # put there by a stranger: nobody has asked it to stop, so it is not killed
                assert Jobs(folder).find("f")["running"] == (name == "job"), name
                assert not Jobs(folder).find("f")["stopping"]
                Jobs(folder).stop("f")
                if name == "job":
                    assert process.wait() == -15
                else:
                    time.sleep(0.05)
                    assert process.poll() is None
                (jobs / "f.json").write_text(json.dumps(RECORD | {"words": ["train"], "pid": process.pid}))
                assert not Jobs(folder).find("f")["running"]  # its words do not name the run
            finally:
                process.kill()
                process.communicate()


def at_once(calls):
    """What each call gave or refused, all begun at the same moment; any other exception is raised."""
    together = threading.Barrier(len(calls))

    def one(call):
        together.wait()
        try:
            return call()
        except RegardError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def test_of_many_jobs_that_are_started_at_once_four_begin(tmp_path):
    jobs = Jobs(RunsFolder(tmp_path))
    words = ["lab", str(tmp_path / "inner"), "--port", "0", "--no-browser"]  # it goes on until it is ended
    try:
        found = at_once([partial(jobs.start, "check", words, title="a job")] * 10)
        assert sum(isinstance(one, dict) for one in found) == MOST_AT_ONCE
        assert {str(one) for one in found if isinstance(one, RegardError)} == {
            "4 jobs are already running: stop one, or wait until one finishes."
        }
    finally:
        jobs.close()


def test_jobs_without_a_name_that_are_started_at_once_get_one_each(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")  # goes on until it is stopped
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    jobs = Jobs(RunsFolder(tmp_path))
    begun = at_once([partial(jobs.start_new, "check", [], "checking {}".format, wanted="mine")] * 3)
    try:
        assert sorted(one["run"] for one in begun) == ["mine", "mine-2", "mine-3"]
    finally:
        jobs.close()


def test_deleting_and_emptying_at_once_loses_nothing_and_never_fails(tmp_path):
    folder = RunsFolder(tmp_path)
    trash = Trash(folder)
    for turn in range(20):
        run = tmp_path / f"run-{turn}"
        run.mkdir()
        (run / "run.json").write_text("{}")
        found = at_once([partial(trash.put, run.name)] * 3 + [trash.empty] * 3 + [trash.list] * 3)
        deleted = [one for one in found[:3] if isinstance(one, dict)]
        assert len(deleted) == 1
        assert not run.exists()
        assert all(one is None for one in found[3:6])
        assert all(isinstance(one, list) for one in found[6:])
        again = at_once([partial(trash.back, deleted[0]["mark"])] * 3)
        restored = [one for one in again if isinstance(one, dict)]
        assert len(restored) <= 1
        assert run.exists() == bool(restored)  # it was deleted for good, or it is back
