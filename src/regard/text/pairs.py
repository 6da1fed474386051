"""A corpus of sentence pairs: sources and targets, split into training, validation and test pairs.

Built in are the phrasebook and the toy tasks: any-b (its last symbol is the target), copy, reverse, recall. Pairs with
labels as targets, for classification, come in the same files as translations (`pair_files.py`): sentence⇥label.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.corpora.builtin import TOYS, phrases, toy_task
from regard.corpora.downloads import CATALOGUE, Download
from regard.corpora.fetch import data_folders
from regard.corpora.split import PARTS, line_hash
from regard.text.cached_text import cached_for_text
from regard.text.corpus import SPLITS, entries, is_named
from regard.text.readers.columns import Wanted
from regard.text.readers.encodings import UTF8, check_encoding
from regard.text.readers.pair_files import (
    PairSource,
    find_pair_files,
    holds_pairs,
    is_table,
    open_pair_source,
    read_pair_source,
)
from regard.text.split import (
    MAX_HELD_OUT,
    Drawn,
    PairOverlap,
    are_labels,
    count_pair_overlap,
    draw_pairs,
    normalize_for_comparison,
)

Links = Sequence[tuple[int, int]]  # (source word, target word)
TOY_ENDS = {"any-b": 1, "recall": 1}  # symbols of a line that are its target; otherwise what follows the bar


@dataclass(frozen=True)
class Pairs:
    """Sources and their targets; `alignments` are the links between their words, if known."""

    sources: Sequence[str] = field(repr=False)
    targets: Sequence[str] = field(repr=False)
    alignments: Sequence[Links] | None = field(default=None, repr=False)
    unit: ClassVar[str] = "pair"

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            raise ValueError(f"{len(self.sources)} sources but {len(self.targets)} targets")

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, indices: Iterable[int]) -> Pairs:
        chosen = [int(index) for index in indices]
        links = None if self.alignments is None else [self.alignments[index] for index in chosen]
        return Pairs([self.sources[index] for index in chosen], [self.targets[index] for index in chosen], links)

    def swapped(self) -> Pairs:
        links = None if self.alignments is None else [[(j, i) for i, j in link] for link in self.alignments]
        return Pairs(self.targets, self.sources, links)

    @cached_property
    def characters(self) -> int:
        """Characters of both sides, one per line end included."""
        return sum(sum(map(len, side)) + len(side) for side in (self.sources, self.targets))

    def hashes(self) -> Iterator[int]:
        """A hash of each pair that is not blank, up to case and punctuation."""
        sides = zip(normalize_for_comparison(self.sources), normalize_for_comparison(self.targets))
        return (line_hash(f"{source}\n{target}") for source, target in sides if source or target)

    def checksum(self) -> str:
        return self._checksum

    @cached_property
    def _checksum(self) -> str:
        digest, pairs = hashlib.blake2b(digest_size=16), zip(self.sources, self.targets)
        while some := [*islice(pairs, 10_000)]:
            digest.update("\n".join((*chain.from_iterable(some), "")).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class PairCorpus:
    """Named pairs with their splits; `notes` describes their origin and overlap."""

    name: str
    splits: Mapping[str, Pairs]
    source: str = ""  # language codes, where they are known
    target: str = ""
    suggested_tokenizer: str = "bpe"
    pretokenised: bool = False
    origin: tuple[str, ...] = ()  # sentences: where the pairs and the splits come from
    disjoint: bool = False  # by construction; otherwise the overlap is counted
    columns: str = ""  # the columns that were read from a table
    header: str = "auto"  # whether the table has one: yes or no

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences to print; computed on demand, because counting the overlap reads all pairs."""
        if self.disjoint:
            return self.origin
        return (*self.origin, *(overlap.sentence for overlap in self._overlap()))

    def _overlap(self) -> list[PairOverlap]:
        sides = {name: (pairs.sources, pairs.targets) for name, pairs in self.splits.items()}
        return cached_for_text(
            "overlap",
            sum(pairs.characters for pairs in self.splits.values()),
            (*self.splits, self.checksum()),
            lambda: count_pair_overlap(sides),
            lambda overlaps: json.dumps([asdict(overlap) for overlap in overlaps]).encode(),
            lambda content: [PairOverlap(**counts) for counts in json.loads(content)],
        )

    def checksum(self) -> str:
        """Changes when a pair of a split changes."""
        parts = [f"{name}:{pairs.checksum()}" for name, pairs in sorted(self.splits.items())]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

    @property
    def sides(self) -> dict[str, dict[str, Iterable[str]]]:
        """The splits of its sources and of its targets, under the names of the sides."""
        source, target = (f" ({code})" if code else "" for code in (self.source, self.target))
        return {
            f"source{source}": {name: pairs.sources for name, pairs in self.splits.items()},
            f"target{target}": {name: pairs.targets for name, pairs in self.splits.items()},
        }

    def swapped(self) -> PairCorpus:
        splits = {name: pairs.swapped() for name, pairs in self.splits.items()}
        return replace(self, splits=splits, source=self.target, target=self.source)


def open_pairs(
    data: str | Path,
    *,
    source: str = "",
    target: str = "",
    columns: str = "",
    header: str = "auto",
    usual: str = "",
    swap: bool = False,
    pairs: int = 0,
    longest: int = 0,
    also: str = "",
    split: str = "auto",
    encoding: str = UTF8,
) -> PairCorpus:
    """Opens a built-in or fetched corpus of pairs, a table (`tables.py`), parallel files, or a folder of either.

    `source` and `target` identify the parallel files, `columns` the columns of a table (`usual`: used if they exist),
    and `header` whether it has a header; `swap` exchanges the sides. `pairs` is the number of pairs to make from the
    phrasebook, or of training pairs to use from any other corpus; `longest` is the maximum number of words in a
    phrasebook sentence. `also` names more files of training pairs and their weights: "more.tsv:2,other.tsv:0.5".
    `split` divides a single file: "lines" (what auto does) draws without leaks, "tail" holds out the last pairs.
    `encoding` is that of your own files without a byte-order mark.
    """
    name = str(data)
    if split not in ("auto", "lines", "tail"):
        raise RegardError(f"Pairs cannot be split by {split!r}; choose lines or tail.")
    if split != "auto" and (is_named(name) or os.path.isdir(name)):
        raise RegardError(f"{name!r} has its own splits; leave out data.split, or give a single file.")
    if longest and name != "phrasebook":
        raise RegardError(f"Only the phrasebook has sentences of a chosen length, not {name!r}: leave out data.words.")
    if columns and is_named(name):
        raise RegardError(f"{name!r} has no columns; leave --data.columns out.")
    wanted = Wanted(columns, header, source, target, usual, check_encoding(encoding))
    if name in CATALOGUE and CATALOGUE[name].pairs:
        corpus = _open_download(CATALOGUE[name], source, target)
    elif is_named(name):
        corpus = _open_built_in(name, pairs, longest)
    elif os.path.isdir(name):
        corpus = _open_folder(Path(name), wanted)
    else:
        opened = open_pair_source(_single(Path(name), wanted), wanted)
        corpus = _split(Path(name).name, *_read(opened), "tail" if split == "tail" else "drawn")
        corpus = _with_languages(corpus, opened, wanted)
    if pairs and name != "phrasebook":
        corpus = _fewer(corpus, pairs)
    if also:
        corpus = _with_more(corpus, also, source, target, encoding)
    return corpus.swapped() if swap else corpus


def is_pairs(name_or_path: str | Path) -> bool:
    """True if `open_pairs` can open this. `open_corpus` can open the built-in ones as well."""
    name = str(name_or_path)
    if is_named(name):
        return name == "phrasebook" or name in TOYS or (name in CATALOGUE and CATALOGUE[name].pairs)
    return holds_pairs(Path(name))


def read_pairs(
    path: str | Path,
    *,
    source: str = "",
    target: str = "",
    columns: str = "",
    usual: str = "",
    encoding: str = UTF8,
    say: Callable[[str], None] = lambda sentence: None,
) -> Pairs:
    """The pairs of one file, or of two parallel ones by their common name; `say` gets notes on skipped lines."""
    wanted = Wanted(columns, "auto", source, target, usual, check_encoding(encoding))
    pairs, about = _read(open_pair_source(_single(Path(path), wanted), wanted))
    for sentence in about:
        say(sentence)
    return pairs


def _single(path: Path, wanted: Wanted) -> tuple[Path, ...]:
    files = find_pair_files(path, *wanted.languages)
    if "pairs" not in files:
        raise RegardError(f"{str(path)!r} is a folder; give one file of pairs.")
    return files["pairs"]


def _read(opened: PairSource) -> tuple[Pairs, list[str]]:
    sources, targets, about = read_pair_source(opened)
    return Pairs(sources, targets), about


def _with_languages(corpus: PairCorpus, opened: PairSource, wanted: Wanted) -> PairCorpus:
    """The corpus with facts about its file."""
    named = opened.languages
    return replace(
        corpus,
        source=wanted.source or named[0],
        target=wanted.target or named[1],
        columns=opened.columns,
        header=opened.header,
        origin=(opened.sentence, *corpus.origin) if opened.table else corpus.origin,
    )


def _open_folder(folder: Path, wanted: Wanted) -> PairCorpus:
    """The given splits of a folder; a missing validation split is drawn from train."""
    name, files = folder.resolve().name, find_pair_files(folder, *wanted.languages)
    given = ", ".join(" + ".join(path.name for path in paths) for paths in files.values())
    opened = {"train": open_pair_source(files["train"], wanted)}
    alike = replace(wanted, usual=opened["train"].columns or wanted.usual)
    opened |= {split: open_pair_source(paths, alike) for split, paths in files.items() if split != "train"}
    read = {split: _read(one) for split, one in opened.items()}
    about = tuple(sentence for _, sentences in read.values() for sentence in sentences)
    splits = {split: pairs for split, (pairs, _) in read.items()}
    if "valid" in splits:
        corpus = PairCorpus(name, splits, origin=(f"Splits as given: {given}.", *about))
        return _with_languages(corpus, opened["train"], wanted)
    drawn = _split(name, splits["train"], [], "drawn", ("valid",) if "test" in splits else ("valid", "test"))
    corpus = replace(
        drawn,
        splits={**splits, **drawn.splits},
        origin=(f"Given: {given}.", *drawn.origin, *about),
        disjoint="test" not in splits,
    )
    return _with_languages(corpus, opened["train"], wanted)


def _split(
    name: str, pairs: Pairs, about: Iterable[str], how: str, held_out: Sequence[str] = ("valid", "test")
) -> PairCorpus:
    if how == "tail":
        held = max(1, min(len(pairs) // PARTS, MAX_HELD_OUT))
        cuts = [0, len(pairs) - 2 * held, len(pairs) - held, len(pairs)]
        if cuts[1] < 1:
            raise _too_few(name, len(pairs))
        splits = {split: pairs.take(range(a, b)) for split, a, b in zip(SPLITS, cuts, cuts[1:])}
        origin = (
            f"Split in file order: the last {group_digits(2 * held)} pairs are valid and test, "
            f"{group_digits(held)} each."
        )
        return PairCorpus(name, splits, origin=(origin, *about))
    drawn = cached_for_text(
        "split",
        pairs.characters,
        (*held_out, pairs.checksum()),
        lambda: draw_pairs(pairs.sources, pairs.targets, held_out),
        Drawn.dump,
        Drawn.parse,
    )
    if len(drawn.splits) < 2:
        raise _too_few(name, len(pairs))
    splits = {split: pairs.take(chosen) for split, chosen in drawn.splits.items()}
    return PairCorpus(name, splits, origin=(drawn.origin, *about), disjoint=True)


def _too_few(name: str, count: int) -> RegardError:
    return RegardError(
        f"None of the {group_digits(count)} pairs of {name!r} can be held out without also being trained on; "
        "give more pairs, or a folder with train.tsv and valid.tsv."
    )


# Corpora with a name


def _open_built_in(name: str, pairs: int, longest: int) -> PairCorpus:
    if name == "phrasebook":
        made = phrases(pairs, longest)
        splits = {
            split: Pairs(
                [pair.source for pair in given], [pair.target for pair in given], [pair.alignment for pair in given]
            )
            for split, given in made.items()
        }
        count = sum(map(len, splits.values()))
        origin = (
            f"{group_digits(count)} pairs of the built-in English–French grammar, generated with seed 0, with "
            "their word alignment."
        )
        return PairCorpus(name, splits, "en", "fr", origin=(origin,))
    if name not in TOYS:
        raise RegardError(f"{name!r} is a text without translations; give pairs, for example the built-in phrasebook.")
    splits = {split: toy_pairs(name, lines) for split, lines in toy_task(name).items()}
    origin = (
        "Generated with seed 0: the target is the language model's answer at the end of the line; no two "
        "splits share a pair."
    )
    return PairCorpus(name, splits, suggested_tokenizer="word", pretokenised=True, origin=(origin,), disjoint=True)


def toy_pairs(name: str, lines: Iterable[str]) -> Pairs:
    """A toy task as pairs: the label after its string, the copy after the bar, the value after the question."""

    def cut(line: str) -> tuple[str, str]:
        if name not in TOY_ENDS:
            source, target = line.split(" | ")
            return source, target
        symbols = line.split()
        return " ".join(symbols[: -TOY_ENDS[name]]), " ".join(symbols[-TOY_ENDS[name] :])

    cuts = [cut(line) for line in lines]
    return Pairs([source for source, _ in cuts], [target for _, target in cuts])


def _open_download(download: Download, source: str, target: str) -> PairCorpus:
    name, usual = download.name, download.languages
    folders = [place / name for place in data_folders() if (place / name).is_dir()]
    if not folders:
        raise RegardError(f"{name!r} is not on this machine; run `regard data fetch {name}` first.")
    languages = (source or usual[0], target or usual[1])
    if len(download.files) > 1:
        corpus = _open_folder(folders[0], Wanted("", "auto", *languages))
        return replace(corpus, name=name, columns="", header="auto")
    files = [path for path in entries(folders[0]) if path.is_file() and is_table(path)]
    if not files:
        raise RegardError(f"{name!r} is incomplete on this machine; run `regard data fetch {name}` first.")
    if sorted(languages) != sorted(usual):
        raise RegardError(f"{name!r} contains {usual[0]} and {usual[1]}, not {languages[0]} and {languages[1]}.")
    corpus = _split(name, *_read(open_pair_source(files[:1], Wanted("1,2", "no"))), "drawn")
    corpus = replace(corpus, source=usual[0], target=usual[1])
    return corpus if languages == usual else corpus.swapped()


# Fewer and additional training pairs


def _fewer(corpus: PairCorpus, count: int) -> PairCorpus:
    train = corpus.splits["train"]
    if count >= len(train):
        return corpus
    ranked = sorted(range(len(train)), key=lambda index: _pair_hash(train, index))
    note = f"{group_digits(count)} of the {group_digits(len(train))} training pairs are used, drawn by hash."
    splits = {**corpus.splits, "train": train.take(sorted(ranked[:count]))}
    return replace(corpus, splits=splits, origin=(*corpus.origin, note))


def _pair_hash(pairs: Pairs, index: int) -> int:
    return line_hash(f"{pairs.sources[index]}\n{pairs.targets[index]}")


def _with_more(corpus: PairCorpus, also: str, source: str, target: str, encoding: str) -> PairCorpus:
    """Adds training pairs, except those with a held-out side."""
    train = corpus.splits["train"]
    notes = list(corpus.origin)
    for path, weight in weighted(also):
        wanted = Wanted("", "auto", source, target, corpus.columns, encoding)
        more, about = _read(open_pair_source(_single(Path(path), wanted), wanted))
        clean = not_held_out(corpus, more)
        chosen = [index for index in clean for _ in range(_times(weight, _pair_hash(more, index)))]
        added = more.take(chosen)
        train = Pairs([*train.sources, *added.sources], [*train.targets, *added.targets])
        leaks = len(more) - len(clean)
        left_out = f"; {group_digits(leaks)} with a held-out side were left out" if leaks else ""
        notes += [
            f"{pluralize(len(clean), 'more training pair')} from {path}, {weight:g} times per epoch{left_out}.",
            *about,
        ]
    return replace(corpus, splits={**corpus.splits, "train": train}, origin=tuple(notes))


def not_held_out(corpus: PairCorpus, more: Pairs) -> list[int]:
    """Indices of further pairs that may be trained on: no side is held out, up to case and punctuation.

    A side of labels is in every split and is not checked.
    """
    train, held_out = corpus.splits["train"], [pairs for split, pairs in corpus.splits.items() if split != "train"]

    def taken(side: str) -> set[str]:
        if are_labels(getattr(train, side)):
            return set()
        return {text for pairs in held_out for text in normalize_for_comparison(getattr(pairs, side))}

    sources, targets = taken("sources"), taken("targets")
    sides = enumerate(zip(normalize_for_comparison(more.sources), normalize_for_comparison(more.targets)))
    return [index for index, (one, other) in sides if one not in sources and other not in targets]


def weighted(also: str) -> list[tuple[str, float]]:
    """ "more.tsv:2,other.tsv" → (more.tsv, 2), (other.tsv, 1)"""
    weights = []
    for part in filter(None, map(str.strip, also.split(","))):
        path, colon, number = part.rpartition(":")
        try:
            weight = float(number) if colon else 1.0
        except ValueError:  # a colon of the path
            path, weight = part, 1.0
        if not (weight > 0 and math.isfinite(weight)):
            raise RegardError(f"The weight of {path!r} must be more than 0, not {number}; 2 counts each pair twice.")
        weights.append((path if colon else part, weight))
    return weights


def _times(weight: float, number: int) -> int:
    """The number of copies of a pair; its hash rounds the fraction, the same way in every epoch."""
    return int(weight) + (number / 2**64 < weight % 1)
