"""`translate`: each line of stdin or of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.options import (
    OUTPUT,
    SEARCH,
    Average,
    Beam,
    Device,
    Engine,
    InFile,
    JsonLines,
    LengthPenalty,
    OutFile,
    RunFolder,
    TopK,
    TopP,
    Truncate,
    Weights,
    beam_search,
)
from regard.cli.stdin import stdin_batches
from regard.report.screen import for_stdout
from regard.text.readers.subtitles import Subtitles, subtitle_format


def translate(
    run: RunFolder,
    *,
    beam: Annotated[Beam, Parameter(group=SEARCH)] = None,
    n_best: Annotated[int, Parameter(group=SEARCH, metavar="N")] = 1,
    length_penalty: Annotated[LengthPenalty, Parameter(group=SEARCH)] = None,
    min_tokens: Annotated[int, Parameter(group=SEARCH)] = 0,
    max_tokens: Annotated[int | None, Parameter(group=SEARCH)] = None,
    temperature: Annotated[float, Parameter(group=SEARCH)] = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Annotated[int, Parameter(group=SEARCH)] = 0,
    alignment: Annotated[bool, Parameter(group=OUTPUT)] = False,
    attention: Annotated[bool, Parameter(group=OUTPUT)] = False,
    truncate: Truncate = False,
    source: InFile = None,
    out: OutFile = None,
    average: Average = None,
    weights: Weights = "best",
    engine: Engine = "regard",
    device: Device = "auto",
    json: JsonLines = False,
) -> None:
    """Translate each line of stdin: one translation per line, no tokenization needed.

    Each line is translated as soon as it arrives; lines that arrive together are translated together.

        echo "They are watching." | regard translate runs/translator
        regard translate runs/translator --n-best 3 --alignment < source.txt
        regard translate runs/translator --in film.en.srt --out film.fr.srt

    Parameters
    ----------
    n_best
        print the N best translations of each line: `line, score, log P, text`, tab-separated
    min_tokens
        minimum number of tokens to write, including the closing `<eos>`
    max_tokens
        maximum number of tokens to write [default: 2 × source length + 10]
    temperature
        above 0: sample instead of searching
    seed
        the same seed gives the same translations
    alignment
        also print which source word each word attends to: 0-0 1-2 …
    attention
        with --json: also print the attention weights of every layer and head
    source
        translate this file instead of stdin; for subtitles (.srt, .vtt), the text of each cue
    engine
        program that runs the beam search; the ctranslate2 engines run on a CPU, and ctranslate2-int8 is the fastest
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
        raise RegardError("--top-k, --top-p and --seed need sampling: add --temperature.")
    if temperature > 0 and (beam is not None or length_penalty is not None):
        raise RegardError("--temperature samples and --beam searches: give only one of them.")
    if attention and not json:
        raise RegardError("--attention works only with --json: add --json.")
    if (source is None) != (out is None):
        raise RegardError("--in and --out must be given together.")
    if out is not None and n_best > 1 and not json:
        raise RegardError("--n-best prints several translations per line: with --out, add --json.")
    subtitles = _subtitles(source, out, plain=not (json or alignment))
    if engine != "regard" and (temperature > 0 or device not in ("auto", "cpu")):
        option, does = ("--temperature", "only searches") if temperature > 0 else ("--device", "runs on the CPU")
        raise RegardError(f"--engine {engine} {does}: leave {option} out, or use --engine regard.")
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
        smaller = " or use a smaller --size" * has_smaller(loaded.recipe)
        say(f"Every translation is empty: {run} is undertrained; train longer{smaller}.")


def _subtitles(source: Path | None, out: Path | None, *, plain: bool) -> Subtitles | None:
    """The format of the files, if they are subtitles."""
    form = "" if source is None else subtitle_format(source)
    if source is None or out is None or not form:
        return None
    if not plain:
        raise RegardError("Subtitles cannot be printed as JSON or with alignments: leave out --json and --alignment.")
    if out.suffix.lower() != form:
        raise RegardError(
            f"The output must have the same subtitle format as {source.name}: choose an --out that ends in {form}."
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
