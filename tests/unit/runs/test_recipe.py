"""A recipe is strict: what is given is what is used, and what is misspelt is refused where it stands."""

import dataclasses
import re
import tomllib

import pytest

from regard.base.errors import RegardError
from regard.runs.data_settings import DataSettings, PairDataSettings
from regard.runs.recipe import compose, has_smaller, parse_overrides, read_recipe
from regard.systems.catalogue import SYSTEMS
from regard.systems.sizes import SIZES
from regard.training.hyperparameters import Budget, CountTraining, PairTraining, Training


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_a_recipe_survives_its_own_toml(system, size, tmp_path):
    recipe = compose(system, size)
    path = tmp_path / "recipe.toml"
    for text in (recipe.toml(), recipe.documented()):
        path.write_text(text, encoding="utf-8")
        assert compose(system, None, read_recipe(path)) == recipe


@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_every_setting_is_documented(system):
    recipe = compose(system, None)
    for part in (recipe.data, recipe.model, recipe.training):
        assert all(f.metadata["doc"] for f in dataclasses.fields(part))
    assert tomllib.loads(recipe.documented()) == recipe.tree()


def test_the_more_particular_setting_wins():
    recipe = compose("lstm", "tiny", {"model": {"width": 99}}, {"model": {"layers": "3"}})
    assert (recipe.model.width, recipe.model.layers) == (99, 3)
    assert recipe.model.dropout == 0.0  # from the size
    assert recipe.training.batches == "stream"  # from the system


@pytest.mark.parametrize(
    "tree, said",
    [
        ({"model": {"layer": 2}}, "did you mean model.layers?"),
        ({"modle": {"layers": 2}}, "did you mean model?"),
        ({"model": {"layers": "two"}}, "model.layers must be a whole number, not 'two'"),
        ({"model": {"layers": 2.5}}, "model.layers must be a whole number"),
        ({"model": {"tied": 1}}, "model.tied must be true or false"),
        ({"model": {"layers": 0}}, "model.layers must be at least 1"),
        ({"model": 3}, "model is a section"),
        ({"training": {"schedule": "linear"}}, "training.schedule must be one of"),
        ({"training": {"learning_rate": -1}}, "training.learning_rate must be above 0"),
        ({"training": {"learning_rate": float("nan")}}, "training.learning_rate must be above 0"),
        ({"training": {"budget": "soon"}}, "neither a time"),
        ({"training": {"batch_tokens": 10}}, "at least one window"),
        ({"training": {"accumulate": 1000}}, "cannot exceed"),
        ({"data": {"tokenizer": "words"}}, "data.tokenizer must be one of"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(tree, said):
    with pytest.raises(RegardError) as error:
        compose("lstm", None, tree)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("system", [system.name for system in SYSTEMS])
def test_every_bound_is_checked_said_and_documented(system):
    recipe = compose(system, None)
    beyond = {"ge": -1, "gt": 0, "le": 1, "lt": 0}  # added to a bound: the nearest number that is refused
    checked = 0
    for part in ("data", "model", "training"):
        for f in dataclasses.fields(getattr(recipe, part)):
            meta, key, kind = f.metadata, f"{part}.{f.name}", type(f.default)
            if meta["choices"]:
                with pytest.raises(RegardError, match=f"{key} must be one of {', '.join(meta['choices'])}"):
                    compose(system, None, {part: {f.name: "zzz"}})
                assert all(choice in (*re.findall(r"[\w-]+", meta["doc"]), "auto") for choice in meta["choices"]), (
                    f"{key} does not say its choices"
                )
            for name, bound in meta["bounds"].items():
                value = kind(bound + beyond[name])
                value = value if value != meta["unset"] else value - 1
                with pytest.raises(RegardError, match=f"{key} must be .*, not {value}"):
                    compose(system, None, {part: {f.name: value}})
                assert re.search(rf"^{f.name} = .*# .*[≥>≤<] {bound}\b", recipe.documented(), re.M), key
                checked += 1
            if kind is float:
                with pytest.raises(RegardError, match=key):
                    compose(system, None, {part: {f.name: -1e308}})
                with pytest.raises(RegardError, match=key):
                    compose(system, None, {part: {f.name: float("nan")}})
    assert checked > 2


def test_a_counted_system_refuses_what_only_training_has():
    with pytest.raises(RegardError, match="trained by counting"):
        compose("ngram", None, {"training": {"learning_rate": 0.1}})


def test_the_window_follows_the_context_so_that_no_position_stays_untrained():
    assert compose("gpt", None, {"model": {"context": 96}}).training.window == 96
    with pytest.raises(RegardError, match=r"training.window \(128\) cannot exceed model.context \(96\)"):
        compose("gpt", None, {"model": {"context": 96}, "training": {"window": 128}})


def test_overrides_are_read_from_the_command_line():
    words = ["--model.layers", "3", "--training.budget=60s", "--training.learning-rate", "1e-4"]
    assert parse_overrides(words) == {
        "model": {"layers": "3"},
        "training": {"budget": "60s", "learning_rate": "1e-4"},
    }
    with pytest.raises(RegardError, match="did you mean --seed"):
        parse_overrides(["--seeed", "3"], ["seed", "size"])
    with pytest.raises(RegardError, match=r"--model.layers needs a value"):
        parse_overrides(["--model.layers"])


@pytest.mark.parametrize(
    "text, amount, unit",
    [
        ("60s", 60, "seconds"),
        ("10m", 600, "seconds"),
        ("1.5h", 5400, "seconds"),
        ("5M", 5e6, "tokens"),
        ("500k tokens", 5e5, "tokens"),
        ("", 7, "steps"),
    ],
)
def test_a_budget_is_a_time_or_tokens_or_the_steps(text, amount, unit):
    assert Budget.parse(text, 7) == Budget(amount, unit)


def test_a_time_may_be_that_of_the_steps_alone():
    assert Budget.parse("60s of steps", 7) == Budget(60, "seconds", whole=False)
    for wrong in ("5M of steps", "60s tokens", "60s of", "60 of steps"):
        with pytest.raises(RegardError, match="neither a time"):
            Budget.parse(wrong, 7)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Training().steps = 3  # type: ignore[misc]


LEARNING = {
    "steps": (2000, {"ge": 1}), "budget": ("", {}), "epochs": (0, {"ge": 0, "le": 1_000_000}),
    "batch_tokens": (4096, {"ge": 1}), "accumulate": (1, {"ge": 1}),
    "optimizer": ("adamw", {}), "learning_rate": (1e-3, {"gt": 0}),
    "schedule": ("cosine", {}), "decay": (0.8, {"gt": 0, "le": 1}), "decay_after": (5, {"ge": 0}),
    "warmup": (100, {"ge": 0}), "weight_decay": (0.01, {"ge": 0}), "beta2": (0.99, {"ge": 0, "lt": 1}),
    "clip": (1.0, {"ge": 0}), "ema": (0.0, {"ge": 0, "lt": 1}),
    "evaluate_every": (250, {"ge": 1}), "validations": (0, {"ge": 0}),
    "patience": (0, {"ge": 0}), "checkpoint_every": (250, {"ge": 0}), "snapshots": (0, {"ge": 0}),
    "precision": ("auto", {}), "device": ("auto", {}), "threads": (0, {"ge": 0, "le": 4096}), "shard": (False, {}),
    "seed": (1, {"ge": 0}),
}  # fmt: skip
TEXT = {
    "batches": ("windows", {}), "window": (0, {"ge": 0}), "validation_tokens": (200_000, {"ge": 0}),
    "capture": ("auto", {}), "compile": ("auto", {}),
}  # fmt: skip
PAIRS = {
    "label_smoothing": (0.1, {"ge": 0, "lt": 1}), "consistency": (0.0, {"ge": 0}),
    "keep": (5, {"ge": 0}), "select": ("loss", {}),
    "validation_pairs": (1000, {"ge": 0}), "capture": ("auto", {}),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, expected",
    [
        (Training, LEARNING | TEXT),
        (PairTraining, LEARNING | PAIRS),
        (CountTraining, {name: LEARNING[name] for name in ("threads", "seed")}),
    ],
)
def test_what_is_not_set_stays_what_it_was(kind, expected):
    """Every run that leaves a setting out was trained with these, and its bounds are part of what users rely on."""
    found = {each.name: (each.default, each.metadata["bounds"]) for each in dataclasses.fields(kind)}
    assert found == expected
    for name, (_, bounds) in expected.items():  # a bound itself is allowed, if it is not called above or below
        for bound in ("ge", "le"):
            if bound in bounds:
                kind(**{name: bounds[bound]})


READING = {
    "columns": ("", {}), "header": ("auto", {}), "encoding": ("utf-8", {}), "tokenizer": ("auto", {}),
    "vocabulary": (0, {"ge": 0, "le": 10**7}), "normalise": ("auto", {}), "split": ("auto", {}),
}  # fmt: skip
OF_PAIRS = {
    "corpus": ("phrasebook", {}), "source": ("", {}), "target": ("", {}), "swap": (False, {}), "also": ("", {}),
    "monolingual": ("", {}), "translator": ("", {}), "joint": (True, {}), "bpe_dropout": (0.0, {"ge": 0, "lt": 1}),
    "longest": (256, {"ge": 1}), "truncate": (False, {}), "pairs": (0, {"ge": 0}), "words": (0, {"ge": 0}),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, expected", [(DataSettings, READING | {"corpus": ("pyref", {})}), (PairDataSettings, READING | OF_PAIRS)]
)
def test_data_that_no_one_describes_are_read_as_before(kind, expected):
    found = {each.name: (each.default, each.metadata["bounds"]) for each in dataclasses.fields(kind)}
    assert found == expected
    for name, allowed in (("header", "no"), ("tokenizer", "imported"), ("normalise", "nfkc"), ("split", "tail")):
        assert getattr(kind(**{name: allowed}), name) == allowed
        with pytest.raises(RegardError, match=f"data.{name} must be one of"):
            kind(**{name: "other"})
    with pytest.raises(RegardError, match="encoding"):
        kind(encoding="klingon")


def test_text_to_translate_back_needs_a_translator_and_the_other_way_round():
    assert PairDataSettings(monolingual="a", translator="b").translator == "b"
    for one in ("monolingual", "translator"):
        with pytest.raises(RegardError, match=r"data\.monolingual and data\.translator must be given together"):
            PairDataSettings(**{one: "a"})


@pytest.mark.parametrize(
    ("key", "given", "found"),
    [
        ("training.steps", "7", 7), ("training.steps", 2**31 - 1, 2**31 - 1), ("training.learning_rate", 1, 1.0),
        ("training.learning_rate", "1e-3", 0.001), ("data.corpus", "text", "text"),
        ("model.tied", "yes", True), ("model.tied", "NO", False), ("model.tied", "True", True),
        ("model.tied", "false", False), ("model.tied", True, True),
        ("training.steps", 2**31, "below 2,147,483,648"), ("training.steps", str(-(2**31)), "below 2,147,483,648"),
        ("training.steps", "7.5", "a whole number, not '7.5'"), ("training.steps", True, "a whole number, not True"),
        ("training.steps", 7.0, r"a whole number, not 7\.0"), ("training.clip", "fast", "a number, not 'fast'"),
        ("training.clip", True, "a number, not True"), ("training.clip", 2**64, "a number, not 184467"),
        ("model.tied", "maybe", "true or false, not 'maybe'"), ("model.tied", 1, "true or false, not 1"),
        ("data.corpus", 3, "text, not 3"), ("data.corpus", "a\0", "text without NUL"),
        ("training.steps", "x" * 47, f"not '{'x' * 47}'"), ("training.steps", "x" * 48, f"not '{'x' * 39}…"),
    ],
)  # fmt: skip
def test_a_value_is_read_as_its_setting_or_refused(key, given, found):
    part, name = key.split(".")
    if isinstance(found, str) and found != given:
        with pytest.raises(RegardError, match=rf"{key} must be {found}" if not found.startswith("not") else found):
            compose("lstm", "tiny", {part: {name: given}})
    else:
        made = getattr(getattr(compose("lstm", "tiny", {part: {name: given}}), part), name)
        assert (made, type(made)) == (found, type(found))


def test_a_size_is_one_that_there_is_or_none_for_an_imported_model():
    assert compose("lstm", "", {"model": {"width": 8}}).size == ""
    assert compose("lstm", "").model == compose("lstm", "small").model
    for size, trees in (("huge", ()), (None, ({"size": "huge"},))):
        with pytest.raises(RegardError, match="size must be one of tiny, small, medium, large, not 'huge'"):
            compose("lstm", size, *trees)
    assert compose("lstm", None, {"size": "tiny"}, {"size": "large"}).size == "large"  # the last one counts
    assert [has_smaller(compose("lstm", size)) for size in ("tiny", "small", "large", "")] == [False, True, True, False]


def test_comments_of_a_recipe_begin_in_one_column_where_its_values_are_short():
    text = compose("transformer", "tiny").documented()
    assert tomllib.loads(text) == compose("transformer", "tiny").tree()
    sections = [section.splitlines()[1:] for section in text.split("\n[")[1:]]
    for lines in sections:
        commented = [line for line in lines if "  # " in line]
        longest = max(len(line.split("  #")[0].rstrip()) for line in commented)
        columns = {line.index("  # ") for line in commented if len(line.split("  #")[0].rstrip()) <= 36}
        assert columns == {min(36, longest)}
    given = compose("transformer", "tiny", {"data": {"corpus": "x" * 50}}).documented()
    assert re.search(rf'^corpus = "{"x" * 50}"  # ', given, re.M)


def test_words_of_a_command_are_settings_or_are_refused(tmp_path):
    assert parse_overrides(["--data.bpe-dropout=0.1=x"]) == {"data": {"bpe_dropout": "0.1=x"}}
    assert parse_overrides(["--model.a", "-1", "--model.b", "2", "--model.a=3"]) == {"model": {"a": "3", "b": "2"}}
    for words, said in (
        (["text.txt"], "Unexpected argument 'text.txt': write settings as --section.key value"),
        ([str(tmp_path)], f"give data as --data {tmp_path}"), (["--model.a"], "--model.a needs a value"),
        (["--model.a", "--model.b", "3"], "--model.a needs a value"), (["--zzzz", "3"], "There is no option --zzzz."),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=re.escape(said)):
            parse_overrides(words)


@pytest.mark.parametrize(
    "text, amount, unit",
    [
        ("2min", 120, "seconds"), ("1 h", 3600, "seconds"), ("0.5s", 0.5, "seconds"), ("70", 70, "tokens"),
        ("3K", 3000, "tokens"), ("3k", 3000, "tokens"), ("2G", 2e9, "tokens"), ("2B tokens", 2e9, "tokens"),
        ("9 tokens", 9, "tokens"), ("1 token", 1, "tokens"), ("999999999999999", 1e15 - 1, "tokens"),
        ("0.25", 0.25, "tokens"),
    ],
)  # fmt: skip
def test_every_unit_of_a_budget(text, amount, unit):
    assert Budget.parse(text, 7) == Budget(amount, unit)
    assert Training(budget=text).limit == Budget(amount, unit)


@pytest.mark.parametrize(
    "text", ["0s", "0", "1000000000000000", "1e3", "-5", "5x", "5 m tokens", "5 s of steps tokens"]
)
def test_what_is_no_budget_is_refused_with_its_settings(text):
    with pytest.raises(RegardError, match="neither a time"):
        Training(budget=text)


def test_rows_are_the_windows_of_a_batch():
    assert Training(batch_tokens=100, window=30).rows == 3
    assert Training(batch_tokens=30, window=30).rows == 1
    assert Training(batch_tokens=100, window=30, accumulate=3).accumulate == 3
    with pytest.raises(RegardError, match="cannot exceed the 3 rows"):
        Training(batch_tokens=100, window=30, accumulate=4)
    with pytest.raises(RegardError, match="at least one window of 30"):
        Training(batch_tokens=29, window=30)
    assert Training(accumulate=9).accumulate == 9  # there is no window so far
    assert Training().for_context(None).window == 64
    assert Training().for_context(96).window == 96
    assert Training(window=96).for_context(96).window == 96
    assert Training(window=96).for_context(None).window == 96


def test_weights_are_averaged_in_one_way():
    with pytest.raises(RegardError, match="choose one"):
        PairTraining(ema=0.5, optimizer="asgd")
    with pytest.raises(RegardError, match="choose one"):
        Training(ema=0.5, optimizer="asgd")
    assert PairTraining(optimizer="asgd").ema == 0.0
    assert PairTraining(ema=0.5).ema == 0.5


@pytest.mark.parametrize(
    "part, found",
    [("train", "training"), ("trainer", "training"), ("dataset", "data"), ("architecture", "model"),
     ("steps", "training.steps"), ("lr", "training.learning_rate"), ("modle", "model")],
)  # fmt: skip
def test_a_section_of_another_name_is_answered_with_ours(part, found):
    with pytest.raises(RegardError, match=rf"There is no setting {part}: did you mean {found}\?"):
        compose("lstm", None, {part: {"steps": 5}})
