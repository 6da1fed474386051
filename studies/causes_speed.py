"""How long questions about causes take: a click that changes a part, and a grid of patching.

    python studies/causes_speed.py [--layers 4] [--heads 4] [--positions 32] [--rounds 20] [--device cpu] [--only …]
    python studies/causes_speed.py --device cuda --layers 12 --heads 12 --positions 32 --vocabulary 50257

A gpt and an lstm with random weights and the gallery's tokenizer read a text of so many tokens. Up to four heads have
32 components each (the tiny size), more heads 64 (the second command is GPT-2). Printed as JSON, for each question: the
cells of its grid, the least and the median milliseconds of all rounds, and the least CPU time. The least is what the
machine needs when nobody else computes.
"""

from __future__ import annotations

import argparse
import json
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
from regard.insight.interventions.patching import PatchGrid, patch
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
    parser.add_argument("--width", type=int, help="32 for each of up to 4 heads, else 64")
    parser.add_argument("--positions", type=int, default=32)
    parser.add_argument(
        "--vocabulary", type=int, default=0, help="of the model; beyond the tokenizer's, only patching is asked"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="the question, such as 'patch heads'")
    given = parser.parse_args()
    tokenizer = regard.load("gallery/gpt", device="cpu").tokenizer
    torch.manual_seed(1)
    width, count = given.width or given.heads * (32 if given.heads <= 4 else 64), len(tokenizer.tokens)
    count = max(count, given.vocabulary)
    size = {"layers": given.layers, "width": width, "dropout": 0.0}
    models = {
        "gpt": GPT(count, GPTSettings(heads=given.heads, context=given.positions + 1, **size)),
        "lstm": LSTMModel(count, LSTMSettings(**size)),
    }
    text = "The" + " horse" * (given.positions - 2)  # after the boundary
    rows: list[dict[str, Any]] = []
    for name, model in models.items():
        asked = questions(name, model.to(given.device).eval(), tokenizer, text)
        for question, ask in asked.items():
            if given.only in question and (count == len(tokenizer.tokens) or "patch" in question):
                grid, seconds, cpu = measured(ask, given.rounds, given.device)
                figures = {"least": min(seconds), "median": statistics.median(seconds), "least CPU": min(cpu)}
                shape = {"grid": list(grid.returned.shape)} if isinstance(grid, PatchGrid) else {}
                rows.append({"system": name, "question": question, **shape})
                rows[-1] |= {f"{key} ms": round(1000 * float(value), 1) for key, value in figures.items()}
    device = torch.cuda.get_device_name() if given.device != "cpu" else f"CPU, {torch.get_num_threads()} threads"
    about = {**vars(given), "device": device, "torch": torch.__version__, "load": os.getloadavg()[0]}
    about |= {"width": width, "vocabulary": count}
    print(json.dumps({**about, "rows": rows}, indent=1))


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


def measured(ask: Callable[[], Any], rounds: int, device: str) -> tuple[Any, list[float], list[float]]:
    """The answer, and seconds on the clock and of the CPU, after one round that is not counted."""
    seconds, cpu, answer = [], [], None
    for number in range(rounds + 1):
        start, used = time.perf_counter(), time.process_time()
        answer = ask()
        if device != "cpu":
            torch.cuda.synchronize()
        if number:
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - used)
    return answer, seconds, cpu


if __name__ == "__main__":
    main()
