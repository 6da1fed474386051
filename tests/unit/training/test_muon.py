"""Muon: its matrices move in all directions alike, everything else is AdamW's, and a resume is exact."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.runs.recipe import compose
from regard.systems import gpt, nnlm
from regard.systems.catalogue import load_class
from regard.training.muon import Muon, hidden_matrices, orthogonalized
from regard.training.optimizers import build_optimizer

RATES = {"learning_rate": 0.02, "weight_decay": 0.1, "beta2": 0.99}


@pytest.mark.parametrize("shape", [(3, 24, 24), (2, 16, 40), (2, 40, 16)])
def test_the_update_has_the_gradients_directions_and_singular_values_near_one(shape):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    turned = u.mT @ orthogonalized(gradient) @ v.mT  # diagonal where the singular vectors are the gradient's own
    values = turned.diagonal(dim1=-2, dim2=-1)
    assert (turned - torch.diag_embed(values)).abs().max() < 1e-10
    assert values.min() > 0.6
    assert values.max() < 1.3
    torch.testing.assert_close(orthogonalized(gradient * 1e-4), orthogonalized(gradient))  # whatever its size


def test_products_are_those_of_the_shorter_side():
    def operations(*shape):
        with FlopCounterMode(display=False) as counted:
            orthogonalized(torch.ones(3, *shape))
        return counted.get_total_flops()

    assert operations(40, 16) == operations(16, 40) < operations(40, 40)


def test_matrices_of_one_row_or_column_and_layers_inside_are_as_they_are():
    class Some(torch.nn.Module):
        vocabulary = 5

        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(1, 7), torch.nn.Linear(7, 1))
            self.two = torch.nn.Linear(2, 6)
            self.words = torch.nn.Linear(3, 5)
            self.other = torch.nn.Parameter(torch.zeros(2, 3, 4))

    model = Some()
    hidden = {id(weight) for weight in hidden_matrices(model)}
    assert hidden == {id(model.inner[0].weight), id(model.two.weight)}


def test_a_matrix_without_a_gradient_or_with_none_but_zeros_stays():
    still, zero = (torch.nn.Parameter(torch.randn(4, 6)) for _ in range(2))
    before = [still.clone(), zero.clone()]
    optimizer = Muon([{"params": [still, zero], "orthogonal": True, "weight_decay": 0.0}], lr=0.1)
    zero.grad = torch.zeros(4, 6)
    optimizer.step()
    assert torch.equal(still, before[0])
    assert torch.equal(zero, before[1])


def test_steps_are_those_of_torch():
    """torch.optim.Muon turns in bf16, so its numbers are only about these; the momentum has no such excuse."""
    torch.manual_seed(1)
    start = [torch.randn(shape) for shape in ((8, 20), (20, 8), (8, 20))]
    ours, theirs = ([torch.nn.Parameter(w.clone()) for w in start] for _ in range(2))
    mine = Muon([{"params": ours, "orthogonal": True, "weight_decay": 0.1}], lr=0.02)
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape)
            b.grad = a.grad.clone()
        mine.step()
        other.step()
    for a, b, first in zip(ours, theirs, start, strict=True):
        assert torch.equal(mine.state[a]["momentum"], other.state[b]["momentum_buffer"])
        assert (a - b).norm() < 0.02 * (b - first).norm()


def test_word_vectors_and_outputs_and_vectors_are_left_to_adamw():
    torch.manual_seed(0)
    model = gpt.GPT(50, gpt.Settings(layers=2, width=16, heads=2, context=8, tied=False))
    names = {id(weight): name for name, weight in model.named_parameters()}
    chosen = {names[id(weight)] for weight in hidden_matrices(model)}
    parts = ("attention.project", "attention.output", "feedforward.expand", "feedforward.output")
    assert chosen == {f"layers.{layer}.{part}.weight" for layer in (0, 1) for part in parts}
    with_direct = nnlm.NNLM(50, nnlm.Settings(order=3, width=16, embedding=8, direct=True))
    names = {id(weight): name for name, weight in with_direct.named_parameters()}
    assert [names[id(weight)] for weight in hidden_matrices(with_direct)] == ["finish.linear.weight"]


@pytest.mark.parametrize("system", ["lstm", "transformer", "gpt", "bahdanau"])
def test_all_but_the_hidden_matrices_step_as_with_adamw(system):
    recipe = compose(system, "tiny", {})
    torch.manual_seed(0)
    model = load_class(system)(30, recipe.model)
    hidden = {id(weight) for weight in hidden_matrices(model)}
    assert hidden
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    after = {}
    for kind in ("adamw", "muon"):
        model.load_state_dict(start, strict=False)
        for number, weight in enumerate(model.parameters()):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
        build_optimizer(kind, model.named_parameters(), **RATES, hidden=hidden_matrices(model)).step()
        after[kind] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for name, weight in model.named_parameters():
        assert torch.equal(after["adamw"][name], after["muon"][name]) == (id(weight) not in hidden), name


def test_a_rate_in_a_tensor_gives_the_same_step():
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.ones(4, 6)) for _ in range(2)]
    gradient = torch.randn(4, 6)
    for weight, captured in zip(weights, (False, True), strict=True):
        weight.grad = gradient.clone()
        rate = torch.tensor(0.02) if captured else 0.02
        Muon([{"params": [weight], "orthogonal": True, "weight_decay": 0.1}], lr=rate).step()
    torch.testing.assert_close(weights[0], weights[1])
