"""A text as sentences and what stands between them: translators read one sentence at a time.

A line end ends a sentence; so does . ! ? … before white space and a capital letter, a digit or an opening mark, unless
a short capitalised word comes before the full stop (Dr. Who, J. Smith). Text without letters or digits is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import regex

END = regex.compile(
    r"""(?: (?<=[!?…][\p{Pe}\p{Pf}"']{0,3}) | (?<!\b\p{Lu}\p{L}{0,2}\.) (?<=\.[\p{Pe}\p{Pf}"']{0,3}) )
        [\p{Zs}\t]++ (?=[\p{Pi}\p{Ps}"'¿¡]{0,3}[\p{Lu}\p{Lo}\p{N}])
      | (?<=[。！？])(?=\S)""",
    regex.VERBOSE,
)
LINE_END = regex.compile(r"([\n\r\v\f\x85\u2028\u2029])")


class Sentences:
    """`found`: the sentences; `joined` puts others in their places, with the same white space between them."""

    def __init__(self, text: str) -> None:
        self.parts = list(_parts(text))
        self.found = [part for part, is_sentence in self.parts if is_sentence]

    def joined(self, sentences: Sequence[str]) -> str:
        remaining = iter(sentences)
        return "".join(next(remaining) if is_sentence else part for part, is_sentence in self.parts)


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Pieces that are the text together, and whether each is a sentence."""
    for place, line in enumerate(LINE_END.split(text)):
        if place % 2:
            yield line, False
            continue
        start = 0
        for gap in END.finditer(line):
            yield from _trimmed(line[start : gap.start()])
            yield gap.group(), False
            start = gap.end()
        yield from _trimmed(line[start:])


def _trimmed(piece: str) -> Iterator[tuple[str, bool]]:
    inside = piece.strip()
    if not any(map(str.isalnum, inside)):  # nothing that could be said in another language
        yield piece, False
        return
    begin = piece.index(inside)
    yield piece[:begin], False
    yield inside, True
    yield piece[begin + len(inside) :], False
