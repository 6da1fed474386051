"""What leaves Regard says what it is: files of an archive, the numbers of a card, bytes of a page, words of ARPA."""

import base64
import json
import shutil
import zipfile
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers

from regard.base import reading
from regard.base.errors import RegardError
from regard.exchange import (
    archive,
    arpa,
    foreign_folder,
    formats,
    hf_llama,
    hf_seq2seq,
    hf_tokenizer,
    model_card,
    page_weights,
)
from regard.exchange.page_weights import PageWeights
from regard.runs.store.gallery import GALLERY
from regard.training.metrics import append_metrics

# -- archives --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A model that comes with Regard, with files beside it as a training leaves them."""
    folder = shutil.copytree(GALLERY / "lstm", tmp_path / "run")
    (folder / "kept").mkdir(exist_ok=True)
    for name in ("kept/4.safetensors", "kept/6.safetensors", "training.safetensors"):
        shutil.copy(folder / "model.safetensors", folder / name)
    for name in ("report.html", "notes.txt", "mine.py", "kept/odd.txt", "result.json"):
        (folder / name).write_text("mine")
    return folder


def packed(run, tmp_path, **how):
    out = tmp_path / f"{len(list(tmp_path.iterdir()))}.zip"
    archive.write(run, out, **how)
    with zipfile.ZipFile(out) as found:
        return out, {one.filename: found.read(one) for one in found.infolist()}


def test_an_archive_has_the_files_of_a_run_and_no_others(run, tmp_path):
    everything = {"recipe.toml", "run.json", "tokenizer.json", "model.safetensors", "training.safetensors",
                  "kept/4.safetensors", "kept/6.safetensors", archive.MANIFEST}  # fmt: skip
    everything |= {name for name in ("metrics.jsonl",) if (run / name).exists()}
    _, whole = packed(run, tmp_path)
    assert set(whole) == everything
    _, small = packed(run, tmp_path, training="no")
    assert set(small) == everything - {"training.safetensors", "kept/4.safetensors", "kept/6.safetensors"}
    listed = json.loads(whole[archive.MANIFEST])["files"]
    assert set(listed) == everything - {archive.MANIFEST}
    assert all(listed[name]["bytes"] == len(content) for name, content in whole.items() if name in listed)
    (run / "model.safetensors").unlink()
    assert "training.safetensors" in packed(run, tmp_path, training="no")[1]  # its only weights
    with pytest.raises(RegardError, match="--training must be yes or no"):
        archive.write(run, tmp_path / "x.zip", training="maybe")


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("kept/4.safetensors", True), ("kept/123456789012.safetensors", True), ("mine.py", True), ("run.json", True),
        ("kept/1234567890123.safetensors", False), ("kept/a.safetensors", False), ("kept/../x.py", False),
        ("a/b.py", False), (".lock", False), ("report.html", False), ("run.json.bak", False), ("9.py", False),
        ("a" * 101 + ".py", True), ("a" * 102 + ".py", False), ("x.pyc", False), ("snapshots/4.safetensors", False),
    ],
)  # fmt: skip
def test_only_names_of_a_runs_files_are_unpacked(name, belongs):
    assert bool(archive.NAME.fullmatch(name)) == belongs


def test_texts_of_an_archive_end_where_they_say(run, tmp_path, monkeypatch):
    assert archive.MAX_TEXT_BYTES == 1 << 26
    out, content = packed(run, tmp_path, training="no")
    size = len(content[archive.MANIFEST])
    with zipfile.ZipFile(out) as found:
        monkeypatch.setattr(archive, "MAX_TEXT_BYTES", size)
        assert archive._small(out, found, archive.MANIFEST) == content[archive.MANIFEST]
        monkeypatch.setattr(archive, "MAX_TEXT_BYTES", size - 1)
        with pytest.raises(RegardError, match="is too large"):
            archive._small(out, found, archive.MANIFEST)


# -- cards -----------------------------------------------------------------------------------------------------------

SCORES = {
    "split": "test", "corpus": "phrasebook", "perplexity": 12.3456, "bits_per_character": 1.5, "method": "overlap",
    "bleu": {"score": 30.25, "signature": "nrefs:1|case:mixed"}, "chrf": {"score": 50.5, "signature": "nc:6"},
}  # fmt: skip


def test_a_card_has_each_score_under_its_own_name():
    table = model_card._table(SCORES).splitlines()
    assert table[0] == "On the test split of phrasebook:"
    assert "| BLEU | 30.25 | `nrefs:1\\|case:mixed` |" in table
    assert "| chrF | 50.50 | `nc:6` |" in table
    assert "| perplexity | 12.35 | overlap |" in table
    assert "| bits per character | 1.50 | overlap |" in table
    run = SimpleNamespace(recipe=SimpleNamespace(system="gpt", data=SimpleNamespace(source="en", target="f1")))
    matter = model_card._front_matter(run, "mine", "translation", "mit", SCORES)
    for line in ("license: \"mit\"", "pipeline_tag: translation", "- en", "- \"gpt\"", "- name: \"mine\"",
                 "      split: \"test\"", "      type: \"phrasebook\"", "      value: 30.2500", "      name: \"BLEU\"",
                 "      args: \"nc:6\""):  # fmt: skip
        assert line in matter.splitlines(), line
    assert "- f1" not in matter
    assert "model-index" not in model_card._front_matter(run, "mine", "translation", "mit", {})


def test_a_card_has_the_lowest_validation_loss_with_its_step(tmp_path):
    run = SimpleNamespace(folder=tmp_path)
    assert model_card._validation(run) == ""
    row = {"tokens": 1, "seconds": 1.0, "split": "valid"}
    for step, loss, more in ((100, 2.5, {}), (200, 2.0, {}), (300, 2.25, {}), (400, 1.0, {"split": "train"})):
        append_metrics(tmp_path / "metrics.jsonl", {**row, "step": step, "loss": loss, **more})
    said = model_card._validation(run)
    assert said == "Lowest validation loss in training: 2.0000 nats per token, at step 200."


# -- pages -----------------------------------------------------------------------------------------------------------


def read_back(weights, number):
    block = zlib.decompress(base64.b64decode(weights.packed()), -15)

    def plain(place):
        entry = weights.table[place]
        return np.frombuffer(block, np.dtype(entry["type"]).newbyteorder("<"), entry["count"], entry["offset"])

    entry, found = weights.table[number], plain(number)
    if entry["type"] != "int8":
        return found.astype(np.float64)
    rows = -(-entry["count"] // entry["row"])
    scale, middle = (np.repeat(plain(entry[name]), entry["row"])[: entry["count"]] for name in ("scale", "middle"))
    assert len(plain(entry["scale"])) == rows
    return found * scale.astype(np.float64) + middle


@pytest.mark.parametrize("form", page_weights.FORMATS)
@pytest.mark.parametrize("shape", [(64, 80), (5000,), (page_weights.FEW - 1,), (4, 33, 40)])
def test_numbers_of_a_page_are_near_what_they_were(form, shape):
    array = (np.random.default_rng(0).normal(size=shape) * np.linspace(0.01, 9, shape[-1]) + 0.5).astype(np.float32)
    weights = PageWeights(form)
    back = read_back(weights, weights.add(array)).reshape(shape)
    short = form != "fp32" and array.size >= page_weights.FEW
    kind = {"fp16": "float16", "int8": "int8"}[form] if short else "float32"
    assert weights.table[weights.add(array)]["type"] == kind
    if not short:
        assert np.array_equal(back, array)
    elif form == "fp16":
        assert np.allclose(back, array, rtol=2**-11, atol=1e-7)
    else:
        rows = array.reshape(shape[0], -1) if array.ndim > 1 else None
        reach = np.ptp(rows, axis=1).max() if rows is not None else np.ptp(array)
        assert np.abs(back - array).max() <= reach / 254 * 1.01


def test_an_array_is_on_a_page_once_and_another_of_the_same_bytes_beside_it():
    weights = PageWeights("int8")
    array = np.arange(6000, dtype=np.float32)
    assert weights.add(array) == weights.add(array.copy())
    size = weights.size
    assert weights.add(array.view(np.int32)) != weights.add(array)
    assert weights.size > size
    assert all(entry["offset"] % 8 == 0 for entry in weights.table)
    odd = np.full(5000, np.inf, np.float32)
    assert weights.table[weights.add(odd)]["type"] == "float32"  # what is not finite has no scale
    huge = PageWeights("fp16")
    assert read_back(huge, huge.add(np.full(5000, 1e6, np.float32))).max() == 65504


# -- words -----------------------------------------------------------------------------------------------------------


def test_words_of_arpa_that_mean_something_are_written_otherwise():
    for token in ("<s>", "</s>", "<unk>", "", " ", "\n", "a b", "␠", "␡", "é", "\t\0"):
        word = arpa.escape(token)
        assert arpa.unescape(word) == token
        assert word not in ("", "<s>", "</s>", "<unk>")
        assert not any(sign.isspace() for sign in word)
    assert arpa.spell(["<eos>", "<unk>", "a"]) == ["</s>", "<unk>", "a"]
    assert arpa.spell(["<eos>", "a", "<unk>"]) == ["</s>", "a", "␡<unk>"]  # only the second is the unknown word
    with pytest.raises(RegardError, match="Two tokens of the vocabulary are both 'a'"):
        arpa.spell(["<eos>", "a", "a"])


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_format_that_does_not_fit_names_one_that_does(name, tmp_path):
    form = formats.FORMATS[name]
    if form.systems:
        other = "ngram" if "ngram" not in form.systems else "lstm"
        said = formats._other(name, other, tmp_path)
        assert said.startswith(f"--to {name} supports only {', '.join(form.systems)}, but {tmp_path} is ")
        fitting = said.partition("choose one of ")[2].rstrip(".").split(", ")
        assert name not in fitting
        for one in filter(None, fitting):
            assert not formats.FORMATS[one].systems or other in formats.FORMATS[one].systems


# -- what other programs read ----------------------------------------------------------------------------------------


def facts_of(runs, tmp_path, system, **settings):
    gguf = pytest.importorskip("gguf")
    run = runs(system, **settings)
    formats.export(run.folder, "gguf", tmp_path / "m.gguf")
    return run, {name: one.contents() for name, one in gguf.GGUFReader(tmp_path / "m.gguf").fields.items()}


def test_a_gguf_file_names_every_size_of_its_model(runs, tmp_path):
    run, facts = facts_of(
        runs, tmp_path, "llama", heads=6, key_value_heads=2, stretch="linear", stretch_factor=4.0, theta=5000.0
    )
    settings = run.recipe.model
    assert facts["general.architecture"] == "llama"
    assert facts["general.name"] == run.folder.name
    assert facts["llama.vocab_size"] == run.tokenizer.vocabulary
    assert {name.removeprefix("llama."): facts[name] for name in facts if name.startswith("llama.")} | {
        "attention.layer_norm_rms_epsilon": None, "vocab_size": None,
    } == {
        "context_length": 48, "embedding_length": 24, "block_count": 2, "attention.head_count": 6,
        "feed_forward_length": settings.inner, "attention.head_count_kv": 2, "rope.dimension_count": 4,
        "rope.freq_base": 5000.0, "attention.key_length": 4, "attention.value_length": 4,
        "rope.scaling.type": "linear", "rope.scaling.factor": 4.0,
        "attention.layer_norm_rms_epsilon": None, "vocab_size": None,
    }  # fmt: skip
    assert facts["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(settings.epsilon)
    run, facts = facts_of(runs, tmp_path / "other", "gpt")
    assert facts["general.architecture"] == "gpt2"
    assert facts["gpt2.feed_forward_length"] == 4 * 24
    assert facts["gpt2.attention.layer_norm_epsilon"] == pytest.approx(1e-5)
    assert not any("rope" in name for name in facts)


def test_a_translator_for_ctranslate2_has_both_vocabularies_in_their_order(runs, tmp_path):
    pytest.importorskip("ctranslate2")
    run = runs("transformer", joint=False)
    formats.export(run.folder, "ctranslate2", tmp_path / "out")
    sides = {"source": run.source_tokenizer, "target": run.tokenizer}
    for side, tokenizer in sides.items():
        words = json.loads((tmp_path / "out" / f"{side}_vocabulary.json").read_text(encoding="utf-8"))
        assert len(words) == tokenizer.vocabulary == len(set(words))
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["add_source_eos"] is True
    assert config["decoder_start_token"] == config["eos_token"] == config["bos_token"] == words[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"position": "learned"}, "--model.position sinusoid"), ({"combine": "concatenate"}, "--model.combine add"),
     ({"width": 23}, "an even width"), ({}, "")],
)  # fmt: skip
def test_what_marian_and_pegasus_do_not_have_is_named(change, said):
    settings = SimpleNamespace(**{"position": "sinusoid", "combine": "add", "width": 24} | change)
    if said:
        with pytest.raises(RegardError, match=said):
            hf_seq2seq.check_settings(settings, "Marian")
    else:
        hf_seq2seq.check_settings(settings, "Marian")


@pytest.mark.parametrize(
    ("values", "bias"),
    [({"model_type": "qwen2"}, "qkv"), ({}, "none"), ({"attention_bias": True}, "attention"),
     ({"attention_bias": True, "mlp_bias": True}, "all"), ({"mlp_bias": True}, None)],
)  # fmt: skip
def test_biases_of_a_llama_are_those_of_its_config(values, bias, tmp_path):
    config = foreign_folder.Config(tmp_path / "config.json", values)
    if bias is None:
        with pytest.raises(RegardError, match="mlp_bias is true and attention_bias false"):
            hf_llama._bias(config)
    else:
        assert hf_llama._bias(config) == bias


def test_a_line_end_is_the_boundary_for_a_hugging_face_tokenizer_too(runs):
    run = runs("gpt")
    for source in (False, True):
        files = hf_tokenizer.tokenizer_files(run.tokenizer, source=source, longest=48)
        engine = tokenizers.Tokenizer.from_str(files["tokenizer.json"])
        ids = engine.encode("The ship\nleft").ids
        lines = [run.tokenizer.encode(line) for line in ("The ship", "left")]
        eos = [run.tokenizer.eos]
        assert ids == (lines[0] + eos + lines[1] + eos if source else eos + lines[0] + eos + lines[1])
        assert engine.decode(ids) == "The shipleft"  # the boundary is special, and left out
        both = engine.encode("sea", "calm").ids
        one, other = run.tokenizer.encode("sea"), run.tokenizer.encode("calm")
        assert both == (one + eos + other + eos if source else eos + one + eos + other)


@pytest.mark.parametrize("eos", [-1, 2**31, 2**63, "0", None, True])
def test_a_boundary_that_is_no_token_is_named(eos, runs, tmp_path):
    engine = tokenizers.Tokenizer.from_str(runs("gpt").tokenizer.json)
    config = foreign_folder.Config(tmp_path / "config.json", {"eos_token_id": eos})
    if eos is True:
        assert hf_tokenizer._boundary(engine, config) == engine.id_to_token(1)
    else:
        with pytest.raises(RegardError, match="is not a token of"):
            hf_tokenizer._boundary(engine, config)


def test_a_strangers_json_is_refused_as_anothers(tmp_path):
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(RegardError, match="is not a JSON object: it is damaged; copy the folder again"):
        foreign_folder.read_json(tmp_path / "config.json")
    with open(tmp_path / "config.json", "wb") as stream:
        stream.truncate(reading.MAX_JSON_BYTES + 1)
    with pytest.raises(RegardError) as foreign:
        foreign_folder.read_json(tmp_path / "config.json")
    with pytest.raises(RegardError) as ours:
        reading.read_object(tmp_path / "config.json")
    assert str(foreign.value) != str(ours.value)  # what Regard wrote was never so large
