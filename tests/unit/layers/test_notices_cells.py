"""What cells, spans and embeddings are told: a step that returns something else, a memory that is no tuple."""

import pytest
import torch

from regard.base.errors import RegardError
from regard.layers.cell import Cell
from regard.layers.embedding import Embedding
from regard.layers.position import OneHot, Sinusoid
from regard.layers.state import Span, span_of

V = 17


def said(call, *given, kind=RegardError, **named):
    with pytest.raises(kind) as error:
        call(*given, **named)
    return str(error.value)


def test_a_position_that_does_not_fit_is_refused():
    assert said(Embedding, V, 4, OneHot(5), kind=ValueError) == "a position of width 5 does not fit into 4"
    assert said(Embedding, V, 4, OneHot(4), concatenate=True, kind=ValueError) == (
        "a position of width 4 does not fit into 4"
    )
    assert said(Embedding, V, 0, kind=ValueError) == "a position of width 0 does not fit into 0"
    assert Embedding(V, 5, OneHot(4), concatenate=True).table.weight.shape == (V, 1)
    assert Embedding(V, 16, Sinusoid(16), concatenate=False).scale == 4.0
    assert Embedding(V, 16, Sinusoid(8), concatenate=True).scale == 1.0


# -- cells and spans -------------------------------------------------------------------------------------------------


class Free(Cell):
    """A cell whose step returns whatever is asked for."""

    memory, returned = ("hidden", "trace"), None

    def step(self, x, state):
        return self.returned(x, state)


def stepped(returned, **attributes):
    cell = type("Free", (Free,), attributes)(2, 3)
    cell.returned = returned
    state = {name: torch.zeros(1, 3) for name in ("hidden", "trace")}
    cell(torch.zeros(1, 1, 2), state, Span(torch.zeros(1, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (lambda x, state: x, 'a step must return a dict of tensors such as {"hidden": …}, not a Tensor.'),
        (lambda x, state: {"hidden": state["hidden"]},
         "a step must return everything the cell carries: trace is missing."),
        (lambda x, state: {}, "a step must return everything the cell carries: hidden, trace is missing."),
        (lambda x, state: {**state, "trace": 0.0}, "a step must return trace as a tensor, not as a float."),
        (lambda x, state: {**state, "hidden": x},
         "a step must return hidden in the shape it was given, here [1, 3], not [1, 2]."),
        (lambda x, state: {"hidden": state["cell"]},
         'step requires \'cell\', which the cell does not carry: write memory = ("hidden", "trace", "cell").'),
    ],
)  # fmt: skip
def test_a_step_that_returns_something_else_is_told_what(returned, sentence):
    assert said(stepped, returned) == sentence


@pytest.mark.parametrize(
    ("memory", "sentence"),
    [
        ("hidden", 'memory = "hidden" is a string, not a tuple: write memory = ("hidden",).'),
        (("cell", "trace"),
         'memory must contain "hidden", which is also the output: write memory = ("hidden", "cell", "trace").'),
    ],
)  # fmt: skip
def test_a_memory_that_is_no_tuple_with_hidden_is_told_how_to_write_it(memory, sentence):
    cell = type("Free", (Free,), {"memory": memory})(2, 3)
    assert said(cell.begin, 1, device="cpu", dtype=torch.float32) == sentence


def test_lengths_on_the_host_stay_there_too():
    """As on a GPU, which need not be asked for them."""
    host, start = torch.tensor([2, 0]), torch.zeros(2, dtype=torch.int64)
    assert span_of(start, host) == Span(start, host)
    assert span_of(start, None).lengths is None
    assert span_of(start, host).on_host() is not None
    assert span_of(start, host).on_host().tolist() == [2, 0]
    elsewhere = span_of(start.to("meta"), host)
    assert elsewhere.lengths.device.type == "meta"
    assert elsewhere.on_host() is host
    assert span_of(start.to("meta"), host.to("meta")).host is None
