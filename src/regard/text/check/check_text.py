"""`regard data check` for a text file: a report before training.

One pass over each file, in memory that grows with the number of lines and words, not with the text.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.base.errors import RegardError
from regard.base.word_spans import find_words
from regard.corpora.split import HashSplit, line_hash
from regard.text.corpus import Overlap, count_overlap, split_files
from regard.text.readers.encodings import UTF8, check_encoding
from regard.text.readers.lines import BOM, bounded_lines, encoding_of, read_head, reading_text, why_not_utf8
from regard.text.readers.sources import FileLines, Source, open_text
from regard.text.tokenizers.engine import UNK

KNOWN_WORDS = 10_000  # vocabulary size for the rate of unknown words on held-out text
MIXED = "CR LF line endings mixed with LF"
ODDITIES = {
    "control characters": re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    "replacement characters (U+FFFD)": re.compile("\ufffd"),
    "HTML escapes": re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|amp|lt|gt|quot|apos|nbsp);"),
    "tabs": re.compile("\t"),
    "carriage returns within a line": re.compile("\r"),
}


@dataclass(frozen=True)
class Oddity:
    """Something that is often a mistake: the number of lines, and the first one."""

    what: str
    lines: int
    first: int


@dataclass(frozen=True)
class FileReport:
    found: str  # a sentence about the kind of file and what is read; "" for plain UTF-8 text
    encoding: str  # "ASCII", "UTF-8", "UTF-16", … or "not UTF-8"
    byte_order_mark: bool
    bytes: int
    characters: int  # with one per line end
    words: int
    vocabulary: int  # distinct words
    lines: int
    blank_lines: int
    duplicate_lines: int  # that repeat an earlier line, blank ones aside
    line_lengths: Mapping[str, int]  # characters: median, 90 %, 99 %, longest
    longest_line: int  # its number
    unknown_rate: float | None  # share of held-out words outside the 10,000 most frequent; None: nothing held out
    oddities: tuple[Oddity, ...]
    refused: str = ""  # the error with which training would stop


@dataclass(frozen=True)
class TextReport:
    """The files by split ("text" for a single one), and the lines that splits share with the training text."""

    path: str
    files: Mapping[str, FileReport]
    overlap: tuple[Overlap, ...]


def check_text(path: str | Path, *, columns: str = "", header: str = "auto", encoding: str = UTF8) -> TextReport:
    """Reports on a text file, a column of a table, or the train, valid and test files of a folder."""
    path, how = Path(path), (columns, header, "", check_encoding(encoding))
    if not path.exists():
        raise RegardError(f"There is no file or folder {str(path)!r}; check the spelling and the folder.")
    if not path.is_dir():
        survey = _Survey(open_text((path,), *how))
        return TextReport(str(path), {"text": survey.report(survey.kept, survey.held_out)}, ())
    surveys = {split: _Survey(open_text(files, *how)) for split, files in split_files(path).items()}
    if "train" not in surveys:
        raise RegardError(
            f"The folder {str(path)!r} has no training file; name one train.txt, or give a single text file."
        )
    train = surveys["train"].kept + surveys["train"].held_out
    reports = {
        split: survey.report(train, None if split == "train" else survey.kept + survey.held_out)
        for split, survey in surveys.items()
    }
    readable = all(report.encoding != "not UTF-8" for report in reports.values())
    overlap = count_overlap({split: survey.text for split, survey in surveys.items()}) if readable else []
    return TextReport(str(path), reports, tuple(overlap))


class _Survey:
    """One pass over a text; words on lines that `open_corpus` would hold out are counted separately."""

    def __init__(self, text: Source):
        self.text, self._draw = text, HashSplit()
        self.kept: Counter[str] = Counter()
        self.held_out: Counter[str] = Counter()
        self._lengths, self._hashes = array("Q"), array("Q")
        self._odd: dict[str, list[int]] = {}  # what: number of lines, first line
        self._bytes, self._plain_ends, self._blank, self._ascii, self._mark = 0, 0, 0, True, False
        if isinstance(text, FileLines):  # reads bytes: lines that are not UTF-8 are counted, not an error
            with reading_text(text.path, text.encoding) as stream:
                for number, raw in enumerate(bounded_lines(stream, repr(str(text.path))), 1):
                    self._read(number, raw)
        else:
            for number, line in enumerate(text, 1):
                self._read(number, line.encode() + b"\n")
        if not self._lengths:
            raise RegardError(f"{text.name} has no text; put one sentence or paragraph on each line.")
        if not self._plain_ends:
            self._odd.pop(MIXED, None)  # all line ends are the same

    def _read(self, number: int, raw: bytes) -> None:
        self._bytes += len(raw)
        if number == 1 and raw.startswith(BOM):
            raw, self._mark = raw.removeprefix(BOM), True
        self._ascii = self._ascii and raw.isascii()
        if raw.endswith(b"\r\n"):
            self._note(MIXED, number)
        elif raw.endswith(b"\n"):
            self._plain_ends += 1
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            self._note("not UTF-8", number)
            line = raw.decode(errors="replace").replace("\ufffd", "?")
        line = line.removesuffix("\n").rstrip("\r")
        for what, pattern in ODDITIES.items():
            if pattern.search(line):
                self._note(what, number)
        self._lengths.append(len(line))
        if not line.strip():
            self._blank += 1
            return
        self._hashes.append(line_hash(line))
        (self.held_out if self._draw(line) == "valid" else self.kept).update(line.split())

    def _note(self, what: str, number: int) -> None:
        self._odd.setdefault(what, [0, number])[0] += 1

    def report(self, train: Counter[str], held_out: Counter[str] | None) -> FileReport:
        count = Counter if UNK in train else _count_words  # a text with <unk> is already tokenized
        words = count(self.kept + self.held_out)
        lengths = np.asarray(self._lengths)
        quantiles = np.quantile(lengths, [0.5, 0.9, 0.99, 1], method="higher").astype(int).tolist()
        text = self.text
        wide = encoding_of(read_head(text.path), text.encoding) if isinstance(text, FileLines) else "UTF-8"
        usual = "ASCII" if self._ascii else "UTF-8"
        return FileReport(
            found=text.about,
            encoding="not UTF-8" if "not UTF-8" in self._odd else usual if wide.startswith("UTF-8") else wide,
            byte_order_mark=self._mark,
            bytes=self._bytes,
            characters=int(lengths.sum()) + len(lengths),
            words=words.total(),
            vocabulary=len(words),
            lines=len(lengths),
            blank_lines=self._blank,
            duplicate_lines=len(self._hashes) - len(np.unique(np.asarray(self._hashes))),
            line_lengths=dict(zip(("median", "90 %", "99 %", "longest"), quantiles)),
            longest_line=int(lengths.argmax()) + 1,
            unknown_rate=_unknown_rate(count(train), count(held_out)) if held_out else None,
            oddities=tuple(Oddity(what, lines, first) for what, (lines, first) in sorted(self._odd.items())),
            refused=why_not_utf8(text.paths[0]) if "not UTF-8" in self._odd else "",
        )


def _count_words(pieces: Counter[str]) -> Counter[str]:
    """Word counts from counts of pieces between spaces."""
    words: Counter[str] = Counter()
    for piece, times in pieces.items():
        for start, end in find_words(piece):
            words[piece[start:end]] += times
    return words


def _unknown_rate(train: Counter[str], held_out: Counter[str]) -> float:
    ranked = sorted(train, key=lambda word: (-train[word], word))
    known = sum(held_out[word] for word in ranked[:KNOWN_WORDS])
    return 1 - known / max(1, held_out.total())
