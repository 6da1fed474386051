"""What a layer sums up over a text stays in fp32 when the model is in bf16: a bf16 sum forgets small words."""

import pytest
import torch

from regard.layers.blocks import FeedForward
from regard.layers.context import Average
from regard.layers.matrix_state import LinearAttention
from regard.layers.scan import MinGRU, MinGRUBlock
from regard.layers.state import Span

SUMS = {
    "average": lambda: Average(8),
    "minimal gru": lambda: MinGRU(8, 8),
    "minimal gru's block": lambda: MinGRUBlock(8, 8, FeedForward(8, 16)),
    "linear attention": lambda: LinearAttention(8, 2),
    "linear attention, gated": lambda: LinearAttention(8, 2, decay="gated"),
    "linear attention, delta": lambda: LinearAttention(8, 2, rule="delta"),
}


def walk(layer, x, path="forward", capacity=None):
    """The state and its leaves' types after each word, one call for each."""
    state = layer.begin(1, capacity=capacity, device="cpu", dtype=x.dtype)
    types = {leaf.dtype for leaf in state.values()}
    for t in range(x.size(1)):
        _, state, *_ = getattr(layer, path)(x[:, t : t + 1], state, Span(torch.tensor([t])))
        types |= {leaf.dtype for leaf in state.values()}
    return state, types


@pytest.mark.parametrize("capacity", [None, 400])
@pytest.mark.parametrize("path", ["forward", "explain"])
@pytest.mark.parametrize("name", SUMS)
@torch.no_grad()
def test_a_state_that_is_a_sum_is_kept_in_fp32(name, path, capacity):
    torch.manual_seed(0)
    layer = SUMS[name]().to(torch.bfloat16).eval()
    x = torch.randn(1, 12, 8).to(torch.bfloat16)
    assert walk(layer, x, path, capacity)[1] == {torch.float32}


@torch.no_grad()
def test_the_minimal_gru_remembers_small_words_of_a_long_text():
    """A gate that hardly opens: each word changes the state by less than bf16 can show, and all together by a lot."""
    layer = MinGRU(4, 4).to(torch.bfloat16)
    layer.project.weight.zero_()
    layer.project.bias.copy_(torch.tensor([-6.0] * 4 + [1.0] * 4))
    x = torch.zeros(1, 400, 4, dtype=torch.bfloat16)
    update = torch.tensor(-6.0, dtype=torch.float64).sigmoid()
    wanted = 1 - (1 - update) ** 400  # h_t = (1 − z) h_{t−1} + z
    for path in ("forward", "explain"):
        state, _ = walk(layer, x, path)
        torch.testing.assert_close(state["hidden"].double(), wanted.expand(1, 4), rtol=1e-4, atol=0)
        _, state, *_ = getattr(layer, path)(x, layer.begin(1, device="cpu", dtype=x.dtype), Span(torch.tensor([0])))
        torch.testing.assert_close(state["hidden"].double(), wanted.expand(1, 4), rtol=1e-4, atol=0)
