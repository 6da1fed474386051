"""Seeds that decide were not looked at before, bounds stay where they were fixed, and models have their own key."""

import dataclasses
import importlib
import json
import math
import os
import re
from pathlib import Path

import pytest
import torch

from regard.base.errors import RegardError
from regard.claims import claims_page, models, runner
from regard.claims.all_claims import NAMES, get_claim
from regard.claims.claim import FIRST_QUICK_SEED, FIRST_SEED, QUICK_SEEDS, Claim, Evidence, Expect, Worked
from regard.claims.claims_page import section
from regard.claims.result import ClaimResult, result_of
from regard.claims.verdict import FAILS, HOLDS, OPEN, judge, tally
from regard.report.figures import Heat, Line, Lines
from regard.runs.tasks.language.run import LanguageRun

BOUNDS = Path(__file__).parents[2] / "golden" / "claim_bounds.json"
PROTOCOLS = BOUNDS.with_name("claim_protocols.json")


def declared(claim):
    """All that decides: each expectation and control as it was declared, and the seeds."""
    keys = ("quantity", "relation", "bound", "tolerance", "over", "part")
    return {
        role: [[getattr(expect, key) for key in keys] for expect in getattr(claim, role)]
        for role in ("expected", "control", "besides")
    } | {"seeds": list(claim.trial().seeds)}


@pytest.mark.parametrize("name", json.loads(BOUNDS.read_text(encoding="utf-8")))
def test_the_bounds_of_a_decided_claim_stay_where_they_were_fixed(name):
    """claim_bounds.json has those with which the documented verdicts were found; whoever moves one measures anew."""
    assert declared(get_claim(name)) == json.loads(BOUNDS.read_text(encoding="utf-8"))[name]


def protocol(claim):
    """How it is measured: its knobs, its quick form, and every number in its words."""
    words = (claim.where, claim.statement, claim.conditions, claim.control_words, claim.breaks, claim.quick_words)
    return {
        "seeds": [claim.seeds, claim.first_seed, claim.quick_seeds],
        "knobs": dict(claim.knobs),
        "limits": {name: list(bounds) for name, bounds in claim.limits.items()},
        "cost": claim.cost,
        "units": {expect.quantity: expect.unit for expect in claim.everything if expect.unit},
        "numbers": [re.findall(r"\d[\d,.]*\d|\d", text) for text in words],
    }


def settled(value):
    """A constant as JSON has it; None for what is no constant."""
    if isinstance(value, dict):
        found = {str(key): settled(one) for key, one in value.items()}
        return found if all(one is not None for one in found.values()) else None
    if isinstance(value, list | tuple | range):
        found = [settled(one) for one in value]
        return found if all(one is not None for one in found) else None
    return float(f"{value:.12g}") if isinstance(value, float) else value if isinstance(value, int | str) else None


def constants():
    """Widths, steps, rates, lengths and names that the modules of the claims declare."""
    found = {}
    for path in sorted(Path(runner.__file__).parent.glob("*.py")):
        module = importlib.import_module(f"regard.claims.{path.stem}")
        own = {name: settled(value) for name, value in vars(module).items() if re.fullmatch("[A-Z][A-Z_]+", name)}
        found[path.stem] = {name: value for name, value in own.items() if value not in (None, {}, [])}
    return found


def test_the_protocol_of_every_claim_is_the_one_that_was_declared():
    """claim_protocols.json has how the documented verdicts were measured, or are to be; whoever changes it measures
    anew. `python tests/unit/claims/test_notices_claims.py` writes it."""
    declared = json.loads(PROTOCOLS.read_text(encoding="utf-8"))
    made = json.loads(json.dumps(protocols()))
    assert made["claims"].keys() == declared["claims"].keys() == set(NAMES)
    for name, one in declared["claims"].items():
        assert made["claims"][name] == one, name
    assert made["constants"].keys() == declared["constants"].keys()
    for module, one in declared["constants"].items():
        assert made["constants"][module] == one, module


def protocols():
    return {"claims": {name: protocol(get_claim(name)) for name in NAMES}, "constants": constants()}


def worked_examples(claim):
    return [[one.what, one.noted, one.where] for one in (claim.worked() if claim.worked else ())]


@pytest.mark.parametrize("name", NAMES)
def test_the_seeds_that_decide_were_not_looked_at_before(name):
    claim = get_claim(name)
    full, quick = claim.trial().seeds, claim.trial(quick=True).seeds
    assert not set(full) & set(quick)
    assert min(full) >= 301
    assert quick[0] == 1
    assert (len(full), len(quick)) == (claim.seeds, claim.quick_seeds)


def made(measured=None, **more):
    given = {
        "name": "one", "number": "C0", "kinds": ("measured",), "quote": "q", "where": "000:1", "statement": "s",
        "conditions": "c", "control_words": "w", "breaks": "b", "expected": (Expect("effect", "at least", 1.0),),
        "control": (Expect("control", "at most", 0.5),),
        "experiment": lambda trial: Evidence(measured or {"effect": [2.0, 2.0], "control": [0.0, 0.0]}),
    }  # fmt: skip
    return Claim(**{**given, **more})


def test_a_trial_has_the_seeds_device_text_and_knobs_that_were_asked_for():
    claim = made(knobs={"gain": 1.0, "width": 3.0}, limits={"gain": (0.5, 2.0)}, reads_data=True, seeds=7)
    plain = claim.trial()
    assert plain.seeds == tuple(range(FIRST_SEED, FIRST_SEED + 7)) == tuple(range(301, 308))
    assert (plain.quick, plain.device, plain.data, plain.knobs) == (False, "cpu", "", {"gain": 1.0, "width": 3.0})
    quick = claim.trial(quick=True, device="cuda", data="text", gain=2.0)
    assert quick.seeds == tuple(range(FIRST_QUICK_SEED, FIRST_QUICK_SEED + QUICK_SEEDS)) == (1, 2, 3)
    assert (quick.quick, quick.device, quick.data, quick.knobs) == (True, "cuda", "text", {"gain": 2.0, "width": 3.0})
    assert claim.trial(first_seed=50).seeds == tuple(range(50, 57))
    assert claim.trial(first_seed=0, quick=True).seeds == (0, 1, 2)
    assert dataclasses.replace(claim, first_seed=401).trial().seeds[0] == 401
    for value in (0.5, 2.0, 1):
        assert claim.trial(gain=value).knob("gain") == value
    for value in (0.499, 2.001, math.nan, "1"):
        with pytest.raises(RegardError, match=r"gain of one must be a number from 0\.5 to 2"):
            claim.trial(gain=value)
    assert claim.trial(width=-1e9).knob("width") == -1e9  # without limits
    with pytest.raises(RegardError, match="has no knobs"):
        made().trial(gain=1.0)
    with pytest.raises(RegardError, match="does not read a text"):
        made().trial(data="text")


def test_what_is_besides_never_decides():
    besides = (Expect("more", "at least", 5.0),)
    for values in ([9.0, 9.1], [0.0, 0.1], [math.nan, 1.0]):
        claim = made({"effect": [2.0, 2.0], "control": [0.0, 0.0], "more": values}, besides=besides)
        assert judge(claim, claim.measure(claim.trial())).verdict == HOLDS


def test_every_field_of_a_result_survives_json():
    expected = (
        Expect("slope", "within", -0.5, 0.25, "draws", "nats per step", "first"),
        Expect("share", "at least", 0.5, over="share", part="second"),
    )
    control = (Expect("gates", "at most", 0.5, unit="s", part="second"),)
    claim = made(
        {"slope": [-0.5, -0.4], "share": [1.0] * 9, "gates": [0.1, 0.2], "more": [math.inf, 1.0]},
        kinds=("identity", "timing"), expected=expected, control=control, besides=(Expect("more", "at most", 3.0),),
        knobs={"gain": 1.5}, worked=lambda: [Worked("q", "1/2", "0.5", False, "002:49")], quick_words="half of it",
    )  # fmt: skip
    trial = claim.trial(quick=True, first_seed=9, gain=2.5)
    evidence = dataclasses.replace(claim.measure(trial), remarks=("seen", "said"), table=({"n": 1.5, "word": "x"},))
    result = result_of(claim, trial, evidence, seconds=1.5, device="cpu, 3 threads", code="abc").again()
    back = ClaimResult.from_json(json.loads(json.dumps(result.as_json(), allow_nan=False)))
    for one in dataclasses.fields(ClaimResult):
        if one.name == "besides":  # NaN is not equal to itself
            assert repr(back.besides) == repr(result.besides)
        else:
            assert getattr(back, one.name) == getattr(result, one.name), one.name
    assert back.cached
    assert (back.seeds, back.knobs, back.quick) == ((9, 10, 11), {"gain": 2.5}, "half of it")
    written = result.as_json()
    assert written["control"] == {"words": "w", "came_out": result.controlled}
    assert written["parts"] == {"first": HOLDS, "second": OPEN}
    number = written["numbers"]["expected"][0]
    assert {key: number[key] for key in ("unit", "part", "bound", "tolerance", "over", "values")} == {
        "unit": "nats per step", "part": "first", "bound": -0.5, "tolerance": 0.25, "over": "draws",
        "values": [-0.5, -0.4],
    }  # fmt: skip
    assert number["expected"] == "within -0.5 ± 0.25 nats per step"


def test_a_tally_says_one_holds_and_two_hold():
    assert [tally(1, HOLDS), tally(2, HOLDS), tally(0, FAILS), tally(1, FAILS), tally(3, OPEN)] == [
        "1 holds", "2 hold", "0 fail", "1 fails", "3 inconclusive",
    ]  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def page(measured, expected, **more):
    claim = made({**measured, "control": [0.0, 0.0]}, expected=expected, **more)
    trial = claim.trial()
    return section(result_of(claim, trial, claim.measure(trial), seconds=1.0, device="cpu", code="abc"))


@pytest.mark.parametrize(
    ("relation", "bound", "values", "left", "right", "value"),
    [
        ("at least", 1.0, [3.0, 3.0], 15.0, 150.0, 135.0),  # from the bound to the right edge
        ("at most", 3.0, [1.0, 1.0], 0.0, 135.0, 15.0),  # from the left edge to the bound
        ("within", 2.0, [2.0, 2.0], 15.0, 135.0, 75.0),
    ],
)
def test_the_bar_is_tinted_where_the_number_was_expected(relation, bound, values, left, right, value):
    expect = (Expect("x", relation, bound, 1.0, "draws"),)
    seen = page({"x": values}, expect)
    x, width = re.search(r'class="wanted" x="([\d.]+)" y="1" width="([\d.]+)"', seen).groups()
    assert float(x) == left
    assert float(x) + float(width) == pytest.approx(right, abs=0.2)
    assert float(re.search(r'<circle cx="([\d.]+)"', seen)[1]) == pytest.approx(value, abs=0.2)


def test_the_facts_name_seeds_or_draws_and_the_code():
    effect = page({"effect": [2.0, 2.1, 2.05, 2.0, 2.1]}, (Expect("effect", "at least", 1.0),))
    assert "<dt>Seeds</dt><dd>5 (301 to 305)</dd>" in effect
    assert "with code abc" in effect
    draws = page({"x": [2.0]}, (Expect("x", "at least", 1.0, over="draws"),), seeds=3)
    assert "<dt>Draws</dt><dd>3 (301 to 303)</dd>" in draws
    parts = page({"x": [2.0], "y": [0.0]}, (
        Expect("x", "at least", 1.0, over="draws", part="one thing"),
        Expect("y", "at least", 1.0, over="draws", part="another"),
    ))  # fmt: skip
    assert re.search(r"Parts of the statement: .*✓</span> one thing, .*✗</span> another", parts)


def test_figures_stand_side_by_side_unless_one_has_many_columns():
    def heat(count):
        return Heat("t", ["a"], ["c"] * count, [[0.5] * count], "x", "y", "z", 0.0, 1.0)

    lines = Lines("t", "x", "y", [Line("a", [(1.0, 1.0)])])
    assert [claims_page._wide([lines, heat(count)]) for count in (1, 12, 13)] == [False, False, True]


# -- running ---------------------------------------------------------------------------------------------------------


def test_the_longest_claims_begin_first_and_results_come_in_the_order_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    order = []
    claims = {
        name: made(name=name, cost=cost, experiment=lambda trial, name=name: order.append(name)
                   or Evidence({"effect": [2.0, 2.0], "control": [0.0, 0.0]}))
        for name, cost in {"short": 1.0, "long": 90.0, "middle": 30.0}.items()
    }  # fmt: skip
    monkeypatch.setattr(runner, "get_claim", claims.__getitem__)
    monkeypatch.setattr(runner, "module_of", lambda name: "hull")
    results = runner.run_claims(["short", "long", "middle"], jobs=1)
    assert order == ["long", "middle", "short"]
    assert [result.name for result in results] == ["short", "long", "middle"]
    heard = []
    again = runner.run_claims(["middle", "short"], jobs=1, each=heard.append)
    assert order == ["long", "middle", "short"]  # nothing was measured
    assert [result.cached for result in again] == [result.cached for result in heard] == [True, True]
    assert all(re.fullmatch("[0-9a-f]{16}", result.code) for result in again)


def test_processes_side_by_side_have_one_thread_each_and_the_environment_is_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with runner._one_thread_each():
        assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("1", "1")
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


# -- trained models --------------------------------------------------------------------------------------------------


def test_a_model_is_trained_once_for_each_training(tmp_path, monkeypatch):
    """The key has every part of the recipe, the code that trains, the version of torch and the text of pyref."""
    data = tmp_path / "text.txt"
    data.write_text("".join(f"the cat number {n % 7} sat on a mat\n" for n in range(300)))
    other = tmp_path / "other.txt"
    other.write_text(data.read_text())
    trainings = []
    monkeypatch.setattr(
        models, "train_recipe", lambda recipe, folder: trainings.append(folder) or TRAIN(recipe, folder)
    )
    store = tmp_path / "store"

    def ask(system="ngram", data=data, **how):
        run = models.trained(LanguageRun, system, str(data), store=store, **how)
        return run.folder

    first = ask()
    assert first.parent == store / "models"
    assert ask() == first
    assert len(trainings) == 1
    asked = [first, ask(seed=2), ask(data=other), ask(settings={"model": {"order": 2}})]
    with monkeypatch.context() as patch:
        patch.setattr(models, "digest", lambda *modules: "other code")
        asked.append(ask())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0")
        asked.append(ask())
    assert len(set(asked)) == len(trainings) == 6
    (first / "done.json").unlink()  # it was stopped before its end
    resumed = []
    monkeypatch.setattr(models, "resume", lambda folder: resumed.append(folder) or models.load(folder, LanguageRun))
    assert ask() == first
    assert (len(trainings), resumed) == (6, [first])
    assert ask() == first
    assert resumed == [first]


TRAIN = models.train_recipe


if __name__ == "__main__":
    told = protocols() | {"worked": {name: worked_examples(get_claim(name)) for name in NAMES}}
    parts = []
    for part, found in told.items():  # a line for each claim and module
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in found.items())
        parts.append(f"{json.dumps(part)}: {{\n{rows}\n}}")
    PROTOCOLS.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
