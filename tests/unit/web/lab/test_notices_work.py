"""What the worker processes answer: the numbers of the model itself, and limits, words and orders at their edges."""

import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import torch
from safetensors.numpy import save_file

import regard
from regard import load
from regard.base.errors import RegardError
from regard.base.fields import Fields
from regard.claims.all_claims import NAMES, get_claim
from regard.claims.claim import Evidence
from regard.claims.result import result_of
from regard.comparison.curves import Curve
from regard.evaluation.intervals import student_interval
from regard.runs.store.folder import moments
from regard.runs.tasks.task import task_of
from regard.systems.ngram import NGram, Settings
from regard.text.corpus import open_corpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.web.lab import (
    held_out,
    requests,
    traces,
    work_claims,
    work_exercises,
    work_ladder,
    work_runs,
    work_sentence,
    work_text,
    work_time,
    work_translation,
)
from regard.web.lab.requests import (
    BeginRequest,
    Differences,
    Edit,
    ExampleRequest,
    Following,
    HeadsInTime,
    OneClaim,
    OneExercise,
    OneRun,
    Tokens,
    TraceRequest,
    Write,
)
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.work_time import common_words, in_one_plane, neighbours

GPT, TRANSFORMER = "gallery/gpt", "gallery/transformer"
TEXT, ENGLISH = "The friends who know the horse often", "The children are playing."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run that has snapshots, beside the models that come with Regard."""
    place = tmp_path_factory.mktemp("lab")
    (place / "text.txt").write_text("".join(f"the ship {n} left the harbor\n" for n in range(60)))
    training = {"steps": 4, "evaluate_every": 2, "checkpoint_every": 2, "snapshots": 2, "threads": 1, "device": "cpu"}
    settings = {"training": training, "data": {"tokenizer": "char"}, "model": {"width": 8}}
    regard.train("lstm", data=place / "text.txt", size="tiny", run=place / "runs" / "lstm", settings=settings)
    return RunsFolder(place / "runs")


@pytest.fixture(scope="module")
def gpt():
    return load(GPT, device="cpu")


@pytest.fixture(scope="module")
def translator():
    return load(TRANSFORMER, device="cpu")


# -- translations ----------------------------------------------------------------------------------------------------


def evaluated(folder, number, translations, **more):
    found = {"sources": SOURCES, "references": REFERENCES, "translations": translations, **more}
    (folder.keep("jobs") / f"{number}.out").write_text(json.dumps(found))


SOURCES = ["a", "b", "c", "d"]
REFERENCES = ["the cat sleeps", "a dog barks", "two birds sing", "it rains"]
ONE = ["the cat sleeps", "a dog", "two birds sang", "it rains"]
OTHER = ["the cat sleeps", "a dog barks", "a bird", "it snows"]


def chrf(text, reference):
    return round(sacrebleu.sentence_chrf(text, [reference]).score, 1)


def test_two_evaluations_are_compared_line_by_line_where_they_differ_most(folder, monkeypatch):
    evaluated(folder, "a1", ONE)
    evaluated(folder, "b2", OTHER)
    found = work_translation.differences(folder, Differences(jobs=("a1", "b2")))
    assert (found["sentences"], found["same"]) == (4, 1)
    scores = [[chrf(text, reference) for text in both] for *both, reference in zip(ONE, OTHER, REFERENCES)]
    assert {row["line"]: row["chrf"] for row in found["rows"]} == dict(enumerate(scores, start=1))
    apart = [abs(row["chrf"][0] - row["chrf"][1]) for row in found["rows"]]
    assert apart == sorted(apart, reverse=True)
    for row in found["rows"]:
        n = row["line"] - 1
        assert (row["source"], row["reference"], row["translations"]) == (SOURCES[n], REFERENCES[n], [ONE[n], OTHER[n]])
    alone = work_translation.differences(folder, Differences(jobs=("a1",)))
    assert alone["same"] is None
    assert [row["line"] for row in alone["rows"]] == [2, 3, 1, 4]  # the worst first, equal ones as they stand
    assert work_translation.SHOWN == 60
    monkeypatch.setattr(work_translation, "SHOWN", 1)
    assert [row["line"] for row in work_translation.differences(folder, Differences(jobs=("a1",)))["rows"]] == [2]


def test_evaluations_of_other_sentences_or_without_them_are_refused(folder):
    evaluated(folder, "a1", ONE)
    evaluated(folder, "c3", ONE, sources=["x", "b", "c", "d"])
    with pytest.raises(RegardError, match="evaluated on different sentences"):
        work_translation.differences(folder, Differences(jobs=("a1", "c3")))
    for content in ("", "[1]", "{}", "3"):
        (folder.keep("jobs") / "d4.out").write_text(content)
        with pytest.raises(RegardError, match="did not save its sentences: evaluate again"):
            work_translation.differences(folder, Differences(jobs=("d4",)))


def test_another_token_begins_the_translation_after_those_before_it(folder, translator):
    found = translator.trace(ENGLISH)
    token = translator.tokenizer.encode("enfants")
    word = translator.tokenizer.token(token[0])
    for step in (0, 1, 99):
        asked = BeginRequest(run=TRANSFORMER, text=ENGLISH, step=step, token=word)
        before = found.targets[: min(step, found.steps - 1)]
        expected = translator.tokenizer.decode([translator.tokenizer.tokens.index(one) for one in (*before, word)])
        assert work_translation.begin(folder, asked) == {"prefix": expected}
    for wrong in ("no such token", translator.tokenizer.token(translator.tokenizer.eos)):
        with pytest.raises(RegardError, match="cannot be inserted here"):
            work_translation.begin(folder, BeginRequest(run=TRANSFORMER, text=ENGLISH, token=wrong))
    with pytest.raises(RegardError, match="is not a translator: choose one"):
        work_translation.trace(folder, TraceRequest(run=GPT, text=TEXT))


def words(count):
    return " ".join(["a"] * count)


@pytest.mark.parametrize(
    ("work", "run", "fewest", "most"), [(work_translation, TRANSFORMER, 5, 12), (work_sentence, GPT, 4, 12)]
)
def test_examples_are_sentences_of_middle_length_if_there_are_any(folder, monkeypatch, work, run, fewest, most):
    def shown(lines, seed):
        monkeypatch.setattr(work, "held_out", lambda path: [(line, line.upper()) for line in lines])
        found = work.example(folder, ExampleRequest(run=run, seed=seed))
        assert found.get("reference", found["text"].upper()) == found["text"].upper()
        return found["text"]

    lines = [words(count) for count in (fewest - 1, fewest, most, most + 1)]
    assert [shown(lines, seed) for seed in range(4)] == [lines[1], lines[2], lines[1], lines[2]]
    assert [shown(["a b", "c"], seed) for seed in range(3)] == ["a b", "c", "a b"]
    assert shown([], 3) == ""

    def gone(path):
        raise RegardError("It is gone.")

    monkeypatch.setattr(work, "held_out", gone)
    assert work.example(folder, ExampleRequest(run=run))["text"] == ""


# -- texts -----------------------------------------------------------------------------------------------------------


def test_a_text_has_the_probability_that_its_trace_says(folder, gpt):
    told = work_sentence.trace(folder, TraceRequest(run=GPT, text=TEXT))
    found = gpt.trace(TEXT)
    known = found.probability[np.isfinite(found.probability)]
    nats = -np.log(known).sum()
    assert told["nats"] == pytest.approx(nats)
    assert told["perplexity"] == pytest.approx(math.exp(nats / len(known)))
    words = gpt.tokenizer.kind == "word"
    assert told["bits_per_character"] == (None if words else pytest.approx(nats / math.log(2) / len(TEXT)))
    nothing = work_sentence.trace(folder, TraceRequest(run=GPT, text=""))
    assert (nothing["nats"], nothing["perplexity"], nothing["bits_per_character"]) == (0, None, None)
    translated = work_sentence.trace(folder, TraceRequest(run=TRANSFORMER, text=ENGLISH))
    assert not {"nats", "perplexity"} & set(translated)


def test_what_may_follow_is_the_models_distribution_and_what_sampling_makes_of_it(folder, gpt):
    state = gpt.tokenizer.encode(TEXT)
    with torch.no_grad():
        logits = gpt.model(torch.tensor([[gpt.tokenizer.begin, *state]]))[0][0, -1]
    logits[list(gpt.forbidden)] = -math.inf if hasattr(gpt, "forbidden") else logits[list(gpt.forbidden)]
    probability = logits.softmax(-1)
    found = work_sentence.following(folder, Following(run=GPT, text=TEXT))
    assert len(found["choices"]) == work_sentence.SHOWN == 16
    assert [one["p"] for one in found["choices"]] == pytest.approx(
        probability.sort(descending=True).values[:16].tolist(), rel=1e-3
    )
    assert found["other"] == pytest.approx(1 - sum(one["drawn"] for one in found["choices"]))
    few = work_sentence.following(folder, Following(run=GPT, text=TEXT, top_k=3, temperature=0.5))
    drawn = [one["drawn"] for one in few["choices"]]
    squares = [one["p"] ** 2 for one in found["choices"][:3]]
    assert [one for one in drawn if one] == pytest.approx([one / sum(squares) for one in squares], rel=1e-3)
    assert few["other"] == pytest.approx(0, abs=1e-6)
    narrow = work_sentence.following(folder, Following(run=GPT, text=TEXT, top_p=0.001))
    assert narrow["choices"][0]["drawn"] == pytest.approx(1)


def test_what_is_written_is_what_generate_writes(folder, gpt):
    for line, seed, tokens in ((False, 1, 3), (True, 2, 40)):
        asked = Write(run=GPT, text="The", tokens=tokens, seed=seed, line=line, temperature=0.9)
        written = gpt.generate("The", max_tokens=tokens, seed=seed, lines=int(line), temperature=0.9)
        assert work_sentence.write(folder, asked) == {"text": written.rstrip("\n")}


def test_another_token_stands_at_a_step_and_what_follows_goes_or_stays(folder, gpt):
    read = gpt.tokenizer.encode(TEXT)
    chosen = gpt.tokenizer.token(read[5])
    for step in (0, 2):
        for keep in (False, True):
            found = work_sentence.edit(folder, Edit(run=GPT, text=TEXT, step=step, token=chosen, keep=keep))
            rest = read[step + 1 :] if keep else []
            assert found == {"text": gpt.tokenizer.decode([*read[:step], read[5], *rest])}
    with pytest.raises(RegardError, match="is not a token of this model"):
        work_sentence.edit(folder, Edit(run=GPT, text=TEXT, token="no such token"))
    with pytest.raises(RegardError, match="is not a language model: choose one"):
        work_sentence.edit(folder, Edit(run=TRANSFORMER, text=TEXT))


# -- a run over its training -----------------------------------------------------------------------------------------


def test_snapshots_have_the_validations_of_their_steps(folder):
    found = work_time.about(folder, OneRun(run="lstm"))
    rows = [json.loads(line) for line in (folder.root / "lstm" / "metrics.jsonl").read_text().splitlines()]
    valid = {row["step"]: row["loss"] for row in rows if row.get("split") == "valid"}
    assert [one["step"] for one in found["moments"]] == list(moments(folder.root / "lstm"))
    told = {one["step"]: one["loss"] for one in found["moments"] if "loss" in one}
    assert told == pytest.approx({step: loss for step, loss in valid.items() if step in moments(folder.root / "lstm")})
    assert told
    assert found["translates"] is False
    for work in (work_time.vectors, work_time.heads, work_time.film):
        with pytest.raises(RegardError, match="has no snapshots of its training"):
            work(folder, HeadsInTime(run=GPT, text="a"))


def unpacked(content):
    """The header and the arrays, by the layout that arrays.js reads."""
    size = int.from_bytes(content[:4], "little")
    header = json.loads(content[4 : 4 + size])
    kinds = {"uint8": np.uint8, "float16": np.float16, "float32": np.float32, "int32": np.int32}
    arrays = {}
    for one in header["arrays"]:
        count = math.prod(one["shape"])
        made = np.frombuffer(content, kinds[one["type"]], count, 4 + size + one["offset"])
        arrays[one["name"]] = made.reshape(one["shape"])
    return header["about"], arrays


def test_word_vectors_of_every_snapshot_lie_in_the_plane_of_the_last(folder):
    about, arrays = unpacked(work_time.vectors(folder, OneRun(run="lstm")))
    tokenizer = load(folder.root / "lstm", device="cpu").tokenizer
    chosen = common_words(tokenizer)
    tables = [work_time._table(file)[chosen] for file in moments(folder.root / "lstm").values()]
    places, share = in_one_plane(tables)
    np.testing.assert_allclose(arrays["places"], places, rtol=1e-5, atol=1e-6)
    assert arrays["nearest"].tolist() == [neighbours(table, 6).tolist() for table in tables]
    assert about["steps"] == list(moments(folder.root / "lstm"))
    assert about["share"] == round(share, 3)
    assert about["words"] == [tokenizer.token(n) for n in chosen]


def test_the_plane_has_the_two_widest_directions_each_the_same_way_round():
    random = np.random.default_rng(0)
    last = random.normal(size=(40, 9)) * 0.1
    last[:, 3] = 5 * random.normal(size=40)
    last[:, 6] = 2 * random.normal(size=40)
    last = np.linalg.qr(last - last.mean(0))[0] * np.array([1, 1, 1, 9, 1, 1, 5, 1, 1])  # columns at right angles
    last -= last.mean(0)
    first = random.normal(size=(40, 9))
    places, share = in_one_plane([first, last])
    np.testing.assert_allclose(np.abs(places[1]), np.abs(last[:, [3, 6]]), atol=1e-6)
    np.testing.assert_allclose(places[1], last[:, [3, 6]], atol=1e-6)  # its largest component is positive
    np.testing.assert_allclose(places[0], (first - first.mean(0))[:, [3, 6]], atol=1e-6)
    assert share == pytest.approx((81 + 25) / (81 + 25 + 7))
    assert in_one_plane([np.zeros((3, 4))])[1] == 0


def test_neighbours_point_the_same_way_and_are_never_the_word_itself():
    table = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 3.0], [0.0, 0.0]])
    assert neighbours(table, 1)[:4, 0].tolist() == [1, 0, 3, 2]
    assert neighbours(table, 3).shape == (5, 3)


def test_common_words_are_words_and_of_few_also_letters(monkeypatch):
    pieces = ["<eos>", "a", " the", "cat", "12", "é", "_", "x1", "b"]
    assert common_words(SimpleNamespace(tokens=pieces)) == [2, 3, 1, 5, 8]
    many = [*pieces, *(f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(18))]
    assert common_words(SimpleNamespace(tokens=many)) == [2, 3, *range(9, 27)]
    assert (work_time.MOST_WORDS, work_time.NEIGHBOURS, work_time.MOST_FRAMES) == (160, 6, 24)
    monkeypatch.setattr(work_time, "MOST_WORDS", 2)
    assert common_words(SimpleNamespace(tokens=many)) == [2, 3]


def test_a_snapshot_is_checked_before_it_is_opened_and_needs_word_vectors(tmp_path, monkeypatch):
    save_file({"x": np.zeros(2, np.float32)}, tmp_path / "a.safetensors")
    with pytest.raises(RegardError, match="This system has no word vectors"):
        work_time._table(tmp_path / "a.safetensors")
    save_file({"embedding.table.weight": np.full((2, 3), 0.5, np.float16)}, tmp_path / "b.safetensors")
    found = work_time._table(tmp_path / "b.safetensors")
    assert (found.dtype, found.tolist()) == (np.float64, [[0.5] * 3] * 2)

    def strange(file):
        raise RegardError(f"{file.name} is a pipe.")

    monkeypatch.setattr(work_time, "check_tensor_file", strange)
    with pytest.raises(RegardError, match=r"b\.safetensors is a pipe"):
        work_time._table(tmp_path / "b.safetensors")


def test_words_are_shown_from_two_on(folder, monkeypatch):
    for words, said in (([5, 6], None), ([5], "has no words to show"), ([], "has no words to show")):
        monkeypatch.setattr(work_time, "common_words", lambda tokenizer, words=words: words)
        if said is None:
            assert unpacked(work_time.vectors(folder, OneRun(run="lstm")))[1]["places"].shape[1:] == (2, 2)
        else:
            with pytest.raises(RegardError, match=said):
                work_time.vectors(folder, OneRun(run="lstm"))


def test_a_film_shows_the_first_and_the_last_snapshot_and_says_each_step(folder, monkeypatch):
    shown = []
    monkeypatch.setattr(work_time, "trace_of", lambda folder, asked: asked)
    monkeypatch.setattr(
        work_time, "trace_page", lambda *traces, frames: shown.append([one.weights for one in traces]) or str(frames)
    )
    steps = [0, 2, 4, 6, 8]
    kept = {"moments": [{"step": step, **({"loss": 2.0} if step else {})} for step in steps]}
    monkeypatch.setattr(work_time, "about", lambda folder, asked: kept)
    page = work_time.film(folder, HeadsInTime(run="lstm", text="the"))["page"]
    assert shown.pop() == ["0", "2", "4", "6", "8"]
    assert page.startswith("['step 0 of 8', 'step 2 of 8 · validation loss 2 nats per token', ")
    monkeypatch.setattr(work_time, "MOST_FRAMES", 3)
    work_time.film(folder, HeadsInTime(run="lstm", text="the"))
    assert shown.pop() == ["0", "4", "8"]
    kept["moments"] = kept["moments"][:1]
    work_time.film(folder, HeadsInTime(run="lstm", text="the"))
    assert shown.pop() == ["0"]


# -- corpora and tokenizers ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def text(folder):
    (folder.root / "uploads").mkdir(exist_ok=True)
    lines = [f"the cat number {n} sat on mat {n % 9}\n" for n in range(300)]
    (folder.root / "uploads" / "my.txt").write_text("".join(lines))
    return open_corpus(str(folder.root / "uploads" / "my.txt"))


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_a_sentence_is_cut_and_counted_as_its_tokenizer_says(folder, text, kind):
    work_text._made.clear()
    asked = Tokens(corpus="my.txt", kind=kind, text="the cat sat", vocabulary=320 if kind == "bpe" else 0)
    found = work_text.tokens(folder, asked)
    assert (found["kind"], found["characters"], found["words"], found["lossless"]) == (kind, 11, 3, True)
    assert found["decoded"] == "the cat sat"
    tokenizer = next(iter(work_text._made.values()))[0]
    assert [piece["id"] for piece in found["pieces"]] == tokenizer.encode("the cat sat")
    assert not any(piece["special"] for piece in found["pieces"])
    assert found["vocabulary"] == tokenizer.vocabulary
    ids = [one for line in text.splits["valid"] for one in tokenizer.encode(line)]
    assert found["held_out"]["used"] == len({*ids, *([tokenizer.eos] if kind != "byte" else [])} & {*ids})
    assert work_text.tokens(folder, asked)["held_out"] is found["held_out"]  # the tokenizer is kept


def test_tokenizers_are_kept_for_their_own_question_and_only_the_last_dozen(folder, text, monkeypatch):
    work_text._made.clear()
    made = []
    monkeypatch.setattr(work_text, "_make", lambda found, kind, size: made.append((kind, size)) or MADE)
    MADE = SimpleNamespace(normalise=str, encode=lambda text: [], token=str, decode=lambda ids: "", specials=()), {}

    def ask(kind="word", vocabulary=0):
        return work_text.tokens(folder, Tokens(corpus="my.txt", kind=kind, text="a", vocabulary=vocabulary))

    for size in range(12):
        ask(vocabulary=size)
    ask(vocabulary=0)
    assert len(made) == 12
    ask("char")
    ask(vocabulary=0)
    assert len(made) == 13
    ask(vocabulary=1)  # the one that was looked at longest ago
    assert len(made) == 14
    os.utime(folder.root / "uploads" / "my.txt", (5, 5))  # another text of this name
    ask(vocabulary=1)
    assert len(made) == 15
    work_text._made.clear()


def test_small_byte_pair_vocabularies_are_refused(folder, text):
    for size in (1, 299):
        with pytest.raises(RegardError, match="choose a size of at least 300"):
            work_text.tokens(folder, Tokens(corpus="my.txt", kind="bpe", text="a", vocabulary=size))
    assert work_text.tokens(folder, Tokens(corpus="my.txt", kind="bpe", text="a", vocabulary=300))["vocabulary"] >= 257
    assert list(work_text._beginning(["aaa", "bb", "c"], 4)) == ["aaa", "bb"]
    assert list(work_text._beginning(["aaa", "bb", "c"], 5)) == ["aaa", "bb", "c"]
    assert (work_text.MOST_TRAINING, work_text.MOST_HELD_OUT) == (10_000_000, 1_000_000)


def test_a_corpus_is_told_side_by_side(folder, text):
    found = work_text.statistics(folder, requests.AboutCorpus(corpus="my.txt"))
    assert (found["name"], found["pairs"], len(found["sides"])) == (text.name, False, 1)
    assert found["notes"] == list(text.notes)


# -- claims and exercises --------------------------------------------------------------------------------------------


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A folder with a result of hull, in full and quick, and nothing in the cache of this machine."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    folder = RunsFolder(tmp_path / "runs")
    claim = get_claim("hull")
    for name, quick in (("full", False), ("quick", True)):
        trial = claim.trial(quick=quick)
        evidence = Evidence({expect.quantity: [0.5, 0.6] for expect in claim.everything})
        result = result_of(claim, trial, evidence, seconds=1.0, device="cpu", code="abc")
        (folder.root / name).mkdir(parents=True)
        file = folder.root / name / "claims.json"
        file.write_text(json.dumps([result.as_json()]))
        os.utime(file, (1000 - quick, 1000 - quick))
    (folder.root / "full" / "report.html").write_text("x")
    return folder, claim


def test_every_claim_is_told_with_its_newest_verdict(measured):
    folder, claim = measured
    told = {one["name"]: one for one in work_claims.every(folder, Fields())}
    assert tuple(told) == NAMES
    full = work_claims.one(folder, OneClaim(name="hull"))
    assert [told["hull"][key] for key in ("verdict", "label", "quick")] == [
        full["result"][key] for key in ("verdict", "label", "quick")
    ]
    assert {(one["verdict"], one["label"], one["quick"]) for name, one in told.items() if name != "hull"} == {
        ("", "", "")
    }
    assert told["hull"]["statement"] == claim.statement
    assert told["hull"]["kinds"] == list(claim.kinds)


def test_a_claim_is_told_with_the_result_that_is_asked_for_and_its_report(measured):
    folder, claim = measured
    found = work_claims.one(folder, OneClaim(name="hull"))
    assert (found["sources"], found["source"], found["report"]) == (["full", "quick"], "full", True)
    assert found["result"]["quick"] == ""
    other = work_claims.one(folder, OneClaim(name="hull", from_="quick"))
    assert (other["source"], other["report"], other["result"]["quick"]) == ("quick", False, claim.quick_words)
    assert work_claims.one(folder, OneClaim(name="hull", from_="none"))["source"] == "full"
    words = ("breaks", "conditions", "knobs", "limits")
    assert [found[key] for key in words] == [
        claim.breaks, claim.conditions, dict(claim.knobs), dict(claim.limits),
    ]  # fmt: skip
    assert (found["control"], found["quick"]) == (claim.control_words, claim.quick_words)
    none = work_claims.one(folder, OneClaim(name="symmetry"))
    assert (none["sources"], none["source"], none["report"], none["result"]) == ([], "", False, None)


def test_our_own_code_is_shown_once_an_answer_was_right(folder, monkeypatch):
    solved = {"solved": False}
    monkeypatch.setattr(work_exercises, "progress_of", lambda exercise: solved)
    with pytest.raises(RegardError, match="shown once your answer is right"):
        work_exercises.own(folder, OneExercise(name="causal-mask"))
    solved["solved"] = True
    assert work_exercises.own(folder, OneExercise(name="causal-mask"))
    asked = []
    monkeypatch.setattr(work_exercises, "check_answer", lambda *words: asked.append(words) or {})
    for _ in range(2):
        work_exercises.check(folder, requests.Answer(name="causal-mask", code="x"))
    assert [(exercise.name, code) for exercise, code, _ in asked] == [("causal-mask", "x")] * 2
    assert all(0 <= seed < 10**6 for *_, seed in asked)
    monkeypatch.setattr(work_exercises.secrets, "randbelow", lambda count: count - 1)
    work_exercises.check(folder, requests.Answer(name="causal-mask", code="x"))
    assert asked[-1][2] == 999_999  # nobody can know the inputs


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_that_starts_from_another_keeps_its_model_and_tokenizer(folder):
    fresh = work_runs.form(folder, requests.RunForm(system="gpt", size="tiny"))
    assert {part: bool(fields) for part, fields in fresh["sections"].items()} == {
        "data": True, "model": True, "training": True,
    }  # fmt: skip
    tuned = work_runs.form(folder, requests.RunForm(from_="lstm"))
    assert tuned["sections"]["model"] == []
    names = {one["key"] for one in fresh["sections"]["data"]} - {one["key"] for one in tuned["sections"]["data"]}
    assert names == {"data.tokenizer", "data.vocabulary", "data.normalise"} | (names & {"data.joint"})
    (width,) = (one for one in fresh["sections"]["model"] if one["key"] == "model.width")
    assert (width["name"], width["type"], width["value"] == width["now"]) == ("width", "int", True)
    changed = work_runs.form(folder, requests.RunForm(system="gpt", size="tiny", settings={"model.width": "16"}))
    (now,) = (one for one in changed["sections"]["model"] if one["key"] == "model.width")
    assert (now["value"], now["now"], changed["problem"]) == (width["value"], 16, None)
    wrong = work_runs.form(folder, requests.RunForm(system="gpt", settings={"training.steps": "many"}))
    assert wrong["problem"]["key"] == "training.steps"
    assert wrong["problem"]["sentence"].startswith("training.steps must be a whole number")


def test_characters_of_a_token_are_those_of_the_validation_text(folder):
    run = load(folder.root / "lstm", device="cpu")
    lines = list(run.corpus().splits["valid"])
    tokens = sum(len(run.tokenizer.encode(line)) + 1 for line in lines)
    found = work_runs.characters(folder, OneRun(run="lstm"))
    assert found["why"] in (None, "")
    assert found["per_token"] == pytest.approx(sum(len(line) + 1 for line in lines) / tokens)
    assert work_runs.characters(folder, OneRun(run=TRANSFORMER)) == {
        "per_token": None,
        "why": "it is not a language model",
    }


def test_a_sample_is_a_text_or_the_answers_to_the_first_held_out_sentences(folder, gpt, translator, monkeypatch):
    found = work_runs.sample(folder, OneRun(run=GPT))
    assert list(found) == ["text"]
    assert found["text"] == task_of(gpt).texts(gpt, 1)[0]
    pairs = [(f"The cat {verb}.", verb.upper()) for verb in ("sleeps", "eats", "runs", "sings")]
    monkeypatch.setattr(work_runs, "held_out", lambda path: pairs)
    found = work_runs.sample(folder, OneRun(run=TRANSFORMER))["pairs"]
    assert [(one["source"], one["reference"]) for one in found] == pairs[:3]
    assert [one["written"] for one in found] == translator.translate([source for source, _ in pairs[:3]])


def test_the_page_of_a_model_is_that_of_its_export(folder, monkeypatch):
    monkeypatch.setattr("regard.exchange.page_file.page", lambda run: f"page of {run.folder.name}")
    assert work_runs.model_page(folder, OneRun(run=GPT)) == {"page": "page of gpt"}


# -- arithmetic and pages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "step", "layer", "head"),
    [({"step": 2}, 2, None, None), ({"step": 99}, None, None, None), ({"layer": "self/0", "head": 1}, 0, "self/0", 1),
     ({"layer": "self/0", "head": 4}, 0, "self/0", None), ({"layer": "self/0", "head": 3}, 0, "self/0", 3)],
)  # fmt: skip
def test_arithmetic_is_that_of_a_calculation_at_steps_and_heads_that_are_there(folder, gpt, asked, step, layer, head):
    found = traces.work(folder, requests.WorkRequest(run=GPT, text=TEXT, **asked))
    expected = gpt.calculation(TEXT).at(step, layer, head).as_json()
    assert json.dumps(found) == json.dumps(expected)


def test_a_translation_is_calculated_from_the_text_without_its_outer_spaces(folder, translator):
    asked = requests.WorkRequest(run=TRANSFORMER, text=f" {ENGLISH} ", step=1, changes=("zero self/0",))
    found = traces.work(folder, asked)
    assert json.dumps(found) == json.dumps(translator.calculation(ENGLISH).at(1).as_json())


def test_a_page_holds_the_readings_and_answers_that_were_asked_for(folder, monkeypatch):
    made = []
    monkeypatch.setattr(traces, "trace_of", lambda folder, asked: f"trace of {asked.text}")
    monkeypatch.setattr(traces, "cause", lambda folder, asked: f"cause of {asked.text}")
    monkeypatch.setattr(traces, "trace_page", lambda *found, causes: made.append((found, causes)) or "page")
    asked = requests.PageRequest(
        traces=(TraceRequest(text="a"), TraceRequest(text="b")), causes=(requests.CauseRequest(text="c"),)
    )
    assert traces.page(folder, asked) == {"page": "page"}
    assert made == [(("trace of a", "trace of b"), ["cause of c"])]


CAUSES = [  # what is asked for, and what of the question is set
    ({"ask": "lens", "parts": "heads", "step": 3}, {"lens": True}),
    ({"ask": "ablate"}, {"ablate": "", "removed": "zero"}),
    ({"ask": "ablate", "parts": "heads", "with_": "mean"}, {"ablate": "heads", "removed": "mean"}),
    ({"ask": "head_scores"}, {"head_scores": True}),
    ({"ask": "patch", "other": "x", "step": 0}, {"step": 0, "patch": "x", "patch_parts": "layers"}),
    ({"ask": "patch", "other": "x", "parts": "heads", "why": "a", "not_": "b"},
     {"patch": "x", "patch_parts": "heads", "why": "a", "rather": "b"}),
    ({"ask": "why", "why": "a", "not_": "b", "step": 2}, {"why": "a", "rather": "b", "step": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "expected"), CAUSES)
def test_a_question_about_causes_sets_what_belongs_to_it_and_nothing_else(folder, monkeypatch, asked, expected):
    made = []

    class Question:
        def __init__(self, **fields):
            made.append({name: value for name, value in fields.items() if value is not None and value is not False})

        def check(self):
            made.append("checked")

        def answer(self, model, tokenizer, text, target, source_tokenizer):
            return [{"text": text, "target": target}]

    monkeypatch.setattr(traces, "CauseQuestion", Question)
    found = traces.cause(folder, requests.CauseRequest(run=GPT, text="The cat", **asked))
    assert made == [expected, "checked"]
    assert found == {"text": "The cat", "target": None}


def test_causes_are_looked_for_up_to_their_last_token(folder, gpt, monkeypatch):
    monkeypatch.setattr(traces.CauseQuestion, "answer", lambda *words: [{}])
    count = len(gpt.tokenizer.encode(TEXT))
    for most, fits in ((count, True), (count - 1, False)):
        monkeypatch.setattr(traces, "MAX_CAUSES", most)
        if fits:
            assert traces.cause(folder, requests.CauseRequest(run=GPT, text=TEXT)) == {}
        else:
            with pytest.raises(RegardError, match=f"has {count} tokens, but at most {most} can be explained"):
                traces.cause(folder, requests.CauseRequest(run=GPT, text=TEXT))
    monkeypatch.setattr(traces, "MAX_CAUSES", 1)
    with pytest.raises(RegardError, match="can be explained"):  # the second text counts, too
        traces.cause(folder, requests.CauseRequest(run=GPT, text="The", ask="patch", other=TEXT))


def test_a_translation_is_traced_up_to_its_last_token(folder, translator, monkeypatch):
    words = "Les enfants jouent ."
    count = len(translator.tokenizer.encode(words))
    assert count > len(translator.source_tokenizer.encode("a"))
    for most, fits in ((count, True), (count - 1, False)):
        monkeypatch.setattr(traces, "MAX_TOKENS", most)
        for given in ({"target": words}, {"prefix": words}):
            if fits:
                assert traces.trace_of(folder, TraceRequest(run=TRANSFORMER, text="a", **given))
            else:
                with pytest.raises(RegardError, match=f"A translation of {count} tokens is too long"):
                    traces.trace_of(folder, TraceRequest(run=TRANSFORMER, text="b", **given))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"text": "  "}, "There is no text yet: type a sentence"), ({"text": "a\nb"}, "reads one line at a time"),
     ({"text": ENGLISH, "target": "a " * 500}, "A translation of .* tokens is too long: the page shows at most 400"),
     ({"text": ENGLISH, "prefix": "a " * 500}, "A translation of .* tokens is too long")],
)  # fmt: skip
def test_what_a_translator_cannot_read_is_said_in_one_sentence(folder, given, said):
    with pytest.raises(RegardError, match=said):
        traces.trace_of(folder, TraceRequest(run=TRANSFORMER, **given))


# -- comparisons -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "rows", "key"),
    [
        ({"budget": "1000"}, ["2-gram", "5-gram", "lstm"], None), ({}, ["2-gram", "5-gram", "lstm"], None),
        ({"budget": "often"}, [], "budget"), ({"match": "x"}, [], "match"), ({"size": "huge"}, [], "size"),
        ({"data": ""}, [], "data"), ({"systems": ("lstm", "transformer")}, [], "systems"),
        ({"systems": ("lstm", "lstm")}, [], "systems"),
    ],
)  # fmt: skip
def test_a_comparison_is_checked_before_it_begins_and_says_which_option_is_wrong(folder, form, rows, key):
    asked = requests.ComparisonForm(**{"systems": ("lstm", "ngram"), "data": "copy", **form})
    found = work_ladder.check(folder, asked)
    assert found["rows"] == rows
    assert (found["problem"] or {"key": None})["key"] == key
    if key:
        assert "\n" not in found["problem"]["sentence"]
    with pytest.raises(RegardError, match="This system cannot be compared here"):
        work_ladder.check(folder, requests.ComparisonForm(systems=("none",), data="copy"))


def test_a_comparison_is_shown_with_the_results_that_are_there(folder, monkeypatch):
    place = folder.root / "both"
    place.mkdir(exist_ok=True)
    (place / "comparison.json").write_text("{}")
    one, other = SimpleNamespace(label="lstm"), SimpleNamespace(label="gpt")
    plan = SimpleNamespace(
        runs=[(one, 1), (one, 2), (other, 1)], folder=place, run_folder=lambda entrant, seed: (entrant.label, seed)
    )
    monkeypatch.setattr(work_ladder, "Plan", SimpleNamespace(read=lambda path: plan if path == place else None))
    monkeypatch.setattr(work_ladder, "read_result", lambda where: {"bleu": 5} if where == ("lstm", 2) else None)
    monkeypatch.setattr(work_ladder, "Comparison", lambda plan, results: results)
    monkeypatch.setattr(work_ladder, "shown", lambda results: {"results": results})
    unfinished = {"failed": work_ladder.UNFINISHED}
    found = work_ladder.open_comparison(folder, requests.OneName(name="both"))
    assert found == {
        "name": "both", "report": False,
        "results": {("lstm", 1): unfinished, ("lstm", 2): {"bleu": 5}, ("gpt", 1): unfinished},
    }  # fmt: skip
    (place / "report.html").write_text("x")
    assert work_ladder.open_comparison(folder, requests.OneName(name="both"))["report"] is True


def test_a_row_of_a_comparison_leaves_out_what_is_sent_by_itself_and_says_what_failed():
    row = {"label": "a", "bleu": 5.5, "bleu_low": 4.0, "bleu_high": 7.0, "bleus": [5, 6], "sample": "x", "tuning": 1,
           "by_length": {}, "bleu_signature": "nrefs:1", "failed": "It diverged."}  # fmt: skip
    found = work_ladder._row(row, {"label": "a", "bleu": "5.50", "sample": "x", "failed": "yes"}, "bleu")
    values = {"label": "a", "bleu": 5.5, "bleu_low": 4.0, "bleu_high": 7.0, "bleu_signature": "nrefs:1"}
    assert found == {
        "label": "a", "values": values,
        "shown": {"label": "a", "bleu": "5.50"}, "low": 4.0, "high": 7.0, "each": [5, 6], "signature": "nrefs:1",
        "failed": "It diverged.",
    }  # fmt: skip
    running = work_ladder._row({"label": "a", "failed": work_ladder.UNFINISHED, "perplexities": [3]}, {}, "perplexity")
    assert (running["failed"], running["each"], running["low"], running["signature"]) == ("", [3], None, "")
    assert work_ladder._row({"label": "a"}, {}, "bleu")["each"] == []


def test_curves_are_means_over_seeds_with_an_interval_from_three_on():
    points = [((10.0, 1.0, 2.0 + seed), (20.0, 2.0 + seed, 1.0)) for seed in range(3)]
    curves = [Curve("a", seed, one) for seed, one in enumerate(points)]
    curves += [Curve("b", seed, points[0]) for seed in range(2)]
    counted = Curve("n", 1, ((5.0, 0.5, 3.0),), counted=True)
    a, b, n = work_ladder._curves(SimpleNamespace(curves=[counted, *curves]))
    low, high = student_interval([2.0, 3.0, 4.0])
    assert (a["label"], a["counted"], a["tokens"], a["seconds"]) == ("a", False, [10.0, 20.0], [1.0, 3.0])
    assert a["perplexity"] == pytest.approx([math.exp(3.0), math.e])
    assert (a["low"], a["high"]) == (pytest.approx([math.exp(low), math.e]), pytest.approx([math.exp(high), math.e]))
    assert "low" not in b
    assert n == {
        "label": "n",
        "counted": True,
        "tokens": [5.0],
        "seconds": [0.5],
        "perplexity": [pytest.approx(math.exp(3))],
    }


def test_the_best_of_k_trials_is_shown_of_each_system_that_had_one():
    trials = {"a": [{"loss": 2.0}, {"loss": 1.0}], "b": [{"loss": None}, {"loss": None}], "c": [{"loss": 3.0}] * 2}
    found = {one["label"]: one for one in work_ladder._tuning(SimpleNamespace(trials=trials))}
    assert list(found) == ["a", "c"]
    assert found["a"]["k"] == [1, 2]
    assert found["a"]["perplexity"] == pytest.approx([math.exp(1.5), math.e])
    assert found["c"]["low"] == found["c"]["high"] == pytest.approx([math.exp(3.0)] * 2)
    assert found["a"]["low"][0] < found["a"]["perplexity"][0] < found["a"]["high"][0]
    assert work_ladder._tuning(SimpleNamespace(trials={})) == []


def test_samples_continue_one_prompt_or_translate_the_same_sentences(monkeypatch):
    order = [{"label": "a", "sample": "x y"}, {"label": "b", "sample": "x z"}]
    plan = SimpleNamespace(facts={"prompt": "x", "examples": [1]})
    task = SimpleNamespace(name="language model")
    made = SimpleNamespace(order=order, plan=plan, task=task, results={})
    assert work_ladder._samples(made) == [{"given": {"begins": "x"}, "written": {"a": "x y", "b": "x z"}}]
    made.order = []
    assert work_ladder._samples(made) == []
    monkeypatch.setattr(work_ladder, "read_test", lambda plan: (["s0", "s1"], ["r0", "r1"]))
    made.order, made.task = order, SimpleNamespace(name="translation")
    made.results = {
        ("a", 1): {"failed": "no"}, ("b", 1): {"evaluation": {"translations": ["b0", "b1"]}},
        ("a", 2): {"evaluation": {"translations": ["a0", "a1"]}},
        ("b", 2): {"evaluation": {"translations": ["c0", "c1"]}},
    }  # fmt: skip
    assert work_ladder._samples(made) == [
        {"given": {"source": "s1", "reference": "r1"}, "written": {"a": "a1", "b": "b1"}}
    ]


# -- held-out sentences ----------------------------------------------------------------------------------------------


def test_held_out_pairs_are_the_first_of_validation_without_empty_sources(tmp_path, monkeypatch):
    assert (held_out.LOOKED_AT, held_out.MOST_COUNTED, held_out.MOST_VALIDATED) == (200, 1_000_000, 100_000)
    sources = [f"s{n}" if n % 10 else " " for n in range(250)]
    valid = SimpleNamespace(sources=sources, targets=[f"t{n}" for n in range(250)])
    other = SimpleNamespace(sources=["x"], targets=["y"])
    splits = {"train": other, "valid": valid}
    monkeypatch.setattr(held_out, "open_recipe", lambda path: None)
    monkeypatch.setattr(held_out, "has_source", lambda recipe: True)
    monkeypatch.setattr(held_out, "pairs_of", lambda path, recipe: SimpleNamespace(splits=splits))
    try:
        assert held_out.held_out(tmp_path) == [(f"s{n}", f"t{n}") for n in range(200) if n % 10]
        del splits["valid"]
        assert len(held_out.held_out(tmp_path)) == 180  # as it was read
        (tmp_path / "run.json").write_text("{}")  # another run of this name
        assert held_out.held_out(tmp_path) == [("x", "y")]
    finally:
        held_out._held_out.cache_clear()


def test_the_bigram_of_a_translator_is_counted_on_its_targets(tmp_path, monkeypatch):
    tokenizer = SimpleNamespace(encode=lambda line: [ord(sign) - 96 for sign in line], eos=0, vocabulary=5)
    monkeypatch.setattr(held_out, "MOST_COUNTED", 6)
    assert held_out._tokens(tokenizer, ["ab", "c", "d", "a"]).tolist() == [1, 2, 0, 3, 0, 4, 0]
    monkeypatch.setattr(held_out, "MOST_COUNTED", 5)
    assert held_out._tokens(tokenizer, ["ab", "c", "d", "a"]).tolist() == [1, 2, 0, 3, 0]
    assert held_out._tokens(tokenizer, []).tolist() == []
    lines = ["ab", "abc", "ab", "ba"]
    splits = {"train": SimpleNamespace(targets=lines), "valid": SimpleNamespace(targets=["ab"])}
    monkeypatch.setattr(held_out, "MOST_COUNTED", 100)
    monkeypatch.setattr(held_out, "open_recipe", lambda path: None)
    monkeypatch.setattr(held_out, "has_source", lambda recipe: True)
    monkeypatch.setattr(held_out, "open_tokenizers", lambda path, recipe: SimpleNamespace(target=tokenizer))
    monkeypatch.setattr(held_out, "pairs_of", lambda path, recipe: SimpleNamespace(splits=splits))
    model = NGram(5, Settings(order=2))
    model.count(held_out._tokens(tokenizer, lines))
    loss = float(model.loss(torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2, 0]]))[0].mean())
    try:
        assert held_out._bigram(tmp_path, 1) == pytest.approx(math.exp(loss), rel=1e-5)
        splits["valid"].targets = []
        assert held_out._bigram(tmp_path, 1) is not None  # as it was counted
        assert held_out._bigram(tmp_path, 2) is None
        tokenizer.eos = 2
        splits["valid"].targets = ["ab"]
        assert held_out._bigram(tmp_path, 3) is None
    finally:
        held_out._bigram.cache_clear()


def test_only_a_trained_model_is_compared_with_a_bigram(tmp_path, monkeypatch):
    notes = {"validation_loss": 2.0, "step": 5}
    monkeypatch.setattr(held_out, "read_note", lambda path: notes)
    monkeypatch.setattr(held_out, "_bigram", lambda path, changed: 9.5)
    nothing = {"perplexity": None, "step": None, "bigram": None}
    assert held_out.progress_of(tmp_path) == nothing  # it has no weights yet
    (tmp_path / "model.safetensors").write_text("")
    assert held_out.progress_of(tmp_path) == {"perplexity": pytest.approx(math.exp(2.0)), "step": 5, "bigram": 9.5}
    for other in ({"step": 0}, {"step": 1.5}, {"validation_loss": 2}, {"accuracy": 0.5}, {"step": None}):
        notes = {"validation_loss": 2.0, "step": 5} | other
        assert held_out.progress_of(tmp_path) == nothing, other

    def gone(path, changed):
        raise RegardError("gone")

    notes = {"validation_loss": 2.0, "step": 5}
    monkeypatch.setattr(held_out, "_bigram", gone)
    assert held_out.progress_of(tmp_path)["bigram"] is None


def test_a_tokenizer_that_no_text_was_held_out_for_has_no_figures(text):
    tokenizer = Tokenizer.train(["ab cd"] * 3, "char")
    assert work_text._tried(tokenizer, []) is None
    assert work_text._tried(tokenizer, ["...", ""]) is None
    found = work_text._tried(tokenizer, ["ab cd", "ab xd"])
    assert found == {"tokens_per_word": 10 / 4, "unknown": 1 / 10, "used": 6}


def test_what_this_machine_measured_comes_before_folders(measured, monkeypatch):
    folder, _ = measured
    record = SimpleNamespace(as_json=lambda: {"verdict": "holds", "label": "here", "quick": ""})
    asked = []
    monkeypatch.setattr(work_claims, "record_of", lambda claim, quick, device, knobs: (quick, device, knobs))
    monkeypatch.setattr(work_claims, "read_record", lambda where: asked.append(where) or (record if where[0] else None))
    found = work_claims.one(folder, OneClaim(name="hull"))
    assert (found["sources"], found["source"], found["report"]) == (
        [work_claims.HERE, "full", "quick"],
        work_claims.HERE,
        False,
    )
    assert found["result"]["label"] == "here"
    assert asked == [(False, "cpu", {}), (True, "cpu", {})]
