"""Does an imported model predict what it predicts elsewhere? Beside llama.cpp and transformers, on 200 prompts.

    python studies/real_models.py SmolLM2-135M-Instruct.Q4_1.gguf
    python studies/real_models.py stories260K.bin --tokenizer tok512.bin

The prompts are the first half of each of 200 sentences of the built-in phrasebook, read after the token that begins a
text. Compared are the log-probabilities of the next token (for llama.cpp, of its 50 most probable) between Regard's
run of the file and

    transformers, exported            the same weights, written by Regard as a Hugging Face folder
    Regard, exported and re-read      bit for bit
    llama.cpp, exported as f32        the same weights without quantization, written by Regard
    llama.cpp, the file itself        a GGUF file only. It rounds activations to 8 bits before it multiplies them with
                                      quantized weights, so it also differs from itself: the row after that

Then the time to the first token, the memory of `generate` and the loss on 40 other sentences, read one token at a
time, each in a process of its own, in fp32, bf16 and int8; `--speed` prints only that. Prints tables in Markdown.
Needs xllamacpp and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard
from regard.corpora.phrasebook import make_pairs
from regard.exchange.formats import export, import_file

PROMPTS, TOP = 200, 50
Row = dict[int, float]  # log-probabilities by token
PROBE = """
import sys, time, json, torch, regard
from regard.base.device import peak_memory
from regard.corpora.phrasebook import make_pairs
from regard.runs.speed import set_precision
began = time.perf_counter()
run = regard.load(sys.argv[1], device="cpu")
set_precision(run.model, sys.argv[2])
opened = time.perf_counter()
next(run.stream("Once upon a time", max_tokens=1, temperature=0))
first = time.perf_counter()
text = run.generate("Once upon a time", max_tokens=33, temperature=0)
ended = time.perf_counter()
losses = []
with torch.inference_mode():
    for pair in make_pairs(40, seed=2, shortest=5):
        state, read = None, run.tokenizer.begin
        for token in run.tokenizer.encode(pair.source):
            logits, state = run.model(torch.tensor([[read]]), state)
            losses.append(-float(logits[0, -1].float().log_softmax(-1)[token]))
            read = token
peak = peak_memory(torch.device("cpu")) / 2**20
print(json.dumps({"open": opened - began, "first": first - opened, "next": (ended - first) / 33, "MiB": peak,
    "loss": sum(losses) / len(losses)}))
"""


def ours(run: Any) -> Callable[[list[int]], Row]:
    @torch.no_grad()
    def predict(ids: list[int]) -> Row:
        logits = run.model(torch.tensor([ids]))[0][0, -1].float()
        return dict(enumerate(logits.log_softmax(-1).tolist()))

    return predict


def transformers_of(folder: Path) -> Callable[[list[int]], Row]:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    @torch.no_grad()
    def predict(ids: list[int]) -> Row:
        return dict(enumerate(model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).tolist()))

    return predict


def llama_cpp_of(file: Path, letter: int) -> Callable[[list[int]], Row]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(file), 512, 1
    params.cpuparams.n_threads, params.warmup, params.verbosity = torch.get_num_threads(), False, 0
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)

    def predict(ids: list[int]) -> Row:
        more = {"n_probs": TOP, "logit_bias": [[letter, 1e9]]}  # part of a character would be reported as nothing
        request = {"prompt": ids, "n_predict": 1, "temperature": 0.0, "cache_prompt": False, **more}
        (choice,) = server.handle_completions(request)["choices"]
        return {one["id"]: one["logprob"] for one in choice["logprobs"]["content"][0]["top_logprobs"]}

    return predict


def compare(ours: list[Row], theirs: list[Row]) -> str:
    """Equal most probable tokens, and the differences of log-probabilities."""
    same = sum(max(mine, key=mine.__getitem__) == max(row, key=row.__getitem__) for mine, row in zip(ours, theirs))
    apart = [abs(mine[token] - value) for mine, row in zip(ours, theirs) for token, value in row.items()]
    close = [
        sorted(mine.values())[-1] - sorted(mine.values())[-2]
        for mine, row in zip(ours, theirs)
        if max(mine, key=mine.__getitem__) != max(row, key=row.__getitem__)
    ]
    note = f" (where not, ours are {max(close):.2g} apart at most)" if close else ""
    return f"{same} of {len(ours)}{note} | {sum(apart) / len(apart):.2g} | {max(apart):.2g}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--tokenizer", type=Path)
    options.add_argument("--speed", action="store_true", help="only the last table")
    options.add_argument("--prompts", type=int, default=PROMPTS)
    options.add_argument("--threads", type=int, default=os.cpu_count())
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    with tempfile.TemporaryDirectory() as folder:
        if chosen.speed:
            made = [
                import_file(chosen.file, Path(folder) / precision, chosen.tokenizer, precision)
                for precision in ("fp32", "bf16")
            ]
            speed(*made)
        else:
            study(chosen.file, chosen.tokenizer, chosen.prompts, Path(folder))


def study(file: Path, tokenizer: Path | None, count: int, place: Path) -> None:
    began = time.perf_counter()
    run = regard.load(import_file(file, place / "run", tokenizer), device="cpu")
    print(f"imported and opened in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    lines = [pair.source for pair in make_pairs(count, seed=1, shortest=5)]
    prompts = [[run.tokenizer.begin, *run.tokenizer.encode(line[: len(line) // 2].rstrip())] for line in lines]
    expected = [*map(ours(run), prompts)]
    letter = run.tokenizer.encode("a")[-1]
    print(f"| {file.name} in Regard, compared with | same top token | mean difference | largest |\n|---|---|---|---|")

    def row(name: str, predict: Callable[[list[int]], Row]) -> list[Row]:
        found = [*map(predict, prompts)]
        print(f"| {name} | {compare(expected, found)} |", flush=True)
        return found

    export(run.folder, "huggingface", place / "folder", options={"scores": "no"})
    row("transformers, exported", transformers_of(place / "folder"))
    back = regard.load(import_file(place / "folder", place / "from-folder"), device="cpu")
    row("Regard, exported as a folder and re-read", ours(back))
    export(run.folder, "gguf", place / "again.gguf")
    back = regard.load(import_file(place / "again.gguf", place / "from-gguf"), device="cpu")
    row("Regard, exported as GGUF and re-read", ours(back))
    exact = row("llama.cpp, exported as f32", llama_cpp_of(place / "again.gguf", letter))
    if file.suffix == ".gguf":
        found = row("llama.cpp, the file itself", llama_cpp_of(file, letter))
        both = [
            (
                {token: one[token] for token in one if token in other},
                {token: other[token] for token in one if token in other},
            )
            for one, other in zip(exact, found)
        ]
        print(f"| (llama.cpp: the file, compared with the export) | {compare(*map(list, zip(*both)))} |", flush=True)
    import_file(file, place / "half", tokenizer, "bf16")
    half = regard.load(place / "half", device="cpu")
    row("Regard, `--precision bf16`", ours(half))
    speed(run.folder, half.folder)


def speed(folder: Path, half: Path) -> None:
    print("\n| precision | open | first token | each next | memory | nats per token |\n|---|---|---|---|---|---|")
    for name, where in (("fp32", folder), ("bf16", half), ("int8", folder)):
        probe = [sys.executable, "-c", PROBE, str(where), "fp32" if where == half else name]
        told = subprocess.run(probe, capture_output=True, text=True, check=True)
        found = json.loads(told.stdout.splitlines()[-1])
        times = " | ".join(f"{1000 * found[part]:,.0f} ms" for part in ("open", "first", "next"))
        print(f"| {name} | {times} | {found['MiB']:,.0f} MiB | {found['loss']:.4f} |", flush=True)


if __name__ == "__main__":
    main()
