"""C15, scaling: a dot product of wide vectors is large, and dividing by √d keeps the softmax from saturating.

Var(qᵀk) = Σ_i Var(q_i k_i) = d,   Var(qᵀk / √d) = 1        independent components of mean 0 and variance 1

The softmax of scores from N(0, s²) over n keys has an entropy of about log n − s²/2 while s is small. Vaswani et al.
2017 give the reason: where scores are large, its gradient is small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.models import trained
from regard.layers.scores import named_score
from regard.report.figures import Line, Lines
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.catalogue import load_class
from regard.systems.model import Model

WIDTHS = (16, 64, 256)  # and the one of the knob
KEYS, TEXTS, PAIRS = 64, 32, 20_000
LINES = (
    "The value of an expression is computed before it is bound to a name, and a name that is not bound raises an error."
)


def experiment(trial: Trial) -> Evidence:
    widths = sorted({*WIDTHS, int(trial.knob("width"))})
    numbers: dict[str, list[float]] = defaultdict(list)
    level: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed in trial.seeds:
        torch.manual_seed(seed)
        numbers[VARIANCE].append(max(abs(variance(width) / width - 1) for width in widths))
        numbers[SHIFTED].append(mean(variance(width, shift=0.5) / width for width in widths))
        for width in widths:
            for kind in ("scaled-dot", "dot"):
                level[NAMES[kind]][width].append(entropy(kind, *torch.randn(2, TEXTS, KEYS, width)))
            words = torch.randn(TEXTS, KEYS, width)
            level["scaled, q = k"][width].append(entropy("scaled-dot", words, words))
            trial.step(f"draw {seed}, d = {width}")
    first, last = widths[0], widths[-1]
    numbers[LEVEL] = [b - a for a, b in zip(level["scaled"][first], level["scaled"][last], strict=True)]
    numbers[SATURATES] = [b - a for a, b in zip(level["unscaled"][first], level["unscaled"][last], strict=True)]
    numbers[ITSELF] = level["scaled, q = k"][last]
    figure = Lines(
        f"Entropy of the weights over {KEYS} keys", "width d", "entropy (nats)",
        [
            *(Line(name, [(d, mean(e)) for d, e in points.items()]) for name, points in level.items()),
            Line("uniform weights", [(first, math.log(KEYS))], level=True),
        ],
        log_x=True, zero_y=True,
    )  # fmt: skip
    return Evidence(numbers, (figure,), table=() if trial.quick else in_a_model(trial))


def variance(width: int, shift: float = 0.0) -> float:
    """The variance of qᵀk over pairs of independent vectors whose components have this mean and variance 1."""
    query, key = torch.randn(2, PAIRS, width) + shift
    return float((query * key).sum(-1).var())


def entropy(kind: str, queries: Tensor, keys: Tensor) -> float:
    """Mean entropy of the weights [.., Tq, Tk], in nats; every query sees every key."""
    everything = torch.ones(queries.size(-2), keys.size(-2), dtype=torch.bool)
    return float(torch.special.entr(named_score(kind, queries.size(-1))(queries, keys, everything)).sum(-1).mean())


def in_a_model(trial: Trial) -> tuple[dict[str, object], ...]:
    """Head by head, the scaled scores of a small gpt at its initialization and after training on pyref."""
    trial.step("a trained gpt")
    settings: dict[str, dict[str, Any]] = {
        "training": {
            "steps": 300, "learning_rate": 6e-3, "warmup": 100, "batch_tokens": 4096, "threads": 1, "device": "cpu"
        },
        "data": {"tokenizer": "word"},
    }  # fmt: skip
    run = trained(LanguageRun, "gpt", "pyref", seed=1, size="tiny", settings=settings, store=trial.store)
    tokens = torch.tensor([run.tokenizer.encode(LINES)])
    torch.manual_seed(1)
    fresh = load_class("gpt")(run.model.vocabulary, run.model.settings).eval()
    return tuple(
        {"gpt": name, **row}
        for name, model in (("at initialization", fresh), ("after 300 steps", run.model))
        for row in heads(model, tokens)
    )


@torch.no_grad()
def heads(model: Model, tokens: Tensor) -> list[dict[str, object]]:
    """For each head: the variance of qᵀk/√d over the keys a query may see, and the entropy as a share of log n."""
    _, _, parts = model.explain(tokens.to(model.device))
    words = tokens.size(1)
    rows: list[dict[str, object]] = []
    for layer, block in parts["layers"].items():
        for head, (scores, weights) in enumerate(zip(*(block["attention"][part][0] for part in ("scores", "weights")))):
            spread = [float(scores[t, : t + 1].var()) for t in range(1, words)]
            share = [float(torch.special.entr(weights[t, : t + 1]).sum()) / math.log(t + 1) for t in range(1, words)]
            rows.append({
                "layer": int(layer) + 1,
                "head": head + 1,
                "variance of qᵀk/√d": round(mean(spread), 4),
                "entropy / log n": round(mean(share), 3),
            })  # fmt: skip
    return rows


NAMES = {"scaled-dot": "scaled", "dot": "unscaled"}
VARIANCE = "largest |Var(qᵀk) / d − 1| over the widths"
LEVEL = "entropy at the largest width minus that at d = 16, scores divided by √d"
SATURATES = "entropy at the largest width minus that at d = 16, scores not divided"
SHIFTED = "Var(qᵀk) / d, components of mean 0.5, averaged over the widths"
ITSELF = "entropy at the largest width, q = k, scores divided by √d"

CLAIM = Claim(
    name="scaling",
    number="C15",
    kinds=("measured",),
    quote='To ensure [variance of] the dot-product remains 1 regardless [of vector] lengths (dim d) => [use] "Scaled '
    'Dot Product Attention" Scoring [fn]',
    where="004:184",
    statement="The dot product of two vectors with independent components of mean 0 and variance 1 has variance d, and "
    "dividing it by √d keeps the entropy of the attention weights constant as d grows.",
    conditions=(
        f"q and k independent, components from N(0, 1), d from 16 to the knob's width; {KEYS} keys. Vectors may look "
        "like this at initialization; a trained model's need not."
    ),
    control_words="Without the division, the entropy falls towards 0: the weights become a look-up.",
    breaks=(
        "With a mean of 0.5, the variance is 1.5 d (1 + 2 · 0.5²). With q = k, as in a word's own x_iᵀx_j, a word "
        "scores √d with itself, and the weights saturate although they are scaled. A gpt at initialization has "
        "scores with a variance far below 1, because its projections are small; training then gives each head the "
        "scale that it needs (see the table)."
    ),
    expected=(Expect(VARIANCE, "at most", 0.05), Expect(LEVEL, "within", 0.0, 0.1, unit="nats")),
    control=(Expect(SATURATES, "at most", -1.0, unit="nats"),),
    besides=(Expect(SHIFTED, "within", 1.5, 0.05), Expect(ITSELF, "at most", 0.1, unit="nats")),
    experiment=experiment,
    quick_words="4 draws instead of 10, and no trained model",
    knobs={"width": 1024},
    limits={"width": (512, 2048)},
    seeds=10,
    quick_seeds=4,
    cost=70.0,
)
