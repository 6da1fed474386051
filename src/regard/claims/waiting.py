"""C5, waiting: a recurrent network must wait for its previous step, attention must not, until it writes.

recurrent   h_t = f(x_t, h_{t−1})                              a chain of T steps, f not linear in h
linear      h_t = a_t(x_t) * h_{t−1} + b_t(x_t)                a tree of log₂ T levels (minGRU): it need not wait
attention   h_t = Σ_j α(q_t, k_j) v_j,   q, k, v from x        the same few steps for all t; writing, x_{t+1} is h_t

The chain is read off autograd's own graph: the longest way from the output to the input, in operations. What the clock
says is another matter, since an operation on T words takes longer than one on a single word; it is measured besides.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.device import pick_device
from regard.claims.chains import longest_chain
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.through_time import opening
from regard.decoding.generate import generate
from regard.decoding.sampling import Sampling
from regard.layers.attention import SelfAttention
from regard.layers.layer import Layer
from regard.layers.recurrent import GRU, LSTM, Elman
from regard.layers.scan import MinGRU
from regard.layers.state import Span, State
from regard.report.figures import Line, Lines
from regard.systems.catalogue import load_class, load_module
from regard.systems.gpt import GPT
from regard.systems.gpt import Settings as GPTSettings
from regard.systems.model import Model

WIDTH = 16  # of the layers whose chains are counted
COUNTED = (2, 4, 8, 16, 32, 64)
RECURRENT = {"rnn": Elman, "lstm": LSTM, "gru": GRU}
VOCABULARY = 256
TIMED: dict[str, dict[str, Any]] = {  # by system, what makes them alike: two layers of one width
    "lstm": {"layers": 2, "width": 128, "dropout": 0.0},
    "gpt": {"layers": 2, "width": 128, "heads": 4, "position": "sinusoid", "dropout": 0.0},
}
REPETITIONS, ENOUGH = 5, 6.0  # seconds; a text whose runs sum to this much is not measured again
LABELS = {"train": "training", "write": "generating"}
MAX_WORDS = {  # words while training and while generating
    ("cpu", True): (512, 256), ("cpu", False): (4096, 1024), ("cuda", True): (1024, 512), ("cuda", False): (8192, 8192),
}  # fmt: skip


def experiment(trial: Trial) -> Evidence:
    torch.manual_seed(trial.seeds[0])
    stacks = layers()
    chains = {name: [longest_chain(reads(layer, words)) for words in COUNTED] for name, layer in stacks.items()}
    chains["gpt, 1 layer, writing"] = [longest_chain(writes(stacks["gpt, 1 layer"], words)) for words in COUNTED]
    gained = {name: growth(steps) for name, steps in chains.items()}
    doubled = [float(more) for more in np.diff(chains["mingru"])]
    deeper = [
        chains[f"gpt, {n + 1} layers"][-1] - chains[f"gpt, {n} layer{'s' if n > 1 else ''}"][-1] for n in (1, 2, 3)
    ]
    numbers: dict[str, Sequence[float]] = {
        WAITS: [gain for name in RECURRENT for gain in gained[name]],
        AT_ONCE: [
            gain
            for name in gained
            if name.startswith(("self", "gpt")) and "writing" not in name
            for gain in gained[name]
        ],
        TREE: [step - doubled[0] for step in doubled],
        PER_LAYER: [further - deeper[0] for further in deeper],
        WRITING: gained["gpt, 1 layer, writing"],
    }
    trial.step("the chains are counted")
    timed, clock = timing(trial)
    counted = Lines(
        "The longest chain of dependent operations", "words T", "operations one after the other",
        [Line(name, list(zip(COUNTED, steps, strict=True))) for name, steps in chains.items()], log_x=True, log_y=True,
    )  # fmt: skip
    rows = tuple(
        {"longest chain, or seconds": f"{name}, operations", **dict(zip(map(str, COUNTED), steps))}
        for name, steps in chains.items()
    )
    return Evidence(numbers | exponents(timed), (counted, clock), remarks(timed), (*rows, *times(timed)))


# -- the chain, counted ----------------------------------------------------------------------------------------------


def layers() -> dict[str, Layer | Sequence[Layer]]:
    recurrent = {name: kind(WIDTH, WIDTH) for name, kind in RECURRENT.items()}
    settings = GPTSettings(width=WIDTH, heads=2, dropout=0.0)
    blocks = [GPT.block(settings) for _ in range(4)]
    stacks = {f"gpt, {n} layer{'s' if n > 1 else ''}": blocks[:n] for n in (1, 2, 3, 4)}
    return {**recurrent, "mingru": MinGRU(WIDTH, WIDTH), "self-attention": SelfAttention(WIDTH), **stacks}


def reads(stack: Layer | Sequence[Layer], words: int) -> Tensor:
    """The output for a whole text, by the written equations; a linear recurrence's are those of its tree."""
    x = torch.randn(1, words, WIDTH, requires_grad=True)
    for layer in [stack] if isinstance(stack, Layer) else stack:
        x = (layer if isinstance(layer, MinGRU) else layer.explain)(x, *opening(layer, x))[0]
    return x


def writes(stack: Layer | Sequence[Layer], words: int) -> Tensor:
    """The last output of a model that reads its own outputs: each output is the next input."""
    x = torch.randn(1, 1, WIDTH, requires_grad=True)
    steps = [stack] if isinstance(stack, Layer) else list(stack)
    states: list[State] = [opening(layer, x)[0] for layer in steps]
    for word in range(words):
        span = Span(torch.tensor([word]))
        for place, layer in enumerate(steps):
            x, states[place], _ = layer.explain(x, states[place], span)
    return x


def growth(steps: Sequence[int]) -> list[float]:
    """Operations that each further word adds, from each length to the next."""
    ends = zip(COUNTED, COUNTED[1:], steps, steps[1:])
    return [(after - before) / (more - fewer) for fewer, more, before, after in ends]


# -- the clock -------------------------------------------------------------------------------------------------------

Times = dict[tuple[str, str], dict[int, list[float]]]  # by system and task, by length, up to one for each repetition


def timing(trial: Trial) -> tuple[Times, Lines]:
    device = pick_device(trial.device)
    timed: Times = defaultdict(lambda: defaultdict(list))
    training, generating = MAX_WORDS[device.type, trial.quick]
    models = {name: make(name, device) for name in TIMED}
    for task, longest in ((train, training), (write, generating)):
        lengths = [2**power for power in range(5, 20) if 2**power <= longest]
        for name, model in models.items():
            measure(task, model, lengths[0])  # a first time, which is not counted: libraries choose their kernels
            spent = timed[name, task.__name__]
            for repetition in range(1, REPETITIONS + 1):  # all lengths in turn: a slow minute meets each of them
                for length in lengths:
                    if sum(spent[length]) < ENOUGH:  # what takes long varies little
                        spent[length].append(measure(task, model, length))
                trial.step(f"{name}, {LABELS[task.__name__]}, repetition {repetition}")
    lines = [
        Line(f"{name}, {LABELS[task]}", [(length, float(np.median(seconds))) for length, seconds in by_length.items()])
        for (name, task), by_length in timed.items()
    ]
    return timed, Lines("Seconds for one text", "words T", "seconds (median)", lines, log_x=True, log_y=True)


def make(system: str, device: torch.device) -> Model:
    torch.manual_seed(1)
    model: Model = load_class(system)(VOCABULARY, load_module(system).Settings(**TIMED[system]))
    return model.to(device)


def measure(task: Callable[[Model, int], None], model: Model, length: int) -> float:
    """Seconds; for short runs the minimum of a few, since other load can only add time."""
    spent: list[float] = []
    while sum(spent) < 0.05 and len(spent) < 5:
        began = now(model.device)
        task(model, length)
        spent.append(now(model.device) - began)
    return min(spent)


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # it works ahead of the clock
    return time.perf_counter()


def train(model: Model, length: int) -> None:
    """Forward and backward over one text."""
    model.train()
    tokens = torch.randint(VOCABULARY, (1, length + 1), device=model.device)
    loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
    loss.mean().backward()
    model.zero_grad()


def write(model: Model, length: int) -> None:
    """One text of that length, word by word."""
    for _ in generate(model, [[0]], max_tokens=length, eos=0, sampling=Sampling()):
        pass


def exponents(timed: Times) -> dict[str, list[float]]:
    """p of time ~ T^p over the longer half of the lengths, for each repetition that timed at least three of them: no
    time is used twice."""
    slopes: dict[str, list[float]] = {}
    for key, quantity in QUANTITIES.items():
        lengths = list(timed[key])
        longer = lengths[min(len(lengths) // 2, max(len(lengths) - 3, 0)) :]
        repetitions = [
            [(length, timed[key][length][turn]) for length in longer if turn < len(timed[key][length])]
            for turn in range(REPETITIONS)
        ]
        enough = [points for points in repetitions if len(points) >= min(3, len(longer))]
        slopes[quantity] = [slope(points) for points in enough]
    return slopes


def slope(points: Sequence[tuple[int, float]]) -> float:
    lengths, seconds = np.log(points).T
    return float(np.polyfit(lengths, seconds, 1)[0])


def times(timed: Times) -> tuple[dict[str, object], ...]:
    return tuple(
        {
            "longest chain, or seconds": f"{name}, {LABELS[task]}, seconds",
            **{str(length): float(f"{np.median(s):.4g}") for length, s in by_length.items()},
        }
        for (name, task), by_length in timed.items()
    )


def remarks(timed: Times) -> tuple[str, ...]:
    """The lengths at which attention is the slower of the two, and the ratio at the longest text."""
    said = []
    for task, words in LABELS.items():
        recurrent, attention = timed["lstm", task], timed["gpt", task]
        ratio = {length: np.median(recurrent[length]) / np.median(attention[length]) for length in recurrent}
        longest = max(ratio)
        slower = [str(length) for length in ratio if ratio[length] < 1]
        said.append(
            f"{words.capitalize()}, the lstm took {ratio[longest]:.3g} times as long as the gpt for {longest} words; "
            f"the gpt was slower at {', '.join(slower) or 'no length'}."
        )
    return tuple(said)


WAITS = "operations that each further word adds to the longest chain, rnn, lstm and gru"
AT_ONCE = "operations that each further word adds to the longest chain, self-attention and gpt reading"
TREE = "operations that a doubling of the text adds to the longest chain, mingru, minus what the first one added"
PER_LAYER = "operations that a layer of gpt adds, minus what the second one added"
WRITING = "operations that each further word adds to the longest chain, gpt writing"
QUANTITIES = {
    ("lstm", "train"): "exponent p of time ~ T^p, lstm training, a repetition each",
    ("gpt", "train"): "exponent p of time ~ T^p, gpt training, a repetition each",
    ("lstm", "write"): "exponent p of time ~ T^p, lstm generating, a repetition each",
    ("gpt", "write"): "exponent p of time ~ T^p, gpt generating, a repetition each",
}

CLAIM = Claim(
    name="waiting",
    number="C5",
    kinds=("identity", "timing"),
    quote="lack of parallelism across timesteps - I can only compute h_n after computing h_{n-1} … O(n) Sequential "
    "dependence … SLOW, NO PARALLELIZATION",
    where="000:32–34; 002:19; 003:225–231",
    statement="The longest chain of dependent operations grows with every word for a recurrence that is not linear in "
    "its state (rnn, lstm, gru), but not for attention, where each layer adds a fixed small number. A linear "
    "recurrence need not wait: doubling the text adds a fixed small number.",
    conditions=(
        "The whole text is available, as in training. An operation on whole matrices counts as one, no matter how "
        "many numbers it sums. Wall-clock time is a second result and applies only to the device named with it: two "
        "layers of width 128, one text, fp32, exponents over the longer half of the lengths, at least three. The "
        f"intervals are over up to {REPETITIONS} repetitions of the same measurement, not over seeds; a text is not "
        f"timed again once its times sum to {ENOUGH:g} seconds, so the longest texts take part only in the first "
        "repetitions."
    ),
    control_words="When attention writes, each word waits for the one before it, and the chain grows with every word "
    "again.",
    breaks=(
        "A short chain means a short time only if the device can do everything at once: on a few cores, attention's "
        "T² operations make it slower for long texts. Only nonlinear recurrences, those of the notes, must wait; "
        "without a nonlinearity between steps, a recurrence can be computed as a tree (claim no-waiting)."
    ),
    expected=(
        Expect(WAITS, "at least", 1.0, over="draws"),
        Expect(AT_ONCE, "within", 0.0, 0.0, over="draws"),
        Expect(PER_LAYER, "within", 0.0, 0.0, over="draws"),
        Expect(TREE, "within", 0.0, 0.0, over="draws"),
    ),
    control=(Expect(WRITING, "at least", 1.0, over="draws"),),
    besides=(
        Expect(QUANTITIES["lstm", "train"], "at least", 0.7),
        Expect(QUANTITIES["gpt", "train"], "at most", 0.7),
        Expect(QUANTITIES["lstm", "write"], "at least", 0.7),
        Expect(QUANTITIES["gpt", "write"], "at least", 0.7),
    ),
    experiment=experiment,
    quick_words="texts of up to 512 words (1024 on a GPU) instead of 4096 (8192)",
    seeds=1,
    quick_seeds=1,
    on_device=True,
    cost=40.0,
)
