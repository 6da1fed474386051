"""The process that opens models for the page: `python -m regard.web.lab.worker_process FOLDER`, started by `worker.py`.

It answers one question at a time. A question "sentence.trace" is the function WORK["trace"] of the module
`work_sentence.py`: it gets the runs folder and the fields that `requests.py` declares, and returns something that JSON
can hold, or the bytes of `packed_arrays.pack`. A RegardError becomes a sentence on the page; any other exception
becomes a sentence too, and its stack goes to the terminal. Questions and answers are frames on stdin and stdout: a line
of JSON that ends with the number of bytes that follow, and those bytes.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from regard.base.errors import RegardError
from regard.report.table import finite
from regard.web.lab.requests import QUESTIONS
from regard.web.lab.runs_folder import RunsFolder

VIEWS = ("runs", "sentence", "translation", "time", "text", "claims", "ladder", "exercises")  # that have a work_VIEW.py


def answer(folder: RunsFolder, question: dict[str, Any]) -> tuple[str, bytes]:
    """How it went (json, binary, refused or failed), and what is sent back."""
    try:
        view, _, name = str(question["work"]).partition(".")
        if view not in VIEWS:
            raise RegardError(f"There is no view {view!r}.")
        work = import_module(f"regard.web.lab.work_{view}").WORK[name]
        found = work(folder, QUESTIONS[question["work"]].read(question["body"]))
        if isinstance(found, bytes):
            return "binary", found
        return "json", json.dumps(finite(found), ensure_ascii=False).encode("utf-8", "backslashreplace")
    except RegardError as error:
        return "refused", " ".join(str(error).split()).encode("utf-8", "backslashreplace")
    except MemoryError:
        return "refused", b"There is not enough memory for this: choose a smaller model or a shorter text."
    except Exception as error:
        traceback.print_exc()
        return (
            "failed",
            f"The model failed to answer this request ({type(error).__name__}): see the lab's terminal.".encode(),
        )


def main() -> None:
    channel: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to the log, not between the answers
    folder = RunsFolder(Path(sys.argv[1]))
    for line in sys.stdin.buffer:
        kind, content = answer(folder, json.loads(line))
        channel.write(json.dumps({"kind": kind, "bytes": len(content)}).encode() + b"\n" + content)
        channel.flush()


if __name__ == "__main__":
    main()
