"""`regard demo`: the main job on built-in text, up both ladders.

Every language model from the n-gram to GPT, oldest first (with `--all` also those after it), learns the same words for
the same time, and every translator the same sentence pairs; both read the phrasebook, one its English, the other all of
it. A table for each ladder says how well each system does on what it has not seen, each writes or translates a few
lines, and two pages show it all. Training takes one core, so the ladders are climbed side by side where there are two.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.numbers import pluralize
from regard.comparison.comparison import Comparison, compare
from regard.comparison.findings import notes
from regard.comparison.ladders import LANGUAGE, PROMPT, TRANSLATION, side_by_side
from regard.comparison.question import Question
from regard.comparison.translation_task import read_test
from regard.report.progress import clock, say
from regard.report.table import print_json, print_table
from regard.runs.store.lock import free_folder

FAMILIES = (
    "Newer is not always better: rnn, lstm and gru are one family and nnlm with its window is another; self-attention "
    "is the core of a gpt layer alone, and dan averages all words and ignores their order."
)
NOTHING = "(empty: the model was not trained long enough)"


def run_demo(
    *,
    budget: str | None = None,
    minute: bool = False,
    everything: bool = False,
    folder: Path | None = None,
    as_json: bool = False,
) -> None:
    began = time.perf_counter()
    if minute and (budget or everything):
        raise RegardError("--minute sets the systems and their budget: leave --budget and --all out.")
    language, translation = (
        LANGUAGE.question(budget or LANGUAGE.budget(), everything=everything),
        TRANSLATION.question(budget or TRANSLATION.budget()),
    )
    if minute:
        language, translation = (replace(one, **_in_a_minute(one)) for one in (language, translation))
    for ladder, question in ((LANGUAGE, language), (TRANSLATION, translation)):
        if not minute and question.limit.unit == "seconds" and question.limit.amount < ladder.seconds / 2:
            say(ladder.too_short(question.limit.amount))
    with nullcontext(folder) if folder is not None else free_folder(Path("runs") / "demo") as place:
        with climbing_aside(translation, place / TRANSLATION.folder):
            models = climb(language, place / LANGUAGE.folder)
        translators = climb(translation, place / TRANSLATION.folder)  # goes on where that stands: at its end
    if as_json:
        print_json([*models.rows, *translators.rows])
    else:
        _print_models(models)
        _print_translators(translators)
        _print_next(models, translators, time.perf_counter() - began)
    if failed := {**models.failed, **translators.failed}:
        raise RegardError(f"Some runs failed: {'; '.join(failed.values())}")


def _in_a_minute(question: Question) -> dict[str, Any]:
    """The systems and the time of each that fit into a minute in all."""
    systems, seconds = (("transformer",), 34) if "transformer" in question.systems else (("ngram", "lstm", "gpt"), 14)
    return {"systems": systems, "budget": f"{seconds if side_by_side() else seconds / 2:g}s"}


def climb(question: Question, folder: Path) -> Comparison:
    return compare(
        question.systems,
        data=question.data,
        match=question.match,
        budget=question.budget,
        seeds=question.seeds,
        size=question.size,
        run=folder,
        settings=question.settings,
        prompt=question.prompt,
    )


@contextmanager
def climbing_aside(question: Question, folder: Path) -> Iterator[None]:
    """While something else is done, a process of its own answers the question into the folder, if there is a core."""
    if not side_by_side():
        yield
        return
    words = [*shlex.split(question.command())[1:], "--run", str(folder)]
    say(f"training {pluralize(len(question.systems), 'translator')} on the other core at the same time")
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.parent / f"{folder.name}.log"  # two bars would overwrite each other
    with path.open("a", encoding="utf-8") as log:
        aside = subprocess.Popen(
            [sys.executable, "-P", "-m", "regard", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield
            say(f"waiting for the translators; their progress is in {log.name}")
            aside.wait()
        finally:
            if aside.poll() is None:
                aside.terminate()  # it stops its own processes, each with a checkpoint
                aside.wait()


# -- what it prints --------------------------------------------------------------------------------------------------


def _print_models(comparison: Comparison) -> None:
    for row in comparison.rows:
        if row["perplexity"] is not None:
            print(f"\n── {row['label']} writes ──\n{row['sample'] if row['sample'].strip() else NOTHING}")
    _print_table(comparison)
    print(FAMILIES)


def _print_translators(comparison: Comparison) -> None:
    sources, references = read_test(comparison.plan)
    done = [row["label"] for row in comparison.order]
    for number in comparison.plan.facts["examples"]:
        said = {"English": sources[number], "reference": references[number]}
        for label in done:
            written = comparison.results[label, 1]["evaluation"]["translations"][number]
            said[label] = written.strip() or NOTHING
        print("\n" + "\n".join(f"{who:<12}{text}" for who, text in said.items()))
    _print_table(comparison)
    columns = {"words": "words of the source", "sentences": "sentences", **{label: label for label in done}}
    print()
    print_table(by_length(comparison), columns, "BLEU by the length of the sentence (Bahdanau et al. 2015, figure 2)")


def by_length(comparison: Comparison) -> list[dict[str, Any]]:
    """One row for each class of source lengths, with every translator's BLEU on it."""
    classes = comparison.order[0]["by_length"]
    return [
        {
            "words": f"{max(1, of['shortest'])} to {of['longest']}" if of["longest"] else f"{of['shortest']} and more",
            "sentences": of["sentences"],
            **{row["label"]: f"{row['by_length'][number]['bleu']:.1f}" for row in comparison.order},
        }
        for number, of in enumerate(classes)
    ]


def _print_table(comparison: Comparison) -> None:
    print()
    print_table(comparison.shown, comparison.columns, comparison.title)
    print("\n".join(["", comparison.ranking, *notes(comparison)]))


def _print_next(models: Comparison, translators: Comparison, seconds: float) -> None:
    writer = models.plan.run_folder(models.plan.entrants[-1], 1)
    translator = translators.folder / translators.order[0]["label"]
    print(f"\n{clock(seconds)} in total. Open {models.report} and {translators.report}, then try:")
    print(f"  regard generate {writer} --prompt '{PROMPT}' --temperature 0.8")
    print(f"  echo 'They are watching.' | regard translate {translator} --alignment")
    print("  regard train lstm --data my.txt --budget 60s")
