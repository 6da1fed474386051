"""What only training and short numbers show: masks of dropout, smoothing, and sums that must not be made in bf16."""

import math
import warnings

import pytest
import torch

from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import FeedForward, PreNormBlock
from regard.layers.dropout import Dropout, VariationalDropout, WordDropout, drop_weight
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import RecurrentEncoder
from regard.layers.loss import negative_log_likelihood
from regard.layers.position import Rotary, Sinusoid, Stretch, rotate
from regard.layers.recurrent import GRU, LSTM
from regard.layers.state import Span, last
from regard.systems import llama
from regard.systems.classifier import mean_of_real

ROWS, STEPS, WIDTH, V = 40, 7, 50, 30
SPAN = Span(torch.zeros(1, dtype=torch.int64))


def masks():
    """{name: (a mask of ones that went through it [R, T, D], the axes along which one draw is shared)}."""
    ones, tokens = torch.ones(ROWS, STEPS, WIDTH), torch.randint(V, (ROWS, STEPS))
    word = WordDropout(0.3)(ones, tokens, V)
    by_word = torch.stack([word[tokens == n][0, 0] for n in range(V)])
    assert all(len(word[tokens == n].unique()) == 1 for n in range(V))  # a word is dropped wherever it occurs
    return {
        "plain": Dropout(0.3)(ones),
        "variational": VariationalDropout(0.3)(ones),
        "word": by_word,
        "weight": drop_weight(torch.ones(60, 60), 0.3, True),
    }


@pytest.mark.parametrize("name", ["plain", "variational", "word", "weight"])
def test_what_is_kept_makes_up_for_what_is_dropped(name):
    torch.manual_seed(0)
    found = torch.cat([masks()[name].flatten() for _ in range(20)])
    assert found.unique().tolist() == pytest.approx([0.0, 1 / 0.7], rel=1e-6)
    assert float((found == 0).float().mean()) == pytest.approx(0.3, abs=0.08)


def test_a_mask_is_shared_where_it_says_and_only_there():
    torch.manual_seed(0)
    made = masks()
    assert torch.equal(made["variational"], made["variational"][:, :1].expand(-1, STEPS, -1))
    assert not torch.equal(made["variational"][0], made["variational"][1])
    assert not torch.equal(made["plain"][:, 0], made["plain"][:, 1])
    for module in (Dropout(0.3), VariationalDropout(0.3)):
        x = torch.rand(20, 3, 40)
        assert not torch.equal(module(x), module(x))  # new at each call
        assert torch.equal(module.eval()(x), x)
    assert torch.equal(drop_weight(x, 0.3, False), x)


def test_recurrent_weights_lose_the_same_connections_at_every_step_of_a_call():
    torch.manual_seed(0)
    layer = LSTM(4, 6, dropout_recurrent=0.5).train()
    x, state = torch.rand(2, 5, 4), layer.begin(2, device="cpu", dtype=torch.float32)
    torch.manual_seed(3)
    whole, _ = layer(x, state, SPAN)
    torch.manual_seed(3)
    dropped = layer.weights()[1]
    assert 0.2 < float((dropped == 0).float().mean()) < 0.8
    plain = LSTM(4, 6).eval()
    plain.load_state_dict(layer.state_dict())
    with torch.no_grad():
        plain.fused.weight_hh_l0.copy_(dropped)
    again, _ = plain(x, state, SPAN)
    assert torch.allclose(whole, again, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothing_spreads_its_share_over_all_words(smoothing):
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 3, V, dtype=torch.float64), torch.randint(V, (2, 3))
    p = logits.log_softmax(-1)
    wanted = -(1 - smoothing) * p.gather(-1, targets[..., None])[..., 0] - smoothing * p.mean(-1)
    assert torch.allclose(negative_log_likelihood(logits, targets, smoothing=smoothing), wanted)


def test_sums_are_made_in_more_digits_than_bf16_has():
    torch.manual_seed(0)
    logits, targets = torch.randn(1, 4, 5000).bfloat16(), torch.randint(5000, (1, 4))
    exact = negative_log_likelihood(logits.double(), targets)
    assert torch.allclose(negative_log_likelihood(logits, targets).double(), exact, atol=1e-4)
    memory, lengths = torch.rand(2, 3000, 4).bfloat16(), torch.tensor([3000, 1000])
    for given, wanted in ((None, memory.double().mean(1)), (lengths, torch.stack(
        [memory[0].double().mean(0), memory[1, :1000].double().mean(0)]
    ))):  # fmt: skip
        assert torch.allclose(mean_of_real(memory, given).double(), wanted, rtol=2**-8)
        assert mean_of_real(memory, given).dtype == torch.bfloat16
    far = torch.tensor([[1000, 1001]])  # bf16 counts only to 256
    turned = rotate(torch.ones(1, 2, 1, 8, dtype=torch.bfloat16), far).float()
    assert torch.allclose(turned, rotate(torch.ones(1, 2, 1, 8), far), atol=2**-7)
    waves = Sinusoid(8)(far, torch.bfloat16)
    assert torch.allclose(waves.float(), Sinusoid(8)(far, torch.float32), atol=2**-7)


def test_rotations_depend_on_the_distance_and_stretch_as_their_names_say():
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 1, 16, dtype=torch.float64), torch.randn(1, 1, 1, 16, dtype=torch.float64)

    def score(at, other, position):
        one, two = (position.rotate(x, torch.tensor([[place]])) for x, place in ((q, at), (k, other)))
        return float((one * two).sum())

    for position in (Rotary(), Rotary(theta=500.0), Rotary(stretch=Stretch("linear", 4.0))):
        assert score(9, 5, position) == pytest.approx(score(104, 100, position), abs=1e-9)
        assert abs(score(9, 5, position) - score(9, 6, position)) > 1e-6
    assert score(8, 4, Rotary(stretch=Stretch("linear", 4.0))) == pytest.approx(score(2, 1, Rotary()), abs=1e-9)
    frequency = torch.tensor([1.0, 1e-2, 1e-5])
    scaled = Stretch("llama3", 8.0, 1.0, 4.0, 8192)(frequency) / frequency
    turns = 8192 * frequency / (2 * math.pi)
    assert scaled[0] == 1.0  # it turns often enough to stay
    assert float(scaled[2]) == pytest.approx(1 / 8)  # it never turns within the context
    assert turns[1] > 4
    assert scaled[1] == 1.0
    assert Stretch() == Stretch("none", 1.0, 1.0, 4.0, 8192) == llama.Settings().rotations  # one default, named twice
    for turn, kept in ((1.0, 0.0), (1.75, 0.25), (2.5, 0.5), (4.0, 1.0)):  # between `low` and `high` a mixture
        between = torch.tensor([2 * math.pi * turn / 8192], dtype=torch.float64)
        found = Stretch("llama3", 8.0, 1.0, 4.0, 8192)(between) / between
        assert float(found) == pytest.approx(kept + (1 - kept) / 8)


def test_a_row_ends_after_its_own_last_word():
    sequence, initial = torch.arange(24.0).view(3, 4, 2), torch.full((3, 2), -1.0)
    span = Span(torch.zeros(3, dtype=torch.int64), torch.tensor([4, 0, 2]))
    assert last(sequence, initial, span).tolist() == [[6.0, 7.0], [-1.0, -1.0], [18.0, 19.0]]
    assert torch.equal(last(sequence, initial, SPAN), sequence[:, -1])
    assert span.end(4).tolist() == [4, 0, 2]
    assert Span(torch.tensor([5])).positions(3).tolist() == [[5, 6, 7]]


def test_a_tied_output_is_the_table_and_an_untied_one_is_not():
    tied, own = Output(6, V, tied=True, bias=False), Output(6, V, tied=False, bias=True)
    table = torch.rand(V, 6)
    assert tied.of(table)[0] is table
    assert own.of(table)[0] is own.weight
    assert torch.equal(own.bias, torch.zeros(V))
    embedding = Embedding(V, 6)
    assert (embedding.lookup_parameters(tied=True), embedding.lookup_parameters(tied=False)) == (0, 6 * V)
    assert (Embedding(V, 6, scale=2.0).scale, Embedding(V, 9, Sinusoid(9)).scale, embedding.scale) == (2.0, 3.0, 1.0)


def test_layers_of_a_block_are_dropped_by_themselves():
    """Dropout at rate 1 − ε leaves the residual path alone."""
    attention = CausalSelfAttention(8, 2, dropout_output=0.999)
    block = PreNormBlock(attention, FeedForward(8, 16, dropout=0.999)).train()
    torch.manual_seed(0)
    x = torch.rand(2, 3, 8)
    y, _ = block(x, block.begin(2, device="cpu", dtype=torch.float32), SPAN)
    assert float((y == x).float().mean()) > 0.9
    layer = GRU(4, 5).train()
    x = torch.rand(2, 3, 4)
    state = layer.begin(2, device="cpu", dtype=torch.float32)
    assert torch.equal(layer(x, state, SPAN)[0], layer(x, state, SPAN)[0])  # nothing is drawn that was not asked for


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_an_encoder_of_one_layer_has_nothing_to_drop_between_and_warns_of_nothing(cell):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (RecurrentEncoder(4, 5, cell=cell, layers=layers, dropout=0.5).train() for layers in (1, 2))
    x = torch.rand(2, 3, 4)
    assert torch.equal(one(x)[0], one(x)[0])
    assert not torch.equal(two(x)[0], two(x)[0])
    assert torch.equal(two(x)[1]["0"]["hidden"], two(x)[1]["0"]["hidden"])  # nothing is dropped before the first layer
    assert torch.equal(two.eval()(x)[0], two(x)[0])
