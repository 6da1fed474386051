"""tools/plain_english.py finds the slips it is there for, and nothing in code; the pages have none."""

import pytest

import plain_english


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)

    def write(text):
        (tmp_path / "page.md").write_text(text, encoding="utf-8")
        return tmp_path / "page.md"

    return write


@pytest.mark.parametrize(
    "sentence",
    [
        "The reason stands below the table.",
        "This is no text.",
        "It goes on after that.",
        "A tracker that fails is said once.",
        "It has 10 000 lines.",
        "The optimiser is AdamW.",
    ],
)
def test_a_slip_is_found_with_its_line(page, sentence):
    (found,) = plain_english.slips(page(f"# A page\n\nA plain sentence.\n{sentence}\n"))
    assert found.startswith("page.md:4: ")


def test_code_and_numbers_of_names_are_left_alone(page):
    text = (
        "```console\n$ x\nit stands in 10 000\n```\n\n`goes on`, GPT-2 124M, $n = 10 000$ lines. There is no limit.\n"
    )
    assert plain_english.slips(page(text)) == []


def test_the_pages_are_plain():
    assert plain_english.main() == 0
