"""How often does `regard compare` find a difference where there is none, and do its 95 % intervals cover 95 %?

    .venv/bin/python studies/placebo.py simulated
    .venv/bin/python studies/placebo.py unequal            the same where only one of the two systems varies by seed
    .venv/bin/python studies/placebo.py train lstm FOLDER  the runs of `regard compare lstm --placebo --seeds 20`, small
    .venv/bin/python studies/placebo.py real FOLDER…

Protocol, fixed before the run that decides. Simulated: two equal systems, losses μ + g_d + u_s + e_sd with seed
deviations of 0, .01, .02 and .04 nats, 20, 50 and 100 documents, e_sd of .03 nats, and g_d shared (A against A) or with
a deviation of .05 between the systems (two systems that are equal on average); 1, 2, 3 and 5 seeds; 1000 comparisons
in each cell. Real: from the pool of all runs of one folder, comparisons of disjoint random sets of seeds, 100 for each
number of seeds (they share runs, so they are not independent). With one seed the interval is of two runs, and coverage
is of their difference; a verdict is a sentence that calls a difference significant.

Bounds: coverage from 93 % to 97 % with 2, 3 and 5 seeds where seeds vary; false verdicts at most 5 % (+ 2) anywhere.
`before` is the interval that this one replaced: a bootstrap over documents, with seeds drawn from Student's t, and
without the rule that a verdict needs three seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.comparison.child import take_part
from regard.comparison.comparison import MIN_SEEDS, Comparison
from regard.comparison.plan import Plan, open_plan
from regard.comparison.processes import read_result
from regard.comparison.question import Question
from regard.evaluation.intervals import document_losses, paired_difference
from regard.report.table import plain_table

TRIALS, REAL, DRAWS = 1000, 100, 400
INTERACTION, APART = 0.03, 0.05
SEEDS = (1, 2, 3, 5)
POOL = 40  # real runs of one system
SMALL = {"batch_tokens": 512, "warmup": 10, "validations": 4, "validation_tokens": 2000, "threads": 1}
COLUMNS = {
    "seeds": "seeds", "cell": "seed sd, documents, systems", "before": "covered before", "after": "covered after",
    "false_before": "false before", "false_after": "false after",
}  # fmt: skip


def bootstrap(first: np.ndarray, second: np.ndarray, random: np.random.Generator) -> tuple[float, float]:
    """The interval before: documents resampled and widened by Student's t, seeds drawn from Student's t."""
    count = first.shape[1]
    times = random.multinomial(count, np.full(count, 1 / count), size=DRAWS) / count
    widened = np.sqrt(count / random.chisquare(count - 1, DRAWS))
    difference = first.mean(0) - second.mean(0)
    draws = difference.mean() + (times @ difference - difference.mean()) * widened
    for values in (first, second):
        if (seeds := len(values)) > 1:
            spread = values.mean(1).std(ddof=1) / np.sqrt(seeds)
            draws = draws + spread * random.standard_normal(DRAWS) * np.sqrt(
                (seeds - 1) / random.chisquare(seeds - 1, DRAWS)
            )
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def row(
    seeds: int, cell: str, covered: list[tuple[bool, bool]], verdicts: list[tuple[bool, bool]]
) -> dict[str, object]:
    before, after = np.mean(covered, axis=0)
    false_before, false_after = np.mean(verdicts, axis=0)
    return {
        "seeds": seeds, "cell": cell, "before": f"{before:.3f}", "after": f"{after:.3f}",
        "false_before": f"{false_before:.3f}", "false_after": f"{false_after:.3f}",
    }  # fmt: skip


def judged(a: np.ndarray, b: np.ndarray, truth: float, random: np.random.Generator) -> tuple[tuple[bool, bool], ...]:
    """Whether the intervals before and after cover the truth; whether a verdict was given before and after."""
    old, new = bootstrap(a, b, random), paired_difference(a, b).interval()
    assert new is not None
    outside = [not low <= 0 <= high for low, high in (old, new)]
    covers = [low <= truth <= high for low, high in (old, new)]
    return (covers[0], covers[1]), (outside[0], outside[1] and len(a) >= MIN_SEEDS)


def simulated(spreads: Sequence[tuple[float, float]], trials: int) -> Iterator[dict[str, object]]:
    random = np.random.default_rng(20261118)
    for seeds in SEEDS:
        for spread in spreads:
            for documents in (20, 50, 100):
                for apart in (0.0, APART):
                    covered, verdicts = [], []
                    for _ in range(trials):
                        luck = np.reshape(spread, (2, 1, 1)) * random.standard_normal((2, seeds, 1))
                        own = INTERACTION * random.standard_normal((2, seeds, documents))
                        a, b = luck + own
                        a = a + apart * random.standard_normal(documents)
                        truth = float(luck[0, 0, 0] - luck[1, 0, 0]) if seeds == 1 else 0.0
                        cover, verdict = judged(a, b, truth, random)
                        covered.append(cover)
                        verdicts.append(verdict)
                    what = "two equal" if apart else "A against A"
                    yield row(seeds, f"{spread[1]:g}, {documents}, {what}", covered, verdicts)


def train(system: str, folder: Path) -> None:
    """A placebo's runs in one process, which saves starting PyTorch for each; what is there is not made again."""
    settings: dict[str, dict[str, Any]] = {"data": {"tokenizer": "word"}, "training": SMALL}
    question = Question((system,), "phrasebook", "tokens", "20k", POOL // 2, "tiny", settings, placebo=True)
    folder.mkdir(parents=True, exist_ok=True)
    plan = open_plan(question, folder)
    for entrant, seed in plan.runs:
        if read_result(plan.run_folder(entrant, seed)) is None:
            take_part(plan, entrant, seed)


def real(folder: Path) -> Iterator[dict[str, object]]:
    """Comparisons of the real machinery: plan, results and sentences of `Comparison`, on drawn seeds of one pool."""
    plan, random = Plan.read(folder), np.random.default_rng(20261119)
    one, again = plan.entrants[:2]
    pool = [read_result(plan.run_folder(entrant, seed)) for entrant in (one, again) for seed in entrant.seeds]
    done = [result for result in pool if result is not None]
    for seeds in SEEDS:
        covered, verdicts = [], []
        for _ in range(REAL):
            drawn = random.permutation(len(done))[: 2 * seeds]
            rows = tuple(replace(entrant, seeds=tuple(range(1, seeds + 1))) for entrant in (one, again))
            results = {
                (entrant.label, seed): done[drawn[place * seeds + seed - 1]]
                for place, entrant in enumerate(rows)
                for seed in entrant.seeds
            }
            comparison = Comparison(replace(plan, entrants=rows), results)
            a, b = (comparison.scores.by_document[entrant.label] for entrant in rows)
            cover, (old, _) = judged(a, b, 0.0, random)
            covered.append(cover)
            verdicts.append((old, "ll differences are significant" in comparison.ranking))
        yield row(seeds, f"{folder.name}, {len(done)} runs", covered, verdicts)
    losses = np.array([mean(result) for result in done])
    print(f"{folder.name}: {len(done)} runs, deviation between seeds {losses.std(ddof=1):.4f} nats per token")


def mean(result: dict) -> float:
    documents = result["evaluation"]["documents"]
    return float(document_losses(np.array([documents["nats"]]), np.array(documents["tokens"])).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("simulated", "unequal", "train", "real"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--trials", type=int, default=TRIALS, help="simulated comparisons a row")
    asked = parser.parse_args()
    if asked.what == "train":
        train(asked.names[0], Path(asked.names[1]))
    elif asked.what == "real":
        print(plain_table([r for name in asked.names for r in real(Path(name))], COLUMNS, f"{REAL} comparisons a row"))
    else:
        spreads = (
            [(s, s) for s in (0.0, 0.01, 0.02, 0.04)] if asked.what == "simulated" else [(0.0, 0.02), (0.01, 0.04)]
        )
        rows = list(simulated(spreads, asked.trials))
        print(plain_table(rows, COLUMNS, f"{asked.what}: {asked.trials} comparisons a row"))
