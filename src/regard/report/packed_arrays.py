"""Arrays for the page, as bytes: a small JSON header, then uint8, float16 or float32 numbers as they are.

    4 bytes    length of the header, little-endian
    header     {"about": …, "arrays": [{"name", "type", "shape", "offset", "low", "high"}, …]}, padded to 8 bytes
    numbers    each array at its offset behind the header, which is a multiple of 8

A weight between 0 and 1 is a byte: with 255 shades the difference is invisible, and 144 heads of 64 × 64 are 0.6 MB
instead of 12 MB of JSON. `api.js` reads it with `arrays()`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.report.table import finite

Bounds = Mapping[str, tuple[float, float]]
TYPES = {"uint8": np.uint8, "float16": np.float16, "float32": np.float32, "int32": np.int32}


def pack(arrays: Mapping[str, np.ndarray], about: Any = None, bounds: Bounds | None = None) -> bytes:
    """`bounds`: the values of 0 and 255 in an array made by `in_bytes`."""
    listed, parts, offset = [], [], 0
    for name, array in arrays.items():
        kind = next(name for name, kind in TYPES.items() if array.dtype == kind)
        content = np.ascontiguousarray(array).tobytes()
        low, high = (bounds or {}).get(name, (0.0, 1.0))
        listed.append(
            {"name": name, "type": kind, "shape": list(array.shape), "offset": offset, "low": low, "high": high}
        )
        parts += [content, bytes(-len(content) % 8)]
        offset += len(content) + -len(content) % 8
    header = json.dumps({"about": finite(about), "arrays": listed}, ensure_ascii=False).encode()
    header += b" " * (-(len(header) + 4) % 8)
    return b"".join([len(header).to_bytes(4, "little"), header, *parts])


def in_bytes(
    array: np.ndarray, low: float | None = None, high: float | None = None
) -> tuple[np.ndarray, tuple[float, float]]:
    """The array as bytes between its bounds, and these bounds; values that are not finite count as 0."""
    real = np.nan_to_num(np.asarray(array, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low = float(real.min(initial=0.0)) if low is None else low
    high = float(real.max(initial=low)) if high is None else high
    width = (high - low) or 1.0
    return np.rint(np.clip((real - low) / width, 0, 1) * 255).astype(np.uint8), (low, high)
