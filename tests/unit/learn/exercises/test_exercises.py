"""Every exercise: its blank, its solution, its usual mistakes, and answers that only look right."""

import ast
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from answers import SOLUTIONS, WRONG, filled

import regard
from regard.learn.exercises.answering import Answering, load_function
from regard.learn.exercises.exercise_list import EXERCISES, SHEETS, exercise_of, find_exercise
from regard.learn.exercises.grading import RandomInputs, grade
from regard.learn.exercises.grading_process import AnswerEnded, grader_of, signature_of
from regard.learn.exercises.library_calls import ANSWERS, library_call
from regard.learn.exercises.remote_function import RemoteFunction
from regard.learn.exercises.wire import decoded, read_bytes, write_message
from regard.learn.lectures import find
from regard.learn.lectures.lecture_pages import CHAPTERS

SOURCE = Path(regard.__file__).parent

NAMES = [exercise.name for exercise in EXERCISES]


@pytest.fixture
def graded(tmp_path):
    """The verdict on a sheet whose blank is filled by these lines, or left as it is."""

    def call(name, body=None, seed=1, over_the_wire=False):
        exercise = find_exercise(name)
        file = tmp_path / "mine.py"
        file.write_text(exercise.sheet if body is None else filled(exercise.sheet, body), encoding="utf-8")
        function = load_function(file, exercise_of(file))
        if over_the_wire:
            function = RemoteFunction(Wire(function), signature_of(exercise))
        return grade(function, grader_of(exercise), seed)

    return call


class Wire:
    """The messages of a real answering, which runs in a thread."""

    def __init__(self, function):
        (here, there), (back, forth) = os.pipe(), os.pipe()
        self.reads, self.writes = os.fdopen(here, "rb"), os.fdopen(forth, "wb")
        answering = Answering(os.fdopen(back, "rb"), os.fdopen(there, "wb"))
        threading.Thread(target=answering.serve, args=(function,), daemon=True).start()

    def say(self, message, other):
        write_message(self.writes, message, other)

    def hear(self, other):
        return decoded(read_bytes(self.reads), other)


def test_each_exercise_has_a_sheet_a_solution_and_two_usual_mistakes():
    assert sorted(NAMES) == sorted(path.stem for path in SHEETS.glob("*.py"))
    assert sorted(NAMES) == sorted(SOLUTIONS) == sorted(WRONG)
    assert min(map(len, WRONG.values())) >= 2
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_a_sheet_names_itself_and_its_lecture_and_has_one_blank(name):
    exercise = find_exercise(name)
    document = ast.get_docstring(ast.parse(exercise.sheet))
    chapter = CHAPTERS.index(find(exercise.lecture).page.name) + 1
    assert document.startswith(f"Exercise {name}: ")
    assert f"(chapter {chapter} of the course)" in document
    assert exercise.sheet.count("NotImplementedError") == 1
    assert f"def {exercise.function}(" in exercise.sheet


@pytest.mark.parametrize("name", NAMES)
def test_the_blank_is_said_to_be_empty(name, graded):
    verdict = graded(name)
    assert not verdict.right
    assert verdict.sentence.startswith("the blank is still empty: ")
    assert "of mine.py" in verdict.sentence


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right_and_obeys_the_laws(name, graded):
    verdict = graded(name, SOLUTIONS[name])
    assert verdict.right, verdict.sentence
    assert "Regard's own is " in verdict.sentence


@pytest.mark.parametrize("name", NAMES)
def test_it_is_right_on_any_inputs_and_every_known_mistake_is_named_on_any(name):
    grader = replace(grader_of(find_exercise(name)), model=None)  # laws do not depend on the seed
    for seed in (11, 12):
        assert grade(grader.answer, grader, seed).right
        for mistake in grader.mistakes:
            assert grade(mistake.answer, grader, seed).sentence.startswith(mistake.sentence)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_and_a_list_of_answers_are_not_enough(name):
    grader = replace(grader_of(find_exercise(name)), model=None)
    answers = [grader.answer(*arguments) for arguments in grader.cases(RandomInputs(1))]
    looked_up = iter(answers * 3)
    assert not grade(lambda *arguments: answers[0], grader, 1).right
    assert not grade(lambda *arguments: next(looked_up), grader, 2).right


@pytest.mark.parametrize("name", NAMES)
def test_where_regard_has_it_is_true(name):
    for place in grader_of(find_exercise(name)).own.split(", "):
        file, found, definition = place.partition(": ")
        if found:
            text = (SOURCE / file).read_text(encoding="utf-8")
            assert f" {definition.partition('.')[0]}" in text


@pytest.mark.parametrize("name, body, words", [(name, *case) for name in NAMES for case in WRONG[name]])
def test_a_usual_mistake_is_named(name, body, words, graded):
    verdict = graded(name, body)
    assert not verdict.right
    assert words in verdict.sentence


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_on_an_answer_in_another_process_is_the_same(name, graded):
    for body in (None, SOLUTIONS[name], *(body for body, _ in WRONG[name])):
        assert graded(name, body, over_the_wire=True) == graded(name, body)


@pytest.mark.parametrize(
    "message",
    [["answer"], ["verdict", True, "right"], ["ask", 0, []], ["ask", "0", ()], ["pulled", 1], ["crash", 1, 2, 3]],
)
def test_a_message_that_is_none_is_no_answer(message):
    class Odd:
        def say(self, message, other): ...

        def hear(self, other):
            return message

    with pytest.raises(AnswerEnded):
        RemoteFunction(Odd(), signature_of(find_exercise("rnn-step")))(1)


@pytest.mark.parametrize("name", NAMES)
def test_neither_sheet_nor_solution_is_taken_for_a_library_call(name, tmp_path):
    exercise, file = find_exercise(name), tmp_path / "mine.py"
    file.write_text(filled(exercise.sheet, SOLUTIONS[name]), encoding="utf-8")
    assert library_call(file, exercise) == ""


LIBRARY = {
    "rnn-step": "return torch.rnn_tanh_cell(x, hidden, W, U, b)",
    "lstm-gates": "return torch.nn.LSTMCell(2, 3)(x, (hidden, cell))",
    "gru-gates": "from torch import gru_cell as g\nreturn g(x, hidden, W, U, b)",
    "gradient-clipping": "torch.nn.utils.clip_grad_norm_(gradients, most)",
    "causal-mask": "return torch.nn.Transformer.generate_square_subsequent_mask(length) == 0",
    "scaled-dot-product": "return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)",
    "multi-head": "return torch.nn.MultiheadAttention(4, heads)(query, key, value)[0]",
    "cached-attention": "return torch.nn.functional.scaled_dot_product_attention(query, keys, values), keys, values",
    "layer-norm": "return torch.nn.functional.layer_norm(x, gain.shape, gain, bias, epsilon)",
    "label-smoothing": "return torch.nn.functional.cross_entropy(logits, targets, None, None, -1, None, 'none', share)",
}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_library_call_that_is_the_answer_is_not_one(name, tmp_path):
    assert LIBRARY.keys() == ANSWERS.keys()
    exercise, file = find_exercise(name), tmp_path / "mine.py"
    file.write_text(filled(exercise.sheet, LIBRARY[name]), encoding="utf-8")
    assert library_call(file, exercise).endswith(", which is the answer: write it yourself")
    file.write_text(f"import regard.layers\n{filled(exercise.sheet, SOLUTIONS[name])}", encoding="utf-8")
    assert library_call(file, exercise).endswith(" imports regard.layers, which contains the answer: write it yourself")


def test_a_library_call_through_a_star_import_is_not_an_answer(tmp_path):
    exercise, file = find_exercise("scaled-dot-product"), tmp_path / "mine.py"
    answer = filled(exercise.sheet, "return scaled_dot_product_attention(query, key, value, mask)")
    file.write_text(answer.replace("import torch\n", "from torch.nn.functional import *\n", 1), encoding="utf-8")
    assert "uses scaled_dot_product_attention, which is the answer" in library_call(file, exercise)
    own = "\n\ndef scaled_dot_product_attention(query, key, value, mask):\n    return value\n"
    file.write_text(file.read_text(encoding="utf-8") + own, encoding="utf-8")
    assert library_call(file, exercise) == ""


def test_a_function_of_ones_own_may_have_the_librarys_name(tmp_path):
    exercise, file = find_exercise("scaled-dot-product"), tmp_path / "mine.py"
    body = "return scaled_dot_product_attention(query, key, value, mask)"
    own = "\n\ndef scaled_dot_product_attention(query, key, value, mask):\n    return value\n"
    file.write_text(filled(exercise.sheet, body) + own, encoding="utf-8")
    assert library_call(file, exercise) == ""


def test_what_is_right_only_once_is_wrong(graded):
    counting = "global asked\nasked = globals().get('asked', 0) + 1\n"
    verdict = graded("causal-mask", counting + "return torch.ones(length, length, dtype=torch.bool).tril(asked // 5)")
    assert verdict.sentence.startswith("the same call gives a different answer the second time")


def test_a_crash_at_the_second_call_or_with_gradients_is_told_with_its_line(graded):
    counting = "global asked\nasked = globals().get('asked', 0) + 1\nassert asked < 5\n"
    verdict = graded("causal-mask", counting + SOLUTIONS["causal-mask"])
    assert verdict.sentence.startswith("called a second time, it stops with AssertionError")
    assert "on line 23 of mine.py" in verdict.sentence
    verdict = graded("rnn-step", "assert not x.requires_grad\n" + SOLUTIONS["rnn-step"])
    assert "computing its gradient fails: it stops with AssertionError" in verdict.sentence


def test_a_wrong_gradient_is_told_with_its_place(graded):
    verdict = graded("rnn-step", "return torch.tanh(x @ W.T + hidden @ U.T + b + (x - x.detach()).sum())")
    assert "its values are right, but the gradient of x at [0, 0] is" in verdict.sentence


def test_a_crash_is_told_with_its_line(graded):
    verdict = graded("causal-mask", "return torch.ones(length, length).nonsense()")
    assert verdict.sentence.startswith("it stops with AttributeError")
    assert "on line 21 of mine.py (return torch.ones(length, length).nonsense())" in verdict.sentence


def test_nothing_and_the_wrong_kind_and_not_a_number_are_told(graded):
    assert "is the return missing?" in graded("causal-mask", "torch.ones(length)").sentence
    assert "a tensor, not a list of 3" in graded("causal-mask", "return [[True] * length] * length").sentence
    blind = "return torch.softmax(query @ key.transpose(1, 2) - torch.inf, -1) @ value"
    assert "is NaN, but" in graded("scaled-dot-product", blind).sentence


def test_a_model_that_breaks_a_law_is_told(graded):
    leak = "return torch.ones(length, length, dtype=torch.bool).tril(int(length == 2))"  # the grader has none of 2
    assert graded("causal-mask", leak).sentence.startswith("in a model it breaks law 1, splitting a sequence")


def test_the_page_about_exercises_is_true(graded):
    """Its list is the list; each answer it shows gets the verdict it shows."""
    page = (Path(__file__).parents[4] / "docs" / "exercises.md").read_text(encoding="utf-8")
    titles = {each: re.sub(r"<\w+>", r"`\g<0>`", each.title) for each in EXERCISES}  # no HTML
    chapters = {each: find(each.lecture).page.name for each in EXERCISES}
    rows = [
        f"| `{each.name}` | {titles[each]} | [{chapters[each]}](learn/{chapters[each]}.md) | {'★' * each.level} |"
        for each in EXERCISES
    ]
    assert "\n".join(rows) in page
    shown = re.findall(r"^[✗✓] (\S+): (.*)\.$", page, flags=re.M)
    bodies = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    assert len(shown) == 3
    for (name, sentence), body in zip(shown, [None, *bodies], strict=True):
        assert sentence.endswith(graded(name, body).sentence)
