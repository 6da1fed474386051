"""Every system tuned equally: would tuning change the defaults of size tiny, and the order of the ladder?

    .venv/bin/python studies/tuned_defaults.py run FOLDER pyref phrasebook shakespeare=PATH …
    .venv/bin/python studies/tuned_defaults.py run FOLDER phrasebook --translators
    .venv/bin/python studies/tuned_defaults.py table FOLDER

Protocol, fixed before the run that decides. Systems: all ten neural language models on three texts, all three
translators on the phrasebook; size tiny. Space and points: those of `regard compare --tune 5` (`recipes/tuning`), the
same five for every system; trial 1 is the default. Price of a trial: 40,000 tokens (translators: target tokens). The
tokenizer is that of the text (words for the phrasebook, else the default). Four validations of at most 4,000 tokens or
100 pairs; a trial's score is the lowest loss. One seed per trial, no test text is read. Trials are run trial by trial,
not system by system, so that all systems have the same number if it is stopped.

Rule: a trial's settings replace the default of a system if the mean over the texts of (its loss − the default's) is the
lowest of all trials, below −0.02 nats, and negative on every text. The ladder by validation loss is printed with
default and with tuned settings, each text's best trial, whether or not the order changes.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from regard.comparison.child import take_part
from regard.comparison.plan import Plan, open_plan
from regard.comparison.processes import read_result
from regard.comparison.question import Question
from regard.comparison.tuning import in_words, space_of, trial_rungs
from regard.report.progress import hush
from regard.report.table import plain_table
from regard.systems.catalogue import SYSTEMS

TRIALS, BUDGET, CLEARLY = 5, "40k", -0.02
LOOKS = {"validations": 4, "threads": 1}


def question(text: str, task: str) -> Question:
    path = text.partition("=")[2] or text
    looks = {"validation_pairs": 100} if task == "translation" else {"validation_tokens": 4000}
    settings: dict[str, dict[str, Any]] = {"training": LOOKS | looks}
    if text == "phrasebook" and task == "language model":
        settings["data"] = {"tokenizer": "word"}
    names = tuple(system.name for system in SYSTEMS if system.task == task and system.trained != "counting")
    return Question(names, path, "tokens", BUDGET, 1, "tiny", settings, tune=TRIALS)


def run(folder: Path, texts: list[str], task: str) -> None:
    """Every trial that is missing, in one process."""
    for text in texts:
        asked, place = question(text, task), folder / f"{task.split()[0]}-{text.partition('=')[0]}"
        place.mkdir(parents=True, exist_ok=True)
        plan = open_plan(asked, place, trials=trial_rungs(asked))
        for entrant, seed in sorted(plan.runs, key=lambda one: one[1]):
            if read_result(plan.run_folder(entrant, seed)) is None:
                take_part(plan, entrant, seed)
            print(entrant.label, read_result(plan.run_folder(entrant, seed))["evaluation"], flush=True)  # type: ignore[index]


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


def whole_trials(of: dict[str, dict[int, float]], systems: int) -> int:
    """How many trials every system has; what only some have is not used."""
    return min((len(each) for each in of.values()), default=0) if len(of) == systems else 0


def table(folder: Path, task: str) -> None:
    plans = {
        path.parent.name: Plan.read(path.parent) for path in sorted(folder.glob(f"{task.split()[0]}-*/trials.json"))
    }
    by_text = {name.partition("-")[2]: losses(plan) for name, plan in plans.items()}
    done = {
        text: whole_trials(of, len(plan.entrants) // TRIALS)
        for (text, of), plan in zip(by_text.items(), plans.values())
    }
    by_text = {text: {name: {t: each[t] for t in range(1, done[text] + 1)} for name, each in of.items()}
               for text, of in by_text.items() if done[text]}  # fmt: skip
    if not by_text:
        return
    rows, whole = [], min(done[text] for text in by_text)
    for text, of in by_text.items():
        default = sorted(of, key=lambda name: of[name][1])
        tuned = sorted(of, key=lambda name: min(of[name].values()))
        print(f"{text}, default: {', '.join(f'{name} {math.exp(of[name][1]):.1f}' for name in default)}")
        print(f"{text}, best of {done[text]}: {', '.join(f'{n} {math.exp(min(of[n].values())):.1f}' for n in tuned)}")
        print(f"{text}: the order {'changes' if default != tuned else 'does not change'}\n")
    entrants = {entrant.label: entrant for plan in plans.values() for entrant in plan.entrants}
    for name in next(iter(by_text.values())):
        gains = {
            trial: [of[name][trial] - of[name][1] for of in by_text.values() if trial in of[name]]
            for trial in range(1, whole + 1)
        }
        best = min(gains, key=lambda trial: sum(gains[trial]) / len(gains[trial]))
        wins = max(gains[best]) < 0 and sum(gains[best]) / len(gains[best]) < CLEARLY
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
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--translators", action="store_true")
    given = parser.parse_args()
    if given.what == "run":
        hush()
        run(given.folder, given.texts, "translation" if given.translators else "language model")
    else:
        for task in ("language model", "translation"):
            table(given.folder, task)
