"""The Transformer: an encoder and a decoder made of attention, and no recurrence.

    x = a E[x_s] + p_s,       x = EncoderBlock(x)  layers times                   the memory
    y = a E[y_{t-1}] + p_t,   y = DecoderBlock(y, memory)  layers times,          P(y_t) = softmax(E y + b)

Vaswani et al. 2017 (post-norm, one matrix E for source, target and prediction); pre-norm as in Wang et al. 2019. Theirs
has a = √D and vectors E[w] of length 1, here a = 4√D and length ¼: the blocks see the same, but initial logits are four
times smaller, so an untrained model prefers no word. b = 0 unless `output_bias`, which Marian's models have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.base.settings import MAX_LAYERS, RATE, setting
from regard.layers.attention import CausalSelfAttention, CrossAttention, FullSelfAttention
from regard.layers.blocks import (
    ACTIVATIONS,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    PostNormDecoderBlock,
    PostNormEncoderBlock,
    PreNormDecoderBlock,
    PreNormEncoderBlock,
)
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import TransformerEncoder
from regard.layers.parts import inside, note
from regard.layers.position import POSITIONS, Learned, in_attention
from regard.layers.state import Span, State
from regard.systems.position_settings import PositionSettings, check_heads
from regard.systems.translator import BY_CORPUS, Translator, is_shared, rate

QUIET = 4.0  # factor by which initial word vectors are smaller than in the paper, and `scale` larger


@dataclass(frozen=True)
class Settings(PositionSettings):
    layers: int = setting(3, "number of encoder blocks", ge=1, le=MAX_LAYERS)
    decoder_layers: int = setting(0, "number of decoder blocks; 0 = layers", ge=0, le=MAX_LAYERS)
    width: int = setting(256, "width of the vectors between blocks", ge=1)
    heads: int = setting(4, "attention heads; they share the width equally", ge=1)
    feedforward: int = setting(0, "inner width of the feed-forward network; 0 = 4 × width", ge=0)
    position: str = setting("sinusoid", "position encoding: {}", choices=tuple(POSITIONS))
    combine: str = setting(
        "add",
        "add the position to the word vector, or concatenate it (a quarter of the width)",
        choices=("add", "concatenate"),
    )
    context: int = setting(256, "maximum tokens in a source or target, for bounded positions (one-hot, learned)", ge=1)
    norm: str = setting(
        "pre",
        "layer norm before each part (pre) or after each sum (post, as in the original Transformer)",
        choices=("pre", "post"),
    )
    activation: str = setting("relu", "relu, gelu (tanh form) or swish", choices=(*ACTIVATIONS, "swish"))
    output_bias: bool = setting(False, "add a bias for each word to the logits")
    tied: bool = setting(True, "predict with the target's word vectors")
    shared: bool = setting(True, "one table of word vectors for source and target, if they share a vocabulary")
    dropout: float = setting(
        BY_CORPUS,
        "dropout rate on word vectors and each part's output; -1 = depends on the corpus",
        **RATE,
        unset=BY_CORPUS,
    )
    dropout_attention: float = setting(0.0, "dropout rate on attention weights", **RATE)
    dropout_activation: float = setting(0.0, "dropout rate inside the feed-forward network", **RATE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.width, self.heads, self.position)


class Transformer(Translator):
    def __init__(self, vocabulary: int, settings: Settings, *, source_vocabulary: int | None = None) -> None:
        shared = is_shared(settings.shared, source_vocabulary)
        super().__init__(
            embedding(vocabulary, settings),
            None if shared else embedding(source_vocabulary or vocabulary, settings),
            Output(settings.width, vocabulary, tied=settings.tied, bias=settings.output_bias),
            dropout=rate(settings.dropout),
        )
        self.settings = settings
        final = settings.norm == "pre"  # pre-norm: the residual stream itself was never normalized
        self.encoder = TransformerEncoder(
            (encoder_block(settings) for _ in range(settings.layers)), nn.LayerNorm(settings.width) if final else None
        )
        self.layers = nn.ModuleList(decoder_block(settings) for _ in range(settings.decoder_layers or settings.layers))
        self.finish = nn.LayerNorm(settings.width) if final else nn.Identity()
        self._initialize()

    def _initialize(self) -> None:
        """Xavier for every linear layer; word vectors that, scaled, are as large as a sinusoid."""
        length = 1 / QUIET
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, Embedding):
                nn.init.normal_(module.table.weight, std=length * self.settings.width**-0.5)
            elif isinstance(module, Learned):
                nn.init.normal_(module.table.weight, std=self.settings.width**-0.5)
        if self.output.weight is not None:
            nn.init.normal_(self.output.weight, std=length * self.settings.width**-0.5)

    # -- the source --------------------------------------------------------------------------------------------------

    def encode(self, source: Tensor, lengths: Tensor | None) -> State:
        return {"memory": self.encoder(self._source_vectors(source), lengths)}

    def explain_encode(self, source: Tensor, lengths: Tensor | None) -> tuple[State, State]:
        with inside("encoder"):
            vectors = note("embedding", self._source_vectors(source))
            memory, parts = self.encoder.explain(vectors, lengths)
        return {"memory": memory}, {"embedding": vectors, "layers": parts}

    def remember(self, encoded: State) -> State:
        return {name: block.cross.remember(encoded["memory"]) for name, block in self.named_blocks()}

    def initial_decoder_past(self, encoded: State, width: int, *, capacity: int | None, dtype: torch.dtype) -> State:
        rows = encoded["memory"].size(0) * width
        how: dict[str, Any] = {"capacity": capacity, "device": encoded["memory"].device, "dtype": dtype}
        return {name: block.begin(rows, **how) for name, block in self.named_blocks()}

    # -- the target --------------------------------------------------------------------------------------------------

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        x, past, source = self.dropout(self.embedding(tokens, span)), {}, state["source"]
        for name, block in self.named_blocks():
            x, past[name] = block(x, state["past"][name], span, source[name], source["valid"])
        return self.finish(x), past

    def explain_context(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
        x, past, source = note("embedding", self.dropout(self.embedding(tokens, span))), {}, state["source"]
        parts: State = {"embedding": x, "layers": {}}
        for name, block in self.named_blocks():
            with inside(f"layer/{name}"):
                x, past[name], shown = block.explain(x, state["past"][name], span, source[name], source["valid"])
            x = note(f"layer/{name}", x)
            parts["layers"][name] = {**shown, "hidden": x}
        parts["hidden"] = note("hidden", self.finish(x))
        return parts["hidden"], past, parts

    def attention(self, parts: State) -> dict[str, Tensor]:
        found = {f"self/{name}": layer["attention"]["weights"] for name, layer in parts["layers"].items()}
        return found | {
            f"cross/{name}": layer["cross"]["weights"] for name, layer in parts["layers"].items() if "cross" in layer
        }

    def alignment(self, parts: State) -> Tensor:
        """The average over all layers and heads."""
        return torch.stack([layer["cross"]["weights"].mean(dim=1) for layer in parts["layers"].values()]).mean(dim=0)

    @property
    def flops_per_token(self) -> float:
        """The weights', and attention's over sentences of 32 words: QKᵀ and weights × V, forward and twice backward."""
        looks = self.settings.layers + 2 * len(self.layers)
        return super().flops_per_token + 12.0 * looks * self.settings.width * 32

    def named_blocks(self) -> list[tuple[str, DecoderBlock]]:
        return list(self.layers.named_children())  # type: ignore[arg-type]  # ModuleList forgets what it holds


def embedding(vocabulary: int, settings: Settings) -> Embedding:
    concatenate = settings.combine == "concatenate"
    return Embedding(
        vocabulary, settings.width, settings.encoding(), concatenate=concatenate, scale=QUIET * settings.width**0.5
    )


def encoder_block(settings: Settings) -> EncoderBlock:
    attention = FullSelfAttention(
        settings.width,
        settings.heads,
        dropout=settings.dropout_attention,
        dropout_output=rate(settings.dropout),
        position=in_attention(settings.position),
    )
    kind = PreNormEncoderBlock if settings.norm == "pre" else PostNormEncoderBlock
    return kind(attention, feedforward(settings))


def decoder_block(settings: Settings) -> DecoderBlock:
    attention = CausalSelfAttention(
        settings.width,
        settings.heads,
        dropout=settings.dropout_attention,
        dropout_output=rate(settings.dropout),
        position=in_attention(settings.position),
    )
    cross = CrossAttention(
        settings.width, settings.heads, dropout=settings.dropout_attention, dropout_output=rate(settings.dropout)
    )
    kind = PreNormDecoderBlock if settings.norm == "pre" else PostNormDecoderBlock
    return kind(attention, cross, feedforward(settings))


def feedforward(settings: Settings) -> FeedForward:
    return FeedForward(
        settings.width,
        settings.feedforward or 4 * settings.width,
        activation=settings.activation,
        dropout=rate(settings.dropout),
        dropout_activation=settings.dropout_activation,
    )
