"""A run as one file for another machine: an uncompressed zip of its files, with the SHA-256 of each.

The same run gives the same bytes: names are sorted, times are left out, nothing is compressed. Data are recorded by
file name only, so the archive contains no path of this machine; `report.html` is left out (`regard evaluate` writes it
again).

Archives are not trusted. Only the files of a run are unpacked, and only if they have exactly the recorded size and
digest. The code of a user's own system is included, but it does not run until it is trusted on this machine
(systems/own/code.py).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, BinaryIO

import tomli_w

import regard
from regard.base.digests import with_digest
from regard.base.errors import RegardError
from regard.base.locks import exclusive_name, try_lock
from regard.base.numbers import pluralize
from regard.base.reading import reading
from regard.base.writing import atomic_folder
from regard.report.progress import say
from regard.runs.recipe import read_recipe, without_folders
from regard.runs.store.facts import ANCESTORS, CHECKPOINT, WEIGHTS, read_facts
from regard.runs.store.lock import check_free
from regard.text.chat_template import FILE as CHAT_TEMPLATE
from regard.training.checkpointing import kept_weights

MANIFEST = "regard-archive.json"
VERSION = 1
TEXTS = ("recipe.toml", "run.json")  # in which paths are left out
TOKENIZERS = ("tokenizer.json", "tokenizer.source.json", CHAT_TEMPLATE)
FILES = (*TEXTS, *TOKENIZERS, "metrics.jsonl", WEIGHTS, CHECKPOINT, ANCESTORS)
NAME = re.compile(r"kept/[0-9]{1,12}\.safetensors|[A-Za-z_][\w-]{0,100}\.py|" + "|".join(map(re.escape, FILES)))
MAX_TEXT_BYTES = 1 << 26
BLOCK = 1 << 20

# -- out ---------------------------------------------------------------------------------------------------------------


def write(folder: Path, out: Path, *, training: str = "yes") -> None:
    """`training` no: without the files that only `regard resume` and `--average` need, which are most of the size."""
    if training not in ("yes", "no"):
        raise RegardError(f"--training must be yes or no, not {training!r}.")
    facts = read_facts(folder)
    with try_lock(folder / ".lock"):
        files = _files(folder, facts, training == "yes")
        replaced = {"recipe.toml": _recipe(folder), "run.json": _facts(facts)}
        recorded = {}
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for name, path in sorted(files.items()):
                with _opened(path) as own:
                    stream = io.BytesIO(replaced[name]) if name in replaced else own
                    size = len(replaced[name]) if name in replaced else path.stat().st_size
                    recorded[name] = _add(archive, name, stream, size)
            content = {"archive": VERSION, "regard": regard.__version__, "files": recorded}
            listed = json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"
            _add(archive, MANIFEST, io.BytesIO(listed), len(listed))


def _files(folder: Path, facts: dict[str, Any], training: bool) -> dict[str, Path]:
    """The files of a run by their names in the archive."""
    files = {name: folder / name for name in FILES if (folder / name).exists()}
    if WEIGHTS not in files and CHECKPOINT not in files:
        raise RegardError(f"{folder} has no weights: its training never started; train it again.")
    if not training and WEIGHTS in files:
        files.pop(CHECKPOINT, None)
    elif training:
        files |= {f"kept/{path.name}": path for path in kept_weights(folder)}
    if isinstance(code := facts.get("code"), dict):
        name = str(code.get("file", ""))
        if not NAME.fullmatch(name) or not name.endswith(".py") or not (folder / name).exists():
            raise RegardError(f"{folder} was trained with custom code, and {name!r:.80} is missing: restore it.")
        if _hides_module(name):
            raise RegardError(
                f"{folder} was trained with {name}, which would hide the module of that name elsewhere: "
                "rename the file and train again."
            )
        files[name] = folder / name
    return files


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path.is_symlink() or not path.is_file():
        raise RegardError(f"{path} is a link or not a regular file: replace it with the file itself.")
    with reading(path) as stream:
        yield stream


def _add(archive: zipfile.ZipFile, name: str, stream: BinaryIO, size: int) -> dict[str, Any]:
    entry = zipfile.ZipInfo(name)  # of 1 January 1980
    entry.create_system, entry.external_attr, entry.file_size = 3, (stat.S_IFREG | 0o644) << 16, size
    digest, written = hashlib.sha256(), 0
    with archive.open(entry, "w") as member:
        while block := stream.read(BLOCK):
            digest.update(block)
            written += member.write(block)
    return {"bytes": written, "sha256": digest.hexdigest()}


def _recipe(folder: Path) -> bytes:
    return tomli_w.dumps(without_folders(read_recipe(folder / "recipe.toml"))).encode()


def _facts(facts: dict[str, Any]) -> bytes:
    recipe = facts.get("recipe")
    plain = facts | ({"recipe": without_folders(recipe)} if isinstance(recipe, dict) else {})
    return json.dumps(with_digest(plain), indent=2, ensure_ascii=False).encode() + b"\n"


# -- in ----------------------------------------------------------------------------------------------------------------


def read(file: Path, run: Path, tokenizer_file: Path | None = None) -> Path:
    """Open an archive as a run; damaged archives and files that do not belong to a run are refused."""
    if tokenizer_file is not None:
        raise RegardError("--tokenizer does not apply: an archive contains its own tokenizer.")
    check_free(run)
    if run.exists():  # an empty folder, which cannot be locked and renamed at the same time
        raise RegardError(f"{run} already exists: choose another --run.")
    try:
        with zipfile.ZipFile(file) as archive, exclusive_name(run), atomic_folder(run) as made:
            recorded = _manifest(file, archive)
            for name, expected in recorded.items():
                _unpack(file, archive, name, expected, made / name)
            _check_run(file, made, set(recorded))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(error, RegardError):
            raise
        raise _damaged(file, str(error)) from None
    say(f"imported {pluralize(len(recorded), 'file')} of a run; all digests match")
    for name in recorded:
        if name.endswith(".py"):
            say(f"note: the run was trained with custom code, {run / name}, which runs only after you have approved it")
    return run


def _damaged(file: Path, how: str) -> RegardError:
    return RegardError(f"{file} is damaged ({how[:100].rstrip('.')}): copy it again.")


def _manifest(file: Path, archive: zipfile.ZipFile) -> dict[str, dict[str, Any]]:
    """The archive's table of contents, after checking that it matches the files."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if MANIFEST not in names:
        inside = "a pickled PyTorch model" if any(name.endswith("/data.pkl") for name in names) else "a zip"
        raise RegardError(f"{file} is {inside}, not an archive of a run, because it has no {MANIFEST}.")
    if sum(entry.file_size for entry in entries) > file.stat().st_size:
        raise _damaged(file, "it declares more content than fits into it")
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or kind not in (0, stat.S_IFREG):
            raise RegardError(
                f"{file} contains {entry.filename!r:.80} in compressed or encrypted form or as a link, which "
                "Regard never writes."
            )
    content = json.loads(_small(file, archive, MANIFEST))
    if not isinstance(content, dict) or content.get("archive") != VERSION:
        version = content.get("archive") if isinstance(content, dict) else None
        raise RegardError(f"{file} has archive format {version!r:.20}; this version of Regard reads format {VERSION}.")
    recorded = content.get("files")
    if not isinstance(recorded, dict) or sorted(names) != sorted([*recorded, MANIFEST]):
        raise _damaged(file, "it does not contain the files that it lists")
    for name, expected in recorded.items():
        if not NAME.fullmatch(name):
            raise RegardError(f"{file} contains {name!r:.80}, which is not part of a run; nothing was unpacked.")
        if not isinstance(expected, dict) or archive.getinfo(name).file_size != expected.get("bytes"):
            raise _damaged(file, f"{name} does not have the recorded size")
    return recorded


def _small(file: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_TEXT_BYTES:
        raise _damaged(file, f"{name} is too large")
    return archive.read(name)


def _unpack(file: Path, archive: zipfile.ZipFile, name: str, expected: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    digest = hashlib.sha256()
    with archive.open(name) as member, open(path, "xb") as stream:
        while block := member.read(BLOCK):
            digest.update(block)
            stream.write(block)
    if digest.hexdigest() != expected.get("sha256"):
        raise _damaged(file, f"{name} has been modified")


def _check_run(file: Path, made: Path, names: set[str]) -> None:
    """Checks that the run is complete, and that its only code is the code named in run.json."""
    if missing := [name for name in TEXTS if name not in names]:
        raise RegardError(f"{file} has no {missing[0]}, so it is not an archive of a run: export the run again.")
    if not names & {WEIGHTS, CHECKPOINT}:
        raise RegardError(f"{file} has no weights, so it is not an archive of a run: export the run again.")
    try:
        read_recipe(made / "recipe.toml")
        code = read_facts(made).get("code")
    except RegardError as error:
        raise RegardError(str(error).replace(str(made), str(file))) from None
    named = {str(code.get("file"))} if isinstance(code, dict) else set()
    own = {name for name in names if name.endswith(".py")}
    if stray := own - named:
        raise RegardError(f"{file} contains {min(stray)!r:.80}, which is not part of the run; nothing was unpacked.")
    for name in own:
        if _hides_module(name):
            raise RegardError(
                f"{file} contains {name!r:.80}, which would hide the module of that name; nothing was unpacked."
            )


def _hides_module(name: str) -> bool:
    """True if Python, started in the folder of this file, would import it instead of a standard or installed module."""
    stem = name.removesuffix(".py")
    if stem in sys.stdlib_module_names or stem in ("regard", "sitecustomize", "usercustomize"):
        return True
    installed = [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
    return PathFinder.find_spec(stem, installed) is not None
