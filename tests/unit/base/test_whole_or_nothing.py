"""Files and folders get their names once they are whole and on the disk, take nobody's place, and one holds a lock."""

import os
from pathlib import Path

import pytest

from regard.base import locks
from regard.base.errors import RegardError
from regard.base.locks import Locked, exclusive_name, is_locked, try_lock
from regard.base.writing import atomic_folder, atomic_write, write_text, writing
from regard.cli.file_to_file import line_by_line

CONTENT = b"whole\n" * 3


@pytest.fixture
def events(monkeypatch):
    """What the system was asked for, in order: ("sync" or "name", inode, size)."""
    noted = []

    def note(kind, of):
        found = os.fstat(of) if isinstance(of, int) else os.stat(of)
        noted.append((kind, found.st_ino, found.st_size))

    def watch(name, kind):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, **named: (note(kind, given[0]), real(*given, **named))[1])

    watch("fsync", "sync")
    for name in ("replace", "link", "rename"):
        watch(name, "name")
    return noted


def by_replacing(path):
    with atomic_write(path) as temporary:
        temporary.write_bytes(CONTENT)


def by_replacing_nothing(path):
    with atomic_write(path, new=True) as temporary:
        temporary.write_bytes(CONTENT)


def by_writing(path):
    with writing(path) as stream:
        stream.write(CONTENT)


def by_lines(path):
    (path.parent / "in").write_bytes(CONTENT)
    line_by_line(path.parent / "in", path, {}, lambda lines, before: iter(lines))


@pytest.mark.parametrize("how", [by_replacing, by_replacing_nothing, by_writing, by_lines])
def test_a_file_gets_its_name_when_all_of_it_is_on_the_disk(how, tmp_path, events):
    path = tmp_path / "out"
    how(path)
    assert path.read_bytes() == CONTENT
    inode = path.stat().st_ino
    own = [(kind, size) for kind, number, size in events if number == inode]
    assert own == [("sync", len(CONTENT)), ("name", len(CONTENT))]


def test_a_text_gets_its_name_when_all_of_it_is_on_the_disk(tmp_path, events):
    for new in (True, False):
        events.clear()
        write_text(tmp_path / "out", "grün\n", new=new)
        assert [(kind, size) for kind, _, size in events] == [("sync", 6), ("name", 6)]


def test_a_folder_gets_its_name_when_all_its_files_are_on_the_disk(tmp_path, events):
    with atomic_folder(tmp_path / "out") as made:
        (made / "inner").mkdir()
        for name in ("one", "inner/two"):
            (made / name).write_bytes(CONTENT)
    assert [kind for kind, *_ in events] == ["sync", "sync", "name"]
    synced = {number for kind, number, size in events if kind == "sync" and size == len(CONTENT)}
    assert synced == {(tmp_path / "out" / name).stat().st_ino for name in ("one", "inner/two")}


# -- nobody's place --------------------------------------------------------------------------------------------------


def put(kind, path):
    if kind == "empty folder":
        path.mkdir()
    elif kind == "folder":
        path.mkdir()
        (path / "mine").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to("elsewhere")


def seen(path):
    return os.lstat(path).st_ino, sorted(p.name for p in path.iterdir()) if path.is_dir() else None


@pytest.mark.parametrize("kind", ["empty folder", "folder", "file", "link"])
def test_a_new_folder_takes_the_place_of_nothing_that_appeared_meanwhile(kind, tmp_path):
    path = tmp_path / "out"
    before = []

    def make():
        with atomic_folder(path) as made:
            (made / "new").write_text("new")
            put(kind, path)
            before.append(seen(path))

    with pytest.raises(RegardError, match="already exists and was not changed"):
        make()
    assert [seen(path)] == before
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["file", "link", "empty folder"])
def test_a_new_file_takes_the_place_of_nothing_that_appeared_meanwhile(kind, tmp_path):
    path = tmp_path / "out"
    before = []

    def make():
        with atomic_write(path, new=True) as made:
            made.write_text("new")
            put(kind, path)
            before.append(seen(path))

    with pytest.raises(RegardError, match="already exists and was not changed"):
        make()
    assert [seen(path)] == before
    assert os.listdir(tmp_path) == ["out"]


# -- locks -----------------------------------------------------------------------------------------------------------


def refused(path):
    try:
        with try_lock(path):
            return False
    except Locked:
        return True


def test_a_lock_is_held_by_one_and_free_afterwards(tmp_path):
    path = tmp_path / ".lock"
    assert not is_locked(path)
    for _ in range(2):
        with try_lock(path):
            assert is_locked(path)
            assert refused(path)
        assert not is_locked(path)
        assert not refused(path)


@pytest.mark.parametrize("anew", [False, True])
def test_who_waited_for_a_lock_that_was_removed_holds_the_new_one(tmp_path, monkeypatch, anew):
    """One process opens the lock, its holder deletes it (`exclusive_name` does), and perhaps a third makes it anew. The
    first must then take the file that has the name, or two processes hold the lock."""
    path, take, taken = tmp_path / ".lock", locks._take, []

    def take_late(handle, **how):
        if not taken:  # between its opening and its taking
            path.unlink()
            if anew:
                path.touch()
        taken.append(handle)
        return take(handle, **how)

    monkeypatch.setattr(locks, "_take", take_late)
    with try_lock(path):
        assert path.exists()
        assert is_locked(path)
        assert refused(path)
    assert not is_locked(path)


def test_of_two_that_claim_a_name_one_gets_it_and_nothing_is_left(tmp_path):
    path = tmp_path / "out"
    with exclusive_name(path):
        with pytest.raises(Locked), exclusive_name(path):
            pass
        with pytest.raises(Locked), exclusive_name(Path(tmp_path, "out")):
            pass
        with exclusive_name(tmp_path / "other"):
            pass
    assert not list(tmp_path.iterdir())
