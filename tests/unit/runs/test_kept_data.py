"""What was found out about a corpus is kept in the cache, and with any cache, or none, the results are the same."""

import shutil

import pytest

from regard import train
from regard.base.locks import try_lock
from regard.runs.compose import compose_recipe
from regard.runs.prepare import open_data
from regard.text import cached_text as kept_text
from regard.text.cached_text import cached_for_text
from regard.text.pairs import open_pairs
from regard.text.split import draw_pairs
from regard.text.tokenizers.tokenizer import Tokenizer

SENTENCES = [f"The {thing} costs {price} coins." for price in range(40) for thing in ("café", "house", "old boat")]
SAID = [f"{thing} für {price} Münzen" for price in range(40) for thing in ("Das Café", "Das Haus", "Ein Boot")]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, in which even little is worth keeping."""
    monkeypatch.setattr(kept_text, "MIN_CACHED_CHARACTERS", 0)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    rows = {
        "text": SENTENCES,
        "pairs": [f"{one}\t{other}" for one, other in zip(SENTENCES, SAID)],
        "labels": [f"{line}\t{number % 3}" for number, line in enumerate(SENTENCES)],
    }
    for name, lines in rows.items():
        (folder / name).mkdir()
        suffix = "txt" if name == "text" else "tsv"
        for split, some in (("train", lines), ("valid", lines[::7])):
            (folder / name / f"{split}.{suffix}").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    return folder


def facts(opened, folder):
    """Everything a training takes from its data, as bytes."""
    data = opened.cut()
    found = {"recipe": opened.recipe.toml(), "origin": data.origin, "sentence": data.sentence}
    for side in {data.tokenizers.target, data.tokenizers.source} - {None}:
        side.save(folder / "tokenizer.json")
        found[f"{side is data.tokenizers.target} tokenizer"] = (folder / "tokenizer.json").read_bytes()
    cuts = data.arrays if hasattr(data, "arrays") else {"train": data.train, "valid": data.valid}
    for name, cut in cuts.items():
        arrays = {key: value for key, value in vars(cut).items() if hasattr(value, "dtype")}
        found[name] = {key: (str(value.dtype), value.tobytes()) for key, value in arrays.items()}
        found[f"{name} counts"] = {key: value for key, value in vars(cut).items() if key not in arrays}
    return found


def damage_nothing(path):
    pass


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def put_a_folder_there(path):
    path.unlink()
    path.mkdir()


DAMAGES = (damage_nothing, cut_short, empty, flip_a_bit, put_a_folder_there)


@pytest.mark.parametrize(
    "system, corpus, settings",
    [
        ("gpt", "text", {"tokenizer": "bpe"}),
        ("gpt", "text", {"tokenizer": "word", "vocabulary": 40}),
        ("gpt", "text", {"tokenizer": "char", "normalise": "nfkc"}),
        ("transformer", "pairs", {}),
        ("transformer", "pairs", {"joint": False, "longest": 20}),
        ("transformer", "pairs", {"tokenizer": "word", "longest": 5, "truncate": True}),
        ("classifier", "labels", {}),
    ],
)
def test_a_cold_a_warm_a_damaged_and_no_cache_give_the_same_bytes(corpora, cache, tmp_path, system, corpus, settings):
    recipe = compose_recipe(system, data=str(corpora / corpus), size="tiny", settings={"data": settings})
    cold = facts(open_data(recipe), tmp_path)
    made = {path: path.read_bytes() for path in cache.iterdir() if path.suffix in (".tokenizer", ".pairs", ".overlap")}
    assert {path.suffix for path in made} == {".tokenizer", ".overlap"} | ({".pairs"} if corpus != "text" else set())
    for damage in DAMAGES:
        for path in made:
            damage(path)
        assert facts(open_data(recipe), tmp_path) == cold
        if damage is put_a_folder_there:
            for path in made:
                path.rmdir()
        else:
            assert {path: path.read_bytes() for path in made} == made
    assert not [path.name for path in cache.iterdir() if path.name.startswith(".")]  # neither locks nor parts
    shutil.rmtree(cache)
    cache.parent.rmdir()
    cache.parent.write_text("no folder")
    assert facts(open_data(recipe), tmp_path) == cold
    assert cache.parent.read_text() == "no folder"


def test_the_second_training_finds_everything_and_gives_the_same_run(corpora, tmp_path, monkeypatch):
    settings = {"model": {"width": 8}, "training": {"steps": 2, "threads": 1, "device": "cpu"}}
    runs = [tmp_path / "cold", tmp_path / "warm"]
    for run in runs:
        train("transformer", data=str(corpora / "pairs"), run=run, size="tiny", settings=settings)
        monkeypatch.setattr(Tokenizer, "train", None)  # would fail if called
        monkeypatch.setattr(Tokenizer, "encode_normalised", None)
        monkeypatch.setattr("regard.text.pairs.count_pair_overlap", None)
        if run is runs[0]:
            whole = {name: (run / name).read_bytes() for name in ("recipe.toml", "tokenizer.json", "model.safetensors")}
    assert {name: (runs[1] / name).read_bytes() for name in whole} == whole


def test_another_text_setting_or_version_is_never_read_from_the_cache(monkeypatch, cache):
    base = {"kind": "bpe", "vocabulary": 300, "normalise": "nfc", "pretokenised": False}
    others = [{}, {"kind": "word"}, {"vocabulary": None}, {"normalise": "none"}, {"pretokenised": True}]

    def learn(checksum="a text", **setting):
        return kept_text.cached_tokenizer(SENTENCES, checksum, None, **base | setting)

    for count, other in enumerate(others, 1):
        learn(**other)
        assert len(list(cache.iterdir())) == count
    learn("another text")
    assert len(list(cache.iterdir())) == len(others) + 1
    learn()
    assert len(list(cache.iterdir())) == len(others) + 1
    for place, value in (("tokenizers.__version__", "0.0"), ("unicodedata.unidata_version", "0.0")):
        monkeypatch.setattr(place, value)
        kept_text._code_digest.cache_clear()
        learn()
    kept_text._code_digest.cache_clear()
    assert len(list(cache.iterdir())) == len(others) + 3


def keep(make):
    return cached_for_text("overlap", None, ("x",), make, bytes, bytes)


def test_while_another_process_writes_the_same_it_is_made_and_not_written(cache):
    assert keep(lambda: b"made") == b"made"
    (path,) = cache.iterdir()
    path.unlink()
    with try_lock(path.with_name(f".{path.name}.lock")):
        assert keep(lambda: b"made") == b"made"
        assert not path.exists()
    assert keep(lambda: b"made") == b"made"
    assert [file.name for file in cache.iterdir()] == [path.name]


def test_what_a_killed_process_left_is_removed_and_an_error_of_the_making_is_raised(cache):
    keep(lambda: b"made")
    (path,) = cache.iterdir()
    path.rename(path.with_name(f".{path.name}.01234567.part"))
    with pytest.raises(ZeroDivisionError):
        keep(lambda: bytes(1 // 0))
    assert keep(lambda: b"made") == b"made"
    assert [file.name for file in cache.iterdir()] == [path.name]


def test_little_text_is_not_kept(cache, monkeypatch):
    monkeypatch.setattr(kept_text, "MIN_CACHED_CHARACTERS", 100)
    for size, files in ((99, 0), (100, 1)):
        cached_for_text("overlap", size, (), lambda: b"made", bytes, bytes)
        assert len(list(cache.iterdir()) if cache.exists() else []) == files


def test_pairs_that_were_drawn_for_the_splits_are_not_drawn_again(cache, tmp_path, monkeypatch):
    file = tmp_path / "mine.tsv"
    file.write_text("".join(f"{one}\t{other}\n" for one, other in zip(SENTENCES, SAID)), encoding="utf-8")
    first = open_pairs(file)
    assert [path.suffix for path in cache.iterdir() if path.suffix == ".split"] == [".split"]
    monkeypatch.setattr("regard.text.pairs.draw_pairs", lambda *sides: draw_pairs(*sides[:2], ("valid",)))
    again = open_pairs(file)
    assert (again.splits, again.notes) == (first.splits, first.notes)
    file.write_text(file.read_text(encoding="utf-8") + "One more.\tNoch eins.\n", encoding="utf-8")
    assert list(open_pairs(file).splits) == ["train", "valid"]  # another text is drawn anew
