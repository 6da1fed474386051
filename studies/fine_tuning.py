"""Fine-tune a model of others on a text: loss before and after, tokens per second, memory.

    python studies/fine_tuning.py shakespeare.txt stories260K.bin --tokenizer tok512.bin --steps 300
    python studies/fine_tuning.py shakespeare.txt SmolLM2-135M-Instruct.Q4_1.gguf --steps 60
    python studies/fine_tuning.py shakespeare.txt --random --steps 60

`--random` takes random weights of SmolLM2-135M's shape, with its 49,152 tokens, where the file is not at hand: speed
and memory are the same, the loss before says nothing. Trains on a GPU in bf16 if there is one. Prints a table in
Markdown. Needs no network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import regard

SHAPE = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
SHAPE |= {"num_key_value_heads": 3, "max_position_embeddings": 8192, "vocab_size": 49152}


def random_folder(text: Path, folder: Path) -> Path:
    """A Hugging Face folder of SmolLM2's shape, with a byte-pair tokenizer of the text."""
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    ends = ["<s>", "</s>"]
    engine.train([str(text)], trainers.BpeTrainer(vocab_size=8192, special_tokens=ends, initial_alphabet=alphabet))
    engine.add_special_tokens([f"<unused {n}>" for n in range(SHAPE["vocab_size"] - engine.get_vocab_size())])
    folder.mkdir()
    engine.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    config = SHAPE | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True}
    config |= {"rms_norm_eps": 1e-5, "rope_theta": 1e5, "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    width, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    groups = width * SHAPE["num_key_value_heads"] // SHAPE["num_attention_heads"]
    shapes = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (groups, width)}
    shapes |= {"self_attn.v_proj": (groups, width), "self_attn.o_proj": (width, width)}
    shapes |= {"mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}
    weights = {"model.embed_tokens.weight": torch.randn(SHAPE["vocab_size"], width) * 0.02}
    weights["model.norm.weight"] = torch.ones(width)
    for layer in range(SHAPE["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        weights |= {f"{at}{name}.weight": torch.randn(shape) * 0.02 for name, shape in shapes.items()}
        weights |= {f"{at}{name}.weight": torch.ones(width) for name in ("input_layernorm", "post_attention_layernorm")}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("text", type=Path)
    options.add_argument("file", type=Path, nargs="?")
    options.add_argument("--tokenizer", type=Path)
    options.add_argument("--random", action="store_true")
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--batch-tokens", type=int, default=16384)
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--learning-rate", type=float, default=3e-4)
    options.add_argument("--device", default="auto")
    chosen = options.parse_args()
    if (chosen.file is None) != chosen.random:
        options.error("give the file of a model, or --random")
    with tempfile.TemporaryDirectory() as place:
        study(chosen, Path(place))


def study(chosen: argparse.Namespace, place: Path) -> None:
    file = random_folder(chosen.text, place / "random") if chosen.random else chosen.file
    start = regard.import_model(file, run=place / "start", tokenizer=chosen.tokenizer)
    training: dict[str, Any] = {"steps": chosen.steps, "batch_tokens": chosen.batch_tokens, "device": chosen.device}
    training |= {"learning_rate": chosen.learning_rate, "warmup": chosen.steps // 10}
    training |= {"evaluate_every": chosen.steps, "checkpoint_every": chosen.steps}
    began = time.perf_counter()
    run = regard.train(
        "llama", data=chosen.text, run=place / "tuned", start=start.folder,
        settings={"training": training, "model": {"context": chosen.context}},
    )  # fmt: skip
    seconds = time.perf_counter() - began
    events = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    speeds = sorted(one["tokens_per_second"] for one in events if "tokens_per_second" in one)
    first = regard.load(start.folder, regard.LanguageRun, device=chosen.device)
    assert isinstance(run, regard.LanguageRun)
    lines = list(run.corpus().splits["valid"])[:2000]
    before, after = (one.evaluate(data=lines, segment=chosen.context)["nats_per_token"] for one in (first, run))
    memory = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else float("nan")
    print("\n| model | steps | loss before | after | tokens/s, median | seconds in all | peak GPU memory |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {'random, SmolLM2-135M' if chosen.random else file.name} | {chosen.steps} | {before:.3f} | {after:.3f} | "
        f"{speeds[len(speeds) // 2] if speeds else float('nan'):,.0f} | {seconds:.1f} | {memory:,.0f} MiB |"
    )


if __name__ == "__main__":
    main()
