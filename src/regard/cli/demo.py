"""`demo`: every system on built-in data."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from regard.cli.options import Json, OutputFolder


def demo(
    *,
    budget: Annotated[str | None, Parameter(metavar="TIME")] = None,
    minute: bool = False,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    run: OutputFolder = None,
    json: Json = False,
) -> None:
    """Train every language model up to GPT and every translator on built-in data, in five minutes.

    The demo prints a table for each task and a sample from each system, and writes two reports.

        regard demo
        regard demo --minute
        regard demo --all --run runs/everything

    Parameters
    ----------
    budget
        training time of each neural system, such as 30s [default: five minutes for the whole demo]
    minute
        train four systems in one minute instead
    everything
        also train the language models that came after GPT (takes longer)
    run
        output folder for both comparisons [default: runs/demo, numbered if it already exists]
    """
    from regard.demo import run_demo

    run_demo(budget=budget, minute=minute, everything=everything, folder=run, as_json=json)
