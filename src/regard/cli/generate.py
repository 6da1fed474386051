"""`generate`: continue a prompt, or each line of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_choice, check_range
from regard.cli.completion import RunFolder
from regard.cli.options import Flag
from regard.cli.stdin import stdin_text
from regard.report.screen import for_stdout


def generate(
    run: RunFolder,
    *,
    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    max_tokens: int = 200,
    lines: int = 0,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    beam: int = 0,
    source: Annotated[Path | None, Parameter(name="--in")] = None,
    out: Path | None = None,
    precision: str = "fp32",
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Continue a prompt, token by token; or each line of a file, many at once.

    Parameters
    ----------
    run
        the run's folder
    prompt
        the text to continue; "-" reads it from stdin
    max_tokens
        write at most this many tokens
    lines
        stop after this many lines; 0 = no limit
    temperature
        below 1: safer, above 1: more varied, 0: greedy
    top_k
        draw only from the k most probable tokens; 0 = all
    top_p
        draw only from the most probable tokens that together hold this probability
    seed
        the same seed writes the same text
    beam
        instead of drawing, print the most probable ways to finish the line, searched with this many beams
    source
        finish each line of this file, of any size, with progress; an empty line is written from its beginning
    out
        with --in: write the lines to this file; if interrupted, the same command continues where it stopped
    precision
        fp32, or bf16: faster on a GPU, and less exact
    weights
        best on validation, last, or a step whose weights were kept
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one object
    """
    from regard.decoding.sampling import Sampling
    from regard.report.progress import say
    from regard.report.table import print_json
    from regard.runs.load import load_language_model

    check_range("--max-tokens", max_tokens, 1)
    check_range("--lines", lines, 0)
    check_range("--beam", beam, 0)
    check_choice("--precision", precision, ("fp32", "bf16"))
    sampling = Sampling(temperature, top_k, top_p)
    if (source is None) != (out is None):
        raise RegardError("--in and --out go together: from one file to another.")
    if source is not None and (prompt or lines or beam):
        raise RegardError("--in draws the rest of each line of a file: --prompt, --lines and --beam do not go with it.")
    prompt = stdin_text() if prompt == "-" else prompt
    loaded = load_language_model(run, weights=weights, device=device)
    if precision == "bf16":
        loaded.model.bfloat16()
    told: list[int] = []

    def reread(kept: int) -> None:
        if not told:
            told.append(kept)
            say(f"note: the context of {loaded.model.context} tokens is full; continuing from the last {kept}")

    how: dict[str, Any] = {"max_tokens": max_tokens, "sampling": sampling, "seed": seed, "on_reread": reread}
    if source is not None and out is not None:
        options = [max_tokens, temperature, top_k, top_p, seed, precision, weights, json]
        return _finish_lines(loaded, run, source, out, options, **how)
    unknown = loaded.tokenizer.encode(prompt).count(loaded.tokenizer.unk) if loaded.tokenizer.unk is not None else 0
    if unknown:
        say(f"note: {unknown} of the prompt's tokens are unknown to this model")
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


def _finish_lines(loaded: Any, run: Path, source: Path, out: Path, options: Sequence[Any], **how: Any) -> None:
    """What the model makes of each line of a file, to another file."""
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
