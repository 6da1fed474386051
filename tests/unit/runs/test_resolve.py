"""What no one has set follows the corpus: a small one is not read a thousand times, and what was set stays."""

import dataclasses
from types import SimpleNamespace

import pytest

import regard
from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.corpora.phrasebook import make_pairs
from regard.runs import resolve
from regard.runs.compose import compose_recipe
from regard.runs.dry_run import dry_run
from regard.runs.prepare import open_data, prepare
from regard.runs.recipe import compose
from regard.runs.resolve import (
    DROPOUT,
    FULL_STEP,
    MAX_EPOCHS,
    PATIENCE,
    ROOM,
    SMALL_FILE,
    STEPS_PER_EPOCH,
    describe_plan,
    epochs,
    gpu_batch_defaults,
    long_training_defaults,
    small_corpus_defaults,
    validation_schedule,
)
from regard.systems.catalogue import SYSTEMS
from regard.training.hyperparameters import PairTraining, Training

LEARNED = [system.name for system in SYSTEMS if system.trained == "gradient"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{p.source}\t{p.target}\n" for p in make_pairs(300, seed=1, longest=8)), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
@pytest.mark.parametrize("system", LEARNED)
@pytest.mark.parametrize("tokens", [300, 15_000, 200_000])
def test_no_default_reads_a_corpus_more_often_than_the_most(system, size, tokens):
    recipe = compose(system, size)
    longest = getattr(recipe.training, "window", 64)
    training = recipe.replace(training=small_corpus_defaults(recipe.training, tokens, longest, ())).training
    assert epochs(training, tokens) <= max(MAX_EPOCHS * 1.02, MAX_EPOCHS * training.batch_tokens / tokens)
    assert training.batch_tokens <= recipe.training.batch_tokens
    assert training.warmup < training.steps


@pytest.mark.parametrize("system", LEARNED)
def test_a_large_corpus_changes_nothing(system):
    assert small_corpus_defaults(compose(system, "small").training, 10_000_000, 64, ()) == {}


def test_whoever_says_how_long_is_obeyed():
    recipe = compose("transformer", "medium")
    assert small_corpus_defaults(recipe.training, 1000, 64, {"training.steps"}) == {}
    changes = small_corpus_defaults(recipe.training, 15_000, 64, {"training.budget"})
    assert not {"steps", "patience"} & changes.keys()
    assert changes["warmup"] < recipe.training.warmup  # or a short budget ends before the rate has risen
    assert changes["batch_tokens"] < recipe.training.batch_tokens


@pytest.mark.parametrize("name, value", [("batch_tokens", 2048), ("patience", 3), ("warmup", 7), ("evaluate_every", 9)])
def test_what_was_set_explicitly_stays(name, value):
    recipe = compose("transformer", "small", {"training": {name: value}})
    changes = small_corpus_defaults(recipe.training, 15_000, 64, recipe.given)
    assert changes
    assert name not in changes


@pytest.mark.parametrize(
    "system, size", [("seq2seq", "medium"), ("bahdanau", "medium"), ("transformer", "medium"), ("seq2seq", "large")]
)
def test_translators_fill_a_large_gpu(system, size):
    before = compose(system, size).training
    changes = gpu_batch_defaults(before, 10**8, ROOM, ())
    assert changes["batch_tokens"] == FULL_STEP
    rate = before.learning_rate * (FULL_STEP / before.batch_tokens) ** 0.5
    assert changes["learning_rate"] == pytest.approx(rate, rel=1e-3)
    after = dataclasses.replace(before, **changes)
    assert epochs(after, 10**6) == pytest.approx(epochs(before, 10**6))  # as many tokens are read, and warm it up
    assert after.warmup * after.batch_tokens == pytest.approx(before.warmup * before.batch_tokens)
    assert after.evaluate_every == pytest.approx(
        before.evaluate_every * before.learning_rate / after.learning_rate, abs=1
    )
    assert after.checkpoint_every == after.evaluate_every  # as before: a checkpoint with each validation
    assert after.evaluate_every / after.steps > before.evaluate_every / before.steps  # fewer validations


def test_filled_steps_do_not_make_a_corpus_small():
    before = compose("transformer", "medium").training
    after = dataclasses.replace(before, **gpu_batch_defaults(before, 900_000, ROOM, ()))
    assert after.batch_tokens > before.batch_tokens
    assert small_corpus_defaults(before, 900_000, 64, ()) == small_corpus_defaults(after, 900_000, 64, ()) == {}


def test_steps_that_were_set_stay_when_they_are_filled():
    before = compose("transformer", "medium").training
    changes = gpu_batch_defaults(before, 10**8, ROOM, {"training.steps", "training.warmup", "training.evaluate_every"})
    assert changes.keys() == {"batch_tokens", "learning_rate", "checkpoint_every"}


@pytest.mark.parametrize("tokens", [200_000, 400_000, 10**7])
def test_filled_steps_leave_enough_of_them_in_an_epoch(tokens):
    before = compose("transformer", "medium").training
    batch = (gpu_batch_defaults(before, tokens, ROOM, ()) or vars(before))["batch_tokens"]
    assert batch == before.batch_tokens or tokens / batch >= STEPS_PER_EPOCH
    assert before.batch_tokens <= batch <= FULL_STEP


@pytest.mark.parametrize(
    "system, size, room, given",
    [
        ("transformer", "medium", 0, ()),  # a CPU
        ("transformer", "medium", ROOM - 1, ()),  # a GPU with too little memory
        ("transformer", "small", ROOM, ()),
        ("transformer", "large", ROOM, ()),  # has larger steps already
        ("gpt", "small", ROOM, ()),  # has no budget in seconds
        ("transformer", "medium", ROOM, {"training.batch_tokens"}),
        ("transformer", "medium", ROOM, {"training.learning_rate"}),
    ],
)
def test_nothing_else_has_filled_steps(system, size, room, given):
    assert gpu_batch_defaults(compose(system, size).training, 10**8, room, given) == {}


def long(system, size="small", budget="20s", memory=ROOM, **settings):
    return long_training_defaults(compose(system, size, {"training": {"budget": budget}} | settings), memory)


LONG = [(name, "small") for name in ("gpt", "linear-attention", "mingru", "llama", "lstm", "gru")]
LONG += [(name, "tiny") for name in ("gpt", "linear-attention", "mingru")]


@pytest.mark.parametrize("system, size", LONG)
def test_a_training_that_reads_a_text_many_times_has_larger_steps_and_a_longer_warm_up(system, size):
    before, changes = compose(system, size), long(system, size)
    after = before.replace(**changes)
    assert after.training.batch_tokens >= max(before.training.batch_tokens, 2048)
    assert after.training.warmup == 100
    if size == "small":
        assert (after.model.dropout, after.training.learning_rate < before.training.learning_rate) == (0.1, True)


def test_only_a_budget_in_seconds_on_a_gpu_with_room_is_long_and_what_is_given_stays():
    assert long("gpt")["training"] == {"batch_tokens": 4096, "learning_rate": 0.001, "warmup": 100}
    assert long("gpt", budget="20s of steps") == long("gpt")
    for other in (
        long("gpt", budget="2M"),  # the defaults were tuned for tokens
        long("gpt", budget=""),
        long("gpt", memory=0),
        long("gpt", memory=ROOM - 1),
        long("gpt", "medium"),
        long("nnlm"),
        long("gpt", training={"budget": "20s", "batch_tokens": 1024}),
        long("gpt", training={"budget": "20s", "learning_rate": 0.01}),
    ):
        assert other == {}
    assert "model" not in long("gpt", model={"dropout": 0.0})
    assert "warmup" not in long("gpt", training={"budget": "20s", "warmup": 7})["training"]


@pytest.mark.parametrize("system", ["seq2seq", "bahdanau", "transformer"])
def test_a_translator_is_tuned_for_few_tokens_and_otherwise_has_its_long_settings(system):
    tuned, on_cpu = compose(system, "small"), {"memory": 0}
    assert long(system, budget="2M", **on_cpu) == long(system, budget="20s", **on_cpu) == {}
    assert long(system, budget="", training={"budget": "", "learning_rate": 0.01}, **on_cpu) == {}
    several = [long(system, budget="2000001", **on_cpu), long(system, budget="", **on_cpu), long(system, budget="20s")]
    for changes in several:
        after = tuned.replace(**changes)
        assert after.training.learning_rate == 0.001 < tuned.training.learning_rate
        assert (after.training.batch_tokens, after.training.evaluate_every) == (4096, 300)
        assert after.training.warmup > 2 * tuned.training.warmup
        seen = [each.training.evaluate_every * each.training.batch_tokens for each in (tuned, after)]
        assert seen[0] == seen[1]  # validations are as far apart


def test_long_settings_are_said_and_kept_in_the_recipe(monkeypatch):
    monkeypatch.setattr(resolve, "device_memory", lambda device: ROOM)
    monkeypatch.setattr(resolve, "resolve_device", lambda settings: {"device": "cuda"})
    before = compose("gpt", "small", {"training": {"budget": "20s"}})
    after, notes = resolve.resolve_machine(before, 0)
    assert (after.training.batch_tokens, after.training.learning_rate, after.model.dropout) == (4096, 0.001, 0.1)
    assert "steps of 4096 tokens and a learning rate of 0.001, which suit a long training run" in "".join(notes)


@pytest.mark.parametrize("pairs, dropout", [(1000, 0.3), (10**7, 0.1)])
def test_long_training_of_a_translator_chooses_its_dropout_by_the_pairs(pairs, dropout):
    after, notes = resolve.resolve_machine(compose("transformer", "small", {"training": {"device": "cpu"}}), pairs)
    assert after.model.dropout == dropout
    assert f"Dropout: {dropout}" in "".join(notes)
    given = compose("transformer", "small", {"training": {"device": "cpu"}, "model": {"dropout": 0.25}})
    assert resolve.resolve_machine(given, pairs)[0].model.dropout == 0.25


def limited(tokens, budget="60s", memory=ROOM, system="gpt", **settings):
    recipe = compose(system, "small", {"training": {"budget": budget, **settings}})
    return resolve.epoch_limit(recipe.training, tokens, memory, recipe.given)


def test_in_seconds_on_a_gpu_a_text_is_read_twenty_times_and_for_two_thousand_steps_at_least():
    assert limited(2_000_000) == 20
    assert limited(20_000) == 2000 * 1024 // 20_000 + 1
    assert limited(60 * 10**6) == 20
    assert limited(60 * 10**6 + 1) == 0  # no GPU reads it 20 times in a minute
    for other in (
        limited(2_000_000, budget="5M"),
        limited(2_000_000, budget="60s of steps"),
        limited(2_000_000, budget=""),
        limited(2_000_000, memory=ROOM - 1),
        limited(2_000_000, system="transformer"),
        limited(2_000_000, learning_rate=0.01),
        limited(2_000_000, epochs=0),
        limited(2_000_000, epochs=3),
    ):
        assert other == 0


def test_the_epoch_limit_is_said_and_kept_in_the_recipe(monkeypatch):
    monkeypatch.setattr(resolve, "pick_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(resolve, "device_memory", lambda device: ROOM)
    before = compose("gpt", "small", {"training": {"budget": "20s"}})
    after, notes = resolve.resolve(before, resolve.CorpusFacts(2 * 10**6, 128, fills_gpu=True))
    assert after.training.epochs == 20
    assert "at most 20 times" in "".join(notes)
    assert "--training.epochs 0" in "".join(notes)


@pytest.mark.parametrize("more, steps", [({}, 2 * 30 * 1000), ({"steps": 7}, 7), ({"budget": "5M"}, 8000)])
def test_epochs_replace_the_default_number_of_steps(more, steps):
    recipe = compose("gpt", "small", {"training": {"epochs": 30, **more}})
    after, _ = resolve.resolve(recipe, resolve.CorpusFacts(1000 * 1024, 128))
    assert (after.training.epochs, after.training.steps) == (30, steps)


def test_filled_steps_are_said_and_kept_in_the_recipe(monkeypatch):
    settings = {"data": {"pairs": 30_000}, "training": {"device": "cpu"}}
    there = open_data(compose_recipe("transformer", data="phrasebook", size="medium", settings=settings))
    facts = there.cut().facts(there.recipe)
    before, notes = resolve.resolve(there.recipe, facts)
    assert "fill this GPU" not in "".join(notes)
    monkeypatch.setattr(resolve, "pick_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(resolve, "device_memory", lambda device: ROOM)
    after, notes = resolve.resolve(there.recipe, facts)
    assert before.training.batch_tokens < after.training.batch_tokens <= FULL_STEP
    assert f"steps of {group_digits(after.training.batch_tokens)} tokens, to fill this GPU" in "".join(notes)


def test_labels_have_no_filled_steps(tmp_path, monkeypatch):
    path = tmp_path / "labels.tsv"
    path.write_text("".join(f"A sentence of {n} words .\t{n % 2}\n" for n in range(20_000)), encoding="utf-8")
    recipe = compose_recipe("classifier", data=str(path), size="medium", settings={"training": {"device": "cpu"}})
    there = open_data(recipe)
    facts = there.cut().facts(there.recipe)
    monkeypatch.setattr(resolve, "pick_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr(resolve, "device_memory", lambda device: ROOM)
    after, notes = resolve.resolve(there.recipe, facts)
    assert after.training.batch_tokens <= recipe.training.batch_tokens
    assert "fill this GPU" not in "".join(notes)


def test_a_batch_still_holds_the_longest_pair():
    assert small_corpus_defaults(compose("transformer", "small").training, 15_000, 900, ())["batch_tokens"] == 900


def test_few_pairs_are_trained_on_for_a_hundred_epochs_and_the_log_says_so(pairs, capsys):
    recipe = prepare(compose_recipe("transformer", data=str(pairs), size="small")).recipe
    assert recipe.training.patience == PATIENCE
    assert recipe.training.steps < 6000
    assert recipe.model.dropout == 0.3
    said = capsys.readouterr().err
    assert "tokens of both sides are few, so at most" in said
    assert "(100 epochs), or until 10 validations bring no improvement" in said


def test_a_short_text_is_treated_alike(tmp_path, capsys):
    path = tmp_path / "short.txt"
    path.write_text("".join(f"The {n % 17} boats leave the harbour at {n % 12} .\n" for n in range(400)), "utf-8")
    recipe = prepare(compose_recipe("lstm", data=str(path), size="small")).recipe
    assert recipe.training.steps < compose("lstm", "small").training.steps
    assert recipe.model.dropout == 0.3
    given = {"training": {"steps": 5}, "model": {"dropout": 0.0}}
    recipe = prepare(compose_recipe("lstm", data=str(path), size="small", settings=given)).recipe
    assert (recipe.training.steps, recipe.model.dropout) == (5, 0.0)
    assert recipe.training.batch_tokens == 512


def test_a_budget_of_less_than_a_step_is_told_how_a_time_is_written(tmp_path, capsys):
    lines = [f"the cat sees {n} dogs" for n in range(40)]
    regard.train("rnn", data=lines, run=tmp_path / "run", size="tiny", budget="20")
    assert "The budget of 20 tokens is less than one step" in (said := capsys.readouterr().err)
    assert "as in 20s." in said


def test_a_small_file_is_given_a_small_model_unless_a_size_is_asked_for(pairs, capsys):
    recipe = compose_recipe("transformer", data=str(pairs))
    assert recipe.size == "tiny"
    prepare(recipe)
    assert "The size is tiny" in capsys.readouterr().err
    assert compose_recipe("transformer", data=str(pairs), size="small").size == "small"
    assert compose_recipe("transformer", data="phrasebook").size == "small"


def test_the_dry_run_warns_of_a_thousand_epochs(pairs):
    settings = {"training": {"steps": 100_000, "patience": 0}, "model": {"width": 8, "heads": 2, "layers": 1}}
    facts = dry_run(compose_recipe("transformer", data=str(pairs), settings=settings))
    assert "more than 100 epochs" in facts["warning"]


def test_a_recipe_that_was_resolved_is_resumed_as_it_is(pairs, tmp_path):
    settings = {"model": {"width": 8, "heads": 2, "layers": 1}, "training": {"patience": 1}}
    recipe = prepare(compose_recipe("transformer", data=str(pairs), settings=settings)).recipe
    again = compose(recipe.system, None, recipe.tree())
    assert again == recipe
    assert small_corpus_defaults(again.training, 10, 10, again.given) == {}


def test_training_without_data_says_what_it_takes(capsys):
    few = {"data": {"pairs": 200}}
    prepare(compose_recipe("transformer", size="tiny", settings=few))
    assert "No --data was given, so this trains on the built-in corpus phrasebook." in capsys.readouterr().err
    prepare(compose_recipe("transformer", data="phrasebook", size="tiny", settings=few))
    assert "No --data" not in capsys.readouterr().err


def test_a_section_that_is_no_table_is_refused():
    with pytest.raises(RegardError, match="model is a section"):
        compose("lstm", None, {"model": 3})


def test_a_small_corpus_by_hand():
    """20 steps for an epoch, 100 epochs, a tenth of the steps of warm-up, a validation every second epoch."""
    settings = PairTraining(steps=50_000, batch_tokens=4096, warmup=400, evaluate_every=500)
    assert epochs(settings, 40_960) == 5000
    assert small_corpus_defaults(settings, 40_960, 64, ()) == {
        "batch_tokens": 2048, "steps": 2000, "warmup": 200, "evaluate_every": 40, "patience": 10
    }  # fmt: skip
    assert small_corpus_defaults(settings, 4096, 64, ()) == {
        "batch_tokens": 512, "steps": 800, "warmup": 80, "evaluate_every": 16, "patience": 10
    }  # fmt: skip
    assert small_corpus_defaults(settings, 90, 64, ()) == {
        "batch_tokens": 512, "steps": 100, "warmup": 10, "evaluate_every": 2, "patience": 10
    }  # fmt: skip
    less = PairTraining(steps=7, batch_tokens=4096, warmup=2, evaluate_every=1)
    assert small_corpus_defaults(less, 200, 64, ()) == {
        "batch_tokens": 512, "steps": 7, "warmup": 1, "evaluate_every": 1, "patience": 10
    }  # fmt: skip
    enough = PairTraining(steps=100, batch_tokens=64)
    assert small_corpus_defaults(enough, 64, 64, ()) == {}  # 100 epochs are not too many
    assert small_corpus_defaults(enough, 63, 64, ()) != {}


def test_the_plan_is_said_in_one_sentence():
    settings = PairTraining(steps=2000, batch_tokens=2048, patience=10)
    assert describe_plan(settings, 40_960) == (
        "Training: 40,960 tokens of both sides are few, so at most 2000 steps of 2048 tokens (100 epochs), or until "
        "10 validations bring no improvement; --training.steps or --budget trains for longer."
    )
    text = Training(steps=1, batch_tokens=2, patience=0)
    assert describe_plan(text, 50) == (
        "Training: 50 tokens are few, so at most 1 steps of 2 tokens (1 epoch); --training.steps or --budget "
        "trains for longer."
    )
    timed = Training(budget="60s", batch_tokens=512, warmup=7)
    assert (
        describe_plan(timed, 9000) == "Training: 9000 tokens are few, so each step reads 512 of them, with 7 steps of "
        "warm-up."
    )


@pytest.mark.parametrize(
    "budget, validations", [("60s", 10), ("8s of steps", 10), ("10m", 10), ("30m", 30), ("2h", 120)]
)
def test_validations_are_spread_over_a_budget_in_seconds(budget, validations):
    assert validation_schedule(Training(budget=budget), ()) == {"validations": validations, "checkpoint_every": 0}


def test_nothing_is_spread_that_was_set_or_has_its_steps():
    assert validation_schedule(Training(), ()) == validation_schedule(Training(budget="5M"), ()) == {}
    timed = Training(budget="60s", snapshots=25)
    assert (
        validation_schedule(timed, {"training.evaluate_every"})
        == validation_schedule(timed, {"training.validations"})
        == {}
    )
    assert validation_schedule(timed, {"training.checkpoint_every", "training.budget"}) == {
        "validations": 24
    }  # and the first weights


def test_a_budget_in_seconds_says_how_often_it_is_validated(capsys):
    """Also on a built-in corpus; a rhythm in steps is obeyed, whether a recipe says so or someone who uses one."""
    few = {"data": {"pairs": 200}}
    asked = compose_recipe("transformer", data="phrasebook", size="tiny", budget="60s", settings=few)
    made = prepare(asked).recipe
    assert (made.training.validations, made.training.checkpoint_every) == (10, 0)
    assert (
        "Training: up to 10 validations, spread evenly over the budget; "
        "--training.evaluate-every N" in capsys.readouterr().err
    )
    assert compose(made.system, None, made.tree()) == made
    steps = {**few, "training": {"evaluate_every": 7}}
    for tree in ({}, made.tree()):
        again = prepare(compose("transformer", "tiny", tree, {"training": {"budget": "60s"}}, steps)).recipe
        assert (again.training.evaluate_every, again.training.validations) == (7, 0)
    assert "validations, spread" not in capsys.readouterr().err
    both = compose("lstm", "tiny", {"training": {"evaluate_every": 7, "validations": 3}})
    assert both.training.validations == 3


def test_what_is_small():
    assert (SMALL_FILE, DROPOUT) == (200_000, 0.3)


@pytest.mark.parametrize("budget", ["", "10M"])
def test_a_dry_run_states_the_steps_of_the_epochs(pairs, budget):
    settings = {"training": {"epochs": 2, "budget": budget, "device": "cpu", "threads": 1}}
    facts = dry_run(compose_recipe("seq2seq", data=str(pairs), size="tiny", settings=settings))
    assert facts["epochs"] == pytest.approx(2, rel=0.15)
