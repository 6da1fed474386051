"""`regard lecture`, and every command that the lectures' pages show."""

import json
import re
import shlex
from pathlib import Path

import pytest

from regard.learn.lectures import lectures
from shown_commands import commands_in, folder_of_examples, shortened

PAGES = lectures()
CHEAT_SHEET = Path(__file__).parents[2] / "docs" / "guides" / "cheat-sheet.md"


def test_the_list_names_all_lectures(regard):
    code, out, _ = regard("lecture")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["000", "001", "002", "003", "004", "errata"]
    assert [page["number"] for page in json.loads(regard("lecture", "--json")[1])][:2] == ["000", "001"]


def test_a_page_is_shown_with_the_lines_of_its_code(regard):
    code, out, _ = regard("lecture", "003")
    assert code == 0
    assert re.search(r"^- Code: layers/recurrent.py:\d+: `return", out, flags=re.M)
    assert "](" not in out  # a terminal follows no link into a folder
    page = json.loads(regard("lecture", "003", "--json")[1])
    assert page["lines"] == 300
    assert page["entries"][3]["lines"] == ["003:48–52"]


def test_a_terminal_gets_the_page_laid_out(regard, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, _ = regard("lecture", "003:49")
    assert code == 0
    assert "##" not in out
    assert "tanh(W_hhᵀ" in out


def test_a_line_leads_to_its_code_command_and_claim(regard):
    code, out, _ = regard("lecture", "003:49")
    assert code == 0
    assert re.search(r"^> +\d+ .*getattr\(torch, activation\)\(wx \+ uh\)", out, flags=re.M)
    place = re.search(r"^(\S+/layers/recurrent.py):(\d+)$", out, flags=re.M)
    assert "(wx + uh)" in Path(place[1]).read_text("utf-8").splitlines()[int(place[2]) - 1]
    assert "regard inspect" in out
    assert "`regard train rnn --data pyref --run runs/rnn --size tiny --budget 60s` trains the run" in out
    assert "regard claims vanishing" in out
    found = json.loads(regard("lecture", "003:49", "--json")[1])
    assert found["code"][0]["file"] == "layers/recurrent.py"
    assert found["equations"] == ["h_t = tanh(W_hhᵀ h_{t-1} + W_hxᵀ x_t)"]
    assert found["claims"] == ["vanishing"]
    assert any(line["text"] == found["code"][0]["around"][2]["text"] for line in found["code"][0]["around"])


def test_a_line_shows_its_erratum(regard):
    assert "self-attention" in regard("lecture", "003:255")[1].partition("Erratum")[2]
    assert [one["title"] for one in json.loads(regard("lecture", "004:165", "--json")[1])["errata"]] == ["Epanechnikov"]


@pytest.mark.parametrize("place", ["009", "003:9999", "003:0", "abc", "003:x", "abc:1", "003:", ":", ""])
def test_a_place_that_is_not_there_is_one_sentence(wrong, place):
    assert "003" in wrong("lecture", place)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text_file):
    return folder_of_examples(tmp_path_factory.mktemp("lectures"), text_file)


@pytest.fixture(scope="module")
def done():
    """The commands so far: pages share their runs."""
    return set(commands_in(CHEAT_SHEET.read_text(encoding="utf-8")))  # which its own test runs


@pytest.mark.parametrize("number", range(len(PAGES)), ids=[page.number for page in PAGES])
def test_every_command_of_a_page_works(number, done, regard, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for page in PAGES[: number + 1]:  # a page may use runs of those before it
        for command in [*commands_in(page.markdown), *(one for entry in page.entries for one in entry.commands)]:
            if command in done:
                continue
            done.add(command)
            words, _, source = command.partition(" < ")
            words = shlex.split(words)[1:]
            # What claims measure is tested elsewhere; here their names must be right.
            words = [*words, "--list"] if words[0] == "claims" else shortened(words)
            code, out, errors = regard(*words, stdin=(folder / source).read_text("utf-8") if source else "")
            assert code == 0, (command, errors)
            assert out, command


def test_the_loop_of_lecture_003_runs_as_it_is_written(regard, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    if not (folder / "runs" / "rnn").exists():
        regard(*shortened(shlex.split(commands_in(PAGES[3].markdown)[0])[1:]))
    (code,) = re.findall(r"```python\n(import regard.*?)```", PAGES[3].markdown, flags=re.S)
    exec(compile(code, "003.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[")
