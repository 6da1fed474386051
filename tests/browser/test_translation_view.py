"""The view Translation: what beam search finds, another beginning, and a whole file."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from regard.runs.load import load

TEXT = "The cat is here."


@pytest.fixture(scope="session")
def translator(trained_folder):
    return load(trained_folder / "transformer", device="cpu")


def open_view(lab, page, more=""):
    page.goto(f"{lab.url}#/translation?run=transformer&text={quote(TEXT)}{more}")
    page.wait_for_selector(".panel:not([aria-busy]) .words button")


def test_the_translation_is_that_of_translate_and_its_words_are_linked(lab, page, translator):
    open_view(lab, page)
    assert page.inner_text(".answer") == (translator.translate(TEXT) or "(empty)")
    page.locator(".words").last.locator("button").first.hover()
    lit = "() => [...document.querySelectorAll('.words')[{}].children].filter(one => one.style.background).length"
    page.wait_for_function(f"() => ({lit.format(0)})() === {len(TEXT) + 1}")  # letters, and the end
    page.locator(".words").first.locator("button").nth(1).hover()
    page.wait_for_function(f"() => ({lit.format(1)})() > 0")
    page.click("button:has-text('Search')")
    trace = translator.trace(TEXT)
    page.wait_for_selector(".tree")
    expect(page.locator(".search tbody tr")).to_have_count(sum(branch.rank > 0 for branch in trace.beam))


def test_another_word_and_the_rest_is_translated_again(lab, page, translator):
    open_view(lab, page)
    first = page.inner_text(".answer")
    page.locator(".words").last.locator("button").first.click()
    page.locator(".choice-row button.word").first.click()
    page.wait_for_selector("text=The translation must begin with")
    page.wait_for_selector(".panel:not([aria-busy])")
    begins = page.evaluate("() => new URLSearchParams(location.hash.split('?')[1]).get('prefix')")
    assert len(begins) == 1
    answer = page.inner_text(".answer")
    assert answer == (translator.trace(TEXT, prefix=begins).translation or "(empty)")
    page.click("text=Clear the prefix")
    page.wait_for_function("text => document.querySelector('.answer').textContent === text", arg=first)


@pytest.mark.slow
def test_a_whole_file_has_its_score_by_length_and_its_worst_sentences(lab, page, translator):
    page.goto(f"{lab.url}#/translation/file?run=transformer&data=valid")
    page.click("text=Translate everything")
    page.wait_for_selector(".differences li", timeout=120_000)
    true = translator.evaluate("valid")
    assert f"{true['sentences']} sentences" in page.inner_text(".cards")
    shown = float(page.inner_text(".bleu"))
    assert abs(shown - true["bleu"]["score"]) <= 0.005 * max(1, shown)
    page.locator("svg.plot circle").first.wait_for(state="attached")
    page.locator(".differences .source a").first.click()
    page.wait_for_selector(".panel .words button")


def test_maps_belong_to_the_sentence_that_is_shown(lab, page):
    page.goto(f"{lab.url}#/translation?run=transformer&text=The cat sees the house.")
    expect(page.locator(".panel .words").first).to_contain_text("T")
    page.route("**/translation/trace", lambda route: None)  # the next answer does not come
    with page.expect_request("**/translation/trace"):
        page.get_by_role("textbox", name="Source").fill("My dog")
    with page.expect_request("**/translation/matrix") as asked:
        page.get_by_role("button", name="Attention", exact=True).click()
    assert asked.value.post_data_json["text"] == "The cat sees the house."
    page.unroute_all(behavior="ignoreErrors")


def test_a_translation_that_is_too_long_to_look_at_is_refused_at_once(lab, page):
    body = {"run": "transformer", "text": "The cat", "target": "le " * 1600}
    answer = page.request.post(f"{lab.url}api/translation/trace", data=body)
    assert answer.status == 400
    assert "is too long: the page shows at most 400" in answer.json()["error"]
