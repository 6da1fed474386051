"""How soon does the default training reach a quality, beside a plain PyTorch loop of the same net?

    python studies/time_to_quality.py gpt:small:12 gpt:medium:20 lstm:small --seconds 60 --before

For each system and size (and seconds, where the row names them) trainings on WikiText-2, one after the other, each with
that many seconds of steps and a validation after every twentieth of them:

plain     the loop of `regard bench sizes`, its whole step in one CUDA graph, with the batches, the warm-up and the peak
          rate of Regard's default, and a cosine over its seconds
Regard    `regard train SYSTEM --size SIZE --data wikitext-2 --budget "SECONDSs of steps"`, in this process
before    with --before: the same with training.capture off and without the blocks in few passes

The goal of a row is the plain loop's best validation perplexity. Printed: the goal and the seconds until it was
reached; for Regard and before, the seconds in which they reach the goal or a lower perplexity, their best perplexity
and when. Seconds are those of steps alone, without imports, reading and validations; the last column has all seconds of
Regard's command from its call here on. `--json FILE` also writes the curves, after each row.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

import regard
from regard.base.device import pick_device
from regard.bench.contenders import BenchPlace
from regard.bench.sizes import PARTS, _loss, as_plain, batches_of, prepared
from regard.bench.training_step import PlainTraining
from regard.fast.table import rows as fast_rows
from regard.fast.table import without
from regard.report.progress import hushed
from regard.runs.prepare import Prepared
from regard.systems.catalogue import find
from regard.training.optimizers import learning_rate_at

VALIDATIONS = 20
Found = TypeVar("Found")
Curve = list[tuple[float, float]]  # seconds of steps and validation loss


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to quality beside a plain PyTorch loop.")
    parser.add_argument("rows", nargs="+", metavar="SYSTEM:SIZE[:SECONDS]")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--before", action="store_true", help="also train without graphs and blocks in few passes")
    parser.add_argument("--json", type=Path, help="a file for the curves")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="a toy corpus, to see that everything runs")
    options = parser.parse_args()
    place = BenchPlace(pick_device(options.device), "quick" if options.quick else "full")
    print(f"{'':16}   plain      goal  after     Regard there    best  after  whole command", flush=True)
    found = {}
    for row in options.rows:
        system, size, *given = row.split(":")
        budget = float(given[0]) if given else options.seconds
        plain = cleared(plain_curve, system, size, place, budget)
        ours, whole = cleared(default_curve, system, size, place, budget)
        goal, when = min(((loss, seconds) for seconds, loss in plain), default=(math.nan, math.nan))
        found[row] = {"plain": plain, "Regard": ours, "whole": whole}
        print(
            f"{system + ' ' + size:16}  {budget:4.0f} s  {math.exp(goal):7.1f}  {when:4.1f} s  {reached(ours, goal)}  "
            f"{whole:6.1f} s",
            flush=True,
        )
        if options.before:
            written = [fast.name for fast in fast_rows() if fast.name.endswith("blocks in few passes")]
            with without(*written):
                before, whole = cleared(default_curve, system, size, place, budget, capture="off")
            found[row] |= {"before": before, "whole before": whole}
            print(f"{'  before':16}  {'':23}  {reached(before, goal)}  {whole:6.1f} s", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(found), encoding="utf-8")


def reached(curve: Curve, goal: float) -> str:
    """When a curve reached the goal, its best perplexity and when."""
    there = min((seconds for seconds, loss in curve if loss <= goal), default=math.nan)
    best, when = min((loss, seconds) for seconds, loss in curve)
    return f"{there:11.1f} s  {math.exp(best):7.1f}  {when:4.1f} s"


def cleared(make: Callable[..., Found], *arguments: Any, **options: Any) -> Found:
    """What `make` returns, with the GPU's memory free again."""
    found = make(*arguments, **options)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


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


def default_curve(system: str, size: str, place: BenchPlace, budget: float, **more: Any) -> tuple[Curve, float]:
    """The curve, and the seconds of all."""
    rows: list[dict[str, Any]] = []
    training = {"device": str(place.device), "validations": VALIDATIONS, "checkpoint_every": 0} | more
    training |= {"validation_tokens": 400} if place.size == "quick" else {}
    data = "pyref" if place.size == "quick" else "wikitext-2"
    began = time.perf_counter()
    with TemporaryDirectory() as folder, hushed():
        regard.train(
            system,
            data=data,
            size=size,
            budget=f"{budget:g}s of steps",
            run=Path(folder, "run"),
            settings={"training": training},
            callbacks=[rows.append],
        )
        whole = time.perf_counter() - began
    return [(row["seconds"], row["loss"]) for row in rows if row.get("split") == "valid"], whole


if __name__ == "__main__":
    main()
