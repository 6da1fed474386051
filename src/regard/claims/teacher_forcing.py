"""C20, teacher-forcing: a decoder is trained on true prefixes and used on its own, where a mistake begets the next.

    G_t = P(y_t right | true y_<t),     O_t = P(y_t right | its own y_<t),     gap_t = G_t − O_t

If a mistake did no harm to what follows, O_t would be G_t: the null. If none ever healed, O_t would be G_1 · … · G_t.
Letters are read, of which each is smudged with probability q, and written again as capitals or small letters:

    chain    a letter a … h changes from small to capital letters or back, and so it stays until the next
    alone    a letter a … h is a capital, any other small: nothing depends on what was written before

A smudged letter can only be guessed. In the chain its true form, where it is given, says how to go on; its own guess
is wrong half of the time, and then everything after it is. So O_t = G (1 + (1 − q)^(t−1)) / 2 for a perfect decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from regard.claims import corpora
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.models import trained
from regard.decoding.beam import GREEDY_BEAM
from regard.layers.state import State
from regard.report.figures import Line, Lines
from regard.runs.translation_run import TranslationRun

LETTERS = "abcdefghijklmnop"
SHORTEST, LONGEST, PLACES = 6, 12, 9  # of the strings; and how many places of the test strings are looked at
SMUDGED, Q = "?", 0.15  # how an illegible letter is read, and how many there are
STEPS, RATE = 400, 8e-3


class ByPlace(NamedTuple):
    given_truth: np.ndarray  # [PLACES] share that is right after the true prefix
    given_own: np.ndarray  # … after its own

    @property
    def gap(self) -> np.ndarray:
        return self.given_truth - self.given_own

    @property
    def growth(self) -> float:
        """Of the gap, from the first third of the places to the last."""
        third = len(self.gap) // 3
        return float(self.gap[-third:].mean() - self.gap[:third].mean())


def experiment(trial: Trial) -> Evidence:
    found: dict[str, list[ByPlace]] = {name: [] for name in TASKS}
    for seed in trial.seeds:
        for name in TASKS:
            pairs = task_pairs(name, trial.knob("q"))
            run = learn(trial, name, pairs, seed)
            found[name].append(by_place(run, [pair for pair in pairs["test"] if len(pair[1].split()) >= PLACES]))
            trial.step(f"{name}, seed {seed}")
    chained, free = found.values()
    third = PLACES // 3
    measured = {
        GROWTH: [one.growth for one in chained],
        LAST: [float(one.gap[-third:].mean()) for one in chained],
        FREE: [one.growth for one in free],
        MISTAKES: [1 - float(one.given_truth.mean()) for one in free],
    }
    return Evidence(measured, tuple(figure(name, given, trial.knob("q")) for name, given in found.items()))


def learn(trial: Trial, name: str, pairs: dict[str, list[tuple[str, str]]], seed: int) -> TranslationRun:
    folder = corpora.keep(name.replace(" ", "-"), corpora.lines(pairs), "tsv", trial.store)
    run = trained(
        "bahdanau",
        folder,
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "joint": False},
            "model": {"cell": "gru", "layers": 1, "width": 32, "embedding": 32, "dropout": 0.0},
            "training": {
                "steps": STEPS, "learning_rate": RATE, "schedule": "cosine", "warmup": 100, "batch_tokens": 768,
                "label_smoothing": 0.0, "evaluate_every": STEPS, "checkpoint_every": STEPS, "patience": 0, "keep": 0,
                "threads": 1, "device": trial.device,
            },
        },
    )  # fmt: skip
    assert isinstance(run, TranslationRun)
    return run


def by_place(run: TranslationRun, pairs: Sequence[tuple[str, str]], places: int = PLACES) -> ByPlace:
    truths = np.array([target.split()[:places] for _, target in pairs])
    written = run.translations([source for source, _ in pairs], beam=GREEDY_BEAM)
    own = [[*best.text.split(), *[""] * places][:places] for best, *_ in written]
    forced = [follow(run, source, target)[:places] for source, target in pairs]
    return ByPlace((np.array(forced) == truths).mean(0), (np.array(own) == truths).mean(0))


@torch.no_grad()
def follow(run: TranslationRun, source: str, target: str) -> list[str]:
    """What the model would have written at each place, had it written the truth before."""
    ids = run.tokenizer.encode(target)
    state: State = run.begin(source)
    tokens = torch.tensor([[run.tokenizer.eos, *ids[:-1]]], device=run.model.device)
    logits, _ = run.model(tokens, state)
    logits[..., run.forbidden] = -torch.inf
    return [run.tokenizer.token(int(best)) for best in logits[0].argmax(-1)]


@cache
def task_pairs(name: str, q: float) -> dict[str, list[tuple[str, str]]]:
    drawn = corpora.strings(
        TASKS[name], longest=LONGEST, count=6000, shortest=SHORTEST, alphabet=LETTERS, each=100
    )  # fmt: skip
    return smudge(drawn, q)


def smudge(pairs: dict[str, list[tuple[str, str]]], share: float) -> dict[str, list[tuple[str, str]]]:
    """The same with that share of the sources' letters made illegible; the targets know them all."""
    random = Random(f"smudged {share}")

    def read(source: str) -> str:
        return " ".join(SMUDGED if random.random() < share else letter for letter in source.split())

    return {split: [(read(source), target) for source, target in given] for split, given in pairs.items()}


def turns(letter: str) -> bool:
    return letter <= "h"


def chain(string: Sequence[str]) -> list[str]:
    written, capital = [], False
    for letter in string:
        capital ^= turns(letter)
        written.append(letter.upper() if capital else letter)
    return written


def alone(string: Sequence[str]) -> list[str]:
    return [letter.upper() if turns(letter) else letter for letter in string]


def expected_of_a_perfect_decoder(q: float, places: int = PLACES) -> ByPlace:
    """In the chain: a smudged letter is guessed, one of sixteen; a wrong form passes on."""
    truth = np.full(places, 1 - q + q / len(LETTERS))
    return ByPlace(truth, truth * (1 + (1 - q) ** np.arange(places)) / 2)


TASKS: dict[str, Callable[[Sequence[str]], list[str]]] = {"chain": chain, "alone": alone}


def figure(name: str, found: Sequence[ByPlace], q: float) -> Lines:
    truth = np.mean([one.given_truth for one in found], axis=0)
    own = np.mean([one.given_own for one in found], axis=0)
    never = np.mean([one.given_truth.cumprod() for one in found], axis=0)
    lines = [
        Line("after the true prefix: what independent mistakes would give", list(enumerate(truth.tolist(), 1))),
        Line("after its own prefix", list(enumerate(own.tolist(), 1))),
        Line("if no mistake ever healed", list(enumerate(never.tolist(), 1))),
    ]
    if name == "chain":
        perfect = expected_of_a_perfect_decoder(q).given_own
        lines.append(Line("after its own prefix, a perfect decoder", list(enumerate(perfect.tolist(), 1))))
    return Lines(f"Right by place: {name}", "place in the output", "share right", lines, zero_y=True)


GROWTH = "growth of the gap from the first places to the last, chain"
LAST = "gap at the last places, chain"
FREE = "growth of the gap from the first places to the last, alone"
MISTAKES = "share of mistakes after the true prefix, alone"

CLAIM = Claim(
    name="teacher-forcing",
    number="C20",
    kinds=("measured",),
    quote="TRAINING: TEACHER FORCING … TEST: PREDICTION … Predicted token from the previous time step is fed into the "
    "decoder as an input.",
    where="004:42–60",
    statement="Where what is to be written depends on what was written, a decoder trained on true prefixes does worse "
    "on its own, and the more so the further it has come.",
    conditions="bahdanau of width 32, 400 steps on 6000 strings of 6 to 12 letters, of which a share q = 0.15 is "
    "illegible, so that some mistakes cannot be avoided; greedy; a place counts as right when it has the true letter "
    "in its true form. Ours, from the notes' two ways of running a decoder: they draw no conclusion.",
    control_words="Where the target depends on the source alone there are as many mistakes, and early ones do no harm "
    "later.",
    breaks="A model that makes no mistakes has no gap, nor has one whose mistakes do not matter later. A small gap may "
    "stay even there, since a decoder also finds its place in the source by what it has written.",
    expected=(Expect(GROWTH, "at least", 0.1), Expect(LAST, "at least", 0.1)),
    control=(Expect(FREE, "at most", 0.1), Expect(MISTAKES, "at least", 0.05)),
    knobs={"q": Q},
    experiment=experiment,
    seeds=10,
    quick_words="3 seeds",
    cost=75.0,
)
