"""Tokens to text, piece by piece: however the tokens come, the pieces are the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.growing_text import GrowingText, Until
from regard.text.tokenizers.tokenizer import Tokenizer

LINES = ["The cat (an old one) sees “some” bread, and: that's it.", "Étienne dort… 42 fois !", "日本語 €"] * 3


@pytest.fixture(scope="module", params=["word", "char", "byte", "bpe"])
def tokenizer(request):
    return Tokenizer.train(LINES, request.param, 300 if request.param == "bpe" else None)


@given(data=st.data())
def test_the_pieces_are_what_all_tokens_decode_to(tokenizer, data):
    token = st.integers(0, tokenizer.vocabulary - 1)
    prompt = tokenizer.encode(data.draw(st.sampled_from(["", *LINES[:3], "The cat\n", "The cat ("])))
    groups = data.draw(st.lists(st.lists(token, min_size=1, max_size=4), max_size=30))
    grown, text = GrowingText(tokenizer, prompt), ""
    for group in groups:
        text += grown.add(group)
    whole = tokenizer.decode([*prompt, *(token for group in groups for token in group)])
    assert tokenizer.decode(prompt) + text == whole


def test_a_character_may_come_in_parts_wherever_the_window_is_cut():
    tokenizer = Tokenizer.train(LINES, "byte")
    tokens = tokenizer.encode("€a" * 40)
    for first in range(1, 4):
        grown = GrowingText(tokenizer, [])
        groups = [tokens[:first], *(tokens[at : at + 2] for at in range(first, len(tokens), 2))]
        assert "".join(grown.add(group) for group in groups) == "€a" * 40


@given(st.lists(st.text("ab", max_size=3)), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_a_text_goes_as_far_as_the_first_stop_sequence(pieces, stops):
    until, given_out = Until(stops), ""
    for number, piece in enumerate([*pieces, ""]):
        given_out += until.add(piece, number == len(pieces))
        if until.met:
            break
    seen = "".join(pieces[: number + 1])
    places = [place for stop in stops if (place := seen.find(stop)) >= 0]
    assert until.met == bool(places)
    assert given_out == (seen[: min(places)] if places else "".join(pieces))
