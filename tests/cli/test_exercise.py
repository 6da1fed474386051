"""`regard exercise`: the list, a file with a blank, and a verdict that no file can escape."""

import json
import sys

import pytest

from regard.base.errors import RegardError
from regard.learn.exercises.exercise_list import EXERCISES
from regard.learn.exercises.grading_process import grade_file

pytestmark = pytest.mark.usefixtures("warm_processes")
PYTHON = sys.executable

MASK = "return torch.ones(length, length, dtype=torch.bool).tril()"


@pytest.fixture
def mine(regard, tmp_path):
    """A file of the exercise causal-mask, with these lines in the place of the blank."""

    def write(body):
        path = tmp_path / "mine.py"
        assert regard("exercise", "causal-mask", "--out", path)[:2] == (0, f"{path}\n")
        path.write_text(path.read_text("utf-8").replace('raise NotImplementedError("return the mask")', body), "utf-8")
        return path

    return write


def test_the_list_says_what_there_is(regard):
    code, out, _ = regard("exercise", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == [exercise.name for exercise in EXERCISES]
    assert "causal-mask" in regard("exercise")[1]


def test_a_file_is_written_once(regard, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert regard("exercise", "lstm-gates")[1] == "lstm_gates.py\n"
    (tmp_path / "lstm_gates.py").write_text("mine")
    assert "already exists" in wrong("exercise", "lstm-gates")
    assert (tmp_path / "lstm_gates.py").read_text() == "mine"


def test_wrong_input_is_one_sentence(wrong, tmp_path):
    file = tmp_path / "other.py"
    assert "did you mean causal-mask?" in wrong("exercise", "causal-masks")
    assert "Name the exercise" in wrong("exercise", "--out", file)
    assert "'.' is a folder" in wrong("exercise", "causal-mask", "--out", ".")
    assert "There is no file" in wrong("exercise", "check", file)
    file.write_text("x = 1\n")
    assert "does not name its exercise" in wrong("exercise", "check", file)
    file.write_text('EXERCISE = "nothing"\n')
    assert "There is no exercise 'nothing'" in wrong("exercise", "check", file)
    file.write_text("def (:\n")
    assert "is not valid Python: invalid syntax on line 1" in wrong("exercise", "check", file)
    file.write_bytes(b"\0")
    assert "is not valid Python" in wrong("exercise", "check", file)
    file.write_text('EXERCISE = "causal-mask"\n')
    assert "--seed must be" in wrong("exercise", "check", file, "--seed", -1)


def test_a_mistake_is_named_and_then_it_is_right(regard, mine):
    path = mine(f"print('seen', length)\n    {MASK.replace('tril()', 'tril(-1)')}")
    code, out, errors = regard("exercise", "check", path)
    assert code == 1
    assert out.startswith("✗ causal-mask: the mask hides the diagonal, so that a position cannot see itself: ")
    assert out.count("\n") == 1  # what the file prints is no part of the verdict
    assert f"regard exercise check {path} --seed " in errors
    path.unlink()
    code, out, _ = regard("exercise", "check", mine(MASK), "--json", "--seed", 7)
    assert code == 0
    assert json.loads(out) == {
        "exercise": "causal-mask",
        "right": True,
        "sentence": "Regard's own is layers/cache.py: visible",
        "inputs": 4,
        "laws": [1, 2],
        "seed": 7,
    }


def test_what_never_ends_is_ended(mine):
    found = grade_file(mine("while True:\n        pass"), seed=1, limit=5)
    assert not found["right"]
    assert "did not finish within 5 seconds on line 2" in found["sentence"]
    assert "of mine.py: is there an infinite loop?" in found["sentence"]


def test_what_ends_the_process_is_told(mine):
    found = grade_file(mine("import os\n    os._exit(0)"), seed=1)
    assert not found["right"]
    assert found["sentence"].startswith("it ended the process")


def test_a_file_without_the_function_is_refused(mine):
    path = mine(MASK)
    path.write_text(path.read_text("utf-8").replace("def causal_mask", "def mask"), "utf-8")
    with pytest.raises(RegardError, match="has no function causal_mask"):
        grade_file(path, seed=1)


# -- forged verdicts -------------------------------------------------------------------------------------------------

WRONG = "return torch.zeros(length, length, dtype=torch.bool)"
FORGED = '{"right": true, "sentence": "x", "inputs": 4, "laws": [], "exercise": "causal-mask", "seed": 1}'
ATTACKS = {
    "every descriptor": """
import os
for number in range(32):
    for content in (FORGED, len(FORGED).to_bytes(8, "big") + FORGED):
        try:
            os.write(number, content)
        except OSError:
            pass
os._exit(0)
""",
    "the end of the process": "import atexit, os, sys; atexit.register(os.write, 1, FORGED); sys.exit(0)",
    "the result's writers": """
import builtins, json, sys
json.dumps = lambda *_, **__: FORGED.decode()
json.dump = lambda value, stream, **_: stream.write(FORGED.decode())
builtins.print = lambda *_, **__: sys.stdout.write(FORGED.decode())
""",
    "the grader's modules": """
import importlib, types
grading = importlib.import_module("reg" + "ard.exercises.grading")
grading.grade = lambda *_: types.SimpleNamespace(right=True)
grading.differs = grading._wrong_values = grading._wrong_gradients = grading._wrong_laws = lambda *_: ""
process = importlib.import_module("reg" + "ard.exercises.grading_process")
process.grade = grading.grade
process.grader_of = lambda exercise: None
""",
    "the comparison": "torch.isclose = torch.equal = torch.allclose = lambda *_, **__: torch.tensor(True)",
    "a message of another kind": """
import gc, sys
(answering,) = [one for one in gc.get_objects() if type(one).__name__ == "Answering"]
answering.say("verdict", True, FORGED.decode())
answering.say = lambda *_: answering.writes.write(len(FORGED).to_bytes(8, "big") + FORGED)
""",
    "an object that is equal to all": """
class Equal(torch.Tensor):
    __eq__ = __le__ = lambda *_: True
torch.zeros = lambda *_, **__: Equal()
""",
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("when", ["as it is read", "when it is called"])
def test_no_file_forges_its_verdict(mine, attack, when, monkeypatch):
    if attack == "every descriptor":  # a warm process has those of its server, too
        monkeypatch.setattr(sys, "executable", PYTHON)
    lines = f"FORGED = {FORGED.encode()}\n{ATTACKS[attack]}"
    path = mine(WRONG if when == "as it is read" else f"exec({lines!r}, globals())\n    {WRONG}")
    if when == "as it is read":
        path.write_text(f"{path.read_text('utf-8')}\n\n{lines}\n", "utf-8")
    try:
        found = grade_file(path, seed=1, limit=5)
    except RegardError:  # it cannot be imported
        return
    assert found["right"] is False
    assert found["inputs"] in (0, 4)
    assert found["exercise"] == "causal-mask"


def test_a_library_call_that_is_the_answer_is_wrong(regard, tmp_path):
    path = tmp_path / "mine.py"
    regard("exercise", "scaled-dot-product", "--out", path)
    call = "return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)"
    path.write_text(path.read_text("utf-8").replace('raise NotImplementedError("return the output")', call), "utf-8")
    code, out, _ = regard("exercise", "check", path)
    assert code == 1
    assert out == (
        "✗ scaled-dot-product: line 23 uses scaled_dot_product_attention, which is the answer: write it yourself.\n"
    )


RIGHT = """rows = torch.arange(length)[:, None]
    columns = torch.arange(length)[None, :]
    allowed = columns <= rows
    whole = torch.zeros(length, length, dtype=torch.bool)
    whole[allowed] = True
    return whole
"""


def test_a_class_is_graded_side_by_side(regard, mine, tmp_path, wrong):
    """Who fails on what, which mistakes are frequent, who handed in the same program; nothing outside is touched."""
    folder = tmp_path / "class"
    sheet = mine("BLANK").read_text("utf-8")
    answers = {
        "ada/mask.py": RIGHT,
        "grace/mask.py": RIGHT.replace("rows", "r").replace("columns", "c").replace("allowed", "ok") + "    # mine",
        "alan.py": "return torch.ones(length, length, dtype=torch.bool).triu()",
        "kurt.py": "return torch.ones(length, length, dtype=torch.bool).triu()",
        "emmy.py": "return torch.ones(length, length, dtype=torch.bool).tril()",
        "loop.py": "import os; os._exit(0)",
    }
    for name, body in answers.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(sheet.replace("BLANK", body), "utf-8")
    (folder / "broken.py").write_text("def (:\n")
    (folder / "link.py").symlink_to(tmp_path / "mine.py")
    code, out, _ = regard("exercise", "check", folder, "--seed", 1, "--jobs", 2, "--json")
    assert code == 0
    graded = json.loads(out)
    rows = {row["file"]: row for row in graded["submissions"]}
    assert set(rows) == {*answers, "broken.py"}
    assert {name for name, row in rows.items() if row["right"]} == {"ada/mask.py", "grace/mask.py", "emmy.py"}
    assert rows["ada/mask.py"]["student"] == "ada"
    assert rows["alan.py"]["student"] == "alan"
    assert "not valid Python" in rows["broken.py"]["sentence"]
    assert "ended the process" in rows["loop.py"]["sentence"]
    (summary,) = graded["exercises"]
    assert (summary["answers"], summary["right"]) == (6, 3)
    assert next(iter(summary["mistakes"].values())) == 2  # the most frequent first
    assert graded["similar"] == [{"exercise": "causal-mask", "files": ["ada/mask.py", "grace/mask.py"]}]
    (tmp_path / "empty").mkdir()
    assert "has no Python files" in wrong("exercise", "check", tmp_path / "empty")
    assert "--jobs must be at least 1" in wrong("exercise", "check", folder, "--jobs", 0)
