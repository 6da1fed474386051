"""`generate`: continue a prompt, or each line of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_choice, check_range
from regard.cli.options import (
    CONSTRAINT,
    SEARCH,
    Device,
    InFile,
    Json,
    OutFile,
    Precision,
    Prompt,
    RunFolder,
    TopK,
    TopP,
    Weights,
)
from regard.cli.stdin import stdin_text
from regard.report.screen import for_stdout


def generate(
    run: RunFolder,
    *,
    prompt: Prompt = "",
    max_tokens: int = 200,
    lines: int = 0,
    temperature: Annotated[float, Parameter(group=SEARCH)] = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: Annotated[float, Parameter(group=SEARCH, metavar="P")] = 0.0,
    repetition_penalty: Annotated[float, Parameter(group=SEARCH, metavar="X")] = 1.0,
    presence_penalty: Annotated[float, Parameter(group=SEARCH, metavar="X")] = 0.0,
    frequency_penalty: Annotated[float, Parameter(group=SEARCH, metavar="X")] = 0.0,
    logit_bias: Annotated[Sequence[str], Parameter(group=SEARCH, metavar="TOKEN=X")] = (),
    regex: Annotated[str, Parameter(group=CONSTRAINT, metavar="PATTERN", allow_leading_hyphen=True)] = "",
    json_schema: Annotated[Path | None, Parameter(group=CONSTRAINT, metavar="FILE")] = None,
    choice: Annotated[Sequence[str], Parameter(group=CONSTRAINT, metavar="TEXT")] = (),
    seed: Annotated[int, Parameter(group=SEARCH)] = 0,
    beam: Annotated[int, Parameter(group=SEARCH, metavar="N")] = 0,
    source: InFile = None,
    out: OutFile = None,
    precision: Precision = "fp32",
    weights: Weights = "best",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Continue a prompt token by token, or complete each line of a file.

        regard generate runs/mine --prompt "Once upon a time"
        regard generate runs/mine --temperature 0.8 --max-tokens 500 --seed 3
        regard generate runs/mine --in prompts.txt --out texts.txt
        regard generate runs/mine --prompt "Answer: " --choice yes --choice no

    Parameters
    ----------
    prompt
        text to continue; - reads it from stdin
    max_tokens
        maximum number of tokens to write
    lines
        stop after this many lines; 0 = no limit
    temperature
        below 1: safer, above 1: more varied, 0: greedy
    min_p
        sample only from tokens whose probability is at least this share of the most probable token's
    repetition_penalty
        above 1: tokens already in the prompt or the text become less probable
    presence_penalty
        subtract X from the logits of tokens that occur in the text
    frequency_penalty
        subtract X from a token's logit for each time it occurs in the text
    logit_bias
        add X to the logit of the token with id TOKEN; -100 forbids it
    regex
        the text after the prompt must match this regular expression; generation stops when the match is complete
    json_schema
        the text after the prompt must be JSON that conforms to the schema in this file
    choice
        the text after the prompt must be one of these; repeat the option for each text
    seed
        the same seed gives the same text
    beam
        instead of sampling, print the N most probable completions of the line, by beam search of this size; 0 = sample
    source
        complete each line of this file; an empty line means no prompt
    """
    from regard.decoding.sampling import Sampling
    from regard.report.progress import say
    from regard.report.table import print_json
    from regard.runs.load import load_language_model
    from regard.runs.speed import PRECISIONS, set_precision

    check_range("--max-tokens", max_tokens, 1)
    check_range("--lines", lines, 0)
    check_range("--beam", beam, 0)
    check_choice("--precision", precision, PRECISIONS)
    schema = "" if json_schema is None else _read_schema(json_schema)
    sampling = Sampling(
        temperature, top_k, top_p, min_p=min_p, repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty, frequency_penalty=frequency_penalty,
        logit_bias=dict(map(_bias, logit_bias)), regex=regex, json_schema=schema, choices=tuple(choice),
    )  # fmt: skip
    if beam and (sampling.adjusts or min_p):
        raise RegardError("--beam searches and does not sample: leave out penalties, biases and constraints.")
    if (source is None) != (out is None):
        raise RegardError("--in and --out must be given together.")
    if source is not None and (prompt or lines or beam):
        raise RegardError("--in completes each line of a file: leave out --prompt, --lines and --beam.")
    prompt = stdin_text() if prompt == "-" else prompt
    loaded = load_language_model(run, weights=weights, device=device)
    set_precision(loaded.model, precision)
    told: list[int] = []

    def reread(kept: int) -> None:
        if not told:
            told.append(kept)
            say(f"note: the context of {loaded.model.context} tokens is full; continuing from the last {kept}")

    how: dict[str, Any] = {"max_tokens": max_tokens, "sampling": sampling, "seed": seed, "on_reread": reread}
    if source is not None and out is not None:
        more = [min_p, repetition_penalty, presence_penalty, frequency_penalty, list(logit_bias)]
        more += [regex, schema, list(choice)]
        drawn = [temperature, top_k, top_p, *(more if sampling.adjusts or min_p else [])]
        options = [max_tokens, *drawn, seed, precision, weights, json]
        return _finish_lines(loaded, run, source, out, options, **how)
    unknown = loaded.tokenizer.encode(prompt).count(loaded.tokenizer.unk) if loaded.tokenizer.unk is not None else 0
    if unknown:
        say(f"note: {unknown} of the prompt's tokens are not in this model's vocabulary")
    if beam:
        found = [
            {"text": text, "log_probability": p} for text, p in loaded.beam(prompt, width=beam, max_tokens=max_tokens)
        ]
        if json:
            print_json({"prompt": prompt, "beam": beam, "hypotheses": found})
        for one in [] if json else found:
            print(for_stdout(f"{one['log_probability']:.4f}\t{one['text']}"))
        return

    text = loaded.as_read(prompt)
    if not json:
        print(for_stdout(text), end="", flush=True)
    for piece in loaded.stream(prompt, lines=lines, **how):
        text += piece
        if not json:
            print(for_stdout(piece), end="", flush=True)
    if json:
        print_json({"prompt": prompt, "text": text, "seed": seed})
    elif not text.endswith("\n"):
        print()


def _read_schema(path: Path) -> str:
    from regard.base.reading import read_whole
    from regard.decoding.constraints import MAX_CHARACTERS

    try:
        return read_whole(path, 4 * MAX_CHARACTERS["json_schema"]).decode()
    except UnicodeDecodeError:
        raise RegardError(f"{str(path)!r} is not UTF-8: save it as UTF-8.") from None


def _bias(said: str) -> tuple[int, float]:
    token, _, bias = said.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise RegardError(f"--logit-bias takes TOKEN=X, as in 17=-100, not {said[:60]!r}.") from None


def _finish_lines(loaded: Any, run: Path, source: Path, out: Path, options: Sequence[Any], **how: Any) -> None:
    """Write the model's completion of each line of a file to another file."""
    import json as json_module

    from regard.cli.file_to_file import ReadAhead, line_by_line, run_digests

    as_json, weights = options[-1], options[-2]

    def answers(lines: Iterable[str], before: tuple[int, int]) -> Iterator[str]:
        kept = ReadAhead(iter(lines))
        for number, text in enumerate(loaded.completions(kept, before=before[0], **how), start=before[0] + 1):
            prompt = kept.take()
            entry = {"line": number, "prompt": prompt, "text": text}
            yield json_module.dumps(entry, ensure_ascii=False) if as_json else text

    line_by_line(source, out, {"run": run_digests(run, weights), "options": options}, answers)
