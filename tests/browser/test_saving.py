"""Every drawing can be saved: SVG, PNG and CSV are what is seen."""

import csv
import xml.etree.ElementTree as ET


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
    file = saved(page, page.get_by_role("link", name="Save as one file"), tmp_path)
    assert file.name == "lstm.html"
    assert file.read_bytes() == (lab.folder / "lstm" / "report.html").read_bytes()
