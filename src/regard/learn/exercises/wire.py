"""Messages between the grader and the process that runs an answer: JSON with tensors, after their length in 8 bytes.

Nothing is unpickled: a message can hold wrong numbers, but no code.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import IO, Any

import torch
from torch import Tensor

MAX_BYTES = 1 << 26  # of a message

# Values other than numbers, words, tensors, tuples and lists: each side defines how to write and read them.
Other = Callable[[Any], Any]


def write_message(stream: IO[bytes], message: Any, other: Other) -> None:
    content = json.dumps(encoded(message, other)).encode()
    stream.write(len(content).to_bytes(8, "big") + content)
    stream.flush()


def read_bytes(stream: IO[bytes]) -> bytes | None:
    """The next message, still encoded; None at the end, and if it is cut short or too long."""
    head = stream.read(8)
    size = int.from_bytes(head, "big")
    content = stream.read(size) if len(head) == 8 and size <= MAX_BYTES else b""
    return content if content and len(content) == size else None


def encoded(value: Any, other: Other) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        content = base64.b64encode(flat.numpy().tobytes()).decode()
        return {"tensor": content, "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__ if type(value) is list else "tuple": [encoded(part, other) for part in value]}
    return {"other": other(value)}


def decoded(content: bytes, other: Other) -> Any:
    """The message; raises one of several exceptions if it is malformed."""
    return _value(json.loads(content), other)


def _value(record: Any, other: Other) -> Any:
    if not isinstance(record, dict):
        return record
    if "tensor" in record:
        content = bytearray(base64.b64decode(record["tensor"], validate=True))
        dtype = getattr(torch, record["dtype"])
        if not content:
            return torch.zeros(record["shape"], dtype=dtype)
        return torch.frombuffer(content, dtype=torch.uint8).view(dtype).view(record["shape"])
    if "other" in record:
        return other(record["other"])
    ((kind, parts),) = record.items()
    return {"tuple": tuple, "list": list}[kind](_value(part, other) for part in parts)


def floats(value: Any) -> Iterator[Tensor]:
    """The tensors in a value that can have a gradient, in order."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from floats(part)


def refilled(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The same value with the tensors of `floats` replaced."""
    if isinstance(value, Tensor):
        return next(tensors) if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(refilled(part, tensors) for part in value)
    return value
