"""Each law is needed: for each there is a model that breaks it and obeys all others. And each clause of a law is: for
each there is a model that breaks the law in that clause alone, with the sentence that says so."""

import pytest
import torch

from regard.laws import registry
from regard.laws.registry import run_laws
from regard.layers.embedding import Embedding, Output
from regard.layers.recurrent import GRU
from regard.layers.state import map_state
from regard.systems.model import Stack
from regard.systems.seq2seq import Seq2Seq, Settings

SMALL = 1e-7  # a thousand times the laws' tolerance
TINY = 1e-13  # a thousandth of it
EVERY = set(range(1, 15)) - {13}  # which takes long


class Altered(Stack):
    """A model with the same fault in the fast path and in the written equation."""

    def alter(self, tokens, state, span, read):
        return read(tokens, state, span)

    def hidden_states(self, tokens, state, span):
        return self.alter(tokens, state, span, super().hidden_states)

    def explain_context(self, tokens, state, span):
        parts = {}

        def read(*call):
            hidden, past, parts["all"] = super(Altered, self).explain_context(*call)
            return hidden, past

        return *self.alter(tokens, state, span, read), parts["all"]


class SteeperPast(Altered):
    """1: a larger gradient reaches back through the state, though no number shows it."""

    def alter(self, tokens, state, span, read):
        steeper = map_state(lambda leaf: leaf.detach() + (1 + SMALL) * (leaf - leaf.detach()), state["past"])
        return read(tokens, {**state, "past": steeper}, span)


class SeesAhead(Altered):
    """2: a column sees the next one, less than any tolerance."""

    def alter(self, tokens, state, span, read):
        hidden, past = read(tokens, state, span)
        return hidden + TINY * hidden.roll(-1, dims=1), past


class CountsPadding(Stack):
    """3: `seen` also counts one padded column, where a row has some real ones."""

    def forward(self, tokens, state=None, lengths=None):
        logits, state = super().forward(tokens, state, lengths)
        if lengths is None or "capacity" in state:
            return logits, state
        return logits, {**state, "seen": state["seen"] + ((lengths > 0) & (lengths < tokens.size(1)))}


class AnotherWord(Stack):
    """4: the loss of another word."""

    def loss(self, tokens, targets, state=None, lengths=None):
        return super().loss(tokens, (targets + 1) % self.vocabulary, state, lengths)


class ExplainsAnother(Stack):
    """5: the written equation gives other numbers."""

    def explain_context(self, tokens, state, span):
        hidden, past, parts = super().explain_context(tokens, state, span)
        return hidden * (1 + SMALL), past, parts


class NotSaved(Altered):
    """6: a number that is not saved."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.scale = 1 + SMALL * float(torch.rand(()))

    def alter(self, tokens, state, span, read):
        hidden, past = read(tokens, state, span)
        return hidden * self.scale, past


class DecidesByRow(Stack):
    """7: pairs of words are equally probable, and in the second row of a batch the other one is written."""

    def predict(self, hidden):
        logits = super().predict(hidden)
        later = TINY * torch.arange(len(logits)).view(-1, *[1] * (logits.dim() - 1))
        return torch.stack([logits[..., :-1:2], logits[..., :-1:2] + later], dim=-1).flatten(-2).repeat_interleave(
            torch.tensor([1] * 15 + [2]), dim=-1)  # fmt: skip


class WritesBack(Stack):
    """8: without gradients, the last digits of the given state change."""

    def forward(self, tokens, state=None, lengths=None):
        found = super().forward(tokens, state, lengths)
        if state is not None and "capacity" not in state and not torch.is_grad_enabled():
            state["past"]["0"]["hidden"].mul_(1 + 1e-15)
        return found


class NewEachTime(Stack):
    """9: with a capacity, each call returns new tensors."""

    def forward(self, tokens, state=None, lengths=None):
        logits, state = super().forward(tokens, state, lengths)
        return logits, map_state(torch.clone, state)


class KnowsItsRow(GRU):
    """10: a row notices that it was moved."""

    def begin(self, rows, **options):
        return {**super().begin(rows, **options), "row": torch.arange(rows)}

    def forward(self, x, state, span):
        y, new = super().forward(x, {"hidden": state["hidden"]}, span)
        return self.moved(y, state), {**new, "row": state["row"]}

    def explain(self, x, state, span):
        y, new, parts = super().explain(x, {"hidden": state["hidden"]}, span)
        return self.moved(y, state), {**new, "row": state["row"]}, parts

    def moved(self, y, state):
        return y + SMALL * (state["row"] != torch.arange(len(y)))[:, None, None]


class AllAreFrozen(Altered):
    """11: a call in which no row has a real column changes the state."""

    def alter(self, tokens, state, span, read):
        hidden, past = read(tokens, state, span)
        if span.lengths is not None and not span.lengths.any():
            past = map_state(lambda leaf: leaf + SMALL, past)
        return hidden, past


class GradientByRows(Stack):
    """12: the same loss, and a gradient that depends on the number of rows."""

    def loss(self, tokens, targets, state=None, lengths=None):
        cost, state = super().loss(tokens, targets, state, lengths)
        return cost + SMALL * len(tokens) * (cost - cost.detach()), state


class Bypass(Altered):
    """14: where the state was detached, the gradient takes another way back."""

    last = None

    def alter(self, tokens, state, span, read):
        hidden, past = read(tokens, state, span)
        detached = torch.is_grad_enabled() and not state["past"]["0"]["hidden"].requires_grad
        if detached and span.start.any() and self.last is not None and len(self.last) == len(hidden):
            hidden = hidden + (self.last - self.last.detach())[:, None]
        self.last = past["0"]["hidden"]
        return hidden, past


def built(kind, layer=GRU):
    return lambda vocabulary=17, **_: kind(
        Embedding(vocabulary, 8), [layer(8, 8)], Output(8, vocabulary, tied=False, bias=False)
    )


ONE_LAW = {
    1: built(SteeperPast), 2: built(SeesAhead), 3: built(CountsPadding), 4: built(AnotherWord),
    5: built(ExplainsAnother), 6: built(NotSaved), 7: built(DecidesByRow), 8: built(WritesBack),
    9: built(NewEachTime), 10: built(Stack, KnowsItsRow), 11: built(AllAreFrozen), 12: built(GradientByRows),
    14: built(Bypass),
}  # fmt: skip


@pytest.mark.parametrize("law", ONE_LAW)
def test_a_model_that_breaks_one_law_obeys_all_others(monkeypatch, law):
    every = registry.draws
    monkeypatch.setattr(registry, "draws", lambda model: every(model)[2:3])  # three rows: one is empty, one is full
    assert [result.number for result in run_laws(ONE_LAW[law], only=EVERY) if not result.holds] == [law]


# -- the clauses of a law --------------------------------------------------------------------------------------------


class MixesFullRows(Altered):
    """3: rows are mixed, but only where none is padded."""

    def alter(self, tokens, state, span, read):
        hidden, past = read(tokens, state, span)
        return hidden + (SMALL * hidden.mean(0) if span.lengths is None else 0), past


class LossForgets(Stack):
    """4: the loss reads the text as if it began here."""

    def loss(self, tokens, targets, state=None, lengths=None):
        return super().loss(tokens, targets, None, lengths)


class FixedOnly(Stack):
    """9: what only a state with a capacity shows."""

    what = "dtype"

    def forward(self, tokens, state=None, lengths=None):
        fixed = state is not None and "capacity" in state
        logits, state = super().forward(tokens, state, lengths)
        if not fixed:
            return logits, state
        hidden, seen = state["past"]["0"]["hidden"], state["seen"]
        padded = torch.zeros(tokens.shape, dtype=bool) if lengths is None else (
            torch.arange(tokens.size(1)) >= lengths[:, None])  # fmt: skip
        if self.what == "padding":
            return logits.masked_fill(padded[..., None], torch.nan), state
        if self.what == "last slot":
            return logits + SMALL * (seen >= state["capacity"])[:, None, None], state
        if self.what == "one more word":
            return logits + SMALL * (tokens.size(1) == 1 and lengths is None), state
        if self.what == "perhaps one":
            return logits + SMALL * (tokens.size(1) == 1 and lengths is not None), state
        if self.what == "a new leaf":
            return logits, {**state, "new": seen}
        other = hidden.view(torch.int64) if self.what == "dtype" else hidden[:, :-1]  # at the same address
        return logits, {**state, "past": {"0": {"hidden": other}}}


class NoRows(Stack):
    """10: a number for the whole batch, and with a capacity only or without one only."""

    fixed, shape = False, ()

    def forward(self, tokens, state=None, lengths=None):
        logits, new = super().forward(tokens, {k: v for k, v in (state or {}).items() if k != "all"} or None, lengths)
        return logits, {**new, "all": torch.zeros(self.shape)} if ("capacity" in new) == self.fixed else new


class MovedOnly(KnowsItsRow):
    """10: a moved row is noticed with a capacity only, or without one only."""

    fixed = False

    def begin(self, rows, *, capacity=None, **options):
        begun = super().begin(rows, capacity=capacity, **options)
        return begun if (capacity is not None) == self.fixed else {**begun, "row": torch.full((rows,), -1)}

    def moved(self, y, state):
        return y + SMALL * ((state["row"] != torch.arange(len(y))) & (state["row"] >= 0))[:, None, None]


class Joined(Stack):
    """10: rows that come to others notice that they are more."""

    def forward(self, tokens, state=None, lengths=None):
        logits, new = super().forward(tokens, {k: v for k, v in (state or {}).items() if k != "many"} or None, lengths)
        many = torch.full((len(tokens),), len(tokens)) if state is None or "many" not in state else state["many"]
        return logits + SMALL * (many < len(tokens))[:, None, None], {**new, "many": many}


class CountsFrozen(Stack):
    """11: `seen` grows though the row read nothing, and nothing reads it."""

    def forward(self, tokens, state=None, lengths=None):
        logits, state = super().forward(tokens, state, lengths)
        return logits, {**state, "seen": state["seen"] + (0 if lengths is None else lengths == 0)}


class FrozenOnly(Altered):
    """11: a padded column changes the state, but only in a call for all rows or for some, of one kind of state."""

    none_read, fixed, rows, single = True, True, (2, 3, 4), True

    def alter(self, tokens, state, span, read):
        hidden, past = read(tokens, state, span)
        if span.lengths is None or ("capacity" in state) != self.fixed:
            return hidden, past
        if len(tokens) not in self.rows or (tokens.size(1) == 1) != self.single:
            return hidden, past
        moved = SMALL * (span.lengths == 0)[:, None] * (bool(span.lengths.any()) != self.none_read)
        return hidden, map_state(lambda leaf: leaf + moved, past)


def variant(layer, **attributes):
    return type(layer.__name__, (layer,), attributes)


CAPACITY = "with a capacity, the state's {} changed its shape, dtype or address: write in place"
CLAUSES = [
    (built(MixesFullRows), 3, "texts in one batch changes the logits of one of them by"),
    (built(LossForgets), 4, "the loss differs from −log softmax(logits) by"),
    (built(variant(FixedOnly, what="dtype")), 9, CAPACITY.format("past.0.hidden")),
    (built(variant(FixedOnly, what="shape")), 9, CAPACITY.format("past.0.hidden")),
    (built(variant(FixedOnly, what="a new leaf")), 9, CAPACITY.format("new")),
    (built(variant(FixedOnly, what="padding")), 9, "a state with a capacity gives logits that are not finite"),
    (built(variant(FixedOnly, what="last slot")), 9, "a state with a capacity changes the logits by 1e-07"),
    (built(variant(FixedOnly, what="one more word")), 9, "a state with a capacity changes the logits by 1e-07"),
    (built(variant(FixedOnly, what="perhaps one")), 9, "a state with a capacity changes the logits by 1e-07"),
    (built(NoRows), 10, "the state's all has shape [] for 2 rows: rows come first"),
    (built(variant(NoRows, fixed=True)), 10, "the state's all has shape [] for 2 rows: rows come first"),
    (built(variant(NoRows, shape=(3, 2))), 10, "the state's all has shape [3, 2] for 2 rows: rows come first"),
    (built(Stack, MovedOnly), 10, "reordering the state's rows and continuing changes the logits by"),
    (built(Stack, variant(MovedOnly, fixed=True)), 10, "reordering the state's rows and continuing changes the logits"),
    (built(Joined), 10, "reordering the state's rows and continuing changes the logits by"),
    (built(FrozenOnly), 11, "a call with length 0 changes the row's next prediction by"),
    (built(variant(FrozenOnly, none_read=False, fixed=False)), 11, "a call with length 0 changes the row's next"),
    (built(variant(FrozenOnly, none_read=False, fixed=False, rows=(2,))), 11, "a call with length 0 changes the row's"),
    (built(variant(FrozenOnly, none_read=False, single=False)), 11, "a call with length 0 changes the row's next"),
    (built(variant(FrozenOnly, none_read=False, single=False, fixed=False)), 11, "a call with length 0 changes the"),
    (built(CountsFrozen), 11, 'a call with length 0 changes state["seen"]'),
]


@pytest.mark.parametrize(("made", "law", "said"), CLAUSES)
def test_each_clause_of_a_law_is_needed(made, law, said):
    (result,) = run_laws(made, only=(law,))
    assert said in result.sentence


class Hypotheses(Seq2Seq):
    """10: a fault that only several hypotheses of a source show, in both kinds of state or in one."""

    what, fixed = "", (False, True)

    def begin_from(self, encoded, source, lengths, *, width=1, capacity=None):
        state = super().begin_from(encoded, source, lengths, width=width, capacity=capacity)
        if (capacity is not None) not in self.fixed:
            return state
        rows = torch.arange(len(source) * width)
        if self.what == "first":  # the first hypothesis of a source is not like the others
            return {**state, "past": map_state(lambda leaf: leaf + SMALL * (rows % width == 1)[:, None], state["past"])}
        if self.what in ("row", "source"):
            held = {"row": rows, "source": rows // width}[self.what]
            return {**state, "past": {**state["past"], "place": held}}
        if self.what == "rows of the source":
            return {**state, "source": {**state["source"], "extra": rows}}
        if self.what == "rows of the past":
            return {**state, "past": {**state["past"], "extra": torch.arange(len(source))}}
        return state

    def hidden_states(self, tokens, state, span):
        past = dict(state["past"])
        place, extra = past.pop("place", None), past.pop("extra", None)
        hidden, past = super().hidden_states(tokens, {**state, "past": past}, span)
        if extra is not None:
            past["extra"] = extra
        if place is None:
            return hidden, past
        width = len(hidden) // len(state["source"]["valid"])
        now = torch.arange(len(hidden)) // (width if self.what == "source" else 1)
        return hidden + SMALL * (place != now)[:, None, None], {**past, "place": place}


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("first", "several hypotheses of one source have different logits than copies of the source by"),
        ("row", "reordering hypotheses and continuing changes the logits by"),
        ("source", "selecting sources and continuing changes the logits by"),
        ("rows of the source", "the state's source.extra has shape [6] for 2 sources of 3 hypotheses: "),
        ("rows of the past", "the state's past.extra has shape [2] for 2 sources of 3 hypotheses: "),
    ],
)
def test_each_clause_of_law_10_for_hypotheses_is_needed(what, said, fixed):
    kind, settings = variant(Hypotheses, what=what, fixed=(fixed,)), Settings(layers=1, width=8, embedding=6)
    (result,) = run_laws(lambda vocabulary=17, **_: kind(vocabulary, settings), only=(10,))
    assert said in result.sentence
