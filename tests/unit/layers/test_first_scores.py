"""The size of the first scores: with components of size 1 those of every learned score are about 1, at any width."""

import pytest
import torch

from regard.layers.scores import Additive, Bilinear, Dot, ScaledDot


@torch.no_grad()
def size(score, query_width, key_width):
    torch.manual_seed(0)
    found = []
    for _ in range(20):  # first weights
        made = score(query_width, key_width)
        query, keys = torch.randn(1, 30, query_width), torch.randn(1, 30, key_width)
        found.append(made.compare(query, made.prepare(keys)).flatten())
    return float(torch.cat(found).std())


@pytest.mark.parametrize("widths", [(16, 16), (256, 256), (16, 256), (256, 16)])
def test_bilinear_scores_begin_with_the_size_of_scaled_dot_products(widths):
    assert size(Bilinear, *widths) == pytest.approx(1, abs=0.15)
    if len({*widths}) == 1:
        assert size(ScaledDot, *widths) == pytest.approx(1, abs=0.15)
        assert size(Dot, *widths) == pytest.approx(widths[0] ** 0.5, rel=0.15)


@pytest.mark.parametrize("width", [16, 64, 256])
def test_additive_scores_begin_no_larger_than_scaled_dot_products(width):
    """v has √width components of size 1/√width: the sum of its tanhs stays below 1, whatever the width."""
    assert 0.1 < size(Additive, width, width) < 1
