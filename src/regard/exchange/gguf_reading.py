"""GGUF files as runs: Llama, Mistral and Qwen2 as `llama`, GPT-2 as `gpt`; float or quantized.

A file is a header of named values, a list of tensors (name, shape, type, place), and their numbers. It is not trusted:
every count, length and offset is checked against the file's size before anything is allocated. The package `gguf` only
converts quantized blocks to floats. llama.cpp stores W_q and W_k of a Llama with the two components that rotate
together next to each other, Regard at k and k + d/2, so the rows are reordered.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.fields import is_number
from regard.base.reading import open_file
from regard.exchange import hf_gpt2, hf_llama
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.exchange.foreign_tokenizers import MAX_VOCABULARY, NORMAL, byte_pairs, sentence_pieces
from regard.exchange.gguf_file import GPT2, LLAMA, ROTARY_SCALES
from regard.exchange.imported_run import checked_template, recipe_of, write_run
from regard.layers.position import Stretch
from regard.runs.store.lock import check_free
from regard.text.tokenizers.imported import ImportedTokenizer, import_engine

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # by GGUF's types
STRING, ARRAY = 8, 9
MAX_VALUES, MAX_TENSORS, MAX_STRING, MAX_ITEMS = 4096, 1 << 16, 1 << 24, 4 * MAX_VOCABULARY
NAMES = {"llama": ("layers", LLAMA), "qwen2": ("layers", LLAMA), "gpt2": ("h", GPT2)}
MODULES: dict[str, Any] = {"llama": hf_llama, "qwen2": hf_llama, "gpt2": hf_gpt2}


class HeaderReader:
    """Reads values from the beginning of a file, one after the other, never beyond its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.place = path, data, 0

    def wrong(self, what: str) -> NoReturn:
        raise RegardError(f"{self.path} {what}: it is damaged; copy it again.")

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.place:
            self.wrong("ends inside its header")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def string(self) -> str:
        length = self.number("Q")
        if length > MAX_STRING:
            self.wrong(f"has a string of {length} bytes in its header")
        return self.take(length).decode("utf-8", "replace")

    def count(self, most: int, what: str) -> int:
        found = int(self.number("Q"))
        if found > most:
            self.wrong(f"declares {found} {what}, but Regard reads at most {most}")
        return found

    def value(self) -> Any:
        kind = self.number("I")
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(self._form(kind))
        inner, length = self.number("I"), self.count(MAX_ITEMS, "items of a list")
        if inner == STRING:
            return [self.string() for _ in range(length)]
        form = self._form(inner)
        return list(struct.unpack(f"<{length}{form}", self.take(length * struct.calcsize(f"<{form}"))))

    def _form(self, kind: int) -> str:
        if kind not in NUMBERS:
            self.wrong(f"has a value of unknown type {kind}")
        return NUMBERS[kind]


class StoredTensor:
    """One tensor of the file, as `ForeignWeights` reads it; `turned`: heads whose rows must be reordered."""

    def __init__(self, reader: HeaderReader, shape: list[int], kind: int, start: int, turned: int = 0) -> None:
        self.reader, self.shape, self.start, self.turned = reader, shape, start, turned
        self.kind = gguf.GGMLQuantizationType(kind)
        block, size = gguf.GGML_QUANT_SIZES[self.kind]
        self.bytes = math.prod(shape) // block * size

    def get_slice(self, name: str) -> StoredTensor:
        return self

    def get_shape(self) -> list[int]:
        return self.shape

    def get_dtype(self) -> str:
        return "F32"

    def get_tensor(self, name: str) -> Tensor:
        stored = np.frombuffer(self.reader.data[self.start : self.start + self.bytes], np.uint8)  # a copy: it closes
        if self.kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            width = np.float32 if self.kind == gguf.GGMLQuantizationType.F32 else np.float16
            numbers = stored.view(width).astype(np.float32)
        else:
            numbers = dequantize(stored.reshape(*self.shape[:-1], -1), self.kind)
        tensor = torch.from_numpy(np.ascontiguousarray(numbers, np.float32)).reshape(self.shape)
        if self.turned:
            tensor = tensor.unflatten(0, (self.turned, -1, 2)).transpose(1, 2).reshape(self.shape).contiguous()
        return tensor


def read(file: Path, run: Path, tokenizer_file: Path | None = None, *, precision: str = "fp32") -> Path:
    """Make a run from a GGUF file."""
    check_free(run)
    if tokenizer_file is not None:
        raise RegardError("--tokenizer does not apply: a GGUF file has its own tokenizer.")
    with open_file(file) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = HeaderReader(file, data)
        values, tensors = _header(reader)
        kind = values.get("general.architecture")
        if not isinstance(kind, str) or kind not in MODULES:
            raise RegardError(
                f"{file} is a {kind!s:.30} model; from GGUF files, Regard imports only {', '.join(MODULES)}."
            )
        own = {name.removeprefix(f"{kind}."): value for name, value in values.items() if name.startswith(f"{kind}.")}
        config, tokens = _config(reader, kind, own, tensors), values.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise RegardError(f"{file} has no tokenizer: Regard imports only GGUF files that contain one.")
        settings = MODULES[kind].settings_in(config)
        tokenizer = _tokenizer(file, values, tokens, _rows(tensors))
        files = _named(reader, kind, tensors, settings)
        recipe = recipe_of(MODULES[kind].SYSTEM, settings, tokenizer)
        weights = ForeignWeights(file, files)
        try:
            state = MODULES[kind].state_in(config, weights, recipe.model, tokenizer.vocabulary)
        except (ValueError, NotImplementedError) as error:
            raise RegardError(f"{file} has weights in a form that the package gguf cannot read ({error}).") from None
        template, what = checked_template(values.get("tokenizer.chat_template"), file), f"a {kind} model"
        return write_run(run, recipe, tokenizer, state, file, template=template, precision=precision, what=what)


def _header(reader: HeaderReader) -> tuple[dict[str, Any], dict[str, tuple[list[int], int, int]]]:
    """The named values, and for each tensor its shape, type and place."""
    reader.take(4)
    if (version := reader.number("I")) not in (2, 3):
        raise RegardError(f"{reader.path} is a GGUF file of version {version}; Regard reads versions 2 and 3.")
    count = reader.count(MAX_TENSORS, "tensors")
    values: dict[str, Any] = {}
    for _ in range(reader.count(MAX_VALUES, "values")):
        name = reader.string()
        values[name] = reader.value()
    found = {}
    for _ in range(count):
        name, axes = reader.string(), reader.number("I")
        if not 1 <= axes <= 4:
            reader.wrong(f"has a tensor of {axes} axes")
        shape = [int(reader.number("Q")) for _ in range(axes)][::-1]  # GGUF's shapes begin with the last axis
        found[name] = (shape, int(reader.number("I")), int(reader.number("Q")))
    align = values.get("general.alignment", 32)
    if type(align) is not int or not 1 <= align <= 1 << 16:
        reader.wrong("has an invalid alignment")
    begin = -(-reader.place // align) * align
    tensors = {name: (shape, kind, begin + place) for name, (shape, kind, place) in found.items()}
    needed = 0
    for name, (shape, kind, start) in tensors.items():
        if kind not in [one.value for one in gguf.GGMLQuantizationType]:
            raise RegardError(f"{name[:60]} in {reader.path} has values of type {kind}, which Regard does not support.")
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
        if min(shape) < 1 or shape[-1] % block or start + math.prod(shape) // block * size > len(reader.data):
            reader.wrong(f"ends before its tensor {name[:60]}")
        needed += math.prod(shape) // block * size
    if needed > len(reader.data):  # each number is in the file once, so memory is bounded by the file's size
        reader.wrong("has overlapping tensors")
    return values, tensors


def _rows(tensors: dict[str, tuple[list[int], int, int]]) -> int:
    return tensors["token_embd.weight"][0][0] if "token_embd.weight" in tensors else 0


def _config(reader: HeaderReader, kind: str, own: dict[str, Any], tensors: dict[str, Any]) -> Config:
    """The values under the names of Hugging Face's config.json; takes the scales that divide the rotary frequencies
    from `tensors`."""
    file, place = reader.path, tensors.pop(ROTARY_SCALES, None)
    if own.get("expert_count"):
        raise RegardError(
            f"{file} is a mixture of {own['expert_count']!s:.20} experts, but Regard's llama supports only one."
        )
    if own.get("attention.sliding_window"):
        raise RegardError(
            f"The attention of {file} covers only a sliding window of the text, but Regard's llama covers all of it."
        )
    biases = [part for part in ("attn_q", "attn_output", "ffn_up") if f"blk.0.{part}.bias" in tensors]
    shared = {"tie_word_embeddings": "output.weight" not in tensors, "model_type": kind}
    if kind == "gpt2":
        names = {"n_embd": "embedding_length", "n_layer": "block_count", "n_head": "attention.head_count"}
        names |= {"n_positions": "context_length", "n_inner": "feed_forward_length"}
        values = {name: own.get(theirs) for name, theirs in names.items()}
        epsilon = _short(own.get("attention.layer_norm_epsilon", 1e-5))
        return Config(file, {**values, **shared, "layer_norm_epsilon": epsilon})
    names = {
        "hidden_size": "embedding_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "intermediate_size": "feed_forward_length",
        "max_position_embeddings": "context_length",
        "head_dim": "attention.key_length",
    }
    values = {name: own.get(theirs) for name, theirs in names.items()}
    rotary = {"rope_type": own.get("rope.scaling.type", "default"), "factor": own.get("rope.scaling.factor")}
    rotary |= {"rope_theta": _short(own.get("rope.freq_base", 10000.0))}
    rotary["rope_type"] = "default" if rotary["rope_type"] == "none" else rotary["rope_type"]
    if place is not None:
        shape, stored_as, _ = place
        if len(shape) != 1 or stored_as != gguf.GGMLQuantizationType.F32:
            reader.wrong(f"has {ROTARY_SCALES} with an unexpected shape or type")
        scales = StoredTensor(reader, *place).get_tensor(ROTARY_SCALES)
        rotary |= _llama3(file, scales, rotary["rope_theta"])
    if own.get("attention.value_length", own.get("attention.key_length")) != own.get("attention.key_length"):
        raise RegardError(f"The keys and values of {file} differ in width, which Regard's llama does not support.")
    biased = {"attention_bias": "attn_output" in biases, "mlp_bias": "ffn_up" in biases}
    kind = "qwen2" if biases == ["attn_q"] else "llama"
    epsilon = _short(own.get("attention.layer_norm_rms_epsilon", 1e-5))
    more = {"rms_norm_eps": epsilon, "rope_parameters": rotary, **biased, **shared, "model_type": kind}
    return Config(file, {**values, **more})


def _llama3(file: Path, scales: Tensor, theta: Any) -> dict[str, Any]:
    """The settings that give these scales, if they are those of Llama 3.1 to 3.3, which differ only in the factor."""
    stretch = Stretch("llama3", float(scales.max()))
    if isinstance(theta, float) and 1 < theta < 1e12 and stretch.factor >= 1:
        frequency = theta ** (-torch.arange(len(scales), dtype=torch.float64) / len(scales))
        if torch.allclose(frequency / stretch(frequency), scales.double(), rtol=1e-4):
            return {
                "rope_type": "llama3",
                "factor": stretch.factor,
                "low_freq_factor": stretch.low,
                "high_freq_factor": stretch.high,
                "original_max_position_embeddings": stretch.context,
            }
    raise RegardError(
        f"{ROTARY_SCALES} in {file} are not the rotary scales of Llama 3.1 to 3.3: import the Hugging Face folder, "
        "whose config.json defines them."
    )


def _short(value: Any) -> Any:
    """A 32-bit number in its shortest form: 9.99999975e-06 is 1e-05."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _tokenizer(file: Path, values: dict[str, Any], tokens: list[str], rows: int) -> ImportedTokenizer:
    def numbers(name: str, default: float) -> list[Any]:
        found = values.get(f"tokenizer.ggml.{name}", [default] * len(tokens))
        if not isinstance(found, list) or len(found) != len(tokens) or not all(map(is_number, found)):
            raise RegardError(f"tokenizer.ggml.{name} in {file} is not a list with one number per token.")
        return found

    kind, kinds = values.get("tokenizer.ggml.model"), numbers("token_type", NORMAL)
    scores = numbers("scores", 0.0) if kind == "llama" else []
    begin, eos = (values.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    try:
        if kind == "gpt2":
            merges = values.get("tokenizer.ggml.merges", [])
            if (
                not isinstance(merges, list)
                or len(merges) > MAX_VOCABULARY
                or not all(isinstance(one, str) for one in merges)
            ):
                raise RegardError(f"has merges that are not strings, or has more than {MAX_VOCABULARY} merges")
            engine = byte_pairs(tokens, merges, kinds, str(values.get("tokenizer.ggml.pre", "default")))
        elif kind == "llama":
            prefix = values.get("tokenizer.ggml.add_space_prefix", True) is True
            engine = sentence_pieces(tokens, scores, kinds, prefix)
        else:
            raise RegardError(
                f"has a {kind!s:.20} tokenizer; in GGUF files, Regard reads only gpt2 and llama tokenizers"
            )
        ends = eos if type(eos) is int else -1
        return import_engine(engine, begin=begin if type(begin) is int else ends, eos=ends, vocabulary=rows)
    except RegardError as error:
        raise RegardError(f"{file} {error}.") from None


def _named(
    reader: HeaderReader, kind: str, tensors: dict[str, Any], settings: dict[str, Any]
) -> dict[str, StoredTensor]:
    """The tensors under Hugging Face's names, without a prefix."""
    blocks, names = NAMES[kind]
    ours = {theirs: name for name, theirs in names.items()}
    groups = settings.get("key_value_heads") or settings["heads"]
    turns = {"attn_q": settings["heads"], "attn_k": groups} if kind == "llama" else {}
    found = {}
    for name, (shape, numbers, start) in tensors.items():
        place, _, part = name.rpartition(".")
        head, _, inside = place.partition(".")
        layer, _, inside = inside.partition(".") if head == "blk" else ("", "", place)
        before = f"{blocks}.{layer}." if head == "blk" else ""
        full = f"{before}{ours.get(inside, inside)}.{part}"
        turned = turns.get(inside, 0)
        if turned and (shape[0] % (2 * turned)):
            reader.wrong(f"has a tensor {name[:60]} whose size is not divisible by the number of heads")
        found[full] = StoredTensor(reader, shape, numbers, start, turned)
    return found
