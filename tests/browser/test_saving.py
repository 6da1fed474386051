"""Every drawing can be saved: SVG, PNG and CSV are what is seen."""

import csv
import xml.etree.ElementTree as ET

from playwright.sync_api import expect

from regard.report.figures import Heat, Intervals, Line, Lines, Mark
from regard.report.page import page as report_page
from regard.report.svg import svg


def saved(page, button, tmp_path):
    with page.expect_download() as waiting:
        button.click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_a_chart_is_saved_as_a_drawing_a_picture_and_numbers(lab, page, tmp_path):
    page.goto(lab.url + "#/text?corpus=copy")
    page.wait_for_selector("svg.plot path.line")
    figure = page.locator("figure.chart").first
    figure.locator(".save summary").click()
    drawing = ET.parse(saved(page, figure.locator("button:has-text('SVG')"), tmp_path)).getroot()
    assert drawing.findall(".//{http://www.w3.org/2000/svg}path")
    assert saved(page, figure.locator("button:has-text('PNG')"), tmp_path).read_bytes().startswith(b"\x89PNG")
    numbers = saved(page, figure.locator("button:has-text('CSV')"), tmp_path)
    with open(numbers, encoding="utf-8-sig", newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head == ["line", "rank", "count"]
    assert [float(row[1]) for row in rows] == sorted(float(row[1]) for row in rows)


def test_a_run_is_saved_as_the_page_that_its_training_wrote(lab, page, tmp_path):
    page.goto(lab.url + "#/runs?run=lstm")
    page.wait_for_selector(".run-card .samples pre")
    file = saved(page, page.get_by_role("link", name="Download the report"), tmp_path)
    assert file.name == "lstm.html"
    assert file.read_bytes() == (lab.folder / "lstm" / "report.html").read_bytes()


def test_word_vectors_are_saved_with_the_places_that_are_seen(lab, page, tmp_path):
    page.goto(lab.url + "#/time?run=lstm")
    page.wait_for_selector(".scatter .point")
    figure = page.locator("figure:has(.scatter)")
    figure.locator(".save summary").click()
    drawing = ET.parse(saved(page, figure.locator("button:has-text('SVG')"), tmp_path)).getroot()
    numbers = saved(page, figure.locator("button:has-text('CSV')"), tmp_path)
    with open(numbers, encoding="utf-8-sig", newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head == ["word", "x", "y"]
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}circle")) == len(rows)


FIGURES = [
    Lines(
        "two lines", "tokens", "loss", [Line("<b>", [(1, 2.0), (2, 1.0)]), Line("b", [(1, 3.0), (2, 2.5)])], best="b"
    ),
    Intervals("scores", "BLEU", [Mark("<i>", 3.0, 2.0, 4.0), Mark("rnn", 1.0, 0.5, 1.5)], threshold=2.5),
    Heat("a map", ["x", "y"], ["u", "v"], [[0.1, 0.9], [0.5, 0.3]]),
]


def test_a_report_is_drawn_by_the_labs_charts_and_works_by_keyboard(page, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(report_page("T", *map(svg, FIGURES)), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector(".chart path.line.strong")
    page.evaluate("async () => { for (let n = 0; n < 4; n++) await new Promise(requestAnimationFrame) }")  # all painted
    assert page.locator("figure[data-figure]").count() == 0
    assert page.locator(".legend span").all_inner_texts() == [" <b>", " b"]
    page.locator(".rungs .plot").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".rungs .readout")).to_have_text("<i>: 3, 95 % interval 2 to 4")
    page.locator(".heat canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_have_text("x, v: 0.9")


def test_without_scripts_a_report_shows_the_same_figures(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(report_page("T", *map(svg, FIGURES)), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("figure svg").count() == 3
    assert page.locator("figcaption").all_inner_texts() == ["two lines", "scores", "a map"]
    context.close()
