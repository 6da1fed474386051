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
from regard.fast.recurrence.minimal_gru import GatedScan
from regard.layers.scan import MinGRU

torch.manual_seed(0)
for rows, steps, width in [(2, 2, 5), (1, 64, 3), (1, 65, 33)]:
    layer = MinGRU(3, width)
    z, n = torch.rand(rows, steps, width, requires_grad=True), torch.randn(rows, steps, width, requires_grad=True)
    first = torch.randn(rows, width, requires_grad=True)
    weigh = torch.randn(rows, steps, width)
    found = []
    for hidden in (GatedScan.apply(z, n, first), MinGRU.run(layer, z, n, first)):
        found.append([hidden, *torch.autograd.grad((hidden * weigh).sum(), [z, n, first])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
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
