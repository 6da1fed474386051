"""A split as one long array of token ids, each line followed by `<eos>`; memory-mapped, so it may exceed memory.

<path>.npy    the ids, two bytes each up to 65,536 types, else four
<path>.json   counts: characters, lines, unknown words
<path>.part   the unfinished array, with its progress in .part.json
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import BinaryIO

import numpy as np

from regard.base.cache import cache_folder
from regard.base.device import cores
from regard.base.digests import file_digest
from regard.base.errors import RegardError
from regard.base.known_digests import known_digest
from regard.base.locks import lock
from regard.base.reading import reading
from regard.base.writing import remove_partial_files, write_text
from regard.text.corpus import Corpus
from regard.text.tokenizers.engine import EOS
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.vocabulary import blocks

Progress = Callable[[int, int | None], None]  # bytes of text done, about how many in all if known
# Some token files write <eos> out; it is then the line end itself. The pattern starts at the first of several blanks,
# since a search from each of a million would be quadratic.
WRITTEN_EOS = re.compile(rf"(?<![ \t])[ \t]*{EOS}[ \t]*$", re.M)
MIN_PARALLEL_BYTES = 16 << 20  # smaller texts are tokenized by one process
SAVE_EVERY = 64 << 20  # bytes of text after which progress is saved
LAYOUT = 2  # version of the cached files; older ones are ignored


@dataclass(frozen=True)
class TokenArray:
    """The ids of a split, and the counts that perplexity per character needs."""

    ids: np.ndarray  # [N] uint16 or uint32
    characters: int  # of the normalized text, a line end counting as one
    lines: int
    unknown: int  # tokens that are <unk>
    counted: np.ndarray | None = None  # [N] of dialogues: the tokens that are learned and evaluated; None: all


def tokenise(
    lines: Iterable[str],
    tokenizer: Tokenizer,
    path: str | Path,
    progress: Progress | None = None,
    processes: int | None = None,
) -> TokenArray:
    """Writes the ids of all lines to `path` (.npy) in constant memory, and opens it.

    Large texts are tokenized by several processes (`processes`; None = one per core, and one for a small text). If this
    process is killed, its progress stays next to `path`, and the next call resumes.
    """
    path = Path(path)
    number = tokenizer.id_type
    total = getattr(lines, "size", None)
    if processes is None:
        processes = cores() if (total or 0) >= MIN_PARALLEL_BYTES else 1
    part, note = path.with_suffix(".part"), path.with_suffix(".part.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    counted = _done(part, note, number.itemsize)
    with _opened(part, note) as stream:
        _cut_back(stream, number, counted["tokens"])
        rest = islice(lines, counted["lines"], None)
        since = 0
        for ids, more in _cut(blocks(rest), tokenizer, processes):
            stream.write(ids.astype(number).tobytes())
            counted = {name: counted[name] + more[name] for name in counted}
            since += more["bytes"]
            if progress:
                progress(counted["bytes"], total)
            if since >= SAVE_EVERY:
                since = 0
                _keep(stream, note, counted)
        if not counted["tokens"]:
            raise RegardError("There are no lines to tokenize; give text that is not empty.")
        stream.seek(0)
        _write_header(stream, number, counted["tokens"])  # NumPy pads headers, so the length does not change
    del counted["bytes"]
    described = {**counted, "blake2b": _digest(part, counted)}
    write_text(
        path.with_suffix(".json"), json.dumps(described)
    )  # before the array, so that the array never exists without it
    os.replace(part, path)
    note.unlink(missing_ok=True)
    return load_tokens(path)


def _done(part: Path, note: Path, size: int) -> dict[str, int]:
    """The counts that a killed process had last saved to disk."""
    nothing = dict.fromkeys(("tokens", "characters", "lines", "unknown", "bytes"), 0)
    try:
        counted = json.loads(note.read_text(encoding="utf-8"))
        whole = counted.keys() == nothing.keys() and all(type(n) is int for n in counted.values())
        if whole and part.stat().st_size >= counted["tokens"] * size:
            return dict(counted)
    except (OSError, ValueError, AttributeError):
        pass
    note.unlink(missing_ok=True)  # its array no longer exists
    return nothing


@contextmanager
def _opened(part: Path, note: Path) -> Iterator[BinaryIO]:
    """The partial array, for writing. On an error it stays if its progress was saved, unless the disk is full."""
    try:
        with open(part, "r+b" if part.exists() else "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if full or not note.exists():
            part.unlink(missing_ok=True)
            note.unlink(missing_ok=True)
        if full:
            raise RegardError(
                f"The disk is full, so the tokens were not saved in {str(part.parent)!r}: free some space."
            ) from error
        if isinstance(error, OSError):
            raise RegardError(
                f"{str(part)!r} could not be saved ({error.strerror or error}): check the folder."
            ) from error
        raise


def _cut_back(stream: BinaryIO, number: np.dtype, tokens: int) -> None:
    """Truncates after the header and `tokens` tokens."""
    stream.seek(0)
    _write_header(stream, number, tokens)
    stream.seek(stream.tell() + tokens * number.itemsize)
    stream.truncate()


def _keep(stream: BinaryIO, note: Path, counted: Mapping[str, int]) -> None:
    stream.flush()
    os.fsync(stream.fileno())
    write_text(note, json.dumps(counted))


Cut = tuple[np.ndarray, dict[str, int]]  # ids, and counts


def _cut(texts: Iterable[tuple[str, int]], tokenizer: Tokenizer, processes: int) -> Iterator[Cut]:
    """The ids of each text and its counts, in order; few texts at a time, so memory stays small."""
    if processes == 1:
        yield from (_encode(tokenizer, text, count) for text, count in texts)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _learn, (tokenizer.json,)) as pool:
        waiting: deque[tuple[Future[Cut], str, int]] = deque()

        def first() -> Cut:
            future, text, count = waiting.popleft()
            try:
                return future.result()
            except BrokenProcessPool:  # e.g. a script that cannot be imported again: continue in this process
                return _encode(tokenizer, text, count)

        for text, count in texts:
            try:
                waiting.append((pool.submit(_encode_there, text, count), text, count))
            except BrokenProcessPool:
                while waiting:
                    yield first()
                yield _encode(tokenizer, text, count)
            if len(waiting) > 2 * processes:
                yield first()
        while waiting:
            yield first()


def _encode(tokenizer: Tokenizer, text: str, lines: int) -> Cut:
    if tokenizer.pretokenised and EOS in text:
        text = WRITTEN_EOS.sub("", text)
    text = tokenizer.normalise(text)
    ids, _ = tokenizer.encode_normalised(text)
    unknown = int(np.count_nonzero(ids == tokenizer.unk)) if tokenizer.unk is not None else 0
    size = len(text.encode()) + 1
    return ids, {"tokens": len(ids), "characters": len(text) + 1, "lines": lines, "unknown": unknown, "bytes": size}


_tokenizer: Tokenizer | None = None  # of a worker process


def _learn(made_of: str) -> None:
    global _tokenizer
    _tokenizer = Tokenizer.from_json(made_of)


def _encode_there(text: str, lines: int) -> Cut:
    assert _tokenizer is not None
    return _encode(_tokenizer, text, lines)


def _write_header(stream: BinaryIO, number: np.dtype, tokens: int) -> None:
    np.lib.format.write_array_header_1_0(
        stream, {"descr": np.lib.format.dtype_to_descr(number), "fortran_order": False, "shape": (tokens,)}
    )


def load_tokens(path: str | Path) -> TokenArray:
    """Opens what `tokenise` wrote, memory-mapped, after checking its digest."""
    path = Path(path)
    with reading(path.with_suffix(".json")) as stream:
        content = stream.read()
    try:
        counted = json.loads(content)
        ids = np.load(path, mmap_mode="r")
        if counted.pop("blake2b") != _digest(path, counted) or len(ids) != counted.pop("tokens"):
            raise ValueError
        return TokenArray(ids, **counted)
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, RecursionError):
        raise RegardError(f"{str(path)!r} is damaged; delete it and tokenize the text again.") from None


def _digest(path: Path, counted: Mapping[str, int]) -> str:
    """A digest of an array and its counts."""
    digest = known_digest(path, "file", lambda: file_digest(path), tick=0)  # nobody else writes to the cache
    content = f"{digest} {json.dumps(counted, sort_keys=True)}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _unwritable(folder: Path) -> str:
    """Why nothing can be written to a folder; "" if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return "" if error.errno == errno.ENOSPC else error.strerror or str(error)


@lru_cache
def _scratch() -> TemporaryDirectory[str]:
    """A folder that is deleted when the process ends."""
    return TemporaryDirectory(prefix="regard-tokens-")


def cached(
    corpus: Corpus,
    tokenizer: Tokenizer,
    split: str,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda note: None,
) -> TokenArray:
    """The tokens of a split, cached by text and tokenizer. If the cache cannot be written, `say` is called with a note,
    and the tokens are stored in a temporary folder."""
    if split not in corpus.splits:
        raise RegardError(f"{corpus.name!r} has no {split} split; choose one of {', '.join(corpus.splits)}.")
    lines = corpus.splits[split]
    content = f"{LAYOUT} {lines.checksum()} {tokenizer.digest}"
    path = cache_folder() / "tokens" / f"{hashlib.blake2b(content.encode(), digest_size=16).hexdigest()}.npy"
    with suppress(RegardError):  # missing or incomplete
        return load_tokens(path)
    if why := _unwritable(path.parent):
        if not _scratch.cache_info().currsize:  # only once
            say(
                f"note: the cache {cache_folder()} cannot be written ({why}), so the text is tokenized each time; "
                "set REGARD_CACHE to another folder"
            )
        path = Path(_scratch().name) / path.name
    with lock(path.with_suffix(".lock")):  # other processes that need the same text wait
        with suppress(RegardError):
            return load_tokens(path)
        for name in (path.with_suffix(".json"), path.with_suffix(".part.json")):
            remove_partial_files(path.parent, name.name)
        return tokenise(lines, tokenizer, path, progress)
