"""Attention by kernels, on a GPU."""

import pytest
import torch

from regard.fast.attention.causal_attention import attend_causal
from regard.fast.attention.short_attention import ShortAttention, attend_packed, is_short
from regard.layers.attention import additive_mask, attention_reference


@pytest.mark.parametrize("masked, causal", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("queries, keys, depth", [(32, 32, 128), (7, 7, 64), (64, 64, 64), (5, 33, 16)])
def test_short_attention_is_the_written_one_values_and_gradients(causal, masked, queries, keys, depth):
    torch.manual_seed(0)
    rows, heads = 6, 2
    crossing = queries != keys
    given = [torch.randn(rows, queries, (1 if crossing else 3) * heads * depth, device="cuda", dtype=torch.bfloat16)]
    given += [torch.randn(rows, keys, 2 * heads * depth, device="cuda", dtype=torch.bfloat16)] if crossing else []
    lengths = torch.randint(1, keys + 1, (rows, 1), device="cuda")
    valid = torch.arange(keys, device="cuda") < lengths if masked else None
    wanted = torch.randn(rows, queries, heads * depth, device="cuda")

    def by_kernel(queries_, memory=None):
        assert is_short(queries_, queries, keys, depth)
        return attend_packed(queries_, memory, heads, valid=valid, causal=causal)

    def by_equation(queries_, memory=None):
        parts = queries_.chunk(3, -1) if memory is None else (queries_, *memory.chunk(2, -1))
        seen = torch.ones(rows, 1, queries, keys, dtype=torch.bool, device="cuda")
        seen = seen if valid is None else seen & valid[:, None, None]
        mask = additive_mask(seen.tril() if causal else seen, None, torch.float32)
        context, _ = attention_reference(*(part.unflatten(-1, (heads, depth)).transpose(1, 2) for part in parts), mask)
        return context.transpose(1, 2).flatten(2)

    answers = []
    for attention, precision in ((by_kernel, torch.bfloat16), (by_equation, torch.float32)):
        inputs = [part.to(precision).requires_grad_() for part in given]
        found = attention(*inputs)
        answers.append([found, *torch.autograd.grad((found * wanted).sum(), inputs)])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=2e-2, atol=2e-2 * float(other.detach().abs().max()))


def test_short_attention_drops_the_weights_it_should_and_differentiates_what_is_left():
    torch.manual_seed(0)
    packed, wanted = torch.randn(64, 16, 3 * 64, device="cuda"), torch.randn(64, 16, 64, device="cuda")
    seed, direction, rate = torch.tensor([7], device="cuda"), torch.randn(64, 16, 3 * 64, device="cuda"), 0.3

    def attend(x):
        return ShortAttention.apply(x, None, None, seed, 2, False, rate)

    ones = torch.cat([packed[..., :128], torch.ones_like(packed[..., 128:])], dim=-1)  # values of 1: sums of weights
    kept = attend(ones)
    assert kept.mean().item() == pytest.approx(1.0, abs=0.02)
    assert kept.std().item() > 0.05
    packed.requires_grad_()
    (gradient,) = torch.autograd.grad((attend(packed) * wanted).sum(), packed)
    with torch.no_grad():
        slope = ((attend(packed + 1e-2 * direction) - attend(packed - 1e-2 * direction)) * wanted).sum() / 2e-2
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=2e-2, atol=0.5)


def test_cudnns_attention_is_the_default_one():
    torch.manual_seed(0)
    packed = torch.randn(4, 3 * 12, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    wanted = torch.randn(4, 12, 256, 64, device="cuda")
    answers = []
    for cudnn in (False, True):
        context = attend_causal(*packed.chunk(3, dim=1), cudnn=cudnn)
        answers.append([context, *torch.autograd.grad((context * wanted).sum(), packed)])
    for one, other in zip(*answers, strict=True):
        assert (one - other).norm() < 1e-2 * other.norm()
