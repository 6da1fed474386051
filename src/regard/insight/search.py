"""Beam search as a tree: the best candidates of every step, kept or pruned.

The tree is recorded by observing `beam_search` itself, so it shows exactly this search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from regard.decoding.beam import Beam, Hypothesis, Step, beam_search
from regard.insight.trace import Branch
from regard.layers.state import State
from regard.systems.model import Model
from regard.text.tokenizers.tokenizer import Tokenizer


def search_tree(
    model: Model,
    logits: Tensor,
    state: State,
    tokenizer: Tokenizer,
    *,
    how: Beam,
    max_tokens: int,
    forbidden: Sequence[int] = (),
) -> tuple[list[Hypothesis], tuple[Branch, ...]]:
    """The hypotheses after `logits` [1, V] and `state`, best first, and the tree they were found in."""
    tree = Tree(tokenizer)
    (found,) = beam_search(
        model,
        logits,
        state,
        width=how.width,
        length_penalty=how.length_penalty,
        n_best=how.n_best,
        max_tokens=max_tokens,
        eos=tokenizer.eos,
        forbidden=forbidden,
        watch=tree.grow,
    )
    for rank, hypothesis in enumerate(found, start=1):
        tree.crown(hypothesis, rank)
    return found, tuple(tree.branches)


class Tree:
    """Grows by one search step at a time; a path is identified by its tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.branches: list[Branch] = []
        self._paths: list[tuple[int, ...]] = []  # the tokens that lead to each branch
        self._open = [-1]  # the branches that the next step extends, by slot
        self._steps = 0

    def grow(self, step: Step) -> None:
        self._steps += 1
        opened = []
        columns = (step.total, step.parents, step.tokens, step.kept, step.live)
        for total, slot, token, kept, live in zip(*(column[0].tolist() for column in columns)):
            if total == float("-inf"):
                continue  # the rest are empty
            parent = self._open[slot]
            if live:
                opened.append(len(self.branches))
            text, ends = self.tokenizer.token(token), kept and token == self.tokenizer.eos
            self.branches.append(Branch(parent, self._steps, text, total, kept, ends))
            self._paths.append((*(self._paths[parent] if parent >= 0 else ()), token))
        self._open = opened

    def crown(self, hypothesis: Hypothesis, rank: int) -> None:
        """Mark the last branch of a returned hypothesis."""
        place = self._paths.index(tuple(hypothesis.tokens))
        text = self.tokenizer.decode(hypothesis.text_tokens).strip()
        self.branches[place] = replace(self.branches[place], rank=rank, score=hypothesis.score, text=text)
