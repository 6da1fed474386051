"""C28, induction: two layers of attention continue a string that they have read before; one layer does not.

    layer 1    word s gets w_{s−1}, the word before it                          a previous-word head
    layer 2    word t looks at the words s with w_{s−1} = w_t, and predicts w_s    an induction head

Elhage et al. 2021, Olsson et al. 2022. The texts are random words, a string of 8 to 16 different ones that is read
again and again. Since its length is drawn anew for each text, no fixed distance leads to the word that follows, and
one layer, which compares a word with words and positions only, cannot find it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.claim import SECOND_LOOK, Claim, Evidence, Expect, Trial
from regard.insight.interventions.changing import record
from regard.report.figures import Line, Lines
from regard.systems.gpt import GPT, Settings

WORDS, SHORTEST, LONGEST, LENGTH = 32, 8, 16, 32
WIDTH, HEADS, ROWS, RATE, TESTED = 64, 4, 32, 3e-3, 200
STEPS, QUICK_STEPS, EVERY = 800, 60, 100
KINDS = {"two layers": (2, False), "one layer": (1, False), "two layers, shuffled repeats": (2, True)}


def experiment(trial: Trial) -> Evidence:
    measured: dict[str, list[float]] = {quantity: [] for each in (RECALL, SCORE) for quantity in each.values()}
    curves: dict[str, list[tuple[float, float]]] = {}
    for seed in trial.seeds:
        for kind, (layers, mixed) in KINDS.items():
            model, curves[kind] = learn(layers, mixed, seed, QUICK_STEPS if trial.quick else STEPS)
            torch.manual_seed(1000 + seed)
            measured[RECALL[kind]].append(recall(model, mixed))
            measured[SCORE[kind]].append(induction(model))
            trial.step(f"{kind}, seed {seed}")
    lines = [Line(kind, points) for kind, points in curves.items()]
    remark = f"The score of uniform attention is {chance():.3f}."
    figure = Lines("Repeated words predicted, last seed", "step", "share right", lines, zero_y=True)
    return Evidence(measured, (figure,), (remark,))


def texts(rows: int, mixed: bool) -> tuple[Tensor, Tensor]:
    """Words [R, LENGTH + 1] and the length of each row's string [R]; `mixed`: every repeat has its own order."""
    size = torch.randint(SHORTEST, LONGEST + 1, (rows, 1))
    words = torch.rand(rows, WORDS).argsort(1)[:, :LONGEST]  # all different
    place = torch.arange(LENGTH + 1 + LONGEST).expand(rows, -1)
    within = place % size
    if mixed:
        repeat = place // size
        within = (repeat + torch.rand(place.shape)).argsort(1).argsort(1) - repeat * size
    return words.gather(1, within[:, : LENGTH + 1]), size[:, 0]


def learn(layers: int, mixed: bool, seed: int, steps: int) -> tuple[GPT, list[tuple[float, float]]]:
    torch.manual_seed(seed)
    settings = Settings(layers=layers, width=WIDTH, heads=HEADS, context=LENGTH, dropout=0.0, position="rotary")
    model, curve = GPT(WORDS, settings), []
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        words, _ = texts(ROWS, mixed)
        loss = F.cross_entropy(model(words[:, :-1])[0].flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % EVERY == 0:
            curve.append((step + 1.0, recall(model, mixed)))
    return model.eval(), curve


@torch.no_grad()
def recall(model: GPT, mixed: bool) -> float:
    """The share of words predicted right after the string was read once, on new texts."""
    words, size = texts(TESTED, mixed)
    right = model(words[:, :-1])[0].argmax(-1) == words[:, 1:]
    return float(right[again(size)].float().mean())


def again(size: Tensor) -> Tensor:
    """[R, LENGTH]: the steps that read a word for the second time or more."""
    return torch.arange(LENGTH) >= size[:, None]


def scores(weights: Tensor, words: Tensor, size: Tensor) -> Tensor:
    """For each head of [R, H, T, T] its mean weight on the words that followed earlier occurrences of the word read."""
    same = words[:, :, None] == words[:, None, :]  # [R, T, T]
    after = F.pad(same[..., :-1], (1, 0)).tril()
    return (weights * after[:, None]).sum(-1).transpose(0, 1)[:, again(size)].mean(1)


@torch.no_grad()
def induction(model: GPT) -> float:
    """The induction score of the best head, on repeated strings."""
    words, size = texts(TESTED, mixed=False)
    parts = record(model, words[:, :-1])[1]
    return max(
        float(scores(part, words[:, :-1], size).max()) for name, part in parts.items() if name.endswith("/weights")
    )


def chance() -> float:
    """The score of attention that is uniform over all words read."""
    words, size = texts(TESTED, mixed=False)
    uniform = torch.ones(LENGTH, LENGTH).tril() / torch.arange(1, LENGTH + 1)[:, None]
    return float(scores(uniform.expand(TESTED, 1, -1, -1), words[:, :-1], size))


RECALL = {kind: f"share of repeated words predicted, {kind}" for kind in ("two layers", "one layer")}
RECALL["two layers, shuffled repeats"] = "share of repeated words predicted, two layers on shuffled repeats"
SCORE = {kind: f"induction score of the best head, {kind}" for kind in ("two layers", "one layer")}
SCORE["two layers, shuffled repeats"] = "induction score of the best head, two layers trained on shuffled repeats"

CLAIM = Claim(
    name="induction",
    number="C28",
    kinds=("measured",),
    quote="Attention - allows us to do “random access” on the context … Stack these layers … Can increase depth",
    where="002:21–33",
    statement="Two layers of attention learn to continue a string that they have read before, with an induction head; "
    "one layer of the same width does not.",
    conditions=(
        f"gpt of width {WIDTH} with {HEADS} heads in each layer, rotary positions. Each text has {LENGTH} words: a "
        f"string of {SHORTEST} to {LONGEST} different words out of {WORDS}, repeated; {STEPS} steps of {ROWS} fresh "
        "texts. Predicted: at the words read again, on new texts. Score: the mean weight on the words after earlier "
        "occurrences. This claim is ours: the notes stack layers but do not say what the second one adds."
    ),
    control_words=(
        "The same two layers do not learn it if every repeat has its own order: the words are the same, but nothing "
        "follows from the first reading."
    ),
    breaks=(
        "If all strings have the same length, one layer with positions finds the word by its distance. A "
        "convolution or a recurrence before it gives one layer what the first attention layer gives the second."
    ),
    expected=(
        Expect(RECALL["two layers"], "at least", 0.9, part="two layers"),
        Expect(SCORE["two layers"], "at least", 0.5, part="two layers"),
        Expect(RECALL["one layer"], "at most", 0.5, part="one layer"),
        Expect(SCORE["one layer"], "at most", 0.3, part="one layer"),
    ),
    control=(
        Expect(RECALL["two layers, shuffled repeats"], "at most", 0.5),
        Expect(SCORE["two layers, shuffled repeats"], "at most", 0.3),
    ),
    experiment=experiment,
    quick_words=f"3 seeds, {QUICK_STEPS} steps instead of {STEPS}",
    first_seed=SECOND_LOOK,
    cost=250.0,
)
