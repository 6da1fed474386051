"""The settings of training: what a recipe's [training] section holds, checked where they are given."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from regard.base.errors import RegardError
from regard.base.settings import at_least, one_of, setting

RECURRENT_WINDOW = 64  # steps gradients flow back through, for a model whose context has no end


@dataclass(frozen=True)
class Learning:
    """What every neural system's training is made of."""

    steps: int = setting(2000, "optimiser steps; a budget, where one is given, decides instead")
    budget: str = setting("", "60s, 10m, 2h of training time, or tokens such as 5M; empty = steps decide")
    batch_tokens: int = setting(4096, "tokens in one optimiser step")
    accumulate: int = setting(1, "micro-batches a step is computed in; changes memory, not the result")
    optimizer: str = setting("adamw", "adamw, muon (matrices stepped orthogonally), sgd, or asgd (averaged once stuck)")
    learning_rate: float = setting(1e-3, "at its peak")
    schedule: str = setting("cosine", "constant, cosine (to a tenth), inverse-sqrt, plateau (÷ 4 when stuck), or decay")
    decay: float = setting(0.8, "schedule decay: the rate of each epoch as a share of that of the one before")
    decay_after: int = setting(5, "schedule decay: epochs at the peak before the rate begins to fall")
    warmup: int = setting(100, "steps of linear warm-up")
    weight_decay: float = setting(0.01, "shrinks matrices at every step; biases and gains are left alone")
    beta2: float = setting(0.99, "AdamW's second-moment decay")
    clip: float = setting(1.0, "largest gradient norm; 0 = no clipping")
    evaluate_every: int = setting(250, "steps between validations")
    patience: int = setting(0, "stop after this many validations without improvement; 0 = never")
    checkpoint_every: int = setting(250, "steps between checkpoints")
    precision: str = setting("auto", "fp32 or bf16; auto = bf16 on a GPU that has it; the run keeps what was used")
    device: str = setting("auto", "cpu, cuda or cuda:1; auto = a GPU if there is one; the run keeps what was used")
    threads: int = setting(0, "CPU threads; 0 = as many as there are cores; recorded, so that resume is exact")
    shard: bool = setting(False, "with torchrun: weights, gradients and moments shared out, not held by each (FSDP)")
    seed: int = setting(1, "initial weights, order of batches, dropout")

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "accumulate", "evaluate_every", "checkpoint_every"):
            at_least(f"training.{name}", getattr(self, name), 1)
        for name in ("warmup", "patience", "threads", "seed", "decay_after"):
            at_least(f"training.{name}", getattr(self, name), 0)
        for name in ("weight_decay", "clip"):
            at_least(f"training.{name}", getattr(self, name), 0.0)
        one_of("training.optimizer", self.optimizer, ("adamw", "muon", "sgd", "asgd"))
        one_of("training.schedule", self.schedule, ("constant", "cosine", "inverse-sqrt", "plateau", "decay"))
        one_of("training.precision", self.precision, ("auto", "fp32", "bf16"))
        if not self.learning_rate > 0:
            raise RegardError(f"training.learning_rate must be above 0, not {self.learning_rate}.")
        if not 0 < self.decay <= 1:
            raise RegardError(f"training.decay must be above 0 and at most 1, not {self.decay}.")
        if not 0 <= self.beta2 < 1:
            raise RegardError(f"training.beta2 must be at least 0 and below 1, not {self.beta2}.")
        Budget.parse(self.budget, self.steps)

    @property
    def limit(self) -> Budget:
        return Budget.parse(self.budget, self.steps)


@dataclass(frozen=True)
class Training(Learning):
    """How a neural language model learns from running text."""

    batches: str = setting(
        "windows", "stream: rows run on through the text and carry their state; windows: fresh pieces"
    )
    window: int = setting(0, "tokens of a row in one step, as far as gradients flow back; 0 = the context, or 64")
    validation_tokens: int = setting(200_000, "validation reads at most this many tokens, always the same ones")
    capture: str = setting("auto", "the step in one CUDA graph: on, off, or auto = on a GPU, for recurrent layers")
    compile: str = setting("auto", "a Transformer's blocks: off = as written, on = compiled, auto = as pays on a GPU")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "validation_tokens"):
            at_least(f"training.{name}", getattr(self, name), 0)
        one_of("training.batches", self.batches, ("stream", "windows"))
        one_of("training.compile", self.compile, ("auto", "on", "off"))
        one_of("training.capture", self.capture, ("auto", "on", "off"))
        if self.batch_tokens < self.window:
            raise RegardError(
                f"training.batch_tokens ({self.batch_tokens}) must hold at least one window of {self.window} tokens."
            )
        if self.window and self.accumulate > self.rows:
            raise RegardError(f"training.accumulate ({self.accumulate}) cannot exceed the {self.rows} rows of a batch.")

    @property
    def rows(self) -> int:
        return self.batch_tokens // self.window

    def for_context(self, context: int | None) -> Training:
        """The same with the window filled in: positions that are never trained must not be a default."""
        if not self.window:
            return dataclasses.replace(self, window=context or RECURRENT_WINDOW)
        if context is not None and self.window > context:
            raise RegardError(f"training.window ({self.window}) cannot exceed model.context ({context}).")
        return self


@dataclass(frozen=True)
class PairTraining(Learning):
    """How a translation system learns from pairs: each target given its source and its own beginning."""

    label_smoothing: float = setting(0.1, "share of the truth spread over all words (Szegedy et al. 2016); 0 = none")
    consistency: float = setting(0.0, "R-Drop: weight of agreement between two passes with different dropout; 0 = none")
    ema: float = setting(0.0, "decay of the moving average of weights that is validated and kept, e.g. 0.999; 0 = none")
    keep: int = setting(5, "weights of the last validations that are kept, for `evaluate --average`; 0 = none")
    select: str = setting("loss", "the best validation has the lowest loss, or the highest bleu (greedy translations)")
    validation_pairs: int = setting(1000, "validation reads at most this many pairs, always the same ones; 0 = all")
    capture: str = setting("auto", "steps in CUDA graphs, pairs in few shapes: on, off, or auto = a GPU's Transformer")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("keep", "validation_pairs"):
            at_least(f"training.{name}", getattr(self, name), 0)
        one_of("training.capture", self.capture, ("auto", "on", "off"))
        at_least("training.consistency", self.consistency, 0.0)
        for name in ("label_smoothing", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise RegardError(f"training.{name} must be at least 0 and below 1, not {getattr(self, name)}.")
        one_of("training.select", self.select, ("loss", "bleu"))
        if self.ema and self.optimizer == "asgd":
            raise RegardError("training.ema and training.optimizer asgd both average the weights: choose one of them.")


@dataclass(frozen=True)
class Counting:
    """A counted system (the n-gram) reads the text once; nothing is optimised."""

    threads: int = setting(0, "CPU threads; 0 = as many as there are cores")
    seed: int = setting(1, "kept so that every recipe has one; counting draws nothing at random")

    def __post_init__(self) -> None:
        at_least("training.threads", self.threads, 0)
        at_least("training.seed", self.seed, 0)


@dataclass(frozen=True)
class Budget:
    """What ends a training: a number of steps, of tokens, or of seconds. The first two make a resume exact."""

    amount: float
    unit: str  # "steps", "tokens" or "seconds"

    @classmethod
    def parse(cls, text: str, steps: int) -> Budget:
        if not text:
            return cls(steps, "steps")
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*(?:tokens?)?\s*", text)
        scale = {"s": 1, "m": 60, "min": 60, "h": 3600}
        tokens = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "tokens": 1, "token": 1}
        if match and float(match[1]) > 0:
            if match[2] in scale:
                return cls(float(match[1]) * scale[match[2]], "seconds")
            if match[2] in tokens:
                return cls(float(match[1]) * tokens[match[2]], "tokens")
        raise RegardError(f"training.budget {text!r} is neither a time (60s, 10m, 2h) nor tokens (500k, 5M).")
