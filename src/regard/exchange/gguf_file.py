"""A run as one GGUF file, which llama.cpp and the programs built on it read: `gpt` as its GPT-2, `llama` as its Llama.

The file also contains the tokenizer: GGUF supports byte pairs as in GPT-2, so runs with other tokens are refused. The
boundary `<eos>` is put before every prompt. Rotary positions rotate neighboring components in llama.cpp, but k and
k + d/2 in Regard, so queries and keys are reordered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from tokenizers import Tokenizer as Engine
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.settings import check_choice
from regard.exchange import hf_gpt2, hf_llama
from regard.exchange.foreign_tokenizers import BYTE, CONTROL, CUTS, NORMAL, UNKNOWN, cut_by
from regard.exchange.parity import Parity, texts, token_rows, without_parts
from regard.report.progress import say
from regard.runs.tasks.language.run import LanguageRun
from regard.text.tokenizers.tokenizer import Tokenizer

KINDS = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}  # as llama.cpp numbers them
ROTARY_SCALES = "rope_freqs.weight"  # llama3's stretch, as a factor for each frequency
BLOCK = 32  # numbers that share a scale in q8_0
GPT2 = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "output": "output",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
LLAMA = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write(run: LanguageRun, out: Path, *, quantization: str = "f32") -> None:
    check_choice("--quantization", quantization, tuple(KINDS))
    settings = run.recipe.model
    if quantization == "q8_0" and settings.width % BLOCK:
        raise RegardError(f"q8_0 needs a width divisible by {BLOCK}, but model.width is {settings.width}: use f16.")
    if run.tokenizer.kind == "imported":
        check_imported(run.tokenizer)
    elif run.tokenizer.kind != "bpe":
        raise RegardError(
            f"data.tokenizer {run.tokenizer.kind} cannot be exported: GGUF supports only byte pairs; train with "
            "--data.tokenizer bpe."
        )
    if run.tokenizer.normalisation != "none":
        say(
            f"note: GGUF cannot record that text is normalized ({run.tokenizer.normalisation}): normalize text "
            "before you give it to the model"
        )
    tensors = _llama(run) if run.recipe.system == "llama" else _gpt2(run)
    qwen = run.recipe.system == "llama" and settings.bias == "qkv"
    writer = gguf.GGUFWriter(out, "qwen2" if qwen else "llama" if run.recipe.system == "llama" else "gpt2")
    writer.add_name(run.folder.resolve().name)
    writer.add_file_type(FILE_TYPES[quantization])
    writer.add_vocab_size(run.tokenizer.vocabulary)
    writer.add_context_length(settings.context)
    writer.add_embedding_length(settings.width)
    writer.add_block_count(settings.layers)
    writer.add_head_count(settings.heads)
    if run.recipe.system == "llama":
        writer.add_feed_forward_length(settings.inner)
        writer.add_head_count_kv(settings.groups)
        writer.add_layer_norm_rms_eps(settings.epsilon)
        writer.add_rope_dimension_count(settings.head)
        writer.add_rope_freq_base(settings.theta)
        writer.add_key_length(settings.head)
        writer.add_value_length(settings.head)
        if settings.stretch == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(settings.stretch_factor)
    else:
        writer.add_feed_forward_length(settings.feedforward or 4 * settings.width)
        writer.add_layer_norm_eps(1e-5)
    _add_tokenizer(writer, run.tokenizer)
    for name, tensor in tensors.items():
        _add_tensor(writer, name, tensor, quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gpt2(run: LanguageRun) -> dict[str, Tensor]:
    settings = run.recipe.model
    hf_gpt2.check_settings(settings, "GGUF's GPT-2")
    if settings.activation != "gelu":
        raise RegardError(
            f"model.activation {settings.activation} cannot be exported: GGUF's GPT-2 supports only gelu; train with "
            "--model.activation gelu."
        )
    return {_named(name, "h", GPT2): tensor for name, tensor in hf_gpt2.tensors_of(run.model).items()}  # type: ignore[arg-type]


def _llama(run: LanguageRun) -> dict[str, Tensor]:
    settings, tensors = run.recipe.model, hf_llama.tensors_of(run.model)  # type: ignore[arg-type]
    scales = {}
    if settings.stretch == "llama3":  # the divisor of each frequency
        half = settings.head // 2
        frequency = settings.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        scales[ROTARY_SCALES] = (frequency / settings.rotations(frequency)).float()
    if settings.bias == "qkv":  # Qwen2's are stored as they are
        return {_named(name, "layers", LLAMA): tensor for name, tensor in tensors.items()} | scales
    for name, tensor in tensors.items():
        for projection, heads in (("q_proj", settings.heads), ("k_proj", settings.groups)):
            if projection in name:  # [heads, 2, d/2, in] → [heads, d/2, 2, in]: pairs that rotate together
                halves = tensor.unflatten(0, (heads, 2, -1))
                tensors[name] = halves.transpose(1, 2).reshape(tensor.shape)
    return {_named(name, "layers", LLAMA): tensor for name, tensor in tensors.items()} | scales


def _named(name: str, blocks: str, names: dict[str, str]) -> str:
    """h.0.ln_1.weight → blk.0.attn_norm.weight"""
    place, _, part = name.rpartition(".")
    if not place.startswith(f"{blocks}."):
        return f"{names[place]}.{part}"
    _, layer, inside = place.split(".", 2)
    return f"blk.{layer}.{names[inside]}.{part}"


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: Tensor, quantization: str) -> None:
    """Norms, biases and positions stay in fp32, as llama.cpp expects them."""
    numbers = tensor.detach().float().contiguous().numpy()
    whole = numbers.ndim < 2 or name == "position_embd.weight"
    if quantization == "f32" or whole or (quantization == "q8_0" and numbers.shape[-1] % BLOCK):
        writer.add_tensor(name, numbers)
        return
    packed = gguf.quants.quantize(numbers, KINDS[quantization])
    writer.add_tensor(name, packed, raw_dtype=KINDS[quantization])


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    if tokenizer.kind == "imported":
        return _add_imported(writer, tokenizer)
    model = json.loads(tokenizer.json)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if number == tokenizer.eos else NORMAL for number in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]])
    writer.add_bos_token_id(tokenizer.eos)  # one boundary: it begins a line and ends it
    writer.add_eos_token_id(tokenizer.eos)
    writer.add_pad_token_id(tokenizer.eos)
    writer.add_add_bos_token(True)


def check_imported(tokenizer: Tokenizer) -> None:
    """Refuses an imported tokenizer for which GGUF has no name."""
    if _cut_name(tokenizer) is None:
        raise RegardError(
            "This tokenizer splits text by rules that Regard cannot express in GGUF; use --to huggingface."
        )


def _cut_name(tokenizer: Tokenizer) -> str | None:
    """GGUF's name for how a byte-level tokenizer cuts text; "" for SentencePiece's kind with scores."""
    there = json.loads(tokenizer.json)
    if there["model"]["type"] == "BPE" and there["model"].get("byte_fallback"):
        return ""
    made = repr(Engine.from_str(tokenizer.json).pre_tokenizer).replace("trim_offsets=False", "trim_offsets=True")
    return next((name for name in CUTS if repr(cut_by(name)) == made), None)


def _add_imported(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    there, name = json.loads(tokenizer.json), _cut_name(tokenizer)
    engine = Engine.from_str(tokenizer.json)
    tokens = [engine.id_to_token(number) or "" for number in range(tokenizer.vocabulary)]
    special = {one["id"] for one in there["added_tokens"] if one["special"]}
    kinds = [CONTROL if number in special else NORMAL for number in range(len(tokens))]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in there["model"]["merges"]]
    if name == "":  # a piece's score is the rank of the first merge that makes it; characters come last
        kinds = [BYTE if one.startswith("<0x") and kind == NORMAL else kind for one, kind in zip(tokens, kinds)]
        if tokenizer.unk is not None:
            kinds[tokenizer.unk] = UNKNOWN
        ranks: dict[str, int] = {}
        for rank, merge in enumerate(merges):
            ranks.setdefault(merge.replace(" ", ""), rank)
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(ranks.get(token, len(merges))) for token in tokens])
        writer.add_add_space_prefix("Prepend" in json.dumps(there["normalizer"]))
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(name or "default")
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(tokenizer.begin)
    writer.add_eos_token_id(tokenizer.eos)
    writer.add_pad_token_id(tokenizer.eos)
    writer.add_add_bos_token(True)


# -- llama.cpp's opinion -----------------------------------------------------------------------------------------------


def check(run: LanguageRun, out: Path, **_: str) -> Parity:
    """Let llama.cpp (in the package xllamacpp) read the same prompts; compare log-probabilities and greedy texts."""
    try:
        import xllamacpp
    except ImportError:
        raise RegardError(
            f"{out} was written; to check it with llama.cpp, install xllamacpp: pip install xllamacpp."
        ) from None
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(out), run.recipe.model.context, 1
    params.cpuparams.n_threads, params.warmup, params.verbosity = 1, False, 0
    params.cache_type_k = params.cache_type_v = (
        xllamacpp.ggml_type.GGML_TYPE_F32
    )  # by default fp16, with flash attention
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    prompts = [[run.tokenizer.begin, *row][: run.recipe.model.context - 2] for row in token_rows(run)]
    difference = max(_difference(run, server, prompt) for prompt in prompts)
    same = []
    for line in filter(str.strip, texts(run)):
        prompt = line[: max(1, len(line) // 2)].rstrip()
        most = min(16, run.recipe.model.context - 2 - len(run.tokenizer.encode(prompt)))
        if most > 0:
            answer = _complete(server, prompt, most, logit_bias=[[token, False] for token in run.forbidden])
            ours = run.generate(prompt, max_tokens=most, temperature=0, lines=1).removesuffix("\n")
            same.append(prompt + without_parts(answer["text"]) == ours)
    return Parity(
        system=run.recipe.system,
        format="gguf",
        program=f"llama.cpp (xllamacpp {xllamacpp.__version__})",
        compared=f"log-probabilities of all {run.tokenizer.vocabulary} tokens after 4 prompts",
        largest_difference=difference,
        same_text=f"{sum(same)} of {len(same)} greedy texts",
    )


def _complete(server: Any, prompt: str | list[int], most: int, **more: Any) -> dict[str, Any]:
    request = {"prompt": prompt, "n_predict": most, "temperature": 0.0, "cache_prompt": False, **more}
    (choice,) = server.handle_completions(request)["choices"]
    return dict(choice)


@torch.no_grad()
def _difference(run: LanguageRun, server: Any, prompt: list[int]) -> float:
    ours = run.model(torch.tensor([prompt]))[0][0, -1].log_softmax(-1)
    letter = run.tokenizer.encode("a")[0]  # forced: llama.cpp reports nothing for part of a character
    more = {"n_probs": run.tokenizer.vocabulary, "logit_bias": [[letter, 1e9]]}
    answer = _complete(server, prompt, 1, **more)
    theirs = answer["logprobs"]["content"][0]["top_logprobs"]
    return max(abs(float(ours[one["id"]]) - one["logprob"]) for one in theirs)
