"""`resume`: continue a run."""

from __future__ import annotations

import time

from regard.cli.options import RunFolder, Settings, Track


def resume(run: RunFolder, *settings: Settings, track: Track = "") -> None:
    """Continue a run exactly where it stopped.

    If memory ran out, continue with smaller micro-batches: --training.accumulate 2.

        regard resume runs/mine
        regard resume runs/mine --training.accumulate 2
    """
    began = time.perf_counter()
    from regard.runs.recipe import parse_overrides
    from regard.runs.resume import resume as continue_run

    print(continue_run(run, parse_overrides(settings, ("track",)), track=track, began=began).folder)
