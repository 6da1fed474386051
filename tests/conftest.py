"""Small real things that several tests share."""

import os
from collections import Counter

import hypothesis
import pytest

# What passes once passes again: always the same examples, so that more of them would find nothing new the next time.
hypothesis.settings.register_profile("regard", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("regard")

os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Tests never read or write the user's cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def pytest_collection_modifyitems(items):
    """The longest files first, so that all processes of `make test` end together: a slow test counts as fifty."""
    weight = Counter()
    for item in items:
        weight[item.path] += 50 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -weight[item.path])
