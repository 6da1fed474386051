"""Causal self-attention: each position asks all earlier ones, and itself.

bare          h_i = Σ_j α(q_i, k_j) v_j,   q = f(W_q x), k = f(W_k x), v = f(W_v x)      the notes; α: scores.py
multi-head    Attention(Q, K, V) = softmax(Q Kᵀ / √d + mask) V                           Vaswani et al. 2017

the latter in h heads of width d side by side, concatenated and projected. The mask is −∞ where a key lies after its
query ("no q₂k₃, because of cheating"). The state is the keys and values of what was read.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast.cpu_dropout import Dropout
from regard.layers.layer import Layer
from regard.layers.position import rotate
from regard.layers.scores import named_score
from regard.layers.state import Span, State


class CausalAttention(Layer):
    """Keys and values are kept by position, [R, H, S, d]: slot s of row r holds the row's own token s, however ragged.

    A head's slots lie side by side, as the product of one query with all of them wants it. A growing state has "keys"
    and "values"; a fixed one has "key_buffer" and "value_buffer" with one slot more than its capacity, a scratch slot
    that takes what padded columns write. A state that is empty stays so: it is for texts that are read in one call.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width = width
        self.heads = heads

    def begin(self, rows: int, *, capacity: int | None = None, device: torch.device | str, dtype: torch.dtype) -> State:
        names, slots = (("keys", "values"), 0) if capacity is None else (("key_buffer", "value_buffer"), capacity + 1)
        shape = (rows, self.heads, slots, self.width // self.heads)
        return {name: torch.zeros(shape, device=device, dtype=dtype) for name in names}

    def _remember(
        self, key: Tensor, value: Tensor, state: State, span: Span
    ) -> tuple[Tensor, Tensor, State, Tensor | None]:
        """Keys and values [R, S, H, d] with the new ones in place, the new state, what may be seen (None = causal)."""
        if not state:  # nothing follows this call, so nothing is kept
            return key, value, {}, None
        columns = key.size(1)
        positions = span.positions(columns)  # [R, T]
        key, value = key.transpose(1, 2), value.transpose(1, 2)  # [R, H, T, d]
        if "key_buffer" in state:
            slots = self._slots(positions, span.valid(columns), scratch=state["key_buffer"].size(2) - 1)
            keys, values = write(state["key_buffer"], key, slots), write(state["value_buffer"], value, slots)
            new, fresh = state, False
        else:
            fresh = state["keys"].size(2) == 0  # known from the shape alone
            keys = key if fresh else append(state["keys"], key, positions)
            values = value if fresh else append(state["values"], value, positions)
            new = {"keys": keys, "values": values}
        mask = None if fresh else visible(positions, keys.size(2))
        return keys.to(key.dtype).transpose(1, 2), values.to(value.dtype).transpose(1, 2), new, mask

    @staticmethod
    def _slots(positions: Tensor, valid: Tensor | None, scratch: int) -> Tensor:
        slots = positions if valid is None else positions.where(valid, scratch)
        return slots.clamp(max=scratch)  # a padded column may lie beyond the buffer


class SelfAttention(CausalAttention):
    """The bare one: one head, any score of the family, and nothing but the weighted average of the values.

    Without projections query, key and value are x itself: y_i = Σ_j α(x_i, x_j) x_j (001:120–136).
    """

    def __init__(
        self,
        width: int,
        *,
        score: str = "scaled-dot",
        bandwidth: float = 1.0,
        projections: bool = True,
        activation: str = "identity",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads=1)
        self.score = named_score(score, width, bandwidth=bandwidth)
        self.query, self.key, self.value = (
            nn.Linear(width, width, bias=False) if projections else nn.Identity() for _ in range(3)
        )
        self.activation = {"identity": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU}[activation]()
        self.dropout = dropout

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        if self.score.scale is None:  # no fused kernel knows this score
            hidden, new, _ = self.explain(x, state, span)
            return hidden, new
        query, keys, values, new, mask = self._look_up(x, state, span)
        context = F.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.score.scale,
        )
        return context[:, 0], new

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        query, keys, values, new, mask = self._look_up(x, state, span)
        if mask is None:
            mask = visible(torch.arange(x.size(1), device=x.device)[None], x.size(1))
        parts = self.score.explain(query, keys, mask)  # weights [R, 1, T, S], each row of which sums to 1
        context = F.dropout(parts["weights"], self.dropout, self.training) @ values
        return context[:, 0], new, parts

    def _look_up(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, Tensor, Tensor, State, Tensor | None]:
        """Queries [R, 1, T, d], keys and values [R, 1, S, d], the new state, and what may be seen (None = causal)."""
        query, key, value = (self.activation(part(x))[:, :, None] for part in (self.query, self.key, self.value))
        keys, values, new, mask = self._remember(key, value, state, span)
        return query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), new, mask


class CausalSelfAttention(CausalAttention):
    """Scaled dot products in several heads, concatenated and projected, as every block of a Transformer has it.

    `dropout` is the rate on the weights and, unless `dropout_output` says otherwise, on the output.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        dropout_output: float | None = None,
        rotary: bool = False,
    ) -> None:
        super().__init__(width, heads)
        self.dropout = dropout
        self.rotary = rotary
        self.cudnn = False  # whether it takes cuDNN's kernel while it trains: see `attend`
        self.project = nn.Linear(width, 3 * width, bias=bias)  # W_q, W_k, W_v of all heads at once
        self.output = nn.Linear(width, width, bias=bias)
        self.drop_output = Dropout(dropout if dropout_output is None else dropout_output)

    def forward(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        query, keys, values, new, mask = self._look_up(x, state, span)
        # In a fresh call slot and column are the same: the fast kernels know that mask.
        dropout = self.dropout if self.training else 0.0
        context = attend(
            query, keys, values, mask, causal=mask is None, dropout=dropout, cudnn=self.cudnn and self.training
        )
        return self.drop_output(self.output(context)), new

    def explain(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        query, keys, values, new, mask = self._look_up(x, state, span)
        if mask is None:
            mask = visible(torch.arange(x.size(1), device=x.device)[None], keys.size(1))
        context, parts = written(query, keys, values, mask, dropout=self.dropout if self.training else 0.0)
        return self.drop_output(self.output(context)), new, parts

    def _look_up(self, x: Tensor, state: State, span: Span) -> tuple[Tensor, Tensor, Tensor, State, Tensor | None]:
        """Queries [R, T, H, d], keys and values [R, S, H, d], the new state, and what may be seen (None = causal)."""
        query, key, value = self.project(x).unflatten(-1, (3 * self.heads, -1)).chunk(3, dim=2)
        if self.rotary:
            positions = span.positions(x.size(1))  # [R, T]
            query, key = rotate(query, positions), rotate(key, positions)
        return query, *self._remember(key, value, state, span)


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    cudnn: bool = False,
) -> Tensor:
    """softmax(Q Kᵀ / √d + mask) V, heads side by side: [R, T, H, d], [R, S, H, d] → [R, T, H·d].

    By a fused kernel, but for single queries to a cache on a CPU: there the two products alone take half its time.
    `cudnn`: that library's, called by name where it can be, since PyTorch by itself prefers another one.
    """
    query, keys, values = query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)  # [R, H, T, d]
    cached = keys.is_contiguous() and values.is_contiguous()  # otherwise both would be copied first
    if query.size(2) == 1 and cached and mask is not None and not dropout and query.device.type == "cpu":
        scores = (query * query.size(-1) ** -0.5) @ keys.transpose(2, 3)  # [R, H, 1, S]
        context = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ values
    elif cudnn and causal and not dropout and query.size(2) % 64 == 0 and query.dtype == torch.bfloat16:
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(query, keys, values, None, True, dropout, True)
        context = found[0]
    else:
        context = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, is_causal=causal, dropout_p=dropout
        )
    return context.transpose(1, 2).flatten(2)


def written(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, dropout: float = 0.0
) -> tuple[Tensor, State]:
    """`attend` as it is written, with its scores and weights [R, H, T, S]."""
    scores = scaled_dot(query, keys)
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-1)  # each row of it sums to 1
    context = torch.einsum("rhts,rshd->rthd", F.dropout(weights, dropout, dropout > 0.0), values)
    return context.flatten(2), {"scores": scores, "weights": weights}


def scaled_dot(query: Tensor, keys: Tensor) -> Tensor:
    """qᵀk / √d for every query and key: [R, T, H, d], [R, S, H, d] → [R, H, T, S]."""
    return torch.einsum("rthd,rshd->rhts", query, keys) / query.size(-1) ** 0.5


def visible(positions: Tensor, slots: int) -> Tensor:
    """Which slots a query at each position may look at: the ones up to its own, [R, 1, T, S]."""
    return (torch.arange(slots, device=positions.device) <= positions[..., None])[:, None]


def append(cache: Tensor, new: Tensor, positions: Tensor) -> Tensor:
    """A longer cache with `new` [R, H, T, d] at each row's own positions; what padding left behind is overwritten."""
    longer = torch.cat([cache.to(new.dtype), new], dim=2)
    rows = torch.arange(len(new), device=new.device)[:, None]
    longer.transpose(1, 2)[rows, positions] = new.transpose(1, 2)
    return longer


@torch.no_grad()
def write(buffer: Tensor, new: Tensor, slots: Tensor) -> Tensor:
    """The buffer with `new` [R, H, T, d] written into its slots, in place."""
    return buffer.scatter_(2, slots[:, None, :, None].expand_as(new), new.to(buffer.dtype))
