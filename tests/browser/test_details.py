"""Small things that a reader of the lab stumbles over."""

import signal
import subprocess
from itertools import pairwise
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from regard.report.figures import Intervals, Mark
from regard.report.page import page as report_page
from regard.report.svg import svg

PRESSED = "run => document.querySelector(`[data-run=${run}] .words [aria-pressed=true] b`).textContent"


@pytest.fixture(scope="module")
def mixed(lab_over, mixed_folder):
    return lab_over(mixed_folder)


def open_sentence(lab, page, runs, text, show=""):
    page.goto("about:blank")
    words = "".join(f"run={run}&" for run in runs)
    page.goto(f"{lab.url}#/sentence?{words}text={quote(text)}&show={show}")
    for run in runs:
        page.wait_for_selector(f".panel[data-run={run}]:not([aria-busy]) .words button[aria-pressed=true]")


def test_two_runs_are_at_the_same_step_of_a_text_of_one_token(mixed, page):
    open_sentence(mixed, page, ("letters", "pieces"), "T")
    page.locator("[data-run=letters] .words button").first.click()
    assert page.evaluate(PRESSED, "letters") == page.evaluate(PRESSED, "pieces") == "<eos>"
    page.locator("[data-run=letters] .words button").last.click()
    page.wait_for_function(f"() => ({PRESSED})('pieces') === 'T'")
    assert page.locator(".in-short").all_inner_texts()[0].endswith("1 token")


def test_a_saved_page_of_two_runs_moves_as_one(mixed, page, tmp_path):
    open_sentence(mixed, page, ("letters", "pieces"), "The cat sees")
    with page.expect_download() as saved:
        page.click("text=Save as HTML")
    file = tmp_path / "page.html"
    saved.value.save_as(file)
    page.goto(file.as_uri())
    read = """place => [...document.querySelectorAll('.card')[place].querySelectorAll('.words button')]
        .map(one => [one.querySelector('b').textContent, one.getAttribute('aria-pressed')])"""
    page.wait_for_selector(".card .words [aria-pressed=true]")
    page.locator(".card").first.locator(".words button").last.click()  # all was read
    for place in (0, 1):
        words = page.evaluate(read, place)
        assert words[-1][1] == "true", words
    page.locator(".card").last.locator(".words button").first.click()
    for place in (0, 1):
        assert page.evaluate(read, place)[0] == ["<eos>", "true"]


def test_a_note_of_a_change_is_about_the_text_that_was_changed(mixed, page):
    open_sentence(mixed, page, ("letters",), "The cat sees a tree")
    note = page.locator(".changed-note")
    page.locator("textarea").focus()
    page.fill("textarea", "The dog sees a tree")
    expect(note).to_contain_text("Changed from “The cat sees a tree”")
    page.fill("textarea", "Nothing of it")
    expect(note).to_have_text("")
    page.evaluate("hash => { location.hash = hash }", f"#/sentence?run=letters&text={quote('The cat sees a house')}")
    page.wait_for_function("() => document.querySelector('textarea').value === 'The cat sees a house'")
    expect(note).to_have_text("")


def test_numbers_beside_hebrew_are_not_turned(mixed, page):
    open_sentence(mixed, page, ("hebrew",), "החתול רואה")
    assert page.locator(".words").last.get_attribute("dir") == "rtl"
    turned = page.evaluate("""() => [...document.querySelectorAll('.words .p, .choice-row .number')].filter((one) => {
        const text = one.firstChild, place = (at) => { const range = document.createRange();
            range.setStart(text, at); range.setEnd(text, at + 1); return range.getBoundingClientRect().left; };
        return place(0) > place(text.length - 1);
    }).map((one) => one.textContent)""")
    assert turned == []
    assert page.locator(".words button > b > bdi").count() == page.locator(".words button").count()
    page.click("text=All steps as a table")
    assert "\N{FIRST STRONG ISOLATE}" in page.locator(".reading .numbers tbody").last.inner_text()


def test_a_character_of_two_bytes_is_spelled_alike_everywhere(mixed, page, lab):
    open_sentence(mixed, page, ("hebrew",), "é")
    assert page.locator(".words bdi").all_inner_texts() == ["<eos>", "é 1/2", "é 2/2"]
    page.goto(f"{lab.url}#/text?corpus=copy&sentence={quote('é')}")
    row = page.locator(".tokenizer", has_text="Bytes")
    expect(row.locator(".piece")).to_have_text(["é 1/2", "é 2/2"])
    expect(row).to_contain_text("2 tokens for 1 character, 1 word.")


def test_writing_together_frames_the_word_that_its_bars_follow(mixed, page):
    open_sentence(mixed, page, ("letters", "pieces"), "The cat", show="write")
    for run, last in (("letters", "t"), ("pieces", None)):
        panel = page.locator(f".panel[data-run={run}]")
        word = panel.locator(".words b").last.inner_text()
        assert last in (None, word)
        expect(panel.locator(".write h3")).to_have_text(f"Possible words after “{word}”")
        assert panel.locator(".words button").last.get_attribute("aria-pressed") == "true"
        assert panel.locator(".words .next").count() == 0


def test_row_labels_do_not_cover_each_other(lab, page):
    page.add_init_script("""
        const drawn = new WeakMap(), {setTransform, fillText} = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.setTransform = function (...all) {  // where a map begins to be painted
            drawn.set(this.canvas, []); return setTransform.apply(this, all); };
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
            if (this.textAlign === 'right') drawn.get(this.canvas)?.push(y);
            return fillText.call(this, text, x, y, ...rest); };
        window.rowsOf = (canvas) => drawn.get(canvas) || [];""")
    text = "The cat sees the house. The dog likes a tree, my"
    open_sentence(lab, page, ("gpt", "lstm"), text, show="attention")
    canvas = page.locator("[data-run=gpt] .part.attention .heat canvas")
    rows = "() => window.rowsOf(document.querySelector('[data-run=gpt] .part.attention .heat canvas'))"
    page.wait_for_function(f"() => ({rows})().length > 5")
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        page.evaluate("async () => { for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame) }")
        places = sorted(page.evaluate(rows))
        assert len(places) < len(text)  # cells are lower than letters
        assert min(b - a for a, b in pairwise(places)) >= 12


def test_names_beside_intervals_stay_in_the_drawing(page, tmp_path):
    marks = [Mark("5-gram", 3.0, 2.0, 4.0), Mark("WWWW", 2.0, 1.0, 3.0), Mark("a" * 80, 1.0, 0.5, 1.5)]
    file = tmp_path / "report.html"
    file.write_text(report_page("T", svg(Intervals("scores", "perplexity", marks, best="5-gram"))), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector(".rungs .rung text.name")
    boxes = page.evaluate("() => [...document.querySelectorAll('.rung text.name')].map((one) => one.getBBox().x)")
    assert len(boxes) == 3
    assert min(boxes) >= 0


def test_the_text_view_says_what_it_is_doing_under_every_heading(lab, page):
    held = []
    page.route("**/api/text/statistics", lambda route: held.append(route))
    with page.expect_request("**/api/text/statistics"):
        page.goto(f"{lab.url}#/text?corpus=copy")
    for row in range(4):
        expect(page.locator(".tokenizer .pieces").nth(row)).to_have_text("Loading the text …")
    held[0].continue_()
    expect(page.locator(".tokenizer .cut")).to_have_count(4)


def test_the_tour_speaks_of_a_slider_only_where_there_is_one(lab, page):
    page.goto(f"{lab.url}#/runs?run=ngram")  # it has one sample
    page.wait_for_selector(".samples pre")
    tour = page.get_by_role("dialog", name="Tour")
    for _ in range(2):
        tour.get_by_role("button", name="Next").click()
    expect(tour.locator("h3")).to_have_text("Samples")
    assert page.locator(".samples input[type=range]").count() == 0
    assert "slider" not in tour.inner_text()


@pytest.fixture
def stopped_lab(tmp_path, text_file, lab_over, warm):
    """A lab over a run that was stopped with Ctrl-C."""
    folder = tmp_path / "runs" / "mine"
    few = ["--size", "tiny", "--training.batch-tokens", "256", "--training.threads", "1", "--model.width", "32"]
    words = ["train", "lstm", "--data", str(text_file), "--data.tokenizer", "char", *few]
    words += ["--training.steps", "1000000", "--training.evaluate-every", "8"]
    training = subprocess.Popen(
        [warm, "-P", "-m", "regard", *words, "--run", str(folder)], stderr=subprocess.PIPE, text=True
    )
    for line in training.stderr:  # until it has validated once
        if "validation loss" in line:
            break
    training.send_signal(signal.SIGINT)
    training.communicate()
    return lab_over(tmp_path / "runs")


def test_going_on_shows_at_once_and_cannot_be_asked_twice(stopped_lab, page):
    held = []
    page.add_init_script("try { localStorage.setItem('tour', 'seen'); } catch { /* about:blank */ }")
    page.route("**/api/runs/go-on", lambda route: held.append(route))
    page.goto(f"{stopped_lab.url}#/runs?run=mine")
    with page.expect_request("**/api/runs/go-on"):
        page.get_by_role("button", name="Resume").click()
    waiting = page.get_by_role("button", name="Starting …")
    expect(waiting).to_be_disabled()
    expect(page.locator(".run-card .state")).to_contain_text("Resuming from the last checkpoint")
    assert page.get_by_role("button", name="Delete").count() == 0
    held[0].continue_()
    expect(page.locator(".run-card .state")).to_contain_text("Training: step")
    assert len(held) == 1
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
