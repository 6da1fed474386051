"""Every option of the smaller verbs reaches what it names, and what comes back is printed as it says."""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.base.errors import RegardError
from regard.cli.commands import run
from regard.cli.score import _score_text
from regard.cli.translate import _as_fields, _as_json
from regard.learn.lectures import get_lecture, lectures
from regard.learn.lectures.code_anchor import SOURCE

NGRAM = "gallery/ngram"


@pytest.fixture
def reach(monkeypatch):
    """reach(address, result): how a function of another module was called."""

    def capture(address, result=None):
        asked = []
        monkeypatch.setattr(address, lambda *given, **named: asked.append((given, named)) or result)
        return asked

    return capture


def test_demo_lab_import_and_export_are_asked_as_they_were_told(reach, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    demo = reach("regard.demo.run_demo")
    run(["demo", "--budget", "9s", "--minute", "--all", "--run", "out", "--json"])
    run(["demo"])
    assert demo == [
        ((), {"budget": "9s", "minute": True, "everything": True, "folder": Path("out"), "as_json": True}),
        ((), {"budget": None, "minute": False, "everything": False, "folder": None, "as_json": False}),
    ]
    lab = reach("regard.web.lab.opening.open_lab")
    run(["lab", "--port", "9", "--host", "h", "--token", "t", "--no-browser"])
    Path("runs").mkdir()
    run(["lab", "runs", "--read-only"])
    assert lab == [
        ((Path("runs"), "h", 9, "t", False), {"read_only": False}),
        ((Path("runs"), "127.0.0.1", None, None, True), {"read_only": True}),
    ]
    imported = reach("regard.exchange.formats.import_file", "runs/made")
    run(["import", "x.gguf", "--run", "out", "--tokenizer", "t.json", "--precision", "bf16"])
    assert imported == [((Path("x.gguf"), Path("out"), Path("t.json"), "bf16"), {})]
    assert capsys.readouterr().out == "runs/made\n"
    exported = reach("regard.exchange.formats.export", None)
    run(["export", NGRAM, "out.zip", "--to", "archive", "--check", "--embed", "--quantization", "int8"])
    ((folder, form, out), how) = exported[0]
    assert (folder.name, form, out) == ("ngram", "archive", Path("out.zip"))
    assert how == {"options": {"quantization": "int8", "embed": "yes"}, "check": True}
    assert capsys.readouterr().out == "out.zip\n"
    reach("regard.exchange.formats.export", SimpleNamespace(largest=0.5, tokens=3))
    run(["export", NGRAM, "out", "--to", "arpa", "--json"])
    assert json.loads(capsys.readouterr().out) == {"largest": 0.5, "tokens": 3}


def test_resume_counts_its_budget_from_the_start_of_the_command(reach, capsys):
    asked = reach("regard.runs.resume.resume", SimpleNamespace(folder="runs/x"))
    run(["resume", NGRAM, "--training.accumulate", "2", "--track", "mlflow"])
    (((folder, settings), how),) = asked
    assert (folder.name, settings, how["track"]) == ("ngram", {"training": {"accumulate": "2"}}, "mlflow")
    assert isinstance(how["began"], float)
    assert capsys.readouterr().out == "runs/x\n"


@dataclass
class Law:
    number: int
    wording: str
    holds: bool
    sentence: str = ""


def test_a_law_that_is_broken_is_told_once_and_ends_the_command_with_one(reach, monkeypatch, capsys):
    monkeypatch.setattr("regard.laws.registry.builder", lambda target: target)
    results = [Law(1, "first", True), Law(2, "second", False, "It crashed."), Law(10, "third", False, "It crashed."),
               Law(11, "fourth", False, "Other.")]  # fmt: skip
    reach("regard.laws.registry.run_laws", results)
    for words, out in (
        (["laws", "mine"], "✓  1  first\n✗  2  second\n      It crashed.\n✗ 10  third\n      the same as law 2\n"
                           "✗ 11  fourth\n      Other.\n\nmine breaks 3 of 4 laws.\n"),
        (["laws", "mine", "--json"], None),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            run(words)
        said = capsys.readouterr().out
        assert end.value.code == 1
        assert said == out or [one["holds"] for one in json.loads(said)] == [True, False, False, False]
    reach("regard.laws.registry.run_laws", results[:1])
    run(["laws", "mine"])
    assert capsys.readouterr().out == "✓  1  first\n\nmine obeys every law.\n"


def test_a_line_of_the_notes_leads_to_its_code_and_a_chapter_to_its_page(capsys, monkeypatch):
    monkeypatch.chdir(SOURCE.parent)
    run(["lecture", "003:49"])
    out = capsys.readouterr().out
    marked = next(line for line in out.splitlines() if line.startswith("> "))
    number = int(marked.split()[1])
    place = next(line for line in out.splitlines() if line.endswith(f"layers/recurrent.py:{number}"))
    assert place == f"{SOURCE.name}/layers/recurrent.py:{number}"  # so that an editor opens it from here
    source = (SOURCE / "layers" / "recurrent.py").read_text(encoding="utf-8").splitlines()
    assert marked.split("  ", 1)[1].strip() == source[number - 1].strip()
    assert "`regard claims parameters vanishing forgetting` tests it." in out
    run(["lecture", "003:49", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["place"], found["chapter"]) == ("003:49", "recurrent")
    assert {one["line"]: one["text"] for one in found["code"][0]["around"]}[number].strip() == source[
        number - 1
    ].strip()
    run(["lecture", "recurrent", "--json"])
    page, told = get_lecture("recurrent"), json.loads(capsys.readouterr().out)
    assert (told["name"], told["title"], len(told["sections"])) == (page.name, page.title, len(page.entries))
    assert [one["commands"] for one in told["sections"]] == [list(one.commands) for one in page.entries]
    run(["lecture"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        *(one.name for one in lectures()), "mistakes", "about",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "as_json", "text", "pair"),
    [
        (False, False, "-1.750000\t2\ta b\n", "-1.750000\t2\ta\tb\n"),
        (True, False, "-0.500000\ta\n-1.250000\tb\n\n", "-0.500000\ta\n-1.250000\tb\n\n"),
        (False, True, {"text": "a b", "log_probability": -1.75},
         {"source": "a", "target": "b", "log_probability": -1.75}),
        (True, True, {"text": "a b", "log_probability": -1.75, "tokens": [["a", -0.5], ["b", -1.25]]},
         {"source": "a", "target": "b", "log_probability": -1.75, "tokens": [["a", -0.5], ["b", -1.25]]}),
    ],
)  # fmt: skip
def test_a_score_is_a_line_or_one_for_each_token(tokens, as_json, text, pair):
    numbers = {"log_probability": -1.75, "log_probabilities": [-0.5, -1.25], "tokens": ["a", "b"]}
    for line, wanted in ((SimpleNamespace(text="a b", **numbers), text),
                         (SimpleNamespace(source="a", target="b", **numbers), pair)):  # fmt: skip
        found = _score_text(line, tokens, as_json)
        assert (json.loads(found) if as_json else found) == wanted


def test_translations_have_their_fields_in_order():
    one = SimpleNamespace(text="t", score=-0.25, log_probability=-1.5, alignment=[(0, 1), (2, 0)], tokens=["t"])
    one.finished, one.attention = True, {"cross/0": SimpleNamespace(tolist=lambda: [[1.0]])}
    assert _as_fields(3, one, ranked=False, alignment=False) == "t"
    assert _as_fields(3, one, ranked=True, alignment=True) == "3\t-0.2500\t-1.5000\tt\t0-1 2-0"
    assert json.loads(_as_json(3, "s", [one])) == {
        "line": 3, "source": "s",
        "translations": [{"text": "t", "score": -0.25, "log_probability": -1.5, "tokens": ["t"], "finished": True,
                          "alignment": [[0, 1], [2, 0]], "attention": {"cross/0": [[1.0]]}}],
    }  # fmt: skip
    one.alignment = one.attention = None
    assert _as_fields(3, one, ranked=False, alignment=True) == "t\t"
    assert set(json.loads(_as_json(3, "s", [one]))["translations"][0]) == {
        "text", "score", "log_probability", "tokens", "finished",
    }  # fmt: skip


class Mute:
    searcher = None
    recipe = SimpleNamespace(size="small", system="seq2seq")

    def __init__(self, *texts):
        self.texts, self.before = iter(texts), []

    def translations(self, lines, *, before, **how):
        self.before.append(before)
        return ([SimpleNamespace(text=next(self.texts))] for _ in lines)


@pytest.mark.parametrize(
    ("given", "texts", "size", "said"),
    [
        (b"a\n\nb\n", ["", "", " "], "small", "is undertrained; train longer or use a smaller --size."),
        (b"a\n", [""], "tiny", "is undertrained; train longer."), (b"a\nb\n", ["", "x"], "small", None),
        (b"\n \n", ["", ""], "small", None),
    ],
)  # fmt: skip
def test_that_every_translation_is_empty_is_said_where_there_was_something_to_translate(
    monkeypatch, capsys, given, texts, size, said
):
    model = Mute(*texts)
    model.recipe = SimpleNamespace(size=size, system="seq2seq")
    monkeypatch.setattr("regard.runs.load.load_translator", lambda *given, **how: model)
    monkeypatch.setattr("regard.exchange.engines.open_engine", lambda *given: None)
    monkeypatch.setattr("regard.cli.stdin.AT_ONCE", 2)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
    run(["translate", NGRAM])
    out = capsys.readouterr()
    assert out.out == "".join(f"{text}\n" for text in texts)
    assert (
        (out.err.startswith("Every translation is empty: ") and out.err.endswith(f"{said}\n")) if said else not out.err
    )
    if given == b"a\n\nb\n":
        assert model.before == [(0, 0), (2, 1)]  # lines so far, and how many of them had words


def test_a_generation_says_which_words_it_does_not_know(monkeypatch, capsys):
    asked = {}
    tokenizer = SimpleNamespace(encode=lambda text: [1, 0, 0], unk=0)
    model = SimpleNamespace(context=8)
    writer = SimpleNamespace(tokenizer=tokenizer, model=model, as_read=lambda prompt: prompt,
                             stream=lambda prompt, **how: asked.update(how) or iter([" b\n", ""]))  # fmt: skip
    monkeypatch.setattr("regard.runs.load.load_language_model", lambda *given, **how: writer)
    run(["generate", NGRAM, "--prompt", "a", "--min-p", "0.25", "--presence-penalty", "1", "--frequency-penalty", "2",
         "--repetition-penalty", "3", "--logit-bias", "5=-1", "--logit-bias", "6=2"])  # fmt: skip
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a b\n", "note: 2 of the prompt's tokens are not in this model's vocabulary\n")
    how = asked["sampling"]
    assert (how.min_p, how.presence_penalty, how.frequency_penalty, how.repetition_penalty) == (0.25, 1.0, 2.0, 3.0)
    assert dict(how.logit_bias) == {5: -1.0, 6: 2.0}
    tokenizer.unk = None
    run(["generate", NGRAM, "--prompt", "a", "--seed", "4", "--json"])
    said = capsys.readouterr()
    assert (json.loads(said.out), said.err) == ({"prompt": "a", "text": "a b\n", "seed": 4}, "")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"from a pipe\n")))
    run(["generate", NGRAM, "--prompt", "-"])
    assert capsys.readouterr().out == "from a pipe b\n"


def test_systems_are_listed_by_name_year_and_paper(capsys):
    run(["systems"])
    table = capsys.readouterr().out.splitlines()
    run(["systems", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert "target" not in rows[0]
    assert [line.split()[0] for line in table[1:]] == [row["name"] for row in rows]
    with pytest.raises(RegardError, match="There is no system 'lsmt'"):
        run(["laws", "lsmt"])
