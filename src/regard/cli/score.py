"""`score`: the log-probability of each line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from json import JSONEncoder
from typing import Annotated, Any

from regard.cli.completion import Corpus, RunFolder
from regard.cli.options import Columns, Encoding, Flag, given_options
from regard.cli.stdin import stdin_batches, stdin_pairs
from regard.report.screen import harmless

AS_JSON = JSONEncoder(ensure_ascii=False).encode


def score(
    run: RunFolder,
    *,
    data: Corpus | None = None,
    columns: Columns = "",
    encoding: Encoding = "utf-8",
    split: str | None = None,
    tokens: Annotated[bool, Flag] = False,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Log-probability (natural) of each line of stdin: `log P, tokens, line`, tab-separated.

    A translator scores pairs, `source⇥target` on each line: log P(target | source). A line is answered when it comes.

    Parameters
    ----------
    run
        the run's folder
    data
        translator, classifier: score the pairs of this file, as they stand in it, instead of stdin's
    columns
        of a table: which columns of --data are source and target, by name or number: sw,en or 2,3
    encoding
        of --data without a byte-order mark: utf-8, or for example cp1252 (Excel on Windows)
    split
        the pairs of this split, of --data or of the run's own corpus: train, valid or test
    tokens
        one line for each token: `log P, token`; an empty line ends each sentence
    weights
        best on validation, last, or a step whose weights were kept
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
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
