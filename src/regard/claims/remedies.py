"""C3, remedies: the notes' possible solutions for vanishing and exploding gradients, each alone, in its usual setting.

h_t = f(W_x x_t + W_h h_{t−1} + b)     f in {tanh, ReLU, sigmoid}  ×  W_h of variance g²/H, g in {1/√3, 1, √2}, or I
c_t = f_t * c_{t−1} + i_t * g_t        and gates: LSTM with forget bias −2, 1, 3 and 5; GRU
θ ← θ − η min(1, c/‖∇L‖) ∇L            and clipping, on a linear network that is trained

In a wide network of random weights of variance g²/H a step multiplies the gradient by about √(g² E f′²): ReLU, which
lets half of the units through, by √(g²/2), which is 1 at He's gain √2; tanh by more than that unless it is saturated.
A possible solution need not work at every gain, but it must be what helps: in the same setting, the network without it
vanishes. The other settings are measured beside it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor

from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial, Worked
from regard.claims.through_time import EXACT, influence, log_slope, reading
from regard.claims.vanishing import ONE_PER_CENT
from regard.evaluation.intervals import student_interval
from regard.layers.layer import Layer
from regard.layers.recurrent import ACTIVATIONS, GRU, LSTM, Elman, Recurrent, lstm
from regard.report.figures import Heat, Intervals, Mark

WIDTH, STEPS, FIRST, LAST = 64, 80, 5, 60  # a default sigmoid network's gradient is 1e-50 after 60 steps
MIN_EFFECT = 0.05  # nats per step: over 100 steps a factor of 150
GAINS = {"1/√3": 3**-0.5, "1": 1.0, "√2": 2**0.5}  # PyTorch's, that of an orthogonal matrix, and He's for ReLU
BIASES = (-2.0, 1.0, 3.0, 5.0)  # forget biases; from 1, the usual one, a cell keeps 0.73 a step, from 5 0.993
GATED_DRAWS = 20  # LSTMs vary less than ReLU networks: the first draws are enough
LINEAR, WORDS, TEXTS, RATE, BOUND, LEARNT = 16, 40, 32, 0.05, 1.0, 0.1  # of the network that is trained with clipping


def experiment(trial: Trial) -> Evidence:
    slopes: dict[str, list[float]] = defaultdict(list)
    for draw, seed in enumerate(trial.seeds):
        torch.manual_seed(seed)
        words = torch.randn(STEPS, WIDTH, dtype=EXACT)
        for name, layer in (networks() | (gated(trial.knob("b")) if draw < GATED_DRAWS else {})).items():
            slopes[name].append(slope(layer, words))
        for name in ("tanh", "relu"):
            slopes[f"{name}, words of size 5"].append(slope(Elman(WIDTH, WIDTH, activation=name), 5 * words))
        trial.step(f"draw {seed}")

    def more(name: str, other: str) -> list[float]:
        """Its log-slopes less those of the other on the same draws."""
        return [one - two for one, two in zip(slopes[name], slopes[other])]

    final = {(gain, how): train(trial.seeds, GAINS[gain], how) for gain in ("1/√3", "√2") for how in CLIPPINGS}
    trial.step("trained with and without clipping")
    numbers: dict[str, Sequence[float]] = {
        **{quantity: slopes[name] for name, quantity in SLOPES.items()},
        **{RELU[gain]: more(f"relu, gain {gain}", f"tanh, gain {gain}") for gain in GAINS},
        **{USUAL[gain]: more(f"LSTM, forget bias 1, gain {gain}", f"tanh, gain {gain}") for gain in GAINS},
        **{SHUT[gain]: more(f"LSTM, forget bias -2, gain {gain}", f"tanh, gain {gain}") for gain in GAINS},
        **{GATES[gain]: slopes[f"LSTM, forget bias b, gain {gain}"] for gain in GAINS},
        CLIPPED: [float(loss <= LEARNT) for loss in final["√2", "clipped"]],
        UNCLIPPED: [float(loss <= LEARNT) for loss in final["√2", "not clipped"]],
        SLOWER: [float(loss <= LEARNT) for loss in final["√2", "a smaller rate"]],
        NOTHING_TO_CURE: [float(loss <= LEARNT) for loss in final["1/√3", "not clipped"]],
        GRU_GATES: more("GRU, gain 1/√3", "tanh, gain 1/√3"),
        SATURATED: more("relu, words of size 5", "tanh, words of size 5"),
    }
    learned = tuple(
        {"network": f"linear, gain {gain}, trained, {how}", "share that learns": mean(loss <= LEARNT for loss in ends)}
        for (gain, how), ends in final.items()
    )
    return Evidence(numbers, (factorial(slopes), by_bias(slopes), in_order(slopes)), table=(*rows(slopes), *learned))


def slope(layer: Layer, words: Tensor) -> float:
    return log_slope(influence(reading(layer.double()), words, WIDTH), FIRST, LAST)


def with_gain(layer: Recurrent, gain: float) -> Recurrent:
    """W_h uniform, as by default, with the variance g²/H in each of its entries."""
    reach = gain * (3 / WIDTH) ** 0.5
    torch.nn.init.uniform_(layer.weight("weight_hh"), -reach, reach)
    return layer


def with_faint_words(layer: Recurrent) -> Recurrent:
    """W_x small and no bias, as with identity initialization."""
    torch.nn.init.normal_(layer.weight("weight_ih"), std=0.001)
    for name in ("bias_ih", "bias_hh"):
        torch.nn.init.zeros_(layer.weight(name))
    return layer


def networks() -> dict[str, Layer]:
    made: dict[str, Layer] = {}
    for gain, value in GAINS.items():
        for activation in ACTIVATIONS:
            made[f"{activation}, gain {gain}"] = with_gain(Elman(WIDTH, WIDTH, activation=activation), value)
    made["tanh, gain 2"] = with_gain(Elman(WIDTH, WIDTH), 2.0)
    for gain in ("1/√3", "1"):
        made[f"tanh, gain {gain}, faint words"] = with_faint_words(with_gain(Elman(WIDTH, WIDTH), GAINS[gain]))
    for activation in ACTIVATIONS:
        made[f"{activation}, identity"] = Elman(WIDTH, WIDTH, activation=activation, initialisation="identity")
    for activation in ("tanh", "relu"):
        strong = Elman(WIDTH, WIDTH, activation=activation, initialisation="identity")
        torch.nn.init.uniform_(strong.weight("weight_ih"), -(WIDTH**-0.5), WIDTH**-0.5)
        made[f"{activation}, identity, W_x as by default"] = strong
    return made


def gated(bias: float) -> dict[str, Layer]:
    made: dict[str, Layer] = {"GRU, gain 1/√3": GRU(WIDTH, WIDTH)}
    for gain, value in GAINS.items():
        for name, forget in (("b", bias), *((f"{one:g}", one) for one in BIASES)):
            made[f"LSTM, forget bias {name}, gain {gain}"] = with_gain(LSTM(WIDTH, WIDTH, forget_bias=forget), value)
    return made


# -- clipping --------------------------------------------------------------------------------------------------------

CLIPPINGS = ("clipped", "not clipped", "a smaller rate")


def train(seeds: Sequence[int], gain: float, how: str, steps: int = 300) -> list[float]:
    """The loss, in parts of the answer's variance, of linear networks trained by SGD to add up the last three of forty
    numbers; one network for each seed, side by side. A loss that is not a number counts as infinite.

    "a smaller rate" is so small that the first step is as long as the clipped one.
    """
    made = [torch.Generator().manual_seed(seed) for seed in seeds]

    def draw(*shape: int) -> Tensor:
        return torch.stack([torch.randn(shape, generator=one, dtype=EXACT) for one in made])

    recurrent, inputs, output = draw(LINEAR, LINEAR) * gain * LINEAR**-0.5, draw(LINEAR, 1), draw(1, LINEAR) / 4
    weights = [recurrent, inputs, output]
    rates, losses = torch.full((len(made), 1, 1), RATE, dtype=EXACT), []
    for step in range(steps):
        weights = [weight.detach().requires_grad_() for weight in weights]
        numbers = draw(TEXTS, WORDS)
        loss = linear_loss(weights, numbers)
        gradients = torch.autograd.grad(loss.sum(), weights)
        length = sum(gradient.square().sum((1, 2), keepdim=True) for gradient in gradients) ** 0.5
        if how == "clipped" or (how == "a smaller rate" and step == 0):
            rates = RATE * (BOUND / length).clamp(max=1.0)
        weights = [weight - rates * gradient for weight, gradient in zip(weights, gradients)]
        losses.append(loss.detach())
    ending = torch.stack(losses[-20:]).mean(0)
    return [float(loss) if math.isfinite(loss) else math.inf for loss in ending]


def linear_loss(weights: Sequence[Tensor], numbers: Tensor) -> Tensor:
    """Mean squared error of each network, h_t = W_h h_{t−1} + W_x x_t, ŷ = W_o h_T; numbers [networks, texts, T]."""
    recurrent, inputs, output = (weight.mT for weight in weights)
    hidden = torch.zeros(*numbers.shape[:2], LINEAR, dtype=EXACT)
    for number in numbers.unbind(2):
        hidden = hidden @ recurrent + number[..., None] @ inputs
    wanted = numbers[..., -3:].sum(-1) / 3**0.5
    return ((hidden @ output)[..., 0] - wanted).square().mean(1)


# -- figures ---------------------------------------------------------------------------------------------------------


def factorial(slopes: dict[str, list[float]]) -> Heat:
    starts = [*(f"gain {gain}" for gain in GAINS), "identity"]
    values = [[mean(slopes[f"{activation}, {start}"]) for start in starts] for activation in ACTIVATIONS]
    return Heat(
        "Log-slope of the gradient, nats per step", ACTIVATIONS, starts, values,
        x="initialization of W_h", y="activation", z="log-slope", high=0.0,
    )  # fmt: skip


def by_bias(slopes: dict[str, list[float]]) -> Heat:
    values = [[mean(slopes[f"LSTM, forget bias {bias:g}, gain {gain}"]) for gain in GAINS] for bias in BIASES]
    return Heat(
        "Log-slope of an LSTM's gradient, nats per step", [f"{bias:g}" for bias in BIASES], list(GAINS), values,
        x="gain of W_h", y="forget bias", z="log-slope", high=0.0,
    )  # fmt: skip


def in_order(slopes: dict[str, list[float]]) -> Intervals:
    ordered = sorted(slopes.items(), key=lambda item: -mean(item[1]))
    marks = [Mark(name, mean(values), *student_interval(values, 0.99)) for name, values in ordered]
    return Intervals(
        "What slows the decay", "log-slope (nats per step), 99 % interval", marks,
        threshold=ONE_PER_CENT, threshold_name="a hundredth left after 100 steps",
    )  # fmt: skip


def rows(slopes: dict[str, list[float]]) -> tuple[dict[str, object], ...]:
    return tuple({"network": name, "log-slope": round(mean(values), 4)} for name, values in slopes.items())


def gate_of_the_notes() -> list[Worked]:
    """The gate (1 0 0 .5) as a forget gate: its effect on a cell, and on the gradient."""
    shut, wide = -torch.inf, torch.inf
    forget = torch.tensor([[wide, shut, shut, 0.0]])  # σ of it is 1, 0, 0, ½
    drive = torch.cat([torch.full((1, 4), shut), forget, torch.zeros(1, 4), torch.full((1, 4), wide)], dim=-1)
    cell = torch.tensor([[4.0, 3.0, 2.0, 1.0]], requires_grad=True)
    after = lstm(drive, torch.zeros(1, 16), {"cell": cell})
    (gradient,) = torch.autograd.grad(after["cell"].sum(), cell)
    kept = after["cell"] / cell.detach()
    return [
        Worked(what, "1 0 0 .5", computed, computed == "1 0 0 .5", "001:44")
        for what, computed in (
            ("the forget gate", written(after["forget"][0])),
            ("what it keeps of a cell (4 3 2 1), as shares", written(kept[0])),
            ("∂c_t/∂c_{t−1}, its diagonal", written(gradient[0])),
        )
    ]


def written(vector: Tensor) -> str:
    return " ".join(f"{value:g}".removeprefix("0") or "0" for value in vector.tolist())


RELU = {gain: f"ReLU instead of tanh, gain {gain}: difference of log-slopes" for gain in GAINS}
GATES = {gain: f"log-slope of an LSTM with forget bias b, gain {gain}" for gain in GAINS}
USUAL = {gain: f"LSTM with forget bias 1 instead of tanh, gain {gain}: difference of log-slopes" for gain in GAINS}
SHUT = {gain: f"LSTM with shut forget gates instead of tanh, gain {gain}: difference of log-slopes" for gain in GAINS}
HE_RELU, HE_TANH = "log-slope of ReLU at He's gain √2", "log-slope of tanh at He's gain √2"
HE_SIGMOID = "log-slope of the sigmoid at He's gain √2"
PLAIN = "log-slope of tanh at gain 1/√3"
IDENTITY = "log-slope of tanh with identity initialization"
PAIR = "log-slope of ReLU with identity initialization"
SQUASHED = "log-slope of the sigmoid with identity initialization"
FAINT = "log-slope of tanh at gain 1/√3, no bias and W_x as small as with identity initialization"
FAINT_ONE = "log-slope of tanh at gain 1, no bias and W_x as small as with identity initialization"
LOUD = "log-slope of tanh at gain 2"
STRONG_TANH = "log-slope of tanh with identity W_h, but W_x as by default"
STRONG_RELU = "log-slope of ReLU with identity W_h, but W_x as by default"
SLOPES = {
    "relu, gain √2": HE_RELU, "tanh, gain √2": HE_TANH, "sigmoid, gain √2": HE_SIGMOID, "tanh, gain 1/√3": PLAIN,
    "tanh, identity": IDENTITY, "relu, identity": PAIR, "sigmoid, identity": SQUASHED,
    "tanh, gain 1/√3, faint words": FAINT, "tanh, gain 1, faint words": FAINT_ONE, "tanh, gain 2": LOUD,
    "tanh, identity, W_x as by default": STRONG_TANH, "relu, identity, W_x as by default": STRONG_RELU,
}  # fmt: skip
CLIPPED = "share of linear networks of gain √2 that learn with clipping"
UNCLIPPED = "share of linear networks of gain √2 that learn without clipping"
SLOWER = (
    "share of linear networks of gain √2 that learn at a rate that makes the first step as short as the clipped one"
)
NOTHING_TO_CURE = "share of linear networks of gain 1/√3 that learn without clipping"
GRU_GATES = "GRU instead of tanh, gain 1/√3: difference of log-slopes"
SATURATED = "ReLU instead of tanh, gain 1/√3, words of size 5: difference of log-slopes"
PER_STEP = "nats per step"

CLAIM = Claim(
    name="remedies",
    number="C3",
    kinds=("measured",),
    quote="POSSIBLE SOLUTION: GRADIENT CLIPPING … ① … USING RELU PREVENTS f' FROM SHRINKING THE GRADIENTS WHEN x > 0 … "
    "② … INITIALIZE WEIGHTS TO IDENTITY MATRIX AND INITIALIZE BIASES TO ZERO. THIS HELPS PREVENT THE WEIGHTS SHRINKING "
    "TO ZERO. … ③ GATED CELL",
    where="003:150, 159–205",
    statement="Each remedy, alone and in its usual setting, is a possible solution: ReLU at He's gain, identity "
    "initialization, and gates that are open keep a hundredth of the gradient over 100 steps where a tanh network "
    "does not; clipping enables a network whose gradient explodes to learn.",
    conditions=f"Vanishing: one layer of width {WIDTH}, untrained, words drawn from N(0, 1), distances {FIRST} to "
    f"{LAST}, fp64. A hundredth over 100 steps: a log-slope of at least {ONE_PER_CENT} nats per step. ReLU: gain √2 "
    "(He et al. 2015). Identity: no bias and W_x small (0.001; Le et al. 2015), with tanh and with ReLU. Gates: "
    "forget bias b = 3 at PyTorch's gain 1/√3 and at 1; with the usual bias 1 at least 0.05 nats per step better "
    f"than tanh, at 1/√3. Exploding: linear networks of width {LINEAR} that add up the last three of {WORDS} numbers, "
    f"300 steps of SGD at {RATE}, the gradient clipped to length {BOUND:g}; learned: at most a tenth of the answer's "
    "variance is left.",
    control_words=(
        "In the same settings, tanh vanishes: at He's gain, with W_x as small as identity initialization makes it, "
        "and at PyTorch's gain. A sigmoid, whose slope is at most ¼, also vanishes at He's gain and with identity "
        "initialization; an LSTM with closed forget gates is worse than tanh; and the exploding network learns "
        "neither without clipping nor at a rate that makes the first step as short."
    ),
    breaks=(
        "No remedy works in every setting. ReLU helps by its gain: f′ is 1 where x > 0, but 0 in the other half of "
        "the units, so that a step keeps √(g²/2) of the gradient: all of it at He's gain √2, and less than tanh "
        "does at PyTorch's 1/√3. A larger gain alone does as much for tanh. Identity initialization works while the "
        "inputs are small; a random W_h of gain 1 then does as well, and with the usual W_x a tanh network "
        "saturates. Gates help as far as they are open: with the usual forget bias of 1, an LSTM vanishes at every "
        "gain, though more slowly than tanh. Clipping shortens the step and keeps its direction, so it does not "
        "help against vanishing gradients."
    ),
    expected=(
        Expect(HE_RELU, "at least", ONE_PER_CENT, unit=PER_STEP, part="ReLU"),
        Expect(IDENTITY, "at least", ONE_PER_CENT, unit=PER_STEP, part="identity initialization"),
        Expect(PAIR, "at least", ONE_PER_CENT, unit=PER_STEP, part="identity initialization"),
        *(Expect(GATES[gain], "at least", ONE_PER_CENT, unit=PER_STEP, part="gates") for gain in ("1/√3", "1")),
        Expect(USUAL["1/√3"], "at least", MIN_EFFECT, unit=PER_STEP, part="gates"),
        Expect(CLIPPED, "at least", 0.5, over="share", part="clipping"),
    ),
    control=(
        Expect(HE_TANH, "at most", ONE_PER_CENT, unit=PER_STEP, part="ReLU"),
        Expect(HE_SIGMOID, "at most", ONE_PER_CENT, unit=PER_STEP, part="ReLU"),
        Expect(FAINT, "at most", ONE_PER_CENT, unit=PER_STEP, part="identity initialization"),
        Expect(SQUASHED, "at most", ONE_PER_CENT, unit=PER_STEP, part="identity initialization"),
        Expect(PLAIN, "at most", ONE_PER_CENT, unit=PER_STEP, part="gates"),
        *(Expect(quantity, "at most", -MIN_EFFECT, unit=PER_STEP, part="gates") for quantity in SHUT.values()),
        Expect(UNCLIPPED, "at most", 0.5, over="share", part="clipping"),
        Expect(SLOWER, "at most", 0.5, over="share", part="clipping"),
    ),
    besides=(
        *(Expect(quantity, "at least", MIN_EFFECT, unit=PER_STEP) for quantity in RELU.values()),
        *(Expect(USUAL[gain], "at least", MIN_EFFECT, unit=PER_STEP) for gain in ("1", "√2")),
        Expect(GATES["√2"], "at least", ONE_PER_CENT, unit=PER_STEP),
        Expect(LOUD, "at least", ONE_PER_CENT, unit=PER_STEP),
        Expect(FAINT_ONE, "at least", ONE_PER_CENT, unit=PER_STEP),
        Expect(STRONG_TANH, "at least", ONE_PER_CENT, unit=PER_STEP),
        Expect(STRONG_RELU, "at least", ONE_PER_CENT, unit=PER_STEP),
        Expect(NOTHING_TO_CURE, "at least", 0.5, over="share"),
        Expect(GRU_GATES, "at least", MIN_EFFECT, unit=PER_STEP),
        Expect(SATURATED, "at least", MIN_EFFECT, unit=PER_STEP),
    ),
    experiment=experiment,
    quick_words="8 draws instead of 60",
    knobs={"b": 3.0},
    limits={"b": (-3.0, 12.0)},
    worked=gate_of_the_notes,
    seeds=60,
    first_seed=SECOND_LOOK,
    quick_seeds=8,
    cost=150.0,
)
