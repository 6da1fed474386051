"""What each address of the lab does: the question it asks of which worker, the command it starts, and what it says."""

import asyncio
import dataclasses
import inspect
import json
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.testclient import TestClient
from test_notices_lab import ROW, make_run
from test_notices_work import unpacked

from regard.base.errors import RegardError
from regard.base.fields import WholeField
from regard.learn.exercises.exercise_list import EXERCISES
from regard.learn.exercises.grading_process import LIMIT
from regard.learn.lectures.lecture_pages import CHAPTERS, lectures
from regard.learn.lectures.mathematics import FORMULA, as_tree
from regard.systems.catalogue import SYSTEMS
from regard.web.lab import (
    live_curve,
    opening,
    requests,
    routes_exercises,
    routes_runs,
    routes_sentence,
    routes_translation,
    worker_process,
)
from regard.web.lab.application import FRESH, LANES, QUESTIONS, STATIC, Lab, application, reply
from regard.web.lab.downsampling import in_buckets
from regard.web.lab.jobs import Jobs
from regard.web.lab.live_curve import LiveCurve
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.worker import Busy, Overtaken, WorkerAnswer


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("routes") / "runs"
    folder = RunsFolder(root)
    make_run(folder, "a", created="2026-02-02", rows=[ROW, {**ROW, "step": 2, "tokens": 20, "split": "valid"}])
    make_run(folder, "b", rows=())
    (root / "uploads").mkdir()
    (root / "uploads" / "my.txt").write_text("a b\n")
    (root / "uploads" / "two.tsv").write_text("a\tb\nc\td\n" * 40)
    (root / "both").mkdir()
    question = {"systems": ["lstm"], "data": "copy", "match": "tokens", "budget": "1000", "seeds": 2, "size": "tiny"}
    (root / "both" / "comparison.json").write_text(json.dumps({"question": question, "facts": {}, "entrants": []}))
    return root


@pytest.fixture(scope="module")
def lab(root):
    """The lab's own pages without its processes: `lab.asked` and `lab.started` have what it would have asked for."""
    asked, started, answer = [], [], {"raise": None}

    async def ask(self, work, body, *, seconds=60, only="", lane="models"):
        asked.append((work, body, seconds, only, lane))
        if answer["raise"]:
            raise answer["raise"]
        return WorkerAnswer("json", b'{"is": "answered"}')

    def start(self, kind, words, title, run):
        started.append((kind, words, title, run))
        return {"id": "f"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lab, "ask", ask)
        patch.setattr(Jobs, "_start", start)
        with TestClient(application(root), base_url="http://127.0.0.1") as client:
            yield SimpleNamespace(client=client, asked=asked, started=started, answer=answer, root=root)


@pytest.fixture(autouse=True)
def _forgotten(lab):
    lab.asked.clear()
    lab.started.clear()
    lab.answer["raise"] = None


# -- questions -------------------------------------------------------------------------------------------------------

EXERCISE = LIMIT + 40.0
QUESTION = {  # address: the question, its longest time, the worker that answers
    "GET claims": ("claims.every", 60, "settings"),
    "GET claims/one": ("claims.one", 60, "settings"),
    "GET ladder/one": ("ladder.open", 120, "models"),
    "POST ladder/check": ("ladder.check", 60, "settings"),
    "GET time/about": ("time.about", 60, "models"),
    "GET time/vectors": ("time.vectors", 60, "models"),
    "POST time/heads": ("time.heads", 120, "models"),
    "POST time/film": ("time.film", 240, "models"),
    "POST text/statistics": ("text.statistics", 60, "settings"),
    "POST text/tokens": ("text.tokens", 60, "settings"),
    "POST runs/learned": ("runs.learned", 60, "settings"),
    "POST runs/page": ("runs.page", 60, "settings"),
    "POST runs/characters": ("runs.characters", 60, "settings"),
    "POST runs/form": ("runs.form", 60, "settings"),
    "GET exercises/own": ("exercises.own", 60, "exercises"),
    **{f"POST sentence/{name}": (f"sentence.{name}", seconds, "models") for name, seconds in {
        "page": 120, "cause": 120, "following": 30, "edit": 30, "trace": 60, "work": 60, "matrix": 60, "write": 60,
        "example": 60,
    }.items()},
    **{f"POST translation/{name}": (f"translation.{name}", seconds, "models") for name, seconds in {
        "page": 120, "cause": 120, "work": 60, "trace": 60, "matrix": 60, "begin": 30, "example": 60,
    }.items()},
}  # fmt: skip
BODIES = {"sentence.page": {"traces": [{"run": "a"}]}, "translation.page": {"traces": [{"run": "a"}]},
          "sentence.matrix": {"parts": ["x"]}, "translation.matrix": {"parts": ["x"]}}  # fmt: skip


@pytest.mark.parametrize("address", QUESTION)
def test_each_question_goes_to_its_worker_and_has_its_time(lab, address):
    (method, path), (work, seconds, lane) = address.split(" "), QUESTION[address]
    body = BODIES.get(work, {})
    answer = lab.client.request(method, f"/api/{path}", **({"json": body} if method == "POST" else {}))
    assert answer.json() == {"is": "answered"}
    ((asked, _, most, only, where),) = lab.asked
    assert (asked, most, only, where) == (work, seconds, "", lane)
    view, name = work.split(".")
    assert name in __import__(f"regard.web.lab.work_{view}", fromlist=["WORK"]).WORK
    if "only" in QUESTIONS[work].declared() and method == "POST":
        lab.client.post(f"/api/{path}", json=body | {"only": "this one"})
        assert lab.asked[-1][3] == "this one"
    if "gradients" in QUESTIONS[work].declared():
        lab.client.post(f"/api/{path}", json=body | {"gradients": True})
        assert lab.asked[-1][2] == 120


def test_every_question_has_an_answerer_and_an_address(lab):
    works = {
        f"{view}.{name}"
        for view in worker_process.VIEWS
        for name in __import__(f"regard.web.lab.work_{view}", fromlist=["WORK"]).WORK
    }
    assert works == set(QUESTIONS)
    reached = {work for work, *_ in QUESTION.values()}
    assert works - reached == {"runs.sample", "exercises.check", "translation.differences"}
    assert (LANES, FRESH) == (("models", "settings", "exercises"), 0.5)


def test_every_address_that_a_page_asks_is_there(lab):
    """By the calls in the scripts of the pages."""
    methods = {"get": "GET", "arrays": "GET", "events": "GET", "post": "POST", "postArrays": "POST", "upload": "PUT"}
    there = {}
    for route in application(lab.root).routes:
        there.setdefault(route.path.removeprefix("/api/"), set()).update(route.methods)
    calls = set()
    for path in STATIC.rglob("*.js"):
        calls |= set(re.findall(r"api\.(\w+)\(\s*\"([a-z/-]+)\"", path.read_text(encoding="utf-8")))
    assert len(calls) > 40
    for how, path in calls:
        view = f"{path.split('/')[0]}/{{name}}"
        assert methods[how] in there.get(path, there.get(view, ())), f"{how} {path}"
        if path not in there:
            seconds = {"sentence": routes_sentence.LONG, "translation": routes_translation.LONG}[path.split("/")[0]]
            assert path.split("/")[1] in seconds


def test_what_is_not_there_and_what_is_not_allowed_are_told_apart(lab):
    for method, path, status, sentence in (
        ("GET", "/api/none", 404, "There is nothing at this address."),
        ("GET", "/none.js", 404, "There is nothing at this address."),
        ("POST", "/api/sentence/differences", 404, "There is nothing at this address."),
        ("POST", "/api/runs", 405, "This method is not allowed here."),
        ("DELETE", "/api/runs/one", 405, "This method is not allowed here."),
    ):
        answer = lab.client.request(method, path)
        assert (answer.status_code, answer.json()) == (status, {"error": sentence})
    for error, status in ((Busy("It is busy."), 503), (Overtaken("A newer one."), 409), (RegardError("No\n it."), 400)):
        lab.answer["raise"] = error
        answer = lab.client.get("/api/claims")
        assert (answer.status_code, answer.json()) == (status, {"error": " ".join(str(error).split())})
    lab.answer["raise"] = KeyError("x")
    with pytest.raises(KeyError):  # the stack goes to the terminal
        lab.client.get("/api/claims")
    quiet = TestClient(lab.client.app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    answer = quiet.get("/api/claims")
    said = "The lab failed to answer this request (KeyError): see its terminal for details."
    assert (answer.status_code, answer.json()) == (500, {"error": said})


def test_who_asks_again_gets_the_file_only_if_it_changed(lab):
    for path, kind in (("/", "text/html"), ("/shell.js", "text/javascript"), ("/colours.css", "text/css"),
                       ("/colours.js", "text/javascript"), ("/mark.svg", "image/svg+xml")):  # fmt: skip
        answer = lab.client.get(path)
        assert answer.headers["content-type"].startswith(kind)
        assert (answer.headers["cache-control"], answer.headers["vary"]) == ("no-cache", "accept-encoding")
        mark = answer.headers["etag"]
        assert re.fullmatch('"[0-9a-f]{24}"', mark)
        assert lab.client.get(path, headers={"if-none-match": mark}).status_code == 304
        assert lab.client.get(path, headers={"if-none-match": '"x"'}).status_code == 200
        plain = lab.client.get(path, headers={"accept-encoding": "identity"})
        assert (plain.headers.get("content-encoding"), plain.content) == (None, answer.content)
    assert ":root" in lab.client.get("/colours.css").text
    assert "export" in lab.client.get("/colours.js").text
    about = lab.client.get("/api/lab").json()
    assert (about["folder"], about["name"], about["read_only"]) == (str(lab.root), "runs", False)


# -- commands --------------------------------------------------------------------------------------------------------


def started(lab, path, body):
    answer = lab.client.post(f"/api/{path}", json=body)
    assert answer.json() == {"id": "f"}, answer.text
    (found,) = lab.started
    lab.started.clear()
    return found


def test_a_form_becomes_the_command_that_it_describes(lab):
    root, upload = lab.root, str(lab.root / "uploads" / "my.txt")
    form = {"system": "lstm", "size": "tiny", "data": "my.txt", "settings": {"model.width": "9", "training.steps": "5"}}
    words = ["train", "lstm", "--size=tiny", f"--data={upload}", "--model.width=9", "--training.steps=5"]
    assert started(lab, "runs/start", form) == (
        "training", [*words, f"--run={root / 'lstm-my'}"], "training lstm-my", "lstm-my",
    )  # fmt: skip
    assert started(lab, "runs/start", form | {"name": "mine"})[2:] == ("training mine", "mine")
    assert started(lab, "runs/estimate", form) == ("estimate", [*words, "--dry-run", "--json"], "estimate", "")
    tuned = started(lab, "runs/start", {"from": "a", "data": "copy", "size": "tiny"})
    assert tuned[1] == ["train", "--data=copy", f"--from={root / 'a'}", f"--run={root / 'a-copy'}"]
    check = started(lab, "runs/check", {"data": "my.txt", "columns": "1,2", "encoding": "cp1252"})
    words = ["data", "check", upload, "--json", "--data.columns=1,2", "--data.encoding=cp1252"]
    assert check == ("check", words, "check of my.txt", "")
    assert started(lab, "runs/check", {"data": "my.txt"})[1] == words[:4]


def test_settings_that_name_files_and_runs_stay_in_the_folder(lab):
    upload = str(lab.root / "uploads" / "my.txt")
    settings = {"data.also": "my.txt:0.5, copy", "data.translator": "a", "data.monolingual": "my.txt"}
    words = started(lab, "runs/start", {"system": "lstm", "data": "copy", "settings": settings})[1]
    assert f"--data.also={upload}:0.5,copy" in words
    assert f"--data.translator={lab.root / 'a'}" in words
    assert f"--data.monolingual={upload}" in words
    empty = {"data.also": "", "data.translator": "", "data.monolingual": ""}
    words = started(lab, "runs/start", {"system": "lstm", "data": "copy", "settings": empty})[1]
    assert {f"--{key}=" for key in empty} <= {*words}
    for key in ("data.corpus", "else.x", "model", "model.a b", "training."):
        answer = lab.client.post("/api/runs/start", json={"system": "lstm", "data": "copy", "settings": {key: "x"}})
        assert answer.json() == {"error": f"There is no setting {key!r}."}
    assert lab.client.post("/api/runs/start", json={"system": "x"}).json() == {"error": "There is no system 'x'."}


def test_a_comparison_is_started_and_continued_by_its_command(lab):
    form = {"systems": ["lstm", "gpt"], "data": "copy", "match": "tokens", "budget": " 1000 ", "seeds": 3}
    words = ["compare", "lstm", "gpt", "--data=copy", "--match=tokens", "--budget=1000", "--seeds=3", "--size=small"]
    folder = f"--run={lab.root / 'compare-copy'}"
    assert started(lab, "ladder/start", form) == (
        "comparison",
        [*words, folder],
        "comparing in compare-copy",
        "compare-copy",
    )
    assert lab.client.post("/api/ladder/start", json={}).json() == {
        "error": "Choose the text to compare the systems on."
    }
    words = ["compare", "lstm", "--data=copy", "--match=tokens", "--budget=1000", "--seeds=2", "--size=tiny"]
    again = started(lab, "ladder/go-on", {"run": "both"})
    assert again == ("comparison", [*words, f"--run={lab.root / 'both'}"], "resuming both", "both")
    listed = lab.client.get("/api/ladder").json()
    assert [one["name"] for one in listed["comparisons"]] == ["both"]
    assert listed["jobs"] == []


@pytest.mark.parametrize("key", ["settings", "prompt", "placebo", "tune", "data"])
def test_a_comparison_that_no_form_can_ask_for_goes_on_in_its_terminal(lab, key):
    file = lab.root / "both" / "comparison.json"
    before = file.read_text()
    tree = json.loads(before)
    tree["question"][key] = "/elsewhere/text.txt" if key == "data" else {"x": 1}
    file.write_text(json.dumps(tree))
    try:
        answer = lab.client.post("/api/ladder/go-on", json={"run": "both"})
    finally:
        file.write_text(before)
    assert "was started in a terminal" in answer.json()["error"]


def test_a_claim_and_an_evaluation_are_started_by_their_commands(lab):
    words = ["claims", "hull", "--again", "--quick", "--first-seed=0", "--knob=gain=0.5"]
    found = started(lab, "claims/run", {"name": "hull", "quick": True, "seed": 0, "knobs": {"gain": 0.5}})
    assert found == ("claim", [*words, f"--run={lab.root / 'claims-hull'}"], "claim hull", "claims-hull")
    assert lab.asked == [("claims.one", {"name": "hull"}, 60, "", "settings")]
    assert started(lab, "claims/run", {"name": "hull"})[1][:-1] == ["claims", "hull", "--again"]
    words = ["evaluate", str(lab.root / "a"), "--by-length", "--texts", "--json"]
    found = started(lab, "translation/evaluate", {"run": "a", "data": "valid"})
    assert found == ("evaluation", [*words, "--split", "valid"], "evaluate a", "")
    found = started(lab, "translation/evaluate", {"run": "a", "data": "uploads/two.tsv"})
    assert found[1] == [*words, "--data", str(lab.root / "uploads" / "two.tsv")]
    answer = lab.client.post("/api/translation/evaluate", json={"run": "a", "data": "none"})
    assert answer.json()["error"].startswith("There is no split or file 'none' here")


def test_a_stopped_run_goes_on_unless_it_is_training(lab, monkeypatch):
    monkeypatch.setattr("regard.web.lab.routes_runs.check_own", lambda path: None)
    found = started(lab, "runs/go-on", {"run": "a"})
    assert found == ("training", ["resume", str(lab.root / "a")], "resuming a", "a")
    monkeypatch.setattr("regard.web.lab.routes_runs.is_running", lambda path: True)
    monkeypatch.setattr("regard.web.lab.routes_ladder.is_running", lambda path: True)
    said = {"error": "a is already training."}
    assert lab.client.post("/api/runs/go-on", json={"run": "a"}).json() == said
    assert lab.client.post("/api/ladder/go-on", json={"run": "both"}).json() == {"error": "both is already running."}


JOB = {"id": "f", "kind": "evaluation", "title": "t", "run": "a", "pid": 5, "started": 9e9, "running": False,
       "code": 0, "stopping": False, "stopped": False, "problem": "", "last": "done", "command": ""}  # fmt: skip


def test_a_run_is_stopped_by_the_job_that_works_on_it(lab, monkeypatch):
    jobs = [JOB | {"id": "1", "run": "b", "running": True}, JOB | {"id": "2"}, JOB | {"id": "3", "running": True}]
    stopped = []
    monkeypatch.setattr(Jobs, "list", lambda self: jobs)
    monkeypatch.setattr(Jobs, "stop", lambda self, number: stopped.append(number) or {})
    lab.client.post("/api/runs/stop", json={"run": "a"})
    lab.client.post("/api/runs/stop", json={"id": "7"})
    jobs.pop()
    answer = lab.client.post("/api/runs/stop", json={"run": "a"})
    assert answer.json() == {"error": "a was not started in this lab: stop it with Ctrl-C in its terminal."}
    jobs += [JOB | {"id": "4", "kind": "estimate", "running": True}, JOB | {"id": "5", "kind": "estimate"}]
    lab.client.post("/api/runs/estimate", json={"system": "lstm", "data": "copy"})
    assert stopped == ["3", "7", "4"]  # a newer estimate ends the one before


def test_results_of_evaluations_are_those_of_these_weights_on_this_data(lab, monkeypatch):
    command = f"regard evaluate {lab.root / 'a'} --by-length --texts --json --split valid"
    jobs = [JOB | {"command": command}, JOB | {"id": "e", "command": command}, JOB | {"kind": "training"}]
    output = {"f": json.dumps({"bleu": 5, "sources": ["x"], "references": ["y"], "translations": ["z"]})}
    monkeypatch.setattr(Jobs, "list", lambda self: jobs)
    monkeypatch.setattr(Jobs, "result", lambda self, number: output[number])

    def told(data="valid"):
        answer = lab.client.get("/api/translation/results", params={"run": "a", "data": data}).json()
        return answer, answer["runs"][0]

    answer, found = told()
    assert found == {"run": "a", "job": "f", "running": False, "problem": "", "last": "done", "result": {"bleu": 5}}
    assert answer["data"] == ["valid", "test", "uploads/my.txt", "uploads/two.tsv"]
    assert lab.asked[-1][:2] == ("translation.differences", {"jobs": ["f"]})
    nothing = {"run": "a", "job": None, "running": False, "problem": "", "last": "", "result": None}
    assert told("test")[1] == nothing
    output["f"] = "not yet"
    answer, found = told()
    assert (found["result"], found["job"], answer["differences"]) == (None, "f", None)
    lab.asked.clear()
    (lab.root / "a" / "model.safetensors").touch()
    os.utime(lab.root / "a" / "model.safetensors", (9e9 + 5, 9e9 + 5))
    assert told()[1] == nothing  # it was evaluated before these weights were written
    (lab.root / "a" / "model.safetensors").unlink()
    assert lab.asked == []


def test_an_evaluation_that_began_when_the_weights_were_written_is_of_these_weights(lab, monkeypatch):
    command = f"regard evaluate {lab.root / 'a'} --by-length --texts --json --split valid"
    weights = lab.root / "a" / "model.safetensors"
    weights.touch()
    monkeypatch.setattr(Jobs, "result", lambda self, number: "{}")
    try:
        for changed, told in ((1000, "f"), (1001, None)):
            os.utime(weights, (changed, changed))
            monkeypatch.setattr(Jobs, "list", lambda self: [JOB | {"command": command, "started": 1000.0}])
            answer = lab.client.get("/api/translation/results", params={"run": "a", "data": "valid"}).json()
            assert answer["runs"][0]["job"] == told
            assert "problem" not in answer
        lab.answer["raise"] = RegardError("They differ.")
        os.utime(weights, (1000, 1000))
        answer = lab.client.get("/api/translation/results", params={"run": "a", "data": "valid"}).json()
        assert (answer["differences"], answer["problem"]) == (None, "They differ.")
        none = lab.client.get("/api/translation/results", params={"data": "valid"}).json()
        assert (none["runs"], none["differences"]) == ([], None)
    finally:
        weights.unlink()


def test_a_sample_is_renewed_before_it_is_shown_unless_the_lab_is_read_only(lab, monkeypatch):
    done = []

    async def renew(self, name):
        done.append(("renewed", name))

    monkeypatch.setattr("regard.web.lab.samples.Samples.renew", renew)
    monkeypatch.setattr(
        "regard.web.lab.samples.Samples.kept", lambda self, name: done.append(("kept", name)) or [{"step": 1}]
    )
    assert lab.client.post("/api/runs/sample", json={"run": "a"}).json() == [{"step": 1}]
    assert done == [("renewed", "a"), ("kept", "a")]
    with TestClient(application(lab.root, read_only=True), base_url="http://127.0.0.1") as anybody:
        assert anybody.post("/api/runs/sample", json={"run": "b"}).json() == [{"step": 1}]
    assert done[2:] == [("kept", "b")]


def test_a_job_tells_its_result_when_it_has_ended(lab, monkeypatch):
    job = JOB | {"kind": "check"}
    monkeypatch.setattr(Jobs, "find", lambda self, number: job)
    monkeypatch.setattr(Jobs, "result", lambda self, number: '{"a": 1}')
    monkeypatch.setattr(Jobs, "log", lambda self, number: "x" * 9000 + "end")

    def told():
        return lab.client.get("/api/runs/job", params={"id": "f"}).json()

    assert told()["result"] == {"a": 1}
    assert (len(told()["log"]), told()["log"][-4:]) == (8000, "xend")
    for other in ({"running": True}, {"kind": "training"}):
        job = JOB | {"kind": "check"} | other
        assert told()["result"] is None
    job = JOB | {"kind": "estimate"}
    assert told()["result"] == {"a": 1}


# -- runs ------------------------------------------------------------------------------------------------------------


def test_curves_come_with_their_runs_kinds_and_rows(lab):
    answer = lab.client.get("/api/runs/curves", params=[("run", "a"), ("run", "b"), ("x", "step"), ("y", "loss")])
    about, arrays = unpacked(answer.content)
    assert about == [
        {"run": "a", "kind": "training", "rows": 2, "age": 0},
        {"run": "a", "kind": "validation", "rows": 2, "age": 0},
        {"run": "b", "kind": "none", "rows": 0, "age": 0},
    ]
    assert {name: values.tolist() for name, values in arrays.items()} == {
        f"{number}.{part}": [float(number + 1)] if part == "x" else [2.0]
        for number in (0, 1) for part in ("x", "y", "low", "high")
    }  # fmt: skip


def test_a_curve_has_at_most_two_thousand_points(lab, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "regard.web.lab.downsampling.in_buckets",
        lambda x, y, width, log: asked.append((width, log)) or (x.astype(np.float32),) * 4,
    )
    for given in ({"width": 1999}, {"width": 2001, "log": "1"}, {}):
        lab.client.get("/api/runs/curves", params={"run": "a", **given})
    assert asked == [(1999, False)] * 2 + [(2000, True)] * 2 + [(600, False)] * 2


def test_one_look_serves_all_who_ask_within_half_a_second(lab, monkeypatch):
    now, looks = [100.0], []
    monkeypatch.setattr("regard.web.lab.application.time", SimpleNamespace(monotonic=lambda: now[0]))
    made = Lab(SimpleNamespace(runs=lambda: looks.append(now[0]) or ["r"]), SimpleNamespace(list=lambda: ["j"]), {})

    async def life():
        for after in (0.0, 0.25, 0.25, 0.25, 0.0):
            now[0] += after
            assert await made.look() == (["r"], ["j"])

    asyncio.run(life())
    assert looks == [100.0, 100.75]


def test_one_run_is_told_with_its_newest_job(lab, monkeypatch):
    jobs = [JOB | {"id": "2", "run": "b"}, JOB | {"id": "1"}, JOB | {"id": "0"}]
    monkeypatch.setattr(Jobs, "list", lambda self: jobs)
    monkeypatch.setattr(Jobs, "log", lambda self, number: number * 9000)
    found = lab.client.get("/api/runs/one", params={"run": "a"}).json()
    assert (found["job"]["id"], found["log"], found["report"]) == ("1", "1" * 8000, False)
    assert found["recipe"] == 'system = "lstm"\n'
    assert set(found["facts"]) == {"regard", "torch", "python", "platform", "threads", "seed"}
    assert (found["name"], found["samples"]) == ("a", [])
    assert [run["name"] for run in lab.client.get("/api/runs").json()["runs"]] == ["a", "b"]


def test_a_report_is_a_file_to_keep_under_a_plain_name(lab):
    (lab.root / "both" / "report.html").write_text("<p>all</p>")
    answer = lab.client.get("/api/runs/report", params={"name": "both"})
    assert (answer.text, answer.headers["content-type"]) == ("<p>all</p>", "text/html; charset=utf-8")
    assert answer.headers["content-disposition"] == 'attachment; filename="both.html"'
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    (lab.root / "é b.").mkdir()
    for name in ("comparison.json", "report.html"):
        (lab.root / "é b." / name).write_text("{}")
    answer = lab.client.get("/api/runs/report", params={"name": "é b."})
    assert answer.headers["content-disposition"] == 'attachment; filename="b.html"'
    (lab.root / "plain").mkdir()
    (lab.root / "plain" / "report.html").write_text("x")
    assert lab.client.get("/api/runs/report", params={"name": "plain"}).status_code == 400  # nothing of Regard's
    for folder in ("é b.", "plain"):
        for path in (lab.root / folder).iterdir():
            path.unlink()
        (lab.root / folder).rmdir()


def test_a_form_can_choose_from_every_system_and_what_is_here(lab):
    found = lab.client.get("/api/runs/choices").json()
    assert [one["name"] for one in found["systems"]] == [system.name for system in SYSTEMS]
    assert [one["label"] for one in found["systems"]] == [system.label for system in SYSTEMS]
    assert {one["name"]: one["pairs"] for one in found["uploads"]} == {"my.txt": False, "two.tsv": True}
    assert {"phrasebook", "copy"} <= {one["name"] for one in found["corpora"]}
    assert all(str(one["here"]).startswith("regard ") for one in found["elsewhere"])
    assert not any(str(one["here"]).startswith("regard ") for one in found["corpora"])
    assert all(one["pairs"] == one["kind"].endswith("pairs") for one in found["corpora"])
    assert routes_runs._holds_pairs(RunsFolder(lab.root), "gone.tsv") is False


# -- the course and its exercises ------------------------------------------------------------------------------------


def test_exercises_stand_in_the_order_of_the_course_with_their_sheets(lab):
    rows = lab.client.get("/api/exercises").json()["exercises"]
    assert {row["name"] for row in rows} == {one.name for one in EXERCISES}
    assert [(row["chapter"], row["level"]) for row in rows] == sorted((row["chapter"], row["level"]) for row in rows)
    assert min(row["chapter"] for row in rows) >= 1
    for row in rows:
        assert CHAPTERS[row["chapter"] - 1] == row["page"]["name"]
    exercise = EXERCISES[0]
    sheet = lab.client.get("/api/exercises/one", params={"name": exercise.name}).json()
    assert "press Check" in sheet["sheet"]
    assert (sheet["hints"], sheet["answer"], sheet["level"]) == (list(exercise.hints), "", exercise.level)
    answer = lab.client.post("/api/exercises/check", json={"name": exercise.name, "code": "x"})
    assert (answer.status_code, lab.asked) == (403, [])


def test_progress_is_that_of_this_machine_and_of_nobody_in_a_read_only_lab(lab, monkeypatch):
    done = {"solved": True, "checks": 3, "right": True, "sentence": "Right."}
    monkeypatch.setattr(routes_exercises, "progress_of", lambda exercise: done)
    monkeypatch.setattr(routes_exercises, "answer_of", lambda exercise: "my answer")
    name = EXERCISES[0].name

    def told(client):
        row = client.get("/api/exercises").json()["exercises"][0]
        sheet = client.get("/api/exercises/one", params={"name": name}).json()
        return [one["solved"] for one in (row, sheet)], sheet["checks"], sheet["answer"]

    assert told(lab.client) == ([True, True], 3, "my answer")
    with TestClient(application(lab.root, read_only=True), base_url="http://127.0.0.1") as anybody:
        assert told(anybody) == ([False, False], 0, "")


def test_every_chapter_of_the_course_comes_whole(lab):
    heads = lab.client.get("/api/lectures").json()
    names = [page.name for page in lectures()]
    assert [head["name"] for head in heads][: len(names)] == names
    assert len(heads) == len(names) + 2  # what one gets wrong, and what it is
    for page in lectures():
        found = lab.client.get("/api/lectures/one", params={"name": page.name}).json()
        assert (found["title"], found["at"]) == (page.title, "")
        assert len(found["sections"]) == page.markdown.count("\n## ")
        named = [section for section in found["sections"] if section["code"]]
        assert len(named) == sum(bool(entry.code) for entry in page.entries)
        for section in named:
            for code in section["code"]:
                assert code["lines"][code["at"] - code["first"]]
        assert not found["begin"].startswith("# ")
        formulas = [*FORMULA.finditer(page.markdown)]
        assert found["formulas"] == {
            one[1] or one[2]: json.loads(json.dumps(as_tree(one[1] or one[2], block=bool(one[1])))) for one in formulas
        }
    figures = [name for page in lectures() for entry in page.entries for name in entry.figures]
    answer = lab.client.get("/api/lectures/figure", params={"name": figures[0]})
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert lab.client.get("/api/lectures/figure", params={"name": "figures/none.svg"}).status_code == 404


# -- the curve of a run ----------------------------------------------------------------------------------------------


def lines(path, *contents):
    path.write_bytes(b"".join(contents))
    curve = LiveCurve(path)
    curve.read()
    return curve


def test_a_line_that_is_too_long_is_left_out_and_one_that_just_fits_is_read(tmp_path, monkeypatch):
    assert (live_curve.MAX_LINE, live_curve.PIECE, live_curve.END) == (1 << 16, 1 << 20, 1 << 13)
    assert (live_curve.MAX_METRICS, live_curve.MAX_ROWS) == (1 << 26, 10_000)
    row = json.dumps(ROW).encode() + b"\n"
    monkeypatch.setattr(live_curve, "MAX_LINE", 200)
    for length, damaged in ((199, 0), (200, 1), (201, 1)):
        curve = lines(tmp_path / f"{length}.jsonl", row, b"x" * length)  # whose end is not written yet
        assert (curve.rows, curve.damaged) == (1, damaged)
    monkeypatch.setattr(live_curve, "PIECE", len(row) + 10)
    curve = lines(tmp_path / "pieces.jsonl", row * 5)
    assert (curve.rows, curve.damaged) == (5, 0)
    monkeypatch.setattr(live_curve, "MAX_ROWS", 2)
    assert [len(curve.since(start)) for start in (0, 3, 4, 5, 9)] == [2, 2, 1, 0, 0]
    monkeypatch.setattr(live_curve, "MAX_METRICS", 3 * len(row) + 5)
    curve = lines(tmp_path / "long.jsonl", row * 5)
    assert (curve.rows, curve.damaged) == (3, 0)  # of a larger file the end is read
    assert lines(tmp_path / "whole.jsonl", row * 3).rows == 3
    monkeypatch.setattr(live_curve, "MAX_METRICS", 3 * len(row))
    assert [lines(tmp_path / f"{n}.jsonl", row * n).rows for n in (3, 4)] == [3, 2]  # then the first is not whole


# -- limits ----------------------------------------------------------------------------------------------------------

BOUNDS = {  # of what a page may ask for: least, most, and what it is where nothing is said
    "TraceRequest.beam": (1, 20, 5), "WorkRequest.step": (0, 400, 0), "WorkRequest.head": (0, 10_000, None),
    "CauseRequest.step": (0, 400, None), "BeginRequest.step": (0, 400, 0), "Following.temperature": (0, 5, 1.0),
    "Following.top_k": (0, 10**6, 0), "Following.top_p": (0.001, 1, 1.0), "Write.tokens": (1, 200, 1),
    "Write.seed": (0, 2**53, 0), "Edit.step": (0, 5000, 0), "ExampleRequest.seed": (0, 2**53, 0),
    "Tokens.vocabulary": (0, 200_000, 0), "ComparisonForm.seeds": (1, 100, 1), "Curves.width": (1, 100_000, 600),
    "RunClaim.seed": (0, 1_000_000, None),
}  # fmt: skip
LENGTHS = {  # most characters of a text, most members of a list
    "LabQuestion.only": 2000, "AboutRun.run": 2000, "AboutText.text": 5000, "TraceRequest.target": 5000,
    "TraceRequest.prefix": 5000, "TraceRequest.other": 5000, "TraceRequest.changes": 24, "MatrixRequest.parts": 10_000,
    "CauseRequest.parts": 20, "CauseRequest.with_": 20, "CauseRequest.why": 200, "CauseRequest.not_": 200,
    "BeginRequest.token": 5000, "PageRequest.traces": 8, "PageRequest.causes": 8, "Edit.token": 5000,
    "Differences.jobs": 2, "OneRun.run": 2000, "HeadsInTime.text": 5000, "OneName.name": 2000, "OneClaim.name": 60,
    "OneClaim.from_": 2000, "OneExercise.name": 60, "Answer.code": 50_000, "AboutCorpus.corpus": 500,
    "Tokens.text": 2000, "RunForm.from_": 2000, "RunForm.settings": 200,
    "RunClaim.knobs": 200, "ComparisonForm.systems": 100, "Curves.run": 200, "Since.since": 2000,
    "Upload.name": 2000, "Check.data": 2000, "Check.encoding": 40, "Stop.run": 2000, "RunClaim.name": 60,
    "Lecture.name": 20, "Evaluation.run": 2000, "Evaluation.data": 2000, "Results.run": 2, "Results.data": 2000,
}  # fmt: skip
CLASSES = {
    name: kind
    for name, kind in vars(requests).items()
    if inspect.isclass(kind) and kind.__module__ == requests.__name__
}


def reader(kind, name):
    """The declaration of a field, by which its values are read."""
    return declared(kind, name).metadata["kind"]


def declared(kind, name):
    return next(one for one in dataclasses.fields(CLASSES[kind]) if one.name == name)


def accepted(field, value):
    try:
        field.read("x", value)
    except RegardError:
        return False
    return True


@pytest.mark.parametrize("key", BOUNDS)
def test_a_number_of_a_request_has_its_bounds(key):
    (least, most, plain), (kind, name) = BOUNDS[key], key.split(".")
    field = reader(kind, name)
    if isinstance(field, WholeField):
        below, above = least - 1, most + 1
    else:
        below, above = math.nextafter(least, -math.inf), math.nextafter(most, math.inf)
    assert [accepted(field, one) for one in (below, least, most, above)] == [False, True, True, False]
    assert declared(kind, name).default == plain


@pytest.mark.parametrize("key", LENGTHS)
def test_a_text_and_a_list_of_a_request_have_their_lengths(key):
    kind, name = key.split(".")
    field, most = reader(kind, name), LENGTHS[key]
    assert field.max_length == most
    if isinstance(declared(kind, name).default, str):
        assert [accepted(field, "a" * size) for size in (most, most + 1)] == [True, False]


FILES = {"LabQuestion.only", "AboutRun.run", "OneRun.run", "OneName.name", "OneClaim.from_", "AboutCorpus.corpus",
         "RunForm.data", "RunForm.from_", "ComparisonForm.data", "Upload.name", "Check.data", "Stop.run",
         "Evaluation.run", "Evaluation.data", "Results.data", "Results.run", "Curves.run", "Since.since"}  # fmt: skip


def test_only_what_names_a_file_may_have_a_name_that_no_text_can_have():
    """A name whose bytes are not UTF-8 has halves of surrogate pairs in Python."""
    found = {
        f"{kind}.{one.name}"
        for kind, made in CLASSES.items()
        for one in dataclasses.fields(made)
        if one.name in vars(made).get("__annotations__", {})
        and any(accepted(one.metadata["kind"], given) for given in ("a\udc80", ["a\udc80"]))
    }
    assert found == FILES


def test_a_knob_is_a_number_that_a_float_holds():
    for value, taken in ((1e300, True), (-1e300, True), (1.1e300, False), (-1.1e300, False), ("x", False)):
        assert accepted(reader("RunClaim", "knobs"), {"gain": value}) == taken


def test_every_field_with_a_bound_is_among_them():
    own = {f"{kind}.{one.name}": one.metadata["kind"] for kind, made in CLASSES.items()
           for one in dataclasses.fields(made) if one.name in vars(made).get("__annotations__", {})}  # fmt: skip
    assert set(BOUNDS) == {key for key, field in own.items() if hasattr(field, "ge")}
    usual = {key for key, field in own.items() if getattr(field, "max_length", None) not in (None, 300)}
    assert usual == set(LENGTHS)


# -- opening ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path, monkeypatch, capfd):
    """open_lab without its server: what it was given, and the address that it prints."""
    seen = {}

    class Server:
        def __init__(self, app, socket, *, ready, grace):
            seen.update(grace=grace, ready=ready, port=socket.getsockname()[1])
            socket.close()

        def handle_exit(self, number, frame):
            seen["stopped"] = number

        def run(self):
            seen["ready"]("http://127.0.0.1:1/")
            seen["server"] = self

    def guard(app, **options):
        seen.update(options)
        return app

    monkeypatch.setattr(opening, "Server", Server)
    monkeypatch.setattr(opening, "guarded", guard)
    monkeypatch.setattr(opening, "webbrowser", SimpleNamespace(open=lambda address: seen.update(browser=address)))

    def look(host="127.0.0.1", port=0, token=None, browser=False, **options):
        seen.clear()
        opening.open_lab(tmp_path / "runs", host, port, token, browser, **options)
        out, err = capfd.readouterr()
        return seen | {"address": out.strip(), "said": err}

    return look


def test_the_token_is_optional_only_on_this_machine_and_unless_one_is_given(opened):
    plain = opened()
    assert plain["token_optional"] is True
    assert plain["address"] == f"http://127.0.0.1:1/?token={plain['token']}"
    assert "Press Ctrl-C to close it; training continues." in plain["said"]
    assert "read-only" not in plain["said"]
    assert (plain["host"], plain["body_limit"], plain["grace"]) == ("127.0.0.1", 9 << 20, 1.0)
    assert opening.PORT == 8117  # as the documentation says
    given = opened(token="0123456789abcdef")
    assert (given["token_optional"], given["address"]) == (False, "http://127.0.0.1:1/?token=0123456789abcdef")
    assert opened(host="0.0.0.0")["token_optional"] is False
    looking = opened(read_only=True)
    assert (looking["token_optional"], looking["address"]) == (True, "http://127.0.0.1:1/")
    assert "read-only" in looking["said"]
    assert opened(read_only=True, host="0.0.0.0")["address"].startswith("http://127.0.0.1:1/?token=")


def test_the_browser_opens_the_address_that_is_printed_and_streams_end_when_the_lab_is_stopped(opened, monkeypatch):
    def thread(target, args, daemon):
        return SimpleNamespace(start=lambda: target(*args) if daemon else None)

    inner = SimpleNamespace(state=SimpleNamespace(lab=SimpleNamespace(closing=asyncio.Event())))
    made = []
    monkeypatch.setattr(opening, "threading", SimpleNamespace(Thread=thread))
    monkeypatch.setattr(opening, "application", lambda root, **how: made.append((root.name, how)) or inner)
    seen = opened(browser=True, read_only=True, host="127.0.0.1")
    assert seen["browser"] == seen["address"] == "http://127.0.0.1:1/"
    assert made == [("runs", {"read_only": True, "is_local": True})]
    assert not inner.state.lab.closing.is_set()
    seen["server"].handle_exit(15, None)
    assert inner.state.lab.closing.is_set()
    opened(host="0.0.0.0")
    assert made[1] == ("runs", {"read_only": False, "is_local": False})
    assert "browser" not in opened()


def test_a_port_that_is_taken_is_another_one_unless_it_was_asked_for(opened, monkeypatch):
    with opening.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(opening, "PORT", port)
        assert opened(port=None)["port"] not in (0, port)
        with pytest.raises(RegardError):
            opened(port=port)


def test_what_is_open_when_the_lab_closes_ends_without_a_word():
    def messages(begun):
        sent = []

        async def stopped(scope, receive, send):
            if begun:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise asyncio.CancelledError

        async def send(message):
            sent.append(message)

        asyncio.run(opening.ending(stopped)({}, None, send))
        return sent

    end = {"type": "http.response.body", "body": b"", "more_body": False}
    assert messages(True) == [{"type": "http.response.start", "status": 200, "headers": []}, end]
    assert messages(False) == [{"type": "http.response.start", "status": 503, "headers": []}, end]


def test_a_folder_of_runs_is_made_where_there_is_none(tmp_path):
    for _ in range(2):
        assert RunsFolder(tmp_path / "a" / "b").root == tmp_path.resolve() / "a" / "b"
    (tmp_path / "file").write_text("x")
    with pytest.raises(RegardError, match="is not a folder: give the folder of your runs"):
        RunsFolder(tmp_path / "file")
    with pytest.raises(RegardError, match="Cannot open the folder"):
        RunsFolder(tmp_path / "file" / "below")


def test_an_answer_says_whether_it_is_json_or_numbers():
    for kind, said in (("json", "application/json"), ("binary", "application/octet-stream")):
        answer = reply(WorkerAnswer(kind, b"1"))
        assert (answer.headers["content-type"], answer.body) == (said, b"1")
    assert reply({"a": math.inf, "b": "é"}).body == '{"a":null,"b":"é"}'.encode()
    assert reply([], 409).status_code == 409


def test_points_at_or_below_zero_have_no_place_on_a_logarithmic_axis():
    x, y = np.array([-1.0, 0.0, 0.5, 1.0, 2.0]), np.arange(5.0)
    assert in_buckets(x, y, 9, True)[0].tolist() == [0.5, 1.0, 2.0]
    assert in_buckets(x, y, 9)[0].tolist() == x.tolist()
    assert len(in_buckets(x, y, 5)[0]) == 5  # as many as there are pixels stay as they are
    across, mean, low, high = in_buckets(np.arange(8.0), np.array([0, 2, 4, 6, 8, 10, 12, 14.0]), 4)
    assert (mean.tolist(), low.tolist(), high.tolist()) == ([1, 5, 9, 13], [0, 4, 8, 12], [2, 6, 10, 14])
    assert across.tolist() == [0.5, 2.5, 4.5, 6.5]


# -- the worker process ----------------------------------------------------------------------------------------------


def test_the_worker_answers_or_says_in_one_sentence_why_not(lab, monkeypatch, capfd):
    folder = RunsFolder(lab.root)

    def told(work="runs.learned", **body):
        return worker_process.answer(folder, {"work": work, "body": body})

    kind, content = told(run="a")
    assert (kind, json.loads(content)) == ("json", {"perplexity": None, "step": None, "bigram": None})
    assert told("none.such") == ("refused", b"There is no view 'none'.")
    assert told(run="gone")[0] == "refused"
    assert told(run=3)[0] == "refused"
    learned = "regard.web.lab.work_runs.WORK"
    for made, kind, said in (
        (b"bytes", "binary", b"bytes"), ({"a": math.nan, "b": "\ud800"}, "json", b'{"a": null, "b": "\\ud800"}'),
        (MemoryError(), "refused", b"There is not enough memory for this: choose a smaller model or a shorter text."),
        (RegardError("No,\n it is not."), "refused", b"No, it is not."),
        (KeyError("secret"), "failed", b"The model failed to answer this request (KeyError): see the lab's terminal."),
    ):  # fmt: skip

        def work(folder, asked, made=made):
            if isinstance(made, Exception):
                raise made
            return made

        monkeypatch.setattr(learned, {"learned": work})
        assert told(run="a") == (kind, said)
    assert "KeyError: 'secret'" in capfd.readouterr().err


def test_answers_come_whole_and_one_after_another_whatever_a_library_prints(lab):
    code = (
        "import sys, os\n"
        "from regard.web.lab import worker_process\n"
        "def answer(folder, question):\n"
        "    print('a library says this', flush=True)\n"
        "    return 'json', str(question['n']).encode() * 3\n"
        "worker_process.answer = answer\n"
        "worker_process.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(lab.root)], input=b'{"n": 7}\n{"n": 81}\n', capture_output=True
    )
    assert done.stdout == b'{"kind": "json", "bytes": 3}\n777{"kind": "json", "bytes": 6}\n818181'
    assert done.stderr.decode().count("a library says this") == 2
