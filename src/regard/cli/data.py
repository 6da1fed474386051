"""`data`, `data check FILE`, `data fetch NAME`: corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.cli.help import app_of_commands
from regard.cli.options import ARGUMENTS, Columns, Encoding, Json

LABELS = 10  # that are listed

data_app = app_of_commands(
    "data", "regard data [OPTIONS]\n       regard data check FILE\n       regard data fetch NAME"
)


@data_app.default
def data_list(*, json: Json = False) -> None:
    """List the corpora, check your own text, or download a corpus.

    The list contains the built-in and the downloadable corpora and shows which are already on this machine.

        regard data
        regard data check my.txt
        regard data fetch shakespeare
    """
    from regard.report.table import print_json, print_table
    from regard.text.corpus import available

    rows = available()
    if json:
        print_json(rows)
        return
    print_table(rows, {"name": "corpus", "kind": "kind", "here": "here", "about": "about"})
    print("\nYour own files work as well (text, TSV, CSV, TMX, XLIFF, JSON Lines, …): regard train lstm --data my.txt")


@data_app.command(name="check", usage="regard data check FILE [OPTIONS]")
def data_check(
    file: Annotated[Path, Parameter(group=ARGUMENTS)],
    *,
    columns: Columns = "",
    header: Annotated[Literal["auto", "yes", "no"], Parameter(name="--data.header")] = "auto",
    source: Annotated[str, Parameter(name="--data.source", metavar="LANGUAGE")] = "",
    target: Annotated[str, Parameter(name="--data.target", metavar="LANGUAGE")] = "",
    encoding: Encoding = "utf-8",
    json: Json = False,
) -> None:
    """Check a text or sentence pairs: encoding, lengths, duplicates, suspicious lines and overlap between splits.

    For pairs, also report length ratios, swapped columns, unexpected scripts and overlong lines.

        regard data check my.txt
        regard data check pairs.csv --data.columns sw,en

    Parameters
    ----------
    file
        a text, a table of pairs (.tsv, .csv, .tmx, .xlf, .jsonl, …), or a folder with train/valid/test files of either
    header
        whether the first line of a table names its columns; auto = detect
    source
        for parallel files such as train.de and train.en: the language to translate from
    target
        for parallel files: the language to translate into
    """
    from dataclasses import asdict

    from regard.report.table import print_json
    from regard.text.check.check_pairs import check_pairs
    from regard.text.check.check_text import check_text
    from regard.text.pairs import is_pairs

    pairs = bool(source or target) or ("," in columns if columns else is_pairs(file))
    report: Any = (
        check_pairs(file, source=source, target=target, columns=columns, header=header, encoding=encoding)
        if pairs
        else check_text(file, columns=columns, header=header, encoding=encoding)
    )
    if json:
        print_json(asdict(report))
    elif pairs:
        _print_pair_check(report)
    else:
        _print_check(report)
    if refused := [one.refused for one in report.files.values() if one.refused]:
        raise RegardError(refused[0])


@data_app.command(name="fetch", usage="regard data fetch NAME")
def data_fetch(name: Annotated[str, Parameter(group=ARGUMENTS)]) -> None:
    """Download a corpus into the cache and verify its SHA-256.

    The publisher of the tatoeba-… files changes them from time to time, so Regard records the SHA-256 of the first
    download and checks later downloads against it.

        regard data fetch shakespeare

    Parameters
    ----------
    name
        name of a corpus (`regard data`)
    """
    from regard.corpora.downloads import CATALOGUE
    from regard.corpora.fetch import fetch
    from regard.report.progress import progress, say

    with progress(f"fetching {name}", unit=" bytes") as bar:
        folder = fetch(name, progress=bar.reach)
    say(f"{name} is in {folder}")
    for file in CATALOGUE[name].files:
        if file.sha256 is None:
            say(
                f"note: the publisher changes {file.name} from time to time, so its first download could not be "
                f"verified; its SHA-256 is recorded in {file.name}.sha256, and later downloads are checked against it"
            )


def _labels(file: Any) -> str:
    """The number of lines of each label, and the accuracy of always predicting the most common one."""
    shown = ", ".join(f"{label} {group_digits(lines)}" for label, lines in list(file.labels.items())[:LABELS])
    more = f", and {pluralize(len(file.labels) - LABELS, 'other label')}" if len(file.labels) > LABELS else ""
    share = _percent(max(file.labels.values()) / file.pairs)
    return f"lines per label: {shown}{more}. Always predicting the most common label is right {share} of the time."


def _print_check(report: Any) -> None:
    from regard.report.table import print_table

    names = {
        "encoding": "encoding",
        "bytes": "bytes",
        "lines": "lines",
        "blank_lines": "blank lines",
        "duplicate_lines": "duplicate lines",
        "characters": "characters",
        "words": "words",
        "vocabulary": "distinct words",
    }
    rows: list[dict[str, Any]] = [
        {"": label, **{split: getattr(file, key) for split, file in report.files.items()}}
        for key, label in names.items()
    ]
    for quantile in next(iter(report.files.values())).line_lengths:
        lengths = {split: file.line_lengths[quantile] for split, file in report.files.items()}
        rows.append({"": f"line length, {quantile}", **lengths})
    unknown = {split: _percent(file.unknown_rate) for split, file in report.files.items()}
    rows.append({"": "held-out words outside the 10,000 most common", **unknown})
    print_table(rows, {"": "", **{split: split for split in report.files}}, title=report.path)
    for split, file in report.files.items():
        if file.found:
            print(f"{split}: {file.found}")
        print(
            f"{split}: the longest line is line {file.longest_line}"
            + ("; the file begins with a byte-order mark" * file.byte_order_mark)
        )
        for odd in file.oddities:
            print(f"{split}: {odd.what} on {pluralize(odd.lines, 'line')}, first on line {odd.first}")
    for overlap in report.overlap:
        print(overlap.sentence)


def _print_pair_check(report: Any) -> None:
    from regard.report.table import print_table

    whole = {
        "encoding": "encoding",
        "pairs": "pairs",
        "blank_lines": "blank lines",
        "duplicate_pairs": "duplicate pairs",
    }
    sides = {
        "script": "script",
        "words": "words",
        "distinct": "distinct, ignoring case and punctuation",
        "with_several": "with several translations",
        "longest_line": "longest line (number)",
    }
    rows: list[dict[str, Any]] = [
        {"": label, **{split: getattr(file, key) for split, file in report.files.items()}}
        for key, label in whole.items()
    ]
    ratios = {split: f"{file.length_ratio:.2f}" for split, file in report.files.items()}
    rows.append({"": "target characters per source character", **ratios})
    labelled = bool(report.files.get("train", next(iter(report.files.values()))).labels)
    if labelled:
        rows.pop()  # a label is no translation
        sides.pop("with_several")
        rows.append({"": "labels", **{split: len(file.labels) for split, file in report.files.items()}})
    for side in ("source",) if labelled else ("source", "target"):
        found = {split: getattr(file, side) for split, file in report.files.items()}
        for key, label in sides.items():
            rows.append({"": f"{side}: {label}", **{split: getattr(one, key) for split, one in found.items()}})
        for quantile in next(iter(found.values())).word_lengths:
            lengths = {split: one.word_lengths[quantile] for split, one in found.items()}
            rows.append({"": f"{side}: words per line, {quantile}", **lengths})
    print_table(rows, {"": "", **{split: split for split in report.files}}, title=report.path)
    for split, file in report.files.items():
        if file.found:
            print(f"{split}: {file.found}")
        for odd in file.findings:
            print(f"{split}: {odd.what} on {pluralize(odd.lines, 'line')}, first on line {odd.first}")
        if labelled:
            print(f"{split}: {_labels(file)}" if file.labels else f"{split}: too few lines per label to count them.")
        elif len(report.files) == 1:
            leak = file.random_leak
            none = "A random 5 % test split would share no sentence with training."
            print(f"{leak.sentence if leak.sources or leak.targets else none} Regard's own split shares none.")
    for overlap in report.overlap:
        print(overlap.sentence)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
