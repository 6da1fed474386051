"""The longest chain of dependent operations, from autograd's graph.

depth(node) = 1 + max depth(what it was made of),   a leaf has depth 1
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def longest_chain(output: Tensor) -> int:
    """The longest path in the graph of a result, in operations."""
    depth: dict[Any, int] = {}
    waiting: list[Any] = [output.grad_fn]
    while waiting:  # no recursion: a chain may have thousands of operations
        node = waiting[-1]
        before = [earlier for earlier, _ in node.next_functions if earlier is not None]
        if unknown := [earlier for earlier in before if earlier not in depth]:
            waiting += unknown
        else:
            depth[node] = 1 + max((depth[earlier] for earlier in before), default=0)
            waiting.pop()
    return depth[output.grad_fn]
