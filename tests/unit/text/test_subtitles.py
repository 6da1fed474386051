"""Subtitles: everything but the text of the cues stays, and a sentence is what a viewer hears as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.text.readers.subtitles import LINE, Subtitles, break_lines

SRT = """\
1
00:00:01,000 --> 00:00:03,500
<i>The cat sees
the house.</i>

2
00:00:04,000 --> 00:00:05,000  X1:40 X2:600
- They are watching.
- I do not
eat <b>bread</b>.

3
00:00:06,000 --> 00:00:07,000
{\\an8}♪ She sleeps. ♪
4
00:00:08,000 --> 00:00:09,000
42

5
00:00:10,000 --> 00:00:11,000

6
00:00:12,000 --> 00:00:13,000
One line

after a blank one
"""

VTT = """\
WEBVTT - a title
Kind: captions

NOTE this is not a cue

STYLE
::cue { color: red }

first
00:01.000 --> 00:03.500 align:start
<v Ann>Bread &amp; butter
<v Bob>No, <c.loud>thank you</c>.</v>

00:00:04.000 --> 00:00:05.000
<i>Yes</i>, he said. <00:00:04.500>Now.
"""


def both(form, text, change=str.upper):
    subtitles = Subtitles(form, "a file")
    texts = list(subtitles.texts(text.split("\n")))
    return texts, "\n".join(subtitles.replaced(text.split("\n"), map(change, texts)))


def test_sentences_of_srt_are_joined_by_speaker():
    texts, changed = both(".srt", SRT)
    assert texts == [
        "The cat sees the house.", "They are watching.", "I do not eat bread.", "She sleeps.", "One line",
        "after a blank one",
    ]  # fmt: skip
    lines = changed.split("\n")
    assert lines[2:4] == ["<i>THE CAT SEES", "THE HOUSE.</i>"]
    assert lines[7:10] == ["- THEY ARE WATCHING.", "- I DO NOT", "EAT BREAD."]
    assert "{\\an8}♪ SHE SLEEPS. ♪" in lines


def test_numbers_time_codes_and_blank_lines_stay():
    for form, text in ((".srt", SRT), (".vtt", VTT)):
        _, changed = both(form, text)
        kept = [line for line in text.split("\n") if "-->" in line or not line or line.isdecimal()]
        assert [line for line in changed.split("\n") if "-->" in line or not line or line.isdecimal()] == kept


def test_web_subtitles_keep_their_header_notes_styles_and_names():
    texts, changed = both(".vtt", VTT)
    assert texts == ["Bread & butter", "No, thank you.", "Yes, he said. Now."]
    head = VTT[: VTT.index("<v Ann>")]
    cue = "<v Ann>BREAD &amp; BUTTER\n<v Bob>NO, THANK YOU.</v>"
    assert changed == f"{head}{cue}\n\n00:00:04.000 --> 00:00:05.000\nYES, HE SAID. NOW.\n"


def test_the_same_text_gives_the_same_file():
    plain = SRT.replace("<b>", "").replace("</b>", "")
    assert both(".srt", plain, str)[1] == plain


def test_what_is_not_a_subtitle_is_refused():
    with pytest.raises(RegardError, match="line 2: text comes before the first time code"):
        both(".srt", "1\nplain text\n")
    with pytest.raises(RegardError, match="does not begin with WEBVTT"):
        both(".vtt", SRT)
    assert both(".srt", "") == ([], "")


@given(st.text(st.sampled_from("abc éß.-\t\u00a0")), st.integers(1, 4))
def test_a_broken_line_has_the_same_words(text, lines):
    broken = break_lines(text, lines)
    assert " ".join(broken).split() == text.split()
    assert len(broken) <= max(lines, 2 if len(text) > LINE else 1)


def test_lines_are_of_similar_lengths():
    assert break_lines("one two three four", 2) == ["one two", "three four"]
    assert break_lines("a short line", 1) == ["a short line"]
    assert [len(line) for line in break_lines("word " * 12 + "word", 1)] == [34, 29]
    assert break_lines("word", 3) == ["word"]
    assert break_lines("長" * 60, 2) == ["長" * 60]


@pytest.mark.parametrize("piece", ["♪", " ", "<i>", "<", "-", "{\\", "♪x"])
def test_a_long_line_takes_linear_time(piece):
    """A million of them; what takes quadratic time would not end."""
    line = piece * (1_000_000 // len(piece)) + "a"
    both(".srt", f"1\n00:00:01,000 --> 00:00:02,000\n{line}\n")
