"""Does anything grow? Train, resume, generate, translate and serve again and again, in one process and in many: memory,
open files, threads and the cache. `make soak`, or `python tools/soak.py --minutes 60 --out notes/soak.svg`.

One `regard serve` runs all the time: each round it is given new runs in place of the old, and is asked for texts and
translations. The picture shows each quantity as a share of what it was after the first rounds; a line that rises is a
leak. Exit code 1 if memory grew by more than a tenth, or anything else grew at all.

Each round ends with a full garbage collection. Python itself makes one only when the new objects are a quarter of all,
which takes dozens of rounds: until then memory would rise, by what nobody holds any more.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import httpx

from fault_injection import PAIRS, TRAIN, make_inputs
from forked import forked

LANGUAGES = {"pairs": ("en", "fr")}
QUESTIONS = 10  # of each kind to a server, in each round
WARM = 40  # rounds until caches, kernels, the allocator and pools of threads are as they will be


def settings(words: list[str]) -> dict[str, dict[str, str]]:
    """`--model.width 8` → {"model": {"width": "8"}}"""
    tree: dict[str, dict[str, str]] = {}
    for option, value in pairwise(words):
        section, dot, name = option.removeprefix("--").replace("-", "_").partition(".")
        if option.startswith("--") and dot:
            tree.setdefault(section, {})[name] = value
    return tree


def in_one_process(folder: Path) -> None:
    """Everything by the Python interface, in this process."""
    import regard

    for words, name in ((TRAIN, "text"), (PAIRS, "pairs")):
        run = folder / name
        regard.train(words[1], data=words[3], run=run, size="tiny", seed=3, settings=settings(words))
        trained = regard.resume(run)
        if name == "text":
            list(trained.score(["the cat sees x"]))
            trained.generate("the cat", max_tokens=8)
        else:
            list(trained.translate(["the cat sees x", "a dog"]))
    served_here([folder / "text", folder / "pairs"])


def served_here(runs: list[Path]) -> None:
    """A server in a thread, which is asked and stopped."""
    from regard.web.listening import Server, listen, url
    from regard.web.serve.api_server import application
    from regard.web.serve.served_models import ServedModels

    models = ServedModels(runs, languages=LANGUAGES, places=64, device="cpu")
    listening, ready = listen("127.0.0.1", 0), threading.Event()
    server = Server(application(models, host="127.0.0.1"), listening, ready=lambda _: ready.set())
    thread = threading.Thread(target=server.run)
    address = url(listening)
    thread.start()
    assert ready.wait(60)
    ask(address)
    server.should_exit = True
    thread.join()
    listening.close()


def ask(address: str) -> None:
    with httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(QUESTIONS):
            asked = {"model": "text", "prompt": "the cat", "max_tokens": 8}
            client.post("v1/completions", json=asked).raise_for_status()
            with client.stream("POST", "v1/completions", json=asked | {"stream": True}) as events:
                next(events.iter_lines())  # and leaves before the end
            sentence = {"q": "a dog hears y", "source": "en", "target": "fr"}
            client.post("translate", json=sentence).raise_for_status()


class ServerProcess:
    """`regard serve` for the whole hour."""

    def __init__(self, runs: list[Path]) -> None:
        self.runs = runs
        words = ["serve", *map(str, runs), "--port", "0", "--device", "cpu", "--languages", "pairs=en-fr"]
        self.process = subprocess.Popen([sys.executable, "-m", "regard", *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def replace(self, runs: list[Path]) -> None:
        """Other runs in the place of those that are served; it takes them up at SIGHUP."""
        for old, new in zip(self.runs, runs):
            away = old.with_name(f"{old.name}-away")
            old.rename(away)
            new.rename(old)
            shutil.rmtree(away)
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0


def in_many(folder: Path, number: int) -> None:
    """A command in a process of its own."""
    words = [f"many-{number}" if word == "run" else word for word in TRAIN]
    assert forked(*words, cwd=folder, environment={"REGARD_CACHE": os.environ["REGARD_CACHE"]}).code == 0
    shutil.rmtree(folder / f"many-{number}")


def process(number: int | str) -> dict[str, float]:
    """What a process holds."""
    folder = Path("/proc") / str(number)
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    return {
        "memory": int(status["VmRSS"].split()[0]) / 1024,
        "open files": len(os.listdir(folder / "fd")),
        "threads": int(status["Threads"]),
    }


def sample(folder: Path, server: ServerProcess) -> dict[str, float]:
    gc.collect()
    cache = [path.stat().st_size for path in Path(os.environ["REGARD_CACHE"]).rglob("*") if path.is_file()]
    return {
        **process("self"),
        **{f"server's {name}": value for name, value in process(server.process.pid).items()},
        "cache": sum(cache) / 1024,
        "files left": sum(1 for path in folder.rglob("*")) + len(cache),
    }


def picture(samples: list[dict[str, float]]) -> str:
    from regard.report.figures import Line
    from regard.report.svg import line_chart
    from regard.report.svg_file import as_file

    first = samples[WARM]
    units = {"memory": " MiB", "server's memory": " MiB", "cache": " KiB"}
    names = [name for name in first if name != "minutes"]
    lines = [Line(name, [(each["minutes"], each[name] / max(first[name], 1e-9)) for each in samples]) for name in names]
    ends = ", ".join(f"{name} {first[name]:.0f} → {samples[-1][name]:.0f}{units.get(name, '')}" for name in names)
    return as_file(
        line_chart(
            lines,
            title=f"{len(samples)} rounds of train, resume, generate, translate, serve",
            x="minutes",
            y=f"share of what it was in round {WARM}",
            description=f"{ends}.",
            log_y=False,
            zero_y=True,
        )
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
        in_one_process(folder)
        served = folder / "served"
        served.mkdir()
        for name in ("text", "pairs"):
            (folder / name).rename(served / name)
        server = ServerProcess([served / "text", served / "pairs"])
        while (minutes := (time.monotonic() - began) / 60) < asked.minutes or number <= WARM:
            in_one_process(folder)
            server.replace([folder / "text", folder / "pairs"])
            ask(server.address)
            if number % 5 == 0:
                in_many(folder, number)
            samples.append({"minutes": minutes, **sample(folder, server)})
            print(json.dumps(samples[-1]), flush=True)
            number += 1
        server.stop()
        os.chdir("/")
    first, last = samples[WARM], {key: min(each[key] for each in samples[-5:]) for key in samples[-1]}
    if out:
        out.write_text(picture(samples), encoding="utf-8")
    grown = [key for key in first if key != "minutes" and last[key] > first[key] * (1.1 if "memory" in key else 1)]
    print(f"{len(samples)} rounds in {samples[-1]['minutes']:.0f} minutes; grown: {', '.join(grown) or 'nothing'}")
    sys.exit(bool(grown))


if __name__ == "__main__":
    main()
