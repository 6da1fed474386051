"""Slides of each chapter's figures and formulas, for a teacher: one PDF per chapter, and its figures as SVG files.

    python tools/slides.py FOLDER [CHAPTER …]       default: all eight chapters

Each section with a figure or a displayed formula is a slide or several: title, formulas, figure, and what to see in it.
The PDF is printed by Chromium or Chrome; formulas are MathML, figures stay vectors.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

from regard.exchange.chromium import find_chromium
from regard.learn.lectures import Page, lectures
from regard.learn.lectures.lecture_pages import CHAPTERS, FIGURE, folder
from regard.learn.lectures.mathematics import FORMULA, as_mathml

STYLE = """
@page { size: 1280px 720px; margin: 0 }
body { margin: 0; font: 26px system-ui, sans-serif; color: #1b1b1f }
section { width: 1280px; height: 720px; padding: 48px 72px; box-sizing: border-box; break-after: page;
  position: relative; display: flex; flex-direction: column; gap: 20px }
h1 { font-size: 52px; margin: auto 0 0 } h2 { font-size: 38px; margin: 0; color: #0072B2 }
.formulas { font-size: 40px; text-align: center; margin: auto 0; display: grid; gap: 48px }
 .first p { font-size: 30px; margin: 0 0 auto }
img { flex: 1; min-height: 0; object-fit: contain; max-width: 100% }
.see { font-size: 22px; margin: 0 }
footer { position: absolute; bottom: 16px; right: 32px; font-size: 15px; color: #5b5b66 }
"""
SEE = r"\n\n\*(?:On the site, this figure is live\. )?(.*?)(?:Drawn|Made) by.*?\*\n"
FORMULAS = 3  # on one slide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("chapters", nargs="*", choices=[*CHAPTERS, []], help="default: all")
    options = parser.parse_args()
    for number, page in enumerate(lectures(), start=1):
        if options.chapters and page.name not in options.chapters:
            continue
        out = options.folder / f"{number}-{page.name}"
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for _, figure in FIGURE.findall(page.markdown):
            shutil.copy(folder() / figure, out / "figures")
        slides = list(slides_of(page))
        (out / "slides.html").write_text(deck(page, slides), encoding="utf-8")
        print_pdf(out / "slides.html", out / "slides.pdf")
        size = (out / "slides.pdf").stat().st_size
        print(f"{out / 'slides.pdf'}: {len(slides)} slides, {size:,} bytes", flush=True)


def slides_of(page: Page) -> Iterator[str]:
    title, summary = escape(page.title), escape(page.summary)
    yield f'<div class="first"></div><h1>{title}</h1><div class="first"><p>{summary}</p></div>'
    for section in re.split(r"^## ", page.markdown, flags=re.M)[1:]:
        yield from section_slides(section)


def section_slides(section: str) -> Iterator[str]:
    """Formulas first, at most three on a slide, then each figure on a slide of its own."""
    heading = f"<h2>{escape(section.partition(chr(10))[0])}</h2>"
    formulas = [found[1].strip() for found in FORMULA.finditer(section) if found[1]]
    for start in range(0, len(formulas), FORMULAS):
        shown = (as_mathml(formula, block=True) for formula in formulas[start : start + FORMULAS])
        yield heading + '<div class="formulas">' + "".join(f"<div>{one}</div>" for one in shown) + "</div>"
    for match in FIGURE.finditer(section):
        see = re.match(SEE, section[match.end() :], flags=re.S)
        words = f'<p class="see">{escape(re.sub(r"[*$`]", "", see[1]).strip())}</p>' if see else ""
        yield f'{heading}<img src="{match[2]}" alt="{escape(match[1])}">{words}'


def deck(page: Page, slides: list[str]) -> str:
    name = escape(page.title.partition(":")[0])
    parts = (
        f"<section>{slide}<footer>{name} · {number} · Regard, CC BY 4.0</footer></section>"
        for number, slide in enumerate(slides, start=1)
    )
    head = f'<meta charset="utf-8"><title>{escape(page.title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def print_pdf(page: Path, out: Path) -> None:
    program = find_chromium()
    if program is None:
        raise SystemExit("slides.py needs Chromium or Chrome, but this machine has neither.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless=new", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={profile}"]
        flags += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [program, *flags, f"--print-to-pdf={out.resolve()}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
