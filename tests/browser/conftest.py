"""The lab in a real browser: Debian's Chromium through playwright, a real server, and tiny runs trained once.

    def test_…(lab, page):          a page that is closed after the test; whatever fails in its scripts fails the test
        page.goto(lab.url + "#/runs")

`lab.folder` is the folder of runs, shared by all tests of a session: change nothing in it, or ask for `own_lab`.
"""

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from regard.cli import main

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
TINY = ["--size", "tiny", "--data.tokenizer", "char", "--training.batch-tokens", "256", "--training.threads", "1"]
SHORT = ["--model.width", "32", "--training.steps", "24", "--training.evaluate-every", "8"]


@dataclass
class Lab:
    url: str  # without the token
    address: str  # as it is printed
    folder: Path
    process: subprocess.Popen


@pytest.fixture(autouse=True, scope="session")
def no_data_of_this_machine():
    os.environ.pop("REGARD_DATA", None)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """A little text with regularities, and some that must never become markup."""
    subjects, verbs = ["The cat", "The dog", "A bird", "My <b>friend</b>"], ["sees", "hears", "follows", "likes"]
    objects = ["the house", "a tree", "the river", "some bread", "an old song"]
    lines = [f"{s} {v} {o}." for s in subjects for v in verbs for o in objects]
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory, text_file):
    """A folder with a run of each kind: lstm, gpt, ngram, a translator, a classifier; made in seconds."""
    folder = tmp_path_factory.mktemp("lab") / "runs"
    pairs = [
        "--training.batch-tokens",
        "800",
        "--data",
        "phrasebook",
        "--data.pairs",
        "200",
        "--size",
        "tiny",
        "--training.threads",
        "1",
    ]
    for name, words in {
        "ngram": ["ngram", "--data", str(text_file), "--model.order", "4", "--data.tokenizer", "char"],
        "lstm": ["lstm", "--data", str(text_file), *TINY, *SHORT, "--training.snapshots", "4"],
        "gpt": ["gpt", "--data", str(text_file), *TINY, *SHORT],
        "transformer": [
            "transformer", *pairs, *SHORT, "--data.tokenizer", "char", "--model.heads", "4",
        ],
    }.items():  # fmt: skip
        main(["train", *words, "--run", str(folder / name)])
    return folder


@pytest.fixture(scope="session")
def mixed_folder(tmp_path_factory, text_file):
    """Runs that must not be compared by their loss: letters and byte pairs of one text, and a text in Hebrew."""
    place = tmp_path_factory.mktemp("mixed")
    folder, hebrew = place / "runs", place / "hebrew.txt"
    subjects, verbs = ["החתול", "הכלב", "הילד", "האישה"], ["רואה", "אוהב", "שומע", "מחפש"]
    lines = [f"{s} {v} {o}." for s in subjects for v in verbs for o in ("את הבית", "את העץ", "ספר ישן", "לחם טרי")]
    hebrew.write_text("\n".join(lines) + "\n", encoding="utf-8")
    few = ["--size", "tiny", "--training.batch-tokens", "256", "--training.threads", "1", "--model.width", "32"]
    few += ["--training.steps", "8", "--training.evaluate-every", "4"]
    for name, words in {
        "letters": ["lstm", "--data", str(text_file), "--data.tokenizer", "char"],
        "pieces": ["gpt", "--data", str(text_file), "--data.tokenizer", "bpe"],
        "hebrew": ["gpt", "--data", str(hebrew), "--data.tokenizer", "byte"],
    }.items():
        main(["train", *words, *few, "--run", str(folder / name)])
    return folder


def start_lab(python, folder, *words):
    """`regard lab FOLDER`, once it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(
        [python, "-P", "-m", "regard", "lab", str(folder), "--port", "0", "--no-browser", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    address = process.stdout.readline().strip()
    return Lab(address.partition("?")[0], address, folder, process)


def stop_lab(lab):
    lab.process.send_signal(signal.SIGINT)
    lab.process.wait(600)
    lab.process.stdout.close()


@pytest.fixture(scope="module")
def lab_over(warm):
    """Open a lab over another folder: lab_over(folder), or with options: lab_over(folder, "--read-only")."""
    labs = []

    def start(folder, *words):
        labs.append(start_lab(warm, folder, *words))
        return labs[-1]

    yield start
    for lab in labs:
        stop_lab(lab)


@pytest.fixture(scope="session")
def lab(trained_folder, warm):
    lab = start_lab(warm, trained_folder)
    yield lab
    stop_lab(lab)


@pytest.fixture
def own_lab(tmp_path, warm):
    """A lab over an empty folder, which the test may change."""
    lab = start_lab(warm, tmp_path / "runs")
    yield lab
    stop_lab(lab)


@pytest.fixture(scope="module")  # while it is open, no test of another file could call asyncio.run
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine; Debian's is `apt-get install chromium`")
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect.set_options(timeout=120_000)  # an answer may wait for a process that loads torch
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page that no script error, no violation of the content policy and no request to elsewhere goes unseen in."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(120_000)
    wrong = []
    page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
    page.on("console", lambda message: wrong.append(message.text) if is_bad(message) else None)
    page.on("request", lambda asked: None if is_here(asked.url) else wrong.append(f"asked elsewhere: {asked.url}"))
    yield page
    context.close()
    assert not wrong, "\n".join(wrong)


def is_bad(message):
    """What the console says is wrong, except that the server refused something, which tests do on purpose."""
    return message.type == "error" and "Failed to load resource" not in message.text


def is_here(url):
    parts = urlsplit(url)
    return parts.scheme in ("blob", "data", "file") or parts.hostname in ("127.0.0.1", "localhost")
