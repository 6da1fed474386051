"""How good a run is: `evaluate` on held-out text, `score` line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from regard.cli.options import Flag, beam_search, refuse
from regard.cli.printing import print_facts, print_labels, print_quality
from regard.cli.stdin import stdin_lines, stdin_pairs


def evaluate(
    run: Path,
    *,
    split: str | None = None,
    data: str | None = None,
    stream: Annotated[bool, Flag] = False,
    segment: int | None = None,
    overlap: int | None = None,
    rows: int | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    by_length: Annotated[bool, Flag] = False,
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
        test, valid or train; default: test, or valid where there is no test
    data
        evaluate on this corpus instead of the run's own
    stream
        language model: read the text as one row, state carried throughout, as papers on recurrent nets do
    segment
        language model: tokens read at once; default: 256, or the model's context if shorter
    overlap
        language model: of these, tokens that only warm up the state; default: half
    rows
        language model: segments read side by side; affects speed only
    beam
        translator: hypotheses of the search, 1 = greedy; default: 5
    length_penalty
        translator: log P is divided by the length to this power; default: 1
    by_length
        translator: also BLEU, chrF and accuracy by the length of the source
    bleu_tokenizer
        translator: how sacreBLEU cuts words: 13a, intl, char, zh or none
    average
        translator, classifier: use the mean of the weights of the last N validations
    weights
        best on validation, or last
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one object
    """
    from regard.classification import ClassificationRun
    from regard.run import Run, load

    loaded = load(run, weights=weights, average=average, device=device)
    reading = {"--stream": stream or None, "--segment": segment, "--overlap": overlap, "--rows": rows}
    searching = {
        "--beam": beam,
        "--length-penalty": length_penalty,
        "--bleu-tokenizer": bleu_tokenizer,
        "--by-length": by_length or None,
    }
    if isinstance(loaded, Run):
        refuse(loaded, "a language model", searching)
        facts = loaded.evaluate(split, data=data, stream=stream, segment=segment, overlap=overlap, rows=rows)
        print_facts(facts, json)
        return
    if isinstance(loaded, ClassificationRun):
        refuse(loaded, "a classifier", reading | searching)
        print_labels(loaded.evaluate(split, data=data), json)
        return
    refuse(loaded, "a translator", reading)
    facts = loaded.evaluate(
        split,
        data=data,
        how=beam_search(beam, length_penalty),
        lengths=by_length,
        bleu_tokenizer=bleu_tokenizer or "13a",
    )
    print_quality(facts, json)


def score(
    run: Path,
    *,
    data: str | None = None,
    split: str | None = None,
    tokens: Annotated[bool, Flag] = False,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Log-probability (natural) of each line of stdin: `log P, tokens, line`, tab-separated.

    A translator scores pairs, `source⇥target` on each line: log P(target | source).

    Parameters
    ----------
    run
        the run's folder
    data
        translator: score the pairs of this file, as they stand in it, instead of stdin's
    split
        the pairs of this split, of --data or of the run's own corpus: train, valid or test
    tokens
        one line for each token: `log P, token`; an empty line ends each sentence
    weights
        best on validation, or last
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
    """
    import json as json_module

    from regard.run import Run, load
    from regard.translation import PairScore

    loaded = load(run, weights=weights, device=device)
    if isinstance(loaded, Run):
        refuse(loaded, "a language model", {"--data": data, "--split": split})
        scores: Iterator[Any] = loaded.score(stdin_lines())
    else:
        scores = loaded.score(stdin_pairs() if data is None and split is None else loaded.pairs(data, split))
    for line in scores:
        pair = isinstance(line, PairScore)
        if json:
            entry: dict[str, Any] = {"source": line.source, "target": line.target} if pair else {"text": line.text}
            entry["log_probability"] = line.log_probability
            if tokens:
                entry["tokens"] = [[t, p] for t, p in zip(line.tokens, line.log_probabilities)]
            print(json_module.dumps(entry, ensure_ascii=False))
        elif tokens:
            for token, p in zip(line.tokens, line.log_probabilities):
                print(f"{p:.6f}\t{token}")
            print()
        else:
            text = f"{line.source}\t{line.target}" if pair else line.text
            print(f"{line.log_probability:.6f}\t{len(line.tokens)}\t{text}")
