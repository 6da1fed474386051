"""Matching systems by parameters: each width is chosen so that the number of parameters is nearest to the target.

The target is the count of one system at the requested size: the lstm, or the transformer for translation. The count
grows with the width, so the best width is found by bisection; if the number of heads allows only every fourth or sixth
width, the width of the feed-forward network is also adjusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import torch

from regard.base.errors import RegardError
from regard.comparison.question import Question, Rung
from regard.comparison.task import task_named
from regard.runs.recipe import Recipe
from regard.runs.store.folder import Tokenizers, build_model, count_parameters
from regard.systems.catalogue import find
from regard.text.tokenizers.tokenizer import Tokenizer

Settings = Mapping[str, Mapping[str, Any]]


def match_parameters(
    question: Question, rungs: list[Rung], tokenizer: Tokenizer, source: Tokenizer | None = None
) -> tuple[int, dict[str, Settings]]:
    """The target, and for each neural row the settings that match it; `source`: the source tokenizer of translators."""
    name, tokenizers = task_named(question.task).reference, Tokenizers(tokenizer, source)
    target, _ = size_of(question.recipe(Rung(name, find(name))), tokenizer, source)
    chosen = {}
    for rung in rungs:
        if not rung.counted:
            chosen[rung.label] = _Search(question, rung, tokenizers, target).settings()
    return target, chosen


def size_of(recipe: Recipe, tokenizer: Tokenizer, source: Tokenizer | None = None) -> tuple[int, int | None]:
    """Parameters and context of a neural system, from a model on the meta device."""
    with torch.device("meta"):
        model = build_model(recipe, Tokenizers(tokenizer, source), drawn=False)
    return count_parameters(model), model.context


class _Search:
    def __init__(self, question: Question, rung: Rung, tokenizers: Tokenizers, target: int):
        self.question, self.rung, self.tokenizers, self.target = question, rung, tokenizers, target
        self.count = lru_cache(maxsize=None)(self._count)
        model = question.recipe(rung).model
        self.names = {f.name for f in fields(model)}
        if "width" not in self.names:
            raise RegardError(
                f"{rung.label} has no model.width to adjust for equal parameters: leave this system out, or use "
                "--match tokens."
            )
        self.step = getattr(model, "width_step", getattr(model, "heads", 1))  # heads must divide the width

    def settings(self) -> Settings:
        low, high = 1, 2
        while self.count(high * self.step) < self.target:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.count(middle * self.step) < self.target else (low, middle)
        width = min((low * self.step, high * self.step), key=self._distance)
        return {"model": {"width": width, **self._feedforward(width)}}

    def _feedforward(self, width: int) -> dict[str, int]:
        """The count is linear in this setting, so two counts determine the nearest value."""
        if "feedforward" not in self.names or "feedforward" in self.question.settings.get("model", {}):
            return {}
        base = 4 * width
        each = self.count(width, base + 1) - self.count(width, base)
        return {"feedforward": max(1, base + round((self.target - self.count(width, base)) / each))} if each else {}

    def _distance(self, width: int) -> int:
        return abs(self.count(width) - self.target)

    def _count(self, width: int, feedforward: int | None = None) -> int:
        more = {"width": width} | ({} if feedforward is None else {"feedforward": feedforward})
        recipe = self.question.recipe(self.rung, {"model": more})
        return size_of(recipe, self.tokenizers.target, self.tokenizers.source)[0]
