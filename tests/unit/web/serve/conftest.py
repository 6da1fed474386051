"""Two small runs, and a server of both on a real socket."""

import os
import subprocess
import threading
from contextlib import contextmanager
from functools import partial

import httpx
import pytest

import regard
from regard.web.listening import Server, listen, url
from regard.web.serve.api_server import application
from regard.web.serve.served_models import ServedModels

SENTENCES = [
    f"{who} {does} {what}."
    for who in ("The cat", "The dog", "A bird", "My friend")
    for does in ("sees", "hears", "follows", "likes")
    for what in ("the house", "a tree", "the river", "some bread", "an old song")
]


@pytest.fixture(autouse=True, scope="session")
def patient_clients():
    """On a busy machine an answer may take more than the five seconds that a client waits by itself."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("get", "post", "request", "stream"):
            patch.setattr(httpx, name, partial(getattr(httpx, name), timeout=600))
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """The folders of a language model and of a translator, trained for a moment."""
    folder = tmp_path_factory.mktemp("served")
    training = {"threads": 1, "batch_tokens": 256, "evaluate_every": 15, "steps": 30, "device": "cpu"}
    lines = {"train": SENTENCES[:60], "valid": SENTENCES[60:70], "test": SENTENCES[70:]}
    text = folder / "text"
    text.mkdir()
    for split, some in lines.items():
        (text / f"{split}.txt").write_text("\n".join(some) + "\n")
    regard.train(
        "gpt", data=text, run=folder / "writer", size="tiny",
        settings={"training": training, "data": {"tokenizer": "bpe"}, "model": {"width": 32, "context": 64}},
    )  # fmt: skip
    regard.train(
        "transformer", data="phrasebook", run=folder / "enfr", size="tiny",
        settings={"training": training, "data": {"pairs": 300}, "model": {"width": 32}},
    )  # fmt: skip
    return {"writer": folder / "writer", "enfr": folder / "enfr"}


@contextmanager
def start(*folders, token=None, queue=512, languages=None, **options):
    """A server in a thread: its address, and the models."""
    models = ServedModels(folders, languages=languages or {}, places=queue, device="cpu")
    listening, ready = listen("127.0.0.1", 0), threading.Event()
    app = application(models, host="127.0.0.1", token=token)
    server = Server(app, listening, ready=lambda _: ready.set(), **options)
    thread = threading.Thread(target=server.run)
    address = url(listening)
    thread.start()
    assert ready.wait(600)
    try:
        yield address, models
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def served():
    """served(*folders, token=…, queue=…): a server of its own."""
    return start


@pytest.fixture(scope="session")
def server(runs):
    with start(*runs.values()) as (address, models):
        yield address, models


@pytest.fixture(scope="session")
def address(server):
    return server[0]


@pytest.fixture(scope="session")
def process(warm):
    """process(*words): `regard serve` in a process of its own."""
    return partial(start_process, warm)


@contextmanager
def start_process(python, *words):
    """The process, and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with subprocess.Popen(
        [python, "-m", "regard", "serve", "--port", "0", "--device", "cpu", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as running:  # fmt: skip
        try:
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()
