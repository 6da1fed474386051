"""A figure of a trace shows what its labels say: the numbers are recomputed here from the trace."""

import numpy as np
import pytest

from regard.insight.trace import Trace
from regard.insight.views import figures

RANDOM = np.random.default_rng(0)
WORDS, SOURCE = ("<eos>", "the", "cat"), ("a", "b", "c", "<eos>")


def trace(**parts):
    none = np.full(3, np.nan)
    return Trace(
        system="lstm", task="translation", tokens=WORDS, targets=("the", "cat", "<eos>"), probability=none,
        rank=np.zeros(3, int), entropy=none, top=((), (), ()), source=SOURCE, **parts,
    )  # fmt: skip


FORGET = RANDOM.uniform(0, 1, (3, 5))
CELL = RANDOM.normal(0, 2, (3, 5))  # of both signs: the mean of |c| and the mean of c are far apart
UPDATE = RANDOM.uniform(-1, 1, (3, 5))
LARGE = RANDOM.uniform(0.5, 3, (3, 5))  # nowhere negative, and no gate: above 1


def test_gates_are_means_over_units_on_a_scale_from_0_to_1_and_all_else_means_of_sizes():
    drawn = trace(
        gates={"layer/0/forget": FORGET, "layer/0/cell": CELL, "layer/0/update": UPDATE, "layer/1/cell": LARGE}
    )
    heats = {heat.title: heat for heat in figures.gates(drawn)}
    assert list(heats) == ["Gates over time", "Cell over time", "Update over time"]
    gates, cell, update = heats.values()
    assert (gates.z, gates.low, gates.high) == ("mean over units", 0, 1)
    np.testing.assert_allclose(gates.values, [FORGET.mean(1)])
    for heat, wanted in ((cell, [CELL, LARGE]), (update, [UPDATE])):
        assert (heat.z, heat.low, heat.high) == ("mean of |value| over units", 0, None)
        np.testing.assert_allclose(heat.values, [np.abs(values).mean(1) for values in wanted])
        assert heat.columns == WORDS
    assert cell.rows == ("Layer 1: cell", "Layer 2: cell")


def test_gates_of_the_encoder_have_the_words_of_the_source():
    of_source = RANDOM.uniform(0, 1, (4, 5))
    drawn = trace(gates={"encoder/0/forward/forget": of_source, "layer/0/forget": FORGET})
    (decoder,), (encoder,) = figures.gates(drawn), figures.gates(drawn, encoder=True)
    assert encoder.title == "Gates of the encoder over time"
    assert (encoder.columns, decoder.columns) == (SOURCE, WORDS)
    np.testing.assert_allclose(encoder.values, [of_source.mean(1)])
    np.testing.assert_allclose(decoder.values, [FORGET.mean(1)])


def test_attention_is_a_head_or_the_mean_of_all_and_says_which():
    weights = RANDOM.dirichlet(np.ones(4), (2, 3))
    drawn = trace(attention={"cross/0": weights})
    for head, wanted in ((None, weights.mean(0)), (0, weights[0]), (1, weights[1])):
        heat = figures.attention(drawn, "cross/0", head)
        np.testing.assert_allclose(heat.values, wanted)
        assert (heat.rows, heat.columns) == (("the", "cat", "<eos>"), SOURCE)
        assert (heat.x, heat.y, heat.z, heat.low, heat.high) == ("looked at", "word written", "weight", 0, 1)
        assert ("mean of 2 heads" if head is None else f"head {head + 1}") in heat.title


def test_gradients_are_powers_of_ten_and_an_exact_zero_is_an_empty_cell():
    slopes = np.array([[1.0, 0.0, 0.0], [0.01, 10.0, 0.0], [1e-30, 1.0, 1000.0]])
    heat = figures.gradients(trace(gradients=slopes))["gradients"]
    assert heat.z.startswith("log₁₀ of the gradient's norm")
    np.testing.assert_allclose(heat.values, [[0, np.nan, np.nan], [-2, 1, np.nan], [-30, 0, 3]], atol=1e-12)


@pytest.mark.parametrize("heads", [1, 3])
def test_the_state_of_linear_attention_is_shown_head_by_head(heads):
    states = RANDOM.normal(size=(heads, 2, 4))
    shown = figures.matrices(trace(matrices={"layer/0": states}))
    assert [heat.title.split(":")[0] for heat in shown] == [f"Layer 1, head {n + 1}" for n in range(heads)]
    for heat, state in zip(shown, states, strict=True):
        np.testing.assert_allclose(heat.values, state)
        assert (heat.x, heat.y, heat.diverging) == ("component of a value", "feature of a key", True)
