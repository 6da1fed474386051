"""What a stranger's folder may not do: run code that nobody named, or reach a file outside itself."""

import hashlib
import json
import py_compile
import sys

import pytest

from regard.compare.plan import Plan
from regard.compare.question import Question
from regard.errors import RegardError
from regard.folder import open_recipe
from regard.recipe import compose
from regard.systems.catalogue import find
from regard.systems.code import load, locate, name_code

CELL = (
    "from regard.layers.cell import Cell\n"
    "class Mine(Cell):\n"
    "    '''WHO'''\n"
    "    def step(self, x, state): return {'hidden': x}\n"
)


@pytest.fixture
def here(tmp_path, monkeypatch, text_file):
    """A working folder with my.txt, a cache of its own, and Python's path as it was afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my.txt").write_bytes(text_file.read_bytes())
    return tmp_path


@pytest.fixture
def trap(here):
    """A file that says so when it is run."""
    (here / "gift").mkdir()
    (here / "gift" / "evil.py").write_text(f"open({str(here / 'sprung')!r}, 'w')\n{CELL}", encoding="utf-8")
    return here / "gift" / "evil.py"


def comparison(folder, systems=("lstm",), **changes):
    """A comparison.json that answers `regard compare SYSTEMS --data my.txt --budget 500`, with one row changed."""
    question = Question(systems, "my.txt", budget="500").tree()
    recipe = compose("lstm", "tiny", {"data": {"corpus": "my.txt"}}).tree()
    entry = {"label": "lstm", "year": 1997, "counted": False, "seeds": [1], "recipe": recipe} | changes
    tree = {"format": 1, "question": question, "match": "tokens", "budget": 500, "unit": "tokens", "entrants": [entry]}
    folder.mkdir(exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(tree | {"facts": {}}), encoding="utf-8")
    return ["compare", *systems, "--data", "my.txt", "--budget", "500", "--run", folder]


# -- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["the same", "something else"])
def test_a_comparison_runs_no_code_that_was_not_named(here, trap, wrong, asked):
    evil = compose("lstm", "tiny").tree() | {"system": f"{trap}:Mine"}
    words = comparison(here / "gift", recipe=evil)
    if asked == "something else":
        words[words.index("500")] = "600"
    said = wrong(*words)
    assert not (here / "sprung").exists()
    assert not (here / "cache" / "own-code.txt").exists()
    assert ("holds another comparison" if asked == "something else" else f"would run {trap}") in said
    with pytest.raises(RegardError, match="never named"):  # as the process of one run opens it
        Plan.read(here / "gift")


@pytest.mark.parametrize("way", [find, lambda name: compose(name, None), lambda name: load(locate(name))])
def test_no_way_to_code_goes_around_the_gate(here, trap, way):
    with pytest.raises(RegardError, match="never named on this machine"):
        way(f"{trap}:Mine")
    assert not (here / "sprung").exists()
    name_code(f"{trap}:Mine")
    way(f"{trap}:Mine")
    assert (here / "sprung").exists()


def test_an_edited_file_is_not_the_code_that_was_named(here, trap):
    name_code(f"{trap}:Mine")
    trap.write_text(trap.read_text() + "# edited\n")
    with pytest.raises(RegardError, match="never named on this machine"):
        load(locate(f"{trap}:Mine"))
    assert not (here / "sprung").exists()


def test_what_runs_is_what_was_hashed(here):
    """The file is exchanged between the look and the run; a byte-code file is never taken instead."""
    (here / "lab").mkdir()
    (here / "lab" / "__init__.py").write_text("")
    for name, file in (("./mine.py:Mine", here / "mine.py"), ("lab.cells:Mine", here / "lab" / "cells.py")):
        file.write_text(CELL.replace("WHO", "mine"))
        code = name_code(name)
        file.write_text(CELL.replace("WHO", "another's"))
        py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        assert load(code)[1].__doc__ == "mine"
        assert code.digest in (here / "cache" / "own-code.txt").read_text()
        named = f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}\n"
        assert named not in (here / "cache" / "own-code.txt").read_text()
        assert find(code.name).title == "mine"  # it stays what it was for this process …
        assert load(name_code(name))[1].__doc__ == "another's"  # … until it is named again


def test_a_module_that_a_recipe_names_brings_no_folder_onto_the_path(here, wrong):
    (here / "cells.py").write_text(CELL)
    (here / "recipe.toml").write_text('system = "cells:Mine"\n')
    before = list(sys.path)
    assert "would run" in wrong("train", "recipe.toml", "--data", "my.txt")
    assert sys.path == before
    assert "cells" not in sys.modules


def test_a_runs_folder_is_never_on_the_path(here, regard):
    """A copy in a run imports its neighbours from where the original stood, and nothing that lies in the run."""
    home = here / "home"
    home.mkdir()
    (home / "mine.py").write_text(f"import neighbour\n{CELL.replace('WHO', 'mine')}")
    (home / "neighbour.py").write_text("")
    name_code(str(home / "mine.py:Mine"))
    run = here / "run"
    run.mkdir()
    (run / "mine.py").write_bytes((home / "mine.py").read_bytes())
    (run / "neighbour.py").write_text(f"open({str(here / 'sprung')!r}, 'w')")
    digest = hashlib.sha256((run / "mine.py").read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps({"format": 1, "code": {"file": "mine.py", "sha256": digest}}))
    (run / "recipe.toml").write_text(f'system = "{home}/mine.py:Mine"\n')
    (home / "mine.py").unlink()
    assert open_recipe(run).system == f"{run}/mine.py:Mine"
    load(name_code(f"{run}/mine.py:Mine"))  # nor when it is named itself
    assert str(run) not in sys.path
    assert not (here / "sprung").exists()


@pytest.mark.parametrize("name", ["a\nb.py:Mine", "a\x00.py:Mine", "a\u2028b.py:Mine", "..:X", ".a:X", "a..b:X"])
def test_a_strange_name_of_code_is_one_sentence(here, name):
    with pytest.raises(RegardError):
        locate(name)


def test_a_namespace_package_is_a_module_too(here):
    (here / "space" / "inner").mkdir(parents=True)
    (here / "space" / "inner" / "cells.py").write_text(CELL)
    assert load(name_code("space.inner.cells:Mine"))[1].__name__ == "Mine"
    with pytest.raises(RegardError, match="no source file"):
        locate("space.inner:Mine")


def test_the_process_of_a_run_imports_nothing_from_the_working_folder(here, process):
    (here / "gift").mkdir()
    (here / "gift" / "regard.py").write_text(f"open({str(here / 'sprung')!r}, 'w')")
    (here / "gift" / "torch.py").write_text(f"open({str(here / 'sprung')!r}, 'w')")
    settings = ["--size", "tiny", "--data.tokenizer", "char", "--training.threads", "1"]
    words = ["compare", "ngram", "--data", here / "my.txt", "--run", "mine", *settings]
    child = process(*words, cwd=here / "gift", safe=True)
    _, errors = child.communicate(timeout=300)
    assert child.returncode == 0, errors
    assert not (here / "sprung").exists()
