"""`regard data check` for sentence pairs: a report before training.

Findings are probable mistakes, each with its first line. Two of them need a method:

swapped columns   each column trains a small model of its letter triples; a line is suspect if both of its sides are
                  likelier under the other column's model (language identification after Cavnar & Trenkle 1994)
wrong script      the letters of a side are mostly of a script that its column hardly uses
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.word_spans import find_words
from regard.corpora.split import PARTS, line_hash
from regard.text.check.check_text import ODDITIES, Oddity
from regard.text.readers.columns import Wanted
from regard.text.readers.encodings import UTF8, check_encoding
from regard.text.readers.lines import why_not_utf8
from regard.text.readers.pair_files import PairSource, find_pair_files, open_pair_source
from regard.text.split import PairOverlap, are_labels, by_character, count_pair_overlap, normalize_for_comparison

BUCKETS = 1 << 18  # into which letter triples are hashed
EVIDENCE = 6.0  # nats by which a pair must be likelier with its sides exchanged
RATIO = 3.0  # times longer or shorter than usual: probably not a translation
ENOUGH = 20  # minimum characters of the longer side for a meaningful ratio
MONSTROUS = 5  # times longer than all but one line in a hundred
COMMON = 0.05  # minimum share of a column's letters for a script to belong there
JAPANESE = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "BOPOMOFO": "CJK"}


@dataclass(frozen=True)
class SideReport:
    script: str  # that most letters are of
    characters: int
    words: int
    distinct: int  # texts, up to case and punctuation
    with_several: int  # of them that have more than one translation
    word_lengths: Mapping[str, int]  # words of a side: median, 90 %, 99 %, longest
    longest_line: int


@dataclass(frozen=True)
class PairFileReport:
    found: str  # a sentence: what kind of file it is, and which columns are read
    encoding: str  # "ASCII", "UTF-8", "UTF-16", … or "not UTF-8"
    pairs: int
    blank_lines: int
    duplicate_pairs: int  # that repeat an earlier pair exactly
    source: SideReport
    target: SideReport
    length_ratio: float  # median of target characters per source character
    random_leak: PairOverlap  # the overlap that a random split of 5 % would have
    findings: tuple[Oddity, ...]
    labels: Mapping[str, int]  # lines of each target, the commonest first, where targets are labels; else empty
    refused: str = ""  # the error with which training would stop


@dataclass(frozen=True)
class PairReport:
    """The files by split ("pairs" for a single one), and what given splits share with the training pairs."""

    path: str
    files: Mapping[str, PairFileReport]
    overlap: tuple[PairOverlap, ...]


def check_pairs(
    path: str | Path,
    *,
    source: str = "",
    target: str = "",
    columns: str = "",
    header: str = "auto",
    encoding: str = UTF8,
) -> PairReport:
    """Reports on a table, on parallel files, or on the splits of a folder of either."""
    wanted = Wanted(columns, header, source, target, encoding=check_encoding(encoding))
    files = find_pair_files(Path(path), *wanted.languages)
    read = {split: _Columns(paths, wanted) for split, paths in files.items()}
    reports = {split: columns.report() for split, columns in read.items()}
    sides = {split: (columns.sources, columns.targets) for split, columns in read.items()}
    return PairReport(str(path), reports, tuple(count_pair_overlap(sides)) if "train" in sides else ())


class _Columns:
    """The two columns of a file, or of two; what cannot be read as a pair is a finding."""

    def __init__(self, paths: Sequence[Path], wanted: Wanted):
        self._odd: dict[str, list[int]] = {}  # what: number of lines, first line
        self._undecodable, self.blank = "", 0
        self.sources: list[str] = []
        self.targets: list[str] = []
        self.lines: list[int] = []  # line of each pair
        self.opened: PairSource = open_pair_source(paths, wanted, self._note_byte)
        for number, source, target in self.opened.rows(self._note):
            if source or target:
                self.sources.append(source)
                self.targets.append(target)
                self.lines.append(number)
            else:
                self.blank += 1
        if not self.lines:
            raise RegardError(f"{str(paths[0])!r} has no pairs; each line must have a source, a tab and a target.")

    def _note_byte(self, number: int, byte: int) -> None:
        self._undecodable = self._undecodable or f"not UTF-8 (byte 0x{byte:02X})"
        self._note(self._undecodable, number)

    def _note(self, what: str, number: int) -> None:
        self._odd.setdefault(what, [0, number])[0] += 1

    def _note_where(self, what: str, where: np.ndarray) -> None:
        if len(places := np.flatnonzero(where)):
            self._odd[what] = [len(places), self.lines[places[0]]]

    def report(self) -> PairFileReport:
        sides = (self.sources, self.targets)
        lengths = [np.fromiter(map(len, side), np.int64, len(side)) for side in sides]
        words = [np.fromiter((len(find_words(text)) for text in side), np.int64, len(side)) for side in sides]
        letters = [_Letters(side) for side in sides]
        normalized = [normalize_for_comparison(side) for side in sides]
        pair_hashes = np.fromiter(map(line_hash, map("\n".join, zip(*sides))), np.uint64, len(self.lines))
        for what, pattern in ODDITIES.items():
            if what != "tabs":
                self._note_where(what, _contains(pattern, *sides))
        ratio = self._note_lengths(lengths)
        if labelled := are_labels(self.targets):
            self._odd.pop("unusual length ratio", None)  # a label has no length of its own
        self._note_where("identical source and target", np.array([a == b != "" for a, b in zip(*sides)]))
        self._note_where("probably swapped columns", swapped(*letters))
        for name, side in zip(("source", "target"), letters):
            self._note_where(f"{name} in a script other than {side.script}", side.foreign)
        repeated = np.ones(len(pair_hashes), bool)
        repeated[np.unique(pair_hashes, return_index=True)[1]] = False
        self._note_where("exact duplicates of an earlier pair", repeated)
        reports = [
            self._side(letters[k].script, lengths[k], words[k], normalized[k], normalized[1 - k]) for k in range(2)
        ]
        usual = "ASCII" if all(text.isascii() for side in sides for text in side) else "UTF-8"
        encoding = usual if self.opened.encoding.startswith("UTF-8") else self.opened.encoding
        return PairFileReport(
            found=self.opened.sentence,
            encoding="not UTF-8" if self._undecodable else encoding,
            pairs=len(self.lines),
            blank_lines=self.blank,
            duplicate_pairs=int(repeated.sum()),
            source=reports[0],
            target=reports[1],
            length_ratio=ratio,
            random_leak=_random_leak(*normalized),
            findings=tuple(Oddity(what, lines, first) for what, (lines, first) in sorted(self._odd.items())),
            labels=dict(Counter(self.targets).most_common()) if labelled else {},
            refused=next(filter(None, map(why_not_utf8, self.opened.paths)), "") if self._undecodable else "",
        )

    def _note_lengths(self, lengths: Sequence[np.ndarray]) -> float:
        for name, length in zip(("source", "target"), lengths):
            self._note_where(f"empty {name}", length == 0)
            usual = int(np.quantile(length, 0.99, method="higher"))
            limit = MONSTROUS * max(usual, 40)
            self._note_where(f"overlong {name} (more than {group_digits(limit)} characters)", length > limit)
        real = (lengths[0] > 0) & (lengths[1] > 0)
        ratios = np.where(real, lengths[1], 1) / np.where(real, lengths[0], 1)
        usual_ratio = float(np.median(ratios[real])) if real.any() else 1.0
        away = np.abs(np.log(ratios / usual_ratio)) > np.log(RATIO)
        self._note_where("unusual length ratio", real & away & (np.maximum(*lengths) >= ENOUGH))
        return usual_ratio

    def _side(
        self, script: str, lengths: np.ndarray, words: np.ndarray, texts: list[str], others: list[str]
    ) -> SideReport:
        quantiles = np.quantile(words, [0.5, 0.9, 0.99, 1], method="higher").astype(int).tolist()
        translations = Counter(text for text, _ in set(zip(texts, others)))
        return SideReport(
            script=script,
            characters=int(lengths.sum()),
            words=int(words.sum()),
            distinct=len(translations),
            with_several=sum(count > 1 for count in translations.values()),
            word_lengths=dict(zip(("median", "90 %", "99 %", "longest"), quantiles)),
            longest_line=self.lines[int(words.argmax())],
        )


def _contains(pattern: re.Pattern[str], *sides: Sequence[str]) -> np.ndarray:
    return np.array([bool(pattern.search(one) or pattern.search(other)) for one, other in zip(*sides)])


def _random_leak(sources: Sequence[str], targets: Sequence[str]) -> PairOverlap:
    """The overlap that a random split would have, with one pair in twenty held out."""
    held_out = np.random.Generator(np.random.Philox(0)).random(len(sources)) * PARTS < 1
    held_out[0] |= not held_out.any()
    pairs = list(zip(sources, targets))
    known = [pair for pair, out in zip(pairs, held_out) if not out]
    trained_sources, trained_targets = {one for one, _ in known}, {other for _, other in known}
    both, chosen = set(known), [pair for pair, out in zip(pairs, held_out) if out]
    return PairOverlap(
        "a random 5 % test split",
        len(chosen),
        sum(one in trained_sources for one, _ in chosen),
        sum(other in trained_targets for _, other in chosen),
        sum(pair in both for pair in chosen),
    )


class _Letters:
    """The letters of a column as one array, with each line's script and letter triples."""

    def __init__(self, texts: Sequence[str]):
        text = "\n".join(texts).casefold() + "\n"
        self.codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        ends = self.codes == ord("\n")
        self.line = np.cumsum(ends) - ends  # of each character
        self.count = len(texts)
        self.script, self.foreign = self._scripts()

    def _scripts(self) -> tuple[str, np.ndarray]:
        scripts: list[str] = []

        def number_of(character: str) -> int:
            if (name := _script(character)) and name not in scripts:
                scripts.append(name)
            return scripts.index(name) if name else -1

        number = by_character(self.codes, number_of)
        if not scripts:
            return "no letters", np.zeros(self.count, bool)
        real = number >= 0
        counts = np.bincount(self.line[real] * len(scripts) + number[real], minlength=self.count * len(scripts))
        counts = counts.reshape(self.count, len(scripts))
        totals = counts.sum(0)
        uncommon = totals < COMMON * totals.sum()
        foreign = uncommon[counts.argmax(1)] & (counts.max(1) > 0)
        return scripts[int(totals.argmax())].capitalize(), foreign

    def triples(self) -> tuple[np.ndarray, np.ndarray]:
        """Each triple's bucket and its line; line ends are the borders of words."""
        codes = np.concatenate([[ord("\n")], self.codes]).astype(np.uint64)
        mixed = (
            (codes[:-2] * 0x9E3779B1 + codes[1:-1] * 0x85EBCA77 + codes[2:] * 0xC2B2AE3D)
            if len(codes) > 2
            else codes[:0]
        )
        inside = self.codes[: len(mixed)] != ord("\n")
        return ((mixed >> np.uint64(7)) % BUCKETS)[inside].astype(np.int64), self.line[: len(mixed)][inside]


def swapped(source: _Letters, target: _Letters) -> np.ndarray:
    """Pairs whose sides are both likelier in the other column, by a factor of e^6 in total; a pair's own triples are
    not counted."""
    sides = [source.triples(), target.triples()]
    counts = [np.bincount(bucket, minlength=BUCKETS).astype(np.float64) for bucket, _ in sides]
    totals = [max(1.0, count.sum()) for count in counts]
    fits = []  # log-odds of each side for its own column
    for own, (bucket, line) in enumerate(sides):
        here = np.log((np.maximum(counts[own] - 1, 0) + 0.5) / totals[own])
        there = np.log((counts[1 - own] + 0.5) / totals[1 - own])
        fits.append(np.bincount(line, weights=(here - there)[bucket], minlength=source.count))
    return (fits[0] < 0) & (fits[1] < 0) & (fits[0] + fits[1] < -EVIDENCE)


def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").split(" ")[0]
    return JAPANESE.get(name, name)
