"""C17, heads: several heads look at different things, some near and some far.

    distance of a head = mean over t of Σ_s α_ts (t − s),        spread = standard deviation over the heads of a layer

The largest difference between h heads grows with h even where all are drawn alike; the standard deviation (divided by
h − 1) does not, and models with the same number of heads are compared.
"""

from __future__ import annotations

from statistics import mean

import torch
from torch import Tensor

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.language_models import WINDOW, reader, spoken
from regard.report.figures import Line, Lines
from regard.runs.folder import Tokenizers, build_model
from regard.runs.language_run import LanguageRun
from regard.systems.model import Model

ROWS = 64  # windows that are looked at


def experiment(trial: Trial) -> Evidence:
    found: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for seed in trial.seeds:
        run = reader(trial, "gpt", seed)
        text = windows(run)
        found[TRAINED].append(distances(run.model, text))
        found[FRESH].append(distances(untrained(run, seed), text))
        mixed = reader(trial, "gpt", seed, shuffled=True)
        found[SHUFFLED].append(
            distances(mixed.model, windows(mixed))
        )  # the same sentences; its words have other numbers
        trial.step(f"seed {seed}")
    measured = {
        OVER_FRESH: [spread(one) - spread(other) for one, other in zip(found[TRAINED], found[FRESH])],
        OVER_SHUFFLED: [spread(one) - spread(other) for one, other in zip(found[TRAINED], found[SHUFFLED])],
        AT_FIRST: [spread(one) for one in found[FRESH]],
        UNORDERED: [spread(one) for one in found[SHUFFLED]],
    }
    table = tuple(
        {"model": kind, "spread": mean(map(spread, given)), "nearest head": mean(float(one.min()) for one in given),
         "farthest head": mean(float(one.max()) for one in given)}
        for kind, given in found.items()
    )  # fmt: skip
    return Evidence(measured, (figure(found),), table=table)


def windows(run: LanguageRun) -> Tensor:
    """Held-out sentences as windows of tokens: [rows, WINDOW]."""
    ids = [symbol for line in spoken()["test"] for symbol in (*run.tokenizer.encode(line), run.tokenizer.eos)]
    rows = min(ROWS, len(ids) // WINDOW)
    return torch.tensor(ids[: rows * WINDOW]).view(rows, WINDOW)


def untrained(run: LanguageRun, seed: int) -> Model:
    """The same model before its first step."""
    torch.manual_seed(seed)
    return build_model(run.recipe, Tokenizers(run.tokenizer))


@torch.no_grad()
def distances(model: Model, text: Tensor) -> Tensor:
    """How far back each head looks on average: [layers, heads]."""
    _, _, parts = model.eval().explain(text.to(model.device))
    return torch.stack([attended(layer["attention"]["weights"]) for layer in parts["layers"].values()])


def attended(weights: Tensor) -> Tensor:
    """Of weights [rows, heads, T, T] the mean distance of each head; the first word has no choice and is left out."""
    steps = torch.arange(weights.size(-1), device=weights.device)
    back = (steps[:, None] - steps).clamp(min=0).to(weights.dtype)
    return (weights * back).sum(-1)[..., 1:].mean(dim=(0, 2))


def spread(distance: Tensor) -> float:
    """The standard deviation over the heads of a layer, the mean over layers."""
    return float(distance.std(dim=1, correction=1).mean())


def figure(found: dict[str, list[Tensor]]) -> Lines:
    lines = []
    for place, (kind, given) in enumerate(found.items(), start=1):
        heads = [float(head) for one in given for head in one.flatten()]
        across = [place + 0.5 * (n / max(len(heads) - 1, 1) - 0.5) for n in range(len(heads))]
        lines.append(Line(kind, list(zip(across, heads)), joined=False))
    x = " · ".join(f"{place} = {kind}" for place, kind in enumerate(found, start=1))
    return Lines("How far back each head looks", x, "mean distance, words", lines, zero_y=True)


TRAINED, FRESH, SHUFFLED = KINDS = "trained on sentences", "untrained", "trained on shuffled words"
OVER_FRESH = "spread of distances over heads, trained minus untrained"
OVER_SHUFFLED = "spread of distances over heads, trained on sentences minus on shuffled words"
AT_FIRST = "spread of distances over heads, untrained"
UNORDERED = "spread of distances over heads, trained on shuffled words"

CLAIM = Claim(
    name="heads",
    number="C17",
    kinds=("measured",),
    quote="MULTIPLE INDIVIDUAL ATTENTION HEADS … FOR ATTENDING TO DIFFERENT THINGS.",
    where="003:300",
    statement="Trained on sentences, heads differ in how far back they look: more than before training, and more than "
    "when trained on the same words shuffled.",
    conditions=f"gpt of two layers with four heads on the phrasebook's English, windows of {WINDOW} words; distance in "
    "words, averaged over held-out text; spread is the standard deviation over a layer's four heads.",
    control_words="The same model before training looks everywhere alike: its heads hardly differ.",
    breaks="In a text without order it makes no difference where a head looks, so that nothing keeps it from drifting: "
    "heads that differ need not have found anything. The largest difference grows with the number of heads by chance "
    "alone: compare models with equally many.",
    expected=(Expect(OVER_FRESH, "at least", 0.1, unit="words"), Expect(OVER_SHUFFLED, "at least", 0.1, unit="words")),
    control=(Expect(AT_FIRST, "at most", 0.1, unit="words"),),
    besides=(Expect(UNORDERED, "at most", 0.1, unit="words"),),
    experiment=experiment,
    seeds=10,
    quick_words="3 seeds, 200 steps instead of 1200, in which heads hardly begin to differ",
    cost=300.0,
)
