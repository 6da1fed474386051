"""LibreTranslate's API over the translators served: /translate, /detect, /languages and /frontend/settings.

The source language is the one whose translator is surest of its own translation, where it is not given: the geometric
mean of the probabilities of its tokens, 0 to 100, times the share of the text that it has words for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regard.base.errors import RegardError
from regard.base.fields import FieldError, shown
from regard.base.numbers import group_digits
from regard.decoding.beam import BEAM, GREEDY_BEAM, Beam
from regard.runs.tasks.translation.answers import Translation
from regard.web.serve.html_segments import HtmlSegments
from regard.web.serve.requests import CHARACTERS, DetectRequest, TranslateRequest
from regard.web.serve.sentences_of import Sentences
from regard.web.serve.served_models import Served, ServedModels
from regard.web.serve.workers import SentenceJob, TranslationWorker

CUT = 200  # characters by which a language is told
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ko": "Korean",
    "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay", "nb": "Norwegian", "nl": "Dutch",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "th": "Thai", "tl": "Tagalog",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


class Translations:
    """The endpoints, without HTTP."""

    def __init__(self, models: ServedModels) -> None:
        self.models = models

    def languages(self) -> list[dict[str, Any]]:
        pairs = self.models.languages.values()
        return [
            {
                "code": code,
                "name": NAMES.get(code, code),
                "targets": sorted({target for source, target in pairs if source == code}),
            }
            for code in sorted({code for pair in pairs for code in pair})
        ]

    def settings(self, needs_key: bool) -> dict[str, Any]:
        pairs = list(self.models.languages.values()) or [("", "")]
        source, target = pairs[0]
        return {
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "charLimit": CHARACTERS,
            "frontendTimeout": 500,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "suggestions": False,
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"}
                if len(pairs) > 1
                else {"code": source, "name": NAMES.get(source, source)},
                "target": {"code": target, "name": NAMES.get(target, target)},
            },
        }

    async def detect(self, asked: DetectRequest) -> list[dict[str, Any]]:
        return await self._detect(asked.texts[0])

    async def translate(self, asked: TranslateRequest) -> dict[str, Any]:
        texts, many, source, target = asked.texts, isinstance(asked.q, tuple), asked.source, asked.target
        self._check_language(target, "target")
        detected = None
        if source == "auto":
            detected = (await self._detect(" ".join(texts), into=target))[0]
            source = detected["language"]
        else:
            self._check_language(source, "source")
        if source == target:
            found = [[text] for text in texts]
        else:
            translator = self._translator(source, target)
            found = await self._translate(translator, texts, asked.format == "html", asked.alternatives)
        said: dict[str, Any] = {"translatedText": [one[0] for one in found] if many else found[0][0]}
        if asked.alternatives:
            said["alternatives"] = [one[1:] for one in found] if many else found[0][1:]
        if detected is not None:
            said["detectedLanguage"] = [detected] * len(texts) if many else detected
        return said

    def _check_language(self, code: str, field: str) -> None:
        known = sorted({code for pair in self.models.languages.values() for code in pair})
        if code not in known:
            raise FieldError(f"{shown(code)} is not supported (available: {', '.join(known) or 'none'}).", field)

    def _translator(self, source: str, target: str) -> Served:
        for name, pair in self.models.languages.items():
            if pair == (source, target):
                return self.models.by_name[name]
        there = ", ".join(f"{one} → {other}" for one, other in self.models.languages.values()) or "none"
        raise FieldError(f"No model here translates {source} → {target} (available: {there}).", "target")

    async def _translate(self, served: Served, texts: Sequence[str], html: bool, alternatives: int) -> list[list[str]]:
        """The translation and alternatives of each text."""
        pages = [HtmlSegments(text) if html else None for text in texts]
        pieces = [page.texts if page else [text] for page, text in zip(pages, texts)]
        cut = [[Sentences(piece) for piece in group] for group in pieces]
        beam = Beam(max(BEAM.width, alternatives + 1), BEAM.length_penalty, alternatives + 1)
        found = await self._search(served, [one for group in cut for part in group for one in part.found], beam)
        remaining, said = iter(found), []
        for page, group in zip(pages, cut):
            results = [[next(remaining) for _ in part.found] for part in group]
            ways = []
            for rank in range(alternatives + 1):
                parts = [part.joined([_ranked(one, rank) for one in some]) for part, some in zip(group, results)]
                ways.append(page.filled(parts) if page else parts[0])
            said.append(list(dict.fromkeys(ways)))  # what has fewer ways to be said has fewer
        return said

    async def _search(self, served: Served, sentences: list[str], beam: Beam) -> list[list[Translation]]:
        worker = served.worker
        assert isinstance(worker, TranslationWorker)
        longest = worker.run.recipe.data.longest
        for sentence in sentences:
            try:
                length = await served.length(worker, sentence)
            except RegardError as error:
                raise FieldError(str(error), "q") from None
            if length > longest:
                raise FieldError(
                    f"A sentence has {group_digits(length)} tokens, but {served.name} was trained on at "
                    f"most {longest}: split it into shorter ones.",
                    "q",
                )
        jobs = [SentenceJob(sentence, beam) for sentence in sentences]
        with served.submitted(self.models.scheduler, worker, jobs):
            return [await job.next() for job in jobs]

    async def _detect(self, text: str, into: str | None = None) -> list[dict[str, Any]]:
        """The languages that the text may be in, the surest first."""
        found: dict[str, float] = {}
        for name, (source, target) in self.models.languages.items():
            if into is not None and target != into:
                continue
            served = self.models.by_name[name]
            sentences = Sentences(text[:CUT]).found[:3]
            known = served.known(text[:CUT])
            sure = await self._search(served, sentences, GREEDY_BEAM) if sentences else []
            tokens = sum(len(best.tokens) for best, *_ in sure)
            mean = sum(best.log_probability for best, *_ in sure) / max(tokens, 1)
            found[source] = max(found.get(source, 0.0), 100 * math.exp(mean) * known if tokens else 0.0)
        if not found:
            raise FieldError("The language could not be detected: no translator here can read this text.", "source")
        order = sorted(found, key=lambda code: -found[code])
        return [{"confidence": round(found[code], 1), "language": code} for code in order]


def _ranked(ways: list[Translation], rank: int) -> str:
    return ways[min(rank, len(ways) - 1)].text
