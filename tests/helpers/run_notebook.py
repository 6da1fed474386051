"""Runs the code cells of a notebook in IPython, in one process, and prints what they show as JSON.

    python run_notebook.py NOTEBOOK

There is no kernel behind sockets: now and then one loses a request, and its client waits for ever.
"""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


def main() -> None:
    shell = InteractiveShell.instance()
    shown = []
    for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        with capture_output() as captured:
            result = shell.run_cell("".join(cell["source"]), store_history=True)
        result.raise_error()
        shown.append({"text": captured.stdout, "data": [output.data for output in captured.outputs]})
    print(json.dumps(shown, default=str))


if __name__ == "__main__":
    main()
