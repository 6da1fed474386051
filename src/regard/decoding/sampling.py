"""Choosing the next token from a distribution: the most probable one, or a draw.

    P'(w) ∝ P(w)^(1/temperature), over the `top_k` most probable words, the smallest set that holds `top_p`,
                                  and the words with at least `min_p` of the highest P' (Nguyen et al. 2024)

A draw inverts the cumulative distribution in the order of the vocabulary; only `top_p` sorts. Words as probable as the
last one of a set also belong to it. Each text has its own generator, keyed by (seed, its number), so it does not depend
on the rest of the batch. Penalties, biases and constraints depend on the text so far: see adjustments.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import check_range

BLOCK = 256  # words per partial sum; a draw searches only one block
MAX_REPETITION, MAX_PENALTY, MAX_BIAS = 10.0, 2.0, 100.0  # the last two are OpenAI's


@checked
@dataclass(frozen=True)
class Sampling:
    """The settings for choosing the next token.

    Attributes:
        temperature: The divisor of the logits; 0 always chooses the most probable token (greedy).
        top_k: Sample from this many of the most probable tokens; 0 means no limit.
        top_p: Sample from the smallest set of most probable tokens whose total probability reaches this value; 1 means
            no limit.
        min_p: Sample from tokens whose probability is at least this fraction of the highest one; 0 means no limit.
        repetition_penalty: Values above 1 make tokens of the prompt and the text less probable: positive logits are
            divided by it, negative ones multiplied by it (Keskar et al. 2019).
        presence_penalty: Subtracted from the logits of tokens that the text already contains, as in OpenAI's API.
        frequency_penalty: Subtracted once for each occurrence of the token in the text.
        logit_bias: Values to add to logits, by token id: {17: -100.0} forbids token 17.
        regex: The text must match this regular expression, and ends once it does. Give at most one of `regex`,
            `json_schema` and `choices`; they need `pip install "regard[constrain]"`.
        json_schema: The text must be JSON that fits this schema, given as JSON.
        choices: The text must be one of these strings.

    Raises:
        RegardError: If a value is of the wrong type or out of bounds.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    regex: str = ""
    json_schema: str = ""
    choices: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "logit_bias", FrozenBias(self.logit_bias))
        object.__setattr__(self, "choices", tuple(self.choices))
        if not 0 <= self.temperature < math.inf:
            raise RegardError(f"--temperature must be at least 0 (0 = greedy), not {self.temperature}.")
        if self.top_k < 0:
            raise RegardError(f"--top-k must be at least 0 (0 = no limit), not {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise RegardError(f"--top-p must be above 0 and at most 1, not {self.top_p}.")
        check_range("--min-p", self.min_p, 0, 1)
        if not 0 < self.repetition_penalty <= MAX_REPETITION:
            sentence = f"--repetition-penalty must be above 0 and at most {MAX_REPETITION} (1 = none), not"
            raise RegardError(f"{sentence} {self.repetition_penalty}.")
        for name in ("presence", "frequency"):
            check_range(f"--{name}-penalty", getattr(self, f"{name}_penalty"), -MAX_PENALTY, MAX_PENALTY)
        for value in self.logit_bias.values():
            check_range("--logit-bias", value, -MAX_BIAS, MAX_BIAS)
        if sum(map(bool, (self.regex, self.json_schema, self.choices))) > 1:
            raise RegardError("Only one constraint is allowed: give --regex, --json-schema or --choice.")

    @property
    def constrained(self) -> bool:
        """Whether a regular expression, a JSON schema or a list of choices restricts the text."""
        return bool(self.regex or self.json_schema or self.choices)

    @property
    def adjusts(self) -> bool:
        """Whether logits are modified before sampling, by penalties, biases or a constraint."""
        penalties = self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        return penalties or bool(self.logit_bias) or self.constrained


class FrozenBias(dict[int, float]):
    """A dictionary that can be part of a key; it is never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


GREEDY = Sampling(temperature=0.0)


def one_sampling(
    sampling: Sampling | None, temperature: float | None, top_k: int | None, top_p: float | None
) -> Sampling:
    """The Sampling given as such or by its fields; a field that is None has its default."""
    fields = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = {name: value for name, value in fields.items() if value is not None}
    if sampling is not None and given:
        raise RegardError(f"sampling and {next(iter(given))} both specify how to sample: give only one of them.")
    return sampling or Sampling(**given)  # type: ignore[arg-type]


def random_stream(seed: int, number: int, sample: int = 0) -> np.random.Generator:
    """The random generator of text `number`, or of one of its samples; independent of all other texts."""
    if not 0 <= seed < 2**63:
        raise RegardError(f"--seed must be at least 0 and below 2^63, not {seed}.")
    return np.random.Generator(np.random.Philox(key=[seed, number], counter=[0, 0, 0, sample]))


def uniforms(seed: int, rows: int) -> Iterator[Tensor]:
    """[rows] numbers in [0, 1) for each step, of the texts 0, 1, …"""
    streams = [random_stream(seed, row) for row in range(rows)]
    while True:
        yield torch.tensor([stream.random() for stream in streams], dtype=torch.float64)


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """logits [R, V], uniform [R] → the chosen tokens [R]; NaN predictions raise an error."""
    tokens, highest = sample_tokens(logits, sampling, uniform.to(logits.device))
    if not bool((highest < math.inf).all()):
        raise damaged()
    return tokens


def damaged() -> RegardError:
    return RegardError("The model's predictions are NaN: its weights are damaged; train it again.")


def sample_tokens(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen tokens [R] and the highest logits [R], which are not below infinity if a prediction is NaN. It never
    synchronizes, so a CUDA graph can record it."""
    if sampling.temperature == 0:
        highest, tokens = logits.max(-1)
        return tokens, highest
    highest = logits.amax(-1)
    return inverse_cdf(sampling_weights(logits, highest, sampling), uniform), highest


def sampling_weights(logits: Tensor, highest: Tensor, sampling: Sampling) -> Tensor:
    """Unnormalized sampling weights [R, V]: P^(1/temperature) for words that may be drawn, else 0."""
    least = least_logit(logits, highest, sampling)
    weights = weigh(logits, highest, sampling)
    return weights if least is None else weights.masked_fill_(logits < least, 0.0)


def sampling_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The probability [R, V] that each word is chosen; with temperature 0 it is 1 for the most probable word."""
    highest, best = logits.max(-1)
    if sampling.temperature == 0:
        return torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, best[:, None], 1.0)
    weights = sampling_weights(logits, highest, sampling)
    return weights / weights.sum(-1, keepdim=True)


def weigh(logits: Tensor, highest: Tensor, sampling: Sampling) -> Tensor:
    """P^(1/temperature) of logits [R, N], scaled so that the most probable word has 1: no temperature overflows."""
    return ((logits.double() - highest[:, None].double()) / sampling.temperature).exp_()


def least_logit(logits: Tensor, highest: Tensor, sampling: Sampling) -> Tensor | None:
    """The smallest logit that may be drawn [R, 1]; None = all may."""
    least = _least_by_rank(logits, highest, sampling)
    if not sampling.min_p:
        return least
    # P'(w) ≥ min_p max P'  ⟺  logit ≥ highest + temperature · log min_p
    share = (highest[:, None].double() + sampling.temperature * math.log(sampling.min_p)).to(logits.dtype)
    return share if least is None else torch.maximum(share, least)


def _least_by_rank(logits: Tensor, highest: Tensor, sampling: Sampling) -> Tensor | None:
    """The smallest logit that `top_k` and `top_p` leave [R, 1]; None = all."""
    few = min(sampling.top_k, logits.size(-1)) if sampling.top_k else 0
    if sampling.top_p == 1.0:
        return logits.topk(few).values[:, -1:] if few else None
    ordered = logits.topk(few).values if few else logits.sort(dim=-1, descending=True).values  # [R, N]
    weights = weigh(ordered, highest, sampling)
    cumulative = weights.cumsum(-1)
    before = cumulative - weights  # the weight of all more probable words
    kept = (before < sampling.top_p * cumulative[:, -1:]).sum(-1, keepdim=True).clamp(min=1)
    return ordered.gather(-1, kept - 1)


def inverse_cdf(weights: Tensor, uniform: Tensor) -> Tensor:
    """For each row the first word whose cumulative weight passes uniform · total: weights [R, V] ≥ 0, tokens [R].

    First finds its block, then its place there: a cumulative sum over all words would be slow.
    """
    rows, vocabulary = weights.shape
    block = min(BLOCK, vocabulary)
    blocks = F.pad(weights, (0, -vocabulary % block)).view(rows, -1, block)
    after = blocks.sum(-1).cumsum(-1)  # [R, N] the weight up to the end of each block
    drawn = uniform[:, None] * after[:, -1:]
    number = (after <= drawn).sum(-1, keepdim=True)
    number = torch.minimum(number, _last_positive(blocks.amax(-1)))  # u · total may round up to the total
    inside = blocks.gather(1, number[:, :, None].expand(-1, 1, block))[:, 0]  # [R, block]
    before = F.pad(after, (1, 0)).gather(1, number)
    place = (before + inside.cumsum(-1) <= drawn).sum(-1, keepdim=True)
    return (number * block + torch.minimum(place, _last_positive(inside)))[:, 0]


def _last_positive(weights: Tensor) -> Tensor:
    """The place of each row's last positive weight: [R, N] → [R, 1]."""
    places = torch.arange(weights.size(-1), device=weights.device)
    return places.where(weights > 0, 0).amax(-1, keepdim=True)


def mask_tokens(logits: Tensor, forbidden: Sequence[int]) -> Tensor:
    """Tokens that may be read but never written, such as <unk>, get probability 0."""
    if not forbidden:
        return logits
    return logits.index_fill(-1, torch.tensor(forbidden, device=logits.device), -torch.inf)
