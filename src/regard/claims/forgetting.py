"""C11, forgetting: a recurrent state forgets a word geometrically, unless its matrix turns and does not shrink.

h_i = V h_{i−1} + W w_i   so   h_i = Σ_{j≤i} V^(i−j) W w_j   and   ∂h_i/∂w_j = V^(i−j) W,   ‖·‖ ~ ρ(V)^(i−j)
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import torch

from regard.base.numbers import group_digits
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.through_time import (
    EXACT,
    Linear,
    curve,
    influence,
    jacobians,
    log_slope,
    mean_curve,
    orthogonal,
    reading,
    with_radius,
)
from regard.claims.vanishing import gates_alone, log_sigmoid
from regard.layers.recurrent import LSTM, Elman
from regard.report.figures import Line, Lines

WIDTH, STEPS, FIRST = 32, 300, 50
SHRINKING, STAYING = (0.5, 0.8, 0.9, 0.95), (1.0, 1.02)  # spectral radii
FAR, FAR_WIDTH = 10_000, 8
MEASURED = (0.0, 1.0, 3.0, 5.0, 8.0)  # forget biases
FOR_HUNDREDS, FOR_THOUSANDS = 5.0, 7.0  # forget biases: log 0.01 / log σ(b) is 686 and 5052 steps
LEFT = 0.01  # the remaining influence of a word that counts as forgotten


def experiment(trial: Trial) -> Evidence:
    bias = trial.knob("b")
    numbers: dict[str, list[float]] = defaultdict(list)
    linear: dict[str, list[np.ndarray]] = defaultdict(list)
    for seed in trial.seeds:
        torch.manual_seed(seed)
        weights, inputs = torch.randn(2, WIDTH, WIDTH, dtype=EXACT)
        for value in (*SHRINKING, *STAYING):
            layer = Linear(with_radius(weights, value), inputs)
            sizes = influence(reading(layer), torch.zeros(STEPS, WIDTH, dtype=EXACT), WIDTH)
            linear[f"ρ(V) = {value:g}"].append(sizes)
            slope = log_slope(sizes, FIRST)
            numbers[GEOMETRIC].append(slope - math.log(value)) if value < 1 else numbers[STAYS].append(slope)
        numbers[UNROLLED].append(against_powers(Linear(with_radius(weights, 0.9), inputs)))
        words = torch.randn(200, 64, dtype=EXACT)
        numbers[TANH].append(horizon(influence(reading(Elman(64, 64).double()), words, 64)))
        numbers[GATED].append(horizon(influence(reading(LSTM(64, 64).double()), words, 64)))
        trial.step(f"draw {seed}")
    far = far_away(trial, numbers)
    numbers[CELL] = [horizon_of(log_slope(gates_alone(bias)))]
    numbers |= {TANH_HUNDRED: numbers[TANH], GATED_HUNDRED: numbers[GATED]}
    for quantity, value in ((HUNDREDS, FOR_HUNDREDS), (THOUSANDS, FOR_THOUSANDS)):
        numbers[quantity] = [horizon_of(log_slope(gates_alone(value)))]
    near = Lines(
        "What is left of a word in h", "distance i − j (steps)", "‖∂h_i/∂w_j‖, as a share of distance 0",
        [mean_curve(name, sizes) for name, sizes in linear.items()], log_y=True,
    )  # fmt: skip
    return Evidence(numbers, (near, far, horizons()), remarks(numbers, bias))


def against_powers(layer: Linear) -> float:
    """The largest relative difference of autograd's ∂h_i/∂w_j from V^(i−j) W."""
    products = jacobians(reading(layer), torch.randn(60, WIDTH, dtype=EXACT), WIDTH)
    power, worst = layer.input, 0.0
    for jacobian in products:
        worst = max(worst, float((jacobian - power).norm() / power.norm()))
        power = layer.recurrent @ power
    return worst


def far_away(trial: Trial, numbers: dict[str, list[float]]) -> Lines:
    """Over ten thousand steps: an orthogonal matrix, and LSTMs with W_h = 0 whose forget gates are nearly 1."""
    lines = []
    for seed in trial.seeds[:3]:
        torch.manual_seed(seed)
        layer = Linear(orthogonal(FAR_WIDTH), torch.randn(FAR_WIDTH, FAR_WIDTH, dtype=EXACT))
        turning = influence(reading(layer), torch.zeros(FAR + 1, FAR_WIDTH, dtype=EXACT), FAR_WIDTH)
        numbers[ORTHOGONAL].append(float(turning[-1] / turning[0]))
        trial.step(f"ten thousand steps, draw {seed}")
    lines.append(curve("V orthogonal", turning[::100]))
    for bias in (12.0,) if trial.quick else (5.0, 8.0, 12.0):
        sizes = gates_alone(bias, FAR)
        lines.append(curve(f"LSTM's cell, b = {bias:g}", sizes[::100]))
        if bias == 12.0:
            numbers[WIDE_OPEN] = [float(sizes[-1] / sizes[0])]
        trial.step(f"ten thousand steps, b = {bias:g}")
    lines = [Line(line.name, [(100 * step, max(share, 1e-12)) for step, share in line.points]) for line in lines]
    return Lines(
        "Over ten thousand steps", "distance i − j (steps)", "‖∂h_i/∂w_j‖, as a share of distance 0", lines, log_y=True
    )


def horizon(sizes: np.ndarray) -> float:
    """The first distance at which no more than a hundredth is left; where more is left throughout, by the slope."""
    below = np.flatnonzero(sizes <= LEFT * sizes[0])
    return float(below[0]) if len(below) else horizon_of(log_slope(sizes, len(sizes) // 4))


def horizon_of(slope: float) -> float:
    return math.log(LEFT) / slope if slope < 0 else math.inf


def horizons() -> Lines:
    grid = np.linspace(-2, 10, 25)
    return Lines(
        "How far a cell remembers", "forget bias b (f = σ(b))", "steps until a hundredth is left",
        [
            Line("log 0.01 / log σ(b)", [(b, horizon_of(log_sigmoid(b))) for b in grid]),
            Line("measured", [(b, horizon_of(log_slope(gates_alone(b)))) for b in MEASURED], joined=False),
            *(Line(f"{group_digits(steps)} steps", [(0.0, steps)], level=True) for steps in (100, 1000, 10_000)),
        ],
        log_y=True,
    )  # fmt: skip


def remarks(numbers: dict[str, list[float]], bias: float) -> tuple[str, ...]:
    needed = LEFT ** (1 / FAR)
    return (
        f"A hundredth of a word is left after {np.mean(numbers[TANH]):.0f} steps in a default tanh network, after "
        f"{np.mean(numbers[GATED]):.0f} in an LSTM with forget bias 1, and after {numbers[CELL][0]:.0f} along a cell "
        f"with forget bias {bias:g}.",
        f"For a hundredth to be left after ten thousand steps a cell needs f = {needed:.5f}, a bias of "
        f"{math.log(needed / (1 - needed)):.2f}.",
    )


UNROLLED = "largest relative difference of ∂h_i/∂w_j from V^(i−j) W"
GEOMETRIC = "log-slope less log ρ(V), linear network with ρ(V) = 0.5, 0.8, 0.9, 0.95"
STAYS = "log-slope of the linear network with ρ(V) = 1, 1.02"
TANH = "steps until a hundredth is left, tanh network at default initialization"
GATED = "steps until a hundredth is left, LSTM with forget bias 1"
CELL = "steps until a hundredth is left, LSTM's cell with forget bias b (W_h = 0)"
TANH_HUNDRED = "the notes' 100 steps: steps until a hundredth is left, tanh network at default initialization"
GATED_HUNDRED = "the notes' 100 steps: steps until a hundredth is left, LSTM with forget bias 1"
HUNDREDS = f"the notes' 100 steps: the same along an LSTM's cell with forget bias {FOR_HUNDREDS:g} (W_h = 0)"
THOUSANDS = f"the notes' 1000 steps: the same along an LSTM's cell with forget bias {FOR_THOUSANDS:g} (W_h = 0)"
ORTHOGONAL = "share left after 10,000 steps, linear network with orthogonal V"
WIDE_OPEN = "share left after 10,000 steps, LSTM's cell with forget bias 12 (W_h = 0)"

CLAIM = Claim(
    name="forgetting",
    number="C11",
    kinds=("identity", "measured"),
    quote="“Forgetfulness” - hard to track information over many Steps … h_i ≈ Σ V^(i−j) W w_j … THEY DON'T "
    "REALLY SCALE WELL TO SEQUENCES THAT ARE OF LENGTH OF THOUSANDS OR TEN THOUSANDS OF TIME STEPS.",
    where="002:17; 003:235",
    statement="What a recurrent state keeps of a word decays geometrically with distance exactly if ρ(V) < 1; at their "
    "usual initialization a tanh network keeps a hundredth for less than 100 steps and an LSTM for less than 1000.",
    conditions=f"Linear: width {WIDTH}, random V scaled to its spectral radius, distances {FIRST} to {STEPS}, fp64. "
    "tanh and LSTM: one layer of width 64, PyTorch's uniform initialization, words drawn from N(0, 1), untrained.",
    control_words="An orthogonal V, which only turns, keeps all of a word over ten thousand steps.",
    breaks="The notes also say that recurrent networks can handle 100 or 1000 steps. As they are usually initialized "
    "they cannot: neither the tanh network nor the LSTM reaches 100. An LSTM's cell reaches 100 with a forget "
    "bias of 5 and 1000 with one of 7 (W_h = 0). ρ(V) = 1 is the edge: orthogonal and identity matrices "
    "forget nothing. An LSTM's cell decays geometrically too, by f at each step, unless f is all but 1: for ten "
    "thousand steps the forget bias must be about 8 or more. Training moves these numbers; they say where "
    "learning begins.",
    expected=(
        Expect(UNROLLED, "at most", 1e-9, over="draws"),
        Expect(GEOMETRIC, "within", 0.0, 0.02, over="draws", unit="nats per step"),
        Expect(STAYS, "at least", -0.02, over="draws", unit="nats per step"),
        Expect(TANH, "at most", 100, unit="steps"),
        Expect(GATED, "at most", 1000, unit="steps"),
    ),
    control=(Expect(ORTHOGONAL, "within", 1.0, 1e-6, over="draws"),),
    besides=(
        Expect(TANH_HUNDRED, "at least", 100, unit="steps"),
        Expect(GATED_HUNDRED, "at least", 100, unit="steps"),
        Expect(HUNDREDS, "at least", 100, over="draws", unit="steps"),
        Expect(THOUSANDS, "at least", 1000, over="draws", unit="steps"),
        Expect(CELL, "at most", 1000, over="draws", unit="steps"),
        Expect(WIDE_OPEN, "at least", 0.9, over="draws"),
    ),
    experiment=experiment,
    quick_words="5 draws instead of 20, and one LSTM over ten thousand steps instead of three",
    knobs={"b": 5.0},
    limits={"b": (-3.0, 12.0)},
    seeds=20,
    quick_seeds=5,
    cost=40.0,
)
