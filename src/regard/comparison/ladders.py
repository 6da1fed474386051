"""The comparisons of `regard demo`: all language models and all translators, on built-in text, with a time for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.base.device import cores
from regard.comparison.question import Question
from regard.systems.catalogue import SYSTEMS

CORPUS = "phrasebook"
PROMPT = "The "
SIZE = "tiny"


@dataclass(frozen=True)
class Ladder:
    """The systems of one task with their settings; `seconds`: the training time of each if it has its own core."""

    task: str
    folder: str  # inside the demo's
    seconds: float
    besides: float  # additional seconds of a system: start, validation, test, files
    settings: dict[str, dict[str, Any]]
    prompt: str = ""

    def question(self, budget: str, *, everything: bool = False) -> Question:
        of_task = [system for system in SYSTEMS if system.task == self.task]
        names = tuple(system.name for system in of_task if everything or not system.after_gpt)
        return Question(names, CORPUS, "seconds", budget, 1, SIZE, self.settings, self.prompt)

    def too_short(self, seconds: float) -> str:
        return (
            f"A budget of {seconds:g} s is too small for a {self.task} system to learn much, so expect poor or empty "
            f"output; use at least {self.seconds:g} s."
        )

    def budget(self) -> str:
        return f"{self.seconds if side_by_side() else self.seconds / 2:g}s"


LANGUAGE = Ladder(
    "language model",
    "language",
    seconds=24,
    besides=9,
    settings={  # half a minute: many small steps, and little of it spent on validation
        "data": {"tokenizer": "word"},  # 1780 words: few enough for half a minute
        "model": {
            "context": 32,  # of gpt and self-attention; the gradients of the others go back equally far
            "layers": 1,  # of all: a second layer costs more than it improves in that time
            "heads": 4,  # gpt, as the next two: at width 64, GPT-2's initial weights are small, and it starts slowly
            "initial": 0.07,
            "scale": 2.5,
        },
        "training": {"window": 32, "batch_tokens": 512, "warmup": 150, "validation_tokens": 4000, "threads": 1},
    },
    prompt=PROMPT,
)
TRANSLATION = Ladder(
    "translation",
    "translation",
    seconds=73,
    besides=18,
    settings={  # about a minute: many small steps, down to a small learning rate, without dropout
        "data": {"vocabulary": 2500, "joint": False},  # most words are one piece: split words are harder to learn
        "model": {"position": "rotary"},  # transformer: learned faster than sine waves, above all in long sentences
        "training": {
            "batch_tokens": 512,
            "schedule": "cosine",
            "warmup": 100,
            "label_smoothing": 0.0,
            "validation_pairs": 100,
            "threads": 1,
        },
    },
)


def side_by_side() -> bool:
    """True if there is a core for each ladder."""
    return cores() > 1
