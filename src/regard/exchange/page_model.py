"""An ONNX graph as plain data for a page: values by number, nodes as short lists, large arrays with the weights.

    {"inputs": {name: value}, "outputs": {name: value},
     "constants": [[value, dims, "f", [numbers] or {"weight": place, "turned": true}], …],
     "nodes": [["MatMul", [inputs], [outputs], {attributes}], …]}

64-bit integers become 32-bit; only the ends of slices are larger. A loop's body uses the values around it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from regard.base.errors import RegardError
from regard.exchange.page_weights import PageWeights
from regard.report.offline_page import STATIC

LARGE = 64  # minimum size of a constant that is stored with the weights
LAST = np.iinfo(np.int32)


@cache
def operators() -> frozenset[str]:
    """The operators that a page can compute."""
    (table,) = re.findall(
        r"^export const OPERATORS = \{\n(.*?)^\};", (STATIC / "page" / "operators.js").read_text(), re.S | re.M
    )
    return frozenset(re.findall(r"(?:^  |, )([A-Z]\w+): ", table, re.M)) | {"Scan", "Part"}


class PageGraph:
    """Numbers the values of a graph and describes its nodes."""

    def __init__(self, model: ir.Model, weights: PageWeights) -> None:
        self.weights = weights
        self.numbers: dict[Any, int] = {}
        self.constants: list[list[Any]] = []
        self.turned = {
            id(node.inputs[1])
            for node in model.graph.all_nodes()
            if node.op_type == "MatMul" and node.inputs[1] is not None
        } - {
            id(value)
            for node in model.graph.all_nodes()
            for place, value in enumerate(node.inputs)
            if value is not None and (node.op_type, place) != ("MatMul", 1)
        }
        for value in model.graph.initializers.values():
            self._constant(value, value.const_value)
        nodes = self._nodes(model.graph)
        self.description: dict[str, Any] = {
            "inputs": {value.name: self._number(value) for value in model.graph.inputs},
            "outputs": {value.name: self._number(value) for value in model.graph.outputs},
            "constants": self.constants,
            "nodes": nodes,
        }

    def _number(self, value: ir.Value | None) -> int:
        return -1 if value is None else self.numbers.setdefault(id(value), len(self.numbers))

    def _nodes(self, graph: Any) -> list[list[Any]]:
        found = []
        for node in graph:
            if node.op_type == "Constant":
                self._constant(node.outputs[0], next(iter(node.attributes.values())).value)
                continue
            if node.op_type not in operators():
                raise RegardError(f"--to page cannot compute the ONNX operator {node.op_type}, which this model uses.")
            inputs, outputs = ([self._number(value) for value in side] for side in (node.inputs, node.outputs))
            found.append([node.op_type, inputs, outputs, self._attributes(node)])
        return found

    def _attributes(self, node: ir.Node) -> dict[str, Any]:
        if node.op_type == "Scan":
            return self._loop(node)
        found: dict[str, Any] = {}
        for name, attribute in node.attributes.items():
            value: Any = attribute.value
            if attribute.type == ir.AttributeType.TENSOR:
                array = value.numpy()
                found[name] = [self._kind(array), array.reshape(-1).tolist()]
            else:
                found[name] = list(value) if isinstance(value, (tuple, list)) else value
        return found

    def _loop(self, node: ir.Node) -> dict[str, Any]:
        body: Any = node.attributes["body"].value
        for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"):
            if name in node.attributes and any(node.attributes[name].value):
                raise RegardError(
                    "--to page supports only loops over the first axis, but this model contains a different loop."
                )
        for value in body.initializers.values():
            self._constant(value, value.const_value)
        inputs = [self._number(value) for value in body.inputs]
        nodes = self._nodes(body)
        outputs = [self._number(value) for value in body.outputs]
        return {
            "scans": node.attributes["num_scan_inputs"].value,
            "body": {"inputs": inputs, "outputs": outputs, "nodes": nodes},
        }

    def _constant(self, value: ir.Value, held: Any) -> None:
        array = np.asarray(held.numpy() if hasattr(held, "numpy") else held)
        kind, dims = self._kind(array), list(array.shape)
        if kind == "i":
            array = np.clip(array, LAST.min, LAST.max).astype(np.int32)
        kept: Any = (
            array.astype(np.float32).reshape(-1).tolist() if kind == "f" else array.reshape(-1).astype(int).tolist()
        )
        if array.size > LARGE or not np.isfinite(array).all():
            turned = array.ndim == 2 and kind == "f" and id(value) in self.turned
            kept = {"weight": self.weights.add(array.T if turned else array), **({"turned": True} if turned else {})}
        self.constants.append([self._number(value), dims, kind, kept])

    def _kind(self, array: np.ndarray) -> str:
        return {"f": "f", "i": "i", "u": "i", "b": "b"}[array.dtype.kind]
