"""Word vectors whose gradients are added by word, in place, for small batches of text.

    x_t = E[w_t] (+ p_t),        dE[w] = Σ over the places t of w of dx_t

PyTorch fills a gradient of the whole table with zeros, adds the words, and adds the sum to the prediction's gradient if
the table is tied: three passes over a table of which a batch reads a few rows. Here they are added where the
prediction's gradient is (padded_weights.py), in the order of the places, so that equal runs are equal.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.fast.recurrence.padded_weights import MAX_WORDS, PaddedWeight, add_words, padded_weight
from regard.fast.table import Row, Use, Why, needs_triton
from regard.layers.embedding import Embedding
from regard.layers.position import Learned
from regard.layers.state import Span


class WordVectors(torch.autograd.Function):
    """table [V, D], tokens [R, T] → vectors [R, T, D]; `held`: the padded table of a step that has it."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, tokens: Tensor, held: PaddedWeight | None) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.held, ctx.like = held, table.detach()
        return F.embedding(tokens, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_vectors: Tensor) -> tuple[Tensor | None, None, None]:
        (tokens,) = ctx.saved_tensors
        if ctx.held is not None:
            ctx.held.add_words(tokens, d_vectors)
            return None, None, None
        gradient = torch.zeros_like(ctx.like)
        add_words(tokens, d_vectors, gradient, None)
        return gradient, None, None


def word_vectors(embedding: Embedding, tokens: Tensor, span: Span) -> Tensor:
    vectors = look_up(embedding.table.weight, tokens)
    if embedding.position is None:
        return vectors
    table: Tensor = embedding.position.table.weight  # type: ignore[assignment, union-attr]  # Learned has one
    return vectors + look_up(table, span.positions(tokens.size(1)).clamp(max=len(table) - 1))


def look_up(table: Tensor, tokens: Tensor) -> Tensor:
    vectors: Tensor = WordVectors.apply(table, tokens, padded_weight(table))
    return vectors


def fits(embedding: Embedding, tokens: Tensor, span: Span) -> bool:
    few = embedding.position is None or tokens.numel() <= MAX_WORDS
    return tokens.is_cuda and few and embedding.table.weight.dtype == torch.float32 and torch.is_grad_enabled()


def allows(embedding: Embedding, use: Use) -> Why:
    position = embedding.position
    known = position is None or (type(position) is Learned and position.width == embedding.width)
    if not known or embedding.concatenate or embedding.scale != 1.0 or embedding.word_dropout.rate:
        return "it supports only words and learned positions"
    if hasattr(embedding.table.weight, "full_tensor"):
        return "its table is sharded"
    if use.pairs or not (use.training and use.bf16 and use.captured):
        return "it supports only captured training on text in bf16"
    return None


ROWS = (
    Row(
        "word vectors, their gradients by word",
        "regard.layers.embedding:Embedding.forward",
        word_vectors,
        fits=fits,
        allows=allows,
        needs=needs_triton,
    ),
)
