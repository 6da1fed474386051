"""The live figures of the course: trains their small models, and draws the pictures for readers without JavaScript.

    python studies/course_live.py train [NAME …]      docs/live/NAME.json; all of them take some minutes on one core
    python studies/course_live.py draw [NAME …]       docs/learn/figures/live-NAME.svg, drawn from the data by Chromium

A picture is what the figure's own script draws at first, so it has the same numbers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise, permutations
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from live_pages import DATA, live_script

from lecture_figures import learned, pieces
from regard.base.writing import write_text
from regard.corpora.phrasebook import make_pairs
from regard.exchange.chromium import Chromium
from regard.exchange.page_file import model_data
from regard.exchange.page_weights import PageWeights
from regard.report.svg_file import as_file

ROOT = Path(__file__).parents[1]
LARGEST = 300_000  # bytes of a figure's data
COMMON = 200  # source words that the small models know


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "draw"))
    parser.add_argument("names", nargs="*", choices=[*MADE, []], help="default: all")
    options = parser.parse_args()
    names = options.names or list(MADE)
    if options.what == "draw":
        for name, drawing in drawings(names).items():
            write_text(ROOT / "docs" / "learn" / "figures" / f"live-{name}.svg", drawing)
        return
    for name in names:
        text = json.dumps(MADE[name](), ensure_ascii=False, separators=(",", ":"))
        assert len(text.encode()) <= LARGEST, (name, len(text.encode()))
        write_text(DATA / f"{name}.json", text + "\n")
        print(f"{name}: {len(text.encode()):,} bytes", flush=True)


def drawings(names: list[str]) -> dict[str, str]:
    """What each figure draws before anybody has touched it."""
    with Chromium.start() as browser:
        page = browser.open("about:blank")
        page.evaluate(f"(() => {{ {live_script()} }})()")
        found = {}
        for name in names:
            data = (DATA / f"{name}.json").read_text(encoding="utf-8")
            found[name] = as_file(page.evaluate(f"regardLive.first({json.dumps(name)}, {data})"))
        return found


# -- the sentences ---------------------------------------------------------------------------------------------------


@cache
def pairs() -> tuple[tuple[str, str], ...]:
    """Short pairs of the phrasebook whose English words are common."""
    cut = [(pieces(pair.source), pieces(pair.target)) for pair in make_pairs(60_000, seed=1, longest=7)]
    counts = Counter(word for source, _ in cut for word in source.split())
    common = {word for word, _ in counts.most_common(COMMON)}
    found = list(dict.fromkeys(pair for pair in cut if common.issuperset(pair[0].split())))
    return tuple({source: (source, target) for source, target in found}.values())


def held_out() -> list[tuple[str, str]]:
    """One in ten of the pairs: no model has read them."""
    return list(pairs()[::10])


def taught() -> list[tuple[str, str]]:
    return [pair for place, pair in enumerate(pairs()) if place % 10]


def jack_and_jill() -> list[str]:
    people = ["Jack", "Jill", "Anna", "Omar", "Mei", "Luis", "Kofi", "Sara", "Ivan", "Noor"]
    things = ["water", "bread", "books", "tea", "flowers", "coins", "apples", "letters"]
    return [f"{a} gave {thing} to {b} so {b} thanked {a}" for a, b in permutations(people, 2) for thing in things]


def long_sentences() -> list[str]:
    """Who gave is thanked at the end, after up to two phrases that say nothing about it."""
    phrases = ["in the garden", "after lunch", "near the old bridge", "with a smile", "on a cold day", "at the station"]
    people = ["Jack", "Jill", "Anna", "Omar", "Mei", "Luis"]
    random, found = Random(1), []
    for _ in range(4000):
        giver, taker = random.sample(people, 2)
        between = " ".join([f"{giver} gave water to {taker}", *random.sample(phrases, random.randint(0, 2))])
        found.append(f"{between} so {taker} thanked {giver}")
    return sorted(dict.fromkeys(found), key=len, reverse=True)


# -- the data of each figure -----------------------------------------------------------------------------------------


def any_b() -> dict[str, Any]:
    """P(next is B) = σ(a · weight of the Bs + b), where the weights are a softmax of q for a B and 0 for an A."""
    random = Random(1)
    strings = ["".join(random.choices("AB", (5, 1), k=random.randint(2, 16))) for _ in range(400)]
    q, a, b = (nn.Parameter(torch.tensor(value)) for value in (0.0, 1.0, 0.0))
    optimizer = torch.optim.Adam([q, a, b], lr=0.05)
    bs = torch.tensor([float(string.count("B")) for string in strings])
    lengths = torch.tensor([float(len(string)) for string in strings])
    target = (bs > 0).float()
    for _ in range(2000):
        weight = bs * q.exp() / (bs * q.exp() + lengths - bs)
        loss = nn.functional.binary_cross_entropy_with_logits(a * weight + b, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"q": q.item(), "a": a.item(), "b": b.item(), "loss": loss.item()}


def gradient() -> dict[str, Any]:
    """The weights of an RNN and an LSTM, trained alike on sentences that end in their first word."""
    lines, nets = long_sentences(), {}
    for system in ("rnn", "lstm"):
        run = learned(system, lines, 4000, {"layers": 1, "width": 32, "dropout": 0.0}, 1e-2)
        w, u, b, b_u = run.model.get_submodule("layers.0").weights()
        nets[system] = {"w": rows(w), "u": rows(u), "b": rows(b + b_u)}
        nets[system]["table"] = rows(run.model.get_parameter("embedding.table.weight"))  # of inputs and outputs
        nets[system]["bias"] = rows(run.model.get_parameter("output.bias"))
    words = [run.tokenizer.token(symbol) for symbol in range(run.tokenizer.vocabulary)]
    return {"words": words, "nets": nets, "example": lines[0]}


def alignment() -> dict[str, Any]:
    model = {"cell": "gru", "layers": 1, "width": 40, "embedding": 24, "dropout": 0.0}
    run = learned("bahdanau", taught(), 2500, model, 8e-3)
    return {**packed(run), "examples": examples(12)}


def forcing() -> dict[str, Any]:
    model = {"cell": "gru", "layers": 1, "width": 40, "embedding": 24, "dropout": 0.0}
    run = learned("seq2seq", taught(), 1200, model, 8e-3)
    chosen = [pair for pair in held_out() if len(pair[1].split()) >= 5][:14]
    return {**packed(run), "pairs": chosen}


def heads() -> dict[str, Any]:
    model = {"layers": 2, "heads": 4, "width": 32, "position": "learned", "dropout": 0.0}
    return packed(learned("gpt", jack_and_jill(), 1500, model, 5e-3))


def temperature() -> dict[str, Any]:
    return packed(sentences_gpt())


def positions() -> dict[str, Any]:
    """The learned table of positions of the GPT that the figure of temperatures runs."""
    table = sentences_gpt().model.get_parameter("embedding.position.table.weight")
    return {"learned": rows(table[:64])}


@cache
def sentences_gpt() -> Any:
    model = {"layers": 2, "heads": 4, "width": 48, "context": 64, "position": "learned", "dropout": 0.1}
    return learned("gpt", [source for source, _ in taught()], 1500, model, 5e-3)


def smoothing() -> dict[str, Any]:
    """Bigrams of a small text and lines held out from it, as numbers of words; 0 is the boundary."""
    lines = [re.findall(r"\w+", source.lower()) for source, _ in pairs()]
    Random(1).shuffle(lines)
    train, test = lines[:2000], lines[2000:2400]
    words = ["<eos>", *sorted({word for line in train for word in line})]
    number = {word: place for place, word in enumerate(words)}
    known = [line for line in test if number.keys() >= set(line)]
    counts = Counter(pair for line in train for ids in [[0, *(number[w] for w in line), 0]] for pair in pairwise(ids))
    return {
        "words": words,
        "bigrams": [[*pair, count] for pair, count in sorted(counts.items())],
        "test": [[number[word] for word in line] for line in known],
        "example": "the",
    }


MADE: Mapping[str, Callable[[], dict[str, Any]]] = {
    "any-b": any_b,
    "gradient": gradient,
    "alignment": alignment,
    "forcing": forcing,
    "heads": heads,
    "temperature": temperature,
    "positions": positions,
    "smoothing": smoothing,
}


def packed(run: Any) -> dict[str, Any]:
    """The run as `regard export --to page --weights fp16` packs it."""
    block = PageWeights("fp16")
    made = model_data(run, block)
    return {"made": made, "letters": block.packed()}


def rows(tensor: torch.Tensor) -> Any:
    """Numbers with four digits, which is what the figures compute with."""
    found = tensor.detach().double()
    return [[float(f"{value:.4g}") for value in row] for row in found] if found.dim() > 1 else [
        float(f"{value:.4g}") for value in found
    ]  # fmt: skip


def examples(count: int) -> list[str]:
    return [source for source, _ in held_out() if len(source.split()) >= 5][:count]


if __name__ == "__main__":
    main()
