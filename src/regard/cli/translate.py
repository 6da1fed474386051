"""`translate`: each line of stdin or of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.completion import RunFolder
from regard.cli.options import Flag, beam_search
from regard.cli.stdin import stdin_batches
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
    from regard.cli.file_to_file import ReadAhead, line_by_line, run_digests
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
        kept = ReadAhead(iter(lines))
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
        files = run_digests(run, weights, average)
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
