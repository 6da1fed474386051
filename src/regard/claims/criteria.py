"""C21, criteria: which system meets which of the notes' design criteria, each cell computed and none asserted.

    any length         the same weights read 1, 7, 40 and 200 words
    long range         of 40 words the weakest moves the prediction at least 1/100 as much as the strongest
    order              other words first, another prediction
    shared parameters  twice as many words, all of them seen, and no more weights at work
    association        weights over the input words, that depend on the words
    parallel           the longest chain of operations does not grow with the text

The prediction is the one after all words; of a translator and a classifier, the first one after the whole source.
The strongest and the weakest are sought among all words but the last, which is the query, or what is fed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.claims.at_work import weights_at_work
from regard.claims.chains import longest_chain
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.layers.state import State
from regard.report.figures import Heat
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model
from regard.systems.translator import Translator

VOCABULARY, TEXT, LONG = 11, 40, 200
FEW, TWICE = 3, 6  # words: an n-gram has an order of 7 at most
FAR = 0.01  # of the strongest word's influence
PLAIN: dict[str, object] = {"layers": 1, "width": 16, "dropout": 0.0}
SMOOTH: dict[str, object] = {"activation": "gelu"}  # a relu that is silent has no gradient
PAIRED: dict[str, object] = {**PLAIN, "embedding": 16}


@dataclass(frozen=True)
class Subject:
    """A system with its settings, and the settings that it needs to see a given number of words, if any."""

    name: str
    system: str
    settings: Mapping[str, object]
    seeing: Callable[[int], Mapping[str, object]] = lambda words: {}


def window(words: int) -> dict[str, object]:
    return {"order": words + 1}


def context(words: int) -> dict[str, object]:
    return {"context": words}


SUBJECTS = (
    Subject("ngram", "ngram", {"order": 3}, window),
    Subject("nnlm", "nnlm", {"order": 5, "width": 16, "embedding": 16}, window),
    Subject("dan", "dan", PLAIN),
    Subject("rnn", "rnn", PLAIN),
    Subject("lstm", "lstm", PLAIN),
    Subject("gru", "gru", PLAIN),
    Subject("self-attention", "self-attention", {"width": 16, "context": 64}, context),
    Subject("self-attention, sinusoid", "self-attention", {"width": 16, "position": "sinusoid"}, context),
    Subject("gpt", "gpt", {**PLAIN, "heads": 2, "context": 64}, context),
    Subject("gpt, rotary", "gpt", {**PLAIN, "heads": 2, "context": 64, "position": "rotary"}, context),
    Subject("seq2seq", "seq2seq", PAIRED),
    Subject("bahdanau", "bahdanau", PAIRED),
    Subject("transformer", "transformer", {**PLAIN, "heads": 2, **SMOOTH}, context),
    Subject("classifier (lstm)", "classifier", {**PLAIN, "encoder": "lstm"}),
)


def make(subject: Subject, *, seeing: int | None = None) -> Model:
    """As a user would get it, untrained, in fp64; one that counts has counted random words."""
    settings = {**subject.settings, **(subject.seeing(seeing) if seeing else {})}
    model: Model = load_class(subject.system)(VOCABULARY, load_module(subject.system).Settings(**settings))
    if subject.system == "ngram":
        model.count(torch.randint(VOCABULARY, (5000,)).numpy())  # type: ignore[operator]
    return model.double().eval()


# -- the probes ------------------------------------------------------------------------------------------------------


def predicted(model: Model, words: Tensor) -> Tensor:
    """log P of the next word after these words, [R, V]."""
    if isinstance(model, Translator):
        logits, _ = model(words.new_zeros(len(words), 1), model.begin(words))
    else:
        logits, _ = model(words)
    return logits[:, -1].log_softmax(-1)


@torch.no_grad()
def prediction(model: Model, words: Tensor) -> Tensor:
    return predicted(model, words)


def text(length: int = TEXT) -> Tensor:
    return torch.randint(1, VOCABULARY, (1, length))  # 0 is <eos>, after which an n-gram begins anew


def any_length(subject: Subject) -> float:
    model = make(subject)
    try:
        return float(all(prediction(model, text(n)).isfinite().all() for n in (1, 7, TEXT, LONG)))
    except RegardError:
        return 0.0


def influences(model: Model, words: Tensor) -> Tensor:
    """The change of the prediction when one word is replaced, for each word but the last: [T − 1]."""
    changed = words.repeat(words.size(1) - 1, 1)
    rows = torch.arange(len(changed))
    changed[rows, rows] = changed[rows, rows] % (VOCABULARY - 1) + 1
    return (prediction(model, changed) - prediction(model, words)).norm(dim=-1)


def weakest_word(subject: Subject) -> float:
    moved = influences(make(subject), text())
    return float(moved.min() / moved.max())


def long_range(subject: Subject) -> float:
    return float(weakest_word(subject) >= FAR)


def order(subject: Subject) -> float:
    """True if any of ten new orders of all words but the last changes the prediction by more than rounding."""
    model, words = make(subject), text()
    here = prediction(model, words)
    orders = [torch.cat([torch.randperm(TEXT - 1), torch.tensor([TEXT - 1])]) for _ in range(10)]
    return float(any((prediction(model, words[:, order]) - here).abs().max() > 1e-9 for order in orders))


def shared_parameters(subject: Subject) -> float:
    return float(weights_to_see(subject, FEW) == weights_to_see(subject, TWICE))


def weights_to_see(subject: Subject, length: int) -> int:
    """Weights at work after this many words in a system that sees them all; for n-grams, all of their tables."""
    model = make(subject, seeing=length)
    if not list(model.parameters()):
        return sum(table.numel() for table in model.buffers())
    return weights_at_work(model, predicted(model, torch.cat([text(length) for _ in range(64)])))


def association(subject: Subject) -> float:
    """True if there are weights over the words, and they depend on the words."""
    model, length = make(subject), 9
    one, other = ([*attention_weights(explained(model, text(length))[1], length)] for _ in range(2))
    return float(any((a - b).abs().max() > 1e-9 for a, b in zip(one, other)))


def attention_weights(parts: State, length: int) -> Iterator[Tensor]:
    """All tensors that `explain` calls weights and that have one weight per word."""
    for name, part in parts.items():
        if isinstance(part, dict):
            yield from attention_weights(part, length)
        elif name == "weights" and part.size(-1) == length:
            yield part


def explained(model: Model, words: Tensor) -> tuple[Tensor, State]:
    """All predictions by the written equations, step by step where they say so, and the parts; a translator reads the
    words as its source and as its target."""
    if not isinstance(model, Translator):
        logits, _, parts = model.explain(words)
        return logits, parts
    encoded, source = model.explain_encode(words, None)
    logits, _, parts = model.explain(words % model.vocabulary, model.begin_from(encoded, words, None))
    return logits, {"source": source, "target": parts}


def parallel(subject: Subject) -> float:
    model = make(subject)
    if not list(model.parameters()):  # no operations to follow: does each prediction read only a few last words?
        words = text()
        return float((prediction(model, words) - prediction(model, words[:, -5:])).abs().max() < 1e-9)
    return float(longest_chain(explained(model, text(8))[0]) == longest_chain(explained(model, text(16))[0]))


PROBES: dict[str, Callable[[Subject], float]] = {
    "any length": any_length,
    "long range": long_range,
    "order": order,
    "shared parameters": shared_parameters,
    "association": association,
    "parallel": parallel,
}


def experiment(trial: Trial) -> Evidence:
    cells: dict[tuple[str, str], list[float]] = {}
    weakest: dict[str, list[float]] = {}
    for seed in trial.seeds:
        for subject in SUBJECTS:
            for name, probe in PROBES.items():
                torch.manual_seed(seed)
                cells.setdefault((subject.name, name), []).append(probe(subject))
            torch.manual_seed(seed)
            weakest.setdefault(subject.name, []).append(weakest_word(subject))
            trial.step(f"{subject.name}, draw {seed}")

    def draws(*wanted: tuple[str, str]) -> list[float]:
        return [value for cell in wanted for value in cells[cell]]

    recurrent = ("rnn", "lstm", "gru")
    return Evidence(
        {
            RNN_HAS: draws(*((name, c) for name in recurrent for c in ("any length", "order", "shared parameters"))),
            RNN_FAR: [value for name in recurrent for value in weakest[name]],
            RNN_WAITS: draws(*((name, "parallel") for name in recurrent)),
            ATTENTION_HAS: draws(*(("self-attention", c) for c in PROBES if c != "order")),
            ATTENTION_ORDER: draws(("self-attention", "order")),
            PLACED_ORDER: draws(("self-attention, sinusoid", "order")),
            AVERAGE_ORDER: draws(("dan", "order")),
            LACKING: draws(*BUILT_WITHOUT),
            HAVING: draws(*BUILT_WITH),
            DENSE_ORDER: draws(("nnlm", "order")),
            DENSE_LENGTH: draws(("dan", "any length")),
            DENSE_FAR: draws(("dan", "long range")),
        },
        figures=(heat(cells),),
        table=tuple(
            {
                "system": subject.name,
                **{name: described(cells[subject.name, name]) for name in PROBES},
                "weakest word": sum(weakest[subject.name]) / len(trial.seeds),
            }
            for subject in SUBJECTS
        ),
    )


def described(values: list[float]) -> str:
    return "yes" if all(values) else "no" if not any(values) else "at times"


def heat(cells: dict[tuple[str, str], list[float]]) -> Heat:
    return Heat(
        title="Which system meets which criterion",
        rows=[subject.name for subject in SUBJECTS],
        columns=list(PROBES),
        values=[[sum(cells[s.name, name]) / len(cells[s.name, name]) for name in PROBES] for s in SUBJECTS],
        x="criterion",
        y="system",
        z="share of draws that meet it",
        low=0.0,
        high=1.0,
    )


# For each probe, a system built without the property, and one built with it.
BUILT_WITHOUT = (
    ("gpt", "any length"),
    ("ngram", "long range"),
    ("dan", "order"),
    ("nnlm", "shared parameters"),
    ("dan", "association"),
    ("rnn", "parallel"),
)
BUILT_WITH = (
    ("gpt, rotary", "any length"),
    ("gpt", "long range"),
    ("gpt", "order"),
    ("rnn", "shared parameters"),
    ("bahdanau", "association"),
    ("transformer", "parallel"),
)

RNN_HAS = "rnn, lstm, gru: any length, order, shared parameters"
RNN_FAR = "rnn, lstm, gru: influence of the weakest of 40 words, as a fraction of the strongest's"
RNN_WAITS = "rnn, lstm, gru: parallel"
ATTENTION_HAS = "self-attention: any length, long range, shared parameters, association, parallel"
ATTENTION_ORDER = "self-attention without positions: order"
PLACED_ORDER = "self-attention with positions: order"
AVERAGE_ORDER = "dan, a dense net over the squashed input: order"
LACKING = "each probe on a system built without the property that it tests"
HAVING = "each probe on a system built to have the property"
DENSE_ORDER = "nnlm, a dense net over concatenated words: order (the notes: none)"
DENSE_LENGTH = "dan, a feed-forward net: any length (the notes: not able)"
DENSE_FAR = "dan, a dense net over the squashed input: long range (the notes: no long memory)"

CLAIM = Claim(
    name="criteria",
    number="C21",
    kinds=("identity",),
    quote="HANDLE VARIABLE-LENGTH SEQUENCES … TRACK LONG-TERM DEPENDENCIES … MAINTAIN INFORMATION ABOUT ORDER … SHARE "
    "PARAMETERS ACROSS THE SEQUENCE",
    where="003:83–86, 239–247; 001:110–114",
    statement=(
        "Recurrent networks read any length, keep order and share their parameters, but at initialization they do "
        "not reach 40 words back and are not parallel. Attention meets the whole wish list (long range, any length, "
        "association of output and input) and is parallel, but it has order only with positions. An average has no "
        "order."
    ),
    conditions=(
        "Every system at initialization, small, fp64. Long range means that of 40 words, the weakest moves the "
        "prediction at least 1/100 as much as the strongest."
    ),
    control_words=(
        "Each probe answers no for a system built without the property that it tests, and yes for a system built to "
        "have it."
    ),
    breaks=(
        "The notes' reasons against a dense net are only partly true of an average. Order: a net over concatenated "
        "words (nnlm) has it. Variable length and long memory: the average (dan) reads any length, and its first "
        "word counts as much as its last; what it lacks is order and association. Learned positions end with their "
        "table, and grow with it. What a recurrent network can learn to keep is another question: see vanishing and "
        "any-b."
    ),
    expected=(
        Expect(RNN_HAS, "at least", 1.0, over="draws"),
        Expect(RNN_FAR, "at most", FAR, over="draws"),
        Expect(RNN_WAITS, "at most", 0.0, over="draws"),
        Expect(ATTENTION_HAS, "at least", 1.0, over="draws"),
        Expect(ATTENTION_ORDER, "at most", 0.0, over="draws"),
        Expect(PLACED_ORDER, "at least", 1.0, over="draws"),
        Expect(AVERAGE_ORDER, "at most", 0.0, over="draws"),
    ),
    control=(Expect(LACKING, "at most", 0.0, over="draws"), Expect(HAVING, "at least", 1.0, over="draws")),
    besides=(
        Expect(DENSE_ORDER, "at most", 0.0, over="draws"),
        Expect(DENSE_LENGTH, "at most", 0.0, over="draws"),
        Expect(DENSE_FAR, "at most", 0.0, over="draws"),
    ),
    experiment=experiment,
    quick_words="fewer draws",
    seeds=5,
    quick_seeds=2,
    cost=3,
)
