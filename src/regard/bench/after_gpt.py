"""The systems after GPT: whole training steps of llama, linear-attention and mingru.

llama             peer: transformers' LlamaForCausalLM of the same shape, sdpa attention
linear-attention  peer: the same net in plain PyTorch; on a GPU with flash-linear-attention's kernels, elsewhere with
                  a weight for every pair of words
mingru            peers: the same net with its recurrence one step after the other, and with torch.nn.GRU in its place,
                  whose state is as wide and which has more weights

There is no dropout. The limit counts operations only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from regard.bench.contenders import BenchPlace, BenchRow, Contender, Cost
from regard.bench.gpt2 import hugging_face_loss, vocabulary
from regard.bench.training_step import LEARNING, PlainTraining, RegardTraining, full_windows
from regard.layers.matrix_state import LinearAttention
from regard.layers.scan import MinGRU
from regard.layers.state import Span, State
from regard.runs.recipe import Recipe, compose
from regard.systems.catalogue import load_class
from regard.systems.model import Model
from regard.training.objective import TensorBatch

PACKAGES = {"transformers": "transformers", "flash-linear-attention": "fla"}  # that a peer's name speaks of


def recipe(system: str, place: BenchPlace, rows: int, window: int, **model: Any) -> Recipe:
    shape = {"layers": place.of(12, 4, 2), "width": place.of(768, 256, 32), "dropout": 0.0, **model}
    learning = LEARNING | {"batch_tokens": rows * window, "window": window, "batches": "windows"}
    return compose(system, None, {"model": shape, "training": learning})


def build(settings: Recipe, place: BenchPlace) -> Model:
    torch.manual_seed(1)
    model: Model = load_class(settings.system)(vocabulary(place), settings.model)
    return model


def row(
    system: str,
    place: BenchPlace,
    rows: int,
    window: int,
    peers: Mapping[str, Callable[[Recipe, Any], Any]],
    calls: int = 10,
    **model: Any,
) -> BenchRow:
    """Regard's step beside those of nets that `peers` build from the recipe and the batches. `calls`: steps in a turn
    on a GPU."""
    settings = recipe(system, place, rows, window, **model)
    batches = full_windows(vocabulary(place), rows, window)

    def opened(make: Callable[[Recipe, Any], Any]) -> Callable[[], Any]:
        return lambda: make(settings, batches)

    return BenchRow(
        f"{system}-train",
        place,
        f"{settings.model.layers}×{settings.model.width}, {rows}×{window} tokens, {place.precision}",
        [
            Contender("Regard", lambda: RegardTraining(build(settings, place), batches, settings.training, place)),
            *(
                Contender(name, opened(make), needs=[package for word, package in PACKAGES.items() if word in name])
                for name, make in peers.items()
            ),
        ],
        Cost(operations=build(settings, place).flops_per_token),
        warm_up=place.of(min(5, calls), 2, 1),
        calls=place.of(calls, 2, 1),
    )


def plain(model: Model, batches: Any, place: BenchPlace) -> PlainTraining:
    """A plain PyTorch training step of a network with this call, without faster code."""

    def loss(batch: TensorBatch, state: State | None) -> tuple[Tensor, None]:
        return model.loss(batch.tokens, batch.targets)[0].mean(), None

    return PlainTraining(model, loss, batches, place)


def exchanged(
    layer: type[nn.Module], other: type[nn.Module], place: BenchPlace
) -> Callable[[Recipe, Any], PlainTraining]:
    """Builds the same net with another way to compute its layers of one kind, in plain PyTorch."""

    def peer(settings: Recipe, batches: Any) -> PlainTraining:
        model = build(settings, place)
        for part in model.modules():
            if type(part) is layer:
                part.__class__ = other
        return plain(model, batches, place)

    return peer


# -- llama -----------------------------------------------------------------------------------------------------------


def llama_rows(place: BenchPlace) -> list[BenchRow]:
    heads = place.of(12, 4, 2)

    def hugging_face(settings: Recipe, batches: Any) -> PlainTraining:
        transformers: Any = import_module("transformers")
        chosen = settings.model
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=vocabulary(place),
                hidden_size=chosen.width,
                intermediate_size=chosen.inner,
                num_hidden_layers=chosen.layers,
                num_attention_heads=chosen.heads,
                num_key_value_heads=chosen.groups,
                max_position_embeddings=chosen.context,
                tie_word_embeddings=True,
                bos_token_id=0,
                eos_token_id=0,
                attn_implementation="sdpa",
            )
        )
        return PlainTraining(model, partial(hugging_face_loss, model), batches, place)

    rows, window = place.of(64, 8, 2), place.of(1024, 128, 32)
    return [row("llama", place, rows, window, {"transformers Llama": hugging_face}, heads=heads, context=window)]


# -- linear attention ------------------------------------------------------------------------------------------------


class EveryPair(LinearAttention):
    """The weighted average itself, with a weight for every pair of words."""

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        query, key, value = self.queries_keys_values(x, span.positions(x.size(1)))
        weights = (self.map_features(query, of_query=True) @ self.map_features(key).mT).tril()
        return self.join_heads(weights @ value / weights.sum(dim=-1, keepdim=True)), state


class FlashLinearAttention(LinearAttention):
    """The same average by the kernels of flash-linear-attention, in half precision."""

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        read_chunks = import_module("fla.ops.linear_attn").chunk_linear_attn
        query, key, value = self.queries_keys_values(x, span.positions(x.size(1)))
        features = self.map_features(query, of_query=True), self.map_features(key)
        given = [part.to(value.dtype).transpose(1, 2).contiguous() for part in (*features, value)]  # [R, T, H, d]
        return self.join_heads(read_chunks(*given)[0].transpose(1, 2)), state


def linear_rows(place: BenchPlace) -> list[BenchRow]:
    window, heads = place.of(4096, 512, 32), place.of(12, 4, 2)
    if place.device.type == "cuda":  # all pairs would not fit
        peers = {"flash-linear-attention": exchanged(LinearAttention, FlashLinearAttention, place)}
    else:
        peers = {"plain PyTorch, every pair": exchanged(LinearAttention, EveryPair, place)}
    return [row("linear-attention", place, place.of(16, 2, 2), window, peers, heads=heads, context=window)]


# -- the minimal GRU -------------------------------------------------------------------------------------------------


class StepByStep(MinGRU):
    """The same recurrence, one step after the other."""

    def run(self, update: Tensor, candidate: Tensor, hidden: Tensor) -> Tensor:
        steps = []
        for z, n in zip(update.unbind(dim=1), candidate.unbind(dim=1), strict=True):
            hidden = (1 - z) * hidden + z * n
            steps.append(hidden)
        return torch.stack(steps, dim=1)


class InItsPlace(nn.Module):
    """PyTorch's GRU with a minimal GRU's widths, as a layer."""

    def __init__(self, other: MinGRU) -> None:
        super().__init__()
        self.unit = nn.GRU(other.inputs, other.width, batch_first=True)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        hidden, _ = self.unit(x, state["hidden"][None])
        return hidden, state

    def begin(self, rows: int, **options: Any) -> State:
        return {"hidden": next(self.unit.parameters()).new_zeros(rows, self.unit.hidden_size)}


def mingru_rows(place: BenchPlace) -> list[BenchRow]:
    def gru(settings: Recipe, batches: Any) -> PlainTraining:
        model = build(settings, place)
        for block in model.layers:  # type: ignore[union-attr]  # a stack's
            block.recurrence = InItsPlace(block.recurrence)
        training = plain(model, batches, place)
        training.parameters = 0  # another net, which has more
        return training

    step_by_step = exchanged(MinGRU, StepByStep, place)
    peers = {"the same, step by step": step_by_step, "torch.nn.GRU in its place": gru}
    return [row("mingru", place, place.of(64, 8, 2), place.of(1024, 128, 32), peers, calls=3)]  # steps take seconds
