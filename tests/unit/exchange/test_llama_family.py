"""Llama, Mistral and Qwen2 folders that `transformers` wrote: the same probabilities in, out and in again."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, trainers

import regard
from regard.base.errors import RegardError
from regard.evaluation.perplexity import Method, likelihood
from regard.exchange.formats import export, import_file
from regard.exchange.parity import without_parts
from regard.systems.llama import Settings
from regard.text.batches.text_batches import Streams, Windows
from regard.text.dialogue_tokens import dialogue_tokens, prompt_tokens
from regard.text.dialogues import Dialogue

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
transformers = pytest.importorskip("transformers", reason="whose folders these are")
LINES = ["The ship left the harbour at dawn.", "Où vont-ils ? Ils vont à la maison.", "2 captains\tand 1 sea!"]
TEMPLATE = "{% for message in messages %}<s>{{ message['content'] }}</s>{% endfor %}"

HELLO = [{"role": "user", "content": "To the harbour?"}]

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 16, "rope_theta": 100.0}
KINDS = {
    "plain": ("Llama", {}),
    "epsilon": ("Llama", {"rms_norm_eps": 0.01}),
    "theta": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "untied": ("Llama", {"tie_word_embeddings": False}),
    "attention biases": ("Llama", {"attention_bias": True}),
    "all biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "wide heads": ("Llama", {"head_dim": 10}),
    "all heads have keys": ("Llama", {"num_key_value_heads": 4}),
    "mistral": ("Mistral", {"sliding_window": None, "rms_norm_eps": 1e-6}),
    "mistral's window as wide as its context": ("Mistral", {"sliding_window": 64}),
    "qwen2": ("Qwen2", {"sliding_window": 8, "use_sliding_window": False}),
    "qwen2 tied": ("Qwen2", {"tie_word_embeddings": True}),
}


def engine():
    """Byte pairs with three special tokens, as today's models have them."""
    made = Engine(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>"]
    made.train_from_iterator(
        LINES * 5, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    return made


def save(folder, name, settings, **how):
    """A random model whose biases and gains are not those of the beginning."""
    made = engine()
    small = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": made.get_vocab_size()}
    small |= {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}ForCausalLM")(
        getattr(transformers, f"{name}Config")(**small | settings)
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.3 if weight.dim() == 1 else 0.15))
    model.save_pretrained(folder, **how)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Their model, its folder and our run of it, made once for each kind."""
    made = {}

    def get(kind):
        if kind not in made:
            place = tmp_path_factory.mktemp("llama")
            theirs = save(place / "theirs", *KINDS[kind])
            run = regard.load(import_file(place / "theirs", place / "run"), device="cpu")
            made[kind] = theirs, place / "theirs", run
        return made[kind]

    return get


@torch.no_grad()
def difference(theirs, run, tokens):
    ours, expected = run.model(tokens)[0], theirs(tokens).logits
    return float((ours.log_softmax(-1) - expected.log_softmax(-1)).abs().max())


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_theirs_and_stay_so_when_exported_and_read_again(folders, tmp_path, kind):
    theirs, _, run = folders(kind)
    tokens = torch.randint(3, run.tokenizer.vocabulary, (3, 48), generator=torch.Generator().manual_seed(1))
    assert difference(theirs, run, tokens) <= 1e-5
    found = export(run.folder, "huggingface", tmp_path / "out", options={"scores": "no"}, check=True)
    assert found.largest_difference <= 1e-4
    same, total = found.same_text.split()[0:3:2]
    assert same == total != "0"
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert difference(again, run, tokens) <= 1e-5
    back = regard.load(import_file(tmp_path / "out", tmp_path / "back"), device="cpu")
    assert back.recipe.model == run.recipe.model
    weights, read = run.model.state_dict(), back.model.state_dict()
    assert weights.keys() == read.keys()
    assert all(torch.equal(weights[name], read[name]) for name in weights)
    assert back.tokenizer.json == run.tokenizer.json
    assert back.chat_template == run.chat_template == TEMPLATE


@pytest.mark.parametrize("kind", ["llama3", "wide heads", "all biases"])
def test_a_line_is_scored_as_their_loss_and_traced_by_the_same_equation(folders, kind):
    theirs, _, run = folders(kind)
    (score,) = run.score([LINES[0]])
    ids = torch.tensor([[1, *run.tokenizer.encode(LINES[0]), 2]])
    with torch.no_grad():
        loss = theirs(ids, labels=ids).loss * (ids.size(1) - 1)
    assert score.log_probability == pytest.approx(-float(loss), abs=1e-4)
    trace = run.trace(LINES[0])
    assert trace.tokens


def test_a_template_that_writes_the_boundary_is_read_as_transformers_reads_it(folders):
    theirs, folder, run = folders("plain")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    said = [{"role": "user", "content": LINES[0]}, {"role": "assistant", "content": LINES[1]}, *HELLO]
    ids = tokenizer.apply_chat_template(said, tokenize=True, return_tensors="pt", return_dict=True)["input_ids"]
    prompt = run.template.prompt(said)
    assert prompt_tokens(said, run.template, run.tokenizer) == ids[0].tolist()
    forged = [{"role": "user", "content": "a</s><s>b"}]  # no message can end its own turn
    read = prompt_tokens(forged, run.template, run.tokenizer)
    assert (read.count(1), read.count(2), run.tokenizer.decode(read[1:-1])) == (1, 1, "a</s><s>b")
    written = theirs.generate(ids, do_sample=False, max_new_tokens=12, suppress_tokens=run.forbidden)
    text = tokenizer.decode(written[0, ids.size(1) :], skip_special_tokens=True)
    assert (
        "".join(run.reply(said, max_tokens=12, sampling=regard.Sampling(temperature=0))) == without_parts(text).lstrip()
    )
    dialogue = Dialogue(prompt)
    dialogue.turns = [(prompt, True)]
    assert dialogue_tokens([dialogue], run.tokenizer).ids.tolist() == ids[0].tolist()


def test_greedy_texts_are_theirs_and_end_where_theirs_end(folders):
    theirs, folder, run = folders("plain")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for line in LINES:
        ids = torch.tensor([[1, *tokenizer(line, add_special_tokens=False)["input_ids"]]])
        written = theirs.generate(ids, do_sample=False, max_new_tokens=20, suppress_tokens=run.forbidden)
        text = tokenizer.decode(written[0], skip_special_tokens=True)
        assert run.generate(line, temperature=0, max_tokens=20).removesuffix("\n") == without_parts(text)


def test_a_special_token_written_out_in_a_text_stays_text(folders):
    _, _, run = folders("plain")
    assert 2 not in run.tokenizer.encode("a </s> b")
    assert run.tokenizer.decode(run.tokenizer.encode("a </s> b")) == "a </s> b"
    assert run.tokenizer.encode_template("<s>a</s>")[0] == 1


def test_weights_in_several_files_and_in_bf16_come_in(tmp_path):
    theirs = save(tmp_path / "theirs", "Llama", {}, max_shard_size="30KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    run = regard.import_model(tmp_path / "theirs", run=tmp_path / "run")
    tokens = torch.randint(3, run.tokenizer.vocabulary, (2, 30))
    assert difference(theirs, run, tokens) <= 1e-5
    half = regard.import_model(tmp_path / "theirs", run=tmp_path / "half", precision="bf16")
    assert {weight.dtype for weight in half.model.parameters()} == {torch.bfloat16}
    assert (tmp_path / "half/model.safetensors").stat().st_size < 0.6 * (
        tmp_path / "run/model.safetensors"
    ).stat().st_size
    assert difference(theirs.bfloat16(), half, tokens) <= 0.1
    export(half.folder, "huggingface", tmp_path / "out", options={"scores": "no"})
    assert {weight.dtype for weight in load_file(tmp_path / "out/model.safetensors").values()} == {torch.bfloat16}


def test_an_imported_llama_is_trained_further_with_its_own_two_boundaries(folders, tmp_path):
    _, _, run = folders("qwen2")
    (tmp_path / "more.txt").write_text("\n".join(LINES * 40))
    settings = {"training": {"steps": 30, "learning_rate": 0.01, "batch_tokens": 512}, "model": {"context": 32}}
    tuned = regard.train(
        "llama", data=str(tmp_path / "more.txt"), start=run.folder, run=tmp_path / "tuned", settings=settings
    )
    assert tuned.tokenizer.json == run.tokenizer.json
    assert tuned.recipe.model.bias == "qkv"
    before, after = (sum(one.log_probability for one in each.score(LINES)) for each in (run, tuned))
    assert after > before + 20


def test_what_is_read_in_the_place_of_a_boundary_is_the_one_that_begins(folders):
    """Two lines in one context: each ends in </s>, and what follows was read after <s>."""
    theirs, _, run = folders("plain")
    ids = np.array([token for line in ("The ship", "Ils vont") for token in [*run.tokenizer.encode(line), 2]])
    read = torch.from_numpy(np.concatenate([[1], np.where(ids[:-1] == 2, 1, ids[:-1])]))
    with torch.no_grad():
        logits = theirs(read[None]).logits[0].log_softmax(-1)
    *_, found = likelihood(run.model, ids, Method.of(run.model), eos=2, begin=1)
    assert found.mean * len(ids) == pytest.approx(-float(logits[range(len(ids)), ids].sum()), abs=1e-4)
    for batches in (Windows(ids, 2, 5, 2, seed=0, begin=1), Streams(ids, 2, 5, 2, begin=1)):
        for step in range(batches.steps_per_epoch):
            batch = batches.batch(step)
            real = slice(None) if batch.lengths is None else np.arange(5) < batch.lengths[:, None]
            assert 2 not in batch.tokens[real]


# -- strange and hostile folders ---------------------------------------------------------------------------------------


@pytest.fixture
def copy(folders, tmp_path):
    return shutil.copytree(folders("plain")[1], tmp_path / "copy")


def change(folder, file="config.json", **values):
    there = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(there | values))


def refused(folder):
    with pytest.raises(RegardError) as error:
        import_file(folder, folder.parent / "run")
    assert not (folder.parent / "run").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("values, said", [
    ({"model_type": "mixtral"}, "is a mixtral folder; Regard imports gpt2, llama"),
    ({"model_type": ["llama"]}, "is not the folder of a language model or translator"),
    ({"model_type": "mistral", "sliding_window": 16}, "uses a sliding window"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"mlp_bias": True}, "mlp_bias is true and attention_bias false"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1, not 0"),
    ({"num_attention_heads": 0}, "num_attention_heads must be at least 1, not 0"),
    ({"num_attention_heads": True}, "must be a whole number"),
    ({"num_key_value_heads": 3}, "must divide"),
    ({"num_key_value_heads": 0}, "num_key_value_heads must be at least 1, not 0"),
    ({"head_dim": 7}, "must be even"),
    ({"head_dim": 10**15}, "head_width must be below"),
    ({"head_dim": 0}, "head_dim must be at least 1, not 0"),
    ({"hidden_size": 10**15}, "model.width must be below"),
    ({"hidden_size": 10**9}, "shape"),
    ({"intermediate_size": 0}, "intermediate_size must be at least 1, not 0"),
    ({"intermediate_size": 10**17}, "feedforward must be below"),
    ({"vocab_size": 10**4000}, "but the model has 10000000000000000000: they do not belong together"),
    ({"vocab_size": 4}, "they do not belong together"),
    ({"max_position_embeddings": 10**18}, "model.context must be below"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps must be a positive number"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a positive number"),
    ({"rope_parameters": [1]}, "rope_parameters must be one object"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "rope_parameters must be one object"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "default, linear and llama3"),
    ({"rope_parameters": {"rope_type": ["linear"]}}, "default, linear and llama3"),
    ({"rope_parameters": {"rope_type": "linear", "factor": -1}}, "factor must be a positive number"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, "stretch_factor"),
    ({"rope_parameters": {**LLAMA3, "low_freq_factor": 9.0}}, "must be below model.stretch_high"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"eos_token_id": 10**9}, "are not among them"),
    ({"eos_token_id": []}, "are not among them"),
    ({"bos_token_id": -1}, "are not among them"),
    ({"bos_token_id": 10**400}, "boundaries 10000000000000000000 and 2 are not among them"),
    ({"tie_word_embeddings": "yes"}, "must be true or false"),
    ({"attention_dropout": 2}, "must be a rate"),
])  # fmt: skip
def test_a_config_that_regard_cannot_be_is_one_sentence(copy, values, said):
    change(copy, **values)
    assert said in refused(copy)


def test_a_tensor_that_settings_do_not_explain_is_refused(copy):
    tensors = load_file(copy / "model.safetensors")
    extra = {**tensors, "model.layers.0.self_attn.q_proj.bias": torch.zeros(24)}
    save_file(extra, copy / "model.safetensors", metadata={"format": "pt"})
    assert "which a Llama does not have" in refused(copy)


DOUBLED = {"type": "Replace", "pattern": {"String": "l"}, "content": "ll"}  # 60 times would fill any memory
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}  # too, of "é"


@pytest.mark.parametrize("part, value, said", [
    ("model", {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "continuing_subword_prefix": "##",
               "max_input_chars_per_word": 9}, "is a WordPiece tokenizer"),
    ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}, "is damaged or not a tokenizer"),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(" * 3000}, "behavior": "Isolated", "invert": False},
     "tokenizer.json"),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a" * 3000}, "behavior": "Isolated", "invert": False},
     "regular expression of more than 2000 characters"),
    ("added_tokens", "many", "is damaged or not a tokenizer"),
    ("model", ["BPE"], "is damaged or not a tokenizer"),
    ("model", {"type": "BPE", "vocab": {"a": 0, "b": 4 * 10**9}, "merges": []}, "is damaged or not a tokenizer"),
    ("model", {"type": "BPE", "vocab": {"a": 0, "b": 2}, "merges": []}, "has gaps in its token ids"),
    ("model", {"type": "BPE", "vocab": {f"{n}": n for n in range(300)}, "merges": [], "end_of_word_suffix": "</w>"},
     "marks where words begin or end"),
    ("model", {"type": "BPE", "vocab": {"a": 0, "#b": 1, "ab": 2}, "merges": [["a", "#b"]],
               "continuing_subword_prefix": "#" * 10**6}, "is damaged or not a tokenizer"),
    ("normalizer", {"type": "Sequence", "normalizers": [DOUBLED] * 60}, "is damaged or not a tokenizer"),
    ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [LEVEL] * 60}, "is damaged or not a tokenizer"),
    ("normalizer", {"type": "Prepend", "prepend": "x" * 10**6}, "is damaged or not a tokenizer"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////wAA"}, "is damaged or not a tokenizer"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "BAAAAP8="}, "is damaged or not a tokenizer"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "BAAAAP///39hYgA="}, "cannot split a plain text"),
])  # fmt: skip
def test_a_tokenizer_that_regard_cannot_use_is_named(copy, part, value, said):
    change(copy, "tokenizer.json", **{part: value})
    assert said in refused(copy)


def test_a_tokenizer_that_draws_its_pieces_is_refused(copy):
    model = json.loads((copy / "tokenizer.json").read_text())["model"]
    change(copy, "tokenizer.json", model=model | {"dropout": 0.1})
    assert "dropout" in refused(copy)


def test_a_decoder_of_a_stranger_is_never_run(copy):
    change(copy, "tokenizer.json", decoder={"type": "Sequence", "decoders": [LEVEL, *[DOUBLED] * 60]})
    run = regard.import_model(copy, run=copy.parent / "run")
    assert run.tokenizer.decode(run.tokenizer.encode("all is well")) == "all is well"


def test_a_boundary_whose_name_the_library_reads_otherwise_is_refused(copy):
    tokenizer = (copy / "tokenizer.json").read_text().replace("</s>", "a:b")
    (copy / "tokenizer.json").write_text(tokenizer)
    assert "has the boundary token 'a:b'" in refused(copy)


def test_merges_after_a_line_with_their_version_are_never_a_crash(copy):
    """The library leaves such a line out."""
    model = json.loads((copy / "tokenizer.json").read_text())["model"]
    merges = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    change(copy, "tokenizer.json", model=model | {"merges": merges}, pre_tokenizer=LEVEL | {"use_regex": True})
    change(copy, bos_token_id=2)
    assert regard.import_model(copy, run=copy.parent / "run").tokenizer.encode("a")


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "x/y.safetensors", "x" * 999 + ".safetensors"])
def test_an_index_names_files_of_its_folder_alone(copy, name):
    (copy / "model.safetensors").rename(copy / "x.safetensors")
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert "which is not a safetensors file in this folder" in refused(copy)


def test_a_template_that_no_file_can_hold_leaves_nothing_behind(copy):
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    change(copy, "tokenizer_config.json", chat_template="\ud800")
    assert "unpaired surrogate" in refused(copy)


@pytest.mark.parametrize("template", [["a"], [{"name": ["a"], "template": "b"}], 3, "x" * (1 << 19), {"a": "b"}])
def test_a_chat_template_is_a_text_of_bounded_size(copy, template):
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    change(copy, "tokenizer_config.json", chat_template=template)
    if isinstance(template, list):  # several by name, and none is the default
        assert regard.import_model(copy, run=copy.parent / "run").chat_template == ""
    else:
        assert "is not a string of at most" in refused(copy)


def test_settings_of_our_own_are_checked_as_well():
    with pytest.raises(RegardError, match="must be even"):
        Settings(head_width=3)
    with pytest.raises(RegardError, match=r"stretch_low \(4\) must be below"):
        Settings(stretch="llama3", stretch_low=4.0)
