"""Training on pairs: what is minimised, and that nothing but the pairs themselves changes it."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.runs.recipe import compose
from regard.runs.store.folder import average_weights
from regard.systems.catalogue import load_class
from regard.text.batches.pair_batches import PairBatch, side_by_side
from regard.text.tokenizers.pair_tokens import TokenPairs, offsets_of
from regard.training.checkpoint import load_tensors, save_tensors
from regard.training.loop import Trainer
from regard.training.objective import Objective, disagreement, to_device
from regard.training.optimizers import WeightAverage
from regard.training.validation import ValidationResult

VOCABULARY = 11
SYSTEMS = ("seq2seq", "bahdanau", "transformer")


def pairs(count: int, seed: int = 0) -> TokenPairs:
    random = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        lengths = random.integers(2, 9, count)
        ids = random.integers(1, VOCABULARY, int(lengths.sum())).astype(np.uint16)
        offsets = offsets_of(lengths)
        ids[offsets[1:] - 1] = 0
        sides += [ids, offsets]
    return TokenPairs(*sides, kept=np.arange(count), dropped={}, truncated=0, longest=256, characters=0, unknown=0)


def batch(count: int = 6, seed: int = 0) -> PairBatch:
    return side_by_side(pairs(count, seed), np.arange(count))


def model(system: str, dropout: float = 0.0):
    torch.manual_seed(0)
    recipe = compose(system, "tiny", {"model": {"width": 16, "dropout": dropout}})
    return load_class(system)(VOCABULARY, recipe.model).double()


def summed(system, whole: PairBatch, **settings):
    objective = Objective(model(system), **settings)
    loss, count, _ = objective(to_device(whole, torch.device("cpu")), None)
    return float(loss.detach()), int(count)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_loss_is_the_sum_of_minus_log_p_over_every_target_token(system):
    whole = batch()
    loss, count = summed(system, whole)
    assert count == whole.lengths.sum()
    alone = [summed(system, side_by_side(pairs(6), np.array([n])))[0] for n in range(6)]
    assert loss == pytest.approx(sum(alone), rel=1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
def test_label_smoothing_moves_a_share_of_the_truth_to_all_words_alike(system):
    whole, share = batch(), 0.2
    logits, _ = model(system)(
        torch.from_numpy(whole.tokens),
        model(system).begin(torch.from_numpy(whole.source), torch.from_numpy(whole.source_lengths)),
    )
    log_p = logits.log_softmax(-1)
    truth = F.one_hot(torch.from_numpy(whole.targets), VOCABULARY).double() * (1 - share) + share / VOCABULARY
    expected = -(truth * log_p).sum(-1)
    valid = torch.arange(whole.targets.shape[1]) < torch.from_numpy(whole.lengths)[:, None]
    assert summed(system, whole, smoothing=share)[0] == pytest.approx(float(expected[valid].sum()), rel=1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
def test_two_readings_without_dropout_agree_and_leave_the_loss_as_it_was(system):
    whole = batch()
    assert summed(system, whole, consistency=5.0)[0] == pytest.approx(summed(system, whole)[0], rel=1e-9)


def test_disagreement_is_the_sum_of_both_divergences():
    logits = torch.randn(4, 3, VOCABULARY, dtype=torch.float64)
    p, q = (torch.distributions.Categorical(logits=half) for half in logits.chunk(2))
    expected = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
    torch.testing.assert_close(disagreement(logits), expected)


@pytest.mark.parametrize("weight", [1.0, 5.0])
def test_two_readings_with_dropout_disagree_at_a_price(weight):
    """½ (L₁ + L₂) + α/4 (KL(P₁‖P₂) + KL(P₂‖P₁)) over real targets, with the logits of the same readings."""
    whole, read = to_device(batch(), torch.device("cpu")), model("transformer", dropout=0.3)
    torch.manual_seed(2)
    loss, count, _ = Objective(read, consistency=weight, smoothing=0.2)(whole, None)
    torch.manual_seed(2)
    twice = whole.each(lambda part: torch.cat([part, part]))
    logits, _ = read(twice.tokens, read.begin(twice.source, twice.source_lengths))
    each = F.cross_entropy(logits.mT, twice.targets, reduction="none", label_smoothing=0.2)
    real = torch.arange(whole.targets.size(1)) < whole.lengths[:, None]
    assert not real.all()
    expected = each[real.repeat(2, 1)].sum() / 2 + weight / 4 * disagreement(logits)[real].sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-9)
    assert int(count) == whole.lengths.sum()


class Same:
    steps_per_epoch = 1

    def __init__(self, whole):
        self.whole = whole

    def batch(self, step):
        return self.whole


def trainer(system, folder, **settings):
    recipe = compose(system, "tiny", {"model": {"width": 16, "dropout": 0.0}, "training": settings})
    torch.manual_seed(0)
    built = load_class(system)(VOCABULARY, recipe.model).double()
    return Trainer(built, Same(batch(7)), lambda model: ValidationResult(1.0), recipe.training, folder)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("consistency", [0.0, 2.0])
def test_micro_batches_give_the_gradient_of_the_whole(system, tmp_path, consistency):
    gradients = []
    for parts in (1, 3):
        run = trainer(system, tmp_path, accumulate=parts, consistency=consistency)
        run.runner.gradient(run.batches.batch(0))
        gradients.append({name: p.grad.clone() for name, p in run.model.named_parameters() if p.grad is not None})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-9, atol=1e-12)


def test_the_moving_average_is_of_the_last_sixth_first_and_then_of_the_last_steps():
    layer, decay = torch.nn.Linear(1, 1, bias=False).double(), 0.75
    average, expected = WeightAverage(decay), None
    for n in range(1, 40):
        with torch.no_grad():
            layer.weight.fill_(float(n * n))
        average.add(layer)
        rate = max(6 / (n + 5), 1 - decay)
        expected = n * n if expected is None else expected + rate * (n * n - expected)
        assert float(average.weights["weight"]) == pytest.approx(expected)


def test_the_average_is_what_is_validated_and_saved(tmp_path):
    settings = {"steps": 6, "keep": 2, "learning_rate": 0.01}

    def validated(folder, **more):
        """What the validations were shown, and what training went on with."""
        run, seen = trainer("transformer", folder, **settings, **more), []
        run.validation = lambda model: (
            seen.append(model.embedding.table.weight.detach().clone()) or ValidationResult(1.0 / len(seen))
        )
        run.train()
        return seen, run.model.embedding.table.weight

    (tmp_path / "plain").mkdir()
    weights, last = validated(tmp_path / "plain", evaluate_every=1)  # after each step
    seen, still_last = validated(tmp_path, ema=0.5, evaluate_every=3)
    torch.testing.assert_close(still_last, last)
    averages = [weights[0]]
    for n, each in enumerate(weights[1:], start=2):  # 6/(n + 5) is above ½ for all six
        averages.append(averages[-1] + 6 / (n + 5) * (each - averages[-1]))
    torch.testing.assert_close(seen, [averages[2], averages[5]])
    torch.testing.assert_close(load_tensors(tmp_path / "model.safetensors")[0]["embedding.table.weight"], seen[-1])
    assert sorted(path.name for path in (tmp_path / "plain" / "kept").iterdir()) == [
        "00000005.safetensors", "00000006.safetensors"
    ]  # fmt: skip
    mean = average_weights(tmp_path, 2)["embedding.table.weight"]
    torch.testing.assert_close(mean, (seen[0] + seen[1]) / 2)


def test_bleu_can_decide_which_weights_are_kept(tmp_path):
    run = trainer("transformer", tmp_path, steps=4, evaluate_every=1, keep=0)
    scores = iter([10.0, 30.0, 20.0, 25.0])
    run.validation = lambda model: ValidationResult(1.0, {"bleu": next(scores)}, "bleu")
    at = run.train()
    assert at.best_step == 2
    assert at.best_words == "BLEU 30.00"
    assert not (tmp_path / "kept").exists()


def test_only_as_many_weights_are_averaged_as_were_kept(tmp_path):
    (tmp_path / "kept").mkdir()
    for step in (10, 20):
        save_tensors(tmp_path / "kept" / f"{step:08d}.safetensors", {"w": torch.tensor([float(step)])})
    assert float(average_weights(tmp_path, 2)["w"]) == 15.0
    assert float(average_weights(tmp_path, 1)["w"]) == 20.0
    with pytest.raises(Exception, match="has the weights of only 2"):
        average_weights(tmp_path, 3)
