"""Runs seen from outside: every changed setting is found, figures have their measure, and folders their names."""

import copy
import dataclasses
import datetime
import inspect
import json
import logging
import math
import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.base.digests import with_digest
from regard.base.errors import RegardError, Stopped
from regard.base.locks import try_lock
from regard.base.numbers import group_digits
from regard.corpora.phrasebook import make_pairs
from regard.evaluation import bleu
from regard.runs import data_lookup, dry_run, lists, prepare, resolve, resume, run_report, speed, tracking, train
from regard.runs import load as load_module
from regard.runs import run as run_module
from regard.runs.ancestors import Ancestors, provenance, seen_in_training
from regard.runs.compose import compose_recipe
from regard.runs.data_lookup import choose_split, is_whole_file, refuse_reading, with_data_found
from regard.runs.load import load_classifier, load_language_model, load_translator
from regard.runs.recipe import Start, compose
from regard.runs.resolve import CorpusFacts, describe_plan, is_small_file, small_corpus_defaults, validation_schedule
from regard.runs.run_report import MEASURES, effort, finding
from regard.runs.store import create, gallery, lock, remove
from regard.runs.store import folder as run_folder
from regard.runs.store import list as run_list
from regard.runs.store.facts import BEGUN, REPORT_MARK, is_report, parent_of, read_facts, read_note
from regard.runs.store.folder import (
    MAY_CHANGE,
    MAY_MOVE,
    Tokenizers,
    _check_kept,
    average_weights,
    build_model,
    forbidden_tokens,
    moments,
    open_recipe,
    read_weights,
    recorded_unseen,
    set_weights,
    unseen_bytes,
)
from regard.runs.store.history import History, read_metrics
from regard.runs.store.list import compare_runs, describe, find_runs, list_runs, short_names, size_on_disk
from regard.runs.store.lock import BEGINNING, check_free, claimed, free_folder, tidy
from regard.runs.tasks.language import evaluation as language_evaluation
from regard.runs.tasks.language.evaluation import no_bits_per_character
from regard.runs.tasks.task import find_task, task_of
from regard.runs.tasks.translation import back_translation, evaluation
from regard.runs.tasks.translation import data as translation_data
from regard.runs.tasks.translation.search import one_beam
from regard.runs.tracking import MLflow, scalars
from regard.systems.catalogue import SYSTEMS
from regard.systems.translator import BY_CORPUS
from regard.text.corpus import open_corpus
from regard.text.pairs import Pairs
from regard.text.readers.sources import GivenLines
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.checkpoint import load_tensors, save_tensors, weights_digest
from regard.training.distributed import Group
from regard.training.loop import Trainer

DEFAULTS = Path(__file__).parents[2] / "golden" / "defaults.json"
SHORT = {"steps": 6, "evaluate_every": 2, "batch_tokens": 128, "threads": 1, "warmup": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def translator(folder):
    """A run that kept the weights of its last two validations and snapshots of two moments."""
    pairs = make_pairs(120, seed=5, longest=6)
    (folder / "pairs.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
    training = SHORT | {"keep": 2, "snapshots": 2}
    how = {"data": {"tokenizer": "word"}, "training": training, "model": {"width": 8, "embedding": 8}}
    return regard.train("seq2seq", data=str(folder / "pairs.tsv"), run=folder / "translator", size="tiny", settings=how)


@pytest.fixture(scope="module")
def counted(folder):
    (folder / "text.txt").write_text("".join(f"line {n} of the text\n" for n in range(200)), encoding="utf-8")
    return regard.train("ngram", data=str(folder / "text.txt"), run=folder / "counted")


# -- a recipe that was changed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_every_setting_that_was_changed_is_found(system, tmp_path):
    """All but where and in how many parts it is computed, and where its data are."""
    tree = json.loads(json.dumps(compose(system, "tiny").tree()))
    for part, values in tree.items():
        for name in values if isinstance(values, dict) else [None]:
            other = json.loads(json.dumps(tree))
            if name is None:
                other[part] = "another"
            else:
                other[part][name] = "another"
            may = (part == "training" and name in MAY_CHANGE) or (part == "data" and name in MAY_MOVE)
            if may:
                _check_kept(tree, other, tmp_path)
            else:
                key = part if name is None else f"{part}.{name}"
                with pytest.raises(RegardError, match=rf"has been modified: {key} was .* and is now 'another'"):
                    _check_kept(tree, other, tmp_path)
    assert set(MAY_MOVE) == {"corpus", "also", "monolingual", "translator"}
    assert set(MAY_CHANGE) == {"accumulate", "capture", "checkpoint_every", "compile", "device", "shard", "threads"}


def test_a_run_opens_with_the_recipe_it_was_made_with_and_no_other(counted, tmp_path):
    copy = shutil.copytree(counted.folder, tmp_path / "copy")
    assert open_recipe(copy).model == counted.recipe.model
    text = (copy / "recipe.toml").read_text()
    (copy / "recipe.toml").write_text(text.replace("order = 3", "order = 4"))
    assert text != (copy / "recipe.toml").read_text()
    with pytest.raises(RegardError, match=r"model\.order was 3 and is now 4"):
        open_recipe(copy)


# -- weights ---------------------------------------------------------------------------------------------------------


def test_the_average_is_the_mean_of_the_last_validations_alone(translator):
    kept = sorted((translator.folder / "kept").glob("*.safetensors"), key=lambda path: int(path.stem))
    assert [int(path.stem) for path in kept] == [4, 6]
    one, two = (load_tensors(path)[0] for path in kept)
    for name, weight in average_weights(translator.folder, 2).items():
        assert torch.allclose(weight, (one[name] + two[name]) / 2, atol=1e-7)
        assert weight.dtype == one[name].dtype
    assert all(torch.equal(weight, two[name]) for name, weight in average_weights(translator.folder, 1).items())
    for count, said in ((3, "has the weights of only 2 validations"), (0, "at least 1")):
        with pytest.raises(RegardError, match=said):
            average_weights(translator.folder, count)


def test_weights_of_a_step_are_those_of_that_step(translator):
    found = moments(translator.folder)
    assert list(found) == sorted(found)
    assert {4, 6} <= set(found)
    for step, path in found.items():
        assert int(path.stem) == step
        for name, weight in read_weights(translator.folder, str(step)).items():
            assert torch.equal(weight, load_tensors(path)[0][name])
    with pytest.raises(RegardError, match="no weights for step 5: choose one of the steps"):
        read_weights(translator.folder, "5")
    with pytest.raises(RegardError, match="must be best, last, or a step"):
        read_weights(translator.folder, "newest")
    last, six = read_weights(translator.folder, "last"), load_tensors(found[6])[0]
    assert all(torch.equal(last[name], six[name]) for name in six)


def test_lost_best_weights_are_not_replaced_by_the_last_in_silence(translator, tmp_path):
    copy = shutil.copytree(translator.folder, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    with pytest.raises(RegardError, match=r"model\.safetensors is missing: restore it, or use --weights last"):
        read_weights(copy)
    assert read_weights(copy, "last")


def test_one_validation_can_be_averaged_with_itself(translator, tmp_path):
    copy = shutil.copytree(translator.folder, tmp_path / "copy")
    first, last = sorted((copy / "kept").glob("*.safetensors"), key=lambda path: int(path.stem))
    first.unlink()
    kept = load_tensors(last)[0]
    assert all(torch.equal(weight, kept[name]) for name, weight in average_weights(copy, 1).items())


def test_what_an_interrupted_beginning_left_is_removed(translator, tmp_path):
    copy = shutil.copytree(translator.folder, tmp_path / "copy")
    before = sorted(path.relative_to(copy) for path in copy.rglob("*"))
    left = [copy / BEGINNING, *(place / f".{name}.0a1b2c3d.part" for place in (copy, copy / "kept", copy / "snapshots")
                                for name in ("model.safetensors",))]  # fmt: skip
    for path in left:
        path.write_text("x")
    tidy(copy)
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before


# -- going on --------------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_unchanged_keeps_its_recipe_as_it_was_written(translator, folder, monkeypatch, capsys):
    copy = shutil.copytree(translator.folder, folder / "goes on")
    (copy / "recipe.toml").write_text((copy / "recipe.toml").read_text() + "# a remark of mine\n")
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    regard.resume(copy)
    assert set(threads) == {1}
    assert f"{copy} is already finished, after 6 steps." in capsys.readouterr().err
    with pytest.raises(RegardError, match="track must be one of tensorboard, mlflow"):
        regard.resume(copy, track="paper")
    for settings, said in (
        ({"model": {"width": 9}}, "A run cannot change its model.width; `regard resume` accepts only changes of"),
        ({"training": {"seed": 2}}, "cannot change its training.seed"),
        ({"training": {"capture": "off"}}, "training.capture, which decides which pairs share a batch"),
    ):
        with pytest.raises(RegardError, match=re.escape(said)):
            regard.resume(copy, settings=settings)
    assert (copy / "recipe.toml").read_text().endswith("# a remark of mine\n")
    regard.resume(copy, settings={"training": {"checkpoint_every": 7}})
    written = (copy / "recipe.toml").read_text()
    assert "checkpoint_every = 7" in written
    assert "remark" not in written


def test_best_weights_must_be_there_once_there_are_any(tmp_path):
    for best_step in (0, 1):
        at = SimpleNamespace(best_step=best_step, finished=False, step=3)
        trainer = SimpleNamespace(
            folder=tmp_path, restore=lambda: None, progress=at, group=SimpleNamespace(is_first=True)
        )
        if best_step:
            with pytest.raises(RegardError, match=r"model\.safetensors"):
                resume._restore(trainer)
        else:
            resume._restore(trainer)  # it stopped before its first validation


def test_several_processes_train_as_one_does(folder, capsys, monkeypatch):
    """Rank 0 of one: the same steps by the way of torchrun."""
    begun, write = [], train.write_facts

    def write_facts(made, *given, **named):  # a folder with run.json is a run, so its checkpoint is there before
        begun.append((made / "training.safetensors").exists())
        write(made, *given, **named)

    monkeypatch.setattr(train, "write_facts", write_facts)
    how = {"training": SHORT, "model": {"width": 8, "dropout": 0.1}, "data": {"tokenizer": "char"}}
    recipe = compose("lstm", "tiny", how)
    (folder / "short.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    recipe = recipe.replace(data={"corpus": str(folder / "short.txt")})
    run = train._train_together(Group(), recipe, folder / "together", None, (), "", time.perf_counter())
    assert "parameters, 1 processes on cpu" in capsys.readouterr().err
    alone = regard.train("lstm", data=str(folder / "short.txt"), run=folder / "alone", size="tiny", settings=how)
    said = capsys.readouterr().err
    assert "The training loss is measured with dropout, the validation loss without" in said
    assert re.search(rf"best validation .* at step \d+; 768 tokens in .*; saved in {alone.folder}", said)
    assert begun == [True, True]
    assert "short.txt: " in said
    assert f": {group_digits(alone.parameters)} parameters, on cpu" in said
    assert f"report: {alone.folder / 'report.html'}" in said
    for (name, one), (_, other) in zip(run.model.named_parameters(), alone.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    facts = [read_facts(one.folder) for one in (run, alone)]
    assert facts[0]["parameters"] == facts[1]["parameters"]
    assert facts[0]["files"] == facts[1]["files"]
    assert not any("processes" in one for one in facts)  # there was one


def test_a_model_that_does_not_fit_is_refused_at_its_last_byte(monkeypatch):
    """Weights, gradients and AdamW's two moments take four numbers of four bytes for each parameter."""
    for optimizer, copies in (("adamw", 4), ("muon", 3), ("sgd", 2)):
        recipe = compose("lstm", "tiny", {"model": {"width": 8}, "training": {"optimizer": optimizer}})
        tokenizer = Tokenizer.train(["abc"], "char")
        tokenizers = Tokenizers(tokenizer, None)
        numbers = sum(weight.numel() for weight in build_model(recipe, tokenizers, drawn=False).parameters())
        monkeypatch.setattr(prepare, "device_memory", lambda device, room=4 * copies * numbers: room)
        prepare.check_room(recipe, tokenizers)
        monkeypatch.setattr(prepare, "device_memory", lambda device, room=4 * copies * numbers: room - 1)
        with pytest.raises(RegardError, match="Reduce model"):
            prepare.check_room(recipe, tokenizers)


# -- runs side by side -----------------------------------------------------------------------------------------------


def changed(run, tmp_path, name, **facts):
    copy = shutil.copytree(run.folder, tmp_path / name)
    made = {**read_facts(copy), **facts}
    (copy / "run.json").write_text(json.dumps(with_digest(made)))
    return copy


def test_a_row_has_the_figures_of_its_run(translator, counted):
    row = describe(translator.folder)
    note = load_tensors(translator.folder / "model.safetensors")[1]
    assert (row["state"], row["step"], row["system"], row["size"]) == ("done", 6, "seq2seq", "tiny")
    assert row["parameters"] == translator.parameters
    assert row["measure"] == ("bleu" if "bleu" in note else "perplexity")
    assert row["best"] == pytest.approx(note["bleu"] if "bleu" in note else math.exp(note["validation_loss"]))
    assert row["best_step"] == note["step"]
    assert row["bytes"] == sum(path.stat().st_size for path in translator.folder.rglob("*") if path.is_file())
    plain = describe(counted.folder)
    assert (plain["state"], plain["step"], plain["measure"]) == ("done", None, "perplexity")
    assert (plain["from"], plain["why"]) == (None, None)


def test_whether_figures_can_be_compared_is_said(counted, translator, tmp_path):
    folder, facts = counted.folder, read_facts(counted.folder)
    assert compare_runs([folder, folder])["note"] == ""
    assert compare_runs([folder, folder])["settings"] == {}
    data = changed(counted, tmp_path, "data", corpus={**facts["corpus"], "checksum": "other"})
    assert "different data" in compare_runs([folder, data])["note"]
    assert list(compare_runs([folder, data])["settings"]) == ["data.checksum"]
    cut = changed(counted, tmp_path, "cut", files={**facts["files"], "tokenizer.json": "other"})
    assert "tokenizers differ" in compare_runs([folder, cut])["note"]
    machine = changed(counted, tmp_path, "machine", torch="0.1", device="abacus")
    found = compare_runs([folder, machine])
    assert found["note"] == ""
    assert found["settings"] == {"device": [facts["device"], "abacus"], "torch": [facts["torch"], "0.1"]}
    order = changed(counted, tmp_path, "order", recipe={**facts["recipe"], "model": {"order": 2}})
    assert compare_runs([folder, order])["settings"]["model.order"] == [3, 2]
    with pytest.raises(RegardError, match="Name at least two runs"):
        compare_runs([folder])
    assert short_names(["runs/one", "runs\\two/"]) == ["one", "two"]
    assert short_names(["a/one", "b/one"]) == ["a/one", "b/one"]


def test_runs_are_found_three_folders_deep_and_links_only_to_runs(counted, tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    shutil.copytree(counted.folder, deep / "in")
    shutil.copytree(counted.folder, deep / "d" / "too deep")
    shutil.copytree(counted.folder, tmp_path / ".hidden" / "run")
    (tmp_path / "link").symlink_to(counted.folder)
    (tmp_path / "link to a folder").symlink_to(tmp_path / "a")
    assert [path.relative_to(tmp_path).as_posix() for path in find_runs(tmp_path)] == ["a/b/c/in", "link"]
    assert size_on_disk(tmp_path / "link to a folder" / "b") > 0
    assert [Path(row["run"]).name for row in list_runs(tmp_path)] == ["in", "link"]
    for name, created in (("zebra", "2025-01-01T00:00:00+00:00"), ("ant", "2099-01-01T00:00:00+00:00")):
        changed(counted, tmp_path, name, created=created)
    assert [Path(row["run"]).name for row in list_runs(tmp_path)] == ["zebra", "in", "link", "ant"]  # newest last
    with pytest.raises(RegardError, match="There is no folder"):
        list_runs(tmp_path / "none")


# -- folders ---------------------------------------------------------------------------------------------------------


def test_a_free_name_is_the_first_that_is_free_and_gone_if_nothing_was_made(tmp_path):
    wanted = tmp_path / "runs" / "gpt-text"
    names = []
    for _ in range(3):
        with free_folder(wanted) as made:
            names.append(made.name)
    assert names == ["gpt-text", "gpt-text-2", "gpt-text-3"]
    with pytest.raises(ValueError, match="stop"), free_folder(wanted) as made:
        raise ValueError("stop")
    assert made.name == "gpt-text-4"
    assert not made.exists()
    with pytest.raises(ValueError, match="stop"), free_folder(tmp_path / "new" / "run"):
        raise ValueError("stop")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="stop"), claimed(tmp_path / "mine"):
        raise ValueError("stop")
    assert not (tmp_path / "mine").exists()
    (tmp_path / "theirs").mkdir()
    with pytest.raises(ValueError, match="stop"), claimed(tmp_path / "theirs"):
        raise ValueError("stop")
    assert list((tmp_path / "theirs").iterdir()) == []
    (tmp_path / "theirs" / "file").write_text("x")
    with pytest.raises(RegardError, match="already exists and is not a run"):
        check_free(tmp_path / "theirs")


def test_data_are_found_where_they_were_or_beside_the_run_or_here(counted, tmp_path, monkeypatch):
    run, here = tmp_path / "run", tmp_path / "here"
    run.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    recipe = counted.recipe.replace(data={"corpus": str(tmp_path / "gone" / "text.txt")})
    with pytest.raises(RegardError, match="is missing; Regard looked for"):
        with_data_found(run, recipe)
    for place in (here, run, tmp_path / "gone"):
        place.mkdir(exist_ok=True)
        (place / "text.txt").write_text("x\n")
        assert with_data_found(run, recipe).data.corpus == str(place / "text.txt")  # the nearest to the recipe first


def test_the_split_is_test_unless_there_is_none(counted):
    corpus = open_corpus(counted.recipe.data.corpus)
    assert choose_split(corpus, None) == "test"
    for splits, wanted in ((("train", "valid"), "valid"), (("train",), "train"), (("valid", "test"), "test")):
        some = dataclasses.replace(corpus, splits={name: corpus.splits[name] for name in splits})
        assert choose_split(some, None) == wanted
    with pytest.raises(RegardError, match="has no split 'dev'; its splits are train, valid, test"):
        choose_split(corpus, "dev")
    assert is_whole_file(counted.recipe.data.corpus, "all")
    assert not is_whole_file("phrasebook", None)
    with pytest.raises(RegardError, match="--split all reads a whole file, but phrasebook is not a file"):
        is_whole_file("phrasebook", "all")
    refuse_reading("", "utf-8")
    for columns, encoding in (("1,2", "utf-8"), ("", "latin-1")):
        with pytest.raises(RegardError, match="describes how to read another file"):
            refuse_reading(columns, encoding)


# -- settings that follow the corpus ---------------------------------------------------------------------------------


def test_a_file_is_small_below_its_bound(tmp_path):
    path = tmp_path / "text.txt"
    for size, small in ((resolve.SMALL_FILE - 1, True), (resolve.SMALL_FILE, False)):
        path.write_bytes(b"x" * size)
        assert is_small_file(str(path)) == small
    assert not is_small_file(None)
    assert not is_small_file("phrasebook")
    assert resolve.SMALL_FILE == 200_000


def test_a_corpus_is_small_if_it_would_be_read_more_than_a_hundred_times():
    settings = compose("lstm", "tiny").training
    settings = dataclasses.replace(settings, steps=1000, batch_tokens=1000, warmup=500, evaluate_every=900)
    assert small_corpus_defaults(settings, 10_000, 10, ()) == {}
    assert small_corpus_defaults(settings, 9_999, 10, ("training.steps",)) == {}
    found = small_corpus_defaults(settings, 20_000 // 3, 10, ())
    assert found == {"batch_tokens": 512, "steps": 1000, "warmup": 100, "evaluate_every": 26, "patience": 10}
    assert small_corpus_defaults(settings, 6_666, 700, ())["batch_tokens"] == 700
    fewer = small_corpus_defaults(settings, 2_000, 10, ())
    assert (fewer["batch_tokens"], fewer["steps"], fewer["evaluate_every"]) == (512, 391, 8)
    kept = small_corpus_defaults(settings, 2_000, 10, ("training.batch_tokens", "training.patience"))
    assert "patience" not in kept
    assert "batch_tokens" not in kept
    assert kept["steps"] == 200
    spent = small_corpus_defaults(settings, 2_000, 10, ("training.budget",))
    assert set(spent) == {"batch_tokens", "warmup", "evaluate_every"}
    recipe, notes = resolve.resolve(compose("lstm", "tiny", {"model": {"dropout": 0.1}}), CorpusFacts(2_000, 10))
    assert recipe.model.dropout == 0.1 or "model.dropout" not in recipe.given
    assert notes
    said = describe_plan(dataclasses.replace(settings, **fewer), 2_000)
    assert "at most 391 steps of 512 tokens (100 epochs), or until 10 validations bring no improvement" in said


@pytest.mark.parametrize(("budget", "many"), [("60s", 10), ("600s", 10), ("900s", 15), ("3600s", 60)])
def test_validations_are_spread_over_a_budget_in_seconds(budget, many):
    settings = compose("lstm", "tiny", {"training": {"budget": budget}}).training
    assert validation_schedule(settings, ()) == {"validations": many, "checkpoint_every": 0}
    assert validation_schedule(settings, ("training.evaluate_every",)) == {}
    assert validation_schedule(settings, ("training.checkpoint_every",)) == {"validations": many}
    assert validation_schedule(dataclasses.replace(settings, snapshots=90), ())["validations"] == 89
    assert validation_schedule(dataclasses.replace(settings, budget=""), ()) == {}


def test_a_gpu_with_room_takes_full_steps_of_as_many_tokens_in_all():
    settings = compose("transformer", "medium").training
    settings = dataclasses.replace(settings, batch_tokens=8192, steps=4000, warmup=400, learning_rate=1e-3,
                                   evaluate_every=400, checkpoint_every=200)  # fmt: skip
    assert resolve.ROOM == 16 * 2**30

    def chosen(settings=settings, memory=resolve.ROOM, given=(), tokens=10**9):
        return resolve.gpu_batch_defaults(settings, tokens, memory, given)

    assert chosen(memory=resolve.ROOM - 1) == {}
    found = chosen()
    assert found == {"batch_tokens": 32_768, "learning_rate": 0.002, "steps": 1000, "warmup": 100,
                     "evaluate_every": 200, "checkpoint_every": 100}  # fmt: skip
    assert "warmup" not in chosen(given=("training.warmup",))
    for given in ("training.batch_tokens", "training.learning_rate"):
        assert chosen(given=(given,)) == {}
    for tokens in (8191, 32_768):
        assert chosen(dataclasses.replace(settings, batch_tokens=tokens)) == {}
    assert chosen(tokens=20 * 16_384)["batch_tokens"] == 16_384


# -- where it comes from ---------------------------------------------------------------------------------------------


def test_how_much_of_held_out_text_an_ancestor_was_trained_on(counted):
    corpus = open_corpus(counted.recipe.data.corpus)
    test = list(corpus.splits["test"].hashes())
    parent = {"run": "parent", "corpus": {"name": "x", "checksum": "c"}, "weights": "w"}
    known = Ancestors((parent,), np.sort(np.array(test[:3], np.uint64)))
    (note,) = known.notes(corpus)
    share = f"{100 * 3 / len(test):.1f} %"
    assert note == f"3 of {len(test)} lines of test ({share}) are not held out: parent was already trained on them."
    one = Ancestors((parent, parent), np.array(test[:1], np.uint64)).notes(corpus)[0]
    assert "is not held out: parent or one of its ancestors was already trained on it." in one
    assert Ancestors((parent,)).notes(corpus) == ["No line of valid or test was in the training data of parent."]
    assert Ancestors().notes(corpus) == []
    unknown = Ancestors(({**parent, "unknown": "what parent was trained on"},)).notes(corpus)
    assert unknown == [
        "Lines of valid or test may have been trained on, since it is unknown what parent was trained on."
    ]
    assert provenance(parent) == "weights w, trained on x, checksum c"
    assert provenance({**parent, "unknown": "?"}) == "weights w, its text is unknown"
    assert known.among([test[0], 5]) == {test[0]}


def test_lines_that_occur_twice_count_twice(tmp_path):
    (tmp_path / "twice.txt").write_text("".join(f"line {n // 2} of the text\n" for n in range(400)))
    corpus = open_corpus(str(tmp_path / "twice.txt"))
    test = list(corpus.splits["test"].hashes())
    assert len(test) == 2 * len(set(test)) > 2
    parent = {"run": "parent", "corpus": {"name": "x", "checksum": "c"}, "weights": "w"}
    (note,) = Ancestors((parent,), np.array(test[:1], np.uint64)).notes(corpus)
    assert note.startswith(f"2 of {len(test)} lines of test ({100 * 2 / len(test):.1f} %) are not held out")


def test_only_bytes_that_the_text_does_not_have_are_never_written(counted, tmp_path):
    tokenizer = counted.tokenizer
    assert set(forbidden_tokens(tokenizer)) == {n for n in tokenizer.specials if n != tokenizer.eos}
    assert tokenizer.eos not in forbidden_tokens(tokenizer, [tokenizer.eos])
    assert {3, 4} <= set(forbidden_tokens(tokenizer, [4, 3]))
    (tmp_path / "text.txt").write_text("".join(f"bytes {n % 9}\n" for n in range(100)))
    run = regard.train("ngram", data=str(tmp_path / "text.txt"), run=tmp_path / "bytes",
                       settings={"data": {"tokenizer": "byte"}})  # fmt: skip
    unseen = unseen_bytes(run.tokenizer, np.array(run.tokenizer.encode("bytes 012345678\n")))
    seen = {run.tokenizer.tokens[n] for n in run.tokenizer.byte_pieces if n not in unseen}
    assert {"b", "y", "t", "e", "s"} <= seen
    assert len(unseen) == len(run.tokenizer.byte_pieces) - len(set(run.tokenizer.encode("bytes 012345678")))
    breaks = forbidden_tokens(run.tokenizer, one_line=True)
    assert {"\n", "\r", "\t"} <= {run.tokenizer.tokens[n] for n in breaks}


# -- words and numbers -----------------------------------------------------------------------------------------------

ROW = {"step": 2, "tokens": 20, "seconds": 1.0, "loss": 2.0, "perplexity": 7.389, "learning_rate": 0.1}
VALID = {**ROW, "step": 2000, "split": "valid", "loss": 1.5, "perplexity": 4.48}


def test_the_finding_is_the_best_validation_with_its_name():
    worse = {**VALID, "step": 4000, "loss": 1.6, "perplexity": 4.95}
    assert finding([ROW, VALID, worse], None) == "Perplexity on the validation split: 4.480, at step 2000."
    bleu = [{**VALID, "bleu": 10.0}, {**worse, "bleu": 12.5}]
    assert finding(bleu, None) == "BLEU on the validation split: 12.50, at step 4000."
    right = [{**VALID, "accuracy": 0.5}]
    assert finding(right, None) == "Accuracy on the validation split: 0.5000, at step 2000."
    assert finding([ROW], None) == ""
    assert finding([VALID], {"split": "test", "perplexity": 5.0}) == "Perplexity on the test split: 5.000."
    assert (
        finding([], {"split": "test", "bleu": {"score": 30.0}, "perplexity": 5.0}) == "BLEU on the test split: 30.00."
    )


def test_every_measure_has_its_name_and_unit():
    assert MEASURES == {
        "bleu": "BLEU", "chrf": "chrF", "accuracy": "accuracy", "macro_f1": "F1, mean over labels",
        "exact": "share of translations identical to their reference", "perplexity": "perplexity",
        "bits_per_character": "bits per character", "cross_entropy": "cross-entropy (nats)",
        "alignment_error_rate": "alignment error rate",
    }  # fmt: skip


def test_the_effort_is_that_of_the_last_row(counted):
    said = effort(counted, {"device": "abacus"}, [ROW, {**VALID, "tokens": 123, "seconds": 61.0}])
    assert said.startswith(f"{counted.parameters} parameters; 2000 steps over 123 tokens in ")
    assert said.endswith("1 min 01 s, on abacus.")


def test_curves_of_a_tracker_have_the_names_of_their_parts():
    assert scalars({**ROW, "note": "x", "bad": math.nan}) == {
        "train/tokens": 20.0, "train/seconds": 1.0, "train/loss": 2.0, "train/perplexity": 7.389,
        "train/learning_rate": 0.1,
    }  # fmt: skip
    assert scalars(VALID)["valid/loss"] == 1.5


def test_an_mlflow_run_goes_on_where_its_tracker_knows_it(tmp_path, monkeypatch):
    exceptions = ModuleType("mlflow.exceptions")
    exceptions.MlflowException = type("MlflowException", (Exception,), {})
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", exceptions)
    updated = []

    def update_run(number, status):
        updated.append((number, status))
        if number == "gone":
            raise exceptions.MlflowException

    tracker = MLflow.__new__(MLflow)
    tracker.client = SimpleNamespace(update_run=update_run)
    path = tmp_path / "mlflow.json"
    assert tracker._found(path, "here") == ""
    for content, found in (
        ('{"tracking_uri": "here", "run_id": "7"}', "7"), ('{"tracking_uri": "there", "run_id": "7"}', ""),
        ('{"tracking_uri": "here", "run_id": "gone"}', ""), ("{", ""), ("[1]", ""), ("{}", ""),
    ):  # fmt: skip
        path.write_text(content)
        assert tracker._found(path, "here") == found
    assert updated == [("7", "RUNNING"), ("gone", "RUNNING")]


def test_a_history_is_drawn_against_tokens_with_its_labels():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    axes = History([ROW, VALID]).plot("learning_rate")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens seen", "learning rate")
    assert [(line.get_label(), *line.get_xdata()) for line in axes.lines] == [("training", 20), ("validation", 20)]
    assert History([ROW, VALID]).validations == [VALID]
    with pytest.raises(RegardError, match="did you mean learning_rate"):
        History([ROW]).plot("learning_rat")


def test_a_history_asks_matplotlib_for_axes_and_names_them(monkeypatch):
    class Axes:
        def __init__(self):
            self.asked = []

        def __getattr__(self, name):
            return lambda *given, **named: self.asked.append((name, given, named))

    made = Axes()
    pyplot = ModuleType("matplotlib.pyplot")
    pyplot.subplots = lambda: ("figure", made)
    matplotlib = ModuleType("matplotlib")
    matplotlib.pyplot = pyplot
    monkeypatch.setitem(sys.modules, "matplotlib", matplotlib)
    assert History([ROW, VALID, {"tokens": 1, "step": 1}]).plot("learning_rate") is made
    assert made.asked == [
        ("plot", ((20,), (0.1,)), {"label": "training"}), ("plot", ((20,), (0.1,)), {"label": "validation"}),
        ("set_xlabel", ("tokens seen",), {}), ("set_ylabel", ("learning rate",), {}), ("legend", (), {}),
    ]  # fmt: skip
    with pytest.raises(RegardError, match="axes must be matplotlib axes, not a list"):
        History([ROW]).plot(axes=[])
    assert History([]).plot().asked[5:] == [("set_xlabel", ("tokens seen",), {}), ("set_ylabel", ("loss",), {}),
                                            ("legend", (), {})]  # fmt: skip


def test_a_list_of_a_program_is_one_file_for_each_content(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    one, same, other = (lists.as_file(data) for data in (["a", "b"], ("a", "b"), ["a", "c"]))
    assert one == same != other
    assert Path(one).read_bytes() == b"a\nb\n"
    pairs = Path(lists.as_file([("x", "ü"), ("y", "z")]))
    assert pairs.suffix == ".jsonl"
    assert [json.loads(line) for line in pairs.read_text("utf-8").splitlines()] == [
        {"source": "x", "target": "ü"}, {"source": "y", "target": "z"},
    ]  # fmt: skip
    assert lists.as_file("phrasebook") == "phrasebook"
    for wrong in ([], ["a\nb"], [("a", "b\tc")], [("a",)], ["a", 3]):
        with pytest.raises(RegardError):
            lists.as_file(wrong)
    assert list(lists.each_line(["a\r\n", "b\n", "c"])) == ["a", "b", "c"]
    assert os.listdir(tmp_path / "lists")


def test_what_only_the_training_loss_contains_is_said():
    plain = compose("transformer", "tiny", {"model": {"dropout": 0.0}, "training": {"label_smoothing": 0.0}})
    assert not any(value > 0 for name, value in vars(plain.model).items() if name.startswith("dropout"))
    assert "measured with" not in train.how_losses_differ(plain)
    both = compose("transformer", "tiny", {"model": {"dropout": 0.1}, "training": {"label_smoothing": 0.1}})
    said = train.how_losses_differ(both)
    assert "measured with dropout and label smoothing 0.1, the validation loss without" in said
    run = SimpleNamespace(recipe=plain)
    assert run_report._why_they_differ(run).count(".") == 1
    run.recipe = both
    assert "label smoothing (0.1)" in run_report._why_they_differ(run)
    assert "Dropout, used only in training" in run_report._why_they_differ(run)


@pytest.mark.parametrize(
    ("kind", "pretokenised", "unknown", "why"),
    [("word", True, 0, ""), ("word", False, 0, "where the spaces were"), ("char", False, 0, ""),
     ("bpe", False, 1, "1 tokens are <unk>")],
)  # fmt: skip
def test_bits_per_character_are_defined_where_tokens_determine_the_text(kind, pretokenised, unknown, why):
    tokenizer = SimpleNamespace(kind=kind, pretokenised=pretokenised)
    assert why in no_bits_per_character(tokenizer, SimpleNamespace(unknown=unknown))
    assert bool(why) == bool(no_bits_per_character(tokenizer, SimpleNamespace(unknown=unknown)))


def test_every_token_of_a_text_has_its_score_and_its_rivals(counted):
    ids = [counted.tokenizer.begin, *counted.tokenizer.encode("line 5 of the text")]
    size = counted.tokenizer.vocabulary
    scores, rivals = counted.token_scores(ids, top=size)
    assert len(scores) == len(rivals) == len(ids)
    assert scores[0] is rivals[0] is None
    for token, score, each in zip(ids[1:], scores[1:], rivals[1:], strict=True):
        assert len(each) == size
        assert dict(each)[token] == score
        assert sum(math.exp(value) for _, value in each) == pytest.approx(1, abs=1e-5)
        assert [value for _, value in each] == sorted((value for _, value in each), reverse=True)
    assert counted.token_scores(ids[1:])[0] == pytest.approx(scores[1:])
    assert counted.token_scores(ids[1:])[1] == []


def test_a_sample_of_a_run_is_what_generate_writes_with_the_seed_of_its_number(counted):
    task = task_of(counted)
    assert task.texts(counted, 2) == [counted.generate(seed=n, max_tokens=48, temperature=0.8) for n in (1, 2)]


def test_a_completed_line_is_what_generate_writes_up_to_its_end(counted):
    prompts = ["line 5 of", "", "line"]
    how = {"temperature": 0.0, "max_tokens": 40}
    whole = [counted.generate(prompt, lines=1, **how) for prompt in prompts]
    assert all(text.endswith("\n") for text in whole)
    assert list(counted.completions(prompts, **how)) == [text.removesuffix("\n") for text in whole]
    cut = [counted.generate(prompt, temperature=0.0, max_tokens=2) for prompt in prompts]
    assert list(counted.completions(prompts, temperature=0.0, max_tokens=2, rows=2)) == cut
    drawn = list(counted.completions(prompts, temperature=1.5, seed=3, before=4))
    assert drawn == list(counted.completions(prompts, temperature=1.5, seed=3, before=4, rows=1))  # by seed and number
    assert drawn[1:] == list(counted.completions(prompts[1:], temperature=1.5, seed=3, before=5))
    with pytest.raises(RegardError, match="rows must be at least 1, not 0"):
        list(counted.completions(prompts, rows=0))


def test_choices_are_those_of_the_sampling_that_is_asked_for(counted):
    plain, other = (
        counted.choices("line 5 line", how, top=5) for how in (None, regard.Sampling(repetition_penalty=9.0))
    )
    assert [one.drawn for one in plain] != [one.drawn for one in other]
    assert len(counted.choices("line", top=0)) == 0
    with pytest.raises(RegardError, match="top must be at least 0, not -1"):
        counted.choices("line", top=-1)


def test_a_damaged_line_of_a_learning_curve_is_named(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROW, VALID)) + "{\n" + json.dumps(ROW) + "\n")
    assert read_metrics(path) == [ROW, VALID, ROW]
    assert capsys.readouterr().err == f"note: {path} is damaged on line 3; the remaining lines are shown\n"


def test_counting_takes_no_longer_than_all_of_it(folder, counted):
    began = time.perf_counter()
    run = regard.train("ngram", data=counted.recipe.data.corpus, run=folder / "again")
    assert 0 <= read_facts(run.folder)["seconds"] <= time.perf_counter() - began


# -- doors -----------------------------------------------------------------------------------------------------------


def test_pairs_come_from_the_run_from_a_list_or_from_a_file_in_the_order_asked_for(translator, tmp_path):
    own = translator.corpus()
    assert list(translator.pairs(None)) == list(zip(own.splits["test"].sources, own.splits["test"].targets))
    assert list(translator.pairs(None, "valid")) == list(zip(own.splits["valid"].sources, own.splits["valid"].targets))
    given = [("a", "b"), ("c", "d")]
    assert list(translator.pairs(given)) == given
    file = tmp_path / "three.tsv"
    file.write_text("a\tb\tx\nc\td\ty\n")
    assert list(translator.pairs(str(file), columns="1,2")) == given
    assert list(translator.pairs(str(file), "all", columns="2,1")) == [("b", "a"), ("d", "c")]
    other = copy.copy(translator)
    other.recipe = translator.recipe.replace(data={"swap": True})
    two = tmp_path / "two.tsv"
    two.write_text("a\tb\nc\td\n")
    assert list(other.pairs(str(two))) == [("b", "a"), ("d", "c")]
    assert list(other.pairs(str(two), columns="1,2")) == given  # asked for in this order
    for wrong in ({"columns": "1,2"}, {"encoding": "latin-1"}):
        for data in (None, given):
            with pytest.raises(RegardError, match="describes how to read another file"):
                list(translator.pairs(data, **wrong))


def test_a_line_that_is_too_long_is_cut_only_if_asked(translator):
    longest = translator.recipe.data.longest
    word = translator.source_tokenizer.tokens[-1]
    for count, fits in ((longest, True), (longest + 1, False)):
        line = " ".join([word] * count)
        assert len(translator.source_tokens(line, 1, truncate=True)) == longest
        if fits:
            assert len(translator.source_tokens(line, 1)) == longest
        else:
            with pytest.raises(RegardError, match=f"Line 12,345 has {count} tokens, .* at most {longest}"):
                translator.source_tokens(line, 12345)
    tokens = translator._tokens_to_embed(word, 1)
    assert tokens.count(translator.source_tokenizer.eos) == 1
    with pytest.raises(RegardError, match="Text 3 is empty, so it has no vector"):
        translator._tokens_to_embed("  ", 3)


def test_a_score_is_of_its_line_token_by_token(counted):
    lines = ["line 5 of the text", "", "a line"]
    scores = list(counted.score(lines))
    for line, score in zip(lines, scores, strict=True):
        assert score.text == line
        expected = [*counted.tokenizer.encode(line), counted.tokenizer.eos]
        assert score.tokens == [counted.tokenizer.token(number) for number in expected]
        assert len(score.log_probabilities) == len(expected)
        assert score.log_probability == pytest.approx(sum(score.log_probabilities))
        assert all(value <= 0 for value in score.log_probabilities)
    again = list(counted.score(lines))
    assert scores == again
    assert scores[0] != again[2]
    assert scores[0] != lines[0]
    assert repr(scores[2]).startswith("LineScore(text='a line', log_probabilities=[")


def test_a_task_is_found_by_its_name_and_shows_only_what_it_can(counted):
    assert task_of(counted) is task_of(counted.recipe) is task_of("ngram") is find_task("language model")
    assert task_of("seq2seq").name == "translation"
    with pytest.raises(RegardError, match="There is no task 'none'; choose one of"):
        find_task("none")
    task = find_task("language model")
    asked = []
    run = SimpleNamespace(folder="x", trace=lambda *words, **options: asked.append((words, options)))
    task.look_inside(run, "trace", "text", "target", top=3, gradients=True, columns="1")
    assert asked == [(("text",), {"top": 3, "gradients": True})]
    with pytest.raises(RegardError, match="x is a language model: `inspect` has nothing to show for it"):
        task.look_inside(run, "none", "text")
    find_task("translation").look_inside(run, "trace", "text", "target")
    assert asked[-1] == (("text", "target"), {})


# -- what was trained on ---------------------------------------------------------------------------------------------


def family(run, tmp_path, ancestors, lines=(), **facts):
    """A copy of a run that says it was fine-tuned."""
    copy = changed(run, tmp_path, f"tuned{len(os.listdir(tmp_path))}", ancestors=ancestors, **facts)
    if len(lines):
        save_tensors(copy / "ancestors.safetensors", {"lines": torch.tensor(lines).view(torch.int64)})
    return copy


PARENT = {"run": "parent", "corpus": {"name": "x", "checksum": "c"}, "weights": "w"}


def test_the_share_of_a_text_that_was_trained_on_counts_each_line_and_says_by_whom(counted, tmp_path):
    train = list(open_corpus(counted.recipe.data.corpus).splits["train"])
    known, other = GivenLines((train[0], train[0], train[1], "not in it", " ")), GivenLines(("not in it", "nor this"))
    recipe = counted.recipe
    sentence = "3 of 4 lines (75.0 %) were trained on"
    alone = {"seen_in_training": sentence, "share_seen_in_training": 0.75}
    assert seen_in_training(counted.folder, recipe, known) == alone
    assert seen_in_training(counted.folder, recipe, GivenLines(())) == {
        "seen_in_training": "0 of 0 lines (0.0 %) were trained on", "share_seen_in_training": 0,
    }  # fmt: skip
    hashes = sorted([*GivenLines((train[0],)).hashes(), *GivenLines(("nor this",)).hashes()])
    lines = np.array(hashes, np.uint64).view(np.int64)
    child = family(counted, tmp_path, [{**PARENT, "lines": 2}], lines)
    assert seen_in_training(child, recipe, known) == {
        **alone, "seen_in_training": f"{sentence}, 2 of them by the runs that it started from",
    }  # fmt: skip
    assert seen_in_training(child, recipe, other) == {
        "seen_in_training": "1 of 2 lines (50.0 %) were trained on, 1 of them by the runs that it started from",
        "share_seen_in_training": 0.5,
    }
    unsure = family(counted, tmp_path, [{**PARENT, "unknown": "what parent read"}])
    assert seen_in_training(unsure, recipe, known) == {
        "seen_in_training": f"unknown: what parent read; at least {sentence}", "share_seen_in_training": None,
    }  # fmt: skip
    assert seen_in_training(unsure, recipe, other)["seen_in_training"] == "unknown: what parent read"
    gone = recipe.replace(data={"corpus": str(tmp_path / "gone.txt")})
    assert seen_in_training(counted.folder, gone, known)["seen_in_training"].startswith(
        f"unknown: The data that {counted.folder} was trained on is missing"
    )
    imported = recipe.replace(data={"corpus": ""})
    assert seen_in_training(counted.folder, imported, known)["seen_in_training"] == "unknown: the run was imported"
    damaged = family(counted, tmp_path, [3])
    assert "it does not record which run" in seen_in_training(damaged, recipe, known)["seen_in_training"]


def test_a_record_of_ancestors_is_whole_or_damaged(counted, tmp_path):
    for wrong in ({"run": "x"}, "parent", [3], [{**PARENT, "run": 3}], [{**PARENT, "corpus": "x"}], [{"run": "x"}]):
        with pytest.raises(RegardError, match=r"run\.json is damaged: it does not record which run"):
            Ancestors.of(family(counted, tmp_path, wrong))
    assert Ancestors.of(family(counted, tmp_path, [])).runs == ()
    assert Ancestors.of(family(counted, tmp_path, [{**PARENT, "lines": 0}, PARENT])).runs[1] == PARENT
    for tensors in ({"lines": torch.ones(2)}, {"other": torch.ones(2, dtype=torch.int64)}):
        copy = family(counted, tmp_path, [PARENT, {**PARENT, "lines": 2}])
        save_tensors(copy / "ancestors.safetensors", tensors)
        with pytest.raises(RegardError, match=r"ancestors\.safetensors is damaged: it has no digests of lines"):
            Ancestors.of(copy)


def test_a_child_inherits_the_lines_of_its_parent_and_adds_the_parents_own(counted, tmp_path):
    train = open_corpus(counted.recipe.data.corpus).splits["train"]
    own = sorted(set(train.hashes()))
    child = family(counted, tmp_path, [{**PARENT, "lines": 2}], np.array([5, own[0]], np.uint64).view(np.int64))
    shutil.copy(counted.recipe.data.corpus, child)  # its text is found beside it
    found = Ancestors.and_itself(child, "digest")
    assert found.lines.tolist() == sorted([5, *own])
    facts = read_facts(child)
    assert found.runs[1] == {**PARENT, "lines": 2}
    assert {name: found.runs[0][name] for name in ("run", "weights", "lines")} == {
        "run": child.name, "weights": "digest", "lines": len(list(train.hashes())),
    }  # fmt: skip
    assert found.runs[0]["corpus"] == {name: facts["corpus"][name] for name in ("name", "checksum")}
    assert found.runs[0]["recipe"]["data"]["corpus"] == "./text.txt"
    saved = tmp_path / "saved"
    saved.mkdir()
    found.save(saved)
    again = family(counted, tmp_path, list(found.runs))
    shutil.copy(saved / "ancestors.safetensors", again)
    assert Ancestors.of(again).lines.tolist() == found.lines.tolist()
    Ancestors().save(saved)  # a start that was killed had written them
    assert os.listdir(saved) == []


# -- from another run ------------------------------------------------------------------------------------------------


def test_what_a_run_takes_from_its_parent_cannot_be_set(counted, translator):
    parent = translator.folder
    for how, said in (
        ({"start": counted.folder}, "is an ngram, which is trained by counting, so it cannot be fine-tuned"),
        ({"system": "transformer"}, f"{parent} is a seq2seq: a transformer cannot start from its weights"),
        ({"size": "small"}, f"A run that starts from {parent} keeps its size, tiny: leave out --size"),
        *(({"settings": {"data": {name: "x"}}}, f"keeps its tokenizer: leave out --data.{name}")
          for name in ("tokenizer", "vocabulary", "normalise", "joint")),
        ({"settings": {"from": {"run": "x"}}}, "with --from RUN, or in Python with start="),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=re.escape(said)):
            compose_recipe(**{"system": None, "start": parent, **how})
    made = compose_recipe("seq2seq", start=parent, size="tiny", seed=7, budget="5s", data="phrasebook",
                          settings={"model": {"dropout": 0.25}})  # fmt: skip
    assert (made.system, made.size, made.start) == ("seq2seq", "tiny", Start(str(parent.resolve()), ""))
    assert (made.model.width, made.model.dropout) == (translator.recipe.model.width, 0.25)
    assert (made.training.seed, made.training.budget, made.data.corpus, made.data.header) == (
        7,
        "5s",
        "phrasebook",
        "auto",
    )
    with pytest.raises(RegardError, match=r"Name a system .* or a recipe file"):
        compose_recipe(None)


def test_a_recipe_that_starts_from_a_run_says_which_and_another_file_is_read_anew(translator, tmp_path):
    parent, recipe = translator.folder, tmp_path / "child.toml"
    recipe.write_text(f'system = "seq2seq"\nsize = "tiny"\n[from]\nrun = "{parent}"\nweights = "w"\n'
                      '[data]\ncorpus = "pairs.csv"\nheader = "yes"\n[model]\ndropout = 0.125\n')  # fmt: skip
    made = compose_recipe(None, recipe=recipe)
    assert (made.start, made.model.dropout, made.data.header) == (Start(str(parent.resolve()), "w"), 0.125, "yes")
    assert made.model.width == translator.recipe.model.width
    other = compose_recipe(None, recipe=recipe, data="other.csv")
    assert (other.data.corpus, other.data.header) == ("other.csv", "auto")
    recipe.write_text(recipe.read_text().replace(str(parent), str(tmp_path / "gone")))
    with pytest.raises(RegardError, match=r"child\.toml starts from the run .*gone, which is missing: restore it"):
        compose_recipe(None, recipe=recipe)
    assert compose_recipe(None, recipe=recipe, start=parent).start == Start(str(parent.resolve()), "w")


def test_another_run_of_the_same_name_is_not_what_a_recipe_starts_from():
    assert prepare._same_weights(Start("x"), "found") == Start("x", "found")
    assert prepare._same_weights(Start("x", "found"), "found") == Start("x", "found")
    with pytest.raises(RegardError, match="its weights have the digest other, but the recipe names found"):
        prepare._same_weights(Start("x", "found"), "other")


def test_what_was_decided_is_said_before_the_training(counted, translator, tmp_path, capsys):
    data = str(counted.recipe.data.corpus)
    for size in (None, "tiny"):
        prepare.prepare(compose_recipe("ngram", data=data, size=size))
        said = capsys.readouterr().err
        assert ("The size is tiny, because" in said) == (size is None)
        assert "No --data was given" not in said
    pairs = translator.recipe.data.corpus
    made = prepare.prepare(compose_recipe(None, start=translator.folder, data=pairs))
    known = "No pair of valid or test was in the training data of translator."  # drawn by hash, so the same ones
    assert known in capsys.readouterr().err
    assert (list(made.notes), made.origin["notes"][-1]) == ([known], known)
    assert [one["run"] for one in made.ancestors.runs] == ["translator"]
    stored = read_weights(translator.folder)
    assert all(torch.equal(weight, stored[name]) for name, weight in made.model.state_dict().items())
    assert made.recipe.start.weights == weights_digest(stored)
    with pytest.raises(RegardError, match=r"do not fit the weights of .*translator: remove the settings model\.\*"):
        prepare.prepare(compose_recipe(None, start=translator.folder, data=pairs, settings={"model": {"width": 12}}))


def test_bytes_that_the_parent_has_seen_are_not_unseen(translator, tmp_path):
    pieces = [1, 2, 3]
    tokenizer = SimpleNamespace(byte_pieces=pieces)
    parent = changed(translator, tmp_path, "parent", corpus={"name": "x", "unseen_bytes": [2, 3, "x", 9]})
    data = SimpleNamespace(origin={"unseen_bytes": [1, 2], "notes": ["a"]}, tokenizers=Tokenizers(tokenizer))
    recipe = translator.recipe
    for start, unseen in ((None, [1, 2]), (Start(str(parent)), [2])):
        made = prepare.Prepared(dataclasses.replace(recipe, start=start), data, None, notes=["b"])
        assert made.origin == {"unseen_bytes": unseen, "notes": ["a", "b"]}
    assert recorded_unseen(parent, tokenizer) == [2, 3]
    for corpus in ({"unseen_bytes": 3}, {}, "x"):
        assert recorded_unseen(changed(translator, tmp_path, f"c{corpus!r:.9}", corpus=corpus), tokenizer) == []


# -- reading ---------------------------------------------------------------------------------------------------------


def test_reading_for_the_vocabulary_is_shown_by_the_bytes_that_were_read(monkeypatch):
    shown = []

    @contextmanager
    def progress(title, total, unit):
        shown.append((title, total, unit))
        yield SimpleNamespace(advance=shown.append)

    monkeypatch.setattr(data_lookup, "progress", progress)
    monkeypatch.setattr(data_lookup, "SHOWN_BYTES", 6)
    lines = GivenLines(("ab", "cd", "é", "f", "ghijkl"))
    assert list(data_lookup.ShownLines(lines, "reading")) == list(lines.lines)
    assert shown == [("reading", lines.size, " bytes"), 6, 12]


def test_text_that_has_changed_or_was_not_recorded_is_refused(counted, tmp_path):
    facts = read_facts(counted.folder)
    for corpus, said in (
        (3, "it does not record the corpus of"),
        ({**facts["corpus"], "checksum": "c"}, "has changed"),
    ):
        with pytest.raises(RegardError, match=said):
            data_lookup.corpus_of(changed(counted, tmp_path, f"c{len(said)}", corpus=corpus), counted.recipe)
    with pytest.raises(RegardError, match="was imported without its text: name a text with --data"):
        with_data_found(tmp_path, counted.recipe.replace(data={"corpus": ""}))
    (tmp_path / "pairs.de").write_text("x\n")  # parallel files have the name with other endings
    found = with_data_found(tmp_path, counted.recipe.replace(data={"corpus": "/nowhere/pairs"}))
    assert found.data.corpus == str(tmp_path.resolve() / "pairs")


def test_text_is_translated_back_once_without_empty_lines_and_what_is_held_out(
    translator, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    corpus, asked = translator.corpus(), []
    held_out = corpus.splits["test"].targets[0]
    (tmp_path / "mono.txt").write_text(f"eins\n \nzwei  drei\n{held_out}\nvier\n")

    def translations(targets, **how):
        asked.append((list(targets), how))
        return ([SimpleNamespace(text="" if text == "vier" else f"{text.upper()} ")] for text in targets)

    monkeypatch.setattr(
        back_translation, "load_translator", lambda folder, device: SimpleNamespace(translations=translations)
    )
    data = {"monolingual": str(tmp_path / "mono.txt"), "translator": str(translator.folder)}
    recipe = translator.recipe.replace(data=data)
    for _ in range(2):
        found = back_translation.back_translated(recipe, corpus)
        assert list(zip(found.sources, found.targets)) == [("EINS", "eins"), ("ZWEI DREI", "zwei drei")]
        assert capsys.readouterr().err == (
            f"2 pairs from mono.txt, their sources generated by {translator.folder} (1 line without a translation and "
            "1 held-out ones left out)\n"
        )
    words = ["eins", "zwei  drei", held_out, "vier"]
    assert asked == [(words, {"beam": 1, "truncate": True, "min_tokens": 2})]  # a word and <eos>
    (made,) = (tmp_path / "cache" / "back-translation").iterdir()
    assert re.fullmatch(r"[0-9a-f]{32}\.tsv", made.name)  # `regard doctor --clear` knows it
    made.write_text(made.read_text() + "more\tmehr\n")
    assert len(back_translation.back_translated(recipe, corpus)) == 2  # a damaged file is made again
    (tmp_path / "mono.txt").write_text("vier\n")
    with pytest.raises(RegardError, match=r"No line of .*mono\.txt is left to learn from"):
        back_translation.back_translated(recipe, corpus)
    assert len(asked) == 3
    with pytest.raises(RegardError, match=r"There is no file 'none' to back-translate; check data\.monolingual"):
        back_translation.back_translated(recipe.replace(data={"monolingual": "none"}), corpus)


def test_a_prompt_that_ends_in_a_space_is_gone_on_with_a_token_that_begins_with_it(counted):
    run = copy.copy(counted)
    for kind, unseen, unfit in (
        ("bpe", (), [0, 2]), ("imported", (), [0, 2]), ("char", (), []), ("word", (), []), ("bpe", (1, 3), []),
        ("bpe", (1,), [0, 2]),
    ):  # fmt: skip
        run.tokenizer = SimpleNamespace(
            tokens=["<eos>", " a", "b", " "], kind=kind, vocabulary=4, specials=(0,), eos=0, begin=0, encode=list
        )
        run.unseen = unseen
        run.__dict__.pop("_without_space", None)
        assert run._without_space == unfit
        assert run.opening("b ").tokens == [0, "b"] + [" "] * (not unfit)
        assert list(run.opening("b ").unfit) == unfit
        for prompt, exact in (("b ", True), ("b", False), (" ", False), ("", False)):
            assert run.opening(prompt, exact=exact).tokens == [0, *prompt]
            assert not run.opening(prompt, exact=exact).unfit


def test_pairs_are_told_by_their_number_and_vocabularies_and_validated_without_line_breaks(
    translator, monkeypatch, capsys
):
    data = prepare.data_of(translator.folder, translator.recipe)
    name, count, size = data.corpus.name, len(data.train), data.tokenizers.target.vocabulary
    assert data.sentence == f"{name}: {count} training pairs, joint word vocabulary of {size}"
    other = dataclasses.replace(data.tokenizers, source=Tokenizer.train(["a b"], "word"))
    apart = dataclasses.replace(data, tokenizers=other)
    assert apart.sentence == f"{name}: {count} training pairs, word vocabulary of {other.source.vocabulary} and {size}"
    assert data.tokens == len(data.train.target)
    longest = max(len(data.train.source_of(n)) + len(data.train.target_of(n)) for n in range(count))
    assert data.facts(translator.recipe) == CorpusFacts(len(data.train.source) + data.tokens, longest, True)
    assert list(data.examples) == list(zip(data.references.sources, data.references.targets))
    for side in ("source", "target"):
        most = max(int(getattr(part, f"{side}_lengths").max()) for part in (data.train, data.valid))
        for context, fits in ((most, True), (most - 1, False), (None, True)):
            model = SimpleNamespace(context=None, source_context=None)
            setattr(model, {"source": "source_context", "target": "context"}[side], context)
            if fits:
                data._check_context(model)
            else:
                said = f"A {side} has {most} tokens including <eos>, .* {context}: raise .* data.longest {context - 1}"
                with pytest.raises(RegardError, match=said):
                    data._check_context(model)
    asked = []

    def translate(model, sources, **how):
        asked.append((len(sources), how))
        return ([SimpleNamespace(text_tokens=[])] for _ in sources)

    monkeypatch.setattr(translation_data, "translate", translate)
    recipe = translator.recipe.replace(training={"select": "bleu"})
    capsys.readouterr()
    found = data.validation(recipe, translator.model)(translator.model)
    assert capsys.readouterr().err.startswith("BLEU's tokenizer: 13a")
    ((sources, how),) = asked
    breaks = forbidden_tokens(
        data.tokenizers.target, unseen_bytes(data.tokenizers.target, data.train.target), one_line=True
    )
    assert (sources, how["forbidden"], how["beam"].width, how["engine"]) == (len(data.valid), breaks, 1, None)
    assert found.loss == pytest.approx(math.log(translator.evaluate("valid")["perplexity"]), rel=1e-4)
    assert data.validation(translator.recipe, translator.model)(translator.model).loss == found.loss
    assert len(asked) == 1  # without BLEU nothing is translated


def test_an_evaluation_of_translations_is_by_the_sources_lengths_and_its_own_seconds(translator):
    began = time.perf_counter()
    facts = translator.evaluate("valid", lengths=True, texts=True)
    assert 0 <= facts["seconds"] <= round(time.perf_counter() - began, 3) + 0.001
    pairs = translator.corpus().splits["valid"]
    classes = bleu.by_length(pairs.sources, facts["translations"], pairs.targets, tokenizer="13a")
    assert facts["by_length"] == [dataclasses.asdict(one) for one in classes]
    assert facts["sentences"] == len(pairs) == sum(one["sentences"] for one in facts["by_length"])
    assert (facts["direction"], facts["search"]) == ("source → target", "beam 5, length penalty 1")
    assert translator.evaluate("valid", beam=1)["search"] == "greedy"
    word, longest = translator.source_tokenizer.tokens[-1], translator.recipe.data.longest
    given = [(" ".join([word] * (longest + 1)), "x"), (word, "x"), (word, "")]
    found = translator.evaluate(data=given)
    assert (found["truncated_sources"], found["left_out_of_perplexity"], found["sentences"]) == (1, 2, 3)
    other = copy.copy(translator)
    other.translations = None  # refused before anything is translated
    with pytest.raises(RegardError, match="The references"):
        other.evaluate(data=[(word, "l &apos; eau")])
    long = " ".join([word] * (longest + 1))
    assert len(task_of(translator).answers(translator, [word, long])) == 2  # cut, for a page


def test_lines_of_a_file_are_numbered_and_drawn_through_all_its_parts(translator):
    word, longest = translator.source_tokenizer.tokens[-1], translator.recipe.data.longest
    long = " ".join([word] * (longest + 1))
    with pytest.raises(RegardError, match=f"Line 5 has {longest + 1} tokens"):
        list(translator.translations([word, long], before=(3, 1)))
    assert len(list(translator.translations([word, long], truncate=True))) == 2
    for look in (translator.trace, translator.calculation):
        with pytest.raises(RegardError, match="Line 1 has"):
            look(long)
    with pytest.raises(RegardError, match="trace must be a Trace or None"):
        translator.calculation(word, trace=3)
    how = {"temperature": 2.0, "seed": 3, "max_tokens": 8}
    lines = ["", word, f"{word} {word}", " ", word, word]
    drawn = [found[0].text for found in translator.translations(lines, **how)]
    assert (drawn[0], drawn[3], len(set(drawn)) > 2) == ("", "", True)
    assert [found[0].text for found in translator.translations(lines[3:], before=(3, 2), **how)] == drawn[3:]
    for wrong, said in (
        ({"beam": 2, "temperature": 1.0}, "beam searches, but sampling and temperature sample: give only one"),
        ({"length_penalty": 0.5, "top_k": 2}, "give only one of them"),
        ({"sampling": regard.Sampling(repetition_penalty=1.5)}, "Penalties, biases and constraints are for language"),
        ({"beam": 0}, "must be at least 1, not 0"), ({"beam": 10_001}, "must be at most 10000"),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=said):
            list(translator.translations([word], **wrong))
    assert one_beam(None, None) == regard.Beam(5, 1.0)
    assert one_beam(2, None) == regard.Beam(2, 1.0)
    assert one_beam(None, 0.0) == regard.Beam(5, 0.0)
    assert one_beam(regard.Beam(3), None) == regard.Beam(3)


def test_a_training_that_is_stopped_says_how_it_goes_on_and_has_its_page(folder, monkeypatch, capsys):
    def stop(trainer):
        trainer.save()
        raise Stopped(0)

    monkeypatch.setattr(Trainer, "train", stop)
    monkeypatch.setattr(train, "load", lambda made, device: (made, device))
    monkeypatch.setattr(train, "write_report", lambda run, examples: written.append(run))
    written, run = [], folder / "stopped"
    how = {"training": SHORT, "model": {"width": 8}, "data": {"tokenizer": "char"}}
    (folder / "few.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    with pytest.raises(Stopped):
        regard.train("lstm", data=str(folder / "few.txt"), run=run, size="tiny", settings=how)
    assert f"stopped at step 0; `regard resume {run}` continues from there\n" in capsys.readouterr().err
    assert written == [(run, "cpu")]


def test_an_evaluation_can_keep_the_loss_of_each_document(counted):
    facts = counted.evaluate("test", documents=True)
    documents = facts["documents"]
    assert sum(documents["tokens"]) == facts["tokens"]
    assert sum(documents["nats"]) == pytest.approx(facts["nats_per_token"] * facts["tokens"])
    assert "documents" not in counted.evaluate("test")
    assert facts["unknown_rate"] == facts["unknown_tokens"] / facts["tokens"]
    assert facts["bits_per_character"] is None or facts["bits_per_character"] == pytest.approx(
        facts["nats_per_token"] * facts["tokens"] / math.log(2) / facts["characters"]
    )


def test_the_code_of_ones_own_is_kept_with_the_run(translator, tmp_path, monkeypatch):
    code = SimpleNamespace(file=Path("x/mine.py"), digest="abc", source=b"class Mine: ...\n")
    monkeypatch.setattr(create, "is_own", lambda system: True)
    monkeypatch.setattr(create, "in_use", lambda system: code)
    (tmp_path / ".beginning").touch()
    create.write_facts(tmp_path, translator.recipe, translator.model, {"name": "n"}, processes=2, seconds=2.5)
    facts = read_facts(tmp_path)
    assert facts["code"] == {"file": "mine.py", "sha256": "abc"}
    assert (tmp_path / "mine.py").read_bytes() == code.source
    assert (facts["processes"], facts["seconds"], facts["seed"], facts["corpus"]) == (2, 2.5, 1, {"name": "n"})
    assert (facts["parameters"], facts["threads"], facts["files"]) == (translator.parameters, 1, {})
    assert facts["recipe"] == json.loads(json.dumps(translator.recipe.tree()))
    assert not (tmp_path / ".beginning").exists()  # now it is a run


def test_a_run_of_ones_own_code_uses_the_original_or_its_copy_once_that_was_named(tmp_path, monkeypatch, capsys):
    there = {"./mine.py:Mine": "new", f"{tmp_path}/mine.py:Mine": "old"}
    named = set()

    def locate(name):
        return SimpleNamespace(digest=there[name], name=name)

    monkeypatch.setattr(run_folder, "locate", locate)
    monkeypatch.setattr(run_folder, "was_named", lambda digest, place: (digest, str(place)) in named)
    monkeypatch.setattr(
        run_folder, "trust_copy", lambda code, place: SimpleNamespace(name=f"copy of {place}: {code.name}")
    )
    monkeypatch.setattr(run_folder, "require_trusted", lambda code, folder: SimpleNamespace(name=f"asked {code.name}"))

    def own(digest):
        return run_folder.own_code("./mine.py:Mine", {"code": {"file": "mine.py", "sha256": digest}}, tmp_path)

    assert own("new") == "asked ./mine.py:Mine"
    assert own("old") == f"asked {tmp_path}/mine.py:Mine"
    assert capsys.readouterr().err == ""
    named.add(("old", "mine.py"))
    assert own("old") == f"copy of mine.py: {tmp_path}/mine.py:Mine"
    assert capsys.readouterr().err == (
        f"note: ./mine.py is not the code that {tmp_path} was trained with; using the run's own copy, "
        f"{tmp_path}/mine.py\n"
    )


def test_without_a_validation_the_last_weights_are_the_best_and_counts_are_both(counted, translator, tmp_path, capsys):
    for weights in ("best", "last"):
        found = read_weights(counted.folder, weights)
        stored = load_tensors(counted.folder / "model.safetensors")[0]
        assert all(torch.equal(found[name], stored[name]) for name in stored)
    copy = shutil.copytree(translator.folder, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    tensors, note = load_tensors(copy / "training.safetensors")
    for best_step, told in ((0, True), (-1, True)):
        note["progress"]["best_step"] = best_step
        save_tensors(copy / "training.safetensors", tensors, note)
        last = read_weights(copy, "last")
        assert capsys.readouterr().err == ""
        assert all(torch.equal(weight, last[name]) for name, weight in read_weights(copy).items())
        assert ("has not been validated yet; using its last weights" in capsys.readouterr().err) == told
    (copy / "training.safetensors").unlink()
    with pytest.raises(RegardError, match="has no weights: its training never started; train it again"):
        read_weights(copy)


def test_the_mark_of_a_start_can_be_read_or_is_none(tmp_path, monkeypatch):
    (tmp_path / ".beginning").write_text(BEGUN)
    assert lock.was_begun(tmp_path)
    remove.check_run(tmp_path)  # so it may be removed

    def broken(path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "read_bytes", broken)
        assert not lock.was_begun(tmp_path)
    (tmp_path / ".beginning").write_text("x" * len(BEGUN.encode()))
    assert not lock.was_begun(tmp_path)
    with monkeypatch.context() as windows:  # there a folder with an open file cannot be removed
        windows.setattr(remove.sys, "platform", "win32")
        windows.setattr("regard.base.locks._take", lambda handle: None)
        with remove._held(tmp_path), open(tmp_path / ".lock"):
            pass
    (tmp_path / ".beginning").write_text(BEGUN)
    assert remove.remove_run(tmp_path) == []
    assert not tmp_path.exists()


def test_a_model_with_more_numbers_than_can_be_counted_does_not_fit(monkeypatch):
    def refuse(*given, **how):
        raise RuntimeError("Storage size calculation overflowed")

    monkeypatch.setattr(prepare, "build_model", refuse)
    with pytest.raises(RegardError, match=r"This model has 9\.2e\+18 parameters, and training it takes 1\.4e\+11 GiB"):
        prepare.check_room(compose("lstm", "tiny"), Tokenizers(Tokenizer.train(["abc"], "char")))


def test_a_budget_for_few_steps_is_said_to_be_short(folder, monkeypatch, capsys):
    (folder / "steps.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    for few, said in ((10**9, True), (0, False)):
        monkeypatch.setattr(train, "FEW_STEPS", few)
        how = {"training": {"threads": 1, "validations": 1}, "model": {"width": 8}, "data": {"tokenizer": "char"}}
        run = folder / f"few{few}"
        regard.train("rnn", data=str(folder / "steps.txt"), run=run, size="tiny", budget="0.05s", settings=how)
        err = capsys.readouterr().err
        assert (
            bool(re.search(r"Only \d+ steps? fit into this budget: use a longer --budget to learn more", err)) == said
        )


def test_another_corpus_is_read_in_the_order_of_the_runs_own(translator, tmp_path):
    other = copy.copy(translator)
    other.recipe = translator.recipe.replace(data={"swap": True})
    file = tmp_path / "two.tsv"
    file.write_text("".join(f"a{n}\tb{n}\n" for n in range(60)))
    for columns, first in (("", "b"), ("1,2", "a"), ("2,1", "b")):  # asked for in this order
        sources = other.corpus(str(file), columns=columns).splits["train"].sources
        assert {source[0] for source in sources} == {first}


def test_alignment_errors_come_from_the_attention_while_references_are_read(translator, monkeypatch):
    word = translator.source_tokenizer.tokens[-1]
    target = translator.tokenizer.tokens[-1]
    pairs = Pairs([f"{word} {word}"], [f"{target} {target}"], alignments=[{(0, 0, True), (1, 1, True)}])
    assert evaluation.alignment_error(translator, pairs) == {}  # it has no attention
    rows = len(translator.tokenizer.encode(pairs.targets[0])) + 1
    columns = len(translator.source_tokenizer.encode(pairs.sources[0])) + 1
    for matrix, links in ((np.eye(rows, columns), [(0, 0), (1, 1)]), (np.eye(rows, columns)[::-1], None)):
        monkeypatch.setattr(
            evaluation, "explain_hypotheses", lambda *given, matrix=matrix, **how: [SimpleNamespace(alignment=matrix)]
        )
        monkeypatch.setattr(evaluation, "alignment_error_rate", lambda gold, found: (gold, found))
        gold, found = evaluation.alignment_error(translator, pairs)["alignment_error_rate"]
        assert gold is pairs.alignments
        assert links is None or found == [links]


def test_pairs_are_served_in_recorded_shapes_on_a_gpu_unless_that_is_off(translator, monkeypatch):
    data, asked = prepare.data_of(translator.folder, translator.recipe), []
    monkeypatch.setattr(translation_data, "recordable", lambda model: model.recordable)
    monkeypatch.setattr(
        translation_data.ShapedPairBatches, "of", lambda batches, seconds: asked.append(seconds) or "shaped"
    )
    for device, recordable, training, seconds in (
        ("cuda", True, {}, math.inf), ("cuda", True, {"budget": "9s"}, 9.0), ("cuda", True, {"capture": "off"}, None),
        ("cuda", False, {}, None), ("cpu", True, {}, None),
    ):  # fmt: skip
        model = SimpleNamespace(device=torch.device(device), recordable=recordable, context=None)
        made = data.batches(translator.recipe.replace(training=training), model)
        assert (made == "shaped") == (seconds is not None)
        assert asked == ([] if seconds is None else [seconds])
        asked.clear()


def test_texts_of_an_evaluation_have_their_sources_and_references(translator):
    reading = {"data": None, "columns": "", "encoding": "utf-8"}
    task, pairs = task_of(translator), translator.corpus().splits["valid"]
    found = task.evaluate(translator, "valid", texts=True, beam=2, length_penalty=0.5, **reading)
    assert found["texts"]["sources"] == tuple(pairs.sources)
    assert found["texts"]["references"] == tuple(pairs.targets)
    beam = regard.Beam(2, 0.5)
    assert found["texts"]["translations"] == [one[0].text for one in translator.translations(pairs.sources, beam=beam)]
    assert found["search"] == "beam 2, length penalty 0.5"
    plain = task.evaluate(translator, "valid", by_length=True, **reading)
    assert ("texts" in plain, "by_length" in plain, plain["search"]) == (False, True, "beam 5, length penalty 1")


def test_an_n_gram_shows_its_counts_as_long_as_its_text_is_there(counted):
    found = counted._counted()
    assert found is not None
    other = copy.copy(counted)
    other.recipe = counted.recipe.replace(data={"corpus": "/nowhere/text.txt"})
    assert other._counted() is None


@pytest.mark.parametrize(
    ("kind", "closing", "ends", "stops"),
    [("imported", 5, {5, 1}, ()), ("imported", 2, {1}, ("<end>",)), ("bpe", 5, {1}, ("<end>",))],
)
def test_an_answer_ends_at_its_symbol_or_before_its_words(counted, kind, closing, ends, stops):
    run = copy.copy(counted)
    run.tokenizer = SimpleNamespace(kind=kind, specials=(5,), eos=1, begin=0, encode_template=lambda text: [closing])
    run.__dict__["template"] = SimpleNamespace(closing="<end>")
    assert run.reply_ends() == (frozenset(ends), stops)
    run.tokenizer.begin = 1  # where a line's end is also a text's
    assert run.reply_ends() == ((frozenset(ends), stops) if not stops else (frozenset(), stops))


def test_what_was_found_out_of_the_data_is_said_before_a_training(translator, counted, folder, capsys):
    pairs = translator.recipe.data.corpus
    long = " ".join(["word"] * 300)
    (folder / "long.tsv").write_text(Path(pairs).read_text(encoding="utf-8") + f"{long}\tlong\n", encoding="utf-8")
    by_corpus = {"model": {"dropout": BY_CORPUS}}
    prepare.prepare(compose_recipe("transformer", data=str(folder / "long.tsv"), size="tiny", settings=by_corpus))
    said = capsys.readouterr().err
    for words in ("Drawn by hash: ", "Vocabulary: ", "train: ", "Dropout: ", "Training: "):
        assert words in said
    regard.train("ngram", data=counted.recipe.data.corpus, run=folder / "counted again")
    said = capsys.readouterr().err
    assert (
        f"text.txt: {len(counted.tokenizer.encode_text([*counted.corpus().splits['train']])[0])} training tokens"
        in said
    )
    assert "too few distinct counts" in said  # the model's own note
    assert re.search(r"counted \d+ n-grams in .*; validation loss \d\.\d{4}; saved in .*counted again\n", said)
    assert f"report: {folder / 'counted again' / 'report.html'}\n" in said


def test_the_same_seed_draws_the_same_weights_and_another_others(counted):
    def weights(seed):
        settings = {"model": {"width": 8}, "training": {"threads": 1}, "data": {"tokenizer": "char"}}
        data = counted.recipe.data.corpus
        return prepare.prepare(compose_recipe("rnn", data=data, size="tiny", seed=seed, settings=settings)).model

    one, same, other = (list(weights(seed).parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_loaded_model_evaluates_with_faster_code_on_its_device(translator, monkeypatch):
    asked = []
    monkeypatch.setattr(load_module, "get_ready", lambda device: asked.append(("ready", device.type)))
    monkeypatch.setattr(load_module, "install", lambda model: asked.append(("installed", model.training)))
    run = regard.load(translator.folder, device="cpu")
    assert asked == [("ready", "cpu"), ("installed", True)]  # while the weights are read
    assert not run.model.training
    monkeypatch.setattr(run_module, "install", lambda model: asked.append(("again", model)))
    run._engines = {1: 2}
    assert run.to("cpu") is run
    assert (asked[-1], run._engines) == (("again", run.model), {})


def test_bars_reach_the_end_of_what_is_read(counted, translator, monkeypatch, tmp_path):
    shown = []

    @contextmanager
    def progress(title, total, unit=""):
        done = []
        yield SimpleNamespace(advance=lambda amount, note="": done.append(amount), reach=lambda *given: None)
        shown.append((title, total, sum(done), unit))

    for module in (language_evaluation, evaluation, back_translation):
        monkeypatch.setattr(module, "progress", progress)
    facts = counted.evaluate("valid")
    found = translator.evaluate("valid", beam=1)
    tokens, sentences = facts["tokens"], found["sentences"]
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mono.txt").write_text("eins\nzwei\ndrei\n")
    own = SimpleNamespace(translations=lambda targets, **how: ([SimpleNamespace(text="x")] for _ in targets))
    monkeypatch.setattr(back_translation, "load_translator", lambda folder, device: own)
    data = {"monolingual": str(tmp_path / "mono.txt"), "translator": str(translator.folder)}
    back_translation.back_translated(translator.recipe.replace(data=data), translator.corpus())
    assert shown == [
        ("evaluating valid", tokens, tokens, " tokens"),
        ("translating valid", sentences, sentences, " sentences"),
        ("back-translating mono.txt", 3, 3, " lines"),
    ]


def test_a_training_is_refused_before_anything_is_read(translator, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "prepare", None)
    recipe = compose("lstm", "tiny", {"data": {"corpus": str(tmp_path / "none.txt")}})
    with pytest.raises(RegardError, match="already exists: `regard resume"):
        train.train_recipe(recipe, translator.folder)
    with pytest.raises(RegardError, match="track must be one of tensorboard, mlflow"):
        train.train_recipe(recipe, tmp_path / "run", track="paper")
    assert not (tmp_path / "run").exists()


# -- the estimate ----------------------------------------------------------------------------------------------------


def test_an_estimate_is_what_three_steps_say_of_all_steps(counted, monkeypatch):
    probed = []
    monkeypatch.setattr(dry_run, "probe_peak_memory", lambda trainer, steps: probed.append(steps))
    monkeypatch.setattr(dry_run, "measure_steps", lambda trainer, steps: (0.25 * (steps == 3), 100.4))

    def estimate(**training):
        settings = {
            "model": {"width": 8},
            "training": SHORT | {"patience": 0} | training,
            "data": {"tokenizer": "char"},
        }
        return dry_run.dry_run(compose("rnn", "tiny", settings).replace(data={"corpus": counted.recipe.data.corpus}))

    facts = estimate()
    tokens = facts["training_tokens"]
    assert (facts["system"], facts["corpus"], facts["threads"]) == ("rnn", "text.txt", 1)
    assert (facts["tokens_per_step"], facts["tokens_per_second"], facts["seconds_per_step"]) == (100, 402, 0.25)
    assert (facts["steps"], facts["epochs"], facts["training_time"]) == (6, round(6 * 100.4 / tokens, 2), "1.5 s")
    assert probed == [6]
    assert facts["weights_gradients_optimizer_bytes"] == 4 * 2 * facts["parameters"]  # no step, so no moments yet
    assert "warning" not in facts
    often = math.ceil(100 * tokens / 100.4)
    assert "more than 100 epochs" in estimate(steps=often + 1)["warning"]
    assert "warning" not in estimate(steps=often - 1)
    assert "warning" not in estimate(steps=often + 1, patience=1)
    assert estimate(budget="2s", validations=2)["steps"] == 8
    assert estimate(budget="1004", validations=2)["steps"] == 10

    def fail(error):
        def measure(trainer, steps):
            raise error

        monkeypatch.setattr(dry_run, "measure_steps", measure)

    fail(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RegardError, match=r"cpu has too little memory .* try --training\.accumulate 4, which saves"):
        estimate(accumulate=2)
    fail(RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        estimate()
    monkeypatch.setattr(dry_run, "measure_steps", lambda trainer, steps: fail_with_folder(trainer.folder))
    with pytest.raises(RegardError, match=r"^The loss became nan\.$"):
        estimate()


def fail_with_folder(folder):
    raise RegardError(f"The loss became nan; the last good weights are kept in {folder}.")


def test_an_estimate_of_counting_needs_no_step(counted):
    facts = dry_run.dry_run(counted.recipe)
    assert set(facts) == {"system", "corpus", "vocabulary", "training_tokens", "note"}
    assert (facts["system"], facts["vocabulary"]) == ("ngram", counted.tokenizer.vocabulary)


# -- one run's memory of itself --------------------------------------------------------------------------------------


def test_a_run_keeps_the_engines_of_the_last_four_ways_of_decoding(counted):
    run = copy.copy(counted)
    run._engines, built = {}, []

    def engine(how):
        return run._engine_for(how, lambda: built.append(how) or f"engine {how}")

    assert [engine(how) for how in (1, 2, 3, 4, 1)] == [f"engine {how}" for how in (1, 2, 3, 4, 1)]
    assert built == [1, 2, 3, 4]
    engine(5)  # takes the place of the first
    assert list(run._engines) == [2, 3, 4, 5]
    engine(1)
    assert built == [1, 2, 3, 4, 5, 1]


def test_a_text_as_long_as_the_context_is_read_and_one_token_more_is_not(counted):
    run = copy.copy(counted)
    line = "line 5 of the text"
    longest = 1 + len(counted.tokenizer.encode(line))
    for context, fits in ((longest, True), (longest - 1, False), (None, True)):
        run.model = SimpleNamespace(context=context)
        if fits:
            assert run._tokens_to_embed(line, 1) == [run.tokenizer.begin, *run.tokenizer.encode(line)]
        else:
            with pytest.raises(
                RegardError, match=f"Text 4 has {longest} tokens, but the model reads at most {context}"
            ):
                run._tokens_to_embed(line, 4)
    with pytest.raises(RegardError, match="Text 2 is empty, so it has no vector"):
        run._tokens_to_embed("", 2)
    with pytest.raises(RegardError, match="pool must be one of mean, last"):
        counted.embed(["a"], pool="max")
    assert repr(counted) == (
        f"LanguageRun({str(counted.folder)!r}: ngram, {group_digits(counted.parameters)} parameters, on cpu)"
    )


def test_a_run_of_another_kind_is_refused_with_the_right_one(counted, translator):
    with pytest.raises(RegardError, match="is an ngram, so kind must be LanguageRun, not TranslationRun"):
        regard.load(counted.folder, regard.TranslationRun)
    for load, run, verb in (
        (load_translator, counted, "generate"), (load_language_model, translator, "translate"),
        (load_classifier, translator, "translate"),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=f"use `regard {verb} {run.folder}`"):
            load(run.folder)
    for weights in ("last", "4"):
        loaded = load_translator(translator.folder, weights=weights).model.state_dict()
        stored = read_weights(translator.folder, weights)
        assert all(torch.equal(loaded[name], stored[name]) for name in stored)
    mean, loaded = average_weights(translator.folder, 2), load_translator(translator.folder, average=2)
    assert all(torch.equal(loaded.model.state_dict()[name], mean[name]) for name in mean)


def test_weights_in_half_precision_stay_so(translator):
    model = copy.deepcopy(translator.model)
    half = {name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}
    set_weights(model, dict(half), translator.folder)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    model = copy.deepcopy(translator.model)
    name = next(iter(half))
    set_weights(model, half | {name: half[name].float()}, translator.folder)  # one in full: it was trained so
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    with pytest.raises(RegardError, match=r"do not fit its recipe\.toml: one of the two has been modified"):
        set_weights(model, {name: half[name]}, translator.folder)


# -- curves elsewhere ------------------------------------------------------------------------------------------------


class Curves:
    def __init__(self, broken=()):
        self.rows, self.ended, self.closed, self.broken = [], [], 0, broken

    def add(self, row, when=None):
        if row["step"] in self.broken:
            raise OSError("no space")
        self.rows.append((row["step"], when))

    def end(self, step, texts):
        self.ended.append((step, texts))

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_tracker_gets_the_rows_that_it_lacks_at_their_time_and_is_closed(translator, monkeypatch, name):
    curves = Curves()
    for other, made in (("TensorBoard", "tensorboard"), ("MLflow", "mlflow")):
        monkeypatch.setattr(tracking, other, lambda folder, recipe, made=made: curves if made == name else None)
    began = datetime.datetime.fromisoformat(read_facts(translator.folder)["created"]).timestamp()
    with tracking.tracking(name, translator.folder, translator.recipe) as tracker:
        assert curves.rows == [(row["step"], began + row["seconds"]) for row in translator.history]
        tracker.add({"step": 99})
        tracker.end(100, [{"": "text"}])
        assert (curves.rows[-1], curves.ended, curves.closed) == ((99, None), [(100, [{"": "text"}])], 0)
    assert curves.closed == 1
    with pytest.raises(ValueError, match="stop"), tracking.tracking(name, translator.folder, translator.recipe):
        raise ValueError("stop")
    assert curves.closed == 2
    with tracking.tracking("", translator.folder, translator.recipe) as none:
        assert isinstance(none, tracking.NoTracker)


def test_a_tracker_that_fails_is_not_asked_again(capsys):
    curves = Curves(broken=[2])
    patient = tracking.Patient(lambda: curves)
    for step in (1, 2, 3):
        patient.add({"step": step}, 5.0)
    patient.end(3, [])
    patient.close()
    assert (curves.rows, curves.ended, curves.closed) == ([(1, 5.0)], [], 0)
    assert capsys.readouterr().err == (
        "note: the curves are no longer logged (OSError: no space); metrics.jsonl still records them\n"
    )
    assert isinstance(tracking.Patient(lambda: 1 / 0).tracker, tracking.NoTracker)


def test_trackers_get_every_setting_by_its_name_and_texts_as_blocks(translator):
    found, tree = tracking.hyperparameters(translator.recipe), translator.recipe.tree()
    assert (found["system"], found["size"]) == ("seq2seq", "tiny")
    assert {name for name in found if "." in name} == {
        f"{part}.{key}" for part in ("data", "model", "training") for key in tree[part]
    }
    assert found["model.width"] == 8
    assert tracking.as_markdown([{"": "one\ntwo"}, {"source": "a", "answer": "b"}]) == (
        "    one\n    two\n\n    source: a\n    answer: b"
    )
    tracking.check_tracker("", translator.recipe)
    with pytest.raises(RegardError, match="--track must be one of tensorboard, mlflow"):
        tracking.check_tracker("paper", translator.recipe)


class Client:
    """MLflow's client, as far as it is asked."""

    def __init__(self, where):
        self.where, self.logged, self.params, self.made = where, [], {}, []

    def get_experiment_by_name(self, name):
        self.made.append(name)

    def create_experiment(self, name, artifact_location):
        self.made.append((name, artifact_location))
        return "7"

    def create_run(self, number, run_name):
        self.made.append((number, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="mine"))

    def log_param(self, run, name, value):
        self.params[name] = value

    def get_metric_history(self, run, name):
        return [SimpleNamespace(step=step) for step in ((4, 2) if name == "train/loss" else ())]

    def log_batch(self, run, metrics):
        self.logged.append((run, metrics))

    def log_text(self, run, text, name):
        self.logged.append((run, text, name))

    def set_terminated(self, run):
        self.logged.append((run, "end"))


def test_an_mlflow_run_is_made_beside_the_runs_and_gets_what_it_lacks(translator, folder, monkeypatch, capsys):
    names = ("mlflow", "mlflow.exceptions", "mlflow.entities")
    modules = {name: ModuleType(name) for name in names}
    modules["mlflow"].MlflowClient = Client
    modules["mlflow.exceptions"].MlflowException = KeyError
    modules["mlflow.entities"].Metric = lambda name, value, then, step: (name, value, then, step)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "")  # and so it is afterwards what it was
        monkeypatch.delenv(name)
    for name in ("mlflow", "alembic"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    copy = shutil.copytree(translator.folder, folder / "tracked")
    tracker = MLflow(copy, translator.recipe)
    beside = f"sqlite:///{(folder.resolve() / 'mlflow.db').as_posix()}"
    assert tracker.client.where == beside
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == os.environ["DO_NOT_TRACK"] == "true"
    assert [logging.getLogger(name).level for name in ("mlflow", "alembic")] == [logging.WARNING] * 2
    assert tracker.client.made == ["regard", ("regard", (folder.resolve() / "mlflow").as_uri()), ("7", "tracked")]
    assert tracker.client.params == tracking.hyperparameters(translator.recipe)
    assert json.loads((copy / "mlflow.json").read_text()) == {"tracking_uri": beside, "run_id": "mine"}
    assert capsys.readouterr().err == f"to see the curves: mlflow ui --backend-store-uri {beside}\n"
    for step, split in ((4, None), (5, None), (1, "valid")):
        tracker.add({"step": step, "loss": 2.0} | ({"split": split} if split else {}), 3.5)
    assert tracker.client.logged == [
        ("mine", [("train/loss", 2.0, 3500, 5)]), ("mine", [("valid/loss", 2.0, 3500, 1)]),
    ]  # fmt: skip
    monkeypatch.setattr(tracking.time, "time", lambda: 7.25)
    tracker.add({"step": 6, "loss": 1.0})
    assert tracker.client.logged[-1][1][0][2] == 7250
    tracker.end(6, [])
    tracker.end(6, [{"": "text"}])
    tracker.close()
    assert tracker.client.logged[-2:] == [("mine", "    text", "what it writes.md"), ("mine", "end")]
    monkeypatch.setattr(Client, "update_run", lambda self, run, status: None, raising=False)
    monkeypatch.setattr(Client, "get_experiment_by_name", lambda self, name: SimpleNamespace(experiment_id="3"))
    assert MLflow(copy, translator.recipe).client.made == []  # it goes on with the run that it noted
    (copy / "mlflow.json").unlink()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    other = MLflow(copy, translator.recipe).client
    assert (other.where, other.made) == ("http://there", [("3", "tracked")])


# -- files of a run --------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_run_says_what_it_is(counted, tmp_path):
    def refused(folder):
        with pytest.raises(RegardError) as error:
            read_facts(folder)
        return str(error.value)

    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(empty) == f"{empty} is not a run: it has no run.json; `regard train` creates one."
    assert refused(tmp_path / "none").endswith("`regard train` creates one.")
    for name in ("model.safetensors", "training.safetensors"):
        (empty / name).touch()
        assert "it has weights but no run.json. Restore that file from a backup" in refused(empty)
        (empty / name).unlink()
    (empty / ".beginning").touch()
    assert refused(empty).endswith("is not a run yet: its training ended before the first step; train it again.")
    (empty / "run.json").write_text("[1]")
    assert refused(empty) == f"{empty / 'run.json'} is damaged; restore it, or train the run again."
    (empty / "run.json").write_text('{"format": 2, "regard": "9.9"}')
    assert "was written by Regard 9.9 in run format 2; this version reads format 1: install the version" in refused(
        empty
    )
    copy = shutil.copytree(counted.folder, tmp_path / "counted run")
    assert f"did you mean {copy}?" in refused(tmp_path / "countedrun")
    (copy / "run.json").write_text((copy / "run.json").read_text().replace('"seed": 1', '"seed": 2'))
    assert "is damaged or has been modified" in refused(copy)


def test_the_parent_of_a_run_is_the_first_of_its_ancestors():
    assert parent_of({"ancestors": [{"run": "p"}, {"run": "g"}]}) == "p"
    for facts in ({}, {"ancestors": []}, {"ancestors": "p"}, {"ancestors": ["p"]}, {"ancestors": [{"name": "p"}]}):
        assert parent_of(facts) is None


def test_the_note_of_weights_is_read_from_a_whole_file_alone(translator, tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(RegardError, match=r"There is no .*: no weights were saved, or the file was moved"):
        read_note(path)
    shutil.copy(translator.folder / "model.safetensors", path)
    assert read_note(path)["step"] == load_tensors(path)[1]["step"]
    save_tensors(path, {"a": torch.ones(2)}, {"step": 3})
    assert read_note(path)["step"] == 3
    save_file({"a": torch.ones(2)}, path, {"regard": "[1]"})
    with pytest.raises(RegardError, match="is damaged: its header was not written by Regard"):
        read_note(path)
    save_file({"a": torch.ones(2)}, path)
    assert read_note(path) == {}
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RegardError, match=r"cannot be read as safetensors \(.*\): it is damaged or truncated"):
        read_note(path)
    assert not is_report(path)
    path.write_text(f"<p>{REPORT_MARK}")
    assert is_report(path)
    assert not is_report(tmp_path)


def test_models_that_come_with_regard_have_names_and_are_never_written_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = gallery.gallery_names()
    assert names == sorted(names)
    assert "gallery/ngram" in names
    shipped = gallery.find_run(Path("gallery/ngram"))
    assert shipped == gallery.GALLERY / "ngram"
    assert gallery.find_run(Path("gallery")) == gallery.GALLERY
    assert gallery.find_run(Path("gallery/none")) == Path("gallery/none")
    assert (gallery.shown_name(shipped), gallery.shown_name(Path("runs/x"))) == ("gallery/ngram", "runs/x")
    assert (gallery.is_shipped(shipped), gallery.is_shipped(gallery.GALLERY), gallery.is_shipped(tmp_path)) == (
        True, False, False,
    )  # fmt: skip
    with pytest.raises(RegardError, match="gallery/ngram comes with Regard and is read-only"):
        gallery.check_own(shipped)
    gallery.check_own(tmp_path)
    (tmp_path / "gallery" / "ngram").mkdir(parents=True)  # one of ours comes first
    assert gallery.find_run(Path("gallery/ngram")) == Path("gallery/ngram")


def test_a_new_folder_has_the_name_of_its_work_and_is_gone_if_nothing_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = compose("lstm", "tiny").replace(data={"corpus": f"/x/a\nb{'c' * 200}.txt"})
    with lock.new_folder(recipe, None) as made:
        assert made == Path("runs") / f"lstm-ab{'c' * 98}"
        assert lock.was_begun(made)
        with pytest.raises(RegardError, match="Another process is using"), lock.new_folder(recipe, made):
            pass
        (made / "model.safetensors").touch()
    mine = tmp_path / "mine"
    with pytest.raises(ValueError, match="stop"), lock.new_folder(recipe, mine):
        raise ValueError("stop")
    assert not mine.exists()

    def begin():
        with lock.new_folder(recipe, mine) as made:
            (made / "recipe.toml").touch()
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        begin()
    assert sorted(path.name for path in mine.iterdir()) == [".beginning", ".lock", "recipe.toml"]
    with lock.new_folder(recipe, mine):  # begun here before: the same files are made again
        pass
    (mine / "mine.py").touch()  # a copy of one's own code
    lock.check_free(mine)
    for name in ("notes.txt", "metrics.jsonl"):
        (mine / name).touch()
        with pytest.raises(RegardError, match="already exists and is not a run: choose another --run"):
            lock.check_free(mine)
        (mine / name).unlink()
    (mine / ".beginning").write_text("of my novel")
    with pytest.raises(RegardError, match="already exists and is not a run"):
        lock.check_free(mine)
    (mine / "run.json").touch()
    with pytest.raises(RegardError, match=f"`regard resume {mine}` continues it, or choose another --run"):
        lock.check_free(mine)
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path / "link", mine / "run.json"):
        with pytest.raises(RegardError, match="already exists and is not a run"):
            lock.check_free(path)
    with pytest.raises(RegardError, match="is not a UTF-8 name, which the weights file requires"):
        lock.check_encodable(Path("a\udcff"))
    for wrong in (lock.claimed(mine / "run.json" / "x"), lock.free_folder(mine / "run.json" / "x")):
        with pytest.raises(RegardError, match=r"Cannot create the folder .* \(.+\); choose another --run"):
            wrong.__enter__()


def test_a_perplexity_beyond_all_numbers_is_infinite():
    assert run_list.perplexity(699.0) == math.exp(699.0)
    assert run_list.perplexity(700.0) == math.inf
    best = run_list._best
    assert best({"validation_loss": 2.0, "step": 3}) == {
        "best": math.exp(2.0), "measure": "perplexity", "best_step": 3,
    }  # fmt: skip
    assert best({"validation_loss": 2.0, "bleu": 9.5, "step": 3})["measure"] == "bleu"
    assert best({"validation_loss": "low", "bleu": "x"}) == {"best": None, "measure": None, "best_step": None}


def test_bytes_of_a_text_of_millions_are_all_seen():
    """It is read in pieces of four million."""
    piece = 1 << 22
    ids = np.zeros(2 * piece + 1, np.uint8)
    for number, place in enumerate((0, piece - 1, piece, 2 * piece - 1, 2 * piece), start=1):
        ids[place] = number
    tokenizer = SimpleNamespace(vocabulary=9, byte_pieces=[1, 2, 3, 4, 5, 6, 8])
    assert unseen_bytes(tokenizer, ids) == [6, 8]
    assert unseen_bytes(SimpleNamespace(vocabulary=9, byte_pieces=[]), ids) == []


def test_a_run_of_ones_own_code_needs_that_code(counted, tmp_path):
    copy = shutil.copytree(counted.folder, tmp_path / "copy")
    tree = {**read_facts(copy)["recipe"], "system": "./mine.py:Mine"}
    (copy / "run.json").write_text(json.dumps(with_digest({**read_facts(copy), "recipe": tree})))
    recipe = (copy / "recipe.toml").read_text().replace('"ngram"', '"./mine.py:Mine"')
    (copy / "recipe.toml").write_text(recipe)
    with pytest.raises(
        RegardError, match=rf"{copy} was trained with your own code, but neither .*mine.py nor {copy}/code"
    ):
        open_recipe(copy)
    facts = {"code": {"file": "../../mine.py", "sha256": "x"}}  # never a path out of the run
    with pytest.raises(RegardError, match=rf"neither .*mine.py nor {copy}/mine.py contains that code now"):
        run_folder.own_code("./mine.py:Mine", facts, copy)


def test_a_changed_value_is_shown_in_two_hundred_signs():
    assert run_folder._short("x" * 198) == repr("x" * 198)
    assert run_folder._short("x" * 199) == f"'{'x' * 196}…"


def test_a_model_computes_in_the_precision_that_was_asked_for(translator, monkeypatch):
    asked = []
    monkeypatch.setattr("regard.fast.decoding.eight_bit.use_eight_bits", asked.append)
    for precision, kind, eight in (("fp32", torch.float32, 0), ("bf16", torch.bfloat16, 0), ("int8", torch.float32, 1)):
        model = copy.deepcopy(translator.model)
        speed.set_precision(model, precision)
        assert {weight.dtype for weight in model.parameters()} == {kind}
        assert len(asked) == eight
    with pytest.raises(RegardError, match="precision must be one of fp32, bf16, int8, not 'fp8'"):
        speed.set_precision(model, "fp8")
    monkeypatch.setitem(sys.modules, "regard.fast.training", None)
    assert speed.recordable(translator.model) is False


# -- the page of a run -----------------------------------------------------------------------------------------------


def test_a_curve_has_at_most_three_hundred_points_and_says_where_it_ends(monkeypatch):
    drawn = []
    monkeypatch.setattr(run_report, "line_chart", lambda lines, **how: drawn.append((lines, how)) or "chart")

    def rows(count, **more):
        return [{"tokens": 10 * n, "bleu": float(n), "perplexity": 2.0 + n, **more} for n in range(1, count + 1)]

    for count, points in ((1, 1), (300, 300), (301, 151), (600, 300), (601, 201)):
        run_report._chart(rows(count), "bleu", "Validation BLEU")
        ((line,), how) = drawn.pop()
        assert (line.name, len(line.points), line.points[0]) == ("", points, (10.0, 1.0))
    assert (how["title"], how["y"], how["x"]) == (
        "Validation BLEU against tokens seen",
        "validation bleu",
        "tokens seen",
    )
    assert (how["log_y"], how["zero_y"], how["best"]) == (False, True, "validation")
    run_report._chart([*rows(2), *rows(3, split="valid"), {"tokens": 9, "bleu": None}], "perplexity", "P", log=True)
    lines, how = drawn.pop()
    assert [(line.name, len(line.points)) for line in lines] == [("validation", 3), ("training", 2)]
    assert (how["description"], how["log_y"], how["zero_y"]) == (
        "Validation ends at 5; training ends at 4.",
        True,
        False,
    )
    run_report._chart([], "bleu", "B")
    assert drawn.pop()[0] == []


def test_a_page_tells_where_a_run_comes_from():
    facts = {"corpus": {"name": "n", "checksum": "c"}, "seed": 0, "created": "t", "device": "d", "threads": 2,
             "processes": 3, "regard": "1", "torch": "2", "python": "3", "platform": "p",
             "code": {"file": "mine.py", "sha256": "s"}}  # fmt: skip
    assert run_report._provenance(facts, [PARENT]) == {
        "corpus": "n", "its checksum": "c", "started from parent": provenance(PARENT),
        "own code": "mine.py, SHA-256 s", "seed": "0", "begun": "t", "device": "d", "threads": "2", "processes": "3",
        "versions": "Regard 1, PyTorch 2, Python 3", "platform": "p",
    }  # fmt: skip
    assert run_report._provenance({}, []) == {"versions": "Regard None, PyTorch None, Python None"}


def test_scores_and_how_they_were_measured_are_two_tables(monkeypatch):
    tables = []
    monkeypatch.setattr(run_report, "table", lambda rows, columns: tables.append((rows, columns)) or "")
    run_report._score({"split": "test", "bleu": {"score": 12.5, "signature": "nrefs:1"}, "perplexity": 7.0,
                       "bits_per_character_refused": "spaces", "bits_per_character": None, "lines": 3})  # fmt: skip
    (told, others), (scores, columns) = tables
    assert scores == [{"what": "BLEU", "value": "12.50"}, {"what": "perplexity", "value": "7.000"}]
    assert (columns["what"], others["what"]) == ("measured", "about")
    assert told == [
        {"what": "split", "value": "test"}, {"what": "bleu", "value": "nrefs:1"},
        {"what": "bits per character not defined", "value": "spaces"}, {"what": "lines", "value": 3},
    ]  # fmt: skip


def test_a_page_shows_five_held_out_examples_with_their_answers(translator, monkeypatch):
    examples = [(f"the {n}", f"le {n}") for n in range(9)]
    found = run_report.samples(translator, [(" ", "empty"), *examples])
    answers = translator.translate([source for source, _ in examples[:5]])
    assert (
        found
        == [
            {"source": source, "reference": target, "seq2seq": answer}
            for (source, target), answer in zip(examples, answers, strict=False)
        ][:5]
    )
    assert len(found) == 5
    assert run_report.samples(translator, []) == []
    shipped = regard.load("gallery/ngram")
    monkeypatch.setattr(run_report, "samples", None)  # nothing is even made
    assert run_report.write_report(shipped) == []


def test_a_page_that_is_written_removes_what_a_killed_one_left_unless_a_training_holds_the_run(translator, tmp_path):
    copy = shutil.copytree(translator.folder, tmp_path / "copy")
    run = regard.load(copy)
    left = copy / ".report.html.01234567.part"
    left.touch()
    with try_lock(copy / ".lock"):
        run_report.write_report(run)
        assert left.exists()
    run_report.write_report(run)
    assert not left.exists()


# -- defaults --------------------------------------------------------------------------------------------------------


def offered():
    """The functions and methods of all that `import regard` offers, by name."""
    for name in regard.__all__:
        one = getattr(regard, name)
        methods = inspect.getmembers(one, inspect.isfunction) if inspect.isclass(one) else [("", one)]
        for method, function in methods:
            ours = function.__module__.startswith("regard.")
            if ours and (method == "__init__" or not method.startswith("_")):
                yield f"{name}.{method}".rstrip("."), function


def defaults():
    found = {}
    for name, function in offered():
        parameters = inspect.signature(function).parameters.values()
        said = {one.name: repr(one.default) for one in parameters if one.default is not one.empty}
        if said:
            found[name] = said
    return found


def test_what_is_done_when_nothing_is_said_is_a_promise_to_every_notebook():
    """golden/defaults.json has the defaults of all that `import regard` offers; running this file writes it again."""
    assert defaults() == json.loads(DEFAULTS.read_text(encoding="utf-8"))


def test_runs_do_something_when_nothing_is_said(counted, translator):
    assert next(counted.completions(["line"], max_tokens=1)) is not None
    assert next(iter(counted.score(["line"]))).tokens
    assert counted.embed is not None
    assert isinstance(translator.translate("the"), str)
    assert next(iter(translator.score([("the", "le")]))).tokens


if __name__ == "__main__":
    DEFAULTS.write_text(json.dumps(defaults(), indent=0, sort_keys=True) + "\n", encoding="utf-8")
