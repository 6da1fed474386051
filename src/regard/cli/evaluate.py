"""`evaluate`: measure a run on held-out text."""

from __future__ import annotations

from typing import Annotated, Any

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.completion import Corpus, RunFolder
from regard.cli.options import Columns, Encoding, Flag, given_options
from regard.cli.printing import print_facts, print_labels, print_quality


def evaluate(
    run: RunFolder,
    *,
    split: str | None = None,
    data: Corpus | None = None,
    columns: Columns = "",
    encoding: Encoding = "utf-8",
    stream: Annotated[bool, Flag] = False,
    segment: int | None = None,
    overlap: int | None = None,
    rows: int | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    by_length: Annotated[bool, Flag] = False,
    texts: Annotated[bool, Flag] = False,
    bleu_tokenizer: str | None = None,
    average: int | None = None,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """How good a run is on held-out text, and how that was computed: perplexity, BLEU and chrF, or accuracy.

    Of a language model perplexity; of a translator also BLEU and chrF; of a classifier accuracy, F1, and which label is
    taken for which.

    Parameters
    ----------
    run
        the run's folder
    split
        test, valid, train, or all: a file of --data as it stands; default: all of another file, else test, or valid
        where there is no test
    data
        evaluate on this corpus instead of the run's own; says how much of it was trained on
    columns
        of a table: which columns of --data to read, by name or number: en, or sw,en
    encoding
        of --data without a byte-order mark: utf-8, or for example cp1252 (Excel on Windows)
    stream
        language model: read the text as one row, state carried throughout, as papers on recurrent nets do
    segment
        language model: tokens read at once; default: the model's context, at most 4096, or 256 if it has none
    overlap
        language model: of these, tokens that only warm up the state; default: half
    rows
        language model: segments read side by side; affects speed, and at most the last digits of the numbers
    beam
        translator: hypotheses of the search, 1 = greedy; default: 5
    length_penalty
        translator: log P is divided by the length to this power; default: 1
    by_length
        translator: also BLEU, chrF and accuracy by the length of the source
    texts
        translator, with --json: also every source, reference and translation
    bleu_tokenizer
        translator: how sacreBLEU cuts words: 13a, intl, char, zh, ja-mecab, ko-mecab or none; without it the script of
        the references decides
    average
        translator, classifier: use the mean of the weights of the last N validations
    weights
        best on validation, last, or a step whose weights were kept
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one object

    On the run's own held-out text the result is also added to the run's page, report.html in its folder.
    """
    from regard.runs.load import load
    from regard.runs.run_report import write_report
    from regard.runs.tasks.task import task_of

    loaded: Any = load(run, weights=weights, average=average, device=device)
    own = data is None and split in (None, "test") and weights == "best" and average is None
    which = weights_measured(weights, average, getattr(loaded.recipe.training, "ema", 0.0))
    reading = {"--stream": stream or None, "--segment": segment, "--overlap": overlap, "--rows": rows}
    for name, value in reading.items():
        check_range(name, value or 0, min(value or 0, 0))  # too small a one is refused below
    searching = {
        "--beam": beam,
        "--length-penalty": length_penalty,
        "--bleu-tokenizer": bleu_tokenizer,
        "--by-length": by_length or None,
        "--texts": texts or None,
    }
    if texts and not json:
        raise RegardError("--texts adds sentences to the object that --json prints: give both.")
    task = task_of(loaded)
    given = given_options(loaded, "evaluate", reading | searching)
    facts = task.evaluate(loaded, split, data=data, columns=columns, encoding=encoding, **given)
    sentences = facts.pop("texts", {})
    PRINTED.get(task.name, print_facts)(facts | which | sentences, json)
    if own:
        write_report(loaded, loaded.pairs(None, split) if task.has_source else (), facts)


PRINTED = {"translation": print_quality, "classification": print_labels}  # by the name of a task; others as plain facts


def weights_measured(weights: str, average: int | None, ema: float) -> dict[str, str]:
    """Which weights an evaluation used, where there is more to say than that they were the best on validation."""
    if average is not None:
        return {"weights": f"the mean of the last {average} validations'"}
    if weights == "best" and not ema:
        return {}
    named = {"best": "the best on validation", "last": "of the last step"}.get(weights, f"of step {weights}")
    of_average = "as they were, not the moving average" if weights == "last" else f"their moving average, ema {ema:g}"
    return {"weights": named + (f": {of_average}" if ema else "")}
