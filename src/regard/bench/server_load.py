"""`regard serve` under load: clients that ask at the same time, beside one that asks alone.

The model is a GPT-2, 124 million parameters on a GPU, with weights as they are before training; every request is a
prompt of 16 tokens and asks for a fixed number of tokens, greedily, as a stream. In each turn every number of clients
asks for some seconds, one after the other, so that disturbances affect all alike:

    rate = tokens of a turn / its seconds          times one client = median over turns of (its rate / that of one)

Tokens per second of the server's own processor time are printed, too: other programs hardly change them.
Regard comes first; then, for fewer turns, Hugging Face's `generate` behind the same kind of server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from regard.bench.contenders import BenchSetup
from regard.bench.gpt2 import PROMPT, prompts, recipe, regard_gpt, shape, vocabulary
from regard.bench.http_load import HttpAnswer, load
from regard.bench.turns import sentence, spread
from regard.runs.store.create import write_facts, write_folder
from regard.runs.store.folder import Tokenizers
from regard.runs.store.lock import new_folder
from regard.text.tokenizers.engine import EOS, UNK
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import save_tensors

CLIENTS = {"full": (1, 16, 64, 256), "small": (1, 16, 64), "quick": (1, 4)}
SECONDS = {"full": 2.0, "small": 2.0, "quick": 0.1}  # of a turn, for each number of clients
PROMPTS = 64  # different ones, which come again and again
PEER_TURNS = 2


# -- the servers -----------------------------------------------------------------------------------------------------


class ServerProcess:
    """A server in its own process."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"{command[0]} did not start")

    def processor_seconds(self) -> float:
        """The server's processor time, which other programs do not change; 0 if the system does not report it."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(command: list[str]) -> Iterator[ServerProcess]:
    server = ServerProcess(command)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def random_run(place: BenchSetup, folder: Path) -> Path:
    """A run whose model was never trained, with a vocabulary of numbers."""
    model = regard_gpt(place, 1)
    tokens = [EOS, UNK, *(str(number) for number in range(2, vocabulary(place)))]
    made = recipe(place, 1)
    with new_folder(made, folder / "gpt") as run:
        write_folder(run, made, Tokenizers(Tokenizer.of_tokens(tokens, "word")))
        save_tensors(run / "model.safetensors", model.state_dict())
        write_facts(run, made, model, {"name": "random weights"})
    return run


@contextmanager
def regard_server(place: BenchSetup) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        run = random_run(place, Path(folder))
        options = ["--port", "0", "--device", str(place.device), "--precision", place.precision]
        with running(["regard", "serve", str(run), *options]) as server:
            yield server


@contextmanager
def hugging_face_server(place: BenchSetup) -> Iterator[ServerProcess]:
    sizes = shape(place)
    settings = {
        "vocab_size": vocabulary(place), "n_positions": sizes["context"], "n_embd": sizes["width"],
        "n_layer": sizes["layers"], "n_head": sizes["heads"], "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    dtype = str(place.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        path.write_text(json.dumps(settings))
        options = ["--device", str(place.device), "--dtype", dtype]
        with running(["regard.bench.hugging_face_server", str(path), *options]) as server:
            yield server


# -- the load --------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """The answers that a number of clients got from one server."""

    server: str
    clients: int
    place: BenchSetup
    new: int  # tokens of a request
    rates: list[float] = field(default_factory=list)  # tokens/s of each turn
    answers: list[HttpAnswer] = field(default_factory=list)
    tokens: int = 0
    busy: float = 0.0  # processor seconds of the server
    one: Load | None = None  # the same server with one client
    why: str = ""  # it could not run

    def take_turn(self, server: ServerProcess, questions: Iterator[tuple[int, dict[str, Any]]], seconds: float) -> None:
        before, began = server.processor_seconds(), time.perf_counter()
        found = load(server.address, questions, self.clients, seconds)
        took = time.perf_counter() - began
        self.busy += server.processor_seconds() - before
        self.answers += found
        written = sum(answer.tokens for answer in found)
        self.tokens += written
        self.rates.append(written / took)

    @property
    def work(self) -> str:
        sizes = shape(self.place)
        return f"{sizes['layers']}×{sizes['width']}, requests of {PROMPT} + {self.new} tokens, {self.place.precision}"

    def as_json(self) -> dict[str, Any]:
        return self.facts() | {"texts_as_alone": self.texts_as_alone(), "could_not_run": self.why or None}

    def facts(self) -> dict[str, Any]:
        rate = median(self.rates) if self.rates else None
        own = self.tokens / self.busy if self.busy else None
        alone = self.one.tokens / self.one.busy if self.one and self.one.busy else None
        return {
            "name": "serve",
            "server": self.server,
            "clients": self.clients,
            "work": self.work,
            "rates": self.rates,
            "median": rate,
            "spread": spread(self.rates),
            "times_one_client": self.times_one_client(),
            "requests": len(self.answers),
            "requests_per_second": rate and rate / self.new,
            "first_token_seconds": percentiles([answer.first for answer in self.answers]),
            "whole_seconds": percentiles([answer.whole for answer in self.answers]),
            "tokens_per_processor_second": own,
            "times_one_client_by_processor": own / alone if own and alone else None,
        }

    def times_one_client(self) -> float | None:
        one = self.one.rates if self.one else []
        return median(ours / alone for ours, alone in zip(self.rates, one)) if one and self.rates else None

    def texts_as_alone(self) -> str | None:
        """The number of texts equal to those of a client alone, among the prompts of both."""
        if self.one is None or self.one is self or not self.answers:
            return None
        alone = {answer.question: answer.text() for answer in self.one.answers}
        same = [answer.text() == alone[answer.question] for answer in self.answers if answer.question in alone]
        return f"{sum(same)} of {len(same)}"


def percentiles(seconds: list[float]) -> dict[str, float]:
    cut = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {"p50": cut[49], "p99": cut[98]} if cut else {}


def measure(
    place: BenchSetup,
    turns: int,
    clients: Sequence[int] = (),
    seconds: float | None = None,
    each: Callable[[Load], object] = lambda load: None,
) -> list[Load]:
    """Regard, then its peer; `each` is called after every turn of every number of clients."""
    clients = sorted(set(clients)) or CLIENTS[place.size]
    seconds = SECONDS[place.size] if seconds is None else seconds
    found = [Load("Regard", number, place, place.of(128, 32, 4)) for number in clients]
    with regard_server(place) as server:
        take_turns(server, found, turns, seconds, each)
    peers = [Load("transformers' generate", number, place, place.of(128, 32, 4)) for number in clients]
    why = "" if find_spec("transformers") else "The package transformers is not installed here."
    if not why:
        try:
            with hugging_face_server(place) as server:
                take_turns(server, peers, min(turns, PEER_TURNS), seconds, each)
        except Exception as error:
            why = sentence(error)
    for peer in peers:
        peer.why = "" if peer.rates else why
    return found + peers


def take_turns(
    server: ServerProcess, loads: Sequence[Load], turns: int, seconds: float, each: Callable[[Load], object]
) -> None:
    place, new = loads[0].place, loads[0].new
    asked = [{"model": "gpt", "prompt": prompt, "max_tokens": new, "temperature": 0}
             for prompt in prompts(place, PROMPTS)]  # fmt: skip
    questions = [cycle(enumerate(asked)) for _ in loads]
    for _ in range(2):  # graphs are recorded, memory is taken; not timed
        for one in loads:
            load(server.address, cycle(enumerate(asked)), one.clients)
    alone = next((one for one in loads if one.clients == 1), None)
    for _ in range(turns):
        for one, mine in zip(loads, questions):
            one.one = alone
            one.take_turn(server, mine, seconds)
            each(one)
