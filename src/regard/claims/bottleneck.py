"""C4, bottleneck: one vector of fixed size cannot hold a sentence of any length; attention need not put it into one.

    s_0 = h_S,  whatever S                against                c_t = Σ_s α(s_{t-1}, h_s) h_s  for every t

Strings of random letters are to be copied. Each letter is independent of the others, so that a string of n letters
holds n · log₂ 16 = 4n bits: nothing in it is repeated, joined by "and", or to be guessed from the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean

from regard.claims import corpora
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.models import trained
from regard.decoding.beam import GREEDY_BEAM
from regard.report.figures import Line, Lines
from regard.runs.translation_run import TranslationRun

NARROW, TIMES = 32, 4  # the fixed vector's width, and how much wider its control is
SHORTEST = 3
LONGEST, STEPS, RATE = 20, 800, 5e-3
QUICK = {"longest": 12, "steps": 400, "rate": 8e-3}
MODELS: Mapping[str, tuple[str, int]] = {  # the system, and how many times the width
    "one vector": ("seq2seq", 1),
    "one vector, four times as wide": ("seq2seq", TIMES),
    "attention": ("bahdanau", 1),
}
ByLength = dict[int, float]


def experiment(trial: Trial) -> Evidence:
    longest, steps, rate = QUICK.values() if trial.quick else (LONGEST, STEPS, RATE)
    pairs = corpora.strings(lambda string: string, longest=int(longest), count=8000, shortest=SHORTEST)
    folder = corpora.keep("copy", corpora.lines(pairs), "tsv", trial.store)
    curves: dict[str, list[ByLength]] = {name: [] for name in MODELS}
    sizes: dict[str, int] = {}
    for seed in trial.seeds:
        for name, (system, times) in MODELS.items():
            run = trained(
                system, folder, seed=seed, size="tiny", store=trial.store,
                settings=settings(int(trial.knob("width")) * times, int(steps), rate, trial.device),
            )  # fmt: skip
            assert isinstance(run, TranslationRun)
            curves[name].append(right_by_length(run, pairs["test"]))
            sizes[name] = run.parameters
            trial.step(f"{name}, seed {seed}")
    fixed, wide, attention = curves.values()
    measured = {
        FALL: [fall(curve) for curve in fixed],
        LEVEL: [fall(curve) for curve in attention],
        KNEE: [knee(wider) - knee(narrow) for narrow, wider in zip(fixed, wide)],
        WIDE: [fall(curve) for curve in wide],
    }
    table = tuple(
        {"system": name, "parameters": sizes[name], "fall": mean(map(fall, found)), "knee": mean(map(knee, found))}
        for name, found in curves.items()
    )
    return Evidence(measured, (figure(curves),), table=table)


def settings(width: int, steps: int, rate: float, device: str) -> dict[str, dict[str, object]]:
    return {
        "data": {"tokenizer": "word"},
        "model": {"cell": "gru", "layers": 1, "width": width, "embedding": 32, "dropout": 0.0},
        "training": {
            "steps": steps, "learning_rate": rate, "schedule": "cosine", "warmup": 100, "batch_tokens": 768,
            "label_smoothing": 0.0, "evaluate_every": steps, "checkpoint_every": steps, "patience": 0, "keep": 0,
            "threads": 1, "device": device,
        },
    }  # fmt: skip


def right_by_length(run: TranslationRun, pairs: Sequence[tuple[str, str]]) -> ByLength:
    """The share of symbols that are right at their place, for each length of the string."""
    found: dict[int, list[float]] = {}
    written = run.translations([source for source, _ in pairs], beam=GREEDY_BEAM)
    for (_, target), (best, *_) in zip(pairs, written, strict=True):
        found.setdefault(len(target.split()), []).append(right(target.split(), best.text.split()))
    return {length: mean(shares) for length, shares in sorted(found.items())}


def right(target: Sequence[str], written: Sequence[str]) -> float:
    return sum(one == other for one, other in zip(target, written)) / len(target)


def fall(curve: ByLength) -> float:
    """From the shortest quarter of the lengths to the longest."""
    shares, quarter = list(curve.values()), max(1, len(curve) // 4)
    return mean(shares[:quarter]) - mean(shares[-quarter:])


def knee(curve: ByLength) -> float:
    """The length at which half is right, on straight lines between the lengths; the end where it never falls so far."""
    points = list(curve.items())
    if points[0][1] < 0.5:
        return float(points[0][0])
    for (before, high), (after, low) in pairwise(points):
        if low < 0.5:
            return before + (after - before) * (high - 0.5) / (high - low)
    return float(points[-1][0])


def figure(curves: Mapping[str, Sequence[ByLength]]) -> Lines:
    lines = []
    for name, found in curves.items():
        lengths = list(found[0])
        lines += [Line(name, list(curve.items()), faint=True) for curve in found]
        lines.append(Line(name, [(length, mean(curve[length] for curve in found)) for length in lengths]))
    return Lines("Copying strings of letters", "letters of the string", "share of letters right", lines, zero_y=True)


FALL = "fall of the share that is right, short to long strings, one vector"
LEVEL = "fall of the share that is right, short to long strings, attention"
KNEE = "letters by which four times the width moves the length at which half is right"
WIDE = "fall of the share that is right, short to long strings, one vector of four times the width"

CLAIM = Claim(
    name="bottleneck",
    number="C4",
    kinds=("measured",),
    quote="you can't represent the meaning of a sentence in a BLEEPING vector! … INFORMATION CAN BE LOST IN THIS "
    "ENCODING OPERATION",
    where="000:30, 003:223",
    statement="Within the lengths seen in training, quality falls with length where one vector of fixed size carries "
    "the source, and not where attention looks back at it.",
    conditions="Strings of 3 to 20 independent letters of 16 to be copied (none is repeated material); GRU, width 32 "
    "in seq2seq and in bahdanau; the same 8000 strings and 800 steps for all; greedy; quality is the share of letters "
    "right at their place, the fall that from the shortest quarter of lengths to the longest.",
    control_words="A fixed vector of four times the width keeps longer strings: what runs out is its size, not the "
    "reader's memory of what it read first.",
    breaks="The length up to which one vector suffices grows with its width and with training: where every sentence is "
    "shorter than that, nothing is lost. It is a matter of how many bits a vector of so many trained components keeps "
    "apart, not of sentences as such.",
    expected=(Expect(FALL, "at least", 0.3), Expect(LEVEL, "at most", 0.1)),
    control=(Expect(KNEE, "at least", 1.0, unit="letters"),),
    besides=(Expect(WIDE, "at least", 0.3),),
    experiment=experiment,
    knobs={"width": NARROW},
    quick_seeds=4,
    quick_words="4 seeds, strings of at most 12 letters, 400 steps",
    cost=170.0,
)
