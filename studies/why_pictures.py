"""The pictures of docs/guides/why.md, taken from the real lab.

    python studies/why_pictures.py RUNS [--to docs/pictures]

RUNS is a folder with the run `verbs` that the guide trains; the other pictures show `gallery/gpt`. Needs playwright,
Pillow and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

TEXT, PLURAL = "The friends who know the horse often", "The friends who know the horses often"
GPT = {"run": "gallery/gpt", "text": TEXT}
PICTURES = {  # view, address, what must be there, what is taken
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
    parser = argparse.ArgumentParser(description="The pictures of docs/guides/why.md.")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    from PIL import Image
    from playwright.sync_api import sync_playwright

    words = ["-P", "-m", "regard", "lab", str(given.runs), "--port=0", "--no-browser"]
    lab = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    address = lab.stdout.readline().strip().partition("?")[0]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 900}, reduced_motion="reduce")
        page.set_default_timeout(120_000)
        for name, (view, query, there, taken) in PICTURES.items():
            page.goto("about:blank")
            page.goto(f"{address}#/{view}?{urlencode(query)}")
            page.wait_for_selector(there)
            page.wait_for_timeout(3000)  # the maps are drawn
            page.locator(taken).first.screenshot(path=given.to / f"{name}.png")
            Image.open(given.to / f"{name}.png").convert("RGB").quantize(64).save(
                given.to / f"{name}.png", optimize=True
            )
        browser.close()
    lab.send_signal(signal.SIGINT)
    lab.wait()


if __name__ == "__main__":
    main()
