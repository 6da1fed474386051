"""Reads the course, docs/learn/*.md: its chapters, and the code, command, claim and exercise of each section.

The course grew from five sets of handwritten notes. A section names their lines in a comment, which readers do not see;
together the sections explain every line of the notes, each line once. The list at the end of a section is also read:

    ## The hidden state
    <!-- notes: 003:29–52; 001:29–38 -->

    … prose, $formulas$, figures, questions in <details> …

    - Code: [layers/recurrent.py](../../src/regard/layers/recurrent.py): `return {"hidden": …}`
    - Try: `regard inspect gallery/lstm "The cat sleeps."`
    - Claim: `vanishing`
    - Exercise: `rnn-step`

If a file contains this text twice, the function is named: `[…](…) in Dot.compare: …`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regard.base.errors import RegardError
from regard.claims.documented_verdicts import documented_verdicts
from regard.learn.lectures.code_anchor import SOURCE, Anchor
from regard.learn.lectures.mathematics import FORMULA, as_text

CHAPTERS = ("counting", "embeddings", "recurrent", "translation", "attention", "transformer", "gpt", "after-gpt")
MISTAKES, ABOUT = "mistakes", "about"
LECTURES = {"000": 132, "001": 198, "002": 58, "003": 300, "004": 238}  # the notes, and how many lines each has
VERDICTS = {"holds": "✓ {} holds", "fails": "✗ {} fails", "inconclusive": "? {} is inconclusive"}

PLACES = re.compile(r"^<!-- notes: (\d{3}:\d+(?:–\d+)?(?:; \d{3}:\d+(?:–\d+)?)*) -->$", re.M)
CODE = re.compile(r"^- Code: \[([\w/]+\.py)\]\(\.\./\.\./src/regard/\1\)(?: in ([\w.]+))?: `(.+)`$", re.M)
TRY = re.compile(r"^- Try: `(.+?)`", re.M)
CLAIMS = re.compile(r"^- Claim: (.+)$", re.M)
NAMED = re.compile(r"^- (Claim|Exercise): (.+)$", re.M)
FIGURE = re.compile(r"^!\[(.*?)\]\((\S+?)\)$", re.M)
FOLDED = re.compile(r"<details><summary>(.*?)</summary>\n\n(.*?)\n\n</details>", re.S)
COMMENT = re.compile(r"^<!-- .*? -->\n+", re.M)
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
    """A section of a chapter."""

    title: str
    lines: tuple[LineRange, ...]  # of the notes
    markdown: str  # with its heading
    code: tuple[Anchor, ...]
    commands: tuple[str, ...]
    claims: tuple[str, ...]
    exercises: tuple[str, ...]
    figures: tuple[str, ...]  # files next to the page

    @property
    def equations(self) -> list[str]:
        """Its displayed formulas, in LaTeX."""
        return [found[1].strip() for found in FORMULA.finditer(self.markdown) if found[1]]


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    summary: str
    markdown: str
    entries: tuple[LectureEntry, ...]

    @property
    def words(self) -> str:
        """The page for a terminal: code with its line, figures by name, formulas as text, links without targets."""
        return terminal_words(self.markdown)


@dataclass(frozen=True)
class Found:
    """The section for a line of the notes."""

    place: str
    page: Page
    entry: LectureEntry
    errata: tuple[LectureEntry, ...]


def lectures() -> list[Page]:
    """The chapters in their order."""
    return [get_lecture(name) for name in CHAPTERS]


def get_lecture(name: str) -> Page:
    """A chapter by its name or number, or the page "mistakes" or "about".

    Raises:
        RegardError: If there is no such page.
    """
    if name.isdecimal() and len(name) < 3 and 1 <= int(name) <= len(CHAPTERS):
        name = CHAPTERS[int(name) - 1]
    if name not in (*CHAPTERS, MISTAKES, ABOUT):
        raise RegardError(
            f"The course has no chapter {name!r:.60}: choose 1 to {len(CHAPTERS)}, {', '.join(CHAPTERS)}, {MISTAKES}, "
            f"{ABOUT}, or a line of the notes, as in 003:49."
        )
    return _read(folder() / f"{name}.md")


def find(place: str) -> Found:
    """The section that explains a line of the notes, as in 003:49."""
    named = LINE.fullmatch(place)
    if not named or named[1] not in LECTURES:
        raise RegardError(f"{place!r:.60} is not a line of the notes: write the lecture and the line, as in 003:49.")
    at = (named[1], int(named[2]))
    for page in [*lectures(), get_lecture(ABOUT)]:
        for entry in page.entries:
            if any(at in lines for lines in entry.lines):
                errata = [one for one in get_lecture(MISTAKES).entries if any(at in lines for lines in one.lines)]
                return Found(place, page, entry, tuple(errata))
    raise RegardError(f"Lecture {named[1]} has lines 1 to {LECTURES[named[1]]}, but no line {named[2]}.")


def with_places(markdown: str, show: Callable[[Anchor], str]) -> str:
    """The page with every line of code as `show` prints it."""
    return CODE.sub(lambda match: show(Anchor(match[1], match[3], match[2] or "")), markdown)


def with_verdicts(markdown: str, link: Callable[[str], str]) -> str:
    """The page with the documented verdict of each claim, its number and its control; `link`: how a name is written."""

    def items(match: re.Match[str]) -> str:
        return "\n".join(f"- {verdict_words(name, link(name))}" for name in re.findall(r"`([\w-]+)`", match[1]))

    return CLAIMS.sub(items, markdown)


def verdict_words(name: str, shown: str) -> str:
    """The documented verdict of a claim in one line."""
    known = documented_verdicts()[name]
    verdict = VERDICTS.get(known.verdict, "– {} has not been run yet").format(f"claim {shown}")
    decides = f"{known.decides}: " if known.decides else ""
    return f"{verdict}: {decides}{known.measured}. Control: {known.control}." if known.measured else f"{verdict}."


def terminal_words(markdown: str) -> str:
    markdown = with_places(markdown, lambda anchor: f"- Code: {anchor.place}: `{anchor.text}`")
    markdown = with_verdicts(COMMENT.sub("", markdown), lambda name: f"`{name}`")
    markdown = FOLDED.sub(lambda match: f"**Question.** {match[1]}\n\n**Answer.** {match[2]}", markdown)
    markdown = FIGURE.sub(lambda match: f"[Figure: {match[1]}]", markdown)
    markdown = FORMULA.sub(lambda match: f"\n    {as_text(match[1])}\n" if match[1] else as_text(match[2]), markdown)
    return re.sub(r"(?<!!)\[([^\]]+)\]\([^)\s]+\)", r"\1", markdown)


def folder() -> Path:
    """The folder of the pages: inside an installed package, or docs/ of a repository."""
    inside = SOURCE / "learn" / "lectures" / "pages"
    return inside if inside.is_dir() else SOURCE.parents[1] / "docs" / "learn"


@cache
def _read(path: Path) -> Page:
    markdown = path.read_text(encoding="utf-8")
    head, *sections = re.split(r"^(?=## )", markdown, flags=re.M)
    title, summary = re.match(r"# (.+)\n\n(.+)\n", head).groups()  # type: ignore[union-attr]
    return Page(
        path.stem,
        title,
        summary,
        markdown,
        tuple(_entry(one) for one in sections if PLACES.search(one) or CODE.search(one)),
    )


def _entry(markdown: str) -> LectureEntry:
    places = PLACES.search(markdown)
    return LectureEntry(
        title=markdown.partition("\n")[0].removeprefix("## "),
        lines=tuple(map(_lines, places[1].split("; "))) if places else (),
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
