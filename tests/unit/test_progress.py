"""How long it still takes is said when it can be known."""

import pytest

from regard.report import progress
from regard.runs.train import compose_recipe, how_losses_differ


@pytest.fixture
def watched(monkeypatch, capsys):
    """A bar in a log, and a clock that is set by hand: watched(total) → (bar, go to a time, what was printed)."""
    now = [5000.0]  # when it begins is nobody's zero
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def start(total):
        bar = progress._PlainBar("translating", total, 0, " sentences")
        return bar, lambda seconds: now.__setitem__(0, 5000.0 + seconds), lambda: capsys.readouterr().err

    return start


def test_the_first_of_a_batch_that_took_long_says_nothing_of_the_rest(watched):
    bar, go_to, printed = watched(2000)
    go_to(12.0)
    bar.advance(1)  # 500 were translated together; the first of them is counted now
    assert printed() == "translating 1/2000 sentences\n"
    for _ in range(499):
        bar.advance(1)
    go_to(24.0)
    bar.advance(1)
    assert printed() == "translating 501/2000 sentences · 36 s left\n"


def test_a_slow_beginning_says_nothing_of_the_rest(watched):
    bar, go_to, printed = watched(1000)
    go_to(600.0)  # kernels were chosen
    bar.advance(20)
    assert printed() == "translating 20/1000 sentences\n"
    go_to(610.0)
    bar.advance(20)
    assert printed() == "translating 40/1000 sentences · 8 min 00 s left\n"


@pytest.mark.parametrize(
    ("total", "unit", "said"),
    [(1, " steps", "1/1 step"), (2, " steps", "1/2 steps"), (1, " s", "1/1 s"), (None, " lines", "1 line")],
)
def test_one_is_singular(total, unit, said):
    bar = progress._PlainBar("training", total, 0, unit)
    bar.advance(1)
    assert bar._line() == f"training {said}"


def test_too_little_of_a_long_work_says_nothing_of_the_rest(watched):
    bar, go_to, printed = watched(10_000)
    for step in range(1, 31):
        go_to(11.0 * step)
        bar.advance(5)
        assert ("left" in printed()) == (5 * step >= 100 and step > 1)


def test_what_was_done_before_it_began_took_no_time(watched):
    bar, go_to, printed = watched(2000)
    bar.done = bar.first = 1000
    for seconds, more in ((20.0, 5), (40.0, 5)):  # 10 of the 1000 that are left: just enough to say it
        go_to(seconds)
        bar.advance(more)
    assert printed().splitlines()[-1] == "translating 1010/2000 sentences · 1 h 06 min left"


def test_where_training_and_validation_measure_different_losses_it_is_said():
    said = how_losses_differ(compose_recipe("transformer", settings={"model": {"dropout": 0.1}}))
    assert "with dropout and label smoothing 0.1, the validation loss without" in said
    assert "dropout" in how_losses_differ(compose_recipe("gpt"))
    assert how_losses_differ(compose_recipe("lstm", settings={"model": {"dropout": 0.0}})) == ""
