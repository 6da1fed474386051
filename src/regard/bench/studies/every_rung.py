"""The systems after GPT beside all others, on one GPU: tables, pages and logs, in parts of less than ten minutes each.

    python -m regard.bench.studies.every_rung FOLDER tokens     all language models on WikiText-2 and on Shakespeare's
                                                                characters at equal tokens, three seeds, eight at a time
    python -m regard.bench.studies.every_rung FOLDER seconds    the same at equal seconds, one after the other; the two
                                                                corpora side by side
    python -m regard.bench.studies.every_rung FOLDER laws       the fourteen laws of the three
    python -m regard.bench.studies.every_rung FOLDER claims     recall, look-back and no-waiting (32 to 65 536 words)
    python -m regard.bench.studies.every_rung FOLDER speed      training speed beside peers, and the papers' tasks

REGARD_DATA names the folder of the corpora. `--toy` runs a small version of each part, on any machine.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CORPORA = {"wikitext": ["--data", "wikitext-2"], "shakespeare": ["--data", "shakespeare", "--data.tokenizer", "char"]}
SYSTEMS = ("linear-attention", "llama", "mingru")
REGARD = [sys.executable, "-P", "-m", "regard"]


def logged(name: str, words: list[str], out: Path) -> None:
    """Run a command, its output into `name`.txt and what it says besides into `name`.err."""
    with (out / f"{name}.txt").open("w") as data, (out / f"{name}.err").open("w") as log:
        code = subprocess.run(words, stdout=data, stderr=log).returncode
    print(f"{name}: exit {code}", flush=True)


def compare(corpus: str, match: str, budget: str, more: list[str], out: Path) -> None:
    name = f"{corpus}-{match}"
    with tempfile.TemporaryDirectory() as work:
        words = [*REGARD, "compare", *CORPORA[corpus], "--match", match, "--budget", budget, *more]
        logged(name, [*words, "--run", f"{work}/{name}", "--csv", str(out / f"{name}.csv")], out)
        if (page := Path(work) / name / "report.html").exists():
            shutil.copy(page, out / f"{name}.html")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", choices=("tokens", "seconds", "laws", "claims", "speed"))
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--tokens", default="3M")
    parser.add_argument("--seconds", default="5s")
    parser.add_argument("--device", default="cuda", help="of the claim no-waiting")
    options = parser.parse_args()
    out: Path = options.folder
    out.mkdir(parents=True, exist_ok=True)
    quick = ["--quick"] if options.toy else []
    sizes = ["--seeds", "1", "--size", "tiny"] if options.toy else ["--seeds", "3", "--size", "small"]
    match options.part:
        case "tokens":
            for corpus in CORPORA:
                budget = "4k" if options.toy else options.tokens
                compare(corpus, "tokens", budget, [*sizes, "--jobs", "2" if options.toy else "8"], out)
        case "seconds":
            with ThreadPoolExecutor() as pool:
                budget = "2s" if options.toy else options.seconds
                list(pool.map(lambda corpus: compare(corpus, "seconds", budget, sizes, out), CORPORA))
        case "laws":
            for system in SYSTEMS:
                logged(f"laws-{system}", [*REGARD, "laws", system], out)
        case "claims":
            words = [*REGARD, "claims", *quick, "--run"]
            logged("recall", [*words, str(out / "recall"), "recall", "look-back"], out)
            logged("no-waiting", [*words, str(out / "no-waiting"), "no-waiting", "--device", options.device], out)
        case "speed":
            logged("bench", [*REGARD, "bench", *(f"{system}-train" for system in SYSTEMS), *quick], out)
            for task, length, steps in (("copy", "128", "3000"), ("selective", "256", "5000")):
                words = [sys.executable, "-m", "regard.bench.studies.paper_tasks", task, "--length", length]
                logged(task, [*words, "--steps", "5" if options.toy else steps], out)


if __name__ == "__main__":
    main()
