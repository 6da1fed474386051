"""AdamW and Muon at equal tokens, each at several learning rates.

    python studies/muon_rates.py [--size tiny] [--steps 400] [--batch-tokens 2048]
                                             [--rates 0.003 0.006] [--seeds 1 2 3]
    python studies/muon_rates.py --update [cuda]

A gpt on the built-in text, everything equal but the optimiser. Printed: the best validation loss, mean and standard
deviation over the seeds, and seconds of training. With --update: milliseconds of one update of the 48 matrices between
the hidden vectors of GPT-2 124M, by AdamW, by Muon and by PyTorch's own Muon.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import regard
from regard.training.muon import Muon


def main() -> None:
    parser = argparse.ArgumentParser(description="AdamW and Muon side by side.")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.006])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--update", nargs="?", const="cuda", metavar="DEVICE", help="time an update instead")
    options = parser.parse_args()
    if options.update:
        return time_updates(options.update)
    for rate in options.rates:
        for optimizer in ("adamw", "muon"):
            settings = {"optimizer": optimizer, "learning_rate": rate, "steps": options.steps, "warmup": 50}
            settings |= {"batch_tokens": options.batch_tokens, "evaluate_every": 50}
            losses, seconds = zip(*(trained(options.size, seed, settings) for seed in options.seeds), strict=True)
            spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
            print(
                f"gpt {options.size}, {optimizer}, rate {rate}: best validation {statistics.mean(losses):.4f}{spread} "
                f"in {statistics.mean(seconds):.0f} s",
                flush=True,
            )


def trained(size: str, seed: int, settings: dict[str, Any]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        run = regard.train("gpt", size=size, seed=seed, run=Path(folder) / "run", settings={"training": settings})
        lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    validations = [line for line in lines if line.get("split") == "valid"]
    return min(line["loss"] for line in validations), validations[-1]["seconds"]


def time_updates(device: str) -> None:
    shapes = [(2304, 768), (768, 768), (3072, 768), (768, 3072)] * 12
    weights = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    kinds = {
        "AdamW": torch.optim.AdamW(weights, fused=True),
        "Muon": Muon([{"params": weights, "orthogonal": True}], fused=True),
        "torch.optim.Muon": torch.optim.Muon(weights, adjust_lr_fn="match_rms_adamw"),
    }
    for name, optimizer in kinds.items():
        times = []
        for _ in range(10):
            began = time.perf_counter()
            optimizer.step()
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        print(f"{name}: {1000 * statistics.median(times[3:]):.2f} ms", flush=True)


if __name__ == "__main__":
    main()
