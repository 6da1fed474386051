"""Head scores: how much of a head's attention goes where a known mechanism would look, compared with chance.

    previous     to the previous word                                          Voita et al. 2019
    positional   to its preferred distance
    duplicate    to earlier occurrences of the same word                       Wang et al. 2023
    induction    to the word after an earlier occurrence of the same word      Elhage et al. 2021, Olsson et al. 2022
    syntactic    from a verb to its subject, with words between them           Clark et al. 2019, Voita et al. 2019

Chance is the same share for attention that is uniform over all visible words. Induction and duplicates are measured
on a repeated string of random words, syntax on the phrasebook's English sentences, whose grammar gives the subject of
each verb, and the other scores on the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.base.errors import RegardError
from regard.base.word_spans import find_words
from regard.corpora.phrasebook import make_pairs
from regard.insight.interventions.changing import names_of, record
from regard.insight.interventions.reading import Reading

REPEATED = 16  # number of random words, which are read twice
SENTENCES, MIN_LINKS = 300, 20  # sentences of the phrasebook; and how many verbs and subjects the model must know


@dataclass(frozen=True)
class HeadScores:
    name: str
    previous: float
    positional: float
    distance: int  # that it prefers
    duplicate: float
    induction: float
    syntactic: float | None = None  # None: the model does not know the phrasebook's words


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
    syntactic, by_chance = syntax(reading, list(text), seed)
    heads = []
    for name, weights in text.items():  # [H, T, T]
        for head in range(len(weights)):
            label = names_of([name.removesuffix("weights") + "heads"])[0]
            found = describe(f"{label}[{head}]", weights[head], twice[name][0, head])
            heads.append(replace(found, syntactic=syntactic.get((name, head))))
    size, length = len(next(iter(text.values()))[0]), tokens.size(1)
    chance = describe("chance", uniform(size), uniform(length))
    return AllHeads(tuple(heads), replace(chance, syntactic=by_chance))


def is_causal(name: str) -> bool:
    return name.endswith("/weights") and "/cross/" not in name and not name.startswith("encoder/")


def repeated(reading: Reading, seed: int) -> Tensor:
    """<eos>, random words, and the same words again: [1, 2 n + 1]; fewer if the model's context is shorter."""
    tokenizer, context = reading.tokenizer, reading.model.context
    count = REPEATED if context is None else min(REPEATED, (context - 1) // 2)
    words = torch.tensor([one for one in range(len(tokenizer.tokens)) if one not in tokenizer.specials])
    drawn = words[torch.randperm(len(words), generator=torch.Generator().manual_seed(seed))[:count]]
    return torch.cat([torch.tensor([tokenizer.begin]), drawn, drawn])[None].to(reading.tokens.device)


def syntax(reading: Reading, names: list[str], seed: int) -> tuple[dict[tuple[str, int], float], float | None]:
    """For each head the mean weight that a verb's last token gives its subject, and the same by chance."""
    found: dict[tuple[str, int], list[float]] = {}
    by_chance: list[float] = []
    sentences = list(known_sentences(reading, seed))
    for start in range(0, len(sentences), reading.batch):
        some = sentences[start : start + reading.batch]
        rows = [torch.tensor(ids, device=reading.tokens.device) for ids, _ in some]
        parts = record(reading.model, pad_sequence(rows, batch_first=True))[1]  # padding is never seen before it
        for row, (_, links) in enumerate(some):
            for verb, subject in links:
                by_chance.append(len(subject) / (verb + 1))
                for name in names:
                    shares = parts[name][row, :, verb, subject].sum(-1).tolist()
                    for head, share in enumerate(shares):
                        found.setdefault((name, head), []).append(share)
    if len(by_chance) < MIN_LINKS:
        return {}, None
    return {key: fmean(shares) for key, shares in found.items()}, fmean(by_chance)


def known_sentences(reading: Reading, seed: int) -> Iterator[tuple[list[int], list[tuple[int, list[int]]]]]:
    """The phrasebook's sentences that the model can read: their tokens, and for each verb that is separated from its
    subject, its last token and the tokens of the subject.
    """
    tokenizer, context = reading.tokenizer, reading.model.context
    if reading.source is not None:  # the output of a translator has no links
        return
    for pair in make_pairs(SENTENCES, seed=seed, shortest=4):
        ids, offsets = [tokenizer.begin, *tokenizer.encode(pair.source)], tokenizer.offsets(pair.source)
        if len(offsets) + 1 != len(ids) or len(ids) > (context or len(ids)):
            continue
        spans = find_words(pair.source)
        within = [[1 + n for n, (a, b) in enumerate(offsets) if a < end and b > start] for start, end in spans]
        apart = [(within[verb], within[subject]) for subject, verb in pair.agreement if verb > subject + 1]
        links = [(verb[-1], subject) for verb, subject in apart if known(ids, verb + subject, tokenizer.unk)]
        if links:
            yield ids, links


def known(ids: list[int], places: list[int], unknown: int | None) -> bool:
    return bool(places) and all(ids[place] != unknown for place in places)


def uniform(size: int) -> Tensor:
    return torch.ones(size, size).tril() / torch.arange(1, size + 1)[:, None]


def describe(name: str, text: Tensor, twice: Tensor) -> HeadScores:
    """The scores of weights [T, T] on a text and on a repeated string after a boundary."""
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
