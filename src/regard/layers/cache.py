"""The key-value cache of causal attention, by position.

growing    {"keys", "values"}                [R, H, S, d]        a call returns longer ones
fixed      {"key_buffer", "value_buffer"}    [R, H, C + 1, d]    a call writes in place; padded columns go to slot C
none       {}                                                    for texts that are read in one call

Slot s of row r holds the row's own token s, however ragged the rows are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.layers.state import Span, State


def begin(
    rows: int, heads: int, width: int, *, capacity: int | None, device: torch.device | str, dtype: torch.dtype
) -> State:
    """An empty cache; `width` is a head's."""
    names, slots = (("keys", "values"), 0) if capacity is None else (("key_buffer", "value_buffer"), capacity + 1)
    return {name: torch.zeros(rows, heads, slots, width, device=device, dtype=dtype) for name in names}


def remember(state: State, key: Tensor, value: Tensor, span: Span) -> tuple[Tensor, Tensor, State]:
    """Keys and values [R, H, S, d] of all that was read, the new ones [R, H, T, d] in place, and the state after."""
    if not state:
        return key, value, {}
    columns = key.size(2)
    positions = span.positions(columns)  # [R, T]
    if "key_buffer" in state:
        slots = _slots(positions, span.valid(columns), scratch=state["key_buffer"].size(2) - 1)
        keys, values = _write(state["key_buffer"], key, slots), _write(state["value_buffer"], value, slots)
        return keys.to(key.dtype), values.to(value.dtype), state
    keys, values = _append(state["keys"], key, positions), _append(state["values"], value, positions)
    return keys, values, {"keys": keys, "values": values}


def visible(positions: Tensor, slots: int) -> Tensor:
    """The causal mask: a query at position t sees slots up to t. [R, T] → [R, 1, T, S]."""
    return (torch.arange(slots, device=positions.device) <= positions[..., None])[:, None]


def _append(cache: Tensor, new: Tensor, positions: Tensor) -> Tensor:
    """A longer cache with `new` at each row's own positions; what padding wrote is overwritten."""
    if cache.size(2) == 0:
        return new
    longer = torch.cat([cache.to(new.dtype), new], dim=2)
    rows = torch.arange(new.size(0), device=new.device)[:, None]
    longer.transpose(1, 2)[rows, positions] = new.transpose(1, 2)
    return longer


@torch.no_grad()
def _write(buffer: Tensor, new: Tensor, slots: Tensor) -> Tensor:
    return buffer.scatter_(2, slots[:, None, :, None].expand_as(new), new.to(buffer.dtype))


def _slots(positions: Tensor, valid: Tensor | None, scratch: int) -> Tensor:
    slots = positions if valid is None else positions.where(valid, scratch)
    return slots.clamp(max=scratch)  # a padded column may be beyond the buffer
