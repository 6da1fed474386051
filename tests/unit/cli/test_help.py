"""Help pages: every verb has examples that it accepts, shows no empty default, and names the documentation."""

import io
import os
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

import regard
from regard.cli.commands import VERBS, app
from regard.cli.help import COMMAND, DOCUMENTATION, ENVIRONMENT

PAGES = [*VERBS, "data check", "data fetch", "runs compare", "runs rename", "runs remove", "exercise check"]


def page(words):
    """The help of a verb, 100 columns wide."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    app.help_print(words.split(), console=console)
    return console.file.getvalue()


@pytest.mark.parametrize("words", PAGES)
def test_every_example_is_a_command_that_regard_accepts(words):
    lines = page(words).partition("\nExamples:\n")[2].partition("\n\n")[0].splitlines()
    assert lines
    for line in lines:
        assert COMMAND.match(line.strip()), line
        command = re.sub(r"^.*?\bregard ", "", line.partition(" < ")[0])
        app.parse_args(shlex.split(command), exit_on_error=False, print_error=False)
    assert any(f"regard {words}" in line for line in lines)


@pytest.mark.parametrize("words", ["", *PAGES])
def test_no_page_shows_an_empty_default_an_unnamed_type_or_an_argument_as_an_option(words):
    shown = page(words)
    for noise in ("[default: False]", '[default: ""]', "[default: ()]", "[default: None]", "CHOICE", "[choices:"):
        assert noise not in shown
    assert not re.search(r"│ \*? +[A-Z]+ --", shown)
    assert shown.rstrip().endswith(DOCUMENTATION)


@pytest.mark.parametrize("words", PAGES)
def test_every_option_is_explained(words):
    _, apps, _ = app.parse_commands(words.split())
    shown = [argument for argument in apps[-1].assemble_argument_collection(parse_docstring=True) if argument.show]
    assert shown
    assert not [argument.name for argument in shown if not argument.parameter.help]


def test_the_page_of_regard_names_every_environment_variable_that_is_read():
    read = set()
    for path in Path(regard.__file__).parent.rglob("*.py"):
        read |= set(re.findall(r"environ\.get\(\"(REGARD_\w+)\"", path.read_text(encoding="utf-8")))
    assert read == set(re.findall(r"REGARD_\w+", ENVIRONMENT))
    assert ENVIRONMENT.strip() in page("")


def test_train_lists_the_systems_and_how_to_see_every_setting():
    from regard.systems.catalogue import SYSTEMS

    shown = " ".join(page("train").replace("│", " ").split())
    assert all(f"{system.name}" in shown for system in SYSTEMS)
    assert "--print-recipe` lists all of them" in shown
    assert "{tiny,small,medium,large}" in shown


def test_choices_are_shown_in_their_order():
    for verb, shown in (
        ("evaluate", "{train,valid,test,all}"), ("compare", "{tokens,seconds,parameters}"), ("compare", "{slurm,ray}"),
        ("train", "{tensorboard,mlflow}"),
        ("generate", "{fp32,bf16,int8}"), ("score", "{best,last,STEP}"), ("score", "{auto,cpu,cuda}"),
        ("import", "{fp32,bf16}"), ("inspect", "{zero,mean,resampled}"), ("inspect", "{layers,heads}"),
    ):  # fmt: skip
        assert shown in "".join(page(verb).replace("│", "").split())


def test_a_run_may_still_be_given_as_an_option():
    for verb in ("evaluate", "score", "generate", "translate", "classify", "chat", "resume", "inspect"):
        _, bound, _ = app.parse_args([verb, "--run", f"runs{os.sep}mine"], exit_on_error=False, print_error=False)
        assert bound.arguments["run"] == Path("runs", "mine")
