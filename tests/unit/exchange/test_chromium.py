"""The browser of `export --to page --check`, over its debugging pipe."""

import os

import pytest

from regard.base.errors import RegardError
from regard.exchange import chromium
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


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_browser_may_exit_before_it_answers_that_it_closes_but_at_no_other_time(tmp_path, monkeypatch):
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\nhead -c 1 <&3 >/dev/null\n")  # exits when it is asked something
    program.chmod(0o700)
    monkeypatch.setattr(chromium, "find_chromium", lambda: str(program))
    with Chromium.start():
        pass
    with pytest.raises(RegardError, match="exited before it responded"), Chromium.start() as browser:
        browser.open("about:blank")
