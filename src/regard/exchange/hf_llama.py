"""`llama` as Hugging Face's LlamaForCausalLM, and the other way round: the same numbers under other names.

`attention.project` is q_proj, k_proj and v_proj, one below the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.base.settings import MAX_LAYERS
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.layers.blocks import RMS_EPSILON
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.llama import Llama, Settings

SYSTEM, PREFIX = "llama", "model."
THETA = 10000.0  # of the rotary frequencies, as in layers/position.py


def config_of(run: LanguageRun) -> dict[str, Any]:
    settings: Settings = run.recipe.model
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": run.tokenizer.vocabulary,
        "hidden_size": settings.width,
        "intermediate_size": settings.inner,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.groups,
        "head_dim": settings.width // settings.heads,
        "hidden_act": "silu",
        "max_position_embeddings": settings.context,
        "rms_norm_eps": RMS_EPSILON,
        "rope_theta": THETA,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": settings.dropout,
        "initializer_range": settings.initial,
        "tie_word_embeddings": settings.tied,
        "bos_token_id": run.tokenizer.eos,  # one boundary: it begins a line and ends it
        "eos_token_id": run.tokenizer.eos,
        "pad_token_id": run.tokenizer.eos,
        "dtype": "float32",
    }


def _maps(settings: Settings) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Our name, and those of theirs that it is made of, with their shapes."""
    width, inner, head = settings.width, settings.inner, settings.width // settings.heads
    keys = settings.groups * head
    for layer in range(settings.layers):
        ours, theirs = f"layers.{layer}", f"layers.{layer}"
        projections = {"q_proj": (width, width), "k_proj": (keys, width), "v_proj": (keys, width)}
        yield f"{ours}.attention.project", {f"{theirs}.self_attn.{name}": size for name, size in projections.items()}
        yield f"{ours}.attention.output", {f"{theirs}.self_attn.o_proj": (width, width)}
        yield f"{ours}.attention_norm", {f"{theirs}.input_layernorm": (width,)}
        yield f"{ours}.feedforward_norm", {f"{theirs}.post_attention_layernorm": (width,)}
        yield f"{ours}.feedforward.gate", {f"{theirs}.mlp.gate_proj": (inner, width)}
        yield f"{ours}.feedforward.expand", {f"{theirs}.mlp.up_proj": (inner, width)}
        yield f"{ours}.feedforward.output", {f"{theirs}.mlp.down_proj": (width, inner)}
    yield "finish", {"norm": (width,)}


def tensors_of(model: Llama) -> dict[str, Tensor]:
    """The weights under Llama's names, without a prefix."""
    ours = model.state_dict()
    tensors = {"embed_tokens.weight": ours["embedding.table.weight"]}
    for name, theirs in _maps(model.settings):
        pieces = ours[f"{name}.weight"].split([size[0] for size in theirs.values()])
        tensors |= {f"{place}.weight": piece for place, piece in zip(theirs, pieces)}
    if not model.settings.tied:
        tensors["lm_head.weight"] = ours["output.weight"]
    return tensors


def as_huggingface(model: Llama, config: dict[str, Any]) -> dict[str, Tensor]:
    tensors = tensors_of(model)
    return {name if name == "lm_head.weight" else PREFIX + name: tensor for name, tensor in tensors.items()}


def settings_in(config: Config) -> dict[str, Any]:
    """Our settings for a Llama folder; settings that `llama` does not have are refused."""
    config.must_be(rms_norm_eps=RMS_EPSILON, hidden_act="silu", attention_bias=False, mlp_bias=False, pretraining_tp=1)
    width, layers, heads = (config.number(f"{n}") for n in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    if not 1 <= layers <= MAX_LAYERS:
        config.wrong(f"num_hidden_layers is {layers}, and Regard builds 1 to {MAX_LAYERS}")
    if heads < 1 or config.number("head_dim", width // max(heads, 1)) * heads != width:
        config.wrong("head_dim × num_attention_heads is not hidden_size, as Regard needs it")
    _check_rotation(config)
    return {
        "layers": layers,
        "width": width,
        "heads": heads,
        "key_value_heads": config.number("num_key_value_heads", heads),
        "context": config.number("max_position_embeddings", 2048),
        "feedforward": config.number("intermediate_size"),
        "tied": config.flag("tie_word_embeddings", False),
        "dropout": config.rate("attention_dropout"),
    }


def _check_rotation(config: Config) -> None:
    """Frequencies of 10000^(−2k/d), not stretched; transformers 5 puts them in `rope_parameters`."""
    stretched = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if not isinstance(stretched, dict):
        config.wrong("rope_parameters must be an object")
    kind = stretched.get("rope_type", stretched.get("type", "default"))
    theta = stretched.get("rope_theta", config.values.get("rope_theta", THETA))
    if kind != "default" or theta != THETA or stretched.get("partial_rotary_factor", 1.0) != 1.0:
        config.wrong(
            f"its rotary positions are {kind!r:.20} with theta {theta!r:.20}, and Regard has theta {THETA:g} alone"
        )


def state_in(config: Config, weights: ForeignWeights, settings: Settings, vocabulary: int) -> dict[str, Tensor]:
    """The state of our model from the tensors of theirs; rows of word vectors in their order."""
    weights.ignore(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
    state = {"embedding.table.weight": weights.take("embed_tokens.weight", vocabulary, settings.width)}
    for name, theirs in _maps(settings):
        state[f"{name}.weight"] = torch.cat([weights.take(f"{place}.weight", *size) for place, size in theirs.items()])
    if settings.tied:
        weights.ignore(r"lm_head\.weight")
    else:
        state["output.weight"] = weights.take("lm_head.weight", vocabulary, settings.width)
    weights.finish("a Llama")
    return state
