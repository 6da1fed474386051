"""A law finds its fault however small the fault is: a word ahead, a difference of one in ten million.

tests/cli/test_own_layer.py shows the mistakes that people make, which are large. These are as small as they get.
"""

import re

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


class Remembers(GRU):
    """Before any law: it counts its calls outside the state."""

    calls = 0

    def forward(self, x, state, span):
        self.calls += 1
        y, new = super().forward(x, state, span)
        return y + SMALL * self.calls, new


class FirstColumn(GRU):
    """1: the first column of a call is another one; the state is not."""

    def forward(self, x, state, span):
        y, new = super().forward(x, state, span)
        return torch.cat([y[:, :1] + SMALL, y[:, 1:]], dim=1), new


class OnlyIn(GRU):
    """3, 11: a padded column moves the state, but only in some calls."""

    where = "growing"

    def begin(self, rows, *, capacity=None, **options):
        fixed = torch.full((rows,), float(capacity is not None), dtype=torch.float64)
        return {**super().begin(rows, capacity=capacity, **options), "fixed": fixed, "calls": torch.zeros_like(fixed)}

    def forward(self, x, state, span):
        y, new = super().forward(x, {"hidden": state["hidden"]}, span)
        moved, valid = torch.zeros_like(new["hidden"]), span.valid(x.size(1))
        if valid is not None:
            places = {
                "growing": state["fixed"] == 0,
                "fixed": state["fixed"] == 1,
                "later": state["calls"] > 0,
                "one": torch.full((len(x),), x.size(1) == 1),
                "more": torch.full((len(x),), x.size(1) > 1),
            }
            moved = (SMALL * (~valid).sum(1) * places[self.where])[:, None]
        return y, {"hidden": new["hidden"] + moved, "fixed": state["fixed"], "calls": state["calls"] + 1}


class Overflows(GRU):
    """3: what a padded column says is not a number."""

    def forward(self, x, state, span):
        y, new = super().forward(x, state, span)
        valid = span.valid(x.size(1))
        return y if valid is None else y.where(valid[..., None], torch.inf), new


class ExplainsAtTimes(GRU):
    """5: `explain` gives other numbers, but only in some calls, or only in the backward pass."""

    when = "ragged"

    def explain(self, x, state, span):
        y, new, parts = super().explain(x, state, span)
        if self.when == "gradient":
            return y.detach() + 0 * y, new, parts
        other = span.valid(x.size(1)) is not None if self.when == "ragged" else bool(state["hidden"].any())
        return y * (1 + SMALL * other), new, parts


class Replaces(GRU):
    """8: another tensor stands in the dict that was given."""

    ragged = False

    def forward(self, x, state, span):
        found = super().forward(x, dict(state), span)
        if not self.ragged or span.valid(x.size(1)) is not None:
            state["hidden"] = state["hidden"].clone()
        return found


class Keeps(GRU):
    """14: the gradient finds the earlier text outside the state, though no number shows it."""

    last = None

    def forward(self, x, state, span):
        y, new = super().forward(x, state, span)
        if self.last is not None and len(self.last) == len(y):
            y = y + (self.last - self.last.detach())[:, None]
        self.last = new["hidden"]
        return y, new


class NotOne(Stack):
    """4: the surprise of another word."""

    def loss(self, tokens, targets, state=None, lengths=None):
        return super().loss(tokens, (targets + 1) % self.vocabulary, state, lengths)


class LastOnly(Stack):
    """4: it predicts after the last word alone."""

    def predict(self, hidden):
        return super().predict(hidden)[..., :-1]


class OneLoss(Stack):
    """4: one loss for all."""

    def loss(self, *asked):
        cost, state = super().loss(*asked)
        return cost.mean(), state


class NewEachTime(Stack):
    """9: a state with a capacity is another one after each call."""

    def forward(self, tokens, state=None, lengths=None):
        logits, state = super().forward(tokens, state, lengths)
        return logits, map_state(torch.clone, state)


class RowsLast(Stack):
    """10: something in the state has no rows."""

    def forward(self, tokens, state=None, lengths=None):
        logits, new = super().forward(tokens, {k: v for k, v in (state or {}).items() if k != "all"} or None, lengths)
        return logits, {**new, "all": torch.zeros(99)}


class GradientByRows(Stack):
    """12: the same loss, and another gradient."""

    def loss(self, tokens, targets, state=None, lengths=None):
        cost, state = super().loss(tokens, targets, state, lengths)
        return cost + SMALL * len(tokens) * (cost - cost.detach()), state


class NeverEnds(Stack):
    """7: alone, a text is another one."""

    def predict(self, hidden):
        logits = super().predict(hidden)
        return logits if len(logits) > 1 else logits.flip(-1)


def build(layer):
    def model(vocabulary=17, **_):
        return Stack(Embedding(vocabulary, 8), [layer(8, 8)], Output(8, vocabulary, tied=False, bias=False))

    return model


def broken(build, *numbers):
    return {result.number for result in run_laws(build, only=numbers) if not result.holds}


def test_a_layer_without_a_fault_keeps_every_law():
    everything = set(range(1, 15)) - {13}  # which takes long, and is tested with every system
    assert broken(build(GRU), *everything) == set()


def sentence(build, number):
    """What is said of a law; "" if it holds."""
    (result,) = run_laws(build, only=(number,))
    return result.sentence


def variant(layer, **attributes):
    return type(layer.__name__, (layer,), attributes)


def stack(kind):
    return lambda vocabulary=17, **_: kind(
        Embedding(vocabulary, 8), [GRU(8, 8)], Output(8, vocabulary, tied=False, bias=False)
    )


@pytest.mark.parametrize(
    ("made", "law", "said"),
    [
        (build(Remembers), 1, "repeating the same call changes the logits by 1"),
        (build(FirstColumn), 1, "changes the logits by 1"),
        (build(CountsCalls), 1, "changes the last state (past.0.calls) by"),
        (build(Detaches), 1, "calls changes the gradient of"),
        (build(variant(OnlyIn, where="growing")), 3, "padding changes the logits by"),
        (build(variant(OnlyIn, where="fixed")), 3, "padding changes the logits by"),
        (build(variant(OnlyIn, where="later")), 3, "padding changes the logits by"),
        (build(Overflows), 3, "a padded column gives logits that are not finite"),
        (build(variant(OnlyIn, where="growing")), 11, "a call with length 0 changes the row's next prediction"),
        (build(variant(OnlyIn, where="fixed")), 11, "a call with length 0 changes the row's next prediction"),
        (build(variant(OnlyIn, where="one")), 11, "a call with length 0 changes the row's next prediction"),
        (build(variant(OnlyIn, where="more")), 11, "a call with length 0 changes the row's next prediction"),
        (stack(NotOne), 4, "the loss differs from −log softmax(logits) by"),
        (stack(LastOnly), 4, "logits have shape [2, 1, 16] and not [2, 1, 17]"),
        (stack(OneLoss), 4, "the loss has shape []: one number per token"),
        (build(variant(ExplainsAtTimes, when="ragged")), 5, "written equation in the logits by"),
        (build(variant(ExplainsAtTimes, when="later")), 5, "written equation in the logits by"),
        (build(variant(ExplainsAtTimes, when="gradient")), 5, "written equation in the gradient of"),
        (build(ExplainsAnotherState), 5, "written equation in the"),
        (build(Replaces), 8, "a call alters the state it was given (past.0.hidden): make a new dict"),
        (build(variant(Replaces, ragged=True)), 8, "a call alters the state it was given (past.0.hidden)"),
        (build(WritesInto), 8, "a call alters the state it was given (past.0.hidden) by"),
        (stack(NeverEnds), 7, "a beam of 1 writes ["),
        (stack(NewEachTime), 9, "with a capacity, the state's seen changed its shape, dtype or address"),
        (stack(RowsLast), 10, "the state's all has shape [99] for 2 rows: rows come first"),
        (stack(GradientByRows), 12, "splitting a batch into 2 changes the gradient of"),
        (build(Keeps), 14, "gradients reach back across a detached state"),
        (build(Detaches), 14, "no gradient reaches back through the state"),
    ],
)  # fmt: skip
def test_a_fault_that_only_some_calls_show_is_named(made, law, said):
    assert said in sentence(made, law)


def test_where_rows_are_not_padded_the_position_of_a_difference_is_named():
    assert re.search(r"in the logits by \S+ at position 0: ", sentence(build(ExplainsAnother), 5))
    assert "position" not in sentence(build(variant(ExplainsAtTimes, when="ragged")), 5)


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
