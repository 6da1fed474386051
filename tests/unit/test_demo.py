"""The short demo: its systems and their time fit into a minute, and other options are refused with it."""

import pytest

from regard.base.errors import RegardError
from regard.comparison import ladders
from regard.demo import _in_a_minute, run_demo
from regard.systems.catalogue import find


@pytest.mark.parametrize("ladder", [ladders.LANGUAGE, ladders.TRANSLATION], ids=lambda one: one.folder)
@pytest.mark.parametrize("cores", [1, 2])
def test_the_short_demo_fits_into_a_minute(ladder, cores, monkeypatch):
    monkeypatch.setattr("regard.demo.side_by_side", lambda: cores > 1)
    chosen = _in_a_minute(ladder.question("1s"))
    trained = [name for name in chosen["systems"] if find(name).trained != "counting"]
    seconds = len(trained) * (float(chosen["budget"].rstrip("s")) + ladder.besides)
    assert seconds <= 60
    assert all(find(name).task == ladder.task for name in chosen["systems"])


@pytest.mark.parametrize("options", [{"budget": "5s"}, {"everything": True}])
def test_the_short_demo_chooses_for_itself(options):
    with pytest.raises(RegardError, match="--minute"):
        run_demo(minute=True, **options)
