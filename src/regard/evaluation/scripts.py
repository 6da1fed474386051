"""The tokenizer of BLEU, and the way of counting words, by the script of a text.

BLEU counts runs of four words. sacreBLEU's usual tokenizer, 13a, finds words between spaces, so for Japanese, where a
sentence is one such word, it reports 0 for all but perfect sentences. The script of most letters of the references
decides:

    Japanese             ja-mecab    words of MeCab's dictionary; the extra `regard[ja]`
    Korean               ko-mecab    likewise; the extra `regard[ko]`
    Chinese              zh          every character
    Thai, Lao, Khmer, …  char        every character: no spaces, and no segmentation without a download
    any other            13a         words between spaces, punctuation separated

If an extra is not installed, char is used instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any
from unicodedata import name

from regard.base.errors import RegardError

TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")  # sacreBLEU's that need no download
SPACES = ("13a", "intl", "none")  # of these, those that split at spaces
EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}  # of these, those that need a dictionary, and Regard's extra for it
KANA = 0.05  # share of kana among kana and Han from which on a text is Japanese; a Chinese one has next to none


@dataclass(frozen=True)
class Cut:
    """sacreBLEU's tokenizer, and a sentence on the choice."""

    tokenizer: str
    why: str


def bleu_cut(references: Iterable[str], asked: str | None = None) -> Cut:
    """The requested tokenizer, else the one for the references' script."""
    script, best = _script(references)
    if asked is not None:
        check_tokenizer(asked)
        if asked in SPACES and best not in SPACES and script != "Korean":
            return Cut(asked, f"{asked}, as requested; {script} has no spaces, so these words are whole sentences")
        return Cut(asked, f"{asked}, as requested")
    if best in SPACES:
        return Cut(best, f"{best}, words between spaces")
    if best in EXTRAS and not is_installed(best):
        install = f'pip install "regard[{EXTRAS[best]}]"'
        return Cut("char", f"char, because the references are {script} and {best} is not installed: {install}")
    return Cut(best, f"{best}, because the references are {script}")


def check_tokenizer(tokenizer: str) -> None:
    if tokenizer not in TOKENIZERS:
        raise RegardError(f"There is no BLEU tokenizer {tokenizer!r}; choose one of {', '.join(TOKENIZERS)}.")
    if tokenizer in EXTRAS and not is_installed(tokenizer):
        raise RegardError(
            f'The tokenizer {tokenizer} is not installed: pip install "regard[{EXTRAS[tokenizer]}]", or choose char.'
        )


@cache
def is_installed(tokenizer: str) -> bool:
    from sacrebleu.metrics import BLEU  # takes a tenth of a second to import

    try:
        BLEU(tokenize=tokenizer)
    except (RuntimeError, AssertionError):  # no MeCab, or one with another dictionary
        return False
    return True


def count_words(text: str) -> int:
    """Words between white space; in a script without spaces every letter is one."""
    if text.isascii() or not _unspaced().search(text):
        return len(text.split())
    return sum(any(map(str.isalnum, piece)) for piece in _unspaced().sub(r" \g<0> ", text).split())


@cache
def _unspaced() -> Any:
    """Letters of scripts without spaces: of East Asia, and those that Unicode says need a dictionary to break lines."""
    import regex  # the standard library has no Unicode scripts

    return regex.compile(r"(?V1)[[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Tibetan}\p{Line_Break=SA}]&&\p{L}]")


def _script(texts: Iterable[str]) -> tuple[str, str]:
    """The script of most letters, and its tokenizer."""
    import regex

    letters = Counter[str]()
    for text in texts:
        letters.update(text)
    counts = Counter[str]()
    for letter, times in letters.items():
        if regex.match(r"\p{Han}", letter):
            counts["Chinese"] += times
        elif regex.match(r"[\p{Hiragana}\p{Katakana}]", letter):
            counts["kana"] += times
        elif regex.match(r"\p{Hangul}", letter):
            counts["Korean"] += times
        elif _unspaced().match(letter):
            counts[name(letter).split()[0].capitalize()] += times
        elif letter.isalpha():
            counts["spaced"] += times
    if counts["kana"] > KANA * (counts["kana"] + counts["Chinese"]):
        counts["Japanese"] = counts.pop("kana") + counts.pop("Chinese", 0)
    script = max(counts, key=lambda script: counts[script]) if counts.total() else "spaced"
    known = {"Japanese": "ja-mecab", "Chinese": "zh", "kana": "ja-mecab", "Korean": "ko-mecab", "spaced": "13a"}
    return script, known.get(script, "char")
