"""Exercises on decoding: greedy, beam search, temperature and top-k, the nucleus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam import extend
from regard.decoding.generate import generate
from regard.decoding.sampling import GREEDY, Sampling, sampling_probabilities
from regard.learn.exercises.grading import ExpectedOutput, Function, Grader, Mistake, RandomInputs
from regard.learn.exercises.small_models import OneStep

# -- greedy ------------------------------------------------------------------------------------------------------------


def _greedy(step: OneStep, state: Any, bos: int, eos: int, limit: int) -> list[int]:
    written = generate(step.model, [[bos]], max_tokens=limit, eos=eos, sampling=GREEDY, lines=1)
    return [token for (token,) in written if token is not None]


def _prompts(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    """Three texts: one that ends in <eos>, one that the limit ends, and one that <eos> ends at the limit."""
    for kind in ("ends", "is cut", "both"):
        while True:
            step, bos = OneStep(random, 12), random.whole(0, 11)
            line = _greedy(step, None, bos, eos=-1, limit=10)
            late = [token for place, token in enumerate(line) if place > 2 and line.index(token) == place]
            if len(set(line)) > 4 and late and bos not in line[:3]:
                break
        eos, end = late[0], line.index(late[0]) + 1
        limit = {"ends": 10, "is cut": end - 1, "both": end}[kind]
        yield step, step.begin(1), bos, eos, limit


def _loop(
    read: Function = lambda token, bos: token, carry: bool = True, stop: bool = True, keep: bool = True, more: int = 0,
    choose: Function = lambda logits: int(logits.argmax()), first: bool = False,
) -> Function:  # fmt: skip
    """A wrong loop, in one way or another."""

    def answer(step: OneStep, state: Any, bos: int, eos: int, limit: int) -> list[int]:
        token, line = bos, [bos] if first else []
        for _ in range(limit + more):
            logits, new = step(read(token, bos), state)
            state = new if carry else state
            token = choose(logits)
            if token == eos and stop and not keep:
                break
            line.append(token)
            if token == eos and stop:
                break
        return line

    return answer


greedy_decoding = Grader(
    own="decoding/generate.py: generate",
    cases=_prompts,
    answer=_greedy,
    outputs=(ExpectedOutput("the text", ("token",)),),
    mistakes=(
        Mistake("it does not stop at <eos>", _loop(stop=False)),
        Mistake("<eos> is dropped: the text must contain it", _loop(keep=False)),
        Mistake("the state is not carried: every step begins with the first one", _loop(carry=False)),
        Mistake("it reads <bos> at every step: it must read the token that it has just written",
                _loop(read=lambda token, bos: bos)),
        Mistake("it reads <bos> at every step and does not carry the state",
                _loop(read=lambda token, bos: bos, carry=False)),
        Mistake("it writes one token too many: `limit` is the maximum", _loop(more=1)),
        Mistake("it writes one token too few: `limit` tokens may be written", _loop(more=-1)),
        Mistake("the text starts with <bos>, which is read, not written", _loop(first=True)),
        Mistake("it takes the least probable token", _loop(choose=lambda logits: int(logits.argmin()))),
    ),
    differentiable=False,
)  # fmt: skip


# -- beam search -------------------------------------------------------------------------------------------------------


def _beams(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for hypotheses in (1, 3, random.whole(2, 4)):
        vocabulary = random.whole(5, 7)
        scores = -3 * random.normal(hypotheses).abs()
        yield scores, random.normal(hypotheses, vocabulary).log_softmax(-1), random.whole(3, 4)
    yield random.normal(3), random.normal(3, 5).log_softmax(-1), 1


def _extended(scores: Tensor, log_probabilities: Tensor, width: int) -> tuple[Tensor, ...]:
    total, parents, tokens = extend(scores[None], log_probabilities, log_probabilities, width)
    return total[0], parents[0], tokens[0]


def _best(candidates: Tensor, width: int, largest: bool = True) -> tuple[Tensor, ...]:
    scores, places = candidates.flatten().topk(width, largest=largest)
    return scores, places // candidates.size(1), places % candidates.size(1)


def _best_of_each(scores: Tensor, step: Tensor, width: int) -> tuple[Tensor, ...]:
    """One extension of each hypothesis, not the best of all."""
    best, tokens = (scores[:, None] + step).max(-1)
    best, order = best.sort(descending=True)
    return best[:width], order[:width], tokens[order][:width]


def _unsorted(scores: Tensor, step: Tensor, width: int) -> tuple[Tensor, ...]:
    total, parents, tokens = _extended(scores, step, width)
    return total.flip(0), parents.flip(0), tokens.flip(0)


def _swapped(scores: Tensor, step: Tensor, width: int) -> tuple[Tensor, ...]:
    total, parents, tokens = _extended(scores, step, width)
    return total, tokens, parents


beam_step = Grader(
    own="decoding/beam.py: extend",
    cases=_beams,
    answer=_extended,
    outputs=(
        ExpectedOutput("the score", ("candidate",)),
        ExpectedOutput("the hypothesis", ("candidate",)),
        ExpectedOutput("the token", ("candidate",)),
    ),
    mistakes=(
        Mistake("the scores so far are not added: a candidate's score is that of its whole prefix",
                lambda s, p, w: _best(p, w)),
        Mistake("each hypothesis keeps one extension: the best candidates may all extend the same one", _best_of_each),
        Mistake("the scores are multiplied: logarithms are added", lambda s, p, w: _best(s[:, None] * p, w)),
        Mistake("these are the worst candidates", lambda s, p, w: _best(s[:, None] + p, w, largest=False)),
        Mistake("the best candidate comes last, but must come first", _unsorted),
        Mistake("hypotheses and tokens are returned in the wrong order", _swapped),
        Mistake("probabilities are added to log-probabilities", lambda s, p, w: _best(s[:, None] + p.exp(), w)),
        Mistake("the score returned is that of the last token, not of the whole prefix",
                lambda s, p, w: (p[_extended(s, p, w)[1], _extended(s, p, w)[2]], *_extended(s, p, w)[1:])),
    ),
    differentiable=False,
)  # fmt: skip


# -- temperature, top-k, top-p -----------------------------------------------------------------------------------------


def _logits(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for temperature in (1.0, random.uniform(0.3, 0.8), random.uniform(1.5, 3.0)):
        rows, vocabulary = random.whole(2, 3), random.whole(6, 9)
        yield 2 * random.normal(rows, vocabulary), temperature, random.whole(2, 4)
    yield 2 * random.normal(2, 5), 0.7, 5


def _kept(logits: Tensor, k: int, largest: bool = True) -> Tensor:
    places = logits.topk(k, largest=largest).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, True)


temperature_top_k = Grader(
    own="decoding/sampling.py: sampling_probabilities",
    cases=_logits,
    answer=lambda logits, temperature, k: sampling_probabilities(logits, Sampling(temperature, top_k=k)),
    outputs=(ExpectedOutput("the probability", ("row", "word")),),
    mistakes=(
        Mistake("the logits are multiplied by the temperature: divide, and a low one makes it sharper",
                lambda z, t, k: (z * t).masked_fill(~_kept(z, k), -torch.inf).softmax(-1)),
        Mistake("the k words' probabilities do not sum to 1: the others are set to 0 after the softmax",
                lambda z, t, k: (z / t).softmax(-1).masked_fill(~_kept(z, k), 0.0)),
        Mistake("the other words keep some probability: their logits are set to 0 not to −∞",
                lambda z, t, k: (z / t).masked_fill(~_kept(z, k), 0.0).softmax(-1)),
        Mistake("the temperature is not used", lambda z, t, k: z.masked_fill(~_kept(z, k), -torch.inf).softmax(-1)),
        Mistake("all words may be drawn: k is not used", lambda z, t, k: (z / t).softmax(-1)),
        Mistake("the k least probable words are kept",
                lambda z, t, k: (z / t).masked_fill(~_kept(z, k, False), -torch.inf).softmax(-1)),
        Mistake("the probabilities are divided by the temperature, and the logits must be",
                lambda z, t, k: z.masked_fill(~_kept(z, k), -torch.inf).softmax(-1) / t),
        Mistake("the softmax runs over the rows, but must run over the words",
                lambda z, t, k: (z / t).masked_fill(~_kept(z, k), -torch.inf).softmax(0)),
    ),
    differentiable=False,
)  # fmt: skip


def _distributions(random: RandomInputs) -> Iterator[tuple[Any, ...]]:
    for low, high in ((0.3, 0.6), (0.6, 0.9), (0.9, 0.95), (0.01, 0.05)):
        yield (1.5 * random.normal(random.whole(6, 9))).softmax(-1), random.uniform(low, high)


def _cut(keep: Function, share: bool = True, back: bool = True) -> Function:
    """A wrong nucleus: `keep` of the sorted probabilities, their sums up to each word, and p."""

    def answer(probabilities: Tensor, p: float) -> Tensor:
        ordered, places = probabilities.sort(descending=True)
        chosen = ordered.where(keep(ordered, ordered.cumsum(0), p), 0.0)
        chosen = chosen / chosen.sum() if share else chosen
        return torch.zeros_like(chosen).scatter(0, places, chosen) if back else chosen

    return answer


def _nucleus_words(ordered: Tensor, so_far: Tensor, p: float) -> Tensor:
    return so_far - ordered < p


def _smallest_first(probabilities: Tensor, p: float) -> Tensor:
    ordered, places = probabilities.sort()
    chosen = ordered.where(ordered.cumsum(0) - ordered < p, 0.0)
    return torch.zeros_like(chosen).scatter(0, places, chosen / chosen.sum())


nucleus_sampling = Grader(
    own="decoding/sampling.py: least_logit",
    cases=_distributions,
    answer=lambda probabilities, p: sampling_probabilities(probabilities.log()[None], Sampling(top_p=p))[0],
    outputs=(ExpectedOutput("the probability", ("word",)),),
    mistakes=(
        Mistake("the word with which the sum reaches p is left out", _cut(lambda o, c, p: c <= p)),
        Mistake("the word with which the sum reaches p is left out, unless it is the first",
                _cut(lambda o, c, p: (c <= p) | (torch.arange(len(o)) == 0))),
        Mistake("the nucleus's probabilities do not sum to 1: divide them by their sum",
                _cut(_nucleus_words, share=False)),
        Mistake("the words come in the order of their probability, not of the vocabulary",
                _cut(_nucleus_words, back=False)),
        Mistake("words are kept whose own probability is at least p", _cut(lambda o, c, p: o >= p)),
        Mistake("the sum begins with the least probable words", _smallest_first),
        Mistake("one word too many is kept, after the sum has reached p",
                _cut(lambda o, c, p: torch.arange(len(o)) <= (c - o < p).sum())),
        Mistake("nothing is cut off", lambda probabilities, p: probabilities),
    ),
    differentiable=False,
)  # fmt: skip

GRADERS = {
    "greedy-decoding": greedy_decoding,
    "beam-search": beam_step,
    "temperature-top-k": temperature_top_k,
    "nucleus-sampling": nucleus_sampling,
}
