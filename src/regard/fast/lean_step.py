"""One decoding step of a GPT on a CPU with little overhead: logits, state = model(token, state).

    x = E[w] + p_t;   x = x + W_o attention(W LN(x), cache),   x = x + W_2 f(W_1 LN(x))  layers times;  logits = E LN(x)

For one column a small model spends as long between its products as in them. Here cache slots and mask are computed
once for all layers, a query attends only to filled slots, and no module is called. The reference is the model's own
call; on a GPU see fast/decode_step.py.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.decoding.writer import Step
from regard.fast.row_table import Row, Use, Why, needs_cpu
from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import FeedForward, PreNormBlock
from regard.layers.embedding import Embedding
from regard.layers.position import Learned, Position
from regard.layers.state import State
from regard.systems.model import Model, Stack


def is_usual(model: Model) -> bool:
    """Is this a stack of layers that a user's subclass has not changed, neither its methods nor its modules?"""
    kind = type(model)
    return (
        isinstance(model, Stack)
        and kind.predict is Stack.predict
        and kind.read is Model.read
        and kind.contextualise is Stack.contextualise
        and type(model.embedding) is Embedding
        and isinstance(model.entry, nn.Dropout | nn.Identity)
        and isinstance(model.between, nn.Dropout | nn.Identity)
        and all(type(getattr(layer, "feedforward", None)) is FeedForward for layer in model.layers)
    )


def is_known(model: Model) -> bool:
    """Is this an unmodified stack of an embedding, pre-norm blocks and an output layer?"""
    if not is_usual(model):
        return False
    assert isinstance(model, Stack)
    embedding = model.embedding
    return (
        len(model.layers) > 0
        and all(type(block) is PreNormBlock for block in model.layers)
        and all(type(block.attention) is CausalSelfAttention for block in model.layers)
        and all(type(block.attention.position) is Position for block in model.layers)  # type: ignore[union-attr]
        and isinstance(model.finish, nn.LayerNorm)
        and not embedding.concatenate
        and (embedding.position is None or type(embedding.position) is Learned)
    )


class LeanStep:
    """The step of one model. It reads the model's own parameters, so later changes to them take effect."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.table, self.scale, self.position = model.embedding.table, model.embedding.scale, model.embedding.position
        self.blocks = [(name, Parts(block)) for name, block in model.layers.named_children()]

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, state: State) -> Tensor:
        seen, past = state["seen"], state["past"]
        x = F.embedding(tokens, self.table.weight)  # [R, D]
        if self.scale != 1.0:
            x = x * self.scale
        if self.position is not None:
            x = x + F.embedding(seen.clamp(max=self.position.context - 1), self.position.table.weight)
        rows, heads, slots, width = past["0"]["key_buffer"].shape
        slot = seen.clamp(max=slots - 1)
        used = int(slot.max()) + 1
        write = slot.view(rows, 1, 1, 1).expand(rows, heads, 1, width)
        hidden = None if rows == 1 else (torch.arange(used) > slot[:, None]).view(rows, 1, 1, used)
        for name, block in self.blocks:
            x = block(x, past[name]["key_buffer"], past[name]["value_buffer"], write, used, hidden)
        seen += 1
        return self.model.predict(norm(x, self.model.finish))


class Parts:
    """The parts of a block, for `LeanStep`."""

    def __init__(self, block: Any) -> None:
        self.attention_norm, self.feedforward_norm = block.attention_norm, block.feedforward_norm
        self.project, self.attend = block.attention.project, block.attention.output
        self.expand, self.contract = block.feedforward.expand, block.feedforward.output
        self.gelu = isinstance(block.feedforward.activation, nn.GELU)

    def __call__(
        self, x: Tensor, keys: Tensor, values: Tensor, write: Tensor, used: int, hidden: Tensor | None
    ) -> Tensor:
        """x [R, D] after this block; caches [R, H, S, d], of which the first `used` slots may be filled."""
        rows, heads, _, width = keys.shape
        query, key, value = linear(norm(x, self.attention_norm), self.project).view(rows, 3, heads, 1, width).unbind(1)
        keys.scatter_(2, write, key.to(keys.dtype))
        values.scatter_(2, write, value.to(values.dtype))
        scores = (query * width**-0.5) @ keys[:, :, :used].transpose(2, 3)  # [R, H, 1, used]
        weights = (scores if hidden is None else scores.masked_fill_(hidden, -torch.inf)).softmax(dim=-1)
        x = x + linear((weights @ values[:, :, :used]).view(x.shape), self.attend)
        inner = linear(norm(x, self.feedforward_norm), self.expand)
        inner = F.gelu(inner, approximate="tanh") if self.gelu else inner.relu_()
        return x + linear(inner, self.contract)


def linear(x: Tensor, layer: Any) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


def norm(x: Tensor, layer: Any) -> Tensor:
    return torch.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)


def allows(step: Step, use: Use) -> Why:
    return None if is_known(step.model) else "it is for unmodified pre-norm blocks with learned positions"


ROWS = (
    Row(
        "GPT step on a CPU",
        "regard.decoding.writer:Step.step",
        makes=lambda step: LeanStep(step.model),
        fits=lambda *arguments: not torch.is_autocast_enabled("cpu"),
        allows=allows,
        needs=needs_cpu,
    ),
)
