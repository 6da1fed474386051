"""C23, classification: an RNN does well where the whole text has one answer, less well where every word needs its own.

    next word       P(w_{t+1} | w_1 … w_t)          an LSTM beside a gpt
    class           P(label | w_1 … w_S)            an LSTM beside a Transformer: a sentence, or its words shuffled?
    translation     P(y_1 … y_T | w_1 … w_S)        seq2seq, which ends in one vector, beside bahdanau

Of each task the share of words or labels that is right, the RNN's as a share of attention's. The notes' second remedy,
the bidirectional RNN, sees both sides, and yet a word's influence dies with its distance, on either side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from statistics import mean

import torch
from torch import Tensor, nn

from regard.claims import alignment, corpora
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.language_models import QUICK_STEPS, STEPS, reader, spoken
from regard.claims.models import trained
from regard.decoding.beam import GREEDY_BEAM
from regard.layers.attention import FullSelfAttention
from regard.layers.encoder import RecurrentEncoder
from regard.report.figures import Line, Lines
from regard.runs.classification_run import ClassificationRun
from regard.runs.language_run import LanguageRun
from regard.runs.translation_run import TranslationRun

WIDTH, WORDS, FAR, DRAWS = 32, 41, 15, 20  # of the probe: components, words of the text, how far is far, and encoders
TASKS = ("next word", "class", "translation")
Shares = dict[str, float]


def experiment(trial: Trial) -> Evidence:
    recurrent: list[Shares] = []
    attention: list[Shares] = []
    for seed in trial.seeds:
        recurrent.append(shares(trial, seed, "lstm", "lstm", "seq2seq"))
        attention.append(shares(trial, seed, "gpt", "transformer", "bahdanau"))
        trial.step(f"seed {seed}")
    influence = {name: [reach(name, draw) for draw in range(DRAWS)] for name in PROBES}
    ratio = {task: [one[task] / other[task] for one, other in zip(recurrent, attention)] for task in TASKS}
    far = {name: [float(before[FAR] / before[1]) for before, _ in found] for name, found in influence.items()}
    next_to = {name: [float(after[1]) for _, after in found] for name, found in influence.items()}
    measured = {
        NEXT: ratio["next word"],
        CLASS: ratio["class"],
        TRANSLATION: ratio["translation"],
        LOOKED_BACK: [one["translation"] for one in attention],
        BEYOND_GUESSING: [one["next word"] - commonest() for one in recurrent],
        LABELS: [one["class"] for one in recurrent],
        DISTANT: far["bidirectional RNN"],
        EVERYWHERE: far["self-attention"],
        ONE_SIDE: next_to["forward RNN"],
        BOTH_SIDES: next_to["bidirectional RNN"],
    }
    table = tuple(
        {"task": task, "RNN": mean(one[task] for one in recurrent), "attention": mean(one[task] for one in attention)}
        for task in TASKS
    )
    return Evidence(measured, (figure(influence),), table=table)


# -- three tasks -----------------------------------------------------------------------------------------------------


def shares(trial: Trial, seed: int, language: str, encoder: str, translator: str) -> Shares:
    """What share is right of the next words, of the labels, and of the words of translations."""
    pairs = alignment.sentences(alignment.QUICK_COMMON if trial.quick else alignment.COMMON)
    return {
        "next word": next_words(reader(trial, language, seed)),
        "class": float(classifier(trial, encoder, seed).evaluate("test")["accuracy"]),
        "translation": words_right(alignment.learn(trial, pairs, seed, translator)),
    }


@torch.no_grad()
def next_words(run: LanguageRun) -> float:
    """The share of held-out words that are the most probable one, each sentence by itself."""
    hits = total = 0
    for line in spoken()["test"]:
        ids = [run.tokenizer.eos, *run.tokenizer.encode(line), run.tokenizer.eos]
        logits, _ = run.model(torch.tensor([ids[:-1]], device=run.model.device))
        hits += int((logits[0].argmax(-1).cpu() == torch.tensor(ids[1:])).sum())
        total += len(ids) - 1
    return hits / total


def commonest() -> float:
    """The share of held-out words that whoever always says the commonest one gets right."""
    words = [word for line in spoken()["test"] for word in (*line.split(), "<eos>")]
    return max(Counter(words).values()) / len(words)


@cache
def labelled() -> dict[str, list[str]]:
    """Sentences of four words and more, every second one with its words shuffled: text⇥label."""
    random = Random("labelled")
    rows: dict[str, list[str]] = {}
    for split, lines in spoken().items():
        rows[split] = []
        for number, words in enumerate(line.split() for line in lines if len(line.split()) > 3):
            mixed = sorted(words, key=lambda _: random.random()) if number % 2 else words
            rows[split].append(f"{' '.join(mixed)}\t{'sentence' if mixed == words else 'shuffled'}")
    return rows


def classifier(trial: Trial, encoder: str, seed: int) -> ClassificationRun:
    steps = QUICK_STEPS if trial.quick else STEPS
    run = trained(
        "classifier",
        corpora.keep("labelled", labelled(), "tsv", trial.store),
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
    assert isinstance(run, ClassificationRun)
    return run


def words_right(run: TranslationRun) -> float:
    """The share of places that have the right word, in greedy translations of the held-out pairs."""
    held = run.corpus(None).splits["test"]
    written = run.translations(held.sources, beam=GREEDY_BEAM)
    return mean(
        in_place(best.text.split(), target.split()) for (best, *_), target in zip(written, held.targets, strict=True)
    )


def in_place(written: Sequence[str], target: Sequence[str]) -> float:
    return sum(one == other for one, other in zip(written, target)) / max(len(written), len(target))


# -- how far a word reaches ------------------------------------------------------------------------------------------


def reach(name: str, seed: int) -> tuple[Tensor, Tensor]:
    """‖∂m_s/∂x_{s−d}‖ and ‖∂m_s/∂x_{s+d}‖ for d = 0, 1, …: the middle word's vector by what stands around it."""
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
    for name, found in influence.items():
        before = torch.stack([one for one, _ in found]).mean(0)
        after = torch.stack([two for _, two in found]).mean(0)
        points = [(-float(d), float(before[d])) for d in range(len(before) - 1, 0, -1)]
        points += [(float(d), float(after[d])) for d in range(1, len(after))]
        lines.append(Line(name, [(d, size) for d, size in points if size > 0]))
    return Lines(
        "What stands around a word, in its vector",
        "place relative to the word",
        "size of the derivative",
        lines,
        log_y=True,
    )


NEXT = "next words right, LSTM's share as a part of gpt's"
CLASS = "labels right, LSTM's share as a part of a Transformer's"
TRANSLATION = "words of translations right, seq2seq's share as a part of bahdanau's"
LOOKED_BACK = "share of the words of translations right, bahdanau"
BEYOND_GUESSING = "share of next words right, LSTM, minus that of the commonest word"
LABELS = "share of labels right, LSTM, of which half is chance"
DISTANT = f"influence of a word {FAR} places away as a part of the neighbour's, bidirectional RNN"
EVERYWHERE = f"influence of a word {FAR} places away as a part of the neighbour's, self-attention"
ONE_SIDE = "influence of the word after, forward RNN"
BOTH_SIDES = "influence of the word after, bidirectional RNN"

CLAIM = Claim(
    name="classification",
    number="C23",
    kinds=("measured",),
    quote="RNN work well on … next word prediction … sequence classification … but less well on … translation … "
    "Approach 2: bidirectional RNN … no long range dependency",
    where="001:68–108",
    statement="RNNs keep up with attention at the next word and at classifying a text, but not at translation; a "
    "bidirectional RNN sees both sides of a word and still lacks long range.",
    conditions="Phrasebook: next words of sentences (LSTM and gpt); a sentence or its words shuffled (LSTM and a "
    "Transformer block); reordered English–French pairs of at most 8 words (seq2seq and bahdanau, GRU of width 48). "
    "Equal steps, held-out text, the share that is right. Range: untrained encoders of width 32, derivatives of the "
    "middle word's vector.",
    control_words="Attention translates the same pairs, so that they can be learned from so few, and its reach does "
    "not end with distance; and the tasks at which the RNN keeps up are ones at which it does better than guessing.",
    breaks="Keeping up is a matter of the task: where the answer to a classification hangs on one word far back, an "
    "RNN loses it, too (claims any-b and forgetting). Where sentences are short enough for one vector, it translates "
    "well (claim bottleneck). A gated RNN, trained, reaches farther than the untrained one that is probed here.",
    expected=(
        Expect(NEXT, "at least", 0.9),
        Expect(CLASS, "at least", 0.9),
        Expect(TRANSLATION, "at most", 0.9),
        Expect(DISTANT, "at most", 0.01),
    ),
    control=(
        Expect(LOOKED_BACK, "at least", 0.6),
        Expect(EVERYWHERE, "at least", 0.1),
        Expect(BEYOND_GUESSING, "at least", 0.05),
        Expect(LABELS, "at least", 0.75),
    ),
    besides=(Expect(ONE_SIDE, "at most", 0.0, over="draws"), Expect(BOTH_SIDES, "at least", 0.1, over="draws")),
    experiment=experiment,
    seeds=10,
    quick_seeds=4,
    quick_words=f"4 seeds, sentences of fewer different words, {QUICK_STEPS} steps instead of {STEPS}",
    cost=330.0,
)
