"""The neural systems: settings, initial weights, and GPT-2's own answer from GPT-2's weights."""

import subprocess
import sys

import pytest
import torch

from regard.base.errors import RegardError
from regard.systems import gpt, lstm
from regard.systems.catalogue import SYSTEMS, find, load_class
from regard.systems.sizes import sizes_of


def test_gpt_with_gpt2s_weights_gives_gpt2s_logits():
    """Hugging Face's GPT-2 is the oracle: the same numbers from the same weights, whole and word by word."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=53, n_positions=16, n_embd=24, n_layer=3, n_head=4, resid_pdrop=0.0, initializer_range=0.2
        )
    )
    theirs = theirs.double().eval()
    chosen = gpt.Settings(layers=3, width=24, heads=4, context=16)
    ours = gpt.GPT(53, chosen).double().eval()
    ours.load_state_dict(from_gpt2(theirs.state_dict()))
    tokens = torch.randint(53, (3, 16))
    with torch.no_grad():
        expected = theirs(tokens).logits
        torch.testing.assert_close(ours(tokens)[0], expected, rtol=1e-11, atol=1e-11)
        state, steps = None, []
        for t in range(16):
            logits, state = ours(tokens[:, t : t + 1], state)
            steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=1e-11, atol=1e-11)


def from_gpt2(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """GPT-2's names for our parts, one to one; its linear maps are stored transposed."""
    parts = {
        "transformer.wte": "embedding.table",
        "transformer.wpe": "embedding.position.table",
        "transformer.ln_f": "finish",
        "transformer.h": "layers",
        "attn.c_attn": "attention.project",
        "attn.c_proj": "attention.output",
        "mlp.c_fc": "feedforward.expand",
        "mlp.c_proj": "feedforward.output",
        "ln_1": "attention_norm",
        "ln_2": "feedforward_norm",
    }
    renamed = {}
    for name, weight in weights.items():
        if name == "lm_head.weight":
            continue  # tied to wte
        ours = name
        for theirs, part in parts.items():
            ours = ours.replace(theirs, part)
        renamed[ours] = weight.T if ".c_" in name and weight.dim() == 2 else weight
    return renamed


def test_gpt_large_has_gpt2s_shape_and_initial_weights():
    with torch.device("meta"):
        large = gpt.GPT(50257, gpt.Settings(**sizes_of("gpt").of("large")))
    assert sum(weight.numel() for weight in large.parameters()) == 124_439_808
    small = gpt.GPT(500, gpt.Settings(layers=4, width=128, heads=4))
    assert small.embedding.table.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert small.layers[0].attention.project.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert small.layers[0].feedforward.output.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.05)
    assert small.layers[0].attention.project.bias.abs().max() == 0


@pytest.mark.parametrize("module", [gpt, lstm])
@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
def test_every_size_builds(module, size):
    kind = gpt.GPT if module is gpt else lstm.LSTMModel
    with torch.device("meta"):
        model = kind(1000, module.Settings(**sizes_of("gpt" if module is gpt else "lstm").of(size)))
    weights = sum(weight.numel() for weight in model.parameters())
    assert model.flops_per_token > 5 * (weights - 1024 * 768)
    assert all(field.metadata["doc"] for field in module.Settings.__dataclass_fields__.values())


@pytest.mark.parametrize(
    ("module", "wrong", "key"),
    [
        (lstm, {"layers": 0}, "model.layers"),
        (lstm, {"width": 0}, "model.width"),
        (lstm, {"dropout": 1.0}, "model.dropout"),
        (lstm, {"dropout_recurrent": -0.1}, "model.dropout_recurrent"),
        (gpt, {"heads": 3}, "model.heads"),
        (gpt, {"heads": 0}, "model.heads"),
        (gpt, {"position": "sin"}, "model.position"),
        (gpt, {"norm": "none"}, "model.norm"),
        (gpt, {"activation": "silu"}, "model.activation"),
        (gpt, {"dropout": float("nan")}, "model.dropout"),
        (gpt, {"position": "rotary", "width": 12, "heads": 4}, "model.position"),
        (gpt, {"position": "one-hot", "context": 256, "width": 128}, "model.context"),
        (gpt, {"combine": "concatenate"}, "model.tied"),
        (gpt, {"combine": "concatenate", "position": "none", "tied": False}, "model.position"),
        (gpt, {"combine": "concatenate", "position": "one-hot", "tied": False}, "model.width"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(module, wrong, key):
    with pytest.raises(RegardError, match=key):
        module.Settings(**wrong)


@pytest.mark.parametrize("position", gpt.POSITIONS)
def test_context_is_stated_only_where_positions_end(position):
    model = gpt.GPT(11, gpt.Settings(layers=1, width=16, heads=2, context=8, position=position))
    assert model.context == (8 if position in ("learned", "one-hot") else None)
    tokens = torch.zeros(2, 9, dtype=torch.int64)
    if model.context is None:
        assert model(tokens)[0].shape == (2, 9, 11)
    else:
        with pytest.raises(RegardError, match=r"model\.context"):
            model(tokens)


def test_a_language_model_has_no_source():
    model = lstm.LSTMModel(11, lstm.Settings(layers=1, width=8))
    with pytest.raises(TypeError):
        model.begin(torch.zeros(2, 3, dtype=torch.int64))
    assert model.begin()["seen"].tolist() == [0]
    assert model.begin(rows=2, width=3)["past"]["0"]["hidden"].shape == (6, 8)


def test_tied_weights_are_one_parameter():
    tied = lstm.LSTMModel(100, lstm.Settings(layers=2, width=32, embedding=20))
    assert [tuple(w.shape) for w in tied.parameters() if 100 in w.shape] == [(100, 20), (100,)]
    assert [layer.width for layer in tied.layers] == [32, 20]  # the last layer is as wide as what it is compared with
    untied = lstm.LSTMModel(100, lstm.Settings(layers=2, width=32, embedding=20, tied=False))
    assert [layer.width for layer in untied.layers] == [32, 32]


@pytest.mark.parametrize("make", [lambda: gpt.GPT(31, gpt.Settings()), lambda: lstm.LSTMModel(31, lstm.Settings())])
@pytest.mark.parametrize("capacity", [None, 12])
def test_states_work_in_bf16_to_bf16s_tolerance(make, capacity):
    torch.manual_seed(0)
    model, tokens = make().eval(), torch.randint(31, (3, 8))
    lengths = torch.tensor([4, 2, 0])
    with torch.no_grad():
        _, exact = model(tokens[:, :4], None, lengths)
        expected, _ = model(tokens[:, 4:], exact)
        with torch.autocast("cpu", torch.bfloat16):
            _, state = model(tokens[:, :4], model.begin(rows=3, capacity=capacity), lengths)
            logits, _ = model(tokens[:, 4:], state)
            surprise, _ = model.loss(tokens, tokens)
    assert surprise.dtype == torch.float32
    torch.testing.assert_close(logits.float(), expected, rtol=0.0, atol=0.02)


def test_the_catalogue_is_ordered_and_never_imports_torch():
    assert [system.year for system in SYSTEMS] == sorted(system.year for system in SYSTEMS)
    code = "import sys, regard.systems.catalogue; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_system_is_found_by_name():
    assert find("gpt").year == 2018
    assert load_class("lstm") is lstm.LSTMModel
    with pytest.raises(RegardError, match="did you mean lstm"):
        find("lstn")
