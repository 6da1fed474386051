"""The translators: PyTorch's own modules give the same numbers; what hypotheses share; settings."""

import math

import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.layers.scores import KERNELS, SCORES
from regard.layers.state import select_rows, select_sources
from regard.systems import bahdanau, seq2seq, transformer
from regard.systems.gpt import GPT
from regard.systems.gpt import Settings as GPTSettings
from regard.systems.sizes import sizes_of

V = 23
MODULES = {"seq2seq": seq2seq, "bahdanau": bahdanau, "transformer": transformer}
KINDS = {"seq2seq": seq2seq.Seq2Seq, "bahdanau": bahdanau.Bahdanau, "transformer": transformer.Transformer}
SMALL = {
    "seq2seq": {"layers": 2, "width": 10, "embedding": 6},
    "bahdanau": {"layers": 1, "width": 10, "embedding": 6},
    "transformer": {"layers": 2, "width": 24, "heads": 4, "feedforward": 40},
}


def build(name: str, *, source_vocabulary: int | None = None, **settings):
    torch.manual_seed(0)
    model = KINDS[name](V, MODULES[name].Settings(**{**SMALL[name], **settings}), source_vocabulary=source_vocabulary)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.double().eval()


def pairs():
    """Three sources, ragged, with junk in their padding, their lengths, and targets."""
    torch.manual_seed(1)
    return torch.randint(V, (3, 6)), torch.tensor([6, 2, 4]), torch.randint(V, (3, 5))


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


# -- outside oracles -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_transformer_is_pytorchs_transformer(norm):
    ours = build("transformer", norm=norm, decoder_layers=3)
    source, lengths, tokens = pairs()
    theirs = pytorchs_transformer(norm)
    load_into(theirs, ours)
    vectors = [
        4 * 24**0.5 * ours.embedding.table.weight[words] + waves(words.size(1), 24) for words in (source, tokens)
    ]
    padded = torch.arange(source.size(1)) >= lengths[:, None]
    causal = nn.Transformer.generate_square_subsequent_mask(tokens.size(1), dtype=torch.float64)
    hidden = theirs(
        *vectors,
        tgt_mask=causal,
        src_key_padding_mask=torch.zeros(padded.shape, dtype=torch.float64).masked_fill(padded, -torch.inf),
        memory_key_padding_mask=torch.zeros(padded.shape, dtype=torch.float64).masked_fill(padded, -torch.inf),
    )
    close(ours(tokens, ours.begin(source, lengths))[0], hidden @ ours.embedding.table.weight.T)


def pytorchs_transformer(norm: str) -> nn.Transformer:
    shared = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre", "dtype": torch.float64}
    final = [nn.LayerNorm(24, dtype=torch.float64) if norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(24, 4, 40, **shared), 2, final[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(24, 4, 40, **shared), 3, final[1])
    whole = nn.Transformer(24, 4, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    return whole.double().train()  # not eval(): there its encoder takes a way of its own; nothing is dropped


def load_into(theirs: nn.Transformer, ours: transformer.Transformer) -> None:
    """Our names for their parts, one to one; their cross-attention keeps W_q, W_k, W_v in one matrix."""
    weights = ours.state_dict()
    names = {
        "encoder.layers": "encoder.blocks",
        "decoder.layers": "layers",
        "encoder.norm": "encoder.finish",
        "decoder.norm": "finish",
        "self_attn.in_proj_": "attention.project.",
        "self_attn.out_proj": "attention.output",
        "multihead_attn.out_proj": "cross.output",
        "linear1": "feedforward.expand",
        "linear2": "feedforward.output",
        "norm1": "attention_norm",
    }
    filled = {}
    for name in theirs.state_dict():
        renamed = name.replace("norm2", "cross_norm" if "decoder" in name else "feedforward_norm")
        renamed = renamed.replace("norm3", "feedforward_norm")
        for their_part, our_part in names.items():
            renamed = renamed.replace(their_part, our_part)
        if "multihead_attn.in_proj_" in renamed:
            start, kind = renamed.split("multihead_attn.in_proj_")
            filled[name] = torch.cat([weights[f"{start}cross.query.{kind}"], weights[f"{start}cross.project.{kind}"]])
        else:
            filled[name] = weights[renamed]
    theirs.load_state_dict(filled)


def waves(columns: int, width: int) -> torch.Tensor:
    table = torch.empty(columns, width, dtype=torch.float64)
    for t in range(columns):
        for k in range(width // 2):
            angle = t * 10000.0 ** (-2 * k / width)
            table[t, 2 * k], table[t, 2 * k + 1] = math.sin(angle), math.cos(angle)
    return table


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("reverse", [True, False])
def test_seq2seq_is_two_of_pytorchs_networks(cell, reverse):
    ours = build("seq2seq", cell=cell, reverse=reverse)
    kind = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell]
    decoder = kind(6, 10, num_layers=2, batch_first=True).double()
    decoder.load_state_dict(
        {
            name.replace("l0", f"l{layer}"): weight
            for layer in range(2)
            for name, weight in ours.layers[layer].fused.state_dict().items()
        }
    )
    source, lengths, tokens = pairs()
    table = ours.embedding.table.weight
    read = table * 6**0.5  # what is read is scaled, what predicts is not
    logits, _ = ours(tokens, ours.begin(source, lengths))
    for row in range(3):
        words = source[row, : lengths[row]]
        _, last = ours.encoder.fused(read[words.flip(0) if reverse else words][None])
        hidden, _ = decoder(read[tokens[row]][None], last)
        close(logits[row], ours.readout(hidden[0]) @ table.T + ours.output.bias)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_bahdanaus_equations_with_pytorchs_cells(cell):
    ours = build("bahdanau", cell=cell)
    step = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}[cell](6 + 20, 10).double()
    step.load_state_dict({name.removesuffix("_l0"): w for name, w in ours.layers[0].fused.state_dict().items()})
    source, lengths, tokens = pairs()
    table, score = ours.embedding.table.weight, ours.attend.score
    read = table * 6**0.5
    logits, _ = ours(tokens, ours.begin(source, lengths))
    for row in range(3):
        memory, last = ours.encoder.fused(read[source[row, : lengths[row]]][None])
        memory = memory[0]  # [S, 2H]
        ends = {"hidden": last[0] if cell == "lstm" else last, "cell": last[1] if cell == "lstm" else None}
        ends = {name: None if end is None else end.reshape(1, -1) for name, end in ends.items()}
        hidden = ours.bridge[0]["hidden"](ends["hidden"]).tanh()
        carried = ours.bridge[0]["cell"](ends["cell"]) if cell == "lstm" else None
        for t, word in enumerate(read[tokens[row]]):
            scores = score.judge((score.query(hidden) + score.key(memory)).tanh())[:, 0]
            context = scores.softmax(0) @ memory
            given = torch.cat([word, context])[None]
            if cell == "lstm":
                hidden, carried = step(given, (hidden, carried))
            else:
                hidden = step(given, hidden)
            shown = ours.readout(torch.cat([hidden[0], context, word])).tanh()
            close(logits[row, t], shown @ table.T + ours.output.bias)


# -- what a source leaves behind -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_the_memory_has_one_row_per_source_and_is_never_copied(name):
    model = build(name)
    source, lengths, _ = pairs()
    state = model.begin(source, lengths, width=4)
    assert state["seen"].shape == (12,)
    reordered = select_rows(state, torch.arange(12).flip(0))
    fewer = select_sources(state, torch.tensor([2, 0]), 4)
    assert fewer["seen"].shape == (8,)
    for leaf, same, chosen in zip(*(list(leaves(s["source"])) for s in (state, reordered, fewer)), strict=True):
        assert (leaf.size(0), chosen.size(0)) == (3, 2)
        assert leaf is same


def leaves(state):
    for part in state.values():
        yield from leaves(part) if isinstance(part, dict) else [part]


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_an_alignment_is_a_distribution_over_the_real_words_of_the_source(name):
    model = build(name)
    source, lengths, tokens = pairs()
    state = model.begin(source, lengths, width=2)
    _, _, parts = model.explain(tokens.repeat_interleave(2, 0), state)
    found = model.alignment(parts)
    padded = (torch.arange(6) >= lengths[:, None]).repeat_interleave(2, 0)
    assert found.shape == (6, 5, 6)
    close(found.sum(-1), torch.ones(6, 5, dtype=torch.float64))
    assert found.transpose(1, 2)[padded].abs().max() == 0
    for where, weights in model.attention(parts).items():
        assert (weights.size(0), weights.size(2)) == (6, 5), where
        close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))


def test_seq2seq_has_no_attention():
    model = build("seq2seq")
    source, lengths, tokens = pairs()
    _, _, parts = model.explain(tokens, model.begin(source, lengths))
    assert model.attention(parts) == {}
    assert model.alignment(parts) is None


@pytest.mark.parametrize("name", KINDS)
def test_the_encoder_can_be_looked_into(name):
    model = build(name)
    source, lengths, _ = pairs()
    encoded, parts = model.explain_encode(source, lengths)
    assert encoded["memory"].shape[:2] == source.shape
    assert set(parts["layers"]) == {str(layer) for layer in range(model.settings.layers)}


def test_only_the_real_tokens_of_a_source_are_reversed():
    forwards, backwards = build("seq2seq", reverse=False), build("seq2seq", reverse=True)
    source, tokens = torch.tensor([[4, 7, 0, 9, 9], [1, 2, 3, 4, 0]]), torch.tensor([[0, 5], [0, 6]])
    lengths = torch.tensor([3, 5])
    mirrored = torch.tensor([[0, 7, 4, 8, 8], [0, 4, 3, 2, 1]])
    logits, _ = backwards(tokens, backwards.begin(source, lengths))
    close(logits, forwards(tokens, forwards.begin(mirrored, lengths))[0])


@pytest.mark.parametrize("score", KERNELS)
def test_the_default_bandwidth_reaches_the_first_states(score):
    """Beyond its bandwidth a kernel that ends has no gradient: a decoder that began there would stay there."""
    torch.manual_seed(0)
    model = bahdanau.Bahdanau(V, bahdanau.Settings(width=64, embedding=32, score=score))
    source, lengths, tokens = pairs()
    _, _, parts = model.explain(tokens, model.begin(source, lengths))
    found = parts["layers"]["0"]
    real = (torch.arange(source.size(1)) < lengths[:, None, None]).expand_as(found["weights"])
    assert torch.equal(found["weights"] > 0, real)
    at_its_end = {"gaussian": -0.5, "boxcar": 1.0}.get(score, 0.0)  # the score of a key at the distance h
    assert (found["scores"][real] >= at_its_end).all()


# -- settings and sizes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
def test_every_size_builds(name, size):
    settings = sizes_of(name).of(size)
    with torch.device("meta"):
        model = KINDS[name](8000, MODULES[name].Settings(**settings))
    assert model.flops_per_token > 0


@pytest.mark.parametrize("name", KINDS)
def test_one_table_of_word_vectors_or_two(name):
    shared, own = build(name), build(name, shared=False)
    other = build(name, source_vocabulary=31)
    table = shared.embedding.table.weight.numel()
    assert count(own) - count(shared) == table
    assert count(other) - count(shared) == table // V * 31
    assert (shared.vocabulary, shared.source_vocabulary) == (V, V)
    assert (other.vocabulary, other.source_vocabulary) == (V, 31)
    source, lengths, tokens = pairs()
    logits, _ = other(tokens, other.begin(source + 8, lengths))  # words that the target does not have
    assert logits.shape == (*tokens.shape, V)


def count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", KINDS)
def test_a_translator_begins_with_a_source_and_a_language_model_with_none(name):
    source, lengths, tokens = pairs()
    with pytest.raises(TypeError, match="needs a source"):
        build(name)(tokens)
    with pytest.raises(TypeError, match="does not take a source"):
        GPT(V, GPTSettings(width=8, heads=2)).begin(source, lengths)


def test_a_source_that_is_too_long_is_refused_in_one_sentence():
    model = build("transformer", position="learned", context=5)
    assert (model.context, model.source_context) == (5, 5)
    with pytest.raises(RegardError, match="at most 5 tokens but was given 6"):
        model.begin(torch.zeros(1, 6, dtype=torch.long))
    assert build("transformer").source_context is None


@pytest.mark.parametrize(
    "module, wrong, said",
    [
        (seq2seq, {"cell": "elman"}, "model.cell must be one of rnn, lstm, gru"),
        (bahdanau, {"score": "cosine"}, "model.score must be one of dot"),
        (bahdanau, {"bandwidth": -1.0}, "model.bandwidth must be at least 0"),
        (bahdanau, {"dropout": 1.0}, "model.dropout must be"),
        (transformer, {"heads": 5}, "must divide model.width"),
        (transformer, {"position": "polar"}, "model.position must be one of"),
        (transformer, {"combine": "concatenate"}, "set model.tied to false"),
        (transformer, {"dropout_attention": -0.1}, "model.dropout_attention must be"),
        (transformer, {"width": 12, "heads": 4, "position": "rotary"}, "must be even"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(module, wrong, said):
    with pytest.raises(RegardError, match=said):
        module.Settings(**wrong)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("feed", [True, False])
def test_every_score_sends_gradients_to_the_encoder(score, feed):
    model = build("bahdanau", score=score, feed=feed)
    source, lengths, tokens = pairs()
    loss, _ = model.loss(tokens, tokens, model.begin(source, lengths))
    loss.sum().backward()
    assert all(weight.grad is not None for weight in model.encoder.parameters())
    assert model.encoder.fused.weight_ih_l0.grad.abs().sum() > 0


AUTOCAST = [
    ("seq2seq", {}),
    ("bahdanau", {"layers": 2, "cell": "lstm"}),
    ("bahdanau", {"score": "gaussian"}),
    ("bahdanau", {"score": "dot", "feed": False}),
    ("transformer", {}),
]


@pytest.mark.parametrize("name, settings", AUTOCAST, ids=str)
def test_in_bf16_it_says_nearly_the_same_and_a_state_can_go_on_in_fp32(name, settings):
    model = build(name, **settings).float()
    source, lengths, tokens = pairs()
    with torch.no_grad():
        exact = model(tokens, model.begin(source, lengths))[0].log_softmax(-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = model.loss(tokens, tokens, model.begin(source, lengths))
        loss.sum().backward()
        with torch.no_grad():
            state, steps = model.begin(source, lengths, capacity=5), []
            for t in range(5):
                logits, state = model(tokens[:, t : t + 1], state)
                steps.append(logits)
            begun = model.begin(source, lengths)
    assert (torch.cat(steps, dim=1).float().log_softmax(-1) - exact).abs().max() < 0.2
    with torch.no_grad():
        assert (model(tokens, begun)[0].log_softmax(-1) - exact).abs().max() < 0.2


@pytest.mark.parametrize("name", KINDS)
def test_the_encoder_learns_from_the_target_and_a_state_of_fixed_capacity_shares_no_memory_with_it(name):
    model, (source, lengths, tokens) = build(name, tied=False, shared=False), pairs()
    encoder = [weight for part, weight in model.named_parameters() if part.startswith(("encoder", "source_embedding"))]
    loss, _ = model.loss(tokens, tokens, model.begin(source, lengths))
    assert encoder
    assert all(gradient.any() for gradient in torch.autograd.grad(loss.sum(), encoder))
    encoded = model.encode(source, lengths)
    state = model.begin_from(encoded, source, lengths, capacity=4)
    kept = [leaf.detach().clone() for leaf in leaves(encoded)]
    for leaf in leaves(state["past"]):
        assert not leaf.requires_grad
        leaf.fill_(1)
    assert all(torch.equal(leaf, before) for leaf, before in zip(leaves(encoded), kept, strict=True))
