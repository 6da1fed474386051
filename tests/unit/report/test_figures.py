"""A figure is data first: whatever it holds, it is drawn on a page and in a terminal, said in words, sent as JSON."""

import hashlib
import json
import math
import os
import re
import struct
import sys
import xml.etree.ElementTree as ET
import zlib
from base64 import b64decode, b64encode
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

import regard
from javascript import javascript
from regard.report import terminal as drawing
from regard.report.axes import FARTHEST, Axis, apart, number
from regard.report.colours import DARK, LIGHT, ink_on, lab_module, lab_variables, luminance, shade, shades
from regard.report.figures import Heat, Intervals, Line, Lines, Mark, from_json, legible, right_to_left
from regard.report.notebook import show, slider
from regard.report.offline_page import script_of
from regard.report.page import page, table
from regard.report.svg import line_chart, svg
from regard.report.svg_file import as_file
from regard.report.svg_heat import LETTER, _brief, png
from regard.report.terminal import terminal
from regard.report.tight import tight_script

ANSI = re.compile(r"\x1b\[[0-9;]*m")
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6),
    st.floats(),  # not-a-number, infinities, and what is all but zero
    st.sampled_from([0.0, 1.0, -1.0, 1e-320, 1e308, math.nan]),
)
WORDS = st.text(max_size=30)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12)


@st.composite
def lines(draw):
    drawn = []
    for points in draw(st.lists(POINTS, max_size=4)):
        band = draw(st.sampled_from([(), points]))
        drawn.append(Line(draw(WORDS), points, draw(st.booleans()), draw(st.booleans()), band, draw(st.booleans())))
    flags = [draw(st.booleans()) for _ in range(3)]
    return Lines(draw(WORDS), draw(WORDS), draw(WORDS), drawn, *flags, top=draw(st.sampled_from([math.inf, 3.0])))


@st.composite
def heats(draw):
    rows, columns = draw(st.integers(0, 6)), draw(st.integers(0, 40))
    values = [[draw(NUMBERS) for _ in range(min(columns, 3))] * 14 for _ in range(rows)]
    names = draw(st.lists(WORDS, min_size=3, max_size=3))
    return Heat(
        draw(WORDS),
        [names[0] + str(row) for row in range(rows)],
        [names[1]] * columns,
        [row[:columns] for row in values],
        x=draw(WORDS),
        y=draw(WORDS),
        z=draw(WORDS),
        low=draw(st.sampled_from([None, 0.0])),
        high=draw(st.sampled_from([None, 1.0])),
        diverging=draw(st.booleans()),
        root=draw(st.booleans()),
    )


@st.composite
def intervals(draw):
    marks = [
        Mark(draw(WORDS), draw(NUMBERS), *sorted([draw(NUMBERS), draw(NUMBERS)]))
        for _ in range(draw(st.integers(0, 5)))
    ]
    threshold = draw(st.one_of(st.none(), st.floats(-10, 10)))
    return Intervals(draw(WORDS), draw(WORDS), marks, draw(st.booleans()), threshold, draw(WORDS))


FIGURES = st.one_of(lines(), heats(), intervals())
drawn = settings(derandomize=True, max_examples=150, deadline=None)


@drawn
@given(FIGURES)
def test_the_drawing_is_well_formed_says_what_it_shows_and_asks_for_nothing(figure):
    text = svg(figure)
    root = ET.fromstring(text)
    drawing = next(root.iter("svg"))
    assert drawing.get("role") == "img"
    assert drawing.find("title").text == (legible(figure.title) or None)
    assert drawing.find("desc").text == legible(figure.description)
    assert figure.description
    loaded = [part.get("href") for part in root.iter() if part.get("href")]
    assert all(address.startswith("data:image/png;base64,") for address in loaded)
    assert not re.search(
        r"https?:|url\(|@import|\ssrc=", re.sub(r"<(title|desc|text|li|figcaption)\b.*?</\1>", "", text)
    )


@drawn
@given(FIGURES)
def test_every_coordinate_that_is_drawn_is_a_number(figure):
    for part in ET.fromstring(svg(figure)).iter():
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
            if name in part.attrib:
                assert math.isfinite(float(part.get(name))), ET.tostring(part)
        for pair in part.get("points", "").split():
            assert all(math.isfinite(float(value)) for value in pair.split(",")), pair


@drawn
@given(FIGURES, st.integers(40, 120), st.booleans())
def test_text_fits_the_width_and_has_colour_only_if_it_may(figure, width, colour):
    text = terminal(figure, width=width, colour=colour)
    assert colour or "\x1b" not in text
    for line in text.split("\n"):
        assert cell_len(ANSI.sub("", line)) <= width, line


@drawn
@given(FIGURES)
def test_json_comes_back_as_the_same_figure(figure):
    sent = json.dumps(figure.as_json(), allow_nan=False)
    again = from_json(json.loads(sent))
    assert type(again) is type(figure)
    assert json.dumps(again.as_json(), allow_nan=False) == sent
    assert svg(again) == svg(figure)


EXAMPLES = {
    "lines": Lines(
        "Loss", "steps", "nats", [Line("lstm", [(1, 5.0), (9, 2.0)]), Line("ngram", [(0, 3.0)], level=True)]
    ),
    "heat": Heat(
        "Seen", ["they", "ran"], ["<eos>", "they"], [[1, math.nan], [0.25, 0.75]], "looked at", "word", "weight"
    ),
    "intervals": Intervals("BLEU", "points", [Mark("seq2seq", 20, 18, 22)], threshold=25, threshold_name="must exceed"),
}
LABELS = {
    "lines": ["Loss", "steps", "nats", "lstm", "ngram"],
    "heat": ["Seen", "they", "ran", "looked at", "word", "weight"],
    "intervals": ["BLEU", "points", "seq2seq", "must exceed 25"],
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_both_views_name_title_axes_and_everything_in_them(kind):
    on_a_page = "".join(ET.fromstring(svg(EXAMPLES[kind])).itertext())
    in_a_terminal = terminal(EXAMPLES[kind], width=80, colour=False)
    for label in LABELS[kind]:
        assert label in on_a_page
        assert label in in_a_terminal


def test_a_figure_keeps_its_parts_whatever_sequence_they_came_in():
    mark, line = Mark("a", 1, 0, 2), Line("a", [(1, 2.0)])
    marks, lines = [mark], [line]
    intervals, curves = Intervals("T", "x", marks), Lines("T", "x", "y", lines)
    marks.clear()
    lines.clear()
    assert intervals == Intervals("T", "x", (mark,))
    assert curves == Lines("T", "x", "y", (line,))


def test_what_a_figure_shows_is_said_in_words_where_nobody_says_it():
    assert EXAMPLES["lines"].description == "lstm: from 5 at 1 to 2 at 9; ngram: 3."
    assert "the largest is at row they, column <eos>" in EXAMPLES["heat"].description
    assert EXAMPLES["intervals"].description == "seq2seq: 20 (18 to 22). must exceed: 25."
    assert Lines("T", "x", "y", [], description="Nothing yet.").description == "Nothing yet."


def test_a_heat_map_of_another_shape_than_its_labels_is_refused():
    with pytest.raises(ValueError, match="2×1 values for 1 rows and 1 columns"):
        Heat("T", ["a"], ["b"], [[1.0], [2.0]])
    with pytest.raises(ValueError, match="0×0 values for 1 rows and 0 columns"):
        Heat("T", ["a"], [], [])


def test_an_empty_cell_is_not_drawn_and_zero_is():
    cells = [rect for rect in ET.fromstring(svg(EXAMPLES["heat"])).iter("rect") if rect.find("title") is not None]
    assert [rect.find("title").text for rect in cells] == ["they · <eos>: 1", "ran · <eos>: 0.25", "ran · they: 0.75"]
    assert "·" in terminal(EXAMPLES["heat"], width=40, colour=False).splitlines()[3]


def chunks(picture):
    """The parts of a PNG by their names, read back by its specification."""
    data, at, found = picture, 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]
        found[kind] = body
        at += 12 + size
    return found


def pixels(picture):
    found = chunks(picture)
    width, height, *kind = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert kind == [8, 3, 0, 0, 0]  # what is read here: bytes of a palette, deflated, with filters, not interlaced
    raw = zlib.decompress(found[b"IDAT"])
    return [raw[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]


def test_a_large_matrix_is_one_small_picture_with_a_pixel_for_each_cell():
    size = 128
    values = [[math.nan if s > t else (t - s) / size for s in range(size)] for t in range(size)]
    names = [f"word {n}" for n in range(size)]
    text = svg(Heat("T", names, names, values, low=0, high=1))
    assert len(text) < 40_000
    picture = next(part.get("href").split(",")[1] for part in ET.fromstring(text).iter("image"))
    rows = pixels(b64decode(picture))
    assert [len(row) for row in rows] == [size] * size
    assert all((rows[t][s] == 0) == (s > t) for t in range(size) for s in range(size))
    assert rows[127][0] == 1 + round(127 / 128 * 254)


def test_a_picture_whose_words_run_to_the_left_is_mirrored():
    values = [[row * 40 + column for column in range(40)] for row in range(40)]
    shown = []
    for letter in "xא":
        heat = Heat("T", ["r"] * 40, [letter] * 40, values)
        picture = next(part.get("href").split(",")[1] for part in ET.fromstring(svg(heat)).iter("image"))
        shown.append(pixels(b64decode(picture)))
    assert shown[1] == [row[::-1] for row in shown[0]]


@pytest.mark.parametrize(("rows", "columns", "separate"), [(32, 32, True), (25, 41, False)])
def test_up_to_1024_cells_are_drawn_one_by_one_and_more_as_a_picture(rows, columns, separate):
    root = ET.fromstring(svg(Heat("T", ["r"] * rows, ["c"] * columns, [[0.5] * columns] * rows)))
    told = [rect for rect in root.iter("rect") if rect.find("title") is not None]
    assert len(told) == (rows * columns if separate else 0)
    sizes = {len(pixels(b64decode(part.get("href").split(",")[1]))) for part in root.iter("image")}
    assert sizes == ({1} if separate else {1, rows})  # the scale below is one line


def frame(heat):
    """The box around a heat map's cells: its top, and the width and height of a cell."""
    box = next(part for part in ET.fromstring(svg(heat)).iter("rect") if part.get("class") == "grid")
    width, height = (float(box.get(name)) for name in ("width", "height"))
    return float(box.get("y")), width / max(1, len(heat.columns)), height / max(1, len(heat.rows))


def test_a_strip_has_rows_for_its_labels_and_any_other_matrix_has_squares():
    for rows in range(1, 50):
        _, width, height = frame(Heat("T", ["r"] * rows, ["c"] * 40, [[0.5] * 40] * rows))
        assert height >= 18 if rows <= 10 else height == pytest.approx(width, abs=0.02)  # 10: a quarter of 40


@pytest.mark.parametrize("letters", range(1, 6))
def test_labels_of_columns_are_turned_where_they_would_come_too_near_to_each_other(letters):
    turned = set()
    for columns in range(1, 61):
        heat = Heat("T", ["r"], ["c" * letters] * columns, [[0.5] * columns])
        between = frame(heat)[1] - letters * LETTER
        assert abs(between - 4) > 0.02  # else a rounded coordinate could not tell
        assert ("rotate(-60)" in svg(heat)) == (between < 4), columns
        turned.add(between < 4)
    assert turned == {True, False}


def test_above_a_heat_map_without_columns_there_is_the_same_room_whatever_its_rows():
    tops = {frame(Heat("T", ["r"] * rows, [], [[]] * rows))[0] for rows in (1, 30, 300)}
    assert len(tops) == 1


@pytest.mark.parametrize(("columns", "written"), [(18, True), (19, True), (20, False)])
def test_a_cell_that_is_34_wide_has_its_value_written_in_it(columns, written):
    heat = Heat("T", ["four"], ["fives"] * columns, [[0.5] * columns], low=0, high=1)
    assert (frame(heat)[1] >= 34) == written
    cells = [text.text for text in ET.fromstring(svg(heat)).iter("text") if text.get("pointer-events")]
    assert cells == ["0.50"] * columns * written


def test_a_label_of_a_heat_map_is_cut_after_18_letters():
    names = ["x" * 18, "x" * 19]
    shown = [text.text for text in ET.fromstring(svg(Heat("T", names, names, [[0.0, 1.0]] * 2))).iter("text")]
    assert [words for words in shown if words.startswith("xx")] == ["x" * 18, "x" * 17 + "…"] * 2


@pytest.mark.parametrize("diverging", [False, True])
def test_the_colours_of_a_picture_are_the_shades_of_its_page(diverging):
    text = svg(Heat("T", ["r"] * 40, ["c"] * 40, [[0.5] * 40] * 40, diverging=diverging))
    pictures = [part for part in ET.fromstring(text).iter("image") if float(part.get("height")) > 100]
    assert [part.get("class") for part in pictures] == ["light", "dark"]
    for part in pictures:
        palette = chunks(b64decode(part.get("href").split(",")[1]))[b"PLTE"]
        assert palette[3:] == b"".join(map(bytes, shades(diverging, dark=part.get("class") == "dark")))
    scale = next(part for part in ET.fromstring(text).iter("image") if float(part.get("height")) == 10)
    assert pixels(b64decode(scale.get("href").split(",")[1])) == [bytes(range(1, 256))]


@pytest.mark.parametrize(
    ("value", "largest", "shown"),
    [(0.5, 9.99, "0.50"), (-9.994, 9.994, "−9.99"), (1.0, 9.995, "1"), (10.5, 10.5, "10.5"), (3, 9999.4, "3"),
     (9999.5, 9999.5, "1e4"), (-0.004, 0.05, "−4e−3"), (0.1, 0.1, "0.10"), (0.0, 0.01, "0"), (0.001, 5.0, "0")],
)  # fmt: skip
def test_cells_of_a_heat_map_have_as_many_digits_as_fit(value, largest, shown):
    assert _brief(value, largest) == shown


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_figure_in_a_file_of_its_own_is_the_drawing_of_the_page_with_a_style(kind):
    page_, file = svg(EXAMPLES[kind]), as_file(svg(EXAMPLES[kind]))
    drawn, alone = next(ET.fromstring(page_).iter("svg")), ET.fromstring(file)
    inside = "{http://www.w3.org/2000/svg}"
    assert alone.attrib == drawn.attrib
    assert [part.tag for part in alone.iter()] == [f"{inside}svg", f"{inside}style"] + [
        f"{inside}{part.tag}" for part in drawn.iter() if part is not drawn
    ]
    style = alone.find(f"{inside}style").text
    assert style.index(LIGHT["ink"]) < style.index("prefers-color-scheme: dark") < style.index(DARK["ink"])


@given(st.lists(st.binary(min_size=3, max_size=3), min_size=1, max_size=5))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_a_picture_comes_back_as_it_was(rows):
    assert pixels(png(rows, [(0, 0, 0)] * 256)) == rows


def test_a_canvas_has_the_shades_of_a_drawing():
    names = [f"{kind}{paper}" for kind in ("sequential", "diverging") for paper in ("Light", "Dark")]
    script = lab_module().replace("export ", "") + f"\nreturn [{', '.join(names)}].map((one) => [...one]);"
    for name, found in zip(names, javascript("page/sampling", script, {}), strict=True):
        colours = shades("diverging" in name, "Dark" in name)
        assert found == [part for colour in colours for part in colour], name


def test_shades_are_read_without_their_hue():
    light = [luminance(colour) for colour in shades()]
    assert all(before >= after for before, after in pairwise(light))
    assert light[0] > 0.85 > 0.05 > light[-1]
    two = [luminance(colour) for colour in shades(diverging=True)]
    middle = len(two) // 2
    assert max(two) == two[middle]
    assert all(before <= after for before, after in pairwise(two[: middle + 1]))
    assert all(before >= after for before, after in pairwise(two[middle:]))
    (red, _, blue), (red_end, _, blue_end) = shades(diverging=True)[0], shades(diverging=True)[-1]
    assert blue > red  # one side is blue and the other orange, whatever kind of colour blindness
    assert red_end > blue_end


@pytest.mark.parametrize("scale", [{}, {"diverging": True}, {"dark": True}, {"diverging": True, "dark": True}])
def test_a_share_of_a_scale_has_the_colour_that_stands_there(scale):
    colours = shades(**scale)
    ends_and_middle = [colours[0], colours[len(colours) // 2], colours[-1]]
    assert [shade(share, **scale) for share in (0.0, 0.5, 1.0)] == ends_and_middle


def test_colours_are_named_in_one_file():
    source = Path(regard.__file__).parent
    for path in source.rglob("*"):
        if path.suffix in (".py", ".js", ".css") and path.name != "colours.py":
            assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![:\w])", path.read_text(encoding="utf-8")), path


def test_on_a_dark_page_strong_is_light_as_it_is_dark_on_a_light_one():
    light = [luminance(colour) for colour in shades(dark=True)]
    assert all(before <= after for before, after in pairwise(light))
    assert light[0] < 0.02 < 0.7 < light[-1]
    two = [luminance(colour) for colour in shades(diverging=True, dark=True)]
    middle = len(two) // 2
    assert min(two) == two[middle]
    for figure in (EXAMPLES["heat"], Heat("T", ["r"] * 40, ["c"] * 40, [[0.5] * 40] * 40)):
        drawn_ = svg(figure)
        assert ("data-figure=" in drawn_) or (drawn_.count('class="dark"') == drawn_.count('class="light"') > 0)


def test_without_colour_the_two_sides_of_a_scale_are_told_by_their_sign():
    names = [str(n) for n in range(20)]
    heat = Heat("T", ["row"], names, [[-1.0, 1.0] * 10], diverging=True)
    row = terminal(heat, width=60, colour=False).splitlines()[-2]
    assert "−█" in row
    assert "+█" in row


def test_an_accent_stays_with_its_letter_in_a_heading_from_top_to_bottom():
    """Letters of one sign and letters with signs of their own (Unicode's forms NFC and NFD) look the same."""
    words = [f"élèves dé{n}ç" for n in range(10)]
    shown = {
        form: terminal(Heat("T", ["r"], [normalize(form, word) for word in words], [[0.5] * 10]), 40, colour=False)
        for form in ("NFC", "NFD")
    }
    assert shown["NFD"] != shown["NFC"] == normalize("NFC", shown["NFD"])
    assert shown["NFC"].splitlines()[1].split() == ["é"] * 10


def test_more_is_darker_in_a_terminal_without_colour():
    names = [str(n) for n in range(5)]
    row = terminal(Heat("T", ["r"], names, [[0, 0.3, 0.5, 0.7, 1]], low=0, high=1), width=40, colour=False)
    shown = [sign for sign in row.splitlines()[2] if sign in "░▒▓█"]
    assert shown == ["░", "▒", "▓", "█"]


@drawn
@given(st.lists(st.floats(-99, 99), min_size=3, max_size=3), st.booleans())
def test_a_value_that_is_written_in_a_cell_is_its_value(values, diverging):
    heat = Heat("T", ["r"], ["a", "b", "c"], [values], diverging=diverging)
    row = terminal(heat, width=60, colour=False).splitlines()[2].split("│")[1]
    written = [float(words) for words in re.findall(r"-?\d*\.\d+", row.replace("−", "-"))]
    near = iter(values)  # in their order; one that has no room is left out
    assert all(any(abs(value - words) <= 0.005001 for value in near) for words in written)


def test_an_interval_crosses_its_threshold_where_its_numbers_do():
    figure = Intervals("T", "x", [Mark("below", 1, 0.5, 1.5), Mark("across", 2, 1, 3)], threshold=2.5)
    lines = terminal(figure, width=60, colour=False).splitlines()
    at = lines[1].index("┊")
    assert lines[2][at] == "┊"
    assert lines[3][at] == "┼"


@pytest.mark.parametrize(
    ("value", "shown"), [(20_000, "20k"), (3e6, "3M"), (1e-5, "1e−5"), (-0.5, "−0.5"), (0.0, "0"), (1e20, "1e20")]
)
def test_a_number_at_an_axis_is_short(value, shown):
    assert number(value) == shown


@drawn
@given(st.lists(st.floats(-1e250, 1e250), min_size=1, max_size=9), st.booleans(), st.booleans())
def test_an_axis_holds_its_values_and_its_ticks_between_its_ends(values, log, zero):
    axis = Axis.of(values, log, zero)
    place = axis.onto(0.0, 1.0)
    for value in (*(value for value in values if not axis.log or value > 1e-300), *axis.ticks):
        assert -1e-9 <= place(value) <= 1 + 1e-9
    assert 2 <= len(axis.ticks) <= 32


def test_an_axis_of_numbers_that_are_all_but_equal_is_wider_than_they_are():
    assert Axis.of([0.0, 1 / FARTHEST], log=False, zero=False).high == pytest.approx(1.02)
    for values, length in (([0.0, 1.1 / FARTHEST], 1.1), ([1e-320, 1e-320], 1.0)):  # in units of what is all but zero
        assert Axis.of(values, log=False, zero=False).high * FARTHEST == pytest.approx(1.02 * length)
    assert Axis.of([5.0, 5.0 + 1e-9], log=False, zero=False).high == pytest.approx(10.1)
    assert Axis.of([5.0, 5.0 + 1e-8], log=False, zero=False).high == pytest.approx(5.0)


def test_ticks_are_kept_if_they_are_far_enough_apart():
    assert apart([0, 9, 17, 18, 26, 27], float, 9) == [0, 9, 18, 27]
    assert apart([3, 2, 1], lambda tick: -9 * tick, 9) == [3, 2, 1]
    assert apart([], float, 9) == []


def test_what_no_page_may_hold_is_replaced_in_labels():
    assert legible("a\x00b\nc\td\ud800") == "a�b⏎c⇥d�"
    assert legible("naïve 日本 I\u200dl") == "naïve 日本 I\u200dl"


def test_a_page_with_every_kind_of_figure_asks_for_nothing():
    whole = page("T", *map(svg, EXAMPLES.values())).replace(script_of("report"), "")
    assert not re.search(r"(?:src|action)\s*=|url\(|@import|https?://", whole)
    assert all(address.startswith("data:") for address in re.findall(r'href="([^"]*)', whole))


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0**53, -(2.0**60), 1e300])
def test_a_single_value_has_a_scale_whatever_its_size(value):
    heat = Heat("one", ["r"], ["c"], [[value]])
    assert 0.0 <= heat.share(value) <= 1.0
    assert "<svg" in svg(heat)
    assert terminal(heat, width=60)
    line = Lines("one", "x", "y", [Line("a", [(value, value)])])
    assert "<svg" in svg(line)
    assert terminal(line, width=60)


# -- where it is shown -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "width"), [(500, 100), (77, 77), (10, 40)])
def test_a_figure_is_as_wide_as_the_terminal_within_limits(monkeypatch, columns, width):
    monkeypatch.setattr(drawing.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    assert terminal(EXAMPLES["lines"], colour=False) == terminal(EXAMPLES["lines"], width, colour=False)
    assert max(map(cell_len, terminal(EXAMPLES["intervals"], colour=False).splitlines())) == width


def test_a_figure_that_is_not_for_a_screen_is_neither_cut_nor_wrapped():
    names = [f"a rather long word {n}" for n in range(30)]
    lines = terminal(Heat("T" * 300, ["r"], names, [[0.5] * 30]), drawing.UNLIMITED, colour=False).splitlines()
    assert lines[0] == "T" * 300
    assert all(name in lines[1] for name in names)
    assert len(lines) == 4
    cells = [match.start() for match in re.finditer(r"\.50", lines[2])]
    assert {after - before for before, after in pairwise(cells)} == {len(names[-1]) + 1}


@pytest.mark.parametrize(
    ("tty", "environment", "coloured"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": ""}, False), (True, {"TERM": "dumb"}, False)],
)
def test_colours_are_for_terminals_that_may_have_them(monkeypatch, tty, environment, coloured):
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: tty))
    for name, value in ({"TERM": "xterm", "NO_COLOR": None} | environment).items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    assert ("\x1b" in terminal(EXAMPLES["heat"], 60)) == coloured


def test_a_terminal_of_few_colours_shows_the_nearest(monkeypatch):
    """Of xterm's 6 × 6 × 6, by the levels that its documentation lists."""
    levels = (0, 95, 135, 175, 215, 255)
    monkeypatch.delenv("COLORTERM", raising=False)
    for part in range(256):
        least = min(abs(part - level) for level in levels)
        nearest = [n for n, level in enumerate(levels) if abs(part - level) == least]
        for place, factor in enumerate((36, 6, 1)):
            colour = tuple(part if n == place else 0 for n in range(3))
            assert drawing._code(colour) in [f"5;{16 + factor * n}" for n in nearest], part
    for value in ("truecolor", "24bit"):
        monkeypatch.setenv("COLORTERM", value)
        assert drawing._code((1, 20, 255)) == "2;1;20;255"


def contrast(colour, ink):
    """As WCAG 2 defines it."""
    light, dark = sorted((luminance(colour), ink), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_ink_is_the_one_of_more_contrast_and_luminance_is_that_of_the_standard():
    assert [luminance((255, 255, 255)), luminance((0, 0, 0))] == pytest.approx([1.0, 0.0])
    assert [luminance(c) for c in ((255, 0, 0), (0, 255, 0), (0, 0, 255))] == pytest.approx([0.2126, 0.7152, 0.0722])
    assert luminance((118, 118, 118)) == pytest.approx(0.18116, abs=1e-5)
    assert luminance((10, 10, 10)) == pytest.approx(10 / 255 / 12.92)
    for scale in (shades(), shades(True), shades(dark=True), shades(True, True)):
        for colour in scale:
            better = "black" if contrast(colour, 0.0) > contrast(colour, 1.0) else "white"
            assert ink_on(colour) == better or abs(contrast(colour, 0.0) - contrast(colour, 1.0)) < 0.1


def test_a_page_may_run_and_style_only_what_it_holds():
    def allowed(words):
        return f"sha256-{b64encode(hashlib.sha256(words.encode()).digest()).decode()}"

    drawn_ = page("T", svg(EXAMPLES["lines"]), style="p { color: red }")
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', drawn_)[1]
    (style,) = re.findall(r"<style>(.*?)</style>", drawn_, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", drawn_, re.DOTALL)
    assert style.endswith("p { color: red }")
    assert lab_variables() in style
    assert script == script_of("report")
    assert tight_script(lab_module().splitlines()[0].removeprefix("export ")) in script
    assert policy == (
        f"default-src 'none'; img-src data:; style-src '{allowed(style)}'; script-src '{allowed(script)}'"
    )
    assert drawn_.index('id="spoken"') < drawn_.index("<script>")
    plain = page("T", "<p>words</p>")
    assert "script" not in plain.replace("subscript", "")


# -- in a notebook ---------------------------------------------------------------------------------------------------


@pytest.fixture
def notebook_shows(monkeypatch):
    """What a notebook would show; it has no widgets."""
    shown, display = [], ModuleType("IPython.display")
    display.HTML, display.display = str, shown.append
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    return shown


def titled(q):
    return Lines(f"q is {q}", "x", "y", [])


def test_a_notebook_shows_figures_beside_each_other(notebook_shows):
    show(EXAMPLES["lines"], EXAMPLES["heat"])
    (shown,) = notebook_shows
    assert shown.endswith("".join(f"<div>{svg(EXAMPLES[kind])}</div>" for kind in ("lines", "heat")) + "</div>")
    assert shown.startswith("<style>\n.regard-figures {")


def test_without_widgets_a_slider_is_its_first_its_middle_and_its_last_picture(notebook_shows):
    slider(titled, q=[0, 1, 2, 5, 10, 20])
    (shown,) = notebook_shows
    assert re.findall(r"<title>q is (\d+)</title>", shown) == ["0", "5", "20"]


def test_with_widgets_a_slider_begins_in_the_middle_and_draws_what_is_chosen(notebook_shows, monkeypatch):
    widgets, moved = ModuleType("ipywidgets"), []
    widgets.SelectionSlider = SimpleNamespace
    widgets.interact = lambda draw, **bars: moved.append((draw, bars))
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    slider(titled, q=(0, 1, 2, 5, 10))
    ((draw, bars),) = moved
    assert bars == {"q": SimpleNamespace(options=[0, 1, 2, 5, 10], value=2, description="q")}
    draw(q=5)
    assert "<title>q is 5</title>" in notebook_shows[-1]


# -- edges -----------------------------------------------------------------------------------------------------------


def test_a_line_is_in_the_chart_if_two_of_its_points_can_be_joined():
    axes = {"title": "T", "x": "x", "y": "y", "description": "D"}
    line = Line("a", [(0, 5.0), (1, 5.0), (2, 9.0)])
    assert line_chart([line], **axes, top=5.0)  # up to the top, and with it
    assert not line_chart([line], **axes, top=4.9)
    assert not line_chart([Line("a", [(0, 9.0), (1, 5.0)])], **axes, top=5.0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(9999, "9999"), (10_000, "10k"), (999_999, "999.999k"), (1e6, "1M"), (1.5e9, "1.5G"), (1e14, "100000G"),
     (1e15, "1e15"), (-25_000, "−25k"), (1e-10, "1e−10"), (123456.7, "123.457k"), (1000, "1000")],
)  # fmt: skip
def test_a_number_at_an_axis_changes_its_unit_at_its_size(value, shown):
    assert number(value) == shown


def test_more_columns_than_a_phone_shows_are_announced():
    columns = dict.fromkeys("abcdef", "x")
    assert "scroll right to see the whole table" in table([], columns)
    columns.pop("f")
    assert "scroll right to see the whole table" not in table([], columns)


def test_most_letters_decide_the_direction_of_a_heat_map():
    assert right_to_left("אב a")
    assert not right_to_left("אב ab")
    assert right_to_left("مر 1 2 3")
    assert not right_to_left("")


@pytest.mark.parametrize(("low", "high", "shown"), [(-0.00123, 0.000123, False), (-0.00123, 0.00123, True)])
def test_what_a_value_is_stands_beside_the_scale_where_there_is_room(low, high, shown):
    heat = Heat("T", ["r"], ["c"], [[0.0]], low=low, high=high, z="nats")
    assert ("…" in terminal(heat, 40, colour=False).splitlines()[-1]) == shown


def test_an_axis_holds_what_can_be_drawn_and_puts_the_rest_far_away():
    line, log = Axis.linear([0.0, 1.0], zero=False), Axis.logarithmic([1.0, 10.0])
    for value, linear, logarithmic in (
        (9e299, True, True), (1e300, False, False), (-9e299, True, False), (math.nan, False, False), (0.0, True, False),
        (1e-300, True, False), (2e-300, True, True),
    ):  # fmt: skip
        assert (line.holds(value), log.holds(value)) == (linear, logarithmic), value
    assert line.onto(0.0, 1.0)(1e9) == 1e6
    assert line.onto(0.0, 1.0)(-1e9) == -1e6
    assert Axis.of([1e300, 2.0, math.inf, math.nan], log=False, zero=True).high == pytest.approx(2.04)
    assert Axis.of([-1.0, 0.0, 1e-300], log=True, zero=False).log is False  # nothing is above zero
    mixed = Axis.of([-1.0, 2e-300, 5.0], log=True, zero=False)
    assert (mixed.log, mixed.low) == (True, pytest.approx(2e-300 / 1.04))
    assert Axis.of([], log=True, zero=False).ticks == pytest.approx((0.0, 0.2, 0.4, 0.6, 0.8, 1.0))


@pytest.mark.parametrize(
    ("values", "zero", "ends", "ticks"),
    [
        ([0.0, 10.0], False, (0.0, 10.2), (0, 2, 4, 6, 8, 10)),
        ([3.0, 10.0], True, (0.0, 10.2), (0, 2, 4, 6, 8, 10)),
        ([-10.0, -3.0], True, (-10.0, 0.2), (-10, -8, -6, -4, -2, 0)),
        ([3.0, 8.0], False, (3.0, 8.1), (3, 4, 5, 6, 7, 8)),
        ([5.0, 5.0], False, (5.0, 10.1), (5, 6, 7, 8, 9, 10)),
        ([-5.0, -5.0], False, (-5.0, 0.1), (-5, -4, -3, -2, -1, 0)),
        ([0.0, 0.0], False, (0.0, 1.02), (0, 0.2, 0.4, 0.6, 0.8, 1)),
        ([1.0, 1.0 + 1e-10], False, (1.0, 2.02), (1, 1.2, 1.4, 1.6, 1.8, 2)),
        ([0.0, 15.0], False, (0.0, 15.3), (0, 5, 10, 15)),
        ([0.0, 30.0], False, (0.0, 30.6), (0, 10, 20, 30)),
        ([0.0, 5 / 0.999], False, (0.0, 5.1 / 0.999), (0, 1, 2, 3, 4, 5)),  # a thousandth more than five steps
        ([0.0, 5.01], False, (0.0, 5.1102), (0, 2, 4)),
    ],
)
def test_a_linear_axis_has_round_ticks_and_a_little_room(values, zero, ends, ticks):
    axis = Axis.linear(values, zero)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert axis.ticks == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 1000.0], (1, 10, 100, 1000)),
        ([1.0, 50.0], (1, 3, 10, 30)),
        ([1.0, 10.0], (1, 2, 5, 10)),
        ([2.0, 9.0], (2, 3, 4, 5, 6, 8)),
        ([50.0, 52.0], (50, 52, 54)),
        ([1.0, 1e7], tuple(10.0**n for n in range(8))),
        ([1.0, 1e8], (1, 1e2, 1e4, 1e6, 1e8)),
        ([1.0, 1e24], (1, 1e4, 1e8, 1e12, 1e16, 1e20, 1e24)),
    ],
)
def test_a_logarithmic_axis_has_a_few_round_ticks_whatever_its_range(values, ticks):
    axis = Axis.logarithmic(values)
    assert axis.ticks == pytest.approx(ticks)
    assert (axis.low, axis.high) == pytest.approx((values[0] / 1.04, values[1] * 1.04))
    place = axis.onto(10.0, 30.0)
    assert [place(axis.low), place(axis.high), place(math.sqrt(axis.low * axis.high))] == pytest.approx([10, 30, 20])


def test_a_line_that_touches_the_upper_edge_is_whole_and_one_that_crosses_it_begins_there():
    for highest, whole in ((1.02, True), (1.03, False)):  # an axis up to 1 has two per cent more
        line = Line("a", [(0, 0.5), (1, highest), (2, 1.0)])
        drawing = next(ET.fromstring(svg(Lines("T", "x", "y", [line], zero_y=True, top=1.0))).iter("svg"))
        grid = [part for part in drawing.iter("line") if part.get("x1") == part.get("x2")]
        edge = min(float(part.get("y1")) for part in grid)
        points = [tuple(map(float, pair.split(","))) for pair in drawing.find("polyline").get("points").split()]
        assert min(y for _, y in points) == edge
        assert [y > edge for _, y in points] == ([True, False, True] if whole else [False, True])


@pytest.mark.parametrize(("count", "letters", "at_the_curves"), [(8, 16, True), (9, 16, False), (8, 17, False)])
def test_up_to_eight_names_of_sixteen_letters_stand_at_their_curves_and_others_in_a_legend(
    count, letters, at_the_curves
):
    names = [str(n).ljust(letters, "x") for n in range(count)]
    lines = [Line(name, [(0, 1.0), (5, n + 2.0)]) for n, name in enumerate(names)]
    root = ET.fromstring(svg(Lines("T", "x", "y", lines)))
    drawing = root.find("svg")
    shown = [text for text in drawing.iter("text") if (text.text or "").endswith("x" * 9)]
    assert sorted(text.text for text in shown) == (names if at_the_curves else [])
    assert ["".join(item.itertext()).strip() for item in root.iter("li")] == ([] if at_the_curves else names)
    right = float(drawing.get("viewBox").split()[2])
    assert all(float(text.get("x")) + 14 * letters <= right for text in shown)  # 14: letters as a phone shows them


def shown(figure):
    return terminal(figure, 60, colour=False).splitlines()[1:]


@pytest.mark.parametrize(
    ("high", "right", "log"),
    [(math.inf, True, False), (math.inf, True, True), (1e300, True, False), (-math.inf, False, False),
     (-1e300, False, False), (0.0, False, True), (1e-301, False, True)],
)  # fmt: skip
def test_an_interval_that_extends_beyond_the_axis_is_drawn_to_the_end_on_its_side(high, right, log):
    marks = [Mark("all", 3.0, -math.inf, math.inf), Mark("this", math.nan, -math.inf, high), Mark("some", 3, 2, 9)]
    figure = Intervals("T", "x", marks, log_x=log)
    bars = [line for line in ET.fromstring(svg(figure)).iter("line") if line.get("stroke-linecap")]
    whole, this, _ = ((float(bar.get("x1")), float(bar.get("x2"))) for bar in bars)
    assert whole[0] < whole[1]
    assert this == (whole if right else (whole[0], whole[0]))
    rows = [line.removeprefix(name).strip() for line, name in zip(shown(figure), (" all", "this"))]
    assert rows[1] == (rows[0].replace("●", "─") if right else "─")


@pytest.mark.parametrize(("name", "first"), [("", 1000), ("a name", 1000), ("", 100_000)])
def test_every_number_of_an_axis_stands_below_its_tick(name, first):
    *_, ruler, numbers, _ = shown(Intervals("T", "x", [Mark(name, first + 2, first, first + 5)]))
    ticks = [at for at, sign in enumerate(ruler) if sign == "┴"]
    found = [*re.finditer(r"\S+", numbers)]
    assert len(found) == len(ticks) >= 3
    for words, at in zip(found, ticks):
        assert words.start() == max(0, min(60 - len(words[0]), at - len(words[0]) // 2))  # within the figure


@pytest.mark.parametrize("low", [1.0, 2e-3, 6.2e-4, 4e-5, 3e-5, 6e-8, -2e-3])
@pytest.mark.parametrize("span", [1e-4, 1e-3, 1e-2, 0.1, 1.0])
@pytest.mark.parametrize("name", ["", "a", "abcdef"])
def test_no_number_of_an_axis_runs_into_the_next(low, span, name):
    marks = [Mark(name, low, low, low + span * abs(low))]
    *_, ruler, numbers, _ = terminal(Intervals("T", "x", marks), 40, colour=False).splitlines()
    axis = Axis.of([low, marks[0].high], log=False, zero=low < 0.5 * marks[0].high)
    assert len(numbers.split()) == ruler.count("┴") >= 2
    assert set(numbers.split()) <= {number(tick) for tick in axis.ticks}


@pytest.mark.parametrize("ends", [(math.nan, 2.0), (0.5, math.nan)])
def test_an_interval_without_one_of_its_ends_is_its_value_alone(ends):
    figure = Intervals("T", "x", [Mark("a", 1.0, *ends), Mark("b", 1.0, 0.5, 2.0)])
    assert svg(figure).count("stroke-linecap") == 1
    assert svg(figure).count("<circle") == 2
    assert "├" not in terminal(figure, 60, colour=False).splitlines()[1]
