"""The report of translators: how BLEU was computed, BLEU by sentence length (Bahdanau et al. 2015, fig. 2), and some
test sentences with all translations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.base.numbers import group_digits
from regard.comparison.comparison import Comparison
from regard.comparison.differences import Difference
from regard.comparison.findings import intervals_of, largest_step, side_by_side, table_of_differences, training
from regard.comparison.translation_task import read_test, words_of
from regard.evaluation.scripts import count_words
from regard.report.figures import Line, Mark
from regard.report.page import beside, heading, paragraph, side_by_side_texts, table
from regard.report.svg import interval_chart, line_chart


def conditions(comparison: Comparison) -> list[str]:
    facts = comparison.plan.facts
    found = [
        f"All systems translated the same {group_digits(facts['pairs'][facts['split']])} sentences "
        f"({facts['direction']}) with "
        f"{_search(comparison)}; intervals are over these sentences"
        + (" and the seeds." if comparison.seeds > 1 else ".")
    ]
    if comparison.order:
        best = comparison.order[0]
        found.append(
            f"BLEU is {best['bleu_signature']} (tokenizer {words_of(comparison.plan).why}); chrF is "
            f"{best['chrf_signature']}."
        )
        found.append("Perplexity is that of the references given their sources, per token including <eos>.")
    if "alignment_error_rate" in comparison.columns:
        found.append(
            "The alignment error rate compares a system's attention while it reads the references with the gold "
            "alignment: 0 is best; systems without attention have none."
        )
    return found


def _search(comparison: Comparison) -> str:
    facts = comparison.plan.facts
    return f"beam {facts['beam']} and length penalty {facts['length_penalty']:g}"


def effort(comparison: Comparison) -> str:
    if comparison.plan.match == "seconds":
        return (
            "With equal time, faster kernels read more text: compare the tokens seen, which are those of the targets."
        )
    largest = largest_step(comparison)
    return f"Tokens seen are those of the targets, and exceed the budget by less than one step (at most {largest})."


def methods(comparison: Comparison) -> list[str]:
    facts = comparison.plan.facts
    corpus, tokenizer, best = facts["corpus"], facts["tokenizer"], comparison.order[0]
    sizes = ", ".join(f"{group_digits(count)} {split}" for split, count in facts["pairs"].items())
    jobs, aligned = side_by_side(comparison), "alignment_error_rate" in comparison.columns
    return [
        f"Data: {corpus['name']} (checksum {corpus['checksum']}), {facts['direction']}: {sizes} pairs, "
        f"of which {group_digits(facts['training_pairs'])} with {group_digits(facts['training_tokens'])} "
        f"target tokens were trained on. {' '.join(corpus['notes'])}",
        _tokenizer(tokenizer),
        *training(comparison, "Each system"),
        f"The {group_digits(facts['pairs'][facts['split']])} sentences of the {facts['split']} split were "
        f"translated with {_search(comparison)}, the same for every system, and scored as detokenized text by "
        "sacreBLEU: BLEU "
        f"{best['bleu_signature']}, chrF {best['chrf_signature']}"
        + ("; scores are means over seeds." if comparison.seeds > 1 else "."),
        "Perplexity is exp of the mean negative log-probability per token of the references, including the "
        "<eos> of each.",
        *(
            ["Alignment error rates (Och & Ney 2003) are computed from the attention while the references are read."]
            * aligned
        ),
        "Intervals are over the test sentences (jackknife of the corpus's BLEU)" + intervals_of(comparison),
        "Sentences per second are measured on the whole test set, in batches"
        + (f"; at times, at least {jobs} runs shared the machine, which slows them." if jobs > 1 else "."),
    ]


def _tokenizer(facts: dict[str, Any]) -> str:
    if facts["joint"]:
        return (
            f"One {facts['kind']} tokenizer of {group_digits(facts['vocabulary'])} symbols, built from both "
            "sides of the training split, was used for both sides of all systems."
        )
    return (
        f"One {facts['kind']} tokenizer of {group_digits(facts['source_vocabulary'])} symbols for the "
        f"source and one of {group_digits(facts['vocabulary'])} for the target, both built from the training "
        "split, were "
        "used for all systems."
    )


# -- the page --------------------------------------------------------------------------------------------------------


def lead(comparison: Comparison) -> str:
    return f"{comparison.title}. Higher BLEU is better."


def score(row: Mapping[str, Any]) -> str:
    return f"{row['bleu']:.2f} (95 % interval {row['bleu_low']:.2f} to {row['bleu_high']:.2f})"


def ahead(difference: Difference) -> str:
    return f"It is {difference.by:.2f} BLEU points ahead of {difference.worse}, the next best"


def paired() -> str:
    return (
        "All systems translate the same sentences, and a sentence that is hard for one tends to be hard for "
        "the others. "
        "So the interval of a difference can exclude zero although the two intervals in the figure overlap."
    )


def differences(comparison: Comparison) -> str:
    return table_of_differences(
        comparison, "difference", "BLEU points", lambda d: (f"{d.by:.2f}", f"{_signed(d.low)} to {_signed(d.high)}")
    )


def size_of(points: float) -> str:
    return f"{abs(points):.2g} BLEU points"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def intervals(comparison: Comparison) -> str:
    marks = [Mark(row["label"], row["bleu"], row["bleu_low"], row["bleu_high"]) for row in comparison.order]
    described = "; ".join(f"{m.name} {m.value:.2f} ({m.low:.2f} to {m.high:.2f})" for m in marks)
    return interval_chart(
        marks,
        title="Test BLEU with 95 % intervals, best first",
        x="BLEU",
        description=f"Best first: {described}.",
        log_x=False,
        best=marks[0].name if marks else "",
    )


def curves() -> str:
    return "Validation reads the references of the validation pairs, as training does; lower is better."


def samples(comparison: Comparison) -> list[str]:
    sources, references = read_test(comparison.plan)
    chart = _length_chart(comparison, sources)
    lengths = [
        heading("Long sentences"),
        paragraph(
            "BLEU by the number of words of the source (Bahdanau et al. 2015, figure 2). A system that keeps a "
            "sentence in one vector of fixed size has to forget more of a longer one; attention looks again. "
            "BLEU over few sentences is uncertain.",
            "lead",
        ),
        beside(chart, _length_table(comparison)),
    ]
    return [
        *(lengths if chart else []),
        heading("Samples"),
        paragraph("Test sentences from short to long, translated with the weights of seed 1.", "lead"),
        *(_example(comparison, number, sources, references) for number in comparison.plan.facts["examples"]),
    ]


def _length_chart(comparison: Comparison, sources: list[str]) -> str:
    words = [count_words(source) for source in sources]

    def middle(of: dict[str, Any]) -> float:
        inside = [n for n in words if n >= of["shortest"] and (of["longest"] is None or n <= of["longest"])]
        return sum(inside) / len(inside)

    rows = {row["label"]: row["by_length"] for row in comparison.order}
    labels = [
        entrant.label for entrant in comparison.plan.entrants if entrant.label in rows
    ]  # the same colours as above
    lines = [Line(label, [(middle(of), of["bleu"]) for of in rows[label]]) for label in labels]
    described = "; ".join(
        f"{line.name} from {line.points[0][1]:.1f} at {line.points[0][0]:.0f} words to {line.points[-1][1]:.1f} at "
        f"{line.points[-1][0]:.0f}"
        for line in lines
    )
    return line_chart(
        lines,
        title="BLEU by the length of the source" + (", mean over seeds" if comparison.seeds > 1 else ""),
        x="words of the source (mean of the class)",
        y="BLEU",
        description=f"{described}.",
        log_y=False,
        zero_y=True,
        best=comparison.order[0]["label"],
    )


def _length_table(comparison: Comparison) -> str:
    order = comparison.order
    rows = []
    for number, of in enumerate(order[0]["by_length"]):
        words = f"over {of['shortest'] - 1}" if of["longest"] is None else f"{of['shortest']} – {of['longest']}"
        scores = {row["label"]: f"{row['by_length'][number]['bleu']:.2f}" for row in order}
        rows.append({"words": words.replace("0 –", "1 –"), "sentences": of["sentences"], **scores})
    return table(rows, {"words": "source words", "sentences": "sentences", **{r["label"]: r["label"] for r in order}})


def _example(comparison: Comparison, number: int, sources: list[str], references: list[str]) -> str:
    said = {"source": sources[number], "reference": references[number]}
    for row in comparison.order:
        results = (comparison.results[key] for key in comparison.results if key[0] == row["label"])
        first = next(result for result in results if "evaluation" in result)
        said[row["label"]] = first["evaluation"]["translations"][number]
    return side_by_side_texts(said, quiet=("source",))
