"""C14, gaussian-dot: attention by a Gaussian kernel is attention by dot products, when all keys are equally long.

    −½‖q − k_i‖² = qᵀk_i − ½‖k_i‖² − ½‖q‖²

The last term is the same for all keys and cancels in the softmax, whatever q is; the second cancels only if it is the
same for all keys. With bandwidth σ the left side is divided by σ²: σ² = 1 is the dot product, σ² = √d the scaled one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.layers.scores import named_score
from regard.pooling import attention
from regard.report.figures import Figure, Line, Lines

KEYS = 12


def experiment(trial: Trial) -> Evidence:
    names = (EXPONENT, EQUAL, SCALED, UNEQUAL, LONG, NORMED, PROJECTED)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for seed in trial.seeds:
        random = np.random.default_rng(seed)
        width = int(random.integers(4, 33))
        queries, keys = random.normal(size=(5, width)), random.normal(size=(KEYS, width))
        alike = equally_long(keys)
        bandwidth = trial.knob("bandwidth")
        measured[EXPONENT].append(exponent_differs(queries, keys))
        measured[EQUAL].append(differ(queries, alike, "dot", bandwidth))
        measured[SCALED].append(differ(queries, alike, "scaled-dot", bandwidth * width**0.25))
        measured[UNEQUAL].append(differ(queries, keys, "dot", bandwidth))
        lengths = np.array([[0.01], [0.1], [1.0], [3.0], [10.0]])
        measured[LONG].append(differ(lengths * queries, alike, "dot", bandwidth))
        normed, projected = after_layer_norm(3 * keys + 1, random)
        measured[NORMED].append(differ(queries, normed, "dot", bandwidth))
        measured[PROJECTED].append(differ(queries, projected, "dot", bandwidth))
        trial.step(f"draw {seed}")
    return Evidence(measured, figures=(by_spread(trial),))


def differ(queries: np.ndarray, keys: np.ndarray, score: str, bandwidth: float) -> float:
    """The largest difference between a weight of the Gaussian kernel and one of the score."""
    gaussian = attention(queries, keys, keys, "gaussian", bandwidth=bandwidth).weights
    return float(abs(gaussian - attention(queries, keys, keys, score).weights).max())


def equally_long(keys: np.ndarray) -> np.ndarray:
    return keys / np.linalg.norm(keys, axis=1, keepdims=True) * np.sqrt(keys.shape[1])


def exponent_differs(queries: np.ndarray, keys: np.ndarray) -> float:
    """004:177 as written, against the Gaussian's exponent."""
    gaussian = named_score("gaussian", keys.shape[1]).score(torch.from_numpy(queries), torch.from_numpy(keys)).numpy()
    noted = queries @ keys.T - (keys**2).sum(1) / 2 - (queries**2).sum(1)[:, None] / 2
    return float(abs(gaussian - noted).max())


def after_layer_norm(x: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The output of a new layer norm (gain 1, bias 0), and its product with a random W_k."""
    width = x.shape[1]
    norm = nn.LayerNorm(width, eps=1e-12).double()
    out = norm(torch.from_numpy(x)).detach().numpy()
    return out, out @ random.normal(size=(width, width)).T / np.sqrt(width)


def by_spread(trial: Trial) -> Figure:
    """Keys whose lengths differ by a factor of 1 ± spread."""
    random = np.random.default_rng(trial.seeds[0])
    width = 16
    queries, keys = random.normal(size=(50, width)), equally_long(random.normal(size=(KEYS, width)))
    shape = random.uniform(-1, 1, size=(KEYS, 1))
    spreads = [10 ** (k / 4) for k in range(-16, 1)]
    differences = {
        score: [(s, differ(queries, keys * (1 + s * shape), score, h)) for s in spreads]
        for score, h in (("dot", 1.0), ("scaled-dot", width**0.25))
    }
    return Lines(
        title="How unequal keys part the two (50 queries, 12 keys of width 16)",
        x="spread of the keys' lengths, ±",
        y="largest difference of a weight",
        lines=[Line(f"gaussian against {score}", points) for score, points in differences.items()],
        log_x=True,
        log_y=True,
    )


EXPONENT = "largest difference of −½‖q − k‖² from qᵀk − ½‖k‖² − ½‖q‖²"
EQUAL = "keys of equal length: largest difference of a weight, gaussian (σ = h) against dot"
SCALED = "keys of equal length: the same, gaussian (σ² = h² √d) against scaled-dot"
UNEQUAL = "keys of unequal length: the same, gaussian (σ = h) against dot"
LONG = "queries of length 0.01 to 10 times as large, keys of equal length: the same"
NORMED = "keys that come out of a layer norm: the same"
PROJECTED = "keys that come out of a layer norm and pass W_k: the same"

CLAIM = Claim(
    name="gaussian-dot",
    number="C14",
    kinds=("identity",),
    quote="Gaussian Kernel … W/o exponentiation … =7^{Tk_i}-\\frac{1}{2}||k_i||^2-\\frac{1}{2}||9||^2 … Layer … "
    'Can be dropped Normalization … activations that have " Constant "norms',
    where="004:175–182",
    statement="The weights of a Gaussian kernel equal those of dot products for every query exactly when all keys are "
    "equally long; bandwidth 1 belongs to the plain dot product, σ² = √d to the scaled one.",
    conditions=(
        "fp64, random queries and keys, widths 4 to 32, 12 keys; the knob h is 1 by default. The length of the "
        "query never matters."
    ),
    control_words="With keys of unequal length, the weights differ.",
    breaks=(
        "The notes drop ‖k‖² because layer norm makes lengths constant. That is true of a layer norm's output as "
        "long as its gain is 1, but no longer after W_k, which every Transformer has in between: there, dot "
        "products and the Gaussian are different attentions. (In two dimensions, a layer norm has only two outputs, "
        "(1, −1) and (−1, 1), and W_k keeps them equally long.) A bandwidth other than the one named also makes "
        "them differ."
    ),
    expected=(
        Expect(EXPONENT, "at most", 1e-10, over="draws"),
        Expect(EQUAL, "at most", 1e-12, over="draws"),
        Expect(SCALED, "at most", 1e-12, over="draws"),
        Expect(LONG, "at most", 1e-12, over="draws"),
    ),
    control=(Expect(UNEQUAL, "at least", 0.01, over="draws"),),
    besides=(Expect(NORMED, "at most", 1e-9, over="draws"), Expect(PROJECTED, "at least", 0.01, over="draws")),
    experiment=experiment,
    knobs={"bandwidth": 1.0},
    limits={"bandwidth": (0.1, 10.0)},
    quick_words="fewer draws",
    seeds=50,
    quick_seeds=10,
)
