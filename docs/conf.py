"""The site of the documentation: `make docs`. Sphinx reads the Markdown pages in place; docs/index.md is the first.

The site loads nothing from other servers, and its search works without a server, so the folder build/site can be copied
and opened anywhere. Mathematics becomes MathML, which browsers typeset themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from live_pages import with_live_figures, write_live_figures
from reference_pages import PAGES, api_reference

from regard import __version__
from regard.learn.lectures import Anchor, with_places, with_verdicts
from regard.learn.lectures.mathematics import as_mathml
from regard.runs.store.gallery import gallery_names

project, author, release = "Regard", "Regard", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs/**.md", "notes/**.md"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
default_role = "literal"
smartquotes = False  # --option has two hyphens
suppress_warnings = ["docutils"]  # of docstrings, which are plain text
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
highlight_language = "text"
html_theme = "furo"
html_title = "Regard"
html_static_path = html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses without a server
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}


def complete(app: Any, name: str, source: list[str]) -> None:
    """Generated pages get their content, chapters the code itself and the verdicts; notes are in no sidebar."""
    if name in PAGES:
        source[0] += "\n" + PAGES[name]()
    elif name == "docs/reference/python":
        source[0] += "\n" + api_reference()
    elif name.startswith("docs/learn/"):
        source[0] = with_verdicts(with_places(source[0], show_code), lambda claim: f"[`{claim}`](../claims.md)")
    elif name == "docs/guides/gallery":
        source[0] = source[0].replace("\n## Rules\n", f"\n{live_models(app.config.gallery_pages)}\n## Rules\n")
    elif name.startswith("notes/"):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"
    source[0] = re.sub(r"\]\(((?:\.\./)*)(?:README\.md)(#[\w-]*)?\)", r"](\1docs/index.md)", source[0])


def write_math(self: Any, node: Any) -> None:
    """A formula as MathML."""
    from docutils.nodes import SkipNode

    block = node.tagname == "math_block"
    formula = as_mathml(node.astext(), block=block)
    self.body.append(
        f"<div class='math' style='margin: 0.6em 0; overflow-x: auto'>{formula}</div>" if block else formula
    )
    raise SkipNode


def show_code(anchor: Anchor) -> str:
    lines = anchor.around()
    first, emphasised = lines[0][0], anchor.line - lines[0][0] + 1
    options = f":lineno-start: {first}\n  :emphasize-lines: {emphasised}\n  :caption: src/regard/{anchor.place}\n"
    code = indent(dedent("\n".join(line for _, line in lines)), "  ")
    return f"- Code\n\n  ```{{code-block}} python\n  {options}\n{code}\n  ```\n"


def live_models(names: list[str]) -> str:
    """Links to the models of the gallery as pages, and the first of them in place."""
    links = " ".join(f'<a href="../../{name}.html">{name}</a>' for name in names)
    return f"""## Try them here

Each model also has a page on this site. The page runs the model in your browser and sends no data.

<p>{links}</p>
<iframe src="../../{names[0]}.html" title="{names[0]}" loading="lazy" style="width:100%;height:44rem;border:0"></iframe>
"""


def write_live_models(app: Any, problem: Exception | None) -> None:
    """The models of the gallery as pages: gallery/gpt.html …"""
    for name in app.config.gallery_pages if problem is None else ():
        out = Path(app.outdir) / f"{name}.html"
        out.parent.mkdir(exist_ok=True)
        out.unlink(missing_ok=True)
        words = ["export", name, str(out), "--to", "page", "--weights", "fp16", "--license", "Apache-2.0"]
        subprocess.run([sys.executable, "-m", "regard", *words], check=True, stdout=subprocess.DEVNULL)


def lead_to_the_first_page(app: Any, problem: Exception | None) -> None:
    """index.html, which web servers and browsers open for the folder, leads to the first page."""
    target = f"{root_doc}.html"
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{project}</title>
<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}"></head>
<body><p><a href="{target}">{project}</a></p></body></html>
"""
    if problem is None:
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def finish(app: Any, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Live figures in chapters, and options such as --seed that do not break at the end of a line."""
    if "body" in context:
        context["body"] = re.sub(r'<span class="pre">(?=--)', '<span class="pre option">', context["body"])
    if name.startswith("docs/learn/"):
        context["body"] = with_live_figures(context["body"])


def write_scripts(app: Any, problem: Exception | None) -> None:
    """The program and the data of the live figures: _static/live/."""
    if problem is None:
        write_live_figures(Path(app.outdir) / "_static" / "live")


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.add_config_value("gallery_pages", gallery_names(), "html")
    app.connect("source-read", complete)
    app.connect("html-page-context", finish)
    app.connect("build-finished", write_scripts)
    app.connect("build-finished", write_live_models)
    app.connect("build-finished", lead_to_the_first_page)
