"""Every command and every line of Python that the README shows is run, in its order, in one folder."""

import re
import shlex
from pathlib import Path

import pytest
from shown_commands import commands_in, folder_of_examples, shortened

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


COMMANDS = commands_in(README)
LONG = {"regard demo": [pytest.mark.slow, pytest.mark.timeout(3600)]}  # every system, each in a process of its own


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text_file):
    return folder_of_examples(tmp_path_factory.mktemp("readme"), text_file)


@pytest.fixture(scope="module")
def answers():
    """What the commands so far were answered, in their order."""
    return []


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=LONG.get(command, []), id=command) for n, command in enumerate(COMMANDS)]
)
def test_every_command_of_the_readme_works(number, answers, regard, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for command in COMMANDS[len(answers) : number + 1]:  # a command builds on those before it
        words, _, source = command.partition("<")
        words = shortened(shlex.split(words)[1:])
        typed = "They are watching.\n" if words[0] == "chat" else ""
        answer = regard(*words, stdin=(folder / source.strip()).read_text() if source else typed)
        answers.append((words, *answer))
    words, code, out, errors = answers[number]
    assert code == 0, errors
    written = folder / words[words.index("--out") + 1] if "--out" in words else None
    assert out or (written and written.read_text(encoding="utf-8"))


def test_the_readme_shows_commands():
    assert len(COMMANDS) >= 15


def test_the_python_of_the_readme_works(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (code,) = [block for block in blocks("python") if "import regard" in block]
    exec(compile(code.replace('"steps": 200', '"steps": 10'), "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("The cat") for line in printed)


def test_files_and_scripts_that_the_readme_names_exist():
    root = Path(__file__).parents[2]
    for name in re.findall(r"(?:docs|recipes|bench)/[\w./-]+\.(?:md|toml|py)", README):
        assert (root / name).exists(), name
