"""How soon a training on a GPU takes its first step, cold and warm, and how much it reads in a budget.

    python studies/first_step.py [--before PATH] [--systems gpt lstm transformer] [--budgets gpt:cold gpt:warm]

Each run is the command `regard train` in a process of its own, which this script ends after some steps, or when its
budget is over. *Cold*: the caches of Regard, Triton and Inductor are empty. *Warm*: after such a run of the same code.
`--before`: the root of another source tree, measured in turn with this one. Where the seconds until the first
step went is sampled every 10 ms in the main thread; the tree of all threads in the first three steps is written to
`$OUT/first_step-*.txt`. Run it where `python -m regard` runs; REGARD_DATA names the folder of the corpora.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from first_seconds import Node, stack

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {  # and the steps of a cold and of a warm run, of which the last two thirds are timed
    "gpt": ("train gpt --size small --data wikitext-2", 8, 600),
    "lstm": ("train lstm --size small --data wikitext-2", 8, 600),
    "transformer": ("train transformer --size medium --data multi30k --data.source de --data.target en", 60, 60),
}
SYNCHRONIZED, TREE_STEPS, INTERVAL = 8, 3, 0.01  # the first steps that are waited for, those in the tree, seconds
LIMIT = 90  # seconds of one run
PHASES = {  # label → a name in the stack; the first that is found counts
    "import torch": ("import torch",),
    "step": ("training.loop.step",),
    "vocabulary": ("learn_tokenizer",),
    "tokens": ("runs.prepare.cut", "runs.prepare.facts"),
    "corpus": ("runs.prepare.open_data",),
    "model": ("folder.build_model", "runs.prepare.check_room"),
    "trainer": ("runs.train.build_trainer",),
    "files": ("write_folder", "training.loop.save", "write_facts"),
    "imports": ("import ",),
    "other": ("",),
}


# -- in the process that trains --------------------------------------------------------------------------------------


def path_of(frame: FrameType | None) -> list[str]:
    """Functions of Regard and Triton from the outermost inwards, and imports."""
    names: list[str] = []
    for each in reversed(list(stack(frame))):
        module, function = str(each.f_globals.get("__name__", "")), each.f_code.co_name
        if module in ("__main__", "first_seconds"):
            continue
        if function == "<module>":
            names.append(f"import {module if module.startswith('regard') else module.partition('.')[0]}")
            if not module.startswith("regard"):
                return names
        elif module.startswith(("regard", "triton")):
            names.append(f"{module.removeprefix('regard.')}.{function}")
    return names


class Watched(threading.Thread):
    """Samples the main thread, and wraps `Trainer.step` and `train` as soon as they are imported."""

    def __init__(self, began: float, most: int, out: Path) -> None:
        super().__init__(daemon=True)
        self.began, self.most, self.out = began, most, out
        self.main, self.tree, self.phases = threading.main_thread().ident or 0, Node(), dict.fromkeys(PHASES, 0.0)
        self.steps: list[tuple[float, int]] = []  # seconds since the command when each step was finished, and tokens
        self.wrapped = self.ended = False

    def run(self) -> None:
        last = self.began
        while not self.ended:
            time.sleep(INTERVAL)
            loop: Any = sys.modules.get("regard.training.loop")
            if not self.wrapped and hasattr(loop, "Trainer"):
                self.wrapped = True
                self.wrap(loop.Trainer)
            frames, now = sys._current_frames(), time.perf_counter()
            path = path_of(frames.pop(self.main, None))
            if len(self.steps) < TREE_STEPS:
                self.tree.add(path or ["Python"], last - self.began, now - last)
                for beside in filter(None, map(path_of, frames.values())):  # such as the backward pass
                    self.tree.add(["beside", *beside], last - self.began, now - last)
            if not self.steps:
                text = "\n".join(path)
                phase = next(phase for phase, names in PHASES.items() if any(name in text for name in names))
                self.phases[phase] += now - last
            last = now

    def wrap(self, kind: Any) -> None:
        step, train = kind.step, kind.train

        def noted_step(trainer: Any) -> Any:
            found = step(trainer)
            number = len(self.steps) + 1
            if trainer.device.type == "cuda" and (number <= SYNCHRONIZED or number in (self.most // 3, self.most)):
                import torch

                torch.cuda.synchronize()
            self.steps.append((time.perf_counter() - self.began, trainer.progress.tokens))
            if number == self.most:
                self.end()
            return found

        def noted_train(trainer: Any) -> Any:
            train(trainer)
            self.end()

        kind.step, kind.train = noted_step, noted_train

    def end(self) -> None:
        self.ended = True
        tree = "\n".join(self.tree.lines(0.03))
        self.out.write_text(json.dumps({"steps": self.steps, "phases": self.phases, "tree": tree}), encoding="utf-8")
        raise SystemExit(0)


def train_watched(began: float, most: int, out: Path, words: list[str]) -> None:
    Watched(began, most, out).start()
    sys.argv = ["regard", *words]
    runpy.run_module("regard", run_name="__main__")


# -- in the process that compares ------------------------------------------------------------------------------------


def run(tree: Path, caches: Path, words: str, most: int) -> dict[str, Any]:
    """What the command did, from its start on; `caches` is a folder for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        paths = [str(tree / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        own = {"REGARD_CACHE": "regard", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)), "PYTHONSAFEPATH": ""}
        environment |= {name: str(caches / place) for name, place in own.items()}
        if data := os.environ.get("REGARD_DATA"):
            environment["REGARD_DATA"] = os.path.abspath(data)
        inner = [sys.executable, __file__, "--inner", str(time.perf_counter()), str(most), str(out)]
        command = [*inner, *words.split(), "--run", f"{folder}/run"]
        try:
            said = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
            error = said.stderr
        except subprocess.TimeoutExpired:
            error = f"not done after {LIMIT} s"
        if not out.exists():
            print(error[-2000:], flush=True)
            return {"steps": [(float("nan"), 0)], "phases": dict.fromkeys(PHASES, 0.0), "tree": error}
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


def seconds_of_import(repeats: int = 3) -> float:
    """The median of `import torch` in a process of its own, start of Python included."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[repeats // 2]


def show(what: str, found: dict[str, Any], imported: float, most: int) -> None:
    steps, out = found["steps"], os.environ.get("OUT")
    first = steps[0][0]
    after = " ".join(f"{at - before:.2f}" for (before, _), (at, _) in pairwise(steps[:SYNCHRONIZED]))
    line = f"{what:32s} first step {first:6.2f} s = import torch + {first - imported:5.2f} s; the next: {after}"
    if most > SYNCHRONIZED and len(steps) > 3:
        begin, (end, read) = steps[len(steps) // 3 - 1], steps[-1]
        line += f"; {(read - begin[1]) / (end - begin[0]):,.0f} tokens/s of steps {len(steps) // 3}-{len(steps)}"
    print(line, f"; {steps[-1][1]:,} tokens in {steps[-1][0]:.1f} s", sep="", flush=True)
    print(" " * 8, ", ".join(f"{phase} {taken:.2f}" for phase, taken in found["phases"].items() if taken >= 0.02))
    if out:
        place = Path(out) / f"first_step-{what.replace(' ', '_').replace(',', '')}.txt"
        place.write_text(line + "\n" + found["tree"] + "\n", encoding="utf-8")


def main() -> None:
    if sys.argv[1:2] == ["--inner"]:
        began, last, out, *given = sys.argv[2:]
        return train_watched(float(began), int(last), Path(out), given)
    parser = argparse.ArgumentParser(description="How soon a training takes its first step.")
    parser.add_argument("--before", type=Path, metavar="PATH", help="the root of the source tree before a change")
    parser.add_argument("--systems", nargs="*", default=list(COMMANDS), choices=COMMANDS)
    parser.add_argument("--budgets", nargs="*", default=["gpt:cold", "transformer:cold"])
    parser.add_argument("--steps", nargs=2, type=int, help="of a cold and a warm run, for every system")
    parser.add_argument("--budget", default="15s")
    options = parser.parse_args()
    trees = {"before": options.before.resolve(), "now": ROOT} if options.before else {"now": ROOT}
    for tree in trees.values():
        compileall.compile_dir(tree / "src", quiet=2)
    imported = seconds_of_import()
    print(f"import torch: {imported:.2f} s (median of 3, in a process of its own)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for system in options.systems:
            words, *steps = COMMANDS[system]
            for name, tree in trees.items():
                caches = Path(folder) / f"{name}-{system}"
                for kind, most in zip(("cold", "warm"), options.steps or steps):
                    show(f"{system}, {kind}, {name}", run(tree, caches, words, most), imported, most)
        for asked in options.budgets:
            system, _, kind = asked.partition(":")
            for name, tree in trees.items():
                caches = Path(folder) / f"{name}-{system}-budget"
                if kind == "cold":
                    shutil.rmtree(caches, ignore_errors=True)
                found = run(tree, caches, f"{COMMANDS[system][0]} --budget {options.budget}", 0)
                show(f"{system}, {options.budget}, {kind}, {name}", found, imported, 10**9)


if __name__ == "__main__":
    main()
