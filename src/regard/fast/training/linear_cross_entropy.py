"""Cross-entropy fused with the output layer: the logits are computed a few rows at a time, never all at once.

    L = Σ_t −log softmax(W h_t + b)_{y_t}          ∂L/∂z_t = softmax(z_t) − y_t,   ∂L/∂h = ∂L/∂z W,   ∂L/∂W = ∂L/∂zᵀ h

The logits of 64 × 1024 tokens over 50,304 words are 13 GB in fp32, and their gradient as much again. But L is a scalar,
so the backward pass only scales its gradient, and the forward pass can already compute it: for each chunk of rows the
gradient takes the place of the logits, is multiplied by W and by h, and is discarded. With smoothing ε, y is 1 − ε of
the truth and ε/V of every word (Szegedy et al. 2016):

    −(1 − ε) log P(y) − ε/V Σ_v log P(v)           ∂/∂z_v = P(v) − (1 − ε) [v = y] − ε/V
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.fast.recurrence.padded_weights import PaddedWeight, padded_weight
from regard.fast.table import Row, Use, Why
from regard.layers.state import State, span_of
from regard.systems.model import Model, Stack
from regard.systems.nnlm import NNLM
from regard.systems.translator import Translator
from regard.training.objective import Objective, TensorBatch, count, real_targets

AT_ONCE = 1 << 20  # logits in memory at once on a CPU: as many as fit its cache
SHARE = 32  # on a GPU they take at most 1/SHARE of its memory: large products are faster there
ALIGNED = 64, 8  # on a GPU, words and components are padded to these multiples, as the fast kernels require


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    valid: Tensor | None = None,
    smoothing: float = 0.0,
    at_once: int | None = None,
) -> Tensor:
    """Σ −log P(target) for hidden [..., D] and targets [...], where valid [...]; also computes the gradient.

    Products are in autocast's precision, all else at least in fp32. At most `at_once` logits exist at a time, but a row
    at least.
    """
    kind = hidden.device.type
    if valid is not None and kind == "cpu":  # a GPU would wait until their number is known
        hidden, targets, valid = hidden[valid], targets[valid], None
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    targets = targets if valid is None else targets.where(valid, -1)
    at_once = at_once or room(hidden.device, dtype)
    held = padded_weight(weight) if dtype == torch.bfloat16 else None
    hidden = hidden if hidden.dim() in (2, 3) else hidden.flatten(0, -2)
    with torch.autocast(kind, enabled=False):
        total: Tensor = LinearCrossEntropy.apply(
            hidden, weight, bias, targets.flatten(), valid is not None, smoothing, dtype, at_once, held
        )
    return total


class LinearCrossEntropy(torch.autograd.Function):
    """For hidden [..., D], W [V, D], b [V] and targets [N]; if `masked`, rows with a target below 0 have loss 0.

    `held`: the padded W of a step that has it; its gradient is left there instead of returned.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        masked: bool,
        smoothing: float,
        dtype: torch.dtype,
        at_once: int,
        held: PaddedWeight | None = None,
    ) -> Tensor:
        below, behind = ALIGNED if hidden.is_cuda else (1, 1)
        h = aligned_rows(hidden, behind, dtype, fill=1.0)  # [N, D']
        w = aligned(weight, below, behind, dtype) if held is None else held.copy(below)  # [V', D']
        wide = torch.promote_types(dtype, torch.float32)
        parts = max(1, min(len(h), -(-len(h) * len(w) // at_once)))
        of_hidden, of_weight, of_bias = torch.empty_like(h), None, None
        # W's padding is zero and h's is one, so there (∂L/∂z)ᵀ h is the bias's gradient
        spare = h.size(1) > weight.size(1) and dtype.itemsize < 4
        costs = []
        for some, wanted, found in zip(h.chunk(parts), targets.chunk(parts), of_hidden.chunk(parts), strict=True):
            cost, gradient = rows_(some @ w.t(), bias, wanted, len(weight), smoothing, masked)  # gradient [n, V']
            costs.append(cost)
            torch.mm(gradient, w, out=found)
            of_weight = plus(of_weight, gradient, some, wide)
            if bias is not None and not spare:
                summed = over_rows(gradient, wide)[: len(weight)]
                of_bias = summed if of_bias is None else of_bias + summed
        if bias is not None and spare and of_weight is not None:
            of_bias = of_weight[: len(weight), weight.size(1)]
        ctx.save_for_backward(of_hidden, of_weight, of_bias)
        ctx.held = held
        ctx.like = [None if given is None else (given.shape, given.dtype) for given in (hidden, weight, bias)]
        return torch.cat(costs).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        (of_hidden, of_weight, of_bias), (like_hidden, like_weight, like_bias) = ctx.saved_tensors, ctx.like
        d_hidden = scaled(cut(of_hidden, (len(of_hidden), like_hidden[0][-1]), like_hidden[1]), above)
        d_weight = None
        if ctx.held is None:
            d_weight = scaled(cut(of_weight, *like_weight), above)
        else:
            ctx.held.put(of_weight, above)
        d_bias = None if of_bias is None else scaled(cut(of_bias, *like_bias), above)
        return d_hidden.view(like_hidden[0]), d_weight, d_bias, None, None, None, None, None, None


def plus(total: Tensor | None, gradient: Tensor, hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """total + gradientᵀ hidden; `dtype` of the total is at least fp32, because the sum is long."""
    if gradient.is_cuda and gradient.dtype != dtype:
        if total is None:
            return torch.mm(gradient.t(), hidden, out_dtype=dtype)
        return torch.addmm(total, gradient.t(), hidden, out_dtype=dtype, out=total)
    if total is None:
        return (gradient.t() @ hidden).to(dtype)
    return total.addmm_(gradient.t(), hidden) if gradient.dtype == dtype else total.add_(gradient.t() @ hidden)


def over_rows(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over rows [V'] of the gradient [n, V']."""
    if gradient.is_cuda and gradient.itemsize < 4 and fused() is not None:
        from regard.fast.kernels.block_norm import sum_rows

        return sum_rows(gradient)
    return gradient.sum(0, dtype=dtype)


def room(device: torch.device, dtype: torch.dtype) -> int:
    """How many logits may be in memory at once."""
    if device.type != "cuda":
        return AT_ONCE
    share = SHARE if fused() is not None else 8 * SHARE  # without the kernel there are fp32 copies
    return torch.cuda.get_device_properties(device).total_memory // (share * dtype.itemsize)


def aligned(matrix: Tensor, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """The matrix in `dtype`, padded with zeros to multiples of `rows` and `columns`."""
    below, behind = -matrix.size(0) % rows, -matrix.size(1) % columns
    matrix = matrix.detach().to(dtype)
    return F.pad(matrix, (0, behind, 0, below)) if below or behind else matrix


def aligned_rows(hidden: Tensor, columns: int, dtype: torch.dtype, fill: float = 0.0) -> Tensor:
    """Hidden vectors [..., D] as rows [N, D'] in `dtype`, padded with `fill` to a multiple of `columns`."""
    behind = -hidden.size(-1) % columns
    half = max(hidden.itemsize, dtype.itemsize) <= 4 and hidden.stride(-1) == 1
    if hidden.is_cuda and half and (behind or not hidden.is_contiguous()) and fused() is not None:
        from regard.fast.kernels.padded import padded

        return padded(hidden.detach(), dtype, columns, fill).flatten(0, -2)
    rows = hidden.detach().flatten(0, -2).to(dtype)
    return F.pad(rows, (0, behind), value=fill) if behind else rows


def cut(matrix: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The matrix without its padding."""
    return matrix[tuple(map(slice, shape))].to(dtype)


def scaled(matrix: Tensor, factor: Tensor) -> Tensor:
    if matrix.is_cuda and matrix.is_contiguous() and matrix.itemsize <= 4 and (kernel := fused()) is not None:
        found: Tensor = kernel.scaled(matrix, factor)
        return found
    return matrix * factor


def rows_(
    logits: Tensor, bias: Tensor | None, targets: Tensor, words: int, smoothing: float, masked: bool
) -> tuple[Tensor, Tensor]:
    """For logits [N, V'], whose first `words` columns are real: the loss of each row, and its gradient, for which the
    logits may be overwritten."""
    if logits.is_cuda and (kernel := fused()) is not None:
        return kernel.rows_(logits, bias, targets, words, smoothing), logits
    return written_rows_(logits, bias, targets, words, smoothing, masked)


def written_rows_(
    logits: Tensor, bias: Tensor | None, targets: Tensor, words: int, smoothing: float, masked: bool
) -> tuple[Tensor, Tensor]:
    """`rows_` in plain PyTorch, with one exponential for each logit:

    −log P(y) = (max z − z_y) − log max P        two terms that are not negative, so no digits are lost
    """
    real = logits[:, :words]
    z = real.to(torch.promote_types(logits.dtype, torch.float32))  # bf16 has too few digits for a sum over V
    z = z if bias is None else z.add_(bias)  # z is a copy, or the logits, which may be overwritten
    index = targets.clamp(min=0)[:, None]
    peak, gradient = z.amax(dim=-1), z.softmax(dim=-1)
    costs = (1.0 - smoothing) * (peak - z.gather(1, index)[:, 0]) - gradient.amax(dim=-1).log()
    if smoothing:
        costs += smoothing * (peak - z.mean(dim=-1))
        gradient -= smoothing / words
    gradient.scatter_add_(1, index, gradient.new_full((1, 1), smoothing - 1.0).expand_as(index))
    if masked:
        gradient.mul_((targets >= 0)[:, None])
        costs = costs.where(targets >= 0, 0.0)
    if gradient.shape == logits.shape and gradient.dtype == logits.dtype:
        return costs, gradient
    real.copy_(gradient)
    logits[:, words:] = 0.0
    return costs, logits


def fused() -> Any:
    """The kernel, if Triton is installed."""
    try:
        from regard.fast.kernels import cross_entropy as kernel
    except ImportError:
        return None
    return kernel


# -- in the objective ------------------------------------------------------------------------------------------------


def is_linear(model: Model) -> bool:
    """True if `predict` and the loss are the known ones: no subclass changed them, and the matrix is not sharded."""
    known = type(model).predict in (Stack.predict, Translator.predict, NNLM.predict) and type(model).loss is Model.loss
    return known and not hasattr(model.output.of(model.embedding.table.weight)[0], "full_tensor")  # type: ignore[union-attr, operator]


def linear_prediction(model: Model) -> tuple[Tensor, Tensor | None]:
    """The matrix [V, D] and bias of `predict`."""
    assert isinstance(model, Stack | Translator)
    matrix, bias = model.output.of(model.embedding.table.weight)
    if isinstance(model, NNLM) and model.direct is not None:
        matrix = torch.cat([matrix, model.direct.weight], dim=1)  # b + U tanh(…) + W x is one map of [tanh(…) ; x]
    return matrix, bias


def text_loss(objective: Objective, batch: TensorBatch, state: State | None) -> tuple[Tensor, int | Tensor, State]:
    model, linear = objective.model, linear_prediction(objective.model)
    hidden, state = model.read(batch.tokens, objective.initial_state(batch, state), batch.lengths)
    valid = span_of(state["seen"], batch.lengths).valid(batch.tokens.size(1))
    learned = valid if batch.counted is None else batch.counted if valid is None else valid & batch.counted
    loss = linear_cross_entropy(hidden, *linear, batch.targets, valid=learned)
    if model.training and (more := model.auxiliary_loss(hidden)) is not None:
        loss = loss + (more if valid is None else more.where(valid, 0.0)).sum()
    return loss, count(batch), state


def pair_loss(objective: Objective, batch: TensorBatch) -> tuple[Tensor, int | Tensor, State]:
    model, linear = objective.model, linear_prediction(objective.model)
    valid = real_targets(batch)
    hidden, state = model.read(batch.tokens, model.begin(batch.source, batch.source_lengths))
    loss = linear_cross_entropy(hidden, *linear, batch.targets, valid=valid, smoothing=objective.smoothing)
    return loss, valid.sum(), state


def fits(objective: Objective, *arguments: object) -> bool:
    return is_linear(objective.model)


def allows_pairs(objective: Objective, use: Use) -> Why:
    return "R-Drop needs the logits themselves" if objective.consistency else None


ROWS = (
    Row("loss of text without its logits", "regard.training.objective:Objective.text", text_loss, fits=fits),
    Row(
        "loss of pairs without their logits",
        "regard.training.objective:Objective.pairs",
        pair_loss,
        fits=fits,
        allows=allows_pairs,
    ),
)
