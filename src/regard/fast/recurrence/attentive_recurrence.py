"""Bahdanau's decoder loop with a hand-written gradient: attention before every recurrent step, so it is sequential.

    α_t = softmax(score(h_{t-1}, keys)),   h_t, … = cell(drive_t + Σ_s α_ts g_s, W_h h_{t-1} + b, …)

with score = v · tanh(W_q h_{t-1} + k_s)  (additive)  or  a h_{t-1} · k_s  (dot products). What does not depend on
h_{t-1} is computed before the loop: drive_t = W_x x_t + b, the keys k_s, and g_s = W_c m_s, which position s of the
memory adds to the gates.

Autograd would compute each matrix's gradient by one product per step, and its bookkeeping would take longer than the
step. Here the matrices' gradients are single products over all steps, after the loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.fast.recurrence.lstm_chain import products_as_in_cudnn
from regard.fast.table import Row, Use, Why
from regard.layers.recurrent import CELLS, Elman
from regard.layers.scores import Additive, Bilinear, Dot, ScaledDot
from regard.layers.state import Span, State, last
from regard.systems.bahdanau import Bahdanau

from_tanh = torch.ops.aten.tanh_backward  # (gradient, y) → gradient · (1 − y²)
from_sigmoid = torch.ops.aten.sigmoid_backward  # (gradient, y) → gradient · y (1 − y)


# -- rows: for known cells and scores ----------------------------------------------------------------------------------

SCORES = (Dot, ScaledDot, Bilinear, Additive)


def known(model: Bahdanau, use: Use | None = None) -> Why:
    """Only these exact classes: a user's own score or cell is computed as written."""
    score, layer = model.attend.score, model._first
    if not model.settings.feed:
        return "the context does not enter the cell, so the loop is not sequential"
    if type(score) not in SCORES:
        return f"the gradient of {type(score).__name__} is not written out"
    if type(layer) is not CELLS[model.settings.cell] or (isinstance(layer, Elman) and layer.activation != "tanh"):
        return "the gradient of this cell is not written out"
    return None


def remember(model: Bahdanau, encoded: State) -> State:
    """Also W_c h_s, because W_c Σ α h = Σ α (W_c h): the product is computed once per source, not at every step."""
    kept = Bahdanau.remember(model, encoded)
    return {**kept, "places": kept["memory"] @ _input_weights(model)[1].T}


def may_look_and_step(model: Bahdanau, words: Tensor, past: State, source: State, span: Span) -> bool:
    return "places" in source and known(model) is None


def bahdanaus_loop(
    model: Bahdanau, words: Tensor, past: State, source: State, span: Span
) -> tuple[Tensor, Tensor, State]:
    """`Bahdanau.look_and_step`, not in half precision, because a recurrence accumulates rounding errors; products are
    as precise as cuDNN's (`products_as_in_cudnn`)."""
    score, layer, memory = model.attend.score, model._first, source["memory"]
    weight, bias = layer.weight("weight_hh"), layer.weight("bias_hh")
    with torch.autocast(words.device.type, enabled=False):
        drives = F.linear(words.to(weight.dtype), _input_weights(model)[0], layer.weight("bias_ih"))
        before = {name: value.to(weight.dtype) for name, value in past.items()}
        keys, places = source["keys"].to(weight.dtype), source["places"].to(weight.dtype)
        given = Given(model.settings.cell, keys, places, source["valid"][:, None], weight, bias)
        if isinstance(score, Additive):
            given = given._replace(query=score.query.weight, judge=score.judge.weight)
        elif isinstance(score, ScaledDot):
            given = given._replace(scale=score.scale)
        every, weights = look_and_step(drives, before, given)
    context = (weights.flatten(1, 2).to(memory.dtype) @ memory).view(*words.shape[:2], -1)
    return every["hidden"], context, {name: last(every[name], before[name], span) for name in past}


def _input_weights(model: Bahdanau) -> tuple[Tensor, Tensor]:
    """The first layer's W_e, for the word, and W_c, for the context."""
    weight = model._first.weight("weight_ih")
    return weight[:, : model.settings.words], weight[:, model.settings.words :]


ROWS = (
    Row("Bahdanau's memory times W_c", "regard.systems.bahdanau:Bahdanau.remember", remember, allows=known),
    Row(
        "Bahdanau's loop with its gradient written out",
        "regard.systems.bahdanau:Bahdanau.look_and_step",
        bahdanaus_loop,
        fits=may_look_and_step,
        allows=known,
    ),
)


# -- the loop --------------------------------------------------------------------------------------------------------


class Given(NamedTuple):
    """The loop's inputs. `query` and `judge` are the additive score's weights, `scale` the dot product's factor."""

    cell: str  # rnn, lstm or gru
    keys: Tensor  # [N, S, A]
    places: Tensor  # [N, S, G], what each position of the memory adds to the gates
    visible: Tensor  # [N, 1, S]
    weight: Tensor  # [G, H], W_h
    bias: Tensor  # [G], b
    query: Tensor | None = None  # [A, H], W_q
    judge: Tensor | None = None  # [1, A], v
    scale: float = 1.0  # a


def look_and_step(drives: Tensor, past: dict[str, Tensor], given: Given) -> tuple[dict[str, Tensor], Tensor]:
    """drives [R, T, G] and the state before → the state after each step, [R, T, H] by name, and α [N, R/N, T, S]."""
    hidden, cell, weights = AttentiveLoop.apply(drives, past["hidden"], past.get("cell"), *given)
    every = {"hidden": hidden, "cell": cell}
    return {name: every[name] for name in past}, weights


class AttentiveLoop(torch.autograd.Function):
    """Saved tensors have time first, so that a step is contiguous."""

    @staticmethod
    @products_as_in_cudnn()
    def forward(ctx: Any, drives: Tensor, hidden: Tensor, cell: Tensor | None, *parts: Any) -> Any:
        given = Given(*parts)
        rows, _, gates = drives.shape
        sources, _, width = given.keys.shape
        both = given.weight if given.query is None else torch.cat([given.weight, given.query])  # one product for both
        closed = torch.zeros_like(given.visible, dtype=drives.dtype).masked_fill_(~given.visible, -torch.inf)
        keys, keys_t = given.keys[:, None], given.keys.transpose(1, 2)
        hiddens, cells = [hidden], [cell]
        weights: list[Tensor] = []
        sums: list[Tensor] = []
        saved: list[Any] = []
        learning = any(ctx.needs_input_grad)
        for drive in drives.unbind(dim=1):
            product = hiddens[-1] @ both.T  # [R, G + A]
            if given.judge is None:
                asked = hiddens[-1].view(sources, -1, width)
                scores = torch.baddbmm(closed, asked, keys_t, alpha=given.scale)
            else:
                sums.append(torch.tanh_(keys + product[:, gates:].view(sources, -1, 1, width)))  # [N, R/N, S, A]
                scores = (sums[-1] @ given.judge[0]).add_(closed)
            weights.append(torch.softmax(scores, dim=-1))  # [N, R/N, S]
            drive = drive + torch.bmm(weights[-1], given.places).view(rows, gates)
            recurrent = product[:, :gates].add_(given.bias)
            hidden, cell, inside = FORWARD[given.cell](drive, recurrent, hiddens[-1], cells[-1])
            hiddens.append(hidden)
            cells.append(cell)
            if learning:
                saved.append(inside)
            else:
                sums.clear()
        every = torch.stack(hiddens)  # [T + 1, R, H]
        looked = torch.stack(weights)  # [T, N, R/N, S]
        ctx.given, ctx.both, ctx.cells, ctx.saved, ctx.sums = given, both, cells, saved, sums
        ctx.hiddens, ctx.weights = every, looked
        shown = None if cell is None else torch.stack(cells[1:], dim=1)  # type: ignore[arg-type]
        return every[1:].transpose(0, 1), shown, looked.permute(1, 2, 0, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hiddens: Tensor, d_cells: Tensor | None, d_weights: Tensor) -> Any:
        with (
            torch.autocast(d_hiddens.device.type, enabled=False),
            products_as_in_cudnn(),
        ):  # as the values were computed
            return AttentiveLoop.gradients(ctx, d_hiddens, d_cells, d_weights)

    @staticmethod
    def gradients(ctx: Any, d_hiddens: Tensor, d_cells: Tensor | None, d_weights: Tensor) -> Any:
        given, both, hiddens, weights = ctx.given, ctx.both, ctx.hiddens, ctx.weights
        steps, rows, _ = d_hiddens.transpose(0, 1).shape
        sources, _, width = given.keys.shape
        gates = given.weight.size(0)
        places_t = given.places.transpose(1, 2)
        d_keys = torch.zeros_like(given.keys)
        d_drives, d_scores = hiddens.new_empty(steps, rows, gates), torch.empty_like(weights)
        d_products = hiddens.new_empty(steps, rows, both.size(0))  # of [W_h ; W_q] h_{t-1}
        d_hidden = torch.zeros_like(hiddens[0])
        d_cell = None if d_cells is None else torch.zeros_like(d_hidden)
        for t in reversed(range(steps)):
            d_hidden = d_hidden + d_hiddens[:, t]
            d_cell = None if d_cells is None or d_cell is None else d_cell + d_cells[:, t]
            d_drive, d_recurrent, direct, d_cell = BACKWARD[given.cell](
                d_hidden, d_cell, hiddens[t], ctx.cells[t], hiddens[t + 1], ctx.saved[t]
            )
            d_drives[t], d_products[t, :, :gates] = d_drive, d_recurrent
            d_look = torch.baddbmm(d_weights[:, :, t], d_drive.view(sources, -1, gates), places_t)
            d_score = torch._softmax_backward_data(d_look, weights[t], -1, d_look.dtype)
            d_scores[t] = d_score
            if given.judge is None:
                d_asked = torch.bmm(d_score, given.keys).view(rows, width).mul_(given.scale)
                d_hidden = torch.addmm(d_asked, d_recurrent, both)
            else:
                d_sum = from_tanh(d_score[..., None] * given.judge[0], ctx.sums[t])  # [N, R/N, S, A]
                d_keys += d_sum.sum(dim=1)
                d_products[t, :, gates:] = d_sum.sum(dim=2).view(rows, width)
                d_hidden = d_products[t] @ both
            d_hidden = d_hidden if direct is None else d_hidden + direct
        # Gradients that the recurrence does not need: one product over all steps each.
        d_both = d_products.flatten(0, 1).T @ hiddens[:-1].flatten(0, 1)
        d_places = _by_source(weights, sources).transpose(1, 2) @ _by_source(d_drives, sources)
        d_query = d_judge = None
        if given.judge is None:
            questions = _by_source(hiddens[:-1], sources)
            d_keys = (_by_source(d_scores, sources).transpose(1, 2) @ questions).mul_(given.scale)
        else:
            d_query = d_both[gates:]
            d_judge = sum(d_scores[t].flatten()[None] @ ctx.sums[t].flatten(0, 2) for t in range(steps))
        d_bias = d_products[..., :gates].sum(dim=(0, 1))
        d_given = Given(None, d_keys, d_places, None, d_both[:gates], d_bias, d_query, d_judge, None)  # type: ignore[arg-type]
        return d_drives.transpose(0, 1), d_hidden, d_cell, *d_given


def _by_source(steps: Tensor, sources: int) -> Tensor:
    """[T, R, …] or [T, N, R/N, …] → [N, T·R/N, …]."""
    return steps.reshape(steps.size(0), sources, -1, steps.size(-1)).transpose(0, 1).flatten(1, 2)


# -- cells: one step of layers/recurrent.py, what its gradient needs, and that gradient ------------------------------


def elman_step(drive: Tensor, recurrent: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None, tuple[()]]:
    return drive.add_(recurrent).tanh_(), None, ()


def elman_gradient(d: Tensor, d_cell: None, before: Tensor, cell: None, after: Tensor, inside: tuple[()]) -> Any:
    """Gradients of the drive, the recurrent term, the state before (the direct path only), and the cell before."""
    d_sum = from_tanh(d, after)
    return d_sum, d_sum, None, None


def lstm_step(drive: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Any]:
    store, forget, update, output = drive.add_(recurrent).chunk(4, dim=-1)
    store, forget, update, output = store.sigmoid(), forget.sigmoid(), update.tanh(), output.sigmoid()
    new = torch.addcmul(forget * cell, store, update)
    shown = new.tanh()
    return output * shown, new, (store, forget, update, output, shown)


def lstm_gradient(d: Tensor, d_cell: Tensor, before: Tensor, cell: Tensor, after: Tensor, inside: Any) -> Any:
    store, forget, update, output, shown = inside
    d_cell = d_cell + from_tanh(d * output, shown)
    parts = (
        from_sigmoid(d_cell * update, store),
        from_sigmoid(d_cell * cell, forget),
        from_tanh(d_cell * store, update),
        from_sigmoid(d * shown, output),
    )
    d_sum = torch.cat(parts, dim=-1)
    return d_sum, d_sum, None, d_cell * forget


def gru_step(drive: Tensor, recurrent: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None, Any]:
    width = hidden.size(-1)
    gates = (drive[:, : 2 * width] + recurrent[:, : 2 * width]).sigmoid_()
    reset, update = gates.chunk(2, dim=-1)
    asked = recurrent[:, 2 * width :]
    candidate = torch.addcmul(drive[:, 2 * width :], reset, asked).tanh_()
    return torch.lerp(candidate, hidden, update), None, (gates, candidate, asked)


def gru_gradient(d: Tensor, d_cell: None, before: Tensor, cell: None, after: Tensor, inside: Any) -> Any:
    gates, candidate, asked = inside
    reset, update = gates.chunk(2, dim=-1)
    kept = d * update
    d_candidate = from_tanh(d - kept, candidate)
    d_gates = from_sigmoid(torch.cat([d_candidate * asked, d * (before - candidate)], dim=-1), gates)
    d_drive = torch.cat([d_gates, d_candidate], dim=-1)
    return d_drive, torch.cat([d_gates, d_candidate * reset], dim=-1), kept, None


FORWARD: dict[str, Any] = {"rnn": elman_step, "lstm": lstm_step, "gru": gru_step}
BACKWARD: dict[str, Any] = {"rnn": elman_gradient, "lstm": lstm_gradient, "gru": gru_gradient}
