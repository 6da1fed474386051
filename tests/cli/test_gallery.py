"""The models that come with Regard: they open by name from any folder, score as recorded, and are never written to."""

import json
import shutil
import zlib

import pytest

import regard as package
from regard.base.errors import RegardError
from regard.runs.store.facts import read_facts
from regard.runs.store.gallery import GALLERY, find_run, gallery_names
from regard.web.lab.runs_folder import RunsFolder
from regard.web.lab.trash import Trash

NAMES = gallery_names()
TRANSLATORS = [name for name in NAMES if "translations" in read_facts(find_run(GALLERY.parent / name))["gallery"]]
MAX_WHEEL_BYTES = 4_000_000  # compressed
LEAST_BLEU = 94
BLEU_TOLERANCE = 0.5  # a tie in the search may go the other way on another machine
TOLERANCE = 1e-3  # relative, of a score: sums differ in their last digits between machines


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every test runs in an empty folder, and the gallery is the same after it, down to each file's time."""

    def state():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in GALLERY.rglob("*")}

    monkeypatch.chdir(tmp_path)
    before = state()
    yield
    assert state() == before


def recorded(name):
    return read_facts(GALLERY.parent / name)["gallery"]


def test_the_gallery_has_language_models_and_translators_and_nothing_that_only_training_needs():
    assert {"gallery/ngram", "gallery/lstm", "gallery/gpt", *TRANSLATORS} == set(NAMES)
    assert TRANSLATORS == ["gallery/bahdanau", "gallery/transformer"]
    files = {path.name for path in GALLERY.rglob("*") if path.is_file()}
    assert files == {"model.safetensors", "recipe.toml", "run.json", "tokenizer.json"}


def test_the_gallery_adds_at_most_four_megabytes_to_the_wheel():
    assert sum(len(zlib.compress(path.read_bytes())) for path in GALLERY.rglob("*") if path.is_file()) < MAX_WHEEL_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_model_scores_as_recorded_and_nothing_is_written(regard, tmp_path, name):
    code, out, errors = regard("evaluate", name, "--json")
    assert code == 0, errors
    score = json.loads(out)
    before = recorded(name)["score"]
    assert score.keys() >= before.keys()
    assert score["perplexity"] == pytest.approx(before["perplexity"], rel=TOLERANCE)
    if name in TRANSLATORS:
        assert score["bleu"]["score"] == pytest.approx(before["bleu"]["score"], abs=BLEU_TOLERANCE)
        assert score["bleu"]["score"] > LEAST_BLEU
    assert list(tmp_path.iterdir()) == []


def test_the_neural_models_have_learned_more_than_the_counts():
    bits = {name: recorded(name)["score"]["bits_per_character"] for name in set(NAMES) - set(TRANSLATORS)}
    assert max(bits, key=bits.get) == "gallery/ngram"


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_translates_ten_held_out_sentences_as_recorded(name):
    run = package.load(name, package.TranslationRun, device="cpu")
    sources, translations = zip(*recorded(name)["translations"], strict=True)
    assert len(sources) == 10
    assert list(sources) == [source for source, _ in run.pairs(None, "test")][:10]
    same = [run.translate(source) == translation for source, translation in zip(sources, translations, strict=True)]
    assert sum(same) >= 9  # rounding on another machine may turn one near tie of the search round


def test_one_s_own_folder_of_that_name_wins(regard, tmp_path):
    shutil.copytree(GALLERY / "ngram", tmp_path / "gallery" / "gpt")
    assert package.load("gallery/gpt").recipe.system == "ngram"
    assert package.load("gallery/lstm").recipe.system == "lstm"
    assert RunsFolder(tmp_path).run("gallery/gpt") == tmp_path.resolve() / "gallery" / "gpt"
    assert regard("runs", "remove", "gallery/gpt", "--yes")[0] == 0
    assert package.load("gallery/gpt").recipe.system == "gpt"


@pytest.mark.parametrize(
    "words",
    [("resume", "gallery/gpt"), ("runs", "rename", "gallery/gpt", "mine"), ("runs", "remove", "gallery/gpt", "--yes")],
)
def test_what_would_change_a_model_is_refused(wrong, words):
    assert "gallery/gpt comes with Regard and is read-only" in wrong(*words)


def test_they_are_listed_apart(regard, wrong, tmp_path):
    assert "`regard runs gallery`" in wrong("runs")
    shutil.copytree(GALLERY / "ngram", tmp_path / "runs" / "mine")
    code, out, errors = regard("runs")
    assert code == 0
    assert "gallery/" not in out
    assert all(name in errors for name in NAMES)
    assert [row["run"] for row in json.loads(regard("runs", "--json")[1])] == ["runs/mine"]
    rows = json.loads(regard("runs", "gallery", "--json")[1])
    assert {row["run"] for row in rows} == set(NAMES)
    assert {row["state"] for row in rows} == {"done"}


def test_verbs_take_their_names(regard):
    code, out, errors = regard("inspect", "gallery/gpt", "The cat was hungry.")
    assert code == 0, errors
    assert out.startswith("gpt, language model")
    source = recorded("gallery/transformer")["translations"][0][0]
    translation = package.load("gallery/transformer", package.TranslationRun, device="cpu").translate(source)
    code, out, errors = regard("translate", "gallery/transformer", stdin=source + "\n")
    assert (code, out) == (0, translation + "\n"), errors
    assert regard("runs", "compare", "gallery/gpt", "gallery/lstm")[0] == 0


def test_a_training_starts_from_one(regard, tmp_path):
    (tmp_path / "my.txt").write_text("The cat was hungry.\n" * 5 + "She sings.\n" * 200)
    how = ["--data", "my.txt", "--training.steps", "2", "--training.threads", "1", "--run", "mine"]
    code, _, errors = regard("train", "--from", "gallery/gpt", *how)
    assert code == 0, errors
    assert read_facts(tmp_path / "mine")["ancestors"][0]["run"].endswith("gpt")


@pytest.mark.parametrize("name", ["gallery", "gallery/", "gallery/gpt/", "gallery/../gallery/gpt", "gallery/gpt/kept"])
def test_the_lab_finds_their_exact_names_alone(tmp_path, name):
    folder = RunsFolder(tmp_path)
    assert [run["name"] for run in folder.gallery()] == NAMES
    assert folder.runs() == []
    assert folder.plain_run("gallery/gpt") == GALLERY / "gpt"
    with pytest.raises(RegardError):
        folder.run(name)
    with pytest.raises(RegardError):
        Trash(folder).put("gallery/gpt")
