"""The course: every line of the notes is explained, and every line of code, claim and figure that it names exists.

The notes are not in the repository. What is known of them here: how many lines each has, and where each of their
systems, mechanisms and statements stands.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from regard.base.errors import RegardError
from regard.claims.all_claims import NAMES, get_claim
from regard.learn.exercises.exercise_list import EXERCISES
from regard.learn.lectures import Anchor, find, get_lecture, lectures
from regard.learn.lectures.lecture_pages import ABOUT, CODE, LECTURES, MISTAKES, PLACES, folder, verdict_words
from regard.learn.lectures.mathematics import FORMULA, as_mathml, as_text
from regard.systems.catalogue import SYSTEMS

PAGES = Path(__file__).parents[4] / "docs" / "learn"
COMMENTS = re.compile(r"<!-- .*? -->")
SYSTEM_LINES = {
    "ngram": ["002:3", "002:5"], "dan": ["002:7", "002:41"], "nnlm": ["004:3", "002:7"],
    "rnn": ["001:31", "003:49", "003:53", "002:11", "004:8", "001:104"], "lstm": ["001:41", "002:17", "003:186"],
    "gru": ["004:19"], "self-attention": ["000:54", "000:62", "001:120", "001:162", "002:33", "002:53", "004:238"],
    "gpt": ["004:25", "004:36"], "seq2seq": ["004:12", "004:40", "004:202"],
    "bahdanau": ["000:40", "004:73", "004:88", "004:209"], "transformer": ["000:42", "001:180", "004:21"],
    "classifier": ["001:71"],
}  # fmt: skip
MECHANISM_LINES = {
    "embedding": ["001:21", "001:60", "003:90", "003:116"], "reconstruction": ["001:62", "001:64"],
    "special tokens": ["004:62", "004:63"], "pooling": ["004:134", "004:138", "004:140", "004:149"],
    "names": ["004:92", "004:126", "004:128"], "three roles": ["001:150", "001:154"],
    "scores": ["001:136", "004:169", "004:181", "004:184", "004:189"], "kernels and densities": ["004:165"],
    "masks": ["000:89", "000:128"], "heads": ["003:300", "004:230"], "positions": ["001:186", "001:197", "003:278"],
    "loss": ["000:10", "000:16", "003:67"], "through time": ["000:8", "003:137", "002:15"],
    "remedies": ["003:147", "003:161", "003:167", "003:178"], "teacher forcing": ["004:42", "004:60"],
    "one interface": ["002:21", "002:23"], "the loop": ["003:46"], "overwritten": ["001:37"],
    "block": ["001:180"], "tasks": ["001:70", "001:71", "001:75", "001:76"], "two pairs": ["001:78", "001:84"],
    "learning to align": ["004:204"],
}  # fmt: skip
CHAPTERS = lectures()
ALL = [*CHAPTERS, get_lecture(MISTAKES), get_lecture(ABOUT)]
ENTRIES = [(page, entry) for page in CHAPTERS for entry in page.entries]
EVERY = pytest.mark.parametrize(("page", "entry"), ENTRIES, ids=lambda one: str(getattr(one, "title", "")))
OTHER_SECTIONS = {"Summary and reading", "How it writes", "Why did it say that?", "Words", "How to use it", "License"}


@pytest.mark.parametrize("lecture", LECTURES)
def test_the_chapters_explain_every_line_of_the_notes_once(lecture):
    entries = [entry for page in [*CHAPTERS, get_lecture(ABOUT)] for entry in page.entries]
    lines = sorted(
        (one for entry in entries for one in entry.lines if one.lecture == lecture), key=lambda one: one.first
    )
    assert lines[0].first == 1
    assert lines[-1].last == LECTURES[lecture]
    assert all(after.first == before.last + 1 for before, after in pairwise(lines))


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_section_and_every_anchor_is_understood(page):
    """A section that the parser passes over would explain nothing, and a list that it misreads would be no code."""
    titles = {part.partition("\n")[0] for part in re.split(r"^## ", page.markdown, flags=re.M)[1:]}
    assert titles - {entry.title for entry in page.entries} <= OTHER_SECTIONS
    assert len(PLACES.findall(page.markdown)) == page.markdown.count("<!-- notes")
    assert len(CODE.findall(page.markdown)) == page.markdown.count("\n- Code:")
    assert sum(len(entry.commands) for entry in page.entries) == page.markdown.count("\n- Try:")
    assert page.markdown.count("<details>") == page.words.count("**Question.**")


@EVERY
def test_an_entry_names_code_that_exists_and_claims_that_exist(page, entry):
    """`line` fails unless the text is on exactly one line of the file, or of the function that is named."""
    assert set(entry.claims) <= set(NAMES)
    assert all((folder() / figure).is_file() for figure in entry.figures)
    assert entry.code
    assert entry.claims or entry.commands
    for anchor in entry.code:
        shown = dict(anchor.around())
        assert anchor.text in shown[anchor.line]
        assert not any(re.match(r"\s*(def|class) ", line) for line in shown.values()), anchor
        assert len(shown) <= 15


def test_the_notes_are_not_shown_to_those_who_do_not_have_them():
    for page in CHAPTERS:
        assert not re.search(r"\b00[0-4]:\d", COMMENTS.sub("", page.markdown)), page.name
        assert not re.search(r"\b00[0-4]:\d", page.words), page.name


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.name)
def test_a_chapter_has_goals_prerequisites_minutes_questions_a_summary_and_papers(page):
    head, end = page.markdown.partition("\n## ")[0], page.markdown.rpartition("\n## ")[2]
    assert re.search(r"^\*Chapter \d of 8 · about \d+ minutes · needs .+\*$", head, flags=re.M)
    assert "**After this chapter you can**" in head
    assert end.startswith("Summary and reading")
    assert re.search(r"\((?:19|20)\d\d\)", end)
    assert page.markdown.count("<details>") >= 1 or page.name == "after-gpt"


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_formula_becomes_mathml_and_text(page):
    """No dollar is left over, so none was misread."""
    for found in FORMULA.finditer(page.markdown):
        latex = found[1] or found[2]
        assert as_mathml(latex).startswith("<math")
        assert not re.search(r"[\\$]", as_text(latex)), latex
    prose = re.sub(r"```.*?```|`[^`]*`", "", FORMULA.sub("", page.markdown), flags=re.S)
    assert "$" not in prose


def test_a_formula_reads_as_text():
    assert as_text(r"h_t = \tanh(W x_t + U h_{t-1})").replace(" ", "") == "h_t=tanh(Wx_t+Uh_{t−1})"
    assert as_text(r"\frac{1}{m} \sum_i v_i") == "1/m ∑_i v_i"
    assert as_text(r"Q K^\top") == "Q K⊤"


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_is_shown_with_its_verdict(name):
    words = verdict_words(name, f"`{name}`")
    assert words[0] in "✓✗?–"
    assert f"`{name}`" in words


def test_every_system_mechanism_and_claim_has_its_entry():
    for name, places in {**SYSTEM_LINES, **MECHANISM_LINES}.items():
        for place in places:
            assert find(place).entry.code, (name, place)
    assert {claim for _, entry in ENTRIES for claim in entry.claims} == set(NAMES)
    lecture_systems = {system.name for system in SYSTEMS if not system.after_gpt}
    assert lecture_systems == set(SYSTEM_LINES)
    pages = "".join(page.markdown for page in CHAPTERS)
    assert all(f"`{system.name}`" in pages for system in SYSTEMS if system.after_gpt)


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_is_named_where_its_own_sentence_stands(name):
    """A claim says which lines it quotes: an entry of at least one of these lines names it."""
    places, lecture = [], ""
    for found in re.finditer(r"(?:(\d{3}):)?(\d+)", get_claim(name).where):
        lecture = found[1] or lecture
        places.append(f"{lecture}:{found[2]}")
    assert any(name in find(place).entry.claims for place in places), places


def test_every_exercise_is_named_by_the_entry_of_its_line():
    named = {name: entry.title for _, entry in ENTRIES for name in entry.exercises}
    assert named == {exercise.name: find(exercise.lecture).entry.title for exercise in EXERCISES}


@pytest.mark.parametrize("entry", get_lecture(MISTAKES).entries, ids=lambda entry: entry.title)
def test_a_mistake_concerns_lines_that_exist(entry):
    for lines in entry.lines:
        assert 1 <= lines.first <= lines.last <= LECTURES[lines.lecture]
        assert entry in find(f"{lines.lecture}:{lines.first}").errata


def test_a_missing_or_ambiguous_line_of_code_is_one_sentence():
    with pytest.raises(RegardError, match="No lines"):
        _ = Anchor("layers/scores.py", "no such line").line
    with pytest.raises(RegardError, match="2 lines"):
        _ = Anchor("layers/scores.py", "return query @ keys.transpose(-2, -1)").line
    with pytest.raises(RegardError, match="does not exist"):
        _ = Anchor("layers/nothing.py", "x").line
    one = Anchor("layers/scores.py", "return query @ keys.transpose(-2, -1)", "Dot.compare")
    assert [line.strip() for _, line in one.around()] == ["return query @ keys.transpose(-2, -1)"]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_pages_say_for_whom_they_are_and_what_they_link_to_exists(page):
    assert re.search(r"After this chapter you can|for (readers|learners|everyone)", page.markdown)
    targets = re.findall(r"\]\(([^)\s]+)\)", page.markdown)
    beside = [target.partition("#")[0] for target in targets if not target.startswith(("http", "#"))]
    assert beside or page.name == MISTAKES
    for target in beside:
        assert (PAGES / target).exists(), target


def test_figures_are_small_load_nothing_and_are_all_shown():
    paths = sorted((PAGES / "figures").glob("*.svg"))
    shown = {name for page in CHAPTERS for name in re.findall(r"\(figures/([\w-]+\.svg)\)", page.markdown)}
    assert {path.name for path in paths} == shown
    assert len(shown) >= 9
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert 500 < len(text) < 60_000, path.name
        assert not re.search(r'(?:href|src)="(?!data:|#)|url\((?!#)', text), path.name
        assert "prefers-color-scheme: dark" in text
