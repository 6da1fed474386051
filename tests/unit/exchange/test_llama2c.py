"""llama2.c's .bin files come in, go out and are refused in one sentence if they are damaged."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.exchange.formats import export, import_file

STORIES = Path(os.environ.get("REGARD_DATA") or "/nonexistent") / "checkpoints" / "stories260K"
SIZES = {"width": 24, "inner": 40, "layers": 2, "heads": 4, "groups": 2, "vocabulary": 264, "context": 32}
TOKENS = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a", "b", "ab", " a"]


def tok_bin(path, tokens=TOKENS):
    stored = [token.encode() for token in tokens]
    parts = [struct.pack("<fI", -float(number), len(one)) + one for number, one in enumerate(stored)]
    path.write_bytes(struct.pack("<I", max(map(len, stored))) + b"".join(parts))
    return path


def interleaved(weight, heads):
    """Hugging Face's rows as Meta and llama2.c have them: those that rotate together side by side."""
    first, second = weight.reshape(heads, 2, -1, weight.shape[-1]).swapaxes(0, 1)
    return np.stack([first, second], axis=2).reshape(weight.shape)


def write(path, model, *, tied=True, header=None):
    """A checkpoint as llama2.c's export.py writes its first version."""
    state = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    layers = [f"model.layers.{number}." for number in range(SIZES["layers"])]

    def all_layers(name, heads=0):
        found = [state[f"{layer}{name}.weight"] for layer in layers]
        return [interleaved(one, heads) if heads else one for one in found]

    parts = [
        state["model.embed_tokens.weight"],
        *all_layers("input_layernorm"),
        *all_layers("self_attn.q_proj", SIZES["heads"]),
        *all_layers("self_attn.k_proj", SIZES["groups"]),
        *all_layers("self_attn.v_proj"),
        *all_layers("self_attn.o_proj"),
        *all_layers("post_attention_layernorm"),
        *all_layers("mlp.gate_proj"),
        *all_layers("mlp.down_proj"),
        *all_layers("mlp.up_proj"),
        state["model.norm.weight"],
        np.zeros((SIZES["context"], SIZES["width"] // SIZES["heads"]), np.float32),
        *([] if tied else [state["lm_head.weight"]]),
    ]
    sizes = {**SIZES, "vocabulary": SIZES["vocabulary"] * (1 if tied else -1), **(header or {})}
    path.write_bytes(struct.pack("<7i", *sizes.values()) + b"".join(part.astype("<f4").tobytes() for part in parts))
    return path


def llama(tied=True):
    transformers = pytest.importorskip("transformers", reason="the oracle")
    config = transformers.LlamaConfig(
        vocab_size=264, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, tie_word_embeddings=tied,
    )  # fmt: skip
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_log_probabilities_are_those_of_the_same_weights_elsewhere(tmp_path, tied):
    theirs = llama(tied)
    write(tmp_path / "m.bin", theirs, tied=tied)
    run = regard.import_model(tmp_path / "m.bin", run=tmp_path / "run", tokenizer=tok_bin(tmp_path / "tok.bin"))
    tokens = torch.randint(264, (2, 30))
    with torch.no_grad():
        apart = run.model(tokens)[0].log_softmax(-1) - theirs(tokens).logits.log_softmax(-1)
    assert float(apart.abs().max()) <= 1e-5
    assert (run.tokenizer.begin, run.tokenizer.eos) == (1, 2)


@pytest.mark.parametrize("header, said", [
    ({"width": 0}, "its size does not match its header"),
    ({"width": 2**31 - 1}, "its size does not match its header"),
    ({"layers": -1}, "its size does not match its header"),
    ({"layers": 2**31 - 1}, "its size does not match its header"),
    ({"heads": 0}, "its size does not match its header"),
    ({"heads": 5}, "its size does not match its header"),
    ({"groups": 3}, "its size does not match its header"),
    ({"vocabulary": -(2**31)}, "its size does not match its header"),
    ({"context": 33}, "its size does not match its header"),
])  # fmt: skip
def test_a_header_that_contradicts_the_file_is_refused_before_anything_is_read(tmp_path, header, said):
    write(tmp_path / "m.bin", llama(), header=header)
    with pytest.raises(RegardError, match=said):
        import_file(tmp_path / "m.bin", tmp_path / "run", tok_bin(tmp_path / "tok.bin"))
    assert not (tmp_path / "run").exists()


def test_a_damaged_file_or_another_tokenizer_is_one_sentence(tmp_path):
    whole, tokenizer = write(tmp_path / "m.bin", llama()).read_bytes(), tok_bin(tmp_path / "tok.bin")
    broken = {whole[:20]: "too short", whole[:-4]: "its size", whole + b"\0": "its size"}
    broken[whole[:100] + b"\xff" * 4 + whole[104:]] = "infinite or NaN"
    broken[struct.pack("<7i", 0, 0, 0, 0, 0, len(TOKENS), 0)] = "its size"
    for content, said in broken.items():
        (tmp_path / "m.bin").write_bytes(content)
        with pytest.raises(RegardError, match=said):
            import_file(tmp_path / "m.bin", tmp_path / "run", tokenizer)
    (tmp_path / "m.bin").write_bytes(whole)
    with pytest.raises(RegardError, match=r"has no tokenizer: give llama2\.c's tok\.bin"):
        import_file(tmp_path / "m.bin", tmp_path / "run")
    with pytest.raises(RegardError, match=r"is not a llama2\.c tokenizer of 264 tokens"):
        import_file(tmp_path / "m.bin", tmp_path / "run", tok_bin(tmp_path / "tok.bin", TOKENS[:-1]))
    with pytest.raises(RegardError, match="has more than the model's 264 tokens"):
        import_file(tmp_path / "m.bin", tmp_path / "run", tok_bin(tmp_path / "tok.bin", [*TOKENS, "more"]))


@pytest.mark.skipif(not STORIES.is_dir(), reason="REGARD_DATA is not set or has no checkpoints/stories260K")
def test_a_trained_checkpoint_tells_its_story_and_goes_out_again(tmp_path):
    pytest.importorskip("transformers", reason="which reads what was written")
    run = regard.import_model(STORIES / "stories260K.bin", run=tmp_path / "run", tokenizer=STORIES / "tok512.bin")
    story = run.generate("Once upon a time", temperature=0, max_tokens=40)
    assert story.startswith("Once upon a time, there was a little girl named Lily. She loved to play")
    found = export(run.folder, "huggingface", tmp_path / "out", options={"scores": "no"}, check=True)
    assert found.largest_difference < 1e-4
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "Tom said: “Ünïcode, 12 日本!”"
    assert tokenizer(text)["input_ids"] == [1, *run.tokenizer.encode(text)]
    assert tokenizer.decode(run.tokenizer.encode(text)) == text
