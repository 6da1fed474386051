"""Every word and number that a page, a terminal and JSON give of three made-up traces stays as it was.

They are compared with tests/golden/traces.json; `python tests/unit/insight/test_trace_words.py` writes it anew. The
numbers are made up, so that no model and no processor has a part in them.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from regard.insight.trace import Branch, Candidate, Trace
from regard.insight.views import figures, page
from regard.insight.views.as_json import facts, part, parts, trace_json
from regard.insight.views.steps import most_surprising, steps_of
from regard.insight.views.terminal import show
from regard.insight.words import attention_name, part_name

GOLDEN = Path(__file__).parents[2] / "golden" / "traces.json"


def grid(*shape, low=0.0, high=1.0):
    """Numbers from low to high, none of them near the edge between two roundings or two shades."""
    count = int(np.prod(shape))
    return (low + (high - low) * ((np.arange(count) * 37 % 101) + 0.31) / 101.7).reshape(shape)


def shares(*shape, causal=False):
    values = grid(*shape)
    values = np.tril(values) if causal else values
    return values / values.sum(-1, keepdims=True)


def choices(*pairs):
    return tuple(Candidate(token, probability) for token, probability in pairs)


def language():
    nan = np.nan
    return Trace(
        system="gpt", task="language model", run="mine", text="the cat é",
        tokens=("<eos>", "the", " cat", "<0xC3>", "<0xA9>"), targets=("the", " cat", "<0xC3>", "<0xA9>", ""),
        probability=np.array([0.5123, 0.0312, 0.2571, 0.9, nan]), rank=np.array([1, 4, 2, 1, 0]),
        entropy=np.array([1.2345, 2.5, 0.75, 0.125, 3.1]),
        top=(
            choices(("the", 0.5123), ("a", 0.25)), choices((" dog", 0.4), (" cow", 0.3)),
            choices(("x", 0.55), ("<0xC3>", 0.2571)), choices(("<0xA9>", 0.9), ("<0xA8>", 0.05)),
            choices(("\\n", 0.3), ("", 0.1)),
        ),
        attention={"self/0": shares(2, 5, 5, causal=True), "self/1": shares(1, 5, 5, causal=True)},
        hidden={"embedding": grid(5, 3, low=-1), "layer/0": grid(5, 3, high=4), "hidden": grid(5, 3)},
        gates={"layer/0/forget": grid(5, 2), "layer/0/cell": grid(5, 2, low=-2, high=2), "layer/1/update": grid(5, 2)},
        matrices={"layer/0": grid(2, 3, 2, low=-1)}, order=np.array([1, 2, 3, 3, 2]),
        backoff=np.array([1.0, 0.5, 1.0, 1.0, 0.25]),
        gradients=np.where(np.tril(np.ones((5, 5))) > 0, grid(5, 5), 0.0),
        state_gradients={"layer/0/cell": np.tril(grid(5, 5))},
        spans=((0, 0), (0, 3), (3, 7), (8, 9), (8, 9)), notes=("A note on the model.",),
    )  # fmt: skip


def translation():
    beam = (
        Branch(-1, 1, "ils", -0.5, kept=True), Branch(-1, 1, "elles", -1.25, kept=True),
        Branch(-1, 1, "on", -3.0, kept=False), Branch(0, 2, "rient", -0.75, kept=True),
        Branch(1, 2, "rient", -2.0, kept=True), Branch(0, 2, "courent", -4.0, kept=False),
        Branch(3, 3, "<eos>", -0.875, kept=True, finished=True, rank=1, score=-0.4375, text="ils rient"),
        Branch(4, 3, "tous", -2.5, kept=True, rank=2, score=-0.9, text="elles rient tous"),
    )  # fmt: skip
    return Trace(
        system="bahdanau", task="translation", text="They laugh.", translation="ils rient",
        tokens=("<eos>", "ils", "rient"), targets=("ils", "rient", "<eos>"), written=(3, 4, 0),
        source=("they", "laugh", "שלום", "<eos>"), probability=np.array([0.6, 0.78, 0.88]), rank=np.array([1, 1, 1]),
        entropy=np.array([0.9, 0.6, 0.4]),
        top=(choices(("ils", 0.6)), choices(("rient", 0.78)), choices(("<eos>", 0.88))),
        attention={"encoder/0": shares(2, 4, 4), "self/0": shares(1, 3, 3, causal=True), "cross/0": shares(1, 3, 4)},
        hidden={"encoder/embedding": grid(4, 2), "layer/0/context": grid(3, 2, low=-3)},
        gates={"encoder/0/backward/forget": grid(4, 2), "layer/0/reset": grid(3, 2)}, alignment=shares(3, 4),
        gradients=np.tril(grid(3, 3)), source_gradients=grid(3, 4), beam=beam,
    )  # fmt: skip


def classification():
    return Trace(
        system="classifier", task="classification", text="so good", label="very good", tokens=("<eos>",), targets=("",),
        source=("so", "good", "<eos>"), probability=np.array([np.nan]), rank=np.array([0]), entropy=np.array([0.5]),
        top=(choices(("very good", 0.75), ("bad", 0.25)),), source_gradients=grid(1, 3),
    )  # fmt: skip


TRACES = {"language": language, "translation": translation, "classification": classification}


def told(name):
    trace = TRACES[name]()
    heats = [*(heat for one in trace.attention for heat in figures.named(trace, one)), *figures.gates(trace),
             *figures.gates(trace, encoder=True), *figures.matrices(trace),
             *figures.gradients(trace).values()]  # fmt: skip
    numbers = {each: part(trace, each) for each in parts(trace)}
    found = {
        "terminal": show(trace, width=96, colour=False).split("\n"),
        "narrow": show(trace, width=60, colour=False).split("\n"),
        "json": trace_json(trace), "facts": facts(trace), "opens": most_surprising(trace),
        "figures": [[one.title, one.x, one.y, one.z, one.low, one.high, one.diverging, one.root] for one in heats],
        "parts": {each: [list(values.shape), str(values.dtype), [float(f"{bound:.4g}") for bound in bounds]]
                  for each, (values, bounds) in numbers.items()},
        "page": [page._lead(trace), page._both(trace), page._columns(trace), page._steps(trace)],
        "steps": [[one.number, one.read, one.came, [each.came for each in one.expected]] for one in steps_of(trace)],
        "names": [*map(attention_name, trace.attention), *map(part_name, [*trace.hidden, *trace.gates])],
        "repr": repr(trace), "rows": {one: list(trace.row_tokens(one)) for one in (*trace.hidden, *trace.gates)},
        "sides": {one: [trace.attention_matrix(one).of_rows, trace.attention_matrix(one).of_columns] for one in
                  trace.attention},
    }  # fmt: skip
    return json.loads(json.dumps(found, allow_nan=False))


@pytest.mark.parametrize("name", TRACES)
def test_all_that_is_shown_of_a_trace_stays_as_it_was(name):
    found, known = told(name), json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    assert found.keys() == known.keys()
    for view in known:
        assert found[view] == known[view], view


@pytest.mark.parametrize("name", TRACES)
def test_without_javascript_a_page_has_the_table_of_steps_and_the_words_of_its_head(name):
    trace = TRACES[name]()
    whole = page.trace_page(trace)
    assert len(re.findall(r"<noscript>.*?</noscript>", whole, re.DOTALL)[0].split("<tr>")) >= trace.steps + 1
    assert f"<title>{trace.run or trace.system}: " in whole
    for note in trace.notes:
        assert note in whole


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}: {json.dumps(told(name), ensure_ascii=False)}" for name in TRACES]
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")  # a line for each trace
