"""Trainers of small models on a small text, a clock that tests set, and digests of the files they write."""

import hashlib

import numpy as np
import torch

from regard.runs.recipe import compose
from regard.systems.catalogue import load_class
from regard.text.batches.text_batches import Streams, Windows
from regard.training.checkpoint import load_tensors
from regard.training.loop import Trainer
from regard.training.validation import TextValidation

VOCABULARY = 11


def ids(count=3003, seed=0):
    """Text with something to learn: each token is usually the one before plus one."""
    random = np.random.default_rng(seed)
    steps = np.where(random.random(count) < 0.8, 1, random.integers(0, VOCABULARY, count))
    return (np.cumsum(steps) % VOCABULARY).astype(np.uint16)


def trainer(folder, system="lstm", **training):
    sizes = {
        "lstm": {"layers": 2, "width": 16, "dropout": 0.2},
        "gpt": {"layers": 1, "width": 16, "heads": 2, "context": 16},
        "nnlm": {"order": 3, "width": 16, "embedding": 8, "dropout": 0.2},
        "dan": {"width": 16},
        "self-attention": {"width": 16, "context": 16, "score": "boxcar"},  # two matrices without any gradient
    }
    settings = {"steps": 12, "batch_tokens": 128, "window": 16, "warmup": 3, "evaluate_every": 5, "checkpoint_every": 4}
    recipe = compose(system, "tiny", {"model": sizes[system], "training": {**settings, "seed": 3, **training}})
    torch.manual_seed(recipe.training.seed)
    model = load_class(system)(VOCABULARY, recipe.model)
    kind = recipe.training
    arguments = (ids(), kind.rows, kind.window, 0)
    batches = Streams(*arguments) if kind.batches == "stream" else Windows(*arguments, kind.seed)
    folder.mkdir(exist_ok=True)
    return Trainer(model, batches, TextValidation(ids(400, seed=1), 0), kind, folder)


def bits(folder, name="training.safetensors"):
    tensors, note = load_tensors(folder / name)
    for clock in ("seconds", "elapsed", "started", "besides"):
        note.get("progress", {}).pop(clock, None)
    return {key: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for key, tensor in tensors.items()}, note


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter

    def passing(self, seconds, call):
        def slower(*arguments, **more):
            result = call(*arguments, **more)
            self.now += seconds
            return result

        return slower


def set_clock(monkeypatch, clock):
    """Lets the training read this clock."""
    for module in ("loop", "budget", "log", "checkpointing"):
        monkeypatch.setattr(f"regard.training.{module}.time", clock)
