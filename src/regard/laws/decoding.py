"""The law of decoding: what is written does not depend on how it was searched for."""

from __future__ import annotations

from regard.decoding.beam import beam_search
from regard.decoding.generate import generate, read_prompts
from regard.decoding.sampling import GREEDY
from regard.laws.comparing import Draw, hold
from regard.systems.model import Model

EOS = 0  # which word ends a line is the tokenizer's choice; any will do here


def beam_one_is_greedy(model: Model, draw: Draw) -> None:
    """7: beam 1 = greedy, for prompts of different lengths read together and alone."""
    lengths = draw.lengths("prompts").clamp(min=1).tolist()
    prompts = [row[:length] for row, length in zip(draw.tokens(model, "prompts").tolist(), lengths)]
    steps = generate(model, prompts, max_tokens=draw.columns, eos=EOS, sampling=GREEDY, lines=1)
    greedy = [[token for token in row if token is not None] for row in zip(*steps)]
    for prompt, line in zip(prompts, greedy, strict=True):
        logits, state = read_prompts(model, [prompt], None)
        (found,) = beam_search(model, logits, state, width=1, max_tokens=draw.columns, eos=EOS)
        hold(
            found[0].tokens == line,
            f"a beam of 1 writes {found[0].tokens} and greedy {line}: a row must not depend on its batch-mates, on "
            "padding or on the kind of state",
        )
