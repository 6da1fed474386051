"""The notebooks: every cell runs, nothing that a run leaves is stored, and each answer comes after a question."""

import json
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from regard.report.figures import Heat
from regard.report.notebook import slider

FOLDER = Path(__file__).parents[3] / "notebooks"
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
def test_every_cell_runs(name, tmp_path):
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    patience = {"timeout": 900, "startup_timeout": 600}
    nbclient.NotebookClient(book, **patience, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    pages = [output.data.get("text/html", "") for output in shown if "data" in output]
    assert sum("<svg" in page for page in pages) >= 1
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in shown)  # a slider
    assert not list(tmp_path.iterdir())  # what it trains goes to a temporary folder


def test_without_ipywidgets_a_slider_is_three_pictures(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    slider(lambda q: Heat(f"q is {q}.", ["row"], ["column"], [[q]]), q=[0, 1, 2, 5, 10])
    (page,) = shown
    assert [f"q is {q}." in page.data for q in (0, 1, 2, 5, 10)] == [True, False, True, False, True]
