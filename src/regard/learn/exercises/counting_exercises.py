"""Exercises on counting: n-grams, Kneser-Ney, perplexity, BLEU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.evaluation.bleu import Statistics
from regard.evaluation.perplexity import Likelihood
from regard.learn.exercises.grading import ExpectedOutput, Function, Grader, Mistake, RandomInputs
from regard.systems.kneser_ney import (
    FALLBACK,
    Counts,
    adjusted_counts,
    count_grams,
    discounts,
    kneser_ney,
    relative_frequencies,
)

TABLE = ("word before", "next word")

# -- count and normalize -----------------------------------------------------------------------------------------------


def _texts(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for k in (0.0, 1.0, random.uniform(0.1, 0.9)):
        vocabulary = random.whole(4, 6)
        extra = random.tokens(vocabulary, random.whole(20, 30)).tolist()
        yield [*range(vocabulary), *extra, random.whole(1, vocabulary - 1)], vocabulary, k


def _bigrams(words: list[int], vocabulary: int, k: float) -> Tensor:
    """By Regard's counts, which begin after a line's end, word 0: as these texts do."""
    levels = count_grams(np.array(words[1:]), vocabulary, 2)
    pairs, frequency = levels[1], relative_frequencies(levels, vocabulary)[1]
    total = np.bincount(pairs.keys // vocabulary, pairs.count, minlength=vocabulary)
    table = np.zeros(vocabulary * vocabulary)
    table[pairs.keys] = np.exp(frequency.log_probability)
    counts = table.reshape(vocabulary, vocabulary) * total[:, None]
    return torch.from_numpy((counts + k) / (total + k * vocabulary)[:, None])


def _table(words: list[int], vocabulary: int) -> Tensor:
    counts = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
    for before, after in pairwise(words):
        counts[before, after] += 1
    return counts


def _estimated(rule: Function) -> Function:
    return lambda words, vocabulary, k: rule(_table(words, vocabulary), vocabulary, k)


ngram_counts = Grader(
    own="systems/kneser_ney.py: count_grams, relative_frequencies",
    cases=_texts,
    answer=_bigrams,
    outputs=(ExpectedOutput("the probability", TABLE),),
    mistakes=(
        Mistake("the columns sum to 1, and the rows must: divide by the counts of the word before",
                _estimated(lambda c, V, k: (c + k) / (c.sum(0) + k * V))),
        Mistake("k is added to the sum once, but must be added V times: the rows do not sum to 1",
                _estimated(lambda c, V, k: (c + k) / (c.sum(1, keepdim=True) + k))),
        Mistake("k is added to the counts and not to their sum: the rows sum to more than 1",
                _estimated(lambda c, V, k: (c + k) / c.sum(1, keepdim=True))),
        Mistake("k is not used", _estimated(lambda c, V, k: c / c.sum(1, keepdim=True))),
        Mistake("each count is divided by the number of all pairs: that is P(h, w), not P(w | h)",
                _estimated(lambda c, V, k: (c + k) / (c.sum() + k * V * V))),
        Mistake("rows and columns are swapped: the row is the word before",
                lambda words, V, k: _estimated(lambda c, V, k: (c + k) / (c.sum(1, keepdim=True) + k * V))(
                    words[::-1], V, k)),
        Mistake("the text's last word is counted as a word before, though nothing follows it",
                lambda words, V, k: (_table(words, V) + k) / (
                    torch.bincount(torch.tensor(words), minlength=V)[:, None] + k * V)),
        Mistake("these are counts: they are not divided", _estimated(lambda c, V, k: c + k)),
    ),
    differentiable=False,
)  # fmt: skip


# -- Kneser-Ney --------------------------------------------------------------------------------------------------------


def _levels(counts: Tensor) -> list[Counts]:
    """Regard's counts of words and pairs, of a table of pairs."""
    vocabulary, flat = len(counts), counts.flatten().numpy()
    keys = np.flatnonzero(flat)
    words = Counts(
        np.arange(vocabulary), counts.sum(0).numpy(), np.zeros(vocabulary, dtype=int), np.arange(vocabulary) == 0
    )
    return [words, Counts(keys, flat[keys], keys % vocabulary, keys // vocabulary == 0)]


def _tables(random: RandomInputs) -> Iterator[Tensor]:
    for _ in range(3):
        vocabulary = random.whole(4, 7)
        counts = random.tokens(7, vocabulary, vocabulary) - 2
        counts = counts.clamp(min=0)
        counts[random.whole(0, vocabulary - 1)] = 0  # a word that was never seen before another
        yield counts


def _continuations(counts: Tensor) -> Tensor:
    return torch.from_numpy(adjusted_counts(_levels(counts))[0])


continuation_counts = Grader(
    own="systems/kneser_ney.py: adjusted_counts",
    cases=lambda random: [(counts,) for counts in _tables(random)],
    answer=_continuations,
    outputs=(ExpectedOutput("a(w)", ("word",)),),
    mistakes=(
        Mistake("these are the word's frequencies: a pair counts once, however often it was seen",
                lambda counts: counts.sum(0)),
        Mistake("these are the distinct words after it: count those before it",
                lambda counts: (counts > 0).sum(1)),
        Mistake("these are the frequencies of the words before", lambda counts: counts.sum(1)),
        Mistake("only pairs that were seen exactly once are counted", lambda counts: (counts == 1).sum(0)),
        Mistake("pairs that were never seen are counted", lambda counts: (counts == 0).sum(0)),
        Mistake("these are shares: they are divided by their sum",
                lambda counts: (counts > 0).sum(0) / (counts > 0).sum()),
    ),
    differentiable=False,
)  # fmt: skip


def _smoothing(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for counts in _tables(random):
        levels = _levels(counts)
        learned = discounts(adjusted_counts(levels)[1]) or FALLBACK
        lower = np.exp(kneser_ney(levels, len(counts))[0][0].log_probability)
        yield counts, torch.tensor([0.0, *learned], dtype=torch.float64), torch.from_numpy(lower)


def _smoothed(counts: Tensor, discount: Tensor, lower: Tensor) -> Tensor:
    """By Regard's own estimate, which finds the same discounts and the same lower order in these counts."""
    levels = _levels(counts)
    (words, pairs), _ = kneser_ney(levels, len(counts))
    table = torch.from_numpy(np.exp(words.log_backoff))[:, None] * torch.from_numpy(np.exp(words.log_probability))
    table.view(-1)[torch.from_numpy(pairs.keys)] = torch.from_numpy(np.exp(pairs.log_probability))
    return table


def _discounted(rule: Function) -> Function:
    """A wrong estimate: `rule` of counts, each count's discount, the sums of the rows, and P(w)."""

    def answer(counts: Tensor, discounts: Tensor, lower: Tensor) -> Tensor:
        total = counts.sum(1, keepdim=True)
        smoothed = rule(counts.double(), discounts[counts.clamp(max=3)], total.double().clamp(min=1), lower)
        return torch.where(total > 0, smoothed, lower)

    return answer


def _unseen(counts: Tensor, discounts: Tensor, lower: Tensor) -> Tensor:
    total, discount = counts.sum(1, keepdim=True), discounts[counts.clamp(max=3)]
    return (counts - discount) / total + discount.sum(1, keepdim=True) / total * lower


kneser_ney_discount = Grader(
    own="systems/kneser_ney.py: kneser_ney",
    cases=_smoothing,
    answer=_smoothed,
    outputs=(ExpectedOutput("P(w | h)", TABLE),),
    mistakes=(
        Mistake("a word h that was never seen divides 0 by 0: its row must be P(w)", _unseen),
        Mistake("the discounted probability is not redistributed: γ(h) P(w) is missing, and the rows sum "
        "to less than 1",
                _discounted(lambda c, d, n, low: (c - d) / n)),
        Mistake("nothing is discounted: the rows sum to more than 1",
                _discounted(lambda c, d, n, low: c / n + d.sum(1, keepdim=True) / n * low)),
        Mistake("γ(h) is not divided by count(h ·)",
                _discounted(lambda c, d, n, low: (c - d) / n + d.sum(1, keepdim=True) * low)),
        Mistake("γ(h) is the mean of the discounts: it is their sum divided by count(h ·)",
                _discounted(lambda c, d, n, low: (c - d) / n + d.mean(1, keepdim=True) * low)),
        Mistake("the freed probability is spread evenly over the words, but must follow P(w)",
                _discounted(lambda c, d, n, low: (c - d) / n + d.sum(1, keepdim=True) / n / len(low))),
        Mistake("each pair gets back its own discount: γ(h) is one number for the whole row",
                _discounted(lambda c, d, n, low: (c - d) / n + d / n * low)),
        Mistake("P(w) is used only for pairs that were never seen: it is added to all of them",
                _discounted(lambda c, d, n, low: torch.where(
                    c > 0, (c - d) / n, d.sum(1, keepdim=True) / n * low))),
    ),
    differentiable=False,
)  # fmt: skip


# -- perplexity --------------------------------------------------------------------------------------------------------


def _lines(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(3):
        lengths = random.distinct(3, 1, 9)
        yield ([2 * random.normal(length, 5).log_softmax(-1)[:, 0] for length in lengths],)


def _perplexity(lines: list[Tensor]) -> Tensor:
    so_far = Likelihood(0.0, 0)
    for line in lines:
        so_far = so_far.plus(-line.numpy())
    return torch.tensor(so_far.perplexity, dtype=torch.float64)


corpus_perplexity = Grader(
    own="evaluation/perplexity.py: Likelihood",
    cases=_lines,
    answer=_perplexity,
    outputs=(ExpectedOutput("the perplexity"),),
    mistakes=(
        Mistake("this is the mean of the lines' means: a short line counts as much as a long one",
                lambda lines: (-torch.stack([line.mean() for line in lines]).mean()).exp()),
        Mistake("this is the mean of the lines' perplexities: take the mean of log P over all tokens first",
                lambda lines: torch.stack([(-line.mean()).exp() for line in lines]).mean()),
        Mistake("this is the mean of 1/P: take the mean of −log P first, and then the exponential",
                lambda lines: (-torch.cat(lines)).exp().mean()),
        Mistake("the minus is missing: log P is negative", lambda lines: torch.cat(lines).mean().exp()),
        Mistake("this is 2 to the power of a loss in nats: with natural logarithms it is exp",
                lambda lines: 2 ** (-torch.cat(lines).mean())),
        Mistake("this is the loss: its exponential is missing", lambda lines: -torch.cat(lines).mean()),
        Mistake("the sum is not divided by the number of tokens", lambda lines: (-torch.cat(lines).sum()).exp()),
        Mistake("the sum is divided by the number of lines, not of tokens",
                lambda lines: (-torch.cat(lines).sum() / len(lines)).exp()),
    ),
    differentiable=False,
)  # fmt: skip


# -- BLEU --------------------------------------------------------------------------------------------------------------

WORDS = ("the", "cat", "sees", "a", "house", "and", "sleeps", "here")


def _translations(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for longer in (2, -3, 0, -1):
        reference = [WORDS[word] for word in random.tokens(len(WORDS), random.whole(9, 12)).tolist()]
        reference[1] = reference[6]  # a word that occurs twice in the reference
        kept = random.whole(4, 5)
        rest = len(reference) + longer - kept
        yield [*reference[:kept], *[reference[0]] * (rest - 1), reference[6]], reference


def _grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def _bleu(translation: list[str], reference: list[str]) -> float:
    statistics = Statistics.of("bleu", [" ".join(translation)], [" ".join(reference)], tokenizer="none")
    return float(statistics.score(statistics.counts.sum(0)))


def _bleu_by(
    match: Function = lambda own, theirs: sum((own & theirs).values()),
    total: Function = lambda own, theirs: own.total(),
    brief: Function = lambda c, r: min(1.0, math.exp(1 - r / c)),
    mean: Function = lambda shares: math.exp(sum(map(math.log, shares)) / 4),
) -> Function:
    def answer(translation: list[str], reference: list[str]) -> float:
        pairs = [(_grams(translation, n), _grams(reference, n)) for n in (1, 2, 3, 4)]
        shares = [match(*pair) / total(*pair) for pair in pairs]
        return 100 * brief(len(translation), len(reference)) * mean(shares)

    return answer


bleu_score = Grader(
    own="evaluation/bleu.py: bleu_of",
    cases=_translations,
    answer=_bleu,
    outputs=(ExpectedOutput("BLEU"),),
    mistakes=(
        Mistake("the matches are not clipped: an n-gram counts at most as often as it occurs in the reference",
                _bleu_by(lambda own, theirs: sum(count for gram, count in own.items() if gram in theirs))),
        Mistake("every matching n-gram is counted once: count it as often as it occurs in both",
                _bleu_by(lambda own, theirs: len(own.keys() & theirs.keys()))),
        Mistake("the brevity penalty is missing", _bleu_by(brief=lambda c, r: 1.0)),
        Mistake("long translations are rewarded: the brevity penalty is at most 1",
                _bleu_by(brief=lambda c, r: math.exp(1 - r / c))),
        Mistake("the brevity penalty falls on long translations: it is e^(1 − r/c), c being the translation's length",
                _bleu_by(brief=lambda c, r: min(1.0, math.exp(1 - c / r)))),
        Mistake("the brevity penalty is c/r, but must be e^(1 − r/c)", _bleu_by(brief=lambda c, r: min(1.0, c / r))),
        Mistake("the precisions are averaged arithmetically: BLEU takes their geometric mean",
                _bleu_by(mean=lambda shares: sum(shares) / 4)),
        Mistake("the precisions are multiplied, and their fourth root is missing", _bleu_by(mean=math.prod)),
        Mistake("the matches are divided by the reference's n-grams: that is recall, not precision",
                _bleu_by(total=lambda own, theirs: theirs.total())),
        Mistake("BLEU is between 0 and 100 here: the factor 100 is missing",
                lambda translation, reference: _bleu(translation, reference) / 100),
        Mistake("only the first order is used: p_1 instead of the mean of p_1 … p_4",
                _bleu_by(mean=lambda shares: shares[0])),
    ),
    differentiable=False,
)  # fmt: skip

GRADERS = {
    "ngram-counts": ngram_counts,
    "continuation-counts": continuation_counts,
    "kneser-ney": kneser_ney_discount,
    "corpus-perplexity": corpus_perplexity,
    "bleu-score": bleu_score,
}
