"""The loss that never holds its logits is the plain one: same sum, same gradients, whatever the pieces."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.fast.table import install
from regard.fast.training import linear_cross_entropy as module
from regard.fast.training.linear_cross_entropy import is_linear, linear_cross_entropy, linear_prediction
from regard.systems import bahdanau, gpt, gru, lstm, nnlm, self_attention, transformer
from regard.text.batches.pair_batches import PairBatch
from regard.text.batches.text_batches import Batch
from regard.training.objective import Objective, to_device

CPU = torch.device("cpu")


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, valid, smoothing: float) -> Tensor:
    logits = F.linear(hidden, weight, bias).flatten(0, -2)
    costs = F.cross_entropy(logits, targets.flatten(), reduction="none", label_smoothing=smoothing)
    return costs.sum() if valid is None else costs[valid.flatten()].sum()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 7),
    width=st.integers(1, 9),
    words=st.integers(1, 30),
    at_once=st.integers(1, 900),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    biased=st.booleans(),
    masked=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 999),
)
def test_it_is_the_plain_loss_in_value_and_gradient(
    rows, columns, width, words, at_once, smoothing, biased, masked, dtype, seed
):
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, columns, width, generator=draw, dtype=dtype).requires_grad_()
    weight = torch.randn(words, width, generator=draw, dtype=dtype).requires_grad_()
    bias = torch.randn(words, generator=draw, dtype=dtype).requires_grad_() if biased else None
    targets = torch.randint(words, (rows, columns), generator=draw)
    valid = torch.rand(rows, columns, generator=draw) < 0.6 if masked else None
    of = [hidden, weight] + ([] if bias is None else [bias])
    expected = plain(hidden, weight, bias, targets, valid, smoothing)
    found = linear_cross_entropy(hidden, weight, bias, targets, valid=valid, smoothing=smoothing, at_once=at_once)
    exact = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(found, expected, **exact)
    above = 0.37  # whatever the sum is multiplied by
    for one, other in zip(torch.autograd.grad(found * above, of), torch.autograd.grad(expected * above, of)):
        torch.testing.assert_close(one, other, **exact)


def test_a_target_whose_probability_is_zero_in_fp32_has_a_finite_loss_and_gradient():
    hidden, weight = torch.tensor([[200.0]], requires_grad=True), torch.tensor([[1.0], [-1.0]], requires_grad=True)
    loss = linear_cross_entropy(hidden, weight, None, torch.tensor([1]))
    assert loss.item() == 400.0
    loss.backward()
    assert hidden.grad.tolist() == [[2.0]]
    assert weight.grad.tolist() == [[200.0], [-200.0]]


def installed(objective: Objective) -> Objective:
    install(objective, device=CPU)
    return objective


class Largest(TorchDispatchMode):
    """The most elements that any tensor made meanwhile had."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        self.elements = max([self.elements, *(tensor.numel() for tensor in tensors)])
        return made


@pytest.mark.parametrize("way", ["plain", "fused"])
def test_the_logits_of_a_batch_are_never_all_held(way):
    rows, columns, width, words = 8, 64, 4, 5000
    model = gpt.GPT(words, gpt.Settings(layers=1, width=width, heads=1, context=columns))
    tokens = np.random.default_rng(0).integers(0, words, (rows, columns))
    batch = to_device(Batch(tokens, tokens, None, True), CPU)
    with Largest() as largest:
        if way == "plain":
            model.loss(batch.tokens, batch.targets)[0].sum().backward()
        else:
            installed(Objective(model))(batch, None)[0].backward()
    held = rows * columns * words
    assert largest.elements >= held if way == "plain" else largest.elements < held / 2


def test_a_word_whose_probability_is_too_small_for_a_float_has_its_loss():
    hidden, weight = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [300.0], [-900.0]])
    found = [float(linear_cross_entropy(hidden[:1], weight, None, torch.tensor([word]))) for word in range(3)]
    assert found == [300.0, 0.0, 1200.0]


def test_padding_has_no_logits_on_a_cpu(monkeypatch):
    made, real = [], module.rows_
    monkeypatch.setattr(module, "rows_", lambda logits, *given: made.append(len(logits)) or real(logits, *given))
    valid = torch.tensor([[True, False, False], [True, True, False]])
    hidden, targets = torch.randn(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)
    linear_cross_entropy(hidden, torch.randn(5, 4), None, targets, valid=valid)
    assert sum(made) == 3


@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_rows_without_a_target_and_columns_that_are_no_words_count_nothing(dtype, close):
    torch.manual_seed(0)
    logits, bias, targets = torch.randn(6, 8).to(dtype), torch.randn(5), torch.tensor([0, -1, 3, 4, -1, 2])
    exact = (logits[:, :5].float() + bias).requires_grad_()
    wanted = F.cross_entropy(exact, targets, reduction="none", ignore_index=-1, label_smoothing=0.1)
    (slope,) = torch.autograd.grad(wanted.sum(), exact)
    costs, gradient = module.written_rows_(logits, bias, targets, 5, 0.1, True)
    torch.testing.assert_close(costs, wanted.detach(), rtol=1e-5, atol=1e-5)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient[:, :5].float(), slope, rtol=1e-2, atol=close)
    assert not gradient[:, 5:].any()


def languages():
    torch.manual_seed(0)
    return {
        "gpt": gpt.GPT(31, gpt.Settings(layers=1, width=8, heads=2, context=16, dropout=0.0)),
        "gpt untied": gpt.GPT(31, gpt.Settings(layers=1, width=8, heads=2, context=16, dropout=0.0, tied=False)),
        "gru": gru.GRUModel(31, gru.Settings(width=8, dropout=0.0)),
        "lstm": lstm.LSTMModel(31, lstm.Settings(width=8, dropout=0.0)),
        "lstm that pays": lstm.LSTMModel(
            31, lstm.Settings(width=8, dropout=0.0, variational=True, penalty_size=2.0, penalty_change=1.0)
        ),
        "self-attention": self_attention.SelfAttentionModel(
            31, self_attention.Settings(width=8, context=16, dropout=0.0)
        ),
        "self-attention, additive": self_attention.SelfAttentionModel(
            31, self_attention.Settings(width=8, context=16, dropout=0.0, score="additive")
        ),
        "nnlm": nnlm.NNLM(31, nnlm.Settings(order=3, width=8, embedding=8, dropout=0.0)),
        "nnlm, direct": nnlm.NNLM(31, nnlm.Settings(order=3, width=8, embedding=8, dropout=0.0, direct=True)),
    }


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("lengths", [None, [7, 3, 0]])
@pytest.mark.parametrize("name", list(languages()))
def test_a_language_model_minimises_its_plain_loss(name, lengths, keeps):
    model = languages()[name].double().train()
    tokens = np.random.default_rng(0).integers(0, 31, (3, 8))
    given = None if lengths is None else np.array(lengths)
    batch = to_device(Batch(tokens[:, :-1], tokens[:, 1:], given, True), CPU)
    expected, _ = model.loss(batch.tokens, batch.targets, None, batch.lengths)
    found, count, _ = installed(Objective(model, keeps=keeps))(batch, None)
    assert int(count) == (21 if lengths is None else 10)
    agree(model, found, expected.sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_a_translator_minimises_its_plain_loss(name, smoothing):
    torch.manual_seed(0)
    if name == "transformer":
        model = transformer.Transformer(31, transformer.Settings(layers=1, width=8, heads=2, dropout=0.0))
    else:
        model = bahdanau.Bahdanau(31, bahdanau.Settings(width=8, dropout=0.0), source_vocabulary=17)
    model = model.double().train()
    draw = np.random.default_rng(0)
    source, tokens = draw.integers(0, 17, (3, 5)), draw.integers(0, 31, (3, 8))
    batch = to_device(PairBatch(source, np.array([5, 2, 4]), tokens[:, :-1], tokens[:, 1:], np.array([7, 3, 1])), CPU)
    valid = torch.arange(7) < batch.lengths[:, None]
    logits, _ = model(batch.tokens, model.begin(batch.source, batch.source_lengths))
    costs = F.cross_entropy(logits[valid], batch.targets[valid], reduction="sum", label_smoothing=smoothing)
    found, count, _ = installed(Objective(model, smoothing=smoothing))(batch, None)
    assert int(count) == 11
    agree(model, found, costs)


def agree(model, found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    weights = list(model.parameters())
    ways = (torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True) for loss in (found, expected))
    for one, other in zip(*ways, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_only_a_linear_prediction_is_fused():
    models = languages()
    other = gpt.GPT(31, models["gpt"].settings)
    other.__class__ = type("Own", (gpt.GPT,), {"predict": lambda self, hidden: 2 * gpt.GPT.predict(self, hidden)})
    assert not is_linear(other)
    assert all(map(is_linear, models.values()))
    weight, bias = linear_prediction(models["gpt"])
    assert weight is models["gpt"].embedding.table.weight
    assert bias is None
    weight, bias = linear_prediction(models["gpt untied"])
    assert weight is models["gpt untied"].output.weight
    assert linear_prediction(models["lstm"])[1] is models["lstm"].output.bias
    assert linear_prediction(models["nnlm"])[0].shape == (31, 8)
    assert linear_prediction(models["nnlm, direct"])[0].shape == (31, 8 + 2 * 8)
