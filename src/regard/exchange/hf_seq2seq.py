"""`transformer` as Hugging Face's MarianMTModel (post-norm) or PegasusForConditionalGeneration (pre-norm), and back.

Both are the Transformer of Vaswani et al. 2017 with sine waves as positions; Pegasus is Marian with the layer norm
before each part and one more at the end. Three things differ from Regard's model; none of them changes a prediction:

    channels   sin and cos alternate here; there all sines come first. The components of every vector are reordered.
    scale      words are multiplied by a = 4√D here, by √D or 1 there. The table is multiplied by the quotient f; if
               it is tied to the output, the last layer norm is divided by f.
    weights    W_q, W_k, W_v are one matrix here.

Marian's own models, such as those of OPUS-MT, begin a target with <pad> and end it with </s>. Here </s> does both:
<pad> is never read elsewhere, so its vector replaces the one that the decoder reads for </s>. The source's vectors and
the output matrix are then separate tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import MAX_LAYERS
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.layers.position import Sinusoid
from regard.runs.tasks.translation.run import TranslationRun
from regard.systems.transformer import QUIET, Settings, Transformer
from regard.systems.translator import rate

SYSTEM, PREFIX = "transformer", ""
ACTIVATIONS = {"relu": "relu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "swish": "swish", "silu": "swish"}
MODELS = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
NORMS = {kind: norm for norm, (kind, _) in MODELS.items()}
Side = Literal["in", "out"]  # which sides of a map are vectors between blocks: [out, in]


def check_settings(settings: Settings, form: str) -> None:
    """Refuses settings that neither Marian nor Pegasus supports; the error names the change to make."""
    if settings.position != "sinusoid" or settings.combine != "add":
        what = f"model.position {settings.position} with model.combine {settings.combine}"
        raise RegardError(
            f"{what} cannot be exported: {form} adds sinusoidal positions; train with --model.position sinusoid "
            "--model.combine add."
        )
    if settings.width % 2:
        raise RegardError(
            f"model.width {settings.width} cannot be exported: {form} needs an even width; train with an even "
            "--model.width."
        )


def config_of(run: TranslationRun) -> dict[str, Any]:
    settings: Settings = run.recipe.model
    kind, form = MODELS[settings.norm]
    check_settings(settings, form)
    if run.source_tokenizer is not run.tokenizer:
        raise RegardError(
            "data.joint false cannot be exported: source and target have separate vocabularies, but a Hugging Face "
            "folder contains one tokenizer; train with --data.joint true, or use --to ctranslate2 or --to onnx."
        )
    shared = run.model.source_embedding is None
    if not shared and settings.norm == "pre":
        raise RegardError(
            f"model.shared false cannot be exported: {form} has one table of word vectors; train with --model.shared "
            "true, or with --model.norm post."
        )
    boundary, inner = run.tokenizer.eos, settings.feedforward or 4 * settings.width
    both = {"layers": settings.layers, "ffn_dim": inner, "attention_heads": settings.heads, "layerdrop": 0.0}
    return {
        "architectures": [form],
        "model_type": kind,
        "is_encoder_decoder": True,
        "vocab_size": run.tokenizer.vocabulary,
        **({} if settings.norm == "pre" else {"decoder_vocab_size": run.tokenizer.vocabulary}),
        **({} if settings.norm == "pre" else {"share_encoder_decoder_embeddings": shared}),
        "d_model": settings.width,
        **{f"encoder_{name}": value for name, value in both.items()},
        **{f"decoder_{name}": value for name, value in both.items()},
        "decoder_layers": settings.decoder_layers or settings.layers,
        "activation_function": "gelu_new" if settings.activation == "gelu" else settings.activation,
        "dropout": rate(settings.dropout),
        "attention_dropout": settings.dropout_attention,
        "activation_dropout": settings.dropout_activation,
        "max_position_embeddings": max(1024, 4 * run.recipe.data.longest),
        "scale_embedding": True,
        "static_position_embeddings": True,
        "tie_word_embeddings": settings.tied,
        "bos_token_id": boundary,  # one boundary: it ends a source, begins a target and ends it
        "eos_token_id": boundary,
        "pad_token_id": boundary,
        "decoder_start_token_id": boundary,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


# -- the maps, by name: ours, theirs, and which of their sides are vectors between blocks ------------------------------


def _block(ours: str, theirs: str, cross: bool) -> Iterator[tuple[str, list[str], Side]]:
    attention = f"{theirs}.self_attn"
    yield f"{ours}.attention.project", [f"{attention}.{part}_proj" for part in "qkv"], "in"
    yield f"{ours}.attention.output", [f"{attention}.out_proj"], "out"
    yield f"{ours}.attention_norm", [f"{attention}_layer_norm"], "out"
    if cross:
        yield f"{ours}.cross.query", [f"{theirs}.encoder_attn.q_proj"], "in"
        yield f"{ours}.cross.project", [f"{theirs}.encoder_attn.{part}_proj" for part in "kv"], "in"
        yield f"{ours}.cross.output", [f"{theirs}.encoder_attn.out_proj"], "out"
        yield f"{ours}.cross_norm", [f"{theirs}.encoder_attn_layer_norm"], "out"
    yield f"{ours}.feedforward.expand", [f"{theirs}.fc1"], "in"
    yield f"{ours}.feedforward.output", [f"{theirs}.fc2"], "out"
    yield f"{ours}.feedforward_norm", [f"{theirs}.final_layer_norm"], "out"


def _maps(layers: int, decoder_layers: int, norm: str) -> Iterator[tuple[str, list[str], Side]]:
    for layer in range(layers):
        yield from _block(f"encoder.blocks.{layer}", f"model.encoder.layers.{layer}", cross=False)
    for layer in range(decoder_layers):
        yield from _block(f"layers.{layer}", f"model.decoder.layers.{layer}", cross=True)
    if norm == "pre":
        yield "encoder.finish", ["model.encoder.layer_norm"], "out"
        yield "finish", ["model.decoder.layer_norm"], "out"


def _last_norm(decoder_layers: int, norm: str) -> str:
    return "finish" if norm == "pre" else f"layers.{decoder_layers - 1}.feedforward_norm"


def _sines_first(width: int) -> Tensor:
    """For each component there, its index here."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def _ordered(tensor: Tensor, side: Side, order: Tensor) -> Tensor:
    """A weight [out, in] or a bias [out], with the components of vectors between blocks in another order."""
    if tensor.dim() == 1:
        return tensor[order] if side == "out" else tensor
    return tensor[order] if side == "out" else tensor[:, order]


def as_huggingface(model: Transformer, config: dict[str, Any]) -> dict[str, Tensor]:
    settings, ours = model.settings, dict(model.state_dict())
    order, factor = _sines_first(settings.width), model.embedding.scale / settings.width**0.5
    decoder_layers = settings.decoder_layers or settings.layers
    if settings.tied:
        for part in ("weight", "bias"):
            name = f"{_last_norm(decoder_layers, settings.norm)}.{part}"
            ours[name] = ours[name] / factor
    tensors: dict[str, Tensor] = {}
    for name, theirs, side in _maps(settings.layers, decoder_layers, settings.norm):
        for part in ("weight", "bias"):
            turned = _ordered(ours[f"{name}.{part}"], side, order)
            for place, piece in zip(theirs, turned.chunk(len(theirs))):
                tensors[f"{place}.{part}"] = piece
    target = ours["embedding.table.weight"][:, order] * factor
    if model.source_embedding is None:
        tensors["model.shared.weight"] = target
        if not settings.tied:  # nothing is tied then, so each table is written
            tensors["model.encoder.embed_tokens.weight"] = target.clone()
            tensors["model.decoder.embed_tokens.weight"] = target.clone()
    else:
        tensors["model.encoder.embed_tokens.weight"] = ours["source_embedding.table.weight"][:, order] * factor
        tensors["model.decoder.embed_tokens.weight"] = target
    if not settings.tied:
        tensors["lm_head.weight"] = ours["output.weight"][:, order]
    tensors["final_logits_bias"] = torch.zeros(1, model.vocabulary)
    if settings.output_bias:
        tensors["final_logits_bias"] = ours["output.bias"][None]
    if settings.norm == "pre":  # Marian makes its own
        positions = _positions(config["max_position_embeddings"], settings.width)
        for part in ("encoder", "decoder"):
            tensors[f"model.{part}.embed_positions.weight"] = positions.clone()
    return tensors


def _positions(count: int, width: int) -> Tensor:
    return Sinusoid(width)(torch.arange(count)[None], torch.float64)[0][:, _sines_first(width)].float()


# -- the other way ---------------------------------------------------------------------------------------------------


def settings_in(config: Config) -> dict[str, Any]:
    """Regard's settings for a Marian or Pegasus folder; a setting that `transformer` does not have is an error."""
    norm = NORMS[config.values["model_type"]]
    config.must_be(static_position_embeddings=True, normalize_embedding=False, add_cross_attention=False)
    for name in ("ffn_dim", "attention_heads"):
        if config.number(f"encoder_{name}") != config.number(f"decoder_{name}"):
            config.wrong(f"encoder_{name} and decoder_{name} differ, but Regard uses one value for both")
    width, layers = config.number("d_model"), config.number("encoder_layers")
    decoder_layers = config.number("decoder_layers")
    if not (1 <= layers <= MAX_LAYERS and 1 <= decoder_layers <= MAX_LAYERS):
        config.wrong(
            f"it has {layers} encoder and {decoder_layers} decoder layers, but Regard supports 1 to {MAX_LAYERS}"
        )
    if width < 2 or width % 2:
        config.wrong(f"d_model is {width}, but sinusoidal positions need an even width")
    if config.number("decoder_vocab_size", config.number("vocab_size")) != config.number("vocab_size"):
        config.wrong("decoder_vocab_size differs from vocab_size, but Regard reads only folders with one vocabulary")
    inner, own_start = config.number("encoder_ffn_dim"), _start(config) is not None
    return {
        "layers": layers,
        "decoder_layers": 0 if decoder_layers == layers else decoder_layers,
        "width": width,
        "heads": config.number("encoder_attention_heads"),
        "feedforward": 0 if inner == 4 * width else inner,
        "norm": norm,
        "activation": config.one("activation_function", ACTIVATIONS, "gelu"),
        "tied": _ties(config) and not own_start,
        "shared": _shares(config) and not own_start,
        "output_bias": own_start,
        "dropout": config.rate("dropout", 0.1),
        "dropout_attention": config.rate("attention_dropout"),
        "dropout_activation": config.rate("activation_dropout"),
    }


def _ties(config: Config) -> bool:
    return config.flag("tie_word_embeddings", True)


def _shares(config: Config) -> bool:
    return config.values["model_type"] == "pegasus" or config.flag("share_encoder_decoder_embeddings", True)


def _start(config: Config) -> tuple[int, int] | None:
    """The tokens that begin a target and end it, if they differ."""
    start, eos = config.number("decoder_start_token_id"), config.number("eos_token_id")
    if max(start, eos) >= config.number("vocab_size"):
        config.wrong(f"decoder_start_token_id and eos_token_id are {start} and {eos}, which are not tokens")
    return None if start == eos else (start, eos)


def state_in(config: Config, weights: ForeignWeights, settings: Settings, vocabulary: int) -> dict[str, Tensor]:
    """The state dict of Regard's model from the tensors of the file; rows of word vectors in the file's order."""
    width, inner = settings.width, settings.feedforward or 4 * settings.width
    decoder_layers = settings.decoder_layers or settings.layers
    back = _sines_first(width).argsort()
    factor = (width**0.5 if config.flag("scale_embedding", False) else 1.0) / (QUIET * width**0.5)
    state: dict[str, Tensor] = {}
    for name, theirs, side in _maps(settings.layers, decoder_layers, settings.norm):
        rows = inner if name.endswith(".expand") else width
        columns = inner if name.endswith("feedforward.output") else width
        shape = (width,) if name.endswith(("norm", "finish")) else (rows, columns)
        for part, sizes in (("weight", shape), ("bias", shape[:1])):
            whole = torch.cat([weights.take(f"{place}.{part}", *sizes) for place in theirs])
            state[f"{name}.{part}"] = _ordered(whole, side, back).contiguous()
    names = {
        side: "model.shared" if _shares(config) else f"model.{side}.embed_tokens" for side in ("encoder", "decoder")
    }
    tables = {name: weights.take(f"{name}.weight", vocabulary, width)[:, back] for name in {*names.values()}}
    target = tables[names["decoder"]]
    state["embedding.table.weight"] = target * factor
    if not settings.shared:
        state["source_embedding.table.weight"] = tables[names["encoder"]] * factor
    if settings.tied:
        for part in ("weight", "bias"):
            state[f"{_last_norm(decoder_layers, settings.norm)}.{part}"] /= factor
    else:
        own = None if _ties(config) else weights.take("lm_head.weight", vocabulary, width)[:, back]
        state["output.weight"] = (target if own is None else own).contiguous()
    if (tokens := _start(config)) is not None:
        start, eos = tokens
        state["embedding.table.weight"][eos] = target[start] * factor
    if settings.output_bias:
        has_bias = "final_logits_bias" in weights.unread
        bias = weights.take("final_logits_bias", 1, vocabulary)[0] if has_bias else torch.zeros(vocabulary)
        state["output.bias"] = bias
    _check_fixed(config, weights, width, vocabulary)
    weights.ignore(r"lm_head\.weight", r"model\.(encoder|decoder)\.embed_tokens\.weight", r"model\.shared\.weight")
    weights.finish(f"a {config.values['model_type']} model")
    return state


def _check_fixed(config: Config, weights: ForeignWeights, width: int, vocabulary: int) -> None:
    """Accepts tensors without a counterpart here only if they have their fixed values."""
    if "final_logits_bias" in weights.unread and bool(weights.take("final_logits_bias", 1, vocabulary).any()):
        raise RegardError(
            f"final_logits_bias in {weights.where} is not zero, but Regard's transformer has no such bias."
        )
    for side in ("encoder", "decoder"):
        name, count = f"model.{side}.embed_positions.weight", config.number("max_position_embeddings", 1024)
        if name not in weights.unread:
            continue
        positions = weights.take(name, count, width)
        if not torch.allclose(positions, _positions(count, width), atol=1e-3):
            raise RegardError(
                f"{name} in {weights.where} has positions that are not sinusoidal, which Regard does not support."
            )
