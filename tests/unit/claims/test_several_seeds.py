"""What figures, tables and remarks make of several seeds: the toy experiments have one, of which every mean, least and
most is the same number."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from regard.claims import (
    alignment,
    any_b,
    bottleneck,
    cheating,
    classification,
    criteria,
    exploding,
    forgetting,
    kernels,
    long_sentences,
    look_back,
    recall,
    remedies,
    scaling,
    set_to_set,
    teacher_forcing,
    vanishing,
)
from regard.claims.claim import Trial
from regard.claims.verdict import LEVEL

T_99, Z_99 = 9.9248, 2.5758  # Student's t with 2 degrees of freedom and the normal, from any printed table
PER_CENT = f"{100 * LEVEL:g} %"


def student(values):
    """The interval of 99 % of three numbers."""
    mean = sum(values) / 3
    reach = T_99 * math.sqrt(sum((value - mean) ** 2 for value in values) / 2 / 3)
    return pytest.approx((mean, mean - reach, mean + reach), rel=1e-4)


def wilson(ones, trials):
    share, square = ones / trials, Z_99**2 / trials
    middle = (share + square / 2) / (1 + square)
    reach = Z_99 * math.sqrt(share * (1 - share) / trials + square / (4 * trials)) / (1 + square)
    return pytest.approx((max(0.0, middle - reach), min(1.0, middle + reach)), abs=1e-4)


def given(mark):
    return mark.value, mark.low, mark.high


def test_intervals_in_figures_are_those_of_99_percent_as_the_verdicts():
    learned = {("rnn", 5): [1.0, 1.0, 0.0], ("dan", 5): [1.0] * 3, ("rnn", 100): [0.0] * 3}
    figure = any_b.curve(learned)
    assert [(line.name, line.points) for line in figure.lines] == [
        ("rnn", ((5, pytest.approx(2 / 3)), (100, 0.0))), ("dan", ((5, 1.0),))
    ]  # fmt: skip
    assert [band for line in figure.lines for band in line.band] == [wilson(2, 3), wilson(0, 3), wilson(3, 3)]
    assert PER_CENT in figure.y
    final = {"gpt": [2.0, 2.2, 2.1], "rnn": [2.0, 2.0, 2.3]}
    figure = cheating.leaks(final, math.log(8))
    assert [mark.name for mark in figure.marks] == ["gpt", "rnn"]
    assert [given(mark) for mark in figure.marks] == [student(values) for values in final.values()]
    assert (figure.threshold, figure.threshold_name) == (math.log(8), "log V")
    assert PER_CENT in figure.title
    slopes = {"slow": [-0.1, -0.2, -0.15], "fast": [-0.9, -0.7, -0.8], "none": [0.0, 0.01, 0.0]}
    figure = remedies.in_order(slopes)
    assert [mark.name for mark in figure.marks] == ["none", "slow", "fast"]
    assert [given(mark) for mark in figure.marks] == [student(slopes[mark.name]) for mark in figure.marks]
    assert figure.threshold == remedies.ONE_PER_CENT
    assert PER_CENT in figure.x
    assert [row["log-slope"] for row in remedies.rows(slopes)] == [-0.15, -0.8, 0.0033]


def test_heat_maps_have_the_mean_of_all_draws_in_the_row_and_column_of_its_name():
    slopes = defaultdict(list)
    for gain, start in enumerate((*(f"gain {one}" for one in remedies.GAINS), "identity")):
        for number, activation in enumerate(remedies.ACTIVATIONS):
            slopes[f"{activation}, {start}"] = [-gain - 10 * number, -gain - 10 * number - 1]
    heat = remedies.factorial(slopes)
    columns = len(remedies.GAINS) + 1
    assert [list(row) for row in heat.values] == [
        [-gain - 10 * n - 0.5 for gain in range(columns)] for n in range(len(remedies.ACTIVATIONS))
    ]
    assert (heat.rows, heat.columns[-1]) == (tuple(remedies.ACTIVATIONS), "identity")
    for column, gain in enumerate(remedies.GAINS):
        for row, bias in enumerate(remedies.BIASES):
            slopes[f"LSTM, forget bias {bias:g}, gain {gain}"] = [-column - 10 * row, -column - 10 * row - 1]
    heat = remedies.by_bias(slopes)
    assert [list(row) for row in heat.values] == [
        [-column - 10 * row - 0.5 for column in range(len(remedies.GAINS))] for row in range(len(remedies.BIASES))
    ]
    assert heat.rows == tuple(f"{bias:g}" for bias in remedies.BIASES)
    cells = {(subject.name, probe): [0.0, 0.0] for subject in criteria.SUBJECTS for probe in criteria.PROBES}
    cells["gpt", "order"], cells["rnn", "parallel"] = [1.0, 0.0], [1.0, 1.0]
    heat = criteria.heat(cells)
    found = {
        (row, column): heat.values[r][c] for r, row in enumerate(heat.rows) for c, column in enumerate(heat.columns)
    }
    assert {place: share for place, share in found.items() if share} == {
        ("gpt", "order"): 0.5,
        ("rnn", "parallel"): 1.0,
    }
    assert [criteria.described(values) for values in ([1.0, 1.0], [0.0, 0.0], [1.0, 0.0])] == ["yes", "no", "at times"]


def test_learning_curves_are_means_over_seeds_and_ten_steps():
    ones, others = [float(n) for n in range(1, 21)], [float(n) + 2 for n in range(1, 21)]
    curves = {name: [ones, others] for name in ("gpt", cheating.NO_MASK, cheating.NO_PLACES)}
    curves[cheating.NO_MASK] = [[0.0] * 20, [1.0] * 20]
    level, *lines = cheating.learning(curves, 2.0).lines
    assert (level.points, level.level) == (((1, 2.0),), True)
    assert [line.name for line in lines] == ["gpt", cheating.NO_MASK, cheating.NO_PLACES]
    assert lines[0].points == ((10, 6.5), (20, 16.5))
    assert lines[1].points == ((10, 0.5), (20, 0.5))


def test_the_errors_of_alignment_are_shown_from_the_best_seed_to_the_worst():
    figure = alignment.figure([0.2, 0.5, 0.35], 0.6, 0.4)
    assert [(mark.name.partition(",")[0], *given(mark)) for mark in figure.marks] == [
        ("attention", pytest.approx(0.35), 0.2, 0.5), ("diagonal", 0.6, 0.6, 0.6), ("IBM model 1", 0.4, 0.4, 0.4)
    ]  # fmt: skip


def test_an_influence_is_drawn_on_both_sides_as_the_mean_of_the_seeds():
    before, after = (torch.tensor(values) for values in ([9.0, 2.0, 4.0], [9.0, 0.0, 8.0]))
    figure = classification.figure({"one": [(before, after), (before + 2, after)]})
    assert figure.lines[0].points == ((-2.0, 5.0), (-1.0, 3.0), (2.0, 8.0))  # nothing is drawn of what is zero
    assert figure.log_y


def test_remarks_have_means_of_the_seeds_and_the_longest_steps():
    slopes = {"tanh network": [-0.10, -0.12], "LSTM, b = 3": [-0.02, -0.04], "its cell path": [-0.2, -0.1]}
    first, second = vanishing.remarks(slopes, 3.0)
    assert f"a share of {math.exp(-11):.1e} of" in first
    assert "with b = 3 changes by -0.030 nats per step, but along its cell alone by -0.150" in second
    numbers = {exploding.QUIET: [0.5, 0.7], exploding.DRIVEN: [-0.1, -0.3]}
    first, second = exploding.remarks(numbers, 1.5, [(0.1, 3.0), (0.0999, 70.0), (0.05, 9.0)])
    assert "gain 1.5 has a log-slope of +0.600 with no input and -0.200 with words" in first
    assert "was 70 without clipping and 0.100000 with it (η c = 0.1)" in second
    numbers = {forgetting.TANH: [4.0, 8.0], forgetting.GATED: [18.0, 22.0], forgetting.CELL: [686.0, 1.0]}
    first, second = forgetting.remarks(numbers, 5.0)
    assert "after 6 steps in a tanh network, after 20 in an LSTM with forget bias 1, and after 686 along" in first
    kept = 0.01 ** (1 / 10_000)
    assert f"f = {kept:.5f}, a forget bias of {math.log(kept / (1 - kept)):.2f}" in second


def test_errors_against_bandwidth_are_the_mean_of_the_samples():
    each = [kernels.by_bandwidth(Trial((seed,))).lines for seed in (3, 4)]
    for line, one, other in zip(kernels.by_bandwidth(Trial((3, 4))).lines, *each, strict=True):
        assert line.name == one.name
        assert [y for _, y in line.points] == pytest.approx(
            [(a + b) / 2 for (_, a), (_, b) in zip(one.points, other.points, strict=True)]
        )


def test_draws_of_sets_are_shown_with_their_mean_least_and_most(monkeypatch):
    evidence = set_to_set.experiment(Trial((1, 2, 3)))
    drawn = iter(evidence.measured[set_to_set.POSITIONS])
    marks = {mark.name: mark for mark in evidence.figures[0].marks}
    for name in (*set_to_set.ENCODINGS, "rotary"):
        values = [next(drawn) for _ in range(3)]
        assert given(marks[f"positions: {name}"]) == pytest.approx((np.mean(values), min(values), max(values)))
    monkeypatch.setattr(set_to_set, "unlike", lambda one, other: 0.0)
    marks = set_to_set.experiment(Trial((1,))).figures[0].marks
    assert {given(mark) for mark in marks} == {(1e-17,) * 3}  # what is exactly 0 has a place on the axis


def test_letters_named_later_are_shown_as_the_mean_of_the_trainings(monkeypatch):
    found = [dict.fromkeys(forgetting.NAMED.values(), share) for share in (0.25, 0.75)]
    found[0][forgetting.NAMED["LSTM", 1000]] = 1.0
    monkeypatch.setattr(forgetting, "each_seed", lambda trial, measure: found)
    numbers = defaultdict(list)
    tanh, lstm, guessing = forgetting.remembered(Trial((1, 2)), numbers).lines
    assert [y for _, y in tanh.points] == [0.5] * 4
    assert lstm.points == ((10, 0.5), (100, 0.5), (1000, 0.875), (10_000, 0.5))
    assert (guessing.points, guessing.level) == (((1, 1 / forgetting.LETTERS),), True)
    assert numbers[forgetting.NAMED["LSTM", 1000]] == [1.0, 0.75]


def test_what_is_recalled_and_answered_is_averaged_over_seeds_and_the_second_half_of_a_text(monkeypatch):
    monkeypatch.setattr(recall, "recalled", lambda kind, pairs, seed: seed / 10 + (kind == "delta") + pairs / 1000)
    monkeypatch.setattr(recall, "difference", lambda *given, **how: 0.0)
    monkeypatch.setattr(recall, "growth", lambda *given: 0.0)
    evidence = recall.experiment(Trial((1, 3), True))
    few, many = (pairs / 1000 for pairs in (recall.FEW, recall.MANY))
    for line in evidence.figures[0].lines:
        more = 1.0 if line.name == "delta" else 0.0
        assert [y for _, y in line.points] == pytest.approx([0.2 + more + few, 0.2 + more + many])
    assert evidence.measured[recall.DELTA_MANY] == pytest.approx([1.1 + many, 1.3 + many])
    assert evidence.measured[recall.LINEAR_FEW] == pytest.approx([0.1 + few, 0.3 + few])
    assert evidence.measured[recall.SOFTMAX_MANY] == pytest.approx([0.1 + many, 0.3 + many])

    def right(task, kind, seed):
        return torch.cat([torch.zeros(12), torch.full((12,), seed / 10 + (kind == "gru"))])

    monkeypatch.setattr(look_back, "right", right)
    evidence = look_back.experiment(Trial((1, 3)))
    for (_, kind), quantity in look_back.QUANTITIES.items():
        assert evidence.measured[quantity] == pytest.approx([0.1 + (kind == "gru"), 0.3 + (kind == "gru")])
    assert [line.points[11] for line in evidence.figures[0].lines] == [(12, 0.0)] * 7
    first = evidence.figures[0].lines[0]
    assert (first.name, first.points[12]) == ("gru, parity", (13, pytest.approx(1.2)))


def test_copiers_of_two_seeds_are_shown_one_by_one_and_in_the_mean(monkeypatch):
    def copier(share, steps, ended=True):
        return bottleneck.Copier({3: 1.0, 4: share, 5: share / 2}, steps, ended)

    names = list(bottleneck.models_of(8))
    found = [
        (
            {(task, name): copier(share, 100 * seed, seed == 1) for name, share in zip(names, (0.2, 0.4, 0.8, 1.0))},
            seed / 10,
        )
        for task in reversed(bottleneck.PARTS)
        for seed in (1, 3)
    ]
    monkeypatch.setattr(bottleneck, "each_seed", lambda trial, measure, parts: found)
    evidence = bottleneck.experiment(Trial((1, 3), knobs={"width": 8.0}))
    measured = evidence.measured
    assert measured[bottleneck.UNTRAINED] == [0.1, 0.3] * 2
    assert sorted(measured[bottleneck.CONVERGED]) == [0.0] * 8 + [1.0] * 8
    for part in bottleneck.PARTS:
        assert measured[bottleneck.FALL[part]] == pytest.approx([0.9, 0.9])  # of the narrowest
        assert measured[bottleneck.WIDE[part]] == pytest.approx([0.6, 0.6])
        assert measured[bottleneck.LEVEL[part]] == pytest.approx([0.5, 0.5])
        assert measured[bottleneck.KNEE[part]] == pytest.approx([4.75 - 3.625] * 2)  # half is right there
        assert measured[bottleneck.SEEN[part]] == [1.0, 1.0]
    assert {row["steps"] for row in evidence.table} == {200}
    narrow = next(row for row in evidence.table if row["model"] == names[0])
    assert (narrow["fall"], narrow["knee"]) == pytest.approx((0.9, 3.625))
    curves = {("strings", "a"): [{3: 1.0, 4: 0.5}, {3: 0.0, 4: 0.25}], ("sentences", "a"): [{3: 0.1}]}
    lines = bottleneck.figure("strings", curves).lines
    assert [(line.faint, line.points) for line in lines] == [
        (True, ((3, 1.0), (4, 0.5))), (True, ((3, 0.0), (4, 0.25))), (False, ((3, 0.5), (4, 0.375)))
    ]  # fmt: skip


def test_errors_of_decoders_are_compared_seed_by_seed_and_shown_in_the_mean(monkeypatch):
    places = np.arange(12) / 12

    def errors(slope, oracle=0.1):
        return teacher_forcing.DecoderErrors(slope * places + 0.05, oracle * places)

    names = [*teacher_forcing.DECODERS, "oracle", "lost"]
    found = [
        {name: errors(slope + more) for name, slope in zip(names, (0.9, 0.3, 0.2, 0.1, 0.6))} for more in (0.0, 0.06)
    ]
    monkeypatch.setattr(teacher_forcing, "each_seed", lambda trial, measure: found)
    evidence = teacher_forcing.experiment(Trial((1, 2)))
    growth = 8 / 12  # of the places, from the first third to the last
    for quantity, slopes in (
        (teacher_forcing.EXCESS, (0.8, 0.86)), (teacher_forcing.OVER_FREE, (0.6, 0.6)),
        (teacher_forcing.FREE, (0.2, 0.26)), (teacher_forcing.ALONE, (0.1, 0.16)),
        (teacher_forcing.GROWTH, (0.9, 0.96)), (teacher_forcing.ORACLE, (0.0, 0.06)),
        (teacher_forcing.LOST, (0.5, 0.56)),
    ):  # fmt: skip
        assert evidence.measured[quantity] == pytest.approx([slope * growth for slope in slopes])
    early = 1.5 / 12
    assert evidence.measured[teacher_forcing.FORCED_LEARNT] == pytest.approx([0.8 * early + 0.05, 0.86 * early + 0.05])
    assert evidence.measured[teacher_forcing.FREE_LEARNT] == pytest.approx([0.2 * early + 0.05, 0.26 * early + 0.05])
    row = evidence.table[0]
    assert (row["errors, first third"], row["errors, last third"], row["excess of growth"]) == pytest.approx(
        (0.93 * early + 0.05, 0.93 * 9.5 / 12 + 0.05, 0.83 * growth)
    )
    *_, oracle = lines = evidence.figures[0].lines
    assert lines[0].points[11] == (12, pytest.approx(0.93 * 11 / 12 + 0.05))
    assert (oracle.name, oracle.points[11]) == ("the oracle", (12, pytest.approx(0.1 * 11 / 12)))


def test_bleu_by_length_of_two_seeds_is_compared_model_by_model(monkeypatch):
    found = [("attention", [90.0, 88.0, 86.0, 84.0], 0.1), ("attention", [92.0, 88.0, 86.0, 80.0], 0.3),
             ("one vector", [80.0, 60.0, 40.0, 20.0], 0.5), ("one vector", [70.0, 60.0, 40.0, 30.0], 0.7)]  # fmt: skip
    monkeypatch.setattr(long_sentences, "each_seed", lambda trial, measure, parts: found)
    evidence = long_sentences.experiment(Trial((1, 2)))
    wanted = {
        "ONE": [60.0, 40.0], "ATTENTION": [6.0, 12.0], "UNKNOWN": [0.1, 0.3], "LEARNED": [80.0, 70.0],
        "AHEAD": [64.0, 50.0],
    }  # fmt: skip
    assert {name: evidence.measured[getattr(long_sentences, name)] for name in wanted} == wanted
    rows = {row["model"]: row for row in evidence.table}
    assert rows["attention"]["1–6 words"] == 91.0
    assert rows["one vector"]["19–24 words"] == 25.0
    means = [line for line in evidence.figures[0].lines if not line.faint]
    assert {line.name: line.points[0] for line in means} == {"one vector": (3.0, 75.0), "attention": (3.0, 91.0)}
    assert len(evidence.figures[0].lines) == 6


def test_levels_of_entropy_are_shown_as_the_mean_of_the_draws(monkeypatch):
    draws = iter(range(1000))
    monkeypatch.setattr(scaling, "entropy", lambda kind, queries, keys: float(next(draws)))
    monkeypatch.setattr(scaling, "variance", lambda width, shift=0.0: width * (1.5 if shift else 1.0 + 16 / width**2))
    evidence = scaling.experiment(Trial((1, 2), True, knobs={"width": 512.0}))
    widths = (16, 64, 256, 512)
    scaled = evidence.figures[0].lines[0]
    assert scaled.name == "scaled"
    assert scaled.points == tuple((width, 3.0 * n + 6.0) for n, width in enumerate(widths))  # of 3n and 3n + 12
    assert evidence.measured[scaling.LEVEL] == [9.0, 9.0]
    assert evidence.measured[scaling.SATURATES] == [9.0, 9.0]
    assert evidence.measured[scaling.ITSELF] == [11.0, 23.0]
    assert evidence.measured[scaling.VARIANCE] == [0.0625, 0.0625]
    assert evidence.measured[scaling.SHIFTED] == [1.5, 1.5]
    level = evidence.figures[0].lines[-1]
    assert (level.points, level.level) == (((16, math.log(scaling.KEYS)),), True)
