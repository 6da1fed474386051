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


def test_a_space_that_the_prompt_ends_with_is_not_said_again():
    tokenizer = Tokenizer.train(LINES, "bpe", 300)
    prompt, tokens = tokenizer.encode("The cat"), tokenizer.encode(" sees it")
    assert tokenizer.decode(tokens[:1]).startswith(" ")
    for without_space, text in ((False, " sees it"), (True, "sees it")):
        grown = GrowingText(tokenizer, prompt, without_space=without_space)
        assert "".join(grown.add([token]) for token in tokens) == text
    assert GrowingText(tokenizer, prompt).add(tokens) == " sees it"


def test_only_the_end_of_a_prompt_is_decoded():
    tokenizer = Tokenizer.train(LINES, "byte")
    grown = GrowingText(tokenizer, tokenizer.encode("a" * 99))
    assert len(grown.tokens) == 16
    assert grown.said == 16
    assert grown.add([]) == ""


def test_what_could_begin_a_stop_sequence_is_held_back_and_no_more():
    until = Until(["abc", "xy"])
    said = {"1a": "1", "b": "", "d": "abd", "xx": "x", "ab": "x", "c9": ""}
    assert [until.add(piece, False) for piece in said] == [*said.values()]
    assert until.met
    late = Until(["abc"])
    assert [late.add("zab", False), late.add("", True), late.met] == ["z", "ab", False]
    assert Until([]).add("abc", False) == "abc"
    both = Until(["b", "ab"])
    assert (both.add("xab", False), both.met) == ("x", True)
