"""GPT, the decoder-only Transformer: every word looks back at all earlier ones, in every layer.

    x = E[w_t] + p_t,   x = Block(x)  layers times,   P(w_{t+1}) = softmax(E LN(x))

Radford et al. 2018 (GPT: post-norm), 2019 (GPT-2: pre-norm, and this initialization); the block: Vaswani et al. 2017.
With the default choices the weights correspond one to one to GPT-2's.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.base.settings import MAX_LAYERS, RATE, setting
from regard.layers.attention import CausalSelfAttention
from regard.layers.blocks import ACTIVATIONS, Block, FeedForward, PostNormBlock, PreNormBlock
from regard.layers.embedding import Embedding, Output
from regard.layers.position import POSITIONS, in_attention
from regard.systems.model import Stack
from regard.systems.position_settings import PositionSettings, check_heads


@dataclass(frozen=True)
class Settings(PositionSettings):
    layers: int = setting(4, "number of blocks", ge=1, le=MAX_LAYERS)
    width: int = setting(128, "width of the vectors between blocks", ge=1)
    heads: int = setting(4, "attention heads; they share the width equally", ge=1)
    context: int = setting(
        128,
        "maximum number of words to attend to; with unbounded positions, only the training window",
        ge=1,
    )
    feedforward: int = setting(0, "inner width of the feed-forward network; 0 = 4 × width", ge=0)
    position: str = setting("learned", "position encoding: {}", choices=tuple(POSITIONS))
    combine: str = setting(
        "add",
        "add the position to the word vector, or concatenate it (a quarter of the width)",
        choices=("add", "concatenate"),
    )
    norm: str = setting(
        "pre",
        "layer norm before each part (pre, as in GPT-2) or after each sum (post, as in GPT)",
        choices=("pre", "post"),
    )
    activation: str = setting("gelu", "gelu (tanh form) or relu", choices=ACTIVATIONS)
    bias: bool = setting(True, "use biases in linear maps and layer norms")
    tied: bool = setting(True, "predict with the embedding matrix (weight tying)")
    dropout: float = setting(0.1, "dropout rate on the embedding, the attention weights and each part's output", **RATE)
    initial: float = setting(0.02, "standard deviation of the initial weights; GPT-2's suits a width of 768", gt=0)
    scale: float = setting(0.0, "factor on input word vectors; 0 = √width with sine waves, else 1", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.width, self.heads, self.position)


class GPT(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(
            Embedding(
                vocabulary,
                settings.width,
                settings.encoding(),
                concatenate=settings.combine == "concatenate",
                scale=settings.scale or None,
            ),
            (self.block(settings) for _ in range(settings.layers)),
            Output(settings.width, vocabulary, tied=settings.tied, bias=False),
            entry=nn.Dropout(settings.dropout),
            finish=nn.LayerNorm(settings.width, bias=settings.bias) if settings.norm == "pre" else None,
        )
        self.settings = settings
        self._initialize()

    def _initialize(self) -> None:
        """GPT-2's: N(0, 0.02²), and smaller for the 2 × layers terms that are added to the residual stream.

        The output matrix stays small, so that an untrained model prefers no word: if `initial` is larger, `scale`
        enlarges the word vectors as they are read.
        """
        settings = self.settings
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                continue  # layer norms stay 1 and 0
            residual = name.endswith((".attention.output.weight", ".feedforward.output.weight"))
            share = (2 * settings.layers) ** -0.5 if residual else 1.0
            kept = (settings.scale or 1.0) if name in ("embedding.table.weight", "output.weight") else 1.0
            nn.init.normal_(weight, std=settings.initial * share / kept)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    @staticmethod
    def block(settings: Settings) -> Block:
        attention = CausalSelfAttention(
            settings.width,
            settings.heads,
            bias=settings.bias,
            dropout=settings.dropout,
            dropout_output=settings.dropout,
            position=in_attention(settings.position),
        )
        return make_block(attention, settings)

    @property
    def flops_per_token(self) -> float:
        return super().flops_per_token + self.looking_back

    @property
    def looking_back(self) -> float:
        """FLOP of attention over a full context: QKᵀ and weights × V, forward and twice that backward."""
        return 12.0 * self.settings.layers * self.settings.width * self.settings.context


def make_block(attention: CausalSelfAttention, settings: Settings) -> Block:
    """The block of this attention and a feed-forward."""
    feedforward = FeedForward(
        settings.width,
        settings.feedforward or 4 * settings.width,
        activation=settings.activation,
        bias=settings.bias,
        dropout=settings.dropout,
    )
    kind = PreNormBlock if settings.norm == "pre" else PostNormBlock
    return kind(attention, feedforward, bias=settings.bias)
