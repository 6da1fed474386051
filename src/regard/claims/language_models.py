"""The small language models of claims, trained on the phrasebook's sentences or on its shuffled words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from regard.claims import corpora, known_grammar
from regard.claims.claim import Trial
from regard.claims.models import trained
from regard.runs.tasks.language.run import LanguageRun

WINDOW = 32
STEPS, QUICK_STEPS = 1200, 200
MODELS = {
    "gpt": {"layers": 2, "width": 32, "heads": 4, "context": WINDOW, "dropout": 0.0},
    "rnn": {"layers": 1, "width": 64, "embedding": 32, "tied": False, "dropout": 0.0},
    "lstm": {"layers": 1, "width": 64, "embedding": 32, "tied": False, "dropout": 0.0},
}
RATES = {"gpt": 8e-3, "rnn": 5e-3, "lstm": 1e-2}


@cache
def spoken() -> dict[str, list[str]]:
    return corpora.sentences()


TEXTS: dict[str, Callable[[], corpora.Splits]] = {
    "sentences": spoken,
    "shuffled": lambda: corpora.shuffled(spoken()),
    "grammar": known_grammar.sentences,
}


def reader(trial: Trial, system: str, seed: int, text: str = "sentences") -> LanguageRun:
    """A language model trained on one of the texts."""
    folder = corpora.keep(text, TEXTS[text](), "txt", trial.store)
    steps = QUICK_STEPS if trial.quick else STEPS
    return trained(
        LanguageRun,
        system,
        folder,
        seed=seed,
        size="tiny",
        store=trial.store,
        settings={
            "data": {"tokenizer": "word", "vocabulary": 1200},
            "model": MODELS[system],
            "training": {
                "steps": steps,
                "learning_rate": RATES[system],
                "warmup": 50,
                "batch_tokens": 1024,
                "window": WINDOW,
                "evaluate_every": steps,
                "checkpoint_every": steps,
                "threads": 1,
                "device": trial.device,
            },
        },
    )
