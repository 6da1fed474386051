"""The vocabularies of a pair corpus: one for both sides (joint), or one for each.

Joint byte-pair encoding (Sennrich et al. 2016) segments names, numbers and related words alike in both languages, and
allows shared embeddings. Small corpora get few symbols, or most would be too rare to learn: each character of the text
and one symbol per 200 characters, at most 8,000. Bytes are symbols too, so nothing is unknown in any script.
"""

from __future__ import annotations

from itertools import chain

from regard.base.numbers import group_digits
from regard.text.cached_text import cached_tokenizer
from regard.text.pairs import PairCorpus
from regard.text.readers.sources import digest_of
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.vocabulary import CHARACTERS_PER_SYMBOL, MAX_BPE_SYMBOLS


def train_tokenizers(
    corpus: PairCorpus, kind: str = "auto", vocabulary: int = 0, normalise: str = "nfc", joint: bool = True
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target, one and the same if `joint`; `vocabulary` 0 follows the corpus's size."""
    train = corpus.splits["train"]
    sides = {"source": train.sources, "target": train.targets}

    def learn(*which: str) -> Tokenizer:
        return cached_tokenizer(
            chain.from_iterable(sides[side] for side in which),
            digest_of(train.checksum(), *which),
            train.characters,
            corpus.suggested_tokenizer if kind == "auto" else kind,
            vocabulary or None,
            normalise=normalise,
            pretokenised=corpus.pretokenised,
        )

    if joint:
        both = learn("source", "target")
        return both, both
    return learn("source"), learn("target")


def why_this_vocabulary(corpus: PairCorpus, tokenizers: tuple[Tokenizer, Tokenizer], requested: int = 0) -> str:
    """One sentence: how many symbols there are, and why."""
    source, target = tokenizers
    joint = source is target
    what = {"bpe": "byte pairs", "word": "words", "char": "characters", "byte": "bytes"}[target.kind]
    sizes = (
        f"{group_digits(target.vocabulary)} {what} for both sides"
        if joint
        else (
            f"{group_digits(source.vocabulary)} {what} for the source, {group_digits(target.vocabulary)} for the target"
        )
    )
    if requested:
        return f"Vocabulary: {sizes}, as requested."
    if target.kind != "bpe":
        return f"Vocabulary: {sizes}, all that occur in the training pairs" + (
            " at least twice." if target.kind == "word" and not target.pretokenised else "."
        )
    train = corpus.splits["train"]
    return (
        f"Vocabulary: {sizes}: one per {CHARACTERS_PER_SYMBOL} characters of the {group_digits(len(train))} pairs "
        f"({group_digits(train.characters)} characters) and every character itself, at most "
        f"{group_digits(MAX_BPE_SYMBOLS)}, so that each is seen often enough to be learned."
    )
