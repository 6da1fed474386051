"""Small real things that several tests share."""

import os

import hypothesis
import pytest

hypothesis.settings.register_profile("regard", derandomize=True, deadline=None)  # what passes once passes again
hypothesis.settings.load_profile("regard")

os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Tests never read or write the user's cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
