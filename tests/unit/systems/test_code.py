"""What a user's own code may import: from its own folder, never from a run's, whose other files may be a stranger's."""

import sys

import pytest

from regard.base.errors import RegardError
from regard.systems.own.code import load, locate, trust_code, trust_copy

MINE = "import {neighbour}\nclass Mine: pass\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with mine.py and the module that it imports; what is imported is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    neighbour = f"neighbour_{abs(hash(tmp_path)):x}"  # of its own: Python remembers modules by name
    (place / "mine.py").write_text(MINE.format(neighbour=neighbour))
    (place / f"{neighbour}.py").write_text("")
    yield place
    sys.modules.pop(neighbour, None)


def refused(code):
    with pytest.raises(RegardError, match="neighbour_"):
        load(code)


def test_a_file_imports_from_its_folder_after_everything_that_is_installed(folder):
    before = list(sys.path)
    load(trust_code("place/mine.py:Mine"))
    load(trust_code("place/mine.py:Mine"))
    assert sys.path == [*before, str(folder)]


def test_a_file_in_a_run_imports_nothing_from_the_run(folder):
    (folder / "run.json").write_text("{}")
    before = list(sys.path)
    refused(trust_code("place/mine.py:Mine"))
    assert sys.path == before


def test_a_module_of_a_run_that_is_the_working_folder_imports_nothing_from_it(folder, monkeypatch):
    (folder / "run.json").write_text("{}")
    (folder / "mine.py").rename(folder / "mine_in_a_run.py")
    monkeypatch.chdir(folder)
    before = list(sys.path)
    refused(trust_code("mine_in_a_run:Mine"))
    assert sys.path == before


def test_the_copy_in_a_run_imports_from_where_the_original_was_and_not_from_the_run(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "mine.py").write_bytes((folder / "mine.py").read_bytes())
    load(trust_copy(locate("run/mine.py:Mine"), folder / "mine.py"))
    assert str(folder) in sys.path
    assert str(run) not in sys.path


@pytest.mark.parametrize("place", ["place/mine", "place\\mine"])
def test_a_path_that_is_no_python_file_is_told_from_a_module(folder, place):
    with pytest.raises(RegardError, match=r"is not a Python file: write \./mine\.py:MyCell"):
        locate(f"{place}:Mine")


def test_code_is_shown_by_its_name_without_its_text(folder):
    assert "class Mine" not in repr(locate("place/mine.py:Mine"))
