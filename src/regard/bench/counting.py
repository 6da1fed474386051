"""A 5-gram model scores held-out text, against kenlm with the same model, on one CPU thread.

The text is Python's language reference, split into words at blanks; kenlm reads Regard's estimates from an ARPA file.
Each side computes −log P of every word, with `</s>`. `ngram-score` is Regard's look-up alone, from word ids,
`score-lines` all of `run.score`, from lines of text to a list for each, `score-sums` the same to one number for each.
kenlm reads lines of text; its `full_scores` makes such lists, its `score` such numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import torch

from regard.base.numbers import group_digits
from regard.bench.contenders import BenchRow, BenchSetup, Contender
from regard.evaluation.perplexity import Method, token_losses
from regard.exchange.arpa import write_arpa
from regard.runs.recipe import compose
from regard.runs.speed import install
from regard.runs.tasks.language.run import LanguageRun
from regard.systems.ngram import NGram, Settings
from regard.text.corpus import open_corpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import load_tensors, save_tensors

ORDER = 5
CORPUS = "pyref"
TIMES = 20  # the held-out text is short, so it is scored repeatedly


class Words:
    """The corpus as lines of known words, and as ids: 0 ends a line, 1 is unknown."""

    def __init__(self) -> None:
        splits = open_corpus(CORPUS).splits
        self.numbers = {"<eos>": 0, "<unk>": 1}
        self.counted = self.ids([*splits["train"]], grow=True)
        self.lines = [" ".join(line.split()) for line in splits["test"]] * TIMES
        self.held_out = self.ids(self.lines, grow=False)

    def ids(self, lines: list[str], grow: bool) -> np.ndarray:
        found: list[int] = []
        for line in lines:
            known = self.numbers
            found += [known.setdefault(word, len(known)) if grow else known.get(word, 1) for word in line.split()]
            found.append(0)
        return np.array(found)


@cache
def words() -> Words:
    return Words()


@cache
def estimated() -> tempfile.TemporaryDirectory[str]:
    """A folder with the model for each side, counted once, so that no side's memory includes counting."""
    folder = tempfile.TemporaryDirectory()
    model = NGram(len(words().numbers), Settings(order=ORDER))
    model.count(words().counted)
    save_tensors(Path(folder.name, "model.safetensors"), dict(model.state_dict()))
    write_arpa(model, list(words().numbers), Path(folder.name, "model.arpa"))
    return folder


class RegardScoring:
    def __init__(self) -> None:
        self.model = NGram(len(words().numbers), Settings(order=ORDER)).eval()
        self.model.load_state_dict(load_tensors(Path(estimated().name, "model.safetensors"))[0])
        install(self.model)
        self.parameters = self.model.stored_numbers

    def __call__(self) -> int:
        method = Method.of(self.model, overlap=ORDER - 1)  # more context changes no probability
        with one_thread():
            losses = [*token_losses(self.model, words().held_out, method, eos=0)]
        self.scores = np.concatenate(losses) / -np.log(10)
        return len(self.scores)


class RegardLines(RegardScoring):
    def __init__(self) -> None:
        super().__init__()
        tokenizer = Tokenizer.of_tokens([*words().numbers], "word")
        self.run = LanguageRun(Path(estimated().name), compose("ngram", "small"), tokenizer, self.model)

    def __call__(self) -> int:
        with one_thread():
            self.lines = [line.log_probabilities for line in self.run.score(words().lines)]
        return len(words().held_out)


class RegardSums(RegardLines):
    def __call__(self) -> int:
        with one_thread():
            self.sums = [line.log_probability for line in self.run.score(words().lines)]
        return len(words().held_out)


class KenlmScoring:
    def __init__(self) -> None:
        import kenlm

        quiet = kenlm.Config()
        quiet.show_progress, quiet.arpa_complain = False, kenlm.ARPALoadComplain.NONE
        self.model = kenlm.Model(str(Path(estimated().name, "model.arpa")), quiet)
        self.parameters = 0  # kenlm does not report it

    def __call__(self) -> int:
        self.scores = [entry[0] for line in words().lines for entry in self.model.full_scores(line)]
        return len(self.scores)


class KenlmLines(KenlmScoring):
    def __call__(self) -> int:
        self.lines = [[entry[0] for entry in self.model.full_scores(line)] for line in words().lines]
        return len(words().held_out)


class KenlmSums(KenlmScoring):
    def __call__(self) -> int:
        self.sums = [self.model.score(line) for line in words().lines]
        return len(words().held_out)


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rows(place: BenchSetup) -> list[BenchRow]:
    here = BenchSetup(torch.device("cpu"), "quick" if place.size == "quick" else "small")
    work = (
        f"{ORDER}-gram of {group_digits(len(words().counted))} words, "
        f"{group_digits(len(words().held_out))} words scored"
    )
    contenders = {
        "ngram-score": [Contender("Regard", RegardScoring), Contender("kenlm", KenlmScoring, needs=["kenlm"])],
        "score-lines": [
            Contender("Regard", RegardLines),
            Contender("kenlm's full_scores", KenlmLines, needs=["kenlm"]),
            Contender("kenlm's score", KenlmSums, needs=["kenlm"]),
        ],
        "score-sums": [Contender("Regard", RegardSums), Contender("kenlm's score", KenlmSums, needs=["kenlm"])],
    }
    return [
        BenchRow(name, here, work, sides, None, warm_up=1, calls=here.of(1, 5, 1), unit="words/s")
        for name, sides in contenders.items()
    ]
