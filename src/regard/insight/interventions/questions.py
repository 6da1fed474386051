"""The questions of `regard inspect` about causes: --lens, --ablate, --patch, --why … --not, --head-scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.base.errors import RegardError
from regard.insight.interventions import terminal
from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.contrast import contrast
from regard.insight.interventions.head_scores import head_scores
from regard.insight.interventions.lens import lens
from regard.insight.interventions.patching import patch
from regard.insight.interventions.reading import read_text
from regard.systems.model import Model
from regard.text.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class CauseQuestion:
    """The question about a text: one of lens, ablate, patch, why and head_scores."""

    lens: bool = False
    ablate: str | None = None  # heads, layers, …
    removed: str | None = None  # zero, mean or resampled; of ablate
    patch: str | None = None  # the other text
    patch_parts: str | None = None  # layers or heads; of patch
    why: str | None = None
    rather: str | None = None  # --not: of why, and of patch
    head_scores: bool = False
    step: int | None = None  # whose prediction is compared; of patch and why

    def check(self) -> bool:
        """True if a question was asked; raises if the options are incompatible."""
        asked = {"--lens": self.lens, "--ablate": self.ablate, "--patch": self.patch, "--head-scores": self.head_scores}
        asked["--why"] = None if self.patch else self.why
        names = [name for name, value in asked.items() if value not in (None, False)]
        if len(names) > 1:
            raise RegardError(f"{names[0]} and {names[1]} are separate questions: ask one at a time.")
        if (self.why is None) != (self.rather is None):
            raise RegardError("--why A --not B contrasts two words: give both.")
        for name, value, of in (
            ("--with", self.removed, self.ablate), ("--patch-parts", self.patch_parts, self.patch)
        ):  # fmt: skip
            if value is not None and of is None:
                raise RegardError(f"{name} works only with {'--ablate' if name == '--with' else '--patch'}: add it.")
        if self.step is not None and not (self.why or self.patch):
            raise RegardError("--step works only with --work, --why or --patch: add one of them.")
        return bool(names)

    def answer(
        self, model: Model, tokenizer: Tokenizer, text: str, target: str | None, source_tokenizer: Tokenizer | None
    ) -> tuple[dict[str, Any], str]:
        """The answer for JSON and for the terminal."""
        lines = text.splitlines() if self.ablate is not None and "\n" in text.strip() else [text]
        readings = [read_text(model, tokenizer, line, target, source_tokenizer) for line in lines if line.strip()]
        first = readings[0]
        words = None if self.why is None or self.rather is None else (first.token(self.why), first.token(self.rather))
        if self.lens:
            return _both("lens", lens(first), terminal.show_lens)
        if self.ablate is not None:
            return _both(
                "ablate", ablate(readings, self.ablate or None, self.removed or "zero"), terminal.show_ablation
            )
        if self.patch is not None:
            second = read_text(model, tokenizer, self.patch, target, source_tokenizer)
            grid = patch(first, second, self.patch_parts or "layers", words, self.step)
            return _both("patch", grid, terminal.show_patch)
        if words is not None:
            return _both("why", contrast(first, *words, self.step), terminal.show_contrast)
        return _both("head_scores", head_scores(first), terminal.show_heads)


def _both(question: str, found: Any, show: Callable[[Any], str]) -> tuple[dict[str, Any], str]:
    return {"question": question, **found.as_json()}, show(found)
