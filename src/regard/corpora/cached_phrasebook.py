"""The phrasebook from the cache: generating 20,000 pairs takes seconds, reading them 0.1 s.

The file's name contains a digest of the grammar's code, so a changed grammar never reads an old file.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from regard.base import word_spans
from regard.base.cache import cached
from regard.corpora import split
from regard.corpora.phrasebook import Pair, phrasebook

FOLDER = "phrasebook"  # in the cache


def cached_phrasebook(count: int, longest: int) -> dict[str, list[Pair]]:
    """`phrasebook(count, longest=longest)`, made only if it is not in the cache."""
    name = f"{count}-{longest}-{_code_digest()}.json"
    return cached(FOLDER, name, lambda: phrasebook(count, longest=longest), _dump, _parse)


def _code_digest() -> str:
    code = hashlib.blake2b(digest_size=8)
    for path in (
        Path(word_spans.__file__),
        Path(split.__file__),
        *sorted(Path(__file__).parent.glob("phrasebook/*.py")),
    ):
        code.update(path.read_bytes())
    return code.hexdigest()


def _parse(content: bytes) -> dict[str, list[Pair]]:
    link = cache(_link)  # there are few different ones
    return {
        split: [Pair(source, target, tuple(map(link, links.split()))) for source, target, links in zip(*columns)]
        for split, columns in json.loads(content).items()
    }


def _link(written: str) -> tuple[int, int]:
    source, _, target = written.partition("-")
    return int(source), int(target)


def _dump(made: dict[str, list[Pair]]) -> bytes:
    tree = {
        split: (
            [pair.source for pair in pairs],
            [pair.target for pair in pairs],
            [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs],
        )
        for split, pairs in made.items()
    }
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
