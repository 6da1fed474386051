"""The memory of `regard serve` over many requests of every kind, as a picture.

    python studies/serving_memory.py RUN [--requests 10000] [--clients 16] [--out memory.svg]

Requests differ in their prompts, lengths, temperatures and seeds; every fifth asks for log-probabilities, every tenth
is one that is refused. The memory is what the server's /metrics says after every hundredth of them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from regard.report.figures import Line, Lines
from regard.report.svg import svg
from regard.report.svg_file import as_file


def question(name: str, number: int) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "model": name,
        "prompt": "a " * (number % 7),
        "max_tokens": 1 + number % 13,
        "temperature": (0, 0.5, 0.7, 0.9, 1.0, 1.2)[number % 6],
        "seed": number,
    }
    if number % 5 == 0:
        asked |= {"logprobs": 3, "echo": True}
    if number % 10 == 3:
        asked["suffix"] = "which is refused"
    return asked


def ask(address: str, body: dict[str, Any]) -> int:
    request = Request(f"{address}v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urlopen(request) as answer:
            answer.read()
            return int(answer.status)
    except HTTPError as error:
        error.read()
        return error.code


def memory(address: str) -> float:
    """Bytes that the server holds."""
    with urlopen(f"{address}metrics") as answer:
        found = re.search(r"^process_resident_memory_bytes (\d+)", answer.read().decode(), re.M)
    assert found, "the server does not say it here"
    return float(found[1])


def picture(points: list[tuple[float, float]], name: str) -> str:
    title = f"Memory of regard serve {name}"
    return as_file(svg(Lines(title, "requests", "MiB", [Line("", points)], zero_y=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description="A server's memory over many requests.")
    parser.add_argument("run", type=Path, help="of a language model")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--out", type=Path, help="write the picture here")
    options = parser.parse_args()
    name = options.run.resolve().name
    command = [sys.executable, "-m", "regard", "serve", str(options.run), "--port", "0", "--device", "cpu"]
    points: list[tuple[float, float]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address, statuses = server.stdout.readline().strip(), dict[int, int]()
            step = max(1, options.requests // 100)
            with ThreadPoolExecutor(options.clients) as clients:
                for done in range(0, options.requests, step):
                    points.append((done, memory(address) / 2**20))
                    bodies = [question(name, number) for number in range(done, min(done + step, options.requests))]
                    for status in clients.map(lambda body: ask(address, body), bodies):
                        statuses[status] = statuses.get(status, 0) + 1
            points.append((options.requests, memory(address) / 2**20))
        finally:
            server.terminate()
    for requests, size in points[:: max(1, len(points) // 10)]:
        print(f"{requests:>8.0f} requests  {size:8.1f} MiB")
    print(", ".join(f"{count} × {status}" for status, count in sorted(statuses.items())))
    if options.out is not None:
        options.out.write_text(picture(points, name), encoding="utf-8")


if __name__ == "__main__":
    main()
