"""Builds a vocabulary from text: counts words and characters, and learns byte pairs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Literal
from unicodedata import is_normalized

import numpy as np
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.text.tokenizers.engine import (
    BYTE_SYMBOLS,
    EOS,
    KINDS,
    SPLIT_BYTE_PAIRS,
    SPLIT_CHARACTERS,
    SPLIT_SPACES,
    SPLIT_WORDS,
    UNK,
    byte_pairs,
    splitter,
    word_level,
)

MAX_BPE_SYMBOLS, CHARACTERS_PER_SYMBOL = 8000, 200  # the default size: few enough that each symbol is frequent
MAX_BPE_BYTES = 64 << 20  # of text that byte pairs are learned from: of a longer one, lines drawn at random
MAX_WORD_CHARACTERS = 1000  # characters that byte pairs are learned from as one word
FORMS: dict[type, Literal["NFC", "NFKC"]] = {normalizers.NFC: "NFC", normalizers.NFKC: "NFKC"}
LONG_RUN = re.compile(rf"\s{{{MAX_WORD_CHARACTERS + 1}}}|\S{{{MAX_WORD_CHARACTERS + 1}}}")


def blocks(lines: Iterable[str], characters: int = 1 << 20) -> Iterator[tuple[str, int]]:
    """Lines joined into texts of about a million characters, each with its number of lines."""
    block: list[str] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line) + 1
        if size >= characters:
            yield "\n".join(block), len(block)
            block, size = [], 0
    if block:
        yield "\n".join(block), len(block)


def _check(kind: str, vocabulary: int | None, normalise: str) -> None:
    if kind not in KINDS:
        raise RegardError(f"There is no tokenizer {kind!r}; choose one of {', '.join(KINDS)}.")
    if normalise not in ("nfc", "nfkc", "none"):
        raise RegardError(f"There is no normalization {normalise!r}; choose one of nfc, nfkc, none.")
    if vocabulary is None:
        return
    if kind == "byte" and vocabulary != 257:
        raise RegardError("A byte vocabulary always has 257 symbols (256 bytes and <eos>); do not set its size.")
    smallest = 257 if kind == "bpe" else 3
    if vocabulary < smallest:
        raise RegardError(f"A {kind} vocabulary of {vocabulary} is too small; choose a size of at least {smallest}.")


def train_engine(lines: Iterable[str], kind: str, vocabulary: int | None, normalise: str, pretokenised: bool) -> Engine:
    """Builds the vocabulary of `Tokenizer.train`."""
    _check(kind, vocabulary, normalise)
    normalizer = {"nfc": normalizers.NFC(), "nfkc": normalizers.NFKC(), "none": None}[normalise]
    if kind == "byte":
        engine = byte_pairs({EOS: 0, **{symbol: 1 + byte for byte, symbol in enumerate(BYTE_SYMBOLS)}}, [], False)
    elif kind == "bpe":
        engine = _train_byte_pairs(lines, vocabulary, normalizer)
    elif kind == "char":
        characters = _count_characters(lines, normalizer)
        del characters["\n"]
        engine = word_level(_most_frequent(characters, vocabulary), SPLIT_CHARACTERS)
    else:
        split = SPLIT_SPACES if pretokenised else SPLIT_WORDS
        counts = _count_words(lines, normalizer, split)
        if vocabulary is None and not pretokenised:  # words that occur once become <unk>: the model learns it
            counts = Counter({word: count for word, count in counts.items() if count > 1}) or counts
        engine = word_level(_most_frequent(counts, vocabulary), split)
    if normalizer is not None:
        engine.normalizer = normalizer
    return engine


def _train_byte_pairs(lines: Iterable[str], size: int | None, normalizer: normalizers.Normalizer | None) -> Engine:
    """First merges the bytes of each character of the text, then the most frequent neighbors among characters.

    Characters are counted in the whole text, neighbors in at most about MAX_BPE_BYTES of it.
    """
    lines = list(lines) if isinstance(lines, Iterator) else lines  # they are read twice
    counts = _count_characters(lines, normalizer)
    vocabulary = {EOS: 0, **{symbol: 1 + place for place, symbol in enumerate(sorted(BYTE_SYMBOLS))}}
    room = len(vocabulary) + ((size or MAX_BPE_SYMBOLS) - len(vocabulary)) // 2
    alphabet, merges = _merge_characters(counts, vocabulary, room)
    size = size or min(MAX_BPE_SYMBOLS, len(vocabulary) + counts.total() // CHARACTERS_PER_SYMBOL)
    splits = [pre_tokenizers.Split(Regex(SPLIT_BYTE_PAIRS), "isolated")]
    if rare := "".join(char for char in counts if not char.isascii() and char not in alphabet):
        splits.insert(0, pre_tokenizers.Split(Regex(f"[{rare}]"), "removed"))
    share = MAX_BPE_BYTES / max(1, sum(count * len(char.encode()) for char, count in counts.items()))
    draw = Random(0).random  # every n-th line would be a biased sample of a text whose lines alternate

    def words() -> Iterator[str]:
        for line in lines:
            if share < 1 and draw() >= share:
                continue
            line = compose(line, normalizer)
            if LONG_RUN.search(line):  # as one word it would take quadratic time
                yield from (
                    line[begin : begin + MAX_WORD_CHARACTERS] for begin in range(0, len(line), MAX_WORD_CHARACTERS)
                )
            else:
                yield line

    # Ties go to the lower ids: ASCII in the order of its symbols, then the other characters.
    ascii_symbols = sorted(map(chr, range(128)), key=_spell_bytes)
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.Sequence(splits)
    learned = 1 + len(ascii_symbols) + len(alphabet) + size - len(vocabulary)
    engine.train_from_iterator(
        words(),
        trainers.BpeTrainer(
            vocab_size=learned, min_frequency=2, special_tokens=[EOS, *ascii_symbols], show_progress=False
        ),
    )
    for left, right in json.loads(engine.to_str())["model"]["merges"]:
        pair = _spell_bytes(left), _spell_bytes(right)
        if len(vocabulary) == size and "".join(pair) not in vocabulary:
            break
        vocabulary.setdefault("".join(pair), len(vocabulary))
        merges.append(pair)
    return byte_pairs(vocabulary, merges, True)


def _merge_characters(
    counts: Counter[str], vocabulary: dict[str, int], room: int
) -> tuple[set[str], list[tuple[str, str]]]:
    """Adds characters of several bytes to the vocabulary, the most frequent first, up to `room` symbols.

    Returns them, and the merges that spell them: a character begins with none of another's merges but a common prefix.
    """
    alphabet: set[str] = set()
    merges: list[tuple[str, str]] = []
    for char in sorted((char for char in counts if not char.isascii()), key=lambda char: (-counts[char], char)):
        symbols = _spell_bytes(char)
        new = [end for end in range(2, len(symbols) + 1) if symbols[:end] not in vocabulary]
        if len(vocabulary) + len(new) > room:
            break
        alphabet.add(char)
        for end in new:
            vocabulary[symbols[:end]] = len(vocabulary)
            merges.append((symbols[: end - 1], symbols[end - 1]))
    return alphabet, merges


def _spell_bytes(text: str) -> str:
    """A text as the symbols of its bytes."""
    return "".join(map(BYTE_SYMBOLS.__getitem__, text.encode()))


def _count_words(lines: Iterable[str], normalizer: normalizers.Normalizer | None, split: str) -> Counter[str]:
    pieces: Counter[str] = Counter()
    for text, _ in blocks(lines):
        pieces.update(compose(valid_unicode(text), normalizer).split())
    return split_words(pieces, split)


def split_words(pieces: Mapping[str, int], split: str) -> Counter[str]:
    """Word counts from counts of pieces between white space."""
    words: Counter[str] = Counter()
    words_of = splitter(split).pre_tokenize_str
    for piece, count in pieces.items():
        for word, _ in words_of(piece):
            words[word] += count
    return words


def _count_characters(lines: Iterable[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    """Counts of the characters, with a line end for each line."""
    counts = np.zeros(0x110000, np.int64)
    for text, _ in blocks(lines):
        codes = np.frombuffer(f"{compose(valid_unicode(text), normalizer)}\n".encode("utf-32-le"), np.uint32)
        counts += np.bincount(codes, minlength=len(counts))
    return Counter({chr(code): int(counts[code]) for code in np.flatnonzero(counts).tolist()})


def valid_unicode(text: str) -> str:
    if not text.isascii():
        encode_utf8(text)
    return text


def encode_utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        piece = text[max(error.start - 10, 0) : error.start + 1]
        raise RegardError(f"The text has an unpaired surrogate after {piece!r}; give valid Unicode text.") from None


def compose(text: str, normalizer: normalizers.Normalizer | None) -> str:
    """The normalized text. Most lines are normalized already, which Python finds many times as fast."""
    if normalizer is None or text.isascii():
        return text
    if (form := FORMS.get(type(normalizer))) is None:
        return str(normalizer.normalize_str(text))
    lines = text.split("\n")
    return "\n".join(line if is_normalized(form, line) else normalizer.normalize_str(line) for line in lines)


def _most_frequent(counts: Counter[str], size: int | None) -> dict[str, int]:
    ordinary = sorted(counts.keys() - {EOS, UNK}, key=lambda token: (-counts[token], token))
    return {token: symbol for symbol, token in enumerate([EOS, UNK, *ordinary][:size])}
