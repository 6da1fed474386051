"""What is drawn stays as it was looked at: every figure of golden/drawings.txt, character by character.

After an intended change, `python tests/unit/report/test_drawings.py` rewrites the file; look at the difference before
you keep it.
"""

import hashlib
import math
import random
import re
from itertools import accumulate
from pathlib import Path

import pytest

from regard.report import page
from regard.report.colours import lab_module, lab_variables
from regard.report.figures import Heat, Intervals, Line, Lines, Mark
from regard.report.svg import svg
from regard.report.table import csv_text, latex_text, plain_table
from regard.report.terminal import terminal

GOLDEN = Path(__file__).parents[2] / "golden" / "drawings.txt"
CURVE = [(1, 90.0), (3, 41.0), (10, 17.5), (31, 9.25), (100, 6.5)]
WORDS = ["The", "cat", "sees", "a", "considerably longer word", "<eos>"]
WAVES = [[math.sin(row + column / 3) for column in range(70)] for row in range(40)]
FIGURES = {
    "curves": Lines(
        "Loss & more", "tokens", "perplexity",
        [
            Line("lstm", CURVE, band=[(y * 0.9, y * 1.1) for _, y in CURVE]),
            Line("gpt", [(x, y * 0.8) for x, y in CURVE]),
            Line("gpt", [(x, y * 0.85) for x, y in CURVE], faint=True),
            Line("5-gram", [(1, 12.0)], level=True),
            Line("seen <once>", [(2, 50.0), (20, 30.0), (60, 11.0)], joined=False),
        ],
        log_x=True, log_y=True, best="gpt",
    ),
    "lines from zero, cut at the top": Lines(
        "Norm", "step", "‖∂h‖",
        [Line("a", [(0, 0.5), (10, 4.5), (20, 1.0), (30, math.nan), (40, 2.0)]), Line("b", [(0, 2.0), (40, 2.25)])],
        zero_y=True, top=3.0,
    ),
    "many names": Lines(
        "Nine", "x", "y", [Line(f"line {name}", [(0, name), (5, name * 1.05)]) for name in range(1, 10)], best="line 4"
    ),
    "nothing": Lines("Empty", "x", "y", []),
    "weights": Heat(
        "Attention", WORDS[:4], WORDS, [[0.5, 0.25, 0.125, 0.0, 0.125, math.nan], [0, 1, 0, 0, 0, 0]] * 2,
        x="source", y="target", z="weight", low=0.0, high=1.0, root=True,
    ),
    "two sides": Heat(
        "Differences", ["a", "b"], ["1", "2", "3"], [[-1.5, 0.0, 0.75], [12.0, -300.25, 0.004]],
        x="column", z="nats", diverging=True,
    ),
    "right to left": Heat("שלום", ["one"], ["שלום", "עולם"], [[1.0, 2.0]], y="row"),
    "a picture": Heat("Waves", [str(row) for row in range(40)], [f"t{t}" for t in range(70)], WAVES, x="t", y="unit"),
    "intervals": Intervals(
        "BLEU", "BLEU, 95 %",
        [Mark("transformer", 31.5, 30.25, 32.75), Mark("a system with a name that is long", 12.0, -math.inf, 14.0),
         Mark("rnn", 8.0, 2.0, 20.0), Mark("none", math.nan, math.nan, math.nan)],
        threshold=10.0, threshold_name="copying", best="transformer",
    ),
    "intervals over a logarithm": Intervals(
        "Ratio", "times", [Mark("slow", 0.02, 0.01, 0.05), Mark("fast", 40.0, 30.0, 90.0)], log_x=True, threshold=1.0
    ),
    "a long title": Lines("Long", "steps of the longest training that " * 4, "y", [Line("a", [(0, 1.0), (9, 2.0)])]),
    "no rows": Heat("Empty", [], ["a"], [], x="x"),
    "no columns": Heat("Empty", ["a"], [], [[]], z="z"),
    "no marks": Intervals("Empty", "x", []),
    "half as much": Intervals("Two", "many words " * 14, [Mark("a", 2, 2, 2), Mark("b", 4, 2, 4)], best="b"),
    "a threshold in the middle": Intervals(
        "Ratio", "times", [Mark("a", 0.5, 0.25, 4.0)], log_x=True, threshold=1.0, threshold_name="equal"
    ),
}  # fmt: skip
ROWS = [
    {"label": "5-gram", "perplexity": 12.345, "parameters": 12400, "note": 'a "quoted", one', "share": None},
    {"label": "gpt_2 & co", "perplexity": math.inf, "parameters": 7, "note": "<b>", "share": 0.5},
]
COLUMNS = {
    "label": "system",
    "perplexity": "perplexity",
    "parameters": "parameters",
    "note": "note",
    "share": "share %",
}
PARTS = [
    page.heading("What came of it", 1),
    page.table(ROWS, COLUMNS, best=[1], badge="best"),
    page.table(ROWS, dict.fromkeys("abcdef", "x")),
    page.paragraph("12,400 tokens, 5 %", "note") + page.paragraph("<plain>"),
    page.listing(["one & two", "three"]),
    page.folded("More", "<i>inside</i>", "<i>too</i>"),
    page.beside("<p>left</p>", "", "<p>right</p>"),
    page.sample("The cat ", "The cat\nsees <x>") + page.sample("Else", "The cat") + page.sample("", "alone"),
    page.command("regard train lstm --data.tokenizer char --run 'my run'"),
    page.side_by_side_texts({"source": "a <b>", "reference": "", "gpt": "c"}, quiet=["reference"]),
]


ALPHABET = ["a", "bb", "the cat", "a considerably longer name, of many words", "שלום", "日本語", "x<y", ""]


def any_figure(draw):
    """A figure of any kind; what is drawn of it is kept only as a digest."""

    def points():
        return sorted(
            (draw.choice([draw.uniform(0, 40), draw.uniform(1, 9000)]), draw.uniform(0.01, 300)) for _ in "12345"
        )

    names, title = draw.sample(ALPHABET, 7), draw.choice(ALPHABET)
    kind = draw.randrange(3)
    if kind == 0:
        drawn = []
        for name in names[: draw.randrange(1, 7)]:
            where, scale = points(), draw.choice([1.0, 0.001, -5.0])
            where = [(x, y * scale) for x, y in where]
            band = draw.choice([(), [(y - 1, y + abs(y)) for _, y in where]])
            drawn.append(Line(name, where, draw.random() < 0.2, draw.random() < 0.2, band, draw.random() < 0.7))
        flags = [draw.random() < 0.4 for _ in range(3)]
        return Lines(
            title, "x", "y", drawn, *flags, top=draw.choice([math.inf, 50.0]), best=draw.choice(["", names[0]])
        )
    if kind == 1:
        rows, columns = draw.randrange(1, 7), draw.choice([1, 3, 7, 20, 60, 130])
        values = [
            [draw.choice([math.nan, draw.gauss(0, 1), draw.gauss(0, 300)]) for _ in range(columns)] for _ in range(rows)
        ]
        labels = [names[0]] + [str(draw.randrange(10 ** draw.randrange(1, 6))) for _ in range(columns - 1)]
        ends = {"low": draw.choice([None, 0.0]), "high": draw.choice([None, 1.0, 500.0])}
        flags = {"diverging": draw.random() < 0.4, "root": draw.random() < 0.3}
        return Heat(title, names[:rows], labels, values, *names[1:4], **ends, **flags)
    marks = []
    for name in names[: draw.randrange(1, 7)]:
        value, reach = draw.gauss(5, 20), draw.choice([0.0, 3.0, math.inf])
        marks.append(Mark(name, value, value - reach, value + 2 * reach))
    threshold = draw.choice([None, 0.0, 7.5])
    return Intervals(
        title, names[6], marks, draw.random() < 0.3, threshold, "what it must pass", best=draw.choice(["", names[0]])
    )


def a_walk(draw):
    """Many points, of which several share a character; a title of any length."""
    heights = accumulate(draw.choice([-1.0, 0.0, 0.25, 1.0]) for _ in range(400))
    words = "step " * draw.randrange(1, 30)
    return Lines("walk", words, "y", [Line("walk", list(enumerate(heights))), Line("start", [(0, 0)], level=True)])


class Whole(random.Random):
    """Small whole numbers, so that many fall on an edge, a tick or each other."""

    def uniform(self, a, b):
        return float(self.randint(max(0, math.ceil(a)), min(12, int(b))))

    def gauss(self, mu, sigma):
        return float(self.randint(-4, 4))

    def choice(self, options):
        chosen = super().choice(options)
        return 5.0 if chosen == 50.0 else chosen  # a top that some of them reach


def digests():
    """Many figures, each as a digest of all that is drawn of it."""
    for number in range(188):
        draw = random.Random(number) if number < 120 else Whole(number)
        figure, width = any_figure(draw) if number < 180 else a_walk(draw), draw.choice([40, 60, 79, 120, 200])
        whole = [re.sub(r"(?<=base64,)[\w+/=]+", "…", svg(figure)), figure.description]
        whole += [terminal(figure, width, colour=colour) for colour in (False, True)]
        yield f"{number:3} {hashlib.sha256(''.join(whole).encode()).hexdigest()[:16]}"


def drawings():
    yield "digests", "\n".join(digests())
    yield "variables of the lab", lab_variables()
    yield "colours of the lab", hashlib.sha256(lab_module().encode()).hexdigest()
    yield "page", re.sub("<style>.*?</style>|sha256-[^']*", "…", page.page("A <page>", *PARTS), flags=re.DOTALL)
    yield "table", plain_table(ROWS, COLUMNS, "Title")
    yield "csv", csv_text(ROWS, [*COLUMNS])
    yield "latex", latex_text(ROWS, COLUMNS, "A caption with 5 %")
    for name, figure in FIGURES.items():
        # the bytes of a picture depend on zlib: other tests read its pixels
        yield f"{name}, svg", re.sub(r"(?<=base64,)[\w+/=]+", "…", svg(figure)).replace("><", ">\n<")
        yield f"{name}, 72 columns", terminal(figure, 72, colour=False)
        yield f"{name}, 44 columns", terminal(figure, 44, colour=False)
        yield f"{name}, in colour", terminal(figure, 60, colour=True).replace("\x1b", "␛")
        yield f"{name}, in words", figure.description


def test_every_drawing_is_as_it_was_looked_at():
    kept = dict(part.split("\n", 1) for part in GOLDEN.read_text(encoding="utf-8").split("=== ")[1:])
    for name, drawing in drawings():
        assert drawing.replace("\r\n", "\n") + "\n" == kept[name], name


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "nothing"])
def test_nothing_of_a_figure_lies_outside_it(name):
    drawn = svg(FIGURES[name])
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn).groups())
    for attribute, most in (("x", width), ("x1", width), ("x2", width), ("y", height), ("y1", height), ("y2", height)):
        places = [float(place) for place in re.findall(rf'\s{attribute}="(-?[\d.]+)"', drawn)]
        assert all(-0.5 <= place <= most + 0.5 for place in places), attribute


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"=== {name}\n{drawing}\n" for name, drawing in drawings()), encoding="utf-8")
