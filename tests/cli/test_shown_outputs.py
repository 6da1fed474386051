"""What README.md and the tutorials show below a command is what it prints; tools/shown_outputs.py has the rules."""

import pytest

import shown_outputs
from shown_outputs import PAGES, Session, Step, difference, differs, renewed, steps


@pytest.fixture(scope="module")
def session(tmp_path_factory, warm):
    """One folder for all pages, so that a training that two of them show is run once."""
    return Session(tmp_path_factory.mktemp("pages"), tmp_path_factory.mktemp("pages-cache"), warm)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_shows_what_is_printed(page, session):
    found = [difference(step, session.printed(step)) for step in steps(page)]
    assert len(found) >= 2
    assert not [wrong for wrong in found if wrong]


def test_numbers_may_differ_a_little_and_words_may_not():
    assert not differs("perplexity   21.76", "perplexity 20.9")
    assert differs("perplexity   21.76", "perplexity 31.76")
    assert differs("perplexity   21.76", "accuracy   21.76")
    assert differs("perplexity 21.76", "perplexity 21.76 21.76")
    assert not differs("6000 lines in 19 s", "6,000 lines in 44 s")  # times are of the machine
    assert differs("6000 lines in 19 s", "9,000 lines in 44 s")
    assert not differs("lstm 21.76 20.49 – 23.12 …", "lstm    21.76  20.49 – 23.12  421 MiB")
    assert differs("lstm 21.76 20.49 – 23.12 …", "gpt     21.76  20.49 – 23.12  421 MiB")


def step(*shown, sampled=False):
    return Step(shown_outputs.ROOT / "README.md", "console", "regard x", list(shown), 1, sampled)


def test_left_out_lines_and_more_lines_are_told_apart():
    printed = ["a 1", "b 2", "c 3"]
    assert not difference(step("a 1", "…", "c 3"), printed)
    assert not difference(step("…", "b 2", "…"), printed)
    assert "more is printed" in difference(step("a 1", "b 2"), printed)
    assert "d 4" in difference(step("a 1", "…", "d 4"), printed)
    assert not difference(step("x", sampled=True), printed)
    assert difference(step("x", sampled=True), [])
    assert difference(step(sampled=True), printed)
    assert difference(step("a 1"), [])


def test_a_page_is_renewed_with_its_gaps():
    assert renewed(step("…", "b 2", "…"), ["a 1", "b 7", "c 3"]) == ["…", "b 7", "…"]
    assert renewed(step(), ["a 1"]) == ["a 1"]
    assert renewed(step("b 2 …"), ["b 7 and more"]) == ["b 7 …"]


def test_steps_are_found_with_their_places(tmp_path, monkeypatch):
    monkeypatch.setattr(shown_outputs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ one  # comment\nout\n$ two\n```\n\n"
        "<!-- sampled text -->\n```python\n>>> for x in y:\n...     x\n1\n```\n"
        "<!-- recorded -->\n```console\n$ three\n```\n<!-- file: a.py -->\n```python\nx = 1\n```\n"
    )
    one, two, loop, file = steps(page)
    assert (one.code, one.shown, one.first) == ("one", ["out"], 2)
    assert (two.code, two.shown) == ("two", [])
    assert (loop.code, loop.shown, loop.sampled) == ("for x in y:\n    x", ["1"], True)
    assert (file.kind, file.code) == ("file", "a.py\nx = 1")
