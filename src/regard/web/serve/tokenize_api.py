"""Text to tokens and back over HTTP, in vLLM's form: /tokenize, /detokenize and /tokenizer_info.

lm-evaluation-harness cuts its requests with them (`tokenizer_backend=remote`). The boundary before a text is written as
a line end, which is the same token; /v1/completions takes tokens with it or without it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from regard.web.serve.completions_api import Completions
from regard.web.serve.requests import (
    BadRequest,
    DetokenizeRequest,
    TokenizeRequest,
    TokenizerInfoRequest,
    refuse_tokens,
)
from regard.web.serve.served_models import SHORT, Served, longest_of
from regard.web.serve.workers import LanguageWorker


class Tokenization:
    """The endpoints, without HTTP."""

    def __init__(self, completions: Completions) -> None:
        self.completions = completions

    def find(self, name: str | None) -> tuple[Served, LanguageWorker]:
        """The model of this name; without one, the only one."""
        known = list(self.completions.models.language_models)
        if name is None and len(known) > 1:
            raise BadRequest(f"model must be one of {', '.join(known)}, but is missing.", "model")
        return self.completions.find(name or "".join(known))

    async def tokenize(self, asked: TokenizeRequest) -> dict[str, Any]:
        served, worker = self.find(asked.model)
        tokenizer = worker.run.tokenizer

        def encode() -> list[int]:
            with served.lock:
                return tokenizer.encode(asked.prompt)

        tokens = encode() if len(asked.prompt) <= SHORT else await asyncio.to_thread(encode)
        if asked.add_special_tokens:
            tokens = [tokenizer.begin, *tokens]
        words = [tokenizer.token(token) for token in tokens] if asked.return_token_strs else None
        return {"count": len(tokens), "max_model_len": longest_of(worker.run), "tokens": tokens, "token_strs": words}

    async def detokenize(self, asked: DetokenizeRequest) -> dict[str, Any]:
        _, worker = self.find(asked.model)
        refuse_tokens("tokens", asked.tokens, worker.run.tokenizer.vocabulary)
        return {"prompt": worker.run.tokenizer.decode(asked.tokens)}

    def info(self, asked: TokenizerInfoRequest) -> dict[str, Any]:
        _, worker = self.find(asked.model)
        tokenizer = worker.run.tokenizer
        boundary = tokenizer.decode([tokenizer.eos]) or tokenizer.token(tokenizer.eos)
        return {
            "tokenizer_class": tokenizer.kind,
            "bos_token": boundary,
            "eos_token": boundary,
            "vocab_size": tokenizer.vocabulary,
            "model_max_length": longest_of(worker.run),
            "chat_template": worker.run.template.source,
        }
