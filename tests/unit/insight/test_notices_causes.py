"""Questions about causes from end to end, changes by name, pages of several traces, and the edges of what is shown."""

import json
import re
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.insight.arithmetic import calculation
from regard.insight.arithmetic.calculation import calculate_language
from regard.insight.arithmetic.ngram import ABSENT, count_again
from regard.insight.arithmetic.terminal import show_work
from regard.insight.interventions import lens as lens_module
from regard.insight.interventions import reading as reading_module
from regard.insight.interventions import terminal
from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.changing import intervene
from regard.insight.interventions.contrast import contrast
from regard.insight.interventions.head_scores import head_scores
from regard.insight.interventions.lens import lens
from regard.insight.interventions.patching import PatchGrid, _compared, patch
from regard.insight.interventions.questions import CauseQuestion
from regard.insight.interventions.reading import read_text
from regard.insight.interventions.replacing import replacements
from regard.insight.tracing import trace_classification, trace_language, trace_translation
from regard.insight.views import figures, page
from regard.laws.registry import VOCABULARY, builder, stirred
from regard.systems import ngram
from regard.systems.classifier import Classifier, Settings
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
LABELS = Tokenizer.of_tokens(["<eos>", "<unk>", "good", "bad"], "word")
TEXT, OTHER = "c a f e b", "c a g d b"
COLUMNS = 6  # with the boundary


@pytest.fixture(scope="module")
def gpt():
    torch.manual_seed(0)
    return stirred(builder("gpt"))


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    settings = Settings(encoder="dan", width=8, layers=1, dropout=0.0)
    model = Classifier(len(LABELS.tokens), settings, source_vocabulary=VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def read(gpt, text=TEXT):
    return read_text(gpt, WORDS, text)


# -- changes by name -------------------------------------------------------------------------------------------------


def test_a_change_is_zero_a_mean_or_the_value_of_the_other_text_at_its_columns(gpt):
    one, other = read(gpt), read(gpt, OTHER)
    own, theirs = one.parts(), other.parts()
    assert replacements(["zero self/0[1]", "zero layer/1@2"], one) == {"self/0[1]": 0.0, "layer/1@2": 0.0}
    for name, wanted in (
        ("mean layer/0@2", own["layer/0"][0].mean(0)),
        ("mean layer/0[3]", own["layer/0"][0, :, 3].mean(0)),
        ("mean self/0[1]", own["layer/0/heads"][0, 1].mean(0)),
        ("swap layer/0@2", theirs["layer/0"][0, 2]),
        ("swap layer/0[3]@2", theirs["layer/0"][0, 2, 3]),
        ("swap self/1[1]@4", theirs["layer/1/heads"][0, 1, 4]),
        ("swap self/1@4", theirs["layer/1/heads"][0, :, 4]),
    ):
        ((place, found),) = replacements([name], one, other).items()
        assert place == name.partition(" ")[2]
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    swapped = replacements(["zero self/0", "swap layer/0"], one, other)
    assert list(swapped) == ["self/0", *(f"layer/0@{column}" for column in range(COLUMNS))]
    torch.testing.assert_close(torch.stack(list(swapped.values())[1:]), theirs["layer/0"][0])
    assert list(replacements(["swap layer/0@1"], one, read(gpt, "a b"))) == ["layer/0@1"]  # a shorter text will do


def test_a_text_whose_word_vectors_are_swapped_is_read_as_the_other(gpt):
    one, other = read(gpt), read(gpt, OTHER)
    given = replacements(["swap embedding"], one, other)
    with torch.no_grad(), ExitStack() as stack:
        wanted = other.logits()
        assert not torch.allclose(one.logits(), wanted)
        for place, value in given.items():
            stack.enter_context(intervene(gpt, place, value))
        torch.testing.assert_close(gpt(one.tokens)[0], wanted)


@pytest.mark.parametrize(
    ("wanted", "other", "said"),
    [
        ("drop self/0", OTHER, "a change"),
        ("mean order/2", None, "can only be removed"),
        ("swap order/2", OTHER, "can only be removed"),
        ("swap layer/0", None, "needs a second text"),
        ("mean layer/9", None, r"There is no place 'layer/9'.*did you mean"),
        ("swap layer/0", "a b", r"The texts have 6 and 3 tokens: swap layer/0 at one word"),
        ("mean layer/0@6", None, "has 6 columns, so there is no column 6"),
        ("mean self/0[2]", None, "has 2 components, so there is no component 2"),
    ],
)
def test_a_change_that_cannot_be_made_is_one_sentence(gpt, wanted, other, said):
    with pytest.raises(RegardError, match=said):
        replacements([wanted], read(gpt), None if other is None else read(gpt, other))


def test_a_change_at_a_column_is_the_same_word_by_word_and_one_that_does_not_fit_is_named(gpt):
    tokens = read(gpt).tokens
    with torch.no_grad(), intervene(gpt, "layer/0@3", 0.5):
        whole, state, each = gpt(tokens)[0], None, []
        for column in range(COLUMNS):
            logits, state = gpt(tokens[:, column : column + 1], state)
            each.append(logits)
    torch.testing.assert_close(torch.cat(each, 1), whole)
    with torch.no_grad():
        assert not torch.allclose(gpt(tokens)[0][:, 3:], whole[:, 3:])
    for change, said in (
        (torch.zeros(3), r"layer/0 has the shape \[1, 6, 16\] here and cannot become a tensor of shape \[3\]"),
        (lambda value: "x" * 90, f"cannot become '{'x' * 39}: give a number"),
    ):
        with pytest.raises(RegardError, match=said), intervene(gpt, "layer/0", change):
            gpt(tokens)
    named = pytest.raises(RegardError, match=r"There is no place 'layer/0/attentio'.*did you mean")
    with named, intervene(gpt, "layer/0/attentio", 0.0):
        gpt(tokens)


# -- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        (CauseQuestion(), False),
        (CauseQuestion(lens=True), True),
        (CauseQuestion(head_scores=True), True),
        (CauseQuestion(ablate=""), True),
        (CauseQuestion(ablate="heads", removed="mean"), True),
        (CauseQuestion(why="a", rather="b", step=0), True),
        (CauseQuestion(patch="x", why="a", rather="b", patch_parts="heads", step=0), True),
    ],
)
def test_a_question_was_asked_or_not(question, asked):
    assert question.check() is asked


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (CauseQuestion(step=0), "--step works only"),
        (CauseQuestion(lens=True, step=2), "--step works only"),
        (CauseQuestion(lens=True, head_scores=True), "--lens and --head-scores are separate"),
        (CauseQuestion(why="a", rather="b", ablate="heads"), "--ablate and --why are separate"),
        (CauseQuestion(rather="b"), "give both"),
        (CauseQuestion(removed="mean"), "--with works only with --ablate"),
        (CauseQuestion(patch_parts="heads"), "--patch-parts works only with --patch"),
    ],
)
def test_a_question_of_incompatible_options_is_one_sentence(question, said):
    with pytest.raises(RegardError, match=said):
        question.check()


def test_every_question_is_answered_as_data_and_as_text(gpt):
    one, words = read(gpt), (WORDS.encode("a")[0], WORDS.encode("b")[0])
    lines = "c a f\n\n e b a\nd d d\n"
    wanted = {
        "lens": (CauseQuestion(lens=True), lens(one), terminal.show_lens),
        "patch": (CauseQuestion(patch=OTHER, patch_parts="heads", why="a", rather="b", step=4),
                  patch(one, read(gpt, OTHER), "heads", words, 4), terminal.show_patch),
        "why": (CauseQuestion(why="a", rather="b", step=3), contrast(one, *words, 3), terminal.show_contrast),
        "head_scores": (CauseQuestion(head_scores=True), head_scores(one), terminal.show_heads),
        "ablate": (CauseQuestion(ablate="layers", removed="mean"),
                   ablate([read(gpt, line) for line in ("c a f", " e b a", "d d d")], "layers", "mean"),
                   terminal.show_ablation),
    }  # fmt: skip
    for name, (question, found, show) in wanted.items():
        data, text = question.answer(gpt, WORDS, lines if name == "ablate" else TEXT, None, None)
        assert data == {"question": name, **found.as_json()}
        assert text == show(found)
        json.dumps(data, allow_nan=False)
    data, _ = CauseQuestion(patch=OTHER).answer(gpt, WORDS, TEXT, None, None)
    assert data == {"question": "patch", **patch(one, read(gpt, OTHER), "layers").as_json()}


def test_without_two_words_the_last_step_with_different_predictions_is_compared(gpt):
    before, after = torch.eye(4)[[0, 1, 2, 3]], torch.eye(4)[[0, 2, 1, 3]]
    assert _compared(before, after, None) == (2, (2, 1))
    assert _compared(before, after, 1) == (1, (1, 2))
    with pytest.raises(RegardError, match="the same word at step 0: name two words"):
        _compared(before, after, 0)
    with pytest.raises(RegardError, match="the same word at every step: name two words"):
        _compared(before, before, None)
    one, other = read(gpt), read(gpt, OTHER)
    step, (a, b) = _compared(one.log_probabilities()[0], other.log_probabilities()[0], None)
    found = patch(one, other)
    assert (found.step, found.answers) == (step, (WORDS.token(a), WORDS.token(b)))
    assert found.first > 0 > found.second  # each predicts its own
    returned = [[1 / 3, -0.7500049], [0.1, 0.2]]
    grid = PatchGrid(("self/0[0]", "layer/1"), ("the", "cat"), np.array(returned), 4, ("is", "are"), -1.5, 0.25)
    assert grid.as_json()["returned"] == [[0.33333, -0.75], [0.1, 0.2]]
    text = terminal.show_patch(grid)
    assert "Share of the difference restored: log P(is) − log P(are) at step 4" in text
    assert "Largest effect: self/0[0] at cat, -0.75. First text −1.500, second +0.250." in text


def test_a_batch_has_as_many_rows_as_its_logits_allow_and_at_most_64(gpt, monkeypatch):
    one = read(gpt)
    for logits, rows in ((3 * COLUMNS * 17, 3), (3 * COLUMNS * 17 - 1, 2), (0, 1), (1 << 40, 64)):
        monkeypatch.setattr(reading_module, "LOGITS", logits)
        assert one.batch == rows


def test_a_classifier_is_asked_about_its_label_or_the_one_that_is_given(classifier):
    for text in ("a b c", "d e", "n o m"):
        trace = trace_classification(classifier, WORDS, LABELS, text)
        label, shares = trace.label, np.array([choice.probability for choice in trace.top[0]])
        assert len(shares) == 2  # special tokens have none
        assert trace.entropy[0] == pytest.approx(-(shares * np.log(shares)).sum())
        found = read_text(classifier, LABELS, text, None, WORDS)
        assert [LABELS.token(one) for one in found.targets] == [label]
        assert found.source_words == (*text.split(), "<eos>")
        given = read_text(classifier, LABELS, text, "bad", WORDS)
        assert [LABELS.token(one) for one in given.targets] == ["bad"]


def test_a_layer_of_another_width_is_left_out_of_the_lens_with_a_note(gpt, monkeypatch):
    one, width = read(gpt), gpt.embedding.width
    monkeypatch.setattr(lens_module, "residuals", lambda model, parts: {
        "layer/0": torch.ones(1, COLUMNS, width + 3).double(), "layer/1": torch.ones(1, COLUMNS, width).double(),
    })  # fmt: skip
    found = lens(one, top=2)
    assert [layer.name for layer in found.layers] == ["layer/1", "prediction"]
    assert {len(choices) for layer in found.layers for choices in layer.top} == {2}
    note = f"layer/0 is {width + 3} wide and cannot be decoded: the output layer has a different width."
    assert found.notes == (note,)
    monkeypatch.setattr(lens_module, "residuals", lambda model, parts: {"layer/0": torch.ones(1, COLUMNS, width + 3)})
    with pytest.raises(RegardError, match=re.escape(note)):
        lens(one)


# -- arithmetic ------------------------------------------------------------------------------------------------------


def test_all_steps_are_those_of_the_chosen_layer_and_head_unless_they_are_too_many(gpt, monkeypatch):
    found = calculate_language(gpt, WORDS, TEXT)
    chosen = found.at(2, "self/0", 1)
    monkeypatch.setattr(calculation, "MAX_STEPS", COLUMNS)
    assert found.at_all_steps(chosen) == [found.at(step, "self/0", 1) for step in range(COLUMNS)]
    monkeypatch.setattr(calculation, "MAX_STEPS", COLUMNS - 1)
    assert found.at_all_steps(chosen) == [chosen]
    assert show_work(chosen, width=80) == str(chosen)
    said = show_work(chosen, width=200).splitlines()[0]
    assert "self-attention, layer 1, head 2 (--layer self/0 --head 1), step 2: reads a, predicts f" in said


@pytest.fixture(scope="module")
def counted():
    ids = [token for line in ("a b c a b d", "a b c", "b c a b") for token in (*WORDS.encode(line), WORDS.eos)]
    model = ngram.NGram(VOCABULARY, ngram.Settings(order=3)).double()
    model.count(np.array(ids))
    return model, np.array(ids)


def test_an_order_says_whether_its_words_were_seen_whether_it_is_used_and_whether_its_counts_are_known(counted):
    model, ids = counted
    for counts, absent in ((lambda: count_again(model, ids), ""), (lambda: None, ABSENT)):
        found = calculate_language(model, WORDS, "a b e a", counts=counts)
        wanted = {
            1: ["Its frequency after any word.", f"Seen.{absent}", f"Seen.{absent}"],  # b after a
            2: ["Its frequency after any word.", f"Never seen: backs off.{absent}", f"Never seen: backs off.{absent}"],
            3: ["Its frequency after any word.", f"Never seen: backs off.{absent}",
                "These words never occurred as a context, so the next lower order is used."],
        }  # fmt: skip
        for step, abouts in wanted.items():
            sections = found.at(step).sections
            assert [one.about for one in sections] == abouts
            used = {1: 3, 2: 1, 3: 1}[step]
            assert [one.title for one in sections] == [
                f"order {order}" + (", which is used" if order == used else "") for order in (1, 2, 3)
            ]
        assert [one.step for one in found.at_all_steps(found.at(1))] == list(range(5))  # there is no layer to choose


# -- figures and pages -----------------------------------------------------------------------------------------------


def test_a_part_of_a_trace_is_shown_by_its_name_and_another_name_is_answered_with_those_there_are(gpt, monkeypatch):
    trace, shown = trace_language(gpt, WORDS, TEXT, gradients=True), []
    monkeypatch.setattr("regard.report.notebook.show", lambda *given: shown.append(given))
    trace.show("self/1")
    trace.show("gradients")
    assert [[heat.title for heat in each] for each in shown] == [
        [figures.attention(trace, "self/1", head).title for head in (0, 1)],
        [figures.gradients(trace)["gradients"].title],
    ]
    torch.manual_seed(0)
    translated = trace_translation(stirred(builder("bahdanau")), WORDS, WORDS, "d e", "a b")
    assert figures.named(translated, "alignment") == [figures.alignment(translated)]
    for ask in (trace.show, trace.attention_matrix):
        with pytest.raises(RegardError, match=r"'self/7'.*did you mean self/"):
            ask("self/7")
    bare = replace(trace, attention={}, gradients=None)
    with pytest.raises(RegardError, match="neither attention nor gradients"):
        bare.show("self/0")
    with pytest.raises(RegardError, match="GPT has no attention"):
        bare.attention_matrix("self/0")


def test_frames_of_a_film_are_labelled_in_order_and_sections_by_their_run_and_answer(gpt, classifier):
    trace = trace_language(gpt, WORDS, TEXT)
    film = page.trace_page(trace, replace(trace, run="mine", label="good"), frames=("first", "<second>"))
    assert re.findall(r'data-frame="([^"]*)"', film) == ["first", "&lt;second&gt;"]
    headings = re.findall(r'<section class="card"[^>]*><h2>(.*?)</h2>', film)
    assert headings == ["GPT", "mine → “good”"]
    plain = page.trace_page(trace, replace(trace, run="mine", translation="x y", label="z"))
    assert re.findall(r'<section class="card"><h2>(.*?)</h2>', plain) == ["GPT", "mine → “x y”"]
    assert "<title>GPT, mine: “c a f e b”</title>" in plain
    assert "<section" not in page.trace_page(trace)  # a single trace has the page's heading


def test_hidden_states_that_do_not_fit_on_the_page_are_named(gpt, monkeypatch):
    trace = trace_language(gpt, WORDS, TEXT)
    sizes = [values.size for values in trace.hidden.values()]
    assert "Left out" not in page.trace_page(trace)
    monkeypatch.setattr(page, "MOST", sum(sizes[:-1]))  # all but the last
    told = re.search(r"Left out to keep the page small: (.*?)\.<", page.trace_page(trace))[1]
    assert told == "The vector that the prediction is made from"
    monkeypatch.setattr(page, "MOST", sum(sizes))
    assert "Left out" not in page.trace_page(trace)
