"""The Python of README.md and docs/, checked by mypy and pyright: `python tools/typed_docs.py`, part of `make check`.

Each page becomes one module whose lines have the page's numbers, so an error names the line of the page. In a session
(`>>> …`) only what is typed is code. A block that returns becomes a function. A page's first line declares the names
that its fragments take as given.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GIVEN = {  # of fragments: what a reader of the page has at hand
    "docs/architecture.md": "model words state Row partial run chained may_be_chained _replayed needs_cuda",
    "docs/exercises.md": "query key value mask torch",
    "docs/guides/inspect.md": "head t s",
    "docs/guides/translation.md": "model source lengths words state",
}
MYPY = ["--cache-dir=.mypy_cache/docs", "--check-untyped-defs", "--ignore-missing-imports", "--no-error-summary"]


def name_of(page: Path) -> str:
    return Path(os.path.relpath(page, ROOT)).as_posix()


def python_of(page: Path) -> str:
    """The module of a page."""
    code, inside, fence = [], False, 0
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        begins, ends = line.strip() == "```python", inside and line.strip() == "```"
        if begins:
            fence = number
        inside = (inside or begins) and not ends
        code.append(line if inside and not begins else "")
        if ends:
            code[fence:number] = _block(code[fence:number], fence)
    given = GIVEN.get(name_of(page), "").split()
    if given:
        assert not code[0]
        code[0] = "from typing import Any; " + "; ".join(f"{each}: Any = ..." for each in given)
    return "\n".join(code) + "\n"


def _block(lines: list[str], number: int) -> list[str]:
    """The lines of a block and of the fence above it, as code."""
    if any(line.startswith(">>> ") for line in lines):
        return [line[4:] if line.startswith((">>> ", "... ")) else "" for line in lines]
    if any(re.match("return ", line) for line in lines):
        return [f"def fragment_{number}() -> Any:", *(f"    {line}" for line in lines[1:])]
    return lines


def main() -> int:
    with TemporaryDirectory() as folder:
        modules = {}
        for page in PAGES:
            code, name = python_of(page), name_of(page)
            if code.strip():
                module = Path(folder) / f"{re.sub(r'[^a-zA-Z0-9]', '_', name)}.py"
                module.write_text(code, encoding="utf-8")
                modules[str(module)] = name
        wrong = _run([sys.executable, "-m", "mypy", *MYPY, *modules], modules)
        if find_spec("pyright") is None or which("node") is None:
            print("pyright or Node.js is not installed: only mypy has checked the Python of the documentation.")
            return wrong
        return wrong | _run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *modules], modules)


def _run(command: list[str], modules: dict[str, str]) -> int:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = done.stdout + done.stderr
    for module, page in modules.items():
        said = said.replace(module, page)
    if done.returncode:
        print(said)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
