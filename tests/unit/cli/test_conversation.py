"""The conversation of `chat`: what each command does to the text, and what the model is asked, by models that tell."""

import io
import signal
import sys
from types import SimpleNamespace

import pytest

from regard import Sampling
from regard.base.errors import RegardError
from regard.cli import chat as chat_verb
from regard.cli.chat import talk_with, typed_lines
from regard.cli.commands import run
from regard.cli.conversation import Translating, Writing, chosen, number_in
from regard.cli.dialogue import Conversation

RECIPE = SimpleNamespace(system="gpt")


class Author:
    """A language model that writes the number of its text in two pieces."""

    recipe, folder, model = RECIPE, "runs/x", SimpleNamespace(context=8)
    tokenizer = SimpleNamespace(encode=list, token=lambda token: token)

    def __init__(self, *pieces, during=lambda: None):
        self.asked, self.pieces, self.during, self.closed = [], pieces, during, 0

    def stream(self, text, **how):
        self.asked.append((text, how))
        try:
            for piece in self.pieces or (" one", f" {len(self.asked)}"):
                yield piece
                self.during()
        finally:
            self.closed += 1

    def choices(self, text, **how):
        self.asked.append((text, how))
        return [SimpleNamespace(token=f"t{n}", text=f" t{n}", drawn=1 / (n + 1)) for n in range(how["top"])]


def writing(*pieces, text="", **changes):
    author = Author(*pieces, **changes)
    return author, Writing(author, Sampling(0.5, 3, 0.9), 9, 2, 5, text)


def test_each_text_is_asked_for_with_the_settings_of_now_and_numbers_of_its_own(capsys):
    author, talk = writing()
    assert talk.greeting == "gpt, runs/x: type a line to continue, or an empty line for more text."
    for line in ("The cat", "/temperature 0.25", "/top-k 0", "/top-p 0.5", "/tokens 1", "/lines 0", ""):
        assert talk.answer(line)
    (first, how), (second, changed) = author.asked
    assert (first, second) == ("The cat", "The cat one 1")
    assert {key: how[key] for key in ("max_tokens", "lines", "seed")} == {"max_tokens": 9, "lines": 2, "seed": 5}
    assert {key: changed[key] for key in ("max_tokens", "lines", "seed")} == {"max_tokens": 1, "lines": 0, "seed": 6}
    assert (how["sampling"], changed["sampling"]) == (Sampling(0.5, 3, 0.9), Sampling(0.25, 0, 0.5))
    assert capsys.readouterr().out == "The cat one 1\nThe cat one 1 one 2\n"
    assert (talk.text, author.closed) == ("The cat one 1 one 2", 2)
    assert not talk.answer("/quit")


def test_only_the_last_line_is_shown_before_its_continuation(capsys):
    _, talk = writing(" more\n", text="first\nsecond")
    talk.answer("")
    assert capsys.readouterr().out == "second more\n"  # it ended its line itself
    talk.answer("/text")
    assert capsys.readouterr().out == "first\nsecond more\n\n"


def test_lines_can_be_taken_back_and_written_again(capsys):
    author, talk = writing()
    talk.answer("a")
    talk.answer("b")
    talk.answer("/retry")
    assert (author.asked[2][0], author.asked[2][1]["seed"]) == ("a one 1 b", 7)
    talk.answer("/undo")
    assert talk.text == "a one 1"
    talk.answer("/new")
    assert (talk.text, talk.shown) == ("", [])
    talk.answer("/undo")
    assert talk.text == "a one 1"
    talk.answer("/undo")
    assert talk.text == ""
    for command, said in (("/undo", "There is nothing to undo"), ("/retry", "There is nothing to retry: type a line")):
        with pytest.raises(RegardError, match=said):
            talk.answer(command)
    capsys.readouterr()
    for length, shown in ((70, "x" * 70), (71, f"…{'x' * 70}")):
        talk.text = "x" * length
        talk.begin_again()
        talk.answer("/undo")
        assert capsys.readouterr().out == f"{shown}\n"


def test_a_next_token_is_chosen_by_its_number(capsys):
    author, talk = writing(text="ab")
    talk.answer("/next 3")
    assert author.asked == [("ab", {"top": 3, "writable": True})]
    assert capsys.readouterr().out == "1\t1.0000\tt0\n2\t0.5000\tt1\n3\t0.3333\tt2\n"
    talk.answer("/take 3")
    assert (talk.text, talk.shown, capsys.readouterr().out) == ("ab t2", [], "ab t2\n")
    talk.answer("/take")  # the first of ten
    assert (talk.text, author.asked[-1]) == ("ab t2 t0", ("ab t2", {"top": 10, "writable": True}))
    talk.answer("/undo")
    assert talk.text == "ab t2"
    talk.answer("/next")
    assert len(talk.shown) == 10
    talk.answer("c")
    assert talk.shown == []  # they were those of another text
    for command, said in (
        ("/next 0", "/next must be at least 1"), ("/take 0", "a number from 1 to 10, not 0"),
        ("/take 11", "a number from 1 to 10, not 11"), ("/take x", "takes a whole number, as in"),
        ("/tokens 0", "/tokens must be at least 1"), ("/lines -1", "/lines must be at least 0"),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=said):
            talk.answer(command)
    assert [chosen(rest, 2) for rest in ("", "1", "2")] == [0, 0, 1]


def test_a_line_that_begins_with_a_slash_is_written_with_two():
    author, talk = writing()
    talk.answer("//quit")
    talk.answer("/text")
    assert author.asked[0][0] == "/quit"
    for line, said in (("/tx", "There is no command /tx: did you mean /text"), ("/text it", "/text takes no argument"),
                       ("/save", "Give a file name, as in /save story.txt")):  # fmt: skip
        with pytest.raises(RegardError, match=said):
            talk.answer(line)
    for kind, said in ((int, "/x takes a whole number, as in /x 1"), (float, "/x takes a number, as in /x 0.8")):
        with pytest.raises(RegardError, match=said):
            number_in("hot", "x", kind)


def test_the_list_of_commands_has_what_each_takes_and_is_now(capsys):
    _, talk = writing()
    talk.answer("/help")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"/{name}" for name in talk.commands]
    assert len({line.index(command.about) for line, command in zip(lines, talk.commands.values(), strict=True)}) == 1
    said = dict(zip(talk.commands, lines, strict=True))
    assert said["tokens"].endswith("write at most N tokens at a time (now 9)")
    assert said["top-k"].startswith("/top-k N ")
    assert said["lines"].endswith("(now 2)")
    assert said["undo"].endswith("its continuation")  # no setting


def test_a_context_that_is_full_is_said_once(capsys):
    author, talk = writing()
    talk.answer("a")
    for kept in (4, 3):
        author.asked[0][1]["on_reread"](kept)
    assert capsys.readouterr().err == "note: the context of 8 tokens is full; continuing from the last 4\n"


def test_ctrl_c_ends_what_is_being_written_and_at_the_prompt_it_is_an_exception(capsys):
    before = signal.getsignal(signal.SIGINT)
    author, talk = writing(" one", " two", during=lambda: signal.raise_signal(signal.SIGINT))
    with talk.stoppable():
        talk.answer("a")
        assert (talk.text, author.closed, talk.writing) == ("a one two", 1, False) or talk.text == "a one"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "stopped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    twice = lambda: [signal.raise_signal(signal.SIGINT) for _ in range(2)]  # noqa: E731
    author, talk = writing(" one", " two", during=twice)
    with pytest.raises(KeyboardInterrupt), talk.stoppable():
        talk.answer("a")
    assert (talk.text, talk.writing, author.closed) == ("a one", False, 1)  # what was written is kept


# -- a translator ----------------------------------------------------------------------------------------------------


class Translator:
    recipe, folder = SimpleNamespace(system="seq2seq"), "runs/t"

    def __init__(self):
        self.asked = []

    def translations(self, lines, **how):
        self.asked.append((lines, how))
        count = how["beam"].n_best if "beam" in how else how["samples"]
        return [[SimpleNamespace(text=f"{lines[0].upper()} {n}", score=-n / 2) for n in range(count)]]


def test_a_sentence_is_searched_for_or_drawn_and_the_one_that_is_taken_is_kept(capsys, tmp_path):
    model = Translator()
    talk = Translating(model, Sampling(0.0), seed=5)
    assert talk.greeting == "seq2seq, runs/t: type a sentence to translate."
    talk.choose_search(None, None, None)
    assert (talk.beam, talk.n_best, talk.length_penalty) == (5, 3, 1.0)
    talk.answer("a  b")
    beam = model.asked[0][1]["beam"]
    assert (beam.width, beam.length_penalty, beam.n_best, model.asked[0][0]) == (5, 1.0, 3, ["a  b"])
    assert capsys.readouterr().out == "1\t0.0000\tA  B 0\n2\t-0.5000\tA  B 1\n3\t-1.0000\tA  B 2\n"
    talk.answer("/take 3")
    talk.answer(" ")
    assert capsys.readouterr().out == "A  B 2\n\n"
    for line in ("/temperature 0.5", "/n-best 2", "c", "/retry"):
        talk.answer(line)
    assert [how["seed"] for _, how in model.asked[1:]] == [5, 6]  # drawn anew; searches draw nothing
    assert [(how["samples"], how["sampling"].temperature) for _, how in model.asked[1:]] == [(2, 0.5)] * 2
    capsys.readouterr()
    talk.answer("/text")
    assert capsys.readouterr().out == "a b\tA  B 2\nc\tC 0\n"
    talk.answer(f"/save {tmp_path / 'pairs.tsv'}")
    assert (tmp_path / "pairs.tsv").read_text() == "a b\tA  B 2\nc\tC 0\n"
    talk.answer("/undo")
    assert "removed: c\n" in capsys.readouterr().err
    talk.answer("/undo")
    for line, said in (("/undo", "nothing to undo"), ("/retry", "nothing to retry: type a sentence first"),
                       ("/take", "nothing to choose from: type a sentence first")):  # fmt: skip
        with pytest.raises(RegardError, match=said):
            talk.answer(line)


def test_beam_and_alternatives_follow_one_another():
    talk = Translating(Translator(), Sampling(0.0))
    for asked, found in (
        ((None, 9, None), (9, 9, 1.0)), ((2, None, 0.5), (2, 2, 0.5)), ((None, 1, None), (5, 1, 1.0)),
        ((8, None, 0.0), (8, 3, 0.0)),
    ):  # fmt: skip
        talk.choose_search(*asked)
        assert (talk.beam, talk.n_best, talk.length_penalty) == found
    for line, found in (("/n-best 9", (9, 9)), ("/beam 4", (4, 4)), ("/n-best 2", (4, 2)), ("/beam 1", (1, 1)),
                        ("/length-penalty 0.75", (1, 1))):  # fmt: skip
        talk.answer(line)
        assert (talk.beam, talk.n_best) == found
    assert talk.length_penalty == 0.75
    with pytest.raises(RegardError, match="must be at least 1, not 0"):
        talk.answer("/beam 0")
    with pytest.raises(RegardError, match="must be at least 1 and at most"):
        talk.choose_search(3, 4, None)


# -- a dialogue ------------------------------------------------------------------------------------------------------


class Partner:
    recipe, folder = RECIPE, "runs/d"

    def __init__(self, *pieces, during=lambda: None):
        self.pieces, self.during, self.closed = pieces, during, 0

    def reply(self, messages, **how):
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                self.during()
        finally:
            self.closed += 1


def test_a_dialogue_that_the_template_refuses_is_as_it_was(tmp_path):
    talk = Conversation(Partner(RegardError("no such role")), Sampling(), 9, 5)
    assert talk.greeting == "gpt, runs/d: type a message."
    with pytest.raises(RegardError, match="no such role"):
        talk.answer("hello")
    assert (talk.text, talk.writing, talk.run.closed) == ("", False, 1)
    for line, said in (("/undo", "There is nothing to undo"), ("/retry", "There is nothing to retry"),
                       ("/tokens 0", "/tokens must be at least 1")):  # fmt: skip
        with pytest.raises(RegardError, match=said):
            talk.answer(line)
    talk.answer("/system Be brief.")
    talk.answer(f"/save {tmp_path / 'talk.txt'}")
    assert (tmp_path / "talk.txt").read_text() == "system: Be brief.\n"
    talk.answer("/system")
    assert talk.messages == []


def test_an_answer_that_was_interrupted_is_kept_as_far_as_it_is_written(capsys):
    talk = Conversation(Partner(" one", " two ", during=lambda: None), Sampling(), 9, 5)
    talk.run.during = lambda: setattr(talk, "stopped", True)
    talk.answer("hello")
    assert talk.messages[-1] in ({"role": "assistant", "content": "one"}, {"role": "assistant", "content": "one two"})
    assert capsys.readouterr().err == "stopped\n"
    talk.answer("/undo")
    assert talk.messages == []


@pytest.mark.parametrize(
    ("template", "prompt", "kind"), [("x", "", Conversation), ("x", "Once", Writing), ("", "", Writing)]
)
def test_a_model_with_a_template_answers_unless_a_text_was_begun(monkeypatch, template, prompt, kind):
    talks = []
    loaded = SimpleNamespace(chat_template=template, recipe=RECIPE, folder="runs/x")
    monkeypatch.setattr("regard.runs.load.load", lambda *given, **how: loaded)
    monkeypatch.setattr(chat_verb, "talk_with", talks.append)
    run(["chat", "gallery/gpt", "--prompt", prompt, "--max-tokens", "5", "--lines", "2", "--seed", "3", "--top-k", "4"])
    (talk,) = talks
    assert type(talk) is kind
    assert (talk.max_tokens, talk.seed, talk.sampling) == (5, 3, Sampling(1.0, 4, 1.0))
    assert kind is Conversation or (talk.text, talk.lines) == (prompt, 2)


# -- a terminal and a pipe -------------------------------------------------------------------------------------------


def typed(monkeypatch, *lines, terminal=True):
    stream = io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", stream)


def test_a_mistake_at_a_terminal_is_said_and_in_a_pipe_ends_with_its_line(monkeypatch, capsys):
    monkeypatch.setattr(chat_verb, "typed_lines", lambda talk: iter(["/tokens 0", "a", "/quit", "b"]))
    author, talk = writing()
    typed(monkeypatch)
    talk_with(talk)
    said = capsys.readouterr().err
    assert said.startswith(f"{talk.greeting} Type /help for the commands, /quit or Ctrl-D to leave.\n")
    assert "regard: /tokens must be at least 1, not 0.\n" in said
    assert [text for text, _ in author.asked] == ["a"]
    author, talk = writing()
    typed(monkeypatch, "a", "/tokens 0", "b", terminal=False)
    with pytest.raises(RegardError, match=r"^Line 2: /tokens must be at least 1"):
        talk_with(talk)
    assert [text for text, _ in author.asked] == ["a"]


def test_without_a_terminal_for_the_output_the_prompt_is_on_the_log(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "readline", None)
    typed(monkeypatch, "one", "two")
    assert list(typed_lines(writing()[1])) == ["one", "two"]
    assert capsys.readouterr().err == "> > > "


def test_tab_completes_the_commands(monkeypatch):
    kept = {}
    library = SimpleNamespace(
        __doc__="GNU", set_completer=lambda each: kept.update(complete=each),
        set_completer_delims=lambda each: kept.update(delims=each), parse_and_bind=lambda each: kept.update(key=each),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "readline", library)
    typed(monkeypatch)
    for doc, key in (("GNU", "tab: complete"), ("libedit", "bind ^I rl_complete")):
        library.__doc__ = doc
        list(typed_lines(writing()[1]))
        assert (kept["key"], kept["delims"]) == (key, " ")
    assert [kept["complete"]("/to", n) for n in range(3)] == ["/top-k", "/top-p", "/tokens"]
    assert kept["complete"]("/to", 3) is None
