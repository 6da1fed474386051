"""Llama, the block of today's open models: GPT's, with four parts exchanged.

    x = E[w_t],   x = x + Attention(RMSNorm(x)),   x = x + W_2 (swish(W_g RMSNorm(x)) * W_1 RMSNorm(x))   layers times
    P(w_{t+1}) = softmax(W_o RMSNorm(x))

    q, k, v = W_q y + b_q, W_k y + b_k, W_v y + b_v  for  y = RMSNorm(x) = a x / √(mean of x² + ε)

Positions rotate queries and keys (rotary), RMSNorm replaces the layer norm, the feed-forward is gated (SwiGLU), groups
of heads share keys and values. Touvron et al. 2023; grouped queries: Ainslie et al. 2023. Nothing has a bias unless
`bias` says so: qkv is Qwen2, attention adds W_o's, all adds the feed-forward's three.

The weights correspond one to one to those of Hugging Face's LlamaForCausalLM: `attention.project` is q_proj, k_proj and
v_proj, concatenated by rows; gate, expand and output are gate_proj, up_proj and down_proj. Component k is rotated with
k + d/2 by the frequency θ^(−2k/d), θ = 10000, and RMSNorm's ε is 1e-5; both are settings, as is the scaling of the
frequencies for texts longer than in pre-training (layers/position.py). Imported models have their own values.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.base.errors import RegardError
from regard.base.settings import MAX_LAYERS, RATE, CheckedSettings, setting
from regard.layers.attention import GroupedQueryAttention
from regard.layers.blocks import RMS_EPSILON, GatedFeedForward, RMSNormBlock, rms_norm
from regard.layers.embedding import Embedding, Output
from regard.layers.position import STRETCHES, THETA, Rotary, Stretch
from regard.systems.model import Stack
from regard.systems.position_settings import check_heads

BIASES = ("none", "qkv", "attention", "all")
MULTIPLE = 8  # the width of the feed-forward is rounded up to this


@dataclass(frozen=True)
class Settings(CheckedSettings):
    layers: int = setting(4, "number of blocks", ge=1, le=MAX_LAYERS)
    width: int = setting(128, "width of the vectors between blocks", ge=1)
    heads: int = setting(4, "query heads; they share the width equally", ge=1)
    key_value_heads: int = setting(
        0, "key and value heads, each for a group of query heads; 0 = half as many, if that is an integer", ge=0
    )
    context: int = setting(128, "the training window; positions are unbounded", ge=1)
    feedforward: int = setting(
        0, "inner width of the gated feed-forward network; 0 = 8/3 × width, as many weights as GPT's 4 × width", ge=0
    )
    head_width: int = setting(0, "size of a head; 0 = width / heads", ge=0)
    bias: str = setting("none", "linear maps with a bias: {}", choices=BIASES)
    epsilon: float = setting(RMS_EPSILON, "ε of RMSNorm", gt=0)
    theta: float = setting(THETA, "base of the rotary frequencies", gt=0)
    stretch: str = setting("none", "scaling of rotary frequencies for longer texts: {}", choices=STRETCHES)
    stretch_factor: float = setting(1.0, "factor by which rotary frequencies are divided", ge=1)
    stretch_low: float = setting(
        1.0, "llama3: frequencies with fewer rotations than this within stretch_context are divided", gt=0
    )
    stretch_high: float = setting(4.0, "llama3: frequencies with more rotations than this are unchanged", gt=0)
    stretch_context: int = setting(8192, "llama3: context length before scaling", ge=1)
    tied: bool = setting(True, "predict with the embedding matrix (weight tying)")
    dropout: float = setting(0.1, "dropout rate on the embedding, the attention weights and each part's output", **RATE)
    initial: float = setting(0.02, "standard deviation of the initial weights; suits a width of 768", gt=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.head_width:
            check_heads(self.width, self.heads, "rotary")
        elif self.head_width % 2:
            raise RegardError(f"model.head_width must be even, since positions rotate pairs, not {self.head_width}.")
        if self.stretch == "llama3" and self.stretch_low >= self.stretch_high:
            raise RegardError(
                f"model.stretch_low ({self.stretch_low:g}) must be below model.stretch_high ({self.stretch_high:g})."
            )
        if self.heads % self.groups:
            raise RegardError(f"model.key_value_heads ({self.groups}) must divide model.heads ({self.heads}).")

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or (self.heads // 2 if self.heads % 2 == 0 else self.heads)

    @property
    def head(self) -> int:
        """Components of a head."""
        return self.head_width or self.width // self.heads

    @property
    def inner(self) -> int:
        """Components inside the feed-forward."""
        return self.feedforward or -(-8 * self.width // (3 * MULTIPLE)) * MULTIPLE

    @property
    def rotations(self) -> Stretch:
        return Stretch(self.stretch, self.stretch_factor, self.stretch_low, self.stretch_high, self.stretch_context)

    @property
    def width_step(self) -> int:
        """The width must be a multiple of this: heads share it, and each turns pairs of components."""
        return 1 if self.head_width else 2 * self.heads


class Llama(Stack):
    def __init__(self, vocabulary: int, settings: Settings) -> None:
        super().__init__(
            Embedding(vocabulary, settings.width),
            (block(settings) for _ in range(settings.layers)),
            Output(settings.width, vocabulary, tied=settings.tied, bias=False),
            entry=nn.Dropout(settings.dropout),
            finish=rms_norm(settings.width, settings.epsilon),
        )
        self.settings = settings
        self._initialize()

    def _initialize(self) -> None:
        """As gpt's: N(0, initial²), and smaller for the 2 × layers terms that are added to the residual stream."""
        for name, weight in self.named_parameters():
            if weight.dim() < 2:  # norms stay 1
                if name.endswith(".bias"):
                    nn.init.zeros_(weight)
                continue
            residual = name.endswith((".attention.output.weight", ".feedforward.output.weight"))
            nn.init.normal_(weight, std=self.settings.initial * ((2 * self.settings.layers) ** -0.5 if residual else 1))

    @property
    def flops_per_token(self) -> float:
        """The weights', and attention's over a full context: QKᵀ and weights × V, forward and twice that backward."""
        attention = 12.0 * self.settings.layers * self.settings.heads * self.settings.head * self.settings.context
        return super().flops_per_token + attention


def block(settings: Settings) -> RMSNormBlock:
    attention = GroupedQueryAttention(
        settings.width,
        settings.heads,
        settings.groups,
        head_width=settings.head_width,
        bias=settings.bias != "none",
        bias_output=settings.bias in ("attention", "all"),
        dropout=settings.dropout,
        dropout_output=settings.dropout,
        position=Rotary(theta=settings.theta, stretch=settings.rotations),
    )
    feedforward = GatedFeedForward(
        settings.width, settings.inner, bias=settings.bias == "all", dropout=settings.dropout
    )
    return RMSNormBlock(attention, feedforward, epsilon=settings.epsilon)
