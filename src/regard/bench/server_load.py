"""`regard serve` under load: clients that ask at the same time, beside the same requests one after the other.

The model is a GPT-2, 124 million parameters on a GPU, with weights as they are before training; every request is a
prompt of 16 tokens and asks for a fixed number of tokens, greedily, as a stream. The rate is in written tokens; the
note says requests per second, the median and the 99th percentile of the first token and of the whole answer, and the
tokens per second of the server's own processor time, which other programs on the machine change little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from regard.bench.contenders import Contender, Place, Row
from regard.bench.gpt2 import PROMPT, prompts, recipe, regard_gpt, shape, vocabulary
from regard.bench.http_load import Answer, load
from regard.bench.training_step import count
from regard.runs.folder import Tokenizers
from regard.runs.new_folder import new_folder, write_facts, write_folder
from regard.text.tokenizer import EOS, UNK, Tokenizer
from regard.training.checkpoint import save_tensors

CLIENTS = {"full": (1, 16, 64, 256), "small": (1, 16, 64), "quick": (1, 4)}


class Served:
    """A server in a process of its own, for as long as this object is there."""

    def __init__(self, command: list[str], folder: tempfile.TemporaryDirectory[str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
        self.end = weakref.finalize(self, _end, self.process)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"{command[0]} did not start")

    def processor_seconds(self) -> float:
        """What the server has used so far, which does not depend on what else runs; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def random_run(place: Place, folder: Path) -> Path:
    """A run whose model was never trained, with a vocabulary of numbers."""
    model = regard_gpt(place, 1)
    tokens = [EOS, UNK, *(str(number) for number in range(2, vocabulary(place)))]
    made = recipe(place, 1)
    with new_folder(made, folder / "gpt") as run:
        write_folder(run, made, Tokenizers(Tokenizer.of_tokens(tokens, "word")))
        save_tensors(run / "model.safetensors", model.state_dict())
        write_facts(run, made, model, {"name": "random weights"})
    return run


def regard_server(place: Place) -> Served:
    folder = tempfile.TemporaryDirectory()
    options = ["--port", "0", "--device", str(place.device), "--precision", place.precision]
    return Served(["regard", "serve", str(random_run(place, Path(folder.name))), *options], folder)


def hugging_face_server(place: Place) -> Served:
    folder, sizes = tempfile.TemporaryDirectory(), shape(place)
    settings = {
        "vocab_size": vocabulary(place), "n_positions": sizes["context"], "n_embd": sizes["width"],
        "n_layer": sizes["layers"], "n_head": sizes["heads"], "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    path = Path(folder.name) / "settings.json"
    path.write_text(json.dumps(settings))
    dtype = str(place.dtype).removeprefix("torch.")
    return Served(
        ["regard.bench.hugging_face_server", str(path), "--device", str(place.device), "--dtype", dtype], folder
    )


class Load:
    """Each call sends all requests, by so many clients; contenders that must write the same share `texts`."""

    def __init__(
        self, server: Served, place: Place, requests: int, new: int, clients: int, texts: dict[str, list[str]] | None
    ) -> None:
        self.server, self.clients, self.texts = server, clients, texts
        self.parameters = count(regard_gpt(place, 1))
        self.questions = [
            {"model": "gpt", "prompt": prompt, "max_tokens": new, "temperature": 0}
            for prompt in prompts(place, requests)
        ]
        self.calls = 0
        self.answers: list[Answer] = []
        self.busy = 0.0  # processor seconds of the server

    def __call__(self) -> int:
        before = self.server.processor_seconds()
        found = load(self.server.address, self.questions, self.clients)
        if self.calls:  # the first one is the warm-up
            self.answers += found
            self.busy += self.server.processor_seconds() - before
        self.calls += 1
        if self.texts is not None:
            self.texts["alone" if self.clients == 1 else "together"] = [answer.text() for answer in found]
        return sum(answer.tokens for answer in found)

    @property
    def facts(self) -> dict[str, Any]:
        first, whole = ([getattr(answer, what) for answer in self.answers] for what in ("first", "whole"))
        facts: dict[str, Any] = {
            "clients": self.clients,
            "tokens_of_a_request": self.questions[0]["max_tokens"],
            "first_token_seconds": percentiles(first),
            "whole_seconds": percentiles(whole),
            "tokens_per_processor_second": sum(answer.tokens for answer in self.answers) / self.busy
            if self.busy
            else None,
        }
        if self.texts and len(self.texts) == 2:
            same = [one == other for one, other in zip(self.texts["alone"], self.texts["together"])]
            facts["texts_as_alone"] = f"{sum(same)} of {len(same)}"
        return facts


def percentiles(seconds: list[float]) -> dict[str, float]:
    cut = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {"p50": cut[49], "p99": cut[98]} if cut else {}


def rows(place: Place) -> list[Row]:
    ours: Callable[[], Served] = cache(partial(regard_server, place))  # one server of each kind for all rows
    theirs: Callable[[], Served] = cache(partial(hugging_face_server, place))
    return [row(place, clients, ours, theirs) for clients in CLIENTS[place.size]]


def row(place: Place, clients: int, ours: Callable[[], Served], theirs: Callable[[], Served]) -> Row:
    sizes, new = shape(place), place.of(128, 32, 4)
    requests = max(place.of(8, 4, 2), 2 * clients)
    texts: dict[str, list[str]] = {}

    def loaded(server: Callable[[], Served], clients: int, texts: dict[str, list[str]] | None = None) -> Load:
        return Load(server(), place, requests, new, clients, texts)

    alone = [Contender("Regard, one at a time", lambda: loaded(ours, 1, texts))] if clients > 1 else []
    return Row(
        f"serve {clients}",
        place,
        f"{sizes['layers']}×{sizes['width']}, {requests} requests of {PROMPT} + {new} tokens, {place.precision}",
        [
            Contender("Regard", lambda: loaded(ours, clients, texts)),
            *alone,
            Contender("transformers' generate", lambda: loaded(theirs, clients), needs=["transformers"]),
        ],
        None,
        warm_up=1,
        calls=1,
    )
