"""The process that renders a chat template: templates are not trusted, and their language can loop and allocate.

It reads one JSON object per line and answers with one: {"text": …}, {"turns": …} or {"error": …}. Jinja's sandbox keeps
a template from Python; this process has little memory, and `chat_template.py` ends it if an answer takes too long.
It imports nothing from Regard, so it starts quickly.
"""

import json
import sys
import time
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 512 << 20  # bytes of the process
LONGEST = 4 << 20  # characters of a rendered dialogue


def render(template: Any, messages: list[dict[str, str]], more: dict[str, Any], *, answering: bool) -> str:
    """The dialogue as text; `answering`: up to where the assistant's answer begins."""
    pieces, length = [], 0
    for piece in template.generate(messages=messages, add_generation_prompt=answering, **more):
        pieces.append(piece)
        length += len(piece)
        if length > LONGEST:
            raise ValueError(f"its output is longer than {LONGEST:,} characters")
    return "".join(pieces)


def turns(template: Any, messages: list[dict[str, str]], more: dict[str, Any]) -> list[tuple[str, bool]]:
    """The parts of the dialogue: the assistant's messages (True), and the text between them (False)."""
    parts: list[tuple[str, bool]] = []
    before = ""

    def add(text: str, said: bool) -> None:
        nonlocal before
        if not text.startswith(before):
            raise ValueError("it renders a turn differently when another follows, so turns cannot be told apart")
        parts.append((text[len(before) :], said))
        before = text

    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            add(render(template, messages[:place], more, answering=True), False)
            add(render(template, messages[: place + 1], more, answering=False), True)
    add(render(template, messages, more, answering=False), False)
    return [part for part in parts if part[0]]


def refuse(sentence: str) -> None:
    raise TemplateError(sentence)


@lru_cache(1)
def compiled(source: str) -> Any:
    """The template, with the names that templates of Hugging Face use."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    made.globals |= {"raise_exception": refuse, "strftime_now": time.strftime}
    return made.from_string(source)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        template = compiled(asked["template"])
        if asked["turns"]:
            return {"turns": turns(template, asked["messages"], asked["more"])}
        return {"text": render(template, asked["messages"], asked["more"], answering=True)}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except Exception as error:  # any error of a template
        return {"error": " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__}


def main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):  # Windows, or there is already a tighter limit
        pass
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
