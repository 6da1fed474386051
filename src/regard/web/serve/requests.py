"""The requests of both APIs with their bounds (`regard.base.fields`); the OpenAPI document is made from them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from regard.base.fields import (
    Field,
    FieldError,
    Fields,
    FlagField,
    ObjectField,
    TextField,
    as_tuple,
    choice,
    declare,
    flag,
    many,
    number,
    text,
    whole,
)
from regard.base.numbers import group_digits
from regard.base.reading import parse_object
from regard.decoding.sampling import Sampling
from regard.text.chat_template import MAX_MESSAGES, ROLES, read_messages

CHOICES = 128  # of one request: prompts × best_of
STOPS, LONGEST_STOP = 4, 256
CHARACTERS, TEXTS, ALTERNATIVES = 20_000, 256, 9  # of one request to translate
ANY_TEXT = TextField(max_length=None)


class BadRequest(FieldError):
    """A request that is refused with another status than 400, or with a code."""

    def __init__(self, sentence: str, field: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(sentence, field)
        self.status, self.code = status, code


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; half characters and what nests too deep are refused."""
    try:
        found = parse_object(body.decode("utf-8-sig"))  # of bytes, UTF-16 and UTF-32 would be read
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair cannot be encoded
    except UnicodeError:
        raise BadRequest("The body is not valid Unicode: send UTF-8, and no half surrogate pairs.") from None
    except RecursionError:
        found = None
    if found is None:
        raise BadRequest("The body is not JSON: send one object, with the header Content-Type: application/json.")
    return found


def read_body(body: bytes, content_type: str) -> tuple[dict[str, Any], bool]:
    """The fields of a JSON object or of a form, and whether it was a form."""
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        return read_object(body), False
    try:
        sent = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=2 * TEXTS)
    except ValueError:
        raise BadRequest("The body is not a form in UTF-8: send JSON, or a form.") from None
    found: dict[str, Any] = dict(sent)
    if len(texts := [value for name, value in sent if name == "q"]) > 1:
        found["q"] = texts
    return found, True


class TokensField(Field):
    noun = "tokens as whole numbers"

    def read(self, name: str, value: Any, *, texts: bool = False) -> list[int]:
        if not isinstance(value, list) or not all(type(token) is int for token in value):
            raise self.refuse(name, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "integer", "minimum": 0}}


@dataclass(frozen=True, kw_only=True)
class NeutralField(Field):
    """A setting of OpenAI's API that does nothing here: any value but the neutral one is refused."""

    suggested, noun = False, "left out"
    neutral: Any
    refusal: str = "is not supported: leave it out."
    doc: str = "not supported"

    def read(self, name: str, value: Any, *, texts: bool = False) -> Any:
        if value != self.neutral or isinstance(value, bool):
            raise FieldError(f"{name} {self.refusal}", name)
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": [self.neutral]}


neutral = partial(declare, NeutralField, None)
NO_PENALTY = "is not supported: leave it out, or set it to 0."
NO_SUFFIX = "asks for text between two texts, but these models only continue one."


@dataclass(frozen=True)
class StreamOptions(Fields):
    ignores_unknown = True
    include_usage: bool = flag()


@dataclass(frozen=True)
class WritingRequest(Fields):
    """What completions and chats share: the model, how it draws, when it stops, and how the text is sent."""

    unsupported = (
        "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "min_p", "typical_p", "top_a", "min_tokens",
        "ignore_eos", "stop_token_ids", "use_beam_search", "response_format", "tools", "tool_choice", "functions",
    )  # fmt: skip
    model: str = text(max_length=None)
    temperature: float = number(1.0, ge=0, le=2, doc="0 is greedy")
    top_p: float = number(1.0, ge=0, le=1, doc="draw from the most probable that hold this share")
    top_k: int = whole(0, ge=0, le=2**31 - 1, doc="draw from so many of the most probable; 0 is all")
    n: int = whole(1, ge=1, le=CHOICES, doc="texts for each prompt")
    seed: int = whole(partial(secrets.randbits, 62), ge=0, le=2**63 - 1, doc="the same seed writes the same text")
    stop: str | Sequence[str] = many(
        (), kinds=(TextField(min_length=1, max_length=LONGEST_STOP, lines=True),), max_length=STOPS,
        noun=f"a text or up to {STOPS}, of 1 to {LONGEST_STOP} characters each",
        doc=f"a text, or up to {STOPS}, before which the text ends",
    )  # fmt: skip
    stream: bool = flag(doc="server-sent events as the text is written")
    stream_options: StreamOptions = declare(  # noqa: RUF009
        ObjectField, StreamOptions(), of=StreamOptions, doc="of a stream: include_usage"
    )
    presence_penalty: float | None = neutral(neutral=0, refusal=NO_PENALTY)
    frequency_penalty: float | None = neutral(neutral=0, refusal=NO_PENALTY)
    logit_bias: Mapping[str, float] | None = neutral(neutral={})
    user: str | None = text(None, max_length=None, doc="not used")

    def __post_init__(self) -> None:
        if self.stream_options.include_usage and not self.stream:
            raise FieldError("stream_options applies to streams only: set stream to true.", "stream_options")

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p or 1e-12)  # 0 is the most probable token alone


@dataclass(frozen=True)
class CompletionRequest(WritingRequest):
    prompt: str | Sequence[Any] = many(
        "", kinds=(ANY_TEXT, TokensField()), min_length=1, max_length=CHOICES, doc="a text, several, or tokens",
        noun="a text, a list of texts, or tokens as whole numbers",
    )  # fmt: skip
    max_tokens: int = whole(16, ge=0, le=2**20, doc="tokens to write")
    best_of: int = whole(None, ge=1, le=CHOICES, doc="of so many texts, keep the n most probable")
    echo: bool = flag(doc="the prompt before the text")
    logprobs: int | None = whole(None, ge=0, le=5, doc="log-probabilities, and of so many alternatives")
    suffix: str | None = neutral(neutral="", refusal=NO_SUFFIX)

    def __post_init__(self) -> None:
        super().__post_init__()
        n, best_of = self.n, self.best_of or self.n
        object.__setattr__(self, "best_of", best_of)
        if best_of < n:
            raise FieldError(f"best_of ({best_of}) must not be below n ({n}).", "best_of")
        if best_of > n and self.stream:
            sentence = "best_of chooses among whole texts, which cannot be streamed: leave out one of them."
            raise FieldError(sentence, "best_of")
        if (count := best_of * len(self.prompts)) > CHOICES:
            raise FieldError(f"This asks for {count} texts; at most {CHOICES} at once.", "n")

    @property
    def prompts(self) -> tuple[Any, ...]:
        """Each a text, or a list of tokens."""
        return as_tuple(self.prompt)

    def check_tokens(self, vocabulary: int) -> None:
        for prompt in self.prompts:
            if isinstance(prompt, list):
                refuse_tokens("prompt", prompt, vocabulary)


def refuse_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    if not all(0 <= token < vocabulary for token in tokens):
        raise FieldError(f"A token of {name} is not in the vocabulary: they are 0 to {vocabulary - 1}.", name)


class MessagesField(Field):
    noun = f"a list of 1 to {MAX_MESSAGES} messages"

    def read(self, name: str, value: Any, *, texts: bool = False) -> list[dict[str, str]]:
        messages = read_messages(value, name)
        if messages[-1]["role"] == "assistant":
            raise FieldError(f"{name} must not end with the assistant's: the model writes that one.", name)
        return messages

    def schema(self) -> dict[str, Any]:
        words = {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}
        content = {"anyOf": [{"type": "string"}, {"type": "array", "items": words | {"required": ["type", "text"]}}]}
        one = {"role": {"enum": list(ROLES)}, "content": content}
        items = {"type": "object", "properties": one, "required": list(one)}
        return {"type": "array", "items": items, "minItems": 1, "maxItems": MAX_MESSAGES}


@dataclass(frozen=True)
class ChatRequest(WritingRequest):
    messages: Sequence[Mapping[str, str]] = declare(MessagesField, doc="the dialogue so far: roles and texts")
    max_tokens: int | None = whole(None, ge=1, le=2**20, doc="tokens to write; as many as fit if it is left out")
    max_completion_tokens: int | None = whole(None, ge=1, le=2**20, doc="another name of max_tokens")


@dataclass(frozen=True)
class TokenizerInfoRequest(Fields):
    model: str | None = text(None, max_length=None, doc="may be left out where one model is served")


@dataclass(frozen=True)
class TokenizeRequest(TokenizerInfoRequest):
    prompt: str = text(max_length=None, doc="a text")
    add_special_tokens: bool = declare(FlagField, True, doc="the boundary first")
    return_token_strs: bool = flag(doc="each token as text, too")


@dataclass(frozen=True)
class DetokenizeRequest(TokenizerInfoRequest):
    tokens: Sequence[int] = declare(TokensField, doc="tokens as whole numbers")


@dataclass(frozen=True)
class DetectRequest(Fields):
    q: str | Sequence[str] = many(
        kinds=(ANY_TEXT,), min_length=1, max_length=TEXTS, noun="a text, or a list of texts", doc="a text, or several"
    )
    api_key: str | None = text(None, max_length=None, doc="the server's token")

    def __post_init__(self) -> None:
        if sum(map(len, self.texts)) > CHARACTERS:
            raise FieldError(f"q has more than {group_digits(CHARACTERS)} characters: send less at once.", "q")

    @property
    def texts(self) -> tuple[str, ...]:
        return as_tuple(self.q)


@dataclass(frozen=True)
class TranslateRequest(DetectRequest):
    source: str = text(max_length=None, doc="a language, or auto")
    target: str = text(max_length=None, doc="a language")
    format: str = choice(("text", "html"), "text", doc="html keeps the mark-up")
    alternatives: int = whole(0, ge=0, le=ALTERNATIVES, doc="other ways to say it")
    secret: str | None = text(None, max_length=None, doc="not used")
