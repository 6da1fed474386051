"""Digests: of files, and of the JSON objects that Regard writes, to recognize damage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.reading import check_size, open_file, read_object

MAX_SHARED_BYTES = 1 << 28  # bytes of a tokenizer.json (seven million words), or of a comparison's test sentences
DIGEST = "blake2b"  # the entry of a JSON object that holds the digest of the others


def file_digest(path: Path, most: int | None = None) -> str:
    """The digest of a file's bytes on the disk, read now; one of more than `most` bytes is refused unread."""
    with open_file(path) as stream:
        if most is not None:
            check_size(stream, path, most)
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def check_digests(folder: Path, names: Sequence[str], recorded: Mapping[str, str]) -> None:
    """Refuse a folder in which one of these files is not the one whose digest was recorded."""
    for name in names:
        if (folder / name).exists() != (name in recorded):
            raise RegardError(
                f"{folder / name} {'is missing' if name in recorded else 'does not belong in this folder'}."
            )
        if name in recorded and file_digest(folder / name, MAX_SHARED_BYTES) != recorded[name]:
            raise RegardError(f"{folder / name} is damaged or has been modified: restore it from a backup.")


def with_digest(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of its entries as the last one."""
    return {**tree, DIGEST: _entries_digest(tree)}


def without_digest(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """The object that `with_digest` was given; refused if `path`, which holds it, was changed since."""
    if DIGEST not in tree:
        raise RegardError(
            f"{path} has no digest: it was written by an older version of Regard or has been modified; create it again."
        )
    entries = {key: value for key, value in tree.items() if key != DIGEST}
    if tree[DIGEST] != _entries_digest(entries):
        raise RegardError(f"{path} is damaged or has been modified: restore it from a backup.")
    return entries


def read_with_digest(path: Path) -> dict[str, Any]:
    """The object of a JSON file that Regard wrote."""
    tree = read_object(path)
    if tree is None:
        raise RegardError(f"{path} is damaged: restore it from a backup.")
    return without_digest(tree, path)


def _entries_digest(tree: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=16).hexdigest()
