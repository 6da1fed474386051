"""The pages of docs/reference made from the code: commands from their help, settings from their declarations."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from inspect import isfunction
from typing import Any

import regard
from regard.base.settings import documentation
from regard.runs.recipe import compose
from regard.systems.catalogue import SYSTEMS

SIZES = ("tiny", "small", "medium", "large")


def command_reference() -> str:
    """One section per verb, with its help as a terminal of 88 columns shows it."""
    groups = re.findall(r"╭─ (\w[\w ]*?) ─+╮\n(.*?)╰", _help(), flags=re.S)
    verbs = [(group, verb) for group, rows in groups for verb in re.findall(r"^│ ([a-z]+) ", rows, flags=re.M)]
    sections = [f"```text\n{_help()}\n```"]
    last = ""
    for group, verb in verbs:
        heading = f"## {group}\n\n" if group != last else ""
        sections.append(f"{heading}### regard {verb}\n\n```text\n{_help(verb)}\n```")
        last = group
    return "\n\n".join(sections)


def _help(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "regard", *words, "--help"],
        env={**os.environ, "COLUMNS": "88", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def settings_reference() -> str:
    """One table per system: each setting with its default at each size, its bounds and its documentation."""
    shared = _rows("lstm", "training")
    pairs = {key: row for key, row in _rows("transformer", "training").items() if key not in shared}
    parts = [
        "## Training\n\nThe defaults are those of `lstm`. Other systems have different learning rates and batch sizes.\n",
        _table({**shared, **pairs}),
        "## Data\n\n### Language models\n",
        _table(_rows("lstm", "data")),
        "### Translators and classifiers\n",
        _table(_rows("transformer", "data")),
        "## Model\n",
    ]
    for system in SYSTEMS:
        parts += [f"### {system.name}\n", _table(_rows(system.name, "model"))]
    return "\n".join(parts)


def _rows(system: str, section: str) -> dict[str, tuple[str, str]]:
    """The value of each setting at each size, and its documentation."""
    recipes = [getattr(compose(system, size), section) for size in SIZES]
    rows = {}
    for one in fields(recipes[0]):
        if "doc" in one.metadata:
            values = [_shown(getattr(recipe, one.name)) for recipe in recipes]
            same = len({*values}) == 1
            rows[one.name] = (values[0] if same else " · ".join(values), documentation(one))
    return rows


def _shown(value: Any) -> str:
    if value == "":
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9999 else str(value)


def _table(rows: dict[str, tuple[str, str]]) -> str:
    lines = [f"| `{name}` | {value} | {doc.replace('|', chr(92) + '|')} |" for name, (value, doc) in rows.items()]
    return "\n".join(
        ["| setting | default (tiny · small · medium · large) | meaning and bounds |", "|---|---|---|", *lines, ""]
    )


def api_reference() -> str:
    """The public names of `regard`: functions, then classes."""
    functions = [name for name in regard.__all__ if isfunction(getattr(regard, name))]
    classes = [name for name in regard.__all__ if name not in functions]
    parts = [
        "## Functions",
        *(f"```{{eval-rst}}\n.. autofunction:: regard.{name}\n```" for name in functions),
        "## Classes",
    ]
    for name in classes:
        members = "" if name in ("Model", "Cell", "Layer", "Comparison") else "   :members:\n"
        members += "   :inherited-members: Run\n" if name.endswith("Run") and name != "Run" else ""
        parts.append(f"```{{eval-rst}}\n.. autoclass:: regard.{name}\n{members}```")
    return "\n\n".join(parts)


PAGES = {
    "docs/reference/commands": command_reference,
    "docs/reference/settings": settings_reference,
}
