"""Would the tests notice? Small faults are put into copies of the source, one at a time, and the tests that run the
faulty line are run: `make mutants`, or `python tools/mutants.py evaluation compare --most 40 --seed 2`.

TESTS names the test files of a package. Each is run once with coverage, so that it is known which test runs which
line; lines of a fixture that tests share count for all tests of the file. A fault is killed if a test fails, or if the
tests take far longer than they should. Whatever survives is shown with its line: there a test is missing, or the code
says more than it must. Faults that change nothing stand in equivalent_mutants.toml, each with the reason, and are not
drawn. The same seed draws the same faults.

One process imports the package and its tests; for each fault a copy of it is forked, gets the faulty functions and
runs the tests. A fault outside functions, and whatever survives so, is tried in a new process that imports a faulty
copy of the source: that verdict counts. `--most 0` tries every fault.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from inspect import CO_OPTIMIZED
from itertools import accumulate, islice
from math import inf
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
QUICK = 2.0  # seconds of a test
KNOWN = ROOT / ".pytest_cache" / "mutants"  # which test runs which line, as it was measured
UNIT = ROOT / "tests" / "unit"
LONG = {  # files of tests/cli that take more than a quarter of a minute, most of them in processes of their own
    *("bench", "compare", "compare_translation", "elsewhere", "environments", "exercise", "fault_injection", "gallery"),
    *("kill", "lecture", "own_layer", "readme", "shown_outputs", "torchrun", "translation", "wheel", "without_fast"),
}
ALSO = {  # tests of other folders that hold a package's lines, below tests/
    "corpora": ["unit/text/test_builtin.py", "unit/text/test_fetch.py", "unit/text/test_phrasebook.py",
                "unit/text/test_corpus.py"],
    "base": ["unit/text/test_word_spans.py", "unit/text/test_fetch.py", "unit/text/test_tokenizer.py"],
    "evaluation": ["unit/claims/test_verdict.py", "unit/comparison/test_comparison.py",
                   "unit/comparison/test_comparison_translation.py"],
    "fast": ["unit/decoding/test_decode_step.py", "unit/training/test_capture.py"],
    "insight": ["laws/test_laws_of_interventions.py"],
    "report": ["unit/insight/test_report_insight.py", "unit/claims/test_report_claims.py",
               "unit/web/lab/test_worker.py"],
    "training": ["unit/runs/test_recipe.py"],
    "web": ["unit/comparison/test_comparison_report.py", "unit/comparison/test_tuning.py",
            "unit/comparison/test_comparison_translation.py"],
    "runs": ["cli/test_runs.py", "cli/test_translation.py", "cli/test_fine_tuning.py", "cli/test_track.py",
             "unit/evaluation/test_classification.py"],
    "bench": ["cli/test_bench.py"],
    "text": ["unit/evaluation/test_classification.py", "unit/training/test_prefetch.py", "unit/runs/test_kept_data.py",
             "unit/exchange/test_foreign_tokenizers.py"],
    "laws": ["laws/test_every_system.py", "laws/test_every_layer.py"],
    "layers": ["laws/test_every_layer.py", "laws/test_every_system.py"],
    "systems": ["laws/test_every_system.py", "cli/test_own_layer.py"],
    "decoding": ["laws/test_decoding.py", "laws/test_generation.py"],
    "cli": [
        f"cli/{path.name}"
        for path in sorted((ROOT / "tests" / "cli").glob("test_*.py"))
        if path.stem.removeprefix("test_") not in LONG
    ],
}  # fmt: skip
TESTS = {  # of each package, below tests/; those that are marked slow are left out
    folder.name: [
        *(str(path.relative_to(ROOT / "tests")) for path in sorted((UNIT / folder.name).rglob("test_*.py"))),
        *ALSO.get(folder.name, []),
    ]
    for folder in sorted(SOURCE.iterdir())
    if (folder / "__init__.py").exists()
}
NEEDS_A_GPU = ("fast/kernels/", "training/distributed.py")  # or several processes
SHEETS = "learn/exercises/sheets/"  # pages that tests fill in and run as files of their own: no import runs their lines
PRELOADED = ["torch", "numpy", "pytest", "hypothesis", "sacrebleu", "tokenizers", "safetensors.torch", "coverage"]
PRELOADED += ["regex", "rich.console", "cyclopts", "starlette.applications", "pytest_timeout"]
PRELOADED += ["torch._dynamo", "torch.testing"]  # torch's optimisers import the first one
PYTEST = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin"]
FORK = get_context("forkserver")
FORK.set_forkserver_preload(PRELOADED)

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
            ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip

EITHER_WAY = {"min", "max", "minimum", "maximum", "gcd", "promote_types", "transpose"}  # f(a, b) is f(b, a)
GPU = "device.type == 'cuda'"


@dataclass(frozen=True)
class Fault:
    file: str  # below src/regard
    line: int
    until: int  # the last line of what is changed
    code: str  # the line
    words: str  # what stands there → what is put there
    source: Callable[[], str]  # the whole file with the fault
    tree: Callable[[], ast.Module] | None = None  # the same, with the lines of the file as it is


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
        yield ast.Constant(node.value + 1 if node.value + 1 != node.value else 2 * node.value)
    elif isinstance(node, ast.Call) and len(node.args) > 1 and ast.dump(node.args[0]) != ast.dump(node.args[1]):
        either_way = ast.unparse(node.func).split(".")[-1] in EITHER_WAY
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
    """Every node of the code as its parent's field; no types, no assertions (as zip's `strict` is), nothing of an
    error's sentence, and nothing that only a GPU runs."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        if field == "body" and isinstance(node, ast.If | ast.IfExp) and ast.unparse(node.test).endswith(GPU):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.Raise):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield node, field, index
            yield from places(child)


def faults(path: Path) -> Iterator[Fault]:
    text = path.read_text(encoding="utf-8")
    lines, file = text.splitlines(), path.relative_to(SOURCE).as_posix()
    for number, (node, other, _) in enumerate(every_change(ast.parse(text))):
        words = f"{ast.unparse(node)} → {'nothing' if isinstance(other, ast.Pass) else ast.unparse(other)}"
        at, until = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
        source, tree = partial(faulty, text, number), partial(faulty_tree, text, number)
        yield Fault(file, at, until, lines[at - 1].strip(), " ".join(words.split()), source, tree)


def every_change(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, Callable[[ast.AST], None]]]:
    """What stands there, what could, and how to put one in the place of the other."""
    for parent, field, index in list(places(tree)):
        held = getattr(parent, field)
        node = held if index is None else held[index]
        for other in changes(node):
            yield node, other, partial(put, parent, field, index)


def faulty(text: str, number: int) -> str:
    """The source with this change."""
    return ast.unparse(faulty_tree(text, number))


def faulty_tree(text: str, number: int) -> ast.Module:
    """The same as a tree, whose lines are those of the text."""
    tree = ast.parse(text)
    node, other, put_there = next(islice(every_change(tree), number, None))
    put_there(ast.copy_location(other, node))
    return ast.fix_missing_locations(tree)


def put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def equivalent() -> set[tuple[str, str, str]]:
    """Faults that change nothing: file, line, change."""
    listed = tomllib.loads((ROOT / "tools" / "equivalent_mutants.toml").read_text(encoding="utf-8"))["fault"]
    return {(each["file"], each["code"], each["words"]) for each in listed}


# -- which test runs which line --------------------------------------------------------------------------------------


class Watch:
    """A plugin of pytest: coverage's context is the test, or the test's file while a fixture is made that is shared."""

    def __init__(self, file: str, coverage: Any):
        self.file, self.coverage, self.seconds = file, coverage, dict[str, float]()
        self.failed = set[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        self.coverage.switch_context(item.nodeid)
        done = yield
        self.coverage.switch_context("")
        self.seconds[item.nodeid] = time.monotonic() - began
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        self.coverage.switch_context(self.file)
        try:
            return (yield)
        finally:
            self.coverage.switch_context(request._pyfuncitem.nodeid)


def watch(file: str, packages: Sequence[str], source: str, out: str) -> None:
    """In a process of its own: which tests of a file run which lines of these packages, and how long they take."""
    into(source)
    from coverage import Coverage

    coverage = Coverage(
        data_file=None, include=[f"{source}/regard/{package}/*" for package in packages], messages=False
    )
    watched = Watch(file, coverage)
    coverage.start()
    code = pytest.main([*PYTEST, file], plugins=[watched])
    coverage.stop()
    data, ran = coverage.get_data(), {}
    for path in data.measured_files():
        by_line = {
            line: [context for context in found if context] for line, found in data.contexts_by_lineno(path).items()
        }
        ran[Path(path).relative_to(Path(source) / "regard").as_posix()] = by_line
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED):
        passed = {test: seconds for test, seconds in watched.seconds.items() if test not in watched.failed}
        found = {"seconds": passed, "failed": sorted(watched.failed), "ran": ran}
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    sys.exit(code)


@cache
def measured(file: str) -> dict[str, Any]:
    """What `watch` found out, now or before."""
    packages = [package for package, files in TESTS.items() if file.removeprefix("tests/") in files]
    paths = [ROOT / file, *(path for package in packages for path in sorted((SOURCE / package).rglob("*.py")))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
    known = KNOWN / f"{file.replace('/', '-')}-{digest}.json"
    if not known.exists():
        known.parent.mkdir(parents=True, exist_ok=True)
        with copied(None) as source:
            process = FORK.Process(target=watch, args=(file, packages, source, str(known)))
            process.start()
            process.join()
        if not known.exists():
            sys.exit(f"{file} cannot be run.")
    found = json.loads(known.read_text(encoding="utf-8"))
    for test in found.get("failed", ()):
        print(f"{test} fails without any fault, and is left out.", flush=True)
    return found


def concerned(fault: Fault, most: float) -> dict[str, float]:
    """The tests that run a faulty line, the quick files first, and the seconds of each: as many as take `most` seconds
    together. A line that is run when its module is imported, or in another process, concerns all tests that run
    anything of the module, and the quick ones of the files that do or that import it: they may look at what it says."""
    declared = fault.line not in in_functions(fault.file)
    by_file = {} if declared else tests_of(fault, declared)
    by_file = by_file or tests_of(fault, declared=True)
    order = sorted(by_file.values(), key=lambda tests: sum(seconds for seconds, _ in tests))
    found = {test: seconds for tests in order for seconds, test in tests}
    return {test: found[test] for test, so_far in zip(found, accumulate(found.values())) if so_far <= most}


def tests_of(fault: Fault, declared: bool) -> dict[str, list[tuple[float, str]]]:
    by_file = {}
    for name in TESTS[fault.file.split("/")[0]]:
        file = f"tests/{name}"
        found = measured(file)
        if fault.file.startswith(SHEETS):  # the tests of this page, by name
            named = [test for test in found["seconds"] if f"[{Path(fault.file).stem}" in test]
            by_file |= {file: sorted((found["seconds"][test], test) for test in named)} if named else {}
            continue
        ran = found["ran"].get(fault.file, {})
        lines = map(int, ran) if declared else range(fault.line, fault.until + 1)
        contexts = {context for line in lines for context in ran.get(str(line), [])}
        if declared and (contexts or imports(file, fault.file)):
            contexts |= {test for test, seconds in found["seconds"].items() if seconds < QUICK}
        tests = [test for test in found["seconds"] if test in contexts or file in contexts]
        if tests:
            by_file[file] = sorted((found["seconds"][test], test) for test in tests)
    return by_file


@cache
def in_functions(file: str) -> set[int]:
    """The lines of a source file that are run when a function is called."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    called = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = {line for one in called for line in range(one.body[0].lineno, (one.end_lineno or one.lineno) + 1)}
    return found | {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Lambda)}


def imports(file: str, module: str) -> bool:
    """Does a test file name this module in an import?"""
    package, _, name = f"regard/{module.removesuffix('.py')}".replace("/", r"\.").rpartition(r"\.")
    return bool(
        re.search(
            rf"^(?:from|import) {package}(?:\.| import (?:[^\n(]*|\([^)]*)\b){name}\b",
            (ROOT / file).read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )


# -- a fault and its tests -------------------------------------------------------------------------------------------


def into(source: str) -> None:
    """A new process with that source, quiet, which ends with its parent."""
    os.setsid()
    Thread(target=end_with_parent, daemon=True).start()
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["PYTHONPATH"] = source  # also of the processes that tests start
    sys.path.insert(0, source)


class Order:
    """A plugin of pytest: of the files, the named tests are run, the quick ones first. Each may take five times as long
    as the longest of its file, which may have made what they share, and half a minute. If a fault changes the names of
    a test's cases, all its cases are run."""

    def __init__(self, tests: Mapping[str, float]):
        self.place = {test: number for number, test in enumerate(tests)}
        self.longest: dict[str, float] = {}
        for test, seconds in tests.items():
            file = test.split("::")[0]
            self.longest[file] = max(seconds, self.longest.get(file, 0.0))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        renamed = {test.split("[")[0] for test in self.place.keys() - {item.nodeid for item in items}}
        items[:] = [item for item in items if item.nodeid in self.place or item.nodeid.split("[")[0] in renamed]
        items.sort(key=lambda item: self.place.get(item.nodeid, 0))
        self.limit(items)

    def limit(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            limit = 5 * self.longest[item.nodeid.split("::")[0]] + 30
            item.add_marker(pytest.mark.timeout(limit, method="thread"))  # which ends the process

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # the file cannot be imported; pytest would say that its tests are not there
            os._exit(pytest.ExitCode.TESTS_FAILED)


def trial(tests: Mapping[str, float], source: str) -> None:
    """In a process of its own: these tests with that source. Exit code 0: all passed."""
    into(source)
    Path(source, "begun").touch()
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    sys.exit(pytest.main(["-x", *PYTEST, *files], plugins=[Order(tests)]))


def end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


@contextmanager
def copied(fault: Fault | None) -> Iterator[str]:
    """A folder with the source, and the fault in it. What Python has compiled is copied too: it is still valid. Beside
    it, as in the repository, are the pages that it reads."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source / "regard")
        for beside in ("docs", "notebooks", "notes"):  # pages that the source finds from where it is
            (Path(folder) / beside).symlink_to(ROOT / beside, target_is_directory=True)
        if fault is not None:
            (source / "regard" / fault.file).write_text(fault.source(), encoding="utf-8")
        yield str(source)


def known_faults() -> Iterator[tuple[Fault, str]]:
    """Faults that once survived, and the test that must kill each."""
    for each in tomllib.loads((ROOT / "tools" / "known_faults.toml").read_text(encoding="utf-8"))["fault"]:
        text = (SOURCE / each["file"]).read_text(encoding="utf-8")
        before, was, after = text.partition(each["was"])
        assert text.count(each["was"]) == 1, f"{each['file']} does not say once: {was}"
        line, words = before.count("\n") + 1, " ".join(f"{was} → {each['becomes']}".split())
        source = before + each["becomes"] + after
        yield Fault(each["file"], line, line, was, words, lambda source=source: source), f"tests/{each['test']}"


def result(fault: Fault, tests: Mapping[str, float]) -> str:
    """What comes of a fault and its tests, of which the seconds are known."""
    if not tests:
        return "not run"
    with copied(fault) as source:
        process = FORK.Process(target=trial, args=(tests, source))
        process.start()
        process.join(5 * sum(tests.values()) + 60)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return "too long"
        if not Path(source, "begun").exists():
            return "not run"  # the process failed
        if process.exitcode == pytest.ExitCode.USAGE_ERROR and not all(
            (ROOT / test.split("::")[0]).exists() for test in tests
        ):
            return "not run"  # else a conftest.py cannot be imported, which nobody can overlook
    return "survived" if process.exitcode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else "killed"


# -- many faults in copies of one process ------------------------------------------------------------------------------

UNSUITED = 75  # the exit code of a copy that could not be given its fault
CONTROL = -1  # the number of a copy without a fault, in which the tests that killed one must pass


class Copies:
    """A plugin of pytest: where the tests would be run, a copy of this process is made for each fault; and one more, in
    which the tests that failed must pass."""

    def __init__(
        self,
        work: Sequence[tuple[Fault, Mapping[str, float]]],
        jobs: int,
        source: str,
        results: Any,
    ):
        self.work, self.jobs, self.source, self.results = work, jobs, source, results

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for file in {fault.file for fault, _ in self.work}:
            importlib.import_module("regard." + file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        self.items = {item.nodeid: item for item in session.items}
        self.functions = defaultdict[CodeType, list[FunctionType]](list)
        gc.unfreeze()  # what tests/conftest.py froze would not be found
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(self.source):
                self.functions[each.__code__].append(each)
        gc.freeze()
        running: dict[int, tuple[int, float]] = {}  # process: number of the fault, when its time is up
        for number, (fault, tests) in enumerate(self.work):
            while len(running) >= self.jobs:
                self.wait(running)
            process = os.fork()
            if not process:
                os._exit(self.trial(session, fault, tests))
            running[process] = number, time.monotonic() + 5 * sum(tests.values()) + 60
        while running:
            self.wait(running)
        killers = {path.read_text(encoding="utf-8"): 60.0 for path in sorted(Path(self.source).glob("killer-*"))}
        if not (process := os.fork()):
            os._exit(self.trial(session, None, killers))
        running[process] = CONTROL, inf
        self.wait(running)
        return True

    def wait(self, running: dict[int, tuple[int, float]]) -> None:
        """Until a copy ends or one's time is up."""
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process in running:
                self.results.send((running.pop(process)[0], os.waitstatus_to_exitcode(status)))
                return
            for late in [each for each, (_, until) in running.items() if time.monotonic() > until]:
                os.killpg(late, signal.SIGKILL)
            time.sleep(0.005)

    def trial(self, session: pytest.Session, fault: Fault | None, tests: Mapping[str, float]) -> int:
        os.setsid()
        try:
            chosen = [self.items[test] for test in tests]
            if fault is not None and (fault.tree is None or not self.put(fault, fault.tree())):
                return UNSUITED
            Order(tests).limit(chosen)
            for item, following in zip(chosen, [*chosen[1:], None]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    name = "uncontrolled" if fault is None else f"killer-{os.getpid()}"
                    Path(self.source, name).write_text(item.nodeid, encoding="utf-8")
                    return pytest.ExitCode.TESTS_FAILED
            return pytest.ExitCode.OK
        except BaseException:
            return UNSUITED

    def put(self, fault: Fault, tree: ast.Module) -> bool:
        """Gives the faulty code to the functions that have it. False: it is no function's."""
        text = (Path(self.source) / "regard" / fault.file).read_text(encoding="utf-8")
        here, there = (compile(made, fault.file, "exec", dont_inherit=True) for made in (ast.parse(text), tree))
        changes = list(differences(here, there))
        given = [(function, becomes) for was, becomes in changes for function in self.functions.get(was, ())]
        if not given or not all(was.co_flags & CO_OPTIMIZED for was, _ in changes):  # a module's or a class's own code
            return False
        for function, becomes in given:
            function.__code__ = becomes
        return True


def differences(here: CodeType, there: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code that differs, with all code around it that is a function's."""
    within = [[part for part in code.co_consts if isinstance(part, CodeType)] for code in (here, there)]
    found: list[tuple[CodeType, CodeType]] = []
    if [part.co_qualname for part in within[0]] == [part.co_qualname for part in within[1]]:
        found = [pair for both in zip(*within, strict=True) for pair in differences(*both)]
    if said(here) != said(there) or (found and here.co_flags & CO_OPTIMIZED):
        found.append((here, there))
    yield from found


def said(code: CodeType) -> tuple[object, ...]:
    """What it does itself, without the code within it."""
    constants = [repr(part) for part in code.co_consts if not isinstance(part, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def in_copies(files: Sequence[str], source: str, *about: Any) -> None:
    into(source)
    pytest.main([*PYTEST, "--capture=no", *files], plugins=[Copies(*about[:2], source, about[2])])


def outcomes(package: str, drawn: Sequence[Fault], jobs: int, most: float) -> Iterator[tuple[Fault, str]]:
    """What comes of each, as it comes."""
    tests = {number: concerned(fault, most) for number, fault in enumerate(drawn)}
    left = [number for number in tests if tests[number]]
    receive, send = FORK.Pipe(duplex=False)
    work = [(drawn[number], tests[number]) for number in left]
    files = [f"tests/{name}" for name in TESTS[package.split("/")[0]]]
    with copied(None) as source:
        process = FORK.Process(target=in_copies, args=(files, source, work, jobs, send))
        process.start()
        send.close()
        killed, controlled = set(), False
        while len(killed) < len(left) or not controlled:
            try:
                place, code = receive.recv()
            except EOFError:
                break
            if place == CONTROL:
                controlled = True
                if code != pytest.ExitCode.OK:
                    test = Path(source, "uncontrolled")
                    name = test.read_text(encoding="utf-8") if test.exists() else "A test"
                    sys.exit(f"{name} fails in a copy of its process without any fault.")
            if code in (pytest.ExitCode.OK, UNSUITED):
                continue
            number = left[place]
            killed.add(number)
            yield drawn[number], "killed" if code >= 0 else "too long"
        process.join()
    again = [number for number in tests if number not in killed]
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda number: result(drawn[number], tests[number]), again)
        yield from zip((drawn[number] for number in again), results, strict=True)


# -- the table -------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=[*TESTS], help=f"of src/regard, or files; {', '.join(TESTS)}")
    parser.add_argument("--most", type=int, default=40, help="faults of each package; 0 = all")
    parser.add_argument("--seed", type=int, default=1, help="which faults are drawn")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("--without", nargs="*", default=[], help="test files, below tests/, that take too long")
    parser.add_argument("--seconds", type=float, default=inf, help="of tests for each fault, the quick ones first")
    parser.add_argument("--known", action="store_true", help="only the faults of known_faults.toml")
    asked = parser.parse_args()
    if asked.known:
        came = []
        for fault, test in known_faults():
            came.append(result(fault, {test: 60.0}))
            print(f"{came[-1]:8}  {fault.file}:{fault.line}  {fault.words[:160]}", flush=True)
        sys.exit(came.count("killed") != len(came))
    for files in TESTS.values():
        files[:] = [file for file in files if file not in asked.without]
    rows, nothing, began = [], equivalent(), time.time()
    for package in asked.packages:
        files = [SOURCE / package] if package.endswith(".py") else sorted((SOURCE / package).rglob("*.py"))
        files = [file for file in files if not file.relative_to(SOURCE).as_posix().startswith(NEEDS_A_GPU)]
        possible = [fault for file in files for fault in faults(file)]
        possible = [fault for fault in possible if (fault.file, fault.code, fault.words) not in nothing]
        most = min(asked.most or len(possible), len(possible))
        drawn = random.Random(f"{asked.seed} {package}").sample(possible, most)
        for test in TESTS[package.split("/")[0]]:
            measured(f"tests/{test}")
        found = []
        for fault, came in outcomes(package, drawn, asked.jobs, asked.seconds):
            if any((ROOT / "tests" / test).stat().st_mtime > began for test in TESTS[fault.file.split("/")[0]]):
                sys.exit("A test was changed in the meantime: begin again.")
            print(f"{came:8}  {fault.file}:{fault.line}  {fault.words[:160]}", flush=True)
            found.append(came)
        killed = sum(came in ("killed", "too long") for came in found)
        rows.append((package, len(possible), len(found), killed))
    print(f"\n{'package':28}{'possible':>9}{'tried':>7}{'killed':>8}")
    for package, total, tried, killed in rows:
        print(f"{package:28}{total:9}{tried:7}{killed:8}   {killed / max(tried, 1):4.0%}")


if __name__ == "__main__":
    main()
