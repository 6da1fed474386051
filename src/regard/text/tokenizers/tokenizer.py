"""Text to numbers and back: words, characters, bytes or byte-pair encoding.

    text  ->  pieces  ->  ids          "the cat\\n"  ->  the, cat  ->  17, 4, 0

One boundary symbol, `<eos>` (id 0), stands for every line end; words and characters outside the vocabulary become
`<unk>` (id 1); bytes and byte pairs cover everything. Byte-pair encoding (Gage 1994; Sennrich 2016; over bytes: Radford
2019) starts from the 256 bytes, here merged into the characters of the text, and merges the most frequent neighboring
pair again and again. The tokenizer is one `tokenizer.json` of the `tokenizers` library; any other program can load it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count as counter
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.base.writing import writing
from regard.text.tokenizers.piece_table import PieceTable, cut_spaced, cut_words

Kind = Literal["word", "char", "byte", "bpe"]
Normalise = Literal["nfc", "nfkc", "none"]

EOS, UNK = "<eos>", "<unk>"
KINDS = ("word", "char", "byte", "bpe")
LARGEST_BPE, CHARACTERS_PER_SYMBOL = 8000, 200  # the default size: few enough that each symbol is frequent

# Python's and the engine's regular expressions agree on white space except for U+001C–U+001F, named here explicitly.
WHITE = r"\t\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
WORD = r"[\p{L}\p{M}\p{N}_]+"  # with combining marks, which Hindi words contain
SPLIT_WORDS = rf"<unk>|\p{{N}}+(?:[.,:]\p{{N}}+)+|{WORD}(?:['’‑-]{WORD})*|[^\s\x1c-\x1f]"
SPLIT_SPACES = r"[^\s\x1c-\x1f]+"
SPLIT_CHARACTERS = r"[\s\S]"
# The engine's own pattern for byte pairs (GPT-2's), here to learn from characters.
SPLIT_BYTE_PAIRS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Pieces are encoded independently of their neighbours, so each distinct one is encoded only once.
# Words are pieces between white space; byte pairs keep the white space before a piece.
LONGEST_WORD = 1000  # characters that byte pairs are learned from as one word
LONG_RUN = re.compile(rf"\s{{{LONGEST_WORD + 1}}}|\S{{{LONGEST_WORD + 1}}}")
PIECES = re.compile(rf"\n|[{WHITE}]*+[^\n{WHITE}]++|[{WHITE}]++")
MOST_BYTES = 1 << 28  # of a tokenizer.json: seven million words
REMEMBERED = 4_000_000  # characters of pieces whose ids are kept: bounds the memory
SHORT = 8000  # characters of a text that is cut faster into strings than as bytes

CLOSING, OPENING = re.compile(r" ([.,;:!?…)\]}”])(?= |$)", re.M), re.compile(r"(?<!\S)([(\[{“]) ")


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


class Tokenizer:
    """A vocabulary and how text is split into its symbols; made by `train` or `load`."""

    kind: Kind
    normalisation: Normalise
    pretokenised: bool

    def __init__(self, engine: Engine):
        self._engine = engine
        self.kind, self.normalisation, self.pretokenised = _recognise(engine)
        self.vocabulary: int = engine.get_vocab_size()
        self.id_type = np.dtype(np.uint16 if self.vocabulary <= 1 << 16 else np.uint32)  # of ids that are kept
        self.eos: int = 0
        self.unk: int | None = 1 if self.kind in ("word", "char") else None
        self.specials: tuple[int, ...] = (self.eos,) if self.unk is None else (self.eos, self.unk)
        self.lossless: bool = self.kind in ("byte", "bpe") and self.normalisation == "none"
        self._lock = Lock()  # of what is remembered: threads of a server share a tokenizer
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
        """
        _check(kind, vocabulary, normalise)
        normalizer = {"nfc": normalizers.NFC(), "nfkc": normalizers.NFKC(), "none": None}[normalise]
        if kind == "byte":
            engine = _byte_pairs({EOS: 0, **{symbol: 1 + byte for byte, symbol in enumerate(BYTE_SYMBOLS)}}, [], False)
        elif kind == "bpe":
            engine = _train_byte_pairs(lines, vocabulary, normalizer)
        elif kind == "char":
            characters = _count_characters(lines, normalizer)
            del characters["\n"]
            engine = _look_up(_most_frequent(characters, vocabulary), SPLIT_CHARACTERS)
        else:
            split = SPLIT_SPACES if pretokenised else SPLIT_WORDS
            counts = _count_words(lines, normalizer, split)
            if (
                vocabulary is None and not pretokenised
            ):  # words that occur once become <unk>, so that the model learns it
                counts = Counter({word: count for word, count in counts.items() if count > 1}) or counts
            engine = _look_up(_most_frequent(counts, vocabulary), split)
        if normalizer is not None:
            engine.normalizer = normalizer
        return cls(engine)

    @classmethod
    def of_tokens(cls, tokens: Sequence[str], kind: Literal["word", "char"]) -> Tokenizer:
        """A vocabulary given by id, `<eos>` first and `<unk>` second; words are what stands between white space."""
        split = SPLIT_CHARACTERS if kind == "char" else SPLIT_SPACES
        return cls(_look_up({token: number for number, token in enumerate(tokens)}, split))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        content = read_whole(Path(path), MOST_BYTES)
        try:
            made = cls(Engine.from_str(content.decode()))
            _check_parts(made)
            return made
        except RegardError as error:
            raise RegardError(
                f"{str(path)!r} was not written by Regard{error}; train a tokenizer on your text."
            ) from None
        except Exception:  # the engine raises nothing more precise
            raise RegardError(f"{str(path)!r} is damaged or not a tokenizer: restore it or train it again.") from None

    @classmethod
    def from_json(cls, made_of: str) -> Tokenizer:
        return cls(Engine.from_str(made_of))

    @property
    def json(self) -> str:
        """All of it as one line of JSON, which `from_json` reads."""
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
        return _compose(_valid(text), self._engine.normalizer)

    def encode(self, text: str) -> list[int]:
        """The ids of a piece of text. A line end within it is `<eos>`; nothing is added at the end."""
        return self._encode(text)[0][:-1].tolist()

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The span of each token in the normalised line; for words and characters."""
        return list(self._engine.encode(self.normalise(text), add_special_tokens=False).offsets)

    def encode_lines(self, lines: Sequence[str]) -> list[np.ndarray]:
        """The ids of each line, without `<eos>`; much faster than one call of `encode` per line."""
        if not lines:
            return []
        text = "\n".join(lines)
        if text.count("\n") >= len(lines):
            raise ValueError("a line contains a line end")
        ids, ends = self._encode(text)
        return [ids[start : end - 1] for start, end in zip([0, *ends[:-1].tolist()], ends.tolist())]

    def encode_text(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all lines, each followed by `<eos>`, and where each ends. A line end within a line is `<eos>`."""
        ids, ends = self._encode("\n".join(lines))
        if len(ends) > len(lines):
            ends = ends[np.cumsum([1 + line.count("\n") for line in lines]) - 1]
        return ids, ends

    def _encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of any text, as `encode_normalised` gives them. White space stays white space when it is normalised,
        and composes with nothing: so pieces may be cut first, and the engine normalises those it has not met."""
        return self.encode_normalised(self.normalise(text) if self.kind in ("char", "byte") else text)

    def encode_normalised(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of normalised text, each line followed by `<eos>`, and the end of each line (past its `<eos>`)."""
        if self.kind in ("char", "byte"):
            coding, size = ("utf-32-le", np.uint32) if self.kind == "char" else ("utf-8", np.uint8)
            symbols = np.frombuffer(f"{text}\n".encode(coding), size)
            return self._table[symbols], np.flatnonzero(symbols == ord("\n")) + 1
        with self._lock:
            if self._remembered_characters > REMEMBERED:
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
        """The number of each piece of the text. In a long text those that were met before are found by their bytes."""
        if self._piece_table is None or len(text) < SHORT:
            number = self._number_strings(self._cut_strings(_valid(text)))
        else:
            pieces = (cut_spaced if self.kind == "bpe" else cut_words)(_encoded(text + "\n"))
            number, missing = self._piece_table.find(pieces)
            number[missing] = self._number_strings(pieces.strings(missing))
        if len(text) >= SHORT and self._looked_up > len(self._remembered):  # as many as the table takes to make
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
        found = [encoding.ids for encoding in self._engine.encode_batch_fast(new, add_special_tokens=False)]
        lengths = [len(ids) for ids in found]
        ends = self._piece_ends[-1] + np.cumsum(lengths)
        ids = [number for piece in found for number in piece]
        # What is already there is copied, not changed: an interrupted call leaves at most ids that no end includes.
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
        """The text of ids: `<eos>` is a line end; words are joined with normal spacing. Bytes that do not make a whole
        character are left out, so the text of a beginning is the beginning of the text."""
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


def _readable(token: bytes) -> str:
    return token.decode() if _is_text(token) else "".join(f"<0x{byte:02X}>" for byte in token)


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_symbols() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary: itself where it has a shape, else
    the next free one from U+0100 on (the convention of GPT-2, which the engine follows)."""
    hidden = [byte for byte in range(256) if not chr(byte).isprintable() or chr(byte) == " "]
    return [chr(256 + hidden.index(byte)) if byte in hidden else chr(byte) for byte in range(256)]


BYTE_SYMBOLS = _byte_symbols()
BYTE_OF_SYMBOL = {symbol: byte for byte, symbol in enumerate(BYTE_SYMBOLS)}


def _check(kind: str, vocabulary: int | None, normalise: str) -> None:
    if kind not in KINDS:
        raise RegardError(f"There is no tokenizer {kind!r}; choose one of {', '.join(KINDS)}.")
    if normalise not in ("nfc", "nfkc", "none"):
        raise RegardError(f"There is no normalisation {normalise!r}; choose one of nfc, nfkc, none.")
    if vocabulary is None:
        return
    if kind == "byte" and vocabulary != 257:
        raise RegardError("A byte vocabulary always has 257 symbols (256 bytes and <eos>); leave its size out.")
    smallest = 257 if kind == "bpe" else 3
    if vocabulary < smallest:
        raise RegardError(f"A {kind} vocabulary of {vocabulary} is too small; give at least {smallest}.")


def _recognise(engine: Engine) -> tuple[Kind, Normalise, bool]:
    """The arguments of `train`, inferred from the engine's parts, so that the file needs nothing else."""
    cutting = repr(engine.pre_tokenizer)
    kinds: dict[str, tuple[Kind, bool]] = {
        repr(_splitter(SPLIT_WORDS)): ("word", False),
        repr(_splitter(SPLIT_SPACES)): ("word", True),
        repr(_splitter(SPLIT_CHARACTERS)): ("char", False),
        repr(_byte_level(False)): ("byte", False),
        repr(_byte_level(True)): ("bpe", False),
    }
    normalisations: dict[str, Normalise] = {
        "None": "none",
        repr(normalizers.NFC()): "nfc",
        repr(normalizers.NFKC()): "nfkc",
    }
    normalising = repr(engine.normalizer)
    if (
        cutting not in kinds
        or normalising not in normalisations
        or engine.token_to_id(EOS) != 0
        or (kinds[cutting][0] in ("word", "char") and engine.token_to_id(UNK) != 1)
    ):
        raise RegardError("")
    kind, pretokenised = kinds[cutting]
    return kind, normalisations[normalising], pretokenised


def _check_parts(tokenizer: Tokenizer) -> None:
    """Refuses files with parts that would silently change tokens: the engine must follow from its vocabulary alone."""
    there = json.loads(tokenizer.json)
    vocabulary, merges = there["model"]["vocab"], there["model"].get("merges", [])
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise RegardError(" (its ids have gaps)")
    if tokenizer.kind in ("byte", "bpe"):
        symbols = sorted(vocabulary, key=vocabulary.__getitem__)[1:]
        if not {*BYTE_SYMBOLS} <= {*symbols} or not {*"".join(symbols)} <= {*BYTE_SYMBOLS}:
            raise RegardError(" (its symbols are not made of bytes)")
        if tokenizer.kind == "byte" and symbols != BYTE_SYMBOLS:
            raise RegardError(" (its bytes are in another order)")
        plain = _byte_pairs(vocabulary, [(left, right) for left, right in merges], tokenizer.kind == "bpe")
    else:
        split = (
            SPLIT_CHARACTERS if tokenizer.kind == "char" else SPLIT_SPACES if tokenizer.pretokenised else SPLIT_WORDS
        )
        if tokenizer.kind == "char" and any(len(symbol) > 1 for symbol in vocabulary.keys() - {EOS, UNK}):
            raise RegardError(" (a symbol is longer than a character)")
        plain = _look_up(vocabulary, split)
    made = json.loads(plain.to_str())
    for part in there.keys() - {"decoder", "normalizer", "version"}:  # the first is not used, the second was recognised
        if there[part] != made[part]:
            parts = there[part].keys() | made[part].keys() if isinstance(there[part], dict) and made[part] else []
            unlike = [name for name in sorted(parts) if there[part].get(name) != made[part].get(name)]
            raise RegardError(f" (its {'.'.join([part, *unlike[:1]])} is not used here, and would change the tokens)")


def _splitter(pattern: str) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def _byte_level(into_words: bool) -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=into_words)


def _look_up(vocabulary: dict[str, int], split: str) -> Engine:
    engine = Engine(models.WordLevel(vocabulary, unk_token=UNK))
    engine.pre_tokenizer = _splitter(split)
    if split == SPLIT_CHARACTERS:
        engine.decoder = decoders.Fuse()
    return engine


def _byte_pairs(vocabulary: dict[str, int], merges: list[tuple[str, str]], into_words: bool) -> Engine:
    # <eos> is in the vocabulary but not one of the engine's added tokens: the characters "<eos>" in a text stay text.
    engine = Engine(models.BPE(vocabulary, merges))
    engine.pre_tokenizer = _byte_level(into_words)
    engine.decoder = decoders.ByteLevel()
    return engine


def _train_byte_pairs(lines: Iterable[str], size: int | None, normalizer: normalizers.Normalizer | None) -> Engine:
    """First merges the bytes of each character of the text, then the most frequent neighbors among characters."""
    lines = list(lines) if isinstance(lines, Iterator) else lines  # they are read twice
    counts = _count_characters(lines, normalizer)
    vocabulary = {EOS: 0, **{symbol: 1 + place for place, symbol in enumerate(sorted(BYTE_SYMBOLS))}}
    room = len(vocabulary) + ((size or LARGEST_BPE) - len(vocabulary)) // 2
    alphabet, merges = _merge_characters(counts, vocabulary, room)
    size = size or min(LARGEST_BPE, len(vocabulary) + counts.total() // CHARACTERS_PER_SYMBOL)
    splits = [pre_tokenizers.Split(Regex(SPLIT_BYTE_PAIRS), "isolated")]
    if rare := "".join(char for char in counts if not char.isascii() and char not in alphabet):
        splits.insert(0, pre_tokenizers.Split(Regex(f"[{rare}]"), "removed"))

    def words() -> Iterator[str]:
        for line in lines:
            line = _compose(line, normalizer)
            if LONG_RUN.search(line):  # as one word it would take quadratic time
                yield from (line[begin : begin + LONGEST_WORD] for begin in range(0, len(line), LONGEST_WORD))
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
    return _byte_pairs(vocabulary, merges, True)


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
        pieces.update(_compose(text, normalizer).split())
    return split_words(pieces, split)


def split_words(pieces: Mapping[str, int], split: str) -> Counter[str]:
    """Counts of the words in counted pieces of text that stood between white space."""
    words: Counter[str] = Counter()
    splitter = _splitter(split)
    for piece, count in pieces.items():
        for word, _ in splitter.pre_tokenize_str(piece):
            words[word] += count
    return words


def _count_characters(lines: Iterable[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    """Counts of the characters, with a line end for each line."""
    counts = np.zeros(0x110000, np.int64)
    for text, _ in blocks(lines):
        codes = np.frombuffer(f"{_compose(_valid(text), normalizer)}\n".encode("utf-32-le"), np.uint32)
        counts += np.bincount(codes, minlength=len(counts))
    return Counter({chr(code): int(counts[code]) for code in np.flatnonzero(counts).tolist()})


def _valid(text: str) -> str:
    if not text.isascii():
        _encoded(text)
    return text


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        piece = text[max(error.start - 10, 0) : error.start + 1]
        raise RegardError(f"The text has half a surrogate pair after {piece!r}; give valid Unicode.") from None


def _compose(text: str, normalizer: normalizers.Normalizer | None) -> str:
    return text if normalizer is None or text.isascii() else normalizer.normalize_str(text)


def _most_frequent(counts: Counter[str], size: int | None) -> dict[str, int]:
    ordinary = sorted(counts.keys() - {EOS, UNK}, key=lambda token: (-counts[token], token))
    return {token: symbol for symbol, token in enumerate([EOS, UNK, *ordinary][:size])}
