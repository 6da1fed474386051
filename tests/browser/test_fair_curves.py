"""Runs of several texts and tokenizers: what cannot be compared is not drawn together, and every scale has its unit."""

import math
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from regard.runs.load import load


@pytest.fixture(scope="module")
def mixed(lab_over, mixed_folder):
    return lab_over(mixed_folder)


def open_runs(lab, page, *names, more=""):
    page.add_init_script("try { localStorage.setItem('tour', 'seen'); } catch { /* about:blank */ }")
    page.goto("about:blank")
    page.goto(f"{lab.url}#/runs?{'&'.join(f'show={name}' for name in names)}&lines=validation{more}")
    expect(page.locator(".plot .line")).to_have_count(len(names))


def test_each_text_has_its_own_chart_and_the_page_says_why(mixed, page):
    open_runs(mixed, page, "letters", "hebrew")
    expect(page.locator(".of-text h2")).to_have_text(["my.txt", "hebrew.txt"])
    expect(page.locator(".of-text .legend")).to_have_text([" letters", " hebrew"])
    for chart in page.locator(".of-text").all():
        expect(chart.locator(".plot .line")).to_have_count(1)
    expect(page.locator(".warning")).to_contain_text("2 different texts, so their loss cannot be compared")
    page.get_by_role("button", name="Tokens/s").click()  # is the same whatever the text
    expect(page.locator(".of-text")).to_have_count(1)
    expect(page.locator(".warning p")).to_have_count(0)


def test_other_tokens_of_one_text_are_compared_by_bits_per_character(mixed, page):
    open_runs(mixed, page, "letters", "pieces", more="&metric=perplexity")
    expect(page.locator(".of-text")).to_have_count(1)
    warning = page.locator(".warning")
    expect(warning).to_contain_text("letters (char) and pieces (bpe) split my.txt into different tokens")
    expect(warning).to_contain_text("perplexity per token cannot be compared")
    warning.get_by_role("button", name="Show bits per character").click()
    expect(page.locator(".chart .caption")).to_contain_text("Bits per character against tokens")
    expect(warning.locator("p")).to_have_count(0)
    page.get_by_text("As a table").click()
    for name in ("letters", "pieces"):
        row = page.locator(".chart tbody tr", has_text=name)
        true = load(mixed.folder / name, device="cpu").evaluate(split="valid")["bits_per_character"]
        expect(row).to_have_count(1)
        assert math.isclose(float(row.locator("td").nth(2).inner_text()), true, rel_tol=0.03)  # validated in segments


def test_a_run_keeps_its_colour_whatever_else_is_drawn(mixed, page):
    colour = "() => document.querySelector('.plot [data-name^=letters] path').getAttribute('stroke')"
    open_runs(mixed, page, "hebrew", "pieces", "letters")
    first = page.evaluate(colour)
    page.get_by_role("checkbox", name="Show pieces").uncheck()
    page.get_by_role("checkbox", name="Show hebrew").uncheck()
    expect(page.locator(".plot .line")).to_have_count(1)
    assert page.evaluate(colour) == first
    page.reload()
    expect(page.locator(".plot .line")).to_have_count(1)
    assert page.evaluate(colour) == first
    swatch = "run => document.querySelector(`.panel[data-run=${run}] .swatch`).style.background"
    page.goto(f"{mixed.url}#/sentence?run=pieces&run=letters&text=The")
    page.wait_for_selector(".panel[data-run=letters] .words button")
    assert page.evaluate(swatch, "letters") == first
    page.click("[aria-label='Remove pieces']")
    page.wait_for_selector(".panel[data-run=pieces]", state="detached")
    assert page.evaluate(swatch, "letters") == first


def test_every_axis_and_every_scale_has_its_unit(mixed, page):
    open_runs(mixed, page, "letters")
    expect(page.locator(".plot text.name", has_text="Loss (nats per token)")).to_be_visible()
    text = quote("The cat")
    page.goto(f"{mixed.url}#/sentence?run=pieces&text={text}&show=attention")
    expect(page.locator(".part.attention .scale")).to_contain_text("attention weight")
    page.goto(f"{mixed.url}#/sentence?run=letters&text={text}&show=states")
    expect(page.locator(".part.states .scale")).to_contain_text("gate: 0 closed, 1 open")
    page.locator(".part.states select").select_option(label="Layer 1")
    expect(page.locator(".part.states .scale")).to_contain_text("value of the unit")


def test_the_scale_of_gradients_has_the_numbers_that_the_cells_are_read_with(mixed, page):
    page.goto(f"{mixed.url}#/sentence?run=letters&text={quote('The cat')}&show=gradients")
    page.click("button:has-text('Compute the gradients')")
    scale = page.locator(".part.gradients .scale")
    expect(scale).to_contain_text("norm of the gradient (nats per unit of length), logarithmic scale")
    trace = load(mixed.folder / "letters", device="cpu").trace("The cat", gradients=True)
    norms = trace.gradients_by_name["gradients"].values
    low, high = (float(number) for number in scale.inner_text().split("\n")[:2])
    assert math.isclose(low, norms[norms > 0].min(), rel_tol=0.01)
    assert math.isclose(high, norms[norms > 0].max(), rel_tol=0.01)
    page.locator(".part.gradients .heat canvas").focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("Home")
    expect(page.locator("#spoken")).to_contain_text("norm ")
    assert math.isclose(float(page.locator("#spoken").text_content().rpartition(" ")[2]), norms[0, 0], rel_tol=0.01)
    page.click(".part.gradients summary:has-text('As a table')")
    cells = page.locator(".part.gradients tbody td")
    assert math.isclose(float(cells.first.inner_text()), norms[0, 0], rel_tol=0.01)
    assert cells.nth(1).inner_text() == "0"  # of a word that came later
    assert cells.last.inner_text() == "–"  # nothing came after the last word
