"""GGUF files are read by llama.cpp, which predicts and writes the same."""

import numpy as np
import pytest

from regard.base.errors import RegardError
from regard.exchange.formats import export

gguf = pytest.importorskip("gguf", reason="which writes these files")
MODELS = [
    ("gpt", {}),
    ("gpt", {"tied": False, "bias": False, "scale": 2.0}),
    ("llama", {}),
    ("llama", {"tied": False, "key_value_heads": 6}),
]


@pytest.mark.parametrize("system, settings", MODELS, ids=str)
def test_llama_cpp_predicts_and_writes_the_same(runs, tmp_path, system, settings):
    pytest.importorskip("xllamacpp", reason="llama.cpp itself")
    found = export(runs(system, **settings).folder, "gguf", tmp_path / "m.gguf", check=True)
    assert found.largest_difference < (5e-3 if system == "gpt" else 1e-4)  # llama.cpp looks GELU up in fp16
    same, total = found.same_text.split()[0:3:2]
    assert same == total != "0"


@pytest.mark.parametrize("kind, most", [("f16", 1e-3), ("q8_0", 0.02)])
def test_fewer_bits_stay_near(runs, tmp_path, kind, most):
    """Read back by gguf's own reader."""
    run = runs("llama", width=32, heads=2, key_value_heads=1)
    export(run.folder, "gguf", tmp_path / "m.gguf", options={"quantization": kind})
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    tensors = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    ours = run.model.state_dict()
    assert np.abs(tensors["token_embd.weight"] - ours["embedding.table.weight"].numpy()).max() < most
    assert np.array_equal(tensors["output_norm.weight"], ours["finish.weight"].numpy())
    assert reader.fields["tokenizer.ggml.tokens"].contents()[0] == "<eos>"
    assert reader.fields["tokenizer.ggml.add_bos_token"].contents() is True


@pytest.mark.parametrize("system, settings, options, said", [
    ("gpt", {"tokenizer": "char"}, {}, "--data.tokenizer bpe"),
    ("gpt", {"activation": "relu"}, {}, "supports only gelu"),
    ("gpt", {"position": "alibi"}, {}, "--model.position learned"),
    ("gpt", {}, {"quantization": "q2"}, "--quantization must be one of f32, f16, q8_0"),
    ("gpt", {}, {"quantization": "q8_0"}, "use f16"),
    ("transformer", {}, {}, "--to gguf supports only gpt, llama"),
])  # fmt: skip
def test_what_gguf_cannot_hold_is_named(runs, tmp_path, system, settings, options, said):
    with pytest.raises(RegardError, match=said):
        export(runs(system, **settings).folder, "gguf", tmp_path / "m.gguf", options=options)
    assert not list(tmp_path.iterdir())
