"""Every write, rename and flush of a save is made to fail, or the process to die there, one after the other:
`python tools/fault_injection.py`, or with `--every 7` at each seventh place alone. With `--kills 30` it is killed at
random moments instead, so many times per work, and each time the work goes on where it was.

After each fault the same work is asked for again. It must end with the same bits as work that was never disturbed, and
leave no unfinished file. What a command says of a full disk or a broken one must be one sentence.

Each command is forked from this process, which has done every work once before: it has nothing left to import.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import gc
import hashlib
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked as commands
from forked import Outcome, forked, open_streams

FAULTS = ("full", "broken", "dies")  # ENOSPC, now and at every write that follows; EIO, once; the process ends at once
ERRNO = {"full": errno.ENOSPC, "broken": errno.EIO}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
)  # audited by Python
FILLS = ("open", "os.mkdir", "os.link", "write")  # what a disk that is full refuses


# -- in the process that is disturbed --------------------------------------------------------------------------------


class Disturbed:
    """Counts what changes the disk below `root`, in the file `counter`, also over several processes; the operation
    number `at` fails."""

    def __init__(self, root: str, counter: str, at: int, fault: str):
        self.root, self.progress, self.fault = root, at, fault
        self.counter, self.one_counts = os.open(counter, os.O_RDWR | os.O_CREAT), threading.RLock()
        os.pwrite(self.counter, b"%9d" % 0, 0)

    def due(self, operation: str) -> bool:
        """Does this operation fail?"""
        with self.one_counts:  # of the threads of a process
            done = int(os.pread(self.counter, 9, 0)) + 1
            os.pwrite(self.counter, b"%9d" % done, 0)
        return done == self.progress or (self.fault == "full" and 0 < self.progress < done and operation in FILLS)

    def holds(self, path: object) -> bool:
        """Is this a file below the root? `path` may be a descriptor, of a pipe too."""
        if isinstance(path, int):
            path = os.path.realpath(f"/proc/self/fd/{path}")
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.root)

    def strike(self, path: object = None) -> None:
        if self.fault == "dies":
            os._exit(137)
        number = ERRNO[self.fault]
        raise OSError(number, os.strerror(number), None if path is None else str(path))

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (event == "open" and arguments[2] & WRITES) or event in CHANGES:
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else arguments[0]
            if not isinstance(path, int) and self.holds(path) and self.due(event):
                self.strike(path)


class WatchedFile:
    """A file that is being written. Where the system is handed what was written, half of it arrives and that fails."""

    def __init__(self, file: Any, disturbed: Disturbed):
        self.file, self.disturbed, self.pending = file, disturbed, 0

    def write(self, content: Any) -> int:
        self.pending += len(content)
        written: int = self.file.write(content)
        if self.pending > io.DEFAULT_BUFFER_SIZE:
            self.flush()
        return written

    def flush(self) -> None:
        if not self.pending:
            return
        self.pending = 0
        if not self.disturbed.due("write"):
            self.file.flush()
            return
        number = self.file.fileno()
        before = os.fstat(number).st_size
        self.file.flush()
        os.ftruncate(number, before + (os.fstat(number).st_size - before) // 2)
        self.disturbed.strike()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self.file.close()

    def __enter__(self) -> WatchedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self.file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def disturb(root: str, counter: str, at: int, fault: str) -> None:
    from regard.training import checkpoint

    fork_runs()
    disturbed = Disturbed(root, counter, at, fault)
    opened, fsync, save = builtins.open, os.fsync, checkpoint.save_file

    def watched_open(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        found = opened(file, mode, *rest, **options)
        writes = set("wxa+") & set(mode) and disturbed.holds(file)
        return WatchedFile(found, disturbed) if writes else found

    def watched_fsync(number: int) -> None:
        if disturbed.due("fsync"):
            disturbed.strike()
        fsync(number)

    def watched_save(tensors: Any, path: Any, metadata: Any = None) -> None:
        fails = disturbed.due("write")
        save(tensors, path, metadata=metadata)
        if fails:
            os.truncate(path, os.path.getsize(path) // 2)
            if fault == "dies":
                os._exit(137)
            raise checkpoint.SafetensorError(f"I/O error: {os.strerror(ERRNO[fault])} (os error {ERRNO[fault]})")

    builtins.open = io.open = watched_open  # type: ignore[assignment]
    os.fsync = watched_fsync  # type: ignore[assignment]
    checkpoint.save_file = watched_save
    sys.addaudithook(disturbed.audit)


def fork_runs() -> None:
    """The runs of a comparison, each in a process of its own, are forked too."""
    from regard.comparison import processes

    processes.subprocess = SimpleNamespace(Popen=ForkedRun, PIPE=subprocess.PIPE)  # type: ignore[assignment]


class ForkedRun:
    """What `subprocess.Popen([sys.executable, "-m", MODULE, *WORDS], stdin=PIPE, stdout=PIPE, …)` gives."""

    def __init__(self, command: list[str], **_: object) -> None:
        module, *words = command[command.index("-m") + 1 :]
        (theirs, ours), (answer, said) = os.pipe(), os.pipe()
        self.stderr = self.returncode = None
        self.pid = os.fork()
        if not self.pid:
            os.dup2(theirs, 0)
            os.dup2(said, 1)
            for number in (theirs, ours, answer, said):
                os.close(number)
            _run_child(module, words)
        os.close(theirs)
        os.close(said)
        self.stdin, self.stdout = open(ours, "w"), open(answer)  # noqa: SIM115

    def wait(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _run_child(module: str, words: list[str]) -> None:
    code: Any = 1
    try:
        open_streams()
        importlib.import_module(module).main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# -- the work that is disturbed --------------------------------------------------------------------------------------

TINY = ["--size", "tiny", "--training.threads", "1", "--training.batch-tokens", "128", "--training.evaluate-every", "2"]
TINY += ["--training.checkpoint-every", "2", "--training.steps", "4", "--data.tokenizer", "word", "--seed", "3"]
SMALL = [*TINY[2:8], "--budget", "500", "--run", "cmp", "--model.width", "8", "--data.tokenizer", "word"]


@dataclass(frozen=True)
class Work:
    name: str
    words: list[str]
    result: str  # the run, file or folder that must be as if nothing had happened
    done: list[str] | None = None  # the command after a fault if the run is there: `resume`, or one that reads it
    begins: tuple[list[str], ...] = ()  # commands that come before
    beside: bool = False  # files are written beside the training, as on a GPU


TRAIN = ["train", "rnn", "--data", "my.txt", "--run", "run", "--model.width", "8", "--model.dropout", "0.1", *TINY]
PAIRS = ["train", "seq2seq", "--data", "pairs.tsv", "--run", "run", "--model.width", "8", "--training.keep", "2", *TINY]
COUNT = ["train", "ngram", "--data", "my.txt", "--run", "run", "--model.order", "2"]
GPT = ["train", "gpt", "--data", "my.txt", "--run", "run", "--training.snapshots", "2", *TINY]
RESUME, READ = ["resume", "run"], ["evaluate", "run"]
IN_OUT = ["run", "--in", "in.txt", "--out", "out.txt"]
EXPORT = ["export", "run", "--to"]
ARCHIVE = [*EXPORT, "archive", "--out", "out.zip"]
WORKS = [
    Work("train", TRAIN, "run", done=RESUME),
    Work("train on pairs", PAIRS, "run", done=RESUME),
    Work("train with snapshots", GPT, "run", done=RESUME),
    Work("train, saving beside it", TRAIN, "run", done=RESUME, beside=True),
    Work("train on pairs, saving beside it", PAIRS, "run", done=RESUME, beside=True),
    Work("count", COUNT, "run", done=READ),
    Work("resume", RESUME, "run", begins=(TRAIN,)),
    Work("resume on pairs", RESUME, "run", begins=(PAIRS,)),
    Work("evaluate", READ, "run", begins=(TRAIN,)),
    Work("evaluate on pairs", READ, "run", begins=(PAIRS,)),
    Work("translate", ["translate", *IN_OUT], "out.txt", begins=(PAIRS,)),
    Work("generate", ["generate", *IN_OUT, "--max-tokens", "8"], "out.txt", begins=(TRAIN,)),
    Work("inspect", ["inspect", "run", "the cat", "--html", "out.html"], "out.html", begins=(TRAIN,)),
    Work("export to ARPA", [*EXPORT, "arpa", "--out", "out.arpa"], "out.arpa", begins=(COUNT,)),
    Work("export to an archive", ARCHIVE, "out.zip", begins=(PAIRS,)),
    Work("export to Hugging Face", [*EXPORT, "huggingface", "--out", "out", "--scores", "no"], "out", begins=(GPT,)),
    Work("import ARPA", ["import", "small.arpa", "--run", "run"], "run", done=[*EXPORT, "arpa", "--out", "o.arpa"]),
    Work("import an archive", ["import", "out.zip", "--run", "new"], "new", ["evaluate", "new"], (PAIRS, ARCHIVE)),
    Work("rename", ["runs", "rename", "run", "other"], "other", done=["evaluate", "other"], begins=(COUNT,)),
    Work("remove", ["runs", "remove", "run", "--yes"], "run", begins=(PAIRS,)),
    Work("compare", ["compare", "ngram", "rnn", "--data", "my.txt", *SMALL], "cmp"),
    Work("compare translators", ["compare", "seq2seq", "--data", "pairs.tsv", *SMALL], "cmp"),
]


def make_inputs(folder: Path) -> None:
    folder.mkdir()
    lines = [f"{s} {v} {o} ." for s in ("the cat", "a dog") for v in ("sees", "hears") for o in "xyzuvw" for _ in "12"]
    (folder / "my.txt").write_text("\n".join(f"{line} {n}" for n, line in enumerate(lines)) + "\n")
    (folder / "pairs.tsv").write_text("".join(f"{line} {n}\t{line[::-1]}\n" for n, line in enumerate(lines)))
    (folder / "in.txt").write_text("the cat sees x\na dog hears y\n\nthe dog\n")
    shutil.copy(Path(__file__).parents[1] / "tests" / "golden" / "harbour.3.arpa", folder / "small.arpa")


CLOCKS = {"seconds", "elapsed", "started", "besides", "tokens_per_second", "sentences_per_second"}


def result(path: Path) -> object:
    """What must be equal, file by file. Of weights their tensors and notes, of the learning curve its losses, of a
    result its evaluation, each without clocks; of pages and of what names the time that they exist."""
    if path.is_file():
        return _content(path)
    return {str(file.relative_to(path)): _content(file) for file in path.rglob("*") if file.is_file()}


def differences(found: Any, whole: Any) -> list[str]:
    """The names of the files that differ. A run may have got its page, which any later command writes."""
    if not isinstance(found, dict) or not isinstance(whole, dict):
        return ["its content"] * (found != whole)
    names = {name for name in {*found, *whole} if Path(name).name not in (".lock", ".beginning")}
    return sorted(
        name for name in names if found.get(name) != whole.get(name) and (name in whole or name != "report.html")
    )


def _content(file: Path) -> object:
    from regard.training.checkpoint import load_tensors
    from regard.training.metrics import sound_metrics

    if file.name in ("run.json", "comparison.json", "report.html", ".lock"):
        return True
    if file.suffix == ".safetensors":
        tensors, note = load_tensors(file)
        note = {key: _timeless(value) for key, value in note.items()}
        return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}, note
    if file.name == "metrics.jsonl":
        entries, damaged = sound_metrics(file)
        return [_timeless(entry) for entry in entries], damaged
    if file.name == "result.json":
        return _timeless(json.loads(file.read_bytes())["evaluation"])
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    return {key: each for key, each in value.items() if key not in CLOCKS} if isinstance(value, dict) else value


def unfinished(folder: Path) -> list[str]:
    """Files that nothing will ever finish; the mark of a beginning means nothing where there is a run."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if ".part" in path.name
        or path.name.startswith(".out.")
        or (path.name == ".beginning" and not (path.parent / "run.json").exists())
    ]


def regard(folder: Path, words: list[str], *disturbance: Any, **options: Any) -> Outcome:
    how = {"before": disturb, "arguments": (str(folder), *disturbance)} if disturbance else {"before": fork_runs}
    environment = {"REGARD_CACHE": str(folder / "cache")}
    return forked(*words, cwd=folder, environment=environment, memory=None, **{"seconds": 900, **how, **options})


def begin(work: Work, folder: Path, counter: Path) -> tuple[Path, object, int, float]:
    """What the work begins with, what comes of it undisturbed, and how many operations and seconds that takes."""
    from regard.training import background_files

    background_files.BESIDE = (
        ("cpu",) if work.beside else ("cuda",)
    )  # of the commands that are forked from this process
    start, whole = folder / f"{work.name}-start", folder / f"{work.name}-whole"
    make_inputs(start)
    for words in work.begins:
        done = regard(start, words, str(counter), 0, "dies")
        assert done.code == 0, (words, done)
    if work.words == RESUME:  # a run that was killed in the middle
        shutil.rmtree(start)
        make_inputs(start)
        assert regard(start, work.begins[-1], str(counter), 2 * int(counter.read_text()) // 3, "dies").code == 137
        assert (start / "run" / "training.safetensors").exists()
    shutil.copytree(start, whole)
    began = time.monotonic()
    done = regard(whole, work.words, str(counter), 0, "dies")
    assert done.code == 0, (work.name, done)
    return start, result(whole / work.result), int(counter.read_text()), time.monotonic() - began


def survives(work: Work, start: Path, whole: object, at: int, fault: str, counter: Path) -> str:
    """ "" if nothing is lost, else what went wrong."""
    folder = start.with_name("trial")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)
    disturbed = regard(folder, work.words, str(counter), at, fault)
    if int(counter.read_text()) < at:
        return "this place was not reached"
    if fault != "dies" and disturbed.kind == "defect":
        return f"it did not say so in one sentence: {disturbed}"
    if fault == "full" and disturbed.kind == "refused" and not re.search("full|space", disturbed.said):
        return f"it did not say that the disk is full: {disturbed.said}"
    return lost(work, folder, whole)


def next_command(work: Work, folder: Path) -> list[str] | None:
    """What a user does after a fault. None: there is nothing left to do."""
    there = folder / work.result
    if work.name == "remove":
        return work.words if there.exists() else None
    return work.done if work.done and (there / "run.json").exists() else work.words


def lost(work: Work, folder: Path, whole: object) -> str:
    """The work goes on, undisturbed: what is not as it would have been? "" is good."""
    there = folder / work.result
    if work.result.startswith("out") and there.exists():  # complete: the same once more
        if result(there) != whole:
            return f"{work.result} is not what it is without a fault"
        shutil.rmtree(there) if there.is_dir() else there.unlink()
    words = next_command(work, folder)
    again = regard(folder, words) if words else None
    if words and again and again.code != 0:
        return f"`regard {' '.join(words[:2])}` after it: {again}"
    if differ := differences(result(there), whole):
        return f"{work.result} is not what it is without a fault: {', '.join(differ)}"
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


def campaign(works: list[Work], every: int, say: Callable[[str], None]) -> tuple[int, int]:
    """How many places were tried, and after how many of them nothing was lost."""
    tried = survived = 0
    for work in works:
        began, counts = time.monotonic(), []
        with scratch() as folder:
            counter = folder / "counter"
            start, whole, places, _ = begin(work, folder, counter)
            for turn, fault in enumerate(FAULTS):
                chosen = range(1 + turn * every // len(FAULTS), places + 1, every)
                good = len(chosen)
                for at in chosen:
                    if why := survives(work, start, whole, at, fault, counter):
                        good -= 1
                        say(f"    {work.name}, place {at}, {fault}: {why}")
                counts += [good, len(chosen)]
        tried, survived = tried + sum(counts[1::2]), survived + sum(counts[::2])
        each = ", ".join(f"{fault} {good} of {all_}" for fault, good, all_ in zip(FAULTS, counts[::2], counts[1::2]))
        say(f"{work.name:32} {places:4} places; survived: {each}; {time.monotonic() - began:.0f} s")
    return tried, survived


def kill_all(works: list[Work], times: int, say: Callable[[str], None]) -> bool:
    fine = True
    for work in works:
        with scratch() as folder:
            killed, attempts, good = kills(work, times, folder, say)
        fine &= good == attempts
        say(f"{work.name:32} {killed:4} kills in {attempts:3} attempts, {good:3} as if nothing had happened")
    return fine


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: the disk is not waited for."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="faults-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def warm(works: list[Work]) -> None:
    """Do each work once in this process, and fork the commands from it."""
    import torch

    from regard.cli import main as command
    from regard.comparison import language_task
    from regard.runs import run_report
    from regard.text import cached_text

    torch.set_num_threads(1)
    cached_text.MIN_CACHED_CHARACTERS = 0  # so that results for these small corpora are cached, too
    run_report.LONG = language_task.WRITTEN = 9  # tokens of the samples on a page, and to measure the speed of writing,
    language_task.SAMPLE = dict.fromkeys(language_task.SAMPLE, 9)  # which take more time than all that is saved
    fork_runs()
    interrupted = signal.getsignal(signal.SIGINT)
    for work in works:
        with scratch() as folder, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            os.environ["REGARD_CACHE"] = str(folder / "cache")
            make_inputs(folder / "work")
            with chdir(folder / "work"):
                for words in (*work.begins, work.words, work.done or READ):
                    with suppress(SystemExit):
                        command(words)
    signal.signal(signal.SIGINT, interrupted)
    gc.freeze()
    commands.FORK = get_context("fork")  # type: ignore[assignment]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", help=", ".join(work.name for work in WORKS))
    parser.add_argument(
        "--every", type=int, default=1, help="try each place whose number is a multiple of this, plus one"
    )
    parser.add_argument("--kills", type=int, help="kill each work so often, at random moments")
    asked = parser.parse_args()
    if unknown := {*asked.works} - {work.name for work in WORKS}:
        parser.error(f"there is no work {', '.join(unknown)}")
    works = [work for work in WORKS if work.name in asked.works] or WORKS
    warm(works)

    def say(line: str) -> None:
        print(line, flush=True)

    if asked.kills:
        sys.exit(not kill_all(works, asked.kills, say))
    tried, survived = campaign(works, asked.every, say)
    say(f"{tried} places tried, {survived} survived")
    sys.exit(tried != survived)


if __name__ == "__main__":
    main()
