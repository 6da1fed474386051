"""Intervals are those of Student, Welch and Wilson, and cover what they say; power and many pairs as in statsmodels."""

import math

import numpy as np
import pytest

from regard.evaluation.intervals import (
    detectable,
    document_losses,
    holm,
    interval,
    mean_loss,
    mean_score,
    paired_difference,
    seeds_needed,
    share_interval,
    student_interval,
    student_quantile,
    student_tail,
)


@pytest.mark.parametrize("probability", [0.5, 0.6, 0.75, 0.975, 0.995])
def test_students_t_with_two_and_four_degrees_of_freedom_has_a_closed_form(probability):
    spread = 4 * probability * (1 - probability)
    two = (2 * probability - 1) * math.sqrt(2 / spread)
    four = 2 * math.sqrt(math.cos(math.acos(math.sqrt(spread)) / 3) / math.sqrt(spread) - 1)
    assert student_quantile(probability, 2) == pytest.approx(two, rel=1e-5, abs=1e-6)
    assert student_quantile(probability, 4) == pytest.approx(four, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [
        (0.975, 1, 12.706205),
        (0.975, 1.7, 5.118839),
        (0.975, 3.4, 2.980774),
        (0.995, 4, 4.604095),
        (0.9, 250.5, 1.28494),
    ],
)
def test_quantiles_are_those_of_scipy_also_between_whole_degrees_of_freedom(probability, freedom, quantile):
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=1e-5)


@pytest.mark.parametrize(
    ("value", "freedom", "above"),
    [(0.5, 1.5, 0.340284), (2.0, 3, 0.069663), (3.3, 7.2, 0.0063012), (5, 12, 0.000154656), (6, 40, 2.36323e-07)],
)
def test_tails_are_those_of_scipy(value, freedom, above):
    assert student_tail(value, freedom) == pytest.approx(above, rel=1e-4, abs=1e-8)


def test_of_many_numbers_students_t_is_normal():
    assert student_quantile(0.975, 10_000) == pytest.approx(1.959964 * (1 + (1.959964**2 + 1) / 4 / 10_000), rel=1e-5)


@pytest.mark.parametrize(("successes", "trials", "level"), [(0, 4, 0.95), (3, 10, 0.95), (9, 10, 0.5), (7, 7, 0.99)])
def test_at_the_ends_of_wilsons_interval_what_was_seen_is_just_as_far_as_the_level_allows(successes, trials, level):
    z = {0.5: 0.67449, 0.95: 1.959964, 0.99: 2.575829}[level]
    seen = successes / trials
    for end in share_interval(successes, trials, level):
        assert (seen - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / trials, rel=1e-4, abs=1e-12)


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


# -- two-way intervals -----------------------------------------------------------------------------------------------


def test_with_one_seed_a_difference_is_the_paired_t_test():
    """scipy.stats.ttest_rel([1, 2, 4, 3, 5], [1.5, 2.1, 4.9, 3.3, 5.4]), with its confidence interval."""
    found = paired_difference(np.array([[1.0, 2, 4, 3, 5]]), np.array([[1.5, 2.1, 4.9, 3.3, 5.4]]))
    assert found.interval() == pytest.approx((-0.80833707, -0.07166293), rel=1e-5)
    assert found.p_value == pytest.approx(0.029471316, rel=1e-5)
    assert found.freedom == 4


def test_where_documents_do_not_vary_a_difference_is_welchs_test():
    """scipy.stats.ttest_ind([2.1, 2.4, 2.2], [2.6, 2.5, 2.9, 2.55], equal_var=False)."""
    first, second = np.array([[2.1], [2.4], [2.2]]), np.array([[2.6], [2.5], [2.9], [2.55]])
    found = paired_difference(np.repeat(first, 9, axis=1), np.repeat(second, 9, axis=1))
    assert (found.p_value, found.freedom) == pytest.approx((0.024883145, 4.83432989), rel=1e-5)


def scores(random, seeds, documents, spread=0.02, apart=0.05, noise=0.03):
    """Two systems that are equal on average, as [2, S, D]: seeds differ, documents differ, and both together."""
    found = spread * random.standard_normal((2, seeds, 1)) + noise * random.standard_normal((2, seeds, documents))
    found[0] += apart * random.standard_normal(documents)
    return found


def test_the_estimated_variance_is_that_of_the_difference():
    """Over many experiments the mean of V is the variance of the estimates: no part is missing or counted twice."""
    random = np.random.default_rng(3)
    found = [paired_difference(*scores(random, 4, 12)) for _ in range(3000)]
    true = 0.05**2 / 12 + 2 * (0.02**2 / 4 + 0.03**2 / 48)
    assert np.mean([one.variance for one in found]) == pytest.approx(true, rel=0.04)
    assert np.var([one.value for one in found]) == pytest.approx(true, rel=0.08)


@pytest.mark.parametrize(("seeds", "low", "high"), [(2, 0.92, 0.99), (3, 0.93, 0.985), (5, 0.93, 0.98)])
@pytest.mark.parametrize("apart", [0.0, 0.05])
def test_a_95_percent_interval_covers_95_percent(seeds, low, high, apart):
    """The bootstrap that this replaced covered 99 to 100 % with two seeds, and 98 to 99 % with three."""
    random = np.random.default_rng(7)
    inside = [paired_difference(*scores(random, seeds, 30, apart=apart)).interval() for _ in range(1000)]
    assert low <= np.mean([below <= 0 <= above for below, above in inside]) <= high


def test_seeds_that_happen_to_agree_are_not_taken_for_all_seeds():
    """Where e_sd hides the spread of seeds, V_seeds − V_both is often negative; two seeds still know little."""
    random, inside = np.random.default_rng(9), []
    for _ in range(1500):
        low, high = paired_difference(*scores(random, 2, 20, spread=0.01, apart=0.0)).interval()
        inside.append(low <= 0 <= high)
    assert np.mean(inside) >= 0.94  # 0.92 with D − 1 degrees of freedom where the part of the seeds is negative


def test_one_seed_covers_the_difference_of_two_runs_and_not_that_of_two_systems():
    random = np.random.default_rng(8)
    luck = 0.04 * random.standard_normal((300, 2, 1, 1))
    runs = luck + 0.03 * random.standard_normal((300, 2, 1, 50))
    inside = [paired_difference(*pair).interval() for pair in runs]
    of_runs = [low <= a - b <= high for (low, high), (a, b) in zip(inside, luck[:, :, 0, 0])]
    of_systems = [low <= 0 <= high for low, high in inside]
    assert np.mean(of_runs) > 0.91
    assert np.mean(of_systems) < 0.4


def test_a_difference_is_paired_and_so_tighter_than_either_interval():
    random = np.random.default_rng(1)
    hard = random.normal(4, 0.5, 50)  # what is hard for one is hard for the other
    one, other = hard[None], (hard + 0.02 + 0.01 * random.standard_normal(50))[None]
    (low, high), (low_other, _) = mean_score(one).interval(), mean_score(other).interval()
    assert low_other < high  # the intervals overlap …
    below, above = paired_difference(one, other).interval()
    assert above < 0  # … and yet one is better, on the same documents
    assert above - below < (high - low) / 5


def test_a_score_that_is_not_finite_and_a_single_document_have_no_interval():
    assert paired_difference(np.array([[1.0, math.inf]]), np.array([[1.0, 2.0]])).interval() is None
    assert mean_score(np.array([[1.0], [2.0]])).interval() is None
    same = paired_difference(np.ones((2, 5)), np.ones((3, 5)))
    assert (same.interval(), same.p_value) == ((0.0, 0.0), 1.0)


def test_losses_by_document_have_the_mean_over_all_tokens_and_the_spread_of_a_ratio():
    random = np.random.default_rng(2)
    tokens = random.integers(50, 400, 30).astype(float)
    nats = tokens * random.normal(4, 0.3, (2, 30))
    losses = document_losses(nats, tokens)
    assert losses.mean() == pytest.approx(mean_loss(nats, tokens))
    without = [(nats[0].sum() - nats[0, d]) / (tokens.sum() - tokens[d]) for d in range(30)]  # the jackknife, an oracle
    jackknife = 29 / 30 * np.sum((without - np.mean(without)) ** 2)
    assert losses[0].var(ddof=1) / 30 == pytest.approx(jackknife, rel=0.1)


# -- many pairs, and power -------------------------------------------------------------------------------------------


def test_holms_correction_is_that_of_statsmodels():
    """statsmodels.stats.multitest.multipletests(method="holm")."""
    assert holm([0.01, 0.04, 0.03, 0.005, 0.5, 0.012]) == pytest.approx([0.05, 0.09, 0.09, 0.03, 0.5, 0.05])
    assert holm([]) == []


def test_of_many_equal_systems_holm_calls_any_pair_different_as_rarely_as_one_pair():
    random, false = np.random.default_rng(5), 0
    for _ in range(300):
        runs = 0.02 * random.standard_normal((4, 3, 1)) + 0.03 * random.standard_normal((4, 3, 20))
        pairs = [paired_difference(runs[a], runs[b]).p_value for a in range(4) for b in range(a)]
        false += min(holm(pairs)) <= 0.05
    assert false / 300 <= 0.07


@pytest.mark.parametrize(("seeds", "smallest"), [(3, 3.0709), (5, 2.0244), (10, 1.3249)])
def test_the_detectable_difference_is_that_of_a_two_sample_t_test(seeds, smallest):
    """statsmodels.stats.power.TTestIndPower().solve_power(nobs1=seeds, power=0.8, alpha=0.05), of a spread of 1."""
    assert detectable(0.0, 2.0, seeds) == pytest.approx(smallest, rel=0.02)


@pytest.mark.parametrize(("difference", "seeds"), [(2.0, 6), (1.0, 17), (0.5, 64)])
def test_the_needed_seeds_are_those_of_a_two_sample_t_test(difference, seeds):
    assert seeds_needed(difference, 0.0, 2.0) == pytest.approx(seeds, abs=1)
    assert seeds_needed(-difference, 0.0, 2.0) == seeds_needed(difference, 0.0, 2.0)


def test_no_number_of_seeds_shows_a_difference_that_the_text_hides():
    assert seeds_needed(0.01, 0.01**2, 0.02**2) is None
    assert seeds_needed(0.1, 0.0, 0.0) == 3


def test_a_detectable_difference_is_found_in_four_of_five_comparisons():
    random = np.random.default_rng(11)
    smallest = detectable(0.05**2 / 40, 2 * 0.02**2, 4)
    found = 0
    for _ in range(500):
        first, second = scores(random, 4, 40, noise=0.001)
        found += paired_difference(first + smallest, second).p_value < 0.05
    assert 0.74 <= found / 500 <= 0.9


def test_a_difference_that_is_the_same_everywhere_has_as_many_degrees_of_freedom_as_documents_less_one():
    found = paired_difference(np.array([[2.0, 3.0, 5.0]]), np.array([[1.0, 2.0, 4.0]]))
    assert (found.value, found.variance, found.freedom) == (1.0, 0.0, 2.0)
