"""Completion in a shell: what the Tab key offers for runs, corpora and systems, and `--install-completion`.

The script knows verbs and options by itself; for the rest it asks `regard __complete`, which loads nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from regard.base.errors import RegardError


def complete_run(context: Any) -> Iterator[str]:
    """Runs below the folder that is being typed, or below this one; then the models that come with Regard."""
    from regard.runs.store.gallery import gallery_names
    from regard.runs.store.list import find_runs

    typed = context.incomplete
    where = Path(os.path.dirname(typed) or ".")
    if where.is_dir():
        yield from (_as_typed(path, typed) for path in find_runs(where, depth=2))
    yield from gallery_names()


def complete_data(context: Any) -> Iterator[str]:
    """Corpora that have a name, then files and folders."""
    from regard.corpora.builtin import BUILTIN
    from regard.corpora.downloads import DOWNLOADS

    yield from BUILTIN
    yield from (download.name for download in DOWNLOADS)
    yield from _files(context.incomplete)


def complete_system(context: Any) -> Iterator[str]:
    from regard.systems.catalogue import SYSTEMS

    yield from (system.name for system in SYSTEMS)


def complete_target(context: Any) -> Iterator[str]:
    """Systems, then recipes and the user's own code."""
    yield from complete_system(context)
    yield from (name for name in _files(context.incomplete) if name.endswith((".toml", ".py", "/")))


def choices(*words: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda context: words


def _files(typed: str) -> Iterator[str]:
    where = Path(os.path.dirname(typed) or ".")
    for path in sorted(where.iterdir()) if where.is_dir() else ():
        if not path.name.startswith(".") or os.path.basename(typed).startswith("."):
            yield _as_typed(path, typed) + ("/" if path.is_dir() else "")


def _as_typed(path: Path, typed: str) -> str:
    return f"./{path}" if typed.startswith("./") else str(path)


def install_completion(*, shell: Literal["bash", "zsh", "fish", "powershell"] | None = None) -> None:
    """Install shell completion for verbs, options, systems, runs and corpora.

        regard --install-completion --shell zsh

    Parameters
    ----------
    shell
        name of the shell [default: the current one]
    """
    from cyclopts.completion.detect import ShellDetectionError

    from regard.cli.commands import app
    from regard.report.progress import say

    try:
        print(app.install_completion(shell=shell))
    except ShellDetectionError:
        raise RegardError(
            "Could not detect your shell: pass --shell, as in regard --install-completion --shell bash."
        ) from None
    say("Open a new shell, type regard and press Tab.")
