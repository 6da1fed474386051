"""What a report is made of: tables, figures and a page, which say what they hold and escape what they must."""

import csv
import html
import io
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from regard.base.numbers import group_digits
from regard.report.figures import Heat, Intervals, Line, Lines, Mark
from regard.report.offline_page import script_of
from regard.report.page import command, folded, heading, listing, page, paragraph, sample, side_by_side_texts, table
from regard.report.svg import interval_chart, line_chart, svg
from regard.report.table import csv_text, latex_text, plain_table, seconds, significant

ROWS = [
    {"label": "a_b & <c>", "value": 12345, "share": 0.5, "interval": "0.41 – 0.58", "nothing": None},
    {"label": 'd, "e"', "value": 7, "share": math.inf, "interval": None, "nothing": None},
]
HEADINGS = {"label": "system", "value": "numbers", "share": "50 % share", "interval": "interval"}


def test_csv_is_read_back_as_it_was():
    read = list(csv.DictReader(io.StringIO(csv_text(ROWS, ["label", "value", "share", "nothing"]))))
    assert [row["label"] for row in read] == [row["label"] for row in ROWS]
    assert float(read[0]["share"]) == 0.5
    assert read[1]["share"] == read[0]["nothing"] == ""


def test_latex_has_a_cell_for_every_column_and_escapes_what_it_must():
    text = latex_text(ROWS, HEADINGS, "100 % of 5_grams")
    lines = [line.strip() for line in text.splitlines() if line.rstrip().endswith(r"\\")]
    assert len(lines) == 3
    assert all(len(re.findall(r"(?<!\\)&", line)) == len(HEADINGS) - 1 for line in lines)
    assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))
    assert not re.search(r"(?<!\\)[%_#]", text)
    assert "12,345" in text
    assert [rule for rule in ("toprule", "midrule", "bottomrule") if rf"\{rule}" in text] != []


def test_text_that_stands_for_numbers_stands_right():
    lines = plain_table([{"a": "0.41 – 0.58"}, {"a": "10.41 – 10.58"}], {"a": "interval"}).splitlines()
    assert lines[1] == "  0.41 – 0.58"
    lines = plain_table([{"a": "−0.41 to 0.58"}, {"a": "0.5 to 1.0"}], {"a": "interval"}).splitlines()
    assert lines[2] == "   0.5 to 1.0"


@pytest.mark.parametrize("number", [0, 7, 999, 1000, 9999, 10_000, 15_218, 2_088_628, -9999, -10_000])
def test_large_numbers_are_grouped_the_same_way_everywhere(number):
    expected = f"{number:,}" if abs(number) > 9999 else str(number)
    assert group_digits(number) == expected
    assert plain_table([{"a": number}], {"a": "n"}).splitlines()[1].strip() == expected


@pytest.mark.parametrize(
    ("value", "shown"), [(264.0, "264.0"), (5.3, "5.300"), (1349.2, "1349"), (9999.7, "10,000"), (15218.3, "15,218")]
)
def test_as_many_digits_are_shown_also_where_they_are_zeros(value, shown):
    assert significant(value) == shown


def test_short_times_have_hundredths_and_long_ones_tenths():
    assert [seconds(value) for value in (0.02, 9.99, 9.996, 192.93)] == ["0.02", "9.99", "10.0", "192.9"]


def test_a_page_breaks_no_line_before_a_per_cent_or_within_the_name_of_an_option():
    assert "2,088,628 tokens, 95\xa0% of 12 in 4 splits" in paragraph("2,088,628 tokens, 95 % of 12 in 4 splits")
    assert "2,088,628" in table([{"a": "x", "b": 2_088_628}], {"a": "a", "b": "b"})
    line = command("regard compare --data 'a -- b.txt' --training.batch-tokens 9")
    assert re.findall(r"<span>(.*?)</span>", line) == ["--data", "--training.batch-tokens"]
    assert "95 %" in sample("", "95 %")  # what a model wrote stays as it was


def test_a_prompt_is_greyed_also_where_its_last_space_became_a_line():
    assert sample("= Robert ", "= Robert Brown") == '<pre dir="auto"><b>= Robert </b>Brown</pre>'
    assert sample("= Robert ", "= Robert\nGeneral") == '<pre dir="auto"><b>= Robert</b>\nGeneral</pre>'
    assert sample("= Robert ", "Something else") == '<pre dir="auto">Something else</pre>'
    assert sample("", "written") == '<pre dir="auto">written</pre>'


def figures():
    lines = [Line(f"system {n}", [(100.0 * k, 90.0 / (k + n + 1)) for k in range(5)]) for n in range(9)]
    yield line_chart([*lines, Line("<5-gram>", [(0, 5.0)], level=True)], title="T & t", x="x", y="y", description="D")
    yield svg(Lines("one point", "x", "y", [Line("one", [(3.0, 2.0)])], description="D"))
    yield line_chart(lines, title="cut", x="x", y="y", description="D", log_x=False, top=30.0)
    yield line_chart(
        [Line("a", [(1, 9.0), (90, 2.0)], faint=True)], title="T", x="x", y="y", description="D", log_x=True
    )
    yield interval_chart([Mark("a", 3.0, 2.9, 3.2), Mark("b", 300.0, 250.0, 400.0)], title="T", x="x", description="D")
    yield interval_chart([Mark("a", 3.0, 3.0, 3.0)], title="T", x="x", description="D")


@pytest.mark.parametrize("figure", [*figures()])
def test_a_figure_is_well_formed_and_says_what_it_shows(figure):
    root = ET.fromstring(figure)
    drawing = root.find("svg")
    assert drawing.find("title").text
    assert drawing.find("desc").text == "D"
    assert root.find("figcaption").text == drawing.find("title").text
    left, _, width, height = map(float, drawing.get("viewBox").split())
    for points in (line.get("points") for line in drawing.iter("polyline")):
        for pair in points.split():
            x, y = map(float, pair.split(","))
            assert left <= x <= width
            assert 0 <= y <= height
    assert len([text for text in drawing.iter("text") if text.text]) >= 3  # ticks and labels


def test_what_lies_above_the_top_is_cut_where_the_line_crosses_it():
    line = Line("a", [(0, 8.0), (10, 4.0), (20, 2.0)])
    drawing = ET.fromstring(line_chart([line], title="T", x="x", y="y", description="D", top=4.0)).find("svg")
    (start, *rest) = drawing.find("polyline").get("points").split()
    uncut = ET.fromstring(line_chart([line], title="T", x="x", y="y", description="D")).find("svg")
    assert len(rest) == 2
    assert float(start.split(",")[0]) > float(uncut.find("polyline").get("points").split()[0].split(",")[0])
    assert len(list(drawing.iter("circle"))) == 2  # marks are of what was measured


def test_a_figure_that_would_be_empty_is_left_out():
    axes = {"title": "T", "x": "x", "y": "y", "description": "D"}
    level, point = Line("5-gram", [(0, 5.0)], level=True), Line("one", [(3.0, 2.0)])
    assert line_chart([], **axes) == line_chart([level, point], **axes) == ""
    assert interval_chart([], title="T", x="x", description="D") == ""


def test_a_chart_has_its_title_below_it_and_the_names_of_its_axes_within():
    lines, marks = [Line("a", [(1, 9.0), (2, 8.0)])], [Mark("a", 3.0, 2.0, 4.0)]
    for chart in (
        line_chart(lines, title="Loss", x="steps", y="nats", description="D"),
        interval_chart(marks, title="Loss", x="steps", description="D"),
    ):
        root = ET.fromstring(chart)
        within = [text.text for text in root.iter("text")]
        assert root.find("figcaption").text == root.find("svg/title").text == "Loss"
        assert "steps" in within
        assert "Loss" not in within


def drawn_points(chart):
    (line,) = ET.fromstring(chart).iter("polyline")
    return [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]


def test_unless_told_otherwise_ten_times_as_much_is_as_far_on_every_axis_but_that_of_steps():
    powers = [1.0, 10.0, 100.0]
    axes = {"title": "T", "x": "x", "description": "D"}
    points = drawn_points(line_chart([Line("a", [*zip(powers, powers)])], y="y", **axes))
    dots = ET.fromstring(interval_chart([Mark(str(n), n, n, n) for n in powers], **axes)).iter("circle")
    for places in ([y for _, y in points], [float(dot.get("cx")) for dot in dots]):
        assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)
    assert points[2][0] - points[1][0] == pytest.approx(10 * (points[1][0] - points[0][0]), abs=1)


def test_an_axis_begins_at_zero_only_if_it_is_asked_to():
    line = Line("a", [(0, 95.0), (1, 100.0)])
    for from_zero in ({}, {"zero_y": False}, {"zero_y": True}):
        chart = line_chart([line], title="T", x="x", y="y", description="D", log_y=False, **from_zero)
        grid = [part for part in ET.fromstring(chart).iter("line") if part.get("x1") == part.get("x2")]
        bottom = max(float(part.get("y2")) for part in grid)
        assert (drawn_points(chart)[0][1] == bottom) == (not from_zero.get("zero_y"))


def test_a_page_has_one_title_and_its_headings_are_below_it():
    levels = re.findall(r"<h(\d)>(.*?)</h\1>", page("T", heading("Whole", 1), heading("Part"), heading("Detail", 3)))
    assert levels == [("1", "Whole"), ("2", "Part"), ("3", "Detail")]


def test_each_curve_has_its_name_at_its_end_and_the_best_stands_out():
    lines = [Line(f"system {n}", [(0, 90.0), (100, 10.0 + n / 100)]) for n in range(6)]  # all end at one place
    drawing = ET.fromstring(line_chart(lines, title="T", x="x", y="y", description="D", best="system 3"))
    assert drawing.find("ul") is None  # no legend besides
    names = {text.text: text for text in drawing.iter("text") if (text.text or "").startswith("system")}
    assert set(names) == {line.name for line in lines}
    heights = sorted(float(text.get("y")) for text in names.values())
    assert all(after - before >= 24 for before, after in pairwise(heights))  # none over another
    assert [name for name, text in names.items() if text.get("font-weight")] == ["system 3"]
    ends = max(float(line.get("points").split()[-1].split(",")[0]) for line in drawing.iter("polyline"))
    assert all(float(text.get("x")) > ends for text in names.values())


HOSTILE = """<script>alert("1")</script><img src=x onerror='alert(1)'>&"'"""


def test_no_word_of_a_corpus_a_label_or_a_file_name_becomes_markup():
    figure = Lines(HOSTILE, HOSTILE, HOSTILE, [Line(HOSTILE, [(0, 1.0), (1, 2.0)])], description=HOSTILE)
    short = Lines("T", "x", "y", [Line("<b>&'\"", [(0, 1.0), (1, 2.0)])])
    heat = Heat(HOSTILE, [HOSTILE], [HOSTILE], [[0.5]], HOSTILE, HOSTILE, HOSTILE)
    marks = Intervals(HOSTILE, HOSTILE, [Mark(HOSTILE, 1, 0, 2)], threshold=1.0, threshold_name=HOSTILE)
    parts = [
        heading(HOSTILE), paragraph(HOSTILE), listing([HOSTILE]), sample(HOSTILE, HOSTILE * 2), command(HOSTILE),
        table([{"a": HOSTILE}], {"a": HOSTILE}, [0], HOSTILE), folded(HOSTILE, paragraph(HOSTILE)),
        side_by_side_texts({HOSTILE: HOSTILE}), side_by_side_texts({HOSTILE: HOSTILE}, quiet=[HOSTILE]),
        *map(svg, (figure, short, heat, marks)),
    ]  # fmt: skip
    for part in [*parts, page(HOSTILE, style="")]:
        seen = Tags(part)
        assert not {"script", "img", "b>&'\""} & seen.tags, part
        assert "onerror" not in seen.attributes
        assert HOSTILE in seen.words or "<b>&'\"" in seen.words
    assert html.escape(HOSTILE) in page(HOSTILE)


class Tags(HTMLParser):
    """Which tags and attributes there are, and all words between them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.words += data


def test_nine_lines_are_told_apart_by_more_than_colour():
    drawing = ET.fromstring(next(iter(figures()))).find("svg")
    styles = {(line.get("stroke"), line.get("stroke-dasharray")) for line in drawing.iter("polyline")}
    assert len(styles) == 10


def test_a_page_asks_for_nothing_and_escapes_what_models_write():
    whole = page("T", table(ROWS, HEADINGS, best=[0]), sample("<b>", "<b><script>alert(1)</script>"), *figures())
    whole = whole.replace(f"<script>{script_of('report')}</script>", "", 1)
    assert not re.search(r"(?:src|href|action)\s*=|url\(|@import|https?://", whole)
    assert "<script" not in whole
    assert "&lt;c&gt;" in whole


def test_titles_and_translations_are_escaped():
    evil = "<script>alert('&')</script>"
    safe = "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;"
    assert f"<title>{safe}</title>" in page(evil)
    assert side_by_side_texts({evil: "", "quiet": evil}, quiet=["quiet"]) == (
        f'<dl class="facts texts"><dt>{safe}</dt><dd dir="auto">–</dd>'
        f'<dt>quiet</dt><dd dir="auto" class=quiet>{safe}</dd></dl>'
    )
    for made in (heading(evil), paragraph(evil, "lead"), listing([evil]), sample(evil, evil), command(evil)):
        assert safe in made
        assert evil not in made
