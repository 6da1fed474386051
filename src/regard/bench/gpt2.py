"""GPT-2, 124 million parameters on a GPU: training steps, and greedy generation, one text or 64 at a time; training
also with 350 million parameters, and with a context of 4096.

The vocabulary is padded to a multiple of 128 on all sides (50,304 for GPT-2's 50,257 tokens, as in nanoGPT), without
dropout. A token of training costs `flops_per_token`; a generated token at least one read of all weights, shared by the
rows of the batch, and of its keys and values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.bench.contenders import BenchPlace, BenchRow, Contender, Cost
from regard.bench.plain_gpt import PlainGPT
from regard.bench.training_step import LEARNING, PlainTraining, RegardTraining, count, full_windows, random_tokens
from regard.decoding.engine import Engine
from regard.decoding.sampling import GREEDY, Sampling
from regard.layers.state import State
from regard.runs.recipe import Recipe, compose
from regard.runs.speed import install
from regard.systems.gpt import GPT
from regard.training.objective import TensorBatch

PROMPT = 16  # tokens

Shape = dict[str, int]


def shape(place: BenchPlace) -> Shape:
    return {
        "layers": place.of(12, 4, 2),
        "width": place.of(768, 256, 32),
        "heads": place.of(12, 4, 2),
        "context": place.of(1024, 128, 32),
    }


def vocabulary(place: BenchPlace) -> int:
    return place.of(50_304, 8192, 128)


def larger(place: BenchPlace) -> Shape:
    """GPT-2's second size, 350 million parameters."""
    return shape(place) | {
        "layers": place.of(24, 6, 3),
        "width": place.of(1024, 320, 64),
        "heads": place.of(16, 5, 4),
    }


def longer(place: BenchPlace) -> Shape:
    """The first size with four times the context."""
    return shape(place) | {"context": place.of(4096, 512, 64)}


def recipe(place: BenchPlace, rows: int, sizes: Shape | None = None) -> Recipe:
    sizes = sizes or shape(place)
    return compose(
        "gpt",
        None,
        {"model": sizes | {"dropout": 0.0}, "training": {"batch_tokens": rows * sizes["context"]} | LEARNING},
    )


def regard_gpt(place: BenchPlace, rows: int, sizes: Shape | None = None, on: str | torch.device = "cpu") -> GPT:
    """`on` a GPU its numbers are drawn faster; `meta`: it has none, and can only be counted."""
    torch.manual_seed(1)
    with torch.device(on):
        return GPT(vocabulary(place), recipe(place, rows, sizes).model)


def hugging_face_gpt(place: BenchPlace, sizes: Shape | None = None, on: str | torch.device = "cpu") -> Any:
    transformers: Any = import_module("transformers")
    sizes = sizes or shape(place)
    settings = transformers.GPT2Config(
        vocab_size=vocabulary(place),
        n_positions=sizes["context"],
        n_embd=sizes["width"],
        n_layer=sizes["layers"],
        n_head=sizes["heads"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(1)
    with torch.device(on):
        return transformers.GPT2LMHeadModel(settings)


def plain_gpt(place: BenchPlace, sizes: Shape | None = None, on: str | torch.device = "cpu") -> PlainGPT:
    torch.manual_seed(1)
    with torch.device(on):
        return PlainGPT(vocabulary(place), **(sizes or shape(place)))


# -- training --------------------------------------------------------------------------------------------------------


def training_rows(place: BenchPlace) -> list[BenchRow]:
    return [training_row("gpt-train", place, shape(place), place.of(64, 8, 2))]


def further_training_rows(place: BenchPlace) -> list[BenchRow]:
    return [
        training_row("gpt-train 350M", place, larger(place), place.of(32, 4, 2)),
        training_row("gpt-train 4096", place, longer(place), place.of(16, 2, 2)),
    ]


def hugging_face_loss(model: Any, batch: TensorBatch, state: State | None) -> tuple[Tensor, None]:
    logits = model(batch.tokens, use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten()), None


def training_row(name: str, place: BenchPlace, sizes: Shape, rows: int) -> BenchRow:
    batches = full_windows(vocabulary(place), rows, sizes["context"])
    compiled = " compiled" if sizes == shape(place) else ", blocks compiled"

    def regard() -> RegardTraining:
        model = regard_gpt(place, rows, sizes, place.device)
        return RegardTraining(model, batches, recipe(place, rows, sizes).training, place)

    def hugging_face() -> PlainTraining:
        model = hugging_face_gpt(place, sizes, place.device)

        return PlainTraining(model, partial(hugging_face_loss, model), batches, place)

    def plain() -> PlainTraining:
        model = plain_gpt(place, sizes, place.device)
        call: Callable[..., Tensor] = model
        if place.device.type == "cuda" and sizes == shape(place):
            call = torch.compile(model)
        elif place.device.type == "cuda":
            model.compile_parts()
        return PlainTraining(model, lambda batch, state: (call(batch.tokens, batch.targets), None), batches, place)

    return BenchRow(
        name,
        place,
        f"{sizes['layers']}×{sizes['width']}, {rows}×{sizes['context']} tokens, {place.precision}",
        [
            Contender("Regard", regard),
            Contender("transformers GPT-2", hugging_face, needs=["transformers"]),
            Contender("plain PyTorch" + compiled * (place.device.type == "cuda"), plain),
        ],
        Cost(operations=regard_gpt(place, rows, sizes, "meta").flops_per_token),
        warm_up=place.of(5, 2, 1),
        calls=place.of(10, 2, 1),
    )


# -- generation ------------------------------------------------------------------------------------------------------


class RegardGeneration:
    """The engine of `regard generate`; graphs recorded during warm-up are reused."""

    def __init__(self, place: BenchPlace, rows: int, new: int, sampling: Sampling = GREEDY) -> None:
        self.model = regard_gpt(place, rows).to(place.device, place.dtype)
        install(self.model)
        self.engine = Engine(self.model, eos=0, sampling=sampling, rows=rows, install=install)
        self.prompts, self.new, self.parameters = prompts(place, rows), new, count(self.model)

    def __call__(self) -> int:
        self.written = list(self.engine.texts(self.prompts, max_tokens=self.new))
        return sum(map(len, self.written))


class HuggingFaceGeneration:
    def __init__(self, place: BenchPlace, rows: int, new: int) -> None:
        self.model = hugging_face_gpt(place).to(place.device, place.dtype).eval()
        self.tokens = torch.tensor(prompts(place, rows), device=place.device)
        self.new, self.parameters = new, count(self.model)

    def __call__(self) -> int:
        found = self.model.generate(
            self.tokens,
            attention_mask=torch.ones_like(self.tokens),
            do_sample=False,
            min_new_tokens=self.new,
            max_new_tokens=self.new,
            pad_token_id=0,
        )
        self.written = found[:, self.tokens.size(1) :].tolist()
        return sum(map(len, self.written))


class PlainGeneration:
    """The plain model with a key-value cache; on a GPU a step is one CUDA graph, replayed without synchronizing."""

    def __init__(self, place: BenchPlace, rows: int, new: int) -> None:
        self.model = plain_gpt(place).to(place.device, place.dtype).eval()
        self.tokens, self.parameters = torch.tensor(prompts(place, rows), device=place.device), count(self.model)
        self.caches = self.model.caches(rows, PROMPT + new)
        self.token = self.tokens[:, :1].clone()  # the last one written
        self.found = self.tokens.new_zeros(rows, new)
        self.at, self.slot = self.tokens.new_zeros(1), self.tokens.new_zeros(1)  # where it is read, where written
        self.again = self._captured() if place.device.type == "cuda" else self._step

    @torch.no_grad()
    def __call__(self) -> int:
        length = self.tokens.size(1)
        self.token.copy_(self.model.extend(self.tokens, torch.arange(length).to(self.at), self.caches))
        self.found[:, :1] = self.token
        self.at.fill_(length)
        self.slot.fill_(1)
        for _ in range(self.found.size(1) - 1):
            self.again()
        self.written = self.found.tolist()
        return sum(map(len, self.written))

    @torch.no_grad()
    def _step(self) -> None:
        self.token.copy_(self.model.extend(self.token, self.at, self.caches))
        self.found.index_copy_(1, self.slot, self.token)
        self.at += 1
        self.slot += 1

    def _captured(self) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # warm-up before capture
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._step()
        return graph.replay


def prompts(place: BenchPlace, rows: int) -> list[list[int]]:
    ids: list[list[int]] = random_tokens(vocabulary(place), rows * PROMPT).reshape(rows, PROMPT).tolist()
    return ids


def generation_rows(place: BenchPlace) -> list[BenchRow]:
    return [generation_row(place, rows, place.of(256, 64, 8)) for rows in (1, place.of(64, 64, 4))]


def generation_row(place: BenchPlace, rows: int, new: int) -> BenchRow:
    sizes = shape(place)
    held = place.dtype.itemsize
    model = regard_gpt(place, rows, on="meta")
    weights = (count(model) - sizes["context"] * sizes["width"]) * held  # all but the positions' table
    before = PROMPT + new / 2  # tokens, on average
    keys_and_values = 2 * sizes["layers"] * sizes["width"] * held * before
    attention = 4.0 * sizes["layers"] * sizes["width"] * before  # QKᵀ and weights × V
    return BenchRow(
        f"gpt-generate {rows}",
        place,
        f"{sizes['layers']}×{sizes['width']}, {rows} × {new} new tokens after prompts of {PROMPT}, {place.precision}",
        [
            Contender("Regard", lambda: RegardGeneration(place, rows, new)),
            Contender("transformers GPT-2", lambda: HuggingFaceGeneration(place, rows, new), needs=["transformers"]),
            Contender(
                "plain PyTorch" + (", a CUDA graph" if place.device.type == "cuda" else ""),
                lambda: PlainGeneration(place, rows, new),
            ),
        ],
        Cost(operations=2.0 * weights / held + attention, bytes=weights / rows + keys_and_values),
        warm_up=place.of(2, 1, 1),
        calls=1,
    )
