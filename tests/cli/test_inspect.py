"""`regard inspect`: what is shown of the inside agrees with what the other verbs say of the outside."""

import base64
import json
import math
import re

import numpy as np
import pytest

from regard.cli import main
from regard.corpora.phrasebook import make_pairs

SHORT = [
    "--size", "tiny", "--training.steps", "6", "--training.evaluate-every", "6", "--training.batch-tokens", "512",
    "--training.threads", "1", "--data.tokenizer", "word",
]  # fmt: skip
LANGUAGE = ["ngram", "lstm", "gpt"]
PAIRS = ["seq2seq", "bahdanau", "transformer"]
LINE = "The cat sees a tree."
SENTENCE = "They are watching."


@pytest.fixture(scope="module")
def runs(tmp_path_factory, trained):
    """A run of every task: language models, translators, and a classifier that tells English from French."""
    folder, pairs = tmp_path_factory.mktemp("inspected"), list(make_pairs(300, seed=3, longest=8))
    (folder / "pairs.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
    (folder / "labels.tsv").write_text("".join(f"{p.source}\ten\n{p.target}\tfr\n" for p in pairs), encoding="utf-8")
    for system in PAIRS:
        main(["train", system, "--data", str(folder / "pairs.tsv"), "--run", str(folder / system), *SHORT])
    encoder = ["--model.encoder", "transformer"]
    main(["train", "classifier", "--data", str(folder / "labels.tsv"), "--run", str(folder / "both"), *encoder, *SHORT])
    return trained | {system: folder / system for system in PAIRS} | {"classifier": folder / "both"}


@pytest.fixture
def seen(regard, runs):
    """inspect's one object."""

    def call(system, *words, **options):
        code, out, errors = regard("inspect", runs[system], *words, "--json", **options)
        assert code == 0, errors
        return json.loads(out)

    return call


# -- agreement with the other verbs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("system", LANGUAGE)
def test_probabilities_are_those_that_score_prints(regard, runs, seen, system):
    trace = seen(system, LINE)
    scored = json.loads(regard("score", runs[system], "--tokens", "--json", stdin=LINE + "\n")[1])["tokens"]
    assert trace["tokens"] == ["<eos>", *(token for token, _ in scored[:-1])]
    assert trace["targets"] == [*trace["tokens"][1:], ""]
    assert trace["probability"][:-1] == pytest.approx([math.exp(p) for _, p in scored[:-1]], rel=1e-3)
    assert trace["probability"][-1] is None


@pytest.mark.parametrize("system", PAIRS)
def test_without_a_target_it_shows_the_translation_that_translate_writes(regard, runs, seen, system):
    trace = seen(system, SENTENCE, "--beam", "3")
    line = json.loads(regard("translate", runs[system], "--beam", "3", "--json", stdin=SENTENCE + "\n")[1])
    best = line["translations"][0]
    assert trace["targets"] == best["tokens"]
    assert sum(map(math.log, trace["probability"])) == pytest.approx(best["log_probability"], abs=1e-3)
    assert sum(branch["rank"] == 1 for branch in trace["beam"]) == 1


@pytest.mark.parametrize("system", PAIRS)
def test_a_target_is_read_as_score_reads_it_and_nothing_is_searched(regard, runs, seen, system):
    trace = seen(system, SENTENCE, "--target", "Ils regardent.")
    scored = json.loads(regard("score", runs[system], "--tokens", "--json", stdin=f"{SENTENCE}\tIls regardent.\n")[1])
    assert trace["targets"] == [token for token, _ in scored["tokens"]]
    assert np.log(trace["probability"]) == pytest.approx([p for _, p in scored["tokens"]], abs=1e-3)
    assert trace["beam"] == []


def test_a_classifier_answers_as_classify_does(regard, runs, seen):
    trace = seen("classifier", SENTENCE)
    label, probability = regard("classify", runs["classifier"], stdin=SENTENCE + "\n")[1].split("\t")
    assert trace["label"] == trace["top"][0][0]["token"] == label
    assert trace["top"][0][0]["probability"] == pytest.approx(float(probability), abs=1e-3)
    assert sum(choice["probability"] for choice in trace["top"][0]) == pytest.approx(1, abs=1e-3)
    assert seen("classifier", SENTENCE, "--target", "fr")["targets"] == ["fr"]


# -- what is inside --------------------------------------------------------------------------------------------------


def test_attention_of_every_layer_and_head_is_a_distribution_over_what_was_read(seen):
    trace = seen("gpt", LINE)
    assert set(trace["attention"]) == {"self/0", "self/1"}
    for matrix in trace["attention"].values():
        weights = np.array(matrix["values"])
        assert matrix["rows"] == matrix["columns"] == trace["tokens"]
        assert weights.ndim == 3
        assert weights.shape[1:] == (len(trace["tokens"]),) * 2
        assert weights.sum(-1) == pytest.approx(1, abs=1e-3)
        assert not np.triu(weights, 1).any()


def test_each_family_shows_what_it_is_made_of(seen):
    assert {name.split("/")[-1] for name in seen("lstm", LINE)["gates"]} >= {"forget", "cell", "output"}
    counted = seen("ngram", LINE)
    assert all(1 <= order <= 4 for order in counted["order"])
    assert all(0 < weight <= 1 for weight in counted["backoff"])
    kinds = {name.split("/")[0] for name in seen("transformer", SENTENCE)["attention"]}
    assert kinds == {"encoder", "self", "cross"}
    aligned = seen("bahdanau", SENTENCE)
    assert aligned["alignment"]["rows"] == aligned["targets"]
    assert aligned["alignment"]["columns"] == aligned["source"]


@pytest.mark.parametrize("system", ["lstm", "gpt"])
def test_gradients_are_asked_for_and_reach_no_later_word(seen, system):
    assert seen(system, LINE)["gradients"] is None
    reached = np.array(seen(system, LINE, "--gradients")["gradients"]["values"][:-1], dtype=float)
    assert (np.tril(reached) > 0).sum() == len(reached) * (len(reached) + 1) / 2
    assert not np.triu(reached, 1).any()


def test_what_has_no_word_vectors_says_why_there_are_no_gradients(regard, runs):
    code, out, _ = regard("inspect", runs["ngram"], LINE, "--gradients")
    assert code == 0
    assert "no gradients through time" in " ".join(out.split())


# -- how it is shown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [*LANGUAGE, *PAIRS, "classifier"])
def test_the_terminal_shows_every_token_and_what_was_expected(regard, runs, seen, system):
    text = LINE if system in LANGUAGE else SENTENCE
    code, out, errors = regard("inspect", runs[system], text, "--top", "2")
    trace = seen(system, text, "--top", "2")
    assert code == 0, errors
    assert all(len(choices) == 2 for choices in trace["top"])
    for token in trace["tokens"]:
        assert token.strip() in out
    assert trace["top"][0][0]["token"].strip() in out


def test_text_comes_from_a_pipe_as_well(seen):
    assert seen("gpt", stdin=LINE + "\n") == seen("gpt", LINE)
    assert "".join(seen("gpt", stdin="The cat\nsees\n")["targets"]) == "The cat<eos>sees"
    assert seen("transformer", stdin=SENTENCE + "\n") == seen("transformer", SENTENCE)


def test_one_layer_and_one_head_can_be_chosen(regard, runs):
    whole = regard("inspect", runs["transformer"], SENTENCE)[1]
    chosen = {
        ("--layer", "0"): "Cross-attention, layer 1, mean of",
        ("--layer", "encoder/1", "--head", "1"): "Self-attention of the encoder, layer 2, head 2",
        ("--head", "0"): "Cross-attention, layer 2, head 1",
    }
    for words, title in chosen.items():
        out = regard("inspect", runs["transformer"], SENTENCE, *words)[1]
        assert title in out
        assert out.count("weight\n") == 1
        assert title not in whole


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt", "transformer", "classifier"])
def test_the_page_is_one_offline_file_that_is_never_overwritten(regard, runs, wrong, tmp_path, system):
    page, text = tmp_path / "out.html", LINE if system in LANGUAGE else SENTENCE
    code, out, _ = regard("inspect", runs[system], text, "--html", page)
    assert code == 0
    assert out.strip() == str(page)
    written = page.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\((?!["']?data:)|fetch\(""", written)
    assert "already exists" in wrong("inspect", runs[system], text, "--html", page)
    assert page.read_text(encoding="utf-8") == written


def test_a_page_and_an_object_can_be_had_at_once(seen, tmp_path):
    assert seen("lstm", LINE, "--html", tmp_path / "out.html")["system"] == "lstm"
    assert (tmp_path / "out.html").stat().st_size


# -- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["ngram", "gpt", "transformer", "classifier"])
def test_an_empty_text_is_refused(wrong, runs, system):
    for words, stdin in ((["  "], ""), ([""], ""), ([], ""), ([], "\n\n")):
        assert "The text is empty" in wrong("inspect", runs[system], *words, stdin=stdin)


def test_a_text_that_is_too_long_is_refused(wrong, runs):
    assert "reads at most" in wrong("inspect", runs["gpt"], LINE * 60)
    for system in ("transformer", "classifier"):
        sentence = wrong("inspect", runs[system], "They are " * 200)
        assert "400 tokens" in sentence
        assert "at most 256" in sentence


def test_options_that_mean_nothing_for_a_task_are_refused(wrong, runs):
    for option in ("--target", "--beam", "--length-penalty"):
        assert f"{option} does not apply" in wrong("inspect", runs["gpt"], LINE, option, "1")
    assert "--beam does not apply" in wrong("inspect", runs["classifier"], SENTENCE, "--beam", "2")
    both = wrong("inspect", runs["transformer"], SENTENCE, "--target", "Ils", "--beam", "2")
    assert "--beam does not apply" in both
    for output in (["--json"], ["--html", "out.html"]):
        assert "--layer and --head" in wrong("inspect", runs["gpt"], LINE, "--head", "0", *output)


def test_layers_and_heads_that_are_not_there_are_refused_with_those_that_are(wrong, runs):
    assert "self/0, self/1" in wrong("inspect", runs["gpt"], LINE, "--layer", "2")
    assert "encoder/0" in wrong("inspect", runs["transformer"], SENTENCE, "--layer", "cros/0")
    assert "heads are 0 to" in wrong("inspect", runs["gpt"], LINE, "--head", "99")
    assert "no attention" in wrong("inspect", runs["lstm"], LINE, "--layer", "0")
    assert "no attention" in wrong("inspect", runs["ngram"], LINE, "--head", "0")
    assert "no layer -1" in wrong("inspect", runs["gpt"], LINE, "--layer", "-1")


def test_other_slips_are_one_sentence(wrong, runs, tmp_path):
    assert str(tmp_path / "none") in wrong("inspect", tmp_path / "none", LINE)
    assert "--top must be at least 1" in wrong("inspect", runs["gpt"], LINE, "--top", "0")
    assert "--beam must be at least 1" in wrong("inspect", runs["transformer"], SENTENCE, "--beam", "0")
    assert "not a label" in wrong("inspect", runs["classifier"], SENTENCE, "--target", "de")
    assert "more than one line" in wrong("inspect", runs["transformer"], stdin=f"{SENTENCE}\n{SENTENCE}\n")
    assert '"The cat sees"' in wrong("inspect", runs["gpt"], "The", "cat", "sees")
    assert "did you mean --gradients" in wrong("inspect", runs["gpt"], "--gradient", stdin=LINE).lower()
    assert "not UTF-8" in wrong("inspect", runs["gpt"], stdin=b"caf\xe9\n")
    assert "not available" in wrong("inspect", runs["gpt"], LINE, "--device", "banana")
    assert "weights" in wrong("inspect", runs["gpt"], LINE, "--weights", "worst")
    assert not list(tmp_path.iterdir())


def test_a_hypothesis_that_was_cut_off_says_why_it_stands_below(trained):
    from regard.insight.views.as_json import facts
    from regard.insight.views.terminal import show
    from regard.runs.load import load

    run = load(trained["lstm"], device="cpu")
    cut = run.trace("The", beam=3, max_tokens=2)
    assert not all(branch.finished for branch in cut.beam if branch.rank)
    told = facts(cut)
    assert "was not finished when the search ended" in told["unfinished"]
    assert {one["text"].endswith(" …") for one in told["beam"] if "text" in one} >= {True}
    assert "…: unfinished" in " ".join(show(cut).split())


# -- the arithmetic --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [*LANGUAGE, *PAIRS, "classifier"])
def test_work_ends_in_the_probability_that_the_trace_has(seen, system):
    text = LINE if system in LANGUAGE else SENTENCE
    trace, work = seen(system, text), seen(system, text, "--work", "--step", "0")
    named = [line for part in work["sections"] for line in part["lines"] if line["name"].startswith("P(")]
    expected = trace["top"][0][0]["probability"] if system == "classifier" else trace["probability"][0]
    assert named[-1]["value"] == pytest.approx(expected, rel=1e-3)


def test_an_n_gram_shows_what_it_counted(regard, runs):
    shown = regard("inspect", runs["ngram"], LINE, "--work", "--step", "2")[1]
    assert "(a(hw) − D) / a(h·)" in shown
    assert "not available" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_page_holds_the_work_of_every_step(regard, runs, seen, tmp_path):
    page = tmp_path / "work.html"
    assert regard("inspect", runs["gpt"], LINE, "--work", "--layer", "0", "--head", "1", "--html", page)[0] == 0
    packed = re.search(r'class="trace"[^>]*>([^<]*)<', page.read_text(encoding="utf-8"))[1]
    steps = len(seen("gpt", LINE)["tokens"])
    assert base64.b64decode(packed).count(b'"title": "Self-attention, layer 1, head 2"') == steps


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--work", "--step", "99"], "no step 99"),
        (["--work", "--layer", "9"], "no layer '9'"),
        (["--work", "--head", "9"], "no head 9"),
        (["--step", "1"], "--step works only with --work, --why or --patch: add one of them."),
        (["--work", "--gradients"], "--gradients"),
    ],
)
def test_work_that_is_not_there_is_refused_in_one_sentence(regard, runs, words, sentence):
    code, out, errors = regard("inspect", runs["gpt"], LINE, *words)
    assert (code, out) == (2, "")
    assert sentence in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_lectures_example_needs_no_run(regard):
    code, shown, _ = regard("inspect", "lecture:any-b", "--work")
    assert code == 0
    assert "e / (e + 3) = 0.475" in shown
    assert regard("inspect", "lecture:any-b", "AXB", "--work")[0] == 2
    assert regard("inspect", "lecture:any-b", "--work", "--step", "1")[0] == 2
