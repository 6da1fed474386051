"""Translation: a sentence in, a sentence of another language out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.runs.tasks.pair_task import PairTask
from regard.text.pairs import weighted

if TYPE_CHECKING:
    from regard.runs.folder import Tokenizers
    from regard.runs.recipe import Recipe
    from regard.runs.tasks.translation.run import TranslationRun
    from regard.systems.model import Model

SEARCH = ("prefix", "beam", "length_penalty")  # options of the search


class TranslationTask(PairTask):
    name, noun = "translation", "a translator"
    purpose, verb = "which translates", "translate"
    comparison = ".comparison.translation_task:TRANSLATION"

    def resolved_data(self, recipe: Recipe, corpus: Any, tokenizers: Tokenizers) -> dict[str, Any]:
        data = recipe.data
        return {
            "joint": tokenizers.source is tokenizers.target,
            "monolingual": _absolute(data.monolingual),
            "translator": _absolute(data.translator),
            "also": ",".join(f"{_absolute(path)}:{weight:g}" for path, weight in weighted(data.also)),
        }

    def make_run(
        self, folder: Path, recipe: Recipe, tokenizers: Tokenizers, model: Model, unseen: Sequence[int]
    ) -> TranslationRun:
        from regard.runs.tasks.translation.run import TranslationRun

        assert tokenizers.source is not None
        return TranslationRun(folder, recipe, tokenizers.source, tokenizers.target, model, unseen)

    def answers(self, run: TranslationRun, sources: Sequence[str]) -> list[str]:
        return [best.text for best, *_ in run.translations(sources, truncate=True)]

    def look_inside(self, run: Any, how: str, text: str, target: str | None = None, **options: Any) -> Any:
        kept = (*SEARCH, *(("top", "gradients") if how == "trace" else ("trace",)))
        return getattr(run, how)(text, target, **{name: value for name, value in options.items() if name in kept})


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if path else ""


TASK = TranslationTask()
