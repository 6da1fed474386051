"""Translation as its users meet it: a file of pairs in, a run, translations, numbers; and what they get wrong."""

import gzip
import json
import math
import shutil

import pytest
import sacrebleu

import regard as package
from interrupted import bits, digest, wait_for_step
from regard.base.word_spans import find_words as words_of
from regard.cli import main
from regard.corpora.phrasebook import make_pairs
from regard.training.checkpoint import load_tensors

TINY = [
    "--size", "tiny", "--training.steps", "20", "--training.evaluate-every", "10", "--training.checkpoint-every", "10",
    "--training.batch-tokens", "512", "--training.threads", "1", "--model.dropout", "0.1",
]  # fmt: skip
SYSTEMS = ["seq2seq", "bahdanau", "transformer"]
LINES = ["They are watching.", "", "Jack gave water to Jill.", "A word nobody knows: Zyxw 😀"]


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    pairs = make_pairs(400, seed=3, longest=8)
    path.write_text("".join(f"{p.source}\t{p.target}\tattribution\n" for p in pairs), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def translators(tmp_path_factory, pairs_file):
    folder = tmp_path_factory.mktemp("translators")
    for system in SYSTEMS:
        main(["train", system, "--data", str(pairs_file), "--run", str(folder / system), *TINY])
    return {system: folder / system for system in SYSTEMS}


@pytest.mark.parametrize("system", SYSTEMS)
def test_as_many_lines_come_out_as_went_in_and_the_batch_changes_nothing(regard, translators, system):
    code, out, _ = regard("translate", translators[system], stdin="\n".join(LINES) + "\n")
    assert code == 0
    found = out.split("\n")[:-1]
    assert len(found) == len(LINES)
    assert found[1] == ""
    alone = [regard("translate", translators[system], stdin=line + "\n")[1].rstrip("\n") for line in LINES]
    assert alone == found
    run = package.load(translators[system])
    assert run.translate(LINES) == found
    assert run.translate(LINES[0]) == found[0]


@pytest.mark.parametrize("system", SYSTEMS)
def test_n_best_are_ranked_and_their_scores_are_the_models_own(regard, translators, system):
    words = ["translate", translators[system], "--beam", 5, "--n-best", 3, "--alignment", "--attention", "--json"]
    code, out, _ = regard(*words, stdin="They are watching.\n")
    assert code == 0
    line = json.loads(out)
    assert line["source"] == "They are watching."
    ranks = [
        (one["tokens"][-1] == "<eos>", one["score"]) for one in line["translations"]
    ]  # what was cut off comes last
    assert len(ranks) == 3
    assert ranks == sorted(ranks, reverse=True)
    cut = package.load(translators[system]).tokenizer
    for one in line["translations"]:
        again = [cut.token(n) for n in cut.encode(one["text"])]  # other tokens may spell the same text
        if [*again, "<eos>"] == one["tokens"]:
            pair = f"They are watching.\t{one['text']}\n"
            scored = json.loads(regard("score", translators[system], "--json", stdin=pair)[1])
            assert scored["log_probability"] == pytest.approx(one["log_probability"], abs=1e-3)
        if system == "seq2seq":
            assert "alignment" not in one
        else:
            assert all(0 <= i < 4 for i, _ in one["alignment"])
            for heads in one["attention"].values():
                assert all(sum(row) == pytest.approx(1, abs=1e-4) for head in heads for row in head)


def test_the_plain_forms_of_n_best_and_alignment_are_tab_separated(regard, translators):
    words = ["translate", translators["transformer"], "--beam", 2, "--n-best", 2, "--alignment"]
    _, out, _ = regard(*words, stdin="They are watching.\n\n")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2"]
    assert all(len(row) == 5 for row in rows)


@pytest.mark.parametrize("system", SYSTEMS)
def test_evaluation_gives_bleu_with_its_signature_and_lengths(regard, translators, system):
    code, out, _ = regard("evaluate", translators[system], "--by-length", "--json")
    assert code == 0
    facts = json.loads(out)
    assert "tok:13a" in facts["bleu"]["signature"]
    assert sum(row["sentences"] for row in facts["by_length"]) == facts["sentences"]
    run = package.load(translators[system])
    pairs = run.corpus().splits["test"]
    outside = sacrebleu.corpus_bleu(run.translate(pairs.sources), [pairs.targets])
    assert facts["bleu"]["score"] == pytest.approx(outside.score)
    nats = [-line.log_probability for line in run.score(zip(pairs.sources, pairs.targets))]
    tokens = [len(line.tokens) for line in run.score(zip(pairs.sources, pairs.targets))]
    assert facts["perplexity"] == pytest.approx(math.exp(sum(nats) / sum(tokens)), rel=1e-4)
    assert "BLEU" in regard("evaluate", translators[system], "--by-length")[1]


def test_japanese_is_cut_into_words_or_letters_and_the_evaluation_says_which(regard, tmp_path):
    path, run = tmp_path / "enja.tsv", tmp_path / "enja"
    pairs = [f"{n} cats see {m} dogs\t{n}匹の猫が{m}匹の犬を見ています。" for n in range(9) for m in range(9)]
    path.write_text("\n".join(pairs) + "\n", encoding="utf-8")
    code, _, err = regard("train", "seq2seq", "--data", path, "--run", run, *TINY, "--training.select", "bleu")
    assert code == 0
    assert "the references are Japanese" in err
    facts = json.loads(regard("evaluate", run, "--json")[1])
    assert "the references are Japanese" in facts["bleu_tokenizer"]
    tokenizer = facts["bleu_tokenizer"].split(",")[0]
    assert tokenizer in ("char", "ja-mecab")
    assert f"|tok:{tokenizer}" in facts["bleu"]["signature"]
    assert "whole sentences" in regard("evaluate", run, "--bleu-tokenizer", "13a")[1]


def test_pairs_of_a_file_are_scored_as_they_stand(regard, translators, pairs_file):
    code, out, _ = regard("score", translators["bahdanau"], "--data", pairs_file)
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    first = pairs_file.read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert len(rows) == 400
    assert rows[0][2:] == first[:2]
    assert all(float(row[0]) < 0 for row in rows)


def test_the_lectures_loop_works_with_a_state_that_comes_from_a_source(translators):
    run = package.load(translators["transformer"])
    state = run.begin("They are watching.")
    prediction, state = run("", state)
    assert prediction.probabilities.sum() == pytest.approx(1)
    prediction, state = run("Ils", state)
    assert int(state["seen"][0]) == 1 + len(run.tokenizer.encode("Ils"))


def test_sampling_is_decided_by_the_seed_and_not_by_the_batch(regard, translators):
    words = ["translate", translators["transformer"], "--temperature", 1, "--seed", 7]
    lines = ["They are watching.", "Jack gave water to Jill."]
    together = regard(*words, stdin="\n".join(lines) + "\n")[1].splitlines()
    assert together[0] == regard(*words, stdin=lines[0] + "\n")[1].splitlines()[0]
    assert together == regard(*words, stdin="\n".join(lines) + "\n")[1].splitlines()


def test_the_mean_of_the_last_validations_can_be_evaluated(regard, translators):
    code, out, _ = regard("evaluate", translators["transformer"], "--average", 2, "--beam", 1, "--json")
    assert code == 0
    assert json.loads(out)["search"] == "greedy"


@pytest.mark.parametrize("extra", [
    ["--training.ema", "0.9", "--training.select", "bleu"],
    ["--training.consistency", "1.0", "--data.bpe-dropout", "0.1"],
    ["--data.joint", "false", "--data.tokenizer", "word", "--data.swap", "true"],
])  # fmt: skip
def test_the_ways_to_train_end_in_runs_that_translate(regard, pairs_file, tmp_path, extra):
    run = tmp_path / "run"
    code, _, errors = regard("train", "transformer", "--data", pairs_file, "--run", run, *TINY, *extra)
    assert code == 0, errors
    assert regard("translate", run, stdin="They are watching.\n")[0] == 0
    assert (run / "tokenizer.source.json").exists() == ("false" in extra)


def test_parallel_files_and_a_folder_of_them_need_nothing_but_the_languages(regard, tmp_path, pairs_file):
    rows = [line.split("\t") for line in pairs_file.read_text(encoding="utf-8").splitlines()]
    for name, part in {"train": rows[:360], "valid": rows[360:380], "test": rows[380:]}.items():
        (tmp_path / f"{name}.en").write_text("".join(f"{row[0]}\n" for row in part), encoding="utf-8")
        with gzip.open(tmp_path / f"{name}.fr.gz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{row[1]}\n" for row in part))
    words = ["train", "transformer", "--data", tmp_path, "--data.source", "fr", "--data.target", "en"]
    code, _, errors = regard(*words, "--run", tmp_path / "run", *TINY)
    assert code == 0, errors
    assert json.loads(regard("evaluate", tmp_path / "run", "--json")[1])["direction"] == "fr → en"


def test_fine_tuning_begins_with_the_weights_and_the_vocabulary(regard, translators, tmp_path):
    words = ["train", "--from", translators["transformer"], "--data", "phrasebook", "--data.pairs", "300"]
    code, _, errors = regard(*words, "--run", tmp_path / "tuned", "--training.steps", 2)
    assert code == 0, errors
    assert (tmp_path / "tuned/tokenizer.json").read_bytes() == (
        translators["transformer"] / "tokenizer.json"
    ).read_bytes()


@pytest.fixture(scope="module")
def back(tmp_path_factory, pairs_file):
    """A run of the other direction."""
    run = tmp_path_factory.mktemp("other") / "back"
    main(["train", "transformer", "--data", str(pairs_file), "--data.swap", "true", "--run", str(run), *TINY])
    return run


def test_text_of_the_target_language_gets_its_sources_from_a_run_of_the_other_direction(
    regard, back, pairs_file, tmp_path
):
    there = tmp_path / "there"
    (tmp_path / "french.txt").write_text("Ils regardent.\nElle mange du pain.\n", encoding="utf-8")
    more = ["--data.monolingual", tmp_path / "french.txt", "--data.translator", back]
    code, _, errors = regard("train", "transformer", "--data", pairs_file, "--run", there, *TINY, *more)
    assert code == 0, errors
    assert "generated by" in errors
    code, _, errors = regard("resume", there)
    assert code == 0, errors


@pytest.mark.slow
@pytest.mark.parametrize("system, more", [
    ("transformer", ["--training.ema", "0.99", "--data.bpe-dropout", "0.1"]),
    ("bahdanau", []),
])  # fmt: skip
def test_a_killed_training_on_pairs_ends_with_the_same_bits(process, regard, pairs_file, tmp_path, system, more):
    words = [*TINY, "--training.steps", "60", "--seed", "5", *more]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    code, _, errors = regard("train", system, "--data", pairs_file, "--run", whole, *words)
    assert code == 0, errors
    started = process("train", system, "--data", pairs_file, "--run", cut, *words)
    wait_for_step(cut, 10, started)
    started.kill()
    started.wait()
    code, _, errors = regard("resume", cut)
    assert code == 0, errors
    assert bits(cut) == bits(whole)
    kept = [
        {path.name: {k: digest(v) for k, v in load_tensors(path)[0].items()} for path in run.glob("kept/*")}
        for run in (cut, whole)
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 5


# -- what users get wrong --------------------------------------------------------------------------------------------


def test_a_line_with_one_field(wrong, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("one\tun\ntwo\nthree\ttrois\n", encoding="utf-8")
    assert "line 2" in wrong("train", "transformer", "--data", path, "--run", tmp_path / "run").lower()
    assert not (tmp_path / "run").exists()


def test_unequal_numbers_of_lines(wrong, tmp_path):
    (tmp_path / "train.de").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "train.en").write_text("one\n", encoding="utf-8")
    said = wrong("train", "transformer", "--data", tmp_path, "--data.source", "de", "--data.target", "en")
    assert "2" in said
    assert "1" in said


def test_a_language_model_cannot_translate_and_a_translator_does_not_ramble(wrong, trained, translators):
    assert "regard generate" in wrong("translate", trained["lstm"], stdin="a\n")
    assert "regard translate" in wrong("generate", translators["transformer"])
    assert "--stream does not apply" in wrong("evaluate", translators["transformer"], "--stream")
    assert "--by-length does not apply" in wrong("evaluate", trained["lstm"], "--by-length")


def test_a_sentence_without_end_is_refused_by_its_line_or_cut_on_request(wrong, regard, translators):
    endless = "They are watching.\n" + "word " * 10_000 + "\n"
    assert "Line 2 has" in wrong("translate", translators["transformer"], stdin=endless)
    code, out, _ = regard("translate", translators["seq2seq"], "--truncate", "--max-tokens", 5, stdin=endless)
    assert code == 0
    assert out.count("\n") == 2


def test_pairs_given_to_a_language_model_and_text_given_to_a_translator(wrong, text_file, tmp_path):
    assert wrong("train", "transformer", "--data", text_file, "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_asked_of_a_search(wrong, translators):
    run = translators["transformer"]
    assert "--n-best" in wrong("translate", run, "--beam", 2, "--n-best", 3, stdin="a\n")
    assert "give only one" in wrong("translate", run, "--beam", 2, "--temperature", 1, stdin="a\n")
    assert "--average" in wrong("evaluate", run, "--average", 99)
    assert "one field" in wrong("score", run, stdin="no tab here\n")
    assert "not UTF-8" in wrong("translate", run, stdin="é\n".encode("latin-1"))


def test_a_run_whose_source_tokenizer_is_damaged(wrong, translators, tmp_path):
    broken = shutil.copytree(translators["transformer"], tmp_path / "broken")
    (broken / "tokenizer.source.json").write_text("{", encoding="utf-8")
    assert "tokenizer" in wrong("translate", broken, stdin="a\n")


# -- what a second pair of eyes found --------------------------------------------------------------------------------


def test_two_vocabularies_of_one_size_share_no_word_vectors(regard, pairs_file, tmp_path):
    words = ["--data.joint", "false", "--data.vocabulary", "300", "--training.steps", "2"]
    code, _, errors = regard("train", "transformer", "--data", pairs_file, "--run", tmp_path / "run", *TINY, *words)
    assert code == 0, errors
    run = package.load(tmp_path / "run")
    assert run.source_tokenizer.vocabulary == run.tokenizer.vocabulary
    assert run.model.source_embedding is not None


def test_a_file_to_evaluate_on_is_taken_whole_unless_a_split_is_named(regard, translators, pairs_file):
    whole = json.loads(regard("evaluate", translators["seq2seq"], "--data", pairs_file, "--beam", 1, "--json")[1])
    part = json.loads(regard("evaluate", translators["seq2seq"], "--split", "valid", "--beam", 1, "--json")[1])
    assert whole["sentences"] == 400
    assert part["sentences"] < 100
    assert whole["split"] == "whole file"


def test_text_that_is_held_out_is_not_translated_back_and_what_was_is_checked(
    regard, wrong, back, pairs_file, tmp_path
):
    there, french = tmp_path / "there", tmp_path / "french.txt"
    corpus = package.load(back).corpus().swapped()
    held_out = [*corpus.splits["test"].targets, *corpus.splits["valid"].targets]
    french.write_text(
        "".join(f"{line}\n" for line in [*held_out, "Ils regardent bien.", "Elle mange du pain."]), "utf-8"
    )
    more = ["--data.monolingual", french, "--data.translator", back, "--training.steps", "12"]
    code, _, errors = regard("train", "transformer", "--data", pairs_file, "--run", there, *TINY, *more)
    assert code == 0, errors
    assert f"{len(held_out)} held-out ones left out" in errors
    french.write_text("Un autre texte.\n", "utf-8")
    assert "has changed since" in wrong("resume", there)


def test_further_pairs_are_found_from_any_folder(regard, pairs_file, tmp_path, monkeypatch):
    (tmp_path / "more.tsv").write_text("One more thing.\tEncore une chose.\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["--data.also", "more.tsv:2", "--run", tmp_path / "run", *TINY, "--training.steps", "2"]
    code, _, errors = regard("train", "transformer", "--data", pairs_file, *words)
    assert code == 0, errors
    monkeypatch.chdir("/")
    assert regard("resume", tmp_path / "run")[0] == 0


def test_a_drawn_translation_is_one_line_and_one_field(regard, pairs_file, tmp_path):
    words = ["--data.tokenizer", "byte", "--run", tmp_path / "run", *TINY, "--training.steps", "1"]
    code, _, errors = regard("train", "seq2seq", "--data", pairs_file, *words)
    assert code == 0, errors
    drawn = ["translate", tmp_path / "run", "--temperature", 1, "--seed", 3, "--n-best", 4, "--max-tokens", 60]
    _, out, _ = regard(*drawn, stdin="They are watching.\nJack gave water to Jill.\n")
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert len(rows) == 8
    assert all(len(row) == 4 for row in rows)


def test_positions_that_end_too_soon_are_noticed_before_anything_is_written(wrong, pairs_file, tmp_path):
    words = ["--model.position", "learned", "--model.context", "6", "--run", tmp_path / "run"]
    assert "data.longest" in wrong("train", "transformer", "--data", pairs_file, *words)
    assert not (tmp_path / "run").exists()


def test_alignments_number_the_words_of_the_text_also_where_some_are_unknown(regard, pairs_file, tmp_path):
    words = ["--data.tokenizer", "word", "--data.vocabulary", "60", "--run", tmp_path / "run", *TINY]
    code, _, errors = regard("train", "bahdanau", "--data", pairs_file, *words)
    assert code == 0, errors
    line = "They don't xylophone l'eau, Jill.\n"
    out = json.loads(regard("translate", tmp_path / "run", "--alignment", "--json", stdin=line)[1])
    links = out["translations"][0]["alignment"]
    assert all(source < len(words_of(line.strip())) for source, _ in links)


def test_options_that_would_be_ignored_are_refused(wrong, translators, trained):
    run = translators["transformer"]
    assert "--temperature" in wrong("translate", run, "--top-k", 3, stdin="a\n")
    assert "--n-best" in wrong("translate", run, "--temperature", 1, "--n-best", 0, stdin="a\n")
    assert "ja-mecab" in wrong("evaluate", run, "--bleu-tokenizer", "ja-mecab")
    assert "has no weights to average" in wrong("evaluate", trained["lstm"], "--average", 2)


# -- from file to file -------------------------------------------------------------------------------------------------


@pytest.fixture
def big_file(tmp_path):
    path = tmp_path / "in.txt"
    lines = [pair.source for pair in make_pairs(150, seed=9, longest=6)]
    lines[7:9] = ["", ""]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [["--beam", 1], ["--temperature", 0.9, "--seed", 4], ["--beam", 2, "--json"]])
def test_a_file_is_translated_as_stdin_is_and_a_kill_loses_nothing(regard, translators, big_file, tmp_path, more):
    run, out = translators["transformer"], tmp_path / "out.txt"
    _, piped, _ = regard("translate", run, *more, stdin=big_file.read_text(encoding="utf-8"))
    command = ["translate", run, "--in", big_file, "--out", out, *more]
    assert regard(*command)[0] == 0
    assert out.read_text(encoding="utf-8") == piped
    lines = out.read_bytes().splitlines(keepends=True)
    out.unlink()
    # as a kill leaves it: some whole lines, one that was cut short, and the note of what was asked for
    question = kept_question(regard, command, tmp_path)
    (tmp_path / "out.txt.part").write_bytes(b"".join(lines[:60]) + b"cut sh")
    (tmp_path / "out.txt.part.json").write_text(question, encoding="utf-8")
    code, said, errors = regard(*command)
    assert (code, said) == (0, ""), errors
    assert "continuing after 60 lines" in errors
    assert texts(out.read_text(encoding="utf-8")) == texts(piped)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def texts(output):
    """Without scores, whose last digits are those of the batch."""
    lines = output.splitlines()
    if not lines[0].startswith("{"):
        return lines
    return [(line["line"], line["translations"][0]["text"]) for line in map(json.loads, lines)]


def kept_question(regard, command, folder, name="out.txt"):
    """The note that a translation leaves while it is under way: of one that a bad last line stops."""
    from regard.cli import file_to_file as files

    noted = []
    before = files.write_text
    files.write_text = lambda path, text, **how: noted.append(text) or before(path, text, **how)
    try:
        assert regard(*command)[0] == 0
    finally:
        files.write_text = before
    (folder / name).unlink()
    return noted[0]


SRT = (
    "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>They are\r\nwatching.</i>\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000\r\n- Jack sleeps.\r\n- Jill sees the house.\r\n\r\n"
    "3\r\n00:00:05,000 --> 00:00:06,000\r\n♪ ♪\r\n"
)


def test_subtitles_keep_everything_but_their_sentences(regard, translators, tmp_path):
    run, source, out = translators["transformer"], tmp_path / "in.srt", tmp_path / "out.srt"
    source.write_text(SRT, encoding="utf-8", newline="")
    command = ["translate", run, "--in", source, "--out", out]
    assert regard(*command) == (0, "", "")
    found = package.load(run).translate(["They are watching.", "Jack sleeps.", "Jill sees the house."])
    written = out.read_bytes().decode()
    assert written.startswith("\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>")
    cues = [cue.split("\r\n") for cue in written.removesuffix("\r\n").split("\r\n\r\n")]
    assert " ".join(cues[0][2:]) == f"<i>{found[0]}</i>"
    assert " ".join(cues[1]) == f"2 00:00:03,000 --> 00:00:04,000 - {found[1]} - {found[2]}"
    assert cues[2] == ["3", "00:00:05,000 --> 00:00:06,000", "♪ ♪"]
    out.unlink()
    # as a kill leaves it: a sentence on each line, the last one cut short
    question = kept_question(regard, command, tmp_path, "out.srt")
    (tmp_path / "out.srt.part").write_text(f"{found[0]}\n{found[1]}\nxy", encoding="utf-8")
    (tmp_path / "out.srt.part.json").write_text(question, encoding="utf-8")
    code, _, errors = regard(*command)
    assert code == 0, errors
    assert "continuing after 2 lines" in errors
    assert out.read_bytes().decode() == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.srt", "out.srt"]


def test_subtitles_are_subtitles_or_refused(regard, translators, tmp_path):
    run, source = translators["transformer"], tmp_path / "in.srt"
    source.write_text(SRT, encoding="utf-8", newline="")
    assert "ends in .srt" in regard("translate", run, "--in", source, "--out", tmp_path / "out.txt")[2]
    assert "leave out --json" in regard("translate", run, "--in", source, "--out", tmp_path / "out.srt", "--json")[2]
    source.write_text("plain text\n", encoding="utf-8")
    code, _, errors = regard("translate", run, "--in", source, "--out", tmp_path / "out.srt")
    assert code == 2
    assert "text comes before the first time code" in errors


def test_n_best_says_which_translations_ended(regard, translators):
    words = ["translate", translators["transformer"], "--beam", 3, "--n-best", 3, "--json"]
    for more in ([], ["--max-tokens", 1]):
        found = json.loads(regard(*words, *more, stdin="They are watching.\n")[1])["translations"]
        assert [one["finished"] for one in found] == [one["tokens"][-1] == "<eos>" for one in found]
    assert not all(one["finished"] for one in found)


def test_a_file_to_a_file_refuses_what_would_lose_something(regard, translators, big_file, tmp_path):
    run, out = translators["seq2seq"], tmp_path / "out.txt"
    out.write_text("mine", encoding="utf-8")
    code, _, errors = regard("translate", run, "--in", big_file, "--out", out)
    assert (code, out.read_text(encoding="utf-8")) == (2, "mine")
    assert "already exists" in errors
    out.unlink()
    assert "must be given together" in regard("translate", run, "--in", big_file)[2]
    assert "no file" in regard("translate", run, "--in", tmp_path / "absent", "--out", out)[2]
    assert "add --json" in regard("translate", run, "--in", big_file, "--out", out, "--n-best", 2)[2]
    (tmp_path / "out.txt.part").write_text("a line\n", encoding="utf-8")
    (tmp_path / "out.txt.part.json").write_text("{}", encoding="utf-8")
    code, _, errors = regard("translate", run, "--in", big_file, "--out", out)
    assert code == 2
    assert "belongs to a job with a different run" in errors
    assert (tmp_path / "out.txt.part").read_text(encoding="utf-8") == "a line\n"


def test_which_tokens_are_counted_is_said(regard, pairs_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, errors = regard("train", "seq2seq", "--data", pairs_file, "--size", "tiny", "--dry-run")
    assert code == 0, errors
    assert "tokens of both sides are few" in errors
    assert "those of the target; training.batch_tokens counts both sides" in out
    code, out, _ = regard("data", "check", pairs_file)
    assert "longest line" in out
