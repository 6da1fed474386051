"""C17, heads: several heads look at different things, some near and some far.

    distance of a head = mean over t of Σ_s α_ts (t − s),        spread = standard deviation over the heads of a layer
    use of the far     = L(a head cannot see beyond 3 words) − L,    use of the near = L(… cannot see those 3) − L

The largest difference between h heads grows with h even if all have one distribution; the standard deviation (divided
by h − 1) does not, and models with the same number of heads are compared. Distances may drift where they do not matter:
hence the ablation, which measures the loss if a head cannot look there. The null has the same words in random order and
lines that end at random, so that nothing in it can be predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims import corpora
from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.language_models import WINDOW, reader, spoken
from regard.layers.attention import CausalSelfAttention
from regard.report.figures import Line, Lines
from regard.runs.store.folder import Tokenizers, build_model
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.model import Model

ROWS = 64  # windows that are looked at
NEAR = 3  # words back, at most


def experiment(trial: Trial) -> Evidence:
    looked: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    used: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    unordered = corpora.shuffled(spoken())["test"]
    for seed in trial.seeds:
        run = reader(trial, "gpt", seed)
        mixed = reader(trial, "gpt", seed, "shuffled")
        text = windows(run, spoken()["test"])
        for kind, model, read in (
            (TRAINED, run.model, text),
            (FRESH, untrained(run, seed), text),
            (SHUFFLED, mixed.model, windows(mixed, unordered)),
        ):
            looked[kind].append(distances(model, read))
            used[kind].append(uses(model, read, looked[kind][-1]))
        trial.step(f"seed {seed}")
    measured = {
        OVER_FRESH: [spread(one) - spread(other) for one, other in zip(looked[TRAINED], looked[FRESH])],
        OVER_SHUFFLED: [spread(one) - spread(other) for one, other in zip(looked[TRAINED], looked[SHUFFLED])],
        FAR_USED: [far for far, _ in used[TRAINED]],
        NEAR_USED: [near for _, near in used[TRAINED]],
        AT_FIRST: [spread(one) for one in looked[FRESH]],
        FAR_IDLE: [far for far, _ in used[SHUFFLED]],
        NEAR_IDLE: [near for _, near in used[SHUFFLED]],
        UNORDERED: [spread(one) for one in looked[SHUFFLED]],
    }
    table = tuple(
        {"model": kind, "spread": mean(map(spread, given)), "nearest head": mean(float(one.min()) for one in given),
         "farthest head": mean(float(one.max()) for one in given), "far used": mean(far for far, _ in used[kind]),
         "near used": mean(near for _, near in used[kind])}
        for kind, given in looked.items()
    )  # fmt: skip
    return Evidence(measured, (figure(looked),), table=table)


def windows(run: LanguageRun, lines: list[str]) -> Tensor:
    """Held-out lines as windows of tokens: [rows, WINDOW]."""
    ids = [symbol for line in lines for symbol in (*run.tokenizer.encode(line), run.tokenizer.eos)]
    rows = min(ROWS, len(ids) // WINDOW)
    return torch.tensor(ids[: rows * WINDOW]).view(rows, WINDOW)


@torch.no_grad()
def uses(model: Model, text: Tensor, distance: Tensor) -> tuple[float, float]:
    """Means over layers: how much more the farthest-looking head loses than the nearest-looking one when it cannot see
    beyond three words, and how much more the nearest-looking one loses when it cannot see those three."""
    far, near = [], []
    for layer, heads in enumerate(distance):
        nearest, farthest = int(heads.argmin()), int(heads.argmax())
        far.append(loss_without(model, text, layer, farthest, "far") - loss_without(model, text, layer, nearest, "far"))
        near.append(
            loss_without(model, text, layer, nearest, "near") - loss_without(model, text, layer, farthest, "near")
        )
    return mean(far), mean(near)


def loss_without(model: Model, text: Tensor, layer: int, head: int, words: str) -> float:
    """Nats per word where one head cannot see "near" words (1 to 3 back) or "far" ones; it always sees its own.

    `explain` computes by the written equations, which `blind` changes; fast code would not ask for them.
    """
    blocks = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    text = text.to(model.device)
    with blind(blocks[layer], head, words):
        logits, _, _ = model.eval().explain(text[:, :-1])
    return float(F.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten()))


@contextmanager
def blind(attention: CausalSelfAttention, head: int, words: str) -> Iterator[None]:
    plain = attention.qkv_and_mask

    def qkv_and_mask(*given: object) -> tuple[Tensor, Tensor, Tensor, Tensor, object]:
        query, keys, values, mask, new = plain(*given)  # type: ignore[arg-type]
        steps = torch.arange(keys.size(2), device=keys.device)
        back = steps[:, None] - steps
        unseen = back > NEAR if words == "far" else (back >= 1) & (back <= NEAR)
        closed = torch.zeros(1, query.size(1), *unseen.shape, dtype=mask.dtype, device=mask.device)
        closed[:, head].masked_fill_(unseen, -torch.inf)
        return query, keys, values, mask + closed, new

    attention.qkv_and_mask = qkv_and_mask  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del attention.qkv_and_mask


def untrained(run: LanguageRun, seed: int) -> Model:
    """The same model before its first step."""
    torch.manual_seed(seed)
    return build_model(run.recipe, Tokenizers(run.tokenizer))


@torch.no_grad()
def distances(model: Model, text: Tensor) -> Tensor:
    """The mean distance that each head looks back: [layers, heads]."""
    _, _, parts = model.eval().explain(text.to(model.device))
    return torch.stack([attended(layer["attention"]["weights"]) for layer in parts["layers"].values()])


def attended(weights: Tensor) -> Tensor:
    """The mean distance of each head, from weights [rows, heads, T, T]; the first word sees only itself: left out."""
    steps = torch.arange(weights.size(-1), device=weights.device)
    back = (steps[:, None] - steps).clamp(min=0).to(weights.dtype)
    return (weights * back).sum(-1)[..., 1:].mean(dim=(0, 2))


def spread(distance: Tensor) -> float:
    """The standard deviation over the heads of a layer, the mean over layers."""
    return float(distance.std(dim=1, correction=1).mean())


def figure(looked: dict[str, list[Tensor]]) -> Lines:
    lines = []
    for place, (kind, given) in enumerate(looked.items(), start=1):
        heads = [float(head) for one in given for head in one.flatten()]
        across = [place + 0.5 * (n / max(len(heads) - 1, 1) - 0.5) for n in range(len(heads))]
        lines.append(Line(kind, list(zip(across, heads)), joined=False))
    x = " · ".join(f"{place} = {kind}" for place, kind in enumerate(looked, start=1))
    return Lines("How far back each head looks", x, "mean distance, words", lines, zero_y=True)


TRAINED, FRESH, SHUFFLED = KINDS = "trained on sentences", "untrained", "trained on shuffled words"
OVER_FRESH = "spread of distances over heads, trained minus untrained"
OVER_SHUFFLED = "spread of distances over heads, model trained on sentences minus model trained on shuffled words"
FAR_USED = "loss without far words, of the farthest-looking head minus that of the nearest-looking one"
NEAR_USED = "loss without near words, of the nearest-looking head minus that of the farthest-looking one"
AT_FIRST = "spread of distances over heads, untrained"
FAR_IDLE = "loss without far words, farthest minus nearest head, trained and tested on shuffled words"
NEAR_IDLE = "loss without near words, nearest minus farthest head, trained and tested on shuffled words"
UNORDERED = "spread of distances over heads, trained on shuffled words"
MIN_EFFECT = 0.01  # nats per word
DISTANCES, USE = "distances", "use"

CLAIM = Claim(
    name="heads",
    number="C17",
    kinds=("measured",),
    quote="MULTIPLE INDIVIDUAL ATTENTION HEADS … FOR ATTENDING TO DIFFERENT THINGS. … Capture short-range & long-range "
    "dependencies within a sequence",
    where="003:300; 004:226",
    statement="Trained on sentences, heads differ in how far back they look: more than before training, and more than "
    "when trained on the same words in random order. And they use this: without far words, the head that looks "
    "farthest loses more; without near words, the one that looks nearest does.",
    conditions=(
        f"gpt of two layers with four heads on the phrasebook's English, windows of {WINDOW} words. Distances are in "
        "words, averaged over held-out text; spread is the standard deviation over a layer's four heads. Near means "
        f"1 to {NEAR} words back; one head of a layer at a time is kept from looking there, and results are means "
        "over layers, in nats per word."
    ),
    control_words=(
        "Before training, the same model looks everywhere alike. If words and line ends are random, nothing depends "
        "on where a head looks, and an ablation costs nothing."
    ),
    breaks=(
        "In a text without order, nothing keeps a head from drifting, so heads that differ need not have learned "
        "anything. The largest difference grows with the number of heads by chance alone, so compare only models "
        "with equally many. Shuffled lines that keep their lengths are not a valid null, because a head can count "
        "to their ends, and one does."
    ),
    expected=(
        Expect(OVER_FRESH, "at least", 0.1, unit="words", part=DISTANCES),
        Expect(OVER_SHUFFLED, "at least", 0.1, unit="words", part=DISTANCES),
        Expect(FAR_USED, "at least", MIN_EFFECT, unit="nats per word", part=USE),
        Expect(NEAR_USED, "at least", MIN_EFFECT, unit="nats per word", part=USE),
    ),
    control=(
        Expect(AT_FIRST, "at most", 0.1, unit="words", part=DISTANCES),
        Expect(FAR_IDLE, "at most", MIN_EFFECT, unit="nats per word", part=USE),
        Expect(NEAR_IDLE, "at most", MIN_EFFECT, unit="nats per word", part=USE),
    ),
    besides=(Expect(UNORDERED, "at most", 0.1, unit="words"),),
    experiment=experiment,
    seeds=10,
    quick_words="3 seeds, 200 steps instead of 1200, in which heads hardly begin to differ",
    cost=300.0,
)
