"""The view Sentence: its numbers are those of `regard inspect` and `regard generate`; it works by keyboard."""

import math
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from regard.decoding.sampling import Sampling
from regard.runs.load import load

TEXT = "The cat sees a tree"


@pytest.fixture(scope="session")
def gpt(trained_folder):
    return load(trained_folder / "gpt", device="cpu")


def open_view(lab, page, runs=("gpt", "lstm"), text=TEXT, show=""):
    words = "".join(f"run={run}&" for run in runs)
    page.goto(f"{lab.url}#/sentence?{words}text={quote(text)}&show={show}")
    for run in runs:
        page.wait_for_selector(f".panel[data-run={run}]:not([aria-busy]) .words button")


def percent(shown):
    return float(shown.replace("\N{NO-BREAK SPACE}%", "").replace("<", "")) / 100


def test_every_word_has_the_probability_that_inspect_tells(lab, page, gpt):
    open_view(lab, page)
    trace = gpt.trace(TEXT)
    panel = page.locator(".panel[data-run=gpt]")
    shown = [percent(text) for text in panel.locator(".words .p").all_inner_texts()]
    assert len(shown) == len(TEXT)
    for told, true in zip(shown, trace.probability):
        assert math.isclose(told, true, rel_tol=0.06, abs_tol=0.0051 if true >= 0.0995 else 1e-4)
    panel.locator(".words button").nth(4).click()
    said = panel.locator(".said").inner_text()
    assert f"Step 4 of {trace.steps - 1} reads “␣”." in said
    assert f"rank {trace.rank[4]}." in said
    other = page.locator(".panel[data-run=lstm]")  # its words are letters, too
    assert other.locator(".words button[aria-pressed=true]").inner_text().startswith("␣")
    first = panel.locator(".choice-row .word").first.inner_text()
    assert first.replace("␣", " ") == trace.top[4][0].token


def test_all_heads_are_seen_and_a_cell_is_read_by_keyboard(lab, page, gpt):
    open_view(lab, page, ("gpt",), show="attention")
    trace = gpt.trace(TEXT)
    heads = [len(weights) for weights in trace.attention.values()]
    page.wait_for_selector(f".sheet canvas[data-drawn='{sum(count + (count > 1) for count in heads)}']")
    sheet = page.locator(".sheet canvas")
    sheet.focus()
    for key in ("PageUp", "Home", "PageDown", "End"):
        page.keyboard.press(key)
    name = page.locator(".head-name").inner_text()
    assert page.locator("#spoken").text_content() == name
    expect(sheet).to_have_attribute("data-chosen", name)
    sheet.click(position={"x": 130, "y": 20})  # the first of the first layer
    page.wait_for_selector(".head-name:has-text('layer 1')")
    page.keyboard.press("PageDown")
    page.keyboard.press("End")
    page.locator(".part.attention .heat canvas").focus()
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")  # the last row, the first column
    said = page.locator("#spoken").text_content()
    row, column, weight = re.fullmatch(r"“(.)” attended to “(.*)”: ([\d.]+)", said).groups()
    last = list(trace.attention.values())[-1][-1]
    assert (row, column) == ("e", "<eos>")
    assert abs(float(weight) - last[-1, 0]) < 0.0075
    assert f"layer {len(heads)}" in name
    page.click(".part.attention summary:has-text('As a table')")
    page.wait_for_selector(".part.attention tbody tr")
    expect(page.locator(".part.attention tbody tr")).to_have_count(trace.steps)


def test_states_and_gradients_are_drawn(lab, page, trained_folder):
    open_view(lab, page, ("lstm",), show="states")
    page.locator(".part.states select").select_option(label="Layer 1: forget gate")
    page.wait_for_selector(".part.states .readout:has-text('forget gate')")
    page.click("button:has-text('Gradients')")
    page.click("button:has-text('Compute the gradients')")
    page.wait_for_selector(".part.gradients .scale i")
    assert "loss at" in page.inner_text(".part.gradients")
    page.locator(".part.gradients .heat canvas").focus()
    for key in ("PageDown", "ArrowUp", "Home"):  # the last row that has a next word, the first column
        page.keyboard.press(key)
    said = page.locator("#spoken").text_content()
    row, column, norm = re.fullmatch(
        r"gradient of the loss at “(.*)” with respect to “(.*)”: norm ([\d.e×⁻⁰¹²³⁴⁵⁶⁷⁸⁹-]+)", said
    ).groups()
    slopes = load(trained_folder / "lstm", device="cpu").trace(TEXT, gradients=True).gradients_by_name["gradients"]
    assert (row, column) == (slopes.rows[-2], slopes.columns[0])
    assert math.isclose(float(norm), slopes.values[-2][0], rel_tol=0.06)


def test_an_alternative_goes_on_from_there_or_replaces_one_word(lab, page):
    open_view(lab, page, ("gpt",))
    words = page.locator(".words button")
    words.nth(4).click()  # after "The "
    token = page.locator(".choice-row button.word").first.inner_text().replace("␣", " ").replace("⏎", "\n")
    page.locator(".choice-row .swap").first.click()
    page.wait_for_selector(".changed-note:has-text('Changed from')")
    assert page.input_value("textarea") == TEXT[:4] + token + TEXT[5:]
    page.click("text=Undo")
    page.wait_for_function("text => document.querySelector('textarea').value === text", arg=TEXT)
    page.wait_for_selector(".panel:not([aria-busy])")
    words.nth(4).click()
    page.locator(".choice-row button.word").first.click()
    page.wait_for_function("text => document.querySelector('textarea').value === text", arg=TEXT[:4] + token)
    assert "text=" in page.url


def test_the_sliders_move_the_distribution_that_generate_draws_from(lab, page, gpt):
    open_view(lab, page, ("gpt",), show="write")
    page.wait_for_selector(".write .choice-row")
    for slider, value in (("temperature", "0.5"), ("top-k", "3")):
        page.locator(f".sliders label:has-text('{slider}') input").fill(value)
    page.wait_for_function("() => document.querySelectorAll('.write .choice-row:not(.out)').length === 3")
    true = gpt.choices(TEXT, Sampling(0.5, top_k=3), top=3)
    shown = page.locator(".write .choice-row:not(.out) .number").all_inner_texts()
    for told, one in zip(shown, true):
        assert abs(percent(told) - one.drawn) < 0.006
    page.locator(".sliders label:has-text('temperature') input").fill("0")
    page.wait_for_function("() => document.querySelectorAll('.write .choice-row:not(.out)').length === 1")
    page.click("text=Generate one token")
    page.wait_for_function("text => document.querySelector('textarea').value !== text", arg=TEXT)
    assert page.input_value("textarea") == gpt.generate(TEXT, max_tokens=1, temperature=0)


def test_what_is_too_long_is_said_and_what_looks_like_code_is_text(lab, page):
    open_view(lab, page, ("gpt",), text='<img src=x onerror=alert(1)>"')
    assert page.locator("main img").count() == 0
    page.fill("textarea", "a" * 6000)
    page.wait_for_selector(".panel .problem:has-text('characters')")
    page.fill("textarea", "a" * 900)
    page.wait_for_selector(".panel .problem:has-text('at most')")
    page.fill("textarea", "a cat")
    page.wait_for_selector(".panel .words button >> nth=5")
    assert page.inner_text(".panel .problem") == ""


def test_the_page_that_is_saved_is_that_of_inspect_for_all_runs(lab, page, tmp_path):
    open_view(lab, page)
    with page.expect_download() as saved:
        page.click("text=Save as HTML")
    file = tmp_path / "page.html"
    saved.value.save_as(file)
    page.goto(file.as_uri())
    page.wait_for_selector(".card .words button")
    assert page.locator(".card h2").all_inner_texts() == ["gpt", "lstm"]
    assert page.locator(".words button").count() == 2 * (len(TEXT) + 1)


def test_it_opens_on_the_same_held_out_sentence_and_offers_the_next(lab, page, gpt):
    from regard.web.lab.held_out import held_out

    page.goto(f"{lab.url}#/sentence?run=gpt")
    page.wait_for_selector(".panel:not([aria-busy]) .words button >> nth=3")
    first = page.input_value("textarea")
    held = [line for line, _ in held_out(lab.folder / "gpt")]
    assert first in held
    assert first not in list(gpt.corpus().splits["train"])
    expect(page.locator(".changed-note")).to_contain_text("held out from training")
    page.goto("about:blank")
    page.goto(f"{lab.url}#/sentence?run=gpt")
    page.wait_for_function("text => document.querySelector('textarea')?.value === text", arg=first)
    page.get_by_role("button", name="Held-out sentence").click()
    page.wait_for_function("text => document.querySelector('textarea').value !== text", arg=first)
    assert page.input_value("textarea") in held


def test_bars_are_relative_to_the_longest(lab, page):
    open_view(lab, page, ("gpt",))
    widths = page.evaluate("() => [...document.querySelectorAll('.expected .chance i')].map((one) => one.style.width)")
    assert max(float(width.rstrip("%")) for width in widths) == 100


def test_a_run_that_has_hardly_learned_says_so(lab, page, trained_folder):
    from regard.web.lab.held_out import progress_of

    found = progress_of(trained_folder / "gpt")
    assert found["perplexity"] > found["bigram"] > 1  # it trained for a few steps on letters
    open_view(lab, page, ("gpt", "ngram"))
    expect(page.locator(".panel[data-run=gpt] .not-learned")).to_contain_text(
        "after 24 steps: this model has hardly learned anything yet"
    )
    expect(page.locator(".panel[data-run=ngram] .not-learned")).to_be_hidden()
    page.goto(f"{lab.url}#/translation?run=transformer&text={quote('The cat is here.')}")
    expect(page.locator(".panel[data-run=transformer] .not-learned")).to_contain_text("hardly learned anything yet")
    expect(page.locator(".aligned canvas")).to_have_count(0)
    page.get_by_role("button", name="Show it anyway").click()
    expect(page.locator(".aligned canvas")).to_be_visible()
