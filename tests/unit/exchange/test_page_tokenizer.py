"""The tokenizers of a page cut and join as the `tokenizers` library does, in ten scripts and both directions."""

from functools import cache

import numpy as np
import pytest

from javascript import javascript
from regard.exchange.page_file import _tokenizer
from regard.text.tokenizers.tokenizer import Tokenizer

SCRIPTS = {
    "Latin": "abcdefghijklmnopqrstuvwxyzABCDEÀéîßøœčžşŁñ",
    "Greek": "αβγδεζηθικλμνξοπρστυφχψωΆέή",
    "Cyrillic": "абвгдежзийклмнопрстуфхцчшщыэюяЁЇ",
    "Hebrew": "אבגדהוזחטיכלמנסעפצקרשתםןָּ",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويءئةًُّ",
    "Devanagari": "अआइईकखगघचछजटडतदनपबमयरलवशसहािीुेो्ंँ",
    "Thai": "กขคงจชซดตทนบปผพมยรลวสหอะาิีุูเแโไ่้์",
    "Han": "的一是不了人我在有他这中大来上国說學語書",
    "Kana and Hangul": "あいうえおかきくけこアイウエオガギグ가나다라마바사한국어",
    "Emoji and signs": "😀🙂👍🏽👨‍👩‍👧❤️🇫🇷½²№ﬁ①Å\u0301e\u0301",
}
BETWEEN = [
    " ", " ", " ", "  ", ", ", ". ", "! ", " (", ") ", "-", "’", "'s ", " “",
    "” ", "\t", "\u00a0", "\u3000", "…", " 3,5 ", " 2026 ",
    "<unk>", "<eos>", "\ufeff", "\u0085", "\u001c", "_",
]  # fmt: skip
COUNT = 10_000
KINDS = [("word", "nfc"), ("word", "nfkc"), ("char", "nfc"), ("byte", "none"), ("bpe", "none"), ("bpe", "nfkc")]


@cache
def lines():
    draw, made = np.random.default_rng(7), []
    alphabets = [list(letters) for letters in SCRIPTS.values()]
    for number in range(COUNT):
        line = ""
        for _ in range(draw.integers(1, 7)):
            letters = alphabets[number % len(alphabets) if draw.random() < 0.8 else draw.integers(len(alphabets))]
            line += "".join(draw.choice(letters, draw.integers(1, 7))) + str(draw.choice(BETWEEN))
        made.append(line)
    return tuple(made)


CUT = """
  const tokenizer = new Tokenizer(given.tokenizer);
  return given.lines.map((line) => { const ids = tokenizer.encode(line); return [ids, tokenizer.decode(ids)]; });
"""


@pytest.mark.parametrize("kind,form", KINDS)
def test_ten_thousand_lines_are_cut_and_joined_alike(kind, form):
    texts = list(lines())
    tokenizer = Tokenizer.train(texts[:3000], kind, None if kind in ("byte", "char") else 2000, normalise=form)
    found = javascript("page/tokenizer", CUT, {"tokenizer": _tokenizer(tokenizer), "lines": texts})
    wrong = [text for text, (ids, _) in zip(texts, found, strict=True) if ids != tokenizer.encode(text)]
    assert wrong == []
    assert [text for _, text in found] == [tokenizer.decode(ids) for ids, _ in found]


def test_parts_of_characters_and_words_between_spaces_too():
    draw, texts = np.random.default_rng(1), list(lines()[:300])
    spaced = Tokenizer.train(texts, "word", 500, pretokenised=True)
    found = javascript("page/tokenizer", CUT, {"tokenizer": _tokenizer(spaced), "lines": texts})
    assert [ids for ids, _ in found] == [spaced.encode(text) for text in texts]
    pairs = Tokenizer.train(texts, "bpe", 600, normalise="none")
    rows = [draw.integers(0, pairs.vocabulary, 12).tolist() for _ in range(500)]
    back = """const t = new Tokenizer(given.tokenizer);
      return { texts: given.rows.map((ids) => t.decode(ids)), tokens: t.tokens };"""
    answer = javascript("page/tokenizer", back, {"tokenizer": _tokenizer(pairs), "rows": rows})
    assert answer["texts"] == [pairs.decode(row) for row in rows]
    assert answer["tokens"] == pairs.tokens
