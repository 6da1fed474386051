"""Tokenizers that come with other programs' models, as engines of the `tokenizers` library.

byte pairs        GPT-2's kind: bytes as printable symbols, merges in order (GGUF: tokenizer.ggml.model gpt2)
SentencePiece     pieces with scores (GGUF: llama; llama2.c's tok.bin): of all neighbors, the pair whose joined piece
                  scores best is merged first; characters without a piece become bytes <0xFF>
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.text.tokenizers.imported import MAX_ADDED, MAX_TOKEN, SPACE

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of tokens, as GGUF and SentencePiece number them
MAX_VOCABULARY = 1 << 20
MAX_PIECE = 1 << 10  # bytes of a token
MAX_FILE_BYTES = 1 << 26
MAX_CUTS = 1 << 25  # characters compared to find the pairs that a piece can be made of; Llama 2's take 2 million

_NUMBERS = pre_tokenizers.Digits(individual_digits=True)
_MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


CUTS = ("gpt-2", "smollm", "llama-bpe", "qwen2")  # one name for each known method


def _cut(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def cut_by(name: str) -> pre_tokenizers.PreTokenizer | None:
    """How text is cut before bytes are merged, by the name that GGUF files use."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("default", "gpt-2"):
        return byte_level
    if name in ("smollm", "starcoder", "refact", "command-r"):
        return pre_tokenizers.Sequence([_NUMBERS, byte_level])
    digits = {"llama-bpe": "{1,3}", "llama3": "{1,3}", "llama-v3": "{1,3}", "qwen2": ""}.get(name)
    return None if digits is None else _cut(_MODERN.format(digits=digits))


def byte_pairs(tokens: Sequence[str], merges: Sequence[str], kinds: Sequence[int], cut: str) -> Engine:
    splitter = cut_by(cut)
    if splitter is None:
        raise RegardError(
            f"splits text by the rules {cut!r:.40}, which Regard does not know: import the Hugging Face folder, whose "
            "tokenizer.json contains them"
        )
    pairs = [merge.partition(" ")[::2] for merge in merges]
    numbers = numbered(tokens)
    if not all({*pair, "".join(pair)} <= numbers.keys() for pair in pairs):
        raise RegardError("has a merge of tokens that are not in its vocabulary")
    engine = Engine(models.BPE(numbers, pairs, ignore_merges=cut in ("llama-bpe", "llama3", "llama-v3")))
    if cut == "qwen2":
        engine.normalizer = normalizers.NFC()
    engine.pre_tokenizer = splitter
    engine.decoder = decoders.ByteLevel()
    add_special(engine, tokens, kinds)
    return engine


def sentence_pieces(tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int], prefix: bool) -> Engine:
    """SentencePiece's BPE; `prefix`: a space is put before a text."""
    numbers, pairs = numbered(tokens), piece_pairs(tokens, scores, kinds)
    unknown = next((token for token, kind in zip(tokens, kinds) if kind == UNKNOWN), None)
    covers = all(f"<0x{byte:02X}>" in numbers for byte in range(256))
    engine = Engine(models.BPE(numbers, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=covers))
    spaced: list[Any] = [normalizers.Prepend(SPACE)] if prefix else []
    engine.normalizer = normalizers.Sequence([*spaced, normalizers.Replace(" ", SPACE)])
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    engine.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    add_special(engine, tokens, kinds)
    return engine


def piece_pairs(tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int]) -> list[tuple[str, str]]:
    """The merges that scores imply, in their order."""
    numbers = {token: number for number, token in enumerate(tokens)}
    plain = {token for token, kind in zip(tokens, kinds) if kind == NORMAL}
    if sum(len(token) ** 2 for token in plain) > MAX_CUTS:
        raise RegardError("has so many long pieces that finding their merges would take too long")
    merges = [
        (-scores[numbers[token]], numbers[token[:cut]], numbers[token[cut:]])
        for token in plain
        for cut in range(1, len(token))
        if token[:cut] in plain and token[cut:] in plain
    ]
    return [(tokens[left], tokens[right]) for _, left, right in sorted(merges)]


def numbered(tokens: Sequence[str]) -> dict[str, int]:
    if any(len(token) > MAX_TOKEN for token in tokens):  # the engine needs many times as much memory
        raise RegardError(f"has a token of more than {MAX_TOKEN} characters")
    numbers = {token: number for number, token in enumerate(tokens)}
    if len(numbers) != len(tokens):
        twice = next(token for number, token in enumerate(tokens) if numbers[token] != number)
        raise RegardError(f"has the token {twice!r:.40} twice")
    return numbers


def add_special(engine: Engine, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    special = [token for token, kind in zip(tokens, kinds) if kind in (CONTROL, UNKNOWN)]
    named = [token for token, kind in zip(tokens, kinds) if kind == 4]  # added by a user, matched as a whole
    if len(special) + len(named) > MAX_ADDED:
        raise RegardError(f"has more than {MAX_ADDED} special tokens, the most that Regard supports")
    engine.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    engine.add_tokens([AddedToken(token, normalized=False) for token in named])


# -- files -------------------------------------------------------------------------------------------------------------


def llama2c_tokenizer(path: Path, vocabulary: int) -> Engine:
    """tok.bin of llama2.c: the longest token's length, then for each token a score, its length and its bytes."""
    content, place = read_whole(path, MAX_FILE_BYTES, foreign=True), 4
    tokens, scores = [], []
    try:
        for _ in range(vocabulary):
            score, length = struct.unpack_from("<fi", content, place)
            if not 0 <= length <= MAX_PIECE or place + 8 + length > len(content):
                raise ValueError
            tokens.append(content[place + 8 : place + 8 + length].decode())
            scores.append(score)
            place += 8 + length
    except (struct.error, ValueError):
        raise RegardError(f"{path} is not a llama2.c tokenizer of {vocabulary} tokens, or is damaged.") from None
    if place != len(content):
        raise RegardError(f"{path} has more than the model's {vocabulary} tokens: it belongs to a different model.")
    tokens[:3] = ["<unk>", "<s>", "</s>"]  # by position; the file contains a printable spelling
    tokens = [token.replace(" ", SPACE) for token in tokens]
    kinds = [UNKNOWN, CONTROL, CONTROL, *(BYTE if token.startswith("<0x") else NORMAL for token in tokens[3:])]
    return sentence_pieces(tokens, scores, kinds, prefix=True)
