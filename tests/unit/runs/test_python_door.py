"""Regard from Python: what it shows, how a run is called, and one way to say how it decodes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.cli.commands import _instead
from regard.cli.evaluate import weights_measured
from regard.cli.options import check_systems
from regard.decoding.beam import Hypothesis
from regard.exchange.formats import export
from regard.runs.compose import compose_recipe
from regard.runs.dry_run import dry_run
from regard.runs.prepare import data_of
from regard.runs.recipe import parse_overrides
from regard.runs.run_report import run_page
from regard.runs.store.facts import BEGINNING, read_note
from regard.runs.tasks.language import writing
from regard.runs.tasks.translation import run as translation_run
from regard.runs.train import how_losses_differ

LINES = [f"{who} {does} {what}." for who in ("The cat", "A dog") for does in ("sees", "eats") for what in ("it", "été")]
PAIRS = [(line, line.upper()) for line in LINES]
LABELLED = [(line, "cat" if "cat" in line else "dog") for line in LINES]
QUICK = {"training": {"steps": 4, "evaluate_every": 2, "checkpoint_every": 4, "threads": 1, "batch_tokens": 64}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def lstm(folder):
    settings = QUICK | {"data": {"tokenizer": "byte"}}  # é is two tokens
    return regard.train("lstm", data=LINES * 4, run=folder / "lstm", size="tiny", settings=settings)


@pytest.fixture(scope="module")
def ngram(folder):
    return regard.train("ngram", data=LINES * 4, run=folder / "ngram", settings={"data": {"tokenizer": "bpe"}})


@pytest.fixture(scope="module")
def translator(folder):
    return regard.train("transformer", data=PAIRS * 4, run=folder / "translator", size="tiny", settings=QUICK)


@pytest.fixture(scope="module")
def classifier(folder):
    return regard.train("classifier", data=LABELLED * 4, run=folder / "classifier", size="tiny", settings=QUICK)


# -- the package -------------------------------------------------------------------------------------------------------


def test_the_package_shows_everything_public_and_loads_nothing():
    code = (
        "import sys, regard\n"
        "assert 'torch' not in sys.modules\n"
        "assert {*regard.__all__, '__version__'} == set(dir(regard))\n"
        "assert 'torch' not in sys.modules\n"
        "for name in regard.__all__: getattr(regard, name)\n"
        "from regard import *\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_kind_of_run_is_a_run(lstm, translator, classifier):
    kinds = [regard.LanguageRun, regard.TranslationRun, regard.ClassificationRun]
    for run, kind in zip((lstm, translator, classifier), kinds, strict=True):
        assert type(run) is kind
        assert isinstance(run, regard.Run)
        assert repr(run).startswith(f"{kind.__name__}(")
        assert sum(isinstance(run, other) for other in kinds) == 1


def test_a_run_goes_where_it_is_sent(lstm):
    lstm.generate("The", max_tokens=2)
    assert lstm._engines
    assert lstm.to("cpu") is lstm
    assert not lstm._engines  # they belonged to the model where it was
    with pytest.raises(regard.RegardError, match="not available"):
        lstm.to("toaster")


def test_the_page_about_python_is_true(folder, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    monkeypatch.chdir(folder)
    exec(compile("".join(re.findall(r"```python\n(.*?)```", page, flags=re.S)), "python.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "step 20 validation loss" in printed
    assert "The cat" in printed


# -- the lecture's call ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [[0, 0, 0, 0], (0.0,), np.zeros(4), torch.zeros(1, 4)])
def test_zeros_are_the_beginning(lstm, zeros):
    prediction, hidden_state = lstm("The", zeros)
    expected, state = lstm("The", None)
    assert np.array_equal(prediction.log_probabilities, expected.log_probabilities)
    after, _ = lstm(" cat", hidden_state)
    assert np.array_equal(after.log_probabilities, lstm(" cat", state)[0].log_probabilities)


@pytest.mark.parametrize("state", [[0, 1], [], "0", {}, print, [[0], [0, 0]]])
def test_what_is_no_state_is_answered_in_one_sentence(lstm, translator, state):
    for run in (lstm, translator):
        with pytest.raises(regard.RegardError, match="is not a state: start with None or zeros"):
            run("The", state)


def test_a_translation_does_not_begin_with_zeros(translator):
    with pytest.raises(regard.RegardError, match="begins with its source"):
        translator("", [0, 0])


def test_the_words_of_a_text_are_whole_characters(lstm, ngram):
    assert lstm.words("It été") == [*"It été"]  # é is two tokens
    assert "".join(ngram.words("The cat été")) == "The cat été"
    assert len(ngram.words("The cat")) == len(ngram.tokenizer.encode("The cat"))


@pytest.mark.parametrize(("limit", "count"), [(7, 7), (0, None)])
def test_a_validation_reads_the_beginning_of_its_text_or_all_of_it(lstm, limit, count):
    data = data_of(lstm.folder, lstm.recipe)
    found = data.validation(lstm.recipe.replace(training={"validation_tokens": limit}), lstm.model)
    assert found.ids.tolist() == data.arrays["valid"].ids[:count].tolist()
    assert found.counted is None  # every token
    assert (found.eos, found.begin) == (lstm.tokenizer.eos, lstm.tokenizer.begin)


# -- decoding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["lstm", "ngram"])
@pytest.mark.parametrize("prompt", ["", "The ", "The cat", "été"])
def test_a_stream_yields_what_is_new_and_nothing_of_the_prompt(request, system, prompt):
    run = request.getfixturevalue(system)
    how = {"max_tokens": 30, "temperature": 1.2, "top_k": 20, "seed": 3}
    pieces = list(run.stream(prompt, **how))
    assert all(pieces)
    assert len(pieces) > 5
    assert not any(piece.endswith("\ufffd") for piece in pieces[:-1])  # half a character
    assert prompt + "".join(pieces) == run.generate(prompt, **how)


def test_one_way_to_say_how_to_draw(lstm, translator):
    fields = {"temperature": 0.7, "top_k": 5, "top_p": 0.9}
    sampling = regard.Sampling(**fields)
    for call in (
        lambda **how: lstm.generate("The", max_tokens=9, seed=2, **how),
        lambda **how: list(lstm.stream("The", max_tokens=9, seed=2, **how)),
        lambda **how: list(lstm.completions(["The", "A"], max_tokens=9, seed=2, **how)),
        lambda **how: translator.translate(LINES[0], seed=2, **how),
        lambda **how: [[one.text for one in found] for found in translator.translations(LINES, seed=2, **how)],
    ):
        assert call(**fields) == call(sampling=sampling)
        with pytest.raises(regard.RegardError, match="sampling and temperature both specify how to sample"):
            call(sampling=sampling, temperature=0.7)


def test_one_way_to_say_how_to_search(translator):
    expected = [found[0] for found in translator.translations(LINES, beam=regard.Beam(2, 0.5))]
    assert expected == [found[0] for found in translator.translations(LINES, beam=2, length_penalty=0.5)]
    assert translator.translate(LINES, beam=2, length_penalty=0.5) == [one.text for one in expected]
    assert translator.evaluate("valid", beam=1)["search"] == "greedy"
    with pytest.raises(regard.RegardError, match="give only one"):
        translator.translate(LINES[0], beam=2, temperature=0.5)
    with pytest.raises(regard.RegardError, match="leave length_penalty out"):
        translator.translate(LINES[0], beam=regard.Beam(2), length_penalty=0.5)


@pytest.mark.parametrize(("alignment", "attention"), [(True, False), (False, True), (True, True), (False, False)])
def test_a_translation_has_the_links_and_the_attention_that_were_asked_for(translator, alignment, attention):
    ((found, *_),) = translator.translations(LINES[:1], alignment=alignment, attention=attention)
    assert (found.alignment is not None) == (alignment or attention)
    assert (found.attention is not None) == attention


def test_the_second_text_builds_no_engine(lstm, monkeypatch):
    lstm.to("cpu")
    lstm.generate("The", max_tokens=3, temperature=0.5)
    monkeypatch.setattr(writing, "Engine", None)
    lstm.generate("A", max_tokens=5, temperature=0.5, seed=7)
    list(lstm.stream("A", max_tokens=5, sampling=regard.Sampling(0.5)))


def test_the_second_translation_builds_no_engine(translator, monkeypatch):
    built, used = [], []

    def search(model, sources, *, engine, **how):
        used.append(engine)
        return ([Hypothesis([0], -1.0, -1.0)] for _ in sources)

    monkeypatch.setattr(translation_run, "translate", search)
    monkeypatch.setattr(translation_run, "GradualEngine", lambda model, install: built.append(model) or object())
    on_a_gpu = SimpleNamespace(device=torch.device("cuda"), eval=lambda: None)
    parts = (translator.folder, translator.recipe, translator.source_tokenizer, translator.tokenizer)
    run = regard.TranslationRun(*parts, on_a_gpu)
    run.translate(LINES[0])
    run.translate(LINES, beam=2)
    assert built == [on_a_gpu]
    assert used[0] is used[1] is not None


# -- data from a program -----------------------------------------------------------------------------------------------


def test_a_list_is_evaluated_whole(lstm, translator, classifier):
    facts = lstm.evaluate(data=LINES)
    assert (facts["split"], facts["tokens"]) == ("whole list", sum(len(line.encode()) + 1 for line in LINES))
    assert facts["share_seen_in_training"] > 0
    assert translator.evaluate(data=PAIRS)["sentences"] == len(PAIRS)
    assert classifier.evaluate(data=LABELLED)["lines"] == len(LABELLED)


def test_another_file_is_evaluated_whole_unless_a_split_is_named(lstm, translator, tmp_path):
    text, pairs = tmp_path / "my.txt", tmp_path / "my.tsv"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    facts, given = lstm.evaluate("all", data=text), lstm.evaluate(data=LINES)
    assert facts["split"] == "whole file"
    assert {name: facts[name] for name in ("tokens", "nats_per_token")} == {
        name: given[name] for name in ("tokens", "nats_per_token")
    }
    assert lstm.evaluate(data=text) | {"seconds": 0} == facts | {"seconds": 0}  # another file, so all of it
    assert lstm.evaluate("test", data=text)["split"] == "test"
    assert translator.evaluate("all", data=pairs)["sentences"] == len(PAIRS)
    for run in (lstm, translator):
        for data in (None, tmp_path):
            with pytest.raises(regard.RegardError, match="split all reads a whole file"):
                run.evaluate("all", data=data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "empty list"),
        (["one", "two\nlines"], "Item 1 of the data contains a line break"),
        (["one", 2], "Item 1 of data must be a string or a pair of strings, not 2"),
        (iter(["one", 2]), "Item 1 of the data is of type int"),
        ([("a", "b"), ("a",)], r"Item 1 of data must be a string or a pair of strings, not \('a',\)"),
        (iter([("a", "b"), ("a",)]), "Item 1 of the data is not a pair"),
        ([("a", "b"), "a"], "data must be a string, a path, a list of strings, a list of pairs of strings or None"),
        ([("a", "b"), ("a", "b\tc")], "Item 1 of the data contains a tab"),
    ],
)
def test_a_list_that_is_no_data_is_answered_in_one_sentence(data, sentence, tmp_path):
    with pytest.raises(regard.RegardError, match=sentence):
        regard.train("lstm", data=data, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pairs_keep_their_quotes_and_their_first_row(folder):
    pairs = [("source", "target"), ('"quoted"', 'a "b", c'), *PAIRS * 4]
    run = regard.train("seq2seq", data=pairs, run=folder / "quotes", size="tiny", settings=QUICK)
    found = [pair for some in run.corpus().splits.values() for pair in zip(some.sources, some.targets)]
    assert set(found) == set(pairs)


def test_a_run_on_a_list_goes_on_when_the_list_is_gone(folder, capsys):
    class Enough(Exception):
        pass

    def stop(row):
        if row["step"] == 2:
            raise Enough("of this")

    make = {"data": LINES * 4, "size": "tiny", "settings": QUICK}
    with pytest.raises(Enough, match="of this") as raised:
        regard.train("rnn", run=folder / "stopped", callbacks=[stop], **make)
    assert raised.traceback[-1].name == "stop"  # its own line, for who wrote it
    assert "The list of " in capsys.readouterr().err
    resumed = regard.resume(folder / "stopped")
    assert re.search(rf"{folder / 'stopped'}: continuing from step [23]\n", capsys.readouterr().err)
    whole = regard.train("rnn", run=folder / "whole", **make)
    assert all(torch.equal(a, b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True))


# -- what training tells -----------------------------------------------------------------------------------------------


def test_callbacks_are_called_with_each_row_of_the_history(folder):
    rows, again = [], []
    run = regard.train(
        "rnn", data=LINES * 4, run=folder / "told", size="tiny", settings=QUICK, callbacks=[rows.append, again.append]
    )
    assert rows == again == list(run.history)
    assert [row["step"] for row in run.history.validations] == [2, 4]
    page = run.history._repr_html_()
    assert page.count("<tr") == 3
    assert "perplexity" in page


def test_a_history_is_plotted_by_matplotlib_or_answered_in_one_sentence(lstm, ngram, monkeypatch):
    assert ngram.history == []
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(regard.RegardError, match="pip install matplotlib"):
        lstm.history.plot()


def test_a_history_is_drawn_on_the_axes_given(lstm, monkeypatch):
    class Axes:
        def __init__(self):
            self.lines = {}

        def plot(self, x, y, label):
            self.lines[label] = list(zip(x, y))

        def __getattr__(self, name):
            return lambda *words: None

    matplotlib = type(sys)("matplotlib")
    matplotlib.pyplot = type(sys)("pyplot")
    monkeypatch.setitem(sys.modules, "matplotlib", matplotlib)
    axes = lstm.history.plot("perplexity", axes=Axes())
    assert axes.lines["validation"] == [(row["tokens"], row["perplexity"]) for row in lstm.history.validations]


# -- what is given in another form -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lstm", "ngram"])
def test_lines_are_scored_alike_from_a_list_a_file_or_one_by_one(name, request, tmp_path):
    run, path = request.getfixturevalue(name), tmp_path / "lines.txt"
    expected = [line.log_probability for line in run.score(LINES)]
    for end in ("\n", "\r\n"):
        path.write_text("".join(f"{line}{end}" for line in LINES), encoding="utf-8", newline="")
        with path.open(encoding="utf-8", newline="") as file:
            assert [line.log_probability for line in run.score(file)] == expected
    assert [score.log_probability for line in LINES for score in run.score(line)] == expected
    assert [line.text for line in run.score(["The cat\r", "The cat\nA dog\n"])] == ["The cat\r", "The cat\nA dog"]
    with pytest.raises(RegardError, match="Item 0 of lines must be a string, not None"):
        run.score([None])
    with pytest.raises(RegardError, match="Item 0 of the data is of type NoneType"):
        list(run.score(iter([None])))


def test_one_prompt_is_one_text(lstm):
    how = {"max_tokens": 3, "temperature": 0.0}
    assert list(lstm.completions("The cat", **how)) == list(lstm.completions(["The cat\n"], **how))


def test_what_is_no_pair_is_not_scored(translator, classifier):
    for run in (translator, classifier):
        for wrong in (["ab"], ["abc"], [("a", "b", "c")]):
            with pytest.raises(RegardError, match="Item 0 of pairs must be a pair of strings"):
                run.score(wrong)
            with pytest.raises(RegardError, match="Item 0 of the data is not a pair"):
                list(run.score(iter(wrong)))


def test_every_kind_of_run_shows_its_arithmetic(lstm, translator, classifier):
    for run in (lstm, translator, classifier):
        assert run.work("The cat sees it.", 0).sections
        calculation = run.calculation("The cat sees it.")
        for step, layer in ((0, None), (1, "encoder/0" if run is classifier else 0), (2, None)):
            assert run.work("The cat sees it.", step, layer).as_json() == calculation.at(step, layer).as_json()
        trace = run.trace("The cat sees it.", top=2)
        assert (trace.system, trace.run) == (run.recipe.system, run.folder.name)
        assert {len(best) for best in trace.top} == {2}
        assert bool(trace.beam) == (run is translator)
    assert lstm.trace("The", beam=2, max_tokens=2).beam
    trace = translator.trace("The cat sees it.")
    assert translator.calculation("The cat sees it.", trace=trace).at(0).sections


# -- runs that hardly began --------------------------------------------------------------------------------------------


def test_a_run_that_was_stopped_at_once_has_a_page(lstm, tmp_path):
    early = shutil.copytree(lstm.folder, tmp_path / "early")
    for name in ("metrics.jsonl", "model.safetensors"):
        (early / name).unlink()
    assert "This run has not been validated yet." in run_page(regard.load(early, weights="last"))
    with pytest.raises(RegardError, match=r"There is no .*model\.safetensors"):
        read_note(early / "model.safetensors")
    (early / "run.json").unlink()
    (early / BEGINNING).touch()
    with pytest.raises(RegardError, match="ended before the first step; train it again"):
        regard.load(early)


def test_an_average_is_said_counted_and_named(lstm, folder):
    settings = QUICK | {"training": QUICK["training"] | {"ema": 0.9}}
    recipe = compose_recipe("lstm", data=str(lstm.recipe.data.corpus), size="tiny", settings=settings)
    plain = compose_recipe("lstm", data=str(lstm.recipe.data.corpus), size="tiny", settings=QUICK)
    assert "moving average of the weights (training.ema 0.9)" in how_losses_differ(recipe)
    assert "moving average" not in how_losses_differ(plain)
    held = [dry_run(each)["weights_gradients_optimizer_bytes"] for each in (plain, recipe)]
    assert held[1] == pytest.approx(1.25 * held[0], rel=0.01)  # weights, gradients, two moments, and the average


@pytest.mark.parametrize(
    "given, said",
    [
        (("best", None, 0.0), None),
        (("last", None, 0.0), "last step"),
        (("200", None, 0.0), "step 200"),
        (("best", 3, 0.9), "mean over the last 3 validations"),
        (("best", None, 0.99), "best on validation: moving average, ema 0.99"),
        (("last", None, 0.99), "last step: not averaged"),
    ],
)
def test_an_evaluation_says_which_weights_it_measured(given, said):
    assert weights_measured(*given).get("weights") == said


# -- words in the wrong order ------------------------------------------------------------------------------------------


def test_a_file_and_a_run_in_the_wrong_place_are_recognised(lstm, tmp_path):
    file, run = tmp_path / "lines.txt", str(lstm.folder)
    file.write_text("The cat\n", encoding="utf-8")
    assert _instead("regard score", str(file), ["score", run]).endswith(f"`regard score {run} < {file}`.")
    assert _instead("regard score", run, ["score", str(file)]) == f"put the run first, as in `regard score {run}`."
    with pytest.raises(RegardError, match=r"lines\.txt is not a run"):
        export(file, "arpa", lstm.folder)


def test_a_setting_without_its_section_is_found():
    known = ["--size", "--seed", "training.steps", "training.ema", "model.layers"]
    assert did_you_mean("--steps", known) == ": did you mean training.steps?"
    assert did_you_mean("--ema", known) == ": did you mean training.ema?"


def test_a_run_where_a_system_or_another_name_was_meant_is_recognised(lstm):
    with pytest.raises(RegardError, match=rf"is a run, not a system: `regard resume {lstm.folder}`"):
        check_systems([str(lstm.folder)])
    with pytest.raises(RegardError, match=rf"There is no run .*: did you mean {lstm.folder}\?"):
        regard.load(lstm.folder.with_name("lsmt"))
    with pytest.raises(RegardError, match=r"There is no run .*zebra; `regard train` creates one"):
        regard.load(lstm.folder.with_name("zebra"))
    with pytest.raises(RegardError, match="There is no run"):
        regard.load(lstm.folder / "nowhere" / "lstm")
    with pytest.raises(RegardError, match=f"give data as --data {lstm.folder}"):
        parse_overrides([str(lstm.folder)], (), "lstm")
