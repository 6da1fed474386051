"""A `transformer` or a `gpt` as a model of CTranslate2, which translates and writes on a CPU, also in 8 bits.

Weights go into CTranslate2's own specification one by one. Word vectors stay one table where they are tied: the factor
by which they are read is a number of the specification. Positions at the input are written as a table, so every kind
of them can be expressed; what cannot is refused by the name of its setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import Activation, TransformerDecoderModelSpec, TransformerSpec
from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.base.files import write_text
from regard.base.settings import one_of
from regard.exchange.ctranslate2_engine import CTranslate2Engine, symbols
from regard.exchange.parity import Parity, texts, token_rows
from regard.layers.attention import CrossAttention, MultiHeadSelfAttention
from regard.layers.blocks import DecoderBlock, FeedForward
from regard.layers.embedding import Embedding
from regard.runs.folder import Tokenizers
from regard.runs.language_run import LanguageRun
from regard.runs.load import AnyRun
from regard.runs.run import PairRun
from regard.runs.translation_run import TranslationRun
from regard.systems.gpt import GPT
from regard.systems.gpt import Settings as GPTSettings
from regard.systems.transformer import Settings, Transformer
from regard.text.tokenizer import EOS, UNK, Tokenizer

ROWS = 1024  # of the table of positions at least, where the model has no limit


def write(run: AnyRun, out: Path, quantization: str = "float32") -> None:
    """The folder that `ctranslate2.Translator` or `ctranslate2.Generator` opens, with the tokenizers and a page."""
    save(run, out, quantization)
    Tokenizers(run.tokenizer, run.source_tokenizer if isinstance(run, PairRun) else None).save(out)
    write_text(out / "README.md", readme(run))


def save(run: AnyRun, out: Path, quantization: str = "float32") -> None:
    """The model alone."""
    one_of("--quantization", quantization, ACCEPTED_MODEL_TYPES)
    spec = specify(run)
    spec.validate()
    spec.optimize(None if quantization == "float32" else quantization)
    spec.save(str(out))


# -- the specification -----------------------------------------------------------------------------------------------


def specify(run: AnyRun) -> Any:
    """CTranslate2's specification, filled with the run's weights."""
    if isinstance(run, TranslationRun) and isinstance(run.model, Transformer):
        rows = max(ROWS, 2 * run.recipe.data.longest + 16)
        spec = TransformerSpec(*_encoder_decoder(run.model, rows))
        spec.register_source_vocabulary(symbols(run.source_tokenizer))
        spec.register_target_vocabulary(symbols(run.tokenizer))
        spec.config.add_source_eos = True
        spec.config.decoder_start_token = EOS
    elif isinstance(run, LanguageRun) and isinstance(run.model, GPT):
        spec = TransformerDecoderModelSpec(_decoder_alone(run.model))
        spec.register_vocabulary(symbols(run.tokenizer))
    else:
        raise RegardError(f"--to ctranslate2 takes transformer and gpt, and not {run.recipe.system}.")
    spec.config.bos_token = spec.config.eos_token = EOS
    spec.config.unk_token = EOS if run.tokenizer.unk is None else UNK  # one that is missing would be added
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    return spec


def _encoder_decoder(model: Transformer, rows: int) -> tuple[Any, Any]:
    settings: Settings = model.settings
    how = _arrangement(settings)
    if settings.position == "alibi":
        raise RegardError(
            "CTranslate2 has no ALiBi in an encoder, so model.position alibi cannot be written; train with another."
        )
    encoder = TransformerEncoderSpec(settings.layers, settings.heads, **how)
    decoder = TransformerDecoderSpec(len(model.layers), settings.heads, **how)
    reader = model.source_embedding or model.embedding
    _embed(encoder, encoder.embeddings[0], reader, rows)
    _embed(decoder, decoder.embeddings, model.embedding, rows)
    for layer, block in zip(encoder.layer, model.encoder.blocks, strict=True):
        _self_attention(layer.self_attention, block.attention_norm, block.attention)
        _feed_forward(layer.ffn, block.feedforward_norm, block.feedforward)
    for layer, block in zip(decoder.layer, model.layers, strict=True):
        assert isinstance(block, DecoderBlock)
        _self_attention(layer.self_attention, block.attention_norm, block.attention)
        _cross_attention(layer.attention, block.cross_norm, block.cross)
        _feed_forward(layer.ffn, block.feedforward_norm, block.feedforward)
    if settings.norm == "pre":
        _norm(encoder.layer_norm, model.encoder.finish)
        _norm(decoder.layer_norm, model.finish)
    decoder.projection.weight = _numbers(model.output.of(model.embedding.table.weight)[0])
    return encoder, decoder


def _decoder_alone(model: GPT) -> Any:
    settings: GPTSettings = model.settings
    alibi = settings.position == "alibi"
    if alibi and settings.heads & (settings.heads - 1):
        raise RegardError(
            f"CTranslate2 has other ALiBi slopes where the heads are no power of two, so model.heads {settings.heads} "
            "with model.position alibi cannot be written."
        )
    decoder = TransformerDecoderSpec(
        settings.layers, settings.heads, with_encoder_attention=False, alibi=alibi, **_arrangement(settings)
    )
    _embed(decoder, decoder.embeddings, model.embedding, max(ROWS, settings.context))
    for layer, block in zip(decoder.layer, model.layers, strict=True):
        _self_attention(layer.self_attention, block.attention_norm, block.attention)
        _feed_forward(layer.ffn, block.feedforward_norm, block.feedforward)
    if settings.norm == "pre":
        _norm(decoder.layer_norm, model.finish)
    decoder.projection.weight = _numbers(model.output.of(model.embedding.table.weight)[0])
    return decoder


def _arrangement(settings: Settings | GPTSettings) -> dict[str, Any]:
    how: dict[str, Any] = {
        "pre_norm": settings.norm == "pre",
        "activation": {"relu": Activation.RELU, "gelu": Activation.GELUTanh}[settings.activation],
    }
    if settings.position == "rotary":
        how |= {"rotary_dim": 0, "rotary_interleave": False}  # all components; the halves of a head are turned
    return how


def _embed(side: Any, words: Any, embedding: Embedding, rows: int) -> None:
    """The table of words, the factor it is read with, and the table of positions; [x ; p] is [x ; 0] + [0 ; p]."""
    table, place = embedding.table.weight, embedding.position
    if embedding.concatenate:
        table = nn.functional.pad(table, (0, embedding.width - table.size(1)))
    words.weight = _numbers(table)
    side.scale_embeddings = np.float32(embedding.scale)
    if not hasattr(side, "position_encodings"):
        return
    positions = torch.zeros(rows, embedding.width)
    if place is not None:
        vectors = place(torch.arange(place.context or rows)[None], torch.float32)[0]
        before = embedding.width - place.width if embedding.concatenate else 0
        positions = nn.functional.pad(vectors, (before, embedding.width - place.width - before))
    side.position_encodings.encodings = _numbers(positions)


def _self_attention(spec: Any, norm: Any, attention: MultiHeadSelfAttention) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[0], attention.project)
    _linear(spec.linear[1], attention.output)


def _cross_attention(spec: Any, norm: Any, attention: CrossAttention) -> None:
    _norm(spec.layer_norm, norm)
    for part, layer in zip(spec.linear, (attention.query, attention.project, attention.output), strict=True):
        _linear(part, layer)


def _feed_forward(spec: Any, norm: Any, feedforward: FeedForward) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear_0, feedforward.expand)
    _linear(spec.linear_1, feedforward.output)


def _linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight = _numbers(layer.weight)
    if layer.bias is not None:
        spec.bias = _numbers(layer.bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = _numbers(norm.weight)
    spec.beta = _numbers(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def readme(run):
    return ""
