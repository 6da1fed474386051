"""`regard demo`: the main job on built-in text. Every system that exists, oldest first, learns the same characters of
the same text; one table says how well each predicts what it has not seen, and each writes a few lines.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.fit import compose_recipe, free_folder, train_recipe
from regard.report.progress import clock, say
from regard.report.table import print_json, print_table
from regard.run import Run
from regard.systems.catalogue import SYSTEMS, find
from regard.training.checkpoint import load_tensors

CORPUS = "pyref"
PROMPT = "The "


@dataclass(frozen=True)
class Rung:
    """One row of the ladder: a system, and the settings that make it that row."""

    label: str
    system: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


def rungs() -> list[Rung]:
    """History's order. Counting appears twice: the shortest memory there is, and the longest that still pays."""
    counted = [Rung(f"{order}-gram", "ngram", {"model": {"order": order}}) for order in (2, 6)]
    trained = [Rung(system.name, system.name) for system in SYSTEMS if system.trained == "gradient"]
    return [*counted, *trained]


def run_demo(*, budget: str = "60s", folder: Path | None = None, as_json: bool = False) -> None:
    began = time.perf_counter()
    folder = folder or free_folder(Path("runs") / "demo")
    rows, samples = [], []
    for rung in rungs():
        say(f"\n{rung.label}")
        run = _train(rung, budget, folder / rung.label)
        rows.append(_row(rung, run))
        samples.append((rung.label, run.generate(PROMPT, max_tokens=220, temperature=0.8, seed=1)))
    if as_json:
        print_json([row | {"sample": sample} for row, (_, sample) in zip(rows, samples)])
        return
    for label, sample in samples:
        print(f"\n── {label} writes ──\n{sample}")
    print()
    print_table(
        rows,
        {
            "label": "system",
            "year": "year",
            "parameters": "numbers stored",
            "tokens_seen": "characters read",
            "training_seconds": "seconds",
            "perplexity": "perplexity",
            "bits_per_character": "bits/char",
        },
        title=f"Predicting held-out text of {CORPUS}, character by character (lower is better)",
    )
    print(f"\n{rows[0]['split']} split, {rows[0]['tokens']} characters; {rows[0]['method']}; one seed.")
    print(f"Runs are in {folder}; {clock(time.perf_counter() - began)} in all. Go on with, for example:")
    print(f"  regard generate {folder / rungs()[-1].label} --prompt 'The ' --temperature 0.8")
    print("  regard train lstm --data my.txt")


def _train(rung: Rung, budget: str, folder: Path) -> Run:
    settings = {"data": {"tokenizer": "char"}, **rung.settings}
    timed = budget if find(rung.system).trained == "gradient" else None
    return train_recipe(compose_recipe(rung.system, data=CORPUS, budget=timed, settings=settings), folder)


def _row(rung: Rung, run: Run) -> dict[str, Any]:
    facts = run.evaluate()
    return {"label": rung.label, "year": find(rung.system).year, **_effort(run), **facts}


def _effort(run: Run) -> dict[str, Any]:
    """Characters read and seconds spent, from what the training left behind."""
    checkpoint = run.folder / "training.safetensors"
    if checkpoint.exists():
        at = load_tensors(checkpoint)[1]["progress"]
        return {"tokens_seen": at["tokens"], "training_seconds": round(at["seconds"], 1)}
    note = load_tensors(run.folder / "model.safetensors")[1]
    return {"tokens_seen": note["tokens"], "training_seconds": round(note["seconds"], 1)}
