"""Readable labels for tokens and parts: spaces visible, the bytes of one character as the character, `cross/0` as
"Cross-attention, layer 1". Terminal and page use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from unicodedata import category

from regard.insight.trace import Branch
from regard.report.figures import legible

BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")  # how a tokenizer writes a token that is only part of a character
SPACE = "␣"
NOTHING = "–"  # no known next token

LOOKS = {
    "self": "Self-attention",
    "cross": "Cross-attention",
    "encoder": "Self-attention of the encoder",
    "average": "Average",
}
GATES = ("input", "forget", "store", "output", "reset")
PARTS = {
    "embedding": "word vectors",
    "hidden": "the vector that the prediction is made from",
    "feedforward": "feed-forward",
    "context": "context vector",
    "attention": "self-attention",
    "cross": "cross-attention",
    **{name: f"{name} gate" for name in GATES},
}
WAYS = {"forward": "reading forward", "backward": "reading backward"}


def labels(tokens: Sequence[str]) -> tuple[str, ...]:
    """One label for each token; if several tokens are the bytes of one character, the character with 1/2, 2/2."""
    shown: list[str] = []
    while len(shown) < len(tokens):
        first = len(shown)
        size, text = _character(tokens[first:])
        if size > 1:
            shown += [f"{visible(text)} {part}/{size}" for part in range(1, size + 1)]
        else:
            shown.append(visible(text))
    return tuple(shown)


def labels_after(before: Sequence[str], choices: Iterable[str]) -> list[str]:
    """Labels of the choices after these tokens: the character that a choice completes, if it completes one."""
    started = len(before)
    while started and BYTES.fullmatch(before[started - 1]):
        started -= 1
    return [labels([*before[started:], choice])[-1] for choice in choices]


def branch_labels(branches: Sequence[Branch]) -> list[str]:
    """The label of each candidate of a search, after the candidates that lead to it."""
    paths: list[tuple[str, ...]] = []
    for branch in branches:
        paths.append((*(paths[branch.parent] if branch.parent >= 0 else ()), branch.token))
    return [labels_after(path[:-1], path[-1:])[0] for path in paths]


@lru_cache(1 << 14)
def visible(token: str) -> str:
    """A token with visible spaces at its ends, tabs and line ends; zero-width characters become their code."""
    if not token:
        return NOTHING
    if all(category(sign) == "Cf" for sign in token):
        return " ".join(f"U+{ord(sign):04X}" for sign in token)
    bare = token.strip(" \u00a0\u2009\u202f\u3000")
    before, _, after = token.partition(bare) if bare else (token, "", "")
    return SPACE * len(before) + legible(bare) + SPACE * len(after)


def _character(tokens: Sequence[str]) -> tuple[int, str]:
    """How many of the first tokens form complete characters, and these characters; else one token, unchanged."""
    raw = b""
    for size, token in enumerate(tokens, start=1):
        if not BYTES.fullmatch(token):
            break
        raw += bytes(int(code, 16) for code in re.findall(r"0x(..)", token))
        try:
            return size, raw.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                break
    return 1, tokens[0]


def attention_name(name: str, head: int | None = None, heads: int = 1) -> str:
    """cross/0 → Cross-attention, layer 1; with its head, from 1, or the mean of all."""
    kind, _, layer = name.partition("/")
    said = f"{LOOKS.get(kind, kind)}, layer {int(layer) + 1}" if layer.isdecimal() else name
    if heads == 1:
        return said
    return f"{said}, " + (f"mean of {heads} heads" if head is None else f"head {head + 1}")


def part_name(name: str) -> str:
    """layer/0/forget → Layer 1: forget gate; encoder/0/backward/cell → Encoder layer 1, reading backward: cell."""
    *place, last = name.split("/")
    if last.isdecimal() or last in WAYS:
        place, last = [*place, last], ""
    said = [f"layer {int(step) + 1}" if step.isdecimal() else WAYS.get(step, step) for step in place]
    where = ", ".join(said).replace("encoder, layer", "encoder layer").replace("layer, layer", "layer")
    whole = f"{where}: {PARTS.get(last, last)}" if where and last else where or PARTS.get(last, last)
    return whole[:1].upper() + whole[1:]
