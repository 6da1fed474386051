"""Labels instead of target sentences: a whole label is one symbol, spaces and all.

    "I love it"  ⇥  "very good"        ->   17, 4, 9, 0   and   3

The vocabulary of labels is a tokenizer.json like any other, `<eos>` and `<unk>` first and then the labels by name; but
labels are looked up whole and never split. Space around a label is not part of it. A label that training has not
seen is `<unk>`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.text.pairs import PairCorpus, Pairs
from regard.text.tokenizers.engine import EOS, UNK
from regard.text.tokenizers.pair_tokens import MAX_PAIR_TOKENS, TokenPairs, encode_pairs
from regard.text.tokenizers.tokenizer import Tokenizer

MAX_LABELS = 1000  # more than this are not labels
FEW_LABELS = 10  # a short file may have this many


def clean(label: str) -> str:
    return unicodedata.normalize("NFC", label.strip())


def learn_labels(corpus: PairCorpus) -> Tokenizer:
    """The vocabulary of a corpus's labels; targets that look like sentences are refused."""
    train = corpus.splits["train"]
    labels = sorted(set(map(clean, train.targets)) - {""})
    if not _are_labels(len(labels), len(train)):
        swapped = _are_labels(len(set(map(clean, train.sources))), len(train))
        advice = (
            "its sources look like the labels: add --data.swap true"
            if swapped
            else "train a translator on it (seq2seq, bahdanau, transformer), or give lines of text⇥label"
        )
        raise RegardError(
            f"{corpus.name} has {group_digits(len(labels))} different targets in {group_digits(len(train))} "
            f"training pairs, which looks like translation, not like labels: {advice}."
        )
    if len(labels) < 2:
        raise RegardError(
            f"{corpus.name} has only one label ({''.join(labels)!r}): give lines with at least two different labels."
        )
    if taken := {EOS, UNK} & set(labels):
        raise RegardError(f"{min(taken)} is Regard's own symbol and cannot be a label: rename it.")
    return Tokenizer.of_tokens([EOS, UNK, *labels], "word")


def _are_labels(different: int, lines: int) -> bool:
    return different <= MAX_LABELS and (different <= FEW_LABELS or 2 * different <= lines)


def label_numbers(labels: Tokenizer) -> dict[str, int]:
    """The symbol of each label."""
    return {label: number for number, label in enumerate(labels.tokens) if number not in labels.specials}


def encode_labelled(
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    longest: int = MAX_PAIR_TOKENS,
    truncate: bool = False,
) -> TokenPairs:
    """The ids of all lines that have a text and a label; a target is only its label, without `<eos>`."""
    encoded = encode_pairs(pairs, source_tokenizer, target_tokenizer, longest=longest, truncate=truncate)
    target = numbers_of([pairs.targets[index] for index in encoded.kept], target_tokenizer)
    unknown = int(np.count_nonzero(target == target_tokenizer.unk))
    return replace(encoded, target=target, target_offsets=np.arange(len(target) + 1), unknown=unknown)


def numbers_of(texts: Sequence[str], labels: Tokenizer) -> np.ndarray:
    numbers = label_numbers(labels)
    return np.array([numbers.get(clean(text), labels.unk) for text in texts], np.uint16)
