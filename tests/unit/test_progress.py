"""The log of a long job: the time that is left is said once there is something to judge it by."""

import pytest

from regard.report import progress
from regard.report.progress import PLAIN_SECONDS


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def line_after(clock, done, seconds):
    bar = progress._PlainBar("translating", 10_000, 0, " lines")
    clock[0] += seconds
    bar.done = done
    return bar._line()


def test_nothing_is_said_of_the_time_left_after_the_first_sentence(clock):
    assert line_after(clock, 1, 2.5) == "translating 1/10 000 lines"


def test_it_is_said_when_part_of_the_work_is_done_or_a_minute_has_passed(clock):
    assert line_after(clock, 1000, 30).endswith(" · 4 min 30 s left")
    assert line_after(clock, 100, 6 * PLAIN_SECONDS + 1).endswith(" left")
