"""Text encodings: the name that a user gives, and the likely encoding of a file that is not UTF-8.

Each candidate decodes a sample. The one wins whose words fit best: letters of its own script, cased as words are, and
Latin words with mostly unaccented letters. So an error can suggest the option to add; nothing is decoded by guessing.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

from regard.base.errors import RegardError

UTF8 = "utf-8"
NOT_OF_FILES = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"}
CANDIDATES = {  # in this order if they fit equally well
    "cp1252": "LATIN",
    "cp1250": "LATIN",
    "cp932": "HIRAGANA KATAKANA CJK",
    "euc_jp": "HIRAGANA KATAKANA CJK",
    "cp949": "HANGUL",
    "gb18030": "CJK",
    "big5": "CJK",
    "cp1255": "HEBREW",
    "cp1251": "CYRILLIC",
    "koi8_r": "CYRILLIC",
    "cp1253": "GREEK",
    "cp1256": "ARABIC",
}
WORD = re.compile(r"[^\W\d_]+")
WRONG = re.compile(  # characters that a wrong encoding produces
    r"(?<=[^\W\d_])[^\w\s'’·.,:;/\u0591-\u05c7\u3000-\u303f\uff00-\uff65-](?=[^\W\d_])"  # a sign within a word
    r"|(?<![\u0590-\u05ff])[\u0591-\u05c7]"  # a vowel point without its letter
    r"|[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff]"  # characters for control and for private use
)
KANA = re.compile("[ぁ-ヿ]")
COMMON_HAN = frozenset("的一是不了在人有我他这這个個们們中来來上大为為和国國地到以说說时時要就出会會可也你对對生能")


def check_encoding(name: str) -> str:
    """The name if Python knows a text encoding of files by it."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        codec = None
    if codec is None or not codec._is_text_encoding or codec.name.replace("-", "_") in NOT_OF_FILES:
        raise RegardError(
            f"There is no text encoding {name!r}; set data.encoding to utf-8, or for example to cp1252 (Excel on "
            "Windows), cp1251, shift_jis, gb18030 or utf-16-le."
        )
    return name


def is_utf8(name: str) -> bool:
    return codecs.lookup(name).name in ("utf-8", "utf-8-sig")


def likely_encoding(sample: bytes) -> str:
    """The encoding that a sample of text is probably in; "" if no candidate fits."""
    if wide := _wide(sample):
        return wide
    lines = [line for line in sample.splitlines() if not line.isascii()]
    text = b"\n".join(lines[:-1] or lines)  # the last line may be incomplete
    fits = {name: _fit(text, name, scripts) for name, scripts in CANDIDATES.items()}
    best = max(fits, key=fits.__getitem__)
    return best if fits[best] > 0.5 else ""


def _wide(sample: bytes) -> str:
    """UTF-16 without a byte-order mark: every other byte of common characters is zero."""
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if max(even, odd) * 5 < len(sample):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _fit(text: bytes, encoding: str, scripts: str) -> float:
    """The share of words with letters outside ASCII that look like words of these scripts; −1 if it cannot be read."""
    try:
        decoded = text.decode(encoding)
    except UnicodeDecodeError:
        return -1.0
    words = [word for word in WORD.findall(decoded) if not word.isascii()]
    wrong = len(WRONG.findall(decoded))
    if scripts == "LATIN" and not words:
        return 0.9 if wrong == 0 else 0.0  # only quotes and dashes
    fit = sum(_looks_right(word, scripts) for word in words) / max(1, len(words) + wrong)
    if scripts.startswith("HIRAGANA") and not KANA.search(decoded):
        return min(fit, 0.4)
    return fit * (0.9 + 0.1 * _common_han(decoded)) if scripts == "CJK" else fit


def _looks_right(word: str, scripts: str) -> bool:
    outside = [char for char in word if not char.isascii()]
    if any(unicodedata.name(char, "?").split(" ")[0] not in scripts for char in outside):
        return False
    if scripts == "LATIN":
        return 2 * len(outside) <= len(word) + 1 and (word[1:].islower() or word.isupper() or len(word) == 1)
    return len(outside) == len(word) and (word[1:].islower() or word.isupper() or word.lower() == word.upper())


def _common_han(text: str) -> float:
    """The share of Chinese characters that are among the commonest."""
    han = [char for char in text if "\u4e00" <= char <= "\u9fff"]
    return sum(char in COMMON_HAN for char in han) / max(1, len(han))
