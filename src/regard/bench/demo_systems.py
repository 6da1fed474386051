"""The neural systems of `regard demo`: the steps of its trainings, beside a plain PyTorch loop of the same model.

    logits = model(tokens);   loss = F.cross_entropy;   backward;   clip;   torch.optim.AdamW

The loop has the same weights and batches, and layers as fast as Regard's (PyTorch's own recurrent and attention
kernels, not the written equation), so what is compared is the training step. As in the demo each has one thread.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.bench.contenders import BenchRow, BenchSetup, Contender, Cost
from regard.bench.counting import one_thread
from regard.bench.training_step import LEARNING, RegardTraining, adamw, count
from regard.comparison.ladders import LANGUAGE, TRANSLATION
from regard.layers.state import State, detach
from regard.report.progress import hushed
from regard.runs.prepare import Prepared, prepare
from regard.runs.recipe import Recipe
from regard.runs.speed import install
from regard.systems.model import Stack
from regard.training.objective import to_device

QUICK: dict[str, dict[str, Any]] = {
    "data": {"corpus": "copy", "tokenizer": "word", "vocabulary": 0},
    "model": {"dropout": 0.0},
}


class RegardSteps(RegardTraining):
    def __init__(self, ready: Prepared, place: BenchSetup) -> None:
        model = copy.deepcopy(ready.model)
        super().__init__(model, ready.data.batches(ready.recipe, model), ready.recipe.training, place)

    def __call__(self) -> int:
        with one_thread():
            return super().__call__()


class PlainLoop:
    def __init__(self, ready: Prepared, place: BenchSetup) -> None:
        self.model = copy.deepcopy(ready.model).to(place.device).train()
        install(self.model, training=True)
        self.batches, self.parameters = ready.data.batches(ready.recipe, self.model), count(self.model)
        self.carries = getattr(ready.recipe.training, "batches", "") == "stream"
        self.optimizer, self.number = adamw(self.model, captured=False), 0
        self.state: State | None = None

    def __call__(self) -> int:
        with one_thread():
            return self._step()

    def _step(self) -> int:
        found = self.batches.batch(self.number)
        batch, self.number = to_device(found, self.model.device), self.number + 1
        state: State | None
        if batch.source is not None:
            state = self.model.begin(batch.source, batch.source_lengths)
        elif self.carries:
            state = None if found.fresh else self.state
        else:
            state = self.model.without_cache(len(batch.tokens)) if isinstance(self.model, Stack) else None
        logits, after = self.model(batch.tokens, state)
        targets = batch.targets
        if batch.lengths is not None:
            targets = targets.masked_fill(torch.arange(targets.size(1)) >= batch.lengths[:, None], -100)
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), LEARNING["clip"])
        self.optimizer.step()
        self.state = detach(after) if self.carries else None
        return targets.numel() if batch.lengths is None else int(batch.lengths.sum())


def rows(place: BenchSetup) -> list[BenchRow]:
    here = BenchSetup(torch.device("cpu"), "quick" if place.size == "quick" else "small")
    return [row(recipe, here) for recipe in recipes(QUICK if here.size == "quick" else {})]


def recipes(more: Mapping[str, Mapping[str, Any]]) -> list[Recipe]:
    """The recipes of every neural system of both ladders, with these settings added."""
    questions = (ladder.question("1s") for ladder in (LANGUAGE, TRANSLATION))
    rungs = ((question, rung) for question in questions for rung in question.rungs() if not rung.counted)
    return [question.recipe(rung, {"training": LEARNING, **more}) for question, rung in rungs]


def row(recipe: Recipe, place: BenchSetup) -> BenchRow:
    with one_thread(), hushed():
        ready = prepare(recipe)
    tokens = ready.recipe.training.batch_tokens
    return BenchRow(
        f"demo {recipe.system}",
        place,
        f"{tokens} tokens a step, {ready.data.tokenizers.target.vocabulary} words, fp32, one thread",
        [
            Contender("Regard", partial(RegardSteps, ready, place)),
            Contender("a plain PyTorch loop", partial(PlainLoop, ready, place)),
        ],
        Cost(operations=ready.model.flops_per_token),
        warm_up=place.of(1, 10, 1),
        calls=place.of(1, 30, 1),
    )
