"""Recurrent layers on a GPU: cuDNN in fp32, the chain of kernels, and the kernel that stays from first step to last."""

import pytest
import torch

from regard.fast import Use, install
from regard.layers.recurrent import GRU, LSTM, Elman
from regard.layers.state import Span
from regard.systems.bahdanau import Bahdanau
from regard.systems.bahdanau import Settings as BahdanauSettings
from regard.systems.lstm import LSTMModel, Settings

CUDA = torch.device("cuda")
TRAINED = Use(training=True, bf16=True)


@pytest.mark.parametrize("use", [Use(), TRAINED, Use(training=True, captured=True)], ids=str)
def test_the_recurrence_stays_in_fp32_under_autocast(use):
    torch.manual_seed(0)
    model = LSTMModel(50, Settings(width=64, dropout=0.1, dropout_recurrent=0.2)).cuda().train()
    install(model, use)
    with torch.autocast("cuda", torch.bfloat16):
        _, state = model.read(torch.randint(50, (4, 16)).cuda())
    cell = state["past"]["0"]["cell"]
    assert cell.dtype == torch.float32
    assert not torch.equal(cell, cell.half().float())  # nor had it been rounded to fp16 on the way


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("inputs, width", [(6, 5), (48, 650), (650, 64)])
def test_the_chain_agrees_with_cudnn_values_and_gradients(inputs, width):
    torch.manual_seed(0)
    layer = LSTM(inputs, width).cuda().train()
    state = {name: torch.randn(4, width, device="cuda") for name in layer.memory}
    x = torch.randn(4, 9, inputs, device="cuda", requires_grad=True)
    wanted = torch.randn(4, 9, width, device="cuda")
    answers = []
    for captured in (False, True):
        used = install(layer, Use(training=True, captured=captured), device=CUDA)
        assert [row.name for row in used] == ["LSTM chain", "fused LSTM"][1 - captured :]
        hidden, after = layer(x, state, Span(torch.zeros(4, device="cuda")))
        cost = (hidden * wanted).sum() + (after["cell"] * after["hidden"]).sum()
        answers.append([hidden, after["cell"], *torch.autograd.grad(cost, [x, *layer.parameters()])])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("score", ["additive", "dot", "bilinear"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_translators_rows_agree_with_the_written_walk(cell, score):
    torch.manual_seed(0)
    model = Bahdanau(50, BahdanauSettings(cell=cell, score=score, width=48, embedding=32, dropout=0.0)).cuda()
    source, lengths, tokens = (
        torch.randint(50, (4, 7)).cuda(),
        torch.tensor([7, 2, 5, 1]),
        torch.randint(50, (4, 6)).cuda(),
    )
    written, _ = model(tokens, model.begin(source, lengths))
    install(model, Use(training=True))
    fast, _ = model(tokens, model.begin(source, lengths))
    torch.testing.assert_close(fast, written, rtol=1e-3, atol=1e-4)


STAYING = {
    "lstm": lambda: LSTM(12, 50),
    "lstm, medium": lambda: LSTM(650, 650),
    "lstm, large": lambda: LSTM(40, 1500),
    "lstm, weight-drop": lambda: LSTM(48, 400, dropout_recurrent=0.4),
    "gru": lambda: GRU(30, 256),
    "tanh": lambda: Elman(12, 50),
    "relu": lambda: Elman(20, 70, activation="relu"),
    "sigmoid": lambda: Elman(20, 64, activation="sigmoid"),
}


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9, reason="needs a GPU with clusters"
)
@pytest.mark.parametrize(
    "name, rows, steps",
    [*((name, 20, 35) for name in STAYING), ("lstm", 1, 2), ("lstm, medium", 80, 6), ("gru", 7, 9), ("tanh", 64, 5)],
)
def test_the_persistent_kernel_agrees_with_the_written_equation_values_and_gradients(name, rows, steps):
    torch.manual_seed(0)
    layer = STAYING[name]().cuda().train()
    install(layer, TRAINED, device=CUDA)
    with torch.no_grad():  # so that only what the kernel itself rounds is left
        for weight in layer.parameters():
            weight.copy_(weight.bfloat16())
    state = {part: torch.randn(rows, layer.width, device="cuda") / 2 for part in layer.memory}
    x = torch.randn(rows, steps, layer.inputs, device="cuda").bfloat16().float().requires_grad_()
    wanted = torch.randn(rows, steps, layer.width, device="cuda")
    answers = []
    for way in (layer.forward, layer.explain):
        torch.manual_seed(1)  # the same connections are dropped
        with torch.autocast("cuda", torch.bfloat16, enabled=way == layer.forward):
            hidden, after, *_ = way(x, state, Span(torch.zeros(rows, device="cuda")))
        assert hidden.dtype == (torch.bfloat16 if way == layer.forward else torch.float32)
        cost = (hidden.float() * wanted).sum() + sum(part.square().sum() for part in after.values())
        answers.append([hidden, *after.values(), *torch.autograd.grad(cost, [x, *layer.parameters()])])
    exact = 0.1 if name == "relu" else 0.02  # a sum that is rounded to the other side of zero has another slope
    for one, other in zip(*answers, strict=True):
        assert float((one.detach().float() - other.detach()).norm() / other.detach().norm()) < exact


def test_a_net_trained_in_bf16_by_the_persistent_kernel_learns_as_in_fp32(trainer):
    curves = []
    for bf16 in (True, False):
        torch.manual_seed(0)
        model = LSTMModel(50, Settings(width=64, embedding=48, tied=False))
        run = trainer(str(bf16), model, "on", bf16, steps=200)
        torch.manual_seed(5)
        run.model.train()
        curves.append(torch.stack([run.step()[0] for _ in range(200)]).reshape(10, 20).mean(dim=1))
    torch.testing.assert_close(*curves, rtol=1e-2, atol=0.0)
    assert float(curves[0][-1]) < 0.99 * float(curves[0][0])  # random text: only its repetition can be learned
