"""Words in any script: Unicode's own boundaries, and what apostrophes stand for."""

import itertools
import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from regard.base.word_spans import ASCII_WORD, WORD, find_words
from regard.corpora.phrasebook import make_pairs


def words(text):
    return [text[start:end] for start, end in find_words(text)]


@pytest.mark.parametrize(
    "script, text, expected",
    [
        ("Latin", "I don't know: x-ray, 3.14 or 1,000!", "I don't know x ray 3.14 or 1,000"),
        ("Latin, decomposed", "e\u0301te\u0301 nai\u0308f", "e\u0301te\u0301 nai\u0308f"),
        ("Greek", "Καλημέρα, κόσμε· τι κάνεις;", "Καλημέρα κόσμε τι κάνεις"),
        ("Cyrillic", "П'ять книг — добре!", "П'ять книг добре"),
        ("Arabic", "السَّلامُ عليكم، يا عالم؟", "السَّلامُ عليكم يا عالم"),
        ("Hebrew", 'צה״ל, צה"ל: שָׁלוֹם', 'צה״ל צה"ל שָׁלוֹם'),
        ("Devanagari", "यह किताब अच्छी है।", "यह किताब अच्छी है"),
        ("Bengali", "ঢাকা শহর।", "ঢাকা শহর"),
        ("Tamil", "தமிழ் மொழி.", "தமிழ் மொழி"),
        ("Amharic", "ኢትዮጵያ፣ ቋንቋ።", "ኢትዮጵያ ቋንቋ"),
        ("Korean", "나는 책을 읽는다.", "나는 책을 읽는다"),
        ("Chinese: by character", "我喜欢读书。", "我 喜 欢 读 书"),
        ("Japanese: by character, Katakana together", "東京タワーに行く。", "東 京 タワー に 行 く"),
        ("Thai: by character with its marks", "ฉันรัก", "ฉั น รั ก"),
        ("Khmer: by character with its marks", "ភាសា", "ភា សា"),
        ("emoji are no words", "ok 👩\u200d👩\u200d👧 !", "ok"),
    ],
)
def test_words_of_many_scripts(script, text, expected):
    assert words(text) == expected.split()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("l'eau qu’il s'il jusqu'à", "l' eau qu’ il s' il jusqu' à"),
        ("dell'acqua un'altra", "dell' acqua un' altra"),
        ("Jill's it’s a's l'été", "Jill 's it ’s a 's l' été"),
        ("don't can’t we'll I'm O'Brien o'clock c'mon ma'am", "don't can’t we'll I'm O'Brien o'clock c'mon ma'am"),
        ("aujourd'hui jusqu'aujourd'hui", "aujourd'hui jusqu' aujourd'hui"),
        ("'quoted' est-ce", "quoted est ce"),
    ],
)
def test_apostrophes(text, expected):
    assert words(text) == expected.split()


letters = st.sampled_from("aé'’.,:_-·\"3٣ \u0301\u200dשא״किताิกวターに水한ა𝔞🙂")


@given(st.text(st.one_of(letters, st.characters(exclude_categories=["Cs"])), max_size=24))
def test_between_apostrophes_boundaries_are_those_of_unicode(text):
    """The `regex` library's own word boundaries (UAX #29) are the oracle; a piece is a word if it has a letter."""
    cuts = [match.start() for match in regex.finditer(r"(?w)\b", text)]
    pieces = [(a, b) for a, b in itertools.pairwise(cuts) if regex.search(r"[\p{L}\p{N}]", text[a:b])]
    found = [match.span() for match in WORD.finditer(text) if regex.search(r"[\p{L}\p{N}]", match[0])]
    assert found == pieces


@given(st.text(st.sampled_from("aB3_'.,:;- \"\n"), max_size=24))
def test_words_of_ascii_are_the_same_words(text):
    assert [match.span() for match in ASCII_WORD.finditer(text)] == [match.span() for match in WORD.finditer(text)]


@given(st.text(max_size=40))
def test_words_lie_in_order_and_hold_every_letter(text):
    spans = find_words(text)
    assert all(start < end for start, end in spans)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    inside = {place for start, end in spans for place in range(start, end)}
    assert all(place in inside for place, character in enumerate(text) if character.isalpha())


def test_the_phrasebooks_gold_alignments_count_these_words():
    """As its grammar counts them: every apostrophe that a letter follows ends a word, but for the possessive."""
    grammar = re.compile(r"(?i:aujourd['’]hui)|['’]s\b|[^\W\d_]+(?:['’](?!s\b)(?=\w))?|\d+")
    for pair in make_pairs(400, seed=5):
        for side in (pair.source, pair.target):
            assert find_words(side) == [match.span() for match in grammar.finditer(side)]
        assert {one for one, _ in pair.alignment} == set(range(len(find_words(pair.source))))
