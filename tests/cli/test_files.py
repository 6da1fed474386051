"""From a file to a file: nobody's file is written over, and two processes never write one."""

import os
import tracemalloc
import zlib
from pathlib import Path

import pytest

from regard.base.digests import file_digest
from regard.base.errors import RegardError
from regard.base.locks import Locked, exclusive_name, try_lock, write_new
from regard.base.reading import BLOCK, read_whole, reading
from regard.base.writing import append_line, write_text
from regard.cli.file_to_file import line_by_line, run_digests
from regard.runs.store.lock import tidy
from regard.text.readers.lines import BOM, read_lines


def upper(lines, before):
    return (line.upper() for line in lines)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    return tmp_path / "in.txt"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.txt"


def test_lines_go_from_file_to_file_and_nothing_is_left_beside_them(source, out):
    line_by_line(source, out, {}, upper)
    assert out.read_text() == "ONE\nTWO\n"
    assert sorted(path.name for path in out.parent.iterdir()) == ["in.txt", "out.txt"]


def test_what_a_killed_writer_left_of_a_new_file_is_removed_by_the_next(tmp_path):
    for name in (".page.html.0123abcd.part", ".other.html.0123abcd.part", ".page.html.lock"):
        (tmp_path / name).touch()
    (tmp_path / ".page.html.4567abcd.part" / "kept").mkdir(parents=True)  # of a folder
    write_new(tmp_path / "page.html", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.html.0123abcd.part", "page.html"]
    with pytest.raises(RegardError, match="already exists"):
        write_new(tmp_path / "page.html", "another")
    assert (tmp_path / "page.html").read_text() == "whole"
    assert not (tmp_path / ".page.html.lock").exists()


def test_a_new_file_needs_a_name_and_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="is a folder"):
        write_new(Path("/"), "text")
    with pytest.raises(RegardError, match="could not be saved"):
        write_new(tmp_path / "file" / "page.html", "text")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_line_that_finds_no_room_is_said_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.base.writing.open_own_file", lambda path, flags: os.open("/dev/full", flags))
    with pytest.raises(RegardError, match="disk is full"):
        append_line(tmp_path / "metrics.jsonl", "{}")


def test_of_two_writers_of_a_new_file_one_is_refused(tmp_path):
    with exclusive_name(tmp_path / "page.html"), pytest.raises(Locked):
        write_new(tmp_path / "page.html", "another")
    assert not list(tmp_path.iterdir())


def test_a_file_that_appears_meanwhile_is_left_alone(source, out):
    def meanwhile(lines, before):
        out.write_text("mine")
        yield from upper(lines, before)

    with pytest.raises(RegardError, match="in the meantime"):
        line_by_line(source, out, {}, meanwhile)
    assert out.read_text() == "mine"
    out.unlink()
    line_by_line(source, out, {}, upper)  # and what was written is not lost
    assert out.read_text() == "ONE\nTWO\n"


@pytest.mark.parametrize("name", ["out.txt.part", "out.txt.part.json", "out.txt"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_ones_own_files_of_such_names_are_not_touched(source, out, name, kind, tmp_path):
    path = out.with_name(name)
    if kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(RegardError, match="choose another --out"):
        line_by_line(source, out, {}, upper)
    assert path.read_text() == "mine" if kind == "file" else not (tmp_path / "nowhere").exists()
    assert not os.path.lexists(out) or name == "out.txt"


def test_a_lock_that_its_holder_removed_is_no_lock(tmp_path):
    """Else a process that had opened it before and one that makes it anew would both hold one."""
    path = tmp_path / ".lock"
    with try_lock(path):
        path.unlink()
        with try_lock(path), pytest.raises(RegardError, match="Another process"), try_lock(path):
            pass


def test_a_new_file_never_takes_the_place_of_another(tmp_path, monkeypatch):
    for links in (True, False):
        if not links:
            monkeypatch.setattr(os, "link", lambda *paths: (_ for _ in ()).throw(PermissionError()))
        write_text(tmp_path / f"new{links}", "first", new=True)
        with pytest.raises(RegardError, match="already exists"):
            write_text(tmp_path / f"new{links}", "second", new=True)
        assert (tmp_path / f"new{links}").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_can_be_read_only_once_is_refused(tmp_path, out, wrong):
    """It is read for its digest first: the lines would be gone."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RegardError, match="is a pipe or a device"):
        line_by_line(tmp_path / "pipe", out, {}, upper)
    with pytest.raises(RegardError, match="is a pipe or a device"):
        line_by_line(Path("/dev/null"), out, {}, upper)
    assert "is neither a file nor a folder" in wrong("train", "ngram", "--data", tmp_path / "pipe")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_pipe_in_the_place_of_a_file_is_refused_and_one_that_was_named_is_read(tmp_path):
    """Nobody writes to it: to open it would wait for ever."""
    for name in ("recipe.toml", "text.gz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(RegardError, match="is a pipe or a device"), reading(tmp_path / name):
            pass
    (tmp_path / "device").symlink_to("/dev/zero")
    with pytest.raises(RegardError, match="is a pipe or a device"):
        read_whole(tmp_path / "device", 10)
    with pytest.raises(RegardError, match="is a pipe or a device"):
        file_digest(tmp_path / "recipe.toml")
    with pytest.raises(RegardError, match="cannot be read"), reading(tmp_path):
        pass
    end, start = os.pipe()
    os.write(start, b"a = 1")
    os.close(start)
    assert read_whole(Path(f"/dev/fd/{end}"), 10) == b"a = 1"  # as <(…) does
    os.close(end)


def test_a_file_that_has_nothing_to_read_yet_is_refused(tmp_path, monkeypatch):
    """Some files of /proc, such as the kernel's log, say that they are regular, as this pipe does here."""
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    monkeypatch.setattr("regard.base.reading.stat.S_ISREG", lambda mode: True)
    for read in (
        lambda stream: stream.read(),
        lambda stream: stream.read(4),
        lambda stream: stream.readline(),
        lambda stream: stream.readinto(bytearray(4)),
    ):
        with pytest.raises(RegardError, match="is a pipe or a device"), reading(tmp_path / "kmsg") as stream:
            read(stream)
    os.close(writer)


@pytest.mark.parametrize("lines", [9_000_000, 200_000_000])
def test_a_packed_file_that_unpacks_to_too_much_is_refused_before_its_first_line(lines, tmp_path):
    """Python would look at each of its millions of lines."""
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(b"a\n" * 1_000_000) for _ in range(lines // 1_000_000)]
    (tmp_path / "lines.txt.gz").write_bytes(b"".join([*pieces, packer.flush()]))
    with pytest.raises(RegardError, match="unpacks to more than 200 times its size"):
        next(read_lines(tmp_path / "lines.txt.gz"))


def test_a_small_file_takes_little_memory_however_large_it_might_have_been(tmp_path):
    (tmp_path / "small").write_bytes(b"a = 1")
    tracemalloc.start()
    try:
        assert read_whole(tmp_path / "small", 1 << 28) == b"a = 1"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    for size, most in ((BLOCK, BLOCK), (3 * BLOCK, 3 * BLOCK), (BLOCK, BLOCK + 1)):
        (tmp_path / "large").write_bytes(b"x" * size)
        assert len(read_whole(tmp_path / "large", most)) == size
    with pytest.raises(RegardError, match="is larger than"):
        read_whole(tmp_path / "large", BLOCK - 1)


def test_a_byte_order_mark_is_no_part_of_the_text(trained, regard, source, out):
    plain, marked = (regard("score", trained["ngram"], stdin=mark + b"The cat\n\xef\xbb\xbf\n") for mark in (b"", BOM))
    assert plain == marked
    source.write_bytes(BOM + source.read_bytes() + BOM + b"\r\n")
    line_by_line(source, out, {}, upper)
    assert out.read_bytes() == b"ONE\nTWO\n" + BOM + b"\n"  # at the beginning alone it is a mark


@pytest.mark.parametrize("changed", ["kept/00000003.safetensors", "tokenizer.json", "recipe.toml"])
def test_a_file_is_finished_only_by_the_weights_that_began_it(tmp_path, changed):
    (tmp_path / "kept").mkdir()
    for name in (
        "model.safetensors",
        "recipe.toml",
        "tokenizer.json",
        *(f"kept/0000000{n}.safetensors" for n in "123"),
    ):
        (tmp_path / name).write_text("before")
    before = run_digests(tmp_path, "best", 2), run_digests(tmp_path, "best", 1)
    (tmp_path / "kept" / "00000001.safetensors").write_text("it is not among the last two")
    assert run_digests(tmp_path, "best", 2) == before[0]
    (tmp_path / changed).write_text("afterwards")
    assert all(a != b for a, b in zip(before, (run_digests(tmp_path, "best", 2), run_digests(tmp_path, "best", 1))))


def test_what_a_kill_left_of_the_note_beside_an_unfinished_file_is_swept(tmp_path):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\n")
    (tmp_path / ".out.txt.part.json.0123abcd.part").write_text('{"inp')
    (tmp_path / ".other.txt.part.json.0123abcd.part").write_text("someone else's")
    line_by_line(source, out, {}, lambda lines, done: (line.upper() for line in lines))
    assert out.read_text() == "ONE\nTWO\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".other.txt.part.json.0123abcd.part", "in.txt", "out.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["kept", "snapshots"])
def test_what_a_kill_left_of_the_first_weights_of_a_folder_is_removed(tmp_path, name):
    (tmp_path / name).mkdir()
    for file in (".00000002.safetensors.0123abcd.part", "mine.part"):
        (tmp_path / name / file).write_bytes(b"half")
    tidy(tmp_path)
    assert [path.name for path in (tmp_path / name).iterdir()] == ["mine.part"]
