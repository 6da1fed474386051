"""The settings of training: what a recipe's [training] section holds, checked where they are given."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from regard.base.errors import RegardError
from regard.base.settings import RATE, CheckedSettings, setting

RECURRENT_WINDOW = 64  # steps gradients flow back through, for a model whose context has no end
MAX_BUDGET = 1e15  # maximum of a budget, in any unit
MAX_THREADS = 4096
MAX_EPOCHS = 1_000_000
SWITCH = ("auto", "on", "off")


@dataclass(frozen=True)
class GradientTraining(CheckedSettings):
    """The settings of every neural system's training."""

    section = "training"
    on_pairs = False  # for systems that learn from pairs of a source and a target
    steps: int = setting(2000, "optimizer steps (--dry-run shows the epochs); a budget overrides them", ge=1)
    budget: str = setting(
        "",
        "a time for the whole command (60s, 10m, 2h) or for the steps only (`60s of steps`), or a number of tokens "
        "(5M); empty = use steps",
    )
    epochs: int = setting(
        0,
        "end after reading the training text this often, even if the budget is not used up; 0 = no limit",
        ge=0,
        le=MAX_EPOCHS,
    )
    batch_tokens: int = setting(4096, "tokens in one optimizer step", ge=1)
    accumulate: int = setting(
        1,
        "micro-batches per step: more save memory and leave the gradient the same (dropout masks differ)",
        ge=1,
    )
    optimizer: str = setting(
        "adamw",
        "adamw, muon (orthogonalized updates of matrices), sgd, or asgd (averaged once validation stops improving)",
        choices=("adamw", "muon", "sgd", "asgd"),
    )
    learning_rate: float = setting(1e-3, "peak learning rate", gt=0)
    schedule: str = setting(
        "cosine",
        "constant, cosine (to a tenth), inverse-sqrt, plateau (divide by 4 without improvement), or decay",
        choices=("constant", "cosine", "inverse-sqrt", "plateau", "decay"),
    )
    decay: float = setting(0.8, "schedule decay: factor on the learning rate after each epoch", gt=0, le=1)
    decay_after: int = setting(5, "schedule decay: epochs at the peak learning rate before it begins to fall", ge=0)
    warmup: int = setting(100, "steps of linear warm-up; at most a third of a time budget", ge=0)
    weight_decay: float = setting(0.01, "weight decay of matrices; biases and gains have none", ge=0)
    beta2: float = setting(0.99, "AdamW's second-moment decay", **RATE)
    clip: float = setting(1.0, "maximum gradient norm; 0 = no clipping", ge=0)
    ema: float = setting(0.0, "save a moving average of the weights with this decay, e.g. 0.999; 0 = none", **RATE)
    evaluate_every: int = setting(250, "steps between validations", ge=1)
    validations: int = setting(0, "validations spread evenly over the budget; 0 = one every evaluate_every steps", ge=0)
    patience: int = setting(0, "stop after this many validations without improvement; 0 = never", ge=0)
    checkpoint_every: int = setting(
        250, "steps between checkpoints, in addition to one every minute; 0 = one after each validation", ge=0
    )
    snapshots: int = setting(
        0, "number of snapshots of the weights, spread over training, to see how the model learns; 0 = none", ge=0
    )
    precision: str = setting(
        "auto",
        "fp32 or bf16; auto = bf16 on a GPU that supports it; the run records the choice",
        choices=("auto", "fp32", "bf16"),
    )
    device: str = setting("auto", "cpu, cuda or cuda:1; auto = a GPU if there is one; the run records the choice")
    threads: int = setting(
        0, "CPU threads; 0 = one per core; the run records the number, so that resume is exact", ge=0, le=MAX_THREADS
    )
    shard: bool = setting(False, "with torchrun: shard weights, gradients and optimizer state across processes (FSDP)")
    seed: int = setting(1, "random seed of the initial weights, the batch order and dropout", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        Budget.parse(self.budget, self.steps)
        if self.ema and self.optimizer == "asgd":
            raise RegardError("training.ema and training.optimizer asgd both average the weights: choose one of them.")

    @property
    def limit(self) -> Budget:
        return Budget.parse(self.budget, self.steps)

    @property
    def carries(self) -> bool:
        """True if a batch begins with the state after the one before."""
        return False

    @property
    def terms(self) -> dict[str, float]:
        """Terms of the objective beside −log P."""
        return {}

    @property
    def kept(self) -> int:
        """The number of last validations whose weights are saved."""
        return 0


@dataclass(frozen=True)
class Training(GradientTraining):
    """How a neural language model learns from running text."""

    batches: str = setting(
        "windows",
        "stream: rows continue through the text and carry their state; windows: independent pieces",
        choices=("stream", "windows"),
    )
    window: int = setting(
        0, "tokens per row and step; gradients flow back this far; 0 = the model's context, or 64 if it has none", ge=0
    )
    validation_tokens: int = setting(200_000, "tokens per validation, always the same ones; 0 = all", ge=0)
    capture: str = setting(
        "auto",
        "capture a step as one CUDA graph: on, off, or auto = on a GPU, if launching a step takes longer than "
        "computing it",
        choices=SWITCH,
    )
    compile: str = setting(
        "auto",
        "compile a Transformer's blocks: on, off, or auto = on a GPU, if it is faster",
        choices=SWITCH,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_tokens < self.window:
            raise RegardError(
                f"training.batch_tokens ({self.batch_tokens}) must hold at least one window of {self.window} tokens."
            )
        if self.window and self.accumulate > self.rows:
            raise RegardError(f"training.accumulate ({self.accumulate}) cannot exceed the {self.rows} rows of a batch.")

    @property
    def rows(self) -> int:
        return self.batch_tokens // self.window

    @property
    def carries(self) -> bool:
        return self.batches == "stream"

    def for_context(self, context: int | None) -> Training:
        """The same settings with the window filled in: by default, all positions of the context are trained."""
        if not self.window:
            return dataclasses.replace(self, window=context or RECURRENT_WINDOW)
        if context is not None and self.window > context:
            raise RegardError(f"training.window ({self.window}) cannot exceed model.context ({context}).")
        return self


@dataclass(frozen=True)
class PairTraining(GradientTraining):
    """How a translation system learns from pairs: each target given its source and its own beginning."""

    on_pairs = True
    label_smoothing: float = setting(
        0.1, "share of the probability spread over all words (Szegedy et al. 2016); 0 = none", **RATE
    )
    consistency: float = setting(
        0.0, "R-Drop: weight of the divergence between two passes with different dropout; 0 = none", ge=0
    )
    keep: int = setting(5, "keep the weights of the last N validations, for `evaluate --average`; 0 = none", ge=0)
    select: str = setting(
        "loss",
        "criterion for the best weights: lowest loss, or highest bleu (of greedy translations)",
        choices=("loss", "bleu"),
    )
    validation_pairs: int = setting(1000, "pairs per validation, always the same ones; 0 = all", ge=0)
    capture: str = setting(
        "auto",
        "capture steps as CUDA graphs of few shapes: on, off, or auto = on a GPU, if it is faster",
        choices=SWITCH,
    )

    @property
    def terms(self) -> dict[str, float]:
        return {"smoothing": self.label_smoothing, "consistency": self.consistency}

    @property
    def kept(self) -> int:
        return self.keep


@dataclass(frozen=True)
class CountTraining(CheckedSettings):
    """A counted system (the n-gram) reads the text once; nothing is optimized."""

    section = "training"
    threads: int = setting(0, "CPU threads; 0 = one per core", ge=0, le=MAX_THREADS)
    seed: int = setting(1, "unused: counting draws no random numbers", ge=0)


@dataclass(frozen=True)
class Budget:
    """The end of a training: a number of steps, of tokens, or of seconds. The first two make a resume exact."""

    amount: float
    unit: str  # "steps", "tokens" or "seconds"
    whole: bool = True  # seconds: of the whole command, otherwise of its steps only

    @classmethod
    def parse(cls, text: str, steps: int) -> Budget:
        if not text:
            return cls(steps, "steps")
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*(tokens?|of steps)?\s*", text)
        scale = {"s": 1, "m": 60, "min": 60, "h": 3600}
        tokens = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "tokens": 1, "token": 1}
        if match and 0 < float(match[1]) < MAX_BUDGET:
            if match[2] in scale and match[3] in (None, "of steps"):
                return cls(float(match[1]) * scale[match[2]], "seconds", whole=match[3] is None)
            if match[2] in tokens and match[3] != "of steps":
                return cls(float(match[1]) * tokens[match[2]], "tokens")
        raise RegardError(
            f"training.budget {text!r} is neither a time (60s, 10m, 2h, 60s of steps) nor tokens (500k, 5M)."
        )
