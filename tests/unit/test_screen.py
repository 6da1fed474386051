"""What a stranger's run can write on a terminal: words, and no codes."""

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from regard.report.progress import progress, say
from regard.report.screen import Screen, for_stdout, harmless
from regard.report.table import plain_table

EVIL = "name\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x00\x7f"


def safe(words):
    return not any(character < " " or "\x7f" <= character <= "\x9f" for character in words if character not in "\n\t")


def test_no_control_character_is_left_and_nothing_else_is_changed():
    assert safe(harmless(EVIL))
    assert "\u241b]0;title\u2407" in harmless(EVIL)
    assert harmless("Füße\tja\n日本 \U0001f600") == "Füße\tja\n日本 \U0001f600"


def test_a_screen_shows_colours_and_no_other_codes():
    stream = io.StringIO()
    print("\x1b[38;5;3mred\x1b[0m", EVIL, "\x1b", "[2J", file=Screen(stream))
    Screen(stream).writelines([EVIL])
    written = stream.getvalue()
    assert "\x1b[38;5;3mred\x1b[0m" in written
    assert safe(written.replace("\x1b[38;5;3m", "").replace("\x1b[0m", ""))


def test_what_turns_the_text_is_shown_and_letters_that_run_to_the_left_stay():
    turning = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    assert harmless("".join(map(chr, turning))) == "\N{REPLACEMENT CHARACTER}" * len(turning)
    for words in ("שלום עולם", "مرحبا\u200f!", "می\u200cخواهم"):
        assert harmless(words) == words


def test_words_of_a_model_bring_no_colours_to_a_terminal_and_are_unchanged_in_a_pipe(monkeypatch):
    words = "\x1b[31mred\x1b[0m \u202eexe.txt"
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Screen(stream))
    assert for_stdout(words) == words
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    print(for_stdout(words))
    assert stream.getvalue() == "\u241b[31mred\u241b[0m \ufffdexe.txt\n"


def test_logs_and_tables_are_clean_also_in_a_file(capsys):
    say(EVIL)
    with progress(EVIL, 1) as bar:
        bar.say(EVIL)
    print(plain_table([{"a": EVIL}], {"a": "heading"}, EVIL))
    captured = capsys.readouterr()
    assert "name" in captured.out
    assert "name" in captured.err
    assert safe(captured.out)
    assert safe(captured.err)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_file_name_in_an_error_is_clean(tmp_path):
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "regard", "data", "check", str(tmp_path / EVIL.replace("\x00", ""))]
    child = subprocess.run(words, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, check=False)
    os.close(follower)
    said = b""
    with suppress(OSError):  # the end: nobody holds the other side any more
        while piece := os.read(leader, 1 << 16):
            said += piece
    os.close(leader)
    said = said.decode()
    assert child.returncode == 2
    assert "There is no file" in said
    assert safe(said.replace("\r\n", "\n"))
