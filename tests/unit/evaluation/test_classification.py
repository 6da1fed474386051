"""Labels instead of sentences: what a classifier computes, how labels are read, and how they are counted."""

import random

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.evaluation.accuracy import confusion, label_log_probabilities, label_quality
from regard.evaluation.intervals import share_interval
from regard.laws.registry import VOCABULARY
from regard.systems.classifier import ENCODERS, Classifier, Settings
from regard.text.batches.pair_batches import PairBatches
from regard.text.pairs import PairCorpus, Pairs
from regard.text.readers.labels import _are_labels, encode_labelled, learn_labels
from regard.text.tokenizers.tokenizer import Tokenizer

SOURCES = 11


def classifier(encoder: str = "lstm", vocabulary: int = VOCABULARY, **settings) -> Classifier:
    """Small, in fp64, with weights large enough for every part to matter."""
    torch.manual_seed(0)
    chosen = Settings(**{"encoder": encoder, "width": 8, "heads": 2, "layers": 2, "dropout": 0.0, **settings})
    model = Classifier(vocabulary, chosen, source_vocabulary=SOURCES).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


# -- the model -------------------------------------------------------------------------------------------------------


def test_what_was_written_changes_nothing_and_every_column_says_the_same():
    model, source = classifier(), torch.randint(0, SOURCES, (3, 6))
    one, other = (model(torch.full((3, 4), word), model.begin(source))[0] for word in (0, 5))
    assert torch.equal(one, other)
    assert torch.equal(one, one[:, :1].expand_as(one))


def test_a_deep_average_is_the_equation_and_knows_no_order():
    model = classifier("dan", layers=1)
    source, lengths = torch.tensor([[3, 1, 4, 0], [2, 0, 9, 9]]), torch.tensor([4, 2])
    logits, _ = model(torch.zeros(2, 1, dtype=torch.int64), model.begin(source, lengths))
    words = model.embedding.table.weight * model.embedding.scale
    for row, ids in enumerate(([3, 1, 4, 0], [2, 0])):
        hidden = torch.tanh(model.deepen[0](words[ids].mean(0)))
        torch.testing.assert_close(logits[row, 0], model.output.weight @ hidden + model.output.bias)
    again, _ = model(torch.zeros(2, 1, dtype=torch.int64), model.begin(source[:, [1, 0, 2, 3]][:1]))
    torch.testing.assert_close(again[0, 0], logits[0, 0])


@pytest.mark.parametrize("pool", ["mean", "last"])
def test_a_recurrent_classifier_is_torchs_own_network_and_a_linear_map(pool):
    model = classifier("gru", layers=1, pool=pool)
    source = torch.randint(0, SOURCES, (1, 7))
    words = model.embedding.table(source) * model.embedding.scale
    memory, last = model.encoder.fused(words)
    whole = memory.mean(1) if pool == "mean" else torch.cat([last[0], last[1]], dim=-1)
    logits, _ = model(torch.zeros(1, 1, dtype=torch.int64), model.begin(source))
    torch.testing.assert_close(logits[:, 0], whole @ model.output.weight.T + model.output.bias)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_batch_and_its_padding_change_no_probability(encoder):
    model, draw = classifier(encoder), random.Random(0)
    sources = [[draw.randrange(1, SOURCES) for _ in range(draw.randrange(12))] for _ in range(40)]
    together = np.stack([*label_log_probabilities(model, sources, eos=0, forbidden=(0, 1))])
    alone = np.stack([*label_log_probabilities(model, sources, eos=0, forbidden=(0, 1), ahead=1)])
    np.testing.assert_allclose(together, alone, atol=1e-12)
    np.testing.assert_allclose(np.exp(together).sum(1), 1)
    assert (together[:, :2] == -np.inf).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoder": "bert"},
        {"encoder": "dan", "pool": "last"},
        {"encoder": "transformer", "heads": 3},
        {"encoder": "transformer", "embedding": 16},
        {"encoder": "self-attention", "width": 12, "heads": 4, "position": "rotary"},
        {"encoder": "lstm", "layers": 0},
        {"dropout": 1.0},
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_name(wrong):
    with pytest.raises(RegardError, match=r"model\."):
        Settings(**wrong)


# -- labels ----------------------------------------------------------------------------------------------------------


def corpus(sources, targets, name="mine.tsv") -> PairCorpus:
    return PairCorpus(name, {"train": Pairs(sources, targets)})


def test_a_label_with_spaces_is_one_label_and_comes_back_as_it_was(tmp_path):
    labels = ["very good", "good", "very  bad", "<a, b>", "très bon", "no-break\u00a0space"]
    learn_labels(corpus(["x"] * 12, labels * 2)).save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.tokens == ["<eos>", "<unk>", *sorted(labels)]
    words = Tokenizer.of_tokens(["<eos>", "<unk>", "x"], "word")
    given = [*labels, " good ", "tre\u0300s bon"]  # space around it, and another way to write è
    found = encode_labelled(Pairs(["x"] * len(given), given), words, tokenizer)
    assert [tokenizer.token(n) for n in found.target] == [*labels, "good", "très bon"]


def test_a_target_is_its_label_alone_and_an_unseen_one_is_unknown():
    labels = learn_labels(corpus(["x"] * 4, ["no", "yes"] * 2))
    words = Tokenizer.of_tokens(["<eos>", "<unk>", "x", "y"], "word")
    found = encode_labelled(Pairs(["x y", "", "y", "x", "x"], ["yes", "no", "perhaps", " ", "no"]), words, labels)
    assert found.dropped == {"empty source": 1, "empty target": 1}
    assert found.target.tolist() == [3, 1, 2]
    assert found.unknown == 1
    batch = PairBatches(found, 64, seed=1).batch(0)
    assert batch.tokens.tolist() == [[0], [0], [0]]
    assert sorted(batch.targets.tolist()) == [[1], [2], [3]]
    assert batch.lengths.tolist() == [1, 1, 1]


def test_a_text_that_is_too_long_is_left_out_with_its_label_unless_it_shall_be_cut():
    labels = learn_labels(corpus(["x"] * 4, ["no", "yes"] * 2))
    words = Tokenizer.of_tokens(["<eos>", "<unk>", "x", "y"], "word")
    lines = Pairs(["x y x", "y", "x y"], ["no", "yes", "no"])
    found = encode_labelled(lines, words, labels, longest=2)
    assert (found.kept.tolist(), found.target.tolist(), len(found)) == ([1, 2], [3, 2], 2)
    cut = encode_labelled(lines, words, labels, longest=2, truncate=True)
    assert (cut.source_of(0).tolist(), cut.target.tolist()) == ([2, 3, 0], [2, 3, 2])


def test_targets_that_are_sentences_are_refused_and_swapped_columns_are_seen():
    lines = [f"sentence {n}" for n in range(40)]
    with pytest.raises(RegardError, match="looks like translation"):
        learn_labels(corpus(lines, [line + " too" for line in lines]))
    with pytest.raises(RegardError, match=r"data\.swap"):
        learn_labels(corpus(["yes", "no"] * 20, lines))
    with pytest.raises(RegardError, match="only one label"):
        learn_labels(corpus(lines, ["yes"] * 40))
    with pytest.raises(RegardError, match="rename it"):
        learn_labels(corpus(lines, ["yes", "<unk>"] * 20))
    assert learn_labels(corpus(["a", "b", "c"], ["1", "2", "3"])).vocabulary == 5  # few lines may all differ


# -- counting --------------------------------------------------------------------------------------------------------


def test_the_confusion_table_counts_every_line_once():
    draw = random.Random(1)
    gold, predicted = ([draw.choice("abcd") for _ in range(300)] for _ in range(2))
    table = confusion(gold, predicted)
    assert sum(count for row in table.values() for count in row.values()) == 300
    for one in "abcd":
        for other in "abcd":
            assert table[one].get(other, 0) == sum(g == one and p == other for g, p in zip(gold, predicted))
    found = label_quality(gold, predicted)
    assert found["accuracy"] == sum(g == p for g, p in zip(gold, predicted)) / 300
    for label, numbers in found["labels"].items():
        right = sum(g == p == label for g, p in zip(gold, predicted))
        assert numbers["lines"] == gold.count(label)
        assert numbers["predicted"] == predicted.count(label)
        assert numbers["precision"] == right / predicted.count(label)
        assert numbers["recall"] == right / gold.count(label)
        mean = 2 / (1 / numbers["precision"] + 1 / numbers["recall"])
        assert numbers["f1"] == pytest.approx(mean)
    assert found["macro_f1"] == pytest.approx(np.mean([numbers["f1"] for numbers in found["labels"].values()]))


def test_a_label_that_is_never_predicted_or_never_right_has_no_precision_or_recall():
    found = label_quality(["a", "b", "b"], ["a", "a", "c"])["labels"]
    assert found["b"] == {"lines": 2, "predicted": 0, "precision": None, "recall": 0.0, "f1": 0.0}
    assert found["c"] == {"lines": 0, "predicted": 1, "precision": 0.0, "recall": None, "f1": 0.0}


def test_no_lines_and_unequal_lines_are_refused():
    with pytest.raises(RegardError, match="at least one"):
        confusion([], [])
    with pytest.raises(RegardError, match="1 predictions for 2"):
        confusion(["a", "b"], ["a"])


def test_wilsons_interval_solves_its_equation_and_is_never_empty():
    z = 1.959963984540054
    for right, lines in ((8, 10), (1, 7), (500, 1000)):
        for share in share_interval(right, lines):
            assert abs(right / lines - share) == pytest.approx(z * (share * (1 - share) / lines) ** 0.5)
    assert share_interval(10, 10) == pytest.approx((1 / (1 + z * z / 10), 1.0))
    assert share_interval(0, 10) == pytest.approx((0.0, z * z / 10 / (1 + z * z / 10)))


# -- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoder, steps, rate",
    [("dan", 800, 1e-2), ("lstm", 80, 1e-2), ("self-attention", 75, 3e-3), ("transformer", 75, 3e-3)],
)
def test_the_lectures_strings_are_learned_without_a_mistake(tmp_path, monkeypatch, encoder, steps, rate):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    training = {"steps": steps, "learning_rate": rate, "evaluate_every": steps, "threads": 1, "device": "cpu"}
    settings = {"model": {"encoder": encoder}, "training": training}
    run = regard.train("classifier", data="any-b", size="tiny", run=tmp_path / "run", settings=settings)
    facts = run.evaluate()
    assert facts["accuracy"] == 1.0
    assert sum(count for row in facts["confusion"].values() for count in row.values()) == facts["lines"]
    assert run.classify(["A A A A A", "A B A A", "B A A B"]) == ["A", "B", "B"]  # AAAAA, ABAAB, BAABB of the notes
    again = regard.load(tmp_path / "run")
    assert again("A B A A").labels == run("A B A A").labels


def test_few_different_targets_are_labels_and_many_are_not():
    for different, lines, found in (
        (10, 1, True), (11, 22, True), (11, 21, False), (1000, 2000, True), (1001, 9000, False), (2, 4, True)
    ):  # fmt: skip
        assert _are_labels(different, lines) is found
