"""The pages docs/lectures/*.md, read: which lines of the notes each entry explains, and what belongs to them.

An entry is a section whose first line names its lines. Its list at the end is read, too; the rest is prose:

    ## The update of the hidden state
    *003:48–52.*

    … prose, equations, figures …

    - Code: [layers/recurrent.py](../../src/regard/layers/recurrent.py): `return {"hidden": …}`
    - Try: `regard inspect runs/rnn "The cat sees the dog."`
    - Claim: `vanishing`
    - Exercise: `rnn-step`

Where a file has that text twice, the function is named: `[…](…) in Dot.compare: …`.
Together the entries of a lecture explain every line of its notes, each line once. Errata may concern several places:
`*003:255; 003:265.*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regard.base.errors import RegardError
from regard.learn.lectures.code_anchor import SOURCE, Anchor

NUMBERS = ("000", "001", "002", "003", "004")
ERRATA = "errata"
PLACES = re.compile(r"^\*(\d{3}:\d+(?:–\d+)?(?:; \d{3}:\d+(?:–\d+)?)*)\.\*$", re.M)
CODE = re.compile(r"^- Code: \[([\w/]+\.py)\]\(\.\./\.\./src/regard/\1\)(?: in ([\w.]+))?: `(.+)`$", re.M)
TRAIN = re.compile(r"^regard train .*--run (\S+).*$", re.M)
TRY = re.compile(r"^- Try: `(.+?)`", re.M)
NAMED = re.compile(r"^- (Claim|Exercise): (.+)$", re.M)
FIGURE = re.compile(r"^!\[(.*?)\]\((\S+?)\)$", re.M)
LINE = re.compile(r"(\d{3}):(\d{1,6})")


@dataclass(frozen=True)
class LineRange:
    lecture: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.lecture}:{self.first}" + (f"–{self.last}" if self.last > self.first else "")

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place[0] == self.lecture and self.first <= place[1] <= self.last


@dataclass(frozen=True)
class LectureEntry:
    title: str
    lines: tuple[LineRange, ...]
    markdown: str  # with its heading
    code: tuple[Anchor, ...]
    commands: tuple[str, ...]
    claims: tuple[str, ...]
    exercises: tuple[str, ...]
    figures: tuple[str, ...]  # files next to the page

    @property
    def equations(self) -> list[str]:
        """Its indented lines: the equations as the page writes them."""
        return [line.strip() for line in self.markdown.splitlines() if line.startswith("    ") and line.strip()]


@dataclass(frozen=True)
class Page:
    number: str  # 000 … 004, or errata
    title: str
    summary: str
    markdown: str
    entries: tuple[LectureEntry, ...]

    @property
    def last_line(self) -> int:
        """The number of lines of the notes."""
        return max(lines.last for entry in self.entries for lines in entry.lines)

    @property
    def words(self) -> str:
        """The page for a terminal: code with its line, figures by name, links without their targets."""
        return terminal_words(self.markdown)


@dataclass(frozen=True)
class Found:
    """The entries for a line of the notes."""

    place: str
    page: Page
    entry: LectureEntry
    errata: tuple[LectureEntry, ...]

    @property
    def runs(self) -> list[str]:
        """The commands at the beginning of the page that train what the entry's commands use."""
        head = self.page.markdown.partition("\n## ")[0]
        used = {word for command in self.entry.commands for word in command.split()}
        return [trained[0] for trained in TRAIN.finditer(head) if trained[1] in used]


def lectures() -> list[Page]:
    return [get_lecture(number) for number in NUMBERS]


def get_lecture(number: str) -> Page:
    if number not in (*NUMBERS, ERRATA):
        raise RegardError(
            f"There is no lecture {number!r}; choose {', '.join(NUMBERS)} or {ERRATA}, as in `regard lecture 003`."
        )
    return _read(folder() / f"{number}.md")


def find(place: str) -> Found:
    """The entry of a line, as in 003:49."""
    named = LINE.fullmatch(place)
    if not named:
        raise RegardError(f"{place!r} is not a line of a lecture: write its number and the line, as in 003:49.")
    page, line = get_lecture(named[1]), int(named[2])
    at = (page.number, line)
    for entry in page.entries:
        if any(at in lines for lines in entry.lines):
            errata = [one for one in get_lecture(ERRATA).entries if any(at in lines for lines in one.lines)]
            return Found(place, page, entry, tuple(errata))
    raise RegardError(f"Lecture {page.number} has lines 1 to {page.last_line}, but not {line}.")


def with_places(markdown: str, show: Callable[[Anchor], str]) -> str:
    """The page with every line of code as `show` writes it."""
    return CODE.sub(lambda match: show(Anchor(match[1], match[3], match[2] or "")), markdown)


def terminal_words(markdown: str) -> str:
    markdown = with_places(markdown, lambda anchor: f"- Code: {anchor.place}: `{anchor.text}`")
    markdown = FIGURE.sub(lambda match: f"[Figure: {match[1]}]", markdown)
    return re.sub(r"(?<!!)\[([^\]]+)\]\([^)\s]+\)", r"\1", markdown)


def folder() -> Path:
    """The folder of the pages: inside an installed package, or docs/ of a repository."""
    inside = SOURCE / "learn" / "lectures" / "pages"
    return inside if inside.is_dir() else SOURCE.parents[1] / "docs" / "lectures"


@cache
def _read(path: Path) -> Page:
    markdown = path.read_text(encoding="utf-8")
    head, *sections = re.split(r"^(?=## )", markdown, flags=re.M)
    title, summary = re.match(r"# (?:Lecture \d{3}: )?(.+)\n\n(.+)\n", head).groups()  # type: ignore[union-attr]
    return Page(path.stem, title, summary, markdown, tuple(map(_entry, filter(PLACES.search, sections))))


def _entry(markdown: str) -> LectureEntry:
    places = PLACES.search(markdown)
    assert places
    return LectureEntry(
        title=markdown.partition("\n")[0].removeprefix("## "),
        lines=tuple(map(_lines, places[1].split("; "))),
        markdown=markdown.strip(),
        code=tuple(Anchor(file, text, within) for file, within, text in CODE.findall(markdown)),
        commands=tuple(TRY.findall(markdown)),
        claims=_named(markdown, "Claim"),
        exercises=_named(markdown, "Exercise"),
        figures=tuple(file for _, file in FIGURE.findall(markdown)),
    )


def _named(markdown: str, what: str) -> tuple[str, ...]:
    return tuple(
        name for kind, names in NAMED.findall(markdown) if kind == what for name in re.findall(r"`([\w-]+)`", names)
    )


def _lines(words: str) -> LineRange:
    lecture, _, lines = words.partition(":")
    first, _, last = lines.partition("–")
    return LineRange(lecture, int(first), int(last or first))
