"""The slots of a beam search, in tensors of fixed shape: open hypotheses and ended ones.

    total(y, w) = total(y) + log softmax(z_y)_w,    of each source the W largest that there is a slot for

A closed slot has the total −∞ and is still computed, so every step runs the same operations, without synchronizing.
Each source counts its own steps, so it can start while others are in the middle. Decisions equal those of
`beam_search`; fast/kernels/beam_choice.py is the same in Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.decoding.beam import Hypothesis, extend


@dataclass(frozen=True)
class BeamConfig:
    """The parameters of a search, the same for all sources."""

    width: int
    eos: int
    n_best: int
    length_penalty: float = 0.0
    min_tokens: int = 0
    forbidden: tuple[int, ...] = ()


class Slots:
    """The hypotheses of N sources with W slots each: open ones, ended ones, and their words."""

    def __init__(self, sources: int, room: int, vocabulary: int, terms: BeamConfig, device: torch.device) -> None:
        self.terms, self.room = terms, room  # room: the most tokens of a hypothesis
        shape, ended = (sources, terms.width), (sources, terms.width + 1)  # one spare, for masked writes

        def numbers(shape: tuple[int, ...], value: float = 0, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full(shape, value, dtype=dtype, device=device)

        self.length = numbers((sources,))  # tokens written so far
        self.limit = numbers((sources,), 1)
        self.count = numbers((sources,))  # ended hypotheses
        self.going = numbers((sources,), dtype=torch.int8)
        self.damaged = numbers((sources,), dtype=torch.int8)  # a prediction was NaN
        self.total = numbers(shape, -torch.inf, torch.float64)  # of open hypotheses, best first; −∞: a closed slot
        self.parent, self.token = numbers(shape), numbers(shape)  # its slot in the step before, and its last token
        self.ended_total, self.ended_score = (numbers(ended, -torch.inf, torch.float64) for _ in range(2))
        self.ended_length = numbers(ended)
        self.ended_words = numbers((*ended, room), dtype=torch.int32)
        # Double-buffered, for kernels that read one and write the other.
        self.words = numbers((2, *shape, room), dtype=torch.int32)
        lengths = range(room + 2)
        self.worth = torch.tensor([max(n, 1) ** terms.length_penalty for n in lengths], dtype=torch.float64).to(device)
        self.forbidden = numbers((vocabulary,), dtype=torch.bool)
        self.forbidden[list(terms.forbidden)] = True
        self.own = torch.arange(terms.width, device=device)

    def fill(self, places: Tensor, limits: Tensor) -> None:
        """Starts these places again: one open slot, which reads the boundary next."""
        for counter in (self.length, self.count, self.damaged):
            counter[places] = 0
        self.limit[places] = limits
        self.going[places] = 1
        self.total[places] = torch.where(self.own == 0, 0.0, -torch.inf).double()
        self.parent[places] = self.own
        self.token[places] = self.terms.eos
        self.ended_total[places] = self.ended_score[places] = -torch.inf

    def choose(self, logits: Tensor) -> None:
        """Selects the next hypotheses from the logits [N · W, V]: `extend` and `Ended.take` of the reference."""
        terms, width = self.terms, self.terms.width
        length = (self.length + 1)[:, None]
        allowed = logits.masked_fill(self.forbidden, -torch.inf)
        early = (length < terms.min_tokens).repeat_interleave(width, 0)[:, 0]
        allowed[:, terms.eos] = allowed[:, terms.eos].masked_fill(early, -torch.inf)
        closed = (self.total == -torch.inf).view(-1, 1)  # its logits are undefined
        total, parent, token = extend(self.total, logits.masked_fill(closed, 0.0), allowed, width)  # best first
        self.damaged |= total.isnan().any(1)
        ends = token == terms.eos
        kept = (total > -torch.inf) & (self.own < width - self.count[:, None])  # the finished keep their slots
        last = kept & (ends | (length >= self.limit[:, None]))
        slot = (self.count[:, None] + last.cumsum(1) - 1).where(last, width)
        self.ended_total.scatter_(1, slot, total)
        self.ended_score.scatter_(1, slot, (total / self.worth[length]).where(ends, -torch.inf))
        self.ended_length.scatter_(1, slot, length.expand_as(slot))
        at, row = (length - 1)[..., None].expand(-1, width, 1), (-1, -1, self.room)
        words = self.words[0].gather(1, parent[..., None].expand(row)).scatter(2, at, token[..., None].int())
        self.ended_words.scatter_(1, slot[..., None].expand(row), words)
        self.count += last.sum(1)
        live = kept & ~last
        live = live & ~self._settled(total.where(live, -torch.inf).amax(1))[:, None]
        order = live.int().sort(dim=1, descending=True, stable=True).indices  # open slots first, in their order
        self.total.copy_(total.masked_fill(~live, -torch.inf).gather(1, order))
        self.parent.copy_(parent.gather(1, order))
        self.token.copy_(token.gather(1, order))
        self.words[0].copy_(words.gather(1, order[..., None].expand(row)))
        self.going.copy_(live.any(1))
        self.length.copy_(length[:, 0].clamp(max=self.room - 1))  # only a closed source would exceed it

    def _settled(self, best: Tensor) -> Tensor:
        """Sources whose best open hypothesis cannot overtake the n_best finished, even with P = 1 from here on."""
        furthest = self.limit if self.terms.length_penalty > 0 else self.length + 2
        worst = self.ended_score[:, : self.terms.width].topk(self.terms.n_best).values[:, -1]
        return worst >= best / self.worth[furthest]

    def best(self, places: Tensor) -> Callable[[], list[list[Hypothesis]]]:
        """Each source's hypotheses: the finished ones by score, then those cut off by score.

        The copy from the device is asynchronous; the returned function waits for it.
        """
        count, total, length = self.count[places, None], self.ended_total[places], self.ended_length[places]
        score, finished = total / self.worth[length], self.ended_score[places] > -torch.inf
        there = torch.arange(total.size(1), device=total.device) < count
        # two stable sorts: by score; then finished ones first, empty slots last
        order = score.masked_fill(~there, -torch.inf).sort(dim=1, descending=True, stable=True).indices
        kind = (finished.int() + 1).masked_fill(~there, 0).gather(1, order)
        order = order.gather(1, kind.sort(dim=1, descending=True, stable=True).indices)[:, : self.terms.n_best]
        damaged = self.damaged[places, None].expand_as(total)
        columns = torch.stack([part.double() for part in (damaged, there, length, total, score, finished)])
        found = fetch(
            self.ended_words[places].gather(1, order[..., None].expand(-1, -1, self.room)),
            columns.gather(2, order.expand(len(columns), -1, -1)),
        )
        return lambda: hypotheses(*found())


def fetch(*tensors: Tensor) -> Callable[[], list[Tensor]]:
    """Starts asynchronous copies to the CPU; the returned function waits for them."""
    if tensors[0].device.type == "cuda":
        copies = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, True) for part in tensors]
        arrived = torch.cuda.Event()
        arrived.record()

        def wait() -> list[Tensor]:
            arrived.synchronize()
            return copies

        return wait
    return lambda: list(tensors)


def hypotheses(words: Tensor, columns: Tensor) -> list[list[Hypothesis]]:
    """Builds hypotheses from words [n, b, room] and `columns`: damaged, present, length, total, score, ended."""
    damaged, *rest = columns.tolist()
    if any(map(any, damaged)):
        raise RegardError("The model's predictions are NaN: its weights are damaged; train it again.")
    return [
        [
            Hypothesis(tokens[: int(size)], log_probability, score, finished > 0)
            for tokens, real, size, log_probability, score, finished in zip(*source, strict=True)
            if real
        ]
        for source in zip(words.tolist(), *rest, strict=True)
    ]
