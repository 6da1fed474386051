"""The toy examples of the lectures as real models, so that `--work` shows their arithmetic: `lecture:any-b`.

The running example of lecture 002: a string of As and Bs is followed by B if it contains a B. e_A = (1, 0)
and e_B = (0, 1) are embedding, key and value; the query q = (0, q) finds B. The average is `dan`, attention is
`self-attention` with W_q = [[0, 0], [q, q]], so that the query of every letter is (0, q).
"""

from __future__ import annotations

import math

import torch

from regard.base.errors import RegardError
from regard.insight.arithmetic.calculation import calculate_ids
from regard.insight.arithmetic.equation import Section, Term, WorkedExample, add_up, shown
from regard.systems import dan, self_attention
from regard.systems.model import Stack

PREFIX = "lecture:"
EXAMPLES = ("any-b",)
LETTERS = "AB"
STRING = "AABA"
LONGEST = 64


def lecture_example(name: str, text: str | None = None) -> WorkedExample:
    """The example of this name, on the lecture's string or another one."""
    example = name.removeprefix(PREFIX)
    if example not in EXAMPLES:
        raise RegardError(f"There is no example {name!r}; choose one of {', '.join(PREFIX + one for one in EXAMPLES)}.")
    string = STRING if text is None else text.strip()
    if not string or set(string) - set(LETTERS) or len(string) > LONGEST:
        raise RegardError(f"{PREFIX}{example} reads a string of As and Bs, at most {LONGEST} of them: {STRING}.")
    b = string.count("B")
    a = len(string) - b
    ratio = lambda e: f"{b}·{e} / ({b}·{e} + {a})" if b != 1 else f"{e} / ({e} + {a})"  # noqa: E731
    sections = [
        *_worked("DAN", average_model(), string, f"{b}/{len(string)}"),
        *_worked("q = (0, 1), with e rounded to 3", looking_model(math.log(3)), string, ratio("3") + " = {found:.3g}"),
        *_worked("q = (0, 1)", looking_model(1.0), string, ratio("e") + " = {found:.3f}"),
        *_worked("q = (0, 10)", looking_model(10.0), string, ratio("e¹⁰") + " = {found:.5f}"),
        half_at(10.0),
    ]
    return WorkedExample(PREFIX + example, string, len(string) - 1, "", None, string[-1], "", tuple(sections))


def average_model() -> Stack:
    """The deep averaging network, without layers: the average itself."""
    return _with_letters(dan.DAN(2, dan.Settings(layers=0, width=2)))


def looking_model(q: float) -> Stack:
    """One unscaled self-attention layer in which every query is (0, q)."""
    settings = self_attention.Settings(width=2, score="dot", tied=True)
    model = _with_letters(self_attention.SelfAttentionModel(2, settings))
    weights = {"query": [[0.0, 0.0], [q, q]], "key": [[1.0, 0.0], [0.0, 1.0]], "value": [[1.0, 0.0], [0.0, 1.0]]}
    with torch.no_grad():
        for name, weight in weights.items():
            model.layers[0].get_parameter(f"{name}.weight").copy_(torch.tensor(weight, dtype=torch.float64))
    return model


def _with_letters(model: Stack) -> Stack:
    """e_A = (1, 0), e_B = (0, 1)."""
    model = model.double().eval()
    with torch.no_grad():
        model.embedding.table.weight.copy_(torch.eye(2))
    return model


def _worked(title: str, model: Stack, string: str, said: str) -> list[Section]:
    """The sections of the model; the last one states the weight of the B in the form of the lecture."""
    ids = [LETTERS.index(letter) for letter in string]
    work = calculate_ids(model, ids, lambda token: LETTERS[token]).at()
    *sections, output = work.sections
    found = output.lines[1].value  # the component of B
    output = Section(output.title, output.lines, f"B gets {said.format(found=found)}.")
    return [Section(f"{title}: {one.title}", one.lines, one.about) for one in (*sections, output)]


def half_at(q: float) -> Section:
    """The length from which a single B gets less than half of the weight: exp(q) = n − 1."""
    line = add_up("n", "exp(q) / (exp(q) + n − 1) = 1/2   ⇔   n = exp(q) + 1",
                  [Term("", math.exp(q), (q,), "exp"), Term("", 1.0)])  # fmt: skip
    return Section(
        f"q = (0, {shown(q)}): half of the attention",
        (line,),
        "For longer strings, the As together get more attention than the B.",
    )
