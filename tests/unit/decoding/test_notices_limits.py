"""What saves work and memory without changing a text, and what is refused at which edge, with which sentence."""

import json
import math
import sys

import pytest
import torch
from test_beam import Table
from test_engine import attention

from regard.base.errors import RegardError
from regard.decoding import beam as searching
from regard.decoding.adjustments import Adjustment
from regard.decoding.beam import Beam, Ended, Hypothesis, _look, beam_search
from regard.decoding.beam_engine import BeamBatch, BeamEngine, SlotTable
from regard.decoding.beam_slots import BeamConfig, Slots
from regard.decoding.constraints import MAX_CHARACTERS, Constraints
from regard.decoding.engine import Engine, Prompt
from regard.decoding.generate import generate, read_prompts
from regard.decoding.growing_text import BEFORE, GrowingText
from regard.decoding.sampling import GREEDY, Sampling, choose, one_sampling
from regard.decoding.translate import translate
from regard.decoding.writer import Writer, has_growing_cache
from regard.systems import linear_attention, lstm, seq2seq
from regard.text.tokenizers.tokenizer import Tokenizer

EOS, V = 0, 17


@pytest.fixture(scope="module")
def language():
    torch.manual_seed(0)
    return lstm.LSTMModel(V, lstm.Settings(layers=1, width=8)).double().eval()


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    return seq2seq.Seq2Seq(V, seq2seq.Settings(layers=1, width=8, embedding=6)).double().eval()


# -- when a search is over -------------------------------------------------------------------------------------------

FURTHEST = {1.0: 9, 0.5: 9, 0.0: 4, -0.5: 4}  # a penalty, and the length at which an open hypothesis is worth most


@pytest.mark.parametrize("penalty", FURTHEST)
@pytest.mark.parametrize("n_best", [1, 2])
def test_a_search_is_over_as_soon_as_no_open_hypothesis_can_overtake_the_finished(penalty, n_best):
    """Of at most nine words three are written. At the edge both are equal, and the one that ended first is kept."""
    ended = Ended(1, 3, torch.tensor([9]), penalty, n_best)
    slots = Slots(1, 9, 5, BeamConfig(3, EOS, n_best, penalty), torch.device("cpu"))
    slots.fill(torch.tensor([0]), torch.tensor([9]))
    slots.length[0] = 2  # before the step
    for table in (ended.score, slots.ended_score):
        table[0] = torch.tensor([-1.0, -2.0, -torch.inf, 0.0])  # the last place is for what is not kept
    edge = -float(n_best) * FURTHEST[penalty] ** penalty
    for best, over in ((edge, True), (math.nextafter(edge, 0), False), (edge * 1.001, True)):
        best = torch.tensor([best], dtype=torch.float64)
        assert ended._settled(torch.tensor([0]), best, 3).tolist() == [over]
        assert slots._settled(best).tolist() == [over]


def test_an_open_source_is_not_over_before_enough_hypotheses_are_finished():
    slots = Slots(2, 9, 5, BeamConfig(3, EOS, 2), torch.device("cpu"))
    slots.ended_score[:, 0] = -1e-9
    assert slots._settled(torch.full((2,), -50.0).double()).tolist() == [False, False]


@pytest.mark.parametrize(
    ("open_slots", "most", "stay"),
    [
        ([1] * 7 + [0], 1, list(range(7))),  # one of eight is done
        ([2] * 8 + [0], 2, None),  # one of nine
        ([0, 0, 3], 3, [2]),
        ([1, 1], 1, None),
        ([0, 0], 0, []),
    ],
)
def test_finished_sources_leave_when_they_are_an_eighth_of_the_batch(open_slots, most, stay):
    live = torch.arange(4) < torch.tensor(open_slots)[:, None]
    slots, staying = _look(live)
    assert slots == most
    assert (None if staying is None else staying.tolist()) == stay


@pytest.mark.parametrize(("sources", "rows"), [(8, [14, 14]), (9, [18, 18])])
def test_finished_samples_leave_when_their_sources_are_an_eighth_of_the_batch(monkeypatch, sources, rows):
    model, read = Table(vocabulary=6, seed=1), []
    plain = model.read
    monkeypatch.setattr(model, "read", lambda tokens, state: read.append(len(tokens)) or plain(tokens, state))
    never = {"eos": EOS, "beam": Sampling(), "forbidden": [EOS], "samples": 2}
    monkeypatch.setattr("regard.decoding.translate.longest_translation", lambda source: 1 if source == 1 else 3)
    found = list(translate(model, [[1], *[[2, 3]] * (sources - 1)], **never))
    assert [len(h.tokens) for best in found for h in best] == [1, 1] + [3, 3] * (sources - 1)
    assert read == [sources, *rows]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("between", [1, 2, 5])
def test_who_watches_a_search_that_looks_seldom_changes_nothing(monkeypatch, between, width):
    """The candidates that are only watched stay in the batch until the next look."""
    model, seen = Table(vocabulary=13, seed=3), []
    asked = {"width": width, "max_tokens": 6, "eos": EOS, "length_penalty": 1.0}

    def searched(**more):
        state = model.begin(rows=2)
        hidden, state = model.read(torch.tensor([[0], [4]]), state)
        found = beam_search(model, hidden[:, 0], state, **asked, **more)
        return [[h.tokens for h in best] for best in found]

    usual = searched()
    monkeypatch.setitem(searching.STEPS_BETWEEN_LOOKS, "cpu", between)
    assert searched() == searched(watch=seen.append) == usual
    assert len(seen) >= max(len(tokens) for best in usual for tokens in best)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(top_p=0.5)])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_an_infinite_prediction_is_damaged_too(monkeypatch, sampling, bad):
    model, logits = attention(), torch.zeros(1, V).index_fill(-1, torch.tensor([3]), bad)
    with pytest.raises(RegardError, match="its weights are damaged"):
        choose(logits, sampling, torch.tensor([0.5]))
    monkeypatch.setattr(model, "predict", lambda hidden: logits.expand(len(hidden), -1).double())
    for most in (1, 3):
        with pytest.raises(RegardError, match="its weights are damaged"):
            list(Engine(model, eos=EOS, sampling=sampling).texts([[EOS]], max_tokens=most))
    low = torch.full((1, V), -math.inf).index_fill(-1, torch.tensor([3]), 0.0)
    assert choose(low, sampling, torch.tensor([0.5])).tolist() == [3]  # what cannot come may be −∞


def test_what_was_cut_off_has_no_eos_to_leave_out():
    assert Hypothesis([4, 5, EOS], -1.0, -1.0).text_tokens == [4, 5]
    assert Hypothesis([4, 5, 6], -1.0, -1.0, finished=False).text_tokens == [4, 5, 6]


# -- the beam engine -------------------------------------------------------------------------------------------------


def test_no_look_is_taken_before_a_hypothesis_can_end(translator, monkeypatch):
    steps, looks, run, look = [], [], BeamBatch.run, SlotTable.look
    monkeypatch.setattr(BeamBatch, "run", lambda batch, count: (steps.append(count), run(batch, count))[1])
    monkeypatch.setattr(SlotTable, "look", lambda table: (looks.append(table), look(table))[1])
    BeamEngine(translator).search([[3, EOS]], [9], BeamConfig(2, EOS, 1, min_tokens=5))
    assert steps[0] == 5
    assert set(steps[1:]) <= {1}
    assert len(looks) == len(steps)
    steps.clear()
    BeamEngine(translator).search([[3, EOS]], [3], BeamConfig(1, EOS, 1, min_tokens=7, forbidden=(EOS,)))
    assert steps == [3]  # nor more steps than may be written


@pytest.mark.parametrize(("limit", "room"), [(1, 32), (32, 32), (33, 64)])
def test_room_is_made_for_multiples_of_32_tokens(translator, limit, room):
    engine = BeamEngine(translator)
    engine.search([[3, EOS], [4, EOS]], [limit, 1], BeamConfig(1, EOS, 1))
    (key,) = engine.batches
    assert key[1:] == (2, 8, room)
    assert engine.batches[key].slots.words.shape == (2, 2, 1, room)


def test_the_batch_that_was_used_longest_ago_goes_first(translator):
    engine, terms = BeamEngine(translator), BeamConfig(1, EOS, 1)
    for places in (1, 2, 4, 1, 8):
        engine.search([[3, EOS]] * places, [1] * places, terms)
    assert [key[1] for key in engine.batches] == [4, 1, 8]


def test_out_of_memory_half_as_many_sources_are_searched_at_once(translator, monkeypatch):
    """As on a GPU; kept batches are given up, and one source alone that does not fit is refused."""
    engine, terms, plain = BeamEngine(translator, batch_tokens=16 * 8), BeamConfig(1, EOS, 1), BeamEngine._batch
    sources, limits = [[n, EOS] for n in range(1, 17)], [3] * 16
    usual = engine.search(sources, limits, terms)
    tried, most = [], 4

    def small(self, terms, places, longest, room):
        tried.append((places, len(self.batches)))
        if places > most:
            raise torch.OutOfMemoryError
        return plain(self, terms, places, longest, room)

    monkeypatch.setattr(BeamEngine, "_batch", small)
    found = engine.search(sources, limits, terms)
    assert tried == [(16, 1), (8, 0), (4, 0)]
    assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in usual]
    assert engine.batch_tokens == 4 * 8
    most = 0
    with pytest.raises(RegardError, match=r"does not fit into the GPU's memory: use a smaller --beam\.$"):
        engine.search(sources[:1], limits[:1], terms)


def test_waiting_sources_are_begun_when_an_eighth_of_the_places_is_free(translator, monkeypatch):
    """Fifteen sources and eight places, of which one is free after a step: who waits is begun at once."""
    begun, plain = [], SlotTable.begin
    monkeypatch.setattr(
        SlotTable, "begin", lambda table, numbers, *more: (begun.append(len(numbers)), plain(table, numbers, *more))[1]
    )
    engine = BeamEngine(translator, batch_tokens=8 * 8)
    engine.search([[3, EOS]] * 12, [9] * 7 + [2, 1, 1, 1, 1], BeamConfig(1, EOS, 1, forbidden=(EOS,)))
    assert begun == [8, 1, 1, 1, 1]


def test_places_are_halved_for_sources_that_are_longer(translator):
    engine = BeamEngine(translator, batch_tokens=64)
    wide = [engine._places(longest, BeamConfig(2, EOS, 1)) for longest in (8, 12, 16, 32, 33, 64)]
    assert wide == [4, 2, 2, 1, 1, 1]


# -- translations ----------------------------------------------------------------------------------------------------


def test_greedy_samples_are_all_the_same_and_as_many_as_asked_for(translator):
    (found,) = translate(translator, [[3, 4]], eos=EOS, beam=Sampling(0.0), samples=3)
    (best,) = translate(translator, [[3, 4]], eos=EOS, beam=Beam(1, length_penalty=0.0))
    assert [h.tokens for h in found] == [best[0].tokens] * 3


def test_under_autocast_no_engine_is_used(translator):
    class Refuses:
        def search(self, *asked):
            raise AssertionError("it was used")

    with torch.autocast("cpu", torch.bfloat16):
        list(translate(translator.float(), [[3, 4]], eos=EOS, max_tokens=2, engine=Refuses()))
    translator.double()
    with pytest.raises(AssertionError, match="it was used"):
        list(translate(translator, [[3, 4]], eos=EOS, max_tokens=2, engine=Refuses()))


def test_a_translation_may_be_as_long_as_the_fewest_tokens_that_are_demanded(translator):
    (found,) = translate(translator, [[3]], eos=EOS, beam=Beam(1), min_tokens=40)
    assert len(found[0].tokens) == 40
    (found,) = translate(translator, [[3]], eos=EOS, beam=Beam(1), min_tokens=4, max_tokens=4)
    assert len(found[0].tokens) == 4
    for options, said in (
        ({"max_tokens": 0}, "--min-tokens (1) exceeds the limit of 0 tokens: lower it, or raise the limit."),
        ({"max_tokens": 4, "min_tokens": 5}, "--min-tokens (5) exceeds the limit of 4 tokens: lower it, or raise "),
    ):
        with pytest.raises(RegardError) as error:
            list(translate(translator, [[3]], eos=EOS, **options))
        assert said in str(error.value)


def test_a_sentence_is_named_by_its_number_in_the_file():
    model = Table()
    model.source_context = 4
    assert len(list(translate(model, [[1] * 3, [1] * 3 + [EOS]], eos=EOS, first=8))) == 2
    said = "Sentence 10 has 5 tokens including <eos>, but this model reads at most 4; split or shorten it, or train "
    with pytest.raises(RegardError) as error:
        list(translate(model, [[1], [1] * 4], eos=EOS, first=8))
    assert said in str(error.value)


# -- the engine's rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "prompt", "most", "capacity"),
    [(None, 3, 5, 8), (None, 3, 900, 3 + 512), (40, 3, 5, 8), (40, 3, 900, 40), (40, 60, 5, 40)],
)
def test_a_row_has_room_for_its_text_and_for_no_more(context, prompt, most, capacity):
    engine = Engine(attention(context or 12, **({} if context else {"position": "rotary"})), eos=EOS)
    text = engine.submit([EOS] * prompt, max_tokens=most)
    assert len(text.tokens) == min(prompt, context or prompt)
    engine.submit([EOS], max_tokens=3)
    engine.step()
    assert engine.batch.writer.capacity == capacity
    assert engine.batch.writer.rows == 2


@pytest.mark.parametrize(("need", "capacity"), [(7, 15), (8, 15), (9, 31), (24, 31), (25, 47)])
def test_on_a_gpu_a_row_has_room_for_a_launch_more_and_its_slots_with_the_spare_one_are_sixteens(need, capacity):
    engine = Engine(attention(), eos=EOS, steps=8)
    assert engine._capacity(need) == need
    engine.device = torch.device("cuda")
    assert engine._capacity(need) == capacity


def test_a_full_row_gets_twice_the_room_and_what_it_had_is_freed(monkeypatch):
    monkeypatch.setattr("regard.decoding.engine.FIRST_CAPACITY", 4)
    engine, writers = Engine(attention(position="rotary"), eos=EOS, rows=1), []
    text = engine.submit([EOS], max_tokens=30)
    while not text.done:
        engine.step()
        if engine.batch.writer not in writers:
            writers.append(engine.batch.writer)
    assert not any(vars(writer) for writer in writers[:-1])  # at most one is kept
    assert [writer.capacity for writer in writers[-1:]] == [40]
    assert len(writers) == 4
    assert [*engine.writers.values()] == writers[-1:]


def test_only_attention_has_a_cache_that_fills_up(language):
    linear = linear_attention.LinearTransformer(V, linear_attention.Settings(layers=1, width=8, heads=2, context=12))
    assert [has_growing_cache(model) for model in (attention(), language, linear)] == [True, False, False]
    engine = Engine(language, eos=EOS)
    engine.submit([EOS] * 9, max_tokens=50)
    engine.step()
    assert engine.batch.writer.capacity == 1


@pytest.mark.parametrize(("free", "launches"), [(1, 9), (2, 1), (3, 1)])
def test_a_prompt_waits_for_an_eighth_of_the_rows_and_for_eight_launches_at_most(language, free, launches):
    engine = Engine(language, eos=EOS, rows=16)
    for number in range(16):
        engine.submit([EOS], max_tokens=3 if number < free else 1000, number=number)
    while len(engine.batch.free if engine.batch else []) < free:
        engine.step()
    late = engine.submit([EOS], max_tokens=5)
    waited = 0
    while not late.written:
        engine.step()
        waited += 1
    assert waited == launches


def test_a_batch_grows_to_twice_its_rows_or_to_all_that_wait(language):
    for waiting, rows in ((1, 2), (2, 3), (9, 10), (40, 16)):
        engine = Engine(language, eos=EOS, rows=16)
        engine.submit([EOS], max_tokens=50)
        engine.step()
        assert engine.batch.writer.rows == 1
        for number in range(waiting):
            engine.submit([EOS], max_tokens=50, number=number)
        engine.step()
        assert engine.batch.writer.rows == rows


def test_a_text_is_read_again_only_when_all_of_its_tokens_have_arrived(monkeypatch):
    """On a GPU the last ones may still be on their way."""
    engine, calls = Engine(attention(6), eos=EOS, rows=2), []
    receive, make_room = engine._receive, engine._make_room
    monkeypatch.setattr(engine, "_receive", lambda ahead: calls.append(ahead) or receive(ahead))
    monkeypatch.setattr(engine, "_make_room", lambda *given: calls.append("room") or make_room(*given))
    list(engine.texts([[EOS], [EOS, 3]], max_tokens=20))
    assert calls.count("room") > 2
    for place, call in enumerate(calls):
        if call == "room":
            assert calls[place - 1] == 0
            assert calls[place - 2] != "room"


def test_rows_that_are_free_are_those_that_no_other_text_takes(language):
    engine = Engine(language, eos=EOS, rows=3)
    assert engine.places == 3
    texts = [engine.submit([EOS], max_tokens=9, number=number) for number in range(2)]
    assert engine.places == 1
    engine.step()
    assert engine.places == 1
    texts += [engine.submit([EOS], max_tokens=9, number=number) for number in range(2, 5)]
    assert engine.places == 0
    engine.cancel(texts[4])  # which waits
    engine.cancel(texts[0])  # which is being written
    assert engine.places == 0
    engine.cancel(texts[3])
    assert engine.places == 1


def test_who_stops_listening_stops_the_writing(language):
    engine = Engine(language, eos=EOS, rows=2)
    stream = engine.stream([[EOS]] * 5, max_tokens=50)
    next(stream)
    assert engine.midway
    stream.close()
    assert not engine.midway
    assert engine.places == 2
    assert not engine.waiting


@pytest.mark.parametrize(("rows", "left"), [(4, 2), (5, 2)])
def test_rows_are_given_up_once_half_of_them_are_idle(language, rows, left):
    engine = Engine(language, eos=EOS, rows=rows)
    for number in range(rows):
        engine.submit([EOS], max_tokens=40 if number < 3 else 5, number=number)
    for _ in range(8):
        engine.step()
    assert engine.batch.writer.rows == rows  # three of four or five write
    engine.cancel(next(text for text in engine.batch.texts if text.number == 1))
    engine.step()
    assert engine.batch.writer.rows == left
    assert [text.number for text in engine.batch.texts] == [0, 2]


def test_no_text_is_begun_while_as_many_as_may_wait_for_an_earlier_one(language, monkeypatch):
    monkeypatch.setattr("regard.decoding.engine.AHEAD", 3)
    engine, held = Engine(language, eos=EOS), []

    def stream(prompts, *, hold, first, **options):
        for number in (6, 7, 8, 5, 9):
            yield number, [number], True
            held.append(hold())

    monkeypatch.setattr(engine, "stream", stream)
    assert list(engine.texts([], max_tokens=1, first=5)) == [[5], [6], [7], [8], [9]]
    assert held == [False, False, True, False, False]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()])
@pytest.mark.parametrize("most", [1, 5])
def test_a_prediction_that_is_no_number_is_refused_from_the_first_token_on(sampling, most):
    """And a text whose row had such a prediction before is written again once the weights are right."""
    model = attention()
    engine, right = Engine(model, eos=EOS, sampling=sampling, rows=1), model.embedding.table.weight.detach().clone()
    usual = list(engine.texts([[EOS]], max_tokens=most))
    torch.nn.init.constant_(model.embedding.table.weight, torch.nan)
    with pytest.raises(RegardError, match="The model's predictions are NaN: its weights are damaged; train it again"):
        list(engine.texts([[EOS]], max_tokens=most))
    with torch.no_grad():
        model.embedding.table.weight.copy_(right)
    assert list(engine.texts([[EOS]], max_tokens=most)) == usual


def test_tokens_that_were_taken_are_not_given_again(language):
    engine = Engine(language, eos=EOS, sampling=GREEDY, rows=1)
    text, whole = engine.submit([EOS, 3], max_tokens=7), []
    while not text.done:
        engine.step()
        whole += text.take()
    assert text.take() == []
    assert [whole] == list(engine.texts([[EOS, 3]], max_tokens=7))


def test_unfit_tokens_are_only_those_that_a_prompt_names(language):
    (found,) = Engine(language, eos=EOS).texts([Prompt([EOS], [n for n in range(V) if n != 7])], max_tokens=6)
    assert found[0] == 7
    (found,) = Engine(attention(2), eos=EOS).texts([Prompt([EOS], [n for n in range(V) if n != 7])], max_tokens=6)
    (usual,) = Engine(attention(2), eos=EOS).texts([[EOS, 7]], max_tokens=5)
    assert found == [7, *usual]  # also where the context is full after each token and the text is read again


def test_writers_steps_are_no_more_than_a_launch(language):
    step = Engine(language, eos=EOS).one_step
    writer = Writer(step, 3, 2, 1)
    assert writer.written.shape == (4, 2)
    assert writer.uniform.shape == (3, 2)
    assert writer.limit == 2**62  # a state that does not grow has no end


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "field", "inside", "outside", "said"),
    [
        (Sampling, "temperature", [0.0, 1e9], [-1e-9, math.inf], "temperature must be at least 0 (0 = greedy), not"),
        (Sampling, "top_k", [0, 1], [-1], "top_k must be at least 0 (0 = no limit), not -1."),
        (Sampling, "top_p", [1e-9, 1.0], [0.0, 1.001], "top_p must be above 0 and at most 1, not"),
        (Sampling, "min_p", [0.0, 1.0], [1.001], "min_p must be at most 1, not 1.001."),
        (Sampling, "repetition_penalty", [1e-9, 10.0], [0.0, 10.001],
         "repetition_penalty must be above 0 and at most 10.0 (1 = none), not"),
        (Sampling, "presence_penalty", [-2.0, 2.0], [2.001], "presence_penalty must be at most 2.0, not 2.001."),
        (Sampling, "frequency_penalty", [-2.0, 2.0], [-2.001], "frequency_penalty must be at least -2.0, not -2.001"),
        (Sampling, "logit_bias", [{1: 100.0}, {1: -100.0}], [{1: 100.5}, {0: 1.0, 1: 101.0}],
         "logit_bias must be at most 100.0, not 10"),
        (Beam, "width", [1, 10_000], [10_001], "width must be at most 10000, not 10001."),
        (Beam, "n_best", [1, 5], [6, 0], "n_best must be at least 1 and at most width 5, not"),
        (Beam, "length_penalty", [-10.0, 10.0], [-10.1, 10.1], "length_penalty must be between -10 and 10, not"),
    ],
)  # fmt: skip
def test_settings_end_where_they_say(kind, field, inside, outside, said):
    for value in inside:
        assert getattr(kind(**{field: value}), field) == value
    for value in outside:
        with pytest.raises(RegardError) as error:
            kind(**{field: value})
        assert str(error.value).startswith(said)


def test_how_to_sample_is_given_once():
    assert one_sampling(None, None, None, None) == Sampling()
    assert one_sampling(None, 0.5, 3, 0.9) == Sampling(0.5, 3, 0.9)
    assert one_sampling(None, 0.0, None, None) == Sampling(0.0)
    given = Sampling(0.3)
    assert one_sampling(given, None, None, None) is given
    for name, fields in (("temperature", (0.0, None, None)), ("top_k", (None, 0, 1.0)), ("top_p", (None, None, 1.0))):
        with pytest.raises(RegardError, match=f"sampling and {name} both specify how to sample: give only one"):
            one_sampling(given, *fields)


def test_only_what_depends_on_the_text_adjusts_logits():
    assert not any(how.adjusts for how in (Sampling(), Sampling(0.5, 3, 0.5, 0.5), GREEDY))
    for how in ({"repetition_penalty": 1.1}, {"presence_penalty": -0.1}, {"frequency_penalty": 0.1},
                {"logit_bias": {3: 0.0}}, {"regex": "a"}, {"json_schema": "{}"}, {"choices": ["a"]}):  # fmt: skip
        assert Sampling(**how).adjusts
        assert Sampling(**how).constrained == (not {*how}.isdisjoint(("regex", "json_schema", "choices")))


# -- constraints and pieces ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bytewise():
    return Tokenizer.train(['{"name": "cat", "age": 7}'], "byte", normalise="none")


@pytest.mark.parametrize("name", MAX_CHARACTERS)
def test_a_constraint_may_be_as_long_as_its_limit_and_no_longer(bytewise, name):
    pytest.importorskip("llguidance")
    most = {"regex": 4096, "json_schema": 65_536, "choices": 65_536}[name]
    given = {"regex": "a" * most, "json_schema": "{}".ljust(most), "choices": ("a" * (most - 1), "b")}[name]
    guides = Constraints(bytewise)
    compiled = []
    guides.compiled = lambda *asked: compiled.append(asked) or guides._compile("a", "", ())
    guides.begin(Sampling(**{name: given}))
    assert compiled
    longer = (*given, "c") if name == "choices" else given + " "
    with pytest.raises(RegardError) as error:
        guides.begin(Sampling(**{name: longer}))
    shown = {"regex": "4096"}.get(name, "65,536")
    assert str(error.value) == f"The constraint ({name}) has more than {shown} characters: shorten it."


def test_json_is_written_as_python_writes_it(bytewise):
    pytest.importorskip("llguidance")
    schema = {"type": "object", "required": ["a", "b"], "additionalProperties": False,
              "properties": {"a": {"const": [1, 2]}, "b": {"const": "x"}}}  # fmt: skip
    guide = Constraints(bytewise).begin(Sampling(json_schema=json.dumps(schema)))
    written = []
    while not (allowed := guide.allowed())[bytewise.eos]:
        assert int(allowed.sum()) == 1  # no space may be added and none left out
        written.append(int(allowed.nonzero()[0]))
        guide.add(written[-1])
    assert bytewise.decode(written) == '{"a": [1, 2], "b": "x"}'


def test_two_texts_of_one_constraint_are_at_their_own_places(bytewise):
    pytest.importorskip("llguidance")
    guides, how = Constraints(bytewise), Sampling(choices=("ab", "cd"))
    one, other = guides.begin(how), guides.begin(how)
    one.add(bytewise.encode("a")[0])
    assert one.allowed().nonzero().flatten().tolist() == bytewise.encode("b")
    assert other.allowed().sum() == 2
    assert guides.begin(Sampling()) is None


def test_of_a_growing_text_no_more_is_decoded_again_than_a_few_tokens(bytewise):
    grown, most = GrowingText(bytewise, bytewise.encode("a" * 99)), 0
    for _ in range(200):
        assert grown.add(bytewise.encode("b")) == "b"
        most = max(most, len(grown.tokens))
    assert BEFORE <= most <= 2 * BEFORE + 1


def test_a_search_without_options_keeps_all_slots_and_scores_by_the_sum():
    model = Table(vocabulary=6, seed=2)
    state = model.begin(rows=1)
    hidden, state = model.read(torch.zeros(1, 1, dtype=torch.int64), state)
    (found,) = beam_search(model, hidden[:, 0], state, width=3, max_tokens=4, eos=EOS)
    assert len(found) == 3
    for hypothesis in found:
        assert hypothesis.score == pytest.approx(hypothesis.log_probability)


# -- what is rarely met ----------------------------------------------------------------------------------------------


def test_a_translator_follows_no_constraint(translator):
    with pytest.raises(RegardError) as error:
        Adjustment(Sampling(choices=("a",)), [])
    assert str(error.value) == "Constraints apply only to language models: leave the constraint out."


def test_a_search_of_a_language_model_goes_on_without_the_texts_that_have_ended(language, monkeypatch):
    """Each of eight rows has a limit of its own; a state without sources loses only its rows."""
    prompts, read, plain = [[EOS, n] for n in range(1, 9)], [], language.read
    monkeypatch.setattr(language, "read", lambda tokens, *more: read.append(len(tokens)) or plain(tokens, *more))
    with torch.no_grad():
        logits, state = read_prompts(language, prompts, None)
        limits = torch.tensor([1, 2, 2, 4, 4, 4, 4, 4])
        together = beam_search(language, logits, state, width=2, max_tokens=limits, eos=EOS, forbidden=[EOS])
        alone = [
            beam_search(language, *read_prompts(language, [prompt], None), width=2, max_tokens=limit, eos=EOS,
                        forbidden=[EOS])[0]
            for prompt, limit in zip(prompts, limits.tolist())
        ]  # fmt: skip
    assert [[h.tokens for h in best] for best in together] == [[h.tokens for h in best] for best in alone]
    assert read[:4] == [8, 14, 10, 10]


def test_shorter_sources_continue_in_a_batch_that_holds_more(translator):
    engine, terms = BeamEngine(translator, batch_tokens=32), BeamConfig(1, EOS, 1)
    sources = [[3] * 20 + [EOS], *([n, EOS] for n in range(1, 7))]
    found = engine.search(sources, [2] * 7, terms)
    assert [key[1:3] for key in engine.batches] == [(1, 24), (4, 8)]
    usual = [BeamEngine(translator).search([source], [2], terms)[0] for source in sources]
    assert [best[0].tokens for best in found] == [best[0].tokens for best in usual]


def test_an_engine_with_nothing_to_do_does_nothing(language):
    engine = Engine(language, eos=EOS, rows=1)
    engine.step()
    assert engine.batch is None
    engine.cancel(engine.submit([EOS], max_tokens=5))
    engine.step()
    assert engine.batch is None
    text = engine.submit([EOS], max_tokens=2)
    while not text.done:
        engine.step()
    batch, late = engine.batch, engine.submit([EOS], max_tokens=2)
    late.done = True
    engine.step()
    assert engine.batch is batch
    assert not engine.waiting


def test_rows_that_are_too_small_for_a_later_text_are_freed_and_made_anew():
    engine = Engine(attention(40), eos=EOS, rows=1)
    for most, capacity in ((3, 4), (2, 4), (9, 10), (3, 10)):
        before = engine.writers.get(1)
        list(engine.texts([[EOS]], max_tokens=most))
        assert engine.batch.writer.capacity == capacity
        if before is not None:
            assert (before is engine.batch.writer) == bool(vars(before))


def test_what_constraints_need_is_named(bytewise, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RegardError) as error:
        Constraints(bytewise).begin(Sampling(regex="a"))
    assert str(error.value) == 'Constraints need llguidance: pip install "regard[constrain]".'


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"json_schema": "[1]"}, "The JSON schema must be a JSON object."),
        ({"choices": ("a\nb",)}, "Each choice must be one line of text that is not empty."),
        ({"choices": ("",)}, "Each choice must be one line of text that is not empty."),
        ({"regex": "a("}, "The constraint cannot be used: "),
        ({"json_schema": '{"type": "foo"}'}, "The constraint cannot be used: "),
    ],
)
def test_a_constraint_that_cannot_be_used_says_why_in_one_sentence(bytewise, how, said):
    pytest.importorskip("llguidance")
    with pytest.raises(RegardError) as error:
        Constraints(bytewise).begin(Sampling(**how))
    assert str(error.value).startswith(said)
    assert str(error.value).endswith(".")
    assert not str(error.value).endswith("..")
    assert len(str(error.value)) <= len(said) + 201


def test_what_is_not_said_is_what_the_words_say(language, translator):
    """No limit, nothing forbidden, seed 0, and the numbers of texts from 0."""
    sources = [[3, 4], [5], [6, 2, 9]]
    for beam in (Beam(), Sampling()):
        more = {"forbidden": (), "min_tokens": 0, "samples": 1, "seed": 0, "first": 0, "max_tokens": None}
        usual, said = (list(translate(translator, sources, eos=EOS, beam=beam, **how)) for how in ({}, more))
        assert [[h.tokens for h in best] for best in usual] == [[h.tokens for h in best] for best in said]
        for other in ({"seed": 1}, {"first": 1}):
            found = list(translate(translator, sources, eos=EOS, beam=beam, **other))
            assert ([[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in usual]) == (
                beam == Beam()
            )
    assert [len(best) for best in translate(translator, sources, eos=EOS)] == [1] * 3
    assert BeamConfig(2, EOS, 1) == BeamConfig(2, EOS, 1, 0.0, 0, ())
    prompts, how = [[EOS, 3], [EOS]], {"max_tokens": 80, "eos": EOS, "sampling": Sampling(2.0)}
    plain = list(generate(language, prompts, **how))
    assert plain == list(generate(language, prompts, lines=0, seed=0, forbidden=(), forbidden_first=(), **how))
    assert any(EOS in step for step in plain[:-1])  # a line end ends no text
    assert len(plain) == 80
    assert list(Engine(language, eos=EOS, sampling=Sampling(2.0)).texts(prompts, max_tokens=80)) == [
        [step[row] for step in plain] for row in range(2)
    ]
    one = [list(generate(language, prompts, lines=lines, **how)) for lines in (1, 2)]
    for lines, steps in zip((1, 2), one):
        for row in range(2):
            tokens = [step[row] for step in steps if step[row] is not None]
            assert tokens.count(EOS) == lines
            assert tokens[-1] == EOS
            assert tokens == [step[row] for step in plain][: len(tokens)]
