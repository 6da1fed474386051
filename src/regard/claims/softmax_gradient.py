"""C22, softmax-gradient: the softmax always passes some gradient back, a boxcar never does.

α = softmax(s),   ∂α_i/∂s_j = α_i (1[i = j] − α_j) ≠ 0;      two keys with a gap Δ:  α_1 α_2 = e^−Δ / (1 + e^−Δ)²
output o = Σ α_i v_i,   ∂(rᵀo)/∂q = Σ_i α_i (rᵀv_i − rᵀo) k_i,       r any direction one asks about
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.layers.scores import named_score
from regard.report.figures import Line, Lines

WIDTH, KEYS = 8, 6
GAPS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 600.0)  # between the two best scores
MODERATE = 10.0  # beyond it, autograd's difference of nearly equal numbers shows
LARGE = (20.0, 40.0, 80.0, 160.0, 320.0)  # here the gradient has become a pure exponential


def experiment(trial: Trial) -> Evidence:
    numbers: dict[str, list[float]] = defaultdict(list)
    gaps = sorted({*GAPS, trial.knob("gap")})
    for seed in trial.seeds:
        torch.manual_seed(seed)
        sizes = [softmax_gradient(gap) for gap in gaps]
        numbers[NEVER] += [size for size, _ in sizes]
        numbers[WRITTEN] += [difference for gap, (_, difference) in zip(gaps, sizes, strict=True) if gap <= MODERATE]
        two = [two_keys(gap) for gap in gaps]
        numbers[CLOSED] += [size / closed_form(gap) - 1 for gap, size in zip(gaps, two, strict=True)]
        large = [math.log(two_keys(gap)) for gap in LARGE]
        numbers[SLOPE].append(float(np.polyfit(LARGE, large, 1)[0]))
        inside, values = boxcar_gradient()
        numbers[BOXCAR].append(inside)
        numbers[VALUES].append(values)
        numbers[FAR_KEY].append(far_key_gradient())
        trial.step(f"draw {seed}")
    numbers[SINGLE] = [first_zero(torch.float32)]
    numbers[DOUBLE] = [first_zero(torch.float64)]
    numbers[WINNER] = [first_zero(torch.float64, winner=True)]
    return Evidence(numbers, (by_gap(),))


def by_gap() -> Lines:
    """The equation, and where numbers of 32 and 64 bits leave it: a line ends where the gradient is exactly 0."""
    gaps = range(131)
    lines = [Line("e^−Δ / (1 + e^−Δ)²", [(gap, closed_form(gap)) for gap in gaps])]
    for name, dtype in (("fp64", torch.float64), ("fp32", torch.float32)):
        for winner in (False, True):
            sizes = [(gap, two_keys(gap, dtype, winner=winner)) for gap in gaps]
            side = "winning" if winner else "losing"
            lines.append(Line(f"{name}, on the {side} score", [(gap, size) for gap, size in sizes if size > 0]))
    return Lines("What two keys pass back, and where it ends", "score gap Δ", "|∂o/∂Δ|", lines, log_y=True)


def softmax_gradient(gap: float) -> tuple[float, float]:
    """Random keys and values, and a query whose first key leads by `gap`: the size of ∂(rᵀo)/∂q by the equation, and
    how far autograd's is from it, as a share."""
    keys, values = torch.randn(2, KEYS, WIDTH, dtype=torch.float64)
    side = torch.randn(WIDTH, dtype=torch.float64)
    query = leading(keys, gap).requires_grad_()
    weights = weigh("dot", query, keys)
    (gradient,) = torch.autograd.grad(weights @ values @ side, query)
    along = values @ side
    with torch.no_grad():  # as a sum over pairs, α_i α_j (a_i − a_j)(k_i − k_j) / 2, in which nothing cancels
        pairs = weights[:, None] * weights * (along[:, None] - along)
        written = 0.5 * (pairs[..., None] * (keys[:, None] - keys)).sum((0, 1))
        size = written.abs().max()
        return float(size), float((gradient - written).abs().max() / size)


def leading(keys: Tensor, gap: float) -> Tensor:
    """The smallest query with Kq = (gap, 0, 0, …)."""
    return gap * torch.linalg.pinv(keys)[:, 0]


def weigh(kind: str, query: Tensor, keys: Tensor) -> Tensor:
    everything = torch.ones(1, len(keys), dtype=torch.bool)
    return named_score(kind, len(query))(query[None], keys, everything)[0]


def two_keys(gap: float, dtype: torch.dtype = torch.float64, *, winner: bool = False) -> float:
    """o = α_1 v_1 + α_2 v_2 of the scores (Δ, 0): |∂o/∂s_2| with the values 0 and 1, or of the winner, |∂o/∂s_1| with
    the values 1 and 2. Both are α_1 α_2."""
    scores = torch.tensor([[gap, 0.0]], dtype=dtype, requires_grad=True)
    values = torch.tensor([1.0, 2.0] if winner else [0.0, 1.0], dtype=dtype)
    weights = named_score("dot", 1).weigh(scores, torch.ones(1, 2, dtype=torch.bool))["weights"]
    (gradient,) = torch.autograd.grad((weights @ values).sum(), scores)
    return float(gradient[0, 0 if winner else 1].abs())


def closed_form(gap: float) -> float:
    return math.exp(-gap) / (1 + math.exp(-gap)) ** 2


def boxcar_gradient() -> tuple[float, float]:
    """For a boxcar with keys inside and outside: the size of the gradient on query and keys, and on the values."""
    keys, values = torch.randn(2, KEYS, WIDTH, dtype=torch.float64)
    query = (keys[0] + 0.1 * torch.randn(WIDTH, dtype=torch.float64)).requires_grad_()
    keys, values = keys.requires_grad_(), values.requires_grad_()
    output = (weigh("boxcar", query, keys) @ values).sum()
    gradients = torch.autograd.grad(output, (query, keys, values), allow_unused=True)
    on_query, on_keys, on_values = (0.0 if gradient is None else float(gradient.norm()) for gradient in gradients)
    return on_query + on_keys, on_values


def far_key_gradient() -> float:
    """For a triangular kernel: the size of the gradient on a key beyond its reach, while another is near."""
    query = torch.randn(WIDTH, dtype=torch.float64)
    away = torch.nn.functional.normalize(torch.randn(3, WIDTH, dtype=torch.float64), dim=-1)
    keys = (query + torch.tensor([[0.3], [0.6], [1.5]]) * away).requires_grad_()
    values = torch.randn(3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(weigh("triangular", query, keys) @ values, keys)
    return float(gradient[2].norm()) if float(gradient[:2].norm()) > 0 else math.nan


def first_zero(dtype: torch.dtype, *, winner: bool = False) -> float:
    """The smallest whole gap at which the gradient is exactly 0 in this precision."""
    return next(float(gap) for gap in range(2000) if two_keys(float(gap), dtype, winner=winner) == 0.0)


NEVER = "largest component of the gradient with respect to the query, from the equation, for gaps of 0 to 600"
WRITTEN = "relative difference of autograd's gradient from it, gaps up to 10"
CLOSED = "two keys: |∂o/∂Δ| over e^−Δ / (1 + e^−Δ)², minus 1"
SLOPE = "change of log |∂o/∂Δ| for each unit of the gap, gaps from 20 to 320"
BOXCAR = "size of the gradient with respect to query and keys, boxcar"
VALUES = "size of the gradient with respect to the values, boxcar"
FAR_KEY = "size of the gradient with respect to a key beyond the reach of a triangular kernel"
SINGLE = "gap at which the gradient is exactly 0 in fp32"
DOUBLE = "gap at which the gradient is exactly 0 in fp64"
WINNER = "gap at which the gradient with respect to the winning score is exactly 0 in fp64"

CLAIM = Claim(
    name="softmax-gradient",
    number="C22",
    kinds=("identity",),
    quote="Differentiable · [gradient never] vanishes.",
    where="004:156",
    statement="The gradient of softmax attention with respect to its query is never exactly 0, but it is exponentially "
    "small in the gap between the scores.",
    conditions=(
        "Keys and values in general position; fp64, gaps up to 600. The statement is about real numbers: a computer "
        "eventually rounds e^−Δ to 0."
    ),
    control_words="A boxcar's weights do not change when a query or key moves slightly: their gradient is exactly 0.",
    breaks=(
        "Never 0 does not mean useful: at a gap of 30, a step is 10¹³ times smaller than at 0, so a softmax that is "
        "certain and wrong hardly learns. In fp32, the gradient is exactly 0 beyond a gap of about 104, in fp64 "
        "beyond about 745; on the winning score itself it is 0 much earlier, when 1 − α rounds to 0. Kernels of "
        "bounded support give a key beyond their reach no gradient either."
    ),
    expected=(
        Expect(NEVER, "at least", 1e-300, over="draws"),
        Expect(WRITTEN, "at most", 1e-9, over="draws"),
        Expect(CLOSED, "within", 0.0, 1e-9, over="draws"),
        Expect(SLOPE, "within", -1.0, 1e-6, over="draws"),
    ),
    control=(Expect(BOXCAR, "at most", 0.0, over="draws"), Expect(VALUES, "at least", 1e-3, over="draws")),
    besides=(
        Expect(FAR_KEY, "at most", 0.0, over="draws"),
        Expect(SINGLE, "within", 104.0, 2.0, over="draws"),
        Expect(DOUBLE, "within", 745.0, 2.0, over="draws"),
        Expect(WINNER, "at most", 40.0, over="draws"),
    ),
    experiment=experiment,
    quick_words="5 draws instead of 50",
    knobs={"gap": 10.0},
    limits={"gap": (0.0, 600.0)},
    seeds=50,
    quick_seeds=5,
    cost=3.0,
)
