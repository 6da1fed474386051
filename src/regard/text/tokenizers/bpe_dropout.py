"""BPE-dropout: a word is segmented differently each time it is read (Provilkov, Emelianenko & Voita 2020).

Byte-pair encoding merges the best-ranked neighboring pair, again and again. Here every possible merge is skipped with
probability p at each step, until nothing is left to merge. p = 0 is the plain encoding, p = 1 bytes.

    watching   →   watch ing   ·   w atch ing   ·   watch i n g

For exact resumption there is no running random generator: each distinct word has 16 segmentations, determined by
(seed, word, number) and made when first needed; (seed, epoch) determines which of them each occurrence takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from random import Random

import numpy as np

from regard.base.errors import RegardError
from regard.corpora.split import line_hash
from regard.text.pairs import Pairs
from regard.text.tokenizers.pair_tokens import TokenPairs, gather, offsets_of
from regard.text.tokenizers.tokenizer import PIECES, Tokenizer
from regard.text.tokenizers.vocabulary import blocks

VARIANTS = 16


def merge(symbols: Sequence[int], tokenizer: Tokenizer, dropout: float, random: Random) -> list[int]:
    """One segmentation of a word given as bytes."""
    merges, symbols = tokenizer.merges, list(symbols)
    possible = [merges.get(pair) for pair in pairwise(symbols)]  # (rank, merged symbol) or None
    while True:
        best: tuple[int, int] | None = None
        for place, candidate in enumerate(possible):  # the best-ranked merge that is not skipped
            if candidate and (best is None or candidate < best) and not (dropout and random.random() < dropout):
                best, chosen = candidate, place
        if best is None:
            return symbols
        symbols[chosen : chosen + 2] = [best[1]]
        del possible[chosen]
        for place in (chosen - 1, chosen):
            if 0 <= place < len(possible):
                possible[place] = merges.get((symbols[place], symbols[place + 1]))


class Segmentations:
    """Lines of text, segmented differently in each epoch; `epoch(number)` depends on the seed and the number alone."""

    def __init__(self, lines: Sequence[str], tokenizer: Tokenizer, dropout: float, seed: int, variants: int = VARIANTS):
        if tokenizer.kind != "bpe":
            raise RegardError(
                f"BPE-dropout needs a bpe tokenizer, not {tokenizer.kind}; set data.tokenizer to bpe or "
                "data.bpe_dropout to 0."
            )
        self._tokenizer, self._dropout, self._seed, self._variants = tokenizer, dropout, seed, variants
        self._words: list[tuple[int, ...]] = []  # each distinct one as bytes; <eos> is the first
        self._occurrences, self._line_ends = self._read(lines)  # the text as numbers of words; where lines end
        self._ids = array("I")  # all segmentations made so far, one after the other
        self._starts = np.zeros(len(self._words) * variants, np.int64)  # where each is in them
        self._lengths = np.zeros_like(self._starts)  # 0: not made yet

    def _read(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        words: dict[tuple[int, ...], int] = {(self._tokenizer.eos,): 0}
        known = {"\n": [0]}  # the words of a piece, which is a run without white space
        numbers = [np.empty(0, np.int32)]
        for text, _ in blocks(lines):
            pieces = PIECES.findall(self._tokenizer.normalise(text) + "\n")
            for piece in set(pieces) - known.keys():
                cut = map(tuple, self._tokenizer.byte_words(piece))
                known[piece] = [words.setdefault(word, len(words)) for word in cut]
            numbers.append(np.fromiter(chain.from_iterable(map(known.__getitem__, pieces)), np.int32))
        self._words = list(words)
        occurrences = np.concatenate(numbers)
        return occurrences, np.flatnonzero(occurrences == 0)

    def epoch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids with `<eos>` after each line, and where each line starts [N + 1]."""
        key = np.array([line_hash(f"bpe-dropout {self._seed}"), number], np.uint64)
        draws = np.random.Generator(np.random.Philox(key=key))
        variant = draws.integers(self._variants, size=len(self._occurrences))
        chosen = self._occurrences * np.int64(self._variants) + variant
        for place in np.unique(chosen[self._lengths[chosen] == 0]).tolist():
            made = self._segment(*divmod(place, self._variants))
            self._starts[place], self._lengths[place] = len(self._ids), len(made)
            self._ids.extend(made)
        sizes = self._lengths[chosen]
        ids = gather(np.array(self._ids, np.uint32), self._starts[chosen], sizes)
        ends = offsets_of(sizes)[1:][self._line_ends]
        return ids.astype(self._tokenizer.id_type), np.concatenate([[0], ends])

    def _segment(self, word: int, variant: int) -> list[int]:
        symbols = self._words[word]
        random = Random(line_hash(f"{self._seed} {variant} {symbols}"))
        return merge(symbols, self._tokenizer, self._dropout, random)


class DropoutPairs:
    """Encoded pairs, segmented differently in each epoch; a pair that would become too long is not changed."""

    def __init__(
        self,
        pairs: Pairs,
        plain: TokenPairs,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        dropout: float,
        seed: int,
    ):
        kept = pairs.take(plain.kept)
        self._plain = plain
        self._source = Segmentations(kept.sources, source_tokenizer, dropout, seed)
        self._target = Segmentations(kept.targets, target_tokenizer, dropout, seed + 1)

    def epoch(self, number: int) -> TokenPairs:
        plain, source, target = self._plain, self._source.epoch(number), self._target.epoch(number)
        long = np.maximum(np.diff(source[1]), np.diff(target[1])) > plain.longest + 1  # with <eos>
        one = _choose(long, (plain.source, plain.source_offsets), source)
        other = _choose(long, (plain.target, plain.target_offsets), target)
        return replace(plain, source=one[0], source_offsets=one[1], target=other[0], target_offsets=other[1])


def _choose(
    first: np.ndarray, one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """For each row the first encoding if `first`, else the other."""
    if not first.any():
        return other
    starts = np.where(first, one[1][:-1], other[1][:-1] + len(one[0]))
    lengths = np.where(first, np.diff(one[1]), np.diff(other[1]))
    return gather(np.concatenate([one[0], other[0]]), starts, lengths), offsets_of(lengths)
