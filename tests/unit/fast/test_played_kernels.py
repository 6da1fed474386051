"""Stacks of blocks with few passes over memory, whose kernels are played by PyTorch: on a CPU, without Triton, they
have the loss and the gradients of the written blocks. tests/cuda has the kernels themselves."""

import importlib
import sys
from types import MethodType, ModuleType

import pytest
import torch
import torch.nn.functional as F

from regard.fast.attention import language_blocks, short_blocks
from regard.systems import gpt, llama, mingru, transformer


class Launched:
    """A kernel: kernel[grid](…)."""

    def __init__(self, compute):
        self.compute = compute

    def __getitem__(self, grid):
        return lambda *given, **how: self.compute(grid, *given, **how)


def covers(programs, size, whole):
    return (programs - 1) * size < whole <= programs * size


def is_tile(number, least=16):
    return number >= least and number.bit_count() == 1


@pytest.fixture
def played(monkeypatch):
    """played("module", kernel, …): these stand in for the kernels of this module; functions are taken as they are."""

    def play(name, *kernels, **functions):
        module = ModuleType(f"regard.fast.kernels.{name}")
        for kernel in kernels:
            setattr(module, kernel.__name__, Launched(kernel))
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(importlib.import_module("regard.fast.kernels"), name, module, raising=False)

    play("dropout_add_norm", add_norm_forward, add_norm_backward)
    play("packed_attention", short_attention_forward, short_attention_backward)
    play("gated_scan", scan_forward, scan_backward)
    play("language_block", rotate=rotate, swiglu=swiglu, swiglu_backward=swiglu_backward)


# -- the kernels -----------------------------------------------------------------------------------------------------


def normalized(v, eps, RMS):
    return F.rms_norm(v, v.shape[-1:], eps=eps) if RMS else F.layer_norm(v, v.shape[-1:], eps=eps)


def add_norm_forward(grid, x, part, bias, gain, shift, seed, total, normed, mean, spread, rows, width, eps, threshold,
                     scale, *, DROPS, RMS, BIASED, WIDTH, ROWS, num_warps):  # fmt: skip
    assert covers(grid[0], ROWS, rows)
    assert (x.numel(), x.size(-1), mean.numel(), spread.numel()) == (rows * width, width, rows, rows)
    assert is_tile(WIDTH, max(width, 16))
    assert (DROPS, threshold, scale) == (False, 0, 1.0)
    total.copy_(x + part + (bias if BIASED else 0.0))
    normed.copy_(normalized(total, eps, RMS) * gain + (0.0 if RMS else shift))


def add_norm_backward(grid, total, d_normed, d_carried, d_total, gain, seed, mean, spread, d_x, d_part, sums, rows,
                      width, each, stride, threshold, scale, *, DROPS, RMS, BIASED, WIDTH, ROWS, CARRIED, SUMMED,
                      num_warps):  # fmt: skip
    assert covers(grid[0], each, rows)
    assert (len(sums), stride) == (grid[0], sums.stride(0))
    above = d_normed + (d_carried if CARRIED else 0.0)
    with torch.enable_grad():
        v = total.detach().requires_grad_()
        y = normalized(v, 1e-5, RMS)
        (d_v,) = torch.autograd.grad(y, v, above * gain)
    d_v = d_v + (d_total if SUMMED else 0.0)
    d_x.copy_(d_v)
    d_part.copy_(d_v)
    terms = [y.detach() * above, *([] if RMS else [above]), *([d_v] if BIASED else [])]
    by_row = torch.cat([term.reshape(rows, width) for term in terms], dim=1)
    for program, part in enumerate(by_row.split(each)):
        sums[program] = part.sum(0)


def looked(q, k, v, heads, scale, seen):
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
    scores = (q @ k.mT * scale).masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def visible(q, valid, queries, keys, MASKED, CAUSAL):
    seen = torch.ones(len(q), 1, queries, keys, dtype=torch.bool)
    if MASKED:
        seen &= valid.view(torch.bool)[:, None, None]
    return seen.tril() if CAUSAL else seen


def short_attention_forward(grid, q, k, v, out, valid, seed, queries, keys, heads, scale, dropout, *strides, MASKED,
                            CAUSAL, DROPS, EXACT, QUERIES, KEYS, DEPTH, num_warps):  # fmt: skip
    assert grid == (len(q), heads)
    assert (q.shape[1:], k.shape[1:]) == ((queries, heads * DEPTH), (keys, heads * DEPTH))
    assert strides == tuple(stride for part in (q, k, out) for stride in part.stride()[:2])
    assert is_tile(QUERIES, max(16, queries))
    assert is_tile(KEYS, max(16, keys))
    assert (DROPS, dropout, EXACT) == (False, 0.0, "ieee")
    out.copy_(looked(q, k, v, heads, scale, visible(q, valid, queries, keys, MASKED, CAUSAL)))


def short_attention_backward(grid, q, k, v, d_out, d_q, d_k, d_v, sums, valid, seed, queries, keys, heads, scale,
                             dropout, *strides, SUMMED, sums_row, MASKED, CAUSAL, DROPS, EXACT, QUERIES, KEYS, DEPTH,
                             num_warps):  # fmt: skip
    assert grid == (len(q), heads)
    assert strides == tuple(stride for part in (q, k, d_out, d_q, d_k) for stride in part.stride()[:2])
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_() for part in (q, k, v)]
        y = looked(*leaves, heads, scale, visible(q, valid, queries, keys, MASKED, CAUSAL))
        found = torch.autograd.grad(y, leaves, d_out)
    for held, new in zip((d_q, d_k, d_v), found, strict=True):
        held.copy_(new)
    if SUMMED:
        assert (len(sums), sums_row) == (len(q), sums.stride(0))
        sums.copy_(torch.cat([part.sum(1) for part in found[:SUMMED]], dim=1))


def scanned(packed, first, lengths):
    update, candidate = packed.chunk(2, dim=-1)
    hidden, found = first, []
    for z, n in zip(update.sigmoid().unbind(1), candidate.unbind(1), strict=True):
        hidden = (1 - z) * hidden + z * n
        found.append(hidden)
    found = torch.stack(found, 1)
    if lengths is None:
        return found, found[:, -1]
    before = torch.cat([first[:, None], found], 1)
    return found, before[torch.arange(len(packed)), lengths]


def scan_forward(grid, packed, first, lengths, hidden, end, steps, width, *, RAGGED, CHUNK, BLOCK, num_warps):
    assert grid[0] == len(packed)
    assert covers(grid[1], BLOCK, width)
    assert packed.shape[1:] == (steps, 2 * width)
    for held, new in zip((hidden, end), scanned(packed, first, lengths if RAGGED else None), strict=True):
        held.copy_(new)


def scan_backward(grid, packed, first, lengths, hidden, d_hidden, d_end, d_packed, d_first, steps, width, *, RAGGED,
                  CHUNK, BLOCK, num_warps):  # fmt: skip
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_() for part in (packed, first)]
        found = torch.autograd.grad(scanned(*leaves, lengths if RAGGED else None), leaves, (d_hidden, d_end))
    for held, new in zip((d_packed, d_first), found, strict=True):
        held.copy_(new)


def rotate(query, key, value, table, back=False):
    """Queries and keys turned, packed side by side [R, T, (H + 2G) d]."""
    cosine, sine = table[0], -table[1] if back else table[1]

    def turned(part):
        one, other = part.chunk(2, dim=-1)
        return torch.cat([one * cosine - other * sine, other * cosine + one * sine], dim=-1)

    return torch.cat([part.transpose(1, 2).flatten(2) for part in (turned(query), turned(key), value)], dim=-1)


def swiglu(both):
    one, other = both.chunk(2, dim=-1)
    return F.silu(one) * other


def swiglu_backward(both, above):
    with torch.enable_grad():
        leaf = both.detach().requires_grad_()
        return torch.autograd.grad(swiglu(leaf), leaf, above)[0]


# -- the stacks ------------------------------------------------------------------------------------------------------


def stirred(model):
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data.add_(0.1 * torch.randn(weight.shape))
    return model.train()


def gradients(model, cost):
    found = torch.autograd.grad(cost, list(model.parameters()), allow_unused=True)
    return {name: part for (name, _), part in zip(model.named_parameters(), found, strict=True)}


def assert_same(found, wanted):
    for name, part in wanted.items():
        if part is None:
            assert found[name] is None or not found[name].any(), name
        else:
            torch.testing.assert_close(
                found[name], part, rtol=2e-3, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_short_sentences_have_the_loss_and_gradients_of_the_written_transformer(norm, activation, played, monkeypatch):
    settings = transformer.Settings(width=32, heads=2, layers=2, dropout=0.0, norm=norm, activation=activation)
    model = stirred(transformer.Transformer(31, settings))
    source, tokens = torch.randint(1, 31, (3, 7)), torch.randint(1, 31, (3, 6))
    source_lengths, lengths = torch.tensor([7, 2, 5]), torch.tensor([5, 4, 1])

    def loss():
        state = model.begin(source, source_lengths)
        return model.loss(tokens[:, :-1], tokens[:, 1:], state, lengths)[0]

    written = loss()
    wanted = gradients(model, written.sum())
    with torch.no_grad():
        vectors = torch.randn(3, 7, 32)
        encoded = model.encoder(vectors, source_lengths)
    used, are_short = [], lambda blocks, like, columns, keys: used.append((columns, keys)) or True
    monkeypatch.setattr(short_blocks, "are_short", are_short)
    for thing, row in zip((model.encoder, model, model), short_blocks.ROWS, strict=True):
        assert type(thing) is row.owner
        thing.__dict__[row.method] = MethodType(row.does, thing)
    fast = loss()
    torch.testing.assert_close(fast, written, rtol=1e-4, atol=1e-5)
    assert_same(gradients(model, fast.sum()), wanted)
    with torch.no_grad():
        again = model.encoder(vectors, source_lengths)
    for row, length in enumerate(source_lengths.tolist()):
        torch.testing.assert_close(again[row, :length], encoded[row, :length], rtol=1e-4, atol=1e-5)
    state = model.begin(source, source_lengths)
    assert short_blocks._fits_encoder(model.encoder, vectors)
    assert short_blocks._fits_target(model, tokens, state, None)
    assert used == [(7, 7), (6, 7)]


@pytest.mark.parametrize("make", [
    lambda: gpt.GPT(31, gpt.Settings(layers=2, width=32, heads=2, context=24, dropout=0.0)),
    lambda: gpt.GPT(31, gpt.Settings(layers=2, width=32, heads=2, context=24, dropout=0.0, norm="post")),
    lambda: gpt.GPT(31, gpt.Settings(layers=2, width=32, heads=2, context=24, dropout=0.0, position="rotary")),
    lambda: llama.Llama(31, llama.Settings(layers=2, width=32, heads=4, context=24, dropout=0.0)),
    lambda: mingru.MinGRUModel(31, mingru.Settings(layers=2, width=32, dropout=0.0)),
], ids=["gpt", "gpt, post-norm", "gpt, rotary", "llama", "mingru"])  # fmt: skip
@pytest.mark.parametrize("short", [False, True])
def test_texts_have_the_loss_and_gradients_of_the_written_blocks(make, short, played, monkeypatch):
    """The epsilon of all these norms is PyTorch's usual one, which the played kernel has in its backward pass."""
    model = stirred(make())
    tokens = torch.randint(31, (3, 10))

    def loss():
        return model.loss(tokens[:, :-1], tokens[:, 1:], model.without_cache(3))[0]

    written = loss()
    wanted = gradients(model, written.sum())
    monkeypatch.setattr(language_blocks, "is_short", lambda like, queries, keys, depth: short)
    model.__dict__["hidden_states"] = MethodType(language_blocks.hidden_states, model)
    fast = loss()
    torch.testing.assert_close(fast, written, rtol=1e-4, atol=1e-5)
    assert_same(gradients(model, fast.sum()), wanted)
