"""`classify`: label each line."""

from __future__ import annotations

import sys

from regard.base.settings import check_range
from regard.cli.options import Average, Device, JsonLines, RunFolder, Truncate, Weights
from regard.cli.stdin import stdin_batches
from regard.report.screen import for_stdout


def classify(
    run: RunFolder,
    *,
    n_best: int = 1,
    truncate: Truncate = False,
    average: Average = None,
    weights: Weights = "best",
    device: Device = "auto",
    json: JsonLines = False,
) -> None:
    """Label each line of stdin: print one `label, probability` per line, tab-separated.

        echo "what a great film" | regard classify runs/classifier
        regard classify runs/classifier --n-best 3 < reviews.txt

    Parameters
    ----------
    n_best
        print the N best labels of each line: `line, label, probability`
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
