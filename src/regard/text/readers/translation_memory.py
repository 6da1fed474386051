"""Translation memories: TMX, and XLIFF 1.2 and 2, read as a stream.

    <tu><tuv xml:lang="en"><seg>Water</seg></tuv><tuv xml:lang="sw"><seg>Maji</seg></tuv></tu>       TMX
    <trans-unit><source>Water</source><target>Maji</target></trans-unit>                             XLIFF 1.2
    <unit><segment><source>Water</source><target>Maji</target></segment></unit>                      XLIFF 2

Inline markup is removed: its text stays, codes of other programs go. A file that declares entities is refused, since
these can expand without limit or name other files; only the file itself is opened.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from regard.base.errors import RegardError
from regard.base.reading import reading
from regard.text.readers.lines import MAX_LINE_BYTES

BLOCK = 1 << 16
MAX_DEPTH = 64  # elements within elements
CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sub"}  # whose content is another program's
ROOT = re.compile(r"<(?!\?|!)(?:\w+:)?(\w+)")
PREAMBLE = re.compile(r"\s*<(?:\?xml|!DOCTYPE|!--|(?:\w+:)?(?:tmx|xliff)\b)")


@dataclass(frozen=True)
class TranslationMemory:
    kind: str  # "TMX", "XLIFF 1.2", "XLIFF 2.0", …
    languages: Mapping[str, str]  # of XLIFF: {"source": "en", "target": "sw"}
    records: Callable[[Any], Iterator[tuple[int, Mapping[str, str]]]]  # (line, {column: sentence})


def memory_kind(head: bytes) -> str:
    """TMX or XLIFF by a file's first bytes, "" for anything else."""
    text = head.decode("utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8", "ignore").lstrip("\ufeff")
    if not PREAMBLE.match(text):
        return ""
    while (start := text.find("<!--")) >= 0:  # comments do not count
        text = text[:start] + text[start:].partition("-->")[2]
    root = ROOT.search(text)
    return {"tmx": "TMX", "xliff": "XLIFF"}.get(root[1].lower(), "") if root else ""


def read_memory(path: Path) -> TranslationMemory:
    first = _Reader(path)
    for _ in first.units():
        break
    if not first.kind:
        raise RegardError(f"{str(path)!r} is XML, but neither TMX nor XLIFF; save it as one of these, or as TSV.")
    return TranslationMemory(first.kind, first.languages, lambda problem: _Reader(path).units())


@dataclass
class _Reader:
    path: Path
    kind: str = ""
    languages: dict[str, str] = field(default_factory=dict)
    _stack: list[str] = field(default_factory=list)
    _text: list[str] | None = None  # of the sentence that is being read
    _size: int = 0
    _column: str = ""
    _codes: int = 0  # depth within codes of other programs
    _unit: dict[str, str] = field(default_factory=dict)
    _line: int = 0
    _ready: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)

    def units(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Each unit's line and sentences, by language (TMX) or as source and target (XLIFF)."""
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._characters
        parser.SkippedEntityHandler = lambda name, is_parameter: self._characters(html.unescape(f"&{name};"))
        parser.EntityDeclHandler = self._refuse_entities
        given = 0
        with reading(self.path) as stream:
            while True:
                block = stream.read(BLOCK)
                given += len(block)
                if (
                    given - max(parser.CurrentByteIndex, 0) > MAX_LINE_BYTES
                ):  # the parser would begin it again and again
                    most = f"{MAX_LINE_BYTES >> 20} MiB"
                    raise RegardError(f"{str(self.path)!r} has a tag or comment of more than {most}; export it again.")
                try:
                    parser.Parse(block, not block)
                except (expat.ExpatError, LookupError, ValueError) as error:
                    reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
                    raise RegardError(
                        f"{str(self.path)!r} is not complete XML: {reason} on line {parser.CurrentLineNumber}; "
                        "export it again."
                    ) from None
                yield from self._ready
                self._ready.clear()
                if not block:
                    return

    def _refuse_entities(self, *_: Any) -> None:
        raise RegardError(
            f"{str(self.path)!r} declares XML entities, which Regard does not expand; export it again without them."
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        parent = self._stack[-1] if self._stack else ""
        self._stack.append(tag)
        if len(self._stack) > MAX_DEPTH:
            name = repr(str(self.path))
            raise RegardError(f"{name} nests elements more than {MAX_DEPTH} deep: it is not a translation memory.")
        given = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if len(self._stack) == 1 and tag in ("tmx", "xliff"):
            self.kind = "TMX" if tag == "tmx" else f"XLIFF {given.get('version', '1.2')[:8]}"
            self.languages = {"source": given.get("srcLang", ""), "target": given.get("trgLang", "")}
        elif tag == "file" and "source-language" in given:
            self.languages = {"source": given["source-language"], "target": given.get("target-language", "")}
        if self._text is not None:
            self._codes += tag in CODES
            if tag == "cp" and re.fullmatch(r"[0-9A-Fa-f]{1,6}", given.get("hex", "")):
                self._characters("\ufffd")  # a control character that XML cannot hold
        elif self.kind == "TMX":
            if tag == "tu":
                self._begin()
            elif tag == "tuv":
                self._column = given.get("lang", "").lower()
            elif tag == "seg" and parent == "tuv" and self._column:
                self._text, self._size = [], 0
        elif (parent, tag) in (("file", "unit"), ("group", "unit")) or tag == "trans-unit" or tag == "segment":
            self._begin()
        elif tag in ("source", "target") and parent in ("trans-unit", "segment"):
            self._column, self._text, self._size = tag, [], 0

    def _begin(self) -> None:
        self._unit, self._line = {}, self._parser.CurrentLineNumber

    def _characters(self, text: str) -> None:
        if self._text is None or self._codes:
            return
        self._size += len(text)
        if self._size > MAX_LINE_BYTES:
            most = f"{MAX_LINE_BYTES >> 20} MiB"
            raise RegardError(f"{str(self.path)!r} has a sentence of more than {most}; export it again.")
        self._text.append(text)

    def _end(self, name: str) -> None:
        tag = self._stack.pop()
        if self._text is not None:
            if tag in CODES:
                self._codes -= 1
            elif tag in ("seg", "source", "target"):
                self._unit.setdefault(self._column, " ".join("".join(self._text).split()))
                self._text = None
        elif tag in ("tu", "trans-unit", "segment") and self._unit:
            self._ready.append((self._line, self._unit))
            self._unit = {}
