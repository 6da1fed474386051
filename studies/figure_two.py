"""BLEU by the length of the sentence for one vector and for attention: figure 2 of Bahdanau et al. 2015, made anew.

    python studies/figure_two.py --out FOLDER [--bible FILE] [--budget 240s] [--device cuda] [--beam 5]

Two corpora of English sentences of 1 to 60 words, each cut in two ways, and on each of the four every system for the
same time (all at once, a process each: the machine is shared equally):

    phrasebook   the built-in English–French grammar, which nests clauses rather than listing them; every length alike
    bible        English–Spanish verses (World English Bible and Reina-Valera 1909), one line each: source⇥target
    -bpe         no word is unknown
    -words       so few words are known that some of the test are <unk>, as in the test set of that figure

seq2seq gives the decoder one vector; seq2seq-wide the same with four times the width, which tells a vector that is too
small from a reader that forgets; bahdanau and transformer look back at the source. The test has the same number of
pairs of each length class (as far as there are), none of which shares a side with a training pair. BLEU is sacreBLEU's
on detokenised text; the band is the middle 95 % of 1000 resamplings of a class's sentences, one seed.

Written to FOLDER: one JSON for each training as it ends, then results.json, table.txt, and a figure for each corpus.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

EDGES = (10, 20, 30, 40, 50, 60)
SPLITS = ("train", "valid", "test")
CUTS: Mapping[str, Mapping[str, Any]] = {
    "phrasebook-bpe": {"tokenizer": "bpe", "vocabulary": 4000},
    "phrasebook-words": {"tokenizer": "word", "vocabulary": 2000, "joint": False},
    "bible-bpe": {"tokenizer": "bpe", "vocabulary": 8000},
    "bible-words": {"tokenizer": "word", "vocabulary": 4000, "joint": False},
}
RECURRENT = {"learning_rate": 2e-3, "warmup": 300}
SYSTEMS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "seq2seq": ("seq2seq", {"cell": "gru", "layers": 1, "width": 512, "embedding": 256}, RECURRENT),
    "seq2seq-wide": (
        "seq2seq",
        {"cell": "gru", "layers": 1, "width": 2048, "embedding": 256},
        {"learning_rate": 1e-3, "warmup": 500},
    ),
    "bahdanau": ("bahdanau", {"cell": "gru", "layers": 1, "width": 512, "embedding": 256}, RECURRENT),
    "transformer": (
        "transformer",
        {"layers": 3, "width": 256, "heads": 4, "feedforward": 1024},
        {"learning_rate": 1.5e-3, "warmup": 800},
    ),
}
DROPOUT = {"phrasebook": 0.1, "bible": 0.3}
WIDE = ("phrasebook-bpe", "bible-bpe")  # where the wide one is trained, too

PROGRAM = [sys.executable, __file__]


def main() -> None:
    options = arguments()
    if options.one:
        return one(options)
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    if "phrasebook" in corpora(options):
        write_splits(options.work / "phrasebook", *phrasebook(options.pairs, options.test))
    if "bible" in corpora(options):
        write_splits(options.work / "bible", *verses(options.bible, options.test))
    print(f"corpora after {time.perf_counter() - began:.0f} s", flush=True)
    run_all(options)
    collate(options.out)
    print(f"all after {time.perf_counter() - began:.0f} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="BLEU by length for one vector and for attention.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="runs and corpora; by default OUT/work")
    parser.add_argument("--bible", type=Path, help="verse pairs, .tsv or .tsv.gz; without it the phrasebook alone")
    parser.add_argument("--budget", default="240s", help="of each training")
    parser.add_argument("--pairs", type=int, default=60_000, help="training pairs of the phrasebook")
    parser.add_argument("--test", type=int, default=200, help="test pairs of each length class, at most")
    parser.add_argument("--deadline", type=float, default=420.0, help="seconds after which nothing is waited for")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", choices=("small", "toy"), default="small", help="toy: an eighth of each width")
    parser.add_argument("--studies", nargs="*", help=f"some of {', '.join(CUTS)}")
    parser.add_argument("--systems", nargs="*", choices=tuple(SYSTEMS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work = options.work or options.out / "work"
    options.studies = options.studies or [name for name in CUTS if options.bible or name.startswith("phrasebook")]
    options.systems = options.systems or list(SYSTEMS)
    return options


def corpora(options: argparse.Namespace) -> set[str]:
    return {study.split("-")[0] for study in options.studies}


# -- the two corpora -------------------------------------------------------------------------------------------------

Pair = tuple[str, str]


def phrasebook(count: int, test: int) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and to test on, of every length alike, from as many grammars as there are processors."""
    shares = max(1, min(16, os.cpu_count() or 1))
    wanted = (count + 2 * test * len(EDGES)) // shares + 1
    with multiprocessing.get_context("spawn").Pool(shares) as pool:
        made = pool.starmap(_phrases, [(wanted, 100 + seed) for seed in range(shares)])
    pairs = list(dict.fromkeys(pair for share in made for pair in share))
    return hold_out(pairs, test, most=0.3)


def _phrases(count: int, seed: int) -> list[Pair]:
    from regard.corpora.phrasebook import make_pairs

    return [(pair.source, pair.target) for pair in make_pairs(count, seed=seed, longest=EDGES[-1])]


def verses(path: Path, test: int) -> tuple[list[Pair], list[Pair]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        rows = [line.rstrip("\n").split("\t")[:2] for line in stream]
    pairs = [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2 and row[0].strip() and row[1].strip()]
    return hold_out([pair for pair in pairs if length(pair) <= EDGES[-1]], test, most=0.3)


def hold_out(pairs: list[Pair], test: int, most: float) -> tuple[list[Pair], list[Pair]]:
    """Of each length class `test` pairs, at most a share of it, among those whose sides occur once."""
    from regard.text.split import normalize_for_comparison

    sides = [normalize_for_comparison([pair[side] for pair in pairs]) for side in (0, 1)]
    counts = [Counter(side) for side in sides]
    alone = [all(count[side[n]] == 1 for count, side in zip(counts, sides)) for n in range(len(pairs))]
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    sizes = Counter(length_class(pair) for pair in pairs)
    room = {kind: min(test, int(most * size)) for kind, size in sizes.items()}
    held: set[int] = set()
    for number in order:
        kind = length_class(pairs[number])
        if alone[number] and room[kind]:
            room[kind] -= 1
            held.add(number)
    return [pairs[n] for n in order if n not in held], [pairs[n] for n in sorted(held)]


def length(pair: Pair) -> int:
    return len(pair[0].split())


def length_class(pair: Pair) -> int:
    return min(edge for edge in EDGES if length(pair) <= edge) if length(pair) <= EDGES[-1] else EDGES[-1] + 1


def write_splits(folder: Path, train: list[Pair], test: list[Pair]) -> None:
    """The first of the training pairs, which stand in a random order, validate."""
    folder.mkdir(parents=True, exist_ok=True)
    held = min(600, len(train) // 20)
    for split, pairs in zip(SPLITS, (train[held:], train[:held], test)):
        lines = (f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")


# -- one training and its test ---------------------------------------------------------------------------------------


def run_all(options: argparse.Namespace) -> None:
    """Every training in a process of its own, all at once; whoever is late is left out."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    began, running = time.perf_counter(), {}
    for study in options.studies:
        for system in options.systems:
            if system == "seq2seq-wide" and study not in WIDE:
                continue
            name = f"{study}-{system}"
            with (options.out / f"{name}.log").open("w") as log:
                running[name] = subprocess.Popen(
                    [*PROGRAM, *sys.argv[1:], "--one", f"{study}/{system}"],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
    while running and time.perf_counter() - began < options.deadline:
        time.sleep(0.5)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            code = running.pop(name).returncode
            print(f"[{time.perf_counter() - began:.0f} s] {name}: {'done' if not code else f'code {code}'}", flush=True)
    for name, process in running.items():
        process.kill()
        print(f"{name}: not done after {options.deadline:g} s", flush=True)


def one(options: argparse.Namespace) -> None:
    study, name = options.one.split("/")
    run = train(options, study, name)
    tested = run.evaluate("test", beam=_beam(options.beam), texts=True)
    lines = (options.work / study.split("-")[0] / "test.tsv").read_text(encoding="utf-8").splitlines()
    sources, references = zip(*(line.split("\t") for line in lines))
    facts = {
        "study": study,
        "system": name,
        "parameters": run.parameters,
        "budget": options.budget,
        "bleu": tested["bleu"],
        "perplexity": tested["perplexity"],
        "search": tested["search"],
        "tokenizer": tested["tokenizer"],
        "unknown": {"source": unknown(run.source_tokenizer, sources), "target": unknown(run.tokenizer, references)},
        "steps": last_step(run.folder),
        "by_length": classes(sources, tested["translations"], references),
        "samples": [
            {"source": s, "reference": r, "translation": t}
            for s, r, t in list(zip(sources, references, tested["translations"]))[:: max(1, len(sources) // 12)]
        ],
    }
    path = options.out / f"{study}-{name}.json"
    path.write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def train(options: argparse.Namespace, study: str, name: str) -> Any:
    import regard

    corpus = study.split("-")[0]
    system, model, training = SYSTEMS[name]
    if options.size == "toy":
        model = {
            key: value // 8 if key in ("width", "embedding", "feedforward") else value for key, value in model.items()
        }
    common = {
        "schedule": "cosine",
        "batch_tokens": 8192 if options.size == "small" else 2048,
        "evaluate_every": 500,
        "checkpoint_every": 1_000_000,
        "patience": 0,
        "keep": 0,
        "device": options.device,
        "threads": 1,
        "validation_pairs": 300,
    }
    return regard.train(
        system,
        data=str(options.work / corpus),
        run=options.work / "runs" / f"{study}-{name}",
        seed=1,
        budget=options.budget,
        settings={
            "data": dict(CUTS[study]),
            "model": {**model, "dropout": DROPOUT[corpus]},
            "training": {**common, **training},
        },
    )


def _beam(width: int) -> Any:
    from regard.decoding.beam import Beam

    return Beam(width)


def unknown(tokenizer: Any, lines: Iterable[str]) -> float:
    """The share of tokens that the vocabulary lacks."""
    ids = [symbol for line in lines for symbol in tokenizer.encode(line)]
    return sum(symbol == tokenizer.unk for symbol in ids) / len(ids)


def last_step(folder: Path) -> int:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max((json.loads(line).get("step", 0) for line in lines), default=0)


def classes(sources: Sequence[str], written: Sequence[str], references: Sequence[str]) -> list[dict[str, Any]]:
    """BLEU of each length class, with the middle 95 % of resamplings of its sentences."""
    from regard.evaluation.bleu import Statistics

    counts = np.array([len(source.split()) for source in sources])
    statistics, random = Statistics.of("bleu", written, references), np.random.default_rng(0)
    found = []
    for low, high in zip([1, *(edge + 1 for edge in EDGES)], EDGES):
        inside = np.flatnonzero((counts >= low) & (counts <= high))
        if not len(inside):
            continue
        mine = statistics.counts[inside]
        draws = random.integers(len(inside), size=(1000, len(inside)))
        spread = np.quantile(statistics.score(mine[draws].sum(1)), [0.025, 0.975])
        row = {"shortest": low, "longest": high, "sentences": len(inside), "words": float(counts[inside].mean())}
        found.append({**row, "bleu": float(statistics.score(mine.sum(0))), "low": spread[0], "high": spread[1]})
    return found


# -- table and figures -----------------------------------------------------------------------------------------------


def collate(out: Path) -> None:
    from regard.report.svg import svg
    from regard.report.svg_file import as_file
    from regard.report.table import plain_table

    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json")) if "-" in path.stem]
    order = list(SYSTEMS)
    found.sort(key=lambda one: (one["study"], order.index(one["system"])))
    rows = [table_row(one) for one in found]
    columns = {name: name for name in max(rows, key=len)} if rows else {}
    table = plain_table(rows, columns)
    (out / "table.txt").write_text(table + "\n", encoding="utf-8")
    (out / "results.json").write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
    for study in dict.fromkeys(one["study"] for one in found):
        drawn = svg(figure(study, [one for one in found if one["study"] == study]))
        (out / f"{study}.html").write_text(f"<!doctype html><meta charset=utf-8>\n{drawn}\n", encoding="utf-8")
        (out / f"{study}.svg").write_text(as_file(drawn), encoding="utf-8")
    print(table)


def table_row(one: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"corpus": one["study"], "system": one["system"], "BLEU": round(one["bleu"]["score"], 1)}
    for kind in one["by_length"]:
        row[f"{kind['shortest']}–{kind['longest']}"] = round(kind["bleu"], 1)
    return {**row, "knee": knee(one["by_length"]), "steps": one["steps"], "unknown": round(one["unknown"]["target"], 3)}


def knee(classes: Sequence[Mapping[str, Any]]) -> float | str:
    """Words at which BLEU has fallen to half of its best, on the line through the classes."""
    best = max(range(len(classes)), key=lambda n: classes[n]["bleu"])
    half = classes[best]["bleu"] / 2
    for before, after in zip(classes[best:], classes[best + 1 :]):
        if after["bleu"] < half:
            share = (before["bleu"] - half) / (before["bleu"] - after["bleu"])
            return round(before["words"] + share * (after["words"] - before["words"]), 1)
    return f"> {classes[-1]['words']:.0f}"


def figure(study: str, found: Sequence[Mapping[str, Any]]) -> Any:
    from regard.report.figures import Line, Lines

    lines = [
        Line(
            one["system"],
            [(kind["words"], kind["bleu"]) for kind in one["by_length"]],
            band=[(kind["low"], kind["high"]) for kind in one["by_length"]],
        )
        for one in found
    ]
    return Lines(f"BLEU by length, {study}", "words of the source sentence", "BLEU", lines, zero_y=True)


if __name__ == "__main__":
    main()
