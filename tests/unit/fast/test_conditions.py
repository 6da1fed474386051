"""What decides on a CPU whether a row for a GPU may be used, and what it does around its kernels, which are played here
by objects that note how they are called."""

import importlib
import sys
from itertools import product
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from regard.base.errors import RegardError
from regard.decoding.sampling import GREEDY, Sampling
from regard.fast import compile_ahead, graphs, install, table
from regard.fast.attention import language_blocks, residual, short_attention, short_blocks
from regard.fast.decoding import beam_step, choose_token, decode_step, recorded_writer
from regard.fast.decoding.lean_step import LeanStep
from regard.fast.recurrence import lstm_chain, minimal_gru, padded_weights, recurrent_layers, table_lookup
from regard.fast.table import Use
from regard.fast.training import captured_step, padded_step, products
from regard.layers.dropout import Dropout
from regard.layers.embedding import Embedding
from regard.layers.position import Learned, Sinusoid
from regard.layers.recurrent import LSTM, Elman
from regard.layers.state import Span
from regard.systems import bahdanau, gpt, linear_attention, llama, lstm, mingru, seq2seq, transformer
from regard.training.hyperparameters import PairTraining, Training
from regard.training.objective import TensorBatch
from regard.training.optimizers import build_optimizer
from small_trainers import trainer

CUDA = torch.device("cuda", 0)
GPT_SIZES = {"layers": 2, "width": 16, "heads": 2, "context": 24, "dropout": 0.0}


def a_gpt(**settings):
    return gpt.GPT(31, gpt.Settings(**GPT_SIZES | settings))


def a_transformer(**settings):
    sizes = {"layers": 2, "width": 16, "heads": 2, "dropout": 0.0}
    return transformer.Transformer(31, transformer.Settings(**sizes | settings))


class Drawn:
    """A tensor on a GPU, as far as a condition looks."""

    def __init__(self, *shape, dtype=torch.bfloat16, is_cuda=True):
        self.shape, self.dtype, self.is_cuda, self.device = torch.Size(shape), dtype, is_cuda, CUDA

    def size(self, axis):
        return self.shape[axis]

    def numel(self):
        return self.shape.numel()

    def __len__(self):
        return self.shape[0]


# -- the table -------------------------------------------------------------------------------------------------------


def test_rows_are_left_out_in_their_context_alone():
    name, other = "dropout with few random numbers", "GPT step on a CPU"

    def used():
        return name in [row.name for row in install(Dropout(0.5), Use(training=True))]

    assert used()
    with table.without(name):
        assert not used()
        with table.without(other):
            assert not used()
        assert not used()
    with table.without(other), table.without(other):
        assert used()
    assert used()
    assert not table._left_out


def test_what_was_installed_for_another_use_is_taken_out_first():
    layer, name = Dropout(0.5), "dropout with few random numbers"
    assert [row.name for row in install(layer)] == [name]
    assert table.is_swapped(layer.forward)
    with table.without(name):
        assert install(layer) == []
    assert not table.is_swapped(layer.forward)


def test_a_hopper_gpu_is_one_of_compute_capability_9_or_more(monkeypatch):
    for capability, why in (((9, 0), None), ((10, 0), None), ((9, 1), None), ((8, 9), "9.0")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        said = table.needs_hopper(CUDA)
        assert said is None if why is None else why in said
        assert (choose_token.needs(CUDA) is None) == (table.needs_triton(CUDA) is None)
    assert "CUDA" in table.needs_hopper(torch.device("cpu"))
    for found in (None, object()):
        monkeypatch.setattr(table, "find_spec", lambda name, found=found: found if name == "triton" else 0)
        assert table.has_triton.__wrapped__() is (found is not None)


def test_a_model_is_described_by_its_class_settings_and_weights():
    facts = [compile_ahead.describe(one) for one in (a_gpt(), a_gpt(width=32), a_gpt(activation="relu"),
                                                     a_gpt().double(), nn.Linear(2, 3), nn.Linear(3, 2))]  # fmt: skip
    assert len(set(map(repr, facts))) == len(facts)
    assert compile_ahead.describe(a_gpt()) == compile_ahead.describe(a_gpt())
    assert facts[0][:2] == ("GPT", a_gpt().settings)
    assert facts[4][1] is None


# -- graphs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cuda(monkeypatch):
    """PyTorch's CUDA as a list of what was asked of it."""
    done = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            done.append(f"{self.name} waits for {other.name}")

    class Within:
        def __init__(self, *what, **how):
            self.what = what, how

        def __enter__(self):
            done.append(self.what)

        def __exit__(self, *error):
            done.append("leave")

    mode = ["default"]
    fake = SimpleNamespace(
        Stream=lambda device: Stream(f"own of {device}"), current_stream=lambda: Stream("usual"), stream=Within,
        graph=Within, graph_pool_handle=lambda: "pool", CUDAGraph=lambda: "graph",
        get_sync_debug_mode=lambda: mode[0], set_sync_debug_mode=lambda new: mode.__setitem__(0, new),
    )  # fmt: skip
    monkeypatch.setattr(graphs, "torch", SimpleNamespace(cuda=fake, device=lambda name: name))
    return SimpleNamespace(done=done, mode=mode)


def test_work_is_warmed_up_on_the_stream_that_records_it_and_captured_once(cuda):
    found = graphs.Recorder("gpu").warm_up(lambda: cuda.done.append("work") or 5)
    assert found == 5
    inside = cuda.done[1]
    assert cuda.done == ["own of gpu waits for usual", inside, "work", "leave", "usual waits for own of gpu"]
    assert inside[0][0].name == "own of gpu"
    cuda.done.clear()
    assert graphs.recorded(lambda: cuda.done.append("work")) == "graph"
    assert cuda.done.count("work") == 3
    (graph, pool, stream), how = cuda.done[-3]
    assert (graph, pool, stream.name, how) == ("graph", "pool", "own of cuda", {"capture_error_mode": "thread_local"})


@pytest.mark.parametrize("waits", [True, False])
def test_work_that_makes_the_host_wait_is_found_by_its_second_run(cuda, waits):
    modes = []

    def work():
        modes.append(cuda.mode[0])
        if waits and cuda.mode[0] == "error":
            raise RuntimeError("synchronizing")

    assert graphs.synchronizes(work) is waits
    assert modes == ["default", "error"]
    assert cuda.mode == ["default"]


class Graph:
    """A graph that computes where it is replayed, and not where it is recorded."""

    def __init__(self, work):
        self.replay = work


class FakeRecorder:
    def __init__(self, device):
        self.device, self.warm, self.recorded = device, 0, []

    def warm_up(self, work):
        self.warm += 1
        return work()

    def record(self, work):
        self.recorded.append(Graph(work))
        return self.recorded[-1]


def test_decoding_steps_are_recorded_once_for_each_number_after_two_warm_ups(monkeypatch):
    steps, told = [], []
    monkeypatch.setattr(recorded_writer.Writer, "run", lambda writer, number: steps.append(number))
    monkeypatch.setattr(recorded_writer, "Recorder", FakeRecorder)
    monkeypatch.setattr(recorded_writer, "is_swapped", lambda method: method == "fast")
    monkeypatch.setattr(recorded_writer, "compile_ahead", lambda work, *what: (work(), told.append(what)))

    def writer(step, sampling=GREEDY, rows=4, capacity=20):
        one = SimpleNamespace(step=step, sampling=sampling, device="gpu", model=a_gpt(), adjust=None)
        return SimpleNamespace(one_step=one, device="gpu", rows=rows, capacity=capacity)

    given = writer("written")
    run = recorded_writer.RecordedSteps(given)
    assert (steps, told) == ([], [])  # a step as written may change the state: it is not run before
    assert recorded_writer.recording_of(given) is recorded_writer.recording_of(given)
    for number in (3, 0, 2, 3, 3, 2, 0):
        run(number)
    recorder = recorded_writer.recording_of(given).recorder
    assert steps == [3, 2, 3, 3, 2]
    assert (recorder.warm, len(recorder.recorded)) == (2, 2)
    steps.clear()
    for sampling, rows, capacity in ((GREEDY, 4, 20), (Sampling(0.7), 4, 20), (Sampling(top_p=0.8), 4, 20),
                                     (Sampling(top_k=3), 4, 20), (GREEDY, 5, 20), (GREEDY, 4, 40)):  # fmt: skip
        recorded_writer.RecordedSteps(writer("fast", sampling, rows, capacity))
    assert steps == [1] * 6
    assert len(set(map(repr, told))) == 6
    assert {what[:2] for what in told} == {("gpu", "tokens")}
    asked = []
    monkeypatch.setattr(recorded_writer, "synchronizes", lambda work: asked.append(work) or True)
    assert recorded_writer.allows_steps(writer("fast"), Use()) is None
    assert asked == []
    slow = writer("written")
    slow.one_step.device = "cpu"
    assert "makes the host wait" in recorded_writer.allows_steps(slow, Use())
    assert len(asked) == 1
    slow.one_step.adjust = print
    assert "the last token" in recorded_writer.allows_steps(slow, Use())


# -- the captured training step --------------------------------------------------------------------------------------


def settings_of(kind=Training, **more):
    return kind(**{"steps": 5, "batch_tokens": 64, **more})


@pytest.mark.parametrize(
    ("make", "kind", "wanted", "found"),
    [
        (lambda: lstm.LSTMModel(11, lstm.Settings(width=8)), Training, "auto", True),
        (lambda: lstm.LSTMModel(11, lstm.Settings(width=8)), Training, "off", False),
        (a_gpt, Training, "auto", "bound"),
        (a_gpt, Training, "on", True),
        (a_transformer, PairTraining, "auto", True),
        (lambda: seq2seq.Seq2Seq(11, seq2seq.Settings(width=8, cell="lstm")), PairTraining, "auto", True),
        (lambda: bahdanau.Bahdanau(11, bahdanau.Settings(width=8, cell="gru")), PairTraining, "auto", True),
        (lambda: bahdanau.Bahdanau(11, bahdanau.Settings(width=8, cell="gru")), PairTraining, "on", True),
    ],
)
def test_on_a_gpu_steps_of_recurrent_models_and_translators_are_captured_and_others_if_launching_takes_longer(
    make, kind, wanted, found, monkeypatch
):
    model = make()
    monkeypatch.setattr(type(model), "device", CUDA)
    for bound in (True, False):
        monkeypatch.setattr(captured_step, "is_launch_bound", lambda model, settings, bound=bound: bound)
        assert captured_step.captures(model, settings_of(kind, capture=wanted)) is (
            bound if found == "bound" else found
        )


def test_a_translator_that_packs_its_sources_is_not_captured(monkeypatch):
    model = bahdanau.Bahdanau(11, bahdanau.Settings(width=8, cell="gru"))
    monkeypatch.setattr(bahdanau.Bahdanau, "device", CUDA)
    monkeypatch.setattr(captured_step, "CLOSED", ())
    assert not captured_step.recordable(model)
    assert not captured_step.captures(model, settings_of(PairTraining))
    with pytest.raises(RegardError, match="does not support this Bahdanau"):
        captured_step.captures(model, settings_of(PairTraining, capture="on"))


@pytest.mark.parametrize(("tokens", "bound"), [(99, True), (100, False), (101, False)])
def test_a_step_is_bound_by_its_launches_if_they_take_longer_than_its_operations(tokens, bound, monkeypatch):
    """Three modules of a quarter of a second against 0.0075 seconds for a token."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    model.flops_per_token = 0.0075
    monkeypatch.setattr(captured_step, "RATE", 1.0)
    monkeypatch.setattr(captured_step, "LAUNCHING", 0.25)
    assert captured_step.is_launch_bound(model, SimpleNamespace(batch_tokens=tokens)) is bound


@pytest.mark.parametrize(("system", "batches"), [("lstm", "stream"), ("lstm", "windows"), ("gpt", "windows")])
def test_a_training_whose_steps_are_replayed_ends_with_the_same_weights(system, batches, tmp_path, monkeypatch):
    told, made = [], []
    monkeypatch.setattr(captured_step, "Recorder", lambda device: made.append(FakeRecorder(device)) or made[-1])
    monkeypatch.setattr(captured_step, "is_compiled", lambda *what: False)
    monkeypatch.setattr(
        captured_step,
        "start_compiling",
        lambda work, *what, **how: told.append((what, how)) or compile_ahead.Compiling(),
    )
    weights, losses = [], []
    for captured in (False, True):
        one = trainer(tmp_path / str(captured), system, batches=batches, steps=11, batch_tokens=1024)
        if captured:
            one.runner = captured_step.CapturedStep(one)
        losses.append([float(one.step()[0]) for _ in range(11)])  # into the fourth epoch
        weights.append(one.model.state_dict())
    assert losses[0] == losses[1]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    assert not one.runner.changed_weights  # the trainer's step has ended
    recordings = one.runner.captured.recordings
    assert len(made) == 1
    assert sum(1 for each in recordings.values() if each.graph is not None) >= 1
    assert made[0].warm == sum(
        (captured_step.WARM_UP if not number else captured_step.WARM_UP_AGAIN) - each.warm_up
        for number, each in enumerate(recordings.values())
    )
    assert len(told) == len(recordings)
    assert all(what[:2] == (one.device, "step") for what, _ in told)
    assert all(how == {"backward": True, "settings": one.model.settings} for _, how in told)
    assert len({repr(what) for what, _ in told}) == len(told)
    assert one.runner.captured.graph is next(iter(recordings.values())).graph
    one.runner.release()
    assert one.runner.captured.graph is None
    assert not one.runner.captured.recordings


def test_only_so_many_shapes_are_recorded_and_the_others_are_computed_as_written(tmp_path, monkeypatch):
    monkeypatch.setattr(captured_step, "Recorder", FakeRecorder)
    monkeypatch.setattr(captured_step, "is_compiled", lambda *what: True)
    monkeypatch.setattr(captured_step, "TEXT_SHAPES", 1)
    one = trainer(tmp_path, "gpt")
    one.runner = captured_step.CapturedStep(one)
    last = one.batches.steps_per_epoch - 1
    assert one.runner.captured.is_new(one.batches.batch(0))
    for step in (0, last, 0):
        one.progress.step = step
        one.step()
    assert len(one.runner.captured.recordings) == 1
    assert one.runner.captured.fits(one.batches.batch(0))
    assert not one.runner.captured.fits(one.batches.batch(last))
    assert one.runner.captured.is_new(one.batches.batch(last))
    group = SimpleNamespace(alone=False)
    assert "several processes" in captured_step.allows(SimpleNamespace(group=group), Use())
    assert "not known to gain" in captured_step.allows(one, Use())
    monkeypatch.setattr(captured_step, "captures", lambda model, settings: True)
    assert captured_step.allows(one, Use()) is None


def test_a_recorded_step_writes_into_tensors_of_its_own():
    """What it is first called with belongs to the caller."""

    def update(batch, state):
        total = batch.tokens.double().sum() + state["sum"].sum()
        return total, {"sum": state["sum"] + batch.tokens.double().sum(1)}

    made = []
    captured = captured_step.Captured(update, lambda rows: {"sum": torch.zeros(rows).double()}, shapes=2)
    captured._recorder = FakeRecorder("cpu")
    state, wanted = None, torch.zeros(2).double()
    for number in range(6):
        tokens = torch.full((2, 3), number)
        made.append(TensorBatch(tokens, tokens + 1, None))
        loss, state = captured(made[-1], state)
        assert float(loss) == 6 * number + float(wanted.sum())
        wanted += 3 * number
        assert torch.equal(state["sum"], wanted)
    assert [int(batch.tokens[0, 0]) for batch in made] == list(range(6))
    assert captured._recorder.warm == captured_step.WARM_UP
    fresh, _ = captured(made[2], None)  # from the beginning again
    assert float(fresh) == 12


def test_a_step_on_padded_weights_is_for_adamw_in_bf16_on_a_recurrent_net(monkeypatch):
    monkeypatch.setattr(padded_step, "has_triton", lambda: True)

    def taken(model=None, kind="adamw", bf16=True, device="cuda", accumulate=1, rate=True, change=None):
        model = model or lstm.LSTMModel(11, lstm.Settings(width=8, layers=1))
        named = [(name, weight) for name, weight in model.named_parameters()]
        optimizer = build_optimizer(kind, named, learning_rate=0.1, weight_decay=0.0, beta2=0.9)
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(0.1) if rate else 0.1
            group |= change or {}
        return padded_step.takes(SimpleNamespace(
            model=model, optimizer=optimizer, bf16=bf16, device=SimpleNamespace(type=device),
            settings=SimpleNamespace(accumulate=accumulate),
        ))  # fmt: skip

    assert taken()
    refused = ({"kind": "sgd"}, {"bf16": False}, {"device": "cpu"}, {"accumulate": 2}, {"rate": False},
               {"change": {"amsgrad": True}}, {"change": {"maximize": True}}, {"model": a_gpt()},
               {"model": lstm.LSTMModel(11, lstm.Settings(width=8, layers=1)).double()})  # fmt: skip
    assert not any(taken(**one) for one in refused)
    monkeypatch.setattr(padded_step, "has_triton", lambda: False)
    assert not taken()


# -- word vectors and the minimal GRU --------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("position", [None, "learned"])
def test_word_vectors_and_their_gradients_are_those_of_the_embedding(held, position, monkeypatch):
    monkeypatch.setattr(padded_weights, "MAX_WORDS", 0)  # without the kernel
    torch.manual_seed(0)
    embedding = Embedding(9, 4, None if position is None else Learned(4, 6))
    tokens, span = torch.randint(9, (3, 5)), Span(torch.zeros(3, dtype=torch.int64))
    weigh = torch.randn(3, 5, 4)
    written = embedding(tokens, span)
    wanted = torch.autograd.grad((written * weigh).sum(), list(embedding.parameters()))
    kept = {id(weight): padded_weights.PaddedWeight(weight) for weight in embedding.parameters()} if held else {}
    with padded_weights.using(kept):
        found = table_lookup.word_vectors(embedding, tokens, span)
        torch.testing.assert_close(found, written)
        (found * weigh).sum().backward()
    for weight, gradient in zip(embedding.parameters(), wanted, strict=True):
        if not held:
            torch.testing.assert_close(weight.grad, gradient)
            continue
        one = kept[id(weight)]
        torch.testing.assert_close(one.take(torch.ones(()))[0], gradient)
        assert weight.grad is None
        one.put(torch.ones_like(weight), torch.tensor(0.5))  # of the prediction, in halves
        one.add_words(torch.tensor([[1, 1]]), torch.full((1, 2, weight.size(1)), 3.0))
        found, factor = one.take(torch.ones(()))
        added = torch.full_like(weight, 0.5)
        added[1] += 6
        torch.testing.assert_close(found * factor, added)


def test_word_vectors_are_looked_up_so_where_a_captured_training_on_text_reads_few_words():
    use = Use(training=True, bf16=True, captured=True)
    plain, placed = Embedding(9, 4), Embedding(9, 4, Learned(4, 6))
    assert table_lookup.allows(plain, use) is table_lookup.allows(placed, use) is None
    for other in (Use(training=True, bf16=True), Use(training=True, captured=True), Use(bf16=True, captured=True),
                  Use(training=True, bf16=True, captured=True, pairs=True)):  # fmt: skip
        assert "captured training on text in bf16" in table_lookup.allows(plain, other)
    for embedding in (Embedding(9, 4, Sinusoid(4)), Embedding(9, 6, Learned(2, 6), concatenate=True),
                      Embedding(9, 6, Learned(2, 6)), Embedding(9, 4, scale=2.0),
                      Embedding(9, 4, word_dropout=0.1)):  # fmt: skip
        assert "only words and learned positions" in table_lookup.allows(embedding, use)
    sharded = Embedding(9, 4)
    sharded.table.weight.full_tensor = None
    assert table_lookup.allows(sharded, use) == "its table is sharded"
    few, many = Drawn(2, table_lookup.MAX_WORDS // 2), Drawn(2, table_lookup.MAX_WORDS // 2 + 1)
    fits = [table_lookup.fits(embedding, tokens, None) for embedding, tokens in product((plain, placed), (few, many))]
    assert fits == [True, True, True, False]
    assert not table_lookup.fits(plain, Drawn(2, 2, is_cuda=False), None)
    assert not table_lookup.fits(Embedding(9, 4).double(), few, None)
    with torch.no_grad():
        assert not table_lookup.fits(plain, few, None)


def test_the_kernels_of_the_minimal_gru_are_launched_over_rows_and_blocks_of_components(monkeypatch):
    calls = []

    class Kernel:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            return lambda *given, **how: calls.append((self.name, grid, given, how))

    module = ModuleType("regard.fast.kernels.gated_scan")
    module.scan_forward, module.scan_backward = Kernel("forward"), Kernel("backward")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(minimal_gru, "BLOCK", 4)
    for lengths, dtype in ((None, torch.float32), (torch.tensor([3, 1]), torch.bfloat16)):
        calls.clear()
        packed = torch.randn(2, 3, 10, dtype=dtype, requires_grad=True)
        first = torch.zeros(2, 5, dtype=dtype)
        hidden, state = minimal_gru.run(packed, {"hidden": first}, Span(torch.zeros(2, dtype=torch.int64), lengths))
        assert (hidden.shape, hidden.dtype, state["hidden"].dtype) == ((2, 3, 5), dtype, torch.float32)
        (hidden.float().sum() + state["hidden"].sum()).backward()
        assert [(name, grid) for name, grid, _, _ in calls] == [("forward", (2, 2)), ("backward", (2, 2))]
        for _, _, given, how in calls:
            assert given[-2:] == (3, 5)
            assert how["RAGGED"] is (lengths is not None)
            assert given[2] is (lengths if lengths is not None else given[1])
        assert packed.grad.shape == packed.shape
    layer = SimpleNamespace()
    shapes = ((1, 2, 2), (1, 1, 2), (0, 2, 2))
    assert [minimal_gru._fits(layer, torch.ones(shape), {}, None) for shape in shapes] == [True, False, False]


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_a_sigmoid_network_is_a_tanh_network_of_twice_its_state_less_one(activation):
    torch.manual_seed(0)
    layer = Elman(3, 4, activation=activation).double()

    def by_torch(layer, weights, x, state, span):
        hidden, end = torch.rnn_tanh(x, state["hidden"][None], list(weights), True, 1, 0.0, False, False, True)
        return hidden, {"hidden": end[0]}

    x, state = torch.randn(2, 5, 3).double(), {"hidden": torch.rand(2, 4).double()}
    span = Span(torch.zeros(2, dtype=torch.int64))
    wanted, after, _ = layer.explain(x, state, span)
    found, end = recurrent_layers.run(by_torch, layer, x, state, span)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(end["hidden"], after["hidden"])


def test_widths_of_the_lstms_chain_are_whole_numbers_of_sixteen_bytes(monkeypatch):
    shapes, real = [], lstm_chain.Chain.apply

    def noting(*given):
        shapes.append([tuple(part.shape) for part in given])
        return real(*given)

    monkeypatch.setattr(lstm_chain.Chain, "apply", noting)
    for inputs, width in ((3, 5), (8, 16), (9, 7)):
        layer = LSTM(inputs, width)
        state = layer.begin(2, device="cpu", dtype=torch.float32)
        weights = {f"{name}_l0": layer.weight(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        x = torch.randn(2, 3, inputs)
        found, _ = lstm_chain.lstm_chain(x, state, weights)
        wanted, _, _ = layer.explain(x, state, Span(torch.zeros(2, dtype=torch.int64)))
        torch.testing.assert_close(found, wanted)
        (_, _, d), (four, own), _, (_, h), (_, c), (gates, back) = shapes.pop()
        assert (d % 8, h % 8) == (0, 0)
        assert (d - inputs, h - width) == (-inputs % 8, -width % 8)
        assert (four, own, gates, back, c) == (4 * h, d, 4 * h, h, h)


# -- choosing a token, and steps of a GPT ----------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.7), Sampling(1.3, top_k=2), Sampling(top_p=0.8),
                                      Sampling(top_k=2, top_p=0.8)], ids=str)  # fmt: skip
@pytest.mark.parametrize("banned", [[], [0, 3]])
def test_the_kernel_that_chooses_is_given_limits_banned_tokens_and_the_least_logit_of_the_best_k(
    sampling, banned, monkeypatch
):
    calls = []
    module = ModuleType("regard.fast.kernels.token_choice")
    module.choose_into = lambda *given, **how: calls.append((given, how))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    logits = torch.tensor([[5.0, 1.0, 2.0, 9.0, 3.0]])
    forbidden = torch.tensor(banned) if banned else None
    step = SimpleNamespace(sampling=sampling, device="cpu", banned=forbidden, model=SimpleNamespace(vocabulary=5),
                           allowed=lambda given: given if forbidden is None
                           else given.index_fill(-1, forbidden, -torch.inf))  # fmt: skip
    choose_token.TokenChoice(step)(logits, "uniform", "written", "highest")
    ((given, how),) = calls
    assert given[:2] == ("written", "highest")
    assert given[2] is logits
    assert given[3] == "uniform"
    drawn = sampling.temperature > 0
    assert (how["limits"] is None) != drawn
    if drawn:
        assert how["limits"].tolist() == [sampling.temperature, sampling.top_p]
        assert how["limits"].dtype == torch.float64
    assert how["top_p"] == (drawn and sampling.top_p < 1 and not sampling.top_k)
    assert (None if how["banned"] is None else how["banned"].tolist()) == ([1, 0, 0, 1, 0] if banned else None)
    if sampling.top_k and drawn and sampling.top_p == 1:
        assert float(how["least"]) == (2.0 if banned else 5.0)
    assert (how["least"] is not None) == (drawn and bool(sampling.top_k))


def test_a_token_is_chosen_by_the_kernel_from_logits_of_at_most_32_bits():
    for dtype, said in (
        (torch.float32, None),
        (torch.bfloat16, None),
        (torch.float16, None),
        (torch.float64, "32 bits"),
    ):
        step = SimpleNamespace(model=nn.Linear(2, 2).to(dtype), sampling=GREEDY)
        why = choose_token.allows(step, Use())
        assert why is None if said is None else said in why
    step = SimpleNamespace(model=nn.Linear(2, 2), sampling=Sampling(min_p=0.1))
    assert "min_p" in choose_token.allows(step, Use())
    assert "32 bits" in choose_token.allows(SimpleNamespace(model=nn.Identity(), sampling=GREEDY), Use())


class Launched:
    """A kernel that is computed by PyTorch, with its grid: kernel[grid](…)."""

    def __init__(self, name, compute, done):
        self.name, self.compute, self.done = name, compute, done

    def __getitem__(self, grid):
        def launch(*given, **how):
            self.done.append(self.name)
            self.compute(grid, *given, **how)

        return launch


STAGES = []  # of products of many rows, and the bytes that each stage holds


def covers(programs, size, whole):
    return (programs - 1) * size < whole <= programs * size


def is_tile(number, least=1):
    return number >= least and number.bit_count() == 1


def normed_by(v, gain, shift, epsilon, SHIFT):
    return nn.functional.layer_norm(v, v.shape[-1:], gain, shift if SHIFT else None, epsilon)


ACTIVATIONS = {
    "none": lambda y: y, "relu": torch.relu, "gelu": lambda y: nn.functional.gelu(y, approximate="tanh")
}  # fmt: skip


def embed(grid, tokens, seen, words, places, gain, shift, x, normed, scale, last, epsilon, *, WIDTH, BLOCK, PLACES,
          NORM, SHIFT, EARLY):  # fmt: skip
    assert grid == (len(tokens),)
    assert x.size(1) == WIDTH
    assert is_tile(BLOCK, WIDTH)
    x.copy_(words[tokens] * scale + (places[seen.clamp(max=last)] if PLACES else 0.0))
    if NORM:
        normed.copy_(normed_by(x, gain, shift, epsilon, SHIFT))


def product_of_few_rows(grid, x, gain, shift, weight, bias, residual, y, seen, columns, epsilon, *, INNER, BLOCK_INNER,
                        WARPS, EACH, ROWS, NORM, SHIFT, BIAS, ACTIVATION, RESIDUAL, ADVANCE, EARLY,
                        num_warps):  # fmt: skip
    assert covers(grid[0], WARPS * EACH, columns)
    assert (weight.shape, ROWS, num_warps) == ((columns, INNER), len(x), WARPS)
    assert is_tile(BLOCK_INNER, max(INNER, 128))
    v = normed_by(x, gain, shift, epsilon, SHIFT) if NORM else x
    v = ACTIVATIONS[ACTIVATION](v @ weight.T + (bias if BIAS else 0.0))
    y.copy_(v + (residual if RESIDUAL else 0.0))
    if ADVANCE:
        seen += 1


def product_of_many_rows(grid, x, weight, bias, y, seen, rows, columns, *, INNER, BLOCK_INNER, BLOCK, ROWS, BIAS,
                         ACTIVATION, ADVANCE, EARLY, num_warps, num_stages):  # fmt: skip
    assert covers(grid[0], BLOCK, columns)
    assert covers(grid[1], ROWS, rows)
    assert is_tile(ROWS, 16)
    assert (weight.shape, len(x)) == ((columns, INNER), rows)
    STAGES.append((num_stages, (ROWS + BLOCK) * BLOCK_INNER * 4))
    y.copy_(ACTIVATIONS[ACTIVATION](x @ weight.T + (bias if BIAS else 0.0)))
    if ADVANCE:
        seen += 1


def split_k_product(grid, x, weight, y, rows, columns, *, INNER, BLOCK_INNER, BLOCK, ROWS, EARLY, num_warps):
    assert covers(grid[0], BLOCK, columns)
    assert covers(grid[1], BLOCK_INNER, INNER)
    assert covers(grid[2], ROWS, rows)
    assert is_tile(ROWS, 16)
    assert (y.shape, y.dtype) == ((grid[1], rows, columns), torch.float32)
    for number, (part, of_weight) in enumerate(zip(x.split(BLOCK_INNER, 1), weight.split(BLOCK_INNER, 1), strict=True)):
        y[number] = part @ of_weight.T


def add_norm(grid, x, parts, bias, gain, shift, y, normed, rows, epsilon, *, SPLITS, WIDTH, BLOCK, SHIFT, BIAS, EARLY,
             num_warps):  # fmt: skip
    assert (grid, SPLITS, WIDTH) == ((rows,), len(parts), x.size(1))
    assert is_tile(BLOCK, WIDTH)
    y.copy_(x + parts.sum(0) + (bias if BIAS else 0.0))
    normed.copy_(normed_by(y, gain, shift, epsilon, SHIFT))


def turned(v, position):
    """Components k and k + d/2 turned by t / 10000^(2k/d)."""
    half = v.size(-1) // 2
    angle = position[:, None, None] * 10000.0 ** (-torch.arange(half) / half)
    one, other = v.split(half, -1)
    return torch.cat([one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1)


def attend(grid, qkv, bias, keys, values, seen, context, rows, slots, scale, *, HEADS, WIDTH, BLOCK_WIDTH, PARTS, EACH,
           SPLITS, BIAS, ROTARY, EARLY, num_warps):  # fmt: skip
    assert (grid, SPLITS, keys.shape) == ((rows * HEADS,), len(qkv), (rows, HEADS, slots, WIDTH))
    assert is_tile(BLOCK_WIDTH, WIDTH)
    assert is_tile(PARTS, num_warps)
    query, key, value = (qkv.sum(0) + (bias if BIAS else 0.0)).view(rows, 3, HEADS, WIDTH).unbind(1)
    if ROTARY:
        query, key = turned(query, seen), turned(key, seen)
    slot = seen.clamp(max=slots - 1)
    keys[torch.arange(rows), :, slot], values[torch.arange(rows), :, slot] = key, value
    scores = (query[:, :, None] @ keys.mT)[:, :, 0] * scale  # [R, H, S]
    scores = scores.masked_fill(torch.arange(slots) > slot[:, None, None], -torch.inf)
    context.copy_((scores.softmax(-1)[:, :, None] @ values)[:, :, 0].flatten(1))


@pytest.mark.parametrize("rows", [1, 3, 4, 70])
@pytest.mark.parametrize("settings", [
    {}, {"position": "rotary"}, {"bias": False}, {"tied": False, "activation": "relu"},
    {"position": "none", "width": 24, "heads": 3},
], ids=str)  # fmt: skip
def test_the_kernels_of_a_step_are_launched_with_what_they_need(rows, settings, monkeypatch):
    """Played by PyTorch, they give the model's own step; few rows take other kernels than many."""
    done, module = [], ModuleType("regard.fast.kernels.decode")
    for compute in (embed, product_of_few_rows, product_of_many_rows, split_k_product, add_norm, attend):
        setattr(module, compute.__name__, Launched(compute.__name__, compute, done))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(importlib.import_module("regard.fast.kernels"), "decode", module, raising=False)
    torch.manual_seed(0)
    model = a_gpt(**settings).eval()
    for weight in model.parameters():
        weight.data.normal_(std=0.3)
    states = []
    with torch.no_grad():
        for _ in range(2):
            torch.manual_seed(1)
            state = model.begin(rows=rows, capacity=12)
            _, state = model(torch.randint(31, (rows, 8)), state, torch.randint(1, 9, (rows,)))
            states.append(state)
        fast = decode_step.DecodeStep(model)
        for _ in range(2):
            tokens = torch.randint(31, (rows,))
            hidden, _ = model.read(tokens[:, None], states[0])
            torch.testing.assert_close(fast(tokens, states[1]), model.predict(hidden[:, 0]), rtol=1e-4, atol=1e-4)
    assert states[0]["seen"].equal(states[1]["seen"])
    for name, past in states[0]["past"].items():
        for part in ("key_buffer", "value_buffer"):
            torch.testing.assert_close(states[1]["past"][name][part], past[part], rtol=1e-4, atol=1e-4)
    assert ("product_of_few_rows" in done) == (rows <= 3) != ("split_k_product" in done)
    assert all(1 <= stages <= 99 * 1024 // held for stages, held in STAGES)
    for memory in (1, 2 * STAGES[0][1] + 1) if STAGES else ():
        STAGES.clear()
        fast.memory = memory
        with torch.no_grad():
            fast(torch.randint(31, (rows,)), states[1])
        assert {stages for stages, _ in STAGES} <= {1, 2}
        assert all(stages == max(1, memory // held) for stages, held in STAGES)
    STAGES.clear()
    done.clear()
    monkeypatch.setattr(decode_step, "WIDEST", 4 * model.embedding.width - 1)  # too wide for a warp
    with torch.no_grad():
        decode_step.DecodeStep(model)(torch.randint(31, (rows,)), states[1])
    assert "product_of_few_rows" not in done


def test_tiles_and_warps_of_attention_are_powers_of_two_and_shared_memory_is_that_of_the_smallest_device(monkeypatch):
    for programs in (1, 127, 128, 511, 512, 4096):
        for slots in (1, 384, 385, 4096):
            assert all(decode_step.power_of_two(size) == size for size in decode_step.attention_tile(programs, slots))
    module = ModuleType("regard.fast.kernels.decode")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(importlib.import_module("regard.fast.kernels"), "decode", module, raising=False)
    assert 48 << 10 < decode_step.DecodeStep(a_gpt()).memory <= 100 << 10


def test_tiles_of_a_residual_sum_and_of_short_attention_are_powers_of_two_from_16_on():
    for number in range(1, 70):
        for tile in (residual.tile, short_attention._tile):
            assert tile(number) == max(16, decode_step.power_of_two(number))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_lean_step_fills_a_cache_to_its_last_slot(rows):
    torch.manual_seed(0)
    model = a_gpt().double().eval()
    states = []
    with torch.no_grad():
        prompt, lengths = torch.randint(31, (rows, 4)), torch.tensor([4, 2, 3])[:rows]
        for _ in range(2):
            _, state = model(prompt, model.begin(rows=rows, capacity=6), lengths)
            states.append(state)
        step = LeanStep(model)
        for _ in range(2):  # the longest row reads its fifth and its sixth word
            tokens = torch.randint(31, (rows,))
            hidden, _ = model.read(tokens[:, None], states[0])
            torch.testing.assert_close(step(tokens, states[1]), model.predict(hidden[:, 0]))
    assert int(states[1]["seen"].max()) == 6
    for name, past in states[0]["past"].items():
        torch.testing.assert_close(states[1]["past"][name]["key_buffer"], past["key_buffer"])


def test_a_model_is_decoded_by_kernels_on_one_gpu_of_compute_capability_8_or_more_in_at_most_32_bits(monkeypatch):
    monkeypatch.setattr(decode_step, "has_triton", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def placed(*weights, capability=(8, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        made = [SimpleNamespace(device=device, dtype=dtype, is_cuda=device == "gpu") for device, dtype in weights]
        return decode_step._placed(SimpleNamespace(parameters=lambda: iter(made)))

    half = ("gpu", torch.bfloat16)
    assert placed(half, half)
    assert placed(("gpu", torch.float16))
    assert placed(("gpu", torch.float32), capability=(9, 0))
    assert not placed(half, capability=(7, 5))
    for weights in ([half, ("gpu", torch.float32)], [("gpu", torch.float64)], [("cpu", torch.float32)],
                    [half, ("other gpu", torch.bfloat16)]):  # fmt: skip
        assert not placed(*weights)
    monkeypatch.setattr(torch.version, "cuda", None)  # ROCm
    assert not placed(half)


def test_a_missing_shift_or_bias_is_another_tensor_that_nothing_reads():
    other, norm = torch.ones(1), nn.LayerNorm(3)
    assert decode_step._affine(None, other) == (other, other)
    assert decode_step._affine(norm, other)[0] is norm.weight
    assert decode_step._affine(norm, other)[1] is norm.bias
    bare = nn.LayerNorm(3, bias=False)
    assert decode_step._affine(bare, other)[1] is other
    for tied, wanted in ((True, "table"), (False, "output")):
        model = a_gpt(tied=tied)
        step = object.__new__(decode_step.DecodeStep)
        step.model = model
        assert step._output() is (model.embedding.table if wanted == "table" else model.output)
    assert [decode_step._name(SimpleNamespace(activation=one)) for one in (nn.GELU(), nn.ReLU())] == ["gelu", "relu"]


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_dropped_shares_are_of_sixteen_bits_and_the_rest_is_scaled():
    for rate in (0.0, 0.1, 0.5, 0.999999):
        dropped, scale = residual.dropout_threshold(rate)
        assert dropped == min(round(rate * 65536), 65535)
        assert scale == pytest.approx(65536 / (65536 - dropped))
    norm, bias = nn.LayerNorm(3), torch.ones(3)
    assert [id(one) for one in residual.vectors_of(norm, bias)] == [id(norm.weight), id(norm.bias), id(bias)]
    bare = nn.RMSNorm(3)
    assert [id(one) for one in residual.vectors_of(bare, None)] == [id(bare.weight)]


def test_short_attention_is_for_2_to_64_words_in_halves_on_a_gpu(monkeypatch):
    monkeypatch.setattr(short_attention, "has_triton", lambda: True)
    monkeypatch.setattr(short_attention, "precision", lambda x: x.dtype)
    half = Drawn(2, 9, 64)
    fits = {(q, k, d): short_attention.is_short(half, q, k, d)
            for q, k, d in product((1, 2, 64, 65), (0, 1, 64, 65), (16, 17, 128, 256))}  # fmt: skip
    assert {key for key, fit in fits.items() if fit} == set(product((2, 64), (1, 64), (16, 128)))
    assert short_attention.is_short(Drawn(2, 9, 64, dtype=torch.float16), 9, 9, 32)
    assert not short_attention.is_short(Drawn(2, 9, 64, dtype=torch.float32), 9, 9, 32)
    assert not short_attention.is_short(Drawn(2, 9, 64, is_cuda=False), 9, 9, 32)
    monkeypatch.setattr(short_attention, "has_triton", lambda: False)
    assert not short_attention.is_short(half, 9, 9, 32)


def test_stacks_of_short_sentences_are_those_of_known_blocks_read_from_the_start(monkeypatch):
    model = a_transformer(width=32)
    blocks = list(model.layers)
    assert short_blocks.are_known(blocks)
    assert short_blocks.are_known(list(model.encoder.blocks))
    assert short_blocks._knows_decoder(model, Use()) is short_blocks._knows_encoder(model.encoder, Use()) is None
    assert not short_blocks.are_known([])
    assert not short_blocks.are_known([*blocks, nn.Linear(2, 2)])
    turned, bare = a_transformer(width=32, position="rotary"), a_transformer(width=32)
    bare.layers[1].feedforward.expand.bias = bare.encoder.blocks[1].attention.output.bias = None
    for other in (turned, bare):
        assert not short_blocks.are_known(list(other.layers))
        assert "a different kind" in short_blocks._knows_decoder(other, Use())
        assert "a different kind" in short_blocks._knows_encoder(other.encoder, Use())
    asked = []
    monkeypatch.setattr(short_blocks, "is_short", lambda like, *sizes: asked.append(sizes) or max(sizes[:2]) < 20)
    assert short_blocks.are_short(blocks, Drawn(2, 9, 32), 9, 12)
    assert asked == [(9, 9, 16), (9, 12, 16)]
    assert not short_blocks.are_short(blocks, Drawn(2, 9, 32), 9, 21)
    assert not short_blocks.are_short(blocks, Drawn(2, 9, 32), 21, 9)
    assert short_blocks._fits_memory(model, {"memory": Drawn(2, 19, 32)})
    assert not short_blocks._fits_memory(model, {"memory": Drawn(2, 20, 32)})
    source = {"all_blocks": 1, "valid": torch.ones(3, 12)}

    def fits(tokens=(3, 9), source=source, keys=0):
        past = {"0": {"keys": torch.ones(3, 2, keys, 4)} if keys is not None else {}}
        return short_blocks._fits_target(model, torch.ones(tokens), {"source": source, "past": past}, None)

    assert fits()
    assert not any((fits(tokens=(6, 9)), fits(tokens=(3, 20)), fits(keys=1), fits(keys=None),
                    fits(source={"valid": torch.ones(3, 12)})))  # fmt: skip
    blocks[0].attention.project.weight.full_tensor = None
    assert not short_blocks.are_short(blocks, Drawn(2, 9, 32), 9, 9)
    del blocks[0].attention.project.weight.full_tensor
    model.eval()
    assert not fits()


TRAINED = Use(training=True, bf16=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (a_gpt, None),
        (lambda: a_gpt(norm="post", position="rotary"), None),
        (lambda: llama.Llama(31, llama.Settings(layers=2, width=16, heads=4, context=12)), None),
        (lambda: mingru.MinGRUModel(31, mingru.Settings(layers=2, width=16)), None),
        (lambda: linear_attention.LinearTransformer(31, linear_attention.Settings(layers=2, width=64, heads=2)), None),
        (lambda: a_gpt(position="alibi"), "add a bias to the scores"),
        (lambda: a_gpt(bias=False), "its norms have no bias"),
        (lambda: lstm.LSTMModel(31, lstm.Settings(width=8)), "its blocks are of a different kind"),
    ],
)
def test_blocks_in_few_passes_are_for_training_in_bf16_of_known_parts(make, said):
    model = make()
    why = language_blocks.knows(model, TRAINED)
    assert why is None if said is None else said in why
    for other in (Use(training=True), Use(bf16=True), Use(training=True, bf16=True, compile="on"),
                  Use(training=True, bf16=True, compile="off")):  # fmt: skip
        assert "training.compile auto" in language_blocks.knows(model, other)
    if said is None:
        next(model.parameters()).full_tensor = None
        assert language_blocks.knows(model, TRAINED) == "its weights are sharded"


def test_texts_are_read_in_few_passes_from_their_beginning_in_one_call(monkeypatch):
    def fits(model, rows=2, starts=1, given=False, autocast=True):
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: autocast and kind == "cuda")
        past = {name: ({"keys": 1} if given else {}) for name, _ in model.layers.named_children()}
        span = Span(torch.zeros(starts, dtype=torch.int64))
        return language_blocks.fits(model, torch.ones(rows, 5), {"past": past}, span)

    model = a_gpt().train()
    assert fits(model)
    assert fits(model, starts=2)
    assert not fits(model, given=True)
    assert not fits(model, autocast=False)
    assert not fits(a_gpt().eval())
    turned = a_gpt(position="rotary").train()
    assert (fits(turned), fits(turned, starts=2)) == (True, False)
    linear = linear_attention.LinearTransformer(31, linear_attention.Settings(layers=2, width=64, heads=2)).train()
    assert (fits(linear), fits(linear, starts=2), fits(linear, rows=1)) == (True, False, False)
    small = mingru.MinGRUModel(31, mingru.Settings(layers=2, width=16)).train()
    assert fits(small, given=True)  # its state is no cache
    for block, looks in ((linear.layers[0], True), (small.layers[0], False), (model.layers[0], True)):
        look, work = language_blocks.parts_of(block)
        assert language_blocks.mixes_by_kernels(look.does)
        assert language_blocks.looks_by_kernels(look.does) is looks
        assert look.bias is look.output.bias
        assert list(look.products) == [look.does.project, look.output]
        assert work.output is block.feedforward.output
    other = linear_attention.LinearTransformer(
        31, linear_attention.Settings(layers=1, width=64, heads=2, feature="relu")
    )
    look, _ = language_blocks.parts_of(other.layers[0])
    assert (look.output, look.dropout, look.bias, look.products) == (None, None, None, [])


# -- beam search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"position": "learned", "context": 30}, {"position": "rotary"}, {"position": "none"}]
)
def test_the_words_of_slots_are_embedded_at_their_lengths(settings):
    torch.manual_seed(0)
    model = a_transformer(**settings).double().eval()
    assert beam_step.knows(model) is (settings.get("position") != "alibi")
    rows = beam_step.TransformerRows(model, sources=3, longest=4, room=9, width=2)
    assert (rows.waves is None) == (settings.get("position") == "learned")
    slots = SimpleNamespace(token=torch.randint(1, 31, (3, 2)), length=torch.tensor([0, 4, 8]))
    with torch.no_grad():
        wanted = model.embedding(slots.token.view(-1, 1), Span(slots.length.repeat_interleave(2)))[:, 0]
        torch.testing.assert_close(rows._words(slots), wanted)
        sources, lengths = torch.randint(1, 31, (3, 4)), torch.tensor([4, 2, 3])
        rows.fill(torch.arange(3), sources, lengths)
        memory = model.encode(sources, lengths)["memory"]
        for kept, block in zip(rows.memory, model.layers, strict=True):
            torch.testing.assert_close(kept[:3].flatten(2), block.cross.project(memory))
        assert rows.lengths.tolist() == [4, 2, 3, 1]
        taken = []
        rows.take_in = lambda *batch: taken.append([part.tolist() for part in batch[1:]])
        rows.fill(torch.tensor([2, 0]), sources[:2], lengths[:2])
        assert taken == [[[4], [2]], [[2], [0]]]  # one by one: an eighth of three places is none
        big = beam_step.TransformerRows(model, sources=16, longest=4, room=9, width=2)
        big.take_in = lambda *batch: taken.append(len(batch[0]))
        taken.clear()
        big.fill(torch.arange(16), sources.repeat(6, 1)[:16], lengths.repeat(6)[:16])
        big.fill(torch.arange(5), sources.repeat(6, 1)[:5], lengths.repeat(6)[:5])
        assert taken == [16, 2, 2, 1]


def test_queries_and_keys_of_new_words_are_turned_by_their_places_and_values_are_not(monkeypatch):
    seen_by = []
    module = ModuleType("regard.fast.kernels.beam_attention")
    module.attend_to_own_words = lambda asked, *rest: seen_by.append((asked.clone(), *rest)) or asked[:, :16]
    module.attend_to_source = lambda *given: seen_by.append(given) or given[0]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    torch.manual_seed(0)
    for position in ("rotary", "none"):
        model = a_transformer(position=position).eval()
        rows = beam_step.TransformerRows(model, sources=3, longest=4, room=9, width=2)
        read, seen = torch.randn(6, 16), torch.tensor([0, 4, 8])
        with torch.no_grad():
            rows._own_words(1, read, seen)
            asked, keys, values, ancestors, common, lengths = seen_by.pop()
            plain = model.layers[1].attention.project(read).view(6, 3, 2, 8)
            at = seen.repeat_interleave(2)
            wanted = plain if position == "none" else torch.stack([
                turned(plain[:, 0], at), turned(plain[:, 1], at), plain[:, 2]
            ], 1)  # fmt: skip
            torch.testing.assert_close(asked, wanted.flatten(1))
            assert (keys is rows.keys[1], values is rows.values[1]) == (True, True)
            assert (ancestors is rows.ancestors, common is rows.common, lengths is seen) == (True, True, True)
            found = rows._source(0, read)
            query, memory, source_lengths, width = seen_by.pop()
            torch.testing.assert_close(query, model.layers[0].cross.query(read))
            torch.testing.assert_close(found, model.layers[0].cross.output(query))
            assert (memory is rows.memory[0], source_lengths is rows.lengths, width) == (True, True, 2)


def test_sources_that_are_taken_in_by_a_graph_leave_the_spare_place_for_the_rest(monkeypatch):
    monkeypatch.setattr(beam_step, "recorded", Graph)
    stored = []
    rows = SimpleNamespace(
        lengths=torch.ones(5, dtype=torch.int64), sources=4,
        take_in=lambda *batch: stored.append([part.tolist() for part in batch]),
    )  # fmt: skip
    intake = beam_step.Intake(rows, 3, 2)
    intake(torch.tensor([[7, 8], [5, 6]]), torch.tensor([2, 1]), torch.tensor([3, 0]))
    intake(torch.tensor([[9, 9]]), torch.tensor([2]), torch.tensor([1]))
    assert stored == [
        [[[7, 8], [5, 6], [1, 1]], [2, 1, 1], [3, 0, 4]],
        [[[9, 9], [5, 6], [1, 1]], [2, 1, 1], [1, 4, 4]],
    ]
    done = []
    run = beam_step.RecordedBeam(SimpleNamespace(step=lambda: done.append(1)))
    for steps in (0, 3, 1):
        run(steps)
    assert len(done) == 4


def test_kernels_of_beam_search_take_beams_of_16_in_at_most_32_bits_and_fuse_a_relu():
    assert [beam_step.known_numbers(torch.ones(1, dtype=dtype), width) for dtype, width in (
        (torch.float32, 16), (torch.bfloat16, 1), (torch.float16, 16), (torch.float64, 2), (torch.float32, 17),
    )] == [True, True, True, False, False]  # fmt: skip
    assert beam_step.allows_transformer(SimpleNamespace(model=a_transformer()), Use()) is None
    other = bahdanau.Bahdanau(11, bahdanau.Settings(width=8))
    assert "only the Transformer" in beam_step.allows_transformer(SimpleNamespace(model=other), Use())
    assert not beam_step.knows(other)
    torch.manual_seed(0)
    for activation, biased in (("relu", True), ("gelu", True), ("relu", False)):
        feedforward = a_transformer(activation=activation).eval().layers[0].feedforward
        if not biased:
            feedforward.expand.bias = None
        x = torch.randn(5, 16)
        torch.testing.assert_close(beam_step.work(feedforward, x), feedforward(x))


# -- products --------------------------------------------------------------------------------------------------------


def test_products_are_those_of_matrices_and_each_kind_is_chosen_by_its_name():
    torch.manual_seed(0)
    plain = products.Products(torch.device("cpu"))
    s, x, weight, bias = torch.randn(4, 3), torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)
    dy = torch.randn(4, 3)
    for added, by in product((None, s), (None, bias)):
        wanted = x @ weight.T + (0 if added is None else added) + (0 if by is None else by)
        torch.testing.assert_close(plain.add(added, x, weight, by), wanted)
    torch.testing.assert_close(plain.back(dy, weight), dy @ weight)
    torch.testing.assert_close(plain.gradient(dy, x), dy.T @ x)
    asked = []

    class Library:
        def quickest(self, kind, rows, plain, *others):
            asked.append((kind, rows))
            first, second = plain(), others[0]()
            return first, second

        def add(self, *given):
            return "add", given

        def back(self, *given):
            return "back", given

        def gradient(self, *given):
            return "gradient", given

    fused = products.Products(torch.device("cpu"))
    fused.library = Library()
    for added, by in product((None, s), (None, bias)):
        first, second = fused.add(added, x, weight, by)
        torch.testing.assert_close(first, plain.add(added, x, weight, by))
        assert (second[0], [one is other for one, other in zip(second[1], (added, x, weight, by), strict=True)]) == (
            "add", [True] * 4,
        )  # fmt: skip
    assert fused.back(dy, weight)[1] == ("back", (dy, weight))
    assert fused.gradient(dy, x)[1] == ("gradient", (dy, x))
    fused.back(dy.double(), weight.double())
    fused.gradient(torch.randn(4, 5), torch.randn(4, 3))
    assert len({kind for kind, _ in asked}) == len(asked) == 8
    assert {rows for _, rows in asked} == {4}
    assert np.all([kind.startswith("('") for kind, _ in asked])
