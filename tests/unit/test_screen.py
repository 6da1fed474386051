"""What a stranger's run can write on a terminal: words, and no codes."""

import io
import os
import pty
import subprocess
import sys

import pytest

from regard.report.progress import progress, say
from regard.report.screen import Screen, harmless
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
    said = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert child.returncode == 2
    assert "There is no file" in said
    assert safe(said.replace("\r\n", "\n"))
