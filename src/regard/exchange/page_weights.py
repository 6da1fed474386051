"""The numbers of a page: one block of bytes, with a table that says where each array is and how to read it.

    fp32    unchanged
    fp16    half precision
    int8    8 bits per number, scaled between the minimum and maximum of its matrix row, or of 256 other numbers

Matrices are stored by rows, as in PyTorch, so a row belongs to one output or one word. Small arrays
(biases, norms) and integers keep their full precision. `web/lab/static/page/weights.js` reads it.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import Any

import numpy as np

FORMATS = ("fp32", "fp16", "int8")
FEW = 4096  # maximum size of an array that keeps full precision
BLOCK = 256  # numbers with a common scale, if there are no rows


class PageWeights:
    """Arrays as one block, each stored once."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.table: list[dict[str, Any]] = []
        self.parts: list[bytes] = []
        self.size = 0
        self._known: dict[bytes, int] = {}

    def add(self, array: np.ndarray) -> int:
        """The array's number in the table."""
        array = np.ascontiguousarray(array)
        digest = hashlib.blake2b(array.tobytes(), digest_size=16, person=str(array.dtype).encode()[:16]).digest()
        if digest not in self._known:
            self._known[digest] = self._write(array)
        return self._known[digest]

    def _write(self, array: np.ndarray) -> int:
        if array.dtype.kind != "f" or array.size < FEW or self.form == "fp32" or not np.isfinite(array).all():
            kind: Any = {"f": np.float32, "i": np.int32, "u": array.dtype, "b": np.uint8}[array.dtype.kind]
            return self._keep(array.astype(kind), str(np.dtype(kind)))
        if self.form == "fp16":
            return self._keep(np.clip(array, -65504, 65504).astype(np.float16), "float16")
        rows = array.reshape(len(array), -1) if array.ndim > 1 else _blocks(array)
        middle = (rows.max(1, keepdims=True) + rows.min(1, keepdims=True)) / 2
        scale = np.maximum((rows.max(1, keepdims=True) - middle) / 127, 1e-30)
        numbers = np.rint((rows - middle) / scale).astype(np.int8).reshape(-1)[: array.size]
        ends = {"scale": self._exact(scale), "middle": self._exact(middle)}
        return self._keep(numbers, "int8", row=rows.shape[1], **ends)

    def _exact(self, numbers: np.ndarray) -> int:
        return self._keep(numbers.astype(np.float32).reshape(-1), "float32")

    def _keep(self, array: np.ndarray, kind: str, **more: int) -> int:
        self.table.append({"type": kind, "count": int(array.size), "offset": self.size, **more})
        content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        content += bytes(-len(content) % 8)
        self.parts.append(content)
        self.size += len(content)
        return len(self.table) - 1

    def packed(self) -> str:
        """The block, compressed, in base64."""
        press = zlib.compressobj(6, zlib.DEFLATED, -15)
        return base64.b64encode(b"".join([*(press.compress(part) for part in self.parts), press.flush()])).decode()


def _blocks(array: np.ndarray) -> np.ndarray:
    filled = np.concatenate([array, np.repeat(array[-1:], -array.size % BLOCK)])
    return filled.reshape(-1, BLOCK)
