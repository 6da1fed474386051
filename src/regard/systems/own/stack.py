"""A user's own system: their layer between an embedding and a prediction, or their whole model.

    x_t = E[w_t],   h_t, state = MyCell(x_t, state)  in each layer,   P(w_{t+1}) = softmax(W_o h_t + b)

`class MyCell(Cell)`, or any `Layer` constructed as MyCell(inputs, width), is stacked like the lstm's layers and trained
with its settings; a `Model` with its own `Settings` (and `SIZES`, `TRAINING`) in the same file is taken as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from regard.base.errors import RegardError
from regard.layers.layer import Layer
from regard.layers.state import Span, State
from regard.systems.model import Model
from regard.systems.own.code import Code, crash, load
from regard.systems.recurrent_stack import RecurrentModel, RecurrentSettings
from regard.systems.sizes import SIZES, Sizes, read_sizes

SETTINGS = {field.name for field in fields(RecurrentSettings)}
BY_SIZE = {  # the lstm's, without its own settings
    size: {**sections, "model": {key: value for key, value in sections["model"].items() if key in SETTINGS}}
    for size, sections in read_sizes("lstm").by_size.items()
}


class LayerStack(RecurrentModel):
    """A stack of layers of one class, recurrent or not; a generated subclass sets `layer`."""

    layer: type[Layer]

    def __init__(self, vocabulary: int, settings: RecurrentSettings) -> None:
        super().__init__(vocabulary, settings, self.layer)


class OwnLayer:
    """A layer as a system: its stack, Settings and sizes."""

    Settings = RecurrentSettings

    def __init__(self, code: Code, layer: type[Layer]) -> None:
        self.name = code.name
        self.layer = layer
        self.kind: type[Model] = type(layer.__name__, (LayerStack,), {"layer": layer, "__doc__": layer.__doc__})

    @cached_property
    def sizes(self) -> Sizes:
        """The lstm's; but windows if the state grows with the text, since it cannot be carried through all of it."""
        try:
            grows = self.examine()
        except RegardError:
            raise
        except Exception as error:
            said = crash(error) or f"{type(error).__name__}: {error}."
            raise RegardError(f"{self.layer.__name__} crashed: {said} `regard laws {self.name}` shows more.") from None
        training = {**read_sizes("lstm").training, "batches": "windows" if grows else "stream"}
        return Sizes(training, BY_SIZE)

    def examine(self) -> bool:
        """Calls the layer once, checks the form of its results, and returns whether its state grows."""
        width = 8
        layer = self.layer(width, width).eval()
        before = layer.begin(2, capacity=None, device="cpu", dtype=torch.get_default_dtype())
        with torch.no_grad():
            returned = layer(torch.zeros(2, 3, width), before, Span(torch.zeros(2, dtype=torch.int64)))
        name = self.layer.__name__
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Tensor)):
            raise RegardError(f"{name}.forward must return y and the new state, not a {type(returned).__name__}.")
        output, after = returned
        if output.shape != (2, 3, width):
            raise RegardError(
                f"{name}.forward must return y of shape [rows, columns, width], here [2, 3, {width}], "
                f"not {list(output.shape)}."
            )
        for which, state in (("begin", before), ("forward", after)):
            if not isinstance(state, dict):
                raise RegardError(
                    f"the state {name}.{which} returns must be a dict of tensors, not a {type(state).__name__}."
                )
        return shapes(before) != shapes(after)


class OwnModel:
    """A whole model as a system."""

    def __init__(self, code: Code, module: ModuleType, kind: type[Model]) -> None:
        self.kind = kind
        self.Settings = getattr(module, "Settings", None)
        if not (isinstance(self.Settings, type) and is_dataclass(self.Settings)):
            raise RegardError(
                f"{code.label} is a whole model, so {code.file.name} must also define Settings, "
                "a frozen dataclass of its settings."
            )
        given: Mapping[str, Mapping[str, object]] = getattr(module, "SIZES", {})
        names = {field.name for field in fields(self.Settings)}
        by_size: dict[str, dict[str, dict[str, object]]] = {}
        for size in SIZES:
            values = given.get(size, {})
            if unknown := [key for key in values if "." not in key and key not in names]:
                raise RegardError(
                    f"SIZES of {code.file.name} sets {unknown[0]} for {size}, but Settings has no such field."
                )
            for key, value in values.items():
                section, _, name = key.rpartition(".")
                by_size.setdefault(size, {}).setdefault(section or "model", {})[name] = value
        self.sizes = Sizes(getattr(module, "TRAINING", {}), by_size)


def open_own(code: Code) -> OwnLayer | OwnModel:
    """Runs the code and returns its system."""
    return _open(code, *load(code))


@cache
def _open(code: Code, module: ModuleType, kind: Any) -> OwnLayer | OwnModel:
    if issubclass(kind, Model):
        _takes(code, kind, "vocabulary", "settings")
        return OwnModel(code, module, kind)
    if issubclass(kind, Layer):
        _takes(code, kind, "inputs", "width")
        return OwnLayer(code, kind)
    raise RegardError(
        f"{code.label} of {code.file.name} is neither a layer nor a model: subclass regard.layers.cell.Cell, "
        "regard.layers.layer.Layer or regard.systems.model.Model."
    )


def _takes(code: Code, kind: type, *names: str) -> None:
    signature = inspect.signature(kind)
    try:
        signature.bind(*names)
    except TypeError:
        raise RegardError(
            f"{code.label} must be constructed as {code.label}({', '.join(names)}); "
            f"its constructor takes {_without_types(signature)}."
        ) from None


def _without_types(signature: inspect.Signature) -> str:
    plain = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(plain))


def shapes(state: State) -> dict[str, Any]:
    return {name: shapes(part) if isinstance(part, dict) else part.shape for name, part in state.items()}
