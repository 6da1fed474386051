"""What an exercise asks, and what each usual mistake would answer, are the same for a seed in every version.

They are compared with tests/golden/exercise_cases.json, as shapes and weighted sums; `python
tests/unit/learn/exercises/test_notices_exercises.py` writes it anew. tests/unit/learn/exercises/test_exercises.py
says by answers of its own what is right and which mistake is which.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from regard.learn.exercises.exercise_list import EXERCISES, find_exercise
from regard.learn.exercises.grading import RandomInputs, copied, differs
from regard.learn.exercises.grading_process import grader_of

GOLDEN = Path(__file__).parents[3] / "golden" / "exercise_cases.json"
NAMES = [exercise.name for exercise in EXERCISES]


def plain(value):
    """The shape and a weighted sum of a tensor; numbers and words as they are."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().double().flatten()
        flat = flat.where(flat.isfinite(), -7.0)
        return [list(value.shape), float(f"{float(flat @ torch.arange(1, len(flat) + 1).double().sqrt()):.9g}")]
    if isinstance(value, dict):
        return [plain(pair) for pair in sorted(value.items())]
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value if isinstance(value, int | str | bool | type(None)) else type(value).__name__


def answered(function, arguments):
    try:
        return plain(function(*copied(arguments)))
    except Exception as error:  # a mistake may not be computable for every input
        return type(error).__name__


def asked(name):
    torch.manual_seed(0)
    grader = grader_of(find_exercise(name))
    cases = list(grader.cases(RandomInputs(1)))
    functions = {"answer": grader.answer, **{mistake.sentence: mistake.answer for mistake in grader.mistakes}}
    by_function = {said: [answered(function, case) for case in cases] for said, function in functions.items()}
    return {"own": grader.own, "laws": list(grader.laws), "cases": [plain(case) for case in cases], **by_function}


def assert_same(found, known):
    if isinstance(known, float):
        assert found == pytest.approx(known, rel=1e-6, abs=1e-9)
    elif isinstance(known, list):
        assert len(found) == len(known)
        for one, other in zip(found, known, strict=True):
            assert_same(one, other)
    else:
        assert found == known


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_asks_the_same_in_every_version(name):
    found, known = asked(name), json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    assert found.keys() == known.keys()
    for what in known:
        assert_same(found[what], known[what])


@pytest.mark.parametrize("name", NAMES)
def test_with_every_seed_a_mistake_gives_another_answer(name):
    grader = grader_of(find_exercise(name))
    for seed in range(3):
        cases = list(grader.cases(RandomInputs(seed)))
        for mistake in grader.mistakes:
            wrong = False
            for case in cases:
                try:
                    given = mistake.answer(*copied(case))
                except Exception:
                    wrong = True
                    continue
                wrong |= bool(differs(given, grader.answer(*copied(case)), grader.outputs, grader.tolerance))
            assert wrong, mistake.sentence


if __name__ == "__main__":
    lines = [f" {json.dumps(name)}: {json.dumps(asked(name), ensure_ascii=False)}" for name in NAMES]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
