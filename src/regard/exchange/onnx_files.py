"""ONNX graphs as files that share one file of weights."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import onnx_ir as ir

WEIGHTS = "weights.bin"
MIN_EXTERNAL_BYTES = 256  # smaller tensors stay in the graph's own file
ALIGNED = 64  # a tensor's offset in the shared file is a multiple of this


class SharedWeights:
    """One file for the large tensors of several graphs; each tensor is written once."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self.file = file
        self.places: dict[bytes, int] = {}

    def add(self, tensor: ir.TensorProtocol) -> ir.ExternalTensor:
        content = tensor.tobytes()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest not in self.places:
            self.file.write(bytes(-self.file.tell() % ALIGNED))
            self.places[digest] = self.file.tell()
            self.file.write(content)
        return ir.ExternalTensor(
            WEIGHTS,
            self.places[digest],
            len(content),
            tensor.dtype,
            shape=tensor.shape,  # type: ignore[arg-type]
            name=tensor.name or "",
            base_dir=Path(self.file.name).parent,
        )


def save_graph(graph: ir.Model, path: Path, shared: SharedWeights) -> dict[str, Any]:
    """Writes a graph, and returns the names, types and shapes of its inputs and outputs."""
    for value in graph.graph.initializers.values():
        if value.const_value is not None and value.const_value.nbytes >= MIN_EXTERNAL_BYTES:
            value.const_value = shared.add(value.const_value)
    ir.save(graph, path)
    sides = {"inputs": graph.graph.inputs, "outputs": graph.graph.outputs}
    return {side: {str(value.name): _described(value) for value in values} for side, values in sides.items()}


def _described(value: ir.Value) -> dict[str, Any]:
    assert value.dtype is not None
    assert value.shape is not None
    return {
        "type": str(value.dtype.numpy()),
        "shape": [size if isinstance(size, int) else str(size) for size in value.shape],
    }
