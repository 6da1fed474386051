"""Dialogues as text: messages with roles, written by a chat template (Jinja, as Hugging Face's tokenizers have it).

[{"role": "user", "content": "Who watches?"}, {"role": "assistant", "content": "They do."}]

User: Who watches?⏎Assistant: They do.⏎            by PLAIN, the template of runs that have no other
└── read ──────────────────┘└── learned ─┘         the assistant's turns are the targets of training
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.base.errors import RegardError
from regard.base.fields import FieldError, shown
from regard.base.reading import read_whole
from regard.text import template_process

FILE = "chat_template.jinja"  # in the folder of a run, and of a model for Hugging Face
MAX_FILE_BYTES = 1 << 20
MAX_MESSAGES = 1000
SECONDS = 10.0  # seconds that a template may take for one dialogue
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
PLAIN = """\
{%- for message in messages -%}
{{ message.role | capitalize }}: {{ message.content.split() | join(' ') }}{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}Assistant:{% endif -%}
"""

Messages = Sequence[Mapping[str, str]]
SENTINEL = "\ue000"  # a placeholder for an answer, to find out what a template writes around it


def read_messages(value: Any, name: str = "messages") -> list[dict[str, str]]:
    """The messages of a dialogue, checked; of each its role and its text."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise FieldError(f"{name} must be a list of 1 to {MAX_MESSAGES} messages, not {_size(value)}.", name)
    return [_read_message(one, f"{name}[{place}]", name) for place, one in enumerate(value)]


def _size(value: Any) -> str:
    return f"of {len(value)}" if isinstance(value, list) else shown(value)


def _read_message(message: Any, where: str, field: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise FieldError(f'{where} must be an object such as {{"role": "user", "content": "Hello"}}.', field)
    if any(message.get(key) for key in ("tool_calls", "function_call", "tool_call_id")):
        raise FieldError(f"{where} calls a tool, but these models cannot use tools: remove the call.", field)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in ROLES:
        known = ", ".join(ROLES)
        raise FieldError(f"{where}.role must be one of {known}, not {shown(role)}.", field)
    if isinstance(content, list):
        content = "".join(_part(part, where, field) for part in content)
    if not isinstance(content, str):
        raise FieldError(f"{where}.content must be a string, not {shown(content)}.", field)
    return {"role": ROLES[role], "content": content}


def _part(part: Any, where: str, field: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(part.get("text"), str):
        raise FieldError(f"{where}.content has a part that is not text: these models read only text.", field)
    return str(part["text"])


class ChatTemplate:
    """Writes dialogues as text, in a separate process (`template_process.py`)."""

    def __init__(self, source: str = PLAIN, eos: str = "\n") -> None:
        """`eos`: what the template's eos_token writes. Its bos_token is empty: every text begins after a boundary."""
        self.source = source
        self._more = {"bos_token": "", "eos_token": eos}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def prompt(self, messages: Messages) -> str:
        """The dialogue up to where the assistant's answer begins."""
        return str(self._ask(messages, turns=False))

    def turns(self, messages: Messages) -> list[tuple[str, bool]]:
        """The parts of the dialogue, each with a flag that is true for the assistant's."""
        return [(text, said) for text, said in self._ask(messages, turns=True)]

    @cached_property
    def closing(self) -> str:
        """The end of an answer, such as a line end or <|im_end|>."""
        dialogue = [{"role": "user", "content": "?"}, {"role": "assistant", "content": SENTINEL}]
        after = "".join(text for text, _ in self.turns(dialogue)).partition(SENTINEL)[2]
        return after.strip() or "\n"

    def _ask(self, messages: Messages, *, turns: bool) -> Any:
        asked = {"template": self.source, "messages": list(messages), "turns": turns, "more": self._more}
        with self._lock:
            process = self._started()
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(asked) + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline() or "{}")
            except (OSError, ValueError):
                answer = {}
            finally:
                timer.cancel()
            if not answer:  # nobody else may ask a process that is about to end
                self.close()
                answer = {"error": f"it needs more than {SECONDS:g} seconds or too much memory"}
        if "error" in answer:
            raise RegardError(f"The chat template cannot render this dialogue: {answer['error']}.")
        return answer["turns" if turns else "text"]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-I", template_process.__file__]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
            )
            weakref.finalize(self, end, self._process)
        return self._process

    def close(self) -> None:
        if self._process is not None:
            end(self._process)
            self._process = None


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def read_template(folder: Path) -> str:
    """The chat template of a run; "" if it has none."""
    path = folder / FILE
    if not path.exists():
        return ""
    try:
        return read_whole(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise RegardError(f"{str(path)!r} is not UTF-8: restore it.") from None
