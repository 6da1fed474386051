"""The .bin file of Karpathy's llama2.c as a `llama` run, with its tok.bin or a SentencePiece model as tokenizer.

Seven int32 (width, feed-forward, layers, heads, key/value heads, vocabulary, context; a negative vocabulary means that
the output has a table of its own), then float32: each kind of weight for all layers, one after the other. The file has
no names, so its size must be exactly the one that its header implies. Neighboring components rotate together there, k
and k + d/2 here, so the rows of W_q and W_k are reordered.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.reading import open_file
from regard.base.settings import MAX_LAYERS
from regard.exchange.foreign_tokenizers import llama2c_tokenizer
from regard.exchange.imported_run import recipe_of, write_run
from regard.exchange.sentencepiece_file import sentencepiece_model
from regard.runs.store.lock import check_free
from regard.text.tokenizers.imported import import_engine

HEADER = struct.Struct("<7i")
BEGIN, EOS = 1, 2  # <s> and </s>


def read(file: Path, run: Path, tokenizer_file: Path | None = None, *, precision: str = "fp32") -> Path:
    """Make a run from a llama2.c checkpoint."""
    check_free(run)
    with open_file(file) as stream:
        head = stream.read(HEADER.size)
        size = stream.seek(0, 2)
        if len(head) < HEADER.size:
            raise RegardError(f"{file} is too short for a llama2.c checkpoint.")
        width, inner, layers, heads, groups, vocabulary, context = HEADER.unpack(head)
        tied, vocabulary = vocabulary > 0, abs(vocabulary)
        shapes = _shapes(width, inner, layers, heads, groups, vocabulary, context, tied)
        if not shapes or size != HEADER.size + 4 * sum(map(math.prod, shapes.values())):
            raise RegardError(
                f"{file} is not a checkpoint of the first llama2.c version: its size does not match its header."
            )
        if tokenizer_file is None:
            raise RegardError(f"{file} has no tokenizer: give llama2.c's tok.bin or a .model file with --tokenizer.")
        stream.seek(HEADER.size)
        numbers = {name: _take(stream.read(4 * math.prod(shape)), shape) for name, shape in shapes.items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in numbers.values()):
        raise RegardError(f"{file} contains infinite or NaN values: it is damaged.")
    if tokenizer_file.suffix == ".model":
        engine, begin, eos = sentencepiece_model(tokenizer_file)
    else:
        engine, begin, eos = llama2c_tokenizer(tokenizer_file, vocabulary), BEGIN, EOS
    try:
        tokenizer = import_engine(engine, begin=begin, eos=eos, vocabulary=vocabulary)
    except RegardError as error:
        raise RegardError(f"{tokenizer_file} {error}.") from None
    settings = {"layers": layers, "width": width, "heads": heads, "key_value_heads": groups, "context": context}
    settings |= {"feedforward": inner, "tied": tied, "dropout": 0.0}
    state = _state(numbers, layers, heads, groups, tied)
    recipe = recipe_of("llama", settings, tokenizer)
    return write_run(run, recipe, tokenizer, state, file, precision=precision, what="a llama2.c model")


def _shapes(
    width: int, inner: int, layers: int, heads: int, groups: int, vocabulary: int, context: int, tied: bool
) -> dict[str, tuple[int, ...]]:
    """The shapes of the file's tensors, in order; empty for an impossible header."""
    counts = (width, inner, layers, heads, groups, vocabulary, context)
    if min(counts) < 1 or layers > MAX_LAYERS or width % (2 * heads) or heads % groups:
        return {}
    keys = width // heads * groups
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (vocabulary, width),
        "attention_norm": (layers, width),
        "query": (layers, width, width),
        "key": (layers, keys, width),
        "value": (layers, keys, width),
        "output": (layers, width, width),
        "feedforward_norm": (layers, width),
        "gate": (layers, inner, width),
        "down": (layers, width, inner),
        "expand": (layers, inner, width),
        "finish": (width,),
        "rotations": (context, width // heads),  # cosines and sines, which follow from the positions
    }
    return shapes if tied else {**shapes, "classifier": (vocabulary, width)}


def _take(stored: bytes, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.frombuffer(bytearray(stored), "<f4").reshape(shape))


def _state(numbers: dict[str, Tensor], layers: int, heads: int, groups: int, tied: bool) -> dict[str, Tensor]:
    state = {"embedding.table.weight": numbers["embedding"], "finish.weight": numbers["finish"]}
    for layer in range(layers):
        one = {name: tensor[layer] for name, tensor in numbers.items() if tensor.dim() > 1 and len(tensor) == layers}
        query, key = _halves(one["query"], heads), _halves(one["key"], groups)
        state |= {
            f"layers.{layer}.attention_norm.weight": one["attention_norm"],
            f"layers.{layer}.attention.project.weight": torch.cat([query, key, one["value"]]),
            f"layers.{layer}.attention.output.weight": one["output"],
            f"layers.{layer}.feedforward_norm.weight": one["feedforward_norm"],
            f"layers.{layer}.feedforward.gate.weight": one["gate"],
            f"layers.{layer}.feedforward.expand.weight": one["expand"],
            f"layers.{layer}.feedforward.output.weight": one["down"],
        }
    return state if tied else {**state, "output.weight": numbers["classifier"]}


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Rows [heads, d/2, 2] → [heads, 2, d/2]."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)
