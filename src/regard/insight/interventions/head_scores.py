"""What a head does: how much of its attention goes where a known mechanism would look, compared with chance.

    previous     to the word before                                            Voita et al. 2019
    positional   to the distance that it prefers
    duplicate    to earlier occurrences of the same word                       Wang et al. 2023
    induction    to the word after an earlier occurrence of the same word      Elhage et al. 2021, Olsson et al. 2022

Chance is the same share for attention that is uniform over all visible words. Induction and duplicates are measured
on a string of random words that is read twice, the others on the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.insight.interventions.changing import names_of, record
from regard.insight.interventions.reading import Reading

REPEATED = 16  # random words, read twice


@dataclass(frozen=True)
class HeadScores:
    name: str
    previous: float
    positional: float
    distance: int  # that it prefers
    duplicate: float
    induction: float


@dataclass(frozen=True)
class AllHeads:
    heads: tuple[HeadScores, ...]
    chance: HeadScores

    def as_json(self) -> dict[str, Any]:
        return {"heads": [vars(one) for one in self.heads], "chance": vars(self.chance)}


@torch.no_grad()
def head_scores(reading: Reading, seed: int = 0) -> AllHeads:
    """The scores of every causal head; the text's own for positions, a repeated random string for copies."""
    text = {name: value[0] for name, value in reading.parts().items() if is_causal(name)}
    if not text:
        raise RegardError("This system has no causal attention, so there are no heads to describe.")
    tokens = repeated(reading, seed)
    twice = record(reading.model, tokens, reading.source)[1]
    heads = []
    for name, weights in text.items():  # [H, T, T]
        for head in range(len(weights)):
            label = names_of([name.removesuffix("weights") + "heads"])[0]
            heads.append(describe(f"{label}[{head}]", weights[head], twice[name][0, head]))
    size, length = len(next(iter(text.values()))[0]), tokens.size(1)
    return AllHeads(tuple(heads), describe("chance", uniform(size), uniform(length)))


def is_causal(name: str) -> bool:
    return name.endswith("/weights") and "/cross/" not in name and not name.startswith("encoder/")


def repeated(reading: Reading, seed: int) -> Tensor:
    """<eos>, random words, and the same words again: [1, 2 n + 1]; fewer where the model reads less."""
    tokenizer, context = reading.tokenizer, reading.model.context
    count = REPEATED if context is None else min(REPEATED, (context - 1) // 2)
    words = torch.tensor([one for one in range(len(tokenizer.tokens)) if one not in tokenizer.specials])
    drawn = words[torch.randperm(len(words), generator=torch.Generator().manual_seed(seed))[:count]]
    return torch.cat([torch.tensor([tokenizer.eos]), drawn, drawn])[None].to(reading.tokens.device)


def uniform(size: int) -> Tensor:
    return torch.ones(size, size).tril() / torch.arange(1, size + 1)[:, None]


def describe(name: str, text: Tensor, twice: Tensor) -> HeadScores:
    """The scores of weights [T, T] on a text and on a string that is read twice after a boundary."""
    far = min(len(text) - 1, (len(text) + 1) // 2)  # at least half of the rows reach it
    means = [float(text.diagonal(-distance).mean()) for distance in range(far + 1)]
    count = (len(twice) - 1) // 2
    again = torch.arange(count + 1, 2 * count + 1)
    distance = max(range(len(means)), key=means.__getitem__) if len(text) > 1 else 0
    return HeadScores(
        name,
        means[1] if len(means) > 1 else 0.0,
        means[distance],
        distance,
        float(twice[again, again - count].mean()) if count else 0.0,
        float(twice[again, again - count + 1].mean()) if count else 0.0,
    )
