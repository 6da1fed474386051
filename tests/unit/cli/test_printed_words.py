"""What verbs print of results that are known: claims, exercises, this machine, corpora, and slips of a command."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regard import cli
from regard.base.errors import RegardError, Stopped
from regard.claims import documented_verdicts
from regard.cli import claims as claims_verb
from regard.cli import commands, completion, doctor
from regard.cli import compare as compare_verb
from regard.cli import data as data_verb
from regard.cli import inspect as inspect_verb
from regard.cli import runs as runs_verb
from regard.cli.commands import run, sentence
from regard.cli.options import with_default
from regard.learn.exercises import class_grading, grading_process

# -- claims ----------------------------------------------------------------------------------------------------------


def finding(quantity, value, bound, verdict="holds"):
    expect = SimpleNamespace(quantity=quantity, over="seeds", bound=bound, tolerance=0.0, relation="at most", unit="")
    return SimpleNamespace(expect=expect, values=(value,), low=value, high=value, value=value, verdict=verdict)


def result(name="hull", quick="", cached=False, verdict="holds", controlled=True, **more):
    found = SimpleNamespace(
        name=name, number="C1", statement="It holds.", verdict=verdict, sign="✓", label=f"✓ {verdict}", quick=quick,
        cached=cached, controlled=controlled, seconds=61.0, parts={}, figures=(), expected=(), control=(), besides=(),
        control_words="the other way", breaks="It breaks.", remarks=(), table=(), decisive=finding("d", 1.0, 2.0),
    )  # fmt: skip
    vars(found).update(more)
    return found


@pytest.fixture
def words(monkeypatch):
    """Findings in few words: how they are written is tested elsewhere."""
    monkeypatch.setattr(
        "regard.claims.finding_words.sentence_of", lambda one: f"{one.value:g}, expected at most {one.expect.bound:g}"
    )


def test_everything_that_a_verdict_rests_on_is_printed_in_its_order(words, capsys):
    one = result(
        parts={"first": "holds", "second": "fails"}, expected=[finding("e", 1.0, 2.0)], remarks=["A remark."],
        control=[finding("c", 3.0, 2.0, "fails")], besides=[finding("b", 1.0, 1.0)], table=[{"x": 1}, {"y": 2}],
    )  # fmt: skip
    claims_verb._print_result(one)
    assert capsys.readouterr().out == (
        "✓ holds\n  ✓ first: holds\n  ✗ second: fails\n\nExpected\n  ✓ e: 1, expected at most 2\n\n"
        "Control: the other way\n  ✗ c: 3, expected at most 2\n\nAdditional checks\n  ✓ b: 1, expected at most 1\n\n"
        "When it breaks: It breaks.\nA remark.\n\nx  y\n1  –\n–  2\n"
    )
    claims_verb._print_result(result())
    assert capsys.readouterr().out == "✓ holds\n\nWhen it breaks: It breaks.\n"


def test_every_verdict_has_two_lines_under_each_other(words, capsys):
    claims_verb._print_verdicts([result(), result("any-b", controlled=False, parts={"p": "fails"}, quick="smaller")])
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first == "✓ C1  hull   It holds."
    assert second == f"{' ' * 13}d: 1, expected at most 2; the control gave the opposite result; 1 min 01 s"
    assert third == "✓ C1  any-b  It holds."
    assert fourth == (
        f"{' ' * 13}✗ quick p; d: 1, expected at most 2; the control did not give the opposite result; 1 min 01 s"
    )


def test_the_end_counts_verdicts_and_says_what_was_not_run(monkeypatch, capsys):
    monkeypatch.setattr(
        documented_verdicts, "documented_verdicts", lambda: {"hull": SimpleNamespace(verdict="inconclusive")}
    )

    def said(*results, quick=False):
        claims_verb._print_origin(results, quick, Path("x/report.html"))
        return capsys.readouterr().out.splitlines()

    assert said(result()) == ["", "Report: x/report.html"]
    assert said(result(cached=True), result(verdict="fails"), result(), result(verdict="inconclusive")) == [
        "", "✓ 2 hold, ✗ 1 fails, ? 1 inconclusive.",
        "1 of 4 results come from the cache (same code and settings); --again repeats them.", "Report: x/report.html",
    ]  # fmt: skip
    quick = "These were smaller experiments with fewer seeds; run without --quick for the full ones."
    assert said(result(), quick=True)[1:3] == [
        quick, "The documented verdict of the full experiment is: inconclusive (docs/claims.md).",
    ]  # fmt: skip
    assert said(result(), result(), quick=True)[1:4] == [
        "Quick form, at reduced size: ✓ 2 hold, ✗ 0 fail, ? 0 inconclusive.", quick,
        "The verdicts of the full experiments are in docs/claims.md.",
    ]  # fmt: skip


def test_a_claim_is_told_when_it_was_measured_and_its_report_goes_to_a_folder_of_its_own(tmp_path, capsys):
    claims_verb._tell(result())
    claims_verb._tell(result(cached=True))
    assert capsys.readouterr().err == "hull: ✓ holds; 1 min 01 s\n"
    for place in (tmp_path, tmp_path / "none"):
        claims_verb._check(place)
    (tmp_path / "mine").touch()
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(RegardError, match="contains no claims report: choose another --run"):
            claims_verb._check(place)
    (tmp_path / "claims.json").touch()
    claims_verb._check(tmp_path)
    with pytest.raises(RegardError, match=r"Cannot create the folder .*mine/x \(.*\): choose another --run"):
        claims_verb._write(tmp_path / "mine" / "x", [])


# -- exercises -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graded", "code", "out", "err"),
    [
        ({"right": True, "laws": [1, 2], "sentence": "As in Regard"}, 0,
         "✓ mask: right on 4 random inputs, and in a model it obeys laws 1, 2. As in Regard.\n", ""),
        ({"right": True, "laws": [], "sentence": "As in Regard"}, 0,
         "✓ mask: right on 4 random inputs. As in Regard.\n", ""),
        ({"right": False, "laws": [], "sentence": "it hides \x1bx"}, 1, "✗ mask: it hides ␛x.\n", "again"),
        ({"right": False, "laws": [], "sentence": "did you mean y?"}, 1, "✗ mask: did you mean y?\n", "again"),
    ],
)  # fmt: skip
def test_a_grade_is_one_line_and_a_wrong_answer_can_be_repeated(monkeypatch, tmp_path, capsys, graded, code, out, err):
    asked = []

    def grade(file, seed):
        asked.append((file, seed))
        return {"exercise": "mask", "inputs": 4, "seed": seed, **graded}

    monkeypatch.setattr(grading_process, "grade_file", grade)
    path = tmp_path / "mine.py"
    for words, seed in ((["--seed", "0"], 0), (["--seed", str(2**63 - 1)], 2**63 - 1), ([], None)):
        try:
            run(["exercise", "check", str(path), *words])
            ended = 0
        except SystemExit as stop:
            ended = stop.code
        said = capsys.readouterr()
        file, drawn = asked.pop()
        assert (ended, said.out, file) == (code, out, path)
        assert drawn == seed if seed is not None else 0 <= drawn < 10**6
        assert said.err == (f"  To repeat these inputs: regard exercise check {path} --seed {drawn}\n" if err else "")
    for wrong in ("-1", str(2**63)):
        with pytest.raises(RegardError, match=f"--seed must be at least 0 and below 2\\^63, not {wrong}"):
            run(["exercise", "check", str(path), "--seed", wrong])
    with pytest.raises(RegardError, match="--jobs must be at least 1, not 0"):
        run(["exercise", "check", str(path), "--jobs", "0"])


def test_a_class_is_a_table_with_the_mistakes_and_the_answers_that_are_alike(monkeypatch, tmp_path, capsys):
    rows = [{"student": "ada", "exercise": "mask", "right": True, "sentence": "fine"},
            {"student": "bo", "exercise": "mask", "right": False, "sentence": "hides \x1b"}]  # fmt: skip
    asked = []
    monkeypatch.setattr(class_grading, "submissions", lambda folder: [1, 2])
    monkeypatch.setattr(class_grading, "grade_class", lambda *given: asked.append(given) or rows)
    summary = [{"exercise": "mask", "right": 1, "answers": 2, "mistakes": {"hides \x1b": 3}}]
    monkeypatch.setattr(class_grading, "by_exercise", lambda rows: summary)
    monkeypatch.setattr(class_grading, "similar", lambda folder, rows: [{"files": ["a.py", "b.py"]}])
    run(["exercise", "check", str(tmp_path), "--seed", "5", "--jobs", "3"])
    assert asked == [(tmp_path, 5, 3)]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [["ada", "mask", "✓", "–"], ["bo", "mask", "✗", "hides", "␛"]]
    assert lines[3:] == [
        "mask: 1 of 2 right", "  3 × hides ␛", "the same program up to names and layout: a.py, b.py",
    ]  # fmt: skip
    run(["exercise", "check", str(tmp_path), "--json", "--seed", "5"])
    assert json.loads(capsys.readouterr().out) == {
        "seed": 5, "submissions": rows, "exercises": summary, "similar": [{"files": ["a.py", "b.py"]}],
    }  # fmt: skip


# -- this machine ----------------------------------------------------------------------------------------------------


def test_every_gpu_is_told_with_its_memory(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: ((number + 1) << 30, 8 << 30))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: (9, number))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"H{number}")
    machine = doctor._machine()
    assert machine["gpus"] == [
        {"name": f"H{n}", "capability": f"9.{n}", "memory_bytes": 8 << 30, "free_bytes": (n + 1) << 30} for n in (0, 1)
    ]
    for variable, said in (("3", "OMP_NUM_THREADS is 3"), (None, "PyTorch's choice; training.threads or")):
        monkeypatch.setenv("OMP_NUM_THREADS", variable) if variable else monkeypatch.delenv("OMP_NUM_THREADS")
        assert doctor._threads_from().startswith(said)
    facts = {"machine": machine, "cache": {"folder": "/c", "parts": []}, "packages": [], "device": "cuda",
             "faster_code": [{"name": "n", "instead_of": "i", "runs": True, "why_not": None}]}  # fmt: skip
    for gpus, said in (
        (2, ["gpu 0        H0 (9.0): 8 GiB, 1 GiB free", "gpu 1        H1 (9.1): 8 GiB, 2 GiB free"]),
        (1, ["gpu          H0 (9.0): 8 GiB, 1 GiB free"]), (0, ["gpu          none that PyTorch can use"]),
    ):  # fmt: skip
        doctor._print(facts | {"machine": machine | {"gpus": machine["gpus"][:gpus]}})
        out = capsys.readouterr().out
        assert [line for line in out.splitlines() if line.startswith("gpu")] == said
        assert "The cache folder is /c;" in out
        assert "optimized on cuda  runs  instead of  why not" in out
        assert "Everything else runs on the reference implementation." in out
    monkeypatch.setitem(sys.modules, "torch", None)
    broken = doctor._machine()
    assert broken["torch"].startswith("cannot be loaded: ")
    doctor._print(facts | {"machine": broken})
    assert "optimized" not in capsys.readouterr().out


def test_files_that_are_kept_are_named_up_to_five():
    assert doctor._left([]) == ""
    assert doctor._left([Path("a"), Path("b")]) == " Kept files that Regard did not write: a, b."
    five = ", ".join("abcde")
    assert doctor._left([Path(name) for name in "abcde"]) == f" Kept files that Regard did not write: {five}."
    assert doctor._left([Path(name) for name in "abcdef"]) == f" Kept files that Regard did not write: {five}, …."


def test_tokens_are_old_after_so_many_days_of_seconds(tmp_path, monkeypatch):
    now = 10**9
    monkeypatch.setattr(doctor.time, "time", lambda: now)
    for digit, age in (("0", 86_400), ("1", 86_399)):
        for suffix in (".npy", ".json", ".pairs", ".digest"):
            path = tmp_path / "tokens" / f"{digit * 32}{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x" * 100)
            os.utime(path, (now - age, now - age))
    assert doctor._prune(tmp_path / "tokens", 1) == "Deleted the tokens of 2 texts older than 1 day, 300 B."
    assert {path.name[0] for path in (tmp_path / "tokens").iterdir()} == {"1"}
    assert doctor._prune(tmp_path / "tokens", 2) == "Deleted the tokens of 0 texts older than 2 days, 0 B."


def test_a_part_of_the_cache_has_its_files_and_bytes(tmp_path):
    (tmp_path / "tokens" / "deep").mkdir(parents=True)
    (tmp_path / "tokens" / "a").write_bytes(b"x" * 5)
    (tmp_path / "tokens" / "deep" / "b").write_bytes(b"x" * 7)
    (tmp_path / "mine.txt").write_bytes(b"x")
    assert [{**part, "about": bool(part["about"])} for part in doctor._cache(tmp_path)] == [
        {"part": "mine.txt", "files": 1, "bytes": 1, "about": False},
        {"part": "tokens", "files": 2, "bytes": 12, "about": True},
    ]
    assert list(doctor._cache(tmp_path / "none")) == []
    assert doctor._size(tmp_path / "none") == 0


# -- corpora ---------------------------------------------------------------------------------------------------------


def test_labels_are_told_up_to_ten_with_the_share_of_the_commonest():
    labels = {f"l{number}": 1200 - number for number in range(10)}
    file = SimpleNamespace(labels=labels, pairs=20_000)
    said = data_verb._labels(file)
    assert said.startswith("lines per label: l0 1200, l1 1199, ")
    assert said.endswith("l9 1191. Always predicting the most common label is right 6.0 % of the time.")
    file.labels = labels | {"x": 5}
    assert "l9 1191, and 1 other label. Always" in data_verb._labels(file)
    file.labels = labels | {"x": 5, "y": 4}
    assert "l9 1191, and 2 other labels. Always" in data_verb._labels(file)
    assert [data_verb._percent(share) for share in (None, 0.0, 0.12345)] == ["–", "0.0 %", "12.3 %"]


def test_a_file_is_checked_as_what_it_holds(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\ufeffone two\none two\n\nthree\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"a {n}\tb {n} c\n" for n in range(9)), encoding="utf-8")
    (tmp_path / "labels.tsv").write_text("".join(f"a {n}\t{'xy'[n % 2]}\n" for n in range(30)), encoding="utf-8")

    def rows(name, *words):
        run(["data", "check", str(tmp_path / name), *words])
        out = capsys.readouterr().out
        return out, {line[:40].strip(): line.split()[-1] for line in out.splitlines() if "  " in line}

    out, found = rows("text.txt")
    assert (found["lines"], found["blank lines"], found["duplicate lines"], found["distinct words"]) == (
        "4",
        "1",
        "1",
        "3",
    )
    assert "the longest line is line 1; the file begins with a byte-order mark" in out
    out, found = rows("pairs.tsv")
    assert (found["pairs"], found["target characters per source character"]) == ("9", "1.67")
    assert found["source: words per line, median"] == "2"
    assert found["target: words per line, median"] == "3"
    assert "Regard's own split shares none." in out
    out, found = rows("labels.tsv")
    assert found["labels"] == "2"
    assert "target" not in found
    assert "lines per label: x 15, y 15. Always predicting the most common label is right 50.0 % of the time." in out
    out, found = rows("pairs.tsv", "--data.columns", "1")  # one column is a text
    assert found["lines"] == "9"
    run(["data", "check", str(tmp_path / "pairs.tsv"), "--json"])
    assert json.loads(capsys.readouterr().out)["files"]


def test_a_download_that_its_publisher_changes_is_said_to_be_unverified(monkeypatch, capsys):
    files = [SimpleNamespace(name="a.tsv", sha256=None), SimpleNamespace(name="b.tsv", sha256="0" * 64)]
    monkeypatch.setattr("regard.corpora.downloads.CATALOGUE", {"both": SimpleNamespace(files=files)})
    asked = []
    monkeypatch.setattr("regard.corpora.fetch.fetch", lambda name, progress: asked.append(name) or "cache/both")
    run(["data", "fetch", "both"])
    said = capsys.readouterr().err.splitlines()
    assert (asked, said[0], len(said)) == (["both"], "both is in cache/both", 2)
    assert said[1].startswith("note: the publisher changes a.tsv from time to time")
    assert said[1].endswith("its SHA-256 is recorded in a.tsv.sha256, and later downloads are checked against it")


# -- a look inside ---------------------------------------------------------------------------------------------------


def test_a_layer_is_counted_where_the_answer_is_written():
    trace = SimpleNamespace(
        system="t", attention=dict.fromkeys(["encoder/0", "self/0", "self/1", "cross/0", "cross/1"])
    )
    asked = inspect_verb._attention
    assert asked(trace, None, None) is None
    assert asked(trace, None, 0) == "cross/1"
    assert asked(trace, "0", None) == "cross/0"
    assert asked(trace, "encoder/0", 1) == "encoder/0"
    for layer in ("2", "self/2", "x"):
        with pytest.raises(RegardError, match=f"There is no layer {layer}: t has encoder/0, self/0, self/1"):
            asked(trace, layer, None)
    with pytest.raises(RegardError, match="t has no attention, so --layer and --head do not apply"):
        asked(SimpleNamespace(system="t", attention={}), "0", None)
    trace.attention = dict.fromkeys(["average/0", "encoder/0", "encoder/1"])
    assert asked(trace, "0", None) == "average/0"


def test_a_source_is_one_line_and_no_longer_than_those_of_the_training():
    loaded = SimpleNamespace(source_tokenizer=SimpleNamespace(encode=str.split),
                             recipe=SimpleNamespace(data=SimpleNamespace(longest=2)))  # fmt: skip
    inspect_verb._check_source(loaded, "a b")
    with pytest.raises(RegardError, match="The text has 3 tokens, but this model was trained on at most 2: shorten it"):
        inspect_verb._check_source(loaded, "a b c")
    with pytest.raises(RegardError, match="more than one line: inspect takes one sentence at a time"):
        inspect_verb._check_source(loaded, "a\nb")
    for text in ("", "  "):
        with pytest.raises(RegardError, match="The text is empty: give at least one word"):
            inspect_verb._given(text)
    assert inspect_verb._given("a") == "a"


# -- slips -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "There is no command 'trian': did you mean train?"),
        (["eval"], "There is no command 'eval': did you mean `regard evaluate`?"),
        (["data", "chek"], "Unexpected argument 'chek': see `regard data --help`."),
        (["--lr", "3"], "--lr without a verb: did you mean `regard train SYSTEM --training.learning_rate`?"),
        (["--model.width=3"], "--model.width without a verb: did you mean `regard train SYSTEM --model.width`?"),
        (["--zzz"], "--zzz without a verb: put the verb first, as in `regard train lstm --data my.txt`."),
        (["score"], "regard score needs RUN; see `regard score --help`."),
        (
            ["score", "x", "--weights"],
            "regard score --weights needs a value, written `--weights=…` if it begins with -.",
        ),
        (["score", "x", "--weigths", "3"], "regard score has no option --weigths: did you mean --weights?"),
        (
            ["score", "--checkpoint", "x"],
            "regard score has no option --checkpoint: give it as the first argument, as in",
        ),
        (["score", "x", "a b"], "Unexpected argument 'a b': pipe the text in, as in `echo 'a b' | regard score x`."),
        (
            ["generate", "x", "a b"],
            "give the text to continue with --prompt, as in `regard generate x --prompt 'a b'`.",
        ),
        (["systems", "x"], "Unexpected argument 'x': see `regard systems --help`."),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(words, said):
    with pytest.raises(RegardError) as error:
        run(words)
    assert str(error.value).startswith(said) or said in str(error.value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RegardError("a\n  b"), "a b"), (MemoryError(), cli.MEMORY),
        (RuntimeError("CUDA out of memory. Tried"), cli.MEMORY),
        (OSError(28, "No space left"), "Could not write the output (No space left), so results are lost"),
        (OSError(2, "No such file or directory", "x.txt"), "x.txt: No such file or directory."),
        (OSError(113, "No route to host"), "No route to host."), (OSError("odd"), "odd."),
        (OverflowError("int too large"), "A number is too large: use a smaller one."),
        (RuntimeError("Overflow when unpacking long"), "A number is too large: use a smaller one."),
        (ValueError("embedded null byte"), "A name contains a NUL character and is not a valid file name."),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "x"), "A name or text is not valid Unicode: rename the file"),
    ],
)  # fmt: skip
def test_what_went_wrong_outside_is_one_sentence(error, said):
    assert sentence(error).startswith(said)


def test_what_went_wrong_inside_is_raised_again():
    for error in (ValueError("x"), KeyError("x"), RuntimeError("x")):
        with pytest.raises(type(error)):
            sentence(error)


def test_a_default_is_shown_where_it_says_something():
    assert [with_default(value) for value in (None, False, "", (), 0, 0.0, True, "best", 5)] == [
        None, None, None, None, "0", "0.0", "True", "best", "5",
    ]  # fmt: skip


def test_of_several_processes_only_the_first_prints(monkeypatch):
    for rank, size, follows in (
        ("0", "2", False),
        ("1", "2", True),
        ("", "2", False),
        ("1", None, False),
        (None, "2", False),
    ):
        for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)
        assert cli._follows() is follows


def test_a_training_that_was_stopped_ends_with_the_number_of_its_signal(monkeypatch, capsys):
    for signal, code in ((2, 130), (15, 143)):

        def stop(words, signal=signal):
            raise Stopped(5, signal)

        monkeypatch.setattr(cli, "_run", stop)
        monkeypatch.setattr(cli.signal, "signal", lambda *given: None)
        with pytest.raises(SystemExit) as end:
            cli.main([])
        assert (end.value.code, capsys.readouterr().err) == (code, "")  # it was said already


def test_a_file_is_completed_as_it_was_begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.toml", ".hidden", "c.py"):
        Path(name).touch()
    Path("folder").mkdir()
    Path("folder", "in.txt").touch()
    files = completion._files
    assert list(files("")) == ["a.toml", "b.txt", "c.py", "folder/"]
    assert list(files("./")) == ["./a.toml", "./b.txt", "./c.py", "./folder/"]
    assert list(files("folder/")) == ["folder/in.txt"]
    assert ".hidden" in list(files(".h"))
    assert list(files("none/")) == []
    found = list(completion.complete_target(SimpleNamespace(incomplete="")))
    assert found[-3:] == ["a.toml", "c.py", "folder/"]
    assert "lstm" in found
    assert {"pyref", "phrasebook", "b.txt"} <= set(completion.complete_data(SimpleNamespace(incomplete="")))
    assert "gallery/gpt" in list(completion.complete_run(SimpleNamespace(incomplete="")))


def test_a_comparison_says_what_failed_after_it_has_written_everything(tmp_path, monkeypatch, capsys):
    asked = {}
    done = SimpleNamespace(csv=lambda: "c\n", latex=lambda: "l\n", rows=[{"label": "a"}], shown=[{"label": "a"}],
                           columns={"label": "system"}, title="T", ranking="R.", report="r.html", folder="f",
                           failed={"lstm-seed1": "no", "gpt": "no"})  # fmt: skip

    def compare(*given, **named):
        asked.update(named, given=given)
        return done

    monkeypatch.setattr("regard.comparison.comparison.compare", compare)
    monkeypatch.setattr("regard.comparison.findings.notes", lambda comparison: ["N."])
    names = [tmp_path / "t.csv", tmp_path / "t.tex"]
    words = ["compare", "lstm", "gpt", "--data", "d", "--match", "tokens", "--budget", "5k", "--seeds", "2",
             "--size", "tiny", "--prompt", "p", "--jobs", "3", "--on", "ray", "--placebo", "--tune", "4", "--run",
             "out", "--model.width", "8", "--csv", str(names[0]), "--latex", str(names[1])]  # fmt: skip
    with pytest.raises(RegardError, match=r"Some runs failed \(lstm-seed1, gpt\); .* with --run f"):
        run(words)
    assert capsys.readouterr().out == "T\nsystem\na\n\nR.\nN.\nReport: r.html\n"
    assert [name.read_text() for name in names] == ["c\n", "l\n"]
    assert asked == {
        "given": (["lstm", "gpt"],), "data": "d", "match": "tokens", "budget": "5k", "seeds": 2, "size": "tiny",
        "prompt": "p", "jobs": 3, "on": "ray", "placebo": True, "tune": 4, "run": Path("out"),
        "settings": {"model": {"width": "8"}},
    }  # fmt: skip
    asked.clear()
    same = [*words[:-4], "--csv", "x", "--latex", "x"]
    for wrong, said in ((words, "already exists: choose another file for --csv"), (same, "must name different files")):
        with pytest.raises(RegardError, match=said):
            run(wrong)
    assert asked == {}
    done.failed = {}
    run(["compare", "--data", "d", "--json"])
    assert json.loads(capsys.readouterr().out) == done.rows
    assert (asked["seeds"], asked["jobs"], asked["given"]) == (3, None, ([],))
    assert set(compare_verb.COMPARE_OPTIONS) == {*asked, "csv", "latex", "json"} - {"given", "settings"}


def test_runs_side_by_side_are_a_table_of_figures_and_one_of_settings(monkeypatch, capsys):
    found = {
        "runs": ["runs/a", "runs/b"], "note": "A note.",
        "figures": {"from": [None, None], "best": [12.0, None], "measure": ["bleu", None], "bytes": [1 << 20, 5],
                    "created": [None, "x"], "step": [3, 4]},
        "settings": {"model.width": [8, 9], "model.heads": [None, 2], "model.kind": [None, 3]},
    }  # fmt: skip
    monkeypatch.setattr("regard.runs.store.list.compare_runs", lambda runs: found)
    run(["runs", "compare", "a", "b"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", "b"], ["best", "validation", "BLEU", "12.00", "–"], ["size", "1", "MiB", "5", "B"], ["when", "–", "–"],
        ["steps", "3", "4"], ["A", "note."], [], ["setting", "a", "b"], ["model.width", "8", "9"],
        ["Only", "one", "of", "the", "runs", "has", "2", "further", "settings;", "--json", "lists", "them."],
    ]  # fmt: skip
    assert runs_verb._best(None, None) is None


def test_completion_is_installed_for_the_shell_that_is_named(monkeypatch, capsys):
    asked = []
    made = SimpleNamespace(install_completion=lambda shell: asked.append(shell) or "script")
    monkeypatch.setattr(commands, "app", made)
    completion.install_completion(shell="fish")
    said = capsys.readouterr()
    assert (asked, said.out, said.err) == (["fish"], "script\n", "Open a new shell, type regard and press Tab.\n")
