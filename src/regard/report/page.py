"""One self-contained HTML page, for wide screens and phones, light and dark, and print."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from regard.report.colours import variables
from regard.report.table import is_numeric, text

STYLE = """
:root { color-scheme: light dark }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
p { max-width: 46rem }
p, li { overflow-wrap: anywhere }
.lead, figcaption, .note { color: var(--quiet) }
.scroll { overflow-x: auto; background: /* a shadow at the side where the table goes on */
  linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / 1.2rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / 1.2rem 100% no-repeat scroll }
.more { display: none; margin: 0 0 .2rem; font-size: .85rem; text-align: right }
table { border-collapse: separate; border-spacing: 0; font-size: .88rem; font-variant-numeric: tabular-nums }
th, td { padding: 6px 10px; line-height: 21px; text-align: left; white-space: nowrap;
  border-bottom: 1px solid var(--line) }
th { font-weight: 600; vertical-align: bottom }
thead th { border-bottom: 2px solid var(--ink); white-space: normal }
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--paper) }
.right { text-align: right }
.badge { font-size: .75rem; font-weight: 600; color: var(--paper); background: var(--accent); border-radius: .25rem;
  padding: .05rem .4rem; margin-left: .3rem; white-space: nowrap }
.finding { font-size: 1.15rem; line-height: 1.5; max-width: 52rem; margin: .6rem 0 }
tr.best td { background: color-mix(in srgb, var(--ink) 6%, transparent) }
tr.best th { background: color-mix(in srgb, var(--ink) 6%, var(--paper)) }
figure { margin: 1rem 0 0; max-width: 46rem }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr)); gap: 0 2rem;
  align-items: start }
.beside > * { min-width: 0 }
.beside th, .beside td { padding: 6px 7px }
figure > svg { width: 100%; height: auto; display: block }
svg text { fill: var(--ink); font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 16px }
svg text.quiet { fill: var(--quiet) }
svg .grid { stroke: var(--line); stroke-width: 1 }
figcaption { font-size: .9rem; margin-top: .3rem }
figure + .scroll, .beside > .scroll { margin-top: 1rem }
details { margin: 1rem 0; border-top: 1px solid var(--line); padding-top: .6rem }
summary { cursor: pointer; font-weight: 600; width: max-content; max-width: 100% }
summary:focus-visible, .scroll:focus-visible, a:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px }
details details { border: 0; margin: .6rem 0; padding: 0 }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth } }
ul.notes { padding-left: 1.1rem; max-width: 52rem; font-size: .93rem }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: .3rem 0;
  font-size: .9rem }
pre, code { font: .86rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace }
pre { background: var(--tint); padding: .7rem .9rem; margin: .4rem 0 1rem; white-space: pre-wrap;
  overflow-wrap: anywhere; border-radius: .3rem }
code { overflow-wrap: anywhere }
pre span { white-space: nowrap }
pre b { color: var(--quiet); font-weight: 400 }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem }
dl.texts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; max-width: 60rem;
  margin: .4rem 0 1rem; background: var(--tint); padding: .7rem .9rem; border-radius: .3rem }
dl.texts dt { color: var(--quiet); font-size: .88rem; padding-top: .1rem }
dl.texts dd { margin: 0; overflow-wrap: anywhere }
dl.texts .quiet { color: var(--quiet) }
@media (max-width: 40rem) { dl.texts { grid-template-columns: 1fr } dl.texts dd { margin-bottom: .4rem } }
@media (max-width: 40rem) {
  body { padding: 1rem .8rem 3rem } h1 { font-size: 1.35rem } svg text { font-size: 24px } .more { display: block }
  tbody th { white-space: normal; min-width: 6rem; max-width: 42vw } /* it stays while the rest scrolls */
}
.heat { display: block } svg.heat text { font-size: 13px }
svg.heat text.value { fill: var(--light); font-size: 12px } svg .dark { display: none }
@media screen and (prefers-color-scheme: dark) {
  svg.heat rect[style] { fill: var(--dark) } svg.heat text.value { fill: var(--dark) }
  svg .light { display: none } svg .dark { display: inline }
}
"""

WIDE = 5  # columns that a phone shows at once


def page(title: str, *parts: str, style: str = "") -> str:
    """A whole HTML file from its parts (each already HTML); `style` is further CSS."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{variables()}{STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
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
            cells = cells.removesuffix("</th>") + f' <b class="badge">{prose(badge)}</b></th>'
        cells += "".join(cell("td", key, text(row.get(key))) for key in rest)
        body.append(f"<tr{' class=best' * (number in best)}>{cells}</tr>")
    inner = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    hint = '<p class="more note" aria-hidden="true">the table goes on to the right →</p>' * (len(columns) > WIDE)
    return f'{hint}<div class="scroll" tabindex="0" role="region" aria-label="table"><table>{inner}</table></div>'


def prose(words: str) -> str:
    """Our own words as HTML; no line breaks within a number, 12 400, or between one and its per cent."""
    return escape(re.sub(r"(?<=\d) (?=\d{3}(?!\d)|%)", "\N{NO-BREAK SPACE}", words))


def paragraph(words: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' * bool(kind)}>{prose(words)}</p>"


def listing(sentences: Sequence[str]) -> str:
    return f'<ul class="notes note">{"".join(f"<li>{prose(words)}</li>" for words in sentences)}</ul>'


def heading(words: str, level: int = 2) -> str:
    return f"<h{level}>{prose(words)}</h{level}>"


def folded(summary: str, *parts: str) -> str:
    """A collapsed section behind its summary."""
    return f"<details><summary>{prose(summary)}</summary>{''.join(parts)}</details>"


def beside(*parts: str) -> str:
    """Parts next to each other where there is room, else under each other."""
    return f'<div class="beside">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def sample(prompt: str, written: str) -> str:
    """Text as a model wrote it, its prompt in a quieter colour; a space that ends the prompt may have become a line."""
    begin = next((words for words in (prompt, prompt.rstrip()) if written.startswith(words)), "")
    quiet = f"<b>{escape(begin)}</b>" if begin else ""
    return f'<pre dir="auto">{quiet}{escape(written.removeprefix(begin))}</pre>'


def command(line: str) -> str:
    """A command line; no line breaks within the name of an option."""
    whole = re.sub(r"(?<!\S)--[\w.-]+", r"<span>\g<0></span>", escape(line))
    return f"<pre>{whole}</pre>"


def side_by_side_texts(texts: Mapping[str, str], quiet: Sequence[str] = ()) -> str:
    """Texts under each other, each beside its name; those of the names in `quiet` in a quieter colour."""
    items = "".join(
        f'<dt>{escape(name)}</dt><dd dir="auto"{" class=quiet" * (name in quiet)}>{escape(words) or "–"}</dd>'
        for name, words in texts.items()
    )
    return f'<dl class="texts">{items}</dl>'
