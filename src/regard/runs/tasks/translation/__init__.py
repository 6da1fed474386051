"""Translation: a sentence in, a sentence of another language out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.runs.tasks.pair_task import READING, PairTask
from regard.runs.tasks.task import TRACE
from regard.text.pairs import weighted

if TYPE_CHECKING:
    from regard.runs.recipe import Recipe
    from regard.runs.store.folder import Tokenizers
    from regard.runs.tasks.translation.run import TranslationRun
    from regard.systems.model import Model

SEARCH = ("--beam", "--length-penalty")
SEARCHED = "prefix", "beam", "length_penalty"  # options of a look inside, which searches for a translation


class TranslationTask(PairTask):
    """A sentence in, its translation out."""

    name, noun = "translation", "a translator"
    purpose, verb = "which translates", "translate"
    options: ClassVar[Mapping[str, Collection[str]]] = {
        "evaluate": (*SEARCH, "--bleu-tokenizer", "--by-length", "--texts"),
        "inspect": ("--target", "--prefix", *SEARCH),
        "chat": (*SEARCH, "--n-best"),
        "score": READING,
    }
    inside: ClassVar[Mapping[str, Collection[str]]] = {
        "trace": (*SEARCHED, *TRACE),
        "calculation": (*SEARCHED, "trace"),
    }
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

    def evaluate(
        self,
        run: TranslationRun,
        split: str | None,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        by_length: bool = False,
        texts: bool = False,
        bleu_tokenizer: str | None = None,
        **reading: Any,
    ) -> dict[str, Any]:
        """The scores; with `texts`, also every source, reference and translation, as "texts"."""
        from regard.decoding.beam import BEAM, Beam

        how = Beam(
            BEAM.width if beam is None else beam, BEAM.length_penalty if length_penalty is None else length_penalty
        )
        facts = run.evaluate(split, beam=how, lengths=by_length, texts=texts, bleu_tokenizer=bleu_tokenizer, **reading)
        if texts:
            sources, references = zip(*run.pairs(reading["data"], split, reading["columns"], reading["encoding"]))
            written = facts.pop("translations")
            facts["texts"] = {"sources": sources, "references": references, "translations": written}
        return facts


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if path else ""


TASK = TranslationTask()
