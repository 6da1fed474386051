"""C23, classification: an RNN does well where the whole text has one answer, less well where every word needs its own.

    next word       P(w_{t+1} | w_1 … w_t)          an LSTM against a gpt: nats per word above the grammar's entropy
    class           P(label | w_1 … w_S)            an LSTM against a Transformer: does the verb agree with its noun?
    translation     P(y_1 … y_T | w_1 … w_S)        seq2seq, which encodes into one vector, against bahdanau
    generation      w_1 … w_T drawn from the model  an LSTM against a gpt: the share that is grammatical

The grammar of next words, labels and generation is known (known_grammar.py), and so are its entropy and its
sentences. Cheap models must be beaten: a Kneser-Ney 3-gram at next words and generation, naive Bayes over words and
pairs of words at any distance at the class; a task at which they do as well says nothing about networks. The notes'
second remedy, the bidirectional RNN, sees both sides; yet the influence of a word dies with distance, on either side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from random import Random
from statistics import mean

import torch
from torch import Tensor, nn

from regard.claims import alignment, corpora, known_grammar
from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial
from regard.claims.each_seed import each_seed
from regard.claims.language_models import QUICK_STEPS, STEPS, reader
from regard.claims.models import trained
from regard.decoding.generate import generate
from regard.decoding.sampling import Sampling
from regard.layers.attention import FullSelfAttention
from regard.layers.encoder import RecurrentEncoder
from regard.report.figures import Line, Lines
from regard.runs.tasks.classification.run import ClassificationRun
from regard.runs.tasks.language.run import LanguageRun
from regard.runs.tasks.translation.run import TranslationRun

WIDTH, WORDS, FAR, DRAWS = 32, 41, 15, 20  # of the probe: components, words of the text, how far is far, and encoders
DRAWN, MAX_WORDS = 500, 30  # sentences that each model writes, and the most words of one
TASKS = ("next word", "class", "translation", "generation")
Scores = dict[str, float]


def experiment(trial: Trial) -> Evidence:
    recurrent: list[Scores] = []
    attention: list[Scores] = []
    cheap: list[Scores] = []
    for one, other, third in each_seed(trial, three_kinds):
        recurrent.append(one)
        attention.append(other)
        cheap.append(third)
    bayes = naive_bayes(known_grammar.agreement())
    mixed = shuffled_share()
    influence = {name: [reach(name, draw) for draw in range(DRAWS)] for name in PROBES}
    far = {name: [float(before[FAR] / before[1]) for before, _ in seeds] for name, seeds in influence.items()}
    next_to = {name: [float(after[1]) for _, after in seeds] for name, seeds in influence.items()}

    def less(task: str, ones: Sequence[Scores], others: Sequence[Scores]) -> list[float]:
        return [one[task] - other[task] for one, other in zip(ones, others)]

    measured = {
        NEXT: less("next word", recurrent, attention),
        CLASS: less("class", attention, recurrent),
        TRANSLATION: less("translation", attention, recurrent),
        GENERATION: less("generation", attention, recurrent),
        DISTANT: far["bidirectional RNN"],
        OVER_TRIGRAM: less("next word", cheap, recurrent),
        OVER_BAYES: [one["class"] - bayes for one in recurrent],
        LOOKED_BACK: [one["translation"] for one in attention],
        WRITTEN: less("generation", attention, cheap),
        MIXED: [mixed],
        EVERYWHERE: far["self-attention"],
        ONE_SIDE: next_to["forward RNN"],
        BOTH_SIDES: next_to["bidirectional RNN"],
    }
    table = tuple(
        {"task": task, "RNN": mean(one[task] for one in recurrent), "attention": mean(one[task] for one in attention),
         "cheap": bayes if task == "class" else mean(one[task] for one in cheap) if task in cheap[0] else ""}
        for task in TASKS
    )  # fmt: skip
    return Evidence(measured, (figure(influence),), table=table)


def three_kinds(trial: Trial, seed: int) -> tuple[Scores, Scores, Scores]:
    """Recurrent networks, attention, and a 3-gram."""
    recurrent = scores(trial, seed, "lstm", "lstm", "seq2seq")
    attention = scores(trial, seed, "gpt", "transformer", "bahdanau")
    counted = trigram(trial)
    trial.step(f"seed {seed}")
    return recurrent, attention, {"next word": above_entropy(counted), "generation": grammatical(counted, seed)}


# -- four tasks ------------------------------------------------------------------------------------------------------


def scores(trial: Trial, seed: int, language: str, encoder: str, translator: str) -> Scores:
    """Nats per word above the entropy; and what share is right of labels, of translated words, of drawn sentences."""
    pairs = alignment.sentences(alignment.QUICK_COMMON if trial.quick else alignment.COMMON)
    writer = reader(trial, language, seed, "grammar")
    return {
        "next word": above_entropy(writer),
        "class": float(classifier(trial, encoder, seed).evaluate("test")["accuracy"]),
        "translation": words_right(alignment.learn(trial, pairs, seed, translator)),
        "generation": grammatical(writer, seed),
    }


def above_entropy(run: LanguageRun) -> float:
    """Nats per held-out word, line ends included, that the model loses beyond the grammar's own entropy."""
    lines = known_grammar.sentences()["test"]
    lost = [-score.log_probability for score in run.score(lines)]
    least = [-known_grammar.log_probability(line.split()) for line in lines]
    return (sum(lost) - sum(least)) / sum(len(line.split()) + 1 for line in lines)


def grammatical(run: LanguageRun, seed: int) -> float:
    """The share of sentences, drawn from the model, that the grammar can make."""
    eos = run.tokenizer.eos
    rows: list[list[int]] = [[] for _ in range(DRAWN)]
    for tokens in generate(
        run.model, [[eos]] * DRAWN, max_tokens=MAX_WORDS, eos=eos, lines=1, sampling=Sampling(), seed=seed
    ):
        for row, token in zip(rows, tokens):
            if token is not None:
                row.append(token)
    ended = [[run.tokenizer.token(token) for token in row[:-1]] for row in rows if row[-1] == eos]
    return sum(known_grammar.log_probability(words) > -math.inf for words in ended) / DRAWN


def shuffled_share() -> float:
    """The share of held-out sentences that are still grammatical when their words are shuffled."""
    random, lines = Random("shuffled"), known_grammar.sentences()["test"]
    mixed = [sorted(line.split(), key=lambda _: random.random()) for line in lines]
    return sum(known_grammar.log_probability(words) > -math.inf for words in mixed) / len(mixed)


def trigram(trial: Trial) -> LanguageRun:
    """Kneser-Ney, counted on the same sentences: it has no seed."""
    return trained(
        LanguageRun,
        "ngram",
        corpora.keep("grammar", known_grammar.sentences(), "txt", trial.store),
        size="tiny",
        store=trial.store,
        settings={"data": {"tokenizer": "word", "vocabulary": 1200}, "model": {"order": 3}},
    )


@cache
def _features(text: str) -> tuple[str, ...]:
    words = text.split()
    return (*words, *map(" ".join, combinations(words, 2)))


def naive_bayes(rows: corpora.Splits) -> float:
    """The share of test labels that naive Bayes gets right, by words and pairs of words at any distance, add-one
    smoothed."""
    counts: dict[str, Counter[str]] = {}
    labels: Counter[str] = Counter()
    for row in rows["train"]:
        text, label = row.split("\t")
        counts.setdefault(label, Counter()).update(_features(text))
        labels[label] += 1
    known = {feature for one in counts.values() for feature in one}

    def fitness(text: str, label: str) -> float:
        total = counts[label].total() + len(known)
        seen = sum(math.log((counts[label][one] + 1) / total) for one in _features(text) if one in known)
        return math.log(labels[label] / labels.total()) + seen

    tested = [row.split("\t") for row in rows["test"]]
    return mean(max(labels, key=lambda one: fitness(text, one)) == label for text, label in tested)


def classifier(trial: Trial, encoder: str, seed: int) -> ClassificationRun:
    steps = QUICK_STEPS if trial.quick else STEPS
    return trained(
        ClassificationRun,
        "classifier",
        corpora.keep("agreement", known_grammar.agreement(), "tsv", trial.store),
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "vocabulary": 1200},
            "model": {"encoder": encoder, "bidirectional": False, "width": 32, "layers": 1, "dropout": 0.0},
            "training": {
                "steps": steps, "learning_rate": 8e-3, "batch_tokens": 1024, "evaluate_every": steps,
                "checkpoint_every": steps, "patience": 0, "keep": 0, "threads": 1, "device": trial.device,
            },
        },
    )  # fmt: skip


def words_right(run: TranslationRun) -> float:
    """The share of places that have the right word, in greedy translations of the held-out pairs."""
    held = run.corpus(None).splits["test"]
    return alignment.translated(run, [(one.split(), other.split()) for one, other in zip(held.sources, held.targets)])


# -- how far a word reaches ------------------------------------------------------------------------------------------


def reach(name: str, seed: int) -> tuple[Tensor, Tensor]:
    """‖∂m_s/∂x_{s−d}‖ and ‖∂m_s/∂x_{s+d}‖ for d = 0, 1, …: the middle word's vector by the words around it."""
    torch.manual_seed(seed)
    encoder = PROBES[name]().double().eval()
    text = torch.randn(1, WORDS, WIDTH, dtype=torch.float64, requires_grad=True)
    read = encoder(text, None)
    memory = read[0] if isinstance(encoder, RecurrentEncoder) else read
    middle = WORDS // 2
    rows = [torch.autograd.grad(one, text, retain_graph=True)[0][0] for one in memory[0, middle]]
    norms = torch.stack(rows).norm(dim=(0, 2))  # [WORDS], over outputs and inputs
    return norms[: middle + 1].flip(0), norms[middle:]


PROBES: dict[str, Callable[[], nn.Module]] = {
    "forward RNN": lambda: RecurrentEncoder(WIDTH, WIDTH, cell="rnn"),
    "bidirectional RNN": lambda: RecurrentEncoder(WIDTH, WIDTH, cell="rnn", bidirectional=True),
    "self-attention": lambda: FullSelfAttention(WIDTH, 1),
}


def figure(influence: dict[str, list[tuple[Tensor, Tensor]]]) -> Lines:
    lines = []
    for name, seeds in influence.items():
        before = torch.stack([one for one, _ in seeds]).mean(0)
        after = torch.stack([two for _, two in seeds]).mean(0)
        points = [(-float(d), float(before[d])) for d in range(len(before) - 1, 0, -1)]
        points += [(float(d), float(after[d])) for d in range(1, len(after))]
        lines.append(Line(name, [(d, size) for d, size in points if size > 0]))
    return Lines(
        "Influence of the surrounding words on a word's vector",
        "place relative to the word",
        "size of the derivative",
        lines,
        log_y=True,
    )


NEXT = "nats per next word above the grammar's entropy, LSTM minus gpt"
CLASS = "share of correct labels, Transformer minus LSTM"
TRANSLATION = "share of correct words in translations, bahdanau minus seq2seq"
GENERATION = "share of generated sentences that are grammatical, gpt minus LSTM"
DISTANT = f"influence of a word {FAR} places away, as a fraction of the neighbor's, bidirectional RNN"
OVER_TRIGRAM = "nats per next word above the grammar's entropy, Kneser-Ney 3-gram minus LSTM"
OVER_BAYES = "share of correct labels, LSTM minus naive Bayes over words and pairs at any distance"
LOOKED_BACK = "share of correct words in translations, bahdanau"
WRITTEN = "share of generated sentences that are grammatical, gpt minus Kneser-Ney 3-gram"
MIXED = "share of sentences that are grammatical with their words shuffled"
EVERYWHERE = f"influence of a word {FAR} places away, as a fraction of the neighbor's, self-attention"
ONE_SIDE = "influence of the word after, forward RNN"
BOTH_SIDES = "influence of the word after, bidirectional RNN"
NATS, SHARE = 0.02, 0.05  # what counts as a difference: nats per word, and of shares

CLAIM = Claim(
    name="classification",
    number="C23",
    kinds=("measured",),
    quote="RNN work well on … next word prediction … sequence classification … but less well on … translation … "
    "sentence generation … Approach 2: bidirectional RNN … no long range dependency",
    where="001:68–108",
    statement=(
        "RNNs keep up with attention at predicting the next word and at classifying a text, but not at translating "
        "and at generating sentences; a bidirectional RNN sees both sides of a word but still lacks long range."
    ),
    conditions=(
        "7200 sentences of a grammar with known probabilities, for next words and generated sentences (LSTM of "
        "width 64 and gpt of width 32), and for deciding whether a verb agrees with a noun that other words "
        "separate from it (LSTM and a Transformer block). For translation, the phrasebook's reordered "
        "English–French pairs of at most 8 words (seq2seq and bahdanau, GRU of width 48). Equal steps, held-out "
        f"text. A system keeps up if it is within {NATS} nats per word or within {SHARE} of the share. Range: "
        "untrained encoders of width 32, derivatives of the middle word's vector."
    ),
    control_words=(
        "The LSTM beats a Kneser-Ney 3-gram at next words and naive Bayes at labels, and the gpt writes more "
        "grammatical sentences than the 3-gram, so these tasks need more than counting. Shuffled sentences are not "
        "grammatical. Attention translates the pairs, so they can be learned from so few examples, and its reach "
        "does not end with distance."
    ),
    breaks=(
        "Whether an RNN keeps up depends on the task. If a classification depends on one word far back, an RNN also "
        "loses it (claims any-b and forgetting). If sentences are short enough for one vector, an RNN translates "
        "well (claim bottleneck). A trained gated RNN reaches farther than the untrained one that is probed here."
    ),
    expected=(
        Expect(NEXT, "at most", NATS, unit="nats per word", part="next word"),
        Expect(CLASS, "at most", SHARE, part="classification"),
        Expect(TRANSLATION, "at least", 2 * SHARE, part="translation"),
        Expect(GENERATION, "at least", SHARE, part="generation"),
        Expect(DISTANT, "at most", 0.01, part="long range"),
    ),
    control=(
        Expect(OVER_TRIGRAM, "at least", NATS, unit="nats per word", part="next word"),
        Expect(OVER_BAYES, "at least", 2 * SHARE, part="classification"),
        Expect(LOOKED_BACK, "at least", 0.6, part="translation"),
        Expect(WRITTEN, "at least", SHARE, part="generation"),
        Expect(MIXED, "at most", SHARE, over="draws", part="generation"),
        Expect(EVERYWHERE, "at least", 0.1, part="long range"),
    ),
    besides=(Expect(ONE_SIDE, "at most", 0.0, over="draws"), Expect(BOTH_SIDES, "at least", 0.1, over="draws")),
    experiment=experiment,
    seeds=10,
    first_seed=SECOND_LOOK,
    quick_seeds=3,
    quick_words=f"3 seeds, pairs of fewer different words, {QUICK_STEPS} steps instead of {STEPS}",
    cost=600.0,
)
