"""C20, teacher-forcing: a decoder is trained on true prefixes and used on its own, where a mistake begets the next.

    forced    L = − Σ_t log P(y_t | true y_<t)            free    L = − Σ_t log P(y_t | its own y_<t)
    growth    of the errors on its own prefix, from the first third of the places to the last
    excess    growth of a decoder − growth of an oracle that follows the rule

If a mistake affects later symbols, errors must grow for every decoder. Only the excess is due to teacher forcing; hence
the oracle, and a twin that is trained without it. Both see the same strings again and again: of fresh strings every
prefix would occur, and a decoder on its own would never leave what it was trained on. The input is letters, each
smudged with probability q, and the output is the same letters as capitals or small letters:

    chain    a letter a … h changes from small to capital letters or back, and so it stays until the next
    alone    a letter a … h is a capital, any other small: nothing depends on what was written before

A smudged letter can only be guessed, one of sixteen; in the chain its form is then a toss for all that follows. The
oracle reads the legible letters, guesses the rest and continues from its guess: no decoder can do better on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial
from regard.claims.each_seed import each_seed
from regard.report.figures import Line, Lines
from regard.systems.bahdanau import Bahdanau, Settings

LETTERS, TURNING, PLACES = 16, 8, 12  # letters, those that turn, and letters of a string
SMUDGED, END, OPENING = LETTERS, LETTERS + 1, 2 * LETTERS  # in the source: illegible, and <eos>; in the target: <bos>
Q, WIDTH, TEXTS, TESTED, RATE = 0.15, 32, 64, 2000, 8e-3
KNOWN = 1000  # strings to train on
STEPS, QUICK_STEPS = 600, 150


class Strings(NamedTuple):
    source: Tensor  # [N, PLACES + 1] letters, some smudged, and the end
    target: Tensor  # [N, PLACES] letters 0 … 15, capitals 16 … 31


class DecoderErrors(NamedTuple):
    errors: np.ndarray  # [PLACES] on its own prefix
    oracle: np.ndarray  # [PLACES] the unavoidable errors in the same strings

    @property
    def excess(self) -> float:
        return growth(self.errors) - growth(self.oracle)

    @property
    def early(self) -> float:
        """Errors of the first third beyond the oracle's: has it learned the task at all?"""
        third = PLACES // 3
        return float((self.errors - self.oracle)[:third].mean())


def growth(errors: np.ndarray) -> float:
    third = len(errors) // 3
    return float(errors[-third:].mean() - errors[:third].mean())


def experiment(trial: Trial) -> Evidence:
    learned: dict[str, list[DecoderErrors]] = {name: [] for name in (*DECODERS, "oracle", "lost")}
    for each in each_seed(trial, one_seed):
        for name, errors in each.items():
            learned[name].append(errors)
    forced, free, alone = (learned[name] for name in DECODERS)
    measured = {
        EXCESS: [one.excess for one in forced],
        OVER_FREE: [one.excess - other.excess for one, other in zip(forced, free)],
        FORCED_LEARNT: [one.early for one in forced],
        FREE_LEARNT: [one.early for one in free],
        ORACLE: [one.excess for one in learned["oracle"]],
        LOST: [one.excess for one in learned["lost"]],
        ALONE: [one.excess for one in alone],
        GROWTH: [growth(one.errors) for one in forced],
        FREE: [one.excess for one in free],
    }
    table = tuple(
        {"decoder": name, "errors, first third": float(np.mean([one.errors[: PLACES // 3] for one in given])),
         "errors, last third": float(np.mean([one.errors[-(PLACES // 3) :] for one in given])),
         "excess of growth": float(np.mean([one.excess for one in given]))}
        for name, given in learned.items()
    )  # fmt: skip
    return Evidence(measured, (figure(learned),), table=table)


def one_seed(trial: Trial, seed: int) -> dict[str, DecoderErrors]:
    q, found = trial.knob("q"), {}
    random = torch.Generator().manual_seed(1000 + seed)  # for the test: not the strings of the training
    for name, (task, taught) in DECODERS.items():
        model = learn(task, taught, seed, QUICK_STEPS if trial.quick else STEPS, q)
        test = draw(TESTED, task, q, random)
        found[name] = DecoderErrors(error_by_place(write(model, test.source), test), unavoidable(test, task))
        trial.step(f"{name}, seed {seed}")
    test = draw(TESTED, "chain", q, random)
    for name in ("oracle", "lost"):
        errors = error_by_place(follow(test, random, lost=name == "lost"), test)
        found[name] = DecoderErrors(errors, unavoidable(test, "chain"))
    return found


# -- the task --------------------------------------------------------------------------------------------------------


def draw(count: int, task: str, q: float, random: torch.Generator) -> Strings:
    letters = torch.randint(LETTERS, (count, PLACES), generator=random)
    turns = (letters < TURNING).long()
    capital = turns.cumsum(1) % 2 if task == "chain" else turns
    smudged = torch.rand(count, PLACES, generator=random) < q
    source = torch.cat([letters.masked_fill(smudged, SMUDGED), torch.full((count, 1), END)], dim=1)
    return Strings(source, letters + LETTERS * capital)


def unavoidable(strings: Strings, task: str) -> np.ndarray:
    """The oracle's expected share of errors by place: a smudged letter is one of sixteen, and in the chain the form of
    all that follows is right half of the time."""
    smudged = strings.source[:, :-1] == SMUDGED
    right = torch.where(smudged, 1 / LETTERS, 1.0)
    if task == "chain":
        before = smudged.long().cumsum(1) - smudged.long() > 0
        right = right * torch.where(before, 0.5, 1.0)
    return (1 - right.mean(0)).numpy()


def follow(strings: Strings, random: torch.Generator, *, lost: bool = False) -> Tensor:
    """The oracle's output in the chain: it guesses illegible symbols and continues from its guess. A `lost` one writes
    nothing right after its first mistake, which is the worst effect of its own prefix."""
    read = strings.source[:, :-1]
    guesses = torch.randint(LETTERS, read.shape, generator=random)
    letters = torch.where(read == SMUDGED, guesses, read)
    written = letters + LETTERS * ((letters < TURNING).long().cumsum(1) % 2)
    if lost:
        wrong = (written != strings.target).long()
        written = written.masked_fill(wrong.cumsum(1) - wrong > 0, OPENING)
    return written


def error_by_place(written: Tensor, strings: Strings) -> np.ndarray:
    return (written != strings.target).double().mean(0).numpy()


# -- the decoders ----------------------------------------------------------------------------------------------------


def learn(task: str, forced: bool, seed: int, steps: int, q: float) -> Bahdanau:
    """Both ways of training begin with the same weights and see the same strings."""
    torch.manual_seed(seed)
    settings = Settings(cell="gru", layers=1, width=WIDTH, embedding=WIDTH, dropout=0.0)
    model = Bahdanau(OPENING + 1, settings, source_vocabulary=END + 1)
    random = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.2)
    known = draw(KNOWN, task, q, random)
    for _ in range(steps):
        chosen = torch.randint(KNOWN, (TEXTS,), generator=random)
        strings = Strings(known.source[chosen], known.target[chosen])
        logits = given_truth(model, strings) if forced else given_own(model, strings.source)
        loss = F.cross_entropy(logits.flatten(0, 1), strings.target.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model.eval()


def given_truth(model: Bahdanau, strings: Strings) -> Tensor:
    """Teacher forcing: logits [N, PLACES, V], each after the true letters before it."""
    opening = torch.full((len(strings.target), 1), OPENING)
    return model(torch.cat([opening, strings.target[:, :-1]], dim=1), model.begin(strings.source))[0]


def given_own(model: Bahdanau, source: Tensor) -> Tensor:
    """Logits [N, PLACES, V], each after the model's own most probable symbols at the places before."""
    state, last, logits = model.begin(source), torch.full((len(source), 1), OPENING), []
    for _ in range(PLACES):
        logit, state = model(last, state)
        logits.append(logit)
        last = logit.argmax(-1)
    return torch.cat(logits, dim=1)


@torch.no_grad()
def write(model: Bahdanau, source: Tensor) -> Tensor:
    return given_own(model, source).argmax(-1)


DECODERS = {  # the task, and whether it is trained on true prefixes
    "trained with teacher forcing": ("chain", True),
    "trained on its own prefixes": ("chain", False),
    "trained with teacher forcing, alone": ("alone", True),
}


def figure(learned: dict[str, list[DecoderErrors]]) -> Lines:
    def line(name: str, errors: Sequence[np.ndarray]) -> Line:
        return Line(name, list(enumerate(np.mean(errors, axis=0).tolist(), 1)))

    chained = [name for name in DECODERS if not name.endswith("alone")]
    lines = [line(name, [one.errors for one in learned[name]]) for name in chained]
    lines.append(line("the oracle", [one.oracle for one in learned[chained[0]]]))
    return Lines("Errors by place, in the chain", "place in the output", "share wrong", lines, zero_y=True)


EXCESS = "excess of the growth of errors over the oracle's, trained with teacher forcing"
OVER_FREE = "excess of the growth of errors, trained with teacher forcing minus trained on its own prefixes"
FORCED_LEARNT = "errors at the first places beyond the oracle's, trained with teacher forcing"
FREE_LEARNT = "errors at the first places beyond the oracle's, trained on its own prefixes"
ORACLE = "excess of the growth of errors over the expected, an oracle that guesses"
LOST = "excess of the growth of errors over the oracle's, an oracle that is lost after its first mistake"
ALONE = "excess of the growth of errors over the oracle's, trained with teacher forcing, alone"
GROWTH = "growth of errors from the first places to the last, trained with teacher forcing"
FREE = "excess of the growth of errors over the oracle's, trained on its own prefixes"
MIN_EFFECT = 0.05  # one letter in twenty

CLAIM = Claim(
    name="teacher-forcing",
    number="C20",
    kinds=("measured",),
    quote="TRAINING: TEACHER FORCING … TEST: PREDICTION … Predicted token from the previous time step is fed into the "
    "decoder as an input.",
    where="004:42–60",
    statement=(
        "If each word depends on the words written before it, a decoder trained on true prefixes makes more and "
        "more errors when it reads its own output: more than the task makes unavoidable, and more than a decoder "
        "trained on its own prefixes."
    ),
    conditions=(
        f"bahdanau of width {WIDTH}, {STEPS} steps of {TEXTS} strings, drawn from the same {KNOWN} strings of "
        f"{PLACES} letters, of which a share of q = {Q} is illegible; greedy decoding. A place is right if it has "
        f"the true letter in its true form; {TESTED} fresh test strings for each seed. The twin starts with the same "
        "weights, sees the same strings, and is given its own most probable letters. This claim is ours, based on "
        "the notes' two ways of running a decoder; the notes draw no conclusion."
    ),
    control_words=(
        "An oracle that follows the rule shows no excess, and one that is lost after its first mistake does. Both "
        "decoders have learned the first places. If nothing depends on what was written, the errors do not grow."
    ),
    breaks=(
        "Much of the growth belongs to the task: an oracle's errors grow as well. With fresh strings at every step "
        "there is no excess, because every prefix occurs in training and a decoder never leaves what it knows. Free "
        "running does not help if a decoder cannot know that it was wrong."
    ),
    expected=(Expect(EXCESS, "at least", MIN_EFFECT), Expect(OVER_FREE, "at least", MIN_EFFECT)),
    control=(
        Expect(ORACLE, "at most", MIN_EFFECT),
        Expect(LOST, "at least", MIN_EFFECT),
        Expect(FORCED_LEARNT, "at most", 2 * MIN_EFFECT),
        Expect(FREE_LEARNT, "at most", 2 * MIN_EFFECT),
        Expect(ALONE, "at most", MIN_EFFECT),
    ),
    besides=(Expect(GROWTH, "at least", 0.1), Expect(FREE, "at most", MIN_EFFECT)),
    knobs={"q": Q},
    limits={"q": (0.0, 1.0)},
    experiment=experiment,
    seeds=10,
    first_seed=SECOND_LOOK,
    quick_words=f"3 seeds, {QUICK_STEPS} steps instead of {STEPS}",
    cost=150.0,
)
