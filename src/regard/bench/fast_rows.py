"""The gain of each row of the table of fast code: real work with the row, and the same work without it.

Rows can hide each other: a GPT whose blocks run by hand never calls its attention row. Such rows are left out on both
sides. A row that the work does not use is an error, so no ratio is of two equal things.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from regard.base.errors import RegardError
from regard.bench import gpt2, sizes, translators
from regard.bench.contenders import BenchPlace, BenchRow, Contender, Workload
from regard.bench.counting import RegardScoring
from regard.bench.training_step import LEARNING, RegardTraining, full_windows, random_tokens
from regard.decoding.beam import Beam
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.engine import Engine
from regard.decoding.sampling import Sampling
from regard.decoding.translate import translate
from regard.fast.attention import language_blocks
from regard.fast.table import noting, rows, without
from regard.runs.recipe import Recipe, compose
from regard.runs.speed import install
from regard.systems.catalogue import find, load_class
from regard.systems.translator import BY_CORPUS
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.text.batches.text_batches import Streams

Open = Callable[[BenchPlace], Workload]


# -- the work --------------------------------------------------------------------------------------------------------


def gpt_training(place: BenchPlace) -> Workload:
    texts = place.of(64, 8, 2)
    batches = full_windows(gpt2.vocabulary(place), texts, gpt2.shape(place)["context"])
    training = gpt2.recipe(place, texts).training
    return RegardTraining(gpt2.regard_gpt(place, texts), batches, training, place)


def gpt_generation(place: BenchPlace) -> Workload:
    return gpt2.RegardGeneration(place, place.of(64, 8, 2), place.of(256, 64, 8))


def gpt_drawing(place: BenchPlace) -> Workload:
    return gpt2.RegardGeneration(place, place.of(64, 8, 2), place.of(256, 64, 8), Sampling(top_p=0.9))


def llama_recipe(place: BenchPlace) -> Recipe:
    """GPT-2's shape with a third as many keys as queries."""
    sizes = gpt2.shape(place)
    heads = {"key_value_heads": max(1, sizes["heads"] // 3), "dropout": 0.0}
    training = LEARNING | {"batch_tokens": place.of(64, 8, 2) * sizes["context"]}
    return compose("llama", None, {"model": sizes | heads, "training": training})


def llama_training(place: BenchPlace) -> Workload:
    recipe, words = llama_recipe(place), gpt2.vocabulary(place)
    batches = full_windows(words, place.of(64, 8, 2), gpt2.shape(place)["context"])
    torch.manual_seed(1)
    return RegardTraining(load_class("llama")(words, recipe.model), batches, recipe.training, place)


class LlamaGeneration:
    def __init__(self, place: BenchPlace) -> None:
        torch.manual_seed(1)
        model = load_class("llama")(gpt2.vocabulary(place), llama_recipe(place).model).to(place.device, place.dtype)
        install(model.eval())
        texts, self.new = place.of(64, 8, 2), place.of(256, 64, 8)
        self.prompts = gpt2.prompts(place, texts)
        self.engine = Engine(model, eos=0, rows=texts, install=install)
        self.parameters = sum(weight.numel() for weight in model.parameters())

    def __call__(self) -> int:
        return sum(map(len, self.engine.texts(self.prompts, max_tokens=self.new)))


def language_training(system: str, **model: Any) -> Open:
    def opened(place: BenchPlace) -> Workload:
        width, texts, window, words = (place.of(*sizes) for sizes in ((650, 200, 24), (20, 20, 4), (35, 35, 8), SMALL))
        settings = {"width": width} | model
        training = LEARNING | {"batch_tokens": texts * window, "window": window}
        recipe = compose(system, None, {"model": settings, "training": training})
        batches = Streams(random_tokens(words, texts * window * 200), texts, window, 0)
        torch.manual_seed(1)
        return RegardTraining(load_class(system)(words, recipe.model), batches, recipe.training, place)

    return opened


def pair_training(system: str, **model: Any) -> Open:
    def opened(place: BenchPlace) -> Workload:
        count, length, words = place.of(512, 32, 4), place.of(32, 16, 6), place.of(*SMALL)
        settings = {"width": place.of(512, 128, 32), "dropout": BY_CORPUS} | model
        training = LEARNING | {"batch_tokens": 2 * count * length}
        recipe = compose(system, None, {"model": settings, "training": training})
        pairs = PairBatches(translators.random_pairs(words, 8 * count, length), 2 * count * length, seed=1)
        batches = ShapedPairBatches.of(pairs) if place.device.type == "cuda" else pairs
        torch.manual_seed(1)
        return RegardTraining(load_class(system)(words, recipe.model), batches, recipe.training, place)

    return opened


class Beams:
    """Sources translated with beam 5 by the engine that a run keeps."""

    def __init__(self, system: str, place: BenchPlace) -> None:
        words, self.new = place.of(*SMALL), place.of(32, 16, 6)
        torch.manual_seed(1)
        recipe = compose(system, None, {"model": {"width": place.of(512, 128, 32)}})
        self.model = load_class(system)(words, recipe.model).to(place.device, place.dtype).eval()
        self.parameters = sum(weight.numel() for weight in self.model.parameters())
        self.sources = random_tokens(words, 64 * self.new).reshape(64, self.new)
        self.sources[:, -1] = 0
        install(self.model)
        self.engine = BeamEngine(self.model, install=install)

    def __call__(self) -> int:
        sources, new = self.sources.tolist(), self.new
        found = translate(self.model, sources, eos=0, beam=Beam(5), engine=self.engine, min_tokens=new, max_tokens=new)
        return sum(len(best.tokens) for best, *_ in found)


SMALL = (10_000, 2000, 100)  # words
BY_HAND = ("GPT-2's blocks by hand", "gpt's blocks in few passes", "compiled blocks")
SHORT = ("an encoder of short sources", "a short source's keys", "a decoder of short targets")
TRANSFORMER = pair_training("transformer", norm="post", dropout=0.1)


@dataclass(frozen=True)
class RowTrial:
    """The workload that measures a row, and the rows that would hide it."""

    work: str
    open: Open
    hidden_by: tuple[str, ...] = ()
    on_cpu: bool = True  # False: on a CPU nobody gets it unasked


def recurrent(system: str, *hidden_by: str) -> RowTrial:
    return RowTrial(f"{system} training, 2 layers", language_training(system, layers=2, dropout=0.0), hidden_by)


def sized(system: str) -> RowTrial:
    """The default training of size medium."""

    def opened(place: BenchPlace) -> Workload:
        return sizes.regard(sizes.prepared(find(system), place.of("medium", "small", "tiny"), place), place)

    return RowTrial(f"{system} training, size medium", opened)


def gpt_trained(*hidden_by: str) -> RowTrial:
    return RowTrial("GPT-2's training step", gpt_training, hidden_by)


def llama_trained(*hidden_by: str) -> RowTrial:
    return RowTrial("a llama's training step, in GPT-2's shape", llama_training, hidden_by)


def transformer_trained(*hidden_by: str) -> RowTrial:
    return RowTrial("Transformer training on pairs", TRANSFORMER, hidden_by)


def gpt_written(*hidden_by: str) -> RowTrial:
    return RowTrial("a GPT-2 writes", gpt_generation, hidden_by)


def beams(system: str, *hidden_by: str) -> RowTrial:
    return RowTrial(f"{system}, beam 5", lambda place: Beams(system, place), hidden_by)


BAHDANAU = RowTrial("Bahdanau's training on pairs", pair_training("bahdanau"))
TRIALS: dict[str, RowTrial] = {
    "dropout with few random numbers": transformer_trained(),
    "causal attention without a mask": gpt_trained(*BY_HAND),
    "one query to a cache, on a CPU": gpt_written("GPT step on a CPU"),
    "grouped queries without a mask": llama_trained("llama's blocks in few passes", "compiled blocks"),
    "one group of queries to a cache, on a CPU": RowTrial("a llama writes", LlamaGeneration),
    **{name: transformer_trained() for name in SHORT},
    "GPT-2's blocks by hand": gpt_trained(),
    **{f"{system}'s blocks in few passes": sized(system) for system in language_blocks.PLACES},
    "persistent Elman": recurrent("rnn"),
    "persistent LSTM": recurrent("lstm"),
    "persistent GRU": recurrent("gru"),
    "LSTM chain": recurrent("lstm", "persistent LSTM"),
    "Elman with its gradient written out": recurrent("rnn"),
    "GRU with its gradient written out": recurrent("gru"),
    "recurrent encoder with its gradient written out": BAHDANAU,
    "fused Elman": recurrent("rnn", "persistent Elman", "Elman with its gradient written out"),
    "fused LSTM": recurrent("lstm", "persistent LSTM", "LSTM chain"),
    "fused GRU": recurrent("gru", "persistent GRU", "GRU with its gradient written out"),
    "minimal GRU in one kernel": recurrent("mingru"),
    "fused recurrent encoder": RowTrial("seq2seq training on pairs", pair_training("seq2seq")),
    "Bahdanau's memory times W_c": BAHDANAU,
    "Bahdanau's loop with its gradient written out": BAHDANAU,
    "grams by hashing": RowTrial(
        "a 5-gram scores text", lambda place: RegardScoring(), ("losses of a text by n-grams",)
    ),
    "losses of a text by n-grams": RowTrial("a 5-gram scores text", lambda place: RegardScoring()),
    "next token by one kernel": RowTrial("a GPT-2 draws with top p 0.9", gpt_drawing),
    "GPT step on a CPU": gpt_written(),
    "GPT step in few kernels": gpt_written(),
    "steps in a CUDA graph": gpt_written(),
    "beam step of the Transformer": beams("transformer"),
    "beam's choice by kernels": beams("bahdanau"),
    "beam step in a CUDA graph": beams("bahdanau"),
    "loss of text without its logits": gpt_trained(),
    "loss of pairs without their logits": transformer_trained(),
    "word vectors, their gradients by word": recurrent("lstm"),
    "training step in CUDA graphs": recurrent("lstm"),
    "compiled blocks": RowTrial("GPT-2's training step", gpt_training, BY_HAND[:2], on_cpu=False),
}


# -- its benchmark ---------------------------------------------------------------------------------------------------


class Without:
    """Work that does without some rows of the table, from the beginning."""

    def __init__(self, open: Callable[[], Workload], names: tuple[str, ...]) -> None:
        self.names = names
        with without(*names):
            self.work = open()
        self.parameters = self.work.parameters

    def __call__(self) -> int:
        with without(*self.names):  # engines install when they are first used
            return self.work()


def fast_rows(place: BenchPlace) -> list[BenchRow]:
    """A row for each that this machine can run."""
    here = [row.name for row in rows() if row.needs(place.device) is None]
    return [_row(name, TRIALS[name], place) for name in here if TRIALS[name].on_cpu or place.device.type == "cuda"]


def _row(name: str, trial: RowTrial, place: BenchPlace) -> BenchRow:
    def opened() -> Workload:
        return trial.open(place)

    def regard() -> Workload:
        with noting() as ran:
            Without(opened, trial.hidden_by)()
        if name not in ran:
            raise RegardError(f"{trial.work} does not use {name!r}: it ran {', '.join(sorted(ran)) or 'no row'}.")
        return Without(opened, trial.hidden_by)

    def as_written() -> Workload:
        return Without(opened, (*trial.hidden_by, name))

    return BenchRow(
        name,
        place,
        trial.work,
        [Contender("with this row", regard), Contender("without this row", as_written)],
        None,
        warm_up=place.of(8, 1, 1),
        calls=place.of(8, 1, 1),
    )
