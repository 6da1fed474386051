"""C8, set-to-set: attention without mask and positions does not know the order of its words.

    f(ΠX) = Π f(X)   for every permutation Π, at any depth

Each output is a function of its own word and of the set of all words; reorder the words, and the outputs follow.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.claims.claim import Claim, Evidence, Expect, Trial, Worked
from regard.layers.attention import CausalSelfAttention, FullSelfAttention
from regard.layers.blocks import FeedForward, PostNormEncoderBlock, PreNormBlock, PreNormEncoderBlock
from regard.layers.encoder import TransformerEncoder
from regard.layers.position import Index, Learned, OneHot, Rotary, Sine, Sinusoid
from regard.layers.state import Span
from regard.report.figures import Intervals, Mark

WIDTH, HEADS, MAX_WORDS = 16, 2, 12
DEPTHS = (1, 2, 4)
ENCODINGS: dict[str, Callable[[], nn.Module]] = {
    "index": lambda: Index(1),
    "one-hot": lambda: OneHot(MAX_WORDS),
    "sine": lambda: Sine(WIDTH),
    "sinusoid": lambda: Sinusoid(WIDTH),
    "learned": lambda: Learned(WIDTH, MAX_WORDS),
}
Map = Callable[[Tensor], Tensor]  # words [n, D] → outputs [n, D]


def experiment(trial: Trial) -> Evidence:
    by_name: dict[str, list[float]] = {}
    blind: dict[int, list[float]] = {1: [], 2: []}
    for seed in trial.seeds:
        torch.manual_seed(seed)
        x = torch.randn(int(torch.randint(4, MAX_WORDS + 1, ())), WIDTH, dtype=torch.float64)
        order = shuffled(len(x))
        for name, function in maps().items():
            by_name.setdefault(name, []).append(unlike(function(x[order]), function(x)[order]))
        prefix = torch.cat([shuffled(len(x) - 1), torch.tensor([len(x) - 1])])  # the last word stays
        for depth in blind:
            function = causal(depth)
            blind[depth].append(unlike(function(x[prefix])[-1], function(x)[-1]))
        trial.step(f"draw {seed}")
    positions = [value for name in (*ENCODINGS, "rotary") for value in by_name[f"positions: {name}"]]
    marks = [Mark(name, sum(v) / len(v), min(v), max(v)) for name, v in by_name.items()]
    return Evidence(
        {
            BARE: [value for depth in DEPTHS for value in by_name[f"attention alone, {depth} deep"]],
            BLOCKS: [value for depth in DEPTHS for kind in NORMS for value in by_name[f"{kind} blocks, {depth} deep"]],
            POSITIONS: positions,
            CAUSAL: by_name["causal mask, 1 deep"] + by_name["causal mask, 2 deep"],
            LAST_OF_ONE: blind[1],
            LAST_OF_TWO: blind[2],
        },
        figures=(
            Intervals(
                title="How far f(ΠX) is from Πf(X): mean, smallest and largest draw",
                x="difference, as a fraction of the largest output (1e-17 stands for 0)",
                marks=[Mark(m.name, *(max(v, 1e-17) for v in (m.value, m.low, m.high))) for m in marks],
                log_x=True,
            ),
        ),
    )


def shuffled(count: int) -> Tensor:
    """A random order other than the given one."""
    while True:
        order = torch.randperm(count)
        if not torch.equal(order, torch.arange(count)):
            return order


def unlike(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


# -- what is tried ---------------------------------------------------------------------------------------------------

NORMS = {"pre-norm": PreNormEncoderBlock, "post-norm": PostNormEncoderBlock}


def maps() -> dict[str, Map]:
    made: dict[str, Map] = {}
    for depth in DEPTHS:
        made[f"attention alone, {depth} deep"] = encoder(FullSelfAttention(WIDTH, HEADS) for _ in range(depth))
        for kind, block in NORMS.items():
            made[f"{kind} blocks, {depth} deep"] = encoder(
                block(FullSelfAttention(WIDTH, HEADS), FeedForward(WIDTH, 2 * WIDTH)) for _ in range(depth)
            )
    for name, encoding in ENCODINGS.items():
        made[f"positions: {name}"] = placed(stirred(encoding()), encoder([FullSelfAttention(WIDTH, HEADS)]))
    made["positions: rotary"] = encoder([FullSelfAttention(WIDTH, HEADS, position=Rotary())])
    for depth in (1, 2):
        made[f"causal mask, {depth} deep"] = causal(depth)
    return made


def stirred(module: nn.Module) -> nn.Module:
    """In fp64 and with weights large enough for every part to matter."""
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    return module.double().requires_grad_(False)


def encoder(layers: object) -> Map:
    stack = stirred(TransformerEncoder(layers))  # type: ignore[arg-type]  # bare attention is called as a block is
    return lambda x: stack(x[None])[0]


def placed(encoding: nn.Module, function: Map) -> Map:
    """The function of words to which their places have been added."""

    def with_places(x: Tensor) -> Tensor:
        places = encoding(torch.arange(len(x))[None], x.dtype)[0]
        return function(x + nn.functional.pad(places, (0, x.size(1) - places.size(1))))

    return with_places


def causal(depth: int) -> Map:
    """Blocks of a language model, and no positions."""
    blocks = [PreNormBlock(CausalSelfAttention(WIDTH, HEADS), FeedForward(WIDTH, 2 * WIDTH)) for _ in range(depth)]
    for block in blocks:
        stirred(block)

    def read(x: Tensor) -> Tensor:
        y, span = x[None], Span(torch.zeros(1, dtype=torch.int64))
        for block in blocks:
            y, _ = block(y, block.begin(1, device="cpu", dtype=x.dtype), span)
        return y[0]

    return read


# -- the notes' sentences --------------------------------------------------------------------------------------------


def worked() -> list[Worked]:
    torch.manual_seed(0)
    first = ["Jack", "gave", "water", "to", "Jill"]
    second = ["Jill", "gave", "water", "to", "Jack"]
    vectors = {word: torch.randn(WIDTH, dtype=torch.float64) for word in first}
    attend = encoder([FullSelfAttention(WIDTH, HEADS)])

    def told_apart(function: Map) -> str:
        one, other = (function(torch.stack([vectors[word] for word in words])) for words in (first, second))
        apart = [word for word in first if unlike(one[first.index(word)], other[second.index(word)]) > 1e-10]
        return " ".join(apart) or "none"

    one_hot = OneHot(4)(torch.arange(3)[None], torch.float64)[0]
    digits = " | ".join(" ".join(f"{digit:.0f}" for digit in place) for place in one_hot)
    places = told_apart(placed(OneHot(5), attend))
    rows = (
        ("words that differ in the two sentences, no positions", "none", told_apart(attend), "001:145, 186"),
        ("words that differ in the two sentences, one-hot positions", " ".join(first), places, "001:186"),
        ("one-hot places of Jack gave water", "1 0 0 0 | 0 1 0 0 | 0 0 1 0", digits, "001:195"),
    )
    return [Worked(what, noted, here, noted == here, where) for what, noted, here, where in rows]


BARE = "f(ΠX) against Πf(X), attention alone, 1, 2 and 4 deep"
BLOCKS = "the same, pre-norm and post-norm blocks, 1, 2 and 4 deep"
POSITIONS = "the same with positions: index, one-hot, sine, sinusoid, learned, rotary"
CAUSAL = "the same with a causal mask and no positions, 1 and 2 deep"
LAST_OF_ONE = "one causal layer: change of the last output when the words before it are reordered"
LAST_OF_TWO = "two causal layers: change of the last output when the words before it are reordered"

CLAIM = Claim(
    name="set-to-set",
    number="C8",
    kinds=("identity",),
    quote="set to set … see all input ↳ no distance",
    where="001:145–147",
    statement="Attention without mask and positions maps a set to a set: reorder the words, and the outputs are "
    "reordered in the same way, at any depth.",
    conditions=(
        "No mask, no positions; also with layer norm, feed-forward and residual connections; fp64, random weights, "
        "4 to 12 words."
    ),
    control_words="Any of six kinds of positions breaks it.",
    breaks=(
        "A causal mask also breaks this, because the order of the words then matters. Yet in one causal layer, the "
        "last output still does not depend on the order of the earlier words (002:33: order comes later); in two "
        "layers it does, because the words in between have already seen different prefixes."
    ),
    expected=(Expect(BARE, "at most", 1e-10, over="draws"), Expect(BLOCKS, "at most", 1e-10, over="draws")),
    control=(Expect(POSITIONS, "at least", 1e-3, over="draws"),),
    besides=(
        Expect(CAUSAL, "at least", 1e-3, over="draws"),
        Expect(LAST_OF_ONE, "at most", 1e-10, over="draws"),
        Expect(LAST_OF_TWO, "at least", 1e-3, over="draws"),
    ),
    experiment=experiment,
    worked=worked,
    quick_words="fewer draws",
    seeds=30,
    quick_seeds=8,
    cost=1,
)
