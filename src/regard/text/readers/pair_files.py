"""Files of sentence pairs: finding them under a path, and reading them.

pairs.tsv                        source⇥target; any table of `tables.py`: .csv, .tmx, .xlf, .jsonl, .parquet, …
corpus/train.tsv, valid.tsv, …   the same, already split
corpus/train.de, train.en, …     parallel (Moses) files: line n of one is the translation of line n of the other
corpus/train                     only two such files
    corpus/train/data-0….arrow       a Hugging Face dataset as stored on disk, or its train-0….parquet files
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.text.corpus import SPLITS, entries, is_named, says, shards, unknown_corpus
from regard.text.readers.columns import Wanted, pair_columns
from regard.text.readers.encodings import UTF8
from regard.text.readers.lines import encoding_of, read_head, read_lines, require_text_file, unpacked_name
from regard.text.readers.tables import BINARY, KINDS, Problem, TextTable, has_tabs, kind_of, open_table

TABBED = ("", ".txt", ".text", ".tab")  # suffixes of files that are tables if they have tabs
LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*")
NO_LANGUAGE = {"txt", "raw", "md", "py", "gz", "zst", "zip", "log", "xml", "sgm", "bpe", "bin", "npy"} | {
    suffix[1:] for suffix in KINDS
}


def holds_pairs(path: Path) -> bool:
    """True if there are pairs at this path."""
    if path.is_dir():
        parts = shards(path).get("train", ())
        return "train" in _tables(path) or len(_parallel(path).get("train", {})) > 1 or any(map(is_table, parts[:1]))
    return is_table(path) if path.is_file() else len(list(filter(_is_language, _beside(path)))) > 1


def find_pair_files(path: Path, source: str = "", target: str = "") -> dict[str, tuple[Path, ...]]:
    """The files of a corpus by split ("pairs" for a single one): one with tabs, or two parallel ones."""
    if path.is_dir():
        return _find_in_folder(path, source, target)
    if path.exists():
        return {"pairs": (path,)}
    if is_named(str(path)):
        raise RegardError(f"{str(path)!r} is the name of a corpus; give a file or a folder of pairs.")
    beside = _beside(path)
    if source in beside and target in beside and source != target:
        return {"pairs": (beside[source], beside[target])}
    if len(list(filter(_is_language, beside))) < 2:
        raise unknown_corpus(str(path), path)
    raise _which_languages(f"{path}.*", beside, source, target)


def _find_in_folder(folder: Path, source: str, target: str) -> dict[str, tuple[Path, ...]]:
    tables, files = _tables(folder), _parallel(folder)
    requested = [code for code in (source, target) if code]
    if "train" in tables and not (requested and len(files.get("train", {})) > 1):
        return {split: (path,) for split, path in tables.items()}
    exact = _parallel(folder, requested) if len(requested) == 2 and source != target else {}
    if len(exact.get("train", {})) == 2:
        for split, sides in exact.items():
            if len(sides) == 1:
                (path,), (missing,) = sides.values(), set(requested) - sides.keys()
                raise RegardError(
                    f"{str(path)!r} has no {split} file in {missing!r} next to it; add one, or remove this file."
                )
        return {split: (exact[split][source], exact[split][target]) for split in SPLITS if split in exact}
    if len(files.get("train", {})) > 1:
        raise _which_languages(str(folder), files["train"], source, target)
    if parts := shards(folder):
        return parts
    single = [path for path in entries(folder) if path.is_file() and is_table(path)]
    advice = (
        f"or give the file {str(single[0])!r} itself" if len(single) == 1 else "or give a single tab-separated file"
    )
    raise RegardError(
        f"The folder {str(folder)!r} has no training pairs; name the files train.tsv, or train.de and "
        f"train.en, {advice}."
    )


def is_table(path: Path) -> bool:
    """True if a file is a table of pairs: by its name, or because its first line has a tab."""
    suffix = unpacked_name(path).suffix.lower()
    if suffix not in KINDS:
        return suffix in TABBED and path.is_file() and (bool(kind_of(path)) or has_tabs(path))
    if KINDS[suffix] not in ("JSON Lines", *BINARY):
        return True
    try:  # may also be text for a language model: pairs only if the columns are clear
        table = open_table([path], undecodable=lambda *_: None)
        if table.kind == "XLSX":
            return len(table.columns) > 1
        pair_columns(table, Wanted())
    except RegardError:
        return False
    return True


def _is_language(code: str) -> bool:
    return bool(LANGUAGE.fullmatch(code)) and code not in NO_LANGUAGE


def _beside(path: Path) -> dict[str, Path]:
    """train.de, train.en.gz → de, en: the files whose names add a language to this one."""
    folder = path.parent
    files = entries(folder) if path.name and folder.is_dir() else []
    named = [(unpacked_name(file), file) for file in sorted(files, reverse=True) if file.is_file()]  # before its .gz
    return {plain.suffix[1:]: file for plain, file in named if plain.stem == path.name and plain.suffix}


def _which_languages(where: str, codes: Iterable[str], source: str, target: str) -> RegardError:
    languages = sorted(filter(_is_language, codes))
    if missing := [code for code in (source, target) if code and code not in codes]:
        return RegardError(
            f"{where!r} has no training file in {missing[0]!r}; its languages are {', '.join(languages)}."
        )
    first, second = languages[:2]
    return RegardError(
        f"{where!r} contains {', '.join(languages)}: choose which to translate from and into, for example with "
        f"--data.columns {first},{second}."
    )


def _only(split: str, folder: Path, files: Sequence[Path]) -> Path:
    if len({unpacked_name(path) for path in files}) > 1:
        names = ", ".join(path.name for path in files)
        raise RegardError(f"The folder {str(folder)!r} has several {split} files ({names}); keep only one of them.")
    return min(files)  # the plain file before its .gz


def _tables(folder: Path) -> dict[str, Path]:
    """The files with tabs of a folder by split: train.tsv, dev.tsv.gz, …"""
    tables = [path for path in entries(folder) if path.is_file() and is_table(path)]
    by_split = {split: [path for path in tables if says(split, unpacked_name(path).stem)] for split in SPLITS}
    return {split: _only(split, folder, files) for split, files in by_split.items() if files}


def _parallel(folder: Path, wanted: Sequence[str] = ()) -> dict[str, dict[str, Path]]:
    """The parallel files of a folder by split and language: train.de, val.en.gz, test_2016_flickr.de, …"""
    by_split: dict[str, dict[str, list[Path]]] = {}
    for path in entries(folder):
        code = unpacked_name(path).suffix[1:]
        language = code in wanted if wanted else _is_language(code)
        for split in SPLITS:
            if language and path.is_file() and says(split, unpacked_name(path).stem):
                by_split.setdefault(split, {}).setdefault(code, []).append(path)
    return {
        split: {code: _only(f"{code} {split}", folder, files) for code, files in languages.items()}
        for split, languages in by_split.items()
    }


@dataclass(frozen=True)
class PairSource:
    """The pairs of one table, or of two parallel files, and facts about them."""

    paths: tuple[Path, ...]
    table: TextTable | None  # None: parallel files
    chosen: tuple[int, int] = (0, 1)
    undecodable: Callable[[int, int], None] | None = field(default=None, repr=False)
    given: str = UTF8  # the encoding of files without a byte-order mark

    @property
    def columns(self) -> str:
        if self.table is None:
            return ",".join(unpacked_name(path).suffix[1:] for path in self.paths)
        return self.table.named(self.chosen)

    @property
    def header(self) -> str:
        return "auto" if self.table is None else "yes" if self.table.header else "no"

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target, if the columns name them."""
        if self.table is None:
            one, other = self.columns.split(",")
            return one, other
        one, other = (self.table.columns[number] for number in self.chosen)
        named = [self.table.languages.get(name, "") or name.rpartition(".")[2] for name in (one, other)]
        return (named[0], named[1]) if all(map(_is_language, named)) else ("", "")

    @property
    def sentence(self) -> str:
        """A sentence about the files, for the log."""
        if self.table:
            return self.table.describe(self.chosen)
        one, other = self.paths
        return f"{one.name} and {other.name} are parallel files, line by line."

    @property
    def encoding(self) -> str:
        return "" if self.table and self.table.kind in BINARY else encoding_of(read_head(self.paths[0]), self.given)

    def rows(
        self, problem: Problem | None = None, too_long: Callable[[int], None] = lambda line: None
    ) -> Iterator[tuple[int, str, str]]:
        """Line, source and target; both are empty on a blank line, and in a unit that is not translated. `too_long` is
        called for each line with text after the table's last column, as after a stray tab: that is not read."""
        if self.table is None:
            yield from self._side_by_side()
            return
        one, other = self.chosen
        few = "only one field" if max(self.chosen) == 1 else f"fewer than {max(self.chosen) + 1} fields"
        units = self.table.kind.startswith(("TMX", "XLIFF"))
        refuse = problem or _too_few_fields(self.paths[0])
        width = len(self.table.columns)
        for number, fields in self.table.rows(problem):
            if any(fields[width:]):
                too_long(number)
                if problem:
                    problem(f"more than {width} fields", number)
            if len(fields) > max(self.chosen):
                source, target = fields[one], fields[other]
                yield (number, "", "") if units and not (source and target) else (number, source, target)
            elif any(fields):
                refuse(few, number)
            else:
                yield number, "", ""

    def _side_by_side(self) -> Iterator[tuple[int, str, str]]:
        one, other = self.paths
        sources, targets = (
            [line.strip() for line in read_lines(path, undecodable=self.undecodable, encoding=self.given)]
            for path in self.paths
        )
        if len(sources) != len(targets):
            raise RegardError(
                f"{str(one)!r} has {group_digits(len(sources))} lines and {str(other)!r} has "
                f"{group_digits(len(targets))}; line n of one must be the translation of line n of the other: find "
                "the first line where they stop matching."
            )
        yield from zip(count(1), sources, targets)


def _too_few_fields(path: Path) -> Problem:
    def problem(what: str, line: int) -> None:
        raise RegardError(
            f"{str(path)!r} has {what} on line {line}; each line must have a source, a tab and a target (`regard data "
            "check` finds all such lines)."
        )

    return problem


def open_pair_source(
    paths: Sequence[Path], wanted: Wanted, undecodable: Callable[[int, int], None] | None = None
) -> PairSource:
    """Opens the files of a split and recognizes their format."""
    if len(paths) == 2 and kind_of(paths[0]) not in BINARY:
        for path in paths:
            require_text_file(path, wanted.encoding)
        return PairSource(tuple(paths), None, undecodable=undecodable, given=wanted.encoding)
    columns = wanted.columns or wanted.usual
    table = open_table(paths, wanted.header, columns, undecodable, encoding=wanted.encoding)
    return PairSource(tuple(paths), table, pair_columns(table, wanted), given=wanted.encoding)


def read_pair_source(opened: PairSource) -> tuple[list[str], list[str], list[str]]:
    """Sources, targets, and notes on skipped lines. Blank lines are skipped; pairs with one empty side are not."""
    sources, targets, blank = [], [], 0
    too_long: list[int] = []
    for _, source, target in opened.rows(too_long=too_long.append):
        if source or target:
            sources.append(source)
            targets.append(target)
        else:
            blank += 1
    units = opened.table is not None and opened.table.kind.startswith(("TMX", "XLIFF"))
    passed = pluralize(blank, "unit") + " without both languages" if units else pluralize(blank, "blank line")
    were = "was" if blank == 1 else "were"
    about = [f"{passed} of {opened.paths[0].name} {were} skipped."] if blank else []
    if too_long and opened.table is not None:
        lines, width = pluralize(len(too_long), "line"), pluralize(len(opened.table.columns), "field")
        has = "has" if len(too_long) == 1 else "have"
        where = f"{lines} of {opened.paths[0].name} {has} more than {width} (the first is line {too_long[0]})"
        about.append(f"{where}: the extra fields were not read.")
    return sources, targets, about
