"""`demo`: every system on built-in data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import Flag


def demo(
    *,
    budget: str | None = None,
    minute: Annotated[bool, Flag] = False,
    everything: Annotated[bool, Parameter(name="--all", negative=())] = False,
    run: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Train every language model up to GPT and every translator on built-in data, in five minutes.

    Prints a table for each task and a sample from each system, and writes two reports.

    Parameters
    ----------
    budget
        training time of each neural system, such as 30s; default: what fits into five minutes in all
    minute
        train four systems in one minute instead
    everything
        also the language models that came after GPT, which takes longer
    run
        folder for both comparisons; default: runs/demo, with a number if that exists
    json
        print a list of objects
    """
    from regard.demo import run_demo

    run_demo(budget=budget, minute=minute, everything=everything, folder=run, as_json=json)
