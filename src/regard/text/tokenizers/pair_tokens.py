"""Sentence pairs as token ids: two flat arrays with offsets; each source and each target ends in `<eos>`.

Pairs with an empty side, or a side of more than `longest` tokens (unless truncated), are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy

from regard.base.numbers import group_digits, pluralize
from regard.text.cached_text import cached_for_text
from regard.text.pairs import Pairs
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.vocabulary import blocks

MAX_PAIR_TOKENS = 256
REASONS = ("empty source", "empty target", "long source", "long target")
ARRAYS = ("source", "source_offsets", "target", "target_offsets", "kept")
COUNTS = ("truncated", "longest", "characters", "unknown")


@dataclass(frozen=True)
class TokenPairs:
    """The ids of pair i: `source[source_offsets[i] : source_offsets[i + 1]]`, and likewise its target."""

    source: np.ndarray  # flat, uint16 or uint32
    source_offsets: np.ndarray  # [N + 1] int64
    target: np.ndarray
    target_offsets: np.ndarray
    kept: np.ndarray  # [N] indices of the kept pairs
    dropped: Mapping[str, int]  # reason → pairs
    truncated: int  # pairs with a truncated side
    longest: int  # maximum tokens of a side, without <eos>
    characters: int  # of the kept targets, normalized, a line end counting as one
    unknown: int  # target tokens that are <unk>

    def __len__(self) -> int:
        return len(self.kept)

    def source_of(self, index: int) -> np.ndarray:
        return self.source[self.source_offsets[index] : self.source_offsets[index + 1]]

    def target_of(self, index: int) -> np.ndarray:
        return self.target[self.target_offsets[index] : self.target_offsets[index + 1]]

    @property
    def source_lengths(self) -> np.ndarray:
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> np.ndarray:
        return np.diff(self.target_offsets)

    @property
    def sentences(self) -> list[str]:
        """Sentences about dropped and truncated pairs."""
        wording = {
            "empty source": "with an empty source",
            "empty target": "with an empty target",
            "long source": f"whose source has more than {self.longest} tokens",
            "long target": f"whose target has more than {self.longest} tokens",
        }
        notes, total = [], len(self) + sum(self.dropped.values())
        if count := sum(self.dropped.values()):
            reasons = ", ".join(f"{group_digits(number)} {wording[reason]}" for reason, number in self.dropped.items())
            notes.append(f"{group_digits(count)} of {pluralize(total, 'pair')} dropped: {reasons}.")
        if self.truncated:
            notes.append(
                f"{group_digits(self.truncated)} of {pluralize(total, 'pair')} cut off at {self.longest} tokens."
            )
        return notes


def encode_pairs(
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    longest: int = MAX_PAIR_TOKENS,
    truncate: bool = False,
) -> TokenPairs:
    """The ids of all pairs that have two sides of at most `longest` tokens each; `truncate` cuts longer ones."""
    source, source_offsets, _ = encode_side(pairs.sources, source_tokenizer)
    target, target_offsets, characters = encode_side(pairs.targets, target_tokenizer)
    lengths = [np.diff(source_offsets), np.diff(target_offsets)]  # with <eos>
    long = [length > longest + 1 for length in lengths]
    empty = [
        np.fromiter((not text.strip() for text in side), bool, len(pairs)) for side in (pairs.sources, pairs.targets)
    ]
    kept, dropped = np.ones(len(pairs), bool), {}
    for reason, refused in zip(REASONS, [*empty, *([] if truncate else long)]):
        if count := int(np.count_nonzero(kept & refused)):
            dropped[reason] = count
        kept &= ~refused
    chosen = np.flatnonzero(kept)
    sides = [
        _cut(ids, offsets[:-1][chosen], np.diff(offsets)[chosen], longest, tokenizer.eos)
        for ids, offsets, tokenizer in (
            (source, source_offsets, source_tokenizer),
            (target, target_offsets, target_tokenizer),
        )
    ]
    return TokenPairs(
        *sides[0],
        *sides[1],
        kept=chosen,
        dropped=dropped,
        truncated=int(np.count_nonzero((long[0] | long[1])[chosen])),
        longest=longest,
        characters=int(characters[chosen].sum()),
        unknown=0 if target_tokenizer.unk is None else int(np.count_nonzero(sides[1][0] == target_tokenizer.unk)),
    )


def cached_token_pairs(
    encode: Callable[..., TokenPairs],
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    longest: int,
    truncate: bool,
) -> TokenPairs:
    """The result of `encode_pairs` or `encode_labelled`, cached."""
    return cached_for_text(
        "pairs",
        pairs.characters,
        (encode.__name__, pairs.checksum(), source_tokenizer.digest, target_tokenizer.digest, longest, truncate),
        lambda: encode(pairs, source_tokenizer, target_tokenizer, longest=longest, truncate=truncate),
        _dump,
        _parse,
    )


def _dump(made: TokenPairs) -> bytes:
    counts = [*(made.dropped.get(reason, 0) for reason in REASONS), *(getattr(made, name) for name in COUNTS)]
    arrays = {name: getattr(made, name) for name in ARRAYS}
    return safetensors.numpy.save(arrays | {"counts": np.array(counts, np.int64)})


def _parse(content: bytes) -> TokenPairs:
    arrays: dict[str, Any] = safetensors.numpy.load(content)
    counts = arrays.pop("counts").tolist()
    dropped = {reason: count for reason, count in zip(REASONS, counts) if count}
    return TokenPairs(**arrays, dropped=dropped, **dict(zip(COUNTS, counts[len(REASONS) :])))


def encode_side(lines: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flat ids with `<eos>` after each line, where each line starts [N + 1], and its characters [N]."""
    ids, lengths, characters = [np.empty(0, tokenizer.id_type)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for text, count in blocks(lines):
        text = tokenizer.normalise(text)
        block, ends = tokenizer.encode_normalised(text)
        if len(ends) != count:
            raise ValueError("a side contains a line break")
        ids.append(block.astype(tokenizer.id_type))
        lengths.append(np.diff(ends, prepend=0))
        characters.append(np.fromiter((len(line) + 1 for line in text.split("\n")), np.int64, count))
    return np.concatenate(ids), offsets_of(np.concatenate(lengths)), np.concatenate(characters)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def gather(ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The given ranges of a flat array, concatenated."""
    offsets = offsets_of(lengths)
    return ids[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]


def _cut(
    ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, longest: int, eos: int
) -> tuple[np.ndarray, np.ndarray]:
    """The given ranges, truncated to `longest` tokens and an `<eos>`."""
    lengths = np.minimum(lengths, longest + 1)
    flat, offsets = gather(ids, starts, lengths), offsets_of(lengths)
    flat[offsets[1:] - 1] = eos
    return flat, offsets
