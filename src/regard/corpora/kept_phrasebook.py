"""The phrasebook from the cache: its grammar takes ten seconds for 20 000 pairs, reading them again a tenth of one.

The name of the file holds the digest of the code that makes it, so another grammar never reads what this one wrote. The
first line is the digest of the rest; a file that does not fit it is made again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from regard.base import word_spans
from regard.base.errors import RegardError
from regard.base.files import open_file, writing
from regard.corpora import split
from regard.corpora.fetch import cache_folder
from regard.corpora.phrasebook import Pair, phrasebook

FOLDER = "phrasebook"  # in the cache


def kept_phrasebook(count: int, longest: int) -> dict[str, list[Pair]]:
    """`phrasebook(count, longest=longest)`, made only if it is not in the cache."""
    path = cache_folder() / FOLDER / f"{count}-{longest}-{_code_digest()}.json"
    try:
        return _read(path)
    except (OSError, ValueError, RegardError):  # not there, not whole, or no plain file
        made = phrasebook(count, longest=longest)
    with suppress(RegardError):  # a cache that cannot be written is done without
        _write(path, made)
    return made


def _code_digest() -> str:
    code = hashlib.blake2b(digest_size=8)
    for path in (
        Path(word_spans.__file__),
        Path(split.__file__),
        *sorted(Path(__file__).parent.glob("phrasebook/*.py")),
    ):
        code.update(path.read_bytes())
    return code.hexdigest()


def _read(path: Path) -> dict[str, list[Pair]]:
    with open_file(path) as stream:
        digest, content = stream.readline(), stream.read()
    if digest != _digest(content):
        raise ValueError
    link = cache(_link)  # there are few different ones
    return {
        split: [Pair(source, target, tuple(map(link, links.split()))) for source, target, links in zip(*columns)]
        for split, columns in json.loads(content).items()
    }


def _link(written: str) -> tuple[int, int]:
    source, _, target = written.partition("-")
    return int(source), int(target)


def _write(path: Path, made: dict[str, list[Pair]]) -> None:
    tree = {
        split: (
            [pair.source for pair in pairs],
            [pair.target for pair in pairs],
            [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs],
        )
        for split, pairs in made.items()
    }
    content = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    with writing(path) as stream:
        stream.write(_digest(content))
        stream.write(content)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode() + b"\n"
