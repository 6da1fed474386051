"""A Transformer translates on a CPU, greedily and with beam 5, beside CTranslate2 with the same weights.

All sources have the same length, with <eos>, and every translation is forced to the same number of tokens, so both
sides do the same work. CTranslate2 gets as many workers as PyTorch has threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.bench.contenders import BenchRow, BenchSetup, Contender, Cost
from regard.bench.training_step import count, random_tokens
from regard.decoding.beam import Beam
from regard.decoding.beam_slots import BeamConfig
from regard.decoding.translate import translate
from regard.runs.recipe import compose
from regard.runs.speed import install
from regard.systems.transformer import Transformer

LENGTH, NEW = 24, 24  # tokens of a source, and of its translation
KINDS = ("float32", "int8")


class RegardTranslations:
    def __init__(self, model: Transformer, sources: list[list[int]], width: int) -> None:
        self.model, self.sources, self.width = model, sources, width
        self.parameters = count(model)
        install(model)

    def __call__(self) -> int:
        found = translate(self.model, self.sources, eos=0, beam=Beam(self.width), min_tokens=NEW, max_tokens=NEW)
        self.written = [best.tokens for best, *_ in found]
        return len(self.written)


class CTranslate2Translations:
    parameters = 0  # it does not say

    def __init__(self, folder: Path, vocabulary: int, sources: list[list[int]], width: int) -> None:
        from regard.exchange.ctranslate2_engine import CTranslate2Engine

        words = symbols(vocabulary)
        self.engine, self.sources = CTranslate2Engine(folder, words, words), sources
        self.terms = BeamConfig(width, eos=0, n_best=1, length_penalty=Beam().length_penalty, min_tokens=NEW)

    def __call__(self) -> int:
        found = self.engine.search(self.sources, [NEW] * len(self.sources), self.terms)
        self.written = [best.tokens for best, *_ in found]
        return len(self.written)


def rows(place: BenchSetup) -> list[BenchRow]:
    here = BenchSetup(torch.device("cpu"), place.size)
    vocabulary, sentences = here.of(10_000, 8000, 100), here.of(256, 64, 3)
    sizes = {"layers": here.of(6, 3, 1), "width": here.of(512, 256, 32), "heads": 4}
    tokens = random_tokens(vocabulary, sentences * LENGTH).reshape(sentences, LENGTH)
    tokens[:, -1] = 0
    sources = tokens.tolist()

    def model() -> Transformer:
        torch.manual_seed(1)
        return Transformer(vocabulary, compose("transformer", None, {"model": sizes}).model).eval()

    converted = convert_once(model, vocabulary)

    def contenders(width: int) -> list[Contender]:
        def peer(kind: str) -> Contender:
            def opened() -> CTranslate2Translations:
                return CTranslate2Translations(converted() / kind, vocabulary, sources, width)

            return Contender(f"CTranslate2, {kind}", opened, needs=["ctranslate2"])

        return [Contender("Regard", lambda: RegardTranslations(model(), sources, width)), *map(peer, KINDS)]

    work = f"{sentences} sources of {LENGTH}, {NEW} new tokens"
    stacks = f"{sizes['layers']}+{sizes['layers']}×{sizes['width']}"
    return [
        BenchRow(
            "translate-cpu",
            here,
            f"{stacks}, {f'beam {width}' if width > 1 else 'greedy'}, {work}",
            contenders(width),
            cost(model(), width, sentences),
            warm_up=1,
            calls=1,
            unit="sentences/s",
        )
        for width in (1, 5)
    ]


def cost(model: Transformer, width: int, sentences: int) -> Cost:
    """The cost of a sentence: it is read once, and its hypotheses take NEW steps."""
    decoder, held = count(model.layers) + count(model.embedding), torch.float32.itemsize
    looks = 4.0 * len(model.layers) * model.settings.width * (LENGTH + NEW / 2)  # QKᵀ and weights × V: across, and back
    caches = 2 * len(model.layers) * model.settings.width * held * (LENGTH + width * NEW / 2)
    return Cost(
        operations=width * NEW * (2.0 * decoder + looks) + 2.0 * count(model.encoder) * LENGTH,
        bytes=NEW * (decoder * held / sentences + caches),
    )


def symbols(vocabulary: int) -> list[str]:
    return ["<eos>", *map(str, range(1, vocabulary))]


def convert_once(model: Callable[[], Transformer], vocabulary: int) -> Callable[[], Path]:
    """A folder with the model in each format, made at the first use: conversion is not timed."""
    folder = TemporaryDirectory(prefix="regard-bench-")

    def converted() -> Path:
        from regard.exchange.ctranslate2_model import save_spec, translator_spec

        for kind in KINDS:
            made = Path(folder.name) / kind
            if not made.exists():
                made.mkdir()
                save_spec(translator_spec(model(), symbols(vocabulary), symbols(vocabulary)), made, kind)
        return Path(folder.name)

    return converted
