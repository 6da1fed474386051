"""How a help page looks: filled prose, examples as written, arguments by their name alone.

In the docstring of a verb, a paragraph of commands holds its examples. In the help of an option, an empty line begins a
new line.
"""

from __future__ import annotations

import re
from textwrap import fill
from typing import Any

from cyclopts import App, Group
from cyclopts.help import HelpPanel, InlineText
from cyclopts.help.formatters import DefaultFormatter

from regard.cli.options import ARGUMENTS, OPTIONS

HOME = "https://github.com/regard-toolkit/regard"
DOCUMENTATION = f"Report problems: {HOME}/issues\nDocumentation: {HOME}/tree/main/docs"
COMMAND = re.compile(r"(echo .*\| |\w+=\S+ )?regard ")
ENVIRONMENT = """Environment:
  REGARD_CACHE     cache folder [default: ~/.cache/regard]
  REGARD_DATA      folder searched for corpora before the cache
  REGARD_MIRROR    base URL from which `regard data fetch` downloads
  REGARD_RESIDENT  idle minutes to keep a background process with PyTorch loaded, so that
                   translate, generate, classify and score start at once (Linux only)
  REGARD_TOKEN     token that clients of `regard serve` must send

"""


def app_of_commands(name: str, usage: str) -> App:
    """A verb with commands of its own, such as `data check`."""
    return App(
        name=name,
        usage=usage,
        group_arguments=ARGUMENTS,
        group_parameters=OPTIONS,
        group_commands=Group("Commands"),
        help_epilogue=DOCUMENTATION,
    )


class HelpFormatter(DefaultFormatter):
    def render_description(self, console: Any, options: Any, description: Any) -> None:
        for paragraph in str(getattr(description, "primary_renderable", "")).strip().split("\n\n"):
            lines = [line.strip() for line in paragraph.splitlines()]
            if all(map(COMMAND.match, lines)):
                words = "\n  ".join(["Examples:", *lines])
            else:
                words = fill(paragraph, console.width, break_on_hyphens=False)
            console.print(words + "\n", markup=False, highlight=False, soft_wrap=True)

    def __call__(self, console: Any, options: Any, panel: HelpPanel) -> None:
        from rich.text import Text

        def shown(entry: Any) -> Any:
            words = str(getattr(entry.description, "primary_renderable", "") or "")
            names = () if entry.positional_label else entry.positive_names  # an argument is not also an option
            names = tuple(name.replace("[KEYWORD]", "OPTION") for name in names)
            metavar = f"{{{','.join(entry.choices)}}}" if entry.choices else entry.metavar
            text = InlineText(Text("\n".join(" ".join(part.split()) for part in words.split("\n\n"))))
            return entry.copy(positive_names=names, metavar=metavar, choices=None, description=text)

        super().__call__(console, options, panel.copy(entries=[*map(shown, panel.entries)]))
