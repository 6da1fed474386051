"""C6, same-answer: attention reads all words at once in training and one by one at test time, and says the same.

h_t = Σ_{j ≤ t} softmax_j(q_tᵀk_j / √d) v_j   for all t in one matrix product, or for one t after the other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.claims.cheating import cheater
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.layers.attention import additive_mask, attention_reference
from regard.layers.cache import visible
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model
from regard.systems.sizes import sizes_of

SYSTEMS = ("self-attention", "gpt")
VOCABULARY, WORDS, WIDTH = 50, 24, 16


def experiment(trial: Trial) -> Evidence:
    together, one_by_one, unmasked, cheated = [], [], [], []
    for seed in trial.seeds:
        torch.manual_seed(seed)
        tokens = torch.randint(VOCABULARY, (4, WORDS))
        for name in SYSTEMS:
            together.append(difference(make(name), tokens))
            trial.step(f"{name}, draw {seed}")
        cheated.append(difference(large(cheater(VOCABULARY, context=WORDS)), tokens))
        one_by_one.append(bare(masked=True))
        unmasked.append(bare(masked=False))
    return Evidence({SAME: together, BARE: one_by_one, CHEATED: cheated, UNMASKED: unmasked})


def make(system: str) -> Model:
    module = load_module(system)
    sizes = sizes_of(system).of("tiny")
    return large(load_class(system)(VOCABULARY, module.Settings(**sizes | {"dropout": 0.0})))


def large(model: Model) -> Model:
    """Untrained, in fp64, and with large weights, so that its predictions differ from word to word."""
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model.double().eval()


@torch.no_grad()
def difference(model: Model, tokens: Tensor) -> float:
    """The largest difference of a probability between one call and a call for each word."""
    parallel, _ = model(tokens)
    state, steps = None, []
    for word in tokens.T:
        logits, state = model(word[:, None], state)
        steps.append(logits)
    return float((parallel.softmax(-1) - torch.cat(steps, 1).softmax(-1)).abs().max())


def bare(masked: bool) -> float:
    """The same for queries, keys and values alone: all at once, with or without the mask, against step by step."""
    query, keys, values = torch.randn(3, 1, 1, WORDS, WIDTH, dtype=torch.float64)
    mask = additive_mask(visible(torch.arange(WORDS)[None], WORDS), None, query.dtype) if masked else None
    at_once, _ = attention_reference(query, keys, values, mask)
    steps = [
        attention_reference(query[:, :, [t]], keys[:, :, : t + 1], values[:, :, : t + 1], None)[0] for t in range(WORDS)
    ]
    return float((at_once - torch.cat(steps, 2)).abs().max())


SAME = "largest difference of a probability, all words at once against one by one"
BARE = "largest difference of a component of h, with the mask"
CHEATED = "largest difference of a probability, gpt without the mask, all words at once against one by one"
UNMASKED = "largest difference of a component of h, without the mask"

CLAIM = Claim(
    name="same-answer",
    number="C6",
    kinds=("identity",),
    quote="Self-attention: parallel at training time, sequential at test-time",
    where="000:54–56",
    statement="Attention that reads all words at once and attention that reads them one by one give the same "
    "distribution over the next word.",
    conditions="Causal mask; fp64; untrained self-attention and gpt with random weights, 24 words.",
    control_words="Without the causal mask, the two disagree, both for queries, keys and values alone and for a whole "
    "gpt.",
    breaks=(
        "Without the mask, a word sees later words when all are read at once, but not when they are read one by "
        "one. In fp32, the two agree only up to rounding."
    ),
    expected=(Expect(SAME, "at most", 1e-9, over="draws"), Expect(BARE, "at most", 1e-12, over="draws")),
    control=(Expect(CHEATED, "at least", 0.01, over="draws"), Expect(UNMASKED, "at least", 0.01, over="draws")),
    experiment=experiment,
    quick_words="fewer draws",
    seeds=20,
    quick_seeds=5,
)
