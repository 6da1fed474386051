"""The rule from numbers to verdicts, and the framework around it."""

import dataclasses
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.base.errors import RegardError
from regard.claims import runner
from regard.claims.claim import Claim, Evidence, Expect
from regard.claims.finding_words import sentence_of, words_of_finding
from regard.claims.result import ClaimResult, result_of
from regard.claims.verdict import FAILS, HOLDS, OPEN, find, judge, parts
from regard.evaluation.intervals import share_interval, student_interval, student_quantile
from regard.report.figures import Line, Lines

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


EFFECT, CONTROL = (Expect("effect", "at least", 1.0),), (Expect("control", "at most", 0.5),)


def claim(measured, expected=EFFECT, control=CONTROL, **more):
    figure = Lines("t", "x", "y", (Line("a", [(0.0, 1.0), (1.0, math.nan)]),))
    return Claim(
        name="one", number="C0", kinds=("measured",), quote="q", where="000:1", statement="s", conditions="c",
        control_words="w", breaks="b", expected=expected, control=control,
        experiment=lambda trial: Evidence(measured, (figure,), ("seen",), ({"row": 1, "n": math.inf},)), **more,
    )  # fmt: skip


@given(
    relation=st.sampled_from(["at most", "at least", "within"]),
    over=st.sampled_from(["draws", "seeds"]),
    bound=st.floats(-1e5, 1e5),
    tolerance=st.floats(0, 100),
    off=st.lists(st.floats(-1, 1) | st.sampled_from([0.0, 1e-9, -1e-9]), min_size=2, max_size=3),
)
def test_the_digits_shown_decide_as_the_numbers_do(relation, over, bound, tolerance, off):
    """Whoever reads value and bound comes to the same verdict."""
    expect = Expect("it", relation, bound, tolerance, over)
    finding = find(expect, [bound + each for each in off])
    measured, expected = words_of_finding(finding)
    numbers = [float(word) for word in re.findall(r"[-+]?[\d.]+(?:e[-+]?\d+)?", measured)]
    shown = re.fullmatch(r"(at most|at least|within) (\S+)(?: ± (\S+))?", expected)
    least, most = dataclasses.replace(expect, bound=float(shown[2]), tolerance=float(shown[3] or 0)).range
    low, high = (min(numbers), max(numbers)) if over == "draws" else numbers[1:]
    assert (low >= least, low <= most) == (finding.low >= expect.range[0], finding.low <= expect.range[1])
    assert (high >= least, high <= most) == (finding.high >= expect.range[0], finding.high <= expect.range[1])


@pytest.mark.parametrize(
    "expect, values, said",
    [
        (Expect("n", "within", 22027.4658, 1, "draws"), [22028.0], "22028 in 1 draw, expected within 22027.5 ± 1"),
        (Expect("n", "at most", 0.05, over="draws"), [0.050001], "0.050001 in 1 draw, expected at most 0.05"),
        (Expect("n", "at least", 1e4, over="draws"), [12345.6], "12346 in 1 draw, expected at least 10000"),
        (Expect("n", "at most", 1e-9, over="draws"), [3.25e-15], "3.25e-15 in 1 draw, expected at most 1e-09"),
        (Expect("n", "at most", 1.0, over="draws"), [math.nan], "nan in 1 draw, expected at most 1"),
    ],
)  # fmt: skip
def test_value_and_bound_can_be_compared(expect, values, said):
    assert sentence_of(find(expect, values)).replace("nan to nan", "nan") == said


def verdict(measured, **more):
    made = claim(measured, **more)
    return judge(made, made.measure(made.trial())).verdict


CLEAR, UNCLEAR, CONTRARY = [2.0, 2.1, 2.05], [0.0, 2.0, 1.1], [0.1, 0.12, 0.11]


@pytest.mark.parametrize(
    ("effect", "control", "wanted"),
    [
        (CLEAR, CONTRARY, HOLDS),
        (CONTRARY, CONTRARY, FAILS),
        (UNCLEAR, CONTRARY, OPEN),
        (CLEAR, CLEAR, OPEN),  # a control that does not come out the other way
        (CONTRARY, CLEAR, OPEN),
        (CLEAR, UNCLEAR, OPEN),
        ([2.0, math.nan, 2.0], CONTRARY, OPEN),
    ],
)
def test_a_claim_never_holds_unless_its_control_comes_out_the_other_way(effect, control, wanted):
    assert verdict({"effect": effect, "control": control}) == wanted


@pytest.mark.parametrize(
    ("effect", "other", "wanted"),
    [
        (CLEAR, CLEAR, HOLDS),
        (CLEAR, CONTRARY, FAILS),  # what fails is not made up for by what holds
        (CONTRARY, CLEAR, FAILS),
        (CONTRARY, UNCLEAR, FAILS),
        (CLEAR, UNCLEAR, OPEN),
    ],
)
def test_a_claim_holds_when_all_it_says_holds_and_fails_when_any_of_it_fails(effect, other, wanted):
    both = (*EFFECT, Expect("other", "at least", 1.0))
    assert verdict({"effect": effect, "other": other, "control": CONTRARY}, expected=both) == wanted


def test_one_draw_refutes_an_identity():
    expect = Expect("error", "at most", 1e-9, over="draws")
    assert find(expect, [1e-12] * 99).verdict == HOLDS
    assert find(expect, [*[1e-12] * 99, 1e-8]).verdict == FAILS


def test_one_seed_decides_nothing():
    assert find(Expect("effect", "at least", 1.0), [100.0]).verdict == OPEN


def test_within_means_on_both_sides():
    expect = Expect("slope", "within", -0.69, 0.05)
    assert find(expect, [-0.70, -0.69, -0.695]).verdict == HOLDS
    assert find(expect, [-0.30, -0.31, -0.305]).verdict == FAILS
    assert find(expect, [-0.90, -0.91, -0.905]).verdict == FAILS


@pytest.mark.parametrize(
    ("probability", "freedom", "table"),  # from any printed table of Student's t
    [(0.995, 4, 4.604), (0.995, 9, 3.250), (0.975, 2, 4.303), (0.975, 30, 2.042), (0.995, 2, 9.925)],
)
def test_students_quantiles_are_those_of_the_tables(probability, freedom, table):
    assert student_quantile(probability, freedom) == pytest.approx(table, abs=6e-4)


def test_with_one_degree_of_freedom_students_t_is_cauchys_distribution():
    for probability in (0.5, 0.75, 0.975, 0.9995):
        expected = math.tan(math.pi * (probability - 0.5))
        assert student_quantile(probability, 1) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_the_interval_of_a_share_is_wilsons():
    assert share_interval(8, 10, 0.95) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Wilson's, worked by hand
    low, high = share_interval(0, 5, 0.99)
    assert low == pytest.approx(0.0, abs=1e-12)
    assert 0.5 < high < 0.6


def test_the_interval_of_a_mean_is_students():
    """1 … 5: s = √2.5, s/√5 = √½, and t with 4 degrees of freedom is 2.7764 at 97.5 % and 4.6041 at 99.5 %."""
    for level, t in ((0.95, 2.7764), (0.99, 4.6041)):
        reach = t * math.sqrt(0.5)
        assert student_interval([1, 2, 3, 4, 5], level) == pytest.approx((3 - reach, 3 + reach), abs=1e-3)


@given(NUMBERS)
def test_the_mean_lies_in_its_interval(values):
    low, high = student_interval(values, 0.99)
    mean = sum(values) / len(values)
    assert low <= mean + 1e-6
    assert high >= mean - 1e-6


def test_a_claim_must_say_what_it_measures_and_measure_it():
    with pytest.raises(ValueError, match="did not measure 'control'"):
        verdict({"effect": CLEAR})
    with pytest.raises(ValueError, match="needs an expectation and a control"):
        claim({}, control=())
    with pytest.raises(ValueError, match="two expectations"):
        claim({}, control=(Expect("effect", "at most", 0.0),))


def test_a_knob_that_is_not_there_is_named():
    made = claim({}, knobs={"gain": 1.0})
    assert made.trial(gain=2.0).knob("gain") == 2.0
    with pytest.raises(RegardError, match="did you mean gain"):
        made.trial(gian=2.0)


def test_a_result_survives_json():
    made = claim({"effect": CLEAR, "control": CONTRARY}, besides=())
    trial = made.trial(quick=True)
    result = result_of(made, trial, made.measure(trial), seconds=1.5, device="cpu", code="abc")
    back = ClaimResult.from_json(json.loads(json.dumps(result.as_json(), allow_nan=False)))
    assert back.verdict == result.verdict == HOLDS
    assert back.expected == result.expected
    assert back.label == result.label == "✓ quick: holds at reduced size"
    assert back.figures[0].title == "t"
    assert dataclasses.replace(back, figures=(), table=()) == dataclasses.replace(result, figures=(), table=())


def test_a_claim_is_not_measured_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    calls = []
    made = claim({"effect": CLEAR, "control": CONTRARY})
    counted = dataclasses.replace(made, experiment=lambda trial: calls.append(trial) or made.experiment(trial))
    monkeypatch.setattr(runner, "get_claim", lambda name: counted)
    first, second = runner.run_claim("one"), runner.run_claim("one")
    assert (first.cached, second.cached, len(calls)) == (False, True, 1)
    assert runner.run_claim("one", quick=True).quick == "fewer seeds"
    runner.run_claim("one", again=True)
    assert len(calls) == 3
    record = runner.record_of(counted, False, "cpu", {})
    record.write_text("{", encoding="utf-8")  # cut short: measured again, not believed
    assert not runner.run_claim("one").cached


def test_one_that_cannot_be_measured_does_not_keep_the_others_from_it(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    good = claim({"effect": CLEAR, "control": CONTRARY})

    def crash(trial):
        raise ZeroDivisionError("division by zero")

    both = {"bad": dataclasses.replace(good, name="bad", experiment=crash), "one": good}
    monkeypatch.setattr(runner, "get_claim", both.__getitem__)
    heard = []
    with pytest.raises(RegardError, match="bad: ZeroDivisionError: division by zero"):
        runner.run_claims(["bad", "one"], jobs=1, each=heard.append)
    assert [result.name for result in heard] == ["one"]


def test_each_part_of_a_statement_has_its_own_verdict_and_a_control_of_one_part_vetoes_that_part_alone():
    effects = (Expect("one", "at least", 1.0, part="first"), Expect("two", "at least", 1.0, part="second"))
    controls = (Expect("of two", "at most", 0.5, part="second"), Expect("of all", "at most", 0.5))
    made = claim({}, expected=effects, control=controls)
    for of_two, of_all, wanted in (
        (CONTRARY, CONTRARY, {"first": HOLDS, "second": FAILS}),
        (CLEAR, CONTRARY, {"first": HOLDS, "second": OPEN}),
        (CONTRARY, CLEAR, {"first": OPEN, "second": OPEN}),
    ):
        judged = judge(made, Evidence({"one": CLEAR, "two": CONTRARY, "of two": of_two, "of all": of_all}))
        assert parts(judged.expected, judged.control) == wanted
    plain = judge(claim({}), Evidence({"effect": CLEAR, "control": CONTRARY}))
    assert parts(plain.expected, plain.control) == {}
