"""Runs go out to `transformers`, which computes the same, and come back; its own folders come in."""

import json
import os
import shutil

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers

import regard
from regard.base.errors import RegardError
from regard.base.reading import MAX_JSON_BYTES
from regard.exchange.formats import export, import_file
from regard.exchange.parity import without_parts

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
transformers = pytest.importorskip("transformers", reason="whose folders these are")
LINES = ["The ship left the harbour", "et ils y restent (la mer)", "2 captains: one sea!"]


def out(run, folder, **options):
    return export(run.folder, "huggingface", folder, options={"scores": "no", **options}, check=True)


GPTS = [
    {},
    {"tokenizer": "word", "tied": False, "activation": "relu"},
    {"tokenizer": "char", "bias": False, "scale": 3.0, "feedforward": 40},
    {"tokenizer": "byte", "position": "sinusoid"},
]
TRANSLATORS = [
    {},  # pre-norm
    {"norm": "post"},
    {"norm": "post", "shared": False, "activation": "gelu", "tokenizer": "char"},
    {"tied": False, "tokenizer": "word", "feedforward": 40},
    {"norm": "post", "tied": False},
]
KINDS = [("gpt", one) for one in GPTS] + [("llama", {}), ("llama", {"tied": False, "key_value_heads": 6})]
KINDS += [("transformer", one) for one in TRANSLATORS]


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """A run, its folder and what the check found, made once for each kind."""
    made = {}

    def get(system, settings):
        key = repr((system, settings))
        if key not in made:
            run, folder = runs(system, **settings), tmp_path_factory.mktemp("exported") / "out"
            made[key] = run, folder, out(run, folder)
        return made[key]

    return get


@pytest.mark.parametrize("system, settings", KINDS, ids=str)
def test_transformers_computes_the_same_logits_and_writes_the_same(exported, system, settings):
    _, _, found = exported(system, settings)
    assert found.largest_difference <= 1e-4
    same, total = found.same_text.split()[0:3:2]
    assert same == total != "0"


@pytest.mark.parametrize("system, settings", KINDS, ids=str)
def test_their_tokenizer_cuts_and_joins_text_as_ours(exported, system, settings):
    run, folder, _ = exported(system, settings)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), run.tokenizer
    for text in [
        *LINES,
        "one line\nanother",
        "“quoted” … (so) [it] is",
        "([a, b], .) !? “ ( x",
        "e\u0301tat 12.5 日本",
        "",
    ]:
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == ([*ids, 0] if system == "transformer" else [0, *ids])
        if "\n" not in text:
            assert theirs.decode([0, *ids, 0], skip_special_tokens=True) == ours.decode(ids)
    batch = theirs(LINES, padding=True)
    assert [sum(row) for row in batch["attention_mask"]] == [len(ours.encode(line)) + 1 for line in LINES]


@pytest.mark.parametrize("system, settings", KINDS, ids=str)
def test_what_went_out_comes_back(exported, tmp_path, system, settings):
    run, folder, _ = exported(system, settings)
    back = regard.load(import_file(folder, tmp_path / "back"), device="cpu")
    assert back.tokenizer.tokens == run.tokenizer.tokens
    if system != "transformer":
        ours, theirs = (one.score(LINES) for one in (run, back))
        assert [s.log_probability for s in ours] == pytest.approx([s.log_probability for s in theirs], abs=1e-3)
        assert run.generate("The", temperature=0, max_tokens=20) == back.generate("The", temperature=0, max_tokens=20)
    else:
        assert run.translate(LINES, beam=1) == back.translate(LINES, beam=1)


def test_a_batch_with_padding_is_translated_as_line_by_line(exported):
    run, folder, _ = exported("transformer", {"norm": "post"})
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "MarianMTModel"
    read = tokenizer(LINES, padding=True, return_tensors="pt")
    written = model.generate(**read, num_beams=1, max_new_tokens=12)
    alone = [without_parts(tokenizer.decode(ids, skip_special_tokens=True)) for ids in written]
    ours = [best.text for best, *_ in run.translations(LINES, beam=1, length_penalty=0.0, max_tokens=12)]
    assert alone == ours


def test_pipelines_need_no_network(exported):
    run, folder, _ = exported("gpt", {})
    writer = transformers.pipeline("text-generation", model=str(folder))
    (found,) = writer("The ship", max_new_tokens=9, do_sample=False)
    ours = run.generate("The ship", max_tokens=9, temperature=0, lines=1).removesuffix("\n")
    assert without_parts(found["generated_text"]) == ours
    if "translation" in transformers.pipelines.SUPPORTED_TASKS:  # transformers 5 has no such pipeline
        run, folder, _ = exported("transformer", {})
        translator = transformers.pipeline("translation", model=str(folder))
        (found,) = translator(LINES[0], num_beams=1, max_new_tokens=9)
        ((best, *_),) = run.translations([LINES[0]], beam=1, max_tokens=9)
        assert without_parts(found["translation_text"]) == best.text


def test_a_full_disk_is_said_in_one_sentence_and_nothing_is_left(runs, tmp_path, monkeypatch):
    folder = runs("gpt").folder

    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("regard.training.checkpoint.save_file", full)
    with pytest.raises(RegardError, match="the disk is full"):
        export(folder, "huggingface", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_card_states_data_licence_scores_and_recipe(runs, tmp_path):
    export(runs("gpt").folder, "huggingface", tmp_path / "out", options={"license": "mit"})
    card = (tmp_path / "out/README.md").read_text()
    for said in (
        'license: "mit"',
        "library_name: transformers",
        "harbour",
        "[model]",
        "regard train recipe.toml",
        "was not evaluated",
    ):
        assert said in card


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system, settings, said", [
    ("gpt", {"position": "rotary", "width": 24, "heads": 2}, "model.position rotary acts inside attention"),
    ("gpt", {"position": "alibi"}, "--model.position learned"),
    ("gpt", {"norm": "post"}, "train with --model.norm pre"),
    ("gpt", {"combine": "concatenate", "tied": False}, "--model.combine add"),
    ("transformer", {"position": "learned"}, "--model.position sinusoid"),
    ("transformer", {"joint": False}, "--data.joint true"),
    ("transformer", {"shared": False}, "--model.shared true"),
])  # fmt: skip
def test_a_setting_that_they_do_not_have_is_named_with_what_to_change(runs, tmp_path, system, settings, said):
    run = runs(system, **settings)
    with pytest.raises(RegardError, match=said):
        export(run.folder, "huggingface", tmp_path / "out")
    assert not list(tmp_path.iterdir())


# -- their own folders -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt2(runs, tmp_path_factory):
    """A GPT-2 that their classes made, with a tokenizer whose boundary is the last token, as in GPT-2."""
    folder = tmp_path_factory.mktemp("gpt2") / "random"
    ours = json.loads(runs("gpt").tokenizer.json)["model"]
    tokens = sorted(ours["vocab"], key=ours["vocab"].__getitem__)[1:]
    vocabulary = {token: number for number, token in enumerate([*tokens, "<|endoftext|>"])}
    engine = Engine(models.BPE(vocabulary, [tuple(pair) for pair in ours["merges"]]))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, eos_token="<|endoftext|>")
    last = len(vocabulary) - 1
    config = transformers.GPT2Config(
        vocab_size=len(vocabulary), n_embd=24, n_layer=2, n_head=2, n_positions=40, bos_token_id=last, eos_token_id=last
    )
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_gpt2_of_their_own_gives_its_own_logits_as_a_run(gpt2, tmp_path):
    run = regard.load(import_file(gpt2, tmp_path / "run"), device="cpu")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(gpt2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(gpt2)
    for line in LINES:
        ids = tokenizer(line)["input_ids"]
        assert [token - 1 for token in run.tokenizer.encode(line)] == ids  # the boundary came first
        with torch.no_grad():
            logits = theirs(torch.tensor([[theirs.config.eos_token_id, *ids]])).logits[0]
            ours = run.model(torch.tensor([[0, *run.tokenizer.encode(line)]]))[0][0]
        assert torch.allclose(logits, torch.cat([ours[:, 1:], ours[:, :1]], dim=1), atol=1e-4)


def test_an_imported_run_writes_scores_traces_and_can_be_trained_on(gpt2, tmp_path):
    run = regard.load(import_file(gpt2, tmp_path / "run"), device="cpu")
    assert run.generate("The", max_tokens=3, temperature=0).startswith("The")
    assert run.trace("The ship").tokens
    (tmp_path / "more.txt").write_text("\n".join(["The ship left the harbour.", "One sea, two captains."] * 40))
    tuned = regard.train(
        "gpt",
        data=str(tmp_path / "more.txt"),
        start=run.folder,
        run=tmp_path / "tuned",
        settings={"training": {"steps": 2}},
    )
    assert tuned.tokenizer.tokens == run.tokenizer.tokens
    assert tuned.recipe.size == run.recipe.size == ""  # none of ours
    with pytest.raises(RegardError, match="imported without its text"):
        run.evaluate()
    assert run.evaluate(data=["The ship left."])["tokens"] > 0


def test_an_imported_translator_says_that_it_has_no_pairs(exported, tmp_path):
    _, folder, _ = exported("transformer", {})
    run = regard.load(import_file(folder, tmp_path / "run"), device="cpu")
    with pytest.raises(RegardError, match="imported without its pairs"):
        run.evaluate()
    found = run.evaluate(data=[("The ship", "Das Schiff"), ("One sea", "Ein Meer")])
    assert found["bleu"]["signature"]
    assert "the run was imported" in found["seen_in_training"]


def test_a_marian_of_their_own_comes_in_with_a_tokenizer(runs, tmp_path):
    run = runs("transformer", tokenizer="word")
    size = run.tokenizer.vocabulary
    config = transformers.MarianConfig(
        vocab_size=size, d_model=16, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        encoder_attention_heads=2, decoder_attention_heads=2, activation_function="relu", scale_embedding=False,
        pad_token_id=0, eos_token_id=0, decoder_start_token_id=0, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(2)
    theirs = transformers.MarianMTModel(config).eval()
    theirs.save_pretrained(tmp_path / "marian")
    back = import_file(tmp_path / "marian", tmp_path / "run", run.folder / "tokenizer.json")
    ours = regard.load(back, device="cpu").model
    source, target = torch.randint(1, size, (2, 7)), torch.randint(1, size, (2, 5))
    with torch.no_grad():
        expected = theirs(input_ids=source, decoder_input_ids=target).logits
        assert torch.allclose(expected, ours(target, ours.begin(source))[0], atol=1e-4)


# -- strange and hostile folders ---------------------------------------------------------------------------------------


@pytest.fixture
def copy(gpt2, tmp_path):
    return shutil.copytree(gpt2, tmp_path / "copy")


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def retensor(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refused(folder):
    with pytest.raises(RegardError) as error:
        import_file(folder, folder.parent / "run")
    assert not (folder.parent / "run").exists()
    return str(error.value)


@pytest.mark.parametrize("values, said", [
    ({"model_type": "bert"}, "is a bert folder; Regard imports gpt2"),
    ({"model_type": None}, "Regard imports gpt2"),
    ({"n_layer": 10**12}, "n_layer"),
    ({"n_layer": "2"}, "n_layer must be a whole number"),
    ({"n_layer": 3}, "has no tensor h.2."),
    ({"n_embd": 10**9 * 2}, "shape"),
    ({"n_head": 7}, "must divide"),
    ({"n_head": 0}, "model.heads"),
    ({"n_positions": 10**9}, "shape"),
    ({"n_positions": 10**18}, "model.context must be below"),
    ({"vocab_size": 10**17}, "they do not belong together"),
    ({"vocab_size": 10}, "they do not belong together"),
    ({"activation_function": "gelu"}, "activation_function is 'gelu'"),
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ({"layer_norm_epsilon": 0.1}, "layer_norm_epsilon"),
    ({"resid_pdrop": "much"}, "resid_pdrop must be a rate"),
    ({"eos_token_id": 10**9, "bos_token_id": 10**9}, "are not among them"),
    ({"bos_token_id": 10**9}, "are not among them"),
])  # fmt: skip
def test_a_config_that_regard_cannot_be_is_one_sentence(copy, values, said):
    change(copy, **values)
    assert said in refused(copy)


def test_tensors_that_are_missing_strange_misshapen_or_nan_are_refused(copy):
    retensor(copy, lambda tensors: tensors.update({"transformer.extra": torch.zeros(2)}))
    assert "contains the tensor extra, which a GPT-2 does not have" in refused(copy)
    retensor(copy, lambda tensors: tensors.pop("transformer.extra"))
    retensor(copy, lambda tensors: tensors["transformer.h.1.ln_1.bias"].fill_(torch.nan))
    assert "infinite or NaN" in refused(copy)
    retensor(copy, lambda tensors: tensors.update({"transformer.h.1.ln_1.bias": torch.zeros(3)}))
    assert "has the shape [3], not [24]" in refused(copy)
    retensor(copy, lambda tensors: tensors.pop("transformer.h.1.ln_1.bias"))
    assert "has no tensor h.1.ln_1.bias" in refused(copy)


def test_damaged_files_are_one_sentence(copy):
    weights = (copy / "model.safetensors").read_bytes()
    for broken in (b"", weights[:200], (2**62).to_bytes(8, "little") + b"{", weights[:-8]):
        (copy / "model.safetensors").write_bytes(broken)
        assert "cannot be read as safetensors" in refused(copy)
    (copy / "model.safetensors").write_bytes(weights)
    for broken in ("[]", "{", "[" * 100_000):
        (copy / "tokenizer.json").write_text(broken)
        assert "tokenizer.json" in refused(copy)
    (copy / "tokenizer.json").unlink()
    assert "--tokenizer" in refused(copy)
    (copy / "config.json").write_text("nonsense")
    assert "is not a JSON object" in refused(copy)
    os.truncate(copy / "config.json", MAX_JSON_BYTES + 1)
    assert "is larger than 64 MiB, more than Regard accepts" in refused(copy)
    (copy / "config.json").unlink()
    assert "is a folder without config.json" in refused(copy)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
def test_a_pipe_in_the_place_of_weights_is_refused_and_not_waited_for(copy):
    (copy / "model.safetensors").unlink()
    os.mkfifo(copy / "model.safetensors")
    assert "is a pipe or a device" in refused(copy)


def test_a_pickle_is_never_opened(copy):
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    assert "a pickle" in refused(copy)


def test_shards_are_read_and_an_index_cannot_reach_outside(copy):
    tensors = load_file(copy / "model.safetensors")
    names = sorted(tensors)
    (copy / "model.safetensors").unlink()
    index = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, copy / file)
        index |= dict.fromkeys(part, file)
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert regard.load(import_file(copy, copy.parent / "sharded")).generate("The", max_tokens=2)
    for name in ("../outside.safetensors", "/etc/passwd", "a/b.safetensors", "model.bin", ".safetensors", ""):
        (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {names[0]: name}}))
        assert "not a safetensors file in this folder" in refused(copy)
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "missing.safetensors"}}))
    assert "is missing" in refused(copy)


def test_another_kind_of_tokenizer_is_named(copy):
    Engine(models.WordPiece({"a": 0, "<|endoftext|>": 1}, unk_token="a")).save(str(copy / "tokenizer.json"))
    change(copy, eos_token_id=1, bos_token_id=1)
    assert "is a WordPiece tokenizer" in refused(copy)
