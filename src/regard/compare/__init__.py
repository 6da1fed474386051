"""Comparing systems on the same text, tokens, evaluation and budget, with confidence intervals.

`regard.compare([...], data=…)` is the one function of this package, so the package itself is callable.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison


class _Verb(ModuleType):
    """A callable module: importing a submodule must not hide the function of the same name."""

    def __call__(self, *words: Any, **settings: Any) -> Comparison:
        from regard.compare.comparison import compare

        return compare(*words, **settings)


sys.modules[__name__].__class__ = _Verb
