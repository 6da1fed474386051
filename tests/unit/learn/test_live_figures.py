"""The live figures: the pictures are what their scripts draw from the stored data, and what they compute is right."""

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from javascript import evaluated
from regard.layers.recurrent import elman, lstm
from regard.report.svg_file import as_file

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))

from live_pages import DATA, live_script

ROOT = Path(__file__).parents[3]

CHAPTERS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "learn").glob("*.md"))]
NAMES = sorted(path.stem for path in DATA.glob("*.json"))


def data_of(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def run(body, given=None):
    """What `body` returns, with the program of the figures loaded and `given` in reach."""
    loaded = f"{live_script()}\nconst given = {json.dumps(given)};"
    return json.loads(
        evaluated(f"(async () => {{ {loaded}\nreturn JSON.stringify(await (async () => {{ {body} }})()); }})()")
    )


def test_each_figure_is_shown_once_and_small_enough_to_wait_for():
    shown = re.findall(r"\(figures/live-([\w-]+)\.svg\)", "".join(CHAPTERS))
    assert sorted(shown) == NAMES
    assert len(NAMES) == 8
    for name in NAMES:
        assert (DATA / f"{name}.json").stat().st_size <= 300_000, name
    assert len(live_script().encode()) <= 80_000


def test_a_reader_without_javascript_sees_what_the_figure_draws_first():
    body = """const drawn = {};
      for (const [name, data] of Object.entries(given)) drawn[name] = await regardLive.first(name, data);
      return drawn;"""
    drawn = run(body, {name: data_of(name) for name in NAMES})
    for name, picture in drawn.items():
        stored = (ROOT / "docs" / "learn" / "figures" / f"live-{name}.svg").read_text(encoding="utf-8")
        assert _close(as_file(picture), stored), f"python studies/course_live.py draw {name}"


def _close(drawn, stored):
    """Equal up to the last digits, which differ between versions of a script engine."""
    number = r"-?\d+(?:\.\d+)?"
    if re.sub(number, "#", drawn) != re.sub(number, "#", stored):
        return False
    return np.allclose(
        [float(one) for one in re.findall(number, drawn)], [float(one) for one in re.findall(number, stored)], atol=0.2
    )


@pytest.mark.parametrize("system", ["rnn", "lstm"])
def test_the_gradient_is_that_of_autograd(system):
    nets = data_of("gradient")["nets"]
    net = {name: torch.tensor(values, dtype=torch.float64) for name, values in nets[system].items()}
    ids = torch.randint(len(net["table"]), (9,), generator=torch.Generator().manual_seed(3)).tolist()
    width = net["u"].shape[1]

    def after(state, words):
        for word in words:
            step = lstm if system == "lstm" else elman
            names = ("hidden", "cell") if system == "lstm" else ("hidden",)
            found = step(
                net["w"] @ net["table"][word] + net["b"],
                net["u"] @ state["hidden"],
                state,
                *([] if system == "lstm" else ["tanh"]),
            )
            state = {name: found[name] for name in names}
        return state

    def size(back):
        state = after(
            {name: torch.zeros(width, dtype=torch.float64) for name in ("hidden", "cell")}, ids[: len(ids) - back]
        )
        names = ("hidden", "cell") if system == "lstm" else ("hidden",)
        jacobian = torch.autograd.functional.jacobian(
            lambda *parts: after(dict(zip(names, parts)), ids[len(ids) - back :])["hidden"],
            tuple(state[name] for name in names),
        )
        return torch.cat(jacobian, dim=1).norm().item() / width**0.5

    step = "lstm" if system == "lstm" else "elman"
    body = f"return module_live_gradient.reach(given.net, module_live_gradient.{step}, given.ids).sizes;"
    ours = run(body, {"net": nets[system], "ids": ids})
    np.testing.assert_allclose(ours, [size(back) for back in range(len(ids) + 1)], rtol=1e-9)


def test_a_smoothed_bigram_is_the_equation_of_the_chapter():
    data, discount = data_of("smoothing"), 0.6
    size = len(data["words"])
    counts = torch.zeros(size, size, dtype=torch.float64)
    for first, second, count in data["bigrams"]:
        counts[first, second] = count
    body = """const model = module_live_smoothing.counted(given.data), all = [...given.data.words.keys()];
      const D = given.discount, { chance, perplexity } = module_live_smoothing;
      return [all.map((a) => all.map((b) => chance(model, a, b, D, 1))), perplexity(model, D, 1)];"""
    table, perplexity = run(body, {"data": data, "discount": discount})
    lower = (counts > 0).double().sum(0)
    total, freed = counts.sum(1, keepdim=True), discount * (counts > 0).double().sum(1, keepdim=True)
    expected = (counts - discount).clamp(min=0) / total + freed / total * (lower / lower.sum())
    torch.testing.assert_close(expected.sum(1), torch.ones(size).double())
    torch.testing.assert_close(torch.tensor(table, dtype=torch.float64), expected, rtol=1e-9, atol=1e-12)
    losses = [-expected[a, b].log() for line in data["test"] for a, b in pairwise([0, *line, 0])]
    assert perplexity == pytest.approx(float(torch.stack(losses).mean().exp()))


def test_the_weights_of_the_letters_are_those_of_attention():
    drawn = run("return regardLive.first('any-b', given)", data_of("any-b"))
    keys = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], dtype=float)  # AABA
    found = regard.attention([0.0, 1.0], keys, keys)
    assert [float(one) for one in re.findall(r">(0\.\d{3})</text>", drawn)] == pytest.approx(
        found.weights.round(3), abs=1e-9
    )
    assert f"({found.output[0]:.3f}, {found.output[1]:.3f})" in drawn
