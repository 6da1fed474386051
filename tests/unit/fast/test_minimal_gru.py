"""The minimal GRU's kernels on a CPU, by Triton's interpreter, against the written scan."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from triton.runtime import interpreter

patch = interpreter._patch_lang_tensor


def patch_for_numpy_2_4(tensor, scope):  # which makes no number of an array of one
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = patch_for_numpy_2_4
from regard.fast.recurrence.minimal_gru import _forward
from regard.layers.scan import MinGRU
from regard.layers.state import Span

torch.manual_seed(0)
for rows, steps, width, lengths in [(2, 2, 5, None), (1, 64, 3, None), (1, 65, 33, None), (3, 70, 4, [70, 0, 65])]:
    layer = MinGRU(3, width).double()
    x, first = torch.randn(rows, steps, 3).double().requires_grad_(), torch.randn(rows, width).double().requires_grad_()
    span = Span(torch.zeros(1), None if lengths is None else torch.tensor(lengths))
    valid = torch.ones(rows, steps) if lengths is None else span.valid(steps)
    weigh, ends = torch.randn(rows, steps, width) * valid[..., None], torch.randn(rows, width)
    found = []
    for forward in (_forward, MinGRU.forward):
        hidden, state = forward(layer, x, {"hidden": first}, span)
        hidden = hidden * valid[..., None]
        cost = (hidden * weigh).sum() + (state["hidden"] * ends).sum()
        found.append([hidden, state["hidden"], *torch.autograd.grad(cost, [x, first, *layer.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
"""


@pytest.mark.slow
def test_the_kernels_are_the_scan_and_its_gradient():
    pytest.importorskip("triton", reason="its interpreter")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
