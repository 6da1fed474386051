"""8-bit weights: what they are, what they cost, and that a text does not depend on its batch."""

import pytest
import torch
import torch.nn.functional as F

from regard.base.errors import RegardError
from regard.decoding.engine import Engine, Prompt
from regard.fast import install
from regard.fast.decoding.eight_bit import LARGEST, MULTIPLE, EightBit, use_eight_bits
from regard.runs.speed import set_precision
from regard.systems.catalogue import load_class, load_module
from regard.systems.model import Model

SMALL = {"layers": 2, "width": 64, "heads": 2, "context": 48}


def made(system: str, **more) -> Model:
    torch.manual_seed(5)
    settings = load_module(system).Settings
    known = {name: value for name, value in SMALL.items() if name in settings.__dataclass_fields__}
    return load_class(system)(50, settings(**known | more)).eval()


@pytest.mark.parametrize("shape", [(1, MULTIPLE), (7, MULTIPLE), (33, 3 * MULTIPLE), (130, 18 * MULTIPLE)])
def test_a_weight_is_within_half_a_step_and_a_product_within_bf16(shape):
    torch.manual_seed(1)
    weight, x, bias = torch.randn(shape), torch.randn(9, shape[1]), torch.randn(shape[0])
    small = EightBit.of(weight)
    assert ((small.whole() - weight).abs() <= small.scales.float()[:, None] * 0.75).all()
    assert small.codes.abs().amax(1).min() >= LARGEST - 1
    parameter = torch.nn.Parameter(small, requires_grad=False)
    exact = F.linear(x, small.whole(), bias)
    assert ((F.linear(x, parameter, bias) - exact).abs() <= 0.02 * exact.abs().max()).all()
    assert torch.equal(F.linear(x[None], parameter, bias), exact[None])  # several columns: in fp32
    rows = torch.randint(shape[0], (2, 3))
    assert torch.equal(F.embedding(rows, parameter), small.whole()[rows])
    assert torch.equal(parameter + 0, small.whole())
    zero = EightBit.of(torch.zeros(shape))
    assert not zero.whole().any()


@pytest.mark.parametrize("system", ["gpt", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_text_alone_is_its_text_in_a_batch_and_the_loss_hardly_changes(system, tied):
    model = made(system, tied=tied)
    tokens = torch.randint(1, 50, (3, 20))
    before = model(tokens)[0].log_softmax(-1)
    install(model)
    use_eight_bits(model)
    with torch.no_grad():
        assert (model(tokens)[0].log_softmax(-1) - before).abs().max() < 0.05
        assert isinstance(model.embedding.table.weight, EightBit) == tied
    prompts = [Prompt([0, *range(1, 2 + n)]) for n in range(5)]

    def write(some):
        engine = Engine(model, eos=0, forbidden=(), install=install)
        return list(engine.texts(some, max_tokens=12, lines=0, seed=1))

    assert write(prompts) == [text for prompt in prompts for text in write([prompt])]


def test_a_width_that_the_kernel_cannot_read_stays_in_fp32():
    model = made("gpt", width=40)
    use_eight_bits(model)
    linear = [part.weight for part in model.modules() if isinstance(part, torch.nn.Linear)]
    assert [isinstance(weight, EightBit) for weight in linear] == [weight.size(1) % MULTIPLE == 0 for weight in linear]
    assert {weight.size(1) % MULTIPLE == 0 for weight in linear} == {True, False}
    assert model(torch.tensor([[1, 2]]))[0].isfinite().all()


def test_another_system_and_another_precision_are_refused():
    with pytest.raises(RegardError, match="only gpt and llama"):
        use_eight_bits(made("lstm"))
    with pytest.raises(RegardError, match="precision must be one of"):
        set_precision(made("gpt"), "int4")


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError])
def test_a_pytorch_without_the_product_is_one_sentence(monkeypatch, error):
    def product(*_):
        raise error("not here")

    monkeypatch.setattr(torch, "_weight_int8pack_mm", product)
    with pytest.raises(
        RegardError, match=r"needs a matrix product of 8-bit weights, .* use --precision bf16 or fp32\.$"
    ):
        set_precision(made("gpt"), "int8")
