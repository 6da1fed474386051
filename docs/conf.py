"""The site of the documentation: `make docs`. Sphinx reads the Markdown pages where they lie, README.md is the first.

Nothing is loaded from elsewhere, and the search works without a server, so the folder build/site can be copied and
opened anywhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from regard import __version__
from regard.learn.lectures import Anchor, with_places

project, author, release = "Regard", "Regard", __version__
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md"]
myst_heading_anchors = 3
highlight_language = "text"
html_theme = "furo"
html_title = "Regard"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses without a server
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}

CONTENTS = {
    "Lectures": [f"docs/lectures/{number}" for number in ("000", "001", "002", "003", "004", "errata")],
    "Learn": ["docs/claims", "docs/exercises", "docs/attention", "docs/after-gpt", "docs/inspect", "docs/lab"],
    "Use": [
        *("docs/data", "docs/translation", "docs/runs", "docs/python", "docs/recipes", "docs/exchange", "docs/serve"),
        *("docs/scaling", "docs/trust"),
    ],
    "Build": ["CONTRIBUTING", "docs/architecture", "docs/performance", "docs/lab-notes", "SECURITY"],
}


def complete(app: Any, name: str, source: list[str]) -> None:
    """The table of contents under the first page; on a lecture's page the code itself, with its line numbers."""
    if name == root_doc:
        source[0] = re.sub(r"\[(\w+)\]\(notebooks\)", r"\1", source[0])  # a folder, which is no page
        for caption, pages in CONTENTS.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
    elif name.startswith("docs/lectures/"):
        source[0] = with_places(source[0], show_code)


def show_code(anchor: Anchor) -> str:
    lines = anchor.around()
    first, emphasised = lines[0][0], anchor.line - lines[0][0] + 1
    options = f":lineno-start: {first}\n  :emphasize-lines: {emphasised}\n  :caption: src/regard/{anchor.place}\n"
    code = indent(dedent("\n".join(line for _, line in lines)), "  ")
    return f"- Code\n\n  ```{{code-block}} python\n  {options}\n{code}\n  ```\n"


def lead_to_the_first_page(app: Any, problem: Exception | None) -> None:
    """index.html, which web servers and browsers open for the folder, goes on to README.html."""
    target = f"{root_doc}.html"
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{project}</title>
<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}"></head>
<body><p><a href="{target}">{project}</a></p></body></html>
"""
    if problem is None:
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("source-read", complete)
    app.connect("build-finished", lead_to_the_first_page)
