"""One beam-search step of the Transformer, in few passes over memory.

    z = predict(blocks(a E[y_{t−1}] + p_t)),    each part  x ← LN(x + part(x))  or  x ← x + part(LN(x))

Matrix products are PyTorch's. One kernel runs between them: self-attention through a table of ancestors, so
that no cache is ever reordered; cross-attention of all hypotheses to their source; the residual sum with its layer
norm. The reference is `Transformer.hidden_states` for one column.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.decoding.beam_engine import REFILL, BeamBatch, BeamEngine, StateReader
from regard.decoding.beam_slots import BeamConfig, Slots
from regard.fast.compile_ahead import compile_ahead, describe, size_class
from regard.fast.graphs import recorded, synchronizes
from regard.fast.table import Row, Use, Why, needs_cuda, needs_triton
from regard.layers.blocks import DecoderBlock, FeedForward
from regard.layers.embedding import Embedding
from regard.layers.position import Learned, Position, Rotary, rotate
from regard.layers.state import Span
from regard.systems.model import Model
from regard.systems.transformer import Transformer

WIDEST = 16  # the widest beam for the kernels, whose loops over it are unrolled


def knows(model: Model) -> bool:
    """A Transformer with rotary positions, or with none inside attention."""
    if type(model) is not Transformer:
        return False
    return all(type(block.attention.position) in (Position, Rotary) for _, block in model.named_blocks())


class TransformerRows:
    """The key-value caches of N · W rows, never reordered, and the keys and values of N sources."""

    def __init__(self, model: Transformer, sources: int, longest: int, room: int, width: int) -> None:
        self.model, self.width, self.sources, self.device = model, width, sources, model.device
        self.blocks: list[DecoderBlock] = list(model.layers)  # type: ignore[arg-type]  # ModuleList forgets
        heads, size = model.settings.heads, model.settings.width // model.settings.heads
        place: dict[str, Any] = {"device": model.device, "dtype": model.embedding.table.weight.dtype}
        self.keys, self.values = (
            [torch.zeros(sources, width, room, heads, size, **place) for _ in self.blocks] for _ in range(2)
        )
        # keys and values of the sources, and one spare place for padding (see `Intake`)
        self.memory = [torch.zeros(sources + 1, longest, 2, heads, size, **place) for _ in self.blocks]
        self.lengths = torch.ones(sources + 1, dtype=torch.int64, device=model.device)
        self.ancestors = torch.zeros(2, sources, width, room, dtype=torch.uint8, device=model.device)
        # The first positions, where all hypotheses have the same ancestor.
        self.common = torch.zeros_like(self.lengths[:-1])
        self.waves = waves(model.embedding, room, **place)
        self.intakes: dict[int, Intake | None] = {}

    def fill(self, places: Tensor, sources: Tensor, lengths: Tensor) -> None:
        """Encodes sources in batches of two sizes, so that a CUDA graph can be recorded for each size."""
        size = self.sources if len(places) == self.sources else max(1, self.sources // REFILL)
        lengths = lengths.to(places.device, non_blocking=True)
        for batch in zip(sources.split(size), lengths.split(size), places.split(size)):
            if size not in self.intakes or not places.is_cuda:
                self.take_in(*batch)
                self.intakes[size] = None
            else:
                intake = self.intakes[size] or Intake(self, size, sources.size(1))
                self.intakes[size] = intake
                intake(*batch)

    def take_in(self, sources: Tensor, lengths: Tensor, places: Tensor) -> None:
        """Encodes sources and stores their keys and values for all blocks."""
        memory = self.model.encode(sources, lengths)["memory"]
        for kept, block in zip(self.memory, self.blocks, strict=True):
            kept[places] = block.cross.project(memory).view(len(places), *kept.shape[1:])
        self.lengths[places] = lengths

    def choose(self, slots: Slots, logits: Tensor) -> None:
        from regard.fast.kernels.beam_choice import choose

        choose(slots, logits, self.ancestors, self.common)

    def __call__(self, slots: Slots) -> Tensor:
        x = self._words(slots)  # [N · W, D]
        pre = self.blocks[0].norm_first
        norms = [
            norm for block in self.blocks for norm in (block.attention_norm, block.cross_norm, block.feedforward_norm)
        ]
        read = norms[0](x) if pre else x
        following = iter([*norms[1:], self.model.finish] if pre else norms)
        for number, block in enumerate(self.blocks):
            x, read = self._sum(x, self._own_words(number, read, slots.length), next(following), pre)
            x, read = self._sum(x, self._source(number, read), next(following), pre)
            x, read = self._sum(x, work(block.feedforward, read), next(following), pre)
        return self.model.predict(read)

    def _words(self, slots: Slots) -> Tensor:
        """The embedding of each slot's token at its position; the boundary token has position 0."""
        embedding = self.model.embedding
        if self.waves is None:
            return embedding(slots.token.view(-1, 1), Span(slots.length.repeat_interleave(self.width)))[:, 0]
        words = F.embedding(slots.token, embedding.table.weight)  # [N, W, D]
        return torch.add(self.waves[slots.length][:, None], words, alpha=embedding.scale).flatten(0, 1)

    @staticmethod
    def _sum(x: Tensor, part: Tensor, norm: nn.Module, pre: bool) -> tuple[Tensor, Tensor]:
        """The new x, and the input of the next sublayer."""
        from regard.fast.kernels.add_norm import add_norm

        total, normed = add_norm(x, part, norm, keep=pre)  # type: ignore[arg-type]
        return (total, normed) if pre else (normed, normed)

    def _own_words(self, number: int, read: Tensor, seen: Tensor) -> Tensor:
        from regard.fast.kernels.beam_attention import attend_to_own_words

        attention = self.blocks[number].attention
        asked = attention.project(read)  # query, key and value of each row's new word: [N · W, 3 · D]
        if isinstance(attention.position, Rotary):
            turned = asked.view(len(asked), 1, 3 * attention.heads, -1)[:, :, : 2 * attention.heads]
            turned.copy_(rotate(turned, seen.repeat_interleave(self.width)[:, None]))
        caches = self.keys[number], self.values[number]
        context = attend_to_own_words(asked, *caches, self.ancestors, self.common, seen)
        return attention.output(context)

    def _source(self, number: int, read: Tensor) -> Tensor:
        from regard.fast.kernels.beam_attention import attend_to_source

        cross = self.blocks[number].cross
        return cross.output(attend_to_source(cross.query(read), self.memory[number], self.lengths, self.width))


class Intake:
    """A CUDA graph that encodes `size` sources and stores them in their places."""

    def __init__(self, rows: TransformerRows, size: int, longest: int) -> None:
        def numbers(*shape: int, value: int = 1) -> Tensor:
            return torch.full(shape, value, dtype=torch.int64, device=rows.lengths.device)

        # if fewer are given, the rest keep their old values and are stored in the spare place
        self.sources, self.lengths, self.places = numbers(size, longest), numbers(size), numbers(size)
        self.nowhere = self.places.fill_(rows.sources).clone()
        self.graph = recorded(lambda: rows.take_in(self.sources, self.lengths, self.places))

    def __call__(self, sources: Tensor, lengths: Tensor, places: Tensor) -> None:
        self.sources[: len(sources)] = sources
        self.lengths[: len(sources)] = lengths
        self.places.copy_(self.nowhere)
        self.places[: len(places)] = places
        self.graph.replay()


def waves(embedding: Embedding, room: int, *, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """The position vectors [room, D] to add to the words; None if they are learned, or concatenated."""
    if embedding.concatenate or isinstance(embedding.position, Learned):
        return None
    if embedding.position is None:
        return torch.zeros(room, embedding.width, device=device, dtype=dtype)
    places = embedding.position(torch.arange(room, device=device)[None], dtype)[0]
    return F.pad(places, (0, embedding.width - places.size(-1)))


def work(feedforward: FeedForward, x: Tensor) -> Tensor:
    """The feed-forward sublayer; with ReLU, bias and activation are fused into the product (cuBLASLt)."""
    if isinstance(feedforward.activation, nn.ReLU) and feedforward.expand.bias is not None:
        inner = torch._addmm_activation(feedforward.expand.bias, x, feedforward.expand.weight.T)
    else:
        inner = feedforward.activation(feedforward.expand(x))
    return feedforward.output(inner)


class RecordedBeam:
    """`BeamBatch.run`, each step one replay. All slots are closed during recording, so its results are discarded."""

    def __init__(self, batch: BeamBatch) -> None:
        self.graph = recorded(batch.step)

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            self.graph.replay()


def choose_by_kernels(reader: StateReader, slots: Slots, logits: Tensor) -> None:
    from regard.fast.kernels.beam_choice import choose

    choose(slots, logits)


def known_numbers(numbers: Tensor, width: int) -> bool:
    """True if the kernels support the precision and the beam width."""
    return numbers.dtype in (torch.float32, torch.bfloat16, torch.float16) and width <= WIDEST


def transformer_reader(engine: BeamEngine, terms: BeamConfig, places: int, longest: int, room: int) -> TransformerRows:
    return TransformerRows(engine.model, places, longest, room, terms.width)  # type: ignore[arg-type]


def allows_transformer(engine: BeamEngine, use: Use) -> Why:
    return None if type(engine.model) is Transformer else "it supports only the Transformer"


def allows_recording(batch: BeamBatch, use: Use) -> Why:
    slots, reader = batch.slots, batch.reader
    if isinstance(reader, TransformerRows):  # all that its step changes, it changes by kernels, which are not launched
        sizes = [size_class(number) for number in (*slots.words.shape, *reader.memory[0].shape)]
        compile_ahead(batch.step, batch.device, "beam", describe(reader.model), slots.terms, sizes)
    return "a step of this model makes the host wait for the GPU" if synchronizes(batch.step) else None


ROWS = (
    Row(
        "beam step of the Transformer",
        "regard.decoding.beam_engine:BeamEngine.reader",
        transformer_reader,
        fits=lambda engine, terms, *sizes: known_numbers(next(engine.model.parameters()), terms.width),
        allows=allows_transformer,
        needs=needs_triton,
    ),
    Row(
        "beam's choice by kernels",
        "regard.decoding.beam_engine:StateReader.choose",
        choose_by_kernels,
        fits=lambda reader, slots, logits: known_numbers(logits, slots.terms.width),
        needs=needs_triton,
    ),
    Row(
        "beam step in a CUDA graph",
        "regard.decoding.beam_engine:BeamBatch.run",
        makes=RecordedBeam,
        allows=allows_recording,
        needs=needs_cuda,
    ),
)
