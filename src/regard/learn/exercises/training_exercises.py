"""Exercises on training: teacher forcing, clipping, label smoothing, warm-up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.loss import negative_log_likelihood
from regard.learn.exercises.grading import ExpectedOutput, Function, Grader, Mistake, RandomInputs
from regard.learn.exercises.small_models import RowsStep
from regard.training.optimizers import clip, learning_rate_at

# -- teacher forcing ---------------------------------------------------------------------------------------------------


def _sentences(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for _ in range(3):
        rows, columns, vocabulary = random.distinct(3, 3, 7)
        step = RowsStep(random, vocabulary)
        yield step, step.begin(rows), random.tokens(vocabulary, rows, columns), random.whole(0, vocabulary - 1)


def _forced(step: RowsStep, state: Any, targets: Tensor, bos: int) -> Tensor:
    tokens = torch.cat([torch.full_like(targets[:, :1], bos), targets[:, :-1]], dim=1)
    with torch.no_grad():
        return step.model.loss(tokens, targets, state)[0]


def _unforced(read: Function, carry: bool = True, ask: Function = lambda targets, t: targets[:, t]) -> Function:
    """A wrong loop: `read` chooses the input at step t from the targets, <bos> and the previous logits."""

    @torch.no_grad()
    def answer(step: RowsStep, state: Any, targets: Tensor, bos: int) -> Tensor:
        losses, first, logits = [], torch.full_like(targets[:, 0], bos), None
        for t in range(targets.size(1)):
            tokens = first if t == 0 and read is not _cheating else read(targets, first, logits, t)
            logits, new = step(tokens, state)
            state = new if carry else state
            losses.append(-logits.log_softmax(-1).gather(1, ask(targets, t)[:, None])[:, 0])
        return torch.stack(losses, dim=1)

    return answer


def _cheating(targets: Tensor, first: Tensor, logits: Any, t: int) -> Tensor:
    return targets[:, t]


def _right_word(targets: Tensor, first: Tensor, logits: Any, t: int) -> Tensor:
    return targets[:, t - 1]


teacher_forcing = Grader(
    own="systems/model.py: Model.loss, which reads all steps at once",
    cases=_sentences,
    answer=_forced,
    outputs=(ExpectedOutput("the loss", ("row", "step")),),
    mistakes=(
        Mistake("the decoder reads its own most probable word: that is generation, not training",
                _unforced(lambda targets, first, logits, t: logits.argmax(-1))),
        Mistake("the decoder reads the word that it must predict: step t must read y_{t-1}", _unforced(_cheating)),
        Mistake("the decoder reads <bos> at every step", _unforced(lambda targets, first, logits, t: first)),
        Mistake("the state is not carried: every step begins with the first one", _unforced(_right_word, carry=False)),
        Mistake("the state is not carried and the decoder reads the word that it must predict",
                _unforced(_cheating, carry=False)),
        Mistake("these are log P: the loss is their negative", lambda *given: -_forced(*given)),
        Mistake("these are probabilities P: the loss is −log P", lambda *given: (-_forced(*given)).exp()),
        Mistake("the steps come before the rows: stack them along dim=1", lambda *given: _forced(*given).T),
    ),
    differentiable=False,
)  # fmt: skip


# -- clipping ----------------------------------------------------------------------------------------------------------


def _some_gradients(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for share in (0.3, 2.0, 0.7):  # of the norm: too long, short enough, too long
        gradients = [random.normal(*random.distinct(2, 2, 5)), random.normal(3), 3 * random.normal(2, 2, 2)]
        norm = float(torch.cat([part.flatten() for part in gradients]).norm())
        yield gradients, share * norm


def _clipped(gradients: list[Tensor], most: float) -> list[Tensor]:
    weights = nn.ParameterList([nn.Parameter(torch.zeros_like(part)) for part in gradients])
    for weight, gradient in zip(weights, gradients):
        weight.grad = gradient.clone()
    no_optimizer: Any = None  # on a GPU it would take the factor along; making one takes seconds
    clip(weights, most, no_optimizer)
    return [weight.grad for weight in weights if weight.grad is not None]


def _norm(gradients: list[Tensor]) -> Tensor:
    return torch.stack([part.norm() for part in gradients]).norm()


gradient_clipping = Grader(
    own="training/optimizers.py: clip",
    cases=_some_gradients,
    answer=_clipped,
    outputs=(ExpectedOutput("the list", ("gradient",)),),
    mistakes=(
        Mistake("every tensor is clipped by its own norm, which changes the gradient's direction: use one "
        "norm for all tensors",
                lambda gs, c: [g * min(1.0, c / float(g.norm())) for g in gs]),
        Mistake("every entry is clipped on its own, which changes the gradient's direction: scale the whole vector",
                lambda gs, c: [g.clamp(-c, c) for g in gs]),
        Mistake("short gradients are made longer: where ‖g‖ ≤ c they must stay unchanged",
                lambda gs, c: [g * c / _norm(gs) for g in gs]),
        Mistake("the norm is the sum of the tensors' norms: it is the root of the sum of all squares",
                lambda gs, c: [g * min(1.0, c / float(sum(part.norm() for part in gs))) for g in gs]),
        Mistake("the square root is missing: this is ‖g‖², and the norm is ‖g‖",
                lambda gs, c: [g * (c / _norm(gs) ** 2 if _norm(gs) ** 2 > c else 1.0) for g in gs]),
        Mistake("the gradient is only divided by its norm: the factor c is missing",
                lambda gs, c: [g / _norm(gs) if _norm(gs) > c else g for g in gs]),
        Mistake("nothing is clipped", lambda gs, c: gs),
    ),
    tolerance=1e-5,  # Regard divides by ‖g‖ + 10⁻⁶, as PyTorch does
    differentiable=False,
)  # fmt: skip


# -- label smoothing ---------------------------------------------------------------------------------------------------


def _predictions(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for share in (0.1, random.uniform(0.2, 0.5), 0.0):
        rows, vocabulary = random.distinct(2, 3, 8)
        yield 2 * random.normal(rows, vocabulary), random.tokens(vocabulary, rows), share


def _mixed(mix: Function) -> Function:
    """A wrong loss, from −log P of all words, that of the target, and the share."""

    def answer(logits: Tensor, targets: Tensor, share: float) -> Tensor:
        nll = -logits.log_softmax(-1)
        return mix(nll, nll.gather(1, targets[:, None])[:, 0], share)

    return answer


label_smoothing = Grader(
    own="layers/loss.py: negative_log_likelihood",
    cases=_predictions,
    answer=lambda logits, targets, share: negative_log_likelihood(logits[None], targets[None], smoothing=share)[0],
    outputs=(ExpectedOutput("the loss", ("row",)),),
    mistakes=(
        Mistake("the target keeps all of its probability: (1 − ε) is missing",
                _mixed(lambda all, one, e: one + e * all.mean(-1))),
        Mistake("ε is spread over the V − 1 other words: here the target is among the V words",
                _mixed(lambda all, one, e: (1 - e) * one + e * (all.sum(-1) - one) / (all.size(-1) - 1))),
        Mistake("the share is not divided by V: take the mean over all words, not the sum",
                _mixed(lambda all, one, e: (1 - e) * one + e * all.sum(-1))),
        Mistake("ε and 1 − ε are exchanged", _mixed(lambda all, one, e: e * one + (1 - e) * all.mean(-1))),
        Mistake("nothing is smoothed: ε is not used", _mixed(lambda all, one, e: one)),
        Mistake("the part for all words is missing: only (1 − ε) · (−log P(target)) is left",
                _mixed(lambda all, one, e: (1 - e) * one)),
        Mistake("these are log P: the loss is their negative",
                _mixed(lambda all, one, e: -((1 - e) * one + e * all.mean(-1)))),
        Mistake("the losses are averaged: return one for each row",
                _mixed(lambda all, one, e: ((1 - e) * one + e * all.mean(-1)).mean())),
    ),
)  # fmt: skip


# -- warm-up -----------------------------------------------------------------------------------------------------------


def _steps(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for warmup in (4, random.whole(10, 50)):
        peak = random.uniform(0.001, 0.01)
        for step in (0, 1, warmup - 1, warmup, warmup + 1, 3 * warmup, random.whole(100, 1000)):
            yield step, peak, warmup


warm_up_schedule = Grader(
    own="training/optimizers.py: learning_rate_at",
    cases=_steps,
    answer=lambda step, peak, warmup: learning_rate_at("inverse-sqrt", peak, step, warmup, 0.0, 0),
    outputs=(ExpectedOutput("the rate"),),
    mistakes=(
        Mistake("the first step has rate 0 and learns nothing: step 0 is the first of the warm-up, (step + 1) / warmup",
                lambda s, p, w: p * s / w if s < w else p * math.sqrt(w / s)),
        Mistake("after the warm-up the rate does not fall", lambda s, p, w: p * min(1, (s + 1) / w)),
        Mistake("the rate falls as warmup / step: its square root is missing",
                lambda s, p, w: p * (s + 1) / w if s < w else p * w / s),
        Mistake("the rate falls as 1 / √step, and so jumps at the end of the warm-up: √(warmup / step)",
                lambda s, p, w: p * (s + 1) / w if s < w else p / math.sqrt(s)),
        Mistake("there is no warm-up", lambda s, p, w: p * math.sqrt(w / max(s, w))),
        Mistake("the peak is missing", lambda s, p, w: (s + 1) / w if s < w else math.sqrt(w / s)),
    ),
    differentiable=False,
)  # fmt: skip

GRADERS = {
    "teacher-forcing": teacher_forcing,
    "gradient-clipping": gradient_clipping,
    "label-smoothing": label_smoothing,
    "warm-up-schedule": warm_up_schedule,
}
