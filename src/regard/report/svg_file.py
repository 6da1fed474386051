"""A figure of a page as a standalone SVG file, with the page's colors, dark and light."""

from __future__ import annotations

import re

from regard.report.colours import DARK, LIGHT

STYLE = f"""<style>
svg {{ font: 15px system-ui, sans-serif; color: {LIGHT["ink"]}; background: {LIGHT["paper"]} }}
.dark {{ display: none }} .value {{ fill: var(--light); font-size: 12px }}
@media (prefers-color-scheme: dark) {{
svg {{ color: {DARK["ink"]}; background: {DARK["paper"]} }}
.dark {{ display: inline }} .light {{ display: none }}
.value {{ fill: var(--dark) }} [style^="--dark"] {{ fill: var(--dark) }}
}}
</style>"""


def as_file(figure: str) -> str:
    """A standalone drawing with its own style, since a file has no page around it."""
    drawn = re.search(r"<svg(.*?)>(.*?)</svg>", figure, flags=re.S)
    assert drawn
    return f'<svg xmlns="http://www.w3.org/2000/svg"{drawn[1]}>{STYLE}{drawn[2]}</svg>\n'
