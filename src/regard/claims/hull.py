"""C13, hull: attention with weights α_i ≥ 0 stays in the cone of its values, and with Σ α_i = 1 as well in their
convex hull: it can select and mix, and never leave what it is given.

    y = Σ_i α_i v_i,    α ≥ 0  ⇒  y ∈ cone(v),       α ≥ 0, Σ α = 1  ⇒  y ∈ conv(v)

Whether y lies in the hull is read off its own coordinates: d + 1 points in d dimensions span every y = Σ c_i v_i with
Σ c_i = 1 in exactly one way, and y is inside if no c_i is negative. The same for d points and their cone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.claims.through_time import opening
from regard.layers.attention import FullSelfAttention, SelfAttention, attention_reference
from regard.layers.scores import KERNELS, SCORES, named_score
from regard.pooling import attention
from regard.report.figures import Figure, Line, Lines

HEADS = 2


def experiment(trial: Trial) -> Evidence:
    quantities = (INSIDE, ON, CONE, SIGNED, *LAYER, AVERAGE, LOOK_UP, NEVER)
    measured: dict[str, list[float]] = {name: [] for name in quantities}
    for seed in trial.seeds:
        torch.manual_seed(seed)
        width = 3 + seed % 6
        query, keys, values = random(width), random(width + 1, width), random(width + 1, width)
        for score in SCORES:
            rule = named_score(score, width).double().requires_grad_(False)
            output, alpha, _ = attention(query, keys, values, rule)
            measured[INSIDE].append(float(coordinates(output, values).min()))
            measured[ON].append(float((alpha.sum() - 1).abs() + (-alpha).relu().sum()))
        for kernel in KERNELS:  # before they are normalized
            alpha = nearness(kernel, query, keys[:width])
            measured[CONE].append(float(torch.linalg.solve(values[:width].T, alpha @ values[:width]).min()))
        measured[SIGNED].append(float(coordinates(signed(width + 1) @ values, values).min()))
        for name, value in layer(width).items():
            measured[name].append(value)
        scores = random(width + 1)
        measured[AVERAGE].append(float((weights(1e-6, scores) - 1 / (width + 1)).abs().max()))
        measured[LOOK_UP].append(float(1 - weights(1e6, scores).max()))
        measured[NEVER].append(float(1 - weights(1.0, scores).max()))
        trial.step(f"draw {seed}")
    return Evidence(measured, figures=(sharpness(trial),))


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def coordinates(y: Tensor, corners: Tensor) -> Tensor:
    """c with Σ c_i corner_i = y and Σ c_i = 1, for d + 1 corners in d dimensions."""
    lifted = torch.cat([corners, torch.ones(len(corners), 1, dtype=corners.dtype)], dim=1)
    return torch.linalg.solve(lifted.T, torch.cat([y, torch.ones(1, dtype=y.dtype)]))


def nearness(kernel: str, query: Tensor, keys: Tensor) -> Tensor:
    """K(u), at least 0, and with no sum that it keeps."""
    compared = named_score(kernel, len(query), bandwidth=3.0).score(query[None], keys)[0]
    return compared.exp() if kernel == "gaussian" else compared


def signed(count: int) -> Tensor:
    """Weights that sum to 1, one of them −½."""
    alpha = torch.full((count,), 1.5 / (count - 1), dtype=torch.float64)
    alpha[0] = -0.5
    return alpha


def layer(width: int) -> dict[str, float]:
    """The position of a head, a whole layer and its parts relative to the values W_v x of a head: the smallest
    coordinate of the head itself, of it under dropout (20 masks), after W_o, and with the residual added."""
    each = width * HEADS
    full = FullSelfAttention(each, HEADS).double()
    x = random(1, width + 1, each)
    query, keys, values, _ = full.qkv_and_mask(x, None)
    context, _ = attention_reference(query, keys, values, None)
    dropped = [attention_reference(query, keys, values, None, dropout=0.3)[0] for _ in range(20)]
    after = full(x, None)
    corners = values[0, 0].detach()

    def lowest(*outputs: Tensor) -> float:
        return min(float(coordinates(y[0, :width].detach(), corners).min()) for y in outputs)

    return {
        HEAD: lowest(context[0, 0]),
        DROPPED: lowest(*(each[0, 0] for each in dropped)),
        PROJECTED: lowest(after[0]),
        RESIDUAL: lowest((x + after)[0]),
    }


def weights(beta: float, scores: Tensor) -> Tensor:
    return (beta * scores).softmax(dim=-1)


def sharpness(trial: Trial) -> Figure:
    torch.manual_seed(trial.seeds[0])
    scores = random(6)
    betas = [10 ** (k / 8) for k in range(-24, 25)]
    marked = trial.knob("beta")
    return Lines(
        title="Between average and look-up: softmax(βs) of six scores",
        x="β",
        y="largest weight",
        lines=[
            Line("largest weight", [(beta, float(weights(beta, scores).max())) for beta in betas]),
            Line(f"β = {marked:g}", [(marked, float(weights(marked, scores).max()))], joined=False),
            Line("average, 1/6", [(betas[0], 1 / 6)], level=True),
            Line("look-up", [(betas[0], 1.0)], level=True),
        ],
        log_x=True,
        zero_y=True,
    )


def worked() -> list[Worked]:
    """The notes' h₂ and h₃ from a causal layer that has learned to look so: W_q and W_k are fitted, from random weights
    on random words, and each state is then taken apart into the values that it may see."""
    torch.manual_seed(0)
    layer, words = SelfAttention(8).double(), torch.randn(1, 3, 8, dtype=torch.float64)
    wanted = torch.tensor([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.3, 0.5, 0.2]], dtype=torch.float64)
    optimiser = torch.optim.Adam([*layer.query.parameters(), *layer.key.parameters()], lr=0.05)
    for _ in range(150):
        states, _, parts = layer.explain(words, *opening(layer, words))
        loss = -(wanted * parts["weights"][0, 0].clamp(min=1e-12).log()).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    values, states = layer.value(words)[0].detach(), states[0].detach()

    def sum_of_values(t: int) -> str:
        shares = torch.linalg.lstsq(values[:t].T, states[t - 1, :, None]).solution[:, 0]
        return " + ".join(f"{share:.1f}v{'₁₂₃'[i]}" for i, share in enumerate(shares.tolist()))

    noted = {2: ("0.3v₁ + 0.7v₂", "000:82"), 3: ("0.3v₁ + 0.5v₂ + 0.2v₃", "000:62")}
    return [
        Worked(f"h{'₁₂₃'[t - 1]}", noted_sum, sum_of_values(t), noted_sum == sum_of_values(t), where)
        for t, (noted_sum, where) in noted.items()
    ]


INSIDE = "smallest coordinate of Σαv in its values, all eight scores"
ON = "distance of the weights from the simplex: |Σα − 1| and negative parts"
CONE = "smallest coordinate of Σαv in the cone of its values, kernels before they are normalized"
SIGNED = "smallest coordinate with signed weights that sum to 1"
HEAD = "smallest coordinate of a head's output in the head's W_v x"
DROPPED = "the same under attention dropout 0.3, lowest of 20 masks"
PROJECTED = "the same after W_o"
RESIDUAL = "the same after W_o with the residual x added"
LAYER = (HEAD, DROPPED, PROJECTED, RESIDUAL)
AVERAGE = "largest distance of a weight from 1/m at β = 10⁻⁶"
LOOK_UP = "1 minus the largest weight at β = 10⁶"
NEVER = "1 minus the largest weight at β = 1"

CLAIM = Claim(
    name="hull",
    number="C13",
    kinds=("identity",),
    quote='(non-negative) off is contained in the "convex-core" spanned by values … Canvex … Lies on Simplex Surface '
    "MOST COMMON SETTING IN DEEP LEARNING",
    where="004:138",
    statement=(
        "The output of attention with nonnegative weights is in the cone of its values and, if the weights also sum "
        "to 1, in their convex hull; the weights themselves are on the simplex. Every score of the family gives such "
        "weights."
    ),
    conditions="fp64; of a Transformer's layer, each head's own output in the head's own values W_v x; no dropout.",
    control_words="Weights that sum to 1 but include a negative one leave the hull.",
    breaks=(
        "Attention dropout leaves the hull during training, because the weights that it keeps no longer sum to 1. "
        "W_o and the residual connection always leave it: a layer's output is not a mixture of its inputs. A "
        "softmax never reaches the look-up: softmax(βs) is the average for β → 0 and the look-up only for β → ∞ (in "
        "floating point, from a gap of about 37 between βs)."
    ),
    expected=(
        Expect(INSIDE, "at least", -1e-9, over="draws"),
        Expect(ON, "at most", 1e-9, over="draws"),
        Expect(CONE, "at least", -1e-9, over="draws"),
        Expect(HEAD, "at least", -1e-9, over="draws"),
    ),
    control=(Expect(SIGNED, "at most", -0.01, over="draws"),),
    besides=(
        Expect(DROPPED, "at most", -0.001, over="draws"),
        Expect(PROJECTED, "at most", -0.001, over="draws"),
        Expect(RESIDUAL, "at most", -0.001, over="draws"),
        Expect(AVERAGE, "at most", 1e-5, over="draws"),
        Expect(LOOK_UP, "at most", 1e-6, over="draws"),
        Expect(NEVER, "at least", 1e-6, over="draws"),
    ),
    experiment=experiment,
    worked=worked,
    knobs={"beta": 1.0},
    limits={"beta": (1e-3, 1e3)},
    quick_words="fewer draws",
    seeds=50,
    quick_seeds=10,
)
