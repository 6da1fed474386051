"""The one door to `regard.fast`. Where that package is not there, everything runs as written."""

from __future__ import annotations

from regard.base.install import Install, as_written

install: Install
try:
    from regard.fast import install
except ImportError:
    install = as_written
