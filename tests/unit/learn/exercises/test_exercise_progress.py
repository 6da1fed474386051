"""Hints, Regard's own code, and what the lab keeps of an answer."""

import json

import pytest
from answers import SOLUTIONS, filled

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import EXERCISES, find_exercise
from regard.learn.exercises.own_code import own_code
from regard.learn.exercises.progress import answer_of, answer_path, check_answer, progress_of

pytestmark = pytest.mark.usefixtures("warm_processes")

NAMES = [exercise.name for exercise in EXERCISES]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def test_each_exercise_has_three_hints_of_its_own():
    hints = [hint for exercise in EXERCISES for hint in exercise.hints]
    assert len(set(hints)) == len(hints) == 3 * len(EXERCISES)
    assert all(hint.endswith(".") and len(hint.split()) > 4 for hint in hints)


@pytest.mark.parametrize("name", NAMES)
def test_no_hint_is_the_solution(name):
    solution = "".join(SOLUTIONS[name].split())
    assert not any(solution in "".join(hint.split()) for hint in find_exercise(name).hints)


@pytest.mark.parametrize("name", NAMES)
def test_regards_own_code_is_found_and_is_python(name):
    for part in own_code(find_exercise(name)):
        file, line = part["place"].split(":")
        assert int(line) > 1
        assert part["code"].lstrip().startswith(("def ", "class "))
        assert part["name"].split(".")[-1] in part["code"].splitlines()[0]
        assert file.endswith(".py")
    assert own_code(find_exercise(name))


def test_an_answer_is_graded_and_stays_solved():
    exercise = find_exercise("causal-mask")
    assert progress_of(exercise) == {"solved": False, "checks": 0, "right": False, "sentence": ""}
    right = filled(exercise.sheet, SOLUTIONS["causal-mask"])
    assert check_answer(exercise, right, seed=1)["right"]
    assert answer_of(exercise) == right
    again = check_answer(exercise, exercise.sheet, seed=1)
    assert "the blank is still empty" in again["sentence"]
    assert progress_of(exercise) == {"solved": True, "checks": 2, "right": False, "sentence": again["sentence"]}


def test_an_answer_of_another_exercise_or_no_python_is_one_sentence():
    exercise = find_exercise("causal-mask")
    with pytest.raises(RegardError, match=r'This code answers rnn-step: restore the line EXERCISE = "causal-mask"\.'):
        check_answer(exercise, find_exercise("rnn-step").sheet, seed=1)
    with pytest.raises(RegardError, match=r"Your answer is not valid Python.*on line 2"):
        check_answer(exercise, 'EXERCISE = "causal-mask"\ndef (', seed=1)
    assert progress_of(exercise)["checks"] == 0


@pytest.mark.parametrize("damage", ["", "[1]", "{", json.dumps({"solved": "yes", "checks": "many", "sentence": 3})])
def test_a_damaged_record_is_no_progress(damage):
    path = answer_path(find_exercise("rnn-step")).with_suffix(".json")
    path.parent.mkdir(parents=True)
    path.write_text(damage, encoding="utf-8")
    found = progress_of(find_exercise("rnn-step"))
    assert (found["solved"], found["checks"]) == (False, 0)
