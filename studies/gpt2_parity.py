"""Does `gpt` train like GPT-2? The same weights and batches, step by step, against Hugging Face's GPT-2.

    python studies/gpt2_parity.py --shape tiny --steps 100    seconds on a CPU
    python studies/gpt2_parity.py --shape gpt2 --steps 100 --device cuda --dtype float64    124M parameters

One side is Regard's own Trainer. The other is an independent model (transformers.GPT2LMHeadModel) under a plain step as
nanoGPT takes it: mean cross-entropy, gradient norm clipped to 1, AdamW with weight decay on matrices only, and for the
GPT-2 shape its warm-up over 2000 steps. Dropout is off on both sides, since two programs cannot draw the same masks.

With `--warmup 0`, the full learning rate at once, rounding alone soon drives two trainings of this size apart (Adam
divides tiny gradients by their own size); `--control` measures by how much, training the oracle twice with only its
attention kernel changed. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from regard.runs.recipe import compose
from regard.systems.gpt import GPT
from regard.text.batches.text_batches import Windows
from regard.training.loop import Trainer
from regard.training.validation import TextValidation

SHAPES = {
    "tiny": {"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 101, "rows": 8, "warmup": 0},
    "gpt2": {"layers": 12, "width": 768, "heads": 12, "context": 256, "vocabulary": 50257, "rows": 8, "warmup": 2000},
}
NAMES = {  # ours → Hugging Face's
    "embedding.table.weight": "transformer.wte.weight",
    "embedding.position.table.weight": "transformer.wpe.weight",
    "finish.weight": "transformer.ln_f.weight",
    "finish.bias": "transformer.ln_f.bias",
}
INSIDE = {  # the same within block n; Hugging Face keeps these matrices transposed
    "attention_norm": "ln_1",
    "attention.project": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feedforward_norm": "ln_2",
    "feedforward.expand": "mlp.c_fc",
    "feedforward.output": "mlp.c_proj",
}


def hugging_face_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, number, rest = name.split(".", 2)
    part, _, kind = rest.rpartition(".")
    return f"transformer.h.{number}.{INSIDE[part]}.{kind}"


def copy_weights(model: GPT, oracle: GPT2LMHeadModel) -> None:
    theirs = oracle.state_dict()
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            target = theirs[hugging_face_name(name)]
            linear = ".attn." in hugging_face_name(name) or ".mlp." in hugging_face_name(name)
            target.copy_(weight.T if linear and weight.dim() == 2 else weight)


def build(shape: dict[str, int], steps: int, device: str, dtype: torch.dtype) -> tuple[Trainer, GPT2LMHeadModel]:
    model_settings = {key: shape[key] for key in ("layers", "width", "heads", "context")} | {"dropout": 0.0}
    training = {
        "steps": steps,
        "batch_tokens": shape["rows"] * shape["context"],
        "learning_rate": 6e-4,
        "schedule": "constant",
        "warmup": shape["warmup"],
        "weight_decay": 0.1,
        "beta2": 0.95,
        "clip": 1.0,
        "evaluate_every": 10**9,
        "precision": "fp32",
    }
    recipe = compose("gpt", None, {"model": model_settings, "training": training})
    torch.manual_seed(0)
    model = GPT(shape["vocabulary"], recipe.model)
    oracle = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape["vocabulary"],
            n_positions=shape["context"],
            n_embd=shape["width"],
            n_layer=shape["layers"],
            n_head=shape["heads"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    copy_weights(model, oracle)
    random = np.random.default_rng(0)  # Zipf-like text that repeats itself, so that there is something to learn
    ids = np.minimum(random.zipf(1.3, 200_000), shape["vocabulary"] - 1).astype(np.int64)
    ids[1::2] = (ids[::2] * 7 + 3) % shape["vocabulary"]
    batches = Windows(ids, shape["rows"], shape["context"], 0, seed=1)
    folder = Path(tempfile.mkdtemp())
    trainer = Trainer(model.to(device, dtype), batches, TextValidation(ids[:2000], 0), recipe.training, folder)
    torch.nn.Module.to(oracle, device, dtype)
    return trainer, oracle


def plain_optimizer(oracle: GPT2LMHeadModel) -> torch.optim.AdamW:
    parameters = dict(oracle.named_parameters())
    groups = [
        {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))


def compare(
    shape: str, steps: int, device: str, dtype: torch.dtype, control: bool, warmup: int | None
) -> dict[str, object]:
    chosen = SHAPES[shape] if warmup is None else {**SHAPES[shape], "warmup": warmup}
    trainer, oracle = build(chosen, steps, device, dtype)
    twin = copy.deepcopy(oracle)
    twin.set_attn_implementation("eager")
    optimizers = {model: plain_optimizer(model) for model in (oracle, twin)}
    trainer.model.train()
    ours, theirs = [], []
    for step in range(steps):
        batch = trainer.batches.batch(step)
        rate = 6e-4 * min(1.0, (step + 1) / (chosen["warmup"] or 1))
        if control:
            ours.append(plain_step(twin.train(), optimizers[twin], batch, device, rate))
        else:
            loss, _ = trainer.step()
            ours.append(float(loss))
        theirs.append(plain_step(oracle.train(), optimizers[oracle], batch, device, rate))
    gaps = np.abs(np.array(ours) - np.array(theirs))
    return {
        "shape": shape,
        "steps": steps,
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "compared": "the oracle with itself" if control else "Regard with the oracle",
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "first_loss": ours[0],
        "last_loss": ours[-1],
        "gap_at_step": {str(step): float(gaps[step - 1]) for step in (1, 3, 10, 30, 100) if step <= steps},
        "largest_gap": float(gaps.max()),
        "largest_relative_gap": float((gaps / np.array(theirs)).max()),
    }


def plain_step(oracle: GPT2LMHeadModel, optimizer: torch.optim.AdamW, batch, device: str, rate: float) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    tokens = torch.from_numpy(batch.tokens).to(device)
    targets = torch.from_numpy(batch.targets).to(device)
    if batch.lengths is not None:
        real = torch.arange(tokens.size(1), device=device) < torch.from_numpy(batch.lengths).to(device)[:, None]
        targets = targets.masked_fill(~real, -100)
    logits = oracle(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(oracle.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--warmup", type=int, help="steps to the full learning rate")
    parser.add_argument("--control", action="store_true", help="compare the oracle with itself")
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(json.dumps(compare(a.shape, a.steps, a.device, getattr(torch, a.dtype), a.control, a.warmup)))
