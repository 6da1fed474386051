"""Every system tuned equally: would tuning change the defaults of sizes tiny and small, and the order of the ladder?

    .venv/bin/python studies/tuned_defaults.py run FOLDER TEXTS --minutes 8 --processes 12
    .venv/bin/python studies/tuned_defaults.py table FOLDER

TEXTS is a folder with pyref/, shakespeare/ and phrasebook/ (text), multi30k/, tatoeba/ and pairs/ (pairs), each with
train, valid and test; `tuned_defaults.py texts TEXTS SHAKESPEARE MULTI30K TATOEBA` writes them. A later call of `run`
continues; results are small files, TASK-SIZE-TEXT/SYSTEM-trialN/result.json.

Protocol, fixed before the run that decides. Systems: all ten neural language models at sizes tiny and small, and all
three translators at size tiny, each on three texts: the Python reference by BPE, Shakespeare by characters, the
phrasebook by words; English–French phrases by words, German–English captions (Multi30k) and English–French sentences
(Tatoeba) by BPE. Space and points: those of `regard compare --tune 8` (`recipes/tuning`), the same for every system;
trial 1 is the default. Price of a trial: 300,000 tokens (translators: target tokens), a warm-up at most a third of
that. Four validations of at most 8,000 tokens or 200 pairs; a trial's score is the lowest loss. One seed per trial, no
test text is read. Trials are run trial by trial (all systems, texts and sizes with trial 1, then trial 2, …), so that
all have the same number when time is over; a size is decided with the trials that all its systems have on all three
texts, at least four.

The cap on the warm-up held for the 198 trainings in notes/comparing.md and was then taken back, because trainings of
README got worse by it. Before the next run the price of the default has to be declared anew.

Rule, for each size: a trial's settings replace the default of a system if the mean over the texts of (its loss − the
default's) is the lowest of all trials, below −0.02 nats, and negative on every text. Where a default's batch changes,
its steps change so that a training without a budget reads as many tokens as before. The ladder by validation loss is
printed with default and with tuned settings, each text's best trial, whether or not the order changes.
"""

from __future__ import annotations

import argparse
import gzip
import math
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import torch

from regard.comparison.child import take_part
from regard.comparison.plan import Plan, open_plan
from regard.comparison.processes import read_result
from regard.comparison.question import Question
from regard.comparison.tuning import in_words, space_of, trial_rungs
from regard.corpora.phrasebook import make_pairs
from regard.report.progress import hush
from regard.report.table import plain_table
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import open_corpus

TRIALS, BUDGET, CLEARLY, LEAST = 8, "300k", -0.02, 4
LOOKS = {"validations": 4, "threads": 1, "device": "cpu"}
LANGUAGE, TRANSLATION = "language model", "translation"
WORDS, LETTERS = {"tokenizer": "word"}, {"tokenizer": "char"}
TEXTS: dict[str, dict[str, dict[str, Any]]] = {  # task → text → its tokenizer
    LANGUAGE: {"pyref": {}, "shakespeare": LETTERS, "phrasebook": WORDS},
    TRANSLATION: {"pairs": WORDS, "multi30k": {}, "tatoeba": {}},
}
PLANS = [
    (task, size, text)
    for task, sizes in ((LANGUAGE, ("tiny", "small")), (TRANSLATION, ("tiny",)))
    for size in sizes
    for text in TEXTS[task]
]


def question(texts: Path, task: str, size: str, text: str) -> Question:
    looks = {"validation_pairs": 200} if task == TRANSLATION else {"validation_tokens": 8000}
    settings: dict[str, dict[str, Any]] = {"training": LOOKS | looks, "data": TEXTS[task][text]}
    names = tuple(system.name for system in SYSTEMS if system.task == task and system.trained != "counting")
    return Question(names, str(texts / text), "tokens", BUDGET, 1, size, settings, tune=TRIALS)


def plan_folder(folder: Path, task: str, size: str, text: str) -> Path:
    return folder / f"{task.split()[0]}-{size}-{text}"


def run(folder: Path, texts: Path, minutes: float, processes: int) -> None:
    """The trials that are missing, side by side; none is begun after so many minutes."""
    ends, missing = time.monotonic() + 60 * minutes, []
    for number, (task, size, text) in enumerate(PLANS):
        place, asked = plan_folder(folder, task, size, text), question(texts, task, size, text)
        place.mkdir(parents=True, exist_ok=True)
        plan = open_plan(asked, place, trials=trial_rungs(asked))
        missing += [
            (seed, number, place, entrant.label)
            for entrant, seed in plan.runs
            if read_result(plan.run_folder(entrant, seed)) is None
        ]
    queue, begun = iter(sorted(missing)), time.monotonic()
    print(f"{len(missing)} trials to do", flush=True)
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_begin) as pool:
        waiting = {pool.submit(_one, *job[2:]) for job in islice(queue, processes)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                print(f"{time.monotonic() - begun:.0f} s: {future.result()}", flush=True)
                job = next(queue, None) if time.monotonic() < ends else None
                waiting |= {pool.submit(_one, *job[2:])} if job else set()


def _begin() -> None:
    torch.set_num_threads(1)
    hush()


_plan = cache(Plan.read)


def _one(place: Path, label: str) -> str:
    """One trial, of which only the result is kept."""
    began, plan = time.monotonic(), _plan(place)
    entrant = next(one for one in plan.entrants if one.label == label)
    folder = plan.run_folder(entrant, entrant.seeds[0])
    shutil.rmtree(folder, ignore_errors=True)
    take_part(plan, entrant, entrant.seeds[0])
    for path in folder.iterdir():
        if path.name != "result.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    result = read_result(folder)
    assert result is not None
    return f"{place.name} {label}: {result['evaluation']['validation']:.3f} ({time.monotonic() - began:.0f} s)"


def write_texts(folder: Path, shakespeare: Path, multi30k: Path, tatoeba: Path) -> None:
    for name, path in (("pyref", "pyref"), ("phrasebook", "phrasebook"), ("shakespeare", str(shakespeare))):
        for split, read in open_corpus(path).splits.items():
            _write(folder / name / f"{split}.txt", list(read))
    sides = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    for split, name in sides.items():
        both = [(multi30k / f"{name}.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en")]
        _write(folder / "multi30k" / f"{split}.tsv", ["\t".join(pair) for pair in zip(*both)])
    with gzip.open(tatoeba, "rt", encoding="utf-8") as stream:
        once = {
            row[0]: row[1] for row in (line.rstrip("\n").split("\t") for line in stream)
        }  # a sentence, one translation
    rows = ["\t".join(pair) for pair in once.items()]
    Random("tatoeba").shuffle(rows)
    for name, each in (
        ("tatoeba", rows[:20_000]),
        ("pairs", [f"{pair.source}\t{pair.target}" for pair in make_pairs(12_000, seed=1, longest=12)]),
    ):
        held = len(each) // 40
        for split, lines in {"valid": each[:held], "test": each[held : 2 * held], "train": each[2 * held :]}.items():
            _write(folder / name / f"{split}.tsv", lines)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def losses(plan: Plan) -> dict[str, dict[int, float]]:
    """System → trial → validation loss."""
    found: dict[str, dict[int, float]] = {}
    for entrant, seed in plan.runs:
        result = read_result(plan.run_folder(entrant, seed))
        if result is not None:
            name, _, number = entrant.label.rpartition("-trial")
            loss = result["evaluation"]["validation"]
            found.setdefault(name, {})[int(number)] = math.inf if loss is None else loss
    return found


def table(folder: Path, task: str, size: str) -> None:
    places = {text: plan_folder(folder, task, size, text) for text in TEXTS[task]}
    if not all((place / "trials.json").is_file() for place in places.values()):
        return
    plans = {text: Plan.read(place) for text, place in places.items()}
    found = {text: losses(plan) for text, plan in plans.items()}
    whole = min(  # trials that every system has on every text
        next((trial - 1 for trial in range(1, TRIALS + 1) if trial not in of.get(name, {})), TRIALS)
        for of in found.values()
        for name in {
            entrant.label.rpartition("-trial")[0]
            for entrant in plans["pairs" if task == TRANSLATION else "pyref"].entrants
        }
    )
    print(f"{task}, size {size}: {whole} trials of every system on every text{' (too few)' * (whole < LEAST)}\n")
    if not whole:
        return
    by_text = {
        text: {name: {trial: each[trial] for trial in range(1, whole + 1)} for name, each in of.items()}
        for text, of in found.items()
    }
    for text, of in by_text.items():
        default = sorted(of, key=lambda name: of[name][1])
        tuned = sorted(of, key=lambda name: min(of[name].values()))
        print(f"{text}, default: {', '.join(f'{name} {math.exp(of[name][1]):.1f}' for name in default)}")
        print(f"{text}, best of {whole}: {', '.join(f'{n} {math.exp(min(of[n].values())):.1f}' for n in tuned)}")
        print(f"{text}: the order {'changes' if default != tuned else 'does not change'}\n")
    entrants, rows = {entrant.label: entrant for entrant in next(iter(plans.values())).entrants}, []
    for name in next(iter(by_text.values())):
        gains = {trial: [of[name][trial] - of[name][1] for of in by_text.values()] for trial in range(1, whole + 1)}
        best = min(gains, key=lambda trial: sum(gains[trial]) / len(gains[trial]))
        wins = max(gains[best]) < 0 and sum(gains[best]) / len(gains[best]) < CLEARLY and whole >= LEAST
        recipe = entrants[f"{name}-trial{best}"].recipe
        rows.append(
            {
                "system": name, "trial": best, "wins": "replaces the default" if wins else "default stays",
                "mean": f"{sum(gains[best]) / len(gains[best]):+.3f}",
                "each": ", ".join(f"{gain:+.3f}" for gain in gains[best]),
                "settings": in_words({k: getattr(getattr(recipe, k.split(".")[0]), k.split(".")[1])
                                      for k in space_of(recipe, {})}),
            }
        )  # fmt: skip
    columns = {"system": "system", "trial": "trial", "mean": "mean gain (nats)", "each": "by text", "wins": "rule"}
    print(plain_table(rows, columns | {"settings": "settings"}, f"{whole} trials each; texts: {', '.join(by_text)}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("texts", "run", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("given", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no trial begins later")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    if given.what == "texts":
        write_texts(given.folder, *given.given)
    elif given.what == "run":
        run(given.folder, given.given[0], given.minutes, given.processes)
    else:
        for task, size in dict.fromkeys((task, size) for task, size, _ in PLANS):
            table(given.folder, task, size)
