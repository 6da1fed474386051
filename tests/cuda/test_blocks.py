"""Blocks and stacks by hand, on a GPU."""

import pytest
import torch

from regard.fast import install, uninstall
from regard.fast.attention.fused_block import BY_HAND, block_by_hand
from regard.fast.attention.residual import add_norm
from regard.fast.table import installed, is_swapped, without
from regard.fast.training.half_products import rectified_sums
from regard.layers.encoder import TransformerEncoder
from regard.layers.state import Span
from regard.systems import gpt, linear_attention, llama, mingru, transformer


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_fused_stacks_are_the_blocks_one_after_the_other(norm, activation):
    torch.manual_seed(0)
    sizes = {"layers": 2, "width": 128, "heads": 2, "feedforward": 192, "dropout": 0.0}
    model = transformer.Transformer(50, transformer.Settings(norm=norm, activation=activation, **sizes)).cuda().train()
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)  # so that norms and biases count
    tokens, source = torch.randint(50, (6, 9)).cuda(), torch.randint(50, (6, 13)).cuda()
    lengths, wanted = torch.tensor([13, 1, 5, 2, 7, 12]), torch.randn(6, 9, 50, device="cuda")
    answers = []
    for fused, half in ((False, False), (True, True), (False, True)):
        uninstall(model)
        if fused:
            used = {row.method for row in install(model) if row.owner in (transformer.Transformer, TransformerEncoder)}
            assert used == {"forward", "remember", "hidden_states"}
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            logits, state = model(tokens, model.begin(source, lengths))
        gradients = torch.autograd.grad((logits.float() * wanted).sum(), list(model.parameters()))
        answers.append([logits.float(), state["past"]["1"]["keys"].float(), *gradients])
    for exact, one, other in zip(*answers, strict=True):  # as near as the blocks in half precision are themselves
        off, usual, size = (torch.linalg.vector_norm(part) for part in (one - exact, other - exact, exact))
        assert off < 4 * usual + 0.05 * size  # a sum that is rounded to the other side of zero has another slope
        assert usual < 0.2 * size  # so what is left out would be noticed, in each of them


SHAPE = {"layers": 2, "width": 96, "heads": 3, "context": 256, "dropout": 0.0}
LANGUAGE = {
    "gpt": gpt.GPT(50, gpt.Settings(**SHAPE)),
    "gpt-post": gpt.GPT(50, gpt.Settings(norm="post", activation="relu", **SHAPE)),
    "gpt-rotary": gpt.GPT(50, gpt.Settings(position="rotary", **SHAPE)),
    "llama": llama.Llama(50, llama.Settings(**SHAPE)),
    "llama-grouped": llama.Llama(50, llama.Settings(**SHAPE | {"heads": 6, "key_value_heads": 2, "bias": "qkv"})),
    "linear": linear_attention.LinearTransformer(50, linear_attention.Settings(**SHAPE)),
    "linear-gated": linear_attention.LinearTransformer(50, linear_attention.Settings(decay="gated", **SHAPE)),
    "mingru": mingru.MinGRUModel(50, mingru.Settings(layers=2, width=96, dropout=0.0)),
}


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.parametrize("columns", [200, 40])
def test_a_language_models_blocks_in_few_passes_are_the_blocks_one_after_the_other(name, columns):
    torch.manual_seed(0)
    model = LANGUAGE[name].cuda().train()
    for weight in model.parameters():
        weight.data += 0.02 * torch.randn_like(weight)
    tokens, wanted = torch.randint(50, (5, columns)).cuda(), torch.randn(5, columns, 50, device="cuda")
    answers = []
    for fused, half in ((False, False), (True, True), (False, True)):
        uninstall(model)
        if fused:
            with without("GPT-2's blocks by hand"):
                used = {row.name for row in install(model, training=True, bf16=True)}
            assert any(row.endswith("blocks in few passes") for row in used)
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            logits, _ = model(tokens, model.without_cache(5))
        gradients = torch.autograd.grad((logits.float() * wanted).sum(), list(model.parameters()))
        answers.append([logits.float(), *gradients])
    for exact, one, other in zip(*answers, strict=True):
        off, usual, size = (torch.linalg.vector_norm(part) for part in (one - exact, other - exact, exact))
        assert off < 4 * usual + 0.05 * size
        assert usual < 0.2 * size


def test_dropout_in_few_passes_drops_as_often_and_draws_anew():
    torch.manual_seed(0)
    model = gpt.GPT(50, gpt.Settings(**SHAPE | {"dropout": 0.2, "width": 192})).cuda().train()
    tokens = torch.randint(50, (16, 256)).cuda()
    means = []
    for fused in (False, True):
        uninstall(model)
        if fused:
            install(model, training=True, bf16=True)
        with torch.autocast("cuda", torch.bfloat16):
            drawn = torch.stack([model(tokens, model.without_cache(16))[0].float() for _ in range(8)])
        assert not torch.equal(drawn[0], drawn[1])
        means.append((drawn.mean(0), float(drawn.detach().std(0).mean())))
    (mean, spread), (other, others) = means
    assert others == pytest.approx(spread, rel=0.05)  # as much noise, around the same mean
    assert (mean - other).abs().mean() < spread


@pytest.mark.parametrize("rows, width", [(37, 64), (5, 48), (3000, 512)])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_bias_dropout_sum_and_norm_in_one_are_the_written_ones(rows, width, rate):
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(width).cuda()
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(rows, width, device="cuda", requires_grad=True)
    part = torch.rand(rows, width, device="cuda").add(0.5).requires_grad_()  # far from 0, so that what is 0 was dropped
    bias = torch.rand(width, device="cuda").requires_grad_()
    wanted = torch.randn(3, rows, width, device="cuda")
    torch.manual_seed(3)
    total, normed, again = add_norm(x, part, bias, norm, rate)
    assert torch.equal(normed, again)
    kept = ((total - x).abs() > 0.1).detach() / (1 - rate)
    assert kept.mean().item() == pytest.approx(1.0, abs=0.1 if rows < 100 else 0.01)
    assert not rate or not torch.equal(kept[: rows // 2], kept[rows - rows // 2 :])
    answers = []
    by_hand = x + kept * (part + bias)
    for t, n, c in ((total, normed, again), (by_hand, norm(by_hand), norm(by_hand))):
        cost = (torch.stack([t, n, c]) * wanted).sum()
        answers.append([t, n, *torch.autograd.grad(cost, [x, part, bias, norm.weight, norm.bias])])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.detach().abs().max()))


@pytest.mark.parametrize("rows, width, rectified", [(3, 5, True), (1000, 300, False), (16384, 1024, True)])
def test_a_bias_gradient_is_the_sum_over_rows(rows, width, rectified):
    torch.manual_seed(0)
    gradient, found = torch.randn(2, rows, width, device="cuda", dtype=torch.bfloat16)
    passed, summed = rectified_sums(gradient, found if rectified else None, torch.float32)
    expected = gradient * (found > 0) if rectified else gradient
    assert torch.equal(passed, expected)
    torch.testing.assert_close(summed, expected.double().sum(0).float(), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("width, heads", [(128, 2), (96, 2), (768, 12)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows, columns", [(5, 200), (1, 1), (3, 37)])
def test_a_block_by_hand_is_no_further_from_the_exact_one_than_the_written_in_bf16(width, heads, bias, rows, columns):
    torch.manual_seed(0)
    model = gpt.GPT(9, gpt.Settings(layers=1, width=width, heads=heads, context=256, dropout=0.0, bias=bias))
    block = model.cuda().train().layers[0]
    for weight in block.parameters():
        weight.data += 0.02 * torch.randn_like(weight)  # so that norms and biases count
    x = torch.randn(rows, columns, width, device="cuda").bfloat16()
    wanted, span = torch.randn(x.shape, device="cuda"), Span(torch.zeros(rows, device="cuda"))

    def answers(kind: torch.dtype, *, by_hand: bool) -> list[torch.Tensor]:
        given = x.to(kind).requires_grad_()
        block.to(torch.float64 if kind == torch.float64 else torch.float32)
        with torch.autocast("cuda", torch.bfloat16, enabled=kind != torch.float64):
            y = block_by_hand(block, given) if by_hand else block(given, {}, span)[0]
        return [y, *torch.autograd.grad((y * wanted.to(y.dtype)).sum(), [given, *block.parameters()])]

    exact = answers(torch.float64, by_hand=False)
    for best, usual, found in zip(
        exact, answers(torch.bfloat16, by_hand=False), answers(torch.bfloat16, by_hand=True), strict=True
    ):
        assert (found - best).norm() < 1.5 * (usual - best).norm() + 2e-3 * best.norm()


def test_a_model_by_hand_learns_as_the_written_one(trainer):
    losses = {}
    for compile in ("off", "auto"):
        torch.manual_seed(0)
        model = gpt.GPT(50, gpt.Settings(layers=2, width=512, heads=8, context=16, dropout=0.0))
        run = trainer(compile, model, "off", True, batches="windows", compile=compile)
        assert not is_swapped(run.forward)
        assert installed(model, BY_HAND) == (compile == "auto")
        run.model.train()
        losses[compile] = [run.step()[0] for _ in range(17)]
    torch.testing.assert_close(losses["auto"], losses["off"], rtol=1e-2, atol=0.0)
