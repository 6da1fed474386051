"""The embedding as the hidden layer of a network that gives its input back (001:56–64)."""

import pytest
import torch
import torch.nn.functional as F

from regard.base.errors import RegardError
from regard.learn.reconstruction import LOSSES, Reconstruction


def by_one_hot(net: Reconstruction, words: torch.Tensor, kind: str) -> torch.Tensor:
    """The lecture's network as it is drawn: a one-hot vector, two matrices, a loss; PyTorch's own losses."""
    x = F.one_hot(words, net.vocabulary).to(net.output.weight.dtype)
    y = x @ net.embedding.weight @ net.output.weight.T
    if kind == "cross-entropy":
        return F.cross_entropy(y.flatten(0, -2), x.flatten(0, -2), reduction="none").view(words.shape)
    return F.pairwise_distance(x.flatten(0, -2), y.flatten(0, -2), eps=0.0).view(words.shape)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_it_is_the_network_of_one_hot_vectors_values_and_gradients(kind, shape):
    torch.manual_seed(0)
    net, words = Reconstruction(11, 4).double(), torch.randint(11, shape)
    answers = []
    for way in (net.loss, lambda words, kind: by_one_hot(net, words, kind)):
        cost = way(words, kind)
        answers.append([cost, *torch.autograd.grad(cost.sum(), list(net.parameters()))])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", LOSSES)
def test_its_gradient_is_that_of_finite_differences(kind):
    torch.manual_seed(0)
    net, words = Reconstruction(6, 3).double(), torch.tensor([1, 4, 4])

    # gradcheck moves the weights themselves by a little, in place
    assert torch.autograd.gradcheck(lambda *weights: net.loss(words, kind), tuple(net.parameters()))


def trained(kind: str, vocabulary: int, width: int, steps: int) -> Reconstruction:
    torch.manual_seed(0)
    net = Reconstruction(vocabulary, width)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(steps):
        loss = net.loss(torch.arange(vocabulary), kind).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def test_trained_by_cross_entropy_a_narrow_layer_gives_every_word_back():
    net, words = trained("cross-entropy", 50, 8, 200), torch.arange(50)
    assert torch.equal(net(words).argmax(-1), words)


def test_by_the_l2_norm_a_narrow_layer_is_bounded_and_a_wide_one_is_exact():
    """y has rank D: Σ_w ‖x_w − y_w‖ is at least the nuclear norm of I − Y, which is at least V − D."""
    narrow, wide = (trained("l2", 20, width, 400).loss(torch.arange(20), "l2").mean().item() for width in (5, 20))
    assert 1 - 5 / 20 <= narrow < 0.9
    assert wide < 0.2


@pytest.mark.parametrize("kind", LOSSES)
def test_ten_thousand_words_learn(kind):
    torch.manual_seed(0)
    net, words = Reconstruction(10_000, 32), torch.randint(10_000, (64,))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(6):
        losses.append(net.loss(words, kind).mean())
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]


def test_a_loss_of_another_name_is_refused():
    with pytest.raises(RegardError, match="cross-entropy, l2"):
        Reconstruction(5, 2).loss(torch.tensor([1]), "l1")
