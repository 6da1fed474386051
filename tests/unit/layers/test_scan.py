"""The minimal GRU's scan is its recurrence, at every length, and its tree is shallow."""

import pytest
import torch

from regard.claims.chains import longest_chain
from regard.layers.scan import MinGRU, scan
from regard.layers.state import Span


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13, 64, 100])
def test_a_tree_of_pairs_is_the_chain_values_and_gradients(steps):
    torch.manual_seed(steps)
    keep = torch.rand(2, steps, 3, dtype=torch.float64, requires_grad=True)
    add = torch.randn(2, steps, 3, dtype=torch.float64, requires_grad=True)
    hidden, chain = torch.zeros(2, 3, dtype=torch.float64), []
    for a, b in zip(keep.unbind(1), add.unbind(1), strict=True):
        hidden = a * hidden + b
        chain.append(hidden)
    wanted, found = torch.stack(chain, dim=1), scan(keep, add)
    torch.testing.assert_close(found, wanted)
    weigh = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad((found * weigh).sum(), [keep, add], materialize_grads=True),
        torch.autograd.grad((wanted * weigh).sum(), [keep, add], materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_nothing_overflows_where_a_gate_forgets_all_or_nothing():
    keep = torch.tensor([0.0, 1.0]).repeat(5000)[None, :, None].requires_grad_()
    found = scan(keep, torch.ones(1, 10000, 1))
    assert found[0, :4, 0].tolist() == [1.0, 2.0, 1.0, 2.0]
    found.sum().backward()
    assert keep.grad.isfinite().all()


def test_the_longest_chain_grows_with_the_logarithm_of_the_length():
    layer = MinGRU(4, 4)
    depth = {}
    for steps in (16, 32, 64, 128, 256):
        x = torch.randn(1, steps, 4, requires_grad=True)
        state = layer.begin(1, device="cpu", dtype=torch.float32)
        depth[steps] = longest_chain(layer(x, state, Span(torch.tensor([0])))[0])
    gained = [more - fewer for fewer, more in zip(depth.values(), list(depth.values())[1:], strict=False)]
    assert len(set(gained)) == 1  # twice the words: the same few operations more
    assert 0 < gained[0] <= 12
