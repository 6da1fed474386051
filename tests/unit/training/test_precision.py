"""In a training in bf16, the sums of linear attention stay in fp32."""

import copy

import pytest
import torch

from regard.layers.matrix_state import LinearAttention
from regard.layers.state import Span
from regard.training.precision import keep_exact


@pytest.mark.parametrize("rule, feature", [("sum", "elu"), ("delta", "elu"), ("sum", "gaussian")])
def test_running_sums_stay_in_full_precision_under_autocast(rule, feature):
    torch.manual_seed(0)
    layer = LinearAttention(16, 2, rule=rule, feature=feature)
    keep_exact(layer)
    seen = []
    for method in ("run", "exponent"):
        kept = getattr(layer, method)
        setattr(layer, method, lambda *parts, kept=kept: seen.append(kept(*parts)) or seen[-1])
    x = torch.randn(2, 9, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = layer(x, layer.begin(2, device="cpu", dtype=x.dtype), Span(torch.zeros(2, dtype=torch.int64)))
        assert (x @ x.mT).dtype == y.dtype == torch.bfloat16
    tensors = [part for found in seen for part in (found if isinstance(found, tuple) else (found,))]
    assert {part.dtype for part in [*tensors, state["matrix"]]} == {torch.float32}


def test_a_copy_of_the_model_runs_its_own_methods():
    layer = LinearAttention(8, 2, feature="gaussian")
    keep_exact(layer)
    other = copy.deepcopy(layer)
    other.directions.zero_()
    vectors = torch.randn(1, 2, 3, 4)
    assert not torch.equal(layer.exponent(vectors), other.exponent(vectors))
