"""One decoding step of a GPT on a CPU with little overhead: logits, state = model(token, state).

    x = E[w] + p_t;   x = x + W_o attention(W LN(x), cache),   x = x + W_2 f(W_1 LN(x))  layers times;  logits = E LN(x)

For one column a small model spends as long between its products as in them. Here cache slots and mask are computed
once for all layers, a query attends only to filled slots, and no module is called. The reference is the model's own
call; on a GPU see fast/decoding/decode_step.py.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.decoding.writer import DecodingStep
from regard.fast.table import Row, Use, Why, needs_cpu
from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import FeedForward, PreNormBlock
from regard.layers.embedding import Embedding
from regard.layers.position import Learned, Position
from regard.layers.state import State
from regard.systems.model import Model, Stack


def is_usual(model: Model) -> bool:
    """True for a stack of layers whose methods and modules no user's subclass has changed."""
    kind = type(model)
    return (
        isinstance(model, Stack)
        and kind.predict is Stack.predict
        and kind.read is Model.read
        and kind.hidden_states is Stack.hidden_states
        and type(model.embedding) is Embedding
        and isinstance(model.entry, nn.Dropout | nn.Identity)
        and isinstance(model.between, nn.Dropout | nn.Identity)
        and all(type(getattr(layer, "feedforward", None)) is FeedForward for layer in model.layers)
    )


def is_known(model: Model) -> bool:
    """True for an unmodified stack of an embedding, pre-norm blocks and an output layer."""
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
        write = mask = None  # one row writes into the last slot and sees them all
        if rows > 1:
            write = slot.view(rows, 1, 1, 1).expand(rows, heads, 1, width)
            hidden = (torch.arange(used) > slot[:, None]).view(rows, 1, 1, used)
            mask = torch.zeros(hidden.shape, dtype=x.dtype).masked_fill_(hidden, -torch.inf)
        for name, block in self.blocks:
            x = block(x, past[name]["key_buffer"], past[name]["value_buffer"], write, used, mask)
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
        self, x: Tensor, keys: Tensor, values: Tensor, write: Tensor | None, used: int, mask: Tensor | None
    ) -> Tensor:
        """x [R, D] after this block; caches [R, H, S, d], of which the first `used` slots may be filled."""
        rows, heads, _, width = keys.shape
        query, key, value = linear(norm(x, self.attention_norm), self.project).view(rows, 3, heads, 1, width).unbind(1)
        for cache, new in ((keys, key), (values, value)):
            if write is None:
                cache.narrow(2, used - 1, 1).copy_(new)
            else:
                cache.scatter_(2, write, new.to(cache.dtype))
        keys, values = keys.narrow(2, 0, used), values.narrow(2, 0, used)
        found = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)  # [R, H, 1, d]
        x = x + linear(found.reshape(x.shape), self.attend)
        inner = linear(norm(x, self.feedforward_norm), self.expand)
        inner = F.gelu(inner, approximate="tanh") if self.gelu else inner.relu_()
        return x + linear(inner, self.contract)


def linear(x: Tensor, layer: Any) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


def norm(x: Tensor, layer: Any) -> Tensor:
    return torch.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)


def allows(step: DecodingStep, use: Use) -> Why:
    return None if is_known(step.model) else "it needs unmodified pre-norm blocks with learned positions"


ROWS = (
    Row(
        "GPT step on a CPU",
        "regard.decoding.writer:DecodingStep.step",
        makes=lambda step: LeanStep(step.model),
        fits=lambda *arguments: not torch.is_autocast_enabled("cpu"),
        allows=allows,
        needs=needs_cpu,
    ),
)
