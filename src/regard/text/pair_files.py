"""Files of sentence pairs: which there are under a path, and what stands in them.

pairs.tsv                        source⇥target; further columns are ignored            (also .txt, also .gz)
corpus/train.tsv, valid.tsv, …   the same with splits of their own
corpus/train.de, train.en, …     parallel files: line n of one is the translation of line n of the other
corpus/train                     two such files alone
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from regard.errors import RegardError
from regard.numbers import grouped
from regard.text.corpus import SPLITS, entries, is_named, read_lines, refuse_what_is_no_text, unknown_corpus

TABLES = (".tsv", ".txt", ".tab")
LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*")
NO_LANGUAGE = {"txt", "raw", "tsv", "tab", "csv", "md", "py", "gz", "zip", "log", "xml", "sgm", "bpe", "bin", "npy"}


def holds_pairs(path: Path) -> bool:
    """Whether there are pairs under this path."""
    if path.is_dir():
        return "train" in _tables(path) or len(_parallel(path).get("train", {})) > 1
    return is_table(path) if path.is_file() else len(list(filter(_is_language, _beside(path)))) > 1


def find_pair_files(path: Path, source: str = "", target: str = "") -> dict[str, tuple[Path, ...]]:
    """The files of a corpus by split ("pairs" for a single one): one with tabs, or two parallel ones."""
    if path.is_dir():
        return _find_in_folder(path, source, target)
    if path.exists():
        return {"pairs": (path,)}
    if is_named(str(path)):
        raise RegardError(f"{str(path)!r} is the name of a corpus; give a file or a folder of pairs.")
    beside = _beside(path)
    if source in beside and target in beside and source != target:
        return {"pairs": (beside[source], beside[target])}
    if len(list(filter(_is_language, beside))) < 2:
        raise unknown_corpus(str(path), path)
    raise _which_languages(f"{path}.*", beside, source, target)


def _find_in_folder(folder: Path, source: str, target: str) -> dict[str, tuple[Path, ...]]:
    tables, files = _tables(folder), _parallel(folder)
    asked = [code for code in (source, target) if code]
    if "train" in tables and not (asked and len(files.get("train", {})) > 1):
        return {split: (path,) for split, path in tables.items()}
    exact = _parallel(folder, asked) if len(asked) == 2 and source != target else {}
    if len(exact.get("train", {})) == 2:
        for split, found in exact.items():
            if len(found) == 1:
                (path,), (missing,) = found.values(), set(asked) - found.keys()
                raise RegardError(
                    f"{str(path)!r} has no {split} file in {missing!r} beside it; add that, or remove this."
                )
        return {split: (exact[split][source], exact[split][target]) for split in SPLITS if split in exact}
    if len(files.get("train", {})) > 1:
        raise _which_languages(str(folder), files["train"], source, target)
    single = [path for path in entries(folder) if path.is_file() and is_table(path)]
    advice = f"or give the file {str(single[0])!r} itself" if len(single) == 1 else "or give one file with tabs"
    raise RegardError(
        f"The folder {str(folder)!r} has no training pairs; name them train.tsv, or train.de and train.en, {advice}."
    )


def _plain(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def is_table(path: Path) -> bool:
    """Whether the first line that is not blank has a tab; a .tsv file is taken by its name."""
    suffix = _plain(path).suffix.lower()
    if suffix == ".tsv" or suffix not in TABLES:
        return suffix == ".tsv"
    try:
        first = next((line for line in islice(read_lines(path), 100) if line.strip()), "")
    except RegardError:
        return False
    return "\t" in first


def _is_language(code: str) -> bool:
    return bool(LANGUAGE.fullmatch(code)) and code not in NO_LANGUAGE


def _beside(path: Path) -> dict[str, Path]:
    """train.de, train.en.gz → de, en: the files whose names add a language to this one."""
    folder = path.parent
    files = entries(folder) if path.name and folder.is_dir() else []
    found = [file for file in files if _plain(file).stem == path.name and _plain(file).suffix and file.is_file()]
    return {_plain(file).suffix[1:]: file for file in sorted(found, reverse=True)}  # the plain file before its .gz


def _which_languages(where: str, found: Iterable[str], source: str, target: str) -> RegardError:
    languages = sorted(filter(_is_language, found))
    if missing := [code for code in (source, target) if code and code not in found]:
        return RegardError(f"{where!r} has no training file in {missing[0]!r}; it has {', '.join(languages)}.")
    first, second = languages[:2]
    return RegardError(
        f"{where!r} has {', '.join(languages)}: say which to translate from and into, for example with "
        f"--data.source {first} --data.target {second}."
    )


def _says(split: str, name: str) -> bool:
    return bool(re.search(rf"(?:^|[._-])(?:{'|'.join(SPLITS[split])})(?:[._-]|$)", name, re.IGNORECASE))


def _only(split: str, folder: Path, files: Sequence[Path]) -> Path:
    if len({_plain(path) for path in files}) > 1:
        names = ", ".join(path.name for path in files)
        raise RegardError(f"The folder {str(folder)!r} has several {split} files ({names}); keep one of them.")
    return min(files)  # the plain file before its .gz


def _tables(folder: Path) -> dict[str, Path]:
    """The files with tabs of a folder by split: train.tsv, dev.tsv.gz, …"""
    tables = [path for path in entries(folder) if path.is_file() and is_table(path)]
    found = {split: [path for path in tables if _says(split, _plain(path).stem)] for split in SPLITS}
    return {split: _only(split, folder, files) for split, files in found.items() if files}


def _parallel(folder: Path, wanted: Sequence[str] = ()) -> dict[str, dict[str, Path]]:
    """The parallel files of a folder by split and language: train.de, val.en.gz, test_2016_flickr.de, …"""
    found: dict[str, dict[str, list[Path]]] = {}
    for path in entries(folder):
        code = _plain(path).suffix[1:]
        language = code in wanted if wanted else _is_language(code)
        for split in SPLITS:
            if language and path.is_file() and _says(split, _plain(path).stem):
                found.setdefault(split, {}).setdefault(code, []).append(path)
    return {
        split: {code: _only(f"{code} {split}", folder, files) for code, files in languages.items()}
        for split, languages in found.items()
    }


def read_pair_files(paths: Sequence[Path]) -> tuple[list[str], list[str], list[str]]:
    """Sources and targets of one file with tabs or of two parallel ones, and sentences about what was left out.

    Lines that are blank, on both sides, are passed over; an empty side is kept.
    """
    for path in paths:
        refuse_what_is_no_text(path)
    rows = list(_table(*paths) if len(paths) == 1 else _side_by_side(*paths))
    real = [row for row in rows if any(row)]
    blank = len(rows) - len(real)
    about = [f"{grouped(blank)} blank lines of {paths[0].name} were passed over."] if blank else []
    return [source for source, _ in real], [target for _, target in real], about


def _table(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t", 2)
        if len(fields) < 2 and line.strip():
            raise RegardError(
                f"{str(path)!r} has only one field on line {number}; write source, tab, target on every line "
                f"(`regard data check` finds all such lines)."
            )
        source, target, *_ = [*fields, ""]
        yield source.strip(), target.strip()


def _side_by_side(one: Path, other: Path) -> Iterator[tuple[str, str]]:
    sources, targets = ([line.strip() for line in read_lines(path)] for path in (one, other))
    if len(sources) != len(targets):
        raise unequal(one, len(sources), other, len(targets))
    return zip(sources, targets)


def unequal(one: Path, lines: int, other: Path, other_lines: int) -> RegardError:
    return RegardError(
        f"{str(one)!r} has {grouped(lines)} lines and {str(other)!r} {grouped(other_lines)}; line n of one must be the "
        f"translation of line n of the other: find the line where they diverge."
    )
