"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the text of their cues, and the same file with another text.

    1                                     number or name of the cue: stays
    00:00:01,000 --> 00:00:03,500         time codes: stay
    <i>The cat sees                       text: its lines are one sentence, broken for the screen
    the house.</i>                        a blank line ends the cue

A line that begins with a dash, or in WebVTT with <v NAME>, is another speaker's, and a separate sentence. Marks
around a sentence stay (dashes, ♪, {\\an8}, <i>…</i>); formatting inside it is left out. A translation has as many
lines as the sentence had, of similar lengths; one with more than LINE characters has at least two.
"""

from __future__ import annotations

import html
import re
import textwrap
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.base.errors import RegardError

FORMATS = (".srt", ".vtt")
LINE = 42  # characters: the usual limit of a line on the screen

TIMES = re.compile(r"\s*\d[\d:.,]*\s*-->\s*\d[\d:.,]*")
TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
SPEAKER = re.compile(r"(<[^<>]*>|\{\\[^{}]*\})*\s*([-–—]|<v[ .])")
BEFORE = re.compile(rf"(?:\s|[-–—♪♫]|{TAG.pattern})*")
MARKS = re.compile(rf"(?:\s|[♪♫]|{TAG.pattern})+")


def subtitle_format(path: Path) -> str:
    """`.srt` or `.vtt`, or nothing for any other file; it may be gzipped."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in FORMATS else ""


@dataclass(frozen=True)
class Sentence:
    """One speaker's sentence in a cue."""

    before: str
    text: str
    after: str
    lines: int  # that it has

    @property
    def spoken(self) -> bool:
        """True if there is anything to translate."""
        return any(character.isalpha() for character in self.text)


class Subtitles:
    """One of the two formats; `form` is the result of `subtitle_format`."""

    def __init__(self, form: str, name: str) -> None:
        self.web, self.name = form == ".vtt", name

    def texts(self, lines: Iterable[str]) -> Iterator[str]:
        """The sentences of a file's cues, each as one line of plain text."""
        for part in self._parts(lines):
            if isinstance(part, Sentence) and part.spoken:
                yield part.text

    def replaced(self, lines: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
        """The lines of the file with these texts, one for each of `texts(lines)`, in their place."""
        following = iter(texts)
        for part in self._parts(lines):
            if isinstance(part, str):
                yield part
                continue
            text = next(following) if part.spoken else part.text
            broken = break_lines(html.escape(text, quote=False) if self.web else text, part.lines)
            broken[0] = part.before + broken[0]
            broken[-1] += part.after
            yield from filter(None, broken)

    def _parts(self, lines: Iterable[str]) -> Iterator[str | Sentence]:
        """A file's lines, with the text of each cue as sentences."""
        cue: list[str] = []
        timed = inside = False
        for number, line in enumerate(lines, 1):
            if self.web and number == 1 and not line.startswith("WEBVTT"):
                raise RegardError(f"{self.name} does not begin with WEBVTT, as a .vtt file must: check the file.")
            if TIMES.match(line):
                # without a blank line between two cues, the second one's number is still among the first one's text
                name = [cue.pop()] if cue and cue[-1].strip().isdecimal() else []
                yield from self._sentences(cue)
                yield from [*name, line]
                cue, timed, inside = [], True, True
            elif not line.strip():
                yield from self._sentences(cue)
                yield line
                cue, inside = [], False
            elif inside or not self.web:
                if not timed and not line.strip().isdecimal():
                    raise RegardError(
                        f"{self.name}, line {number}: text comes before the first time code, as in 00:00:01,000 --> "
                        "00:00:02,000; if this is plain text, give the file another name."
                    )
                cue.append(line)
            else:
                yield line  # header, notes, styles, names of cues
        yield from self._sentences(cue)

    def _sentences(self, cue: list[str]) -> Iterator[Sentence]:
        spoken: list[list[str]] = []
        for line in cue:
            if not spoken or SPEAKER.match(line):
                spoken.append([])
            spoken[-1].append(line.strip())
        for lines in spoken:
            yield self._sentence(" ".join(lines), len(lines))

    def _sentence(self, text: str, lines: int) -> Sentence:
        begin = BEFORE.match(text).end()  # type: ignore[union-attr]  # it matches the empty text, too
        end = len(text)
        for marks in MARKS.finditer(text, begin):
            end = marks.start() if marks.end() == len(text) else len(text)
        before, inner, after = text[:begin], text[begin:end], text[end:]
        inner = " ".join(TAG.sub("", inner).split())
        opened = {_name(tag) for tag in TAG.findall(before)}
        closed = {_name(tag) for tag in TAG.findall(after)}
        before = TAG.sub(lambda tag: tag[0] if _alone(tag[0]) or _name(tag[0]) in closed else "", before)
        after = TAG.sub(lambda tag: tag[0] if _alone(tag[0]) or _name(tag[0]) in opened else "", after)
        return Sentence(before, html.unescape(inner) if self.web else inner, after, lines)


def _name(tag: str) -> str:
    """i of <i>, </i> and <i.loud>."""
    return re.sub(r"[\s.].*", "", tag.strip("</>"))


def _alone(tag: str) -> bool:
    """True for a tag without a closing tag."""
    return tag.startswith(("{", "<v ", "<v."))


def break_lines(text: str, lines: int) -> list[str]:
    """The text in at most `lines` lines (two if it is long), with the longest line as short as possible."""
    text = re.sub(r"[ \t\n\r\f\v]+", " ", text).strip(" ")
    lines = max(lines, 2 if len(text) > LINE else 1)
    longest = max(map(len, text.split(" ")))  # a no-break space is part of a word
    widths = range(max(longest, -(-len(text) // lines), 1), max(len(text), 1) + 1)
    width = bisect_left(widths, True, key=lambda width: len(_wrapped(text, width)) <= lines)
    return _wrapped(text, widths[width]) or [text]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
