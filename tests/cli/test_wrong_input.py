"""What a user gets wrong: one sentence on stderr, exit code 2, no traceback, and nothing lost."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from regard.base.digests import with_digest
from regard.base.errors import RegardError
from regard.base.locks import try_lock
from regard.comparison.processes import read_result
from regard.runs import train as fit
from regard.runs.store.lock import BEGINNING, BEGUN, free_folder
from regard.training.checkpoint import load_tensors

GOLDEN = Path(__file__).parents[1] / "golden"


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
    (["trian"], "did you mean train?"),
    (["eval", "runs/x"], "did you mean `regard evaluate`?"),
    (["list"], "did you mean `regard systems`?"),
    (["ls"], "did you mean `regard systems`?"),
    (["fit"], "did you mean `regard train`?"),
    (["predict"], "did you mean `regard generate`?"),
    (["test"], "did you mean `regard evaluate`?"),
    (["data", "fetsh"], "see `regard data --help`"),
    (["translate", "runs/x", "--num-beams", "3"], "did you mean --beam?"),
    (["translate", "runs/x", "--output", "y"], "did you mean --out?"),
    (["translate", "runs/x", "--model", "y"], "give it as the first argument"),
    (["train", "lstm", "--lr", "0.1"], "did you mean --training.learning_rate"),
    (["train", "lstm", "--model.width", "2147483647"], "Reduce model.width, model.layers or data.vocabulary"),
    (["train", "lstm", "--model.layers", "2147483647"], "model.layers must be at least 1 and at most 1000"),
    (["train", "lstm", "--data.vocabulary", "500000000"], "data.vocabulary must be at least 0 and at most 10000000"),
    (["train", "lstm", "--model.forget-bias=-1e308"], "model.forget_bias must be a number of magnitude at most 3.4e"),
    (["train", "lstm", "--model.layers", "9" * 5000], "model.layers must be a whole number"),
    (["train", "lstm", "--seed", "9223372036854775808"], "training.seed must be below 2,147,483,648"),
    (["train"], "Name a system"),
    (["train", "lsmt"], "did you mean lstm?"),
    (["train", "lstm", "--model.layer", "2"], "did you mean model.layers?"),
    (["train", "lstm", "--model.layers", "two"], "model.layers must be a whole number"),
    (["train", "lstm", "--model.layers", "-1"], "model.layers must be at least 1"),
    (["train", "lstm", "--training.learning-rate", "-1"], "training.learning_rate must be above 0"),
    (["train", "lstm", "--size", "huge"], "size must be one of tiny, small, medium, large"),
    (["train", "lstm", "--budget", "soon"], "neither a time"),
    (["train", "lstm", "--budget", "_5"], "neither a time"),
    (["train", "LSTM"], "did you mean lstm?"),
    (["train", "lstm", "--seed", "99999999999999999999999"], "training.seed must be below"),
    (["train", "lstm", "--model.width", "99999999999"], "model.width must be below"),
    (["train", "lstm", "--size", "tiny", "--model.width", "300000"], "gradients and optimizer state alone"),
    (["train", "lstm", "--training.device", "meta"], "is not available"),
    (["evaluate", "x" * 300], "name too long"),
    (["train", "lstm", "--run", "x" * 300], "name too long"),
    (["train", "lstm", "--seeed", "3"], "did you mean --seed?"),
    (["train", "lstm", "stray"], "Unexpected argument 'stray'"),
    (["train", "lstm", "--seed", "x"], "--seed"),
    (["train", "lstm", "--data"], "regard train --data needs a value"),
    (["train", "lstm", "--budget", "-5s"], "regard train --budget needs a value, written `--budget=…`"),
    (["exercise", "check"], "regard exercise check needs FILE"),
    (["train", "gpt", "--model.heads", "3"], "model.heads (3) must divide model.width"),
    (["train", "gpt", "--training.batches", "stream"], "use training.batches windows"),
    (["train", "ngram", "--model.order", "9"], "model.order must be at least 1 and at most 7"),
    (["train", "ngram", "--training.learning-rate", "1"], "trained by counting"),
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


DOCUMENTS = {
    "letter.docx": (b"PK\x03\x04\x14\x00\x06\x00", "an office document"),
    "letter.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document in an older office format"),
    "paper.pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF"),
    "letter.rtf": (b"{\\rtf1\\ansi Dear all}\n", "a Rich Text Format (RTF) document"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_named_as_what_it_is(wrong, tmp_path, name):
    content, what = DOCUMENTS[name]
    (tmp_path / name).write_bytes(content * 20)
    for words in (["train", "ngram", "--data"], ["data", "check"]):
        said = wrong(*words, tmp_path / name)
        assert f"is {what}" in said
        assert "save its text as plain text" in said


def test_a_file_in_the_place_of_a_system_is_seen(wrong, text_file):
    assert f"`regard train lstm --data {text_file}`" in wrong("train", text_file)


def test_a_recipe_that_is_not_toml_or_names_no_system(wrong, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("system = lstm\n")
    assert "not valid TOML" in wrong("train", recipe)
    recipe.write_text("[model]\nlayers = 1\n")
    assert "does not name a system" in wrong("train", recipe)
    recipe.write_text('system = "lstm"\n[model]\nlayrs = 1\n')
    assert "did you mean model.layers?" in wrong("train", recipe)


@pytest.mark.parametrize("text, said", [
    ("x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ("[model]\nlayers = " + "9" * 5000, "a number with thousands of digits"),
    ("[model]\ndropout = " + "9" * 400, "model.dropout must be a number, not 999"),
    ('[data]\ncorpus = "a\\u0000b"', "data.corpus must be text without NUL characters"),
    ("size = []", "size must be one of tiny, small, medium, large, not []"),
    ("size = 0", "size must be one of"),
    ("[model]\nforget_bias = nan", "model.forget_bias must be a number of magnitude at most"),
])  # fmt: skip
def test_a_value_in_a_recipe_that_no_one_would_write(wrong, tmp_path, text, said):
    (tmp_path / "odd.toml").write_text(f'system = "lstm"\n{text}\n', encoding="utf-8")
    assert said in wrong("train", tmp_path / "odd.toml")


def test_a_class_in_a_namespace_package(wrong, tmp_path, monkeypatch):
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "inner" / "mine.py").write_text("class MyCell: pass\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "neither a layer nor a model" in wrong("laws", "outer.inner.mine:MyCell")


@pytest.mark.parametrize("words, said", [
    (["generate", "--beam", str(2**63)], "--beam must be at most"),
    (["evaluate", "--segment", str(2**63)], "--segment must be at most 2147483647"),
    (["evaluate", "--rows", str(2**63)], "--rows must be at most 2147483647"),
])  # fmt: skip
def test_a_number_beyond_63_bits(wrong, trained, words, said):
    assert said in wrong(words[0], trained["lstm"], *words[1:])


def test_ctrl_c_during_an_import_ends_the_process_with_130(process, tmp_path):
    """The signal comes while a module is being imported: no traceback, nothing swallowed, exit code 130."""
    (tmp_path / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")
    done = process("laws", "slow:MyCell", cwd=tmp_path)
    _, errors = done.communicate()
    assert done.returncode == 130
    assert errors.strip() == "regard: interrupted"


def test_ctrl_c_before_the_command_line_is_ready_is_no_traceback(tmp_path):
    """The first import of the command line sends the signal."""
    (tmp_path / "threading.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "regard", "systems"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_taken_is_never_written_into(wrong, trained, text_file, tmp_path):
    before = {path.name: path.read_bytes() for path in trained["lstm"].iterdir()}
    assert "already exists" in wrong("train", "lstm", "--data", text_file, "--run", trained["lstm"])
    assert {path.name: path.read_bytes() for path in trained["lstm"].iterdir()} == before
    (tmp_path / "file").write_text("mine")
    assert "already exists" in wrong("train", "ngram", "--data", text_file, "--run", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_truncated_weights_file(wrong, broken):
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "damaged or truncated" in wrong("evaluate", broken)
    path = broken / "training.safetensors"
    path.write_bytes(b"")
    assert "damaged or truncated" in wrong("resume", broken)


def test_weights_of_another_shape(wrong, broken):
    recipe = (broken / "recipe.toml").read_text()
    (broken / "recipe.toml").write_text(recipe.replace("width = 32", "width = 48"))
    assert "model.width was 32 and is now 48" in wrong("evaluate", broken)
    facts = json.loads((broken / "run.json").read_text())
    del facts["recipe"], facts["blake2b"]
    (broken / "run.json").write_text(json.dumps(with_digest(facts)))
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
    assert "has no weights" in wrong("evaluate", broken)
    assert "has no checkpoint" in wrong("resume", broken)
    (broken / "tokenizer.json").write_text("{}")
    assert "tokenizer" in wrong("evaluate", broken)


def test_a_text_that_changed_or_went_away_since(wrong, regard, text_file, tmp_path):
    text, run = tmp_path / "my.txt", tmp_path / "run"
    shutil.copy(text_file, text)
    assert regard("train", "lstm", "--data", text, "--run", run, "--size", "tiny", "--training.steps", 2)[0] == 0
    text.write_text(text.read_text() + "One more line.\n")
    assert "has changed since" in wrong("resume", run)
    assert "has changed since" in wrong("evaluate", run)  # what was held out may not be any more
    assert regard("evaluate", run, "--data", text)[0] == 0
    text.unlink()
    assert "Regard looked for" in wrong("resume", run)
    assert "Regard looked for" in wrong("evaluate", run)


def test_resuming_what_was_counted(wrong, trained):
    assert "is complete" in wrong("resume", trained["ngram"])


@pytest.mark.parametrize("words, said", [
    (["--temperature", "-1"], "--temperature must be at least 0"),
    (["--top-k", "-1"], "--top-k must be at least 0"),
    (["--top-p", "0"], "--top-p must be above 0"),
    (["--max-tokens", "0"], "--max-tokens must be at least 1"),
    (["--lines", "-1"], "--lines must be at least 0"),
    (["--seed", "-1"], "--seed must be at least 0"),
    (["--seed", "99999999999999999999999"], "--seed must be at least 0 and below"),
    (["--temperature", "inf"], "--temperature must be at least 0"),
    (["--weights", "worst"], "--weights must be best, last, or a step"),
    (["--device", "quantum"], "is not available"),
    (["--beam", "3", "--max-tokens", "100"], "lower --max-tokens"),
])  # fmt: skip
def test_a_wrong_option_of_generate(wrong, trained, words, said):
    assert said in wrong("generate", trained["gpt"], *words)


@pytest.mark.parametrize("words, said", [
    (["--split", "dev"], "has no split 'dev'"),
    (["--split", "all", "--data", "nothing.txt"], "but nothing.txt is not a file"),
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
    assert "--to arpa supports only ngram" in wrong(
        "export", trained["lstm"], "--to", "arpa", "--out", tmp_path / "x.arpa"
    )
    assert "--to must be one of" in wrong("export", trained["ngram"], "--to", "srilm", "--out", tmp_path / "x")
    assert "has no option --quantization" in wrong(
        "export", trained["ngram"], "--to", "arpa", tmp_path / "x", "--quantization", "int8"
    )


def test_a_damaged_arpa_file_is_refused_with_its_line(wrong, tmp_path):
    (tmp_path / "bad.arpa").write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-1\t</s>\nnonsense\n")
    assert "line 6" in wrong("import", tmp_path / "bad.arpa", "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_processes_never_train_in_one_folder(wrong, broken):
    with try_lock(broken / ".lock"):
        assert "Another process is using" in wrong("resume", broken)


def test_a_run_killed_before_it_began_can_be_begun_again(regard, wrong, trained, text_file, tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    for name in ("recipe.toml", "tokenizer.json"):
        shutil.copy(trained["lstm"] / name, half / name)
    assert "is not a run" in wrong("resume", half)
    assert "is not a run" in wrong("train", "ngram", "--data", text_file, "--run", half)  # they may be anyone's
    (half / BEGINNING).write_text("a file of the user's own\n")
    assert "is not a run" in wrong("train", "ngram", "--data", text_file, "--run", half)
    (half / BEGINNING).write_text(BEGUN)
    (half / ".recipe.toml.0123abcd.part").touch()
    assert regard("train", "ngram", "--data", text_file, "--run", half)[0] == 0
    assert {path.name for path in half.iterdir()} == {
        ".lock", "model.safetensors", "recipe.toml", "report.html", "run.json", "tokenizer.json",
    }  # fmt: skip


def test_weights_without_their_run_json_are_not_written_over(wrong, broken, trained, text_file, tmp_path):
    """Neither those of a run that lost it, nor one's own in a folder that never was a run."""
    (broken / "run.json").unlink()
    mine = tmp_path / "mine"
    mine.mkdir()
    shutil.copy(broken / "model.safetensors", mine / "model.safetensors")
    (tmp_path / "small.arpa").write_bytes((GOLDEN / "harbour.3.arpa").read_bytes())
    for folder in (broken, mine):
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        assert "Restore that file from a backup" in wrong("evaluate", folder)
        assert "choose another --run" in wrong("train", "ngram", "--data", text_file, "--run", folder)
        assert "choose another --run" in wrong("import", tmp_path / "small.arpa", "--run", folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_folder_that_becomes_a_run_meanwhile_is_left_alone(monkeypatch, regard, wrong, text_file, tmp_path):
    """Two trainings are asked for one folder: the second looks again once it holds the folder."""
    prepare, first = fit.prepare, []

    def slowly(*words):
        ready = prepare(*words)
        if not first:
            first.append(True)
            assert regard("train", "ngram", "--data", text_file, "--run", tmp_path / "one")[0] == 0
            first.append((tmp_path / "one" / "model.safetensors").read_bytes())
        return ready

    monkeypatch.setattr(fit, "prepare", slowly)
    words = ["train", "ngram", "--model.order", "2", "--data", text_file, "--run", tmp_path / "one"]
    assert "already exists" in wrong(*words)
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == first[1]


def test_each_of_many_starts_gets_a_folder_of_its_own(tmp_path):
    def take(barrier):
        barrier.wait()
        with free_folder(tmp_path / "runs" / "lstm-my") as folder:
            (folder / "mine").touch()
            return folder

    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(take, [barrier] * 8))
    assert len(set(found)) == 8
    with pytest.raises(RegardError), free_folder(tmp_path / "runs" / "lstm-my") as folder:
        raise RegardError("nothing came of it")
    assert not folder.exists()
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="Cannot create the folder"), free_folder(tmp_path / "file" / "run"):
        pass


def test_a_training_that_never_begins_leaves_no_folder(monkeypatch, wrong, text_file, tmp_path):
    def full(*words):
        raise RegardError("The disk is full.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit, "write_folder", full)
    for asked in (["--run", "mine"], []):
        wrong("train", "lstm", "--size", "tiny", "--data", text_file, *asked)
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / BEGINNING).write_text(BEGUN)
    with try_lock(tmp_path / "mine" / ".lock"):  # another process begins there
        assert "Another process" in wrong("train", "lstm", "--size", "tiny", "--data", text_file, "--run", "mine")
        assert len(list((tmp_path / "mine").iterdir())) == 2


def test_a_checkpoint_of_other_layers_is_not_gone_on_with(wrong, broken):
    path = broken / "recipe.toml"
    text = path.read_text(encoding="utf-8")
    for layers in (2, 3):
        path.write_text(re.sub(r"(?m)^layers = \d+", f"layers = {layers}", text), encoding="utf-8")
        assert f"model.layers was 1 and is now {layers}" in wrong("resume", broken)
    facts = json.loads((broken / "run.json").read_text())
    del facts["recipe"], facts["blake2b"]  # a stranger's: it does not say what it was made with
    (broken / "run.json").write_text(json.dumps(with_digest(facts)))
    assert "does not fit its recipe.toml" in wrong("resume", broken)


def test_what_a_kill_left_of_a_save_is_removed_on_resume(regard, broken):
    (broken / ".training.safetensors.0a1b2c3d.part").write_bytes(b"half")
    assert regard("resume", broken)[0] == 0
    assert not list(broken.glob(".*.part"))


def test_fine_tuning_refuses_what_it_would_ignore(wrong, trained, text_file, tmp_path):
    words = ["train", "--data", text_file, "--run", tmp_path / "x", "--from"]
    assert "on both texts together" in wrong(*words, trained["ngram"])
    assert "leave out --size" in wrong(*words, trained["lstm"], "--size", "large")
    assert "leave out --data.tokenizer" in wrong(*words, trained["lstm"], "--data.tokenizer", "word")
    assert "do not fit the weights" in wrong(*words, trained["lstm"], "--model.width", "48")
    assert not (tmp_path / "x").exists()


def test_a_corpus_keeps_its_name_when_a_folder_here_has_the_same(regard, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").mkdir()
    assert regard("train", "ngram", "--data", "copy", "--run", "run")[0] == 0
    assert 'corpus = "copy"' in (tmp_path / "run" / "recipe.toml").read_text()
    assert regard("evaluate", "run")[0] == 0


def test_weights_that_are_not_finite_are_never_saved(wrong, text_file, tmp_path):
    run = tmp_path / "run"
    said = wrong("train", "lstm", "--data", text_file, "--run", run, "--size", "tiny", "--training.warmup", "0",
                 "--training.learning-rate", "1e30", "--training.checkpoint-every", "1")  # fmt: skip
    assert "the last good weights are kept" in said
    tensors, _ = load_tensors(run / "training.safetensors")
    assert all(bool(t.isfinite().all()) for name, t in tensors.items() if name.startswith("model/"))


def test_closed_stdin_and_a_full_pipe(process, trained):
    started = process("score", trained["lstm"], stdin=None, preexec_fn=lambda: os.close(0))
    _, errors = started.communicate()
    assert started.returncode == 2
    assert "stdin is closed" in errors


@pytest.mark.parametrize("recipe, said", [
    ("a = " + "[" * 5000, "recipe.toml"),
    ("seed = " + "9" * 5000, "thousands of digits"),
    ('system = "lstm"\nsize = []', "size must be one of"),
    ("system = []", "does not name a system"),
    ('system = "lstm"\n[data]\nvocabulary = 500000000', "at most 10000000, not 500000000"),
    ('system = "gpt"\n[model]\nlayers = 2147483647', "at most 1000, not 2147483647"),
])  # fmt: skip
def test_a_recipe_beyond_all_bounds(wrong, tmp_path, recipe, said):
    (tmp_path / "recipe.toml").write_text(recipe)
    assert said in wrong("train", tmp_path / "recipe.toml")


def test_numbers_and_names_beyond_all_bounds(wrong, trained):
    for option in ("--segment", "--rows"):
        assert wrong("evaluate", trained["lstm"], option, 2**63)
    assert wrong("evaluate", "a\0b")
    assert wrong("train", "lstm", "--data", "a\0b")


def test_facts_and_results_nested_too_deeply_are_damaged(wrong, broken):
    (broken / "run.json").write_text("[" * 100_000)
    assert "is damaged" in wrong("evaluate", broken)
    (broken / "result.json").write_text("3")
    assert read_result(broken) is None


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
def test_a_stream_that_is_closed_is_not_missed(closed):
    done = in_shell("systems", closed)
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "output, said",
    [(">&-", "The output is closed, so the result would be lost"), (">/dev/full", "Could not write the output")],
)
@pytest.mark.parametrize("verb", ["systems", "--help", "score", "generate", "inspect", "lab", "serve"])
def test_a_result_that_cannot_be_printed_is_an_error(verb, output, said, trained, tmp_path, warm):
    run = shlex.quote(str(trained["ngram"]))
    words = {
        "score": f"score {run}",
        "generate": f"generate {run} --max-tokens 3",
        "inspect": f"inspect {run}",
        "lab": f"lab {shlex.quote(str(tmp_path))} --port 0 --no-browser",
        "serve": f"serve {run} --port 0",
    }
    python = warm if "full" in output else sys.executable  # a closed stream is for the start of a real one
    done = in_shell(words.get(verb, verb), output, stdin="a cat\n", python=python)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"regard: {said}")


def in_shell(words, streams, stdin="", before="", python=sys.executable):
    command = f"{before} {shlex.quote(python)} -m regard {words} {streams}"
    return subprocess.run(["sh", "-c", command], input=stdin, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="needs ulimit -v")
@pytest.mark.parametrize("mebibytes", [60, 200, 400, 500, 560])
def test_too_little_address_space_is_one_sentence(mebibytes, trained):
    done = in_shell(f"generate {shlex.quote(str(trained['lstm']))}", "", before=f"ulimit -v {mebibytes << 10};")
    assert done.returncode == 2
    assert done.stderr.startswith(("regard: This process may use", "regard: Out of memory"))
    assert done.stderr.count("\n") == 1


def test_a_step_of_5000_digits_is_refused(wrong, trained, tmp_path):
    assert "--weights must be best, last, or a step" in wrong("generate", trained["lstm"], "--weights", "9" * 5000)
    (tmp_path / "in.txt").write_text("a\n")
    words = ["--in", tmp_path / "in.txt", "--out", tmp_path / "out.txt", "--weights", "9" * 5000]
    assert "--weights must be best, last, or a step" in wrong("generate", trained["lstm"], *words)


RECIPES = [("size", {"a": 1}), ("size", {}), ("system", {"b": {}}), ("data", "x"), ("x", 3)]


@pytest.mark.parametrize("part, value", RECIPES)
def test_a_recipe_of_another_shape_in_run_json_is_refused(part, value, wrong, trained, tmp_path):
    """Its digest fits: someone made it on purpose."""
    run = shutil.copytree(trained["lstm"], tmp_path / "run")
    facts = json.loads((run / "run.json").read_text())
    del facts["blake2b"]
    facts["recipe"][part] = value
    (run / "run.json").write_text(json.dumps(with_digest(facts)))
    assert f"recipe.toml has been modified: {part} was " in wrong("generate", run)


def test_more_threads_than_any_machine_has_are_refused(wrong, tmp_path):
    run = tmp_path / "run"
    said = wrong("train", "rnn", "--data", "copy", "--size", "tiny", "--training.threads", 10**8, "--run", run)
    assert "training.threads must be at least 0 and at most 4096" in said
    assert not run.exists()


def test_a_name_that_is_not_utf8_is_refused_before_the_training(wrong, tmp_path):
    run = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9"))
    assert "is not a UTF-8 name" in wrong("train", "ngram", "--data", "copy", "--run", run)
    assert not run.exists()


@pytest.mark.parametrize("verb", ["chat", "runs remove"])
def test_a_question_without_standard_input_is_no_traceback(trained, tmp_path, verb):
    run = shutil.copytree(trained["lstm"], tmp_path / "run")
    command = shlex.join([sys.executable, "-m", "regard", *verb.split(), str(run)])
    done = subprocess.run(["bash", "-c", f"{command} <&-"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode in ((2,) if verb == "runs remove" else (0, 2))
    assert (run / "model.safetensors").exists()


def test_a_run_is_removed_from_within(regard, trained, tmp_path, monkeypatch):
    run = shutil.copytree(trained["ngram"], tmp_path / "run")
    monkeypatch.chdir(run)
    assert regard("runs", "remove", ".", "--yes")[0] == 0
    assert not run.exists()


def test_best_weights_that_are_gone_or_damaged_are_missed_at_once(wrong, broken):
    assert (broken / "training.safetensors").exists()
    best = broken / "model.safetensors"
    whole = best.read_bytes()
    best.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "model.safetensors" in wrong("resume", broken)
    best.unlink()
    assert "model.safetensors" in wrong("resume", broken)
    assert "is missing" in wrong("evaluate", broken)
