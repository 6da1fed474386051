"""A folder in Hugging Face's layout from any source: its config.json and its tensors, checked before use.

Weights come only from safetensors files. Names, shapes and sizes are checked against config.json before a number is
read, so a size is never allocated just because a file claims it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.base.errors import RegardError
from regard.base.reading import check_tensor_file, read_object

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
FLOATS = {"F64", "F32", "F16", "BF16"}


def read_json(path: Path) -> dict[str, Any]:
    values = read_object(path, foreign=True)
    if values is None:
        raise RegardError(f"{path} is not a JSON object: it is damaged; copy the folder again.")
    return values


class Config:
    """config.json, whose values are looked up by type."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values = path, values

    @classmethod
    def of_folder(cls, folder: Path) -> Config:
        return cls(folder / "config.json", read_json(folder / "config.json"))

    def wrong(self, what: str) -> NoReturn:
        raise RegardError(f"{self.path}: {what}.")

    def number(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.wrong(f"{name} must be a whole number, not {value!r:.40}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number from 1."""
        if (value := self.number(name, default)) < 1:
            self.wrong(f"{name} must be at least 1, not {value}")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e12:
            self.wrong(f"{name} must be a positive number, not {value!r:.40}")
        return float(value)

    def rate(self, name: str, default: float = 0.0) -> float:
        value = self.values.get(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
            self.wrong(f"{name} must be a rate from 0 to 1, not {value!r:.40}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            self.wrong(f"{name} must be true or false, not {value!r:.40}")
        return value

    def one(self, name: str, known: Mapping[Any, str], default: Any = None) -> str:
        """Regard's name for this value; a value without one is an error."""
        value = self.values.get(name, default)
        if not isinstance(value, (str, int, float)) or value not in known:
            self.wrong(f"{name} is {value!r:.40}, but Regard supports only {', '.join(map(str, known))}")
        return known[value]

    def must_be(self, **expected: Any) -> None:
        """Refuse settings that Regard's model does not have; one that is absent has the expected value."""
        for name, value in expected.items():
            actual = self.values.get(name, value)
            if actual != value:
                self.wrong(f"{name} is {actual!r:.40}, but Regard supports only {value!r}")


class ForeignWeights:
    """Tensors by name, without a prefix; each is read once it has the shape that it should have.

    `files`: for each name an open safetensors file, or whatever gives a slice and a tensor of that name.
    """

    def __init__(self, where: Path, files: Mapping[str, Any], prefix: str = "") -> None:
        self.where, self._files = where, files
        self._names = {name.removeprefix(prefix): name for name in files}
        self.unread = set(self._names)

    @classmethod
    def of_folder(cls, folder: Path, prefix: str = "") -> ForeignWeights:
        return cls(folder, _open_all(folder, _named_in(folder)), prefix)

    def shape(self, name: str) -> list[int]:
        return list(self._slice(name).get_shape())

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape, in fp32, finite."""
        if self.shape(name) != list(shape):
            raise RegardError(f"{name} in {self.where} has the shape {self.shape(name)!s:.60}, not {list(shape)}.")
        if (kind := self._slice(name).get_dtype()) not in FLOATS:
            raise RegardError(f"{name} in {self.where} has {kind} values; Regard reads only F32, F16 and BF16.")
        full = self._names[name]
        tensor: Tensor = self._files[full].get_tensor(full).float()
        if not bool(torch.isfinite(tensor).all()):
            raise RegardError(f"{name} in {self.where} contains infinite or NaN values: it is damaged.")
        self.unread.discard(name)
        return tensor

    def ignore(self, *patterns: str) -> None:
        """Drops tensors that repeat others."""
        self.unread = {name for name in self.unread if not any(re.fullmatch(pattern, name) for pattern in patterns)}

    def finish(self, what: str) -> None:
        """Refuse tensors that were not used: without them, the model would differ from the saved one."""
        if self.unread:
            raise RegardError(f"{self.where} contains the tensor {min(self.unread):.100}, which {what} does not have.")

    def _slice(self, name: str) -> Any:
        if name not in self._names:
            raise RegardError(f"{self.where} has no tensor {name}: it is incomplete; copy it again.")
        full = self._names[name]
        return self._files[full].get_slice(full)


def _named_in(folder: Path) -> list[str]:
    """The names of the files that hold the weights."""
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    if not (folder / INDEX).exists():
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
        if pickled:
            raise RegardError(
                f"{folder} stores its weights in {pickled[0]}, a pickle, which can run any code when it is opened: if "
                "you trust it, load it with its own program and save it as safetensors."
            )
        raise RegardError(f"{folder} has no {WEIGHTS}: it contains no weights that Regard can read.")
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise RegardError(f"{folder / INDEX} lists no files: it is damaged; copy the folder again.")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if not re.fullmatch(r"[\w][\w.-]{0,200}\.safetensors", name):
            raise RegardError(f"{folder / INDEX} names {name!r:.80}, which is not a safetensors file in this folder.")
    return names


def _open_all(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for name in names:
        try:
            check_tensor_file(folder / name)
            opened = safe_open(folder / name, framework="pt")
            keys = list(opened.keys())
        except FileNotFoundError:
            raise RegardError(f"{folder / name} is missing: the folder is incomplete; copy it again.") from None
        except (SafetensorError, OSError, ValueError, RecursionError) as error:
            raise RegardError(
                f"{folder / name} cannot be read as safetensors ({error!s:.200}): it is damaged."
            ) from None
        for key in keys:
            if key in files:
                raise RegardError(f"{folder} has the tensor {key:.100} twice: it is damaged.")
            files[key] = opened
    return files
