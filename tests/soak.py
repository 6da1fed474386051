"""Does anything grow? Train, resume, generate and translate again and again, in one process and in many, and look at
memory, open files, threads and the cache: `make soak`, or `python tests/soak.py --minutes 60 --out docs/soak.svg`.

The picture shows each as a share of what it was after the first rounds; a line that rises is a leak. Exit code 1 if
memory grew by more than a tenth, or anything else grew at all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from fault_injection import PAIRS, TRAIN, make_inputs
from forked import forked

WARM = 10  # rounds until caches, kernels and the allocator are as they will be


def settings(words: list[str]) -> dict[str, dict[str, str]]:
    """`--model.width 8` → {"model": {"width": "8"}}"""
    tree: dict[str, dict[str, str]] = {}
    for option, value in pairwise(words):
        section, dot, name = option.removeprefix("--").replace("-", "_").partition(".")
        if option.startswith("--") and dot:
            tree.setdefault(section, {})[name] = value
    return tree


def in_one_process(folder: Path, number: int) -> None:
    """Everything by the Python interface, in this process."""
    import regard

    for words, name in ((TRAIN, "text"), (PAIRS, "pairs")):
        run = folder / f"{name}-{number}"
        regard.train(words[1], data=words[3], run=run, size="tiny", seed=3, settings=settings(words))
        trained = regard.resume(run)
        if name == "text":
            list(trained.score(["the cat sees x"]))
            trained.generate("the cat", max_tokens=8)
        else:
            list(trained.translate(["the cat sees x", "a dog"]))
        shutil.rmtree(run)


def in_many(folder: Path, number: int) -> None:
    """A command in a process of its own."""
    words = [f"many-{number}" if word == "run" else word for word in TRAIN]
    assert forked(*words, cwd=folder, environment={"REGARD_CACHE": os.environ["REGARD_CACHE"]}).code == 0
    shutil.rmtree(folder / f"many-{number}")


def sample(folder: Path) -> dict[str, float]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    cache = [path.stat().st_size for path in Path(os.environ["REGARD_CACHE"]).rglob("*") if path.is_file()]
    return {
        "memory": int(status["VmRSS"].split()[0]) / 1024,
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "cache": sum(cache) / 1024,
        "files left": sum(1 for path in folder.rglob("*")) + len(cache),
    }


def picture(samples: list[dict[str, float]]) -> str:
    from regard.report.figures import Line
    from regard.report.svg import line_chart

    first = samples[min(WARM, len(samples) - 1)]
    units = {"memory": " MiB", "cache": " KiB"}
    names = [name for name in first if name != "minutes"]
    lines = [Line(name, [(each["minutes"], each[name] / max(first[name], 1e-9)) for each in samples]) for name in names]
    ends = ", ".join(f"{name} {first[name]:.0f} → {samples[-1][name]:.0f}{units.get(name, '')}" for name in names)
    return line_chart(
        lines,
        title=f"{len(samples)} rounds of train, resume, generate, translate",
        x="minutes",
        y=f"share of what it was in round {WARM}",
        description=f"{ends}.",
        log_y=False,
        zero_y=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, help="an SVG file; without it only numbers are printed")
    asked = parser.parse_args()
    out = asked.out and asked.out.absolute()
    began, samples, number = time.monotonic(), [], 0
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name) / "work"
        os.environ["REGARD_CACHE"] = str(Path(name) / "cache")
        make_inputs(folder)
        os.chdir(folder)
        from regard.report.progress import hush

        hush()
        while (minutes := (time.monotonic() - began) / 60) < asked.minutes or number <= WARM:
            in_one_process(folder, number)
            if number % 5 == 0:
                in_many(folder, number)
            samples.append({"minutes": minutes, **sample(folder)})
            print(json.dumps(samples[-1]), flush=True)
            number += 1
        os.chdir("/")
    first, last = samples[WARM], samples[-1]
    if out:
        out.write_text(picture(samples), encoding="utf-8")
    grown = [key for key in first if key != "minutes" and last[key] > first[key] * (1.1 if key == "memory" else 1.0)]
    print(f"{len(samples)} rounds in {last['minutes']:.0f} minutes; grown: {', '.join(grown) or 'nothing'}")
    sys.exit(bool(grown))


if __name__ == "__main__":
    main()
