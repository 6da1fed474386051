"""The views Text and Claims."""

import json

import pytest
from playwright.sync_api import expect

from regard.claims.all_claims import NAMES


def test_a_corpus_is_counted_and_a_sentence_is_cut(lab, page):
    page.goto(lab.url + "#/text?corpus=copy")
    page.wait_for_selector("table")
    assert "no two splits share a pair" in page.inner_text(".notes")
    page.locator("svg.plot path.line").nth(2).wait_for(state="attached")  # Zipf's curve, coverage, lengths
    for kind in range(4):
        page.locator(".tokenizer").nth(kind).locator(".piece").first.wait_for()
    page.fill("textarea", "a b <img src=x> c")
    page.wait_for_selector(".tokenizer .cut:has-text('im')")
    assert page.locator("main img").count() == 0
    assert "sentence=" in page.url


def test_numbers_of_the_page_are_those_of_the_check(lab, page, text_file):
    from regard.text.check.check_text import check_text
    from regard.text.corpus import open_corpus
    from regard.text.tokenizers.word_counts import count_words

    counted = count_words(open_corpus(text_file).splits)
    checked = check_text(text_file).files["text"]
    assert sum(split.words for split in counted.splits.values()) == checked.words
    assert sum(split.lines for split in counted.splits.values()) == checked.lines - checked.blank_lines


@pytest.fixture
def nothing_measured(tmp_path, monkeypatch):
    """A cache without the results of claims that other tests of this process have measured."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def test_a_claim_is_run_and_its_verdict_is_shown(nothing_measured, own_lab, page):
    page.goto(own_lab.url + "#/claims/gaussian-dot")
    page.wait_for_selector("button:has-text('Run it')")
    assert "Run it again" not in page.inner_text("main")  # it was never run
    assert "Documented verdict of the full experiment: holds." in page.inner_text("main")
    page.fill("input[type=number] >> nth=0", "7")
    page.click("button:has-text('Run it')")
    page.wait_for_selector("h2 .verdict", timeout=240_000)
    assert "Run it again" in page.inner_text("main")
    (record,) = own_lab.folder.glob("claims-*/claims.json")
    (result,) = json.loads(record.read_text())
    assert result["seeds"][0] == 7
    assert result["quick"]
    expect(page.locator("h2").first).to_contain_text(f"Measured here: quick: {result['verdict']} at reduced size")
    expect(page.locator(".drawn")).to_have_count(len(result["figures"]))
    page.goto(own_lab.url + "#/claims")
    page.wait_for_selector(".claim")
    expect(page.locator(".claim")).to_have_count(len(NAMES))
    mine = page.locator(".claim", has_text="gaussian-dot")
    expect(mine).to_contain_text(f"documented: holds · here: {result['label']}")
    expect(page.locator(".claim", has_text="teacher-forcing")).to_contain_text(
        "documented: inconclusive · here: not measured yet"
    )
