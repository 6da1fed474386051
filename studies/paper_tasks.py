"""The small tasks of two papers, with Regard's own systems.

copy       Katharopoulos et al. 2020, section 4.1: a string over an alphabet of ten symbols is to be written a second
           time; linear attention beside softmax attention, four layers of eight heads
selective  Feng et al. 2024 (the task: Gu & Dao 2024): sixteen symbols lie among blanks and are to be named in their
           order at the end; minGRU by the number of layers, with an expansion of 6

    python studies/paper_tasks.py copy --length 128 --steps 3000
    python studies/paper_tasks.py selective --length 256 --steps 5000

One JSON object for each model: the loss in nats and the share of right symbols, over what is to be written. The papers
train longer: 400,000 steps of 4,096 symbols in the second.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.base.device import pick_device
from regard.runs.speed import install
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model

SYMBOLS, BLANK, MARK, VOCABULARY = 10, 10, 11, 12
DATA = 16  # symbols among blanks


def copying(rows: int, length: int) -> tuple[Tensor, Tensor, int]:
    """MARK x MARK x: tokens, targets, and how many at the end are to be written."""
    x, mark = torch.randint(SYMBOLS, (rows, length // 2)), torch.full((rows, 1), MARK)
    text = torch.cat([mark, x, mark, x], dim=1)
    return text[:, :-1], text[:, 1:], x.size(1)


def selecting(rows: int, length: int) -> tuple[Tensor, Tensor, int]:
    """DATA symbols at random places among blanks, then as many MARKs, at which they are to be named."""
    x = torch.randint(SYMBOLS, (rows, DATA))
    places = torch.rand(rows, length).argsort(dim=1)[:, :DATA].sort(dim=1).values
    text = torch.full((rows, length), BLANK).scatter(1, places, x)
    tokens = torch.cat([text, torch.full((rows, DATA), MARK)], dim=1)
    return tokens, torch.cat([text, x], dim=1), DATA


def entrants(task: str, length: int) -> dict[str, tuple[str, dict[str, Any]]]:
    if task == "copy":
        shape = {"layers": 4, "width": 256, "heads": 8, "context": length + 2, "dropout": 0.0}
        return {name: (name, shape) for name in ("linear-attention", "gpt")}
    shape = {"width": 64, "expansion": 6.0, "dropout": 0.0}
    return {f"mingru, {n} layer{'s' * (n > 1)}": ("mingru", shape | {"layers": n}) for n in (1, 2, 3)}


Task = Callable[[], tuple[Tensor, Tensor, int]]


def asked(model: Model, task: Task) -> tuple[Tensor, Tensor]:
    """Logits and targets of what is to be written, in a new batch."""
    tokens, targets, written = task()
    hidden, _ = model.read(tokens.to(model.device))
    return model.predict(hidden[:, -written:]).flatten(0, 1), targets[:, -written:].flatten().to(model.device)


def learn(model: Model, task: Task, options: argparse.Namespace) -> dict[str, float]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.rate, options.steps, pct_start=0.1)
    began = time.perf_counter()
    for _ in range(options.steps):
        loss = F.cross_entropy(*asked(model, task))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    seconds = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        logits, wanted = asked(model, task)
    return {
        "loss": float(F.cross_entropy(logits, wanted)),
        "right": float((logits.argmax(dim=-1) == wanted).float().mean()),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("copy", "selective"))
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    task = copying if options.task == "copy" else selecting
    for name, (system, settings) in entrants(options.task, options.length).items():
        torch.manual_seed(options.seed)
        model: Model = load_class(system)(VOCABULARY, load_module(system).Settings(**settings))
        model = model.to(pick_device(options.device)).train()
        install(model, training=True)
        found = learn(model, lambda: task(options.rows, options.length), options)
        facts = {"task": options.task, "model": name, "length": options.length, "steps": options.steps, **found}
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
