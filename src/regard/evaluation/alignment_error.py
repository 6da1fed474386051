"""Word alignment from attention, and its error rate.

    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)             Och & Ney 2003

over all sentences: A the links found, S the sure and P the possible gold links (S is part of P). A link is
(source word, target word), counted from 0. Attention is between tokens; `word_links` turns it into links. Two baselines
without a network: the diagonal, and IBM model 1 (Brown et al. 1993).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from regard.base.errors import RegardError
from regard.text.tokenizers.tokenizer import Tokenizer

Link = tuple[int, int]  # (source word, target word)
Span = tuple[int, int]  # characters from … up to


def alignment_error_rate(
    sure: Iterable[Iterable[Link]],
    predicted: Iterable[Iterable[Link]],
    possible: Iterable[Iterable[Link]] | None = None,
) -> float:
    """One set of links for each sentence; without `possible` all gold links are sure. 0 is best, 1 worst."""
    certain = [set(links) for links in sure]
    maybe = certain if possible is None else [set(links) for links in possible]
    hits = links = 0
    for gold, may, found in zip(certain, maybe, map(set, predicted), strict=True):
        hits += len(found & gold) + len(found & (gold | may))
        links += len(found) + len(gold)
    if not links:
        raise RegardError("Neither the gold alignment nor the model has a link, so there is nothing to score.")
    return 1 - hits / links


def word_links(
    weights: np.ndarray,
    source_tokens: Sequence[Span],
    target_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
    threshold: float | None = None,
) -> set[Link]:
    """Links from the weights [T, S] of target tokens on source tokens, and the spans of tokens and words.

    A word's weight is the sum over its tokens. Each target word is linked to the source word with the most weight, or
    with a threshold to all that have at least this share of its weight on words. <eos> has no span: rows and columns
    beyond the spans are left out.
    """
    between = np.asarray(weights)[: len(target_tokens), : len(source_tokens)]
    words = _shares(target_tokens, target_words).T @ between @ _shares(source_tokens, source_words)  # [target, source]
    if not words.size:
        return set()
    looks = words.sum(1) > 0
    if threshold is None:
        return {(int(words[target].argmax()), target) for target in np.flatnonzero(looks).tolist()}
    enough = words >= threshold * words.sum(1, keepdims=True)
    return {(source, target) for target, source in np.argwhere(enough & looks[:, None]).tolist()}


def _shares(tokens: Sequence[Span], words: Sequence[Span]) -> np.ndarray:
    """How a token's weight is divided among words, by shared characters: [tokens, words]."""
    token, word = (np.array(spans, dtype=np.int64).reshape(-1, 2) for spans in (tokens, words))
    shared = np.minimum(token[:, None, 1], word[:, 1]) - np.maximum(token[:, None, 0], word[:, 0])
    shared = np.maximum(shared, 0)
    return shared / np.maximum(shared.sum(1, keepdims=True), 1)


def token_spans(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Span]:
    """The span of each token in `tokenizer.decode(ids)`; tokens that share the bytes of a character overlap."""
    if tokenizer.kind in ("byte", "bpe", "imported"):
        pieces = [tokenizer._bytes[symbol] for symbol in ids]
        before = len(b"".join(pieces).decode("utf-8", "ignore")) - len(
            tokenizer.decode(ids)
        )  # a space of SentencePiece
        return [(max(start - before, 0), max(end - before, 0)) for start, end in _byte_spans(pieces)]
    symbols = list(ids)
    text, spans, end = tokenizer.decode(symbols), [], 0
    for symbol in symbols:
        word = "\n" if symbol == tokenizer.eos else tokenizer.token(symbol)
        start = text.index(word, end)  # at most a space further
        end = start + len(word)
        spans.append((start, end))
    return spans


def spans_in(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """The span of each token in a text normalized by the tokenizer, also of a word that became <unk>."""
    if tokenizer.kind != "word":
        return token_spans(tokenizer, ids)
    spans = [(start, end) for start, end in tokenizer.offsets(text)]
    return spans[: len(ids)]


def _byte_spans(pieces: Iterable[bytes]) -> list[Span]:
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")  # as `Tokenizer.decode`
    spans, complete = [], 0  # complete characters so far
    for piece in pieces:
        start = complete
        complete += len(decoder.decode(piece))
        begun = bool(decoder.getstate()[0])  # an incomplete character
        spans.append((start, complete + begun))
    return spans


def word_spans(words: Sequence[str], text: str) -> list[Span]:
    """The spans of words in a text; the words are given in its order."""
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            raise RegardError(
                f"The word {word!r} does not occur in the sentence {text!r} or is out of order; use the "
                "words of the sentence, in order."
            )
        end = start + len(word)
        spans.append((start, end))
    return spans


# -- without a network -----------------------------------------------------------------------------------------------


def diagonal_links(source: int, target: int) -> set[Link]:
    """Each of `target` words linked to the source word at the same relative position."""
    return {(int((word + 0.5) * source / target), word) for word in range(target)} if source else set()


Table = dict[tuple[str, str], float]  # P(f | e) by (e, f)


def translation_table(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], iterations: int = 10
) -> Table:
    """IBM model 1: P(f | e) by expectation maximization, f target, e source.

    c(f, e) = Σ over sentences, f and e in them   P(f | e) / Σ_e' P(f | e'),      P(f | e) = c(f, e) / Σ_f c(f, e)
    """
    words, source_ids = _numbered(sources)
    kinds, target_ids = _numbered(targets)
    # one entry for each (target place, source word in its sentence): which place, and which word pair
    places, pairs, place = [], [], 0
    for source, target in zip(source_ids, target_ids, strict=True):
        places.append(np.repeat(np.arange(place, place + len(target)), len(source)))
        pairs.append((source[None, :] * len(kinds) + target[:, None]).ravel())
        place += len(target)
    if not place:
        return {}
    entry_place = np.concatenate(places)
    pair, entry_pair = np.unique(np.concatenate(pairs), return_inverse=True)
    source_of = pair // len(kinds)
    chance = np.ones(len(pair))
    for _ in range(iterations):
        share = chance[entry_pair]
        share = share / np.bincount(entry_place, weights=share)[entry_place]
        count = np.bincount(entry_pair, weights=share)
        chance = count / np.bincount(source_of, weights=count)[source_of]
    return {(words[n // len(kinds)], kinds[n % len(kinds)]): float(p) for n, p in zip(pair.tolist(), chance)}


def _numbered(sentences: Sequence[Sequence[str]]) -> tuple[list[str], list[np.ndarray]]:
    """The different words, and each sentence as their numbers."""
    words = list(dict.fromkeys(chain.from_iterable(sentences)))
    numbers = {word: number for number, word in enumerate(words)}
    return words, [np.array([numbers[word] for word in sentence], dtype=np.int64) for sentence in sentences]
