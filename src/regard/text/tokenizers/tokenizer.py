"""Text to numbers and back: words, characters, bytes or byte-pair encoding.

    text  ->  pieces  ->  ids          "the cat\\n"  ->  the, cat  ->  17, 4, 0

Every line end becomes one boundary symbol, `<eos>` (id 0); words and characters outside the vocabulary become
`<unk>` (id 1); bytes and byte pairs cover everything. Byte-pair encoding (Gage 1994; Sennrich 2016; over bytes: Radford
2019) starts from the 256 bytes, here merged into the characters of the text, and merges the most frequent neighboring
pair again and again. The tokenizer is one `tokenizer.json` of the `tokenizers` library; any other program can load it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count as counter
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.base.writing import writing
from regard.text.tokenizers.engine import (
    BYTE_OF_SYMBOL,
    BYTE_SYMBOLS,
    EOS,
    SPLIT_CHARACTERS,
    SPLIT_SPACES,
    WHITE,
    Kind,
    Normalise,
    check_parts,
    parse,
    recognise,
    word_level,
)
from regard.text.tokenizers.piece_table import PieceTable, cut_spaced, cut_words
from regard.text.tokenizers.vocabulary import compose, encode_utf8, train_engine, valid_unicode

# Pieces are encoded independently of their neighbors, so each distinct one is encoded only once.
# Words are pieces between white space; byte pairs keep the white space before a piece.
PIECES = re.compile(rf"\n|[{WHITE}]*+[^\n{WHITE}]++|[{WHITE}]++")
MAX_FILE_BYTES = 1 << 28  # of a tokenizer.json: seven million words
CACHED_CHARACTERS = 4_000_000  # characters of pieces whose ids are cached: bounds the memory
SHORT_TEXT = 8000  # characters of a text that is cut faster into strings than as bytes

CLOSING, OPENING = re.compile(r" ([.,;:!?…)\]}”])(?= |$)", re.M), re.compile(r"(?<!\S)([(\[{“]) ")


class Tokenizer:
    """A vocabulary and how text is split into its symbols; made by `train` or `load`."""

    kind: Kind
    normalisation: Normalise
    pretokenised: bool

    def __init__(self, engine: Engine):
        self._engine = engine
        self.kind, self.normalisation, self.pretokenised = recognise(engine)
        self.vocabulary: int = engine.get_vocab_size()
        self.id_type = np.dtype(np.uint16 if self.vocabulary <= 1 << 16 else np.uint32)  # of stored ids
        self.eos: int = 0
        self.begin: int = self.eos  # the token that an initial state reads first
        self.unk: int | None = 1 if self.kind in ("word", "char") else None
        self.specials: tuple[int, ...] = (self.eos,) if self.unk is None else (self.eos, self.unk)
        self.lossless: bool = self.kind in ("byte", "bpe") and self.normalisation == "none"
        self._lock = Lock()  # guards the piece cache: threads of a server share a tokenizer
        self._forget()

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        kind: str,
        vocabulary: int | None = None,
        *,
        normalise: str = "nfc",
        pretokenised: bool = False,
    ) -> Tokenizer:
        """Builds the vocabulary from lines of text.

        `vocabulary` is its size with the special symbols; None takes all characters, all words (of raw text
        those that occur twice), or, for byte pairs, all characters and one symbol per 200 characters of text, at most
        8,000. At most half of the symbols of byte pairs are characters: the rarest of a larger alphabet stay bytes.
        From more than 64 MiB of text, byte pairs are learned from a random sample of its lines, of about that size.
        """
        engine = train_engine(lines, kind, vocabulary, normalise, pretokenised)
        return cls(engine)

    @classmethod
    def of_tokens(cls, tokens: Sequence[str], kind: Literal["word", "char"]) -> Tokenizer:
        """A vocabulary given by id, `<eos>` first and `<unk>` second; words are separated by white space."""
        split = SPLIT_CHARACTERS if kind == "char" else SPLIT_SPACES
        return cls(word_level({token: number for number, token in enumerate(tokens)}, split))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        content = read_whole(Path(path), MAX_FILE_BYTES)
        try:
            engine = parse(content.decode())
            if (imported := _imported(engine)) is not None:
                return imported
            check_parts(engine)
            return cls(engine)
        except RegardError as error:
            raise RegardError(
                f"{str(path)!r} was not written by Regard{error}; train a tokenizer on your text."
            ) from None
        except Exception:  # the engine raises nothing more precise
            raise RegardError(f"{str(path)!r} is damaged or not a tokenizer: restore it or train it again.") from None

    @classmethod
    def from_json(cls, made_of: str) -> Tokenizer:
        engine = Engine.from_str(made_of)
        return _imported(engine) or cls(engine)

    @property
    def json(self) -> str:
        """The whole tokenizer as one line of JSON, which `from_json` reads."""
        return str(self._engine.to_str())

    def save(self, path: str | Path) -> None:
        with writing(Path(path)) as stream:
            stream.write(self._engine.to_str(pretty=True).encode())

    @cached_property
    def digest(self) -> str:
        """A hash of its content."""
        return hashlib.blake2b(self._engine.to_str().encode(), digest_size=16).hexdigest()

    def normalise(self, text: str) -> str:
        """The text as the tokenizer reads it: Unicode's canonical (nfc) or compatibility (nfkc) composition."""
        return compose(valid_unicode(text), self._engine.normalizer)

    def encode(self, text: str) -> list[int]:
        """The ids of a piece of text. A line end within it is `<eos>`; nothing is added at the end."""
        return self._encode(text)[0][:-1].tolist()

    def encode_template(self, text: str) -> list[int]:
        """The ids of a chat template's output. Regard's own tokenizers have no special tokens to write out."""
        return self.encode(text)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The span of each token in the normalized line; for words and characters."""
        return list(self._engine.encode(self.normalise(text), add_special_tokens=False).offsets)

    def encode_lines(self, lines: Sequence[str]) -> list[np.ndarray]:
        """The ids of each line, without `<eos>`; much faster than one call of `encode` per line."""
        if not lines:
            return []
        text = "\n".join(lines)
        if text.count("\n") >= len(lines):
            raise ValueError("a line contains a line break")
        ids, ends = self._encode(text)
        return [ids[start : end - 1] for start, end in zip([0, *ends[:-1].tolist()], ends.tolist())]

    def encode_text(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all lines, each followed by `<eos>`, and where each ends. A line end within a line is `<eos>`."""
        ids, ends = self._encode("\n".join(lines))
        if len(ends) > len(lines):
            ends = ends[np.cumsum([1 + line.count("\n") for line in lines]) - 1]
        return ids, ends

    def _encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of any text, as `encode_normalised` gives them. Normalization keeps white space and composes nothing
        with it, so pieces can be split first, and the engine normalizes only new ones.
        """
        return self.encode_normalised(self.normalise(text) if self.kind in ("char", "byte") else text)

    def encode_normalised(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of normalized text, each line followed by `<eos>`, and the end of each line (past its `<eos>`)."""
        if self.kind in ("char", "byte"):
            coding, size = ("utf-32-le", np.uint32) if self.kind == "char" else ("utf-8", np.uint8)
            symbols = np.frombuffer(f"{text}\n".encode(coding), size)
            return self._table[symbols], np.flatnonzero(symbols == ord("\n")) + 1
        with self._lock:
            if self._remembered_characters > CACHED_CHARACTERS:
                self._forget()
            number = self._number_pieces(text)
            self._encode_new()
            known, ends, one_each = self._piece_ids, self._piece_ends, self._one_each
        if one_each:
            return known.take(number), np.flatnonzero(number == 0) + 1
        start, end = ends[number], ends[number + 1]
        lengths = end - start
        after = lengths.cumsum()
        places = np.repeat(end - after, lengths) + np.arange(after[-1])
        return known[places], after[number == 0]

    @cached_property
    def _table(self) -> np.ndarray:
        """id of each code point or byte; the line end is `<eos>`."""
        if self.kind == "byte":
            table = np.arange(1, 257)
        else:
            table = np.full(0x110000, self.unk)
            for symbol, token in enumerate(self._symbols[2:], 2):
                table[ord(token)] = symbol
        table[ord("\n")] = self.eos
        return table

    def _forget(self) -> None:
        self._remembered: defaultdict[str, int] = defaultdict(counter().__next__)  # pieces, numbered as they come
        self._remembered["\n"]  # number 0
        self._piece_ids = np.array([self.eos])  # of all pieces in this order
        self._piece_ends = np.array([0, 1])  # piece n has ids ends[n] … ends[n + 1]
        self._one_each = True  # has each piece exactly one id?
        self._remembered_characters = 0
        self._piece_table: PieceTable | None = None
        self._looked_up = 0  # pieces that were looked up as strings since the table was made

    def _number_pieces(self, text: str) -> np.ndarray:
        """The number of each piece of the text. In a long text, known pieces are found by their bytes."""
        if self._piece_table is None or len(text) < SHORT_TEXT:
            number = self._number_strings(self._cut_strings(valid_unicode(text)))
        else:
            pieces = (cut_spaced if self.kind == "bpe" else cut_words)(encode_utf8(text + "\n"))
            number, missing = self._piece_table.find(pieces)
            number[missing] = self._number_strings(pieces.strings(missing))
        if len(text) >= SHORT_TEXT and self._looked_up > len(self._remembered):  # about the cost of building the table
            self._piece_table, self._looked_up = PieceTable([*self._remembered]), 0
        return number

    def _number_strings(self, pieces: list[str]) -> np.ndarray:
        self._looked_up += len(pieces)
        return np.fromiter(map(self._remembered.__getitem__, pieces), np.int64, len(pieces))

    def _cut_strings(self, text: str) -> list[str]:
        if self.kind == "bpe":
            return [*PIECES.findall(text), "\n"]
        words: list[str] = []
        for line in text.split("\n"):
            words += line.split()
            words.append("\n")
        return words

    def _encode_new(self) -> None:
        """The ids of the pieces that were numbered last."""
        missing = len(self._remembered) - (len(self._piece_ends) - 1)
        if not missing:
            return
        new = [*islice(reversed(self._remembered), missing)][::-1]
        encoded = [encoding.ids for encoding in self._engine.encode_batch_fast(new, add_special_tokens=False)]
        lengths = [len(ids) for ids in encoded]
        ends = self._piece_ends[-1] + np.cumsum(lengths)
        ids = [number for piece in encoded for number in piece]
        # Existing arrays are copied, not changed: an interrupted call leaves at most ids that no end includes.
        self._piece_ids = np.concatenate([self._piece_ids[: self._piece_ends[-1]], np.array(ids, dtype=np.int64)])
        self._one_each &= all(length == 1 for length in lengths)
        self._piece_ends = np.concatenate([self._piece_ends, ends])
        self._remembered_characters += sum(map(len, new))

    @cached_property
    def merges(self) -> dict[tuple[int, int], tuple[int, int]]:
        """For byte pairs: (left, right) → (rank, merged symbol); the lowest rank is merged first."""
        model = json.loads(self._engine.to_str())["model"]
        number = model["vocab"]
        return {
            (number[left], number[right]): (rank, number[left + right])
            for rank, (left, right) in enumerate(map(tuple, model["merges"]))
        }

    def byte_words(self, piece: str) -> list[list[int]]:
        """The words within which bytes are merged, each as the symbols of its bytes."""
        words = self._engine.pre_tokenizer.pre_tokenize_str(piece)
        return [list(map(self._byte_symbols.__getitem__, word)) for word, _ in words]

    @cached_property
    def _byte_symbols(self) -> dict[str, int]:
        vocabulary = self._engine.get_vocab()
        return {symbol: vocabulary[symbol] for symbol in BYTE_SYMBOLS}

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids: `<eos>` is a line end; words are joined with normal spacing. Incomplete characters are left
        out, so the text of a prefix is a prefix of the text.
        """
        if self.kind in ("byte", "bpe"):
            return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", "ignore")
        words = ["\n" if symbol == self.eos else self.tokens[symbol] for symbol in ids]
        if self.kind == "char":
            return "".join(words)
        text = re.sub(r" ?\n ?", "\n", " ".join(words))
        return text if self.pretokenised else OPENING.sub(r"\1", CLOSING.sub(r"\1", text))

    @cached_property
    def _bytes(self) -> list[bytes]:
        return [b"\n", *(bytes(map(BYTE_OF_SYMBOL.__getitem__, token)) for token in self._symbols[1:])]

    @property
    def token_bytes(self) -> list[bytes]:
        """The UTF-8 bytes of each token; for words, without the space before them."""
        return [token.encode() for token in self.tokens] if self.kind in ("word", "char") else self._bytes

    @property
    def byte_pieces(self) -> list[int]:
        """Ids of single bytes and of other tokens that are not whole characters."""
        if self.kind not in ("byte", "bpe"):
            return []
        return [n for n, token in enumerate(self._bytes) if n and (len(token) == 1 or not _is_text(token))]

    def token(self, symbol: int) -> str:
        return self.tokens[symbol]

    @cached_property
    def tokens(self) -> list[str]:
        """The vocabulary by id, as readable text; bytes that are only part of a character look like `<0xC3>`."""
        if self.kind in ("word", "char"):
            return self._symbols
        return [EOS, *map(_readable, self._bytes[1:])]

    @cached_property
    def _symbols(self) -> list[str]:
        vocabulary = self._engine.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)


def _imported(engine: Engine) -> Tokenizer | None:
    if engine.post_processor is None:
        return None
    from regard.text.tokenizers.imported import ImportedTokenizer, boundaries_of  # a subclass

    return None if boundaries_of(json.loads(engine.to_str())) is None else ImportedTokenizer(engine)


def _readable(token: bytes) -> str:
    return token.decode() if _is_text(token) else "".join(f"<0x{byte:02X}>" for byte in token)


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
