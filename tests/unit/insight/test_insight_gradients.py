"""Gradients through time: against differences of the fast path's losses, and against the closed form of simple nets."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.linalg import matrix_power

from regard.insight import gradients as module
from regard.insight.tracing import trace_classification, trace_language, trace_translation
from regard.laws.registry import VOCABULARY, builder, stirred
from regard.layers.cell import Cell
from regard.layers.context import Average
from regard.systems.catalogue import SYSTEMS, load_class, load_module
from regard.systems.classifier import ENCODERS, Classifier, Settings
from regard.systems.lstm import LSTMModel
from regard.systems.lstm import Settings as LSTMSettings
from regard.systems.own.stack import LayerStack
from regard.systems.recurrent_stack import RecurrentSettings
from regard.text.tokenizers.tokenizer import Tokenizer

WORDS = Tokenizer.of_tokens(["<eos>", "<unk>", *"abcdefghijklmno"], "word")
LABELS = Tokenizer.of_tokens(["<eos>", "<unk>", "good", "bad"], "word")
TEXT, SOURCE = "c a f e b", "d e a"
NEURAL = [system.name for system in SYSTEMS if system.task == "language model" and system.trained == "gradient"]
TRANSLATION = [system.name for system in SYSTEMS if system.task == "translation"]
STEP = 1e-5


def model_of(system):
    torch.manual_seed(0)
    return stirred(builder(system))


@contextmanager
def shifted(model, shifts):
    """Word vectors moved as they enter: one shift for each call of an embedding, in the order of the calls."""
    waiting = list(shifts)
    hook = lambda table, inputs, vectors: vectors + waiting.pop(0)  # noqa: E731
    tables = [table for table in (model.embedding, getattr(model, "source_embedding", None)) if table is not None]
    hooks = [table.register_forward_hook(hook) for table in tables]
    yield
    for one in hooks:
        one.remove()


@torch.no_grad()
def differences(model, tokens, targets, source=None, which=-1, forbidden=()):
    """‖(L_t(e_s + ε) − L_t(e_s − ε)) / 2ε‖ by the fast path, for all components at once in one large batch."""
    width = model.embedding.width
    columns = (tokens if which == -1 else source).size(1)
    both = torch.cat([torch.eye(columns * width), -torch.eye(columns * width)]).view(-1, columns, width).double() * STEP
    shifts = [0.0, 0.0] if source is not None else [0.0]
    shifts[which] = both
    rows = len(both)
    with shifted(model, shifts):
        state = None if source is None else model.begin(source.expand(rows, -1))
        logits, _ = model(tokens.expand(rows, -1), state)
    logits[..., list(forbidden)] = -torch.inf
    known = len(targets)
    losses = F.cross_entropy(logits[:, :known].flatten(0, 1), torch.tensor(targets).repeat(rows), reduction="none")
    up, down = losses.view(2, columns, width, known)
    return ((up - down) / (2 * STEP)).norm(dim=1).T.numpy()  # [T, S]


# -- against finite differences --------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", NEURAL)
def test_a_language_models_gradients_are_its_losses_differences(system):
    model = model_of(system)
    ids = WORDS.encode(TEXT)
    trace = trace_language(model, WORDS, TEXT, gradients=True)
    expected = differences(model, torch.tensor([[WORDS.eos, *ids]]), ids)
    np.testing.assert_allclose(trace.gradients[:-1], expected, rtol=1e-5, atol=1e-8)
    assert expected[-1].min() >= 0
    assert expected[-1].max() > 1e-3
    assert np.isnan(trace.gradients[-1]).all()  # nothing is known to follow the last word


@pytest.mark.parametrize("system", TRANSLATION)
def test_a_translators_gradients_are_its_losses_differences_on_both_sides(system):
    model = model_of(system)
    source = torch.tensor([[*WORDS.encode(SOURCE), WORDS.eos]])
    written = [*WORDS.encode(TEXT), WORDS.eos]
    tokens = torch.tensor([[WORDS.eos, *written[:-1]]])
    trace = trace_translation(model, WORDS, WORDS, SOURCE, TEXT, gradients=True)
    np.testing.assert_allclose(trace.gradients, differences(model, tokens, written, source), rtol=1e-5, atol=1e-8)
    expected = differences(model, tokens, written, source, which=0)
    if getattr(model.settings, "reverse", False):
        expected = expected[:, ::-1]  # its vectors enter backwards, and are shown as the source stands
    np.testing.assert_allclose(trace.source_gradients, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_classifiers_gradients_are_those_of_the_label(encoder):
    torch.manual_seed(0)
    settings = Settings(encoder=encoder, width=8, heads=2, layers=1, dropout=0.0)
    model = Classifier(len(LABELS.tokens), settings, source_vocabulary=VOCABULARY).double().eval()
    source = torch.tensor([[*WORDS.encode(SOURCE), WORDS.eos]])
    trace = trace_classification(model, WORDS, LABELS, SOURCE, "bad", gradients=True)
    expected = differences(model, torch.tensor([[0]]), [3], source, which=0, forbidden=LABELS.specials)
    np.testing.assert_allclose(trace.source_gradients, expected, rtol=1e-5, atol=1e-8)
    assert trace.gradients is None
    answered = trace_classification(model, WORDS, LABELS, SOURCE, gradients=True)
    asked = trace_classification(model, WORDS, LABELS, SOURCE, answered.label, gradients=True)
    np.testing.assert_allclose(answered.source_gradients, asked.source_gradients)


@pytest.mark.parametrize("system", ["rnn", "lstm", "gru"])
@torch.no_grad()
def test_what_a_layer_carries_weighs_as_moving_it_says(system):
    """In one layer, all that a later loss has of h_s and c_s goes through the state: move it and read on.

    Whoever moves the cell moves what it shows, h_s = o_s * tanh(c_s).
    """
    torch.manual_seed(0)
    settings = load_module(system).Settings(layers=1, width=6, dropout=0.0)
    model = load_class(system)(VOCABULARY, settings).double().eval()
    ids = WORDS.encode(TEXT)
    tokens = torch.tensor([[WORDS.eos, *ids]])
    trace = trace_language(model, WORDS, TEXT, gradients=True)
    moves = torch.cat([torch.eye(6), -torch.eye(6)]).double() * STEP
    for s in range(len(ids) - 1):
        for part in model.layers[0].memory:
            _, state = model(tokens[:, : s + 1].expand(12, -1))
            past = state["past"]["0"]
            past[part] = past[part] + moves
            if part == "cell":
                past["hidden"] = torch.from_numpy(trace.gates["layer/0/output"][s]) * past["cell"].tanh()
            logits, _ = model(tokens[:, s + 1 : -1].expand(12, -1), state)
            later = torch.tensor(ids[s + 1 :]).repeat(12)
            losses = F.cross_entropy(logits.flatten(0, 1), later, reduction="none").view(2, 6, -1)
            expected = ((losses[0] - losses[1]) / (2 * STEP)).norm(dim=0).numpy()
            found = trace.state_gradients[f"layer/0/{part}"][s + 1 : -1, s]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


# -- against the closed form -----------------------------------------------------------------------------------------


class Linear(Cell):
    """h_t = A h_{t-1} + B x_t, the recurrent network whose gradient one can write down."""

    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.past = nn.Linear(width, width, bias=False)
        self.input = nn.Linear(inputs, width, bias=False)

    def step(self, x, state):
        return {"hidden": self.past(state["hidden"]) + self.input(x)}


def test_a_linear_networks_gradients_are_powers_of_its_matrix():
    torch.manual_seed(0)
    kind = type("LinearModel", (LayerStack,), {"layer": Linear})
    model = kind(VOCABULARY, RecurrentSettings(layers=2, width=5, dropout=0.0)).double().eval()
    trace = trace_language(model, WORDS, TEXT, gradients=True)
    ids = WORDS.encode(TEXT)
    with torch.no_grad():
        chances = model(torch.tensor([[WORDS.eos, *ids]]))[0][0].softmax(-1)
        (past, into), (upper, between) = ((layer.past.weight, layer.input.weight) for layer in model.layers)
        steps = range(len(ids))
        for t in steps:
            error = chances[t] - F.one_hot(torch.tensor(ids[t]), VOCABULARY)
            top = model.embedding.table.weight.T @ error  # ∂L_t/∂h_t of the upper layer: the output is tied
            for s in steps:
                reach = (matrix_power(upper, t - k) @ between @ matrix_power(past, k - s) for k in range(s, t + 1))
                lower = sum((path.T @ top for path in reach), torch.zeros(5).double())
                above = matrix_power(upper, t - s).T @ top if s <= t else torch.zeros(5)
                assert trace.gradients[t, s] == pytest.approx(float((into.T @ lower).norm()), rel=1e-9)
                assert trace.state_gradients["layer/0/hidden"][t, s] == pytest.approx(float(lower.norm()), rel=1e-9)
                assert trace.state_gradients["layer/1/hidden"][t, s] == pytest.approx(float(above.norm()), rel=1e-9)


def test_through_the_cell_a_gradient_is_the_product_of_the_forget_gates():
    """With W_h = 0 the only way back is the cell: ∂L_t/∂c_s = Π f · ∂L_t/∂c_t (003:205)."""
    torch.manual_seed(0)
    model = LSTMModel(VOCABULARY, LSTMSettings(layers=1, width=5, dropout=0.0)).double().eval()
    with torch.no_grad():
        model.layers[0].fused.weight_hh_l0.zero_()
    trace = trace_language(model, WORDS, TEXT, gradients=True)
    forget, output, cell = (trace.gates[f"layer/0/{name}"] for name in ("forget", "output", "cell"))
    ids = WORDS.encode(TEXT)
    table = model.embedding.table.weight.detach().numpy()
    logits = trace.hidden["hidden"] @ table.T + model.output.bias.detach().numpy()
    for t in range(len(ids)):
        chances = np.exp(logits[t]) / np.exp(logits[t]).sum()
        here = output[t] * (1 - np.tanh(cell[t]) ** 2) * (table.T @ (chances - np.eye(VOCABULARY)[ids[t]]))
        for s in range(t + 1):
            expected = np.linalg.norm(np.prod(forget[s + 1 : t + 1], axis=0) * here)
            assert trace.state_gradients["layer/0/cell"][t, s] == pytest.approx(expected, rel=1e-9)


# -- one's own -------------------------------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """A backward pass that looks at values, which no batch of backward passes can."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient if float(gradient.abs().sum()) >= 0 else gradient


class Stubborn(Average):
    def __init__(self, inputs, width):
        super().__init__(width)

    def forward(self, x, state, span):
        return super().forward(Doubled.apply(x), state, span)


class Silent(Stubborn):
    """Its equation is not written down."""

    def explain(self, x, state, span):
        raise NotImplementedError


@pytest.mark.parametrize("layer", [Stubborn, Silent])
def test_a_strangers_layer_has_gradients_however_it_computes_them(layer):
    torch.manual_seed(0)
    kind = type("Own", (LayerStack,), {"layer": layer})
    model = kind(VOCABULARY, RecurrentSettings(layers=2, width=5, dropout=0.0)).double().eval()
    ids = WORDS.encode(TEXT)
    trace = trace_language(model, WORDS, TEXT, gradients=True)
    expected = differences(model, torch.tensor([[WORDS.eos, *ids]]), ids)
    np.testing.assert_allclose(trace.gradients[:-1], expected, rtol=1e-5, atol=1e-8)


# -- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [*NEURAL, *TRANSLATION])
def test_no_loss_has_a_gradient_from_the_future(system):
    model = model_of(system)
    if system in NEURAL:
        trace = trace_language(model, WORDS, TEXT, gradients=True)
    else:
        trace = trace_translation(model, WORDS, WORDS, SOURCE, TEXT, gradients=True)
    for matrix in (trace.gradients, *trace.state_gradients.values()):
        known = np.nan_to_num(matrix)
        assert matrix.shape == (trace.steps, trace.steps)
        assert not np.triu(known, 1).any()
        assert np.diag(known)[:-1].any()


def test_a_window_of_n_words_has_no_gradient_beyond_it():
    model = model_of("nnlm")
    seen = model.settings.order - 1
    text = " ".join("abcdefghijklmno"[: seen + 4])
    matrix = trace_language(model, WORDS, text, gradients=True).gradients[:-1]
    reach = np.tril(np.ones_like(matrix), 0) - np.tril(np.ones_like(matrix), -seen)
    np.testing.assert_array_equal(matrix > 0, reach > 0)


def test_rows_computed_together_are_rows_computed_alone(monkeypatch):
    together = trace_language(model_of("lstm"), WORDS, TEXT, gradients=True)
    monkeypatch.setattr(module, "ROWS", 1)
    alone = trace_language(model_of("lstm"), WORDS, TEXT, gradients=True)
    np.testing.assert_allclose(together.gradients, alone.gradients, rtol=1e-9)


def test_a_model_that_counts_has_none_and_says_why():
    trace = trace_language(model_of("ngram"), WORDS, TEXT, gradients=True)
    assert trace.gradients is None
    assert trace.notes == ("NGram has no word vectors, so there are no gradients through time.",)


def test_none_are_computed_unless_asked_for():
    trace = trace_language(model_of("lstm"), WORDS, TEXT)
    assert (trace.gradients, dict(trace.state_gradients), trace.notes) == (None, {}, ())


def test_progress_is_shown_row_by_row(monkeypatch):
    shown = []
    real = module.progress

    def watched(title, total, unit=""):
        shown.append((title, total))
        return real(title, total, unit=unit)

    monkeypatch.setattr(module, "progress", watched)
    trace_language(model_of("gpt"), WORDS, TEXT, gradients=True)
    assert shown == [("gradients", len(WORDS.encode(TEXT)))]
