"""`regard demo`: the main job on built-in text. Every language model there is, oldest first, learns the same characters
of the same text for the same time; one table says how well each predicts what it has not seen, each writes a few lines,
and a page shows it all.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from regard.compare.comparison import COLUMNS, Comparison, compare
from regard.compare.question import Question
from regard.compare.words import notes
from regard.errors import RegardError
from regard.fit import free_folder
from regard.report.progress import clock
from regard.report.table import print_json, print_table

CORPUS = "pyref"
PROMPT = "The "
SIZE = "tiny"
IN_ALL = 270.0  # seconds for the whole ladder, of the five minutes that a demo may take
BESIDES = 9.0  # of these, what a neural system takes besides training: starting, validating, testing, writing
SETTINGS: dict[str, dict[str, Any]] = {  # half a minute: many small steps, and little of it spent on validation
    "data": {"tokenizer": "char"},
    "training": {
        "batch_tokens": 512,
        "learning_rate": 4e-3,
        "warmup": 50,
        "validation_tokens": 4000,
        "threads": 1,  # a second thread was slower wherever the other core was busy
    },
}


def run_demo(*, budget: str | None = None, folder: Path | None = None, as_json: bool = False) -> None:
    began = time.perf_counter()
    comparison = compare(
        data=CORPUS,
        match="seconds",
        budget=budget or time_for_each(),
        size=SIZE,
        run=folder or free_folder(Path("runs") / "demo"),
        settings=SETTINGS,
        prompt=PROMPT,
    )
    if as_json:
        print_json(comparison.rows)
    else:
        _print(comparison, time.perf_counter() - began)
    if comparison.failed:
        raise RegardError(f"Not all of the ladder came to a number: {'; '.join(comparison.failed.values())}")


def time_for_each() -> str:
    """The budget with which all neural systems together fit into the demo."""
    neural = sum(not rung.counted for rung in Question((), CORPUS).rungs())
    return f"{max(1.0, IN_ALL / max(neural, 1) - BESIDES):.0f}s"


def _print(comparison: Comparison, seconds: float) -> None:
    for row in comparison.rows:
        if row["perplexity"] is not None:
            print(f"\n── {row['label']} writes ──\n{row['sample']}")
    print()
    print_table(comparison.shown, COLUMNS, comparison.title)
    print("\n".join(["", comparison.ranking, *notes(comparison)]))
    last = comparison.plan.run_folder(comparison.plan.entrants[-1], 1)
    print(f"\nRuns are in {comparison.folder}; {clock(seconds)} in all. Look at {comparison.report}, then for example:")
    print(f"  regard generate {last} --prompt '{PROMPT}' --temperature 0.8")
    print("  regard compare lstm gpt --data my.txt")
