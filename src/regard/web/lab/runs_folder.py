"""What runs and comparisons there are in a folder, read as they stand on the disk and cheap to ask for again.

Only this folder is read, whatever a name says: a name is a relative path of plain parts, and links are not followed.
What is read is remembered with the time at which its file was changed, so that asking once a second costs little.
No torch here: `regard lab` answers before any model is opened.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import threading
import tomllib
from array import array
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.locks import is_locked
from regard.base.numbers import pluralize
from regard.base.reading import PLAIN
from regard.runs.facts import CHECKPOINT, WEIGHTS, parent_of, read_facts, read_note
from regard.runs.history import is_number
from regard.systems.catalogue import SYSTEMS
from regard.training.metrics import as_written

UPLOADS = "uploads"  # files that were dropped into the page
MARKERS = ("run.json", "comparison.json", "claims.json")  # a folder that holds one was made by `regard`
OWN = ".lab"  # what the lab itself keeps: jobs, samples, what was deleted
MAX_DEPTH = 3  # runs/demo/language-models/lstm
MOST_BYTES = 1 << 24  # of a JSON or TOML file that describes a run
MOST_RUNS = 2000
ALLOWED = re.compile(r"[^\x00-\x1f\x7f\\/]{1,200}")  # one part of a name
END = 1 << 13  # bytes of metrics.jsonl in which its newest row is found
MAX_METRICS = 1 << 26  # bytes of metrics.jsonl: four days of a row each second; of a larger file the end is read
PIECE = 1 << 20  # bytes that are read at once
MAX_LINE = 1 << 16  # bytes of a row
MAX_ROWS = 10_000  # that are sent to a page at once
COLUMNS = ("step", "tokens", "seconds", "loss", "perplexity", "bleu", "accuracy", "learning_rate", "tokens_per_second")


class RunsFolder:
    def __init__(self, root: Path):
        if root.exists() and not root.is_dir():
            raise RegardError(f"{root} is not a folder; give the one that holds your runs, as in `regard lab runs`.")
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegardError(f"Cannot open the folder {root} ({error.strerror}); give another one.") from None
        self.root = root.resolve()
        self._facts: dict[tuple[Path, str], tuple[Any, Any]] = {}  # file: what it was like, and what it said
        self._curves: dict[Path, Curve] = {}
        self._lock = threading.Lock()  # answers come from several threads

    # -- names and paths ---------------------------------------------------------------------------------------------

    def inside(self, name: str, *, kind: str = "run") -> Path:
        """The path of something in this folder; refused where its name leads elsewhere or nothing is there."""
        path = self.root
        for part in name.split("/") or [""]:
            if not ALLOWED.fullmatch(part) or part.startswith("."):
                raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.")
            path = path / part
            try:
                mode = os.lstat(path).st_mode
            except (OSError, ValueError):
                raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.") from None
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # a link, a device, a pipe
                raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.")
        return path

    def made(self, name: str, *, kind: str = "run") -> Path:
        """The path of something that `regard` made in this folder, which dropped files never are."""
        path, uploads = self.inside(name, kind=kind), self.root / UPLOADS
        if uploads.exists() and os.path.samefile(self.root / name.split("/")[0], uploads):  # on any file system
            raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.")
        return path

    def run(self, name: str) -> Path:
        path = self.made(name)
        if not is_plain_file(path / "run.json"):
            raise RegardError(f"There is no run {name[:200]!r} in this folder.")
        return path

    def plain_run(self, name: str) -> Path:
        """A run that can be opened by those who follow links and wait for pipes: it holds files and folders alone."""
        path = self.run(name)
        for folder in (path, path / "kept", path / "snapshots"):
            try:
                with os.scandir(folder) as entries:
                    modes = {one.name: stat.S_IFMT(one.stat(follow_symlinks=False).st_mode) for one in entries}
            except OSError:
                continue
            if odd := [one for one, mode in modes.items() if mode not in (stat.S_IFREG, stat.S_IFDIR)]:
                raise RegardError(f"{name} is not opened: {odd[0]!r} in it is no plain file.")
        return path

    def comparison(self, name: str) -> Path:
        path = self.made(name, kind="comparison")
        if not is_plain_file(path / "comparison.json"):
            raise RegardError(f"There is no comparison {name[:200]!r} in this folder.")
        return path

    def report(self, name: str) -> bytes:
        """report.html of a run, a comparison or a folder of claims, as `regard` wrote it; nothing else is sent."""
        path = self.made(name)
        if not self.has_report(path):
            raise RegardError(f"{name} has no report.html: it comes when it ends.")
        try:
            return _read(path / "report.html")
        except (OSError, ValueError):
            raise RegardError(f"The page {path / 'report.html'} is too large to be sent: open it there.") from None

    def has_report(self, path: Path) -> bool:
        ours = any(is_plain_file(path / marker) for marker in MARKERS)
        return ours and is_plain_file(path / "report.html")

    def new(self, name: str) -> Path:
        """Where a new run of this name will be; only its name is looked at, the training claims the folder itself."""
        if not re.fullmatch(r"[^\W_][\w.-]{0,99}", name) or name == UPLOADS or name.endswith("."):
            raise RegardError(f"{name[:100]!r} cannot be the name of a run: use letters, digits, hyphens and dots.")
        if os.path.lexists(self.root / name):
            raise RegardError(f"{name} exists already: choose another name.")
        return self.root / name

    def free_name(self, wanted: str, taken: Container[str] = ()) -> str:
        """`wanted`, or wanted-2, wanted-3, …: the first that does not exist and is not taken."""
        clean = re.sub(r"[^\w.-]+", "-", wanted).strip("-._")[:80] or "run"
        number, name = 1, clean
        while name in taken or os.path.lexists(self.root / name):
            number += 1
            name = f"{clean}-{number}"
        return name

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def keep(self, kind: str) -> Path:
        """The place in the lab's own folder for things of a kind, made if need be."""
        own = self.root / OWN
        path = own / kind
        for place in (own, path):
            try:
                place.mkdir(exist_ok=True)
            except OSError as error:
                if not os.path.lexists(place):
                    raise RegardError(
                        f"Nothing can be written into {self.root} ({error.strerror}): open another folder."
                    ) from None
            if not is_plain_folder(place):
                raise RegardError(f"{place} is not a plain folder, so nothing is written there: remove it.")
        return path

    def own(self, kind: str) -> Path | None:
        """A place in the lab's own folder; None: there is none, or one part of its path is a link. The folder may have
        come from a stranger, so what lies there is not trusted either."""
        path = self.root
        for part in (OWN, *kind.split("/")):
            path = path / part
            if not is_plain_folder(path):
                return None
        return path

    def own_names(self, kind: str) -> list[str]:
        """What lies there, sorted by name."""
        place = self.own(kind)
        try:
            return sorted(os.listdir(place)) if place else []
        except OSError:
            return []

    def read_own(self, kind: str, name: str, most: int = MOST_BYTES) -> bytes:
        """The end of a plain file there; nothing where there is none."""
        place = self.own(kind)
        try:
            if place is None or not is_plain_file(place / name):
                return b""
            with open(os.open(place / name, os.O_RDONLY | PLAIN), "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - most))
                return stream.read(most)
        except OSError:
            return b""

    # -- what there is -----------------------------------------------------------------------------------------------

    def runs(self) -> list[dict[str, Any]]:
        """Every run, newest first, in a few words each."""
        found = [self.summary(path) for path in self._walk("run.json")]
        return sorted(found, key=lambda run: run["created"], reverse=True)

    def comparisons(self) -> list[dict[str, Any]]:
        found = []
        for path in self._walk("comparison.json"):
            tree = self._json(path / "comparison.json")
            question, facts = _mapping(tree.get("question")), _mapping(tree.get("facts"))
            members = [row for row in _list(tree.get("entrants")) if isinstance(row, dict)]
            seeds = [(row, seed) for row in members for seed in _list(row.get("seeds")) or [1]]
            done = [path / _entrant(row, seed) / "result.json" for row, seed in seeds]
            found.append(
                {
                    "name": self.name_of(path),
                    "corpus": str(_mapping(facts.get("corpus")).get("name", question.get("data", "?"))),
                    "systems": [str(row.get("label")) for row in members],
                    "created": str(facts.get("created", "")),
                    "command": str(facts.get("command", "")),
                    "runs": len(seeds),
                    "finished": sum(file.is_file() for file in done),
                    "live": is_working(path),
                }
            )
        return sorted(found, key=lambda one: one["created"], reverse=True)

    def claim_results(self, claim: str) -> dict[str, dict[str, Any]]:
        """What `regard claims` found of one statement, by the folder that holds it, the newest first."""
        found: list[tuple[float, str, dict[str, Any]]] = []
        for path in self._walk("claims.json"):
            file = path / "claims.json"
            records = self._remembered(file, "list", lambda file=file: {"all": json.loads(_read(file))}).get("all")
            for one in records if isinstance(records, list) else ():
                if isinstance(one, dict) and one.get("name") == claim and "numbers" in one:
                    found.append((file.stat().st_mtime, self.name_of(path), one))
        return {name: one for _, name, one in sorted(found, key=lambda each: each[0], reverse=True)}

    def _walk(self, marker: str) -> Iterator[Path]:
        """The folders that hold a file of this name; nothing lies below a run."""
        todo, found = [(self.root, 0)], 0
        while todo:
            folder, depth = todo.pop()
            try:
                with os.scandir(folder) as entries:
                    inside = [entry for entry in entries if not entry.name.startswith(".")]
            except OSError:
                continue
            names = {entry.name for entry in inside if entry.is_file(follow_symlinks=False)}
            if marker in names and folder != self.root:
                yield folder
                found += 1
                if found >= MOST_RUNS:
                    return
            if "run.json" in names or depth == MAX_DEPTH:
                continue
            todo += [
                (Path(entry.path), depth + 1)
                for entry in inside
                if entry.is_dir(follow_symlinks=False) and not (depth == 0 and entry.name == UPLOADS)
            ]

    def summary(self, folder: Path) -> dict[str, Any]:
        """One run: what it is, whether it is training now, how far it is and how good.

        Runs with the same `text` were validated on the same lines, with the same `tokens` cut by the same tokenizer.
        """
        facts = self._json(folder / "run.json")
        recipe = _mapping(facts.get("recipe")) or self._toml(folder / "recipe.toml")
        training, data = (_mapping(recipe.get(part)) for part in ("training", "data"))
        corpus = _mapping(facts.get("corpus"))
        damage = self._remembered(folder / "run.json", "damage", lambda: _damage(folder)).get("why", "")
        progress = _mapping(self._note(folder / CHECKPOINT).get("progress"))
        last = self._remembered(folder / "metrics.jsonl", "last", lambda: last_row(folder / "metrics.jsonl"))
        is_counted = not (folder / CHECKPOINT).exists()
        state = "done" if is_counted or progress.get("finished") else "stopped"
        state = "running" if is_working(folder) else "damaged" if damage else state
        label = str(recipe.get("system", "?"))
        known = next((system for system in SYSTEMS if system.name == label), None)
        return {
            "name": self.name_of(folder),
            "system": label.rpartition(":")[2],
            "task": known.task if known else "language model",
            "size": str(recipe.get("size", "")),
            "corpus": str(corpus.get("name", "")),
            "text": str(corpus.get("checksum") or corpus.get("name", "")),
            "tokenizer": str(data.get("tokenizer", "")),
            "tokens": str(_mapping(facts.get("files")).get("tokenizer.json") or data.get("tokenizer", "")),
            "from": parent_of(facts) or "",
            "parameters": facts.get("parameters"),
            "device": str(facts.get("device", "")),
            "created": str(facts.get("created", "")),
            "counted": is_counted,
            "state": state,
            "why": damage,
            "goal": str(training.get("budget") or "") or f"{training.get('steps', '')} steps",
            "share": _share(training, last, finished=state == "done"),
            "drawn": bool(last),
            "last": last or None,
            "best": best_of(self._note(folder / WEIGHTS)),
            "kept": self._kept(folder),
        }

    def curve(self, folder: Path) -> Curve:
        """The learning curve of a run, read as far as it is written. Others can be read at the same time."""
        with self._lock:
            curve = self._curves.setdefault(folder, Curve(folder / "metrics.jsonl"))
        curve.read()
        return curve

    def facts(self, folder: Path) -> dict[str, Any]:
        """run.json as it stands."""
        return self._json(folder / "run.json")

    def notes(self, folder: Path) -> list[str]:
        """What was noticed about the corpus of a run."""
        return [str(note) for note in _list(_mapping(self.facts(folder).get("corpus")).get("notes"))]

    def question(self, folder: Path) -> dict[str, Any]:
        """What a comparison asks, from its comparison.json."""
        return _mapping(self._json(folder / "comparison.json").get("question"))

    def recipe_text(self, folder: Path) -> str:
        try:
            return _read(folder / "recipe.toml").decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""

    def uploads(self) -> list[dict[str, Any]]:
        """The files that were dropped into the page."""
        folder = self.root / UPLOADS
        if folder.is_symlink() or not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            files = [e for e in entries if e.is_file(follow_symlinks=False) and not e.name.startswith(".")]
        return [{"name": file.name, "bytes": file.stat().st_size} for file in sorted(files, key=lambda e: e.name)]

    # -- files, remembered -------------------------------------------------------------------------------------------

    def _json(self, path: Path) -> dict[str, Any]:
        return self._remembered(path, "json", lambda: _mapping(json.loads(_read(path))))

    def _toml(self, path: Path) -> dict[str, Any]:
        return self._remembered(path, "toml", lambda: tomllib.loads(_read(path).decode()))

    def _note(self, path: Path) -> dict[str, Any]:
        return self._remembered(path, "note", lambda: read_note(path))

    def _remembered(self, path: Path, kind: str, read: Any) -> dict[str, Any]:
        try:
            now = _like(path)
            before = self._facts.get((path, kind))
            if before is None or before[0] != now:
                before = self._facts[path, kind] = (now, read())
            return before[1]
        except (OSError, ValueError, RecursionError, RegardError):
            return {}

    def _kept(self, folder: Path) -> int:
        """How many checkpoints of its way are kept."""
        found: set[str] = set()
        for name in ("kept", "snapshots"):
            try:
                with os.scandir(folder / name) as entries:
                    found |= {entry.name for entry in entries if entry.name.endswith(".safetensors")}
            except OSError:
                continue
        return len(found)


@dataclass
class Curve:
    """metrics.jsonl in columns. Reading again reads only what was added; a file that was cut is read anew."""

    path: Path
    columns: dict[str, array[float]] = field(default_factory=lambda: {key: array("d") for key in COLUMNS})
    valid: list[bool] = field(default_factory=list)  # is the row a validation?
    damaged: int = 0  # lines that were left out
    skipped: int = 0  # bytes at the beginning of a file that is too large
    age: int = 0  # how often it was read anew
    _offset: int = 0
    _in_long_line: bool = False  # what comes until the next line end belongs to a line that is too long
    _like: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        return len(self.valid)

    @property
    def note(self) -> str:
        """A sentence for a file that is not shown whole."""
        parts = [f"only its last {MAX_METRICS >> 20} MiB are shown"] if self.skipped else []
        parts += [f"{pluralize(self.damaged, 'damaged line')} left out of the curves"] if self.damaged else []
        return "; ".join(parts)

    def read(self) -> None:
        with self._lock:
            self._read()

    def _read(self) -> None:
        try:
            now = _like(self.path)
        except OSError:
            now = None
        if now == self._like:
            return
        size = now[1] if now else 0
        if size < self._offset or (self._like and now and now[2] != self._like[2]):  # cut, or another file
            self.columns, self.valid, self._offset = {key: array("d") for key in COLUMNS}, [], 0
            self.damaged, self.skipped, self._in_long_line = 0, 0, False
            self.age += 1
        self._like = now
        if now is None:
            return
        if size - self._offset > MAX_METRICS:  # at most so much at once, then what is added
            self.skipped = self._offset = size - MAX_METRICS
            self._in_long_line = True  # the first line is not whole
        try:
            with open(os.open(self.path, os.O_RDONLY | PLAIN), "rb") as stream:
                stream.seek(self._offset)
                while self._offset < size and self._add(stream.read(min(PIECE, size - self._offset))):
                    stream.seek(self._offset)
        except OSError:
            return

    def _add(self, content: bytes) -> bool:
        """Adds the whole lines of a piece of the file; False: nothing more can be read now."""
        if not content:
            return False
        begin = 0
        if self._in_long_line:
            begin = content.find(b"\n") + 1 or len(content)
            self._in_long_line = content[begin - 1 : begin] != b"\n"
        end = max(content.rfind(b"\n") + 1, begin)
        if len(content) - end >= MAX_LINE:
            self.damaged += 1
            self._in_long_line = True
        self._offset += len(content) if self._in_long_line else end
        rows, damaged = parsed(content[begin:end])
        self.damaged += damaged
        for key in COLUMNS:
            self.columns[key].extend(array("d", [row.get(key, math.nan) for row in rows]))
        self.valid += [row.get("split") == "valid" for row in rows]
        return bool(end) or self._in_long_line

    def since(self, row: int) -> list[list[Any]]:
        """The next rows from a number on, each: is it a validation, then the columns in their order."""
        with self._lock:
            rows = range(max(0, row), min(self.rows, row + MAX_ROWS))
            return [[self.valid[i], *(self.columns[key][i] for key in COLUMNS)] for i in rows]

    def taken(self, *keys: str) -> tuple[list[bool], list[array[float]]]:
        """Which rows are validations, and these columns: copies, as another request may add rows."""
        with self._lock:
            return self.valid[:], [self.columns[key][:] for key in keys]


def parsed(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The rows of a piece of metrics.jsonl, with the numbers of COLUMNS and their split; and how many lines were left
    out, because they are damaged.

    Ten thousand lines are read at once, which takes a fraction of the time; one by one only if something is wrong.
    """
    lines = content.splitlines()
    try:
        rows = json.loads(b"[" + b",".join(lines) + b"]", parse_int=float)
        if (
            all(type(row[key]) is float for row in rows for key in COLUMNS[:4])
            and all(type(row.get(key, 0.0)) is float for row in rows for key in COLUMNS[4:])
            and all(as_written(line, row) for line, row in zip(lines, rows, strict=True))
        ):
            return rows, 0
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    found = []
    for line in lines:
        try:
            row = json.loads(line, parse_int=float)  # a number with thousands of digits is infinite
        except (ValueError, RecursionError):
            continue
        whole = isinstance(row, dict) and all(type(row.get(key)) is float for key in COLUMNS[:4])
        if whole and as_written(line, row):
            numbers = {key: row[key] for key in COLUMNS if type(row.get(key)) is float}
            found.append(numbers | {"split": row.get("split")})
    return found, len(lines) - len(found)


def last_row(path: Path) -> dict[str, Any]:
    """How far it is, and the newest numbers of training, or of a validation if the file ends before any."""
    with open(os.open(path, os.O_RDONLY | PLAIN), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - END))
        content = stream.read(END)
    begin = content.find(b"\n") + 1 if size > END else 0
    rows: list[dict[str, Any]] = []  # from the last
    for line in reversed(content[begin : content.rfind(b"\n") + 1].splitlines()):
        rows += parsed(line)[0]
        if rows and rows[-1].get("split") != "valid":
            break
    trained = [row for row in rows if row.get("split") != "valid"]
    row = (trained or rows or [{}])[0]
    row = row | {key: rows[0][key] for key in ("step", "tokens", "seconds") if rows and key in rows[0]}
    return {key: row[key] for key in COLUMNS if math.isfinite(row.get(key, math.nan))}


def best_of(note: Mapping[str, Any]) -> dict[str, Any] | None:
    """The validation that chose the weights, as it is noted beside them."""
    if not is_number(note.get("validation_loss")):
        return None
    loss = float(note["validation_loss"])
    figures = {key: note[key] for key in ("bleu", "accuracy") if is_number(note.get(key))}
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return {"step": note.get("step"), "loss": loss, "perplexity": perplexity, **figures}


def is_working(folder: Path) -> bool:
    """Does a process train in it now?"""
    return is_locked(folder / ".lock")


def _damage(folder: Path) -> dict[str, str]:
    """Why it cannot be opened, as the command line says it; nothing where it can."""
    try:
        read_facts(folder)
    except RegardError as error:
        return {"why": str(error)}
    return {}


def _share(training: Mapping[str, Any], last: Mapping[str, Any], finished: bool) -> float | None:
    """How much of its budget a run has used."""
    if finished or not last:
        return 1.0 if finished else None
    from regard.training.hyperparameters import Budget

    try:
        limit = Budget.parse(str(training.get("budget") or ""), int(training.get("steps") or 1))
    except (RegardError, ValueError, TypeError):
        return None
    seconds = "elapsed" if limit.whole and "elapsed" in last else "seconds"
    spent = last.get({"steps": "step", "seconds": seconds}.get(limit.unit, limit.unit), 0.0)
    return min(1.0, spent / limit.amount)


def _entrant(row: Mapping[str, Any], seed: Any) -> str:
    label, several = str(row.get("label")), len(_list(row.get("seeds"))) > 1
    name = f"{label}-seed{seed}" if several else label
    return name if ALLOWED.fullmatch(name) and not name.startswith(".") else "-"


def _like(path: Path) -> tuple[int, int, int]:
    """What tells that a file is another now: time, size, identity; a link is not followed."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("not a plain file")
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | PLAIN), "rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError("too large")
    return content


def is_plain_folder(path: Path) -> bool:
    """A folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
