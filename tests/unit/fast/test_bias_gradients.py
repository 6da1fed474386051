"""Gradients that are summed at the end of a stack, and those of chunks that are written side by side."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.fast.attention.bias_gradients import PROGRAMS, DeferredSums, split_rows
from regard.fast.training.gradient_buffer import chunks


class Scaled(torch.autograd.Function):
    """x ∘ g + b, whose way back leaves the sums over rows of g and b in shares, as a kernel's programs do."""

    @staticmethod
    def forward(ctx, x, place, gain, shift):
        ctx.save_for_backward(x, gain)
        ctx.place = place
        return x * gain + shift

    @staticmethod
    def backward(ctx, above):
        x, gain = ctx.saved_tensors
        shares, views = ctx.place.open(x.device)
        terms = torch.cat([above * x, above], dim=1)
        for program, part in enumerate(terms.tensor_split(len(shares))):
            shares[program] = part.sum(0)
        return above * gain, None, *views


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 20))
def test_deferred_gradients_are_those_of_autograd(widths, shares, rows):
    torch.manual_seed(0)
    layers = [tuple(torch.randn(2, width).unbind()) for width in widths]
    for vector in (vector for layer in layers for vector in layer):
        vector.requires_grad_()
    xs = [torch.randn(rows, width, requires_grad=True) for width in widths]
    deferred, answers = DeferredSums(layers, shares), []
    for late in (True, False):
        cost = torch.zeros(())
        for x, (gain, shift) in zip(xs, layers, strict=True):
            if late:
                place, (gain, shift) = deferred.take(gain, shift)
                cost = cost + Scaled.apply(x, place, gain, shift).sin().sum()
            else:
                cost = cost + (x * gain + shift).sin().sum()
        answers.append(torch.autograd.grad(cost, [*xs, *(vector for layer in layers for vector in layer)]))
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other)


def test_all_sums_of_a_stack_are_one(monkeypatch):
    layers = [tuple(torch.ones(2, 5).requires_grad_().unbind()) for _ in range(6)]
    deferred, cost, summed = DeferredSums(layers, 4), torch.zeros(()), []
    for gain, shift in layers:
        place, vectors = deferred.take(gain, shift)
        cost = cost + Scaled.apply(torch.ones(8, 5), place, *vectors).sum()
    add_up = torch.sum
    monkeypatch.setattr(torch, "sum", lambda *given, **how: summed.append(given[0].shape) or add_up(*given, **how))
    cost.backward()
    assert summed == [(4, deferred.width)]
    assert deferred.found is None  # nothing is kept until the next step


def test_a_vector_is_given_out_once_and_its_gradient_has_its_precision():
    gain, shift = torch.ones(3, dtype=torch.float64).requires_grad_(), torch.zeros(3).requires_grad_()
    deferred = DeferredSums([(gain, shift)], 2)
    place, vectors = deferred.take(gain, shift)
    with pytest.raises(KeyError):
        deferred.take(gain, shift)
    Scaled.apply(torch.ones(4, 3), place, *vectors).sum().backward()
    assert gain.grad.dtype == torch.float64
    assert gain.grad.tolist() == shift.grad.tolist() == [4.0] * 3


def test_a_vector_that_nobody_used_has_no_gradient():
    used, unused = (tuple(torch.ones(2, 3).requires_grad_().unbind()) for _ in range(2))
    vectors = [vector.detach().requires_grad_() for vector in (*used, *unused)]
    deferred = DeferredSums([vectors[:2], vectors[2:]], 2)
    place, taken = deferred.take(*vectors[:2])
    Scaled.apply(torch.ones(4, 3), place, *taken).sum().backward()
    assert [vector.grad is None for vector in vectors] == [False, False, True, True]


@given(st.integers(1, 100_000))
def test_all_rows_are_dealt_and_no_program_goes_without(rows):
    each, programs = split_rows(rows)
    assert (programs - 1) * each < rows <= programs * each
    assert programs <= PROGRAMS


class Doubled(torch.autograd.Function):
    """2 x of a chunk, with its gradient where the chunk wants it."""

    @staticmethod
    def forward(ctx, x, slot):
        ctx.slot = slot
        return 2 * x

    @staticmethod
    def backward(ctx, above):
        place = ctx.slot.open()
        place.copy_(2 * above)
        return place, None


@pytest.mark.parametrize("readers", ["all", "one", "another way", "twice"])
def test_the_gradient_of_pieces_is_that_of_the_whole(readers):
    x = torch.randn(4, 6, requires_grad=True)
    first, second, third = chunks(x, 3)
    cost = Doubled.apply(*first).sin().sum()
    expected = (2 * x[:, :2]).sin().sum()
    if readers == "all":
        cost = cost + sum(Doubled.apply(*chunk).cos().sum() for chunk in (second, third))
        expected = expected + (2 * x[:, 2:]).cos().sum()
    if readers == "another way":
        cost, expected = cost + third.value.exp().sum(), expected + x[:, 4:].exp().sum()
    if readers == "twice":
        cost, expected = cost + first.value.exp().sum(), expected + x[:, :2].exp().sum()
    (found,) = torch.autograd.grad(cost, x)
    torch.testing.assert_close(found, *torch.autograd.grad(expected, x))
