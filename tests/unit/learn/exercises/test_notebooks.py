"""The notebooks: one per chapter, every cell runs, outputs are stored, each question has a folded answer."""

import json
import re
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

sys.path.insert(0, str(Path(__file__).parents[4] / "tools"))

from answers import SOLUTIONS, filled

import notebooks
from regard.learn import load_ipython_extension
from regard.learn.exercises.exercise_list import BY_NAME, find_exercise, write_sheet
from regard.learn.lectures.lecture_pages import CHAPTERS
from regard.report.figures import Heat
from regard.report.notebook import slider

pytestmark = pytest.mark.usefixtures("warm_processes")

FOLDER = Path(__file__).parents[4] / "notebooks"
NAMES = [f"{number}-{chapter}" for number, chapter in enumerate(CHAPTERS, start=1)]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def cells_of(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def test_there_is_one_for_each_chapter():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_stored_with_its_outputs_and_stable_metadata(name):
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    book = json.loads(text)
    assert text == json.dumps(book, indent=1, ensure_ascii=False) + "\n"
    assert len(text) < 150_000
    assert book["metadata"] == METADATA
    nbformat.validate(nbformat.from_dict(book))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code[2:])  # after the installation and the imports
    for number, cell in enumerate(book["cells"]):
        assert cell["id"] == f"{name[0]}-{number:02}"
        assert cell["metadata"] == {}


@pytest.mark.parametrize("name", NAMES)
def test_it_installs_asks_answers_and_grades(name):
    cells = cells_of(name)
    assert f"colab-badge.svg)](https://colab.research.google.com/github/regard-toolkit/regard/blob/main/notebooks/{name}.ipynb)" in source(cells[0])  # fmt: skip # noqa: E501
    assert "%pip install" in source(cells[1])
    asked = [number for number, cell in enumerate(cells) if re.match(r"\*\*(Question|Your turn)\.\*\*", source(cell))]
    graded = [source(cells[number + 1]) for number in asked if source(cells[number]).startswith("**Your turn.**")]
    assert len(asked) >= 4
    assert graded
    assert all(cells[number + 1]["cell_type"] == "code" for number in asked)
    assert all("<details><summary>Answer</summary>" in source(cells[number + 2]) for number in asked)
    for one in graded:
        exercise = find_exercise(re.match(r"%%check ([\w-]+)\n", one)[1])
        function = one.partition("\n")[2].strip()
        assert function in exercise.sheet  # with its blank


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs_and_leaves_nothing(name):
    found = notebooks.executed(FOLDER / f"{name}.ipynb")  # fails if a cell does, or leaves a file
    stored = [cell["outputs"] for cell in cells_of(name) if cell["cell_type"] == "code"]
    assert [len(outputs) for outputs in found] == [len(outputs) for outputs in stored]
    if name == "5-attention":  # it says who learned the rule
        printed = "".join("".join(output["text"]) for outputs in found for output in outputs if "text" in output)
        right = re.findall(r"^([\w-]+) +with a B: (\S+) on average, without: (\S+)$", printed, flags=re.M)
        least = {system: min(float(one), float(other)) for system, one, other in right}
        assert least["ngram"] < 0.6
        assert least["dan"] < 0.7
        assert least["self-attention"] > 0.75


def test_a_cell_is_graded_in_place_and_its_function_kept_if_it_is_right(capsys):
    shell = InteractiveShell()
    load_ipython_extension(shell)
    sheet = BY_NAME["causal-mask"].sheet
    function = filled(sheet[sheet.index("def ") :], SOLUTIONS["causal-mask"])
    shell.run_cell_magic("check", "causal-mask", function.replace("torch.tril", "torch.triu"))
    assert capsys.readouterr().out.startswith("✗ causal-mask: ")
    assert "causal_mask" not in shell.user_ns
    shell.run_cell_magic("check", "causal-mask", function)
    assert capsys.readouterr().out.startswith("✓ causal-mask: right on ")
    assert shell.user_ns["causal_mask"](2).tolist() == [[True, False], [True, True]]
    shell.run_cell_magic("check", "causal-mosk", function)
    assert "causal-mask" in capsys.readouterr().out


@pytest.mark.parametrize("exercise", BY_NAME.values(), ids=lambda exercise: exercise.name)
def test_every_sheet_can_be_a_notebook(exercise, tmp_path):
    path = tmp_path / "sheet.ipynb"
    write_sheet(exercise, path)
    book = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(nbformat.from_dict(book))
    assert source(book["cells"][0]).startswith(f"# Exercise {exercise.name}: ")
    assert "regard exercise check" not in source(book["cells"][0])
    magic, _, function = source(book["cells"][-1]).partition("\n")
    assert magic == f"%%check {exercise.name}"
    assert function in exercise.sheet


def test_without_ipywidgets_a_slider_is_three_pictures(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    slider(lambda q: Heat(f"q is {q}.", ["row"], ["column"], [[q]]), q=[0, 1, 2, 5, 10])
    (page,) = shown
    assert [f"q is {q}." in page.data for q in (0, 1, 2, 5, 10)] == [True, False, True, False, True]
