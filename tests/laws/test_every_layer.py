"""Every layer obeys the laws by itself, between an embedding and a prediction."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import LAYERS, carry

from regard.laws.closeness import Draw
from regard.laws.contract import CALLS
from regard.systems.model import Model

DRAWS = st.builds(Draw, seed=st.integers(0, 10_000), rows=st.integers(2, 4), columns=st.integers(2, 6))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("law", CALLS, ids=lambda law: law.__name__)
def test_law(law: Callable[[Model, Draw], None], layer: str) -> None:
    model = carry(layer)

    @settings(derandomize=True, max_examples=5, deadline=None, database=None)
    @given(DRAWS)
    def holds(draw: Draw) -> None:
        law(model, draw)

    holds()
