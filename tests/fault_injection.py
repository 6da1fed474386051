"""Every write, rename and flush of a save is made to fail, or the process to die there, one after the other:
`python tests/fault_injection.py`, or with `--every 7` at each seventh place alone. With `--kills 30` it is killed at
random moments instead, so many times per work, and each time the work goes on where it was.

After each fault the same work is asked for again. It must end with the same bits as work that was never disturbed, and
leave no unfinished file. What a command says of a full disk or a broken one must be one sentence.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import hashlib
import io
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Outcome, forked

FAULTS = ("full", "broken", "dies")  # ENOSPC, EIO, or the process ends at once
ERRNO = {"full": errno.ENOSPC, "broken": errno.EIO}


# -- in the process that is disturbed --------------------------------------------------------------------------------


class Disturbed:
    """Counts what changes the disk below `root`, in the file `counter`; the operation number `at` fails."""

    def __init__(self, root: str, counter: str, at: int, fault: str):
        self.root, self.at, self.fault, self.done = root, at, fault, 0
        self.counter = os.open(counter, os.O_WRONLY | os.O_CREAT)

    def due(self, path: object = None) -> bool:
        """Is this operation the one that fails?"""
        if path is not None and not os.path.abspath(os.fspath(path)).startswith(self.root):  # type: ignore[call-overload]
            return False
        self.done += 1
        os.pwrite(self.counter, b"%d" % self.done, 0)
        return self.done == self.at

    def strike(self, path: object = None) -> None:
        if self.fault == "dies":
            os._exit(137)
        number = ERRNO[self.fault]
        raise OSError(number, os.strerror(number), None if path is None else str(path))


class WatchedFile:
    """A file that is being written; half of what is to be written arrives where a write fails."""

    def __init__(self, file: Any, disturbed: Disturbed):
        self.file, self.disturbed = file, disturbed

    def write(self, content: Any) -> int:
        if self.disturbed.due():
            self.file.write(content[: len(content) // 2])
            self.file.flush()
            self.disturbed.strike()
        return self.file.write(content)

    def __enter__(self) -> WatchedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def __iter__(self) -> Any:
        return iter(self.file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def disturb(root: str, counter: str, at: int, fault: str) -> None:
    from regard.training import checkpoint

    disturbed = Disturbed(root, counter, at, fault)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            if disturbed.due(None if isinstance(path, int) else path):
                disturbed.strike(None if isinstance(path, int) else path)
            return function(path, *rest, **options)

        return call

    for name in ("replace", "rename", "link", "fsync", "mkdir", "unlink", "rmdir"):
        setattr(os, name, watched(getattr(os, name)))
    opened = builtins.open

    def watched_open(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if not set("wxa+") & set(mode) or (not isinstance(file, int) and not disturbed_path(file)):
            return opened(file, mode, *rest, **options)
        if disturbed.due():
            disturbed.strike(file)
        return WatchedFile(opened(file, mode, *rest, **options), disturbed)

    def disturbed_path(file: Any) -> bool:
        return os.path.abspath(os.fspath(file)).startswith(disturbed.root)

    builtins.open = io.open = watched_open  # type: ignore[assignment]
    save = checkpoint.save_file

    def watched_save(tensors: Any, path: Any, metadata: Any = None) -> None:
        fails = disturbed.due(path)
        save(tensors, path, metadata=metadata)
        if fails:
            os.truncate(path, os.path.getsize(path) // 2)
            if fault == "dies":
                os._exit(137)
            raise checkpoint.SafetensorError(f"I/O error: {os.strerror(ERRNO[fault])} (os error {ERRNO[fault]})")

    checkpoint.save_file = watched_save


# -- the work that is disturbed --------------------------------------------------------------------------------------

TINY = ["--size", "tiny", "--training.threads", "1", "--training.batch-tokens", "128", "--training.evaluate-every", "2"]
TINY += ["--training.checkpoint-every", "2", "--training.steps", "6", "--data.tokenizer", "word", "--seed", "3"]


@dataclass(frozen=True)
class Work:
    name: str
    words: list[str]
    results: list[str]  # files or runs that must be as if nothing had happened
    done: list[str] | None = None  # the command after a fault if `results` are there: `resume`, or one that reads them
    begins: list[list[str]] | None = None  # commands that come before


TRAIN = ["train", "rnn", "--data", "my.txt", "--run", "run", "--model.width", "8", "--model.dropout", "0.1", *TINY]
PAIRS = ["train", "seq2seq", "--data", "pairs.tsv", "--run", "run", "--model.width", "8", "--training.keep", "2", *TINY]
COUNT = ["train", "ngram", "--data", "my.txt", "--run", "run", "--model.order", "2"]
RESUME, READ = ["resume", "run"], ["evaluate", "run"]
IN_OUT = ["run", "--in", "in.txt", "--out", "out.txt"]
ARPA = ["export", "run", "--to", "arpa", "--out", "o.arpa"]
SMALL = ["--data", "my.txt", "--budget", "500", "--run", "cmp", "--model.width", "8", "--data.tokenizer", "word"]
WORKS = [
    Work("train", TRAIN, ["run"], done=RESUME),
    Work("train on pairs", PAIRS, ["run"], done=RESUME),
    Work("count", COUNT, ["run"], done=READ),
    Work("resume", RESUME, ["run"]),
    Work("evaluate", ["evaluate", "run", "--json"], ["run", "run/report.html"], begins=[TRAIN]),
    Work("export", ["export", "run", "--to", "arpa", "--out", "out.arpa"], ["out.arpa"], done=READ, begins=[COUNT]),
    Work("import", ["import", "small.arpa", "--run", "run"], ["run"], done=ARPA),
    Work("translate", ["translate", *IN_OUT], ["out.txt"], done=READ, begins=[PAIRS]),
    Work("generate", ["generate", *IN_OUT, "--max-tokens", "8"], ["out.txt"], done=READ, begins=[TRAIN]),
    Work("inspect", ["inspect", "run", "the cat", "--html", "out.html"], ["out.html"], done=READ, begins=[TRAIN]),
    Work("rename", ["runs", "rename", "run", "other"], ["other"], done=["evaluate", "other"], begins=[COUNT]),
    Work("remove", ["runs", "remove", "run", "--yes"], ["run"], begins=[COUNT]),
]
LONG = [Work("compare", ["compare", "rnn", *SMALL], ["cmp"])]


def make_inputs(folder: Path) -> None:
    folder.mkdir()
    lines = [f"{s} {v} {o} ." for s in ("the cat", "a dog") for v in ("sees", "hears") for o in "xyzuvw" for _ in "12"]
    (folder / "my.txt").write_text("\n".join(f"{line} {n}" for n, line in enumerate(lines)) + "\n")
    (folder / "pairs.tsv").write_text("".join(f"{line} {n}\t{line[::-1]}\n" for n, line in enumerate(lines)))
    (folder / "in.txt").write_text("the cat sees x\na dog hears y\n\nthe dog\n")
    shutil.copy(Path(__file__).parent / "golden" / "harbour.3.arpa", folder / "small.arpa")


def result(path: Path) -> object:
    """What must be equal: a file's bytes, or the weights, notes and recipe of a run."""
    from regard.training.checkpoint import load_tensors

    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix != ".html" else path.exists()
    found: dict[str, object] = {}
    for file in sorted(path.rglob("*.safetensors")):
        tensors, note = load_tensors(file)
        for clock in ("seconds", "elapsed", "started", "besides"):
            note.get("progress", {}).pop(clock, None)
        found[str(file.relative_to(path))] = ({k: digest(tensor) for k, tensor in tensors.items()}, note)
    names = [name for name in ("recipe.toml", "tokenizer.json", "comparison.json") if (path / name).exists()]
    return found | {name: name == "comparison.json" or (path / name).read_bytes() for name in names}


def digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def unfinished(folder: Path) -> list[str]:
    """Files that nothing will ever finish; the mark of a beginning means nothing where there is a run. What a killed
    `export` or `inspect --html` leaves beside its file is not counted: no lock says whose it is. Nor is what was asked
    for, beside a file that is complete."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.name.startswith((".out.arpa.", ".out.html."))
        if not (path.name == "out.txt.part.json" and (folder / "out.txt").exists())
        if ".part" in path.name or (path.name == ".beginning" and not (path.parent / "run.json").exists())
    ]


def regard(folder: Path, words: list[str], *disturbance: Any, **options: Any) -> Outcome:
    if disturbance:
        options |= {"before": disturb, "arguments": (str(folder), *disturbance)}
    return forked(
        *words,
        cwd=folder,
        environment={"REGARD_CACHE": str(folder / "cache")},
        memory=None,
        **{"seconds": 900, **options},
    )


def begin(work: Work, folder: Path, counter: Path) -> tuple[Path, dict[str, object], int, float]:
    """What the work begins with, what comes of it undisturbed, and how many operations and seconds that takes."""
    start, whole = folder / f"{work.name}-start", folder / f"{work.name}-whole"
    make_inputs(start)
    for words in work.begins or []:
        assert regard(start, words).code == 0
    if work.name == "resume":  # a run that was killed in the middle
        assert regard(start, TRAIN, str(counter), 0, "dies").code == 0
        shutil.rmtree(start)
        make_inputs(start)
        assert regard(start, TRAIN, str(counter), 3 * int(counter.read_text()) // 4, "dies").code == 137
        assert (start / "run" / "training.safetensors").exists()
    shutil.copytree(start, whole)
    began = time.monotonic()
    done = regard(whole, work.words, str(counter), 0, "dies")
    assert done.code == 0, (work.name, done)
    seconds = time.monotonic() - began
    return start, {name: result(whole / name) for name in work.results}, int(counter.read_text()), seconds


def survives(work: Work, start: Path, whole: dict[str, object], at: int, fault: str, counter: Path) -> str:
    """ "" if nothing is lost, else what went wrong."""
    folder = start.with_name("trial")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)
    counter.write_text("0")
    disturbed = regard(folder, work.words, str(counter), at, fault)
    if fault != "dies" and disturbed.kind == "defect":
        return f"it did not say so in one sentence: {disturbed}"
    if (
        fault == "full"
        and disturbed.kind == "refused"
        and "full" not in disturbed.said
        and "space" not in disturbed.said
    ):
        return f"it did not say that the disk is full: {disturbed.said}"
    return lost(work, folder, whole)


def next_command(work: Work, folder: Path) -> list[str] | None:
    """What a user does after a fault. None: there is nothing left to do."""
    there = folder / work.results[0]
    if work.name == "remove":
        return work.words if there.exists() else None
    complete = (there / "run.json").exists() if work.results[0] in ("run", "other") else there.exists()
    return work.done if work.done and complete else work.words


def lost(work: Work, folder: Path, whole: dict[str, object]) -> str:
    """The work goes on, undisturbed: what is not as it would have been? "" is good."""
    words = next_command(work, folder)
    again = regard(folder, words) if words else None
    if words and again and again.code != 0:
        return f"`regard {' '.join(words[:2])}` after it: {again}"
    for name, expected in whole.items():
        if result(folder / name) != expected:
            return f"{name} is not what it is without a fault"
    if left := unfinished(folder):
        return f"left behind: {', '.join(left)}"
    return ""


def kills(work: Work, times: int, folder: Path, say: Callable[[str], None]) -> tuple[int, int, int]:
    """Killed at random moments: how often, in how many attempts at the whole work, and how many of those lost nothing.

    A killed command is followed by the next one, which is killed in turn, until the work is done."""
    start, whole, _, lasts = begin(work, folder, folder / "counter")
    trial, draw = folder / "trial", random.Random(work.name)
    killed = attempts = good = 0
    while killed < times:
        shutil.rmtree(trial, ignore_errors=True)
        shutil.copytree(start, trial)
        attempts += 1
        for _ in range(5):  # then it may end
            words = next_command(work, trial)
            if killed == times or not words:
                break
            began = time.monotonic()
            if regard(trial, words, kill_after=draw.uniform(0, lasts)).code == 0:
                lasts = time.monotonic() - began  # how long it takes depends on what else the machine does
                break
            killed += 1
        why = lost(work, trial, whole)
        good += not why
        if why:
            say(f"    after kill {killed}: {why}")
    return killed, attempts, good


def campaign(works: list[Work], every: int, say: Callable[[str], None]) -> list[tuple[str, str, int, int]]:
    """For each work and fault: places tried, and how many of them were survived."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        counter = folder / "counter"
        for work in works:
            start, whole, places, _ = begin(work, folder, counter)
            for turn, fault in enumerate(FAULTS):
                tried = range(1 + turn * every // len(FAULTS), places + 1, every)
                failures = [(at, why) for at in tried if (why := survives(work, start, whole, at, fault, counter))]
                rows.append((work.name, fault, len(tried), len(tried) - len(failures)))
                say(f"{work.name:16} {fault:8} {places:4} places, {len(tried):4} tried, {rows[-1][3]:4} survived")
                for at, why in failures:
                    say(f"    place {at}: {why}")
    return rows


def kill_all(works: list[Work], times: int, say: Callable[[str], None]) -> bool:
    fine = True
    for work in works:
        with tempfile.TemporaryDirectory(prefix="kills-") as name:
            killed, attempts, good = kills(work, times, Path(name), say)
        fine &= good == attempts
        say(f"{work.name:16} {killed:4} kills in {attempts:3} attempts, {good:3} as if nothing had happened")
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", help=", ".join(work.name for work in WORKS + LONG))
    parser.add_argument(
        "--every", type=int, default=1, help="try each place whose number is a multiple of this, plus one"
    )
    parser.add_argument("--kills", type=int, help="kill each work so often, at random moments")
    asked = parser.parse_args()
    works = (
        [work for work in WORKS + LONG if work.name in asked.works] if asked.works else WORKS + LONG * bool(asked.kills)
    )
    if asked.kills:
        sys.exit(not kill_all(works, asked.kills, lambda line: print(line, flush=True)))
    rows = campaign(works, asked.every, lambda line: print(line, flush=True))
    tried, survived = (sum(row[place] for row in rows) for place in (2, 3))
    print(f"{tried} places tried, {survived} survived")
    sys.exit(tried != survived)


if __name__ == "__main__":
    main()
