"""A GPT as minGPT stores it, in one JSON file: GPT-2's names, each tensor as a shape and base64 of float32.

Such models were trained on plain numbers, without a boundary. They become runs over the letters A, B, C, … with
`<eos>` and `<unk>` before them, whose vectors are zero: on the letters, `run.model` computes the same as the original.
"""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.exchange import hf_gpt2
from regard.exchange.foreign_folder import Config, ForeignWeights, read_json
from regard.report.progress import say
from regard.runs.recipe import compose
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import Tokenizers, build_model, set_weights
from regard.runs.store.lock import check_free, new_folder
from regard.text.tokenizers.engine import EOS, UNK
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import save_tensors

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SPECIALS = [EOS, UNK]


class Stored:
    """A tensor of the file, with the interface that `Weights` needs."""

    def __init__(self, path: Path, name: str, values: Any) -> None:
        self.shape = values.get("shape") if isinstance(values, dict) else None
        data = values.get("data") if isinstance(values, dict) else None
        sizes = self.shape if isinstance(self.shape, list) else ["?"]
        if not all(type(size) is int and size >= 0 for size in sizes) or not isinstance(data, str):
            raise RegardError(f"{name} in {path} is not a tensor with a shape and data: the file is damaged.")
        try:
            self.bytes = base64.b64decode(data, validate=True)
        except ValueError:
            raise RegardError(f"The data of {name} in {path} is not valid base64: the file is damaged.") from None
        if len(self.bytes) != 4 * math.prod(sizes):
            raise RegardError(f"{name} in {path} has {len(self.bytes)} bytes, which does not match its shape {sizes}.")

    def get_slice(self, name: str) -> Stored:
        return self

    def get_shape(self) -> list[int]:
        return list(self.shape or [])

    def get_dtype(self) -> str:
        return "F32"

    def get_tensor(self, name: str) -> Tensor:
        return torch.frombuffer(bytearray(self.bytes), dtype=torch.float32).reshape(self.get_shape())


def read(file: Path, run: Path, tokenizer_file: Path | None = None) -> Path:
    if tokenizer_file is not None:
        raise RegardError("--tokenizer does not apply: this model reads characters.")
    check_free(run)
    there = read_json(file)
    if not isinstance(values := there.get("config"), dict):
        raise RegardError(f"{file} is JSON without a model config: Regard reads only minGPT's layout.")
    config = Config(file, values | {"n_positions": values.get("block_size")})
    size = config.number("vocab_size")
    if not 1 <= size <= len(LETTERS):
        config.wrong(f"vocab_size is {size}, but Regard supports at most {len(LETTERS)} characters")
    settings = hf_gpt2.settings_in(config) | {"tied": False}
    recipe = compose("gpt", "", {"data": {"corpus": "", "tokenizer": "char"}, "model": settings})
    tensors = {name: Stored(file, name, values) for name, values in there.items() if name != "config"}
    state = hf_gpt2.state_in(config, ForeignWeights(file, tensors, hf_gpt2.PREFIX), recipe.model, size)
    for name in ("embedding.table.weight", "output.weight"):
        state[name] = torch.cat([torch.zeros(len(SPECIALS), recipe.model.width), state[name]])
    tokenizers = Tokenizers(Tokenizer.of_tokens([*SPECIALS, *LETTERS[:size]], "char"))
    model = build_model(recipe, tokenizers, drawn=False)
    set_weights(model, state, file)
    with new_folder(recipe, run) as made:
        write_folder(made, recipe, tokenizers)
        save_tensors(made / "model.safetensors", model.state_dict())
        write_facts(made, recipe, model, {"name": file.name})
    say(
        f"imported {group_digits(sum(weight.numel() for weight in model.parameters()))} parameters, with a "
        f"vocabulary of {size} characters"
    )
    say(
        "note: this model was trained without <eos>, but Regard begins every line with it: run.model is "
        "exact, but the scores of lines are not"
    )
    return made
