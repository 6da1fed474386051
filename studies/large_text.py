"""Texts larger than memory: how long does training on a file of n bytes take to start, and how much memory?

    python studies/large_text.py --megabytes 64 256 1024 [--system lstm] [--tokenizer word]
    python studies/large_text.py --files novels.txt

For each size a file of that many bytes is written (random words with Zipf's frequencies, so that nothing compresses to
a few lines), and a tiny system is trained on it for a few steps in a process of its own: split, vocabulary, tokens,
batches, validation; then a second time, with everything cached. `--files`: these files instead. Printed: seconds before
the first step, as the training reports them (`import torch` included); seconds and processor seconds of the whole
command; the largest resident memory of that process, and of it and those that cut text for it together. Pages of mapped
files (the tokens, the libraries) count as resident while the system keeps them, and can be dropped at any time; the
last column leaves them out.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO

import numpy as np

WORDS = 50_000
SETTLED = 4.0  # seconds after which a file that was written counts as settled


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of training by the size of the text.")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--files", type=Path, nargs="+", default=[])
    parser.add_argument("--system", default="lstm")
    parser.add_argument("--tokenizer", default="word")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    print("      text  cache     start  seconds  processor s  resident  all processes  without files")
    for wanted in options.files or options.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            text = wanted if options.files else Path(folder) / "text.txt"
            if not options.files:
                write(text, wanted << 20)
                time.sleep(SETTLED)
            for heat in ("cold", "warm"):
                began, before = time.perf_counter(), processor_seconds()
                with open(Path(folder) / "log", "w+b") as log:
                    own, everyone, held = watch(train(options, text.absolute(), Path(folder), heat, log))
                    log.seek(0)
                    start = re.findall(rb"\(start (.*?),", log.read())[-1].decode()
                print(
                    f"{text.stat().st_size / 1e6:>7.0f} MB  {heat}  {start:>8}  {time.perf_counter() - began:>7.1f}  "
                    f"{processor_seconds() - before:>11.1f}  {own / 2**20:>5.0f} MB  {everyone / 2**20:>10.0f} MB  "
                    f"{held / 2**20:>10.0f} MB",
                    flush=True,
                )


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(path: Path, size: int) -> None:
    """Lines of 5 to 30 made-up words; the r-th most frequent has a frequency like 1/r."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwyp"))
    words = np.array(["".join(random.choice(letters, 2 + n % 9)) + str(n // 40) for n in range(WORDS)])
    chances = 1 / np.arange(1, WORDS + 1)
    chances /= chances.sum()
    with path.open("w", encoding="utf-8") as stream:
        while stream.tell() < size:
            drawn = words[random.choice(WORDS, 200_000, p=chances)]
            ends = np.cumsum(random.integers(5, 31, 12_000))
            for line in np.split(drawn, ends[ends < len(drawn)]):
                stream.write(" ".join(line) + "\n")


def train(options: argparse.Namespace, text: Path, folder: Path, name: str, log: BinaryIO) -> subprocess.Popen[bytes]:
    words = ["train", options.system, "--data", text, "--run", folder / name, "--size", "tiny"]
    words += ["--data.tokenizer", options.tokenizer, "--data.vocabulary", 10_000, "--training.steps", options.steps]
    words += ["--training.validation-tokens", 20_000]
    return subprocess.Popen(
        [sys.executable, "-m", "regard", *map(str, words)],
        env={**os.environ, "REGARD_CACHE": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=log,
    )


def watch(process: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    """The most bytes resident in the process, in it and its children together, and in them without mapped files."""
    most = [0, 0, 0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            family = [process.pid, *children(process.pid)]
            everything = [resident(pid) for pid in family]
            held = sum(resident(pid, "RssAnon") for pid in family)
            most[:] = map(max, most, (everything[0], sum(everything), held))

    looking = threading.Thread(target=look)
    looking.start()
    code = process.wait()
    done.set()
    looking.join()
    if code:
        raise SystemExit(f"training ended with code {code}")
    return most[0], most[1], most[2]


def resident(pid: int, kind: str = "VmRSS") -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) * 1024
    except (OSError, StopIteration):
        return 0


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
