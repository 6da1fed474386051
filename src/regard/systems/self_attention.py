"""Self-attention alone, without the rest of the Transformer's block.

    c_t = E[w_t] (+ p_t),   q = f(W_q c), k = f(W_k c), v = f(W_v c),   h_t = Σ_{j ≤ t} α(q_t, k_j) v_j,
    P(w_{t+1}) = softmax(W_o h_t)

The lecture's step between the recurrent network and the Transformer (attention: Vaswani et al. 2017): no residual
connection, no layer norm, no feed-forward. Without positions it sees a set. Without projections it is
y_i = Σ_j softmax(x_iᵀ x_j) x_j. α is any score of layers/scores.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.base.errors import RegardError
from regard.base.settings import RATE, setting
from regard.layers.attention import SelfAttention
from regard.layers.embedding import Embedding, Output
from regard.layers.position import INPUT_POSITIONS
from regard.layers.scores import KERNELS, SCORES
from regard.systems.model import Stack
from regard.systems.position_settings import PositionSettings


@dataclass(frozen=True)
class Settings(PositionSettings):
    width: int = setting(256, "size of the vectors of words, queries, keys and values", ge=1)
    context: int = setting(
        128,
        "maximum number of words to attend to; with unbounded positions, only the training window",
        ge=1,
    )
    position: str = setting("none", "position encoding: {}", choices=INPUT_POSITIONS)
    combine: str = setting(
        "add",
        "add the position to the word vector, or concatenate it (a quarter of the width)",
        choices=("add", "concatenate"),
    )
    score: str = setting("scaled-dot", "attention score α: {}", choices=SCORES)
    bandwidth: float = setting(1.0, f"h, the bandwidth of a kernel ({', '.join(KERNELS)})", gt=0)
    projections: bool = setting(True, "learn W_q, W_k and W_v; if false, a word's vector is its query, key and value")
    activation: str = setting("identity", "activation function f: {}", choices=("identity", "tanh", "relu"))
    tied: bool = setting(False, "predict with the embedding matrix (weight tying)")
    dropout: float = setting(0.0, "dropout rate on the embedding and the attention weights", **RATE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation != "identity" and not self.projections:
            raise RegardError(f"model.activation {self.activation} acts on projections: set model.projections to true.")


class SelfAttentionModel(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(
            Embedding(vocabulary, settings.width, settings.encoding(), concatenate=settings.combine == "concatenate"),
            [
                SelfAttention(
                    settings.width,
                    score=settings.score,
                    bandwidth=settings.bandwidth,
                    projections=settings.projections,
                    activation=settings.activation,
                    dropout=settings.dropout,
                )
            ],
            Output(settings.width, vocabulary, tied=settings.tied, bias=False),
            entry=nn.Dropout(settings.dropout),
        )
        self.settings = settings
        self._initialize()

    def _initialize(self) -> None:
        """Small output weights: there is no layer norm, and an untrained model should prefer no word."""
        for table in self.embedding.parameters():  # of words, and of learned positions
            nn.init.normal_(table, std=0.1)
        if self.output.weight is not None:
            nn.init.normal_(self.output.weight, std=0.02)

    @property
    def flops_per_token(self) -> float:
        """The weights', and attention's over a full context: scores and averages, forward and twice that backward."""
        return super().flops_per_token + 12.0 * self.settings.width * self.settings.context
