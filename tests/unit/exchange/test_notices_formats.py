"""Settings, names and limits of other programs' files: what a config means, what is written of a model, and what is
refused. Almost nothing here needs a model."""

import json
import shutil
import stat
import sys
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

import regard
from regard.base.errors import RegardError
from regard.decoding.beam import BEAM
from regard.exchange import (
    archive,
    arpa_runs,
    engines,
    export_and_import,
    foreign_tokenizers,
    formats,
    hf_gpt2,
    hf_llama,
    hf_seq2seq,
    hf_tokenizer,
    huggingface,
    imported_run,
    model_card,
)
from regard.exchange.foreign_folder import Config, ForeignWeights
from regard.exchange.foreign_tokenizers import BYTE, CONTROL, NORMAL, UNKNOWN, byte_pairs, sentence_pieces
from regard.exchange.parity import Parity, token_rows
from regard.runs.store.gallery import GALLERY
from regard.systems import gpt, llama, transformer
from regard.text.tokenizers.engine import BYTE_SYMBOLS, SPLIT_CHARACTERS, byte_level, splitter, word_level
from regard.text.tokenizers.imported import import_engine
from regard.text.tokenizers.tokenizer import Tokenizer

# -- values of a config.json -----------------------------------------------------------------------------------------


def config(tmp_path, **values):
    return Config(tmp_path / "config.json", values)


ABSENT = object()
VALUES = [  # method, value, default, what is read (RegardError: refused)
    *[("number", value, None, value) for value in (0, 7, 10**30)],
    *[("number", value, None, RegardError) for value in (-1, True, 1.0, "1", None)],
    ("number", None, 5, 5), ("number", 0, 5, 0), ("count", 1, None, 1), ("count", 0, None, RegardError),
    ("count", None, 3, 3), ("count", None, 0, RegardError),
    ("positive", 1e-300, None, 1e-300), ("positive", 2, None, 2.0), ("positive", 999_999_999_999, None, 999999999999.0),
    ("positive", 1e12, None, RegardError), ("positive", 0, None, RegardError), ("positive", True, None, RegardError),
    ("positive", None, 0.5, 0.5), ("positive", None, None, RegardError),
    ("rate", 0, 0.0, 0.0), ("rate", 0.999, 0.0, 0.999), ("rate", 1, 0.0, RegardError), ("rate", -0.1, 0.0, RegardError),
    ("rate", False, 0.0, RegardError), ("rate", ABSENT, 0.3, 0.3), ("rate", None, 0.3, RegardError),
    ("flag", True, False, True), ("flag", 1, False, RegardError), ("flag", ABSENT, True, True),
]  # fmt: skip


@pytest.mark.parametrize(("method", "value", "default", "expected"), VALUES)
def test_a_value_of_a_config_is_read_by_its_type(method, value, default, expected, tmp_path):
    read = getattr(config(tmp_path, **({} if value is ABSENT else {"x": value})), method)
    if expected is RegardError:
        with pytest.raises(RegardError, match=r"config\.json: x must be"):
            read("x", default)
    else:
        assert read("x", default) == expected
        assert type(read("x", default)) is type(expected)


def test_a_choice_of_a_config_has_a_name_here(tmp_path):
    known = {"relu": "relu", "silu": "swish"}
    assert config(tmp_path, x="silu").one("x", known, "relu") == "swish"
    assert config(tmp_path).one("x", known, "relu") == "relu"
    for value in ("tanh", None, ["relu"]):
        with pytest.raises(RegardError, match="supports only relu, silu"):
            config(tmp_path, x=value).one("x", known, "relu")
    config(tmp_path, x=2).must_be(x=2, y=3)
    with pytest.raises(RegardError, match="x is 2, but Regard supports only 3"):
        config(tmp_path, x=2).must_be(x=3)


class Tensors(dict):
    """An open file of tensors."""

    strange = None  # the name of one whose values are no floats

    def get_slice(self, name):
        kind = "I8" if name == self.strange else "F32"
        return SimpleNamespace(get_shape=lambda: self[name].shape, get_dtype=lambda: kind)

    def get_tensor(self, name):
        return self[name]


def foreign(tmp_path, prefix="", **tensors):
    file = Tensors({name.replace("__", "."): one for name, one in tensors.items()})
    return ForeignWeights(tmp_path, dict.fromkeys(file, file), prefix)


def test_each_tensor_is_taken_once_and_none_is_left(tmp_path):
    weights = foreign(tmp_path, "model.", model__a=torch.ones(2, dtype=torch.float16), b=torch.ones(3), c=torch.ones(1))
    assert weights.unread == {"a", "b", "c"}
    assert weights.take("a", 2).dtype == torch.float32
    with pytest.raises(RegardError, match=r"b in .* has the shape \[3\], not \[2\]"):
        weights.take("b", 2)
    with pytest.raises(RegardError, match="contains the tensor b, which a GPT-2 does not have"):
        weights.finish("a GPT-2")
    weights.ignore("b|x", "bc?")
    with pytest.raises(RegardError, match="contains the tensor c, which"):
        weights.finish("a GPT-2")
    weights.ignore("c")
    weights.finish("a GPT-2")
    weights._files["b"].strange = "b"
    with pytest.raises(RegardError, match="has I8 values; Regard reads only F32, F16 and BF16"):
        weights.take("b", 3)


GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40}
LLAMA = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
MARIAN = {"model_type": "marian", "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_attention_heads": 2,
          "decoder_attention_heads": 2, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": 9,
          "decoder_start_token_id": 0, "eos_token_id": 0, "activation_function": "gelu_new"}  # fmt: skip
MEANT = {  # what the programs that write these files mean by what they leave out
    hf_gpt2: (GPT2, {"layers": 2, "width": 24, "heads": 3, "context": 40, "feedforward": 0, "activation": "gelu",
                     "tied": True, "dropout": 0.1}),
    hf_llama: (LLAMA, {"layers": 2, "width": 24, "heads": 4, "key_value_heads": 4, "head_width": 0, "context": 2048,
                       "feedforward": 40, "tied": False, "bias": "none", "epsilon": 1e-6, "dropout": 0.0,
                       "theta": 10000.0}),
    hf_seq2seq: (MARIAN, {"layers": 2, "decoder_layers": 1, "width": 16, "heads": 2, "feedforward": 32, "norm": "post",
                          "activation": "gelu", "tied": True, "shared": True, "output_bias": False, "dropout": 0.1,
                          "dropout_attention": 0.0, "dropout_activation": 0.0}),
}  # fmt: skip
CHANGES = [
    (hf_gpt2, {"n_inner": 96}, {}), (hf_gpt2, {"n_inner": 97}, {"feedforward": 97}), (hf_gpt2, {"n_inner": None}, {}),
    (hf_gpt2, {"activation_function": "relu"}, {"activation": "relu"}), (hf_gpt2, {"n_layer": 1}, {"layers": 1}),
    (hf_gpt2, {"n_layer": 1000}, {"layers": 1000}), (hf_gpt2, {"n_layer": 1001}, "n_layer is 1001"),
    (hf_gpt2, {"n_layer": 0}, "n_layer is 0, but Regard supports 1 to 1000"),
    (hf_gpt2, {"tie_word_embeddings": False, "resid_pdrop": 0.25}, {"tied": False, "dropout": 0.25}),
    (hf_gpt2, {"scale_attn_weights": False}, "scale_attn_weights"), (hf_gpt2, {"layer_norm_epsilon": 1e-5}, {}),
    (hf_gpt2, {"add_cross_attention": True}, "add_cross_attention"),
    (hf_llama, {"head_dim": 6}, {}), (hf_llama, {"head_dim": 10}, {"head_width": 10}),
    (hf_llama, {"num_hidden_layers": 1000}, {"layers": 1000}),
    (hf_llama, {"num_hidden_layers": 1001}, "num_hidden_layers is 1001"),
    (hf_llama, {"pretraining_tp": 2}, "pretraining_tp"),
    (hf_llama, {"sliding_window": 2047}, "uses a sliding window"), (hf_llama, {"sliding_window": 2048}, {}),
    (hf_llama, {"sliding_window": 63, "max_position_embeddings": 64}, "uses a sliding window"),
    (hf_llama, {"sliding_window": 64, "max_position_embeddings": 64}, {"context": 64}),
    (hf_llama, {"sliding_window": 9, "model_type": "qwen2"}, {"bias": "qkv"}),
    (hf_llama, {"sliding_window": 9, "model_type": "qwen2", "use_sliding_window": True}, "uses a sliding window"),
    (hf_llama, {"rope_theta": 5.0}, {"theta": 5.0}),
    (hf_llama, {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 7.0}}, {"theta": 7.0}),
    (hf_llama, {"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 5.0},
     {"theta": 5.0, "stretch": "linear", "stretch_factor": 2.0}),
    (hf_llama, {"rope_scaling": {"rope_type": "llama3", "type": "linear", "factor": 8.0, "low_freq_factor": 1.5,
                                 "high_freq_factor": 4.5, "original_max_position_embeddings": 16}},
     {"stretch": "llama3", "stretch_factor": 8.0, "stretch_low": 1.5, "stretch_high": 4.5, "stretch_context": 16}),
    (hf_llama, {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}},
     "original_max_position_embeddings"),
    (hf_llama, {"rope_scaling": {"rope_type": "linear"}}, "factor must be a positive number"),
    (hf_seq2seq, {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64}, {"feedforward": 0}),
    (hf_seq2seq, {"decoder_layers": 2}, {"decoder_layers": 0}),
    (hf_seq2seq, {"encoder_layers": 1000, "decoder_layers": 1000}, {"layers": 1000, "decoder_layers": 0}),
    (hf_seq2seq, {"encoder_layers": 1001}, "it has 1001 encoder and 1 decoder layers"),
    (hf_seq2seq, {"encoder_layers": 0}, "it has 0 encoder"), (hf_seq2seq, {"decoder_layers": 0}, "0 decoder layers"),
    (hf_seq2seq, {"decoder_layers": 1001}, "1001 decoder layers, but Regard supports 1 to 1000"),
    (hf_seq2seq, {"decoder_ffn_dim": 33}, "encoder_ffn_dim and decoder_ffn_dim differ"),
    (hf_seq2seq, {"decoder_attention_heads": 4}, "encoder_attention_heads and decoder_attention_heads differ"),
    (hf_seq2seq, {"d_model": 15}, "d_model is 15"), (hf_seq2seq, {"d_model": 0}, "d_model is 0"),
    (hf_seq2seq, {"d_model": 2}, {"width": 2}), (hf_seq2seq, {"decoder_vocab_size": 9}, {}),
    (hf_seq2seq, {"decoder_vocab_size": 8}, "decoder_vocab_size differs"),
    (hf_seq2seq, {"decoder_start_token_id": 8}, {"tied": False, "shared": False, "output_bias": True}),
    (hf_seq2seq, {"decoder_start_token_id": 9}, "are 9 and 0, which are not tokens"),
    (hf_seq2seq, {"eos_token_id": 9, "decoder_start_token_id": 9}, "are 9 and 9, which are not tokens"),
    (hf_seq2seq, {"model_type": "pegasus", "share_encoder_decoder_embeddings": False}, {"norm": "pre"}),
    (hf_seq2seq, {"share_encoder_decoder_embeddings": False}, {"shared": False}),
    (hf_seq2seq, {"tie_word_embeddings": False}, {"tied": False}),
    (hf_seq2seq, {"activation_function": "silu", "dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.4},
     {"activation": "swish", "dropout": 0.2, "dropout_attention": 0.3, "dropout_activation": 0.4}),
    (hf_seq2seq, {"normalize_embedding": True}, "normalize_embedding"),
    (hf_seq2seq, {"activation_function": "gelu"}, "activation_function is 'gelu'"),
    *[(module, {}, {}) for module in MEANT],
]  # fmt: skip


@pytest.mark.parametrize(("module", "changes", "expected"), CHANGES, ids=str)
def test_a_config_means_what_its_own_program_means_by_it(module, changes, expected, tmp_path):
    given, meant = MEANT[module]
    read = config(tmp_path, **given | changes)
    if isinstance(expected, str):
        with pytest.raises(RegardError, match=expected):
            module.settings_in(read)
    else:
        assert module.settings_in(read) == meant | expected


def test_numbers_without_a_place_here_must_be_what_they_always_are(tmp_path):
    given = config(tmp_path, **MARIAN)
    name = "model.encoder.embed_positions.weight"
    positions = hf_seq2seq._positions(1024, 16)
    assert positions.shape == (1024, 16)
    assert torch.equal(positions[0], torch.tensor([0.0] * 8 + [1.0] * 8))  # all sines first
    weights = foreign(tmp_path, final_logits_bias=torch.zeros(1, 9), **{name.replace(".", "__"): positions})
    hf_seq2seq._check_fixed(given, weights, 16, 9)
    assert not weights.unread
    with pytest.raises(RegardError, match=r"final_logits_bias in .* is not zero"):
        hf_seq2seq._check_fixed(given, foreign(tmp_path, final_logits_bias=torch.full((1, 9), 0.1)), 16, 9)
    with pytest.raises(RegardError, match="positions that are not sinusoidal"):
        hf_seq2seq._check_fixed(given, foreign(tmp_path, **{name.replace(".", "__"): positions + 0.01}), 16, 9)
    with pytest.raises(RegardError, match=r"has the shape \[1024, 16\], not \[64, 16\]"):
        hf_seq2seq._check_fixed(
            config(tmp_path, **MARIAN, max_position_embeddings=64),
            foreign(tmp_path, **{name.replace(".", "__"): positions}), 16, 9,
        )  # fmt: skip


# -- a model's config ------------------------------------------------------------------------------------------------


def holding(settings, system, *, dtype=torch.float32, source=True, embedding=None, longest=100, **data):
    """A run with only what its config is made from."""
    tokenizer = SimpleNamespace(vocabulary=300, eos=2, begin=1)
    recipe = SimpleNamespace(model=settings, system=system, data=SimpleNamespace(longest=longest, **data))
    model = SimpleNamespace(parameters=lambda: iter([torch.zeros(1, dtype=dtype)]), source_embedding=embedding)
    return SimpleNamespace(recipe=recipe, tokenizer=tokenizer, source_tokenizer=tokenizer if source else None,
                           model=model, forbidden=[5])  # fmt: skip


def test_a_config_says_each_setting_under_its_own_name():
    run = holding(gpt.Settings(layers=3, width=24, heads=2, context=48, dropout=0.25, initial=0.03), "gpt")
    ends = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 2}
    written = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 300, "n_positions": 48, "n_embd": 24,
        "n_layer": 3, "n_head": 2, "n_inner": 96, "activation_function": "gelu_new", "resid_pdrop": 0.25,
        "embd_pdrop": 0.25, "attn_pdrop": 0.25, "layer_norm_epsilon": 1e-5, "initializer_range": 0.03,
        "tie_word_embeddings": True, **ends, "dtype": "float32",
    }  # fmt: skip
    assert hf_gpt2.config_of(run) == written
    run.recipe.model = replace(run.recipe.model, feedforward=40, activation="relu", tied=False)
    changed = {"n_inner": 40, "activation_function": "relu", "tie_word_embeddings": False}
    assert hf_gpt2.config_of(run) == written | changed

    run = holding(llama.Settings(layers=3, width=24, heads=6, key_value_heads=2, context=48, dropout=0.25,
                                 initial=0.03, epsilon=1e-4, theta=500.0), "llama")  # fmt: skip
    written = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300, "hidden_size": 24,
        "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
        "head_dim": 4, "hidden_act": "silu", "max_position_embeddings": 48, "rms_norm_eps": 1e-4, "rope_theta": 500.0,
        "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.25,
        "initializer_range": 0.03, "tie_word_embeddings": True, **ends, "bos_token_id": 1, "dtype": "float32",
    }  # fmt: skip
    assert hf_llama.config_of(run) == written
    qwen = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    stretched = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 4.5,
                 "original_max_position_embeddings": 16}  # fmt: skip
    more = {"stretch": "llama3", "stretch_factor": 8.0, "stretch_low": 1.5, "stretch_high": 4.5, "stretch_context": 16}
    for settings, changed in [
        ({"bias": "qkv"}, qwen), ({"bias": "attention"}, {"attention_bias": True}),
        ({"bias": "all"}, {"attention_bias": True, "mlp_bias": True}), ({"head_width": 10}, {"head_dim": 10}),
        ({"stretch": "linear", "stretch_factor": 2.0}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        (more, {"rope_scaling": stretched}), ({"feedforward": 50}, {"intermediate_size": 50}),
    ]:  # fmt: skip
        changed_run = holding(replace(run.recipe.model, **settings), "llama")
        assert hf_llama.config_of(changed_run) == written | changed
    assert hf_llama.config_of(holding(run.recipe.model, "llama", dtype=torch.bfloat16))["dtype"] == "bfloat16"


def test_a_config_of_a_translator_says_each_setting_of_both_sides():
    run = holding(transformer.Settings(layers=2, width=24, heads=3, dropout=0.25, dropout_attention=0.3,
                                       dropout_activation=0.4), "transformer")  # fmt: skip
    written = {
        "architectures": ["PegasusForConditionalGeneration"], "model_type": "pegasus", "is_encoder_decoder": True,
        "vocab_size": 300, "d_model": 24, "encoder_layers": 2, "encoder_ffn_dim": 96, "encoder_attention_heads": 3,
        "encoder_layerdrop": 0.0, "decoder_layers": 2, "decoder_ffn_dim": 96, "decoder_attention_heads": 3,
        "decoder_layerdrop": 0.0, "activation_function": "relu", "dropout": 0.25, "attention_dropout": 0.3,
        "activation_dropout": 0.4, "max_position_embeddings": 1024, "scale_embedding": True,
        "static_position_embeddings": True, "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 2,
        "pad_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None, "dtype": "float32",
    }  # fmt: skip
    assert hf_seq2seq.config_of(run) == written
    run.recipe.data.longest = 257
    assert hf_seq2seq.config_of(run)["max_position_embeddings"] == 1028
    post = replace(run.recipe.model, norm="post", decoder_layers=4, feedforward=50, activation="gelu")
    found = hf_seq2seq.config_of(holding(post, "transformer", embedding="own"))
    marian = {"architectures": ["MarianMTModel"], "model_type": "marian", "decoder_layers": 4, "encoder_ffn_dim": 50,
              "decoder_ffn_dim": 50, "activation_function": "gelu_new", "decoder_vocab_size": 300,
              "share_encoder_decoder_embeddings": False}  # fmt: skip
    assert found == written | marian
    assert hf_seq2seq.config_of(holding(post, "transformer"))["share_encoder_decoder_embeddings"] is True


def test_generation_goes_on_as_in_regard():
    run = holding(llama.Settings(context=48), "llama")
    ends = {"eos_token_id": 2, "pad_token_id": 2, "bos_token_id": 1}
    assert huggingface._longest(run) == 48
    assert huggingface._generation(run, 48) == {**ends, "suppress_tokens": [5]}
    run.forbidden = []
    assert huggingface._generation(run, 48) == ends
    run = holding(transformer.Settings(), "transformer")
    assert huggingface._longest(run) == 100
    assert huggingface._generation(run, 100) == {
        **ends, "suppress_tokens": [5], "decoder_start_token_id": 2, "max_new_tokens": 100, "num_beams": BEAM.width,
        "length_penalty": BEAM.length_penalty, "early_stopping": False,
    }  # fmt: skip


def test_greedy_texts_begin_with_half_a_line_and_end_within_the_context(monkeypatch):
    run, asked = holding(llama.Settings(context=48), "llama"), []
    run.tokenizer.encode = list
    run.generate = lambda text, **how: asked.append((text, how)) or text + "!\n"
    monkeypatch.setattr(huggingface, "texts", lambda run: ["ab cd ef", " ", "x", "y" * 60, "z" * 93, "w" * 94, "s  t"])
    monkeypatch.setattr(huggingface, "_theirs", lambda model, tokenizer, text, most: f"{text}!" if text != "x" else "")
    assert huggingface._greedy_texts(run, None, None) == [True, False, True, True, True]
    assert [(text, how["max_tokens"]) for text, how in asked] == [
        ("ab c", 32), ("x", 32), ("y" * 30, 17), ("z" * 46, 1), ("s", 32),
    ]  # fmt: skip
    assert {(how["temperature"], how["lines"]) for _, how in asked} == {(0, 1)}


@torch.no_grad()
def test_translators_are_compared_on_sources_of_different_lengths_with_padding(runs):
    run, asked = runs("transformer"), []

    def theirs(*, input_ids, attention_mask, decoder_input_ids):
        asked.append((input_ids, attention_mask, decoder_input_ids))
        state = run.model.begin(input_ids, attention_mask.sum(1))
        return SimpleNamespace(logits=run.model(decoder_input_ids, state)[0] + 0.5)

    assert huggingface._translator_difference(run, theirs) == pytest.approx(0.5, abs=1e-6)
    ((source, mask, target),) = asked
    assert mask.tolist() == [[1] * n + [0] * (25 - n) for n in (25, 24, 23, 22)]
    for row, drawn, n in zip(source.tolist(), token_rows(run, source=True), (25, 24, 23, 22)):
        assert row == drawn[: n - 1] + [0] * (26 - n)  # the boundary, and then padding
    assert target.tolist() == [[0, *row] for row in token_rows(run)]


def test_gpt2_has_positions_where_there_are_none(runs):
    found = hf_gpt2.tensors_of(runs("gpt", position="none", tied=False).model)
    assert torch.equal(found["wpe.weight"], torch.zeros(48, 24))
    assert found["output.weight"].shape[1] == 24


# -- tokenizers ------------------------------------------------------------------------------------------------------


def words_engine(names, special=()):
    engine = Engine(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token=names[0]))
    engine.add_special_tokens([AddedToken(name, special=True) for name in special])
    return engine


@pytest.mark.parametrize(
    ("ends", "named", "expected"),
    [(1, "<e>", 1), ([1, 2], "<e>", 2), ([1, 2], {"content": "<e>"}, 2), ([1, 2], "a", 1), ([2, 1], None, 2),
     ([1, 2], {"content": 5}, 1), ([2, 1], "other", 2), ([], "<e>", None)],
)  # fmt: skip
def test_of_several_ends_the_tokenizer_names_one(ends, named, expected, tmp_path):
    words_engine(["a", "</s>", "<e>"]).save(str(tmp_path / "tokenizer.json"))
    read = config(tmp_path, eos_token_id=ends)
    assert hf_tokenizer._end_of(tmp_path, read) == (ends[0] if isinstance(ends, list) and ends else ends or None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": named}))
    assert hf_tokenizer._end_of(tmp_path, read) == expected
    (tmp_path / "tokenizer.json").unlink()
    assert hf_tokenizer._end_of(tmp_path, read) == (ends[0] if isinstance(ends, list) and ends else ends or None)


def bpe_engine(pre_tokenizer=None, normalizer=None, **how):
    names = ["<eos>", *BYTE_SYMBOLS, "ab"]
    engine = Engine(models.BPE({name: n for n, name in enumerate(names)}, [("a", "b")], **how))
    engine.pre_tokenizer = pre_tokenizer or byte_level(True)
    engine.decoder = decoders.ByteLevel()
    if normalizer is not None:
        engine.normalizer = normalizer
    return engine


LOOSE = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
OURS = [
    ({}, "bpe", "none"), ({"pre_tokenizer": LOOSE}, "byte", "none"),
    ({"normalizer": normalizers.NFC()}, "bpe", "nfc"), ({"normalizer": normalizers.NFKC()}, "bpe", "nfkc"),
    ({"normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.Replace("\n", "<eos>")])}, "bpe", "nfc"),
    ({"normalizer": normalizers.Replace("\n", "<eos>")}, "bpe", "none"),
    ({"normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.NFKC()])}, None, None),
    ({"normalizer": normalizers.Lowercase()}, None, None),
    ({"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}, None, None),
    ({"pre_tokenizer": pre_tokenizers.Whitespace()}, None, None),
    ({"byte_fallback": True}, None, None), ({"ignore_merges": True}, None, None), ({"dropout": 0.1}, None, None),
    ({"continuing_subword_prefix": "#"}, None, None), ({"end_of_word_suffix": "</w>"}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("how", "kind", "form"), OURS, ids=str)
def test_byte_pairs_are_ours_where_nothing_else_is_done_to_a_text(how, kind, form):
    if "continuing_subword_prefix" in how:
        engine = Engine(models.BPE({"<eos>": 0, "a": 1, "#b": 2, "ab": 3}, [("a", "#b")], **how))
        engine.pre_tokenizer = byte_level(True)
    else:
        engine = bpe_engine(**how)
    made = hf_tokenizer._as_byte_pairs(engine, json.loads(engine.to_str())["model"], "<eos>")
    if kind is None:
        assert made is None
    else:
        tokenizer = Tokenizer(made)
        assert (tokenizer.normalisation, tokenizer.tokens[-1]) == (form, "ab")
        assert tokenizer.kind == ("byte" if how.get("pre_tokenizer") is LOOSE else "bpe")


def test_words_are_ours_with_our_own_boundary_alone():
    engine = words_engine(["<unk>", "<eos>", "a"])
    engine.pre_tokenizer = splitter(SPLIT_CHARACTERS)
    model = json.loads(engine.to_str())["model"]
    assert hf_tokenizer._as_words(engine, model, "<eos>").get_vocab() == {"<unk>": 0, "<eos>": 1, "a": 2}
    assert hf_tokenizer._as_words(engine, model, "a") is None
    assert hf_tokenizer._as_words(engine, model | {"unk_token": "a"}, "<eos>") is None
    assert hf_tokenizer._as_words(engine, model | {"vocab": {"<unk>": 0, "a": 1}}, "<eos>") is None


def test_a_tokenizer_of_ours_that_contradicts_itself_is_named(tmp_path):
    made = word_level({"<eos>": 0, "<unk>": 1, "ab": 2}, SPLIT_CHARACTERS)
    said = r"x\.json cannot be used as a tokenizer in Regard \(a symbol is longer than a character\): give a different"
    with pytest.raises(RegardError, match=said):
        hf_tokenizer._checked(made, tmp_path / "x.json")


def test_a_tokenizer_that_is_given_must_end_texts_as_the_model_does(runs, tmp_path):
    given = runs("gpt").folder / "tokenizer.json"
    size = runs("gpt").tokenizer.vocabulary
    made, order = hf_tokenizer.tokenizer_of(tmp_path, config(tmp_path, eos_token_id=0), given, size)
    assert (made.vocabulary, order) == (size, list(range(size)))
    with pytest.raises(RegardError, match=r"eos_token_id is 5, but 0 in .*: this is a different tokenizer"):
        hf_tokenizer.tokenizer_of(tmp_path, config(tmp_path, eos_token_id=5), given, size)


ALPHABET = ["<|begin|>", "<|end|>", *BYTE_SYMBOLS, "ab", "abc"]
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab", "<user>"]
KINDS = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 5, 4]


def byte_level_of(cut):
    kinds = [CONTROL, CONTROL, *[NORMAL] * (len(ALPHABET) - 2)]
    engine = byte_pairs(ALPHABET, ["a b", "ab c"], kinds, cut)
    return import_engine(engine, begin=0, eos=1, vocabulary=len(ALPHABET))


def pieces_of(prefix, tokens=PIECES, kinds=KINDS):
    engine = sentence_pieces(tokens, [-float(n) for n in range(len(tokens))], kinds, prefix)
    return import_engine(engine, begin=1, eos=2, vocabulary=len(tokens))


def test_an_imported_tokenizer_goes_out_with_its_beginning_before_a_text():
    files = hf_tokenizer.tokenizer_files(byte_level_of("gpt-2"), source=False, longest=77)
    engine = Engine.from_str(files["tokenizer.json"])
    assert engine.encode("ab").ids == [0, ALPHABET.index("ab")]
    assert engine.encode("a", "b").ids == [0, ALPHABET.index("a"), 0, ALPHABET.index("b")]
    assert engine.encode("a", "b").type_ids == [0, 0, 1, 1]
    assert json.loads(files["tokenizer_config.json"]) == {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "bos_token": "<|begin|>",
        "eos_token": "<|end|>", "pad_token": "<|end|>", "model_max_length": 77,
    }  # fmt: skip


def test_a_tokenizer_of_ours_goes_out_with_its_boundary(runs):
    for source in (False, True):
        files = hf_tokenizer.tokenizer_files(runs("gpt").tokenizer, source=source, longest=48)
        told = json.loads(files["tokenizer_config.json"])
        assert (told["model_max_length"], told["padding_side"]) == (48, "right")
        assert told["added_tokens_decoder"] == {"0": {
            "content": "<eos>", "special": True, "normalized": True, "lstrip": False, "rstrip": False,
            "single_word": False,
        }}  # fmt: skip
        assert told["clean_up_tokenization_spaces"] is False
        types = Engine.from_str(files["tokenizer.json"]).encode("a", "b").type_ids
        assert types == [0, 0, 1, 1]


# -- GGUF ------------------------------------------------------------------------------------------------------------


class Noting:
    """A writer that notes what is added, and whether the file was finished."""

    def __init__(self, *made):
        self.made, self.facts, self.tensors, self.done = made, {}, {}, []

    def add_tensor(self, name, numbers, raw_dtype=None):
        self.tensors[name] = raw_dtype and raw_dtype.name

    def __getattr__(self, name):
        if not name.startswith("add_"):
            return lambda: self.done.append(name)
        return lambda value: self.facts.__setitem__(name.removeprefix("add_"), value)


@pytest.fixture
def gguf_file(monkeypatch):
    pytest.importorskip("gguf", reason="which writes these files")
    from regard.exchange import gguf_file

    writers = []

    def make(*made):
        writers.append(Noting(*made))
        return writers[-1]

    monkeypatch.setattr(gguf_file.gguf, "GGUFWriter", make)
    return SimpleNamespace(module=gguf_file, writers=writers)


@pytest.mark.parametrize("cut", foreign_tokenizers.CUTS)
def test_imported_byte_pairs_are_listed_as_they_came(cut, gguf_file):
    writer = Noting()
    gguf_file.module._add_tokenizer(writer, byte_level_of(cut))
    assert writer.facts == {
        "tokenizer_model": "gpt2", "tokenizer_pre": cut, "token_merges": ["a b", "ab c"], "token_list": ALPHABET,
        "token_types": [CONTROL, CONTROL, *[NORMAL] * (len(ALPHABET) - 2)], "bos_token_id": 0, "eos_token_id": 1,
        "pad_token_id": 1, "add_bos_token": True,
    }  # fmt: skip


@pytest.mark.parametrize("prefix", [True, False])
def test_imported_pieces_are_listed_with_scores_that_merge_them_in_their_order(prefix, gguf_file):
    writer = Noting()
    gguf_file.module._add_tokenizer(writer, pieces_of(prefix))
    facts = writer.facts
    scores = facts.pop("token_scores")
    assert [scores[PIECES.index(name)] for name in ("▁a", "ab", "a")] == [0.0, -1.0, -2.0]
    kinds = [NORMAL if kind == 4 else kind for kind in KINDS]
    assert facts == {
        "tokenizer_model": "llama", "add_space_prefix": prefix, "token_list": PIECES, "token_types": kinds,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "add_bos_token": True,
    }  # fmt: skip
    again = sentence_pieces(facts["token_list"], scores, kinds, prefix)
    for text in ("ab a", "a ab é", "baab"):
        assert again.encode(text).ids == pieces_of(prefix).encode(text)


def test_a_way_of_cutting_that_gguf_has_no_name_for_is_refused(gguf_file):
    engine = bpe_engine(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), byte_level(False)]))
    made = import_engine(engine, begin=0, eos=0, vocabulary=engine.get_vocab_size())
    with pytest.raises(RegardError, match="cannot express in GGUF; use --to huggingface"):
        gguf_file.module.check_imported(made)
    gguf_file.module.check_imported(byte_level_of("smollm"))
    gguf_file.module.check_imported(pieces_of(True))


@pytest.mark.parametrize(
    ("quantization", "kinds"),
    [("f32", [None] * 4), ("f16", ["F16", None, "F16", None]), ("q8_0", ["Q8_0", None, None, None])],
)
def test_positions_norms_and_what_has_no_blocks_keep_all_bits(quantization, kinds, gguf_file):
    shapes = {"token_embd.weight": (4, 64), "position_embd.weight": (4, 64), "blk.0.ffn_down.weight": (4, 40),
              "output_norm.weight": (64,)}  # fmt: skip
    writer = Noting()
    for name, shape in shapes.items():
        gguf_file.module._add_tensor(writer, name, torch.ones(shape), quantization)
    assert list(writer.tensors.values()) == kinds


@pytest.mark.parametrize(("system", "bias", "name"), [
    ("gpt", None, "gpt2"), ("llama", "none", "llama"), ("llama", "qkv", "qwen2"),
])  # fmt: skip
@pytest.mark.parametrize("quantization", ["f32", "f16", "q8_0"])
def test_a_gguf_file_is_written_to_its_end_with_its_kind(system, bias, name, quantization, runs, gguf_file, tmp_path):
    more = {"bias": bias} if bias else {}
    run = runs(system, width=32, heads=4, **({"key_value_heads": 2} if bias else {}), **more)
    gguf_file.module.write(run, tmp_path / "m.gguf", quantization=quantization)
    (writer,) = gguf_file.writers
    assert writer.made == (tmp_path / "m.gguf", name)
    assert writer.facts["file_type"] == {"f32": 0, "f16": 1, "q8_0": 7}[quantization]
    assert writer.done == ["write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"]
    assert writer.facts["token_types"] == [CONTROL, *[NORMAL] * (run.tokenizer.vocabulary - 1)]
    assert ("rope_freq_base" in writer.facts) == (system == "llama")
    assert "rope_scaling_type" not in writer.facts


def test_what_gguf_cannot_say_of_a_text_is_noted(runs, gguf_file, tmp_path, capsys):
    run = runs("gpt")
    gguf_file.module.write(run, tmp_path / "m.gguf")
    assert "note:" not in capsys.readouterr().err
    run.tokenizer = Tokenizer.train(["the ship left the harbour"] * 3, "bpe", normalise="nfc")
    gguf_file.module.write(run, tmp_path / "m.gguf")
    assert "note: GGUF cannot record that text is normalized (nfc)" in capsys.readouterr().err
    run.tokenizer = pieces_of(True)
    gguf_file.module.write(run, tmp_path / "m.gguf")
    assert gguf_file.writers[-1].facts["tokenizer_model"] == "llama"


class Llama:
    """Stands in for llama.cpp's server: it answers as the run does, half a nat beside it at one token."""

    def __init__(self, run):
        self.run, self.requests = run, []

    def handle_completions(self, request):
        self.requests.append(request)
        if isinstance(request["prompt"], str):
            asked, most = request["prompt"], request["n_predict"]
            text = self.run.generate(asked, max_tokens=most, temperature=0, lines=1).removesuffix("\n")
            return {"choices": [{"text": text.removeprefix(asked) + "\ufffd" * (len(self.requests) % 2)}]}
        with torch.no_grad():
            found = self.run.model(torch.tensor([request["prompt"]]))[0][0, -1].log_softmax(-1).tolist()
        found[5] -= 0.5 * len(self.requests)
        told = [{"id": token, "logprob": one} for token, one in enumerate(found)]
        return {"choices": [{"logprobs": {"content": [{"top_logprobs": told}]}}]}


@pytest.mark.parametrize("context", [48, 16])
def test_llama_cpp_is_asked_alone_exactly_and_within_the_context(context, runs, gguf_file, monkeypatch, tmp_path):
    run = runs("gpt", context=context)
    llama, given = Llama(run), []
    params = SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace())
    fake = SimpleNamespace(
        __version__="7", CommonParams=lambda: params, Server=lambda params: given.append(params) or llama,
        ggml_type=SimpleNamespace(GGML_TYPE_F32="f32"),
        llama_flash_attn_type=SimpleNamespace(LLAMA_FLASH_ATTN_TYPE_DISABLED="off"),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "xllamacpp", fake)
    monkeypatch.setattr(gguf_file.module, "texts", lambda run: ["The ship left", " ", "x" * 40])
    found = gguf_file.module.check(run, tmp_path / "m.gguf", quantization="f32")
    assert given == [params]
    assert (params.model.path, params.n_ctx, params.n_parallel) == (str(tmp_path / "m.gguf"), context, 1)
    assert (params.cache_type_k, params.cache_type_v, params.flash_attn_type) == ("f32", "f32", "off")
    assert (found.program, found.format) == ("llama.cpp (xllamacpp 7)", "gguf")
    assert found.compared == f"log-probabilities of all {run.tokenizer.vocabulary} tokens after 4 prompts"
    assert found.largest_difference == pytest.approx(2.0, abs=1e-5)
    rows, texts = llama.requests[:4], llama.requests[4:]
    assert [one["prompt"] for one in rows] == [[0, *row][: context - 2] for row in token_rows(run)]
    letter = run.tokenizer.encode("a")[0]
    for one in rows:
        assert (one["n_predict"], one["n_probs"], one["logit_bias"]) == (1, run.tokenizer.vocabulary, [[letter, 1e9]])
    prompts = [("The sh", "The ship left"), ("x" * 20, "x" * 40)]
    rooms = [min(16, context - 2 - len(run.tokenizer.encode(prompt))) for prompt, _ in prompts]
    assert [(one["prompt"], one["n_predict"]) for one in texts] == [
        (prompt, room) for (prompt, _), room in zip(prompts, rooms) if room > 0
    ]
    assert all(one["logit_bias"] == [[token, False] for token in run.forbidden] for one in texts)
    assert all((one["temperature"], one["cache_prompt"]) == (0.0, False) for one in llama.requests)
    assert found.same_text == f"{len(texts)} of {len(texts)} greedy texts"


# -- limits of tokenizers --------------------------------------------------------------------------------------------


def test_limits_of_a_strangers_lists_are_what_they_say(monkeypatch, tmp_path):
    assert foreign_tokenizers.numbered(["a" * 4096, "b"])["b"] == 1
    with pytest.raises(RegardError, match="a token of more than 4096 characters"):
        foreign_tokenizers.numbered(["a" * 4097])
    with pytest.raises(RegardError, match="has the token 'b' twice"):
        foreign_tokenizers.numbered(["a", "b", "b", "c"])
    tokens, scores = ["a", "b", "ab"], [-3.0, -2.0, -1.0]
    monkeypatch.setattr(foreign_tokenizers, "MAX_CUTS", 6)
    assert foreign_tokenizers.piece_pairs(tokens, scores, [NORMAL] * 3) == [("a", "b")]
    assert foreign_tokenizers.piece_pairs([*tokens, "x" * 99], [*scores, 0.0], [NORMAL] * 3 + [CONTROL])
    monkeypatch.setattr(foreign_tokenizers, "MAX_CUTS", 5)
    with pytest.raises(RegardError, match="so many long pieces"):
        foreign_tokenizers.piece_pairs(tokens, scores, [NORMAL] * 3)
    monkeypatch.setattr(foreign_tokenizers, "MAX_ADDED", 2)
    engine = words_engine(["x", "<c>", "<mine>", "<u>"])
    foreign_tokenizers.add_special(engine, ["x", "<c>", "<mine>"], [NORMAL, CONTROL, 4])
    added = {one["content"]: one["special"] for one in json.loads(engine.to_str())["added_tokens"]}
    assert added == {"<c>": True, "<mine>": False}
    with pytest.raises(RegardError, match="has more than 2 special tokens"):
        foreign_tokenizers.add_special(engine, ["<u>", "<c>", "<mine>"], [UNKNOWN, CONTROL, 4])


def test_merges_come_by_score_and_then_by_number():
    tokens, scores = ["a", "b", "c", "bc", "ab", "abc"], [0.0, 0.0, 0.0, -2.0, -1.0, -3.0]
    found = foreign_tokenizers.piece_pairs(tokens, scores, [NORMAL] * 6)
    assert found == [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")]


# -- a run from another program --------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["gpt", "llama"])
def test_a_batch_of_an_imported_model_holds_one_window_at_least(system, runs):
    cut = runs("gpt").tokenizer
    found = imported_run.recipe_of(system, {}, cut)
    usual = found.training.batch_tokens
    assert (found.data.corpus, found.data.tokenizer, found.data.vocabulary) == ("", "bpe", cut.vocabulary)
    assert found.size == ""
    for context in (usual - 1, usual, usual + 1, 2048, 1 << 17):
        found = imported_run.recipe_of(system, {"context": context}, cut)
        assert (found.model.context, found.training.batch_tokens) == (context, max(usual, context))
    assert imported_run.recipe_of("transformer", {}, cut).data.joint
    assert not imported_run.recipe_of("transformer", {}, cut, joint=False).data.joint


def test_a_chat_template_is_one_text_or_the_default_of_several(tmp_path):
    checked = imported_run.checked_template
    assert checked("x" * (1 << 18), tmp_path) == "x" * (1 << 18)
    assert (
        checked(None, tmp_path) == checked([], tmp_path) == checked([{"name": "rag", "template": "r"}], tmp_path) == ""
    )
    several = [{"name": "default", "template": "old"}, {"name": "rag", "template": "r"},
               {"name": "default", "template": "d"}, "odd"]  # fmt: skip
    assert checked(several, tmp_path) == "d"
    for wrong in ("x" * ((1 << 18) + 1), 3, {"name": "default"}):
        with pytest.raises(RegardError, match="is not a string of at most 262144 characters"):
            checked(wrong, tmp_path)


# -- which program reads or writes it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "module", "precise"),
    [("a folder", None, "huggingface", True), ("x.zip", b"PK\x03\x04..", "archive", False),
     ("x.json", b"{}", "mingpt_json", False), ("x", b"GGUF...", "gguf_reading", True),
     ("x.bin", b"\0\0\0\0", "llama2c_file", True), ("x.arpa", b"\\dat", "arpa_runs", False),
     ("y", b"", "arpa_runs", False), ("x.bin", b"GGUF", "gguf_reading", True)],
)  # fmt: skip
def test_a_file_is_read_by_what_it_begins_with(name, content, module, precise, tmp_path, monkeypatch):
    file, read = tmp_path / name, []
    file.mkdir() if content is None else file.write_bytes(content)
    made = SimpleNamespace(read=lambda *given, **more: read.append((given, more)) or tmp_path)
    monkeypatch.setattr(formats, "import_module", lambda name: read.append(name) or made)
    assert formats.import_file(file) == tmp_path
    more = {"precision": "fp32"} if precise else {}
    assert read == [f"regard.exchange.{module}", ((file, formats.Path("runs") / file.stem, None), more)]
    read.clear()
    if precise:
        formats.import_file(file, tmp_path / "r", tmp_path / "t", "bf16")
        assert read[1] == ((file, tmp_path / "r", tmp_path / "t"), {"precision": "bf16"})
    else:
        with pytest.raises(RegardError, match="--precision applies only to neural networks"):
            formats.import_file(file, precision="bf16")
    with pytest.raises(RegardError, match="--precision must be"):
        formats.import_file(file, precision="fp16")


def test_a_package_that_is_missing_is_named_and_another_error_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"GGUF")
    missing = []

    def lacking(name):
        raise ModuleNotFoundError(f"No module named {missing[-1]!r}", name=missing[-1])

    monkeypatch.setattr(formats, "import_module", lacking)
    for name, sentence in (("gguf", r"install gguf: pip install 'regard\[gguf\]'"), ("torch", None)):
        missing.append(name)
        with pytest.raises(ModuleNotFoundError if sentence is None else RegardError, match=sentence):
            formats.import_file(tmp_path / "x")
    for name, to, sentence in (
        ("ctranslate2", "ctranslate2", r"--to ctranslate2 needs the package ctranslate2: pip install 'regard\[ctr"),
        ("regard.more", "ctranslate2", None), ("torch", "archive", None),
    ):  # fmt: skip
        missing.append(name)
        with pytest.raises(ModuleNotFoundError if sentence is None else RegardError, match=sentence):
            formats._module(formats.FORMATS[to], to)


def test_an_export_says_what_it_has_no_option_and_no_check_for(runs, tmp_path):
    folder = runs("gpt").folder
    for to, options, said in (
        (
            "page",
            {"licence": "mit"},
            "has no option --licence; its options are: --weights, --license, --scores, --embed",
        ),
        ("onnx", {"weights": "int8"}, "--to onnx has no option --weights; its options are: none"),
    ):
        with pytest.raises(RegardError, match=said):
            formats.export(folder, to, tmp_path / "out", options=options)
    with pytest.raises(RegardError, match="--to archive does not support --check: leave it out"):
        formats.export(folder, "archive", tmp_path / "out", check=True)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RegardError, match="link already exists; remove it or choose another name"):
        formats.export(folder, "archive", tmp_path / "link")
    with pytest.raises(RegardError) as error:  # RUN and OUT in the wrong order
        formats.export(tmp_path / "out", "archive", folder)
    assert "already exists" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link"]


def test_what_belongs_beside_a_file_is_said_and_its_program_asked_only_on_demand(runs, tmp_path, monkeypatch, capsys):
    calls = []
    made = SimpleNamespace(
        write=lambda run, out, **options: (out.write_text("x"), calls.append(("write", options))),
        write_beside=lambda run, out: calls.append(("beside", out.name)) or "its tokenizer: here",
        check=lambda run, out, **options: calls.append(("check", options, out.read_text())) or "parity",
    )
    monkeypatch.setattr(formats, "_module", lambda form, to: made)
    options = {"quantization": "f16"}
    assert formats.export(runs("gpt").folder, "gguf", tmp_path / "a", options=options) is None
    assert calls == [("write", options), ("beside", "a")]
    assert "its tokenizer: here" in capsys.readouterr().err
    del made.write_beside
    assert formats.export(runs("gpt").folder, "gguf", tmp_path / "b", options=options, check=True) == "parity"
    assert calls[2:] == [("write", options), ("check", options, "x")]
    assert not capsys.readouterr().err


def test_the_python_functions_pass_on_what_they_are_given(runs, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(formats, "export", lambda *words, **more: given.append((words, more)) or "parity")
    run = runs("gpt")
    assert regard.export(run, "gguf", str(tmp_path / "x"), options={"a": "b"}, check=True) == "parity"
    regard.export(str(run.folder), "gguf", tmp_path / "x")
    assert given == [
        ((run.folder, "gguf", tmp_path / "x"), {"options": {"a": "b"}, "check": True}),
        ((run.folder, "gguf", tmp_path / "x"), {"options": None, "check": False}),
    ]
    monkeypatch.setattr(formats, "import_file", lambda *words: given.append(words) or tmp_path / "made")
    monkeypatch.setattr(export_and_import, "load", lambda folder: folder.name)
    assert regard.import_model("a.gguf") == "made"
    assert regard.import_model("a.gguf", run="r", tokenizer="t", precision="bf16") == "made"
    path = formats.Path
    assert given[2:] == [(path("a.gguf"), None, None, "fp32"), (path("a.gguf"), path("r"), path("t"), "bf16")]


def test_regards_own_search_needs_no_engine(runs, monkeypatch):
    assert engines.open_engine("regard", runs("gpt")) is None
    assert engines.ENGINES == {"regard": "", "ctranslate2": "float32", "ctranslate2-int8": "int8"}


# -- archives, n-grams and cards -------------------------------------------------------------------------------------


def test_an_archive_is_plain_files_in_order_without_a_time(tmp_path):
    out = tmp_path / "x.zip"
    archive.write(shutil.copytree(GALLERY / "lstm", tmp_path / "run"), out)
    with zipfile.ZipFile(out) as found:
        entries, listed = found.infolist(), json.loads(found.read(archive.MANIFEST))
    names = [entry.filename for entry in entries]
    assert names == [*sorted(names[:-1]), archive.MANIFEST]
    for entry in entries:
        assert (entry.compress_type, entry.date_time, entry.create_system) == (
            zipfile.ZIP_STORED,
            (1980, 1, 1, 0, 0, 0),
            3,
        )
        assert entry.external_attr == (stat.S_IFREG | 0o644) << 16
    assert (listed["archive"], listed["regard"]) == (1, regard.__version__)


@pytest.mark.parametrize(("name", "hides"), [
    ("torch", True), ("json", True), ("regard", True), ("usercustomize", True), ("sitecustomize", True),
    ("my_own_layer_xyz", False),
])  # fmt: skip
def test_code_hides_a_module_that_is_there(name, hides):
    assert archive._hides_module(f"{name}.py") == hides


def counting(scores, tokens=("<eos>", "<unk>", "a", "b")):
    kept = SimpleNamespace(tokens=list(tokens), encode=lambda line: [2 if sign == "a" else 3 for sign in line])
    lines = [SimpleNamespace(log_probability=one) for one in scores]
    return SimpleNamespace(tokenizer=kept, recipe=SimpleNamespace(system="ngram"), score=lambda asked: lines)


def test_an_arpa_file_is_compared_with_kenlm_in_its_own_logarithms(tmp_path, monkeypatch):
    kenlm = pytest.importorskip("kenlm", reason="the oracle")
    asked, read = [], []
    model = SimpleNamespace(score=lambda words: read.append(words) or -float(len(words)))
    monkeypatch.setattr(kenlm, "Model", lambda path: asked.append(path) or model)
    monkeypatch.setattr(arpa_runs, "texts", lambda run, count: asked.append(count) or ["ab", "a"])
    found = arpa_runs.check(counting([-3 * np.log(10), -1.5 * np.log(10)]), tmp_path / "x.arpa")
    assert (asked, read) == ([str(tmp_path / "x.arpa"), 64], ["a b", "a"])
    assert found == Parity("ngram", "arpa", found.program, "log10 P of 2 lines", pytest.approx(0.5))
    assert found.program.startswith("kenlm ")


def test_words_of_an_arpa_file_are_a_tokenizer_if_it_has_an_unknown_word():
    assert arpa_runs._tokenizer_of(["<eos>", "<unk>", "a", "b"]).kind == "char"
    assert arpa_runs._tokenizer_of(["<eos>", "<unk>", "a", "bc"]).kind == "word"
    for tokens in (["<eos>", "a", "<unk>"], ["<eos>"]):
        with pytest.raises(RegardError, match="The file has no <unk>"):
            arpa_runs._tokenizer_of(tokens)


def test_a_card_tells_where_the_weights_come_from(runs, monkeypatch):
    run = runs("gpt")
    facts = {"corpus": {"name": "harbour", "checksum": "01ab", "notes": ["short"]}, "regard": "0.9"}
    monkeypatch.setattr(model_card, "read_facts", lambda folder: facts)
    ancestors = [{"run": "parent"}]
    monkeypatch.setattr(model_card.Ancestors, "of", lambda folder: SimpleNamespace(runs=ancestors))
    monkeypatch.setattr(model_card, "provenance", lambda one: "a text")
    monkeypatch.setattr(run, "evaluate", lambda: {"split": "test", "corpus": "harbour", "perplexity": 2.0,
                                                  "seen_in_training": "3 of 9 lines"})  # fmt: skip
    scored = model_card.model_card(run, "GPT2LMHeadModel", license="mit", scored=True)
    name = run.folder.name
    for part in (
        f"# {name}", "Trained with Regard 0.9.", "harbour, checksum `01ab`. License of these weights: mit.", "- short",
        "- Fine-tuned from parent: a text.", "Seen in training: 3 of 9 lines.", "| perplexity | 2.00 |",
        "A line begins after `<eos>`", f"Tokens: bpe, {run.tokenizer.vocabulary} symbols.", "with this recipe.toml:",
        "AutoModelForCausalLM",
    ):  # fmt: skip
        assert part in scored, part
    plain = model_card.model_card(run, "GPT2LMHeadModel", license="unknown", scored=False)
    assert "License of these weights: unknown; set it with `--license` once you know" in plain
    assert "Seen in training" not in plain
    assert "not evaluated" not in plain
    assert "\n\n\n" not in plain
    monkeypatch.setattr(model_card, "read_facts", lambda folder: {})
    assert "\n\nunknown. License" in model_card.model_card(run, "x", license="unknown", scored=False)
    translator = runs("transformer")
    assert "A source ends with `<eos>`" in model_card.model_card(translator, "x", license="mit", scored=False)
    assert "AutoModelForSeq2SeqLM" in model_card.model_card(translator, "x", license="mit", scored=False)
