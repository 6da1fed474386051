"""A split as one long array of token ids, each line followed by `<eos>`; memory-mapped, so it may exceed memory.

<path>.npy    the ids, two bytes each up to 65 536 types, else four
<path>.json   what was counted on the way: characters, lines, unknown words
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from regard.errors import RegardError
from regard.files import reading, writing
from regard.text.corpus import Corpus
from regard.text.fetch import cache_folder
from regard.text.tokenizer import EOS, Tokenizer, blocks

Progress = Callable[[int, int | None], None]  # bytes of text done, about how many in all if known
WRITTEN_EOS = re.compile(rf"[ \t]*{EOS}[ \t]*$", re.M)  # some token files spell it out: it is the line's end itself
LAYOUT = 2  # of the cached files; a change makes old ones unfindable


@dataclass(frozen=True)
class TokenArray:
    """The ids of a split and what perplexity per character needs to know about it."""

    ids: np.ndarray  # [N] uint16 or uint32
    characters: int  # of the normalised text, a line end counting as one
    lines: int
    unknown: int  # tokens that are <unk>


def tokenise(
    lines: Iterable[str], tokenizer: Tokenizer, path: str | Path, progress: Progress | None = None
) -> TokenArray:
    """Writes the ids of all lines to `path` (.npy) in constant memory, and opens it."""
    path = Path(path)
    number = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
    total = getattr(lines, "size", None)
    tokens = characters = line_count = unknown = done = 0
    with writing(path) as stream:
        _write_header(stream, number, 0)
        for text, count in blocks(lines):
            if tokenizer.pretokenised:
                text = WRITTEN_EOS.sub("", text)
            text = tokenizer.normalise(text)
            ids, _ = tokenizer.encode_normalised(text)
            stream.write(ids.astype(number).tobytes())
            tokens += len(ids)
            characters += len(text) + 1
            line_count += count
            unknown += int(np.count_nonzero(ids == tokenizer.unk)) if tokenizer.unk is not None else 0
            if progress:
                done += len(text.encode()) + 1
                progress(done, total)
        if not tokens:
            raise RegardError("There are no lines to tokenise; give a text that is not empty.")
        stream.seek(0)
        _write_header(stream, number, tokens)  # NumPy pads headers so that a longer array's has the same length
        counted = {"tokens": tokens, "characters": characters, "lines": line_count, "unknown": unknown}
        with writing(path.with_suffix(".json")) as note:  # before the array takes its place: who sees one finds both
            note.write(json.dumps(counted).encode())
    return load_tokens(path)


def _write_header(stream: BinaryIO, number: np.dtype, tokens: int) -> None:
    np.lib.format.write_array_header_1_0(
        stream, {"descr": np.lib.format.dtype_to_descr(number), "fortran_order": False, "shape": (tokens,)}
    )


def load_tokens(path: str | Path) -> TokenArray:
    """Opens what `tokenise` wrote, without reading it into memory."""
    path = Path(path)
    with reading(path.with_suffix(".json")) as stream:
        content = stream.read()
    try:
        counted = json.loads(content)
        ids = np.load(path, mmap_mode="r")
        if len(ids) != counted.pop("tokens"):
            raise ValueError
        return TokenArray(ids, **counted)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise RegardError(f"{str(path)!r} is damaged; delete it and tokenise the text again.") from None


def cached(corpus: Corpus, tokenizer: Tokenizer, split: str, progress: Progress | None = None) -> TokenArray:
    """The tokens of a split, from the cache if the same text was tokenised in the same way before."""
    if split not in corpus.splits:
        raise RegardError(f"{corpus.name!r} has no {split} split; choose one of {', '.join(corpus.splits)}.")
    lines = corpus.splits[split]
    content = f"{LAYOUT} {lines.checksum()} {tokenizer.digest}"
    path = cache_folder() / "tokens" / f"{hashlib.blake2b(content.encode(), digest_size=16).hexdigest()}.npy"
    with suppress(RegardError):  # not there, or not whole
        return load_tokens(path)
    return tokenise(lines, tokenizer, path, progress)
