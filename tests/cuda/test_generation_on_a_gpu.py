"""The engine's recorded steps and kernels write what the plain loop writes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cuda_systems import NUMBERS, systems

from regard.decoding.engine import Engine
from regard.decoding.generate import generate
from regard.decoding.sampling import GREEDY, Sampling, mask_tokens, sample_tokens
from regard.decoding.writer import DecodingStep
from regard.fast.decoding.choose_token import TokenChoice
from regard.fast.decoding.decode_step import DecodeStep, is_known
from regard.fast.table import install, is_swapped
from regard.systems import gpt, lstm, ngram

# -- the decoding step in few kernels --------------------------------------------------------------------------------


PLAIN = {"layers": 2, "width": 96, "heads": 3}
LARGE = {"layers": 2, "width": 768, "heads": 12}
TURNED = {"layers": 2, "width": 80, "heads": 2, "position": "rotary", "bias": False, "activation": "relu"}
ODD = {"layers": 1, "width": 64, "heads": 1, "position": "none", "feedforward": 100, "tied": False}


@pytest.mark.parametrize(
    ("settings", "rows", "precision"),
    [
        (PLAIN, 1, torch.bfloat16),
        (PLAIN, 6, torch.float32),
        (LARGE, 1, torch.float32),
        (LARGE, 70, torch.bfloat16),
        (TURNED, 3, torch.float16),
        (TURNED, 33, torch.float32),
        (ODD, 2, torch.float32),
        (ODD, 40, torch.bfloat16),
    ],
)
@torch.no_grad()
def test_the_fused_step_is_the_models_in_ragged_rows_and_in_a_graph(settings, rows, precision):
    torch.manual_seed(rows)
    exact = gpt.GPT(300, gpt.Settings(context=64, **settings)).cuda().eval()
    for weight in exact.parameters():
        weight += 0.05 * torch.randn_like(weight)  # so that norms and biases count
    model = gpt.GPT(300, gpt.Settings(context=64, **settings)).to("cuda", precision).eval()
    model.load_state_dict(exact.state_dict())
    assert is_known(model)
    step = DecodeStep(model)
    prompt, lengths = torch.randint(300, (rows, 50)).cuda(), torch.randint(1, 51, (rows,)).cuda()
    capacity = 400 if rows % 2 == 0 else 64  # attention is cut differently where there is much to look at
    plain, fused, reference = (which.begin(rows=rows, capacity=capacity) for which in (model, model, exact))
    for which, state in ((model, plain), (model, fused), (exact, reference)):
        which(prompt, state, lengths)
    word = torch.zeros(rows, dtype=torch.int64, device="cuda")
    step(word, model.begin(rows=rows, capacity=capacity))  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(word, fused)
    for number in range(8):
        word.copy_(torch.randint(300, (rows,)))
        if number % 2:
            graph.replay()
        logits = captured if number % 2 else step(word, fused)
        expected, (best, _) = model(word[:, None], plain)[0][:, 0], exact(word[:, None], reference)
        error, usual = ((given.float() - best[:, 0]).norm() / best.norm() for given in (logits, expected))
        assert error < max(1.5 * usual, 1e-5), (number, float(error), float(usual))
    assert torch.equal(fused["seen"], plain["seen"])
    for name, caches in plain["past"].items():
        for kind, cache in caches.items():
            written, kept = (of[:, :, :capacity] for of in (fused["past"][name][kind], cache))  # not the scratch slot
            assert (written - kept).norm() / kept.norm() < (1e-5 if precision == torch.float32 else 2e-2)


# -- generation: eight steps in one graph ----------------------------------------------------------------------------


def by_the_plain_loop(model, prompts, **options):
    rows = zip(*generate(model, prompts, eos=0, **options))
    return [[token for token in row if token is not None] for row in rows]


@pytest.mark.parametrize(
    "sampling, lines",
    [(GREEDY, 0), (Sampling(0.9), 1), (Sampling(1.2, top_k=9), 0), (Sampling(top_p=0.8), 1)],
    ids=["greedy", "drawn", "top k", "top p"],
)
@pytest.mark.parametrize("number", NUMBERS)
def test_the_engine_writes_what_the_plain_loop_writes(number, sampling, lines):
    """In fp64, where no near-tie depends on the shape of a product; texts longer than the context and than a graph."""
    model = systems()[number].double().cuda().eval()
    random = torch.Generator().manual_seed(3)
    prompts = [[0, *torch.randint(50, (length,), generator=random).tolist()] for length in (3, 0, 9, 70, 1, 5, 2)]
    options = {"max_tokens": 85 if sampling == GREEDY else 30, "lines": lines, "seed": 4}
    engine = Engine(model, eos=0, sampling=sampling, forbidden=[7], rows=3, install=install)
    expected = by_the_plain_loop(model, prompts, sampling=sampling, forbidden=[7], **options)
    assert list(engine.texts(prompts, **options)) == expected
    assert is_swapped(engine.batch.writer.run)
    assert list(engine.texts(prompts, **options)) == expected  # with what the first call has recorded


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        Sampling(),
        Sampling(1e-300),
        Sampling(0.5, top_k=20),
        Sampling(1.3, top_p=0.7),
        Sampling(top_p=0.99),
        Sampling(top_p=1e-9),
        Sampling(2.0, top_k=30, top_p=0.8),
    ],
    ids=str,
)
@pytest.mark.parametrize("vocabulary", [17, 5000, 50257])
def test_the_kernel_chooses_what_is_chosen_step_by_step(vocabulary, sampling, precision):
    torch.manual_seed(0)
    logits = (3 * torch.randn(64, vocabulary, device="cuda")).to(precision)
    uniform = torch.rand(64, dtype=torch.float64, device="cuda")
    uniform[:2] = torch.tensor([0.0, 1 - 2.0**-53])
    forbidden = [*range(3, vocabulary, 7)]
    model = SimpleNamespace(vocabulary=vocabulary)
    banned = torch.tensor(forbidden, device="cuda")
    step = SimpleNamespace(sampling=sampling, device=logits.device, model=model, banned=banned)
    step.allowed = lambda logits: DecodingStep.allowed(step, logits)
    choice = TokenChoice(step)
    written, highest = torch.zeros_like(uniform).long(), torch.zeros_like(uniform)
    choice(logits, uniform, written, highest)
    tokens, top = sample_tokens(mask_tokens(logits, forbidden), sampling, uniform)
    assert torch.equal(written, tokens)
    assert torch.equal(highest, top.double())
    logits[3, 1] = torch.nan
    choice(logits, uniform, written, highest)
    assert (~(highest < torch.inf)).nonzero().tolist() == [[3]]


def test_a_counted_model_is_generated_from_without_a_graph():
    model = ngram.NGram(50, ngram.Settings(order=3))
    model.count(np.random.default_rng(0).integers(0, 50, 2000))
    prompts, options = [[0, 3], [0], [0, 4, 4, 9]], {"max_tokens": 20, "lines": 1, "seed": 1}
    expected = by_the_plain_loop(model.double(), prompts, sampling=Sampling(), **options)
    engine = Engine(model.cuda(), eos=0, sampling=Sampling(), rows=2, install=install)
    assert list(engine.texts(prompts, **options)) == expected
    assert not is_swapped(engine.batch.writer.run)


def test_a_model_that_asks_the_device_is_generated_from_without_a_graph():
    class Asking(lstm.LSTMModel):
        def predict(self, hidden):
            assert float(hidden.sum()) < 1e9  # makes the host wait
            return super().predict(hidden)

    torch.manual_seed(0)
    model = Asking(50, lstm.Settings(width=64)).double().cuda().eval()
    prompts, options = [[0, 3], [0], [0, 4, 4, 9]], {"max_tokens": 30, "seed": 1}
    engine = Engine(model, eos=0, sampling=Sampling(), rows=2, install=install)
    assert list(engine.texts(prompts, **options)) == by_the_plain_loop(model, prompts, sampling=Sampling(), **options)
    assert not is_swapped(engine.batch.writer.run)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_in_low_precision_only_near_ties_are_decided_otherwise(number, precision):
    """Each word the engine writes is, to rounding, as probable as the best that a fresh reading of the text finds."""
    model = systems()[number].cuda().to(precision).eval()
    prompts = [[0, 3, 5], [0], [0, 9, 9, 1, 2]]
    exact = systems()[number].double().cuda().eval()
    exact.load_state_dict(model.state_dict())
    for prompt, tokens in zip(prompts, Engine(model, eos=0, rows=3, install=install).texts(prompts, max_tokens=40)):
        with torch.no_grad():
            logits, _ = exact(torch.tensor([[*prompt, *tokens]], device="cuda"))
        of_text = logits[0, len(prompt) - 1 : -1]
        chosen = of_text.gather(-1, torch.tensor(tokens, device="cuda")[:, None])[:, 0]
        assert float((of_text.amax(-1) - chosen).max()) < (1e-3 if precision == torch.float32 else 5e-2)
