"""What the laws do not say about layers: their numbers, their initial weights, their dropout."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from regard.layers.attention import CausalSelfAttention, FullSelfAttention, GroupedQueryAttention
from regard.layers.blocks import FeedForward, PostNormEncoderBlock, PreNormEncoderBlock
from regard.layers.dropout import VariationalDropout, WordDropout
from regard.layers.embedding import Embedding
from regard.layers.encoder import RecurrentEncoder, TransformerEncoder
from regard.layers.position import ALiBi, Index, Learned, OneHot, Position, Rotary, Sine, Sinusoid, rotate
from regard.layers.recurrent import CELLS, GRU, LSTM, Elman
from regard.layers.state import Span, last, select_rows


def span(rows: int, lengths: list[int] | None = None) -> Span:
    return Span(torch.zeros(rows, dtype=torch.int64), None if lengths is None else torch.tensor(lengths))


def begin(layer, rows: int):
    weight = next(layer.parameters())
    return layer.begin(rows, device=weight.device, dtype=weight.dtype)


# -- embedding -------------------------------------------------------------------------------------------------------


def test_a_one_hot_vector_times_the_matrix_is_a_table_look_up():
    embedding = Embedding(10, 4)
    tokens = torch.tensor([[3, 1, 4], [1, 5, 9]])
    one_hot = nn.functional.one_hot(tokens, 10).float()
    torch.testing.assert_close(embedding(tokens, span(2)), one_hot @ embedding.table.weight)


def test_added_and_concatenated_positions():
    tokens, places = torch.tensor([[3, 1, 4]]), torch.tensor([[0.0, 1.0, 2.0]])
    added, joined = Embedding(10, 4, Index(1)), Embedding(10, 4, Index(1), concatenate=True)
    torch.testing.assert_close(added(tokens, span(1))[..., 0], added.table(tokens)[..., 0] + places)
    torch.testing.assert_close(added(tokens, span(1))[..., 1:], added.table(tokens)[..., 1:])  # padded with zeros
    torch.testing.assert_close(joined(tokens, span(1))[..., :3], joined.table(tokens))
    torch.testing.assert_close(joined(tokens, span(1))[..., 3], places)


def test_waves_are_added_to_words_of_their_own_size():
    embedding, tokens = Embedding(10, 16, Sinusoid(16)), torch.tensor([[3, 1]])
    waves = embedding.position(torch.tensor([[0, 1]]), torch.float32)
    torch.testing.assert_close(embedding(tokens, span(1)), 4.0 * embedding.table(tokens) + waves)


# -- positions -------------------------------------------------------------------------------------------------------


def test_positions_are_the_written_formulas():
    t = torch.tensor([[0, 1, 7, 1000]])
    omega = [10000.0 ** (-k / 4) for k in range(4)]
    sine = torch.tensor([[[math.sin(w * p) for w in omega] for p in t[0].tolist()]], dtype=torch.float64)
    cosine = torch.tensor([[[math.cos(w * p) for w in omega] for p in t[0].tolist()]], dtype=torch.float64)
    torch.testing.assert_close(Sine(4)(t, torch.float64), sine)
    vaswani = Sinusoid(8)(t, torch.float64)
    torch.testing.assert_close(vaswani[..., 0::2], sine)
    torch.testing.assert_close(vaswani[..., 1::2], cosine)
    assert Sinusoid(7)(t, torch.float32).shape == (1, 4, 7)
    assert OneHot(3)(torch.tensor([[0, 2]]), torch.float32).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert Index(1)(t, torch.float32).flatten().tolist() == [0, 1, 7, 1000]


def test_a_wave_is_computed_in_fp32_whatever_the_precision():
    far = torch.tensor([[100_003]])  # bf16 cannot even hold this number
    wave, exact = Sine(4)(far, torch.bfloat16), Sine(4)(far, torch.float64)
    assert (wave.double() - exact).abs().max() < 0.01


@pytest.mark.parametrize("position", [OneHot(3), Learned(3, 3)])
def test_a_padded_column_beyond_the_context_does_no_harm(position):
    places = position(torch.tensor([[1, 2, 3, 99]]), torch.float32)
    assert places.isfinite().all()
    assert places.shape == (1, 4, 3)


def test_rotary_scores_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(at_query: int, at_key: int):
        return (rotate(query, torch.tensor([[at_query]])) * rotate(key, torch.tensor([[at_key]]))).sum()

    torch.testing.assert_close(score(7, 3), score(104, 100))
    assert not torch.isclose(score(7, 3), score(7, 4))


# -- LSTM ------------------------------------------------------------------------------------------------------------


def test_stacked_layers_are_pytorchs_stacked_lstm():
    whole = nn.LSTM(5, 7, num_layers=2, batch_first=True).double()
    lower, upper = LSTM(5, 7).double(), LSTM(7, 7).double()
    for number, layer in enumerate((lower, upper)):
        layer.fused.load_state_dict(
            {name: getattr(whole, name.replace("l0", f"l{number}")) for name in layer.fused.state_dict()}
        )
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    below, below_state = lower(x, begin(lower, 3), span(3))
    hidden, state = upper(below, begin(upper, 3), span(3))
    expected, (last_hidden, last_cell) = whole(x)
    torch.testing.assert_close(hidden, expected)
    torch.testing.assert_close(torch.stack([below_state["hidden"], state["hidden"]]), last_hidden)
    torch.testing.assert_close(torch.stack([below_state["cell"], state["cell"]]), last_cell)


@pytest.mark.parametrize("layer", [Elman(5, 7), Elman(5, 7, activation="relu"), LSTM(5, 7), GRU(5, 7)], ids=repr)
def test_a_recurrent_layer_is_pytorchs_with_the_same_weights(layer):
    """W's and U's parts are not exchanged in any gate, and neither are the gates."""
    layer = layer.double()
    x, state = torch.randn(3, 6, 5).double(), layer.begin(3, device="cpu", dtype=torch.float64)
    state = {name: torch.randn_like(value) for name, value in state.items()}
    before = tuple(value[None] for value in state.values())
    wanted, _ = layer.fused(x, before if len(before) > 1 else before[0])
    found, _ = layer(x, state, span(3))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
def test_the_forget_gates_bias_is_the_setting(bias):
    layer = LSTM(4, 6, forget_bias=bias)
    total = layer.fused.bias_ih_l0 + layer.fused.bias_hh_l0
    assert total[6:12].tolist() == [bias] * 6
    quiet = torch.zeros(1, 1, 4)
    _, _, parts = layer.explain(quiet, begin(layer, 1), span(1))
    torch.testing.assert_close(parts["forget"], torch.full((1, 1, 6), bias).sigmoid())


def test_the_notes_gate_keeps_clears_and_halves():
    """001:44: a cell state times the gate (1 0 0 .5)."""
    layer = LSTM(1, 4).double()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
        layer.fused.bias_ih_l0[0:4] = -1000.0  # store nothing
        layer.fused.bias_ih_l0[4:8] = torch.tensor([1000.0, -1000.0, -1000.0, 0.0])
    state = {**begin(layer, 1), "cell": torch.tensor([[3.0, 5.0, 7.0, 9.0]], dtype=torch.float64)}
    _, after, parts = layer.explain(torch.zeros(1, 1, 1, dtype=torch.float64), state, span(1))
    assert parts["forget"].flatten().tolist() == [1.0, 0.0, 0.0, 0.5]
    assert after["cell"].flatten().tolist() == [3.0, 0.0, 0.0, 4.5]


def test_the_shared_weights_gradient_is_the_sum_over_steps():
    """002:15: updates to the weights accumulate over the whole sequence."""
    layer, x = LSTM(3, 4).double(), torch.randn(2, 5, 3, dtype=torch.float64)
    shared = torch.autograd.grad(layer(x, begin(layer, 2), span(2))[0].square().sum(), list(layer.parameters()))
    copies = [{name: w.detach().clone().requires_grad_() for name, w in layer.named_parameters()} for _ in range(5)]
    state, outputs = begin(layer, 2), []
    for t, weights in enumerate(copies):
        hidden, state = functional_call(layer, weights, (x[:, t : t + 1], state, span(2)))
        outputs.append(hidden)
    loss = torch.cat(outputs, dim=1).square().sum()
    steps = [torch.autograd.grad(loss, list(weights.values()), retain_graph=True) for weights in copies]
    for whole, parts in zip(shared, zip(*steps, strict=True), strict=True):
        torch.testing.assert_close(whole, sum(parts))


def test_explain_names_every_gate():
    layer, x = LSTM(3, 4), torch.randn(2, 5, 3)
    _, _, parts = layer.explain(x, begin(layer, 2), span(2, [5, 3]))
    assert set(parts) == {"forget", "store", "update", "output", "cell", "hidden"}
    assert all(part.shape == (2, 5, 4) for part in parts.values())


# -- dropout ---------------------------------------------------------------------------------------------------------


def test_weight_drop_drops_only_in_training_and_anew_in_each_call():
    layer, x = LSTM(3, 8, dropout_recurrent=0.5), torch.randn(2, 5, 3)
    before = {name: weight.clone() for name, weight in layer.named_parameters()}
    first, second = (layer(x, begin(layer, 2), span(2))[0] for _ in range(2))
    assert torch.equal(first[:, 0], second[:, 0])  # the first step has nothing to recur from
    assert not torch.isclose(first[:, 1:], second[:, 1:]).any()
    layer.eval()
    quiet = layer(x, begin(layer, 2), span(2))[0]
    assert torch.equal(quiet, layer(x, begin(layer, 2), span(2))[0])
    assert all(torch.equal(weight, before[name]) for name, weight in layer.named_parameters())


def test_weight_drop_loses_the_same_connections_at_every_step():
    layer, x = LSTM(3, 8, dropout_recurrent=0.5), torch.randn(2, 5, 3)
    torch.manual_seed(3)
    fast = layer(x, begin(layer, 2), span(2, [5, 2]))[0]
    torch.manual_seed(3)
    written = layer.explain(x, begin(layer, 2), span(2, [5, 2]))[0]  # draws one mask before its loop over time
    torch.testing.assert_close(fast[0], written[0])
    fast.sum().backward()
    share = (layer.fused.weight_hh_l0.grad == 0).float().mean()
    assert 0.3 < share < 0.7  # dropped connections learn nothing in this call


def test_a_variational_mask_is_constant_over_time():
    drop = VariationalDropout(0.5)
    y = drop(torch.ones(4, 6, 50))
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert not torch.equal(y[0], y[1])  # each row has its own
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(y, drop(torch.ones(4, 6, 50)))
    assert torch.equal(drop.eval()(y), y)


def test_embedding_dropout_drops_whole_words_wherever_they_stand():
    drop, tokens = WordDropout(0.5), torch.randint(20, (4, 30))
    y = drop(torch.ones(4, 30, 8), tokens, 20)
    for word in tokens.unique():
        places = y[tokens == word]
        assert places.unique().numel() == 1
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(drop.eval()(y, tokens, 20), y)


# -- attention -------------------------------------------------------------------------------------------------------


def lecture_attention() -> tuple[CausalSelfAttention, torch.Tensor]:
    """One head over three one-hot words whose queries give the notes' weights; keys, values, output are identities."""
    layer = CausalSelfAttention(3, 1, bias=False).double().eval()
    wanted = torch.tensor([[1.0, 1.0, 1.0], [0.3, 0.7, 1.0], [0.3, 0.5, 0.2]], dtype=torch.float64)
    with torch.no_grad():
        query = wanted.log().T * math.sqrt(3)  # q_t = √d log(weights): the softmax gives the weights back
        layer.project.weight.copy_(torch.cat([query, torch.eye(3), torch.eye(3)]))
        layer.output.weight.copy_(torch.eye(3))
    return layer, torch.eye(3, dtype=torch.float64)[None]


def test_the_notes_worked_example():
    """000:62, 82: h₃ = 0.3v₁ + 0.5v₂ + 0.2v₃ and h₂ = 0.3v₁ + 0.7v₂."""
    layer, words = lecture_attention()
    v1, v2, v3 = words[0]
    expected = torch.stack([v1, 0.3 * v1 + 0.7 * v2, 0.3 * v1 + 0.5 * v2 + 0.2 * v3])
    hidden, _, parts = layer.explain(words, begin(layer, 1), span(1))
    torch.testing.assert_close(hidden[0], expected)
    torch.testing.assert_close(layer(words, begin(layer, 1), span(1))[0][0], expected)
    torch.testing.assert_close(parts["weights"][0, 0], expected)


def test_attention_vectors_have_one_two_three_entries():
    """000:115: a₁, a₂, a₃ have 1, 2, 3 entries, none from the future."""
    layer, words = lecture_attention()
    _, _, parts = layer.explain(words, begin(layer, 1), span(1))
    assert parts["scores"].isfinite().sum(dim=-1).flatten().tolist() == [1, 2, 3]
    assert (parts["weights"].triu(1) == 0).all()


def test_rotary_attention_sees_distances_and_plain_attention_sees_none():
    layer, x = CausalSelfAttention(8, 2, position=Rotary()).double().eval(), torch.randn(1, 5, 8, dtype=torch.float64)
    _, _, here = layer.explain(x, begin(layer, 1), span(1))
    query, keys, _ = layer.queries_keys_values(x, torch.arange(40, 45)[None])
    there = (query @ keys.transpose(2, 3) / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(here["scores"], there)
    layer.position = Position()
    _, _, plain = layer.explain(x, begin(layer, 1), span(1))
    assert not torch.allclose(here["weights"], plain["weights"])


def test_alibi_lowers_scores_by_the_distance_in_each_head_by_its_own_slope():
    layer, x = CausalSelfAttention(8, 2, position=ALiBi()).double().eval(), torch.randn(1, 5, 8, dtype=torch.float64)
    _, _, biased = layer.explain(x, begin(layer, 1), span(1))
    layer.position = Position()
    _, _, plain = layer.explain(x, begin(layer, 1), span(1))
    apart = torch.arange(5)[:, None] - torch.arange(5)
    for head, slope in enumerate((2**-4, 2**-8)):
        found = (plain["scores"] - biased["scores"])[0, head]
        torch.testing.assert_close(found.tril(), (slope * apart).tril().double())  # above the diagonal both are −∞


def test_heads_attend_independently():
    layer, x = CausalSelfAttention(8, 2).eval(), torch.randn(1, 5, 8)
    _, _, before = layer.explain(x, begin(layer, 1), span(1))
    with torch.no_grad():
        layer.project.weight[:4] *= 3.0  # the queries of the first head
    _, _, after = layer.explain(x, begin(layer, 1), span(1))
    assert not torch.allclose(before["weights"][:, 0], after["weights"][:, 0])
    assert torch.equal(before["weights"][:, 1], after["weights"][:, 1])


def test_attention_drops_weights_and_output_only_in_training():
    layer, x = CausalSelfAttention(8, 2, dropout=0.5), torch.randn(1, 5, 8)
    one, other = (layer(x, begin(layer, 1), span(1))[0] for _ in range(2))
    assert not torch.equal(one, other)
    layer.eval()
    assert torch.equal(*(layer(x, begin(layer, 1), span(1))[0] for _ in range(2)))


def test_a_padded_column_never_overwrites_a_full_buffer():
    layer = CausalSelfAttention(8, 2).eval()
    state = layer.begin(1, capacity=3, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        _, state = layer(torch.randn(1, 3, 8), state, span(1))
        kept = state["key_buffer"][:, :, :3].clone()
        layer(torch.randn(1, 2, 8), state, Span(torch.tensor([3]), torch.tensor([0])))
        layer(torch.randn(1, 2, 8), state, Span(torch.tensor([1]), torch.tensor([0])))
    assert torch.equal(state["key_buffer"][:, :, :3], kept)


# -- state -----------------------------------------------------------------------------------------------------------


def test_last_is_each_rows_own_last_column():
    sequence, initial = torch.arange(6.0).view(3, 2, 1), torch.full((3, 1), -1.0)
    assert last(sequence, initial, span(3)).flatten().tolist() == [1.0, 3.0, 5.0]
    assert last(sequence, initial, span(3, [2, 1, 0])).flatten().tolist() == [1.0, 2.0, -1.0]


def test_selecting_rows_never_touches_the_source():
    source = {"memory": torch.randn(1, 4)}
    state = {"seen": torch.tensor([1, 2]), "past": {"0": {"hidden": torch.eye(2)}}, "source": source}
    chosen = select_rows(state, torch.tensor([1, 1, 0]))
    assert chosen["source"] is source
    assert chosen["seen"].tolist() == [2, 2, 1]
    assert chosen["past"]["0"]["hidden"].shape == (3, 2)


# -- encoders --------------------------------------------------------------------------------------------------------


ENCODERS = {
    **{cell: partial(RecurrentEncoder, 6, 5, cell=cell, layers=2, bidirectional=True) for cell in CELLS},
    "one way": partial(RecurrentEncoder, 6, 5, cell="lstm", layers=2),
    "pre-norm": lambda: TransformerEncoder([encoder_block(PreNormEncoderBlock) for _ in range(2)], nn.LayerNorm(6)),
    "post-norm, rotary": lambda: TransformerEncoder([encoder_block(PostNormEncoderBlock, position=Rotary())]),
}


def encoder_block(kind, **options):
    return kind(FullSelfAttention(6, 1, **options), FeedForward(6, 12))


@pytest.mark.parametrize("name", ENCODERS)
def test_padding_and_batch_mates_change_nothing_for_an_encoder(name):
    torch.manual_seed(0)
    encoder = ENCODERS[name]().double().eval()
    source, lengths = torch.randn(3, 5, 6, dtype=torch.float64), torch.tensor([2, 5, 3])
    together = encoder(source, lengths)
    for row in range(3):
        alone = encoder(source[row : row + 1, : lengths[row]])
        if isinstance(together, tuple):
            torch.testing.assert_close(together[0][row, : lengths[row]], alone[0][0])
            for layer, last in together[1].items():
                for part in last:
                    torch.testing.assert_close(last[part][row], alone[1][layer][part][0])
        else:
            torch.testing.assert_close(together[row, : lengths[row]], alone[0])


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("lengths", [None, torch.tensor([2, 5, 3])], ids=["full", "ragged"])
def test_an_encoders_fast_path_is_its_equation(name, lengths):
    torch.manual_seed(0)
    encoder = ENCODERS[name]().double().eval()
    source = torch.randn(3, 5, 6, dtype=torch.float64)
    real = torch.ones(3, 5, dtype=torch.bool) if lengths is None else torch.arange(5) < lengths[:, None]
    found = []
    for result in (encoder(source, lengths), encoder.explain(source, lengths)):
        memory = result[0] if isinstance(result, tuple) else result
        gradients = torch.autograd.grad(memory[real].square().sum(), list(encoder.parameters()))
        found.append((memory[real], *gradients))
    for fast, written in zip(*found, strict=True):
        torch.testing.assert_close(fast, written, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("head_width", [0, 6])
@pytest.mark.parametrize(("bias", "bias_output"), [(True, None), (False, None), (True, False), (False, True)])
def test_grouped_attention_is_pytorchs_with_heads_of_any_width(head_width, bias, bias_output):
    layer = GroupedQueryAttention(8, 4, 2, head_width=head_width, bias=bias, bias_output=bias_output).double()
    size = head_width or 2
    assert layer.project.weight.shape == (8 * size, 8)
    assert layer.output.weight.shape == (8, 4 * size)
    assert (layer.project.bias is None) == (not bias)
    assert (layer.output.bias is None) == (not (bias if bias_output is None else bias_output))
    x = torch.randn(3, 6, 8).double()
    query, key, value = layer.project(x).split([4 * size, 2 * size, 2 * size], dim=-1)
    heads = [part.unflatten(-1, (-1, size)).transpose(1, 2) for part in (query, key, value)]
    heads = [heads[0], *(part.repeat_interleave(2, dim=1) for part in heads[1:])]  # two queries share a key
    context = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
    found, _ = layer(x, begin(layer, 3), span(3))
    torch.testing.assert_close(found, layer.output(context), rtol=1e-12, atol=1e-12)
