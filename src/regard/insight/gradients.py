"""Gradients through time: the influence of each token on the loss of each step.

    G[t, s] = ‖∂L_t/∂e_s‖,   L_t = −log P(w_{t+1} | w_1 … w_t),   e_s the vector that enters the model for token s

The norm is Euclidean. e_s is the output of the embedding, including position and scale, so that G means the same in
every system. Above the diagonal, G is exactly 0, since no loss depends on a later word. For the states h_s and c_s of a
recurrent layer, it is ‖∂L_t/∂h_s‖ along all paths from step s to step t; the paths of the cell also pass through h_s =
o_s * tanh(c_s). Why gradients vanish: Hochreiter 1991, Bengio et al. 1994.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.cell import Cell
from regard.layers.embedding import Embedding
from regard.layers.state import State
from regard.report.progress import progress
from regard.systems.model import Model

ROWS = 32  # of the matrix at a time: their backward passes are batched


def tables_of(model: Model) -> list[nn.Module]:
    """The modules that embed words; none if a model only counts."""
    ours: list[nn.Module] = [module for module in model.modules() if isinstance(module, Embedding)]
    return ours or [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings == model.vocabulary
    ]


@contextmanager
def entering(model: Model) -> Iterator[list[Tensor]]:
    """Within the context, records the word vectors [R, T, D] of each call as leaves with gradients."""
    vectors: list[Tensor] = []

    def enter(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        vectors.append(output.detach().requires_grad_())
        return vectors[-1]

    hooks = [table.register_forward_hook(enter) for table in tables_of(model)]
    try:
        yield vectors
    finally:
        for hook in hooks:
            hook.remove()


def predicting(model: Model, logits: Tensor, parts: State) -> tuple[Tensor, Tensor]:
    """The vectors [1, T, D] that the steps predict from, and their logits; without them, the logits twice."""
    hidden = parts.get("hidden")
    if not isinstance(hidden, Tensor) or not hidden.requires_grad:
        return logits, logits
    again = model.predict(hidden)
    return (hidden, again) if torch.equal(again, logits) else (logits, logits)


def token_losses(logits: Tensor, targets: Sequence[int | None]) -> Tensor:
    """L_t from logits [T, V], for every step with a known next token."""
    known = torch.tensor([target for target in targets if target is not None], dtype=torch.int64, device=logits.device)
    exact = logits[: len(known)].to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(exact, known, reduction="none")


def through_time(
    losses: Tensor, hidden: Sequence[Tensor], inputs: Sequence[Tensor], steps: int, title: str = "gradients"
) -> list[np.ndarray]:
    """For each input [1, S, D] or [S = 1, D] the matrix [steps, S] of ‖∂L_t/∂input_s‖; nan where a step has no loss.

    Step t predicts only from hidden_t; `hidden` contains all steps in order, [1, …, D] each. So one backward pass
    through the prediction, whose vocabulary is large, serves all rows, and each row starts from its ∂L_t/∂hidden_t.
    """
    found = [np.full((steps, one.shape[:-1].numel()), np.nan) for one in inputs]
    whole = torch.cat(list(hidden), dim=1)  # [1, T, D]
    slopes = torch.cat(torch.autograd.grad(losses.sum(), hidden, retain_graph=True, materialize_grads=True), dim=1)
    with progress(title, len(losses), unit=" steps") as bar:
        for first in range(0, len(losses), ROWS):
            rows = torch.arange(first, min(first + ROWS, len(losses)), device=whole.device)
            directions = whole.new_zeros(len(rows), *whole.shape)
            directions[rows - first, 0, rows] = slopes[0, rows]
            for matrix, gradient in zip(found, backward(whole, inputs, directions), strict=True):
                norm = 0.0 if gradient is None else gradient.norm(dim=-1).flatten(1).cpu().numpy()
                matrix[first : first + len(rows)] = norm
            bar.advance(len(rows))
    return found


def backward(hidden: Tensor, inputs: Sequence[Tensor], directions: Tensor) -> Sequence[Tensor | None]:
    """A backward pass from `hidden` for each direction: [directions, …] per input, None if it has no influence."""
    asked: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
    try:
        return torch.autograd.grad(hidden, inputs, directions, is_grads_batched=True, **asked)
    except RuntimeError:  # a user's own backward may not support batching: one row at a time
        each = [torch.autograd.grad(hidden, inputs, direction, **asked) for direction in directions]
        return [None if column[0] is None else torch.stack(column) for column in zip(*each)]


def carried_by(model: Model) -> dict[str, tuple[str, ...]]:
    """The state entries of each recurrent layer, by the layer's name."""
    layers = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        return {}
    return {name: layer.memory for name, layer in layers.named_children() if isinstance(layer, Cell)}


def state_gradients(
    model: Model, tokens: Tensor, targets: Sequence[int | None], state: State | None
) -> dict[str, np.ndarray]:
    """‖∂L_t/∂h_s‖ of all recurrent states: {"layer/0/hidden": [T, T], …}; empty if no layer is recurrent.

    The text is read token by token, which changes no gradient (law 1) and gives access to each h_s.
    """
    names = [(layer, part) for layer, memory in carried_by(model).items() for part in memory]
    if not names:
        return {}
    carried: list[Tensor] = []  # step by step
    hidden: list[Tensor] = []
    logits: list[Tensor] = []
    for token in tokens.split(1, dim=1):
        predicted, state, parts = model.explain(token, state)
        from_here, predicted = predicting(model, predicted, parts)
        hidden.append(from_here)
        logits.append(predicted[0])
        carried += [state["past"][layer][part] for layer, part in names]
    losses = token_losses(torch.cat(logits), targets)
    columns = through_time(losses, hidden, carried, len(targets), "gradients of the state")
    steps = range(tokens.size(1))
    return {
        f"layer/{layer}/{part}": np.concatenate([columns[s * len(names) + n] for s in steps], axis=1)
        for n, (layer, part) in enumerate(names)
    }
