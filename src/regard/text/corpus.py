"""A corpus: named text, cut into training, validation and test lines.

Files are read as streams: text may be larger than memory.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import BinaryIO

from regard.errors import RegardError
from regard.files import reading
from regard.numbers import counted, grouped
from regard.text.builtin import BUILTIN, built_in
from regard.text.catalogue import CATALOGUE, DOWNLOADS, Download
from regard.text.fetch import data_folders
from regard.text.split import PARTS, Draw, line_hash

BOM = b"\xef\xbb\xbf"
SPLITS = {"train": ("train", "training"), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
SUFFIXES = ("", ".txt", ".text", ".tokens", ".raw")
LOOK = 1 << 16  # bytes from which a file that is no text is recognised


class Lines(ABC):
    """Lines of text, without their line ends, that can be read again and again."""

    @property
    def size(self) -> int | None:
        """About how many bytes of text; None: unknown before it is read."""
        return None

    @abstractmethod
    def __iter__(self) -> Iterator[str]: ...

    @abstractmethod
    def checksum(self) -> str:
        """A digest that changes when a line changes."""


@dataclass(frozen=True)
class GivenLines(Lines):
    """Lines in memory."""

    lines: tuple[str, ...] = field(repr=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def checksum(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for line in self.lines:
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class FileLines(Lines):
    """The lines that begin within a stretch of a file's bytes."""

    path: Path
    start: int = 0
    stop: int | None = None

    @property
    def size(self) -> int | None:
        if self.stop is None and self.path.suffix == ".gz":
            return None
        return (self.path.stat().st_size if self.stop is None else self.stop) - self.start

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path, self.start, self.stop)

    def checksum(self) -> str:
        return _digest(content_digest(self.path), str(self.start), str(self.stop))


@dataclass(frozen=True)
class DrawnLines(Lines):
    """The lines of a file that were drawn for one split; blank lines stay with the line before them."""

    path: Path
    draw: Draw
    split: str

    @property
    def size(self) -> int | None:
        if self.path.suffix == ".gz":
            return None
        parts = PARTS - len(self.draw.held_out) if self.split == "train" else 1
        return self.path.stat().st_size * parts // PARTS

    def __iter__(self) -> Iterator[str]:
        split = "train"
        for line in read_lines(self.path):
            if line.strip():
                split = self.draw(line)
            if split == self.split:
                yield line

    def checksum(self) -> str:
        return _digest(content_digest(self.path), "drawn", *self.draw.splits, self.split)


@dataclass(frozen=True)
class Corpus:
    """Named text with its splits; `notes` says how they came about and how much they share."""

    name: str
    splits: Mapping[str, Lines]
    pretokenised: bool = False
    suggested_tokenizer: str = "bpe"
    origin: str = ""  # one sentence: where the splits come from
    disjoint: bool = False  # by construction; otherwise the overlap is counted

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences to print; counting the overlap reads the whole text, so it waits until it is asked for."""
        found = () if self.disjoint else tuple(overlap.sentence for overlap in count_overlap(self.splits))
        return (self.origin, *found) if self.origin else found

    def checksum(self) -> str:
        return _digest(*(f"{name}:{lines.checksum()}" for name, lines in sorted(self.splits.items())))


@dataclass(frozen=True)
class Overlap:
    """How many lines of a held-out split also occur in the training text (blank lines aside)."""

    split: str
    lines: int
    shared: int

    @property
    def sentence(self) -> str:
        if not self.shared:
            return f"No line of {self.split} occurs in train."
        shared = f"{grouped(self.shared)} of {counted(self.lines, 'line')} of {self.split}"
        verb = "occurs" if self.shared == 1 else "occur"
        return f"{shared} ({100 * self.shared / self.lines:.1f} %) also {verb} in train."


def count_overlap(splits: Mapping[str, Lines]) -> list[Overlap]:
    held_out = {
        name: Counter(line_hash(line) for line in lines if line.strip())
        for name, lines in splits.items()
        if name != "train"
    }
    known = set().union(*held_out.values())
    trained = {number for number in (line_hash(line) for line in splits["train"] if line.strip()) if number in known}
    return [
        Overlap(name, counts.total(), sum(counts[number] for number in counts.keys() & trained))
        for name, counts in held_out.items()
    ]


def read_lines(path: Path, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """The lines of a UTF-8 file that begin in [start, stop), without line ends (LF or CR LF) and byte-order mark."""
    offset = start
    with reading(path) as stream:
        stream.seek(start)
        for raw in stream:
            if stop is not None and offset >= stop:
                return
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                raise _not_utf8(path, offset, raw, error) from None
            if offset == 0:
                line = line.removeprefix("\ufeff")
            yield line.removesuffix("\n").rstrip("\r")
            offset += len(raw)


def _not_utf8(path: Path, offset: int, raw: bytes, error: UnicodeDecodeError) -> RegardError:
    number = 1
    with reading(path) as stream:
        remaining = offset
        while remaining and (block := stream.read(min(LOOK, remaining))):
            number += block.count(b"\n")
            remaining -= len(block)
    return RegardError(
        f"{str(path)!r} is not UTF-8 text: line {number} has the byte 0x{raw[error.start]:02X} at offset "
        f"{offset + error.start}; convert it, for example with `iconv -f latin1 -t utf-8`."
    )


def content_digest(path: Path) -> str:
    """The digest of a file's (unpacked) bytes, computed once for as long as the file is not touched."""
    state = path.stat()
    return _content_digest(path, state.st_size, state.st_mtime_ns)


@lru_cache
def _content_digest(path: Path, size: int, modified: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with reading(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def is_named(name: str) -> bool:
    """Whether this is the name of a corpus, built in or known, rather than a file's."""
    return name in BUILTIN or name in CATALOGUE


def open_corpus(name_or_path: str | Path, split: str = "auto") -> Corpus:
    """Opens a built-in corpus, a fetched one, a text file (`.gz` too) or a folder with train, valid and test files.

    `split` divides a single file: "lines" (what auto does) draws lines by their hash, "tail" holds out the last tenth.
    """
    name, path = str(name_or_path), Path(name_or_path)
    is_folder = os.path.isdir(name)
    if split not in ("auto", "lines", "tail"):
        raise RegardError(f"A text cannot be split by {split!r}; choose lines or tail.")
    if split != "auto" and (is_named(name) or is_folder):
        raise RegardError(f"{name!r} has its own splits; leave the split out, or give a single file.")
    if name in BUILTIN:
        return _open_built_in(name)
    if name in CATALOGUE:
        return _open_download(CATALOGUE[name])
    if is_folder:
        return _open_folder(path)
    if not os.path.exists(name):
        raise unknown_corpus(name, path)
    return _open_file(path, (0.9, 0.95) if split == "tail" else ())


def available() -> list[dict[str, str]]:
    """The corpora that have a name: what each is, and whether it is on this machine."""
    kinds = {"phrasebook": "built in, pairs"}
    rows = [
        {"name": name, "kind": kinds.get(name, "built in"), "here": "yes", "about": about}
        for name, about in BUILTIN.items()
    ]
    for download in DOWNLOADS:
        folders = [place / download.name for place in data_folders() if (place / download.name).is_dir()]
        here = str(folders[0]) if folders else f"regard data fetch {download.name}"
        about = f"{download.title} ({download.licence})"
        kind = "download, pairs" if download.pairs else "download"
        rows.append({"name": download.name, "kind": kind, "here": here, "about": about})
    return rows


def unknown_corpus(name: str, path: Path) -> RegardError:
    beside = [entry.name for entry in entries(path.parent)] if os.path.isdir(path.parent) else []
    close = get_close_matches(name, [*BUILTIN, *CATALOGUE], 1) or [
        str(path.with_name(match)) for match in get_close_matches(path.name, beside, 1)
    ]
    advice = f"did you mean {close[0]!r}?" if close else "`regard data` lists the corpora that have a name."
    return RegardError(f"There is no corpus, file or folder {name!r}; {advice}")


def _open_built_in(name: str) -> Corpus:
    text = built_in(name)
    return Corpus(
        name,
        {split: GivenLines(tuple(lines)) for split, lines in text.splits.items()},
        pretokenised=text.pretokenised,
        suggested_tokenizer="word" if text.pretokenised else "bpe",
        origin=text.origin,
        disjoint=text.disjoint,
    )


def _open_download(download: Download) -> Corpus:
    name = download.name
    folders = [place / name for place in data_folders() if (place / name).is_dir()]
    if folders and download.pairs:
        raise RegardError(f"{name!r} holds sentence pairs; for a language model give one file of {str(folders[0])!r}.")
    for folder in folders:
        if corpus := _open_whole(download, folder):
            return replace(
                corpus, name=name, pretokenised=download.pretokenised, suggested_tokenizer=download.tokenizer
            )
    found = "is incomplete" if folders else "is not"
    raise RegardError(f"{name!r} {found} on this machine; run `regard data fetch {name}` first.")


def _open_whole(download: Download, folder: Path) -> Corpus | None:
    """The corpus in a folder, whose files may also have other names than the download's; None if one is missing."""
    if not download.cuts:
        splits = split_files(folder)
        return _open_splits(splits) if len(splits) == len(download.files) else None
    files = _text_files(folder)
    exact = [path for path in files if path.name.removesuffix(".gz") == download.files[0].name]
    return _open_file((exact or files)[0], download.cuts) if files else None


def _open_file(path: Path, cuts: tuple[float, ...]) -> Corpus:
    refuse_what_is_no_text(path)
    if cuts:
        _require_distinct(path, 2)
        splits, origin = _tail_splits(path, cuts)
        return _corpus(path, splits, origin)
    splits, origin = _drawn_splits(path, ("valid", "test"))
    return _corpus(path, splits, origin, disjoint=True)


def _open_folder(folder: Path) -> Corpus:
    files = split_files(folder)
    if "train" not in files:
        single = _text_files(folder)
        advice = f"or give the file {str(single[0])!r} itself" if len(single) == 1 else "or give one text file"
        raise RegardError(f"The folder {str(folder)!r} has no training file; name it train.txt, {advice}.")
    return replace(_open_splits(files), name=folder.resolve().name)


def _open_splits(files: Mapping[str, Path]) -> Corpus:
    for path in files.values():
        refuse_what_is_no_text(path)
        _require_distinct(path, 1)
    given = ", ".join(path.name for path in files.values())
    if "valid" in files:
        lines = {name: FileLines(path) for name, path in files.items()}
        return _corpus(files["train"], lines, f"Splits as given: {given}.")
    splits, origin = _drawn_splits(files["train"], ("valid",) if "test" in files else ("valid", "test"))
    splits |= {name: FileLines(path) for name, path in files.items() if name != "train"}
    return _corpus(files["train"], splits, f"Given: {given}. {origin}", disjoint="test" not in files)


def _corpus(path: Path, splits: Mapping[str, Lines], origin: str, disjoint: bool = False) -> Corpus:
    pretokenised = ".tokens" in path.suffixes or any("<unk>" in line.split() for line in islice(splits["train"], 1000))
    return Corpus(path.name, splits, pretokenised, "word" if pretokenised else "bpe", origin, disjoint)


def split_files(folder: Path) -> dict[str, Path]:
    """The files of a folder whose names say train, valid or test: train.txt, ptb.valid.txt, wiki.test.tokens.gz, …"""
    files: dict[str, Path] = {}
    for split, words in SPLITS.items():
        says_so = re.compile(rf"(?:^|[._-])(?:{'|'.join(words)})(?:[._-]|$)", re.IGNORECASE)
        found = [path for path in _text_files(folder) if says_so.search(path.name)]
        found = [path for path in found if path.suffix != ".gz" or path.with_suffix("") not in found]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise RegardError(f"The folder {str(folder)!r} has several {split} files ({names}); keep one of them.")
        if found:
            files[split] = found[0]
    return files


def _text_files(folder: Path) -> list[Path]:
    """The files of a folder whose names look like text, plain or packed."""

    def plain(path: Path) -> Path:
        return path.with_suffix("") if path.suffix == ".gz" else path

    return [path for path in entries(folder) if path.is_file() and plain(path).suffix.lower() in SUFFIXES]


def entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise RegardError(f"The folder {str(folder)!r} cannot be read ({error.strerror}); check it.") from None


def refuse_what_is_no_text(path: Path) -> None:
    if not path.is_file():
        raise RegardError(f"{str(path)!r} is neither a file nor a folder; give a text file.")
    with reading(path) as stream:
        head = stream.read(LOOK)
    if not head.removeprefix(BOM).strip() and len(head) < LOOK:
        raise RegardError(f"{str(path)!r} is empty; give a text with one sentence or paragraph per line.")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RegardError(f"{str(path)!r} is UTF-16, not UTF-8; convert it with `iconv -f utf-16 -t utf-8`.")
    if (zero := head.find(b"\0")) >= 0:
        raise RegardError(f"{str(path)!r} is not text: it has a zero byte at offset {zero}; give a UTF-8 text file.")


def _require_distinct(path: Path, enough: int) -> None:
    """Refuses a file with fewer than `enough` different lines, blank ones aside."""
    seen: set[str] = set()
    for line in read_lines(path):
        if line.strip():
            seen.add(line)
            if len(seen) >= enough:
                return
    raise _too_few(path, len(seen))


def _too_few(path: Path, distinct: int) -> RegardError:
    if distinct == 0:
        return RegardError(f"{str(path)!r} has only blank lines; give a text with one sentence or paragraph per line.")
    return RegardError(
        f"{str(path)!r} has only one distinct line, so nothing can be held out; put one sentence or paragraph on each "
        f"line, or give a folder with train.txt and valid.txt."
    )


def _drawn_splits(path: Path, held_out: tuple[str, ...]) -> tuple[dict[str, Lines], str]:
    draw = Draw(held_out)
    missing, seen = set(draw.splits), set()
    for line in read_lines(path):  # ends after a few dozen lines unless the file is tiny
        if line.strip():
            missing.discard(draw(line))
            seen.add(line_hash(line))
            if not missing:
                break
    else:
        if len(seen) < 2:
            raise _too_few(path, len(seen))
        ranks = sorted(seen)
        draw = Draw(held_out, dict.fromkeys(ranks, "train") | dict(zip(ranks[:-1], held_out)))
    share = "one line each, the file being tiny" if draw.ranked else "5 % each"
    origin = f"Lines drawn by their hash for {' and '.join(draw.splits[1:])} ({share}); identical lines share a split."
    return {name: DrawnLines(path, draw, name) for name in draw.splits}, origin


def _tail_splits(path: Path, cuts: tuple[float, ...]) -> tuple[dict[str, Lines], str]:
    """The first part of the bytes for training, what follows, from the next line on, for validation and test."""
    size = _text_size(path)
    with reading(path) as stream:
        starts = [_next_line(stream, int(size * cut)) for cut in cuts]
    if len({*starts, size}) <= len(cuts):  # a handful of long lines: the last ones
        starts = _line_starts(path)[1:][-len(cuts) :]
    names = ("train", "valid", "test")[: len(starts) + 1]
    stretches = dict(zip(names, pairwise([0, *starts, size])))
    shares = ", ".join(f"{100 * (stop - start) / size:.0f} % {name}" for name, (start, stop) in stretches.items())
    return {name: FileLines(path, *stretch) for name, stretch in stretches.items()}, f"Cut in file order: {shares}."


def _text_size(path: Path) -> int:
    if path.suffix != ".gz":
        return path.stat().st_size
    with reading(path) as stream:
        return sum(map(len, stream))


def _next_line(stream: BinaryIO, offset: int) -> int:
    stream.seek(max(offset - 1, 0))
    stream.readline()
    return stream.tell()


def _line_starts(path: Path) -> list[int]:
    with reading(path) as stream:
        return list(accumulate(map(len, stream), initial=0))[:-1]
