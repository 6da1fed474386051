"""Long work as processes of their own: each job is one `regard …` command, with its log in the lab's folder.

A training goes on when the page or the lab is closed; the next lab finds it by its record. Stopping asks it to stop,
which saves a checkpoint; going on is `regard resume`. Short jobs (a dry run, a check of data) end with the lab.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.files import write_text
from regard.lab.runs_folder import RunsFolder, is_working
from regard.report.table import finite

MOST_AT_ONCE = 4  # that stay, and as many that do not
MOST_LOG = 1 << 16  # bytes of a log that a page shows
STAY = {"training", "comparison"}  # kinds that go on when the lab ends
KEPT = 200  # records


class Jobs:
    def __init__(self, folder: RunsFolder):
        self.folder = folder
        self._own: dict[str, subprocess.Popen[bytes]] = {}  # started by this process

    @property
    def _place(self) -> Path:
        return self.folder.own / "jobs"

    def start(self, kind: str, words: Sequence[str], *, title: str, run: str = "") -> dict[str, Any]:
        """`regard WORDS` begins; `run`: the folder it works in, as a name in the runs folder."""
        alike = [job for job in self.list() if job["running"] and (job["kind"] in STAY) == (kind in STAY)]
        if len(alike) >= MOST_AT_ONCE:
            raise RegardError(f"{MOST_AT_ONCE} jobs run already: stop one, or wait until one has ended.")
        number = f"{time.time_ns():x}-{secrets.token_hex(3)}"
        place = self.folder.keep("jobs")
        with open(place / f"{number}.out", "xb") as out, open(place / f"{number}.log", "xb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "regard", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,  # closing the terminal or the lab does not end it
            )
        self._own[number] = process
        record = {
            "id": number,
            "kind": kind,
            "title": title,
            "words": list(words),
            "run": run,
            "pid": process.pid,
            "started": time.time(),
        }
        write_text(place / f"{number}.json", json.dumps(record, ensure_ascii=False))
        self._forget_old()
        return self.status(record)

    def list(self) -> list[dict[str, Any]]:
        """Newest first."""
        records = [self._record(path.stem) for path in sorted(self._place.glob("*.json"), reverse=True)]
        return [self.status(record) for record in records if record]

    def find(self, number: str) -> dict[str, Any]:
        record = self._record(number) if re.fullmatch(r"[0-9a-f-]{1,40}", number) else None
        if not record:
            raise RegardError("There is no such job.")
        return self.status(record)

    def of_run(self, name: str) -> dict[str, Any] | None:
        """The job that works in this run now."""
        return next((job for job in self.list() if job["run"] == name and job["running"]), None)

    def stop(self, number: str) -> dict[str, Any]:
        """Ask it to stop; a training saves a checkpoint first. Asked again, it is ended at once."""
        job = self.find(number)
        if job["running"]:
            asked = self._place / f"{number}.stop"
            with suppress(ProcessLookupError):
                os.kill(job["pid"], getattr(signal, "SIGKILL", signal.SIGTERM) if asked.exists() else signal.SIGTERM)
            asked.touch()
        return self.find(number)

    def status(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record, whether it runs, how it ended, and the last thing it said."""
        number = record["id"]
        process = self._own.get(number)
        code = process.poll() if process is not None else None
        running = code is None if process is not None else self._goes_on(record)
        stopped = (self._place / f"{number}.stop").exists()
        lines = [line for line in self.log(number).splitlines() if line.strip()]
        said = next((line[8:] for line in reversed(lines) if line.startswith("regard: ")), "")
        return finite(
            {key: record.get(key) for key in ("id", "kind", "title", "run", "pid", "started")}
            | {"command": "regard " + " ".join(map(str, record.get("words", [])))}
            | {"running": running, "code": code, "stopping": running and stopped, "stopped": stopped}
            | {"problem": said if not running and not stopped else "", "last": lines[-1] if lines else ""}
        )

    def log(self, number: str) -> str:
        """The end of what it said."""
        return self._end(f"{number}.log")

    def result(self, number: str) -> str:
        """What it printed: the JSON of a dry run or a check."""
        return self._end(f"{number}.out", 1 << 24)

    def close(self) -> int:
        """End what does not stay; the number of jobs that go on."""
        left = 0
        for number, process in self._own.items():
            if process.poll() is None:
                if (self._record(number) or {}).get("kind") in STAY:
                    left += 1
                else:
                    process.kill()
                    process.wait()
        return left

    def _record(self, number: str) -> dict[str, Any] | None:
        try:
            record = json.loads((self._place / f"{number}.json").read_text(encoding="utf-8"))
            kinds = {"id": str, "kind": str, "run": str, "pid": int, "words": list, "started": float}
            whole = isinstance(record, dict) and all(isinstance(record.get(key), kinds[key]) for key in kinds)
            return record if whole and record["id"] == number else None
        except (OSError, ValueError, RecursionError):
            return None

    def _goes_on(self, record: dict[str, Any]) -> bool:
        """Does a job of an earlier lab still run? Its number may belong to another process by now: the folder that it
        works in must be held, and where the system tells, the process must be its command."""
        try:
            if record["pid"] <= 1 or not is_working(self.folder.inside(str(record.get("run")))):
                return False
            os.kill(record["pid"], 0)
            told = Path(f"/proc/{record['pid']}/cmdline")
            return not told.exists() or b"\0-m\0regard\0" in told.read_bytes()
        except (OSError, RegardError):
            return False

    def _end(self, name: str, most: int = MOST_LOG) -> str:
        try:
            with open(self._place / name, "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - most))
                return stream.read(most).decode("utf-8", "replace")
        except OSError:
            return ""

    def _forget_old(self) -> None:
        for path in sorted(self._place.glob("*.json"), reverse=True)[KEPT:]:
            for ending in ("json", "log", "out", "stop"):
                path.with_suffix(f".{ending}").unlink(missing_ok=True)
