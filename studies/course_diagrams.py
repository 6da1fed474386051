"""The diagrams of the course: boxes and arrows in one style, light or dark by the reader's setting.

    python studies/course_diagrams.py FOLDER [NAME …]        default: all of them

A diagram is a list of boxes on a grid and of arrows between them. They draw what a section explains; the figures of
`studies/lecture_figures.py` show real models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from math import hypot
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from lecture_figures import label, picture
from regard.base.writing import write_text
from regard.report.colours import OKABE_ITO

WIDE, TALL = 100, 62  # of a place of the grid
WORD, STATE, LOOK, SUM, OUT = OKABE_ITO[0], OKABE_ITO[1], OKABE_ITO[3], OKABE_ITO[2], OKABE_ITO[6]


@dataclass(frozen=True)
class Box:
    words: str
    column: float
    row: float  # from above
    colour: str = WORD
    width: float = 78
    height: float = 34
    round: float = 5

    @property
    def center(self) -> tuple[float, float]:
        return WIDE * (self.column + 0.5), TALL * (self.row + 0.5)

    def edge(self, other: tuple[float, float]) -> tuple[float, float]:
        """Where a straight line to another center leaves the box."""
        x, y = self.center
        dx, dy = other[0] - x, other[1] - y
        share = min(
            (self.width / 2) / abs(dx) if dx else float("inf"), (self.height / 2) / abs(dy) if dy else float("inf")
        )
        return x + dx * share, y + dy * share

    def drawn(self) -> str:
        x, y = self.center
        lines = self.words.split("\n")
        frame = (
            f'<rect x="{x - self.width / 2:.0f}" y="{y - self.height / 2:.0f}" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" rx="{self.round}" fill="none" stroke="{self.colour}" stroke-width="2"/>'
        )
        first = y + 5 - 8 * (len(lines) - 1)
        return frame + "".join(label(x, first + 16 * place, line, size=13) for place, line in enumerate(lines))


@dataclass(frozen=True)
class Arrow:
    start: str
    end: str
    words: str = ""
    strength: float = 1.0  # opacity: a weight


def diagram(title: str, description: str, boxes: Mapping[str, Box], arrows: list[Arrow]) -> str:
    drawn = [box.drawn() for box in boxes.values()]
    for one in arrows:
        a, b = boxes[one.start], boxes[one.end]
        (x0, y0), (x1, y1) = a.edge(b.center), b.edge(a.center)
        length = max(hypot(x1 - x0, y1 - y0), 1.0)
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        head = f"M{x1:.1f} {y1:.1f}l{-8 * dx - 4 * dy:.1f} {-8 * dy + 4 * dx:.1f}l{8 * dy:.1f} {-8 * dx:.1f}z"
        line = f"M{x0:.1f} {y0:.1f}L{x1 - 6 * dx:.1f} {y1 - 6 * dy:.1f}"
        drawn.append(
            f'<g opacity="{one.strength:.2f}"><path d="{line}" stroke="currentColor" stroke-width="1.4" fill="none"/>'
            f'<path d="{head}"/></g>'
        )
        if one.words:
            x, y = (x0 + x1) / 2 + (6 if abs(dy) > 0.5 else -14), (y0 + y1) / 2 + (4 if abs(dy) > 0.5 else -7)
            drawn.append(f'<text x="{x:.0f}" y="{y:.0f}" font-size="12">{escape(one.words)}</text>')
    width = WIDE * (max(box.column for box in boxes.values()) + 1)
    height = TALL * (max(box.row for box in boxes.values()) + 1)
    return picture(drawn, width, height, title, description)


def recurrence() -> str:
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for t, word in enumerate(("The", "cat", "sleeps"), 1):
        boxes |= {
            f"x{t}": Box(word, t, 2),
            f"h{t}": Box(f"h{'₁₂₃'[t - 1]}", t, 1, STATE),
            f"p{t}": Box("next?", t, 0, OUT),
        }
        arrows += [Arrow(f"x{t}", f"h{t}", "W"), Arrow(f"h{t}", f"p{t}", "Wₒ")]
    boxes["h0"] = Box("h₀ = 0", 0, 1, STATE)
    arrows += [Arrow(f"h{t}", f"h{t + 1}") for t in range(3)]
    return diagram("A recurrent network, unrolled", "Words go up into states, states go right.", boxes, arrows)


def lstm() -> str:
    boxes = {
        "before": Box("cell c", 0, 0, STATE), "keep": Box("×", 1.2, 0, SUM, 34), "add": Box("+", 2.6, 0, SUM, 34),
        "after": Box("new cell", 4.6, 0, STATE), "write": Box("×", 2.6, 1, SUM, 34), "show": Box("× tanh", 4.6, 1, SUM),
        "forget": Box("forget\ngate", 1.2, 2.1, LOOK, 78, 42), "store": Box("store\ngate", 2.2, 2.1, LOOK, 78, 42),
        "new": Box("candidate", 3.2, 2.1, WORD, 84), "output": Box("output\ngate", 4.6, 2.1, LOOK, 78, 42),
        "in": Box("word x, state h", 2.6, 3.2, WORD, 130), "hidden": Box("new state h", 5.8, 1, STATE, 96),
    }  # fmt: skip
    arrows = [
        Arrow("before", "keep"), Arrow("keep", "add"), Arrow("add", "after"), Arrow("forget", "keep"),
        Arrow("store", "write"), Arrow("new", "write"), Arrow("write", "add"), Arrow("after", "show"),
        Arrow("output", "show"), Arrow("show", "hidden"),
        *(Arrow("in", gate) for gate in ("forget", "store", "new", "output")),
    ]  # fmt: skip
    return diagram("An LSTM cell", "The cell runs along the top; gates below decide.", boxes, arrows)


def encoder_decoder() -> str:
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for t, word in enumerate(("They", "are", "watching", "<eos>")):
        boxes |= {f"x{t}": Box(word, t, 2), f"h{t}": Box("h", t, 1, STATE)}
        arrows += [Arrow(f"x{t}", f"h{t}"), *([Arrow(f"h{t - 1}", f"h{t}")] if t else [])]
    for t, (read, wrote) in enumerate((("<eos>", "Ils"), ("Ils", "regardent"), ("regardent", "<eos>"))):
        boxes |= {f"y{t}": Box(read, t + 5, 2), f"s{t}": Box("s", t + 5, 1, LOOK), f"p{t}": Box(wrote, t + 5, 0, OUT)}
        arrows += [Arrow(f"y{t}", f"s{t}"), Arrow(f"s{t}", f"p{t}"), *([Arrow(f"s{t - 1}", f"s{t}")] if t else [])]
    arrows.append(Arrow("h3", "s0", "one vector"))
    return diagram("Encoder and decoder", "The last state of the encoder begins the decoder.", boxes, arrows)


def soft_lookup() -> str:
    rows = [("Zhang", "Aston", 0.08), ("Lipton", "Zachary", 0.76), ("Smola", "Alex", 0.08), ("Hu", "Rachel", 0.08)]
    boxes, arrows = (
        {"query": Box("query: Li", 0, 1.5, LOOK, 84), "out": Box("mostly\nZachary", 5, 1.5, OUT, 84, 44)},
        [],
    )
    for place, (key, value, weight) in enumerate(rows):
        boxes |= {f"k{place}": Box(key, 1.7, place), f"v{place}": Box(value, 3.3, place, SUM)}
        arrows += [Arrow("query", f"k{place}"), Arrow(f"k{place}", f"v{place}", f"{weight:.2f}", 0.25 + weight)]
        arrows.append(Arrow(f"v{place}", "out", "", 0.15 + weight))
    return diagram("Attention as a soft look-up", "One query, four keys with values.", boxes, arrows)


def query_key_value() -> str:
    boxes = {"x": Box("X", 0, 1), "q": Box("Q", 1.3, 0, LOOK), "k": Box("K", 1.3, 1, LOOK), "v": Box("V", 1.3, 2, SUM)}
    boxes |= {
        "s": Box("Q Kᵀ / √d", 2.7, 0.5, LOOK, 92),
        "m": Box("+ mask", 3.9, 0.5, STATE),
        "a": Box("softmax", 5.1, 0.5, LOOK),
    }
    boxes |= {"y": Box("weights × V", 6.4, 1.4, OUT, 100)}
    arrows = [Arrow("x", "q", "W_q"), Arrow("x", "k", "W_k"), Arrow("x", "v", "W_v"), Arrow("q", "s"), Arrow("k", "s")]
    arrows += [Arrow("s", "m"), Arrow("m", "a"), Arrow("a", "y"), Arrow("v", "y")]
    return diagram("Query, key and value", "Three maps of the same vectors.", boxes, arrows)


def multi_head() -> str:
    boxes = {
        "x": Box("X, width d", 0, 1, WORD, 90),
        "c": Box("side by side", 3.6, 1, SUM, 100),
        "o": Box("W_o", 5, 1, OUT),
    }
    arrows = [Arrow("c", "o")]
    for head in range(3):
        boxes[f"h{head}"] = Box(f"head {head + 1}, width d/3", 1.8, head, LOOK, 140)
        arrows += [Arrow("x", f"h{head}"), Arrow(f"h{head}", "c")]
    return diagram("Several heads", "Three attentions in parallel.", boxes, arrows)


def block() -> str:
    boxes = {
        "x": Box("x", 0, 1), "n1": Box("norm", 1.1, 0, STATE), "a": Box("attention", 2.2, 0, LOOK, 84),
        "s1": Box("+", 3.2, 1, SUM, 34), "n2": Box("norm", 4.2, 0, STATE), "f": Box("feed-forward", 5.4, 0, WORD, 104),
        "s2": Box("+", 6.5, 1, SUM, 34), "y": Box("y", 7.4, 1),
    }  # fmt: skip
    arrows = [Arrow(*pair) for pair in (
        ("x", "n1"), ("n1", "a"), ("a", "s1"), ("x", "s1"),
        ("s1", "n2"), ("n2", "f"), ("f", "s2"), ("s1", "s2"), ("s2", "y"),
    )]  # fmt: skip
    return diagram("A Transformer block, norm first", "Two parts around a straight line.", boxes, arrows)


def beam() -> str:
    boxes = {
        "0": Box("<eos>", 0, 1.5), "a": Box("Ils −0.1", 1.5, 0.5, LOOK, 92), "b": Box("Il −2.4", 1.5, 2.5, LOOK, 92),
        "aa": Box("regardent −0.3", 3.2, 0, LOOK, 124), "ab": Box("sont −6.0", 3.2, 1, STATE, 124),
        "ba": Box("regarde −2.6", 3.2, 2, LOOK, 124), "bb": Box("est −7.1", 3.2, 3, STATE, 124),
        "end": Box("<eos> −0.6", 5, 0, OUT, 96), "other": Box("<eos> −2.9", 5, 2, OUT, 96),
    }  # fmt: skip
    arrows = [
        Arrow(*pair) for pair in (("0", "a"), ("0", "b"), ("a", "aa"), ("b", "ba"), ("aa", "end"), ("ba", "other"))
    ]
    arrows += [Arrow("a", "ab", "", 0.3), Arrow("b", "bb", "", 0.3)]
    return diagram("Beam search", "A tree of beginnings.", boxes, arrows)


DRAW: dict[str, Callable[[], str]] = {
    "recurrence": recurrence, "lstm-cell": lstm, "encoder-decoder": encoder_decoder, "soft-look-up": soft_lookup,
    "query-key-value": query_key_value, "multi-head": multi_head, "block": block, "beam": beam,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DRAW))
    given = parser.parse_args()
    for name in given.names or DRAW:
        write_text(given.folder / f"{name}.svg", DRAW[name]())


if __name__ == "__main__":
    main()
