"""The OpenAPI document of the served models, and the same as a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

from regard import __version__
from regard.base.fields import Fields
from regard.web.serve.requests import (
    ChatRequest,
    ClassifyRequest,
    CompletionRequest,
    DetectRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
    TranslateRequest,
)

TEXT: dict[str, Any] = {"type": "string"}
MAYBE = "null"
FORMS = ("/translate", "/detect")  # take a form, too
REQUESTS = (
    ChatRequest, CompletionRequest, EmbeddingRequest, ClassifyRequest, TokenizeRequest, DetokenizeRequest,
    TranslateRequest, DetectRequest,
)  # fmt: skip


def document(language_models: Sequence[str], languages: Sequence[str], needs_token: bool) -> dict[str, Any]:
    """OpenAPI 3.1; `languages`: the codes of the translators'."""
    secured: dict[str, Any] = {"security": [{"token": []}]} if needs_token else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Regard",
            "version": __version__,
            "description": "Language models have OpenAI's completions and chat API, translators LibreTranslate's.",
        },
        "paths": _paths(),
        "components": {
            "schemas": _schemas(language_models, languages),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        **secured,
    }


def _answer(about: str, schema: Any, kind: str = "application/json") -> dict[str, Any]:
    return {"description": about, "content": {kind: {"schema": schema}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(path: str, name: str, about: str, good: dict[str, Any], *codes: str, **more: Any) -> dict[str, Any]:
    said = {
        "400": "the request is invalid; the message says why", "401": "the token is missing or wrong",
        "403": "the request comes from another site",
        "404": "the model does not exist", "408": "the body did not arrive in time", "413": "the body is too long",
        "421": "the host name is not that of this server", "503": "the queue is full; see Retry-After",
    }  # fmt: skip
    error = _ref("Error" if path.startswith("/v1/") else "Sentence")
    refused = {code: _answer(said[code], error) for code in ("401", "421", *codes)}
    made = {"operationId": name, "summary": about, "responses": {"200": good, **refused}, **more}
    return {path: {"post" if "requestBody" in more else "get": made}}


def _posted(path: str, name: str, about: str, good: dict[str, Any], request: type[Fields]) -> dict[str, Any]:
    kinds, codes = ["application/json"], ["400", "403", "408", "413", "503"]
    if path not in FORMS:
        codes.insert(0, "404")
    else:
        kinds.append("application/x-www-form-urlencoded")
    body = {"required": True, "content": {kind: {"schema": _ref(request.__name__)} for kind in kinds}}
    return _operation(path, name, about, good, *codes, requestBody=body)


def _paths() -> dict[str, Any]:
    completion = _answer("the texts; or, with stream, server-sent events that end with [DONE]", _ref("Completion"))
    chat = _answer("the answers; or, with stream, server-sent events that end with [DONE]", _ref("Chat"))
    for written in (completion, chat):
        written["content"]["text/event-stream"] = {"schema": {}}
    model = {
        "name": "model",
        "in": "query",
        "schema": TEXT,
        "description": "id of the model; optional if only one is served",
    }
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT, "description": "a model's id"}
    detected, languages = ({"type": "array", "items": _ref(kind)} for kind in ("Detected", "Language"))
    good = partial(_answer, "the result")
    return {
        **_operation("/v1/models", "listModels", "List the language models", good(_ref("Models"))),
        **_operation(
            "/v1/models/{name}", "getModel", "Describe a model", good(_ref("Model")), "404", parameters=[name]
        ),
        **_posted("/v1/completions", "complete", "Continue or score prompts", completion, CompletionRequest),
        **_posted("/v1/chat/completions", "chat", "Answer a dialogue", chat, ChatRequest),
        **_posted("/v1/embeddings", "embed", "Embed texts as vectors", good(_ref("Embeddings")), EmbeddingRequest),
        **_posted("/classify", "classify", "Label texts", good(_ref("Classified")), ClassifyRequest),
        **_posted("/tokenize", "tokenize", "Convert text to tokens", good(_ref("Tokenized")), TokenizeRequest),
        **_posted("/detokenize", "detokenize", "Convert tokens to text", good(_ref("Detokenized")), DetokenizeRequest),
        **_operation(
            "/tokenizer_info",
            "tokenizerInfo",
            "Show a model's boundary token, limits and chat template",
            good(_ref("TokenizerInfo")),
            "400",
            "404",
            parameters=[model],
        ),
        **_posted("/translate", "translate", "Translate texts", good(_ref("Translated")), TranslateRequest),
        **_posted(
            "/detect", "detect", "Detect the language of a text", _answer("most likely first", detected), DetectRequest
        ),
        **_operation("/languages", "languages", "List the supported languages", good(languages)),
        **_operation("/frontend/settings", "settings", "Show settings for user interfaces", good({"type": "object"})),
        **_operation("/health", "health", "Check that the server is running", good(_ref("Health"))),
        **_operation("/metrics", "metrics", "Show metrics for Prometheus", good(TEXT, "text/plain")),
    }


def _schemas(models: Sequence[str], languages: Sequence[str]) -> dict[str, Any]:
    requests = {kind.__name__: kind.schema() for kind in REQUESTS}
    if models:
        for written in (CompletionRequest, ChatRequest):
            requests[written.__name__]["properties"]["model"]["enum"] = list(models)
    if languages:
        translate = requests["TranslateRequest"]["properties"]
        translate["source"]["enum"], translate["target"]["enum"] = [*languages, "auto"], list(languages)
    many = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    return {
        **requests,
        "Completion": _object(
            {
                "id": TEXT, "object": {"const": "text_completion"}, "created": {"type": "integer"}, "model": TEXT,
                "choices": {"type": "array", "items": _ref("Choice")}, "usage": {"type": "object"},
            },
            "id", "choices", "usage",
        ),
        "Choice": _object(
            {
                "index": {"type": "integer"}, "text": TEXT, "logprobs": {"type": ["object", MAYBE]},
                "finish_reason": {"enum": ["stop", "length", None]},
            },
            "index", "text", "logprobs", "finish_reason",
        ),
        "Chat": _object(
            {
                "id": TEXT, "object": {"const": "chat.completion"}, "created": {"type": "integer"}, "model": TEXT,
                "choices": {"type": "array", "items": _ref("ChatChoice")}, "usage": {"type": "object"},
            },
            "id", "choices", "usage",
        ),
        "ChatChoice": _object(
            {
                "index": {"type": "integer"}, "finish_reason": {"enum": ["stop", "length", None]},
                "message": _object({"role": {"const": "assistant"}, "content": TEXT}, "role", "content"),
            },
            "index", "message", "finish_reason",
        ),
        "Embeddings": _object({"data": {"type": "array", "items": {"type": "object"}}, "model": TEXT}, "data", "model"),
        "Classified": _object(
            {
                "data": {
                    "type": "array",
                    "items": _object(
                        {
                            "index": {"type": "integer"}, "label": TEXT, "num_classes": {"type": "integer"},
                            "labels": {"type": "array", "items": TEXT},
                            "probs": {"type": "array", "items": {"type": "number"}},
                        },
                        "index", "label", "probs",
                    ),
                }
            },
            "data",
        ),
        "Tokenized": _object(
            {
                "tokens": {"type": "array", "items": {"type": "integer"}}, "count": {"type": "integer"},
                "max_model_len": {"type": "integer"}, "token_strs": {"type": ["array", MAYBE], "items": TEXT},
            },
            "tokens", "count", "max_model_len",
        ),
        "Detokenized": _object({"prompt": TEXT}, "prompt"),
        "TokenizerInfo": _object(
            {
                "tokenizer_class": TEXT, "bos_token": TEXT, "eos_token": TEXT, "vocab_size": {"type": "integer"},
                "model_max_length": {"type": "integer"}, "chat_template": TEXT,
            },
            "eos_token", "model_max_length", "chat_template",
        ),
        "Model": _object(
            {
                "id": TEXT, "object": {"const": "model"}, "created": {"type": "integer"}, "task": TEXT,
                "max_model_len": {"type": "integer"}, "chat_template": {"enum": ["own", "plain"]},
            },
            "id", "task", "max_model_len",
        ),
        "Models": _object({"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")}}, "data"),
        "Error": _object(
            {
                "error": _object(
                    {"message": TEXT, "type": TEXT, "param": {"type": ["string", MAYBE]},
                     "code": {"type": ["string", MAYBE]}},
                    "message", "type",
                )
            },
            "error",
        ),
        "Sentence": _object({"error": TEXT}, "error"),
        "Translated": _object(
            {
                "translatedText": many,
                "alternatives": {"type": "array"},
                "detectedLanguage": {"anyOf": [_ref("Detected"), {"type": "array", "items": _ref("Detected")}]},
            },
            "translatedText",
        ),
        "Detected": _object({"confidence": {"type": "number"}, "language": TEXT}, "confidence", "language"),
        "Language": _object({"code": TEXT, "name": TEXT, "targets": {"type": "array", "items": TEXT}}, "code", "name"),
        "Health": _object({"status": TEXT}, "status"),
    }  # fmt: skip


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def page(about: dict[str, Any]) -> str:
    """The document for people: one page, which loads only the server's own style."""
    parts = [_section(path, method, operation, about["components"]["schemas"])
             for path, methods in about["paths"].items() for method, operation in methods.items()]  # fmt: skip
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Regard API</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/colours.css"><link rel="stylesheet" href="/static/serve.css"></head>
<body><header><h1>Regard API</h1>
<nav><a href="/">Try it</a> · <a href="/openapi.json">openapi.json</a></nav></header>
<main><p>{escape(about["info"]["description"])} <a href="https://platform.openai.com/docs/api-reference/completions"
rel="noreferrer">OpenAI's</a> and <a href="https://docs.libretranslate.com/" rel="noreferrer">LibreTranslate's</a> own
clients work without changes.</p>
{"".join(parts)}</main></body></html>
"""


def _section(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = ""
    if body := operation.get("requestBody"):
        schema = schemas[body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        for name, field in schema["properties"].items():
            needed = " (required)" if name in schema["required"] else ""
            means = field.get("description", "")
            if field.get("default"):
                means += f"; default: {field['default']}"
            rows += (
                f"<tr><th scope=row><code>{name}</code>{needed}</th><td>{escape(_kind(field))}</td>"
                f"<td>{escape(means)}</td></tr>"
            )
        rows = f"<table><thead><tr><th>field<th>type<th>description</thead><tbody>{rows}</tbody></table>"
    answers = "".join(
        f"<li><code>{code}</code> {escape(answer['description'])}" for code, answer in operation["responses"].items()
    )
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>"
        f"{rows}<ul>{answers}</ul></section>\n"
    )


def _kind(field: dict[str, Any]) -> str:
    """A field's allowed values, in a few words."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_kind(one) for one in field["anyOf"] if one.get("type") != MAYBE))
    if "enum" in field:
        return ", ".join(str(one) or '""' for one in field["enum"] if one is not None)
    if "const" in field:
        return str(field["const"])
    kind = field.get("type", "")
    said = kind if isinstance(kind, str) else ", ".join(one for one in kind if one != MAYBE)
    if "minimum" in field and "maximum" in field:
        said += f", {field['minimum']} to {field['maximum']}"
    if said != "array" or "items" not in field:
        return said
    inner = _kind(field["items"])
    return f"list of {inner if inner.startswith('list') else f'{inner}s'}".replace("list of list", "list of lists")
