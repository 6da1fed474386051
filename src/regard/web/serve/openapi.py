"""The OpenAPI document of what is served, and the same as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from regard import __version__
from regard.web.serve import completions_api, translation_api

TEXT: dict[str, Any] = {"type": "string"}
MAYBE = "null"


def optional(kind: str, about: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, MAYBE], "description": about, **more}


def document(language_models: Sequence[str], languages: Sequence[str], needs_token: bool) -> dict[str, Any]:
    """OpenAPI 3.1; `languages`: the codes of the translators'."""
    secured: dict[str, Any] = {"security": [{"token": []}]} if needs_token else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Regard",
            "version": __version__,
            "description": "Language models as OpenAI's completions API, translators as LibreTranslate's.",
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


def _operation(name: str, about: str, good: dict[str, Any], error: str, *codes: str, **more: Any) -> dict[str, Any]:
    said = {
        "400": "what is wrong with the request", "401": "no token, or another", "403": "from a page of another site",
        "404": "there is no such model", "408": "the body did not come in time", "413": "the body is too long",
        "421": "sent to another name than this server's", "503": "all places are taken; see Retry-After",
    }  # fmt: skip
    refused = {code: _answer(said[code], _ref(error)) for code in ("401", "421", *codes)}
    good["description"] = good["description"] or "what was asked for"
    return {"operationId": name, "summary": about, "responses": {"200": good, **refused}, **more}


def _body(schema: str, *kinds: str) -> dict[str, Any]:
    content = {kind: {"schema": _ref(schema)} for kind in ("application/json", *kinds)}
    return {"required": True, "content": content}


def _paths() -> dict[str, Any]:
    sent = ("400", "403", "408", "413", "503")
    form = "application/x-www-form-urlencoded"
    streamed = {"text/event-stream": {"schema": TEXT}}
    completion = _answer("the texts; or, with stream, server-sent events that end with [DONE]", _ref("Completion"))
    completion["content"] |= streamed
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT, "description": "a model's id"}
    detected = {"type": "array", "items": _ref("Detected")}
    return {
        "/v1/models": {"get": _operation("listModels", "The language models", _answer("", _ref("Models")), "Error")},
        "/v1/models/{name}": {
            "get": _operation(
                "getModel", "One of them", _answer("", _ref("Model")), "Error", "404", parameters=[name]
            )
        },
        "/v1/completions": {
            "post": _operation(
                "complete", "Continue prompts, or score them", completion, "Error", "404", *sent,
                requestBody=_body("CompletionRequest"),
            )
        },
        "/translate": {
            "post": _operation(
                "translate", "Translate texts", _answer("", _ref("Translated")), "Sentence", *sent,
                requestBody=_body("Translate", form),
            )
        },
        "/detect": {
            "post": _operation(
                "detect", "Which language is this?", _answer("the surest first", detected), "Sentence", *sent,
                requestBody=_body("Detect", form),
            )
        },
        "/languages": {
            "get": _operation(
                "languages", "From and into which languages", _answer("", {"type": "array", "items": _ref("Language")}),
                "Sentence",
            )
        },
        "/frontend/settings": {
            "get": _operation("settings", "What a page for people needs", _answer("", {"type": "object"}), "Sentence")
        },
        "/health": {"get": _operation("health", "Does it answer?", _answer("", _ref("Health")), "Sentence")},
        "/metrics": {
            "get": _operation("metrics", "Numbers for Prometheus", _answer("", TEXT, "text/plain"), "Sentence")
        },
    }  # fmt: skip


def _schemas(models: Sequence[str], languages: Sequence[str]) -> dict[str, Any]:
    choices, texts = completions_api.CHOICES, {"type": "array", "items": TEXT, "minItems": 1}
    tokens = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    codes = {"type": "string", **({"enum": list(languages)} if languages else {})}
    question = {
        "model": {"type": "string", **({"enum": list(models)} if models else {})},
        "prompt": {
            "anyOf": [TEXT, texts, tokens, {"type": "array", "items": tokens, "minItems": 1}],
            "description": "a text, several, or tokens",
        },
        "max_tokens": optional("integer", "tokens to write; 16 if it is left out", minimum=0),
        "temperature": optional("number", "0 is greedy; 1 if it is left out", minimum=0, maximum=2),
        "top_p": optional("number", "draw from the most probable that hold this share", minimum=0, maximum=1),
        "top_k": optional("integer", "draw from so many of the most probable; 0 is all", minimum=0, maximum=2**31 - 1),
        "n": optional("integer", "texts for each prompt", minimum=1, maximum=choices),
        "best_of": optional("integer", "of so many texts, keep the n most probable", minimum=1, maximum=choices),
        "seed": optional("integer", "the same seed writes the same text", minimum=0, maximum=2**63 - 1),
        "stop": {
            "description": "a text, or up to 4, before which the text ends",
            "anyOf": [{"type": MAYBE}, {**TEXT, "minLength": 1, "maxLength": completions_api.LONGEST_STOP},
                      {"type": "array", "items": {**TEXT, "minLength": 1, "maxLength": completions_api.LONGEST_STOP},
                       "maxItems": completions_api.STOPS}],
        },
        "echo": optional("boolean", "the prompt before the text"),
        "logprobs": optional("integer", "log-probabilities, and of so many alternatives", minimum=0, maximum=5),
        "stream": optional("boolean", "server-sent events as the text is written"),
        "stream_options": {
            "type": ["object", MAYBE], "properties": {"include_usage": {"type": ["boolean", MAYBE]}},
            "description": "of a stream: include_usage",
        },
        "presence_penalty": {"enum": [0, None], "description": "not supported"},
        "frequency_penalty": {"enum": [0, None], "description": "not supported"},
        "suffix": optional("string", "not supported", maxLength=0), "user": optional("string", "not used"),
        "logit_bias": optional("object", "not supported", maxProperties=0),
    }  # fmt: skip
    many = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    return {
        "CompletionRequest": _object(question, "model", closed=True),
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
        "Model": _object({"id": TEXT, "object": {"const": "model"}, "created": {"type": "integer"}}, "id"),
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
        "Translate": _object(
            {
                "q": {"anyOf": [TEXT, texts], "description": "a text, or several"},
                "source": {"anyOf": [codes, {"const": "auto"}], "description": "a language, or auto"},
                "target": {**codes, "description": "a language"},
                "format": {"enum": ["text", "html"], "description": "html keeps the mark-up"},
                "alternatives": {
                    "type": "integer", "minimum": 0, "maximum": translation_api.ALTERNATIVES,
                    "description": "other ways to say it",
                },
                "api_key": {**TEXT, "description": "the server's token"}, "secret": {**TEXT, "description": "not used"},
            },
            "q", "source", "target", closed=True,
        ),
        "Translated": _object(
            {
                "translatedText": many,
                "alternatives": {"type": "array"},
                "detectedLanguage": {"anyOf": [_ref("Detected"), {"type": "array", "items": _ref("Detected")}]},
            },
            "translatedText",
        ),
        "Detect": _object(
            {"q": {"anyOf": [TEXT, texts]}, "api_key": {**TEXT, "description": "the server's token"}}, "q", closed=True
        ),
        "Detected": _object({"confidence": {"type": "number"}, "language": TEXT}, "confidence", "language"),
        "Language": _object({"code": TEXT, "name": TEXT, "targets": {"type": "array", "items": TEXT}}, "code", "name"),
        "Health": _object({"status": TEXT}, "status"),
    }  # fmt: skip


def _object(properties: dict[str, Any], *required: str, closed: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    return {**made, "additionalProperties": False} if closed else made


def page(about: dict[str, Any]) -> str:
    """The document for people: one page, which loads only the server's own style."""
    parts = [_section(path, method, operation, about["components"]["schemas"])
             for path, methods in about["paths"].items() for method, operation in methods.items()]  # fmt: skip
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Regard: the API</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/colours.css"><link rel="stylesheet" href="/static/serve.css"></head>
<body><header><h1>Regard: the API</h1>
<nav><a href="/">Try it</a> · <a href="/openapi.json">openapi.json</a></nav></header>
<main><p>{escape(about["info"]["description"])} <a href="https://platform.openai.com/docs/api-reference/completions"
rel="noreferrer">OpenAI's</a> and <a href="https://docs.libretranslate.com/" rel="noreferrer">LibreTranslate's</a> own
clients work with it unchanged.</p>
{"".join(parts)}</main></body></html>
"""


def _section(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = ""
    if body := operation.get("requestBody"):
        schema = schemas[body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        for name, field in schema["properties"].items():
            needed = " (needed)" if name in schema["required"] else ""
            rows += (
                f"<tr><th scope=row><code>{name}</code>{needed}</th><td>{escape(_kind(field))}</td>"
                f"<td>{escape(field.get('description', ''))}</td></tr>"
            )
        rows = f"<table><thead><tr><th>field<th>is<th>means</thead><tbody>{rows}</tbody></table>"
    answers = "".join(
        f"<li><code>{code}</code> {escape(answer['description'])}" for code, answer in operation["responses"].items()
    )
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>"
        f"{rows}<ul>{answers}</ul></section>\n"
    )


def _kind(field: dict[str, Any]) -> str:
    """What a field may be, in a few words."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_kind(one) for one in field["anyOf"] if one.get("type") != MAYBE))
    if "enum" in field:
        return ", ".join("null" if one is None else str(one) for one in field["enum"])
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
