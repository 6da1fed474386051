"""A disk that is full or broken, or a kill, at any write of a save: nothing is lost. All places at once are tried by
`python tests/fault_injection.py`; here some of each work are."""

import random

import pytest

from fault_injection import COUNT, FAULTS, TRAIN, WORKS, Work, begin, make_inputs, regard, result, survives

CHOSEN = [work for work in WORKS if work.name in ("train", "count", "import")]  # the others: `make faults`


@pytest.mark.slow
@pytest.mark.parametrize("work", CHOSEN, ids=lambda work: work.name)
def test_after_any_fault_the_same_work_ends_with_the_same_bits(work: Work, tmp_path):
    start, whole, places = begin(work, tmp_path, tmp_path / "counter")
    draw = random.Random(work.name)
    for fault in FAULTS:
        for at in draw.sample(range(1, places + 1), 2):
            assert survives(work, start, whole, at, fault, tmp_path / "counter") == "", (at, fault)


@pytest.mark.slow
@pytest.mark.parametrize("words", [TRAIN, COUNT], ids=lambda words: words[1])
def test_a_kill_at_any_moment_loses_nothing(words, tmp_path):
    """By the clock instead of by the write: wherever it strikes, the next command goes on or begins anew."""
    make_inputs(tmp_path / "whole")
    make_inputs(tmp_path / "cut")
    assert regard(tmp_path / "whole", words).code == 0
    draw = random.Random(1)
    for _ in range(3):
        run = tmp_path / "cut" / "run" / "run.json"
        again = ["resume", "run"] if run.exists() and words is not COUNT else words
        if again is COUNT and run.exists():
            break
        regard(tmp_path / "cut", again, kill_after=draw.uniform(0, 2))
    run = tmp_path / "cut" / "run" / "run.json"
    again = ["evaluate", "run"] if words is COUNT else ["resume", "run"]
    assert regard(tmp_path / "cut", again if run.exists() else words).code == 0
    assert result(tmp_path / "cut" / "run") == result(tmp_path / "whole" / "run")
