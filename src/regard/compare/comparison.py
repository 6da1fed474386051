"""A comparison that has run: its rows, its order, and what it says in a terminal, a file or a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from regard.compare.contest import Results, run_all
from regard.compare.curves import read_curves
from regard.compare.plan import Plan, open_plan
from regard.compare.question import Question
from regard.errors import RegardError
from regard.evaluation.intervals import LEVEL, Resampling, interval, mean_loss
from regard.files import locked, write_text
from regard.fit import free_folder
from regard.report.progress import grouped
from regard.report.table import csv_text, latex_text, plain_table

COLUMNS = {
    "label": "system",
    "year": "year",
    "parameters": "parameters",
    "tokens_seen": "tokens seen",
    "perplexity": "perplexity",
    "interval": "95 % interval",
    "bits_per_character": "bits/char",
    "training_tokens_per_second": "train tok/s",
    "generation_tokens_per_second": "write tok/s",
    "memory": "memory",
    "training_seconds": "seconds",
}
CSV_COLUMNS = (
    "label", "system", "year", "seeds", "width", "parameters", "tokens_seen", "perplexity", "perplexity_low",
    "perplexity_high", "nats_per_token", "bits_per_character", "unknown_rate", "training_tokens_per_second",
    "generation_tokens_per_second", "peak_memory_bytes", "memory_of", "training_seconds", "failed",
)  # fmt: skip


def compare(
    systems: Sequence[str] | str = (),
    *,
    data: str | Path = "",
    match: str = "tokens",
    budget: str = "",
    seeds: int = 1,
    size: str = "small",
    run: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    prompt: str = "",
) -> Comparison:
    """Train systems under the same conditions, test them on the same text, and set them side by side.

    regard.compare(["lstm", "gpt"], data="my.txt", budget="5M", seeds=3).table()
    """
    names = (systems,) if isinstance(systems, str) else tuple(systems)
    question = Question(names, str(data), match, budget, seeds, size, settings or {}, prompt)
    folder = Path(run) if run is not None else free_folder(Path("runs") / f"compare-{Path(str(data)).stem}")
    plan = open_plan(question, folder)
    with locked(folder / ".lock"):
        results, made = run_all(plan)
    comparison = Comparison(plan, results)
    if not comparison.order:
        raise RegardError(f"No run came to a number: {next(iter(comparison.failed.values()))}")
    if made or not comparison.report.exists():
        from regard.compare.page import comparison_page

        write_text(comparison.report, comparison_page(comparison))
    return comparison


@dataclass(frozen=True)
class Difference:
    """Two neighbours in the order of perplexity: the better one's loss less the other's, in nats per token."""

    better: str
    worse: str
    nats: float
    low: float
    high: float

    @property
    def beyond(self) -> bool:
        """Is zero outside the interval of the paired difference?"""
        return not self.low <= 0 <= self.high


class Comparison:
    def __init__(self, plan: Plan, results: Results):
        self.plan, self.results, self.folder = plan, results, plan.folder
        self.report = plan.folder / "report.html"
        self.curves = read_curves(plan, results)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One for each system, oldest first; numbers over several seeds are means."""
        return [self._row(number) for number in range(len(self.plan.entrants))]

    @property
    def seeds(self) -> int:
        return max(len(entrant.seeds) for entrant in self.plan.entrants)

    @cached_property
    def documents(self) -> int:
        return len(self._resampling.tokens) if self._resampling else 0

    @cached_property
    def order(self) -> list[dict[str, Any]]:
        """The rows that have a perplexity, best first."""
        return sorted((row for row in self.rows if row["perplexity"] is not None), key=lambda row: row["perplexity"])

    @cached_property
    def differences(self) -> list[Difference]:
        """Between neighbours in that order, paired over the same documents."""
        found = []
        for better, worse in pairwise(self.order):
            draws = self._draws[better["label"]] - self._draws[worse["label"]]
            inside = interval(draws)
            if inside is not None:
                nats = better["nats_per_token"] - worse["nats_per_token"]
                found.append(Difference(better["label"], worse["label"], nats, *inside))
        return found

    @property
    def failed(self) -> dict[str, str]:
        """What kept a run from its number, by the run's name."""
        return {
            entrant.name(seed): self.results[entrant.label, seed]["failed"]
            for entrant, seed in self.plan.runs
            if "failed" in self.results[entrant.label, seed]
        }

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The rows as a reader sees them: as many digits in every row of a column."""
        digits: dict[str, Callable[[float], str]] = {
            "perplexity": significant,
            "bits_per_character": "{:.3f}".format,
        }
        return [
            row | {key: form(row[key]) for key, form in digits.items() if _finite(row.get(key))} for row in self.rows
        ]

    # -- what it says ------------------------------------------------------------------------------------------------

    def table(self) -> str:
        return plain_table(self.shown, COLUMNS, self.title)

    def csv(self) -> str:
        return csv_text(self.rows, CSV_COLUMNS)

    def latex(self) -> str:
        columns = {key: heading for key, heading in COLUMNS.items() if key != "training_seconds"}
        return latex_text(self.shown, columns, f"{self.title}. {self.ranking}")

    @property
    def title(self) -> str:
        facts, budget = self.plan.facts, grouped(self.plan.budget)
        equal = {
            "tokens": f"every neural system read {budget} tokens",
            "seconds": f"every neural system trained for {self.plan.budget:g} s",
            "parameters": f"every neural system has about {grouped(facts['target_parameters'] or 0)} parameters "
            f"and read {budget} tokens",
        }[self.plan.match]
        return f"{facts['corpus']['name']}, {facts['split']} split: {equal}"

    @property
    def ranking(self) -> str:
        """Best first: a < b where they differ beyond the interval of the paired difference, a ≈ b where they do not."""
        if not self.order:
            return ""
        words = self.order[0]["label"]
        signs = {(d.better, d.worse): "<" if d.beyond else "≈" for d in self.differences}
        for better, worse in pairwise(self.order):
            words += f" {signs.get((better['label'], worse['label']), '<')} {worse['label']}"
        return f"By perplexity: {words}  (≈: the {100 * LEVEL:.0f} % interval of the paired difference holds zero)."

    # ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def _resampling(self) -> Resampling | None:
        finished = next((result for result in self.results.values() if "evaluation" in result), None)
        return Resampling(np.array(finished["evaluation"]["documents"]["tokens"])) if finished else None

    @cached_property
    def _losses(self) -> dict[str, np.ndarray]:
        """Summed losses [S, D] of every row that has them."""
        found = {}
        for entrant in self.plan.entrants:
            results = [self.results[entrant.label, seed] for seed in entrant.seeds]
            results = [result for result in results if "evaluation" in result]
            if results:
                found[entrant.label] = np.array([result["evaluation"]["documents"]["nats"] for result in results])
        return found

    @cached_property
    def _draws(self) -> dict[str, np.ndarray]:
        if self._resampling is None:
            return {}
        return {
            label: self._resampling.losses(nats, stream) for stream, (label, nats) in enumerate(self._losses.items())
        }

    def _row(self, number: int) -> dict[str, Any]:
        entrant = self.plan.entrants[number]
        results = [self.results[entrant.label, seed] for seed in entrant.seeds]
        done = [result for result in results if "evaluation" in result]
        row: dict[str, Any] = {
            "label": entrant.label,
            "system": entrant.recipe.system,
            "year": entrant.year,
            "seeds": len(done),
            "width": getattr(entrant.recipe.model, "width", None),
            "perplexity": None,
        }
        if failures := [result["failed"] for result in results if "failed" in result]:
            row["failed"] = failures[0]
        if not done or self._resampling is None:
            return row
        loss = mean_loss(self._losses[entrant.label], self._resampling.tokens)
        inside = interval(self._draws[entrant.label])
        low, high = (None, None) if inside is None else map(_exp, inside)
        facts = [result["evaluation"] for result in done]
        tokens, seconds = _mean(done, "tokens_seen"), _mean(done, "training_seconds")
        memory = max(result["peak_memory_bytes"] for result in done)
        return row | {
            "parameters": done[0]["parameters"],
            "tokens_seen": round(tokens),
            "perplexity": _exp(loss),
            "perplexity_low": low,
            "perplexity_high": high,
            "interval": None if low is None or high is None else f"{significant(low)} – {significant(high)}",
            "perplexities": [fact["perplexity"] for fact in facts],
            "nats_per_token": loss,
            "bits_per_character": None
            if facts[0]["bits_per_character"] is None
            else loss / math.log(2) * facts[0]["tokens"] / facts[0]["characters"],
            "bits_per_character_refused": facts[0].get("bits_per_character_refused"),
            "unknown_rate": facts[0]["unknown_rate"],
            "training_tokens_per_second": round(tokens / max(seconds, 1e-9)),
            "generation_tokens_per_second": round(_mean(done, "generation_tokens_per_second")),
            "peak_memory_bytes": memory,
            "memory": f"{memory / 2**20:,.0f} MiB".replace(",", " "),
            "memory_of": done[0]["memory_of"],
            "training_seconds": round(seconds, 2),
            "sample": done[0]["sample"],
        }


def _mean(results: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(result[key] for result in results) / len(results)


def significant(value: float) -> str:
    """Four digits, also where they are zeros: 5.300, 264.0, 1349."""
    return f"{value:#.4g}".rstrip(".")


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def check_free(path: Path | None, option: str) -> None:
    """A file that is to be written must not be there yet: better known before the training than after."""
    if path is not None and path.exists():
        raise RegardError(f"{path} exists already; {option} writes a new file.")
