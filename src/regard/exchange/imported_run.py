"""Another program's model as a run: recipe, tokenizer, weights and chat template. An error leaves no partial run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.writing import write_text
from regard.report.progress import say
from regard.runs.recipe import Recipe, compose
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import Tokenizers, build_model, has_source, set_weights
from regard.runs.store.lock import new_folder
from regard.text.chat_template import FILE as CHAT_TEMPLATE
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.vocabulary import valid_unicode
from regard.training.checkpoint import save_tensors

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
MAX_TEMPLATE = 1 << 18  # characters


def recipe_of(system: str, settings: Mapping[str, Any], tokenizer: Tokenizer, *, joint: bool = True) -> Recipe:
    """The recipe of an imported model. `joint`: a translator with one tokenizer for source and target."""
    data: dict[str, Any] = {"corpus": "", "tokenizer": tokenizer.kind, "vocabulary": tokenizer.vocabulary}
    if not joint:
        data["joint"] = False
    window, usual = settings.get("context", 0), compose(system, "", {"data": data}).training.batch_tokens
    training = {"batch_tokens": window} if window > usual else {}  # one window at least
    return compose(system, "", {"data": data, "model": dict(settings), "training": training})


def write_run(
    run: Path,
    recipe: Recipe,
    tokenizer: Tokenizer,
    state: dict[str, Tensor],
    source: Path,
    *,
    source_tokenizer: Tokenizer | None = None,
    template: str = "",
    precision: str = "fp32",
    what: str,
) -> Path:
    """Write the folder; `source` is the file or folder that the weights in `state` come from."""
    tokenizers = Tokenizers(tokenizer, (source_tokenizer or tokenizer) if has_source(recipe) else None)
    model = build_model(recipe, tokenizers, drawn=False).to(PRECISIONS[precision])
    set_weights(model, state, source)
    with new_folder(recipe, run) as made:
        write_folder(made, recipe, tokenizers)
        if template:
            write_text(made / CHAT_TEMPLATE, template)
        save_tensors(made / "model.safetensors", model.state_dict())
        write_facts(made, recipe, model, {"name": source.resolve().name})
    say(f"imported {group_digits(sum(weight.numel() for weight in model.parameters()))} parameters of {what}")
    if tokenizer.begin != tokenizer.eos:
        first, last = (tokenizer.token(n) for n in (tokenizer.begin, tokenizer.eos))
        say(f"each text begins with {first:.40} and ends with {last:.40}")
    return made


def checked_template(template: Any, where: Path) -> str:
    """A chat template as text, "" if there is none; it is stored, but not executed here."""
    if isinstance(template, list):  # several, by name
        named = [one for one in template if isinstance(one, dict) and one.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if template is None:
        return ""
    if not isinstance(template, str) or len(template) > MAX_TEMPLATE:
        raise RegardError(f"The chat template in {where} is not a string of at most {MAX_TEMPLATE} characters.")
    return valid_unicode(template)
