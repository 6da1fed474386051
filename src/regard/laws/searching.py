"""The law of decoding: beam 1 equals greedy."""

from __future__ import annotations

import torch

from regard.decoding.beam import GREEDY_BEAM, beam_search
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import GREEDY
from regard.decoding.translate import translate
from regard.laws.closeness import RandomCase, hold
from regard.systems.model import Model
from regard.systems.translator import Translator

EOS = 0  # any word will do here


def beam_one_is_greedy(model: Model, draw: RandomCase) -> None:
    """7: beam 1 = greedy, for prompts or sources of different lengths read together and alone."""
    if isinstance(model, Translator):
        return translations_are_greedy(model, draw)
    lengths = draw.lengths("prompts").clamp(min=1).tolist()
    prompts = [row[:length] for row, length in zip(draw.tokens(model, "prompts").tolist(), lengths)]
    steps = generate(model, prompts, max_tokens=draw.columns, eos=EOS, sampling=GREEDY, lines=1)
    greedy = [[token for token in row if token is not None] for row in zip(*steps)]
    for prompt, line in zip(prompts, greedy, strict=True):
        logits, state = read_prompts(model, [prompt], None)
        (found,) = beam_search(model, logits, state, width=1, max_tokens=draw.columns, eos=EOS)
        _same(found[0].tokens, line)


def translations_are_greedy(model: Translator, draw: RandomCase) -> None:
    """All sources in one batch with beam 1, against each alone by repeated argmax."""
    sources = draw.integers("sources", 1, model.source_vocabulary, draw.rows, draw.columns).tolist()
    sources = [row[:length] for row, length in zip(sources, draw.lengths("sources").tolist())]
    together = translate(model, sources, eos=EOS, beam=GREEDY_BEAM, max_tokens=draw.columns)
    for source, (found,) in zip(sources, together, strict=True):
        _same(found.tokens, _most_probable(model, source, draw.columns))


@torch.no_grad()
def _most_probable(model: Translator, source: list[int], most: int) -> list[int]:
    line: list[int] = []
    state = model.begin(torch.tensor([[*source, EOS]]))
    while len(line) < most and line[-1:] != [EOS]:
        logits, state = model(torch.tensor([[line[-1] if line else EOS]]), state)
        line.append(int(logits[0, -1].argmax()))
    return line


def _same(found: list[int], line: list[int]) -> None:
    hold(
        found == line,
        f"a beam of 1 writes {found} but greedy decoding writes {line}: a row must not depend on the other rows, on "
        "padding or on the kind of state",
    )
