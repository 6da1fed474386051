"""Long work as processes of their own: each job is one `regard …` command, with its log in the lab's folder.

Training continues when the page or the lab is closed; the next lab finds it by its record. Stopping asks it to stop,
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
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.reading import parse_object
from regard.base.writing import open_own_file, write_text
from regard.report.table import finite
from regard.runs.store.list import is_running
from regard.web.lab.runs_folder import RunsFolder

MOST_AT_ONCE = 4  # that stay, and as many that do not
MOST_LOG = 1 << 16  # bytes of a log that a page shows
STAY = {"training", "comparison"}  # kinds that go on when the lab ends
KEPT = 200  # records


class Jobs:
    def __init__(self, folder: RunsFolder):
        self.folder = folder
        self._own: dict[str, subprocess.Popen[bytes]] = {}  # started by this process
        self._starting = threading.Lock()
        self._asked: set[str] = set()  # asked by this process to stop: a file may have been put there by anyone

    def start(self, kind: str, words: Sequence[str], *, title: str, run: str = "") -> dict[str, Any]:
        """`regard WORDS` begins; `run`: the folder it works in, as a name in the runs folder."""
        with self._starting:  # of requests at the same time one is counted after the other
            return self._start(kind, words, title, run)

    def start_new(
        self, kind: str, words: Sequence[str], title: Callable[[str], str], *, name: str = "", wanted: str
    ) -> dict[str, Any]:
        """`regard WORDS` begins in a new folder; one without a name gets `wanted`, or wanted-2, wanted-3, …, which no
        folder and no running job has."""
        with self._starting:
            if not name:
                name = self.folder.free_name(wanted, {job["run"] for job in self.list() if job["running"]})
            return self._start(kind, [*words, f"--run={self.folder.new(name)}"], title(name), name)

    def _start(self, kind: str, words: Sequence[str], title: str, run: str) -> dict[str, Any]:
        alike = [job for job in self.list() if job["running"] and (job["kind"] in STAY) == (kind in STAY)]
        if len(alike) >= MOST_AT_ONCE:
            raise RegardError(f"{MOST_AT_ONCE} jobs are already running: stop one, or wait until one finishes.")
        number = f"{time.time_ns():x}-{secrets.token_hex(3)}"
        place = self.folder.keep("jobs")
        try:
            with open(place / f"{number}.out", "xb") as out, open(place / f"{number}.log", "xb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "regard", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    start_new_session=True,  # closing the terminal or the lab does not end it
                )
        except OSError as error:
            raise RegardError(f"The job could not be started ({error.strerror or error}): try again.") from None
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
        write_text(place / f"{number}.json", json.dumps(record))
        self._forget_old(place)
        return self.status(record)

    def list(self) -> list[dict[str, Any]]:
        """Newest first."""
        records = [self._record(name) for name in reversed(self._numbers())]
        return [self.status(record) for record in records if record]

    def find(self, number: str) -> dict[str, Any]:
        record = self._record(number)
        if not record:
            raise RegardError("There is no such job.")
        return self.status(record)

    def of_run(self, name: str) -> dict[str, Any] | None:
        """The job that is working on this run."""
        return next((job for job in self.list() if job["run"] == name and job["running"]), None)

    def stop(self, number: str) -> dict[str, Any]:
        """Ask it to stop; a training saves a checkpoint first. A second request ends it at once."""
        job = self.find(number)
        if job["running"]:
            how = getattr(signal, "SIGKILL", signal.SIGTERM) if job["stopping"] else signal.SIGTERM
            self._asked.add(number)
            process = self._own.get(number)
            with suppress(ProcessLookupError):
                process.send_signal(how) if process is not None else os.kill(job["pid"], how)
            os.close(open_own_file(self.folder.keep("jobs") / f"{number}.stop", os.O_WRONLY))
        return self.find(number)

    def status(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record, whether it runs, how it ended, and the last thing it said."""
        number = record["id"]
        process = self._own.get(number)
        code = process.poll() if process is not None else None
        running = code is None if process is not None else self._goes_on(record)
        place = self.folder.own("jobs")
        stopped = place is not None and os.path.lexists(place / f"{number}.stop")
        lines = [line for line in self.log(number).splitlines() if line.strip()]
        said = next((line[8:] for line in reversed(lines) if line.startswith("regard: ")), "")
        return finite(
            {key: record[key] for key in ("id", "kind", "title", "run", "pid", "started")}
            | {"command": "regard " + " ".join(record["words"])}
            | {"running": running, "code": code, "stopping": running and number in self._asked, "stopped": stopped}
            | {"problem": said if not running and not stopped else "", "last": lines[-1] if lines else ""}
        )

    def log(self, number: str) -> str:
        """The end of what it said."""
        return self.folder.read_own("jobs", f"{number}.log", MOST_LOG).decode("utf-8", "replace")

    def result(self, number: str) -> str:
        """Its output: the JSON of a dry run or a check."""
        return self.folder.read_own("jobs", f"{number}.out").decode("utf-8", "replace")

    def close(self) -> int:
        """End temporary jobs; return the number of jobs that continue."""
        left = 0
        for number, process in self._own.items():
            if process.poll() is None:
                if (self._record(number) or {}).get("kind") in STAY:
                    left += 1
                else:
                    process.kill()
                    process.wait()
        return left

    def _numbers(self) -> Sequence[str]:
        """The recorded jobs, oldest first."""
        return [name[:-5] for name in self.folder.own_names("jobs") if name.endswith(".json")]

    def _record(self, number: str) -> dict[str, Any] | None:
        """The record of a job; None if `start` did not write it, as in someone else's folder."""
        if not re.fullmatch(r"[0-9a-f-]{1,40}", number):
            return None
        record = parse_object(self.folder.read_own("jobs", f"{number}.json")) or {}
        kinds = {"id": str, "kind": str, "title": str, "words": list, "run": str, "pid": int, "started": float}
        whole = all(type(record.get(key)) is kind for key, kind in kinds.items())
        if not whole or record["id"] != number or not all(isinstance(word, str) for word in record["words"]):
            return None
        return record

    def _goes_on(self, record: dict[str, Any]) -> bool:
        """True if an earlier lab's job still runs. Its number may belong to another process by now, or be made up: the
        folder that it works in must be held, and the process must be its command, which names that folder."""
        words, pid = record["words"], record["pid"]
        try:
            path = self.folder.inside(record["run"])
        except RegardError:
            return False
        names_it = f"--run={path}" in words or words == ["resume", str(path)]
        return pid > 1 and names_it and is_running(path) and _runs(pid, ["-m", "regard", *words])

    def _forget_old(self, place: Path) -> None:
        for number in self._numbers()[:-KEPT]:
            for ending in ("json", "log", "out", "stop"):
                with suppress(OSError):
                    (place / f"{number}.{ending}").unlink()


def _runs(pid: int, words: list[str]) -> bool:
    """True for a process whose command ends with these words. False if the system does not tell."""
    try:
        if Path("/proc/self/cmdline").exists():
            told = Path(f"/proc/{pid}/cmdline").read_bytes()
            return told.endswith(b"\0" + b"\0".join(map(os.fsencode, words)) + b"\0")
        command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, timeout=10).stdout
        return told.rstrip(b"\n").endswith(b" " + os.fsencode(" ".join(words)))
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
