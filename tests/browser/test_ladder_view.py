"""The view Ladder in a browser: a comparison that was made by the command line, and one that is started on the page."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from regard.cli import main


@pytest.fixture(scope="module")
def compared(tmp_path_factory, text_file, lab_over):
    """A lab over a comparison of two n-grams and an LSTM."""
    folder = tmp_path_factory.mktemp("ladder")
    words = ["lstm", "--data", text_file, "--size", "tiny", "--budget", "2k", "--data.tokenizer", "char"]
    small = ["--seeds", "1", "--model.width", "16", "--training.batch-tokens", "256", "--training.threads", "1"]
    main(["compare", *map(str, words), *small, "--run", str(folder / "compared")])
    return lab_over(folder)


@pytest.mark.slow
def test_a_comparison_is_a_table_a_chart_and_a_sample_of_each(compared, page):
    page.goto(f"{compared.url}#/ladder")
    page.get_by_role("link", name="compared").click()
    expect(page.get_by_role("heading", name="Language models compared on my.txt")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator(".rung")).to_have_count(3)
    expect(page.locator(".sample figcaption")).to_have_count(3)
    assert page.locator(".sample pre b, .sample pre script").count() == 0

    page.get_by_role("button", name="year").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("year")
    page.get_by_role("button", name="year").click()
    expect(page.locator("tbody th").first).to_contain_text("lstm")
    assert "sort=year" in page.url

    page.locator(".rungs .plot").focus()
    page.keyboard.press("Home")
    expect(page.locator("#spoken")).to_contain_text("95 % interval")
    page.get_by_role("button", name="learning curves").click()
    expect(page.locator(".chart .line")).to_have_count(3)

    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the report").click()
    assert Path(waiting.value.path()).read_bytes() == (compared.folder / "compared" / "report.html").read_bytes()


@pytest.mark.slow
def test_a_comparison_is_started_from_the_page(own_lab, page):
    page.goto(f"{own_lab.url}#/ladder/new")
    page.get_by_role("checkbox", name="ngram").check()
    page.get_by_role("radio", name="any-b").check()
    budget = page.get_by_label("budget")
    budget.fill("soon")
    expect(page.locator(".problem", has_text="neither a time")).to_be_visible()
    budget.fill("10k")
    expect(page.locator("aside")).to_contain_text("2-gram, 5-gram")
    page.get_by_role("button", name="Start comparing").click()
    page.get_by_role("link", name="compare-any-b").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("p.finding")).to_contain_text("best perplexity")
