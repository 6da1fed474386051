"""metrics.jsonl: each line has its checksum; a line that was cut short is left out, and a damaged one is named."""

import json
import os
import zlib

import pytest

from regard.base.errors import RegardError
from regard.training import metrics
from regard.training.metrics import append_metrics, as_written, cut_metrics, sound_metrics

ROWS = [{"step": step, "loss": 2.5 / step, "split": "valid"} for step in (1, 4, 5, 9)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for row in ROWS:
        append_metrics(path, row)
    return path


def test_a_line_ends_with_the_crc32_of_the_line_without_it(path):
    for line, row in zip(path.read_text().splitlines(), ROWS, strict=True):
        assert json.loads(line) == row | {"crc32": f"{zlib.crc32(json.dumps(row).encode()):08x}"}
    assert sound_metrics(path) == (ROWS, None)


def test_every_byte_that_is_changed_is_found(path):
    """Where a line is no longer one, it counts as damaged, too; a lost end of the last line alone is no damage."""
    whole = path.read_bytes()
    first = whole.index(b"\n")
    for at in range(first):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert sound_metrics(path) == (ROWS[1:], 1), at


def test_the_first_damaged_line_is_named_and_the_others_are_read(path):
    lines = path.read_text().splitlines(True)
    lines[1] = lines[1].replace('"step": 4', '"step": 3')
    lines[2] = "no line\n"
    path.write_text("".join(lines))
    assert sound_metrics(path) == ([ROWS[0], ROWS[3]], 2)
    with pytest.raises(RegardError, match="damaged on line 2"):
        cut_metrics(path, 9)
    assert path.read_text() == "".join(lines)


@pytest.mark.parametrize("end", ['{"step": 10, "lo', '{"step"', "{"])
def test_a_last_line_that_was_cut_short_is_no_damage(path, end):
    whole = path.read_text()
    path.write_text(whole + end)
    assert sound_metrics(path) == (ROWS, None)
    cut_metrics(path, 9)
    assert path.read_text() == whole


@pytest.mark.parametrize("end", ['{"step": 10, "loss": 1.5, "crc32": "00000000"}', "{}", "{\n"])
def test_a_last_line_that_is_whole_and_wrong_is_damage(path, end):
    path.write_text(path.read_text() + end)
    assert sound_metrics(path) == (ROWS, 5)
    with pytest.raises(RegardError, match="damaged on line 5"):
        cut_metrics(path, 9)


def test_what_came_after_the_checkpoint_is_cut_away(path):
    whole = path.read_text().splitlines(True)
    for step, left in ((9, 4), (8, 3), (5, 3), (4, 2), (0, 0)):
        cut_metrics(path, step)
        assert path.read_text() == "".join(whole[:left])


def test_a_last_line_without_its_newline_gets_it(path):
    whole = path.read_text()
    path.write_text(whole[:-1])
    assert sound_metrics(path) == (ROWS, None)
    cut_metrics(path, 9)
    assert path.read_text() == whole


def test_a_file_with_nothing_to_cut_is_not_written(path):
    before = path.stat().st_ino
    cut_metrics(path, 9)
    assert path.stat().st_ino == before


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_the_other_copy_of_a_linked_file_stays_as_it_is(path, link):
    copy = path.with_name("copy.jsonl")
    link(path, copy)
    cut_metrics(copy, 9)
    append_metrics(copy, {"step": 10})
    assert sound_metrics(path) == (ROWS, None)
    assert sound_metrics(copy) == ([*ROWS, {"step": 10}], None)


def test_no_file_has_no_lines(tmp_path):
    assert sound_metrics(tmp_path / "none.jsonl") == ([], None)
    cut_metrics(tmp_path / "none.jsonl", 3)
    assert not list(tmp_path.iterdir())


def test_lines_of_older_runs_have_no_checksum(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "split": "valid"}\n{"step": 2.0}\n{"step": 3, "crc": "12345678"}\n[4]\n{"loss": 1}\n')
    assert sound_metrics(path) == ([{"step": 1, "split": "valid"}], 2)
    assert as_written(b'{"step": 1}', {"step": 1})
    assert not as_written(b'{"step": 1, "crc32": "5f0a1c2"}', {"step": 1, "crc32": "5f0a1c2"})


def test_a_file_of_more_than_the_most_was_not_written_here(path, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_METRICS_BYTES", path.stat().st_size)
    assert sound_metrics(path)[0] == ROWS
    monkeypatch.setattr(metrics, "MAX_METRICS_BYTES", path.stat().st_size - 1)
    with pytest.raises(RegardError, match="is larger than"):
        sound_metrics(path)


def test_nesting_without_end_is_damage(path):
    path.write_text("[" * 200_000 + "\n")
    assert sound_metrics(path) == ([], 1)
