"""An exported n-gram with its tokenizer: whoever follows the printed lines gets the scores of `regard score`."""

import subprocess
import sys
from math import log

import pytest

import regard
from regard.base.errors import RegardError
from regard.exchange.formats import export, import_file

LINES = [
    f"{who} {does}n't see {what}."
    for who in ("The cat", "Déjà, my friend", "A bird")
    for does in ("does", "did", "could")
    for what in ("the house", "a tree", "2 rivers", "an old song")
]
NEW = "Déjà, the bird couldn't see an old house."


@pytest.fixture(scope="module", params=["bpe", "char", "word", "byte"])
def counted(request, tmp_path_factory):
    """An n-gram with each kind of tokenizer."""
    folder = tmp_path_factory.mktemp("arpa")
    (folder / "text.txt").write_text("\n".join(LINES * 3) + "\n", encoding="utf-8")
    settings = {"data": {"tokenizer": request.param}, "model": {"order": 3}}
    return regard.train("ngram", data=folder / "text.txt", run=folder / request.param, settings=settings)


def score_by(program, line):
    """What the printed program prints when it scores another line."""
    program = program.replace('"a line of text"', repr(line))
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


def test_the_printed_lines_give_the_score_of_regard(counted, tmp_path, capsys):
    pytest.importorskip("kenlm")
    out = tmp_path / "it's mine.arpa"
    export(counted.folder, "arpa", out)
    said, program = capsys.readouterr().err.split("\n", 1)
    assert "tokenize plain text first" in said
    (scored,) = counted.score([NEW])
    assert score_by(program, NEW) == pytest.approx(scored.log_probability / log(10), abs=1e-4)


def test_the_header_says_the_same(counted, tmp_path, monkeypatch):
    pytest.importorskip("kenlm")
    monkeypatch.chdir(tmp_path)
    export(counted.folder, "arpa", tmp_path / "NAME.arpa")
    with open("NAME.arpa", encoding="utf-8") as file:
        header = [line.removeprefix("# ") for line in file if line.startswith("# ")]
    assert "tokenize plain text first" in header[0]
    (scored,) = counted.score([NEW])
    assert score_by("".join(header[1:]), NEW) == pytest.approx(scored.log_probability / log(10), abs=1e-4)


def test_with_the_tokenizer_beside_it_the_file_comes_back(counted, tmp_path):
    export(counted.folder, "arpa", tmp_path / "x.arpa")
    back = regard.load(import_file(tmp_path / "x.arpa", tmp_path / "back", tmp_path / "x.tokenizer.json"))
    (ours,), (theirs,) = counted.score([NEW]), back.score([NEW])
    assert theirs.tokens == ours.tokens
    assert theirs.log_probability == pytest.approx(ours.log_probability, abs=1e-4)


def test_words_between_spaces_need_no_tokenizer(tmp_path, capsys):
    kenlm = pytest.importorskip("kenlm")
    (tmp_path / "text.txt").write_text("the cat sees a <unk> .\na <unk> cat sees the house .\n" * 20)
    settings = {"data": {"tokenizer": "word"}}
    run = regard.train("ngram", data=tmp_path / "text.txt", run=tmp_path / "run", settings=settings)
    assert run.tokenizer.pretokenised
    capsys.readouterr()
    export(run.folder, "arpa", tmp_path / "x.arpa")
    assert "first" not in capsys.readouterr().err
    (scored,) = run.score(["the house sees a cat ."])
    found = kenlm.Model(str(tmp_path / "x.arpa")).score("the house sees a cat .")
    assert found == pytest.approx(scored.log_probability / log(10), abs=1e-4)


def test_another_tokenizer_of_that_name_stays(counted, tmp_path):
    (tmp_path / "x.tokenizer.json").write_text("mine")
    with pytest.raises(RegardError, match=r"x\.tokenizer\.json already exists"):
        export(counted.folder, "arpa", tmp_path / "x.arpa")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tokenizer.json"]
    assert (tmp_path / "x.tokenizer.json").read_text() == "mine"
    (tmp_path / "x.tokenizer.json").write_text(counted.tokenizer.json)  # as an interrupted export leaves it
    export(counted.folder, "arpa", tmp_path / "x.arpa")
    assert (tmp_path / "x.arpa").exists()
