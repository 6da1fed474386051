"""Which claims are measured together, and which of what was measured before counts for which question."""

import dataclasses
import os

import pytest
import torch

from regard.claims import runner
from regard.claims.all_claims import NAMES, get_claim
from regard.claims.claim import Claim, Evidence, Expect


@pytest.fixture
def claims(monkeypatch):
    """claims(name=kinds, …): claims that note when and in which process they are measured."""
    noted = []

    def make(**kinds):
        made = {
            name: Claim(
                name=name, number="C0", kinds=kind, quote="q", where="000:1", statement="s", conditions="c",
                control_words="w", breaks="b", expected=(Expect("effect", "at least", 1.0),),
                control=(Expect("control", "at most", 0.5),),
                experiment=lambda trial, name=name: noted.append((name, os.getpid()))
                or Evidence({"effect": [2.0, 2.0], "control": [0.0, 0.0]}),
            )
            for name, kind in kinds.items()
        }  # fmt: skip
        monkeypatch.setattr(runner, "get_claim", made.__getitem__)
        monkeypatch.setattr(runner, "module_of", lambda name: "hull")
        return noted

    return make


def test_claims_that_measure_time_are_measured_alone_and_after_the_others(claims, tmp_path, monkeypatch):
    """One after the other in this process: a neighbour on another core would change what they measure."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    noted = claims(fast=("timing",), slow=("identity", "timing"), plain=("measured",))
    results = runner.run_claims(["fast", "slow", "plain"], jobs=4)
    assert [result.name for result in results] == ["fast", "slow", "plain"]
    assert noted == [(name, os.getpid()) for name in ("plain", "fast", "slow")]


def test_the_claims_that_measure_time_say_so():
    assert [name for name in NAMES if "timing" in get_claim(name).kinds] == ["waiting", "no-waiting"]


def test_every_part_of_a_question_has_a_result_of_its_own(claims, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    claims(one=("measured",))
    claim = dataclasses.replace(runner.get_claim("one"), knobs={"gain": 1.0})
    asked = runner.record_of(claim, False, "cpu", {})
    text = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for number, file in enumerate(text):
        file.write_text("\n".join(f"{number} line {n}" for n in range(50)))
    others = [
        runner.record_of(dataclasses.replace(claim, name="other"), False, "cpu", {}),
        runner.record_of(claim, True, "cpu", {}),
        runner.record_of(dataclasses.replace(claim, on_device=True), False, "cuda", {}),
        runner.record_of(claim, False, "cpu", {"gain": 2.0}),
        runner.record_of(claim, False, "cpu", {}, first_seed=5),
        *(runner.record_of(claim, False, "cpu", {}, data=str(file)) for file in text),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0")
        others.append(runner.record_of(claim, False, "cpu", {}))
    with monkeypatch.context() as patch:
        patch.setattr(runner, "digest", lambda *modules: "other code")
        others.append(runner.record_of(claim, False, "cpu", {}))
    assert len({asked, *others}) == 1 + len(others)
    assert runner.record_of(claim, False, "cpu", {"gain": 1.0}) == asked  # the same question in other words
    assert runner.record_of(claim, False, "cuda", {}) == asked  # it runs on the CPU anyway


def test_only_where_time_is_measured_the_number_of_threads_counts(claims, monkeypatch):
    claims(plain=("measured",), timed=("timing",))
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append([runner.record_of(runner.get_claim(name), False, "cpu", {}) for name in ("plain", "timed")])
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
