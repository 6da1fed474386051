"""The n-gram: its estimates are lmplz's, its scores kenlm's, and whatever it is asked is a distribution."""

from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.base.errors import RegardError
from regard.exchange.arpa import read_arpa
from regard.systems.kneser_ney import adjusted_counts, count_grams, discounts
from regard.systems.ngram import NGram, Settings

GOLDEN = Path(__file__).parents[2] / "golden"
HARBOUR = (GOLDEN / "harbour.txt").read_text(encoding="utf-8").split("\n")[:-1]
NOTES = ("students opened their books", "people walked their dog", "the classroom fell silent")


def numbered(lines, tokens=("<eos>", "<unk>")):
    """Ids of a text by first appearance, every line followed by <eos>, and the tokens."""
    numbers = {token: number for number, token in enumerate(tokens)}
    ids = []
    for line in lines:
        ids += [*(numbers.setdefault(word, len(numbers)) for word in line.split()), 0]
    return np.array(ids), list(numbers)


def counted(lines, double=True, **chosen):
    ids, tokens = numbered(lines)
    model = NGram(len(tokens), Settings(**chosen)).eval()
    model = model.double() if double else model
    model.count(ids)
    return model, tokens


def probability(model, tokens, context, word):
    """P(word | context); a context written with <eos> first is the start of a line."""
    logits, _ = model(torch.tensor([[tokens.index(one) for one in context.split()]]))
    return float(logits[0, -1].exp()[tokens.index(word)])


# -- estimation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file, order, lines", [("3", 3, None), ("5", 5, None), ("fallback", 3, 12)])
def test_every_estimate_is_lmplzs(file, order, lines):
    golden, golden_tokens = read_arpa(GOLDEN / f"harbour.{file}.arpa")
    ours, tokens = counted(HARBOUR[:lines], order=order)
    assert tokens == golden_tokens
    assert (len(ours.notes) == 1) == (file == "fallback")
    for mine, theirs in zip(ours.levels, golden.levels, strict=True):
        assert torch.equal(mine.keys, theirs.keys)
        for name in ("log_probability", "log_backoff"):
            difference = getattr(mine, name)[:-1] - getattr(theirs, name)[:-1].double()
            assert difference.abs().max() < 2e-6 * log(10)


def test_adjusted_counts_are_the_number_of_different_words_before_except_at_the_start_of_a_line():
    ids, tokens = numbered(["a b", "a b", "c b", "b"])
    unigrams, bigrams = count_grams(ids, len(tokens), 2)
    adjusted = adjusted_counts([unigrams, bigrams])
    assert dict(zip(tokens, adjusted[0])) == {"<eos>": 1, "<unk>": 0, "a": 1, "b": 3, "c": 1}  # b after a, c and <s>
    assert sorted(adjusted[1]) == [1, 1, 1, 2, 2, 4]
    trigrams = count_grams(ids, len(tokens), 3)
    start = [tokens.index(word) for word in ("<eos>", "a")]
    at = np.searchsorted(trigrams[1].keys, start[0] * len(tokens) + start[1])
    assert adjusted_counts(trigrams)[1][at] == 2  # "<s> a" was seen twice, and nothing can stand before it


def test_discounts_are_refused_where_counts_of_counts_do_not_allow_them():
    assert discounts(np.array([1, 1, 1, 2, 2, 3])) == pytest.approx((3 / 7, 2 - 3 * 3 / 7 / 2, 3))
    assert discounts(np.array([1, 1, 3, 3])) is None  # nothing was seen twice
    assert discounts(np.array([1] * 9 + [2] + [3] * 9 + [4])) is None  # D_2 would be negative


def test_a_discount_is_above_zero_and_at_most_its_count():
    at_zero = np.array([1] * 2 + [2] * 2 + [3] * 4)  # Y = 1/3, and D_2 = 2 − 3 · 1/3 · 4/2
    assert discounts(at_zero) is None
    assert discounts(at_zero[:-1]) == pytest.approx((1 / 3, 1 / 2, 3))
    assert discounts(np.array([1] * 2 + [2] * 2 + [3] * 3 + [4] * 5 + [9])) == pytest.approx((1 / 3, 1 / 2, 3 - 20 / 9))


def test_a_fallback_is_noted_with_its_orders_and_discounts_until_another_text_is_counted():
    model = NGram(5, Settings(order=3))
    model.count(np.array([1, 2, 0]))
    assert model.notes == [
        "too few distinct counts to estimate Kneser-Ney's discounts of order 1, 2, 3: using 0.5, 1, 1.5 instead"
    ]
    ids, tokens = numbered(HARBOUR)
    larger = NGram(len(tokens), Settings(order=2))
    larger.count(np.array([1, 0]))
    assert larger.notes
    larger.count(ids)
    assert larger.notes == []
    plain = NGram(5, Settings(order=3, smoothing="counts"))
    plain.notes = ["of before"]
    plain.count(np.array([1, 2, 0]))
    assert plain.notes == []


@pytest.mark.parametrize("lines", [["a"], [""], ["a a a a a a"], ["a b", "b a"] * 50, ["a", "b", "c", ""]])
@pytest.mark.parametrize("order", [1, 2, 3, 7])
def test_the_smallest_texts_are_smoothed_too(lines, order):
    model, tokens = counted(lines, order=order)
    assert all("discounts" in note for note in model.notes)
    everything = torch.cartesian_prod(*[torch.arange(len(tokens))] * 2)
    logits, _ = model(everything)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones_like(logits[..., 0]))


def test_the_text_may_be_a_memory_map_of_small_integers(tmp_path):
    ids, tokens = numbered(HARBOUR)
    np.save(tmp_path / "ids.npy", ids.astype(np.uint16))
    steps = []
    model = NGram(len(tokens), Settings(order=4))
    model.count(np.load(tmp_path / "ids.npy", mmap_mode="r"), progress=lambda: steps.append(1))
    reference, _ = counted(HARBOUR, double=False, order=4)
    assert len(steps) == 4
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), reference.buffers(), strict=True))
    assert model.stored_numbers == sum(len(level.keys) for level in count_grams(ids, len(tokens), 4))


@pytest.mark.parametrize(
    "mistake, part",
    [
        (lambda: Settings(order=0), "model.order must be at least 1 and at most 7"),
        (lambda: Settings(order=8), "not 8"),
        (lambda: Settings(smoothing="good-turing"), "model.smoothing must be one of kneser-ney, counts"),
        (lambda: NGram(5, Settings()).count(np.zeros(0, dtype=np.int64)), "no text to count"),
        (lambda: NGram(5, Settings()).count(np.array([1, 2, 7, 0])), "token 7"),
    ],
)
def test_mistakes_are_one_sentence(mistake, part):
    with pytest.raises(RegardError, match=part):
        mistake()


# -- count and normalise ---------------------------------------------------------------------------------------------


def test_counting_and_normalising_by_hand():
    model, tokens = counted(NOTES, order=3, smoothing="counts")
    assert probability(model, tokens, "<eos>", "people") == pytest.approx(1 / 3)
    assert probability(model, tokens, "opened their", "books") == 1
    assert probability(model, tokens, "their", "books") == pytest.approx(1 / 2)
    assert probability(model, tokens, "silent their", "dog") == pytest.approx(1 / 2)  # unseen: its longest seen suffix
    assert probability(model, tokens, "<unk>", "their") == pytest.approx(2 / 15)
    assert probability(model, tokens, "opened their", "dog") == 0  # seen context, unseen word: honestly impossible
    opened, their, dog = map(tokens.index, ("opened", "their", "dog"))
    assert model.loss(torch.tensor([[opened, their]]), torch.tensor([[their, dog]]))[0].tolist() == [[0, torch.inf]]


def test_uncounted_every_word_is_equally_likely():
    model = NGram(11, Settings(order=3))
    loss, _ = model.loss(torch.tensor([[0, 4]]), torch.tensor([[4, 2]]))
    torch.testing.assert_close(loss, torch.full((1, 2), log(11)))


# -- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["3", "5"])
def test_scores_are_kenlms(file):
    kenlm = pytest.importorskip("kenlm", reason="the kenlm package is the oracle here")
    theirs = kenlm.Model(str(GOLDEN / f"harbour.{file}.arpa"))
    model, tokens = read_arpa(GOLDEN / f"harbour.{file}.arpa")
    for line in [*HARBOUR[::5], "", "the zebra saw the old zebra .", "unheard words", "boat the near said ."]:
        ids = [tokens.index(word) if word in tokens else 1 for word in line.split()]
        loss, _ = model.loss(torch.tensor([[0, *ids]]), torch.tensor([[*ids, 0]]))
        expected = [score for score, _, _ in theirs.full_scores(line)]
        np.testing.assert_allclose(-loss[0].numpy() / log(10), expected, atol=1e-5)


@pytest.mark.parametrize("smoothing", ["kneser-ney", "counts"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_the_loss_is_the_predictions_whatever_the_targets(order, smoothing):
    model, _ = counted(HARBOUR, order=order, smoothing=smoothing)
    text = torch.from_numpy(numbered(HARBOUR)[0][:600]).view(4, 150)
    lengths = torch.tensor([149, 0, 70, 3])
    shuffled = text[:, torch.randperm(150, generator=torch.Generator().manual_seed(1))]
    for targets in (text[:, 1:], shuffled[:, 1:]):  # what is read next, and anything else
        for real in (None, lengths):
            loss, state = model.loss(text[:, :-1], targets, lengths=real)
            logits, read = model(text[:, :-1], lengths=real)
            valid = torch.ones_like(targets, dtype=torch.bool) if real is None else torch.arange(149) < real[:, None]
            expected = logits.exp().gather(-1, targets[..., None])[..., 0]
            torch.testing.assert_close((-loss).exp()[valid], expected[valid])
            assert not loss[~valid].any()
            assert all(torch.equal(state["past"][name], read["past"][name]) for name in read["past"])


def test_no_context_reaches_over_the_end_of_a_line():
    model, tokens = counted(HARBOUR, order=4)
    line = [tokens.index(word) for word in HARBOUR[0].split()]
    after_a_line, _ = model(torch.tensor([[0, *line, 0]]))
    fresh, _ = model(torch.tensor([[0]]))
    middle, _ = model(torch.tensor([line]))
    assert torch.equal(after_a_line[0, -1], fresh[0, -1])
    assert not torch.equal(after_a_line[0, 1], middle[0, 0])  # without <eos> first, it is not the start of a line
    assert torch.equal(after_a_line[0, len(line)], middle[0, -1])


def test_the_parts_say_which_order_answered():
    model, tokens = counted(NOTES, order=3, smoothing="counts")
    text = torch.tensor([[tokens.index(word) for word in ("their", "books", "<unk>", "their")]])
    logits, _, parts = model.explain(text)
    assert parts["order"].tolist() == [[2, 3, 1, 2]]
    assert parts["probabilities"].shape == (1, 4, 3, len(tokens))
    torch.testing.assert_close(parts["probabilities"][:, :, -1], logits.exp())
    assert parts["answered"][0, 0, tokens.index("dog")] == 2
    smooth, _ = counted(HARBOUR, order=5)
    _, _, parts = smooth.explain(torch.from_numpy(numbered(HARBOUR)[0][None, :20]))
    totals = parts["probabilities"].sum(-1)  # every order's distribution is one
    torch.testing.assert_close(totals, torch.ones_like(totals))
    assert ((parts["weights"] > 0) & (parts["weights"] <= 1)).all()


# -- storage ---------------------------------------------------------------------------------------------------------


def test_a_saved_model_fills_a_new_one(tmp_path):
    model, tokens = counted(HARBOUR, double=False, order=4)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = NGram(len(tokens), Settings(order=4))
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    text = torch.from_numpy(numbered(HARBOUR)[0][None])
    assert torch.equal(model.loss(text[:, :-1], text[:, 1:])[0], other.loss(text[:, :-1], text[:, 1:])[0])
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), other.buffers(), strict=True))
    assert other.levels[0].log_probability.dtype == torch.float32


def test_a_file_of_another_vocabulary_is_refused():
    model, tokens = counted(HARBOUR, order=3)
    with pytest.raises(RuntimeError, match=f"the file has {len(tokens)} words, but the model has {len(tokens) - 1}"):
        NGram(len(tokens) - 1, Settings(order=3)).load_state_dict(model.state_dict())


def test_single_precision_is_enough_for_scores():
    single, _ = counted(HARBOUR, double=False, order=5)
    double, _ = counted(HARBOUR, order=5)
    text = torch.from_numpy(numbered(HARBOUR)[0][None])
    torch.testing.assert_close(
        single.loss(text[:, :-1], text[:, 1:])[0].double(), double.loss(text[:, :-1], text[:, 1:])[0], rtol=0, atol=2e-6
    )
