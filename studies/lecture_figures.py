"""The figures of the lectures' pages, each from a real model; some minutes on one core.

    python studies/lecture_figures.py FOLDER [NAME …]        default: all of them

mask            the weights of self-attention, trained on the phrasebook's English
unrolled        a recurrent network, step by step over a sentence
embeddings      word vectors of an LSTM, by their two largest principal components
positions       Vaswani's sinusoids
gradients       ‖∂h_t/∂h_s‖ of untrained networks by the distance t − s, mean of ten draws
lengths         copying strings: one vector against attention, by length
alignment       Bahdanau's model on short sentences of the phrasebook
kernels         K(u) of the four kernels
architectures   five systems by their parts, with the number of weights of each

A figure is one SVG file that has its own background, light or dark by the reader's setting.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from regard.base.writing import write_text
from regard.corpora.phrasebook import lexicon, make_pairs
from regard.layers.position import Sinusoid
from regard.layers.recurrent import CELLS, LSTM, Elman, Recurrent
from regard.layers.scores import KERNELS, named_score
from regard.report.colours import OKABE_ITO, hexadecimal, shade
from regard.report.figures import Heat, Line, Lines
from regard.report.svg import svg
from regard.report.svg_file import as_file
from regard.runs.train import train
from regard.systems.catalogue import load_module
from regard.systems.sizes import sizes_of

SENTENCE = "the black cat sleeps in the garden"
CLASSES: Mapping[str, Sequence[Any]] = {
    "animals": lexicon.ANIMALS,
    "food": lexicon.FOOD,
    "people": lexicon.PEOPLE,
    "places": lexicon.PLACES,
}
TRAINING = {"schedule": "cosine", "batch_tokens": 512, "threads": 1, "device": "cpu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*DRAW, []], help="default: all")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or DRAW:
        write_text(options.folder / f"{name}.svg", DRAW[name]())
        print(options.folder / f"{name}.svg", flush=True)


# -- what is trained -------------------------------------------------------------------------------------------------


@cache
def english() -> tuple[str, ...]:
    """Short sentences of the phrasebook, as words with spaces between them."""
    found = (" ".join(re.findall(r"\w+", pair.source.lower())) for pair in make_pairs(6000, seed=1, longest=10))
    return tuple(dict.fromkeys(found))


def learned(system: str, data: Sequence[Any], steps: int, model: Mapping[str, Any], rate: float) -> Any:
    """A run of this system after so many steps, from a folder that is gone."""
    training = {"steps": steps, "evaluate_every": steps, "checkpoint_every": steps, "learning_rate": rate, **TRAINING}
    with TemporaryDirectory() as folder:
        settings = {"data": {"tokenizer": "word"}, "model": dict(model), "training": training}
        return train(system, data=list(data), run=Path(folder) / "run", size="tiny", seed=1, settings=settings)


def explained(run: Any, text: str) -> tuple[list[str], torch.Tensor, dict[str, Any]]:
    """The words it reads, beginning with <eos>, the probabilities after each [T, V], and the parts."""
    ids = [run.tokenizer.eos, *run.tokenizer.encode(text)]
    with torch.no_grad():
        logits, _, parts = run.model.explain(torch.tensor([ids]))
    return [run.tokenizer.token(symbol) for symbol in ids], logits[0].softmax(dim=-1), parts


# -- the figures -----------------------------------------------------------------------------------------------------


def mask() -> str:
    run = learned("self-attention", english(), 400, {"width": 32, "position": "sinusoid"}, 1e-2)
    words, _, parts = explained(run, SENTENCE)
    weights = parts["layers"]["0"]["weights"][0, 0].numpy()
    seen = np.where(np.tri(len(words), dtype=bool), weights, np.nan)
    return as_file(
        svg(Heat("Attention weights", words, words, seen.tolist(), "key", "query", "weight", 0, 1, root=True))
    )


def unrolled() -> str:
    run = learned("rnn", english(), 1200, {"layers": 1, "width": 32}, 8e-3)
    words, chances, parts = explained(run, SENTENCE)
    hidden = parts["layers"]["0"]["hidden"][0, :, :16]
    step, cell, top = 104, 13, 92
    drawn = []
    for t, word in enumerate(words):
        x = 40 + step * t
        best = int(chances[t].argmax())
        drawn += [
            label(x + 26, 34, run.tokenizer.token(best), bold=True),
            label(x + 26, 54, f"{float(chances[t, best]):.2f}"),
            arrow(x + 26, top - 4, x + 26, 62, "W_hy"),
            *(
                square(x + cell * (n % 4), top + cell * (n // 4), cell, float(value))
                for n, value in enumerate(hidden[t])
            ),
            f'<rect x="{x}" y="{top}" width="{4 * cell}" height="{4 * cell}" fill="none" stroke="currentColor"/>',
            arrow(x + 26, top + 84, x + 26, top + 56, "W_hx"),
            label(x + 26, top + 104, word),
        ]
        if t:
            drawn.append(arrow(x - step + 56, top + 26, x - 4, top + 26, "W_hh"))
    return picture(
        drawn, 40 + step * len(words), top + 120, "A recurrent network unrolled",
        f"What it reads, 16 of its 32 hidden units, and the word it expects: {', '.join(words)}.",
    )  # fmt: skip


def embeddings() -> str:
    run = learned("lstm", english(), 900, {"layers": 1, "width": 48}, 1e-2)
    counts = Counter(word for line in english() for word in line.split())
    singular = {name: [noun.english[0] for noun in nouns] for name, nouns in CLASSES.items()}
    several = Counter(word for words in singular.values() for word in set(words))
    chosen = {
        word: name
        for name, words in singular.items()
        for word in sorted({w for w in words if several[w] == 1 and " " not in w}, key=lambda w: (-counts[w], w))[:9]
    }
    table = run.model.get_parameter("embedding.table.weight").detach().double()
    vectors = torch.nn.functional.normalize(table[[run.tokenizer.encode(word)[0] for word in chosen]], dim=-1)
    centred = vectors - vectors.mean(dim=0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    plane = left[:, :2] * sizes[:2]
    plane = plane / plane.abs().amax(dim=0)
    plane = plane * torch.tensor([plane[plane[:, axis].abs().argmax(), axis].sign() for axis in (0, 1)])
    colours = dict(zip(CLASSES, OKABE_ITO, strict=False))
    drawn = []
    for (word, name), (x, y) in zip(chosen.items(), apart([(340 + 280 * a, 230 - 200 * b) for a, b in plane.tolist()])):
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colours[name]}"/>')
        drawn.append(
            f'<text x="{x + 7:.1f}" y="{y + 5:.1f}" font-size="14" fill="{colours[name]}">{escape(word)}</text>'
        )
    for place, name in enumerate(CLASSES):
        drawn.append(f'<circle cx="{30 + 130 * place}" cy="527" r="5" fill="{colours[name]}"/>')
        drawn.append(f'<text x="{42 + 130 * place}" y="532" font-size="15">{name}</text>')
    return picture(drawn, 760, 545, "Word vectors in two dimensions", "Words of one class lie near each other.")


def apart(points: Sequence[tuple[float, float]], least: float = 15.0) -> list[tuple[float, float]]:
    """The points, moved up or down where their words would lie over each other."""
    placed: list[tuple[float, float]] = []
    for x, y in points:
        while any(abs(x - a) < 60 and abs(y - b) < least for a, b in placed):
            y += 3
        placed.append((x, y))
    return placed


def positions() -> str:
    places = torch.arange(64)[None]
    vectors = Sinusoid(32)(places, torch.float32)[0]
    rows = [str(place) if place % 8 == 0 else "" for place in range(64)]
    columns = [str(part) if part % 4 == 0 else "" for part in range(32)]
    return as_file(
        svg(Heat("Sinusoids", rows, columns, vectors.tolist(), "component", "position", "value", diverging=True))
    )


def gradients() -> str:
    steps, draws = 60, 10
    made: Mapping[str, Callable[[], Recurrent]] = {
        "tanh": lambda: Elman(32, 32),
        "ReLU, identity": lambda: Elman(32, 32, activation="relu", initialisation="identity"),
        "LSTM, bias 1": lambda: LSTM(32, 32),
        "LSTM, bias 5": lambda: LSTM(32, 32, forget_bias=5.0),
        "GRU": lambda: CELLS["gru"](32, 32),
    }
    lines = []
    for name, make in made.items():
        sizes = np.zeros(steps)
        for draw in range(draws):
            torch.manual_seed(draw)
            sizes += through_time(make(), torch.randn(steps, 32)) / draws
        lines.append(
            Line(name, [(distance, float(size / sizes[1])) for distance, size in enumerate(sizes) if distance])
        )
    return as_file(
        svg(Lines("Gradients through time", "steps back", "size of the gradient, 1 step back = 1", lines, log_y=True))
    )


def through_time(layer: Recurrent, words: torch.Tensor) -> np.ndarray:
    """‖∂(r·h_T)/∂x_{T−k}‖ for a random direction r and k = 0, 1, …"""
    words = words.requires_grad_()
    state = layer.begin(1, device="cpu", dtype=torch.float32)
    for word in words:
        state = {name: value for name, value in layer.step(word[None], state).items() if name in layer.memory}
    (state["hidden"][0] @ torch.randn(layer.width)).backward()
    assert words.grad is not None
    return words.grad.norm(dim=-1).flip(0).numpy().astype(float)


def lengths() -> str:
    random = Random(1)
    strings = [" ".join(random.choices("abcdefgh", k=random.randint(2, 16))) for _ in range(6000)]
    pairs = list(dict.fromkeys((one, one) for one in strings))
    test = [" ".join(random.choices("abcdefgh", k=length)) for length in range(2, 17) for _ in range(20)]
    lines = []
    for name, system in {"one vector": "seq2seq", "attention": "bahdanau"}.items():
        model = {"cell": "gru", "layers": 1, "width": 24, "embedding": 24, "dropout": 0.0}
        run = learned(system, pairs, 1200, model, 8e-3)
        right: dict[int, list[float]] = {}
        for source, written in zip(test, run.translate(test, beam=1), strict=True):
            letters, found = source.split(), written.split()
            right.setdefault(len(letters), []).append(sum(map(str.__eq__, letters, found)) / len(letters))
        lines.append(Line(name, [(length, float(np.mean(shares))) for length, shares in sorted(right.items())]))
    return as_file(svg(Lines("Copying strings", "letters", "share of letters that are right", lines, zero_y=True)))


def alignment() -> str:
    pairs = [(pieces(pair.source), pieces(pair.target)) for pair in make_pairs(60_000, seed=1, longest=7)]
    counts = Counter(word for source, _ in pairs for word in source.split())
    common = {word for word, _ in counts.most_common(250)}
    cut = list(dict.fromkeys(pair for pair in pairs if common.issuperset(pair[0].split())))
    model = {"cell": "gru", "layers": 1, "width": 48, "embedding": 32, "dropout": 0.0}
    found = learned("bahdanau", cut, 1000, model, 8e-3).trace("Do not dream with the happy neighbour .").aligned
    values = found.values.tolist()
    return as_file(
        svg(Heat("Where each word looks", found.rows, found.columns, values, "source", "target", "weight", 0, 1))
    )


def pieces(sentence: str) -> str:
    """Words and signs, with spaces between them."""
    return " ".join(re.findall(r"[\w’'-]+|[^\w\s]", sentence))


def kernels() -> str:
    apart = torch.linspace(0, 2.5, 126)[:, None]
    lines = []
    for name in KERNELS:
        found = named_score(name, 1).score(torch.zeros(1, 1), apart)[0]
        values = found.exp() if name == "gaussian" else found  # which is a softmax of −u²/2
        lines.append(Line(name, list(zip(apart[:, 0].tolist(), values.tolist(), strict=True))))
    return as_file(svg(Lines("Kernels", "u = ‖q − k‖ / h", "K(u)", lines, zero_y=True)))


def architectures() -> str:
    names = ("rnn", "seq2seq", "bahdanau", "transformer", "gpt")
    drawn, wide, tall = [], 168, 360
    for place, name in enumerate(names):
        module = load_module(name)
        kind = next(
            one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__
            and issubclass(one, torch.nn.Module) and hasattr(one, "begin") and hasattr(one, "predict")
        )  # fmt: skip
        size = sizes_of(name).of("tiny")
        parts = parts_of(kind(1000, module.Settings(**size)))
        x, y = 10 + wide * place, tall - 20.0
        for part, weights in parts:
            y -= 44
            drawn.append(
                f'<rect x="{x}" y="{y}" width="{wide - 16}" height="34" rx="5" fill="none" stroke="{colour_of(part)}" '
                f'stroke-width="2"/>{label(x + (wide - 16) / 2, y + 15, part)}'
                f"{label(x + (wide - 16) / 2, y + 29, f'{weights:,}'.replace(',', ' '), size=11)}"
            )
            if (part, weights) != parts[-1]:
                drawn.append(arrow(x + (wide - 16) / 2, y - 1, x + (wide - 16) / 2, y - 9))
        drawn.append(label(x + (wide - 16) / 2, tall, name, bold=True))
    return picture(
        drawn, 10 + wide * len(names), tall + 12, "Five architectures",
        "The parts of each system from below, with the number of weights of each: size tiny, 1000 words.",
    )  # fmt: skip


def parts_of(model: torch.nn.Module) -> list[tuple[str, int]]:
    """Its parts in the order in which a word goes through them, with their weights; equal layers are one part."""
    found: list[tuple[str, int]] = []
    children = dict(model.named_children())
    for name in (
        "embedding",
        "source_embedding",
        "encoder",
        "bridge",
        "attend",
        "layers",
        "readout",
        "finish",
        "output",
    ):
        part = children.get(name)
        if part is None:
            continue
        weights = sum(weight.numel() for weight in part.parameters())
        if name == "layers":
            inner = list(part.children())
            found.append((f"{len(inner)} × {KINDS.get(type(inner[0]).__name__, type(inner[0]).__name__)}", weights))
        elif name == "output":
            found.append(("output, tied" if part.weight is None else "output", weights))
        elif weights:
            found.append((NAMES.get(name, name), weights))
    return found


NAMES = {"attend": "attention", "source_embedding": "source embedding", "finish": "layer norm"}
KINDS = {"PreNormBlock": "block", "PreNormDecoderBlock": "decoder block", "Elman": "Elman (tanh)"}
DRAW: Mapping[str, Callable[[], str]] = {
    one.__name__: one
    for one in (mask, unrolled, embeddings, positions, gradients, lengths, alignment, kernels, architectures)
}


# -- drawing ---------------------------------------------------------------------------------------------------------


def picture(drawn: Sequence[str], width: float, height: float, title: str, description: str) -> str:
    words = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return as_file(
        f'<svg role="img" fill="currentColor" viewBox="0 0 {width:.0f} {height:.0f}">{words}{"".join(drawn)}</svg>'
    )


def label(x: float, y: float, words: str, *, bold: bool = False, size: int = 14) -> str:
    weight = ' font-weight="700"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="middle"{weight}>{escape(words)}</text>'


def arrow(x0: float, y0: float, x1: float, y1: float, words: str = "") -> str:
    length = max(abs(x1 - x0), abs(y1 - y0))
    a, b = (x1 - x0) / length, (y1 - y0) / length
    head = f"M{x1:.1f} {y1:.1f}l{-6 * a - 3 * b:.1f} {-6 * b - 3 * a:.1f}l{6 * b:.1f} {6 * a:.1f}z"
    x, y = (x0 + x1) / 2 + (5 if b else -14), (y0 + y1) / 2 + (4 if b else -6)
    named = f'<text x="{x:.0f}" y="{y:.0f}" font-size="11">{words}</text>' if words else ""
    line = f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="currentColor" fill="none"/>'
    return f'{line}<path d="{head}"/>{named}'


def square(x: float, y: float, side: float, value: float) -> str:
    """A number from −1 to 1 as a shade."""
    light, dark = (shade((value + 1) / 2, diverging=True, dark=screen) for screen in (False, True))
    return (
        f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="{hexadecimal(light)}" '
        f'style="--dark:{hexadecimal(dark)}"><title>{value:.2f}</title></rect>'
    )


def colour_of(part: str) -> str:
    kinds = {"embedding": 0, "output": 0, "attention": 3, "encoder": 2}
    found = next((number for kind, number in kinds.items() if kind in part), None)
    if found is None:
        found = 3 if "block" in part else 1 if "×" in part else 6
    return OKABE_ITO[found]


if __name__ == "__main__":
    main()
