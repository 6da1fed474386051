"""What an example of a row is: a call that the row may take over, and calls that it must leave alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from regard.fast import Use

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Example(NamedTuple):
    thing: Any  # a module, or another object whose method the row stands in for
    arguments: tuple[Any, ...]
    use: Use = Use()
    refused: tuple[tuple[Any, ...], ...] = ()  # arguments of calls that do not fit
    promised: Callable[[Any], Any] = lambda returned: returned  # of what is returned: not what stands in padding
    left: Callable[[Any, tuple[Any, ...]], Any] = lambda thing, arguments: ()  # what it wrote in place
    exact: float | None = None  # how far it may be off, where its precision does not say so
