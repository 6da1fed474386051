"""Texts that a model reads without writing: OpenAI's /v1/embeddings, for every neural model, and vLLM's /classify.

A request is read in pieces of a few texts between the steps of other requests, so nobody waits for the whole of it.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.base.fields import shown
from regard.web.serve.requests import BadRequest, ClassifyRequest, EmbeddingRequest
from regard.web.serve.served_models import Full, Served, ServedModels, longest_of
from regard.web.serve.workers import ClassificationWorker, LanguageWorker

AT_ONCE = 16  # texts


class Inputs:
    """The endpoints, without HTTP."""

    def __init__(self, models: ServedModels) -> None:
        self.models = models

    async def embed(self, asked: EmbeddingRequest) -> dict[str, Any]:
        served = self._find(asked.model, list(self.models.by_name))
        run = served.worker.run
        tokenizer = run.source_tokenizer or run.tokenizer
        with served.lock:
            lengths = [len(tokenizer.encode(text)) for text in asked.texts]
        if isinstance(served.worker, LanguageWorker) and max(lengths) >= (most := longest_of(served.worker.run)):
            number, count = lengths.index(max(lengths)) + 1, max(lengths) + 1
            raise BadRequest(f"Text {number} has {count} tokens, but the model reads {most}: cut it.", "input")
        found = await self._each(served, asked.texts, lambda some: run.embed(some, layer=asked.layer, pool=asked.pool))
        vectors = np.concatenate(found).astype("<f4")
        is_binary = asked.encoding_format == "base64"
        data = [
            {"object": "embedding", "index": number,
             "embedding": base64.b64encode(row.tobytes()).decode() if is_binary else row.tolist()}
            for number, row in enumerate(vectors)
        ]  # fmt: skip
        usage = {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
        return {"object": "list", "model": served.name, "data": data, "usage": usage}

    async def classify(self, asked: ClassifyRequest) -> dict[str, Any]:
        classifiers = [
            name for name, one in self.models.by_name.items() if isinstance(one.worker, ClassificationWorker)
        ]
        served = self._find(asked.model, classifiers)
        run: Any = served.worker.run
        found = await self._each(served, asked.texts, lambda some: list(run.labellings(some)))
        data = []
        for number, labelling in enumerate(one for some in found for one in some):
            if not (ranked := labelling.top(len(run.labels))):
                raise BadRequest(f"Text {number + 1} of input is empty: remove it.", "input")
            labels, probabilities = zip(*ranked)
            more = {"labels": list(labels), "probs": list(probabilities), "num_classes": len(labels)}
            data.append({"index": number, "label": labels[0], **more})
        made = {"id": f"classify-{secrets.token_hex(12)}", "object": "list", "created": int(time.time())}
        return {**made, "model": served.name, "data": data}

    def _find(self, name: str, known: Sequence[str]) -> Served:
        if name not in known:
            sentence = f"There is no model {shown(name)} here; available: {', '.join(known) or 'none'}."
            raise BadRequest(sentence, "model", 404, "model_not_found")
        return self.models.by_name[name]

    async def _each(self, served: Served, texts: Sequence[str], work: Callable[[Sequence[str]], Any]) -> list[Any]:
        """The results for a few texts at a time, in the models' thread; the request takes one place."""
        if served.inside >= served.places:
            raise Full
        served.inside += 1
        try:
            call = self.models.scheduler.call
            return [await call(partial(work, texts[n : n + AT_ONCE])) for n in range(0, len(texts), AT_ONCE)]
        except RegardError as error:
            raise BadRequest(str(error), "input") from None
        finally:
            served.inside -= 1
