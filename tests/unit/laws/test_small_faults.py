"""A law finds its fault however small the fault is: a word ahead, a difference of one in ten million.

tests/cli/test_own_layer.py shows the mistakes that people make, which are large. These are as small as they get.
"""

import pytest
import torch

from regard.laws.registry import run_laws
from regard.layers.embedding import Embedding, Output
from regard.layers.recurrent import GRU
from regard.layers.state import map_state
from regard.systems.model import Stack
from regard.systems.seq2seq import Seq2Seq, Settings

SMALL = 1e-7  # a thousand times the laws' tolerance, and less than fp32 could show


class Ahead(GRU):
    """Column t sees the word `by` columns ahead, a little."""

    by, much = 1, 1.0

    def forward(self, x, state, span):
        y, new = super().forward(x, state, span)
        return self.see(x, y), new

    def explain(self, x, state, span):
        y, new, parts = super().explain(x, state, span)
        return self.see(x, y), new, parts

    def see(self, x, y):
        later = torch.cat([x[:, self.by :], torch.zeros_like(x[:, : self.by])], dim=1)
        return y + self.much * later


class Forgets(GRU):
    """1: each call forgets a little of what the one before remembered."""

    def forward(self, x, state, span):
        return super().forward(x, map_state(lambda part: part * (1 - SMALL), state), span)


class MixesRows(GRU):
    """3: the mean of the rows leaks into each."""

    def forward(self, x, state, span):
        return super().forward(x + SMALL * x.mean(0), state, span)


class ReadsPadding(GRU):
    """3, 11: a padded column still moves the state."""

    def forward(self, x, state, span):
        y, new = super().forward(x, state, span)
        valid = span.valid(x.size(1))
        moved = 0 if valid is None else (~valid).sum(1, keepdim=True)
        return y, {"hidden": new["hidden"] + SMALL * moved}


class ExplainsAnother(GRU):
    """5: `explain` gives other numbers."""

    def explain(self, x, state, span):
        y, new, parts = super().explain(x, state, span)
        return y * (1 + SMALL), new, parts


class ExplainsAnotherState(GRU):
    """5: `explain` gives the same numbers, and another state."""

    def explain(self, x, state, span):
        y, new, parts = super().explain(x, state, span)
        return y, {"hidden": new["hidden"] * (1 + SMALL)}, parts


class NotAllSaved(GRU):
    """6: a number that is learned, and not saved."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.extra = SMALL * float(torch.rand(()))

    def forward(self, x, state, span):
        return super().forward(x * (1 + self.extra), state, span)


class WritesInto(GRU):
    """8: the state that was given changes in its last digits."""

    def forward(self, x, state, span):
        found = super().forward(x, state, span)
        state["hidden"].mul_(1 + 1e-15)
        return found


class OtherWithCapacity(GRU):
    """9: a state with a capacity begins elsewhere."""

    def begin(self, rows, *, capacity=None, **options):
        begun = super().begin(rows, capacity=capacity, **options)
        return begun if capacity is None else {"hidden": begun["hidden"] + SMALL}


class KnowsItsRow(GRU):
    """10: what a row says depends on its place in the batch."""

    def forward(self, x, state, span):
        y, new = super().forward(x, state, span)
        return y + SMALL * torch.arange(len(x))[:, None, None], new


class Detaches(GRU):
    """14: no gradient reaches back through the state."""

    def forward(self, x, state, span):
        return super().forward(x, map_state(torch.detach, state), span)


class CountsCalls(GRU):
    """1, 5: a part of the state that nothing reads depends on the number of calls, and on which path was taken."""

    def begin(self, rows, **options):
        return {**super().begin(rows, **options), "calls": torch.zeros(rows, dtype=torch.float64)}

    def forward(self, x, state, span):
        y, new = super().forward(x, {"hidden": state["hidden"]}, span)
        return y, {**new, "calls": state["calls"] + SMALL}

    def explain(self, x, state, span):
        y, new, parts = super().explain(x, {"hidden": state["hidden"]}, span)
        return y, {**new, "calls": state["calls"]}, parts


def build(layer):
    def model(vocabulary=17, **_):
        return Stack(Embedding(vocabulary, 8), [layer(8, 8)], Output(8, vocabulary, tied=False, bias=False))

    return model


def broken(build, *numbers):
    return {result.number for result in run_laws(build, only=numbers) if not result.holds}


def test_a_layer_without_a_fault_keeps_every_law():
    everything = set(range(1, 15)) - {13}  # which takes long, and is tested with every system
    assert broken(build(GRU), *everything) == set()


@pytest.mark.parametrize("much", [1.0, SMALL, 1e-13])
@pytest.mark.parametrize("by", [1, 2])
def test_a_model_that_sees_one_or_two_words_ahead_breaks_law_2(by, much):
    class Sees(Ahead):
        pass

    Sees.by, Sees.much = by, much
    assert broken(build(Sees), 2) == {2}


def test_a_translator_that_sees_one_word_ahead_breaks_law_2():
    class Sees(Seq2Seq):
        def hidden_states(self, tokens, state, span):
            hidden, past = super().hidden_states(tokens, state, span)
            return hidden + SMALL * torch.cat([hidden[:, 1:], hidden[:, :1]], dim=1), past

    settings = Settings(width=8, embedding=8, layers=1, dropout=0.0)
    assert broken(lambda vocabulary=17, **_: Seq2Seq(vocabulary, settings), 2) == set()
    assert broken(lambda vocabulary=17, **_: Sees(vocabulary, settings), 2) == {2}


@pytest.mark.parametrize(
    ("layer", "law"),
    [
        (Forgets, 1), (MixesRows, 3), (ReadsPadding, 3), (ReadsPadding, 11), (ExplainsAnother, 5),
        (ExplainsAnotherState, 5), (CountsCalls, 1), (CountsCalls, 5),
        (NotAllSaved, 6), (WritesInto, 8), (OtherWithCapacity, 9), (KnowsItsRow, 10),
        (Detaches, 14), (MixesRows, 12),
    ],
)  # fmt: skip
def test_a_small_fault_breaks_its_law(layer, law):
    assert broken(build(layer), law) == {law}


def test_a_loss_that_is_a_little_too_large_breaks_law_4():
    class Larger(Stack):
        def loss(self, *asked):
            cost, state = super().loss(*asked)
            return cost * (1 + SMALL), state

    def model(vocabulary=17, **_):
        return Larger(Embedding(vocabulary, 8), [GRU(8, 8)], Output(8, vocabulary, tied=False, bias=False))

    assert broken(model, 4) == {4}


def test_a_loss_in_padding_breaks_law_4():
    class Padded(Stack):
        def loss(self, tokens, targets, state=None, lengths=None):
            cost, state = super().loss(tokens, targets, state, lengths)
            return cost + SMALL * (cost == 0), state

    def model(vocabulary=17, **_):
        return Padded(Embedding(vocabulary, 8), [GRU(8, 8)], Output(8, vocabulary, tied=False, bias=False))

    assert broken(model, 4) == {4}


def test_a_state_that_counts_one_token_too_many_breaks_law_3():
    class Counts(Stack):
        def forward(self, tokens, state=None, lengths=None):
            logits, state = super().forward(tokens, state, lengths)
            return logits, {**state, "seen": state["seen"] + (state["seen"] > 0)}

    def model(vocabulary=17, **_):
        return Counts(Embedding(vocabulary, 8), [GRU(8, 8)], Output(8, vocabulary, tied=False, bias=False))

    assert broken(model, 3) == {3}
