"""What a run writes: `translate`, `classify`, `generate`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_choice, check_range
from regard.cli.completing import RunFolder
from regard.cli.options import Flag, beam_search
from regard.cli.stdin import stdin_batches, stdin_text
from regard.report.screen import for_stdout
from regard.text.readers.subtitles import Subtitles, subtitle_format


def translate(
    run: RunFolder,
    *,
    beam: int | None = None,
    n_best: int = 1,
    length_penalty: float | None = None,
    min_tokens: int = 0,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    alignment: Annotated[bool, Flag] = False,
    attention: Annotated[bool, Flag] = False,
    truncate: Annotated[bool, Flag] = False,
    source: Annotated[Path | None, Parameter(name="--in")] = None,
    out: Path | None = None,
    average: int | None = None,
    weights: str = "best",
    engine: str = "regard",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Translate each line of stdin: raw sentences in, raw sentences out, as many lines as came in.

    A line is answered when it comes; lines that come fast are translated together.

    Parameters
    ----------
    run
        the run's folder
    beam
        hypotheses of the search, 1 = greedy; default: 5
    n_best
        print the N best translations of each line: `line, score, log P, text`, tab-separated
    length_penalty
        log P is divided by the length to this power; default: 1
    min_tokens
        write at least this many tokens, the closing `<eos>` counted
    max_tokens
        write at most this many tokens; default: 2 × source length + 10
    temperature
        above 0: draw instead of searching
    top_k
        draw only from the k most probable tokens; 0 = all
    top_p
        draw only from the most probable tokens that together hold this probability
    seed
        the same seed draws the same translations
    alignment
        also print which source word each word looked at: 0-0 1-2 …
    attention
        with --json: the weights of every layer and head
    truncate
        cut lines that are longer than anything the model was trained on, instead of refusing them
    source
        translate this file instead of stdin, of any size, with progress; of subtitles (.srt, .vtt) the text of each cue
    out
        with --in: write to this file; if interrupted, the same command continues where it stopped
    average
        use the mean of the weights of the last N validations
    weights
        best on validation, last, or a step whose weights were kept
    engine
        what searches: regard, or on a CPU ctranslate2, or ctranslate2-int8, which is the fastest
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
    """
    from regard.cli.file_to_file import line_by_line
    from regard.decoding.sampling import Sampling
    from regard.exchange.engines import open_engine
    from regard.report.progress import say
    from regard.runs.load import load_translator
    from regard.runs.recipe import has_smaller

    sampling = Sampling(temperature, top_k, top_p)
    check_range("--n-best", n_best, 1)
    if temperature == 0 and (top_k or top_p != 1.0 or seed):
        raise RegardError("--top-k, --top-p and --seed are for drawing: give --temperature, too.")
    if temperature > 0 and (beam is not None or length_penalty is not None):
        raise RegardError("--temperature draws and --beam searches: choose one of them.")
    if attention and not json:
        raise RegardError("--attention prints numbers for every head: use it with --json.")
    if (source is None) != (out is None):
        raise RegardError("--in and --out go together: from one file to another.")
    if out is not None and n_best > 1 and not json:
        raise RegardError("--n-best writes several lines for one: with --out, add --json.")
    subtitles = _subtitles(source, out, plain=not (json or alignment))
    if engine != "regard" and (temperature > 0 or device not in ("auto", "cpu")):
        option, does = ("--temperature", "searches") if temperature > 0 else ("--device", "computes on the CPU")
        raise RegardError(f"--engine {engine} {does}: leave {option} out, or take --engine regard.")
    how: dict[str, Any] = {"sampling": sampling}
    if temperature == 0:
        how = {"beam": beam_search(beam, length_penalty, n_best)}
    loaded = load_translator(run, weights=weights, average=average, device="cpu" if engine != "regard" else device)
    loaded.searcher = open_engine(engine, loaded)

    def answers(lines: Iterable[str], before: tuple[int, int] = (0, 0), **more: Any) -> Iterator[list[str]]:
        """What is printed for each line; `before`: lines of an earlier process, and how many were not empty."""
        kept = _Kept(iter(lines))
        found = loaded.translations(
            kept,
            **how,
            alignment=alignment,
            attention=attention,
            truncate=truncate,
            min_tokens=min_tokens,
            max_tokens=max_tokens,
            samples=n_best,
            seed=seed,
            before=before,
            **more,
        )
        for number, translations in enumerate(found, start=before[0] + 1):
            sentence = kept.take()
            if json:
                yield [_as_json(number, sentence, translations)]
            else:
                yield [_as_fields(number, one, ranked=n_best > 1, alignment=alignment) for one in translations]

    if source is not None and out is not None:
        files = _digests(run, weights, average)
        options = [beam, n_best, length_penalty, min_tokens, max_tokens, temperature, top_k, top_p, seed, alignment]
        question = {"run": files, "options": [*options, attention, truncate, average, weights, engine, json]}
        if subtitles is not None:
            question["subtitles"] = source.suffix

        def one_each(lines: Iterable[str], before: tuple[int, int]) -> Iterator[str]:
            return (said for (said,) in answers(lines, before))

        line_by_line(source, out, question, one_each, subtitles)
        return
    done = spoken = 0
    words = False  # in any translation so far
    for lines in stdin_batches():
        for said in answers(lines, (done, spoken)):
            words = words or any(line.strip() for line in said)
            print(for_stdout("\n".join(said)), flush=True)
        done, spoken = done + len(lines), spoken + sum(bool(line.strip()) for line in lines)
    if spoken and not words:
        smaller = ", or a smaller --size" * has_smaller(loaded.recipe)
        say(f"Every translation is empty: {run} has learned too little; train longer{smaller}.")


def classify(
    run: RunFolder,
    *,
    n_best: int = 1,
    truncate: Annotated[bool, Flag] = False,
    average: int | None = None,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Label each line of stdin: `label, probability`, tab-separated, as many lines as came in.

    Parameters
    ----------
    run
        the run's folder
    n_best
        print the N best labels of each line: `line, label, probability`
    truncate
        cut lines that are longer than anything the model was trained on, instead of refusing them
    average
        use the mean of the weights of the last N validations
    weights
        best on validation, last, or a step whose weights were kept
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
    """
    import json as json_module

    from regard.runs.load import load_classifier

    check_range("--n-best", n_best, 1)
    loaded = load_classifier(run, weights=weights, average=average, device=device)
    number = 0
    for lines in stdin_batches():
        for source, found in zip(lines, loaded.labellings(lines, truncate=truncate, before=number), strict=True):
            number, best = number + 1, found.top(n_best)
            if json:
                labels = [{"label": label, "probability": p} for label, p in best]
                said = {"line": number, "source": source, "labels": labels}
                print(for_stdout(json_module.dumps(said, ensure_ascii=False)))
            elif not best:
                print(f"{number}\t\t" if n_best > 1 else "")
            for label, p in [] if json else best:
                print(for_stdout("\t".join([*([str(number)] if n_best > 1 else []), label, f"{p:.4f}"])))
        sys.stdout.flush()


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

    from regard.cli.file_to_file import line_by_line

    as_json, weights = options[-1], options[-2]

    def answers(lines: Iterable[str], before: tuple[int, int]) -> Iterator[str]:
        kept = _Kept(iter(lines))
        for number, text in enumerate(loaded.completions(kept, before=before[0], **how), start=before[0] + 1):
            prompt = kept.take()
            entry = {"line": number, "prompt": prompt, "text": text}
            yield json_module.dumps(entry, ensure_ascii=False) if as_json else text

    line_by_line(source, out, {"run": _digests(run, weights), "options": options}, answers)


def _digests(run: Path, weights: str, average: int | None = None) -> dict[str, str]:
    """What a run's answers depend on, so that a file is finished only by the model that began it."""
    from regard.base.fields import whole_number
    from regard.runs.store.folder import moments
    from regard.text.readers.sources import content_digest
    from regard.training.checkpointing import kept_weights

    last = (run / "training.safetensors").exists() and (weights != "best" or not (run / "model.safetensors").exists())
    files = [run / ("training.safetensors" if last else "model.safetensors")]
    if (step := whole_number(weights)) is not None:
        files = [moments(run).get(step, files[0])]
    if average is not None:
        files = kept_weights(run)[-average:]
    beside = [run / name for name in ("recipe.toml", "tokenizer.json", "tokenizer.source.json")]
    return {path.name: content_digest(path) for path in [*files, *beside] if path.exists()}


class _Kept:
    """Lines that are read ahead, kept until each is asked for again beside its translation."""

    def __init__(self, lines: Iterator[str]):
        self._lines, self._waiting = lines, deque[str]()

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._waiting.append(line)
            yield line

    def take(self) -> str:
        return self._waiting.popleft()


def _subtitles(source: Path | None, out: Path | None, *, plain: bool) -> Subtitles | None:
    """The format of the files, if they are subtitles."""
    form = "" if source is None else subtitle_format(source)
    if source is None or out is None or not form:
        return None
    if not plain:
        raise RegardError("Subtitles are written as subtitles: leave out --json and --alignment.")
    if out.suffix.lower() != form:
        raise RegardError(
            f"{source.name} is translated into subtitles of its own format: give an --out that ends in {form}."
        )
    return Subtitles(form, str(source))


def _as_fields(number: int, one: Any, *, ranked: bool, alignment: bool) -> str:
    fields = [str(number), f"{one.score:.4f}", f"{one.log_probability:.4f}"] if ranked else []
    links = [" ".join(f"{i}-{j}" for i, j in one.alignment or [])] if alignment else []
    return "\t".join([*fields, one.text, *links])


def _as_json(number: int, source: str, translations: Sequence[Any]) -> str:
    import json as json_module

    shown = []
    for one in translations:
        entry = {name: getattr(one, name) for name in ("text", "score", "log_probability", "tokens", "finished")}
        if one.alignment is not None:
            entry["alignment"] = [list(link) for link in one.alignment]
        if one.attention is not None:
            entry["attention"] = {name: weights.tolist() for name, weights in one.attention.items()}
        shown.append(entry)
    return json_module.dumps({"line": number, "source": source, "translations": shown}, ensure_ascii=False)
