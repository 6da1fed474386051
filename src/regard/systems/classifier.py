"""A classifier: an encoder of any kind reads the source, and one pooled vector predicts a label.

    m_1 … m_S = encoder(E[x_1] … E[x_S]),   c = pool(m_1 … m_S),   P(label | x) = softmax(W c + b)

    dan              m_s = E[x_s], c = f(W_k … f(W_1 mean + b_1) … + b_k)           Iyyer et al. 2015
    rnn, lstm, gru   m_s = [→h_s ; ←h_s]; its last state is [→h_S ; ←h_1]           Dai & Le 2015, in one direction
    self-attention   m = Attention(x, x, x), layers times and nothing else          Vaswani et al. 2017
    transformer      m = EncoderBlock(x), layers times                              Vaswani et al. 2017

It is a translator whose target is one symbol. It ignores the target tokens, so every column predicts the same label. A
source ends in <eos>, whose vector is pooled with the others, or is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.base.errors import RegardError
from regard.base.settings import MAX_LAYERS, RATE, CheckedSettings, check_range, setting
from regard.layers.attention import FullSelfAttention
from regard.layers.blocks import FeedForward, PreNormEncoderBlock
from regard.layers.embedding import Embedding, Output
from regard.layers.encoder import RecurrentEncoder, TransformerEncoder, real_columns
from regard.layers.parts import inside, note
from regard.layers.position import at_input, in_attention
from regard.layers.recurrent import CELLS
from regard.layers.state import Span, State
from regard.systems.position_settings import check_heads
from regard.systems.translator import Translator

ATTENTION = ("self-attention", "transformer")
ENCODERS = ("dan", *CELLS, *ATTENTION)


@dataclass(frozen=True)
class Settings(CheckedSettings):
    encoder: str = setting("lstm", "type of the encoder: {}", choices=ENCODERS)
    pool: str = setting(
        "mean", "predict the label from the mean of all vectors, or from the last one", choices=("mean", "last")
    )
    layers: int = setting(
        1, "layers of the encoder; for dan, those above the average (0 = a bag of words)", ge=0, le=MAX_LAYERS
    )
    width: int = setting(128, "width of the vectors between layers; if recurrent, in each direction", ge=1)
    embedding: int = setting(0, "size of a word vector; 0 = width, which attention requires", ge=0)
    bidirectional: bool = setting(True, "rnn, lstm, gru: read the source in both directions")
    heads: int = setting(4, "self-attention, transformer: heads, which share the width equally", ge=1)
    position: str = setting(
        "sinusoid",
        "position encoding of self-attention and transformer: {}",
        choices=("none", "sinusoid", "rotary", "alibi"),
    )
    dropout: float = setting(0.2, "dropout rate on word vectors, between layers and before the prediction", **RATE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("model.layers", self.layers, 0 if self.encoder == "dan" else 1)
        if self.encoder == "dan" and self.pool == "last":
            raise RegardError(
                "model.encoder dan averages the words, and the last one is always <eos>: set model.pool to mean."
            )
        if self.encoder in ATTENTION:
            self._check_attention()

    def _check_attention(self) -> None:
        if self.words != self.width:
            raise RegardError(
                f"With model.encoder {self.encoder}, word vectors are as wide as the model: leave model.embedding at 0."
            )
        check_heads(self.width, self.heads, self.position)

    @property
    def words(self) -> int:
        """Components of a word vector."""
        return self.embedding or self.width

    @property
    def pooled(self) -> int:
        """Components of the vector that predicts the label."""
        if self.encoder == "dan":
            return self.width if self.layers else self.words
        return self.width * (2 if self.encoder in CELLS and self.bidirectional else 1)


class Classifier(Translator):
    """`vocabulary` is the number of labels; only the source is embedded."""

    def __init__(self, vocabulary: int, settings: Settings, *, source_vocabulary: int | None = None) -> None:
        words = settings.words
        place = at_input(settings.position, words, 0) if settings.encoder in ATTENTION else None
        super().__init__(
            Embedding(source_vocabulary or vocabulary, words, place, scale=words**0.5),
            None,
            Output(settings.pooled, vocabulary, tied=False, bias=True),
            dropout=settings.dropout,
        )
        self.vocabulary = vocabulary
        self.settings = settings
        self.encoder = encoder(settings)
        self.deepen = feedforward(settings) if settings.encoder == "dan" else nn.Identity()
        self.init_embeddings()
        assert self.output.weight is not None
        # Small, so that an untrained model prefers no label.
        nn.init.normal_(self.output.weight, std=0.25 * settings.pooled**-0.5)

    def encode(self, source: Tensor, lengths: Tensor | None) -> State:
        memory, last = self._read(self._source_vectors(source), lengths)
        return {"memory": memory, "whole": self._whole(memory, last, lengths)}

    def explain_encode(self, source: Tensor, lengths: Tensor | None) -> tuple[State, State]:
        with inside("encoder"):
            vectors = note("embedding", self._source_vectors(source))
            memory, last = vectors, None
            parts: State = {}
            if isinstance(self.encoder, RecurrentEncoder):
                memory, last, parts = self.encoder.explain(vectors, lengths)
            elif self.encoder is not None:
                memory, parts = self.encoder.explain(vectors, lengths)
        whole = note("hidden", self._whole(memory, last, lengths))
        return {"memory": memory, "whole": whole}, {"embedding": vectors, "layers": parts, "whole": whole}

    def _read(self, vectors: Tensor, lengths: Tensor | None) -> tuple[Tensor, State | None]:
        """A vector for each word, and each layer's last state if the encoder is recurrent."""
        if self.encoder is None:
            return vectors, None
        read = self.encoder(vectors, lengths)
        return read if isinstance(self.encoder, RecurrentEncoder) else (read, None)

    def _whole(self, memory: Tensor, last: State | None, lengths: Tensor | None) -> Tensor:
        """The source in one vector: [N, D]."""
        if self.settings.pool == "mean":
            return self.deepen(mean_of_real(memory, lengths))
        if last is not None:
            return last[str(self.settings.layers - 1)]["hidden"]
        if lengths is None:
            return memory[:, -1]
        return memory[torch.arange(memory.size(0), device=memory.device), lengths.to(memory.device) - 1]

    def remember(self, encoded: State) -> State:
        return {"whole": encoded["whole"]}

    def initial_decoder_past(self, encoded: State, width: int, *, capacity: int | None, dtype: torch.dtype) -> State:
        return {}  # targets are not read

    def hidden_states(self, tokens: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
        whole = state["source"]["whole"]  # [N, D]
        each = whole.repeat_interleave(tokens.size(0) // whole.size(0), dim=0)  # row r reads source r // width
        return self.dropout(each)[:, None].expand(-1, tokens.size(1), -1), {}


def encoder(settings: Settings) -> RecurrentEncoder | TransformerEncoder | None:
    """The encoder of the word vectors; None: there is none (dan)."""
    width, dropout = settings.width, settings.dropout
    if settings.encoder in CELLS:
        return RecurrentEncoder(
            settings.words,
            width,
            cell=settings.encoder,
            layers=settings.layers,
            bidirectional=settings.bidirectional,
            dropout=dropout,
        )
    if settings.encoder == "dan":
        return None

    def look() -> FullSelfAttention:
        position = in_attention(settings.position)
        return FullSelfAttention(width, settings.heads, dropout_output=dropout, position=position)

    layers = range(settings.layers)
    if settings.encoder == "self-attention":
        return TransformerEncoder(look() for _ in layers)  # type: ignore[misc]  # which is called as a block is
    blocks = (PreNormEncoderBlock(look(), FeedForward(width, 4 * width, dropout=dropout)) for _ in layers)
    return TransformerEncoder(blocks, nn.LayerNorm(width))


def feedforward(settings: Settings) -> nn.Sequential:
    """The layers of a deep averaging network above its average."""
    layers: list[nn.Module] = []
    for inputs, width in pairwise([settings.words, *[settings.width] * settings.layers]):
        layers += [nn.Linear(inputs, width), nn.Tanh()]
    return nn.Sequential(*layers)


def mean_of_real(memory: Tensor, lengths: Tensor | None) -> Tensor:
    """The mean of each row's real columns: [N, S, D] → [N, D], summed in fp32 or better."""
    exact = torch.promote_types(memory.dtype, torch.float32)
    valid = real_columns(memory, lengths)
    if valid is None:
        return memory.mean(dim=1, dtype=exact).to(memory.dtype)
    total = memory.where(valid[..., None], 0.0).sum(dim=1, dtype=exact)
    return (total / valid.sum(dim=1, keepdim=True)).to(memory.dtype)
