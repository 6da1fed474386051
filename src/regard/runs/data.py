"""What a run learns from: a corpus, cut into tokens, as batches and as something to be validated on.

Running text, sentence pairs and labelled lines differ in how they are opened, cut and batched; from there on training
is the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.decoding.beam import GREEDY_BEAM
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.translate import translate
from regard.evaluation.accuracy import label_log_probabilities
from regard.evaluation.bleu import bleu
from regard.evaluation.scoring import pair_losses
from regard.evaluation.scripts import bleu_cut
from regard.layers.state import State
from regard.report.progress import say
from regard.runs.back_translation import back_translated
from regard.runs.data_lookup import corpus_of, pairs_asked_for, pairs_of, text_asked_for, tokens_of
from regard.runs.recipe import Recipe
from regard.runs.resolve import CorpusFacts, resolve, resolve_device, resolve_dropout
from regard.runs.speed import install, recordable
from regard.runs.store.folder import (
    Tokenizers,
    forbidden_tokens,
    has_source,
    labels,
    open_tokenizers,
    read_facts,
    unseen_bytes,
)
from regard.runs.translation_run import both_sides
from regard.systems.model import Model
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.text.batches.text_batches import Streams, Windows
from regard.text.cached_text import kept_tokenizer
from regard.text.corpus import Corpus, is_named
from regard.text.pairs import PairCorpus, Pairs, weighted
from regard.text.readers.labels import encode_labelled, label_numbers, learn_labels
from regard.text.readers.sources import digest_of
from regard.text.tokenizers.bpe_dropout import DropoutPairs
from regard.text.tokenizers.pair_tokenizers import train_tokenizers, why_this_vocabulary
from regard.text.tokenizers.pair_tokens import TokenPairs, encode_pairs, kept_token_pairs
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray
from regard.training.hyperparameters import Learning
from regard.training.loop import Batches
from regard.training.validation import PairValidation, TextValidation, Validation, Verdict

VALIDATION_TOKENS = 32_768  # sources at once × the longest one's tokens: what is held beside a training


class Data(ABC):
    """Everything about its data that a training needs; the recipe has what was left to choose filled in."""

    recipe: Recipe
    corpus: Corpus | PairCorpus
    tokenizers: Tokenizers
    translates: ClassVar[bool] = False

    @property
    @abstractmethod
    def origin(self) -> dict[str, Any]:
        """What run.json says of it: name, checksum, notes."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """How much there is, and how it is cut."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens that are predicted in one reading of the training text."""

    @property
    def read(self) -> int:
        """Tokens that are read in one epoch, as training.batch_tokens counts them."""
        return self.tokens

    @property
    @abstractmethod
    def longest(self) -> int:
        """The fewest tokens that a batch must hold."""

    def resolved(self) -> tuple[Self, list[str]]:
        """The same data with every setting of its recipe decided, and what the log should say of that."""
        if not isinstance(self.recipe.training, Learning):
            return self, []
        recipe, notes = resolve(self.recipe, CorpusFacts(self.read, self.longest, self.translates))
        return replace(self, recipe=recipe), notes  # type: ignore[type-var]  # every kind is a dataclass

    @abstractmethod
    def batches(self, model: Model) -> Batches: ...

    @abstractmethod
    def validation(self, model: Model) -> Validation: ...


def read_data(recipe: Recipe, tokenizers: Tokenizers | None = None) -> Data:
    """Open what the recipe names; with the tokenizers of the run that it starts from, or those given, or new ones."""
    if recipe.start is not None:
        tokenizers = open_tokenizers(Path(recipe.start.run), recipe)
    if labels(recipe):
        return _read_labels(recipe, tokenizers)
    return (_read_pairs if has_source(recipe) else _read_text)(recipe, tokenizers)


def data_of(folder: Path, recipe: Recipe) -> Data:
    """What a run was trained on, unchanged since."""
    tokenizers = open_tokenizers(folder, recipe)
    if has_source(recipe):
        kind = LabelData if labels(recipe) else PairData
        data = kind.cut(recipe, pairs_of(folder, recipe), tokenizers)
        if data.made_up != read_facts(folder)["corpus"].get("made_up", ""):
            raise RegardError(
                f"{recipe.data.monolingual} or {recipe.data.translator} has changed since {folder} was trained with "
                f"them; put them back, or start anew with --from {folder}."
            )
        return data
    return TextData.cut(recipe, corpus_of(folder, recipe), tokenizers)


# -- running text ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextData(Data):
    recipe: Recipe
    corpus: Corpus
    tokenizers: Tokenizers
    arrays: Mapping[str, TokenArray]

    @property
    def longest(self) -> int:
        return self.recipe.training.window * self.recipe.training.accumulate

    @classmethod
    def cut(cls, recipe: Recipe, corpus: Corpus, tokenizers: Tokenizers) -> TextData:
        arrays = {split: tokens_of(corpus, tokenizers.target, split) for split in ("train", "valid")}
        check_tokens(corpus, arrays)
        return cls(recipe, corpus, tokenizers, arrays)

    @property
    def origin(self) -> dict[str, Any]:
        return origin_of(self.corpus) | {"unseen_bytes": unseen_bytes(self.tokenizers.target, self.arrays["train"].ids)}

    @property
    def sentence(self) -> str:
        tokenizer = self.tokenizers.target
        return (
            f"{self.corpus.name}: {pluralize(self.tokens, 'training token')}, "
            f"{tokenizer.kind} vocabulary of {group_digits(tokenizer.vocabulary)}"
        )

    @property
    def tokens(self) -> int:
        return len(self.arrays["train"].ids)

    def batches(self, model: Model) -> Batches:
        settings, ids, eos = self.recipe.training, self.arrays["train"].ids, self.tokenizers.target.eos
        rows = min(settings.rows, max(1, len(ids) // settings.window))  # a short text fills fewer rows
        if settings.batches == "windows":
            return Windows(ids, rows, settings.window, eos, settings.seed)
        if grows(model):
            raise RegardError(f"The state of {self.recipe.system} grows with the text: use training.batches windows.")
        return Streams(ids, rows, settings.window, eos)

    def validation(self, model: Model) -> Validation:
        limit = self.recipe.training.validation_tokens or None
        return TextValidation(self.arrays["valid"].ids[:limit], self.tokenizers.target.eos)


def _read_text(recipe: Recipe, tokenizers: Tokenizers | None) -> TextData:
    corpus, tokenizer, recipe = read_text(recipe, tokenizers.target if tokenizers is not None else None)
    torch.set_num_threads(recipe.training.threads)
    return TextData.cut(recipe, corpus, Tokenizers(tokenizer))


def read_text(recipe: Recipe, tokenizer: Tokenizer | None = None) -> tuple[Corpus, Tokenizer, Recipe]:
    """The corpus, its tokenizer, and the recipe with what was left to choose filled in."""
    data = recipe.data
    corpus = text_asked_for(data)
    for note in corpus.notes:
        say(note)
    if tokenizer is None:
        kind = corpus.suggested_tokenizer if data.tokenizer == "auto" else data.tokenizer
        normalise = data.normalise if data.normalise != "auto" else "none" if kind in ("bpe", "byte") else "nfc"
        train = corpus.splits["train"]
        tokenizer = kept_tokenizer(
            train,
            train.checksum(),
            train.size,
            kind,
            data.vocabulary or None,
            normalise=normalise,
            pretokenised=corpus.pretokenised,
        )
    resolved = _resolved_data(recipe, corpus, tokenizer)
    return corpus, tokenizer, recipe.replace(data=resolved, training=resolve_device(recipe.training))


def check_tokens(corpus: Corpus, tokens: Mapping[str, TokenArray]) -> None:
    for split, array in tokens.items():
        if len(array.ids) < 2:
            raise RegardError(f"The {split} split of {corpus.name} has no text to learn from; give it more lines.")


def grows(model: Model) -> bool:
    """Does the state get larger with every token read (keys and values), so that it cannot be carried forever?"""

    def empty(part: State) -> bool:
        return any(empty(leaf) if isinstance(leaf, dict) else leaf.numel() == 0 for leaf in part.values())

    return empty(model.begin(rows=1)["past"])


# -- sentence pairs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairData(Data):
    recipe: Recipe
    corpus: PairCorpus
    tokenizers: Tokenizers
    texts: Pairs  # what `train` was cut from
    train: TokenPairs
    valid: TokenPairs
    references: Pairs  # what `valid` was cut from
    made_up: str = ""  # the checksum of back-translated pairs, where there are any
    translates = True
    encode = staticmethod(encode_pairs)

    @classmethod
    def cut(cls, recipe: Recipe, corpus: PairCorpus, tokenizers: Tokenizers) -> Self:
        assert tokenizers.source is not None
        data, limit, held_out = recipe.data, recipe.training.validation_pairs, corpus.splits["valid"]
        train = corpus.splits["train"]
        made_up = ""
        if data.monolingual:
            more = back_translated(recipe, corpus)
            made_up = more.checksum()
            train = Pairs([*train.sources, *more.sources], [*train.targets, *more.targets])
        valid = held_out.take(range(min(limit or len(held_out), len(held_out))))
        cut: dict[str, TokenPairs] = {}
        for split, pairs in (("train", train), ("valid", valid)):
            found = kept_token_pairs(
                cls.encode, pairs, tokenizers.source, tokenizers.target, longest=data.longest, truncate=data.truncate
            )
            for note in found.sentences:
                say(f"{split}: {note}")
            if not len(found):
                raise RegardError(
                    f"The {split} split of {corpus.name} has no pairs to learn from, none with two sides of at most "
                    f"{data.longest} tokens (data.longest); give it more."
                )
            cut[split] = found
        references = valid.take(cut["valid"].kept)
        return cls(recipe, corpus, tokenizers, train, cut["train"], cut["valid"], references, made_up)

    @property
    def origin(self) -> dict[str, Any]:
        unseen = {"unseen_bytes": unseen_bytes(self.tokenizers.target, self.train.target)}
        return origin_of(self.corpus) | unseen | ({"made_up": self.made_up} if self.made_up else {})

    @property
    def sentence(self) -> str:
        assert self.tokenizers.source is not None
        kind, target, source = self.tokenizers.target.kind, self.tokenizers.target, self.tokenizers.source
        sizes = group_digits(target.vocabulary) if source is target else f"{source.vocabulary} and {target.vocabulary}"
        joint = "joint " if source is target else ""
        return f"{self.corpus.name}: {pluralize(len(self.train), 'training pair')}, {joint}{kind} vocabulary of {sizes}"

    @property
    def tokens(self) -> int:
        return len(self.train.target)

    @property
    def read(self) -> int:
        return len(self.train.source) + len(self.train.target)

    @property
    def longest(self) -> int:
        return int((self.train.source_lengths + self.train.target_lengths).max())

    def batches(self, model: Model) -> Batches:
        settings, rate = self.recipe.training, self.recipe.data.bpe_dropout
        self._check_context(model)
        batches = PairBatches(self.train, settings.batch_tokens, settings.seed)
        if rate:
            source, target = self.tokenizers.source, self.tokenizers.target
            assert source is not None
            anew = DropoutPairs(self.texts, self.train, source, target, rate, settings.seed)
            batches = PairBatches(self.train, settings.batch_tokens, settings.seed, epochs=anew.epoch)
        if settings.capture == "off" or model.device.type != "cuda" or not recordable(model):
            return batches
        limit = settings.limit
        return ShapedPairBatches.of(batches, limit.amount if limit.unit == "seconds" else math.inf)

    def _check_context(self, model: Model) -> None:
        """Positions that end must reach to the end of every pair: better known now than at the first long batch."""
        for side, most in (("source", getattr(model, "source_context", None)), ("target", model.context)):
            longest = max(int(getattr(pairs, f"{side}_lengths").max()) for pairs in (self.train, self.valid))
            if most is not None and longest > most:
                raise RegardError(
                    f"A {side} has {longest} tokens with its <eos>, and positions end at model.context {most}: raise "
                    f"that, or leave longer pairs out with data.longest {most - 1}."
                )

    def validation(self, model: Model) -> Validation:
        eos, target = self.tokenizers.target.eos, self.tokenizers.target
        forbidden = forbidden_tokens(target, unseen_bytes(target, self.train.target), one_line=True)
        sources, targets = both_sides(self.valid)
        cut = bleu_cut(self.references.targets)
        by_bleu = self.recipe.training.select == "bleu"
        if by_bleu:
            say(f"BLEU's tokenizer: {cut.why}")

        def loss(model: Model) -> float:
            losses = pair_losses(model, sources, targets, eos)
            return float(sum(loss.sum() for loss in losses)) / sum(map(len, losses))

        @cache
        def engine() -> BeamEngine | None:
            """One for all validations: it reads the weights where they are, and records its steps once. Not for weights
            that are shared out over processes."""
            whole = not any(hasattr(weight, "full_tensor") for weight in model.parameters())
            if model.device.type != "cuda" or not whole:
                return None
            return BeamEngine(model, batch_tokens=VALIDATION_TOKENS, install=install)

        def quality(model: Model) -> float:
            kind = model.device.type
            with torch.autocast(kind, enabled=engine() is None and torch.is_autocast_enabled(kind)):
                found = translate(model, sources, eos=eos, beam=GREEDY_BEAM, forbidden=forbidden, engine=engine())
                written = [target.decode(best.text_tokens).strip() for best, *_ in found]
            return bleu(written, self.references.targets, cut.tokenizer)

        return PairValidation(loss, quality if by_bleu else None)


def _read_pairs(recipe: Recipe, tokenizers: Tokenizers | None) -> PairData:
    data = recipe.data
    corpus = pairs_asked_for(data)
    for note in corpus.notes:
        say(note)
    if tokenizers is None:
        normalise = "nfc" if data.normalise == "auto" else data.normalise
        source, target = train_tokenizers(corpus, data.tokenizer, data.vocabulary, normalise, data.joint)
        say(why_this_vocabulary(corpus, (source, target), data.vocabulary))
        tokenizers = Tokenizers(target, source)
    resolved = _resolved_data(recipe, corpus, tokenizers.target) | {"joint": tokenizers.source is tokenizers.target}
    resolved |= {name: absolute(getattr(data, name)) for name in ("monolingual", "translator")}
    resolved["also"] = ",".join(f"{absolute(path)}:{weight:g}" for path, weight in weighted(data.also))
    recipe = recipe.replace(data=resolved, training=resolve_device(recipe.training))
    recipe, notes = resolve_dropout(recipe, len(corpus.splits["train"]))
    for note in notes:
        say(note)
    torch.set_num_threads(recipe.training.threads)
    return PairData.cut(recipe, corpus, tokenizers)


# -- labelled lines --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelData(PairData):
    """Pairs whose target is a label: one symbol, which is all that is predicted."""

    translates = False
    encode = staticmethod(encode_labelled)

    @property
    def sentence(self) -> str:
        assert self.tokenizers.source is not None
        source, count = self.tokenizers.source, len(label_numbers(self.tokenizers.target))
        return (
            f"{self.corpus.name}: {pluralize(len(self.train), 'labelled training line')}, {pluralize(count, 'label')}, "
            f"{source.kind} vocabulary of {group_digits(source.vocabulary)}"
        )

    def validation(self, model: Model) -> Validation:
        eos, specials = self.tokenizers.target.eos, self.tokenizers.target.specials
        sources, truth = both_sides(self.valid)[0], self.valid.target.astype(np.int64)

        def judge(model: Model) -> Verdict:
            found = np.stack([*label_log_probabilities(model, sources, eos=eos)])  # [lines, symbols]
            loss = -found[np.arange(len(truth)), truth].mean()
            found[:, list(specials)] = -np.inf
            return Verdict(float(loss), {"accuracy": float((found.argmax(1) == truth).mean())})

        return judge


def _read_labels(recipe: Recipe, tokenizers: Tokenizers | None) -> LabelData:
    data = recipe.data
    for key, given in {"monolingual": data.monolingual, "bpe_dropout": data.bpe_dropout}.items():
        if given:
            raise RegardError(f"data.{key} is for translation, not for labels: leave it out.")
    if recipe.training.select == "bleu":
        raise RegardError("Labels have no BLEU: leave training.select at loss.")
    corpus = pairs_asked_for(data)
    for note in corpus.notes:
        say(note)
    if tokenizers is None:
        train = corpus.splits["train"]
        source = kept_tokenizer(
            train.sources,
            digest_of(train.checksum(), "source"),
            train.characters,
            corpus.suggested_tokenizer if data.tokenizer == "auto" else data.tokenizer,
            data.vocabulary or None,
            normalise="nfc" if data.normalise == "auto" else data.normalise,
            pretokenised=corpus.pretokenised,
        )
        tokenizers = Tokenizers(learn_labels(corpus), source)
    assert tokenizers.source is not None
    resolved = _resolved_data(recipe, corpus, tokenizers.source) | {"joint": False}
    recipe = recipe.replace(data=resolved, training=resolve_device(recipe.training))
    torch.set_num_threads(recipe.training.threads)
    return LabelData.cut(recipe, corpus, tokenizers)


# -- what was left to choose -----------------------------------------------------------------------------------------


def _resolved_data(recipe: Recipe, found: Corpus | PairCorpus, tokenizer: Tokenizer) -> dict[str, Any]:
    corpus = recipe.data.corpus
    return {
        "corpus": corpus if is_named(corpus) else str(Path(corpus).resolve()),
        "columns": found.columns,
        "header": found.header,
        "normalise": tokenizer.normalisation,
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.vocabulary,
    }


def absolute(path: str) -> str:
    return str(Path(path).resolve()) if path else ""


def origin_of(corpus: Corpus | PairCorpus) -> dict[str, Any]:
    return {"name": corpus.name, "checksum": corpus.checksum(), "notes": list(corpus.notes)}
