"""GPT-2's training step and what it is made of, each part in the ways it can be done.

    python studies/gpt_step.py [--parts step loss attention between] [--ways off on auto]
                                           [--rows 64] [--steps 8]

step        the Trainer of `regard train` on GPT-2 124M, bf16: blocks as written (off), compiled (on), by hand (auto)
loss        the loss with the product before it, forward and backward, by how many rows of logits are held at once
attention   PyTorch's own choice of kernel, and cuDNN's, forward and backward, for 65,536 tokens in rows of any length
between     each kernel of fast/kernels/block_norm.py and the pass over logits, with the rate at which they move bytes

Milliseconds of the median of three rounds, with the device waited for at the end of each. Nothing else should run.
On a CPU everything is tiny, and only `step` and `loss` run. A JSON line comes last.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from regard.bench.contenders import BenchPlace
from regard.bench.training_step import LEARNING, RegardTraining, full_windows
from regard.fast.attention.causal_attention import attend_causal
from regard.fast.training.linear_cross_entropy import linear_cross_entropy
from regard.runs.recipe import compose
from regard.systems.gpt import GPT

LARGE = {"layers": 12, "width": 768, "heads": 12, "context": 1024}
TINY = {"layers": 2, "width": 32, "heads": 2, "context": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--ways", nargs="+", default=["off", "on", "auto"], choices=["off", "on", "auto"])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.device = torch.device(options.device)
    options.sizes = LARGE if options.device.type == "cuda" else TINY
    options.vocabulary = 50_304 if options.device.type == "cuda" else 128
    found = {}
    for part in options.parts:
        found[part] = PARTS[part](options)
    print(json.dumps(found))


def step(options: argparse.Namespace) -> dict[str, float]:
    place = BenchPlace(options.device, "full" if options.device.type == "cuda" else "quick")
    tokens = options.rows * options.sizes["context"]
    batches = full_windows(options.vocabulary, options.rows, options.sizes["context"])
    found = {}
    for way in options.ways:
        torch._dynamo.reset()
        torch.manual_seed(1)
        changes = {"model": options.sizes | {"dropout": 0.0}, "training": {"batch_tokens": tokens, "compile": way}}
        changes["training"] |= LEARNING
        recipe = compose("gpt", None, changes)
        began = time.perf_counter()
        reset(options.device)
        work = RegardTraining(GPT(options.vocabulary, recipe.model), batches, recipe.training, place)
        for _ in range(3):
            work()
        wait(options.device)
        first = time.perf_counter() - began
        found[way] = milliseconds(work, options, options.steps)
        held = torch.cuda.max_memory_allocated() / 1e9 if options.device.type == "cuda" else 0.0
        print(
            f"step {way:5s} {found[way]:8.2f} ms  {tokens / found[way] * 1e3:9.0f} tokens/s  first three steps "
            f"{first:5.1f} s  peak {held:5.1f} GB  loss {work.loss.item():.4f}",
            flush=True,
        )
        del work
    return found


def loss(options: argparse.Namespace) -> dict[int, float]:
    rows, width, words = options.rows * options.sizes["context"], options.sizes["width"], options.vocabulary
    dtype = torch.bfloat16 if options.device.type == "cuda" else torch.float32
    hidden = torch.randn(rows, width, device=options.device, dtype=dtype).requires_grad_()
    weight = (0.02 * torch.randn(words, width, device=options.device)).requires_grad_()
    targets = torch.randint(words, (rows,), device=options.device)
    found = {}
    for at_once in (1024, 2048, 4096, 8192, 16_384, 32_768):
        if at_once > rows:
            break

        def both(at_once: int = at_once) -> None:
            with torch.autocast(options.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                total = linear_cross_entropy(hidden, weight, None, targets, at_once=at_once * words)
            torch.autograd.grad(total, (hidden, weight))

        found[at_once] = milliseconds(both, options, 3)
        print(f"loss, {at_once:6d} rows of logits at once {found[at_once]:8.2f} ms", flush=True)
    return found


def attention(options: argparse.Namespace) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    if options.device.type != "cuda":
        return found
    for columns in (64, 128, 256, 512, 1024, 2048):
        packed = torch.randn(65_536 // columns, columns, 36, 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
        above = torch.randn(65_536 // columns, columns, 768, device="cuda", dtype=torch.bfloat16)

        def both(cudnn: bool, packed: torch.Tensor = packed, above: torch.Tensor = above) -> None:
            query, keys, values = (part.transpose(1, 2) for part in packed.chunk(3, dim=2))
            context = attend_causal(query, keys, values, cudnn=cudnn).transpose(1, 2).flatten(2)
            torch.autograd.grad(context, packed, above)

        found[columns] = [milliseconds(partial(both, cudnn), options, 10) for cudnn in (False, True)]
        print(
            f"attention, rows of {columns:4d}: {found[columns][0]:.3f} ms, by cuDNN {found[columns][1]:.3f} ms",
            flush=True,
        )
    return found


def between(options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    if options.device.type != "cuda":
        return found
    from regard.fast.kernels import block_norm as kernels
    from regard.fast.kernels import cross_entropy as surprise_kernel

    rows, width = options.rows * options.sizes["context"], options.sizes["width"]
    x, y, z = (torch.randn(rows, width, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    wide, other = (torch.randn(rows, 4 * width, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    gain = torch.ones(width, device="cuda")
    logits = torch.randn(8192, options.vocabulary, device="cuda", dtype=torch.bfloat16)
    targets = torch.randint(options.vocabulary, (8192,), device="cuda")
    normed, total, means, scales = kernels.norm(x, y, gain, gain, 1e-5)
    one = x.nbytes
    passes: dict[str, tuple[Callable[[], object], int]] = {  # and the bytes that it cannot do without
        "norm": (lambda: kernels.norm(x, None, gain, gain, 1e-5), 2 * one),
        "sum and norm": (lambda: kernels.norm(x, y, gain, gain, 1e-5), 4 * one),
        "norm backward": (lambda: kernels.norm_backward(normed, z, total, gain, means, scales, sums=4), 4 * one),
        "gelu": (lambda: kernels.gelu(wide), 8 * one),
        "gelu backward": (lambda: kernels.gelu_backward_(wide, other), 12 * one),
        "sum over rows": (lambda: kernels.sum_rows(wide), 4 * one),
        "pack": (lambda: kernels.pack(x, y, z), 6 * one),
        "8192 rows of logits": (
            lambda: surprise_kernel.rows_(logits, None, targets, options.vocabulary, 0.0),
            2 * logits.nbytes,
        ),
    }
    for name, (run, moved) in passes.items():
        found[name] = milliseconds(run, options, 20)
        print(f"between, {name:20s} {found[name]:.3f} ms, {moved / found[name] / 1e9:.2f} TB/s", flush=True)
    return found


PARTS: dict[str, Callable[[argparse.Namespace], dict]] = {
    "step": step,
    "loss": loss,
    "attention": attention,
    "between": between,
}


def milliseconds(run: Callable[[], object], options: argparse.Namespace, times: int) -> float:
    run()
    rounds = []
    for _ in range(3):
        wait(options.device)
        began = time.perf_counter()
        for _ in range(times):
            run()
        wait(options.device)
        rounds.append((time.perf_counter() - began) / times * 1e3)
    return median(rounds)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


if __name__ == "__main__":
    main()
