"""Other programs that replace Regard's beam search: `regard translate RUN --engine NAME`."""

from __future__ import annotations

from regard.base.errors import RegardError
from regard.base.numbers import with_article
from regard.base.settings import check_choice
from regard.decoding.beam_engine import Searcher
from regard.runs.tasks.translation.run import TranslationRun

ENGINES = {"regard": "", "ctranslate2": "float32", "ctranslate2-int8": "int8"}  # each with its quantization


def open_engine(name: str, run: TranslationRun) -> Searcher | None:
    """The engine of that name for a run; None: Regard's own."""
    check_choice("--engine", name, tuple(ENGINES))
    if name == "regard":
        return None
    if run.recipe.system != "transformer":
        raise RegardError(
            f"--engine {name} supports only transformers, but {run.folder} is "
            f"{with_article(run.recipe.system)}: leave --engine out."
        )
    try:
        from regard.exchange import ctranslate2_model
    except ModuleNotFoundError as missing:
        if missing.name != "ctranslate2":
            raise
        raise RegardError(f"--engine {name} needs CTranslate2: pip install 'regard[ctranslate2]'.") from None
    return ctranslate2_model.open_engine(run, ENGINES[name])
