"""C11, forgetting: a linear state forgets a word geometrically; how long a trained network remembers one is measured.

h_i = V h_{i−1} + W w_i   so   h_i = Σ_{j≤i} V^(i−j) W w_j   and   ∂h_i/∂w_j = V^(i−j) W,   ‖·‖ ~ ρ(V)^(i−j)

The notes' 100 or 1,000 steps are about networks at work, so a tanh network and an LSTM are trained: a text begins with
one of eight letters, noise follows, and after every word the network must name the letter. They see texts of 100 words
and are asked after 100, 1,000 and 10,000. Derivatives would not tell: a state that has settled on a letter keeps it
although ∂h_i/∂w_j is 0. For untrained networks, where nothing else can be measured, they are measured beside it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.base.numbers import group_digits
from regard.claims.claim import THIRD_LOOK, Claim, Evidence, Expect, Trial
from regard.claims.each_seed import each_seed
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
from regard.layers.recurrent import LSTM, Elman, Recurrent
from regard.report.figures import Line, Lines

WIDTH, STEPS, FIRST = 32, 300, 50
SHRINKING, STAYING = (0.5, 0.8, 0.9, 0.95), (1.0, 1.02)  # spectral radii
FAR, FAR_WIDTH = 10_000, 8
MEASURED = (0.0, 1.0, 3.0, 5.0, 8.0)  # forget biases
FOR_HUNDREDS, FOR_THOUSANDS = 5.0, 7.0  # forget biases: log 0.01 / log σ(b) is 686 and 5052 steps
LETTERS, NOISE, HELD, TEXTS, RATE, TESTED = 8, 8, 100, 32, 5e-3, 200  # of the trained networks; HELD: words of a text
TRAININGS, QUICK_TRAININGS = 7, 2  # and below, the steps of each
TRAINED: dict[str, tuple[Callable[[int, int], Recurrent], int]] = {
    "tanh network": (Elman, 2500),
    "LSTM": (LSTM, 1000),
}  # and steps
ASKED = (10, 100, 1000, 10_000)  # words after the letter
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
    lasting = remembered(trial, numbers)
    numbers[CELL] = [horizon_of(log_slope(gates_alone(bias)))]
    for quantity, value in ((HUNDREDS, FOR_HUNDREDS), (THOUSANDS, FOR_THOUSANDS)):
        numbers[quantity] = [horizon_of(log_slope(gates_alone(value)))]
    near = Lines(
        "Influence of a word that remains in h", "distance i − j (steps)", "‖∂h_i/∂w_j‖, as a share of distance 0",
        [mean_curve(name, sizes) for name, sizes in linear.items()], log_y=True,
    )  # fmt: skip
    return Evidence(numbers, (lasting, near, far, horizons()), remarks(numbers, bias))


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


# -- trained networks ------------------------------------------------------------------------------------------------


class LetterMemory(nn.Module):
    """After each word, which letter the text began with."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(LETTERS + NOISE, WIDTH), layer
        self.output = nn.Linear(WIDTH, LETTERS)

    def forward(self, words: Tensor) -> Tensor:
        return self.output(self.layer.fused(self.embedding(words))[0])

    @torch.no_grad()
    def named(self, steps: int, *, wiped: bool = False) -> float:
        """The share of letters named so many words later; `wiped`: the state is emptied half way."""
        words, letters = texts(TESTED, steps)
        state = None
        for part in words.tensor_split([1 + steps // 2], dim=1):
            hidden, state = self.layer.fused(self.embedding(part), None if wiped else state)
        return float((self.output(hidden[:, -1]).argmax(-1) == letters).float().mean())


def texts(rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """A letter and so many words of noise [R, 1 + steps], and the letter [R]."""
    letters = torch.randint(LETTERS, (rows,))
    return torch.cat([letters[:, None], torch.randint(LETTERS, LETTERS + NOISE, (rows, steps))], dim=1), letters


def learn(kind: Callable[[int, int], Recurrent], seed: int, steps: int) -> LetterMemory:
    torch.manual_seed(seed)
    model = LetterMemory(kind(WIDTH, WIDTH))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=max(steps, 1), pct_start=0.1)
    for _ in range(steps):
        words, letters = texts(TEXTS, HELD)
        loss = F.cross_entropy(model(words).flatten(0, 1), letters.repeat_interleave(HELD + 1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def remembered(trial: Trial, numbers: dict[str, list[float]]) -> Lines:
    trained = replace(trial, seeds=trial.seeds[: QUICK_TRAININGS if trial.quick else TRAININGS])
    for each in each_seed(trained, one_training):
        for quantity, share in each.items():
            numbers[quantity].append(share)
    lines = [Line(name, [(n, float(np.mean(numbers[NAMED[name, n]]))) for n in ASKED]) for name in TRAINED]
    return Lines(
        f"A letter, held by networks trained on {HELD} words", "words since the letter", "share of letters named",
        [*lines, Line("guessing", [(1, 1 / LETTERS)], level=True)], log_x=True, zero_y=True,
    )  # fmt: skip


def one_training(trial: Trial, seed: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, (kind, steps) in TRAINED.items():
        model = learn(kind, seed, steps // 10 if trial.quick else steps)
        found |= {NAMED[name, asked]: model.named(asked) for asked in ASKED}
        found |= {WIPED[name]: model.named(HELD, wiped=True), BEFORE[name]: learn(kind, seed, 0).named(ASKED[0])}
        trial.step(f"trained {name}, seed {seed}")
    return found


# -- horizons --------------------------------------------------------------------------------------------------------


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
        f"Without training, a hundredth of a word is left after {np.mean(numbers[TANH]):.0f} steps in a tanh "
        "network, after "
        f"{np.mean(numbers[GATED]):.0f} in an LSTM with forget bias 1, and after {numbers[CELL][0]:.0f} along a cell "
        f"with forget bias {bias:g}.",
        f"To keep a hundredth after ten thousand steps, a cell needs f = {needed:.5f}, a forget bias of "
        f"{math.log(needed / (1 - needed)):.2f}.",
    )


UNROLLED = "largest relative difference of ∂h_i/∂w_j from V^(i−j) W"
GEOMETRIC = "log-slope minus log ρ(V), linear network with ρ(V) = 0.5, 0.8, 0.9, 0.95"
STAYS = "log-slope of the linear network with ρ(V) = 1, 1.02"
TANH = "the notes' 100 steps: steps until a hundredth is left, untrained tanh network"
GATED = "the notes' 100 steps: steps until a hundredth is left, untrained LSTM with forget bias 1"
CELL = "steps until a hundredth is left, LSTM's cell with forget bias b (W_h = 0)"
HUNDREDS = f"the notes' 100 steps: the same along an LSTM's cell with forget bias {FOR_HUNDREDS:g} (W_h = 0)"
THOUSANDS = f"the notes' 1000 steps: the same along an LSTM's cell with forget bias {FOR_THOUSANDS:g} (W_h = 0)"
NAMED = {
    (name, n): f"share of letters named {group_digits(n)} words later, trained {name}"
    for name in TRAINED
    for n in ASKED
}
NOT_THOUSANDS = "not 10,000 steps"
HELD_BY = {name: f"{name}, 100 or 1,000 steps" for name in TRAINED}
WIPED = {name: f"the same {HELD} words later if the state is emptied half way, trained {name}" for name in TRAINED}
BEFORE = {name: f"share of letters named {ASKED[0]} words later, untrained {name}" for name in TRAINED}
ORTHOGONAL = "share left after 10,000 steps, linear network with orthogonal V"
WIDE_OPEN = "share left after 10,000 steps, LSTM's cell with forget bias 12 (W_h = 0)"

CLAIM = Claim(
    name="forgetting",
    number="C11",
    kinds=("identity", "measured"),
    quote="“Forgetfulness” - hard to track information over many Steps … h_i ≈ Σ V^(i−j) W w_j … THEY DON'T "
    "REALLY SCALE WELL TO SEQUENCES THAT ARE OF LENGTH OF THOUSANDS OR TEN THOUSANDS OF TIME STEPS.",
    where="002:17; 003:235",
    statement="The influence of a word on a linear recurrent state decays geometrically with distance if and only if "
    "ρ(V) < 1. A tanh network and an LSTM that were trained to remember one letter over 100 words still name it after "
    "1,000, but not after 10,000.",
    conditions=f"Linear: width {WIDTH}, random V scaled to its spectral radius, distances {FIRST} to {STEPS}, fp64. "
    f"Trained: width {WIDTH}, PyTorch's initialization, forget bias 1, texts of {HELD} words whose first is one of "
    f"{LETTERS} letters, the letter asked for after every word, 2,500 steps of Adam (LSTM: 1,000); "
    f"{TRAININGS} trainings of each. Untrained: width 64, words drawn from N(0, 1).",
    control_words=(
        "An orthogonal V, which only rotates, keeps all of a word over ten thousand steps, and an LSTM's cell with "
        "forget bias 12 keeps nearly all of it. Ten words later, the trained networks name the letter; the "
        "untrained ones, and those whose state is emptied halfway, do not."
    ),
    breaks=(
        "The notes say that recurrent networks can handle 100 or 1,000 steps. Untrained ones cannot: a hundredth of "
        "a word's influence is left after 6 steps of a tanh network and after 20 of an LSTM, and an LSTM's cell "
        "needs a forget bias of 5 for 100 steps and of 7 for 1,000 (W_h = 0). Training decides. One letter is the "
        "least that a network can hold, and it was asked for after every word. If the only answer comes 1,000 words "
        "later, an RNN does not learn to hold it (any-b), and of many words, a vector keeps only some (bottleneck). "
        "ρ(V) = 1 is the edge: orthogonal and identity matrices forget nothing."
    ),
    expected=(
        Expect(UNROLLED, "at most", 1e-9, over="draws", part="geometric decay"),
        Expect(GEOMETRIC, "within", 0.0, 0.02, over="draws", unit="nats per step", part="geometric decay"),
        Expect(STAYS, "at least", -0.02, over="draws", unit="nats per step", part="geometric decay"),
        *(Expect(NAMED[name, n], "at least", 0.9, part=HELD_BY[name]) for name in TRAINED for n in (100, 1000)),
        *(Expect(NAMED[name, 10_000], "at most", 0.5, part=NOT_THOUSANDS) for name in TRAINED),
    ),
    control=(
        Expect(ORTHOGONAL, "within", 1.0, 1e-6, over="draws", part="geometric decay"),
        Expect(WIDE_OPEN, "at least", 0.9, over="draws", part=NOT_THOUSANDS),
        *(Expect(NAMED[name, 10], "at least", 0.9, part=HELD_BY[name]) for name in TRAINED),
        *(Expect(WIPED[name], "at most", 0.5, part=HELD_BY[name]) for name in TRAINED),
        *(Expect(BEFORE[name], "at most", 0.5, part=HELD_BY[name]) for name in TRAINED),
    ),
    besides=(
        Expect(TANH, "at least", 100, unit="steps"),
        Expect(GATED, "at least", 100, unit="steps"),
        Expect(HUNDREDS, "at least", 100, over="draws", unit="steps"),
        Expect(THOUSANDS, "at least", 1000, over="draws", unit="steps"),
        Expect(CELL, "at most", 1000, over="draws", unit="steps"),
    ),
    experiment=experiment,
    quick_words="5 draws instead of 10, a tenth of the training, and one LSTM over ten thousand steps instead of three",
    knobs={"b": 5.0},
    limits={"b": (-3.0, 12.0)},
    seeds=10,
    first_seed=THIRD_LOOK,
    quick_seeds=5,
    cost=250.0,
)
