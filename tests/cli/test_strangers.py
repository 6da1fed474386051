"""What a stranger's folder may not do: run code that nobody named, or reach a file outside itself."""

import hashlib
import json
import os
import py_compile
import shutil
import sys

import pytest

from regard.base.digests import with_digest, without_digest
from regard.base.errors import RegardError
from regard.base.writing import append_line
from regard.comparison.plan import Plan
from regard.comparison.question import Question
from regard.runs.recipe import compose
from regard.runs.store.folder import open_recipe
from regard.systems.catalogue import find
from regard.systems.own.code import load, locate, trust_code
from regard.training.checkpoint import load_tensors, save_tensors
from regard.training.checkpointing import kept_weights

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
    (folder / "comparison.json").write_text(json.dumps(with_digest(tree | {"facts": {}})), encoding="utf-8")
    return ["compare", *systems, "--data", "my.txt", "--budget", "500", "--seeds", "1", "--run", folder]


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
    assert ("contains a different comparison" if asked == "something else" else f"would run {trap}") in said
    with pytest.raises(RegardError, match="not been approved"):  # as the process of one run opens it
        Plan.read(here / "gift")


@pytest.mark.parametrize("way", [find, lambda name: compose(name, None), lambda name: load(locate(name))])
def test_no_way_to_code_goes_around_the_gate(here, trap, way):
    with pytest.raises(RegardError, match="not been approved on this machine"):
        way(f"{trap}:Mine")
    assert not (here / "sprung").exists()
    trust_code(f"{trap}:Mine")
    way(f"{trap}:Mine")
    assert (here / "sprung").exists()


def test_an_edited_file_is_not_the_code_that_was_named(here, trap):
    trust_code(f"{trap}:Mine")
    trap.write_text(trap.read_text() + "# edited\n")
    with pytest.raises(RegardError, match="not been approved on this machine"):
        load(locate(f"{trap}:Mine"))
    assert not (here / "sprung").exists()


def test_what_runs_is_what_was_hashed(here):
    """The file is exchanged between the look and the run; a byte-code file is never taken instead."""
    (here / "hashed").mkdir()
    (here / "hashed" / "__init__.py").write_text("")
    for name, file in (("./mine.py:Mine", here / "mine.py"), ("hashed.cells:Mine", here / "hashed" / "cells.py")):
        file.write_text(CELL.replace("WHO", "mine"))
        code = trust_code(name)
        file.write_text(CELL.replace("WHO", "another's"))
        py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        assert load(code)[1].__doc__ == "mine"
        assert code.digest in (here / "cache" / "own-code.txt").read_text()
        named = f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}\n"
        assert named not in (here / "cache" / "own-code.txt").read_text()
        assert find(code.name).title == "mine"  # it stays what it was for this process …
        assert load(trust_code(name))[1].__doc__ == "another's"  # … until it is named again


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_the_list_of_named_code_is_its_owners_alone(here):
    listed = here / "cache" / "own-code.txt"
    (here / "mine.py").write_text(CELL)
    before = os.umask(0)
    try:
        trust_code("./mine.py:Mine")
    finally:
        os.umask(before)
    assert listed.stat().st_mode & 0o777 == 0o600
    listed.chmod(0o666)  # as an older Regard wrote it with such a umask
    trust_code("./mine.py:Mine")
    assert listed.stat().st_mode & 0o777 == 0o600


def test_a_module_that_a_recipe_names_brings_no_folder_onto_the_path(here, wrong):
    (here / "cells.py").write_text(CELL)
    (here / "recipe.toml").write_text('system = "cells:Mine"\n')
    before = list(sys.path)
    assert "would run" in wrong("train", "recipe.toml", "--data", "my.txt")
    assert sys.path == before
    assert "cells" not in sys.modules


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_link_to_a_file_that_was_named_brings_no_other_package_with_it(here, wrong, link, monkeypatch):
    """The module's own bytes were vouched for; the packages around the link are a stranger's."""
    (here / "home").mkdir()
    (here / "home" / "mine.py").write_text(CELL, encoding="utf-8")
    trust_code("./home/mine.py:Mine")
    gift = here / "gift" / "outer"
    gift.mkdir(parents=True)
    (gift / "__init__.py").write_text(f"open({str(here / 'sprung')!r}, 'w')\n", encoding="utf-8")
    if link == "file":
        (gift / "mod.py").symlink_to(here / "home" / "mine.py")
        named = "outer.mod:Mine"
    else:
        (gift / "inner").symlink_to(here / "home")
        named = "outer.inner.mine:Mine"
    (here / "gift" / "recipe.toml").write_text(f'system = "{named}"\n', encoding="utf-8")
    monkeypatch.chdir(here / "gift")
    assert "through a link" in wrong("train", "recipe.toml", "--data", here / "my.txt")
    assert not (here / "sprung").exists()


def test_a_runs_folder_is_never_on_the_path(here, regard):
    """A copy in a run imports its neighbours from where the original stood, and nothing that lies in the run."""
    home = here / "home"
    home.mkdir()
    (home / "mine.py").write_text(f"import neighbour\n{CELL.replace('WHO', 'mine')}")
    (home / "neighbour.py").write_text("")
    trust_code(str(home / "mine.py:Mine"))
    run = here / "run"
    run.mkdir()
    (run / "mine.py").write_bytes((home / "mine.py").read_bytes())
    (run / "neighbour.py").write_text(f"open({str(here / 'sprung')!r}, 'w')")
    digest = hashlib.sha256((run / "mine.py").read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(with_digest({"format": 1, "code": {"file": "mine.py", "sha256": digest}})))
    (run / "recipe.toml").write_text(f'system = "{home}/mine.py:Mine"\n')
    (home / "mine.py").unlink()
    assert open_recipe(run).system == f"{run}/mine.py:Mine"
    load(trust_code(f"{run}/mine.py:Mine"))  # nor when it is named itself
    assert str(run) not in sys.path
    assert not (here / "sprung").exists()


@pytest.mark.parametrize("name", ["a\nb.py:Mine", "a\x00.py:Mine", "a\u2028b.py:Mine", "..:X", ".a:X", "a..b:X"])
def test_a_strange_name_of_code_is_one_sentence(here, name):
    with pytest.raises(RegardError):
        locate(name)


def test_a_namespace_package_is_a_module_too(here):
    (here / "space" / "inner").mkdir(parents=True)
    (here / "space" / "inner" / "cells.py").write_text(CELL)
    assert load(trust_code("space.inner.cells:Mine"))[1].__name__ == "Mine"
    with pytest.raises(RegardError, match="no source file"):
        locate("space.inner:Mine")


def test_the_process_of_a_run_imports_nothing_from_the_working_folder(here, process):
    (here / "gift").mkdir()
    (here / "gift" / "regard.py").write_text(f"open({str(here / 'sprung')!r}, 'w')")
    (here / "gift" / "torch.py").write_text(f"open({str(here / 'sprung')!r}, 'w')")
    settings = ["--size", "tiny", "--data.tokenizer", "char", "--training.threads", "1"]
    words = ["compare", "ngram", "--data", here / "my.txt", "--run", "mine", *settings]
    child = process(*words, cwd=here / "gift", safe=True)
    _, errors = child.communicate()
    assert child.returncode == 0, errors
    assert not (here / "sprung").exists()


# -- names and links -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    [
        *("../precious", "..", ".", "", "/tmp/x", "a/b", "a\\b", "a\x00b", "a\nb", ".lock", "comparison.json", "~"),
        *("x" * 201, "ö" * 101, "\u2024\u2024", "\uff0fx", "a ", None, 3),
    ],
    ids=repr,
)
def test_a_label_is_a_name_and_never_a_path(here, wrong, label):
    (here / "precious").mkdir()
    (here / "precious" / "mine.txt").write_text("mine")
    said = wrong(*comparison(here / "gift", label=label))
    assert "comparison.json" in said
    assert (here / "precious" / "mine.txt").read_text() == "mine"
    assert {path.name for path in (here / "gift").iterdir()} <= {"comparison.json", ".lock"}


@pytest.mark.parametrize("seeds", [[1, 1], ["../../precious"], [1.5], [True, 2], 3])
def test_seeds_are_whole_numbers_and_differ(here, wrong, seeds):
    assert "comparison.json" in wrong(*comparison(here / "gift", seeds=seeds))


def test_two_labels_that_a_file_system_may_confuse_are_refused(here, wrong):
    words = comparison(here / "gift")
    path = here / "gift" / "comparison.json"
    tree = without_digest(json.loads(path.read_text()), path)
    for other in ("LSTM", "\uff4cstm"):
        tree["entrants"] = [tree["entrants"][0], tree["entrants"][0] | {"label": other}]
        path.write_text(json.dumps(with_digest(tree)))
        assert "two runs with the same name" in wrong(*words)


def test_nothing_in_a_comparison_is_removed(here, regard):
    """A folder that stands where a run should begin is somebody's; a link leads to somebody's."""
    words = ["compare", "ngram", "--data", here / "my.txt", "--run", here / "mine", "--data.tokenizer", "char"]
    words += ["--training.threads", "1"]
    code, _, errors = regard(*words)
    assert code == 0, errors
    shutil.rmtree(here / "mine" / "2-gram")
    shutil.move(here / "mine" / "5-gram", here / "elsewhere")
    (here / "mine" / "2-gram").mkdir()
    (here / "mine" / "2-gram" / "notes.txt").write_text("mine")
    (here / "mine" / "5-gram").symlink_to(here / "elsewhere")
    (here / "elsewhere" / "result.json").unlink()
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    code, _, errors = regard(*words)
    assert code == 2, errors
    assert "points outside the comparison" in errors
    assert "already exists and is not a run" in errors
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_a_resume_writes_nothing_outside_its_run(trained, here, regard, link):
    run = shutil.copytree(trained["lstm"], here / "run")
    (here / "outside").mkdir()
    for name in ("metrics.jsonl", "recipe.toml", "model.safetensors", "training.safetensors"):
        shutil.move(run / name, here / "outside" / name)
        (run / name).symlink_to(here / "outside" / name) if link == "symbolic" else os.link(
            here / "outside" / name, run / name
        )
    tensors, note = load_tensors(run / "training.safetensors")
    note["progress"]["finished"] = False
    note["progress"]["step"] = 20  # so that ten steps and a validation are left
    save_tensors(run / "training.safetensors", tensors, note)
    before = {path: path.read_bytes() for path in (here / "outside").iterdir()}
    code, _, errors = regard("resume", run, "--training.threads", "1")
    assert code == 0, errors
    assert "continuing from step 20" in errors
    assert {path: path.read_bytes() for path in before} == before
    assert not any(path.is_symlink() for path in run.iterdir())


def test_links_are_not_followed_when_a_run_is_held_or_written_to(trained, here, wrong):
    (here / "outside").mkdir()
    (here / "outside" / "00000001.safetensors").write_text("mine")
    run = shutil.copytree(trained["lstm"], here / "run")
    (run / "kept").symlink_to(here / "outside")
    assert "is a link that points outside the run: replace it with a real folder" in wrong("resume", run)
    (run / "kept").unlink()
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").symlink_to(here / "made")
    assert "is not a regular file" in wrong("resume", run)
    assert not (here / "made").exists()
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(here / "made")
    with pytest.raises(RegardError, match="not a regular file"):
        append_line(run / "metrics.jsonl", "{}")
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(RegardError, match="not a regular file"):
        append_line(run / "metrics.jsonl", "{}")
    assert (here / "outside" / "00000001.safetensors").read_text() == "mine"


def test_what_is_not_the_weights_of_a_validation_is_not_taken_for_them(here):
    (here / "kept").mkdir()
    for name in ("00000002.safetensors", "1x.safetensors", "²3.safetensors", "00000010.safetensors", "..safetensors"):
        (here / "kept" / name).touch()
    assert [path.name for path in kept_weights(here)] == ["00000002.safetensors", "00000010.safetensors"]
