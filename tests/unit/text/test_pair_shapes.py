"""Laws of the pair batches in few shapes: nothing but the shape differs from the pairs themselves."""

from itertools import chain, combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.fast.training.captured_step import captures
from regard.runs.recipe import compose
from regard.systems.catalogue import load_class
from regard.text.batches.pair_batches import PairBatches, side_by_side
from regard.text.batches.pair_shapes import ShapedPairBatches, least_rounding
from regard.text.pairs import Pairs
from regard.text.tokenizers.bpe_dropout import DropoutPairs
from regard.text.tokenizers.pair_tokens import TokenPairs, encode_pairs, offsets_of
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.loop import Trainer
from regard.training.objective import Objective, to_device
from regard.training.validation import ValidationResult

law = settings(derandomize=True, deadline=None, max_examples=50)
shapes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)
seeds, budgets = st.integers(0, 2**64 - 1), st.integers(62, 400)


def numbered(shapes) -> TokenPairs:
    """Pairs of given lengths (without <eos>); all tokens of pair i are i + 1, so that each tells whose it is."""
    sides = []
    for side in range(2):
        rows = [[pair + 1] * shape[side] + [0] for pair, shape in enumerate(shapes)]
        sides += [np.concatenate(rows).astype(np.uint16), offsets_of(np.array([len(row) for row in rows]))]
    return TokenPairs(*sides, np.arange(len(shapes)), {}, 0, 256, 0, 0)


def rows_of(batch):
    """The pairs of a batch; its empty rows must come last and hold nothing but one <eos> to read."""
    found = []
    for source, source_length, tokens, targets, length in zip(
        batch.source, batch.source_lengths, batch.tokens, batch.targets, batch.lengths, strict=True
    ):
        assert not source[source_length - 1 :].any()
        assert not targets[max(length - 1, 0) :].any()
        assert not tokens[length:].any()
        if not length:
            assert source_length == 1
            continue
        assert len(found) == len([n for n in batch.lengths[: len(found) + 1] if n]) - 1
        assert tokens[1:length].tolist() == targets[: length - 1].tolist()
        found.append((source[:source_length].tolist(), targets[:length].tolist()))
    return found


def epoch_of(batches, epoch):
    return [batches.batch(epoch * batches.steps_per_epoch + place) for place in range(batches.steps_per_epoch)]


def shape_of(batch):
    assert batch.tokens.shape == batch.targets.shape
    return (len(batch.tokens), batch.source.shape[1], batch.tokens.shape[1])


@law
@given(shapes=shapes, budget=budgets, seed=seeds, epoch=st.integers(0, 3))
@example(shapes=[(40 - t, t) for t in range(1, 40)], budget=42, seed=0, epoch=0)  # rounded up, none would fit
def test_every_pair_comes_once_per_epoch_within_the_budget(shapes, budget, seed, epoch):
    pairs = numbered(shapes)
    batches = ShapedPairBatches(pairs, budget, seed)
    found = epoch_of(batches, epoch)
    assert all(batch.source.size + batch.tokens.size <= budget for batch in found)
    seen = [rows_of(batch) for batch in found]
    assert all(seen)
    wanted = [(pairs.source_of(i).tolist(), pairs.target_of(i).tolist()) for i in range(len(pairs))]
    assert sorted(chain.from_iterable(seen)) == sorted(wanted)


@law
@given(shapes=shapes, seed=seeds, steps=st.lists(st.integers(0, 200), max_size=5))
def test_a_batch_depends_on_its_step_alone(shapes, seed, steps):
    walked = ShapedPairBatches(numbered(shapes), 100, seed)
    for step in steps:
        one, other = walked.batch(step), ShapedPairBatches.of(PairBatches(numbered(shapes), 100, seed)).batch(step)
        for name in ("source", "source_lengths", "tokens", "targets", "lengths"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


small = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(shapes=small, spare=st.integers(0, 30), seconds=st.sampled_from([0, 120]))
@example(shapes=[(3, 0)] * 4 + [(3, 1), (0, 2), (16, 2)], spare=0, seconds=0)  # one is as large as the budget
def test_a_batch_has_a_shape_of_its_own_only_if_none_holds_it(shapes, spare, seconds):
    pairs = numbered(shapes)
    budget = int((pairs.source_lengths + pairs.target_lengths).max()) + spare
    batches = ShapedPairBatches(pairs, budget, 0, seconds=seconds)
    for _, source, target in map(shape_of, epoch_of(batches, 0)):
        around = [(s, t) for s, t in batches.shapes if s >= source and t >= target and s + t <= budget]
        assert not around or (source, target) in batches.shapes


def corpus(count=5000):
    random = np.random.default_rng(0)
    source = random.gamma(6, 2.5, count).astype(int) + 2
    return source, np.maximum(1, source + random.normal(0, 3, count)).astype(int)


def test_there_are_few_shapes_the_same_in_every_epoch_and_little_is_padding():
    source, target = corpus()
    batches = ShapedPairBatches(numbered(list(zip(source.tolist(), target.tolist()))), 4096, 0)
    epochs = [epoch_of(batches, epoch) for epoch in range(3)]
    held = [sorted(shape_of(batch) for batch in found) for found in epochs]
    assert held[0] == held[1] == held[2]
    assert len(set(held[0])) <= 32
    assert len({shape[1:] for shape in held[0]}) == len(set(held[0]))  # the rows follow from the lengths
    padded = sum(batch.source.size + batch.tokens.size for batch in epochs[0])
    assert (source.sum() + target.sum() + 2 * len(source)) / padded > 0.85
    companies = [{frozenset(batch.targets[:, 0].tolist()) for batch in found} for found in epochs]
    assert len(companies[0] & companies[1]) < 0.2 * len(companies[0])


def test_the_shorter_a_training_the_fewer_shapes_and_the_pairs_stay_the_same():
    source, target = corpus()
    pairs = numbered(list(zip(source.tolist(), target.tolist())))
    found, most = [], {15: 8, 39: 8, 40: 16, 179: 16, 180: 32, 3600: 32}
    for seconds in most:
        batches = epoch_of(ShapedPairBatches.of(PairBatches(pairs, 4096, 0), seconds), 0)
        found.append(len({shape_of(batch) for batch in batches}))
        assert sorted(row for batch in batches for row in rows_of(batch)) == sorted(
            row for batch in epoch_of(PairBatches(pairs, 4096, 0), 0) for row in rows_of(batch)
        )
    assert found[0] == found[1] < found[2] == found[3] < found[4] == found[5]
    assert all(count <= bound for count, bound in zip(found, most.values(), strict=True))


@law
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40), count=st.integers(1, 4))
def test_no_other_edges_round_up_less(lengths, count):
    def added(edges):
        return sum(min(edge for edge in edges if edge >= length) - length for length in lengths)

    found, values = least_rounding(np.array(lengths), count).tolist(), sorted(set(lengths))
    assert len(found) <= count
    others = combinations(values[:-1], min(count, len(values)) - 1)
    assert added(found) == min(added((*other, values[-1])) for other in others)


TEXT = "they are watching the watchers watch she watched it"
TOKENIZER = Tokenizer.train([TEXT] * 3, "bpe", 320)
sentences = st.lists(
    st.lists(st.sampled_from(TEXT.split()), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=30
)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(sources=sentences, seed=st.integers(0, 99))
def test_words_cut_anew_in_every_epoch_come_once_too(sources, seed):
    pairs = Pairs(sources, sources[::-1])
    plain = encode_pairs(pairs, TOKENIZER, TOKENIZER)
    anew = DropoutPairs(pairs, plain, TOKENIZER, TOKENIZER, 0.3, seed)
    batches = ShapedPairBatches(plain, 120, seed, epochs=anew.epoch)
    for epoch in range(3):
        seen = list(chain.from_iterable(map(rows_of, epoch_of(batches, epoch))))
        texts = [(TOKENIZER.decode(source[:-1]), TOKENIZER.decode(target[:-1])) for source, target in seen]
        assert sorted(texts) == sorted(zip(pairs.sources, pairs.targets, strict=True))


# -- what is minimised -----------------------------------------------------------------------------------------------

SYSTEMS = ("seq2seq", "bahdanau", "transformer")


def model(system):
    torch.manual_seed(0)
    recipe = compose(system, "tiny", {"model": {"width": 16, "dropout": 0.0}})
    return load_class(system)(40, recipe.model).double()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("how", [{}, {"smoothing": 0.1}, {"smoothing": 0.1, "consistency": 2.0}])
def test_empty_rows_and_columns_change_neither_loss_nor_gradient_nor_count(system, how):
    pairs = numbered([(4, 5), (1, 7), (6, 2)])
    answers = []
    for shape in (None, (5, 9, 11)):
        batch, built = side_by_side(pairs, np.arange(3), shape), model(system)
        assert shape is None or shape_of(batch) == shape
        loss, count, _ = Objective(built, **how)(to_device(batch, torch.device("cpu")), None)
        loss.backward()
        answers.append((loss.detach(), torch.as_tensor(count), [weight.grad for weight in built.parameters()]))
    (loss, count, gradients), (shaped_loss, shaped_count, shaped) = answers
    assert int(count) == int(shaped_count) == 6 + 8 + 3
    torch.testing.assert_close(shaped_loss, loss, rtol=1e-12, atol=0.0)
    for one, other in zip(shaped, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_trainers_step_is_that_of_the_pairs_alone(tmp_path, parts):
    pairs, gradients = numbered([(4, 5), (1, 7), (6, 2)]), []
    for shape in (None, (7, 9, 11)):
        batch = side_by_side(pairs, np.arange(3), shape)
        recipe = compose("transformer", "tiny", {"training": {"accumulate": parts, "capture": "off"}})
        built = Trainer(model("transformer"), One(batch), lambda _: ValidationResult(1.0), recipe.training, tmp_path)
        loss, count = built.runner.gradient(batch)
        assert count == 17
        gradients.append([loss, *(weight.grad for weight in built.model.parameters())])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


class One:
    def __init__(self, batch):
        self.whole, self.steps_per_epoch = batch, 1

    def batch(self, step):
        return self.whole


# -- who is captured -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_is_captured_on_a_cpu_and_asking_for_it_says_so(system):
    settings = compose(system, "tiny").training
    assert settings.capture == "auto"
    assert not captures(model(system), settings)
    with pytest.raises(RegardError, match="needs a CUDA device"):
        captures(model(system), compose(system, "tiny", {"training": {"capture": "on"}}).training)
    with pytest.raises(RegardError, match=r"training\.capture"):
        compose(system, "tiny", {"training": {"capture": "yes"}})
