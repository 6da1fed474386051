"""The models that come with Regard: trained runs in the package, found by name (`gallery/gpt`) and never written to.

`python tools/gallery.py` trains them again from the recipe in each folder.
"""

from __future__ import annotations

from pathlib import Path

from regard.base.errors import RegardError

GALLERY = Path(__file__).resolve().parents[2] / "gallery"
PREFIX = GALLERY.name


def gallery_names() -> list[str]:
    """`gallery/bahdanau`, `gallery/gpt`, …"""
    return sorted(f"{PREFIX}/{path.parent.name}" for path in GALLERY.glob("*/run.json"))


def find_run(folder: Path) -> Path:
    """The folder itself if it exists, or the model that comes with Regard under this name (`gallery`: all of them)."""
    shipped = folder.as_posix() in (PREFIX, *gallery_names()) and not folder.exists()
    return GALLERY.parent / folder if shipped else folder


def shown_name(folder: Path) -> str:
    """`gallery/gpt` for a model that comes with Regard; otherwise the path as it is."""
    return f"{PREFIX}/{folder.name}" if folder.parent == GALLERY else str(folder)


def is_shipped(folder: Path) -> bool:
    return folder.resolve().parent == GALLERY


def check_own(folder: Path) -> None:
    """Refuse to change a model that comes with Regard."""
    if is_shipped(folder):
        name = f"{PREFIX}/{folder.resolve().name}"
        raise RegardError(f"{name} comes with Regard and is read-only: use `regard train` to make your own run.")
