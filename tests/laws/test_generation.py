"""The law of the engine, for every language model: it writes what the plain loop writes for each text alone."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.engine import Engine
from regard.decoding.generate import generate
from regard.decoding.sampling import GREEDY, Sampling
from regard.fast import table
from regard.fast.decoding import recorded_writer as writing
from subjects import CONTEXT, SUBJECTS, VOCABULARY, build, title

EOS = 0
ONE_EACH = [*{subject[0]: subject for subject in reversed(SUBJECTS)}.values()]


def plain(model, prompts, **options):
    """Each text by the plain loop; text n is the n-th row of a batch of its own, whose other rows are the same."""
    found = []
    for number, prompt in enumerate(prompts):
        steps = generate(model, [prompt] * (number + 1), eos=EOS, **options)
        found.append([step[number] for step in steps if step[number] is not None])
    return found


def ragged(lengths):
    random = torch.Generator().manual_seed(sum(lengths) + len(lengths))
    return [[EOS, *torch.randint(VOCABULARY, (n,), generator=random).tolist()] for n in lengths]


@pytest.mark.parametrize("subject", SUBJECTS, ids=title)
def test_the_engine_writes_what_the_plain_loop_writes(subject):
    model, prompts = build(subject), ragged([2, 0, 7, 1])
    for sampling, lines in ((GREEDY, 0), (Sampling(1.3, top_k=9, top_p=0.9), 1)):
        options = {"max_tokens": 6, "lines": lines, "seed": 3}
        engine = Engine(model, eos=EOS, sampling=sampling, rows=2)
        assert list(engine.texts(prompts, **options)) == plain(model, prompts, sampling=sampling, **options)


@settings(max_examples=20, deadline=None)
@given(
    subject=st.sampled_from(ONE_EACH),
    lengths=st.lists(st.integers(0, CONTEXT + 3), min_size=1, max_size=6),
    rows=st.integers(1, 5),
    steps=st.integers(1, 4),
    max_tokens=st.integers(1, 40),
    lines=st.integers(0, 2),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(0, 5),
)
def test_batches_steps_and_limits_change_no_text(subject, lengths, rows, steps, max_tokens, lines, temperature, seed):
    """Also past the context, where each text re-reads when it is full itself, and in any number of steps at once."""
    model, sampling, prompts = build(subject), Sampling(temperature), ragged(lengths)
    options = {"max_tokens": max_tokens, "lines": lines, "seed": seed}
    expected = plain(model, prompts, sampling=sampling, **options)
    engine = Engine(model, eos=EOS, sampling=sampling, rows=rows, steps=steps)
    assert list(engine.texts(prompts, **options)) == expected
    assert list(engine.texts(prompts[1:], first=1, **options)) == expected[1:]  # with what the first call left behind


class Pretended:
    """Records as a GPU does, but work that is replayed is done again: nothing may depend on when it was recorded."""

    def __init__(self, device):
        pass

    def warm_up(self, work):
        return work()

    def record(self, work):
        return SimpleNamespace(replay=work)


@pytest.mark.parametrize("subject", ONE_EACH, ids=title)
def test_what_is_recorded_once_writes_every_later_text(subject, monkeypatch):
    """What a CUDA graph needs: steps read their words from tensors that keep their addresses."""
    monkeypatch.setattr(writing, "Recorder", Pretended)
    monkeypatch.setattr(writing, "synchronizes", lambda work: False)
    monkeypatch.setattr(table, "rows", lambda: tuple(replace(row, needs=lambda device: None) for row in writing.ROWS))
    model, options = build(subject), {"max_tokens": 26, "seed": 1}  # past the context
    prompts = ragged([1, 8, 5, 19, 0, 4])
    expected = plain(model, prompts, sampling=Sampling(1.3), **options)
    engine = Engine(model, eos=EOS, sampling=Sampling(1.3), rows=3, steps=4, install=table.install)
    monkeypatch.setattr(engine, "_shrink", lambda batch: None)  # a GPU keeps its shapes
    places = set()
    for start in (0, 1, 0):
        assert list(engine.texts(prompts[start:], first=start, **options)) == expected[start:]
        writer = engine.batch.writer
        places.add(tuple((leaf.data_ptr(), leaf.shape) for leaf in leaves(writer.state)))
    assert len(places) == 1
    assert [row.method for row in vars(writer)["run"].__func__.rows] == ["run"]


def leaves(state):
    for part in state.values():
        yield from leaves(part) if isinstance(part, dict) else [part]


@pytest.mark.parametrize("subject", ONE_EACH, ids=title)
def test_texts_may_be_submitted_while_others_are_written(subject):
    """Whoever comes later, or leaves early, changes no other text."""
    model, prompts = build(subject), ragged([2, 0, 7, 1, 3])
    options = {"max_tokens": 9, "seed": 3}
    expected = plain(model, prompts, sampling=Sampling(1.3), **options)
    engine = Engine(model, eos=EOS, sampling=Sampling(1.3), rows=4)
    texts, found = [], {}
    for number, prompt in enumerate(prompts):
        texts.append(engine.submit(prompt, number=number, **options))
        leaver = engine.submit(prompt, number=9, **options)
        for _ in range(2):
            engine.step()
        engine.cancel(leaver)
    while not all(text.done for text in texts):
        engine.step()
    found = [text.take() for text in texts]
    assert found == expected
    assert engine.places == 4


def test_two_streams_of_one_engine_do_not_mix():
    model, prompts = build(ONE_EACH[0]), ragged([2, 0, 7, 1])
    engine = Engine(model, eos=EOS, sampling=Sampling(1.3), rows=3)
    expected = plain(model, prompts, sampling=Sampling(1.3), max_tokens=9, seed=3)
    one, other = (engine.stream(prompts, max_tokens=9, seed=3) for _ in range(2))
    written = {number: [] for number in range(4)}
    next(other)
    for number, tokens, _ in one:
        written[number] += tokens
        next(other, None)
    assert [written[number] for number in range(4)] == expected
    other.close()  # who listened has left
    assert list(engine.texts(prompts, max_tokens=9, seed=3)) == expected
