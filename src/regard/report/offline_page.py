"""A page that is one file, made of the lab's own styles and modules (`lab/static`): a report, a trace, an answer in a
notebook. It loads nothing, and its content security policy forbids loading and any other script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from regard.report.bundle_modules import bundle_modules
from regard.report.colours import lab_module, lab_variables
from regard.report.tight import tight_script

STATIC = Path(__file__).parent.parent / "web" / "lab" / "static"
SPOKEN = '<div id="spoken" class="spoken" aria-live="polite"></div>'  # for screen readers


def offline_page(
    title: str, body: str, *, styles: Sequence[str], entry: str = "", style: str = "", sources: str = ""
) -> str:
    """`body` is HTML. `styles` are files of the lab, `style` is more CSS; `entry`: the module that runs, if any.
    `sources` are additional directives of the content security policy."""
    whole, program = style_of(*styles) + style, script_of(entry) if entry else ""
    runs = f"; script-src '{_hash(program)}'" if program else ""
    policy = f"default-src 'none'; img-src data:; style-src '{_hash(whole)}'{runs}{sources}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{whole}</style>\n</head>\n"
        f"<body>\n{body}\n" + (f"{SPOKEN}\n<script>{program}</script>\n" if program else "") + "</body>\n</html>\n"
    )


@cache
def style_of(*names: str) -> str:
    return lab_variables() + "".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in names)


@cache
def script_of(entry: str) -> str:
    def read(name: str) -> str:
        return lab_module() if name == "colours" else (STATIC / f"{name}.js").read_text(encoding="utf-8")

    return tight_script(bundle_modules(entry, read))


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
