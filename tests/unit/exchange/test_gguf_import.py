"""GGUF files come in: floats exactly, few bits as the gguf package reads them, and damaged ones as one sentence."""

import struct
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.exchange.formats import export, import_file

gguf = pytest.importorskip("gguf", reason="which dequantizes")
from regard.exchange import gguf_reading  # noqa: E402
from regard.exchange.gguf_reading import HeaderReader  # noqa: E402

Kind = gguf.GGMLQuantizationType
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "ab", "▁a"]
TYPES = [2, 3, 3, *[6] * 256, *[1] * 5]
UINT32, FLOAT32, STRING, ARRAY, UINT64 = 4, 6, 8, 9, 10
WIDTH, HEADS, GROUPS, INNER = 256, 4, 2, 512


def string(text):
    encoded = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def packed(value):
    """A value with its type: whole numbers, floats, texts and lists of one of them."""
    if isinstance(value, bytes):  # written out by the test
        return value
    if isinstance(value, list):
        kinds = {int: (5, "i"), float: (FLOAT32, "f"), str: (STRING, "")}[type(value[0])]
        items = [string(one) if kinds[0] == STRING else struct.pack(f"<{kinds[1]}", one) for one in value]
        return struct.pack("<IIQ", ARRAY, kinds[0], len(value)) + b"".join(items)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + string(value)
    return struct.pack("<If", FLOAT32, value) if isinstance(value, float) else struct.pack("<II", UINT32, value)


def write(path, values, tensors, *, version=3, counts=None):
    """A GGUF file, byte for byte; `tensors`: name → (shape, type, bytes)."""
    tensor_count, value_count = counts or (len(tensors), len(values))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, value_count)
    head += b"".join(string(name) + packed(value) for name, value in values.items())
    place, body = 0, b""
    for name, (shape, kind, content) in tensors.items():
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += struct.pack("<IQ", kind, place)
        content += b"\0" * (-len(content) % 32)
        body, place = body + content, place + len(content)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


def values(**changes):
    found = {
        "general.architecture": "llama",
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": GROUPS,
        "llama.feed_forward_length": INNER,
        "llama.context_length": 64,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 5000.0,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": [-float(number) for number in range(len(TOKENS))],
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in {**found, **named}.items() if value is not None}


SHAPES = {
    "token_embd.weight": (len(TOKENS), WIDTH),
    "output_norm.weight": (WIDTH,),
    "blk.0.attn_norm.weight": (WIDTH,),
    "blk.0.attn_q.weight": (WIDTH, WIDTH),
    "blk.0.attn_k.weight": (WIDTH // HEADS * GROUPS, WIDTH),
    "blk.0.attn_v.weight": (WIDTH // HEADS * GROUPS, WIDTH),
    "blk.0.attn_output.weight": (WIDTH, WIDTH),
    "blk.0.ffn_norm.weight": (WIDTH,),
    "blk.0.ffn_gate.weight": (INNER, WIDTH),
    "blk.0.ffn_up.weight": (INNER, WIDTH),
    "blk.0.ffn_down.weight": (WIDTH, INNER),
}


def stored(kind=Kind.F32):
    """Random weights; what gguf cannot quantize itself is drawn as bytes, of which none makes an infinite scale."""
    draw, found = np.random.default_rng(0), {}
    for name, shape in SHAPES.items():
        numbers = (draw.standard_normal(shape) * 0.05 + (len(shape) == 1)).astype(np.float32)
        used = kind if len(shape) > 1 else Kind.F32
        try:
            content = gguf.quants.quantize(numbers, used).tobytes()
        except NotImplementedError:
            block, size = gguf.GGML_QUANT_SIZES[used]
            content = draw.integers(0, 0x30, numbers.size // block * size, np.uint8).tobytes()
        found[name] = (shape, int(used), content)
    return found


def halves(weight, heads):
    """llama.cpp's order of rows as ours: written by hand, for each head its even rows and then its odd ones."""
    rows = weight.reshape(heads, -1, weight.shape[-1])
    return np.concatenate([np.concatenate([head[0::2], head[1::2]]) for head in rows])


COMMON = [
    "F32",
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
]


@pytest.mark.parametrize("kind", COMMON)
def test_weights_are_what_the_gguf_package_makes_of_them(tmp_path, kind):
    tensors = stored(Kind[kind])
    write(tmp_path / "m.gguf", values(), tensors)
    run = regard.import_model(tmp_path / "m.gguf", run=tmp_path / "run")
    reader = {one.name: one for one in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    theirs = {name: gguf.quants.dequantize(one.data, one.tensor_type) for name, one in reader.items()}
    ours = {name: weight.numpy() for name, weight in run.model.state_dict().items()}
    parts = [halves(theirs["blk.0.attn_q.weight"], HEADS), halves(theirs["blk.0.attn_k.weight"], GROUPS)]
    assert np.array_equal(
        ours["layers.0.attention.project.weight"], np.concatenate([*parts, theirs["blk.0.attn_v.weight"]])
    )
    assert np.array_equal(ours["embedding.table.weight"], theirs["token_embd.weight"])
    assert np.array_equal(ours["layers.0.feedforward.output.weight"], theirs["blk.0.ffn_down.weight"])
    assert (run.recipe.model.epsilon, run.recipe.model.theta, run.recipe.model.context) == (1e-6, 5000.0, 64)
    assert (run.tokenizer.begin, run.tokenizer.eos, run.chat_template) == (1, 2, "{{ messages[0].content }}")
    assert run.tokenizer.decode(run.tokenizer.encode("ab a é")) == "ab a é"


WRITTEN = {
    "plain": {"tied": False, "epsilon": 1e-6, "theta": 5000.0},
    "linear": {"stretch": "linear", "stretch_factor": 4.0},
    "llama3": {"stretch": "llama3", "stretch_factor": 32.0, "theta": 500000.0, "heads": 2, "head_width": 64},
    "qwen2": {"bias": "qkv", "theta": 5000.0},
    "biases": {"bias": "all"},
    "wide heads": {"head_width": 8},
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_run_goes_out_to_llama_cpp_and_comes_back_equal(runs, tmp_path, kind):
    run = runs("llama", **WRITTEN[kind])
    pytest.importorskip("xllamacpp", reason="llama.cpp itself")
    assert export(run.folder, "gguf", tmp_path / "m.gguf", check=True).largest_difference < 1e-4
    back = regard.import_model(tmp_path / "m.gguf", run=tmp_path / "back")
    assert back.recipe.model == replace(run.recipe.model, feedforward=run.recipe.model.inner)
    ours, theirs = run.model.state_dict(), back.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    lines = ["The ship left the harbour.", "Où vont-ils ?"]
    assert [back.tokenizer.encode(line) for line in lines] == [run.tokenizer.encode(line) for line in lines]
    ours, theirs = ([one.log_probability for one in each.score(lines)] for each in (run, back))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_gpt_goes_out_and_comes_back_equal(runs, tmp_path, capsys):
    run = runs("gpt")
    export(run.folder, "gguf", tmp_path / "m.gguf")
    back = regard.import_model(tmp_path / "m.gguf", run=tmp_path / "back")
    said = capsys.readouterr().err
    assert f"imported {back.parameters:,} parameters of a gpt2 model" in said
    assert "each text begins" not in said  # with the token that ends it
    ours, theirs = run.model.state_dict(), back.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_fewer_bits_are_kept_where_they_are_asked_for(tmp_path, capsys):
    write(tmp_path / "m.gguf", values(), stored(Kind.Q8_0))
    run = regard.import_model(tmp_path / "m.gguf", run=tmp_path / "run", precision="bf16")
    assert "each text begins with <s> and ends with </s>" in capsys.readouterr().err
    assert {weight.dtype for weight in run.model.parameters()} == {torch.bfloat16}
    assert run.generate("ab", max_tokens=4, temperature=0).startswith("ab")


# -- files from strangers ----------------------------------------------------------------------------------------------


def refused(path):
    with pytest.raises(RegardError) as error:
        import_file(path, path.parent / "run")
    assert not (path.parent / "run").exists()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500 + len(str(path))
    assert str(error.value).count(str(path)) <= 1
    return str(error.value)


def array(kind, count):
    return struct.pack("<IIQ", ARRAY, kind, count)


@pytest.mark.parametrize("changes, said", [
    ({"general__architecture": "mamba"}, "is a mamba model; from GGUF files, Regard imports only llama, qwen2, gpt2"),
    ({"general__architecture": 3}, "is a 3 model"),
    ({"general__architecture": None}, "is a None model"),
    ({"general__alignment": 0}, "alignment"),
    ({"general__alignment": "32"}, "alignment"),
    ({"llama__block_count": 2}, "has no tensor layers.1."),
    ({"llama__block_count": 10**9}, "num_hidden_layers"),
    ({"llama__block_count": "one"}, "must be a whole number"),
    ({"llama__embedding_length": 128}, "shape"),
    ({"llama__attention__head_count": 0}, "num_attention_heads must be at least 1, not 0"),
    ({"llama__attention__head_count": 3}, "heads"),
    ({"llama__attention__head_count": [4, 4]}, "must be a whole number"),
    ({"llama__attention__head_count_kv": 0}, "num_key_value_heads must be at least 1, not 0"),
    ({"llama__expert_count": 8}, "a mixture of 8 experts"),
    ({"llama__expert_count": "many " * 10000}, "a mixture of many many many many  experts"),
    ({"tokenizer__ggml__tokens": ["<unk>", "$A", *TOKENS[2:]]}, "has the boundary token '$A'"),
    ({"tokenizer__ggml__tokens": ["<unk>", "<s>", "a:b", *TOKENS[3:]]}, "has the boundary token 'a:b'"),
    ({"tokenizer__ggml__tokens": [*TOKENS[:-1], "x" * 5000]}, "has a token of more than 4096 characters"),
    ({"llama__attention__sliding_window": 128}, "covers only a sliding window"),
    ({"llama__attention__key_length": 64, "llama__attention__value_length": 32}, "differ in width"),
    ({"llama__rope__scaling__type": "yarn"}, "default, linear and llama3"),
    ({"llama__rope__freq_base": float("nan")}, "rope_theta must be a positive number"),
    ({"llama__attention__layer_norm_rms_epsilon": -1.0}, "rms_norm_eps must be a positive number"),
    ({"tokenizer__ggml__tokens": None}, "has no tokenizer"),
    ({"tokenizer__ggml__tokens": [1, 2]}, "has no tokenizer"),
    ({"tokenizer__ggml__tokens": TOKENS[:-1]}, "one number per token"),
    ({"tokenizer__ggml__tokens": [*TOKENS[:-1], "a"]}, "has the token 'a' twice"),
    ({"tokenizer__ggml__scores": ["much"] * len(TOKENS)}, "one number per token"),
    ({"tokenizer__ggml__scores": [float("nan")] * len(TOKENS)}, "tokenizer.ggml.scores in "),
    ({"tokenizer__ggml__token_type": 3}, "one number per token"),
    ({"tokenizer__ggml__model": "bert"}, "has a bert tokenizer"),
    ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "tekken"}, "the rules 'tekken'"),
    ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__merges": [1]}, "merges that are not strings"),
    ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__merges": ["a z"]}, "a merge of tokens"),
    ({"tokenizer__ggml__eos_token_id": 10**6}, "are not among them"),
    ({"tokenizer__ggml__eos_token_id": None}, "are not among them"),
    ({"tokenizer__chat_template": 5}, "is not a string of at most"),
    ({"odd": struct.pack("<I", 77)}, "unknown type 77"),
    ({"odd": array(ARRAY, 1) + array(UINT32, 0)}, "unknown type 9"),
    ({"odd": array(UINT64, 10**15)}, "declares 1000000000000000 items"),
    ({"odd": array(UINT64, 10**6)}, "ends inside its header"),
    ({"odd": struct.pack("<IQ", STRING, 10**9)}, "a string of 1000000000 bytes"),
    ({"odd": struct.pack("<IQ", STRING, 10**7)}, "ends inside its header"),
])  # fmt: skip
def test_a_header_that_regard_cannot_use_is_one_sentence(tmp_path, changes, said):
    assert said in refused(write(tmp_path / "m.gguf", values(**changes), stored()))


@pytest.mark.parametrize("more, said", [
    ({"version": 1}, "of version 1"),
    ({"version": 2**31}, "of version"),
    ({"counts": (2**62, 3)}, "declares 4611686018427387904 tensors"),
    ({"counts": (1, 2**62)}, "declares 4611686018427387904 values"),
    ({"counts": (60000, 16)}, "it is damaged"),
])  # fmt: skip
def test_counts_are_checked_before_anything_is_made(tmp_path, more, said):
    assert said in refused(write(tmp_path / "m.gguf", values(), stored(), **more))


@pytest.mark.parametrize("name, tensor, said", [
    ("blk.0.attn_q.weight", ((2**40, 2**40), 0, b""), "ends before its tensor"),
    ("blk.0.attn_q.weight", ((256, 0), 0, b""), "ends before its tensor"),
    ("blk.0.attn_q.weight", ((256,) * 5, 0, b""), "of 5 axes"),
    ("blk.0.attn_q.weight", ((256, 256), 200, bytes(65536)), "of type 200"),
    ("blk.0.attn_q.weight", ((256, 256), int(Kind.I32), bytes(4 * 65536)), "Dequantization for I32"),
    ("blk.0.attn_q.weight", ((250, 256), 0, bytes(4 * 250 * 256)), "not divisible by the number of heads"),
    ("blk.0.ffn_up.weight", ((512, 128), 0, bytes(4 * 512 * 128)), "has the shape [512, 128], not [512, 256]"),
    ("blk.0.ffn_up.weight", ((512, 256), 0, b"\xff" * (4 * 512 * 256)), "infinite or NaN"),
    ("blk.0.strange.weight", ((4,), 0, bytes(16)), "which a Llama does not have"),
    ("x" * 10000, ((4,), 0, bytes(16)), "contains the tensor .xxx"),
    ("rope_freqs.weight", ((32,), int(Kind.I32), bytes(128)), "with an unexpected shape or type"),
    ("rope_freqs.weight", ((2, 16), 0, bytes(128)), "with an unexpected shape or type"),
    ("rope_freqs.weight", ((32,), 0, bytes(128)), "are not the rotary scales of Llama 3.1"),
    ("rope_freqs.weight", ((32,), 0, b"\xff" * 128), "are not the rotary scales of Llama 3.1"),
])  # fmt: skip
def test_a_tensor_that_is_not_what_it_claims_is_refused(tmp_path, name, tensor, said):
    assert said in refused(write(tmp_path / "m.gguf", values(), {**stored(), name: tensor}))


def test_numbers_are_in_the_file_once(tmp_path):
    """A small file whose tensors all lie in the same place could fill any memory."""
    tensors = {name: (shape, kind, content[:4]) for name, (shape, kind, content) in stored().items()}
    path = write(tmp_path / "m.gguf", values(), tensors)
    path.write_bytes(path.read_bytes() + bytes(4 * WIDTH * INNER))
    assert "has overlapping tensors" in refused(path)


def test_many_special_tokens_take_bounded_time(tmp_path):
    many = [f"t{number}" for number in range(1 << 18)]
    tokens = {"tokenizer__ggml__tokens": [*TOKENS, *many], "tokenizer__ggml__token_type": [*TYPES, *[3] * len(many)]}
    tokens["tokenizer__ggml__scores"] = [0.0] * (len(TOKENS) + len(many))
    assert "has more than 131072 special tokens" in refused(write(tmp_path / "m.gguf", values(**tokens), stored()))


def test_tokens_are_found_in_a_text_before_which_a_space_is_put(tmp_path):
    run = regard.import_model(write(tmp_path / "m.gguf", values(), stored()), run=tmp_path / "run")
    trace = run.trace("ab a é")
    assert ["ab a é"[start:end] for start, end in trace.spans[1:6]] == ["", "ab", " a", " ", "é"]


def header(path, facts, tensors, **more):
    """The header of a file as it is read, without a model made from it."""
    write(path, facts, tensors, **more)
    return gguf_reading._header(HeaderReader(path, path.read_bytes()))


def test_limits_of_a_header_are_what_they_say(tmp_path, monkeypatch):
    one, path = {"t": ((2, 3), 0, bytes(24))}, tmp_path / "m.gguf"
    found, tensors = header(path, {"a": "text", "b": [1, 2], "c": 1.5}, one, version=2)
    assert found == {"a": "text", "b": [1, 2], "c": 1.5}
    assert {name: (shape, kind) for name, (shape, kind, _) in tensors.items()} == {"t": ([2, 3], 0)}
    assert tensors["t"][2] == path.stat().st_size - 32  # which ends with the tensor, padded to 32 bytes
    for align, fits in ((1, True), (1 << 16, True), ((1 << 16) + 1, False)):
        if fits:
            write(path, {"general.alignment": align}, one)
            reader = HeaderReader(path, path.read_bytes() + bytes(1 << 17))
            assert gguf_reading._header(reader)[1]["t"][2] == -(-reader.place // align) * align
        else:
            with pytest.raises(RegardError, match="has an invalid alignment"):
                header(path, {"general.alignment": align}, one)
    for axes, fits in (((6,), True), ((1, 1, 2, 3), True), ((1, 1, 1, 2, 3), False), ((), False)):
        if fits:
            assert header(path, {}, {"t": (axes, 0, bytes(24))})[1]["t"][0] == list(axes)
        else:
            with pytest.raises(RegardError, match=f"has a tensor of {len(axes)} axes"):
                header(path, {}, {"t": (axes, 0, bytes(24))})
    monkeypatch.setattr(gguf_reading, "MAX_STRING", 4)
    assert header(path, {"abcd": "efgh"}, one)[0] == {"abcd": "efgh"}
    with pytest.raises(RegardError, match="has a string of 5 bytes in its header"):
        header(path, {"abcd": "efghi"}, one)
    monkeypatch.setattr(gguf_reading, "MAX_VALUES", 2)
    monkeypatch.setattr(gguf_reading, "MAX_ITEMS", 3)
    monkeypatch.setattr(gguf_reading, "MAX_TENSORS", 1)
    assert header(path, {"a": [1, 2, 3], "b": 1}, one)[0] == {"a": [1, 2, 3], "b": 1}
    for facts, tensors, said in (
        ({"a": 1, "b": 1, "c": 1}, one, "declares 3 values, but Regard reads at most 2"),
        ({"a": [1, 2, 3, 4]}, one, "declares 4 items of a list, but Regard reads at most 3"),
        ({}, {"t": one["t"], "u": one["t"]}, "declares 2 tensors, but Regard reads at most 1"),
    ):
        with pytest.raises(RegardError, match=said):
            header(path, facts, tensors)


NUMBERS = {"UINT8": ("B", 255), "INT8": ("b", -128), "UINT16": ("H", 65535), "INT16": ("h", -32768),
           "UINT32": ("I", 2**32 - 1), "INT32": ("i", -(2**31)), "FLOAT32": ("f", 0.5),
           "BOOL": ("?", True), "UINT64": ("Q", 2**64 - 1),
           "INT64": ("q", -(2**63)), "FLOAT64": ("d", 0.1)}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_each_type_of_the_format_is_read_alone_and_in_a_list(name, tmp_path):
    (form, value), kind = NUMBERS[name], int(gguf.GGUFValueType[name])
    one = struct.pack("<I", kind) + struct.pack(f"<{form}", value)
    some = array(kind, 2) + struct.pack(f"<2{form}", value, value)
    found, _ = header(tmp_path / "m.gguf", {"one": one, "some": some, "after": "text"}, {})
    assert found == {"one": value, "some": [value, value], "after": "text"}
    assert type(found["one"]) is type(value)


def test_a_tensor_may_end_where_its_file_ends(tmp_path):
    path = write(tmp_path / "m.gguf", {}, {"t": ((2, 4), 0, bytes(32))})
    whole = path.read_bytes()
    assert gguf_reading._header(HeaderReader(path, whole))[1]["t"][0] == [2, 4]
    with pytest.raises(RegardError, match="ends before its tensor t"):
        gguf_reading._header(HeaderReader(path, whole[:-1]))
    quantized = write(path, {}, {"t": ((1, 32), int(Kind.Q8_0), bytes(34))}).read_bytes()
    assert gguf_reading._header(HeaderReader(path, quantized))[1]["t"][0] == [1, 32]
    odd = write(path, {}, {"t": ((1, 33), int(Kind.Q8_0), bytes(68))}).read_bytes()
    with pytest.raises(RegardError, match="ends before its tensor t"):
        gguf_reading._header(HeaderReader(path, odd))


@pytest.mark.parametrize(("given", "begin", "eos"), [
    ({}, 1, 2), ({"tokenizer.ggml.bos_token_id": None}, 2, 2), ({"tokenizer.ggml.bos_token_id": "1"}, 2, 2),
])  # fmt: skip
def test_a_text_begins_as_it_ends_where_nothing_else_is_said(given, begin, eos, tmp_path):
    made = gguf_reading._tokenizer(tmp_path, values() | given, TOKENS, len(TOKENS))
    assert (made.begin, made.eos, made.unk) == (begin, eos, 0)
    plain = gguf_reading._tokenizer(
        tmp_path, values() | {"tokenizer.ggml.add_space_prefix": False}, TOKENS, len(TOKENS)
    )
    assert plain.encode("ab") == [TOKENS.index("ab")]
    assert made.encode("ab") != plain.encode("ab")


def test_a_file_cut_anywhere_is_one_sentence(tmp_path):
    whole = write(tmp_path / "m.gguf", values(), stored()).read_bytes()
    for size in (4, 5, 8, 23, 24, 31, 100, 1000, 5000, len(whole) // 2, len(whole) - 33):
        (tmp_path / "m.gguf").write_bytes(whole[:size])
        assert "it is damaged; copy it again" in refused(tmp_path / "m.gguf")


def test_bytes_changed_anywhere_in_the_header_never_crash(tmp_path):
    """Either the change does not matter, or the file is refused in one sentence."""
    whole = write(tmp_path / "m.gguf", values(tokenizer__chat_template=None), stored()).read_bytes()
    draw = np.random.default_rng(1)
    for number in range(60):
        broken = bytearray(whole)
        for place in draw.integers(4, 9000, 3):
            broken[place] = draw.integers(0, 256)
        (tmp_path / "m.gguf").write_bytes(broken)
        with suppress(RegardError):
            import_file(tmp_path / "m.gguf", tmp_path / f"run{number}")
