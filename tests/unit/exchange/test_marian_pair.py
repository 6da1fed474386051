"""Folders as OPUS-MT publishes them: <pad> begins a target, and each side has a SentencePiece model."""

import json
import os
import time

import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.exchange.formats import export, import_file
from regard.exchange.marian_tokenizers import _side
from regard.exchange.sentencepiece_file import read_pieces

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
transformers = pytest.importorskip("transformers", reason="whose folders these are")
sentencepiece = pytest.importorskip("sentencepiece", reason="which cuts the text")
SOURCES = [
    "The ship left the harbour at dawn.",
    "They go home, and they stay there.",
    "Who watches the sea? 2 captains!",
]
TARGETS = ["Das Schiff verließ den Hafen früh.", "Sie gehen heim und bleiben dort.", "Wer sieht das Meer?"]
CODE = ">>deu<<"


def train(path, lines, size):
    with path.open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 5), model_writer=stream, vocab_size=size, model_type="unigram",
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def save(folder, *, lacking=0, **changes):
    """A random Marian with a pair of tokenizers; `lacking`: pieces of the target that vocab.json does not list."""
    folder.mkdir()
    sides = train(folder / "source.spm", SOURCES, 90), train(folder / "target.spm", TARGETS, 90)
    names = [[side.id_to_piece(n) for n in range(side.get_piece_size()) if not side.is_control(n)] for side in sides]
    names[1] = names[1][: len(names[1]) - lacking]
    tokens = [
        "</s>",
        "<unk>",
        CODE,
        *dict.fromkeys(name for side in names for name in side if name != "<unk>"),
        "<pad>",
    ]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    pad = len(tokens) - 1
    settings = {
        "vocab_size": pad + 1, "decoder_vocab_size": pad + 1, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "activation_function": "swish", "scale_embedding": True, "pad_token_id": pad, "eos_token_id": 0,
        "decoder_start_token_id": pad, "max_position_embeddings": 64, "static_position_embeddings": True,
        "forced_eos_token_id": 0, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, **changes,
    }  # fmt: skip
    torch.manual_seed(4)
    model = transformers.MarianMTModel(transformers.MarianConfig(**settings)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.add_(torch.randn_like(weight) * 0.2)
        model.model.decoder.embed_tokens.weight[pad] = torch.randn(16) * 0.3  # theirs is zero, and could hide a mistake
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    json_config = {"source_lang": "en", "target_lang": "de", "model_max_length": 64, "separate_vocabs": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(json_config))
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def get(**settings):
        key = repr(settings)
        if key not in made:
            place = tmp_path_factory.mktemp("marian")
            theirs = save(place / "theirs", **settings)
            run = regard.load(import_file(place / "theirs", place / "run"), device="cpu")
            tokenizer = transformers.MarianTokenizer.from_pretrained(place / "theirs")
            made[key] = theirs, tokenizer, run
        return made[key]

    return get


KINDS = [{}, {"lacking": 5}, {"scale_embedding": False, "activation_function": "relu"},
         {"share_encoder_decoder_embeddings": False}]  # fmt: skip


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_probabilities_of_translations_are_theirs(folders, settings):
    theirs, tokenizer, run = folders(**settings)
    names = tokenizer.get_vocab()
    rows = torch.tensor([names.get(name, -1) for name in map(spelling, run.tokenizer._symbols)])
    for source, target in zip([*SOURCES, f"{CODE} {SOURCES[0]}", "strange: 日本 ë"], [*TARGETS, *TARGETS]):
        read = tokenizer(source, return_tensors="pt")
        ours = [*run.source_tokenizer.encode(source), run.source_tokenizer.eos]
        spelled = [*map(spelling, run.source_tokenizer._symbols)]
        assert [names.get(spelled[one], 1) for one in ours] == read["input_ids"][0].tolist()
        labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
        begun = torch.cat([torch.tensor([[theirs.config.decoder_start_token_id]]), labels[:, :-1]], dim=1)
        with torch.no_grad():
            expected = theirs(**read, decoder_input_ids=begun).logits[0].log_softmax(-1)
            written = torch.tensor([[0, *run.tokenizer.encode(target)]])
            found = run.model(written, run.model.begin(torch.tensor([ours])))[0][0].log_softmax(-1)
        there = rows >= 0
        assert float((found[:, there] - expected[:, rows[there]]).abs().max()) <= 1e-5
        assert float(found[:, ~there].exp().sum()) == 0.0


def spelling(symbol):
    return symbol.removeprefix("\ue000")


def test_greedy_translations_are_theirs(folders):
    theirs, tokenizer, run = folders()
    unwritten = [number for name, number in tokenizer.get_vocab().items() if name in hidden(run)]
    for source in SOURCES:
        read = tokenizer(source, return_tensors="pt")
        written = theirs.generate(
            **read, num_beams=1, do_sample=False, max_new_tokens=12, forced_eos_token_id=None, suppress_tokens=unwritten
        )
        expected = tokenizer.decode(written[0], skip_special_tokens=True)
        ((best, *_),) = run.translations([source], beam=1, max_tokens=12)
        assert best.text == expected.strip()


def hidden(run):
    return {spelling(run.tokenizer._symbols[number]) for number in run.forbidden}


def test_a_pair_is_scored_traced_and_trained_further(folders, tmp_path):
    _, _, run = folders()
    trace = run.trace(SOURCES[0], TARGETS[0])
    assert trace.tokens
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS)) * 20
    (tmp_path / "pairs.tsv").write_text(pairs)
    settings = {"training": {"steps": 40, "learning_rate": 0.01}}
    tuned = regard.train(
        "transformer", data=str(tmp_path / "pairs.tsv"), start=run.folder, run=tmp_path / "tuned", settings=settings
    )
    before, after = (sum(one.log_probability for one in each.score([*zip(SOURCES, TARGETS)])) for each in (run, tuned))
    assert after > before + 10


def test_ctranslate2_computes_the_same(folders, tmp_path):
    pytest.importorskip("ctranslate2", reason="which reads what was written")
    _, _, run = folders()
    found = export(run.folder, "ctranslate2", tmp_path / "out", check=True)
    assert found.largest_difference < 1e-3


# -- strange folders ---------------------------------------------------------------------------------------------------


def refused(folder):
    with pytest.raises(RegardError) as error:
        import_file(folder, folder.parent / "run")
    assert not (folder.parent / "run").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_what_does_not_fit_is_one_sentence(tmp_path):
    save(tmp_path / "m")
    config, names = tmp_path / "m/config.json", tmp_path / "m/vocab.json"
    whole, listed = config.read_text(), json.loads(names.read_text())
    for values, said in (
        ({"decoder_start_token_id": 10**9}, "which are not tokens"),
        ({"eos_token_id": 3}, "eos_token_id is not 0"),
        ({"decoder_vocab_size": 3}, "decoder_vocab_size"),
        ({"activation_function": "tanh"}, "activation_function is 'tanh'"),
        ({"static_position_embeddings": False}, "static_position_embeddings is False"),
        ({"model_type": "t5"}, "learned relative-position biases"),
    ):
        change(config, **values)
        assert said in refused(tmp_path / "m")
        config.write_text(whole)
    for broken in (listed | {"</s>": 10**9}, listed | {"extra": 1}, listed | {"</s>": "0"}, {"a": 0}):
        names.write_text(json.dumps(broken))
        assert "does not have exactly one token for each of the model's" in refused(tmp_path / "m")
    names.write_text(json.dumps({"</S>" if name == "</s>" else name: number for name, number in listed.items()}))
    assert "lacks </s>" in refused(tmp_path / "m")
    names.write_text(json.dumps(listed))
    (tmp_path / "m/target.spm").write_bytes(b"nothing")
    assert "target.spm is not a SentencePiece model" in refused(tmp_path / "m")
    (tmp_path / "m/target.spm").unlink()
    assert "--tokenizer" in refused(tmp_path / "m")


def test_a_large_vocabulary_is_sorted_into_sides_in_a_moment(tmp_path):
    save(tmp_path / "m")
    ids = json.loads((tmp_path / "m/vocab.json").read_text())
    ids |= {f"piece{number}": number for number in range(len(ids), 60_000)}
    began = time.process_time()
    side = _side(read_pieces(tmp_path / "m/target.spm"), ids, others=ids)
    assert time.process_time() - began < 15  # not the square of it
    assert side.tokenizer.vocabulary > 59_000
