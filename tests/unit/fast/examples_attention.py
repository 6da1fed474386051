"""Examples for the rows of attention, blocks and dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from examples import Example
from torch import Tensor

from regard.fast.table import Use
from regard.layers.attention import (
    CausalSelfAttention,
    GroupedQueryAttention,
)
from regard.layers.dropout import Dropout
from regard.layers.position import Rotary
from regard.layers.state import Span, State, detach
from regard.systems import gpt, linear_attention, llama, mingru, transformer
from regard.systems.model import Stack

CUDA = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF: dict[str, Any] = {"device": CUDA, "dtype": torch.bfloat16}


def span(rows: int, start: int = 0, lengths: list[int] | None = None) -> Span:
    return Span(torch.full((rows,), start), None if lengths is None else torch.tensor(lengths))


def read(layer: Any, columns: int, capacity: int | None = None) -> State:
    """The state of two rows that have read so many columns."""
    state = layer.begin(2, capacity=capacity, device="cpu", dtype=torch.float64)
    return detach(layer(numbers(2, columns, layer.width), state, span(2))[1])


def numbers(*shape: int, **kind: Any) -> Tensor:
    return torch.randn(*shape, **({"dtype": torch.float64} | kind)).requires_grad_()


def causal() -> CausalSelfAttention:
    return CausalSelfAttention(8, 2, position=Rotary()).double()


def grouped() -> GroupedQueryAttention:
    return GroupedQueryAttention(8, 4, 2, position=Rotary()).double()


def without_a_mask(make: Callable[[], CausalSelfAttention] = causal) -> Example:
    layer = make()
    fresh = layer.begin(2, device="cpu", dtype=torch.float64)
    x = numbers(2, 5, 8)
    refused = ((x, read(layer, 3), span(2, 3)), (x, read(layer, 3, capacity=9), span(2, 3)))
    return Example(layer, (x, fresh, span(2, lengths=[5, 2])), refused=refused)


def one_query(make: Callable[[], CausalSelfAttention] = causal) -> Example:
    layer = make()
    state, x = read(layer, 3), numbers(2, 1, 8)
    refused = ((x, {}, span(2)), (numbers(2, 2, 8), state, span(2, 3)))
    return Example(layer, (x, state, span(2, 3)), refused=refused)


def dropout() -> Example:
    return Example(Dropout(1.0), (numbers(3, 4),), refused=((torch.ones(3, dtype=torch.int64),),))


def translator() -> transformer.Transformer:
    model = transformer.Transformer(20, transformer.Settings(width=64, heads=2, layers=2, dropout=0.0, norm="post"))
    return model.to(**HALF)


def tokens(columns: int) -> Tensor:
    return torch.arange(2 * columns, device=CUDA).view(2, columns) % 20


def encoder() -> Example:
    lengths = torch.tensor([9, 4])
    refused = ((numbers(2, 65, 64, **HALF), None),)
    return Example(translator().encoder, (numbers(2, 9, 64, **HALF), lengths), refused=refused)


def source_keys() -> Example:
    near, far = ({"memory": numbers(2, length, 64, **HALF)} for length in (9, 65))
    return Example(translator(), (near,), refused=((far,),))


def target() -> Example:
    from regard.fast import install, uninstall

    model = translator()
    install(model)
    state = model.begin(tokens(9))  # as the rows make it
    uninstall(model)
    at = Span(state["seen"])
    return Example(
        model, (tokens(5), state, at), refused=((tokens(65), state, at), (tokens(5), model.begin(tokens(9)), at))
    )


def by_hand() -> Example:
    settings = gpt.Settings(layers=2, width=512, heads=8, context=64, dropout=0.0)
    model = gpt.GPT(20, settings).to(CUDA)
    at = Span(torch.zeros(2, dtype=torch.int64, device=CUDA))
    given = (tokens(9), model.without_cache(2), at)
    refused = ((tokens(9), model.begin(rows=2), at),)
    return Example(model, given, Use(training=True, bf16=True), refused=refused)


def few_passes(kind: type[Stack], settings: Any) -> Example:
    model = kind(20, settings).to(CUDA).train()
    at = Span(torch.zeros(1, dtype=torch.int64, device=CUDA))
    refused = () if kind is mingru.MinGRUModel else ((tokens(9), model.begin(rows=2), Span(at.start.expand(2))),)
    use = Use(training=True, bf16=True)
    return Example(model, (tokens(9), model.without_cache(2), at), use, refused, lambda returned: returned[:1])


SHAPE: dict[str, Any] = {"layers": 2, "width": 64, "heads": 2, "context": 64, "dropout": 0.0}
EXAMPLES: dict[str, Callable[[], Example]] = {
    "dropout with few random numbers": dropout,
    "causal attention without a mask": without_a_mask,
    "one query to a cache, on a CPU": one_query,
    "grouped queries without a mask": partial(without_a_mask, grouped),
    "one group of queries to a cache, on a CPU": partial(one_query, grouped),
    "an encoder of short sources": encoder,
    "a short source's keys": source_keys,
    "a decoder of short targets": target,
    "GPT-2's blocks by hand": by_hand,
    "gpt's blocks in few passes": partial(few_passes, gpt.GPT, gpt.Settings(**SHAPE, norm="post")),
    "llama's blocks in few passes": partial(few_passes, llama.Llama, llama.Settings(**SHAPE)),
    "linear-attention's blocks in few passes": partial(
        few_passes, linear_attention.LinearTransformer, linear_attention.Settings(**SHAPE)
    ),
    "mingru's blocks in few passes": partial(
        few_passes, mingru.MinGRUModel, mingru.Settings(layers=2, width=64, dropout=0.0)
    ),
}
