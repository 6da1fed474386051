"""C10, any-b: strings of A and B whose next symbol is B if any before it is: what attention finds at once, and what an
RNN cannot learn from far away.

    α_i = b^{k_iᵀq} / Σ_j b^{k_jᵀq},   output = Σ_i α_i e_i,   e_A = (1, 0),  e_B = (0, 1)

With q = (0, q) the one B among n symbols gets b^q / (b^q + n − 1); with q = 0 every symbol gets 1/n, which is the DAN.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.evaluation.intervals import share_interval
from regard.layers.attention import SelfAttention
from regard.layers.context import Average
from regard.layers.state import Span
from regard.pooling import Pooled, attention
from regard.report.figures import Figure, Line, Lines
from regard.runs.speed import install
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model

NEAR, FAR, VERY_FAR = 5, 100, 1000  # distance of the only B, in steps
DISTANCES = (NEAR, 10, 20, 40, FAR, VERY_FAR)
LENGTHS = (2, 4, 10, 100, 1000, 10_000, 30_000)
WIDTH, STEPS, LEARNT = 16, 400, 0.05  # a loss of 0.05 is a probability of 0.95 for the right symbol


# -- the notes' numbers ----------------------------------------------------------------------------------------------


def look(string: str, q: tuple[float, float], base: float = math.e) -> Pooled:
    """One query to a string: keys and values are the symbols' own vectors."""
    symbols = vectors(string)
    return attention(np.array(q) * math.log(base), symbols, symbols)  # base^s = e^(s log base)


def vectors(string: str) -> np.ndarray:
    return np.eye(2)[(np.array(list(string)) == "B").astype(int)]


def next_symbol(string: str) -> str:
    """The prediction of attention with q = (0, 10): the larger component of its output."""
    return "AB"[int(look(string, (0, 10)).output.argmax())]


def worked() -> list[Worked]:
    """002:27–57, all at once."""

    def same(what: str, noted: str, computed: str, where: str) -> Worked:
        return Worked(what, noted, computed, noted == computed, where)

    strings = [
        same(f"after {s}", s + n, s + next_symbol(s), "002:29")
        for s, n in (("AAAA", "A"), ("ABAA", "B"), ("BAAB", "B"))
    ]
    scores = vectors("AABA") @ (0, 1)
    three, ten = look("AABA", (0, 1), base=3), look("AABA", (0, 10))
    every = self_look([[0.0, 0.0], [10.0, 10.0]])
    return [
        *strings,
        same("AABA, q = (0, 1): scores", "0 0 1 0", " ".join(f"{s:.0f}" for s in scores), "002:37"),
        same("AABA, q = (0, 1), e = 3: weights", "1/6 1/6 1/2 1/6", fractions(three.weights), "002:37"),
        same("AABA, q = (0, 1), e = 3: output", "1/2 1/2", fractions(three.output), "002:39"),
        same("AABA, DAN", "3/4 1/4", fractions(average("AABA")), "002:41"),
        same("AABA, q = (0, 10): weights", "0 0 1 0", " ".join(f"{w:.0f}" for w in ten.weights), "002:47"),
        same("AAAA, q = (0, 10): output", "1 0", " ".join(f"{x:.0f}" for x in look("AAAA", (0, 10)).output), "002:45"),
        same("AABA, q = (0, 10): output", "0 1", " ".join(f"{x:.0f}" for x in ten.output), "002:45"),
        same("scores of self-attention, S = QKᵀ, of AABA", "4 × 4", f"{every.size(0)} × {every.size(1)}", "002:55"),
    ]  # fmt: skip


def fractions(numbers: np.ndarray) -> str:
    """As the notes write them, where they are so to twelve digits; else as they are."""
    near = [Fraction(float(number)).limit_denominator(100) for number in numbers]
    exact = all(abs(float(part) - number) < 1e-12 for part, number in zip(near, numbers))
    return " ".join(map(str, near if exact else numbers))


def average(string: str) -> np.ndarray:
    """The deep averaging network's average, by its own layer."""
    symbols = torch.from_numpy(vectors(string))[None]
    layer = Average(2)
    state = layer.begin(1, device="cpu", dtype=torch.float64)
    return layer(symbols, state, Span(torch.zeros(1, dtype=torch.int64)))[0][0, -1].numpy()


def self_look(query_weights: list[list[float]]) -> Tensor:
    """Weights [4, 4] of causal self-attention over AABA with W_k = W_v = I and this W_q."""
    layer = SelfAttention(2, score="dot").double()
    with torch.no_grad():
        for part, weight in ((layer.query, query_weights), (layer.key, np.eye(2)), (layer.value, np.eye(2))):
            part.weight.copy_(torch.as_tensor(weight))  # type: ignore[operator]
    symbols = torch.from_numpy(vectors("AABA"))[None]
    state = layer.begin(1, device="cpu", dtype=torch.float64)
    parts = layer.explain(symbols, state, Span(torch.zeros(1, dtype=torch.int64)))[2]
    return parts["weights"][0, 0].detach()


# -- the identities --------------------------------------------------------------------------------------------------


def identities(trial: Trial) -> dict[str, list[float]]:
    q, base = trial.knob("q"), trial.knob("base")
    random = np.random.default_rng(trial.seeds[0])
    strings = ["".join(random.choice(["A", "B"], size=random.integers(1, 30))) for _ in range(20)]
    shares = [(n, float(look("A" * (n - 1) + "B", (0, q), base).weights[-1])) for n in LENGTHS]
    to_a, to_b = self_look([[10.0, 0.0], [0.0, 10.0]]), self_look([[0.0, 0.0], [10.0, 10.0]])
    return {
        BASE_THREE: [float(abs(look("AABA", (0, 1), 3).output - 0.5).max())],
        SHARE: [abs(share / (base**q / (base**q + n - 1)) - 1) for n, share in shares],
        SAME_AS_DAN: [float(abs(look(s, (0, 0)).output - average(s)).max()) for s in strings],
        HALF: [float(first_below_half(10.0))],
        A_FOR_A: [float(to_a[3, 2])],
        ALL_FOR_B: [float(to_b[row, 2]) for row in (2, 3)],
    }


def first_below_half(q: float) -> int:
    """The shortest string in which the one B gets less than half of the attention; found by bisection."""
    low, high = 1, 2
    while look("A" * (high - 1) + "B", (0, q)).weights[-1] >= 0.5:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        seen = look("A" * (middle - 1) + "B", (0, q)).weights[-1] >= 0.5
        low, high = (middle, high) if seen else (low, middle)
    return high


# -- the learning ----------------------------------------------------------------------------------------------------


def make(system: str) -> Model:
    bare = {"score": "dot"} if system == "self-attention" else {"layers": 1}
    settings = load_module(system).Settings(width=WIDTH, dropout=0.0, tied=False, **bare)
    model: Model = load_class(system)(2, settings)
    install(model, training=True)  # a thousand steps one by one take long
    return model


def far_strings(distance: int, *, hidden: bool = False) -> tuple[Tensor, Tensor]:
    """BAA…A and AAA…A, with the B `distance` steps before the predicted symbol, and that symbol; `hidden`: the B is not
    shown, so that nothing can be learned."""
    strings = torch.zeros(2, distance, dtype=torch.int64)
    strings[0, 0] = not hidden
    return strings, torch.tensor([1, 0])


def last_loss(model: Model, strings: Tensor, after: Tensor) -> Tensor:
    hidden, _ = model.read(strings)
    return F.cross_entropy(model.predict(hidden[:, -1]), after)


def learns(system: str, distance: int, seed: int, steps: int, *, hidden: bool = False) -> bool:
    torch.manual_seed(seed)
    model = make(system)
    strings, after = far_strings(distance, hidden=hidden)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = last_loss(model, strings, after)
        if loss < LEARNT:
            return True
        descend(model, loss, optimiser)
    return False


def descend(model: Model, loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def right_at_length_1000(system: str, seed: int, steps: int) -> bool:
    """Trained on strings of up to ten symbols, judged at each whether a B was among them, and tried on a thousand."""
    torch.manual_seed(seed)
    model = make(system)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    rows = torch.arange(64)
    for _ in range(steps):
        strings = torch.zeros(len(rows), 10, dtype=torch.int64)
        strings[rows, torch.randint(10, (len(rows),))] = rows % 2  # every other string has a B
        logits, _ = model(strings)
        loss = F.cross_entropy(logits.flatten(0, 1), (strings.cumsum(1) > 0).long().flatten())
        descend(model, loss, optimiser)
    strings, after = far_strings(VERY_FAR)
    with torch.no_grad():
        hidden, _ = model.read(strings)
        return bool((model.predict(hidden[:, -1]).argmax(-1) == after).all())


def first_gradient(system: str, distance: int, seed: int) -> float:
    """‖∂L/∂e_B‖ before any learning: the influence of the distant B."""
    torch.manual_seed(seed)
    model = make(system)
    last_loss(model, *far_strings(distance)).backward()
    gradient: Tensor = model.embedding.table.weight.grad  # type: ignore[union-attr, assignment]
    return float(gradient[1].norm())


def experiment(trial: Trial) -> Evidence:
    far = FAR if trial.quick else VERY_FAR
    distances = (NEAR, far) if trial.quick else DISTANCES
    steps = STEPS // 2 if trial.quick else STEPS
    learnt: dict[tuple[str, int], list[float]] = {}
    for system in ("rnn", "dan", "self-attention") if trial.quick else ("rnn", "lstm", "dan", "self-attention"):
        for distance in [d for d in distances if system != "lstm" or d <= FAR]:
            trial.step(f"{system}, B {distance} steps back")
            learnt[system, distance] = [float(learns(system, distance, seed, steps)) for seed in trial.seeds]
    blind = [float(learns("self-attention", far, seed, steps, hidden=True)) for seed in trial.seeds]
    trial.step("rnn on short strings")
    capable = [float(right_at_length_1000("rnn", seed, STEPS)) for seed in trial.seeds]
    return Evidence(
        {
            **identities(trial),
            RNN_NEAR: learnt["rnn", NEAR],
            RNN_FAR: learnt["rnn", far],
            ATTENTION_FAR: learnt["self-attention", far],
            AVERAGE_FAR: learnt["dan", far],
            CAPABLE: capable,
            BLIND: blind,
            RNN_GRADIENT: [first_gradient("rnn", VERY_FAR, seed) for seed in trial.seeds],
            ATTENTION_GRADIENT: [first_gradient("self-attention", VERY_FAR, seed) for seed in trial.seeds],
        },
        figures=(curve(learnt), dilution(trial)),
        remarks=(
            "With the true e instead of 3, q = (0, 1) gives "
            f"({', '.join(f'{x:.3f}' for x in look('AABA', (0, 1)).output)}) on AABA; "
            f"q = (0, 10) gives the B {look('AABA', (0, 10)).weights[2]:.5f}.",
        ),
    )


def curve(learnt: dict[tuple[str, int], list[float]]) -> Figure:
    lines = []
    for system in dict.fromkeys(system for system, _ in learnt):
        by_distance = [(d, values) for (name, d), values in learnt.items() if name == system]
        points = [(d, sum(values) / len(values)) for d, values in by_distance]
        band = [share_interval(int(sum(values)), len(values), 0.99) for _, values in by_distance]
        lines.append(Line(system, points, band=band))
    return Lines(
        title="Learnt from strings whose only B is far back",
        x="steps back to the only B",
        y="share of seeds that learn (99 % interval)",
        lines=lines,
        log_x=True,
        zero_y=True,
    )


def dilution(trial: Trial) -> Figure:
    base, chosen = trial.knob("base"), trial.knob("q")
    lengths = [round(10 ** (k / 4)) for k in range(2, 19)]
    lines = [
        Line(f"q = (0, {q:g})", [(n, base**q / (base**q + n - 1)) for n in lengths])
        for q in sorted({0.0, 1.0, 5.0, chosen})
    ]
    return Lines(
        title="Attention on the one B",
        x="symbols in the string, n",
        y="weight of the B",
        lines=[*lines, Line("half", [(n, 0.5) for n in lengths[:1]], level=True)],
        log_x=True,
        zero_y=True,
    )


BASE_THREE = "AABA, q = (0, 1), e = 3: largest difference of a component from (1/2, 1/2)"
SHARE = "relative difference of the B's weight from bᑫ / (bᑫ + n − 1), n from 2 to 30,000"
SAME_AS_DAN = "q = 0: largest difference of a component from the DAN's average"
HALF = "shortest string in which the one B gets less than half, at q = (0, 10)"
A_FOR_A = "W_q = 10·I: attention of the last A of AABA to the B"
ALL_FOR_B = "W_q = [[0, 0], [10, 10]]: attention of each word from the B on to the B"
RNN_NEAR = f"share of rnn runs that learn with the B {NEAR} steps back"
RNN_FAR = "share of rnn runs that learn with the B far back"
ATTENTION_FAR = "share of self-attention runs that learn with the B far back"
AVERAGE_FAR = "share of dan runs, which average, that learn with the B far back"
BLIND = "share of self-attention runs that learn if the B far back is not shown"
CAPABLE = "share of rnn runs, trained on strings of ten, that are right at length 1000"
RNN_GRADIENT = f"first gradient of rnn's loss by the B's vector, {VERY_FAR} steps back"
ATTENTION_GRADIENT = f"first gradient of self-attention's loss by the B's vector, {VERY_FAR} steps back"

CLAIM = Claim(
    name="any-b",
    number="C10",
    kinds=("identity", "measured"),
    quote="if all As - next is A if any B-next is B … hard for RNNs BAAAA ... A B 1000 to predict",
    where="002:27–57",
    statement="A query for B finds the one B among n symbols with weight e^q / (e^q + n − 1), wherever it is, and "
    f"q = 0 is the DAN. Trained from scratch, an RNN learns the rule when the only B is {NEAR} steps back and not when "
    f"it is {VERY_FAR} steps back, where attention still learns it.",
    conditions=(
        "One-hot vectors for A and B, dot products. For learning, two strings: BAA…A and AAA…A; far means "
        f"{VERY_FAR} steps back. Default initialization, width {WIDTH}, at most {STEPS} steps of Adam (5e-3), "
        "attention without positions."
    ),
    control_words="The same RNN trained on strings of ten symbols is right at length 1000: learning fails, not the "
    "network's capacity to represent the rule. If the B is not shown, attention also learns nothing.",
    breaks=(
        "q = (0, 10) dilutes: in a string of about e¹⁰ = 22,026 symbols, the B gets only half of the weight. In "
        "self-attention, W_q = 10·I makes every A look for As, and W_q = [[0, 0], [10, 10]] makes every word look "
        "for B. A system that is indifferent to distance need not use attention: an average of the words (DAN) is "
        "also indifferent, and also learns at 100 steps. An LSTM learns from farther away than an RNN, but with its "
        "default forget bias not from every distance."
    ),
    expected=(
        Expect(BASE_THREE, "at most", 1e-12, over="draws"),
        Expect(SHARE, "at most", 1e-9, over="draws"),
        Expect(SAME_AS_DAN, "at most", 1e-12, over="draws"),
        Expect(RNN_NEAR, "at least", 0.5, over="share"),
        Expect(RNN_FAR, "at most", 0.5, over="share"),
        Expect(ATTENTION_FAR, "at least", 0.5, over="share"),
    ),
    control=(Expect(CAPABLE, "at least", 0.5, over="share"), Expect(BLIND, "at most", 0.5, over="share")),
    besides=(
        Expect(HALF, "within", math.exp(10) + 1, tolerance=1, over="draws", unit="symbols"),
        Expect(A_FOR_A, "at most", 0.01, over="draws"),
        Expect(ALL_FOR_B, "at least", 0.99, over="draws"),
        Expect(AVERAGE_FAR, "at least", 0.5, over="share"),
        Expect(RNN_GRADIENT, "at most", 1e-30, over="draws"),
        Expect(ATTENTION_GRADIENT, "at least", 1e-8, over="draws"),
    ),
    experiment=experiment,
    worked=worked,
    knobs={"q": 10.0, "base": math.e},
    limits={"q": (0.0, 100.0), "base": (1.0, 100.0)},
    quick_words=f"8 seeds, far is {FAR} steps back, half as many steps, no lstm",
    seeds=10,
    quick_seeds=8,
    cost=330,
)
