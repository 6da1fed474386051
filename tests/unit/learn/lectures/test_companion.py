"""The lectures' pages: every line of the notes is explained, and every line of code, claim and figure they name exists.

The notes are not in the repository. What is known of them here: how many lines each has, and where each of their
systems, mechanisms and statements stands.
"""

import doctest
import re
from itertools import pairwise
from pathlib import Path

import pytest

from regard.base.errors import RegardError
from regard.claims.all_claims import NAMES, get_claim
from regard.learn.exercises.exercise_list import EXERCISES
from regard.learn.lectures import Anchor, find, get_lecture, lectures
from regard.learn.lectures.lecture_pages import CODE, PLACES, folder
from regard.systems.catalogue import SYSTEMS

PAGES = Path(__file__).parents[4] / "docs" / "lectures"
LINES = {"000": 132, "001": 198, "002": 58, "003": 300, "004": 238}
NOTHING = {"001:48–54", "002:1–2"}  # the course's organisation, and a title
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
ENTRIES = [(page, entry) for page in lectures() for entry in page.entries]
EVERY = pytest.mark.parametrize(("page", "entry"), ENTRIES, ids=lambda one: str(getattr(one, "title", "")))


@pytest.mark.parametrize("page", lectures(), ids=lambda page: page.number)
def test_the_entries_of_a_lecture_explain_every_line_once(page):
    lines = [entry.lines[0] for entry in page.entries]
    assert all(len(entry.lines) == 1 for entry in page.entries)
    assert lines[0].first == 1
    assert lines[-1].last == LINES[page.number]
    assert all(after.first == before.last + 1 for before, after in pairwise(lines))
    assert all(one.lecture == page.number for one in lines)


@pytest.mark.parametrize("page", [*lectures(), get_lecture("errata")], ids=lambda page: page.number)
def test_every_section_and_every_anchor_is_understood(page):
    """A section that the parser passes over would explain nothing, and a list that it misreads would be no code."""
    without_lines = [part for part in re.split(r"^## ", page.markdown, flags=re.M)[1:] if not PLACES.search(part)]
    assert [part.partition("\n")[0] for part in without_lines] == (["Words"] if page.number == "errata" else [])
    assert len(CODE.findall(page.markdown)) == page.markdown.count("\n- Code:")
    assert sum(len(entry.commands) for entry in page.entries) == page.markdown.count("\n- Try:")


@EVERY
def test_an_entry_names_code_that_exists_and_claims_that_exist(page, entry):
    """`line` fails unless the text stands on exactly one line of the file, or of the function that is named."""
    assert all(anchor.line > 0 for anchor in entry.code)
    assert set(entry.claims) <= set(NAMES)
    assert all((folder() / figure).is_file() for figure in entry.figures)
    assert str(entry.lines[0]) in NOTHING or (entry.code and (entry.claims or entry.commands))


def test_every_system_mechanism_and_claim_has_its_entry():
    for name, places in {**SYSTEM_LINES, **MECHANISM_LINES}.items():
        for place in places:
            assert find(place).entry.code, (name, place)
    assert {claim for _, entry in ENTRIES for claim in entry.claims} == set(NAMES)
    lecture_systems = {system.name for system in SYSTEMS if not system.after_gpt}
    assert lecture_systems == set(SYSTEM_LINES)
    pages = "".join(page.markdown for page in lectures())
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


@pytest.mark.parametrize("entry", get_lecture("errata").entries, ids=lambda entry: entry.title)
def test_an_erratum_concerns_lines_that_exist(entry):
    for lines in entry.lines:
        assert 1 <= lines.first <= lines.last <= LINES[lines.lecture]
        assert entry in find(f"{lines.lecture}:{lines.first}").errata


@pytest.mark.parametrize("page", lectures(), ids=lambda page: page.number)
def test_the_worked_numbers_of_a_page_are_computed(page):
    path = folder() / f"{page.number}.md"
    assert doctest.testfile(str(path), module_relative=False, encoding="utf-8").failed == 0


def test_a_missing_or_ambiguous_line_of_code_is_one_sentence():
    with pytest.raises(RegardError, match="No lines"):
        _ = Anchor("layers/scores.py", "no such line").line
    with pytest.raises(RegardError, match="2 lines"):
        _ = Anchor("layers/scores.py", "return query @ keys.transpose(-2, -1)").line
    with pytest.raises(RegardError, match="does not exist"):
        _ = Anchor("layers/nothing.py", "x").line
    one = Anchor("layers/scores.py", "return query @ keys.transpose(-2, -1)", "Dot.compare")
    assert one.around(1, 0)[0][1].lstrip().startswith("def compare")


@pytest.mark.parametrize("page", [*lectures(), get_lecture("errata")], ids=lambda page: page.number)
def test_pages_say_for_whom_they_are_and_what_they_link_to_exists(page):
    assert re.search(r"^For a ", page.markdown, flags=re.M)
    targets = re.findall(r"\]\(([^)\s]+)\)", page.markdown)
    beside = [target.partition("#")[0] for target in targets if not target.startswith(("http", "#"))]
    assert beside or page.number == "errata"
    for target in beside:
        assert (PAGES / target).exists(), target


def test_figures_are_small_load_nothing_and_are_all_shown():
    paths = sorted((PAGES / "figures").glob("*.svg"))
    shown = {name for page in lectures() for name in re.findall(r"\(figures/([\w-]+\.svg)\)", page.markdown)}
    assert {path.name for path in paths} == shown
    assert len(shown) >= 9
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert 500 < len(text) < 60_000, path.name
        assert not re.search(r'(?:href|src)="(?!data:|#)|url\((?!#)', text), path.name
        assert "prefers-color-scheme: dark" in text
