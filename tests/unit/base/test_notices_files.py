"""Files at their limits and after accidents: the last byte that fits, digests of every part, a damaged cache."""

import errno
import gzip
import hashlib
import json
import os
import sys
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.base import cache, locks, reading
from regard.base.digests import (
    DIGEST,
    check_digests,
    file_digest,
    read_with_digest,
    with_digest,
    without_digest,
)
from regard.base.errors import RegardError
from regard.base.locks import Locked, exclusive_name, is_locked, lock, try_lock, write_new
from regard.base.reading import check_size, check_tensor_file, open_file, parse_object, read_object, read_whole
from regard.base.writing import (
    append_line,
    atomic_folder,
    atomic_write,
    hidden_name,
    is_partial,
    open_own_file,
    remove_partial_files,
    rename_new,
    write_text,
    writing,
)

# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [7, reading.BLOCK - 1, reading.BLOCK, 3 * reading.BLOCK + 5])
@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not(tmp_path, name, most):
    path, pack = tmp_path / name, gzip.compress if name.endswith(".gz") else bytes
    content = os.urandom(most + 1)
    path.write_bytes(pack(content[:-1]))
    assert read_whole(path, most) == content[:-1]
    path.write_bytes(pack(content))
    os.utime(path, (1, 1))  # whether it unpacks to too much is remembered by size and time
    with pytest.raises(RegardError):
        read_whole(path, most)


def test_a_digest_is_refused_only_above_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert file_digest(path, 5) == file_digest(path)
    with pytest.raises(RegardError):
        file_digest(path, 4)


@pytest.mark.parametrize(("size", "fits"), [(1 << 24, True), ((1 << 24) + 1, False)])
def test_the_header_of_a_tensor_file_has_at_most_16_mebibytes(tmp_path, size, fits):
    path = tmp_path / "model.safetensors"
    path.write_bytes(size.to_bytes(8, "little") + b"{}")
    if fits:
        check_tensor_file(path)
    else:
        with pytest.raises(ValueError, match="larger than 16 MiB"):
            check_tensor_file(path)


def test_a_packed_file_may_hold_its_limit_and_not_more(tmp_path, monkeypatch):
    """4 MiB, or 200 times its own size; the limits are lowered so that a small file reaches them."""
    assert (reading.MAX_SMALL_BYTES, reading.MAX_UNPACKING) == (1 << 22, 200)
    monkeypatch.setattr(reading, "MAX_SMALL_BYTES", 5000)
    path = tmp_path / "text.gz"
    for number, (size, fits) in enumerate([(5000, True), (5001, False)]):
        path.write_bytes(gzip.compress(b"a" * size))
        os.utime(path, (number + 1, number + 1))
        assert 200 * path.stat().st_size > 5001  # else the other limit would decide
        monkeypatch.setattr(reading, "MAX_UNPACKING", 5000 / path.stat().st_size)
        if fits:
            assert len(read_whole(path, 10**6)) == size
        else:
            with pytest.raises(RegardError, match="times its size"):
                read_whole(path, 10**6)


def test_regards_own_files_are_refused_above_their_limits_unread(tmp_path):
    """The files have holes: nothing of them is on the disk, and reading them would take seconds."""
    path = tmp_path / "shared.json"
    for size, read, said in (
        ((64 << 20) + 1, read_object, "64 MiB"),
        ((256 << 20) + 1, lambda path: check_digests(tmp_path, [path.name], {path.name: "x"}), "256 MiB"),
    ):
        path.touch()
        os.truncate(path, size)
        with pytest.raises(RegardError, match=f"larger than {said}, so Regard did not write it: check the file"):
            read(path)
        path.unlink()
    for most, said in ((1 << 20, "1 MiB"), ((1 << 20) - 1, "1048575 bytes"), (3 << 20, "3 MiB")):
        assert f"larger than {said}, more than Regard accepts" in str(reading._too_large(path, most, True))


def test_what_a_system_says_of_a_file_is_said_with_its_name(tmp_path, monkeypatch):
    for path, said in (
        (tmp_path / "none.txt", "There is no file .*none.txt'; check the spelling and the folder"),
        (tmp_path, r"cannot be read \(Is a directory\); check the file"),
        (tmp_path / "cut.gz", "cut.gz' is not a complete gz file; copy or download it again"),
        (tmp_path / "not.gz", "not.gz' is not a complete gz file"),
    ):
        if path.name == "cut.gz":
            path.write_bytes(gzip.compress(os.urandom(100))[:-20])
        elif path.name == "not.gz":
            path.write_bytes(b"no gzip file")
        with pytest.raises(RegardError, match=said):
            read_whole(path, 100)
    for error, said in (
        (PermissionError(), "mine' cannot be read; change its permissions or use a copy"),
        (OSError(5, "Input/output error"), r"cannot be read \(Input/output error\); check the file"),
        (OSError("odd"), r"cannot be read \(odd\); check the file"),
    ):

        def refuse(path, error=error):
            raise error

        monkeypatch.setattr(reading, "open_file", refuse)
        with pytest.raises(RegardError, match=said):
            read_whole(Path("mine"), 100)


def test_a_bomb_is_refused_before_its_first_line_is_read(tmp_path):
    """Its lines alone can keep Python busy for a minute."""
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(5 << 20)))
    with (
        pytest.raises(RegardError, match="unpacks to more than 200 times its size"),
        reading.reading(tmp_path / "x.gz"),
    ):
        pass


def test_a_link_to_a_lock_is_no_lock(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    with try_lock(tmp_path / "lock"):
        assert is_locked(tmp_path / "lock")
        assert not is_locked(tmp_path / "link")


def test_a_file_whose_reading_would_wait_is_refused():
    """Some files of /proc are regular by their mode, and have nothing to read yet."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    with open(theirs, "wb"), reading._Regular(ours) as waits:
        for read in (lambda: waits.readinto(bytearray(3)), waits.readall):
            with pytest.raises(RegardError, match="is a pipe or a device, not a file: replace it with a file"):
                read()
    with open_file(Path("/dev/null")) as nothing:  # someone wrote it so
        assert nothing.read() == b""


def test_a_packed_file_is_read_as_a_plain_one(tmp_path):
    content = os.urandom(50_000)
    (tmp_path / "x.gz").write_bytes(gzip.compress(content))
    with reading.reading(tmp_path / "x.gz") as stream:
        assert (stream.readable(), stream.seekable(), stream.tell()) == (True, True, 0)
        assert (stream.read(7), stream.tell()) == (content[:7], 7)
        assert stream.seek(40_000) == 40_000
        assert (stream.read(9), stream.tell()) == (content[40_000:40_009], 40_009)
        assert stream.seek(-5, os.SEEK_CUR) == 40_004
        stream.seek(1)
        assert stream.read() == content[1:]


def test_zstandard_files_say_what_they_need_and_when_they_are_damaged(tmp_path, monkeypatch):
    for name in ("compression", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "x.zst").write_bytes(b"x")
    with pytest.raises(RegardError, match=r"x.zst', install Zstandard: pip install 'regard\[data\]'"):
        read_whole(tmp_path / "x.zst", 9)

    class ZstdError(Exception):
        pass

    def fail(error):
        def read(size):
            raise error

        return SimpleNamespace(read=read)

    for error, seen in ((ZstdError("frame"), zlib.error), (KeyError("frame"), KeyError)):
        with pytest.raises(seen):
            reading._Unpacked(fail(error), tmp_path / "x.zst").readinto(bytearray(3))


def test_a_link_or_a_pipe_is_not_written_to(tmp_path):
    target = tmp_path / "target"
    target.write_text("before\n")
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(RegardError, match="not a regular file"):
            append_line(tmp_path / name, "more")
    assert target.read_text() == "before\n"
    with pytest.raises(RegardError, match="pipe or a device"):
        open_file(tmp_path / "pipe")


def test_what_is_refused_is_closed(tmp_path):
    """A server that is asked for a pipe again and again would have no descriptors left."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # so that it can be opened for writing
    before = os.dup(reader)  # the lowest numbers that are free come next
    os.close(before)
    for _ in range(3):
        with pytest.raises(RegardError, match="pipe or a device"):
            open_file(tmp_path / "pipe")
        with pytest.raises(RegardError, match="not a regular file"):
            open_own_file(tmp_path / "pipe", os.O_WRONLY)
    after = os.dup(reader)
    assert after == before
    for descriptor in (after, reader):
        os.close(descriptor)


def test_a_line_is_added_to_those_that_are_there(tmp_path):
    for word in ("one", "zwei", "drüben"):
        append_line(tmp_path / "log", word)
    assert (tmp_path / "log").read_bytes() == "one\nzwei\ndrüben\n".encode()
    umask = os.umask(0o022)
    os.umask(umask)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o666 & ~umask
    os.close(open_own_file(tmp_path / "log", os.O_WRONLY))  # opening alone changes nothing
    assert (tmp_path / "log").read_bytes() == "one\nzwei\ndrüben\n".encode()


def test_text_is_written_with_its_own_line_ends(tmp_path):
    write_text(tmp_path / "file", "a\r\nb\nc\rü")
    assert (tmp_path / "file").read_bytes() == "a\r\nb\nc\rü".encode()


# -- digests ---------------------------------------------------------------------------------------------------------

TREE = {"name": "run", "steps": 3, "rates": [0.1, 0.2], "data": {"checksum": "abc"}, "none": None}


def test_every_part_of_an_object_is_in_its_digest(tmp_path):
    path = tmp_path / "run.json"
    written = with_digest(TREE)
    assert without_digest(written, path) == TREE
    changed = [
        {**TREE, "steps": 4},
        {**TREE, "rates": [0.2, 0.1]},
        {**TREE, "data": {"checksum": "abd"}},
        {**TREE, "data": {}},
        {**TREE, "none": False},
        {**TREE, "more": 1},
        {key: value for key, value in TREE.items() if key != "name"},
    ]
    for other in changed:
        path.write_text(json.dumps({**other, DIGEST: written[DIGEST]}))
        with pytest.raises(RegardError, match="damaged or has been modified"):
            read_with_digest(path)
    path.write_text(json.dumps(TREE))
    with pytest.raises(RegardError, match="has no digest"):
        read_with_digest(path)
    path.write_text(json.dumps(dict(reversed(written.items()))))  # the order of the entries means nothing
    assert read_with_digest(path) == TREE


def test_digests_are_those_of_files_that_were_written_before(tmp_path):
    """Another digest would make every run of an older Regard a damaged one."""
    (tmp_path / "file").write_bytes(b"12345")
    assert file_digest(tmp_path / "file") == hashlib.blake2b(b"12345", digest_size=16).hexdigest()
    entries = json.dumps(TREE, sort_keys=True).encode()
    assert with_digest(TREE)["blake2b"] == hashlib.blake2b(entries, digest_size=16).hexdigest()


@pytest.mark.parametrize(
    ("foreign", "said"), [({}, "so Regard did not write it"), ({"foreign": True}, "more than Regard accepts")]
)
def test_a_file_that_is_too_large_is_regards_own_or_anothers(tmp_path, foreign, said):
    (tmp_path / "x.json").write_bytes(b'{"a": 1}')
    for read in (read_whole, read_object):
        with pytest.raises(RegardError, match=f"larger than 7 bytes, .*{said}"):
            read(tmp_path / "x.json", 7, **foreign)
    with open(tmp_path / "x.json", "rb") as stream, pytest.raises(RegardError, match=said):
        check_size(stream, tmp_path / "x.json", 7, **foreign)


def test_files_are_those_whose_digests_were_recorded(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    recorded = {"a": file_digest(tmp_path / "a"), "b": file_digest(tmp_path / "b")}
    check_digests(tmp_path, ("a", "b", "c"), recorded)
    (tmp_path / "c").write_text("c")
    with pytest.raises(RegardError, match=r"c does not belong in this folder"):
        check_digests(tmp_path, ("a", "b", "c"), recorded)
    (tmp_path / "b").write_text("B")
    with pytest.raises(RegardError, match=r"b is damaged or has been modified"):
        check_digests(tmp_path, ("a", "b"), recorded)
    (tmp_path / "a").unlink()
    with pytest.raises(RegardError, match=r"a is missing"):
        check_digests(tmp_path, ("a", "b"), recorded)


@pytest.mark.parametrize("content", [b"", b"[1]", b"3", b'{"a": 1', b'{"a":' + b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_none(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    assert read_object(tmp_path / "x.json") is None
    if content:
        with pytest.raises(RegardError, match=r"x\.json is damaged: restore it from a backup"):
            read_with_digest(tmp_path / "x.json")
    assert parse_object('{"a": [1]}') == {"a": [1]}


# -- the cache -------------------------------------------------------------------------------------------------------


def counted(part="part", name="name", content=b"made\n\n of it"):
    calls = []
    found = cache.cached(part, name, lambda: calls.append(1) or content, bytes, bytes)
    return found, len(calls)


def test_what_is_cached_is_made_once_and_again_when_it_was_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    path = tmp_path / "part" / "name"
    assert counted() == (b"made\n\n of it", 1)
    assert counted() == (b"made\n\n of it", 0)
    assert counted(name="other", content=b"2") == (b"2", 1)
    assert counted(part="other", content=b"3") == (b"3", 1)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"0" + whole[1:], b"", whole.replace(b"made", b"fade")):
        path.write_bytes(damaged)
        assert counted() == (b"made\n\n of it", 1)
        assert path.read_bytes() == whole


def test_without_a_cache_that_can_be_written_everything_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    assert counted() == counted() == (b"made\n\n of it", 1)


def test_where_the_cache_is(tmp_path, monkeypatch):
    for name in ("REGARD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache.cache_folder() == tmp_path / "home" / ".cache" / "regard"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg" / "regard"
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "own"))
    assert cache.cache_folder() == tmp_path / "own"
    monkeypatch.setenv("REGARD_CACHE", "")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert cache.cache_folder() == tmp_path / "home" / "AppData" / "Local" / "regard"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.cache_folder() == tmp_path / "local" / "regard"


# -- partial files and locks -----------------------------------------------------------------------------------------


def test_only_the_partial_files_of_a_name_are_its_partial_files(tmp_path):
    mine, other = hidden_name(tmp_path / "model.pt").name, hidden_name(tmp_path / "modelxpt").name
    assert is_partial(mine)
    assert is_partial(mine, "model.pt")
    assert not is_partial(other, "model.pt")
    for name in ("model.pt", ".model.pt", "model.pt.0123abcd.part", ".model.pt.0123abcd", ".model.pt.0123abc.part"):
        assert not is_partial(name)
    for name in (mine, other, "model.pt", ".lock"):
        (tmp_path / name).write_text("x")
    folder = tmp_path / hidden_name(tmp_path / "model.pt").name
    folder.mkdir()
    remove_partial_files(tmp_path, of="model.pt")
    assert {path.name for path in tmp_path.iterdir()} == {other, "model.pt", ".lock"}
    folder.mkdir()
    remove_partial_files(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, "model.pt", ".lock"}  # no folder unasked


def interrupted(made, error):
    """Half of what is written is there when the error comes."""
    with made as temporary:
        (temporary / "half" if temporary.is_dir() else temporary).write_text("half")
        raise error


def test_a_write_that_fails_leaves_what_was_there_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    for error in (OSError(28, "No space left on device"), RuntimeError("stop")):
        with pytest.raises((RegardError, RuntimeError)) as raised:
            interrupted(atomic_write(path), error)
        assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"file": "before"}
        if isinstance(error, OSError):
            assert "disk is full" in str(raised.value)
            assert "unchanged" in str(raised.value)
    with pytest.raises(RegardError, match="its partial files were removed"):
        interrupted(atomic_folder(tmp_path / "folder"), OSError(28, "No space left on device"))
    assert {each.name for each in tmp_path.iterdir()} == {"file"}
    for error, why in ((OSError(5, "Input/output error"), "Input/output error"), (OSError("odd"), "odd")):
        with pytest.raises(
            RegardError, match=rf"new' could not be saved \({why}\); nothing was written: check the folder"
        ):
            interrupted(atomic_write(tmp_path / "new"), error)
        with pytest.raises(RegardError, match=rf"folder' was not written \({why}\); its partial files were removed"):
            interrupted(atomic_folder(tmp_path / "folder"), error)
    with pytest.raises(RegardError, match=r"was not written \(the disk is full\)"):
        interrupted(atomic_folder(tmp_path / "folder"), OSError(28, "No space left on device"))


def test_what_a_name_cannot_be_written_for_is_said(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "er" / "file"
    with writing(path) as stream:
        stream.write(b"whole")
    assert path.read_bytes() == b"whole"
    for name in (".", "/"):
        with pytest.raises(RegardError, match=f"'{name}' is a folder: add a file name"):
            hidden_name(Path(name))
    with atomic_folder(tmp_path / "as" / "deep") as made:
        (made / "file").touch()
    assert (tmp_path / "as" / "deep" / "file").exists()
    assert hidden_name(path, "lock").name == ".file.lock"
    assert hidden_name(path) != hidden_name(path)
    with pytest.raises(RegardError, match=r"could not be opened \(No such file or directory\); check the folder"):
        append_line(tmp_path / "none" / "log", "line")
    with pytest.raises(RegardError, match=r"file/log' could not be saved .*; nothing was written: check the folder"):
        write_text(path / "log", "text")
    with pytest.raises(RegardError, match=r"The folder .*/file/new' was not written \(Not a directory\)"):
        interrupted(atomic_folder(path / "new"), None)
    with pytest.raises(RegardError, match=r"file/log' could not be saved"), exclusive_name(path / "log"):
        pass
    (tmp_path / "log").mkdir()
    with pytest.raises(RegardError, match="log is not a regular file, so Regard does not write to it"):
        append_line(tmp_path / "log", "line")

    def full(*given, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "lines").write_text("before\n")
    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(RegardError, match=r"The disk is full, so .*lines' was not saved; the previous contents are"):
        append_line(tmp_path / "lines", "line")


def test_where_a_system_has_no_such_flags_a_file_is_opened_without_them(tmp_path, monkeypatch):
    asked, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *mode: asked.append((flags, *mode)) or real(path, flags, *mode))
    for name in ("O_NOFOLLOW", "O_NONBLOCK"):
        monkeypatch.delattr(os, name)
    os.close(open_own_file(tmp_path / "own", os.O_RDWR))
    open_file(tmp_path / "own").close()
    assert asked == [(os.O_RDWR | os.O_CREAT, 0o666), (os.O_RDONLY | os.O_CLOEXEC,)]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_whole_file_takes_a_free_name_and_no_other(tmp_path, monkeypatch, links):
    """Also on a file system without hard links, as FAT is."""

    def refuse(*given):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    made, path = tmp_path / "made", tmp_path / "path"
    made.write_text("whole")
    rename_new(made, path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"path": "whole"}
    made.write_text("other")
    with pytest.raises(RegardError, match="path already exists and was not changed: choose another name"):
        rename_new(made, path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"path": "whole", "made": "other"}


def test_what_a_killed_process_left_of_a_name_is_removed_by_the_next_that_holds_it(tmp_path):
    path, other = tmp_path / "out", tmp_path / "other"
    left = [hidden_name(path), hidden_name(path), hidden_name(other)]
    left[0].write_text("half")
    left[1].mkdir()
    (left[1] / "inner").touch()
    left[2].write_text("half")
    link = hidden_name(path)
    link.symlink_to(tmp_path)
    with exclusive_name(path):
        assert {each.name for each in tmp_path.iterdir()} == {left[2].name, ".out.lock"}
    assert [each.name for each in tmp_path.iterdir()] == [left[2].name]


def test_a_lock_that_another_process_tries_for_a_moment_is_taken_a_moment_later(tmp_path, monkeypatch):
    """`is_locked` holds it so long. A lock that stays is refused in less than a second."""
    path, slept, take, busy = tmp_path / ".lock", [], locks._take, [2]

    def busy_at_first(handle, **how):
        if busy[0]:
            busy[0] -= 1
            raise BlockingIOError(errno.EAGAIN, "busy")
        return take(handle, **how)

    monkeypatch.setattr(locks, "_take", busy_at_first)
    monkeypatch.setattr(locks.time, "sleep", slept.append)
    with try_lock(path):
        assert len(slept) == 2
    busy[0] = 10**6
    with pytest.raises(Locked, match=f"Another process is using {tmp_path}; wait for it to finish"), try_lock(path):
        pass
    assert 0 < sum(slept) < 1
    for number, held in ((errno.EAGAIN, True), (errno.EACCES, True), (errno.EDEADLK, True), (errno.ENOLCK, False)):

        def fail(handle, shared=False, number=number):
            assert shared  # two that ask at the same time do not see each other
            raise OSError(number, "said by the system")

        monkeypatch.setattr(locks, "_take", fail)
        assert is_locked(path) is held
    busy[0], slept[:] = 11, []
    monkeypatch.setattr(locks, "_take", busy_at_first)
    with lock(tmp_path / "new" / ".lock"):
        assert 0 < max(slept) <= 0.5  # who waits looks a few times each second


def test_on_windows_the_first_byte_is_locked_without_waiting(tmp_path, monkeypatch):
    asked = []
    system = SimpleNamespace(LK_NBLCK="at once", locking=lambda *given: asked.append(given))
    monkeypatch.setitem(sys.modules, "msvcrt", system)
    monkeypatch.setattr(sys, "platform", "win32")
    with open(tmp_path / "lock", "w+b") as handle:
        locks._take(handle)
        assert asked == [(handle.fileno(), "at once", 1)]


def test_an_open_file_is_that_of_a_name_until_it_is_removed_or_replaced(tmp_path):
    path = tmp_path / "file"
    with open(path, "w+b") as handle:
        assert locks.same_file(handle, path)
        path.rename(tmp_path / "other")
        assert not locks.same_file(handle, path)
        path.touch()
        assert not locks.same_file(handle, path)


def test_who_asks_for_a_lock_is_told_and_leaves_no_file(tmp_path):
    path = tmp_path / ".lock"
    assert not is_locked(path)
    assert not path.exists()
    with try_lock(path):
        assert is_locked(path)
        with pytest.raises(Locked, match=str(tmp_path)), try_lock(path):
            pass
    assert not is_locked(path)


def test_who_waits_for_a_lock_gets_it_when_it_is_free(tmp_path):
    path, order = tmp_path / "deep" / "er" / ".lock", []

    def wait():
        with lock(path):
            order.append("second")

    with lock(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        order.append("first")
    waiting.join(60)
    assert order == ["first", "second"]


def test_a_name_that_is_taken_stays_and_the_lock_of_a_name_is_removed(tmp_path):
    path = tmp_path / "new" / "table.csv"
    write_new(path, "one")
    with pytest.raises(RegardError, match="already exists"):
        write_new(path, "two")
    assert [each.name for each in path.parent.iterdir()] == ["table.csv"]
    assert path.read_text() == "one"
    own = hidden_name(path, "lock")
    own.write_text("not ours")  # a file with content is nobody's lock to remove
    with exclusive_name(path):
        pass
    assert own.read_text() == "not ours"
