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
    NumberField,
    ObjectField,
    TextField,
    as_tuple,
    choice,
    declare,
    flag,
    many,
    number,
    shown,
    text,
    whole,
    whole_number,
)
from regard.base.numbers import group_digits
from regard.base.reading import parse_object
from regard.decoding.sampling import MAX_BIAS, MAX_PENALTY, MAX_REPETITION, Sampling
from regard.runs.embedding import POOLS
from regard.text.chat_template import MAX_MESSAGES, ROLES, read_messages

CHOICES = 128  # of one request: prompts × best_of
STOPS, LONGEST_STOP = 4, 256
MAX_BIASES, MAX_CHOICES = 1024, 1000
MAX_INPUT = 200_000  # characters of one request to embed or to label
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
        raise BadRequest("The body is not valid Unicode: send UTF-8 without unpaired surrogates.") from None
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
        raise BadRequest("The body is not a UTF-8 form: send a form or JSON.") from None
    found: dict[str, Any] = dict(sent)
    if len(texts := [value for name, value in sent if name == "q"]) > 1:
        found["q"] = texts
    return found, True


class TokensField(Field):
    noun = "a list of token ids"

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
NO_SUFFIX = "asks for text between two texts, but these models only continue a text."


@dataclass(frozen=True)
class StreamOptions(Fields):
    ignores_unknown = True
    include_usage: bool = flag()


class BiasField(Field):
    noun = f"an object that maps up to {MAX_BIASES} token ids to numbers from -{MAX_BIAS:g} to {MAX_BIAS:g}"

    def read(self, name: str, value: Any, *, texts: bool = False) -> dict[int, float]:
        if not isinstance(value, Mapping) or len(value) > MAX_BIASES:
            raise self.refuse(name, value)
        bias, found = NumberField(ge=-MAX_BIAS, le=MAX_BIAS), {}
        for key, one in value.items():
            if (token := whole_number(key)) is None:
                raise FieldError(
                    f"{name} has the key {shown(key)}, which is not a token id: keys must be numbers.", name
                )
            found[token] = bias.read(f"{name}.{token}", one)
        return found

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS}
        keys = {"pattern": "^[0-9]{1,18}$"}
        return {"type": "object", "propertyNames": keys, "additionalProperties": number, "maxProperties": MAX_BIASES}


class SchemaField(Field):
    """Any JSON object; the constraint checks it."""

    noun = "a JSON schema, as an object"

    def read(self, name: str, value: Any, *, texts: bool = False) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refuse(name, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True)
class NamedSchema(Fields):
    ignores_unknown = True
    schema_: Mapping[str, Any] | None = declare(SchemaField, None, doc="the schema")


@dataclass(frozen=True)
class ResponseFormat(Fields):
    type: str = choice(("text", "json_object", "json_schema"), "text", doc="constrain the text to JSON")
    json_schema: NamedSchema = declare(ObjectField, NamedSchema(), of=NamedSchema, doc="its schema")  # noqa: RUF009

    @property
    def schema_asked(self) -> Mapping[str, Any] | None:
        """The schema of the text; None if it may be any."""
        if self.type == "text":
            return None
        return {"type": "object"} if self.type == "json_object" else self.json_schema.schema_ or {}


@dataclass(frozen=True)
class StructuredOutputs(Fields):
    json: Mapping[str, Any] | None = declare(SchemaField, None, doc="a JSON schema")
    regex: str | None = text(None, min_length=1, max_length=4096, doc="a regular expression for the whole text")
    choice: str | Sequence[str] | None = many(
        None, kinds=(TextField(min_length=1, max_length=4096),), min_length=1, max_length=MAX_CHOICES,
        noun="a list of single-line texts", doc="texts to choose from",
    )  # fmt: skip


@dataclass(frozen=True)
class WritingRequest(Fields):
    """What completions and chats share: the model, how it draws, when it stops, and how the text is sent."""

    unsupported = (
        "length_penalty", "no_repeat_ngram_size", "typical_p", "top_a", "min_tokens", "ignore_eos", "stop_token_ids",
        "use_beam_search", "tools", "tool_choice", "functions",
    )  # fmt: skip
    model: str = text(max_length=None)
    temperature: float = number(1.0, ge=0, le=2, doc="sampling temperature; 0 is greedy")
    top_p: float = number(1.0, ge=0, le=1, doc="sample from the most probable tokens whose probabilities sum to this")
    top_k: int = whole(0, ge=0, le=2**31 - 1, doc="sample from this many of the most probable tokens; 0 = all")
    n: int = whole(1, ge=1, le=CHOICES, doc="number of texts to generate for each prompt")
    seed: int = whole(partial(secrets.randbits, 62), ge=0, le=2**63 - 1, doc="the same seed gives the same text")
    stop: str | Sequence[str] = many(
        (), kinds=(TextField(min_length=1, max_length=LONGEST_STOP, lines=True),), max_length=STOPS,
        noun=f"one text or up to {STOPS} texts of 1 to {LONGEST_STOP} characters each",
        doc=f"a string, or up to {STOPS}; generation stops before the first that occurs",
    )  # fmt: skip
    stream: bool = flag(doc="send the text as server-sent events while it is generated")
    stream_options: StreamOptions = declare(  # noqa: RUF009
        ObjectField, StreamOptions(), of=StreamOptions, doc="include_usage: also send the token counts"
    )
    min_p: float = number(
        0.0, ge=0, le=1, doc="sample only from tokens whose probability is at least this share of the highest"
    )
    repetition_penalty: float = number(
        1.0, ge=0.01, le=MAX_REPETITION, doc="above 1: tokens already in the prompt or the text become less probable"
    )
    presence_penalty: float = number(
        0.0, ge=-MAX_PENALTY, le=MAX_PENALTY, doc="subtracted from the logits of tokens that occur in the text"
    )
    frequency_penalty: float = number(
        0.0,
        ge=-MAX_PENALTY,
        le=MAX_PENALTY,
        doc="subtracted from a token's logit for each time it occurs in the text",
    )
    logit_bias: Mapping[int, float] = declare(BiasField, dict, doc="numbers to add to the logits, by token id")
    response_format: ResponseFormat = declare(  # noqa: RUF009
        ObjectField, ResponseFormat(), of=ResponseFormat, doc="text, json_object or json_schema"
    )
    structured_outputs: StructuredOutputs = declare(  # noqa: RUF009
        ObjectField, StructuredOutputs(), of=StructuredOutputs, doc="json, regex or choice, as in vLLM"
    )
    user: str | None = text(None, max_length=None, doc="accepted and ignored")

    def __post_init__(self) -> None:
        if self.stream_options.include_usage and not self.stream:
            raise FieldError("stream_options applies to streams only: set stream to true.", "stream_options")

    @property
    def sampling(self) -> Sampling:
        asked = self.structured_outputs
        schema = asked.json if asked.json is not None else self.response_format.schema_asked
        if sum(one is not None for one in (schema, asked.regex, asked.choice)) > 1:
            raise FieldError(
                "Only one constraint is allowed: a JSON schema, a regex or a choice.", "structured_outputs"
            )
        return Sampling(
            self.temperature, self.top_k, self.top_p or 1e-12,  # 0 is the most probable token alone
            min_p=self.min_p, repetition_penalty=self.repetition_penalty, presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty, logit_bias=self.logit_bias, regex=asked.regex or "",
            json_schema="" if schema is None else json.dumps(schema), choices=as_tuple(asked.choice or ()),
        )  # fmt: skip


@dataclass(frozen=True)
class CompletionRequest(WritingRequest):
    prompt: str | Sequence[Any] = many(
        "", kinds=(ANY_TEXT, TokensField()), min_length=1, max_length=CHOICES,
        doc="a text, a list of texts, or token ids", noun="a text, a list of texts, or token ids",
    )  # fmt: skip
    max_tokens: int = whole(16, ge=0, le=2**20, doc="maximum number of tokens to generate")
    best_of: int = whole(
        None, ge=1, le=CHOICES, doc="number of texts to generate, of which the n most probable are returned"
    )
    echo: bool = flag(doc="also return the prompt, before the text")
    logprobs: int | None = whole(None, ge=0, le=5, doc="return log-probabilities, with this many alternatives")
    suffix: str | None = neutral(neutral="", refusal=NO_SUFFIX)

    def __post_init__(self) -> None:
        super().__post_init__()
        n, best_of = self.n, self.best_of or self.n
        object.__setattr__(self, "best_of", best_of)
        if best_of < n:
            raise FieldError(f"best_of ({best_of}) must be at least n ({n}).", "best_of")
        if best_of > n and self.stream:
            sentence = "best_of chooses among whole texts and cannot be streamed: leave out best_of or stream."
            raise FieldError(sentence, "best_of")
        if (count := best_of * len(self.prompts)) > CHOICES:
            raise FieldError(f"The request asks for {count} texts, but at most {CHOICES} are allowed.", "n")

    @property
    def prompts(self) -> tuple[Any, ...]:
        """Each a text, or a list of tokens."""
        return as_tuple(self.prompt)

    def check_tokens(self, vocabulary: int) -> None:
        refuse_tokens("logit_bias", [*self.logit_bias], vocabulary)
        for prompt in self.prompts:
            if isinstance(prompt, list):
                refuse_tokens("prompt", prompt, vocabulary)


def refuse_tokens(name: str, tokens: Sequence[int], vocabulary: int) -> None:
    if not all(0 <= token < vocabulary for token in tokens):
        raise FieldError(f"A token of {name} is not in the vocabulary: token ids are 0 to {vocabulary - 1}.", name)


class MessagesField(Field):
    noun = f"a list of 1 to {MAX_MESSAGES} messages"

    def read(self, name: str, value: Any, *, texts: bool = False) -> list[dict[str, str]]:
        messages = read_messages(value, name)
        if messages[-1]["role"] == "assistant":
            raise FieldError(f"{name} must not end with an assistant turn: the model writes that turn.", name)
        return messages

    def schema(self) -> dict[str, Any]:
        words = {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}
        content = {"anyOf": [{"type": "string"}, {"type": "array", "items": words | {"required": ["type", "text"]}}]}
        one = {"role": {"enum": list(ROLES)}, "content": content}
        items = {"type": "object", "properties": one, "required": list(one)}
        return {"type": "array", "items": items, "minItems": 1, "maxItems": MAX_MESSAGES}


@dataclass(frozen=True)
class ChatRequest(WritingRequest):
    messages: Sequence[Mapping[str, str]] = declare(MessagesField, doc="dialogue so far, as role and content")
    max_tokens: int | None = whole(
        None, ge=1, le=2**20, doc="maximum number of tokens to generate; default: as many as fit"
    )
    max_completion_tokens: int | None = whole(None, ge=1, le=2**20, doc="another name for max_tokens")


@dataclass(frozen=True)
class InputRequest(Fields):
    """Texts for a model that writes none."""

    model: str = text(max_length=None)
    input: str | Sequence[str] = many(
        kinds=(ANY_TEXT,), min_length=1, max_length=TEXTS, noun="a text or a list of texts", doc="one or several texts"
    )
    user: str | None = text(None, max_length=None, doc="accepted and ignored")

    def __post_init__(self) -> None:
        if sum(map(len, self.texts)) > MAX_INPUT:
            raise FieldError(f"input has more than {group_digits(MAX_INPUT)} characters: send less at once.", "input")

    @property
    def texts(self) -> tuple[str, ...]:
        return as_tuple(self.input)


@dataclass(frozen=True)
class ClassifyRequest(InputRequest):
    pass


@dataclass(frozen=True)
class EmbeddingRequest(InputRequest):
    unsupported = ("dimensions",)
    encoding_format: str = choice(("float", "base64"), "float", doc="base64 encodes little-endian 32-bit floats")
    layer: int | None = whole(None, ge=1, le=10_000, doc="layer, counted from 1; default: the last")
    pool: str = choice(POOLS, "mean", doc="use the mean of all states or the last state")


@dataclass(frozen=True)
class TokenizerInfoRequest(Fields):
    model: str | None = text(None, max_length=None, doc="optional if only one model is served")


@dataclass(frozen=True)
class TokenizeRequest(TokenizerInfoRequest):
    prompt: str = text(max_length=None, doc="a text")
    add_special_tokens: bool = declare(FlagField, True, doc="begin with the boundary token")
    return_token_strs: bool = flag(doc="also return each token as text")


@dataclass(frozen=True)
class DetokenizeRequest(TokenizerInfoRequest):
    tokens: Sequence[int] = declare(TokensField, doc="token ids")


@dataclass(frozen=True)
class DetectRequest(Fields):
    q: str | Sequence[str] = many(
        kinds=(ANY_TEXT,), min_length=1, max_length=TEXTS, noun="a text or a list of texts", doc="one or several texts"
    )
    api_key: str | None = text(None, max_length=None, doc="the server's token, if it has one")

    def __post_init__(self) -> None:
        if sum(map(len, self.texts)) > CHARACTERS:
            raise FieldError(f"q has more than {group_digits(CHARACTERS)} characters: send less at once.", "q")

    @property
    def texts(self) -> tuple[str, ...]:
        return as_tuple(self.q)


@dataclass(frozen=True)
class TranslateRequest(DetectRequest):
    source: str = text(max_length=None, doc="language code, or auto")
    target: str = text(max_length=None, doc="language code")
    format: str = choice(("text", "html"), "text", doc="html preserves markup")
    alternatives: int = whole(0, ge=0, le=ALTERNATIVES, doc="number of alternative translations")
    secret: str | None = text(None, max_length=None, doc="accepted and ignored")
