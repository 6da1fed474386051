"""C4, bottleneck: one vector of fixed size cannot hold a sentence of any length; attention need not put it into one.

    s_0 = h_S,  whatever S                against                c_t = Σ_s α(s_t, h_s) h_s  for every t

The task is to copy texts. The letters of a string are independent, so that n of them hold n · log₂ 16 = 4n bits:
nothing is repeated, joined by "and", or predictable from the rest. Much of the phrasebook's sentences is predictable.
To separate width from training, every model is trained until it no longer improves, and the length at which half is
right, the knee, is given for each width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.base.device import pick_device
from regard.claims import corpora
from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial
from regard.claims.each_seed import each_seed
from regard.report.figures import Line, Lines
from regard.runs.speed import install
from regard.systems.catalogue import load_class, load_module
from regard.systems.translator import Translator

NARROW, TIMES = 16, (1, 2, 4)  # the fixed vector's width, and how much wider the others are
SHORTEST, LETTERS, EMBEDDING = 3, 16, 32
MAX_LETTERS, MAX_WORDS, QUICK_LENGTH = 24, 12, 8  # of a string, of a sentence, and of either in the quick form
TEXTS, TESTED, RATE = 64, 100, 5e-3  # of a batch; of each length in the test; and the first learning rate
BLOCK, GAIN, HALVINGS = 200, 0.01, 2  # steps between two looks; what counts as better; how often the rate is halved
MOST, QUICK_MOST = 8_000, 300  # steps, if it does not stop before
SENTENCES = 12_000
ByLength = dict[int, float]


class CopyTask(NamedTuple):
    vocabulary: int  # symbols; the end is one more
    draw: Callable[[torch.Generator], Tensor]  # texts of one length [N, L] to train on
    valid: Sequence[Tensor]  # texts to decide by when to stop
    test: Mapping[int, Tensor]  # by length


class Trained(NamedTuple):
    model: Translator
    steps: int
    converged: bool


class Copier(NamedTuple):
    curve: ByLength  # share of symbols right
    steps: int
    ended: bool  # it no longer improved, and copies half of the shortest texts' symbols or more


def experiment(trial: Trial) -> Evidence:
    width = int(trial.knob("width"))
    models, found = models_of(width), each_seed(trial, one_seed, tuple(reversed(PARTS)))  # the longest first
    taken: dict[tuple[str, str], list[Copier]] = {(task, name): [] for task in PARTS for name in models}
    for each, _ in found:
        for key, copier in each.items():
            taken[key].append(copier)
    curves = {key: [one.curve for one in each] for key, each in taken.items()}
    narrow, *_, wide = (name for name in models if name != "attention")
    measured: dict[str, Sequence[float]] = {
        CONVERGED: [float(one.ended) for each in taken.values() for one in each],
        UNTRAINED: [before for _, before in found],
    }
    for task in PARTS:
        longest = max(curves[task, wide][0])
        measured |= {
            FALL[task]: [fall(curve) for curve in curves[task, narrow]],
            LEVEL[task]: [fall(curve) for curve in curves[task, "attention"]],
            KNEE[task]: [knee(one) - knee(other) for one, other in zip(curves[task, wide], curves[task, narrow])],
            WIDE[task]: [fall(curve) for curve in curves[task, wide]],
            SEEN[task]: [float(knee(curve) < longest) for curve in curves[task, wide]],
        }
    table = tuple(
        {"task": task, "model": name, "steps": round(mean(one.steps for one in taken[task, name])),
         "fall": mean(map(fall, each)), "knee": mean(map(knee, each))}
        for (task, name), each in curves.items()
    )  # fmt: skip
    return Evidence(measured, tuple(figure(task, curves) for task in PARTS), table=table)


def models_of(width: int) -> dict[str, tuple[str, int]]:
    vectors = {f"one vector of width {width * times}": ("seq2seq", width * times) for times in TIMES}
    return {**vectors, "attention": ("bahdanau", width)}


def one_seed(trial: Trial, seed: int, task: str) -> tuple[dict[tuple[str, str], Copier], float]:
    """Every model on a task, and the fall of the narrowest before it is trained."""
    width, device, found, before = int(trial.knob("width")), pick_device(trial.device), {}, 0.0
    make_task, longest = (strings, MAX_LETTERS) if task == "strings" else (sentences, MAX_WORDS)
    given = make_task(QUICK_LENGTH if trial.quick else longest)
    for name, (system, size) in models_of(width).items():
        torch.manual_seed(seed)
        model = make(system, given.vocabulary, size).to(device)
        if system == "seq2seq" and size == width:
            before = fall(right_by_length(model, given))
        fitted = fit(model, given, seed, QUICK_MOST if trial.quick else MOST)
        curve = right_by_length(model, given)
        found[task, name] = Copier(curve, fitted.steps, fitted.converged and curve[min(curve)] >= 0.5)
        trial.step(f"{task}, {name}, seed {seed}")
    return found, before


# -- the tasks -------------------------------------------------------------------------------------------------------


def strings(longest: int) -> CopyTask:
    """Fresh strings of independent letters; no string is seen twice, but by chance."""

    def some(count: int, length: int, random: torch.Generator) -> Tensor:
        return torch.randint(LETTERS, (count, length), generator=random)

    def draw(random: torch.Generator) -> Tensor:
        return some(TEXTS, int(torch.randint(SHORTEST, longest + 1, (), generator=random)), random)

    lengths, apart = range(SHORTEST, longest + 1), torch.Generator().manual_seed(0)
    valid = [some(TEXTS, length, apart) for length in lengths]
    return CopyTask(LETTERS, draw, valid, {length: some(TESTED, length, apart) for length in lengths})


@cache
def sentences(longest: int) -> CopyTask:
    """All of the phrasebook's sentences by length; a batch has one length."""
    split = corpora.sentences(SENTENCES, longest)
    words = sorted({word for lines in split.values() for line in lines for word in line.split()})
    number = {word: place for place, word in enumerate(words)}

    def by_length(lines: Sequence[str], most: int) -> dict[int, Tensor]:
        texts: dict[int, list[list[int]]] = {length: [] for length in range(SHORTEST, longest + 1)}
        for line in lines:
            ids = [number[word] for word in line.split()]
            if len(ids) in texts and len(texts[len(ids)]) < most:
                texts[len(ids)].append(ids)
        return {length: torch.tensor(ids) for length, ids in texts.items() if ids}

    train = by_length(split["train"], SENTENCES)
    lengths = list(train)

    def draw(random: torch.Generator) -> Tensor:
        given = train[lengths[int(torch.randint(len(lengths), (), generator=random))]]
        return given[torch.randint(len(given), (TEXTS,), generator=random)]

    return CopyTask(len(words), draw, list(by_length(split["valid"], TEXTS).values()), by_length(split["test"], TESTED))


# -- the models ------------------------------------------------------------------------------------------------------


def make(system: str, vocabulary: int, width: int) -> Translator:
    own: dict[str, object] = {"feed": False} if system == "bahdanau" else {}
    settings = load_module(system).Settings(cell="gru", layers=1, width=width, embedding=EMBEDDING, dropout=0.0, **own)
    model: Translator = load_class(system)(vocabulary + 1, settings)
    install(model, training=True)
    return model


def fit(model: Translator, task: CopyTask, seed: int, most: int) -> Trained:
    """Until it no longer improves: whenever two looks in a row find the held-out loss less than 1 % better than the
    best before, the learning rate is halved; the third time it ends."""
    random = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    best, stuck, halved = float("inf"), 0, 0
    for step in range(1, most + 1):
        loss = copying_loss(model.train(), task.draw(random))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % BLOCK == 0:
            held = held_out_loss(model, task)
            stuck = 0 if held < (1 - GAIN) * best else stuck + 1
            best = min(best, held)
            if stuck == 2:
                if halved == HALVINGS:
                    return Trained(model.eval(), step, converged=True)
                stuck, halved = 0, halved + 1
                optimiser.param_groups[0]["lr"] /= 2
    return Trained(model.eval(), most, converged=False)


def copying_loss(model: Translator, texts: Tensor) -> Tensor:
    texts = texts.to(model.device)
    end = torch.full_like(texts[:, :1], model.vocabulary - 1)
    state = model.begin(torch.cat([texts, end], dim=1))
    logits, _ = model(torch.cat([end, texts[:, :-1]], dim=1), state)
    return F.cross_entropy(logits.flatten(0, 1), texts.flatten())


@torch.no_grad()
def held_out_loss(model: Translator, task: CopyTask) -> float:
    model.eval()
    return mean(float(copying_loss(model, texts)) for texts in task.valid)


@torch.no_grad()
def right_by_length(model: Translator, task: CopyTask) -> ByLength:
    """The share of symbols that are right at their place, for each length of the text, greedy."""
    shares = {}
    for length, texts in task.test.items():
        texts = texts.to(model.device)
        end = torch.full_like(texts[:, :1], model.vocabulary - 1)
        state, last, written = model.eval().begin(torch.cat([texts, end], dim=1)), end, []
        for _ in range(length):
            logits, state = model(last, state)
            last = logits[..., :-1].argmax(-1)  # the length is given, so that the model does not choose the end
            written.append(last)
        shares[length] = float((torch.cat(written, dim=1) == texts).double().mean())
    return shares


# -- the curves ------------------------------------------------------------------------------------------------------


def fall(curve: ByLength) -> float:
    """From the shortest quarter of the lengths to the longest."""
    shares, quarter = list(curve.values()), max(1, len(curve) // 4)
    return mean(shares[:quarter]) - mean(shares[-quarter:])


def knee(curve: ByLength) -> float:
    """The length at which half is right, linearly interpolated; the longest length if it never falls that far."""
    points = list(curve.items())
    if points[0][1] < 0.5:
        return float(points[0][0])
    for (before, high), (after, low) in pairwise(points):
        if low < 0.5:
            return before + (after - before) * (high - 0.5) / (high - low)
    return float(points[-1][0])


def figure(task: str, curves: Mapping[tuple[str, str], Sequence[ByLength]]) -> Lines:
    lines = []
    for (given, name), seeds in curves.items():
        if given == task:
            lines += [Line(name, list(curve.items()), faint=True) for curve in seeds]
            lines.append(Line(name, [(length, mean(curve[length] for curve in seeds)) for length in seeds[0]]))
    return Lines(f"Copying {task}", "symbols of the text", "share of correct symbols", lines, zero_y=True)


PARTS = ("strings", "sentences")
FALL = {part: f"fall of the share of correct symbols, short to long {part}, narrowest vector" for part in PARTS}
LEVEL = {part: f"fall of the share of correct symbols, short to long {part}, attention of that width" for part in PARTS}
KNEE = {part: f"shift of the knee with four times the width, {part}" for part in PARTS}
WIDE = {part: f"fall of the share of correct symbols, short to long {part}, four times as wide" for part in PARTS}
SEEN = {part: f"share of vectors of four times the width whose knee is within the lengths, {part}" for part in PARTS}
UNTRAINED = "fall of the share of correct symbols, short to long, narrowest vector before training"
CONVERGED = "share of training runs that learned to copy the shortest texts and ended because they no longer improved"

CLAIM = Claim(
    name="bottleneck",
    number="C4",
    kinds=("measured",),
    quote="you can't represent the meaning of a sentence in a BLEEPING vector! … INFORMATION CAN BE LOST IN THIS "
    "ENCODING OPERATION",
    where="000:30, 003:223",
    statement=(
        "Within the lengths seen in training, and trained until nothing improves, quality falls with length if one "
        "vector of fixed size carries the source, but not if attention looks back at it, both on strings and on "
        "sentences."
    ),
    conditions=(
        f"Texts to copy: strings of {SHORTEST} to {MAX_LETTERS} independent letters out of {LETTERS}, fresh ones at "
        f"every step, or {SENTENCES} phrasebook sentences of {SHORTEST} to {MAX_WORDS} words. GRU with one vector of "
        f"width {NARROW}, {2 * NARROW} and {4 * NARROW} (seq2seq), or attention of width {NARROW} (bahdanau, without "
        f"input feeding). The learning rate is halved whenever two validations, {BLOCK} steps apart, improve the "
        f"held-out loss by less than 1 %; the third time, training ends, at the latest after {MOST} steps. Greedy "
        "decoding. Quality is the share of symbols that are right at their place, the fall is that from the "
        "shortest to the longest quarter of lengths, and the knee is the length at which half are right."
    ),
    control_words=(
        "A vector of four times the width moves the knee of strings: the limit is its size, not the reader's memory "
        "of what it read first. Nearly all networks copy the shortest texts, and their training ended because it no "
        "longer improved; before training, there is no fall."
    ),
    breaks=(
        "The length up to which one vector suffices grows with its width and with training: if every sentence is "
        "shorter, nothing is lost. What matters is how many bits a vector with that many trained components can "
        "keep apart, not sentences as such."
    ),
    expected=tuple(
        expect
        for part in PARTS
        for expect in (Expect(FALL[part], "at least", 0.3, part=part), Expect(LEVEL[part], "at most", 0.1, part=part))
    ),
    control=(
        Expect(KNEE["strings"], "at least", 1.0, unit="letters", part="strings"),
        Expect(CONVERGED, "at least", 0.7, over="share"),
        Expect(UNTRAINED, "at most", 0.1),
    ),
    besides=(
        Expect(KNEE["sentences"], "at least", 1.0, unit="words"),
        *(Expect(WIDE[part], "at least", 0.3) for part in PARTS),
        *(Expect(SEEN[part], "at least", 0.5, over="share") for part in PARTS),
    ),
    experiment=experiment,
    seeds=5,
    first_seed=SECOND_LOOK,
    on_device=True,
    knobs={"width": NARROW},
    limits={"width": (1, 1024)},
    quick_seeds=3,
    quick_words=f"3 seeds, texts of at most {QUICK_LENGTH} symbols, at most {QUICK_MOST} steps, far from convergence",
    cost=3000.0,
)
