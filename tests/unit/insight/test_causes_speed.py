"""The study of how long questions take measures every question, and the grid that it names."""

import json
import sys
from pathlib import Path

import pytest

STUDY = Path(__file__).parents[3] / "studies"


def test_the_study_measures_the_whole_grid(monkeypatch, capsys):
    monkeypatch.syspath_prepend(STUDY)
    study = pytest.importorskip("causes_speed")
    given = ["--layers", "2", "--heads", "2", "--positions", "5", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["causes_speed.py", *given])
    study.main()
    found = json.loads(capsys.readouterr().out)
    rows = {(row["system"], row["question"]): row for row in found["rows"]}
    assert found["width"] == 64
    assert rows["gpt", "patch heads"]["grid"] == [4, 5]  # 2 layers × 2 heads, at every position
    assert rows["gpt", "patch layers"]["grid"] == [3, 5]  # the word vectors and each layer
    assert {question for system, question in rows if system == "lstm"} >= {"lens", "ablate", "why A, not B"}
    assert all(row["least ms"] > 0 for row in rows.values())
    monkeypatch.setattr(sys, "argv", ["causes_speed.py", *given, "--vocabulary", "4000"])
    study.main()
    wide = json.loads(capsys.readouterr().out)
    assert wide["vocabulary"] == 4000
    assert {row["question"] for row in wide["rows"]} == {"patch layers", "patch heads"}  # the others name tokens
