"""Every neural system at every size: the training step of the default command on real text, beside a plain loop.

The plain loop has the same net in PyTorch's own words: bf16 autocast, fused AdamW, the gradient's norm clipped, and the
whole step in one CUDA graph, which is the fastest plain loop where launching takes longer than computing. Nets that a
graph cannot record run without one.

Its net is a page of its own for GPT (plain_gpt.py); recurrent layers are torch.nn's; all other nets are Regard's as
written, attention by PyTorch's causal kernel. The text is WikiText-2 and the pairs are Multi30k, if they are in
$REGARD_DATA or the cache, else what is built in; a classifier tells English from French. Each row trains as
`regard train SYSTEM --size SIZE` does. At size large a plain step takes its batch in parts, since all logits at once do
not fit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.bench.contenders import BenchPlace, BenchRow, Contender, Cost
from regard.bench.demo_systems import QUICK
from regard.bench.plain_gpt import PlainGPT
from regard.bench.training_step import PlainTraining, Pool, RegardTraining
from regard.corpora.builtin import MAX_PHRASE_WORDS, PHRASES
from regard.corpora.cached_phrasebook import cached_phrasebook
from regard.corpora.fetch import data_folders
from regard.fast.table import rows as fast_rows
from regard.fast.table import without
from regard.layers.recurrent import Recurrent
from regard.layers.state import Span, State
from regard.report.progress import hushed
from regard.runs.lists import as_file
from regard.runs.prepare import Prepared, prepare
from regard.runs.recipe import compose
from regard.runs.speed import install
from regard.systems.catalogue import SYSTEMS, System
from regard.systems.gpt import GPT, Settings
from regard.systems.model import Model, Stack
from regard.systems.sizes import SIZES
from regard.training.loop import Batches
from regard.training.objective import TensorBatch, real_targets

CORPORA = {"language model": "wikitext-2", "translation": "multi30k"}
PLAIN_ROWS = ("causal attention without a mask", "grouped queries without a mask")  # that a plain page has, too
PACKED = ("seq2seq", "bahdanau", "classifier")  # a graph cannot record them: they pack sources by length on the host
PARTS = 4  # of a plain step at size large
TURN = 1e14  # floating-point operations of a turn, at most MAX_CALLS steps
MAX_CALLS, PAIR_SHAPES = (
    100,
    8,
)  # batches of pairs are these, over and over: a graph is recorded for each of their shapes


def rows(place: BenchPlace) -> Iterator[BenchRow]:
    """One after the other, since each opens its corpus and builds its model."""
    sizes = SIZES if place.size == "full" else SIZES[:2] if place.size == "small" else SIZES[:1]
    for system in SYSTEMS:
        for size in sizes if system.trained == "gradient" else ():
            yield row(system, size, place)


def prepared(system: System, size: str, place: BenchPlace, training: Mapping[str, Any] | None = None) -> Prepared:
    """Corpus, tokens and model of `regard train SYSTEM --size SIZE`, or with other settings of training."""
    settings: dict[str, dict[str, Any]] = {"training": {"device": str(place.device), **(training or {})}}
    corpus = CORPORA.get(system.task, "")
    if place.size == "quick":
        settings |= QUICK if system.task == "language model" else {}
    elif corpus and any((folder / corpus).is_dir() for folder in data_folders()):
        settings["data"] = {"corpus": corpus}
    with hushed():
        if system.task == "classification":
            settings["data"] = {"corpus": as_file(languages())}
        return prepare(compose(system.name, size, settings))


def row(system: System, size: str, place: BenchPlace, settings: Mapping[str, Any] | None = None) -> BenchRow:
    ready = prepared(system, size, place, settings)
    parts = PARTS if size == "large" and system.task == "language model" else 1
    training = ready.recipe.training
    cost = training.batch_tokens * ready.model.flops_per_token
    calls = max(5, min(MAX_CALLS, round(TURN / cost)))
    graph = " in one CUDA graph" * (place.device.type == "cuda" and system.name not in PACKED)
    words = ready.data.tokenizers.target.vocabulary
    return BenchRow(
        f"{system.name} {size}",
        place,
        f"{training.batch_tokens} tokens a step, {words} words, {place.precision}",
        [
            Contender("Regard", partial(regard, ready, place)),
            Contender(f"plain PyTorch{graph}", partial(plain, ready, place, captured=bool(graph), parts=parts)),
        ],
        Cost(operations=ready.model.flops_per_token),
        warm_up=place.of(3 * PAIR_SHAPES if training.on_pairs else 12, 2, 1),
        calls=place.of(2 * PAIR_SHAPES if training.on_pairs else calls, 5, 1),
    )


def languages() -> list[tuple[str, str]]:
    """Sentences of the phrasebook and their language."""
    splits = cached_phrasebook(PHRASES, MAX_PHRASE_WORDS)
    pairs = [pair for split in splits.values() for pair in split]
    return [labelled for pair in pairs for labelled in ((pair.source, "English"), (pair.target, "French"))]


def regard(ready: Prepared, place: BenchPlace) -> RegardTraining:
    model = copy.deepcopy(ready.model).to(place.device)
    return RegardTraining(model, batches_of(ready, model), ready.recipe.training, place)


def batches_of(ready: Prepared, model: Model) -> Batches:
    batches = ready.data.batches(ready.recipe, model)
    return Pool([batches.batch(step) for step in range(PAIR_SHAPES)]) if ready.recipe.training.on_pairs else batches


def plain(ready: Prepared, place: BenchPlace, *, captured: bool = False, parts: int = 1) -> PlainTraining:
    model, training = copy.deepcopy(ready.model).to(place.device), ready.recipe.training
    batches = batches_of(ready, model)
    if type(model) is GPT and _is_a_page(model.settings):
        page = plain_page(model)
        return PlainTraining(page, partial(_page_loss, page), batches, place, captured=captured, parts=parts)
    loss = partial(_loss, as_plain(model), float(getattr(training, "label_smoothing", 0.0)), training.carries)
    begin = (lambda rows: model.begin(rows=rows)) if training.carries else None
    return PlainTraining(model, loss, batches, place, begin=begin, captured=captured, parts=1 if begin else parts)


def _is_a_page(settings: Settings) -> bool:
    """True if the settings are those that `PlainGPT` has."""
    own = {name: getattr(settings, name) for name in ("layers", "width", "heads", "context", "dropout")}
    return settings == Settings(**own)


def plain_page(model: GPT) -> PlainGPT:
    own = {name: getattr(model.settings, name) for name in ("layers", "width", "heads", "context", "dropout")}
    return PlainGPT(model.vocabulary, **own).to(model.device)


def _page_loss(page: PlainGPT, batch: TensorBatch, state: State | None) -> tuple[Tensor, None]:
    return page(batch.tokens, batch.targets), None


def as_plain(model: Model) -> Model:
    """The net with recurrent layers by torch.nn's modules, and attention by PyTorch's causal kernel."""
    with without(*(fast.name for fast in fast_rows() if fast.name not in PLAIN_ROWS)):
        install(model, training=True)
    for part in model.modules():
        if isinstance(part, Recurrent):
            part.forward = partial(_by_torch, part)  # type: ignore[method-assign]
    return model


def _by_torch(layer: Recurrent, x: Tensor, state: State, span: Span) -> tuple[Tensor, State]:
    given: Any = tuple(part[None] for part in state.values())
    hidden, after = layer.fused(x, given if len(given) > 1 else given[0])
    after = after if isinstance(after, tuple) else (after,)
    return hidden, {name: part[0] for name, part in zip(state, after, strict=True)}


def _loss(
    model: Model, smoothing: float, carries: bool, batch: TensorBatch, state: State | None
) -> tuple[Tensor, State | None]:
    """The mean −log P(target) of real targets, and the state after them."""
    targets = batch.targets
    if batch.source is not None:
        state = model.begin(batch.source, batch.source_lengths)
        targets = targets.masked_fill(~real_targets(batch), -100)
    elif not carries and isinstance(model, Stack):
        state = model.without_cache(len(targets))
    logits, after = model(batch.tokens, state)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), label_smoothing=smoothing)
    return loss, after if carries else None
