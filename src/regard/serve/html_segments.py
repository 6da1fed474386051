"""The text in a piece of HTML, and the same HTML with another text in its place.

Everything that is not text stays as it was, byte for byte and in its order: tags, attributes, comments, scripts, and
what is marked as not to be translated. So what was valid stays valid. Each text between two tags is taken by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from html.parser import HTMLParser

TAG = re.compile("<[a-zA-Z/!?]")
AS_THEY_ARE = {"script", "style", "code", "pre", "kbd", "samp", "var", "textarea", "svg", "math"}  # their content, too
EMPTY = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
}  # elements without an end  # fmt: skip


class HtmlSegments(HTMLParser):
    """`texts`: the texts to translate, unescaped; `filled` puts others in their places."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html, self.texts = html, list[str]()
        self.begins: list[tuple[int, int | None]] = []  # where each part begins, and which text it is, if one
        self.open: list[tuple[str, bool]] = []  # elements, and whether their content stays as it is
        self.opened: Counter[str] = Counter()  # how many of each are open
        self.lines = [0]
        for line in html.split("\n")[:-1]:
            self.lines.append(self.lines[-1] + len(line) + 1)
        # A tag that never ends stays as it is. The parser would look for its end again and again, in quadratic time.
        unended = TAG.search(html, html.rfind(">") + 1)
        self.end = unended.start() if unended else len(html)
        self.feed(html[: self.end])
        self.close()

    def filled(self, texts: Sequence[str]) -> str:
        ends = [begin for begin, _ in self.begins[1:]] + [self.end]
        parts = [
            self.html[begin:end] if which is None else escape(texts[which], quote=False)
            for (begin, which), end in zip(self.begins, ends)
        ]
        return "".join([*parts, self.html[self.end :]])

    # -- what the parser finds ---------------------------------------------------------------------------------------

    def _part(self, which: int | None = None) -> None:
        line, column = self.getpos()
        self.begins.append((self.lines[line - 1] + column, which))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._part()
        if tag not in EMPTY:
            said = dict(attrs)
            marked = said.get("translate") == "no" or "notranslate" in (said.get("class") or "").split()
            kept = marked or tag in AS_THEY_ARE or bool(self.open and self.open[-1][1])
            self.open.append((tag, kept))
            self.opened[tag] += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._part()

    def handle_endtag(self, tag: str) -> None:
        self._part()
        while self.opened[tag]:  # what was not closed inside it is closed with it
            name, _ = self.open.pop()
            self.opened[name] -= 1
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        if not data.strip() or (self.open and self.open[-1][1]):
            self._part()
        else:
            self._part(len(self.texts))
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self._part()

    def handle_decl(self, decl: str) -> None:
        self._part()

    def handle_pi(self, data: str) -> None:
        self._part()

    def unknown_decl(self, data: str) -> None:
        self._part()
