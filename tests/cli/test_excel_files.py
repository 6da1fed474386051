"""Files as Excel saves them (cp1252, XLSX), for every command that reads data."""

import json

import openpyxl
import pytest

FRENCH = [f"L’été n° {n} – “très” chaud, déjà {n % 7} €." for n in range(80)]
TINY = ["--size", "tiny", "--training.steps", "2", "--training.evaluate-every", "1", "--training.device", "cpu"]
ADVICE = "it is probably cp1252, as Excel saves: add --data.encoding cp1252"
CP1252 = ["--data.encoding", "cp1252"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\r\n".join([*FRENCH, ""]).encode("cp1252"))
    return path


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    rows = ["English;Français", *(f"Summer {n} is hot.;{line}" for n, line in enumerate(FRENCH))]
    path.write_bytes("\r\n".join([*rows, ""]).encode("cp1252"))
    return path


def test_a_check_reports_and_then_fails_as_training_does(regard, text, pairs):
    for path, system in ((text, "ngram"), (pairs, "transformer")):
        code, out, err = regard("data", "check", path)
        assert code == 2
        assert "not UTF-8" in out
        assert ADVICE in err
        code, out, err = regard("data", "check", path, "--json")
        assert code == 2
        assert ADVICE in next(iter(json.loads(out)["files"].values()))["refused"]
        assert regard("train", system, "--data", path)[0::2] == (2, err)
        assert regard("data", "check", path, *CP1252)[0] == 0
        assert "no text encoding" in regard("train", system, "--data", path, "--data.encoding", "nope")[2]


def test_a_language_model_is_trained_resumed_and_evaluated_in_an_encoding(regard, text, tmp_path):
    run = tmp_path / "run"
    assert regard("train", "lstm", "--data", text, *CP1252, "--run", run, *TINY)[0] == 0
    assert 'encoding = "cp1252"' in (run / "recipe.toml").read_text(encoding="utf-8")
    assert regard("resume", run)[0] == 0
    assert regard("evaluate", run, "--split", "valid")[0] == 0
    code, _, err = regard("evaluate", run, "--data", text)
    assert (code, ADVICE in err) == (2, True)
    code, out, _ = regard("evaluate", run, "--data", text, *CP1252, "--split", "all", "--json")
    assert code == 0
    assert json.loads(out)["characters"] == sum(map(len, FRENCH)) + len(FRENCH)
    assert "give that file with --data" in regard("evaluate", run, *CP1252)[2]
    assert "--data.encoding does not apply" in regard("score", run, *CP1252)[2]


def test_a_translator_is_trained_evaluated_and_scores_in_an_encoding(regard, pairs, tmp_path):
    run = tmp_path / "run"
    code, _, err = regard("train", "transformer", "--data", pairs, *CP1252, "--run", run, *TINY)
    assert code == 0
    assert "pairs.csv is CSV (cp1252, header English, Français, by ';'): English is the source" in err
    assert regard("resume", run)[0] == 0
    assert regard("evaluate", run, "--beam", "1")[0] == 0
    assert ADVICE in regard("score", run, "--data", pairs)[2]
    code, out, _ = regard("score", run, "--data", pairs, *CP1252)
    assert code == 0
    assert [line.split("\t")[-1] for line in out.splitlines()] == FRENCH


def test_a_workbook_is_checked_trained_on_and_evaluated(regard, tmp_path):
    book, path, run = openpyxl.Workbook(), tmp_path / "pairs.xlsx", tmp_path / "run"
    for row in [("ID", "English", "Español"), *((n, f"Summer {n}.", f"El verano {n}.") for n in range(80))]:
        book.active.append(row)
    book.save(path)
    assert "for example --data.columns English,Español" in regard("data", "check", path)[2]
    columns = ["--data.columns", "English,Español"]
    assert "sheet 'Sheet', header ID, English, Español" in regard("data", "check", path, *columns)[1]
    assert regard("train", "transformer", "--data", path, *columns, "--run", run, *TINY)[0] == 0
    assert regard("resume", run)[0] == 0
    assert regard("evaluate", run, "--data", path, "--beam", "1")[0] == 0
