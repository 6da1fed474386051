"""Numbers and names as people read them: the digits in threes, the noun in its number, the article as it is spoken."""

import re

import pytest

from regard.base.numbers import group_digits, pluralize, with_article
from regard.systems.catalogue import SYSTEMS


@pytest.mark.parametrize("number, text", [(0, "0"), (9999, "9999"), (12400, "12,400"), (-12400, "-12,400")])
def test_digits_stand_in_threes(number, text):
    assert group_digits(number) == text


@pytest.mark.parametrize(
    "number, text", [(0, "0 sentences"), (1, "1 sentence"), (2, "2 sentences"), (12400, "12,400 sentences")]
)
def test_a_noun_follows_its_number(number, text):
    assert pluralize(number, "sentence") == text


def test_a_noun_may_have_a_plural_of_its_own():
    assert pluralize(2, "match", "matches") == "2 matches"


@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_an_article_is_as_the_name_is_spoken(system):
    spelt = {"lstm": "el", "rnn": "ar", "nnlm": "en", "ngram": "en"}.get(system, system)  # how the name begins aloud
    assert with_article(system) == f"{'an' if re.match('[aeio]', spelt) else 'a'} {system}"
