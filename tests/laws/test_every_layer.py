"""Every layer obeys the laws by itself, between an embedding and a prediction."""

from collections.abc import Callable

import pytest

from regard.laws.closeness import RandomCase
from regard.laws.contract import CALLS
from regard.systems.model import Model
from subjects import LAYERS, carry, draws


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("law", CALLS, ids=lambda law: law.__name__)
def test_law(law: Callable[[Model, RandomCase], None], layer: str) -> None:
    for draw in draws(law, layer):
        law(carry(layer), draw)
