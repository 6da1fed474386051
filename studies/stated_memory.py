"""The memory that `--dry-run` states, beside what the training then takes.

    python studies/stated_memory.py [--device cpu] [--only gpt]

For each system two processes: `regard train … --dry-run --json`, and the same training for a few steps with two
validations, its checkpoints and the run opened at the end. Of the second the most it held is printed: on a CPU the
process's resident memory, on a GPU the memory of its tensors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile

CASES = {
    "gpt tiny": (["gpt", "--size", "tiny"], 40),
    "gpt small": (["gpt", "--size", "small"], 20),
    "gpt small, in 4 parts": (["gpt", "--size", "small", "--training.accumulate", "4"], 20),
    "gpt tiny, muon": (["gpt", "--size", "tiny", "--training.optimizer", "muon"], 40),
    "gpt medium": (["gpt", "--size", "medium"], 8),
    "lstm tiny": (["lstm", "--size", "tiny"], 40),
    "lstm medium": (["lstm", "--size", "medium"], 20),
    "transformer tiny": (["transformer", "--size", "tiny"], 60),
    "transformer small": (["transformer", "--size", "small"], 40),
    "nnlm tiny": (["nnlm", "--size", "tiny"], 60),
    "nnlm medium": (["nnlm", "--size", "medium"], 30),
}
TRAIN = """
import sys, torch
from regard.cli import main
from regard.runs.dry_run import peak_memory
main(sys.argv[2:])
print(peak_memory(torch.device(sys.argv[1])))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory stated and taken.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="cases whose name has these letters")
    options = parser.parse_args()
    print(f"{'training':24} {'parameters':>12} {'stated':>10} {'taken':>10} {'difference':>11}")
    for name, (words, steps) in CASES.items():
        if options.only not in name:
            continue
        words = ["train", *words, "--training.device", options.device, "--training.steps", str(steps)]
        words += ["--training.evaluate-every", str(steps // 2)]
        facts = json.loads(answer([sys.executable, "-m", "regard", *words, "--dry-run", "--json"]))
        with tempfile.TemporaryDirectory() as folder:
            run = [sys.executable, "-c", TRAIN, options.device, *words, "--run", f"{folder}/run"]
            taken = int(answer(run).split()[-1])
        stated = facts["peak_memory_bytes"]
        print(
            f"{name:24} {facts['parameters']:>12} {stated / 1e6:>7.0f} MB {taken / 1e6:>7.0f} MB "
            f"{100 * (stated / taken - 1):>+9.1f} %",
            flush=True,
        )


def answer(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
