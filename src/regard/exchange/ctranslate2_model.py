"""A `transformer` or a `gpt` as a CTranslate2 model, which translates and generates on a CPU, also in 8 bits.

Weights are copied into CTranslate2's specification one by one. Tied word vectors stay one table: the specification has
a number for the factor by which they are multiplied. Positions at the input are written as a table, so every kind of
them can be expressed; settings that cannot be expressed are refused by name.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import Activation, TransformerDecoderModelSpec, TransformerSpec
from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from torch import Tensor, nn

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.base.locks import lock
from regard.base.numbers import with_article
from regard.base.settings import check_choice
from regard.base.writing import atomic_folder, write_text
from regard.decoding.translate import translate
from regard.evaluation.bleu import bleu
from regard.evaluation.scoring import pair_losses
from regard.exchange.ctranslate2_engine import CTranslate2Engine, symbols
from regard.exchange.parity import Parity, texts, token_rows
from regard.layers.attention import CrossAttention, MultiHeadSelfAttention
from regard.layers.blocks import FeedForward
from regard.layers.embedding import Embedding
from regard.runs.load import AnyRun
from regard.runs.store.folder import Tokenizers
from regard.runs.tasks.task import task_of
from regard.runs.tasks.translation.run import TranslationRun
from regard.systems.gpt import GPT
from regard.systems.gpt import Settings as GPTSettings
from regard.systems.transformer import Settings, Transformer
from regard.text.tokenizers.engine import UNK
from regard.text.tokenizers.imported import HIDDEN

SENTENCES = 200  # sentences that are translated for the comparison
ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELUTanh, "swish": Activation.SWISH}
ROWS = 1024  # minimum length of the position table if the model has no limit


def write(run: AnyRun, out: Path, quantization: str = "float32") -> None:
    """Write the folder that `ctranslate2.Translator` or `ctranslate2.Generator` opens, with tokenizers and a model
    card.
    """
    save(run, out, quantization)
    Tokenizers(run.tokenizer, run.source_tokenizer).save(out)
    write_text(out / "README.md", readme(run))


def save(run: AnyRun, out: Path, quantization: str = "float32") -> None:
    """Save the model only."""
    check_choice("--quantization", quantization, ACCEPTED_MODEL_TYPES)
    save_spec(specify(run), out, quantization)


def save_spec(spec: Any, out: Path, quantization: str) -> None:
    spec.validate()
    spec.optimize(None if quantization == "float32" else quantization)
    spec.save(str(out))


# -- the specification -----------------------------------------------------------------------------------------------


def specify(run: Any) -> Any:
    """CTranslate2's specification, filled with the run's weights."""
    if isinstance(run.model, Transformer):
        rows = max(ROWS, 2 * run.recipe.data.longest + 16)
        return translator_spec(run.model, symbols(run.source_tokenizer), symbols(run.tokenizer), rows)
    if isinstance(run.model, GPT):
        spec = TransformerDecoderModelSpec(_decoder_alone(run.model))
        spec.register_vocabulary(symbols(run.tokenizer))
        return _configured(spec, symbols(run.tokenizer), run.tokenizer.begin, run.tokenizer.eos)
    raise RegardError(f"--to ctranslate2 supports transformer and gpt, not {run.recipe.system}.")


def translator_spec(model: Transformer, source: list[str], target: list[str], rows: int = ROWS) -> Any:
    """The configuration of a model with these vocabularies, by id."""
    spec = TransformerSpec(*_encoder_decoder(model, rows))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = target[0]
    return _configured(spec, target)


def _configured(spec: Any, vocabulary: list[str], begin: int = 0, eos: int = 0) -> Any:
    spec.config.bos_token, spec.config.eos_token = vocabulary[begin], vocabulary[eos]
    unknown = (name for name in (UNK, HIDDEN + UNK, vocabulary[eos]) if name in vocabulary)
    spec.config.unk_token = next(unknown)  # one that is missing would be added
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    return spec


def _encoder_decoder(model: Transformer, rows: int) -> tuple[Any, Any]:
    settings: Settings = model.settings
    how = _arrangement(settings)
    if settings.position == "alibi":
        raise RegardError(
            "CTranslate2 does not support ALiBi in an encoder, so model.position alibi cannot be exported; train with "
            "a different model.position."
        )
    encoder = TransformerEncoderSpec(settings.layers, settings.heads, **how)
    decoder = TransformerDecoderSpec(len(model.layers), settings.heads, **how)
    reader = model.source_embedding or model.embedding
    _embed(encoder, encoder.embeddings[0], reader, rows)
    _embed(decoder, decoder.embeddings, model.embedding, rows)
    for layer, block in zip(encoder.layer, model.encoder.blocks, strict=True):
        _self_attention(layer.self_attention, block)
        _feed_forward(layer.ffn, block)
    for layer, block in zip(decoder.layer, model.layers, strict=True):
        _self_attention(layer.self_attention, block)
        _cross_attention(layer.attention, block)
        _feed_forward(layer.ffn, block)
    if settings.norm == "pre":
        _norm(encoder.layer_norm, model.encoder.finish)
        _norm(decoder.layer_norm, model.finish)
    matrix, bias = model.output.of(model.embedding.table.weight)
    decoder.projection.weight = _numbers(matrix)
    if bias is not None:
        decoder.projection.bias = _numbers(bias)
    return encoder, decoder


def _decoder_alone(model: GPT) -> Any:
    settings: GPTSettings = model.settings
    alibi = settings.position == "alibi"
    if alibi and settings.heads & (settings.heads - 1):
        raise RegardError(
            f"CTranslate2 uses different ALiBi slopes unless the number of heads is a power of two, so model.heads "
            f"{settings.heads} "
            "with model.position alibi cannot be exported."
        )
    decoder = TransformerDecoderSpec(
        settings.layers, settings.heads, with_encoder_attention=False, alibi=alibi, **_arrangement(settings)
    )
    _embed(decoder, decoder.embeddings, model.embedding, max(ROWS, settings.context))
    for layer, block in zip(decoder.layer, model.layers, strict=True):
        _self_attention(layer.self_attention, block)
        _feed_forward(layer.ffn, block)
    if settings.norm == "pre":
        _norm(decoder.layer_norm, model.finish)
    decoder.projection.weight = _numbers(model.output.of(model.embedding.table.weight)[0])
    return decoder


def _arrangement(settings: Settings | GPTSettings) -> dict[str, Any]:
    how: dict[str, Any] = {
        "pre_norm": settings.norm == "pre",
        "activation": ACTIVATIONS[settings.activation],
    }
    if settings.position == "rotary":
        how |= {"rotary_dim": 0, "rotary_interleave": False}  # all components; the halves of a head are rotated
    return how


def _embed(side: Any, words: Any, embedding: Embedding, rows: int) -> None:
    """The word table, the factor that multiplies it, and the position table; [x ; p] is [x ; 0] + [0 ; p]."""
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


def _self_attention(spec: Any, block: Any) -> None:
    attention: MultiHeadSelfAttention = block.attention
    _norm(spec.layer_norm, block.attention_norm)
    _linear(spec.linear[0], attention.project)
    _linear(spec.linear[1], attention.output)


def _cross_attention(spec: Any, block: Any) -> None:
    cross: CrossAttention = block.cross
    _norm(spec.layer_norm, block.cross_norm)
    for part, layer in zip(spec.linear, (cross.query, cross.project, cross.output), strict=True):
        _linear(part, layer)


def _feed_forward(spec: Any, block: Any) -> None:
    feedforward: FeedForward = block.feedforward
    _norm(spec.layer_norm, block.feedforward_norm)
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
    """A copy: CTranslate2 quantizes in place."""
    return tensor.detach().float().cpu().numpy().copy()


# -- its README ------------------------------------------------------------------------------------------------------

TRANSLATE = """\
import ctranslate2
from tokenizers import Tokenizer

translator = ctranslate2.Translator(".")
source, target = Tokenizer.from_file("{source}"), Tokenizer.from_file("tokenizer.json")
tokens = source.encode("A sentence to translate.").tokens
(found,) = translator.translate_batch([tokens], beam_size=5, min_decoding_length=0, max_input_length=0{unknown})
print(target.decode([target.token_to_id(token) for token in found.hypotheses[0]]))
"""
WRITE = """\
import ctranslate2
from tokenizers import Tokenizer

generator = ctranslate2.Generator(".")
tokenizer = Tokenizer.from_file("tokenizer.json")
tokens = ["<eos>", *tokenizer.encode("The").tokens]
(found,) = generator.generate_batch([tokens], max_length=30{unknown})
print(tokenizer.decode(found.sequences_ids[0]))
"""


def example(run: AnyRun) -> str:
    unknown = "" if run.tokenizer.unk is None else ", disable_unk=True"
    if run.source_tokenizer is None:
        return WRITE.format(unknown=unknown)
    same = run.source_tokenizer is run.tokenizer
    return TRANSLATE.format(source="tokenizer.json" if same else "tokenizer.source.json", unknown=unknown)


def readme(run: AnyRun) -> str:
    return f"""# {with_article(run.recipe.system).capitalize()} for CTranslate2

Written by Regard. It needs `pip install ctranslate2 tokenizers`, but neither Regard nor PyTorch.

```python
{example(run)}```
"""


# -- compared with Regard --------------------------------------------------------------------------------------------


def open_engine(run: TranslationRun, quantization: str = "float32") -> CTranslate2Engine:
    """The run's current weights in CTranslate2; they are converted once, into the cache folder."""
    folder = cache_folder() / "ctranslate2" / _digest(run, quantization)
    with lock(folder.parent / ".lock"):
        if not folder.exists():
            with atomic_folder(folder) as made:
                save(run, made, quantization)
    return CTranslate2Engine(folder, symbols(run.source_tokenizer), symbols(run.tokenizer))


def _digest(run: TranslationRun, quantization: str) -> str:
    """A digest of everything that determines the converted model."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (ctranslate2.__version__, quantization, run.recipe.model, run.recipe.data.longest):
        digest.update(f"{part}\n".encode())
    for tokenizer in (run.source_tokenizer, run.tokenizer):
        digest.update(tokenizer.digest.encode())
    for name, weight in run.model.state_dict().items():
        digest.update(f"{name} {weight.dtype} {list(weight.shape)}\n".encode())
        digest.update(_numbers(weight).tobytes())
    return digest.hexdigest()


@torch.no_grad()
def check(run: Any, out: Path, quantization: str = "float32") -> Parity:
    """Compares CTranslate2 with Regard: log-probabilities of the same tokens, and the best texts of both."""
    program = f"CTranslate2 {ctranslate2.__version__}, {quantization}"
    if task_of(run).has_source:
        return Parity(run.recipe.system, "ctranslate2", program, *_compare_translations(run, out))
    rows = [[run.tokenizer.eos, *row[:-1]] for row in token_rows(run)]
    theirs = np.asarray(ctranslate2.Generator(str(out), device="cpu").forward_batch(rows, return_log_probs=True))
    ours = run.model(torch.tensor(rows))[0].log_softmax(-1).numpy()
    same = ours.argmax(-1) == theirs.argmax(-1)
    text = f"{same.sum()} of {same.size} most probable tokens"
    return Parity(run.recipe.system, "ctranslate2", program, "log P of each token", _largest(ours - theirs), text)


def _compare_translations(run: TranslationRun, out: Path) -> tuple[str, float, str]:
    engine = CTranslate2Engine(out, symbols(run.source_tokenizer), symbols(run.tokenizer))
    lines, references = _held_out(run)
    sources = [run.source_tokens(line, 1, truncate=True) for line in lines]
    how: dict[str, Any] = {"eos": run.tokenizer.eos, "forbidden": run.forbidden}
    ours = [best for best, *_ in translate(run.model, sources, **how)]
    theirs = [best for best, *_ in translate(run.model, sources, engine=engine, **how)]
    losses = pair_losses(run.model, sources, [best.text_tokens for best in ours], run.tokenizer.eos)
    scores = engine.score(sources, [best.text_tokens for best in ours])
    largest = max(_largest(loss + np.asarray(score)) for loss, score in zip(losses, scores, strict=True))
    same = sum(one.tokens == other.tokens for one, other in zip(ours, theirs, strict=True))
    sentence = f"{same} of {len(lines)} translations, beam 5"
    if references:
        written = [[run.tokenizer.decode(best.text_tokens).strip() for best in side] for side in (ours, theirs)]
        sentence += "; BLEU {:.2f} in Regard, {:.2f} in CTranslate2".format(
            *(bleu(side, references) for side in written)
        )
    return "log P of each token of our translations", largest, sentence


def _held_out(run: TranslationRun) -> tuple[list[str], list[str]]:
    """Sources and references of the run's own test split; if it is not available, only sources."""
    try:
        corpus, name = run.chosen(None, None)
    except RegardError:
        return texts(run), []
    pairs = corpus.splits[name]
    return list(pairs.sources[:SENTENCES]), list(pairs.targets[:SENTENCES])


def _largest(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())
