"""`lecture`: the course."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.options import Json

if TYPE_CHECKING:
    from regard.learn.lectures import Found, LectureEntry, Page


def lecture(place: Annotated[str | None, Parameter(name="CHAPTER|LINE")] = None, /, *, json: Json = False) -> None:
    """Read the course: each idea with its equation, its code, a command, and the verdict of its test.

    Without an argument, list the chapters.

        regard lecture
        regard lecture 3
        regard lecture attention
        regard lecture 003:49

    Parameters
    ----------
    place
        a chapter by number or name; `mistakes` (common mistakes and a glossary); `about`; or a line of the notes that
        the course is based on (003:49)
    """
    from regard.learn.lectures import find, get_lecture, lectures
    from regard.report.table import print_json, print_table

    if place is None:
        pages = [*lectures(), get_lecture("mistakes"), get_lecture("about")]
        rows: list[dict[str, Any]] = [
            {"name": page.name, "title": page.title, "sections": len(page.entries), "summary": page.summary}
            for page in pages
        ]
        headings = {"name": "chapter", "title": "title", "sections": "sections", "summary": "summary"}
        print_json(rows) if json else print_table(rows, headings)
    elif ":" in place:
        found = find(place)
        print_json(_found(found)) if json else _print(_words(found))
    else:
        page = get_lecture(place)
        print_json(_page(page)) if json else _print(page.words)


def _words(found: Found) -> str:
    """The section, and the code around each of its lines, as markdown."""
    from regard.learn.lectures.code_anchor import SOURCE
    from regard.learn.lectures.lecture_pages import terminal_words

    here = Path.cwd()
    source = SOURCE.relative_to(here) if SOURCE.is_relative_to(here) else SOURCE  # so that an editor opens it
    parts = [terminal_words(found.entry.markdown)]
    for anchor in found.entry.code:
        lines = anchor.around()
        width = len(str(lines[-1][0]))
        code = "\n".join(f"{'>' if number == anchor.line else ' '} {number:>{width}}  {line}" for number, line in lines)
        parts.append(f"{source / anchor.place}\n\n```text\n{code}\n```")
    if found.entry.claims:
        parts.append(f"`regard claims {' '.join(found.entry.claims)}` tests it.")
    parts += [f"`regard exercise {name}` lets you write it." for name in found.entry.exercises]
    parts += [f"Common mistake. {terminal_words(entry.markdown).removeprefix('## ')}" for entry in found.errata]
    return "\n\n".join(parts)


def _print(markdown: str) -> None:
    """On a terminal laid out, in a pipe as it is."""
    if not sys.stdout.isatty():
        print(markdown)
        return
    import shutil

    from rich.console import Console
    from rich.markdown import Markdown

    Console(width=min(100, shutil.get_terminal_size().columns)).print(Markdown(markdown, hyperlinks=False))


def _page(page: Page) -> dict[str, Any]:
    return {
        "name": page.name,
        "title": page.title,
        "summary": page.summary,
        "sections": [_entry(entry) for entry in page.entries],
    }


def _entry(entry: LectureEntry) -> dict[str, Any]:
    return {
        "title": entry.title,
        "lines": [str(lines) for lines in entry.lines],
        "equations": entry.equations,
        "code": [{"file": anchor.file, "line": anchor.line, "text": anchor.text} for anchor in entry.code],
        "commands": list(entry.commands),
        "claims": list(entry.claims),
        "exercises": list(entry.exercises),
        "figures": list(entry.figures),
        "markdown": entry.markdown,
    }


def _found(found: Found) -> dict[str, Any]:
    entry = _entry(found.entry)
    for anchor, code in zip(found.entry.code, entry["code"], strict=True):
        code["around"] = [{"line": number, "text": text} for number, text in anchor.around()]
    return {
        "place": found.place,
        "chapter": found.page.name,
        **entry,
        "mistakes": [_entry(one) for one in found.errata],
    }
