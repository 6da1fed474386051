"""Faster replacements for the lecture's code, chosen by one table (table.py).

`install(model)` swaps methods; no other package depends on what runs. Without this package everything still works.
"""

from regard.fast.compile_ahead import get_ready
from regard.fast.table import Row, Use, install, on_this_machine, rows, uninstall

__all__ = ["Row", "Use", "get_ready", "install", "on_this_machine", "rows", "uninstall"]
