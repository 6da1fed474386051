"""Laws of the batches: every token is a target exactly once, behind the token that stands before it."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.batches import text_batches as text_batches
from regard.text.batches.text_batches import Streams, Windows, segment_batches, segments

law = settings(derandomize=True, deadline=None, max_examples=100)
EOS = 0
sizes, rows, windows = st.integers(1, 200), st.integers(1, 9), st.integers(1, 40)


def numbered(size: int) -> np.ndarray:
    """A text in which every token is different: token p is p + 1, so that a target tells where it stood."""
    return np.arange(1, size + 1, dtype=np.uint16)


def real_columns(batch_lengths, tokens) -> np.ndarray:
    lengths = np.full(len(tokens), tokens.shape[1]) if batch_lengths is None else batch_lengths
    return np.arange(tokens.shape[1]) < lengths[:, None]


def check_epoch(batches) -> list[int]:
    """Inputs are the targets shifted by one, padding is zero on the right; returns all targets of the epoch."""
    seen: list[int] = []
    for batch in batches:
        real = real_columns(batch.lengths, batch.tokens)
        assert batch.tokens.dtype == batch.targets.dtype == np.int64
        assert (batch.tokens[real] == batch.targets[real] - 1).all()  # before token 1 stands <eos>, which is 0
        assert not batch.tokens[~real].any()
        assert not batch.targets[~real].any()
        assert batch.lengths is None or (not real.all() and batch.lengths.dtype == np.int64)
        seen += batch.targets[real].tolist()
    return seen


@law
@given(size=sizes, rows=rows, window=windows, epoch=st.integers(0, 3))
def test_streams_predict_every_token_once_per_epoch(size, rows, window, epoch):
    streams = Streams(numbered(size), rows, window, EOS)
    steps = range(epoch * streams.steps_per_epoch, (epoch + 1) * streams.steps_per_epoch)
    batches = [streams.batch(step) for step in steps]
    assert sorted(check_epoch(batches)) == numbered(size).tolist()
    assert [batch.fresh for batch in batches] == [True] + [False] * (len(batches) - 1)
    assert all(batch.lengths is None and batch.tokens.shape == (rows, window) for batch in batches[:-1])


@law
@given(size=sizes, rows=rows, window=windows)
def test_each_row_of_a_stream_is_running_text(size, rows, window):
    streams = Streams(numbered(size), rows, window, EOS)
    text: list[list[int]] = [[] for _ in range(rows)]
    for step in range(streams.steps_per_epoch):
        batch = streams.batch(step)
        for row, targets, real in zip(text, batch.targets, real_columns(batch.lengths, batch.tokens)):
            row += targets[real].tolist()
    assert [token for row in text for token in row] == numbered(size).tolist()
    assert text == [numbered(size)[size * row // rows : size * (row + 1) // rows].tolist() for row in range(rows)]


@law
@given(size=sizes, rows=rows, window=windows, seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 3))
def test_windows_predict_every_token_once_per_epoch(size, rows, window, seed, epoch):
    source = Windows(numbered(size), rows, window, EOS, seed)
    batches = [source.batch(epoch * source.steps_per_epoch + step) for step in range(source.steps_per_epoch)]
    assert sorted(check_epoch(batches)) == numbered(size).tolist()
    assert all(batch.fresh and batch.tokens.shape[1] <= window for batch in batches)
    assert all(len(batch.tokens) == rows for batch in batches[:-1])
    assert 1 <= len(batches[-1].tokens) <= rows


@law
@given(size=sizes, rows=rows, window=windows, steps=st.lists(st.integers(0, 50), max_size=5))
@pytest.mark.parametrize("kind", [Streams, lambda *arguments: Windows(*arguments, seed=3)], ids=["streams", "windows"])
def test_a_batch_depends_on_its_step_alone(kind, size, rows, window, steps):
    walked = kind(numbered(size), rows, window, EOS)
    for step in steps:
        resumed = kind(numbered(size), rows, window, EOS).batch(step)
        again = walked.batch(step)
        assert (again.tokens == resumed.tokens).all()
        assert (again.targets == resumed.targets).all()
        assert again.fresh == resumed.fresh


def test_epochs_and_seeds_of_windows_differ():
    def order(seed, epoch):
        source = Windows(numbered(1000), 4, 10, EOS, seed)
        steps = range(epoch * source.steps_per_epoch, (epoch + 1) * source.steps_per_epoch)
        return [source.batch(step).targets[0, 0] for step in steps]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


@law
@given(size=st.integers(30, 200), rows=rows, window=st.integers(3, 30))
def test_many_offsets_are_drawn(size, rows, window):
    source = Windows(numbered(size), rows, window, EOS, seed=0)
    cuts = set()
    for epoch in range(40):
        first, _ = source._cut(epoch)
        cuts.add(first % window)
    assert len(cuts) > 1


def length_and_overlap():
    return st.integers(1, 40).flatmap(lambda length: st.tuples(st.just(length), st.integers(0, length - 1)))


@law
@given(size=sizes, shape=length_and_overlap())
def test_segments_count_every_token_once_after_the_promised_warm_up(size, shape):
    length, overlap = shape
    counted_tokens: list[int] = []
    for tokens, targets, counted in segments(numbered(size), length, overlap, EOS):
        assert len(tokens) == len(targets) == len(counted) <= length
        assert (tokens == targets - 1).all()
        assert (np.diff(targets) == 1).all()
        counted_tokens += targets[counted].tolist()
        if targets[0] > 1:
            assert np.flatnonzero(counted)[0] >= overlap
    assert counted_tokens == numbered(size).tolist()


@law
@given(size=sizes, shape=length_and_overlap(), rows=rows)
def test_the_number_of_rows_changes_no_segment(size, shape, rows):
    explicit = list(segments(numbered(size), *shape, EOS))
    batched = []
    for tokens, targets, counted, lengths in segment_batches(numbered(size), *shape, rows, EOS):
        assert 1 <= len(tokens) <= rows
        real = real_columns(lengths, tokens)
        assert not counted[~real].any()
        assert lengths is None or not real.all()
        batched += [(t[r], g[r], c[r]) for t, g, c, r in zip(tokens, targets, counted, real)]
    assert len(batched) == len(explicit)
    for one, other in zip(batched, explicit):
        assert all((a == b).all() for a, b in zip(one, other))


def test_a_segment_cannot_consist_of_warm_up():
    with pytest.raises(ValueError, match="less than length"):
        next(segments(numbered(10), 4, 4, EOS))


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is read as Linux tells it")
@pytest.mark.parametrize("kind", ["streams", "windows"])
def test_what_was_read_of_a_mapped_text_does_not_stay_in_memory(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(text_batches, "RESIDENT", 16 << 20)
    with open(tmp_path / "ids", "wb") as file:
        file.truncate(400 << 20)  # nothing but zeros, which take no disk
    ids = np.memmap(tmp_path / "ids", np.uint16, "r")
    source = Streams(ids, 64, 64, EOS) if kind == "streams" else Windows(ids, 64, 64, EOS, seed=0)
    source.batch(0)
    before = most = resident_of_files()
    for step in range(1, 200):
        source.batch(step * source.steps_per_epoch // 200)
        most = max(most, resident_of_files())
    assert most - before < 40 << 20  # all that was read, with what the system maps around it, are some 400 MB


def resident_of_files():
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile:"))


def test_pages_are_released_once_what_was_read_may_fill_the_memory(monkeypatch):
    class Mapped:
        def __init__(self):
            self._mmap, self.released = self, 0

        def madvise(self, how):
            self.released += 1

    if not hasattr(text_batches.mmap, "MADV_DONTNEED"):
        pytest.skip("this system cannot")
    assert (text_batches.RESIDENT, text_batches.AROUND) == (256 << 20, 64 << 10)
    monkeypatch.setattr(text_batches, "RESIDENT", 10 * text_batches.AROUND)
    ids = Mapped()
    pages = text_batches._Pages(ids)
    counts = []
    for _ in range(7):
        pages.read(4)  # of ten
        counts.append(ids.released)
    assert counts == [0, 0, 1, 1, 2, 2, 3]
    pages, ids.released = text_batches._Pages(ids), 0
    pages.read(10)  # just what may stay
    assert ids.released == 0
    pages.read(1)
    assert ids.released == 1
    pages = text_batches._Pages(np.arange(3))  # nothing is mapped
    pages.read(1000)


@pytest.mark.parametrize("overlap", [-1, 4, 5])
def test_an_overlap_is_shorter_than_the_segment(overlap):
    with pytest.raises(ValueError, match="less than length 4"):
        next(segments(numbered(10), 4, overlap, EOS))
    assert len(list(segments(numbered(10), 4, 3, EOS))) == 7


@pytest.mark.parametrize("size", [(1 << 32) - 1, (1 << 32) + 1, 1 << 33])
def test_each_window_of_a_text_of_any_size_has_a_number_of_its_own(size, monkeypatch):
    """A text that takes no memory; of its windows only the largest number is made."""
    source = Windows(np.broadcast_to(np.uint16(7), size), 1 << 20, 1, EOS, seed=0)
    numbers = []
    monkeypatch.setattr(np, "arange", lambda stop, dtype: numbers.append(np.array([stop - 1]).astype(dtype)[0]) or [0])
    source._cut(0)
    assert numbers == [size - 1]
    assert numbers[0].nbytes == (4 if size < 1 << 32 else 8)  # no more memory than that takes
