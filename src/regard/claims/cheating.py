"""C7, cheating: without the causal mask a model reads off the word that it is to predict.

    L = −(1/T) Σ_t log P(w_{t+1} | what it sees),    w_t drawn independently and uniformly from V words

Nothing that came before says anything about w_{t+1}, so no causal model gets below L = log V. A model without the mask
sees w_{t+1} itself, in every column but the last: it can fall to log V / T. That makes independent words a leak test.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.evaluation.intervals import student_interval
from regard.layers.attention import CausalSelfAttention, SelfAttention, attend
from regard.layers.state import Span, State
from regard.report.figures import Figure, Intervals, Line, Lines, Mark
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model
from regard.systems.translator import Translator

WORDS, ROWS, STEPS, LAST = 16, 32, 300, 50  # the loss is the mean of the last 50 steps, 25,600 words
SMALL: dict[str, dict[str, object]] = {  # for every system that predicts the next word; classifiers do not
    "ngram": {"order": 3},
    "rnn": {"layers": 1, "width": 32, "dropout": 0.0},
    "lstm": {"layers": 1, "width": 32, "dropout": 0.0},
    "nnlm": {"order": 5, "width": 32, "embedding": 16},
    "gru": {"layers": 1, "width": 32, "dropout": 0.0},
    "seq2seq": {"layers": 1, "width": 32, "embedding": 16, "dropout": 0.0},
    "dan": {"layers": 1, "width": 32},
    "bahdanau": {"layers": 1, "width": 32, "embedding": 16, "dropout": 0.0},
    "self-attention": {"width": 32, "context": WORDS, "position": "learned"},
    "transformer": {"layers": 1, "width": 32, "heads": 2, "feedforward": 64, "context": WORDS, "dropout": 0.0},
    "gpt": {"layers": 1, "width": 32, "heads": 2, "context": WORDS, "tied": False, "dropout": 0.0},
}
QUICK = ("ngram", "rnn", "self-attention", "gpt")


class Unmasked(CausalSelfAttention):
    """The attention of a gpt with its mask taken away."""

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        query, keys, values, _, new = self.qkv_and_mask(x, state, span)
        return self.join_heads(attend(query, keys, values, None)), new


def make(system: str, vocabulary: int, **other: object) -> Model:
    model: Model = load_class(system)(vocabulary, load_module(system).Settings(**{**SMALL[system], **other}))
    return model


def cheater(vocabulary: int, **other: object) -> Model:
    """A gpt, and nothing but the mask removed."""
    model = make("gpt", vocabulary, **other)
    for block in model.layers:  # type: ignore[union-attr]
        unmasked = Unmasked(block.attention.width, block.attention.heads)
        unmasked.load_state_dict(block.attention.state_dict())
        block.attention = unmasked
    return model


def losses(model: Model, steps: int) -> list[float]:
    """Trained on new words at every step, so that there is nothing to remember: the loss of each step."""
    if not list(model.parameters()):  # it counts one text and is tried on others
        model.count(torch.randint(model.vocabulary, (20_000,)).numpy())  # type: ignore[operator]
    optimiser = torch.optim.Adam([*model.parameters()], lr=3e-3) if list(model.parameters()) else None
    values = []
    for _ in range(steps if optimiser else LAST):
        words = torch.randint(model.vocabulary, (ROWS, WORDS + 1))
        state = model.begin(torch.randint(model.vocabulary, (ROWS, 4))) if isinstance(model, Translator) else None
        loss = model.loss(words[:, :-1], words[:, 1:], state)[0].mean()
        if optimiser:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        values.append(float(loss.detach()))
    return values


def settled(losses: list[float]) -> float:
    return sum(losses[-LAST:]) / LAST


@torch.no_grad()
def unseen_loss(model: Model) -> float:
    """The loss where the next word is really not there yet, as when a text is generated: given each prefix alone."""
    words = torch.randint(model.vocabulary, (16 * ROWS, WORDS + 1))
    each = [model.loss(words[:, :n], words[:, 1 : n + 1])[0][:, -1].mean() for n in range(1, WORDS + 1)]
    return float(sum(each) / len(each))


def floor_without_places(vocabulary: int) -> float:
    """The smallest loss for a model that sees all words without their order: the next word is any of the others, or, in
    the last column, none of them. Averaged over 20,000 random texts."""
    words = torch.randint(vocabulary, (20_000, WORDS + 1))
    seen, after = words[:, :-1], words[:, 1:]
    counts = torch.nn.functional.one_hot(seen, vocabulary).sum(dim=1)[:, None]  # [texts, 1, V]
    others = counts - torch.nn.functional.one_hot(seen, vocabulary)  # [texts, WORDS, V]
    probability = (others + 1 / vocabulary) / WORDS
    return float(-probability.gather(2, after[..., None]).log().mean())


def experiment(trial: Trial) -> Evidence:
    vocabulary = int(trial.knob("V"))
    most = math.log(vocabulary)
    curves: dict[str, list[list[float]]] = {}
    unseen = []
    trained: dict[str, Callable[[], Model]] = {
        "gpt": lambda: make("gpt", vocabulary),
        NO_MASK: lambda: cheater(vocabulary),
        NO_PLACES: lambda: cheater(vocabulary, position="none"),
        **{name: lambda name=name: make(name, vocabulary) for name in (QUICK if trial.quick else SMALL)},  # type: ignore[misc]
    }
    for seed in trial.seeds:
        for name, made in trained.items():
            torch.manual_seed(seed)
            model = made()
            curves.setdefault(name, []).append(losses(model, STEPS))
            if name == NO_MASK:
                unseen.append(unseen_loss(model) / most)
            trial.step(f"{name}, seed {seed}")
    final = {name: [settled(curve) for curve in each] for name, each in curves.items()}
    causal = [name for name in final if name in SMALL]
    torch.manual_seed(0)
    floor = floor_without_places(vocabulary)
    return Evidence(
        {
            CHEATED: [value / most for value in final[NO_MASK]],
            MASKED: [value / most for value in final["gpt"]],
            HONEST: [min(values) / most for values in zip(*(final[name] for name in causal))],
            FLOOR: [value - most / WORDS for value in final[NO_MASK]],
            PART: [value / most for value in final[NO_PLACES]],
            NO_FURTHER: [value - floor for value in final[NO_PLACES]],
            WORTHLESS: unseen,
        },
        figures=(learning(curves, most), leaks(final, most)),
        remarks=(
            f"At V = {vocabulary} and T = {WORDS}: log V = {most:.3f}, log V / T = {most / WORDS:.3f}, and a model "
            f"that sees all words but not their order cannot get below {floor:.3f}.",
            f"Leak test of {', '.join(causal)}.",
        ),
        table=tuple(
            {"system": name, "loss": sum(v) / len(v), "loss / log V": sum(v) / len(v) / most}
            for name, v in final.items()
        ),
    )


def learning(curves: dict[str, list[list[float]]], most: float) -> Figure:
    lines = [Line("log V", [(1, most)], level=True)]
    for name in ("gpt", NO_MASK, NO_PLACES):
        mean = torch.tensor(curves[name]).mean(dim=0).unfold(0, 10, 10).mean(dim=1)
        lines.append(Line(name, [(10 * (at + 1), float(loss)) for at, loss in enumerate(mean)]))
    return Lines("Training on independent words", "steps", "loss, nats per word", lines, zero_y=True)


def leaks(final: dict[str, list[float]], most: float) -> Figure:
    return Intervals(
        title="Which systems leak: loss after training on independent words (99 % intervals)",
        x="loss, nats per word",
        marks=[Mark(name, sum(v) / len(v), *student_interval(v, 0.99)) for name, v in final.items()],
        threshold=most,
        threshold_name="log V",
    )


def worked() -> list[Worked]:
    """The number of weights of each of three words: a₁ one, a₂ two, a₃ three, none of them for a later word."""
    torch.manual_seed(0)
    layer = SelfAttention(8).double()
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    parts = layer.explain(x, layer.begin(1, device="cpu", dtype=x.dtype), Span(torch.zeros(1, dtype=torch.int64)))[2]
    weights = parts["weights"][0, 0]
    entries = " ".join(str(int((row > 0).sum())) for row in weights)
    future = str(int((weights.triu(1) != 0).sum()))
    return [
        Worked("entries of a₁, a₂, a₃", "1 2 3", entries, entries == "1 2 3", "000:115–121"),
        Worked("entries from the future", "0", future, future == "0", "000:89–90"),
    ]


NO_MASK, NO_PLACES = "gpt without mask", "gpt without mask and positions"
CHEATED = "loss of a gpt without its mask, as a fraction of log V"
MASKED = "loss of the same gpt with its mask, as a fraction of log V"
HONEST = "lowest loss among all causal systems, as a fraction of log V"
FLOOR = "loss of a gpt without its mask, above log V / T"
PART = "loss without mask and without positions, as a fraction of log V"
NO_FURTHER = "loss without mask and without positions, above the lowest possible without word order"
WORTHLESS = "loss of the cheater if the next word cannot be seen, as a fraction of log V"

CLAIM = Claim(
    name="cheating",
    number="C7",
    kinds=("measured",),
    quote="no $q_2 k_3$ b/c of cheating!",
    where="000:89–90",
    statement="Without the causal mask the training loss on independent, uniformly drawn words falls below log V, "
    "which no causal model can do.",
    conditions=(
        f"V = 8 words by default; new texts of {WORDS} words at every step; a gpt of one layer with learned "
        f"positions, {STEPS} steps of Adam."
    ),
    control_words=(
        "With the mask, the same gpt stays at log V, and so does every causal system of Regard trained in the same "
        "way: none of them leaks."
    ),
    breaks=(
        "Without positions, the cheater does not know which of the words it sees is the next one, so its loss falls "
        "only as far as the counts of words allow. The cheater is also useless in practice: when it generates a "
        "text, the next word is not there, and it does worse than guessing."
    ),
    expected=(Expect(CHEATED, "at most", 0.5),),
    control=(Expect(MASKED, "within", 1.0, tolerance=0.01), Expect(HONEST, "at least", 0.99)),
    besides=(
        Expect(FLOOR, "within", 0.0, tolerance=0.05, unit="nats"),
        Expect(PART, "at most", 0.95),
        Expect(NO_FURTHER, "at least", -0.01, unit="nats"),
        Expect(WORTHLESS, "at least", 1.0, over="draws"),
    ),
    experiment=experiment,
    worked=worked,
    knobs={"V": 8.0},
    limits={"V": (2, 64)},
    quick_words=f"3 seeds, and the leak test for {', '.join(QUICK)} alone",
    cost=70,
)
