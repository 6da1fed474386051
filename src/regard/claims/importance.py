"""C27, importance: does attention identify the words that matter?

attention   A_s    the weight of word s at the last word, mean over heads and layers
effect      E_s    |log P(w | s removed) − log P(w)|, w the true next word; a removed word has the mean of the vectors

Spearman's rank correlation of A and E over the words of a held-out sentence, averaged over sentences. The control gives
each sentence the same weights in random orders. The gradient of log P(w) times the word's vector, less the mean of the
vectors, is measured beside it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.language_models import spoken
from regard.insight.interventions.changing import Place, changing, record
from regard.systems import gpt, self_attention
from regard.systems.model import Model

WORDS, WINDOW, WIDTH, LEAST = 1000, 24, 32, 6
STEPS, QUICK_STEPS, ROWS, RATE = 600, 150, 32, 5e-3
TEXTS, QUICK_TEXTS, ORDERS = 100, 30, 20
KINDS = {
    "gpt": lambda: gpt.GPT(WORDS, gpt.Settings(layers=2, width=WIDTH, heads=4, context=WINDOW, dropout=0.0)),
    "self-attention": lambda: self_attention.SelfAttentionModel(
        WORDS, self_attention.Settings(width=WIDTH, context=WINDOW, position="learned")
    ),
}


def experiment(trial: Trial) -> Evidence:
    train, test = encoded()
    texts = [line for line in test if len(line) > LEAST][: QUICK_TEXTS if trial.quick else TEXTS]
    measured: dict[str, list[float]] = {quantity: [] for kind in KINDS for quantity in QUANTITIES[kind].values()}
    for kind in KINDS:
        for seed in trial.seeds:
            model = learned(kind, train, seed, QUICK_STEPS if trial.quick else STEPS)
            order = np.random.default_rng(seed)
            found = np.mean([correlations(model, line, order) for line in texts], axis=0)
            for name, value in zip(("attention", "shuffled", "gradient"), found, strict=True):
                measured[QUANTITIES[kind][name]].append(float(value))
            trial.step(f"{kind}, seed {seed}")
    return Evidence(measured)


def encoded() -> tuple[Tensor, list[list[int]]]:
    """The phrasebook's sentences as numbers: one stream to train on, and held-out lines; 0 is the boundary, 1 a rare
    word."""
    lines = spoken()
    common = Counter(word for line in lines["train"] for word in line.split()).most_common(WORDS - 2)
    numbers = {word: number for number, (word, _) in enumerate(common, start=2)}
    read = {split: [[0, *(numbers.get(word, 1) for word in line.split())] for line in lines[split]] for split in lines}
    return torch.tensor([token for line in read["train"] for token in line]), read["test"]


def learned(kind: str, stream: Tensor, seed: int, steps: int) -> Model:
    torch.manual_seed(seed)
    model: Model = KINDS[kind]()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    decreasing = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    for _ in range(steps):
        first = torch.randint(len(stream) - WINDOW - 1, (ROWS, 1)) + torch.arange(WINDOW + 1)
        text = stream[first]
        loss = F.cross_entropy(model(text[:, :-1])[0].flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decreasing.step()
    return model.eval()


def correlations(model: Model, line: list[int], order: np.random.Generator) -> tuple[float, float, float]:
    """With the effect of removing each word: of attention, of attention in a random order, and of the gradient."""
    *read, then = line[:WINDOW]
    tokens = torch.tensor([read])
    with torch.no_grad():
        _, parts = record(model, tokens)
    weights = [value[0, :, -1].mean(0) for name, value in parts.items() if name.endswith("/weights")]
    looked = torch.stack(weights).mean(0).numpy()
    vectors = parts["embedding"][0]
    rows = vectors.repeat(len(read) + 1, 1, 1)
    places = torch.arange(len(read))
    rows[places, places] = vectors.mean(0)
    rows = rows.requires_grad_()
    with changing(model, [(Place("embedding"), rows)]):
        scores = model(tokens.expand(len(rows), -1))[0][:, -1].log_softmax(-1)[:, then]
    (slopes,) = torch.autograd.grad(scores[-1], rows)
    effect = (scores[:-1] - scores[-1]).abs().detach().numpy()
    gradient = (slopes[-1] * (vectors - vectors.mean(0))).sum(-1).abs().numpy()
    shuffled = np.mean([spearman(order.permutation(looked), effect) for _ in range(ORDERS)])
    return spearman(looked, effect), float(shuffled), spearman(gradient, effect)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of ranks."""
    ranks = np.stack([first, second]).argsort().argsort()
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


QUANTITIES = {
    kind: {
        "attention": f"rank correlation of a word's attention weight with the effect of its removal, {kind}",
        "shuffled": f"the same with the weights in a random order, {kind}",
        "gradient": f"rank correlation of a word's gradient × input with the effect of its removal, {kind}",
    }
    for kind in ("gpt", "self-attention")
}

CLAIM = Claim(
    name="importance",
    number="C27",
    kinds=("measured",),
    quote="attend to what is important",
    where="003:249–260",
    statement=(
        "Attention identifies the important words: ordering the words of a sentence by attention weight orders them "
        "by how much the prediction changes without them."
    ),
    conditions=(
        f"gpt (two layers, four heads) and self-attention (one layer, one head), width {WIDTH}, {STEPS} steps of "
        f"Adam on the phrasebook's English. {TEXTS} held-out sentences of at least {LEAST} words, prediction of the "
        "last word; a removed word is replaced by the mean of the sentence's vectors."
    ),
    control_words="The same weights in a random order have no correlation with the effect.",
    breaks="If a word's own vector and the feed-forward determine the prediction, its attention weight says little.",
    expected=tuple(
        Expect(QUANTITIES[kind]["attention"], "at least", 0.5, part=kind) for kind in ("gpt", "self-attention")
    ),
    control=tuple(
        Expect(QUANTITIES[kind]["shuffled"], "within", 0.0, 0.1, part=kind) for kind in ("gpt", "self-attention")
    ),
    besides=tuple(Expect(QUANTITIES[kind]["gradient"], "at least", 0.5) for kind in ("gpt", "self-attention")),
    experiment=experiment,
    quick_words=f"three seeds, {QUICK_STEPS} steps and {QUICK_TEXTS} sentences",
    cost=150.0,
)
