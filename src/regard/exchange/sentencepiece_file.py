"""SentencePiece's .model files (Kudo & Richardson 2018) as engines of the `tokenizers` library.

A file holds pieces with scores and kinds, how they are chosen (BPE: Sennrich et al. 2016; unigram: Kudo 2018, the
pieces whose scores sum to the most), and how text is normalized before. It is a protocol buffer: numbered fields, of
which these few are read here. SentencePiece's own package verifies that texts are tokenized as it tokenizes them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.exchange.foreign_tokenizers import (
    CONTROL,
    MAX_FILE_BYTES,
    MAX_VOCABULARY,
    NORMAL,
    UNKNOWN,
    add_special,
    numbered,
    piece_pairs,
)
from regard.text.tokenizers.engine import MAX_GROWTH, charsmap_growth
from regard.text.tokenizers.imported import HIDDEN, SPACE

UNIGRAM, BPE = 1, 2
USER_DEFINED, UNUSED, BYTE = 4, 5, 6  # kinds of pieces, in addition to those of foreign_tokenizers
TEXTS = ("Hello world", "  two  spaces ", "naïve café, 12345!", "def f(x): return x", "日本語 и ещё", "ﬁve²", "a", "")


@dataclass(frozen=True)
class SentencePieces:
    """A .model file: pieces with their scores and kinds, and how text is split into them."""

    path: Path
    tokens: list[str]
    scores: list[float]
    kinds: list[int]
    model: int = UNIGRAM
    charsmap: bytes = b""  # a compiled table of characters and their replacements
    prefix: bool = True  # a space is put before a text
    collapses: bool = True  # spaces at the ends are dropped, and several become one

    def of_kind(self, kind: int) -> int:
        return self.kinds.index(kind) if kind in self.kinds else -1

    def named(self, name: str) -> int:
        """The control piece of this name, or -1."""
        found = self.tokens.index(name) if name in self.tokens else -1
        return found if found >= 0 and self.kinds[found] == CONTROL else -1


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[place]
        value, place, shift = value | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or bytes that may contain a float, a text or more fields."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size, place = _varint(data, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
        if size > len(data) - place:
            raise ValueError
        yield key >> 3, data[place : place + size]
        place += size


def _bytes(value: Any) -> bytes:
    """Of a field that holds bytes; `bytes` of a number would be as many zeros."""
    if not isinstance(value, memoryview):
        raise TypeError
    return bytes(value)


def read_pieces(path: Path) -> SentencePieces:
    """The parts of a .model file; refuses one that is damaged, or whose pieces are not chosen by BPE or unigram."""
    content = memoryview(read_whole(path, MAX_FILE_BYTES, foreign=True))
    pieces: list[tuple[str, float, int]] = []
    more: dict[str, Any] = {}
    try:
        for number, value in _fields(content):
            if number == 1:
                if len(pieces) == MAX_VOCABULARY:
                    raise RegardError(f"{path} has more than {MAX_VOCABULARY} tokens, the most that Regard supports.")
                part = dict(_fields(value))
                pieces.append(
                    (_bytes(part[1]).decode(), *struct.unpack("<f", part.get(2, bytes(4))), part.get(3, NORMAL))
                )
            elif number == 2:
                more["model"] = dict(_fields(value)).get(3, UNIGRAM)
            elif number == 3:
                part = dict(_fields(value))
                more |= {"charsmap": _bytes(part.get(2, content[:0])), "prefix": bool(part.get(3, 1))}
                more["collapses"] = bool(part.get(4, 1))
    except (ValueError, KeyError, IndexError, TypeError, struct.error):
        pieces = []
    if not pieces or not all(abs(score) < 1e9 for _, score, _ in pieces):
        raise RegardError(f"{path} is not a SentencePiece model, or is damaged: copy it again.")
    if more.get("model", UNIGRAM) not in (UNIGRAM, BPE):
        raise RegardError(
            f"{path} splits text into words or characters; Regard supports only SentencePiece's BPE and unigram models."
        )
    tokens, scores, kinds = zip(*pieces)
    return SentencePieces(path, list(tokens), list(scores), list(kinds), **more)


def engine_of(pieces: SentencePieces) -> Engine:
    """The engine that splits text into these pieces, by their order in the file."""
    try:
        covers = sum(kind == BYTE for kind in pieces.kinds) == 256
        unknown, names = pieces.of_kind(UNKNOWN), pieces.tokens
        if pieces.model == BPE:
            numbers, pairs = numbered(names), piece_pairs(names, pieces.scores, pieces.kinds)
            name = pieces.tokens[unknown] if unknown >= 0 else None
            how: dict[str, Any] = {"unk_token": name, "fuse_unk": True, "byte_fallback": covers}
            made: models.Model = models.BPE(numbers, pairs, **how)
        else:  # which finds pieces by their spelling, so those that no text contains (`</s>`) get another
            hidden = (CONTROL, UNKNOWN, UNUSED)
            names = [HIDDEN + token if kind in hidden else token for token, kind in zip(names, pieces.kinds)]
            numbered(pieces.tokens)
            made = models.Unigram([*zip(names, pieces.scores)], max(unknown, 0), covers)
        engine = Engine(made)
        engine.normalizer = normalizers.Sequence(_normalization(pieces))
        add_special(engine, names, pieces.kinds)
    except RegardError as error:
        raise RegardError(f"{pieces.path} {error}.") from None
    except Exception:  # the library raises nothing more precise for a bad table of characters
        raise RegardError(f"{pieces.path} is damaged: copy it again.") from None
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    engine.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if pieces.prefix else [])])
    return engine


def _normalization(pieces: SentencePieces) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = []
    if pieces.charsmap:
        if charsmap_growth(pieces.charsmap) > MAX_GROWTH:
            raise ValueError
        steps.append(normalizers.Precompiled(pieces.charsmap))
    if pieces.collapses:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex("^ | $"), "")]
    if pieces.prefix:
        steps.append(normalizers.Prepend(SPACE))
    return [*steps, normalizers.Replace(" ", SPACE)]


def check_cuts(pieces: SentencePieces, engine: Engine) -> None:
    """Refuses an engine that tokenizes texts differently from SentencePiece's own package."""
    try:
        import sentencepiece
    except ImportError:
        raise RegardError(
            f"To read {pieces.path}, install sentencepiece: pip install 'regard[sentencepiece]'."
        ) from None
    theirs = sentencepiece.SentencePieceProcessor()
    try:
        theirs.LoadFromSerializedProto(pieces.path.read_bytes())
        own = [f"a{token}b" for token, kind in zip(pieces.tokens, pieces.kinds) if kind == USER_DEFINED][:9]
        same = [engine.encode(text, add_special_tokens=False).ids == theirs.encode(text) for text in (*TEXTS, *own)]
    except Exception:  # the package raises any exception of its C++ code
        raise RegardError(f"{pieces.path} is not a SentencePiece model, or is damaged: copy it again.") from None
    if not all(same):
        raise RegardError(
            f"{pieces.path} splits text in a way that Regard does not support: save the tokenizer as "
            "tokenizer.json with "
            f"its own "
            "program."
        )


def sentencepiece_model(path: Path) -> tuple[Engine, int, int]:
    """A .model file as an engine, and the pieces that begin and end a text."""
    pieces = read_pieces(path)
    engine = engine_of(pieces)
    check_cuts(pieces, engine)
    return engine, pieces.named("<s>"), pieces.named("</s>")
