"""Recurrent layers that learn on a CPU, beyond the table's own test: which way a batch takes, precision, dropout."""

import copy

import pytest
import torch

from regard.fast import Use, install, uninstall
from regard.fast.recurrence import cpu_recurrence
from regard.fast.recurrence import recurrent_layers as recurrence
from regard.layers.encoder import RecurrentEncoder
from regard.layers.recurrent import GRU, LSTM, Elman
from regard.layers.state import Span


def ready(thing):
    install(thing, Use(training=True))
    return thing


def call(layer, x, lengths=None):
    state = layer.begin(len(x), device="cpu", dtype=torch.float32)
    return layer(x, state, Span(torch.zeros(len(x), dtype=torch.int64), lengths))


@pytest.mark.parametrize("make", [GRU, Elman])
def test_the_gradient_that_is_given_is_left_as_it_was(make):
    given = torch.randn(3, 4, 5)
    before = given.clone()
    call(ready(make(6, 5)), torch.randn(3, 4, 6))[0].backward(given)
    assert torch.equal(given, before)


@pytest.mark.parametrize("make", [GRU, Elman])
def test_the_state_keeps_no_other_step_in_memory(make):
    hidden, state = call(ready(make(6, 5)), torch.randn(3, 4, 6))
    assert torch.equal(state["hidden"], hidden[:, -1])
    assert state["hidden"].untyped_storage().nbytes() == state["hidden"].nbytes


@pytest.mark.parametrize("make", [GRU, Elman])
def test_autocast_rounds_neither_values_nor_gradients(make):
    layer, x, found = ready(make(6, 5)), torch.randn(3, 4, 6), []
    for on in (False, True):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            call(layer, x)[0].sum().backward()
        found.append([weight.grad.clone() for weight in layer.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_autocast_rounds_no_memory(cell):
    encoder, x = ready(RecurrentEncoder(6, 5, cell=cell)), torch.randn(3, 4, 6)
    plain, _ = encoder(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoder(x)[0], plain)


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_an_encoder_drops_between_its_layers_alone(cell):
    encoder = RecurrentEncoder(6, 5, cell=cell, layers=2, dropout=0.5).train()
    x, found, lengths = torch.randn(3, 4, 6), [], torch.tensor([4, 4, 3])
    for set_up in (uninstall, ready):
        set_up(encoder)
        torch.manual_seed(1)
        found.append(encoder(x, lengths)[0][:, :3])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("make", [GRU, Elman, lambda *sizes: RecurrentEncoder(*sizes, cell="gru")])
def test_an_input_of_another_precision_is_read_in_that_of_the_weights(make):
    thing, x = ready(make(6, 5)), torch.randn(3, 4, 6).bfloat16()
    found = thing(x)[0] if isinstance(thing, RecurrentEncoder) else call(thing, x)[0]
    assert found.dtype == torch.float32


def test_it_is_for_learning_and_for_a_cpu():
    assert cpu_recurrence.learns(GRU(6, 5), torch.randn(3, 4, 6))
    assert not cpu_recurrence.learns(GRU(6, 5), torch.empty(3, 4, 6, device="meta"))
    with torch.no_grad():
        assert not cpu_recurrence.learns(GRU(6, 5), torch.randn(3, 4, 6))


@pytest.mark.parametrize(
    "make, lengths, learns, way",
    [
        (LSTM, [4, 4, 4], True, "whole"),
        (LSTM, [4, 4, 1], True, "closed"),
        (LSTM, [4, 1, 0], True, "packed"),  # mostly padding
        (LSTM, [4, 4, 1], False, "packed"),
        (GRU, [4, 4, 4], True, "whole"),
        (GRU, [4, 4, 1], True, "sorted"),
        (GRU, [4, 4, 1], False, "packed"),
        (Elman, [4, 4, 1], True, "sorted"),
    ],
)
def test_which_way_a_batch_takes(make, lengths, learns, way, monkeypatch):
    took = []

    def spy(module, name, said):
        real = getattr(module, name)

        def call(*given):
            took.append(said(given))
            return real(*given)

        monkeypatch.setattr(module, name, call)

    spy(recurrence, "padded", lambda given: "closed")
    spy(recurrence, "_packed", lambda given: "packed")
    spy(cpu_recurrence, "unroll", lambda given: "whole" if given[-1] is None else "sorted")
    with torch.set_grad_enabled(learns):
        call(ready(make(6, 5)), torch.randn(3, 4, 6), torch.tensor(lengths))
    assert (took or ["whole"]) == [way]


def test_gates_are_closed_only_for_onednn(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not recurrence.closes("LSTM", torch.zeros(2, 3, 1), torch.tensor([3, 2]))


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("lengths", [[5, 5, 0], [5, 0, 0]])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_an_encoder_reads_an_empty_source(cell, lengths, learns):
    encoder = RecurrentEncoder(6, 5, cell=cell, layers=2, bidirectional=True).double()
    x, given = torch.randn(3, 5, 6, dtype=torch.float64), torch.tensor(lengths)
    with torch.set_grad_enabled(learns):
        wanted, ended = encoder(x, given)
        found, last = ready(copy.deepcopy(encoder))(x, given)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(found[row, :length], wanted[row, :length])
    torch.testing.assert_close(last, ended)
