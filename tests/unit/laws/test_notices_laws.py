"""The laws of learning and searching at their thresholds, faults that only a translator has, and how laws are run."""

import re
from math import log
from pathlib import Path

import pytest
import torch

from regard.base.errors import RegardError
from regard.laws import learning, registry
from regard.laws.closeness import Broken, RandomCase
from regard.laws.learning import it_can_memorise, micro_batches_are_one_batch, untrained_it_knows_nothing
from regard.laws.registry import LAWS, builder, draws, never_changed, run_laws, stirred
from regard.laws.searching import beam_one_is_greedy
from regard.layers.cell import Cell
from regard.layers.embedding import Embedding, Output
from regard.layers.recurrent import GRU
from regard.layers.state import map_state
from regard.systems.model import Stack
from regard.systems.seq2seq import Seq2Seq, Settings

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"


def stack(kind=Stack, vocabulary=17, layer=GRU):
    return kind(Embedding(vocabulary, 8), [layer(8, 8)], Output(8, vocabulary, tied=False, bias=False))


def test_there_are_fourteen_laws_in_the_words_of_the_contract():
    assert [law.number for law in LAWS] == list(range(1, 15))
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE))
    for law in LAWS:
        said, documented = (set(re.findall(r"\w+", words)) for words in (law.wording, rows[str(law.number)]))
        assert len(said & documented) >= 0.6 * len(said), law.number
        assert law.advice
        assert not law.advice.endswith(".")


def test_chosen_laws_are_run_in_their_order_and_told_as_they_come():
    heard = []
    results = run_laws(lambda vocabulary=17, **_: stack(vocabulary=vocabulary), heard.append, only=(11, 2, 8))
    assert results == heard
    assert [(result.number, result.holds, result.sentence) for result in results] == [
        (2, True, ""), (8, True, ""), (11, True, ""),
    ]  # fmt: skip


class Raises(Stack):
    error: Exception = ValueError("shape is wrong.\nmore")

    def hidden_states(self, tokens, state, span):
        raise self.error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("shape is wrong.\nmore"),
         "it crashed with ValueError (shape is wrong); check the shapes of its outputs."),
        (KeyError(), "it crashed with KeyError; check the shapes of its outputs."),
        (NotImplementedError(), "its `hidden_states` is not implemented."),
        (RegardError("Give it less."), "Give it less."),
        (Broken("this changes by 3"), "this changes by 3."),
    ],
)  # fmt: skip
def test_a_crash_is_a_broken_law_in_one_sentence(monkeypatch, error, sentence):
    monkeypatch.setattr(Raises, "error", error)
    (result,) = run_laws(lambda vocabulary=17, **_: stack(Raises, vocabulary), only=(2,))
    assert (result.holds, result.sentence) == (False, sentence)


def test_cases_fit_into_the_context_and_weights_matter():
    model = stirred(lambda vocabulary=17, **_: stack(vocabulary=vocabulary))
    assert not model.training
    torch.manual_seed(0)
    plain = stack()
    torch.manual_seed(0)
    large = stirred(lambda vocabulary=17, **_: stack(vocabulary=vocabulary))
    for one, other in zip(plain.parameters(), large.parameters(), strict=True):
        assert 0.15 < float((other - one).detach().std()) < 0.45
    assert all(weight.dtype == torch.float64 for weight in model.parameters())
    assert [(draw.rows, draw.columns) for draw in draws(model)] == [(2, 2), (2, 3), (3, 4), (3, 5), (4, 6), (4, 6)]
    for context, most in ((18, 6), (12, 4), (9, 3), (3, 2)):
        model.context = context
        assert max(draw.columns for draw in draws(model)) == most
    assert len({draw.seed for draw in draws(model)}) == 6


def test_a_source_is_longer_than_the_target_ragged_and_full_somewhere():
    model = Seq2Seq(17, Settings(layers=1, width=8, embedding=6)).eval()
    for seed in range(10):
        draw = RandomCase(seed, 3, 5)
        source, lengths = draw.sources(model)
        assert source.shape == (3, 6)
        assert lengths.max() == 6
        assert lengths.min() >= 1
        for row in range(3):
            alone = draw.begin(model, row=row)["past"]["0"]["hidden"]
            assert torch.allclose(alone[0], draw.begin(model)["past"]["0"]["hidden"][row], atol=1e-6)


def test_sources_and_texts_of_every_length_are_drawn():
    model = Seq2Seq(17, Settings(layers=1, width=8, embedding=6)).eval()
    cases = [RandomCase(seed, 3, 5) for seed in range(100)]
    assert torch.cat([case.sources(model)[1] for case in cases]).unique().tolist() == [1, 2, 3, 4, 5, 6]
    assert torch.cat([case.sources(model)[0].flatten() for case in cases]).unique().tolist() == list(range(17))
    assert torch.cat([case.tokens(model).flatten() for case in cases]).unique().tolist() == list(range(17))
    cuts = {len(case.pieces(case.tokens(model))) for case in cases}
    assert cuts == {1, 2, 3, 4, 5}
    sizes = {piece.size(1) for case in cases for piece in case.pieces(case.tokens(model))}
    assert sizes == {1, 2, 3, 4, 5}


class Idle(GRU):
    def begin(self, rows, **options):
        return {**super().begin(rows, **options), "never": torch.zeros(rows, dtype=torch.float64)}

    def forward(self, x, state, span):
        y, new = super().forward(x, {"hidden": state["hidden"]}, span)
        return y, {**new, "never": state["never"]}


def test_a_state_that_nothing_changes_is_named():
    assert never_changed(lambda vocabulary=17, **_: stack(vocabulary=vocabulary, layer=Idle)) == ["never"]
    assert never_changed(lambda vocabulary=17, **_: stack(vocabulary=vocabulary)) == []


def test_what_is_saved_is_loaded_into_a_model_that_began_with_other_weights():
    made, first = [], []

    def build(vocabulary=17, **_):
        made.append(stack(vocabulary=vocabulary))
        first.append(made[-1].embedding.table.weight.detach().clone())
        return made[-1]

    assert run_laws(build, only=(6,))[0].holds
    assert len(made) == 2
    assert not torch.equal(*first)
    one, other = (model.state_dict() for model in made)
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def test_a_law_and_a_note_are_tried_on_the_same_model_each_time():
    drawn = []

    def build(vocabulary=17, **_):
        drawn.append(float(torch.rand(())))
        return stack(vocabulary=vocabulary)

    for seed in (1, 2):
        torch.manual_seed(seed)
        never_changed(build)
        torch.manual_seed(seed)
        run_laws(build, only=(2,))
    assert len(drawn) == 4
    assert len(set(drawn)) == 1


@pytest.mark.parametrize("system", ["lstm", "gpt", "transformer"])
def test_a_learner_has_no_dropout_and_others_have(system):
    build = builder(system)
    rates = [
        {module.p for module in build(learner=learner).modules() if isinstance(module, torch.nn.Dropout)}
        for learner in (True, False)
    ]
    assert rates[0] == {0.0}
    assert 0.3 in rates[1]
    assert [build(learner=learner).embedding.width for learner in (True, False)] == [32, 16]
    assert build(29).vocabulary == 29


def test_laws_are_tried_on_models_that_are_small_and_have_everything_twice():
    settings = builder("gpt")().settings
    assert (settings.layers, settings.heads, settings.width, builder("gpt")().vocabulary) == (2, 2, 16, 17)
    assert settings.context >= 3 * max(draw.columns for draw in draws(builder("gpt")()))
    learner = builder("gpt")(learner=True).settings
    assert (learner.layers, learner.heads, learner.width, learner.context) == (1, 2, 32, settings.context)


# -- learning --------------------------------------------------------------------------------------------------------


class Off(Stack):
    """Its loss is log V and a little more."""

    by = 0.0

    def loss(self, tokens, targets, state=None, lengths=None):
        return torch.full(tokens.shape, log(self.vocabulary) + self.by), {}


@pytest.mark.parametrize(("by", "holds"), [(0.049, True), (-0.049, True), (0.051, False), (-0.051, False)])
def test_an_untrained_loss_is_within_a_twentieth_of_log_v(monkeypatch, by, holds):
    monkeypatch.setattr(Off, "by", by)
    if holds:
        untrained_it_knows_nothing(stack(Off), RandomCase(1, 4, 5))
    else:
        with pytest.raises(Broken, match="untrained, its loss is"):
            untrained_it_knows_nothing(stack(Off), RandomCase(1, 4, 5))


class ByRows(Stack):
    """12: its loss is divided by the number of rows."""

    def loss(self, tokens, targets, state=None, lengths=None):
        cost, state = super().loss(tokens, targets, state, lengths)
        return cost * (1 + 1e-7 * len(tokens)), state


def test_a_loss_that_depends_on_the_number_of_rows_breaks_law_12():
    torch.manual_seed(0)
    micro_batches_are_one_batch(stack().double(), RandomCase(3, 3, 4))
    with pytest.raises(Broken, match="splitting a batch into 3 changes the loss"):
        micro_batches_are_one_batch(stack(ByRows).double(), RandomCase(3, 3, 4))


def test_other_first_weights_are_tried_three_times_and_no_more(monkeypatch):
    seeds, good = [], [1]

    def memorises(model, **how):
        seeds.append(torch.initial_seed())
        if seeds[-1] < good[0]:
            raise Broken("it does not learn")

    monkeypatch.setattr(learning, "it_memorises_four_sentences", memorises)
    for first, wanted in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3])):
        good[0] = first
        seeds.clear()
        it_can_memorise(stack)
        assert seeds == wanted
    seeds.clear()
    good[0] = 4
    with pytest.raises(Broken):
        it_can_memorise(stack)
    assert seeds == [1, 2, 3]


class Deaf(Stack):
    """It hears only that there is a word, so that two continuations of the same word cannot be told apart."""

    def hidden_states(self, tokens, state, span):
        return super().hidden_states(torch.ones_like(tokens), state, span)


def test_who_cannot_tell_words_apart_does_not_memorise():
    torch.manual_seed(0)
    said = r"after 60 steps on four sentences it still gives some next word a probability of only (0\.\d+)"
    with pytest.raises(Broken, match=said):
        learning.it_memorises_four_sentences(stack(Deaf, 20), steps=60)
    hearing = Stack(Embedding(20, 16), [GRU(16, 16)], Output(16, 20, tied=False, bias=False))
    learning.it_memorises_four_sentences(hearing, steps=1000)


class Given(Stack):
    """Its loss is what it is given, and its logits name the right next word, or another."""

    cost, right = 0.0, True
    calls, trained = (), 0

    def loss(self, tokens, targets, state=None, lengths=None):
        self.calls = [*self.calls, (self.training, tokens.clone(), targets.clone())]
        weight = next(self.parameters())
        return torch.full(targets.shape, self.cost) + 0 * weight.sum(), {}

    def forward(self, tokens, state=None, lengths=None):
        targets = self.calls[-1][2]
        shown = targets if self.right else targets.roll(1, dims=0)
        return torch.nn.functional.one_hot(shown, self.vocabulary).float(), {}


@pytest.mark.parametrize(
    ("cost", "right", "steps", "holds"),
    [
        (0.049, True, 1, True),  # it stops at once
        (0.051, True, 4, True),
        (0.099, True, 4, True),
        (0.101, True, 4, False),
        (0.049, False, 1, False),  # sure of the wrong words
    ],
)
def test_what_counts_as_memorised_is_a_loss_of_a_tenth_and_the_right_words(cost, right, steps, holds):
    model = stack(Given, 20)
    model.cost, model.right = cost, right
    if holds:
        learning.it_memorises_four_sentences(model, steps=4)
    else:
        chance = f"{torch.tensor(-cost).exp():.2g}"
        said = f"after 4 steps on four sentences it still gives some next word a probability of only {chance}: "
        with pytest.raises(Broken, match=said):
            learning.it_memorises_four_sentences(model, steps=4)
    assert [training for training, *_ in model.calls] == [True] * steps + [False]
    tokens, targets = model.calls[0][1:]
    assert tokens.shape == targets.shape == (4, 3)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert len(tokens.unique()) == 11  # two sentences go on after "their", with different words


def test_a_model_with_too_few_words_cannot_be_asked_to_memorise():
    with pytest.raises(AssertionError):
        learning.it_memorises_four_sentences(stack(Given, 15), steps=1)
    model = stack(Given, 16)  # fifteen words and <eos>
    learning.it_memorises_four_sentences(model, steps=1)
    assert max(int(targets.max()) for _, _, targets in model.calls) == 15


def test_law_13_asks_for_both_and_trains_a_model_made_to_learn(monkeypatch):
    """What does not memorise breaks it, what is sure of something untrained breaks it, and dropout is off."""
    made = []

    def build(vocabulary=17, *, learner=False):
        made.append((vocabulary, learner))
        return stack(vocabulary=vocabulary)

    def fails(sentence):
        def check(given, *more):
            assert (given() if callable(given) and not isinstance(given, Stack) else given).vocabulary
            raise Broken(sentence)

        return check

    monkeypatch.setattr(registry, "it_can_memorise", fails("it learns nothing"))
    (result,) = run_laws(build, only=(13,))
    assert (result.holds, result.sentence) == (False, "it learns nothing.")
    assert (1000, False) in made  # of a thousand words, so that 1 is far from log V
    assert made[-1] == (17, True)
    cases = []
    monkeypatch.setattr(registry, "it_can_memorise", lambda build: None)
    monkeypatch.setattr(registry, "untrained_it_knows_nothing", lambda model, draw: cases.append((model, draw)))
    assert run_laws(build, only=(13,))[0].holds
    ((model, draw),) = cases
    assert (draw.rows, draw.columns) == (40, 20)  # of so many words the mean loss is near log V
    assert not model.training
    assert next(model.parameters()).dtype == torch.float64
    monkeypatch.setattr(registry, "untrained_it_knows_nothing", fails("it knows something"))
    (result,) = run_laws(build, only=(13,))
    assert (result.holds, result.sentence) == (False, "it knows something.")


def test_a_counted_system_is_not_trained(monkeypatch):
    monkeypatch.setattr(registry, "it_can_memorise", lambda build: pytest.fail("it was trained"))
    assert [result.holds for result in run_laws(builder("ngram"), only=(13,))] == [True]


# -- searching -------------------------------------------------------------------------------------------------------


class KnowsItsRow(Stack):
    """7: a text that is written beside others is another one."""

    def predict(self, hidden):
        logits = super().predict(hidden)
        return logits if len(logits) == 1 else logits.roll(1, dims=-1)


def test_a_text_that_depends_on_its_batch_mates_breaks_law_7():
    torch.manual_seed(0)
    beam_one_is_greedy(stack().double().eval(), RandomCase(3, 3, 5))
    with pytest.raises(Broken, match="a beam of 1 writes"):
        beam_one_is_greedy(stack(KnowsItsRow).double().eval(), RandomCase(3, 3, 5))


class ByCompany(Stack):
    """7: beside others it writes 4 again and again, alone 5."""

    def predict(self, hidden):
        logits = hidden.new_zeros(*hidden.shape[:-1], self.vocabulary)
        return logits.index_fill(-1, torch.tensor(4 if len(logits) > 1 else 5), 1.0)


class TranslatesByCompany(Seq2Seq):
    predict = ByCompany.predict


@pytest.mark.parametrize(("translates", "beam", "greedy"), [(False, 5, 4), (True, 4, 5)])
def test_what_a_beam_wrote_and_what_greedy_decoding_wrote_are_not_confused(translates, beam, greedy):
    """A beam reads prompts alone, and greedy decoding together; of translations it is the other way round."""
    if translates:
        model = TranslatesByCompany(17, Settings(layers=1, width=8, embedding=6)).double().eval()
    else:
        model = ByCompany(Embedding(17, 8), [GRU(8, 8)], Output(8, 17, tied=True, bias=False)).double().eval()
    with pytest.raises(Broken) as broken:
        beam_one_is_greedy(model, RandomCase(3, 3, 3))
    said = f"a beam of 1 writes {[beam] * 3} but greedy decoding writes {[greedy] * 3}: "
    assert str(broken.value).startswith(said)


# -- translators -----------------------------------------------------------------------------------------------------


class AnotherSource(Seq2Seq):
    """10: the hypotheses of a source begin with the memory of another."""

    def begin_from(self, encoded, source, lengths, *, width=1, **how):
        if width > 1:
            encoded = map_state(lambda part: part.roll(1, dims=0), encoded)
        return super().begin_from(encoded, source, lengths, width=width, **how)


class ExplainsAnother(Seq2Seq):
    """5: the source is explained by other numbers."""

    def explain_encode(self, source, lengths):
        encoded, parts = super().explain_encode(source, lengths)
        return map_state(lambda part: part * (1 + 1e-7), encoded), parts


class ReadsPadding(Seq2Seq):
    """3: the padding of a source counts."""

    def encode(self, source, lengths):
        return super().encode(source, None)


class ExplainsMore(Seq2Seq):
    """5: the memory that is explained has one component more."""

    def explain_encode(self, source, lengths):
        encoded, parts = super().explain_encode(source, lengths)
        return {**encoded, "memory": torch.nn.functional.pad(encoded["memory"], (0, 1))}, parts


def test_what_another_shape_should_have_been_is_said():
    def build(vocabulary=17, **_):
        return ExplainsMore(vocabulary, Settings(layers=1, width=8, embedding=6))

    (result,) = run_laws(build, only=(5,))
    assert re.search(r"equation in the memory from shape \[\d+, 9\] to \[\d+, 8\]", result.sentence), result.sentence


class CountsAnew(Stack):
    """6: what it counts depends on a number that is not saved."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.from_ = int(torch.randint(1000, ()))

    def forward(self, tokens, state=None, lengths=None):
        logits, state = super().forward(tokens, state, lengths)
        return logits, {**state, "seen": state["seen"] * 0 + self.from_}


def test_a_state_that_is_not_saved_is_said_as_it_was_and_as_it_is_when_loaded():
    made = []

    def build(vocabulary=17, **_):
        made.append(stack(CountsAnew))
        return made[-1]

    (result,) = run_laws(build, only=(6,))
    before, after = (model.from_ for model in made)
    assert f"saving and loading changes the state (seen) from {before} to {after}" in result.sentence


class WritesIntoWhatItIsGiven(Cell):
    """8: a step that changes the dict it was given; a decoder calls it with its own."""

    how = "replace"

    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.input = torch.nn.Linear(inputs, width)

    def step(self, x, state):
        new = {"hidden": 0.5 * state["hidden"] + self.input(x).tanh()}
        if self.how == "replace":
            state["hidden"] = new["hidden"]
        elif self.how == "add":
            state["last"] = x
        elif self.how == "remove":
            del state["hidden"]
        return new


@pytest.mark.parametrize("how", ["replace", "add", "remove"])
def test_a_cell_that_changes_the_dict_it_is_given_breaks_law_8(monkeypatch, how):
    def build(vocabulary=17, **_):
        return stack(layer=WritesIntoWhatItIsGiven, vocabulary=vocabulary)

    monkeypatch.setattr(WritesIntoWhatItIsGiven, "how", "nothing")
    assert run_laws(build, only=(8,))[0].holds
    monkeypatch.setattr(WritesIntoWhatItIsGiven, "how", how)
    (result,) = run_laws(build, only=(8,))
    assert result.sentence.startswith(f"a call alters the state it was given ({'last' if how == 'add' else 'hidden'})")


@pytest.mark.parametrize(("kind", "law"), [(AnotherSource, 10), (ExplainsAnother, 5), (ReadsPadding, 3)])
def test_a_fault_of_a_translator_breaks_its_law(kind, law):
    def build(vocabulary=17, **_):
        return kind(vocabulary, Settings(layers=1, width=8, embedding=6))

    (result,) = run_laws(build, only=(law,))
    assert not result.holds
    assert not result.sentence.startswith("it crashed"), result.sentence
