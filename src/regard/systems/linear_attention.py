"""Linear attention: GPT's block, with attention replaced by a recurrence whose state is a matrix.

    x = E[w_t] + p_t,   x = x + W_o y,   x = x + FF(LN(x))  layers times,   P(w_{t+1}) = softmax(E LN(x))
    y_t = Σ_{j ≤ t} φ(q_t)·φ(k_j) v_j / Σ_{j ≤ t} φ(q_t)·φ(k_j)  in each head,   q, k, v = W LN(x)

Katharopoulos et al. 2020. The kernel φ(q)·φ(k) replaces softmax's exp(q·k / √d), so that the past is a sum of fixed
size: training takes O(T) and each generated word O(1). Feature maps φ, decay and the delta rule are in
layers/matrix_state.py; the rest is GPT.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.base.settings import setting
from regard.layers.blocks import Block
from regard.layers.matrix_state import DECAYS, FEATURES, RULES, LinearAttention
from regard.layers.position import INPUT_POSITIONS
from regard.systems import gpt


@dataclass(frozen=True)
class Settings(gpt.Settings):
    position: str = setting("sinusoid", "position encoding: {}", choices=INPUT_POSITIONS)
    feature: str = setting("elu", "φ of queries and keys: {} (random features)", choices=FEATURES)
    features: int = setting(0, "gaussian: number of random features; 0 = a head's width", ge=0)
    decay: str = setting("none", "decay of the state: {} (fixed for each head, or by a gate)", choices=DECAYS)
    rule: str = setting("sum", "update of the state by a word: {} (sum adds a value, delta replaces it)", choices=RULES)
    dropout: float = setting(0.1, "dropout rate on the embedding and each part's output", ge=0, lt=1)


class LinearTransformer(gpt.GPT):
    settings: Settings

    @staticmethod
    def block(settings: gpt.Settings) -> Block:
        assert isinstance(settings, Settings)
        attention = LinearAttention(
            settings.width,
            settings.heads,
            feature=settings.feature,
            features=settings.features,
            decay=settings.decay,
            rule=settings.rule,
            bias=settings.bias,
            dropout_output=settings.dropout,
        )
        return gpt.make_block(attention, settings)

    @property
    def looking_back(self) -> float:
        """FLOP of attention for each token: S is written and read once, forward and twice that backward."""
        return 12.0 * self.settings.layers * self.settings.width * self.settings.width / self.settings.heads
