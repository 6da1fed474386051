"""Batches made ahead by a thread: what a training step costs with and without.

    python studies/batches_ahead.py [--only lstm] [--device cuda] [--steps 20] [--rounds 5] [--toy]

For a GPT of GPT-2's smallest shape, a Transformer on sentence pairs and an LSTM in one CUDA graph, real training steps
on made-up text with batches made when they are needed, and made ahead by the thread, in turns. Printed: the median
milliseconds of a step, and what the host needs to make one batch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.runs.recipe import compose
from regard.systems.catalogue import load_class
from regard.systems.model import Model
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.text_batches import Streams, Windows
from regard.text.tokenizers.pair_tokens import TokenPairs
from regard.training.loop import Trainer
from regard.training.prefetch import AHEAD, PrefetchingLoader
from regard.training.validation import ValidationResult

WORDS = 8000
WORK: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "transformer 6+6×512": ("transformer", {"layers": 6, "width": 512, "heads": 8}, {"batch_tokens": 16384}),
    "the same, no graphs": (
        "transformer",
        {"layers": 6, "width": 512, "heads": 8},
        {"batch_tokens": 16384, "capture": "off"},
    ),
    "lstm 2×650, T 35, B 20": ("lstm", {"layers": 2, "width": 650}, {"window": 35, "batch_tokens": 700}),
    "gpt 12×768, T 1024, B 16": (
        "gpt",
        {"layers": 12, "width": 768, "heads": 12, "context": 1024},
        {"batch_tokens": 16384, "compile": "off"},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps with and without batches made ahead.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="rows whose name has these letters")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--toy", action="store_true", help="small models, to try the script")
    options = parser.parse_args()
    for name, (system, model, training) in WORK.items():
        if options.only not in name:
            continue
        small = {"layers": 1, "width": 64} | ({"heads": 2} if "heads" in model else {}) if options.toy else {}
        recipe = compose(system, "small", {"model": {**model, **small}, "training": training})
        torch.manual_seed(0)
        made = load_class(system)(WORDS, recipe.model).to(options.device)
        with tempfile.TemporaryDirectory() as folder:
            bf16 = made.device.type == "cuda"
            trainer = Trainer(made, batches(recipe.training), never, recipe.training, Path(folder), bf16=bf16)
            measure(name, trainer, options.steps, options.rounds)


def never(model: Model) -> ValidationResult:
    raise AssertionError("nothing is validated here")


def batches(training: Any) -> Any:
    """Made-up text: 20 million words, or 200,000 pairs of 5 to 59 words."""
    random = np.random.default_rng(0)
    if hasattr(training, "window"):
        ids = random.integers(0, WORDS, 20_000_000).astype(np.uint16)
        if training.batches == "stream":
            return Streams(ids, training.rows, training.window, 0)
        return Windows(ids, training.rows, training.window, 0, seed=1)
    count = 200_000
    lengths = random.integers(5, 60, count)
    sides = [np.concatenate([[0], np.cumsum(np.maximum(1, lengths + random.integers(-4, 5, count)))]) for _ in "st"]
    flat = [random.integers(0, WORDS, bounds[-1]).astype(np.uint16) for bounds in sides]
    pairs = TokenPairs(flat[0], sides[0], flat[1], sides[1], np.arange(count), {}, 0, 64, 0, 0)
    return PairBatches(pairs, training.batch_tokens, seed=1)


def measure(name: str, trainer: Trainer, steps: int, rounds: int) -> None:
    trainer.batches.batch(0)  # arranges the epoch
    began = time.perf_counter()
    for step in range(20):
        trainer.batches.batch(step)
    making = (time.perf_counter() - began) / 20
    ways = {"when needed": PrefetchingLoader(trainer.batches, trainer.device, 0)}
    ways["made ahead"] = PrefetchingLoader(trainer.batches, trainer.device, AHEAD)
    times: dict[str, list[float]] = {way: [] for way in ways}
    trainer.model.train()
    for _ in range(2 * steps):  # chooses kernels, records graphs
        trainer.step()
    for number in range(rounds):
        for way in [*ways] if number % 2 else [*reversed(ways)]:
            trainer.feed.close()
            trainer.feed = ways[way]
            trainer.step()
            wait(trainer.device)
            began = time.perf_counter()
            for _ in range(steps):
                trainer.step()
            wait(trainer.device)
            times[way].append((time.perf_counter() - began) / steps)
    trainer.feed.close()
    found = "   ".join(f"{way} {1000 * statistics.median(times[way]):.2f}" for way in ways)
    spread = max(max(t) / min(t) - 1 for t in times.values())
    print(f"{name:26} ms a step: {found}   (spread {spread:.0%}; one batch {1000 * making:.2f} ms)", flush=True)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
