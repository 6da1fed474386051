"""Batches made ahead are the same batches: any order of asking, any thread, any resume."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from regard.text.batches.text_batches import Windows
from regard.training.prefetch import PrefetchingLoader

CPU = torch.device("cpu")


def windows():
    return Windows(np.arange(1000, dtype=np.uint16) % 97, 4, 16, 0, seed=5)


def same(a, b):
    parts = zip((a.tokens, a.targets), (b.tokens, b.targets), strict=True)
    return a.fresh == b.fresh and all(np.array_equal(x, y) for x, y in parts)


@pytest.mark.parametrize("ahead", [0, 1, 4])
@pytest.mark.parametrize("steps", [range(40), [0, 1, 2, 17, 18, 3, 3, 4, 40]], ids=["in order", "jumping"])
def test_every_step_gets_its_batch_however_it_is_asked_for(steps, ahead):
    feed = PrefetchingLoader(windows(), CPU, ahead)
    assert all(same(feed(step), windows().batch(step)) for step in steps)
    feed.close()


def test_the_next_batches_are_made_while_nobody_asks():
    asked, ready = [], threading.Event()

    class Noting:
        steps_per_epoch = 10

        def batch(self, step):
            asked.append((step, threading.current_thread() is threading.main_thread()))
            if step == 9:
                ready.set()
            return windows().batch(step)

    feed = PrefetchingLoader(Noting(), CPU, 4)
    feed(5)
    ready.wait()
    feed.close()
    assert asked == [(step, False) for step in range(5, 10)]


def test_an_error_of_the_thread_is_raised_at_the_step_it_belongs_to():
    class Broken:
        steps_per_epoch = 10

        def batch(self, step):
            if step == 3:
                raise OSError("the disk is gone")
            return windows().batch(step)

    feed = PrefetchingLoader(Broken(), CPU, 4)
    for step in range(3):
        feed(step)
    with pytest.raises(OSError, match="the disk is gone"):
        feed(3)
    assert same(feed(4), windows().batch(4))  # and the rest is not lost
    feed.close()


def test_batches_are_made_ahead_for_a_gpu_alone():
    assert PrefetchingLoader(windows(), torch.device("cuda")).ahead == 4
    assert PrefetchingLoader(windows(), CPU).ahead == 0


def test_a_closed_feed_makes_no_more_batches(monkeypatch):
    begun, go_on, made, shutdown = threading.Event(), threading.Event(), [], ThreadPoolExecutor.shutdown

    class Noting:
        steps_per_epoch = 10

        def batch(self, step):
            if step == 1:
                begun.set()
                go_on.wait()
            made.append(step)

    def released(self, wait=True, *, cancel_futures=False):
        begun.wait()
        shutdown(self, wait=False, cancel_futures=cancel_futures)
        go_on.set()  # only now, so that the other batches still wait
        shutdown(self, wait=True)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", released)
    feed = PrefetchingLoader(Noting(), CPU, 4)
    feed(0)
    feed.close()
    assert made == [0, 1]


def test_a_closed_feed_leaves_no_thread():
    before = set(threading.enumerate())
    feed = PrefetchingLoader(windows(), CPU, 4)
    feed(0)
    (thread,) = set(threading.enumerate()) - before
    feed.close()
    assert not thread.is_alive()
    assert same(feed(1), windows().batch(1))
    feed.close()
