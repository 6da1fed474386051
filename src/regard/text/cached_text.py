"""Results cached per text: its vocabulary, its pairs as tokens, and the overlap of its splits.

The name of a file is a digest of the text and of everything that decides the result: the settings, the code of this
package, the version of the tokenizers' library and of Python's Unicode tables. So a stale result is never read.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

import tokenizers

from regard.base.cache import cached
from regard.corpora import split
from regard.text.readers.sources import digest_of
from regard.text.tokenizers.tokenizer import Tokenizer

Made = TypeVar("Made")
FOLDER = "tokens"  # in the cache
MIN_CACHED_CHARACTERS = 1 << 16  # for fewer characters, computing takes less than 0.05 s


def cached_for_text(
    what: str,
    size: int | None,
    key: Iterable[object],
    make: Callable[[], Made],
    dump: Callable[[Made], bytes],
    parse: Callable[[bytes], Made],
) -> Made:
    """The result of `make()`, cached under `key`. `size` is the text's number of characters; None: unknown."""
    if size is not None and size < MIN_CACHED_CHARACTERS:
        return make()
    name = digest_of(what, _code_digest(), *map(str, key))
    return cached(FOLDER, f"{name}.{what}", make, dump, parse)


@cache
def _code_digest() -> str:
    files = [Path(split.__file__), *sorted(Path(__file__).parent.rglob("*.py"))]
    code = (path.read_text(encoding="utf-8") for path in files)
    return digest_of(tokenizers.__version__, unicodedata.unidata_version, *code)


def cached_tokenizer(
    lines: Iterable[str],
    checksum: str,
    size: int | None,
    kind: str,
    vocabulary: int | None,
    *,
    normalise: str,
    pretokenised: bool,
) -> Tokenizer:
    """`Tokenizer.train`, cached. `checksum` identifies the lines; `size` is their number of characters."""
    return cached_for_text(
        "tokenizer",
        size,
        (checksum, kind, vocabulary, normalise, pretokenised),
        lambda: Tokenizer.train(lines, kind, vocabulary, normalise=normalise, pretokenised=pretokenised),
        lambda made: made.json.encode(),
        lambda content: Tokenizer.from_json(content.decode()),
    )
