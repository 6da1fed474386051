"""What a stranger's run can write on a terminal: words, and no codes."""

import io
import json
import math
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from regard.report.progress import progress, say
from regard.report.screen import Screen, for_stdout, harmless
from regard.report.table import (
    csv_text,
    finite,
    is_numeric,
    latex_text,
    plain_table,
    print_json,
    print_table,
    seconds,
    significant,
    text,
)

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
    Screen(stream).writelines(["first\n", f"second {EVIL}\n"])
    written = stream.getvalue()
    assert written.splitlines()[-2:] == ["first", f"second {harmless(EVIL)}"]
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


# -- tables ----------------------------------------------------------------------------------------------------------

ROWS = [{"name": "[b]gpt\x07", "parameters": 12400, "share": 0.5}, {"name": "é", "parameters": 7, "share": None}]
COLUMNS = {"name": "system", "parameters": "parameters", "share": "share of all"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_table_on_a_terminal_has_every_cell_numbers_right_and_words_left(monkeypatch):
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    for name, value in {"TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    print_table(ROWS, COLUMNS, "[b]Title\x07")
    title, head, _, *body = [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]
    assert title.strip() == "[b]Title\u2407"
    assert head.split() == ["system", "parameters", "share", "of", "all"]
    assert [line.split() for line in body] == [["[b]gpt\u2407", "12,400", "0.5"], ["é", "7", "–"]]
    assert body[0].index("[b]") == body[1].index("é") == head.index("system")
    assert {len(line) for line in (head, *body)} == {len(head)}  # the last column stands right
    assert body[0].index("400") + 3 == body[1].index("7") + 1 == head.index("parameters") + 10


def test_a_table_in_a_pipe_is_plain(capsys):
    print_table(ROWS, COLUMNS, "Title")
    assert capsys.readouterr().out == plain_table(ROWS, COLUMNS, "Title") + "\n"
    assert plain_table(ROWS, COLUMNS).splitlines()[0].split() == ["system", "parameters", "share", "of", "all"]


def test_json_holds_null_for_what_it_cannot_and_letters_as_they_are(capsys):
    print_json({"é": [1.5, math.inf, (math.nan, {"a": -math.inf})], "n": 3, "t": True})
    out = capsys.readouterr().out
    assert json.loads(out) == {"é": [1.5, None, [None, {"a": None}]], "n": 3, "t": True}
    assert '\n  "é": [\n    1.5,\n' in out
    assert finite("inf") == "inf"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), ("", "–"), (True, "True"), ("a\x07", "a\u2407"), (0, "0"), (12400, "12,400"), (math.inf, "∞"),
        (-math.inf, "–"), (math.nan, "–"), (10_000.0, "10,000"), (-10_000.4, "-10,000"), (9999.9, "9999.9"),
        (1000.0, "1000.0"), (999.9, "999.9"), (0.123456, "0.1235"), (-0.5, "-0.5"), ([1], "[1]"),
    ],
)  # fmt: skip
def test_a_cell_has_as_many_digits_as_its_size_needs(value, shown):
    assert text(value) == shown


def test_numbers_at_the_edges_of_their_formats():
    assert [significant(value) for value in (9999.4, 9999.5, -9999.5, 0.00012346)] == [
        "9999", "10,000", "-10,000", "0.0001235",
    ]  # fmt: skip
    assert [seconds(value) for value in (9.99, 9.995, 10.9)] == ["9.99", "10.0", "10.9"]


def test_a_column_of_numbers_is_told_from_one_of_words():
    def numeric(*values):
        return is_numeric([{"a": value} for value in values], "a")

    assert numeric(1, 2.5, None)
    assert numeric("3.41 – 3.58", "254 MiB", "−0.2 to 0.1", "5 %", 7)
    for words in ([True], [1, True], ["a"], [1, "a"], [None], [], [[1]], ["1", [1]]):
        assert not numeric(*words)


def test_what_is_missing_stays_empty_in_a_spreadsheet_and_is_a_dash_in_a_paper():
    assert csv_text(ROWS, ["name", "share"]) == "name,share\n[b]gpt\x07,0.5\né,\n"
    body = [line.strip() for line in latex_text(ROWS, COLUMNS, "A ~ B").splitlines()]
    assert r"é & 7 & -- \\" in body
    assert r"\caption{A \textasciitilde{} B}" in body
    assert r"\begin{tabular}{lrr}" in body


def test_a_screen_says_how_much_was_written_and_is_otherwise_its_stream():
    stream = Terminal()
    assert Screen(stream).write("\x1b[1mab\x1b[0m\x07") == 11
    assert stream.getvalue() == "\x1b[1mab\x1b[0m\u2407"
    assert Screen(stream).isatty()
    assert harmless("\x00\x1f \x7f") == "\u2400\u241f \ufffd"
