"""Positions: a system without them reads a bag of words; with any of them, order counts in each of its parts."""

import pytest
import torch

from regard.layers.attention import FullSelfAttention
from regard.layers.position import INPUT_POSITIONS, POSITIONS, ALiBi
from regard.runs.recipe import compose
from regard.systems.catalogue import load_class

V, WORDS = 23, 6
DRAWN = torch.tensor([[3, 9, 14, 5, 20, 7]])
SHUFFLED = torch.tensor([4, 2, 0, 1, 3])  # of all words but the last


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_alibi_lowers_a_score_by_the_distance_to_either_side(heads):
    """Press et al. 2022: head h of H has the slope 2^(−8h/H); an encoder looks to both sides alike."""
    bias = ALiBi().bias(torch.arange(5)[None], 5, heads)
    for head in range(heads):
        slope = 2 ** (-8 * (head + 1) / heads)
        for q in range(5):
            for k in range(5):
                assert bias[0, head, q, k] == pytest.approx(-slope * abs(q - k))


def test_with_alibi_an_encoder_looks_most_at_the_word_itself_and_less_the_farther_another_is():
    layer, same = FullSelfAttention(8, 2, position=ALiBi()).double().eval(), torch.ones(1, 7, 8, dtype=torch.float64)
    _, parts = layer.explain(same, None)  # words alike: only their places differ
    weights = parts["weights"][0]  # [H, T, T]
    assert (weights.argmax(dim=-1) == torch.arange(7)).all()
    torch.testing.assert_close(weights, weights.flip(1, 2))  # seen in a mirror
    for head in weights:
        for q in range(7):
            assert (head[q, : q + 1].diff() > 0).all()
            assert (head[q, q:].diff() < 0).all()


def build(system, **model):
    """In fp64, with weights large enough that a place that matters shows."""
    torch.manual_seed(0)
    settings = {"layers": 1, "width": 24, "heads": 2, "context": 8, "dropout": 0.0, **model}
    known = vars(compose(system, "tiny").model)
    settings = compose(system, "tiny", {"model": {key: settings[key] for key in settings if key in known}}).model
    made = load_class(system)(V, settings).double().eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return made


def positions(system):
    fields = load_class(system).__init__.__globals__["Settings"].__dataclass_fields__
    return fields["position"].metadata["choices"]


def after(model, order):
    """What is predicted after the last word, when those before it come in this order."""
    words = DRAWN[:, [*order, WORDS - 1]]
    if hasattr(model, "encode"):
        return model(torch.tensor([[0]]), model.begin(words))[0]
    return model(words)[0][:, -1]


ENCODERS = [("classifier", {"encoder": encoder}) for encoder in ("self-attention", "transformer")]
CASES = [
    (system, {**more, "position": position})
    for system, more in [("self-attention", {}), ("gpt", {}), ("transformer", {}), *ENCODERS]
    for position in positions(system)
]


@pytest.mark.parametrize(
    ("system", "settings"),
    CASES,
    ids=lambda case: " ".join(map(str, case.values())) if isinstance(case, dict) else case,
)
def test_the_order_of_the_words_matters_exactly_if_the_system_has_positions(system, settings):
    """One layer of attention without positions reads a bag of words."""
    model = build(system, **settings)
    forwards, shuffled = after(model, range(WORDS - 1)), after(model, SHUFFLED)
    assert torch.allclose(forwards, shuffled, atol=1e-10) == (settings["position"] == "none")


def test_every_kind_of_position_is_among_the_cases():
    assert {settings["position"] for _, settings in CASES} == set(POSITIONS)
    assert set(INPUT_POSITIONS) < set(POSITIONS)


@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_what_acts_inside_attention_sees_distances_alone(position):
    """All words moved by the same number of places: the same scores."""
    kind = POSITIONS[position]()
    query, key = torch.randn(2, 1, 5, 2, 8, dtype=torch.float64)
    here, there = (torch.arange(start, start + 5)[None] for start in (0, 30))
    scores = [
        torch.einsum("rqhd,rkhd->rhqk", kind.rotate(query, places), kind.rotate(key, places))
        for places in (here, there)
    ]
    torch.testing.assert_close(*scores)
    if (bias := kind.bias(there, 35, 2)) is not None:
        torch.testing.assert_close(bias[..., 30:], kind.bias(here, 5, 2))
