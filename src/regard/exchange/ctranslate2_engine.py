"""CTranslate2 as the search engine of a translator: `regard translate RUN --engine ctranslate2`.

    score(y) = log P(y) / |y|^length_penalty,      |y| counts <eos>: in both

Its limits count tokens without <eos>, Regard's with it. There are two more differences, which no option changes.
CTranslate2 fills the slot of a finished hypothesis with the next best one, and stops after `width` hypotheses have
finished; in Regard a finished hypothesis keeps its slot. CTranslate2 also removes a forbidden token from the softmax;
Regard keeps it there. With one hypothesis and no forbidden token, both are the same greedy search.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from tokenizers import Tokenizer as Engine

from regard.decoding.beam import Hypothesis
from regard.decoding.beam_slots import BeamConfig
from regard.text.tokenizers.tokenizer import Tokenizer

BATCH_TOKENS = 2048  # tokens of sources that are searched together


def symbols(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary by id, as tokenizer.json spells it."""
    vocabulary = Engine.from_str(tokenizer.json).get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


class CTranslate2Engine:
    """Searches like `decoding.beam_engine.BeamEngine`, with an exported model."""

    def __init__(self, folder: Path, source: list[str], target: list[str]) -> None:
        """A folder that `--to ctranslate2` wrote, and its vocabularies by id."""
        self.source, self.target = source, target
        self.ids = {symbol: number for number, symbol in enumerate(target)}
        workers = torch.get_num_threads()
        self.translator = ctranslate2.Translator(str(folder), device="cpu", inter_threads=workers, intra_threads=1)
        torch.set_num_threads(workers)  # it changes the number for everything that uses OpenMP in this thread

    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], terms: BeamConfig
    ) -> list[list[Hypothesis]]:
        """For each source (with <eos>) its hypotheses of at most `limits` tokens, best first."""
        how: dict[str, Any] = {
            "beam_size": terms.width,
            "num_hypotheses": terms.width,
            "length_penalty": terms.length_penalty,
            "suppress_sequences": [[self.target[token]] for token in terms.forbidden],
            "min_decoding_length": max(terms.min_tokens - 1, 0),
            "max_input_length": 0,
            "max_batch_size": BATCH_TOKENS,
            "batch_type": "tokens",
            "return_scores": True,
            "return_end_token": True,
            "asynchronous": True,
        }
        waiting: dict[int, Any] = {}
        # One limit for all sources of a call; long ones first, since they take longest.
        for limit, group in groupby(sorted(range(len(sources)), key=lambda n: -limits[n]), key=lambda n: limits[n]):
            numbers = list(group)
            read = [[self.source[token] for token in sources[n][:-1]] for n in numbers]  # it adds <eos> itself
            waiting.update(zip(numbers, self.translator.translate_batch(read, max_decoding_length=limit, **how)))
        return [self._hypotheses(waiting[n].result(), terms) for n in range(len(sources))]

    def _hypotheses(self, result: Any, terms: BeamConfig) -> list[Hypothesis]:
        hypotheses = []
        for written, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = [self.ids[symbol] for symbol in written]
            finished = bool(tokens) and tokens[-1] == terms.eos
            hypotheses.append(Hypothesis(tokens, score * len(tokens) ** terms.length_penalty, score, finished))
        hypotheses.sort(key=lambda one: (not one.finished, -one.score))  # as in Regard, unfinished hypotheses last
        return hypotheses[: terms.n_best]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """log P of each token of the targets and of their <eos>; both sides without <eos>."""
        read = [[self.source[token] for token in tokens] for tokens in sources]
        written = [[self.target[token] for token in tokens] for tokens in targets]
        return [result.log_probs for result in self.translator.score_batch(read, written, max_input_length=0)]
