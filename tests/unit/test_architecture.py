"""The order of the packages: each imports only from those to its left, and what must be quick never loads torch."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import regard

SOURCE = Path(regard.__file__).parent
ORDER = [
    {"base"},
    {"corpora"},
    {"text", "report"},
    {"layers"},
    {"pooling"},
    {"systems"},
    {"decoding"},
    {"evaluation"},
    {"training"},
    {"fast"},
    {"insight"},
    {"runs"},
    {"laws", "comparison", "exchange"},
    {"claims"},
    {"learn"},
    {"web"},
    {"bench"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


@cache
def outline(path):
    """The names of the modules that a file imports, and of the public classes at its top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported.append(node.module)
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return imported, classes


def imports(path):
    return outline(path)[0]


def package_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_imports_only_from_packages_to_its_left(path):
    here = package_of(path)
    for name in imports(path):
        if name.startswith("regard."):
            there = name.split(".")[1]
            assert there == here or RANK[there] < RANK[here], f"{here} imports {there}"


def test_every_package_has_its_place():
    assert {package_of(path) for path in FILES} <= RANK.keys()


@pytest.mark.parametrize("package", ["text", "report", "web"])
def test_text_report_and_web_know_nothing_of_torch(package):
    for path in (SOURCE / package).rglob("*.py"):
        assert not any(name.split(".")[0] == "torch" for name in imports(path)), path


QUICK = ["--help", "systems", "systems --json", "train --help", "compare --help", "inspect --help", "claims --help"]
QUICK += [
    "doctor --help",
    "lecture 003:49",
    "exercise",
    "data",
    "--version",
    "claims --list",
    "claims C10 --list --json",
]


def test_quick_answers_never_load_torch():
    code = f"""
import sys
from regard.cli import main
for words in {QUICK!r}:
    try:
        main(words.split())
    except SystemExit as stop:
        assert not stop.code, words
    assert "torch" not in sys.modules, words + " loads torch"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_training_matching_sizes_and_writing_load_neither_pytorchs_compiler_nor_what_looks_inside(tmp_path):
    code = f"""
import sys
import regard
lines = [f"the cat saw {{number}} dogs" for number in range(200)]
settings = {{"model": {{"layers": 1, "width": 8, "heads": 1}}, "training": {{"steps": 2, "device": "cpu"}}}}
run = regard.train("gpt", data=lines, size="tiny", run={str(tmp_path / "run")!r}, settings=settings)
regard.load({str(tmp_path / "run")!r}, device="cpu").generate("the", max_tokens=3)
from regard.comparison.width import size_of
assert size_of(run.recipe, run.tokenizer)[0] == sum(weight.numel() for weight in run.model.parameters())
for name in ("torch._dynamo", "regard.insight", "regard.exchange", "regard.web.lab"):
    assert name not in sys.modules, name
"""
    environment = {**os.environ, "REGARD_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_weights_are_never_pickled():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text
        assert "torch.load(" not in text
        assert "torch.save(" not in text


def test_only_one_door_leads_to_fast():
    """Without that package everything works, so nobody may import it but the door, which knows what to do then."""
    doors = {SOURCE / "runs" / "speed.py"}
    doors |= {
        SOURCE / "bench" / name for name in ("training_step.py", "fast_rows.py", "sizes.py")
    }  # a peer's graph; the table
    for path in FILES:
        if package_of(path) != "fast" and path not in doors:
            assert not any(name.startswith("regard.fast") for name in imports(path)), path


def test_runs_and_data_are_asked_and_not_told_apart_by_class():
    """Other code asks a run, its data or its task. `load` checks the class that it was asked for."""
    kinds = "(?:Pair|Language|Translation|Classification)?Run|(?:Text|Pair|Label)Data|(?:Pair)?Corpus|Pairs"
    told = re.compile(rf"isinstance\((?:\w+, (?:{kinds})|run, kind)\)")
    found = [path for path in FILES for _ in told.findall(path.read_text(encoding="utf-8"))]
    assert len(found) <= 5, sorted(map(str, found))


def test_one_public_class_name_has_one_meaning():
    """`Settings` aside, which every system has."""
    classes = [name for path in FILES for name in outline(path)[1]]
    assert {name for name in classes if classes.count(name) > 1} <= {"Settings"}


@pytest.mark.parametrize(
    "chosen, spins",
    [
        ({}, ("passive", "10000")),
        ({"OMP_WAIT_POLICY": "active"}, ("active", None)),
        ({"GOMP_SPINCOUNT": "7"}, ("passive", "7")),
    ],
)
def test_idle_threads_spin_for_a_moment_unless_the_user_chose_otherwise(chosen, spins):
    """Before torch is loaded: later it has no effect."""
    code = "import os, sys, regard; assert 'torch' not in sys.modules; print(*map(os.environ.get, sys.argv[1:]))"
    names = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
    environment = {name: value for name, value in os.environ.items() if name not in names} | chosen
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == [str(spin) for spin in spins], done.stderr
