"""The pictures of docs/guides/lab.md and docs/guides/why.md, taken from the real lab.

    python studies/lab_pictures.py RUNS [NAME…] [--to docs/pictures]

RUNS is a folder with the runs that the two guides train; the other pictures show models of the gallery. Needs
playwright, Pillow and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

TEXT, PLURAL = "The friends who know the horse often", "The friends who know the horses often"
GPT = {"run": "gallery/gpt", "text": TEXT}
BOOK = "The old friends do not read the red book."
PICTURES: dict[
    str, tuple[str, dict[str, str | list[str]], str, str]
] = {  # view, address, what must be there, what is taken
    "lab-1-runs": ("runs", {"run": "gru-pyref"}, ".view.runs svg path", ""),
    "lab-2-ladder": ("ladder/open", {"name": "pyref"}, ".view.ladder tbody tr", ""),
    "lab-3-sentence": (
        "sentence",
        {"run": ["gallery/lstm", "gallery/gpt"], "text": TEXT, "step": "6"},
        ".view.sentence .strip button",
        "",
    ),
    "lab-4-translation": (
        "translation",
        {"run": ["gallery/transformer", "gallery/bahdanau"], "text": BOOK, "step": "8"},
        ".view.translation .heat canvas",
        "",
    ),
    "lab-5-heads": (
        "translation",
        {"run": "gallery/transformer", "text": BOOK, "show": "attention", "step": "8"},
        ".view.translation .heat canvas",
        "",
    ),
    "lab-6-time": (
        "time",
        {"run": "transformer-phrasebook", "text": BOOK, "at": "600"},
        ".view.time .heat canvas",
        "",
    ),
    "why-patch": (
        "sentence",
        {**GPT, "show": "causes", "ask": "patch", "parts": "heads", "other": PLURAL, "why": "plays", "not": "play"},
        ".answered .heat canvas",
        ".panel",
    ),
    "why-removed": (
        "sentence",
        {**GPT, "show": "attention", "step": "7", "look": "self/0[0]", "change": "zero self/0[0]@7 gallery/gpt"},
        ".compared:not([hidden]) tbody tr",
        ".panel",
    ),
    "why-time": ("time", {"run": "verbs", "text": TEXT, "score": "syntactic"}, ".card.heads svg path", ".card.heads"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The pictures of the guides to the lab.")
    parser.add_argument("runs", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], metavar="NAME")
    parser.add_argument("--to", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    from PIL import Image
    from playwright.sync_api import sync_playwright

    words = ["-P", "-m", "regard", "lab", str(given.runs), "--port=0", "--no-browser"]
    lab = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    address = lab.stdout.readline().strip().partition("?")[0]
    with sync_playwright() as driver, ending(lab):
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 1000}, reduced_motion="reduce")
        page.set_default_timeout(120_000)
        for name in given.names or PICTURES:
            view, query, there, taken = PICTURES[name]
            page.goto("about:blank")
            page.goto(f"{address}#/{view}?{urlencode(query, doseq=True)}")
            page.wait_for_selector(there)
            page.wait_for_timeout(3000)  # the maps are drawn
            for tour in page.get_by_role("button", name="Close", exact=True).all():
                tour.click()
            taking = page.locator(taken).first if taken else page
            taking.screenshot(path=given.to / f"{name}.png")
            Image.open(given.to / f"{name}.png").convert("RGB").quantize(128).save(
                given.to / f"{name}.png", optimize=True
            )
        browser.close()


@contextmanager
def ending(lab: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        lab.send_signal(signal.SIGINT)
        lab.wait()


if __name__ == "__main__":
    main()
