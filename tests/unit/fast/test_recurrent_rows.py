"""The recurrent rows beyond the table's own test: PyTorch's kernels with weights of a call, the chain where there is no
GPU, and layers, cells and scores of one's own, which are always computed as written."""

import subprocess

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.fast import Use, install, rows, uninstall
from regard.fast.recurrence import recurrent_layers as recurrence
from regard.fast.recurrence.attentive_recurrence import Given, look_and_step
from regard.fast.recurrence.recurrent_layers import chained, encode_padded, fused, kernel, padded, run
from regard.layers.encoder import RecurrentEncoder
from regard.layers.recurrent import GRU, LSTM, Elman
from regard.layers.scores import ScaledDot, Score
from regard.layers.state import Span
from regard.systems.bahdanau import Bahdanau, Settings

CELLS = [LSTM(6, 5), GRU(6, 5), Elman(6, 5), Elman(6, 5, activation="relu")]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.fused.mode)
def test_the_kernel_given_the_modules_weights_is_the_module(cell, ragged):
    torch.manual_seed(0)
    x = torch.randn(4, 7, 6)
    state = {name: torch.randn(4, 5) for name in cell.memory}
    if ragged:
        x = pack_padded_sequence(x, torch.tensor([3, 7, 1, 5]), batch_first=True, enforce_sorted=False)
    hidden, final = kernel(cell, cell.weights(), x, state)
    initial = tuple(part[None] for part in state.values())
    expected, ended = cell.fused(x, initial if len(initial) > 1 else initial[0])
    if ragged:
        hidden, expected = (pad_packed_sequence(packed, batch_first=True)[0] for packed in (hidden, expected))
    assert torch.equal(hidden, expected)
    for one, other in zip(final.values(), ended if isinstance(ended, tuple) else (ended,), strict=True):
        assert torch.equal(one, other[0])


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.fused.mode)
def test_a_text_longer_than_a_call_takes_is_read_in_several(cell, monkeypatch):
    x = torch.randn(2, 7, 6)
    state = {name: torch.randn(2, 5) for name in cell.memory}
    whole, ended = kernel(cell, cell.weights(), x, state)
    monkeypatch.setattr(recurrence, "MAX_STEPS", 3)
    parts, last = kernel(cell, cell.weights(), x, state)
    torch.testing.assert_close(parts, whole)
    for name in state:
        torch.testing.assert_close(last[name], ended[name])


def test_weights_stay_where_they_are_when_connections_are_dropped():
    layer = LSTM(6, 5, dropout_recurrent=0.5).train()
    install(layer, Use(training=True))
    places = [weight.data_ptr() for weight in layer.parameters()]
    hidden, _ = layer(torch.randn(2, 3, 6), begin(layer, 2), whole(2))
    hidden.sum().backward()
    assert [weight.data_ptr() for weight in layer.parameters()] == places
    assert all(weight.grad is not None for weight in layer.parameters())


@pytest.mark.parametrize("width", [5, 8])
def test_the_chain_is_the_written_equation_values_and_gradients(width):
    torch.manual_seed(0)
    layer = LSTM(6, width).double().train()
    state = {name: torch.randn(3, width, dtype=torch.float64) for name in layer.memory}
    x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn(3, 4, width, dtype=torch.float64)
    answers = []
    for hidden, after in (run(chained, layer, x, state, whole(3)), layer(x, state, whole(3))):
        cost = (hidden * wanted).sum() + (after["cell"] * after["hidden"]).sum()
        gradients = torch.autograd.grad(cost, [x, *layer.parameters()])
        answers.append([hidden, after["hidden"], after["cell"], *gradients])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def test_the_chains_gradients_add_up_over_micro_batches():
    torch.manual_seed(0)
    layer = LSTM(8, 8).double().train()
    x = torch.randn(4, 3, 8, dtype=torch.float64)
    answers = []
    for way in (layer, lambda *arguments: run(chained, layer, *arguments)):
        layer.zero_grad()
        for part in x.split(2):
            way(part, begin(layer, 2), whole(2))[0].square().sum().backward()
        answers.append([weight.grad.clone() for weight in layer.parameters()])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def test_a_state_of_another_precision_is_gone_on_from():
    for cell in (LSTM(6, 5), GRU(6, 5), Elman(6, 5), Elman(6, 5, activation="sigmoid")):
        install(cell)
        state = {name: part.bfloat16() for name, part in begin(cell, 2).items()}
        hidden, after = cell(torch.randn(2, 3, 6), state, whole(2))
        assert hidden.dtype == after["hidden"].dtype == torch.float32


@pytest.mark.parametrize("captured", [True, False])
def test_on_a_cpu_layers_run_by_pytorchs_kernels_or_learn_by_a_written_gradient(captured):
    used = install(torch.nn.ModuleList(CELLS), Use(training=True, bf16=True, captured=captured))
    uninstall(torch.nn.ModuleList(CELLS))
    learned = [f"{name} with its gradient written out" for name in ("GRU", "Elman")]
    assert [row.name for row in used] == ["fused LSTM", learned[0], "fused GRU", learned[1], "fused Elman"]


def test_a_program_may_use_pytorchs_newer_switches_of_precision(warm):
    """Then the older ones cannot be read."""
    code = (
        "import torch\n"
        "from regard.systems.bahdanau import Bahdanau, Settings\n"
        "from regard.fast import install\n"
        "torch.backends.fp32_precision = 'ieee'\n"
        "model = Bahdanau(9, Settings(width=4, embedding=3, dropout=0.0)).train()\n"
        "install(model, training=True)\n"
        "state = model.begin(torch.ones(2, 3, dtype=torch.int64))\n"
        "model(torch.ones(2, 4, dtype=torch.int64), state)[0].sum().backward()\n"
    )
    subprocess.run([warm, "-c", code], check=True)


# -- ragged batches without packing, as a GPU reads them -------------------------------------------------------------

LENGTHS = torch.tensor([3, 7, 1, 0, 5])
RAGGED = Span(torch.zeros(5, dtype=torch.int64), LENGTHS)


@pytest.mark.parametrize(("make", "way"), [(LSTM, chained), (LSTM, fused), (GRU, fused), (Elman, fused)])
def test_padding_leaves_the_memory_and_every_gradient_as_they_were(make, way):
    torch.manual_seed(0)
    layer = make(6, 5).double().train()
    x = torch.randn(5, 7, 6, dtype=torch.float64, requires_grad=True)
    state = {name: torch.randn(5, 5, dtype=torch.float64, requires_grad=True) for name in layer.memory}
    written, ended, _ = layer.explain(x, state, RAGGED)
    fast, after = padded(way, layer, layer.weights(), x, state, RAGGED)
    real = torch.arange(7) < LENGTHS[:, None]
    compare((fast[real], after), (written[real], ended), [x, *state.values(), *layer.parameters()])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_padded_source_is_read_as_if_there_were_no_padding(cell, bidirectional):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(6, 5, cell=cell, layers=2, bidirectional=bidirectional).double()
    x = torch.randn(5, 7, 6, dtype=torch.float64, requires_grad=True)
    written, ended, _ = encoder.explain(x, LENGTHS)
    fast, after = encode_padded(encoder, x, LENGTHS)
    real = torch.arange(7) < LENGTHS[:, None]
    compare((fast[real], after), (written[real], ended), [x, *encoder.parameters()])


def compare(one, other, weights):
    """The same values, and the same gradients of any sum of them."""
    answers = []
    for hidden, after in (one, other):
        leaves = [hidden, *flat(after)]
        cost = sum((leaf * torch.linspace(-1, 2, leaf.numel()).double().view_as(leaf)).sum() for leaf in leaves)
        answers.append([*leaves, *torch.autograd.grad(cost, weights, allow_unused=True, materialize_grads=True)])
    for first, second in zip(*answers, strict=True):
        torch.testing.assert_close(first, second, rtol=0.0, atol=1e-12)


def flat(state):
    return [leaf for _, part in sorted(state.items()) for leaf in (flat(part) if isinstance(part, dict) else [part])]


# -- what is one's own -----------------------------------------------------------------------------------------------


def test_an_activation_that_no_kernel_knows_is_computed_as_written():
    layer, x = Elman(6, 5, activation="sin"), torch.randn(2, 3, 6)
    assert install(layer) == []
    hidden, _ = layer(x, begin(layer, 2), whole(2))
    first = torch.sin(x[:, 0] @ layer.weight("weight_ih").T + layer.weight("bias_ih") + layer.weight("bias_hh"))
    torch.testing.assert_close(hidden[:, 0], first)


def test_an_lstm_with_a_step_of_its_own_takes_it():
    class Leaking(LSTM):
        def step(self, x, state, weights=None):
            new = super().step(x, state, weights)
            return {**new, "hidden": 0.5 * new["hidden"]}

    torch.manual_seed(0)
    layer, x = Leaking(6, 5), torch.randn(2, 1, 6)
    assert install(layer) == []
    plain = LSTM(6, 5)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x, begin(layer, 2), whole(2))[0], plain(x, begin(plain, 2), whole(2))[0] / 2)


class Cosine(Score):
    """A score of one's own, which is no kernel: how far the angle between query and key is from a right one."""

    def compare(self, query, keys):
        return torch.nn.functional.normalize(query, dim=-1) @ torch.nn.functional.normalize(keys, dim=-1).mT


class Sharper(ScaledDot):
    """Nor is what follows from a score that is known itself known."""

    def compare(self, query, keys):
        return 3.0 * super().compare(query, keys)


@pytest.mark.parametrize("own", [Cosine, Sharper])
def test_a_score_of_ones_own_is_never_taken_for_a_dot_product(own):
    torch.manual_seed(0)
    model = Bahdanau(11, Settings(width=6, embedding=4, dropout=0.0, score="dot")).double()
    source, tokens = torch.randint(11, (3, 5)), torch.randint(11, (3, 4))
    answers = {}
    for name, score in {"dot": model.attend.score, "own": own(6, 6)}.items():
        model.attend.score = score
        uninstall(model)
        written, _, _ = model.explain(tokens, model.begin(source))
        install(model, Use(training=True))
        fast, _ = model(tokens, model.begin(source))
        answers[name] = [[each, *gradients(each, model)] for each in (fast, written)]
        for one, other in zip(*answers[name], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(answers["dot"][0][0], answers["own"][0][0])


def test_a_score_that_is_replaced_after_installing_is_computed_as_written():
    torch.manual_seed(0)
    model = Bahdanau(11, Settings(width=6, embedding=4, dropout=0.0, score="dot")).double()
    source, tokens = torch.randint(11, (3, 5)), torch.randint(11, (3, 4))
    install(model)
    model.attend.score = Cosine(6, 6)
    torch.testing.assert_close(model(tokens, model.begin(source))[0], model.explain(tokens, model.begin(source))[0])


@pytest.mark.parametrize("score", ["dot", "gaussian"])
def test_only_scores_whose_gradient_is_written_out_get_bahdanaus_loop(score):
    ours = {row.name for row in rows() if "Bahdanau" in row.name}
    used = {row.name for row in install(Bahdanau(11, Settings(width=6, embedding=4, score=score)))}
    assert used & ours == (ours if score == "dot" else set())


def gradients(logits, model):
    cost = (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)).sum()
    return torch.autograd.grad(cost, list(model.parameters()), allow_unused=True, materialize_grads=True)


def begin(layer, rows):
    weight = layer.weight("weight_hh")
    return layer.begin(rows, device=weight.device, dtype=weight.dtype)


def whole(rows):
    return Span(torch.zeros(rows, dtype=torch.int64))


# -- the recurrence that looks before every step ---------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("score", ["additive", "dot"])
@pytest.mark.parametrize("beams", [1, 2])
def test_the_looking_recurrences_gradient_is_that_of_its_values(cell, score, beams):
    """Finite differences know nothing of how a gradient was written out."""
    torch.manual_seed(0)
    sources, slots, steps, width = 2, 3, 3, 4
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[cell] * width

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    visible = torch.tensor([[[True, True, False]], [[True, True, True]]])
    memory = [draw(sources * beams, width) for _ in ("hidden", "cell")[: 2 if cell == "lstm" else 1]]
    tensors = [draw(sources * beams, steps, gates), draw(sources, slots, width), draw(sources, slots, gates)]
    tensors += [draw(gates, width), draw(gates)]
    tensors += [draw(width, width), draw(1, width)] if score == "additive" else []

    def run(drives, keys, places, weight, bias, *rest):
        past = dict(zip(("hidden", "cell"), rest[-len(memory) :]))
        query, judge = rest[:2] if score == "additive" else (None, None)
        every, weights = look_and_step(
            drives, past, Given(cell, keys, places, visible, weight, bias, query, judge, scale=0.5)
        )
        return (*every.values(), weights)

    assert torch.autograd.gradcheck(run, (*tensors, *memory))
