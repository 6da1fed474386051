"""Claims about gradients (C1, C2, C3, C11, C22): their verdicts at small size, their numbers against closed forms."""

import math
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch

from regard.base.errors import RegardError
from regard.claims import exploding, forgetting, remedies, softmax_gradient, vanishing
from regard.claims.all_claims import get_claim
from regard.claims.through_time import log_slope
from regard.claims.verdict import judge, parts

SEEDS = (1, 2, 3, 4)
HARDLY_TRAINED = [  # nothing here depends on these trainings
    (remedies, "train", partial(remedies.train, steps=4)),
    (forgetting, "TRAINED", {name: (kind, 20) for name, (kind, _) in forgetting.TRAINED.items()}),
    (forgetting, "TESTED", 8),
]


@cache
def measured(name):
    claim = get_claim(name)
    with pytest.MonkeyPatch.context() as patch:
        for one in HARDLY_TRAINED:
            patch.setattr(*one)
        evidence = claim.measure(replace(claim.trial(quick=True), seeds=SEEDS))
    judgement = judge(claim, evidence)
    findings = judgement.expected + judgement.control + judgement.besides
    return evidence, judgement, {finding.expect.quantity: finding for finding in findings}


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("vanishing", "holds"),
        ("exploding", "holds"),
        ("softmax-gradient", "holds"),
    ],
)
def test_the_verdict_is_the_one_the_theory_predicts_and_the_control_comes_out_the_other_way(name, verdict):
    _, judgement, _ = measured(name)
    assert judgement.controlled
    assert judgement.verdict == verdict


@pytest.mark.parametrize(("bias", "noted"), [(0.0, "-0.69"), (1.0, "-0.31"), (3.0, "-0.049"), (5.0, "-0.007")])
def test_an_lstm_without_recurrent_weights_forgets_by_log_sigmoid_of_its_bias(bias, noted):
    slope = log_slope(vanishing.gates_alone(bias))
    assert slope == pytest.approx(float(torch.nn.functional.logsigmoid(torch.tensor(bias, dtype=torch.float64))))
    assert f"{slope:.{len(noted.split('.')[1])}f}" == noted


def test_the_slope_of_a_geometric_decay_is_the_same_near_and_far_and_that_of_a_power_is_not():
    distance = np.arange(1.0, vanishing.STEPS + 1)
    low, high = 1 - vanishing.GEOMETRIC, 1 + vanishing.GEOMETRIC
    for rate in (0.05, 0.5, 3.0):
        assert vanishing.bend(np.exp(-rate * distance)) == pytest.approx(1.0)
    for power in (0.5, 1.0, 4.0):
        assert vanishing.bend(distance**-power) < low
    assert vanishing.bend(np.exp(-((distance / 20) ** 2))) > high


@pytest.mark.parametrize("bias", [-800.0, -3.0, 0.0, 12.0, 800.0])
def test_log_sigmoid_is_a_number_everywhere(bias):
    expected = torch.nn.functional.logsigmoid(torch.tensor(bias, dtype=torch.float64))
    assert vanishing.log_sigmoid(bias) == pytest.approx(float(expected))


def test_the_whole_gradient_of_an_lstm_is_not_its_cell_path():
    _, _, found = measured("vanishing")
    assert found[vanishing.GATED].low > found[vanishing.CELL].high  # it decays more slowly
    assert found[vanishing.SHARE].high < 0.01


def test_relu_helps_by_its_gain_and_gates_by_their_bias():
    evidence, judgement, found = measured("remedies")
    verdicts = parts(judgement.expected, judgement.control)
    assert verdicts["identity initialization"] == "holds"
    assert verdicts["gates"] == "holds"
    assert found[remedies.RELU["1/√3"]].high < found[remedies.RELU["√2"]].value
    slopes = {row["network"]: row["log-slope"] for row in evidence.table if "log-slope" in row}
    for gain, value in remedies.GAINS.items():  # half of the units let the gradient through
        assert slopes[f"relu, gain {gain}"] == pytest.approx(0.5 * math.log(value**2 / 2), abs=0.2)
    state = 0.5
    for _ in range(100):
        state = 1 / (1 + math.exp(-state))  # with W_h = I and hardly any input, h = σ(h)
    assert slopes["sigmoid, identity"] == pytest.approx(math.log(state * (1 - state)), abs=1e-3)


def test_an_exploding_network_learns_if_it_is_clipped_and_not_otherwise():
    assert max(remedies.train((1, 2), 2**0.5, "clipped")) <= remedies.LEARNT
    assert remedies.train((1, 2), 2**0.5, "not clipped", steps=30) == [math.inf, math.inf]
    assert min(remedies.train((1, 2), 2**0.5, "a smaller rate", steps=30)) > remedies.LEARNT


def test_networks_side_by_side_are_each_the_written_recurrence():
    torch.manual_seed(3)
    weights = [torch.randn(1, *shape, dtype=torch.float64).requires_grad_() for shape in ((16, 16), (16, 1), (1, 16))]
    numbers = torch.randn(1, remedies.TEXTS, remedies.WORDS, dtype=torch.float64)
    hidden = torch.zeros(remedies.TEXTS, 16, dtype=torch.float64)
    for number in numbers[0].unbind(1):
        hidden = hidden @ weights[0][0].T + number[:, None] @ weights[1][0].T
    wanted = numbers[0, :, -3:].sum(1) / 3**0.5
    loss = ((hidden @ weights[2][0].T)[:, 0] - wanted).square().mean()
    assert remedies.linear_loss(weights, numbers).item() == pytest.approx(loss.item())


def test_the_gate_of_the_notes_keeps_erases_and_halves():
    worked = remedies.gate_of_the_notes()
    assert len(worked) == 3
    assert all(one.agrees and one.found == "1 0 0 .5" for one in worked)


def test_clipping_leaves_a_short_gradient_alone_and_shortens_a_long_one_to_eta_c():
    model = exploding.RNN(7, exploding.Settings(layers=1, width=4, dropout=0.0)).double()
    count = sum(weight.numel() for weight in model.parameters())
    for size in (0.5, 50.0):
        gradients = tuple(torch.full_like(weight, size / count**0.5) for weight in model.parameters())
        expected = exploding.RATE * min(size, exploding.BOUND)
        assert exploding.step_size(model, gradients, "sgd", exploding.BOUND) == pytest.approx(expected, rel=1e-5)
        assert exploding.step_size(model, gradients, "sgd", None) == pytest.approx(exploding.RATE * size)


def test_measuring_a_step_leaves_the_model_where_it_was():
    model = exploding.RNN(7, exploding.Settings(layers=1, width=4, dropout=0.0)).double()
    before = [weight.detach().clone() for weight in model.parameters()]
    exploding.step_size(model, tuple(torch.ones_like(weight) for weight in model.parameters()), "adamw", None)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_horizon_is_the_first_distance_with_a_hundredth_left():
    assert forgetting.horizon(np.array([2.0, 1.0, 0.02, 0.01])) == 2
    assert forgetting.horizon(0.9 ** np.arange(20.0)) == pytest.approx(math.log(0.01) / math.log(0.9))
    assert forgetting.horizon_of(0.01) == math.inf  # what grows is never forgotten


def test_a_cell_with_forget_bias_5_keeps_a_hundredth_for_686_steps():
    _, _, found = measured("forgetting")
    assert found[forgetting.CELL].value == pytest.approx(math.log(0.01) / -math.log1p(math.exp(-5)))
    assert found[forgetting.WIDE_OPEN].value == pytest.approx(math.exp(-10_000 * math.log1p(math.exp(-12))), rel=1e-6)


def test_untrained_networks_do_not_reach_100_steps_and_cells_with_open_gates_reach_100_and_1000():
    _, judgement, found = measured("forgetting")
    assert parts(judgement.expected, judgement.control[:1])["geometric decay"] == "holds"
    assert [found[name].verdict for name in (forgetting.TANH, forgetting.GATED)] == ["fails"] * 2
    for name, bias, steps in ((forgetting.HUNDREDS, 5.0, 100), (forgetting.THOUSANDS, 7.0, 1000)):
        assert found[name].verdict == "holds"
        assert found[name].expect.bound == steps
        assert found[name].value == pytest.approx(math.log(0.01) / -math.log1p(math.exp(-bias)))


class Remembers(torch.nn.Module):
    """A state that is the first word it read."""

    def forward(self, words, state=None):
        state = words[:, :1] if state is None else state
        return state.expand(-1, words.size(1), -1), state


def test_a_network_that_keeps_its_first_word_names_it_later_unless_its_state_is_emptied():
    torch.manual_seed(1)
    model = forgetting.LetterMemory(forgetting.Elman(32, 32))
    model.layer.fused = Remembers()
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(16, 32))
        model.output.weight.copy_(torch.eye(8, 32))
        model.output.bias.zero_()
    assert model.named(1) == model.named(50) == 1
    assert model.named(50, wiped=True) < 0.4


def test_an_lstm_soon_learns_to_hold_a_letter(monkeypatch):
    monkeypatch.setattr(forgetting, "HELD", 5)
    model = forgetting.learn(forgetting.LSTM, 1, 150)
    assert model.named(5) > 0.6
    assert forgetting.learn(forgetting.LSTM, 1, 0).named(5) < 0.4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_softmax_gradient_ends_where_the_exponential_underflows(dtype):
    number = np.dtype(dtype).type
    with np.errstate(under="ignore"):
        oracle = next(gap for gap in range(2000) if np.exp(number(-gap)) == 0)
    assert softmax_gradient.first_zero(getattr(torch, dtype)) == oracle


@pytest.mark.parametrize("gap", [-1.0, 699.0, math.inf, math.nan, "10"])
def test_a_gap_beyond_those_the_claim_speaks_of_is_refused(gap):
    with pytest.raises(RegardError, match="from 0 to 600"):
        get_claim("softmax-gradient").trial(quick=True, gap=gap)


@pytest.mark.parametrize(("name", "knob"), [("softmax-gradient", "gap"), ("vanishing", "b")])
def test_at_both_ends_of_a_knob_everything_is_a_number_and_the_identities_hold(name, knob):
    claim = get_claim(name)
    for value in claim.limits[knob]:
        evidence = claim.measure(replace(claim.trial(quick=True, **{knob: value}), seeds=SEEDS[:2]))
        assert all(map(math.isfinite, (number for found in evidence.measured.values() for number in found)))
        exact = [finding for finding in judge(claim, evidence).expected if finding.expect.over == "draws"]
        assert all(finding.verdict == "holds" for finding in exact)


def test_at_both_ends_of_a_knob_a_slope_is_a_number():
    torch.manual_seed(1)
    for bias in get_claim("forgetting").limits["b"]:
        assert log_slope(vanishing.gates_alone(bias)) == pytest.approx(vanishing.log_sigmoid(bias), rel=1e-6)
    words = torch.randn(remedies.STEPS, remedies.WIDTH, dtype=torch.float64)
    for bias in get_claim("remedies").limits["b"]:
        assert math.isfinite(remedies.slope(remedies.gated(bias)["LSTM, forget bias b, gain 1"], words))
    for gain in get_claim("exploding").limits["gain"]:
        assert math.isfinite(log_slope(exploding.through_tanh(gain, 1.0), 20))


def test_the_two_key_gradient_is_the_product_of_the_weights():
    assert softmax_gradient.two_keys(0.0) == pytest.approx(0.25)
    assert softmax_gradient.two_keys(2.0) == pytest.approx(softmax_gradient.two_keys(2.0, winner=True))
    assert softmax_gradient.closed_form(3.0) == pytest.approx((0.5 / math.cosh(1.5)) ** 2)
