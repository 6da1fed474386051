"""`evaluate`: measure a run on held-out text."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.options import (
    LANGUAGE_MODELS,
    TRANSLATORS,
    Average,
    Beam,
    Columns,
    Corpus,
    Device,
    Encoding,
    Json,
    LengthPenalty,
    RunFolder,
    Split,
    Weights,
    given_options,
)
from regard.cli.printing import print_facts, print_labels, print_quality


def evaluate(
    run: RunFolder,
    *,
    split: Split | None = None,
    data: Corpus | None = None,
    columns: Columns = "",
    encoding: Encoding = "utf-8",
    stream: Annotated[bool, Parameter(group=LANGUAGE_MODELS)] = False,
    segment: Annotated[int | None, Parameter(group=LANGUAGE_MODELS)] = None,
    overlap: Annotated[int | None, Parameter(group=LANGUAGE_MODELS)] = None,
    rows: Annotated[int | None, Parameter(group=LANGUAGE_MODELS)] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    by_length: Annotated[bool, Parameter(group=TRANSLATORS)] = False,
    texts: Annotated[bool, Parameter(group=TRANSLATORS)] = False,
    bleu_tokenizer: Annotated[str | None, Parameter(group=TRANSLATORS, metavar="NAME")] = None,
    average: Annotated[
        Average, Parameter(help="average the weights of the last N validations (not for language models)")
    ] = None,
    weights: Weights = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Evaluate a run on held-out text and report how the numbers were computed.

    Language models get perplexity and bits per character, translators also BLEU and chrF, classifiers accuracy, F1 and
    a confusion matrix. Results on the run's own held-out text are also added to report.html in its folder.

        regard evaluate runs/mine
        regard evaluate runs/mine --data other.txt --json
        regard evaluate runs/translator --beam 10 --by-length

    Parameters
    ----------
    split
        split to evaluate on; all = all of --data [default: all with --data; else test, or valid if there is no test]
    data
        evaluate on this file, folder or corpus instead of the run's own; also report how much of it was in the
        training data
    stream
        read the text in one pass, carrying the state along, as papers on recurrent networks do
    segment
        tokens to read at once [default: the model's context, at most 4096; 256 if it has none]
    overlap
        tokens at the start of a segment that only warm up the state [default: half]
    rows
        batch size; changes the speed, and at most the last digits of the results
    by_length
        also report BLEU, chrF and accuracy by source length
    texts
        with --json: also print every source, reference and translation
    bleu_tokenizer
        sacreBLEU tokenizer: 13a, intl, char, zh, ja-mecab, ko-mecab or none [default: by the script of the references]
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
        raise RegardError("--texts works only with --json: add --json.")
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
        return {"weights": f"mean over the last {average} validations"}
    if weights == "best" and not ema:
        return {}
    named = {"best": "best on validation", "last": "last step"}.get(weights, f"step {weights}")
    of_average = "not averaged" if weights == "last" else f"moving average, ema {ema:g}"
    return {"weights": named + (f": {of_average}" if ema else "")}
