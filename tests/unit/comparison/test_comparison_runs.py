"""A comparison's plan and its runs, in this process: each run does what the plan says, and how it ended is said."""

import io
import json
import math
import os
import platform
import runpy
import signal
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import regard
from regard.base.digests import DIGEST, read_with_digest, with_digest
from regard.base.errors import RegardError, Stopped
from regard.base.numbers import group_digits
from regard.comparison import child, comparison, language_task, processes
from regard.comparison import plan as plan_module
from regard.comparison.language_task import LANGUAGE
from regard.comparison.plan import Plan, check_free, make_plan, open_plan
from regard.comparison.processes import read_result, run_all
from regard.comparison.question import Question
from regard.evaluation.perplexity import Method, finite_perplexity, likelihood
from regard.report import progress
from regard.runs.data_lookup import tokens_of
from regard.runs.store.facts import read_facts
from regard.training.checkpoint import load_tensors

STEP, BUDGET = 64, 2000  # tokens
SETTINGS = {
    "data": {"tokenizer": "word"},
    "model": {"width": 8},
    "training": {"threads": 1, "device": "cpu", "batch_tokens": STEP, "window": 16, "validation_tokens": 30},
}


class Here:
    """A place for runs: this process. It keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def run(self, words, threads):
        self.asked.append((*words, threads))
        with redirect_stdout(io.StringIO()) as said:
            try:
                child.main(list(words))
            except SystemExit as end:
                return end.code, said.getvalue().strip(), ""
        return 0, said.getvalue().strip(), ""

    def stop(self):
        raise AssertionError("nobody asked it to stop")


class Says:
    """A place whose runs all end in the same way."""

    def __init__(self, *ended):
        self.ended = ended

    def run(self, words, threads):
        return self.ended


@pytest.fixture(autouse=True)
def _of_this_process(monkeypatch):
    monkeypatch.setattr(child, "_end_with_parent", lambda: None)
    monkeypatch.setattr(progress, "_hushed", False)
    monkeypatch.setattr(language_task, "generation_speed", lambda run: 9.5)  # measured by a test of its own


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("".join(f"line {n} of the text, number {n * n}\n" for n in range(200)), encoding="utf-8")
    return path


def asked(text, **changes):
    settings = {part: dict(values) for part, values in SETTINGS.items()}
    return Question(("nnlm",), str(text), budget=str(BUDGET), seeds=2, size="tiny", settings=settings, **changes)


@pytest.fixture(scope="module")
def ended(text, tmp_path_factory):
    """A comparison of two n-grams and two seeds of an nnlm: what it is, what its runs were asked, what was said."""
    here, threads = Here(), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(io.StringIO()) as said:
        patch.setattr(comparison, "read_place", lambda on: None)
        patch.setattr(comparison, "elsewhere", lambda on, folder: here)
        patch.setattr(child, "_end_with_parent", lambda: None)
        patch.setattr(child, "hush", lambda: None)
        patch.setattr(language_task, "generation_speed", lambda run: 9.5)
        patch.setattr(processes, "time", SimpleNamespace(monotonic=count(100.0, 3.0).__next__))
        patch.setattr(processes, "named_here", tuple)  # other tests of this process may have named code of their own
        question = asked(text)
        done = regard.compare(
            question.systems, data=text, budget=question.budget, seeds=2, size="tiny", settings=question.settings,
            run=tmp_path_factory.mktemp("runs") / "c", jobs=1, on="here",
        )  # fmt: skip
    torch.set_num_threads(threads)
    return SimpleNamespace(done=done, plan=done.plan, asked=here.asked, said=said.getvalue().splitlines())


@pytest.fixture
def new(tmp_path):
    """Makes a plan in a folder of this name."""

    def make(question, name="c", *jobs):
        (tmp_path / name).mkdir()
        return make_plan(question, tmp_path / name, *jobs)

    return make


@pytest.fixture
def plan(text, new):
    """The same comparison before its runs."""
    return new(asked(text))


# -- the plan --------------------------------------------------------------------------------------------------------


def test_a_plan_is_read_back_as_it_was_written(plan):
    assert Plan.read(plan.folder) == plan
    text = (plan.folder / "comparison.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    assert [(entrant.name(seed), entrant.counted) for entrant, seed in plan.runs] == [
        ("2-gram", True), ("5-gram", True), ("nnlm-seed1", False), ("nnlm-seed2", False),
    ]  # fmt: skip
    assert (plan.match, plan.budget, plan.unit) == ("tokens", BUDGET, "tokens")
    facts = plan.facts
    assert facts["segment"] == 256  # the nnlm's context has no end
    assert (facts["target_parameters"], facts["size"], facts["regard"]) == (None, "tiny", regard.__version__)
    assert facts["command"] == asked(plan.question["data"]).command()
    assert not (plan.folder / ".beginning").exists()
    lines = Path(plan.question["data"]).read_text(encoding="utf-8").splitlines()
    assert sum(facts["tokens"].values()) == 9 * len(lines)  # eight words, one of them a comma, and <eos>
    assert facts["sample_tokens"] == 80
    assert facts["characters"] > facts["tokens"]["test"] > facts["unknown"] > 0
    assert facts["prompt"].rstrip() in {" ".join(line.split()[:2]) for line in lines}
    assert facts["prompt"].endswith(" ")


@pytest.mark.parametrize(
    "given, validations, checkpoint_every",
    [({}, 20, 0), ({"evaluate_every": 7}, 0, 250), ({"validations": 3}, 3, 250), ({"checkpoint_every": 9}, 20, 9)],
)
def test_all_are_validated_equally_often_unless_someone_says_otherwise(text, new, given, validations, checkpoint_every):
    for match, budget in (("tokens", BUDGET), ("seconds", "8s")):
        question = replace(asked(text), match=match, budget=str(budget))
        question.settings["training"].update(given)
        nnlm = new(question, f"{match}").entrants[-1].recipe.training
        assert (nnlm.validations, nnlm.checkpoint_every) == (validations, checkpoint_every)
        assert nnlm.evaluate_every == given.get("evaluate_every", 250)


def test_a_run_makes_as_many_validations_as_the_plan_says(ended):
    for seed in (1, 2):
        folder = ended.plan.run_folder(ended.plan.entrants[-1], seed)
        assert len(load_tensors(folder / "training.safetensors")[1]["progress"]["history"]) == 20


def test_runs_side_by_side_share_the_threads_and_none_is_left_without(text, new, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    question = asked(text)
    del question.settings["training"]["threads"]
    shares = [new(question, str(jobs), jobs).entrants[-1].recipe.training.threads for jobs in (1, 2, 9)]
    assert shares == [7, 3, 1]
    assert plan_threads(new(asked(text), "given", 2)) == {1}  # who says how many gets them


def plan_threads(plan):
    return {entrant.recipe.training.threads for entrant in plan.entrants}


def test_matched_parameters_are_said_and_recorded(text, new, capsys):
    question = asked(text)
    del question.settings["model"]
    question = replace(question, match="parameters")
    plan = new(question)
    target = plan.facts["target_parameters"]
    (said,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("parameters matched"))
    assert said.startswith(f"parameters matched to {group_digits(target)}, those of the tiny lstm: nnlm ")
    assert int(said.rpartition("nnlm ")[2].replace(",", "")) == pytest.approx(target, rel=0.02)
    assert plan.unit == "tokens"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: tree.update(format=2), "a different version of Regard"),
        (lambda tree: tree.pop("entrants"), "is damaged"),
        (lambda tree: tree.update(entrants=[]), "is damaged"),
        (lambda tree: tree.update(match="zz"), "is damaged"),
        (lambda tree: tree.update(budget="x"), "is damaged"),
        (lambda tree: tree.update(facts={}), "is damaged"),
        (lambda tree: tree["facts"].update(split="bogus"), "is damaged"),
        (lambda tree: tree["entrants"][0].update(seeds=["1"]), "is damaged"),
        (lambda tree: tree["entrants"][0].update(label=7), "is damaged"),
        (lambda tree: tree["entrants"][0].update(label="../elsewhere"), "comparison.json"),
        (lambda tree: tree["files"].update({"tokenizer.json": "0" * 64}), "tokenizer.json"),
        (
            lambda tree: tree["entrants"][0]["recipe"].update(system="./mine.py:Mine"),
            "not been approved on this machine",
        ),
    ],
)
def test_a_plan_that_was_tampered_with_is_refused(plan, change, said, monkeypatch):
    monkeypatch.chdir(plan.folder.parent)
    Path("mine.py").write_text("raise AssertionError('it was run')\n")
    path = plan.folder / "comparison.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree.pop(DIGEST)
    change(tree)
    path.write_text(json.dumps(with_digest(tree)), encoding="utf-8")
    with pytest.raises(RegardError, match=said):
        Plan.read(plan.folder)


def test_names_of_runs_are_as_long_as_every_file_system_allows_and_differ_on_each():
    where = Path("comparison.json")
    plan_module._check_names(["lstm", "lstm-seed2", "a" * 200, "ü" * 100, "b_c"], where)
    for name in ("a" * 201, "ü" * 100 + "a", "", "a/b", "..", "a b", "a\n"):
        with pytest.raises(RegardError, match=r"which cannot be the name of a run: restore the file"):
            plan_module._check_names(["lstm", name], where)
    for one, other in (("lstm", "LSTM"), ("é", "e\u0301"), ("x²", "x2")):
        with pytest.raises(RegardError, match=r"which cannot be|lists two runs with the same name"):
            plan_module._check_names([one, other], where)


def test_the_same_question_finds_its_plan_and_another_is_told_what_differs(text, plan):
    same = asked(text)
    (plan.folder / ".beginning").write_text("left by a kill")
    assert open_plan(same, plan.folder) == plan
    assert not (plan.folder / ".beginning").exists()
    others = {
        "its prompt differs": replace(same, prompt="x"),
        "its match differs": replace(same, match="parameters", settings={}),
        "its seeds differ": replace(same, seeds=3),
        "its settings differ": replace(same, settings={}),
        "its systems differ": replace(same, systems=("lstm",)),
    }
    for said, other in others.items():
        with pytest.raises(RegardError, match=rf"contains a different comparison \({said}\)"):
            open_plan(other, plan.folder)


def test_only_a_folder_that_is_free_or_holds_a_comparison_is_taken(text, plan, tmp_path):
    check_free(tmp_path / "nowhere")
    check_free(plan.folder)
    (tmp_path / "empty").mkdir()
    check_free(tmp_path / "empty")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("mine", "file"):
        for open_it in (check_free, lambda folder: open_plan(asked(text), folder)):
            with pytest.raises(RegardError, match="is not a comparison"):
                open_it(tmp_path / name)
    assert open_plan(asked(text), tmp_path / "empty").facts["command"] == plan.facts["command"]


def test_a_start_that_was_killed_can_be_made_again(text, tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    monkeypatch.setattr(Plan, "write", stopped)
    with pytest.raises(Stopped):
        make_plan(asked(text), tmp_path / "c")
    assert (tmp_path / "c" / "tokenizer.json").exists()
    check_free(tmp_path / "c")


def test_what_applies_to_few_is_said_and_what_cannot_be_is_refused_before_anything_is_written(text, new, capsys):
    question = replace(asked(text), systems=("nnlm", "lstm"))
    question.settings["model"]["layers"] = 1
    question.check_settings(question.rungs())
    plan = new(question)
    wanted = question.check_settings(question.rungs())
    assert [line for line in capsys.readouterr().err.splitlines() if "applies to" in line] == wanted != []
    question.settings["training"]["device"] = "abacus"
    with pytest.raises(RegardError, match="abacus"):
        new(question, "other")
    assert list((plan.folder.parent / "other").iterdir()) == []


# -- one run ---------------------------------------------------------------------------------------------------------


def test_each_run_is_asked_once_with_its_label_seed_and_threads(ended):
    folder = str(ended.plan.folder.resolve())
    runs = [("2-gram", "1"), ("5-gram", "1"), ("nnlm", "1"), ("nnlm", "2")]
    assert ended.asked == [(folder, *run, "1", 1) for run in runs]


def test_a_result_says_what_the_run_itself_says(ended):
    for entrant, seed in ended.plan.runs:
        folder = ended.plan.run_folder(entrant, seed)
        found, run = read_with_digest(folder / "result.json"), regard.load(folder)
        again = run.evaluate("test", segment=256, documents=True)
        for facts in (again, found["evaluation"]):
            facts.pop("seconds")
        assert found["evaluation"] == again
        assert found["parameters"] == run.parameters
        prompt = ended.plan.facts["prompt"]
        assert found["sample"] == run.generate(prompt, max_tokens=80, temperature=0.8, seed=1)
        assert 0 < found["memory_before_bytes"] <= found["peak_memory_bytes"]
        assert (found["memory_of"], found["device"], found["threads"]) == (
            "process", f"cpu ({platform.machine()})", 1,
        )  # fmt: skip
        assert (found["torch"], found["python"]) == (torch.__version__, platform.python_version())
        assert found["side_by_side"] == 1
        assert found["generation_tokens_per_second"] == 9.5
        assert (folder / "result.json").read_text(encoding="utf-8") == written(read_with_digest(folder / "result.json"))


def written(tree):
    """A file of JSON as a person reads it."""
    return json.dumps(with_digest(tree), indent=2, ensure_ascii=False) + "\n"


def test_a_counted_run_has_read_the_text_once_and_a_trained_one_its_budget(ended):
    for entrant, seed in ended.plan.runs:
        folder = ended.plan.run_folder(entrant, seed)
        found, run = read_with_digest(folder / "result.json"), regard.load(folder)
        if entrant.counted:
            assert (found["tokens_seen"], found["steps"]) == (ended.plan.facts["tokens"]["train"], None)
            assert found["training_seconds"] == read_facts(folder)["seconds"]
            ids = tokens_of(run.corpus(), run.tokenizer, "valid").ids[:30]  # what the others are validated on
            *_, whole = likelihood(run.model, ids, Method.of(run.model), eos=run.tokenizer.eos)
            assert found["validation_loss"] == pytest.approx(whole.mean)
        else:
            at = load_tensors(folder / "training.safetensors")[1]["progress"]
            assert found["steps"] == at["step"] == math.ceil(BUDGET / STEP)
            assert found["tokens_seen"] == at["tokens"]
            assert BUDGET <= at["tokens"] <= at["step"] * STEP
            assert found["training_seconds"] == at["seconds"]
            assert found["validation_loss"] is None
            assert run.recipe.training.seed == seed


def test_the_log_says_what_begins_how_it_ended_and_what_was_done_before(ended, capsys):
    assert [line for line in ended.said if ": starting (" in line] == [
        "2-gram: starting (1 of 4)", "5-gram: starting (2 of 4)", "nnlm, seed 1: starting (3 of 4)",
        "nnlm, seed 2: starting (4 of 4)",
    ]  # fmt: skip
    for entrant, seed in ended.plan.runs:
        name = entrant.label if entrant.counted else f"{entrant.label}, seed {seed}"
        perplexity = ended.done.results[entrant.label, seed]["evaluation"]["perplexity"]
        assert ended.said.count(f"{name}: perplexity {perplexity:.4g}; 3.0 s") == 1
    found, made = run_all(ended.plan)
    assert (found, made) == (ended.done.results, 0)
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"{ended.plan.folder}: 4 of 4 runs were already finished; nothing is left to do"


def test_the_page_is_written_when_something_was_made_and_when_it_is_missing(ended, text):
    def again():
        regard.compare(
            "nnlm", data=text, budget=str(BUDGET), seeds=2, size="tiny", settings=SETTINGS, run=ended.plan.folder
        )
        return report.read_text(encoding="utf-8")

    report = ended.plan.folder / "report.html"
    written = report.read_text(encoding="utf-8")
    assert "<!doctype html>" in written
    report.write_text("mine", encoding="utf-8")
    assert again() == "mine"
    report.unlink()
    assert again() == written


def test_a_run_killed_before_its_evaluation_keeps_its_measurements_and_is_not_trained_again(ended, monkeypatch):
    monkeypatch.setattr(child, "train_recipe", None)
    nnlm = ended.plan.entrants[-1]
    path = ended.plan.run_folder(nnlm, 2) / "result.json"
    whole, before = path.read_bytes(), read_with_digest(path)
    evaluation = ("evaluation", "validation_loss", "generation_tokens_per_second", "sample", "notes")
    kept = {key: value for key, value in before.items() if key not in evaluation} | {"training_seconds": 123.0}
    path.write_text(json.dumps(with_digest(kept)), encoding="utf-8")
    assert read_result(path.parent) is None
    child.take_part(ended.plan, nnlm, 2, jobs=5)
    after = read_with_digest(path)
    assert after["evaluation"]["documents"] == before["evaluation"]["documents"]
    assert (after["training_seconds"], after["side_by_side"]) == (123.0, 1)
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(language_task, "generation_speed", stopped)
        with pytest.raises(Stopped):
            child.take_part(ended.plan, nnlm, 2, jobs=5)
    saved = read_with_digest(path)
    assert saved["side_by_side"] == 5
    assert path.read_text(encoding="utf-8") == written(saved)
    assert read_result(path.parent) is None
    child.take_part(ended.plan, nnlm, 2, jobs=7)
    assert read_with_digest(path)["side_by_side"] == 5
    path.write_bytes(whole)


def stopped(run):
    raise Stopped(1)


def test_a_counted_run_killed_before_its_measurements_is_counted_again_elsewhere(ended, monkeypatch):
    folder, counts = ended.plan.run_folder(ended.plan.entrants[0], 1), []
    path = folder / "result.json"
    whole, before, train = path.read_bytes(), read_with_digest(path), child.train_recipe
    monkeypatch.setattr(
        child, "train_recipe", lambda recipe, into, **others: counts.append(into) or train(recipe, into, **others)
    )
    path.unlink()
    (folder / "report.html").unlink()
    child.take_part(ended.plan, ended.plan.entrants[0], 1)
    assert (folder / "report.html").exists()
    assert [into.name for into in counts] == ["2-gram"]
    assert counts[0] != folder
    assert not counts[0].exists()
    after = read_with_digest(path)
    assert after["evaluation"]["documents"] == before["evaluation"]["documents"]
    assert after["notes"] == before["notes"] != []  # what counting said
    assert after["training_seconds"] == before["training_seconds"]
    assert after["side_by_side"] == 1
    path.write_bytes(whole)


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_run_that_leads_elsewhere_is_refused(plan, tmp_path):
    (plan.folder / "nnlm-seed1").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(RegardError, match="points outside the comparison"):
        child.take_part(plan, plan.entrants[-1], 1)


def test_on_a_gpu_memory_is_that_of_the_tensors(ended, monkeypatch):
    run = regard.load(ended.plan.folder / "nnlm-seed1")
    monkeypatch.setattr(child, "peak_memory", lambda device: 7)
    monkeypatch.setattr(child, "device_name", lambda device: "a GPU")
    on_gpu = SimpleNamespace(
        folder=run.folder, parameters=1, recipe=run.recipe, model=SimpleNamespace(device=torch.device("cuda"))
    )
    found = child._effort(on_gpu, before=5)
    assert (found["memory_of"], found["memory_before_bytes"], found["peak_memory_bytes"]) == ("GPU", 0, 7)


# -- a run's process -------------------------------------------------------------------------------------------------


def test_a_process_does_what_its_words_say_and_only_shows_progress(plan, monkeypatch):
    done, named = [], []
    monkeypatch.setattr(child, "take_part", lambda *words: done.append(words))
    monkeypatch.setattr(child, "named_before", named.extend)
    monkeypatch.setattr(child, "_end_with_parent", lambda: named.append("ends with its parent"))
    child.main([str(plan.folder), "5-gram", "3", "4", "code", "other"])
    assert done == [(plan, plan.entrants[1], 3, 4)]
    assert named == ["code", "other", "ends with its parent"]
    assert progress._hushed


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(RegardError("No\nway."), 2, "No way.\n"), (Stopped(3), 130, ""), (KeyboardInterrupt(), 130, "")],
)
def test_a_process_ends_with_a_sentence_and_a_code(plan, monkeypatch, capsys, error, code, said):
    def fail(*words):
        raise error

    monkeypatch.setattr(child, "take_part", fail)
    with pytest.raises(SystemExit) as end:
        child.main([str(plan.folder), "nnlm", "1", "1"])
    assert (end.value.code, capsys.readouterr().out) == (code, said)


def test_a_process_is_this_module_with_its_words(tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "regard.comparison.child")
    monkeypatch.setattr(sys, "argv", ["child", str(tmp_path / "nowhere"), "nnlm", "1", "1"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(SystemExit) as end:
        runpy.run_module("regard.comparison.child", run_name="__main__")
    assert end.value.code == 2
    assert "nowhere" in capsys.readouterr().out


def test_a_process_stops_when_its_parent_has_ended(monkeypatch):
    monkeypatch.undo()
    reads, writes = os.pipe()
    told, stopped = [], threading.Event()
    monkeypatch.setattr(child.os, "kill", lambda *words: told.append(words) or stopped.set())
    with open(reads, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = set(threading.enumerate())
        child._end_with_parent()
        assert [thread.daemon for thread in set(threading.enumerate()) - before] == [True]
        os.write(writes, b"still here")
        assert not stopped.wait(0.05)
        os.close(writes)
        assert stopped.wait(60)
    assert told == [(os.getpid(), signal.SIGTERM)]


@pytest.mark.parametrize(
    ("ended_with", "failed", "log"),
    [
        ((2, "No such text.", "a log"), "No such text.", ""),
        ((2, "", "a log"), "its process exited with code 2; see its output above.", "a log"),
        ((0, "", ""), "its process exited with code 0; see its output above.", ""),
        ((1, "half a sentence", "Traceback"), "its process exited with code 1; see its output above.", "Traceback"),
        ((-9, "", "a log"), "its process was killed by SIGKILL (out of memory?).", ""),
        ((-15, "", "a log"), "its process was killed by SIGTERM.", ""),
    ],
)
def test_how_a_process_failed_is_said_and_the_others_go_on(plan, capsys, ended_with, failed, log):
    results, made = run_all(plan, 1, Says(*ended_with))
    assert (results, made) == ({(e.label, seed): {"failed": failed} for e, seed in plan.runs}, 4)
    said = capsys.readouterr().err
    assert said.count(f": failed: {failed}\n") == 4
    assert said.count(f"{log}\n") >= 4 if log else "log" not in said
    assert "were already finished" not in said
    with pytest.raises(RegardError, match="Every run failed"):
        comparison_of(plan, results)


def comparison_of(plan, results):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_all", lambda *words: (results, len(results)))
        question = plan.question
        return regard.compare(
            question["systems"], data=question["data"], budget=question["budget"], seeds=2, size="tiny",
            settings=SETTINGS, run=plan.folder,
        )  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_stop_reaches_every_run_and_a_second_one_ends_them(plan, capsys):
    calls, asked_to_stop = [], threading.Event()

    class Slow:
        def run(self, words, threads):
            calls.append(words[1])
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert asked_to_stop.wait(60)
            return 130, "", "a log"

        def stop(self):
            asked_to_stop.set()

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        run_all(plan, 1, Slow())
    assert asked_to_stop.is_set()
    assert calls == ["2-gram"]  # no other begins
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "2-gram: starting (1 of 4)",
        f"stopped; to continue, run the same command with --run {plan.folder}",
    ]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    told = []
    one = SimpleNamespace(terminate=lambda: told.append("terminate"), kill=lambda: told.append("kill"))
    contest = processes._Contest(plan, 1, 1)
    contest.children.append(one)
    with contest.passing_on_signals():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
    assert told == ["terminate", "kill"]
    assert contest.signals == [signal.SIGTERM, signal.SIGINT]
    assert contest.run(plan.entrants[0], 1, 1) == {"failed": "stopped."}


def test_a_signal_that_comes_with_a_result_keeps_it_quiet(ended, capsys):
    contest = processes._Contest(ended.plan, 1, 1)

    class Late:
        def run(self, words, threads):
            contest.signals.append(signal.SIGTERM)
            return 0, "", ""

    contest.place = Late()
    assert contest.run(ended.plan.entrants[0], 1, 1) == read_result(ended.plan.folder / "2-gram")
    assert "perplexity" not in capsys.readouterr().err


class Started:
    """What `Popen` returns: it says what its words and its place are, and ends."""

    def __init__(self, command, *, stdin, stdout, stderr, text, env, start_new_session):
        self.command, self.env, self.own_session = command, env, start_new_session
        assert (stdin, stdout, text) == (-1, -1, True)
        self.stdin, self.stdout = io.StringIO(), io.StringIO(" a sentence \n")
        self.stderr = io.StringIO("a log\nof lines\n") if stderr == -1 else None
        self.returncode, self.terminated = None, False
        started.append(self)

    def terminate(self):
        self.terminated = True

    def wait(self):
        self.returncode = 2


started: list[Started] = []


@pytest.mark.parametrize(("jobs", "log"), [(1, ""), (2, "a log\nof lines")])
@pytest.mark.parametrize("stopping", [False, True])
def test_a_process_begins_with_its_words_and_threads_and_is_read_to_its_end(plan, monkeypatch, jobs, log, stopping):
    started.clear()
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=Started, PIPE=-1))
    monkeypatch.setattr(processes, "named_here", lambda: ["code"])
    nnlm = plan.entrants[-1]
    nnlm = replace(nnlm, recipe=nnlm.recipe.replace(training={"threads": 3}))
    contest = processes._Contest(plan, jobs, 4)
    contest.signals += [signal.SIGTERM] * stopping
    assert contest._process(nnlm, 2) == (2, "a sentence", log)
    (one,) = started
    words = [str(plan.folder), "nnlm", "2", str(jobs), "code"]
    assert one.command == [sys.executable, "-P", "-m", "regard.comparison.child", *words]
    assert one.env["OMP_NUM_THREADS"] == one.env["MKL_NUM_THREADS"] == "3"
    assert one.env["PATH"] == os.environ["PATH"]
    assert one.own_session
    assert one.terminated == stopping
    assert one.stdin.closed
    assert contest.children == []


# -- what is asked of all ----------------------------------------------------------------------------------------------


class Asked(Exception):
    pass


@pytest.mark.parametrize(
    ("words", "jobs", "shared", "place"),
    [
        ({}, 1, 1, None),
        ({"jobs": 3}, 3, 3, None),
        ({"on": "there"}, 1000, 1, "there"),
        ({"on": "there", "jobs": 2}, 2, 1, "there"),
        ({"on": "there", "match": "seconds"}, 1, 1, "there"),
        ({"match": "seconds", "jobs": 1}, 1, 1, None),
        ({"budget": "9s"}, 1, 1, None),
    ],
)
def test_one_run_at_a_time_here_and_all_of_them_on_other_machines(
    text, tmp_path, monkeypatch, words, jobs, shared, place
):
    found = []

    def stop(*given):
        found.append(given[1:])
        raise Asked

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparison, "read_place", found.append)
    monkeypatch.setattr(comparison, "elsewhere", lambda on, folder: (on, folder))
    monkeypatch.setattr(comparison, "open_plan", lambda question, folder, jobs, chosen: found.append((folder, jobs)))
    monkeypatch.setattr(comparison, "plan_power", lambda plan: "")
    monkeypatch.setattr(comparison, "run_all", stop)
    with pytest.raises(Asked):
        regard.compare("nnlm", data=text, **words)
    folder = Path("runs") / "compare-my"
    there = (place, tmp_path / folder) if place else None
    assert found == [*([place] if place else []), (folder, shared), (jobs, there)]
    assert not (tmp_path / "runs").exists()  # nothing was made


def test_runs_side_by_side_are_refused_where_time_is_equal(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in (({"jobs": 2, "match": "seconds"}, "measures time"), ({"jobs": 0}, "^jobs must be at least 1")):
        with pytest.raises(RegardError, match=said):
            regard.compare(["nnlm"], data=text, **words)
    assert os.listdir(tmp_path) == []


def test_code_of_ones_own_is_named_by_naming_it(text, tmp_path, monkeypatch):
    named = []
    monkeypatch.setattr(comparison, "trust_code", named.append)
    monkeypatch.setattr(comparison, "open_plan", lambda *words, **more: stopped(None))
    with pytest.raises(Stopped):
        regard.compare(["./mine.py:Mine", "nnlm"], data=text, run=tmp_path / "c")
    assert named == ["./mine.py:Mine"]


def test_a_folder_that_is_taken_is_refused_before_anything_is_read(text, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "open_plan", None)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RegardError, match="is not a comparison"):
        regard.compare("nnlm", data=text, run=tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]
    comparison.check_free(tmp_path / "new.csv", "--csv")
    comparison.check_free(None, "--csv")
    with pytest.raises(RegardError, match="already exists: choose another file for --csv"):
        comparison.check_free(tmp_path / "notes.txt", "--csv")


# -- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pace", "most", "speed"), [(0.01, 108, 100.0), (0.5, 15, 2.0), (2.0, 10, 0.5)])
def test_the_speed_of_writing_is_counted_after_a_few_tokens_for_some_seconds(monkeypatch, pace, most, speed):
    now, written = [100.0], []

    def generate(model, prompts, *, max_tokens, eos, sampling, forbidden):
        assert (model, prompts, eos, forbidden) == ("model", [[5]], 5, [3])
        assert sampling == language_task.GREEDY
        for number in range(max_tokens):
            now[0] += pace if number > 7 else 40.0  # slow at first
            written.append(number)
            yield number

    monkeypatch.undo()
    monkeypatch.setattr(language_task, "generate", generate)
    monkeypatch.setattr(language_task, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    run = SimpleNamespace(model="model", tokenizer=SimpleNamespace(eos=5), forbidden=[3])
    assert language_task.generation_speed(run) == pytest.approx(speed)
    assert len(written) == most
    monkeypatch.setattr(language_task, "generate", lambda *words, **more: iter(range(5)))
    assert language_task.generation_speed(run) == 0  # too few to say


def test_a_sample_begins_with_the_first_two_words_of_a_line_that_has_four():
    assert language_task._prompt(["", "= A title", "three words only", "now there are four", "and some more here"]) == (
        "now there "
    )
    assert language_task._prompt(["too short"]) == ""


def test_a_loss_beyond_all_numbers_is_an_infinite_perplexity():
    assert [language_task._exp(loss) for loss in (0.0, 699.9, 700.0, 700.5)] == [
        1.0, math.exp(699.9), math.inf, math.inf,
    ]  # fmt: skip
    assert finite_perplexity(800.0) == math.exp(700)


def test_all_are_tested_on_segments_as_long_as_the_shortest_context(monkeypatch):
    sizes = iter([(5, 64), (9, 48), (7, None)])
    monkeypatch.setattr(language_task, "size_of", lambda recipe, tokenizer: next(sizes))
    entrants = [SimpleNamespace(recipe=None, counted=counted) for counted in (True, False, False, False)]
    tokenizers = SimpleNamespace(target=None)
    assert LANGUAGE.conditions(entrants, tokenizers) == {"segment": 48}
    assert LANGUAGE.conditions(entrants[:1], tokenizers) == {"segment": 256}


@pytest.mark.parametrize("change", [{"evaluation": 5}, {"tokens_seen": None}, {"peak_memory_bytes": "x"}])
def test_a_result_with_something_else_in_place_of_a_number_is_none(tmp_path, change):
    measured = {"parameters": 3, "tokens_seen": 5, "training_seconds": 0.5, "peak_memory_bytes": 9, "evaluation": {}}
    for tree, whole in ((measured, True), ({**measured, **change}, False)):
        (tmp_path / "result.json").write_text(json.dumps(with_digest(tree)), encoding="utf-8")
        assert (read_result(tmp_path) is not None) == whole
