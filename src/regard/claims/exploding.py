"""C2, exploding: many factors above 1 make a gradient without bound, and clipping bounds the step it causes.

linear      ∂h_T/∂h_s = V^(T−s),   log ‖V^d‖ / d → log ρ(V)            Gelfand 1941: the spectral radius decides
tanh        ∂h_T/∂h_s = Π diag(1 − h_t²) W                             how far the units are from saturation decides too
clipping    g ← g · min(1, c / ‖g‖),   so that  ‖Δθ‖ = η ‖g‖ ≤ η c     Pascanu et al. 2013
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import cast

import numpy as np
import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.through_time import (
    EXACT,
    Linear,
    influence,
    log_slope,
    mean_curve,
    radius,
    reading,
    with_radius,
)  # fmt: skip
from regard.layers.recurrent import Elman
from regard.report.figures import Line, Lines
from regard.systems.rnn import RNN, Settings
from regard.training.optimizers import build_optimizer

WIDTH = 32
STEPS, FIRST = 400, 100  # a matrix that is not normal may first grow and then shrink: the fit begins later
RADII = (0.8, 0.95, 1.05, 1.2)
TANH_WIDTH, TANH_STEPS = 64, 200
RATE, BOUND = 0.1, 1.0  # η and c


def experiment(trial: Trial) -> Evidence:
    gain = trial.knob("gain")
    numbers: dict[str, list[float]] = defaultdict(list)
    linear: dict[str, list[np.ndarray]] = defaultdict(list)
    sizes: list[tuple[float, float]] = []
    for seed in trial.seeds:
        torch.manual_seed(seed)
        weights = torch.randn(WIDTH, WIDTH, dtype=EXACT)
        for value in RADII:
            norms = through_linear(with_radius(weights, value))
            linear[f"ρ = {value:g}"].append(norms)
            numbers[GELFAND].append(log_slope(norms, FIRST) - math.log(value))
        stretching = with_radius(weights, 0.95)
        numbers[STRETCHES].append(float(torch.linalg.matrix_norm(stretching, 2)))
        numbers[BUT_SHRINKS].append(log_slope(linear["ρ = 0.95"][-1], FIRST))
        for quantity, strength, words in (
            (QUIET, gain, 0.0), (DRIVEN, gain, 1.0), (QUIET_2, 2.0, 0.0), (DRIVEN_2, 2.0, 1.0),
        ):  # fmt: skip
            numbers[quantity].append(log_slope(through_tanh(strength, words), 20))
        numbers[SMALL].append(log_slope(through_tanh(0.95, 0.0, by_norm=True), 20))
        sizes.append(clipping(numbers))
        trial.step(f"draw {seed}")
    figure = Lines(
        "A linear recurrence: the spectral radius decides", "distance T − s (steps)",
        "‖∂h_T/∂x_s‖, as a share of distance 0", [mean_curve(name, norms) for name, norms in linear.items()],
        log_y=True,
    )  # fmt: skip
    return Evidence(numbers, (figure, by_gain(trial)), remarks(numbers, gain, sizes))


def through_linear(recurrent: Tensor) -> np.ndarray:
    words = torch.zeros(STEPS, WIDTH, dtype=EXACT)  # a linear recurrence has the same gradient whatever it reads
    return influence(reading(Linear(recurrent, torch.eye(WIDTH, dtype=EXACT))), words, WIDTH)


def through_tanh(gain: float, input_size: float, *, by_norm: bool = False, steps: int = TANH_STEPS) -> np.ndarray:
    """W_h ~ N(0, gain²/H), whose spectral radius is about `gain`; by_norm: its largest singular value is `gain`. Words
    have that standard deviation and go straight to the units; the first state is random."""
    layer = Elman(TANH_WIDTH, TANH_WIDTH, initialisation="orthogonal").double()  # for its zero biases
    weights = torch.randn(TANH_WIDTH, TANH_WIDTH, dtype=EXACT)
    scale = float(torch.linalg.matrix_norm(weights, 2)) if by_norm else TANH_WIDTH**0.5
    with torch.no_grad():
        layer.weight("weight_hh").copy_(gain * weights / scale)
        layer.weight("weight_ih").copy_(torch.eye(TANH_WIDTH))
    words = input_size * torch.randn(steps, TANH_WIDTH, dtype=EXACT)
    return influence(reading(layer, torch.randn(TANH_WIDTH, dtype=EXACT)), words, TANH_WIDTH)


def clipping(numbers: dict[str, list[float]]) -> tuple[float, float]:
    """One step of a network whose gradient explodes, by SGD and by Adam, clipped and not; returns the SGD's sizes."""
    model = RNN(20, Settings(layers=1, width=WIDTH, activation="relu", dropout=0.0)).double()
    layer = cast(Elman, model.layers[0])
    recurrent = layer.weight("weight_hh")
    with torch.no_grad():
        recurrent.copy_(1.5 * recurrent.abs() / radius(recurrent.abs()))
        layer.weight("bias_ih").fill_(1.0)  # positive, as W_h: no unit of a ReLU is silent
    tokens = torch.randint(20, (4, 41))
    loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
    gradients = torch.autograd.grad(loss.mean(), list(model.parameters()))
    clipped, unclipped = (step_size(model, gradients, "sgd", clip) for clip in (BOUND, None))
    adam_clipped, adam = (step_size(model, gradients, "adamw", clip) for clip in (BOUND, None))
    numbers[CLIPPED].append(clipped / (RATE * BOUND))
    numbers[UNCLIPPED].append(unclipped / (RATE * BOUND))
    numbers[ADAM].append(adam_clipped / adam)
    return clipped, unclipped


def step_size(model: RNN, gradients: tuple[Tensor, ...], optimiser: str, clip: float | None) -> float:
    """‖Δθ‖ of the first step that the trainer would take with these gradients."""
    before = [weight.detach().clone() for weight in model.parameters()]
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        weight.grad = gradient.clone()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    build_optimizer(optimiser, model.named_parameters(), learning_rate=RATE, weight_decay=0.0, beta2=0.99).step()
    with torch.no_grad():
        moved = [weight - old for weight, old in zip(model.parameters(), before, strict=True)]
        for weight, old in zip(model.parameters(), before, strict=True):
            weight.copy_(old)
    return float(torch.cat([part.flatten() for part in moved]).norm())


def by_gain(trial: Trial) -> Lines:
    """The tanh network's log-slope for a range of gains, one draw each."""
    lines = []
    gains = (1.0, 1.5, 2.0, 3.0) if trial.quick else (0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
    for name, size in (("no input", 0.0), ("words of size 1", 1.0)):
        torch.manual_seed(trial.seeds[0])
        lines.append(Line(name, [(gain, log_slope(through_tanh(gain, size, steps=120), 20)) for gain in gains]))
        trial.step(f"tanh, {name}")
    lines.append(Line("neither grows nor shrinks", [(gains[0], 0.0)], level=True))
    return Lines("A tanh network: gain and input decide together", "gain of W_h", "log-slope (nats per step)", lines)


def remarks(numbers: dict[str, list[float]], gain: float, sizes: list[tuple[float, float]]) -> tuple[str, ...]:
    quiet, driven = np.mean(numbers[QUIET]), np.mean(numbers[DRIVEN])
    largest = max(unclipped for _, unclipped in sizes)
    return (
        f"A tanh network of gain {gain:g} has a log-slope of {quiet:+.3f} with no input and {driven:+.3f} with words "
        "of size 1, which saturate its units.",
        f"The longest step of SGD was {largest:.2g} without clipping and {max(c for c, _ in sizes):.6f} with it "
        f"(η c = {RATE * BOUND:g}).",
    )


GELFAND = "log-slope minus log ρ(V), linear network with ρ(V) = 0.8, 0.95, 1.05, 1.2"
CLIPPED = "‖Δθ‖ / (η c) of a clipped step of SGD"
STRETCHES = "largest singular value of V with ρ(V) = 0.95"
BUT_SHRINKS = "log-slope of the linear network with this V"
UNCLIPPED = "‖Δθ‖ / (η c) of the same step, not clipped"
QUIET = "log-slope of a tanh network of this gain with no input"
DRIVEN = "log-slope of a tanh network of this gain with words of size 1"
QUIET_2 = "log-slope of a tanh network of gain 2 with no input"
DRIVEN_2 = "log-slope of a tanh network of gain 2 with words of size 1"
SMALL = "log-slope of a tanh network whose largest singular value is 0.95, with no input"
ADAM = "‖Δθ‖ of Adam's first step, clipped over unclipped"

CLAIM = Claim(
    name="exploding",
    number="C2",
    kinds=("identity", "measured"),
    quote="MANY VALUES (WEIGHTS OR GRADIENTS) > 1 → EXPLODING GRADIENT … POSSIBLE SOLUTION: GRADIENT CLIPPING / SCALE "
    "BIG GRADIENTS.",
    where="003:147",
    statement="The gradient through a linear recurrent network grows with distance if and only if the spectral radius "
    "of its recurrent matrix is above 1, and clipping the gradient at c bounds a step of SGD by η c.",
    conditions=f"h_t = V h_{{t−1}} + W x_t of width {WIDTH}, random V scaled to its spectral radius, distances "
    f"{FIRST} to {STEPS}, fp64. Clipping: a ReLU network with ρ = 1.5 over 40 words, one step of SGD without momentum.",
    control_words="V stretches some vectors (its largest singular value is above 1) and has ρ = 0.95: the gradient "
    "shrinks, so values above 1 are not enough. Without clipping the same step is far longer than η c.",
    breaks=(
        "With tanh, a large matrix is necessary (the largest singular value must be above 1) but not sufficient: "
        "strong input saturates the units, so that the gradient of a network of gain 1.5 explodes without input but "
        "vanishes while it reads; with gain 2, it grows either way. Adam divides by the size of the gradient "
        "itself, so clipping hardly shortens its step."
    ),
    expected=(
        Expect(GELFAND, "within", 0.0, 0.02, over="draws", unit="nats per step"),
        Expect(CLIPPED, "at most", 1 + 1e-9, over="draws"),
    ),
    control=(
        Expect(STRETCHES, "at least", 1.05, over="draws"),
        Expect(BUT_SHRINKS, "at most", -0.03, over="draws", unit="nats per step"),
        Expect(UNCLIPPED, "at least", 10.0, over="draws"),
    ),
    besides=(
        Expect(QUIET, "at least", 0.0, unit="nats per step"),
        Expect(DRIVEN, "at most", 0.0, unit="nats per step"),
        Expect(QUIET_2, "at least", 0.0, unit="nats per step"),
        Expect(DRIVEN_2, "at least", 0.0, unit="nats per step"),
        Expect(SMALL, "at most", -0.03, unit="nats per step"),
        Expect(ADAM, "within", 1.0, 0.05, over="draws"),
    ),
    experiment=experiment,
    quick_words="6 draws instead of 20",
    knobs={"gain": 1.5},
    limits={"gain": (0.5, 3.0)},
    seeds=20,
    quick_seeds=6,
    cost=60.0,
)
