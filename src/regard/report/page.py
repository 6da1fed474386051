"""A report as one self-contained HTML page, for wide screens and phones, light and dark, and print."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from regard.report.offline_page import offline_page
from regard.report.table import is_numeric, text

WIDE = 5  # columns that a phone shows at once


def page(title: str, *parts: str, style: str = "") -> str:
    """A whole HTML file from its parts (each already HTML), in the lab's design; `style` is more CSS. Figures of
    `svg.py` are drawn by the lab's charts where scripts may run."""
    body = "\n".join(part for part in parts if part)
    entry = "report" if "<figure data-figure=" in body else ""
    return offline_page(
        title, f'<main class="report">\n{body}\n</main>', styles=("style", "report"), entry=entry, style=style
    )


def table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], best: Collection[int] = (), badge: str = ""
) -> str:
    """`columns`: key of a row → heading; the first names the row. `best`: rows to tint, with a badge at their name."""
    right = {key: is_numeric(rows, key) for key in columns}

    def cell(tag: str, key: str, words: str, scope: str = "") -> str:
        return f"<{tag}{' class=right' * right[key]}{scope}>{prose(words)}</{tag}>"

    head = "".join(cell("th", key, heading, " scope=col") for key, heading in columns.items())
    body = []
    for number, row in enumerate(rows):
        first, *rest = columns
        cells = cell("th", first, text(row.get(first)), " scope=row")
        if badge and number in best:
            cells = cells.removesuffix("</th>") + f' <span class="tag">{prose(badge)}</span></th>'
        cells += "".join(cell("td", key, text(row.get(key))) for key in rest)
        body.append(f"<tr{' class=best' * (number in best)}>{cells}</tr>")
    inner = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    hint = '<p class="more quiet-text" aria-hidden="true">scroll right to see the whole table →</p>' * (
        len(columns) > WIDE
    )
    return f'{hint}<div class="scroll" tabindex="0" role="region" aria-label="table"><table>{inner}</table></div>'


def prose(words: str) -> str:
    """Regard's own sentences as HTML, without line breaks between a number and its percent sign."""
    return escape(re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", words))


def paragraph(words: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' * bool(kind)}>{prose(words)}</p>"


def listing(sentences: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{prose(words)}</li>" for words in sentences)}</ul>'


def heading(words: str, level: int = 2) -> str:
    return f"<h{level}>{prose(words)}</h{level}>"


def folded(summary: str, *parts: str) -> str:
    """A collapsed section behind its summary."""
    return f"<details><summary>{prose(summary)}</summary>{''.join(parts)}</details>"


def beside(*parts: str) -> str:
    """Parts next to each other if there is room, otherwise stacked."""
    return f'<div class="beside">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def sample(prompt: str, written: str) -> str:
    """Generated text with its prompt in a muted color; a space that ends the prompt may have become a line break."""
    begin = next((words for words in (prompt, prompt.rstrip()) if written.startswith(words)), "")
    quiet = f"<b>{escape(begin)}</b>" if begin else ""
    return f'<pre dir="auto">{quiet}{escape(written.removeprefix(begin))}</pre>'


def command(line: str) -> str:
    """A command line; no line breaks within the name of an option."""
    whole = re.sub(r"(?<!\S)--[\w.-]+", r"<span>\g<0></span>", escape(line))
    return f"<pre>{whole}</pre>"


def side_by_side_texts(texts: Mapping[str, str], quiet: Sequence[str] = ()) -> str:
    """Texts one per line with their names; those named in `quiet` in a muted color."""
    items = "".join(
        f'<dt>{escape(name)}</dt><dd dir="auto"{" class=quiet" * (name in quiet)}>{escape(words) or "–"}</dd>'
        for name, words in texts.items()
    )
    return f'<dl class="facts texts">{items}</dl>'
