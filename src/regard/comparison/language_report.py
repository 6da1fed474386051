"""The report of language models: how they were tested, differences as ratios, samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from regard.base.numbers import group_digits
from regard.comparison.comparison import Comparison
from regard.comparison.differences import Difference
from regard.comparison.findings import intervals_of, largest_step, side_by_side, table_of_differences, training
from regard.evaluation.perplexity import Method
from regard.report.figures import Mark
from regard.report.page import heading, paragraph, sample
from regard.report.svg import interval_chart
from regard.report.table import significant


def conditions(comparison: Comparison) -> list[str]:
    facts = comparison.plan.facts
    found = [
        f"All systems were tested on the same {group_digits(facts['tokens'][facts['split']])} tokens in "
        f"{_segments(comparison)}; "
        f"intervals are over {_documents(comparison)}" + (" and the seeds." if comparison.seeds > 1 else ".")
    ]
    row = next((row for row in comparison.rows if row["perplexity"] is not None), None)
    if row is not None:
        unknown = f"{100 * row['unknown_rate']:.2g} % of the test tokens are <unk>"
        if refused := row["bits_per_character_refused"]:
            found.append(f"Bits per character are not available: {refused}; {unknown}.")
        else:
            found.append(f"Bits per character count every character, including line breaks; {unknown}.")
    return found


def _segments(comparison: Comparison) -> str:
    segment = comparison.plan.facts["segment"]
    return Method(segment - segment // 2, segment // 2).sentence


def _documents(comparison: Comparison, of: str = "") -> str:
    """The number of documents, and how they are defined."""
    done = [r["evaluation"]["documents"] for r in comparison.results.values() if "evaluation" in r]
    if not done:
        return f"0 documents{of}"
    tokens = done[0]["tokens"]
    what = "whole lines" if done[0]["whole_lines"] else "cut within lines, of which there are too few"
    return f"{len(tokens)} documents{of} ({what}, about {group_digits(round(sum(tokens) / len(tokens)))} tokens each)"


def effort(comparison: Comparison) -> str:
    counted = "n-grams read the training text once, regardless of the budget."
    if comparison.plan.match == "seconds":
        return f"With equal time, faster kernels read more text: compare the tokens seen. {counted}"
    largest = largest_step(comparison)
    return f"Tokens seen exceed the budget by less than one optimizer step (at most {largest}). {counted}"


def methods(comparison: Comparison) -> list[str]:
    facts = comparison.plan.facts
    corpus, tokenizer = facts["corpus"], facts["tokenizer"]
    sizes = ", ".join(f"{group_digits(count)} {split}" for split, count in facts["tokens"].items())
    jobs = side_by_side(comparison)
    return [
        f"Data: {corpus['name']} (checksum {corpus['checksum']}): {sizes} tokens. {' '.join(corpus['notes'])}",
        f"One {tokenizer['kind']} tokenizer of {group_digits(tokenizer['vocabulary'])} symbols, built from "
        "the training split, was used for all systems.",
        *training(comparison, "Each neural system"),
        "The n-grams are interpolated modified Kneser-Ney models of the whole training split.",
        "Perplexity is exp of the mean negative log-probability per token, over every token of the "
        f"{facts['split']} split and the <eos> of each line, averaged over seeds where there are "
        f"several; the text was read in "
        f"{_segments(comparison)}, the same for every system.",
        f"Intervals are over {_documents(comparison, ' of the test text')}{intervals_of(comparison)}",
        "Generation speed was measured for one text at a time, with greedy decoding"
        + (f"; at times, at least {jobs} runs shared the machine, which slows them." if jobs > 1 else "."),
    ]


# -- the page --------------------------------------------------------------------------------------------------------


def lead(comparison: Comparison) -> str:
    return f"{comparison.title}. Lower perplexity is better."


def score(row: Mapping[str, Any]) -> str:
    said = significant(row["perplexity"])
    if row["perplexity_low"] is None:
        return said
    low, high = (significant(row[key]) for key in ("perplexity_low", "perplexity_high"))
    return f"{said} (95 % interval {low} to {high})"


def ahead(difference: Difference) -> str:
    share = 100 * (1 - math.exp(difference.by))
    return f"Its perplexity is {share:.2g} % lower than that of {difference.worse}, the next best"


def paired() -> str:
    return (
        "All systems read the same documents, and a document that is hard for one tends to be hard for the others. So "
        "the interval of a difference can exclude zero although the two intervals in the figure overlap."
    )


def differences(comparison: Comparison) -> str:
    return table_of_differences(
        comparison,
        "ratio",
        "perplexity ratio",
        lambda d: (f"{math.exp(d.by):.4f}", f"{math.exp(d.low):.4f} – {math.exp(d.high):.4f}"),
    )


def size_of(nats: float) -> str:
    return f"{100 * math.expm1(abs(nats)):.2g} % in perplexity"


def intervals(comparison: Comparison) -> str:
    marks = [
        Mark(row["label"], row["perplexity"], row["perplexity_low"], row["perplexity_high"])
        for row in comparison.order
        if row["perplexity_low"] is not None
    ]
    described = "; ".join(
        f"{m.name} {significant(m.value)} ({significant(m.low)} to {significant(m.high)})" for m in marks
    )
    return interval_chart(
        marks,
        title="Test perplexity with 95 % intervals, best first (logarithmic)",
        x="perplexity",
        description=f"Best first: {described}.",
        best=marks[0].name if marks else "",
    )


def curves() -> str:
    return "Validation reads each system's own context; n-grams, which do not learn step by step, are horizontal lines."


def samples(comparison: Comparison) -> list[str]:
    prompt = comparison.plan.facts["prompt"]
    return [
        heading("Samples"),
        paragraph(
            "All texts continue the same prompt (gray) with the same seed at temperature 0.8, using the weights "
            "of seed 1.",
            "lead",
        ),
        *(
            heading(row["label"], 3) + sample(prompt, row["sample"])
            for row in comparison.rows
            if row["perplexity"] is not None
        ),
    ]
