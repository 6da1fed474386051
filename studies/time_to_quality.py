"""How soon does the default training reach a quality, beside a plain PyTorch loop of the same net?

    python studies/time_to_quality.py gpt:small gpt:medium lstm:small --seconds 60

For each system and size two trainings on WikiText-2, one after the other, each with that many seconds:

plain     the loop of `regard bench sizes`, its whole step in one CUDA graph, with the batches, the warm-up and the peak
          rate of Regard's default, a cosine over its seconds of steps, and Regard's validation twenty times
Regard    `regard train SYSTEM --size SIZE --data wikitext-2 --budget SECONDSs`, in this process

Printed: the plain loop's best validation perplexity and the seconds until it was reached; the seconds in which Regard
reaches the same perplexity or a lower one; Regard's best, and the perplexity of the test text. Seconds are those of
steps alone, without imports, reading and validations; the last column has all seconds of Regard's command from its call
here on.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import regard
from regard.base.device import pick_device
from regard.bench.contenders import BenchPlace
from regard.bench.sizes import PARTS, _loss, as_plain, batches_of, prepared
from regard.bench.training_step import PlainTraining
from regard.report.progress import hushed
from regard.runs.prepare import Prepared
from regard.systems.catalogue import find
from regard.training.optimizers import learning_rate_at

VALIDATIONS = 20
Curve = list[tuple[float, float]]  # seconds of steps and validation loss


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to quality beside a plain PyTorch loop.")
    parser.add_argument("rows", nargs="+", metavar="SYSTEM:SIZE")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="a toy corpus, to see that everything runs")
    options = parser.parse_args()
    place = BenchPlace(pick_device(options.device), "quick" if options.quick else "full")
    print(f"{'':16}  plain: perplexity  after  Regard: there after   best  after   test  whole command")
    for row in options.rows:
        system, size = row.split(":")
        try:
            curve = plain_curve(system, size, place, options.seconds)
        except torch.cuda.OutOfMemoryError:
            curve = []
        gc.collect()
        if place.device.type == "cuda":
            torch.cuda.empty_cache()
        ours, test, whole = default_curve(system, size, place, options.seconds)
        goal, when = min((loss, seconds) for seconds, loss in curve) if curve else (math.nan, math.nan)
        there = min((seconds for seconds, loss in ours if loss <= goal), default=math.nan)
        best, found = min((loss, seconds) for seconds, loss in ours)
        print(
            f"{system + ' ' + size:16}  {math.exp(goal):17.1f}  {when:4.1f}s  {there:18.1f}s  {math.exp(best):5.1f}  "
            f"{found:4.1f}s  {test:5.1f}  {whole:12.1f}s",
            flush=True,
        )


def plain_curve(system: str, size: str, place: BenchPlace, budget: float) -> Curve:
    ready = prepared(find(system), size, place)
    settings, model = ready.recipe.training, ready.model.to(place.device)
    batches, validation = batches_of(ready, model), ready.data.validation(ready.recipe, model)
    loop = plain_loop(ready, place, batches, size)
    rate = torch.zeros((), device=place.device)
    for group in loop.optimizer.param_groups:
        group["lr"], group["betas"] = rate, (0.9, settings.beta2)
        group["weight_decay"] *= settings.weight_decay / 0.1  # the bench's loop has 0.1 on matrices
    curve: Curve = []
    spent = 0.0
    while spent < budget:
        began, until = time.perf_counter(), budget * (len(curve) + 1) / VALIDATIONS
        while (now := spent + time.perf_counter() - began) < until:
            share = now / budget
            rate.fill_(
                learning_rate_at(settings.schedule, settings.learning_rate, loop.step, settings.warmup, share, 0)
            )
            loop()
            if loop.step % 50 == 0:
                wait(place)
        wait(place)
        spent += time.perf_counter() - began
        model.eval()
        with torch.autocast(place.device.type, torch.bfloat16, enabled=place.dtype == torch.bfloat16):
            curve.append((spent, validation(model).loss))
        model.train()
    return curve


def plain_loop(ready: Prepared, place: BenchPlace, batches: Any, size: str) -> PlainTraining:
    model, carries = ready.model, ready.recipe.training.carries
    net = as_plain(model)
    begin = (lambda rows: model.begin(rows=rows)) if carries else None
    return PlainTraining(
        model,
        lambda batch, state: _loss(net, 0.0, carries, batch, state),
        batches,
        place,
        begin=begin,
        captured=place.device.type == "cuda",
        parts=PARTS if size == "large" and not carries else 1,
    )


def wait(place: BenchPlace) -> None:
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)


def default_curve(system: str, size: str, place: BenchPlace, budget: float) -> tuple[Curve, float, float]:
    """The curve, the test text's perplexity, and the seconds of all."""
    rows: list[dict[str, Any]] = []
    training = {"device": str(place.device)} | ({"validation_tokens": 400} if place.size == "quick" else {})
    data = "pyref" if place.size == "quick" else "wikitext-2"
    began = time.perf_counter()
    with TemporaryDirectory() as folder, hushed():
        run = regard.train(
            system,
            data=data,
            size=size,
            budget=f"{budget}s",
            run=Path(folder, "run"),
            settings={"training": training},
            callbacks=[rows.append],
        )
        whole = time.perf_counter() - began
        test = run.evaluate(split="test")["perplexity"]
    return [(row["seconds"], row["loss"]) for row in rows if row.get("split") == "valid"], test, whole


if __name__ == "__main__":
    main()
