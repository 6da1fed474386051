"""The minimal GRU: its gates do not depend on the past, so training is parallel over time.

    x = E[w_t],   x = x + W_o h,   x = x + FF(RMSNorm(x))  layers times,   P(w_{t+1}) = softmax(E RMSNorm(x))
    h_t = (1 − z_t) * h_{t-1} + z_t * n_t,   z_t = σ(W_z x_t + b_z),   n_t = W_n x_t + b_n,   of RMSNorm(x)

Feng et al. 2024. A text is read as a parallel scan, a tree of log₂ T levels (layers/scan.py); generation goes step by
step, with a state of one vector in each layer. The block around it is the paper's, without its short convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.base.settings import MAX_LAYERS, RATE, CheckedSettings, setting
from regard.layers.blocks import FeedForward, rms_norm
from regard.layers.embedding import Embedding, Output
from regard.layers.scan import MinGRUBlock
from regard.systems.model import Stack


@dataclass(frozen=True)
class Settings(CheckedSettings):
    layers: int = setting(3, "number of blocks", ge=1, le=MAX_LAYERS)
    width: int = setting(128, "width of the vectors between blocks", ge=1)
    expansion: float = setting(2.0, "size of the state, as a multiple of the width", gt=0)
    feedforward: int = setting(0, "inner width of the feed-forward network; 0 = 4 × width", ge=0)
    tied: bool = setting(True, "predict with the embedding matrix (weight tying)")
    dropout: float = setting(0.1, "dropout rate on the embedding and each part's output", **RATE)
    initial: float = setting(0.02, "standard deviation of the initial weights; suits a width of 768", gt=0)

    @property
    def inner(self) -> int:
        """Components of the state."""
        return max(1, round(self.expansion * self.width))


class MinGRUModel(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(
            Embedding(vocabulary, settings.width),
            (block(settings) for _ in range(settings.layers)),
            Output(settings.width, vocabulary, tied=settings.tied, bias=False),
            entry=nn.Dropout(settings.dropout),
            finish=rms_norm(settings.width),
        )
        self.settings = settings
        self._initialize()

    def _initialize(self) -> None:
        """As gpt's: N(0, initial²), and smaller for the 2 × layers terms that are added to the residual stream."""
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                continue  # norms stay 1
            residual = name.startswith("layers.") and name.endswith(".output.weight")
            nn.init.normal_(weight, std=self.settings.initial * ((2 * self.settings.layers) ** -0.5 if residual else 1))
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def block(settings: Settings) -> MinGRUBlock:
    feedforward = FeedForward(settings.width, settings.feedforward or 4 * settings.width, dropout=settings.dropout)
    return MinGRUBlock(settings.width, settings.inner, feedforward, dropout=settings.dropout)
