"""`llama` as Hugging Face's LlamaForCausalLM, and vice versa: the same numbers under other names.

`attention.project` is q_proj, k_proj and v_proj, concatenated by rows. Mistral without a sliding window is the same
model; Qwen2 has biases only on these three, so `model.bias qkv` is written as Qwen2ForCausalLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.base.settings import MAX_LAYERS
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.layers.position import THETA
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.llama import BIASES, Llama, Settings

SYSTEM, PREFIX = "llama", "model."
STRETCHED = {
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "original_max_position_embeddings": "context",
}


def config_of(run: LanguageRun) -> dict[str, Any]:
    settings: Settings = run.recipe.model
    return {
        "architectures": ["Qwen2ForCausalLM" if settings.bias == "qkv" else "LlamaForCausalLM"],
        "model_type": "qwen2" if settings.bias == "qkv" else "llama",
        "vocab_size": run.tokenizer.vocabulary,
        "hidden_size": settings.width,
        "intermediate_size": settings.inner,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.groups,
        "head_dim": settings.head,
        "hidden_act": "silu",
        "max_position_embeddings": settings.context,
        "rms_norm_eps": settings.epsilon,
        "rope_theta": settings.theta,
        "rope_scaling": _scaling_of(settings),
        "attention_bias": settings.bias in ("attention", "all"),
        "mlp_bias": settings.bias == "all",
        "attention_dropout": settings.dropout,
        "initializer_range": settings.initial,
        "tie_word_embeddings": settings.tied,
        "bos_token_id": run.tokenizer.begin,  # one boundary in Regard's own models: it begins a line and ends it
        "eos_token_id": run.tokenizer.eos,
        "pad_token_id": run.tokenizer.eos,
        "dtype": "bfloat16" if next(run.model.parameters()).dtype == torch.bfloat16 else "float32",
    }


def _scaling_of(settings: Settings) -> dict[str, Any] | None:
    if settings.stretch == "none":
        return None
    scaling = {"rope_type": settings.stretch, "factor": settings.stretch_factor}
    if settings.stretch == "llama3":
        scaling |= {name: getattr(settings, f"stretch_{ours}") for name, ours in STRETCHED.items()}
    return scaling


def _maps(settings: Settings) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Regard's name, and the names in LlamaForCausalLM of its parts, with their shapes."""
    width, inner = settings.width, settings.inner
    queries, keys = settings.heads * settings.head, settings.groups * settings.head
    for layer in range(settings.layers):
        ours, theirs = f"layers.{layer}", f"layers.{layer}"
        projections = {"q_proj": (queries, width), "k_proj": (keys, width), "v_proj": (keys, width)}
        yield f"{ours}.attention.project", {f"{theirs}.self_attn.{name}": size for name, size in projections.items()}
        yield f"{ours}.attention.output", {f"{theirs}.self_attn.o_proj": (width, queries)}
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
        for part in ("weight", "bias"):
            if f"{name}.{part}" in ours:
                pieces = ours[f"{name}.{part}"].split([size[0] for size in theirs.values()])
                tensors |= {f"{place}.{part}": piece for place, piece in zip(theirs, pieces)}
    if not model.settings.tied:
        tensors["lm_head.weight"] = ours["output.weight"]
    return tensors


def as_huggingface(model: Llama, config: dict[str, Any]) -> dict[str, Tensor]:
    tensors = tensors_of(model)
    return {name if name == "lm_head.weight" else PREFIX + name: tensor for name, tensor in tensors.items()}


def settings_in(config: Config) -> dict[str, Any]:
    """Regard's settings for a Llama, Mistral or Qwen2 folder; a setting that `llama` does not have is an error."""
    config.must_be(hidden_act="silu", pretraining_tp=1)
    if _slides(config):
        config.wrong("its attention uses a sliding window, but Regard's covers the whole text")
    width, layers, heads = (config.count(name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    if layers > MAX_LAYERS:
        config.wrong(f"num_hidden_layers is {layers}, but Regard supports at most {MAX_LAYERS}")
    head = config.count("head_dim", width // heads)
    return {
        "layers": layers,
        "width": width,
        "heads": heads,
        "key_value_heads": config.count("num_key_value_heads", heads),
        "head_width": 0 if head * heads == width else head,
        "context": config.count("max_position_embeddings", 2048),
        "feedforward": config.count("intermediate_size"),
        "tied": config.flag("tie_word_embeddings", False),
        "bias": _bias(config),
        "epsilon": config.positive("rms_norm_eps", 1e-6),
        "dropout": config.rate("attention_dropout"),
        **_rotation(config),
    }


def _slides(config: Config) -> bool:
    """Mistral's window; Qwen2 names one that it does not use. A window as wide as the context has no effect."""
    if config.values.get("model_type") == "qwen2" and not config.flag("use_sliding_window", False):
        return False
    window = config.values.get("sliding_window")
    return window is not None and config.number("sliding_window") < config.number("max_position_embeddings", 2048)


def _bias(config: Config) -> str:
    if config.values.get("model_type") == "qwen2":
        return "qkv"
    attention, inner = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    if inner and not attention:
        config.wrong("mlp_bias is true and attention_bias false, but Regard supports the first only with the second")
    return "all" if inner else "attention" if attention else "none"


def _rotation(config: Config) -> dict[str, Any]:
    """The rotary frequencies: in `rope_parameters` since transformers 5, before that partly in `rope_scaling`."""
    values = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if not isinstance(values, dict) or any(isinstance(value, dict) for value in values.values()):
        config.wrong("rope_parameters must be one object for all layers")
    given = Config(config.path, {"rope_theta": config.values.get("rope_theta"), **values})
    kind = values.get("rope_type", values.get("type", "default"))
    given.must_be(partial_rotary_factor=1.0)
    if kind not in ("default", "linear", "llama3"):
        config.wrong(f"its rotary positions are {kind!r:.20}, but Regard supports only default, linear and llama3")
    found: dict[str, Any] = {"theta": given.positive("rope_theta", THETA)}
    if kind != "default":
        found |= {"stretch": kind, "stretch_factor": given.positive("factor")}
    if kind == "llama3":
        found |= {f"stretch_{STRETCHED[name]}": given.positive(name) for name in list(STRETCHED)[:2]}
        found["stretch_context"] = given.count("original_max_position_embeddings")
    return found


def _biased(name: str, settings: Settings) -> bool:
    """True if the map has a bias; each entry of `BIASES` includes those before it."""
    least = {"attention.project": 1, "attention.output": 2}.get(name.split(".", 2)[-1], 3)
    return "norm" not in name and name != "finish" and BIASES.index(settings.bias) >= least


def state_in(config: Config, weights: ForeignWeights, settings: Settings, vocabulary: int) -> dict[str, Tensor]:
    """The state dict of Regard's model from the tensors of the file; rows of word vectors in the file's order."""
    weights.ignore(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
    state = {"embedding.table.weight": weights.take("embed_tokens.weight", vocabulary, settings.width)}
    for name, theirs in _maps(settings):
        state[f"{name}.weight"] = torch.cat([weights.take(f"{place}.weight", *size) for place, size in theirs.items()])
        if _biased(name, settings):
            biases = [weights.take(f"{place}.bias", size[0]) for place, size in theirs.items()]
            state[f"{name}.bias"] = torch.cat(biases)
    if settings.tied:
        weights.ignore(r"lm_head\.weight")
    else:
        state["output.weight"] = weights.take("lm_head.weight", vocabulary, settings.width)
    weights.finish("a Llama")
    return state
