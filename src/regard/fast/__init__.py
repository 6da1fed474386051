"""Speed, all of it: faster code that stands in for the lecture's own, chosen by one table (row_table.py).

`install(model)` swaps methods; nothing else of Regard knows what runs. Without this package everything still works.
"""

from regard.fast.row_table import Row, Use, install, on_this_machine, rows, uninstall

__all__ = ["Row", "Use", "install", "on_this_machine", "rows", "uninstall"]
