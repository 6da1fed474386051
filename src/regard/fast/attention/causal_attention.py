"""Causal attention by fused kernels that need no mask tensor.

    O = softmax(Q Kᵀ / √d + M) V,    M = −∞ above the diagonal

M is this triangle if a text is read from its beginning, and PyTorch has fused kernels for it. From Hopper on cuDNN's is
the fastest for heads of these `DEPTHS`. It needs a second to plan for each new shape, also where PyTorch chooses it
unasked, so other heads have FlashAttention's, which is as fast for them. A single query to a cache on a CPU is two
plain products, which take half the time of a fused kernel.
"""

from __future__ import annotations

from functools import cache as cache_once

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast.table import Row, Use, Why, needs_cpu, needs_hopper
from regard.layers import cache
from regard.layers.attention import CausalSelfAttention
from regard.layers.cache import visible
from regard.layers.position import Position, Rotary
from regard.layers.state import Span, State

DEPTHS = (64, 128)  # components of a head for which cuDNN's kernel is the fastest


def attend_causal(query: Tensor, keys: Tensor, values: Tensor, *, dropout: float = 0.0, cudnn: bool = False) -> Tensor:
    """Context [R, H, T, d] for equal numbers of queries and keys; `cudnn`: use its kernel if it fits."""
    in_bf16 = query.is_cuda and query.dtype == torch.bfloat16
    if cudnn and not dropout and query.size(2) % 64 == 0 and in_bf16:
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(query, keys, values, None, True, 0.0, True)
        return found[0]
    if in_bf16 and query.size(3) not in DEPTHS and query.size(3) % 8 == 0 and has_flash_attention():
        return torch.ops.aten._scaled_dot_product_flash_attention(query, keys, values, dropout, True)[0]
    return F.scaled_dot_product_attention(query, keys, values, is_causal=True, dropout_p=dropout)


@cache_once
def has_flash_attention() -> bool:
    """True if this PyTorch was built with it."""
    return torch.backends.cuda.is_flash_attention_available()


def takes_cudnn(attention: CausalSelfAttention, device: torch.device) -> bool:
    return needs_cudnn(device) is None and attention.width // attention.heads in DEPTHS


def needs_cudnn(device: torch.device) -> Why:
    return needs_hopper(device) or (None if torch.backends.cudnn.is_available() else "it needs cuDNN")


def is_fresh(state: State) -> bool:
    """True if the state is still empty, which its shapes tell."""
    return not state or ("keys" in state and state["keys"].size(2) == 0)


def precision(x: Tensor) -> torch.dtype:
    """The dtype in which products of x are computed."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


# -- rows ------------------------------------------------------------------------------------------------------------


def _unbiased(attention: CausalSelfAttention, use: Use) -> Why:
    return None if type(attention.position) in (Position, Rotary) else "its positions add a bias to the scores"


def _read(attention: CausalSelfAttention, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    query, key, value = attention.queries_keys_values(x, span.positions(x.size(1)))
    shared = attention.expand_kv_heads(key), attention.expand_kv_heads(value)
    context = attend_causal(query, *shared, dropout=attention.weight_dropout)
    _, _, new = cache.remember(state, key, value, span)
    return attention.join_heads(context), new


def _reads_first(attention: CausalSelfAttention, x: Tensor, state: State, span: Span) -> bool:
    return is_fresh(state)


def _reads_one_more(attention: CausalSelfAttention, x: Tensor, state: State, span: Span) -> bool:
    return x.size(1) == 1 and not attention.weight_dropout and not is_fresh(state)


def _read_one_more(attention: CausalSelfAttention, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    positions = span.positions(1)
    query, key, value = attention.queries_keys_values(x, positions)
    keys, values, new = cache.remember(state, key, value, span)
    # The queries that share a key are stacked: [R, G, H/G, d].
    query = (query * query.size(-1) ** -0.5).reshape(len(query), keys.size(1), -1, query.size(-1))
    hidden = ~visible(positions, keys.size(2))
    weights = (query @ keys.transpose(2, 3)).masked_fill(hidden, -torch.inf).softmax(dim=-1)  # [R, G, H/G, S]
    return attention.join_heads((weights @ values).reshape(len(query), attention.heads, 1, -1)), new


CAUSAL = "regard.layers.attention:CausalSelfAttention.forward"
GROUPED = "regard.layers.attention:GroupedQueryAttention.forward"
ROWS = (
    Row("causal attention without a mask", CAUSAL, _read, _reads_first, _unbiased),
    Row("one query to a cache, on a CPU", CAUSAL, _read_one_more, _reads_one_more, _unbiased, needs_cpu),
    Row("grouped queries without a mask", GROUPED, _read, _reads_first, _unbiased),
    Row("one group of queries to a cache, on a CPU", GROUPED, _read_one_more, _reads_one_more, _unbiased, needs_cpu),
)
