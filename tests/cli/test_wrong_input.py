"""What a user gets wrong: one sentence on stderr, exit code 2, no traceback, and nothing lost."""

import json
import shutil

import pytest


@pytest.fixture
def wrong(regard):
    """Call the command line, expect it to refuse, and return the sentence."""

    def call(*words, stdin=""):
        code, out, errors = regard(*words, stdin=stdin)
        last = errors.strip().split("\n")[-1]
        assert code == 2, (code, out, errors)
        assert last.startswith("regard: ")
        assert "Traceback" not in errors
        return last

    return call


@pytest.fixture
def broken(trained, tmp_path):
    """A copy of a run, to be damaged."""
    return shutil.copytree(trained["lstm"], tmp_path / "broken")


FILES = {
    "empty.txt": b"",
    "one.txt": b"only one line\n",
    "latin.txt": "caf\u00e9\nna\u00efve\n".encode("latin-1"),
    "binary.txt": bytes(range(256)) * 40,
    "blank.txt": b"\n\n\n",
}


@pytest.mark.parametrize("name, said", [
    ("missing.txt", "There is no corpus, file or folder"),
    ("empty.txt", "empty"),
    ("one.txt", "line"),
    ("latin.txt", "not UTF-8"),
    ("binary.txt", ""),
    ("blank.txt", ""),
])  # fmt: skip
@pytest.mark.parametrize("system", ["ngram", "lstm"])
def test_a_text_that_cannot_be_learned_from(wrong, tmp_path, name, said, system):
    if name in FILES:
        (tmp_path / name).write_bytes(FILES[name])
    run = tmp_path / "run"
    assert said in wrong("train", system, "--data", tmp_path / name, "--run", run)
    assert not run.exists()


def test_a_folder_without_training_text(wrong, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "test.txt").write_text("a\nb\n")
    assert "no training file" in wrong("train", "lstm", "--data", tmp_path / "corpus")


@pytest.mark.parametrize("words, said", [
    (["trian"], 'Did you mean "train"'),
    (["train"], "Name a system"),
    (["train", "lsmt"], "did you mean lstm?"),
    (["train", "lstm", "--model.layer", "2"], "did you mean model.layers?"),
    (["train", "lstm", "--model.layers", "two"], "model.layers must be a whole number"),
    (["train", "lstm", "--model.layers", "-1"], "model.layers must be at least 1"),
    (["train", "lstm", "--training.learning-rate", "-1"], "training.learning_rate must be above 0"),
    (["train", "lstm", "--size", "huge"], "size must be one of tiny, small, medium, large"),
    (["train", "lstm", "--budget", "soon"], "neither a time"),
    (["train", "lstm", "--seeed", "3"], "did you mean seed?"),
    (["train", "lstm", "stray"], "Did not expect 'stray'"),
    (["train", "lstm", "--seed", "x"], "--seed"),
    (["train", "lstm", "--data"], "requires an argument"),
    (["train", "gpt", "--model.heads", "3"], "model.heads (3) must divide model.width"),
    (["train", "gpt", "--training.batches", "stream"], "use training.batches windows"),
    (["train", "ngram", "--model.order", "9"], "model.order must be from 1 to 7"),
    (["train", "ngram", "--training.learning-rate", "1"], "counted, not trained"),
    (["train", "lstm", "--data.tokenizer", "bpe", "--data.vocabulary", "10"], "too small"),
    (["train", "missing.toml"], "There is no recipe"),
    (["train", "lstm", "--data", "wikitext2"], "did you mean 'wikitext-2'"),
    (["train", "lstm", "--data", "ptb"], "regard data fetch ptb"),
    (["train", "lstm", "--training.device", "quantum"], "is not available"),
    (["data", "fetch", "nothing"], "There is no download"),
    (["data", "check", "nothing.txt"], "There is no file"),
    (["evaluate", "nowhere"], "There is no run nowhere"),
    (["resume", "nowhere"], "There is no run nowhere"),
    (["generate", "nowhere"], "There is no run nowhere"),
    (["import", "missing.arpa", "--run", "x"], "There is no file"),
])  # fmt: skip
def test_a_wrong_word_on_the_command_line(wrong, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in wrong(*words)
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_that_is_not_toml_or_names_no_system(wrong, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("system = lstm\n")
    assert "not valid TOML" in wrong("train", recipe)
    recipe.write_text("[model]\nlayers = 1\n")
    assert "names no system" in wrong("train", recipe)
    recipe.write_text('system = "lstm"\n[model]\nlayrs = 1\n')
    assert "did you mean model.layers?" in wrong("train", recipe)


def test_a_folder_that_is_taken_is_never_written_into(wrong, trained, text_file, tmp_path):
    before = {path.name: path.read_bytes() for path in trained["lstm"].iterdir()}
    assert "exists already" in wrong("train", "lstm", "--data", text_file, "--run", trained["lstm"])
    assert {path.name: path.read_bytes() for path in trained["lstm"].iterdir()} == before
    (tmp_path / "file").write_text("mine")
    assert "exists already" in wrong("train", "ngram", "--data", text_file, "--run", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_truncated_weights_file(wrong, broken):
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "damaged or was cut short" in wrong("evaluate", broken)
    path = broken / "training.safetensors"
    path.write_bytes(b"")
    assert "damaged or was cut short" in wrong("resume", broken)


def test_weights_of_another_shape(wrong, broken):
    recipe = (broken / "recipe.toml").read_text()
    (broken / "recipe.toml").write_text(recipe.replace("width = 32", "width = 48"))
    assert "do not fit" in wrong("evaluate", broken)


def test_a_run_of_another_version(wrong, broken):
    facts = json.loads((broken / "run.json").read_text())
    (broken / "run.json").write_text(json.dumps({**facts, "format": 99, "regard": "9.1"}))
    assert "was written by Regard 9.1 in run format 99" in wrong("evaluate", broken)
    (broken / "run.json").write_text("{")
    assert "damaged" in wrong("evaluate", broken)
    (broken / "run.json").unlink()
    assert "is not a run" in wrong("evaluate", broken)


def test_a_run_without_its_tokenizer_or_weights(wrong, broken):
    (broken / "model.safetensors").unlink()
    (broken / "training.safetensors").unlink()
    assert "holds no weights" in wrong("evaluate", broken)
    assert "has no checkpoint" in wrong("resume", broken)
    (broken / "tokenizer.json").write_text("{}")
    assert "tokenizer" in wrong("evaluate", broken)


def test_a_text_that_changed_or_went_away_since(wrong, regard, text_file, tmp_path):
    text, run = tmp_path / "my.txt", tmp_path / "run"
    shutil.copy(text_file, text)
    assert regard("train", "lstm", "--data", text, "--run", run, "--size", "tiny", "--training.steps", 2)[0] == 0
    text.write_text(text.read_text() + "One more line.\n")
    assert "has changed since" in wrong("resume", run)
    text.unlink()
    assert "There is no" in wrong("resume", run)
    assert "There is no" in wrong("evaluate", run)


def test_resuming_what_was_counted(wrong, trained):
    assert "is complete" in wrong("resume", trained["ngram"])


@pytest.mark.parametrize("words, said", [
    (["--temperature", "-1"], "--temperature must be at least 0"),
    (["--top-k", "-1"], "--top-k must be at least 0"),
    (["--top-p", "0"], "--top-p must be above 0"),
    (["--max-tokens", "0"], "--max-tokens must be at least 1"),
    (["--weights", "worst"], "--weights must be best or last"),
    (["--device", "quantum"], "is not available"),
    (["--beam", "3", "--max-tokens", "100"], "fewer --max-tokens"),
])  # fmt: skip
def test_a_wrong_option_of_generate(wrong, trained, words, said):
    assert said in wrong("generate", trained["gpt"], *words)


@pytest.mark.parametrize("words, said", [
    (["--split", "dev"], "has no split 'dev'"),
    (["--segment", "100"], "longer than the 64 tokens"),
    (["--overlap", "64"], "--overlap must be"),
    (["--segment", "0"], "--segment"),
    (["--rows", "0"], "--rows must be at least 1"),
])  # fmt: skip
def test_a_wrong_option_of_evaluate(wrong, trained, words, said):
    assert said in wrong("evaluate", trained["gpt"], *words)


def test_input_that_is_not_utf8_is_refused_with_its_line(wrong, trained):
    assert "Line 2 of the input is not UTF-8" in wrong("score", trained["lstm"], stdin=b"fine\nna\xefve\n")


def test_exporting_what_arpa_cannot_hold(wrong, trained, tmp_path):
    assert "ARPA holds n-grams" in wrong("export", trained["lstm"], "--to", "arpa", "--out", tmp_path / "x.arpa")
    assert "--to must be one of arpa" in wrong("export", trained["ngram"], "--to", "srilm", "--out", tmp_path / "x")


def test_a_damaged_arpa_file_is_refused_with_its_line(wrong, tmp_path):
    (tmp_path / "bad.arpa").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-1\t</s>\nnonsense\n")
    assert "line 6" in wrong("import", tmp_path / "bad.arpa", "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()
