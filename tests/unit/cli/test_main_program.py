"""The program itself: how it begins, what it refuses before it reads a model, and how it ends."""

import io
import json
import os
import sys
from types import SimpleNamespace

import pytest

from regard import cli
from regard.base import arguments
from regard.base.errors import RegardError
from regard.cli import file_to_file, stdin
from regard.cli.commands import run
from regard.cli.file_to_file import ReadAhead, line_by_line
from regard.text.readers.subtitles import Subtitles


@pytest.fixture
def streams(monkeypatch):
    """Streams that may be exchanged."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.delenv("PYTHONSAFEPATH")


class Ended(Exception):
    pass


# -- its beginning and its end ---------------------------------------------------------------------------------------


def test_sentences_name_options_while_a_command_runs_and_parameters_afterwards(streams, monkeypatch):
    seen = []

    def note(words):
        seen.append((words, arguments.on_command_line, os.environ["PYTHONSAFEPATH"], cli._ROOM in sys.meta_path))
        raise Ended

    monkeypatch.setattr("regard.cli.commands.run", note)
    for _ in range(2):
        with pytest.raises(Ended):
            cli._run(["x"])
    assert seen == [(["x"], True, "1", True)] * 2
    assert sys.meta_path.count(cli._ROOM) == 1
    assert arguments.on_command_line is False


def test_of_several_processes_the_others_are_quiet_and_say_only_what_went_wrong(streams, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    shown = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", shown)

    def speak(words):
        print("data")
        print("log", file=sys.stderr)
        raise RegardError("It is wrong.")

    monkeypatch.setattr("regard.cli.commands.run", speak)
    monkeypatch.setattr(cli.signal, "signal", lambda *given: None)
    with pytest.raises(SystemExit) as end:
        cli.main(["x"])
    sys.stdout.close()
    assert (end.value.code, shown.getvalue(), capsys.readouterr()) == (2, "regard: It is wrong.\n", ("", ""))


def test_closed_streams_are_told_or_not_missed(streams, monkeypatch, capsys):
    monkeypatch.setattr("regard.cli.commands.run", lambda words: None)
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        with pytest.raises(SystemExit) as end:
            cli._run(["x"])
    assert (end.value.code, capsys.readouterr().err) == (2, f"regard: {cli.CLOSED}\n")
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stderr", None)
        cli._run(["x"])
        sys.stderr.close()


def test_a_result_that_could_not_be_written_leaves_nothing_that_would_fail_again(streams, monkeypatch, capfd):
    discarded = []

    raised = []

    def fail(words):
        raise raised[-1]

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setattr(cli, "_discard_output", lambda: discarded.append(1))
    monkeypatch.setattr(cli.signal, "signal", lambda *given: None)
    for error, code, often in (
        (OSError(28, "No space left"), 2, 1), (BrokenPipeError(), 141, 1), (RegardError("x"), 2, 0),
        (MemoryError(), 2, 0),
    ):  # fmt: skip
        raised.append(error)
        discarded.clear()
        with pytest.raises(SystemExit) as end:
            cli.main(["x"])
        assert (end.value.code, len(discarded)) == (code, often)
    assert cli.MEMORY in capfd.readouterr().err
    raised.append(KeyError("inside"))
    with pytest.raises(KeyError):
        cli.main(["x"])


def test_the_words_are_those_of_the_command_line_and_a_resident_process_is_asked_first(monkeypatch):
    asked = []
    monkeypatch.setattr(sys, "argv", ["regard", "score", "x"])
    monkeypatch.setattr("regard.cli.resident.answered_there", lambda words: asked.append(("there", words)))
    monkeypatch.setattr(cli, "_run", lambda words: asked.append(("here", words)))
    monkeypatch.setattr(cli.signal, "signal", lambda *given: asked.append(given))
    monkeypatch.setenv("REGARD_RESIDENT", "5")
    cli.main()
    interrupted = (cli.signal.SIGINT, cli._interrupted)
    assert asked == [interrupted, ("there", ["score", "x"]), ("here", ["score", "x"])]
    asked.clear()
    cli.main(["y"])  # a program's own call
    assert asked == [interrupted, ("here", ["y"])]
    monkeypatch.delenv("REGARD_RESIDENT")
    asked.clear()
    cli.main()
    assert asked == [interrupted, ("here", ["score", "x"])]


def test_ctrl_c_in_an_import_ends_the_process_at_once(monkeypatch, capfd):
    def leave(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", leave)
    outer = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"), f_back=None)
    inner = SimpleNamespace(f_code=SimpleNamespace(co_filename="torch.py"), f_back=outer)
    for frame in (outer, inner):
        with pytest.raises(Ended, match=r"^130$"):
            cli._interrupted(2, frame)
        assert capfd.readouterr().err == "regard: interrupted\n"
    inner.f_back = None
    for frame in (inner, None):
        with pytest.raises(KeyboardInterrupt):
            cli._interrupted(2, frame)


# -- what is refused before a model is read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("translate x --top-k 3", "--top-k, --top-p and --seed need sampling: add --temperature."),
        ("translate x --top-p 0.5", "need sampling: add --temperature."),
        ("translate x --seed 1", "need sampling"),
        ("translate x --temperature 0.5 --beam 2", "--temperature samples and --beam searches: give only one of them."),
        ("translate x --temperature 0.5 --length-penalty 1", "give only one of them."),
        ("translate x --attention", "--attention works only with --json: add --json."),
        ("translate x --in a", "--in and --out must be given together."),
        ("translate x --out a", "must be given together."),
        (
            "translate x --in a --out b --n-best 2",
            "--n-best prints several translations per line: with --out, add --json.",
        ),
        ("translate x --in a.srt --out b.srt --json", "Subtitles cannot be printed as JSON or with alignments"),
        ("translate x --in a.srt --out b.srt --alignment", "Subtitles cannot be printed as JSON or with alignments"),
        ("translate x --in a.srt --out b.vtt", "same subtitle format as a.srt: choose an --out that ends in .srt."),
        (
            "translate x --engine ctranslate2 --temperature 1",
            "--engine ctranslate2 only searches: leave --temperature out",
        ),
        ("translate x --engine ctranslate2 --device cuda", "--engine ctranslate2 runs on the CPU: leave --device out"),
        ("translate x --n-best 0", "--n-best must be at least 1, not 0."),
        ("generate x --max-tokens 0", "--max-tokens must be at least 1, not 0."),
        ("generate x --lines -1", "--lines must be at least 0, not -1."),
        ("generate x --beam -1", "--beam must be at least 0"),
        ("generate x --precision fp8", "--precision must be one of fp32, bf16, int8, not 'fp8'."),
        ("generate x --beam 2 --min-p 0.5", "--beam searches and does not sample: leave out penalties"),
        ("generate x --beam 2 --repetition-penalty 2", "--beam searches and does not sample"),
        ("generate x --in a", "--in and --out must be given together."),
        ("generate x --out a", "must be given together."),
        ("generate x --in a --out b --prompt c", "--in completes each line of a file: leave out --prompt, --lines and"),
        ("generate x --in a --out b --lines 2", "--in completes each line"),
        ("generate x --in a --out b --beam 2", "--in completes each line"),
        ("generate x --logit-bias 3", "--logit-bias takes TOKEN=X, as in 17=-100, not '3'."),
        ("generate x --logit-bias a=1", "--logit-bias takes TOKEN=X, as in 17=-100, not 'a=1'."),
        ("chat x --max-tokens 0", "--max-tokens must be at least 1"),
        ("chat x --lines -1", "--lines must be at least 0"),
        ("classify x --n-best 0", "--n-best must be at least 1"),
        ("inspect x y --top 0", "--top must be at least 1"),
        ("inspect x y --beam 0", "--beam must be at least 1"),
        ("inspect x y --work --gradients", "--gradients and --work cannot be shown together in the terminal"),
        ("inspect x y --layer 0 --json", "--layer and --head apply only to the terminal"),
        ("inspect x y --head 0 --html h.html", "--layer and --head apply only to the terminal"),
        ("inspect x y z", 'Put the text in quotes: "y z".'),
        ("inspect x y --lens --work", "Questions about causes cannot be combined with --work or --gradients"),
        ("inspect lecture:any-b --step 1", "lecture:any-b is always shown in full: leave --step out."),
        ("serve", "Name at least one run, as in `regard serve runs/mine`."),
        ("serve x --queue 0", "--queue must be at least 1"),
        ("train lstm --tune 2", "--tune needs --run, a name for the run and its trials, and a system"),
        ("train lstm --tune -1 --run x", "--tune must be at least 1"),
        ("runs remove", "Name the runs to remove: regard runs remove runs/old."),
        ("lab none", "There is no folder none: create it, or name the folder of your runs."),
        ("lab --read-only", "There is no folder runs"),
        ("exercise --out mine.py", "as in `regard exercise causal-mask --out mine.py`."),
        ("evaluate gallery/transformer --texts", "--texts works only with --json: add --json."),
        ("evaluate gallery/gpt --beam 2", "is a language model (gpt): --beam does not apply here."),
        ("evaluate gallery/ngram --rows 2147483648", "--rows must be at most 2147483647"),
    ],
)
def test_what_cannot_be_is_one_sentence(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arguments, "on_command_line", True)
    for loader in ("load", "load_translator", "load_language_model", "load_classifier"):
        if "gallery" not in words:
            monkeypatch.setattr(f"regard.runs.load.{loader}", None)
    with pytest.raises(RegardError) as error:
        run(words.split())
    assert said in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_schema_is_read_up_to_its_limit_as_utf8(tmp_path):
    from regard.cli.generate import _bias, _read_schema
    from regard.decoding.constraints import MAX_CHARACTERS

    most = 4 * MAX_CHARACTERS["json_schema"]  # a character has at most four bytes
    path = tmp_path / "schema.json"
    path.write_bytes(b" " * most)
    assert len(_read_schema(path)) == most
    path.write_bytes(b" " * (most + 1))
    with pytest.raises(RegardError, match="larger than"):
        _read_schema(path)
    path.write_bytes(b"\xff")
    with pytest.raises(RegardError, match="is not UTF-8: save it as UTF-8"):
        _read_schema(path)
    assert _bias("17=-100") == (17, -100.0)


# -- lines -----------------------------------------------------------------------------------------------------------


def test_lines_that_were_read_ahead_are_given_back_in_their_order():
    lines = ReadAhead(iter("abcd"))
    reading = iter(lines)
    assert [next(reading), next(reading), lines.take(), next(reading), lines.take(), lines.take()] == [*"abacbc"]


def test_a_file_is_answered_from_where_it_was_left(tmp_path, monkeypatch, capsys):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes("\ufeffone\r\n\r\nthree\nfour\n".encode())
    asked = []

    def answer(lines, before):
        asked.append(before)
        for line in lines:
            if line == "four" and len(asked) == 1:
                raise Ended
            yield line.upper()

    with pytest.raises(Ended):
        line_by_line(source, out, {"a": 1}, answer)
    part, note = tmp_path / "out.txt.part", tmp_path / "out.txt.part.json"
    assert part.read_bytes() == b"ONE\n\nTHREE\n"
    assert json.loads(note.read_text())["a"] == 1
    part.write_bytes(b"ONE\n\nTHREE\nFO")  # a kill cut the last line short
    with pytest.raises(RegardError, match=r"out\.txt\.part belongs to a job with a different run, input or options"):
        line_by_line(source, out, {"a": 2}, answer)
    capsys.readouterr()
    line_by_line(source, out, {"a": 1}, answer)
    assert asked == [(0, 0), (3, 2)]  # lines before, and how many of them had words
    assert capsys.readouterr().err == f"{part}: continuing after 3 lines\n"
    assert (out.read_bytes(), sorted(path.name for path in tmp_path.iterdir())) == (
        b"ONE\n\nTHREE\nFOUR\n", ["in.txt", "out.txt"],
    )  # fmt: skip
    with pytest.raises(RegardError, match=r"out\.txt already exists: move it away, or choose another --out"):
        line_by_line(source, out, {"a": 1}, answer)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RegardError, match="is a pipe or a device, but --in takes a file: leave --in out to read stdin"):
        line_by_line(tmp_path / "pipe", tmp_path / "x", {}, answer)
    with pytest.raises(RegardError, match="There is no file"):
        line_by_line(tmp_path / "none", tmp_path / "x", {}, answer)
    assert not (tmp_path / "x.part.json").exists()


def test_what_was_answered_is_on_the_disk_about_every_second(tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(6)))
    now, seen = [0.0], []
    monkeypatch.setattr(file_to_file.time, "monotonic", lambda: now[0])

    def answer(lines, before):
        for number, line in enumerate(lines):
            seen.append((tmp_path / "out.txt.part").stat().st_size)
            now[0] += (0.5, 0.5, 0.001, 0.9, 0.1, 0.1)[number]
            yield line

    line_by_line(tmp_path / "in.txt", tmp_path / "out.txt", {}, answer)
    assert seen == [0, 0, 0, 6, 6, 6]  # after more than a second


def test_the_output_of_another_program_stays_and_the_answers_too(tmp_path):
    (tmp_path / "in.txt").write_text("a\n")

    def answer(lines, before):
        for line in lines:
            (tmp_path / "out.txt").write_text("theirs")
            yield line

    with pytest.raises(RegardError, match=r"Another program created .*out\.txt in the meantime: move it away and run"):
        line_by_line(tmp_path / "in.txt", tmp_path / "out.txt", {}, answer)
    assert (tmp_path / "out.txt").read_text() == "theirs"
    assert (tmp_path / "out.txt.part").read_text() == "a\n"


@pytest.mark.parametrize(("end", "mark"), [("\n", ""), ("\r\n", "\ufeff")])
def test_subtitles_keep_their_line_ends_and_their_byte_order_mark(tmp_path, end, mark):
    cues = ["1", "00:00:01,000 --> 00:00:02,000", "Hello", "", "2", "00:00:03,000 --> 00:00:04,000", "Bye", ""]
    source, out = tmp_path / "in.srt", tmp_path / "out.srt"
    source.write_bytes((mark + "".join(line + end for line in cues)).encode())
    line_by_line(source, out, {}, lambda lines, before: (line.upper() for line in lines), Subtitles(".srt", "in.srt"))
    wanted = [line.upper() if line in ("Hello", "Bye") else line for line in cues]
    assert out.read_bytes() == (mark + "".join(line + end for line in wanted)).encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.srt", "out.srt"]


def test_lines_that_wait_are_full_also_when_they_are_many_bytes(monkeypatch):
    monkeypatch.setattr(stdin, "BYTES_AT_ONCE", 10)
    waiting = stdin._Arrivals(3)
    for line in (b"12345", b"12345"):
        waiting.put_nowait(line)
    assert not waiting.full()
    waiting.put_nowait(None)
    assert waiting.full()  # three of them
    assert [waiting.get_nowait(), waiting.bytes, waiting.full()] == [b"12345", 5, False]
    waiting.put_nowait(b"123456")
    assert waiting.full()  # eleven bytes
    assert list(stdin._waiting(waiting)) == [b"12345", None, b"123456"]
    assert (waiting.bytes, list(stdin._waiting(waiting))) == (0, [])


def test_a_pipe_is_read_as_it_comes_and_its_error_comes_last(monkeypatch):
    def piped(*pieces):
        ours, theirs = os.pipe()
        for piece in pieces:
            os.write(theirs, piece)
        os.close(theirs)
        return SimpleNamespace(buffer=open(ours, "rb"))

    monkeypatch.setattr(sys, "stdin", piped(b"a\nb\n", b"c"))
    assert [line for lines in stdin.stdin_batches() for line in lines] == ["a", "b", "c"]
    sys.stdin.buffer.close()
    monkeypatch.setattr("regard.text.readers.lines.MAX_LINE_BYTES", 4)
    monkeypatch.setattr(sys, "stdin", piped(b"a\n", b"1234567890\n"))
    found = []
    with pytest.raises(RegardError, match="line"):
        found.extend(line for lines in stdin.stdin_batches() for line in lines)
    assert found == ["a"]
    sys.stdin.buffer.close()
    monkeypatch.setattr(sys, "stdin", None)
    for read in (stdin.stdin_batches, stdin.stdin_lines):
        with pytest.raises(RegardError, match="There is no input: stdin is closed"):
            next(read())
