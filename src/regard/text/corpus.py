"""A corpus: named text, split into training, validation and test lines.

Files are read as streams: text may be larger than memory.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, islice, pairwise
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.base.settings import closest
from regard.corpora.builtin import BUILTIN, built_in
from regard.corpora.downloads import CATALOGUE, DOWNLOADS, Download
from regard.corpora.fetch import data_folders
from regard.corpora.split import HashSplit, line_hash
from regard.text.cached_text import cached_for_text
from regard.text.chat_template import ChatTemplate
from regard.text.dialogues import DialogueLines, has_dialogues
from regard.text.readers.encodings import UTF8, check_encoding
from regard.text.readers.lines import bounded_lines, reading_text, unpacked_name
from regard.text.readers.sources import (
    DrawnLines,
    FileLines,
    GivenLines,
    Source,
    TableLines,
    TextLines,
    digest_of,
    open_text,
)
from regard.text.readers.tables import IN_PARTS, KINDS, kind_of

SPLITS = {"train": ("train", "training"), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
SUFFIXES = ("", ".txt", ".text", ".tokens", ".raw")


@dataclass(frozen=True)
class Corpus:
    """Named text with its splits; `notes` describes their origin and overlap."""

    name: str
    splits: Mapping[str, TextLines]
    pretokenised: bool = False
    suggested_tokenizer: str = "bpe"
    origin: str = ""  # one sentence: where the splits come from
    disjoint: bool = False  # by construction; otherwise the overlap is counted
    columns: str = ""  # the column that was read, of a table
    header: str = "auto"  # whether the table has one: yes or no
    template: ChatTemplate | None = None  # the template of its dialogues; None: running text

    @property
    def sides(self) -> dict[str, dict[str, Iterable[str]]]:
        """The splits of its one side, under the name of that side."""
        return {"text": dict(self.splits)}

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences to print; computed on demand, because counting the overlap reads the whole text."""
        sentences = () if self.disjoint else tuple(overlap.sentence for overlap in self._overlap())
        return (self.origin, *sentences) if self.origin else sentences

    def _overlap(self) -> list[Overlap]:
        sizes = [lines.size for lines in self.splits.values()]
        return cached_for_text(
            "overlap",
            None if None in sizes else sum(filter(None, sizes)),
            (*self.splits, self.checksum()),
            lambda: count_overlap(self.splits),
            lambda overlaps: json.dumps([asdict(overlap) for overlap in overlaps]).encode(),
            lambda content: [Overlap(**counts) for counts in json.loads(content)],
        )

    def checksum(self) -> str:
        return digest_of(*(f"{name}:{lines.checksum()}" for name, lines in sorted(self.splits.items())))


@dataclass(frozen=True)
class Overlap:
    """The number of lines of a held-out split that also occur in the training text; blank lines do not count."""

    split: str
    lines: int
    shared: int

    @property
    def sentence(self) -> str:
        if not self.shared:
            return f"No line of {self.split} also occurs in train."
        shared = f"{group_digits(self.shared)} of {pluralize(self.lines, 'line')} of {self.split}"
        verb = "occurs" if self.shared == 1 else "occur"
        return f"{shared} ({100 * self.shared / self.lines:.1f} %) also {verb} in train."


def count_overlap(splits: Mapping[str, TextLines]) -> list[Overlap]:
    held_out = {name: Counter(lines.hashes()) for name, lines in splits.items() if name != "train"}
    known = set().union(*held_out.values())
    trained = {number for number in splits["train"].hashes() if number in known}
    return [
        Overlap(name, counts.total(), sum(counts[number] for number in counts.keys() & trained))
        for name, counts in held_out.items()
    ]


def is_named(name: str) -> bool:
    """True for the name of a built-in or downloadable corpus, rather than a file."""
    return name in BUILTIN or name in CATALOGUE


def open_corpus(
    name_or_path: str | Path,
    split: str = "auto",
    *,
    columns: str = "",
    header: str = "auto",
    usual: str = "",
    encoding: str = UTF8,
    template: ChatTemplate | None = None,
) -> Corpus:
    """Opens a built-in corpus, a fetched one, a file of text, or a folder: with train, valid and test files, or any.

    `split` divides a single file: "lines" (the default) draws lines by their hash, "tail" holds out the last tenth.
    For a table, `columns` names the column to read (`usual`: used if it exists); `header`: auto, yes or no.
    `encoding` is that of your own files without a byte-order mark; `template` writes dialogues as text.
    """
    check_encoding(encoding)
    name, path = str(name_or_path), Path(name_or_path)
    is_folder = os.path.isdir(name)
    if split not in ("auto", "lines", "tail"):
        raise RegardError(f"A text cannot be split by {split!r}; choose lines or tail.")
    if split != "auto" and (is_named(name) or is_folder):
        raise RegardError(f"{name!r} has its own splits; leave out data.split, or give a single file.")
    if columns and is_named(name):
        raise RegardError(f"{name!r} has no columns; leave --data.columns out.")
    if name in BUILTIN:
        return _open_built_in(name)
    if name in CATALOGUE:
        return _open_download(CATALOGUE[name])
    if is_folder:
        return _open_folder(path, partial(_open_text, template, columns, header, usual, encoding))
    if not os.path.exists(name):
        raise unknown_corpus(name, path)
    text = _open_text(template, columns, header, usual, encoding, (path,))
    return _open_file(text, (0.9, 0.95) if split == "tail" else ())


def _open_text(
    template: ChatTemplate | None, columns: str, header: str, usual: str, encoding: str, paths: Sequence[Path]
) -> Source:
    """The text of files, or their dialogues."""
    if len(paths) == 1 and not columns and kind_of(paths[0]) == "JSON Lines" and has_dialogues(paths[0], encoding):
        return DialogueLines(paths[0], template or ChatTemplate(), encoding)
    return open_text(paths, columns, header, usual, encoding)


def open_whole(
    path: Path,
    split: str,
    *,
    columns: str = "",
    usual: str = "",
    encoding: str = UTF8,
    template: ChatTemplate | None = None,
) -> Corpus:
    """A whole text file as one split of this name."""
    text = _open_text(template, columns, "auto", usual, check_encoding(encoding), (path,))
    _require_distinct(text, 1)
    return replace(_corpus(text, {"train": text}, "", disjoint=True), splits={split: text})


def available() -> list[dict[str, str]]:
    """The named corpora: a description of each, and whether it is on this machine."""
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
    close = closest(name, [*BUILTIN, *CATALOGUE]) or [
        str(path.with_name(match)) for match in closest(path.name, beside)
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
        raise RegardError(
            f"{name!r} contains sentence pairs; for a language model, give one file of {str(folders[0])!r}."
        )
    for folder in folders:
        if corpus := _open_whole(download, folder):
            return replace(
                corpus, name=name, pretokenised=download.pretokenised, suggested_tokenizer=download.tokenizer
            )
    state = "is incomplete" if folders else "is not"
    raise RegardError(f"{name!r} {state} on this machine; run `regard data fetch {name}` first.")


def _open_whole(download: Download, folder: Path) -> Corpus | None:
    """The corpus in a folder, whose files may have other names than the downloaded ones; None if one is missing."""
    if not download.cuts:
        splits = split_files(folder)
        return (
            _open_splits({name: open_text(paths) for name, paths in splits.items()})
            if len(splits) == len(download.files)
            else None
        )
    files = _text_files(folder)
    exact = [path for path in files if path.name.removesuffix(".gz") == download.files[0].name]
    return _open_file(FileLines((exact or files)[0]), download.cuts) if files else None


def _open_file(text: Source, cuts: tuple[float, ...]) -> Corpus:
    if cuts:
        if not isinstance(text, FileLines):
            raise RegardError(f"Only plain text can be split in file order, not {text.name}; leave --data.split out.")
        _require_distinct(text, 2)
        splits, origin = _tail_splits(text, cuts)
        return _corpus(text, splits, origin)
    splits, origin = _drawn_splits(text, ("valid", "test"))
    return _corpus(text, splits, origin, disjoint=True)


def _open_folder(folder: Path, open_files: Callable[[Sequence[Path]], Source]) -> Corpus:
    name, files = folder.resolve().name, split_files(folder)
    texts = _text_files(folder)
    if not files and texts:  # no file is named train, valid or test: one text in many files
        return replace(_open_file(open_files(texts), ()), name=name)
    if "train" not in files:
        advice = f"or give the file {str(texts[0])!r} itself" if len(texts) == 1 else "or give a single text file"
        raise RegardError(f"The folder {str(folder)!r} has no training file; name one train.txt, {advice}.")
    opened = {split: open_files(paths) for split, paths in files.items()}
    return replace(_open_splits(opened), name=name)


def _open_splits(files: Mapping[str, Source]) -> Corpus:
    for text in files.values():
        _require_distinct(text, 1)
    given = ", ".join(text.name for text in files.values())
    train = files["train"]
    if "valid" in files:
        return _corpus(train, files, f"Splits as given: {given}.")
    splits, origin = _drawn_splits(train, ("valid",) if "test" in files else ("valid", "test"))
    splits |= {name: text for name, text in files.items() if name != "train"}
    return _corpus(train, splits, f"Given: {given}. {origin}", disjoint="test" not in files)


def _corpus(text: Source, splits: Mapping[str, TextLines], origin: str, disjoint: bool = False) -> Corpus:
    pretokenised = ".tokens" in text.paths[0].suffixes or any(
        "<unk>" in line.split() for line in islice(splits["train"], 1000)
    )
    origin = f"{text.about} {origin}" if text.about else origin
    corpus = Corpus(text.paths[0].name, splits, pretokenised, "word" if pretokenised else "bpe", origin, disjoint)
    if isinstance(text, DialogueLines):
        return replace(corpus, template=text.template)
    return replace(corpus, columns=text.columns, header=text.header) if isinstance(text, TableLines) else corpus


def split_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The files of a folder whose names say train, valid or test: train.txt, ptb.valid.txt, wiki.test.tokens.gz, …

    If no plain text does, tables: train.jsonl, train.tsv, the parts of a Hugging Face dataset.
    """
    files: dict[str, tuple[Path, ...]] = {}
    for split in SPLITS:
        for texts in (_text_files(folder), _tables(folder)):
            matches = [path for path in texts if says(split, path.name)]
            matches = [path for path in matches if unpacked_name(path) == path or unpacked_name(path) not in matches]
            if len(matches) > 1:
                names = ", ".join(path.name for path in matches)
                raise RegardError(
                    f"The folder {str(folder)!r} has several {split} files ({names}); keep only one of them."
                )
            if matches:
                files[split] = (matches[0],)
                break
    return files or shards(folder)


def says(split: str, name: str) -> bool:
    """True if a file's name contains this split's name."""
    return bool(re.search(rf"(?:^|[._-])(?:{'|'.join(SPLITS[split])})(?:[._-]|$)", name, re.IGNORECASE))


def shards(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The parts of a Hugging Face dataset by split: train/data-00000-of-00002.arrow, data/train-….parquet, …

    If neither folders nor names contain a split, all parts are train.
    """
    parts = [
        path
        for depth in ("*", "*/*", "*/*/*")
        for path in sorted(folder.glob(depth))
        if KINDS.get(path.suffix) in IN_PARTS and not path.name.startswith(("cache-", "."))
    ]
    by_split: dict[str, list[Path]] = {}
    for path in parts:
        place = str(path.relative_to(folder)).replace(os.sep, ".")
        split = next((split for split in SPLITS if says(split, place)), None)
        by_split.setdefault(split or "train", []).append(path)
    return {split: tuple(by_split[split]) for split in SPLITS if split in by_split} if "train" in by_split else {}


def _text_files(folder: Path) -> list[Path]:
    """The files of a folder whose names look like text, plain or packed."""
    return [path for path in entries(folder) if path.is_file() and unpacked_name(path).suffix.lower() in SUFFIXES]


def _tables(folder: Path) -> list[Path]:
    kinds = {suffix for suffix, kind in KINDS.items() if kind not in IN_PARTS}
    return [path for path in entries(folder) if path.is_file() and unpacked_name(path).suffix.lower() in kinds]


def entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise RegardError(
            f"The folder {str(folder)!r} cannot be read ({error.strerror}); check its permissions."
        ) from None


def _require_distinct(text: Source, enough: int) -> None:
    """Refuses a text with fewer than `enough` different lines, blank ones aside."""
    seen: set[str] = set()
    for line in text:
        if line.strip():
            seen.add(line)
            if len(seen) >= enough:
                return
    raise _too_few(text, len(seen))


def _too_few(text: Source, distinct: int) -> RegardError:
    name = str(text.paths[0])
    if distinct == 0:
        return RegardError(f"{name!r} has only blank lines; give text with one sentence or paragraph per line.")
    return RegardError(
        f"{name!r} has only one distinct line, so nothing can be held out; put one sentence or paragraph on each "
        f"line, or give a folder with train.txt and valid.txt."
    )


def _drawn_splits(text: Source, held_out: tuple[str, ...]) -> tuple[dict[str, TextLines], str]:
    draw = HashSplit(held_out)
    missing, seen = set(draw.splits), set()
    for line in text:  # ends after a few dozen lines unless the file is tiny
        if line.strip():
            missing.discard(draw(line))
            seen.add(line_hash(line))
            if not missing:
                break
    else:
        if len(seen) < 2:
            raise _too_few(text, len(seen))
        ranks = sorted(seen)
        draw = HashSplit(held_out, dict.fromkeys(ranks, "train") | dict(zip(ranks[:-1], held_out)))
    share = "one line each, because the file is tiny" if draw.ranked else "5 % each"
    origin = f"Lines for {' and '.join(draw.splits[1:])} are drawn by hash ({share}); identical lines share a split."
    return {name: DrawnLines(text, draw, name) for name in draw.splits}, origin


def _tail_splits(text: FileLines, cuts: Sequence[float]) -> tuple[dict[str, TextLines], str]:
    """Splits in file order: the first part of the bytes is train, the rest, from the next line on, valid and test."""
    size = text.size
    if size is None:
        lines = _line_starts(text)
        size = lines.pop()
        starts = [[*lines, size][bisect_left(lines, int(size * cut))] for cut in cuts]
    else:
        starts = [_next_line(text.path, int(size * cut)) for cut in cuts]
    if len({*starts, size}) <= len(cuts):  # a handful of long lines: the last ones
        starts = _line_starts(text)[1:-1][-len(cuts) :]
    names = ("train", "valid", "test")[: len(starts) + 1]
    stretches = dict(zip(names, pairwise([0, *starts, size])))
    shares = ", ".join(f"{100 * (stop - start) / size:.0f} % {name}" for name, (start, stop) in stretches.items())
    splits = {name: FileLines(text.path, *stretch, text.encoding) for name, stretch in stretches.items()}
    return dict(splits), f"Split in file order: {shares}."


def _next_line(path: Path, offset: int) -> int:
    with reading_text(path) as stream:
        stream.seek(max(offset - 1, 0))
        stream.readline()
        return stream.tell()


def _line_starts(text: FileLines) -> list[int]:
    """The UTF-8 byte offset of each line, and of the end of the text."""
    with reading_text(text.path, text.encoding) as stream:
        return list(accumulate(map(len, bounded_lines(stream, repr(str(text.path)))), initial=0))
