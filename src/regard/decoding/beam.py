"""Beam search: keep the `width` most probable hypotheses, extend each by every word, keep the best again.

    score(y) = Σ_t log P(y_t | y_<t) / |y|^length_penalty          |y| counts <eos>

There are `width` slots (Graves 2012; Sutskever et al. 2014). A hypothesis that ends with <eos> keeps its slot, so fewer
slots stay open, and width 1 is greedy. The search for a source ends when no slot is open, or when no open hypothesis
can overtake the `n_best` finished ones, since a log-probability only falls; the source then leaves the batch. Each step
processes all sources and slots at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.layers.state import State, map_state, select_rows
from regard.systems.model import Model

WIDEST = 10_000  # slots; far beyond any useful width
IMPOSSIBLE = -1e30  # below this a log probability counts as log 0 (n-gram models have a finite one)
STEPS_BETWEEN_LOOKS = {
    "cpu": 1,
    "cuda": 8,
}  # steps between the host's checks for finished sources, which synchronize a GPU
WATCHED = 3  # times the width: how many candidates of each step `watch` gets
LEAVE_TOGETHER = 8  # finished sources leave when they are 1/8 of the batch: removing copies the memory of the rest


@checked
@dataclass(frozen=True)
class Beam:
    """The settings of a beam search. Lengths include `<eos>`.

    Attributes:
        width: The number of hypotheses kept at each step; 1 is greedy search.
        length_penalty: The exponent p in log P / length^p, the score of a hypothesis; 0 favors short texts.
        n_best: The number of hypotheses to return, at most `width`.

    Raises:
        RegardError: If a value is of the wrong type or out of bounds.
    """

    width: int = 5
    length_penalty: float = 1.0
    n_best: int = 1

    def __post_init__(self) -> None:
        check_range("--beam", self.width, 1, WIDEST)
        if not 1 <= self.n_best <= self.width:
            raise RegardError(f"--n-best must be at least 1 and at most --beam {self.width}, not {self.n_best}.")
        if not -10 <= self.length_penalty <= 10:
            raise RegardError(f"--length-penalty must be between -10 and 10, not {self.length_penalty}.")


BEAM = Beam()
GREEDY_BEAM = Beam(width=1, length_penalty=0.0)


@dataclass(frozen=True)
class Hypothesis:
    tokens: list[int]  # ends in <eos> unless cut off at the limit
    log_probability: float  # of these tokens, in the model's unrestricted distribution
    score: float
    finished: bool = True

    @property
    def text_tokens(self) -> list[int]:
        """Without the closing <eos>."""
        return self.tokens[:-1] if self.finished else self.tokens


class Step(NamedTuple):
    """The candidates of a step, [N, C] for the open sources, best first; −∞ where there is none.

    The live ones are the next step's parents, numbered in this order.
    """

    places: Tensor  # [N] which source each row is
    total: Tensor  # log-probability of the whole hypothesis
    parents: Tensor  # which live candidate of the step before it extends
    tokens: Tensor
    kept: Tensor  # has a slot; the others are pruned
    live: Tensor  # kept, and not ended


@torch.no_grad()
def beam_search(
    model: Model,
    logits: Tensor,
    state: State,
    *,
    width: int,
    max_tokens: int | Tensor,
    eos: int,
    forbidden: Sequence[int] = (),
    length_penalty: float = 0.0,
    n_best: int | None = None,
    min_tokens: int = 0,
    watch: Callable[[Step], object] | None = None,
) -> list[list[Hypothesis]]:
    """`logits` [N, V] and `state` (N rows) are those after the prompts; returns each row's hypotheses, best first.

    `max_tokens` is one limit or one per row [N]. Hypotheses cut off there come after all that ended. Log-probabilities
    are sums in fp64 of log-softmaxes in the model's precision, at least fp32. `watch` is called with every step, and
    does not change the result.
    """
    limits = torch.as_tensor(max_tokens, device=logits.device).expand(len(logits))
    ended = Ended(len(logits), width, limits, length_penalty, n_best or width)
    places = torch.arange(len(logits), device=logits.device)  # number of each open source
    total = torch.zeros(len(logits), 1, dtype=torch.float64, device=logits.device)  # [N, slots]
    written = places.new_zeros(len(logits), 1, 0)  # [N, slots, tokens so far]
    masks = [mask_of(banned, logits) for banned in (forbidden, [*forbidden, eos])]
    for length in range(1, ended.longest + 1):
        shown = width if watch is None else WATCHED * width
        total, parents, tokens = extend(total, logits, allowed(logits, masks[length < min_tokens]), shown)
        written = torch.cat([written.gather(1, parents[..., None].expand(-1, -1, length - 1)), tokens[..., None]], -1)
        kept, live = ended.take(places, total, written, tokens == eos)  # [N, slots]
        if watch is not None:
            watch(Step(places, total, parents, tokens, kept, live))
        look = length % STEPS_BETWEEN_LOOKS.get(logits.device.type, 8) == 0
        slots, stay = _look(live) if look else (live.size(1), None)
        if slots == 0:
            break
        # open slots first, in their order; closed ones remain only as padding
        order = live.int().sort(dim=1, descending=True, stable=True).indices[:, :slots]
        total = total.masked_fill(~live, -torch.inf).gather(1, order)
        written = written.gather(1, order[..., None].expand(-1, -1, length))
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        origin = parents + logits.size(0) // len(places) * torch.arange(len(places), device=logits.device)[:, None]
        if stay is not None:
            total, written, tokens, origin, places = (x[stay] for x in (total, written, tokens, origin, places))
            state = select_memory(state, stay)
        if stay is not None or width > 1 or watch is not None:
            state = select_rows(state, origin.flatten())
        hidden, state = model.read(tokens.view(-1, 1), state)
        logits = model.predict(hidden[:, 0])
    return ended.best()


def mask_of(tokens: Sequence[int], logits: Tensor) -> Tensor | None:
    """Mask [V] of these tokens on the device of the logits; made once, because copying to a GPU synchronizes."""
    if not tokens:
        return None
    return torch.zeros(logits.size(-1), dtype=torch.bool).index_fill(0, torch.tensor(tokens), True).to(logits.device)


def allowed(logits: Tensor, banned: Tensor | None) -> Tensor:
    """The logits, with −∞ for banned tokens."""
    return logits if banned is None else logits.masked_fill(banned, -torch.inf)


def extend(total: Tensor, logits: Tensor, allowed: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best extensions of total [N, K] by one token, best first: totals, slots and tokens [N, C].

    Tokens that are not allowed (−∞) are never chosen, but stay in the softmax. Only the `count` best tokens of a slot
    can be among the best of all. Ties go to the lower slot, then to the lower token.
    """
    exact = torch.promote_types(logits.dtype, torch.float32)
    tokens = largest(allowed, min(count, logits.size(-1)))  # [N · K, c]
    step = logits.to(exact).log_softmax(-1).gather(-1, tokens).double()
    step = step.masked_fill((allowed.gather(-1, tokens) == -torch.inf) | (step < IMPOSSIBLE), -torch.inf)
    candidates = total[..., None] + step.view(*total.shape, -1)  # [N, K, c]
    best, order = candidates.flatten(1).sort(dim=-1, descending=True, stable=True)
    order = order[:, :count]
    return best[:, :count], order // candidates.size(-1), tokens.reshape(len(total), -1).gather(1, order)


def largest(logits: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest of each row [R, V], largest first; ties go to the lower index, as in argmax.

    `topk` does not guarantee an order among ties, so they are resolved here.
    """
    if count == 1:
        return logits.argmax(-1, keepdim=True)
    values, places = logits.topk(min(count + 1, logits.size(-1)))
    if logits.device.type == "cpu" and not bool((values[:, 1:] == values[:, :-1]).any()):
        return places[:, :count]
    least = values[:, count - 1 : count]
    above, equal = logits > least, logits == least
    chosen = above | (equal & (equal.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
    places = logits.masked_fill(~chosen, -torch.inf).topk(count).indices.sort(-1).values
    order = logits.gather(-1, places).sort(dim=-1, descending=True, stable=True).indices
    return places.gather(-1, order)


def select_memory(state: State, sources: Tensor) -> State:
    """The state with only these sources' memories; `select_rows` chooses the rows."""
    if "source" not in state:
        return state
    return {**state, "source": map_state(lambda leaf: leaf[sources], state["source"])}


def _look(live: Tensor) -> tuple[int, Tensor | None]:
    """The most open slots of any source, and which sources stay, or None if too few are done."""
    counts = live.sum(1)
    stay = counts.nonzero()[:, 0]
    gone = len(live) - len(stay)
    return int(counts.max()), stay if gone * LEAVE_TOGETHER >= len(live) and gone else None


class Ended:
    """The ended hypotheses: up to `width` for each of N sources, and one spare slot for masked writes."""

    def __init__(self, sources: int, width: int, limits: Tensor, length_penalty: float, n_best: int) -> None:
        self.width, self.limits, self.length_penalty, self.n_best = width, limits, length_penalty, n_best
        self.longest = int(limits.max()) if sources else 0
        self.count = torch.zeros(sources, dtype=torch.int64, device=limits.device)
        self.total = torch.full((sources, width + 1), -torch.inf, dtype=torch.float64, device=limits.device)
        self.score = self.total.clone()  # −∞ for those cut off at the limit
        self.length = torch.zeros_like(self.total, dtype=torch.int64)
        self.tokens = self.length.new_zeros(sources, width + 1, self.longest)
        self.damaged = torch.zeros((), dtype=torch.bool, device=limits.device)  # a prediction was NaN

    def take(self, places: Tensor, total: Tensor, written: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the candidates [N, C], best first, of the sources `places` that end here. Returns which candidates
        have a slot, and which of these are still open."""
        length = written.size(-1)
        self.damaged |= total.isnan().any()
        possible = total > -torch.inf
        ranks = torch.arange(total.size(1), device=total.device)
        kept = possible & (ranks < self.width - self.count[places, None])  # the finished keep their slots
        last = kept & (ends | (length >= self.limits[places, None]))
        slot = (self.count[places, None] + last.cumsum(1) - 1).where(last, self.width)
        self.total[places[:, None], slot] = total
        self.score[places[:, None], slot] = (total / length**self.length_penalty).where(ends, -torch.inf)
        self.length[places[:, None], slot] = length
        self.tokens[places[:, None], slot, :length] = written
        self.count[places] += last.sum(1)
        live = kept & ~last
        return kept, live & ~self._settled(places, total.where(live, -torch.inf).amax(1), length)[:, None]

    def _settled(self, places: Tensor, best: Tensor, length: int) -> Tensor:
        """Sources whose best open hypothesis cannot overtake the n_best finished, even with P = 1 from here on."""
        penalty = self.length_penalty
        longest = self.limits[places].double() if penalty > 0 else torch.full_like(best, length + 1)
        worst = self.score[places, : self.width].topk(self.n_best).values[:, -1]
        return worst >= best / longest**penalty

    def best(self) -> list[list[Hypothesis]]:
        """Each source's hypotheses: the finished ones by score, then those cut off by score."""
        if bool(self.damaged):
            raise RegardError("The model's predictions are NaN: its weights are damaged; train it again.")
        columns = (self.count, self.tokens, self.length, self.total, self.score)
        found = []
        for count, tokens, lengths, totals, scores in zip(*(column.tolist() for column in columns)):
            hypotheses = []
            for words, length, total, score in zip(tokens[:count], lengths, totals, scores):
                finished = score > -torch.inf
                score = score if finished else total / length**self.length_penalty
                hypotheses.append(Hypothesis(words[:length], total, score, finished))
            hypotheses.sort(key=lambda hypothesis: (not hypothesis.finished, -hypothesis.score))
            found.append(hypotheses[: self.n_best])
        return found
