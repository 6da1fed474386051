"""Every command of the README and the cheat sheet is run, in its order, in one folder."""

import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from regard.comparison import ladders
from regard.systems.catalogue import find
from shown_commands import commands_in, folder_of_examples, shortened

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHEAT_SHEET = (ROOT / "docs" / "guides" / "cheat-sheet.md").read_text(encoding="utf-8")
COMMANDS = commands_in(CHEAT_SHEET)
LONG = {"regard demo": pytest.mark.slow}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text_file):
    return folder_of_examples(tmp_path_factory.mktemp("readme"), text_file)


@pytest.fixture(scope="module")
def answers():
    """What the commands so far were answered, in their order."""
    return []


def promised(words):
    """The files and folders that a command says it writes."""
    if {"--dry-run", "--print-recipe"} & {*words}:
        return []
    after = [word for option, word in pairwise(words) if option in ("--run", "--out", "--html")]
    if words[0] == "export":
        options = {word for option, word in pairwise(words) if option.startswith("--") and option != "--check"}
        after += [word for word in words[2:] if not word.startswith("--") and word not in options]
    return after


def has_content(path):
    return any(path.iterdir()) if path.is_dir() else path.is_file() and path.stat().st_size > 0


SAYS = {  # what the answer to a verb must have
    "evaluate": "perplexity", "systems": "Bahdanau", "doctor": "torch", "laws": "✓", "data": r"my\.txt|pairs\.tsv",
    "claims": r"C\d+ +[a-z-]+", "inspect": "The", "compare": "perplexity", "lecture": "chapter|claim",
    "exercise": "causal-mask", "runs": "mine|gallery/gpt",
}  # fmt: skip


@pytest.fixture
def answered(answers, regard, folder, monkeypatch, warm):
    """The words of the command with this number, and its answer."""
    few = [system for system in ladders.SYSTEMS if system.name in ("ngram", "gpt", "transformer")]
    monkeypatch.setattr(ladders, "SYSTEMS", few)  # they stand for the others: each takes a second and its start
    monkeypatch.chdir(folder)

    def get(number):
        for command in COMMANDS[len(answers) : number + 1]:  # a command builds on those before it
            words, _, source = command.partition("<")
            words = shortened(shlex.split(words)[1:])
            typed = "They are watching.\n" if words[0] == "chat" else ""
            read = (folder / source.strip()).read_text() if source else typed
            with monkeypatch.context() as patched:
                if words[0] == "demo":
                    patched.setattr(sys, "executable", warm)
                code, out, errors = regard(*words, stdin=read)
            made = {name: has_content(folder / name) for name in promised(words)}  # now: a later one may remove it
            answers.append((words, code, out, errors, read, made))
        return answers[number]

    return get


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=LONG.get(command, []), id=command) for n, command in enumerate(COMMANDS)]
)
def test_every_command_of_the_cheat_sheet_works(number, answered):
    """It writes what it says it writes, answers each line that it reads, and prints what it is there for."""
    words, code, out, errors, read, made = answered(number)
    assert code == 0, errors
    assert all(made.values()), made
    if words[0] in ("translate", "classify", "score") and read:  # of a model that has learned nothing, blank ones too
        assert len(out.splitlines()) == len(read.splitlines())
    else:
        assert made or (out.strip() and re.search(SAYS.get(words[0], ""), out))


@pytest.mark.slow
def test_the_demo_prints_a_table_for_each_ladder_and_a_sample_from_each_system(answered, folder):
    _, _, out, errors, *_ = answered(COMMANDS.index("regard demo"))
    for label in ("2-gram", "5-gram", "gpt"):
        assert f"── {label} writes ──" in out
    for heading in ("perplexity", "BLEU", "align. error", "words of the source"):
        assert heading in out
    first = [line.split()[0] for line in out.splitlines() if line.startswith(("English ", "transformer "))]
    assert first.count("English") == 5
    assert first.count("transformer") == 6  # its five translations and its row of the table
    assert all(len(line.split()) > 1 for line in out.splitlines() if line.startswith("transformer "))  # never a blank
    assert "A budget of 1 s is too small for a translation system to learn much" in errors
    for ladder, run in (("language", "gpt"), ("translation", "transformer")):
        assert str(Path("runs") / "demo" / ladder / "report.html") in out
        assert (folder / "runs" / "demo" / ladder / "report.html").exists()
        assert (folder / "runs" / "demo" / ladder / run / "model.safetensors").exists()


@pytest.mark.slow
def test_the_tables_of_the_demo_have_the_form_that_the_readme_shows(answered):
    """The same columns and systems; the numbers are of one recorded demo on two quiet cores."""
    printed = [line.split() for line in answered(COMMANDS.index("regard demo"))[2].splitlines() if line.strip()]
    (block,) = re.findall(r"<!-- recorded -->\n```text\n(.*?)```", README, flags=re.S)
    shown = [line.removesuffix("…").split() for line in block.splitlines() if line != "…"]
    for line in shown:
        if line[0] == "system":
            assert any(words[: len(line)] == line for words in printed), line
        else:  # a system and its year; the test's demo trains fewer of them
            assert line[1] == str(find("ngram" if line[0].endswith("-gram") else line[0]).year), line


def test_the_cheat_sheet_shows_every_verb():
    verbs = {command.split()[1] for command in COMMANDS}
    assert len(COMMANDS) >= 50
    assert verbs >= {
        *[
            "train",
            "resume",
            "evaluate",
            "compare",
            "runs",
            "generate",
            "translate",
            "classify",
            "score",
            "chat",
            "inspect",
        ]
    }
    assert verbs >= {
        *["data", "systems", "laws", "claims", "lecture", "exercise", "export", "import", "doctor", "demo"]
    }


def test_the_readme_is_short():
    """It shows results and leads on; what else there is to say is in docs/."""
    assert len(README.split()) <= 900
    assert len(README.splitlines()) <= 130


def test_the_python_of_the_cheat_sheet_works(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (code,) = re.findall(r"```python\n(.*?)```", CHEAT_SHEET, flags=re.S)
    exec(compile(code.replace('"steps": 200', '"steps": 10'), "cheat-sheet.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("The cat") for line in printed)


def test_every_link_to_a_file_leads_somewhere():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("notes/*.md")]
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not lost
