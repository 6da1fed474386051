"""Tokens per second of `regard train SYSTEM` on real text, by the tokens of a step: does the default fill the device?

    python studies/filled_steps.py --data multi30k --source de --target en transformer seq2seq bahdanau
    python studies/filled_steps.py --data wikitext-2 gpt lstm

Each is trained as the command would, but without validation and files; then the steps of some seconds are counted.
`--batches` names the tokens of a step, 0 is the default's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from regard.base.device import pick_device
from regard.runs.prepare import prepare
from regard.runs.recipe import compose
from regard.runs.train import build_trainer


def rate(system: str, size: str, data: dict[str, Any], tokens: int, seconds: float, warm_up: float) -> tuple[int, str]:
    """The tokens of a step, and what came of it."""
    training = {"budget": "600s of steps"} | ({"batch_tokens": tokens} if tokens else {})
    ready = prepare(compose(system, size, {"data": data, "training": training}))
    trainer = build_trainer(ready, Path("never-written"))
    trainer.model.train()
    device = pick_device(ready.recipe.training.device)

    def steps(limit: float) -> tuple[int, int, float]:
        count, read, began = 0, 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < limit:
            read += trainer.step()[1]
            count += 1
            if count % 8 == 0 and device.type == "cuda":
                torch.cuda.synchronize()
        if device.type == "cuda":
            torch.cuda.synchronize()
            elapsed = time.perf_counter() - began
        return count, read, elapsed

    steps(warm_up)
    count, read, elapsed = steps(seconds)
    trainer.feed.close()
    return (
        ready.recipe.training.batch_tokens,
        f"{read / elapsed:10,.0f} tokens/s {1000 * elapsed / count:8.2f} ms a step",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--source", default="")
    parser.add_argument("--target", default="")
    parser.add_argument("--size", default="medium")
    parser.add_argument("--batches", type=int, nargs="+", default=[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm-up", type=float, default=4.0, help="seconds before")
    options = parser.parse_args()
    data = {"corpus": options.data} | {
        side: getattr(options, side) for side in ("source", "target") if getattr(options, side)
    }
    for system in options.systems:
        for tokens in options.batches:
            asked, found = rate(system, options.size, data, tokens, options.seconds, options.warm_up)
            print(f"{system:18}{options.size:8}{asked:8} a step {found}", flush=True)


if __name__ == "__main__":
    main()
