"""Every output that README.md and docs/ show, compared with what is really printed.

    python tools/shown_outputs.py            compare
    python tools/shown_outputs.py --write    put what is printed now into the pages

A ```console block has commands (`$ …`) and their output. All commands of all pages run in one folder, in the order of
PAGES; a command that an earlier page has shown is not run again. A ```python block with `>>>` is a session, run there
as well. What is compared:

- a number may differ by TOLERANCE, one before a unit of time, speed or memory by any amount;
- `…` alone on a line stands for any lines, at the end of a line for the rest of it; all other words must be the same;
- after `<!-- sampled text -->` the text may be another one: another processor rounds, and so writes, differently;
- after `<!-- file: NAME -->` a ```python block is written into that file;
- after `<!-- recorded -->` nothing is run: the block takes minutes, and tests/cli/test_readme.py compares its form.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
TOLERANCE = 0.15
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / "tutorials" / f"{name}.md" for name in ("first-model", "reading-a-trace", "first-translator")),
    ROOT / "docs" / "tutorials" / "your-own-layer.md",
    ROOT / "docs" / "guides" / "why.md",
    *(ROOT / "docs" / "learn" / f"{name}.md" for name in ("counting", "recurrent", "translation")),
    *(ROOT / "docs" / "learn" / f"{name}.md" for name in ("attention", "transformer", "gpt")),
]
NUMBER = re.compile(r"[-+−]?(?:\d+\.\d+|\d+|\.\d+)(?:e[-+]?\d+)?")
UNIT = re.compile(r" ?(?:s|ms|min|MiB|GiB|GB|kB|tokens/s|tok/s|sentences/s|words/s|%)(?![\w])")
GROUPS = re.compile(r"(?<=\d)[ ,\u00a0\u2009\u202f](?=\d{3}(?!\d))")  # 10 000 and 10,000


@dataclass
class Step:
    """One command or one statement, what the page shows below it, and the place of that on the page."""

    page: Path
    kind: str  # console, python or file
    code: str
    shown: list[str] = field(default_factory=list)
    first: int = 0  # index of the first line of the output
    sampled: bool = False

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.first}"


def steps(page: Path) -> Iterator[Step]:
    """The commands and statements of a page, in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number, note = 0, ""
    while number < len(lines):
        line = lines[number]
        if found := re.fullmatch(r"<!-- (sampled text|recorded|file: [\w.]+) -->", line):
            note = found[1]
        elif line in ("```console", "```python"):
            end = lines.index("```", number)
            if note.startswith("file: "):
                yield Step(page, "file", "\n".join([note[6:], *lines[number + 1 : end]]))
            elif note != "recorded":
                yield from _block(page, line[3:], lines, number + 1, end, sampled=note == "sampled text")
            number, note = end, ""
        elif line:
            note = ""
        number += 1


def _block(page: Path, kind: str, lines: list[str], first: int, end: int, *, sampled: bool) -> Iterator[Step]:
    prompt, more = ("$ ", "> ") if kind == "console" else (">>> ", "... ")
    step: Step | None = None
    for number in range(first, end):
        line = lines[number]
        if line.startswith(prompt):
            if step:
                yield step
            step = Step(page, kind, line[len(prompt) :].split("  #")[0], [], number + 1, sampled)
        elif step and not step.shown and (line.startswith(more) or line == more.strip()):
            step.code, step.first = f"{step.code}\n{line[len(more) :]}", number + 1
        elif step:
            step.shown.append(line)
    if step:
        yield step


def differs(shown: str, printed: str) -> bool:
    """Is this line another one than the page shows?"""
    cut = shown.endswith("…")
    parts = [_parts(shown.removesuffix("…")), _parts(printed)]
    (words, numbers, measured), (printed_words, printed_numbers, _) = parts
    if cut:
        if len(numbers) > len(printed_numbers):
            return True
        printed_numbers, printed_words = printed_numbers[: len(numbers)], printed_words[: len(words)]
        printed_words[-1:] = [printed_words[-1][: len(words[-1])]] if printed_words else []
    return words != printed_words or any(
        not free and abs(one - other) > TOLERANCE * max(abs(one), abs(other)) + 0.011
        for one, other, free in zip(numbers, printed_numbers, measured, strict=True)
    )


def _parts(line: str) -> tuple[list[str], list[float], list[bool]]:
    """The words between its numbers, the numbers, and which of them have a unit and so are of this machine."""
    line = GROUPS.sub("", line.replace("\t", " "))
    words = [" ".join(part.split()) for part in NUMBER.split(line)]
    found = list(NUMBER.finditer(line))
    numbers = [float(match[0].replace("−", "-")) for match in found]
    free = line.startswith("seconds")
    return words, numbers, [free or bool(UNIT.match(line, match.end())) for match in found]


def difference(step: Step, printed: list[str]) -> str:
    """Where the page is wrong, or nothing."""
    if step.sampled:
        return (
            "" if any(printed) == any(step.shown) else _message(step, printed, "text where the page has none, or none")
        )
    place = 0
    skip = False
    for shown in step.shown:
        if shown.strip() == "…":
            skip = True
            continue
        if skip:
            while place < len(printed) and differs(shown, printed[place]):
                place += 1
        if place >= len(printed) or differs(shown, printed[place]):
            return _message(step, printed, f"the page has: {shown}")
        place, skip = place + 1, False
    return "" if skip or place == len(printed) else _message(step, printed, "more is printed than the page has")


def _message(step: Step, printed: list[str], what: str) -> str:
    return f"{step.place}: {step.code}\n{what}; printed:\n" + "\n".join(printed)


def renewed(step: Step, printed: list[str]) -> list[str]:
    """The lines that the page should show: what is printed, left out where the page leaves out."""
    if not step.shown or (step.sampled and "…" not in step.shown):
        return printed
    if not any(line.strip() == "…" for line in step.shown):
        same = len(step.shown) == len(printed)
        return [_cut(shown, line) for shown, line in zip(step.shown, printed)] if same else printed
    lines, place = [], 0
    for shown in step.shown:
        if shown.strip() == "…":
            lines.append(shown)
            continue
        form = _parts(shown.removesuffix("…"))[0]
        while place < len(printed) and _parts(_cut(shown, printed[place]).removesuffix("…"))[0][:2] != form[:2]:
            place += 1
        if place == len(printed):
            raise SystemExit(_message(step, printed, f"write this line by hand: {shown}"))
        lines.append(_cut(shown, printed[place]))
        place += 1
    return lines


def _cut(shown: str, printed: str) -> str:
    return printed[: len(shown) - 1] + "…" if shown.endswith("…") else printed


class Session:
    """A folder in which commands and statements are run, each once, as a reader would run them."""

    def __init__(self, folder: Path, cache: Path, python: str = sys.executable):
        self.folder, self.done, self.names = folder, {}, {}
        programs = folder / ".programs"
        programs.mkdir()
        for name, words in {"regard": "-P -m regard", "python": ""}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{python}" {words} "$@"\n')
            (programs / name).chmod(0o755)
        source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": source,
            "PYTHONUNBUFFERED": "1",
            "REGARD_CACHE": str(cache),
            "COLUMNS": "80",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
        }

    def printed(self, step: Step) -> list[str]:
        """What this step prints."""
        if step.kind == "file":
            name, _, content = step.code.partition("\n")
            (self.folder / name).write_text(f"{content}\n", encoding="utf-8")
            return []
        text = self.typed(step.code) if step.kind == "python" else self.run(step.code)
        return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip() else []

    def run(self, command: str) -> str:
        if command not in self.done:
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=self.environment, text=True, encoding="utf-8",
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self.done[command] = done.stdout
        return self.done[command]

    def typed(self, code: str) -> str:
        said = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(f"{code}\n", "<page>", "single"), self.names)
        return said.getvalue()


def main() -> int:
    write = "--write" in sys.argv
    wrong = 0
    with TemporaryDirectory() as folder:
        session = Session(Path(folder), Path(os.environ.get("REGARD_CACHE", folder)))
        for page in PAGES:
            lines = page.read_text(encoding="utf-8").splitlines()
            for step, printed in reversed([(step, session.printed(step)) for step in steps(page)]):
                if write and step.kind != "file":
                    lines[step.first : step.first + len(step.shown)] = renewed(step, printed)
                elif not write and (found := difference(step, printed)):
                    print(found, end="\n\n")
                    wrong += 1
            if write:
                page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
