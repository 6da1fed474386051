"""Checkpoints, written atomically.

A checkpoint is one safetensors file with everything a resume needs: weights, optimizer state, the state carried over
windows, random generators, and, as JSON in its header, the progress. It is written next to the old one, flushed and
renamed, so a process killed at any moment leaves either the old checkpoint or the new one. No pickle.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.locks import same_file
from regard.base.reading import check_tensor_file, open_file
from regard.base.writing import atomic_write
from regard.training.distributed import shard_like

DIGEST = "blake2b_pieces"  # in the header's note
PIECE = 1 << 22  # bytes
MAX_THREADS = 8


def save_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any] | None = None) -> None:
    """`note` is any JSON object; it is stored in the file's header under "regard", with a digest of the content.

    The header has only this entry: the library writes several in random order, but equal runs must give equal files.
    """
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"regard": json.dumps({**(note or {}), DIGEST: _digest(ready, note or {})}, sort_keys=True)}
    with atomic_write(path) as temporary:
        write_safetensors(temporary, ready, header)


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write directly into the file, with the library."""
    path.touch()
    mode = path.stat().st_mode  # the library makes it a file that only its owner may read
    try:
        save_file(tensors, path, metadata=header)
    except SafetensorError as error:  # the system's error (a full disk) is only in its message
        raise OSError(errno.ENOSPC if "No space left" in str(error) else errno.EIO, str(error)) from error
    path.chmod(mode)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The library opens the file twice, for its header and for the numbers. A training may replace it in between; then
    it is read again."""
    try:
        while True:
            check_tensor_file(path)
            with open_file(path) as stream:
                try:
                    with safe_open(path, framework="pt") as file:
                        note = json.loads((file.metadata() or {}).get("regard", "{}"))
                        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                except Exception:
                    if same_file(stream, path):
                        raise
                else:
                    if same_file(stream, path):
                        break
    except FileNotFoundError:
        raise RegardError(f"{path} is missing.") from None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise RegardError(f"{path} cannot be read as safetensors ({error}): it is damaged or truncated.") from None
    if not isinstance(note, dict):
        raise RegardError(f"{path} is damaged: its header was not written by Regard.")
    if note.pop(DIGEST, None) != _digest(tensors, note):
        raise RegardError(f"{path} is damaged: its content has changed. Restore it from a backup.")
    return tensors, note


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """The digest of weights on a CPU, whatever file they are in."""
    return _digest({name: weight.contiguous() for name, weight in weights.items()}, {})


def _digest(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> str:
    """The digest of the note and of each tensor by name: of the digests of its pieces, which threads compute."""
    names = sorted(tensors)
    contents = [tensors[name].reshape(-1).view(torch.uint8).numpy().data for name in names]
    digest = _blake2b(json.dumps(note, sort_keys=True).encode())
    for name, part in zip(names, _piece_digests(contents), strict=True):
        digest.update(f"\n{name!r} {tensors[name].dtype} {list(tensors[name].shape)}\n".encode())
        digest.update(part)
    return digest.hexdigest()


def _piece_digests(contents: Sequence[memoryview]) -> list[bytes]:
    """The digests of the pieces of each content, in a row."""
    pieces = [content[at : at + PIECE] for content in contents for at in range(0, len(content), PIECE)]
    threads = min(MAX_THREADS, sum(map(len, contents)) // PIECE + 1, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:  # hashing many bytes releases Python's global lock
        digests = pool.map(lambda piece: _blake2b(piece).digest(), pieces)
        return [b"".join(next(digests) for _ in range(0, len(content), PIECE)) for content in contents]


def _blake2b(content: bytes | memoryview) -> hashlib.blake2b:
    return hashlib.blake2b(content, digest_size=16)


def flatten(tree: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    """{"past": {"0": {"cell": t}}} with prefix "state" → {"state/past/0/cell": t}."""
    flat: dict[str, Tensor] = {}
    for key, value in tree.items():
        name = f"{prefix}/{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, name)
        else:
            flat[name] = value
    return flat


def unflatten(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if not name.startswith(prefix + "/"):
            continue
        *path, leaf = name.removeprefix(prefix + "/").split("/")
        branch = tree
        for key in path:
            branch = branch.setdefault(key, {})
        branch[leaf] = tensor
    return tree


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's moments and step counts by parameter number; plain SGD has none."""
    return {
        f"optimizer/{index}/{name}": value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Moments are sharded as their parameters are."""
    patterns = [weight for group in optimizer.param_groups for weight in group["params"]]
    saved = {int(index): values for index, values in unflatten(tensors, "optimizer").items()}
    if any(index >= len(patterns) for index in saved):
        raise RuntimeError("moments of other weights")  # as for shapes that differ
    state = {
        index: {name: shard_like(value, patterns[index]) for name, value in values.items()}
        for index, values in saved.items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
