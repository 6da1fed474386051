"""Intervals are those of Student, of Wilson and of the bootstrap's formula, and cover what they say."""

import math

import numpy as np
import pytest

from regard.evaluation.intervals import (
    Resampling,
    interval,
    mean_loss,
    share_interval,
    student_interval,
    student_quantile,
)


@pytest.mark.parametrize("probability", [0.5, 0.6, 0.75, 0.975, 0.995])
def test_students_t_with_two_and_four_degrees_of_freedom_has_a_closed_form(probability):
    spread = 4 * probability * (1 - probability)
    two = (2 * probability - 1) * math.sqrt(2 / spread)
    four = 2 * math.sqrt(math.cos(math.acos(math.sqrt(spread)) / 3) / math.sqrt(spread) - 1)
    assert student_quantile(probability, 2) == pytest.approx(two, rel=1e-5, abs=1e-6)
    assert student_quantile(probability, 4) == pytest.approx(four, rel=1e-5, abs=1e-6)


def test_of_many_numbers_students_t_is_normal():
    assert student_quantile(0.975, 10_000) == pytest.approx(1.959964 * (1 + (1.959964**2 + 1) / 4 / 10_000), rel=1e-5)


@pytest.mark.parametrize(("successes", "trials", "level"), [(0, 4, 0.95), (3, 10, 0.95), (9, 10, 0.5), (7, 7, 0.99)])
def test_at_the_ends_of_wilsons_interval_what_was_seen_is_just_as_far_as_the_level_allows(successes, trials, level):
    z = {0.5: 0.67449, 0.95: 1.959964, 0.99: 2.575829}[level]
    seen = successes / trials
    for end in share_interval(successes, trials, level):
        assert (seen - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / trials, rel=1e-4, abs=1e-12)


def test_the_spread_of_the_draws_is_that_of_seeds_and_documents():
    """With one document's worth of spread or one of seeds' alone, the interval is Student's of that sample."""
    random = np.random.default_rng(1)
    tokens = np.full(12, 50)
    by_document = random.normal(150, 10, (1, 12))
    draws = Resampling(tokens, 40_000).losses(by_document)
    means = by_document[0] / 50
    low, high = interval(draws)
    reach = 2.201 * means.std(ddof=1) / math.sqrt(12)  # t of 11 degrees of freedom, two-sided 95 %
    assert [low, high] == pytest.approx([means.mean() - reach, means.mean() + reach], abs=0.12 * reach)
    by_seed = np.repeat(random.normal(150, 10, (4, 1)), 12, axis=1)
    draws = Resampling(tokens, 40_000).losses(by_seed)
    means = by_seed[:, 0] / 50
    low, high = interval(draws)
    reach = 3.182 * means.std(ddof=1) / 2  # 3 degrees of freedom, √4
    assert [low, high] == pytest.approx([means.mean() - reach, means.mean() + reach], abs=0.08 * reach)
    assert np.std(Resampling(tokens, 100).losses(by_seed, stream=1) - Resampling(tokens, 100).losses(by_seed)) > 0


@pytest.mark.parametrize(("seeds", "documents"), [(1, 2), (2, 2), (3, 7), (2, 1)])
def test_each_draw_is_that_of_the_formula(seeds, documents):
    """loss + √(D/(D−1)) (loss of drawn documents − loss) √((D−1)/χ²) + s/√S z √((S−1)/χ²), drawn in this order."""
    count, stream = 50, 4
    tokens = np.arange(10.0, 10.0 + documents)
    nats = np.random.default_rng(2).normal(30, 5, (seeds, documents))
    random = np.random.Generator(np.random.Philox(key=[documents, count]))
    times = random.multinomial(documents, [1 / documents] * documents, size=count)
    loss = nats.sum() / seeds / tokens.sum()
    expected = np.array([(row * nats.mean(0)).sum() / (row * tokens).sum() - loss for row in times])
    if documents > 1:
        freedom = documents - 1
        expected *= np.sqrt(documents / freedom) * np.sqrt(freedom / random.chisquare(freedom, count))
    if seeds > 1:
        random = np.random.Generator(np.random.Philox(key=[seeds, stream]))
        means, normal = nats.sum(1) / tokens.sum(), random.standard_normal(count)
        chance = np.sqrt((seeds - 1) / random.chisquare(seeds - 1, count))
        expected = expected + np.std(means, ddof=1) / np.sqrt(seeds) * normal * chance
    assert np.allclose(Resampling(tokens, count).losses(nats, stream), loss + expected)


def test_the_mean_loss_is_over_all_tokens_and_not_over_documents():
    assert mean_loss(np.array([[10.0, 300.0], [20.0, 310.0]]), np.array([10, 90])) == pytest.approx(3.2)


def test_two_numbers_have_an_interval_and_one_has_none():
    low, high = student_interval([1.0, 3.0])
    assert (low, high) == pytest.approx((2 - 12.706, 2 + 12.706), abs=1e-2)  # s/√2 = 1, t of one degree of freedom
    assert student_interval([5.0]) == (-math.inf, math.inf)
    reach = 4.302653 * math.sqrt(3)  # of three: s = 3, s/√3 = √3, t of two degrees of freedom
    assert student_interval([0.0, 3.0, 6.0]) == pytest.approx((3 - reach, 3 + reach), rel=1e-5)


def test_the_interval_of_a_share_is_one_of_shares_whatever_is_rounded():
    for trials in range(1, 300):
        assert share_interval(0, trials)[0] == pytest.approx(0.0, abs=1e-12)
        assert 0.0 <= share_interval(0, trials)[0] <= share_interval(trials, trials)[1] <= 1.0
    low, high = share_interval(3, 10)
    assert (low, high) == pytest.approx((0.1078, 0.6032), abs=1e-4)  # Wilson's, from a table
    assert share_interval(7, 10) == pytest.approx((1 - high, 1 - low))
    narrow = share_interval(3, 10, level=0.5)
    assert low < narrow[0] < 0.3 < narrow[1] < high


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_an_interval_is_the_middle_of_the_draws(level):
    draws = np.arange(1001.0)
    tail = 1000 * (1 - level) / 2
    assert interval(draws, level) == pytest.approx((tail, 1000 - tail))
    assert interval(np.array([1.0, math.inf])) is None


def coverage(seeds, documents, seed_spread, document_spread, trials=300, draws=1000):
    """How often the 95 % interval holds the loss that all seeds and documents have in common."""
    random, truth, hits = np.random.default_rng(7), 4.0, 0
    for _ in range(trials):
        tokens = np.round(500 * np.exp(0.3 * random.standard_normal(documents)))
        hard = document_spread * (2 * random.gamma(4, 0.25, documents) - 2)  # skewed, mean 0
        luck = seed_spread * random.standard_normal((seeds, 1))
        nats = (truth + hard + luck + 0.02 * random.standard_normal((seeds, documents))) * tokens
        low, high = interval(Resampling(tokens, draws).losses(nats))
        hits += low <= truth <= high
    return hits / trials


@pytest.mark.parametrize(
    ("seeds", "documents", "seed_spread", "document_spread"),
    [(1, 20, 0.0, 0.2), (1, 100, 0.0, 0.2), (2, 20, 0.05, 0.0), (3, 20, 0.05, 0.0), (5, 20, 0.05, 0.0)],
)
def test_a_95_percent_interval_covers_95_percent(seeds, documents, seed_spread, document_spread):
    assert 0.91 <= coverage(seeds, documents, seed_spread, document_spread) <= 0.985


@pytest.mark.parametrize("seeds", [2, 3])
def test_where_seeds_and_documents_both_vary_it_covers_at_least_that(seeds):
    assert coverage(seeds, 40, 0.03, 0.2) >= 0.93


def test_a_difference_is_paired_and_so_tighter_than_either_interval():
    random = np.random.default_rng(1)
    tokens = np.full(50, 500.0)
    hard = random.normal(4, 0.5, 50)  # what is hard for one is hard for the other
    one, other = hard * tokens, (hard + 0.02 + 0.01 * random.standard_normal(50)) * tokens
    resampling = Resampling(tokens)
    draws = [resampling.losses(nats[None], stream) for stream, nats in enumerate((one, other))]
    (low, high), (low_other, _) = interval(draws[0]), interval(draws[1])
    assert low_other < high  # the intervals overlap …
    below, above = interval(draws[0] - draws[1])
    assert above < 0  # … and yet one is better, on the same documents
    assert above - below < (high - low) / 5


def test_draws_are_the_same_every_time_and_an_infinite_loss_has_no_interval():
    tokens, nats = np.full(30, 100.0), np.random.default_rng(0).random((3, 30)) * 100
    assert (Resampling(tokens).losses(nats, 2) == Resampling(tokens).losses(nats, 2)).all()
    assert len(Resampling(tokens).losses(nats)) == 10_000
    nats[0, 0] = math.inf
    assert interval(Resampling(tokens).losses(nats)) is None
