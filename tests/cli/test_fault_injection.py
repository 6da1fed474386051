"""A disk that is full or broken, or a kill, at any write of a save: nothing is lost. All places at once are tried by
`python tests/fault_injection.py`; here some of each work are."""

import random

import pytest

from fault_injection import FAULTS, WORKS, Work, begin, kills, survives

CHOSEN = [work for work in WORKS if work.name in ("train", "count", "import")]  # the others: `make faults`


@pytest.mark.slow
@pytest.mark.parametrize("work", CHOSEN, ids=lambda work: work.name)
def test_after_any_fault_the_same_work_ends_with_the_same_bits(work: Work, tmp_path):
    start, whole, places, _ = begin(work, tmp_path, tmp_path / "counter")
    draw = random.Random(work.name)
    for fault in FAULTS:
        for at in draw.sample(range(1, places + 1), 2):
            assert survives(work, start, whole, at, fault, tmp_path / "counter") == "", (at, fault)


@pytest.mark.slow
@pytest.mark.parametrize("work", [work for work in WORKS if work.name in ("train", "translate")], ids=lambda w: w.name)
def test_kills_at_random_moments_lose_nothing(work: Work, tmp_path):
    """By the clock instead of by the write: wherever it strikes, the next command goes on or begins anew."""
    said: list[str] = []
    killed, attempts, good = kills(work, 3, tmp_path, said.append)
    assert (killed, good) == (3, attempts), said
