"""The graphs that a page runs: the reference implementation of a system, with all its intermediate values.

    begin      source, lengths → state, and the parts of the encoder                      of a translator
               source, lengths → logits [sources, labels], and the parts                  of a classifier
    read       tokens, lengths, state → hidden, new state, and the parts
    predict    hidden → logits

The same graph generates text and shows the inside of the model: it is exported from `explain`, and a page computes only
what the requested outputs depend on. The parts are named as in a trace: `attention/self/0`, `hidden/layer/0`, and
`gates/layer/0/forget`.

Where the equation notes a part (`layers/parts.py`), the graph has an operator `Part`, which returns its input. A page
changes a part there, and everything after it reads the changed value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import onnx_ir as ir
import torch
from onnx.defs import OpSchema
from onnxscript.values import Op, Opset
from torch import Tensor
from torch._higher_order_ops.scan import scan

from regard.exchange import onnx_graphs
from regard.exchange.onnx_graphs import Call, Read, leaves, nested, source_example, tokens_example
from regard.insight.parts import Inside, look_inside, look_inside_encoder
from regard.layers import attention
from regard.layers.matrix_state import MIN_NORMALIZER, LinearAttention, remaining
from regard.layers.parts import note, watched_by
from regard.layers.scan import MinGRU
from regard.layers.state import Span, State, last, span_of
from regard.systems.classifier import Classifier
from regard.systems.model import Model
from regard.systems.translator import Translator


@torch.library.custom_op("regard::part", mutates_args=())
def part(value: Tensor, name: str, backwards: bool) -> Tensor:
    """The value, as a separate operator in the graph."""
    return value.clone()


@part.register_fake
def _(value: Tensor, name: str, backwards: bool) -> Tensor:
    return torch.empty_like(value)


PART = Op(
    Opset("regard", 1),
    "Part",
    OpSchema(
        "Part", "regard", 1,
        inputs=[OpSchema.FormalParameter("value", "T")],
        outputs=[OpSchema.FormalParameter("changed", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[
            OpSchema.Attribute("name", OpSchema.AttrType.STRING), OpSchema.Attribute("backwards", OpSchema.AttrType.INT)
        ],
    ),
)  # fmt: skip


def write_part(value: object, name: str, backwards: bool) -> object:
    return PART(value, name=name, backwards=int(backwards))


trace = partial(onnx_graphs.trace, operators={torch.ops.regard.part.default: write_part})


class PartsInGraph:
    """Makes every noted part an operator; a watcher for `layers/parts.py`."""

    place: tuple[str, ...] = ()
    step: int | None = None
    backwards = False

    def see(self, name: str, value: Tensor) -> Tensor:
        return part(value, "/".join(one for one in (*self.place, name) if one), self.backwards)


def graphs(model: Model) -> Iterator[tuple[str, ir.Model]]:
    """The graphs of a model by name."""
    with in_graph(), watched_by(PartsInGraph()):
        if isinstance(model, Classifier):
            yield "begin", trace(model, Label(model), *source_example())
            return
        if isinstance(model, Translator):
            yield "begin", trace(model, ReadSource(model), *source_example())
        given, free = tokens_example(model)
        yield "read", trace(model, ReadTokens(model), given, free)
    state = {name: leaf for name, leaf in given.items() if name not in ("tokens", "lengths")}
    with torch.no_grad():
        hidden, _ = model.read(given["tokens"], nested(state))
    yield "predict", trace(model, Predict(model), {"hidden": hidden}, {"hidden": {0: "rows", 1: "columns"}})


class ReadTokens(Read):
    def forward(self, tokens: Tensor, lengths: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        before = nested(state)
        span = span_of(before["seen"], lengths)
        try:
            hidden, past, parts = self.model.explain_context(tokens, before, span)
        except NotImplementedError:  # a user's own system may not have `explain`
            (hidden, past), parts = self.model.hidden_states(tokens, before, span), {}
        new = leaves({**before, "seen": span.end(tokens.size(1)), "past": past})
        found = {"hidden": hidden} | {f"new.{path}": new[path] for path in state if not path.startswith("source.")}
        return found | named(self._inside(parts)) | self._aligned(parts)

    def _inside(self, parts: State) -> Inside:
        inside = look_inside(parts)
        if isinstance(self.model, Translator):
            inside.attention = self.model.attention(parts)
        return inside

    def _aligned(self, parts: State) -> dict[str, Tensor]:
        aligned = self.model.alignment(parts) if isinstance(self.model, Translator) else None
        return {} if aligned is None else {"alignment": aligned.clone()}


class Predict(Call):
    def forward(self, hidden: Tensor) -> dict[str, Tensor]:
        return {"logits": self.model.predict(hidden)}


class ReadSource(Call):
    def forward(self, source: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        encoded, parts = self.model.explain_encode(source, lengths)
        state = leaves(self.model.begin_from(encoded, source, lengths))
        return state | named(look_inside_encoder(parts))


class Label(Call):
    def forward(self, source: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        encoded, parts = self.model.explain_encode(source, lengths)
        inside = look_inside_encoder(parts)
        inside.hidden["hidden"] = encoded["whole"][:, None]
        found = {"logits": self.model.predict(encoded["whole"])}
        return found | named(inside)


def named(inside: Inside) -> dict[str, Tensor]:
    """The parts by kind and name, each a separate tensor: a graph must not return the same tensor twice."""
    return {f"{kind}/{name}": part.clone() for kind, parts in vars(inside).items() for name, part in parts.items()}


# -- recurrences that PyTorch would unroll ---------------------------------------------------------------------------


def explain_min_gru(self: MinGRU, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
    """`MinGRU.explain` as one loop of the graph."""
    update, candidate = self.gates(x)
    update, candidate = note("update", update), note("candidate", candidate)

    def one(hidden: Tensor, now: list[Tensor]) -> tuple[Tensor, Tensor]:
        new = note("hidden", (1 - now[0]) * hidden + now[0] * now[1])
        return new, new.clone()

    _, steps = scan(one, state["hidden"].clone(), [update.transpose(0, 1), candidate.transpose(0, 1)])
    every = steps.transpose(0, 1)
    parts = {"update": update, "candidate": candidate, "hidden": every}
    return every, {"hidden": last(every, state["hidden"], span)}, parts


def explain_linear(self: LinearAttention, x: Tensor, state: State, span: Span) -> tuple[Tensor, State, State]:
    """`LinearAttention.explain` as one loop of the graph."""
    query, key, value, decay, write = self.prepare(x, span)

    def one(before: Tensor, now: list[Tensor]) -> tuple[Tensor, Tensor]:
        query, key, value, decay, *write = now
        matrix = decay[:, :, None, None].exp() * before
        new = write[0][:, :, None] * (value - (key[:, :, None] @ matrix)[:, :, 0]) if write else value
        matrix = matrix + key[..., None] * new[:, :, None]
        return matrix, (query[:, :, None] @ matrix)[:, :, 0]

    columns = [part.movedim(2, 0) for part in (query, key, value, decay, *([] if write is None else [write]))]
    matrix, steps = scan(one, self.opened(state, query.dtype).clone(), columns)
    read = steps.movedim(0, 2)
    parts: State = {"matrix": self.closed(matrix)["matrix"], "decay": decay.exp().transpose(1, 2)}
    if write is None:
        parts["weights"] = remaining(decay.cumsum(dim=-1)) * (query @ key.mT) / read[..., -1:].clamp(min=MIN_NORMALIZER)
    else:
        parts["write"] = write.transpose(1, 2)
    heads = note("heads", self.divide(read))
    return self.join_heads(heads.to(x.dtype)), self.closed(matrix), parts


@contextmanager
def in_graph() -> Iterator[None]:
    """MinGRU and LinearAttention loop in the graph, for any number of columns. Attention to a source is not
    rearranged for hypotheses, since a page has one for each source."""
    written = MinGRU.explain, LinearAttention.explain, attention._by_hypothesis
    try:
        MinGRU.explain, LinearAttention.explain = explain_min_gru, explain_linear  # type: ignore[method-assign]
        attention._by_hypothesis = lambda part, x: part
        yield
    finally:
        MinGRU.explain, LinearAttention.explain, attention._by_hypothesis = written  # type: ignore[method-assign]
