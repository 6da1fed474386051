"""Every option of a verb reaches what it names; the tables say what they show; input is cut where it says."""

import io
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard import cli
from regard.base.errors import RegardError, Terminated
from regard.cli import chat as chat_verb
from regard.cli import claims as claims_verb
from regard.cli import commands, printing, stdin
from regard.cli import runs as runs_verb
from regard.cli import serve as serve_verb
from regard.cli.commands import run
from regard.cli.dialogue import Conversation
from regard.cli.evaluate import weights_measured
from regard.cli.file_to_file import run_digests
from regard.cli.options import beam_search, named
from regard.cli.stdin import as_text, stdin_batches, stdin_pairs, stdin_text
from regard.learn.exercises.exercise_list import EXERCISES

RUN = Path("gallery/ngram")


@pytest.fixture
def captured(monkeypatch):
    """captured(address, result): a function of another module notes what it was called with."""
    noted = {}

    def capture(address, result=None):
        module, _, name = address.rpartition(".")

        def called(*given, **named_):
            noted[name] = (given, named_)
            return result

        monkeypatch.setattr(f"{module}.{name}", called)
        return noted

    return capture


# -- options ---------------------------------------------------------------------------------------------------------


class Writer:
    """A language model that notes how it was asked."""

    folder, unk = RUN, None

    def __init__(self):
        self.asked = {}
        self.model = SimpleNamespace(context=8, bfloat16=lambda: self.asked.update(precision="bf16"))
        self.tokenizer = SimpleNamespace(encode=lambda text: [], unk=None)

    def as_read(self, prompt):
        return prompt

    def stream(self, prompt, **how):
        self.asked.update(how, prompt=prompt)
        return iter(["…"])

    def beam(self, prompt, **how):
        self.asked.update(how, prompt=prompt)
        return [("found", -1.5)]


def test_every_option_of_generate_reaches_the_model(captured, capsys):
    writer = Writer()
    noted = captured("regard.runs.load.load_language_model", writer)
    run(["generate", str(RUN), "--prompt", "Once", "--max-tokens", "7", "--lines", "3", "--temperature", "0.5",
         "--top-k", "4", "--top-p", "0.9", "--seed", "11", "--precision", "bf16", "--weights", "last",
         "--device", "cpu"])  # fmt: skip
    assert noted["load_language_model"][1] == {"weights": "last", "device": "cpu"}
    asked, sampling = writer.asked, writer.asked["sampling"]
    assert (asked["prompt"], asked["max_tokens"], asked["lines"], asked["seed"]) == ("Once", 7, 3, 11)
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.5, 4, 0.9)
    assert asked["precision"] == "bf16"
    assert capsys.readouterr().out == "Once…\n"
    asked["on_reread"](4)
    asked["on_reread"](4)
    assert capsys.readouterr().err.count("the context of 8 tokens is full; continuing from the last 4") == 1
    run(["generate", str(RUN), "--prompt", "Once", "--beam", "6", "--max-tokens", "9", "--json"])
    assert (writer.asked["width"], writer.asked["max_tokens"]) == (6, 9)
    assert json.loads(capsys.readouterr().out)["hypotheses"] == [{"text": "found", "log_probability": -1.5}]


class Speaker:
    folder, searcher = RUN, None

    def __init__(self):
        self.asked, self.recipe = {}, SimpleNamespace(size="tiny", system="seq2seq")

    def translations(self, lines, **how):
        self.asked = how
        for line in lines:
            best = SimpleNamespace(
                text=line.upper(), score=-0.5, log_probability=-1.0, alignment=[(0, 1)], attention=None, tokens=[1],
                finished=True,
            )  # fmt: skip
            yield [best] * how["samples"]


def test_every_option_of_translate_reaches_the_model(captured, capsys, monkeypatch):
    speaker = Speaker()
    noted = captured("regard.runs.load.load_translator", speaker)
    captured("regard.exchange.engines.open_engine", "engine")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\n\ntwo\n")))
    run(["translate", str(RUN), "--beam", "7", "--length-penalty", "0.6", "--n-best", "2", "--min-tokens", "2",
         "--max-tokens", "9", "--alignment", "--truncate", "--weights", "4", "--average", "3",
         "--device", "cpu"])  # fmt: skip
    assert noted["load_translator"][1] == {"weights": "4", "average": 3, "device": "cpu"}
    assert noted["open_engine"][0] == ("regard", speaker)
    asked, beam = speaker.asked, speaker.asked["beam"]
    assert (beam.width, beam.length_penalty, beam.n_best) == (7, 0.6, 2)
    assert (asked["min_tokens"], asked["max_tokens"], asked["samples"]) == (2, 9, 2)
    assert (asked["alignment"], asked["truncate"], asked["attention"], asked["before"]) == (True, True, False, (0, 0))
    assert capsys.readouterr().out.splitlines()[0] == "1\t-0.5000\t-1.0000\tONE\t0-1"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\n")))
    run(["translate", str(RUN), "--temperature", "0.7", "--top-k", "3", "--top-p", "0.8", "--seed", "5", "--json"])
    sampling = speaker.asked["sampling"]
    assert (sampling.temperature, sampling.top_k, sampling.top_p, speaker.asked["seed"]) == (0.7, 3, 0.8, 5)
    said = json.loads(capsys.readouterr().out)
    assert (said["line"], said["source"], said["translations"][0]["alignment"]) == (1, "one", [[0, 1]])
    run(["translate", str(RUN), "--engine", "ctranslate2"])
    assert noted["load_translator"][1]["device"] == "cpu"  # whatever there is


def test_a_beam_is_wide_enough_for_what_it_shows():
    assert (beam_search(None, None).width, beam_search(None, None).length_penalty) == (5, 1.0)
    assert beam_search(None, None, n_best=9).width == 9
    assert beam_search(3, 0.0).length_penalty == 0.0


def test_every_option_of_train_reaches_the_recipe(captured, capsys, tmp_path):
    captured("regard.runs.train.train_recipe", SimpleNamespace(folder="made"))  # whose module keeps the real compose
    captured("regard.runs.dry_run.dry_run", {"parameters": 5})
    noted = captured("regard.runs.compose.compose_recipe", "recipe")
    words = ["train", "lstm", "--data", "text.txt", "--size", "small", "--seed", "3", "--budget", "10m", "--from",
             str(tmp_path), "--model.layers", "3"]  # fmt: skip
    run([*words, "--run", "out", "--track", "mlflow"])
    given, how = noted["compose_recipe"]
    assert given == ("lstm",)
    assert {key: how[key] for key in ("data", "size", "seed", "budget", "start", "recipe")} == {
        "data": "text.txt", "size": "small", "seed": 3, "budget": "10m", "start": tmp_path, "recipe": None,
    }  # fmt: skip
    assert how["settings"] == {"model": {"layers": "3"}}
    given, how = noted["train_recipe"]
    assert (given, how["track"]) == (("recipe", Path("out")), "mlflow")
    assert capsys.readouterr().out == "made\n"
    run([*words, "--dry-run", "--json"])
    assert json.loads(capsys.readouterr().out) == {"parameters": 5}
    run(["train", "mine.toml"])
    given, how = noted["compose_recipe"]
    assert (given, how["recipe"]) == ((None,), "mine.toml")


def test_every_option_of_serve_reaches_the_server(captured, monkeypatch):
    @contextmanager
    def listening(host, port):
        yield (host, port)

    models = SimpleNamespace(by_name={}, reload_soon="reload")
    noted = captured("regard.web.serve.served_models.ServedModels", models)
    captured("regard.web.serve.api_server.application", "app")
    captured("regard.web.listening.run")
    monkeypatch.setattr("regard.web.listening.listen", listening)
    monkeypatch.setenv("REGARD_TOKEN", "from-the-environment")
    words = ["serve", str(RUN), "--host", "0.0.0.0", "--port", "9000", "--languages", "enfr=en-fr", "--queue", "7",
             "--engine", "ctranslate2", "--access-log", "--precision", "bf16", "--weights", "last",
             "--device", "cpu"]  # fmt: skip
    run([*words, "--token", "given"])
    given, how = noted["ServedModels"]
    assert [path.name for path in given[0]] == ["ngram"]
    assert how == {"languages": {"enfr": ("en", "fr")}, "places": 7, "weights": "last", "device": "cpu",
                   "precision": "bf16", "engine": "ctranslate2"}  # fmt: skip
    assert noted["application"] == ((models,), {"host": "0.0.0.0", "token": "given", "log": True})
    assert noted["run"][0] == ("app", ("0.0.0.0", 9000))
    assert noted["run"][1]["hangup"] == "reload"
    run(words)
    assert noted["application"][1]["token"] == "from-the-environment"
    for wrong in ("enfr", "enfr=en", "=en-fr", "enfr=e1-fr"):
        with pytest.raises(RegardError, match="NAME=FROM-TO"):
            serve_verb._language_pair(wrong)


def test_names_and_settings_are_told_apart():
    assert named(["a", "--model.x", "3", "b", "--y=4", "c"]) == (["a", "b", "c"], ["--model.x", "3", "--y=4"])


def test_which_weights_were_measured_is_said():
    assert weights_measured("best", None, 0.0) == {}
    assert weights_measured("last", None, 0.0) == {"weights": "last step"}
    assert weights_measured("40", None, 0.0) == {"weights": "step 40"}
    assert weights_measured("best", 3, 0.0) == {"weights": "mean over the last 3 validations"}
    assert weights_measured("best", None, 0.9)["weights"].endswith("moving average, ema 0.9")
    assert weights_measured("last", None, 0.9)["weights"].endswith("not averaged")


# -- input -----------------------------------------------------------------------------------------------------------


def given(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_a_text_from_stdin_ends_where_it_says(monkeypatch):
    monkeypatch.setattr(stdin, "MAX_LINE_BYTES", 10)
    given(monkeypatch, b"1234\n6789\n")
    assert stdin_text() == "1234\n6789"
    given(monkeypatch, b"1234\n67890\n")
    with pytest.raises(RegardError, match="too large for one text"):
        stdin_text()


def test_lines_are_answered_in_parts_and_numbered_through(monkeypatch):
    monkeypatch.setattr(stdin, "AT_ONCE", 2)
    given(monkeypatch, b"\xef\xbb\xbfa\r\nb\n\xef\xbb\xbfc\nd\n\xff\n")
    found = stdin_batches()
    assert next(found) == ["a", "b"]
    assert next(found) == ["\ufeffc", "d"]  # only the first line of all has a byte-order mark
    with pytest.raises(RegardError, match=r"Line 5 of the input is not UTF-8 \(byte 0\)"):
        next(found)
    monkeypatch.setattr(stdin, "BYTES_AT_ONCE", 3)
    monkeypatch.setattr(stdin, "AT_ONCE", 100)
    given(monkeypatch, b"a\nb\nc\nd\n")
    assert list(stdin_batches()) == [["a", "b"], ["c", "d"]]
    assert list(as_text([b"x\n", b"y"], first=4)) == ["x", "y"]
    with pytest.raises(RegardError, match="Line 8 of the input has 3 fields"):
        list(stdin_pairs(["a\tb", "a\tb\tc"], first=7))


# -- tables ----------------------------------------------------------------------------------------------------------


def labels(count):
    names = [f"l{number:02}" for number in range(count)]
    return {
        "accuracy": 0.75, "accuracy_interval": (0.5, 0.9), "lines": 8,
        "labels": {name: {"lines": 2, "predicted": 3, "precision": 0.5, "recall": 0.25, "f1": 0.125} for name in names},
        "confusion": {name: {names[0]: place + 1, name: 50} for place, name in enumerate(names)},
    }  # fmt: skip


def test_a_confusion_table_has_a_row_for_each_true_label_and_a_column_for_each_prediction(capsys):
    facts = labels(2) | {"confusion": {"l00": {"l00": 7, "l01": 3}, "l01": {"l01": 5}}}
    printing.print_labels(facts, False)
    out = capsys.readouterr().out
    assert "0.7500   95 % interval 0.5000 – 0.9000" in out
    rows = [line.replace("│", " ").split() for line in out.splitlines()]
    assert ["l00", "7", "3"] in rows
    assert ["l01", "0", "5"] in rows
    printing.print_labels(labels(12), False)
    assert "Confusion matrix:" in capsys.readouterr().out
    printing.print_labels(labels(13), False)
    out = capsys.readouterr().out
    assert "The most common of 12 kinds of mistake" in out
    assert out.index("l12") < out.rindex("l01")
    last = out[out.index("The most common") :]
    assert last.index("l12") < last.index("l05")  # the commonest first
    assert (printing.MAX_COLUMNS, printing.MOST_MISTAKES) == (12, 20)


def test_quality_is_shown_with_its_signature_and_lengths_with_their_words(capsys):
    rows = [
        {"shortest": 1, "longest": 5, "sentences": 3, "bleu": 1.0, "chrf": 2.0, "accuracy": 0.5},
        {"shortest": 6, "longest": None, "sentences": 4, "bleu": 1.0, "chrf": 2.0, "accuracy": 0.5},
    ]
    printing.print_quality({"bleu": {"score": 12.345, "signature": "nrefs:1"}, "by_length": rows}, False)
    out = capsys.readouterr().out
    assert "12.35   nrefs:1" in out or "12.34   nrefs:1" in out
    assert "1–5" in out
    assert "6 or more" in out


def test_the_rows_of_runs_say_their_state_and_measure():
    row = {"step": 5, "state": "stopped", "created": "2026-01-02T03:04:05+00:00", "best": 12.0, "measure": "bleu",
           "bytes": 1 << 20}  # fmt: skip
    shown = runs_verb._shown(row)
    assert (shown["state"], shown["bytes"]) == ("stopped at step 5", "1 MiB")
    assert shown["best"].startswith("BLEU 12")
    assert runs_verb._shown({**row, "state": "done"})["state"] == "done"
    assert runs_verb._shown({**row, "measure": "perplexity"})["best"].startswith("perplexity 12")
    assert runs_verb._local_time("never") is None
    assert len(shown["created"]) == len("2026-01-02 03:04")


def test_deleting_is_asked_about(monkeypatch, capsys):
    assert printing.agreed("Remove it?", True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(RegardError, match="There is no terminal to answer in: add --yes"):
        printing.agreed("Remove it?", False)
    for said, wanted in (("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("yes please\n", False)):
        answer = io.StringIO(said)
        answer.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", answer)
        assert printing.agreed("Remove it?", False) == wanted
    assert "Remove it? [y/N] " in capsys.readouterr().err


# -- claims ----------------------------------------------------------------------------------------------------------


def test_the_folder_of_claims_tells_them_apart():
    def folder(*names, quick=False, **explores):
        return str(claims_verb._folder([SimpleNamespace(name=name) for name in names], quick, explores))

    assert folder() == "runs/claims"
    assert folder("hull", "any-b", quick=True) == "runs/claims-hull-any-b-quick"
    assert folder("a", "b", "c") == "runs/claims-a-b-c"
    assert folder("a", "b", "c", "d") == "runs/claims-a-and-3-more"
    assert folder("a", first_seed=7, q=1.5, data="x/text.txt") == "runs/claims-a-first-seed-7-q-1.5-data-text"
    assert claims_verb._knob(" q = 12 ") == ("q", 12.0)
    with pytest.raises(RegardError, match="is not NAME=NUMBER"):
        claims_verb._knob("q=x")


def test_every_option_of_claims_reaches_the_experiment(captured, monkeypatch, tmp_path, capsys):
    one = SimpleNamespace(name="hull", label="✓ holds", as_json=lambda: {"name": "hull"}, cached=True)
    noted = captured("regard.claims.runner.run_claim", one)
    captured("regard.claims.runner.run_claims", [one, one])
    captured("regard.claims.claims_page.write_page")
    run(["claims", "hull", "--quick", "--again", "--first-seed", "9", "--knob", "q=2", "--knob", "r=3", "--data", "x",
         "--run", str(tmp_path / "out"), "--json"])  # fmt: skip
    assert noted["run_claim"] == (
        ("hull",),
        {"quick": True, "device": "cpu", "again": True, "jobs": 1, "first_seed": 9, "q": 2.0, "r": 3.0, "data": "x"},
    )
    run(["claims", "hull", "C10", "hull", "--jobs", "3", "--run", str(tmp_path / "out"), "--json"])
    given_, how = noted["run_claims"]
    assert given_ == (["hull", "any-b"],)
    assert (how["jobs"], how["quick"], how["again"]) == (3, False, False)
    with pytest.raises(RegardError, match="work with one claim only"):
        run(["claims", "hull", "any-b", "--knob", "q=2"])


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_finished_only_with_the_weights_tokenizers_and_recipe_it_was_begun_with(tmp_path):
    beside = ("recipe.toml", "tokenizer.json", "tokenizer.source.json")
    weights = ("model.safetensors", "training.safetensors", *(f"kept/{step}.safetensors" for step in (2, 4, 6, 8)))
    (tmp_path / "kept").mkdir()
    for name in (*beside, *weights):
        (tmp_path / name).write_text(name)

    def taken(**how):
        return set(run_digests(tmp_path, **{"weights": "best", **how})) - set(beside)

    assert taken() == {"model.safetensors"}
    assert taken(weights="last") == {"training.safetensors"}
    assert taken(weights="4") == {"4.safetensors"}
    assert taken(average=2) == {"6.safetensors", "8.safetensors"}
    assert taken(average=1) == {"8.safetensors"}
    before = run_digests(tmp_path, "best")
    for name in (*beside, "model.safetensors"):
        (tmp_path / name).write_text("other")
        assert run_digests(tmp_path, "best") != before
        (tmp_path / name).write_text(name)
    assert run_digests(tmp_path, "best") == before
    (tmp_path / "model.safetensors").unlink()
    assert taken() == {"training.safetensors"}


# -- what is written -------------------------------------------------------------------------------------------------


class Answerer:
    """A model that answers each message with its number, in two pieces."""

    folder, recipe = RUN, SimpleNamespace(system="gpt")

    def __init__(self):
        self.asked = []

    def reply(self, messages, **how):
        self.asked.append(([one["content"] for one in messages], how))
        return (piece for piece in ["answer ", str(len(self.asked))])


def test_a_dialogue_ends_each_answer_with_its_line_and_can_be_taken_back(capsys):
    model = Answerer()
    talk = Conversation(model, "sampling", 9, 5)
    for line in ("hello", "", "and now?"):
        talk.answer(line)
    assert capsys.readouterr().out == "answer 1\nanswer 2\n"
    assert model.asked[1] == (["hello", "answer 1", "and now?"], {"max_tokens": 9, "sampling": "sampling", "seed": 6})
    talk.answer("/undo")
    assert talk.text == "user: hello\nassistant: answer 1\n"
    talk.answer("/retry")
    assert (model.asked[2][0], model.asked[2][1]["seed"]) == (["hello"], 7)
    talk.answer("/tokens 3")
    talk.answer("more")
    assert model.asked[3][1]["max_tokens"] == 3
    talk.answer("/system Be brief.")
    assert talk.text == "system: Be brief.\n"
    talk.answer("/new")
    assert talk.text == ""


def test_a_chat_without_a_terminal_goes_on_until_it_is_told_to_stop(monkeypatch, capsys):
    given(monkeypatch, b"one\n/quit\ntwo\n")
    sys.stdin.isatty = lambda: False
    model = Answerer()
    chat_verb.talk_with(Conversation(model, "sampling", 9, 5))
    assert [asked[0] for asked in model.asked] == [["one"]]


def test_lines_are_numbered_from_one_and_only_there_is_a_byte_order_mark():
    assert list(as_text([b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"])) == ["a", "\ufeffb"]
    with pytest.raises(RegardError, match="Line 1 of the input is not UTF-8"):
        list(as_text([b"\xff"]))
    with pytest.raises(RegardError, match="Line 2 of the input has one field"):
        list(stdin_pairs(["a\tb", "a"]))


@pytest.mark.parametrize(
    ("n_best", "out"), [(1, "\nmood\t0.7500\n"), (2, "1\t\t\n2\tmood\t0.7500\n2\tother\t0.2500\n")]
)
def test_a_line_that_gets_no_label_is_still_a_line(captured, monkeypatch, capsys, n_best, out):
    best = [("mood", 0.75), ("other", 0.25)]
    labellings = [SimpleNamespace(top=lambda n: []), SimpleNamespace(top=lambda n: best[:n])]
    captured("regard.runs.load.load_classifier", SimpleNamespace(labellings=lambda lines, **how: labellings))
    given(monkeypatch, b"\nfine\n")
    run(["classify", str(RUN), "--n-best", str(n_best)])
    assert capsys.readouterr().out == out


def test_the_list_of_exercises_is_a_table_with_every_one_and_its_level(capsys):
    run(["exercise"])
    out = capsys.readouterr().out
    for each in EXERCISES:
        (line,) = [line for line in out.splitlines() if f" {each.name} " in f" {line.replace('│', ' ')} "]
        assert line.count("★") == each.level


def test_memory_that_has_run_out_is_said_at_once_and_on_the_log(monkeypatch, capfd):
    """Nothing of Python's end is run: what libraries do there would fail as well."""

    class Left(Exception):
        pass

    def leave(code):
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Left, match="2"):
        cli._fail_without_memory(None)
    assert capfd.readouterr() == ("", f"regard: {cli.MEMORY}\n")


def test_a_claims_words_stand_apart_from_its_conditions(capsys):
    claim = SimpleNamespace(number="C1", name="hull", statement="It holds.", where="1:2", quote="q", conditions="c",
                            worked=None)  # fmt: skip
    claims_verb._print_claim(claim)
    assert capsys.readouterr().out == "C1 hull: It holds.\n\nThe notes (1:2): “q”\nConditions: c\n\n"


@pytest.mark.parametrize(
    ("engine", "device", "allowed"),
    [("regard", "cuda", True), ("ctranslate2", "cuda", False), ("ctranslate2", "cpu", True)],
)
def test_only_regards_own_engine_serves_on_a_gpu(monkeypatch, engine, device, allowed):
    class Reached(Exception):
        pass

    def reached(*where):
        raise Reached

    monkeypatch.setattr("regard.web.listening.listen", reached)
    with pytest.raises(Reached if allowed else RegardError, match=None if allowed else "runs on the CPU"):
        run(["serve", str(RUN), "--engine", engine, "--device", device])


def test_worked_numbers_stand_in_a_table_apart_from_what_is_said_before(capsys):
    row = SimpleNamespace(what="0.5 · 0.5", noted="0.25", found="0.25", where="1:2", agrees=True)
    claims_verb._print_worked([row, SimpleNamespace(**{**vars(row), "found": "0.3", "agrees": False})])
    out = capsys.readouterr().out
    assert out.startswith("\n")
    assert (out.count("✓"), out.count("✗")) == (1, 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokenPipeError(), 141), (KeyboardInterrupt(), 130), (Terminated(), 143), (RegardError("No."), 2), (None, 0)],
)
def test_the_exit_code_says_how_a_command_ended(monkeypatch, capsys, error, code):
    def end(words):
        if error is not None:
            raise error

    monkeypatch.setattr(cli, "_run", end)
    monkeypatch.setattr(cli.signal, "signal", lambda *given: None)
    try:
        cli.main([])
        found = 0
    except SystemExit as stop:
        found = stop.code
    assert found == code
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="where a process is told how much memory it has")
@pytest.mark.parametrize(
    ("name", "room", "refused"),
    [("torch", None, False), ("torch", 100 << 20, True), ("torch", 1 << 40, False), ("numpy", 10 << 20, True),
     ("numpy", 400 << 20, False), ("torch", 400 << 20, True), ("json", 1 << 20, False)],
)  # fmt: skip
def test_too_little_memory_is_said_before_a_library_would_abort(monkeypatch, name, room, refused):
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = resource.RLIM_INFINITY if room is None else used + room
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limit, limit))
    if refused:
        with pytest.raises(RegardError, match=f"too little to load {name}"):
            cli._ROOM.find_spec(name)
    else:
        assert cli._ROOM.find_spec(name) is None


def test_a_run_that_stands_in_the_wrong_place_is_known_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").touch()
    (tmp_path / "other").mkdir()
    assert commands._is_run("mine")
    assert not commands._is_run("other")
    assert "put the run first, as in `regard score mine`" in commands._instead("regard score", "mine", ["score", "x"])
