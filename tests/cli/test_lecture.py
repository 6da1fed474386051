"""`regard lecture`, and every command that the course shows."""

import json
import re
import shlex
from pathlib import Path

import pytest

from regard.learn.lectures import lectures
from shown_commands import commands_in, folder_of_examples, shortened

PAGES = lectures()
CHEAT_SHEET = Path(__file__).parents[2] / "docs" / "guides" / "cheat-sheet.md"


def test_the_list_names_all_chapters(regard):
    code, out, _ = regard("lecture")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [*(page.name for page in PAGES), "mistakes", "about"]
    assert [page["name"] for page in json.loads(regard("lecture", "--json")[1])][:2] == ["counting", "embeddings"]


def test_a_page_is_shown_with_the_lines_of_its_code_and_the_verdicts(regard):
    code, out, _ = regard("lecture", "3")
    assert code == 0
    assert out == regard("lecture", "recurrent")[1]
    assert re.search(r"^- Code: layers/recurrent.py:\d+: `return", out, flags=re.M)
    assert re.search(r"^- ✓ claim `vanishing` holds: .*Control: ", out, flags=re.M)
    assert "](" not in out  # a terminal follows no link into a folder
    assert not re.search(r"[$\\]|<!--|</?details", out.replace("\n$ ", ""))  # formulas are text
    page = json.loads(regard("lecture", "recurrent", "--json")[1])
    assert "003:48–56" in page["sections"][0]["lines"]


def test_a_terminal_gets_the_page_laid_out(regard, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, _ = regard("lecture", "003:49")
    assert code == 0
    assert "##" not in out
    assert re.search(r"h_t = tanh ?\(W", out)


def test_a_line_leads_to_its_code_command_and_claim(regard):
    code, out, _ = regard("lecture", "003:49")
    assert code == 0
    assert re.search(r"^> +\d+ .*getattr\(torch, activation\)\(wx \+ uh\)", out, flags=re.M)
    place = re.search(r"^(\S+/layers/recurrent.py):(\d+)$", out, flags=re.M)
    assert "(wx + uh)" in Path(place[1]).read_text("utf-8").splitlines()[int(place[2]) - 1]
    assert "regard inspect" in out
    assert "regard claims parameters vanishing forgetting" in out
    found = json.loads(regard("lecture", "003:49", "--json")[1])
    assert found["chapter"] == "recurrent"
    assert found["code"][0]["file"] == "layers/recurrent.py"
    assert found["equations"][0] == r"h_t = \tanh(W x_t + U h_{t-1} + b)"
    assert found["claims"] == ["parameters", "vanishing", "forgetting"]
    assert found["code"][0]["text"] in found["code"][0]["around"][-1]["text"]


def test_a_line_shows_its_common_mistake(regard):
    assert "self-attention" in regard("lecture", "003:255")[1].partition("Common mistake")[2]
    found = json.loads(regard("lecture", "004:165", "--json")[1])
    assert [one["title"] for one in found["mistakes"]] == ["Epanechnikov's kernel"]


@pytest.mark.parametrize("place", ["009", "0", "9", "003", "003:9999", "003:0", "abc", "003:x", "abc:1", ":", ""])
def test_a_place_that_is_not_there_is_one_sentence(wrong, place):
    assert "003" in wrong("lecture", place)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text_file):
    return folder_of_examples(tmp_path_factory.mktemp("lectures"), text_file)


@pytest.fixture(scope="module")
def done():
    """The commands so far: pages share their runs."""
    return set(commands_in(CHEAT_SHEET.read_text(encoding="utf-8")))  # which its own test runs


@pytest.mark.parametrize("number", range(len(PAGES)), ids=[page.name for page in PAGES])
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
