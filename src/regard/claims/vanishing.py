"""C1, vanishing: the further back a word is, the less the error can change how it was read.

tanh network    ∂h_T/∂h_s = Π_{s<t≤T} diag(1 − h_t²) W_h                     a product of matrices, each a shrinking one
LSTM, its cell  ∂c_T/∂c_s = Π_{s<t≤T} diag(f_t)                              a product of gates, and no matrix
LSTM, W_h = 0   log ‖∂h_T/∂x_s‖ = (T − s) log σ(b_f) + constant              where the forget gate reads its bias alone
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.through_time import (
    EXACT,
    influence,
    jacobians,
    log_slope,
    mean_curve,
    norms,
    opening,
    reading,
    without,
)  # fmt: skip
from regard.layers.cell import unroll
from regard.layers.recurrent import LSTM, Elman, set_forget_bias
from regard.layers.state import State
from regard.report.figures import Line, Lines

WIDTH, STEPS = 64, 100
FIRST = 20  # the fit begins where the first steps no longer show
HALF = 60  # and its two halves meet
ONE_PER_CENT = -0.046  # log(0.01) / 100: the log-slope that leaves a hundredth after 100 steps
# Between 1, a geometric decay, and log(100 / 60) / log(60 / 20) = 0.46, a power of the distance: nearer to the first.
GEOMETRIC = 0.25
BIASES = (0.0, 1.0, 3.0, 5.0)


def experiment(trial: Trial) -> Evidence:
    bias = trial.knob("b")
    numbers: dict[str, list[float]] = defaultdict(list)
    runs: dict[str, list[np.ndarray]] = defaultdict(list)
    for seed in trial.seeds:
        torch.manual_seed(seed)
        words = torch.randn(STEPS, WIDTH, dtype=EXACT)
        runs["tanh network"].append(influence(reading(Elman(WIDTH, WIDTH).double()), words, WIDTH))
        ajar, wide = (LSTM(WIDTH, WIDTH, forget_bias=value).double() for value in (0.0, 5.0))
        runs["LSTM, b = 5"].append(influence(reading(wide), words, WIDTH))
        numbers[AJAR].append(log_slope(influence(reading(ajar), words, WIDTH), FIRST))
        layer = LSTM(WIDTH, WIDTH, forget_bias=bias).double()
        whole, cell = (jacobians(read, words, WIDTH) for read in (reading(layer), without("hidden", layer)))
        runs[f"LSTM, b = {bias:g}"].append(norms(whole))
        runs["its cell path"].append(norms(cell))
        runs["its path through h alone"].append(influence(without("cell", layer), words, WIDTH))
        numbers[GATES].append(cell_against_gates(layer, words, cut=True))
        numbers[UNCUT].append(cell_against_gates(layer, words, cut=False))
        numbers[CLOSED] += [log_slope(gates_alone(value)) - log_sigmoid(value) for value in {*BIASES, bias}]
        numbers[SHARE].append(float(norms(cell)[-1] / norms(whole)[-1]))
        trial.step(f"draw {seed}")
    slopes = {name: [log_slope(sizes, FIRST) for sizes in seeds] for name, seeds in runs.items()}
    numbers |= {TANH: slopes["tanh network"], OPEN: slopes["LSTM, b = 5"], GATED: slopes[f"LSTM, b = {bias:g}"]}
    numbers[HALVES] = [bend(sizes) for sizes in runs["tanh network"]]
    numbers |= {CELL: slopes["its cell path"], HIDDEN: slopes["its path through h alone"]}
    by_distance = Lines(
        "What is left of the gradient", "distance T − s (steps)", "‖∂h_T/∂x_s‖, as a share of distance 0",
        [mean_curve(name, seeds) for name, seeds in runs.items()], log_y=True,
    )  # fmt: skip
    return Evidence(numbers, (by_distance, by_bias()), remarks(slopes, bias))


def bend(sizes: np.ndarray) -> float:
    """The log-slope beyond HALF in parts of the one before it: 1 of a geometric decay, whatever its rate."""
    return log_slope(sizes, HALF) / log_slope(sizes, FIRST, HALF)


def cell_against_gates(layer: LSTM, words: Tensor, cut: bool) -> float:
    """The largest relative difference between ∂c_T/∂c_s, by autograd, and Π f_t; cut: no gradient goes through h."""
    nudges = torch.zeros(len(words), WIDTH, dtype=EXACT, requires_grad=True)  # added to each cell: ∂/∂nudge_s = ∂/∂c_s
    moments = iter(nudges)

    def step(word: Tensor, before: State) -> State:
        after = layer.step(word, {**before, "hidden": before["hidden"].detach()} if cut else before)
        return {**after, "cell": after["cell"] + next(moments)}

    inputs = words[None]
    _, end, parts = unroll(step, inputs, *opening(layer, inputs))
    (gradient,) = torch.autograd.grad(
        end["cell"].sum(), nudges
    )  # [T, H]: along the cell the Jacobian is diagonal, so a sum is enough
    after_s = parts["forget"][0].detach().roll(-1, 0)
    after_s[-1] = 1.0  # ∂c_T/∂c_T
    product = after_s.flip(0).cumprod(0).flip(0)  # Π_{t>s} f_t
    return float((gradient / product - 1).abs().max())


def gates_alone(bias: float, steps: int = STEPS, width: int = 8) -> np.ndarray:
    """The gradient through an LSTM whose gates ignore h and whose forget gate depends only on its bias, on a text that
    repeats one word, too faint to saturate the cell; from distance 1 on, since at 0 the output gate also depends on
    x_T."""
    layer = LSTM(width, width, forget_bias=bias).double()
    with torch.no_grad():
        for name in ("weight_hh", "bias_ih", "bias_hh"):
            layer.weight(name).zero_()
        layer.weight("weight_ih")[width : 2 * width] = 0.0
    set_forget_bias(layer.fused, bias)
    words = 1e-6 * torch.randn(1, width, dtype=EXACT).expand(steps + 2, -1)
    return influence(reading(layer), words, width)[1:]


def log_sigmoid(value: float) -> float:
    return -float(np.logaddexp(0.0, -value))


def by_bias() -> Lines:
    grid = np.linspace(-2, 6, 33)
    return Lines(
        "With W_h = 0 the log-slope is log σ(b)", "forget bias b", "log-slope (nats per step)",
        [
            Line("log σ(b)", [(b, log_sigmoid(b)) for b in grid]),
            Line("measured", [(b, log_slope(gates_alone(b))) for b in BIASES], joined=False),
        ],
    )  # fmt: skip


def remarks(slopes: dict[str, list[float]], bias: float) -> tuple[str, ...]:
    left = math.exp(100 * float(np.mean(slopes["tanh network"])))
    whole, cell = np.mean(slopes[f"LSTM, b = {bias:g}"]), np.mean(slopes["its cell path"])
    return (
        f"100 steps leave a share of {left:.1e} of a default tanh network's gradient.",
        f"The whole gradient of an LSTM with b = {bias:g} changes by {whole:.3f} nats per step, but along its "
        "cell alone "
        f"by {cell:.3f}: paths that cross between h and the cell, whose number keeps growing, soon carry most of it.",
    )


TANH = "log-slope of a tanh network at default initialization"
HALVES = f"its log-slope over distances {HALF} to {STEPS}, as a fraction of that over {FIRST} to {HALF}"
GATES = "largest relative difference of ∂c_T/∂c_s from Π f_t, along the cell"
UNCUT = "the same where gradients also go through h"
CLOSED = "log-slope of an LSTM with W_h = 0, minus log σ(b), for b = 0, 1, 3, 5 and the knob's"
OPEN = "log-slope of an LSTM with forget bias 5"
AJAR = "log-slope of an LSTM with forget bias 0"
GATED = "log-slope of an LSTM with forget bias b"
CELL = "log-slope of its cell path"
HIDDEN = "log-slope of its path through h alone"
SHARE = "share of its gradient over 99 steps that came along the cell alone"

CLAIM = Claim(
    name="vanishing",
    number="C1",
    kinds=("identity", "measured"),
    quote="MANY VALUES < 1 → VANISHING GRADIENT: MULTIPLY MANY SMALL VALUES TOGETHER … BIAS PARAMETERS TO CAPTURE "
    "SHORT TERM DEPENDENCIES",
    where="003:148, 205; 002:15",
    statement="At default initialization the gradient through a tanh network shrinks geometrically with distance; "
    "along an LSTM's cell it shrinks as the product of its forget gates.",
    conditions=f"One layer of width {WIDTH}, PyTorch's uniform initialization, words drawn from N(0, 1), {STEPS} "
    "steps, fp64, untrained. Vanishing means that 100 steps leave less than a hundredth: a log-slope below −0.046; "
    "geometrically, that the slope is the same near and far: a power of the distance would more than halve it. "
    "The exact case log σ(b) requires W_h = 0, a forget gate that reads only its bias, and the same word at "
    "every step.",
    control_words=(
        "An LSTM with open forget gates (b = 5), measured in the same way, does not vanish; ∂c_T/∂c_s is not Π f_t "
        "once gradients may also go through h."
    ),
    breaks=(
        "An LSTM alone is not a cure: with its usual biases of 0 and 1, its gradient also vanishes, only later, and "
        "it persists only if the forget gates are nearly 1. The product of gates describes only the cell path; the "
        "whole gradient also goes through h and decays more slowly than the product."
    ),
    expected=(
        Expect(TANH, "at most", ONE_PER_CENT, unit="nats per step"),
        Expect(HALVES, "within", 1.0, GEOMETRIC),
        Expect(GATES, "at most", 1e-9, over="draws"),
        Expect(CLOSED, "within", 0.0, 1e-9, over="draws"),
    ),
    control=(
        Expect(OPEN, "at least", ONE_PER_CENT, unit="nats per step"),
        Expect(UNCUT, "at least", 0.01, over="draws"),
    ),
    besides=(
        Expect(AJAR, "at most", ONE_PER_CENT, unit="nats per step"),
        Expect(GATED, "at most", ONE_PER_CENT, unit="nats per step"),
        Expect(CELL, "at most", ONE_PER_CENT, unit="nats per step"),
        Expect(HIDDEN, "at most", ONE_PER_CENT, unit="nats per step"),
        Expect(SHARE, "at most", 0.5),
    ),
    experiment=experiment,
    quick_words="5 draws instead of 20",
    knobs={"b": 1.0},
    limits={"b": (-3.0, 12.0)},
    seeds=20,
    quick_seeds=5,
    cost=12.0,
)
