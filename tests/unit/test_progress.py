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
    assert printed() == "translating 501/2000 sentences · 1 min 12 s left\n"


def test_too_little_of_a_long_work_says_nothing_of_the_rest(watched):
    bar, go_to, printed = watched(10_000)
    for step in range(1, 31):
        go_to(11.0 * step)
        bar.advance(5)
        assert ("left" in printed()) == (5 * step >= 100 and step > 1)


def test_where_training_and_validation_measure_different_losses_it_is_said():
    said = how_losses_differ(compose_recipe("transformer", settings={"model": {"dropout": 0.1}}))
    assert "with dropout and label smoothing 0.1, the validation loss without" in said
    assert "dropout" in how_losses_differ(compose_recipe("gpt"))
    assert how_losses_differ(compose_recipe("lstm", settings={"model": {"dropout": 0.0}})) == ""
