"""Would the tests notice? Small faults are put into copies of the source, one at a time, and the tests that concern the
faulty file are run: `make mutants`, or `python tests/mutants.py evaluation compare --most 20`.

A fault is killed if a test fails, or if the tests take far longer than they should. Whatever survives is shown with its
line: there a test is missing, or the code says more than it must. The same seed draws the same faults.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
PACKAGES = ("evaluation", "compare", "report", "training", "text")
BY_COMMAND = {  # tests that reach a package through the command line: run last, and only if nothing failed before
    "evaluation": ["tests/cli/test_verbs.py"],
    "compare": [
        "tests/unit/test_side_by_side.py",
        "tests/cli/test_compare.py",
        "tests/cli/test_compare_translation.py",
    ],
    "training": ["tests/cli/test_kill.py"],
}
NEEDS_A_GPU = {"fast/captured_step.py", "fast/compiled.py", "training/distributed.py"}  # or several processes
PRELOADED = ["torch", "numpy", "pytest", "hypothesis", "sacrebleu", "tokenizers", "safetensors.torch"]
FORK = get_context("forkserver")
FORK.set_forkserver_preload(PRELOADED)

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
            ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    file: str  # below src/regard
    line: int
    words: str  # what stands there → what is put there
    source: str  # the whole file with the fault

    @property
    def package(self) -> str:
        return self.file.split("/")[0]


# -- faults ----------------------------------------------------------------------------------------------------------


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in a node's place by mistake."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        yield changed(node, ops=[COMPARED[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield changed(node, op=COMPUTED[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and len(node.args) > 1 and ast.dump(node.args[0]) != ast.dump(node.args[1]):
        either_way = ast.unparse(node.func) in ("min", "max")
        if not either_way and not any(isinstance(each, ast.Starred) for each in node.args):
            yield changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()


def changed(node: ast.AST, **parts: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in parts.items():
        setattr(other, name, value)
    return other


def places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Every node of the code as its parent's field; no types, no assertions, and nothing of an error's sentence."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.Raise):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield node, field, index
            yield from places(child)


def faults(path: Path) -> Iterator[Fault]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(SOURCE).as_posix()
    for parent, field, index in list(places(tree)):
        held = getattr(parent, field)
        node = held if index is None else held[index]
        for other in changes(node):
            put(parent, field, index, other)
            words = f"{ast.unparse(node)} → {'nothing' if isinstance(other, ast.Pass) else ast.unparse(other)}"
            yield Fault(file, getattr(node, "lineno", 0), " ".join(words.split()), ast.unparse(tree))
            put(parent, field, index, node)


def put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


# -- the tests that concern a file -----------------------------------------------------------------------------------


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules of Regard that a file imports, as paths below src/regard."""
    found = set()
    for module, names in re.findall(r"^\s*from regard\.?([\w.]*) import \(?([^)]*?)(?:\)|$)", path.read_text(), re.M):
        base = module.replace(".", "/")
        found.add(f"{base}.py")
        found |= {f"{base}/{name}.py".lstrip("/") for name in re.findall(r"\w+", names)}
    return frozenset(name for name in found if (SOURCE / name).is_file())


def concerned(file: str) -> list[str]:
    """The tests nearest to a file: those that import it, else those that import what imports it, and so on."""
    near = {file}
    tests = [path for path in sorted(ROOT.glob("tests/*/**/test_*.py")) if path.parent.name != "cli"]
    for _ in range(3):
        found = [
            path for path in tests if imported(path) & near and "cuda" not in path.name and "cli" not in path.parts
        ]
        if found:
            break
        near |= {p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*.py") if imported(p) & near}
    stem = Path(file).stem  # the test that is named like it comes first
    found.sort(key=lambda path: (stem not in path.stem, path.parent.name != "text", path.stat().st_size))
    return [str(path.relative_to(ROOT)) for path in found] + BY_COMMAND.get(file.split("/")[0], [])


def trial(tests: Sequence[str], source: str) -> None:
    """In a process of its own: these tests with that source. Exit code 0: all passed."""
    os.setsid()
    Thread(target=end_with_parent, daemon=True).start()
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = source  # also of the processes that tests start
    sys.path.insert(0, source)
    import pytest

    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))


def end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


def passes(tests: Sequence[str], fault: Fault | None, limit: float | None) -> bool:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder) / "regard"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        if fault is not None:
            (source / fault.file).write_text(fault.source, encoding="utf-8")
        process = FORK.Process(target=trial, args=(list(tests), folder))
        process.start()
        process.join(limit)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        return process.exitcode == 0


# -- the table -------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help=f"of src/regard, or files; {', '.join(PACKAGES)}")
    parser.add_argument("--most", type=int, default=20, help="faults of each package")
    parser.add_argument("--seed", type=int, default=1, help="which faults are drawn")
    parser.add_argument("--minutes", type=float, default=60, help="after these no further fault is tried")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    asked = parser.parse_args()
    ends = time.monotonic() + 60 * asked.minutes
    usual: dict[str, float] = {}  # seconds of the tests of a file, which pass without a fault

    def survives(fault: Fault) -> bool | None:
        """None: there was no time to try."""
        tests = concerned(fault.file)
        for test in tests:
            if test not in usual and time.monotonic() < ends:
                began = time.monotonic()
                if not passes([test], None, None):
                    sys.exit(f"{test} fails without any fault.")
                usual[test] = time.monotonic() - began
        if time.monotonic() > ends:
            return None
        survived = passes(tests, fault, 10 * sum(usual[test] for test in tests) + 60)
        print(f"{'survived' if survived else 'killed':8}  {fault.file}:{fault.line}  {fault.words[:160]}", flush=True)
        return survived

    rows = []
    for package in asked.packages:
        files = [SOURCE / package] if package.endswith(".py") else sorted((SOURCE / package).rglob("*.py"))
        files = [file for file in files if file.relative_to(SOURCE).as_posix() not in NEEDS_A_GPU]
        possible = [fault for file in files for fault in faults(file)]
        drawn = random.Random(f"{asked.seed} {package}").sample(possible, min(asked.most, len(possible)))
        with ThreadPoolExecutor(asked.jobs) as pool:
            outcomes = [outcome for outcome in pool.map(survives, drawn) if outcome is not None]
        rows.append((package, len(possible), len(outcomes), outcomes.count(False)))
    print(f"\n{'package':28}{'possible':>9}{'tried':>7}{'killed':>8}")
    for package, possible, tried, killed in rows:
        print(f"{package:28}{possible:9}{tried:7}{killed:8}   {killed / max(tried, 1):4.0%}")


if __name__ == "__main__":
    main()
