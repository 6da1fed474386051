"""Every system tuned equally: would tuning change the defaults of sizes tiny and small, and the order of the ladder?

    .venv/bin/python studies/tuned_defaults.py run FOLDER TEXTS --minutes 8 --processes 8
    .venv/bin/python studies/tuned_defaults.py short FOLDER TEXTS --processes 8
    .venv/bin/python studies/tuned_defaults.py table FOLDER

TEXTS is a folder with wikitext/, shakespeare/ and phrasebook/ (text), multi30k/, tatoeba/ and pairs/ (pairs),
speakers/, blimp/ and novels/ (labels), each with train, valid and test. `tuned_defaults.py texts TEXTS SHAKESPEARE
MULTI30K TATOEBA BLIMP NOVELS` writes them (`regard data fetch wikitext-2` before). A later call of `run` or `short`
continues; results are small files, PRICE/TASK-SIZE-TEXT/SYSTEM-trialN/result.json. `--only "translation small"` limits
all three commands to one task and size.

Protocol, fixed before the run that decides. Systems: all ten neural language models at sizes tiny and small, and all
three translators at size tiny, each on three texts: the first 12,000 lines of WikiText-2 by BPE (in place of pyref,
which 2 million tokens would read 22 times), Shakespeare by characters, the phrasebook by words; English–French phrases
by words, German–English captions (Multi30k) and English–French sentences (Tatoeba) by BPE. Space and points: those of
`regard compare --tune 6` (`recipes/tuning`), the same for every system; trial 1 is the default. Full price of a trial:
2 million tokens; translators: 1 million target tokens. (At the former price, 300,000 tokens, a default took 73 to 146
steps.) Ten validations of at most 8,000 tokens or 200 pairs; a trial's score is the lowest loss. One seed per trial, no
test text is read. Trials are run trial by trial (all systems, texts and sizes with trial 1, then trial 2, …), so that
all have the same number when time is over; a size is decided with the trials that all its systems have on all three
texts, at least four.

Amended before the run, because the version before spent most of its time elsewhere: a trial is `Trainer.train` alone,
without the run's files, report and samples; its steps are PyTorch's operations replayed as a CUDA graph, without
Triton's kernels, which would be compiled for every system, batch and vocabulary (with them where a trial fails
without). A loss that becomes infinite makes a trial infinitely bad, as in `compare --tune`; before, it had no result.

Rule, for each system and size. Candidates are the trials whose loss is below the default's on every text. Of these the
one with the lowest mean over the texts of (its loss − the default's) replaces the default if that mean is below −0.02
nats, and if at the short price (300,000 tokens, which is what people spend on a CPU; other seeds; the same settings,
warm-up included) its mean is not above +0.02 nats. A trial without a finite loss counts as infinitely bad. Where a
default's batch changes, its steps change so that a training without a budget reads as many tokens as before. The ladder
by validation loss is printed with default and with tuned settings, each text's best trial, whether or not the order
changes.

Second part, fixed before its run: the three translators at size small, by the same protocol, and the classifier (with
its default encoder) at sizes tiny and small. `compare` does not compare classifiers, so the study makes their trials
from the same points. Its texts, all by BPE: lines of Shakespeare's ten most frequent speakers (who speaks?), 10,000
minimal pairs of BLiMP (is the sentence acceptable?) and paragraphs from ten places of 73 novels (which of the ten?).
Full price: 200,000 labels, short price: 50,000; the loss is in nats per label. The rule and its bounds are those above.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import lzma
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import mean
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from regard.base.device import device_name, peak_memory
from regard.base.digests import with_digest
from regard.base.errors import RegardError
from regard.base.writing import write_text
from regard.comparison.plan import Entrant, Plan, open_plan
from regard.comparison.processes import read_result
from regard.comparison.question import Question
from regard.comparison.tuning import FIRST_SEED, draw, in_words, space_of, trial_rungs
from regard.corpora.phrasebook import make_pairs
from regard.layers.state import State
from regard.report.progress import hush
from regard.report.table import plain_table
from regard.runs.compose import compose_recipe
from regard.runs.prepare import open_data, prepare
from regard.runs.store.folder import Tokenizers, count_parameters, has_source
from regard.runs.train import build_trainer
from regard.systems.catalogue import SYSTEMS
from regard.text.corpus import open_corpus
from regard.training.budget import Progress
from regard.training.checkpointing import Checkpointer

TRIALS, CLEARLY, LEAST = 6, 0.02, 4
FULL, SHORT = "full", "short"
LOOKS = {"validations": 10, "threads": 1, "device": "auto"}
LANGUAGE, TRANSLATION, CLASSIFICATION = "language model", "translation", "classification"
BUDGETS = {
    LANGUAGE: {FULL: "2M", SHORT: "300k"},
    TRANSLATION: {FULL: "1M", SHORT: "300k"},
    CLASSIFICATION: {FULL: "200k", SHORT: "50k"},
}
WORDS, LETTERS = {"tokenizer": "word"}, {"tokenizer": "char"}
TEXTS: dict[str, dict[str, dict[str, Any]]] = {  # task → text → its tokenizer
    LANGUAGE: {"wikitext": {"tokenizer": "bpe"}, "shakespeare": LETTERS, "phrasebook": WORDS},
    TRANSLATION: {"pairs": WORDS, "multi30k": {}, "tatoeba": {}},
    CLASSIFICATION: {"speakers": {}, "blimp": {}, "novels": {}},
}
SIZES = [
    *((LANGUAGE, "tiny"), (LANGUAGE, "small"), (TRANSLATION, "tiny"), (TRANSLATION, "small")),
    *((CLASSIFICATION, "tiny"), (CLASSIFICATION, "small")),
]


def question(texts: Path, task: str, size: str, text: str, price: str) -> Question:
    names = tuple(system.name for system in SYSTEMS if system.task == task and system.trained != "counting")
    looks = looks_of(task, text)
    return Question(names, str(texts / text), "tokens", BUDGETS[task][price], 1, size, looks, tune=TRIALS)


def looks_of(task: str, text: str) -> dict[str, dict[str, Any]]:
    """The settings that are the same in every trial on a text."""
    looks = {"validation_tokens": 8000, "compile": "off"} if task == LANGUAGE else {"validation_pairs": 200}
    looks = {"validation_pairs": 1000} if task == CLASSIFICATION else looks
    return {"training": LOOKS | looks, "data": dict(TEXTS[task][text])}


def classifier_plan(place: Path, texts: Path, size: str, text: str, price: str) -> Plan:
    """The trials of the classifier on a text, at the points that `compare --tune` would take."""
    given = looks_of(CLASSIFICATION, text)
    given["data"]["corpus"] = str(texts / text)
    given["training"]["budget"] = BUDGETS[CLASSIFICATION][price]
    space, entrants = space_of(compose_recipe("classifier", size=size), {}), []
    for number in range(1, TRIALS + 1):
        settings = {part: given.get(part, {}) | values for part, values in draw(space, number).items()}
        recipe, seed = compose_recipe("classifier", size=size, settings=given | settings), FIRST_SEED + number
        entrants.append(Entrant(f"classifier-trial{number}", None, False, recipe, (seed + TRIALS * (price == SHORT),)))
    asked = {"task": CLASSIFICATION, "size": size, "text": text, "price": price}
    facts = {"split": "valid", "corpus": {"name": text}, "target_parameters": None}
    if not (place / "comparison.json").exists():
        open_data(entrants[0].recipe).tokenizers.save(place)
        Plan(place, asked, "tokens", entrants[0].recipe.training.limit.amount, "tokens", tuple(entrants), facts).write()
    return Plan.read(place, asked)


def plan_folder(folder: Path, task: str, size: str, text: str, price: str) -> Path:
    return folder / price / f"{task.split()[0]}-{size}-{text}"


def plans(folder: Path, texts: Path, price: str) -> dict[tuple[str, str, str], Plan]:
    """Task, size and text → its trials; at the short price the same settings with other seeds."""
    found = {}
    for task, size in SIZES:
        for text in TEXTS[task]:
            place = plan_folder(folder, task, size, text, price)
            place.mkdir(parents=True, exist_ok=True)
            if task == CLASSIFICATION:
                found[task, size, text] = classifier_plan(place, texts, size, text, price)
                continue
            rows = trial_rungs(question(texts, task, size, text, FULL))
            if price == SHORT:
                rows = [replace(rung, seed=rung.seed + TRIALS) for rung in rows]
            found[task, size, text] = open_plan(question(texts, task, size, text, price), place, trials=rows)
    return found


def run(folder: Path, texts: Path, price: str, minutes: float, processes: int) -> None:
    """The trials that are missing, side by side; none is begun after so many minutes."""
    ends, begun = time.monotonic() + 60 * minutes, time.monotonic()
    jobs: list[Job] = []
    chosen = {(task, size): decided(folder, task, size) for task, size in SIZES} if price == SHORT else {}
    for number, ((task, size, _), plan) in enumerate(plans(folder, texts, price).items()):
        for entrant, seed in plan.runs:
            name, trial = named(entrant.label)
            best = chosen[task, size].get(name) if price == SHORT else None
            wanted = price == FULL or (best is not None and trial in (1, best))
            if wanted and read_result(plan.run_folder(entrant, seed)) is None:
                jobs.append((trial, number, plan.folder, entrant.label))
    queue, taking = iter(sorted(jobs)), Lock()
    print(f"{len(jobs)} trials to do, {time.monotonic() - begun:.0f} s", flush=True)

    def several() -> None:
        process = _Process()
        while job := _taken(queue, taking, ends):
            for kernels in (False, True):
                done, said = process.does(kernels, *job[2:])
                print(f"{time.monotonic() - begun:.0f} s: {said}", flush=True)
                if done:
                    break
        process.end()

    with ThreadPoolExecutor(processes) as threads:
        for each in [threads.submit(several) for _ in range(processes)]:
            each.result()


Job = tuple[int, int, Path, str]  # trial, number of the plan, its folder, label


def _taken(queue: Iterator[Job], taking: Lock, ends: float) -> Job | None:
    with taking:
        return next(queue, None) if time.monotonic() < ends else None


class _Process:
    """Does one trial after another; after one that fails, a new process does the next: its GPU may be unusable."""

    def __init__(self) -> None:
        self.pool: ProcessPoolExecutor | None = None
        self.kernels = False

    def does(self, kernels: bool, place: Path, label: str) -> tuple[bool, str]:
        if kernels != self.kernels:
            self.end()
        self.kernels = kernels
        self.pool = self.pool or ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=(kernels,))
        try:
            return True, self.pool.submit(_one, place, label).result()
        except Exception as error:  # a later call tries again
            self.end()
            return False, f"{place.name} {label} failed: {type(error).__name__}: {error}"

    def end(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()
        self.pool = None


def _begin(kernels: bool) -> None:
    if not kernels:
        sys.modules["triton"] = None  # type: ignore[assignment]  # as if it were not installed
    torch.set_num_threads(1)
    hush()


@cache
def _opened(place: Path) -> tuple[Plan, Tokenizers]:
    plan = Plan.read(place)
    return plan, Tokenizers.load(place, has_source(plan.entrants[0].recipe))


class _NoFiles(Checkpointer):
    """Saves nothing."""

    def copy_weights(self) -> dict[str, Tensor]:
        return {}

    def save(self, progress: Progress, state: State | None, *, wait: bool = True) -> None:
        self.clock.saved = progress.elapsed

    def _write(self, *arguments: Any, **options: Any) -> None:
        pass


def _one(place: Path, label: str) -> str:
    """One trial: its score, and what it took."""
    began, (plan, tokenizers) = time.monotonic(), _opened(place)
    entrant = next(one for one in plan.entrants if one.label == label)
    folder = plan.run_folder(entrant, entrant.seeds[0])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ready = prepare(entrant.recipe.replace(training={"seed": entrant.seeds[0]}), tokenizers)
    trainer = build_trainer(ready, folder)
    trainer.files = _NoFiles(folder, trainer.model, trainer.optimizer, trainer.average, trainer.clock, trainer.group)
    prepared = time.monotonic() - began
    try:
        progress = trainer.train()
        score = min((loss for _, loss in progress.history if math.isfinite(loss)), default=None)
    except RegardError as error:
        if "The loss became" not in str(error):
            raise
        progress, score = trainer.progress, None
    result = {
        "evaluation": {"validation": score},
        "parameters": count_parameters(ready.model),
        "tokens_seen": progress.tokens,
        "steps": progress.step,
        "started": progress.started,
        "training_seconds": progress.seconds,
        "validation_seconds": progress.overhead_seconds.get("validation", 0.0),
        "peak_memory_bytes": peak_memory(trainer.device),
        "device": device_name(trainer.device),
        "torch": torch.__version__,
        "kernels": sys.modules.get("triton", True) is not None,
    }
    write_text(folder / "result.json", json.dumps(with_digest(result), indent=2) + "\n")
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    captured, of_steps = type(trainer.runner).__name__, progress.seconds
    del trainer, ready
    gc.collect()  # a graph that ended in the middle of the next recording would break it
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return (
        f"{place.name} {label}: {score} ({time.monotonic() - began:.1f} s: {prepared:.1f} before, {of_steps:.1f} for "
        f"{progress.step} steps, {result['validation_seconds']:.1f} of validation, {captured})"
    )


def write_texts(folder: Path, shakespeare: Path, multi30k: Path, tatoeba: Path, blimp: Path, novels: Path) -> None:
    for name, path in (("wikitext", "wikitext-2"), ("phrasebook", "phrasebook"), ("shakespeare", str(shakespeare))):
        for split, read in open_corpus(path).splits.items():
            _write(folder / name / f"{split}.txt", list(islice(read, 12_000 if name == "wikitext" else None)))
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
        ("speakers", speakers(shakespeare.read_text(encoding="utf-8"))),
        ("blimp", minimal_pairs(blimp)),
        ("novels", paragraphs(novels)),
    ):
        held = len(each) // 40
        for split, lines in {"valid": each[:held], "test": each[held : 2 * held], "train": each[2 * held :]}.items():
            _write(folder / name / f"{split}.tsv", lines)


def speakers(text: str) -> list[str]:
    """Lines of the ten most frequent speakers, in random order."""
    speeches = [part.split("\n") for part in text.split("\n\n")]
    often = [name for name, _ in Counter(lines[0] for lines in speeches).most_common(10)]
    rows = [f"{line}\t{name.rstrip(':')}" for name, *lines in speeches if name in often for line in lines if line]
    Random("speakers").shuffle(rows)
    return rows


def minimal_pairs(path: Path) -> list[str]:
    """10,000 minimal pairs, the sentences of a pair one after the other."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        pairs = [json.loads(line) for line in stream]
    chosen = Random("blimp").sample(pairs, 10_000)
    return [row for pair in chosen for row in (f"{pair['sentence_good']}\tgood", f"{pair['sentence_bad']}\tbad")]


def paragraphs(path: Path) -> list[str]:
    """2,000 paragraphs of 8 words and more, cut after 40, from each of ten places, in random order."""
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        lines = [words for line in stream if len(words := line.split()) >= 8]
    starts = [len(lines) * place // 10 for place in range(10)]
    rows = [f"{' '.join(words[:40])}\t{n}" for n, start in enumerate(starts) for words in lines[start : start + 2000]]
    Random("novels").shuffle(rows)
    return rows


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def named(label: str) -> tuple[str, int]:
    name, _, trial = label.rpartition("-trial")
    return name, int(trial)


def losses(folder: Path, task: str, size: str, price: str) -> dict[str, dict[str, dict[int, float]]]:
    """Text → system → trial → validation loss."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for text in TEXTS[task]:
        plan = Plan.read(plan_folder(folder, task, size, text, price))
        found[text] = {named(entrant.label)[0]: {} for entrant in plan.entrants}
        for entrant, seed in plan.runs:
            result = read_result(plan.run_folder(entrant, seed))
            if result is not None:
                name, trial = named(entrant.label)
                loss = result["evaluation"]["validation"]
                found[text][name][trial] = math.inf if loss is None else loss
    return found


def whole(found: Mapping[str, Mapping[str, Mapping[int, float]]]) -> int:
    """The trials that every system has on every text."""
    every = [set(trials) for of in found.values() for trials in of.values()]
    return next(trial - 1 for trial in range(1, TRIALS + 2) if not all(trial in trials for trials in every))


def gains(found: Mapping[str, Mapping[str, Mapping[int, float]]], name: str, trial: int) -> list[float]:
    """Its loss less the default's, text by text; none where one of them is missing."""
    each = [of[name] for of in found.values()]
    return [one[trial] - one[1] for one in each] if all({1, trial} <= set(one) for one in each) else []


def decided(folder: Path, task: str, size: str) -> dict[str, int]:
    """System → the trial that the full price would make its default."""
    found, best = losses(folder, task, size, FULL), {}
    trials = whole(found)
    for name in next(iter(found.values())) if trials >= LEAST else ():
        means = {n: mean(each) for n in range(2, trials + 1) if max(each := gains(found, name, n)) < 0}
        if means and min(means.values()) < -CLEARLY:
            best[name] = min(means, key=lambda n: means[n])
    return best


def table(folder: Path, task: str, size: str) -> None:
    found, short = losses(folder, task, size, FULL), losses(folder, task, size, SHORT)
    trials, best = whole(found), decided(folder, task, size)
    print(f"{task}, size {size}: {trials} trials of every system on every text{' (too few)' * (trials < LEAST)}\n")
    if not trials:
        return
    for text, of in found.items():
        lowest = {name: min(each[n] for n in range(1, trials + 1)) for name, each in of.items()}
        default, tuned = sorted(of, key=lambda name: of[name][1]), sorted(of, key=lambda name: lowest[name])
        print(f"{text}, default: {', '.join(f'{name} {math.exp(of[name][1]):.1f}' for name in default)}")
        print(f"{text}, best of {trials}: {', '.join(f'{name} {math.exp(lowest[name]):.1f}' for name in tuned)}")
        print(f"{text}: the order {'changes' if default != tuned else 'does not change'}\n")
    plan = Plan.read(plan_folder(folder, task, size, next(iter(found)), FULL))
    recipes, rows = {entrant.label: entrant.recipe for entrant in plan.entrants}, []
    for name in next(iter(found.values())):
        trial = best.get(name) or min(range(2, trials + 1), key=lambda n: mean(gains(found, name, n)), default=1)
        full, low = gains(found, name, trial), gains(short, name, trial)
        if name not in best:
            rule = "default stays"
        elif not low:
            rule = "short price missing"
        else:
            rule = "replaces the default" if mean(low) <= CLEARLY else "default stays: worse at the short price"
        recipe = recipes[f"{name}-trial{trial}"]
        rows.append(
            {
                "system": name, "trial": trial, "rule": rule, "mean": f"{mean(full):+.3f}",
                "each": ", ".join(f"{gain:+.3f}" for gain in full),
                "short": f"{mean(low):+.3f}" if low else "",
                "settings": in_words({k: getattr(getattr(recipe, k.split(".")[0]), k.split(".")[1])
                                      for k in space_of(recipe, {})}),
            }
        )  # fmt: skip
    columns = {"system": "system", "trial": "trial", "mean": "mean gain (nats)", "each": "by text", "short": "short"}
    print(plain_table(rows, columns | {"rule": "rule", "settings": "settings"}, f"Texts: {', '.join(found)}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("texts", "run", "short", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("given", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no trial begins later")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", help="a task and a size, such as 'translation small'")
    given = parser.parse_args()
    if given.only:
        SIZES[:] = [each for each in SIZES if " ".join(each) in given.only.split(",")]
    if given.what == "texts":
        write_texts(given.folder, *given.given)
    elif given.what == "table":
        for task, size in SIZES:
            table(given.folder, task, size)
    else:
        price = FULL if given.what == "run" else SHORT
        run(given.folder, given.given[0], price, given.minutes, given.processes)
