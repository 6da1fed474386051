"""How long it still takes is said when it can be known."""

import io
import math
import re
import sys
from types import SimpleNamespace

import pytest

from regard.report import progress
from regard.report.screen import Screen
from regard.runs.compose import compose_recipe
from regard.runs.train import how_losses_differ


@pytest.fixture
def watched(monkeypatch, capsys):
    """A bar in a log, and a clock that is set by hand: watched(total) → (bar, go to a time, what was printed)."""
    now = [5000.0]  # when it begins is nobody's zero
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))  # not that of other threads

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


def test_what_is_said_is_seen_at_once(monkeypatch):
    seen = []

    class Log(io.StringIO):
        def flush(self):
            seen.append(self.getvalue())

    monkeypatch.setattr(sys, "stderr", Log())
    progress.say("one line")
    progress._PlainBar("training", 3, 0, " steps")._show()
    assert seen == ["one line\n", "one line\ntraining 0/3 steps\n"]


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
    for seconds, more in ((20.0, 4), (40.0, 5), (60.0, 1)):  # 10 of the 1000 that are left: just enough to say it
        go_to(seconds)
        bar.advance(more)
    assert printed().splitlines() == [
        "translating 1004/2000 sentences",
        "translating 1009/2000 sentences",
        "translating 1010/2000 sentences · 1 h 50 min left",  # 6 in the last 40 s
    ]


def test_where_training_and_validation_measure_different_losses_it_is_said():
    said = how_losses_differ(compose_recipe("transformer", settings={"model": {"dropout": 0.1}}))
    assert "with dropout and label smoothing 0.1, the validation loss without" in said
    assert "dropout" in how_losses_differ(compose_recipe("gpt", settings={"model": {"dropout": 0.1}}))
    assert how_losses_differ(compose_recipe("lstm", settings={"model": {"dropout": 0.0}})) == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.84, "0.8 s"), (9.94, "9.9 s"), (10, "10 s"), (10.4, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"),
        (200, "3 min 20 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min"), (7500, "2 h 05 min"),
        (1e9 - 1, "277777 h 46 min"), (1e9, "forever"), (math.inf, "forever"), (math.nan, "forever"),
    ],
)  # fmt: skip
def test_a_time_is_said_in_the_units_of_its_size(seconds, said):
    assert progress.clock(seconds) == said


class Stream(io.StringIO):
    """A log, or a terminal, that counts how often it is emptied."""

    flushed = 0

    def __init__(self, terminal=False):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def flush(self):
        self.flushed += 1


@pytest.fixture
def log(monkeypatch):
    """A log, and a clock that is set by hand."""
    stream = Stream()
    stream.now = 70.0
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: stream.now))
    return stream


def test_a_log_has_a_line_every_ten_seconds_and_one_at_the_end(log):
    with progress.progress("training", 100, done=20, unit=" steps") as bar:
        bar.advance(5)
        log.now += 9.9
        bar.advance(1, "loss 3")
        assert log.getvalue() == ""
        log.now += 0.1
        bar.advance()
        log.now += 10
        bar.reach(40, 200)
        log.now += 10
        bar.advance(60, "loss 2")
        log.now += 1
        bar.advance(99)
    assert log.getvalue().splitlines() == [
        "training 27/100 steps · loss 3",
        "training 40/200 steps · loss 3 · 2 min 03 s left",  # 13 in 10 s since the first line
        "training 100/200 steps · loss 2 · 27 s left",
        "training 199/200 steps · loss 2 · 0.1 s left",
    ]
    assert log.flushed == 4


def test_what_was_done_at_once_leaves_no_line_and_all_of_an_unknown_amount_has_no_end(log):
    with progress.progress("reading", 5) as bar:
        bar.advance(5)
    assert log.getvalue() == ""
    with progress.progress("reading") as bar:
        for _ in range(2):
            log.now += 10
            bar.advance(20_000)
    assert log.getvalue().splitlines() == ["reading 20,000", "reading 40,000", "reading 40,000"]


def test_a_finished_work_has_no_time_left(log):
    with progress.progress("reading", 20) as bar:
        for _ in range(2):
            log.now += 10
            bar.advance(10)
    assert log.getvalue().splitlines() == ["reading 10/20", "reading 20/20", "reading 20/20"]


def test_a_line_that_is_said_puts_off_the_next_of_the_bar(log):
    with progress.progress("training", 100) as bar:
        log.now += 9
        bar.say("saved \x07")
        log.now += 9
        bar.advance(1)
        assert log.getvalue() == "saved \u2407\n"
        log.now += 1
        bar.advance(1)
    assert log.getvalue().splitlines()[1:] == ["training 2/100", "training 2/100"]


def test_a_hushed_process_shows_only_its_progress_and_a_silent_one_nothing(log, monkeypatch):
    for name in ("_hushed", "_still"):
        monkeypatch.setattr(progress, name, False)
    with progress.hushed():
        progress.say("nothing")
        with progress.progress("training", 9) as bar:
            log.now += 20
            bar.advance(3)
            bar.reach(4, 9)
            bar.say("nothing")
    assert log.getvalue() == ""
    progress.say("something")
    progress.hush()
    progress.say("nothing")
    with progress.progress("training", 9) as bar:
        bar.say("nothing")
        log.now += 20
        bar.advance(3)
    assert log.getvalue().splitlines() == ["something", "training 3/9", "training 3/9"]
    with progress.hushed():
        pass
    assert progress._hushed  # as it was before
    assert not progress._still


@pytest.mark.parametrize("screen", [False, True])
def test_on_a_terminal_a_bar_moves_and_is_gone_at_the_end(monkeypatch, screen):
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", Screen(stream) if screen else stream)
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    monkeypatch.setattr(progress, "_hushed", False)
    with progress.progress("[b]training\x07", 20, done=3) as bar:
        bar.advance()
        bar.advance(2, "loss 3")
        bar.say("[b]saved\x07 12")
    with progress.progress("reading", 20) as bar:
        bar.reach(15, 30)
    written = stream.getvalue()
    assert "[b]saved\u2407 12" in written  # as it is, and its numbers without colours
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    assert "[b]training\u2407" in shown
    assert "30%" in shown  # 6 of 20
    assert "loss 3" in shown
    assert "50%" in shown
    assert "-:--:--" not in shown  # minutes are enough, where nothing is known yet
    assert written.rindex("\x1b[2K") > written.rindex("reading")


def test_a_hushed_bar_of_a_terminal_says_nothing(monkeypatch):
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_hushed", True)
    with progress.progress("training", 20) as bar:
        bar.say("a line")
    assert "a line" not in stream.getvalue()
    assert "training" in stream.getvalue()
