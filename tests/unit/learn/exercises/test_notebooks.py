"""The notebooks: every cell runs, nothing that a run leaves is stored, and each answer comes after a question."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import run_notebook
from regard.report.figures import Heat
from regard.report.notebook import slider

FOLDER = Path(__file__).parents[4] / "notebooks"
NAMES = [f"{number:03}" for number in range(5)]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def test_there_is_one_for_each_lecture():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_stored_without_outputs_and_with_stable_metadata(name):
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    book = json.loads(text)
    assert text == json.dumps(book, indent=1, ensure_ascii=False) + "\n"
    assert book["metadata"] == METADATA
    for number, cell in enumerate(book["cells"]):
        assert cell["id"] == f"{name}-{number:02}"
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    nbformat.validate(nbformat.from_dict(book))


@pytest.mark.parametrize("name", NAMES)
def test_it_asks_before_it_answers(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    asked = [number for number, cell in enumerate(cells) if "**Question.**" in "".join(cell["source"])]
    assert len(asked) >= 4
    assert all(cells[number + 1]["cell_type"] == "code" for number in asked)
    assert "`regard exercise " in "".join(cells[-1]["source"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name, tmp_path, warm):
    runner = Path(run_notebook.__file__)
    done = subprocess.run([warm, runner, FOLDER / f"{name}.ipynb"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads(done.stdout.splitlines()[-1])
    shown = [data for cell in cells for data in cell["data"]]
    assert any("<svg" in data.get("text/html", "") for data in shown)
    assert any("application/vnd.jupyter.widget-view+json" in data for data in shown)  # a slider
    assert not list(tmp_path.iterdir())  # what it trains goes to a temporary folder
    if name == "002":  # its last cell says who learned the rule
        printed = "".join(cell["text"] for cell in cells)
        found = re.findall(r"^(\w+) +with a B: (\S+) on average, without: (\S+)$", printed, flags=re.M)
        least = {system: min(float(one), float(other)) for system, one, other in found}
        assert least["ngram"] < 0.5
        assert least["dan"] < 0.65
        assert least["rnn"] > 0.7


def test_without_ipywidgets_a_slider_is_three_pictures(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    slider(lambda q: Heat(f"q is {q}.", ["row"], ["column"], [[q]]), q=[0, 1, 2, 5, 10])
    (page,) = shown
    assert [f"q is {q}." in page.data for q in (0, 1, 2, 5, 10)] == [True, False, True, False, True]
