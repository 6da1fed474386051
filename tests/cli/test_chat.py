"""`regard chat`: through a pipe, and in a real pseudo-terminal, where Ctrl-C stops a text and not the program."""

import sys

import pytest

from regard.corpora.phrasebook import make_pairs
from regard.runs.load import load
from terminal import Terminal


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    from regard.runs.train import train

    folder = tmp_path_factory.mktemp("chat")
    pairs = [(pair.source, pair.target) for pair in make_pairs(200, seed=2, longest=6)]
    settings = {"training": {"steps": 20, "batch_tokens": 256, "threads": 1}, "model": {"width": 32}}
    train("seq2seq", data=pairs, run=folder / "enfr", size="tiny", settings=settings)
    return folder / "enfr"


terminals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")


def test_a_line_is_continued_as_generate_would(regard, trained):
    how = ["--max-tokens", "30", "--seed", "7", "--temperature", "0.8"]
    _, wanted, _ = regard("generate", trained["lstm"], "--prompt", "The cat", "--lines", "1", *how)
    code, out, _ = regard("chat", trained["lstm"], *how, stdin="The cat\n")
    assert (code, out) == (0, wanted)


def test_undo_and_retry_go_back(regard, trained):
    greedy = ["--max-tokens", "8", "--temperature", "0"]
    _, out, _ = regard("chat", trained["lstm"], *greedy, stdin="The\n/retry\n A\n/undo\n/text\n")
    first, again, more, back, whole = out.removesuffix("\n").split("\n")
    assert again == first
    assert more.startswith(f"{first} A")
    assert back == whole == first
    _, out, _ = regard("chat", trained["lstm"], "--max-tokens", "30", "--lines", "0", stdin="The\n/retry\n")
    first, again = out.split("The")[1:]
    assert first != again


def test_choices_are_the_models_own_probabilities(regard, trained):
    run = load(trained["gpt"], device="cpu")
    prediction, _ = run("The cat")
    found = [(one.text, one.drawn) for one in run.choices("The cat", top=5, writable=True)]
    allowed = sum(p for n, p in enumerate(prediction.probabilities) if n not in run.forbidden)
    wanted = [(token.replace("<eos>", "\n"), p / allowed) for token, p in prediction.top(8) if token != "<unk>"][:5]
    assert [piece for piece, _ in found] == [token for token, _ in wanted]
    assert [p for _, p in found] == pytest.approx([p for _, p in wanted], rel=1e-5)
    _, out, _ = regard("chat", trained["gpt"], "--prompt", "The cat", stdin="/next 5\n/take 2\n/text\n")
    lines = out.split("\n")
    assert [line.split("\t")[0] for line in lines[:5]] == list("12345")
    assert float(lines[1].split("\t")[1]) == pytest.approx(found[1][1], abs=1e-4)
    assert lines[-2].rstrip("\n") == ("The cat" + found[1][0]).rstrip("\n")


def test_after_a_long_text_the_context_is_read_from_its_end(trained):
    run = load(trained["gpt"], device="cpu")
    assert run.model.context is not None
    assert run.choices("x" * (2 * run.model.context), top=3, writable=True)


def test_words_are_set_apart_unless_asked_otherwise():
    from regard.cli.conversation import joined

    assert joined("The cat", "sat") == "The cat sat"
    assert joined("The cat ", "sat") == "The cat sat"
    assert joined("The cat", ", which") == "The cat, which"
    assert joined("The c", "\\at") == "The cat"
    assert joined("猫が", "好き") == "猫が好き"
    assert joined("", "The") == "The"
    assert joined("The\n", "") == "The\n"


def test_the_text_is_saved_in_a_new_file_only(regard, wrong, trained, tmp_path):
    story = tmp_path / "story.txt"
    words = f"/temperature 0\n/tokens 5\nThe cat\n/save {story}\n/text\n"
    _, out, _ = regard("chat", trained["lstm"], stdin=words)
    assert story.read_text() == out[len(out) // 2 :]
    assert "already exists" in wrong("chat", trained["lstm"], stdin=f"x\n/save {story}\n")
    assert story.read_text() == out[len(out) // 2 :]


def test_a_translator_answers_with_alternatives_which_can_be_chosen(regard, translator, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    code, out, _ = regard(
        "chat", translator, stdin=f"They are watching.\n/take 2\n/n-best 1\nShe sleeps.\n/save {pairs}\n"
    )
    assert code == 0
    _, wanted, _ = regard("translate", translator, "--n-best", "3", stdin="They are watching.\n")
    shown = [line.split("\t") for line in out.split("\n")]
    best = [line.split("\t") for line in wanted.removesuffix("\n").split("\n")]
    assert [(row[0], row[2]) for row in shown[:3]] == [(str(n), row[3]) for n, row in enumerate(best, start=1)]
    assert [float(row[1]) for row in shown[:3]] == [float(row[1]) for row in best]
    assert pairs.read_text().split("\n")[0] == f"They are watching.\t{best[1][3]}"
    assert len(pairs.read_text().strip("\n").split("\n")) == 2


def test_a_translator_can_draw_and_forget(regard, translator):
    words = "/temperature 1\n/n-best 2\nThey are watching.\n/retry\n/undo\n/text\n"
    code, out, errors = regard("chat", translator, stdin=words)
    assert code == 0
    assert [line.split("\t")[0] for line in out.strip("\n").split("\n")] == ["1", "2", "1", "2"]
    assert "removed: They are watching." in errors


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("/tempreature 3", "did you mean /temperature?"),
        ("/temperature hot", "takes a number"),
        ("/temperature -1", "must be at least 0"),
        ("/top-p 2", "must be above 0"),
        ("/tokens 0", "must be at least 1"),
        ("/undo", "nothing to undo"),
        ("/retry", "nothing to retry"),
        ("/take 99", "a number from 1 to"),
        ("/save", "Give a file name"),
        ("/save ~nouser/x", "Could not write"),
        ("/save a\0b", "Could not write"),
        (f"/save {'x' * 300}", "choose another name"),
        ("/undo it", "takes no argument"),
    ],
)
def test_a_wrong_line_in_a_pipe_is_one_sentence(wrong, trained, line, sentence):
    said = wrong("chat", trained["lstm"], stdin=f"{line}\n")
    assert sentence in said
    assert "Line 1: " in said


def test_options_that_mean_nothing_here_are_refused(wrong, trained, translator, tmp_path):
    assert "--beam does not apply" in wrong("chat", trained["lstm"], "--beam", "3")
    assert "--prompt does not apply" in wrong("chat", translator, "--prompt", "x")
    assert "--n-best must be" in wrong("chat", translator, "--n-best", "9", "--beam", "3")
    assert "There is no run" in wrong("chat", tmp_path / "nowhere")


@terminals
def test_ctrl_c_stops_the_text_and_not_the_program(trained):
    terminal = Terminal(
        sys.executable, "-m", "regard", "chat", trained["lstm"], "--lines", "0", "--max-tokens", "100000000"
    )
    terminal.expect(r"> ")
    terminal.type("The cat\n")
    terminal.expect(r"The cat\r\n.*The cat(.|\r\n){40}")  # what was typed, then what is written
    terminal.type("\x03")
    terminal.expect(r"stopped\r\n")
    terminal.expect(r"> ")
    terminal.type("/tokens 5\n")
    terminal.expect(r"> ")
    terminal.interrupt(r"To leave, type /quit")
    terminal.type("/temprature\n")
    terminal.expect(r"did you mean /temperature\?")
    terminal.expect(r"> ")
    terminal.type("/help\n")
    terminal.expect(r"/tokens N +write at most N tokens at a time \(now 5\)")
    terminal.expect(r"> ")
    terminal.type("/quit\n")
    assert terminal.end() == 0


@terminals
def test_a_terminal_remembers_lines_and_completes_commands(trained):
    pytest.importorskip("readline")
    terminal = Terminal(sys.executable, "-m", "regard", "chat", trained["lstm"], "--max-tokens", "5")
    terminal.expect(r"> ")
    terminal.type("/tempe\t 0\n")
    terminal.expect(r"> ")
    terminal.type("/he\t\n")
    terminal.expect(r"the most probable token \(now 0\.0\)")
    terminal.expect(r"> ")
    terminal.type("A bird\n")
    terminal.expect(r"> ")
    terminal.type("\x10\n")  # Ctrl-P: the line before
    terminal.expect(r"A bird\r\n")
    terminal.expect(r"> ")
    terminal.type("\x04")
    assert terminal.end() == 0


@terminals
def test_a_terminal_gets_no_colours_of_a_text_and_a_name_that_cannot_be_does_not_end_the_chat(trained):
    words = ["chat", trained["lstm"], "--max-tokens", "5", "--prompt", "\x1b[31mred \u202eexe.txt"]
    terminal = Terminal(sys.executable, "-m", "regard", *words)
    terminal.expect(r"> ")
    terminal.type("/save ~nouser/x\n")
    terminal.expect(r"regard: Could not write '~nouser/x'")
    terminal.expect(r"> ")
    terminal.type("/text\n")
    terminal.expect("\u241b\\[31mred \ufffdexe.txt\r\n")
    assert "\x1b[31m" not in terminal.said
    terminal.type("/quit\n")
    assert terminal.end() == 0
