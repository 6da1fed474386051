"""The words of other toolkits lead to ours, and every name the table leads to exists."""

import pytest

from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.base.synonyms import COMMANDS, OPTIONS, SETTINGS, from_synonym
from regard.cli.commands import VERBS, app
from regard.runs.recipe import compose, known_settings, parse_overrides

KEYS = dict(known_settings())


def options_of(verb):
    return {name.removeprefix("--") for argument in app[verb].assemble_argument_collection() for name in argument.names}


def test_every_setting_that_a_synonym_leads_to_exists():
    assert SETTINGS.keys() <= KEYS.keys()


def test_every_option_that_a_synonym_leads_to_exists():
    known = set().union(*(options_of(verb) for verb in VERBS))
    assert OPTIONS.keys() <= known


def test_every_command_that_a_synonym_leads_to_exists():
    for command in COMMANDS:
        verb, _, rest = command.partition(" ")
        assert verb in VERBS or verb in ("--help", "--version")
        assert not rest or rest in app[verb]


def test_no_synonym_is_a_name_of_ours():
    names = {key.partition(".")[2] for key in KEYS}
    words = {word for words in SETTINGS.values() for word in words.split()}
    assert words.isdisjoint(names - {"smoothing"}), words & names  # of the n-gram, which has no label smoothing
    assert not {word for words in COMMANDS.values() for word in words.split()} & set(VERBS)


@pytest.mark.parametrize(
    "system, word, expected",
    [
        ("lstm", "lr", "training.learning_rate"),
        ("lstm", "LR", "training.learning_rate"),
        ("gpt", "n-embd", "model.width"),
        ("gpt", "n_layer", "model.layers"),
        ("gpt", "block_size", "model.context"),
        ("gpt", "max_length", "model.context"),
        ("transformer", "max_length", "data.longest"),
        ("transformer", "num_heads", "model.heads"),
        ("transformer", "attention_dropout", "model.dropout_attention"),
        ("gpt", "attention_dropout", "model.dropout"),
        ("lstm", "batch_size", "training.batch_tokens"),
        ("lstm", "num_epochs", "training.epochs"),
        ("lstm", "max_iters", "training.steps"),
        ("lstm", "hidden_size", "model.width"),
        ("lstm", "vocab_size", "data.vocabulary"),
        ("lstm", "warmup_steps", "training.warmup"),
        ("lstm", "dropout_rate", "model.dropout"),
        ("lstm", "weightdecay", "training.weight_decay"),
        ("lstm", "gpu", "training.device"),
        ("lstm", "output", "run"),
        ("lstm", "checkpoint", "from"),
        ("lstm", "layers", "model.layers"),
        ("lstm", "learning-rate", "training.learning_rate"),
    ],
)
def test_a_word_of_the_field_is_answered_with_ours(system, word, expected):
    with pytest.raises(RegardError, match=f"did you mean --{expected}[ ?]"):
        parse_overrides([f"--{word}", "3"], ("data", "run", "from"), system)
    if "." in expected:
        part = expected.partition(".")[0]
        name = word.replace("-", "_")
        if f"{part}.{name}" != expected:
            with pytest.raises(RegardError, match=f"did you mean {expected}[ ?]"):
                compose(system, None, {part: {name: "3"}})


def test_the_system_is_no_option():
    with pytest.raises(RegardError, match=r"the system comes first, as in `regard train lstm`"):
        parse_overrides(["--model", "lstm"], ("data",))


def test_a_close_spelling_still_wins_over_nothing():
    assert did_you_mean("sede", ["seed", "size"]) == ": did you mean seed?"
    assert "choose one of seed, size" in did_you_mean("zzz", ["seed", "size"])
    assert from_synonym("eval", COMMANDS, COMMANDS) == "evaluate"
