"""The LSTM language model's training step: kernel by kernel, and in one CUDA graph.

    python studies/recurrent_steps.py [--vocabulary 10000] [--steps 60] [--shapes 0 3]
                                                  [--ways plain graph] [--cells]

For each shape the same Trainer as `regard train` reads random tokens, carries its state and steps with AdamW in bf16,
after a warm-up, in up to three ways: "plain" (training.capture off) and "graph" (on) with one kernel for all steps of
a layer (fast/kernels/persistent.py), "graph-chain" with kernels for each step, in fp32 with TF32 products
(fast/recurrence/lstm_chain.py).
Tokens per second are of the median of three rounds of --steps steps, with the device waited for at the end of each
round. --cells adds one layer alone, forward and backward in a graph: nn.LSTM in three precisions, and the one kernel.
Nothing else should run. A JSON line comes last.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.fast import install
from regard.fast.kernels.persistent import recur
from regard.runs.recipe import compose
from regard.systems.lstm import LSTMModel
from regard.text.batches.text_batches import Streams
from regard.training.loop import Trainer
from regard.training.validation import TextValidation

SHAPES = [  # layers, width, embedding, rows, window, weight-drop
    (2, 650, 0, 20, 35, 0.0),
    (2, 1500, 0, 20, 35, 0.0),
    (2, 1024, 0, 64, 256, 0.0),
    (2, 650, 0, 64, 70, 0.3),
    (2, 1500, 0, 64, 70, 0.5),
    (3, 1150, 400, 80, 70, 0.5),
]
WAYS = {"plain": "off", "graph": "on", "graph-chain": "on"}
CELLS = [(650, 20, 35), (650, 64, 70), (1500, 20, 35), (1500, 64, 70), (1150, 80, 70)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--shapes", nargs="+", type=int, default=range(len(SHAPES)), help="numbers of the shapes, from 0"
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    rows = []
    for shape in (SHAPES[number] for number in options.shapes):
        speeds = {way: speed(shape, way, options) for way in options.ways}
        row = dict(zip(("layers", "width", "embedding", "rows", "window", "weight_drop"), shape, strict=True)) | {
            f"tokens_per_second_{way}": round(value) for way, value in speeds.items()
        }
        rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    precisions = ("float32", "bfloat16", "float16", "persistent") if options.cells else ()
    cells = [cell(*shape, precision) for shape in CELLS for precision in precisions]
    print(json.dumps({"vocabulary": options.vocabulary, "steps": rows, "cells": cells}))


def speed(shape: tuple[int, int, int, int, int, float], way: str, options: argparse.Namespace) -> float:
    layers, width, embedding, rows, window, weight_drop = shape
    regular = {"dropout": 0.5, "dropout_embedding": 0.1, "variational": True} if weight_drop else {"dropout": 0.5}
    recipe = compose(
        "lstm",
        "medium",
        {
            "model": {"layers": layers, "width": width, "embedding": embedding}
            | {"dropout_recurrent": weight_drop}
            | regular,
            "training": {"batch_tokens": rows * window, "window": window, "capture": WAYS[way], "clip": 0.25},
        },
    )
    torch.manual_seed(1)
    model = LSTMModel(options.vocabulary, recipe.model).to(options.device)
    ids = np.random.default_rng(0).integers(options.vocabulary, size=rows * window * 1000).astype(np.uint16)
    batches = Streams(ids, rows, window, 0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            batches,
            TextValidation(ids[:100], 0),
            recipe.training,
            Path(folder),
            bf16=True,
            install=without_bf16 if way == "graph-chain" else install,
        )
        model.train()
        return rows * window * options.steps / rounds(lambda: [trainer.step() for _ in range(options.steps)])


def without_bf16(thing: object, **use: Any) -> object:
    """Install what trains in fp32: the chain, and not the kernel that stays."""
    return install(thing, **{**use, "bf16": False})


def rounds(work: Callable[[], object]) -> float:
    """Seconds of the median of three rounds, after one."""
    times = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return median(times[1:])


def cell(width: int, rows: int, window: int, precision: str) -> dict[str, object]:
    dtype = torch.bfloat16 if precision == "persistent" else getattr(torch, precision)
    layer = nn.LSTM(width, width, batch_first=True).cuda().to(torch.float32 if precision == "persistent" else dtype)
    x = torch.randn(rows, window, width, device="cuda", dtype=dtype, requires_grad=True)
    state = {name: torch.zeros(rows, width, device="cuda") for name in ("hidden", "cell")}

    def step() -> None:
        layer.zero_grad(set_to_none=True)
        x.grad = None
        if precision == "persistent":
            hidden, _ = recur("LSTM", x, state, dict(layer.named_parameters()))
        else:
            hidden, _ = layer(x)
        hidden.sum().backward()

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):
        step()

    def replay() -> None:
        for _ in range(20):
            graph.replay()

    seconds = rounds(replay) / 20
    row = {"width": width, "rows": rows, "window": window, "precision": precision, "ms": round(1e3 * seconds, 3)}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
