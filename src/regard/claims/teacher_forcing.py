"""C20, teacher-forcing: a decoder is trained on true prefixes and used on its own, where a mistake begets the next.

    G_t = P(y_t right | true y_<t),     O_t = P(y_t right | its own y_<t),     gap_t = G_t − O_t

If a mistake did no harm to what follows, O_t would be G_t: the null. If none ever healed, O_t would be G_1 · … · G_t.
Digits 0 to 3 are read; what is to be written either depends on what was written before or on the source alone:

    running sum      y_t = y_{t-1} + x_t  mod 4             neighbours      y_t = x_{t-1} + x_t  mod 4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from regard.claims import corpora
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.models import trained
from regard.decoding.beam import GREEDY_BEAM
from regard.layers.state import State
from regard.report.figures import Line, Lines
from regard.translation import TranslationRun

DIGITS = "0123"
SHORTEST, LONGEST, PLACES = 6, 12, 9  # of the strings; and how many places of the test strings are looked at
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
        for name, rule in TASKS.items():
            pairs = corpora.strings(
                rule, longest=LONGEST, count=6000, shortest=SHORTEST, alphabet=DIGITS, each=60
            )  # fmt: skip
            run = learn(trial, name, pairs, seed)
            found[name].append(by_place(run, [pair for pair in pairs["test"] if len(pair[1].split()) >= PLACES]))
            trial.step(f"{name}, seed {seed}")
    chained, free = found.values()
    third = PLACES // 3
    measured = {
        GROWTH: [one.growth for one in chained],
        LAST: [float(one.gap[-third:].mean()) for one in chained],
        FREE: [one.growth for one in free],
        MISTAKES: [1 - float(one.given_truth[third:].mean()) for one in free],
    }
    return Evidence(measured, tuple(figure(name, given) for name, given in found.items()))


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
    written = run.translations([source for source, _ in pairs], how=GREEDY_BEAM)
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


def running_sum(string: Sequence[str]) -> list[str]:
    return [str(total % len(DIGITS)) for total in np.cumsum([int(digit) for digit in string]).tolist()]


def neighbours(string: Sequence[str]) -> list[str]:
    return [str((int(one) + int(two)) % len(DIGITS)) for one, two in zip(["0", *string[:-1]], string)]


TASKS: dict[str, Callable[[Sequence[str]], list[str]]] = {"running sum": running_sum, "neighbours": neighbours}


def figure(name: str, found: Sequence[ByPlace]) -> Lines:
    truth = np.mean([one.given_truth for one in found], axis=0)
    own = np.mean([one.given_own for one in found], axis=0)
    never = np.mean([one.given_truth.cumprod() for one in found], axis=0)
    lines = [
        Line("after the true prefix: what independent mistakes would give", list(enumerate(truth.tolist(), 1))),
        Line("after its own prefix", list(enumerate(own.tolist(), 1))),
        Line("if no mistake ever healed", list(enumerate(never.tolist(), 1)), faint=False),
    ]
    return Lines(f"Right by place: {name}", "place in the output", "share right", lines, zero_y=True)


GROWTH = "growth of the gap from the first places to the last, running sum"
LAST = "gap at the last places, running sum"
FREE = "growth of the gap from the first places to the last, neighbours"
MISTAKES = "share of mistakes after the true prefix, neighbours"

CLAIM = Claim(
    name="teacher-forcing",
    number="C20",
    kinds=("measured",),
    quote="TRAINING: TEACHER FORCING … TEST: PREDICTION … Predicted token from the previous time step is fed into the "
    "decoder as an input.",
    where="004:36–60",
    statement="Where what is to be written depends on what was written, a decoder trained on true prefixes does worse on "
    "its own, and the more so the further it has come.",
    conditions="bahdanau of width 32, 400 steps on 6000 strings of 6 to 12 digits, so that it still errs; greedy; a place "
    "counts as right when it has the true digit. Ours, from the notes' two ways of running a decoder: they draw no "
    "conclusion.",
    control_words="Where the target depends on the source alone, mistakes made early do hardly any harm later: the gap "
    "grows by less than a tenth.",
    breaks="A model that makes no mistakes has no gap; neither has one whose mistakes do not matter later. A small gap "
    "stays even there, since the decoder also finds its place in the source by what it has written.",
    expected=(Expect(GROWTH, "at least", 0.1), Expect(LAST, "at least", 0.1)),
    control=(Expect(FREE, "at most", 0.1),),
    besides=(Expect(MISTAKES, "at least", 0.0),),
    experiment=experiment,
    quick_words="4 seeds instead of 8",
    seeds=8,
    quick_seeds=4,
    cost=90.0,
    code=("claims/corpora.py",),
)
