"""The verdict where it is close: intervals of 99 % beside the bound, numbers on it, and numbers that are none."""

import math
from itertools import product

import pytest

from regard.claims.claim import Claim, Evidence, Expect, Trial
from regard.claims.result import ClaimResult, result_of
from regard.claims.verdict import FAILS, HOLDS, OPEN, SIGNS, Finding, decide, find

VERDICTS = (HOLDS, FAILS, OPEN)
T_99 = {2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604, 6: 4.032, 8: 3.499}  # seeds → t at 99.5 %, from any printed table
Z_99 = 2.5758


def verdicts(values, bound, over="seeds"):
    """For "at least" and "at most" this bound."""
    return tuple(find(Expect("x", relation, bound, over=over), values).verdict for relation in ("at least", "at most"))


@pytest.mark.parametrize("seeds", T_99)
@pytest.mark.parametrize(("mean", "spread"), [(3.0, 0.5), (-2.0, 4.0)])
def test_seeds_decide_where_the_interval_of_99_percent_ends(seeds, mean, spread):
    values = [mean + spread * (n % 2 - 0.5) for n in range(seeds - seeds % 2)] + [mean] * (seeds % 2)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (seeds - 1))
    reach = T_99[seeds] * deviation / math.sqrt(seeds)
    assert verdicts(values, mean - 1.001 * reach) == (HOLDS, FAILS)
    assert verdicts(values, mean - 0.999 * reach) == (OPEN, OPEN)
    assert verdicts(values, mean + 0.999 * reach) == (OPEN, OPEN)
    assert verdicts(values, mean + 1.001 * reach) == (FAILS, HOLDS)
    for tolerance, wanted in ((1.001, HOLDS), (0.999, OPEN)):
        assert find(Expect("x", "within", mean, tolerance * reach), values).verdict == wanted
    aside = mean + 1.5 * reach
    assert find(Expect("x", "within", aside, 0.501 * reach), values).verdict == OPEN
    assert find(Expect("x", "within", aside, 0.499 * reach), values).verdict == FAILS


@pytest.mark.parametrize(("ones", "trials"), [(20, 20), (18, 20), (0, 10), (3, 40)])
def test_a_share_is_decided_where_wilsons_interval_of_99_percent_ends(ones, trials):
    share, square = ones / trials, Z_99**2 / trials
    centre = (share + square / 2) / (1 + square)
    reach = Z_99 * math.sqrt(share * (1 - share) / trials + square / (4 * trials)) / (1 + square)
    values = [1.0] * ones + [0.0] * (trials - ones)
    assert verdicts(values, centre - 1.002 * reach, "share") == (HOLDS, FAILS)
    assert verdicts(values, centre - 0.998 * reach, "share") == (OPEN, OPEN)
    assert verdicts(values, centre + 0.998 * reach, "share") == (OPEN, OPEN)
    assert verdicts(values, centre + 1.002 * reach, "share") == (FAILS, HOLDS)


@pytest.mark.parametrize("over", ["draws", "seeds"])
def test_a_number_on_the_bound_satisfies_it(over):
    for relation in ("at least", "at most", "within"):
        assert find(Expect("x", relation, 0.1, over=over), [0.1, 0.1]).verdict == HOLDS


def test_the_least_step_beyond_the_bound_refutes_an_identity():
    above, below = math.nextafter(0.1, 1), math.nextafter(0.1, 0)
    assert verdicts([0.1, 0.1, above], 0.1, "draws") == (HOLDS, FAILS)
    assert verdicts([0.1, 0.1, below], 0.1, "draws") == (FAILS, HOLDS)
    assert find(Expect("x", "within", 0.1, over="draws"), [0.1, above]).verdict == FAILS


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("relation", ["at least", "at most", "within"])
def test_what_is_not_finite_refutes_an_identity_and_leaves_a_measurement_open(relation, bad):
    for values in ([bad], [1.0, bad, 1.0], [bad, 1.0]):
        assert find(Expect("x", relation, 1.0, 0.5, over="draws"), values).verdict == FAILS
        for over in ("seeds", "share"):
            assert find(Expect("x", relation, 1.0, 0.5, over=over), values).verdict == OPEN


def finding(name, verdict):
    return Finding(Expect(name, "at least", 1.0), (1.0,), 1.0, 1.0, 1.0, verdict)


@pytest.mark.parametrize("found", [*product(VERDICTS, repeat=4)])
def test_the_verdict_and_what_decided_it(found):
    """A control that does not hold leaves the claim open, whatever else was found, and is named as what decided."""
    control = [finding(f"control {n}", verdict) for n, verdict in enumerate(found[:2])]
    expected = [finding(f"effect {n}", verdict) for n, verdict in enumerate(found[2:])]
    wanted = (
        OPEN if set(found[:2]) != {HOLDS}
        else HOLDS if set(found[2:]) == {HOLDS}
        else FAILS if FAILS in found[2:]
        else OPEN
    )  # fmt: skip
    assert decide(expected, control) == wanted
    result = made(expected, control)
    assert result.sign == SIGNS[wanted] == {HOLDS: "✓", FAILS: "✗", OPEN: "?"}[wanted]
    assert result.controlled == (set(found[:2]) == {HOLDS})
    doubted = [one.expect.quantity for one in (*control, *expected) if one.verdict != HOLDS]
    assert result.decisive.expect.quantity == (doubted or ["effect 0"])[0]


def made(expected, control):
    """A result with these findings."""
    claim = Claim(
        name="one", number="C0", kinds=("measured",), quote="q", where="000:1", statement="s", conditions="c",
        control_words="w", breaks="b", expected=(Expect("effect", "at least", 1.0),),
        control=(Expect("control", "at most", 0.5),),
        experiment=lambda trial: Evidence({"effect": [2.0, 2.0], "control": [0.0, 0.0]}),
    )  # fmt: skip
    whole = result_of(claim, Trial((1,)), claim.measure(Trial((1,))), seconds=1.0, device="cpu", code="x")
    parts = {"expected": tuple(expected), "control": tuple(control), "verdict": decide(expected, control)}
    return ClaimResult(**{**vars(whole), **parts})
