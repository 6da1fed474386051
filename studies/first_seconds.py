"""Where the seconds of a command go, from its start to its end.

    python studies/first_seconds.py [--least 0.1] train transformer --data multi30k … --budget 15s

A second thread looks at the stack of the first every 10 ms and books the time since its last look there; a call that
holds Python's lock (loading a library) is booked when it ends. Printed as a tree: what was first seen when, for how
long, and in which of Regard's functions or in whose import. `--least`: the shortest time that gets a line.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

BEGAN = time.perf_counter()
INTERVAL = 0.01  # seconds between two looks


@dataclass
class Node:
    first: float = 0.0
    seconds: float = 0.0
    inside: dict[str, Node] = field(default_factory=dict)

    def add(self, path: list[str], now: float, seconds: float) -> None:
        node = self
        for name in path:
            node.seconds += seconds
            node = node.inside.setdefault(name, Node(now))
        node.seconds += seconds

    def lines(self, least: float, depth: int = 0) -> Iterator[str]:
        for name, node in self.inside.items():
            if node.seconds >= least:
                yield f"{node.first:7.2f} s {node.seconds:7.2f} s  {'  ' * depth}{name}"
                yield from node.lines(least, depth + 1)


def path_of(frame: FrameType | None) -> list[str]:
    """Regard's functions and modules from the outermost inwards, up to the first import of another package."""
    names: list[str] = []
    for each in reversed(list(stack(frame))):
        module, function = str(each.f_globals.get("__name__", "")), each.f_code.co_name
        if module == "__main__":
            continue
        if not module.startswith("regard"):
            if function == "<module>":
                return [*names, f"import {module.partition('.')[0]}"]
        elif function == "<module>":
            names.append(f"import {module}")
        else:
            names.append(f"{module.removeprefix('regard.')}.{function}")
    return names


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Watch(threading.Thread):
    """Books the time of the main thread until `ended` is set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.tree, self.ended, self.watched = Node(), threading.Event(), threading.main_thread().ident

    def run(self) -> None:
        last = BEGAN
        while not self.ended.wait(INTERVAL):
            path, now = path_of(sys._current_frames().get(self.watched or 0)), time.perf_counter()
            self.tree.add(path or ["Python"], last - BEGAN, now - last)
            last = now


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the seconds of a command go.")
    parser.add_argument("--least", type=float, default=0.1, metavar="SECONDS", help="the shortest time with a line")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the words after `regard`")
    options = parser.parse_args()
    watch = Watch()
    watch.start()
    try:
        sys.argv = ["regard", *options.command]
        runpy.run_module("regard", run_name="__main__")
    finally:
        watch.ended.set()
        watch.join()
        print("  since     lasted  in", *watch.tree.lines(options.least), sep="\n", flush=True)


if __name__ == "__main__":
    main()
