"""What the lab reads: only the folder of the runs, whatever a name says, and only what was added since."""

import asyncio
import json
import os
import tracemalloc

import pytest
from safetensors.numpy import save_file
from starlette.testclient import TestClient

from regard.base.digests import with_digest
from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.runs.store.list import describe
from regard.training.metrics import append_metrics
from regard.web.lab.application import application
from regard.web.lab.live_curve import MAX_METRICS, PIECE
from regard.web.lab.new_run import NewRun
from regard.web.lab.requests import RunForm
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.trash import Trash

ROW = {"step": 1, "tokens": 10, "seconds": 0.5, "loss": 2.0, "perplexity": 7.4, "learning_rate": 0.1}


@pytest.fixture
def folder(tmp_path):
    """A folder with one run, beside something that is nobody's business."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "run.json").write_text("{}")
    make_run(tmp_path / "runs" / "lstm")
    return RunsFolder(tmp_path / "runs")


def make_run(path, rows=(ROW,)):
    path.mkdir(parents=True)
    recipe = {"system": "lstm", "size": "tiny", "training": {"steps": 4, "budget": ""}}
    (path / "run.json").write_text(json.dumps(with_digest({"format": 1, "created": "2026-01-01", "recipe": recipe})))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "recipe.toml").write_text('system = "lstm"\n')
    save_file({}, path / "training.safetensors", {"regard": json.dumps({"progress": {"step": 1}})})
    return path


HOSTILE = ["../secret", "/etc", "lstm/../../secret", "", ".", "..", "./lstm", "lstm/", "a\0b", "..\\secret",
           "%2e%2e/secret", "link", "lstm/link", ".lab", "x" * 5000]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_never_leads_out_of_the_folder(folder, name):
    os.symlink(folder.root.parent / "secret", folder.root / "link")
    os.symlink(folder.root.parent / "secret", folder.root / "lstm" / "link")
    for find in (folder.run, folder.comparison, folder.inside, Trash(folder).put):
        with pytest.raises(RegardError):
            find(name)
    assert [run["name"] for run in folder.runs()] == ["lstm"]


def test_a_linked_file_of_a_run_is_not_read(folder):
    (folder.root.parent / "secret" / "notes").write_text(json.dumps(ROW) + "\n")
    path = make_run(folder.root / "gpt")
    (path / "metrics.jsonl").unlink()
    os.symlink(folder.root.parent / "secret" / "notes", path / "metrics.jsonl")
    assert folder.curve(path).rows == 0
    assert folder.summary(path)["last"] is None


def test_a_form_reads_named_corpora_and_dropped_files_alone(folder):
    (folder.root / "uploads").mkdir()
    (folder.root / "uploads" / "my.txt").write_text("a\n")
    asked = NewRun.read(folder, RunForm(system="lstm", data="my.txt", settings={"training.steps": "3"}))
    assert asked.words() == ["train", "lstm", f"--data={folder.root}/uploads/my.txt", "--training.steps=3"]
    assert NewRun.read(folder, RunForm(system="lstm", data="pyref")).data == "pyref"
    for wrong in (
        {"data": "/etc/passwd"},
        {"data": "../lstm/run.json"},
        {"settings": {"data.corpus": "/etc/passwd"}},
        {"settings": {"data.monolingual": "/etc/passwd"}},
        {"settings": {"data.also": "/etc/passwd:2"}},
        {"settings": {"data.translator": "../secret"}},
        {"settings": {"run": "x"}},
        {"settings": {"training.steps=1 --run": "x"}},
        {"from": "../secret"},
        {"system": "./mine.py:Cell"},
    ):
        with pytest.raises(RegardError):
            NewRun.read(folder, RunForm.read({"system": "lstm", **wrong}))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/x", "-x", "uploads", ".hidden", "a\0", "lstm", "x" * 101])
def test_a_new_run_gets_a_plain_name_that_is_free(folder, name):
    with pytest.raises(RegardError):
        folder.new(name)


def test_a_curve_is_read_on_from_where_it_was_read_and_anew_when_it_was_cut(folder):
    path = folder.root / "lstm" / "metrics.jsonl"
    assert folder.curve(path.parent).rows == 1
    with open(path, "a") as file:
        file.write(json.dumps(ROW | {"step": 2, "split": "valid", "bleu": 3}) + "\n" + '{"step": 3, "tok')
    curve = folder.curve(path.parent)
    assert (curve.rows, curve.age) == (2, 0)  # the line that is not complete waits
    assert curve.since(1)[0][:2] == [True, 2]
    path.write_text(json.dumps(ROW) + "\n")
    curve = folder.curve(path.parent)
    assert (curve.rows, curve.age) == (1, 1)


def test_lines_that_are_not_numbers_are_left_out(folder):
    bad = ['{"step": "<b>"}', "[1]", "null", '{"step": 1, "tokens": 1, "seconds": true, "loss": 1}', "{", "[" * 10_000,
           '{"step": ' + "9" * 5000 + "}"]  # fmt: skip
    path = make_run(folder.root / "odd")
    (path / "metrics.jsonl").write_text("\n".join([*bad, json.dumps(ROW | {"perplexity": None})]) + "\n")
    assert folder.curve(path).rows == 1
    assert folder.summary(path)["last"]["loss"] == 2.0


def test_a_run_that_another_process_works_in_is_training(folder):
    path = folder.root / "lstm"
    assert folder.summary(path)["state"] == "stopped"
    with try_lock(path / ".lock"):
        assert folder.summary(path)["state"] == "running"
        with pytest.raises(RegardError, match="stop it first"):
            Trash(folder).put("lstm")
    assert folder.summary(path)["share"] == 0.25  # one step of four


@pytest.mark.parametrize("name", ["recipe.toml", "training.safetensors", "run.json"])
def test_the_lab_and_the_command_line_agree_on_what_is_damaged(folder, name):
    path = folder.root / "lstm"
    assert (folder.summary(path)["state"], describe(path)["state"]) == ("stopped", "stopped")
    (path / name).unlink() if name != "run.json" else (path / name).write_text('{"format": 1')
    found = folder.summary(path)
    assert (found["state"], found["why"]) == ("damaged", describe(path)["why"])


def test_what_is_deleted_comes_back_as_it_was(folder):
    before = sorted(path.name for path in (folder.root / "lstm").iterdir())
    trash = Trash(folder)
    mark = trash.put("lstm")["mark"]
    assert folder.runs() == []
    assert [one["name"] for one in trash.list()] == ["lstm"]
    make_run(folder.root / "lstm")
    with pytest.raises(RegardError, match="exists again"):
        trash.back(mark)
    trash.put("lstm")
    trash.back(mark)
    assert sorted(path.name for path in (folder.root / "lstm").iterdir()) == before
    with pytest.raises(RegardError):
        trash.back(mark)
    with pytest.raises(RegardError):
        trash.back("../../secret")


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"recipe": [], "corpus": 3}', '{"created": 7, "recipe": {"training": 2}}']
)
def test_a_damaged_run_is_still_listed(folder, content):
    path = make_run(folder.root / "damaged")
    (path / "run.json").write_text(content)
    (path / "recipe.toml").write_text("= nonsense")
    assert {run["name"] for run in folder.runs()} == {"lstm", "damaged"}


def test_looking_writes_nothing(folder):
    from regard.web.lab.jobs import Jobs
    from regard.web.lab.samples import Samples

    before = sorted(folder.root.rglob("*"))
    assert folder.runs()
    assert folder.comparisons() == []
    assert Jobs(folder).list() == []
    assert Trash(folder).list() == []
    assert Samples(folder, None).kept("lstm") == []
    assert sorted(folder.root.rglob("*")) == before


def test_who_asks_while_a_sample_is_made_gets_the_same_one(folder, monkeypatch):
    """A page asks again when the run's state changes; its first request is given up then."""
    from types import SimpleNamespace

    from regard.web.lab.samples import Samples

    asked = []

    async def ask(what, given, seconds):
        asked.append(given["run"])
        await asyncio.sleep(0.05)
        return SimpleNamespace(value={"text": "The cat sat."})

    async def both():
        samples = Samples(folder, ask)
        monkeypatch.setattr(samples, "step_now", lambda name: 0)
        first, second = asyncio.create_task(samples.renew("lstm")), asyncio.create_task(samples.renew("lstm"))
        await asyncio.sleep(0.01)
        first.cancel()
        assert await second
        return samples.kept("lstm"), await samples.renew("lstm")

    kept, again = asyncio.run(both())
    assert [entry["text"] for entry in kept] == ["The cat sat."]
    assert (asked, again) == (["lstm"], False)


def test_a_sample_that_fails_is_said_to_all_who_asked(folder, monkeypatch):
    from regard.web.lab.samples import Samples

    async def ask(what, given, seconds):
        await asyncio.sleep(0.01)
        raise RegardError("It cannot write.")

    async def both():
        samples = Samples(folder, ask)
        monkeypatch.setattr(samples, "step_now", lambda name: 0)
        return await asyncio.gather(samples.renew("lstm"), samples.renew("lstm"), return_exceptions=True)

    assert [str(error) for error in asyncio.run(both())] == ["It cannot write."] * 2


@pytest.mark.parametrize("damage", [("2.0", "9.0"), ('"crc32"', '"crc33"'), ("{", "[")])
def test_a_line_whose_checksum_does_not_fit_is_left_out_and_counted(folder, damage):
    path = folder.root / "lstm" / "metrics.jsonl"
    path.unlink()
    for step in (1, 2, 3):
        append_metrics(path, ROW | {"step": step})
    sound = path.read_text().splitlines()
    assert (folder.curve(path.parent).rows, folder.curve(path.parent).damaged) == (3, 0)
    with open(path, "a") as file:
        file.write(sound[2].replace(*damage, 1) + "\n")
    curve = folder.curve(path.parent)
    assert (curve.rows, curve.damaged) == (3, 1)
    assert folder.summary(path.parent)["last"]["loss"] == 2.0
    with TestClient(application(folder.root), base_url="http://127.0.0.1") as client:
        facts = client.get("/api/runs/one?run=lstm").json()["facts"]
    assert facts["metrics.jsonl"] == "1 damaged line omitted from the curves"
    path.write_text(sound[0] + "\n")
    assert (folder.curve(path.parent).rows, folder.curve(path.parent).damaged) == (1, 0)


def test_of_a_file_of_metrics_that_is_too_large_only_the_end_is_read(folder):
    path = folder.root / "lstm" / "metrics.jsonl"
    with open(path, "r+b") as file:
        file.truncate(3 << 30)  # sparse: it takes no room on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + json.dumps(ROW | {"step": 7}).encode() + b"\n")
    tracemalloc.start()
    try:
        curve = folder.curve(path.parent)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * PIECE
    assert [row[1] for row in curve.since(0)] == [7]
    assert curve.skipped == path.stat().st_size - MAX_METRICS
    assert curve.note == "only the last 64 MiB of the curves are shown"
    with open(path, "ab") as file:
        file.write(json.dumps(ROW | {"step": 8}).encode() + b"\n")
    assert [row[1] for row in folder.curve(path.parent).since(0)] == [7, 8]


def test_a_line_that_never_ends_is_left_out_and_not_read_again(folder, monkeypatch):
    monkeypatch.setattr("regard.web.lab.live_curve.PIECE", 100)
    monkeypatch.setattr("regard.web.lab.live_curve.MAX_LINE", 90)
    path = folder.root / "lstm" / "metrics.jsonl"
    short = {key: ROW[key] for key in ("step", "tokens", "seconds", "loss")}
    path.write_text("x" * 1000)
    assert (folder.curve(path.parent).rows, folder.curve(path.parent).damaged) == (0, 1)
    with open(path, "a") as file:
        file.write("x" * 50 + "\n" + json.dumps(short) + "\n" + json.dumps(short | {"step": 2})[:20])
    assert (folder.curve(path.parent).rows, folder.curve(path.parent).damaged) == (1, 1)
    with open(path, "a") as file:
        file.write(json.dumps(short | {"step": 2})[20:] + "\n")
    assert [row[1] for row in folder.curve(path.parent).since(0)] == [1, 2]


def test_one_curve_does_not_wait_for_another(folder):
    make_run(folder.root / "gpt")
    slow = folder.curve(folder.root / "gpt")
    with slow._lock:  # as while a large file is read
        assert folder.curve(folder.root / "lstm").rows == 1


def test_a_page_is_sent_many_rows_in_parts(folder, monkeypatch):
    monkeypatch.setattr("regard.web.lab.live_curve.MAX_ROWS", 2)
    curve = folder.curve(make_run(folder.root / "gpt", [ROW | {"step": step} for step in range(5)]))
    assert [[row[1] for row in curve.since(first)] for first in (0, 2, 4, 5)] == [[0, 1], [2, 3], [4], []]
