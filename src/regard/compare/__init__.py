"""The honest table: systems side by side on the same text, tokens, evaluation and budget, with intervals.

`regard.compare([...], data=…)` is this package's one verb, so the package itself answers the call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.compare.comparison import Comparison


class _Verb(ModuleType):
    """A module that can be called: importing any part of the package must not hide the verb of the same name."""

    def __call__(self, *words: Any, **settings: Any) -> Comparison:
        from regard.compare.comparison import compare

        return compare(*words, **settings)


sys.modules[__name__].__class__ = _Verb
