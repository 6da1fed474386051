"""The course's formulas, written in LaTeX: as MathML for browsers, and as a line of text for a terminal."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert

# $$ a displayed formula $$, or $one within a line$; `code` may have dollars
FORMULA = re.compile(r"^\$\$\n(.+?)\n\$\$$|(?<![\\`$\w])\$(?=\S)([^$`\n]+?)(?<=\S)\$(?![\w$])", re.M | re.S)
SPACED = ("=", "≤", "≥", "<", ">", "≈", "∝", "≠", "→", "⇒", "⇔", "←", "∈", "≪", "↦", "+", "×", "⊙", "∣", "⋅")


@cache
def as_mathml(latex: str, *, block: bool = False) -> str:
    return convert(latex, display="block" if block else "inline")


@cache
def as_tree(latex: str, *, block: bool = False) -> list[Any]:
    """MathML as lists [element, attributes, text, parts], from which a page makes its elements."""
    return _tree(ElementTree.fromstring(as_mathml(latex, block=block)))


def _tree(node: ElementTree.Element) -> list[Any]:
    return [node.tag.rpartition("}")[2], dict(node.attrib), node.text or "", [_tree(part) for part in node]]


@cache
def as_text(latex: str) -> str:
    """h_t = tanh(W x_t + U h_{t−1})"""
    root = ElementTree.fromstring(as_mathml(latex))
    words = re.sub(r" +", " ", _text(root).replace("\u2061", "").replace("…", " … ").replace("∣", "|"))
    words = re.sub(r"(?<=\w)(?=[∑∏])", " ", words)
    return re.sub(r"(?<=[(\[{]) | (?=[)\]},;])", "", words).strip()


def _text(node: ElementTree.Element) -> str:
    kind, parts = node.tag.rpartition("}")[2], [_text(part) for part in node]
    if kind == "mfrac":
        above, below = (part if len(part.strip()) < 3 else f"({part})" for part in parts)
        return f"{above}/{below}"
    if kind in ("msub", "munder"):
        return f" {parts[0]}_{_grouped(parts[1])} "
    if kind in ("msup", "mover"):
        return f" {parts[0]}{'' if parts[1] in '′⊤' else '^'}{_grouped(parts[1])} "
    if kind in ("msubsup", "munderover"):
        return f" {parts[0]}_{_grouped(parts[1])}^{_grouped(parts[2])} "
    if kind == "msqrt":
        return f"√({''.join(parts)})"
    if kind == "mspace":
        return " "
    if kind == "mtr":
        return "".join(parts) + "\n    "
    own = (node.text or "").strip() if kind != "mtext" else (node.text or "")
    spaced = own in SPACED or (kind == "mi" and len(own) > 1)
    return (f" {own} " if spaced else own) + "".join(parts)


def _grouped(part: str) -> str:
    part = part.strip()
    return part if len(part) < 2 else f"{{{part}}}"
