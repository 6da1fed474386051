"""C25, no-waiting: a recurrence whose gates do not look at the past need not wait: its steps are a tree.

gru       h_t = (1 − z_t(x_t, h_{t-1})) * n_t(x_t, h_{t-1}) + z_t * h_{t-1}           a chain of T steps
mingru    h_t = (1 − z_t(x_t)) * h_{t-1} + z_t(x_t) * n_t(x_t)                        a tree of log₂ T levels

It answers C5. The chain is read off autograd's graph, as there; what the clock says is measured besides, for a whole
model of each kind on one text, with the paths that `regard train` takes on the device.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch

from regard.base.device import pick_device
from regard.claims.chains import longest_chain
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.through_time import opening
from regard.claims.waiting import ENOUGH, REPETITIONS, VOCABULARY, measure, slope, train
from regard.layers.layer import Layer
from regard.layers.recurrent import GRU
from regard.layers.scan import MinGRU
from regard.layers.state import State
from regard.report.figures import Line, Lines
from regard.runs.speed import install
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model

WIDTH = 8  # of the layers whose chains are counted
COUNTED = (16, 32, 64, 128, 256, 512, 1024)
TIMED: dict[str, dict[str, Any]] = {  # two layers of one width
    "gru": {"layers": 2, "width": 128, "dropout": 0.0},
    "gpt": {"layers": 2, "width": 128, "heads": 4, "position": "sinusoid", "dropout": 0.0},
    "mingru": {"layers": 2, "width": 128, "expansion": 1.0, "dropout": 0.0},
}
MAX_WORDS = {("cpu", True): 1024, ("cpu", False): 8192, ("cuda", True): 4096, ("cuda", False): 65536}  # words
FITTED = 4  # number of the longest lengths over which exponents are fitted


def experiment(trial: Trial) -> Evidence:
    torch.manual_seed(trial.seeds[0])
    chains = {
        "gru": [longest_chain(in_parallel(GRU(WIDTH, WIDTH), words, explain=True)) for words in COUNTED],
        "mingru": [longest_chain(in_parallel(MinGRU(WIDTH, WIDTH), words)) for words in COUNTED],
        "mingru, word by word": [longest_chain(in_parallel(MinGRU(WIDTH, WIDTH), w, explain=True)) for w in COUNTED],
    }
    doubled = np.diff(chains["mingru"])
    measured: dict[str, list[float]] = {
        LEVELS: [float(step - doubled[0]) for step in doubled],
        WAITS: gained(chains["gru"]),
        WRITING: gained(chains["mingru, word by word"]),
        FLAT: gained(chains["mingru"])[-1:],
    }
    trial.step("the chains are counted")
    timed = timing(trial)
    for system in TIMED:
        measured[EXPONENTS[system]] = exponents(timed[system])
    longest = max(timed["mingru"])
    measured[RATIO] = [float(np.median(timed["gru"][longest]) / np.median(timed["mingru"][longest]))]
    figures = (
        Lines("The longest chain of dependent operations", "words T", "operations one after the other",
              [Line(name, list(zip(COUNTED, steps, strict=True))) for name, steps in chains.items()],
              log_x=True, log_y=True),
        Lines("Seconds to train on one text", "words T", "seconds (median)",
              [Line(name, [(n, float(np.median(s))) for n, s in by.items()]) for name, by in timed.items()],
              log_x=True, log_y=True),
    )  # fmt: skip
    rows = [{"longest chain, or seconds": f"{name}, operations", **_columns(COUNTED, c)} for name, c in chains.items()]
    rows += [
        {
            "longest chain, or seconds": f"{name}, seconds",
            **{str(n): float(f"{np.median(s):.4g}") for n, s in by.items()},
        }
        for name, by in timed.items()
    ]
    return Evidence(measured, figures, (remark(timed),), tuple(rows))


def _columns(lengths: tuple[int, ...], values: list[int]) -> State:
    return {str(length): value for length, value in zip(lengths, values, strict=True)}


def in_parallel(layer: Layer, words: int, *, explain: bool = False) -> torch.Tensor:
    """The output for a whole text; `explain`: by the written equation, one step after the other."""
    x = torch.randn(1, words, WIDTH, requires_grad=True)
    call = layer.explain if explain else layer
    return call(x, *opening(layer, x))[0]


def gained(steps: list[int]) -> list[float]:
    """Operations that each further word adds, from each length to the next."""
    return [float(more) for more in np.diff(steps) / np.diff(COUNTED)]


Times = dict[int, list[float]]  # by length, up to one for each repetition


def timing(trial: Trial) -> dict[str, Times]:
    device = pick_device(trial.device)
    longest = MAX_WORDS[device.type, trial.quick]
    lengths = [2**power for power in range(5, 20) if 2**power <= longest]
    timed: dict[str, Times] = {}
    for system in TIMED:
        model = make(system, device)
        spent: Times = defaultdict(list)
        measure(train, model, lengths[0])  # a first time, which is not counted: libraries choose their kernels
        for repetition in range(1, REPETITIONS + 1):
            for length in lengths:
                if sum(spent[length]) < ENOUGH:
                    spent[length].append(measure(train, model, length))
            trial.step(f"{system}, repetition {repetition}")
        timed[system] = dict(spent)
    return timed


def make(system: str, device: torch.device) -> Model:
    torch.manual_seed(1)
    model: Model = load_class(system)(VOCABULARY, load_module(system).Settings(**TIMED[system]))
    model = model.to(device)
    install(model, training=True)
    return model


def exponents(timed: Times) -> list[float]:
    """p of time ~ T^p over the longest lengths, for each repetition that timed them all."""
    longer = sorted(timed)[-FITTED:]
    complete = min(len(timed[length]) for length in longer)
    return [slope([(length, timed[length][turn]) for length in longer]) for turn in range(complete)]


def remark(timed: dict[str, Times]) -> str:
    longest = max(timed["mingru"])
    seconds = {system: float(np.median(by[longest])) for system, by in timed.items()}
    said = ", ".join(f"{system} {value:.3g} s" for system, value in seconds.items())
    return f"One text of {longest} words, forward and backward: {said}."


LEVELS = "operations that a doubling of the text adds to the longest chain, mingru, minus what the first one added"
FLAT = f"operations that each further word adds, mingru, from {COUNTED[-2]} to {COUNTED[-1]} words"
WAITS = "operations that each further word adds to the longest chain, gru"
WRITING = "operations that each further word adds to the longest chain, mingru word by word, as in generation"
EXPONENTS = {system: f"exponent p of time ~ T^p, {system} training, a repetition each" for system in TIMED}
RATIO = "seconds of gru at the longest length as a multiple of mingru's"

CLAIM = Claim(
    name="no-waiting",
    number="C25",
    kinds=("identity", "timing"),
    quote="lack of parallelism across timesteps - I can only compute h_n after computing h_{n-1} … O(n) Sequential "
    "dependence … SLOW, NO PARALLELIZATION",
    where="000:32–34; 002:19; 003:225–231",
    statement=(
        "Waiting is not inherent in recurrence: if the gates do not look at the past (minGRU), the longest chain of "
        "dependent operations grows by a fixed small number with each doubling of the text, not with every word."
    ),
    conditions=(
        "The whole text is available, as in training. Wall-clock time is a second result and applies only to the "
        "device named with it: two layers of width 128, one text, fp32, forward and backward by the paths that "
        f"training takes, exponents over the {FITTED} longest lengths, for each of up to {REPETITIONS} repetitions."
    ),
    control_words="A GRU's chain grows with every word, and so does the minimal GRU's own when it generates.",
    breaks=(
        "A tree is shallow, not free: it does all the work of the chain. On one core, time grows with T for both, "
        "and the minimal GRU's gain is a constant factor. What the gates no longer see is lost (look-back, C26)."
    ),
    expected=(Expect(LEVELS, "within", 0.0, 0.0, over="draws"), Expect(FLAT, "at most", 0.05, over="draws")),
    control=(Expect(WAITS, "at least", 1.0, over="draws"), Expect(WRITING, "at least", 1.0, over="draws")),
    besides=(
        Expect(EXPONENTS["mingru"], "at most", 1.15),
        Expect(EXPONENTS["gru"], "at least", 0.85),
        Expect(EXPONENTS["gpt"], "at least", 1.15),
        Expect(RATIO, "at least", 1.0, over="draws"),
    ),
    experiment=experiment,
    quick_words="texts of up to 1024 words (4096 on a GPU) instead of 8192 (65,536)",
    seeds=1,
    quick_seeds=1,
    on_device=True,
    cost=60.0,
)
