"""Sentence pairs: read, cut into tokens of both sides, and served in batches of similar length."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import torch

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.decoding.beam import GREEDY_BEAM
from regard.decoding.beam_engine import BeamEngine
from regard.decoding.translate import translate
from regard.evaluation.bleu import bleu
from regard.evaluation.scoring import pair_losses
from regard.evaluation.scripts import bleu_cut
from regard.report.progress import say
from regard.runs.data import Data, origin_of
from regard.runs.recipe import Recipe
from regard.runs.resolve import CorpusFacts
from regard.runs.speed import install, recordable
from regard.runs.store.folder import Tokenizers, forbidden_tokens, unseen_bytes
from regard.runs.tasks.translation.back_translation import back_translated
from regard.runs.tasks.translation.evaluation import both_sides
from regard.systems.model import Model
from regard.text.batches.pair_batches import PairBatches
from regard.text.batches.pair_shapes import ShapedPairBatches
from regard.text.pairs import PairCorpus, Pairs
from regard.text.tokenizers.bpe_dropout import DropoutPairs
from regard.text.tokenizers.pair_tokenizers import train_tokenizers, why_this_vocabulary
from regard.text.tokenizers.pair_tokens import TokenPairs, cached_token_pairs, encode_pairs
from regard.training.loop import Batches
from regard.training.validation import PairValidation, Validation

VALIDATION_TOKENS = 32_768  # sources in a batch × tokens of the longest: memory in addition to training


@dataclass(frozen=True)
class PairData(Data):
    """Tokenized pairs, without those that are empty or too long."""

    corpus: PairCorpus
    tokenizers: Tokenizers
    texts: Pairs  # what `train` was cut from
    train: TokenPairs
    valid: TokenPairs
    references: Pairs  # what `valid` was cut from
    made_up: str = ""  # the checksum of back-translated pairs, where there are any
    unit = "those of the target; training.batch_tokens counts both sides"
    fills_gpu = True  # steps may grow with the memory of a GPU
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
            found = cached_token_pairs(
                cls.encode, pairs, tokenizers.source, tokenizers.target, longest=data.longest, truncate=data.truncate
            )
            for note in found.sentences:
                say(f"{split}: {note}")
            if not len(found):
                raise RegardError(
                    f"The {split} split of {corpus.name} has no pairs whose sides both have at most {data.longest} "
                    f"tokens; add more pairs, or raise data.longest."
                )
            cut[split] = found
        references = valid.take(cut["valid"].kept)
        return cls(corpus, tokenizers, train, cut["train"], cut["valid"], references, made_up)

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
    def examples(self) -> Iterable[tuple[str, str]]:
        return zip(self.references.sources, self.references.targets)

    def facts(self, recipe: Recipe) -> CorpusFacts:
        longest = int((self.train.source_lengths + self.train.target_lengths).max())
        return CorpusFacts(len(self.train.source) + len(self.train.target), longest, self.fills_gpu)

    def batches(self, recipe: Recipe, model: Model) -> Batches:
        settings, rate = recipe.training, recipe.data.bpe_dropout
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
        """Refuse pairs longer than the model's context before training, not at the first long batch."""
        for side, most in (("source", getattr(model, "source_context", None)), ("target", model.context)):
            longest = max(int(getattr(pairs, f"{side}_lengths").max()) for pairs in (self.train, self.valid))
            if most is not None and longest > most:
                raise RegardError(
                    f"A {side} has {longest} tokens including <eos>, but positions end at model.context {most}: raise "
                    f"model.context, or leave out longer pairs with data.longest {most - 1}."
                )

    def validation(self, recipe: Recipe, model: Model) -> Validation:
        eos, target = self.tokenizers.target.eos, self.tokenizers.target
        forbidden = forbidden_tokens(target, unseen_bytes(target, self.train.target), one_line=True)
        sources, targets = both_sides(self.valid)
        cut = bleu_cut(self.references.targets)
        by_bleu = recipe.training.select == "bleu"
        if by_bleu:
            say(f"BLEU's tokenizer: {cut.why}")

        def loss(model: Model) -> float:
            losses = pair_losses(model, sources, targets, eos)
            return float(sum(loss.sum() for loss in losses)) / sum(map(len, losses))

        @cache
        def engine() -> BeamEngine | None:
            """One engine for all validations: it reads the current weights and captures its steps only once. None on a
            CPU, or if the weights are sharded.
            """
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


def learn_tokenizers(recipe: Recipe, corpus: PairCorpus) -> Tokenizers:
    """The tokenizers that the recipe specifies, one for both sides or one for each."""
    data = recipe.data
    normalise = "nfc" if data.normalise == "auto" else data.normalise
    source, target = train_tokenizers(corpus, data.tokenizer, data.vocabulary, normalise, data.joint)
    say(why_this_vocabulary(corpus, (source, target), data.vocabulary))
    return Tokenizers(target, source)
