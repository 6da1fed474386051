"""The tokens of dialogues, with a mask of the assistant's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from secrets import token_hex
from typing import Any

import numpy as np

from regard.base.errors import RegardError
from regard.text.chat_template import ChatTemplate, Messages
from regard.text.dialogues import Dialogue
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray


def prompt_tokens(
    messages: Messages, template: ChatTemplate, tokenizer: Tokenizer, lock: AbstractContextManager[Any] | None = None
) -> list[int]:
    """The tokens that a model reads before it answers: the boundary, exactly once even if the template writes it, and
    the dialogue. A special token that is spelled out in a message stays plain text, so no message can end a turn. The
    tokenizer is used within `lock`; the template is not, because it may take long.
    """
    names = [tokenizer.token(special) for special in tokenizer.specials] if tokenizer.kind == "imported" else []
    mark, special = token_hex(), re.compile("|".join(map(re.escape, sorted(filter(None, names), key=len)[::-1])))
    if names:
        stands_in = {name: f"{mark}{number}{mark}" for number, name in enumerate(names)}
        messages = [
            {**one, "content": special.sub(lambda found: stands_in[found[0]], one["content"])} for one in messages
        ]
    written = template.prompt(messages).split(mark)  # every second part is the number of a name
    read: list[int] = []
    with lock or nullcontext():
        for place, part in enumerate(written):
            read += tokenizer.encode(names[int(part)]) if place % 2 else tokenizer.encode_template(part)
    return read if read[:1] == [tokenizer.begin] else [tokenizer.begin, *read]


def dialogue_tokens(dialogues: Iterable[str], tokenizer: Tokenizer) -> TokenArray:
    """The tokens of dialogues, each after the boundary, with a mask of the assistant's."""
    ids: list[int] = []
    said: list[bool] = []
    characters = lines = 0
    for dialogue in dialogues:
        assert isinstance(dialogue, Dialogue)
        turns = [(tokenizer.encode_template(text), text, by_assistant) for text, by_assistant in dialogue.turns]
        first = next((tokens[0] for tokens, _, _ in turns if tokens), None)
        if tokenizer.begin not in (tokenizer.eos, first):  # else the template writes it
            ids.append(tokenizer.begin)
            said.append(False)
        for tokens, text, by_assistant in turns:
            ids += tokens
            said += [by_assistant] * len(tokens)
            characters += len(text) * by_assistant
        if ids[-1:] != [tokenizer.eos]:
            ids.append(tokenizer.eos)
            said.append(False)
        lines += 1
    array, counted = np.array(ids, tokenizer.id_type), np.array(said, bool)
    if not counted.any():
        raise RegardError("These dialogues have no assistant turn, so there is nothing to learn.")
    unknown = int((array[counted] == tokenizer.unk).sum()) if tokenizer.unk is not None else 0
    return TokenArray(array, characters, lines, unknown, counted)
