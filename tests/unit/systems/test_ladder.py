"""The systems between the n-gram and GPT: their numbers, their initial weights, and what the notes say about them."""

import dataclasses
from importlib import import_module

import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.layers.attention import SelfAttention
from regard.layers.cell import Cell
from regard.layers.context import Average, Window
from regard.layers.recurrent import ACTIVATIONS, GRU, Elman
from regard.layers.state import Span
from regard.systems import dan, gru, nnlm, rnn, self_attention
from regard.systems.catalogue import SYSTEMS, load_class
from regard.systems.sizes import sizes_of

LADDER = ("rnn", "nnlm", "gru", "dan", "self-attention")


def span(rows: int, lengths: list[int] | None = None) -> Span:
    return Span(torch.zeros(rows, dtype=torch.int64), None if lengths is None else torch.tensor(lengths))


def begin(layer, rows: int, dtype: torch.dtype = torch.float64):
    return layer.begin(rows, device="cpu", dtype=dtype)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def module_of(system: str):
    return import_module(next(entry for entry in SYSTEMS if entry.name == system).target.partition(":")[0])


def chosen(system: str, size: str) -> dict:
    return sizes_of(system).of(size)


# -- a cell ----------------------------------------------------------------------------------------------------------


class Counter(Cell):
    """It counts its words, and shows twice the count."""

    def step(self, x, state):
        return {"hidden": state["hidden"] + 1, "double": 2 * (state["hidden"] + 1)}


def test_a_cell_says_only_what_one_step_does():
    cell, x = Counter(3, 2), draw(3, 4, 3)
    lengths = [4, 2, 0]
    y, state = cell(x, begin(cell, 3), span(3, lengths))
    assert state["hidden"][:, 0].tolist() == lengths  # a padded column leaves the row as it was
    assert y[0, :, 0].tolist() == [1, 2, 3, 4]
    same, _, parts = cell.explain(x, begin(cell, 3), span(3, lengths))
    assert torch.equal(same, y)
    assert set(parts) == {"hidden", "double"}
    assert parts["double"][0, :, 0].tolist() == [2, 4, 6, 8]


def test_a_step_that_forgets_what_it_carries_is_told_so():
    class Forgetful(Counter):
        memory = ("hidden", "trace")

    cell = Forgetful(3, 2)
    with pytest.raises(RegardError, match="trace is missing"):
        cell(draw(1, 4, 3), begin(cell, 1), span(1))


# -- rnn and gru -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_stacked_layers_are_pytorchs_stacked_rnn(activation):
    whole = nn.RNN(5, 7, num_layers=2, nonlinearity=activation, batch_first=True).double()
    agree_with_pytorch(whole, [Elman(size, 7, activation=activation).double() for size in (5, 7)])


def test_stacked_layers_are_pytorchs_stacked_gru():
    agree_with_pytorch(nn.GRU(5, 7, num_layers=2, batch_first=True).double(), [GRU(5, 7).double(), GRU(7, 7).double()])


def agree_with_pytorch(whole, layers):
    for number, layer in enumerate(layers):
        layer.fused.load_state_dict(
            {name: getattr(whole, name.replace("l0", f"l{number}")) for name in layer.fused.state_dict()}
        )
    x = draw(3, 6, 5)
    expected, last = whole(x)
    for number, layer in enumerate(layers):
        x, state = layer(x, begin(layer, 3), span(3))
        torch.testing.assert_close(state["hidden"], last[number])
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_elmans_step_is_the_written_equation(activation):
    layer, x = Elman(3, 4, activation=activation).double(), draw(2, 5, 3)
    w = dict(layer.fused.named_parameters())
    hidden, expected = draw(2, 4, seed=1), []
    state = {"hidden": hidden}
    for t in range(5):
        drive = x[:, t] @ w["weight_ih_l0"].T + hidden @ w["weight_hh_l0"].T + w["bias_ih_l0"] + w["bias_hh_l0"]
        hidden = {"tanh": torch.tanh, "sigmoid": lambda a: 1 / (1 + (-a).exp()), "relu": lambda a: a.clamp(min=0)}[
            activation
        ](drive)
        expected.append(hidden)
    for lengths in (None, [5, 5]):  # the plain and the packed way; sigmoid goes through a tanh kernel in both
        y, after = layer(x, state, span(2, lengths))
        torch.testing.assert_close(y, torch.stack(expected, dim=1))
        torch.testing.assert_close(after["hidden"], hidden)


def test_a_sigmoid_networks_frozen_row_keeps_every_bit():
    layer, x = Elman(3, 4, activation="sigmoid"), draw(2, 5, 3).float()
    state = {"hidden": torch.rand(2, 4)}
    _, after = layer(x, state, span(2, [5, 0]))
    assert torch.equal(after["hidden"][1], state["hidden"][1])


def test_identity_and_relu_keep_the_state_where_the_input_says_nothing():
    """Le et al. 2015: h_t = max(0, I h_{t-1} + 0) = h_{t-1}, and its gradient is 1 at any distance."""
    layer = Elman(3, 4, activation="relu", initialisation="identity").double()
    start = draw(2, 4).abs().requires_grad_()
    quiet = torch.zeros(2, 500, 3, dtype=torch.float64)
    y, after = layer(quiet, {"hidden": start}, span(2))
    assert torch.equal(after["hidden"], start)
    assert torch.equal(y[:, 250], start)
    (gradient,) = torch.autograd.grad(after["hidden"].sum(), start)
    assert torch.equal(gradient, torch.ones_like(start))


def test_initialisations_are_what_their_names_say():
    orthogonal = Elman(3, 6, initialisation="orthogonal").fused
    torch.testing.assert_close(orthogonal.weight_hh_l0 @ orthogonal.weight_hh_l0.T, torch.eye(6))
    identity = Elman(3, 6, initialisation="identity").fused
    assert torch.equal(identity.weight_hh_l0, torch.eye(6))
    for fused in (orthogonal, identity):
        assert not fused.bias_ih_l0.any()
        assert not fused.bias_hh_l0.any()
    torch.manual_seed(3)
    default = Elman(3, 6).fused.weight_hh_l0
    torch.manual_seed(3)
    assert torch.equal(default, nn.RNN(3, 6).weight_hh_l0)


def test_grus_gates_are_shown_and_its_hidden_state_lies_between_past_and_candidate():
    layer, x = GRU(3, 4).double(), draw(2, 5, 3)
    start = {"hidden": draw(2, 4, seed=1)}
    hidden, _, parts = layer.explain(x, start, span(2))
    assert set(parts) == {"reset", "update", "candidate", "hidden"}
    past = torch.cat([start["hidden"][:, None], hidden[:, :-1]], dim=1)
    torch.testing.assert_close(hidden, parts["update"] * past + (1 - parts["update"]) * parts["candidate"])


# -- dan -------------------------------------------------------------------------------------------------------------


def test_the_notes_average():
    """C10, 002:43: the deep averaging network sees AABA as (3/4, 1/4)."""
    words = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    layer = Average(2)
    y, _, parts = layer.explain(words, begin(layer, 1, torch.float32), span(1))
    assert y[0, -1].tolist() == [0.75, 0.25]
    assert parts["weight"][0].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_attention_with_queries_of_zero_is_the_average():
    """C10: q = 0 is exactly the DAN."""
    attention, x = SelfAttention(4, score="dot").double(), draw(2, 8, 4)
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.value.weight.copy_(torch.eye(4))
        y = attention.explain(x, begin(attention, 2), span(2))[0]
    average = Average(4)
    torch.testing.assert_close(y, average(x, begin(average, 2), span(2))[0])


def test_the_average_is_blind_to_order_and_exact_at_any_length():
    layer = Average(2)
    x = draw(1, 50, 2)
    shuffled = x[:, torch.randperm(50, generator=torch.Generator().manual_seed(0))]
    torch.testing.assert_close(
        layer(x, begin(layer, 1), span(1))[0][:, -1], layer(shuffled, begin(layer, 1), span(1))[0][:, -1]
    )
    state, at = begin(layer, 1, torch.bfloat16), torch.zeros(1, dtype=torch.int64)
    assert state["sum"].dtype == torch.float32  # bf16 would stop counting at 256
    ones = torch.ones(1, 1000, 2, dtype=torch.bfloat16)
    for _ in range(20):
        y, state = layer(ones, state, Span(at))
        at = at + 1000
    assert y[0, -1].tolist() == [1.0, 1.0]
    assert state["sum"].tolist() == [[20_000.0, 20_000.0]]


def test_dan_depth_and_width_are_the_settings():
    deep = dan.DAN(11, dan.Settings(layers=3, width=8, embedding=5, tied=False))
    linear = [module for module in deep.finish if isinstance(module, nn.Linear)]
    assert [(part.in_features, part.out_features) for part in linear] == [(5, 8), (8, 8), (8, 8)]
    bag = dan.DAN(11, dan.Settings(layers=0, width=8))
    assert weights(bag) == 11 * 8 + 11


# -- nnlm ------------------------------------------------------------------------------------------------------------


def test_the_window_holds_the_last_words_and_the_vector_before_the_start():
    layer, x = Window(2, 3).double(), draw(1, 4, 2)
    y = layer(x, begin(layer, 1), span(1))[0][0]
    start, words = layer.start, x[0]
    assert torch.equal(y[0], torch.cat([start, start, words[0]]))
    assert torch.equal(y[1], torch.cat([start, words[0], words[1]]))
    assert torch.equal(y[3], torch.cat([words[1], words[2], words[3]]))


def test_nnlm_is_bengios_equation():
    """y = b + W x + U tanh(d + H x), written out for one position."""
    torch.manual_seed(0)
    model = nnlm.NNLM(11, nnlm.Settings(order=4, width=6, embedding=3, direct=True)).double()
    words = torch.tensor([[4, 1, 7, 2]])
    x = model.embedding.table.weight[words[0, 1:]].flatten()
    hidden = (model.finish.linear.bias + model.finish.linear.weight @ x).tanh()
    expected = model.output.bias + model.direct.weight @ x + model.output.weight @ hidden
    torch.testing.assert_close(model(words)[0][0, -1], expected)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_nnlm_forgets_what_leaves_its_window_and_sees_order_inside_it(order):
    torch.manual_seed(0)
    model = nnlm.NNLM(11, nnlm.Settings(order=order, width=8, embedding=4)).double()
    tokens = torch.randint(11, (1, 9), generator=torch.Generator().manual_seed(1))
    before = model(tokens)[0][0, -1]
    for place in range(9):
        other = tokens.clone()
        other[0, place] = (other[0, place] + 1) % 11
        assert torch.equal(model(other)[0][0, -1], before) == (place < 9 - (order - 1))
    if order > 2:
        swapped = torch.cat([tokens[:, :-2], tokens[:, [-1, -2]]], dim=1)
        assert not torch.allclose(model(swapped)[0][0, -1], before)


def test_nnlm_reads_a_text_of_any_length():
    model = nnlm.NNLM(11, nnlm.Settings(order=4, width=8, embedding=4))
    assert model.context is None
    assert model(torch.zeros(1, 300, dtype=torch.int64))[0].shape == (1, 300, 11)


# -- self-attention --------------------------------------------------------------------------------------------------


def bare(**settings):
    torch.manual_seed(0)
    model = self_attention.SelfAttentionModel(11, self_attention.Settings(width=8, context=8, **settings)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def test_without_positions_the_last_output_is_blind_to_the_order_of_the_prefix():
    """C8: one causal layer; the mask breaks the symmetry only for those that see a part of the prefix."""
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    shuffled = tokens[:, [4, 2, 0, 5, 1, 3, 6]]
    model = bare()
    torch.testing.assert_close(model(tokens)[0][0, -1], model(shuffled)[0][0, -1])
    assert not torch.allclose(model(tokens)[0][0, 2], model(shuffled)[0][0, 2])
    for position in self_attention.INPUT_POSITIONS[1:]:
        placed = bare(position=position)
        assert not torch.allclose(placed(tokens)[0][0, -1], placed(shuffled)[0][0, -1])


def test_two_bare_layers_are_no_longer_blind():
    """C8: in two causal layers the order of the prefix shows, through what its words have seen."""
    x, other = draw(1, 6, 4), [3, 0, 4, 1, 2, 5]
    torch.manual_seed(0)
    lower, upper = SelfAttention(4).double(), SelfAttention(4).double()

    def last_output(x):
        below, _ = lower(x, begin(lower, 1), span(1))
        return below[0, -1], upper(below, begin(upper, 1), span(1))[0][0, -1]

    one, two = last_output(x), last_output(x[:, other])
    torch.testing.assert_close(one[0], two[0])
    assert not torch.allclose(one[1], two[1])


def test_nothing_stands_beside_the_attention():
    """No residual, no layer norm, no feed-forward: with projections off, the weights are two tables."""
    names = {name for name, _ in bare(projections=False).named_parameters()}
    assert names == {"embedding.table.weight", "output.weight"}
    names = {name for name, _ in bare().named_parameters()}
    assert names == {"embedding.table.weight", "output.weight"} | {
        f"layers.0.{part}.weight" for part in ("query", "key", "value")
    }


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_f_acts_on_query_key_and_value(activation):
    """000:62: q = f(W_q c), k = f(W_k c), v = f(W_v c)."""
    layer, x = SelfAttention(4, score="dot", activation=activation).double(), draw(1, 3, 4)
    f = getattr(torch, activation)
    query, keys, values = (f(x[0] @ part.weight.T) for part in (layer.query, layer.key, layer.value))
    expected = (query @ keys.T).masked_fill(torch.ones(3, 3).triu(1).bool(), -torch.inf).softmax(-1) @ values
    torch.testing.assert_close(layer(x, begin(layer, 1), span(1))[0][0], expected)


def test_an_empty_window_is_seen_in_the_explanation():
    model = bare(score="boxcar", bandwidth=0.01)
    _, _, parts = model.explain(torch.tensor([[3, 1, 4]]))
    assert parts["layers"]["0"]["empty"].shape == (1, 1, 3)
    assert parts["layers"]["0"]["empty"].all()
    torch.testing.assert_close(parts["layers"]["0"]["weights"][0, 0, -1], torch.full((3,), 1 / 3).double())
    _, _, parts = bare(score="boxcar", bandwidth=0.01, projections=False).explain(torch.tensor([[3, 1, 4]]))
    assert not parts["layers"]["0"]["empty"].any()  # a word is always near to itself


def test_attention_weights_are_dropped_only_in_training():
    layer, x = SelfAttention(8, score="additive", dropout=0.5), draw(1, 5, 8).float()
    one, other = (layer(x, begin(layer, 1, torch.float32), span(1))[0] for _ in range(2))
    assert not torch.equal(one, other)
    layer.eval()
    assert torch.equal(*(layer(x, begin(layer, 1, torch.float32), span(1))[0] for _ in range(2)))


@pytest.mark.parametrize("position", self_attention.INPUT_POSITIONS)
def test_context_is_stated_only_where_positions_end(position):
    settings = self_attention.Settings(width=16, context=8, position=position)
    model = self_attention.SelfAttentionModel(11, settings)
    assert model.context == (8 if position in ("learned", "one-hot") else None)


# -- all of them -----------------------------------------------------------------------------------------------------


def test_parameters_do_not_depend_on_the_length_of_the_text():
    """C12: not for the recurrent, the averaging and the attending; nnlm's grow with its window."""
    for system in LADDER:
        model = load_class(system)(11, module_of(system).Settings(**chosen(system, "tiny")))
        before = weights(model)
        for length in (1, 100):
            assert model(torch.zeros(1, length, dtype=torch.int64))[0].shape == (1, length, 11)
        assert weights(model) == before
    grown = [weights(nnlm.NNLM(11, nnlm.Settings(order=n, width=8, embedding=4))) for n in (3, 4, 5)]
    assert grown[1] - grown[0] == grown[2] - grown[1] == 4 * 8
    placed = {
        (position, context): weights(
            self_attention.SelfAttentionModel(11, self_attention.Settings(width=32, context=context, position=position))
        )
        for position in ("sinusoid", "learned")
        for context in (8, 16)
    }
    assert placed["learned", 16] - placed["learned", 8] == 8 * 32
    assert placed["sinusoid", 16] == placed["sinusoid", 8]


@pytest.mark.parametrize("system", LADDER)
@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
def test_every_size_builds(system, size):
    settings = module_of(system).Settings(**chosen(system, size))
    with torch.device("meta"):
        model = load_class(system)(1000, settings)
    assert model.flops_per_token > 0
    assert all(field.metadata["doc"] for field in dataclasses.fields(settings))


@pytest.mark.parametrize("system", LADDER)
def test_small_is_the_default_size(system):
    """Except for dropout, which was tuned for each system and size."""
    settings, small = module_of(system).Settings(), module_of(system).Settings(**chosen(system, "small"))
    same = {"dropout": settings.dropout} if hasattr(settings, "dropout") else {}
    assert settings == dataclasses.replace(small, **same)


@pytest.mark.parametrize(
    ("module", "wrong", "key"),
    [
        (rnn, {"activation": "gelu"}, "model.activation"),
        (rnn, {"initialisation": "eye"}, "model.initialisation"),
        (rnn, {"layers": 0}, "model.layers"),
        (gru, {"dropout": 1.0}, "model.dropout"),
        (nnlm, {"order": 1}, "model.order"),
        (nnlm, {"tied": True}, "model.embedding"),
        (dan, {"layers": -1}, "model.layers"),
        (dan, {"activation": "sigmoid"}, "model.activation"),
        (self_attention, {"score": "cosine"}, "model.score"),
        (self_attention, {"bandwidth": 0.0}, "model.bandwidth"),
        (self_attention, {"position": "rotary"}, "model.position"),
        (self_attention, {"projections": False, "activation": "tanh"}, "model.projections"),
        (self_attention, {"position": "learned", "combine": "concatenate", "tied": True}, "model.tied"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(module, wrong, key):
    with pytest.raises(RegardError, match=key):
        module.Settings(**wrong)


@pytest.mark.parametrize("system", LADDER)
@pytest.mark.parametrize("capacity", [None, 12])
def test_states_work_in_bf16_to_bf16s_tolerance(system, capacity):
    torch.manual_seed(0)
    model = load_class(system)(31, module_of(system).Settings(**chosen(system, "tiny"))).eval()
    tokens, lengths = torch.randint(31, (3, 8)), torch.tensor([4, 2, 0])
    with torch.no_grad():
        _, exact = model(tokens[:, :4], None, lengths)
        expected, _ = model(tokens[:, 4:], exact)
        with torch.autocast("cpu", torch.bfloat16):
            _, state = model(tokens[:, :4], model.begin(rows=3, capacity=capacity), lengths)
            logits, _ = model(tokens[:, 4:], state)
    torch.testing.assert_close(logits.float(), expected, rtol=0.0, atol=0.02)
