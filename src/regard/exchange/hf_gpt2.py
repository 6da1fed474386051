"""`gpt` as Hugging Face's GPT2LMHeadModel, and vice versa: the same blocks under different names.

GPT2LMHeadModel stores linear maps as [in, out] (`Conv1D`), Regard as [out, in]. Positions at the input become the table
that GPT-2 adds, missing biases are zeros, and a factor s on the word vectors is multiplied into the table: if it is
tied to the output, the last layer norm is divided by s.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import MAX_LAYERS
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.layers.position import INPUT_POSITIONS
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.gpt import GPT, Settings

SYSTEM, PREFIX = "gpt", "transformer."
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
NAMES = {  # Regard's name → GPT-2's, within a block
    "attention_norm": "ln_1",
    "attention.project": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feedforward_norm": "ln_2",
    "feedforward.expand": "mlp.c_fc",
    "feedforward.output": "mlp.c_proj",
}


def check_settings(settings: Settings, form: str) -> None:
    """Refuses settings that GPT-2 does not support; the error names the change to make."""
    if settings.position not in INPUT_POSITIONS:
        raise RegardError(
            f"model.position {settings.position} acts inside attention, but {form} adds positions at the input: train "
            "with --model.position learned."
        )
    if settings.combine != "add":
        raise RegardError(
            f"model.combine {settings.combine} cannot be exported: {form} adds positions to the word vectors; train "
            "with --model.combine add."
        )
    if settings.norm != "pre":
        raise RegardError(
            f"model.norm {settings.norm} cannot be exported: {form} normalizes before each part; train with "
            "--model.norm pre."
        )


def config_of(run: LanguageRun) -> dict[str, Any]:
    settings: Settings = run.recipe.model
    check_settings(settings, "GPT2LMHeadModel")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": run.tokenizer.vocabulary,
        "n_positions": settings.context,
        "n_embd": settings.width,
        "n_layer": settings.layers,
        "n_head": settings.heads,
        "n_inner": settings.feedforward or 4 * settings.width,
        "activation_function": "gelu_new" if settings.activation == "gelu" else settings.activation,
        "resid_pdrop": settings.dropout,
        "embd_pdrop": settings.dropout,
        "attn_pdrop": settings.dropout,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": settings.initial,
        "tie_word_embeddings": settings.tied,
        "bos_token_id": run.tokenizer.eos,  # one boundary: it begins a line and ends it
        "eos_token_id": run.tokenizer.eos,
        "pad_token_id": run.tokenizer.eos,
        "dtype": "float32",
    }


def tensors_of(model: GPT) -> dict[str, Tensor]:
    """The weights under GPT-2's names, linear maps as [out, in]."""
    settings, ours = model.settings, model.state_dict()
    scale, width = model.embedding.scale, settings.width
    tensors = {"wte.weight": ours["embedding.table.weight"] * scale, "wpe.weight": _positions(model)}
    for layer in range(settings.layers):
        for name, theirs in NAMES.items():
            weight = ours[f"layers.{layer}.{name}.weight"]
            tensors[f"h.{layer}.{theirs}.weight"] = weight
            tensors[f"h.{layer}.{theirs}.bias"] = ours.get(f"layers.{layer}.{name}.bias", torch.zeros(len(weight)))
    shrink = scale if settings.tied else 1.0
    tensors["ln_f.weight"] = ours["finish.weight"] / shrink
    tensors["ln_f.bias"] = ours.get("finish.bias", torch.zeros(width)) / shrink
    if not settings.tied:
        tensors["output.weight"] = ours["output.weight"]
    return tensors


def _positions(model: GPT) -> Tensor:
    """The vectors added at the first `context` positions: [context, width]."""
    settings, position = model.settings, model.embedding.position
    if position is None:
        return torch.zeros(settings.context, settings.width)
    places = position(torch.arange(settings.context)[None], torch.float32)[0].detach()
    return torch.nn.functional.pad(places, (0, settings.width - places.size(-1)))


def as_huggingface(model: GPT, config: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors for GPT2LMHeadModel: with its prefix, and linear maps as [in, out]."""
    tensors = tensors_of(model)
    output = tensors.pop("output.weight", None)
    named = {
        PREFIX + name: tensor.T if ".c_" in name and tensor.dim() == 2 else tensor for name, tensor in tensors.items()
    }
    return named if output is None else {**named, "lm_head.weight": output}


# -- the other way ---------------------------------------------------------------------------------------------------


def settings_in(config: Config) -> dict[str, Any]:
    """Regard's settings for a GPT-2 folder; a setting that `gpt` does not have is an error."""
    config.must_be(
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
        layer_norm_epsilon=1e-5,
    )
    width, layers = config.number("n_embd"), config.number("n_layer")
    if not 1 <= layers <= MAX_LAYERS:
        config.wrong(f"n_layer is {layers}, but Regard supports 1 to {MAX_LAYERS}")
    inner = config.number("n_inner", 4 * width)
    return {
        "layers": layers,
        "width": width,
        "heads": config.number("n_head"),
        "context": config.number("n_positions"),
        "feedforward": 0 if inner == 4 * width else inner,
        "activation": config.one("activation_function", ACTIVATIONS, "gelu_new"),
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("resid_pdrop", 0.1),
    }


def state_in(config: Config, weights: ForeignWeights, settings: Settings, vocabulary: int) -> dict[str, Tensor]:
    """The state dict of Regard's model from the tensors of the file; rows of word vectors in the file's order."""
    width, inner = settings.width, settings.feedforward or 4 * settings.width
    weights.ignore(r"h\.\d+\.attn\.(masked_)?bias")
    turned = weights.shape("h.0.attn.c_attn.weight") == [width, 3 * width]  # Conv1D; minGPT has [out, in]
    shapes = {
        "attention.project": (3 * width, width),
        "attention.output": (width, width),
        "feedforward.expand": (inner, width),
        "feedforward.output": (width, inner),
    }
    state = {
        "embedding.table.weight": weights.take("wte.weight", vocabulary, width),
        "embedding.position.table.weight": weights.take("wpe.weight", settings.context, width),
        "finish.weight": weights.take("ln_f.weight", width),
        "finish.bias": weights.take("ln_f.bias", width),
    }
    for layer in range(settings.layers):
        for name, theirs in NAMES.items():
            shape = shapes.get(name, (width,))
            place, mine = f"h.{layer}.{theirs}", f"layers.{layer}.{name}"
            turn = turned and len(shape) == 2
            weight = weights.take(f"{place}.weight", *(reversed(shape) if turn else shape))
            state[f"{mine}.weight"] = weight.T.contiguous() if turn else weight
            state[f"{mine}.bias"] = weights.take(f"{place}.bias", shape[0])
    if settings.tied:
        weights.ignore(r"lm_head\.weight")
    else:
        state["output.weight"] = weights.take("lm_head.weight", vocabulary, width)
    weights.finish("a GPT-2")
    return state
