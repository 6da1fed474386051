"""Advice that messages give: every option they name exists where they are read, and following it helps."""

import ast
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import regard as package
from regard.cli.commands import app
from regard.exchange.formats import FORMATS
from regard.runs.data_settings import DataSettings, PairDataSettings
from regard.runs.recipe import system_module
from regard.systems.catalogue import SYSTEMS
from regard.training.hyperparameters import CountTraining, PairTraining, Training

SOURCE = Path(package.__file__).parent
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)?)")
ADVICE = re.compile(r"--data\.columns \S+(?=\.$)")
ELSEWHERE = {  # the form of every setting; other programs' own; what comes without a verb
    "section.key", "nproc-per-node", "logdir", "backend-store-uri", "install-completion", "shell",
}  # fmt: skip
SPEAKERS = ("RegardError", "say", "print", "_ask")  # what shows a sentence to the user
READERS = ("train", "compare", "evaluate", "score", "data check")  # verbs that open a user's file
SETTLERS = ("train", "compare", "resume")  # verbs that take every setting


def messages():
    """(file, line, text) of each sentence in the source that is raised, said or printed; {} for what is filled in."""
    for path in sorted(SOURCE.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        if "--" not in code or not any(f"{name}(" in code for name in SPEAKERS):
            continue  # before it is parsed: most files
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in SPEAKERS:
                    text = "".join(map(text_of, node.args))
                    if "--" in text:
                        yield path.relative_to(SOURCE).as_posix(), node.lineno, text


def text_of(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.IfExp):
        return text_of(node.body) + " " + text_of(node.orelse)
    return "{}"


def commands(parent=app, before=""):
    for name in parent:
        if not name.startswith("-"):
            yield f"{before}{name}", parent[name]
            yield from commands(parent[name], f"{before}{name} ")


def options(verb):
    collection = verb.assemble_argument_collection(parse_docstring=False)
    return {name.removeprefix("--") for argument in collection for name in argument.names}


OPTIONS = {name: options(verb) for name, verb in commands()}
OPTIONS["export"] |= {name for form in FORMATS.values() for name in form.options or ()}
SETTINGS = {f"data.{f.name}" for section in (DataSettings, PairDataSettings) for f in fields(section)}
SETTINGS |= {f"training.{f.name}" for section in (Training, PairTraining, CountTraining) for f in fields(section)}
SETTINGS |= {f"model.{f.name}" for system in SYSTEMS for f in fields(system_module(system.name).Settings)}


def takes(verb, option):
    return option in OPTIONS[verb] or (verb in SETTLERS and option.replace("-", "_") in SETTINGS)


MESSAGES = [*messages()]


def test_there_is_advice_to_follow():
    assert len(MESSAGES) > 30
    assert {"train", "data check", "evaluate"} <= OPTIONS.keys()


@pytest.mark.parametrize("place, line, text", MESSAGES, ids=[f"{place}:{line}" for place, line, _ in MESSAGES])
def test_every_option_that_a_message_names_exists(place, line, text):
    for command in re.findall(r"`regard ([^`]*)`", text):
        words = command.split()
        verb = " ".join(words[:2]) if " ".join(words[:2]) in OPTIONS else words[0]
        assert verb in OPTIONS, command
        for option in OPTION.findall(command):
            assert takes(verb, option), f"{verb} has no --{option}"
    for option in OPTION.findall(re.sub(r"`[^`]*`", "", text)):
        if option == "data.columns":
            assert all(takes(verb, option) for verb in READERS), option
        elif option not in ELSEWHERE:
            assert any(takes(verb, option) for verb in OPTIONS), f"no verb has --{option}"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [(f"Nina vitabu {n} na {n + 1}.", f"I have {n} books and {n + 1}.") for n in range(80)]
    texts = {
        "ids.tsv": "".join(f"{n}\t{one}\t{two}\n" for n, (one, two) in enumerate(pairs)),
        "keys.jsonl": "".join(json.dumps({"n": n, "a": one, "b": two}) + "\n" for n, (one, two) in enumerate(pairs)),
        "moses.sw": "".join(f"{one}\n" for one, _ in pairs),
        "moses.en": "".join(f"{two}\n" for _, two in pairs),
        "pairs.csv": "sw;en\n" + "".join(f"{one};{two}\n" for one, two in pairs),
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")


TINY = ["--size", "tiny", "--training.steps", "1", "--training.threads", "1", "--run", "new"]


@pytest.mark.parametrize(
    "words",
    [
        ["data", "check", "ids.tsv"],
        ["data", "check", "moses"],
        ["train", "transformer", "--data", "ids.tsv", *TINY],
        ["train", "transformer", "--data", "moses", *TINY],
        ["train", "transformer", "--data", "keys.jsonl", *TINY],
        ["train", "ngram", "--data", "pairs.csv", "--run", "new"],
        ["train", "ngram", "--data", "keys.jsonl", "--run", "new"],
    ],
    ids=" ".join,
)
def test_following_the_advice_helps(regard, wrong, data, words):
    said = wrong(*words)
    advice = ADVICE.search(said)
    assert advice, said
    code, _, errors = regard(*words, *advice[0].split())
    assert code == 0, errors


def test_other_data_of_a_run_is_asked_about_in_the_same_words(regard, wrong, data):
    assert regard("train", "transformer", "--data", "pairs.csv", *TINY)[0] == 0
    for verb in ("evaluate", "score"):
        advice = ADVICE.search(wrong(verb, "new", "--data", "ids.tsv"))
        assert regard(verb, "new", "--data", "ids.tsv", *advice[0].split())[0] == 0
        assert "give that file with --data" in wrong(verb, "new", "--data.columns", "1,2")
    recipe = Path("new/recipe.toml").read_text(encoding="utf-8")
    assert 'columns = "sw,en"' in recipe
    assert 'header = "yes"' in recipe
    assert regard("resume", "new")[0] == 0
    assert regard("evaluate", "new", "--json")[0] == 0


@pytest.mark.parametrize("verb", ["train", "compare"])
@pytest.mark.parametrize("option", ["source", "target", "columns"])
def test_a_setting_of_the_data_without_its_section_leads_to_it(wrong, data, verb, option):
    said = wrong(verb, "transformer", "--data", "moses", f"--{option}", "sw")
    assert f"There is no option --{option}: did you mean --data.{option}?" in said
    assert f"did you mean --data.{option}?" in wrong(verb, f"--{option}", "sw", "transformer", "--data", "moses")


def test_an_option_without_a_verb_is_answered_with_our_name(wrong):
    assert "did you mean `regard train SYSTEM --training.learning_rate`?" in wrong("--lr", "3")
    assert "did you mean `regard train SYSTEM --training.steps`?" in wrong("--training.steps=3")
    assert "put the verb first" in wrong("--colour", "red")


def test_a_text_on_the_command_line_is_answered_with_the_pipe(wrong):
    assert "`echo 'a boy' | regard translate runs/mine`" in wrong("translate", "runs/mine", "a boy")
    assert "`echo x | regard classify runs/mine`" in wrong("classify", "runs/mine", "x")
    assert "`regard generate runs/mine --prompt 'The cat'`" in wrong("generate", "runs/mine", "The cat")


@pytest.mark.parametrize("words", [["train", "lstmm"], ["compare", "lstm", "gtp"]])
def test_a_misspelt_system_is_answered_without_torch(words):
    code = (
        "import sys\nfrom regard.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit as stop:\n    assert stop.code == 2\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "did you mean" in done.stderr
