"""C3, remedies: what is said to help against vanishing gradients, each by itself and together.

h_t = f(W_x x_t + W_h h_{t−1} + b)     f in {tanh, ReLU, sigmoid}  ×  W_h at first {default, orthogonal, identity}
c_t = f_t * c_{t−1} + i_t * g_t        and gates: LSTM, GRU

In a wide network of random weights of variance s²/H a step multiplies the gradient by about √(s² E f′²): ReLU, which
lets half of the units through, by √(s²/2); tanh by more than that unless it is saturated.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.claims.through_time import EXACT, influence, log_slope, reading
from regard.claims.vanishing import ONE_PER_CENT
from regard.evaluation.intervals import student_interval
from regard.layers.layer import Layer
from regard.layers.recurrent import ACTIVATIONS, GRU, INITIALISATIONS, LSTM, Elman, lstm
from regard.report.figures import Heat, Intervals, Mark

WIDTH, STEPS, FIRST, LAST = 64, 80, 5, 60  # a default sigmoid network's gradient is 1e-50 after 60 steps
WORTH = 0.05  # nats per step: over 100 steps a factor of 150


def experiment(trial: Trial) -> Evidence:
    bias = trial.knob("b")
    slopes: dict[str, list[float]] = defaultdict(list)
    for seed in trial.seeds:
        torch.manual_seed(seed)
        words = torch.randn(STEPS, WIDTH, dtype=EXACT)
        for name, layer in networks(bias).items():
            slopes[name].append(slope(layer, words))
        for name in ("tanh", "relu"):
            slopes[f"{name}, default, words of size 5"].append(slope(Elman(WIDTH, WIDTH, activation=name), 5 * words))
        trial.step(f"draw {seed}")
    plain = np.array(slopes["tanh, default"])
    numbers = {
        RELU: list(np.array(slopes["relu, default"]) - plain),
        IDENTITY: list(np.array(slopes["tanh, identity"]) - plain),
        GATES: list(np.array(slopes["LSTM"]) - plain),
        PAIR: slopes["relu, identity"],
        SQUASHED: slopes["sigmoid, identity"],
        SHUT: list(np.array(slopes["LSTM, forget gates shut"]) - plain),
        ORTHOGONAL: list(np.array(slopes["tanh, orthogonal"]) - plain),
        GRU_GATES: list(np.array(slopes["GRU"]) - plain),
        SATURATED: list(np.array(slopes["relu, default, words of size 5"]) - slopes["tanh, default, words of size 5"]),
        STRONG_TANH: slopes["tanh, identity, W_x as by default"],
        STRONG_RELU: slopes["relu, identity, W_x as by default"],
    }
    return Evidence(numbers, (factorial(slopes), in_order(slopes)), table=rows(slopes))


def slope(layer: Layer, words: Tensor) -> float:
    return log_slope(influence(reading(layer.double()), words, WIDTH), FIRST, LAST)


def networks(bias: float) -> dict[str, Layer]:
    grid: dict[str, Layer] = {
        f"{activation}, {start}": Elman(WIDTH, WIDTH, activation=activation, initialisation=start)
        for activation in ACTIVATIONS
        for start in INITIALISATIONS
    }
    for activation in ("tanh", "relu"):
        strong = Elman(WIDTH, WIDTH, activation=activation, initialisation="identity")
        torch.nn.init.uniform_(strong.weight("weight_ih"), -(WIDTH**-0.5), WIDTH**-0.5)
        grid[f"{activation}, identity, W_x as by default"] = strong
    gated = {"LSTM": LSTM(WIDTH, WIDTH, forget_bias=bias), "GRU": GRU(WIDTH, WIDTH)}
    return {**grid, **gated, "LSTM, forget gates shut": LSTM(WIDTH, WIDTH, forget_bias=-2.0)}


def factorial(slopes: dict[str, list[float]]) -> Heat:
    values = [[mean(slopes[f"{activation}, {start}"]) for start in INITIALISATIONS] for activation in ACTIVATIONS]
    return Heat(
        "Log-slope of the gradient, nats per step", ACTIVATIONS, INITIALISATIONS, values,
        x="initialisation of W_h", y="activation", z="log-slope", high=0.0,
    )  # fmt: skip


def in_order(slopes: dict[str, list[float]]) -> Intervals:
    found = sorted(slopes.items(), key=lambda item: -mean(item[1]))
    marks = [Mark(name, mean(values), *student_interval(values, 0.99)) for name, values in found]
    return Intervals(
        "What slows the decay", "log-slope (nats per step), 99 % interval", marks,
        threshold=ONE_PER_CENT, threshold_name="a hundredth left after 100 steps",
    )  # fmt: skip


def rows(slopes: dict[str, list[float]]) -> tuple[dict[str, object], ...]:
    return tuple({"network": name, "log-slope": round(mean(found), 4)} for name, found in slopes.items())


def gate_of_the_notes() -> list[Worked]:
    """The gate (1 0 0 .5) as a forget gate: what it does to a cell, and what to the gradient."""
    shut, wide = -torch.inf, torch.inf
    forget = torch.tensor([[wide, shut, shut, 0.0]])  # σ of it is 1, 0, 0, ½
    drive = torch.cat([torch.full((1, 4), shut), forget, torch.zeros(1, 4), torch.full((1, 4), wide)], dim=-1)
    cell = torch.tensor([[4.0, 3.0, 2.0, 1.0]], requires_grad=True)
    after = lstm(drive, torch.zeros(1, 16), {"cell": cell})
    (gradient,) = torch.autograd.grad(after["cell"].sum(), cell)
    kept = after["cell"] / cell.detach()
    return [
        Worked(what, "1 0 0 .5", found, found == "1 0 0 .5", "001:44")
        for what, found in (
            ("the forget gate", written(after["forget"][0])),
            ("what it keeps of a cell (4 3 2 1), as shares", written(kept[0])),
            ("∂c_t/∂c_{t−1}, its diagonal", written(gradient[0])),
        )
    ]


def written(vector: Tensor) -> str:
    return " ".join(f"{value:g}".removeprefix("0") or "0" for value in vector.tolist())


RELU = "ReLU instead of tanh, default initialisation: log-slope less that of the plain tanh network"
IDENTITY = "identity initialisation instead of the default, tanh: log-slope less that of the plain tanh network"
GATES = "LSTM, forget bias b: log-slope less that of the plain tanh network"
PAIR = "log-slope of ReLU with identity initialisation"
SQUASHED = "log-slope of the sigmoid with identity initialisation"
SHUT = "LSTM whose forget gates are shut (bias −2): log-slope less that of the plain tanh network"
ORTHOGONAL = "orthogonal initialisation instead of the default, tanh: log-slope less that of the plain tanh network"
GRU_GATES = "GRU: log-slope less that of the plain tanh network"
SATURATED = "ReLU instead of tanh, default initialisation, words of size 5: difference of log-slopes"
STRONG_TANH = "log-slope of tanh with identity W_h, but W_x as by default"
STRONG_RELU = "log-slope of ReLU with identity W_h, but W_x as by default"

CLAIM = Claim(
    name="remedies",
    number="C3",
    kinds=("measured",),
    quote="① … USING RELU PREVENTS f' FROM SHRINKING THE GRADIENTS WHEN x > 0 … ② … INITIALIZE WEIGHTS TO "
    "IDENTITY MATRIX AND INITIALIZE BIASES TO ZERO. THIS HELPS PREVENT THE WEIGHTS SHRINKING TO ZERO. … ③ GATED CELL",
    where="003:159–205",
    statement="Each of the three remedies, ReLU, identity initialisation and gates, slows the vanishing of the "
    "gradient when it is taken alone, and ReLU with identity initialisation stops it.",
    conditions=f"One layer of width {WIDTH}, untrained, words drawn from N(0, 1), distances {FIRST} to {LAST}, fp64. "
    "Against a tanh network at PyTorch's default initialisation; slows: by 0.05 nats per step or more; stops: 100 "
    "steps leave more than a hundredth. Identity initialisation is that of Le et al. 2015: no bias, and W_x small "
    "(0.001).",
    control_words="The same initialisation with a sigmoid, whose slope is at most ¼, vanishes all the same; an LSTM "
    "whose forget gates are shut is worse than the plain network.",
    breaks="ReLU alone does not help: f′ is 1 where x > 0, but 0 in the other half of the units, and the product with "
    "a default W_h shrinks faster than with tanh. It helps where tanh would be saturated, as by large words. Identity "
    "initialisation works while the inputs are small; with ordinary W_x the state of a tanh network drifts into "
    "saturation. Gates help as far as the forget gates are open.",
    expected=(
        Expect(RELU, "at least", WORTH, unit="nats per step"),
        Expect(IDENTITY, "at least", WORTH, unit="nats per step"),
        Expect(GATES, "at least", WORTH, unit="nats per step"),
        Expect(PAIR, "at least", ONE_PER_CENT, unit="nats per step"),
    ),
    control=(
        Expect(SQUASHED, "at most", ONE_PER_CENT, unit="nats per step"),
        Expect(SHUT, "at most", -WORTH, unit="nats per step"),
    ),
    besides=(
        Expect(ORTHOGONAL, "at least", WORTH, unit="nats per step"),
        Expect(GRU_GATES, "at least", WORTH, unit="nats per step"),
        Expect(SATURATED, "at least", WORTH, unit="nats per step"),
        Expect(STRONG_TANH, "at least", ONE_PER_CENT, unit="nats per step"),
        Expect(STRONG_RELU, "at least", ONE_PER_CENT, unit="nats per step"),
    ),
    experiment=experiment,
    quick_words="5 draws instead of 20",
    knobs={"b": 1.0},
    limits={"b": (-3.0, 12.0)},
    worked=gate_of_the_notes,
    seeds=20,
    quick_seeds=5,
    cost=20.0,
)
