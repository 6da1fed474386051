"""What the terminal prints of made-up findings, number by number; and numbers at the edge of how they are written."""

import numpy as np
import pytest
import torch

from regard.insight.arithmetic.equation import FULL, _fraction, shown
from regard.insight.arithmetic.prediction import softmax
from regard.insight.interventions.ablation import Ablation, PartEffect
from regard.insight.interventions.changing import Place
from regard.insight.interventions.contrast import Contrast
from regard.insight.interventions.head_scores import AllHeads, HeadScores
from regard.insight.interventions.lens import Lens, LensLayer
from regard.insight.interventions.replacing import _values
from regard.insight.interventions.terminal import show_ablation, show_contrast, show_heads, show_lens


def table(text):
    """The cells of its lines, each line as words that stand two spaces apart."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def test_each_head_has_a_line_with_its_shares_and_chance_comes_last():
    heads = (HeadScores("self/0[0]", 0.5, 0.25, 2, 0.125, 0.75, 0.375), HeadScores("self/0[1]", 0, 1, 3, 0.5, 0, None))
    chance = HeadScores("chance", 0.1, 0.2, 1, 0.3, 0.4, None)
    lines = table(show_heads(AllHeads(heads, chance)))
    assert lines[:4] == [
        ["head", "previous", "positional", "distance", "duplicate", "induction", "syntactic"],
        ["self/0[0]", "0.50", "0.25", "2", "0.12", "0.75", "0.38"],
        ["self/0[1]", "0.00", "1.00", "3", "0.50", "0.00", "–"],
        ["chance", "0.10", "0.20", "1", "0.30", "0.40", "–"],
    ]
    unknown = "this model's vocabulary lacks the phrasebook's English words"
    assert unknown in show_heads(AllHeads(heads, chance))
    assert unknown not in show_heads(AllHeads(heads, HeadScores("chance", 0.1, 0.2, 1, 0.3, 0.4, 0.5)))


def test_a_lens_shows_of_every_layer_the_best_word_its_probability_rank_and_distance():
    layers = (
        LensLayer("embedding", ((("cat", 0.5), ("dog", 0.2)), (("a", 0.25),)), (0.2, None), (2, None), (1.5, 0.75)),
        LensLayer("layer/0", ((("dog", 0.9),), (("b", 0.125),)), (0.9, None), (1, None), (0.0, 0.25)),
    )
    lines = table(show_lens(Lens(("the", "cat"), layers, ("A note.",))))
    assert lines[:3] == [
        ["read", "embedding", "layer/0"],
        ["the", "cat 0.50 #2 (1.50)", "dog 0.90 #1 (0.00)"],
        ["cat", "a 0.25 (0.75)", "b 0.12 (0.25)"],
    ]
    assert ["A note."] in lines


@pytest.mark.parametrize(("texts", "said"), [(1, "over 1 text;"), (4, "over 4 texts;")])
def test_an_ablation_shows_effects_controls_and_their_intervals(texts, said):
    effects = (
        PartEffect("self/0[0]", -0.5, (-0.75, -0.25), 0.125, (-0.001, 0.002), ()),
        PartEffect("layer/1", 0.25, None, None, None, ()),
    )
    text = show_ablation(Ablation("heads", "zero", texts, ("a",), effects))
    assert table(text)[:3] == [
        ["removed", "Δ log P", "95 %", "random", "95 %"],
        ["self/0[0]", "−0.500", "[−0.750, −0.250]", "+0.125", "[−0.001, +0.002]"],
        ["layer/1", "+0.250", "–", "–", "–"],
    ]
    assert said in text
    assert "removed values become zero;" in text


def test_a_contrast_shows_what_each_method_gives_each_word_and_orders_the_methods():
    methods = {"gradient × input": np.array([0.5, -0.25]), "ablation": np.array([1.0, 0.0])}
    curves = {
        "random": np.array([2.0, 1.5, 1.0]), "ablation": np.array([2.0, 0.5, 0.5]),
        "gradient × input": np.array([2.0, 1.0, 0.75]),
    }  # fmt: skip
    found = Contrast(("the", "cat"), ("is", "are"), 3, 2.0, methods, 0.0123, curves)
    lines = table(show_contrast(found))
    assert lines[0] == ["log P(is) − log P(are) = +2.000 at step 3"]
    assert lines[2:5] == [
        ["word", "gradient × input", "ablation"],
        ["the", "+0.500", "+1.000"],
        ["cat", "−0.250", "+0.000"],
    ]
    assert ["Completeness error of the integrated gradients: 0.012."] in lines
    at = lines.index(["words deleted in order of", "mean of the curve"])
    assert [name for name, _ in lines[at + 1 : at + 4]] == ["ablation", "gradient × input", "random"]
    assert [mean for _, mean in lines[at + 1 : at + 4]] == [f"{found.area(n):+.3f}" for n, _ in lines[at + 1 : at + 4]]


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9999.4, "9999"), (9999.5, "10,000"), (-9999.5, "−10,000"), (0.999, "0.999"), (0.99905, "0.99905"),
        (-0.99986, "−0.99986"), (1.0, "1"), (1.00005, "1"), (0.0001, "0.0001"),
    ],
)  # fmt: skip
def test_numbers_at_the_edge_between_two_ways_of_writing_them(number, words):
    assert shown(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(0.75, "3/4"), (-1.5, "−3/2"), (1 / 12, "1/12"), (1 / 13, ""), (2.0, ""), (0.0, ""), (0.7501, ""), (np.inf, "")],
)
def test_a_fraction_is_shown_where_it_is_one_of_at_most_twelfths(number, words):
    assert _fraction(number) == words


@pytest.mark.parametrize(
    ("size", "asked", "told"),
    [(FULL, 0, FULL), (FULL + 1, 0, 5), (FULL + 1, FULL, 5), (FULL + 3, 4, 5), (FULL + 3, 5, 5)],
)
def test_the_words_of_a_softmax_are_all_told_or_the_likeliest_and_always_the_asked_one(size, asked, told):
    logits = -np.arange(size, dtype=float)
    z, share = softmax(logits, lambda word: f"w{word}", asked, float(np.exp(logits)[asked] / np.exp(logits).sum()))
    names = [term.name for term in z.terms]
    assert len(names) == told
    assert f"w{asked}" in names
    assert z.others == size - told
    assert z.total == pytest.approx(np.exp(logits).sum())
    assert sum(term.value for term in z.terms) + z.rest == pytest.approx(z.total)
    assert share.total == pytest.approx(np.exp(logits)[asked] / np.exp(logits).sum())


def test_a_part_becomes_the_mean_of_its_columns_in_one_of_them_or_in_all():
    layer, heads = torch.randn(1, 3, 4), torch.randn(1, 2, 3, 5)
    for name, part, wanted in (
        ("layer/0", layer, layer[0].mean(0)),
        ("self/0", heads, heads[0].mean(1)[:, None]),
        ("self/0[1]", heads, heads[0, 1].mean(0)),
        ("layer/0[2]", layer, layer[0, :, 2].mean(0)),
    ):
        ((said, found),) = _values(name, Place.parse(name), part, None)
        assert said == name
        torch.testing.assert_close(found, wanted)
