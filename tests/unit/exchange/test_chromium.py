"""The browser of `export --to page --check`, over its debugging pipe."""

import os

import pytest

from regard.exchange.chromium import Chromium, find_chromium


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")
@pytest.mark.parametrize("held", [0, 40])
def test_the_browser_answers_however_many_files_are_open(held):
    """Its pipe must be descriptors 3 and 4, wherever it was before."""
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(held)]
    try:
        with Chromium.start() as browser:
            assert browser.open("about:blank").evaluate("1 + 1") == 2
    finally:
        for file in files:
            os.close(file)
