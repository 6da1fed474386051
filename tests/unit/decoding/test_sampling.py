"""Choosing a token: what is forbidden never comes, what is drawn follows the distribution, batches change nothing."""

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.decoding.sampling import GREEDY, Sampling, choose, mask_tokens, sampling_probabilities, uniforms

LOGITS = torch.log(torch.tensor([[0.5, 0.25, 0.15, 0.1]]))


def numbers(seed, rows, steps):
    stream = uniforms(seed, rows)
    return torch.stack([next(stream) for _ in range(steps)], dim=1)


def draws(sampling, count=4000):
    uniform = numbers(3, 1, count)[0]
    chosen = choose(LOGITS.expand(count, -1), sampling, uniform)
    return np.bincount(chosen.numpy(), minlength=4) / count


def test_draws_follow_the_distribution():
    assert np.abs(draws(Sampling()) - [0.5, 0.25, 0.15, 0.1]).max() < 0.03


def test_temperature_sharpens_as_a_power():
    power = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    assert np.abs(draws(Sampling(temperature=0.5)) - power / power.sum()).max() < 0.03


def test_top_k_and_top_p_cut_the_tail_and_keep_the_proportions():
    assert np.abs(draws(Sampling(top_k=2)) - [2 / 3, 1 / 3, 0, 0]).max() < 0.03
    assert np.abs(draws(Sampling(top_p=0.7)) - [2 / 3, 1 / 3, 0, 0]).max() < 0.03
    assert draws(Sampling(top_p=1e-9))[0] == 1


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.5), Sampling(top_k=2), Sampling(2.0, 3, 0.7), GREEDY])
def test_the_chances_that_are_told_are_those_of_the_draws(sampling):
    told = sampling_probabilities(LOGITS, sampling)[0]
    assert float(told.sum()) == pytest.approx(1.0)
    assert np.abs(draws(sampling) - told.numpy()).max() < 0.03


def test_temperature_zero_is_greedy():
    assert choose(LOGITS, GREEDY, torch.zeros(1)).item() == 0


def test_a_forbidden_token_is_never_chosen_even_at_the_edge_of_the_draw():
    logits = mask_tokens(LOGITS, [0, 3])
    for u in (0.0, 0.5, 1 - 1e-12):
        assert choose(logits, Sampling(), torch.tensor([u], dtype=torch.float64)).item() in (1, 2)


def test_a_rows_random_numbers_do_not_depend_on_its_batch_mates():
    assert torch.equal(numbers(5, 2, 9), numbers(5, 7, 9)[:2])
    assert not torch.equal(numbers(5, 1, 9), numbers(6, 1, 9))


def test_any_temperature_gives_a_distribution():
    for temperature in (1e-320, 1e-9, 1e300):
        assert choose(LOGITS, Sampling(temperature), torch.tensor([0.3])).item() in (0, 1)


def test_predictions_that_are_not_numbers_are_refused():
    with pytest.raises(RegardError, match="damaged"):
        choose(torch.full((1, 4), torch.nan), Sampling(), torch.zeros(1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
    ],
)
def test_a_wrong_value_is_refused(wrong):
    with pytest.raises(RegardError):
        Sampling(**wrong)


@pytest.mark.parametrize("vocabulary", [1, 2, 255, 256, 257, 5000])
@pytest.mark.parametrize(
    "sampling", [Sampling(0.7), Sampling(1.3, top_k=7), Sampling(top_p=0.6), Sampling(2.0, 9, 0.8)]
)
def test_a_draw_is_where_the_running_sum_of_the_weights_passes_it(vocabulary, sampling):
    """Against NumPy, which sorts to find the set and then sums up in the order of the vocabulary."""
    logits = torch.randn(40, vocabulary, generator=torch.Generator().manual_seed(vocabulary)).double() * 3
    uniform = numbers(1, 40, 1)[:, 0]
    for row, u, token in zip(logits.numpy(), uniform.numpy(), choose(logits, sampling, uniform).tolist()):
        weights = np.exp((row - row.max()) / sampling.temperature)
        order = np.argsort(-row)
        if sampling.top_k:
            weights[order[sampling.top_k :]] = 0
        before = np.cumsum(weights[order]) - weights[order]
        weights[order[before >= sampling.top_p * weights.sum()]] = 0
        assert token == np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right")


def test_words_as_probable_as_the_last_of_a_set_belong_to_it():
    """So that what is drawn does not depend on how ties were sorted."""
    logits = torch.tensor([[2.0, 1.0, 1.0, 0.0, 1.0]]).expand(500, -1)
    uniform = numbers(0, 1, 500)[0]
    assert set(choose(logits, Sampling(top_k=2), uniform).tolist()) == {0, 1, 2, 4}
    assert set(choose(logits, Sampling(top_p=0.5), uniform).tolist()) == {0, 1, 2, 4}
