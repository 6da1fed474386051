"""Running text for a language model: read, cut into tokens, and served as windows or as streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.base.errors import RegardError
from regard.base.numbers import group_digits, pluralize
from regard.layers.state import State
from regard.runs.data import Data, origin_of
from regard.runs.data_lookup import ShownLines, tokens_of
from regard.runs.recipe import Recipe
from regard.runs.resolve import CorpusFacts
from regard.runs.store.folder import Tokenizers, unseen_bytes
from regard.systems.model import Model
from regard.text.batches.text_batches import Streams, Windows
from regard.text.cached_text import cached_tokenizer
from regard.text.corpus import Corpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray
from regard.text.tokenizers.vocabulary import MAX_BPE_BYTES
from regard.training.loop import Batches
from regard.training.validation import TextValidation, Validation


@dataclass(frozen=True)
class TextData(Data):
    """Running text, one array of tokens for each split."""

    corpus: Corpus
    tokenizers: Tokenizers
    arrays: Mapping[str, TokenArray]
    chat_template: str = ""

    @classmethod
    def cut(cls, corpus: Corpus, tokenizers: Tokenizers, inherited: str = "") -> TextData:
        """Tokenize the corpus. `inherited`: the chat template of the run that training starts from."""
        arrays = {split: tokens_of(corpus, tokenizers.target, split) for split in ("train", "valid")}
        check_tokens(corpus, arrays)
        return cls(corpus, tokenizers, arrays, inherited if corpus.template is None else corpus.template.source)

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

    def facts(self, recipe: Recipe) -> CorpusFacts:
        return CorpusFacts(self.tokens, recipe.training.window * recipe.training.accumulate, fills_gpu=True)

    def batches(self, recipe: Recipe, model: Model) -> Batches:
        settings, ids, target = recipe.training, self.arrays["train"].ids, self.tokenizers.target
        counted, begin = self.arrays["train"].counted, boundary(target, self.arrays["train"])
        rows = min(settings.rows, max(1, len(ids) // settings.window))  # a short text fills fewer rows
        if settings.batches == "windows":
            return Windows(ids, rows, settings.window, target.eos, settings.seed, begin, counted)
        if grows(model):
            raise RegardError(f"The state of {recipe.system} grows with the text: use training.batches windows.")
        return Streams(ids, rows, settings.window, target.eos, begin, counted)

    def validation(self, recipe: Recipe, model: Model) -> Validation:
        limit = recipe.training.validation_tokens or None
        target, array = self.tokenizers.target, self.arrays["valid"]
        counted = None if array.counted is None else array.counted[:limit]
        return TextValidation(array.ids[:limit], target.eos, boundary(target, array), counted)


def boundary(tokenizer: Tokenizer, array: TokenArray) -> int | None:
    """The token that is read after `<eos>` was predicted; None for dialogues, which contain their boundaries."""
    return tokenizer.begin if array.counted is None else None


def learn_tokenizer(recipe: Recipe, corpus: Corpus) -> Tokenizers:
    """The tokenizer that the recipe specifies, learned from the training split."""
    data, train = recipe.data, corpus.splits["train"]
    kind = corpus.suggested_tokenizer if data.tokenizer == "auto" else data.tokenizer
    normalise = data.normalise if data.normalise != "auto" else "none" if kind in ("bpe", "byte") else "nfc"
    sampled = kind == "bpe" and (train.size or 0) > MAX_BPE_BYTES
    sample = f" from {MAX_BPE_BYTES >> 20} MiB, drawn from all lines" if sampled else ""
    return Tokenizers(
        cached_tokenizer(
            ShownLines(train, f"learning the vocabulary{sample}"),
            train.checksum(),
            train.size,
            kind,
            data.vocabulary or None,
            normalise=normalise,
            pretokenised=corpus.pretokenised,
        )
    )


def check_tokens(corpus: Corpus, tokens: Mapping[str, TokenArray]) -> None:
    for split, array in tokens.items():
        if len(array.ids) < 2:
            raise RegardError(f"The {split} split of {corpus.name} has no text to learn from; add more lines.")


def grows(model: Model) -> bool:
    """True if the state grows with every token (keys and values), so that it cannot be carried through a text."""

    def empty(part: State) -> bool:
        return any(empty(leaf) if isinstance(leaf, dict) else leaf.numel() == 0 for leaf in part.values())

    return empty(model.begin(rows=1)["past"])
