"""C30, long-sentences: figure 2 of Bahdanau et al. 2015: BLEU by the length of the sentence, with unknown words.

    seq2seq     P(y | x) through one vector          bahdanau     P(y | x) through c_t = Σ_s α(s_t, h_s) h_s

As in the figure, the test has sentences with words that the model does not know, on either side, and every length is
scored by itself. Unlike it, every length is as frequent in training as any other, so that long sentences are not rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean

import numpy as np

from regard.claims import corpora
from regard.claims.alignment import cut
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.each_seed import each_seed
from regard.claims.models import trained
from regard.corpora.phrasebook import make_pairs
from regard.decoding.beam import GREEDY_BEAM
from regard.evaluation.bleu import Statistics
from regard.report.figures import Line, Lines
from regard.runs.tasks.translation.run import TranslationRun

SHORTEST, LONGEST, CLASSES = 1, 24, 4  # words of a sentence, and length classes
PAIRS, HELD_OUT, VOCABULARY = 16_000, 800, 1500  # words that each side of a model knows
WIDTH, EMBEDDING, RATE = 64, 48, 6e-3
STEPS, QUICK_STEPS, BATCH = 4000, 200, 1024
MODELS = {"one vector": "seq2seq", "attention": "bahdanau"}
BY_LENGTH = range(SHORTEST - 1, LONGEST, LONGEST // CLASSES)  # each class's words, less one
Sides = Sequence[tuple[str, str]]


def experiment(trial: Trial) -> Evidence:
    found = each_seed(trial, one_model, tuple(reversed(MODELS)))  # the slower first
    curves = {name: [curve for model, curve, _ in found if model == name] for name in MODELS}
    one, attention = curves.values()
    measured = {
        ONE: [curve[0] - curve[-1] for curve in one],
        ATTENTION: [curve[0] - curve[-1] for curve in attention],
        UNKNOWN: [unknown for model, _, unknown in found if model == "attention"],
        LEARNED: [curve[0] for curve in one],
        AHEAD: [curve[-1] - narrow[-1] for curve, narrow in zip(attention, one)],
    }
    words = [low + LONGEST / CLASSES / 2 for low in BY_LENGTH]
    lines = []
    for name, each in curves.items():
        lines += [Line(name, list(zip(words, curve)), faint=True) for curve in each]
        lines.append(Line(name, [(at, mean(curve[n] for curve in each)) for n, at in enumerate(words)]))
    table = tuple(
        {"model": name, **{f"{low + 1}–{low + LONGEST // CLASSES} words": mean(curve[n] for curve in each)
                           for n, low in enumerate(BY_LENGTH)}}
        for name, each in curves.items()
    )  # fmt: skip
    return Evidence(
        measured, (Lines("BLEU by length", "words of the source", "BLEU", lines, zero_y=True),), table=table
    )


def one_model(trial: Trial, seed: int, name: str) -> tuple[str, list[float], float]:
    """Its name, its BLEU by length class, and the share of the test's target words that are unknown."""
    run = learn(trial, seed, MODELS[name])
    curve = bleu_by_length(run)
    written = [token for _, target in sentences()["test"] for token in run.tokenizer.encode(target)]
    trial.step(f"{name}, seed {seed}")
    return name, curve, float(np.mean(np.array(written) == run.tokenizer.unk))


@cache
def sentences() -> Mapping[str, Sides]:
    """Words in small letters; no sentence of the test is in training."""
    pairs = [
        (" ".join(cut(pair.source)), " ".join(cut(pair.target)))
        for pair in make_pairs(PAIRS, seed=2, shortest=SHORTEST, longest=LONGEST)
    ]
    return {"test": pairs[:HELD_OUT], "valid": pairs[HELD_OUT : HELD_OUT + 200], "train": pairs[HELD_OUT + 200 :]}


def learn(trial: Trial, seed: int, system: str) -> TranslationRun:
    rows = {split: [f"{source}\t{target}" for source, target in sides] for split, sides in sentences().items()}
    steps = QUICK_STEPS if trial.quick else STEPS
    return trained(
        TranslationRun,
        system,
        corpora.keep("lengths", rows, "tsv", trial.store),
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "vocabulary": VOCABULARY, "joint": False},
            "model": {"cell": "gru", "layers": 1, "width": WIDTH, "embedding": EMBEDDING, "dropout": 0.0},
            "training": {
                "steps": steps, "learning_rate": RATE, "schedule": "cosine", "warmup": 100, "batch_tokens": BATCH,
                "label_smoothing": 0.0, "evaluate_every": steps, "checkpoint_every": steps, "patience": 0, "keep": 0,
                "threads": 1, "device": trial.device,
            },
        },
    )  # fmt: skip


def bleu_by_length(run: TranslationRun) -> list[float]:
    test = sentences()["test"]
    written = [best.text for best, *_ in run.translations([source for source, _ in test], beam=GREEDY_BEAM)]
    counts = Statistics.of("bleu", written, [target for _, target in test], "none")
    words = np.array([len(source.split()) for source, _ in test])
    inside = [(words > low) & (words <= low + LONGEST // CLASSES) for low in BY_LENGTH]
    return [float(counts.score(counts.counts[chosen].sum(0))) for chosen in inside]


ONE = "BLEU of the shortest sentences minus that of the longest, one vector"
ATTENTION = "BLEU of the shortest sentences minus that of the longest, attention"
UNKNOWN = "share of the target words of the test that are unknown"
LEARNED = "BLEU of the shortest sentences, one vector"
AHEAD = "BLEU of the longest sentences, attention minus one vector"

CLAIM = Claim(
    name="long-sentences",
    number="C30",
    kinds=("measured",),
    quote="Figure 2: The BLEU scores of the generated translations on the test set with respect to the lengths of the "
    "sentences. The results are on the full test set which includes sentences having unknown words to the models.",
    where="004:86",
    statement=(
        "On a test set with unknown words, BLEU falls with the length of the sentence if one vector carries the "
        "source, but not if attention looks back at it."
    ),
    conditions=(
        f"English to French, phrasebook sentences of {SHORTEST} to {LONGEST} words, every length equally frequent in "
        f"{PAIRS - HELD_OUT - 200} training pairs; lower-cased, with a vocabulary of {VOCABULARY} on each side. GRU "
        f"of width {WIDTH} (seq2seq, bahdanau), {STEPS} steps of {BATCH} tokens; greedy decoding. BLEU of {CLASSES} "
        f"classes of length, {HELD_OUT} test pairs in all; the fall is from the first class to the last."
    ),
    control_words=(
        "The test set has unknown words, and the translator with one vector has learned to translate the shortest "
        "sentences."
    ),
    breaks=(
        "How far one vector carries depends on its width and on training: widths of 1,000 or more and days of "
        "training moved the fall in the figure to about 20 words. Unknown words cost every length about the same."
    ),
    expected=(Expect(ONE, "at least", 10.0, unit="BLEU"), Expect(ATTENTION, "at most", 5.0, unit="BLEU")),
    control=(
        Expect(UNKNOWN, "at least", 0.01, over="draws"),
        Expect(LEARNED, "at least", 20.0, unit="BLEU"),
    ),
    besides=(Expect(AHEAD, "at least", 10.0, unit="BLEU"),),
    experiment=experiment,
    seeds=6,
    quick_words=f"3 seeds, {QUICK_STEPS} steps instead of {STEPS}",
    cost=900.0,
)
