"""`classify`: label each line."""

from __future__ import annotations

import sys
from typing import Annotated

from regard.base.settings import check_range
from regard.cli.completion import RunFolder
from regard.cli.options import Flag
from regard.cli.stdin import stdin_batches
from regard.report.screen import for_stdout


def classify(
    run: RunFolder,
    *,
    n_best: int = 1,
    truncate: Annotated[bool, Flag] = False,
    average: int | None = None,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Label each line of stdin: `label, probability`, tab-separated, as many lines as came in.

    Parameters
    ----------
    run
        the run's folder
    n_best
        print the N best labels of each line: `line, label, probability`
    truncate
        cut lines that are longer than anything the model was trained on, instead of refusing them
    average
        use the mean of the weights of the last N validations
    weights
        best on validation, last, or a step whose weights were kept
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
    """
    import json as json_module

    from regard.runs.load import load_classifier

    check_range("--n-best", n_best, 1)
    loaded = load_classifier(run, weights=weights, average=average, device=device)
    number = 0
    for lines in stdin_batches():
        for source, found in zip(lines, loaded.labellings(lines, truncate=truncate, before=number), strict=True):
            number, best = number + 1, found.top(n_best)
            if json:
                labels = [{"label": label, "probability": p} for label, p in best]
                said = {"line": number, "source": source, "labels": labels}
                print(for_stdout(json_module.dumps(said, ensure_ascii=False)))
            elif not best:
                print(f"{number}\t\t" if n_best > 1 else "")
            for label, p in [] if json else best:
                print(for_stdout("\t".join([*([str(number)] if n_best > 1 else []), label, f"{p:.4f}"])))
        sys.stdout.flush()
