"""What the demo trains, and what its gpt begins with: weights from which a narrow model learns sooner, and no
preference for a word.

Each rung's recipe is compared with tests/golden/ladders.json: the demo's tables in the documentation were made with it.
`python tests/unit/comparison/test_demo_ladder.py` writes it anew.
"""

import json
from math import log
from pathlib import Path

import pytest
import torch

from regard.base.errors import RegardError
from regard.comparison import ladders
from regard.comparison.ladders import TRANSLATION
from regard.demo import LANGUAGE
from regard.layers.state import Span
from regard.runs.recipe import compose
from regard.systems.gpt import GPT, Settings

GOLDEN = Path(__file__).parents[2] / "golden" / "ladders.json"
WORDS = 1780  # of the phrasebook's English
NARROW = {"layers": 2, "width": 64, "heads": 2, "context": 64, "dropout": 0.0}


def decided(ladder):
    """What a ladder decides of each rung, where it differs from the system's own defaults."""
    question, found = ladder.question("60s", everything=True), {}
    for rung in question.rungs():
        made, plain = question.recipe(rung), rung.entry.name
        own = compose(plain, ladders.SIZE).tree()
        tree = made.tree()
        found[rung.label] = {
            f"{part}.{name}": value for part in ("data", "model", "training") for name, value in tree[part].items()
            if value != own[part][name]
        }  # fmt: skip
    return found


@pytest.mark.parametrize("ladder", [LANGUAGE, TRANSLATION], ids=lambda ladder: ladder.folder)
def test_what_the_demo_trains_changes_only_on_purpose(ladder):
    assert decided(ladder) == json.loads(GOLDEN.read_text(encoding="utf-8"))[ladder.folder]


def test_the_demo_has_as_much_time_as_its_cores_allow(monkeypatch):
    for cores, budgets in ((2, ("24s", "73s")), (1, ("12s", "36.5s"))):
        monkeypatch.setattr(ladders, "cores", lambda cores=cores: cores)
        assert (LANGUAGE.budget(), TRANSLATION.budget()) == budgets
    assert LANGUAGE.too_short(3.0) == (
        "A budget of 3 s is too small for a language model system to learn much, so expect poor or empty output; use "
        "at least 24 s."
    )
    question = LANGUAGE.question("9s")
    assert (question.seeds, question.size, question.match, question.budget, question.data, question.prompt) == (
        1, "tiny", "seconds", "9s", "phrasebook", "The ",
    )  # fmt: skip


def build(settings, seed=1):
    torch.manual_seed(seed)
    return GPT(WORDS, settings).eval()


def excess(settings, seed):
    """How far its untrained loss lies above log V."""
    model, tokens = build(settings, seed), torch.randint(WORDS, (40, 33))
    with torch.no_grad():
        return float(model.loss(tokens[:, :-1], tokens[:, 1:])[0].mean()) - log(WORDS)


@pytest.fixture(scope="module")
def demo_gpt():
    question = LANGUAGE.question("24s")
    return question.recipe(next(rung for rung in question.rungs() if rung.entry.name == "gpt")).model


@pytest.mark.parametrize("seed", range(5))
def test_untrained_the_demos_gpt_prefers_no_word(demo_gpt, seed):
    assert abs(excess(demo_gpt, seed)) < 0.05


def test_without_the_scale_it_would(demo_gpt):
    assert demo_gpt.initial > 0.02
    assert excess(Settings(**NARROW, initial=demo_gpt.initial), seed=1) > 0.1


def test_word_vectors_are_kept_smaller_by_the_scale_with_which_they_are_read():
    model = build(Settings(**NARROW, initial=0.07, scale=2.5))
    read = model.embedding(torch.arange(WORDS).view(-1, 1), Span(torch.zeros(WORDS, dtype=torch.int64)))
    places = model.embedding.position.table.weight[0]
    assert torch.allclose(read[:, 0], 2.5 * model.embedding.table.weight + places)
    sizes = {name: float(weight.detach().std()) for name, weight in model.named_parameters() if weight.dim() > 1}
    assert sizes["embedding.table.weight"] == pytest.approx(0.07 / 2.5, rel=0.02)
    assert sizes["layers.0.feedforward.expand.weight"] == pytest.approx(0.07, rel=0.05)
    assert sizes["layers.0.feedforward.output.weight"] == pytest.approx(0.07 / 2, rel=0.05)  # four share a sum


def test_as_it_comes_gpt_has_gpt_2s_first_weights():
    sizes = {name: float(weight.detach().std()) for name, weight in build(Settings(**NARROW)).named_parameters()}
    assert sizes["embedding.table.weight"] == pytest.approx(0.02, rel=0.02)
    assert sizes["layers.0.feedforward.expand.weight"] == pytest.approx(0.02, rel=0.05)
    assert sizes["layers.0.feedforward.output.weight"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("name", "value"), [("initial", 0.0), ("initial", -0.02), ("scale", -1.0)])
def test_sizes_that_are_none_are_refused(name, value):
    with pytest.raises(RegardError, match=f"model.{name}"):
        Settings(**{name: value})


if __name__ == "__main__":
    lines = [f" {json.dumps(ladder.folder)}: {json.dumps(decided(ladder))}" for ladder in (LANGUAGE, TRANSLATION)]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
