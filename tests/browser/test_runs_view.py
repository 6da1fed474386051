"""The view Runs in a browser: what is there, what trains now, and what can be done with it."""

import json
import re
import time

import pytest
from playwright.sync_api import expect


def post(lab, page, path, body):
    return page.request.post(f"{lab.url}api/{path}", data=json.dumps(body))


def seen(page):
    """The tour was taken before."""
    page.add_init_script("try { localStorage.setItem('tour', 'seen'); } catch { /* about:blank */ }")


def test_every_run_is_listed_with_its_state_and_score(lab, page):
    seen(page)
    page.goto(lab.url)
    for name in ("ngram", "lstm", "gpt", "transformer"):
        expect(page.get_by_role("link", name=re.compile(f"^{name} .*{name} · .*done$"))).to_be_visible()
    expect(page.get_by_role("link", name=re.compile(r"^lstm ppl [0-9.]+ lstm · my.txt · "))).to_be_visible()


def test_an_address_shows_the_same_to_a_colleague(lab, page):
    seen(page)
    page.goto(f"{lab.url}#/runs?show=lstm&show=gpt&run=gpt&metric=perplexity&log=y&x=step&lines=validation")
    expect(page.locator(".run-card h2")).to_have_text("gpt")
    expect(page.get_by_role("button", name="Perplexity")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".plot .line")).to_have_count(2)
    expect(page.locator(".chart .caption")).to_contain_text("Perplexity (per token) against steps")


def test_what_is_chosen_stands_in_the_address(lab, page):
    seen(page)
    page.goto(f"{lab.url}#/runs?show=gpt&show=lstm")
    page.get_by_role("checkbox", name="Show gpt").uncheck()
    page.get_by_role("button", name="Tokens/s").click()
    page.get_by_role("checkbox", name="log x").check()
    assert "metric=tokens_per_second" in page.url
    assert "log=x" in page.url
    assert "show=gpt" not in page.url
    assert "show=lstm" in page.url


def test_a_curve_is_read_with_the_keyboard_and_as_a_table(lab, page):
    seen(page)
    page.goto(f"{lab.url}#/runs?show=lstm&lines=validation&x=step")
    expect(page.locator(".plot .line")).to_have_count(1)
    page.locator(".plot").focus()
    page.keyboard.press("Home")
    expect(page.locator("#spoken")).to_contain_text("at 8 steps")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_contain_text("lstm, validation")
    expect(page.locator("#spoken")).to_contain_text("at 16 steps")
    page.get_by_text("As a table").click()
    expect(page.locator(".chart tbody th")).to_have_text("lstm, validation")


def test_a_run_says_what_it_writes_and_its_text_stays_text(lab, page):
    seen(page)
    page.goto(f"{lab.url}#/runs?run=ngram")
    page.wait_for_selector(".run-card .facts:has-text('perplexity')")  # counted, and validated like the others
    expect(page.locator(".samples pre")).to_be_visible()
    page.goto(f"{lab.url}#/runs?run=transformer")
    expect(page.locator(".samples dt").first).to_have_text("source")
    assert page.locator(".samples b, .samples script").count() == 0


@pytest.mark.slow
def test_a_run_is_started_from_the_form_watched_stopped_and_goes_on(own_lab, page, text_file):
    """A file is dropped in and checked, a wrong value is refused where it is typed, the estimate comes, it trains."""
    seen(page)
    page.add_init_script("const run = setTimeout; setTimeout = (act, wait) => run(act, wait > 9000 ? 60 * wait : wait)")
    page.goto(f"{own_lab.url}#/new?system=lstm&size=tiny")
    page.locator("input[type=file]").set_input_files(text_file)
    expect(page.locator(".findings caption")).to_have_text("Findings")
    expect(page.locator(".findings")).to_contain_text("80")  # lines
    steps = page.get_by_label("steps", exact=True)
    steps.fill("none")
    expect(page.locator(".problem", has_text="training.steps must be a whole number")).to_be_visible(timeout=120_000)
    expect(page.get_by_role("button", name="Start training")).to_be_disabled()
    steps.fill("100000")
    page.get_by_label("batch tokens").fill("256")
    expect(page.locator("aside .facts")).to_contain_text("tokens/s")
    page.get_by_label("Name").fill("mine")
    page.get_by_role("button", name="Start training").click()

    expect(page.locator(".run-card .state")).to_contain_text("Training: step")
    expect(page.locator(".plot .line").first).to_be_attached()
    before = page.locator(".run-card .state").text_content()
    expect(page.locator(".run-card .state")).not_to_have_text(before)  # new points come by themselves
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=120_000)
    stopped = page.locator(".run-card .state").text_content()
    assert stopped.strip().startswith("Stopped: step")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".run-card .state")).to_contain_text("Training: step")
    page.goto("about:blank")  # nobody looks, and it trains
    end = time.monotonic() + 600
    rows = (own_lab.folder / "mine" / "metrics.jsonl").read_text().count("\n")
    while (own_lab.folder / "mine" / "metrics.jsonl").read_text().count("\n") <= rows and time.monotonic() < end:
        time.sleep(0.2)
    assert (own_lab.folder / "mine" / "metrics.jsonl").read_text().count("\n") > rows
    page.goto(f"{own_lab.url}#/runs")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Delete")).to_be_visible(timeout=120_000)

    page.get_by_role("button", name="Delete").click()
    expect(page.locator(".notice")).to_contain_text("Deleted mine.")
    assert not (own_lab.folder / "mine").exists()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".run-card h2")).to_have_text("mine")
    assert (own_lab.folder / "mine" / "run.json").exists()


@pytest.mark.slow
def test_a_first_visit_has_a_model_within_two_clicks_and_a_tour_of_five_steps(own_lab, page):
    page.goto(own_lab.url)
    expect(page.get_by_role("heading", name="Look inside a trained model")).to_be_visible()
    page.locator(".card", has_text="gallery/gpt").get_by_role("link", name="Look inside").click()
    expect(page.get_by_role("heading", name="gallery/gpt")).to_be_visible(timeout=120_000)
    page.goto(own_lab.url)
    expect(page.get_by_role("heading", name="Watch a model learn")).to_be_visible()
    page.locator(".card", has_text="Count words with").get_by_role("button", name="Start").click()
    expect(page.locator(".run-card h2")).to_have_text("ngram-pyref")
    page.get_by_text("Models that come with Regard").click()
    expect(page.get_by_role("list", name="Models that come with Regard").get_by_role("link")).to_have_count(5)
    for _ in range(4):
        page.get_by_role("dialog", name="Tour").get_by_role("button", name="Next").click()
    page.get_by_role("dialog", name="Tour").get_by_role("button", name="Done").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.reload()
    expect(page.locator(".run-card h2")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
