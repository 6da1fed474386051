"""Numbers for people: one fact on a line, and the tables of what an evaluation found."""

from __future__ import annotations

import shutil
import sys
from textwrap import fill
from typing import Any


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    from regard.report.table import print_json, text

    if as_json:
        print_json(facts)
        return
    width = max(len(name) for name in facts if not name.endswith("_refused"))
    for name, value in facts.items():
        if name.endswith("_refused"):
            continue
        if why_not := facts.get(f"{name}_refused"):
            value = f"not defined: {why_not}"
        print(f"{name.replace('_', ' ').ljust(width)}  {text(value)}")


def print_prose(words: str, indent: str = "") -> None:
    """Sentences: a terminal's lines end between words, elsewhere a paragraph is one line."""
    if sys.stdout.isatty():
        words = fill(words, min(100, shutil.get_terminal_size().columns), subsequent_indent=indent)
    print(words)


def agreed(question: str, yes: bool) -> bool:
    """Ask before something is deleted: on a terminal, or by --yes."""
    from regard.base.errors import RegardError
    from regard.report.screen import harmless

    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise RegardError(f"{question} There is no terminal to answer in: add --yes.")
    print(harmless(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_quality(facts: dict[str, Any], as_json: bool) -> None:
    """A translator's numbers: those with a signature on a line of their own, lengths as a table."""
    from regard.report.table import print_json, print_table

    if as_json:
        print_json(facts)
        return
    plain = dict(facts)
    rows = plain.pop("by_length", None)
    for name, value in facts.items():
        if isinstance(value, dict):
            plain[name] = f"{value['score']:.2f}   {value['signature']}"
    print_facts(plain, False)
    if rows is not None:
        for row in rows:
            row["words"] = f"{row['shortest']}–{row['longest']}" if row["longest"] else f"{row['shortest']} or more"
        print()
        columns = {
            "words": "source words", "sentences": "sentences", "bleu": "BLEU", "chrf": "chrF", "accuracy": "exact",
        }  # fmt: skip
        print_table(rows, columns, "By source length")


MAX_COLUMNS = 12  # labels of a confusion table that fits a screen
MOST_MISTAKES = 20


def print_labels(facts: dict[str, Any], as_json: bool) -> None:
    """A classifier's scores, overall and per label, and its confusion table, or for many labels its mistakes."""
    from regard.report.table import print_json, print_table

    if as_json:
        print_json(facts)
        return
    plain = {key: value for key, value in facts.items() if key not in ("labels", "confusion", "accuracy_interval")}
    low, high = facts["accuracy_interval"]
    plain["accuracy"] = f"{facts['accuracy']:.4f}   95 % interval {low:.4f} – {high:.4f}"
    print_facts(plain, False)
    labels, table = facts["labels"], facts["confusion"]
    columns = {"label": "label", "lines": "lines", "predicted": "predicted"}
    columns |= {"precision": "precision", "recall": "recall", "f1": "F1"}
    print()
    print_table([{"label": label, **numbers} for label, numbers in labels.items()], columns, "By label")
    print()
    if len(labels) <= MAX_COLUMNS:
        rows = [{"": gold, **{f"as {label}": row.get(label, 0) for label in labels}} for gold, row in table.items()]
        headings = {"": "", **{f"as {label}": label for label in labels}}
        print_table(rows, headings, "Confusion matrix: a row for each true label, a column for each predicted label")
        return
    mistakes = [
        {"gold": gold, "predicted": guess, "lines": count}
        for gold, row in table.items()
        for guess, count in row.items()
        if gold != guess
    ]
    mistakes.sort(key=lambda row: -row["lines"])
    headings = {"gold": "true label", "predicted": "predicted as", "lines": "lines"}
    print_table(mistakes[:MOST_MISTAKES], headings, f"The most common of {len(mistakes)} kinds of mistake")
