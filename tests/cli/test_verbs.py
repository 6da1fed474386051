"""Every verb, on real runs of every system: what is printed is data, and the Python twin gives the same."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import regard as package
from regard import demo
from regard.cli import file_to_file as files
from regard.cli import main
from regard.comparison import ladders
from regard.systems.catalogue import SYSTEMS as CATALOGUE

SYSTEMS = ["ngram", "lstm", "gpt"]  # one of each kind: counted, carrying a state, looking back


def test_systems_are_listed_with_name_year_paper_and_task(regard):
    code, out, _ = regard("systems", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["name"] for row in rows] == [system.name for system in CATALOGUE]
    assert [row["year"] for row in rows] == sorted(row["year"] for row in rows)
    assert all(row["year"] and row["paper"] and row["task"] for row in rows)
    assert "gpt" in regard("systems")[1]


def test_a_run_folder_holds_everything_that_made_it(trained):
    for system, folder in trained.items():
        names = {path.name for path in folder.iterdir()}
        assert {"recipe.toml", "run.json", "tokenizer.json", "model.safetensors"} <= names
        facts = json.loads((folder / "run.json").read_text())
        assert facts["threads"] == (1 if system != "ngram" else facts["threads"])
        assert facts["seed"] == 1
        assert facts["regard"] == package.__version__
        assert facts["torch"]
        assert facts["corpus"]["checksum"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_evaluate_prints_perplexity_and_how_it_was_computed(regard, trained, system):
    code, out, _ = regard("evaluate", trained[system], "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["perplexity"] == pytest.approx(math.exp(facts["nats_per_token"]))
    assert facts["bits_per_character"] == pytest.approx(facts["nats_per_token"] / math.log(2))  # a token is a character
    assert facts["split"] == "test"
    assert "segments of" in facts["method"]
    assert package.load(trained[system]).evaluate()["perplexity"] == pytest.approx(facts["perplexity"])


def test_evaluate_reads_the_whole_context_of_a_single_run(regard, text_file, tmp_path):
    small = ["--size", "tiny", "--model.width", "16", "--model.context", "512", "--data.tokenizer", "char"]
    words = ["train", "gpt", "--data", text_file, "--run", tmp_path / "run", *small, "--training.steps", "1"]
    assert regard(*words)[0] == 0
    facts, short, long = (
        json.loads(regard("evaluate", tmp_path / "run", "--split", "train", "--json", *more)[1])
        for more in ([], ["--segment", "256"], ["--segment", "512"])
    )
    assert facts["method"].startswith("segments of 256 tokens, each after 256 tokens of warm-up")
    assert short["method"].startswith("segments of 128 tokens, each after 128 tokens of warm-up")
    assert facts["nats_per_token"] == long["nats_per_token"] != short["nats_per_token"]


def test_bits_per_character_are_shared_out_over_characters_however_the_text_is_cut(regard, text_file, tmp_path):
    lines = text_file.read_text(encoding="utf-8").splitlines()
    for split, part in {"train": lines, "valid": lines[:20], "test": lines[20:50]}.items():
        (tmp_path / f"{split}.txt").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    assert regard("train", "ngram", "--data", tmp_path, "--data.tokenizer", "bpe", "--run", tmp_path / "run")[0] == 0
    facts = json.loads(regard("evaluate", tmp_path / "run", "--json")[1])
    characters = sum(len(line) + 1 for line in lines[20:50])  # the end of a line is one, too
    assert facts["characters"] == characters
    assert facts["tokens"] < 0.8 * characters
    bits = facts["nats_per_token"] * facts["tokens"] / math.log(2)
    assert facts["bits_per_character"] == pytest.approx(bits / characters)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_batch_size_changes_nothing(trained, system):
    run = package.load(trained[system])
    values = [run.evaluate(rows=rows)["nats_per_token"] for rows in (1, 2, 7)]
    assert max(values) - min(values) < 1e-5


def test_a_stream_is_read_as_one_row(regard, trained):
    run = package.load(trained["lstm"])
    stream = run.evaluate("train", stream=True)
    segments = run.evaluate("train", segment=10**6, overlap=0)  # one segment that holds everything
    assert stream["nats_per_token"] == pytest.approx(segments["nats_per_token"], abs=1e-5)
    code, _, errors = regard("evaluate", trained["gpt"], "--stream")
    assert code == 2
    assert "at most 64 tokens at once" in errors


def test_more_warm_up_never_counts_a_token_twice(trained):
    run = package.load(trained["gpt"])
    counts = {run.evaluate("train", segment=64, overlap=overlap)["tokens"] for overlap in (0, 10, 63)}
    assert len(counts) == 1


@pytest.mark.parametrize("system", SYSTEMS)
def test_generation_goes_on_from_the_prompt_and_the_seed_decides(regard, trained, system):
    words = ["generate", trained[system], "--prompt", "The ", "--max-tokens", "40", "--top-k", "40"]
    texts = [regard(*words, "--temperature", "0.8", "--seed", seed)[1] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("The ")
    assert len(texts[0].rstrip("\n")) >= 40
    run = package.load(trained[system])
    assert run.generate("The ", max_tokens=40, top_k=40, temperature=0.8, seed=1).rstrip("\n") == texts[0].rstrip("\n")


def test_a_prompt_that_ends_in_a_space_is_gone_on_with_a_word(tmp_path, text_file):
    run = package.train("ngram", data=str(text_file), run=tmp_path / "bpe", settings={"data": {"tokenizer": "bpe"}})
    for seed in range(5):
        text = run.generate("The ", max_tokens=5, seed=seed, top_k=10)
        assert text.startswith("The ")
        assert not text.startswith("The  ")
        assert run.tokenizer.encode(text)[: len(run.tokenizer.encode("The"))] == run.tokenizer.encode("The")


def test_generation_stops_after_the_lines_asked_for(regard, trained):
    _, out, _ = regard("generate", trained["ngram"], "--lines", 2, "--max-tokens", 500, "--seed", 3)
    assert out.count("\n") == 2


def test_generation_past_the_context_goes_on_and_says_so(regard, trained):
    code, out, errors = regard("generate", trained["gpt"], "--prompt", "The ", "--max-tokens", 150, "--json")
    assert code == 0
    assert len(json.loads(out)["text"]) == 154
    assert "context of 64 tokens is full" in errors


def test_a_prompt_may_come_from_stdin_and_unknown_characters_are_said(regard, trained):
    code, out, errors = regard("generate", trained["lstm"], "--prompt", "-", "--max-tokens", 3, stdin="The €\n")
    assert code == 0
    assert out.startswith("The ")
    assert "1 of the prompt's tokens are not in this model's vocabulary" in errors


@pytest.fixture
def prompt_file(tmp_path):
    """More lines than are written at once, of different lengths, and empty ones."""
    path = tmp_path / "in.txt"
    starts = ["The cat", "", "A bird sees", "My ", "The dog hears the"]
    path.write_text("".join(f"{starts[n % 5][: 3 + n % 17]}\n" for n in range(70)), encoding="utf-8")
    return path


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_line_of_a_file_is_finished_as_it_would_be_alone(regard, trained, prompt_file, system, tmp_path):
    out = tmp_path / "out.txt"
    command = ["generate", trained[system], "--in", prompt_file, "--out", out, "--max-tokens", 30, "--seed", 3]
    assert regard(*command)[:2] == (0, "")
    lines = out.read_text(encoding="utf-8").splitlines()
    prompts = prompt_file.read_text(encoding="utf-8").split("\n")[:-1]
    run = package.load(trained[system])
    alone = [next(run.completions([prompt], max_tokens=30, seed=3, before=n)) for n, prompt in enumerate(prompts)]
    assert lines == alone
    assert lines[0] == run.generate(prompts[0], max_tokens=30, seed=3, lines=1).removesuffix("\n")
    assert all(line.startswith(prompt) for line, prompt in zip(lines, prompts, strict=True))
    assert len(set(lines)) > 30


def test_a_generation_from_file_to_file_that_was_killed_goes_on_where_it_was(regard, trained, prompt_file, tmp_path):
    out, part = tmp_path / "out.txt", tmp_path / "out.txt.part"
    command = ["generate", trained["lstm"], "--in", prompt_file, "--out", out, "--max-tokens", 20, "--json"]
    with pytest.MonkeyPatch.context() as patched:
        noted = []
        before = files.write_text
        patched.setattr(files, "write_text", lambda path, text, **how: noted.append(text) or before(path, text, **how))
        assert regard(*command)[0] == 0
    whole = out.read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["line"] for line in whole] == [*range(1, 71)]
    code, _, errors = regard(*command)
    assert (code, out.read_bytes()) == (2, b"".join(whole))  # what is there is never written over
    assert "already exists" in errors
    out.unlink()
    part.write_bytes(b"".join(whole[:33]) + b"cut sh")  # as a kill leaves it
    (tmp_path / "out.txt.part.json").write_text(noted[0], encoding="utf-8")
    code, said, errors = regard(*command)
    assert (code, said) == (0, ""), errors
    assert "continuing after 33 lines" in errors
    assert out.read_bytes() == b"".join(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]
    out.unlink()
    part.write_bytes(whole[0])
    (tmp_path / "out.txt.part.json").write_text(noted[0], encoding="utf-8")
    assert "belongs to a job with a different run" in regard(*command, "--seed", 5)[2]


def test_a_generation_from_file_to_file_refuses_what_it_cannot_do(wrong, trained, prompt_file, tmp_path):
    out = tmp_path / "out.txt"
    assert "must be given together" in wrong("generate", trained["lstm"], "--in", prompt_file)
    for more in (["--prompt", "The"], ["--lines", 2], ["--beam", 3]):
        assert "leave out --prompt" in wrong("generate", trained["lstm"], "--in", prompt_file, "--out", out, *more)
    assert "no file" in wrong("generate", trained["lstm"], "--in", tmp_path / "absent", "--out", out)
    assert "--precision" in wrong("generate", trained["lstm"], "--precision", "fp8")


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_generation_in_less_precision_writes_as_much(regard, trained, precision):
    code, out, _ = regard("generate", trained["gpt"], "--prompt", "The ", "--max-tokens", 20, "--precision", precision)
    assert code == 0
    assert len(out.rstrip("\n")) >= 20


def test_beam_search_prints_the_most_probable_endings_best_first(regard, trained):
    code, out, _ = regard("generate", trained["ngram"], "--prompt", "The dog ", "--beam", 4, "--max-tokens", 40)
    assert code == 0
    scores = [float(line.split("\t")[0]) for line in out.splitlines()]
    assert scores == sorted(scores, reverse=True)
    assert all(line.split("\t")[1].startswith("The dog ") for line in out.splitlines())


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_lines_score_is_the_sum_of_its_tokens_and_of_the_calls_own_probabilities(regard, trained, system):
    line = "The cat sees."
    _, out, _ = regard("score", trained[system], stdin=line + "\n")
    total, count, text = out.rstrip("\n").split("\t")
    assert text == line
    assert int(count) == len(line) + 1
    _, out, _ = regard("score", trained[system], "--tokens", stdin=line + "\n")
    parts = [entry.split("\t") for entry in out.rstrip("\n").split("\n")]
    assert sum(float(p) for p, _ in parts) == pytest.approx(float(total), abs=1e-3)
    run = package.load(trained[system])
    by_hand, state, prediction = 0.0, None, None
    for character in line:
        if prediction is None:
            prediction, state = run("", None)
        by_hand += math.log(prediction.probability(character))
        prediction, state = run(character, state)
    by_hand += math.log(prediction.probability("<eos>"))
    assert by_hand == pytest.approx(float(total), abs=1e-3)


def test_scores_do_not_depend_on_the_lines_around(trained):
    run = package.load(trained["gpt"])
    lines = ["A bird hears a tree.", "x", "", "The dog likes the house. " * 8]  # the last is longer than the context
    together = [score.log_probability for score in run.score(lines)]
    alone = [next(iter(run.score([line]))).log_probability for line in lines]
    assert together == pytest.approx(alone, abs=1e-3)


def test_the_lectures_loop_works_with_plain_strings(tmp_path, text_file):
    folder = tmp_path / "words"
    main(["train", "lstm", "--data", str(text_file), "--run", str(folder), "--size", "tiny", "--data.tokenizer", "word",
          "--training.steps", "60", "--training.batch-tokens", "256", "--training.threads", "1"])  # fmt: skip
    run, state = package.load(folder), None
    for word in ["The", "dog", "follows"]:
        prediction, state = run(word, state)
    best = prediction.top(5)
    assert len(best) == 5
    assert best[0][1] >= best[1][1]
    assert prediction.probability(best[0][0]) == pytest.approx(best[0][1])
    assert np.isclose(prediction.probabilities.sum(), 1)
    whole, _ = run("The dog follows", None)
    assert whole.top(1)[0][1] == pytest.approx(best[0][1], rel=1e-4)
    assert run.words("The dog follows") == ["The", "dog", "follows"]


@pytest.mark.parametrize("kind", ["byte", "bpe", "char", "word"])
def test_the_words_of_a_text_read_one_by_one_are_the_text(tmp_path, text_file, kind):
    run = package.train("ngram", data=str(text_file), run=tmp_path / kind, settings={"data": {"tokenizer": kind}})
    text = "The café cat  sees.\nIt 漢 likes"
    state, ids = None, []
    for word in run.words(text):
        prediction, state = run(word, state)
        ids += run.tokenizer.encode(word)
    assert ids == run.tokenizer.encode(text)
    whole, _ = run(text, None)
    assert np.allclose(whole.probabilities, prediction.probabilities)


def test_fine_tuning_begins_with_the_old_weights_and_tokenizer(regard, trained, tmp_path):
    new = tmp_path / "new.txt"
    new.write_text("".join(f"The fish number {n} swims in the sea.\n" for n in range(60)))
    tuned = tmp_path / "tuned"
    code, _, errors = regard(
        "train", "lstm", "--data", new, "--from", trained["lstm"], "--run", tuned, "--training.steps", 1,
        "--training.learning-rate", "1e-9", "--training.threads", 1,
    )  # fmt: skip
    assert code == 0, errors
    assert (tuned / "tokenizer.json").read_bytes() == (trained["lstm"] / "tokenizer.json").read_bytes()
    before, after = package.load(trained["lstm"]), package.load(tuned)
    text = ["The cat sees the house."]
    assert next(before.score(text)).log_probability == pytest.approx(next(after.score(text)).log_probability, abs=1e-3)
    assert after.recipe.model == before.recipe.model
    code, _, errors = regard("train", "gpt", "--data", new, "--from", trained["lstm"], "--run", tmp_path / "x")
    assert code == 2
    assert "cannot start from its weights" in errors


def test_a_recipe_file_makes_the_same_run_again(regard, trained, tmp_path):
    again = tmp_path / "again"
    code, _, errors = regard("train", trained["lstm"] / "recipe.toml", "--run", again)
    assert code == 0, errors
    assert (again / "recipe.toml").read_text() == (trained["lstm"] / "recipe.toml").read_text()
    a, b = (package.load(folder).evaluate()["nats_per_token"] for folder in (trained["lstm"], again))
    assert a == b


def test_a_dry_run_states_parameters_memory_and_time_and_writes_nothing(regard, text_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = regard("train", "gpt", "--data", text_file, "--size", "tiny", "--dry-run", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["parameters"] > 1000
    assert facts["seconds_per_step"] > 0
    assert facts["weights_gradients_optimizer_bytes"] == pytest.approx(facts["parameters"] * 16, rel=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_less_than_a_step_is_one_of_a_step(regard, text_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert regard("train", "gpt", "--data", text_file, "--size", "tiny", "--budget", "100", "--dry-run")[0] == 0


def test_a_budget_for_hardly_a_step_is_said_to_be_short(regard, text_file, tmp_path):
    train = ("train", "gpt", "--data", text_file, "--size", "tiny", "--training.threads", 1)
    code, _, err = regard(*train, "--budget", "0.01s", "--run", tmp_path / "short")
    assert code == 0
    assert "Only 1 step fit into this budget: use a longer --budget to learn more." in err
    words = [*train, "--budget", "0.01s", "--run", tmp_path / "small", "--model.width", 16]
    words[words.index("tiny")] = "small"
    code, _, err = regard(*words)
    assert code == 0
    assert "Only 1 step fit into this budget: use a smaller --size or a longer --budget to learn more." in err
    code, _, err = regard(*train, "--training.steps", 2, "--run", tmp_path / "asked")
    assert code == 0
    assert "fitted" not in err


def test_without_a_name_a_run_gets_a_free_one(regard, text_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/ngram-my", "runs/ngram-my-2"):
        code, out, _ = regard("train", "ngram", "--data", text_file)
        assert code == 0
        assert out.strip() == name


def test_an_n_gram_goes_out_as_arpa_and_comes_back(regard, trained, tmp_path):
    file, back = tmp_path / "model.arpa", tmp_path / "back"
    assert regard("export", trained["ngram"], "--to", "arpa", file)[0] == 0
    assert regard("import", file, "--run", back)[0] == 0
    lines = ["The cat sees the river.", "zzz", ""]
    ours = [score.log_probability for score in package.load(trained["ngram"]).score(lines)]
    theirs = [score.log_probability for score in package.load(back).score(lines)]
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert "already exists" in regard("export", trained["ngram"], "--to", "arpa", "--out", file)[2]
    assert "imported without its text" in regard("evaluate", back)[2]
    assert regard("evaluate", back, "--data", package.load(trained["ngram"]).recipe.data.corpus)[0] == 0


@pytest.mark.parametrize("ladder", [demo.LANGUAGE, demo.TRANSLATION])
def test_the_demos_ladders_fit_into_five_minutes_side_by_side(ladder):
    neural = [rung for rung in ladder.question(ladder.budget()).rungs() if not rung.counted]
    assert (
        len(neural) * (ladder.seconds + ladder.besides) <= 300 - 25
    )  # the start, the n-grams and the page come on top


def test_every_rung_of_the_demos_ladders_has_a_recipe():
    for ladder in (demo.LANGUAGE, demo.TRANSLATION):
        question = ladder.question("1s", everything=True)
        assert [question.recipe(rung).system for rung in question.rungs()]


def test_the_demo_stops_at_gpt_unless_all_are_asked_for():
    few, every = (demo.LANGUAGE.question("1s", everything=each).systems for each in (False, True))
    assert few[-1] == "gpt"
    assert set(every) - set(few) == {system.name for system in CATALOGUE if system.after_gpt}


def test_on_one_core_the_demos_ladders_share_the_time(monkeypatch):
    monkeypatch.setattr(ladders, "cores", lambda: 1)
    for ladder in (demo.LANGUAGE, demo.TRANSLATION):
        assert float(ladder.budget().removesuffix("s")) == ladder.seconds / 2
    with demo.climbing_aside(demo.TRANSLATION.question("1s"), Path("nowhere") / "translation"):
        pass
    assert not Path("nowhere").exists()


def test_data_are_listed_and_checked(regard, text_file):
    rows = json.loads(regard("data", "--json")[1])
    assert {"pyref", "any-b", "shakespeare"} <= {row["name"] for row in rows}
    code, out, _ = regard("data", "check", text_file)
    assert code == 0
    assert "duplicate lines" in out
    assert json.loads(regard("data", "check", text_file, "--json")[1])["files"]["text"]["lines"] == 80
