"""The systems after GPT beside all others, on one GPU: tables, pages and logs, in parts of less than ten minutes each.

    python studies/every_rung.py FOLDER tokens     all language models on WikiText-2 and on Shakespeare's
                                                                characters at equal tokens, three seeds
    python studies/every_rung.py FOLDER seconds    the same at equal seconds of steps; the three seeds of a
                                                                system run at the same time, and both corpora
    python studies/every_rung.py FOLDER laws       the fourteen laws of the three
    python studies/every_rung.py FOLDER claims     recall, look-back and no-waiting (32 to 65,536 words)
    python studies/every_rung.py FOLDER speed      training speed beside peers, and the papers' tasks

REGARD_DATA names the folder of the corpora. `--toy` runs a small version of each part, on any machine.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from regard.comparison.plan import open_plan
from regard.comparison.processes import run_all
from regard.comparison.question import Question

STUDIES = Path(__file__).parent

CORPORA = {"wikitext": ("wikitext-2", "word"), "shakespeare": ("shakespeare", "char")}  # text, tokenizer
SYSTEMS = ("linear-attention", "llama", "mingru")
REGARD = [sys.executable, "-P", "-m", "regard"]


def logged(name: str, words: list[str], out: Path) -> None:
    """Run a command, its output into `name`.txt and what it says besides into `name`.err."""
    with (out / f"{name}.txt").open("w") as data, (out / f"{name}.err").open("w") as log:
        code = subprocess.run(words, stdout=data, stderr=log).returncode
    print(f"{name}: exit {code}", flush=True)


@dataclass(frozen=True)
class Study:
    """Comparisons of all language models with these seeds, of this size."""

    seeds: int
    size: str
    out: Path

    def compare(self, corpus: str, match: str, budget: str, jobs: int) -> None:
        """`regard compare`, `jobs` runs at a time; then its tables and its page."""
        name, (data, tokenizer) = f"{corpus}-{match}", CORPORA[corpus]
        words = [*REGARD, "compare", "--data", data, "--data.tokenizer", tokenizer]
        words += ["--match", match, "--budget", budget, "--seeds", str(self.seeds), "--size", self.size]
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work) / name
            if match == "seconds":  # which the command runs one at a time only: it finds all of them finished
                settings = {"data": {"tokenizer": tokenizer}}
                folder.mkdir()
                run_all(open_plan(Question((), data, match, budget, self.seeds, self.size, settings), folder, 1), jobs)
            else:
                words += ["--jobs", str(jobs)]
            logged(name, [*words, "--run", str(folder), "--csv", str(self.out / f"{name}.csv")], self.out)
            if (page := folder / "report.html").exists():
                shutil.copy(page, self.out / f"{name}.html")


def both(work: Callable[[str], object]) -> None:
    """For both corpora, side by side."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(work, CORPORA))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", choices=("tokens", "seconds", "laws", "claims", "speed"))
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--tokens", default="1M")
    parser.add_argument("--seconds", default="12s")
    parser.add_argument("--jobs", type=int, default=6, help="runs at a time on each corpus, of the part tokens")
    parser.add_argument("--device", default="cuda", help="of the claim no-waiting")
    options = parser.parse_args()
    out: Path = options.folder
    out.mkdir(parents=True, exist_ok=True)
    quick = ["--quick"] if options.toy else []
    study = Study(1, "tiny", out) if options.toy else Study(3, "small", out)
    match options.part:
        case "tokens":
            both(lambda corpus: study.compare(corpus, "tokens", "4k" if options.toy else options.tokens, options.jobs))
        case "seconds":
            both(lambda corpus: study.compare(corpus, "seconds", "1s" if options.toy else options.seconds, study.seeds))
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
                words = [sys.executable, str(STUDIES / "paper_tasks.py"), task, "--length", length]
                logged(task, [*words, "--steps", "5" if options.toy else steps], out)


if __name__ == "__main__":
    main()
