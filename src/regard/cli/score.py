"""`score`: the log-probability of each line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from json import JSONEncoder
from typing import Annotated, Any

from cyclopts import Group, Parameter

from regard.cli.options import Columns, Corpus, Device, Encoding, JsonLines, RunFolder, Split, Weights, given_options
from regard.cli.stdin import stdin_batches, stdin_pairs
from regard.report.screen import harmless

PAIRS = Group("Translators and classifiers", sort_key=5)
AS_JSON = JSONEncoder(ensure_ascii=False).encode


def score(
    run: RunFolder,
    *,
    data: Annotated[Corpus | None, Parameter(group=PAIRS)] = None,
    columns: Annotated[Columns, Parameter(group=PAIRS)] = "",
    encoding: Annotated[Encoding, Parameter(group=PAIRS)] = "utf-8",
    split: Annotated[Split | None, Parameter(group=PAIRS)] = None,
    tokens: bool = False,
    weights: Weights = "best",
    device: Device = "auto",
    json: JsonLines = False,
) -> None:
    """Score each line of stdin: print its log-probability (natural log), number of tokens and text, tab-separated.

    Translators and classifiers score pairs, `source⇥target` on each line: log P(target | source). Each line is scored
    as soon as it arrives.

        regard score runs/mine < lines.txt
        echo "the cat sat" | regard score runs/mine --tokens
        regard score runs/translator --data pairs.tsv

    Parameters
    ----------
    data
        score the pairs in this file, in order, instead of stdin
    split
        score this split of --data or of the run's own corpus
    tokens
        print one line per token, `log P, token`, and an empty line after each sentence
    """
    from regard.runs.load import load
    from regard.runs.tasks.task import task_of

    loaded: Any = load(run, weights=weights, device=device)
    task = task_of(loaded)
    reading = {"--data.columns": columns or None, "--data.encoding": None if encoding == "utf-8" else encoding}
    another = given_options(loaded, "score", {"--data": data, "--split": split} | reading)

    def batches() -> Iterator[Iterator[Any]]:
        """The scores of the lines read so far, again and again."""
        if another:
            yield task.score(loaded, loaded.pairs(data, split, columns, encoding))
            return
        done = 0
        for lines in stdin_batches():
            yield task.score(loaded, stdin_pairs(lines, done + 1) if task.has_source else lines, before=done)
            done += len(lines)

    shown = harmless if sys.stdout.isatty() else str  # as `for_stdout`; asked once, since n-grams score in microseconds
    for scores in batches():
        for line in scores:
            sys.stdout.write(shown(_score_text(line, tokens, json)))
        sys.stdout.flush()


def _score_text(line: Any, tokens: bool, as_json: bool) -> str:
    pair = not hasattr(line, "text")
    if as_json:
        entry: dict[str, Any] = {"source": line.source, "target": line.target} if pair else {"text": line.text}
        entry["log_probability"] = line.log_probability
        if tokens:
            entry["tokens"] = [*zip(line.tokens, line.log_probabilities)]
        return AS_JSON(entry) + "\n"
    if tokens:
        scored = [f"{p:.6f}\t{token}\n" for token, p in zip(line.tokens, line.log_probabilities)]
        return "".join([*scored, "\n"])
    text = f"{line.source}\t{line.target}" if pair else line.text
    return f"{line.log_probability:.6f}\t{len(line.log_probabilities)}\t{text}\n"
