"""`regard inspect` about causes: --lens, --ablate, --patch, --why … --not, --head-scores."""

import json

import pytest

import regard
from regard.cli import main

LINES = ["the ship left the harbour", "the captain saw the sea", "a ship saw the captain"] * 8
PAIRS = [(line, line.replace("the", "le")) for line in LINES]
QUICK = {"data": {"tokenizer": "word"}, "training": {"steps": 4, "evaluate_every": 4}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causes")
    systems = {"gpt": LINES, "lstm": LINES, "ngram": LINES, "transformer": PAIRS}
    settings = {"ngram": {"data": QUICK["data"]}}
    return {
        name: regard.train(name, data=data, run=folder / name, size="tiny", settings=settings.get(name, QUICK)).folder
        for name, data in systems.items()
    }


def told(capsys, *words):
    main(["inspect", *map(str, words)])
    return capsys.readouterr().out


ASKED = [
    ("gpt", ["--lens"], "prediction"),
    ("gpt", ["--ablate", "heads"], "self/0[0]"),
    ("gpt", ["--patch", "the captain left the harbour", "--why", "saw", "--not", "ship"], "layer/0"),
    ("gpt", ["--why", "saw", "--not", "ship"], "Completeness error"),
    ("gpt", ["--head-scores"], "chance"),
    ("lstm", ["--ablate", "gates"], "layer/0/forget"),
    ("lstm", ["--patch", "the captain left the harbour", "--why", "saw", "--not", "ship"], "layer/0 state"),
    ("ngram", ["--ablate", "orders"], "order/2"),
    ("transformer", ["--target", "le ship", "--ablate", "heads"], "cross/0[0]"),
    ("transformer", ["--why", "le", "--not", "ship"], "integrated gradients"),
]


@pytest.mark.parametrize(("system", "options", "shown"), ASKED)
def test_a_question_is_answered_in_the_terminal_and_as_json(runs, capsys, system, options, shown):
    text = "the ship left the harbour"
    assert shown in told(capsys, runs[system], text, *options)
    assert json.loads(told(capsys, runs[system], text, *options, "--json"))


REFUSED = [
    ("gpt", ["--lens", "--head-scores"], "one at a time"),
    ("gpt", ["--why", "sea"], "give both"),
    ("gpt", ["--ablate", "tails"], "heads"),
    ("gpt", ["--lens", "--gradients"], "cannot be combined"),
    ("gpt", ["--patch", "the ship"], "equal lengths"),
    ("ngram", ["--lens"], "no layers"),
    ("ngram", ["--why", "saw", "--not", "ship"], "no word vectors"),
]


@pytest.mark.parametrize(("system", "options", "said"), REFUSED)
def test_bad_input_is_refused_in_one_sentence(runs, capsys, system, options, said):
    with pytest.raises(SystemExit) as left:
        main(["inspect", str(runs[system]), "the ship left the harbour", *options])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
