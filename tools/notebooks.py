"""Executes the notebooks of the course and stores their outputs.

    python tools/notebooks.py [NAME …]          such as 5-attention; default: all

Each runs in a process of its own, in an empty folder, with IPython but without a kernel behind sockets. Sliders are
stored as three of their pictures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
KEPT = ("text/html", "text/plain", "image/png", "image/svg+xml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(outputs_of(json.loads(Path(options.names[0]).read_text(encoding="utf-8")))))
        return
    for path in [FOLDER / f"{name}.ipynb" for name in options.names] or sorted(FOLDER.glob("*.ipynb")):
        began = time.monotonic()
        store(path, executed(path))
        print(f"{path.stem}: {time.monotonic() - began:.0f} s, {path.stat().st_size:,} bytes", flush=True)


def executed(path: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell of a notebook, run in a new process and an empty folder."""
    command = [sys.executable, __file__, str(path), "--inside"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{path.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        left = sorted(Path(folder).iterdir())
    assert not left, f"{path.name} leaves files: {left}"
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def outputs_of(book: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Runs the code cells in this process; text that a cell prints comes before what it shows."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    sys.modules["ipywidgets"] = None  # type: ignore[assignment]  # a stored slider would be an empty frame
    shell, found = InteractiveShell.instance(colors="NoColor"), []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        with capture_output() as captured:
            result = shell.run_cell("".join(cell["source"]), store_history=True)
        result.raise_error()
        shown = [_shown(one.data) for one in captured.outputs]
        text = [{"name": "stdout", "output_type": "stream", "text": captured.stdout.splitlines(keepends=True)}]
        found.append((text if captured.stdout else []) + shown)
    return found


def _shown(data: dict[str, Any]) -> dict[str, Any]:
    kept = {kind: str(data[kind]).splitlines(keepends=True) for kind in KEPT if kind in data}
    return {"data": kept, "metadata": {}, "output_type": "display_data"}


def store(path: Path, outputs: list[list[dict[str, Any]]]) -> None:
    """Writes the notebook again, with these outputs."""
    book = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, (cell, shown) in enumerate(zip(code, outputs, strict=True), start=1):
        cell["execution_count"], cell["outputs"] = number, shown
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
