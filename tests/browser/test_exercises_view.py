"""The view Exercises, the links to and from it, and what a read-only lab and a presentation show."""

import pytest

from regard.learn.exercises.exercise_list import EXERCISES, find_exercise
from regard.learn.lectures.lecture_pages import get_lecture

BLANK = 'raise NotImplementedError("return the mask")'
SQUARE = "return torch.ones(length, length, dtype=torch.bool)"


def fill(page, body):
    page.fill("textarea.code", find_exercise("causal-mask").sheet.replace(BLANK, body))


def test_an_exercise_is_written_checked_and_solved(lab, page):
    page.goto(lab.address + "#/exercises")
    page.wait_for_selector(".claim.exercise")
    assert page.locator(".claim.exercise").count() == len(EXERCISES)
    solved = int(page.inner_text(".solved b").split()[0])
    page.click(".claim.exercise:has-text('causal-mask')")
    page.wait_for_selector("textarea.code")
    assert not page.is_visible(".own")
    for number, hint in enumerate(find_exercise("causal-mask").hints, 1):
        page.click(f"text=Hint {number} of 3")
        assert page.locator(".hints li").nth(number - 1).inner_text() == hint
    assert not page.is_visible("text=Hint 4")
    fill(page, f"{SQUARE}.tril(-1)")
    page.click("button:text-is('Check')")
    page.wait_for_selector(".grade.is-wrong:has-text('the mask hides the diagonal')")
    fill(page, f"{SQUARE}.tril()")
    page.locator("textarea.code").press("Control+Enter")
    page.wait_for_selector(".grade.is-right")
    page.wait_for_selector(".own pre:has-text('def visible')")
    page.click(".path a")
    page.wait_for_selector(".claim.exercise:has-text('causal-mask') .verdict.holds")
    assert int(page.inner_text(".solved b").split()[0]) == solved + 1
    page.click(".claim.exercise:has-text('causal-mask')")  # the answer is kept
    page.wait_for_selector(".own pre")
    assert ".tril()" in page.input_value("textarea.code")


def test_keys_of_the_editor(lab, page):
    page.goto(lab.url + "#/exercises/rnn-step")
    area = page.locator("textarea.code")
    area.fill("def f():")
    area.press("End")
    area.press("Enter")
    area.press("x")
    assert area.input_value() == "def f():\n    x"
    area.press("Enter")
    area.press("Tab")
    area.press("y")
    assert area.input_value() == "def f():\n    x\n        y"
    area.press("Shift+Tab")
    assert area.input_value() == "def f():\n    x\n    y"
    area.press("Escape")
    area.press("Tab")  # no trap for a keyboard
    assert page.evaluate("document.activeElement.tagName") != "TEXTAREA"
    page.reload()  # not checked, and not lost
    page.wait_for_selector("textarea.code")
    assert area.input_value() == "def f():\n    x\n    y"


def test_without_the_token_nothing_is_run(lab, page):
    page.goto(lab.url + "#/exercises/causal-mask")
    page.wait_for_selector(".problem:has-text('the URL that `regard lab` printed')")
    assert page.is_disabled("button:text-is('Check')")


def test_a_chapter_leads_to_views_claims_and_exercises(lab, page):
    page.goto(lab.url + "#/lectures/translation")
    page.wait_for_selector(".lecture-part")
    links = page.locator(".beside-it a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    entries = get_lecture("translation").entries
    assert {f"#/exercises/{name}" for one in entries for name in one.exercises} <= set(links)
    assert {f"#/claims/{name}" for one in entries for name in one.claims} <= set(links)
    assert "#/new?system=seq2seq&data=phrasebook&size=tiny" in links
    assert "#/translation?run=gallery%2Fbahdanau&text=The+black+cat+sleeps." in links
    page.click("a[href*='gallery%2Fbahdanau'][href*='black+cat']")
    page.wait_for_selector(".strip button:has-text('black')")  # with run and text filled in


def test_every_view_says_how_it_is_read_and_links_to_a_section_that_exists(lab, page):
    page.goto(lab.url)
    page.wait_for_selector("#views a")
    found = page.evaluate("async () => (await import('./how.js')).HOW")
    views = page.locator("#views a").evaluate_all("all => all.map(one => one.dataset.view)")
    assert set(views) == set(found)
    for sentence, marks, chapter, section in found.values():
        assert sentence.endswith(".")
        assert marks
        assert not section or section in get_lecture(chapter).markdown
    for view in ("sentence", "text"):
        page.goto(f"{lab.url}#/{view}")
        page.wait_for_selector(f".view.{view}")
        page.click(".how summary")
        assert found[view][0] in page.inner_text(".how p")
        assert "␣" in page.inner_text(".how dl")
    page.click(".how a")
    page.wait_for_selector(f"h2:has-text('{found['text'][3]}')")


# All parts of the lecture are asked at one moment: the page may answer a key a little later.
ONLY = (
    "only => [...document.querySelectorAll('.lecture-part')].every((one, n) => one.checkVisibility() === (n === only))"
)


def test_a_presentation_shows_one_figure_and_moves_by_keys(lab, page):
    page.goto(lab.url + "#/lectures/attention")
    page.wait_for_selector(".lecture-part")
    parts = page.locator(".lecture-part")
    page.click("#present")
    for key, shown in (("", 0), ("ArrowRight", 1), ("PageDown", 2), ("ArrowLeft", 1), ("PageUp", 0), ("ArrowLeft", 0)):
        if key:
            page.keyboard.press(key)
        page.wait_for_function(ONLY, arg=shown)
    assert page.inner_text(".presenting").startswith(f"1 of {parts.count()}")
    assert not page.is_visible("#views")
    page.keyboard.press("Escape")
    parts.last.wait_for(state="visible")
    page.wait_for_selector("#views")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_new_views_fit_their_window(lab, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    for address, there in {"exercises": ".claim.exercise", "exercises/multi-head": "textarea.code"}.items():
        page.goto(f"{lab.url}#/{address}")
        page.wait_for_selector(there)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_read_only_lab_offers_nothing_that_it_refuses(lab_over, page, trained_folder):
    lab = lab_over(trained_folder, "--read-only")
    page.goto(lab.url + "#/runs?run=lstm")
    page.wait_for_selector(".run-card h2")
    page.wait_for_selector("#read-only:visible")
    for name in ("New run", "Delete", "Fine-tune"):
        assert page.locator(f".runs >> text={name}").count() > 0
        assert not page.locator(f".runs >> text={name}").first.is_visible()
    page.goto(lab.url + "#/exercises/causal-mask")
    page.wait_for_selector(".problem:has-text('read-only')")
    refused = page.request.post(lab.url + "api/runs/delete", data={"run": "lstm"})
    assert (refused.status, (trained_folder / "lstm").is_dir()) == (403, True)
    page.goto(lab.url + "#/sentence?run=gpt&text=The+cat")  # looking works
    page.wait_for_selector(".choice-row")
