"""Padded weights: their copies, gradients and optimiser."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.fast.recurrence.padded_weights import PaddedWeight, padded_weight, using


@pytest.mark.slow
def test_the_kernels_are_plain_pytorch_and_a_step_by_them_is_the_written_step():
    pytest.importorskip("triton", reason="its interpreter")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("padded_on_cpu.py"))],
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_copy_is_padded_with_zeros_and_follows_its_weight():
    weight = torch.nn.Parameter(torch.randn(5, 13))
    held = PaddedWeight(weight)
    for _ in range(2):
        copy = held.copy(8)
        assert copy.shape == (8, 16)
        assert torch.equal(held.cut(copy), weight.bfloat16())
        assert copy.count_nonzero() == 5 * 13
        with torch.no_grad():
            weight.add_(1.0)
        held.refresh()
        assert torch.equal(held.cut(copy), weight.bfloat16())  # at the same address


def test_gradients_of_all_readers_are_added():
    weight = torch.nn.Parameter(torch.randn(5, 13))
    held, one = PaddedWeight(weight), torch.ones(())
    assert held.take(one) is None
    parts = [torch.randn(8, 16) for _ in range(2)]
    held.put(parts[0].clone(), torch.tensor(0.5))
    held.put(parts[1].clone())
    weight.grad = torch.randn(5, 13)
    gradient, factor = held.take(one)
    wanted = held.cut(0.5 * parts[0] + parts[1]) + weight.grad
    torch.testing.assert_close(held.cut(gradient * factor), wanted)
    assert held.gradient is None
    held.put(parts[0].clone(), torch.tensor(0.5))
    gradient, factor = held.take(one)
    torch.testing.assert_close(held.cut(gradient * factor), held.cut(0.5 * parts[0]) + weight.grad)


def test_a_weight_is_padded_only_where_a_step_says_so():
    weight = torch.nn.Parameter(torch.randn(5, 13))
    held = PaddedWeight(weight)
    assert padded_weight(weight) is None
    with using({id(weight): held}):
        assert padded_weight(weight) is held
        assert padded_weight(weight * 1.0) is None
    assert padded_weight(weight) is None
