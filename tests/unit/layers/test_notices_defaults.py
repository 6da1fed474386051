"""What a layer does that is given nothing but its sizes: it drops nothing, and it has the biases of its paper."""

import pytest
import torch

from regard.layers.attention import (
    CausalSelfAttention,
    CrossAttention,
    FullSelfAttention,
    GroupedQueryAttention,
    ScoredAttention,
    SelfAttention,
)
from regard.layers.blocks import FeedForward, GatedFeedForward, PreNormBlock, RMSNormBlock, rms_norm
from regard.layers.context import Average, Window
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import RecurrentEncoder
from regard.layers.loss import negative_log_likelihood
from regard.layers.matrix_state import LinearAttention
from regard.layers.position import Position
from regard.layers.recurrent import GRU, LSTM, Elman
from regard.layers.scan import MinGRU, MinGRUBlock
from regard.layers.scores import Gaussian, named_score
from regard.layers.state import Span

D = 8
LAYERS = {
    "causal": lambda: CausalSelfAttention(D, 2),
    "grouped": lambda: GroupedQueryAttention(D, 4, 2),
    "bare": lambda: SelfAttention(D),
    "linear": lambda: LinearAttention(D, 2),
    "lstm": lambda: LSTM(D, D),
    "gru": lambda: GRU(D, D),
    "elman": lambda: Elman(D, D),
    "minimal": lambda: MinGRU(D, D),
    "minimal block": lambda: MinGRUBlock(D, D, FeedForward(D, 12)),
    "block": lambda: PreNormBlock(CausalSelfAttention(D, 2), FeedForward(D, 12)),
    "gated block": lambda: RMSNormBlock(GroupedQueryAttention(D, 4, 2), GatedFeedForward(D, 12)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_drops_nothing_unless_it_is_told_to(name):
    torch.manual_seed(0)
    layer, x = LAYERS[name]().train(), torch.randn(2, 3, D)
    span = Span(torch.zeros(2, dtype=torch.int64))

    def outputs():
        found = [path(x, layer.begin(2, device="cpu", dtype=x.dtype), span)[0] for path in (layer, layer.explain)]
        return torch.stack(found)

    training = outputs()
    assert torch.equal(training, outputs())
    assert torch.equal(training, (layer.eval(), outputs())[1])


def test_parts_that_are_no_layers_drop_nothing_either():
    torch.manual_seed(0)
    x, tokens, span = torch.randn(2, 3, D), torch.tensor([[1, 2, 1]]), Span(torch.zeros(1, dtype=torch.int64))
    cross, full, scored = CrossAttention(D, 2), FullSelfAttention(D, 2), ScoredAttention(D, D, score="gaussian")
    calls = [
        (cross, lambda: cross(x, cross.remember(x), None)),
        (full, lambda: full(x, None)),
        (scored, lambda: scored(x, scored.remember(x), torch.ones(1, 1, 3, dtype=torch.bool))["weights"]),
        *((part, lambda part=part: part(x)) for part in (FeedForward(D, 12), GatedFeedForward(D, 12))),
        *((part, lambda part=part: part(x)[0]) for part in (RecurrentEncoder(D, 5), RecurrentEncoder(D, 5, layers=2))),
        (embedding := Embedding(5, D), lambda: embedding(tokens, span)),
    ]
    for part, call in calls:
        training = (part.train(), call())[1]
        assert torch.equal(training, call())
        assert torch.equal(training, (part.eval(), call())[1])


def test_biases_are_those_of_the_papers():
    """A Transformer's linear maps have one, Llama's feed-forward and the notes' attention have none."""

    def biases(part):
        return {name for name, _ in part.named_parameters() if name.endswith("bias")}

    assert biases(CausalSelfAttention(D, 2)) == biases(FullSelfAttention(D, 2)) == {"project.bias", "output.bias"}
    assert biases(GroupedQueryAttention(D, 4, 2)) == biases(LinearAttention(D, 2)) == {"project.bias", "output.bias"}
    assert biases(GroupedQueryAttention(D, 4, 2, bias=False)) == biases(SelfAttention(D)) == set()
    assert biases(CrossAttention(D, 2)) == {"query.bias", "project.bias", "output.bias"}
    assert biases(FeedForward(D, 12)) == {"expand.bias", "output.bias"}
    assert biases(GatedFeedForward(D, 12)) == set()
    assert biases(GatedFeedForward(D, 12, bias=True)) == {"expand.bias", "output.bias", "gate.bias"}
    norms = {f"{name}_norm.bias" for name in ("attention", "feedforward")}
    assert norms <= biases(PreNormBlock(CausalSelfAttention(D, 2), FeedForward(D, 12)))
    assert not norms & biases(PreNormBlock(CausalSelfAttention(D, 2), FeedForward(D, 12), bias=False))
    assert biases(Output(D, 5, tied=False, bias=False)) == set()


def test_defaults_are_those_that_the_words_name():
    lstm = LSTM(D, 3)
    assert (lstm.fused.bias_ih_l0 + lstm.fused.bias_hh_l0)[3:6].tolist() == [1.0] * 3  # Jozefowicz et al. 2015
    encoder = RecurrentEncoder(D, 3)
    assert (encoder.memory, encoder.width, encoder.fused.num_layers) == (("hidden", "cell"), 3, 1)
    assert (encoder.fused.bias_ih_l0 + encoder.fused.bias_hh_l0)[3:6].tolist() == [1.0] * 3
    x = torch.linspace(-3, 3, 7)
    gelu = torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(FeedForward(D, 12).activation(x), gelu)
    assert not torch.equal(gelu, torch.nn.functional.gelu(x))
    assert (SelfAttention(D).score.scale, named_score("dot", D).scale) == (D**-0.5, 1.0)
    assert (Gaussian(D, D).bandwidth, named_score("gaussian", D).bandwidth) == (1.0, 1.0)
    assert SelfAttention(D, score="gaussian").score.bandwidth == 1.0
    assert rms_norm(D).eps == RMSNormBlock(GroupedQueryAttention(D, 4, 2), GatedFeedForward(D, 12)).attention_norm.eps
    assert rms_norm(D).eps == 1e-5
    linear = LinearAttention(D, 2)
    assert (linear.feature, linear.decay, linear.rule, linear.features) == ("elu", "none", "sum", D // 2)
    logits, targets = torch.randn(1, 2, 5), torch.tensor([[1, 4]])
    wanted = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(negative_log_likelihood(logits, targets), wanted)  # without smoothing
    nothing = Position()
    assert (nothing.width, nothing.context, nothing.components(4, 9)) == (0, None, 0)
    assert nothing.rotate(x, x) is x
    assert nothing.bias(x, 3, 2) is None
    assert [kind(D, 2).caches for kind in (CausalSelfAttention, LinearAttention)] == [True, False]
    assert (SelfAttention(D).caches, GRU(D, D).caches) == (True, False)


def test_recurrent_weights_begin_as_their_paper_says():
    torch.manual_seed(0)
    plain, orthogonal, identity = (Elman(64, 64, initialisation=name) for name in ("default", "orthogonal", "identity"))
    bound = 64**-0.5
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):  # PyTorch's own
        weight = plain.weight(name).detach()
        assert float(weight.abs().max()) <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.3)
    u = orthogonal.weight("weight_hh").detach()
    assert torch.allclose(u @ u.T, torch.eye(64), atol=1e-5)
    assert not torch.equal(u, torch.eye(64))
    assert orthogonal.weight("weight_ih").detach().std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert torch.equal(identity.weight("weight_hh"), torch.eye(64))
    assert identity.weight("weight_ih").detach().std().item() == pytest.approx(0.001, rel=0.1)  # Le et al. 2015
    for layer in (orthogonal, identity):
        assert not layer.weight("bias_ih").any()
        assert not layer.weight("bias_hh").any()


def test_other_first_weights_are_of_the_size_that_their_comment_says():
    torch.manual_seed(0)
    start = Window(4000, 2).start.detach()
    assert (float(start.min()), float(start.max())) == pytest.approx((-0.1, 0.1), abs=1e-3)
    output = Output(64, 500, tied=False, bias=True).weight.detach()
    assert (float(output.min()), float(output.max())) == pytest.approx((-1 / 8, 1 / 8), abs=1e-3)
    matrix = named_score("bilinear", 64, 16).matrix
    assert matrix.shape == (64, 16)
    assert matrix.detach().std().item() == pytest.approx((64 * 16) ** -0.5, rel=0.1)
    additive = named_score("additive", 12, 30)
    assert (additive.query.weight.shape, additive.key.weight.shape) == ((30, 12), (30, 30))  # the larger width
    assert named_score("additive", 12, 30, width=5).judge.weight.shape == (1, 5)
    random = LinearAttention(64, 2, feature="gaussian", features=300).directions
    assert (random.mean().item(), random.std().item()) == pytest.approx((0.0, 1.0), abs=0.05)
    assert not LinearAttention(D, 2, feature="gaussian").directions.requires_grad


def test_an_average_shows_the_weight_of_each_word_so_far_also_in_a_later_call():
    layer, x = Average(2), torch.tensor([[[1.0, 2.0], [3.0, 4.0], [8.0, 0.0]]])
    first, state, parts = layer.explain(x, layer.begin(1, device="cpu", dtype=x.dtype), Span(torch.tensor([0])))
    assert parts["weight"].flatten().tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    assert torch.equal(parts["average"], first)
    assert first[0, -1].tolist() == [4.0, 2.0]
    later, _, parts = layer.explain(x[:, :1], state, Span(torch.tensor([3])))
    assert parts["weight"].flatten().tolist() == [1 / 4]
    assert later.flatten().tolist() == [13 / 4, 2.0]


def test_a_window_shows_its_words_oldest_first():
    layer, x = Window(2, 2), torch.arange(6.0).view(1, 3, 2)
    _, _, parts = layer.explain(x, layer.begin(1, device="cpu", dtype=x.dtype), Span(torch.tensor([0])))
    assert parts["window"].shape == (1, 3, 2, 2)
    assert parts["window"][0, 2].tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert torch.equal(parts["window"][0, 0, 0], layer.start)


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("hypotheses", [1, 3])
def test_the_parts_of_cross_attention_have_one_row_per_hypothesis(columns, hypotheses):
    """As if each hypothesis had its source for itself; keys and values have one row per source."""
    torch.manual_seed(0)
    layer, memory = CrossAttention(D, 2).double(), torch.randn(2, 5, D).double()
    x, valid = torch.randn(2 * hypotheses, columns, D).double(), torch.arange(5) < torch.tensor([[5], [3]])
    found, parts = layer.explain(x, layer.remember(memory), valid)
    each, own = (part.repeat_interleave(hypotheses, dim=0) for part in (memory, valid))
    wanted, alone = layer.explain(x, layer.remember(each), own)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(layer(x, layer.remember(memory), valid), wanted)
    for name, shape in (("query", (columns, D // 2)), ("scores", (columns, 5)), ("weights", (columns, 5))):
        assert parts[name].shape == (2 * hypotheses, 2, *shape)
        torch.testing.assert_close(parts[name], alone[name])
    assert parts["keys"].shape == parts["values"].shape == (2, 2, 5, D // 2)
