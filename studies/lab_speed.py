"""How soon `regard lab` shows something, and how soon it answers a hand: a real browser over a hundred runs.

    python studies/lab_speed.py [--runs 100] [--points 10000] [--rounds 7]

Needs playwright and Chromium. A hundred runs of 10,000 points are made from one tiny training, and a GPT of 12 layers
with 12 heads. Printed: medians of the milliseconds from asking for the page, or from a click or a letter, to the frame
in which its result is painted, and the load of the machine, which slows all of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

TEXT = "the quick brown fox jumps over the lazy dog and then sleeps all"  # 63 letters, and the beginning
TINY = ["--size=tiny", "--data=pyref", "--data.tokenizer=char", "--training.steps=1", "--training.threads=1"]

# Milliseconds from an act to the frame after the one in which its result is there.
TIMED = """() => new Promise((resolve) => {
  const all = (selector) => [...document.querySelectorAll(selector)], start = performance.now();
  const look = () => requestAnimationFrame(DONE ? () => resolve(performance.now() - start) : look);
  ACT;
  requestAnimationFrame(look);
})"""
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
NOW = "() => performance.now()"


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon the lab shows something, and answers a hand.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "runs"
        fill(root, options.runs, options.points)
        lab = subprocess.Popen(
            [sys.executable, "-P", "-m", "regard", "lab", str(root), "--port=0", "--no-browser"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert lab.stdout is not None
        address = lab.stdout.readline().strip().partition("?")[0]
        load = os.getloadavg()[0]
        with sync_playwright() as driver:
            program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
            found = measured(lambda: fresh(browser), address, options)
            browser.close()
        lab.send_signal(signal.SIGINT)
        lab.wait(60)
    for name, values in found.items():
        print(f"{name:55} {statistics.median(values):6.0f} ms   ({min(values):.0f} to {max(values):.0f})")
    print(f"{options.runs} runs of {options.points} points; {os.cpu_count()} cores, load {load:.1f} before, "
          f"{os.getloadavg()[0]:.1f} after")  # fmt: skip


def fill(root: Path, runs: int, points: int) -> None:
    """The runs, and `heads`: a GPT with 144 of them."""
    shape = ["--model.layers=12", "--model.heads=12", "--model.width=96"]
    train(root, "heads", "gpt", *shape)
    train(root, "run-000", "lstm", "--model.width=16")
    lines = []
    for step in range(1, points + 1):
        loss = 1.5 + 3 * math.exp(-step / 2000) + 0.1 * math.sin(step * 12.9898)
        row = {"step": step, "tokens": 256 * step, "seconds": step / 20, "loss": loss, "perplexity": math.exp(loss)}
        lines.append(json.dumps({**row, "split": "valid"} if step % 100 == 0 else {**row, "learning_rate": 0.01}))
    (root / "run-000" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    for number in range(1, runs):
        shutil.copytree(root / "run-000", root / f"run-{number:03d}")


def train(root: Path, name: str, system: str, *words: str) -> None:
    command = [sys.executable, "-m", "regard", "train", system, *TINY, *words, f"--run={root / name}"]
    subprocess.run(command, check=True, capture_output=True)


def fresh(browser: Any) -> Any:
    """A page of a browser that was never here."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    page.add_init_script("localStorage.setItem('tour', 'seen')")
    return page


def measured(new_page: Callable[[], Any], address: str, options: argparse.Namespace) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for _ in range(options.rounds):
        page = new_page()
        page.goto(f"{address}#/runs?run=run-000", wait_until="commit")
        page.wait_for_selector(".run-list li")
        note("first paint", page.evaluate(PAINTED))
        note(f"list of {options.runs} runs", page.evaluate(NOW))
        page.wait_for_selector(".plot .line")
        note("six curves drawn", page.evaluate(NOW))
        for name, act, done in RUNS:
            note(name, page.evaluate(timed(act, done.replace("RUNS", str(options.runs)))))
        page.context.close()
    page = new_page()
    page.goto(f"{address}#/sentence?run=heads&text={quote(TEXT)}")
    page.wait_for_selector(".panel:not([aria-busy]) .choice-row")
    for turn in range(options.rounds):
        for name, act, done in SENTENCE:
            note(name, page.evaluate(timed(act, done).replace("TURN", str(turn))))
    return found


def timed(act: str, done: str) -> str:
    return TIMED.replace("ACT", act).replace("DONE", done)


def clicked(text: str) -> str:
    return f"all('button').find((one) => one.textContent === '{text}').click()"


def typed(where: str, text: str) -> str:
    box = f"all('{where}')[0]"
    return f"{box}.value = {text}; {box}.dispatchEvent(new InputEvent('input', {{ bubbles: true }}))"


LIST, LETTER = "all('[aria-label=Runs] li')", "'abcdefghijklmnop'[TURN]"
CAPTION = "all('.chart .caption')[0].textContent.includes('{}')"
# of 12 layers, each with its mean
HEADS = "!all('.part.attention')[0].hidden && all('.sheet canvas')[0]?.dataset.drawn === '156'"
EXPECTED = "!all('.part.expected')[0].hidden"
RUNS = [  # what it is called, the act, what is true once it is there
    ("a word in the filter", typed("input[type=search]", "'099'"), f"{LIST}.length === 1"),
    ("… taken away again", typed("input[type=search]", "''"), f"{LIST}.length > RUNS"),
    ("another metric, six curves", clicked("Perplexity"), CAPTION.format("Perplexity (per token) against")),
    ("another axis", clicked("steps"), CAPTION.format("against steps")),
    ("smoothing", typed("input[type=range]", "'0.6'"), "location.hash.includes('smooth')"),
    ("another run chosen", "all('a.open')[3].click()", f"{LIST}[3].classList.contains('chosen')"),
]
SENTENCE = [
    (
        "a word chosen",
        "all('.words button')[20 + TURN].click()",
        "all('.words button')[20 + TURN].ariaPressed === 'true'",
    ),
    (
        "a letter typed: 64 tokens through 12 layers",
        typed("textarea", f"'{TEXT[:-1]}' + {LETTER}"),
        f"!all('.panel[aria-busy]').length && all('.words button b').at(-1).textContent === {LETTER}",
    ),
    ("144 heads of 64×64, fetched and painted", clicked("Attention"), HEADS),
    ("back to what it expected", clicked("Expected"), EXPECTED),
    ("144 heads of 64×64, painted again", clicked("Attention"), HEADS),
    ("back again", clicked("Expected"), EXPECTED),
]


if __name__ == "__main__":
    main()
