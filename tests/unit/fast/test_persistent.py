"""The recurrence in one kernel, where there is no GPU: who does what, and the kernel's own code on threads of the host.

What the device's instructions do (a look at memory, a product, a meeting) is said anew in persistent_on_cpu.h; all
else is kernels/persistent.cu as it is. On a GPU itself: test_cuda.py."""

import ctypes
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.fast.kernels import persistent
from regard.fast.kernels.persistent import CELLS, FASTEST, RESIDENT, plans
from regard.fast.recurrence.padded_weights import PaddedWeight, using

SMALL = ((1, 8), (2, 4), (4, 2))  # a device of eight processors: members of a cluster, clusters
SHAPES = [(20, 650), (20, 1500), (64, 1024), (80, 1150), (80, 400), (1, 1), (3, 37), (8, 64)]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("rows, width", SHAPES)
def test_every_plan_covers_the_matrix_and_fits_the_device(kind, rows, width, backward):
    found = plans(kind, rows, width, backward=backward)
    assert found
    for plan in found:
        _, gates = CELLS[kind]
        length = -(-gates * width // 8) * 8 if backward else plan.HP
        assert plan.blocks <= plan.S * dict(RESIDENT)[plan.S]
        assert 0 < plan.KR <= plan.KG
        assert plan.blocks // plan.GROUPS // plan.S * plan.CLUSTER_UNITS >= plan.HP >= width
        assert length <= plan.S * plan.KPART  # the members' parts of the sum
        assert plan.KPART % 8 == plan.KSTRIDE % 8 == 0
        assert plan.KSTRIDE >= 32 * plan.WK * plan.KG >= plan.KPART  # the warps' parts of a member's
        assert plan.S * plan.rows <= 16 * plan.WM * plan.MT  # the warps' rows of the cluster's
        assert rows == plan.GROUPS * plan.PARTS * plan.B
        assert plan.B <= 8 * plan.NT
        assert plan.threads <= 512
        assert plan.shared <= 227 * 1024


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("shape", FASTEST)
def test_the_plan_that_was_fastest_is_chosen(shape, backward):
    on_an_h200 = ((1, 132), (2, 66), (4, 30), (8, 15))
    assert plans(*shape, backward=backward, resident=on_an_h200)[0].shape == FASTEST[shape][backward]


def test_a_matrix_that_does_not_fit_has_no_plan():
    assert not plans("LSTM", 20, 4000, backward=False)
    assert not persistent.fits("LSTM", 20, 64, torch.device("cpu"))


FLAGS = ["-std=c++20", "-O1", "-w", "-fPIC", "-pthread"]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A folder with the host's GPU, read once for all kernels."""
    folder, header = tmp_path_factory.mktemp("host"), Path(__file__).with_name("persistent_on_cpu.h")
    read = folder / f"{header.name}.gch"
    subprocess.run(["g++", *FLAGS, "-x", "c++-header", str(header), "-o", str(read)], check=True)
    return folder


class OnThreads:
    """The kernel of a plan, on the host."""

    def __init__(self, plan, folder):
        self.plan = plan
        source = Path(persistent.__file__).with_name("persistent.cu").read_text(encoding="utf-8")
        start, end = source.index("// ---- inline assembly"), source.index("// ---- the recurrence")
        parts = [
            '#include "persistent_on_cpu.h"',
            *(f"#define {name} {value}" for name, value in asdict(plan).items()),
            "static void send(word address, float value)",
            "{ send_to(blockIdx.x / S * S + (int)(address >> 24) - 1, address, value); }",
            "static void meet() { meet_in(blockIdx.x / S); }",
            source[:start],
            source[end:].replace(
                "extern __shared__ __align__(128) unsigned char shared[]",
                "unsigned char* shared = blocks[blockIdx.x]->shared()",
            ),
            'extern "C" void run(int amount, int bytes, bf16** p, int T, int step, int row)',
            "{ launch(amount, S, THREADS, bytes, [=] { recurrence(p[0], p[1], (float*)p[2], p[3], (float*)p[4], p[5],",
            "p[6], (float*)p[7], (float*)p[8], p[9], T, step, row); }); }",
        ]
        file, library = folder / f"{abs(hash(plan))}.cpp", folder / f"{abs(hash(plan))}.so"
        file.write_text("\n".join(parts), encoding="utf-8")
        subprocess.run(["g++", *FLAGS, "-I", str(folder), "-shared", str(file), "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))

    def __call__(self, blocks, *arguments):
        tensors, numbers = arguments[:-3], arguments[-3:]
        pointers = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        self.library.run(blocks, self.plan.shared, pointers, *numbers)


MODULES = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN_TANH": nn.RNN,
    "RNN_RELU": lambda inputs, width: nn.RNN(inputs, width, nonlinearity="relu"),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    "kind, rows, width, members, groups, parts, in_registers",
    [
        ("LSTM", 3, 16, 1, 1, 1, 99),
        ("LSTM", 20, 37, 2, 2, 2, 99),
        ("LSTM", 2, 70, 2, 1, 1, 1),  # the rest of the matrix in shared memory
        ("GRU", 8, 22, 4, 1, 4, 99),
        ("RNN_TANH", 9, 36, 1, 3, 1, 99),
        ("RNN_RELU", 2, 10, 2, 1, 1, 99),
    ],
)
def test_the_kernels_code_agrees_with_pytorch_values_and_gradients(
    kind, rows, width, members, groups, parts, in_registers, host, monkeypatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(persistent, "kernel", lambda plan, device: OnThreads(plan, host))
    monkeypatch.setattr(persistent, "_product", lambda a, b: a.float() @ b.float())
    there, back = (
        next(
            replace(plan, KR=min(plan.KR, in_registers))
            for plan in plans(kind, rows, width, backward=backward, resident=SMALL)
            if (members, groups, parts) == (plan.S, plan.GROUPS, plan.PARTS) and (in_registers > 1 or plan.KG > 1)
        )
        for backward in (False, True)
    )
    inputs, steps = 9, 3
    net = MODULES[kind](inputs, width)
    weights = {name: weight.detach().bfloat16().float().requires_grad_() for name, weight in net.named_parameters()}
    state = {"hidden": torch.randn(rows, width) / 2}
    state |= {"cell": torch.randn(rows, width)} if kind == "LSTM" else {}
    given = [torch.randn(rows, steps, inputs).bfloat16().float(), *state.values()]
    x, *state_values = (tensor.requires_grad_() for tensor in given)
    state = dict(zip(state, state_values, strict=True))
    wanted = torch.randn(rows, steps, width)

    def by_kernel():
        return persistent.recur(kind, x, state, weights, (there, back))

    def by_pytorch():
        past = tuple(part[None] for part in state.values())
        past = past if len(past) > 1 else past[0]
        hidden, after = torch.func.functional_call(net, weights, (x.transpose(0, 1), past))
        after = after if isinstance(after, tuple) else (after,)
        return hidden.transpose(0, 1), {name: part[0] for name, part in zip(state, after, strict=True)}

    answers = []
    for way in (by_kernel, by_pytorch):
        hidden, after = way()
        cost = (hidden.float() * wanted).sum() + sum(part.square().sum() for part in after.values())
        gradients = torch.autograd.grad(cost, [x, *state.values(), *weights.values()])
        answers.append([hidden, *after.values(), *gradients])
    for one, other in zip(*answers, strict=True):
        assert float((one.detach().float() - other.detach()).norm() / other.detach().norm()) < 0.01
    into, recurrent = (PaddedWeight(weights[f"weight_{name}_l0"]) for name in ("ih", "hh"))
    with using({id(held.weight): held for held in (into, recurrent)}):
        hidden, after = by_kernel()
    ((hidden.float() * wanted).sum() + sum(part.square().sum() for part in after.values())).backward()
    for held, gradient in zip((into, recurrent), answers[0][-4:-2], strict=True):
        assert held.weight.grad is None  # it was left, still padded, where the optimiser finds it
        assert torch.equal(held.cut(held.gradient), gradient)
