"""A translator's training step on a GPU: what each piece of it brings, and where its time goes.

    python studies/pair_steps.py [--steps 20] [--ways plain graph fused fused-graph]
                                             [--kernels 20] [--attention]
    python studies/pair_steps.py --ways --padding multi30k

The Transformer of `regard bench translate-train` (6+6×512, 512 pairs of 32+32 tokens) trains as `regard train` does, in
bf16, in up to six ways: its blocks one after the other with PyTorch's attention ("plain"), the same in a CUDA graph
("graph"), both compiled ("compiled", "compiled-graph"), and as fused stacks (`short_blocks`), both ways.
Milliseconds are of the median of three rounds of --steps steps. --kernels adds the kernels of one step and the longest
of them; --attention attention alone, forward and backward in a graph, by each of PyTorch's backends and by
`short_attention`. --padding needs no GPU: which share of a corpus's batches is real tokens, in as many shapes
as they come and in few, by the seconds of the training (--source and --target name the languages of its files; a table
needs none). Nothing else should run. A JSON line comes last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from regard.bench.contenders import BenchSetup
from regard.bench.training_step import RegardTraining
from regard.bench.translators import random_pairs, recipe, regard_transformer, vocabulary
from regard.fast import uninstall
from regard.fast.attention.short_attention import attend_packed
from regard.runs.prepare import open_data
from regard.runs.recipe import compose
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import GRIDS, ShapedPairBatches

WAYS = ("plain", "graph", "compiled", "compiled-graph", "fused", "fused-graph")
ROWS, LENGTH = 512, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", nargs="*", default=["plain", "graph", "fused", "fused-graph"], choices=WAYS)
    parser.add_argument("--kernels", type=int, default=0, help="the longest so many kernels of a step")
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--padding", metavar="CORPUS", help="such as multi30k")
    parser.add_argument("--source", default="de", help="language of --padding's sources; empty for a table")
    parser.add_argument("--target", default="en")
    options = parser.parse_args()
    found: dict[str, Any] = {"steps": [step(way, options) for way in options.ways]}
    found["attention"] = attention() if options.attention else []
    found["padding"] = padding(options.padding, options.source, options.target) if options.padding else []
    print(json.dumps(found))


def step(way: str, options: argparse.Namespace) -> dict[str, Any]:
    place = BenchSetup(torch.device("cuda"), "full")
    tokens = 2 * ROWS * LENGTH
    batches = PairBatches(random_pairs(vocabulary(place), 8 * ROWS, LENGTH), tokens, seed=1)
    settings = dataclasses.replace(recipe(place, tokens).training, capture="on" if "graph" in way else "off")
    model = regard_transformer(place)
    for block in [*model.encoder.blocks, *model.layers] if way.startswith("compiled") else []:
        block.compile(dynamic=False)
    run = RegardTraining(model, batches, settings, place)
    if not way.startswith("fused"):
        uninstall(model)
    began = time.perf_counter()
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    ms = 1e3 * rounds(lambda: [run() for _ in range(options.steps)]) / options.steps
    row = {"way": way, "ms": round(ms, 2), "target_tokens_per_second": round(1e3 * ROWS * LENGTH / ms)}
    row |= {"first_five_seconds": round(first, 1), "loss": round(float(run.loss), 4)}
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if options.kernels:
        row["kernels"] = kernels(run, options.kernels)
    run.trainer.feed.close()
    return row


def kernels(run: Callable[[], object], longest: int) -> int:
    """How many a step has, after the longest of them are printed with their milliseconds."""
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        run()
        torch.cuda.synchronize()
    events = sorted((e for e in trace.key_averages() if e.device_time_total), key=lambda e: -e.device_time_total)
    for event in events[:longest]:
        print(f"  {event.device_time_total / 1e3:7.3f} ms  {event.count:4d} ×  {event.key[:90]}")
    count, total = sum(event.count for event in events), sum(event.device_time_total for event in events) / 1e3
    print(f"  {total:7.3f} ms  {count:4d} kernels of one step", flush=True)
    return count


def attention() -> list[dict[str, Any]]:
    """One self-attention of the step: 512 sentences of 32 words, 4 heads of 128 components."""
    packed = torch.randn(ROWS, LENGTH, 3 * 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    wanted = torch.randn(ROWS, LENGTH, 512, device="cuda", dtype=torch.bfloat16)
    valid = torch.ones(ROWS, LENGTH, dtype=torch.bool, device="cuda")

    def by_library(backend: SDPBackend) -> torch.Tensor:
        query, keys, values = (part.transpose(1, 2) for part in packed.unflatten(-1, (12, 128)).chunk(3, 2))
        with sdpa_kernel(backend):
            found = F.scaled_dot_product_attention(query, keys, values, attn_mask=valid[:, None, None])
        return found.transpose(1, 2).flatten(2)

    def backward(way: Callable[[], torch.Tensor]) -> None:
        torch.autograd.grad(way(), packed, wanted)

    ways: dict[str, Callable[[], torch.Tensor]] = {
        name: partial(by_library, backend)
        for name, backend in (
            ("efficient", SDPBackend.EFFICIENT_ATTENTION),
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
            ("math", SDPBackend.MATH),
        )
    }
    ways["short"] = lambda: attend_packed(packed, None, 4, valid=valid)
    rows = []
    for name, way in ways.items():
        with torch.no_grad():
            forward = graphed(way)
        both = graphed(partial(backward, way))
        rows.append({"attention": name, "forward_us": round(forward, 1), "both_us": round(both, 1)})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def graphed(work: Callable[[], object]) -> float:
    """Microseconds of the work in a CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):
        work()
    return 1e6 * rounds(partial(repeat, graph, 50)) / 50


def repeat(graph: torch.cuda.CUDAGraph, times: int) -> None:
    for _ in range(times):
        graph.replay()


def rounds(work: Callable[[], object]) -> float:
    """Seconds of the median of three rounds, after one."""
    times = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return median(times[1:])


def padding(corpus: str, source: str, target: str) -> list[dict[str, Any]]:
    """Of the batches of an epoch, in as many shapes as they come and in few."""
    data = {"corpus": corpus, "source": source, "target": target, "vocabulary": 6000}
    found: Any = open_data(compose("transformer", "small", {"data": data})).cut()
    pairs = found.train
    rows = []
    for budget in (4096, 8192, 32768):
        plain = PairBatches(pairs, budget, 1)
        few = {f"for {seconds:g} s or more": ShapedPairBatches.of(plain, seconds) for seconds in GRIDS}
        for name, made in {"as they come": plain, **few}.items():
            batches = [made.batch(number) for number in range(made.steps_per_epoch)]
            real = sum(int(batch.source_lengths[batch.lengths > 0].sum() + batch.lengths.sum()) for batch in batches)
            share = real / sum(batch.source.size + batch.tokens.size for batch in batches)
            shapes = len({(batch.source.shape, batch.tokens.shape) for batch in batches})
            row = {"batch_tokens": budget, "batches": name, "steps": len(batches), "shapes": shapes}
            rows.append(row | {"real_share": round(share, 3)})
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


if __name__ == "__main__":
    main()
