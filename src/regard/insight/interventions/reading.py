"""A text read by a model, which can be read again with changes, many rows at a time.

reading = read_text(model, tokenizer, "the dog ran")
reading.scores([(Place("layer/0/heads", index=2, row=1), 0.0)], rows=2)        log P of each known next token: [2, K]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.insight.interventions.changing import Change, Place, changing, record
from regard.insight.words import labels
from regard.layers.state import State
from regard.systems.classifier import Classifier
from regard.systems.model import Model
from regard.systems.translator import Translator
from regard.text.tokenizers.tokenizer import Tokenizer

Changes = Sequence[tuple[Place, Change]]
ROWS = 64  # at a time, at most
LOGITS = 1 << 27  # maximum size of the logits of all rows


@dataclass(frozen=True, eq=False)
class Reading:
    model: Model
    tokenizer: Tokenizer
    tokens: Tensor  # [1, T]
    targets: tuple[int | None, ...]  # the token after each; None: unknown
    source: Tensor | None = None  # [1, S]
    source_tokenizer: Tokenizer | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The labels of the tokens read."""
        return labels([self.tokenizer.token(token) for token in self.tokens[0].tolist()])

    @property
    def source_words(self) -> tuple[str, ...]:
        if self.source is None or self.source_tokenizer is None:
            return ()
        return labels([self.source_tokenizer.token(token) for token in self.source[0].tolist()])

    @property
    def known(self) -> list[int]:
        """The steps whose next token is known."""
        return [step for step, target in enumerate(self.targets) if target is not None]

    @property
    def batch(self) -> int:
        """The number of rows in a batch."""
        return max(1, min(ROWS, LOGITS // (self.tokens.size(1) * self.tokenizer.vocabulary)))

    def logits(self, changes: Changes = (), rows: int = 1) -> Tensor:
        """Logits [rows, T, V] by the reference implementation, with gradients."""
        with changing(self.model, changes):
            state: State | None = None
            if self.source is not None:
                state = self.model.begin(self.source.expand(rows, -1))
            return self.model(self.tokens.expand(rows, -1), state)[0]

    @torch.no_grad()
    def log_probabilities(self, changes: Changes = (), rows: int = 1) -> Tensor:
        logits = self.logits(changes, rows)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def scores(self, changes: Changes = (), rows: int = 1) -> Tensor:
        """log P of every known next token: [rows, K]."""
        found = self.log_probabilities(changes, rows)[:, self.known]
        wanted = torch.tensor([self.targets[step] for step in self.known], device=found.device)
        return found.gather(-1, wanted.expand(rows, -1)[..., None])[..., 0]

    def step_of(self, answers: tuple[int, int], step: int | None = None) -> int:
        """The step whose prediction is compared: by default the last; in a translation, the one that generated an
        answer.
        """
        steps = self.tokens.size(1)
        if step is not None and not 0 <= step < steps:
            raise RegardError(f"There is no step {step}: the steps of this text are 0 to {steps - 1}.")
        wrote = [at for at, target in enumerate(self.targets) if target in answers] if self.source is not None else []
        return step if step is not None else wrote[0] if wrote else steps - 1

    @torch.no_grad()
    def parts(self) -> dict[str, Tensor]:
        return record(self.model, self.tokens, self.source)[1]

    def token(self, word: str) -> int:
        """The first token of a word, as it continues a text."""
        ids = self.tokenizer.encode(f" {word.strip()}") or self.tokenizer.encode(word)
        ids = [one for one in ids if self.tokenizer.token(one).strip(" \u2581")] or ids
        if not ids or (ids[0] in self.tokenizer.specials and word.strip() != self.tokenizer.token(ids[0])):
            raise RegardError(f"{word!r} is not a word that this model knows: its tokenizer has no token for it.")
        return ids[0]


def read_text(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    target: str | None = None,
    source_tokenizer: Tokenizer | None = None,
) -> Reading:
    """A text for a language model; for a translator a source and its target, for a classifier a text and its label."""
    device = model.device
    model.eval()
    if source_tokenizer is None:
        ids = [tokenizer.begin, *tokenizer.encode(text)]
        return Reading(model, tokenizer, torch.tensor([ids], device=device), (*ids[1:], None))
    source = torch.tensor([[*source_tokenizer.encode(text), source_tokenizer.eos]], device=device)
    written: list[int] = [] if target is None else tokenizer.encode(target)
    if isinstance(model, Classifier):
        tokens, targets = [tokenizer.eos], written[:1] or [_label(model, tokenizer, source)]
    else:
        assert isinstance(model, Translator)
        tokens, targets = [tokenizer.eos, *written], [*written, tokenizer.eos]
    return Reading(
        model, tokenizer, torch.tensor([tokens], device=device), tuple(targets), source, source_tokenizer
    )  # fmt: skip


@torch.no_grad()
def _label(model: Classifier, tokenizer: Tokenizer, source: Tensor) -> int:
    logits, _ = model(torch.tensor([[tokenizer.eos]], device=source.device), model.begin(source))
    return int(logits[0, 0].index_fill(-1, torch.tensor(tokenizer.specials, device=logits.device), -torch.inf).argmax())
