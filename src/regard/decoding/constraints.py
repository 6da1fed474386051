"""Texts that must match a regular expression, fit a JSON schema or be one of some strings, by llguidance.

A token is allowed if the text can still match after it; all other tokens get probability 0, so sampling is the same as
rejecting forbidden tokens. Over whole texts this is not P(text | it matches): a prefix with few allowed continuations
is not sampled less often. `<eos>` is allowed where the text matches, and ends it.

llguidance (MIT) identifies tokens by their bytes, needs no other package and bounds its work (docs/guides/serving.md
compares it with others). A word model has no bytes between its words, so it can only choose among strings.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.numbers import group_digits
from regard.base.reading import parse_object
from regard.decoding.sampling import Sampling
from regard.text.tokenizers.tokenizer import Tokenizer

MAX_CHARACTERS = {"regex": 4_096, "json_schema": 65_536, "choices": 65_536}
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}  # as json.dumps writes


class Unwritable(RegardError):
    """A constraint that cannot be understood, or that the model's tokens cannot satisfy."""


class Guide:
    """The constraint of one text, and its state after the text so far."""

    def __init__(self, matcher: Any, tokenizer: Tokenizer) -> None:
        self.matcher, self.tokenizer = matcher, tokenizer

    def add(self, token: int) -> None:
        self.matcher.consume_token(token)

    def allowed(self) -> Tensor:
        """Which tokens may come next: [V] booleans."""
        if self.tokenizer.kind in ("word", "char"):
            found = self._each()
        else:
            found = np.frombuffer(self.matcher.compute_logit_bias(), np.uint8) > 0
        if self.matcher.is_error():
            why = self.matcher.get_error().partition("<state>")[0]
            raise Unwritable(f"The constraint cannot be satisfied: {_one_line(why)}.")
        if not found.any():
            raise Unwritable("The constraint requires characters that no token of this model contains: change it.")
        return torch.from_numpy(found)

    def _each(self) -> np.ndarray:
        """Checks each token. The mask for all tokens would force single bytes, which only byte vocabularies have."""
        found = np.fromiter((self.matcher.validate_tokens([n]) for n in range(self.tokenizer.vocabulary)), np.int64)
        found[self.tokenizer.eos] = self.matcher.is_accepting()
        return found > 0


class Constraints:
    """Makes the guides of one tokenizer; recently used constraints stay compiled."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.compiled = lru_cache(16)(self._compile)

    def begin(self, sampling: Sampling) -> Guide | None:
        """The guide of a new text; None if it is not constrained."""
        if not sampling.constrained:
            return None
        for name, most in MAX_CHARACTERS.items():
            given = getattr(sampling, name)
            if len(given if isinstance(given, str) else "".join(given)) > most:
                raise Unwritable(f"The constraint ({name}) has more than {group_digits(most)} characters: shorten it.")
        return Guide(self.compiled(sampling.regex, sampling.json_schema, sampling.choices).deep_copy(), self.tokenizer)

    def _compile(self, regex: str, schema: str, choices: tuple[str, ...]) -> Any:
        llguidance = _llguidance()
        made = llguidance.LLMatcher
        if self.tokenizer.kind == "word" and not choices:
            raise Unwritable(
                "A word-level model cannot follow a regular expression or a JSON schema, because its tokens do not "
                "record "
                "spaces: use choices, or a model of bytes, characters or byte pairs."
            )
        if regex:
            grammar = made.grammar_from_regex(regex)
        elif schema:
            parsed = parse_object(schema)
            if parsed is None:
                raise Unwritable("The JSON schema must be a JSON object.")
            try:
                grammar = made.grammar_from_json_schema(json.dumps(parsed), overrides=COMPACT)
            except ValueError as error:  # NaN, or nested too deeply
                raise Unwritable(f"The constraint cannot be used: {_one_line(str(error))}.") from None
        else:
            options = " | ".join(json.dumps(self._as_written(one), ensure_ascii=False) for one in choices)
            options = options.replace("\x7f", "\\u007f")  # the only other character that must be escaped there
            grammar = made.grammar_from_lark(f"start: {options}")
        matcher = made(self._tokens(), grammar, log_level=0)
        if matcher.is_error():
            raise Unwritable(f"The constraint cannot be used: {_one_line(matcher.get_error())}.")
        return matcher

    def _as_written(self, choice: str) -> str:
        """A string as spelled by the tokens."""
        if not choice or "\n" in choice:
            raise Unwritable("Each choice must be one line of text that is not empty.")
        if self.tokenizer.kind != "word":
            return self.tokenizer.normalise(choice)
        ids = self.tokenizer.encode(choice)
        if self.tokenizer.unk in ids:
            raise Unwritable(
                f"The choice {choice[:60]!r} contains a word that is not in this model's vocabulary: leave it out."
            )
        return "".join(f" {self.tokenizer.token(one)}" for one in ids)

    @lru_cache(1)  # noqa: B019  # a tokenizer lives as long as its model
    def _tokens(self) -> Any:
        llguidance = _llguidance()
        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(TokenBytes(self.tokenizer)))


class TokenBytes:
    """The tokenizer interface that llguidance needs: the bytes of each token; b"" is never generated."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        space = b" " if tokenizer.kind == "word" else b""
        found = [space + one for one in tokenizer.token_bytes]
        hidden = {*tokenizer.specials, tokenizer.eos}
        own = tokenizer.kind != "imported"  # a line end is <eos> there, and no other token
        self.tokens = [b"" if n in hidden or (own and b"\n" in one) else one for n, one in enumerate(found)]
        self.tokens[tokenizer.eos] = b"<eos>"
        self.eos_token_id, self.special_token_ids = tokenizer.eos, [tokenizer.eos]
        self.encode = tokenizer.encode

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of a passage for which the constraint leaves no choice."""
        return self.encode(text.decode("utf-8", "ignore"))


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        raise RegardError('Constraints need llguidance: pip install "regard[constrain]".') from None
    return llguidance


def _one_line(sentence: str) -> str:
    return " ".join(sentence.split())[:200].rstrip(".")
