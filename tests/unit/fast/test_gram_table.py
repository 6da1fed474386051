"""Grams found by hashing are those that a search finds, also after the grams have changed."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.fast import install
from regard.fast.counting.gram_table import find, table_of
from regard.fast.table import noting
from regard.systems.ngram import Grams, NGram, Settings


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**62), unique=True, max_size=200), st.sampled_from([1, 3, 16, 2**20, 2**31, 2**40]))
def test_the_table_finds_what_a_search_finds(chosen, stride):
    keys = torch.tensor([*sorted({key % 2**20 * stride for key in chosen}), 2**63 - 1])
    grams = NGram(2, Settings(order=2)).levels[1]
    grams.keys = keys
    queries = torch.cat([keys[:-1], keys[:-1] + 1, torch.arange(50), torch.tensor([2**62])])
    names = {int(key): name for name, key in enumerate(keys[:-1])}
    expected = [names.get(int(query), len(keys) - 1) for query in queries]
    assert Grams.find(grams, queries).tolist() == expected
    for asked in (-(10**6), 10**6):  # look-ups so far: few are searched, many hashed
        table_of(grams).asked = asked
        assert find(grams, queries).tolist() == expected
        assert table_of(grams).names(queries.numpy()).tolist() == expected
        assert ("slots" in vars(table_of(grams))) == (asked > 0)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(2, 9),
    st.sampled_from(["kneser-ney", "counts"]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_losses_and_states_of_a_text_in_pieces_are_those_of_the_written_method_to_the_last_bit(
    seed, order, vocabulary, smoothing, precision
):
    draw = np.random.default_rng(seed)
    model = NGram(vocabulary, Settings(order=order, smoothing=smoothing)).to(precision)
    model.count(np.append(draw.integers(vocabulary, size=draw.integers(200)), 0))
    words = torch.from_numpy(draw.integers(vocabulary, size=(draw.integers(1, 4), 40)))
    for level in model.levels:
        table_of(level).asked = int(draw.integers(2)) * 10**6  # searched or hashed
    with noting() as ran:
        install(model)
    mine = theirs = None
    for start, end in ((0, 1), (1, 17), (17, 39)):
        tokens, targets = words[:, start:end], words[:, start + 1 : end + 1]
        found, mine = model.loss(tokens, targets, mine)
        wanted, theirs = NGram.loss(model, tokens, targets, theirs)
        assert torch.equal(found, wanted)
        assert found.dtype == precision
        assert torch.equal(mine["past"]["contexts"], theirs["past"]["contexts"])
        assert torch.equal(mine["seen"], theirs["seen"])
    assert "losses of a text by n-grams" in ran


def test_a_model_that_becomes_more_precise_is_looked_up_as_it_is_now():
    model = NGram(9, Settings(order=3))
    model.count(np.random.default_rng(1).integers(9, size=300))
    install(model)
    text = torch.from_numpy(np.random.default_rng(2).integers(9, size=(1, 20)))
    single = model.loss(text[:, :-1], text[:, 1:])[0]
    double = model.double().loss(text[:, :-1], text[:, 1:])[0]
    assert double.dtype == torch.float64
    assert torch.equal(double.float(), single)


def test_an_installed_model_that_counts_again_or_is_loaded_finds_its_new_grams():
    draw = np.random.default_rng(0)
    one, other = NGram(9, Settings(order=3)), NGram(9, Settings(order=3))
    install(one)
    text = torch.from_numpy(draw.integers(9, size=(4, 20)))
    for model in (one, other):
        model.count(np.random.default_rng(1).integers(9, size=300))
    torch.testing.assert_close(one(text)[0], other(text)[0])
    for model in (one, other):
        model.count(np.random.default_rng(2).integers(9, size=500))
    torch.testing.assert_close(one.loss(text, text)[0], other.loss(text, text)[0])
    other.count(draw.integers(9, size=200))
    one.load_state_dict(other.state_dict())
    torch.testing.assert_close(one.loss(text, text)[0], other.loss(text, text)[0])
