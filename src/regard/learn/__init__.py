"""Learning with Regard: the lectures' pages, and exercises with their graders.

In a notebook, `%load_ext regard.learn` adds the magic `%%check EXERCISE`, which grades the function in its cell.
"""

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Adds `%%check` to a notebook; IPython calls this for `%load_ext regard.learn`."""
    from regard.learn.exercises.notebook_check import check_cell

    shell.register_magic_function(lambda line, cell: check_cell(shell, line, cell), "cell", "check")
