"""The command line: `regard VERB TARGET [--section.key value]`.

stdout is data, stderr is log; a user's mistake is one sentence and exit code 2. Everything heavy is imported inside the
verb that needs it, so that `regard --help` and `regard systems` answer at once.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter

from regard import __version__
from regard.errors import RegardError, Stopped
from regard.settings import at_least

app = App(
    name="regard",
    help="Every sequence model from the n-gram to GPT: train it on your own text, compare it, see inside it, ship it.",
    version=__version__,
)
data_app = App(name="data", help="The corpora there are; check one of your own; download a known one.")
app.command(data_app)

Flag = Parameter(negative=())
Settings = Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]
COMPARE_OPTIONS = ("data", "match", "budget", "seeds", "size", "prompt", "jobs", "run", "csv", "latex", "json")
TRAIN_OPTIONS = ("data", "run", "size", "seed", "budget", "from", "print-recipe", "dry-run", "json")


def main(words: list[str] | None = None) -> None:
    for stream in (sys.stdout, sys.stderr):  # a pipe on Windows, or a bare locale, could not print "é"
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except (RegardError, CycloptsError) as error:
        _fail(" ".join(str(error).split()), 2)
    except Stopped:
        sys.exit(130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _fail(_sentence(error), 2)


def _sentence(error: Exception) -> str:
    """What went wrong outside Regard, in one sentence; what went wrong inside it is raised again."""
    from regard.systems.code import crash

    if line := crash(error):  # in the user's own layer, whose author wants the line and not our stack
        return f"your own code crashed: {line}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror or error}."
    if isinstance(error, UnicodeEncodeError):
        return "A name or text here is not valid Unicode; rename the file or convert the text."
    if isinstance(error, MemoryError) or re.search("out of memory|can't allocate|allocate memory", str(error)):
        return "There is not enough memory for this: make the model, the window or training.batch_tokens smaller."
    raise error


def _fail(sentence: str, code: int) -> NoReturn:
    print(f"regard: {sentence}", file=sys.stderr)
    sys.exit(code)


# -- what there is ---------------------------------------------------------------------------------------------------


@app.command
def systems(*, json: Annotated[bool, Flag] = False) -> None:
    """List the systems: name, year, paper, task.

    Parameters
    ----------
    json
        print a list of objects
    """
    from dataclasses import asdict

    from regard.report.table import print_json, print_table
    from regard.systems.catalogue import SYSTEMS

    rows = [{k: v for k, v in asdict(system).items() if k != "target"} for system in SYSTEMS]
    if json:
        print_json(rows)
    else:
        print_table(rows, {"name": "system", "year": "year", "title": "what it is", "task": "task", "paper": "paper"})


@app.command
def laws(target: str, *, json: Annotated[bool, Flag] = False) -> None:
    """Try every law of the contract on a system, also on your own: ./mine.py:MyCell. Exit 1 if one is broken.

    Parameters
    ----------
    target
        a system (`regard systems`), or a Layer, Cell or Model of your own as ./mine.py:MyCell or my.package:MyCell
    json
        print a list of objects
    """
    from dataclasses import asdict

    from regard.laws.registry import LAWS, builder, run_laws
    from regard.report.progress import progress
    from regard.report.table import print_json

    build = builder(target)
    with progress(f"laws of {target}", len(LAWS)) as bar:
        results = run_laws(build, lambda result: bar.advance(1))
    broken = [result for result in results if not result.holds]
    if json:
        print_json([asdict(result) for result in results])
    else:
        told: dict[str, int] = {}  # a crash in every law is told once
        for result in results:
            print(f"{'✓' if result.holds else '✗'} {result.number:2}  {result.wording}")
            if not result.holds:
                first = told.setdefault(result.sentence, result.number)
                print(f"      {result.sentence}" if first == result.number else f"      the same as law {first}")
        print(f"\n{target} " + (f"breaks {len(broken)} of {len(results)} laws." if broken else "obeys every law."))
    if broken:
        sys.exit(1)


@data_app.default
def data_list(*, json: Annotated[bool, Flag] = False) -> None:
    """List built-in corpora, known downloads, and which of them are here.

    Parameters
    ----------
    json
        print a list of objects
    """
    from regard.report.table import print_json, print_table
    from regard.text.corpus import available

    rows = available()
    if json:
        print_json(rows)
        return
    print_table(rows, {"name": "corpus", "kind": "kind", "here": "here", "about": "about"})
    print("\nAny .txt file, or folder with train/valid/test files, is a corpus too: regard train lstm --data my.txt")


@data_app.command(name="check")
def data_check(file: Path, *, source: str = "", target: str = "", json: Annotated[bool, Flag] = False) -> None:
    """Report on a text or on sentence pairs: encoding, lengths, duplicates, overlap between splits, odd lines.

    Of pairs also: length ratios, swapped columns, another script, monstrous lines.

    Parameters
    ----------
    file
        a text file, a .tsv of pairs, or a folder with train/valid/test files of either
    source
        of parallel files such as train.de and train.en: the language that is read
    target
        … and the one that is written
    json
        print one object
    """
    from dataclasses import asdict

    from regard.report.table import print_json
    from regard.text.check import check_text
    from regard.text.check_pairs import check_pairs
    from regard.text.pairs import is_pairs

    pairs = bool(source or target) or is_pairs(file)
    report: Any = check_pairs(file, source=source, target=target) if pairs else check_text(file)
    if json:
        print_json(asdict(report))
    elif pairs:
        _print_pair_check(report)
    else:
        _print_check(report)


@data_app.command(name="fetch")
def data_fetch(name: str) -> None:
    """Download a known corpus into the cache; its checksum is verified.

    Parameters
    ----------
    name
        a name that `regard data` lists
    """
    from regard.report.progress import progress, say
    from regard.text.fetch import fetch

    with progress(f"fetching {name}", unit=" bytes") as bar:
        folder = fetch(name, progress=bar.reach)
    say(f"{name} is in {folder}")


@app.command
def demo(*, budget: str | None = None, run: Path | None = None, json: Annotated[bool, Flag] = False) -> None:
    """Train every language model and every translator on built-in data: the main job, in five minutes.

    Prints a table for each ladder and a sample from each system, and writes two reports.

    Parameters
    ----------
    budget
        training time of each neural system, such as 30s; without it, what fits into five minutes for all
    run
        folder for both comparisons; runs/demo if it is free
    json
        print a list of objects
    """
    from regard.demo import run_demo

    run_demo(budget=budget, folder=run, as_json=json)


# -- training --------------------------------------------------------------------------------------------------------


@app.command
def train(
    target: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    *settings: Settings,
    data: str | None = None,
    run: Path | None = None,
    size: str | None = None,
    seed: int | None = None,
    budget: str | None = None,
    start: Annotated[Path | None, Parameter(name="--from")] = None,
    print_recipe: Annotated[bool, Flag] = False,
    dry_run: Annotated[bool, Flag] = False,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Train a system, or a recipe file, on a text. Every setting can be given: --model.layers 3 --training.steps 500.

    Parameters
    ----------
    target
        a system (`regard systems`), a layer of your own (./mine.py:MyCell), or a recipe.toml
    data
        a built-in or known corpus, a .txt file, or a folder with train/valid/test files
    run
        folder of the new run; without it runs/SYSTEM-CORPUS
    size
        tiny, small, medium or large
    seed
        short for --training.seed
    budget
        short for --training.budget: 60s, 10m, 2h, or tokens such as 5M
    start
        begin with the weights and tokenizer of this run (fine-tune)
    print_recipe
        print every setting with its documentation, as TOML, and stop
    dry_run
        report parameters, memory and time, from three measured steps, and stop
    json
        with --dry-run: print one object
    """
    from regard import fit
    from regard.recipe import parse_overrides

    if target is not None and target.startswith("--"):  # no system was named, so the first setting stands in its place
        settings, target = (target, *settings), None
    is_file = target is not None and target.endswith(".toml")
    recipe = fit.compose_recipe(
        None if is_file else target,
        data=data,
        size=size,
        seed=seed,
        budget=budget,
        start=start,
        recipe=target if is_file else None,
        settings=parse_overrides(settings, TRAIN_OPTIONS),
    )
    if print_recipe:
        print(recipe.documented(), end="")
    elif dry_run:
        _print_facts(fit.dry_run(recipe, start), json)
    else:
        print(fit.train_recipe(recipe, run, start).folder)


@app.command
def resume(run: Path) -> None:
    """Go on exactly where a run stopped.

    Parameters
    ----------
    run
        the run's folder
    """
    from regard import fit

    print(fit.resume(run).folder)


# -- comparing -------------------------------------------------------------------------------------------------------


@app.command
def compare(
    *systems: Settings,
    data: str = "",
    match: str = "",
    budget: str = "",
    seeds: int = 1,
    size: str = "small",
    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    jobs: int = 1,
    run: Path | None = None,
    csv: Path | None = None,
    latex: Path | None = None,
    json: Annotated[bool, Flag] = False,
) -> None:
    """Train systems on the same data, tokens and budget; print one table with intervals, and write report.html.

    `regard compare lstm gpt --data my.txt` sets them beside a 2-gram and a 5-gram; `regard compare seq2seq transformer
    --data pairs.tsv` compares translators, by BLEU. With no system named all of a task are compared: translators where
    the data are pairs (also on the phrasebook), else language models. --section.key value applies to every system that
    has the setting. Called again with the same --run, a comparison that was stopped goes on.

    Parameters
    ----------
    data
        a built-in or known corpus, a .txt file, a .tsv file of pairs, or a folder with train/valid/test files
    match
        what is equal for all: tokens, seconds, or parameters (and tokens); without it, what the budget counts
    budget
        tokens such as 5M (of the targets, where there are pairs), or a time such as 60s
    seeds
        train each system with the seeds 1 to N; intervals then cover seeds too
    size
        tiny, small, medium or large
    prompt
        what each language model's sample begins with; without it the first words of the held-out text
    jobs
        runs at a time, each a process of its own; not with --match seconds
    run
        folder of the comparison; without it runs/compare-CORPUS
    csv
        write the table to this new file, with full precision
    latex
        write the table to this new file, for a paper that loads booktabs
    json
        print a list of objects
    """
    from regard.compare.comparison import check_free
    from regard.compare.comparison import compare as run_comparison
    from regard.compare.words import notes
    from regard.files import write_text
    from regard.recipe import parse_overrides
    from regard.report.table import print_json, print_table

    names, settings = _named(systems)
    check_free(csv, "--csv")
    check_free(latex, "--latex")
    if csv is not None and csv == latex:
        raise RegardError("--csv and --latex need two different files.")
    done = run_comparison(
        names,
        data=data,
        match=match,
        budget=budget,
        seeds=seeds,
        size=size,
        prompt=prompt,
        jobs=jobs,
        run=run,
        settings=parse_overrides(settings, COMPARE_OPTIONS),
    )
    if csv is not None:
        write_text(csv, done.csv())
    if latex is not None:
        write_text(latex, done.latex())
    if json:
        print_json(done.rows)
    else:
        print_table(done.shown, done.columns, done.title)
        print("\n".join(["", done.ranking, *notes(done), f"The report: {done.report}"]))
    if done.failed:
        runs = ", ".join(done.failed)
        raise RegardError(f"Not all runs came to a number ({runs}); the same command with --run {done.folder} retries.")


# -- using a run -----------------------------------------------------------------------------------------------------


@app.command
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
        test, valid or train; without it test, or valid where there is no test
    data
        evaluate on another corpus than the run's own
    stream
        language model: read the text as one row, state carried throughout, as papers on recurrent nets do
    segment
        language model: tokens read at once; 256, or the model's context if that is shorter
    overlap
        language model: of these, tokens that only warm the state up; half
    rows
        language model: segments read side by side; changes speed, not the numbers
    beam
        translator: hypotheses of the search, 1 = greedy; 5
    length_penalty
        translator: log P is divided by the length to this power; 1
    by_length
        translator: also BLEU, chrF and accuracy by the length of the source
    bleu_tokenizer
        translator: how sacreBLEU cuts words: 13a, intl, char, zh or none
    average
        translator, classifier: use the mean of the weights of the last so many validations
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
        _refuse(loaded, "a language model", searching)
        facts = loaded.evaluate(split, data=data, stream=stream, segment=segment, overlap=overlap, rows=rows)
        _print_facts(facts, json)
        return
    if isinstance(loaded, ClassificationRun):
        _refuse(loaded, "a classifier", reading | searching)
        _print_labels(loaded.evaluate(split, data=data), json)
        return
    _refuse(loaded, "a translator", reading)
    facts = loaded.evaluate(
        split,
        data=data,
        how=_beam(beam, length_penalty),
        lengths=by_length,
        bleu_tokenizer=bleu_tokenizer or "13a",
    )
    _print_quality(facts, json)


@app.command
def translate(
    run: Path,
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
    average: int | None = None,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Translate each line of stdin: raw sentences in, raw sentences out, as many lines as came in.

    Parameters
    ----------
    run
        the run's folder
    beam
        hypotheses of the search, 1 = greedy; 5
    n_best
        print so many translations of each line, best first: `line, score, log P, text`, tab-separated
    length_penalty
        log P is divided by the length to this power; 1
    min_tokens
        write at least so many tokens, <eos> counted
    max_tokens
        write at most so many tokens; without it twice the source's and ten
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
    average
        use the mean of the weights of the last so many validations
    weights
        best on validation, or last
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
    """
    from regard.decoding.sampling import Sampling
    from regard.run import load_translator

    sampling = Sampling(temperature, top_k, top_p)
    at_least("--n-best", n_best, 1)
    if temperature == 0 and (top_k or top_p != 1.0 or seed):
        raise RegardError("--top-k, --top-p and --seed are for drawing: give --temperature, too.")
    if temperature > 0 and (beam is not None or length_penalty is not None):
        raise RegardError("--temperature draws and --beam searches: choose one of them.")
    if attention and not json:
        raise RegardError("--attention prints numbers for every head: use it with --json.")
    how = sampling if temperature > 0 else _beam(beam, length_penalty, n_best)
    loaded = load_translator(run, weights=weights, average=average, device=device)
    lines = _Kept(_stdin_lines())
    found = loaded.translations(
        lines,
        how=how,
        alignment=alignment,
        attention=attention,
        truncate=truncate,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        samples=n_best,
        seed=seed,
        **({"ahead": 1} if sys.stdin.isatty() else {}),  # a person waits for each line
    )
    for number, translations in enumerate(found, start=1):
        source = lines.take()
        if json:
            _print_translations(number, source, translations)
            continue
        for one in translations:
            links = " ".join(f"{i}-{j}" for i, j in one.alignment or [])
            fields = [str(number), f"{one.score:.4f}", f"{one.log_probability:.4f}"] if n_best > 1 else []
            print("\t".join([*fields, one.text, *([links] if alignment else [])]), flush=True)


@app.command
def classify(
    run: Path,
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
        print so many labels of each line, best first: `line, label, probability`
    truncate
        cut lines that are longer than anything the model was trained on, instead of refusing them
    average
        use the mean of the weights of the last so many validations
    weights
        best on validation, or last
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one JSON object per line
    """
    import json as json_module

    from regard.decoding.translate import AHEAD
    from regard.run import load_classifier

    at_least("--n-best", n_best, 1)
    loaded = load_classifier(run, weights=weights, average=average, device=device)
    lines = _Kept(_stdin_lines())
    ahead = 1 if sys.stdin.isatty() else AHEAD  # a person waits for each line
    for number, found in enumerate(loaded.labellings(lines, truncate=truncate, ahead=ahead), start=1):
        source, best = lines.take(), found.top(n_best)
        if json:
            labels = [{"label": label, "probability": p} for label, p in best]
            print(json_module.dumps({"line": number, "source": source, "labels": labels}, ensure_ascii=False))
        elif not best:
            print(f"{number}\t\t" if n_best > 1 else "", flush=True)
        for label, p in [] if json else best:
            print("\t".join([*([str(number)] if n_best > 1 else []), label, f"{p:.4f}"]), flush=True)


@app.command
def generate(
    run: Path,
    *,
    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    max_tokens: int = 200,
    lines: int = 0,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    beam: int = 0,
    weights: str = "best",
    device: str = "auto",
    json: Annotated[bool, Flag] = False,
) -> None:
    """Write on from a prompt, token by token.

    Parameters
    ----------
    run
        the run's folder
    prompt
        the text to go on from; "-" reads it from stdin
    max_tokens
        write at most this many tokens
    lines
        stop after this many lines; 0 = write on
    temperature
        below 1 plays safe, above 1 takes risks, 0 is greedy
    top_k
        draw only from the k most probable tokens; 0 = all
    top_p
        draw only from the most probable tokens that together hold this probability
    seed
        the same seed writes the same text
    beam
        instead of drawing, print the most probable ways to finish the line, searched with this many beams
    weights
        best on validation, or last
    device
        cpu, cuda, …; auto = a GPU if there is one
    json
        print one object
    """
    from regard.decoding.sampling import Sampling
    from regard.report.progress import say
    from regard.report.table import print_json
    from regard.run import load_language_model

    at_least("--max-tokens", max_tokens, 1)
    at_least("--lines", lines, 0)
    at_least("--beam", beam, 0)
    sampling = Sampling(temperature, top_k, top_p)
    prompt = "\n".join(_stdin_lines()) if prompt == "-" else prompt
    loaded = load_language_model(run, weights=weights, device=device)
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
            print(f"{one['log_probability']:.4f}\t{one['text']}")
        return

    told: list[int] = []

    def reread(kept: int) -> None:
        if not told:
            told.append(kept)
            say(f"note: the context of {loaded.model.context} tokens is full; going on from the last {kept}")

    texts = loaded.stream(prompt, max_tokens=max_tokens, sampling=sampling, seed=seed, lines=lines, on_reread=reread)
    written = ""
    for text in texts:
        if not json:
            print(text[len(written) :], end="", flush=True)
        written = text
    if json:
        print_json({"prompt": prompt, "text": written, "seed": seed})
    elif not written.endswith("\n"):
        print()


@app.command
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
        _refuse(loaded, "a language model", {"--data": data, "--split": split})
        scores: Iterator[Any] = loaded.score(_stdin_lines())
    else:
        scores = loaded.score(_stdin_pairs() if data is None and split is None else loaded.pairs(data, split))
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


@app.command(name="export")
def export_run(run: Path, *, to: str, out: Path) -> None:
    """Hand a run to the ecosystem.

    Parameters
    ----------
    run
        the run's folder
    to
        arpa: the back-off format every n-gram toolkit reads
    out
        the file to write; it must not exist yet
    """
    from regard.exchange.formats import export

    export(run, to, out)
    print(out)


@app.command(name="import")
def import_run(file: Path, *, run: Path, tokenizer: Path | None = None) -> None:
    """Make a run of a model from the ecosystem: an .arpa file.

    Parameters
    ----------
    file
        the model
    run
        folder of the new run
    tokenizer
        the tokenizer.json that cut the model's text; without it, words are what stands between spaces
    """
    from regard.exchange.formats import import_file

    print(import_file(file, run, tokenizer))


def _named(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """System names, and the --section.key value pairs among them."""
    names: list[str] = []
    settings: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            names.append(word)
            continue
        settings.append(word)
        if "=" not in word and rest:
            settings.append(rest.pop(0))
    return names, settings


def _stdin_lines() -> Iterator[str]:
    """Lines of stdin as text, one clear sentence for what is not UTF-8."""
    if sys.stdin is None:
        raise RegardError("There is no input: stdin is closed.")
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            raise RegardError(
                f"Line {number} of the input is not UTF-8 (byte {error.start}); convert it first."
            ) from None


def _stdin_pairs() -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_stdin_lines(), start=1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise RegardError(f"Line {number} of the input has one field: a pair is source⇥target, with a tab between.")
        yield source, target.partition("\t")[0]


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


def _beam(width: int | None, length_penalty: float | None, n_best: int = 1) -> Any:
    from regard.decoding.beam import Beam

    width = max(5, n_best) if width is None else width
    return Beam(width, 1.0 if length_penalty is None else length_penalty, n_best)


def _refuse(loaded: Any, kind: str, options: dict[str, Any]) -> None:
    """One sentence for options that mean nothing here."""
    if given := [name for name, value in options.items() if value is not None]:
        raise RegardError(f"{loaded.folder} is {kind} ({loaded.recipe.system}), for which {given[0]} means nothing.")


def _print_translations(number: int, source: str, translations: Sequence[Any]) -> None:
    import json as json_module

    shown = []
    for one in translations:
        entry = {"text": one.text, "score": one.score, "log_probability": one.log_probability, "tokens": one.tokens}
        if one.alignment is not None:
            entry["alignment"] = [list(link) for link in one.alignment]
        if one.attention is not None:
            entry["attention"] = {name: weights.tolist() for name, weights in one.attention.items()}
        shown.append(entry)
    line = {"line": number, "source": source, "translations": shown}
    print(json_module.dumps(line, ensure_ascii=False), flush=True)


def _print_quality(facts: dict[str, Any], as_json: bool) -> None:
    """A translator's numbers: those with a signature on a line of their own, lengths as a table."""
    from regard.report.table import print_json, print_table

    if as_json:
        print_json(facts)
        return
    plain = dict(facts)
    rows = plain.pop("by_length", None)
    for name, value in facts.items():
        if isinstance(value, dict):
            plain[name] = f"{value['score']:.2f}   {value['signature']}"
    _print_facts(plain, False)
    if rows is not None:
        for row in rows:
            row["words"] = f"{row['shortest']}–{row['longest']}" if row["longest"] else f"{row['shortest']} and more"
        print()
        columns = {
            "words": "source words", "sentences": "sentences", "bleu": "BLEU", "chrf": "chrF", "accuracy": "exact",
        }  # fmt: skip
        print_table(rows, columns, "By length of the source")


MOST_COLUMNS = 12  # labels of a confusion table that fits a screen
MOST_MISTAKES = 20


def _print_labels(facts: dict[str, Any], as_json: bool) -> None:
    """A classifier's numbers, each label's, and which is taken for which: a table, or of many labels the mistakes."""
    from regard.report.table import print_json, print_table

    if as_json:
        print_json(facts)
        return
    plain = {key: value for key, value in facts.items() if key not in ("labels", "confusion", "accuracy_interval")}
    low, high = facts["accuracy_interval"]
    plain["accuracy"] = f"{facts['accuracy']:.4f}   95 % interval {low:.4f} – {high:.4f}"
    _print_facts(plain, False)
    labels, table = facts["labels"], facts["confusion"]
    columns = {"label": "label", "lines": "lines", "predicted": "predicted"}
    columns |= {"precision": "precision", "recall": "recall", "f1": "F1"}
    print()
    print_table([{"label": label, **numbers} for label, numbers in labels.items()], columns, "By label")
    print()
    if len(labels) <= MOST_COLUMNS:
        rows = [{"": gold, **{f"as {label}": row.get(label, 0) for label in labels}} for gold, row in table.items()]
        headings = {"": "", **{f"as {label}": label for label in labels}}
        print_table(rows, headings, "Confusion: a row for each true label, a column for each prediction")
        return
    mistakes = [
        {"gold": gold, "predicted": guess, "lines": count}
        for gold, row in table.items()
        for guess, count in row.items()
        if gold != guess
    ]
    mistakes.sort(key=lambda row: -row["lines"])
    headings = {"gold": "true label", "predicted": "taken for", "lines": "lines"}
    print_table(mistakes[:MOST_MISTAKES], headings, f"The commonest of {len(mistakes)} kinds of mistakes")


def _print_check(report: Any) -> None:
    from regard.report.table import print_table, text

    names = {
        "encoding": "encoding",
        "bytes": "bytes",
        "lines": "lines",
        "blank_lines": "blank lines",
        "duplicate_lines": "lines that repeat an earlier one",
        "characters": "characters",
        "words": "words",
        "vocabulary": "different words",
    }
    rows: list[dict[str, Any]] = [
        {"": label, **{split: getattr(file, key) for split, file in report.files.items()}}
        for key, label in names.items()
    ]
    for quantile in next(iter(report.files.values())).line_lengths:
        lengths = {split: file.line_lengths[quantile] for split, file in report.files.items()}
        rows.append({"": f"line length, {quantile}", **lengths})
    unknown = {split: _percent(file.unknown_rate) for split, file in report.files.items()}
    rows.append({"": "held-out words outside the 10 000 commonest", **unknown})
    print_table(rows, {"": "", **{split: split for split in report.files}}, title=report.path)
    for split, file in report.files.items():
        print(
            f"{split}: the longest line is line {file.longest_line}"
            + (", and a byte order mark" * file.byte_order_mark)
        )
        for odd in file.oddities:
            print(f"{split}: {odd.what} on {text(odd.lines)} lines, the first is line {odd.first}")
    for overlap in report.overlap:
        print(overlap.sentence)


def _print_pair_check(report: Any) -> None:
    from regard.report.table import print_table, text

    whole = {
        "encoding": "encoding",
        "pairs": "pairs",
        "blank_lines": "blank lines",
        "duplicate_pairs": "pairs that repeat an earlier one",
    }
    sides = {
        "script": "script",
        "words": "words",
        "distinct": "different, up to case and punctuation",
        "with_several": "of them with several translations",
        "longest_line": "the longest line",
    }
    rows: list[dict[str, Any]] = [
        {"": label, **{split: getattr(file, key) for split, file in report.files.items()}}
        for key, label in whole.items()
    ]
    ratios = {split: f"{file.length_ratio:.2f}" for split, file in report.files.items()}
    rows.append({"": "target characters per source character", **ratios})
    for side in ("source", "target"):
        found = {split: getattr(file, side) for split, file in report.files.items()}
        for key, label in sides.items():
            rows.append({"": f"{side}: {label}", **{split: getattr(one, key) for split, one in found.items()}})
        for quantile in next(iter(found.values())).word_lengths:
            lengths = {split: one.word_lengths[quantile] for split, one in found.items()}
            rows.append({"": f"{side}: words in a line, {quantile}", **lengths})
    print_table(rows, {"": "", **{split: split for split in report.files}}, title=report.path)
    for split, file in report.files.items():
        for odd in file.findings:
            print(f"{split}: {odd.what} on {text(odd.lines)} lines, the first is line {odd.first}")
        if len(report.files) == 1:
            print(f"Were 5 % drawn at random to be held out: {file.random_leak.sentence}")
    for overlap in report.overlap:
        print(overlap.sentence)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _print_facts(facts: dict[str, Any], as_json: bool) -> None:
    from regard.report.table import print_json, text

    if as_json:
        print_json(facts)
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name.replace('_', ' ').ljust(width)}  {text(value)}")
