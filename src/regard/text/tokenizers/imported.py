"""Another program's tokenizer, used unchanged: byte-level pieces (GPT-2, Llama 3, Qwen) or SentencePiece's (Llama 2).

    a line   →   begin, its pieces, eos            begin = eos in Regard's own tokenizers

Two things differ from Regard's own. A line end inside a text is a piece of the vocabulary, not the boundary; and the
token that a fresh state reads first (`begin`, <s>) may differ from the one that ends a text (`eos`, </s>). Both are in
tokenizer.json, as the template that its `post_processor` puts around a line. Special tokens written out in a text stay
text; `encode_template` is for a chat template's output, where they are meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.text.tokenizers.engine import BYTE_OF_SYMBOL
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.vocabulary import valid_unicode

SPACE = "▁"  # of SentencePiece
HIDDEN = "\ue000"  # before the name of a special piece, where pieces are found by their spelling (unigram)
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
MAX_PATTERN = 2000  # characters of a regular expression
PROBES = ("Hello world, 12345!", "  naïve\tcafé ﬁ ", "日本語 и ещё ☃", "\n", "")
UNCUT = "The imported tokenizer cannot split this text: its tokenizer.json is damaged."
MAX_UNNAMED = 4096  # rows of a model's table without a token
MAX_TOKEN = 4096  # characters of a token
MAX_ADDED = 1 << 17  # tokens that are found as a whole, before a text is cut


@contextmanager
def panics_as(sentence: str) -> Iterator[None]:
    """Damaged tables and endless expressions make the library panic, which Python does not count as an Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, RegardError):
        raise
    except BaseException:
        raise RegardError(sentence) from None


class ImportedTokenizer(Tokenizer):
    """Made by `import_engine` and by `Tokenizer.load`."""

    def __init__(self, engine: Engine) -> None:
        self._engine, there = engine, json.loads(engine.to_str())
        begin, end = (engine.token_to_id(name) for name in boundaries_of(there) or ("", ""))
        if begin is None or end is None:
            raise RegardError(" (it does not define the tokens that begin and end a text)")
        self.kind, self.normalisation, self.pretokenised, self.lossless = "imported", "none", False, False
        self.vocabulary = engine.get_vocab_size()
        self.id_type = np.dtype(np.uint16 if self.vocabulary <= 1 << 16 else np.uint32)
        self.begin, self.eos = begin, end
        unknown = there["model"].get("unk_token")
        self.unk = there["model"].get("unk_id") if unknown is None else engine.token_to_id(unknown)
        control = {one["id"] for one in there["added_tokens"] if one["special"]}
        self.specials = tuple(sorted(control | {end, begin} | ({self.unk} if self.unk is not None else set())))
        self._added = {one["id"]: one["content"] for one in there["added_tokens"]}
        self._byte_level = '"ByteLevel"' in json.dumps([there["pre_tokenizer"], there["decoder"]])
        if sorted(engine.get_vocab().values()) != list(range(self.vocabulary)):
            raise RegardError(" (its ids have gaps)")
        self._plain = Engine.from_str(engine.to_str())
        self._plain.encode_special_tokens = True

    def normalise(self, text: str) -> str:
        """The text itself; the engine normalizes."""
        return valid_unicode(text)

    def encode(self, text: str) -> list[int]:
        with panics_as(UNCUT):
            return list(self._plain.encode(valid_unicode(text), add_special_tokens=False).ids)

    def encode_template(self, text: str) -> list[int]:
        """The ids of a chat template's output, in which special tokens are written by their names."""
        with panics_as(UNCUT):
            return list(self._engine.encode(valid_unicode(text), add_special_tokens=False).ids)

    def encode_normalised(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        return self._encode_each(text.split("\n"))

    def encode_text(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._encode_each(lines)

    def _encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        return self._encode_each(text.split("\n"))

    def _encode_each(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        with panics_as(UNCUT):
            encoded = self._plain.encode_batch_fast([valid_unicode(line) for line in lines], add_special_tokens=False)
        ids = [np.array([*each.ids, self.eos], dtype=np.int64) for each in encoded]
        return np.concatenate(ids), np.cumsum([len(each) for each in ids])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids: the one that ends a text is a line end, other special tokens are nothing."""
        text = b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", "ignore")
        return text.removeprefix(" ") if self._begins_with_space else text

    @cached_property
    def _begins_with_space(self) -> bool:
        """True if a space is put before each text, as SentencePiece does."""
        tokens = self._plain.encode("a", add_special_tokens=False).tokens
        return not self._byte_level and "".join(tokens).startswith(SPACE)

    @cached_property
    def _bytes(self) -> list[bytes]:
        found = [self._bytes_of(number, token) for number, token in enumerate(self._symbols)]
        return [b"" if number in self.specials and number != self.eos else one for number, one in enumerate(found)]

    def _bytes_of(self, number: int, token: str) -> bytes:
        if number == self.eos:
            return b"\n"
        if number in self._added:
            return self._added[number].encode("utf-8", "replace")
        if self._byte_level:
            known = [BYTE_OF_SYMBOL.get(symbol) for symbol in token]
            return bytes(byte for byte in known if byte is not None)
        written = BYTE.fullmatch(token)
        return bytes([int(written[1], 16)]) if written else token.replace(SPACE, " ").encode("utf-8", "replace")

    @property
    def byte_pieces(self) -> list[int]:
        """None: pieces that a text does not contain may have been learned from other texts."""
        return []

    @cached_property
    def tokens(self) -> list[str]:
        return [
            self._symbols[number].removeprefix(HIDDEN) if number in self.specials else readable(one)
            for number, one in enumerate(self._bytes)
        ]


def readable(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in token)


def boundaries_of(there: dict[str, Any]) -> tuple[str, str] | None:
    """`begin` and `eos` of a tokenizer.json that `import_engine` made."""
    around = there.get("post_processor") or {}
    single = around.get("single") if around.get("type") == "TemplateProcessing" else None
    if not isinstance(single, list) or [*map(list, single)] != [["SpecialToken"], ["Sequence"], ["SpecialToken"]]:
        return None
    return single[0]["SpecialToken"]["id"], single[2]["SpecialToken"]["id"]


def import_engine(engine: Engine, *, begin: int, eos: int, vocabulary: int) -> ImportedTokenizer:
    """A tokenizer of the library as one of Regard's, for a model with this many rows in its table.

    Raises a RegardError whose sentence begins with the problem, so that the caller can put the file's name before it.
    """
    there = json.loads(engine.to_str())
    kind = there["model"].get("type")
    if kind not in ("BPE", "Unigram"):
        raise RegardError(
            f"is a {kind!s:.20} tokenizer; Regard reads only byte-level BPE and SentencePiece's BPE and unigram"
        )
    if there["model"].get("dropout"):
        raise RegardError(
            "draws its pieces at random (dropout), so the same text could be tokenized in several ways; set its "
            "dropout to null"
        )
    if there["model"].get("continuing_subword_prefix") or there["model"].get("end_of_word_suffix"):
        raise RegardError("marks where words begin or end, which Regard's decoder does not support")
    if len(there["added_tokens"]) > MAX_ADDED:
        raise RegardError(f"has more than {MAX_ADDED} added tokens, the most that Regard supports")
    if any(len(pattern) > MAX_PATTERN for pattern in _patterns(there)):
        raise RegardError(f"splits text by a regular expression of more than {MAX_PATTERN} characters")
    size = engine.get_vocab_size()
    if not size <= vocabulary <= size + MAX_UNNAMED:
        raise RegardError(f"has {size} tokens, but the model has {vocabulary!s:.20}: they do not belong together")
    if not (0 <= begin < size and 0 <= eos < size):
        raise RegardError(f"has {size} tokens, but the boundaries {begin!s:.20} and {eos!s:.20} are not among them")
    names = engine.get_vocab()
    if sorted(names.values()) != list(range(size)):
        raise RegardError("has gaps in its token ids")
    if max(map(len, names)) > MAX_TOKEN:
        raise RegardError(f"has a token of more than {MAX_TOKEN} characters")
    engine.add_special_tokens([AddedToken(f"<unused {n}>", special=True) for n in range(size, vocabulary)])
    first, last = engine.id_to_token(begin), engine.id_to_token(eos)
    for name in dict.fromkeys(map(str, (first, last))):
        if name.startswith("$") or ":" in name:  # which mean something else in the template below
            raise RegardError(f"has the boundary token {name!r:.40}, whose name the tokenizers library cannot use")
        engine.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    engine.no_truncation()
    engine.no_padding()
    with panics_as("cannot split a plain text: it is damaged"):
        for text in PROBES:
            engine.encode(text, add_special_tokens=False)
    ids = {first: begin, last: eos}
    engine.post_processor = processors.TemplateProcessing(
        single=[first, "$A", last], pair=[first, "$A", last, "$B", last], special_tokens=list(ids.items())
    )
    return ImportedTokenizer(engine)


def _patterns(part: Any) -> list[str]:
    """All regular expressions in a tokenizer.json."""
    if isinstance(part, dict):
        own = [part["Regex"]] if isinstance(part.get("Regex"), str) else []
        return own + [found for name, one in part.items() if name != "vocab" for found in _patterns(one)]
    if isinstance(part, list) and not (part and isinstance(part[0], (str, list))):  # merges hold none
        return [found for one in part for found in _patterns(one)]
    return []
