"""Every exercise: its blank, its solution, its usual mistakes, and answers that only look right."""

import ast

import pytest

from answers import SOLUTIONS, WRONG, filled
from regard.exercises.exercise_list import EXERCISES, SHEETS, exercise_of, find_exercise
from regard.exercises.grading_process import grade_here

NAMES = [exercise.name for exercise in EXERCISES]


@pytest.fixture
def graded(tmp_path):
    """The verdict on a sheet whose blank is filled by these lines, or left as it is."""

    def call(name, body=None, seed=1):
        exercise = find_exercise(name)
        file = tmp_path / "mine.py"
        file.write_text(exercise.sheet if body is None else filled(exercise.sheet, body), encoding="utf-8")
        return grade_here(file, exercise_of(file), seed)

    return call


def test_each_exercise_has_a_sheet_a_solution_and_two_usual_mistakes():
    assert sorted(NAMES) == sorted(path.stem for path in SHEETS.glob("*.py"))
    assert sorted(NAMES) == sorted(SOLUTIONS) == sorted(WRONG)
    assert min(map(len, WRONG.values())) >= 2
    assert len(NAMES) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_a_sheet_names_itself_and_its_lecture_and_has_one_blank(name):
    exercise = find_exercise(name)
    document = ast.get_docstring(ast.parse(exercise.sheet))
    lecture, line = exercise.lecture.split(":")
    assert document.startswith(f"Exercise {name}: ")
    assert f"lecture {lecture}, line" in document
    assert line in document
    assert exercise.sheet.count("NotImplementedError") == 1
    assert f"def {exercise.function}(" in exercise.sheet


@pytest.mark.parametrize("name", NAMES)
def test_the_blank_is_said_to_be_empty(name, graded):
    verdict = graded(name)
    assert not verdict.right
    assert verdict.sentence.startswith("the blank is still empty: ")
    assert "of mine.py" in verdict.sentence


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right_on_any_inputs(name, graded):
    for seed in (1, 2, 3):
        verdict = graded(name, SOLUTIONS[name], seed)
        assert verdict.right, verdict.sentence


@pytest.mark.parametrize("name, body, words", [(name, *case) for name in NAMES for case in WRONG[name]])
def test_a_usual_mistake_is_named(name, body, words, graded):
    for seed in (1, 2):
        verdict = graded(name, body, seed)
        assert not verdict.right
        assert words in verdict.sentence
