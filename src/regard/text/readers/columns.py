"""Chooses the columns of a table: those that the user names, or the only candidates.

`--data.columns` names or numbers (from 1) the columns. Without it, if the file leaves them open, an error lists the
columns and the first row: Regard does not guess, so it never trains on line numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from regard.base.errors import RegardError
from regard.base.settings import closest
from regard.text.readers.encodings import UTF8
from regard.text.readers.tables import BY_ROWS, TextTable, split_names

PAIR_NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("text", "label"), ("sentence", "label"))
TEXT_NAMES = ("text", "content", "sentence")
NUMBER_NAMES = ("id", "ids", "nr", "no.", "num", "number", "index", "key", "line", "row", "url", "date")
ATTRIBUTION = re.compile(r"Attribution: tatoeba\.org", re.IGNORECASE)  # the third column of ManyThings' files
CODE = re.compile(r"[!-~]*\d[!-~]*")  # an identifier or a number; words of other scripts may have no spaces


@dataclass(frozen=True)
class Wanted:
    """The user's choices about a table of pairs."""

    columns: str = ""  # names or numbers of source and target
    header: str = "auto"  # yes, no, or auto: look
    source: str = ""  # languages
    target: str = ""
    usual: str = ""  # columns to take if present: those of the evaluated run, or of the training file
    encoding: str = UTF8  # of files without a byte-order mark

    @property
    def languages(self) -> tuple[str, str]:
        """For parallel files: source and target language; their suffixes are the columns."""
        if self.source or self.target:
            return self.source, self.target
        one, other, *_ = [*split_names(self.columns or self.usual), "", ""]
        return ("", "") if not self.columns and (one + other).isdecimal() else (one, other)


def pair_columns(table: TextTable, wanted: Wanted) -> tuple[int, int]:
    """The columns of source and target: the requested ones, those of the languages, the usual ones, or the only two."""
    if columns := wanted.columns:
        names_given = split_names(columns)
        if len(names_given) != 2:
            raise _ask(table, f"pairs need two columns, not {columns!r}", 2)
        one, other = (_find(table, name) for name in names_given)
        if one is None or other is None:
            raise _ask(table, _no_column(table, names_given[one is not None]), 2)
        if one == other:
            raise _ask(table, f"{columns!r} names one column twice", 2)
        return one, other
    usual = split_names(wanted.usual) if len(table.columns) == 2 or wanted.usual != "1,2" else []
    for names in ((wanted.source, wanted.target), usual, *PAIR_NAMES):
        pair = [number for name in names if name and (number := _find(table, name)) is not None]
        if len(set(pair)) == 2:
            return pair[0], pair[1]
    candidates = list(range(len(table.columns)))
    inside = [number for number in candidates if "." in table.columns[number]]  # translation.de, translation.en
    if len(inside) == 2 and len({table.columns[number].rpartition(".")[0] for number in inside}) == 1:
        candidates = inside
    while len(candidates) > 2 and table.kind in BY_ROWS and _is_constant(table, candidates[-1]):
        candidates.pop()
    coded = [_is_code(table, column) for column in candidates]
    if len(candidates) == 2 and not any(_numbers_rows(table, column) for column in candidates) and sum(coded) != 1:
        return candidates[0], candidates[1]
    if len(candidates) == 1 and table.kind in BY_ROWS:
        raise RegardError(
            f"{str(table.paths[0])!r} has no pairs: most lines have only one field; each line must have a "
            "source, a tab "
            "and a target."
        )
    raise _ask(table, "Regard cannot tell which is the source and which the target", 2)


def text_column(table: TextTable, columns: str = "", *, usual: str = "") -> int:
    """The column that a language model reads: the requested one, the one called text, or the only one."""
    if columns:
        if len(wanted := split_names(columns)) != 1:
            raise _ask(table, f"a language model needs one column, not {columns!r}", 1)
        number = _find(table, wanted[0])
        if number is None:
            raise _ask(table, _no_column(table, wanted[0]), 1)
        return number
    for name in (*split_names(usual), *TEXT_NAMES):
        if (number := _find(table, name)) is not None and (name != "1" or len(table.columns) == 1):
            return number
    if len(table.columns) == 1:
        return 0
    raise _ask(table, "Regard cannot tell which of them is the text", 1)


def _find(table: TextTable, wanted: str) -> int | None:
    """A column by its name, its number, its language (en-US by en) or the last part of its name (translation.de)."""
    word = wanted.casefold()
    names = [name.casefold() for name in table.columns]
    for candidates in (
        [number for number, name in enumerate(names) if name == word],
        [int(word) - 1] if re.fullmatch(r"[1-9]\d{0,5}", word) and int(word) <= len(names) else [],
        [n for n, name in enumerate(table.columns) if word and table.languages.get(name, "").casefold() == word],
        [number for number, name in enumerate(names) if name.rpartition(".")[2] == word],
        [number for number, name in enumerate(names) if re.split("[-_]", name)[0] == word],
    ):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _is_constant(table: TextTable, column: int) -> bool:
    """True for a column that is the same in all rows, such as a license, or an attribution."""
    fields = [row[column] for row in table.sample if len(row) > column]
    return (len(fields) > 1 and len(set(fields)) == 1) or all(map(ATTRIBUTION.search, fields))


def _numbers_rows(table: TextTable, column: int) -> bool:
    """True for a column that numbers or identifies the rows."""
    name = table.columns[column].casefold()
    if name in NUMBER_NAMES or re.search(r"[\s_-]ids?$", name):
        return True
    fields = [row[column].strip() for row in table.sample if len(row) > column]
    if len(fields) < 3 or not all(re.fullmatch(r"\d{1,15}", text) for text in fields):
        return False
    first = int(fields[0])
    return [int(text) for text in fields] == list(range(first, first + len(fields)))


def _is_code(table: TextTable, column: int) -> bool:
    """True for a column whose fields differ only in a number: s-017, s-018, …"""
    fields = [row[column].strip() for row in table.sample if len(row) > column]
    around = {re.sub(r"\d+", "0", text) for text in fields}
    if len(fields) < 3 or len(around) > 1 or len({*fields}) < len(fields):
        return False
    return not fields[0].isdecimal() and bool(CODE.fullmatch(fields[0]))


def _prose(table: TextTable, column: int) -> int:
    """The number of rows in which a column looks like text: with letters, and not like a number or an identifier."""
    if _numbers_rows(table, column):
        return 0
    fields = (row[column] for row in table.sample if len(row) > column)
    return sum(any(map(str.isalpha, text)) and not CODE.fullmatch(text) for text in fields)


def _no_column(table: TextTable, name: str) -> str:
    near = closest(name, table.columns)
    return f"there is no column {name!r}" + (f" (did you mean {near[0]}?)" if near else "")


def _ask(table: TextTable, why: str, count: int) -> RegardError:
    def shown(number: int, name: str) -> str:
        text = table.sample[0][number] if table.sample and number < len(table.sample[0]) else ""
        sample = repr(text if len(text) <= 20 else f"{text[:19]}…")
        return f"{number + 1} {sample}" if name.isdecimal() else f"{name} {sample}"

    listed = ", ".join(shown(number, name) for number, name in enumerate(table.columns[:12]))
    places = range(len(table.columns))
    rows = [_prose(table, number) for number in places]
    most = sorted(filter(rows.__getitem__, places), key=lambda number: -rows[number])[:count]
    example = table.named(sorted(most) if len(most) == count else places[:count])
    plural = "s" if len(table.columns) > 1 else ""
    return RegardError(
        f"{str(table.paths[0])!r} has {len(table.columns)} column{plural} ({listed}), and {why}; choose with "
        f"--data.columns, for example --data.columns {example}."
    )
