"""CTranslate2 computes what Regard computes, from a specification that was filled weight by weight."""

import dataclasses
import json
import re
import subprocess
import sys
from itertools import product
from types import SimpleNamespace

import ctranslate2
import numpy as np
import pytest
import torch

import regard
from regard.base.errors import RegardError
from regard.cli.translate import translate as translate_verb
from regard.decoding.beam import Beam
from regard.decoding.translate import longest_translation, translate
from regard.exchange import ctranslate2_model
from regard.exchange.ctranslate2_engine import CTranslate2Engine, symbols
from regard.exchange.engines import open_engine
from regard.exchange.formats import export

TRANSFORMERS = [
    {},
    {"norm": "post", "activation": "gelu", "shared": False, "joint": False},
    {"position": "rotary", "width": 32, "heads": 4},
    {"position": "learned", "tied": False, "tokenizer": "word"},
    {"position": "index", "combine": "concatenate", "tied": False, "norm": "post"},
]
GPTS = [
    {},
    {"position": "rotary", "norm": "post", "width": 32, "heads": 4},
    {"position": "alibi", "width": 32, "heads": 4, "bias": False},
    {"position": "sine", "tied": False, "activation": "relu"},
    {"position": "none", "tokenizer": "char"},
    {"position": "one-hot", "context": 20, "combine": "concatenate", "tied": False},
]
SOURCES = ["The ship left.", "Où vont-ils ?", "Three ships; 2 captains", "the sea", "at dawn, and nobody saw it go."]


def opened(run, out, **options):
    out.mkdir()
    ctranslate2_model.write(run, out, **options)
    return CTranslate2Engine(out, symbols(run.source_tokenizer), symbols(run.tokenizer))


@pytest.mark.parametrize("settings", TRANSFORMERS, ids=str)
def test_a_translator_gives_every_token_the_same_probability(runs, tmp_path, settings):
    run = runs("transformer", **settings)
    engine = opened(run, tmp_path / "out")
    sources = [run.source_tokenizer.encode(line) for line in SOURCES]
    targets = [run.tokenizer.encode(line) for line in reversed(SOURCES)]
    ours = ctranslate2_model.pair_losses(run.model, sources, targets, 0)
    for loss, theirs in zip(ours, engine.score(sources, targets), strict=True):
        np.testing.assert_allclose(-loss, theirs, atol=1e-4)


@pytest.mark.parametrize("settings", GPTS, ids=str)
def test_a_language_model_gives_the_same_logits(runs, tmp_path, settings):
    run = runs("gpt", **settings)
    (tmp_path / "out").mkdir()
    ctranslate2_model.write(run, tmp_path / "out")
    parity = ctranslate2_model.check(run, tmp_path / "out")
    assert parity.largest_difference < 1e-4
    assert re.fullmatch(r"(\d+) of \1 most probable tokens", parity.same_text)


def inclined(run, how_much):
    """The run's model, moved towards <eos> at every step, or away from it."""
    with torch.no_grad():
        run.model.finish.bias.add_(how_much * run.model.embedding.table.weight[0])
    return run


def test_a_translation_that_would_end_at_once_has_exactly_the_least_tokens(runs, tmp_path):
    run = inclined(runs("transformer"), 1000)
    sources = [run.source_tokenizer.encode(line) for line in SOURCES]
    for engine in (None, opened(run, tmp_path / "out")):
        for width, least in product((1, 3), (0, 1, 2, 3, 6)):
            for best, *_ in translate(run.model, sources, eos=0, beam=Beam(width), min_tokens=least, engine=engine):
                assert len(best.tokens) == max(least, 1)
                assert best.finished
                assert best.tokens.index(0) == len(best.tokens) - 1


def test_a_translation_that_would_never_end_has_exactly_the_most_tokens(runs, tmp_path):
    run = inclined(runs("transformer"), -1000)
    sources = [run.source_tokenizer.encode(line) for line in SOURCES]
    for engine in (None, opened(run, tmp_path / "out")):
        for width, most in product((1, 3), (None, 1, 3, 8)):
            found = translate(run.model, sources, eos=0, beam=Beam(width), max_tokens=most, engine=engine)
            for source, (best, *_) in zip(sources, found, strict=True):
                assert len(best.tokens) == (most or longest_translation(len(source)))
                assert not best.finished
                assert 0 not in best.tokens


@pytest.mark.parametrize("settings", [{}, {"position": "rotary", "width": 32, "heads": 4}], ids=str)
def test_greedy_searches_agree_in_tokens_and_scores(runs, tmp_path, settings):
    run = inclined(runs("transformer", **settings), -30)  # enough not to end at once
    sources = [run.source_tokenizer.encode(line) for line in SOURCES]
    engine = opened(run, tmp_path / "out")
    for penalty in (0.0, 0.5, 1.0):
        ours, theirs = (
            [best for best, *_ in translate(run.model, sources, eos=0, beam=Beam(1, penalty), engine=one, max_tokens=7)]
            for one in (None, engine)
        )
        for one, other in zip(ours, theirs, strict=True):
            assert len(one.tokens) > 1
            assert one.tokens == other.tokens
            assert other.log_probability == pytest.approx(one.log_probability, abs=1e-3)
            assert other.score == pytest.approx(one.score, abs=1e-3)


def test_hypotheses_come_best_first_and_those_that_were_cut_off_come_last(runs, tmp_path):
    run = runs("transformer")
    engine = opened(run, tmp_path / "out")
    sources = [run.source_tokenizer.encode(line) for line in SOURCES]
    for found in translate(run.model, sources, eos=0, beam=Beam(4, n_best=3), engine=engine, max_tokens=6):
        assert len(found) == 3
        order = [(not one.finished, -one.score) for one in found]
        assert order == sorted(order)


def test_pytorch_keeps_its_threads(runs, tmp_path):
    """CTranslate2 sets the number for everything that uses OpenMP."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        opened(runs("transformer"), tmp_path / "out")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_exporting_leaves_the_weights_as_they_were(runs, tmp_path):
    run = runs("transformer")
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    opened(run, tmp_path / "out", quantization="int8")
    assert all(torch.equal(weight, before[name]) for name, weight in run.model.state_dict().items())


def test_eight_bits_are_smaller_and_close(runs, tmp_path):
    run = runs("transformer", width=64, heads=4)
    sizes = {}
    for kind in ("float32", "int8"):
        opened(run, tmp_path / kind, quantization=kind)
        sizes[kind] = (tmp_path / kind / "model.bin").stat().st_size
    assert sizes["int8"] < 0.6 * sizes["float32"]
    parity = ctranslate2_model.check(run, tmp_path / "int8", quantization="int8")
    assert 1e-4 < parity.largest_difference < 3  # untrained: no weight is small beside others
    assert parity.program == f"CTranslate2 {ctranslate2.__version__}, int8"


@pytest.mark.parametrize(("system", "settings"), [("transformer", {}), ("gpt", {"tokenizer": "word"})])
def test_the_program_on_its_page_runs_as_it_stands(runs, tmp_path, system, settings):
    run = runs(system, **settings)
    assert export(run.folder, "ctranslate2", tmp_path / "out") is None
    (program,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.S)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "out", capture_output=True, text=True, check=True
    )
    text = done.stdout.removesuffix("\n")
    if system == "transformer":
        engine = CTranslate2Engine(tmp_path / "out", symbols(run.source_tokenizer), symbols(run.tokenizer))
        source = run.source_tokenizer.encode("A sentence to translate.")
        ((best,),) = translate(run.model, [source], eos=0, beam=Beam(5), engine=engine, max_tokens=256)
        assert text == run.tokenizer.decode(best.text_tokens)


def test_an_engine_is_converted_once_and_translates_all_that_a_run_can_show(runs, monkeypatch):
    run = regard.load(runs("transformer").folder, device="cpu")
    run.searcher = open_engine("ctranslate2", run)
    monkeypatch.setattr(ctranslate2_model, "save", None)  # a second conversion would fail
    assert open_engine("ctranslate2", run) is not None
    (found,) = run.translations(["The ship left."], beam=Beam(3, n_best=2), alignment=True, attention=True)
    assert len(found) == 2
    assert {"cross/0", "self/0"} <= found[0].attention.keys()
    assert found[0].alignment is not None
    assert run.translate("The ship left.") == run.translate(["The ship left."])[0]


def test_changed_weights_are_converted_anew(runs):
    run = regard.load(runs("transformer").folder, device="cpu")
    before = ctranslate2_model._digest(run, "float32")
    with torch.no_grad():
        run.model.finish.bias[0] += 1
    assert ctranslate2_model._digest(run, "float32") != before
    assert ctranslate2_model._digest(run, "int8") != ctranslate2_model._digest(run, "float32")


def test_whatever_changes_a_model_is_in_the_digest_of_its_conversion(runs, monkeypatch):
    run = regard.load(runs("transformer").folder, device="cpu")
    seen = [ctranslate2_model._digest(run, "float32")]
    assert ctranslate2_model._digest(run, "float32") == seen[0]
    recipe, other = run.recipe, runs("transformer", tokenizer="word").tokenizer
    for name, value in (
        ("recipe", dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, norm="post"))),
        ("recipe", dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, longest=7))),
        ("source_tokenizer", other),
        ("tokenizer", other),
    ):
        before = getattr(run, name)
        setattr(run, name, value)
        seen.append(ctranslate2_model._digest(run, "float32"))
        setattr(run, name, before)
    monkeypatch.setattr(ctranslate2_model.ctranslate2, "__version__", "0")
    seen.append(ctranslate2_model._digest(run, "float32"))
    assert len(set(seen)) == len(seen)


def test_both_translate_the_held_out_pairs_and_are_scored_by_their_references(runs, tmp_path, monkeypatch):
    run = regard.load(runs("transformer").folder, device="cpu")
    opened(run, tmp_path / "out")
    pairs, asked = SimpleNamespace(sources=SOURCES[:3], targets=["a", "b", "c"]), []
    monkeypatch.setattr(run, "chosen", lambda *_: (SimpleNamespace(splits={"test": pairs}), "test"))
    monkeypatch.setattr(ctranslate2_model, "bleu", lambda *both: asked.append(both) or 10.126 * len(asked))
    found = ctranslate2_model.check(run, tmp_path / "out")
    assert found.same_text == "3 of 3 translations, beam 5; BLEU 10.13 in Regard, 20.25 in CTranslate2"
    written = [text.strip() for text in run.translate(SOURCES[:3])]
    assert asked == [(written, ["a", "b", "c"])] * 2
    pairs.sources, pairs.targets = [f"s{n}" for n in range(250)], [f"t{n}" for n in range(250)]
    assert ctranslate2_model._held_out(run) == (pairs.sources[:200], pairs.targets[:200])


@pytest.mark.parametrize(("longest", "rows"), [(100, 1024), (504, 1024), (505, 1026)])
def test_a_specification_has_positions_for_twice_the_longest_sentence(longest, rows, runs):
    run = runs("transformer")
    data = dataclasses.replace(run.recipe.data, longest=longest)
    given = SimpleNamespace(
        model=run.model, recipe=dataclasses.replace(run.recipe, data=data), tokenizer=run.tokenizer,
        source_tokenizer=run.source_tokenizer,
    )  # fmt: skip
    spec = ctranslate2_model.specify(given)
    for side in (spec.encoder, spec.decoder):
        assert side.position_encodings.encodings.shape == (rows, 24)


@pytest.mark.parametrize(
    ("tokenizer", "unknown", "program"), [("word", "<unk>", ", disable_unk=True"), ("bpe", "<eos>", "")]
)
def test_a_folder_names_its_special_words(tokenizer, unknown, program, runs, tmp_path):
    run = runs("gpt", tokenizer=tokenizer)
    (tmp_path / "out").mkdir()
    ctranslate2_model.write(run, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == ("<eos>", "<eos>", unknown)
    assert config["layer_norm_epsilon"] == 1e-5
    readme = (tmp_path / "out" / "README.md").read_text()
    assert f"max_length=30{program})" in readme
    for joint, file in ((True, "tokenizer.json"), (False, "tokenizer.source.json")):
        assert f'from_file("{file}"), Tokenizer.from_file("tokenizer.json")' in ctranslate2_model.example(
            runs("transformer", tokenizer=tokenizer, joint=joint)
        )


@pytest.mark.parametrize(
    ("system", "settings", "said"),
    [
        ("transformer", {"position": "alibi"}, "model.position alibi"),
        ("gpt", {"position": "alibi", "heads": 3}, "model.heads 3"),
        ("llama", {}, "--to ctranslate2 supports only transformer, gpt"),
    ],
)
def test_what_it_cannot_express_is_refused_by_name(runs, tmp_path, system, settings, said):
    with pytest.raises(RegardError, match=said):
        export(runs(system, **settings).folder, "ctranslate2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wrong_options_are_refused(runs, tmp_path):
    folder = runs("gpt").folder
    with pytest.raises(RegardError, match=r"--quantization must be .*int8"):
        export(folder, "ctranslate2", tmp_path / "out", options={"quantization": "int3"})
    with pytest.raises(RegardError, match=r"--engine must be .*ctranslate2-int8"):
        open_engine("marian", runs("transformer"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": 1.0}, "--engine ctranslate2 only searches: leave --temperature out"),
        ({"device": "cuda"}, "--engine ctranslate2 runs on the CPU: leave --device out"),
    ],
)
def test_what_the_engine_does_not_do_is_said(runs, options, said):
    with pytest.raises(RegardError, match=said):
        translate_verb(runs("transformer").folder, engine="ctranslate2", **options)
    with pytest.raises(RegardError, match=r"supports only transformers, but .* is a seq2seq"):
        open_engine("ctranslate2", runs("seq2seq", layers=1, width=8, embedding=8))


def test_from_a_file_to_a_file(runs, tmp_path):
    run = regard.load(runs("transformer").folder, device="cpu")
    (tmp_path / "in.txt").write_text("The ship left.\n\nthe sea\n", "utf-8")
    translate_verb(run.folder, engine="ctranslate2", source=tmp_path / "in.txt", out=tmp_path / "out.txt")
    run.searcher = open_engine("ctranslate2", run)
    assert (tmp_path / "out.txt").read_text("utf-8").splitlines() == run.translate(["The ship left.", "", "the sea"])


def test_without_the_package_one_sentence_says_what_to_install(runs, monkeypatch):
    monkeypatch.delitem(sys.modules, "regard.exchange.ctranslate2_model")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delattr("regard.exchange.ctranslate2_model", raising=False)
    with pytest.raises(RegardError, match=r"pip install 'regard\[ctranslate2\]'"):
        open_engine("ctranslate2", runs("transformer"))
