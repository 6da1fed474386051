"""Examples of the rows of recurrence, table_lookup, attentive_recurrence and gram_table, in shapes drawn each time."""

import random

import numpy as np
import torch
from examples import DEVICE, Example

from regard.fast import Use
from regard.fast.recurrence.attentive_recurrence import remember
from regard.layers.embedding import Embedding
from regard.layers.encoder import RecurrentEncoder
from regard.layers.recurrent import GRU, LSTM, Elman
from regard.layers.scan import MinGRU
from regard.layers.state import Span
from regard.systems import ngram
from regard.systems.bahdanau import Bahdanau, Settings
from regard.systems.kneser_ney import Estimate
from regard.systems.ngram import Grams, NGram


def span(lengths):
    start = torch.zeros(len(lengths), dtype=torch.int64, device=lengths.device)
    return Span(start, lengths)


def walk(layer, *, ragged=True):
    """A call of a layer: x, the state before it, which is some other text's, and the span."""
    rows, columns = random.randint(1, 5), random.randint(2, 7)
    like = {"dtype": layer.weight("weight_hh").dtype, "device": layer.weight("weight_hh").device}
    x = torch.randn(rows, columns, layer.inputs, **like, requires_grad=True)
    state = {name: torch.randn(rows, layer.width, **like, requires_grad=True) for name in layer.memory}
    lengths = torch.randint(columns + 1, (rows,), device=x.device)
    if not ragged or random.random() < 0.3:
        return x, state, Span(torch.zeros(rows, dtype=torch.int64, device=x.device))
    return x, state, span(lengths)


def real(lengths):
    """What comes first in what is returned, [R, T, …], without its padded columns."""

    def promised(returned):
        first, *rest = returned
        if lengths is None:
            return returned
        columns = torch.arange(first.size(1), device=first.device) < lengths[:, None]
        return first[columns], *(part[columns] if isinstance(part, torch.Tensor) else part for part in rest)

    return promised


def fused(make):
    layer = make(random.randint(1, 6), random.randint(1, 6)).double().to(DEVICE)
    arguments = walk(layer)
    return Example(layer, arguments, promised=real(arguments[2].lengths))


def learned(make):
    """On a CPU alone; a step of one word is left to others, as is a call without gradients."""
    layer = make(random.randint(1, 6), random.randint(1, 6)).double()
    x, state, where = walk(layer)
    return Example(layer, (x, state, where), Use(training=True), ((x[:, :1], state, where),), real(where.lengths))


def elman(inputs, width):
    return Elman(inputs, width, activation=random.choice(["tanh", "sigmoid", "relu"]))


def lstm(inputs, width):
    learning = DEVICE.type == "cuda" or random.random() < 0.5  # cuDNN has no gradients but in training
    return LSTM(inputs, width, dropout_recurrent=random.choice([0.0, 0.5])).train(learning)


def persistent(make):
    layer = make(random.randint(8, 60), random.randint(8, 200)).to(DEVICE).train()
    with torch.no_grad():  # so that only what the kernel itself rounds is left
        for weight in layer.parameters():
            weight.copy_(weight.bfloat16())
    x, state, whole = walk(layer, ragged=False)
    x = x.detach().bfloat16().float().requires_grad_()
    ragged = span(torch.ones(len(x), dtype=torch.int64, device=x.device))
    one = (x[:, :1], state, whole)
    return Example(layer, (x, state, whole), Use(training=True, bf16=True), ((x, state, ragged), one))


def chain():
    layer = LSTM(random.randint(1, 9), random.randint(1, 9)).double().to(DEVICE).train()
    x, state, where = walk(layer)
    one = (x[:, :1], state, Span(where.start))
    return Example(layer, (x, state, where), Use(training=True, captured=True), (one,), real(where.lengths))


def encoder(cells=("rnn", "lstm", "gru")):
    options = {"layers": random.randint(1, 3), "bidirectional": random.random() < 0.5}
    inputs, rows, columns = (random.randint(1, 6) for _ in range(3))
    made = RecurrentEncoder(inputs, random.randint(1, 5), cell=random.choice(cells), **options).to(
        DEVICE, torch.float64
    )
    x = torch.randn(rows, columns, inputs, device=DEVICE, dtype=torch.float64, requires_grad=True)
    lengths = torch.randint(1, columns + 1, (rows,), device=DEVICE) if random.random() < 0.7 else None
    return Example(made, (x, lengths), promised=real(lengths))


def learned_encoder():
    example = encoder(["rnn", "gru"])
    x, lengths = (None if part is None else part.detach().cpu() for part in example.arguments)
    x = torch.cat([x, x], dim=1).requires_grad_()  # two words or more
    return Example(example.thing.cpu(), (x, lengths), refused=((x[:, :1], None),), promised=real(lengths))


def bahdanau():
    chosen = {"cell": random.choice(["rnn", "lstm", "gru"]), "layers": random.randint(1, 2)}
    score = random.choice(["additive", "dot", "scaled-dot", "bilinear"])
    return Bahdanau(11, Settings(width=4, embedding=3, dropout=0.0, score=score, **chosen)).double()


def encoded(model):
    rows, columns = random.randint(1, 4), random.randint(1, 5)
    return model.encode(torch.randint(11, (rows, columns)), None), rows, columns


def memory():
    model = bahdanau()
    return Example(model, (encoded(model)[0],), promised=lambda kept: {k: v for k, v in kept.items() if k != "places"})


def loop():
    model = bahdanau()
    found, sources, slots = encoded(model)
    found = {name: part.detach() if name == "memory" else part for name, part in found.items()}
    beams, columns = random.randint(1, 3), random.randint(1, 4)
    past = model.initial_decoder_past(found, beams, capacity=None, dtype=torch.float64)["0"]
    valid = torch.arange(slots) < torch.randint(1, slots + 1, (sources, 1))
    source = {**remember(model, found), "valid": valid}
    words = torch.randn(sources * beams, columns, 3, dtype=torch.float64, requires_grad=True)
    where = span(torch.randint(columns + 1, (len(words),)))
    unprepared = {name: part for name, part in source.items() if name != "places"}
    refused = ((words, past, unprepared, where),)
    return Example(model, (words, past, source, where), Use(), refused, real(where.lengths))


def grams():
    keys = np.unique(np.random.default_rng(random.randint(0, 99)).integers(10**6, size=random.randint(1, 50)))
    made = Grams(Estimate(keys, np.zeros(len(keys)), np.zeros(len(keys))))
    return Example(made, (torch.cat([made.keys[:-1], made.keys[:-1] + 1, torch.randint(10**6, (20,))]),))


def gram_losses():
    """A counted model, a text, and perhaps the state after another one; targets that do not follow are left alone."""
    draw = np.random.default_rng(random.randint(0, 99))
    vocabulary = random.randint(2, 9)
    model = NGram(vocabulary, ngram.Settings(order=random.randint(1, 5))).to(
        random.choice([torch.float32, torch.float64])
    )
    model.count(np.append(draw.integers(vocabulary, size=300), 0))
    rows, columns = random.randint(1, 4), random.randint(2, 30)
    words = torch.from_numpy(draw.integers(vocabulary, size=(rows, columns + 1)))
    state = random.choice([None, model.read(words[:, :3].flip(1))[1]])
    tokens, targets = words[:, :-1], words[:, 1:]
    lengths = torch.full((rows,), columns)
    others = (tokens, (targets + 1) % vocabulary, state), (tokens, targets, state, lengths)
    return Example(
        model, (tokens, targets, state), refused=(*others, (tokens[:, :0], targets[:, :0], state)), exact=1e-30
    )


def minimal_gru():
    """Lengths on both sides of a chunk of 64, widths on both sides of a block of 32."""
    like = {"device": DEVICE, "dtype": random.choice([torch.float32, torch.float64])}
    layer = MinGRU(3, random.choice([5, 32, 40])).to(**like)
    rows, columns = random.randint(1, 3), random.choice([2, 63, 64, 65, 150])
    x = torch.randn(rows, columns, 3, **like, requires_grad=True)
    state = {"hidden": torch.randn(rows, layer.width, **like, requires_grad=True)}
    lengths = torch.randint(columns + 1, (rows,), device=DEVICE)
    where = random.choice([span(lengths), Span(torch.zeros(rows, device=DEVICE))])
    return Example(layer, (x, state, where), refused=((x[:, :1], state, where),), promised=real(where.lengths))


def look_up():
    table = Embedding(random.randint(2, 40), random.randint(1, 40)).to(DEVICE).train()
    tokens = torch.randint(table.vocabulary, (random.randint(1, 5), random.randint(1, 9)), device=DEVICE)
    where = Span(torch.zeros(len(tokens), dtype=torch.int64, device=DEVICE))
    refused = (tokens.cpu(), where)
    return Example(table, (tokens, where), Use(training=True, bf16=True, captured=True), (refused,))


EXAMPLES = {
    "word vectors, their gradients by word": look_up,
    "minimal GRU in one kernel": minimal_gru,
    "grams by hashing": grams,
    "losses of a text by n-grams": gram_losses,
    "fused Elman": lambda: fused(elman),
    "fused LSTM": lambda: fused(lstm),
    "fused GRU": lambda: fused(GRU),
    "persistent Elman": lambda: persistent(Elman),
    "persistent LSTM": lambda: persistent(LSTM),
    "persistent GRU": lambda: persistent(GRU),
    "Elman with its gradient written out": lambda: learned(elman),
    "GRU with its gradient written out": lambda: learned(GRU),
    "recurrent encoder with its gradient written out": learned_encoder,
    "LSTM chain": chain,
    "fused recurrent encoder": encoder,
    "Bahdanau's memory times W_c": memory,
    "Bahdanau's loop with its gradient written out": loop,
}
