"""Does a page compute what Regard computes? Every run given, in all three formats of weights, in headless Chromium.

    python studies/page_parity.py runs/gpt runs/ngram runs/transformer --tokens 1000 --inputs 100

For each run and format one line of JSON: the largest |Δ log P| over the vocabulary at every token, the change of the
mean loss in nats, how many greedy texts or translations (and translations by a beam of 5) differ, the inputs per second
and the bytes. The tokens are those of the run's held-out text.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import regard
from regard.exchange.chromium import Chromium
from regard.exchange.formats import export
from regard.exchange.page_file import answer, log_probabilities, page_answer
from regard.exchange.page_weights import FORMATS
from regard.exchange.parity import texts
from regard.runs.run import PairRun


def rows_of(run: Any, tokens: int) -> list[tuple[list[int], list[int] | None]]:
    """Token rows of held-out lines, `tokens` in all; of a translator their translations, with the sources."""
    found: list[tuple[list[int], list[int] | None]] = []
    for line in texts(run, tokens):
        source = [*run.source_tokenizer.encode(line), 0] if isinstance(run, PairRun) else None
        words = run.translate(line) if hasattr(run, "translate") else "" if source else line
        ids = [0, *run.tokenizer.encode(words)][: run.model.context]
        found.append((ids, source))
        if sum(len(one) for one, _ in found) >= tokens:
            break
    return found


def row(run: Any, weights: str, tokens: int, inputs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Chromium.start() as browser:
        file = Path(folder) / "model.html"
        export(run.folder, "page", file, options={"weights": weights, "scores": "no"})
        page = browser.open_file(file)
        page.evaluate("regard.ready")

        def ask(name: str, **given: Any) -> Any:
            return page.evaluate(f"regard.call({json.dumps(name)}, {json.dumps(given)})")

        largest, count = 0.0, 0
        losses: list[float] = []
        for ids, source in rows_of(run, tokens):
            ours, theirs = log_probabilities(run, ids, source), np.array(ask("logs", ids=ids, source=source))
            largest = max(largest, float(np.abs(ours - theirs)[ours > -1e4].max()))
            places = np.arange(min(len(ours), len(ids)) - 1), np.array(ids[1:])
            losses += (ours[places] - theirs[places]).tolist() if len(ours) == len(ids) else []
            count += len(ours)
        lines = texts(run, inputs)
        began = time.perf_counter()
        written = [page_answer(run, line, ask) for line in lines]
        seconds = time.perf_counter() - began
        differ = sum(answer(run, line) != one for line, one in zip(lines, written, strict=True))
        beams: Any = None
        if hasattr(run, "translate"):
            beams = sum(run.translate(line) != ask("translated", text=line, beam=5)["text"] for line in lines)
        return {
            "run": run.folder.name,
            "tokenizer": run.tokenizer.kind,
            "weights": weights,
            "tokens": count,
            "largest": largest,
            "loss": float(np.mean(losses)) if losses else None,
            "differ": f"{differ} of {len(lines)}",
            "beams": None if beams is None else f"{beams} of {len(lines)}",
            "per_second": len(lines) / seconds,
            "bytes": file.stat().st_size,
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=100)
    given = parser.parse_args()
    for folder in given.runs:
        opened = regard.load(folder, device="cpu")
        for form in FORMATS:
            print(json.dumps(row(opened, form, given.tokens, given.inputs)), flush=True)
