"""Logits that depend on the text so far: biases, penalties for repetition, and constraints.

    l'(w) = l(w) + bias(w)                                                      OpenAI's logit_bias
    l'(w) = l'(w) / r  if l'(w) > 0, else r · l'(w)     for w in prompt or text   Keskar et al. 2019 (CTRL)
    l'(w) = l'(w) − frequency · n(w) − presence · [n(w) > 0]      n(w): how often the text contains w (OpenAI)
    l'(w) = −∞                                          for w that no allowed text continues with (constraints.py)

The order is that of vLLM and of Hugging Face's `generate`. Temperature, top_k, top_p and min_p follow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.decoding.constraints import Guide
from regard.decoding.sampling import Sampling


class Adjustment:
    """The adjustments of one text; `add` records the generated tokens."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], guide: Guide | None = None) -> None:
        """`guide`: what the constraint of `sampling` allows, from the beginning of a text."""
        if sampling.constrained and guide is None:
            raise RegardError("Constraints apply only to language models: leave the constraint out.")
        self.sampling, self.guide = sampling, guide
        self.read, self.counts = set(prompt), Counter[int]()

    def add(self, *tokens: int) -> None:
        self.counts.update(tokens)
        if self.guide is not None:
            for token in tokens:
                self.guide.add(token)

    def __call__(self, logits: Tensor) -> Tensor:
        """The logits [V] of the next token, adjusted."""
        how, logits = self.sampling, logits.clone()
        if how.logit_bias:
            tokens = [token for token in how.logit_bias if 0 <= token < len(logits)]
            logits[tokens] += logits.new_tensor([how.logit_bias[token] for token in tokens])
        if how.repetition_penalty != 1 and (known := [*self.read.union(self.counts)]):
            found = logits[known]
            logits[known] = torch.where(found > 0, found / how.repetition_penalty, found * how.repetition_penalty)
        if self.counts and (how.frequency_penalty or how.presence_penalty):
            times = logits.new_tensor([*self.counts.values()])
            logits[[*self.counts]] -= how.frequency_penalty * times + how.presence_penalty
        if self.guide is not None:
            logits.masked_fill_(~self.guide.allowed().to(logits.device), -math.inf)
        return logits
