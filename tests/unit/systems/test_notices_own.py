"""A user's own code: what is found, what may run, what is remembered, and what a layer or a whole model must be."""

import hashlib
import os
import stat
import sys
from pathlib import Path

import pytest
import torch

from regard.base.cache import cache_folder
from regard.base.errors import RegardError
from regard.systems.own import code as own
from regard.systems.own.code import Code, crash, in_use, load, locate, require_trusted, trust_code, was_named
from regard.systems.own.stack import OwnLayer, OwnModel, open_own

HEAD = (
    "from dataclasses import dataclass\nfrom regard.systems.model import Model\nfrom regard.layers.cell import Cell\n"
)
PLAIN = "class Mine: pass\n"
LAYER = HEAD + "class Mine(Cell):\n    'A cell.'\n"
WHOLE = HEAD + (
    "@dataclass(frozen=True)\nclass Settings:\n    width: int = 4\n"
    "class Mine(Model):\n    def __init__(self, vocabulary, settings): super().__init__()\n"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder, a cache of its own, and nothing remembered of other tests or for them."""
    for name in ("_named_here", "_in_use", "_loaded"):
        monkeypatch.setattr(own, name, type(getattr(own, name))())
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "deep" / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("own_") or name.split(".")[0] in ("mine", "lab", "named_only"):
            del sys.modules[name]


def written(place, text=PLAIN, name="mine.py"):
    file = place / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def said(call, *given):
    with pytest.raises(RegardError) as error:
        call(*given)
    return str(error.value)


# -- finding it ------------------------------------------------------------------------------------------------------


def test_a_file_is_named_by_its_whole_path_wherever_one_is(place, monkeypatch):
    file = written(place)
    found = locate("./mine.py:Mine")
    assert (found.name, found.file, found.label, found.neighbours) == (f"{file}:Mine", file, "Mine", place)
    assert found.source == PLAIN.encode()
    assert found.digest == hashlib.sha256(PLAIN.encode()).hexdigest()
    assert found.is_file
    monkeypatch.setenv("HOME", str(place.parent))
    monkeypatch.chdir("/")
    assert locate("~/place/mine.py:Mine") == found


@pytest.mark.parametrize("name", ["mine.py", "mine.py:", ":Mine", "mine:mine.py"])
def test_a_file_without_a_class_is_told_how_to_name_one(place, name):
    shown = name.removesuffix(":")
    assert said(locate, name) == f"{name!r} does not name a class: write {shown}:MyCell with the name of your class."


def test_what_cannot_be_a_name_is_refused(place):
    for odd in ("\n", "\x00", "\u2028", "\u2029", "\ud800"):
        assert "contains a control character, so it is not a valid file name." in said(locate, f"a{odd}.py:Mine")
    where = place / "gone.py"
    assert said(locate, "gone.py:Mine") == (
        f"There is no file gone.py (looked for {where}); check the spelling and the folder."
    )
    written(place).unlink()
    (place / "mine.py").mkdir()  # a folder is no file
    assert "There is no file mine.py" in said(locate, "mine.py:Mine")


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_circle_of_links_is_no_file(place):
    (place / "mine.py").symlink_to(place / "mine.py")
    assert "mine.py" in said(locate, "mine.py:Mine")


def test_code_is_at_most_sixteen_mebibytes(place):
    file = place / "mine.py"
    with open(file, "wb") as stream:
        stream.truncate(16 << 20)
    assert len(own.read_code(file)) == 16 << 20
    with open(file, "wb") as stream:
        stream.truncate((16 << 20) + 1)
    assert said(own.read_code, file) == f"{file} is larger than 16 MiB, too large for a code file: check it."
    file.unlink()
    assert said(own.read_code, file) == f"{file} cannot be read (No such file or directory); check the file."


def test_a_module_is_found_without_running_its_package(place):
    written(place, "raise SystemExit\n", "lab/__init__.py")
    file = written(place, PLAIN, "lab/cells/mine.py")
    written(place, "raise SystemExit\n", "lab/cells/__init__.py")
    found = locate("lab.cells.mine:Mine")
    assert (found.name, found.file, found.neighbours, found.is_file) == ("lab.cells.mine:Mine", file, place, False)
    assert locate("lab.cells:Mine").file == place / "lab" / "cells" / "__init__.py"
    assert "lab" not in sys.modules


def test_a_module_in_folders_without_init_is_found(place):
    file = written(place, PLAIN, "lab/cells/mine.py")
    assert locate("lab.cells.mine:Mine").file == file


def test_what_is_no_module_of_python_text_is_refused(place):
    hint = said(locate, "lost:Mine")
    assert hint == f"There is no module lost on Python's path or in {place}."
    written(place, PLAIN, "other/lost.py")
    written(place, PLAIN, "lost.py")
    assert locate("lost:Mine").file == place / "lost.py"
    (place / "lost.py").unlink()
    (place / "empty").mkdir()
    for name in ("empty", "sys", "_ctypes"):  # a folder, a part of the interpreter, a library
        message = said(locate, f"{name}:Mine")
        assert message in (
            f"The module {name} has no source file to take a class from.",
            f"There is no module {name} on Python's path or in {place}.",
        )
    assert "no source file" in said(locate, "empty:Mine")
    assert said(locate, "lab..x:Mine").startswith("There is no module lab..x on")
    written(place, PLAIN, "elsewhere.py")
    assert said(locate, "a.elsewhere:Mine").startswith("There is no module a.elsewhere on Python's path")


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_module_whose_package_is_a_link_must_be_named_by_its_file(place):
    written(place, PLAIN, "real/mine.py")
    (place / "lab").symlink_to(place / "real")
    message = said(locate, "lab.mine:Mine")
    assert message == "The module lab.mine is reached through a link: name its file, as in ./mine.py:MyCell."


# -- trusting it -----------------------------------------------------------------------------------------------------


def lines():
    return (cache_folder() / own.NAMED).read_text().splitlines()


def test_what_was_named_is_remembered_once_for_each_content_and_for_its_owner_alone(place):
    file = written(place)
    first = trust_code("mine.py:Mine")
    trust_code("mine.py:Mine")
    assert lines() == [f"{first.digest}  {file}"]
    written(place, PLAIN + "# changed\n")
    second = trust_code("mine.py:Mine")
    assert lines() == [f"{first.digest}  {file}", f"{second.digest}  {file}"]
    assert in_use(second.name) is second
    if os.name == "posix":
        assert stat.S_IMODE((cache_folder() / own.NAMED).stat().st_mode) == 0o600
    own._named_here.clear()  # another process reads the cache
    assert was_named(first.digest, file)
    assert not was_named(first.digest, place / "other.py")
    assert not was_named("0" * 64, file)


def test_where_nothing_can_be_remembered_this_process_does(place, monkeypatch):
    written(place)
    (place.parent / "deep").write_text("no folder")
    code = trust_code("mine.py:Mine")
    assert was_named(code.digest, code.file)
    own._named_here.clear()
    assert not was_named(code.digest, code.file)


def test_another_process_is_told_what_was_named_here(place):
    code = trust_code(f"{written(place)}:Mine")
    unnamed = locate(f"{written(place, PLAIN, 'other.py')}:Mine")
    own.register(unnamed)
    told = own.named_here()
    assert told == [f"{code.digest}  {code.file}"]
    (cache_folder() / own.NAMED).unlink()
    own._named_here.clear()
    assert own.named_here() == []
    own.named_before(told)
    assert was_named(code.digest, code.file)


def test_what_was_not_named_does_not_run(place):
    written(place, "open('sprung', 'w').close()\n" + PLAIN)
    code = locate("mine.py:Mine")
    assert said(require_trusted, code) == (
        f"This would run {code.file}, but its current version has not been approved on this machine: read it, and if "
        f"you trust it, run `regard laws {code.name}` and try again."
    )
    assert said(require_trusted, code, "runs/a").startswith(f"runs/a would run {code.file}, but")
    assert said(load, code).startswith("This would run")
    assert not (place / "sprung").exists()
    assert in_use(code.name) is not code
    trust_code("mine.py:Mine")
    assert require_trusted(code) is code
    assert in_use(code.name) is code
    load(code)
    assert (place / "sprung").exists()


def test_a_copy_is_the_same_code_that_imports_from_where_the_original_was(place):
    copy = locate(f"{written(place, PLAIN, 'run/mine.py')}:Mine")
    given = own.trust_copy(copy, place / "there" / "mine.py")
    assert (given.file, given.source, given.neighbours) == (copy.file, copy.source, place / "there")
    assert was_named(copy.digest, copy.file)
    assert in_use(copy.name) is given


# -- running it ------------------------------------------------------------------------------------------------------


def test_code_runs_once_for_each_content(place):
    written(place, "print('ran')\n" + PLAIN)
    first, kind = load(trust_code("mine.py:Mine"))
    assert load(trust_code("mine.py:Mine")) == (first, kind)
    assert first.__file__ == str(place / "mine.py")
    assert sys.modules[first.__name__] is first
    assert first.__name__ == f"own_mine_{locate('mine.py:Mine').digest[:12]}"
    written(place, PLAIN + "MORE = 1\n")
    second, other = load(trust_code("mine.py:Mine"))
    assert second.MORE == 1
    assert other is not kind


def test_a_module_is_what_was_checked_and_not_what_the_file_has_become(place):
    file = written(place, PLAIN + "WHICH = 'checked'\n", "named_only.py")
    code = trust_code("named_only:Mine")
    file.write_text(PLAIN + "WHICH = 'later'\n")
    finders = list(sys.meta_path)
    module, _ = load(code)
    assert module.WHICH == "checked"
    assert sys.meta_path == finders
    changed, _ = load(trust_code("named_only:Mine"))
    assert changed.WHICH == "later"
    file.write_text("1 / 0\n")
    assert "cannot be imported" in said(load, trust_code("named_only:Mine"))
    assert sys.meta_path == finders


def test_a_class_that_is_not_there_is_answered_with_those_that_are(place):
    written(place, "from pathlib import Path\nMine = 3\n")
    assert said(load, trust_code("mine.py:Mine")) == "mine.py has no class Mine, nor any other class."
    written(place, "class Minimal: pass\nclass Other: pass\n")
    assert said(load, trust_code("mine.py:Minimul")) == "mine.py has no class Minimul: did you mean Minimal?"
    assert said(load, trust_code("mine.py:Path")) == "mine.py has no class Path; choose one of Minimal, Other."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\nif\n", "mine.py is not valid Python: invalid syntax on line 2 (if)."),
        ("x = 1\n1 /  0\n",
         "mine.py cannot be imported: ZeroDivisionError: division by zero on line 2 (1 / 0)."),
        ("def f():\n    raise ValueError\nf()\n",
         "mine.py cannot be imported: ValueError on line 2 (raise ValueError)."),
        ("raise ValueError('one.\\ntwo')\n",
         "mine.py cannot be imported: ValueError: one on line 1 (raise ValueError('one.\\ntwo'))."),
        ("raise SystemExit(3)\n", "mine.py cannot be imported: SystemExit: 3 on line 1 (raise SystemExit(3))."),
    ],
)  # fmt: skip
def test_code_that_cannot_be_imported_names_its_line_and_leaves_no_module(place, text, sentence):
    written(place, text)
    before = set(sys.modules)
    assert said(load, trust_code("mine.py:Mine")) == sentence
    assert not {name for name in set(sys.modules) - before if name.startswith("own_")}


def test_a_crash_names_the_last_line_of_the_users_file_and_no_other(place):
    written(place, "def run(call):\n    return call()\n\ndef fail():\n    return {}['gate']\n" + PLAIN)
    module, _ = load(trust_code("mine.py:Mine"))
    for call, sentence in (
        (module.fail, "KeyError: 'gate' on line 5 of mine.py (return {}['gate'])."),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero on line 2 of mine.py (return call())."),
    ):
        with pytest.raises((KeyError, ZeroDivisionError)) as error:
            module.run(call)
        assert crash(error.value) == sentence
    assert crash(ValueError("elsewhere")) == ""
    assert crash(own.Crashed("it crashed", "KeyError on line 5.")) == "KeyError on line 5."
    assert str(own.Crashed("it crashed", "there")) == "it crashed"


def test_an_own_system_is_told_from_a_registered_one():
    assert [own.is_own(name) for name in ("lstm", "./a.py:B", "a.b:C", "a.py", "py")] == [
        False,
        True,
        True,
        True,
        False,
    ]


# -- taking it as a system -------------------------------------------------------------------------------------------


def opened(place, text):
    written(place, text)
    return open_own(trust_code("mine.py:Mine"))


def test_sizes_of_a_whole_model_may_set_every_section_and_no_unknown_field(place):
    more = "SIZES = {'tiny': {'width': 8, 'training.steps': 5, 'data.vocabulary': 100}, 'large': {'width': 9}}\n"
    found = opened(place, WHOLE + more + "TRAINING = {'rate': 0.1, 'steps': 7}\n")
    assert isinstance(found, OwnModel)
    assert found.sizes.of("tiny") == {"width": 8}
    assert found.sizes.of("tiny", "training") == {"rate": 0.1, "steps": 5}
    assert found.sizes.of("tiny", "data") == {"vocabulary": 100}
    assert found.sizes.of("large") == {"width": 9}
    assert found.sizes.of("small") == {}
    assert found.sizes.of("large", "training") == {"rate": 0.1, "steps": 7}
    wrong = WHOLE + "SIZES = {'small': {'training.widht': 1, 'widht': 8}}\n"
    assert said(opened, place, wrong) == "SIZES of mine.py sets widht for small, but Settings has no such field."


def test_a_whole_model_has_settings_and_both_kinds_are_made_as_they_are_called(place):
    needs = "Mine is a whole model, so mine.py must also define Settings, a frozen dataclass of its settings."
    assert said(opened, place, WHOLE.replace("class Settings", "class Choices")) == needs
    assert said(opened, place, WHOLE.replace("@dataclass(frozen=True)\n", "")) == needs
    assert said(opened, place, WHOLE.replace("vocabulary, settings", "vocabulary: int, *, settings=None")) == (
        "Mine must be constructed as Mine(vocabulary, settings); its constructor takes (vocabulary, *, settings=None)."
    )
    assert said(opened, place, LAYER + "    def __init__(self, width): pass\n") == (
        "Mine must be constructed as Mine(inputs, width); its constructor takes (width)."
    )
    assert said(opened, place, PLAIN) == (
        "Mine of mine.py is neither a layer nor a model: subclass regard.layers.cell.Cell, regard.layers.layer.Layer "
        "or regard.systems.model.Model."
    )


STEP = "    def step(self, x, state): return {'hidden': 0.5 * state['hidden'] + x[:, :1]}\n"


def test_a_layer_is_a_stack_with_its_own_name_and_the_lstms_sizes(place):
    found = opened(place, LAYER + STEP)
    assert isinstance(found, OwnLayer)
    assert (found.kind.__name__, found.kind.__doc__) == ("Mine", "A cell.")
    assert found.sizes.of("tiny", "training")["batches"] == "stream"
    assert "forget_bias" not in found.sizes.of("tiny")
    model = found.kind(13, found.Settings(layers=2, width=6))
    assert [type(layer).__name__ for layer in model.layers] == ["Mine", "Mine"]
    grows = """
    def begin(self, rows, **how): return {'all': torch.zeros(rows, 0, 8)}
    def forward(self, x, state, span): return x, {'all': torch.cat([state['all'], x], 1)}
"""
    assert opened(place, "import torch\n" + LAYER + grows).sizes.of("tiny", "training")["batches"] == "windows"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("    def forward(self, x, state, span): return x\n",
         "Mine.forward must return y and the new state, not a Tensor."),
        ("    def forward(self, x, state, span): return x, state, {}\n",
         "Mine.forward must return y and the new state, not a tuple."),
        ("    def forward(self, x, state, span): return [x], state\n",
         "Mine.forward must return y and the new state, not a tuple."),
        ("    def forward(self, x, state, span): return x[:, :2], state\n",
         "Mine.forward must return y of shape [rows, columns, width], here [2, 3, 8], not [2, 2, 8]."),
        ("    def forward(self, x, state, span): return x, [state]\n",
         "the state Mine.forward returns must be a dict of tensors, not a list."),
        ("    def begin(self, rows, **how): return ()\n    def forward(self, x, state, span): return x, {}\n",
         "the state Mine.begin returns must be a dict of tensors, not a tuple."),
    ],
)  # fmt: skip
def test_an_error_names_what_a_layer_must_return_and_what_it_returned(place, body, sentence):
    found = opened(place, LAYER + body)
    assert said(found.examine) == sentence
    with pytest.raises(RegardError) as error:
        _ = found.sizes
    assert str(error.value) == sentence


def test_a_crash_of_a_layer_names_its_line_and_where_to_see_more(place):
    found = opened(place, LAYER + "    def step(self, x, state): return x @ x\n")
    with pytest.raises(RegardError) as error:
        _ = found.sizes
    message = str(error.value)
    assert message.startswith("Mine crashed: RuntimeError: ")
    assert " on line 6 of mine.py (def step(self, x, state): return x @ x). `regard laws " in message
    assert message.endswith(f"`regard laws {place / 'mine.py'}:Mine` shows more.")


def test_a_code_is_what_it_says_and_its_bytes_are_not_shown():
    made = Code("a.py:B", Path("a.py"), "B", b"secret", Path("."))
    assert "secret" not in repr(made)
    assert torch.is_grad_enabled()
