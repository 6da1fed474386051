"""The laws of the call, as functions of a model and a draw; numbers and wording are the contract's.

A law raises `Broken` if it does not hold. Models are in fp64 and eval(); a layer is tested inside a Stack.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.laws.closeness import (
    LOGITS,
    RandomCase,
    close,
    equal,
    gradients,
    hold,
    leaves,
    real,
    same_gradients,
    same_state,
)
from regard.layers.cell import Cell
from regard.layers.state import State, detach, map_state, select_rows, select_sources
from regard.systems.model import Model
from regard.systems.translator import Translator


def asking_twice_changes_nothing(model: Model, draw: RandomCase) -> None:
    """Before any law: the same call gives the same result, or results could not be compared."""
    tokens = draw.tokens(model)
    with torch.no_grad():
        once, _ = model(tokens, draw.start(model))
        again, _ = model(tokens, draw.start(model))
    equal(
        again,
        once,
        "repeating the same call changes the logits",
        "a module must not store anything between calls (its memory belongs in the state it returns), "
        "and must not draw random numbers in eval()",
        LOGITS,
    )


def cutting_changes_nothing(model: Model, draw: RandomCase) -> None:
    """1: splitting a sequence into several calls changes neither logits nor gradients."""
    tokens = draw.tokens(model)
    whole, end = model(tokens, draw.start(model))
    pieces, state = [], draw.start(model)
    for piece in draw.pieces(tokens):
        logits, state = model(piece, state)
        pieces.append(logits)
    cut, what = torch.cat(pieces, dim=1), f"splitting {draw.columns} tokens into {len(pieces)} calls changes"
    why = "the returned state lacks something that the next call needs, or something is stored outside it"
    close(cut, whole, f"{what} the logits", why, LOGITS)
    same_state(state or {}, end, f"{what} the last state", why)
    same_gradients(gradients(model, cut), gradients(model, whole), f"{what} the gradient", why)


def the_future_changes_nothing(model: Model, draw: RandomCase) -> None:
    """2: token t changes nothing before t, exactly."""
    tokens = draw.tokens(model)
    t = int(draw.integers("when", 0, draw.columns, 1))
    other = tokens.clone()
    other[:, t:] = draw.tokens(model, "other")[:, t:]
    with torch.no_grad():
        before, after = (model(words, draw.start(model))[0][:, :t] for words in (tokens, other))
    equal(
        after,
        before,
        f"changing the tokens from position {t} on changes the logits",
        "a column may attend to itself and to earlier columns, never to later ones",
        LOGITS,
    )


def padding_changes_nothing(model: Model, draw: RandomCase) -> None:
    """3: padding, its content and the other rows of a batch change nothing, in this call or later ones."""
    tokens = draw.tokens(model)
    with torch.no_grad():
        together, _ = model(tokens, draw.start(model))
        for row in range(draw.rows):
            close(
                together[row],
                model(tokens[row : row + 1], draw.start(model, row=row))[0][0],
                f"reading {draw.rows} texts in one batch changes the logits of one of them",
                "rows must not be mixed: sum, average and normalize over components or columns, never over rows",
                ("position", ""),
            )
    for capacity in (None, 3 * draw.columns):
        _padding_changes_nothing(model, draw, capacity)


def _padding_changes_nothing(model: Model, draw: RandomCase, capacity: int | None) -> None:
    calls = [(draw.tokens(model, f"tokens {n}"), draw.lengths(f"lengths {n}")) for n in range(3)]
    together, state = [], draw.begin(model, capacity=capacity)
    with torch.no_grad():
        for tokens, lengths in calls:
            logits, state = model(tokens, state, lengths)
            hold(
                logits.isfinite().all(),
                "a padded column gives logits that are not finite: logits must be finite even where they are unused",
            )
            together.append(logits)
        for row in state["seen"].nonzero().flatten().tolist():  # each row that read anything, by itself
            parts = [
                (tokens[row, : lengths[row]], logits[row, : lengths[row]])
                for (tokens, lengths), logits in zip(calls, together, strict=True)
            ]
            alone, _ = model(torch.cat([tokens for tokens, _ in parts])[None], draw.start(model, row=row))
            close(
                torch.cat([logits for _, logits in parts]),
                alone[0],
                "padding changes the logits",
                "a padded column must leave its row's state as it was (span.valid marks the real columns)",
                ("position", ""),
            )
    hold(
        torch.equal(state["seen"], torch.stack([lengths for _, lengths in calls]).sum(0)),
        'state["seen"] is not the number of real tokens read: it must grow by each row\'s length',
    )


def probabilities_sum_to_one(model: Model, draw: RandomCase) -> None:
    """4: probabilities sum to 1; and the loss is −log of these, word for word, and 0 in padding."""
    tokens, lengths = draw.tokens(model), draw.lengths()
    with torch.no_grad():
        first, start = model(tokens[:, :1], draw.start(model))
        shape = (draw.rows, 1, model.vocabulary)
        hold(first.shape == shape, f"logits have shape {list(first.shape)} and not {list(shape)}: one for every word")
        logits, _ = model(tokens, start, lengths)
        probabilities = real(logits, lengths).softmax(dim=-1)
        words = []
        for word in range(model.vocabulary):
            surprise, _ = model.loss(tokens, torch.full_like(tokens, word), start, lengths)
            hold(surprise.shape == tokens.shape, f"the loss has shape {list(surprise.shape)}: one number per token")
            padded = surprise[torch.arange(draw.columns) >= lengths[:, None]]
            hold((padded == 0).all(), "the loss of a padded column is not 0")
            words.append((-real(surprise, lengths)).exp())
    total = torch.stack(words).sum(0)
    why = "the loss must be −log of a probability that the whole vocabulary shares (log_softmax of the logits)"
    close(total, torch.ones_like(total), f"the vocabulary's probabilities sum to {float(total[0]):.4g}, off", why)
    close(torch.stack(words, dim=-1), probabilities, "the loss differs from −log softmax(logits)", why)


def the_fast_path_is_the_equation(model: Model, draw: RandomCase) -> None:
    """5: the fast path equals the written equation, values and gradients."""
    why = "`explain` and `forward` do not compute the same values"
    for lengths in (None, draw.lengths()):
        fast_state, slow_state = draw.start(model), _written_start(model, draw)
        fast_all, slow_all = [], []
        for n in range(2):  # a fresh call and one that continues
            tokens = draw.tokens(model, f"tokens {n}")
            fast, fast_state = model(tokens, fast_state, lengths)
            slow, slow_state, _ = model.explain(tokens, slow_state, lengths)
            fast_all.append(fast if lengths is None else real(fast, lengths)[None])
            slow_all.append(slow if lengths is None else real(slow, lengths)[None])
        fast, slow = torch.cat(fast_all, dim=1), torch.cat(slow_all, dim=1)
        axes = LOGITS if lengths is None else ()
        close(fast, slow, "the fast path differs from the written equation in the logits", why, axes)
        if lengths is None:
            what = "the fast path differs from the written equation in the state"
            fast_past, slow_past = (_without_source(state or {}) for state in (fast_state, slow_state))
            same_state(fast_past, slow_past, what, why)
        what = "the fast path differs from the written equation in the gradient"
        same_gradients(gradients(model, fast), gradients(model, slow), what, why)


def _written_start(model: Model, draw: RandomCase) -> State | None:
    """A translator's initial state, with the source also read by the written equation."""
    if not isinstance(model, Translator):
        return None
    source, lengths = draw.sources(model)
    encoded, _ = model.explain_encode(source, lengths)
    fast = model.encode(source, lengths)["memory"]
    close(
        real(fast, lengths),
        real(encoded["memory"], lengths),
        "the fast path differs from the written equation in the memory",
        "`explain_encode` and `encode` do not compute the same values",
    )
    return model.begin_from(encoded, source, lengths)


def _without_source(state: State) -> State:
    """The state without the source, whose padded columns are unspecified."""
    return {name: part for name, part in state.items() if name != "source"}


def saving_keeps_every_bit(model: Model, draw: RandomCase, again: Callable[[], Model]) -> None:
    """6: save → load bit-equal. `again` builds a new, untrained model."""
    tokens = draw.tokens(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)
        other = again()
        other.load_state_dict(load_file(path))
    with torch.no_grad():
        logits, state = model(tokens, draw.start(model))
        loaded, loaded_state = other(tokens, draw.start(other))
    why = "everything it learns must be in nn.Parameters or registered buffers"
    equal(loaded, logits, "saving and loading changes the logits", why, LOGITS)
    for (name, a), (_, b) in zip(leaves(loaded_state), leaves(state), strict=True):
        equal(a, b, f"saving and loading changes the state ({name})", why)


def a_call_leaves_its_state_unchanged(model: Model, draw: RandomCase) -> None:
    """8: a functional call leaves its input state unchanged."""
    state = draw.begin(model)
    with torch.no_grad():
        for n, lengths in enumerate((None, draw.lengths(), None)):
            held, before = dict(leaves(state)), map_state(torch.clone, state)
            _, new = model(draw.tokens(model, f"tokens {n}"), state, lengths)
            _holds_the_same(state, held)
            for name, leaf in leaves(before):
                why = "create new tensors and a new dict, and do not write into the old ones"
                equal(held[name], leaf, f"a call alters the state it was given ({name})", why)
            state = new
        for cell in model.modules():
            if isinstance(cell, Cell) and type(cell).step is not Cell.step:
                given = cell.begin(draw.rows, device=model.device, dtype=torch.float64)
                held = dict(given)
                cell.step(torch.ones(draw.rows, cell.inputs, device=model.device, dtype=torch.float64), given)
                _holds_the_same(given, held)


def _holds_the_same(state: State, held: dict[str, Tensor]) -> None:
    """The dict still has its keys and, under each, the same unchanged tensor."""
    now = dict(leaves(state))
    altered = [name for name in {**held, **now} if now.get(name) is not held.get(name)]
    hold(not altered, f"a call alters the state it was given ({', '.join(altered)}): make a new dict")


def fixed_capacity_is_growing(model: Model, draw: RandomCase) -> None:
    """9: fixed capacity = growing, leaf shapes and dtypes stable; and addresses, for a captured graph."""
    calls = [
        (draw.tokens(model, "prompt"), draw.lengths("prompt")),
        (draw.tokens(model, "word", 1), None),
        (draw.tokens(model, "word or none", 1), draw.lengths("word or none", 1)),
        (draw.tokens(model, "more"), draw.lengths("more")),
        (draw.tokens(model, "rest", 2), None),
    ]
    lengths_of = [torch.full((draw.rows,), t.size(1)) if lengths is None else lengths for t, lengths in calls]
    most = int(torch.stack(lengths_of).sum(0).max())
    growing, fixed = draw.begin(model), draw.begin(model, capacity=most)  # exactly enough slots
    form = _form(fixed)
    with torch.no_grad():
        for (tokens, lengths), real_columns in zip(calls, lengths_of, strict=True):
            grown, growing = model(tokens, growing, lengths)
            logits, fixed = model(tokens, fixed, lengths)
            close(
                real(logits, real_columns),
                real(grown, real_columns),
                "a state with a capacity changes the logits",
                "both kinds of state must remember the same",
            )
            hold(logits.isfinite().all(), "a state with a capacity gives logits that are not finite")
            for name, now in _form(fixed).items():
                hold(
                    now == form.get(name),
                    f"with a capacity, the state's {name} changed its shape, dtype or address: write in place",
                )


def _form(state: State) -> dict[str, tuple[torch.Size, torch.dtype, int]]:
    return {name: (leaf.shape, leaf.dtype, leaf.data_ptr()) for name, leaf in leaves(state)}


def reordering_commutes(model: Model, draw: RandomCase) -> None:
    """10: reorder then continue = continue then reorder."""
    if isinstance(model, Translator):
        return _hypotheses_share_their_source(model, draw)
    index = draw.integers("index", 0, draw.rows, draw.rows + 1)  # a row may be repeated, dropped, or added
    for capacity in (None, 2 * draw.columns):
        with torch.no_grad():
            _, state = model(draw.tokens(model), draw.begin(model, capacity=capacity), draw.lengths())
            for name, leaf in leaves(state):
                hold(
                    leaf.dim() > 0 and leaf.size(0) == draw.rows,
                    f"the state's {name} has shape {list(leaf.shape)} for {draw.rows} rows: rows come first",
                )
            chosen = select_rows(state, index)
            tokens = draw.tokens(model, "more")
            reordered, _ = model(tokens[index], chosen)
            continued, _ = model(tokens, state)
        close(
            reordered,
            continued[index],
            "reordering the state's rows and continuing changes the logits",
            "everything a row remembers must be in its own row of the state",
            LOGITS,
        )


def _hypotheses_share_their_source(model: Translator, draw: RandomCase, width: int = 3) -> None:
    """For a translator rows are hypotheses: those of one source may be exchanged, and whole sources dropped."""
    rows = RandomCase(draw.seed, draw.rows * width, draw.columns)
    first, more, lengths = rows.tokens(model), rows.tokens(model, "more"), rows.lengths()
    places = torch.arange(draw.rows)[:, None] * width
    index = (places + draw.integers("hypotheses", 0, width, draw.rows, width)).flatten()
    kept = draw.integers("sources", 0, draw.rows, draw.rows)  # a source may be repeated or dropped
    kept_rows = (kept[:, None] * width + torch.arange(width)).flatten()
    for capacity in (None, 2 * draw.columns):
        with torch.no_grad():
            shared, state = model(first, draw.begin(model, width=width, capacity=capacity), lengths)
            source, source_lengths = (part.repeat_interleave(width, dim=0) for part in draw.sources(model))
            copied, _ = model(first, model.begin(source, source_lengths, capacity=capacity), lengths)
            _has_its_rows(state, draw.rows, width)
            chosen, fewer = select_rows(state, index), select_sources(state, kept, width)
            reordered, _ = model(more[index], chosen)
            selected, _ = model(more[kept_rows], fewer)
            continued, _ = model(more, state)
        what = "several hypotheses of one source have different logits than copies of the source"
        close(real(shared, lengths), real(copied, lengths), what, "row r must look at source r // width")
        why = "the text of a hypothesis must be in its own row of the state, and its source in the row of the source"
        close(reordered, continued[index], "reordering hypotheses and continuing changes the logits", why, LOGITS)
        close(selected, continued[kept_rows], "selecting sources and continuing changes the logits", why, LOGITS)


def _has_its_rows(state: State, sources: int, width: int) -> None:
    for name, leaf in leaves(state):
        rows = sources if name.startswith("source.") else sources * width
        hold(
            leaf.dim() > 0 and leaf.size(0) == rows,
            f"the state's {name} has shape {list(leaf.shape)} for {sources} sources of {width} hypotheses: "
            "shared tensors have one row per source, all others one row per hypothesis",
        )


def length_zero_freezes(model: Model, draw: RandomCase) -> None:
    """11: length 0 freezes: the row continues as if the call had not happened."""
    frozen = draw.lengths() == 0
    frozen[-1] = True
    for capacity in (None, 3 * draw.columns):
        with torch.no_grad():
            _, before = model(draw.tokens(model), draw.begin(model, capacity=capacity))
            kept = map_state(torch.clone, before)
            for n, columns in enumerate((draw.columns, 1)):  # the ragged path and the single step
                lengths = torch.full((draw.rows,), columns).masked_fill(frozen, 0)
                if columns == 1 and capacity is not None:
                    lengths.zero_()
                _, before = model(draw.tokens(model, f"junk {n}", columns), before, lengths)
            tokens = draw.tokens(model, "more", 2)
            after, state = model(tokens, before)
            same, _ = model(tokens, kept)
        close(
            after[frozen],
            same[frozen],
            "a call with length 0 changes the row's next prediction",
            "where span.lengths is 0 the new state must be the old one (torch.where)",
            LOGITS,
        )
        hold((state["seen"][frozen] == draw.columns + 2).all(), 'a call with length 0 changes state["seen"]')


def nothing_flows_across_a_detach(model: Model, draw: RandomCase) -> None:
    """14: no gradient flows across a detach; without one, some does, if the earlier text matters at all."""
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    if not weights:
        return
    _, state = torch.func.functional_call(model, weights, (draw.tokens(model), draw.start(model)))
    more = draw.tokens(model, "more")

    def flows(given: State) -> bool:
        logits, _ = model(more, given)
        found = torch.autograd.grad(logits.square().sum(), list(weights.values()), allow_unused=True, retain_graph=True)
        return any(gradient is not None and bool(gradient.any()) for gradient in found)

    hold(  # first, before another call replaces what is stored there
        not flows(detach(state)), "gradients reach back across a detached state: something is stored outside the state"
    )
    # To a window of one word it does not.
    matters = not torch.equal(model(more, state)[0], model(more, draw.start(model))[0])
    carries = any(leaf.requires_grad for _, leaf in leaves(state))  # words alone carry no gradient
    hold(
        flows(state) or not (matters and carries),
        "no gradient reaches back through the state, though it matters: it is cut on the way (detach, no_grad)",
    )


CALLS: tuple[Callable[[Model, RandomCase], None], ...] = (
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
