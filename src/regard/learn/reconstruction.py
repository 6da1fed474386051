"""An embedding learned by reconstruction: the hidden layer of a network that gives its input back.

    input     x = onehot(w)                        V components, say 10,000, of which one is 1
    hidden    h = W_in x                           the embedding of w: column w of W_in, a table look-up
    output    y = W_out h

    cross-entropy   −log softmax(y)_w              which word was it?
    l2              ‖x − y‖₂                       how far from the input?

The two differ if the hidden layer is narrow, D < V. Cross-entropy requires only that the right word ranks first, which
two components can achieve for any vocabulary. The l2 norm requires all of x: y has rank D, so over the vocabulary its
mean is at least 1 − D/V, which for V = 10,000 and D = 64 is 0.9936; it is 0 for D = V.

    net = Reconstruction(vocabulary=10_000, width=64)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(100):
        words = torch.randint(10_000, (256,))
        loss = net.loss(words, "cross-entropy").mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    vectors = net.embedding.weight                 # [V, D], a row for each word
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from regard.base.settings import check_choice

LOSSES = ("cross-entropy", "l2")


class Reconstruction(nn.Module):
    """onehot(w) → W_in → W_out → onehot(w), with no activation between: the lecture's network."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, width)  # W_in, transposed: E[w] = W_in onehot(w)
        self.output = nn.Linear(width, vocabulary, bias=False)  # W_out
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def forward(self, words: Tensor) -> Tensor:
        """y for words […]: […, V]."""
        return self.output(self.embedding(words))

    def loss(self, words: Tensor, kind: str = "cross-entropy") -> Tensor:
        """The reconstruction loss of each word: words […] → […]."""
        check_choice("the loss", kind, LOSSES)
        output = self(words)
        if kind == "cross-entropy":
            return -output.log_softmax(dim=-1).gather(-1, words[..., None])[..., 0]
        return (F.one_hot(words, self.vocabulary) - output).norm(dim=-1)
