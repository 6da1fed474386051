"""Every test has a cache of its own and no corpora of the machine's, unless it asks for them."""

import os
from pathlib import Path

import pytest

MACHINE_DATA = os.environ.get("REGARD_DATA")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("REGARD_CACHE", str(cache))
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.delenv("REGARD_MIRROR", raising=False)
    return cache


@pytest.fixture
def machine_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not MACHINE_DATA:
        pytest.skip("REGARD_DATA is not set: no real corpora on this machine")
    monkeypatch.setenv("REGARD_DATA", MACHINE_DATA)
    return Path(MACHINE_DATA)
