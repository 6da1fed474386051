"""Change a named part of a model while it computes.

    with regard.intervene(model, "self/0[2]", 0.0):        the output of head 2 in the first layer is 0
        logits, state = model(tokens)

A place is a name as printed by a trace, optionally with a component and a column: `layer/1/forget[5]@3` is unit 5 of
the forget gate of the second layer at the fourth column, `self/0[2]` a head, `layer/0` the output of a layer,
`layer/0/hidden@3` and `layer/0/cell@3` the state of a recurrent layer, `embedding@2` a word's vector,
`encoder/embedding@2` that of a source word, `order/3` of an n-gram its trigrams. `self/0/weights` are the attention
weights of the heads. A change is a number, a tensor, or a function of the value. Columns are counted from the beginning
of the text, even if it is read or generated word by word.

Every call in the context uses the reference implementation (`explain`), so it is slower and not bit-identical to the
fast path.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.base.arguments import checked
from regard.base.errors import RegardError
from regard.base.settings import did_you_mean
from regard.insight.trace import Trace
from regard.layers.parts import watched_by
from regard.systems.model import Model
from regard.systems.translator import Translator

Change = Callable[[Tensor], Tensor] | Tensor | float
BY_HEAD = ("heads", "weights")  # [R, H, T, …]; all other parts are [R, T, …]
PLACE = re.compile(r"([^\[\]@]+)(?:\[(\d+)\])?(?:@(\d+))?")
_LOCK = threading.RLock()  # one thread intervenes at a time


@dataclass(frozen=True, eq=False)
class Place:
    """A part, or one head or unit of it, in all columns or one, of all rows or one."""

    name: str
    index: int | Tensor | None = None
    column: int | None = None
    row: int | None = None  # None: all of them

    @staticmethod
    def parse(text: str) -> Place:
        match = PLACE.fullmatch(text)
        if match is None:
            raise RegardError(
                f"{text!r} does not name a part: write layer/0, self/0[2] (a head) or layer/0/cell@3 (a column)."
            )
        name, index, column = match.groups()
        return Place(name, index and int(index), column and int(column))  # type: ignore[arg-type]

    @property
    def part(self) -> str:
        """The name by which layers note it: self/0 is layer/0/heads."""
        kind, _, rest = self.name.partition("/")
        number, _, last = rest.partition("/")
        if kind == "self" and number:
            return f"layer/{number}/{last or 'heads'}"
        return f"layer/{number}/cross/{last or 'heads'}" if kind == "cross" and number else self.name

    def region(
        self, value: Tensor, step: int | None = None, backwards: bool = False, seen: int = 0
    ) -> tuple[Any, ...] | None:
        """Its indices in `value`; None if it is not in these columns, which come after `seen` others."""
        by_head = self.part.rpartition("/")[2] in BY_HEAD
        columns = None if step is not None or value.dim() < 3 else value.size(2 if by_head else 1)
        column: Any = slice(None) if self.column is None else self.column - seen
        if self.column is not None and columns is not None:
            if not 0 <= column < columns:
                if seen or columns == 1:  # word by word: it is computed in another call
                    return None
                raise RegardError(f"{self.name} has {columns} columns, so there is no column {self.column}.")
            column = columns - 1 - column if backwards else column
        if columns is None and self.column is not None and step is not None and column != step:
            return None
        size = value.size(1 if by_head else -1)
        if isinstance(self.index, int) and self.index >= size:
            raise RegardError(f"{self.name} has {size} components, so there is no component {self.index}.")
        index: Any = slice(None) if self.index is None else self.index
        row: Any = slice(None) if self.row is None else self.row
        if by_head:
            return row, index, column
        return (row, index) if columns is None else (row, column, ..., index)


class Watch:
    """Gives every part its full name and visits it once; see `layers/parts.py`."""

    def __init__(self) -> None:
        self.place: tuple[str, ...] = ()
        self.step: int | None = None
        self.backwards = False
        self.columns = 0  # columns of the text that a cell reads backwards
        self.seen = 0  # columns that earlier calls have read
        self.met: dict[str, set[int | None]] = {}
        self.thread = threading.get_ident()

    def see(self, name: str, value: Tensor) -> Tensor:
        if threading.get_ident() != self.thread:
            return value
        name = "/".join(part for part in (*self.place, name) if part)
        step = self.columns - 1 - self.step if self.backwards and self.step is not None else self.step
        if step in self.met.setdefault(name, set()):
            return value  # a cell's loop notes its memory again
        self.met[name].add(step)
        return self.meet(name, value, step)

    def meet(self, name: str, value: Tensor, step: int | None) -> Tensor:
        raise NotImplementedError


class PartRecorder(Watch):
    """Records every part: [R, H, T, …] for heads, [R, T, …] for others, columns in the order of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}

    def meet(self, name: str, value: Tensor, step: int | None) -> Tensor:
        if step is None:
            flip = self.backwards and value.dim() > 2
            self.values[name] = value.flip(1) if flip else value
        else:
            self.values.setdefault(name, {})[step] = value
        return value

    def parts(self) -> dict[str, Tensor]:
        return {
            name: value if isinstance(value, Tensor) else torch.stack([value[step] for step in sorted(value)], dim=1)
            for name, value in self.values.items()
        }


class Changes(Watch):
    def __init__(self, changes: Sequence[tuple[Place, Change]] = ()) -> None:
        super().__init__()
        self.by_part: dict[str, list[tuple[Place, Change]]] = {}
        self.extend(changes)

    def extend(self, changes: Sequence[tuple[Place, Change]]) -> None:
        for place, change in changes:
            self.by_part.setdefault(place.part, []).append((place, change))

    def meet(self, name: str, value: Tensor, step: int | None) -> Tensor:
        wanted = self.by_part.get(name)
        if not wanted:
            return value
        changed = value.clone()
        for place, change in wanted:
            if (region := place.region(value, step, self.backwards, self.seen)) is not None:
                here = changed[region]
                new = change(here) if callable(change) else change
                try:
                    changed[region] = torch.as_tensor(new, device=value.device).to(value.dtype)
                except (RuntimeError, TypeError, ValueError):
                    shape = f"a tensor of shape {list(new.shape)}" if isinstance(new, Tensor) else repr(new)[:40]
                    raise RegardError(
                        f"{place.name} has the shape {list(here.shape)} here and cannot become {shape}: "
                        "give a number, or a tensor that fits."
                    ) from None
        return changed

    def check(self, mine: Callable[[str], bool]) -> None:
        """Raises if the call `mine` should have computed a place and did not."""
        for part, wanted in self.by_part.items():
            if part not in self.met and mine(part):
                name = wanted[0][0].name
                raise RegardError(f"There is no place {name!r}{did_you_mean(name, names_of(list(self.met)))}")


def names_of(parts: Sequence[str]) -> list[str]:
    """The names of a trace: layer/0/heads is self/0."""
    kinds = {r"layer/(\d+)/cross/heads": r"cross/\1", r"layer/(\d+)/heads": r"self/\1"}
    for pattern, name in kinds.items():
        parts = [re.sub(f"^{pattern}$", name, part) for part in parts]
    return list(parts)


def parsed(changes: Mapping[str, Change]) -> list[tuple[Place, Change]]:
    return [(Place.parse(place), change) for place, change in changes.items()]


@checked
def intervene(
    model: Model, place: str, change: Callable[[Tensor], Tensor] | Tensor | float
) -> AbstractContextManager[None]:
    """Replace the value of a part of a model in every call within a `with` block.

    These calls use the step-by-step reference implementation. Blocks can be nested.

    Args:
        model: The model, such as `run.model`.
        place: The name of a part as a trace prints it: "self/0[2]" is a head, "layer/0/cell@3" a column.
        change: A number or a tensor that replaces the value, or a function of the value.

    Returns:
        The context manager.

    Raises:
        RegardError: If `place` is not the name of a part, or, within the block, if the model has no such part.
    """
    return changing(model, [(Place.parse(place), change)])


@contextmanager
def changing(model: Model, changes: Sequence[tuple[Place, Change]]) -> Iterator[None]:
    """Within the context, every call of the model uses the reference implementation with these changes."""
    outer: list[tuple[Place, Change]] = vars(model).get("_changes", [])
    every = [*outer, *changes]

    kind = type(model)
    decodes = kind.explain is not Model.explain or kind.explain_context is not Model.explain_context

    def in_encoder(part: str) -> bool:
        return part.startswith("encoder/") or not decodes

    def in_decoder(part: str) -> bool:
        return not in_encoder(part)

    def watch(explain: Any, mine: Callable[[str], bool] = in_decoder) -> Any:
        def explained(*given: Any, **named: Any) -> Any:
            changes = Changes(every)
            changes.columns = given[0].size(1)
            state = named.get("state", given[1] if len(given) > 1 else None)
            changes.seen = int(state["seen"][0]) if isinstance(state, dict) else 0
            with watched_by(changes):
                result = explain(*given, **named)
            changes.check(mine)
            return result

        return explained

    methods: dict[str, Any] = {"_changes": every, "explain": watch(kind.explain.__get__(model))}
    methods["forward"] = lambda *given, **named: model.explain(*given, **named)[:2]
    methods["loss"] = Model.loss.__get__(model)
    if decodes and kind.explain is Model.explain:
        methods["hidden_states"] = lambda *given: watch(kind.explain_context.__get__(model))(*given)[:2]
    if isinstance(model, Translator):
        methods["explain_encode"] = watch(partial(type(model).explain_encode, model), in_encoder)
        methods["encode"] = lambda *given: model.explain_encode(*given)[0]
    with _LOCK:
        before = {name: vars(model)[name] for name in methods if name in vars(model)}
        vars(model).update(methods)
        try:
            yield
        finally:
            for name in methods:
                del vars(model)[name]
            vars(model).update(before)


def record(model: Model, tokens: Tensor, source: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits [R, T, V] and every part by name, for tokens [R, T], by the reference implementation."""
    recorder = PartRecorder()
    with _LOCK, watched_by(recorder):
        state = None
        if source is not None:
            assert isinstance(model, Translator)
            recorder.columns = source.size(1)
            state = model.begin_from(model.explain_encode(source, None)[0], source, None)
        recorder.columns = tokens.size(1)
        logits, _, _ = model.explain(tokens, state)
    return logits, recorder.parts()


def trace_changed(model: Model, changes: Mapping[str, Change] | None, trace: Callable[[], Trace]) -> Trace:
    """A trace of the changed model, with a note on the changes."""
    if not changes:
        return trace()
    with changing(model, parsed(changes)):
        changed = trace()
    said = f"Changed: {', '.join(changes)}. Every number is computed with this change, by the reference equations."
    return replace(changed, notes=(said, *changed.notes))
