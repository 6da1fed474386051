"""The text in a piece of HTML, and the same HTML with another text in its place.

Everything that is not text stays as it was, byte for byte and in its order: tags, attributes, comments, scripts, and
what is marked as not to be translated. So what was valid stays valid, and what no browser runs stays so. Each text
between two tags is taken by itself.

`markup` follows the tokenizer of the HTML standard, as browsers do. Where its state depends on more than the tokenizer
(foreign elements, `noscript`), and the ways to read it differ, all that follows is taken for markup; so is all from
what is left open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape, unescape

FOREIGN = {"svg", "math"}
AS_THEY_ARE = {
    "script", "style", "code", "pre", "kbd", "samp", "var", "textarea", "xmp", "iframe", "noembed", "noframes", *FOREIGN
}  # their content, too  # fmt: skip
EMPTY = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
}  # elements without an end  # fmt: skip
RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript", "plaintext"}

MARKUP = re.compile(r"<(?=[a-zA-Z/!?]|\Z)")
COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>)", re.DOTALL)
INSTRUCTION = re.compile(r"[^<]*?\?>")  # the end of one
ATTRIBUTE = re.compile(
    r"""[ \t\n\f\r/]*+ ([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)
        (?: [ \t\n\f\r]*+ = [ \t\n\f\r]*+ (?: "([^"]*+)(?:"|\Z) | '([^']*+)(?:'|\Z) | ([^ \t\n\f\r>]*+) ) )?+""",
    re.VERBOSE,
)
TAG = re.compile(
    rf"< (?P<close>/?+) (?P<name>[a-zA-Z][^ \t\n\f\r/>]*+) (?P<attributes>(?:{ATTRIBUTE.pattern})*+) "
    r"[ \t\n\f\r/]*+ (?P<end>>?+)",
    re.VERBOSE,
)


def markup(html: str, inside: bool = False) -> Iterator[tuple[int, int, re.Match[str] | None]]:
    """Where each piece that is not text begins and ends, and which tag it is, if one. What is left open ends with the
    HTML. `inside`: of an element that a browser may read as raw text."""
    at, size, doubtful = 0, len(html), inside
    while found := MARKUP.search(html, at):
        begin = found.start()
        tag = TAG.match(html, begin)
        at = _end(html, begin, tag, doubtful) or size
        yield begin, at, tag if tag and at < size else None
        name = tag["name"].lower() if tag and not tag["close"] else ""
        doubtful |= name in FOREIGN or name == "select"
        if name not in RAW:
            continue
        close = re.compile(rf"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE | re.ASCII).search(html, at)
        until = close.start() if close and name != "plaintext" else size
        content = html[at:until]
        if "<" in content or until == size:
            if name == "script" and "<!--" in content and "<script" in content.lower():
                certain = False  # its end tag may be none
            elif inside or doubtful or name not in ("script", "style"):
                certain = not inside and not _left_open(content)
            else:
                certain = True
            until = until if certain else size
            yield at, until, None
            at = until


def _end(html: str, begin: int, tag: re.Match[str] | None, doubtful: bool) -> int:
    """Where the markup that begins here ends; 0 if it is left open."""
    if tag:
        return tag.end() if tag["end"] else 0
    if html.startswith("<!--", begin):
        comment = COMMENT.match(html, begin)
        return comment.end() if comment else 0
    end = html.find(">", begin + 2) + 1
    if doubtful and html.startswith("<![CDATA[", begin) and html[end - 3 : end] != "]]>":
        return 0
    if end and html.startswith("<?", begin):  # a > inside it ends it for a browser, and what follows is text
        instruction = INSTRUCTION.match(html, end - 2)
        end = instruction.end() if instruction else end
    return end


def _left_open(content: str) -> bool:
    """True if it ends in the middle of an HTML construct."""
    return any(end > len(content) for _, end, _ in markup(f"{content} ", inside=True))


class HtmlSegments:
    """`texts`: the texts to translate, unescaped; `filled` puts others in their places."""

    def __init__(self, html: str) -> None:
        self.texts: list[str] = []
        self.parts: list[tuple[str, int | None]] = []  # together the HTML; and which text each is, if one
        self.open: list[tuple[str, bool]] = []  # elements, and whether their content stays as it is
        self.opened: Counter[str] = Counter()  # how many of each are open
        at = 0
        for begin, end, tag in markup(html):
            self._text(html[at:begin])
            self.parts.append((html[begin:end], None))
            if tag:
                self._tag(tag)
            at = end
        self._text(html[at:])

    def filled(self, texts: Sequence[str]) -> str:
        """A text that is as it was stays as it was written."""
        return "".join(
            part if which is None or texts[which] == self.texts[which] else escape(texts[which], quote=False)
            for part, which in self.parts
        )

    def _text(self, part: str) -> None:
        text = unescape(part)
        if not text.strip() or (self.open and self.open[-1][1]):
            self.parts.append((part, None))
        else:
            self.parts.append((part, len(self.texts)))
            self.texts.append(text)

    def _tag(self, tag: re.Match[str]) -> None:
        name = tag["name"].lower()
        if tag["close"]:
            while self.opened[name]:  # what was not closed inside it is closed with it
                closed, _ = self.open.pop()
                self.opened[closed] -= 1
                if closed == name:
                    break
            return
        foreign = name in FOREIGN or any(self.opened[one] for one in FOREIGN)
        if name not in EMPTY and not (foreign and tag[0].endswith("/>")):
            said: dict[str, str] = {}
            for attribute, *values in ATTRIBUTE.findall(tag["attributes"]):
                said.setdefault(attribute.lower(), unescape("".join(values)))  # the first one counts
            marked = said.get("translate", "").lower() == "no" or "notranslate" in said.get("class", "").split()
            kept = marked or name in AS_THEY_ARE or bool(self.open and self.open[-1][1])
            self.open.append((name, kept))
            self.opened[name] += 1
