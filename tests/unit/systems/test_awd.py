"""What makes an LSTM an AWD-LSTM: rates for each place, and penalties that are paid only while training."""

import pytest
import torch

from regard.base.errors import RegardError
from regard.systems.lstm import LSTMModel, Settings

TOKENS = torch.arange(12).view(2, 6) % 9


def model(**settings):
    torch.manual_seed(0)
    return LSTMModel(9, Settings(layers=2, width=6, **settings)).double()


def test_a_place_without_a_rate_of_its_own_has_the_common_one():
    plain, own = model(dropout=0.4), model(dropout=0.4, dropout_input=0.65, dropout_between=0.0)
    assert (plain.entry.p, plain.between.p, plain.finish.p) == (0.4, 0.4, 0.4)
    assert (own.entry.p, own.between.p, own.finish.p) == (0.65, 0.0, 0.4)
    with pytest.raises(RegardError, match="dropout_input must be at least 0"):
        Settings(dropout_input=-0.5)


def test_the_penalties_are_the_papers_means():
    paying = model(dropout=0.0, variational=True, penalty_size=2.0, penalty_change=1.0)
    free = model(dropout=0.0, variational=True)
    cost = paying.train().loss(TOKENS, TOKENS)[0] - free.train().loss(TOKENS, TOKENS)[0]  # [R, T]
    hidden, _ = free.read(TOKENS)
    columns = TOKENS.size(1)
    size, change = 2.0 * hidden.pow(2).mean(), (hidden[:, 1:] - hidden[:, :-1]).pow(2).mean()
    torch.testing.assert_close(cost.mean(), size + change * (columns - 1) / columns)


def test_the_change_is_on_average_that_of_the_raw_outputs():
    dropping = model(dropout=0.4, dropout_input=0.0, dropout_between=0.0, variational=True, penalty_change=1.0).train()
    hidden, _ = dropping.eval().read(TOKENS)
    raw = hidden.diff(dim=1).square().mean(dim=-1)
    dropping.train()
    drawn = torch.stack([dropping._penalty(dropping.read(TOKENS)[0])[:, 1:] for _ in range(1500)]).mean(0)
    torch.testing.assert_close(drawn, raw, rtol=0.2, atol=0.0)


def test_nothing_is_paid_when_it_is_tested_or_where_there_is_padding():
    paying, free = model(dropout=0.0, variational=True, penalty_size=2.0, penalty_change=1.0), model(dropout=0.0)
    assert torch.equal(paying.eval().loss(TOKENS, TOKENS)[0], free.eval().loss(TOKENS, TOKENS)[0])
    padded, _ = paying.train().loss(TOKENS, TOKENS, None, torch.tensor([6, 2]))
    assert (padded[1, 2:] == 0).all()


def test_the_penalty_on_change_needs_one_mask_for_all_steps():
    with pytest.raises(RegardError, match=r"model\.variational to true"):
        Settings(penalty_change=1.0)
