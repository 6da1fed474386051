"""Changing a part of a model in the lab: what the page shows is what `run.trace(intervene=…)` computes."""

from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import expect

from regard.insight.interventions.ablation import ablate
from regard.insight.interventions.lens import lens
from regard.insight.interventions.patching import patch
from regard.insight.interventions.reading import read_text
from regard.insight.interventions.replacing import replacements
from regard.runs.load import load

TEXT, OTHER, LONGER = "The cat sees a tree", "The dog sees a tree", "The cat sees the house"


@pytest.fixture(scope="module")
def gpt(trained_folder):
    return load(trained_folder / "gpt", device="cpu")


def open_view(lab, page, run, *, view="sentence", text=TEXT, **query):
    words = "".join(f"&{key}={quote(value)}" for key, value in query.items())
    page.goto("about:blank")
    page.goto(f"{lab.url}#/{view}?run={run}&text={quote(text)}{words}")
    page.wait_for_selector(".panel:not([aria-busy]) .words button, .time .words button")


def changes_in(page):
    return parse_qs(urlsplit(page.url).fragment.partition("?")[2]).get("change", [])


def changed_to(page, step):
    """log P after the change of the word that followed a step, once the table is there."""
    page.wait_for_selector(":not([aria-busy]) > .compared:not([hidden]) tbody tr")
    cells = page.locator(".compared table").first.locator("tbody tr").nth(step).locator("td").all_inner_texts()
    return float(cells[2].replace("−", "-"))


def log_of(trace, step):
    from math import log

    return log(trace.probability[step])


def part_of(page):
    return page.locator("select[aria-label^='Part of']")


def test_a_head_is_removed_and_both_sides_show_the_same_head(lab, page, gpt):
    open_view(lab, page, "gpt", show="attention")
    page.locator(".words button").nth(6).click()
    page.locator(".sheet canvas").focus()
    for key in ("PageUp", "Home", "ArrowRight", "ArrowRight"):  # the mean, then heads 1 and 2 of the first layer
        page.keyboard.press(key)
    assert part_of(page).input_value() == "self/0[1]"
    page.get_by_role("button", name="Remove", exact=True).click()
    without = gpt.trace(TEXT, intervene={"self/0[1]": 0.0})
    for step in (0, 6, 15):
        assert abs(changed_to(page, step) - log_of(without, step)) < 0.006
    names = page.locator(".head-name")
    expect(names).to_have_text(["Self-attention, layer 1, head 2"] * 2)
    assert part_of(page).input_value() == "self/0[1]"  # still the chosen part
    assert changes_in(page) == ["zero self/0[1] gpt"]
    address = page.url
    page.goto("about:blank")
    page.goto(address)  # a colleague opens it
    assert abs(changed_to(page, 6) - log_of(without, 6)) < 0.006
    expect(names).to_have_text(["Self-attention, layer 1, head 2"] * 2)
    expect(page.locator(".compared tr.at th")).to_have_text("a")  # the step that was chosen
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.locator(".compared")).to_be_hidden()
    assert changes_in(page) == []


def test_a_word_is_swapped_with_the_other_text(lab, page, gpt):
    open_view(lab, page, "gpt")
    page.locator(".words button").nth(5).click()
    assert part_of(page).input_value() == "embedding@5"
    page.get_by_role("button", name="Swap in from another text").click()
    field = page.get_by_label("Text to take values from")
    expect(field).to_be_focused()
    field.fill(OTHER)
    field.press("Enter")
    readings = [read_text(gpt.model, gpt.tokenizer, text) for text in (TEXT, OTHER)]
    swapped = gpt.trace(TEXT, intervene=replacements(["swap embedding@5"], *readings))
    assert abs(changed_to(page, 5) - log_of(swapped, 5)) < 0.006
    assert log_of(swapped, 4) == pytest.approx(log_of(gpt.trace(TEXT), 4))  # nothing before it changes
    page.get_by_role("button", name="Replace with mean").click()  # the same place: instead of the swap
    page.wait_for_function("() => location.hash.includes('mean+embedding')")
    assert changes_in(page) == ["mean embedding@5 gpt"]


def test_a_gate_of_an_lstm_is_closed_at_one_word(lab, page, trained_folder):
    open_view(lab, page, "lstm", show="states", look="layer/0/forget")
    page.locator(".part.states .heat canvas").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    options = part_of(page).locator("option").evaluate_all("all => all.map((one) => one.value)")
    assert [one.split("@")[0] for one in options] == ["layer/0/forget[0]"] * 2 + ["layer/0/forget"] * 2
    place = options[2]
    part_of(page).select_option(place)
    page.get_by_role("button", name="Remove", exact=True).click()
    closed = load(trained_folder / "lstm", device="cpu").trace(TEXT, intervene={place: 0.0})
    step = int(place.rpartition("@")[2])
    assert abs(changed_to(page, step) - log_of(closed, step)) < 0.006


def test_the_lens_is_a_grid_and_a_row_of_the_ablation_applies_itself(lab, page, gpt):
    reading = read_text(gpt.model, gpt.tokenizer, TEXT)
    open_view(lab, page, "gpt", show="causes")
    page.wait_for_selector(".lens")
    found = lens(reading)
    rows = page.locator(".lens tbody tr")
    expect(rows).to_have_count(len(found.layers))
    shown = rows.last.locator("td").all_inner_texts()
    assert [word.replace("␣", " ") for word in shown] == [top[0][0].replace("␣", " ") for top in found.layers[0].top]
    page.locator(".lens td").last.focus()
    page.keyboard.press("ArrowLeft")
    assert "KL divergence from the final prediction" in page.locator("#spoken").text_content()
    page.get_by_role("button", name="Remove each part").click()
    page.wait_for_selector(".effects tbody tr")
    effects = ablate([reading], "heads").effects
    expect(page.locator(".effects tbody th")).to_have_text([one.name for one in effects])
    worst = effects[0]
    assert abs(float(page.locator(".effects td.right").first.inner_text().replace("−", "-")) - worst.effect) < 0.0006
    page.locator(".effects tbody button").first.click()
    without = gpt.trace(TEXT, intervene={worst.name: 0.0})
    assert abs(changed_to(page, 3) - log_of(without, 3)) < 0.006


def test_a_cell_of_the_patching_swaps_that_part(lab, page, gpt):
    readings = [read_text(gpt.model, gpt.tokenizer, text) for text in (TEXT, OTHER)]
    answers = (readings[0].token("t"), readings[0].token("h"))
    open_view(lab, page, "gpt", show="causes", ask="patch", other=OTHER, why="t", **{"not": "h"})
    canvas = page.locator(".answered .heat canvas")
    canvas.focus()
    page.keyboard.press("Home")
    grid = patch(*readings, "layers", answers)
    assert "restores" in page.locator("#spoken").text_content()
    expect(page.locator(".answered h3")).to_contain_text(f"after “{grid.columns[-1]}”")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('change=swap')")
    way, place, run = changes_in(page)[0].split(" ")
    assert (way, run) == ("swap", "gpt")
    assert place.split("@")[0] in grid.rows
    page.wait_for_selector(".compared:not([hidden]) tbody tr")
    page.locator(".words button").nth(5).click()  # another step is compared
    expect(page.locator(".answered h3")).to_contain_text("after “c”")
    page.get_by_label("Other text, of equal length").fill(LONGER)
    page.keyboard.press("Tab")
    expect(page.locator(".answered .problem")).to_contain_text("patching needs equal lengths")


def test_why_a_and_not_b_says_how_faithful_each_method_is(lab, page):
    open_view(lab, page, "lstm", show="causes", ask="why")
    expect(page.locator(".answered .problem")).to_have_text("Type the two words to compare.")
    page.get_by_label("Why this word").focus()
    page.keyboard.type("s")
    page.keyboard.press("Tab")
    page.keyboard.type("e")  # into the second field, which stays where it is
    page.keyboard.press("Enter")
    expect(page.locator(".answered")).to_contain_text("Completeness error of the integrated gradients")
    expect(page.locator(".answered")).to_contain_text("lower is more faithful")
    page.get_by_role("button", name="Head roles").click()
    expect(page.locator(".answered .problem")).to_contain_text("has no causal attention")


def test_a_changed_translator_says_what_it_would_write(lab, page):
    run, text = load("gallery/transformer", device="cpu"), "The children are playing."
    name, place = "gallery/transformer", "encoder/0/heads[3]"
    open_view(lab, page, name, view="translation", text=text, change=f"zero {place} {name}")
    own = run.trace(text, intervene={place: 0.0}).translation
    assert own != run.translate(text)
    expect(page.locator(".compared")).to_contain_text(f"With this change, the translation would be “{own}”.")
    with_target = run.trace(text, target=run.translate(text), intervene={place: 0.0})
    assert abs(changed_to(page, 1) - log_of(with_target, 1)) < 0.006
    page.locator(".words").first.locator("button").nth(1).click()  # a source word
    assert part_of(page).input_value() == "encoder/embedding@1"
    open_view(lab, page, name, view="translation", text=text, change=f"zero self/9 {name}")
    expect(page.locator(".changed .problem")).to_contain_text("There is no place 'self/9'")


def test_a_snapshot_is_changed_in_time(lab, page, trained_folder):
    open_view(lab, page, "lstm", view="time", at="8", change="zero layer/0/forget@3 lstm")
    early = load(trained_folder / "lstm", weights="8", device="cpu").trace(TEXT, intervene={"layer/0/forget@3": 0.0})
    assert abs(changed_to(page, 3) - log_of(early, 3)) < 0.006
    page.locator("input[type=range]").focus()
    page.keyboard.press("End")
    page.wait_for_selector(".time[data-moment='24']")
    late = load(trained_folder / "lstm", weights="24", device="cpu").trace(TEXT, intervene={"layer/0/forget@3": 0.0})
    page.wait_for_function(
        "wanted => Math.abs(Number(document.querySelectorAll('.compared table tbody tr')[3].cells[3].textContent"
        ".replace('−', '-')) - wanted) < 0.006",
        arg=log_of(late, 3),
    )
    page.get_by_role("button", name="Causes").click()
    page.wait_for_selector(".time .lens")


def test_the_saved_page_has_before_and_after(lab, page, gpt, tmp_path):
    open_view(lab, page, "gpt", show="causes", step="6", change="zero self/0[1] gpt")
    changed_to(page, 6)
    page.wait_for_selector(".lens")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as HTML").click()
    file = tmp_path / "saved.html"
    download.value.save_as(file)
    page.goto(file.as_uri())
    without = gpt.trace(TEXT, intervene={"self/0[1]": 0.0})
    assert abs(changed_to(page, 6) - log_of(without, 6)) < 0.006
    expect(page.locator(".compared:not([hidden])")).to_contain_text("Changed: zero self/0[1].")
    page.wait_for_selector(".lens")
    page.locator(".words:visible").first.locator("button").nth(2).click()
    expect(page.locator(".compared tr.at th")).to_have_text("h")  # the comparison follows the chosen word
