"""metrics.jsonl, the learning curve: a line of JSON for each log point and each validation, with a checksum at its end.

    {"step": 20, "tokens": 5120, "seconds": 0.31, "split": "valid", "loss": 2.31, "crc32": "5f0a1c22"}

A line is appended as it is measured, so the file grows while a run is trained, and a kill may cut its last line short.
Lines of older runs have no checksum.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.reading import read_whole
from regard.base.writing import append_line, write_text

Entry = dict[str, Any]
MAX_METRICS_BYTES = 1 << 28  # bytes: one line per second for three weeks
CHECKED = re.compile(rb', "crc32": "[0-9a-f]{8}"\}')  # the end of a line
SUM = len(', "crc32": "5f0a1c22"}')


def append_metrics(path: Path, row: Mapping[str, Any]) -> None:
    content = json.dumps(row)
    append_line(path, f'{content[:-1]}, "crc32": "{zlib.crc32(content.encode()):08x}"}}')


def sound_metrics(path: Path) -> tuple[list[Entry], int | None]:
    """The undamaged lines, and the number of the first damaged one. A last line that a kill cut short is left out."""
    found: list[Entry] = []
    damaged = None
    for number, line in enumerate(_lines(path), 1):
        entry = _entry(line)
        if entry is not None:
            found.append(entry)
        elif damaged is None and (line.endswith("\n") or "}" in line):
            damaged = number
    return found, damaged


def cut_metrics(path: Path, step: int) -> None:
    """Removes rows logged after the checkpoint, and an incomplete last line; refuses a file that is damaged."""
    if not path.is_file():
        return
    lines, kept = _lines(path), []
    for number, line in enumerate(lines, 1):
        entry = _entry(line)
        if entry is None and (line.endswith("\n") or "}" in line):
            raise RegardError(f"{path} is damaged on line {number}: restore it from a backup, or delete that line.")
        if entry is None or entry["step"] > step:
            break
        kept.append(line.removesuffix("\n") + "\n")
    if kept != lines or path.is_symlink() or path.stat().st_nlink > 1:  # a linked copy stays unchanged
        write_text(path, "".join(kept))


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    content = read_whole(path, MAX_METRICS_BYTES).decode(errors="replace")
    return [line for line in re.split(r"(?<=\n)", content) if line]


def as_written(line: bytes, entry: Mapping[str, Any]) -> bool:
    """Verifies a line's CRC-32. Lines from before the checksum are accepted if `split` is their only string."""
    if CHECKED.fullmatch(line[-SUM:]):
        return zlib.crc32(line[:-SUM] + b"}") == int(line[-10:-2], 16)
    return not any(isinstance(value, str) for name, value in entry.items() if name != "split")


def _entry(line: str) -> Entry | None:
    line = line.removesuffix("\n")
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or type(entry.get("step")) is not int or not as_written(line.encode(), entry):
        return None
    entry.pop("crc32", None)
    return entry
