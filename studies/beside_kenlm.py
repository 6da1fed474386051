"""The n-gram against kenlm: estimation (lmplz) and scoring (kenlm's Python package), side by side on one text.

    python studies/beside_kenlm.py FOLDER [--order 5] [--lmplz PATH] [--repeats 7] [--batch 64x256]

FOLDER has train and test files of words separated by blanks (WikiText-2, PTB). Both sides get the same words: `<unk>`
in the text is renamed, because lmplz refuses it, and is an ordinary word for both. Repeats alternate; medians are
printed, and a JSON line last. What each side does in its time: Regard counts an array of token ids into arrays, lmplz
reads text and writes an ARPA file; Regard scores token ids, kenlm lines of text, both on one thread with the model in
memory. `full_scores` gives a number per token as Regard does, `score` one per line. `run.score` is Regard's whole call,
from lines of text to the numbers of each token, and `sums` the same to the one number of each line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from regard.base.errors import RegardError
from regard.exchange.arpa import write_arpa
from regard.fast.counting.gram_table import table_of
from regard.runs.recipe import compose
from regard.runs.speed import install
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.ngram import NGram, Settings
from regard.text.corpus import open_corpus
from regard.text.tokenizers.tokenizer import Tokenizer


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def numbered(lines: list[str], numbers: dict[str, int], grow: bool) -> np.ndarray:
    ids: list[int] = []
    for line in lines:
        ids += [numbers.setdefault(word, len(numbers)) if grow else numbers.get(word, 1) for word in line.split()]
        ids.append(0)
    return np.array(ids)


def lmplz(program: str, order: int, text: Path, arpa: Path) -> None:
    command = [program, "-o", str(order), "-S", "2G", "-T", str(arpa.parent)]
    with open(text, "rb") as source, open(arpa, "wb") as target:
        subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.DEVNULL, check=True)


def score(model: NGram, ids: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """−log P of every token: the text as `rows` rows, each begun by reading the words before it."""
    length = -(-len(ids) // rows)
    text = torch.cat([torch.zeros(1, dtype=torch.int64), ids, torch.zeros(rows * length - len(ids), dtype=torch.int64)])
    before = torch.arange(0, rows * length, length)[:, None] + torch.arange(1 - model.order, 0)  # [R, n − 1] places
    state = model.read(text[before.clamp(min=0)])[1] if model.order > 1 else None
    tokens, targets = text[:-1].view(rows, length), text[1:].view(rows, length)
    losses = []
    for begin in range(0, length, columns):
        loss, state = model.loss(tokens[:, begin : begin + columns], targets[:, begin : begin + columns], state)
        losses.append(loss)
    return torch.cat(losses, dim=1).flatten()[: len(ids)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--lmplz", default=shutil.which("lmplz"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batch", default="64x256")
    options = parser.parse_args()
    rows, columns = map(int, options.batch.split("x"))
    torch.set_num_threads(1)
    try:
        import kenlm
    except ImportError:
        sys.exit("The kenlm package is not installed: pip install kenlm.")
    try:
        splits = open_corpus(options.folder).splits
    except RegardError as error:
        sys.exit(str(error))
    train, test = ([line.replace("<unk>", "<UNK>") for line in splits[name]] for name in ("train", "test"))
    numbers = {"<eos>": 0, "<unk>": 1}
    ids = numbered(train, numbers, grow=True)
    held_out = torch.from_numpy(numbered(test, numbers, grow=False))
    model = NGram(len(numbers), Settings(order=options.order)).eval()

    with tempfile.TemporaryDirectory() as folder:
        text, arpa = Path(folder) / "train.txt", Path(folder) / "model.arpa"
        text.write_text("".join(line + "\n" for line in train), encoding="utf-8")
        estimation: dict[str, list[float]] = {"regard": [], "lmplz": []}
        for _ in range(3):
            estimation["regard"].append(timed(lambda: model.count(ids))[0])
            if options.lmplz:
                estimation["lmplz"].append(timed(lambda: lmplz(options.lmplz, options.order, text, arpa))[0])
        if not options.lmplz:
            print("lmplz was not found (--lmplz PATH): estimation stands alone, and kenlm scores Regard's estimates.")
            write_arpa(model, list(numbers), arpa)
        reading, theirs = timed(lambda: kenlm.Model(str(arpa)))

    install(model)
    for level in model.levels:
        table_of(level).asked = 2 * len(level.keys)  # as after a long text: its keys are hashed
    run = LanguageRun(Path(), compose("ngram", "small"), Tokenizer.of_tokens([*numbers], "word"), model)
    ways = {
        "regard": lambda: score(model, held_out, rows, columns),
        "run.score": lambda: [line.log_probabilities for line in run.score(test)],
        "sums": lambda: [line.log_probability for line in run.score(test)],
        "full_scores": lambda: [[entry[0] for entry in theirs.full_scores(line)] for line in test],
        "score": lambda: [theirs.score(line) for line in test],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Any] = {}
    for _ in range(options.repeats):
        for name, way in ways.items():
            took, results[name] = timed(way)
            seconds[name].append(took)
    ours, others = results["regard"].double().numpy() / -log(10), np.concatenate(results["full_scores"])
    speed = {name: len(held_out) / median(taken) for name, taken in seconds.items()}
    row = {
        "order": options.order,
        "train_tokens": len(ids),
        "test_tokens": len(held_out),
        "grams": model.stored_numbers,
        "perplexity": exp(-ours.mean() * log(10)),
        "kenlm_perplexity": exp(-others.mean() * log(10)),
        "largest_difference_log10": float(np.abs(ours - others).max()),
        "estimation_seconds": {name: median(taken) for name, taken in estimation.items() if taken},
        "words_per_second": speed,
        "ratio_to_full_scores": speed["regard"] / speed["full_scores"],
        "ratio_to_score": speed["regard"] / speed["score"],
        "ratio_of_run_score_to_full_scores": speed["run.score"] / speed["full_scores"],
        "ratio_of_run_score_to_score": speed["run.score"] / speed["score"],
        "ratio_of_sums_to_score": speed["sums"] / speed["score"],
        "kenlm_reads_arpa_seconds": reading,
        "batch": options.batch,
    }
    print(
        f"perplexity {row['perplexity']:.4f}, kenlm {row['kenlm_perplexity']:.4f}; "
        f"no token differs by more than {row['largest_difference_log10']:.1e} (log10)"
    )
    for name, value in row["estimation_seconds"].items():
        print(f"estimation  {name:12} {value:6.2f} s")
    for name, value in speed.items():
        print(f"scoring     {name:12} {value / 1e6:6.2f} million words/s")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
