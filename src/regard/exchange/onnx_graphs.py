"""A neural run as ONNX graphs: the one call of every system, for any program that has an ONNX runtime.

    begin.onnx     source [sources, source_columns], lengths [sources] → state                        of a translator
    model.onnx     tokens [rows, columns], lengths [rows], state → logits [rows, columns, V], new state
                   of a classifier: source, lengths → logits [sources, labels]
    weights.bin    the weights of both graphs, once
    model.json     the inputs and outputs of each graph, by name

All named sizes are free: one token is columns = 1, and a state before any token has past = 0. The leaves of a state are
inputs and outputs by their paths: `past.0.hidden` in, `new.past.0.hidden` out. The part that a translator's hypotheses
share, `source.…`, is only an input; the rows of a source are adjacent: rows = sources × hypotheses of each.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
import torch._dynamo.config
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript import opset18
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim

from regard.base.errors import RegardError
from regard.base.numbers import with_article
from regard.base.writing import write_text
from regard.exchange.onnx_files import WEIGHTS, SharedWeights, save_graph
from regard.exchange.onnx_readme import readme
from regard.exchange.parity import Parity
from regard.layers import cell
from regard.layers.matrix_state import LinearAttention
from regard.layers.parts import note
from regard.layers.scan import MinGRU
from regard.layers.state import Span, State
from regard.runs.load import AnyRun
from regard.runs.store.folder import Tokenizers, build_model
from regard.systems.classifier import Classifier
from regard.systems.model import Model
from regard.systems.translator import Translator

FACTS = "model.json"
MAX_COLUMNS = 1 << 20  # columns, if the model has no limit


# -- states by path --------------------------------------------------------------------------------------------------


def leaves(state: State, before: str = "") -> dict[str, Tensor]:
    """The tensors of a nested state by their paths."""
    tensors: dict[str, Tensor] = {}
    for name, part in state.items():
        tensors |= leaves(part, f"{before}{name}.") if isinstance(part, dict) else {before + name: part}
    return tensors


def nested(flat: Mapping[str, Tensor]) -> State:
    """The state with these leaves; parts without leaves, such as a classifier's past, are left out."""
    state: State = {"past": {}}
    for path, leaf in flat.items():
        *parts, last = path.split(".")
        inner = state
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = leaf
    return state


# -- the calls -------------------------------------------------------------------------------------------------------


class Call(nn.Module):
    """A call of a model that becomes a graph."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model: Any = model


class Begin(Call):
    def forward(self, source: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        return leaves(self.model.begin(source, lengths))


class Read(Call):
    def __init__(self, model: Model) -> None:
        super().__init__(model)
        # Their parallel form is another program for each number of columns; in the graph they read column by column.
        self.by_columns = any(isinstance(part, MinGRU | LinearAttention) for part in model.modules())

    def forward(self, tokens: Tensor, lengths: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.by_columns and torch.compiler.is_exporting():
            logits, new = self.read_by_columns(tokens, lengths, state)
        else:
            logits, after = self.model(tokens, nested(state), lengths)
            new = leaves(after)
        return {"logits": logits, **{f"new.{path}": new[path] for path in state if not path.startswith("source.")}}

    def read_by_columns(
        self, tokens: Tensor, lengths: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        def one(before: dict[str, Tensor], now: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
            logits, state = self.model(now[0][:, None], nested(before), now[1])
            after = leaves(state)
            return {path: after[path].clone() for path in before}, logits[:, 0].clone()

        real = (torch.arange(tokens.size(1))[:, None] < lengths).long()  # [T, R]: 1, or 0 where padded
        first = {path: leaf.clone() for path, leaf in state.items()}
        end, logits = scan(one, first, [tokens.transpose(0, 1), real])
        return logits.transpose(0, 1), end


class Classify(Call):
    def forward(self, source: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        return {"logits": self.model.predict(self.model.encode(source, lengths)["whole"])}


def unroll_in_graph(
    step: Callable[[Tensor, State], State], x: Tensor, state: State, span: Span
) -> tuple[Tensor, State, State]:
    """`regard.layers.cell.unroll` as one loop of the graph; Python's loop would have a fixed number of columns."""
    valid = span.valid(x.size(1))
    columns = [x.transpose(0, 1), *([] if valid is None else [valid.transpose(0, 1)])]

    def one(before: State, now: list[Tensor]) -> tuple[State, State]:
        new = step(now[0], before)
        new = {**new, **{name: note(name, new[name]) for name in before}}
        if valid is not None:
            new = {**new, **{name: torch.where(now[1][:, None], new[name], old) for name, old in before.items()}}
        # a loop may not return one tensor twice
        return {name: new[name].clone() for name in before}, {name: part.clone() for name, part in new.items()}

    first = {name: leaf.to(x.dtype).clone() for name, leaf in state.items()}
    end, parts = scan(one, first, columns)
    parts = {name: part.transpose(0, 1) for name, part in parts.items()}
    return parts["hidden"], end, parts


def distances(x: Any, y: Any, p: float, compute_mode: int | None = None) -> Any:
    """‖x_i − y_j‖ for the kernels among the scores: PyTorch cannot export `torch.cdist`."""
    op: Any = opset18
    apart = op.Sub(op.Unsqueeze(x, [-2]), op.Unsqueeze(y, [-3]))
    return op.ReduceL2(apart, [-1], keepdims=0)


def one_equation(matrix: Any, right: Any, **how: Any) -> Any:
    """The solution of the delta rule's equations (layers/matrix_state.py) where one column is read: 1 · u = right."""
    op: Any = opset18
    return op.Identity(right)


@contextmanager
def loops_in_graph() -> Iterator[None]:
    """Makes every module that loops over a text use `walk_in_graph`."""
    written = cell.unroll
    unrolling = [module for module in list(sys.modules.values()) if vars(module).get("unroll") is written]
    try:
        for module in unrolling:
            vars(module)["unroll"] = unroll_in_graph
        yield
    finally:
        for module in unrolling:
            vars(module)["unroll"] = written


# -- sizes that are free ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """Example sizes, and the model's state after reading some tokens."""

    sources: int = 2
    width: int = 1  # rows of each source
    source_columns: int = 5
    past: int = 3

    @property
    def rows(self) -> int:
        return self.sources * self.width

    def source(self) -> tuple[Tensor, Tensor]:
        lengths = torch.full((self.sources,), self.source_columns)
        return torch.zeros(self.sources, self.source_columns, dtype=torch.int64), lengths

    @torch.no_grad()
    def state(self, model: Model) -> dict[str, Tensor]:
        if isinstance(model, Translator):
            first = model.begin(*self.source(), width=self.width)
        else:
            first = model.begin(rows=self.rows)
        if self.past == 0:
            return leaves(first)
        return leaves(model(torch.zeros(self.rows, self.past, dtype=torch.int64), first)[1])


def free_axes(model: Model) -> dict[str, dict[int, str]]:
    """For each leaf of the state the axes that are not of the model's size, found by changing one size at a time."""
    here = Example().state(model)
    axes: dict[str, dict[int, str]] = {path: {} for path in here}
    changed = {"rows": Example(sources=3), "past": Example(past=4), "source_columns": Example(source_columns=6)}
    for name, example in changed.items():
        for path, leaf in example.state(model).items():
            for axis, (one, other) in enumerate(zip(here[path].shape, leaf.shape, strict=True)):
                if one != other:
                    shared = name == "rows" and path.startswith("source.")
                    axes[path][axis] = "sources" if shared else name
    return axes


def named_sizes(model: Model) -> dict[str, Any]:
    """The free sizes in the form that torch.export requires, up to the model's context."""
    most = {"columns": model.context, "source_columns": getattr(model, "source_context", None)}
    names = ("rows", "sources", "columns", "source_columns", "past")
    return {name: Dim(name, min=int(name != "past"), max=most.get(name) or MAX_COLUMNS) for name in names}


# -- writing ---------------------------------------------------------------------------------------------------------


def plain(run: AnyRun) -> Model:
    """The run's model in its reference implementation, without faster methods."""
    model = build_model(run.recipe, Tokenizers(run.tokenizer, run.source_tokenizer), drawn=False)
    model.load_state_dict(run.model.state_dict())
    return model.float().eval().requires_grad_(False)


def write(run: AnyRun, out: Path) -> None:
    """The folder with the graphs, their weights and tokenizers, and a README on how to use them."""
    if not any(True for _ in run.model.parameters()):
        raise RegardError(
            f"--to onnx supports only networks, but {run.folder} is {with_article(run.recipe.system)}, which "
            "has no network: use --to arpa."
        )
    model = plain(run)
    first = Example(past=0).state(model)
    if not isinstance(model, Translator) and any(bool(leaf.any()) for leaf in first.values()):
        path = next(path for path, leaf in first.items() if bool(leaf.any()))
        raise RegardError(f"--to onnx starts every text from zeros, but this model's {path} starts differently.")
    with open(out / WEIGHTS, "xb") as file:
        shared = SharedWeights(file)
        graphs = {name: save_graph(graph, out / f"{name}.onnx", shared) for name, graph in _graphs(model)}
    Tokenizers(run.tokenizer, run.source_tokenizer).save(out)
    facts = {
        "system": run.recipe.system,
        "eos": run.tokenizer.eos,
        "never_written": [] if isinstance(model, Classifier) else run.forbidden,
        "context": model.context,
        "graphs": graphs,
    }
    write_text(out / FACTS, json.dumps(facts, indent=2) + "\n")
    write_text(out / "README.md", readme(run))


def _graphs(model: Model) -> Iterator[tuple[str, ir.Model]]:
    if isinstance(model, Classifier):
        yield "model", trace(model, Classify(model), *source_example())
        return
    if isinstance(model, Translator):
        yield "begin", trace(model, Begin(model), *source_example())
    yield "model", trace(model, Read(model), *tokens_example(model))


def source_example() -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    """The inputs of a call that reads a source, and their free axes."""
    source, lengths = Example().source()
    free = {"source": {0: "sources", 1: "source_columns"}, "lengths": {0: "sources"}}
    return {"source": source, "lengths": lengths}, free


def tokens_example(model: Model) -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    """The inputs of a call that reads tokens after a state, and their free axes."""
    example = Example(width=2 if isinstance(model, Translator) else 1)
    tokens = torch.zeros(example.rows, 4, dtype=torch.int64)
    given = {"tokens": tokens, "lengths": torch.full((example.rows,), 4), **example.state(model)}
    return given, {"tokens": {0: "rows", 1: "columns"}, "lengths": {0: "rows"}, **free_axes(model)}


def trace(
    model: Model,
    call: nn.Module,
    given: Mapping[str, Tensor],
    free: Mapping[str, Mapping[int, str]],
    operators: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
) -> ir.Model:
    """The graph of a call, for any size of the named axes; `operators`: translations of more PyTorch operators."""
    sizes = named_sizes(model)
    shapes: dict[str, Any] = {name: {axis: sizes[size] for axis, size in free[name].items()} for name in given}
    arguments: dict[str, Any] = dict(given)
    if isinstance(call, Read):
        shapes, arguments = _with_state(shapes), _with_state(arguments)
    outputs = list(call(**arguments))
    # PyTorch's cache of shapes costs more than it saves where sizes are free
    uncached = torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
    with loops_in_graph(), quietly(), uncached, torch.no_grad():
        program = torch.export.export(
            call, (), arguments, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
        )
        made = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(given),
            output_names=outputs,
            custom_translation_table={
                torch.ops.aten._cdist_forward.default: distances,
                torch.ops.aten.linalg_solve_triangular.default: one_equation,
                **(operators or {}),
            },
            verbose=False,
        )
    assert made is not None
    ClearMetadataAndDocStringPass()(made.model)  # they contain the paths of this machine
    _name_sizes(made.model, free)
    return made.model


def _with_state(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a state as one argument."""
    state = {name: leaf for name, leaf in flat.items() if name not in ("tokens", "lengths")}
    return {"tokens": flat["tokens"], "lengths": flat["lengths"], "state": state}


def _name_sizes(graph: ir.Model, free: Mapping[str, Mapping[int, str]]) -> None:
    """Call the free sizes by their names instead of by the exporter's (s17)."""
    names: dict[str, str] = {}
    for value in graph.graph.inputs:
        for axis, name in free[value.name or ""].items():
            names[str(value.shape[axis])] = name  # type: ignore[index]
    for value in (*graph.graph.inputs, *graph.graph.outputs):
        assert value.shape is not None
        value.shape = ir.Shape(
            [size if isinstance(size, int) else names.get(str(size), str(size)) for size in value.shape]
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Silences the exporter's log, which is meant for its developers."""
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        noisy.setLevel(logging.ERROR)
        try:
            yield
        finally:
            noisy.setLevel(level)


# -- checking --------------------------------------------------------------------------------------------------------

SIZES = ((1, 1), (3, 6), (2, 4))  # texts of the comparison, and the columns of the longest
STEPS = 3  # tokens that are then read one by one


class Graphs:
    """The graphs of a folder in onnxruntime."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        names = json.loads((folder / FACTS).read_text())["graphs"]
        self.sessions = {
            name: onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
            for name in names
        }

    def __call__(self, name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        outputs = self.sessions[name].run(None, {name: np.asarray(value) for name, value in given.items()})
        return dict(zip((output.name for output in self.sessions[name].get_outputs()), outputs, strict=True))


@dataclass
class OutputComparison:
    """The largest difference between Regard and the graphs so far, and how often their most probable token agrees."""

    largest: float = 0.0
    tokens: int = 0
    same: int = 0

    def add(self, ours: Mapping[str, Tensor], theirs: Mapping[str, np.ndarray]) -> None:
        if ours.keys() != theirs.keys():
            raise RegardError(f"The graph returns {', '.join(theirs)}, but Regard returns {', '.join(ours)}.")
        for name, tensor in ours.items():
            one, other = tensor.numpy(), theirs[name]
            if one.shape != other.shape:
                raise RegardError(f"The graph's {name} has shape {other.shape}, but Regard's has {one.shape}.")
            if one.size:
                self.largest = max(self.largest, float(np.abs(one.astype(np.float64) - other).max()))
        if "logits" in ours:
            most_probable = ours["logits"].numpy().argmax(-1) == theirs["logits"].argmax(-1)
            self.tokens, self.same = self.tokens + most_probable.size, self.same + int(most_probable.sum())


def check(run: AnyRun, out: Path) -> Parity:
    """Compares onnxruntime with Regard: whole texts and then token by token, at several sizes, with ragged lengths."""
    graphs, comparison, draw, model = Graphs(out), OutputComparison(), np.random.default_rng(0), plain(run)
    for texts, columns in SIZES:
        _compare(model, graphs, texts, columns, draw, comparison)
    return Parity(
        run.recipe.system,
        "onnx",
        f"onnxruntime {onnxruntime.__version__}",
        "logits" if isinstance(run.model, Classifier) else "logits and states: whole texts, then token by token",
        comparison.largest,
        f"{comparison.same} of {comparison.tokens} most probable tokens",
    )


@torch.no_grad()
def _compare(
    model: Model, graphs: Graphs, texts: int, columns: int, draw: np.random.Generator, comparison: OutputComparison
) -> None:
    def ragged(rows: int, vocabulary: int, longest: int) -> dict[str, Tensor]:
        lengths = draw.integers(1, longest + 1, rows)
        lengths[0] = longest
        tokens = draw.integers(0, vocabulary, (rows, longest))
        return {"tokens": torch.from_numpy(tokens), "lengths": torch.from_numpy(lengths)}

    if isinstance(model, Translator):
        read = ragged(texts, model.source_vocabulary, min(columns + 2, model.source_context or columns + 2))
        source: dict[str, Any] = {"source": read["tokens"], "lengths": read["lengths"]}
        state = model.begin(**source)
        if isinstance(model, Classifier):
            comparison.add({"logits": model(source["source"][:, :1], state)[0][:, 0]}, graphs("model", source))
            return
        comparison.add(leaves(state), graphs("begin", source))
        state, rows = model.begin(**source, width=2), 2 * texts
    else:
        state, rows = model.begin(rows=texts), texts
    read = ragged(rows, model.vocabulary, max(1, min(columns, (model.context or columns + STEPS) - STEPS)))
    carried: dict[str, Any] = leaves(state)
    for _ in range(1 + STEPS):
        logits, state = model(read["tokens"], state, read["lengths"])
        outputs = graphs("model", {**read, **carried})
        carried |= {name.removeprefix("new."): leaf for name, leaf in outputs.items() if name != "logits"}
        new = {f"new.{path}": leaf for path, leaf in leaves(state).items() if not path.startswith("source.")}
        real = torch.arange(logits.size(1)) < read["lengths"][:, None]  # padded columns can contain anything
        comparison.add({"logits": logits[real], **new}, {**outputs, "logits": outputs["logits"][real.numpy()]})
        read = ragged(rows, model.vocabulary, 1)
