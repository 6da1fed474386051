"""Numbers of causes computed once more by hand, and where lists, lines and names end."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.insight import gradients
from regard.insight.arithmetic import ngram as counting
from regard.insight.arithmetic.beam import SHOWN, search_sections
from regard.insight.arithmetic.calculation import calculate_language
from regard.insight.arithmetic.equation import (
    LARGE,
    Equation,
    Term,
    WorkedExample,
    add_up,
    exponent,
    largest_units,
    named_words,
    which_component,
    which_components,
)
from regard.insight.arithmetic.terminal import INDENT, _heading, _numbers
from regard.insight.interventions import ablation, head_scores, terminal
from regard.insight.interventions import reading as reading_module
from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.changing import Place, Watch, intervene
from regard.insight.interventions.contrast import ORDERS, POINTS, contrast
from regard.insight.interventions.head_scores import describe
from regard.insight.interventions.lens import lens, residuals
from regard.insight.interventions.patching import PatchGrid, patch
from regard.insight.interventions.reading import read_text
from regard.insight.lecture_examples import LONGEST, lecture_example
from regard.insight.trace import Branch, Matrix, listed
from regard.insight.tracing import trace_language
from regard.insight.views import figures
from regard.insight.views import terminal as trace_terminal
from regard.insight.words import attention_name, branch_labels, labels_after, part_name, visible
from regard.laws.registry import builder, stirred
from regard.systems import ngram
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
TEXT, OTHER = "c a f e b", "c a g d b"
A, B = 4, 9  # any two words


@pytest.fixture(scope="module")
def models():
    made = {}

    def model(system):
        if system not in made:
            torch.manual_seed(0)
            made[system] = stirred(builder(system))
        return made[system]

    return model


@pytest.fixture
def read(models):
    def reading(text=TEXT, system="gpt"):
        more = {"target": "b a", "source_tokenizer": WORDS} if system == "transformer" else {}
        return read_text(models(system), WORDS, text, **more)

    return reading


def prefers(reading, changes=(), step=-1):
    """log P(A) − log P(B)."""
    with torch.no_grad():
        logits = reading.logits(changes)[0, step]
    return float(logits[A] - logits[B])


# -- ablation --------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted_sets(monkeypatch):
    """The k-th removal of the n-th text lowers every log P by k + 1000 n."""
    texts = []

    def removed(reading, sets, way, others, generator):
        texts.append((reading, sets, way, others))
        lower = torch.arange(len(sets), dtype=torch.float64)[:, None] + 1000 * (len(texts) - 1)
        return reading.scores() - lower

    monkeypatch.setattr(ablation, "_removed", removed)
    return texts


def test_a_control_is_the_mean_of_its_draws_and_intervals_are_students_over_texts(read, counted_sets):
    readings = [read(text) for text in (TEXT, OTHER, "a b c")]
    found = ablate(readings, "heads", "mean")
    assert (found.kind, found.way, found.texts, found.words) == ("heads", "mean", 3, tuple(TEXT.split()))
    names = ["self/0[0]", "self/0[1]", "self/1[0]", "self/1[1]"]
    assert [one.name for one in found.effects] == names[::-1]  # the most harmful first
    reach = 4.302653 * 1000 / math.sqrt(3)  # 0, 1000 and 2000: s = 1000, t of two degrees of freedom
    for number, one in zip(range(3, -1, -1), found.effects, strict=True):
        assert one.effect == pytest.approx(-number - 1000)
        assert one.interval == pytest.approx((-number - 1000 - reach, -number - 1000 + reach), rel=1e-5)
        assert one.by_word == pytest.approx([-number] * 5)  # of the first text
        drawn = 4 + (ablation.DRAWS - 1) / 2  # the draws come after the four heads
        assert one.control == pytest.approx(-drawn - 1000)
        assert one.control_interval == pytest.approx((-drawn - 1000 - reach, -drawn - 1000 + reach), rel=1e-5)
    for (reading, sets, way, others), own in zip(counted_sets, readings, strict=True):
        assert reading is own
        assert way == "mean"
        assert len(sets) == 4 + ablation.DRAWS
        assert all(sum(part.size for part in some) == sets[0][0].size for some in sets)  # as many components
        assert len(others) == 2  # the other texts
        assert {id(one) for one in others}.isdisjoint({id(own.parts())})


def test_the_controls_are_drawn_by_seed_0_unless_another_is_given(read, monkeypatch):
    seeds = []

    class Known(torch.Generator):
        def manual_seed(self, seed):
            seeds.append(seed)
            return super().manual_seed(seed)

    monkeypatch.setattr(torch, "Generator", Known)
    ablate([read()])
    ablate([read()], seed=7)
    assert seeds == [0, 7]


def test_a_part_that_is_all_there_is_or_a_single_number_has_no_control(read, counted_sets):
    assert ablate([read("a b", "ngram")], None).kind == "orders"  # the first kind that it has
    for one in ablate([read("a b", "ngram")], "orders").effects:
        assert (one.control, one.control_interval, one.interval) == (None, None, None)
    parts = [ablation.AblatedPart("a", "a", torch.ones(size)) for size in (1, 2, 3)]
    assert [part.size for part in ablation._sizes(parts)] == [2, 3]
    assert ablation._sizes(parts[2:]) == []
    assert ablation._sizes([parts[2], parts[2]]) == [parts[2]]


def test_what_replaces_a_removed_part_is_of_the_other_texts():
    heads = {"layer/0/heads": torch.arange(24.0).view(1, 2, 3, 4)}
    other = {"layer/0/heads": 100 + torch.arange(16.0).view(1, 2, 2, 4), "layer/0": torch.arange(6.0).view(1, 3, 2)}
    draw = torch.Generator().manual_seed(0)
    assert ablation._fill("layer/0", "zero", [other], draw) == 0.0
    both = torch.cat([heads["layer/0/heads"][0], other["layer/0/heads"][0]], 1)  # [H, columns, d]
    found = ablation._fill("layer/0/heads", "mean", [heads, other], draw)
    torch.testing.assert_close(found, both.mean(1, keepdim=True))
    torch.testing.assert_close(ablation._fill("layer/0", "mean", [heads, other], draw), torch.tensor([2.0, 3.0]))
    drawn = [ablation._fill("layer/0/heads", "resampled", [heads, other], draw) for _ in range(40)]
    assert {tuple(one.flatten().tolist()) for one in drawn} == {
        tuple(both[:, column].flatten().tolist()) for column in range(5)
    }
    assert drawn[0].shape == (2, 1, 4)
    rows = {tuple(ablation._fill("layer/0", "resampled", [other], draw).tolist()) for _ in range(20)}
    assert rows == {(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)}
    change = ablation._without(torch.tensor([1.0, 0.0]), torch.tensor([7.0, 7.0]))
    assert change(torch.tensor([[2.0, 3.0]])).tolist() == [[7.0, 3.0]]
    assert ablation._without(torch.ones(1), 5.0)(torch.tensor([True, True])).tolist() == [False, False]


@pytest.mark.parametrize("rows", [1, 3])
def test_however_few_rows_fit_into_a_batch_the_numbers_are_the_same(read, rows, monkeypatch):
    def everything():
        first, second = read(), read(OTHER)
        grid = patch(first, second, "heads", (A, B))
        why = contrast(first, A, B)
        found = [one.effect for one in ablate([first], "heads").effects]
        return torch.tensor([*found, *grid.returned.flatten(), *why.methods["integrated gradients"],
                             *why.curves["random"], *why.curves["ablation"]])  # fmt: skip

    wanted = everything()
    monkeypatch.setattr(reading_module, "ROWS", rows)
    assert read().batch == rows
    torch.testing.assert_close(everything(), wanted)


# -- contrast, patching, lens ----------------------------------------------------------------------------------------


def test_each_method_of_a_contrast_is_its_formula_and_words_are_deleted_in_its_order(read):
    one = read()
    vectors = one.parts()["embedding"][0]
    middle, away = vectors.mean(0), vectors - vectors.mean(0)
    found = contrast(one, A, B, seed=3)
    assert (found.answers, found.step, found.words) == ((WORDS.token(A), WORDS.token(B)), 5, ("<eos>", *TEXT.split()))

    def slope(share):
        entered = (middle + share * away)[None].detach().requires_grad_()
        logits = one.logits([(Place("embedding"), entered)])[0, -1]
        return torch.autograd.grad(logits[A] - logits[B], entered)[0][0]

    steps = [(n + 0.5) / POINTS for n in range(POINTS)]
    wanted = {
        "gradient × input": (away * slope(1.0)).sum(-1),
        "integrated gradients": (away * torch.stack([slope(share) for share in steps]).mean(0)).sum(-1),
        "attention": torch.stack([one.parts()[f"layer/{n}/weights"][0, :, 5] for n in (0, 1)]).flatten(0, 1).mean(0),
    }
    for name, values in wanted.items():
        np.testing.assert_allclose(found.methods[name], values.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert set(found.curves) == {*found.methods, "random"}

    def curve(order):
        kept, values = vectors.clone(), [prefers(one)]
        for column in order:
            kept[column] = middle
            values.append(prefers(one, [(Place("embedding"), kept[None].clone())]))
        return values

    for name, values in found.methods.items():
        np.testing.assert_allclose(found.curves[name], curve(np.argsort(-values, kind="stable")), atol=1e-9)
    random = np.random.default_rng(3)
    drawn = np.mean([curve(random.permutation(6)) for _ in range(ORDERS)], axis=0)
    np.testing.assert_allclose(found.curves["random"], drawn, atol=1e-9)
    assert found.area("random") == pytest.approx(drawn.mean())
    ends = prefers(one) - prefers(one, [(Place("embedding"), middle.expand(1, 6, -1))])
    total = float(wanted["integrated gradients"].sum())
    assert found.completeness_error == pytest.approx(abs(total - ends), abs=1e-9)
    earlier = contrast(one, A, B, step=2)
    assert earlier.words == ("<eos>", "c", "a")
    assert {len(values) for values in earlier.methods.values()} == {3}
    assert "attention" in earlier.methods
    assert found.as_json()["methods"]["attention"] == np.round(found.methods["attention"], 6).tolist()


@pytest.mark.parametrize(("system", "kind"), [("gpt", "layers"), ("gpt", "heads"), ("lstm", "layers")])
def test_a_cell_of_the_grid_is_the_share_that_one_replaced_value_returns(read, system, kind):
    first, second = read(system=system), read(OTHER, system)
    grid, parts = patch(first, second, kind, (A, B)), second.parts()
    start, end = prefers(first), prefers(second)
    assert (grid.first, grid.second, grid.step) == (pytest.approx(start), pytest.approx(end), 5)
    assert grid.columns == ("<eos>", *TEXT.split())
    for row, label in enumerate(grid.rows):
        name, state = label.partition(" ")[::2]
        for column in range(6):
            if state:
                names = [one for one in (f"{name}/hidden", f"{name}/cell") if one in parts]
                changes = [(Place(one, column=column), parts[one][0, column]) for one in names]
            else:
                place = Place.parse(f"{name}@{column}")
                value = parts[place.part][0]
                value = value[place.index, column] if place.index is not None else value[column]
                changes = [(place, value)]
            share = (prefers(first, changes) - start) / (end - start)
            assert grid.returned[row, column] == pytest.approx(share, abs=1e-8), (label, column)


def test_a_lens_reads_each_layer_by_the_models_own_output(read, models):
    one, model = read(), models("gpt")
    parts, found = one.parts(), lens(one, top=3)
    held = residuals(model, parts)
    assert list(held) == ["layer/0/attention", "layer/0", "layer/1/attention", "layer/1"]
    torch.testing.assert_close(held["layer/0/attention"], parts["embedding"] + parts["layer/0/attention"])
    torch.testing.assert_close(held["layer/1/attention"], parts["layer/0"] + parts["layer/1/attention"])
    with torch.no_grad():
        final = one.logits()[0].log_softmax(-1)
        for layer, vectors in zip(found.layers, held.values(), strict=False):
            logs = model.predict(model.finish(vectors))[0].log_softmax(-1)
            divergence = torch.nn.functional.kl_div(logs, final, log_target=True, reduction="none").sum(-1)
            assert layer.divergence == pytest.approx(divergence.tolist(), abs=1e-9)
            for step, (row, target) in enumerate(zip(logs, one.targets, strict=True)):
                order = row.argsort(descending=True).tolist()
                assert [word for word, _ in layer.top[step]] == [WORDS.token(token) for token in order[:3]]
                assert [share for _, share in layer.top[step]] == pytest.approx(row[order[:3]].exp().tolist())
                if target is None:
                    assert (layer.probability[step], layer.rank[step]) == (None, None)
                else:
                    assert layer.probability[step] == pytest.approx(float(row[target].exp()))
                    assert layer.rank[step] == order.index(target) + 1


def test_a_share_that_rounds_to_nothing_has_no_sign():
    grid = PatchGrid(("layer/0",), ("a", "b"), np.array([[-0.001, 1.0]]), 0, ("x", "y"), 0.0, 1.0)
    text = terminal.show_patch(grid)
    assert "−.00" not in text
    assert ".00" in text


# -- heads -----------------------------------------------------------------------------------------------------------


def test_the_preferred_distance_is_one_that_at_least_half_of_the_rows_reach():
    for size, far in ((1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 4)):
        for distance in range(size):
            weights = torch.diag(torch.ones(size - distance), -distance)
            found = describe("head", weights, torch.eye(5))
            reached = distance <= far
            assert found.distance == (distance if reached else 0), (size, distance)
            assert found.positional == (1.0 if reached else 0.0)
            assert found.previous == (1.0 if distance == 1 and size > 1 else 0.0)
    twice = torch.zeros(7, 7)
    for row in (4, 5, 6):
        twice[row, row - 3], twice[row, row - 2] = 0.25, 0.5
    one = describe("head", torch.eye(4), twice)
    assert (one.duplicate, one.induction) == (0.25, 0.5)
    alone = describe("head", torch.eye(4), torch.ones(1, 1))
    assert (alone.duplicate, alone.induction) == (0.0, 0.0)


@pytest.mark.parametrize(("context", "count"), [(None, 15), (24, 11), (8, 3), (7, 3), (3, 1)])
def test_a_repeated_string_is_a_boundary_and_different_words_twice_within_the_context(
    read, count, context, monkeypatch
):
    one = read()
    monkeypatch.setattr(one.model, "context", context)
    (tokens,) = head_scores.repeated(one, seed=1).tolist()
    assert tokens[0] == WORDS.eos
    assert tokens[1 : 1 + count] == tokens[1 + count :]
    assert len(set(tokens[1:])) == count
    assert not {0, 1} & set(tokens[1:])
    assert head_scores.repeated(one, seed=2).tolist() != [tokens] or count == 1


def test_chance_is_uniform_attention_over_the_text_and_the_repeated_string(read):
    found = head_scores.head_scores(read())
    assert [one.name for one in found.heads] == ["self/0[0]", "self/0[1]", "self/1[0]", "self/1[1]"]
    assert found.chance.previous == pytest.approx(np.mean([1 / (row + 1) for row in range(1, 6)]))
    assert found.chance.duplicate == pytest.approx(np.mean([1 / (row + 1) for row in range(12, 23)]))
    assert found.chance.duplicate == pytest.approx(found.chance.induction)


# -- places and words ------------------------------------------------------------------------------------------------


def test_the_step_that_is_compared_is_asked_for_or_the_last_or_the_one_that_wrote_an_answer(read):
    one, translated = read(), read(system="transformer")
    assert one.step_of((A, B)) == 5
    assert [one.step_of((A, B), step) for step in (0, 5)] == [0, 5]
    for step in (-1, 6):
        with pytest.raises(RegardError, match=rf"no step {step}: the steps of this text are 0 to 5"):
            one.step_of((A, B), step)
    b, a, end = translated.targets
    assert [translated.step_of(pair) for pair in ((a, 16), (b, a), (16, 15), (end, 15))] == [1, 0, 2, 2]
    assert translated.words == ("<eos>", "b", "a")
    assert translated.source_words == (*TEXT.split(), "<eos>")
    assert one.source_words == ()
    assert [one.token(word) for word in (" a ", "o", "<unk>")] == [2, 16, 1]
    with pytest.raises(RegardError, match="'zebra' is not a word"):
        one.token("zebra")


def test_an_intervention_ends_with_its_block_also_after_an_error(models):
    model = models("lstm")
    before = dict(vars(model))
    for place in ("layer/0/forget[2]@1", "layer/0/cell@3"):
        with intervene(model, place, 0.0), torch.no_grad():
            model(torch.tensor([[0, 2, 3, 4]]))
        with pytest.raises(RegardError), intervene(model, "layer/7", 0.0):
            model(torch.tensor([[0, 2, 3, 4]]))
        assert vars(model) == before
    for text, (name, index, column) in (("layer/0", ("layer/0", None, None)), ("self/1[2]", ("self/1", 2, None)),
                                        ("a@3", ("a", None, 3)), ("a[0]@0", ("a", 0, 0))):  # fmt: skip
        place = Place.parse(text)
        assert (place.name, place.index, place.column) == (name, index, column)
    for text, part in (("self/1", "layer/1/heads"), ("self/0/weights", "layer/0/weights"), ("layer/0", "layer/0"),
                       ("cross/2", "layer/2/cross/heads"), ("cross/0/weights", "layer/0/cross/weights")):  # fmt: skip
        assert Place(text).part == part
    for text in ("", "a[b]", "a@", "a[1", "a@1@2"):
        with pytest.raises(RegardError, match="does not name a part"):
            Place.parse(text)


def test_layers_heads_and_ways_are_named_in_words_from_1():
    given = (
        ("cross/0",),
        ("self/1", 0, 2),
        ("self/1", None, 2),
        ("encoder/0", 1, 3),
        ("mine/x", 0, 2),
        ("average/0", 0),
    )
    assert [attention_name(*one) for one in given] == [
        "Cross-attention, layer 1", "Self-attention, layer 2, head 1", "Self-attention, layer 2, mean of 2 heads",
        "Self-attention of the encoder, layer 1, head 2", "mine/x, head 1", "Average, layer 1",
    ]  # fmt: skip
    assert [part_name(name) for name in ("embedding", "hidden", "layer/0", "layer/1/feedforward", "encoder/0/forward",
                                         "encoder/embedding", "layer/0/cross", "layer/0/mine")] == [
        "Word vectors", "The vector that the prediction is made from", "Layer 1", "Layer 2: feed-forward",
        "Encoder layer 1, reading forward", "Encoder: word vectors", "Layer 1: cross-attention", "Layer 1: mine",
    ]  # fmt: skip
    assert [visible(token) for token in ("", "  ", " a\u00a0", "\u200b\u200d")] == ["–", "␣␣", "␣a␣", "U+200B U+200D"]
    assert labels_after(["<0xE4>", "<0xB8>"], ["<0xAD>", "x"]) == ["中 3/3", "x"]


def test_numbers_as_json_have_five_digits_and_what_cannot_be_seen_is_no_number():
    assert listed(np.array([[1.23456789, np.nan], [np.inf, -0.000123456]])) == [[1.2346, None], [None, -0.00012346]]
    assert listed(np.array(1.23456), 2) == 1.2
    matrix = Matrix(np.ones((2, 3, 3)), ("a",) * 3, ("a",) * 3, "read", "read", causal=True)
    assert np.isnan(matrix.seen).sum() == 6
    assert not np.isnan(matrix.seen[:, 2]).any()
    assert Matrix(matrix.values, (), (), "read", "read").seen is matrix.values


# -- lines and lists -------------------------------------------------------------------------------------------------


def test_a_crown_is_a_number_in_a_circle_up_to_twenty():
    crowns = [trace_terminal._crown(Branch(-1, 1, "a", -1.0, kept=True, rank=rank)) for rank in (1, 20, 21)]
    assert crowns == ["①", "⑳", "21"]


def test_a_long_line_is_broken_between_terms_where_the_next_one_does_not_fit():
    line = add_up("s", "s = Σ", [Term(f"word{n}", 1.5 + n) for n in range(6)])
    pieces = line.written.split(" ")
    for width in (24, 40, 80, 400):
        rows = _numbers(line, width).plain.split("\n")
        assert rows[0].startswith(" " * INDENT + "s = ")
        assert all(len(row) <= width for row in rows)
        assert all(row.startswith(" " * (INDENT + 4)) and row[INDENT + 4] != " " for row in rows[1:])
        assert len(rows) == 1 or len(rows[0]) + 1 + len(pieces[rows[0].count("+")]) > width - 8
    assert len(_numbers(line, 400).plain.split("\n")) == 1


@pytest.mark.parametrize(
    ("equation", "written"),
    [
        (add_up("a", "", [Term("x", -0.15, (0.5, -0.3)), Term("b", 2.0)]), "0.5·(−0.3) (x) + 2 (b) = 1.85"),
        (add_up("a", "", [Term("x", math.e, (1.0,), "exp")]), "exp(1) (x) = 2.718"),
        (add_up("a", "", [Term("", 0.75, (3.0, 4.0), "/")]), "3/4 = 0.75"),
        (add_up("a", "", [Term("[1]", 1.0), Term("[2]", -3.0)]), "1 [1] − 3 [2] = −2"),
        (add_up("a", "", [Term("x", 3.0)], function="/", by=-2.0), "3 (x) / (−2) = −1.5 = −3/2"),
        (add_up("a", "", [Term("x", 1.0), Term("y", 2.0)], function="·", by=0.5), "(1 (x) + 2 (y)) · 0.5 = 1.5 = 3/2"),
        (add_up("a", "", [Term("x", 1.0), Term("y", -1.0)], function="σ"), "σ(1 (x) − 1 (y)) = σ(0) = 0.5 = 1/2"),
        (add_up("a", "", [Term("x", 4.0)], function="boxcar", by=2.0), "boxcar, h = 2, (4 (x)) = 1"),
        (
            add_up("a", "", [Term("x", float(n)) for n in range(1, 8)]),
            "7 (x) + 6 (x) + 5 (x) + 4 (x) + 6 (3 more) = 28",
        ),
        (Equation("a", "", (), 0.0, 0, 0.0, 0.0), "0"),
        (add_up("a", "", [Term("two words", 1.0)]), "1 (two words) = 1"),
    ],
)
def test_an_equation_is_written_with_its_numbers(equation, written):
    assert equation.written.replace("\u00a0", " ") == written


def test_short_vectors_are_shown_whole_and_of_long_ones_the_largest():
    assert largest_units(np.array([1.0, -5.0, 2.0, 3.0])) == [0, 1, 2, 3]
    assert largest_units(np.array([1.0, -5.0, 2.0, 3.0, 0.0])) == [1, 3, 2]
    assert largest_units(np.array([1.0, 2.0]), 1) == [0, 1]
    assert largest_units(np.array([1.0, 2.0, 0.0]), 1) == [1]
    assert [which_components(np.arange(float(size))) for size in (4, 5)] == ["", "Its 3 largest components (of 5)."]
    assert [which_component(np.arange(float(size))) for size in (2, 3)] == ["", "The largest of its 3 components."]
    assert named_words(["a", "b", "a"]) == ["a 0", "b", "a 2"]
    for most, formula in (
        (LARGE, "exp(s)"),
        (-LARGE, "exp(s)"),
        (LARGE + 1, "exp(s − 31)"),
        (-LARGE - 1, "exp(s − −31)"),
    ):
        power, said = exponent(np.array([most - 2, most]), "s")
        assert said == formula
        assert power.tolist() == ([most - 2, most] if abs(most) <= LARGE else [-2.0, 0.0])


@pytest.mark.parametrize("kept", [2, SHOWN, SHOWN + 3])
def test_of_a_step_of_the_search_all_kept_candidates_are_shown_and_the_best_of_the_others(kept):
    branches = [Branch(-1, 1, f"w{n}", -float(n + 1), kept=n < kept) for n in range(SHOWN + 5)]
    branches += [Branch(1, 2, "<eos>", -2.5, kept=True, finished=True, rank=1, score=-1.25, text="w1"),
                 Branch(0, 2, "x", -4.0, kept=True, rank=2, score=-2.0)]  # fmt: skip
    candidates, hypotheses = search_sections(branches, 0, 1.0)
    assert candidates.about == f"{kept} of the {SHOWN + 5} best prefixes are kept."
    assert [line.name for line in candidates.lines] == [
        f"{'kept' if n < kept else 'pruned'}: w{n}" for n in range(max(kept, SHOWN))
    ]
    assert [(line.name, line.formula, line.value) for line in hypotheses.lines] == [
        ("1. w1", "Σ log p / 2^1", -1.25), ("2. (empty)", "Σ log p / 2^1 (not finished)", -2.0),
    ]  # fmt: skip
    second, _ = search_sections(branches, 1, 0.6)
    assert [line.name for line in second.lines] == ["kept: w1 <eos>", "kept: w0 x"]
    assert [[(term.name, term.value) for term in line.terms] for line in second.lines] == [
        [("before", -2.0), ("<eos>", -0.5)], [("before", -1.0), ("x", -3.0)]
    ]  # fmt: skip
    assert [section.title for section in search_sections(branches, 5, 1.0)] == ["beam search: hypotheses"]
    assert search_sections(branches[:1], 3, 1.0) == []


def test_a_candidate_is_labelled_after_the_candidates_that_lead_to_it():
    tokens = [(-1, "<0xC3>"), (0, "<0xA9>"), (-1, "a"), (0, "<0xA8>"), (2, "<0xA9>")]
    labelled = branch_labels([Branch(parent, 1, token, -1.0, kept=True) for parent, token in tokens])
    assert (labelled[1], labelled[3]) == ("é 2/2", "è 2/2")
    assert labelled[2] == "a"
    assert labelled[4] == labels_after(["a"], ["<0xA9>"])[0] != "é 2/2"


def test_every_state_of_linear_attention_is_drawn_once_at_the_end_the_last_one_alone(models):
    trace = trace_language(models("gpt"), WORDS, TEXT)
    for heads in (1, 2, 3):
        shown = replace(trace, matrices={"layer/0": np.zeros((heads, 2, 2))})
        *_, last = trace_terminal._pictures(shown, None, None)
        assert last == figures.matrices(shown)[-1]
        titles = [figure.title for figure in trace_terminal._pictures(shown, None, None)]
        assert sum("its state" in title for title in titles) == 1


def test_the_command_in_a_heading_names_a_head_where_there_are_several():
    work = WorkedExample("GPT", "a", 0, "self/0", 0, "a", "", (), {"self/0": 2, "self/1": 1})
    assert "(--layer self/0 --head 0), step 0" in _heading(work)
    assert "(--layer self/1), step 0" in _heading(replace(work, layer="self/1"))


def test_the_column_of_a_cell_that_reads_backwards_is_counted_from_the_end():
    met, watch = [], Watch()
    watch.meet = lambda name, value, step: met.append((name, step))
    watch.place, watch.columns = ("encoder", "0"), 5
    for backwards, step in ((False, 1), (True, 1), (True, 0), (True, None), (True, 3)):
        watch.backwards, watch.step = backwards, step
        watch.see("memory", torch.zeros(1))  # of step 3 it has seen column 1 before
    assert met == [("encoder/0/memory", column) for column in (1, 3, 4, None)]


def test_the_lectures_example_is_a_string_of_as_and_bs_of_at_most_64():
    longest = lecture_example("lecture:any-b", "AB" * (LONGEST // 2))
    assert (longest.step, longest.read) == (LONGEST - 1, "B")
    assert lecture_example("any-b", " BA\n").text == "BA"
    averaged = [section for section in lecture_example("any-b", "AAB").sections if section.title.startswith("DAN")]
    assert [(section.title, section.about) for section in averaged] == [("DAN: average", "B gets 1/3.")]
    assert [line.value for line in averaged[0].lines] == pytest.approx([2 / 3, 1 / 3])  # the average itself
    for text in ("", " ", "ab", "ABC", "A" * (LONGEST + 1)):
        with pytest.raises(RegardError, match=f"at most {LONGEST} of them: AABA"):
            lecture_example("lecture:any-b", text)
    with pytest.raises(RegardError, match="choose one of lecture:any-b"):
        lecture_example("lecture:all-b")


def test_no_order_reaches_over_the_end_of_a_line_however_long_it_is_and_unknown_words_end_none(models):
    model = models("ngram").__class__(len(WORDS.tokens), ngram.Settings(order=5))
    model.count(np.array([*WORDS.encode("a b c d e"), 0, *WORDS.encode("b c d a"), 0] * 3))
    for text, step, longest in (("a b\nc d", 4, 3), ("a b\nc d", 3, 2), ("a zebra b c", 4, 5), ("a b c d e", 5, 5)):
        titles = [
            section.title.partition(",")[0] for section in calculate_language(model, WORDS, text).at(step).sections
        ]
        assert titles == [f"order {order}" for order in range(1, longest + 1)], text


def test_a_candidate_that_leads_nowhere_says_for_how_many_more_steps_it_was_kept():
    branches = [
        Branch(-1, 1, "a", -1.0, kept=True), Branch(-1, 1, "b", -1.5, kept=True), Branch(-1, 1, "c", -9.0, kept=False),
        Branch(0, 2, "d", -2.0, kept=True), Branch(1, 2, "e", -2.5, kept=True), Branch(3, 3, "f", -3.0, kept=True),
        Branch(4, 3, "<eos>", -2.75, kept=True, finished=True, rank=1, score=-2.0, text="b e"),
    ]  # fmt: skip
    lines = list(trace_terminal._search(branches, 80))
    tree = [line for line in lines if line.startswith("  ")]
    assert [" ".join(line.split()) for line in tree] == [
        "1 b −1.50 †a −1.00 (+2), ✂c −9.00",
        "2 e −2.50",
        "3 <eos> −2.75 ①",
    ]
    assert lines[-1] == "① −2.75  b e"
    assert not any("…:" in line for line in lines)  # every one was finished


def test_counts_of_kneser_ney_are_written_with_their_discounts(models):
    lines = ["a b c a b d", "a b c", "b c a b", "d a b c d", "c a", "e f a b", "a c b d"] * 2
    ids = np.array([token for line in lines for token in (*WORDS.encode(line), WORDS.eos)])
    model = models("ngram").__class__(len(WORDS.tokens), models("ngram").settings)
    model.count(ids)
    found = calculate_language(model, WORDS, "a b c", counts=lambda: counting.count_again(model, ids))
    again = counting.count_again(model, ids)
    for step in range(4):
        for section in found.at(step).sections:
            names = {line.name: line for line in section.lines}
            if "γ" in names:
                line = names["γ"]
                assert line.formula == "γ(h) = Σ D / a(h·)"
                assert {term.name for term in line.terms} <= {"seen once", "twice", "3 times or more"}
                assert line.by == pytest.approx(sum(term.factors[0] * weight for term, weight in zip(
                    line.terms, [1, 2, 3][: len(line.terms)], strict=True)), abs=20)  # fmt: skip
            if "p" in names:
                (a, discount) = names["p"].terms
                assert (a.name, discount.name) == ("a", "D")
                order = int(section.title.split()[1].strip(","))
                known = (0.0, *again.discounts[order - 1])
                assert -discount.value == pytest.approx(known[min(3, int(a.value))])


def test_progress_of_gradients_is_made_row_by_row(models, monkeypatch):
    advanced, real = [], gradients.progress

    def watched(title, total, unit=""):
        bar = real(title, total, unit=unit)
        entered = bar.__enter__

        class Bar:
            def __enter__(self):
                inner = entered()
                return type(
                    "Noted", (), {"advance": lambda self, amount: (advanced.append(amount), inner.advance(amount))}
                )()

            def __exit__(self, *error):
                return bar.__exit__(*error)

        return Bar()

    monkeypatch.setattr(gradients, "progress", watched)
    monkeypatch.setattr(gradients, "ROWS", 2)
    trace_language(models("gpt"), WORDS, TEXT, gradients=True)
    assert advanced == [2, 2, 1]
