"""The encoder-decoder Transformer, 6 + 6 blocks of width 512 on a GPU: training on pairs, and beam search.

The peer is Hugging Face's Marian of the same shape: post-norm, ReLU, sinusoids, one table of word vectors for source,
target and prediction. All sentences have the same length, with <eos>, and every translation is forced to the same
number of tokens, so both sides do the same work.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.bench.contenders import BenchRow, BenchSetup, Contender, Cost
from regard.bench.training_step import LEARNING, PlainTraining, RegardTraining, count, random_tokens
from regard.decoding.beam import Beam
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.translate import translate
from regard.layers.state import State
from regard.runs.recipe import Recipe, compose
from regard.runs.speed import install
from regard.systems.transformer import Transformer
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.text.tokenizers.pair_tokens import TokenPairs
from regard.training.objective import TensorBatch

DROPOUT, SMOOTHING = 0.1, 0.1
WIDTH = 5  # of the beam


def shape(place: BenchSetup) -> dict[str, int]:
    return {
        "layers": place.of(6, 2, 1),
        "width": place.of(512, 128, 32),
        "heads": 4,
        "feedforward": place.of(1024, 256, 64),
    }


def vocabulary(place: BenchSetup) -> int:
    return place.of(10_000, 2000, 100)


def words(place: BenchSetup) -> str:
    sizes = shape(place)
    return f"{sizes['layers']}+{sizes['layers']}×{sizes['width']}"


def recipe(place: BenchSetup, batch_tokens: int) -> Recipe:
    training = LEARNING | {"batch_tokens": batch_tokens, "label_smoothing": SMOOTHING}
    return compose(
        "transformer", None, {"model": shape(place) | {"norm": "post", "dropout": DROPOUT}, "training": training}
    )


def regard_transformer(place: BenchSetup) -> Transformer:
    torch.manual_seed(1)
    return Transformer(vocabulary(place), recipe(place, 4096).model)


def hugging_face_marian(place: BenchSetup) -> Any:
    transformers: Any = import_module("transformers")
    sizes = shape(place)
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in {
            "layers": sizes["layers"],
            "ffn_dim": sizes["feedforward"],
            "attention_heads": sizes["heads"],
        }.items()
    }
    torch.manual_seed(1)
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=vocabulary(place),
            d_model=sizes["width"],
            **sides,
            activation_function="relu",
            dropout=DROPOUT,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            max_position_embeddings=128,
            pad_token_id=0,
            eos_token_id=0,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
        )
    )


# -- training --------------------------------------------------------------------------------------------------------


def training_rows(place: BenchSetup) -> list[BenchRow]:
    rows, length = place.of(512, 64, 4), place.of(32, 16, 6)
    pairs = PairBatches(random_pairs(vocabulary(place), 8 * rows, length), 2 * rows * length, seed=1)
    batches = ShapedPairBatches.of(pairs) if place.device.type == "cuda" else pairs  # as `regard train` has them

    def regard() -> RegardTraining:
        return RegardTraining(regard_transformer(place), batches, recipe(place, 2 * rows * length).training, place)

    def hugging_face() -> PlainTraining:
        model = hugging_face_marian(place)

        def loss(batch: TensorBatch, state: State | None) -> tuple[Tensor, None]:
            assert batch.source is not None
            real = torch.ones_like(batch.source)
            found = model(input_ids=batch.source, attention_mask=real, decoder_input_ids=batch.tokens, use_cache=False)
            logits = found.logits.flatten(0, 1).float()
            return F.cross_entropy(logits, batch.targets.flatten(), label_smoothing=SMOOTHING), None

        return PlainTraining(model, loss, batches, place)

    model = regard_transformer(place)
    attention = 12.0 * 3 * shape(place)["layers"] * shape(place)["width"] * length  # a source's, a target's, and across
    weights = 6.0 * sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    return [
        BenchRow(
            "translate-train",
            place,
            f"{words(place)}, {rows} pairs of {length}+{length} tokens, {place.precision}",
            [
                Contender("Regard", regard),
                Contender("transformers Marian", hugging_face, needs=["transformers"]),
            ],
            Cost(operations=weights + attention),
            warm_up=place.of(5, 4, 1),
            calls=place.of(20, 10, 1),
            unit="target tokens/s",
        )
    ]


def random_pairs(vocabulary: int, pairs: int, length: int) -> TokenPairs:
    """Sides of `length` tokens each, the last of which is <eos>."""
    source, target = random_tokens(vocabulary, 2 * pairs * length).reshape(2, pairs, length)
    source[:, -1] = target[:, -1] = 0
    offsets = np.arange(pairs + 1, dtype=np.int64) * length
    return TokenPairs(
        source=source.ravel(),
        source_offsets=offsets,
        target=target.ravel(),
        target_offsets=offsets,
        kept=np.arange(pairs),
        dropped={},
        truncated=0,
        longest=length - 1,
        characters=0,
        unknown=0,
    )


# -- beam search -----------------------------------------------------------------------------------------------------


class RegardBeam:
    def __init__(self, place: BenchSetup, sources: np.ndarray, new: int) -> None:
        self.model = regard_transformer(place).to(place.device, place.dtype)
        self.sources, self.new, self.parameters = sources.tolist(), new, count(self.model)
        self.together = WIDTH * len(self.sources) * len(self.sources[0])
        install(self.model)
        self.engine = None  # kept on a GPU, so that warm-up calls record its step
        if place.device.type == "cuda":
            self.engine = BeamEngine(self.model, batch_tokens=self.together, install=install)

    def __call__(self) -> int:
        found = translate(
            self.model,
            self.sources,
            eos=0,
            beam=Beam(WIDTH),
            min_tokens=self.new,
            max_tokens=self.new,
            batch_tokens=self.together,
            engine=self.engine,
        )
        self.written = [best.tokens for best, *_ in found]
        return sum(map(len, self.written))


class HuggingFaceBeam:
    def __init__(self, place: BenchSetup, sources: np.ndarray, new: int) -> None:
        self.model = hugging_face_marian(place).to(place.device, place.dtype).eval()
        self.sources = torch.from_numpy(sources.astype(np.int64)).to(place.device)
        self.new, self.parameters = new, count(self.model)

    def __call__(self) -> int:
        found = self.model.generate(
            input_ids=self.sources,
            attention_mask=torch.ones_like(self.sources),
            num_beams=WIDTH,
            do_sample=False,
            min_new_tokens=self.new,
            max_new_tokens=self.new,
        )
        self.written = found[:, 1:].tolist()  # without the boundary token
        return sum(map(len, self.written))


def beam_rows(place: BenchSetup) -> list[BenchRow]:
    count_, length, new = place.of(512, 16, 3), place.of(32, 16, 6), place.of(64, 16, 6)
    sources = random_tokens(vocabulary(place), count_ * length).reshape(count_, length)
    sources[:, -1] = 0
    return [
        BenchRow(
            "translate-beam",
            place,
            f"{words(place)}, beam {WIDTH}, {count_} sources of {length}, {new} new tokens, {place.precision}",
            [
                Contender("Regard", lambda: RegardBeam(place, sources, new)),
                Contender("transformers Marian", lambda: HuggingFaceBeam(place, sources, new), needs=["transformers"]),
            ],
            beam_cost(place, count_, length, new),
            warm_up=place.of(2, 1, 1),
            calls=1,
        )
    ]


def beam_cost(place: BenchSetup, sources: int, length: int, new: int) -> Cost:
    """The cost of a written token: one step of all hypotheses of a source, and a share of reading the source."""
    model, width, held = regard_transformer(place), shape(place)["width"], place.dtype.itemsize
    decoder = count(model.layers) + count(model.embedding)
    looks = 4.0 * len(model.layers) * width * (length + new / 2)  # QKᵀ and weights × V: across, and back
    caches = 2 * len(model.layers) * width * held * (length + WIDTH * new / 2)  # hypotheses share what they read
    return Cost(
        operations=WIDTH * (2.0 * decoder + looks) + 2.0 * count(model.encoder) * length / new,
        bytes=decoder * held / sources + caches,
    )
