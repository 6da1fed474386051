"""How long questions about causes take: a click that changes a part, and a grid of patching.

    python studies/causes_speed.py [--layers 4] [--heads 4] [--words 32] [--rounds 20] [--device cpu]

A gpt and an lstm of the tiny width, with random weights and the gallery's tokenizer, read a text of so many words.
Printed for each question: the least and the median milliseconds of all rounds, and the least CPU time. The least is
what the machine needs when nobody else computes. On a GPU `--layers 12 --heads 12 --width 768` is the size of GPT-2.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import regard
from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.changing import trace_changed
from regard.insight.interventions.contrast import contrast
from regard.insight.interventions.lens import lens
from regard.insight.interventions.patching import patch
from regard.insight.interventions.reading import read_text
from regard.insight.tracing import trace_language
from regard.systems.gpt import GPT
from regard.systems.gpt import Settings as GPTSettings
from regard.systems.lstm import LSTMModel
from regard.systems.lstm import Settings as LSTMSettings
from regard.systems.model import Model
from regard.text.tokenizers.tokenizer import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="How long questions about causes take.")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--words", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    tokenizer = regard.load("gallery/gpt", device="cpu").tokenizer
    torch.manual_seed(1)
    size, count = {"layers": given.layers, "width": given.width, "dropout": 0.0}, len(tokenizer.tokens)
    models = {
        "gpt": GPT(count, GPTSettings(heads=given.heads, context=given.words + 1, **size)),
        "lstm": LSTMModel(count, LSTMSettings(**size)),
    }
    text = "The" + " horse" * (given.words - 2)  # after the boundary
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}, {given}")
    print("system  question                        least ms  median ms  least CPU ms")
    for name, model in models.items():
        asked = questions(name, model.to(given.device).eval(), tokenizer, text)
        for question, ask in asked.items():
            seconds, cpu = measured(ask, given.rounds, given.device)
            best, middle, used = (1000 * one for one in (min(seconds), statistics.median(seconds), min(cpu)))
            print(f"{name:6}  {question:30}  {best:8.0f}  {middle:9.0f}  {used:12.0f}")


def questions(name: str, model: Model, tokenizer: Tokenizer, text: str) -> dict[str, Callable[[], Any]]:
    """What a user asks, by its name."""
    first, second = (read_text(model, tokenizer, one) for one in (text, text.replace(" horse", " horses", 1)))
    answers = (first.token("plays"), first.token("play"))
    place = "self/0[1]" if name == "gpt" else "layer/0/forget[1]"
    asked: dict[str, Callable[[], Any]] = {
        f"a click: {place}": lambda: trace_changed(
            model, {place: 0.0}, lambda: trace_language(model, tokenizer, text, top=10)
        ),
        "patch layers": lambda: patch(first, second, "layers", answers),
        "patch heads": lambda: patch(first, second, "heads", answers),
        "lens": lambda: lens(first),
        "ablate": lambda: ablate([first], None),
        "why A, not B": lambda: contrast(first, *answers),
    }
    return asked if name == "gpt" else {key: ask for key, ask in asked.items() if key != "patch heads"}


def measured(ask: Callable[[], Any], rounds: int, device: str) -> tuple[list[float], list[float]]:
    """Seconds on the clock and of the CPU, after one round that is not counted."""
    seconds, cpu = [], []
    for number in range(rounds + 1):
        start, used = time.perf_counter(), time.process_time()
        ask()
        if device != "cpu":
            torch.cuda.synchronize()
        if number:
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - used)
    return seconds, cpu


if __name__ == "__main__":
    main()
