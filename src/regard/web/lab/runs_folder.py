"""The runs, comparisons and claims in a folder, as the lab lists them.

Results are cached with the time, size and identity of their file, so that a request per second costs little. No torch
here: `regard lab` answers before any model is opened.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.fields import is_number
from regard.base.reading import parse_object
from regard.runs.store.facts import CHECKPOINT, parent_of
from regard.runs.store.gallery import GALLERY, gallery_names, shown_name
from regard.runs.store.list import is_running, mapping, perplexity, summarize
from regard.systems.catalogue import SYSTEMS
from regard.web.lab.guarded_folder import ALLOWED, UPLOADS, GuardedFolder, is_plain_file, read_plain
from regard.web.lab.live_curve import LiveCurve, file_stamp, last_row

MARKERS = ("run.json", "comparison.json", "claims.json")  # a folder that holds one was made by `regard`
MAX_DEPTH = 3  # runs/demo/language-models/lstm
MOST_RUNS = 2000


class RunsFolder(GuardedFolder):
    def __init__(self, root: Path):
        super().__init__(root)
        self._facts: dict[tuple[Path, str], tuple[Any, Any]] = {}  # by file: its stamp, and its content
        self._curves: dict[Path, LiveCurve] = {}
        self._lock = threading.Lock()  # answers come from several threads

    def made(self, name: str, *, kind: str = "run") -> Path:
        """The path of something that `regard` made in this folder, which dropped files never are."""
        path, uploads = self.inside(name, kind=kind), self.root / UPLOADS
        if uploads.exists() and os.path.samefile(self.root / name.split("/")[0], uploads):  # on any file system
            raise RegardError(f"There is no {kind} {name[:200]!r} in this folder.")
        return path

    def run(self, name: str) -> Path:
        """A run in this folder; otherwise a model that comes with Regard, of which only the known names are found."""
        if name in self._shipped():
            return GALLERY.parent / name
        path = self.made(name)
        if not is_plain_file(path / "run.json"):
            raise RegardError(f"There is no run {name[:200]!r} in this folder.")
        return path

    def plain_run(self, name: str) -> Path:
        """A run that is safe to open, because it contains only files and folders, no links or pipes."""
        path = self.run(name)
        for folder in (path, path / "kept", path / "snapshots"):
            try:
                with os.scandir(folder) as entries:
                    modes = {one.name: stat.S_IFMT(one.stat(follow_symlinks=False).st_mode) for one in entries}
            except OSError:
                continue
            if odd := [one for one, mode in modes.items() if mode not in (stat.S_IFREG, stat.S_IFDIR)]:
                raise RegardError(f"{name} cannot be opened: it contains {odd[0]!r}, which is not a regular file.")
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
            raise RegardError(f"{name} has no report.html yet: Regard writes it at the end.")
        try:
            return read_plain(path / "report.html")
        except (OSError, ValueError):
            raise RegardError(f"The page {path / 'report.html'} is too large to send: open it directly.") from None

    def has_report(self, path: Path) -> bool:
        ours = any(is_plain_file(path / marker) for marker in MARKERS)
        return ours and is_plain_file(path / "report.html")

    # -- what there is -----------------------------------------------------------------------------------------------

    def runs(self) -> list[dict[str, Any]]:
        """A summary of every run, newest first."""
        found = [self.summary(path) for path in self._walk("run.json")]
        return sorted(found, key=lambda run: run["created"], reverse=True)

    def gallery(self) -> list[dict[str, Any]]:
        """The models that come with Regard."""
        return [self.summary(GALLERY.parent / name) for name in self._shipped()]

    def _shipped(self) -> list[str]:
        return [name for name in gallery_names() if not os.path.lexists(self.root / name)]

    def name_of(self, path: Path) -> str:
        return shown_name(path) if path.parent == GALLERY else super().name_of(path)

    def comparisons(self) -> list[dict[str, Any]]:
        found = []
        for path in self._walk("comparison.json"):
            tree = self._json(path / "comparison.json")
            question, facts = mapping(tree.get("question")), mapping(tree.get("facts"))
            members = [row for row in _list(tree.get("entrants")) if isinstance(row, dict)]
            seeds = [(row, seed) for row in members for seed in _list(row.get("seeds")) or [1]]
            done = [path / _entrant(row, seed) / "result.json" for row, seed in seeds]
            found.append(
                {
                    "name": self.name_of(path),
                    "corpus": str(mapping(facts.get("corpus")).get("name", question.get("data", "?"))),
                    "systems": [str(row.get("label")) for row in members],
                    "created": str(facts.get("created", "")),
                    "command": str(facts.get("command", "")),
                    "runs": len(seeds),
                    "finished": sum(file.is_file() for file in done),
                    "live": is_running(path),
                }
            )
        return sorted(found, key=lambda one: one["created"], reverse=True)

    def claim_results(self, claim: str) -> dict[str, dict[str, Any]]:
        """The results of `regard claims` for one claim, by folder, newest first."""
        found: list[tuple[float, str, dict[str, Any]]] = []
        for path in self._walk("claims.json"):
            file = path / "claims.json"
            records = self._remembered(file, "list", partial(_claims, file)).get("all")
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

        Runs with the same `text` were validated on the same lines, with the same `tokens` cut by the same tokenizer;
        runs with the same `recipe` differ at most in their seed.
        """
        run = summarize(folder, self._cached)
        facts = run.facts or self._json(folder / "run.json")
        recipe = mapping(facts.get("recipe")) or self._toml(folder / "recipe.toml")
        training, data = (mapping(recipe.get(part)) for part in ("training", "data"))
        corpus = mapping(facts.get("corpus"))
        last = self._remembered(folder / "metrics.jsonl", "last", lambda: last_row(folder / "metrics.jsonl"))
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
            "tokens": str(mapping(facts.get("files")).get("tokenizer.json") or data.get("tokenizer", "")),
            "recipe": _without_seed(recipe),
            "seed": training.get("seed"),
            "from": parent_of(facts) or "",
            "parameters": facts.get("parameters"),
            "device": str(facts.get("device", "")),
            "created": str(facts.get("created", "")),
            "counted": not (folder / CHECKPOINT).exists(),
            "state": run.state,
            "why": run.damage,
            "goal": str(training.get("budget") or "") or f"{training.get('steps', '')} steps",
            "share": _share(training, last, finished=run.state == "done"),
            "drawn": bool(last),
            "last": last or None,
            "best": best_of(run.best),
            "kept": self._kept(folder),
        }

    def curve(self, folder: Path) -> LiveCurve:
        """The learning curve of a run, read as far as it is written. Others can be read at the same time."""
        with self._lock:
            curve = self._curves.setdefault(folder, LiveCurve(folder / "metrics.jsonl"))
        curve.read()
        return curve

    def facts(self, folder: Path) -> dict[str, Any]:
        """run.json as it stands."""
        return self._json(folder / "run.json")

    def notes(self, folder: Path) -> list[str]:
        """The remarks about a run's corpus."""
        return [str(note) for note in _list(mapping(self.facts(folder).get("corpus")).get("notes"))]

    def question(self, folder: Path) -> dict[str, Any]:
        """The settings of a comparison, from its comparison.json."""
        return mapping(self._json(folder / "comparison.json").get("question"))

    def recipe_text(self, folder: Path) -> str:
        try:
            return read_plain(folder / "recipe.toml").decode("utf-8", "replace")
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
        return self._remembered(path, "json", lambda: parse_object(read_plain(path)) or {})

    def _toml(self, path: Path) -> dict[str, Any]:
        return self._remembered(path, "toml", lambda: tomllib.loads(read_plain(path).decode()))

    def _remembered(self, path: Path, kind: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Empty if the file cannot be read."""
        try:
            return self._cached(path, read, kind)
        except RegardError:
            return {}

    def _cached(self, path: Path, read: Callable[[], dict[str, Any]], kind: str = "") -> dict[str, Any]:
        """`read()`, or its result or error as long as the file is the same."""
        try:
            stamp = file_stamp(path)
            before = self._facts.get((path, kind))
            if before is None or before[0] != stamp:
                before = self._facts[path, kind] = (stamp, _outcome(read))
        except OSError as error:
            raise RegardError(f"{path} cannot be read ({error.strerror or error}): check the file.") from None
        if isinstance(before[1], RegardError):
            raise RegardError(*before[1].args)  # a new one: raising lengthens an error's traceback
        return before[1]

    def _kept(self, folder: Path) -> int:
        """Number of saved intermediate weights (kept/ and snapshots/)."""
        found: set[str] = set()
        for name in ("kept", "snapshots"):
            try:
                with os.scandir(folder / name) as entries:
                    found |= {entry.name for entry in entries if entry.name.endswith(".safetensors")}
            except OSError:
                continue
        return len(found)


def best_of(note: Mapping[str, Any]) -> dict[str, Any] | None:
    """The validation that chose the weights, as it is noted beside them."""
    if not is_number(note.get("validation_loss")):
        return None
    loss = float(note["validation_loss"])
    figures = {key: note[key] for key in ("bleu", "accuracy") if is_number(note.get(key))}
    return {"step": note.get("step"), "loss": loss, "perplexity": perplexity(loss), **figures}


def _claims(file: Path) -> dict[str, Any]:
    return {"all": json.loads(read_plain(file))}


def _outcome(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | RegardError:
    try:
        return read()
    except RegardError as error:
        return error
    except (ValueError, RecursionError):
        return RegardError("not what Regard writes")


def _without_seed(recipe: Mapping[str, Any]) -> str:
    """A digest of a recipe without its seed: runs of one recipe are repetitions of one experiment."""
    training = {key: value for key, value in mapping(recipe.get("training")).items() if key != "seed"}
    try:
        whole = json.dumps({**recipe, "training": training}, sort_keys=True, default=str)
    except (ValueError, RecursionError):
        return ""
    return blake2b(whole.encode(errors="replace"), digest_size=8).hexdigest()


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


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
