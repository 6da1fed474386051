"""The tokens of dialogues, and which of them the assistant says."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from regard.base.errors import RegardError
from regard.text.dialogues import Dialogue
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.tokens import TokenArray


def dialogue_tokens(dialogues: Iterable[str], tokenizer: Tokenizer) -> TokenArray:
    """The tokens of dialogues, each after the boundary, and which of them the assistant says."""
    ids: list[int] = []
    said: list[bool] = []
    characters = lines = 0
    for dialogue in dialogues:
        assert isinstance(dialogue, Dialogue)
        if tokenizer.begin != tokenizer.eos:
            ids.append(tokenizer.begin)
            said.append(False)
        for text, by_assistant in dialogue.turns:
            tokens = tokenizer.encode_template(text)
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
