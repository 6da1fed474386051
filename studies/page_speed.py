"""How fast is a page in Chromium? CPU seconds of its worker and of its whole process, the best of five.

    python studies/page_speed.py

Its pages: a GPT of 10.8 million weights in fp32 (6 layers, width 384, characters), a GPT whose page has 5 MB, and the
translators of the gallery. Printed: tokens per second, sentences per second, and the seconds from opening to the first
answer. CPU seconds come from /proc, so it runs on Linux.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import regard
from regard.corpora.phrasebook import make_pairs
from regard.exchange.chromium import Chromium
from regard.exchange.formats import export
from regard.runs.store.gallery import GALLERY

REPEATS, TOKENS, WORKER = 5, 60, "DedicatedWorker"
TICKS = os.sysconf("SC_CLK_TCK")
LARGE = {"model": {"layers": 6, "width": 384, "heads": 6, "context": 256}, "data": {"tokenizer": "char"}}
FIVE_MB = {"model": {"layers": 4, "width": 128, "heads": 4}, "data": {"tokenizer": "bpe", "vocabulary": 1000}}


def children(parent: int) -> list[int]:
    """This process's descendants."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                number = int(path.parent.name)
                found += [number, *children(number)]
        except OSError:  # it has ended
            continue
    return found


def cpu_seconds(thread: str = "") -> float:
    """CPU seconds of the browser so far: of its threads whose name contains `thread`."""
    total = 0
    for process in children(os.getpid()):
        for task in Path(f"/proc/{process}/task").glob("*/stat"):
            try:
                head, _, rest = task.read_text().rpartition(")")
            except OSError:
                continue
            total += sum(map(int, rest.split()[11:13])) if thread in head else 0
    return total / TICKS


def page_of(folder: Path, name: str, settings: dict[str, Any]) -> Path:
    lines = [pair.source for pair in make_pairs(2000, seed=0, longest=8)]
    training = {"steps": 1, "batch_tokens": 256, "device": "cpu", "threads": 1}
    run = regard.train("gpt", data=lines, run=folder / name, seed=1, settings={**settings, "training": training})
    print(f"{name}: {sum(weight.numel() for weight in run.model.parameters()):,} weights")
    export(run.folder, "page", folder / f"{name}.html", options={"scores": "no"})
    return folder / f"{name}.html"


def first_answer(browser: Chromium, page: Path) -> None:
    found = []
    for _ in range(REPEATS):
        cpu, wall = cpu_seconds(), time.perf_counter()
        browser.open_file(page).evaluate("regard.ready")
        found.append((cpu_seconds() - cpu, time.perf_counter() - wall))
    cpu, wall = min(found)
    print(f"{page.name}, {page.stat().st_size / 1e6:.1f} MB: first answer after {cpu:.2f} CPU s, {wall:.2f} s")


def rate(browser: Chromium, page: Path, unit: str, count: int, asked: list[tuple[str, dict[str, Any]]]) -> None:
    opened, best = browser.open_file(page), 0.0
    opened.evaluate("regard.ready")
    for _ in range(REPEATS):
        before = cpu_seconds(WORKER)
        for name, given in asked:
            opened.evaluate(f"regard.call({json.dumps(name)}, {json.dumps(given)})")
        best = max(best, count / max(cpu_seconds(WORKER) - before, 1 / TICKS))
    print(f"{page.name}: {best:.0f} {unit} per CPU second of its worker")


if __name__ == "__main__":
    sentences = [pair.source for pair in make_pairs(24, seed=2, longest=7)]
    with tempfile.TemporaryDirectory() as scratch, Chromium.start() as browser:
        made = Path(scratch)
        first_answer(browser, page_of(made, "five-mb", FIVE_MB))
        writing = ("write", {"text": "The cat", "tokens": TOKENS, "temperature": 0})
        rate(browser, page_of(made, "large", LARGE), "tokens", TOKENS, [writing])
        for name in ("bahdanau", "transformer"):
            out = made / f"{name}.html"
            export(GALLERY / name, "page", out)
            for beam in (1, 5):
                asked = [("translated", {"text": line, "beam": beam}) for line in sentences]
                rate(browser, out, f"sentences by a beam of {beam}", len(sentences), asked)
