"""A class's submissions, the process that an answer runs in and what the grader makes of its end, and pages as text."""

import ast
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from answers import SOLUTIONS, filled

from regard.base.errors import RegardError
from regard.learn.exercises import answering, class_grading, grading_process
from regard.learn.exercises.answering import Answering
from regard.learn.exercises.class_grading import by_exercise, grade_class, similar, submissions
from regard.learn.exercises.exercise_list import find_exercise
from regard.learn.exercises.grading import ExpectedOutput, differs, grade
from regard.learn.exercises.grading_process import AnswerProcess, grader_of, signature_of
from regard.learn.exercises.remote_function import RemoteFunction
from regard.learn.exercises.wire import decoded, read_bytes, write_message
from regard.learn.lectures import code_anchor, lecture_pages
from regard.learn.lectures.code_anchor import Anchor, source_of
from regard.learn.lectures.lecture_pages import CHAPTERS, LECTURES, LineRange, find, get_lecture, terminal_words
from regard.learn.lectures.mathematics import as_text, as_tree

# -- a class ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name in ("grace.py", "ada/b.py", "ada/a.py", "ada/week/c.py", "ada/notes.txt", ".git/x.py", "__old/y.py"):
        (tmp_path / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "class" / name).write_text("")
    (tmp_path / "class" / "link.py").symlink_to(tmp_path / "class" / "grace.py")
    (tmp_path / "class" / "linked").symlink_to(tmp_path / "class" / "ada", target_is_directory=True)
    return tmp_path / "class"


def test_submissions_are_the_python_files_of_folders_that_are_neither_hidden_nor_links(folder, monkeypatch):
    assert [path.relative_to(folder).as_posix() for path in submissions(folder)] == [
        "grace.py", "ada/a.py", "ada/b.py", "ada/week/c.py"
    ]  # fmt: skip
    monkeypatch.setattr(class_grading, "MAX_SUBMISSIONS", 5)  # with the link
    assert len(submissions(folder)) == 4
    monkeypatch.setattr(class_grading, "MAX_SUBMISSIONS", 4)
    with pytest.raises(RegardError, match="has more than 4 Python files: grade it in parts"):
        submissions(folder)


def test_each_file_is_graded_with_the_seed_in_as_many_processes_as_asked_for(folder, monkeypatch, tmp_path):
    pools = []

    class Pool:
        def __init__(self, workers, mp_context):
            pools.append((workers, mp_context.get_start_method()))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

        map = staticmethod(map)

    def grade_file(path, seed):
        if path.name == "b.py":
            raise RegardError("It is not Python.")
        return {"exercise": f"of {path.stem}", "right": path.stem == "a", "sentence": f"seed {seed}", "laws": []}

    monkeypatch.setattr(class_grading, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(class_grading, "grade_file", grade_file)
    monkeypatch.setattr(class_grading.os, "cpu_count", lambda: 3)
    for jobs, workers in ((2, 2), (None, 3), (9, 4)):
        rows = list(grade_class(folder, 7, jobs))
        assert pools.pop() == (workers, "spawn")
    assert rows == [
        {"student": student, "file": file, "exercise": exercise, "right": right, "sentence": sentence}
        for student, file, exercise, right, sentence in (
            ("grace", "grace.py", "of grace", False, "seed 7"),
            ("ada", "ada/a.py", "of a", True, "seed 7"),
            ("ada", "ada/b.py", "", False, "It is not Python."),
            ("ada", "ada/week/c.py", "of c", False, "seed 7"),
        )
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RegardError, match="has no Python files"):
        next(grade_class(tmp_path / "empty", 7))


def test_a_summary_counts_answers_right_ones_and_mistakes_by_their_first_words():
    rows = [
        {"exercise": exercise, "right": right, "sentence": sentence}
        for exercise, right, sentence in (
            ("b", False, "too long: by 3"), ("a", True, "fine: yes"), ("b", False, "it crashes"), ("", False, "No: x"),
            ("b", False, "too long: by 9"), ("b", True, "fine"),
        )
    ]  # fmt: skip
    assert by_exercise(rows) == [
        {"exercise": "b", "answers": 4, "right": 1, "mistakes": {"too long": 2, "it crashes": 1}},
        {"exercise": "a", "answers": 1, "right": 1, "mistakes": {}},
    ]
    assert list(by_exercise(rows)[0]["mistakes"]) == ["too long", "it crashes"]


PROGRAM = """total = torch.zeros(length, length)
for row in range(length):
    for column in range(length):
        if column <= row:
            total[row, column] = total[row, column] + 1
return total > 0"""


def test_the_same_program_by_two_students_is_found_under_other_names_and_comments(tmp_path, monkeypatch):
    sheet = find_exercise("causal-mask").sheet
    renamed = PROGRAM.replace("total", "mask").replace("row", "i").replace("column", "j")
    bare = filled(sheet, renamed).replace(
        '    """A bool tensor [length, length]: entry (query, key) is True where the query may see the key."""\n', ""
    )
    assert '"""A bool' not in bare
    files = {
        "ada/one.py": filled(sheet, PROGRAM), "ada/two.py": filled(sheet, PROGRAM),
        "bob.py": "# mine\n" + bare.replace("return", "# done\n    return"),
        "cleo.py": filled(sheet, PROGRAM.replace("<=", "<")),  # another program
        "dan.py": filled(sheet, PROGRAM.replace("range(length)", "list(range(length))")),
        "eve.py": filled(sheet, SOLUTIONS["causal-mask"]), "fay.py": filled(sheet, SOLUTIONS["causal-mask"]),  # short
        "gus.py": filled(sheet, PROGRAM).replace("def causal_mask", "def other"),
        "hal.py": "EXERCISE = (", "ina.py": filled(sheet, PROGRAM),
    }  # fmt: skip
    rows = []
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        rows.append({"student": Path(name).parts[0].removesuffix(".py"), "file": name, "exercise": "causal-mask"})
    rows[-1]["exercise"] = ""  # it was not read
    found = [{"exercise": "causal-mask", "files": ["ada/one.py", "ada/two.py", "bob.py"]}]
    assert similar(tmp_path, rows) == found
    assert similar(tmp_path, rows[:2]) == []  # of one student
    assert similar(tmp_path, [*rows, {"student": "x", "file": "gone.py", "exercise": "causal-mask"}]) == found
    size = sum(1 for part in ast.parse(PROGRAM.replace("return ", "")).body for _ in ast.walk(part))
    for least, many in ((size, [len(group["files"]) for group in found]), (size + 1, [])):
        monkeypatch.setattr(class_grading, "MIN_NODES", least)  # `return` is a node as the expression statement is one
        assert [len(group["files"]) for group in similar(tmp_path, rows)] == many


# -- the process of an answer ----------------------------------------------------------------------------------------


class Process:
    """What `answering.main` does to its process, noted; and the grader's ends of its pipes."""

    def __init__(self, monkeypatch):
        (self.here, there), (back, self.forth) = os.pipe(), os.pipe()
        self.done, ends = [], {0: back, 1: there}
        monkeypatch.setattr(answering, "os", SimpleNamespace(
            dup=ends.__getitem__, fdopen=os.fdopen, O_RDONLY="read", devnull="nowhere",
            open=lambda *given: self.note("open", *given) or 77, dup2=lambda *given: self.note("dup2", *given),
        ))  # fmt: skip
        monkeypatch.setattr(answering, "faulthandler", SimpleNamespace(
            enable=lambda stream: self.note("enable", stream.name),
            dump_traceback_later=lambda limit, exit, file: self.note("later", limit, exit, file.name),
        ))  # fmt: skip

    def note(self, *what):
        self.done.append(what)

    def run(self, path, faults, *messages):
        with os.fdopen(self.forth, "wb") as stream:
            for message in messages:
                write_message(stream, message, repr)
        answering.main(str(path), "9", str(faults))
        heard = []
        with os.fdopen(self.here, "rb") as stream:
            os.set_blocking(stream.fileno(), False)
            while True:
                try:
                    content = read_bytes(stream)
                except (BlockingIOError, TypeError):
                    return heard
                if content is None:
                    return heard
                heard.append(decoded(content, str))


def test_a_process_is_ready_before_its_time_begins_and_the_files_own_output_is_kept_apart(monkeypatch, tmp_path):
    file, faults = tmp_path / "mine.py", tmp_path / "faults.txt"
    file.write_text(filled(find_exercise("causal-mask").sheet, SOLUTIONS["causal-mask"]), encoding="utf-8")
    process = Process(monkeypatch)
    heard = process.run(file, faults, ["call", (2,), False])
    assert [message[0] for message in heard] == ["ready", "loaded", "answer"]
    assert heard[-1][1].tolist() == [[True, False], [True, True]]
    assert process.done == [
        ("open", "nowhere", "read"), ("dup2", 77, 0), ("dup2", 2, 1),
        ("enable", str(faults)), ("later", 9, True, str(faults)),
    ]  # fmt: skip
    file.write_text("EXERCISE = 'causal-mask'\n", encoding="utf-8")
    heard = Process(monkeypatch).run(file, faults, ["call", (2,), False])
    assert [message[0] for message in heard] == ["ready", "refused"]
    assert "has no function causal_mask" in heard[1][1]


def test_a_value_that_depends_on_nothing_has_no_gradients():
    one = Answering(None, None)
    one.leaves, one.marks = [[torch.ones(2)] * 3], [[([torch.ones(2)], 2)]]
    assert one.pull(0, 0, [torch.ones(2)]) == [None, None]


@pytest.mark.parametrize(
    ("late", "said", "sentence"),
    [
        (False, "", "it ended the process: return an answer instead"),
        (False, 'Abort\n  File "{}", line 7 in f\n  File "{}", line 3', "it ended the process on line 7 of mine"),
        (False, 'Timeout!\n  File "{}", line 12 in f', "it did not finish within 20 seconds on line 12 of mine"),
        (True, "", "it did not finish within 20 seconds: is there an infinite loop?"),
        (True, 'Fatal\n  File "elsewhere.py", line 12', "it did not finish within 20 seconds: is there"),
    ],
)  # fmt: skip
def test_why_a_process_gave_no_answer_is_read_from_its_last_lines_after_it_was_ended(
    tmp_path, monkeypatch, late, said, sentence
):
    done = []
    answer = object.__new__(AnswerProcess)
    answer.path, answer.limit, answer.faults = tmp_path / "mine.py", 20, tmp_path / "faults.txt"
    answer.faults.write_text(said.replace("{}", str(answer.path)))
    answer.process = SimpleNamespace(pid=4, kill=lambda: done.append("kill"), wait=lambda: done.append("wait"))
    answer.deadline = 50.0 if late else 50.5
    monkeypatch.setattr(grading_process, "time", SimpleNamespace(monotonic=lambda: 50.0))
    monkeypatch.setattr(grading_process.os, "killpg", lambda *given: done.append(given))
    assert answer.unfinished().startswith(sentence)
    assert done == [(4, signal.SIGKILL), "kill", "wait"]
    answer.close()
    assert len(done) == 6
    assert not answer.faults.exists()
    answer.close()  # nothing is left to remove


class Script:
    """A process that says what it was told to say, and notes what it hears."""

    def __init__(self, *messages):
        self.messages, self.heard = list(messages), []

    def say(self, message, number):
        self.heard.append(message)
        if message[0] == "call":
            self.numbers = [number(one) for one in message[1] if callable(one)]

    def hear(self, other):
        return self.messages.pop(0)


def test_a_sublayer_that_is_asked_in_the_wrong_way_answers_with_its_error():
    def sublayer(x):
        return x + 1

    script = Script(["ask", 0, ()], ["ask", 0, (2,)], ["answer", 5, None])
    function = RemoteFunction(script, signature_of(find_exercise("residual-block")))
    assert function(1, sublayer) == 5
    assert script.numbers == [0]
    what, said = script.heard[1]
    assert (what, "missing 1 required positional argument" in said) == ("error", True)
    assert script.heard[2] == ["value", 3]
    assert type(function._object("Thing")).__name__ == "Thing"
    assert function._object(0) is sublayer


class Torn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("The first line.\nThe second.")


def test_a_gradient_that_cannot_be_computed_is_told_by_the_first_line_of_its_error():
    grader = grader_of(find_exercise("rnn-step"))
    found = grade(lambda x, hidden, W, U, b: Torn.apply(torch.tanh(x @ W.T + hidden @ U.T + b)), grader, 1)
    assert found.sentence == "its values are right, but its gradient cannot be computed (The first line)"


@pytest.mark.parametrize(
    ("given", "expected", "said"),
    [
        (None, torch.ones(2), "it returns nothing: is the return missing?"),
        ([None], [torch.ones(2)], "row 0 must be a tensor, not nothing"),
        ((1, 2), torch.ones(2), "it must be a tensor, not a tuple of 2"),
        ({}, torch.ones(2), "it must be a tensor, not dict"),
        (torch.ones(2), 1.5, "it must be a number, not a tensor of shape [2]"),
        (True, 1, "it must be a number, not bool"),
        ([1], [1, 2], "it has 1 entries, but 2 are expected"),
        (torch.tensor([1.0, float("nan")]), torch.ones(2), "NaN, but 1 is expected; something divides 0 by 0"),
        (torch.tensor([1.0, -torch.inf]), torch.ones(2), "−∞, but 1 is expected"),
        (torch.ones(2).int(), torch.ones(2), "it is of type int32, but float32 is expected"),
        (torch.tensor([True, False]), torch.tensor([True, True]), "at row 1 is False, but True is expected"),
        (torch.ones(2, 3), torch.ones(3, 2), "it has shape [2, 3], but [3, 2] (row, column) is expected"),
    ],
)
def test_the_form_of_a_wrong_answer_is_told(given, expected, said):
    assert said in differs(given, expected, [ExpectedOutput("it", ("row", "column"))], 1e-9)


# -- pages as text ---------------------------------------------------------------------------------------------------


def test_lines_of_the_notes_are_written_and_found_as_ranges():
    several, one = LineRange("003", 4, 9), LineRange("003", 4, 4)
    assert (str(several), str(one)) == ("003:4–9", "003:4")
    assert [("003", line) in several for line in (3, 4, 9, 10)] == [False, True, True, False]
    assert ("001", 5) not in several
    for lecture, lines in LECTURES.items():
        assert find(f"{lecture}:{lines}").place == f"{lecture}:{lines}"
        with pytest.raises(RegardError, match=f"has lines 1 to {lines}, but no line {lines + 1}"):
            find(f"{lecture}:{lines + 1}")
    for place in ("003:0", "005:1", "003", "3:1"):
        with pytest.raises(RegardError):
            find(place)


def test_a_chapter_has_a_number_from_1_to_the_last():
    for number, name in enumerate(CHAPTERS, start=1):
        assert get_lecture(str(number)) is get_lecture(f"0{number}") is get_lecture(name)
    for name in ("0", str(len(CHAPTERS) + 1), "001", "-1"):
        with pytest.raises(RegardError, match=f"has no chapter '{name}': choose 1 to {len(CHAPTERS)}"):
            get_lecture(name)


def test_a_page_for_a_terminal_has_verdicts_questions_and_no_targets_of_links(monkeypatch):
    known = {
        "one": SimpleNamespace(verdict="holds", decides="99 %", measured="0.5", control="1.0"),
        "two": SimpleNamespace(verdict="fails", decides="", measured="0.7", control="0.1"),
        "three": SimpleNamespace(verdict="", decides="99 %", measured="", control=""),
    }
    monkeypatch.setattr(lecture_pages, "documented_verdicts", lambda: known)
    page = (
        "## Title\n<!-- notes: 003:4 -->\n\nSee [the page](other.md) and $x_1$.\n\n$$\n\\frac{abc}{d}\n$$\n\n"
        "![A plot](plot.svg)\n\n"
        "<details><summary>Why?</summary>\n\nBecause.\n\n</details>\n\n- Claim: `one`, `two`, `three`\n"
    )
    assert terminal_words(page) == (
        "## Title\nSee the page and x_1.\n\n\n    (abc)/d\n\n\n[Figure: A plot]\n\n"
        "**Question.** Why?\n\n**Answer.** Because.\n\n"
        "- ✓ claim `one` holds: 99 %: 0.5. Control: 1.0.\n- ✗ claim `two` fails: 0.7. Control: 0.1.\n"
        "- – claim `three` has not been run yet.\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\frac{ab}{cd}", "ab/cd"),
        (r"\frac{abc}{2}", "(abc)/2"),
        (r"\frac{2}{abc}", "2/(abc)"),
        (r"x_1 + x_{10}", "x_1 + x_{10}"),
        (r"W^\top h^2", "W⊤ h^2"),
        (r"x_i^{10}", "x_i^{10}"),
        (r"\sqrt{ab}", "√(ab)"),
        (r"a \quad b", "a b"),
        (r"\begin{matrix} a & b \\ c & d \end{matrix}", "ab\n cd"),
    ],
)
def test_a_formula_is_text_with_brackets_where_they_are_needed(latex, text):
    assert as_text(latex) == text


def test_a_formula_is_a_tree_of_elements_with_their_text():
    kind, attributes, text, parts = as_tree("x_2")
    assert (kind, attributes["display"], text) == ("math", "inline", "")
    assert as_tree("x_2", block=True)[1]["display"] == "block"
    assert parts == [["mrow", {}, "", [["msub", {}, "", [["mi", {}, "x", []], ["mn", {}, "2", []]]]]]]


def test_the_lines_around_an_anchor_are_statements_of_its_function_without_blank_lines_at_the_end(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(code_anchor, "SOURCE", tmp_path)
    body = [f"    a{n} = {n}" for n in range(12)]
    lines = ["import x", "", "def f():", '    """Words."""', *body, "", "", "b = 1", "", "", "", "c = 2"]
    name = f"{tmp_path.name}.py"  # files are cached by their names
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    middle = Anchor(name, "a6 = 6")
    assert (middle.line, middle.place) == (11, f"{name}:11")
    assert middle.around() == [(n, lines[n - 1]) for n in range(7, 16)]  # four before and four after
    assert [n for n, _ in Anchor(name, "a1 = 1").around()] == list(range(5, 11))  # no docstring
    assert [n for n, _ in Anchor(name, "a10 = 10", "f").around()] == list(range(11, 17))
    assert [n for n, _ in Anchor(name, "b = 1").around()] == list(range(15, 24))
    assert [n for n, _ in Anchor(name, "import x").around()] == list(range(1, 6))
    assert source_of(name, "f") == (3, "\n".join(lines[2:16]))
