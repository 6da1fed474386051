"""How large the first weights are, and what a training step costs: neither changes what a trained model computes.

Mean and standard deviation of every parameter, by system, are compared with tests/golden/first_weights.json;
`python tests/unit/systems/test_notices_first_weights.py` writes it anew. The cost is compared with PyTorch's counter.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.systems.catalogue import SYSTEMS, load_class, load_module
from regard.systems.sizes import sizes_of

GOLDEN = Path(__file__).parents[2] / "golden" / "first_weights.json"
V = 97
WIDE = {"layers": 2, "width": 48, "heads": 4, "context": 32, "embedding": 0, "dropout": 0.0}
VARIANTS = {
    "rnn": [{}, {"initialisation": "identity"}, {"initialisation": "orthogonal"}],
    "lstm": [{}, {"forget_bias": 2.0, "tied": False}],
    "self-attention": [{}, *({"score": score} for score in ("bilinear", "additive"))],
    "gpt": [{}, {"norm": "post", "tied": False}, {"position": "learned"}],
    "transformer": [{}, {"norm": "post"}, {"position": "learned"}],
    "bahdanau": [{}, {"score": "additive"}],
    "classifier": [{"encoder": encoder} for encoder in ("lstm", "transformer", "dan")],
}
CASES = [
    (system.name, tuple(more.items()))
    for system in SYSTEMS
    if system.trained == "gradient"
    for more in VARIANTS.get(system.name, [{}])
]


def made(system, more):
    settings = load_module(system).Settings
    known = {name: value for name, value in WIDE.items() if name in settings.__dataclass_fields__}
    tiny = sizes_of(system).of("tiny")
    torch.manual_seed(0)
    return load_class(system)(V, settings(**{**tiny, **known, **dict(more)}))


def title(case):
    return " ".join([case[0], *(f"{key}={value}" for key, value in case[1])])


def measured(case):
    return {
        name: [weight.numel(), round(float(weight.mean()), 5), round(float(weight.std(correction=0)), 5)]
        for name, weight in made(*case).state_dict().items()
    }


@pytest.mark.parametrize("case", CASES, ids=title)
def test_first_weights_are_as_large_as_they_were(case):
    found, known = measured(case), json.loads(GOLDEN.read_text(encoding="utf-8"))[title(case)]
    assert found.keys() == known.keys()
    for name, (count, mean, deviation) in found.items():
        assert count == known[name][0], name
        chance = 6 / math.sqrt(2 * count)  # other random numbers, as of another version of PyTorch
        assert deviation == pytest.approx(known[name][2], rel=chance, abs=1e-6), name
        assert mean == pytest.approx(known[name][1], abs=6 * deviation / math.sqrt(count) + 1e-5), name


RESIDUAL = (".attention.output.weight", ".feedforward.output.weight", ".cross.output.weight")
BLOCKS = {"layers": 3, "initial": 0.1}
DEEP = 0.1 * 6**-0.5  # of the 2 × layers terms of the residual stream
EQUATIONS = [  # a system, settings, and the standard deviation of a weight by the first name whose end fits
    ("gpt", {**BLOCKS, "scale": 2.0, "tied": False},
     {RESIDUAL: DEEP, ("embedding.table.weight", "output.weight"): 0.05, ".weight": 0.1}),
    ("gpt", {**BLOCKS, "position": "learned"}, {RESIDUAL: DEEP, ".weight": 0.1}),
    ("linear-attention", {**BLOCKS, "decay": "gated", "rule": "delta"}, {RESIDUAL: DEEP, ".weight": 0.1}),
    ("llama", {**BLOCKS, "bias": "all", "tied": False}, {RESIDUAL: DEEP, ".weight": 0.1}),
    ("mingru", {**BLOCKS, "tied": False}, {("s.0.output.weight", "s.1.output.weight", "s.2.output.weight",
                                           *RESIDUAL): DEEP, ".weight": 0.1}),
    ("self-attention", {"position": "learned"}, {"table.weight": 0.1, "output.weight": 0.02}),
    ("transformer", {"tied": False, "shared": False, "position": "learned", "feedforward": 48},
     {"position.table.weight": 48**-0.5, "table.weight": 0.25 * 48**-0.5,
      (".query.weight", ".attention.output.weight", ".cross.output.weight", ".expand.weight",
       ".feedforward.output.weight"): 48**-0.5, ".cross.project.weight": 72**-0.5, ".project.weight": 96**-0.5,
      "output.weight": 0.25 * 48**-0.5}),
    *((system, {"shared": False}, {"table.weight": 0.5 * 48**-0.5}) for system in ("seq2seq", "bahdanau")),
    ("classifier", {"encoder": "lstm"}, {"table.weight": 0.5 * 48**-0.5, "output.weight": 0.25 * 96**-0.5}),
    ("classifier", {"encoder": "lstm", "bidirectional": False}, {"output.weight": 0.25 * 48**-0.5}),
    ("classifier", {"encoder": "dan", "embedding": 64, "layers": 0}, {"output.weight": 0.25 * 64**-0.5}),
    *((system, {}, {"embedding.table.weight": 0.1 / 3**0.5}) for system in ("rnn", "lstm", "gru", "dan", "nnlm")),
]  # fmt: skip


@pytest.mark.parametrize(("system", "more", "wanted"), EQUATIONS)
def test_first_weights_are_those_of_their_equation(system, more, wanted):
    """Whatever the settings: biases begin at 0 and norms at 1."""
    seen, model = set(), made(system, tuple(more.items()))
    for name, weight in model.named_parameters():
        if "norm" in name or name in ("finish.weight", "finish.bias", "encoder.finish.weight", "encoder.finish.bias"):
            assert torch.equal(weight, torch.full_like(weight, float(name.endswith("weight")))), name
        elif weight.dim() < 2 and any(part in name for part in ("feedforward", "attention", "cross")):
            assert not weight.any(), name
        elif ends := next((ends for ends in wanted if name.endswith(ends)), None):
            chance = 6 / math.sqrt(2 * weight.numel())
            assert weight.detach().std(correction=0).item() == pytest.approx(wanted[ends], rel=chance), name
            seen.add(ends)
    assert seen == {*wanted}


def test_recurrent_weights_begin_as_their_name_says():
    for kind in ("orthogonal", "identity"):
        for layer in made("rnn", (("initialisation", kind),)).layers:
            weight = layer.fused.weight_hh_l0.detach()
            assert torch.allclose(weight @ weight.T, torch.eye(len(weight)), atol=1e-5)
            assert torch.equal(weight, torch.eye(len(weight))) == (kind == "identity")


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "classifier"], ids=title)
def test_the_cost_of_a_step_is_what_pytorch_counts(case):
    """Forward, and twice that backward; a looked-up table costs nothing, and cheap parts are not counted by either."""
    model = made(*case).eval()
    tokens = torch.randint(1, V, (2, 32))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if hasattr(model, "encode"):
            model.explain(tokens, model.begin_from(model.explain_encode(tokens, None)[0], tokens, None))
        else:
            model.explain(tokens)
    counted = 3 * counter.get_total_flops() / tokens.numel()
    assert model.flops_per_token == pytest.approx(counted, rel=0.05)


if __name__ == "__main__":
    lines = [
        f' "{title(case)}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in measured(case).items())
        + "\n }"
        for case in CASES
    ]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
