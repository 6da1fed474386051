"""A large file is read once; one that may have changed is read again."""

import mmap
import os
import sys

import pytest

from regard.base import known_digests
from regard.base.digests import file_digest
from regard.base.known_digests import known_digest
from regard.cli.doctor import _own_names

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no ctime, so every file is read")
SIZE = 1 << 20


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(known_digests, "MIN_BYTES", 1 << 10)
    path = tmp_path / "text"
    path.write_bytes(os.urandom(SIZE))
    wait_for_a_tick(path)
    return path


def wait_for_a_tick(path):
    """Until the file system dates a change later than the last one of this file."""
    probe = path.with_name("probe")
    while not probe.exists() or probe.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        probe.write_bytes(b"")


class Reader:
    """Digests, and how often the file was read for them."""

    def __init__(self, path, tick=0.0):
        self.path, self.tick, self.read = path, tick, 0

    def __call__(self):
        def compute():
            self.read += 1
            return file_digest(self.path)

        return known_digest(self.path, "test", compute, tick=self.tick)


def test_an_unchanged_file_is_read_once(file):
    digest = Reader(file)
    assert digest() == digest() == digest() == file_digest(file)
    assert digest.read == 1


@pytest.mark.parametrize(
    ("name", "size", "reads"),
    [("text", SIZE - 1, 3), ("text", SIZE, 1), ("text.gz", SIZE // 8 - 1, 3), ("text.gz", SIZE // 8, 1)],
)
def test_only_a_file_that_takes_long_to_read_is_remembered(file, name, size, reads, monkeypatch):
    monkeypatch.setattr(known_digests, "MIN_BYTES", SIZE)
    monkeypatch.setattr(known_digests, "MIN_PACKED_BYTES", SIZE // 8)
    file = file.with_name(name)
    file.write_bytes(os.urandom(size))
    wait_for_a_tick(file)
    digest = Reader(file)
    assert digest() == digest() == digest() == file_digest(file)
    assert digest.read == reads


def write(path, place):
    with path.open("r+b") as stream:
        stream.seek(place)
        old = stream.read(1)
        stream.seek(place)
        stream.write(bytes([old[0] ^ 1]))


def mapped(path, place):
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as view:
        view[place] ^= 1


def replaced(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.with_name("other").write_bytes(content)
    os.replace(path.with_name("other"), path)


@pytest.mark.parametrize("change", [write, mapped, replaced])
@pytest.mark.parametrize("place", [0, 12_345, SIZE - 1])
def test_an_edit_of_the_same_size_with_the_old_mtime_is_seen(file, change, place):
    digest, state = Reader(file), file.stat()
    before = digest()
    change(file, place)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file.stat().st_mtime_ns == state.st_mtime_ns
    assert file.stat().st_size == state.st_size
    assert digest() == file_digest(file) != before
    assert digest.read == 2


@pytest.mark.parametrize("place", [0, 4095, SIZE - 4096, SIZE - 1])
def test_samples_see_an_edit_that_left_the_whole_state_as_it_was(file, monkeypatch, place):
    digest, state = Reader(file), known_digests._state(file)
    before = digest()
    write(file, place)
    monkeypatch.setattr(known_digests, "_state", lambda path: state)
    assert digest() != before


def test_a_file_that_has_just_changed_is_not_recorded(file):
    digest = Reader(file, tick=3600.0)
    assert digest() == digest()
    assert digest.read == 2


@pytest.mark.parametrize(("ago", "reads"), [(3 * 10**9, 1), (3 * 10**9 - 1, 2)], ids=["three seconds ago", "since"])
def test_a_change_counts_as_settled_after_a_tick_of_the_coarsest_clock(file, tmp_path, monkeypatch, ago, reads):
    """FAT dates files by two seconds."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    now = max(known_digests._state(file)[3:]) + ago
    monkeypatch.setattr(known_digests.time, "time_ns", lambda: now)
    read = []
    for _ in range(2):
        known_digest(file, "test", lambda: read.append(1) or "digest")
    assert len(read) == reads
    made = list((tmp_path / "cache").rglob("*.digest"))
    assert len(made) == (reads == 1)
    assert all(_own_names("tokens").fullmatch(path.name) for path in made)  # `regard doctor` finds and removes them


def test_a_file_that_is_dated_in_the_future_is_not_recorded(file):
    now = file.stat().st_ctime_ns
    os.utime(file, ns=(now, now + 3600 * 10**9))
    digest = Reader(file, tick=1e-9)
    assert digest() == digest()
    assert digest.read == 2


def test_each_kind_of_digest_of_a_file_is_recorded_by_itself(file):
    assert [known_digest(file, kind, lambda kind=kind: kind, tick=0.0) for kind in ("one", "two", "one")] == [
        "one", "two", "one",
    ]  # fmt: skip


def test_where_the_system_does_not_date_changes_every_file_is_read(file, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    digest = Reader(file)
    assert digest() == digest()
    assert digest.read == 2


def test_a_file_is_on_the_disk_before_it_is_read(file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    known_digest(file, "synced", lambda: str(synced[0]), tick=0.0)
    assert synced[0] == file.stat().st_ino


def test_a_file_that_changes_while_it_is_read_is_not_recorded(file):
    def compute():
        found = file_digest(file)
        write(file, 12_345)
        return found

    stale = known_digest(file, "test", compute, tick=0.0)
    assert Reader(file)() == file_digest(file) != stale


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_a_damaged_record_is_ignored(file, tmp_path, monkeypatch, content):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    digest = Reader(file)
    digest()
    (record,) = (tmp_path / "cache" / "tokens").glob("*.digest")
    if content is None:
        known_digests.write_cached(record, b'["another", "shape"]')
    else:
        record.write_bytes(content)
    assert digest() == file_digest(file)
    assert digest.read == 2


def test_without_a_cache_that_can_be_written_each_time_is_the_first(file, tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    digest = Reader(file)
    assert digest() == digest() == file_digest(file)
    assert digest.read == 2
