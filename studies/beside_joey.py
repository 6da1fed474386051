"""Training and translating beside Joey NMT: the same Transformer on the same words, one after the other, on this CPU.

    python studies/beside_joey.py MULTI30K --joey PYTHON [--updates 60] [--sentences 300]
                                              [--length 25] [--threads 2]

MULTI30K is a folder with train.de, train.en, val.* and test_2016_flickr.*; PYTHON an interpreter that has joeynmt 2.3
(with importlib_metadata, which its package forgets). Both get the same words (cut by Regard's word tokenizer, those
that occur twice), three blocks a side of width 256, four heads, feed-forward 1024, 64 sentences a step (Regard: as
many tokens), label smoothing, Adam, dropout 0.3; then both translate the same sentences with beam 5, the same 64 at a
time. After so short a training both write nonsense, so both are made to write exactly --length tokens for every
sentence: Regard by its settings, Joey NMT by its search's own least length, which its command reads and does not hand
on. Both count what they wrote, and anything else is an error. Target tokens per second of training are those each
program counts in its own log, the median of all log lines but the first two; the time of a translation is its own,
too, without starting up. Memory is the most that a process held, its libraries included. Nothing else should run. A
JSON line comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

BATCH = 64  # sentences
JOEY = """
name: "bench"
joeynmt_version: "2.3.0"
model_dir: "{folder}/joey"
use_cuda: False
random_seed: 1
data:
    train: "{folder}/train"
    dev: "{folder}/dev"
    test: "{folder}/test"
    dataset_type: "plain"
    src: {{lang: "de", max_length: 100, level: "word", voc_min_freq: 2}}
    trg: {{lang: "en", max_length: 100, level: "word", voc_min_freq: 2}}
testing:
    n_best: 1
    beam_size: 5
    beam_alpha: 1.0
    batch_size: 64
    batch_type: "sentence"
    max_output_length: {length}
    eval_metrics: ["bleu"]
training:
    optimizer: "adam"
    adam_betas: [0.9, 0.98]
    scheduling: "warmupinversesquareroot"
    learning_rate: 0.001
    learning_rate_warmup: 1000
    label_smoothing: 0.1
    loss: "crossentropy"
    normalization: "tokens"
    batch_size: 64
    batch_type: "sentence"
    epochs: 1
    max_updates: {updates}
    validation_freq: {updates}
    logging_freq: 5
    keep_best_ckpts: 1
    overwrite: True
    shuffle: True
model:
    initializer: "xavier_uniform"
    embed_initializer: "xavier_uniform"
    tied_softmax: True
    encoder:
        type: "transformer"
        num_layers: 3
        num_heads: 4
        embeddings: {{embedding_dim: 256, scale: True, dropout: 0.0}}
        hidden_size: 256
        ff_size: 1024
        dropout: 0.3
        layer_norm: "pre"
    decoder:
        type: "transformer"
        num_layers: 3
        num_heads: 4
        embeddings: {{embedding_dim: 256, scale: True, dropout: 0.0}}
        hidden_size: 256
        ff_size: 1024
        dropout: 0.3
        layer_norm: "pre"
"""

# Joey NMT's command, with the least length given to the search as well, which says what it wrote.
JOEY_TRANSLATE = """
import sys
import joeynmt.prediction
from joeynmt.__main__ import main

search = joeynmt.prediction.search

def write_exactly(model, **settings):
    found = search(model=model, **settings, min_output_length=settings["max_output_length"])
    written = int(((found[0] != model.pad_index) & (found[0] != model.eos_index)).sum())
    print(f"wrote {len(found[0])} sentences, {written} tokens", file=sys.stderr)
    return found

joeynmt.prediction.search = write_exactly
main()
"""

# Regard's call, which says the same.
REGARD_TRANSLATE = """
import sys, time
import torch
from regard.decoding.beam import Beam
from regard.runs.load import load_translator

run, source, length, threads, batch = sys.argv[1:3] + [int(number) for number in sys.argv[3:]]
torch.set_num_threads(threads)
translator = load_translator(run)
lines = open(source, encoding="utf-8").read().splitlines()
began = time.perf_counter()
limits = {"max_tokens": length, "min_tokens": length}
batches = {"ahead": batch, "batch_tokens": 10**9}  # so many lines as they come, as Joey NMT reads them
found = list(translator.translations(lines, beam=5, **limits, **batches))
print(time.perf_counter() - began, len(found), sum(len(best.tokens) for best, *_ in found), translator.parameters)
"""


def main() -> None:
    options = arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        share_words(options.data, folder, options)
        rows = {"joey": joey(folder, options), "regard": regard(folder, options)}
    print(f"beam 5: both write {options.length} tokens for each of {options.sentences} sentences, {BATCH} at a time")
    units = {"training": "target tokens/s", "translating": "sentences/s, beam 5"}
    for what, unit in units.items():
        ours, theirs = rows["regard"][what], rows["joey"][what]
        print(f"{what}: Regard {ours:.1f} {unit}, Joey NMT {theirs:.1f}: {ours / theirs:.2f} times")
        held = [rows[who][f"{what} memory"] / 2**20 for who in ("regard", "joey")]
        print(f"  memory: Regard {held[0]:.0f} MiB, Joey NMT {held[1]:.0f} MiB")
    print(json.dumps(rows | {"options": {k: str(v) for k, v in vars(options).items()}}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Regard beside Joey NMT on this CPU.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--joey", required=True)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def share_words(data: Path, folder: Path, options: argparse.Namespace) -> None:
    """The same words for both, separated by blanks; as many training pairs as the updates read (Joey NMT looks at its
    limit only when an epoch ends)."""
    from regard.text.tokenizers.engine import SPLIT_WORDS, splitter

    cut = splitter(SPLIT_WORDS)
    parts = {
        "train": ("train", BATCH * options.updates),
        "dev": ("val", BATCH),
        "test": ("test_2016_flickr", options.sentences),
    }
    for ours, (theirs, lines) in parts.items():
        for language in ("de", "en"):
            text = (data / f"{theirs}.{language}").read_text(encoding="utf-8").splitlines()[:lines]
            words = [" ".join(word for word, _ in cut.pre_tokenize_str(line)) for line in text]
            (folder / f"{ours}.{language}").write_text("\n".join(words) + "\n", encoding="utf-8")


def joey(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    config = folder / "joey.yaml"
    config.write_text(JOEY.format(folder=folder, updates=options.updates, length=options.length), encoding="utf-8")
    _, training_memory = run([options.joey, "-m", "joeynmt", "train", str(config), "--skip-test"])
    log = (folder / "joey" / "train.log").read_text(encoding="utf-8")
    speeds = [float(number) for number in re.findall(r"Tokens per Sec:\s+(\d+)", log)]
    parameters = re.search(r"Total params: (\d+)", log)
    with open(folder / "test.de", encoding="utf-8") as source:
        said, memory = run([options.joey, "-c", JOEY_TRANSLATE, "translate", str(config)], stdin=source)
    took = float(re.findall(r"Generation took ([\d.]+)\[sec\]", said)[-1])
    batches = re.findall(r"wrote (\d+) sentences, (\d+) tokens", said)
    sentences, tokens = (sum(int(batch[part]) for batch in batches) for part in (0, 1))
    check("Joey NMT", sentences, tokens, options)
    return {
        "training": median(speeds[2:]),
        "training memory": training_memory,
        "translating": options.sentences / took,
        "translating memory": memory,
        "parameters": float(parameters[1]) if parameters else 0.0,
    }


def regard(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    words = ["--data", str(folder), "--data.source", "de", "--data.target", "en", "--data.tokenizer", "word"]
    words += ["--data.joint", "false", "--run", str(folder / "run"), "--size", "small", "--training.device", "cpu"]
    words += ["--training.steps", str(options.updates), "--training.evaluate-every", str(options.updates)]
    words += ["--training.checkpoint-every", str(options.updates), "--training.threads", str(options.threads)]
    words += ["--training.batch-tokens", str(batch_tokens(folder)), "--training.validation-pairs", "64"]
    words += ["--data.longest", "100", "--training.keep", "0"]
    _, training_memory = run([sys.executable, "-m", "regard", "train", "transformer", *words])
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    speeds = [entry["tokens_per_second"] for entry in metrics if "tokens_per_second" in entry]
    given = (folder / "run", folder / "test.de", options.length, options.threads, BATCH)
    said, memory = run([sys.executable, "-c", REGARD_TRANSLATE, *map(str, given)])
    took, sentences, tokens, parameters = (float(number) for number in said.split()[-4:])
    check("Regard", int(sentences), int(tokens), options)
    return {
        "training": median(speeds[2:]),
        "training memory": training_memory,
        "translating": options.sentences / took,
        "translating memory": memory,
        "parameters": parameters,
    }


def check(who: str, sentences: int, tokens: int, options: argparse.Namespace) -> None:
    """The comparison holds only if both wrote the same amount."""
    if (sentences, tokens) != (options.sentences, options.sentences * options.length):
        raise SystemExit(f"{who} wrote {tokens} tokens for {sentences} sentences, which is not what was asked for.")


def batch_tokens(folder: Path) -> int:
    """As many padded tokens as a batch of sentences of mean length have on both sides."""
    sides = [(folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en")]
    return round(BATCH * sum(sum(len(line.split()) + 1 for line in side) / len(side) for side in sides))


def run(words: list[str], stdin=None) -> tuple[str, int]:
    """What a process said, and the most bytes that it held."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(words, stdin=stdin, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}\n{text[-6000:]}")
    return text, used.ru_maxrss * 1024


if __name__ == "__main__":
    main()
