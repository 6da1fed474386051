"""The laws every system and layer obeys, as functions of a model and a draw; numbers and wording are the contract's.

A law raises AssertionError where it is broken. Models come in fp64 and eval(); a layer is tested inside a Stack of one.
Laws 7 (beam 1 = greedy) and 12 (micro-batches) are about decoding and training and stand with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.layers.state import State, detach, map_state, select_rows
from regard.systems.model import Model

TOLERANCE = 1e-10  # fp64; sums in another order, nothing more


@dataclass(frozen=True)
class Draw:
    """One random case: tokens, how they are cut into calls, which columns are real."""

    seed: int
    rows: int
    columns: int

    def generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed * 1000 + sum(purpose.encode()))

    def integers(self, purpose: str, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator(purpose))

    def tokens(self, model: Model, purpose: str = "tokens", columns: int | None = None) -> Tensor:
        return self.integers(purpose, 0, model.vocabulary, self.rows, columns or self.columns)

    def lengths(self, purpose: str = "lengths", columns: int | None = None) -> Tensor:
        """Ragged lengths from 0 to all columns; one row is full, and of three or more one is empty."""
        columns = columns or self.columns
        lengths = self.integers(purpose, 0, columns + 1, self.rows)
        full, empty = torch.randperm(self.rows, generator=self.generator(purpose))[[0, -1]]
        if self.rows > 2:
            lengths[empty] = 0
        lengths[full] = columns
        return lengths

    def pieces(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The columns cut at random places."""
        cuts = self.integers("cuts", 0, 2, tokens.size(1) - 1).nonzero().flatten() + 1
        return tokens.tensor_split(cuts.tolist(), dim=1)


# -- comparing -------------------------------------------------------------------------------------------------------


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def leaves(state: State, path: str = "") -> Iterator[tuple[str, Tensor]]:
    for name, part in state.items():
        if isinstance(part, dict):
            yield from leaves(part, f"{path}{name}.")
        else:
            assert isinstance(part, Tensor), f"{path}{name} is no tensor"
            yield path + name, part


def same_state(one: State, other: State) -> None:
    """The same names, and the same values to the tolerance; caches may differ beyond what was read."""
    assert [name for name, _ in leaves(one)] == [name for name, _ in leaves(other)]
    for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=True):
        close(a, b)


def gradients(model: Model, logits: Tensor) -> list[Tensor]:
    """The gradient of a fixed random combination of the logits with respect to every parameter."""
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0), dtype=logits.dtype)
    parameters = list(model.parameters())
    if not parameters:
        return []
    return list(torch.autograd.grad((logits * weights).sum(), parameters, materialize_grads=True))


def real(values: Tensor, lengths: Tensor) -> Tensor:
    """The real columns of all rows, one after the other."""
    return values[torch.arange(values.size(1)) < lengths[:, None]]


# -- the laws --------------------------------------------------------------------------------------------------------


def cutting_changes_nothing(model: Model, draw: Draw) -> None:
    """1: cutting a sequence into calls changes neither logits nor gradients."""
    tokens = draw.tokens(model)
    whole, end = model(tokens)
    pieces, state = [], None
    for piece in draw.pieces(tokens):
        logits, state = model(piece, state)
        pieces.append(logits)
    close(torch.cat(pieces, dim=1), whole)
    same_state(state or {}, end)
    for cut, uncut in zip(gradients(model, torch.cat(pieces, dim=1)), gradients(model, whole), strict=True):
        close(cut, uncut)


def the_future_changes_nothing(model: Model, draw: Draw) -> None:
    """2: token t changes nothing before t, exactly."""
    tokens = draw.tokens(model)
    t = int(draw.integers("when", 0, draw.columns, 1))
    other = tokens.clone()
    other[:, t:] = draw.tokens(model, "other")[:, t:]
    with torch.no_grad():
        assert torch.equal(model(tokens)[0][:, :t], model(other)[0][:, :t])


def padding_changes_nothing(model: Model, draw: Draw) -> None:
    """3: padding, junk in padding and batch-mates change nothing, also in the calls that follow."""
    for capacity in (None, 3 * draw.columns):
        calls = [(draw.tokens(model, f"tokens {n}"), draw.lengths(f"lengths {n}")) for n in range(3)]
        together, state = [], model.begin(rows=draw.rows, capacity=capacity)
        with torch.no_grad():
            for tokens, lengths in calls:
                logits, state = model(tokens, state, lengths)
                assert logits.isfinite().all(), "a padded column is not finite"
                together.append(logits)
            for row in state["seen"].nonzero().flatten():  # each row that read anything, by itself
                parts = [
                    (tokens[row, : lengths[row]], logits[row, : lengths[row]])
                    for (tokens, lengths), logits in zip(calls, together, strict=True)
                ]
                alone, _ = model(torch.cat([tokens for tokens, _ in parts])[None])
                close(torch.cat([logits for _, logits in parts]), alone[0])
        assert torch.equal(state["seen"], sum(lengths for _, lengths in calls))


def probabilities_sum_to_one(model: Model, draw: Draw) -> None:
    """4: probabilities sum to 1; and the loss is −log of these, word for word, and 0 in padding."""
    tokens, lengths = draw.tokens(model), draw.lengths()
    with torch.no_grad():
        first, start = model(tokens[:, :1])
        logits, _ = model(tokens, start, lengths)
        probabilities = real(logits, lengths).softmax(dim=-1)
        total = torch.zeros(len(probabilities), dtype=probabilities.dtype)
        for word in range(model.vocabulary):
            surprise, _ = model.loss(tokens, torch.full_like(tokens, word), start, lengths)
            assert surprise.shape == tokens.shape
            assert (surprise[torch.arange(draw.columns) >= lengths[:, None]] == 0).all(), "padding costs something"
            close((-real(surprise, lengths)).exp(), probabilities[:, word])
            total += (-real(surprise, lengths)).exp()
    close(total, torch.ones_like(total))
    assert first.shape == (draw.rows, 1, model.vocabulary)


def the_fast_path_is_the_equation(model: Model, draw: Draw) -> None:
    """5: the fast path equals the written equation, values and gradients."""
    for lengths in (None, draw.lengths()):
        fast_state = slow_state = None
        fast_all, slow_all = [], []
        for n in range(2):  # a fresh call and one that continues
            tokens = draw.tokens(model, f"tokens {n}")
            fast, fast_state = model(tokens, fast_state, lengths)
            slow, slow_state, _ = model.explain(tokens, slow_state, lengths)
            fast_all.append(fast if lengths is None else real(fast, lengths)[None])
            slow_all.append(slow if lengths is None else real(slow, lengths)[None])
        fast, slow = torch.cat(fast_all, dim=1), torch.cat(slow_all, dim=1)
        close(fast, slow)
        if lengths is None:
            same_state(fast_state or {}, slow_state or {})
        for one, other in zip(gradients(model, fast), gradients(model, slow), strict=True):
            close(one, other)


def saving_keeps_every_bit(model: Model, draw: Draw, again: Callable[[], Model]) -> None:
    """6: save → load bit-equal. `again` builds the model anew, untrained."""
    tokens = draw.tokens(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)
        other = again()
        other.load_state_dict(load_file(path))
        with torch.no_grad():
            logits, state = model(tokens)
            loaded, loaded_state = other(tokens)
    assert torch.equal(logits, loaded)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(leaves(state), leaves(loaded_state), strict=True))


def a_call_leaves_its_state_unchanged(model: Model, draw: Draw) -> None:
    """8: a functional call leaves its input state unchanged."""
    state = model.begin(rows=draw.rows)
    with torch.no_grad():
        for n, lengths in enumerate((None, draw.lengths(), None)):
            before = map_state(torch.clone, state)
            _, new = model(draw.tokens(model, f"tokens {n}"), state, lengths)
            for (name, one), (same, other) in zip(leaves(before), leaves(state), strict=True):
                assert name == same
                assert torch.equal(one, other), f"{name} was altered"
            state = new


def fixed_capacity_is_growing(model: Model, draw: Draw) -> None:
    """9: fixed capacity = growing, leaf shapes and dtypes stable; and addresses, for a captured graph."""
    calls = [
        (draw.tokens(model, "prompt"), draw.lengths("prompt")),
        (draw.tokens(model, "word", 1), None),
        (draw.tokens(model, "word or none", 1), draw.lengths("word or none", 1)),
        (draw.tokens(model, "more"), draw.lengths("more")),
        (draw.tokens(model, "rest", 2), None),
    ]
    most = int(sum(torch.full((draw.rows,), t.size(1)) if lengths is None else lengths for t, lengths in calls).max())
    growing, fixed = model.begin(rows=draw.rows), model.begin(rows=draw.rows, capacity=most)  # not one slot to spare
    shape = [(name, leaf.shape, leaf.dtype, leaf.data_ptr()) for name, leaf in leaves(fixed)]
    with torch.no_grad():
        for tokens, lengths in calls:
            grown, growing = model(tokens, growing, lengths)
            logits, fixed = model(tokens, fixed, lengths)
            lengths = torch.full((draw.rows,), tokens.size(1)) if lengths is None else lengths
            close(real(logits, lengths), real(grown, lengths))
            assert logits.isfinite().all()
            assert [(name, leaf.shape, leaf.dtype, leaf.data_ptr()) for name, leaf in leaves(fixed)] == shape


def reordering_commutes(model: Model, draw: Draw) -> None:
    """10: reorder then continue = continue then reorder."""
    index = draw.integers("index", 0, draw.rows, draw.rows + 1)  # a row may be repeated, dropped, or added
    for capacity in (None, 2 * draw.columns):
        with torch.no_grad():
            _, state = model(draw.tokens(model), model.begin(rows=draw.rows, capacity=capacity), draw.lengths())
            chosen = select_rows(state, index)
            tokens = draw.tokens(model, "more")
            reordered, _ = model(tokens[index], chosen)
            continued, _ = model(tokens, state)
        close(reordered, continued[index])


def length_zero_freezes(model: Model, draw: Draw) -> None:
    """11: length 0 freezes: the row goes on as if the call had not been."""
    frozen = draw.lengths() == 0
    frozen[-1] = True
    for capacity in (None, 3 * draw.columns):
        with torch.no_grad():
            _, before = model(draw.tokens(model), model.begin(rows=draw.rows, capacity=capacity))
            kept = map_state(torch.clone, before)
            for n, columns in enumerate((draw.columns, 1)):  # the ragged path and the single step
                lengths = torch.full((draw.rows,), columns).masked_fill(frozen, 0)
                if columns == 1 and capacity is not None:
                    lengths.zero_()
                _, before = model(draw.tokens(model, f"junk {n}", columns), before, lengths)
            tokens = draw.tokens(model, "more", 2)
            after, state = model(tokens, before)
            same, _ = model(tokens, kept)
        close(after[frozen], same[frozen])
        assert (state["seen"][frozen] == draw.columns + 2).all()


def nothing_flows_across_a_detach(model: Model, draw: Draw) -> None:
    """14: nothing flows across a detach; and without one, something does."""
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    if not weights:
        return
    _, state = torch.func.functional_call(model, weights, (draw.tokens(model),))
    for cut, reached in ((detach(state), False), (state, True)):
        logits, _ = model(draw.tokens(model, "more"), cut)
        found = torch.autograd.grad(logits.square().sum(), list(weights.values()), allow_unused=True, retain_graph=True)
        assert any(gradient is not None and gradient.any() for gradient in found) == reached


SENTENCES = (  # the notes' batch, and their translation example
    "students opened their books",
    "people walked their dog",
    "the classroom fell silent",
    "they are watching them",
)


def it_memorises_four_sentences(model: Model, steps: int = 200, learning_rate: float = 1e-2) -> None:
    """13a: each neural system memorises four sentences."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    assert model.vocabulary >= len(words)
    text = torch.tensor([[words.index(word) for word in sentence.split()] for sentence in SENTENCES])
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    model.train()
    for _ in range(steps):
        loss = model.loss(text[:, :-1], text[:, 1:])[0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        assert model.loss(text[:, :-1], text[:, 1:])[0].max() < 0.1, "not memorised"
        assert torch.equal(model(text[:, :-1])[0].argmax(dim=-1), text[:, 1:])


def untrained_it_knows_nothing(model: Model, draw: Draw) -> None:
    """13b: its untrained loss ≈ log V."""
    tokens, targets = draw.tokens(model), draw.tokens(model, "targets")
    with torch.no_grad():
        surprise = float(model.loss(tokens, targets)[0].mean())
    assert abs(surprise - log(model.vocabulary)) < 0.05, f"{surprise} is not log {model.vocabulary}"


LAWS: tuple[Callable[[Model, Draw], Any], ...] = (
    cutting_changes_nothing,
    the_future_changes_nothing,
    padding_changes_nothing,
    probabilities_sum_to_one,
    the_fast_path_is_the_equation,
    a_call_leaves_its_state_unchanged,
    fixed_capacity_is_growing,
    reordering_commutes,
    length_zero_freezes,
    nothing_flows_across_a_detach,
)
