"""Laws of the pair batches: every pair once per epoch, within the budget, by the step number alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text.batches.pair_batches import PairBatches, _halved, pair_batches_in_order
from regard.text.pairs import Pairs
from regard.text.tokenizers.bpe_dropout import DropoutPairs
from regard.text.tokenizers.pair_tokens import TokenPairs, encode_pairs, offsets_of
from regard.text.tokenizers.tokenizer import Tokenizer

law = settings(derandomize=True, deadline=None, max_examples=75)
shapes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)
seeds, budgets = st.integers(0, 2**64 - 1), st.integers(62, 400)


def numbered(shapes) -> TokenPairs:
    """Pairs of given lengths (without <eos>); all tokens of pair i are i + 1, so that each tells whose it is."""
    sides = []
    for side in range(2):
        rows = [[pair + 1] * shape[side] + [0] for pair, shape in enumerate(shapes)]
        sides += [np.concatenate(rows).astype(np.uint16), offsets_of(np.array([len(row) for row in rows]))]
    return TokenPairs(*sides, np.arange(len(shapes)), {}, 0, 256, 0, 0)


def rows_of(batch) -> list[tuple[list[int], list[int]]]:
    """The pairs of a batch, after checking that it is padded and shifted as it should be."""
    assert batch.source.dtype == batch.tokens.dtype == batch.targets.dtype == np.int64
    found = []
    rows = zip(batch.source, batch.source_lengths, batch.tokens, batch.targets, batch.lengths)
    for source, source_length, tokens, targets, length in rows:
        assert not source[source_length - 1 :].any()
        assert not targets[length - 1 :].any()
        assert not tokens[length:].any()
        assert tokens[0] == 0
        assert tokens[1:length].tolist() == targets[: length - 1].tolist()
        found.append((source[:source_length].tolist(), targets[:length].tolist()))
    assert batch.source.shape[1] == batch.source_lengths.max()
    assert batch.tokens.shape == batch.targets.shape == (len(batch.source), batch.lengths.max())
    return found


def all_rows(pairs):
    return sorted((pairs.source_of(i).tolist(), pairs.target_of(i).tolist()) for i in range(len(pairs)))


@law
@given(shapes=shapes, budget=budgets, seed=seeds, epoch=st.integers(0, 5))
def test_every_pair_comes_once_per_epoch_within_the_budget(shapes, budget, seed, epoch):
    pairs = numbered(shapes)
    batches = PairBatches(pairs, budget, seed)
    steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
    seen = []
    for step in steps:
        batch = batches.batch(step)
        assert batch.source.size + batch.tokens.size <= budget
        assert len(batch.source) >= 1
        assert batch.fresh
        seen += rows_of(batch)
    assert sorted(seen) == all_rows(pairs)


def same(one, other) -> bool:
    names = ("source", "source_lengths", "tokens", "targets", "lengths")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@law
@given(shapes=shapes, budget=budgets, seed=seeds, steps=st.lists(st.integers(0, 200), max_size=5))
def test_a_batch_depends_on_its_step_alone(shapes, budget, seed, steps):
    walked = PairBatches(numbered(shapes), budget, seed)
    for step in steps:
        assert same(walked.batch(step), PairBatches(numbered(shapes), budget, seed).batch(step))


TEXT = "they are watching the watchers watch she watched it"
TOKENIZER = Tokenizer.train([TEXT] * 3, "bpe", 320)
sentences = st.lists(
    st.lists(st.sampled_from(TEXT.split()), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=30
)


@law
@given(sources=sentences, seed=st.integers(0, 99), steps=st.lists(st.integers(0, 60), max_size=4))
def test_with_dropout_too_every_pair_comes_once_and_training_resumes(sources, seed, steps):
    pairs = Pairs(sources, sources[::-1])
    plain = encode_pairs(pairs, TOKENIZER, TOKENIZER)

    def new():
        return PairBatches(plain, 120, seed, epochs=DropoutPairs(pairs, plain, TOKENIZER, TOKENIZER, 0.3, seed).epoch)

    batches = new()
    for epoch in range(3):
        seen = []
        for place in range(batches.steps_per_epoch):
            seen += rows_of(batches.batch(epoch * batches.steps_per_epoch + place))
        texts = [(TOKENIZER.decode(source[:-1]), TOKENIZER.decode(target[:-1])) for source, target in seen]
        assert sorted(texts) == sorted(zip(pairs.sources, pairs.targets))
    for step in steps:
        assert same(batches.batch(step), new().batch(step))


def test_epochs_and_seeds_differ_in_order_and_company():
    random = np.random.default_rng(0)
    pairs = numbered(random.integers(5, 25, (500, 2)).tolist())

    def companies(seed, epoch):
        batches = PairBatches(pairs, 600, seed)
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        return [frozenset(batches.batch(step).targets[:, 0].tolist()) for step in steps]

    for other in ((1, 1), (2, 0)):
        assert len(set(companies(1, 0)) & set(companies(*other))) < 0.2 * len(companies(1, 0))


def test_little_is_padding():
    random = np.random.default_rng(0)
    source = random.gamma(6, 2.5, 5000).astype(int) + 2
    target = np.maximum(1, source + random.normal(0, 3, 5000)).astype(int)
    batches = PairBatches(numbered(list(zip(source.tolist(), target.tolist()))), 4096, 0)
    padded = [batch.source.size + batch.tokens.size for batch in map(batches.batch, range(batches.steps_per_epoch))]
    real = source.sum() + target.sum() + 2 * 5000
    assert real / sum(padded) > 0.88
    assert np.mean(padded) > 0.93 * 4096


@law
@given(shapes=shapes, budget=st.integers(1, 400))
@example(shapes=[(0, 0)] * 3, budget=4)
@example(shapes=[(0, 1)] * 3, budget=6)
def test_a_batch_has_as_many_pairs_as_fit(shapes, budget):
    pairs = numbered(shapes)
    for (_, rows), (_, following) in pairwise(pair_batches_in_order(pairs, budget)):
        more = [*rows, following[0]]
        assert len(more) * (pairs.source_lengths[more].max() + pairs.target_lengths[more].max()) > budget


@law
@given(shapes=shapes, budget=st.integers(1, 400))
def test_evaluation_reads_every_pair_once_and_knows_which(shapes, budget):
    pairs = numbered(shapes)
    seen = []
    for batch, indices in pair_batches_in_order(pairs, budget):
        assert batch.source.size + batch.tokens.size <= budget or len(indices) == 1
        for index, row in zip(indices.tolist(), rows_of(batch)):
            assert row == (pairs.source_of(index).tolist(), pairs.target_of(index).tolist())
            seen.append(index)
    assert sorted(seen) == list(range(len(shapes)))


def test_what_fits_no_batch_is_refused():
    with pytest.raises(RegardError, match="A pair has 52 tokens, more than a batch of 50 holds"):
        PairBatches(numbered([(3, 3), (25, 25)]), 50, 0)
    with pytest.raises(RegardError, match="No pairs are left to train on"):
        PairBatches(encode_pairs(Pairs([""], ["a"]), TOKENIZER, TOKENIZER), 50, 0)


@law
@given(rows=st.lists(st.integers(1, 9), min_size=1, max_size=12), data=st.data())
@example(rows=[3, 1], data=None)
def test_batches_are_halved_until_there_are_enough_and_none_is_empty(rows, data):
    bounds = np.concatenate([[0], np.cumsum(rows)])
    steps = data.draw(st.integers(len(rows), sum(rows))) if data else sum(rows)
    found = _halved(bounds, steps)
    assert len(found) == steps + 1
    assert (np.diff(found) > 0).all()
    assert set(bounds.tolist()) <= set(found.tolist())
    if steps > len(rows):
        assert np.diff(found).max() <= max(rows)


def test_with_dropout_an_epoch_has_one_step_in_a_hundred_to_spare():
    """Here two of 400 pairs fill a batch."""
    pairs = numbered([(4, 4)] * 400)
    assert PairBatches(pairs, 20, 0).steps_per_epoch == 200
    assert PairBatches(pairs, 20, 0, epochs=lambda _: pairs).steps_per_epoch == 202
    assert PairBatches(pairs, 10, 0, epochs=lambda _: pairs).steps_per_epoch == 400  # no step without a pair


def test_an_epoch_has_the_steps_that_the_exact_order_and_the_first_four_epochs_need():
    """What an earlier version began goes on with the same number of steps."""
    random = np.random.default_rng(2)
    decided = 0
    for seed in range(40):
        batches = PairBatches(numbered(random.integers(0, 25, (30, 2)).tolist()), 70, seed)
        pairs = batches._plain
        orders = [batches._order(pairs, None), *(batches._order(pairs, batches._random(n, 0)) for n in range(9))]
        steps = [len(batches._cut(pairs, order)) - 1 for order in orders]
        assert batches.steps_per_epoch == max(steps[:5])
        decided += max(steps[:5]) != max(steps[:6])
    assert decided
