"""`resume`: continue a run."""

from __future__ import annotations

import time

from regard.cli.completion import RunFolder, Track
from regard.cli.options import Settings


def resume(run: RunFolder, *settings: Settings, track: Track = "") -> None:
    """Continue exactly where a run stopped; if memory ran out, with smaller micro-batches: --training.accumulate 2.

    Parameters
    ----------
    run
        the run's folder
    track
        draw the curves, those of before included: tensorboard or mlflow
    """
    began = time.perf_counter()
    from regard.runs import train as fit
    from regard.runs.recipe import parse_overrides

    print(fit.resume(run, parse_overrides(settings, ("track",)), track=track, began=began).folder)
