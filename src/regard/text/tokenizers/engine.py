"""The engine of the `tokenizers` library behind each kind of tokenizer: building and recognizing it."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Literal

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError

Kind = Literal["word", "char", "byte", "bpe", "imported"]
Normalise = Literal["nfc", "nfkc", "none"]

EOS, UNK = "<eos>", "<unk>"
KINDS = ("word", "char", "byte", "bpe")

# Python's and the engine's regular expressions agree on white space except for U+001C–U+001F, named here explicitly.
WHITE = r"\t\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
WORD = r"[\p{L}\p{M}\p{N}_]+"  # with combining marks, which Hindi words contain
SPLIT_WORDS = rf"<unk>|\p{{N}}+(?:[.,:]\p{{N}}+)+|{WORD}(?:['’‑-]{WORD})*|[^\s\x1c-\x1f]"
SPLIT_SPACES = r"[^\s\x1c-\x1f]+"
SPLIT_CHARACTERS = r"[\s\S]"
# The engine's own pattern for byte pairs (GPT-2's), here to learn from characters.
SPLIT_BYTE_PAIRS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _byte_symbols() -> list[str]:
    """The printable character for each byte in a byte-level vocabulary: the byte's own if it is printable, else the
    next free one from U+0100 on (GPT-2's convention, which the engine follows)."""
    hidden = [byte for byte in range(256) if not chr(byte).isprintable() or chr(byte) == " "]
    return [chr(256 + hidden.index(byte)) if byte in hidden else chr(byte) for byte in range(256)]


BYTE_SYMBOLS = _byte_symbols()
BYTE_OF_SYMBOL = {symbol: byte for byte, symbol in enumerate(BYTE_SYMBOLS)}


# Bounds of a tokenizer.json: beyond them the library aborts the process, or fills the memory.
MAX_ID = 1 << 24  # it makes room for every id up to the highest
MAX_AFFIX = 100  # characters put before or after a token
MAX_GROWTH = 1 << 12  # times as long as it was that a text may become


def parse(content: str) -> Engine:
    """The engine of a tokenizer.json, which may come from a stranger; ValueError or another Exception if it cannot be
    used. The library panics over some, which Python does not count as an Exception."""
    there = json.loads(content)
    model = there["model"]
    ids = model["vocab"].values() if isinstance(model["vocab"], dict) else ()
    affixes = [model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix")]
    growth = _growth([there.get("normalizer"), there.get("pre_tokenizer")])  # the decoder is never run
    if max(ids, default=0) > MAX_ID or max(map(len, affixes)) > MAX_AFFIX or growth > MAX_GROWTH:
        raise ValueError
    try:
        return Engine.from_str(json.dumps(there))  # of a name that occurs twice, what was checked
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:
        raise ValueError from None


def _growth(part: Any) -> float:
    """How many times as long a text may become in these steps of a tokenizer, at most."""
    if isinstance(part, list):
        return math.prod(map(_growth, part))
    if not isinstance(part, dict):
        return 1
    match part.get("type"):
        case "Replace":
            found = part["pattern"].get("String")
            return max(1, len(part["content"]) / len(found)) if found else 1 + len(part["content"])
        case "Prepend":
            return 1 + len(part["prepend"])
        case "Precompiled":
            return charsmap_growth(base64.b64decode(part["precompiled_charsmap"] or ""))
        case "ByteLevel" | "Metaspace":
            return 2
    return _growth([inside for inside in part.values() if isinstance(inside, list)])


def charsmap_growth(table: bytes) -> int:
    """The same of SentencePiece's table of characters: the size of a tree, the tree, and the texts that it leads to."""
    size = int.from_bytes(table[:4], "little")
    if size > len(table) - 4:
        raise ValueError
    return max(1, *map(len, table[4 + size :].split(b"\0")))


def recognise(engine: Engine) -> tuple[Kind, Normalise, bool]:
    """The arguments of `train`, inferred from the engine's parts, so that the file needs nothing else."""
    cutting = repr(engine.pre_tokenizer)
    kinds: dict[str, tuple[Kind, bool]] = {
        repr(splitter(SPLIT_WORDS)): ("word", False),
        repr(splitter(SPLIT_SPACES)): ("word", True),
        repr(splitter(SPLIT_CHARACTERS)): ("char", False),
        repr(byte_level(False)): ("byte", False),
        repr(byte_level(True)): ("bpe", False),
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


def check_parts(engine: Engine) -> None:
    """Refuses files with parts that would silently change tokens: the engine must follow from its vocabulary alone."""
    kind, _, pretokenised = recognise(engine)
    there = json.loads(engine.to_str())
    vocabulary, merges = there["model"]["vocab"], there["model"].get("merges", [])
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise RegardError(" (its ids have gaps)")
    if kind in ("byte", "bpe"):
        symbols = sorted(vocabulary, key=vocabulary.__getitem__)[1:]
        if not {*BYTE_SYMBOLS} <= {*symbols} or not {*"".join(symbols)} <= {*BYTE_SYMBOLS}:
            raise RegardError(" (its symbols are not made of bytes)")
        if kind == "byte" and symbols != BYTE_SYMBOLS:
            raise RegardError(" (its bytes are in a different order)")
        plain = byte_pairs(vocabulary, [(left, right) for left, right in merges], kind == "bpe")
    else:
        split = SPLIT_CHARACTERS if kind == "char" else SPLIT_SPACES if pretokenised else SPLIT_WORDS
        if kind == "char" and any(len(symbol) > 1 for symbol in vocabulary.keys() - {EOS, UNK}):
            raise RegardError(" (a symbol is longer than a character)")
        plain = word_level(vocabulary, split)
    made = json.loads(plain.to_str())
    for part in there.keys() - {"decoder", "normalizer", "version"}:  # the first is not used, the second was recognized
        if there[part] != made[part]:
            parts = there[part].keys() | made[part].keys() if isinstance(there[part], dict) and made[part] else []
            unlike = [name for name in sorted(parts) if there[part].get(name) != made[part].get(name)]
            raise RegardError(f" (its {'.'.join([part, *unlike[:1]])} is not used here, and would change the tokens)")


def splitter(pattern: str) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def byte_level(into_words: bool) -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=into_words)


def word_level(vocabulary: dict[str, int], split: str) -> Engine:
    engine = Engine(models.WordLevel(vocabulary, unk_token=UNK))
    engine.pre_tokenizer = splitter(split)
    if split == SPLIT_CHARACTERS:
        engine.decoder = decoders.Fuse()
    return engine


def byte_pairs(vocabulary: dict[str, int], merges: list[tuple[str, str]], into_words: bool) -> Engine:
    # <eos> is in the vocabulary but not one of the engine's added tokens: the characters "<eos>" in a text stay text.
    engine = Engine(models.BPE(vocabulary, merges))
    engine.pre_tokenizer = byte_level(into_words)
    engine.decoder = decoders.ByteLevel()
    return engine
