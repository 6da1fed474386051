"""The lab's ordinary life: what a list says of each run, what is looked at again, and limits at their last number."""

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest
from starlette.testclient import TestClient

from regard.base.digests import with_digest
from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.training.metrics import append_metrics
from regard.web.lab import (
    events,
    guarded_folder,
    jobs,
    requests,
    routes_lectures,
    runs_folder,
    samples,
    traces,
    uploads,
    worker,
)
from regard.web.lab.application import application
from regard.web.lab.guarded_folder import read_plain
from regard.web.lab.opened_runs import open_run
from regard.web.lab.runs_folder import RunsFolder, best_of
from regard.web.lab.samples import Samples
from regard.web.lab.trash import Trash

ROW = {"step": 1, "tokens": 10, "seconds": 0.5, "loss": 2.0, "perplexity": 7.4, "learning_rate": 0.1}


@pytest.fixture
def folder(tmp_path):
    return RunsFolder(tmp_path / "runs")


def make_run(folder, name, created="2026-01-01", training=None, rows=(ROW,), **facts):
    from safetensors.numpy import save_file

    path = folder.root / name
    path.mkdir(parents=True)
    recipe = {"system": "lstm", "size": "tiny", "training": training or {"steps": 4, "budget": ""}}
    made = {"format": 1, "created": created, "recipe": recipe, **facts}
    (path / "run.json").write_text(json.dumps(with_digest(made)))
    (path / "metrics.jsonl").write_text("")
    for row in rows:
        append_metrics(path / "metrics.jsonl", row)
    (path / "recipe.toml").write_text('system = "lstm"\n')
    save_file({}, path / "training.safetensors", {"regard": json.dumps({"progress": {"step": 1}})})
    return path


# -- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "row", "share", "goal"),
    [
        ({"steps": 4, "budget": ""}, {"step": 1}, 0.25, "4 steps"),
        ({"steps": 4, "budget": ""}, {"step": 9}, 1.0, "4 steps"),
        ({"steps": 4, "budget": "40 tokens"}, {"tokens": 10}, 0.25, "40 tokens"),
        ({"steps": 4, "budget": "20s"}, {"seconds": 5.0}, 0.25, "20s"),
        ({"steps": 4, "budget": "20s"}, {"seconds": 5.0, "elapsed": 10.0}, 0.25, "20s"),
    ],
)
def test_the_share_is_that_of_the_budget_in_its_own_unit(folder, training, row, share, goal):
    made = make_run(folder, "a", training=training, rows=[{**ROW, **row}])
    found = folder.summary(made)
    assert found["share"] == pytest.approx(share)
    assert found["goal"] == goal
    assert found["state"] == "stopped"
    assert (found["drawn"], found["counted"], found["kept"]) == (True, False, 0)
    empty = folder.summary(make_run(folder, "b", training=training, rows=()))
    assert (empty["share"], empty["drawn"], empty["last"]) == (None, False, None)


def test_a_summary_tells_which_runs_were_measured_alike(folder):
    facts = {"corpus": {"name": "text", "checksum": "abc"}, "files": {"tokenizer.json": "cut"}, "parameters": 7,
             "device": "abacus"}  # fmt: skip
    found = folder.summary(make_run(folder, "a", **facts))
    assert (found["corpus"], found["text"], found["tokens"]) == ("text", "abc", "cut")
    assert (found["parameters"], found["device"], found["created"]) == (7, "abacus", "2026-01-01")
    plain = folder.summary(make_run(folder, "b", corpus={"name": "text"}))
    assert (plain["text"], plain["tokens"]) == ("text", "")
    for name, step in (("kept", 5), ("kept", 6), ("snapshots", 6)):
        (folder.root / "a" / name).mkdir(exist_ok=True)
        (folder.root / "a" / name / f"{step}.safetensors").write_text("")
    assert folder.summary(folder.root / "a")["kept"] == 2
    with try_lock(folder.root / "a" / ".lock"):
        assert folder.summary(folder.root / "a")["state"] == "running"
    assert best_of({"validation_loss": math.log(5), "step": 3, "bleu": 20.0, "accuracy": math.nan}) == {
        "step": 3, "loss": math.log(5), "perplexity": pytest.approx(5.0), "bleu": 20.0,
    }  # fmt: skip
    assert best_of({"validation_loss": math.inf}) is None


def test_a_summary_tells_where_a_run_comes_from_and_how_it_was_cut(folder):
    recipe = {"system": "lstm", "size": "tiny", "training": {"steps": 4, "seed": 7}, "data": {"tokenizer": "char"}}
    found = folder.summary(make_run(folder, "a", recipe=recipe, ancestors=[{"run": "parent"}, {"run": "older"}]))
    assert (found["from"], found["tokenizer"], found["tokens"], found["seed"]) == ("parent", "char", "char", 7)
    assert (found["name"], found["system"], found["task"], found["size"]) == ("a", "lstm", "language model", "tiny")
    assert (found["goal"], found["why"], found["best"]) == ("4 steps", "", None)
    own = folder.summary(make_run(folder, "b", recipe=recipe | {"system": "mine.py:Mine"}))
    assert (own["system"], own["task"], own["from"]) == ("Mine", "language model", "")
    translator = folder.summary(make_run(folder, "c", recipe=recipe | {"system": "transformer"}))
    assert translator["task"] == "translation"
    (folder.root / "linked").mkdir()
    (folder.root / "linked" / "run.json").symlink_to(folder.root / "a" / "run.json")
    assert {run["name"] for run in folder.runs()} == {"a", "b", "c"}  # what links lead to is not looked at


def test_the_newest_run_comes_first_and_what_lies_too_deep_is_not_found(folder, monkeypatch):
    for name, created in (("old", "2025-01-01"), ("new", "2026-05-05"), ("a/b/mid", "2026-02-02")):
        make_run(folder, name, created)
    make_run(folder, "a/b/c/deep", "2026-03-03")
    make_run(folder, "uploads/not", "2026-03-03")
    make_run(folder, "new/inside", "2026-03-03")  # nothing lies below a run
    assert [run["name"] for run in folder.runs()] == ["new", "a/b/mid", "old"]
    assert (runs_folder.MAX_DEPTH, runs_folder.MOST_RUNS) == (3, 2000)
    monkeypatch.setattr(runs_folder, "MOST_RUNS", 2)
    assert len(folder.runs()) == 2


def test_a_file_is_read_again_when_it_was_written_and_not_before(folder):
    path = folder.root / "a.json"
    path.write_text('{"a": 1}')
    os.utime(path, ns=(1, 1))
    reads = []

    def look():
        return folder._cached(path, lambda: reads.append(1) or json.loads(path.read_text()))

    assert look() == look() == {"a": 1}
    assert len(reads) == 1
    path.write_text('{"a": 2}')  # of the same size
    os.utime(path, ns=(2, 2))
    assert look() == {"a": 2}
    other = folder.root / "b.json"
    other.write_text('{"a": 3}')
    os.utime(other, ns=(2, 2))
    os.replace(other, path)  # of the same size and time
    assert look() == {"a": 3}
    path.write_text("{")
    for _ in range(2):
        with pytest.raises(RegardError):
            look()
    assert len(reads) == 4  # an error is remembered, too
    path.write_text('{"a": 4}')
    assert look() == {"a": 4}


def test_a_comparison_counts_its_runs_and_those_that_are_done(folder):
    path = folder.root / "both"
    path.mkdir()
    entrants = [{"label": "lstm", "seeds": [1, 2]}, {"label": "ngram", "seeds": [1]}, {"label": "old"}]
    tree = {"question": {"data": "x"}, "facts": {"created": "2026", "corpus": {"name": "text"}, "command": "regard"},
            "entrants": entrants}  # fmt: skip
    (path / "comparison.json").write_text(json.dumps(tree))
    for name in ("lstm-seed2", "ngram", "lstm"):  # the last is none of its runs
        (path / name).mkdir()
        (path / name / "result.json").write_text("{}")
    (found,) = folder.comparisons()
    assert (found["runs"], found["finished"], found["systems"]) == (4, 2, ["lstm", "ngram", "old"])
    assert (found["corpus"], found["command"], found["live"]) == ("text", "regard", False)


def test_the_results_of_a_claim_come_newest_first_and_of_that_claim_alone(folder):
    for age, name in ((3, "a"), (1, "b"), (2, "c")):
        (folder.root / name).mkdir()
        file = folder.root / name / "claims.json"
        file.write_text(
            json.dumps([{"name": "hull", "numbers": age}, {"name": "other", "numbers": 0}, {"name": "hull"}])
        )
        os.utime(file, (1000 - age, 1000 - age))
    assert {name: one["numbers"] for name, one in folder.claim_results("hull").items()} == {"b": 1, "c": 2, "a": 3}
    assert list(folder.claim_results("hull")) == ["b", "c", "a"]


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_are_of_this_run_one_for_each_step_the_newest_last(folder, monkeypatch):
    make_run(folder, "a", created="now")
    kept = Samples(folder, None)
    file = folder.keep("samples") / samples._file("a")
    rows = [
        {"step": 4, "created": "now", "text": "four"},
        {"step": 2, "created": "now", "text": "two"},
        {"step": 4, "created": "now", "text": "four again"},
        {"step": 6, "created": "before", "text": "of another run"},
        {"step": "8", "created": "now"},
        ["no object"],
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{half")
    assert [one["text"] for one in kept.kept("a")] == ["two", "four again"]
    assert samples.MOST == 200
    monkeypatch.setattr(samples, "MOST", 1)
    assert [one["text"] for one in kept.kept("a")] == ["four again"]
    assert samples._file("a/b c") == "a%2Fb%20c.jsonl"
    assert samples._file("é" * 90) == ("%C3%A9" * 90)[:200] + ".jsonl"  # as long as a name of a file may be


def test_a_sample_is_made_once_for_each_step(folder):
    from safetensors.numpy import save_file

    path, asked = make_run(folder, "a", created="now"), []

    async def ask(work, body, *, seconds):
        asked.append((work, body["run"]))
        return SimpleNamespace(value={"text": f"sample {len(asked)}"})

    async def life():
        kept = Samples(folder, ask)
        assert not await kept.renew("a")  # no weights yet
        for step in (3, 3, 5, 5):
            save_file({}, path / "model.safetensors", {"regard": json.dumps({"step": step})})
            await kept.renew("a")
        assert not await Samples(folder, ask).renew("a")  # another lab finds it there
        return kept.kept("a")

    found = asyncio.run(life())
    assert asked == [("runs.sample", "a")] * 2
    assert [(one["step"], one["text"], one["created"]) for one in found] == [
        (3, "sample 1", "now"), (5, "sample 2", "now"),
    ]  # fmt: skip


# -- news ------------------------------------------------------------------------------------------------------------


def news(folder, looks, known=(), jobs=None):
    """What a page is told at each of these looks: lists of (event, content)."""
    told, look = [], iter(range(len(looks)))

    class Lab:
        closing = asyncio.Event()

        def __init__(self):
            self.folder = folder

        async def look(self):
            number = next(look)
            looks[number]()
            if number == len(looks) - 1:
                self.closing.set()
            return folder.runs(), (jobs or (lambda n: []))(number)

    class Request:
        async def is_disconnected(self):
            return False

    async def listen():
        async for one in events._news(Lab(), Request(), dict(known)):
            told.append(one.decode())

    events_every, events.EVERY = events.EVERY, 0.01
    try:
        asyncio.run(listen())
    finally:
        events.EVERY = events_every
    return [
        (text.split("\n")[0].removeprefix("event: "), json.loads(text.split("data: ")[1])) if "data: " in text
        else (text, None) for text in told
    ]  # fmt: skip


def test_a_page_is_told_what_came_after_and_nothing_twice(folder):
    path = make_run(folder, "a")

    def grow(step):
        return lambda: append_metrics(path / "metrics.jsonl", {**ROW, "step": step})

    with try_lock(path / ".lock"):
        found = news(folder, [lambda: None, grow(2), lambda: None, grow(3)], jobs=lambda n: [n // 2])
    points = [content for name, content in found if name == "points"]
    assert [(one["run"], one["from"], [row[1] for row in one["rows"]]) for one in points] == [
        ("a", 1, [2.0]), ("a", 2, [3.0]),
    ]  # fmt: skip
    assert [content for name, content in found if name == "jobs"] == [[0], [1]]
    runs = [content for name, content in found if name == "runs"]
    assert all(one["names"] == ["a"] for one in runs)
    assert [run["last"]["step"] for one in runs for run in one["changed"]] == [1, 2, 3]


def test_a_page_that_has_some_rows_gets_the_others_and_all_of_a_file_that_was_replaced(folder):
    path = make_run(folder, "a", rows=[{**ROW, "step": n} for n in (1, 2, 3)])
    (content,) = (content for name, content in news(folder, [lambda: None], {"a": (0, 1)}) if name == "points")
    assert (content["from"], content["age"], [row[1] for row in content["rows"]]) == (1, 0, [2.0, 3.0])

    def replace_it():
        other = path / "new"
        other.write_text("")
        append_metrics(other, {**ROW, "step": 9})
        os.replace(other, path / "metrics.jsonl")

    found = [content for name, content in news(folder, [lambda: None, replace_it], {"a": (0, 3)}) if name == "points"]
    assert [(one["from"], one["age"], [row[1] for row in one["rows"]]) for one in found] == [(0, 1, [9.0])]


def test_a_quiet_connection_is_kept_open(folder, monkeypatch):
    assert (events.EVERY, events.QUIET) == (0.8, 15.0)
    monkeypatch.setattr(events, "QUIET", 0.025)
    found = [name for name, _ in news(folder, [lambda: None] * 8)]
    assert [name for name in found if name.startswith(":")] == [": still here\n\n"] * 2


# -- traces ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(folder, monkeypatch):
    monkeypatch.setattr(traces, "_open", OrderedDict())
    return lambda **more: traces.trace_of(
        folder, requests.TraceRequest(run="gallery/lstm", **{"text": "a cat", **more})
    )


def test_a_trace_is_kept_for_its_own_question_alone(traced):
    first = traced()
    assert traced() is first
    for other in ({"text": "a dog"}, {"gradients": True}):
        assert traced(**other) is not first
    with_gradients = traced(text="the dog", gradients=True)
    assert traced(text="the dog") is with_gradients  # it has all that is asked for


def test_every_part_of_a_question_is_in_its_key(folder, monkeypatch):
    monkeypatch.setattr(traces, "_open", OrderedDict())
    monkeypatch.setattr(traces, "_made", lambda run, asked, target, values=None: object())
    monkeypatch.setattr(traces, "_changed", lambda folder, run, asked: object())
    monkeypatch.setattr(traces, "_size", lambda trace: 1)
    plain = requests.TraceRequest(run="gallery/bahdanau", text="a cat", target="x", prefix="y")
    changes = ("layer/0",)
    questions = [
        plain,
        replace(plain, run="gallery/transformer"),
        replace(plain, text="a dog"),
        replace(plain, target="z"),
        replace(plain, target=None),
        replace(plain, prefix="z"),
        replace(plain, beam=plain.beam + 1),
        replace(plain, changes=changes),
        replace(plain, changes=changes, other="a dog"),
    ]
    found = [traces.trace_of(folder, one) for one in questions]
    assert len({id(one) for one in found}) == len(questions)
    assert all(traces.trace_of(folder, one) is made for one, made in zip(questions, found, strict=True))
    assert traces.trace_of(folder, replace(plain, other="a dog")) is found[0]  # nothing is changed by it


def test_traces_that_were_looked_at_last_stay_within_their_bytes(traced, monkeypatch):
    assert (traces.MOST_BYTES, traces.MOST_SENT) == (1 << 28, 1 << 23)
    monkeypatch.setattr(traces, "_size", lambda trace: 10)
    monkeypatch.setattr(traces, "MOST_BYTES", 20)
    first, second = traced(text="one"), traced(text="two")
    assert traced(text="one") is first
    traced(text="three")  # the second was looked at longest ago
    assert traced(text="one") is first
    assert traced(text="two") is not second
    monkeypatch.setattr(traces, "MOST_BYTES", 5)
    alone = traced(text="four")
    assert traced(text="four") is alone  # the one that is looked at stays, however large it is


def test_as_many_matrices_come_at_once_as_are_not_too_much(traced, folder, monkeypatch):
    monkeypatch.setattr(traces, "part", lambda trace, name: (np.zeros(4, np.uint8), (0.0, 1.0)))
    sent = []
    monkeypatch.setattr(traces, "pack", lambda arrays, bounds: sent.append(list(arrays)) or b"")
    asked = requests.MatrixRequest(run="gallery/lstm", text="a cat", parts=("a", "b", "c"))
    for most, wanted in ((100, ["a", "b", "c"]), (8, ["a", "b", "c"]), (7, ["a", "b"]), (0, ["a"])):
        monkeypatch.setattr(traces, "MOST_SENT", most)
        traces.matrices(folder, asked)
        assert sent[-1] == wanted


def test_a_text_is_traced_up_to_its_last_token(traced, folder, monkeypatch):
    run = open_run(folder, "gallery/lstm")
    one = len(run.tokenizer.encode("cat cat")) - len(run.tokenizer.encode("cat"))
    assert one >= 1
    count = len(run.tokenizer.encode("cat cat cat"))
    monkeypatch.setattr(traces, "MAX_TOKENS", count)
    assert traces.fits(run, "cat cat cat")
    assert not traces.fits(run, "cat cat cat cat")
    traced(text="cat cat cat")
    with pytest.raises(RegardError, match=f"but the page shows at most {count}: shorten it"):
        traced(text="cat cat cat cat")
    gpt = open_run(folder, "gallery/gpt")
    assert traces._length(gpt, "a")[1] == (count if gpt.model.context is None else min(count, gpt.model.context - 1))
    monkeypatch.setattr(traces, "MAX_TOKENS", 10**6)
    assert traces._length(gpt, "a")[1] == (10**6 if gpt.model.context is None else gpt.model.context - 1)


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_file_of_exactly_the_limit_is_read(folder, monkeypatch):
    monkeypatch.setattr(guarded_folder, "MOST_BYTES", 10)
    path = folder.keep("jobs") / "x"
    path.write_bytes(b"0123456789")
    assert read_plain(path) == b"0123456789"
    path.write_bytes(b"0123456789a")
    with pytest.raises(ValueError, match="too large"):
        read_plain(path)
    assert folder.read_own("jobs", "x", 3) == b"89a"
    assert folder.read_own("jobs", "x", 11) == b"0123456789a"


def test_names_of_new_runs_end_where_they_say(folder):
    assert folder.new("a" * 100) == folder.root / ("a" * 100)
    for wrong in ("a" * 101, "uploads", "a.", "_a", ".a", "a/b", "", "a b"):
        with pytest.raises(RegardError, match="is not a valid run name"):
            folder.new(wrong)
    assert folder.free_name("x" * 90) == "x" * 80
    assert folder.free_name("../é text") == "é-text"
    (folder.root / "run").mkdir()
    assert folder.free_name("///", {"run-2"}) == "run-3"
    make_run(folder, "p" * 200)
    assert folder.inside("p" * 200)


def test_uploads_end_at_their_last_byte_and_file(folder, monkeypatch):
    assert (uploads.MOST_UPLOAD, uploads.MOST_PARTS, uploads.OLDEST) == (4 << 30, 100, 24 * 3600)
    monkeypatch.setattr(uploads, "MOST_UPLOAD", 10)
    token = uploads.take(folder, "a.txt", "", b"12345", last=False)["token"]
    assert uploads.take(folder, "a.txt", token, b"67890", last=True) == {"name": "a.txt", "bytes": 10}
    token = uploads.take(folder, "b.txt", "", b"12345", last=False)["token"]
    with pytest.raises(RegardError, match="cannot be uploaded"):
        uploads.take(folder, "b.txt", token, b"678901", last=True)
    monkeypatch.setattr(uploads, "MOST_PARTS", 2)
    first = uploads.take(folder, "c.txt", "", b"1", last=False)["token"]
    uploads.take(folder, "d.txt", "", b"1", last=False)
    with pytest.raises(RegardError, match="2 uploads are already in progress"):
        uploads.take(folder, "e.txt", "", b"1", last=False)
    assert uploads.take(folder, "c.txt", first, b"2", last=True)["bytes"] == 2  # one that has begun may end
    assert uploads.take(folder, "../ä b.tar.gz", "", b"x", last=True)["name"] == "ä-b.tar.gz"


def test_what_was_deleted_is_listed_newest_first_and_a_training_is_not_deleted(folder):
    trash = Trash(folder)
    marks = []
    for number, name in enumerate(("a", "b")):
        path = make_run(folder, name)
        with try_lock(path / ".lock"), pytest.raises(RegardError, match=f"{name} is training: stop it first"):
            trash.put(name)
        marks.append(trash.put(name)["mark"])
        os.utime(folder.root / ".lab" / "trash" / marks[-1], (1000 + number, 1000 + number))
    assert trash.list() == [{"mark": marks[1], "name": "b"}, {"mark": marks[0], "name": "a"}]
    make_run(folder, "a")
    with pytest.raises(RegardError, match="a exists again"):
        trash.back(marks[0])
    assert trash.back(marks[1]) == {"name": "b"}
    with pytest.raises(RegardError, match="already restored"):
        trash.back(marks[1])
    trash.empty()
    assert trash.list() == []
    assert {run["name"] for run in folder.runs()} == {"a", "b"}


def test_the_process_of_models_has_its_threads_and_an_answer_its_limit(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    assert worker.LabWorker(tmp_path).threads == 4
    started = {}

    async def start(*command, **how):
        started.update(command=command, **how)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    asyncio.run(worker.LabWorker(tmp_path, 3)._start())
    assert (started["env"]["OMP_NUM_THREADS"], started["env"]["MKL_NUM_THREADS"]) == ("3", "3")
    assert started["command"][1:] == ("-P", "-m", "regard.web.lab.worker_process", str(tmp_path))
    assert started["start_new_session"]
    assert (worker.WAITING, worker.START, worker.MOST_ANSWER) == (12, 60.0, 1 << 28)


# -- what fails, and what is cleaned up ------------------------------------------------------------------------------


def refusing(*_, **__):
    raise OSError(30, "Read-only file system")


def test_what_cannot_be_moved_stays_where_it_was(folder, monkeypatch):
    path, bin_ = make_run(folder, "a"), Trash(folder)
    real = os.rename
    monkeypatch.setattr(os, "rename", refusing)
    with pytest.raises(RegardError, match=r"a could not be deleted \(Read-only file system\): try again"):
        bin_.put("a")
    assert list((folder.root / ".lab" / "trash").iterdir()) == []
    assert path.is_dir()
    monkeypatch.setattr(os, "rename", real)
    mark = bin_.put("a")["mark"]
    monkeypatch.setattr(os, "rename", refusing)
    with pytest.raises(RegardError, match=r"a could not be restored \(Read-only file system\): look in .*" + mark):
        bin_.back(mark)
    monkeypatch.setattr(os, "rename", real)
    remove = shutil.rmtree
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors=False: ignore_errors or refusing())
    assert bin_.back(mark) == {"name": "a"}  # what is left of it in the trash is no reason to refuse it
    remove(folder.root / ".lab" / "trash" / mark)
    monkeypatch.setattr("shutil.rmtree", remove)
    mark = bin_.put("a")["mark"]
    assert bin_.back(mark) == {"name": "a"}
    assert list((folder.root / ".lab" / "trash").iterdir()) == []  # nothing is left of it
    (folder.root / "plain").mkdir()
    with pytest.raises(RegardError, match="plain is neither a run nor a comparison"):
        bin_.put("plain")
    monkeypatch.setattr("shutil.rmtree", refusing)
    with pytest.raises(RegardError, match=r"could not be emptied \(Read-only file system\): delete it yourself"):
        bin_.empty()


def test_a_run_comes_back_into_the_folder_that_it_was_in(folder):
    make_run(folder, "demo/a")
    bin_ = Trash(folder)
    mark = bin_.put("demo/a")["mark"]
    assert bin_.back(mark) == {"name": "demo/a"}
    mark = bin_.put("demo/a")["mark"]
    (folder.root / "demo").rmdir()
    (folder.root / "elsewhere").mkdir()
    (folder.root / "demo").symlink_to(folder.root / "elsewhere")
    with pytest.raises(RegardError, match="There is no run 'demo' in this folder"):
        bin_.back(mark)
    was = folder.root / ".lab" / "trash" / mark / "was.json"
    for name in ("../x", "uploads/x", ".x", "", 5, "a//b"):
        was.write_text(json.dumps({"name": name}))
        assert bin_.list() == [{"mark": mark, "name": f"restored-{mark[:6]}"}]


def test_a_folder_that_cannot_be_written_says_so(folder, monkeypatch):
    monkeypatch.setattr(guarded_folder.Path, "mkdir", refusing)
    with pytest.raises(RegardError, match=r"Regard cannot write to .* \(Read-only file system\): open another folder"):
        folder.keep("jobs")
    monkeypatch.undo()
    (folder.root / ".lab").mkdir()
    monkeypatch.setattr(guarded_folder.Path, "mkdir", refusing)
    with pytest.raises(RegardError, match="open another folder"):
        folder.keep("jobs")
    monkeypatch.undo()
    assert folder.keep("jobs") == folder.keep("jobs") == folder.root / ".lab" / "jobs"
    assert (folder.own_names("jobs"), folder.own_names("none")) == ([], [])
    (folder.root / ".lab" / "jobs" / "b").write_text("x")
    (folder.root / ".lab" / "jobs" / "a").write_text("x")
    assert folder.own_names("jobs") == ["a", "b"]
    monkeypatch.setattr(os, "listdir", refusing)
    monkeypatch.setattr(os, "open", refusing)
    assert folder.own_names("jobs") == []
    assert folder.read_own("jobs", "a") == b""


def test_a_folder_that_cannot_be_looked_into_is_passed_by(folder, monkeypatch):
    make_run(folder, "a")
    make_run(folder, "b/c")
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: refusing() if str(path).endswith("b") else real(path))
    assert [run["name"] for run in folder.runs()] == ["a"]
    assert folder.summary(folder.root / "a")["kept"] == 0


@pytest.mark.parametrize(
    ("training", "share"),
    [({"budget": "often"}, None), ({"steps": "many"}, None), ({"steps": [1]}, None), ({"steps": 8}, 0.125), ({}, 1.0)],
)
def test_a_share_of_a_budget_that_nobody_understands_is_not_known(folder, training, share):
    assert folder.summary(make_run(folder, "a", training=training or {"x": 1}))["share"] == share


def test_runs_of_one_recipe_differ_in_their_seed_alone(folder):
    digests = [
        folder.summary(make_run(folder, f"r{n}", training={"steps": 4, **more}))["recipe"]
        for n, more in enumerate(({"seed": 1}, {"seed": 2}, {"seed": 2, "learning_rate": 0.1}, {}))
    ]
    assert digests[0] == digests[1] == digests[3] != digests[2]
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert runs_folder._without_seed({"a": deep}) == ""


def test_news_of_a_stopped_run_are_told_only_to_who_has_its_curve(folder):
    make_run(folder, "a")
    assert [name for name, _ in news(folder, [lambda: None])] == ["runs", "jobs"]
    assert [name for name, _ in news(folder, [lambda: None], {"a": (0, 0)})] == ["runs", "points", "jobs"]


def test_a_page_says_of_each_curve_its_age_and_rows(monkeypatch):
    since = ("a:0.5", "b/c:3", "x:y.z", "d:7.12", "e", "f:1.2.3", ":4", "g:.6")
    seen = []

    async def asked(request, kind):
        return requests.Since(since=since)

    monkeypatch.setattr(events, "asked", asked)
    monkeypatch.setattr(events, "lab_of", lambda request: "lab")
    monkeypatch.setattr(events, "_news", lambda lab, request, known: seen.append((lab, known)))
    answer = asyncio.run(events.events(None))
    assert seen == [("lab", {"a": (0, 5), "b/c": (0, 3), "d": (7, 12), "": (0, 4), "g": (0, 6)})]
    assert (answer.media_type, answer.headers["cache-control"]) == ("text/event-stream", "no-store")


def test_weights_have_the_step_that_is_noted_beside_them(folder):
    from safetensors.numpy import save_file

    kept, file = Samples(folder, None), make_run(folder, "a") / "model.safetensors"
    assert kept.step_now("a") is None
    for note, step in (({"step": 7}, 7), ({"step": None}, 0), ({}, 0), ({"step": "x"}, None), ({"step": [1]}, None)):
        save_file({}, file, {"regard": json.dumps(note)})
        assert kept.step_now("a") == step
    file.write_text("damaged")
    assert kept.step_now("a") is None


def test_who_asks_for_a_sample_at_the_same_time_gets_the_same_and_closing_gives_it_up(folder):
    from safetensors.numpy import save_file

    save_file({}, make_run(folder, "a") / "model.safetensors", {"regard": json.dumps({"step": 3})})
    asked, answer = [], asyncio.Event()

    async def ask(work, body, *, seconds):
        asked.append((work, body, seconds))
        await answer.wait()
        return SimpleNamespace(value={"text": "é"})

    async def life():
        kept = Samples(folder, ask)
        both = [asyncio.create_task(kept.renew("a")) for _ in range(2)]
        while not asked:
            await asyncio.sleep(0)
        both[0].cancel()  # a page that is closed does not end it for the others
        await asyncio.sleep(0)
        answer.set()
        assert await both[1]
        assert not await kept.renew("a")
        assert kept._asked == {}
        answer.clear()
        save_file({}, folder.root / "a" / "model.safetensors", {"regard": json.dumps({"step": 4})})
        late = asyncio.create_task(kept.renew("a"))
        while len(asked) < 2:
            await asyncio.sleep(0)
        kept.close()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert kept._asked == {}
        return kept.kept("a")

    assert [one["text"] for one in asyncio.run(life())] == ["é"]
    assert asked == [("runs.sample", {"run": "a"}, 60)] * 2


def test_the_lab_looks_at_what_trains_and_is_not_stopped_by_what_fails(folder, monkeypatch):
    looks = [[("a", "running"), ("b", "done"), ("c", "running")], [("c", "stopped"), ("d", "running")]]
    renewed, waited = [], []
    monkeypatch.setattr(folder, "runs", lambda: [{"name": name, "state": state} for name, state in looks[len(waited)]])

    async def renew(name):
        renewed.append(name)
        if name == "a":
            raise RegardError("It is gone.")

    async def sleep(seconds):
        waited.append(seconds)
        if len(waited) == len(looks):
            raise asyncio.CancelledError

    async def watch():
        kept = Samples(folder, None)
        kept.renew = renew
        await kept.watch()

    monkeypatch.setattr(samples.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch())
    assert (renewed, waited) == (["a", "c", "d"], [2.0, 2.0])


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_a_process_is_known_by_the_words_that_its_command_ends_with(monkeypatch):
    own = jobs.Path("/proc/self/cmdline")
    if not own.exists():
        pytest.skip("this system has no /proc")
    words = [os.fsdecode(word) for word in own.read_bytes().split(b"\0")[:-1]]
    assert jobs._runs(os.getpid(), words[-1:])
    assert jobs._runs(os.getpid(), words[-2:])
    assert not jobs._runs(os.getpid(), [words[-1] + "x"])
    assert not jobs._runs(os.getpid(), [words[-1][1:]])  # whole words
    assert not jobs._runs(os.getpid(), [*words[-1:], "more"])
    assert not jobs._runs(2**22 + 1, words[-1:])


def test_where_there_is_no_proc_the_words_are_those_of_ps(monkeypatch):
    asked, told = [], [b"/usr/bin/python -P -m regard train lstm\n"]

    def run(command, **how):
        asked.append((command, how))
        if told[0] is None:
            raise subprocess.TimeoutExpired(command, 10)
        return SimpleNamespace(stdout=told[0])

    monkeypatch.setattr(jobs, "Path", lambda path: SimpleNamespace(exists=lambda: False))
    monkeypatch.setattr(jobs, "subprocess", SimpleNamespace(run=run, SubprocessError=subprocess.SubprocessError))
    assert jobs._runs(7, ["-m", "regard", "train", "lstm"])
    assert not jobs._runs(7, ["regard", "train", "gpt"])
    assert not jobs._runs(7, ["gard", "train", "lstm"])
    assert asked[0] == (["ps", "-ww", "-o", "command=", "-p", "7"], {"capture_output": True, "timeout": 10})
    told[0] = None
    assert not jobs._runs(7, ["lstm"])


@pytest.mark.parametrize(
    ("record", "goes_on"),
    [({}, True), ({"pid": 2}, True), ({"pid": 1}, False), ({"pid": -5}, False), ({"run": "none"}, False),
     ({"run": ""}, False), ({"words": ["train", "lstm"]}, False), ({"words": ["resume", "ROOT/a"]}, True),
     ({"words": ["resume", "ROOT/a", "x"]}, False), ({"words": ["train", "--run=ROOT/b"]}, False)],
)  # fmt: skip
def test_a_job_goes_on_if_its_process_works_in_its_folder(folder, monkeypatch, record, goes_on):
    make_run(folder, "a")
    asked = []
    monkeypatch.setattr(jobs, "is_running", lambda path: path == folder.root / "a")
    monkeypatch.setattr(jobs, "_runs", lambda pid, words: asked.append((pid, words)) or True)
    made = {"words": ["train", "--run=ROOT/a"], "pid": 77, "run": "a"} | record
    made["words"] = [word.replace("ROOT", str(folder.root)) for word in made["words"]]
    found = jobs.Jobs(folder)._goes_on(made)
    assert found == goes_on
    assert asked == ([(made["pid"], ["-m", "regard", *made["words"]])] if goes_on else [])
    monkeypatch.setattr(jobs, "is_running", lambda path: False)
    assert not jobs.Jobs(folder)._goes_on(made)


def test_a_job_that_cannot_begin_says_why(folder, monkeypatch):
    def no_process(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(jobs, "subprocess", SimpleNamespace(Popen=no_process, DEVNULL=-3))
    with pytest.raises(RegardError, match=r"The job could not be started \(Cannot allocate memory\): try again"):
        jobs.Jobs(folder).start("check", ["x"], title="t")
    assert jobs.Jobs(folder).list() == []
    with pytest.raises(RegardError, match="There is no such job"):
        jobs.Jobs(folder).find("f")
    for number in ("g", "F", "../x", "", "a" * 41):
        with pytest.raises(RegardError, match="There is no such job"):
            jobs.Jobs(folder).find(number)


def test_a_job_is_a_command_of_its_own_that_nothing_ends(folder, monkeypatch):
    began = []

    def popen(command, **how):
        began.append((command, how))
        return SimpleNamespace(pid=4711, poll=lambda: None)

    monkeypatch.setattr(jobs, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=-3))
    found = jobs.Jobs(folder).start("training", ["train", "lstm"], title="training a", run="a")
    ((command, how),) = began
    assert command == [sys.executable, "-P", "-m", "regard", "train", "lstm"]
    assert (how["stdin"], how["start_new_session"]) == (-3, True)
    assert (how["stdout"].name, how["stderr"].name) == tuple(
        str(folder.root / ".lab" / "jobs" / f"{found['id']}.{ending}") for ending in ("out", "log")
    )
    assert how["stdout"].closed
    assert how["stderr"].closed
    assert {key: found[key] for key in ("kind", "title", "run", "pid", "running", "code", "command")} == {
        "kind": "training", "title": "training a", "run": "a", "pid": 4711, "running": True, "code": None,
        "command": "regard train lstm",
    }  # fmt: skip


def test_a_new_job_gets_a_name_that_neither_a_folder_nor_a_running_job_has(folder, monkeypatch):
    lab, started = jobs.Jobs(folder), []
    (folder.root / "a").mkdir()
    monkeypatch.setattr(lab, "list", lambda: [{"run": "a-2", "running": True}, {"run": "a-3", "running": False}])
    monkeypatch.setattr(lab, "_start", lambda *words: started.append(words))
    lab.start_new("training", ["train"], "training {}".format, wanted="a")
    lab.start_new("training", ["train"], "training {}".format, name="b", wanted="a")
    assert started == [
        ("training", ["train", f"--run={folder.root / name}"], f"training {name}", name) for name in ("a-3", "b")
    ]


# -- the worker ------------------------------------------------------------------------------------------------------


def test_a_question_that_nobody_waits_for_ends_the_process_that_is_answering(tmp_path):
    class Pipe:
        """A process that takes the question and does not answer."""

        def __init__(self):
            self.stdin, self.stdout, self.returncode, self.asked, self.killed = self, self, None, [], 0

        def write(self, content):
            self.asked.append(content)

        async def drain(self):
            pass

        async def readline(self):
            await asyncio.Event().wait()

        def kill(self):
            self.killed += 1

        async def wait(self):
            self.returncode = -9

    made = []

    class Quiet(worker.LabWorker):
        async def _start(self):
            made.append(Pipe())
            return made[-1]

    async def life():
        one = Quiet(tmp_path, 1)
        for count in (1, 2):
            task = asyncio.create_task(one.ask("a.b", {"n": count}, only="x"))
            while len(made) < count or not made[-1].asked:
                await asyncio.sleep(0)
            assert one.waiting == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (one.waiting, one._process, one._newest, made[-1].killed) == (0, None, {}, 1)

    asyncio.run(life())
    assert [json.loads(one.asked[0]) for one in made] == [{"work": "a.b", "body": {"n": n}} for n in (1, 2)]
    assert all(one.asked[0].endswith(b"\n") for one in made)


@pytest.mark.parametrize(("size", "fits"), [(8, True), (9, False)])
def test_an_answer_may_be_as_large_as_the_limit(size, fits, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "MOST_ANSWER", 8)
    content = b"1" * size

    class Pipe:
        returncode = None

        def __init__(self):
            self.stdin = SimpleNamespace(write=lambda content: None, drain=self.nothing)
            self.stdout = SimpleNamespace(readline=self.head, readexactly=self.body)

        async def nothing(self):
            pass

        async def head(self):
            return json.dumps({"kind": "json", "bytes": size}).encode() + b"\n"

        async def body(self, count):
            return content[:count]

        def kill(self):
            pass

        async def wait(self):
            self.returncode = 0

    class Large(worker.LabWorker):
        async def _start(self):
            return Pipe()

    one = Large(tmp_path, 1)
    if fits:
        assert asyncio.run(one.ask("a.b", {})).content == content
    else:
        with pytest.raises(RegardError, match="too large for the page"):
            asyncio.run(one.ask("a.b", {}))
        assert one._process is None


def test_a_lecture_of_another_version_shows_the_line_that_it_names():
    class Moved:
        file, text = "layers/cell.py", "def step"

        def around(self):
            raise RegardError("It is not there.")

    assert routes_lectures._code(Moved()) == {"place": "layers/cell.py", "first": 0, "at": 0, "lines": ["def step"]}


@pytest.mark.parametrize(("left", "said"), [(0, ""), (1, "1 job is still running"), (2, "2 jobs are still running")])
def test_who_closes_the_lab_is_told_what_goes_on(tmp_path, monkeypatch, capsys, left, said):
    closed = []
    monkeypatch.setattr(jobs.Jobs, "close", lambda self: left)
    monkeypatch.setattr(Samples, "close", lambda self: closed.append("samples"))
    monkeypatch.setattr(worker.LabWorker, "close", closing := AsyncMock())
    with TestClient(application(tmp_path / "runs"), base_url="http://127.0.0.1") as client:
        lab = client.app.state.lab
        assert not lab.closing.is_set()
    assert lab.closing.is_set()
    assert (closed, closing.await_count) == (["samples"], 3)
    told = capsys.readouterr().err
    assert told == (f"{said}; `regard lab {tmp_path / 'runs'}` shows them again\n" if said else "")


def test_a_new_process_has_a_minute_more_to_answer(tmp_path, monkeypatch):
    given, real = [], asyncio.timeout
    monkeypatch.setattr(worker.asyncio, "timeout", lambda seconds: given.append(seconds) or real(None))
    ended = []

    class Pipe:
        returncode = None

        def __init__(self):
            self.stdin = SimpleNamespace(write=lambda content: None, drain=self.nothing)
            self.stdout = SimpleNamespace(readline=self.head, readexactly=self.body)

        async def nothing(self):
            pass

        async def head(self):
            return b'{"kind": "json", "bytes": 1}\n'

        async def body(self, count):
            return b"1"

        def kill(self):
            ended.append(self)

        async def wait(self):
            self.returncode = 0

    class Quick(worker.LabWorker):
        async def _start(self):
            return Pipe()

    async def life():
        one = Quick(tmp_path, 1)
        for seconds in (None, 30, 5):
            await one.ask("a.b", {}, **({} if seconds is None else {"seconds": seconds}))
        await one.close()
        await one.close()
        await one.ask("a.b", {}, seconds=7)

    asyncio.run(life())
    assert given == [120.0, 30, 5, 67.0]
    assert len(ended) == 1


def test_of_many_records_the_newest_two_hundred_are_kept(folder, monkeypatch):
    place = folder.keep("jobs")
    for number in range(205):
        for ending in ("json", "log", "out", "stop") if number < 9 else ("json", "stop"):
            (place / f"{number:03x}.{ending}").write_text("{}")
    monkeypatch.setattr(jobs, "subprocess", SimpleNamespace(
        Popen=lambda command, **how: SimpleNamespace(pid=1, poll=lambda: 0), DEVNULL=-3
    ))  # fmt: skip
    jobs.Jobs(folder).start("check", ["x"], title="t")
    assert len(list(place.glob("*.json"))) == 200
    assert {path.name.partition(".")[0] for path in place.glob("*.stop")} == {f"{n:03x}" for n in range(6, 205)}
    assert len(list(place.glob("*.log"))) == len(list(place.glob("*.out"))) == 4  # three of before, and the new one
    assert jobs.MOST_LOG == 65536
    assert guarded_folder.MOST_BYTES == 1 << 24


def test_a_step_has_ten_choices(traced):
    assert {len(step) for step in traced().top} == {10}
